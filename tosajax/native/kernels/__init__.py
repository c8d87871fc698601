"""The kernels: what each computes, as LLVM IR."""
