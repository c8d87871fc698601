"""ONNX models: equal to onnxruntime, quantized operators in floats; refusals in one sentence."""

# The packages are in an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.metadata
import tempfile

import numpy as np
import pytest
from damage import refusals

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch_mlir")
pytest.importorskip("xdsl")

import onnx_files
from onnx import TensorProto, helper
from onnx_files import model, node

import tosajax
from tosajax import UnsupportedError, quant
from tosajax.cli import main
from tosajax.io import programs

RNG = np.random.default_rng(0)
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
UINT8 = TensorProto.UINT8
Y = {"y": FLOAT}


def floats(*shape: int) -> np.ndarray:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


def check(content: bytes, *inputs: np.ndarray, atol: float = 1e-5, **options) -> tosajax.Graph:
    """Loads a model, and compares a run with onnxruntime's."""
    graph = tosajax.load(content, **options)
    expected = onnx_files.run(content, *inputs)
    own = [
        x.astype(tensor.dtype.storage)
        for x, tensor in zip(inputs, graph.input_tensors, strict=True)
    ]
    for actual, wanted in zip(tosajax.compile(graph)(*own), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=atol)
    return graph


def rewrites(graph: tosajax.Graph) -> str:
    return "\n".join(map(str, graph.source.rewrites))


def open_model(**options) -> bytes:
    """A dense layer of an input whose first dimension is open, flattened by its own shape."""
    nodes = [
        node("Shape", ["x"], ["shape"], end=1),
        node("Concat", ["shape", "rest"], ["both"], axis=0),
        node("Reshape", ["x", "both"], ["flat"]),
        node("Gemm", ["flat", "weight", "bias"], ["dense"]),
        node("Softmax", ["dense"], ["y"], name="last"),
    ]
    constants = {"rest": np.array([6]), "weight": floats(6, 4), "bias": floats(4)}
    return model(nodes, {"x": ["N", 2, 3]}, Y, constants, **options)


def test_a_model_is_read(tmp_path, monkeypatch):
    path = tmp_path / "named as no other.bin"
    path.write_bytes(open_model())
    monkeypatch.chdir(tmp_path)
    graph = tosajax.load(path, batch=2)
    assert graph == check(path.read_bytes(), floats(2, 2, 3), batch=2)
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))
    assert {"dense", "y"} <= {node.location for node in graph.nodes}
    version = importlib.metadata.version("torch-mlir")
    assert graph.source.format == "ONNX model"
    assert graph.source.version == f"IR 10, opset 17, converted by torch-mlir {version}"
    assert graph.source.producer == "a test"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_open_dimensions_are_named(tmp_path, capsys):
    with pytest.raises(
        ValueError,
        match=r"^dimension 0 \('N'\) of input 'x' is open: give sizes, such as batch=1 in Python "
        "or --shape x=1x2x3 at the command line$",
    ):
        tosajax.load(open_model())
    several = model([node("Abs", ["x"], ["y"])], {"x": ["N", 3, None, "W"]}, Y)
    with pytest.raises(
        ValueError,
        match=r"^dimensions 0 \('N'\), 2, 3 \('W'\) of input 'x' are open: give sizes, such as "
        r"shapes=\{'x': \(1, 3, 64, 64\)\} in Python or --shape x=1x3x64x64 at",
    ):
        tosajax.load(several)
    for shape in ((1, 3, 4), (1, 2, 4, 4)):
        with pytest.raises(ValueError, match=r"has shape \(-1, 3, -1, -1\), it cannot have \(1, "):
            tosajax.load(several, shapes={"x": shape})
    with pytest.raises(ValueError, match="shapes names 'z'; inputs of the model: 'x'"):
        tosajax.load(several, shapes={"z": (1, 3, 4, 4)})
    (tmp_path / "model.onnx").write_bytes(several)
    assert main(["info", str(tmp_path / "model.onnx"), "--shape", "x=1x3x4x5"]) == 0
    assert "x: FP32[1,3,4,5]" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["info", str(tmp_path / "model.onnx"), "--shape", "x=1x3x0x5"])
    assert "'x=1x3x0x5' is not NAME=1x3x224x224" in capsys.readouterr().err


def test_an_input_without_shape():
    content = model([node("Abs", ["x"], ["y"])], {"x": None}, Y)
    check(content, floats(2, 3), shapes={"x": (2, 3)})
    with pytest.raises(ValueError, match="input 'x' has no shape in the ONNX model: give shapes="):
        tosajax.load(content)


