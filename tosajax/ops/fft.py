"""Fourier transforms ("Tensor Operators", TOSA 1.0.1).

Nothing is normalized. Errors are of the size of float32 rounding of the whole plane, whatever
`local_bound`, and less than the specification's test data allow in either case.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops.recording import recorded

# XLA:CPU transforms so many lines side by side, and adds up lines that are left over in another
# order. A multiple leaves none, so that an example has the same bits alone and in a batch.
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
      local_bound: of no effect.

    Returns:
      The real and the imaginary part, float32, [N, H, W]. All of a plane is NaN where any of
      its input is NaN or infinite.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x = jnp.ones((1, 2, 2), jnp.float32)
      >>> real, imag = tosajax.ops.fft2d(x, x, inverse=False)
      >>> real.tolist(), imag.tolist()
      ([[[4.0, 0.0], [0.0, 0.0]]], [[[4.0, 0.0], [0.0, 0.0]]])
    """
    # With its parts exchanged, before and after, a transform has the other sign of exponent.
    first, second = (input_imag, input_real) if inverse else (input_real, input_imag)
    n, sizes = first.shape[0], first.shape[1:]
    planes = lax.pad(lax.complex(first, second), np.complex64(0), _more_planes(n, sizes))
    result = lax.fft(planes, lax.FftType.FFT, sizes)[:n]
    # A NaN must reach every element; a transform of few steps does not spread infinities so far.
    finite = jnp.all(jnp.isfinite(first) & jnp.isfinite(second), axis=(1, 2), keepdims=True)
    real, imag = (jnp.where(finite, x, np.float32(np.nan)) for x in (result.real, result.imag))
    return (imag, real) if inverse else (real, imag)


@recorded
def rfft2d(input_real: jax.Array, *, local_bound: bool = False) -> tuple[jax.Array, jax.Array]:
    """Transforms real planes, to the half that determines the rest (TOSA 1.0.1, "RFFT2D").

    Args:
      input_real: float32, [N, H, W]; H and W powers of two.
      local_bound: of no effect.

    Returns:
      The real and the imaginary part, float32, [N, H, W / 2 + 1]. All of a plane is NaN where
      any of its input is NaN or infinite.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> real, imag = tosajax.ops.rfft2d(jnp.ones((1, 4, 8), jnp.float32))
      >>> real.shape, real[0, 0, 0].item()
      ((1, 4, 5), 32.0)
    """
    columns = input_real.shape[2] // 2 + 1
    # A transform of reals has W / 2 + 1 columns, so that some lines are always left over.
    real, imag = fft2d(input_real, jnp.zeros_like(input_real), inverse=False)
    return real[:, :, :columns], imag[:, :, :columns]


def _more_planes(n: int, sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Padding to a multiple of _LINES rows, and columns, in all planes."""
    unit = max(_LINES // min(sizes), 1)
    return [(0, -n % unit, 0), (0, 0, 0), (0, 0, 0)]
