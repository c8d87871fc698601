"""A JAX model of the HiFi 5 NN Library 1.3, in integers.

docs/hifi.md lists by family what the integers equal: the guide's definition, TFLite Micro, or, for
sigmoid, tanh and softmax in Q formats, the exact result within 1 LSB, as their coefficients are our
own.
"""

from __future__ import annotations

from tosajax.hifi.errors import NNLibParamError

__all__ = ["NNLibParamError"]