def quantized(
    kind: type[np.generic], zero_point: int, scale: float = 0.017, operator: str = "Relu"
) -> bytes:
    """x rounded to integers, an operator, and the same again."""
    parameters = ["scale", "zero point"]
    nodes = [
        node("QuantizeLinear", ["x", *parameters], ["x integers"]),
        node("DequantizeLinear", ["x integers", *parameters], ["x rounded"]),
        node(operator, ["x rounded"], ["middle"]),
        node("QuantizeLinear", ["middle", *parameters], ["integers"]),
        node("DequantizeLinear", ["integers", *parameters], ["y"]),
    ]
    constants = {"scale": np.float32(scale), "zero point": kind(zero_point)}
    return model(nodes, {"x": [2, 3, 8]}, Y, constants, opset=21)


@pytest.mark.parametrize(
    ("kind", "zero_point"),
    [
        (np.uint8, 121),
        (np.int16, 0),
        pytest.param(np.int8, -7, marks=pytest.mark.slow),
        pytest.param(np.uint16, 30000, marks=pytest.mark.slow),
    ],
)
def test_activations_are_rounded_to_the_same_steps(kind, zero_point):
    x = floats(2, 3, 8)
    x.flat[:6] = [0.0085, -0.0085, 0.0255, 100, -100, 0]  # ties, and beyond the ends
    graph = check(quantized(kind, zero_point), x, atol=0)
    assert "2 QuantizeLinear: in floats, rounded to the same steps" in rewrites(graph)
    assert "2 DequantizeLinear: in floats" in rewrites(graph)


def test_prepare_takes_the_scales_of_the_file():
    model = quant.prepare(tosajax.load(quantized(np.uint8, 121)))
    assert {node.op for node in model.float_graph.nodes} <= {"CLAMP", "CONST"}


def convolution(weight_kind: type[np.signedinteger], act_kind: type[np.integer]) -> bytes:
    """A convolution of integers with a scale for each channel, as onnxruntime's quantizer does."""
    weight = RNG.integers(-127, 128, (4, 3, 3, 3)).astype(weight_kind)
    zero = np.iinfo(act_kind).min + 128
    scales = np.array([0.01, 0.02, 0.005, 0.03], np.float32)
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        node("DequantizeLinear", ["b", "bs"], ["bf"], axis=0),
        node("Conv", ["xf", "wf", "bf"], ["c"], pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["c", "ys", "yz"], ["yq"]),
        node("MaxPool", ["yq"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Transpose", ["pooled"], ["turned"], perm=[0, 2, 3, 1]),
        node("Concat", ["turned", "more"], ["joined"], axis=3),
        node("DequantizeLinear", ["joined", "ys", "yz"], ["y"]),
    ]
    constants = {
        "xs": np.float32(0.016), "xz": act_kind(zero + 5), "w": weight, "ws": scales,
        "wz": np.zeros(4, weight_kind), "b": RNG.integers(-900, 900, 4).astype(np.int32),
        "bs": np.float32(0.016) * scales, "ys": np.float32(0.09), "yz": act_kind(zero),
        "more": np.full((1, 3, 3, 1), zero + 9, act_kind),
    }  # fmt: skip
    return model(nodes, {"x": [1, 3, 6, 6]}, Y, constants)


@pytest.mark.parametrize("kind", [np.uint8, pytest.param(np.int8, marks=pytest.mark.slow)])
def test_a_convolution_of_channels_with_scales(kind):
    check(convolution(np.int8, kind), floats(1, 3, 6, 6), atol=0.09 + 1e-5)  # a step


def test_int4_weights_by_rows_and_columns():
    values = RNG.integers(-8, 8, 24)
    constants = {
        "w": helper.make_tensor("w", TensorProto.INT4, [4, 6], values),
        "z": helper.make_tensor("z", TensorProto.INT4, [4], [1, 0, 0, -2]),
        "s": np.array([0.1, 0.2, 0.03, 0.4], np.float32),
    }
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["wf"], axis=0),
        node("MatMul", ["x", "wf"], ["y"]),
    ]
    check(model(nodes, {"x": [2, 4]}, Y, constants, opset=21), floats(2, 4))


def test_integers_at_the_ends_are_int32():
    """Bytes in, bytes out: torch-mlir reads bytes as signed ones."""
    parameters = ["s", "z"]
    nodes = [
        node("DequantizeLinear", ["x", *parameters], ["f"]),
        node("Neg", ["f"], ["g"]),
        node("QuantizeLinear", ["g", *parameters], ["y"]),
    ]
    constants = {"s": np.float32(0.05), "z": np.uint8(131)}
    content = model(nodes, {"x": [2, 4]}, {"y": UINT8}, constants, kind=UINT8)
    graph = check(content, RNG.integers(0, 256, (2, 4)).astype(np.uint8), atol=0)
    assert graph.output_tensors[0].dtype is tosajax.DType.INT32
    assert "input 'x': int32; it is uint8 in the file" in rewrites(graph)
    assert "output 'y': int32; it is uint8 in the file" in rewrites(graph)


