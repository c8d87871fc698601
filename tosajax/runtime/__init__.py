"""Graphs as XLA runs them: compiled calls, batches and devices, files, tensors by name."""
