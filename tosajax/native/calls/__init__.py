"""Calls of kernels: their schedule, the handler that XLA calls, threads, machine code."""
