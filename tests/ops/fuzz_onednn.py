"""Random products of int8 by oneDNN, beside NumPy: a test for new versions of jaxlib.

    python tests/ops/fuzz_onednn.py --cases 2000 --seed 7

Exits 1 if a sum differs. Run it also with NPROC=16: XLA then has so many threads, and oneDNN shares
work among them in other ways.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from oracle.int8_products import extreme, raised_sums, wide

from tosajax.ops._window import Window
from tosajax.ops.routes import onednn

_CHANNELS = (4, 5, 8, 16, 17, 32, 33, 64, 100, 129)
_RESULTS = (1, 2, 3, 10, 16, 17, 32, 48, 64, 65, 128)
_LENGTHS = (1, 2, 3, 5, 64, 129, 1000, 1024, 1025, 5000)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    different = sum(
        not (_dot if rng.random() < 0.3 else _convolution)(rng) for _ in range(options.cases)
    )
    print(f"{options.cases} cases, {different} differ")
    return int(different > 0)


def _dot(rng: np.random.Generator) -> bool:
    batch = tuple(rng.integers(1, 4, rng.integers(3)))
    m, k, n = rng.choice([1, 2, 3, 8, 64, 100]), rng.choice(_LENGTHS), rng.choice(_RESULTS)
    a, b, transposed = (
        _values(rng, (*batch, m, k)),
        _values(rng, (*batch, k, n)),
        rng.random() < 0.5,
    )
    given = np.swapaxes(b, -1, -2).copy() if transposed else b
    constant = rng.random() < 0.5

    def product(a, b):
        return onednn.dot(a, given if constant else b, transposed=transposed)

    found = jax.jit(product)(a, given)
    return _same(found, wide(a) @ wide(b), ("dot", a.shape, b.shape, transposed, constant))


def _convolution(rng: np.random.Generator) -> bool:
    while True:
        size, dilation = rng.integers(1, 8, 2), rng.choice([1, 1, 1, 2, 3], 2)
        reach = (size - 1) * dilation
        pad = [(int(rng.integers(r + 1)), int(rng.integers(r + 1))) for r in reach]
        window = Window(
            (int(size[0]), int(size[1])),
            (int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 1, 2, 3]))),
            (int(dilation[0]), int(dilation[1])),
            (pad[0], pad[1]),
        )
        lengths = [int(r) + 1 + int(rng.integers(rng.choice([2, 20]))) for r in reach]
        shape = (int(rng.choice([1, 2, 5])), *lengths, int(rng.choice(_CHANNELS)))
        x = _values(rng, shape)
        weight = _values(rng, (*window.size, shape[-1], int(rng.choice(_RESULTS))))
        if onednn.convolves(np.moveaxis(weight, -1, 0)) and onednn.pads(lengths, window):
            break
    found = jax.jit(lambda x, weight: onednn.convolution(x, weight, window))(x, weight)
    case = ("convolution", x.shape, weight.shape, window)
    return _same(found, raised_sums(x, weight, window), case)


def _values(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    match rng.integers(4):
        case 0:
            return rng.choice(np.array([-128, 127], np.int8), shape)
        case 1:
            return np.full(shape, rng.choice([-128, 127]), np.int8)
        case 2:
            return extreme(rng, shape)
        case _:
            return rng.integers(-128, 128, shape).astype(np.int8)


def _same(found: jax.Array, wanted: np.ndarray, case: object) -> bool:
    same = np.array_equal(found, wanted.astype(np.int32))
    if not same:
        print(case, "differs by at most", np.abs(wide(found) - wanted).max(), flush=True)
    return same


if __name__ == "__main__":
    sys.exit(main())
