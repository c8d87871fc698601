"""Functions, names, locations, regions and variables of MLIR text."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from limits import most_steps

from tosajax import DType, compile, validate
from tosajax.graph import Graph
from tosajax.io import mlir
from tosajax.io.mlir.locations import Location, Locations, quoted, unquoted, written
from tosajax.report import FormatError, UnsupportedError

pytest.importorskip("xdsl")

_F = "tensor<2xf32>"


def _read(body: str, ends: str = "%a: !t", results: str = "", head: str = "") -> Graph:
    """The graph of a function; !t is tensor<2xf32>."""
    arrow = f" -> {results}" if results else ""
    end = "" if "return" in body else "return"
    function = f"func.func @main({ends}){arrow} {{\n{body}\n{end}\n}}"
    return mlir.read_text(f"!t = tensor<2xf32>\nmodule {{\n{head}\n{function} }}")


# Functions.

_FUNCTIONS = f"""module {{
  func.func private @declared({_F}) -> {_F}
  func.func @first(%a: {_F}) -> {_F} {{ return %a : {_F} }}
  func.func @main(%b: {_F}) -> {_F} {{ return %b : {_F} }}
  module @inner {{ func.func @third(%c: {_F}) -> {_F} {{ return %c : {_F} }} }}
}}"""


def test_functions():
    assert mlir.read_text(_FUNCTIONS).inputs == ("b",)
    for name, given in (("first", "a"), ("main", "b"), ("third", "c")):
        graph = mlir.read_text(_FUNCTIONS, name)
        assert (graph.name, graph.inputs) == (name, (given,))
    with pytest.raises(
        ValueError, match="no function is named 'declared', but 'first', 'main', 'thi"
    ):
        mlir.read_text(_FUNCTIONS, "declared")


def test_one_of_several_functions_has_to_be_chosen():
    text = _FUNCTIONS.replace("@main", "@second")
    with pytest.raises(FormatError, match="'first', 'second', 'third', expected one, or") as caught:
        mlir.read_text(text)
    assert "choose one by function= in Python, --function" in str(caught.value)
    assert mlir.read_text(text, "second").name == "second"


_HELPERS = f"""module {{
  func.func private @private(%h: {_F}) -> {_F} {{ return %h : {_F} }}
  func.func @called(%c: {_F}) -> {_F} {{ return %c : {_F} }}
  func.func private @through(%t: {_F}) -> {_F} {{
    %r = "func.call"(%t) <{{callee = @called}}> : ({_F}) -> {_F}
    return %r : {_F}
  }}
  func.func @only(%o: {_F}) -> {_F} {{ return %o : {_F} }}
}}"""


def test_helpers_do_not_count():
    """Private functions, and those that others call; they are read where they are named."""
    assert mlir.read_text(_HELPERS).name == "only"
    for name, given in (("private", "h"), ("called", "c")):
        assert mlir.read_text(_HELPERS, name).inputs == (given,)
    text = _HELPERS.replace("@only", "@main").replace("@called(%c", "@public(%c")
    assert mlir.read_text(text).name == "main"
    with pytest.raises(FormatError, match="functions 'public', 'only', expected one"):
        mlir.read_text(_HELPERS.replace("@called(%c", "@public(%c"))


def test_a_module_of_helpers_alone():
    text = f"func.func private @a(%a: {_F}) -> {_F} {{ return %a : {_F} }}"
    assert mlir.read_text(text).name == "a"
    with pytest.raises(FormatError, match="functions 'a', 'b', expected one"):
        mlir.read_text(text + text.replace("@a", "@b"))


def test_functions_of_one_name():
    with pytest.raises(FormatError, match="the module has 2 functions 'f'"):
        mlir.read_text("func.func @f() { return }\n// -----\nfunc.func @f() { return }", "f")


@pytest.mark.parametrize("text", ["module {}", f"func.func private @f({_F})", ""])
def test_no_function(text):
    with pytest.raises(FormatError):
        mlir.read_text(text)


def test_the_only_function_may_have_any_name():
    graph = mlir.read_text('func.func @"a \\C3\\BC \\22b"() { return }')
    assert graph.name == 'a ü "b'
    assert mlir.read_text('func.func @"a \\C3\\BC \\22b"() { return }', 'a ü "b') == graph


def test_attributes_of_functions_and_modules_are_left_out():
    graph = mlir.read_text(
        f"""module attributes {{tfl.description = "x", dl = #dlti.spec<"a" = 3 : i32>}} {{
        func.func public @main(%a: {_F} {{tf.name = "in", ml.x}}) -> ({_F} {{tf.name = "out"}})
            attributes {{tf.entry_function = {{inputs = "x", outputs = "y"}}}} {{
          %0 = "tosa.abs"(%a) {{torch.debug = [1, "x"]}} : ({_F}) -> {_F}
          return %0 : {_F}
        }} }}"""
    )
    assert [node.op for node in graph.nodes] == ["ABS"]


def test_branches():
    with pytest.raises(UnsupportedError, match=r"func\.func: a region has 2 blocks"):
        _read('"cf.br"()[^bb1] : () -> ()\n^bb1:\nreturn')


def test_without_xdsl(monkeypatch):
    monkeypatch.setitem(sys.modules, "xdsl", None)
    with pytest.raises(ImportError, match=r"pip install 'tosajax\[mlir\]'"):
        mlir.read_text("module {}")


def test_text_of_bytes_with_a_mark():
    text = f"func.func @main(%ü: {_F}) {{ return }}".replace("ü", "u")
    assert mlir.read_text(b"\xef\xbb\xbf" + text.encode()).inputs == ("u",)
    with pytest.raises(FormatError, match="not UTF-8"):
        mlir.read_text(text.encode() + b"// \xff")


def test_errors_name_the_line():
    """Also behind what xDSL does not see."""
    kind = "tensor<3xi8>"
    text = f"""// a comment
    func.func @main() {{
      %c = "tosa.const"() <{{values = dense<[1,
        2,
        3]> : {kind}}}> : () -> {kind} loc(fused["a",
        "b"])
      %d = "tosa.abs"(%c) : nonsense
      return
    }}"""
    with pytest.raises(FormatError, match="line 7: "):
        mlir.read_text(text)
    with pytest.raises(FormatError, match="line 8: 'dense<' does not end"):
        mlir.read_text(text.replace("return", "return dense<[1"))


def test_long_errors_are_cut():
    with pytest.raises(UnsupportedError) as caught:
        _read(f"%r = tosa.abs %a {{{'b' * 10_000} = 1 : i8}} : (!t) -> !t")
    assert str(caught.value).startswith("tosa.abs %r: attribute 'bbb")
    assert str(caught.value).endswith("bbb...")
    assert len(str(caught.value)) < 1000


def test_comments_are_no_text():
    graph = _read(
        """// dense<"0x
        %0 = tosa.abs %a : (tensor<2xf32>) -> tensor<2xf32> // loc( { "
        return %0 : tensor<2xf32> // %0 = nothing""",
        results=_F,
    )
    assert graph.outputs == ("0",)


