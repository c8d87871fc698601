"""`tosajax show`: draws a graph."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tosajax.atomic import check_folder, write_text
from tosajax.cli._common import add_scales, add_wide, load, screen_width

HELP = "draw a graph without its constants: here, or as a picture in a file"
EXAMPLES = (
    "show model.tosa",
    "show model.tosa -o model.svg",
    "show model.tosa -o model.html",
)
# Replacements for terminals and files whose encoding lacks box-drawing characters.
_PLAIN = str.maketrans("○●│├─╯╮┤┼┴…×", "o*||-'.|++.x")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="file to write: .svg, or .html for a page with the picture and a table of the nodes",
    )  # fmt: skip
    add_wide(parser)
    add_scales(parser)


def run(arguments: argparse.Namespace) -> int:
    path = arguments.output
    if path is not None:
        check_folder(path)
        if Path(path).suffix not in (".svg", ".html"):
            raise ValueError(f"--output is {path}, expected a name that ends in .svg or .html")
    from tosajax.viz import graph_page, graph_svg, graph_text

    graph = load(arguments)
    if path is None:
        print(_encodable(graph_text(graph, screen_width(arguments))))
        return 0
    is_page = Path(path).suffix == ".html"
    write_text(path, graph_page(graph, arguments.line) if is_page else graph_svg(graph))
    print(f"{path}: {sum(len(part.nodes) for part in graph.walk())} nodes")
    return 0


def _encodable(text: str) -> str:
    """The text with characters that standard output can encode."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    return text
