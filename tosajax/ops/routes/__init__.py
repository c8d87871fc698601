"""Routes: the ways to compute convolutions and products, one file for each.

`choose.py` returns a `Route`: a name, the reason, and a function. All convolutions are functions of
a `Convolution`, all products functions of `(a, b, a_zp, b_zp)`. Routes compute the same integers;
floats differ in the order of their sums.

| operands | on a CPU | on a GPU or another platform |
|---|---|---|
| integers, weights constant, channels enough | `convolution` | `patches` |
| integers, weights constant, channels few or one tap | `patches` | `patches` |
| integers, weights traced, or too large for int8 | `loop`, of one block | `loop`, of one block |
| integers, patches too large to lay out at once | `loop` | `loop` |
| floats | `float_convolution`, small ones `float_patches` | `float_patches` |
| floats, more than `loop.MAX_TAPS` taps | `float_convolution` | `float_taps` |
| depthwise, integers and floats | `depthwise` | `depthwise` |
| int8 dots: of `patches`, `loop` and MATMUL | `int8_dot` | `bfloat16_dot` |
| int16 dots | `int16_dot`, by int8 dots | `int16_dot`, by int8 dots |
| float dots | `float_dot` | `float_dot` |

A program for a platform that is not known yet holds both columns until it is lowered
(`platform.on_cpu`). `definition.py` holds the definitions that routes of integers must equal.
`explain` shows names of methods, not of files: `patches` and blocks of `loop` are both "patches".
"""
