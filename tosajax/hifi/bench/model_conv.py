"""The test bench of the network of two convolutions (guide 5.11)."""

from __future__ import annotations

from types import SimpleNamespace

from tosajax.hifi.bench import _model
from tosajax.hifi.bench._job import Job
from tosajax.hifi.bench._model import Convolution

ABOUT = f"""A network that recognizes words: two convolutions, the maximum between them.

{_model.FILES_ABOUT}"""

OPTIONS = _model.OPTIONS


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    convolutions = Convolution((20, 8), 1, 64), Convolution((10, 4), 1, 64)
    return _model.job("model_conv", convolutions, options)
