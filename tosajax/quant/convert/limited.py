"""Tensors that functions alone read, and whose range need not hold more than changes these."""

from __future__ import annotations

from tosajax.quant.convert.converter import Converter
from tosajax.quant.graphs.blocks import readers_by_tensor


def read_by_functions_alone(c: Converter) -> dict[str, tuple[str, ...]]:
    """The functions that alone read a tensor, moved or not, by tensors with a scale of their own.

    Those whose range is that of another tensor as well, as of a loop's state, are left out, and so
    are inputs, outputs and those whose range other passes decide on.
    """
    readers, read_by = readers_by_tensor(c.graph), dict[str, list[str]]()
    for function in c.functions.values():
        read_by.setdefault(function.source, []).append(function.output)
    sharing: dict[str, list[str]] = {}
    for name in c.graph.tensors:
        if name in c.owners:
            sharing.setdefault(c.owners[name], []).append(name)
    decided = {*c.graph.inputs, *c.graph.outputs, *c.act_specs.relevances, *c.act_specs.masked}
    limited = {}
    for owner, names in sharing.items():
        outputs = [output for name in names for output in read_by.get(name, ())]
        nodes = [node for name in names for node in readers.get(name, ())]
        others = {name for node in nodes for name in node.outputs} - c.covered - {*names}
        is_free = not c.scaled[owner].observed and not c.scaled[owner].spec.observer.is_fixed
        if outputs and not others and is_free and decided.isdisjoint(names):
            limited[owner] = tuple(outputs)
    return limited
