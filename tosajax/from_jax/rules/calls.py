"""Calls of functions, which are inlined, and primitives that return their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from tosajax.from_jax.callees import PARAMETERS, callee, closed
from tosajax.from_jax.rules import image
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value


def call(step: Step, *args: Value) -> list[Value]:
    """The called function, inlined; RESIZE for `jax.image.resize` to nearest or between centers.

    Custom derivatives, batching and partitioning are ignored.
    """
    jaxpr = callee(step.primitive, step.params)
    assert jaxpr is not None
    if step.params.get("name") == image.FUNCTION and len(args) == 1:
        resized = image.resize(step, jaxpr, *args)
        if resized is not None:
            return [resized]
    return step.jaxs(jaxpr, *args)


def call_hi_primitive(step: Step, *args: Value) -> list[Value]:
    """The expansion of a primitive of `jax.experimental.hijax`, inlined."""
    primitive = step.params["_prim"]

    def expanded(*flat: jax.Array) -> Any:
        return primitive.expand(*jax.tree.unflatten(primitive.in_tree, flat))

    return step.jaxs(expanded, *args)


def custom_linear_solve(step: Step, *args: Value) -> list[Value]:
    """The user's solver, inlined; its matrix products and its transpose are ignored."""
    lengths = step.params["const_lengths"]
    first = lengths.matvec + lengths.vecmat
    constants = args[first : first + lengths.solve]
    return step.jaxs(closed(step.params["jaxprs"].solve), *constants, *args[sum(lengths) :])


def platform_index(step: Step) -> Value:
    """A constant: the default branch of `lax.platform_dependent`, else the one for CPUs."""
    platforms: Sequence[Sequence[str] | None] = step.params["platforms"]
    for at, names in enumerate(platforms):
        if names is None:
            return step.constant(at, step.out.dtype)
    for at, names in enumerate(platforms):
        if "cpu" in (names or ()):
            return step.constant(at, step.out.dtype)
    listed = ", ".join(name for names in platforms for name in names or ())
    raise step.unsupported(f"branches for {listed}", "one for cpu or a default")


def identity(step: Step, *args: Value) -> list[Value]:
    """The operands; the primitive only concerns derivatives, the compiler or devices."""
    return list(args)


def dropped(step: Step, *_: Value) -> list[Value]:
    """Nothing: printing and debug callbacks are left out."""
    step.note("left out", "nothing is printed or called back")
    return []


RULES = {
    **dict.fromkeys(PARAMETERS, call),
    "call_hi_primitive": call_hi_primitive,
    "custom_linear_solve": custom_linear_solve,
    "platform_index": platform_index,
    "device_put": identity,
    "layout_constraint": identity,
    "name": identity,
    "optimization_barrier": identity,
    "reshard": identity,
    "shard_alike": identity,
    "sharding_constraint": identity,
    "stop_gradient": identity,
    "xla_metadata_value": identity,
    "debug_callback": dropped,
    "debug_print": dropped,
    "inspect_sharding": dropped,
}

_IN_JAX = "write it in jax.numpy, or with the operators of tosajax.ops"
_NO_REFERENCE = "return new arrays in place of writing to one of jax.new_ref"
HINTS = {
    **dict.fromkeys(("ffi_call", "pallas_call", "tpu_custom_call"), _IN_JAX),
    **dict.fromkeys(("pure_callback", "io_callback", "buffer_callback"), _IN_JAX),
    **dict.fromkeys(("new_ref", "empty_ref", "get", "swap", "addupdate"), _NO_REFERENCE),
    **dict.fromkeys(("freeze", "run_state"), _NO_REFERENCE),
    "call_exported": "export the function itself",
    "check": "leave it out, or return its error by jax.experimental.checkify",
}
