"""Mutants: `changes` is the vocabulary, `listed_*` name them, `sampled` draws others."""
