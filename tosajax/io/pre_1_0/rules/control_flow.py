"""Rules of "Control Flow Operators": the attributes that name graphs are renamed."""

from __future__ import annotations

from tosajax.io.pre_1_0.step import Step


def cond_if(step: Step) -> None:
    """Upgrades COND_IF; a condition of rank 0 stays legal."""
    then_graph, else_graph = step.get("then_branch"), step.get("else_branch")
    step.emit("COND_IF", step.node.inputs, then_graph=then_graph, else_graph=else_graph)


def while_loop(step: Step) -> None:
    cond_graph, body_graph = step.get("cond_branch"), step.get("body_branch")
    step.emit("WHILE_LOOP", step.node.inputs, cond_graph=cond_graph, body_graph=body_graph)
