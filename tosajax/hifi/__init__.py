"""A JAX model of the HiFi 5 NN Library 1.3: the integers that its kernels and layers compute."""

from __future__ import annotations

from tosajax.hifi.errors import NNLibParamError

__all__ = ["NNLibParamError"]
