"""LLVM IR as text: a builder, instruction sets, and what kernels have in common."""
