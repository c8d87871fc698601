"""The tables of a VGF file as plain data, read and written with `vgfpy`."""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from tosajax.io.spirv.words import quoted
from tosajax.report import FormatError, UnsupportedError

MAGIC = b"VGF1"
_HEADER = struct.Struct("<4s2H3B5x8Q")  # magic, versions, then offset and size of each section
_TENSOR = 1000460000  # VK_DESCRIPTOR_TYPE_TENSOR_ARM
_LEAST_PART = 16  # bytes of a table, at least
_INSTALL = "vgfpy is not installed: pip install 'tosajax[vgf]'"


class Resource(NamedTuple):
    """A tensor that segments read or write, or a constant.

    Args:
      format: the number of the element's Vulkan format.
      shape: the dimensions, -1 if open.
      strides: the strides in bytes; () if row major.
    """

    format: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()


class Slot(NamedTuple):
    """A binding, and the index of its resource in the resource table."""

    binding: int
    resource: int


class Data(NamedTuple):
    """The elements of a constant, and the index of its resource."""

    resource: int
    content: bytes


class Segment(NamedTuple):
    """One step of the model: a graph to run.

    Args:
      name: the segment's name.
      module: the SPIR-V module.
      entry_point: the name of the graph in the module.
      sets: the slots of interface variables, by descriptor set.
      constants: the index in the file's data of each graph constant, by its id.
    """

    name: str
    module: bytes
    entry_point: str
    sets: Mapping[int, tuple[Slot, ...]]
    constants: Mapping[int, int]


class Ends(NamedTuple):
    """The inputs or outputs of the model, and their names, which may be missing."""

    slots: tuple[Slot, ...]
    names: tuple[str, ...]


class File(NamedTuple):
    """The content of a file's tables."""

    version: str
    segments: tuple[Segment, ...]
    resources: tuple[Resource, ...]
    data: tuple[Data, ...]
    inputs: Ends
    outputs: Ends


# Reading.


def read_file(data: bytes) -> File:
    """Reads the tables of a file.

    Raises:
      ImportError: vgfpy is not installed.
      FormatError: the file is not well formed.
      UnsupportedError: the version is newer than vgfpy's, or a segment is not a graph.
    """
    try:
        import vgfpy
    except ImportError:
        raise ImportError(_INSTALL) from None
    version = _checked_version(data)
    header = vgfpy.CreateHeaderDecoder(data, vgfpy.HeaderSize(), len(data))
    if header is None or not header.CheckVersion():
        newest = f"{vgfpy.HEADER_MAJOR_VERSION_VALUE}.{vgfpy.HEADER_MINOR_VERSION_VALUE}"
        raise UnsupportedError(f"the version is {version}, and the newest of vgfpy {newest}")
    try:
        return _Reader(vgfpy, data).file(version)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if isinstance(error, FormatError | UnsupportedError):
            raise
        raise FormatError(f"the tables are damaged: {error}") from None


def _checked_version(data: bytes) -> str:
    """The version of a file, after checking that its sections lie within it."""
    if len(data) < _HEADER.size:
        raise FormatError(f"the file has {len(data)} bytes, expected at least {_HEADER.size}")
    magic, _, _, *version = _HEADER.unpack_from(data)[:6]
    if magic != MAGIC:
        raise FormatError(f"the file starts with {magic!r}, expected {MAGIC!r}")
    for offset, size in _sections(data):
        if offset + size > len(data):
            place = f"a section at bytes {offset} to {offset + size}"
            raise FormatError(f"{place}, beyond the {len(data)} bytes of the file")
    return ".".join(map(str, version))


def _sections(data: bytes) -> list[tuple[int, int]]:
    """The offsets and sizes of the sections: modules, sequence, resources, constants."""
    numbers = _HEADER.unpack_from(data)[6:]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


