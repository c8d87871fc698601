"""Checks of users' arguments: types, names, arrays and numbers."""
