"""Forms that modules may have and ours do not: hand-made, one for each."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from spirv_assembler import assemble
from spirv_modules import HEAD, module, plain

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Node
from tosajax.io import spirv
from tosajax.report import FormatError, UnsupportedError


def _read(text: str, constants: dict[int, Any] | None = None, **form: Any) -> Graph:
    return spirv.read(assemble(text, **form), constants)


def _only(graph: Graph) -> Node:
    """The only node but constants."""
    (node,) = (n for n in graph.nodes if n.op not in spec.CONSTANT_OPERATORS)
    return node


def _elements(graph: Graph, name: str) -> np.ndarray:
    values = graph.tensors[name].values
    assert values is not None
    return values


def _second(graph: Graph) -> np.ndarray:
    """The elements of the constant that the only node takes second."""
    return _elements(graph, _only(graph).inputs[1])


def _added(declared: str) -> np.ndarray:
    """The elements of %k, which a node adds to the input."""
    graph = _read(module("%y = OpExtInst %t %tosa 14 %x %k", declared))
    assert (_only(graph).op, _only(graph).inputs[0]) == ("ADD", "input_0")
    assert _second(graph).dtype == np.float32
    return _second(graph)


def test_smallest():
    graph = _read(module())
    assert (graph.inputs, graph.name) == (("input_0",), "main")
    assert str(graph.tensors["input_0"]) == "FP32[2,3]"
    assert _only(graph) == Node("ABS", ("input_0",), graph.outputs)


@pytest.mark.parametrize("order", ["<", ">"])
def test_byte_order(order):
    names = 'OpName %x "ünö"'
    declared = "%c = OpConstant %f32 1.5f\n%k = OpConstantCompositeReplicateEXT %t %c"
    text = module("%y = OpExtInst %t %tosa 14 %x %k", declared, names=names)
    graph = _read(text, order=order)
    assert graph.inputs == ("ünö",)
    np.testing.assert_array_equal(_second(graph), np.full((2, 3), 1.5))


# Constants.

_NUMBERS = "%a = OpConstant %f32 1.5f\n%b = OpConstant %f32 -0.0f\n%c = OpConstant %f32 inff\n"


def test_nested_composite():
    rows = "%r = OpConstantComposite %row %a %b %c\n%q = OpConstantComposite %row %c %b %a\n"
    values = _added(_NUMBERS + rows + "%k = OpConstantComposite %t %r %q")
    wanted = np.array([[1.5, -0.0, np.inf], [np.inf, -0.0, 1.5]], np.float32)
    assert values.tobytes() == wanted.tobytes()


def test_null():
    np.testing.assert_array_equal(_added("%k = OpConstantNull %t"), np.zeros((2, 3)))


def test_null_of_a_scalar_and_of_a_list():
    declared = "%zero = OpConstantNull %i32\n%none = OpConstantNull %list2"
    graph = _read(module("%y = OpExtInst %t %tosa 48 %zero %x", declared))  # REDUCE_ALL
    assert _only(graph).attributes == {"axis": 0}


def test_replicated_scalar():
    values = _added(_NUMBERS + "%k = OpConstantCompositeReplicateEXT %t %a")
    np.testing.assert_array_equal(values, np.full((2, 3), 1.5))


def test_replicated_row():
    declared = "%r = OpConstantComposite %row %a %c %a\n%k = OpConstantCompositeReplicateEXT %t %r"
    np.testing.assert_array_equal(_added(_NUMBERS + declared), [[1.5, np.inf, 1.5]] * 2)


def test_chosen_constants_have_their_defaults():
    declared = (
        "%a = OpSpecConstant %f32 1.5f\n"
        "%r = OpSpecConstantComposite %row %a %a %a\n"
        "%k = OpSpecConstantCompositeReplicateEXT %t %r\n"
    )
    np.testing.assert_array_equal(_added(declared), np.full((2, 3), 1.5))


@pytest.mark.parametrize("kind", ["OpConstant", "OpSpecConstant"])
def test_booleans(kind):
    declared = f"%yes = {kind}True %bool\n%no = {kind}False %bool"
    text = "%s = OpExtInst %struct %tosa 5 %yes %no %x %x\n%y = OpCompositeExtract %t %s 1"
    graph = _read(module(text, declared + "\n%struct = OpTypeStruct %t %t"))
    assert _only(graph).attributes == {"inverse": True, "local_bound": False}
    assert graph.outputs == (_only(graph).outputs[1],)


def test_boolean_tensor():
    declared = (
        "%tb = OpTypeTensorARM %bool %1 %shape3\n%yes = OpConstantTrue %bool\n"
        "%no = OpConstantFalse %bool\n%k = OpConstantComposite %tb %yes %no %yes\n"
    )
    text = "%y = OpExtInst %tb %tosa 20 %x %k"  # LOGICAL_AND
    graph = _read(module(text, declared, input="%tb", output="%tb"))
    np.testing.assert_array_equal(_second(graph), [True, False, True])


_NARROW = {
    "%i8": (DType.INT8, {"0x80": -128, "0xFF": -1, "0x7F": 127, "0xFFFFFF80": -128}),
    "%i16": (DType.INT16, {"0x8000": -32768, "0xFFFF": -1, "0x7FFF": 32767}),
    "%i32": (DType.INT32, {"0x80000000": -(2**31), "-1": -1, "0x7FFFFFFF": 2**31 - 1}),
    "%f16": (DType.FP16, {"0x3E00": 1.5, "0xFC00": -np.inf, "0x0001": 2.0**-24}),
    "%bf16": (DType.BF16, {"0x3FC0": 1.5, "0xFF80": -np.inf}),
    "%e4m3": (DType.FP8E4M3, {"0x3C": 1.5, "0xFE": -448.0}),
    "%e5m2": (DType.FP8E5M2, {"0x3E": 1.5, "0xFC": -np.inf}),
}


@pytest.mark.parametrize("kind", _NARROW)
def test_narrow_numbers(kind):
    """CLAMP's bounds are numbers of the input's type, in the low bits of a word."""
    dtype, numbers = _NARROW[kind]
    others = "%bf16 = OpTypeFloat 16 0\n%e4m3 = OpTypeFloat 8 4214\n%e5m2 = OpTypeFloat 8 4215\n"
    for word, value in numbers.items():
        declared = f"{others}%n = OpTypeTensorARM {kind} %1 %shape3\n%a = OpConstant {kind} {word}"
        text = "%y = OpExtInst %n %tosa 10 %a %a %1 %x"
        graph = _read(module(text, declared, input="%n", output="%n"))
        found = _only(graph).attributes["min_val"]
        assert (type(found), float(found)) == (dtype.storage.type, value)
        assert graph.tensors[graph.inputs[0]].dtype is dtype


@pytest.mark.parametrize("number", [0, -1, 2**47 - 1, -(2**47)])
def test_int48(number):
    low, high = number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF
    declared = (
        f"%l = OpTypeTensorARM %i64 %1 %shape1\n%a = OpConstant %i64 {low} {high}\n"
        "%k = OpConstantComposite %l %a\n"
    )
    graph = _read(module("%y = OpExtInst %l %tosa 14 %x %k", declared, input="%l", output="%l"))
    assert graph.tensors[_only(graph).inputs[1]].dtype is DType.INT48
    np.testing.assert_array_equal(_second(graph), [number])


@pytest.mark.parametrize("number", [2**47, -(2**47) - 1, 2**63 - 1])
def test_more_bits_than_an_int48_has(number):
    low, high = number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF
    with pytest.raises(FormatError, match=r"OpConstant at word \d+: .* do not fit INT48"):
        _read(module(declared=f"%a = OpConstant %i64 {low} {high}"))


def test_signed_integers():
    """TOSA's integers have no sign in their type; the bits are the same."""
    declared = "%s8 = OpTypeInt 8 1\n%n = OpTypeTensorARM %s8 %1 %shape3"
    graph = _read(module("%y = OpExtInst %n %tosa 31 %x", declared, input="%n", output="%n"))
    assert str(graph.input_tensors[0]) == "INT8[3]"


