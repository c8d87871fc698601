"""TFLite files: equal to LiteRT, with names, scales and open batches; refusals in one sentence."""

# The schema and the runtime are in an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile

import numpy as np
import pytest
from damage import refusals

pytest.importorskip("ai_edge_litert")
pytest.importorskip("tosa_converter_for_tflite")
pytest.importorskip("xdsl")

import tflite_files as tflite
from tflite_files import CONV, File, schema

import tosajax
from tosajax import FormatError, Quantization, UnsupportedError
from tosajax.io.tflite import sparse
from tosajax.io.tflite.sparse import Level

RNG = np.random.default_rng(0)
NONE = np.zeros(0, np.int64)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def check(content: bytes, *inputs: np.ndarray, **options) -> tosajax.Graph:
    """Loads a file, and compares a run with LiteRT's."""
    graph = tosajax.load(content, **options)
    bound = tosajax.bind(graph, batch=len(inputs[0])) if graph.is_dynamic else graph
    expected = tflite.run(content, *inputs)
    for actual, wanted in zip(tosajax.compile(bound)(*inputs), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
    return graph


def rewrites(graph: tosajax.Graph) -> str:
    return "\n".join(map(str, graph.source.rewrites))


def test_a_file_is_read(tmp_path):
    path = tmp_path / "named as no other.bin"
    path.write_bytes(tflite.convolution())
    graph = tosajax.load(path)
    assert graph == check(path.read_bytes(), floats(1, 4, 4, 2))
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))
    assert "conv/Relu" in {node.location for node in graph.nodes}
    version = importlib.metadata.version("tosa-converter-for-tflite")
    assert graph.source.format == "TFLite flatbuffer"
    assert graph.source.version == f"3, converted by tosa-converter-for-tflite {version}"
    assert graph.source.producer == "a test"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def flattened() -> bytes:
    """x[?,4,6] flattened by its own shape, as Keras writes it, then a dense layer and a softmax."""
    file = File()
    x, shape = file.tensor("x", (-1, 4, 6)), file.tensor("shape", (3,), "int32")
    file.add("SHAPE", [x], [shape], "ShapeOptions", outType=schema.TensorType.INT32)
    ends = [file.constant(f"end {n}", np.array([n], np.int32)) for n in (0, 1, 1)]
    count = file.tensor("count", (), "int32")
    file.add(*("STRIDED_SLICE", [shape, *ends], [count], "StridedSliceOptions"), shrinkAxisMask=1)
    rest, both = file.constant("rest", np.array(24, np.int32)), file.tensor("both", (2,), "int32")
    file.add("PACK", [count, rest], [both], "PackOptions", valuesCount=2)
    flat, dense, y = (file.tensor(name, (-1, n)) for name, n in (("f", 24), ("d", 5), ("y", 5)))
    file.add("RESHAPE", [x, both], [flat])
    file.add(
        *("FULLY_CONNECTED", [flat, file.constant("weight", floats(5, 24)), -1], [dense]),
        "FullyConnectedOptions",
    )
    file.add("SOFTMAX", [dense], [y], "SoftmaxOptions", beta=1.0)
    return file.content([x], [y])


def test_an_open_batch_stays_open():
    content = flattened()
    graph = check(content, floats(4, 4, 6))
    assert graph.input_tensors[0].shape == (-1, 4, 6)
    assert graph.output_tensors[0].shape == (-1, 5)
    assert rewrites(graph) == ""
    assert tosajax.load(content, batch=3).input_tensors[0].shape == (3, 4, 6)


def test_a_batch_that_cannot_be_open_has_the_size_of_the_file():
    file = File()
    x, y = file.tensor("x", (-1, 4, 6)), file.tensor("y", (1, 24))
    shape = file.constant("shape", np.array([1, 24], np.int32))
    file.add("RESHAPE", [x, shape], [y], "ReshapeOptions", newShape=[1, 24])
    content = file.content([x], [y])
    graph = check(content, floats(1, 4, 6))
    assert "input 'x': FP32[1,4,6], the file's sizes" in rewrites(graph)
    with pytest.raises(UnsupportedError, match=r"refuses the model: tensor 'y': 'tfl.reshape' op"):
        tosajax.load(content, batch=2)


