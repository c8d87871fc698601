"""Advice to users of primitives that TOSA cannot express."""

from __future__ import annotations

_KEY = "use a key that is a constant of the function, or pass the random numbers as an input"
_MATRIX = "compute the factors outside of the function, and close over them or pass them"
_SOLVE = "pass the inverse of the matrix, and multiply by it"
_DEVICES = "export the function of one device, without shard_map or pmap"
_COMPLEX = (
    "compute real and imaginary parts as two arrays; tosajax.ops.fft2d and rfft2d take and "
    "return them so, and a product with a constant matrix is a transform of any length"
)
_GRADIENT = "export the function, not its gradient, which tosajax.quant computes by itself"
_INPUT = "pass it as an input, or return it as an output"
_SERIES = "compute it of constants, or interpolate in a table of it"
_RAGGED = "pad the groups to one size, and multiply them in a batch"

_OF = {
    _KEY: (
        *("random_bits", "random_clone", "random_fold_in", "random_gamma", "random_seed"),
        *("random_split", "random_unwrap", "random_wrap", "rng_bit_generator", "rng_uniform"),
        "threefry2x32",
    ),
    _MATRIX: (
        *("cholesky", "cholesky_update", "eig", "eigh", "geqp3", "geqrf", "hessenberg"),
        *("householder_product", "lu", "lu_pivots_to_permutation", "ormqr", "qr", "schur"),
        *("svd", "symmetric_product", "tridiagonal"),
    ),
    _SOLVE: ("triangular_solve", "tridiagonal_solve"),
    _DEVICES: (
        *("all_gather", "all_gather_invariant", "all_to_all", "axis_index", "pbroadcast"),
        *("pgather", "pmax", "pmin", "ppermute", "psum", "psum_invariant", "ragged_all_to_all"),
        *("reduce_scatter", "shard_map"),
    ),
    _COMPLEX: ("complex", "conj", "fft", "imag", "real"),
    _GRADIENT: ("select_and_scatter",),
    _INPUT: ("infeed", "outfeed"),
    _SERIES: (
        *("bessel_i0e", "bessel_i1e", "digamma", "igamma", "igamma_grad_a", "igammac", "lgamma"),
        *("polygamma", "regularized_incomplete_beta", "zeta"),
    ),
    _RAGGED: ("ragged_dot", "ragged_dot_general"),
}
HINTS = {name: hint for hint, names in _OF.items() for name in names}
