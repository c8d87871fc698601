"""Exports JAX functions as TOSA graphs."""
