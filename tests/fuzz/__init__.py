"""Attacks on everything that tosajax reads."""
