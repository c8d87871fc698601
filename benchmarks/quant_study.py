"""How accurate quantized networks are: `python -m benchmarks.quant_study [NETWORK ...]`

Trains networks in float32 on generated images (`examples/textures.py`), quantizes them to few bits
in four ways, and measures the accuracy of the integer graph of each:

- nearest: calibrated, weights rounded to nearest;
- learned: rounding and scales learned block by block from the float network, without labels;
- fake: trained in floats that are rounded to the values of integers, then converted;
- exact: trained on the integers of the graph.

"fake" and "exact" start from "nearest", see the same images in the same order, and have the same
optimizer and number of steps. The exact one is compared with its frozen graph in tosajax and in
Arm's reference model, tensor by tensor. MobileNet in W2A4 rounded to nearest is no better than
chance, so that both are also trained from "learned" there.

W2A4 is 2 bits of weights and 4 of activations. The first and the last layer have 8-bit weights, the
images and the scores 8 bits, as is usual; and in the transformer all but the operands of its
products.

Results are written after each row, and rows that are there already are not computed again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import float_networks, study_report
from examples import textures
from tosajax import Graph, reference_model
from tosajax import quant as tq
from tosajax.atomic import replacing

SETTINGS = {"W8A8": (8, 8), "W4A8": (4, 8), "W4A4": (4, 4), "W2A4": (2, 4)}
# The settings in which training also starts from what reconstruction learned.
_RECONSTRUCTED = {"mobilenet": ("W2A4",), "transformer": ()}
# The convolutions that are trained with a batch norm; without them transformers learn slowly.
_NORMED = {"mobilenet": "stem|block|last", "transformer": "stem|halved|tokens"}
# Weights and activations of 8 bits in every setting, and activations that products read.
_WIDE = "^image|^stem|^scores"
_OPERANDS = "(relu6|project|sum|normed|query|key|value|shares|weighted|gelu)$|^avg_pool2d"
# Images that are compared at a time: Arm's model keeps every tensor of them.
_COMPARED = 8


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much of everything.

    Args:
      networks: makes the graph of each, given a seed.
      train: images to train with.
      test: images to measure with.
      batch: images of a step.
      float_steps: of training in float32, by network.
      tuned_steps: of training after quantization.
      learned_steps: of learning the rounding of a block.
      calibrated: images to calibrate with, and to learn the rounding.
      elements: to compare with each other program, at least.
      rate: of float training; after quantization a fifth.
    """

    networks: dict[str, Callable[[int], Graph]]
    train: int
    test: int
    batch: int
    float_steps: dict[str, int]
    tuned_steps: int
    learned_steps: int
    calibrated: int
    elements: int
    rate: float = 2e-3


FULL = Sizes(
    networks={
        "mobilenet": lambda seed: float_networks.mobilenet(seed),
        "transformer": lambda seed: float_networks.transformer(seed),
    },
    train=16_000,
    test=4_000,
    batch=80,
    float_steps={"mobilenet": 1600, "transformer": 2400},
    tuned_steps=240,
    learned_steps=200,
    calibrated=480,
    elements=10_000_000,
)
QUICK = Sizes(
    networks={
        "mobilenet": lambda seed: float_networks.mobilenet(
            seed, blocks=((1, 8, 2), (2, 8, 1)), last=16
        ),
        "transformer": lambda seed: float_networks.transformer(seed, blocks=1, width=16, heads=2),
    },
    train=256,
    test=64,
    batch=16,
    float_steps=dict.fromkeys(("mobilenet", "transformer"), 20),
    tuned_steps=4,
    learned_steps=2,
    calibrated=16,
    elements=1,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table of accuracies; returns 1 if an integer differs between programs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0] + ".")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(FULL.networks))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--settings", nargs="*", metavar="BITS", help="none: float32 alone")
    parser.add_argument("--ways", nargs="+", choices=study_report.WAYS, default=study_report.WAYS)
    parser.add_argument("--quick", action="store_true", help="one seed, W2A4, tiny sizes")
    parser.add_argument("--out", type=Path, help="a JSON file of results, to go on from as well")
    parser.add_argument("--plot", type=Path, help="a picture of them")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    if unknown := set(options.networks) - set(sizes.networks):
        parser.error(f"no network {', '.join(sorted(unknown))}")
    seeds, settings = options.seeds, options.settings
    seeds = range(1 if options.quick else 3) if seeds is None else seeds
    settings = list(SETTINGS)[-1 if options.quick else 0 :] if settings is None else settings
    if unknown := set(settings) - set(SETTINGS):
        parser.error(f"no setting {', '.join(sorted(unknown))}, expected some of {[*SETTINGS]}")
    results, images = Results(options.out, sizes), Images(sizes)
    for seed in seeds:
        for name in options.networks or sizes.networks:
            _study(results, images, name, seed, settings, options.ways)
    print(study_report.table(results.rows))
    if options.plot:
        study_report.plot(results.rows, textures.BEST_ACCURACY, options.plot)
    return 1 if any(row.get("mismatches") for row in results.rows.values()) else 0


