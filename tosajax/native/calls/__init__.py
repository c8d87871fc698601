"""Calls: how compiled kernels run inside a program of XLA's.

A call runs one kernel, or a chain of kernels in sequence. `schedule` plans it: rounds, memory, and
an operand of int64 words that describes both. `compiler` turns LLVM modules into machine code,
keeps it in memory and on disk, and registers an entry for each kind of call as a target of XLA's
foreign function interface (FFI).

At run time XLA calls that entry, which calls the common `handler`. The handler reads the words, and
shares the work items of each round among threads of XLA's pool and the workers that `threads` has
parked after an earlier call. All of this is machine code; Python takes no part in it.
"""
