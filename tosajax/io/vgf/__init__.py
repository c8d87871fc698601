"""Reads and writes VGF files: SPIR-V modules with constants, for Arm's ML extensions for Vulkan.

A file has modules, a sequence of segments that run them, resources (inputs, outputs and constants,
each with a format and a shape), and the data of constants. `vgfpy`, from Arm's VGF library, reads
and writes the tables: `pip install 'tosajax[vgf]'`.
"""

from __future__ import annotations

import numpy as np

from tosajax.graph import Graph, Tensor
from tosajax.io import spirv
from tosajax.io.spirv.types import packed
from tosajax.io.vgf.formats import NUMBERS
from tosajax.io.vgf.joining import join
from tosajax.io.vgf.tables import Data, Ends, File, Resource, Segment, Slot, read_file, write_file
from tosajax.report import UnsupportedError

__all__ = ["read", "to_bytes"]

_DTYPES = {dtype.storage: dtype for dtype in NUMBERS}


def read(data: memoryview | bytes) -> Graph:
    """Reads the graph of a file: all its segments in sequence.

    Inputs and outputs have the names and the order in the file.

    Args:
      data: the content of the file.

    Raises:
      ImportError: vgfpy is not installed.
      FormatError: the file is not well formed.
      UnsupportedError: the version is not supported, or the file has a shader or something that
        TOSA 1.0 does not have.
    """
    return join(read_file(bytes(data)))


def to_bytes(graph: Graph) -> bytes:
    """Writes a graph as a file of one segment, with the limitations of `spirv.to_bytes`.

    Args:
      graph: any graph of operators and types that SPIR-V has; it is not validated.

    Raises:
      ImportError: vgfpy is not installed.
      UnsupportedError: SPIR-V cannot express the graph, or a tensor has no rank.
      ValueError: the graph is not well formed.
    """
    module, constants = spirv.to_bytes(graph)
    ends = *map(_resource, graph.input_tensors), *map(_resource, graph.output_tensors)
    slots = tuple(Slot(at, at) for at in range(len(ends)))  # the bindings in the module
    count = len(graph.inputs)
    numbers = dict(zip(constants, range(len(constants)), strict=True))
    segment = Segment(graph.name, module, graph.name, {0: slots}, numbers)
    file = File(
        version="",  # write_file uses the newest
        segments=(segment,),
        resources=(*ends, *map(_resource_of, constants.values())),
        data=tuple(
            Data(len(ends) + at, packed(values, _DTYPES[values.dtype]))
            for at, values in enumerate(constants.values())
        ),
        inputs=Ends(slots[:count], graph.inputs),
        outputs=Ends(slots[count:], graph.outputs),
    )
    return write_file(file)


def _resource(tensor: Tensor) -> Resource:
    if tensor.shape is None:
        raise UnsupportedError(
            f"tensor {tensor.name!r} is {tensor}: VGF has no tensors of any rank"
        )
    return Resource(NUMBERS[tensor.dtype], tensor.shape)


def _resource_of(constant: np.ndarray) -> Resource:
    return Resource(NUMBERS[_DTYPES[constant.dtype]], constant.shape)
