"""Families of integer operators: functions of one example, with examples and exact results.

All examples have boundary values: the first is all minimum, the second all maximum, and half of
each other example are boundaries. Results come from the oracles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from oracle import (
    conv_oracle,
    forced,
    image_oracle,
    matmul_oracle,
    pool_oracle,
    type_conversion_oracle,
)
from oracle import data_layout_oracle as layout_oracle
from oracle import elementwise_oracle as elementwise
from oracle import reduction_oracle as reduction
from oracle.matmul_oracle import draw, draw_bias

import tosajax
from tosajax import Builder, DType, ops
from tosajax.lowering.build import build
from tosajax.spec.enums import ResizeMode, RoundingMode

EXAMPLES = 4
INT8, INT16, INT32, INT48, BOOL = DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.BOOL
SHIFTS = np.array([2, 31, 32, 33, 62], np.int8)
MULTIPLIERS = {
    INT32: np.array([2**30, 2**31 - 1, 1_394_827_001, 2**30 + 1, 0], np.int32),
    INT16: np.array([2**14, 2**15 - 1, 21_283, 2**14 + 1, 0], np.int16),
}

Function = Callable[..., Any]


class Case(NamedTuple):
    """An operator with its examples; arrays are stacked on a first axis of EXAMPLES."""

    name: str
    function: Function
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray


def case(
    name: str, function: Function, definition: Function, *inputs: np.ndarray, out: DType
) -> Case:
    """A case with the results of `definition`, on int64, for each example."""
    wide = [x.astype(np.int64) for x in inputs]
    exact = np.stack([np.asarray(definition(*(x[i] for x in wide))) for i in range(EXAMPLES)])
    expected = exact.astype(out.storage)
    np.testing.assert_array_equal(expected, exact)  # otherwise the result is undefined
    return Case(name, function, inputs, expected)


def examples(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    values = draw(rng, dtype, (EXAMPLES, *shape))
    values[0], values[1] = dtype.minimum, dtype.maximum
    return values


def points(dtype: DType, *values: int) -> np.ndarray:
    """A zero point, or another single value, for each example."""
    return np.resize(np.array(values, dtype.storage), (EXAMPLES, 1))


def zero_points(dtype: DType) -> np.ndarray:
    return points(dtype, *((-128, 127, 3, -1) if dtype is INT8 else (0,)))


def constant(value: int) -> np.ndarray:
    return np.array([value], np.int8)


# Convolutions. Weights of the first channel are all at the minimum, of the second at the maximum.

ACCUMULATOR = {INT8: INT32, INT16: INT48}
# (operator, input, weights, bias, attributes, definition)
CONVOLUTIONS = {
    "conv2d": (
        *(ops.conv2d, (1, 3, 3, 4), (3, 2, 3, 4), 3),
        {"pad": (1, 0, 1, 0), "stride": (1, 1), "dilation": (1, 1)},
        conv_oracle.conv,
    ),
    "conv2d of one tap": (
        *(ops.conv2d, (1, 3, 2, 3), (3, 1, 1, 3), 1),
        {"pad": (0, 0, 1, 0), "stride": (1, 2), "dilation": (1, 1)},
        conv_oracle.conv,
    ),
    "conv3d": (
        *(ops.conv3d, (1, 2, 3, 2, 3), (2, 2, 2, 1, 3), 2),
        {"pad": (1, 0, 0, 0, 0, 0), "stride": (1, 1, 1), "dilation": (1, 1, 1)},
        conv_oracle.conv,
    ),
    "transpose_conv2d": (
        *(ops.transpose_conv2d, (1, 2, 2, 4), (2, 3, 2, 4), 2),
        {"out_pad": (0, -1, 1, 0), "stride": (2, 1)},
        conv_oracle.transpose,
    ),
    "depthwise_conv2d": (
        *(ops.depthwise_conv2d, (1, 3, 3, 2), (2, 3, 2, 2), 4),
        {"pad": (1, 0, 0, 1), "stride": (1, 1), "dilation": (1, 1)},
        conv_oracle.depthwise,
    ),
}


# Operator and route, by type and by whether the weights are constant.
ROUTES = {
    (INT8, True): {
        ("conv2d", "convolution"),
        ("conv2d of one tap", "dot"),
        ("transpose_conv2d", "convolution"),
    },
    (INT8, False): {("conv2d", "loop"), ("conv3d", "patches")},
    (INT16, True): {("conv2d", "patches"), ("conv2d of one tap", "dot"), ("conv3d", "convolution")},
    (INT16, False): {("conv2d", "loop"), ("transpose_conv2d", "patches")},
}


def convolutions(dtype: DType, *, known: bool) -> list[Case]:
    """Convolutions by each route, weights constant or traced."""
    rng = np.random.default_rng(dtype.bits + known)
    pairs = sorted(ROUTES[dtype, known])
    return [_convolution(rng, dtype, name, route, known=known) for name, route in pairs]


def depthwise() -> list[Case]:
    rng = np.random.default_rng(3)
    routes = [(INT8, "slices", False), (INT16, "slices", True)]
    return [
        _convolution(rng, dtype, "depthwise_conv2d", route, known=known)
        for dtype, route, known in [*routes, (INT16, "loop", False)]
    ]


def _convolution(
    rng: np.random.Generator, dtype: DType, name: str, route: str, *, known: bool
) -> Case:
    operator, x_shape, w_shape, length, attributes, definition = CONVOLUTIONS[name]
    acc = ACCUMULATOR[dtype]
    function = _forced(functools.partial(operator, acc_type=acc, **attributes), route)
    channel = -1 if name.startswith("depthwise") else 0
    x, zp = examples(rng, dtype, x_shape), zero_points(dtype)
    bias = np.stack([draw_bias(rng, acc, (length,)) for _ in range(EXAMPLES)])
    title = f"{name} {dtype.name} {'constant' if known else 'traced'} {route}"
    if not known:
        weight = np.stack([_extreme(draw(rng, INT8, w_shape), channel) for _ in range(EXAMPLES)])
        weight_zp = zero_points(INT8)[::-1]
        inputs = x, weight, bias, zp, weight_zp
        return case(title, function, functools.partial(definition, **attributes), *inputs, out=acc)
    weight = _extreme(draw(rng, INT8, w_shape), channel)
    # Zero points of constant weights: none, or one with which the differences still fit int8.
    weight_zp = constant(-1 if route == "patches" else 0)
    weight = np.minimum(weight, 127 + weight_zp).astype(np.int8)

    def bound(x: Any, bias: Any, zp: Any) -> Any:
        return function(x, weight, bias, zp, weight_zp)

    def defined(x: Any, bias: Any, zp: Any) -> Any:
        return definition(x, weight.astype(np.int64), bias, zp, int(weight_zp[0]), **attributes)

    return case(title, bound, defined, x, bias, zp, out=acc)


def _extreme(weight: np.ndarray, channel: int) -> np.ndarray:
    first, second, *_ = np.moveaxis(weight, channel, 0)
    first[...], second[...] = -128, 127
    return weight


def _forced(function: Function, route: str) -> Function:
    """The function with one route for its convolution."""
    if route not in forced.ROUTES:
        return function  # a single tap is a dot; a depthwise convolution slices

    def call(*inputs: Any) -> Any:
        with forced.route(route):
            return function(*inputs)

    return call


# The other tensor operators.


def matmul() -> list[Case]:
    rng = np.random.default_rng(4)
    found = []
    for dtype, rows in ((INT8, 1), (INT8, 3), (INT16, 2)):
        out = ACCUMULATOR[dtype]
        a, b = (examples(rng, dtype, s) for s in ((2, rows, 5), (2, 5, 3)))
        zps = zero_points(dtype), zero_points(dtype)[::-1]
        function = functools.partial(ops.matmul, out_type=out)
        title = f"matmul {dtype.name}, {rows} rows"
        found.append(case(title, function, _matmul, a, b, *zps, out=out))
        b = examples(rng, dtype, (1, 3, 5))
        function = functools.partial(ops.matmul_t, out_type=out)
        title = f"matmul_t {dtype.name}, {rows} rows"
        found.append(case(title, function, _matmul_t, a, b, *zps, out=out))
    return found


def _matmul_t(a: Any, b: Any, a_zp: Any, b_zp: Any) -> Any:
    return matmul_oracle.matmul_t(a, b, int(a_zp[0]), int(b_zp[0]))


def _matmul(a: Any, b: Any, a_zp: Any, b_zp: Any) -> Any:
    return matmul_oracle.matmul(a, b, int(a_zp[0]), int(b_zp[0]))


def pools() -> list[Case]:
    rng = np.random.default_rng(5)
    window = {"kernel": (2, 3), "stride": (1, 1), "pad": (1, 0, 1, 1)}
    found = []
    for dtype in (INT8, INT16):
        x, zp = examples(rng, dtype, (1, 3, 3, 2)), zero_points(dtype)
        average = functools.partial(ops.avg_pool2d, acc_type=INT32, **window)
        limits = dtype.minimum, dtype.maximum

        def mean(x: Any, zp: Any, out_zp: Any, limits: tuple[int, int] = limits) -> Any:
            return pool_oracle.avg_pool_int(x, int(zp[0]), int(out_zp[0]), *limits, **window)

        found.append(case(f"avg_pool {dtype.name}", average, mean, x, zp, zp[::-1], out=dtype))
    largest = functools.partial(ops.max_pool2d, **window)
    definition = functools.partial(pool_oracle.max_pool, **window)
    x = examples(rng, INT8, (1, 3, 3, 2))
    return [*found, case("max_pool INT8", largest, definition, x, out=INT8)]


def resize() -> list[Case]:
    rng = np.random.default_rng(6)
    # Scales that give int16 results of more than 32 bits.
    grid = ((2048, 1024, 512, 256), (-1024, 0), (1024, 256))
    found = []
    for dtype, out in ((INT8, INT32), (INT16, INT48), (INT8, INT8), (INT16, INT16)):
        bilinear = dtype is not out
        mode = ResizeMode.BILINEAR if bilinear else ResizeMode.NEAREST_NEIGHBOR
        x = examples(rng, dtype, (1, 3, 2, 2))

        def function(x: Any, mode: ResizeMode = mode, out: DType = out) -> Any:
            return ops.resize(x, *grid, mode=mode, out_type=out)

        def definition(x: Any, bilinear: bool = bilinear) -> Any:
            return image_oracle.resize(x, *grid, bilinear=bilinear).astype(np.int64)

        found.append(case(f"resize {dtype.name} {out.name}", function, definition, x, out=out))
    return found


# RESCALE. One shift for each channel, and values in the range that is defined for it.


def rescale() -> list[Case]:
    double = RoundingMode.DOUBLE_ROUND
    constant_shift = np.array([33, 34, 47, 61, 62], np.int8)
    return [
        _rescale(INT16, INT8, signs=(True, False), rounding=double),
        _rescale(INT8, INT16, signs=(False, True), scale32=False),
        _rescale(INT32, INT8, shift=constant_shift),
        _rescale(INT32, INT16, shift=constant_shift, rounding=double),
        _rescale(INT32, INT32, rounding=double),
    ]


def rescale_int48() -> list[Case]:
    found = [_rescale(INT48, out, scale32=False) for out in (INT8, INT16)]
    return [*found, _rescale(INT48, INT32, scale32=False, shift=SHIFTS)]


def _rescale(
    source: DType,
    target: DType,
    *,
    scale32: bool = True,
    rounding: RoundingMode = RoundingMode.SINGLE_ROUND,
    signs: tuple[bool, bool] = (False, False),
    shift: np.ndarray | None = None,
) -> Case:
    rng = np.random.default_rng(source.bits * target.bits)
    shifts = SHIFTS if shift is None else shift
    limit = 1 << np.minimum(shifts.astype(np.int64) + (-1 if scale32 else 15), 47)
    in_zp, out_zp = (
        _numbers(zero_points(t), t, s) for t, s in zip((source, target), signs, strict=True)
    )
    if source is INT16 and signs[0]:
        in_zp = np.resize([0, 32768], in_zp.shape)
    low = 0 if signs[0] else source.minimum
    number = np.clip(examples(rng, source, (3, shifts.size)).astype(np.int64), -limit, limit - 1)
    number = np.clip(number + in_zp[:, None], low, low + (1 << source.bits) - 1)
    factors = MULTIPLIERS[INT32 if scale32 else INT16]
    multiplier = np.stack([np.roll(factors, i) for i in range(EXAMPLES)])
    attributes: dict[str, Any] = {"scale32": scale32, "rounding_mode": rounding}
    attributes |= {"input_unsigned": signs[0], "output_unsigned": signs[1], "per_channel": True}

    def definition(x: Any, multiplier: Any, in_zp: Any, out_zp: Any, shift: Any = shifts) -> Any:
        def one(value: int, multiplier: int, shift: int) -> int | None:
            return type_conversion_oracle.rescale(
                *(value, multiplier, shift, int(in_zp[0]), int(out_zp[0])),
                scale32=scale32,
                double_round=rounding is RoundingMode.DOUBLE_ROUND,
                bits=target.bits,
                unsigned=signs[1],
            )

        grid = np.broadcast_arrays(x, multiplier, shift)
        results = [one(*map(int, v)) for v in zip(*(g.flat for g in grid), strict=True)]
        assert None not in results
        return np.array(results, np.int64).reshape(x.shape)

    title = f"rescale {source.name} {target.name} {attributes}"
    values = number, multiplier, in_zp, out_zp
    wanted = np.stack([definition(*(v[i] for v in values)) for i in range(EXAMPLES)])
    arrays = number.astype(source.storage), in_zp.astype(source.storage)
    inputs = [arrays[0], multiplier, np.resize(shifts, (EXAMPLES, shifts.size)), arrays[1]]
    inputs.append(out_zp.astype(target.storage))

    def by_constant(x: Any, multiplier: Any, in_zp: Any, out_zp: Any) -> Any:
        return ops.rescale(x, multiplier, shifts, in_zp, out_zp, **attributes)  # pyright: ignore

    function = functools.partial(ops.rescale, **attributes)
    if shift is not None:
        del inputs[2]
        function, title = by_constant, f"{title}, constant shift"
    return Case(title, function, tuple(inputs), wanted.astype(target.storage))


def _numbers(values: np.ndarray, dtype: DType, unsigned: bool) -> np.ndarray:
    wide = values.astype(np.int64)
    return wide % (1 << dtype.bits) if unsigned else wide


# Elementwise operators, tables and reductions.


def _elements(name: str, scalar: Function, *inputs: np.ndarray, out: DType, **static: Any) -> Case:
    """A case of an operator on single elements, from its definition on Python integers."""

    def definition(*arrays: Any) -> Any:
        flat = [a.ravel() for a in np.broadcast_arrays(*arrays)]
        results = [int(scalar(*map(int, v))) for v in zip(*flat, strict=True)]
        return np.array(results, np.int64).reshape(np.broadcast_shapes(*(a.shape for a in arrays)))

    function = functools.partial(getattr(ops, name), **static)
    return case(f"{name} {inputs[0].dtype}", function, definition, *inputs, out=out)


def products() -> list[Case]:
    """MUL, with shifts, TABLE and CLAMP."""
    rng = np.random.default_rng(7)
    a, b = examples(rng, INT16, (2, 5)), examples(rng, INT16, (1, 5))
    limits = {"min_val": np.int8(-100), "max_val": np.int8(99)}
    found = [
        _elements("mul", elementwise.mul, a, b, points(INT8, 0), out=INT32),
        _elements("clamp", _clamp, examples(rng, INT8, (2, 5)), out=INT8, **limits),
    ]
    a, b = (examples(rng, INT32, s) for s in ((2, 8), (1, 8)))
    shift = points(INT8, 33, 62, 63, 0)
    wide = shift.astype(np.int64)[:, None]
    product = np.abs(a.astype(np.int64) * b.astype(np.int64))
    # The result fits 32 bits; the product plus half a unit needs 64.
    limit = np.where(wide < 63, 1 << np.minimum(wide + 30, 62), (1 << 62) - 1)
    x = np.where((product <= limit) | (wide == 0), a, a % 3 - 1).astype(np.int32)
    found.append(_elements("mul", elementwise.mul, x, b, shift, out=INT32))
    return [*found, *(_table(rng, dtype) for dtype in (INT8, INT16))]


def _table(rng: np.random.Generator, dtype: DType) -> Case:
    x = examples(rng, dtype, (3, 4))
    if dtype is INT8:
        table = examples(rng, dtype, (256,))
        return case("table INT8", ops.table, lambda x, table: table[x + 128], x, table, out=INT8)
    table = examples(rng, dtype, (513,))
    table[2:] //= 2  # neighbours less than 2**15 apart

    def between(x: Any, table: Any) -> Any:
        entries = table.tolist()
        return np.vectorize(lambda v: elementwise.lookup(entries, int(v)))(x)

    return case("table INT16", ops.table, between, x, table, out=INT32)


def _clamp(value: int) -> int:
    return min(max(value, -100), 99)


def elementwise_operators() -> list[Case]:
    """Each operator with one type; `test_every_row.py` has all of them."""
    rng = np.random.default_rng(8)
    (a8, b8), (a16, b16), (a, b) = (
        [examples(rng, dtype, s) for s in ((2, 5), (2, 1))] for dtype in (INT8, INT16, INT32)
    )
    half_a, half_b = a // 2, b // 2
    by8, by16 = np.array([0, 1, 4, 6, 7], np.int8), np.array([0, 1, 8, 14, 15], np.int16)
    by8, by16 = (np.resize(by, (EXAMPLES, 1, 5)) for by in (by8, by16))
    to_left = functools.partial(elementwise.logical_left_shift, bits=16)
    to_right = functools.partial(elementwise.logical_right_shift, bits=8)
    rounded = functools.partial(elementwise.arithmetic_right_shift, round=True)
    negate = functools.partial(elementwise.negate, bits=8)
    zps = zero_points(INT8), zero_points(INT8)[::-1]
    return [
        _elements("add", lambda x, y: x + y, half_a, half_b, out=INT32),
        _elements("sub", lambda x, y: x - y, half_a, half_b, out=INT32),
        _elements("maximum", max, a, b, out=INT32),
        _elements("minimum", min, a, b, out=INT32),
        _elements("intdiv", elementwise.intdiv, half_a, half_b | 1, out=INT32),
        _elements("abs", lambda x: x if x > 0 else -x, half_a, out=INT32),
        _elements("clz", elementwise.clz, a, out=INT32),
        _elements("equal", lambda x, y: x == y, a, b, out=BOOL),
        _elements("greater", lambda x, y: x > y, a, b, out=BOOL),
        _elements("greater_equal", lambda x, y: x >= y, a, b, out=BOOL),
        _elements("bitwise_and", lambda x, y: x & y, a8, b8, out=INT8),
        _elements("bitwise_or", lambda x, y: x | y, a16, b16, out=INT16),
        _elements("bitwise_xor", lambda x, y: x ^ y, a, b, out=INT32),
        _elements("bitwise_not", lambda x: ~x, a8, out=INT8),
        _elements("logical_left_shift", to_left, a16, by16, out=INT16),
        _elements("logical_right_shift", to_right, a8, by8, out=INT8),
        _elements("arithmetic_right_shift", rounded, a16, by16, out=INT16, round=True),
        _elements("select", lambda c, x, y: x if c else y, a8 > 0, a8, b8, out=INT8),
        _elements("negate", negate, a8, *zps, out=INT8),
        _elements("cast", lambda x: elementwise.wrap(x, 8), a, out=INT8, out_type=INT8),
        _elements("cast", bool, a16, out=BOOL, out_type=BOOL),
    ]


def reductions() -> list[Case]:
    rng = np.random.default_rng(9)
    x8, x16, x = (examples(rng, dtype, (2, 5, 3)) for dtype in (INT8, INT16, INT32))
    argmax = functools.partial(ops.argmax, axis=1)
    wanted = functools.partial(np.argmax, axis=1)
    return [
        _reduction("reduce_max", lambda *v: max(v), x8, INT8),
        _reduction("reduce_min", lambda *v: min(v), x16, INT16),
        _reduction("reduce_sum", lambda *v: sum(v), (x // 8).astype(np.int32), INT32),
        _reduction("reduce_all", lambda *v: all(v), x8 > 0, BOOL),
        _reduction("reduce_any", lambda *v: any(v), x8 > 126, BOOL),
        case("argmax INT8", argmax, wanted, x8, out=INT32),
        case("argmax INT16", argmax, wanted, x16, out=INT32),
    ]


def _reduction(name: str, scalar: Function, x: np.ndarray, dtype: DType) -> Case:
    function = functools.partial(getattr(ops, name), axis=1)
    definition = functools.partial(reduction.over, scalar, axis=1)
    return case(f"{name} {dtype.name}", function, definition, x, out=dtype)


def data_layout() -> list[Case]:
    """Each operator with one type, and int48 where there is one."""
    rng = np.random.default_rng(10)
    x8, x16, x32 = (examples(rng, dtype, (2, 3, 4)) for dtype in (INT8, INT16, INT32))
    more, value = examples(rng, INT16, (2, 1, 4)), examples(rng, INT8, (1,))
    order = np.stack([rng.permutation(3)[:2] for _ in range(2 * EXAMPLES)])
    indices = order.reshape(EXAMPLES, 2, 2).astype(np.int32)
    updates, wide = examples(rng, INT32, (2, 2, 4)), examples(rng, INT48, (2, 5))
    padding = (1, 0, 0, 2, 1, 1)

    def layout(name: str, *inputs: np.ndarray, out: DType, given: Sequence[Any] = ()) -> Case:
        def function(*arrays: Any) -> Any:
            return getattr(ops, name)(*arrays, *given)

        def definition(*arrays: Any) -> Any:
            return getattr(layout_oracle, name)(*arrays, *given)

        return case(f"{name} {out.name}", function, definition, *inputs, out=out)

    return [
        layout("reshape", x8, out=INT8, given=[(4, 6)]),
        layout("slice", x16, out=INT16, given=[(1, 0, 1), (1, 3, 2)]),
        layout("tile", x32, out=INT32, given=[(1, 2, 3)]),
        layout("gather", x8, indices, out=INT8),
        layout("scatter", x32, indices, updates, out=INT32),
        case(
            "concat INT16",
            lambda x, y: ops.concat([x, y], axis=1),
            lambda x, y: layout_oracle.concat([x, y], 1),
            *(x16, more),
            out=INT16,
        ),
        case(
            "pad INT8",
            lambda x, v: ops.pad(x, padding, v),
            lambda x, v: layout_oracle.pad(x, padding, int(v[0])),
            *(x8, value),
            out=INT8,
        ),
        case(
            "reverse INT32",
            functools.partial(ops.reverse, axis=1),
            functools.partial(layout_oracle.reverse, axis=1),
            x32,
            out=INT32,
        ),
        case(
            "transpose INT16",
            functools.partial(ops.transpose, perms=(2, 0, 1)),
            functools.partial(layout_oracle.transpose, perms=(2, 0, 1)),
            x16,
            out=INT16,
        ),
        case("identity INT48", ops.identity, lambda x: x, wide, out=INT48),
    ]


# Whole graphs that pass int48 from operator to operator and through control flow.


def graphs() -> list[Case]:
    rng = np.random.default_rng(11)
    weight, bias = _extreme(draw(rng, INT8, (2, 2, 1, 3)), 0), draw_bias(rng, INT48, (2,))
    attributes = {"pad": (1, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    graph = _graph(weight, bias, attributes)
    x, flag = examples(rng, INT16, (1, 2, 3, 3)), points(BOOL, 0, 1, 1, 0)
    sums = [
        conv_oracle.conv(
            (v if first else ~v).astype(np.int64), weight.astype(np.int64), bias, **attributes
        )
        for v, first in zip(x, flag.ravel(), strict=True)
    ]
    rule = functools.partial(
        type_conversion_oracle.rescale, scale32=False, double_round=False, bits=16, unsigned=False
    )
    scaled = [rule(int(v), 21_283, 33, 0, 0) for v in np.stack(sums).flat]
    assert None not in scaled
    wanted = np.stack(sums), np.array(scaled, np.int16).reshape(np.shape(sums))
    fn, params = tosajax.lower(graph)
    program, same = build(graph, prepare=True)
    return [
        Case("graph to int48", lambda *v: fn(params, *v)[0], (x, flag), wanted[0]),
        Case("graph, compiled", lambda *v: program(same, {}, *v)[2][1], (x, flag), wanted[1]),
    ]


def _graph(weight: np.ndarray, bias: np.ndarray, attributes: dict[str, Any]) -> tosajax.Graph:
    """CONV2D of x and of ~x to int48, COND_IF that takes one of the two, then RESCALE."""
    b = Builder()
    x, flag = b.input("x", INT16, (1, 2, 3, 3)), b.input("flag", BOOL, (1,))
    zero16, zero8, kernel = b.const([0], INT16), b.const([0], INT8), b.const(weight, INT8)
    rest = b.const(bias, INT48), zero16, zero8
    first, second = (
        b.op("CONV2D", v, kernel, *rest, acc_type=INT48, **attributes)
        for v in (x, b.op("BITWISE_NOT", x))
    )
    for name in ("first", "second"):
        part = Builder(name)
        values = {t: part.input(t, INT48, first.shape or ()) for t in ("first", "second")}
        b.subgraph(part.graph([part.op("IDENTITY", values[name])]))
    chosen = b.op("COND_IF", flag, first, second, then_graph="first", else_graph="second")
    scaled = b.op(
        *("RESCALE", chosen, b.const([21_283], INT16), b.const([33], INT8)),
        *(b.const([0], INT48), zero16),
        scale32=False,
        rounding_mode=RoundingMode.SINGLE_ROUND,
        per_channel=False,
        input_unsigned=False,
        output_unsigned=False,
        dtype=INT16,
    )
    return b.graph([chosen, scaled])


FAMILIES: dict[str, Callable[[], list[Case]]] = {
    "convolutions, int8, constant": functools.partial(convolutions, INT8, known=True),
    "convolutions, int8, traced": functools.partial(convolutions, INT8, known=False),
    "convolutions, int16, constant": functools.partial(convolutions, INT16, known=True),
    "convolutions, int16, traced": functools.partial(convolutions, INT16, known=False),
    "depthwise": depthwise,
    "matmul": matmul,
    "pools": pools,
    "resize": resize,
    "rescale": rescale,
    "rescale, int48": rescale_int48,
    "products": products,
    "elementwise": elementwise_operators,
    "reductions": reductions,
    "data layout": data_layout,
    "graphs": graphs,
}


def families() -> Iterator[tuple[str, list[Case]]]:
    for name, make in FAMILIES.items():
        yield name, make()