# Names.


def test_names_are_those_of_values():
    half = "tensor<1x4x5xf32>"
    graph = _read(
        f"""%conv1 = tosa.abs %arg_0 : !t
        %sum_0 = tosa.abs %conv1 : !t
        %sum_1 = tosa.abs %sum_0 : !t
        %7 = tosa.abs %sum_1 : !t
        %$a.b-c = tosa.abs %7 : !t
        %p:2 = "tosa.rfft2d"(%x) : (tensor<1x4x8xf32>) -> ({half}, {half})
        %q, %r = "tosa.rfft2d"(%x) : (tensor<1x4x8xf32>) -> ({half}, {half})
        return %$a.b-c, %p#1, %q : !t, {half}, {half}""",
        "%arg_0: !t, %x: tensor<1x4x8xf32>",
        f"(!t, {half}, {half})",
    )
    assert graph.inputs == ("arg_0", "x")
    names = [n for node in graph.nodes for n in node.outputs]
    assert names == ["conv1", "sum_0", "sum_1", "7", "$a.b-c", "p#0", "p#1", "q", "r"]
    assert graph.outputs == ("$a.b-c", "p#1", "q")


def test_results_without_a_name():
    graph = _read(
        f"""%const = "tosa.abs"(%a) : ({_F}) -> {_F}
        "tosa.const"() <{{values = dense<1> : tensor<1xi8>}}> : () -> tensor<1xi8>
        "tosa.const"() <{{values = dense<2> : tensor<1xi8>}}> : () -> tensor<1xi8>
        "tosa.abs"(%a) : ({_F}) -> {_F}
        return"""
    )
    names = [n for node in graph.nodes for n in node.outputs]
    assert names == ["const", "const_1", "const_2", "abs"]
    assert _read('"tosa.abs"(%a) : (tensor<2xf32>) -> tensor<2xf32>\nreturn').outputs == ()


