"""Graphs made of JAX functions."""
