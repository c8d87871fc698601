"""Code generation for native kernels: LLVM IR as text, by instruction set.

`builder` writes IR, `isa` describes instruction sets, and `accumulators`, `narrowing` and
`requantize` write the parts that all kernels need: dot products, saturating packs, RESCALE. `abi`
defines a kernel's functions and how `calls` reaches them.

IR is written as text, which llvmlite then parses, optimizes and compiles. Text takes a seventh of
the time of llvmlite's object model, and can express volatile loads, which that model lacks.
"""
