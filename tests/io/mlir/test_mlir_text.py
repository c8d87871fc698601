"""Reading MLIR text: all forms of the dialect of TOSA 1.0, its operations, types and attributes."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest

from tosajax import DType, compile, spec
from tosajax.graph import Graph, Quantization
from tosajax.graph.alike import difference
from tosajax.io import mlir, schema
from tosajax.report import FormatError, UnsupportedError

pytest.importorskip("xdsl")

_DICTIONARIES = "attribute dictionaries"
_SAMPLES = {
    "allops": _DICTIONARIES,
    "allops.generic": "generic form",
    "allops.strictprops_llvm24oct": "strict properties",
    "conv_f32.tosa": _DICTIONARIES,
    "conv_f32.generic": "generic form",
    "conv_f32.strictprops": "strict properties",
    "conv_int8.tosa": _DICTIONARIES,
    "conv_int8.generic": "generic form",
    "conv_int8.strictprops": "strict properties",
    "extra": _DICTIONARIES,
    "extra.generic": "generic form",
    "extra.pretty": _DICTIONARIES,
    "extra.strictprops": "strict properties",
    "fp32_convnet": _DICTIONARIES,
    "fp32_convnet.generic": "generic form",
    "fp32_convnet.pretty": _DICTIONARIES,
    "fp32_convnet.strictprops": "strict properties",
    "int8_convnet": _DICTIONARIES,
    "int8_convnet.generic": "generic form",
    "int8_convnet.pretty": _DICTIONARIES,
    "int8_convnet.strictprops": "strict properties",
    "types": _DICTIONARIES,
    "types.generic": "generic form",
}


def _read(body: str, ends: str = "%a: !t", results: str = "") -> Graph:
    """The graph of a function; !t is tensor<2xf32>."""
    arrow = f" -> {results}" if results else ""
    end = "" if "return" in body else "return"
    return mlir.read_text(
        f"!t = tensor<2xf32>\nfunc.func @main({ends}){arrow} {{\n{body}\n{end}\n}}"
    )


def _unary(operation: str, element: str, result: str | None = None) -> Graph:
    kinds = f"(tensor<4x{element}>) -> tensor<4x{result or element}>"
    return _read(f"%r = tosa.{operation} %a : {kinds}", f"%a: tensor<4x{element}>")


# Samples.


@pytest.mark.parametrize("name", sorted({stem.partition(".")[0] for stem in _SAMPLES}))
def test_all_spellings_are_one_graph(name, sample):
    stems = [stem for stem in _SAMPLES if stem.partition(".")[0] == name]
    first, *others = (mlir.read_text(sample(f"{stem}.mlir")) for stem in stems)
    assert first.nodes
    assert others
    for other in others:
        assert difference(first, other) is None


@pytest.mark.parametrize("stem", _SAMPLES)
def test_source_names_the_form(stem, sample):
    source = mlir.read_text(sample(f"{stem}.mlir")).source
    assert (source.format, source.producer) == ("MLIR text", "")
    assert source.version == f"TOSA 1.0 dialect, {_SAMPLES[stem]}"


def test_forms_of_control_flow_are_one_graph(sample, tosa_opt):
    graph = mlir.read_text(sample("cf.mlir"))
    printed = tosa_opt(sample("cf.mlir").decode(), "--mlir-print-op-generic")
    assert difference(graph, mlir.read_text(printed)) is None
    assert graph.source.version == "TOSA 1.0 dialect, custom form"


def _array(name: str, sample) -> np.ndarray:
    return np.load(io.BytesIO(sample(f"{name}.npy")))


@pytest.mark.parametrize(
    ("stem", "outputs"),
    [
        ("int8_convnet", ("out_int8", "ref_int8")),
        ("conv_int8.tosa", ("out_conv_int8", "ref_conv_int8")),
    ],
)
def test_outputs_of_integers(stem, outputs, sample):
    (found,) = compile(mlir.read_text(sample(f"{stem}.mlir")))(_array("in_i8", sample))
    for name in outputs:
        np.testing.assert_array_equal(found, _array(name, sample))


def test_outputs_of_floats(sample):
    (found,) = compile(mlir.read_text(sample("fp32_convnet.mlir")))(_array("in_f32", sample))
    for name in ("out_fp32", "ref_fp32"):
        assert np.abs(np.asarray(found) - _array(name, sample)).max() <= 2.0**-22


def test_every_element_type(sample):
    graph = mlir.read_text(sample("types.mlir"))
    wanted = {
        "i48": (DType.INT48, [140737488355327, -140737488355328]),
        "i48s": (DType.INT48, [-5, -5]),
        "i4": (DType.INT4, [1, -7, 3]),
        "i4s": (DType.INT4, [-3, -3, -3]),
        "i1": (DType.BOOL, [True, False, True, True, False, True, False, False, True]),
        "i16": (DType.INT16, [1, -2]),
        "f16": (DType.FP16, [1.5, -2.0]),
        "bf16": (DType.BF16, [1.5, -2.0]),
        "f8a": (DType.FP8E4M3, [1.5, -2.0]),
        "f8b": (DType.FP8E5M2, [1.5, -2.0]),
        "hex": (DType.FP32, [1.0, -2.0]),
        "res": (DType.FP32, [1.0, -2.0]),
        "res8": (DType.INT8, [1, -1, 127, -128]),
        "s": (DType.SHAPE, [1, 2, -1, 4]),
        "s0": (DType.SHAPE, []),
        "sc": (DType.FP32, 3.0),
    }
    for name, (dtype, values) in wanted.items():
        tensor = graph.tensors[name]
        assert tensor.dtype is dtype
        assert tensor.values is not None
        assert tensor.values.tolist() == values
    nan = graph.tensors["fnan"].values
    assert nan is not None
    assert nan.view(np.uint32).tolist() == [0x7FC00000, 0xFF800000]
    # Nothing reads the constant of i64, which TOSA 1.0 does not have.
    assert "i64" not in graph.tensors
    assert [str(r) for r in graph.source.rewrites] == [
        "constant 'i64': left out, as nothing reads it, and tensor<2xi64> is not a type of TOSA 1.0"
    ]


# Types.


def test_open_dimensions_and_ranks():
    graph = _read(
        "%r = tosa.abs %a : (tensor<?x3x?xf32>) -> tensor<*xf32>", "%a: tensor<?x3x?xf32>"
    )
    assert graph.tensors["a"].shape == (-1, 3, -1)
    assert graph.tensors["r"].shape is None


@pytest.mark.parametrize(
    ("element", "why"),
    {
        "i64": "is INT64 of TOSA 1.1",
        "f6E2M3FN": "is FP6E2M3 of TOSA 1.1",
        "f6E3M2FN": "is FP6E3M2 of TOSA 1.1",
        "f4E2M1FN": "is FP4E2M1 of TOSA 1.1",
        "f8E8M0FNU": "is FP8UE8M0 of TOSA 1.1",
        "f64": "is not a type of TOSA",
        "i7": "is not a type of TOSA",
        "f8E4M3": "is not a type of TOSA",
        "index": "is not a type of TOSA",
        "complex<f32>": "is not a type of TOSA",
    }.items(),
)
def test_types_that_tosa_does_not_have(element, why):
    with pytest.raises(UnsupportedError, match=f"tensor 'a': element type {element} {why}"):
        _unary("abs", element)


@pytest.mark.parametrize(
    ("kind", "message"),
    {
        "tensor<2xf32, #x.y>": "has an encoding",
        "tensor<2x!foo.bar>": "element type !foo.bar",
        "vector<2xf32>": "vector<2xf32> is not a tensor",
        "f32": "type f32 is not a tensor",
        "memref<2xf32>": "is not a tensor",
        "!tosa.block_scaled<tensor<2xf32>>": "of TOSA 1.1",
    }.items(),
)
def test_types_that_are_not_tensors(kind, message):
    with pytest.raises(UnsupportedError, match=message):
        _read(f"%r = tosa.abs %a : ({kind}) -> {kind}", f"%a: {kind}")


def test_dimensions_beyond_64_bits():
    assert _unary("abs", f"{2**63 - 1}xf32").tensors["a"].shape == (4, 2**63 - 1)
    for size in (2**63, 10**30):
        with pytest.raises(FormatError, match="has a dimension beyond 64 bits"):
            _unary("abs", f"{size}xf32")


def test_more_dimensions_than_arrays_have():
    assert _unary("abs", "1x" * 63 + "f32").tensors["a"].shape == (4, *[1] * 63)
    with pytest.raises(UnsupportedError, match="line 2: a type has more than 64 dimensions"):
        _unary("abs", "1x" * 64 + "f32")


def test_signed_types_are_signless():
    graph = _unary("identity", "si8")
    assert graph.tensors["r"].dtype is DType.INT8
    notes = ["tensor 'a': si8 is INT8", "tensor 'r': si8 is INT8"]
    assert [str(r) for r in graph.source.rewrites] == notes


_FOUR = "{0.1:1,0.2,0.3:-3,0.4}"


@pytest.mark.parametrize(
    ("stated", "dtype", "wanted"),
    [
        ("i8:f32, 0.1:3", DType.INT8, Quantization((0.1,), (3,))),
        ("i8:f32, 5.000000e-01", DType.INT8, Quantization((0.5,))),
        ("i8<-128:127>:f32, 2.0", DType.INT8, Quantization((2.0,))),
        ("i8<-127:127>:f32, 2.0", DType.INT8, Quantization((2.0,), bounds=(-127, 127))),
        ("i16:f32, 1.0e-3", DType.INT16, Quantization((1e-3,))),
        ("u8:f32, 0.5:128", DType.INT8, Quantization((0.5,), (128,))),
        ("u8<0:255>:f32, 0.5", DType.INT8, Quantization((0.5,))),
        (f"i8:f32:0, {_FOUR}", DType.INT8, Quantization((0.1, 0.2, 0.3, 0.4), (1, 0, -3, 0), (0,))),
        ("i8:f32:{0:1}, {1.0,2.0,3.0,4.0}", DType.INT8, Quantization((1, 2, 3, 4), axes=(0,))),
        ("i8:f32:{0:2}, {0.1,0.2}", DType.INT8, None),  # by blocks of two
        ("i8:f32, -1.0", DType.INT8, None),
        ("i8:f32:0, 0.1", DType.INT8, None),
        ("i8:f32, {0.1,0.2}", DType.INT8, None),
    ],
)
def test_quantized_types(stated, dtype, wanted):
    graph = _unary("identity", f"!quant.uniform<{stated}>")
    assert graph.tensors["a"].dtype is dtype
    assert graph.quantization.get("a") == graph.quantization.get("r") == wanted
    kept = "is in Graph.quantization" if wanted else "is left out"
    assert kept in graph.source.rewrites[0].done


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("i8:f32, 0.1", "i8:f32, 1.000000e-01"),
        ("i8:f32, 0.1", "i8:f32,0.1:0"),
        ("i8:f32, 0.1:-3", "i8<-128:127>:f32, 0.1:-3"),
        ("u8<0:255>:f32, 0.5", "u8 : f32, 0.50"),
        ("i8<-127:127>:f32, 2.0", "i8< -127 : 127 >:f32, 2.0:0"),
        ("i8:f32:0, {0.1:1,0.2}", "i8:f32:{0:1}, {1.0E-1:1, 0.2:0}"),
    ],
)
def test_a_quantized_type_of_two_spellings(one, other):
    """The operation and its operand state one type in two ways."""
    first, second = (f"tensor<2x!quant.uniform<{text}>>" for text in (one, other))
    graph = mlir.read_text(
        f"""!q = !quant.uniform<{other}>
        func.func @main(%a: {first}) -> {second} {{
          %r = tosa.identity %a : ({second}) -> tensor<2x!q>
          %s = tosa.identity %r : ({first}) -> {first}
          return %s : {second}
        }}"""
    )
    assert graph.quantization["a"] == graph.quantization["r"] == graph.quantization["s"]


def test_other_scales_are_another_type():
    kinds = [f"tensor<2x!quant.uniform<i8:f32, {scale}>>" for scale in ("0.1", "0.1:1", "0.2")]
    for kind in kinds[1:]:
        with pytest.raises(FormatError, match="operand is used with type"):
            _read(f"%r = tosa.identity %a : ({kind}) -> {kind}", f"%a: {kinds[0]}")


def test_other_quantized_types():
    assert _unary("identity", "!quant.any<i8:f32>").tensors["r"].dtype is DType.INT8
    assert _unary("abs", "!quant.calibrated<f32<-0.5:1.5>>").tensors["r"].dtype is DType.FP32
    with pytest.raises(UnsupportedError, match=r"!quant\.uniform<foo>"):
        _unary("identity", "!quant.uniform<foo>")
    with pytest.raises(FormatError, match="x is not a list of scales"):
        _unary("identity", "!quant.uniform<i8:f32, x>")


@pytest.mark.parametrize(
    ("numbers", "stated", "result"),
    [
        ("1, -2", "i8", "!quant.uniform<i8:f32, 0.1>"),
        ("1, 254", "ui8", "ui8"),
        ("1, -2", "i8", "!quant.uniform<u8:f32, 0.1>"),
        ("1, -2", "si8", "i8"),
    ],
)
def test_constants_of_quantized_and_unsigned_types(numbers, stated, result):
    values = f"dense<[{numbers}]> : tensor<2x{stated}>"
    graph = _read(f'%c = "tosa.const"() <{{values = {values}}}> : () -> tensor<2x{result}>')
    found = graph.tensors["c"].values
    assert found is not None
    assert found.tolist() == [1, -2]


# Unsigned integers: of the same bits where that does not matter.


def _constant(name: str, number: str, kind: str) -> str:
    return f'%{name} = "tosa.const"() <{{values = dense<{number}> : {kind}}}> : () -> {kind}'


def _rescale(element: str, result: str, flags: str) -> Graph:
    x, y = f"tensor<1x{element}>", f"tensor<1x{result}>"
    return _read(
        f"""{_constant("m", "1073741824", "tensor<1xi32>")}
        {_constant("s", "30", "tensor<1xi8>")}
        {_constant("x", "0", x)}
        {_constant("y", "0", y)}
        %r = tosa.rescale %a, %m, %s, %x, %y
          {{scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, {flags}}}
          : (tensor<4x{element}>, tensor<1xi32>, tensor<1xi8>, {x}, {y}) -> tensor<4x{result}>
        return %r : tensor<4x{result}>""",
        f"%a: tensor<4x{element}>",
    )


def test_unsigned_integers_of_rescale():
    graph = _rescale("ui8", "i8", "input_unsigned = true, output_unsigned = false")
    assert graph.nodes[-1].attributes["input_unsigned"] is True
    (found,) = compile(graph)(np.array([0, 127, -128, -1], np.int8))
    assert np.asarray(found).tolist() == [0, 127, 127, 127]
    for ends in (("ui8", "i8"), ("i16", "ui8")):
        with pytest.raises(UnsupportedError, match=r"ui8>, and \w+put_unsigned is not true"):
            _rescale(*ends, "input_unsigned = false, output_unsigned = false")


def test_unsigned_integers_that_operators_compute_with():
    for operation, result in (("abs", "ui8"), ("cast", "i32"), ("cast", "f32")):
        with pytest.raises(
            UnsupportedError, match=f"tosa.{operation} %r: a tensor is tensor<4xui8>, which only"
        ):
            _unary(operation, "ui8", result)
    moved = "%r = tosa.reverse %a {axis = 0 : i32} : (tensor<4xui8>) -> tensor<4xui8>"
    assert _read(moved, "%a: tensor<4xui8>").nodes[0].op == "REVERSE"


def test_cast_of_tosa_1_1():
    kinds = "(tensor<4xi8>) -> tensor<4xi32>"
    plain = _read(f"%r = tosa.cast %a input_unsigned(false) : {kinds}", "%a: tensor<4xi8>")
    assert dict(plain.nodes[0].attributes) == {}
    with pytest.raises(UnsupportedError, match=r"tosa\.cast %r: input_unsigned is true"):
        _read(f"%r = tosa.cast %a input_unsigned(true) : {kinds}", "%a: tensor<4xi8>")


# Operations.


@pytest.mark.parametrize("op", [*schema.DRAFT_OPERATORS, "ARGMIN"])
def test_operations_of_tosa_1_1(op):
    name = f"tosa.{op.lower()}"
    for text in (f'"{name}"(%a) : (!t) -> !t', f"{name} %a : !t"):
        with pytest.raises(UnsupportedError, match=f"operation {name} is of TOSA 1.1"):
            _read(f"%r = {text}")


_MX = "tensor<4x32x!tosa.block_scaled<ORDER>>"
_ORDERS = (
    "f4E2M1FN:f8E8M0FNU:BLOCK_SHAPE_32",
    "#tosa.block_shape<BLOCK_SHAPE_32>:f8E8M0FNU:f4E2M1FN",
    "!tosa.mxint8:f8E8M0FNU:BLOCK_SHAPE_32",
)
_TO_BLOCKS = "(tensor<4x32xf32>) -> (tensor<4x32xf8E5M2>, tensor<4x1xf32>)"
_SHAPE = '%s = "tosa.const_shape"() {values = dense<1> : tensor<2xindex>} : () -> !tosa.shape<2>\n'
# Each with what the error names.
_DRAFT = [
    *(
        (f"%r:2 = tosa.cast_to_block_scaled %a {attributes} : {_TO_BLOCKS}", "cast_to_block_scaled")
        for attributes in (
            "{block_size = BLOCK_SIZE_32}",
            "{block_size = BLOCK_SIZE_1, stochastic_round = false}",
            "{block_size = #tosa.block_size<BLOCK_SIZE_32>}",
            "{block_size = #tosa.block_size<BLOCK_SIZE_32> : i32, stochastic_round = true}",
            "block_size<BLOCK_SIZE_32> stochastic_round(false)",
            "block_size(BLOCK_SIZE_32)",
        )
    ),
    (
        '%r:2 = "tosa.cast_to_block_scaled"(%a) <{block_size = #tosa.block_size<BLOCK_SIZE_32> : '
        f"i32}}> : {_TO_BLOCKS}",
        "cast_to_block_scaled",
    ),
    (
        f"{_SHAPE}tosa.assert_equal_shape %s, %s {{allow_broadcast = true}} : "
        "(!tosa.shape<2>, !tosa.shape<2>) -> ()",
        "assert_equal_shape",
    ),
    (
        f"{_SHAPE}%r = tosa.max_pool2d_adaptive %a, %s, %s, %s {{nan_mode = IGNORE}} : "
        "(tensor<4x32xf32>, !tosa.shape<2>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<4x32xf32>",
        "max_pool2d_adaptive",
    ),
    *(
        (f"%r = tosa.cast %a : (tensor<4x32xf32>) -> {_MX.replace('ORDER', order)}", order)
        for order in _ORDERS
    ),
    *(
        (
            f'%r = "tosa.const"() {{values = dense<{values}>}} : () -> tensor<2x!tosa.mxint8>\n'
            "%q = tosa.identity %r : (tensor<2x!tosa.mxint8>) -> tensor<2x!tosa.mxint8>",
            "!tosa.mxint8",
        )
        for values in (
            '["0x00", "0x7F"]> : tensor<2x!tosa.mxint8',
            '"0x007F"> : tensor<2x!tosa.mxint8',
            "tensor<2x!tosa.mxint8> : [1 : i8, 2 : i8]",
        )
    ),
    *(
        (
            f"""%r = "tosa.const"() <{{values = dense<{_MX.replace("ORDER", order + ", {1.0}")} :
              0.0 : f4E2M1FN>}}> : () -> {_MX.replace("ORDER", order)}
            %q = tosa.identity %r : ({_MX.replace("ORDER", order)}) -> tensor<4x32xf32>""",
            order,
        )
        for order in _ORDERS
    ),
    (
        '%r = "tosa.const"() {values = dense<0.0> : tensor<4xf6E3M2FN>} : () -> tensor<4xf6E3M2FN>'
        "\n%q = tosa.identity %r : (tensor<4xf6E3M2FN>) -> tensor<4xf6E3M2FN>",
        "element type f6E3M2FN is FP6E3M2",
    ),
]


@pytest.mark.parametrize(("text", "named"), _DRAFT)
def test_what_tosa_1_1_has_is_refused_by_name(text, named):
    with pytest.raises(UnsupportedError, match=re.escape(named)) as caught:
        _read(text, "%a: tensor<4x32xf32>")
    assert "of TOSA 1.1, expected one of" in str(caught.value)


def test_a_constant_that_begins_with_its_type():
    text = "dense<tensor<2xi8> : [1 : i8, 2 : i8]>}> : () -> tensor<2xi8>"
    with pytest.raises(UnsupportedError, match=r"dense<tensor<2xi8> : \[1 : i8, 2 : i8\]> begins"):
        _read(f'%r = "tosa.const"() <{{values = {text}')
    for end in ("tensor<2xi8", 'tensor<2xi8> : "', "tensor<2xi8> // >"):
        with pytest.raises(FormatError, match="line 3: "):
            _read(f'%r = "tosa.const"() <{{values = dense<{end}\n}}')


def test_words_of_enumerations():
    """By itself, with its name, and with the integer type that LLVM ignores."""
    kind = "tensor<4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>"
    flags = "scale32 = true, per_channel = false, input_unsigned = false, output_unsigned = false"
    for word in ("DOUBLE_ROUND", "#tosa.rounding_mode<DOUBLE_ROUND>"):
        for more in ("", " : i32"):
            if more and word == "DOUBLE_ROUND":
                continue
            graph = _read(
                f"""%r = tosa.rescale %a, %m, %z, %z, %z {{rounding_mode = {word}{more}, {flags}}}
                  : ({kind}) -> tensor<4xi8>""",
                "%a: tensor<4xi8>, %m: tensor<1xi32>, %z: tensor<1xi8>",
            )
            mode = graph.nodes[0].attributes["rounding_mode"]
            assert mode is spec.RoundingMode.DOUBLE_ROUND
    with pytest.raises(FormatError, match="nan_mode: UNHEARD_OF is unknown, expected one of PROP"):
        _read("%r = tosa.maximum %a, %a {nan_mode = UNHEARD_OF} : !t")
    with pytest.raises(FormatError, match="axis: IGNORE is not of type int"):
        _read("%r = tosa.reduce_sum %a {axis = IGNORE} : !t")


def test_every_operator_has_the_name_of_its_operation():
    """Those of the specification, in lower case: so the dialect calls them."""
    names = """abs add argmax arithmetic_right_shift avg_pool2d bitwise_and bitwise_not bitwise_or
    bitwise_xor cast ceil clamp clz concat cond_if const const_shape conv2d conv3d cos custom
    depthwise_conv2d equal erf exp fft2d floor gather greater greater_equal identity intdiv log
    logical_and logical_left_shift logical_not logical_or logical_right_shift logical_xor matmul
    max_pool2d maximum minimum mul negate pad pow reciprocal reduce_all reduce_any reduce_max
    reduce_min reduce_product reduce_sum rescale reshape resize reverse rfft2d rsqrt scatter select
    sigmoid sin slice sub table tanh tile transpose transpose_conv2d variable variable_read
    variable_write while_loop matmul_t"""
    assert {name.upper() for name in names.split()} == {*spec.OPERATORS}


@pytest.mark.parametrize(
    "constant",
    [
        "arith.constant dense<[1.5, -2.0]> : !t",
        'arith.constant {place = "a"} dense<[1.5, -2.0]> : !t',
        '"arith.constant"() <{value = dense<[1.5, -2.0]> : !t}> : () -> !t',
        '"arith.constant"() {value = dense<"0x0000C03F000000C0"> : !t} : () -> !t',
    ],
)
def test_constant_tensors_of_another_dialect(constant):
    """As torch-mlir leaves them."""
    graph = _read(
        f"%c = {constant}\n%r = tosa.add %a, %c : (!t, !t) -> !t\nreturn %r : !t", results="!t"
    )
    assert [node.op for node in graph.nodes] == ["CONST", "ADD"]
    assert graph.tensors["c"].values.tolist() == [1.5, -2]
    assert [rewrite.done for rewrite in graph.source.rewrites] == ["CONST of arith.constant"]


def test_constants_of_another_dialect_that_are_no_tensors():
    for text in ("arith.constant 1 : index", "arith.constant true", "arith.constant 1.5 : f32"):
        with pytest.raises(UnsupportedError, match=r"arith\.constant is not of the TOSA dialect"):
            _read(f"%c = {text}")
    with pytest.raises(FormatError, match="the constant has no values"):
        _read('%c = "arith.constant"() : () -> !t\n%r = tosa.add %a, %c : (!t, !t) -> !t')


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("arith.addf", '"arith.addf"(%a, %a) : (!t, !t) -> !t'),
        ("arith.addf", "arith.addf %a, %a : !t"),
        ("func.call", '"func.call"(%a) <{callee = @f}> : (!t) -> !t'),
        ("func.call", "func.call @f(%a) : (!t) -> !t"),
    ],
)
def test_operations_of_other_dialects(name, text):
    with pytest.raises(UnsupportedError, match=f"operation {name} is not of the TOSA dialect"):
        _read(f"%r = {text}")


def test_what_a_converter_leaves_of_other_dialects():
    """The first one with its place, before types that it alone has; all are counted."""
    text = """%41 = "tfl.no_value"() {value} : () -> none loc("model/block_3/add")
      %42 = "tfl.custom"(%a, %41) : (!t, none) -> !t
      %43 = tosa.abs %42 : (!t) -> !t
      %44 = "tfl.custom"(%43, %41) : (!t, none) -> !t"""
    with pytest.raises(UnsupportedError) as caught:
        _read(text)
    assert str(caught.value) == (
        "tfl.no_value %41: operation tfl.no_value, at model/block_3/add, is not of the TOSA "
        "dialect: the converter has no TOSA for it: change or cut this part of the TFLite model "
        "(2 more: 2 tfl.custom)"
    )
    with pytest.raises(UnsupportedError, match=r"line 4: operation tfl\.add is .*: the converter"):
        _read("%b = tosa.abs %a : !t\n%c = tfl.add %a, %b : !t")


def test_what_is_in_regions_of_other_dialects_is_not_listed():
    inner = '"x.yield"() : () -> ()'
    text = f'"scf.if"(%a) ({{ {inner} }}) : (!t) -> ()\n"x.y"() : () -> ()'
    with pytest.raises(UnsupportedError, match=r"operation scf\.if is .* \(1 more: 1 x\.y\)"):
        _read(text)
    condition = f'"tosa.cond_if"(%a) ({{ {inner} }}, {{ {inner} }}) : (!t) -> ()'
    with pytest.raises(UnsupportedError, match=r"operation x\.yield is .*1 more: 1 x\.yield"):
        _read(condition)


_BROKEN = """
"tosa.frobnicate"(%a) : (!t) -> !t | operation tosa.frobnicate is unknown
tosa.frobnicate %a : !t | operation tosa.frobnicate is unknown
"tosa.reduce.sum"(%a) : (!t) -> !t | operation tosa.reduce.sum is unknown
frobnicate %a : !t | line 3: the operation is unknown
tosa.clamp %a {min_val = 0.0 : f32} : !t | max_val: it is missing
tosa.clamp %a {min_val = 0.0 : f16, max_val = 1.0 : f32} : !t | min_val: 0.0 : f16 is not a number
tosa.clamp %a {min_val = 0 : i8, max_val = 1.0 : f32} : !t | min_val: 0 is not a number of f32
tosa.clamp %a {min_val = -0x1 : f32, max_val = 1.0 : f32} : !t | '-0x1' is not a number of f32
tosa.maximum %a, %a {nan_mode = 3 : i32} : !t | nan_mode: 3 is not a word
tosa.maximum %a, %a {nan_mode = "NO"} : !t | nan_mode: 'NO' is unknown, expected one of PROPAGATE
tosa.reduce_sum %a {axis = 0.0 : f32} : !t | axis: 0.0 : f32 is not of type int
tosa.reduce_sum %a {axis = true} : !t | axis: True is not of type int
tosa.rfft2d %a {local_bound = 1 : i32} : !t | local_bound: 1 is not of type bool
tosa.transpose %a {perms = 0 : i32} : !t | perms: 0 is not a list of integers
tosa.transpose %a {perms = array<f32: 1.0>} : !t | array<'f32: 1.0'> is not a list of integers
tosa.conv2d %a, %a, %a, %a, %a {pad = [], stride = [], dilation = [], acc_type = 1 : i8} : !t | acc
tosa.custom %a {operator_name = 1 : i8, domain_name = ""} : !t | operator_name: 1 is not of type str
"tosa.const"() : () -> !t | the constant has no values
"tosa.const"(%a) <{values = dense<0.0> : !t}> : (!t) -> !t | one result and no operands
"tosa.const"() <{values = dense<0.0> : tensor<3xf32>}> : () -> !t | another type than its result
"tosa.const"() <{values = dense<0.0> : tensor<2xf16>}> : () -> !t | another type than its result
"tosa.const"() <{values = dense<0> : tensor<2xi32>}> : () -> !tosa.shape<2> | another type than its
"tosa.const"() <{values = dense<0.0> : tensor<?xf32>}> : () -> tensor<?xf32> | tensor of known shape
"tosa.const"() <{values = array<i8: 1>}> : () -> tensor<1xi8> | the constant is array<...>
"tosa.const"() <{values = dense_resource<x> : !t}> : () -> !t | there is no resource 'x'
"tosa.cond_if"(%a) ({ "tosa.yield"() : () -> () }) : (!t) -> !t | 1 regions, expected 2
"tosa.cond_if"(%a) ({ }, { }) : (!t) -> !t | does not end with the values
"tosa.variable_read"() <{name = "no"}> : () -> !t | variable 'no' is not declared
"tosa.abs"(%b) : (!t) -> !t | values used but not defined
"tosa.abs"(%a) : (tensor<3xf32>) -> !t | operand is used with type
"""


@pytest.mark.parametrize(
    ("text", "message"), [line.split(" | ") for line in _BROKEN.strip().splitlines()]
)
def test_broken_operations(text, message):
    with pytest.raises(FormatError) as caught:
        _read(f"%r = {text}")
    assert message in str(caught.value)


def test_unknown_attributes():
    for name in ("axes", "quantization"):
        with pytest.raises(UnsupportedError, match=f"tosa.abs %r: attribute '{name}' is unknown"):
            _read(f"%r = tosa.abs %a {{{name} = 1 : i32}} : (!t) -> !t")
    foreign = '%r = "tosa.abs"(%a) {torch.x = "y"} : (!t) -> !t'
    assert dict(_read(foreign).nodes[0].attributes) == {}


def test_attributes_of_the_converter_to_vgf():
    more = "spirv_graph_constant_id = 3 : i32, graph_partition_id = 0 : i32"
    text = f"""%c = "tosa.const"() {{{more}, values = dense<1.0> : !t}} : () -> !t
      %r = tosa.add %a, %c {{{more}, graph_partition_leaf_node = true}} : (!t, !t) -> !t"""
    graph = _read(text)
    assert [dict(node.attributes) for node in graph.nodes] == [{}, {}]
    assert graph.source.rewrites == ()


def test_attributes_in_the_dictionary_of_the_generic_form():
    """Before properties, the generic form had all attributes there."""
    text = '%r = "tosa.reduce_sum"(%a) {axis = 0 : i32} : (!t) -> tensor<1xf32>'
    assert _read(text).nodes[0].attributes["axis"] == 0


def test_one_type_for_all():
    assert _read("%r = tosa.add %a, %a : !t").tensors["r"].shape == (2,)


def test_bounds_of_clamp_keep_their_bits():
    bounds = "min_val = 0xFF800000 : f32, max_val = 0x7FA00001 : f32"
    attributes = _read(f"%r = tosa.clamp %a {{{bounds}}} : !t").nodes[0].attributes
    bits = [np.asarray(attributes[n]).view(np.uint32).item() for n in ("min_val", "max_val")]
    assert bits == [0xFF800000, 0x7FA00001]
    assert attributes["nan_mode"] is spec.NanMode.PROPAGATE


def test_data_of_custom_operators_is_octets():
    names = 'operator_name = "\\C3\\BC", domain_name = "d"'
    text = f'"tosa.custom"(%a) <{{{names}, implementation_attrs = "\\00\\FFü\\22"}}> : (!t) -> !t'
    attributes = _read(f"%r = {text}").nodes[0].attributes
    assert attributes["operator_name"] == "ü"
    assert attributes["implementation_attrs"] == b'\0\xff\xc3\xbc"'


# tosa.apply_scale, which is of the dialect alone.


def _scaled(multiplier: str, shift: str, element: str = "i32") -> Graph:
    kinds = f"(tensor<2x2x{element}>, tensor<2x2xi32>, tensor<2x2xi8>) -> tensor<2x2x{element}>"
    return _read(
        f"""{_constant("m", multiplier, "tensor<2x2xi32>")}
        {_constant("s", shift, "tensor<2x2xi8>")}
        %r = tosa.apply_scale %a, %m, %s {{rounding_mode = DOUBLE_ROUND}} : {kinds}
        return %r : tensor<2x2x{element}>""",
        f"%a: tensor<2x2x{element}>",
    )


def test_apply_scale_is_rescale():
    x = np.array([[5, -5], [2**31 - 1, -(2**31)]], np.int32)
    one = _scaled("1073741824", "31")
    assert one.nodes[-1].op == "RESCALE"
    assert one.nodes[-1].attributes["rounding_mode"] is spec.RoundingMode.DOUBLE_ROUND
    note = "RESCALE 'r': RESCALE of the multiplier and the shift of apply_scale"
    assert note == str(one.source.rewrites[0])
    np.testing.assert_array_equal(compile(one)(x)[0], (x.astype(np.int64) + 1) >> 1)
    each = _scaled("[[1073741824, 1610612736], [1073741824, 1610612736]]", "[[30, 31], [30, 31]]")
    assert each.nodes[-1].attributes["per_channel"] is True
    assert each.tensors[each.nodes[-1].inputs[1]].shape == (2,)
    wanted = np.stack([x[:, 0], (3 * x[:, 1].astype(np.int64) + 2) >> 2], 1)
    np.testing.assert_array_equal(compile(each)(x)[0], wanted)


def test_apply_scale_that_tosa_cannot_express():
    with pytest.raises(UnsupportedError, match="%m scales each element by a number of its own"):
        _scaled("[[1, 2], [3, 4]]", "31")
    with pytest.raises(UnsupportedError, match="expected a tensor of i32"):
        _scaled("1073741824", "31", "i48")
    for kind, message in (
        ("tensor<2xi32>", "%m is not a constant"),
        ("i32", "it scales i32, and operators of TOSA compute with tensors"),
        ("vector<4xi32>", "it scales vector<4xi32>"),
    ):
        kinds = f"({kind}, {kind}, {kind.replace('32', '8')}) -> {kind}"
        with pytest.raises(UnsupportedError, match=f"tosa.apply_scale %r: {message}"):
            _read(
                f"%r = tosa.apply_scale %a, %m, %s {{rounding_mode = SINGLE_ROUND}} : {kinds}",
                f"%a: {kind}, %m: {kind}, %s: {kind.replace('32', '8')}",
            )