# Constants outside.

_OUTSIDE = "%k = OpGraphConstantARM %t 7"


def _outside(constants: dict[int, Any] | None, declared: str = _OUTSIDE, kind: str = "%t") -> Graph:
    text = f"%y = OpExtInst {kind} %tosa 14 %x %k"
    return _read(module(text, declared, input=kind, output=kind), constants)


def test_outside():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = _outside({7: values, 8: np.zeros(1)})
    np.testing.assert_array_equal(_second(graph), values)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        (None, "has no data: pass `constants`, or have their file beside"),
        ({6: np.zeros((2, 3), np.float32)}, "has no data"),
        ({7: np.zeros((2, 3), np.float64)}, "has data of type float64, expected float32"),
        ({7: np.zeros((2, 3), np.int32)}, "has data of type int32, expected float32"),
        ({7: np.zeros((3, 2), np.float32)}, r"has data of shape \(3, 2\)"),
        ({7: np.zeros(6, np.float32)}, r"has data of shape \(6,\)"),
    ],
)
def test_data_outside_that_does_not_fit(constants, message):
    with pytest.raises(
        FormatError, match=rf"ADD %\d+: input2: graph constant 7, FP32\[2,3\], {message}"
    ):
        _outside(constants)


def test_int48_outside():
    declared = "%l = OpTypeTensorARM %i64 %1 %shape2\n%k = OpGraphConstantARM %l 7"
    values = np.array([-(2**47), 2**47 - 1], np.int64)
    graph = _outside({7: values}, declared, "%l")
    np.testing.assert_array_equal(_second(graph), values)
    with pytest.raises(FormatError, match=r"does not fit: .* do not fit INT48"):
        _outside({7: values - 1}, declared, "%l")


