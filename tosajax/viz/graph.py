"""Pictures of graphs: inputs, nodes and outputs, without constants and nodes of constants only.

A picture is an SVG, a page, or text with rails as in `git log --graph`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tosajax import html, spec
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.locations import described
from tosajax.graph.summary import facts, node_table
from tosajax.viz.charts import DARK, LIGHT, css
from tosajax.viz.layers import Item, Layers, layered
from tosajax.viz.pages import page

# Pixels of the drawing.
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _RAIL, _MARGIN, _HEAD = 236, 54, 26, 26, 18, 14, 34
_CHARACTERS = 33  # the most characters of a line in a box
_TIP = 300  # the most characters of a location or a list in a tooltip
# Colours of a box's edge by the operator's chapter; by default the colour of the outline.
_COLOURS = {
    **dict.fromkeys(("conv", "products", "fft"), 0),
    **dict.fromkeys(("elementwise_binary", "elementwise_ternary", "elementwise_unary"), 1),
    **dict.fromkeys(("pool", "reduction", "indices"), 2),
    **dict.fromkeys(("activation", "comparison"), 3),
    **dict.fromkeys(("control_flow", "variable", "custom"), 4),
    **dict.fromkeys(("data_layout", "scatter_gather", "image"), 5),
}
_WINDOWS = {
    "CONV2D": slice(1, 3),
    "CONV3D": slice(1, 4),
    "DEPTHWISE_CONV2D": slice(0, 2),
    "TRANSPOSE_CONV2D": slice(1, 3),
}  # the axes of a weight that are those of the window
_STYLE = """
@THEME@
svg.graph { color-scheme: light dark; @LIGHT@ }
@media (prefers-color-scheme: dark) { svg.graph { @DARK@ } }
svg.graph text { font: 11px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  fill: var(--ink); }
svg.graph text.op { font-weight: bold; }
svg.graph text.part { font-size: 15px; font-weight: bold; }
svg.graph .faint { fill-opacity: .68; font-weight: normal; }
svg.graph .back { fill: var(--back); }
svg.graph .box { fill: var(--back); stroke: var(--ink); stroke-opacity: .45; }
svg.graph .lines { fill: none; stroke: var(--ink); stroke-opacity: .5; stroke-width: 1.2; }
svg.graph .heads { fill: var(--ink); }
"""


class Box(NamedTuple):
    """A box in a picture: an input, a node or an output.

    Args:
      kind: the operator, "input" or "output".
      detail: window and stride of a convolution or a pool, bounds of a CLAMP, the name of a
        variable, the subgraphs of control flow.
      name: the name of its first tensor.
      types: the types of the tensors that it computes.
      tip: the lines of its tooltip.
      reads: the boxes whose tensors it reads, without duplicates.
      outputs: the number of its tensors that are outputs of the graph.
    """

    kind: str
    detail: str
    name: str
    types: str
    tip: str
    reads: tuple[int, ...]
    outputs: int = 0


def boxes_of(graph: Graph) -> list[Box]:
    """The boxes of a graph without subgraphs and constants, in topological order."""
    makers: dict[str, int] = {}
    boxes: list[Box] = []
    ends = Counter(graph.outputs)

    def add(kind: str, names: Sequence[str], reads: Sequence[str], node: Node | None) -> None:
        tensors = [graph.tensors[name] for name in names if name in graph.tensors]
        types = html.listed([str(tensor) for tensor in tensors])
        sources = dict.fromkeys(makers[name] for name in reads if name in makers)
        name = names[0] if names else ""
        tip = "\n".join(_tip(graph, node)) if node else f"{kind} {name}: {types}"
        detail = _detail(graph, node) if node else ""
        outputs = sum(ends[name] for name in names) if kind != "output" else 0
        makers.update(dict.fromkeys(names if kind != "output" else (), len(boxes)))
        boxes.append(Box(kind, detail, name, types, tip, tuple(sources), outputs))

    for name in graph.inputs:
        add("input", (name,), (), None)
    for node in graph.ordered_nodes():
        is_constant = node.inputs and not any(name in makers for name in node.inputs)
        if node.op not in spec.CONSTANT_OPERATORS and not (is_constant and _is_pure(node)):
            add(node.op, node.outputs, node.inputs, node)
    for name in graph.outputs:
        add("output", (name,), (name,), None)
    return boxes


def _is_pure(node: Node) -> bool:
    """Whether the outputs of a node depend only on its inputs."""
    return spec.OPERATORS[node.op].chapter not in ("variable", "custom", "control_flow")


def _detail(graph: Graph, node: Node) -> str:
    attributes = node.attributes
    if node.op == "CLAMP" and "min_val" in attributes:
        return " … ".join(f"{float(attributes[end]):.6g}" for end in ("min_val", "max_val"))
    if spec.OPERATORS[node.op].chapter in ("variable", "control_flow"):
        named = [value for value in attributes.values() if isinstance(value, str)]
        return html.listed(named)
    window: Sequence[int] = attributes.get("kernel", ())
    if node.op in _WINDOWS and (weight := graph.tensors[node.inputs[1]].shape):
        window = weight[_WINDOWS[node.op]]
    if not window:
        return ""
    stride = attributes.get("stride", ())
    steps = f" stride {_shape_text(stride)}" if any(s != 1 for s in stride) else ""
    return _shape_text(window) + steps


def _shape_text(sizes: Sequence[int]) -> str:
    return "×".join("?" if size < 0 else str(size) for size in sizes)


def _tip(graph: Graph, node: Node) -> Iterator[str]:
    yield node.op
    for side, names in (("reads", node.inputs), ("makes", node.outputs)):
        for name in names:
            tensor = graph.tensors.get(name)
            yield f"{side} {html.shortened(name, _TIP)}: {_described(tensor, graph)}"
    for name, value in node.attributes.items():
        shown = f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
        yield html.shortened(f"{name}: {shown}", _TIP)
    if place := described(node.location):
        yield html.shortened(place, _TIP)


def _described(tensor: Tensor | None, graph: Graph) -> str:
    if tensor is None:
        return "?"
    quantization = graph.quantization.get(tensor.name)
    constant = "" if tensor.values is None else ", constant"
    return f"{tensor}{constant}{f', {quantization}' if quantization else ''}"


# SVG.


def graph_svg(graph: Graph) -> str:
    """A picture of a graph as SVG; dark if the reader's system or notebook is.

    Subgraphs are drawn below, with their names as titles.

    Example:
      >>> import tosajax
      >>> from tosajax import viz
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> svg = viz.graph_svg(b.graph([b.op("REVERSE", x, axis=1, name="y")]))
      >>> svg[:4], "REVERSE" in svg
      ('<svg', True)
    """
    parts, top, widest = [], float(_MARGIN), 0.0
    several = bool(graph.subgraphs)
    for part in graph.walk():
        if several:
            heading = html.text(html.shortened(part.name, 60))
            parts.append(f'<text class="part" x="{_MARGIN}" y="{top + 16:.0f}">{heading}</text>')
            top += _HEAD
        drawn, width, height = _draw_graph(part, top)
        parts.append(drawn)
        top += height + (2 * _GAP_Y if several else 0)
        widest = max(widest, width)
    size = f"{widest + 2 * _MARGIN:.0f}", f"{top + _MARGIN:.0f}"
    label = html.text(f"Picture of the graph {html.shortened(graph.name, 60)}")
    style = _STYLE.replace("@LIGHT@", css(LIGHT)).replace("@DARK@", css(DARK))
    style = style.replace("@THEME@", html.theme("svg.graph"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" aria-label="{label}" '
        f'width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}">'
        f'<style>{style}</style><rect class="back" width="100%" height="100%"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _draw_graph(graph: Graph, top: float) -> tuple[str, float, float]:
    """The boxes and lines of one graph, its width and its height."""
    boxes = boxes_of(graph)
    edges = [(source, at) for at, box in enumerate(boxes) for source in box.reads]
    layers = layered(len(boxes), edges, _WIDTH + _GAP_X, _RAIL)
    if not boxes:
        return "", 0.0, 0.0
    nodes = [x for item, x in layers.x.items() if not item.is_rail]
    rails = [x for item, x in layers.x.items() if item.is_rail]
    left = min(min(nodes) - _WIDTH / 2, *rails, min(nodes)) - _MARGIN
    right = max(max(nodes) + _WIDTH / 2, *rails, max(nodes))
    place = {i: (x - left, top + i.row * (_HEIGHT + _GAP_Y)) for i, x in layers.x.items()}
    drawn = [_lines(layers, place)]
    drawn += [_box(boxes[item.node], *at) for item, at in place.items() if not item.is_rail]
    return "".join(drawn), right - left, len(layers.rows) * (_HEIGHT + _GAP_Y) - _GAP_Y


def _lines(layers: Layers, place: dict[Item, tuple[float, float]]) -> str:
    lines, heads = [], []
    for upper, lower in layers.lines:
        (x0, y0), (x1, y1) = place[upper], place[lower]
        begin, middle = y0 + _HEIGHT, y0 + _HEIGHT + _GAP_Y / 2
        path = (
            f"M{x0:.0f} {begin:.0f}C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1:.0f}"
        )
        if upper.is_rail:
            path = f"M{x0:.0f} {y0:.0f}V{begin:.0f}{path[path.index('C') :]}"
        lines.append(path)
        if not lower.is_rail:
            heads.append(f"M{x1 - 4:.0f} {y1 - 7:.0f}L{x1:.0f} {y1:.0f}L{x1 + 4:.0f} {y1 - 7:.0f}Z")
    return f'<path class="lines" d="{"".join(lines)}"/><path class="heads" d="{"".join(heads)}"/>'


def _box(box: Box, x: float, y: float) -> str:
    left, operator = x - _WIDTH / 2, spec.OPERATORS.get(box.kind)
    colour = _COLOURS.get(operator.chapter) if operator else None
    edge = ""
    if colour is not None:
        edge = f'<path fill="var(--c{colour})" d="M{left:.0f} {y + 2:.0f}h5v{_HEIGHT - 4}h-5z"/>'
    corner = 4 if operator else _HEIGHT / 2
    title = html.text(box.kind)
    if box.detail:
        room = _CHARACTERS - len(box.kind) - 1
        title += f' <tspan class="faint">{html.text(html.shortened(box.detail, room))}</tspan>'
    anchor = f'x="{left + 12:.0f}"' if operator else f'x="{x:.0f}" text-anchor="middle"'
    rows = [("op", title)]
    rows += [("faint", html.text(html.shortened(t, _CHARACTERS))) for t in (box.name, box.types)]
    texts = "".join(
        f'<text class="{kind}" {anchor} y="{y + 17 + 14 * at:.0f}">{line}</text>'
        for at, (kind, line) in enumerate(rows)
    )
    tip = "&#10;".join(html.text(line) for line in box.tip.split("\n"))
    return (
        f'<g><title>{tip}</title><rect class="box" x="{left:.0f}" y="{y:.0f}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" rx="{corner:.0f}"/>{edge}{texts}</g>'
    )


def graph_page(graph: Graph, command: str | None = None) -> str:
    """A page: the summary of a graph, its picture, and its nodes.

    Args:
      graph: the graph to show.
      command: the command that made it, for the page's footer.

    Returns:
      An HTML document that needs no other file.

    Example:
      >>> import tosajax
      >>> from tosajax import viz
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> page = viz.graph_page(b.graph([b.op("REVERSE", x, axis=1, name="y")]))
      >>> page[:15]
      '<!DOCTYPE html>'
    """
    picture = html.note(
        "Constants, and what is made of constants alone, are left out. A box has its operator, "
        "its tensor and its type; the pointer over it shows all about it."
    )
    sections = [
        ("Summary", html.definitions(facts(graph))),
        ("Picture", f'{picture}<div class="picture" tabindex="0">{graph_svg(graph)}</div>'),
    ]
    head, rows = node_table(graph)
    if rows:
        sections.append(("Nodes", html.table(head, rows, sortable=True, named_by=2)))
    return page(f"Graph {graph.name}", sections, command=command)


# Text.


def graph_text(graph: Graph, width: int | None = None) -> str:
    """A picture of a graph as text: a line for each box, next to rails of the tensors.

    Args:
      graph: the graph to show.
      width: the most characters of a line; None for no limit.

    Example:
      >>> import tosajax
      >>> from tosajax import viz
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> print(viz.graph_text(b.graph([b.op("REVERSE", x, axis=1, name="y")]), width=60))
      ○ input    x         INT8[1,3]
      ● REVERSE  y         INT8[1,3] output
    """
    parts = []
    for part in graph.walk():
        heading = [f"{part.name}:"] if graph.subgraphs else []
        parts.append("\n".join([*heading, *_text(part, width)]))
    return "\n\n".join(parts)


def _text(graph: Graph, width: int | None) -> list[str]:
    boxes = [box for box in boxes_of(graph) if box.kind != "output"]
    rows = list(_rails(boxes))
    room = max((len(rails) for rails, _ in rows), default=0)
    first = max((len(_title(box)) for box in boxes), default=0)
    last = max((len(box.types) for box in boxes), default=0)
    names = max((len(box.name) for box in boxes), default=0)
    if width is not None:
        names = max(8, min(names, width - room - first - last - 5))
    lines = []
    for rails, box in rows:
        if box is None:
            lines.append(rails)
            continue
        name = html.shortened(box.name, names)
        end = " output" if box.outputs else ""
        line = f"{rails:{room}} {_title(box):{first}}  {name:{names}}  {box.types}{end}"
        lines.append((line if width is None else html.shortened(line, width)).rstrip())
    return lines


def _title(box: Box) -> str:
    return f"{box.kind} {box.detail}".rstrip()


def _rails(boxes: Sequence[Box]) -> Iterator[tuple[str, Box | None]]:
    """Yields the rails of each line, and its box; lines without a box join or split rails."""
    unread = Counter(source for box in boxes for source in box.reads)
    lanes: list[int | None] = []
    for at in _inputs_last(boxes):
        box = boxes[at]
        unread.subtract(box.reads)
        main, *others = sorted(lanes.index(source) for source in box.reads) or [
            _free_lane(lanes, 0)
        ]
        if others:
            goes_on = {lane: unread[lanes[lane] or 0] > 0 for lane in others}
            yield _crossing(lanes, main, goes_on, "╯┤"), None
            for lane in others:
                lanes[lane] = lanes[lane] if goes_on[lane] else None
        source = lanes[main]
        if source is not None and unread[source] > 0:
            lane = _free_lane(lanes, main + 1)
            yield _crossing(lanes, main, {lane: False}, "╮"), None
            lanes[lane] = source
        lanes[main] = at
        mark = "○" if box.kind == "input" else "●"
        yield " ".join(mark if i == main else _lane_mark(lane) for i, lane in enumerate(lanes)), box
        if not unread[at]:
            lanes[main] = None
        while lanes and lanes[-1] is None:
            lanes.pop()


def _inputs_last(boxes: Sequence[Box]) -> Iterator[int]:
    """The boxes in order, with each input just before its first reader."""
    read = {source for box in boxes for source in box.reads}
    waiting = {at for at in read if boxes[at].kind == "input"}
    for at, box in enumerate(boxes):
        if at not in read or boxes[at].kind != "input":
            first = waiting.intersection(box.reads)
            waiting -= first
            yield from sorted(first)
            yield at


def _free_lane(lanes: list[int | None], start: int) -> int:
    """The first free lane from `start` on; adds a lane if none is free."""
    for lane in range(start, len(lanes)):
        if lanes[lane] is None:
            return lane
    lanes.append(None)
    return len(lanes) - 1


def _lane_mark(lane: int | None) -> str:
    return " " if lane is None else "│"


def _crossing(lanes: Sequence[int | None], main: int, ends: dict[int, bool], marks: str) -> str:
    """Draws a line from one lane to lanes to its right.

    Args:
      lanes: the tensor of each lane.
      main: the lane where the line begins.
      ends: the lanes where it ends, and whether each lane continues.
      marks: the characters for ends at lanes that stop, and at lanes that continue.
    """
    last = max(ends)
    cells = []
    for at, lane in enumerate(lanes):
        if at == main:
            cells.append("├")
        elif at == last:
            cells.append(marks[ends[at]])
        elif main < at < last:
            goes_on = ends.get(at, lane is not None)
            cells.append("┼" if goes_on else "┴" if at in ends else "─")
        else:
            cells.append(_lane_mark(lane))
    return "".join(c + ("─" if main <= at < last else " ") for at, c in enumerate(cells)).rstrip()
