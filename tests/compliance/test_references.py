"""References and bounds are those of the definitions, and of Arm's model in precise mode."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from oracle import conv_oracle, matmul_oracle, pool_oracle
from oracle.float_bounds import normal_min, widen

import tosajax
from tosajax import DType, Graph, Node, Tensor, compliance

CONV = {"pad": (1, 1, 2, 1), "stride": (2, 1), "dilation": (1, 2)}
CONV_SHAPES = {"input": (2, 6, 5, 3), "weight": (4, 2, 3, 3), "bias": (4,)}
# Of each operator: shapes, attributes, KS, and the shapes of its outputs.
CASES = {
    "CONV2D": (CONV_SHAPES, CONV, 18, [(2, 4, 4, 4)]),
    "CONV3D": (
        {"input": (2, 3, 6, 5, 3), "weight": (4, 2, 2, 3, 3), "bias": (1,)},
        {"pad": (0, 1, 1, 1, 2, 1), "stride": (1, 2, 1), "dilation": (2, 1, 2)},
        36,
        [(2, 2, 4, 4, 4)],
    ),
    "DEPTHWISE_CONV2D": (
        {"input": (2, 6, 5, 3), "weight": (2, 3, 3, 2), "bias": (6,)},
        CONV,
        6,
        [(2, 4, 4, 6)],
    ),
    "TRANSPOSE_CONV2D": (
        {"input": (2, 4, 3, 3), "weight": (4, 2, 3, 3), "bias": (4,)},
        {"out_pad": (-1, 2, 1, 0), "stride": (2, 3)},
        18,
        [(2, 9, 10, 4)],
    ),
    "MATMUL": ({"a": (2, 3, 5), "b": (2, 5, 4)}, {}, 5, [(2, 3, 4)]),
    "MATMUL_T": ({"a": (2, 3, 5), "b": (1, 4, 5)}, {}, 5, [(2, 3, 4)]),
    "AVG_POOL2D": (
        {"input": (2, 6, 5, 3)},
        {"kernel": (3, 2), "stride": (1, 2), "pad": (2, 1, 0, 1)},
        6,
        [(2, 7, 3, 3)],
    ),
    "REDUCE_SUM": ({"input": (2, 6, 5)}, {"axis": 1}, 6, [(2, 1, 5)]),
    "FFT2D": (
        {"input_real": (2, 4, 8), "input_imag": (2, 4, 8)},
        {"inverse": True},
        64,
        [(2, 4, 8)] * 2,
    ),
    "RFFT2D": ({"input_real": (2, 4, 8)}, {}, 32, [(2, 4, 5)] * 2),
}
LOCAL = {"CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "FFT2D", "RFFT2D"}
CHOICES = [(op, local) for op in CASES for local in ((True, False) if op in LOCAL else (None,))]
each = pytest.mark.parametrize(("op", "local"), CHOICES, ids=[f"{o}-{c}" for o, c in CHOICES])


def _inputs(op: str) -> dict[str, np.ndarray]:
    """Values of both signs and all sizes, zeros and subnormal ones among them."""
    rng = np.random.default_rng(11)
    drawn = {}
    for name, shape in CASES[op][0].items():
        values = (rng.uniform(-4, 4, shape) * 2.0 ** rng.integers(-6, 4, shape)).astype(np.float32)
        edges = np.array([0.0, -0.0, 1e-40, 2.0**-126, 1.0, -1.0], np.float32)
        drawn[name] = np.where(rng.random(shape) < 0.25, rng.choice(edges, shape), values)
    return drawn


def _definition(op: str, inputs: dict[str, np.ndarray], *, extra: bool) -> np.ndarray:
    attributes = CASES[op][1]
    wide = [widen(values) for values in inputs.values()]
    match op:
        case "CONV2D" | "CONV3D":
            return conv_oracle.conv(wide[0], wide[1], wide[2], **attributes, extra=extra)
        case "DEPTHWISE_CONV2D":
            return conv_oracle.depthwise(wide[0], wide[1], wide[2], **attributes, extra=extra)
        case "TRANSPOSE_CONV2D":
            return conv_oracle.transpose(wide[0], wide[1], wide[2], **attributes, extra=extra)
        case "MATMUL":
            return matmul_oracle.matmul(wide[0], wide[1])
        case "MATMUL_T":
            return matmul_oracle.matmul_t(wide[0], wide[1])
        case "AVG_POOL2D":
            return pool_oracle.avg_pool_float(wide[0], **attributes)
        case _:
            return wide[0].sum(axis=attributes["axis"], keepdims=True)


def _magnitudes(inputs: dict[str, np.ndarray], local: bool | None) -> dict[str, np.ndarray]:
    found = {n: np.maximum(np.abs(v), normal_min(v.dtype)) for n, v in inputs.items()}
    if local is False:
        found["input"] = np.full_like(found["input"], found["input"].max())
    return found


@pytest.mark.parametrize(("op", "local"), [c for c in CHOICES if not c[0].endswith("FFT2D")])
def test_definitions(op: str, local: bool | None):
    inputs = _inputs(op)
    _, attributes, terms, shapes = CASES[op]
    (found,) = compliance.dot_products(op, inputs, local_bound=local, **attributes)
    reference = _definition(op, inputs, extra=False)
    bounds = _definition(op, _magnitudes(inputs, local), extra=True)
    assert found.reference.shape == found.bounds.shape == shapes[0]
    assert found.terms == terms
    assert found.biased == ("bias" in inputs)
    # Both are float64, added in different orders.
    np.testing.assert_array_less(np.abs(found.reference - reference), 1e-14 * bounds)
    np.testing.assert_allclose(found.bounds, bounds, rtol=1e-14)


@pytest.mark.parametrize("inverse", [False, True])
def test_transforms_are_those_of_numpy(inverse: bool):
    real, imag = (np.random.default_rng(s).normal(size=(2, 8, 4)) for s in (1, 2))
    inputs = {"input_real": real.astype(np.float32), "input_imag": imag.astype(np.float32)}
    both = compliance.dot_products("FFT2D", inputs, inverse=inverse)
    values = widen(inputs["input_real"]) + 1j * widen(inputs["input_imag"])
    wanted = np.fft.ifft2(values) * 32 if inverse else np.fft.fft2(values)
    np.testing.assert_allclose(both[0].reference, wanted.real, atol=1e-13)
    np.testing.assert_allclose(both[1].reference, wanted.imag, atol=1e-13)
    halves = compliance.dot_products("RFFT2D", {"input_real": inputs["input_real"]})
    wanted = np.fft.rfft2(widen(inputs["input_real"]))
    np.testing.assert_allclose(halves[0].reference, wanted.real, atol=1e-13)
    np.testing.assert_allclose(halves[1].reference, wanted.imag, atol=1e-13)


def _model(op: str, inputs: dict[str, np.ndarray], local: bool | None, at: Path) -> list:
    """(reference, bounds) of each output, as Arm's model makes them for a test description."""
    _, attributes, _, shapes = CASES[op]
    zero = np.zeros(1, np.float32)
    points = {"MATMUL": 2, "AVG_POOL2D": 2, "REDUCE_SUM": 0, "FFT2D": 0, "RFFT2D": 0}.get(op, 2)
    constants = {f"zp{i}": Tensor(f"zp{i}", DType.FP32, (1,), zero) for i in range(points)}
    tensors = {n: Tensor(n, DType.FP32, v.shape) for n, v in inputs.items()} | constants
    outputs = [Tensor(f"out{i}", DType.FP32, shape) for i, shape in enumerate(shapes)]
    tensors |= {output.name: output for output in outputs}
    more: dict[str, object] = {} if local is None else {"local_bound": local}
    if "CONV" in op or op == "AVG_POOL2D":
        more["acc_type"] = DType.FP32
    names = tuple(output.name for output in outputs)
    node = Node(op, (*inputs, *constants), names, {**attributes, **more})
    nodes = (*(Node("CONST", (), (name,)) for name in constants), node)
    tosajax.save(Graph(tuple(inputs), names, tensors, nodes), at / "graph.tosa")
    for name, values in inputs.items():
        np.save(at / f"{name}.npy", values)
    judged = {name: {"mode": "DOT_PRODUCT", "data_type": "FP32"} for name in names}
    description = {
        "tosa_file": "graph.tosa",
        "ifm_name": list(inputs),
        "ifm_file": [f"{name}.npy" for name in inputs],
        "ofm_name": list(names),
        "ofm_file": [f"{name}.npy" for name in names],
        "expected_failure": False,
        "test_requirements": {"bounds_file_required": True},
        "meta": {"compliance": {"version": "1.2", "tensors": judged}},
    }
    (at / "desc.json").write_text(json.dumps(description))
    found = importlib.util.find_spec("tosa_reference_model")
    assert found is not None
    assert found.origin is not None
    site = Path(found.origin).parents[1] / "bin"
    command = [site / "tosa_reference_model", "--operator_fbs", site / "tosa.fbs", "--test_desc"]
    command += [at / "desc.json", "--output_dir", at, "--precise_mode=1", "--tosa_level=EIGHTK"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return [(np.load(at / f"{name}.npy"), np.load(at / f"bounds_{name}.npy")) for name in names]


@each
def test_the_model_has_the_same(op: str, local: bool | None, tmp_path: Path):
    inputs = _inputs(op)
    found = compliance.dot_products(op, inputs, local_bound=local, **CASES[op][1])
    wanted = _model(op, inputs, local, tmp_path)
    alike = found
    if op == "CONV2D":
        alike = _with_padding_as_data(inputs, local)
        assert np.all(found[0].bounds <= wanted[0][1] * (1 + 1e-14))
    if op == "FFT2D" and not local:
        alike = _with_a_maximum_each(inputs)
        assert np.all(found[0].bounds >= wanted[0][1] * (1 - 1e-14))
    for expected, same, (reference, bounds) in zip(found, alike, wanted, strict=True):
        np.testing.assert_array_less(np.abs(expected.reference - reference), 1e-14 * bounds)
        np.testing.assert_allclose(same.bounds, bounds, rtol=1e-14)


def _with_a_maximum_each(inputs: dict[str, np.ndarray]) -> tuple[compliance.Expected, ...]:
    """Bounds of FFT2D as the model has them where they are not local.

    It takes the maximum of the real and of the imaginary values; the text that of both together.
    """
    filled = {name: np.full_like(v, np.abs(v).max()) for name, v in inputs.items()}
    return compliance.dot_products("FFT2D", filled, local_bound=True, **CASES["FFT2D"][1])


def _with_padding_as_data(
    inputs: dict[str, np.ndarray], local: bool | None
) -> tuple[compliance.Expected, ...]:
    """Bounds of CONV2D as the model has them, for this operator alone.

    It takes padding for data: of the smallest magnitude, or of the greatest where the bound is
    not local. In the text padding is zero.
    """
    margin = [(0, 0), CONV["pad"][:2], CONV["pad"][2:], (0, 0)]
    padded = inputs | {"input": np.pad(inputs["input"], margin)}
    attributes = CONV | {"pad": (0, 0, 0, 0)}
    return compliance.dot_products("CONV2D", padded, local_bound=local, **attributes)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("ADD", {}, {}, "ADD is not a dot product"),
        ("MATMUL", {"a": (1, 2, 3)}, {}, "MATMUL: shapes of a, expected a, b"),
        ("MATMUL", {"a": (2, 3), "b": (1, 3, 2)}, {}, "a has rank 2, expected 3"),
        ("REDUCE_SUM", {"input": (2, 3)}, {}, "attributes .., expected .'axis'."),
        ("REDUCE_SUM", {"input": (2, 3)}, {"axis": 2}, "axis 2, expected 0 to 1"),
        ("RFFT2D", {"input_real": (1, 2, 2)}, {"inverse": True}, "attributes .'inverse'., expect"),
        ("MATMUL", {"a": (1, 2, 3), "b": (1, 3, 2)}, {"local_bound": True}, "no attribute local"),
    ],
)
def test_wrong_use(op: str, inputs: dict, attributes: dict, message: str):
    arrays = {name: np.ones(shape, np.float32) for name, shape in inputs.items()}
    with pytest.raises(ValueError, match=message):
        compliance.dot_products(op, arrays, **attributes)


def test_integers_are_refused():
    with pytest.raises(TypeError, match="int32 is not a float type"):
        compliance.dot_products("REDUCE_SUM", {"input": np.ones((2, 3), np.int32)}, axis=0)


def test_a_weight_that_is_nan_makes_the_bound_of_padding_nan():
    inputs = {n: np.ones(s, np.float16) for n, s in CONV_SHAPES.items()}
    inputs["weight"][1, 0, 0, 2] = np.nan
    (found,) = compliance.dot_products("CONV2D", inputs, **CONV)
    nan = np.isnan(found.reference)
    assert np.isnan(found.bounds[..., 1]).all()
    assert not nan[0, 0, 0, 1]  # That weight meets padding there.
    assert nan[..., 1].any()
    assert not nan[..., [0, 2, 3]].any()