def of_integers() -> bytes:
    """Operators of onnxruntime's other form, in which quantized operators take integers."""
    x, y = ["xs", "xz"], ["ys", "yz"]
    nodes = [
        node("QuantizeLinear", ["x", *x], ["q"]),
        node("QLinearConv", ["q", *x, "w", "ws", "wz", *y, "b"], ["c"], pads=[1, 1, 1, 1]),
        node("QLinearAdd", ["c", *y, "c", *y, *y], ["d"], domain="com.microsoft"),
        node("QLinearSigmoid", ["d", *y, *y], ["e"], domain="com.microsoft"),
        node(
            *("QLinearConcat", [*y, "d", *y, "e", *y], ["f"]), domain="com.microsoft", axis=1
        ),
        node("QLinearMatMul", ["f", *y, "m", "ms", "mz", *y], ["g"]),
        node("DequantizeLinear", ["g", *y], ["y"]),
    ]  # fmt: skip
    constants = {
        "xs": np.float32(0.016), "xz": np.uint8(120), "ys": np.float32(0.05), "yz": np.uint8(128),
        "w": RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8), "wz": np.zeros(4, np.int8),
        "ws": np.array([0.001, 0.002, 0.0005, 0.003], np.float32),
        "b": RNG.integers(-500, 500, 4).astype(np.int32),
        "m": RNG.integers(-127, 128, (6, 5)).astype(np.int8), "ms": np.float32(0.002),
        "mz": np.int8(3),
    }  # fmt: skip
    return model(nodes, {"x": [1, 3, 6, 6]}, Y, constants, domain="com.microsoft")


def test_operators_on_integers():
    graph = check(of_integers(), floats(1, 3, 6, 6), atol=0.05 + 1e-5)
    assert "1 QLinearConv: in floats, rounded to the same steps" in rewrites(graph)


def test_products_of_integers():
    nodes = [
        node("ConvInteger", ["x", "w", "xz", "wz"], ["c"], pads=[1, 1, 1, 1]),
        node("Cast", ["c"], ["f"], to=FLOAT),
        node("Mul", ["f", "s"], ["y"]),
    ]
    constants = {
        "w": RNG.integers(-127, 128, (2, 3, 3, 3)).astype(np.int8), "xz": np.uint8(120),
        "wz": np.int8(0), "s": np.float32(0.001),
    }  # fmt: skip
    content = model(nodes, {"x": [1, 3, 4, 4]}, Y, constants, kind=UINT8)
    check(content, RNG.integers(0, 256, (1, 3, 4, 4)).astype(np.uint8))


def resized(factors: tuple[float, float], **form: str) -> bytes:
    scales = np.array([1, 1, *factors], np.float32)
    nodes = [node("Resize", ["x", "", "s"], ["y"], name="up", **form)]
    return model(nodes, {"x": [1, 2, 6, 4]}, Y, {"s": scales})


FLOOR = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


HALF_PIXEL = {"coordinate_transformation_mode": "half_pixel"}
OF_PYTORCH = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}


@pytest.mark.parametrize(
    ("factors", "form", "is_corrected"),
    [
        ((2, 3), FLOOR, True),
        ((0.5, 1.5), FLOOR, True),
        ((3, 2), HALF_PIXEL, True),  # repeats elements as well
        ((3, 2), OF_PYTORCH, False),
    ],
)
def test_resize(factors, form, is_corrected):
    graph = check(resized(factors, **form), floats(1, 2, 6, 4))
    assert ("offset of the element below" in rewrites(graph)) == is_corrected


def test_upsample_of_an_old_opset():
    nodes = [node("Upsample", ["x", "s"], ["y"], mode="nearest")]
    content = model(
        nodes, {"x": [1, 2, 3, 3]}, Y, {"s": np.array([1, 1, 2, 3], np.float32)}, opset=9
    )
    graph = check(content, floats(1, 2, 3, 3))
    assert "opset 9" in graph.source.version


def loop() -> bytes:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["a", "a"], ["b"]), node("Identity", ["c"], ["d"])],
        "body",
        [info("i", INT64, []), info("c", TensorProto.BOOL, []), info("a", FLOAT, [4])],
        [info("d", TensorProto.BOOL, []), info("b", FLOAT, [4])],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y"], name="again", body=body)]
    return model(nodes, {"x": [4]}, Y, {"n": np.array(1 << 40)})


