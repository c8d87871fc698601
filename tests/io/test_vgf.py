"""VGF files: those of Arm's model converter, ours, files of several segments, and broken ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.legal_graphs import ROW_IDS, ROWS, legal_graph
from paths import CORPUS

import tosajax
from tosajax import Builder, DType, spec
from tosajax.graph import DYNAMIC, Graph, Node, Tensor
from tosajax.graph.alike import difference
from tosajax.io import spirv, to_bytes, vgf
from tosajax.io.spirv.grammar import NUMBERS
from tosajax.io.vgf import tables
from tosajax.io.vgf.tables import Data, Ends, File, Slot
from tosajax.report import FormatError, UnsupportedError

vgfpy = pytest.importorskip("vgfpy", reason="vgfpy is not installed")

_DATA = Path(__file__).parent / "spirv" / "data"
_SAMPLES = ("conv_f32", "conv_int8", "extra", "fp32_convnet", "int8_convnet")
_CONV = (_DATA / "conv_int8.vgf").read_bytes()


def _complete(graph: Graph) -> Graph:
    """The graph with all attributes stated, as files have them."""
    return tosajax.load(to_bytes(graph))


# Samples.


@pytest.mark.parametrize("name", _SAMPLES)
def test_samples(name):
    graph = vgf.read((_DATA / f"{name}.vgf").read_bytes())
    twin = tosajax.load(_DATA / f"{name}.tosa")
    found = difference(twin, graph)
    # The converter leaves out an IDENTITY, and two RESHAPEs of which one undoes the other.
    folded = {"extra": "1 IDENTITY", "fp32_convnet": "2 RESHAPE"}.get(name)
    assert found == (folded and f"operators: {folded} more in the first, none in the second")
    assert graph.inputs == tuple(f"input_{i}" for i in range(len(twin.inputs)))
    assert graph.outputs == tuple(f"output_{i}" for i in range(len(twin.outputs)))
    source = graph.source
    assert (source.format, source.version) == ("VGF", "0.5.0")
    assert source.producer == "LLVM MLIR SPIR-V Serializer 24"


@pytest.mark.parametrize("name", _SAMPLES)
def test_samples_survive(name):
    graph = vgf.read((_DATA / f"{name}.vgf").read_bytes())
    content = vgf.to_bytes(graph)
    assert vgf.read(content) == graph
    assert vgf.read(memoryview(content)) == graph
    assert vgf.read(content).source.producer == ""


@pytest.mark.parametrize(
    ("name", "data", "wanted"),
    [("conv_int8", "in_i8", "ref_conv_int8"), ("int8_convnet", "in_i8", "ref_int8")],
)
def test_outputs(name, data, wanted):
    """Those of Arm's reference model."""
    graph = vgf.read((_DATA / f"{name}.vgf").read_bytes())
    (found,) = tosajax.compile(graph)(np.load(_DATA / f"{data}.npy"))
    np.testing.assert_array_equal(found, np.load(_DATA / f"{wanted}.npy"))


def _rows(*, slow: bool) -> list:
    """Rows that a module can hold; all but the first of each operator may be slow."""
    return [
        pytest.param(
            operator,
            row,
            id=name,
            marks=[pytest.mark.slow] if slow and row is not operator.types[0] else [],
        )
        for (operator, row), name in zip(ROWS, ROW_IDS, strict=True)
        if operator.name in NUMBERS and DType.INT4 not in row.types.values()
    ]


def _legal(operator: spec.Operator, row: spec.TypeRow) -> Graph:
    changes = {}
    if operator.name == "TABLE":  # the table has to be constant
        size, dtype = row.types["TABLE_SIZE"], row.types["in_t"]
        assert isinstance(dtype, DType)
        assert isinstance(size, int)
        changes["table"] = np.arange(size).astype(dtype.storage)
    return _complete(legal_graph(operator, row, **changes))


@pytest.mark.parametrize(("operator", "row"), _rows(slow=False))
def test_every_row_survives(operator, row):
    graph = _legal(operator, row)
    again = vgf.read(vgf.to_bytes(graph))
    assert difference(graph, again) is None
    assert (again.inputs, again.outputs) == (graph.inputs, graph.outputs)


_DTYPES = [dtype for dtype in DType if dtype not in (DType.INT4, DType.SHAPE)]


