"""What training of scales needs beside an optimizer."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from tosajax.quant.qparams import QParams
from tosajax.quant.recipes import Params


def relative_steps(updates: Params, params: Params) -> Params:
    """An optimizer's updates, those of scales and of bits as shares of what they are.

    Scales differ by orders of magnitude, and a step that suits a weight would throw them over;
    they stay positive as long as a step is below 1. Bits would hardly move. For optimizers such
    as Adam, whose updates do not depend on the size of gradients.

    Args:
      updates: of the structure of params, to be added to them.
      params: before the update.
    """

    def steps(update: QParams, qparams: QParams) -> QParams:
        scale, bits = update.scale * qparams.scale, update.bits * qparams.bits
        return dataclasses.replace(update, scale=scale, bits=bits)

    qparams = jax.tree.map(steps, updates["qparams"], params["qparams"], is_leaf=_is_qparams)
    return {**updates, "qparams": qparams}


def _is_qparams(x: Any) -> bool:
    return isinstance(x, QParams)
