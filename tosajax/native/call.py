"""Native kernels as functions of JAX: weights are packed, sizes planned, and examples joined."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.native import threads_wait, tiling
from tosajax.native.calls import compiler, schedule
from tosajax.native.calls.schedule import KernelCall, Link, Placeholder
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import UPPER_SHIFT, ByteScaleForm, ScaleTable
from tosajax.native.kernels import addition, convolution, depthwise, matmul, pool
from tosajax.native.kernels.epilogue import EpilogueKey, FusedAdd
from tosajax.native.kernels.fused_add import AddKey
from tosajax.native.tiling import Cut, Plan
from tosajax.ops._window import Window

Array = jax.Array | np.ndarray


class Operands(NamedTuple):
    """Of a convolution; what is a NumPy array is prepared when the program is made.

    Args:
      x: int8 or int16, [N, H, W, IC].
      weight: int8, less its zero point: [OC, KH, KW, IC], or depthwise [KH, KW, C, M].
      bias: int32, or of int16 int48 in int64; [1] or [OC].
      x_zp: of the type of x, [1]; of int16 it is 0.
    """

    x: Array
    weight: Array
    bias: Array
    x_zp: Array


class Epilogue(NamedTuple):
    """RESCALE of the sums, and CLAMP; all but `double` and `out` may be traced.

    Args:
      multiplier: int32 or int16, [1] or [OC]; int16 of int48 sums.
      shift: int8, [1] or [OC].
      zero_point: of the output, a scalar.
      least: the least result, a scalar.
      largest: the largest.
      double: whether it rounds twice.
      out: the type of results, "i8" or "i16".
    """

    multiplier: Any
    shift: Any
    zero_point: Any
    least: Any
    largest: Any
    double: bool
    out: str = "i8"


class Rescaling(NamedTuple):
    """RESCALE of int32 to int32; all but `double` may be traced.

    Args:
      multiplier: int32 or int16, [1].
      shift: int8, [1].
      double: whether it rounds twice.
    """

    multiplier: Any
    shift: Any
    double: bool


class Scaling(NamedTuple):
    """RESCALE of int8 to int32; all but `double` may be traced.

    Args:
      zero_point: of the input, [1].
      multiplier: int32 or int16, [1].
      shift: int8, [1].
      double: whether it rounds twice.
      then: another RESCALE of the result, if there is one.
    """

    zero_point: Any
    multiplier: Any
    shift: Any
    double: bool
    then: Rescaling | None = None


class Adding(NamedTuple):
    """ADD or SUB of results and other values; all but `op` and `is_right` may be traced.

    Args:
      op: "ADD" or "SUB".
      other: int8, of the shape of the results.
      is_right: whether the results are the right term.
      scales: of the left and of the right term.
      epilogue: of the sums, by one scale.
    """

    op: str
    other: Array
    is_right: bool
    scales: tuple[Scaling, Scaling]
    epilogue: Epilogue


def convolve(
    isa: InstructionSet,
    o: Operands,
    window: Window,
    epilogue: Epilogue | None = None,
    adding: Adding | None = None,
) -> KernelCall:
    """Sums (x - x_zp) * weight + bias over windows, padded with x_zp.

    Args:
      isa: of this processor.
      o: the operands.
      window: of the convolution; its padding is not negative.
      epilogue: of the sums, if they are scaled.
      adding: of the results, if these are int8.

    Returns:
      What `run` computes: [N, OH, OW, OC], of the epilogue's type; without one int32 sums, or
      those of int16 in int64.
    """
    shape = o.weight.shape
    oc = shape[0]
    vectors = -(-oc // isa.lanes)
    end = _epilogue_key(isa, oc, epilogue, wide=_is_int16(o))
    of_tile = tiling.vectors_of_tile(isa, vectors, window, o.x.shape)
    scales = None
    if adding is not None:
        how, scales = _add_key(isa, adding.op, adding.scales, adding.epilogue)
        end = end._replace(fused_add=FusedAdd(how, adding.is_right))
    cut = tiling.cut_of(isa, window, shape, wide=end.is_int16)
    packed, weight_sums = _pack_weights(o.weight, isa, vectors, of_tile, cut)

    def plan(of: Sequence[int], workers: int) -> Plan:
        return tiling.of_convolution(isa, end, window, shape, of_tile, of, workers)

    def out(of: Sequence[int]) -> tuple[int, ...]:
        return *window.out(of), oc

    operands = packed, *_channel_operands(isa, end, oc, o, weight_sums, epilogue)
    if adding is None or scales is None:
        return KernelCall(convolution.module_of, plan, out, (o.x, *operands), end.dtype)
    both = o.x, adding.other
    return KernelCall(convolution.module_of, plan, out, (*both, *operands, scales), end.dtype, 2)


def convolve_depthwise(
    isa: InstructionSet, o: Operands, window: Window, epilogue: Epilogue | None = None
) -> KernelCall:
    """`convolve` of each channel by itself, to [N, OH, OW, C * M]."""
    isa = isa.vector_set
    kh, kw, inputs, multiplier = o.weight.shape
    # ByteScaleForm pixels lie in a vector together; each of them has the same weights.
    width = window.out(o.x.shape)[1]
    together = tiling.together(isa, inputs * multiplier, width)
    places = min(width // together, depthwise.MAX_POSITIONS)
    oc = inputs * multiplier * together
    vectors = -(-oc // isa.lanes)
    end = _epilogue_key(isa, oc, epilogue, wide=_is_int16(o))
    kind = depthwise.KernelKey(isa, kh, kw, places, multiplier > 1, end)
    xp = _array_module(o.weight)
    flat = o.weight.reshape(kh, kw, inputs * multiplier)
    weight_sums = flat.astype(np.int32).sum((0, 1))
    widths = [(0, 0), (0, kind.groups * isa.dot_length - kw), (0, vectors * isa.lanes - oc)]
    tiled = xp.pad(xp.tile(flat, (1, 1, together)), widths)
    cut = tiled.reshape(kh, kind.groups, isa.dot_length, vectors, isa.lanes)
    packed = cut.transpose(3, 0, 1, 4, 2).reshape(-1).astype(_element_dtype(isa))

    def plan(of: Sequence[int], workers: int) -> Plan:
        return tiling.of_depthwise(kind, window, multiplier, of, workers)

    def out(of: Sequence[int]) -> tuple[int, ...]:
        return *window.out(of), inputs * multiplier

    operands = o.x, packed, *_channel_operands(isa, end, oc, o, weight_sums, epilogue)
    return KernelCall(depthwise.module_of, plan, out, operands, end.dtype)


def multiply(
    isa: InstructionSet,
    inputs: Sequence[Array],
    zero_points: Sequence[Array],
    epilogue: Epilogue | None = None,
) -> KernelCall:
    """Products of matrices, (a - a_zp) @ (b - b_zp).

    Args:
      isa: of this processor.
      inputs: a and b, int8 or int16, [N, H, C] and [N, C, W].
      zero_points: of a and b, [1]; of int16 they are 0.
      epilogue: of the sums, if they are scaled.

    Returns:
      What `run` computes: [N, H, W], of the epilogue's type; without one int32 sums, or those of
      int16 in int64.
    """
    width = inputs[1].shape[2]
    wide = np.dtype(inputs[0].dtype) == np.int16
    isa = isa.int16_set if wide else isa
    end = _epilogue_key(isa, width, epilogue, wide=wide)

    def plan(of: Sequence[int], workers: int) -> Plan:
        return tiling.of_matmul(isa, end, width, of, workers)

    def out(of: Sequence[int]) -> tuple[int, ...]:
        return of[1], width

    limits = _limits(zero_points[0], epilogue, zero_points[1])
    bias = [np.zeros(1, np.int32)] * (1 + wide)
    operands = *inputs, _channels(end, width, bias, epilogue), limits
    return KernelCall(matmul.module_of, plan, out, operands, end.dtype, 2)


def add(
    isa: InstructionSet,
    op: str,
    inputs: tuple[Array, Array],
    scales: tuple[Scaling, Scaling],
    epilogue: Epilogue,
) -> KernelCall:
    """The sum, or with "SUB" the difference, of scaled inputs, scaled.

    Args:
      isa: of this processor.
      op: "ADD" or "SUB".
      inputs: int8, of one shape, with as many elements as there are lanes or more.
      scales: of each input.
      epilogue: of the sums, by one scale.

    Returns:
      What `run` computes: int8 of that shape.
    """
    how, operand = _add_key(isa, op, scales, epilogue)
    kind = addition.KernelKey(isa, 1, how)

    def plan(of: Sequence[int], workers: int) -> Plan:
        return tiling.of_addition(kind, math.prod(of), workers)

    operands = *inputs, operand
    return KernelCall(addition.module_of, plan, lambda of: tuple(of[1:]), operands, np.int8, 2)


def combine(
    isa: InstructionSet, op: str, x: Array, window: Window, zero_points: Sequence[Array]
) -> KernelCall:
    """The average or the maximum of windows.

    Args:
      isa: of this processor.
      op: "AVG_POOL2D" or "MAX_POOL2D".
      x: int8 or int16, [N, H, W, C].
      window: of the pool.
      zero_points: of the input and the output, [1]; 0 of maxima.

    Returns:
      What `run` computes: [N, OH, OW, C], of the type of x.
    """
    channels = x.shape[3]
    kind = pool.KernelKey(isa, op, np.dtype(x.dtype), 0)
    kind = kind._replace(last=channels % kind.lanes)

    def plan(of: Sequence[int], workers: int) -> Plan:
        return tiling.of_pool(kind, window, of, workers)

    def out(of: Sequence[int]) -> tuple[int, ...]:
        return *window.out(of), channels

    xp = _array_module(*zero_points)
    numbers = xp.stack([xp.asarray(z).astype(np.int32).reshape(()) for z in zero_points])
    return KernelCall(pool.module_of, plan, out, (x, numbers), x.dtype)


# Operands.


def _is_int16(o: Operands) -> bool:
    return np.dtype(o.x.dtype) == np.int16


def _epilogue_key(
    isa: InstructionSet, channels: int, epilogue: Epilogue | None, *, wide: bool = False
) -> EpilogueKey:
    last = channels % isa.lanes or isa.lanes
    if epilogue is None:
        return EpilogueKey(isa, None, False, last, wide, "i64" if wide else "i32")
    upper = not wide and _allows_upper_only(epilogue.shift)
    return EpilogueKey(isa, epilogue.double, upper, last, wide, epilogue.out)


def _add_key(
    isa: InstructionSet, op: str, scales: tuple[Scaling, Scaling], epilogue: Epilogue
) -> tuple[AddKey, Array]:
    """How a sum is made, and the operand of its scales."""
    left, right = scales
    result = Rescaling(epilogue.multiplier, epilogue.shift, epilogue.double)
    rescalings = left.then, right.then, result
    numbers = [
        *(value for scale in scales for value in (scale.multiplier, scale.shift)),
        *(value for r in rescalings for value in ((0, 0) if r is None else r[:2])),
        *(scale.zero_point for scale in scales),
        *(epilogue.zero_point, epilogue.least, epilogue.largest),
    ]
    xp = _array_module(*numbers)
    column = xp.stack([xp.asarray(n).astype(np.int32).reshape(1) for n in numbers])

    def scale(r: Rescaling) -> ScaleTable:
        return ScaleTable(isa.lanes, r.double, _allows_upper_only(r.shift))

    left_next, right_next = (r and scale(r) for r in (left.then, right.then))
    how = AddKey(
        op,
        (_byte_scale_form(left), _byte_scale_form(right)),
        (left_next, right_next, scale(result)),
    )
    return how, xp.tile(column, (1, isa.lanes))


def _byte_scale_form(scale: Scaling) -> ByteScaleForm:
    """That of the first scale of an addition's input."""
    numbers = scale.multiplier, scale.shift
    if any(isinstance(n, jax.Array) for n in numbers):
        return ByteScaleForm.for_unknown(double_round=scale.double)
    return ByteScaleForm.for_constant(
        *(np.asarray(n).item() for n in numbers), double_round=scale.double
    )


