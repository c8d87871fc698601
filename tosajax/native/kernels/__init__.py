"""Kernels: one file for each operator, and the parts that they share.

`convolution`, `depthwise`, `matmul`, `addition` and `pool` each have a `KernelKey`, which is all
that the machine code depends on, `Fields`, the sizes that it reads from its plan, and `module_of`,
which writes the kernel as an LLVM module. `gemm_tile` computes the accumulators of a tile,
`epilogue` turns them into results, `fused_add` adds other values to these, and `row_block` copies
input rows.

A kernel computes one work item in a call: some rows, columns or elements of the output. `tiling`
decides how large items are, and `calls` shares them among threads.
"""