def test_names_beside_made_ones():
    graph = _read(
        """%const_1 = tosa.abs %a : !t
        "tosa.const"() <{values = dense<1> : tensor<1xi8>}> : () -> tensor<1xi8>
        "tosa.const"() <{values = dense<1> : tensor<1xi8>}> : () -> tensor<1xi8>
        "tosa.const"() <{values = dense<1> : tensor<1xi8>}> : () -> tensor<1xi8>"""
    )
    names = [n for node in graph.nodes for n in node.outputs]
    assert names == ["const_1", "const", "const_2", "const_3"]


def test_many_equal_names_take_few_steps():
    line = '"tosa.const"() <{values = dense<1> : tensor<1xi8>}> : () -> tensor<1xi8>\n'
    with most_steps(3_000_000):
        graph = _read(line * 500 + "return")
    assert len(graph.tensors) == 501


# Locations.


@pytest.mark.parametrize(
    ("text", "wanted"),
    {
        "unknown": None,
        '"conv 1"': "conv 1",
        '"a.mlir":3:14': "a.mlir:3:14",
        '"a.mlir":3:14 to :20': "a.mlir:3:14 to :20",
        '"a.mlir":3:14 to 5:2': "a.mlir:3:14 to 5:2",
        '"conv"("f.py":1:2)': "conv(f.py:1:2)",
        '"conv"(unknown)': "conv",
        'callsite("f" at "g.py":1:2)': "f at g.py:1:2",
        'fused["a", "b", "a", unknown]': "a, b",
        'fused<"CSE">["a", fused["b", "c"]]': "a, b, c",
        "fused[unknown]": None,
        'fused<{x = "<>", y = [1]}>["a"]': "a",
        'fused<{x = loc("q"), y = dense<[1> : %t, z = "//"}>["a"]': "a",
        "#l": "file.mlir:7:8",
        'fused[#l, "x"]': "file.mlir:7:8, x",
        '"\\22q\\5C \\C3\\BC"': '"q\\ ü',
        '"ü"': "ü",
        ' fused < "x" > [ "a" ] ': "a",
    }.items(),
)
def test_locations(text, wanted):
    graph = mlir.read_text(
        f"""#l = loc(#later)
        !t = tensor<2xf32>
        func.func @main(%a: !t loc("argument")) {{
          %0 = tosa.abs %a : (!t) -> !t loc({text})
          %1 = "tosa.abs"(%a) : (!t) -> !t loc({text})
          return loc(unknown)
        }} loc("f")
        #later = loc("file.mlir":7:8)"""
    )
    assert [node.location for node in graph.nodes] == [wanted, wanted]
    assert graph.inputs == ("a",)


_BROKEN_LOCATIONS = """known | "a | "a":1 | "a":1:x | fused | fused[ | fused[unknown | fused["a" 1]
#none | #self | callsite(unknown) | "a"(unknown | unknown unknown | fused<["a" | "\\FF" | 17"""


@pytest.mark.parametrize("text", ["", *_BROKEN_LOCATIONS.replace("\n", " | ").split(" | ")])
def test_broken_locations(text):
    with pytest.raises(FormatError):
        mlir.read_text(
            f"""func.func @main(%a: tensor<2xf32>) {{
              %0 = tosa.abs %a : tensor<2xf32> loc({text})
              return
            }}
            #self = loc(fused[#self])"""
        )


def test_locations_that_refer_to_others_without_end():
    """Forty lines of text stand for a terabyte."""
    aliases = {f"#l{i + 1}": f'fused[#l{i}, "x"(#l{i})]' for i in range(40)} | {"#l0": '"abc"'}
    with pytest.raises(FormatError, match="more than 65536 characters"):
        Locations(aliases).read("#l40")


@pytest.mark.parametrize(
    "location",
    [
        Location(),
        Location("x"),
        Location(""),
        Location('a "b" \\ ü\n\0\x7f\x80\U0001f600'),
        Location(None, (("name", "x"), ("name", ""))),
        Location("p", (("graph", 'g"'),)),
    ],
)
def test_locations_that_we_write(location):
    text = written(location)
    read = Locations({}).read(text.removeprefix(" loc(").removesuffix(")") or None)
    kept = tuple(pair for pair in read.kept if pair[0] != "location")
    assert (read.text, kept) == location


