"""What modules of ours have in them, and what they refuse to hold."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from spirv_assembler import OPCODES

from tosajax import Builder, DType, spec
from tosajax.graph import DYNAMIC, Graph, Node, Tensor
from tosajax.io import spirv, vgf
from tosajax.report import TosaError, UnsupportedError
from tosajax.versions import V1_0, V1_1


def _instructions(content: bytes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and operands, without any of tosajax."""
    names = {number: name for name, number in OPCODES.items()}
    words = struct.unpack(f"<{len(content) // 4}I", content)
    at = 5
    while at < len(words):
        count = words[at] >> 16
        yield names[words[at] & 0xFFFF], words[at + 1 : at + count]
        at += count


def _text(words: tuple[int, ...]) -> str:
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0].decode()


def _needs(graph: Graph) -> tuple[set[int], set[str]]:
    """Capabilities and extensions of a module."""
    found = list(_instructions(spirv.to_bytes(graph)[0]))
    capabilities = {operands[0] for name, operands in found if name == "OpCapability"}
    extensions = {_text(operands) for name, operands in found if name == "OpExtension"}
    return capabilities, extensions


def _abs(dtype: DType = DType.FP32, shape: tuple[int, ...] | None = (2, 3)) -> Graph:
    tensors = {name: Tensor(name, dtype, shape) for name in "xy"}
    return Graph(("x",), ("y",), tensors, (Node("ABS", ("x",), ("y",)),))


_ALWAYS = {1, 4174, 4191, 5345}  # Shader, TensorsARM, GraphARM, VulkanMemoryModel
_TYPES = {
    DType.BOOL: (set(), set()),
    DType.INT8: ({39}, set()),
    DType.INT16: ({22}, set()),
    DType.INT32: (set(), set()),
    DType.INT48: ({11}, set()),
    DType.FP16: ({9}, set()),
    DType.FP32: (set(), set()),
    DType.BF16: ({5116}, {"SPV_KHR_bfloat16"}),
    DType.FP8E4M3: ({4212}, {"SPV_EXT_float8"}),
    DType.FP8E5M2: ({4212}, {"SPV_EXT_float8"}),
}


@pytest.mark.parametrize("dtype", _TYPES, ids=lambda dtype: dtype.name)
def test_needs(dtype):
    capabilities, extensions = _needs(_abs(dtype))
    more, names = _TYPES[dtype]
    assert capabilities == _ALWAYS | more
    assert extensions == {"SPV_ARM_tensors", "SPV_ARM_graph"} | names


def test_equal_elements_need_an_extension():
    b = Builder()
    graph = b.graph([b.const(np.ones((2, 3)), DType.FP32)])
    capabilities, extensions = _needs(graph)
    assert 6024 in capabilities
    assert "SPV_EXT_replicated_composites" in extensions


def test_order_of_instructions():
    """That of the specification: whatever is referred to stands before, but for names."""
    graph = dataclasses.replace(_abs(), name="main")
    (node,) = graph.nodes
    graph = dataclasses.replace(graph, nodes=(dataclasses.replace(node, location="here"),))
    content, outside = spirv.to_bytes(graph)
    assert outside == {}
    names = [name for name, _ in _instructions(content)]
    order = (
        *("OpCapability", "OpExtension", "OpExtInstImport", "OpMemoryModel", "OpString"),
        *("OpName", "OpDecorate", "OpTypeFloat", "OpGraphEntryPointARM", "OpGraphARM"),
        *("OpGraphInputARM", "OpGraphSetOutputARM", "OpGraphEndARM"),
    )
    places = [names.index(name) for name in order]
    assert places == sorted(places)
    assert names[-2:] == ["OpExtInst", "OpExtInst"]  # where the graph and the node come from


def test_header():
    content, _ = spirv.to_bytes(_abs())
    magic, version, generator, bound, schema = struct.unpack("<5I", content[:20])
    assert (magic, version, generator, schema) == (0x07230203, 0x00010600, 0, 0)
    results = [words for name, words in _instructions(content) if name == "OpConstant"]
    assert all(words[1] < bound for words in results)


def test_bindings():
    """Inputs, then outputs, from 0 on in set 0; each with its tensor's name, unless it is taken."""
    b = Builder()
    x, y = (b.input(name, DType.FP32, (2,)) for name in ("first", "second"))
    graph = b.graph([b.op("ADD", x, y), x])
    found = list(_instructions(spirv.to_bytes(graph)[0]))
    (entry,) = [words for name, words in found if name == "OpGraphEntryPointARM"]
    variables = entry[3:]  # behind the id and two words of "main"
    bound = {(w[0], w[1]): w[2] for name, w in found if name == "OpDecorate"}
    named = {w[0]: _text(w[1:]) for name, w in found if name == "OpName"}
    assert len(variables) == 4
    assert [bound[variable, 33] for variable in variables] == [0, 1, 2, 3]
    assert [bound[variable, 34] for variable in variables] == [0] * 4
    names = [named.get(variable) for variable in variables]
    assert names == ["first", "second", graph.outputs[0], None]


