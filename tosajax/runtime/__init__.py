"""Runs graphs on XLA: compiled calls, batches and devices, files, tensors by name."""