@pytest.mark.parametrize("width", ["16 0", "8 4214", "8 4215"])
def test_narrow_floats_outside_may_be_their_bits(width):
    """As NumPy saves them."""
    kind = f"%n = OpTypeFloat {width}\n%l = OpTypeTensorARM %n %1 %shape2"
    bits = np.array([0x3C, 0x42], f"u{int(width.split()[0]) // 8}")
    for data in (bits, bits.view(f"V{bits.itemsize}")):
        graph = _outside({7: data}, kind + "\n%k = OpGraphConstantARM %l 7", "%l")
        np.testing.assert_array_equal(_second(graph).view(bits.dtype), bits)


def test_other_floats_are_not_the_bits_of_narrow_ones():
    declared = "%n = OpTypeFloat 8 4215\n%l = OpTypeTensorARM %n %1 %shape2"
    e4m3, e5m2 = (np.ones(2, kind) for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
    outside = declared + "\n%k = OpGraphConstantARM %l 7"
    np.testing.assert_array_equal(_second(_outside({7: e5m2}, outside, "%l")), e5m2)
    with pytest.raises(FormatError, match="type float8_e4m3fn, expected float8_e5m2"):
        _outside({7: e4m3}, outside, "%l")


def test_other_integers_are_not_the_bits_of_floats():
    declared = (
        "%n = OpTypeFloat 16 0\n%l = OpTypeTensorARM %n %1 %shape2\n%k = OpGraphConstantARM %l 7"
    )
    for data in (np.zeros(2, np.int16), np.zeros(2, np.uint8), np.zeros(2, np.float16)):
        with pytest.raises(FormatError, match=f"data of type {data.dtype}, expected bfloat16"):
            _outside({7: data}, declared, "%l")


def test_outside_that_is_not_used_needs_no_data():
    assert _only(_read(module(declared=_OUTSIDE))).op == "ABS"


# One constant in several places.


def test_list_that_is_shape_attribute_and_tensor():
    declared = (
        "%s12 = OpConstantComposite %array2 %1 %2\n%column = OpTypeTensorARM %i32 %2 %s12\n"
        "%k = OpConstantComposite %list2 %1 %2\n"
    )
    text = (
        "%sum = OpExtInst %list2 %tosa 14 %x %k\n"  # ADD
        "%y = OpExtInst %column %tosa 56 %sum %k"  # RESHAPE
    )
    names = 'OpName %k "k"'
    graph = _read(module(text, declared, input="%list2", output="%column", names=names))
    kinds = {n.op: n.outputs[0] for n in graph.nodes if n.op in spec.CONSTANT_OPERATORS}
    assert kinds == {"CONST": "k", "CONST_SHAPE": "k_1"}
    assert graph.tensors["k_1"].dtype is DType.SHAPE
    np.testing.assert_array_equal(_elements(graph, "k_1"), [1, 2])


# Shapes.


def test_tensor_of_which_the_rank_is_known():
    declared = "%open = OpTypeTensorARM %f32 %3"
    graph = _read(
        module("%y = OpExtInst %open %tosa 31 %x", declared, input="%open", output="%open")
    )
    assert [t.shape for t in graph.tensors.values()] == [(DYNAMIC,) * 3] * 2


def test_tensor_of_any_rank():
    declared = "%any = OpTypeTensorARM %f32"
    graph = _read(module("%y = OpExtInst %any %tosa 31 %x", declared, input="%any", output="%any"))
    assert [t.shape for t in graph.tensors.values()] == [None] * 2


def test_constants_as_outputs_and_inputs_as_outputs():
    text = module("", "%k = OpConstantNull %t").replace("%y %0", "%k %0")
    graph = _read(text)
    np.testing.assert_array_equal(_elements(graph, graph.outputs[0]), np.zeros((2, 3)))
    assert _read(module("").replace("%y %0", "%x %0")).outputs == ("input_0",)


# Names and locations.


def test_names():
    names = "\n".join(
        f'OpName %{id} "{name}"'
        for id, name in {"x": "in", "y": "out", "x_variable": "other", "k": "in"}.items()
    )
    text = module("%y = OpExtInst %t %tosa 14 %x %k", "%k = OpConstantNull %t", names=names)
    graph = _read(text)
    assert (graph.inputs, graph.outputs) == (("in",), ("out",))
    assert _only(graph).inputs == ("in", "in_1")


def test_names_of_variables():
    names = 'OpName %x_variable "from"\nOpName %y_variable "to"\nOpMemberName %t 0 "no"'
    graph = _read(module(names=names))
    assert (graph.inputs, graph.outputs) == (("from",), ("to",))


def test_lines():
    names = '%file = OpString "model.py"'
    text = (
        "OpLine %file 12 3\n%a = OpExtInst %t %tosa 31 %x\n"
        "%b = OpExtInst %t %tosa 31 %a\nOpNoLine\n%y = OpExtInst %t %tosa 31 %b"
    )
    graph = _read(module(text, names=names))
    assert [n.location for n in graph.nodes] == ["model.py:12:3", "model.py:12:3", None]


def test_lines_before_a_graph_are_not_of_its_nodes():
    text = module(names='%file = OpString "f"').replace("%graph = ", "OpLine %file 1 2\n%graph = ")
    assert _only(_read(text)).location is None


def test_lines_end_with_their_graph():
    text = module("OpLine %file 1 2\n%y = OpExtInst %t %tosa 31 %x", names='%file = OpString "f"')
    text = plain(text.replace('"main"', '"first"') + _second_graph("main"))
    assert _only(_read(text)).location is None


def test_debug_operations():
    head = HEAD.replace("%tosa", '%debug = OpExtInstImport "NonSemantic.Graph.DebugInfo.1"\n%tosa')
    names = '%name = OpString "main"\n%place = OpString "layer 1"'
    tail = (
        "%g = OpExtInst %void %debug 1 %graph %name\n"
        "%o = OpExtInst %void %debug 2 %g %place %y\n%p = OpExtInst %void %debug 3 %x %name"
    )
    graph = _read(module(declared="%void = OpTypeVoid", head=head, names=names, tail=tail))
    assert _only(graph).location == "layer 1"


def test_remarks_change_nothing():
    head = (
        HEAD.replace("OpMemoryModel", '%own = OpExtInstImport "NonSemantic.Own"\nOpMemoryModel')
        + 'OpSource 0 100\nOpModuleProcessed "by a test"\n'
    )
    body = "OpNop\n%r = OpExtInst %void %own 99 %x\n%y = OpExtInst %t %tosa 31 %x"
    graph = _read(module(body, "%void = OpTypeVoid", head=head))
    assert _only(graph).op == "ABS"
    assert _only(graph).location is None


# Several graphs.


def _second_graph(name: str) -> str:
    return (
        f'\nOpGraphEntryPointARM %other "{name}" %x_variable %y_variable\n'
        "%other = OpGraphARM %graph_type\n%ox = OpGraphInputARM %t %0\n"
        "%oy = OpExtInst %t %tosa 33 %ox\nOpGraphSetOutputARM %oy %0\nOpGraphEndARM\n"
    )


def _two(first: str, second: str) -> bytes:
    text = module().replace('"main"', f'"{first}"')
    return assemble(plain(text + _second_graph(second)))


def test_the_graph_asked_for():
    data = _two("first", "second")
    assert _only(spirv.read(data, graph="first")).op == "ABS"
    found = spirv.read(data, graph="second")
    assert (_only(found).op, found.name) == ("CEIL", "second")
    wanted = r"graphs 'first', 'second', expected one, .* function= .*--function"
    with pytest.raises(UnsupportedError, match=wanted):
        spirv.read(data)
    with pytest.raises(ValueError, match="no graph 'third', but 'first', 'second'") as found:
        spirv.read(data, graph="third")
    assert type(found.value) is ValueError


def test_main_among_others():
    assert _only(spirv.read(_two("first", "main"))).op == "CEIL"


# Versions and producers.


@pytest.mark.parametrize(
    ("version", "generator", "wanted"),
    [
        (0x00010600, 0, ("1.6, TOSA.001000.1", "")),
        (0x00010500, 22 << 16 | 24, ("1.5, TOSA.001000.1", "LLVM MLIR SPIR-V Serializer 24")),
        (0x00010000, 7 << 16, ("1.0, TOSA.001000.1", "SPIR-V Tools Assembler 0")),
        (0x00010600, 0xABC << 16 | 1, ("1.6, TOSA.001000.1", "tool 0x0abc 1")),
    ],
)
def test_source(version, generator, wanted):
    source = _read(module(), version=version, generator=generator).source
    assert (source.format, source.version, source.producer) == ("SPIR-V", *wanted)
