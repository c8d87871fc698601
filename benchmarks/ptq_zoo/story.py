r"""Draws what quantization does to a network that cuts people out: masks, and what remedies gained.

    python -m benchmarks.ptq_zoo.story selfie.mlir plain.tosa selfie.tosa --input new.npy \
        --remedies remedies.json --plot docs/pretrained.png

Takes the float graph, its integer graphs with and without `quant.auto`, images that neither has
seen, and what `tosajax quantize --json` wrote. Prints, of each integer graph, the SQNR and the
share of pixels on the same side of 1/2.
"""

# The plot needs matplotlib.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tosajax
from benchmarks.ptq_zoo import metrics, tasks
from tosajax.graph.quantization import dequantize

_SHOWN = 3  # images
_TITLES = ("photo", "floats", "W8A8 by defaults", "W8A8 by quant.auto")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the numbers and writes the plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graphs", nargs=3, type=Path, metavar="GRAPH")
    parser.add_argument("--input", type=Path, required=True, metavar="X.npy")
    parser.add_argument("--remedies", type=Path, required=True, metavar="FILE")
    parser.add_argument("--plot", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    images = np.load(options.input)
    masks = [_masks(tosajax.load(path), images) for path in options.graphs]
    for path, mask in zip(options.graphs[1:], masks[1:], strict=True):
        agree = tasks.mask(0.5).measure([masks[0]], [mask])
        print(f"{path.name}: {metrics.sqnr(masks[0], mask):.1f} dB, {agree:.2%} of pixels")
    _draw(images, masks, json.loads(options.remedies.read_text())["remedies"], options.plot)


def _masks(graph: tosajax.Graph, images: np.ndarray) -> np.ndarray:
    """The first output as real numbers, (images, rows, columns)."""
    (name, *_), quantization = graph.outputs, graph.quantization
    (inputs,) = graph.quantized(images, clip=True) if quantization else (images,)
    values = np.asarray(tosajax.compile(graph, batch=len(images))(inputs)[0])
    if name in quantization:
        values = dequantize(values, graph.tensors[name], quantization[name])
    return values.reshape(len(images), *images.shape[1:3])


def _draw(
    images: np.ndarray, masks: Sequence[np.ndarray], remedies: Sequence[Any], path: Path
) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    covered = masks[0].mean((1, 2))
    chosen = np.argsort(np.abs(covered - 0.4))[:_SHOWN]  # with a person, and around
    figure = pyplot.figure(figsize=(9, 9), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(3, 1.3))
    upper, lower = parts
    for row, axes in zip(chosen, upper.subplots(_SHOWN, 4, squeeze=False), strict=True):
        shown = [images[row], *(mask[row] for mask in masks)]
        for at, (each, picture) in enumerate(zip(axes, shown, strict=True)):
            each.imshow(np.clip(picture, 0, 1), cmap="gray", vmin=0, vmax=1)
            each.set_axis_off()
            if row == chosen[0]:
                each.set_title(_TITLES[at], fontsize=10)
    axes = lower.subplots()
    drawn = [each for each in remedies if not isinstance(each["held_back"], str)]
    for is_kept, marker, colour in ((True, "o", "#0072b2"), (False, "x", "#888888")):
        at = [n for n, each in enumerate(drawn) if each["is_kept"] is is_kept]
        label = "kept" if is_kept else "not kept"
        axes.plot(at, [drawn[n]["held_back"] for n in at], marker, color=colour, label=label)
    axes.set_xticks(range(len(drawn)), [each["name"] for each in drawn], rotation=30, ha="right")
    axes.set_ylabel("SQNR of held-back\nexamples (dB)")
    axes.legend()
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