@pytest.mark.parametrize("dtype", _DTYPES, ids=lambda dtype: dtype.name)
def test_constants(dtype):
    rng = np.random.default_rng(7)
    if dtype is DType.BOOL:
        values = rng.random((5, 7)) < 0.5
    elif dtype.is_integer:
        values = rng.integers(dtype.minimum, dtype.maximum, (5, 7), np.int64, endpoint=True)
        values[0, :2] = dtype.minimum, dtype.maximum
    else:
        bits = rng.integers(0, 256, (5, 7, dtype.storage.itemsize), np.uint8)
        values = bits.view(dtype.storage)[..., 0]
    tensor = Tensor("c", dtype, (5, 7), values)
    graph = Graph((), ("c",), {"c": tensor}, (Node("CONST", (), ("c",)),))
    assert vgf.read(vgf.to_bytes(graph)) == graph


def test_what_spirv_cannot_hold():
    tensors = {name: Tensor(name, DType.FP32, ()) for name in "xy"}
    with pytest.raises(UnsupportedError, match="SPIR-V has no tensors of rank 0"):
        vgf.to_bytes(Graph(("x",), ("y",), tensors, (Node("ABS", ("x",), ("y",)),)))
    tensors = {name: Tensor(name, DType.FP32, None) for name in "xy"}
    with pytest.raises(UnsupportedError, match=r"'x' is FP32.*: VGF has no tensors of any rank"):
        vgf.to_bytes(Graph(("x",), ("y",), tensors, (Node("ABS", ("x",), ("y",)),)))


# Arm's tools.


