"""Source places of equations: the names of layers, and a line of the user's code."""

from __future__ import annotations

import dataclasses
import re
import sysconfig
from pathlib import Path, PurePath
from typing import Any

import jax

_PACKAGE = str(Path(__file__).parents[1])
_JAX = str(Path(jax.__file__).parent)
_LIBRARIES = (*{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}, "<frozen")
# A transformation around a name, as in "vmap(layer)"; jit has the name of its function.
_TRANSFORMED = re.compile(r"\w+\(([^()]*)\)")


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of source code.

    Args:
      file: the path relative to the working directory or a library, else the file name.
      number: the line number, from 1.
    """

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclasses.dataclass(frozen=True)
class Place:
    """The source place of an equation.

    Args:
      layers: the names of layers, outermost first, "Block_0/Dense_1"; "" for none.
      line: the line of code; None if unknown.
    """

    layers: str = ""
    line: Line | None = None

    def inside(self, outer: Place) -> Place:
        """The place nested in an outer one: layers are joined; `outer.line` if it has no line."""
        layers = "/".join(part for part in (outer.layers, self.layers) if part)
        return Place(layers, self.line or outer.line)

    def location(self, name: str) -> str:
        """The location of a node in MLIR's syntax, which `graph.locations` reads."""
        if self.line is None:
            return f'loc("{name}")'
        return f'loc("{name}"("{self.line.file}":{self.line.number}:0))'


def place_of(eqn: Any) -> Place:
    """The place that an equation itself records, without the places of its callers."""
    info = eqn.source_info
    return Place(_layers(str(info.name_stack)), _line(info.traceback))


def _layers(stack: str) -> str:
    """The names of layers in JAX's name stack: "Block_0/Dense_1" for "Block_0/vmap(Dense_1)"."""
    while _TRANSFORMED.search(stack):
        stack = _TRANSFORMED.sub(lambda found: "" if "jit(" in found[0] else found[1], stack)
    return "/".join(part for part in stack.split("/") if part)


def _line(traceback: Any) -> Line | None:
    """The innermost line outside libraries, else the innermost outside JAX and tosajax."""
    frames = traceback.frames if traceback is not None else ()
    outside = [frame for frame in frames if not frame.file_name.startswith((_PACKAGE, _JAX, "<"))]
    own = [frame for frame in outside if not frame.file_name.startswith(_LIBRARIES)]
    for frame in (*own, *outside):
        return Line(_short_path(frame.file_name), frame.line_num)
    return None


def _short_path(file: str) -> str:
    """The path without folders of this machine: relative to a library or the working directory."""
    path = PurePath(file)
    for folder in (*_LIBRARIES[:-1], Path.cwd()):  # A virtual environment may be below cwd.
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix().removeprefix("site-packages/")
    return path.name
