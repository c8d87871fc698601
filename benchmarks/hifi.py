"""The cost of the recurrent layers of `tosajax.hifi`: `python -m benchmarks.hifi [--check]`.

With --differences nothing is timed: the outputs of "fixed" are compared with those of "ideal", for
docs/hifi.md.

GRU and LSTM of 256 inputs and 256 outputs, batch 64, 100 steps, under jit: beside an equal loop in
NumPy's int64, which has no BLAS for integers, and beside the same layer in float32. The loop
computes activations in float64, as "ideal" does; all outputs are compared before anything is
measured. The programs take turns in one process, and ratios are medians over the turns. --check
exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import machine, timing
from tosajax.hifi.layers import (
    GRUConfig,
    GRUState,
    GRUWeights,
    LSTMConfig,
    LSTMState,
    LSTMWeights,
    Precision,
    gru_scan,
    gru_scan_float,
    lstm_scan,
    lstm_scan_float,
)

SIZE, BATCH, STEPS = 256, 64, 100
# Of the comparison of activations.
FEW, SEQUENCES = 64, 16
COEFFICIENTS = {"16x16": np.int16, "8x16": np.int8}
TAGS = {"16x16": Precision.P16bx16b, "8x16": Precision.P8bx16b}
# Of GRU 16x16, on 2 cores.
LEAST_OF_NUMPY, MOST_OF_FLOAT = 100, 3
_ONE = 2**15 - 1


class Layer(NamedTuple):
    """A recurrent layer, in each of its forms.

    Args:
      config: the class of its configurations.
      weights: the class of its weights.
      state: zeros, by the types of its elements and their shape.
      exact: in integers.
      real: in floats.
      loop: in NumPy, from weights, inputs and fraction bits to the outputs.
    """

    config: Any
    weights: Any
    state: Callable[[Any, tuple[int, int]], Any]
    exact: Any
    real: Any
    loop: Callable[..., np.ndarray]


def main() -> int:
    """Prints seconds and ratios; returns 1 if --check finds a missed target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    text = 'compare the outputs of "fixed" and "ideal" instead'
    parser.add_argument("--differences", action="store_true", help=text)
    options = parser.parse_args()
    if options.differences:
        return _print_differences()
    check, found = options.check, {}
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"{machine.cores()} cores, load {load}")
    print(f"{'':12}{'fixed':>9}{'ideal':>9}{'float32':>9}{'NumPy':>9} ms   ratios")
    for name, layer in LAYERS.items():
        for precision in COEFFICIENTS:
            title = f"{name} {precision}"
            found[title] = ratios = _measure(title, programs(layer, precision))
            print(
                f"   {ratios['numpy']:.1f} x NumPy, as float32 is {ratios['float x numpy']:.1f} x; "
                f"{ratios['float']:.2f} of float32"
            )
    ratios = found["GRU 16x16"]
    met = ratios["numpy"] >= LEAST_OF_NUMPY, ratios["float"] <= MOST_OF_FLOAT
    wanted = f"at least {LEAST_OF_NUMPY} x NumPy", f"at most {MOST_OF_FLOAT} of float32"
    for holds, text in zip(met, wanted, strict=True):
        print(f"GRU 16x16, {text}: {'pass' if holds else 'MISS'}")
    return 1 if check and not all(met) else 0


def programs(layer: Layer, precision: str) -> dict[str, Callable[[], Any]]:
    """The programs by name; they have run, with equal outputs.

    Raises:
      RuntimeError: outputs that differ from those of the loop.
    """
    config, values, weights, inputs, xs = _drawn(layer, precision, SIZE, BATCH)
    fraction, shape = config.coeff_Qformat, (BATCH, SIZE)
    wide = {name: value.astype(np.int64) for name, value in weights.items()}
    real = layer.weights(**{name: value.astype(np.float32) for name, value in values.items()})
    integers = layer.weights(**weights), layer.state((np.int16, np.int32), shape), xs
    floats = real, layer.state((np.float32, np.float32), shape), inputs.astype(np.float32)
    found: dict[str, Callable[[], Any]] = {
        activation: _compiled(
            functools.partial(layer.exact, config, activation=activation), integers
        )
        for activation in ("fixed", "ideal")
    }
    found["float32"] = _compiled(layer.real, floats)
    found["NumPy"] = functools.partial(layer.loop, wide, xs.astype(np.int64), fraction)
    if not np.array_equal(found["ideal"](), found["NumPy"]()):
        raise RuntimeError("the outputs of the loop in NumPy differ")
    return found


def differences(layer: Layer, precision: str) -> tuple[float, int]:
    """The share of outputs of "fixed" that differ from "ideal", and the largest difference."""
    config, _, weights, _, xs = _drawn(layer, precision, FEW, SEQUENCES)
    state = layer.state((np.int16, np.int32), (SEQUENCES, FEW))
    fixed, ideal = (
        np.asarray(
            _compiled(
                functools.partial(layer.exact, config, activation=activation),
                (layer.weights(**weights), state, xs),
            )()
        ).astype(np.int32)
        for activation in ("fixed", "ideal")
    )
    found = np.abs(fixed - ideal)
    return float((found > 0).mean()), int(found.max())


def _print_differences() -> int:
    print(f"{FEW} inputs and outputs, {SEQUENCES} sequences of {STEPS} steps, random weights")
    for name, layer in LAYERS.items():
        for precision in COEFFICIENTS:
            share, most = differences(layer, precision)
            print(f"{name} {precision}: {share:.1%} of the outputs differ, by at most {most} LSB")
    return 0


