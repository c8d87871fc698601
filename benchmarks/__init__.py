"""The speed of tosajax and of other programs for the same work: `python -m benchmarks.run`."""
