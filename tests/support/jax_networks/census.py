"""Counts what networks consist of.

    PYTHONPATH=tests/support python -m jax_networks.census [full]

prints the table of all networks.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from jax_networks._network import Network, Size, as_users
from jax_networks.table import ROWS, build

# Calls of one function, which an exporter inlines.
_CALLS = {
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint",
}  # fmt: skip


def primitives(network: Network) -> Counter[str]:
    """`primitives_of` its function."""
    with as_users():
        return primitives_of(jax.make_jaxpr(network.function())(*network.args))


def primitives_of(jaxpr: ClosedJaxpr) -> Counter[str]:
    """Equations of each primitive, with calls inlined; the body of a loop counts once."""
    return Counter(eqn.primitive.name for eqn in _equations(jaxpr.jaxpr))


def parameters(network: Network) -> int:
    """Weights of a network; random keys and counters do not count."""
    held = network.fn if network.params is None else network.params
    leaves = [leaf for leaf in jax.tree.leaves(held) if isinstance(leaf, jax.Array)]
    return sum(leaf.size for leaf in leaves if _is_weight(leaf))


def census(size: Size) -> None:
    """Prints name, framework, parameters, equations and primitives of each network."""
    print("name | framework | parameters | equations | primitives")
    users: Counter[str] = Counter()
    for name in ROWS:
        network = build(name, size)
        counts = primitives(network)
        users.update(counts.keys())
        columns = (name, network.framework, f"{parameters(network):,}", f"{counts.total():,}")
        print(" | ".join([*columns, " ".join(sorted(counts))]), flush=True)
    print("networks of each primitive:", ", ".join(f"{p} {n}" for p, n in users.most_common()))


def _is_weight(leaf: jax.Array) -> bool:
    is_vector = leaf.ndim > 0
    return is_vector and any(
        jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.floating, jnp.signedinteger)
    )


def _equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    for eqn in jaxpr.eqns:
        if eqn.primitive.name not in _CALLS:
            yield eqn
        for inner in _inner(eqn):
            yield from _equations(inner)


def _inner(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    for value in eqn.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            yield from _jaxpr(item)


def _jaxpr(item: Any) -> list[Jaxpr]:
    if isinstance(item, ClosedJaxpr):
        return [item.jaxpr]
    return [item] if isinstance(item, Jaxpr) else []


if __name__ == "__main__":
    census("full" if "full" in sys.argv[1:] else "small")
