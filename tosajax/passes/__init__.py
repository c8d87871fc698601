"""Graphs made of graphs before they are lowered: bound, folded, for one example."""
