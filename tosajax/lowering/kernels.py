"""Steps of native kernels: a single kernel or a chain."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax

from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions import FloatProduct, Fusion, nodes_of, output_of
from tosajax.lowering.fusions.pattern import Prepare, Reader
from tosajax.lowering.run import Run, Step, Traced
from tosajax.ops.routes.route import Route

if TYPE_CHECKING:
    from tosajax.native.call import KernelCall
    from tosajax.native.codegen.isa import InstructionSet


def native_set(native: bool | None) -> InstructionSet | None:
    """The instruction set of native kernels on this processor; None if XLA computes all nodes."""
    from tosajax.native.codegen.isa import chosen

    return chosen(native)


class Kernel(NamedTuple):
    """A native kernel for a fusion.

    Args:
      fusion: the nodes that it computes.
      prepare: returns the kernel with its operands; or the result, if it takes several calls.
      route: computes the result; has the name of the route.
    """

    fusion: Fusion
    prepare: Prepare
    route: Route

    @property
    def output(self) -> str:
        """The name of the tensor that it computes."""
        return output_of(self.fusion)


def kernel_of(fusion: Fusion, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Kernel:
    """Makes the kernel of a fusion.

    Args:
      fusion: the nodes that it computes.
      tensors: the graph's tensors, by name.
      isa: the instruction set from `native_set`.
    """
    prepare, shape = fusion.kernel(tensors, isa), tensors[output_of(fusion)].shape

    def compute(reader: Reader) -> jax.Array:
        from tosajax.native import call

        kernel = prepare(reader)
        result = call.run(kernel) if isinstance(kernel, call.KernelCall) else kernel
        return result.reshape(shape)

    operators = ", ".join(n.op for n in nodes_of(fusion))
    used = isa.float32_set if isinstance(fusion, FloatProduct) else isa
    route = Route(f"native {used.name}".replace("-", " "), operators, compute)
    return Kernel(fusion, prepare, route)


def kernel_step(kernel: Kernel, tensors: Mapping[str, Tensor], traced: Traced) -> Step:
    """The step of a kernel, which stores its output.

    Args:
      kernel: the kernel of a fusion.
      tensors: the graph's tensors, by name.
      traced: attributes of CLAMP whose values are in the parameters.
    """

    def step(run: Run) -> None:
        run.values[kernel.output] = kernel.route(Reader(run, tensors, traced))

    return step


def chain_step(
    chain: Sequence[Kernel | Node],
    wanted: Sequence[str],
    tensors: Mapping[str, Tensor],
    traced: Traced,
) -> Step:
    """The step of a chain, which stores the tensors that other steps read.

    Args:
      chain: kernels, and RESHAPEs between them.
      wanted: the tensors that other steps read.
      tensors: the graph's tensors, by name.
      traced: attributes of CLAMP whose values are in the parameters.
    """

    def step(run: Run) -> None:
        from tosajax.native import call

        inside = dataclasses.replace(run, values={**run.values})
        kernels: list[KernelCall] = []
        for part in chain:
            if isinstance(part, Node):
                operand, shape = inside.values[part.inputs[0]], tensors[part.outputs[0]].shape
                inside.values[part.outputs[0]] = operand._replace(shape=shape)
            else:
                kernel = part.prepare(Reader(inside, tensors, traced))
                assert isinstance(kernel, call.KernelCall)
                made, shape = kernel.placeholder(len(kernels)), tensors[part.output].shape
                inside.values[part.output] = made._replace(shape=shape)
                kernels.append(kernel)
        placeholders = [inside.values[name] for name in wanted]
        numbers = list(dict.fromkeys(p.number for p in placeholders))
        results = dict(zip(numbers, call.run_all(kernels, numbers), strict=True))
        for name, placeholder in zip(wanted, placeholders, strict=True):
            run.values[name] = results[placeholder.number].reshape(placeholder.shape)

    return step