def _drawn(layer: Layer, precision: str, size: int, batch: int) -> tuple[Any, ...]:
    """The configuration; weights as floats and as integers, by name; inputs in either form."""
    rng, dtype = np.random.default_rng(0), COEFFICIENTS[precision]
    fraction = np.iinfo(dtype).bits - 1
    config = layer.config(
        in_feats=size, out_feats=size, precision=TAGS[precision], coeff_Qformat=fraction
    )
    values = {
        name: rng.normal(0, 0.1, size if name.startswith("b_") else (size, size))
        for name in layer.weights._fields
    }
    weights = {
        name: np.rint(value * 2.0**15).astype(np.int16)
        if name.startswith("b_")
        else np.clip(np.rint(value * 2.0**fraction), -(2**fraction), 2**fraction - 1).astype(dtype)
        for name, value in values.items()
    }
    inputs = rng.normal(0, 0.8, (batch, STEPS, size))
    return (
        config,
        values,
        weights,
        inputs,
        np.rint(inputs * 2.0**config.io_Qformat).astype(np.int16),
    )


def _measure(title: str, runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Prints milliseconds; returns ratios of time, such as NumPy's to ours."""
    samples = timing.measure(runs, timing.FULL)
    seconds = {name: statistics.median(s.wall for s in found) for name, found in samples.items()}
    print(f"{title:12}" + "".join(f"{1e3 * s:9.1f}" for s in seconds.values()), end="", flush=True)

    def ratio(of: str, to: str) -> float:
        return timing.summary(samples[of], samples[to])["ratio"][1]

    return {
        "numpy": ratio("NumPy", "ideal"),
        "float x numpy": ratio("NumPy", "float32"),
        "float": ratio("fixed", "float32"),
    }


def _compiled(scan: Callable[..., Any], operands: tuple[Any, ...]) -> Callable[[], Any]:
    """The outputs for a batch."""
    run = jax.jit(jax.vmap(lambda *operands: scan(*operands)[1], (None, 0, 0)))
    on_device = jax.tree.map(jax.device_put, operands)

    def call() -> jax.Array:
        return jax.block_until_ready(run(*on_device))

    call()
    return call


# The layers in NumPy, in int64 except for the activations.


def _gru_loop(w: dict[str, np.ndarray], xs: np.ndarray, coeff: int, io: int = 12) -> np.ndarray:
    h, ys = np.zeros((BATCH, SIZE), np.int64), []
    for x in xs.swapaxes(0, 1):
        z = _sigmoid(_sums(x, w["w_z"], h, w["u_z"], w["b_z"], coeff, io))
        r = _sigmoid(_sums(x, w["w_r"], h, w["u_r"], w["b_r"], coeff, io))
        reset = r * h >> 15
        g = _tanh(_sums(x, w["w_h"], reset, w["u_h"], w["b_h"], coeff, io)) >> 15 - io
        h = np.clip((z * h >> 15) + ((_ONE - z) * g >> 15), -(2**15), _ONE)
        ys.append(h)
    return np.stack(ys, 1)


def _lstm_loop(w: dict[str, np.ndarray], xs: np.ndarray, coeff: int, io: int = 12) -> np.ndarray:
    h, c, ys = np.zeros((BATCH, SIZE), np.int64), np.zeros((BATCH, SIZE), np.int64), []
    for x in xs.swapaxes(0, 1):
        f, i, o, g = (
            _sums(x, w[f"w_x{gate}"], h, w[f"w_h{gate}"], w[f"b_{gate}"], coeff, io)
            for gate in "fioc"
        )
        f, i, o, g = _sigmoid(f), _sigmoid(i), _sigmoid(o), _tanh(g)
        c = np.clip(_half_away(c * f, 15) + (2 * i * g >> 6), -(2**31), 2**31 - 1)
        h = (o * _tanh(c) >> 15) >> 15 - io
        ys.append(h)
    return np.stack(ys, 1)


def _sums(x, of_x, h, of_h, bias, coeff: int, io: int) -> np.ndarray:
    """The sums of a gate in Q6.25."""
    total = x @ of_x.T + h @ of_h.T + (bias << coeff + io - 15)
    shift = 25 - coeff - io
    shifted = total << shift if shift >= 0 else _half_away(total, -shift)
    return np.clip(shifted, -(2**31), 2**31 - 1)


def _half_away(x: np.ndarray, amount: int) -> np.ndarray:
    return (x + (x >> 63) + (1 << amount - 1)) >> amount


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return _rounded(1 / (1 + np.exp(-x / 2.0**25)))


def _tanh(x: np.ndarray) -> np.ndarray:
    return _rounded(np.tanh(x / 2.0**25))


def _rounded(x: np.ndarray) -> np.ndarray:
    return np.minimum(np.floor(x * 2.0**15 + 0.5).astype(np.int64), _ONE)


LAYERS = {
    "GRU": Layer(
        config=GRUConfig,
        weights=GRUWeights,
        state=lambda types, shape: GRUState(np.zeros(shape, types[0])),
        exact=gru_scan,
        real=gru_scan_float,
        loop=_gru_loop,
    ),
    "LSTM": Layer(
        config=LSTMConfig,
        weights=LSTMWeights,
        state=lambda types, shape: LSTMState(*(np.zeros(shape, dtype) for dtype in types)),
        exact=lstm_scan,
        real=lstm_scan_float,
        loop=_lstm_loop,
    ),
}

if __name__ == "__main__":
    sys.exit(main())
