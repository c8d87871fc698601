"""The profiles and extensions that a graph needs."""

from __future__ import annotations

from collections.abc import Iterable

from tosajax import spec

# Alternative sets of profiles and extensions, each of which is sufficient for a node.
Need = tuple[frozenset[str], ...]


def smallest(needs: list[Need]) -> tuple[str, ...]:
    """A small set of profiles and extensions that supports every node.

    Nodes with fewest alternatives come first, so that other nodes can reuse their choices.
    """
    chosen: set[str] = set()
    for alternatives in sorted(set(needs), key=len):
        if not any(a <= chosen for a in alternatives):
            chosen |= min(alternatives, key=lambda a: (len(a - chosen), _ranked(a)))
        chosen |= _profiles_of(chosen)
    return _table_order(chosen or {spec.PROFILES[0]})


def _profiles_of(names: set[str]) -> set[str]:
    """The first profile of each extension that has none of its profiles in `names`."""
    allowed = (spec.EXTENSIONS[name] for name in _table_order(names) if name in spec.EXTENSIONS)
    return {profiles[0] for profiles in allowed if names.isdisjoint(profiles)}


def _ranked(names: Iterable[str]) -> list[int]:
    """Sort key: profiles before extensions, each in the order of the table."""
    order = (*spec.PROFILES, *spec.EXTENSIONS)
    return sorted(order.index(n) for n in names)


def _table_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(n for n in (*spec.PROFILES, *spec.EXTENSIONS) if n in names)
