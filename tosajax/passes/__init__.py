"""Passes over a graph before it is lowered: binding, folding, one example, loop trip counts."""
