"""Runs a real int8 network over a whole test set and compares it with Arm's reference model.

The network is a CNN with depthwise convolutions, trained on 8x8 digits and lowered to TOSA by
ExecuTorch. Prints the accuracy against the labels, the agreement with the reference outputs, and
images per second; exits 1 unless every output equals the reference, bit for bit.

    python examples/run_int8_network.py
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import jax
import numpy as np

import tosajax

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
ROUNDS = 20


def main() -> int:
    """Returns the exit status."""
    graph = tosajax.load(DATA / "et_digits_cnn_a8w8" / "model.tosa")
    images = np.load(DATA / "digits_test" / "inputs_0.npy")
    labels = np.load(DATA / "digits_test" / "labels.npy")
    reference = np.load(DATA / "digits_test" / "expected_ref_0.npy")

    started = time.perf_counter()
    run = tosajax.compile(graph, batch=len(images))
    (outputs,) = run(images)
    scores = np.asarray(outputs)
    first = time.perf_counter() - started

    batch = jax.device_put(images)
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        jax.block_until_ready(run(batch))
        seconds.append(time.perf_counter() - started)

    correct = (scores.argmax(axis=1) == labels).mean()
    equal = (scores == reference).mean()
    rate = len(images) / statistics.median(seconds)
    print(f"network     {graph.source.format} {graph.source.version}, {len(graph.nodes)} nodes")
    print(f"images      {len(images)} of 8x8, int8")
    print(f"accuracy    {correct:.2%} against the labels")
    print(f"agreement   {equal:.2%} of the outputs equal Arm's reference model")
    print(f"speed       {rate:,.0f} images/s (median of {ROUNDS} runs)")
    print(f"first run   {first:.2f} s, compilation included")
    return 0 if equal == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
