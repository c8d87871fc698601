"""A model as data, and the functions that run it."""
