"""The dialect before TOSA 1.0: how it is told, and what becomes of its operations."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest

from tosajax import DType, compile, spec, validate
from tosajax.graph import Graph
from tosajax.graph.alike import difference
from tosajax.io import mlir
from tosajax.report import FormatError, UnsupportedError

pytest.importorskip("xdsl")


def _read(body: str, ends: str = "%a: !t", results: str = "") -> Graph:
    """The graph of a function; !t is tensor<2x3xf32>, !i and !u of i8 and ui8."""
    arrow = f" -> {results}" if results else ""
    end = "" if "return" in body else "return"
    return mlir.read_text(
        f"""!t = tensor<2x3xf32>
        !i = tensor<2x3xi8>
        !u = tensor<2x3xui8>
        func.func @main({ends}){arrow} {{\n{body}\n{end}\n}}"""
    )


def _known(graph: Graph, argument: str) -> list:
    """The elements of a constant input of the one node that has it."""
    for node in graph.nodes:
        names = [a.name for a in spec.OPERATORS[node.op].inputs]
        if argument in names and node.op != "CONST":
            values = graph.tensors[node.inputs[names.index(argument)]].values
            assert values is not None
            return values.tolist()
    raise AssertionError(argument)


# Samples.


def test_both_forms_are_one_graph(sample):
    pretty, generic = (
        mlir.read_text(sample(f"pre10_dialect_llvm19{form}.mlir")) for form in ("", ".generic")
    )
    assert difference(pretty, generic) is None
    assert pretty.source.version == "pre-1.0 dialect, attribute dictionaries"
    assert generic.source.version == "pre-1.0 dialect, generic form"
    rewrites = [str(r) for r in pretty.source.rewrites]
    assert "FULLY_CONNECTED '4': RESHAPE, CONV2D of 1x1, RESHAPE" in rewrites


@pytest.mark.parametrize("stem", ["pre10_dialect_llvm19", "pre10_upgraded_to_1_0"])
def test_outputs(stem, sample):
    """Those of IREE of the time, and of the graph upgraded by hand."""
    graph = mlir.read_text(sample(f"{stem}.mlir"))
    assert validate(graph).errors == ()
    given, wanted = (
        [np.load(io.BytesIO(sample(f"{name}.npy"))) for name in names]
        for names in (("in_i8", "in_f48"), ("up1", "up2"))
    )
    integers, floats = compile(graph)(*given)
    np.testing.assert_array_equal(integers, wanted[0])
    assert np.abs(np.asarray(floats) - wanted[1]).max() <= 2.0**-20


# How the dialect is told.

_OLD = """
tosa.int_div %i, %i : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
tosa.reduce_prod %a {axis = 0 : i32} : (!t) -> tensor<1x3xf32>
tosa.reshape %a {new_shape = array<i64: 3, 2>} : (!t) -> tensor<3x2xf32>
tosa.slice %a {start = array<i64: 0, 1>, size = array<i64: 1, 1>} : (!t) -> tensor<1x1xf32>
tosa.tile %a {multiples = array<i64: 1, 2>} : (!t) -> tensor<2x6xf32>
tosa.mul %a, %a {shift = 0 : i8} : (!t, !t) -> !t
tosa.negate %a : (!t) -> !t
tosa.matmul %m, %m : (tensor<1x2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
tosa.clamp %a {min_int = 0 : i64, max_int = 0 : i64, min_fp = 0.0 : f32, max_fp = 1.0 : f32} : !t
tosa.transpose %a, %p : (!t, tensor<2xi32>) -> tensor<3x2xf32>
tosa.pad %a, %q : (!t, tensor<2x2xi32>) -> tensor<2x4xf32>
"tosa.const"() <{value = dense<0.5> : !t}> : () -> !t
"""


@pytest.mark.parametrize("text", _OLD.strip().splitlines())
def test_what_only_the_old_dialect_has(text):
    kinds = "tensor<2xi32>", "tensor<2x2xi32>"
    graph = _read(
        f"""%p = "tosa.const"() <{{values = dense<[1, 0]> : {kinds[0]}}}> : () -> {kinds[0]}
        %q = "tosa.const"() <{{values = dense<[[0, 0], [1, 0]]> : {kinds[1]}}}> : () -> {kinds[1]}
        %r = {text}""",
        "%a: !t, %i: tensor<2xi32>, %m: tensor<1x2x2xf32>",
    )
    assert graph.source.version.startswith("pre-1.0 dialect")
    assert validate(graph).errors == ()


@pytest.mark.parametrize(
    "text",
    [
        "tosa.add %a, %a : !t",
        "tosa.transpose %a {perms = array<i32: 1, 0>} : (!t) -> tensor<3x2xf32>",
        "tosa.rfft2d %c : (tensor<1x4x8xf32>) -> (tensor<1x4x5xf32>, tensor<1x4x5xf32>)",
        '"tosa.const"() <{values = dense<0.5> : !t}> : () -> !t',
        "tosa.concat %a {axis = 0 : i32} : (!t) -> !t",
    ],
)
def test_what_both_dialects_have_is_of_1_0(text):
    name = "%r:2" if "rfft2d" in text else "%r"
    graph = _read(f"{name} = {text}", "%a: !t, %c: tensor<1x4x8xf32>")
    assert graph.source.version.startswith("TOSA 1.0 dialect")


# Attributes of the old dialect on operations of 1.0: LLVM keeps, and ignores, them.

_TYPES = {
    "x": "tensor<1x2x2x1xi8>",
    "v": "tensor<4xi8>",
    "z": "tensor<1xi8>",
    "m": "tensor<1xi32>",
    "s": "!tosa.shape<1>",
    "y": "tensor<1x2x2x1xi32>",
}
_ZERO_POINTS = "quantization_info = #tosa.unary_quant<input_zp = 5, output_zp = 5>"
_STRIDE = "stride = array<i64: 1, 1>"
_PAD = "array<i64: 0, 0, 0, 0>"
# Name, operands and result by the names of their types, attributes of 1.0, and those left over.
_LEFT_OVER = [
    (
        *("transpose_conv2d", "xxmzz", "y", f"out_pad = {_PAD}, {_STRIDE}, acc_type = i32"),
        ["out_shape = array<i64: 1, 9, 9, 1>"],
    ),
    (
        *("rescale", "xmzzz", "x"),
        "scale32 = true, rounding_mode = #tosa.rounding_mode<SINGLE_ROUND>, per_channel = false, "
        "input_unsigned = false, output_unsigned = false",
        [
            *("input_zp = 5 : i32", "output_zp = 5 : i32", "multiplier = array<i32: 3>"),
            *("shift = array<i8: 9>", "double_round = true"),
        ],
    ),
    (
        *("avg_pool2d", "xzz", "x"),
        f"kernel = array<i64: 1, 1>, {_STRIDE}, pad = {_PAD}, acc_type = i32",
        [_ZERO_POINTS],
    ),
    ("negate", "xzz", "x", "", [_ZERO_POINTS]),
    ("mul", "xxz", "y", "", ["shift = 5 : i8"]),
    ("reshape", "xs", "v", "", ["new_shape = array<i64: 2, 2>"]),
    ("slice", "vss", "v", "", ["start = array<i64: 5>", "size = array<i64: 5>"]),
    ("tile", "vs", "v", "", ["multiples = array<i64: 5>"]),
    (
        *("clamp", "x", "x", "min_val = -1 : i8, max_val = 1 : i8"),
        ["min_int = -9 : i64", "max_int = 9 : i64", "min_fp = -9.0 : f32", "max_fp = 9.0 : f32"],
    ),
    ("const", "", "v", "values = dense<3> : tensor<4xi8>", ["value = dense<5> : tensor<4xi8>"]),
    (
        *("custom", "x", "x"),
        'operator_name = "a", domain_name = "b", implementation_attrs = "c"',
        ['identifier = "d"', 'config = "d"'],
    ),
]


def _operation(name: str, operands: str, result: str, attributes: str) -> str:
    inputs = ", ".join(f"%{name}" for name in operands)
    kinds = ", ".join(_TYPES[name] for name in operands)
    return f'"tosa.{name}"({inputs}) {{{attributes}}} : ({kinds}) -> {_TYPES[result]}'


def _with_clamp(text: str) -> Graph:
    """The graph of an operation, and one that only the dialect of 1.0 has."""
    arguments = ", ".join(f"%{n}: {t}" for n, t in _TYPES.items() if n != "s")
    return _read(
        f"""%s = "tosa.const_shape"() {{values = dense<4> : tensor<1xindex>}} : () -> !tosa.shape<1>
        %r = {text}
        %q = tosa.clamp %v {{min_val = 0 : i8, max_val = 6 : i8}} : {_TYPES["v"]}""",
        arguments,
    )


@pytest.mark.parametrize(
    ("name", "operands", "result", "attributes", "more"),
    [(*case, more) for *case, left in _LEFT_OVER for more in left],
)
def test_attributes_left_over_on_operations_of_1_0(name, operands, result, attributes, more):
    plain = _with_clamp(_operation(name, operands, result, attributes))
    both = f"{attributes}, {more}" if attributes else more
    found = _with_clamp(_operation(name, operands, result, both))
    assert found.source.version.startswith("TOSA 1.0 dialect")
    assert difference(found, plain) is None
    assert plain.source.rewrites == ()
    note = f"left out, as of the dialect before TOSA 1.0: {more.partition(' ')[0]}"
    assert [r.done for r in found.source.rewrites] == [note]


def test_an_attribute_of_another_operation_is_not_left_over():
    for more in ("out_shape = array<i64: 1>", "multiplier = array<i32: 3>"):
        with pytest.raises(UnsupportedError, match=f"tosa.negate %r: attribute '{more[:9]}"):
            _with_clamp(_operation("negate", "xzz", "x", more))


_MIXED = {
    "tosa.negate %v : (tensor<4xi8>) -> tensor<4xi8>": "tosa.negate %r with 1 of 3 operands",
    "tosa.int_div %m, %m : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32>": "tosa.int_div %r",
    '"tosa.const"() {value = dense<5> : tensor<4xi8>} : () -> tensor<4xi8>': "tosa.const %r with v",
    "tosa.clamp %v {min_val = 0 : i8, max_int = 1 : i64} : tensor<4xi8>": "tosa.clamp %r with max_",
    "tosa.transpose %v, %m : (tensor<4xi8>, tensor<1xi32>) -> tensor<4xi8>": "transpose %r without",
}


@pytest.mark.parametrize(("text", "sign"), _MIXED.items())
def test_operations_of_two_dialects_are_both_named(text, sign):
    with pytest.raises(UnsupportedError, match="operations of two dialects are mixed") as caught:
        _with_clamp(text)
    assert sign in str(caught.value)
    wanted = r"[12] of the dialect of TOSA 1\.0 \(tosa\.clamp %[qr] with min_val"
    assert re.search(wanted, str(caught.value))


@pytest.mark.parametrize(
    "text",
    [
        "tosa.intdiv %m, %m : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32>",
        "tosa.transpose %v {perms = array<i32: 0>} : (tensor<4xi8>) -> tensor<4xi8>",
        _operation("negate", "xzz", "x", ""),
        _operation("rescale", "xmzzz", "x", _LEFT_OVER[1][3]),
        "tosa.argmin %v {axis = 0 : i32} : (tensor<4xi8>) -> tensor<i32>",
    ],
)
def test_signs_of_1_0_beside_those_of_before(text):
    old = "%o = tosa.int_div %m, %m : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32>"
    with pytest.raises(
        UnsupportedError, match=r"1 of .* before TOSA 1\.0 \(tosa\.int_div %o\) and"
    ):
        _read(f"%r = {text}\n{old}", ", ".join(f"%{n}: {t}" for n, t in _TYPES.items()))


def test_other_functions_tell_the_dialect_of_one_without_signs():
    kind = "tensor<2xui8>"
    text = f"""func.func @main(%a: {kind}) -> {kind} {{ return %a : {kind} }}
      func.func @other(%b: tensor<2xi32>) {{
        %r = tosa.int_div %b, %b : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
        return }}"""
    assert mlir.read_text(text).source.version.startswith("pre-1.0 dialect")
    without = text.replace("tosa.int_div", "tosa.intdiv")
    assert mlir.read_text(without).source.version.startswith("TOSA 1.0 dialect")


# Operations.


def test_convolutions():
    window = "stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>"
    zero_points = "quantization_info = #tosa.conv_quant<input_zp = -3, weight_zp = 2>"
    x, w, b = "tensor<1x4x4x2xi8>", "tensor<3x1x1x2xi8>", "tensor<3xi32>"
    graph = _read(
        f"""%r = tosa.conv2d %x, %w, %b {{pad = array<i64: 0, 1, 2, 3>, {window}, {zero_points}}}
          : ({x}, {w}, {b}) -> tensor<1x5x9x3xi32>""",
        f"%x: {x}, %w: {w}, %b: {b}",
    )
    node = graph.nodes[-1]
    assert (node.op, node.attributes["pad"]) == ("CONV2D", (0, 1, 2, 3))
    assert node.attributes["acc_type"] is DType.INT32
    assert (_known(graph, "input_zp"), _known(graph, "weight_zp")) == ([-3], [2])
    kinds = "(tensor<1x4x4x2xf32>, tensor<3x1x1x2xf32>, tensor<3xf32>) -> tensor<1x4x4x3xf32>"
    graph = _read(
        f"""%r = tosa.transpose_conv2d %x, %w, %b {{out_pad = array<i64: 0, 0, 0, 0>,
          stride = array<i64: 1, 1>, out_shape = array<i64: 1, 4, 4, 3>, local_bound = true}}
          : {kinds}""",
        "%x: tensor<1x4x4x2xf32>, %w: tensor<3x1x1x2xf32>, %b: tensor<3xf32>",
    )
    assert graph.nodes[-1].attributes["local_bound"] is True


def test_the_dialect_between_the_versions():
    """Of early 2025: accumulators, but zero points are still attributes."""
    graph = _read(
        """%r = tosa.avg_pool2d %x {kernel = array<i64: 1, 1>, stride = array<i64: 1, 1>,
          pad = array<i64: 0, 0, 0, 0>, acc_type = i32,
          quantization_info = #tosa.unary_quant<input_zp = 1, output_zp = -2>}
          : (tensor<1x4x4x2xi8>) -> tensor<1x4x4x2xi8>
        %s = tosa.argmax %r {axis = 3 : i32, nan_mode = "IGNORE"}
          : (tensor<1x4x4x2xi8>) -> tensor<1x4x4xi32>
        %m = "tosa.const_shape"() <{value = dense<[1, 2]> : tensor<2xindex>}> : () -> !tosa.shape<2>
        %t = tosa.tile %a, %m : (!t, !tosa.shape<2>) -> tensor<2x6xf32>
        return %t : tensor<2x6xf32>""",
        "%x: tensor<1x4x4x2xi8>, %a: !t",
    )
    assert (_known(graph, "input_zp"), _known(graph, "output_zp")) == ([1], [-2])
    assert _known(graph, "multiples") == [1, 2]
    (argmax,) = (node for node in graph.nodes if node.op == "ARGMAX")
    assert argmax.attributes["nan_mode"] is spec.NanMode.IGNORE


def test_rescale():
    graph = _read(
        """%r = tosa.rescale %u {input_zp = 128 : i32, output_zp = -1 : i32,
          multiplier = array<i32: 1073741824>, shift = array<i8: 30>, scale32 = true,
          double_round = true, per_channel = false} : (!u) -> !i
        return %r : !i""",
        "%u: !u",
        "!i",
    )
    node = graph.nodes[-1]
    assert node.attributes["input_unsigned"] is True
    assert node.attributes["rounding_mode"] is spec.RoundingMode.DOUBLE_ROUND
    (found,) = compile(graph)(np.array([[0, 1, 127], [-128, -1, -2]], np.int8))
    assert np.asarray(found).tolist() == [[-128, -128, -2], [-1, 126, 125]]


def test_zero_points_that_pad_and_negate_rename():
    graph = _read(
        """%r = tosa.negate %i {quantization_info = #tosa.unary_quant<input_zp = 5, output_zp = 6>}
          : (!i) -> !i""",
        "%i: !i",
    )
    assert (_known(graph, "input1_zp"), _known(graph, "output_zp")) == ([5], [6])
    text = """%p = "tosa.const"() <{value = dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>}>
          : () -> tensor<2x2xi64>
        %k = "tosa.const"() <{value = dense<9> : tensor<i8>}> : () -> tensor<i8>
        %r = tosa.pad %i, OPERANDS -> tensor<2x4xi8>"""
    quantized = "{quantization_info = #tosa.pad_quant<input_zp = 7>}"
    two, three = "(!i, tensor<2x2xi64>)", "(!i, tensor<2x2xi64>, tensor<i8>)"
    for operands, wanted in (
        (f"%p : {two}", [0]),
        (f"%p {quantized} : {two}", [7]),
        (f"%p, %k : {three}", [9]),
        (f"%p, %k {quantized} : {three}", [9]),
    ):
        graph = _read(text.replace("OPERANDS", operands), "%i: !i")
        assert _known(graph, "pad_const") == wanted
        assert _known(graph, "padding") == [0, 0, 1, 0]


def test_tables_and_custom_operators():
    graph = _read(
        """%t = "tosa.const"() <{value = dense<5> : tensor<256xi8>}> : () -> tensor<256xi8>
        %r = tosa.table %i, %t : (!i, tensor<256xi8>) -> !i
        %c = "tosa.custom"(%r) <{identifier = "spin", config = "test",
          implementation_attrs = "\\00\\FF"}> : (!i) -> !i
        return %c : !i""",
        "%i: !i",
        "!i",
    )
    table, custom = graph.nodes[-2:]
    assert graph.tensors[table.inputs[1]].values is not None
    assert dict(custom.attributes) == {
        "operator_name": "spin",
        "domain_name": "test",
        "implementation_attrs": b"\0\xff",
    }


def test_bounds_of_clamp():
    bounds = "min_int = -5 : i64, max_int = 100 : i64, min_fp = -0.5 : f32, max_fp = 1.5 : f32"
    for kind, wanted in (("!i", (-5, 100)), ("!t", (-0.5, 1.5))):
        attributes = (
            _read(f"%r = tosa.clamp %x {{{bounds}}} : {kind}", f"%x: {kind}").nodes[0].attributes
        )
        assert (attributes["min_val"], attributes["max_val"]) == wanted


def test_resize():
    graph = _read(
        """%r = tosa.resize %x {scale = array<i64: 2, 1, 2, 1>, offset = array<i64: 0, 0>,
          border = array<i64: 0, 0>, mode = "NEAREST_NEIGHBOR"}
          : (tensor<1x4x4x2xi8>) -> tensor<1x7x7x2xi8>""",
        "%x: tensor<1x4x4x2xi8>",
    )
    assert graph.nodes[-1].attributes["mode"] is spec.ResizeMode.NEAREST_NEIGHBOR
    assert _known(graph, "scale") == [2, 1, 2, 1]


def test_variables():
    graph = mlir.read_text(
        """func.func @main(%a: tensor<2xi8>) -> tensor<2xi8> {
          tosa.variable @state = dense<[1, -2]> : tensor<2xi8>
          %v = tosa.variable.read @state : tensor<2xi8>
          tosa.variable.write @state, %a : tensor<2xi8>
          return %v : tensor<2xi8>
        }"""
    )
    assert [n.op for n in graph.nodes] == ["VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"]
    assert validate(graph).errors == ()
    stand_in = graph.tensors["variable_state"]
    assert stand_in.values is not None
    assert stand_in.values.tolist() == [1, -2]


def test_apply_scale():
    kind, shift = "tensor<2xi32>", "tensor<2xi8>"
    graph = _read(
        f"""%m = "tosa.const"() <{{value = dense<1073741824> : {kind}}}> : () -> {kind}
        %s = "tosa.const"() <{{value = dense<31> : {shift}}}> : () -> {shift}
        %r = tosa.apply_scale %x, %m, %s {{double_round = false}}
          : ({kind}, {kind}, {shift}) -> {kind}
        return %r : {kind}""",
        f"%x: {kind}",
        kind,
    )
    (found,) = compile(graph)(np.array([5, -5], np.int32))
    assert np.asarray(found).tolist() == [3, -2]


def test_scales_of_quantized_types_are_kept():
    kind = "tensor<2x3x!quant.uniform<i8:f32, 0.5:1>>"
    graph = _read(
        f"""%r = tosa.reshape %x {{new_shape = array<i64: 2, 3>}} : ({kind}) -> {kind}
        return %r : {kind}""",
        f"%x: {kind}",
        kind,
    )
    assert graph.quantization["x"].of_all == graph.quantization["r"].of_all == (0.5, 1)
    done = "!quant.uniform<i8:f32,0.5:1> is INT8, its scale is in Graph.quantization"
    for name in "x", "r":
        assert f"tensor {name!r}: {done}" in [str(r) for r in graph.source.rewrites]


def test_plain_types_are_no_change():
    graph = _read("%r = tosa.negate %a : !t\nreturn %r : !t", results="!t")
    assert not any("is FP32" in r.done for r in graph.source.rewrites)


# What is broken, or cannot be expressed.

_BROKEN = """
tosa.mul %a, %a {shift = 0 : i8, scale = 1 : i8} : !t | attribute 'scale' is unknown
tosa.negate %i {quantization_info = #tosa.unary_quant<zp>} : !i | zp is not a list of zero points
tosa.negate %i {quantization_info = 3 : i8} : !i | quantization_info: 3 is not a word
tosa.negate %i {quantization_info = #tosa.unary_quant<input_zp = 300>} : !i | values in [300, 300]
tosa.clamp %a {min_int = 0 : i64, max_int = 1 : i64, min_fp = 0.0 : f32} : !t | max_fp is missing
tosa.int_mod %a, %a {shift = 0 : i8} : !t | the operator is unknown
"""


@pytest.mark.parametrize(
    ("text", "message"), [line.split(" | ") for line in _BROKEN.strip().splitlines()]
)
def test_broken_operations(text, message):
    with pytest.raises(FormatError) as caught:
        _read(f"%r = {text}", "%a: !t, %i: !i")
    assert message in str(caught.value)


def test_operations_of_other_dialects():
    with pytest.raises(UnsupportedError, match=r"arith\.addf is not of the TOSA dialect"):
        _read('%n = tosa.negate %a : !t\n%r = "arith.addf"(%a, %a) : (!t, !t) -> !t')
    with pytest.raises(UnsupportedError, match="'p' is not a constant"):
        _read(
            "%r = tosa.transpose %a, %p : (!t, tensor<2xi32>) -> tensor<3x2xf32>",
            "%a: !t, %p: tensor<2xi32>",
        )
    with pytest.raises(UnsupportedError, match="ui32"):
        _read("%r = tosa.negate %u : tensor<2xui32>", "%u: tensor<2xui32>")
