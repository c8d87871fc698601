"""Oracles: the operators in Python integers and float64 NumPy, written like their definitions."""