def _tool(name: str) -> str:
    program = shutil.which(name, path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


def test_dump_of_a_file_of_ours(tmp_path):
    """What `vgf_dump` of the VGF library says of it."""
    program, path = _tool("vgf_dump"), tmp_path / "graph.vgf"
    b = Builder()
    x, y = b.input("first", DType.INT8, (2, 20)), b.input("second", DType.BOOL, (1,))
    values = np.arange(40, dtype=np.int8).reshape(2, 20)
    graph = b.graph([b.op("SELECT", b.op("RESHAPE", y, b.const_shape([1, 1])), x,
                          b.const(values, DType.INT8)), y])  # fmt: skip
    path.write_bytes(vgf.to_bytes(graph))

    def dump(*options: str) -> bytes:
        command = [program, "-i", path, *options]
        return subprocess.run(command, check=True, capture_output=True).stdout

    found = json.loads(dump())
    resources = found["resources"]
    sequence = found["model_sequence"]
    assert [r["category"] for r in resources] == [*("INPUT",) * 2, *("OUTPUT",) * 2, "CONSTANT"]
    formats = {"VK_FORMAT_R8_SINT": [2, 20], "VK_FORMAT_R8_BOOL_ARM": [1]}
    assert {r["vk_format"]: r["shape"] for r in resources} == formats
    ends = [sequence["inputs"], sequence["outputs"]]
    assert [[end["name"] for end in side] for side in ends] == [[*graph.inputs], [*graph.outputs]]
    assert [[end["binding"] for end in side] for side in ends] == [[0, 1], [2, 3]]
    (segment,) = sequence["segments"]
    assert segment["type"] == "GRAPH"
    assert segment["constant_bindings"] == [{"constant_table_index": 0, "graph_constant_id": 0}]
    module, array = tmp_path / "module.spv", tmp_path / "constant.npy"
    dump("--dump-spirv", "0", "-o", str(module))
    assert module.read_bytes() == spirv.to_bytes(graph)[0]
    dump("--dump-constant", "0", "-o", str(array))
    np.testing.assert_array_equal(np.load(array), values)


@pytest.fixture
def converted(tmp_path) -> Callable[[Graph], Graph]:
    """The graph of the VGF file that Arm's converter makes of a `.tosa` file."""
    program = _tool("model-converter")

    def convert(graph: Graph) -> Graph:
        source, result = tmp_path / "graph.tosa", tmp_path / "graph.vgf"
        tosajax.save(graph, source)
        command = [program, "--input", source, "--output", result]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return vgf.read(result.read_bytes())

    return convert


@pytest.mark.parametrize(("operator", "row"), _rows(slow=True))
def test_converter_and_we_write_the_same(operator, row, converted):
    graph = _legal(operator, row)
    theirs = converted(graph)
    assert difference(graph, theirs) is None
    assert difference(vgf.read(vgf.to_bytes(graph)), theirs) is None


def _models() -> list:
    found = [p for p in sorted(CORPUS.glob("*/*.tosa")) if "mxfp8" not in p.parent.name]
    skip = pytest.mark.skip(reason=f"no models in {CORPUS}")
    return [
        pytest.param(
            path,
            id=f"{path.parent.name}-{path.stem}",
            marks=[] if path.stat().st_size < 100_000 else pytest.mark.slow,
        )
        for path in found
    ] or [pytest.param(None, marks=skip)]


@pytest.mark.parametrize("path", _models())
def test_converter_and_we_agree_on_models(path, converted):
    """It folds RESHAPEs of constants, and CLAMPs without an effect; then it has no more to fold."""
    graph = tosajax.load(path)
    theirs = converted(graph)
    found = difference(graph, theirs)
    if found is not None:
        assert found.startswith("operators: ")
        assert "none in the second" in found
        assert difference(theirs, converted(theirs)) is None
    assert difference(theirs, vgf.read(vgf.to_bytes(theirs))) is None


@pytest.mark.parametrize("name", ["hello_world_int8"])
def test_converted_models_compute_the_same(name, converted):
    folder = CORPUS / name
    if not folder.exists():
        pytest.skip(f"no models in {CORPUS}")
    graph = converted(tosajax.load(folder / "model.tosa"))
    (inputs,), (wanted,) = (
        [np.load(path) for path in sorted(folder.glob(pattern))]
        for pattern in ("inputs_*.npy", "expected_ref_*.npy")
    )
    run = tosajax.compile(graph)
    for case, expected in zip(inputs, wanted, strict=True):
        (found,) = run(case.reshape(graph.input_tensors[0].shape))
        np.testing.assert_array_equal(np.ravel(found), np.ravel(expected))


# Files of several segments, and with other resources than ours.


def _module(op: str, *, constant: np.ndarray | None = None) -> tuple[bytes, dict[int, Any]]:
    """A module of one operator, of x and a constant, or of x and y."""
    b = Builder()
    x = b.input("x", DType.FP32, (2, 20))
    if op == "ABS":
        return spirv.to_bytes(b.graph([b.op(op, x)]))
    other = b.input("y", DType.FP32, (2, 20)) if constant is None else b.const(constant, DType.FP32)
    return spirv.to_bytes(b.graph([b.op(op, x, other)]))


def _encoded(fill: Callable[[Any], None]) -> bytes:
    import io

    encoder = vgfpy.CreateEncoder(0)
    fill(encoder)
    encoder.Finish()
    content = io.BytesIO()
    assert encoder.WriteTo(content)
    return content.getvalue()


_TENSOR, _FP32 = 1000460000, 100


def _four_segments(encoder: Any, *, late: bool = False, kind: str = "Graph") -> None:
    """||x + k| - y|, of an ADD, an ABS, a SUB and the same ABS.

    The model's inputs are y and x, in this order.
    """
    k = np.arange(40, dtype=np.float32).reshape(2, 20)
    add, outside = _module("ADD", constant=k)
    absolute, sub = _module("ABS")[0], _module("SUB")[0]
    (number,) = outside
    makers = (
        *(encoder.AddInputResource,) * 2,
        *(encoder.AddIntermediateResource,) * 3,
        encoder.AddOutputResource,
    )
    resources = [make(_TENSOR, _FP32, (2, 20), ()) for make in makers]
    y, x, first, second, third, result = resources
    constant = encoder.AddConstant(encoder.AddConstantResource(_FP32, (2, 20), ()), k.tobytes())

    def slots(*resources: Any) -> list[Any]:
        return [encoder.AddBindingSlot(at, resource) for at, resource in enumerate(resources)]

    steps = [
        (add, (x, first), [vgfpy.GraphConstantBindingRef(number, constant)]),
        (absolute, (first, second), []),
        (sub, (second, y, third), []),
        (absolute, (third, result), []),
    ]
    for at, (code, places, constants) in enumerate(steps[::-1] if late else steps):
        words = memoryview(code).cast("I").tolist()
        type_ = getattr(vgfpy.ModuleType, kind)
        module = encoder.AddModule(type_, f"module {at}", "main", words)
        bound = slots(*places)
        # Without a number: that of the set is its place.
        set_ = encoder.AddDescriptorSetInfo(bound)
        encoder.AddSegmentInfo(module, f"step {at}", [set_], bound[:-1], bound[-1:], constants)
    ends = slots(y, x), slots(result)
    encoder.AddModelSequenceInputsOutputs(ends[0], ["minus", "plus"], ends[1], ["result"])


def test_segments_one_after_the_other():
    graph = vgf.read(_encoded(_four_segments))
    assert (graph.inputs, graph.outputs, graph.name) == (("minus", "plus"), ("result",), "main")
    assert [n.op for n in graph.nodes] == ["CONST", "ADD", "ABS", "SUB", "ABS"]
    rng = np.random.default_rng(1)
    y, x = (rng.normal(size=(2, 20)).astype(np.float32) for _ in range(2))
    k = np.arange(40, dtype=np.float32).reshape(2, 20)
    (found,) = tosajax.compile(graph)(y, x)
    np.testing.assert_array_equal(found, np.abs(np.abs(x + k) - y))
    assert vgf.read(vgf.to_bytes(graph)) == graph


def test_segments_in_another_order():
    content = _encoded(lambda encoder: _four_segments(encoder, late=True))
    with pytest.raises(FormatError, match="segment 'step 0': resource 4 is read, and nothing writ"):
        vgf.read(content)


def test_shaders():
    content = _encoded(lambda encoder: _four_segments(encoder, kind="Compute"))
    with pytest.raises(UnsupportedError, match="segment 'step 0' is a shader, expected a graph"):
        vgf.read(content)


def test_module_that_is_not_in_the_file():
    def fill(encoder: Any) -> None:
        module = encoder.AddModule(vgfpy.ModuleType.Graph, "elsewhere", "main", [])
        encoder.AddSegmentInfo(module, "step")
        encoder.AddModelSequenceInputsOutputs()

    with pytest.raises(UnsupportedError, match="SPIR-V of segment 'step' is not in the file"):
        vgf.read(_encoded(fill))


def test_constants_in_the_order_of_older_files():
    """These list them: the number of each is its place in the table."""

    def fill(encoder: Any) -> None:
        values = np.arange(40, dtype=np.float32).reshape(2, 20)
        code, _ = _module("ADD", constant=values)
        words = memoryview(code).cast("I").tolist()
        module = encoder.AddModule(vgfpy.ModuleType.Graph, "module", "main", words)
        x = encoder.AddInputResource(_TENSOR, _FP32, (2, 20), ())
        y = encoder.AddOutputResource(_TENSOR, _FP32, (2, 20), ())
        k = encoder.AddConstant(encoder.AddConstantResource(_FP32, (2, 20), ()), values.tobytes())
        bound = [encoder.AddBindingSlot(at, resource) for at, resource in enumerate((x, y))]
        set_ = encoder.AddDescriptorSetInfo(bound, 0)
        encoder.AddSegmentInfo(module, "step", [set_], bound[:1], bound[1:], [k])
        encoder.AddModelSequenceInputsOutputs(bound[:1], [], bound[1:], [])

    graph = vgf.read(_encoded(fill))
    assert [n.op for n in graph.nodes] == ["CONST", "ADD"]
    assert (graph.inputs, graph.outputs) == (("x",), ("add_2",))


def _changed(content: bytes, change: Callable[[File], File]) -> bytes:
    return tables.write_file(change(tables.read_file(content)))


def _open(rank: int = 2) -> bytes:
    """A file of an ABS whose module knows the rank of its tensors alone."""
    tensors = {name: Tensor(name, DType.FP32, (DYNAMIC,) * rank) for name in "xy"}
    return vgf.to_bytes(Graph(("x",), ("y",), tensors, (Node("ABS", ("x",), ("y",)),)))


def _with_shapes(*shapes: tuple[int, ...]) -> Callable[[File], File]:
    def change(file: File) -> File:
        resources = [r._replace(shape=s) for r, s in zip(file.resources, shapes, strict=True)]
        return file._replace(resources=tuple(resources))

    return change


def test_resources_may_know_more_of_a_shape():
    """Arm's converter writes tensors with open dimensions like this."""
    graph = vgf.read(_changed(_open(), _with_shapes((-1, 8), (-1, 8))))
    assert [t.shape for t in graph.tensors.values()] == [(DYNAMIC, 8)] * 2


def test_modules_may_know_more_of_a_shape():
    b = Builder()
    x = b.input("x", DType.FP32, (2, 8))
    content = vgf.to_bytes(b.graph([b.op("ABS", x)]))
    graph = vgf.read(_changed(content, _with_shapes((-1, 8), (-1, -1))))
    assert [t.shape for t in graph.tensors.values()] == [(2, 8)] * 2


def test_one_element_in_the_module_is_no_other_shape_of_the_resource():
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in "xy"}
    content = vgf.to_bytes(Graph(("x",), ("y",), tensors, (Node("ABS", ("x",), ("y",)),)))
    for shape in ((2,), (1, 1)):
        dims = ",".join(map(str, shape))
        message = rf"resource 0 is FP32\[{dims}\], and in the module FP32\[1\]"
        with pytest.raises(FormatError, match=message):
            vgf.read(_changed(content, _with_shapes(shape, shape)))


