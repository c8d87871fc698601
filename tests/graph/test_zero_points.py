"""Zero points and signs that a graph says of its tensors."""

from __future__ import annotations

import numpy as np
import small_networks as small

from tosajax import Builder, DType
from tosajax.graph.zero_points import unsigned_tensors, zero_points
from tosajax.spec import NanMode, RoundingMode


def test_read_written_and_kept():
    found = zero_points(small.two_layers())
    assert {n: found[n] for n in ("x", "act1", "relu1", "out", "acc1")} == {
        "x": -3, "act1": 5, "relu1": 5, "out": -7, "acc1": 0,
    }  # fmt: skip


def test_what_passes_through_before_and_after():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4, 4, 2))
    moved = b.op("TRANSPOSE", x, perms=(0, 2, 1, 3), name="moved")
    small.conv(b, moved, 1, np.random.default_rng(0), name="acc", input_zp=9)
    other = b.input("other", DType.INT8, (1, 4, 4, 2))
    y = small.rescale(b, other, (1 << 30,), (30,), DType.INT8, name="y", output_zp=4)
    pooled = b.op(
        "MAX_POOL2D", y, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0),
        nan_mode=NanMode.PROPAGATE, name="pooled",
    )  # fmt: skip
    flat = b.op("RESHAPE", pooled, b.const_shape((1, 8)), name="flat")
    total = b.op(
        "ABS", small.rescale(b, flat, (1 << 30,), (30,), DType.INT32, name="wide"), name="abs"
    )
    found = zero_points(b.graph([total]))
    assert {n: found.get(n) for n in ("x", "moved", "y", "pooled", "abs")} == {
        "x": 9, "moved": 9, "y": 4, "pooled": 4, "abs": None,
    }  # fmt: skip
    assert found["flat"] == 0  # what its reader says goes before what passes through


def test_unsigned():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4))
    one, shift, zero = (
        b.const([1 << 30], DType.INT32), b.const([30], DType.INT8), b.const([0], DType.INT8)
    )  # fmt: skip
    common = {
        "dtype": DType.INT8, "scale32": True, "per_channel": False,
        "rounding_mode": RoundingMode.SINGLE_ROUND,
    }  # fmt: skip
    start = b.op("RESHAPE", x, b.const_shape((4,)), name="start")
    y = b.op(
        "RESCALE", start, one, shift, zero, zero, input_unsigned=True, output_unsigned=False,
        name="y", **common,
    )  # fmt: skip
    z = b.op(
        "RESCALE", y, one, shift, zero, zero, input_unsigned=False, output_unsigned=True,
        name="z", **common,
    )  # fmt: skip
    end = b.op("RESHAPE", z, b.const_shape((1, 4)), name="end")
    assert unsigned_tensors(b.graph([end])) == {"x", "start", "z", "end"}
    assert unsigned_tensors(small.two_layers()) == set()
