"""run_op: one operator, checked like a graph."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import programs
import pytest

import tosajax
from tosajax import DType, Target, TosaError, UnsupportedError, run_op

X = np.arange(-4, 4, dtype=np.float32)
ZERO = np.zeros(1, np.int8)
CONV = {"pad": (0,) * 4, "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.INT32}


def test_one_output_is_an_array():
    found = run_op("CLAMP", [X], {"min_val": -1.0, "max_val": 2.0})
    assert isinstance(found, jax.Array)
    np.testing.assert_array_equal(found, np.clip(X, -1, 2))


def test_several_outputs_are_a_tuple():
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    real, imaginary = run_op("RFFT2D", [x])
    wanted = np.fft.rfft2(x)
    np.testing.assert_allclose(real, wanted.real, atol=1e-4)
    np.testing.assert_allclose(imaginary, wanted.imag, atol=1e-4)


def test_same_as_the_plain_function():
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (1, 4, 4, 3)).astype(np.int8)
    w = rng.integers(-128, 128, (2, 3, 3, 3)).astype(np.int8)
    bias = rng.integers(-9, 9, 2).astype(np.int32)
    inputs = [x, w, bias, ZERO + np.int8(3), ZERO]
    wanted = tosajax.ops.conv2d(*map(jnp.asarray, inputs), **CONV)
    np.testing.assert_array_equal(run_op("CONV2D", inputs, CONV), wanted)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.SHAPE], ids=lambda d: d.name)
def test_every_type(dtype):
    storage = np.dtype("int4") if dtype is DType.INT4 else dtype.storage
    x = np.array([0, 1, -1]).astype(storage)
    if dtype is DType.INT48:
        x = np.array([-(1 << 47), 5, (1 << 47) - 1])
    found = run_op("IDENTITY", [x])
    assert found.dtype == dtype.storage
    np.testing.assert_array_equal(np.asarray(found), x.astype(dtype.storage))


def test_int4_weights():
    x = np.full((1, 2, 2, 1), 5, np.int8)
    w = np.array([-7, 7]).reshape(2, 1, 1, 1).astype(ml_dtypes.int4)
    found = run_op("CONV2D", [x, w, np.zeros(2, np.int32), ZERO, ZERO.astype(ml_dtypes.int4)], CONV)
    np.testing.assert_array_equal(found[0, 0, 0], [-35, 35])
    traced = jax.jit(
        lambda w: run_op("CONV2D", [x, w, np.zeros(2, np.int32), ZERO, w[0, 0, 0]], CONV)
    )
    np.testing.assert_array_equal(traced(jnp.asarray(w))[0, 0, 0], [0, 70])


def test_shapes_are_lists_of_integers():
    np.testing.assert_array_equal(run_op("RESHAPE", [X, (2, 4)]), X.reshape(2, 4))
    np.testing.assert_array_equal(run_op("TILE", [X, np.array([2])]), np.tile(X, 2))
    with pytest.raises(TypeError):
        run_op("RESHAPE", [X, (2.0, 4)])


def test_lists_of_tensors():
    found = run_op("CONCAT", [X, X, X], {"axis": 0})
    np.testing.assert_array_equal(found, np.concatenate([X, X, X]))


def test_output_type_that_is_open():
    assert run_op("CAST", [X], {"out_type": DType.INT8}).dtype == np.int8
    with pytest.raises(ValueError, match=r"CAST: .* output type open: give attrs\['out_type'\]"):
        run_op("CAST", [X])


def test_transformations():
    y = jax.jit(lambda x: run_op("ADD", [x, x]))(X)
    np.testing.assert_array_equal(y, 2 * X)
    y = jax.vmap(lambda x: run_op("ADD", [x, X]))(np.stack([X, 2 * X]))
    np.testing.assert_array_equal(y, [2 * X, 3 * X])
    gradient = jax.grad(lambda x: run_op("MUL", [x, x, ZERO]).sum())(X)
    np.testing.assert_array_equal(gradient, 2 * X)


def test_traced_constants_need_an_extension():
    a = np.ones((1, 2, 3), np.int8)

    def multiply(zero_point, target):
        return run_op("MATMUL", [a, a.transpose(0, 2, 1), zero_point, ZERO], target=target)

    strict = Target.parse("PRO-INT")
    np.testing.assert_array_equal(multiply(ZERO, strict), np.full((1, 2, 2), 3))
    with pytest.raises(TosaError, match=r"a_zp.*matmul\.constant"):
        jax.jit(lambda z: multiply(z, strict))(ZERO)
    found = jax.vmap(lambda z: multiply(z, None))(jnp.array([[0], [1]], jnp.int8))
    np.testing.assert_array_equal(found, [np.full((1, 2, 2), 3), np.zeros((1, 2, 2))])


def test_target():
    assert run_op("ADD", [X, X], target=Target.parse("PRO-FP")) is not None
    with pytest.raises(TosaError, match=r"add\.profile"):
        run_op("ADD", [X, X], target=Target.parse("PRO-INT"))


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "label"),
    [
        ("ADD", [X, X[:3]], {}, r"input2 has shape \(3,\), expected one that .*add\.e1"),
        ("ADD", [X, X.astype(np.int32)], {}, r"add\.types"),
        ("ADD", [X], {}, r"add\.inputs"),
        ("ADD", [], {}, r"add\.inputs"),
        ("ADD", [X, X, X], {}, r"add\.inputs"),
        ("ADD", [X, X], {"axis": 0}, r"add\.attributes"),
        ("CLAMP", [X], {"min_val": 0.0}, r"clamp\.attributes"),
        ("CLAMP", [X], {"min_val": 2.0, "max_val": 1.0}, r"clamp\.e1"),
        ("ARGMAX", [X], {"axis": 1}, r"argmax"),
        ("ABS", [np.zeros((1,) * 7, np.float32)], {}, r"abs\.rank"),
        ("ABS", [np.zeros((0, 3), np.float32)], {}, r"tensor\.shape"),
        ("RESHAPE", [X, (3, 3)], {}, r"reshape\.e1"),
    ],
)
def test_illegal(op, inputs, attrs, label):
    with pytest.raises(TosaError, match=label):
        run_op(op, inputs, attrs)


@pytest.mark.parametrize(
    ("op", "similar"),
    [
        ("SOFTMAX", ""),
        ("NOISE", ""),
        ("", ""),
        ("add", "; did you mean 'ADD'?"),
        ("CONV", "; did you mean 'CONV3D' or 'CONV2D'?"),
        ("MAXPOOL2D", "; did you mean 'MAX_POOL2D'?"),
    ],
)
def test_operators_that_tosa_lacks(op, similar):
    b = tosajax.Builder()
    x = b.input("x", DType.FP32, (8,))
    for make in (
        lambda: run_op(op, [X]),
        lambda: b.op(op, x),
        lambda: b.op(op, x, shape=(8,), dtype=DType.FP32),
    ):
        with pytest.raises(ValueError) as caught:
            make()
        assert str(caught.value) == f"{op!r} is not an operator of TOSA 1.0{similar}"


@pytest.mark.parametrize("op", ["CONST", "CONST_SHAPE", "VARIABLE_READ"])
def test_operators_that_do_not_run_alone(op):
    with pytest.raises(ValueError, match=f"'{op}' is not an operator that computes"):
        run_op(op, [X])


@pytest.mark.parametrize("value", [[1.0], 1.0, None, X.astype(np.float64), X.astype(np.uint8)])
def test_inputs_of_no_type(value):
    with pytest.raises(TypeError, match=r"ADD: input2_1 is .*, expected an array of a TOSA type"):
        run_op("ADD", [X, value])


def test_control_flow():
    graphs = {"then_graph": programs.plus(10, "a"), "else_graph": programs.plus(20, "b")}
    x = np.arange(3, dtype=np.int32)
    np.testing.assert_array_equal(run_op("COND_IF", [np.array([True]), x], graphs), x + 10)
    np.testing.assert_array_equal(run_op("COND_IF", [np.array([False]), x], graphs), x + 20)
    loop = {"cond_graph": programs.below(2), "body_graph": programs.doubled()}
    _, found = run_op("WHILE_LOOP", [np.array([0], np.int32), x], loop)
    np.testing.assert_array_equal(found, 4 * x)


def test_custom():
    names = {"operator_name": "f", "domain_name": "d", "implementation_attrs": "3"}
    ops = {("d", "f"): lambda x, implementation_attrs: x[: int(implementation_attrs)]}
    outputs = [(DType.FP32, (3,))]
    found = run_op("CUSTOM", [X], names, outputs=outputs, custom_ops=ops)
    np.testing.assert_array_equal(found, X[:3])
    with pytest.raises(ValueError, match="give outputs"):
        run_op("CUSTOM", [X], names, custom_ops=ops)
    with pytest.raises(UnsupportedError, match=r"\('d', 'f'\)"):
        run_op("CUSTOM", [X], names, outputs=outputs)