def _one(operator: str, inputs=("x",), result=FLOAT, constants=None, domain="", **attributes):
    nodes = [node(operator, [*inputs], ["y"], name="its name", domain=domain, **attributes)]
    return model(nodes, {"x": [1, 2, 6, 4]}, {"y": result}, constants, domain=domain)


BROKEN_SCALE = [
    node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
    node("DequantizeLinear", ["q", "s", "z"], ["y"], name="last"),
]
COMPUTING = [
    node("QuantizeLinear", ["x", "s"], ["q"]),
    node("BitShift", ["q", "q"], ["r"], name="shift", direction="LEFT"),
    node("DequantizeLinear", ["r", "s"], ["y"]),
]
CUT = "change it, or cut this part of the ONNX model"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            _one("NonZero", result=INT64),
            rf"operator NonZero of node 'its name' has no TOSA in torch-mlir \d+ \(.*\): {CUT}$",
        ),
        (loop(), r"operator Loop of node 'again' has no TOSA in torch-mlir"),
        (
            _one("ArgMax", result=INT64, axis=1),
            r"operator ArgMax of node 'its name' computes in int64, which TOSA 1\.0 does not have: "
            f"{CUT}$",
        ),
        (
            model([node("Abs", ["x"], ["y"])], {"x": [4]}, {"y": INT64}, kind=INT64),
            r"input 'x' is int64, which TOSA 1\.0 does not have: make it int32 or float32 in the",
        ),
        (
            _one("Gelu", domain="com.microsoft"),
            r"operator com.microsoft.Gelu of node 'its name' is not of ONNX itself, and has no T",
        ),
        (
            model(BROKEN_SCALE, {"x": [4]}, Y),
            "operator DequantizeLinear of node 'last' has a scale or zero point that is computed",
        ),
        (
            model(COMPUTING, {"x": [4]}, Y, {"s": np.float32(0.1)}),
            "operator BitShift of node 'shift' computes with the integers 'q', expected Dequantize",
        ),
        (
            _one("Cast", result=UINT8, to=UINT8),
            "operator Cast of node 'its name' makes unsigned integers, expected int32",
        ),
        (
            resized((1.4, 1), coordinate_transformation_mode="half_pixel", mode="linear"),
            r"operator Resize of node 'up' makes \[1, 2, 8, 4\] of \[1, 2, 6, 4\] by factors \[1",
        ),
        (
            resized((2, 2), coordinate_transformation_mode="half_pixel", nearest_mode="floor"),
            "operator Resize of node 'up' has no TOSA in torch-mlir",
        ),
    ],
    ids=[
        *("nonzero", "loop", "argmax", "int64", "domain", "scale", "computing", "cast", "sizes"),
        "floor",
    ],
)
def test_refusals_name_operator_and_node(content, message):
    with pytest.raises(UnsupportedError, match=f"^{message}"):
        tosajax.load(content)


def test_newer_opsets_and_other_files_are_refused():
    with pytest.raises(UnsupportedError, match=r"opset is 99, onnx \S+ knows up to \d+"):
        tosajax.load(_changed(lambda made: setattr(made.opset_import[0], "version", 99)))
    with pytest.raises(
        UnsupportedError, match=r"initializer 'w' is in another file: save the ONNX"
    ):
        tosajax.load(_changed(_move_out))


def _changed(change) -> bytes:
    made = onnx_files.onnx.load_from_string(
        model([node("Add", ["x", "w"], ["y"])], {"x": [4]}, Y, {"w": floats(4)})
    )
    change(made)
    return made.SerializeToString()


def _move_out(made) -> None:
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.bin")


def test_damaged_models(tmp_path, monkeypatch):
    """A truncated or flipped model is refused, or read as another."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert refusals(lambda copy: tosajax.load(copy, batch=2), open_model(), 6, seed=1) >= 3
    assert list(tmp_path.iterdir()) == []


def test_large_results_of_constants_are_refused():
    nodes = [node("ConstantOfShape", ["s"], ["ones"]), node("Add", ["x", "ones"], ["y"])]
    content = model(nodes, {"x": [1]}, Y, {"s": np.array([1 << 15, 1 << 15])})
    with pytest.raises(UnsupportedError):
        tosajax.load(content)


def test_the_limit_of_time_is_told(monkeypatch):
    monkeypatch.setattr(programs, "_CPU_SECONDS", 0)
    with pytest.raises(UnsupportedError, match="at its limit of 0 seconds of processor time"):
        tosajax.load(open_model(), batch=2)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "torch-mlir"])
def test_the_extra_is_named(package, monkeypatch):
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == package:
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    install = rf"{package} is not installed: pip install 'tosajax\[from-onnx\]'"
    with pytest.raises(ImportError, match=install):
        tosajax.load(open_model(), batch=2)
