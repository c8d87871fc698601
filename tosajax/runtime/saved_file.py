"""The file of a saved executable: a ZIP archive of a manifest, a program and arrays.

`manifest.json` describes inputs, outputs and variables; `program.bin` is the output of
`jax.export`; `arrays.bin` holds the elements of constants and initial variables, array after array;
`graph.tosa` holds the graph if native kernels can compute some of it, and is empty if not.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

from tosajax.arguments.archives import BROKEN, content
from tosajax.arguments.types import shown
from tosajax.atomic import replacing
from tosajax.checks.values import zero_point_rule
from tosajax.checks.zero_points import OpenZeroPoint
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Tensor
from tosajax.report import FormatError, UnsupportedError
from tosajax.runtime.batching import Batch

_KIND, _VERSION = "tosajax executable", 4
# The fields of a Batch in a manifest: devices are not saved, and a call runs one micro-batch.
_CALLS = ("carries", "examples", "at_once")
# The fields of a zero point in a manifest, and their types.
_ZERO_POINT = {"tensor": str, "node": str, "label": str, "argument": str, "unsigned": bool}
_MANIFEST = "manifest.json"
_MEMBERS = _, _ARRAYS, _GRAPH = "program.bin", "arrays.bin", "graph.tosa"
# The highest compression ratio of a member, so that a small file never takes much memory. Writers
# store members uncompressed that would exceed it.
_MOST = 32


class Manifest(NamedTuple):
    """The description of a program in its file."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batch: Batch
    variables: tuple[str, ...]
    flags: tuple[tuple[str, str], ...] | None  # None if callers do not get flags
    unsigned: tuple[str, ...] = ()  # names of inputs that the program reads as unsigned
    zero_points: tuple[OpenZeroPoint, ...] = ()  # inputs, with their rules


class Contents(NamedTuple):
    """The content of a file, besides its manifest.

    Args:
      program: the program, as `jax.export` serializes it.
      arrays: the bytes of all arrays.
      graph: a TOSA flatbuffer, or empty.
    """

    program: bytes
    arrays: bytes
    graph: bytes

    @property
    def members(self) -> dict[str, bytes]:
        """The members of the archive, by name."""
        return dict(zip(_MEMBERS, self, strict=True))