def test_other_open_dimensions_take_shapes():
    file = File()
    x = file.tensor("x", (1, -1, -1, 3), sizes=(1, 8, 8, 3))
    weight, bias = file.constant("w", floats(2, 3, 3, 3)), file.constant("b", floats(2))
    y = file.tensor("y", (1, -1, -1, 2), sizes=(1, 8, 8, 2))
    file.add("CONV_2D", [x, weight, bias], [y], "Conv2DOptions", **CONV)
    content = file.content([x], [y])
    check(content, floats(1, 5, 6, 3), shapes={"x": (1, 5, 6, 3)})
    with pytest.raises(ValueError, match=r"'x' has shape \(1, -1, -1, 3\), it cannot have \(1, 5"):
        tosajax.load(content, shapes={"x": (1, 5, 6, 4)})
    with pytest.raises(ValueError, match="shapes names 'z'; inputs with open dimensions: 'x'"):
        tosajax.load(content, shapes={"z": (1, 5, 6, 3)})


def test_integers_have_the_scales_of_the_file():
    file = File()
    x = file.tensor("x", (1, 4, 4, 2), "uint8", scale=[0.5], zero_point=[128])
    weight = RNG.integers(-127, 128, (3, 1, 1, 2)).astype(np.int8)
    scales = [0.01, 0.02, 0.03]
    inner = file.tensor("inner", (1, 4, 4, 2), "int8", scale=[0.5], zero_point=[0])
    file.add("QUANTIZE", [x], [inner])
    w = file.constant("w", weight, scale=scales, zero_point=[0, 0, 0])
    biases = {"scale": [0.5 * scale for scale in scales], "zero_point": [0, 0, 0]}
    b = file.constant("b", np.array([5, 6, 7], np.int32), **biases)
    y = file.tensor("y", (1, 4, 4, 3), "int8", scale=[0.25], zero_point=[-3])
    file.add("CONV_2D", [inner, w, b], [y], "Conv2DOptions", **CONV)
    content = file.content([x], [y])
    graph = tosajax.load(content)
    assert graph.quantization["x"] == Quantization((0.5,), (128,))
    assert graph.quantization["y"] == Quantization((0.25,), (-3,))
    assert len(graph.quantization) > 2
    assert "tensor 'x': ui8 is INT8" in rewrites(graph)
    image = RNG.integers(0, 256, (1, 4, 4, 2)).astype(np.uint8)
    (expected,) = tflite.run(content, image)
    (actual,) = tosajax.compile(graph)(image.view(np.int8))
    assert np.abs(np.asarray(actual, np.int32) - expected).max() <= 1


def test_constants_of_float16_and_custom_convolutions():
    file = File()
    x = file.tensor("x", (1, 3, 3, 2))
    half = file.constant("half", floats(4, 2, 2, 2).astype(np.float16))
    weight, bias = file.tensor("weight", (4, 2, 2, 2)), file.constant("bias", floats(4))
    file.add("DEQUANTIZE", [half], [weight])
    y = file.tensor("y", (1, 6, 6, 4))
    options = np.array([1, 2, 2], np.int32).tobytes()  # same, strides of 2
    file.add_custom("Convolution2DTransposeBias", [x, weight, bias], [y], options)
    image = floats(1, 3, 3, 2)
    graph = tosajax.load(file.content([x], [y]))
    assert "1 constants of float16" in rewrites(graph)
    assert "Convolution2DTransposeBias 'y': TRANSPOSE_CONV with a bias" in rewrites(graph)
    (actual,) = tosajax.compile(graph)(image)
    values = file.model.buffers[file.graph.tensors[half].buffer].data.view(np.float16)
    kernel = values.reshape(4, 2, 2, 2).astype(np.float32)
    # A stride of the kernel's size: each pixel makes a block of its own.
    blocks = np.einsum("nijc,oabc->niajbo", image, kernel).reshape(1, 6, 6, 4)
    data = file.model.buffers[file.graph.tensors[bias].buffer].data
    np.testing.assert_allclose(actual, blocks + data.view(np.float32), rtol=1e-5, atol=1e-5)


def levels(mask: np.ndarray) -> list[Level]:
    """A matrix as a dense level of rows and a level of the columns that are present."""
    segments = np.concatenate([[0], np.cumsum(mask.sum(1))])
    return [Level(len(mask), NONE, NONE), Level(None, segments, np.nonzero(mask)[1])]


def test_sparse_rows():
    wanted = np.where(RNG.random((6, 8)) < 0.3, floats(6, 8), 0)
    mask = wanted != 0
    found = sparse.dense(wanted[mask], (6, 8), [0, 1], [], levels(mask))
    np.testing.assert_array_equal(found, wanted)