def _allows_upper_only(shift: Any) -> bool:
    """Whether all shifts are known, and products' upper words are enough for them."""
    return not isinstance(shift, jax.Array) and bool(np.all(np.asarray(shift) >= UPPER_SHIFT))


def _element_dtype(isa: InstructionSet) -> type:
    return np.int8 if isa.element_bytes == 1 else np.int16


def _array_module(*arrays: Any) -> Any:
    """NumPy where all are known: what it computes costs a program nothing. Otherwise JAX's."""
    return jnp if any(isinstance(x, jax.Array) for x in arrays) else np


def _channel_operands(
    isa: InstructionSet,
    end: EpilogueKey,
    count: int,
    o: Operands,
    weight_sums: Array,
    epilogue: Epilogue | None,
) -> tuple[Array, Array]:
    """The operands of channels and of limits."""
    xp = _array_module(o.bias, o.x_zp, weight_sums)
    if end.is_int16:
        words = _int48_bias_words(isa, o.bias, weight_sums)
        return _channels(end, count, words, epilogue), _limits(np.zeros(1, np.int32), epilogue)
    bias, x_zp = (xp.asarray(v).reshape(-1).astype(np.int32) for v in (o.bias, o.x_zp))
    if isa.element_bytes == 1:  # Bytes are raised, and keep their zero point.
        bias = bias - (x_zp + np.int32(isa.input_offset)) * xp.asarray(weight_sums)
    return _channels(end, count, [bias], epilogue), _limits(x_zp, epilogue)


