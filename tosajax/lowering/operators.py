"""Steps of operators that are functions of their inputs, including CUSTOM."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tosajax import spec
from tosajax.checks import RULES
from tosajax.checks.zero_points import open_zero_points
from tosajax.graph import Graph, Node, Tensor, arguments
from tosajax.lowering.run import Context, Run, Step, store
from tosajax.lowering.zero_points import judge_zero_points
from tosajax.report import UnsupportedError
from tosajax.spec import Form, Kind


def operator_step(
    node: Node, tensors: Mapping[str, Tensor], context: Context, reader: str | None
) -> Step:
    """The step of a node; `reader` is the operator of its only reader, if it has just one."""
    operator = spec.OPERATORS[node.op]
    static = dict(node.attributes)
    if operator.needs_out_type:
        static["out_type"] = tensors[node.outputs[0]].dtype
    names: list[str | tuple[str, ...]] = []
    fixed: dict[int, Any] = {}
    by_argument = arguments(operator, node.inputs, Kind.INPUT)
    for position, argument in enumerate(operator.inputs):
        name = by_argument[argument.name]
        if argument.form is Form.SHAPE:
            fixed[position] = _static_shape(node, tensors[name])
        elif context.prepare and argument.prepared and _is_constant(tensors, name):
            # A NumPy array: a constant that the kernel can read while it is traced.
            fixed[position] = tensors[name].values
        else:
            names.append(name)
    kernel = getattr(context.kernels, node.op.lower())
    if reader is not None:
        kernel = getattr(context.kernels, f"{node.op}_before_{reader}".lower(), kernel)
    kernel = _with_fixed(kernel, fixed, static)
    if context.prepare and operator.moves:
        kernel = _by_bits(kernel)
    require = RULES[node.op].require if context.report_unpredictable else None
    broken = _with_fixed(require, fixed, static) if require else None
    traced = context.traced.get(node.outputs[0], {})
    zero_points = open_zero_points(node, tensors)

    def step(run: Run) -> None:
        inputs = [run.read(n) if isinstance(n, tuple) else run.values[n] for n in names]
        judge_zero_points(zero_points, run, context)
        attributes = {name: run.params[key] for name, key in traced.items()}
        store(run, node, kernel(*inputs, **attributes))
        if broken is not None:
            label = node.op.lower()
            broken_rules = broken(*inputs).items()
            run.flags.update({(node.title, f"{label}.{rule}"): flag for rule, flag in broken_rules})

    return step


def _by_bits(kernel: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Wraps a kernel that moves elements: it moves bfloat16 as integers.

    XLA:CPU keeps an element that it writes more than once in a register; for some shapes, x86
    instructions for bfloat16 then flush a subnormal to zero.
    """

    def to_bits(x: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x

    def from_bits(bits: jax.Array) -> jax.Array:
        if bits.dtype != jnp.uint16:
            return bits
        # Without the barrier XLA writes bfloat16 in the loop that moves elements.
        return lax.bitcast_convert_type(lax.optimization_barrier(bits), jnp.bfloat16)

    def move(*inputs: Any) -> Any:
        return jax.tree.map(from_bits, kernel(*jax.tree.map(to_bits, inputs)))

    return move


def _static_shape(node: Node, tensor: Tensor) -> tuple[int, ...]:
    if tensor.values is None:
        raise UnsupportedError(f"{node.title}: shape {tensor.name!r} is not constant")
    return tuple(int(v) for v in tensor.values)


def _is_constant(tensors: Mapping[str, Tensor], name: str | tuple[str, ...]) -> bool:
    return isinstance(name, str) and tensors[name].values is not None


def _with_fixed(
    kernel: Callable[..., Any], fixed: Mapping[int, Any], static: Mapping[str, Any]
) -> Callable[..., Any]:
    """Binds attributes of a kernel, and some operands by position."""
    if not fixed:
        return functools.partial(kernel, **static)

    def call(*traced: Any, **attributes: Any) -> Any:
        rest = iter(traced)
        count = len(traced) + len(fixed)
        operands = (fixed[i] if i in fixed else next(rest) for i in range(count))
        return kernel(*operands, **{**static, **attributes})

    return call


# User-defined operators.


def custom_step(node: Node, graph: Graph, context: Context) -> Step:
    domain, name = (node.attributes[key] for key in ("domain_name", "operator_name"))
    function = context.custom_ops.get((domain, name))
    if function is None:
        listed = ", ".join(map(str, context.custom_ops)) or "none"
        raise UnsupportedError(
            f"{node.title}: custom_ops has no {(domain, name)}, expected a function of the "
            f"node's inputs (it has {listed})"
        )
    attributes = node.attributes["implementation_attrs"]
    wanted = [graph.tensors[n] for n in node.outputs]

    def step(run: Run) -> None:
        result = function(*run.read(node.inputs), implementation_attrs=attributes)
        results = result if isinstance(result, tuple) else (result,)
        _check_results(node, wanted, results)
        store(run, node, results)

    return step


def _check_results(node: Node, wanted: Sequence[Tensor], results: Sequence[jax.Array]) -> None:
    # A result may hold fewer or more arrays than its type, so that they are all leaves.
    returned = [[(x.dtype, tuple(x.shape)) for x in jax.tree.leaves(result)] for result in results]
    if returned != [[*t.dtype.parts(t.shape or ())] for t in wanted]:
        leaves = [leaf for parts in returned for leaf in parts]
        listed = ", ".join(f"{dtype}[{','.join(map(str, shape))}]" for dtype, shape in leaves)
        expected = ", ".join(f"{t.name} {t}" for t in wanted)
        raise ValueError(f"{node.title}: the function returned {listed}, expected {expected}")