@pytest.mark.parametrize(
    "kept", ['["tosajax", "name"]', '["other", "name", "x"]', '{name = "x"}', "7"]
)
def test_metadata_of_others_is_left_out(kept):
    assert Locations({}).read(f'fused<{kept}>["a"]') == Location("a")


def test_quoted_bytes():
    octets = bytes(range(256))
    assert quoted(octets)[1:-1].isascii()
    assert quoted("ü\x00") == '"ü\\00"'
    assert unquoted('"\\n\\t\\\\\\"\\41"') == '\n\t\\"A'
    with pytest.raises(ValueError):
        quoted("\ud800")


# Regions.


_CAPTURES = """
%one = "tosa.const"() <{values = dense<1> : !i}> : () -> !i
%limit = "tosa.const"() <{values = dense<5> : !i}> : () -> !i
%half = "tosa.const"() <{values = dense<0.5> : tensor<1xf32>}> : () -> tensor<1xf32>
%shift = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
%b = tosa.mul %a, %half, %shift : (!t, tensor<1xf32>, tensor<1xi8>) -> !t
%start = "tosa.const"() <{values = dense<0> : !i}> : () -> !i
%w:2 = tosa.while_loop (%i = %start, %x = %a) : (!i, !t) -> (!i, !t) {
  %g = tosa.greater %limit, %i : (!i, !i) -> tensor<i1>
  tosa.yield %g : tensor<i1>
} do {
^bb0(%i: !i, %x: !t):
  %n = tosa.add %i, %one : (!i, !i) -> !i
  %y = tosa.cond_if %c : tensor<i1> -> !t {
    %p = tosa.add %x, %b : (!t, !t) -> !t
    tosa.yield %p : !t
  } else {
    %q = tosa.mul %x, %half, %shift : (!t, tensor<1xf32>, tensor<1xi8>) -> !t
    tosa.yield %q : !t
  }
  tosa.yield %n, %y : !i, !t
}
return %w#1 : !t"""


def test_values_that_regions_use_from_outside():
    """They become inputs, and a loop hands them on; constants are copied."""
    graph = _read(_CAPTURES.replace("!i", "tensor<i32>"), "%a: !t, %c: tensor<i1>", "!t")
    assert validate(graph).errors == ()
    loop = graph.nodes[-1]
    assert loop.inputs[2:] == ("c", "b")
    assert len(loop.outputs) == 4
    body = graph.subgraphs[loop.attributes["body_graph"]]
    assert body.inputs == ("i", "x", "c", "b")
    assert body.outputs[2:] == ("c", "b")
    assert "half" not in body.tensors  # only the graph below reads it
    (branch,) = (g for n, g in body.subgraphs.items() if "else" in n)
    assert {"half", "shift"} < {*branch.tensors}
    done = "values that its regions use from outside are inputs: 'c', 'b'"
    assert f"WHILE_LOOP 'w#0': {done}" in [str(r) for r in graph.source.rewrites]
    a = np.array([1.0, -3.0], np.float32)
    function = compile(graph)
    np.testing.assert_array_equal(function(a, np.array(True))[0], a + 5 * (a / 2))
    np.testing.assert_array_equal(function(a, np.array(False))[0], a / 32)


def test_conditions_of_the_dialect_before_1_0():
    """The type of the condition is not repeated there."""
    graph = _read(
        """%r = tosa.cond_if %c -> (!t) {
          %s = "tosa.const"() <{value = dense<2.0> : !t}> : () -> !t
          tosa.yield %s : !t
        } else { tosa.yield %a : !t }
        return %r : !t""",
        "%a: !t, %c: tensor<i1>",
        "!t",
    )
    assert graph.source.version == "pre-1.0 dialect, custom form"
    function = compile(graph)
    a = np.array([1.0, 4.0], np.float32)
    np.testing.assert_array_equal(function(a, np.array(True))[0], [2.0, 2.0])
    np.testing.assert_array_equal(function(a, np.array(False))[0], a)


def test_a_value_before_it_is_made():
    with pytest.raises(FormatError, match="value %y is not made in graph 'main' before it"):
        _read(f"%x = tosa.abs %y : ({_F}) -> {_F}\n%y = tosa.abs %a : ({_F}) -> {_F}\nreturn")