class Results:
    """Rows by name, written to a file after each, and arrays beside it."""

    def __init__(self, path: Path | None, sizes: Sizes) -> None:
        self._path = path
        self._arrays: dict[str, dict[str, np.ndarray]] = {}
        numbers = dataclasses.asdict(dataclasses.replace(sizes, networks={}))
        self._all: dict[str, Any] = {"sizes": numbers, "rows": {}}
        if path and path.exists():
            found = json.loads(path.read_text())
            if found["sizes"] != numbers:
                raise ValueError(f"{path} has results of other sizes: {found['sizes']}")
            self._all = found

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        return self._all["rows"]

    def row(self, name: str, compute: Callable[[], dict[str, Any]]) -> None:
        """Computes a row, if it is not there, and writes it."""
        if name in self.rows:
            return
        started = time.perf_counter()
        row = compute()
        self.rows[name] = row | {"seconds": round(time.perf_counter() - started, 1)}
        shown = ", ".join(f"{key} {value:.6g}" for key, value in self.rows[name].items())
        print(f"{name}: {shown}", flush=True)
        if self._path:
            with replacing(self._path, "w") as file:
                json.dump(self._all, file, indent=1)

    def arrays(
        self, name: str, compute: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Arrays by name, from a file beside the results if they are there."""
        path = self._path and self._path.with_suffix(f".{name}.npz")
        if path and path.exists():
            with np.load(path) as file:
                return dict(file)
        if name not in self._arrays:
            self._arrays[name] = compute()
        if path:
            with replacing(path) as file:
                np.savez(file, **self._arrays[name])
        return self._arrays[name]


class Images:
    """Generated images, in bytes; in floats only a batch at a time."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._pixels, self._labels = textures.images(sizes.train + sizes.test, seed=0)

    def batches(self, steps: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Images to train with and labels, epoch after epoch, each in another order."""
        rng, size = np.random.default_rng(seed), self.sizes.batch
        each = self.sizes.train // size
        order = np.arange(0)
        for step in range(steps):
            if step % each == 0:
                order = rng.permutation(self.sizes.train)
            rows = order[step % each * size :][:size]
            yield textures.to_float(self._pixels[rows]), self._labels[rows]

    def unlabelled(self) -> Iterator[np.ndarray]:
        """Images to calibrate with, in batches."""
        return self._floats(0, self.sizes.calibrated)

    def test(self, batch: int | None = None) -> Iterator[np.ndarray]:
        """Images to measure with, in batches."""
        return self._floats(self.sizes.train, self.sizes.train + self.sizes.test, batch)

    def accuracy(self, predictions: np.ndarray) -> float:
        """Of predictions of the labels of `test`."""
        return float((predictions == self._labels[self.sizes.train :]).mean())

    def _floats(self, start: int, stop: int, batch: int | None = None) -> Iterator[np.ndarray]:
        size = batch or self.sizes.batch
        for at in range(start, stop, size):
            yield textures.to_float(self._pixels[at : min(at + size, stop)])


def _study(
    results: Results,
    images: Images,
    name: str,
    seed: int,
    settings: Sequence[str],
    ways: Sequence[str],
) -> None:
    """The rows of a network and a seed."""
    graph = images.sizes.networks[name](seed)

    def trained() -> dict[str, np.ndarray]:
        return results.arrays(f"{name}-{seed}", lambda: _trained_values(graph, images, name, seed))

    def of_floats() -> dict[str, Any]:
        model = tq.prepare(graph)
        params = {"values": {key: jnp.asarray(value) for key, value in trained().items()}}
        predictions = _Predictor(model, images, "float")(params)
        return {"accuracy": images.accuracy(predictions)}

    results.row(f"{name}/{seed}/float", of_floats)
    for setting in settings:
        tuning = _Tuning(graph, images, setting, seed, trained)
        for way in ways:
            results.row(f"{name}/{seed}/{setting}/{way}", getattr(tuning, way))
        if setting in _RECONSTRUCTED[name]:
            for way in (way for way in ("fake", "exact") if way in ways):
                compute = functools.partial(getattr(tuning, way), learned=True)
                results.row(f"{name}/{seed}/{setting}, reconstructed first/{way}", compute)


def _trained_values(graph: Graph, images: Images, name: str, seed: int) -> dict[str, np.ndarray]:
    """The constants of a network after training in float32, its batch norms folded."""
    steps = images.sizes.float_steps[name]
    model = tq.prepare(graph, batch_norms=_NORMED[name])
    params = tq.calibrate(model, [next(images.unlabelled())])
    norms = {key: _fresh(norm) for key, norm in params["norms"].items()}
    found = tq.fit(
        model,
        {**params, "norms": norms},
        images.batches(steps, seed),
        _loss,
        steps=steps,
        optimizer=_optimizer(images.sizes.rate, steps),
        mode="float",
        schedule=tq.Schedule(batch_statistics=steps),
        every=max(steps // 10, 1),
        on_state=_Clock(f"{name}/{seed}/float", steps),
    ).params
    found = tq.estimate_norms(model, found, images.unlabelled(), mode="float")
    return {key: np.asarray(value) for key, value in _folded(model, found).items()}


def _fresh(norm: tq.Norm) -> tq.Norm:
    """Without its own factor and shift, as networks are trained from the start."""
    one = jnp.ones_like(norm.gamma)
    return dataclasses.replace(norm, gamma=one, beta=jnp.zeros_like(one))


def _folded(model: tq.QModel, params: Any) -> dict[str, jax.Array]:
    """The constants of the float graph, with the batch norms of the parameters in them."""
    values = dict(params["values"])
    for output, norm in params.get("norms", {}).items():
        conv = model.plan.norms[output]
        weight = values[conv.weight]
        lengths = [n if axis in conv.channel_axes else 1 for axis, n in enumerate(weight.shape)]
        values[conv.weight] = weight * norm.factor.reshape(lengths)
        values[conv.bias] = norm(values[conv.bias])
    return values


def _optimizer(rate: float, steps: int) -> Any:
    rates = optax.warmup_cosine_decay_schedule(0, rate, steps // 20, steps)
    return tq.relative(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rates, weight_decay=1e-4))
    )


def _loss(outputs: Sequence[jax.Array], labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(outputs[0], labels).mean()


class _Clock:
    """Prints how far a training run is."""

    def __init__(self, title: str, steps: int) -> None:
        self._title, self._steps, self._start = title, steps, time.perf_counter()

    def __call__(self, state: tq.FitState) -> None:
        seconds = time.perf_counter() - self._start
        print(
            f"  {self._title}: step {int(state.step)} of {self._steps}, {seconds:.0f} s", flush=True
        )


class _Predictor:
    """The labels that a model gives to the images to measure with."""

    def __init__(self, model: tq.QModel, images: Images, mode: tq.Mode) -> None:
        self._images = images
        self._scores = jax.jit(lambda p, x: model.apply(p, x, mode=mode)[0])

    def __call__(self, params: Any) -> np.ndarray:
        found = [np.asarray(self._scores(params, x)) for x in self._images.test()]
        return np.concatenate(found).argmax(-1)


@dataclasses.dataclass(frozen=True, eq=False)
class _Tuning:
    """A trained network in one setting of bits."""

    graph: Graph
    images: Images
    setting: str
    seed: int
    trained: Callable[[], dict[str, np.ndarray]]

    def nearest(self) -> dict[str, Any]:
        return {"accuracy": self._accuracy(self._start)}

    def learned(self) -> dict[str, Any]:
        return {"accuracy": self._accuracy(self._learned)}

    def fake(self, *, learned: bool = False) -> dict[str, Any]:
        params = self._tuned("fake_quant", learned)
        before = _Predictor(self._model, self.images, "fake_quant")(params)
        converted = tq.sample_tables(self._model, params)
        after = self._exact(converted)
        return {
            "accuracy": self.images.accuracy(after),
            "before": self.images.accuracy(before),
            "changed": float((before != after).mean()),
        }

    def exact(self, *, learned: bool = False) -> dict[str, Any]:
        params = self._tuned("exact", learned)
        return {"accuracy": self._accuracy(params), **self._identity(params)}

    def _accuracy(self, params: Any) -> float:
        return self.images.accuracy(self._exact(params))

    def _tuned(self, mode: tq.Mode, learned: bool) -> Any:
        sizes = self.images.sizes
        title = f"{self.graph.name}/{self.seed}/{self.setting}/{mode}"
        return tq.fit(
            self._model,
            self._learned if learned else self._start,
            self.images.batches(sizes.tuned_steps, self.seed + 1000),
            _loss,
            steps=sizes.tuned_steps,
            optimizer=_optimizer(sizes.rate / 5, sizes.tuned_steps),
            mode=mode,
            every=max(sizes.tuned_steps // 5, 1),
            on_state=_Clock(title, sizes.tuned_steps),
        ).params

    def _identity(self, params: Any) -> dict[str, Any]:
        """Elements that were compared with each other program, and how many differ."""
        elements = mismatches = 0
        programs = _programs()
        for images in self.images.test(_COMPARED):
            found = tq.check_bit_exact(self._model, params, images, against=programs)
            elements += found.elements // len(programs)
            mismatches += found.mismatches
            if elements >= self.images.sizes.elements:
                break
        return {"elements": elements, "mismatches": mismatches, "programs": len(programs)}

    @functools.cached_property
    def _model(self) -> tq.QModel:
        return tq.prepare(self.graph, rules(*SETTINGS[self.setting]))

    @functools.cached_property
    def _start(self) -> Any:
        return tq.calibrate(self._model, self.images.unlabelled(), values=self.trained())

    @functools.cached_property
    def _learned(self) -> Any:
        batches, steps = list(self.images.unlabelled()), self.images.sizes.learned_steps
        return tq.reconstruct(self._model, self._start, batches, steps=steps)

    @functools.cached_property
    def _exact(self) -> _Predictor:
        return _Predictor(self._model, self.images, "exact")


def rules(weight_bits: int, act_bits: int) -> list[tq.Rule]:
    """Rules with these bits; see the top of this file for what has 8 in any case."""

    def weight(bits: int) -> tq.QSpec:
        dtype = "i4" if bits <= 4 else "i8"
        options = {"per_channel": True, "narrow_range": True, "observer": tq.mse()}
        return tq.QSpec(dtype, bits=bits, **options)

    def act(bits: int) -> tq.QSpec:
        return tq.QSpec("i8", bits=bits, symmetric=False, observer=tq.mse())

    return [
        tq.rule(".*", weight=weight(weight_bits), act=act(8)),
        tq.rule(_OPERANDS, act=act(act_bits)),
        tq.rule(_WIDE, weight=weight(8), act=act(8)),
    ]


def _programs() -> tuple[str, ...]:
    """The programs to compare with; Arm's model where it is installed."""
    return ("frozen", "reference_model") if reference_model.is_installed() else ("frozen",)


if __name__ == "__main__":
    sys.exit(main())
