"""Reads quantized tensors from the exported programs in an ETRecord, without PyTorch.

An ETRecord is a ZIP archive of ExecuTorch's developer tools: the JSON of exported programs, their
arrays, and tables. A `.pt2` file of `torch.export.save` has the same JSON. Arrays are not read.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from tosajax.arguments.archives import BROKEN, content
from tosajax.graph.locations import Trace, trace_of
from tosajax.report import FormatError

_MAGIC = b"PK\x03\x04"
_MARK = "ETRECORD_V0"
# The largest accepted compression ratio of a JSON member.
_MOST = 64
_ARRAYS = "_state_dict"  # the suffix of the member with a program's arrays, in an ETRecord
_EXPORTED = re.compile(r"(^|/)(models/[^/]+\.json|serialized_exported_program\.json)$")
_QUANTIZE, _DEQUANTIZE = "quantize_per_tensor", "dequantize_per_tensor"
_DELEGATE = "executorch_call_delegate"
# Operators whose outputs hold elements of their input, unchanged.
_MOVES = re.compile(
    r"(_?unsafe_)?(view|reshape|flatten|permute|transpose|t|expand|repeat|squeeze|unsqueeze|slice|"
    r"select|split|chunk|clone|alias|detach|contiguous|flip|max_pool\dd)(_copy|_with_\w+)?$"
)
_LONGEST_CHAIN = 32  # the most tensors between a quantized value and the ones before it


class Value(NamedTuple):
    """A quantized tensor of a program.

    Args:
      name: the tensor's name.
      scale: the scale, positive and finite.
      zero_point: the zero point, an integer.
      type: the number of its ScalarType.
      size: the number of elements; None if a dimension is open.
      names: its own name, then the outputs of the nodes before it, nearest first, up to the first
        node with several inputs.
      traces: the traces of the same nodes.
      sources: the names of the quantized tensors that it is computed from; None if it also
        depends on others.
      is_moved: whether it holds elements of its only source, unchanged but rearranged.
    """

    name: str
    scale: float
    zero_point: int
    type: int
    size: int | None
    names: tuple[str, ...] = ()
    traces: tuple[Trace, ...] = ()
    sources: frozenset[str] | None = None
    is_moved: bool = False


class Program(NamedTuple):
    """The quantized tensors of an exported program, or of a delegate's original module.

    Args:
      values: the quantized tensors by name, in the order of the program.
      inputs: for each user input, the name of its quantized tensor; None if it is not quantized.
      outputs: for each user output, the name of its quantized tensor; None if it is not quantized.
    """

    values: Mapping[str, Value]
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]


class _Node(NamedTuple):
    kind: str  # such as "quantize_per_tensor"
    inputs: tuple[str, ...]  # names of tensors
    arguments: Sequence[Any]
    outputs: tuple[str, ...]
    trace: Trace


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a ZIP archive does."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def programs(path: str | os.PathLike[str]) -> list[Program]:
    """Reads the programs of an ETRecord or of a .pt2 file, including the ones of delegates.

    Raises:
      FormatError: the file is neither, or damaged.
      OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                members = [
                    content(archive, entry, size, _MOST)
                    for entry in _entries(archive.infolist(), os.fspath(path))
                ]
            return [program for member in members for program in _programs(json.loads(member))]
        except FormatError:
            raise
        except (*BROKEN, AttributeError, IndexError) as error:
            words = f"it lacks {error}" if isinstance(error, KeyError) else str(error)[:200]
            raise FormatError(f"{os.fspath(path)}: the ETRecord is damaged: {words}") from None


def _entries(entries: Sequence[zipfile.ZipInfo], path: str) -> list[zipfile.ZipInfo]:
    """The archive members that are programs."""
    names = {entry.filename for entry in entries}
    if len(names) != len(entries):
        raise FormatError(f"{path}: the ETRecord is damaged: it has two members of one name")
    programs = [
        entry
        for entry in entries
        if entry.filename + _ARRAYS in names or _EXPORTED.search(entry.filename)
    ]
    if not programs and _MARK not in names:
        raise FormatError(
            f"{path} is a ZIP archive without {_MARK} or an exported program: it is neither an "
            "ETRecord nor a .pt2 file"
        )
    if not programs:
        raise FormatError(f"{path}: the ETRecord holds no program")
    return programs


def _programs(fields: Any) -> Iterator[Program]:
    """Yields a program, then the programs of its delegates."""
    module = fields["graph_module"]
    nodes = [_node(node) for node in module["graph"]["nodes"]]
    yield _program(module, nodes)
    for node in nodes:
        if node.kind == _DELEGATE:
            text = next(
                filter(None, (argument.get("as_string") for argument in node.arguments)), None
            )
            if text is not None:
                yield from _programs(json.loads(text)["original_module"])


def _node(fields: Mapping[str, Any]) -> _Node:
    # "torch.ops.aten.add.Tensor", or "torch.ops.higher_order.executorch_call_delegate".
    *_, kind, overload = ["", *fields["target"].split(".")]
    kind = overload if kind == "higher_order" else kind
    arguments = [argument["arg"] for argument in fields["inputs"]]
    inputs = tuple(name for argument in arguments for name in _tensors(argument))
    outputs = tuple(name for result in fields["outputs"] for name in _tensors(result))
    source = (fields.get("metadata") or {}).get("from_node")
    return _Node(kind, inputs, arguments, outputs, trace_of(_unnested(source)))


