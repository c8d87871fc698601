"""The test bench of the network of one convolution (guide 5.11)."""

from __future__ import annotations

from types import SimpleNamespace

from tosajax.hifi.bench import _model
from tosajax.hifi.bench._job import Job
from tosajax.hifi.bench._model import Convolution

ABOUT = f"""A network that recognizes words: one convolution.

{_model.FILES_ABOUT}"""

OPTIONS = _model.OPTIONS


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    return _model.job("model_tiny_conv", [Convolution((10, 8), 2, 8)], options)