def test_tensors_of_rank_0():
    """Arm's converter writes them as of one element in the module, and as they are in resources."""
    b = Builder()
    content = vgf.to_bytes(b.graph([b.op("ABS", b.input("x", DType.FP32, (1,)))]))
    graph = vgf.read(_changed(content, _with_shapes((), ())))
    assert [t.shape for t in graph.tensors.values()] == [(1,)] * 2


def test_unsigned_formats():
    """The bits of unsigned integers; R8_UINT has number 13."""
    content = _changed(
        _CONV, lambda f: f._replace(resources=tuple(r._replace(format=13) for r in f.resources))
    )
    assert vgf.read(content) == vgf.read(_CONV)


def test_row_major_strides():
    def change(file: File) -> File:
        first = file.resources[0]._replace(strides=(27, 9, 3, 1))
        return file._replace(resources=(first, *file.resources[1:]))

    assert vgf.read(_changed(_CONV, change)) == vgf.read(_CONV)


def test_missing_names():
    """Those of the module take their place."""

    def change(file: File) -> File:
        return file._replace(
            inputs=file.inputs._replace(names=("",)), outputs=file.outputs._replace(names=())
        )

    graph = vgf.read(_changed(_CONV, change))
    assert (graph.inputs, graph.outputs) == (
        ("graph_partition_0_arg_0",),
        ("graph_partition_0_res_0",),
    )