class _Reader:
    """Reads the tables with the decoders of vgfpy."""

    def __init__(self, vgfpy: Any, data: bytes) -> None:
        self._kinds = vgfpy.ModuleType
        # The bytes that may still be read; tables could share parts without limit otherwise.
        self._left = 16 * len(data)
        # The decoders refer to these bytes, which must stay alive.
        self._held = [data[offset : offset + size] for offset, size in _sections(data)]
        creators = (
            vgfpy.CreateModuleTableDecoder,
            vgfpy.CreateModelSequenceTableDecoder,
            vgfpy.CreateModelResourceTableDecoder,
            vgfpy.CreateConstantDecoder,
        )
        pairs = zip(creators, self._held, strict=True)
        decoders = [create(held, len(held)) for create, held in pairs]
        if None in decoders:
            raise FormatError("a table is damaged")
        self._modules, self._sequence, self._resources, self._constants = decoders

    def file(self, version: str) -> File:
        sequence = self._sequence
        return File(
            version,
            tuple(map(self._segment, self._counted(sequence.modelSequenceTableSize()))),
            tuple(map(self._resource, self._counted(self._resources.size()))),
            tuple(map(self._data, self._counted(self._constants.size()))),
            Ends(
                self._slots(sequence.getModelSequenceInputBindingSlotsHandle()),
                self._names(sequence.getModelSequenceInputNamesHandle()),
            ),
            Ends(
                self._slots(sequence.getModelSequenceOutputBindingSlotsHandle()),
                self._names(sequence.getModelSequenceOutputNamesHandle()),
            ),
        )

    def _counted(self, count: int) -> range:
        """The range of `count` parts, each of at least 16 bytes, counted against the limit."""
        self._take(_LEAST_PART * count)
        return range(count)

    def _take(self, size: int) -> None:
        """Counts bytes read against the limit."""
        self._left -= size
        if self._left < 0:
            raise FormatError("the same parts of the file are referred to too often")

    def _slots(self, handle: Any) -> tuple[Slot, ...]:
        sequence = self._sequence
        return tuple(
            Slot(
                sequence.getBindingSlotBinding(handle, at),
                sequence.getBindingSlotMrtIndex(handle, at),
            )
            for at in self._counted(sequence.getBindingsSize(handle))
        )

    def _names(self, handle: Any) -> tuple[str, ...]:
        count = self._counted(self._sequence.getNamesSize(handle))
        return tuple(self._sequence.getName(handle, at) for at in count)

    def _segment(self, at: int) -> Segment:
        sequence = self._sequence
        name, module = sequence.getSegmentName(at), sequence.getSegmentModuleIndex(at)
        if sequence.getSegmentType(at) != self._kinds.Graph:
            raise UnsupportedError(f"segment {quoted(name)} is a shader, expected a graph")
        if module >= self._modules.size():
            raise FormatError(f"segment {quoted(name)} is of module {module}, which is not there")
        code = self._modules.getSPIRVModuleCode(module)
        if code is None:
            raise UnsupportedError(f"the SPIR-V of segment {quoted(name)} is not in the file")
        self._take(code.nbytes)
        entry_point = self._modules.getModuleEntryPoint(module)
        return Segment(name, bytes(code), entry_point, self._sets(at), self._bound(at))

    def _sets(self, segment: int) -> dict[int, tuple[Slot, ...]]:
        sequence = self._sequence
        sets = {}
        for at in self._counted(sequence.getSegmentDescriptorSetInfosSize(segment)):
            slots = self._slots(sequence.getDescriptorBindingSlotsHandle(segment, at))
            sets[sequence.getSegmentDescriptorSetIndex(segment, at)] = slots
        return sets

    def _bound(self, segment: int) -> dict[int, int]:
        """The index of the data of each graph constant, by its id."""
        bindings = self._sequence.getSegmentConstantBindings(segment)
        self._counted(len(bindings))
        return {b.graphConstantId: b.constantIndex for b in bindings}

    def _resource(self, at: int) -> Resource:
        ends = self._resources.getTensorShape(at), self._resources.getTensorStride(at)
        shape, strides = (tuple(f.tolist()) if f is not None else () for f in ends)
        self._take(8 * (len(shape) + len(strides)))
        return Resource(self._resources.getVkFormat(at), shape, strides)

    def _data(self, at: int) -> Data:
        content = self._constants.getConstant(at)
        if content is None:
            raise FormatError(f"constant {at} has no data")
        self._take(content.nbytes)
        return Data(self._constants.getConstantMrtIndex(at), bytes(content))


# Writing.


def write_file(file: File) -> bytes:
    """Writes a file of one segment, in the newest version of vgfpy.

    Raises:
      ImportError: vgfpy is not installed.
    """
    try:
        import vgfpy
    except ImportError:
        raise ImportError(_INSTALL) from None
    encoder = vgfpy.CreateEncoder(0)  # 0: no version of the Vulkan headers
    (segment,) = file.segments
    code = memoryview(segment.module).cast("I").tolist()
    module = encoder.AddModule(vgfpy.ModuleType.Graph, segment.name, segment.entry_point, code)
    add = {slot.resource: encoder.AddInputResource for slot in file.inputs.slots}
    add |= {slot.resource: encoder.AddOutputResource for slot in file.outputs.slots}
    resources = [
        add[at](_TENSOR, *resource) if at in add else encoder.AddConstantResource(*resource)
        for at, resource in enumerate(file.resources)
    ]
    data = [encoder.AddConstant(resources[at], content) for at, content in file.data]
    used = (*file.inputs.slots, *file.outputs.slots, *itertools.chain(*segment.sets.values()))
    slots = {s: encoder.AddBindingSlot(s.binding, resources[s.resource]) for s in used}
    inputs, outputs = ([slots[s] for s in ends.slots] for ends in (file.inputs, file.outputs))
    constants = [
        vgfpy.GraphConstantBindingRef(number, data[at]) for number, at in segment.constants.items()
    ]
    sets = [
        encoder.AddDescriptorSetInfo([slots[slot] for slot in part], number)
        for number, part in segment.sets.items()
    ]
    encoder.AddSegmentInfo(module, segment.name, sets, inputs, outputs, constants)
    names = list(file.inputs.names), list(file.outputs.names)
    encoder.AddModelSequenceInputsOutputs(inputs, names[0], outputs, names[1])
    encoder.Finish()
    content = io.BytesIO()
    if not encoder.WriteTo(content):
        raise RuntimeError("vgfpy could not write the file")
    return content.getvalue()