def test_sparse_blocks_in_another_order():
    """Blocks of 2x4 of a matrix, by columns; within a block by rows."""
    mask = RNG.random((4, 3)) < 0.5  # of blocks, column by column
    blocks = floats(int(mask.sum()), 2, 4)
    wanted = np.zeros((6, 16), np.float32)
    for (column, row), block in zip(np.argwhere(mask), blocks, strict=True):
        wanted[2 * row : 2 * row + 2, 4 * column : 4 * column + 4] = block
    inner = [Level(2, NONE, NONE), Level(4, NONE, NONE)]
    found = sparse.dense(blocks.ravel(), (6, 16), [1, 0, 2, 3], [0, 1], [*levels(mask), *inner])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": [0, 0]}, "traversal order"),
        ({"blocks": [5]}, "traversal order"),
        ({"order": [0, 1, 2], "blocks": [7]}, "traversal order"),
        ({"values": np.ones(3, np.float32)}, "elements, its levels 2"),
        ({"shape": (2, 1)}, "a stored element lies outside dimension 1"),
        (
            {"levels": [Level(-1, NONE, NONE), Level(None, np.array([0, 2]), np.arange(2))]},
            "a level",
        ),
        (
            {"levels": [Level(1, NONE, NONE), Level(None, np.array([0, 9]), np.arange(2))]},
            "segments",
        ),
    ],
)
def test_broken_sparsity(change, message):
    good = {
        "values": np.ones(2, np.float32), "shape": (1, 2), "order": [0, 1], "blocks": [],
        "levels": [Level(1, NONE, NONE), Level(None, np.array([0, 2]), np.arange(2))],
    }  # fmt: skip
    assert sparse.dense(**good).tolist() == [[1, 1]]
    with pytest.raises(FormatError, match=message):
        sparse.dense(**good | change)


def dense_layer(sizes: tuple[int, int] = (3, 4)) -> bytes:
    """x through a layer of a sparse weight, with one element in each row."""
    file = File()
    x, y = file.tensor("x", (1, 4)), file.tensor("y", (1, sizes[0]))
    weight = file.constant("weight", np.array([1, 2, 3], np.float32))
    tensor = file.graph.tensors[weight]
    tensor.shape = list(sizes)
    vector = schema.SparseIndexVector.Uint8Vector
    tensor.sparsity = schema.SparsityParametersT(
        traversalOrder=[0, 1],
        dimMetadata=[
            schema.DimensionMetadataT(format=0, denseSize=3),
            schema.DimensionMetadataT(
                format=1,
                arraySegmentsType=vector,
                arraySegments=schema.Uint8VectorT(values=[0, 1, 2, 3]),
                arrayIndicesType=vector,
                arrayIndices=schema.Uint8VectorT(values=[3, 0, 2]),
            ),
        ],
    )
    dense = file.tensor("dense", sizes)
    file.add("DENSIFY", [weight], [dense])
    file.add("FULLY_CONNECTED", [x, dense, -1], [y], "FullyConnectedOptions")
    return file.content([x], [y])


def test_sparse_constants():
    graph = tosajax.load(dense_layer())
    assert "1 sparse constants: dense" in rewrites(graph)
    (actual,) = tosajax.compile(graph)(np.array([[10, 20, 30, 40]], np.float32))
    assert actual.tolist() == [[40, 20, 90]]
    with pytest.raises(
        UnsupportedError, match=r"'weight' has shape .*, too large for a file of this"
    ):
        tosajax.load(dense_layer((40000, 40000)))


def test_an_output_that_is_an_input_or_another_output():
    file = File()
    x, y = file.tensor("x", (1, 4)), file.tensor("y", (1, 4))
    file.add("ABS", [x], [y])
    graph = check(file.content([x], [y, x, y]), floats(1, 4))
    assert graph.outputs == ("y", "x'", "y'")


def test_names_that_the_converter_gives_others():
    """It numbers tensors: 0 to 2 are those of two operators and their constants."""
    file = File()
    x, middle, y = (file.tensor(name, (1, 4)) for name in ("2", "middle", "0"))
    file.add("ABS", [x], [middle])
    file.add("EXP", [middle], [y])
    graph = check(file.content([x], [y]), floats(1, 4))
    assert (graph.inputs, graph.outputs) == (("2",), ("0",))
    assert {*graph.tensors} == {"2", "0'", "0"}


def indices(*readers: str) -> bytes:
    """The position of the largest of x, in int64, and what other operators make of it."""
    file = File()
    x, y = file.tensor("x", (1, 4)), file.tensor("where", (1,), "int64")
    axis = file.constant("axis", np.array(1, np.int32))
    file.add("ARG_MAX", [x, axis], [y], "ArgMaxOptions", outputType=schema.TensorType.INT64)
    for operator in readers:
        source, y = y, file.tensor(operator, (1,), "int64")
        file.add(operator, [source, source], [y], "AddOptions")
    return file.content([x], [y])