def test_types_and_constants_are_declared_once():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4, 4, 3))
    zero = b.const([0], DType.INT8)
    for _ in range(3):
        x = b.op("AVG_POOL2D", x, zero, zero, kernel=(2, 2), stride=(1, 1), pad=(1, 0, 1, 0),
                 acc_type=DType.INT32)  # fmt: skip
    found = [(n, w[2:]) for n, w in _instructions(spirv.to_bytes(b.graph([x]))[0])]
    declared = [(n, w) for n, w in found if n.startswith("OpConstant")]
    assert len(declared) == len(set(declared))


def test_writing_is_deterministic():
    graph = _abs()
    assert spirv.to_bytes(graph)[0] == spirv.to_bytes(graph)[0]


# What a module cannot hold.


def _one(op: str, inputs: str, outputs: str, **attributes: Any) -> Graph:
    tensors = {name: Tensor(name, DType.INT8, (3,)) for name in inputs + outputs}
    nodes = (Node(op, tuple(inputs), tuple(outputs), attributes),)
    return Graph(tuple(inputs), tuple(outputs), tensors, nodes)


def _long_concat(count: int) -> Graph:
    """A graph that has its input in its output so many times."""
    return dataclasses.replace(_one("CONCAT", "x" * count, "y", axis=0), inputs=("x",))


def test_longest_instruction():
    graph = _long_concat(65_529)
    assert spirv.read(*spirv.to_bytes(graph)) == graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (_one("CUSTOM", "x", "y"), "CUSTOM 'y': SPIR-V has no CUSTOM"),
        (_one("COND_IF", "x", "y"), "COND_IF 'y': SPIR-V has no COND_IF"),
        (_one("WHILE_LOOP", "x", "y"), "WHILE_LOOP 'y': SPIR-V has no WHILE_LOOP"),
        (_one("VARIABLE", "", "y"), "VARIABLE 'y': SPIR-V has no VARIABLE"),
        (_one("VARIABLE_READ", "", "y"), "VARIABLE_READ 'y': SPIR-V has no VARIABLE_READ"),
        (_one("VARIABLE_WRITE", "x", ""), "VARIABLE_WRITE: SPIR-V has no VARIABLE_WRITE"),
        (_abs(DType.INT4), r"tensor 'x' is INT4\[2,3\]: SPIR-V has no tensors of INT4"),
        (_abs(DType.SHAPE, (2,)), r"tensor 'x' is SHAPE\[2\]: SPIR-V has no tensors of SHAPE"),
        (_abs(shape=()), r"tensor 'x' is FP32\[\]: SPIR-V has no tensors of rank 0"),
        (_abs(shape=(1,) * 33), r"1\]: SPIR-V has no tensors of rank 33"),
        (_abs(shape=(2, 0)), r"FP32\[2,0\]: SPIR-V has no dimension of 0"),
        (_abs(shape=(2, 1 << 32)), r"SPIR-V has no dimension of 4294967296"),
        (_abs(shape=(2, -2)), r"SPIR-V has no dimension of -2"),
        (_abs(shape=(DYNAMIC, 3)), r"FP32\[\?,3\]: SPIR-V has no tensors with some open dimen"),
        (dataclasses.replace(_abs(), outputs=()), "graph 'main': SPIR-V has no graph without out"),
        (dataclasses.replace(_abs(), subgraphs={"s": _abs()}), "SPIR-V has no graph with subgraph"),
        (dataclasses.replace(_abs(), name="a\0b"), "a zero byte, which no text of SPIR-V has"),
        (dataclasses.replace(_abs(), name="x" * (1 << 18)), "EntryPointARM of 65541 words, of whi"),
        (_long_concat(65_530), "OpExtInst of 65536 words, of which SPIR-V has 65535"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_refused(graph, message):
    with pytest.raises(UnsupportedError, match=message):
        spirv.to_bytes(graph)


@pytest.mark.parametrize(
    ("op", "argument"),
    [
        (operator.name, argument.name)
        for operator in spec.OPERATORS.values()
        for argument in operator.inputs
        if argument.constant_in and operator.since == V1_0
    ],
)
def test_operands_that_have_to_be_constant(op, argument):
    operator = spec.OPERATORS[op]
    names = [a.name for a in operator.inputs]
    tensors = {
        a.name: Tensor(a.name, DType.INT32, (1,), None if a.name == argument else np.array([1]))
        for a in (*operator.inputs, *operator.outputs)
    }
    attributes = {a.name: _any(a) for a in operator.attributes}
    made = [Node("CONST", (), (name,)) for name in names if name != argument]
    nodes = (*made, Node(op, tuple(names), tuple(a.name for a in operator.outputs), attributes))
    graph = Graph((argument,), tuple(a.name for a in operator.outputs), tensors, nodes)
    where = (
        f"{op} '{operator.outputs[0].name}': {argument} is '{argument}', which is not a constant"
    )
    with pytest.raises(UnsupportedError, match=f"{where}: SPIR-V has no EXT-DYNAMIC"):
        spirv.to_bytes(graph)


def _any(argument: spec.Argument) -> Any:
    if argument.form is spec.Form.LIST:
        return (1, 1)
    if argument.dtype in (bool, int):
        return 1
    return DType.INT32 if argument.dtype is spec.AccType else 1


def test_shape_as_output():
    b = Builder()
    y = b.op("RESHAPE", b.input("x", DType.FP32, (2,)), b.const_shape([2, 1], name="s"))
    graph = dataclasses.replace(b.graph([y]), outputs=(y.name, "s"))
    with pytest.raises(UnsupportedError, match=r"'s' is SHAPE.2.: SPIR-V has no tensors of SHAPE"):
        spirv.to_bytes(graph)


def test_defaults_are_written():
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in "xy"}
    graph = Graph(("x",), ("y",), tensors, (Node("MAXIMUM", ("x", "x"), ("y",)),))
    (node,) = spirv.read(*spirv.to_bytes(graph)).nodes
    assert node.attributes == {"nan_mode": spec.NanMode.PROPAGATE}


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_shapes_have_int32(number):
    b = Builder()
    x = b.input("x", DType.FP32, (2,))
    y = b.op("RESHAPE", x, b.const_shape([2, 1]))
    graph = b.graph([y])
    shape = next(t for t in graph.tensors.values() if t.dtype is DType.SHAPE)
    other = dataclasses.replace(shape, values=np.array([number, 1]))
    graph = dataclasses.replace(graph, tensors={**graph.tensors, shape.name: other})
    with pytest.raises(UnsupportedError, match=r"RESHAPE .*: shape: .* do not fit INT32"):
        spirv.to_bytes(graph)


