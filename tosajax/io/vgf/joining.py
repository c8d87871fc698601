"""Joins the segments of a VGF file to one graph."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tosajax.graph import DYNAMIC, Graph, Node, Source, Tensor, shape_fits
from tosajax.io.spirv.constants import Fetch
from tosajax.io.spirv.module import Module
from tosajax.io.spirv.naming import renamed
from tosajax.io.spirv.reading import Read, read_graph
from tosajax.io.spirv.types import MOST_DIMENSIONS, TensorType, item_size, unpacked
from tosajax.io.spirv.words import quoted
from tosajax.io.vgf.formats import DTYPES
from tosajax.io.vgf.tables import File, Resource, Segment
from tosajax.report import FormatError, UnsupportedError


def join(file: File) -> Graph:
    """Joins all segments to one graph; each segment may read results of segments before it.

    Raises:
      FormatError: the file is not well formed.
      UnsupportedError: the file uses something that TOSA 1.0 does not have.
    """
    return _Joined(file).graph()


class _Joined:
    """A graph to which segments are added."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.wishes: dict[str, str] = {}
        self.places: dict[int, str] = {}  # tensor names, by resource index
        self.producer = ""
        self.inputs = tuple(map(self._input, range(len(file.inputs.slots))))

    def graph(self) -> Graph:
        for number, segment in enumerate(self.file.segments):
            try:
                self._add(number, segment)
            except (FormatError, UnsupportedError) as error:
                raise type(error)(f"segment {quoted(segment.name)}: {error}") from None
        outputs = tuple(self._place(slot.resource) for slot in self.file.outputs.slots)
        # An input that is also an output keeps its name as an input.
        for places, names in (
            (outputs, self.file.outputs.names),
            (self.inputs, self.file.inputs.names),
        ):
            self.wishes |= {place: name for place, name in zip(places, names, strict=False) if name}
        source = Source("VGF", self.file.version, self.producer)
        whole = Graph(self.inputs, outputs, self.tensors, tuple(self.nodes), source=source)
        return renamed(whole, self.wishes)

    def _input(self, index: int) -> str:
        """Declares an input of the model; a segment may refine its shape later."""
        number = self.file.inputs.slots[index].resource
        if number in self.places:
            raise FormatError(f"resource {number} is two inputs of the model")
        name = f"input_{index}"
        self.tensors[name] = Tensor(name, *_type(self._resource(number)))
        self.places[number] = name
        return name

    def _resource(self, number: int) -> Resource:
        if number >= len(self.file.resources):
            raise FormatError(f"resource {number} of {len(self.file.resources)} is not there")
        return self.file.resources[number]

    def _place(self, resource: int) -> str:
        """The tensor of a resource that is an input or the output of an earlier segment."""
        if resource not in self.places:
            raise FormatError(f"resource {resource} is read, and nothing writes it")
        return self.places[resource]

    def _add(self, number: int, segment: Segment) -> None:
        """Adds the graph of a segment, with the segment's number in the names of its tensors."""
        module = Module(segment.module, self._fetch(segment))
        read = _read(module, segment.entry_point)
        graph = read.graph
        self.producer = self.producer or graph.source.producer
        ends = (*graph.inputs, *graph.outputs)
        resources = [_bound(module, segment, variable) for variable in read.entry.interface]
        places = {name: f"{number}.{name}" for name in graph.tensors}
        places |= zip(graph.inputs, map(self._place, resources), strict=False)
        for name, place in places.items():
            if name not in graph.inputs:
                self.tensors[place] = dataclasses.replace(graph.tensors[name], name=place)
            # Inputs of the segment keep an earlier name; without one they get the module's.
            self.wishes.setdefault(place, read.wishes.get(name, name))
        for name, resource in zip(ends, resources, strict=True):
            self._refine(places[name], graph.tensors[name], resource)
        written = zip(resources[len(graph.inputs) :], graph.outputs, strict=True)
        self.places |= {resource: places[name] for resource, name in written}
        self.nodes += (_placed(node, places) for node in graph.nodes)

    def _refine(self, place: str, found: Tensor, number: int) -> None:
        """Sets the dimensions of a tensor that its module or its resource states."""
        resource = self._resource(number)
        dtype, dims, shape = _type(resource).dtype, resource.shape, found.shape
        if dims == () and shape == (1,):
            dims = (1,)  # Arm's converter writes tensors of rank 0 with shape [1] in the module
        fits = shape is None or shape_fits(dims, shape) or shape_fits(shape, dims)
        if found.dtype is not dtype or not fits:
            raise FormatError(f"resource {number} is {_type(resource)}, and in the module {found}")
        refined = dims if shape is None or DYNAMIC in shape else shape
        self.tensors[place] = dataclasses.replace(self.tensors[place], shape=refined)

    def _fetch(self, segment: Segment) -> Fetch:
        """Returns a function that takes the data of a module's constants from the file."""

        def fetch(number: int, type_: TensorType) -> np.ndarray:
            place = f"graph constant {number}, {type_},"
            at = segment.constants.get(number, len(self.file.data))
            if at >= len(self.file.data):
                raise FormatError(f"{place} has no data in the file")
            data = self.file.data[at]
            resource = self._resource(data.resource)
            if _type(resource) != type_:
                raise FormatError(f"{place} has data of {TensorType(*_type(resource))}")
            if resource.strides and resource.strides != _row_major(type_):
                raise UnsupportedError(f"{place} has data that is not row major")
            try:
                return unpacked(data.content, type_.dtype, resource.shape)
            except ValueError as error:
                raise FormatError(f"{place} has data that does not fit: {error}") from None

        return fetch


def _read(module: Module, entry_point: str) -> Read:
    try:
        return read_graph(module, entry_point)
    except FormatError:
        raise
    except ValueError as error:  # the entry point does not exist
        raise FormatError(str(error)) from None


def _type(resource: Resource) -> TensorType:
    """The type of a resource."""
    if resource.format not in DTYPES:
        raise UnsupportedError(f"a resource has format {resource.format} of Vulkan, no tensor's")
    if any(dim == 0 or dim < DYNAMIC for dim in resource.shape):
        raise FormatError(f"a resource has dimension {min(resource.shape)}, expected -1 or 1 on")
    if len(resource.shape) > MOST_DIMENSIONS:
        message = f"a resource has {len(resource.shape)} dimensions"
        raise UnsupportedError(f"{message}, of which TOSA has at most {MOST_DIMENSIONS}")
    return TensorType(DTYPES[resource.format], resource.shape)


def _row_major(type_: TensorType) -> tuple[int, ...]:
    """The strides in bytes of a row-major tensor."""
    dims = type_.shape or ()
    return tuple(item_size(type_.dtype) * math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


def _bound(module: Module, segment: Segment, variable: int) -> int:
    """The resource index of an interface variable."""
    set_, binding = module.binding(variable)
    for slot in segment.sets.get(set_, ()):
        if slot.binding == binding:
            return slot.resource
    raise FormatError(f"nothing is bound to binding {binding} of descriptor set {set_}")


def _placed(node: Node, places: dict[str, str]) -> Node:
    ends = ([places[name] for name in names] for names in (node.inputs, node.outputs))
    inputs, outputs = map(tuple, ends)
    return dataclasses.replace(node, inputs=inputs, outputs=outputs)