def _int48_bias_words(isa: InstructionSet, bias: Array, weight_sums: Array) -> list[Array]:
    """The lower and the upper words of a bias of int48 sums."""
    xp = _array_module(bias, weight_sums)
    with _x64.scope():
        total = xp.asarray(bias).reshape(-1).astype(np.int64)
        if isa.element_bytes == 1:  # Upper bytes are raised, lower ones less 128 but for that.
            raised = np.int64(128 - isa.input_offset - 256 * isa.input_offset)
            total = total + raised * xp.asarray(weight_sums).astype(np.int64)
        return [part.astype(np.int32) for part in (total & 0xFFFFFFFF, total >> 32)]


def _channels(
    end: EpilogueKey, count: int, bias: Sequence[Array], epilogue: Epilogue | None
) -> Array:
    """The rows of so many channels; see `results`."""
    rows = [*bias] if epilogue is None else [*bias, epilogue.multiplier, epilogue.shift]
    xp = _array_module(*rows)

    def padded(row: Any) -> Any:
        row = xp.asarray(row).astype(np.int32).reshape(-1)
        row = xp.tile(row, count // row.size)
        return xp.pad(
            row, (0, -count % end.lanes), constant_values=UPPER_SHIFT
        )  # A shift that there is.

    return xp.stack([padded(row) for row in rows])


def _limits(zero_point: Array, epilogue: Epilogue | None, *others: Array) -> Array:
    """The scalars; see `results`. The zero point is that of the input."""
    end = (0, 0, 0) if epilogue is None else epilogue[2:5]
    values = zero_point, *end, *others
    xp = _array_module(*values)
    return xp.stack([xp.asarray(v).astype(np.int32).reshape(()) for v in values])


def _pack_weights(
    weight: Array, isa: InstructionSet, vectors: int, of_tile: int, cut: Cut
) -> tuple[Array, Array]:
    """The weights in the order in which kernels read them, and their sums by channel, int32."""
    xp = _array_module(weight)
    oc = weight.shape[0]
    flat = weight.reshape(oc, -1, cut.terms)
    sums = flat.astype(np.int32).sum((1, 2))
    widths = [(0, vectors * isa.lanes - oc), (0, 0), (0, cut.beyond)]
    flat = xp.pad(flat, widths).astype(_element_dtype(isa))
    count, each = cut.length // isa.depth, isa.depth // isa.inner
    steps = flat.reshape(vectors, isa.lanes, -1, count, each, isa.inner)
    whole = vectors // of_tile * of_tile
    # [block, vector, lane, segment, step, word, term], and the vectors of a step side by side.
    blocks = [steps[:whole].reshape(-1, of_tile, *steps.shape[1:]), steps[None, whole:]]
    parts = [part.transpose(0, 3, 4, 1, 5, 2, 6).reshape(-1) for part in blocks]
    return xp.concatenate(parts), sums


# Calls.


def run(prepared: KernelCall) -> jax.Array:
    """The result of a kernel. `vmap` joins examples of the inputs in one call."""
    return run_all([prepared], [0])[0]


def run_all(kernels: Sequence[KernelCall], outputs: Sequence[int]) -> list[jax.Array]:
    """The results of kernels that one call runs one after the other.

    Args:
      kernels: in order. Each input and result has the same images, unless there is one kernel.
      outputs: the numbers of the kernels whose results are wanted.
    """
    waits = threads_wait()
    links, arrays, inputs = link_kernels(kernels)
    first = links[0].operand_numbers

    @jax.custom_batching.custom_vmap
    def call(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return _ffi_call(links, outputs, arrays, waits=waits)

    @call.def_vmap
    def _(count: int, batched: Sequence[bool], *arrays: jax.Array):
        done = (True,) * len(outputs)
        if any(batched[inputs:]) and len(links) > 1 and not any(batched[n] for n in first):
            # Kernels before the first that differs are the same for all.
            apart = jax.vmap(one_by_one, [0 if has else None for has in batched])
            return apart(*arrays), done
        stacked = (
            a if has else jnp.broadcast_to(a, (count, *a.shape))
            for a, has in zip(arrays, batched, strict=True)
        )
        if any(batched[inputs:]):
            return lax.map(lambda each: call(*each), tuple(stacked)), done
        joined = [x.reshape(-1, *x.shape[2:]) for x in itertools.islice(stacked, inputs)]
        results = call(*joined, *arrays[inputs:])
        return tuple(y.reshape(count, -1, *y.shape[1:]) for y in results), done

    def one_by_one(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        made: list[jax.Array] = []
        for link in links:
            read = (
                made[s.number] if isinstance(s, Placeholder) else arrays[s] for s in link.sources
            )
            operands = *read, *(arrays[number] for number in link.parameters)
            made.append(run(link.kernel._replace(operands=operands)))
        return tuple(made[number] for number in outputs)

    return list(call(*arrays))


def _ffi_call(
    links: Sequence[Link], outputs: Sequence[int], arrays: Sequence[jax.Array], *, waits: bool
) -> tuple[jax.Array, ...]:
    """The results of a call of XLA's."""
    images = arrays[0].shape[0]
    planned = schedule.plan_call(links, outputs, images, operands=len(arrays), waits=waits)
    compiler.register(planned, [link.kernel.module_of for link in links])
    made = [links[number].kernel.placeholder(number) for number in outputs]
    times = images // links[0].kernel.shape[0]
    with contextlib.ExitStack() as scopes:
        for one in made:
            scopes.enter_context(_x64.scope_of(one.dtype))
        results = [
            jax.ShapeDtypeStruct((one.shape[0] * times, *one.shape[1:]), one.dtype) for one in made
        ]
        workspace = jax.ShapeDtypeStruct((planned.workspace,), jnp.uint8)
        # In words, as arrays of 64 bits need a setting of JAX's.
        words = planned.words.view(np.int32)
        return tuple(jax.ffi.ffi_call(planned.name, (*results, workspace))(*arrays, words)[:-1])


def link_kernels(kernels: Sequence[KernelCall]) -> tuple[list[Link], list[jax.Array], int]:
    """Kernels with the numbers of their operands, all operands of the call, and its inputs."""
    given = {
        id(x): x for k in kernels for x in k.operands[: k.inputs] if not isinstance(x, Placeholder)
    }
    number_of = {key: number for number, key in enumerate(given)}
    operands, links = [*given.values()], []
    for kernel in kernels:
        inputs, others = kernel.operands[: kernel.inputs], kernel.operands[kernel.inputs :]
        sources = tuple(x if isinstance(x, Placeholder) else number_of[id(x)] for x in inputs)
        numbers = range(len(operands), len(operands) + len(others))
        links.append(Link(kernel, sources, tuple(numbers)))
        operands += others
    return links, list(map(jnp.asarray, operands)), len(given)