def test_values_of_another_function():
    with pytest.raises(FormatError):
        mlir.read_text(
            f""""builtin.module"() ({{
            %x = "tosa.const"() <{{values = dense<1.0> : {_F}}}> : () -> {_F}
            "func.func"() <{{function_type = () -> {_F}, sym_name = "main"}}> ({{
              "func.return"(%x) : ({_F}) -> () }}) : () -> () }}) : () -> ()"""
        )


def test_two_graphs_of_one_name():
    kept = 'fused<["tosajax", "graph", "g", "graph", "g"]>[unknown]'
    text = """%r = "tosa.cond_if"(%c, %a) ({
    ^bb0(%x: !t):
      "tosa.yield"(%x) : (!t) -> ()
    }, {
    ^bb0(%x: !t):
      %y = "tosa.OP"(%x) : (!t) -> !t
      "tosa.yield"(%KEPT) : (!t) -> ()
    }) : (tensor<i1>, !t) -> !t loc(LOC)"""
    text = text.replace("LOC", kept).replace("OP", "abs")
    with pytest.raises(FormatError, match="two graphs are named 'g'"):
        _read(text.replace("KEPT", "y"), "%a: !t, %c: tensor<i1>")
    with pytest.raises(FormatError, match="the name 'main' is there twice"):
        _read(text.replace("KEPT", "y").replace('"g"', '"main"'), "%a: !t, %c: tensor<i1>")


# Variables.


def test_variables():
    text = """%old = tosa.variable_read @state : !t
        %new = tosa.add %old, %a : (!t, !t) -> !t
        tosa.variable_write @state, %new : !t
        return %new : !t"""
    graph = _read(text, results="!t", head="tosa.variable @state = dense<[1.0, 2.0]> : !t")
    assert graph.nodes[0].op == "VARIABLE"
    assert graph.tensors["variable_state"].variable == "state"
    assert validate(graph).errors == ()
    inside = _read(f"tosa.variable @state = dense<[1.0, 2.0]> : !t\n{text}", results="!t")
    assert inside == graph
    generic = """%old = "tosa.variable_read"() <{name = "state"}> : () -> !t
        %new = "tosa.add"(%old, %a) : (!t, !t) -> !t
        "tosa.variable_write"(%new) <{name = @state}> : (!t) -> ()
        return %new : !t"""
    head = """"tosa.variable"() <{initial_value = dense<[1.0, 2.0]> : !t, sym_name = "state",
        type = f32, var_shape = dense<2> : tensor<1xindex>}> : () -> ()"""
    assert _read(generic, results="!t", head=head) == graph


_SHAPE = "var_shape = dense<[2, 3]> : tensor<2xindex>"


@pytest.mark.parametrize(
    "head",
    [
        "tosa.variable @v : tensor<2x3xi8>",
        "tosa.variable private @v : tensor<2x3xi8>",
        '"tosa.variable"() <{name = "v", type = tensor<2x3xi8>}> : () -> ()',
        f'"tosa.variable"() <{{sym_name = "v", type = i8, {_SHAPE}}}> : () -> ()',
    ],
)
def test_variables_without_a_value(head):
    graph = _read("return", head=head)
    tensor = graph.tensors["variable_v"]
    assert (tensor.dtype, tensor.shape, tensor.values) == (DType.INT8, (2, 3), None)
    assert dict(graph.nodes[0].attributes)["var_shape"] == (2, 3)


def test_a_value_keeps_its_name_beside_the_variable():
    text = "%v = tosa.variable_read @v : !t"
    graph = _read(text, head="tosa.variable @v : !t")
    assert graph.nodes[-1].outputs == ("v",)


@pytest.mark.parametrize(
    ("head", "error", "message"),
    [
        ("tosa.variable @v : !t\ntosa.variable @v : !t", FormatError, "'v' is there twice"),
        ("tosa.variable @v : tensor<2xf8E5M2>", FormatError, "which no variable can be"),
        ("tosa.variable @v : tensor<*xi8>", FormatError, "which no variable can be"),
        ("tosa.variable @v : tensor<2xi64>", UnsupportedError, "element type i64"),
        ('"tosa.variable"() <{sym_name = "v"}> : () -> ()', FormatError, "neither a type nor"),
        ('"tosa.variable"() <{type = i8}> : () -> ()', FormatError, "has no name"),
    ],
)
def test_broken_variables(head, error, message):
    with pytest.raises(error, match=message):
        _read("return", head=head)
