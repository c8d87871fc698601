"""States: inputs that take the value of an output at the next call, in one scale with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.graph import Graph
from tosajax.quant.model.plan import State


def check_states(states: Any, graph: Graph) -> None:
    """Raises where states are not pairs of an input and an output that can follow it.

    Args:
      states: the user's argument.
      graph: the float graph.

    Raises:
      TypeError: they are not a dictionary of names.
      ValueError: a name is of no input or output, or the two have other types or shapes.
    """
    check_type("states", states, Mapping, "a dictionary of outputs by input")
    for state, following in states.items():
        for kind, name, names in (
            ("input", state, graph.inputs),
            ("output", following, graph.outputs),
        ):
            check_type(f"an {kind} of states", name, str, "a name")
            if name not in names:
                raise ValueError(
                    f"states has {name!r}, which is not an {kind} of the graph{near(name, names)}"
                )
        before, after = graph.tensors[state], graph.tensors[following]
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            raise ValueError(
                f"states: input {state!r} is {before}, and output {following!r}, its next value, "
                f"is {after}: expected one type and shape"
            )


def ties_of_states(
    graph: Graph, states: Sequence[State], owners: Mapping[str, str]
) -> dict[str, str]:
    """The input whose scale each input and owner of a scale has that becomes a state, by name.

    States that are passed on to others, as in a delay line, share a scale.

    Args:
      graph: the float graph, from `simplify`.
      states: the states.
      owners: the tensor whose scale each tensor has where no state is tied to its next value.
    """
    ties: dict[str, str] = {}
    for state, following, *_ in states:
        if not graph.tensors[state].dtype.is_float:
            continue
        source = owners.get(following, following)  # constants have no owner yet
        if graph.tensors[source].values is not None:
            raise ValueError(
                f"states: output {following!r}, the next value of {state!r}, is constant"
            )
        joined = {ties.get(name, name) for name in (state, source)}
        owner = min(joined.intersection(graph.inputs), key=graph.inputs.index)
        ties |= dict.fromkeys((state, source), owner)
        ties = {name: owner if own in joined else own for name, own in ties.items()}
    return ties
