"""Reads and writes the scales of a model, in `model.tosa.quant.json` beside it.

TOSA files cannot store scales. The file has this form:

{
 "kind": "tosajax quantization", "version": 1,
 "model": "<SHA-256 of the model's file, hexadecimal>",
 "tensors": {"image": {"scale": [0.0039], "zero_point": [-128]}, ...}
}

A tensor with a scale for each channel also has "axes", and a tensor whose integers have narrower
limits than its type has "bounds", and a mask has "is_mask"; see `tosajax.Quantization`. The digest
identifies the model, because other models may have tensors of the same names.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tosajax.atomic import write_text
from tosajax.graph import Graph, Quantization
from tosajax.report import FormatError

SUFFIX = ".quant.json"
_KIND, _VERSION = "tosajax quantization", 1
_FIELDS = ("scale", "zero_point", "axes", "bounds", "is_mask")
_LARGEST = 1 << 28  # bytes; a larger file is not a scales file


def path_of(model: Path) -> Path:
    """The path of the file with a model's scales."""
    return model.with_name(model.name + SUFFIX)


def write(graph: Graph, model: Path, content: bytes) -> None:
    """Writes the scales of a graph beside its file; without scales, removes an earlier file.

    Args:
      graph: the saved graph.
      model: the path of the graph's file.
      content: the content of the graph's file.
    """
    path = path_of(model)
    if not graph.quantization:
        path.unlink(missing_ok=True)
        return
    tensors = {name: _entry(scales) for name, scales in graph.quantization.items()}
    rows = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(e)}" for name, e in tensors.items())
    head = json.dumps({"kind": _KIND, "version": _VERSION, "model": _digest(content)})
    write_text(path, f'{head[:-1]}, "tensors": {{\n  {rows}\n}}}}\n')


def read(graph: Graph, model: Path, content: memoryview | bytes) -> Mapping[str, Quantization]:
    """Reads the scales beside a graph's file; {} if there are none.

    Scales for different content of the file are ignored with a warning.

    Args:
      graph: the graph in the file.
      model: the path of the graph's file.
      content: the content of the graph's file.

    Raises:
      FormatError: the file of scales is damaged, or does not match the graph's tensors.
    """
    path = path_of(model)
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} bytes")
        root = json.loads(path.read_bytes())
        if not isinstance(root, dict) or root.get("kind") != _KIND:
            raise ValueError(f"its kind is not {_KIND!r}")
        if root.get("version") != _VERSION:
            raise ValueError(f"its version is {root.get('version')!r}, expected {_VERSION}")
        scales = {str(name): _quantization(e) for name, e in dict(root["tensors"]).items()}
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise FormatError(
            f"{path} holds no scales: {error}; delete it or save the model again"
        ) from None
    if root.get("model") != _digest(content):
        warnings.warn(
            f"{path} belongs to another content of {model.name}, and is not used: save the model "
            "with its scales again, or delete the file",
            stacklevel=4,
        )
        return {}
    for name, quantization in scales.items():
        tensor = graph.tensors.get(name)
        if tensor is None or not quantization.fits(tensor):
            what = "has no such tensor" if tensor is None else f"has {tensor} there"
            raise FormatError(f"{path}: {name!r}: {quantization}, and the model {what}")
    return scales


def _digest(content: memoryview | bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _entry(quantization: Quantization) -> dict[str, Any]:
    entry = {field: getattr(quantization, field) for field in _FIELDS}
    return {field: value for field, value in entry.items() if value not in ((), None, False)}


def _quantization(entry: Mapping[str, Any]) -> Quantization:
    if unknown := set(entry) - {*_FIELDS}:
        raise ValueError(f"{min(unknown)!r} is not one of {', '.join(_FIELDS)}")
    if not isinstance(is_mask := entry.get("is_mask", False), bool):
        raise ValueError(f"is_mask is {is_mask!r}, expected true or false")
    numbers = {field: tuple(value) for field, value in entry.items() if field != "is_mask"}
    return Quantization(**numbers, is_mask=is_mask)