def test_later_version_is_refused(monkeypatch):
    later = dataclasses.replace(spec.OPERATORS["ABS"], since=V1_1)
    monkeypatch.setitem(spec.OPERATORS, "ABS", later)
    wanted = r"ABS 'y' needs TOSA 1\.1: the instruction set TOSA\.001000\.1 has TOSA 1\.0"
    for write in (spirv.to_bytes, vgf.to_bytes):
        with pytest.raises(UnsupportedError, match=wanted):
            write(_abs())


# Graphs that are not well formed.


def _without(name: str) -> Graph:
    graph = _abs()
    return dataclasses.replace(graph, tensors={n: t for n, t in graph.tensors.items() if n != name})


_LIST = Tensor("y", DType.INT8, (2,))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (_one("NOTHING", "x", "y"), "NOTHING 'y': 'NOTHING' is not an operator of TOSA 1.0"),
        (_without("y"), "ABS 'y': tensor 'y' is not declared"),
        (dataclasses.replace(_without("y"), nodes=()), "tensor 'y', of the graph's ends, is not"),
        (dataclasses.replace(_abs(), nodes=()), "nothing makes tensor 'y'"),
        (_one("ABS", "xz", "y"), r"ABS 'y': inputs and outputs are \(2, 1\), expected \(1, 1\)"),
        (_one("ABS", "x", "yz"), r"ABS 'y': inputs and outputs are \(1, 2\), expected \(1, 1\)"),
        (_one("CONCAT", "", "y", axis=0), r"CONCAT 'y': inputs and outputs are \(0, 1\)"),
        (_one("IDENTITY", "xz", "y"), "IDENTITY 'y': expected one input and one output"),
        (_one("CONST", "", "y"), r"constant 'y' is INT8\[3\], and has no values"),
        (_one("REDUCE_SUM", "x", "y"), "REDUCE_SUM 'y': attribute axis is missing"),
        (_one("REDUCE_SUM", "x", "y", axis="a"), "REDUCE_SUM 'y': axis cannot be 'a'"),
        (_one("REDUCE_SUM", "x", "y", axis=1 << 31), "axis cannot be 2147483648"),
        (_one("REDUCE_MAX", "x", "y", axis=0, nan_mode=7), "nan_mode cannot be 7"),
        (_one("TRANSPOSE", "x", "y", perms=3), "perms cannot be 3"),
        (_one("CLAMP", "x", "y", min_val=-129, max_val=1), "min_val cannot be -129"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_not_well_formed(graph, message):
    with pytest.raises(ValueError, match=message):
        spirv.to_bytes(graph)


def test_values_of_another_shape():
    tensor = Tensor("y", DType.INT8, (3,), np.zeros(2))
    graph = Graph((), ("y",), {"y": tensor}, (Node("CONST", (), ("y",)),))
    with pytest.raises(ValueError, match=r"constant 'y' is INT8\[3\], and has values of \(2,\)"):
        spirv.to_bytes(graph)


def test_identity_of_another_type():
    graph = _one("IDENTITY", "x", "y")
    graph = dataclasses.replace(graph, tensors={**graph.tensors, "y": _LIST})
    with pytest.raises(ValueError, match=r"IDENTITY 'y': INT8\[3\] becomes INT8\[2\]"):
        spirv.to_bytes(graph)


def test_cycle():
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in "xy"}
    nodes = Node("ABS", ("y",), ("x",)), Node("ABS", ("x",), ("y",))
    with pytest.raises(TosaError, match="depends on itself"):
        spirv.to_bytes(Graph((), ("y",), tensors, nodes))
