"""The primitives that call a function, and the parameters that hold its jaxpr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.extend import core

# Primitive -> the parameter that holds the jaxpr, whose arguments are the equation's operands.
PARAMETERS: dict[str, str] = {
    "jit": "jaxpr",
    "remat2": "jaxpr",
    "compute_on": "jaxpr",
    "xla_metadata_call": "jaxpr",
    "call": "call_jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "custom_partitioning": "call",
    "linear_call": "callee",
    "remat_opt": "fwd_jaxpr",
}


def callee(primitive: str, params: Mapping[str, Any]) -> core.ClosedJaxpr | None:
    """The function that an equation calls; None if it does not call one."""
    if primitive not in PARAMETERS:
        return None
    return closed(params[PARAMETERS[primitive]])


def closed(jaxpr: Any) -> core.ClosedJaxpr:
    """The jaxpr as a closed one; an open jaxpr must not have constants."""
    return jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else core.ClosedJaxpr(jaxpr, ())
