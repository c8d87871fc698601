"""Fourier transforms ("Tensor Operators", TOSA 1.0.1).

Results are not normalized. Errors are about the float32 rounding error of the whole plane, for
either value of `local_bound`, and below the specification's bounds for its test data in both cases.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops.recording import recorded

# XLA:CPU transforms this many lines at once, and sums the remaining lines in another order. With a
# multiple of it no lines remain, so an example has the same bits alone and in a batch.
_LINES = 16


@recorded
def fft2d(
    input_real: jax.Array,
    input_imag: jax.Array,
    *,
    inverse: bool,
    local_bound: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Transforms complex planes (TOSA 1.0.1, "FFT2D").

    Args:
      input_real: float32, [N, H, W]; H and W powers of two.
      input_imag: float32, [N, H, W].
      inverse: whether the exponent is positive.
      local_bound: has no effect.

    Returns:
      The real and the imaginary part, float32, [N, H, W]. A plane is NaN throughout if one of its
      input elements is NaN or infinite.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x = jnp.ones((1, 2, 2), jnp.float32)
      >>> real, imag = tosajax.ops.fft2d(x, x, inverse=False)
      >>> real.tolist(), imag.tolist()
      ([[[4.0, 0.0], [0.0, 0.0]]], [[[4.0, 0.0], [0.0, 0.0]]])
    """
    # Exchanging the real and imaginary parts before and after flips the sign of the exponent.
    first, second = (input_imag, input_real) if inverse else (input_real, input_imag)
    n, sizes = first.shape[0], first.shape[1:]
    planes = lax.pad(lax.complex(first, second), np.complex64(0), _more_planes(n, sizes))
    result = lax.fft(planes, lax.FftType.FFT, sizes)[:n]
    # A NaN must reach every element; a small transform does not spread infinities that far.
    finite = jnp.all(jnp.isfinite(first) & jnp.isfinite(second), axis=(1, 2), keepdims=True)
    real, imag = (jnp.where(finite, x, np.float32(np.nan)) for x in (result.real, result.imag))
    return (imag, real) if inverse else (real, imag)


@recorded
def rfft2d(input_real: jax.Array, *, local_bound: bool = False) -> tuple[jax.Array, jax.Array]:
    """Transforms real planes; returns the half that determines the rest (TOSA 1.0.1, "RFFT2D").

    Args:
      input_real: float32, [N, H, W]; H and W powers of two.
      local_bound: has no effect.

    Returns:
      The real and the imaginary part, float32, [N, H, W / 2 + 1]. A plane is NaN throughout if one
      of its input elements is NaN or infinite.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> real, imag = tosajax.ops.rfft2d(jnp.ones((1, 4, 8), jnp.float32))
      >>> real.shape, real[0, 0, 0].item()
      ((1, 4, 5), 32.0)
    """
    columns = input_real.shape[2] // 2 + 1
    # XLA's real transform has W / 2 + 1 columns, which is not a multiple of _LINES.
    real, imag = fft2d(input_real, jnp.zeros_like(input_real), inverse=False)
    return real[:, :, :columns], imag[:, :, :columns]


def _more_planes(n: int, sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """The padding that makes the rows, and the columns, of all planes a multiple of _LINES."""
    unit = max(_LINES // min(sizes), 1)
    return [(0, -n % unit, 0), (0, 0, 0), (0, 0, 0)]
