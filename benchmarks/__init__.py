"""Speed of tosajax beside that of other programs for the same work: `python -m benchmarks.run`."""