def write(path: str | os.PathLike[str], manifest: Manifest, contents: Contents) -> None:
    """Writes a file atomically.

    Args:
      path: the path of the file.
      manifest: a manifest whose inputs and outputs have a rank.
      contents: the other members.
    """
    members = contents.members
    fields = {
        "kind": _KIND,
        "version": _VERSION,
        "inputs": [*map(_entry, manifest.inputs)],
        "outputs": [*map(_entry, manifest.outputs)],
        "parts": {name: getattr(manifest.batch, name) for name in _CALLS},
        "variables": manifest.variables,
        "flags": manifest.flags,
        "unsigned": manifest.unsigned,
        "zero_points": [*map(_zero_point_entry, manifest.zero_points)],
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    members = {_MANIFEST: json.dumps(fields).encode(), **members}
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            is_small = name in (_ARRAYS, _GRAPH) or len(data) > _MOST * len(zlib.compress(data))
            kind = zipfile.ZIP_STORED if is_small else zipfile.ZIP_DEFLATED
            archive.writestr(name, data, kind)


def read(path: str | os.PathLike[str]) -> tuple[Manifest, Contents]:
    """Reads a file.

    Raises:
      FormatError: the file is not a saved executable, or damaged.
      UnsupportedError: another version of tosajax wrote the file.
      OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            return _read(file, size)
        except UnsupportedError as error:
            raise UnsupportedError(f"{os.fspath(path)}: {error}") from None
        except BROKEN as error:
            message = f"{os.fspath(path)} is not a {_KIND}, or damaged: {_told(error)}"
            raise FormatError(message) from None


def _read(file: IO[bytes], size: int) -> tuple[Manifest, Contents]:
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if len(entries) != len(archive.infolist()):
            raise ValueError("it has two members of one name")
        fields = json.loads(content(archive, entries[_MANIFEST], size, _MOST))
        if not isinstance(fields, dict) or fields.get("kind") != _KIND:
            raise ValueError(f"its manifest is {shown(fields)}")
        version = fields.get("version")
        if type(version) is not int:
            raise ValueError(f"its version is {shown(version)}, expected an integer")
        if version != _VERSION:
            raise UnsupportedError(f"version {version} of the format, expected {_VERSION}")
        wanted = _MANIFEST, *_MEMBERS
        if sorted(entries) != sorted(wanted):
            raise ValueError(f"it has {', '.join(entries)}, expected {', '.join(wanted)}")
        contents = Contents(*(content(archive, entries[name], size, _MOST) for name in _MEMBERS))
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in contents.members.items()}
    if fields.get("sha256") != sums:
        raise ValueError("the manifest is of another program or other arrays")
    return _manifest(fields), contents


def _told(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error) or repr(error)


# The manifest.


def _entry(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype.name, "shape": tensor.shape}


def _manifest(fields: Mapping[str, Any]) -> Manifest:
    inputs, outputs = (_tensors(fields[name], name) for name in ("inputs", "outputs"))
    flags = fields["flags"]
    if flags is not None:
        pairs = (_texts(pair, "a flag", 2) for pair in _list(flags, "flags"))
        flags = tuple((node, rule) for node, rule in pairs)
    variables = tuple(_texts(fields["variables"], "variables"))
    if len(set(variables)) != len(variables):
        raise ValueError(f"variables are {variables}, expected each once")
    batch = _batch(fields["parts"], inputs)
    # Files of earlier versions lack the rest.
    unsigned = tuple(_texts(fields.get("unsigned", []), "unsigned"))
    entries = _list(fields.get("zero_points", []), "zero_points")
    zero_points = tuple(_zero_point(entry, inputs) for entry in entries)
    return Manifest(inputs, outputs, batch, variables, flags, unsigned, zero_points)


def _tensors(entries: Any, name: str) -> tuple[Tensor, ...]:
    return tuple(_tensor(entry, name) for entry in _list(entries, name))


def _tensor(entry: Any, name: str) -> Tensor:
    is_whole = isinstance(entry, dict) and entry.keys() == {"name", "dtype", "shape"}
    if not is_whole or not isinstance(entry["name"], str):
        raise ValueError(f"{name} hold {shown(entry)}, expected a name, a dtype and a shape")
    if entry["dtype"] not in DType.__members__:
        raise ValueError(f"{name} hold an element type {shown(entry['dtype'])}")
    shape = _list(entry["shape"], "a shape")
    if any(type(n) is not int or n < DYNAMIC for n in shape):
        raise ValueError(f"{name} hold the shape {shown(shape)}")
    return Tensor(entry["name"], DType[entry["dtype"]], tuple(shape))


def _zero_point_entry(zero_point: OpenZeroPoint) -> dict[str, Any]:
    tensor, node, label, rule = zero_point
    fields = tensor, node, label, rule.name, rule.bits is not None
    return dict(zip(_ZERO_POINT, fields, strict=True))


def _zero_point(entry: Any, inputs: Sequence[Tensor]) -> OpenZeroPoint:
    """Reads a zero point of a manifest; its rule follows from the type of the input."""
    if not isinstance(entry, dict) or entry.keys() != _ZERO_POINT.keys():
        raise ValueError(f"zero_points hold {shown(entry)}, expected {', '.join(_ZERO_POINT)}")
    if not all(type(entry[name]) is kind for name, kind in _ZERO_POINT.items()):
        raise ValueError(f"zero_points hold {shown(entry)}")
    tensor, node, label, name, unsigned = (entry[field] for field in _ZERO_POINT)
    dtypes = {t.name: t.dtype for t in inputs}
    rule = zero_point_rule(label.partition(".")[2], name, dtypes[tensor], unsigned=unsigned)
    if rule is None:
        raise ValueError(f"zero_points hold {tensor!r} of {dtypes[tensor].name}, which has no rule")
    return OpenZeroPoint(tensor, node, label, rule)


def _batch(entry: Any, inputs: Sequence[Tensor]) -> Batch:
    """Reads the batch of a manifest; checks that it fits the inputs."""
    if not isinstance(entry, dict) or entry.keys() != set(_CALLS):
        raise ValueError(f"parts are {shown(entry)}, expected {', '.join(_CALLS)}")
    batch = Batch(**entry)._replace(carries=tuple(_list(entry["carries"], "carries")))
    is_sound = type(batch.examples) is int and type(batch.at_once) is int
    is_sound = is_sound and all(type(c) is bool for c in batch.carries)
    carried = [t for t, c in zip(inputs, batch.carries, strict=True) if c]
    most = batch.at_once if batch.examples == DYNAMIC and carried else batch.examples
    fit = all((t.shape or ())[:1] == (batch.examples,) for t in carried)
    if not (is_sound and fit and 1 <= batch.at_once <= most):
        raise ValueError(f"parts are {entry}")
    return batch


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {shown(value)}, expected a list")
    return value


def _texts(value: Any, name: str, count: int | None = None) -> list[str]:
    texts = _list(value, name)
    if not all(isinstance(x, str) for x in texts) or count not in (None, len(texts)):
        raise ValueError(f"{name} is {shown(value)}, expected texts")
    return texts
