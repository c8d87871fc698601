"""CUSTOM: functions of the user."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, UnsupportedError

X = np.array([[1.0, -2.0, 3.0]], np.float32)


def graph(attributes: str | bytes = "2.5") -> tosajax.Graph:
    """x -> (scaled x, sum of x), by a custom operator, then negated by SUB."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 3))
    scaled, total = b.ops(
        "CUSTOM",
        x,
        shapes=[(1, 3), (1,)],
        dtypes=[DType.FP32, DType.FP32],
        names=["scaled", "total"],
        operator_name="scale",
        domain_name="test",
        implementation_attrs=attributes,
    )
    return b.graph([b.op("SUB", scaled, x), total])


def scale(x, *, implementation_attrs):
    return x * np.float32(float(implementation_attrs)), x.sum(axis=-1)


OPS = {("test", "scale"): scale}


def test_function_of_the_user():
    run = tosajax.compile(graph(), custom_ops=OPS)
    difference, total = run(X)
    np.testing.assert_array_equal(difference, 1.5 * X)
    np.testing.assert_array_equal(total, [2.0])


def test_attributes_of_bytes():
    run = tosajax.compile(graph(b"0.5"), custom_ops=OPS)
    np.testing.assert_array_equal(run(X)[0], -0.5 * X)


def test_batches_and_gradients():
    run = tosajax.compile(graph(), batch=4, custom_ops=OPS)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    difference, total = run(x)
    np.testing.assert_array_equal(difference, 1.5 * x)
    np.testing.assert_array_equal(total, x.sum(axis=-1))
    fn, params = tosajax.lower(graph(), custom_ops=OPS)
    gradient = jax.grad(lambda x: fn(params, x)[0].sum())(jnp.asarray(X))
    np.testing.assert_array_equal(gradient, [[1.5] * 3])


@pytest.mark.parametrize(
    "known", [None, {}, {("test", "other"): scale}, {("scale", "test"): scale}]
)
def test_missing_function(known):
    with pytest.raises(UnsupportedError, match=r"CUSTOM 'scaled': .*\('test', 'scale'\)"):
        tosajax.compile(graph(), custom_ops=known)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, implementation_attrs: x,
        lambda x, implementation_attrs: (x, x),
        lambda x, implementation_attrs: (x, x.sum(axis=-1), x),
        lambda x, implementation_attrs: (x.astype(jnp.bfloat16), x.sum(axis=-1)),
    ],
    ids=["one", "shape", "three", "type"],
)
def test_results_that_the_graph_does_not_declare(wrong):
    run = tosajax.compile(graph(), custom_ops={("test", "scale"): wrong})
    message = r"CUSTOM 'scaled': the function returned .*, expected scaled FP32\[1,3\], total FP32"
    with pytest.raises(ValueError, match=message):
        run(X)


@pytest.mark.parametrize(("length", "labels"), [(64, []), (65, ["custom.l1"])])
def test_lists_have_a_limit(length, labels):
    b = Builder()
    inputs = [b.input(f"x{i}", DType.INT8, (1,)) for i in range(length)]
    attributes = {"operator_name": "f", "domain_name": "d", "implementation_attrs": ""}
    y = b.op("CUSTOM", *inputs, shape=(1,), dtype=DType.INT8, **attributes)
    report = tosajax.validate(b.graph([y]))
    assert [f.label for f in report.findings] == labels
    assert report.errors == ()


def test_output_list_has_a_limit():
    b = Builder()
    x = b.input("x", DType.INT8, (1,))
    attributes = {"operator_name": "f", "domain_name": "d", "implementation_attrs": ""}
    outputs = b.ops("CUSTOM", x, shapes=[(1,)] * 65, dtypes=[DType.INT8] * 65, **attributes)
    (finding,) = tosajax.validate(b.graph(outputs)).findings
    assert finding.label == "custom.l2"
    assert (
        finding.message == "output_list's length is 65, expected at most 64 (MAX_TENSOR_LIST_SIZE)"
    )
    assert finding.verdict is tosajax.Verdict.UNPREDICTABLE
