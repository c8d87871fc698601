"""A JAX model of the HiFi 5 NN Library 1.3, in integers.

Integer results follow the definitions in the library's guide or in TFLite Micro; docs/hifi.md lists
the source for each family. In Q formats sigmoid, tanh and softmax use tosajax's own coefficients,
and are within 1 LSB of the exact result.
"""

from __future__ import annotations

from tosajax.hifi.errors import NNLibParamError

__all__ = ["NNLibParamError"]


def __dir__() -> list[str]:
    return [*__all__, "bench", "capi", "custom", "kernels", "layers", "to_tosa", "training"]
