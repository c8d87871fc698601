"""Checks users' arguments: types, names, arrays and numbers."""
