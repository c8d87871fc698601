"""Programs of graphs whose constants are fixed, or arguments that all examples share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import ops
from tosajax.arguments.types import check_count
from tosajax.dtypes import DType
from tosajax.grad.qtensor import QTensor
from tosajax.graph import DYNAMIC, Graph, Tensor
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.lowering.run import Traced
from tosajax.lowering.variables import for_examples, initial_state
from tosajax.quant import QParams, dequantize, quantize
from tosajax.runtime.batching import batched, carries_batch, platform_of, share, with_batch
from tosajax.runtime.inputs import accept
from tosajax.runtime.program import native_on, program_of
from tosajax.spec import RoundingMode
from tosajax.spec.target import Target
from tosajax.sweep.subject import Arrays


def graph_program(graph: Graph, traced: Traced, fixed: Arrays, batch: int) -> Callable[..., Any]:
    """Makes the program (varying arrays, *inputs) -> outputs of a graph.

    Args:
      graph: a legal graph with a fixed or open batch.
      traced: attributes by the output of their node, with the names of their arrays.
      fixed: arrays that are constants of the program; all other arrays vary.
      batch: the number of examples on the first axis of inputs and outputs; each starts with the
        first values of the graph's variables.

    Raises:
      ValueError: examples depend on each other.
    """
    everything = Target.everything()
    for_batch, examples = with_batch(graph, everything, batch)
    if examples is None:
        raise ValueError(f"graph {graph.name!r}: examples depend on each other, or it has no batch")
    attributes = [key for keys in traced.values() for key in keys.values()]
    constants = _constants(for_batch)
    names = [n for n in constants if n not in fixed]
    # Examples share the constants among the inputs, so the cache holds as many as without them.
    calls = share(for_batch, examples, in_loop=True)
    calls = calls._replace(carries=(*calls.carries, *(False for _ in names)))
    platform = platform_of(calls)
    program = program_of(
        _with_inputs(for_batch, names, {name: fixed[name] for name in constants if name in fixed}),
        platform=platform,
        native=native_on(platform),
        traced=traced,
        kernels=_KERNELS if any("rounding_mode" in t for t in traced.values()) else ops,
    )
    run = batched(program, calls).function
    state = for_examples(initial_state(for_batch), examples)
    unsigned = unsigned_tensors(graph)

    def apply(varying: Arrays, *inputs: jax.Array) -> tuple[Any, ...]:
        arrays = {**fixed, **varying}
        params = {
            **program.params,
            **{key: jnp.asarray(arrays[key]) for key in attributes},
        }
        integers = [
            _quantized(arrays.get(f"input {name}"), x)
            for name, x in zip(graph.inputs, inputs, strict=True)
        ]
        _, _, outputs = run(params, state, *integers, *(varying[name] for name in names))
        return tuple(
            _real(arrays.get(f"output {name}"), y, name in unsigned)
            for name, y in zip(graph.outputs, outputs, strict=True)
        )

    return apply


def unsigned_outputs(graph: Graph, outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Stored outputs of a graph; unsigned outputs are viewed as an unsigned type."""
    unsigned = unsigned_tensors(graph)
    result = list(outputs)
    for number, tensor in enumerate(graph.output_tensors[: len(result)]):
        if tensor.name in unsigned and tensor.dtype.accepts(result[number]):
            result[number] = result[number].view(f"u{tensor.dtype.storage.name}")
    return tuple(result)


def is_constant(tensor: Tensor) -> bool:
    return tensor.values is not None and tensor.dtype is not DType.SHAPE and not tensor.variable


def _constants(graph: Graph) -> list[str]:
    return [name for n in graph.nodes if n.op == "CONST" for name in n.outputs]


def _with_inputs(graph: Graph, names: Sequence[str], constants: Mapping[str, Any]) -> Graph:
    """The graph with the constants `names` as inputs, and `constants` as values of others."""
    tensors = dict(graph.tensors)
    for name in names:
        tensors[name] = dataclasses.replace(tensors[name], values=None)
    for name, values in constants.items():
        shape = tensors[name].shape or ()
        tensors[name] = dataclasses.replace(tensors[name], values=np.asarray(values).reshape(shape))
    taken = set(names)
    return dataclasses.replace(
        graph,
        inputs=(*graph.inputs, *names),
        tensors=tensors,
        nodes=tuple(n for n in graph.nodes if not taken.intersection(n.outputs)),
    )


def _quantized(qparams: QParams | None, x: jax.Array) -> jax.Array:
    if qparams is None or not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return quantize(x, qparams).q


def _real(qparams: QParams | None, y: jax.Array, is_unsigned: bool) -> jax.Array:
    """An output for metrics: real numbers if it has a scale, else signed or unsigned integers."""
    if is_unsigned:
        y = lax.bitcast_convert_type(y, jnp.dtype(f"u{y.dtype.name}"))
    if qparams is None:
        return y
    if is_unsigned:
        return (y.astype(jnp.float32) - qparams.zero_point) * qparams.scale
    return dequantize(QTensor.of(y), qparams)


def _rescale(*operands: Any, rounding_mode: Any, **attributes: Any) -> jax.Array:
    """RESCALE with a rounding mode that may be traced: a bool, whether it rounds twice."""
    if isinstance(rounding_mode, RoundingMode):
        return ops.rescale(*operands, rounding_mode=rounding_mode, **attributes)
    both = [
        functools.partial(ops.rescale, rounding_mode=mode, **attributes)
        for mode in (RoundingMode.SINGLE_ROUND, RoundingMode.DOUBLE_ROUND)
    ]
    return lax.cond(rounding_mode, both[1], both[0], *operands)


_KERNELS = SimpleNamespace(**{**vars(ops), "rescale": _rescale})


def accepted(
    graph: Graph,
    quantized: Collection[str],
    inputs: Sequence[np.ndarray],
    batch: int,
    unsigned: Callable[[], Collection[str]],
) -> tuple[jax.Array, ...]:
    """Checks a batch and converts it to the program's inputs.

    Args:
      graph: the graph of the program.
      quantized: names of inputs that may hold real numbers, which the program quantizes.
      inputs: arrays (batch, *shape of one example), or (batch, 1, *shape without its first
        dimension).
      batch: the number of examples of each input.
      unsigned: returns the names of tensors that the graph reads as unsigned.

    Raises:
      TypeError: the number of inputs or an element type is wrong.
      ValueError: a shape is wrong, or an input of the graph cannot hold examples.
    """
    tensors = graph.input_tensors
    check_count(graph.inputs, inputs)
    shapes = [_of_batch(tensor, batch) for tensor in tensors]
    arrays = [
        x.reshape(shape) if x.shape == (batch, 1, *shape[1:]) else x
        for x, shape in zip(inputs, shapes, strict=True)
    ]
    # Put on the device once, as many settings read them.
    taken = accept(tensors, shapes, arrays, quantized, unsigned, in_files=True)
    return tuple(map(jnp.asarray, taken))


def _of_batch(tensor: Tensor, batch: int) -> tuple[int, ...]:
    shape = tensor.shape or ()
    if not carries_batch(tensor) and shape[:1] != (DYNAMIC,):
        raise ValueError(
            f"input {tensor.name!r} is {tensor}: it has no first dimension of 1 or -1 for examples"
        )
    return (batch, *shape[1:])