def test_indices_of_int64_are_int32():
    graph = check(indices(), np.array([[1, 2, 9, 3]], np.float32))
    assert "tensor 'where': int32; it is int64 in the file" in rewrites(graph)
    with pytest.raises(
        UnsupportedError, match=r"ARGMAX of tensor 'where' computes in int64, which TOSA 1\.0 does"
    ):
        tosajax.load(indices("ADD"))


def lstm() -> bytes:
    file = File()
    x, y = file.tensor("x", (1, 3, 4)), file.tensor("rnn/out", (1, 3, 2))
    of_inputs, of_states = ([file.constant("w", floats(2, n)) for _ in range(4)] for n in (4, 2))
    biases = [file.constant("b", floats(2)) for _ in range(4)]
    states = [file.tensor(name, (1, 2)) for name in ("h", "c")]
    for state in states:
        file.graph.tensors[state].isVariable = True
    file.add(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [x, *of_inputs, *of_states, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1], [y],
        "UnidirectionalSequenceLSTMOptions", fusedActivationFunction=4,
    )  # fmt: skip
    return file.content([x], [y])


def custom() -> bytes:
    file = File()
    x, y = file.tensor("x", (1, 4)), file.tensor("head/boxes", (1, 4))
    file.add_custom("TFLite_Detection_PostProcess", [x], [y])
    return file.content([x], [y])


def of_int64() -> bytes:
    file = File()
    x, y = file.tensor("ids", (1, 4), "int64"), file.tensor("y", (1, 4), "int64")
    file.add("ABS", [x], [y])
    return file.content([x], [y])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            lstm(),
            "operator UNIDIRECTIONAL_SEQUENCE_LSTM of tensor 'rnn/out' has no TOSA in tosa-conv.*: "
            "change it, or cut this part of the TFLite model",
        ),
        (
            custom(),
            "custom operator 'TFLite_Detection_PostProcess' of tensor 'head/boxes' has no TOSA: "
            "cut the TFLite model before it, and compute it outside",
        ),
        (of_int64(), r"input 'ids' is int64, which TOSA 1\.0 does not have: use int32 in the TFL"),
    ],
    ids=["lstm", "custom", "int64"],
)
def test_refusals_name_operator_and_tensor(content, message):
    with pytest.raises(UnsupportedError, match=f"^{message}"):
        tosajax.load(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: f.graph.operators[0].inputs.__setitem__(0, 99),
            "operator 0: inputs: index 99 of",
        ),
        (
            lambda f: f.graph.operators[0].outputs.__setitem__(0, -1),
            "outputs: index -1 of 2 tensors",
        ),
        (
            lambda f: setattr(f.graph.operators[0], "opcodeIndex", 7),
            "code: index 7 of 1 operator c",
        ),
        (
            lambda f: setattr(f.graph.tensors[0], "buffer", 7),
            "tensor 'x': buffer: index 7 of 1 buf",
        ),
        (lambda f: setattr(f.graph.tensors[0], "shape", [-4]), r"tensor 'x': shape is \(-4,\)"),
        (lambda f: setattr(f.graph.tensors[0], "shape", [2**16] * 3), "tensor 'x': shape is "),
        (lambda f: f.store(0, np.zeros(3, np.int8)), "the constant has 3 bytes, expected 16"),
        (lambda f: setattr(f.model, "subgraphs", []), "it has no subgraph"),
    ],
)
def test_broken_content(change, message):
    file = File()
    x, y = file.tensor("x", (1, 4)), file.tensor("y", (1, 4))
    file.add("ABS", [x], [y])
    file.content([x], [y])
    change(file)
    with pytest.raises(FormatError, match=f"the TFLite model is broken: .*{message}"):
        tosajax.load(file.content([x], [y]))


def test_damaged_files(tmp_path, monkeypatch):
    """A truncated or flipped file is refused, or read as another."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert refusals(tosajax.load, tflite.convolution(), 60, seed=0) > 30
    assert list(tmp_path.iterdir()) == []


def test_save_refuses_the_suffix(small_graph, tmp_path):
    only = r"suffix is '\.tflite', which tosajax only reads, expected one of \.tosa, "
    with pytest.raises(ValueError, match=only):
        tosajax.save(small_graph, tmp_path / "x.tflite")


def test_the_other_function_is_refused():
    with pytest.raises(ValueError, match="function 'other' of a TFLite flatbuffer, which has one"):
        tosajax.load(tflite.convolution(), function="other")


def test_the_extra_is_named(monkeypatch):
    install = r"tosa-converter-for-tflite is not installed: pip install 'tosajax\[from-tflite\]'"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ImportError, match=install):
        tosajax.load(tflite.convolution())
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(ImportError, match=r"ai-edge-litert is not .* 'tosajax\[from-tflite\]'"):
        tosajax.load(tflite.convolution())
