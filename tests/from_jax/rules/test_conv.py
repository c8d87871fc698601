"""conv_general_dilated against JAX: any layout, padding, dilation and groups."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from exports import agrees, operators
from hypothesis import given, settings
from hypothesis import strategies as st

from tosajax.from_jax.export import export
from tosajax.report import UnsupportedError

# Its functions take arrays of NumPy, whatever their annotations tell.
lax: Any = jax.lax

pytestmark = pytest.mark.usefixtures("quick")

_NHWC = ("NHWC", "HWIO", "NHWC")


def _floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _integers(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers, a third of them extremes."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    numbers = rng.integers(info.min, info.max, shape, endpoint=True)
    edges = rng.choice([info.min, info.max, -1, 0], shape)
    return np.where(rng.random(shape) < 0.3, edges, numbers).astype(dtype)


def _random_case(rng: np.random.Generator, rank: int) -> tuple[Any, Any]:
    """Shapes of images and weights, and the parameters of their convolution."""

    def some(low: int, high: int) -> list[int]:
        return [int(n) for n in rng.integers(low, high + 1, rank)]

    groups, batch_groups = ((1, 1), (2, 1), (3, 1), (1, 2))[rng.integers(4)]
    inputs = int(rng.integers(1, 4)) if rng.random() < 0.6 else 1  # 1 is depthwise.
    outputs = groups * batch_groups * int(rng.integers(1, 3))
    n = batch_groups * int(rng.integers(1, 3))
    kernel, dilation, stride = some(1, 3), some(1, 2), some(1, 3)
    spread = some(1, 3) if rng.random() < 0.4 else [1] * rank
    if rng.random() < 0.5:  # As upsampling is written.
        stride, dilation = ([1] * rank, [1] * rank) if max(spread) > 1 else (stride, dilation)
    sizes, padding = some(2, 6), [*zip(some(-1, 3), some(-1, 3), strict=True)]
    for i in range(rank):  # At least one position.
        while (sizes[i] - 1) * spread[i] + sum(padding[i]) < (kernel[i] - 1) * dilation[i]:
            sizes[i] += 1
    specs = [tuple(map(int, rng.permutation(rank + 2))) for _ in range(3)]
    options = {
        "window_strides": stride,
        "padding": padding,
        "lhs_dilation": spread,
        "rhs_dilation": dilation,
        "dimension_numbers": lax.ConvDimensionNumbers(*specs),
        "feature_group_count": groups,
        "batch_group_count": batch_groups,
    }
    shapes = (n, inputs * groups, *sizes), (outputs, inputs, *kernel)
    placed = []
    for shape, spec in zip(shapes, specs, strict=False):
        dims = [0] * len(shape)
        for size, axis in zip(shape, spec, strict=True):
            dims[axis] = size
        placed.append(tuple(dims))
    return placed, options


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_general_dilated_of_any_parameters(rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = [_random_case(rng, rank) for _ in range(3)]
    arguments = [[_floats(*shape, seed=seed) for shape in shapes] for shapes, _ in cases]
    weights = [w for _, w in arguments]
    is_constant = rng.random(len(cases)) < 0.5

    def function(arguments: list[Any]) -> list[Any]:
        return [
            lax.conv_general_dilated(x, constant if known else w, **options)
            for (x, w), constant, known, (_, options) in zip(
                arguments, weights, is_constant, cases, strict=True
            )
        ]

    agrees(function, arguments, ulp=8, model=True, check=False)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int16, np.int32])
def test_integers_wrap_as_in_jax(dtype: Any) -> None:
    if dtype == np.bool_:
        x, w = (_floats(*shape) > 0 for shape in ((2, 3, 6, 5), (4, 3, 3, 2)))
    else:
        x, w = _integers(dtype, 2, 3, 6, 5), _integers(dtype, 4, 3, 3, 2, seed=1)

    def function(x: Any, v: Any) -> list[Any]:
        return [
            lax.conv(x, w, (1, 1), "SAME"),
            lax.conv(x, v, (2, 1), "SAME", preferred_element_type=jnp.int32),
            lax.conv_transpose(
                x, v[:3], (2, 2), "SAME", dimension_numbers=("NCHW", "IOHW", "NCHW")
            ),
        ]

    agrees(function, x, w, model=dtype != np.int32, check=False)


def test_int8_to_int32_is_one_operator() -> None:
    w = _integers(np.int8, 3, 3, 4, 8, seed=1)

    def function(x: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=_NHWC, preferred_element_type=jnp.int32
        )

    x = _integers(np.int8, 1, 8, 8, 4)
    assert operators(agrees(function, x, model=True, target="PRO-INT@8K")) == ["CONV2D"]


def test_wide_integers_rely_on_no_overflow() -> None:
    for dtype, count in ((np.int16, 4), (np.int32, 10)):
        x = np.random.default_rng(0).integers(-900, 900, (1, 3, 6, 6)).astype(dtype)
        w = np.random.default_rng(1).integers(-900, 900, (2, 3, 3, 3)).astype(dtype)

        def function(x: Any, w: Any) -> Any:
            return lax.conv(x, w, (1, 1), "SAME", preferred_element_type=jnp.int32)

        graph = agrees(function, x, w, model=True, check=True)
        assert operators(graph).count("CONV2D") == count


@pytest.mark.parametrize("out", [None, np.float32], ids=["same", "float32"])
@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        np.int8,
        np.int16,
    ],
    ids=lambda d: np.dtype(d).name,
)
def test_narrow_types(dtype: Any, out: Any) -> None:
    x, w = (np.clip(_floats(*shape), -1, 1) for shape in ((1, 2, 5, 5), (3, 2, 2, 2)))
    if np.dtype(dtype).kind == "i":
        x, w = x * 100, w * 100
    x, w = x.astype(dtype), w.astype(dtype)

    def function(x: Any) -> Any:
        return lax.conv(x, w, (1, 1), "SAME", preferred_element_type=out)

    graph = agrees(function, x, ulp=4 if out else 2, model=True)
    is_noted = dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2) and out is None
    assert any("float16" in r.differs for r in graph.source.rewrites) == is_noted


def _operators(x: np.ndarray, w: np.ndarray, *args: Any, **options: Any) -> list[str]:
    def function(x: Any) -> Any:
        return lax.conv_general_dilated(x, w, *args, dimension_numbers=_NHWC, **options)

    return operators(agrees(function, x, ulp=8, model=True))


def test_what_fits_is_one_operator() -> None:
    x, w = _floats(2, 8, 8, 3), _floats(3, 3, 3, 4)
    assert _operators(x, w, (1, 1), "SAME") == ["CONV2D"]
    assert _operators(x, w, (1, 1), "VALID", rhs_dilation=(2, 1)) == ["CONV2D"]
    depthwise = _floats(3, 3, 1, 6)
    assert _operators(x, depthwise, (1, 1), "SAME", feature_group_count=3) == ["DEPTHWISE_CONV2D"]
    around = [(1, 2), (2, 2)]
    assert _operators(x, w, (1, 1), around, (2, 2)) == ["TRANSPOSE_CONV2D"]


def test_what_does_not_fit_is_cut() -> None:
    x, w = _floats(2, 8, 8, 3), _floats(3, 3, 3, 4)
    assert _operators(x, w, (2, 2), "VALID") == ["SLICE", "CONV2D"]
    assert _operators(x, w, (2, 2), "SAME") == ["CONV2D"]  # One element less of padding.
    assert _operators(x, w, (1, 1), [(-1, 2), (0, -1)]) == ["SLICE", "CONV2D"]
    assert _operators(x, w, (1, 1), [(-1, 2), (2, 2)], (2, 2)) == ["TRANSPOSE_CONV2D", "SLICE"]
    # Only padding is left: the result is 0.
    assert _operators(x[:, :2], w, (1, 1), [(-3, 5), (0, 0)])[-1] == "CONV2D"


def test_groups_are_convolutions_of_slices() -> None:
    x, w = _floats(1, 6, 6, 4), _floats(3, 3, 2, 6)
    found = _operators(x, w, (1, 1), "SAME", feature_group_count=2)
    assert found == ["SLICE", "SLICE", "CONV2D", "CONV2D", "CONCAT"]


def test_1d_and_3d() -> None:
    found = agrees(
        lambda x: lax.conv_general_dilated(
            x, _floats(3, 4, 6), (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")
        ),
        _floats(2, 9, 4),
        ulp=8,
        model=True,
    )
    assert operators(found) == ["RESHAPE", "CONV2D", "RESHAPE"]
    w = _floats(2, 3, 3, 4, 6)
    found = agrees(
        lambda x: lax.conv_general_dilated(
            x, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")
        ),
        _floats(2, 4, 5, 6, 4),
        ulp=8,
        model=True,
    )
    assert operators(found) == ["CONV3D"]


def test_no_dimensions_at_all() -> None:
    w = _floats(4, 3)
    graph = agrees(lambda x: lax.conv_general_dilated(x, w, (), ()), _floats(2, 3), ulp=4)
    assert operators(graph) == ["RESHAPE", "CONV2D", "RESHAPE"]


def test_nchw_is_transposed_around_a_chain_once() -> None:
    w, v = _floats(4, 3, 3, 3), _floats(5, 4, 3, 3)

    def function(x: Any) -> Any:
        return lax.conv(jnp.tanh(lax.conv(x, w, (1, 1), "SAME")), v, (1, 1), "SAME")

    found = operators(agrees(function, _floats(1, 3, 8, 8), ulp=16, model=True))
    assert found == ["TRANSPOSE", "CONV2D", "TANH", "CONV2D", "TRANSPOSE"]


def test_a_block_of_a_network_is_short() -> None:
    """Convolution, normalization by constants, and ReLU."""
    w, scale, shift = _floats(3, 3, 3, 4), _floats(1, 1, 1, 4), _floats(1, 1, 1, 4, seed=1)

    def block(x: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=_NHWC)
        return jnp.maximum(y * scale + shift, 0)

    found = operators(agrees(block, _floats(2, 8, 8, 3), ulp=8, model=True))
    assert found[0] == "CONV2D"
    assert len(found) <= 4


def test_gradients_of_weights_and_images() -> None:
    """They have weights that are computed, groups of batches, and dilations of both operands."""
    x, w = _floats(2, 7, 7, 4), _floats(3, 3, 2, 6)

    def loss(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (2, 2), "SAME", dimension_numbers=_NHWC, feature_group_count=2
        )
        return (y * y).sum()

    agrees(jax.grad(loss, (0, 1)), x, w, ulp=16, model=True)


def test_what_there_is_not() -> None:
    x = jax.ShapeDtypeStruct((1, 1, 3, 3, 3, 3), np.float32)
    w = np.ones((1, 1, 1, 1, 1, 1), np.float32)
    with pytest.raises(UnsupportedError, match="4 spatial dimensions, expected at most 3"):
        export(lambda x: lax.conv_general_dilated(x, w, (1,) * 4, "VALID"), x)
    nibbles = jax.ShapeDtypeStruct((1, 1, 4), jnp.int4)
    with pytest.raises(UnsupportedError, match="operands of int4"):
        export(lambda x: lax.conv(x, x, (1,), "VALID"), nibbles)