def test_equal_names():
    def change(file: File) -> File:
        return file._replace(
            inputs=file.inputs._replace(names=("same",)),
            outputs=file.outputs._replace(names=("same",)),
        )

    graph = vgf.read(_changed(_CONV, change))
    assert (graph.inputs, graph.outputs) == (("same",), ("same_1",))


# Files that are not well formed.


def _replaced(resource: int, **changes: Any) -> Callable[[File], File]:
    def change(file: File) -> File:
        resources = list(file.resources)
        resources[resource] = resources[resource]._replace(**changes)
        return file._replace(resources=tuple(resources))

    return change


def _with_segment(**changes: Any) -> Callable[[File], File]:
    return lambda f: f._replace(segments=(f.segments[0]._replace(**changes),))


def _with_data(content: bytes, resource: int = 0) -> Callable[[File], File]:
    return lambda f: f._replace(data=(Data(resource, content),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_replaced(1, format=100), r"resource 1 is FP32\[1,8,8,3\], and in the module INT8\[1,8,8"),
        (_replaced(2, format=75), r"resource 2 is INT16\[1,8,8,4\], and in the module INT8"),
        (_replaced(1, shape=(1, 8, 8, 4)), r"resource 1 is INT8\[1,8,8,4\], and in the module INT"),
        (_replaced(1, shape=(1, 8, 8)), r"resource 1 is INT8\[1,8,8\], and in the module INT8\[1"),
        (_replaced(1, shape=()), r"resource 1 is INT8\[\], and in the module INT8\[1,8,8,3\]"),
        (_replaced(1, shape=(1, 8, 8, 0)), "a resource has dimension 0, expected -1 or 1 on"),
        (_replaced(1, shape=(-2, 8, 8, 3)), "a resource has dimension -2, expected -1"),
        (_replaced(1, format=37), "a resource has format 37 of Vulkan, no tensor's"),
        (_replaced(1, shape=(1,) * 33), "a resource has 33 dimensions, of which TOSA has at"),
        (_replaced(0, shape=(3, 4, 3, 3)), r"graph constant 0, INT8\[4,3,3,3\], has data of INT8"),
        (_replaced(0, format=99), r"INT8\[4,3,3,3\], has data of INT32\[4,3,3,3\]"),
        (_replaced(0, strides=(1, 4, 12, 36)), "graph constant 0.* has data that is not row major"),
        (_with_data(bytes(107)), "has data that does not fit: 107 bytes of data, expected 108"),
        (_with_data(bytes(109)), "has data that does not fit: 109 bytes"),
        (_with_segment(constants={}), r"graph constant 0, INT8\[4,3,3,3\], has no data in"),
        (_with_segment(entry_point="other"), "has no graph 'other', but 'graph_partition_0'"),
        (_with_segment(sets={}), "nothing is bound to binding 0 of descriptor set 0"),
        (_with_segment(sets={1: (Slot(0, 1), Slot(1, 2))}), "binding 0 of descriptor set 0"),
        (_with_segment(sets={0: (Slot(0, 1),)}), "nothing is bound to binding 1 of descriptor set"),
        (_with_segment(module=b"\3\2\43\7"), "the module has 4 bytes"),
        (lambda f: f._replace(inputs=Ends((), ())), "resource 1 is read, and nothing writes it"),
        (lambda f: f._replace(outputs=Ends((Slot(9, 0),), ())), "resource 0 is read, and nothing"),
        (lambda f: f._replace(inputs=Ends((Slot(0, 1), Slot(1, 1)), ())), "1 is two inputs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_does_not_fit(change, message):
    content = _changed(_CONV, change)
    with pytest.raises((FormatError, UnsupportedError), match=message):
        vgf.read(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file has 0 bytes, expected at least 80"),
        (_CONV[:79], "the file has 79 bytes"),
        (b"VGF2" + _CONV[4:], "the file starts with b'VGF2', expected b'VGF1'"),
        (_CONV[:-1], "a section at bytes 2432 to 2584, beyond the 2583 bytes of the file"),
        (_CONV[:16] + b"\xff" * 8 + _CONV[24:], "a section at bytes 18446744073709551615"),
        (_CONV[:24] + b"\xff" * 8 + _CONV[32:], "beyond the 2584 bytes of the file"),
        (_CONV[:128] + bytes(1688) + _CONV[1816:], "damaged"),
        (_CONV[:1816] + bytes(328) + _CONV[2144:], "damaged"),
        (_CONV[:2144] + bytes(288) + _CONV[2432:], "damaged"),
        (_CONV[:2432] + bytes(152), "damaged|has no data"),
    ],
)
def test_header_and_sections(content, message):
    with pytest.raises(FormatError, match=message):
        vgf.read(content)


@pytest.mark.parametrize(("at", "value", "version"), [(8, 1, "1.5.0"), (9, 6, "0.6.0")])
def test_versions(at, value, version):
    content = bytearray(_CONV)
    content[at] = value
    with pytest.raises(
        UnsupportedError, match=f"the version is {version}, and the newest of vgfpy"
    ):
        vgf.read(bytes(content))


def test_without_vgfpy(monkeypatch):
    monkeypatch.setitem(sys.modules, "vgfpy", None)
    graph = Graph(("x",), ("x",), {"x": Tensor("x", DType.FP32, (1,))}, ())
    for use in (lambda: vgf.read(_CONV), lambda: vgf.to_bytes(graph)):
        with pytest.raises(
            ImportError, match=r"vgfpy is not installed: pip install 'tosajax.vgf.'"
        ):
            use()


def test_segments_of_one_module_without_end():
    """Many segments have the same large module."""

    def fill(encoder: Any) -> None:
        code = [0] * 50_000
        module = encoder.AddModule(vgfpy.ModuleType.Graph, "module", "main", code)
        for at in range(200):
            encoder.AddSegmentInfo(module, f"step {at}")
        encoder.AddModelSequenceInputsOutputs()

    with pytest.raises(FormatError, match="the same parts of the file are referred to too often"):
        vgf.read(_encoded(fill))
