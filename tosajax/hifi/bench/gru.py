"""The test bench of the GRU layer (guide 5.8)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from tosajax.hifi.bench import _recurrent, _reference
from tosajax.hifi.bench._job import Job
from tosajax.hifi.layers import GRUConfig, GRUParam, GRUWeights, gru_pointers

ABOUT = f"""The GRU layer.

{_recurrent.FILES_ABOUT} w_z.bin, u_z.bin and b_z.bin, and the same of r and h."""

OPTIONS = _recurrent.OPTIONS

_LAYER = _recurrent.Layer(
    name="gru",
    config=GRUConfig,
    weights=GRUWeights,
    inputs=("w_z", "w_r", "w_h"),
    pointers=gru_pointers,
    params=GRUParam,
    states={"prev_h": (GRUParam.RESTORE_CONTEXT, np.int16)},
    kept={},
    expected=_reference.gru,
)


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    return _recurrent.job(_LAYER, options)