def _unnested(text: str | None) -> list[Any]:
    """Unnests a `from_node` entry: the nodes that a node was lowered from, newest first."""
    levels, inner = [], json.loads(text) if text else None
    while inner:
        levels.append(inner[0])
        inner = inner[0].get("from_node")
    return levels


def _tensors(argument: Mapping[str, Any]) -> Iterator[str]:
    for kind, value in argument.items():
        if kind in ("as_tensor", "as_optional_tensor"):
            yield from _tensor_names(value)
        elif kind in ("as_tensors", "as_optional_tensors"):
            for tensor in value:
                yield from _tensor_names(tensor)


def _tensor_names(value: Mapping[str, Any]) -> Iterator[str]:
    """Yields the name of a tensor; nothing for an optional tensor that is absent."""
    value = value.get("as_tensor", value)
    if isinstance(value.get("name"), str):
        yield value["name"]


def _program(module: Mapping[str, Any], nodes: Sequence[_Node]) -> Program:
    graph, signature = module["graph"], module["signature"]
    makers = {name: node for node in nodes for name in node.outputs}
    quantized: dict[str, tuple[float, int, int]] = {}
    for node in nodes:
        if node.kind in (_QUANTIZE, _DEQUANTIZE) and (numbers := _scale_constants(node)):
            name = node.outputs[0] if node.kind == _QUANTIZE else node.inputs[0]
            quantized.setdefault(name, numbers)
    sizes, constants = graph["tensor_values"], _constants(signature, nodes)
    values = {
        name: _value(name, numbers, _size(sizes.get(name)), makers, quantized, constants)
        for name, numbers in quantized.items()
        if name not in constants
    }
    inputs = [s["user_input"]["arg"] for s in signature["input_specs"] if "user_input" in s]
    outputs = [s["user_output"]["arg"] for s in signature["output_specs"] if "user_output" in s]
    reads = {node.inputs[0]: node.outputs[0] for node in nodes if node.kind == _QUANTIZE}
    writes = {node.outputs[0]: node.inputs[0] for node in nodes if node.kind == _DEQUANTIZE}
    ends = [
        tuple(
            name if name in values else beyond.get(name)
            for specification in own
            for name in _tensors(specification)
        )
        for own, beyond in ((inputs, reads), (outputs, writes))
    ]
    return Program(values, ends[0], ends[1])


def _constants(signature: Mapping[str, Any], nodes: Sequence[_Node]) -> set[str]:
    """The names of parameters, buffers, and tensors computed only from them."""
    constants = {
        name
        for specification in signature["input_specs"]
        for kind, details in specification.items()
        if kind != "user_input"
        for name in _tensor_names(details.get("arg") or {})
    }
    for node in nodes:
        if node.inputs and constants.issuperset(node.inputs):
            constants.update(node.outputs)
    return constants


def _scale_constants(node: _Node) -> tuple[float, int, int] | None:
    """Scale, zero point and type; None if they are not constants of the program."""
    _, scale, zero_point, _, _, kind = [*node.arguments, *[{}] * 6][:6]
    fields = scale.get("as_float"), zero_point.get("as_int"), kind.get("as_scalar_type")
    if fields[0] is None:
        return None
    number, zero, type_ = float(fields[0]), int(fields[1]), int(fields[2])
    if not 0 < number < math.inf:
        raise ValueError(f"the scale of {node.outputs[0]} is {number}, expected it to be positive")
    return number, zero, type_


def _size(tensor: Mapping[str, Any] | None) -> int | None:
    """The number of elements; None if a dimension is open."""
    sizes = [dimension.get("as_int") for dimension in tensor["sizes"]] if tensor else [None]
    static = [size for size in sizes if size is not None]
    return math.prod(static) if len(static) == len(sizes) else None


def _value(
    name: str,
    numbers: tuple[float, int, int],
    size: int | None,
    makers: Mapping[str, _Node],
    quantized: Mapping[str, Any],
    constants: Set[str],
) -> Value:
    scale, zero_point, kind = numbers
    node = makers.get(name)
    if node is None or node.kind != _QUANTIZE:  # an input, or the output of a delegate
        own = () if node is None else (node.trace,)
        return Value(name, scale, zero_point, kind, size, (name,), own)
    chain, sources = _chain_before(node.inputs[0], makers, quantized, constants)
    return Value(
        name, scale, zero_point, kind, size,
        (name, *(n for step in chain for n in step.outputs)),
        tuple(step.trace for step in chain if step.trace), sources,
        bool(chain) and len(sources or ()) == 1 and all(_MOVES.match(step.kind) for step in chain),
    )  # fmt: skip


def _chain_before(
    name: str, makers: Mapping[str, _Node], quantized: Mapping[str, Any], constants: Set[str]
) -> tuple[list[_Node], frozenset[str] | None]:
    """The chain of nodes before a tensor, and the quantized tensors it is computed from.

    The chain is nearest first and ends with the first node of several inputs. The quantized
    tensors are None if the tensor depends on others, or they are too far.
    """
    chain: list[_Node] = []
    sources: set[str] = set()
    is_chain, waiting, visited = True, [name], {name}
    while waiting:
        node = makers.get(waiting.pop(0))
        if node is None or len(visited) > _LONGEST_CHAIN:
            return chain, None
        if node.kind == _DEQUANTIZE and node.inputs[0] in quantized:
            sources.add(node.inputs[0])
            continue
        inputs = [n for n in node.inputs if n not in constants]
        if is_chain:
            chain.append(node)
            is_chain = len(inputs) == 1
        waiting += [n for n in inputs if n not in visited]
        visited.update(inputs)
    return chain, frozenset(sources)
