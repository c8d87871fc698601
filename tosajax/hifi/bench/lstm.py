"""The test bench of the LSTM layer (guide 5.9)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from tosajax.hifi.bench import _recurrent, _reference
from tosajax.hifi.bench._job import Job
from tosajax.hifi.bench._options import path
from tosajax.hifi.layers import LSTMConfig, LSTMParam, LSTMWeights, lstm_pointers

ABOUT = f"""The LSTM layer.

{_recurrent.FILES_ABOUT} w_xf.bin, w_hf.bin and b_f.bin, and the same of i, c and o.
Files of cells hold out_feats numbers of 32 bits, the cell after the last frame."""

OPTIONS = (
    *_recurrent.OPTIONS,
    path("prev_c_file", "the cell before the first frame, instead of zeros"),
    path("output_cell_file", "where the last cell goes"),
    path("ref_cell_file", "the last cell to verify against"),
)

_LAYER = _recurrent.Layer(
    name="lstm",
    config=LSTMConfig,
    weights=LSTMWeights,
    inputs=("w_xf", "w_xi", "w_xc", "w_xo"),
    pointers=lstm_pointers,
    params=LSTMParam,
    states={
        "prev_h": (LSTMParam.RESTORE_CONTEXT_OUTPUT, np.int16),
        "prev_c": (LSTMParam.RESTORE_CONTEXT_CELL, np.int32),
    },
    kept={"prev_c": "cell"},
    expected=_reference.lstm,
)


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    return _recurrent.job(_LAYER, options)
