"""Mutants: `changes` is the vocabulary, `of_*` are the lists, `listing` samples others."""
