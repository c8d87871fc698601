"""Pictures of graphs: what is drawn, as text, SVG and page; none needs matplotlib."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET

import numpy as np
import programs
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.spec import NanMode
from tosajax.viz import graph_page, graph_svg, graph_text
from tosajax.viz.graph import _CHARACTERS, Box, _box, _shape_text, boxes_of

ODD = '<b>&"\n\x00\udc80層' + "x" * 90
SVG = "{http://www.w3.org/2000/svg}"


def residual(blocks: int = 1, name: str = "y") -> Graph:
    b = Builder()
    x = b.input("x", DType.INT32, (1, 8))
    for k in range(blocks):
        inner = b.op("ABS", b.op("NEGATE", x, *zeros(b), name=f"{name}/a{k}"), name=f"{name}/b{k}")
        x = b.op("ADD", x, inner, name=f"{name}/sum{k}")
    return b.graph([x])


def zeros(b: Builder) -> list[tosajax.Tensor]:
    return [b.const([0], DType.INT32), b.const([0], DType.INT32)]


def test_constants_and_what_is_made_of_them_are_left_out():
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    folded = b.op("ABS", b.op("ABS", b.const([1, 2], DType.INT32)))
    graph = b.graph([b.op("ADD", x, folded, name="y"), folded])
    found = boxes_of(graph)
    assert [(box.kind, box.name, box.reads) for box in found] == [
        ("input", "x", ()),
        ("ADD", "y", (0,)),
        ("output", "y", (1,)),
        ("output", folded.name, ()),
    ]


def test_lines_of_a_box_fit_it():
    box = Box("DEPTHWISE_CONV2D", "3×3 stride 2×2 and more", "n" * 90, "t" * 90, "tip", (), 0)
    lines = ["".join(text.itertext()) for text in ET.fromstring(_box(box, 0, 0)).iter("text")]
    assert [len(line) for line in lines] == [_CHARACTERS] * 3


def test_open_sizes_are_question_marks():
    assert _shape_text((3, 0, -1)) == "3×0×?"


def test_nodes_with_an_effect_are_drawn():
    kinds = [box.kind for box in boxes_of(programs.accumulator())]
    assert [kind for kind in kinds if kind.startswith("VAR")] == [
        "VARIABLE",
        "VARIABLE_READ",
        "VARIABLE_WRITE",
    ]


def test_details_are_windows_strides_bounds_and_names():
    details = {box.name: box.detail for box in boxes_of(small.two_layers())}
    assert (details["acc1"], details["relu1"], details["act1"]) == ("3×3", "5 … 100", "")
    assert [b.detail for b in boxes_of(programs.nested(2)) if b.kind == "COND_IF"] == [
        "level_0, other"
    ]
    b = Builder()
    x = b.input("x", DType.FP32, (1, 8, 8, 4))
    weights = b.const(np.zeros((3, 2, 4, 1)), DType.FP32)
    y = b.op(
        "DEPTHWISE_CONV2D", x, weights, b.const([0.0] * 4, DType.FP32), b.const([0.0], DType.FP32),
        b.const([0.0], DType.FP32), dilation=(1, 1), acc_type=DType.FP32, pad=(0, 1, 0, 0),
        stride=(2, 3),
    )  # fmt: skip
    assert boxes_of(b.graph([y]))[1].detail == "3×2 stride 2×3"


@pytest.mark.parametrize(
    ("dtype", "ends", "detail"),
    [
        (DType.FP32, (0, np.finfo(np.float32).max), "0 … 3.40282e+38"),
        (DType.BF16, (-0.5, np.inf), "-0.5 … inf"),
        (DType.INT16, (-32768, 32767), "-32768 … 32767"),
    ],
)
def test_bounds_are_short(dtype, ends, detail):
    b = Builder()
    low, high = (dtype.storage.type(end) for end in ends)
    x = b.input("x", dtype, (2,))
    y = b.op("CLAMP", x, min_val=low, max_val=high, nan_mode=NanMode.PROPAGATE)
    assert boxes_of(b.graph([y]))[1].detail == detail


def test_text():
    assert graph_text(residual(2)).splitlines() == [
        "○   input   x       INT32[1,8]",
        "├─╮",
        "● │ NEGATE  y/a0    INT32[1,8]",
        "● │ ABS     y/b0    INT32[1,8]",
        "├─╯",
        "●   ADD     y/sum0  INT32[1,8]",
        "├─╮",
        "● │ NEGATE  y/a1    INT32[1,8]",
        "● │ ABS     y/b1    INT32[1,8]",
        "├─╯",
        "●   ADD     y/sum1  INT32[1,8] output",
    ]


def test_text_of_lanes_that_cross():
    b = Builder()
    x, late = b.input("x", DType.INT32, (2,)), b.input("late", DType.INT32, (2,))
    p, q, r = (b.op("ABS", x, name=n) for n in "pqr")
    s = b.op("ADD", p, r, name="s")
    t = b.op("ADD", q, r, name="t")
    graph = b.graph([b.op("SELECT", b.op("GREATER", s, t, name="c"), late, q, name="z")])
    assert graph_text(graph).splitlines() == [
        "○     input    x     INT32[2]",
        "├─╮",
        "● │   ABS      p     INT32[2]",
        "│ ├─╮",
        "│ ● │ ABS      q     INT32[2]",
        "│ │ ● ABS      r     INT32[2]",
        "├─┼─┤",
        "● │ │ ADD      s     INT32[2]",
        "│ ├─╯",
        "│ ├─╮",
        "│ ● │ ADD      t     INT32[2]",
        "├─╯ │",
        "●   │ GREATER  c     BOOL[2]",
        "│ ○ │ input    late  INT32[2]",
        "├─┴─╯",
        "●     SELECT   z     INT32[2] output",
    ]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_text_fits_a_width(width):
    lines = graph_text(residual(3, "a_long_name_of_a_layer" * 3), width).splitlines()
    assert max(map(len, lines)) == width
    assert all("INT32[1,8]" in line for line in lines if "●" in line) or width == 40


def test_subgraphs_have_their_names():
    parts = graph_text(programs.nested(2)).split("\n\n")
    assert [part.splitlines()[0] for part in parts] == [
        "main:", "level_0:", "innermost:", "other:", "other:",
    ]  # fmt: skip
    assert graph_svg(programs.nested(2)).count('class="part"') == 5


@pytest.mark.parametrize("name", ["y", ODD])
def test_svg_is_well_formed_and_holds_every_box(name):
    graph = residual(3, name)
    root = ET.fromstring(graph_svg(graph))
    groups = root.findall(f"{SVG}g")
    assert len(groups) == len(boxes_of(graph)) == 11
    assert all(len(group.findall(f"{SVG}text")) == 3 for group in groups)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for group in groups:
        box = group.find(f"{SVG}rect")
        assert box is not None
        left, top, wide, high = (float(box.attrib[k]) for k in ("x", "y", "width", "height"))
        assert left >= 0
        assert left + wide <= width
        assert top >= 0
        assert top + high <= height
        longest = max(len(text.text or "") for text in group.findall(f"{SVG}text"))
        assert 12 + 6.7 * longest <= wide


def test_lines_lead_from_box_to_box():
    root = ET.fromstring(graph_svg(residual()))
    lines, heads = (root.find(f"{SVG}path[@class='{c}']") for c in ("lines", "heads"))
    assert lines is not None
    assert heads is not None
    assert heads.attrib["d"].count("Z") == 5  # as many as edges
    assert lines.attrib["d"].count("M") == 7  # two more along the rail
    assert lines.attrib["d"].count("V") == 2


def test_the_same_graph_gives_the_same_bytes():
    assert graph_svg(residual(4)) == graph_svg(residual(4))


def test_a_page_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    content = graph_page(small.two_layers(), "tosajax show <x>")
    assert content.count("<svg") == 1
    assert "with <code>tosajax show &lt;x&gt;</code>" in content
    assert "<td>CONST" not in content
    assert "first;conv</td>" in content  # the location, without its file


def test_graphs_without_nodes():
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    assert graph_text(b.graph([x])) == "○ input  x  INT32[2] output"
    empty = Graph((), (), {}, ())
    assert graph_text(empty) == ""
    ET.fromstring(graph_svg(empty))
