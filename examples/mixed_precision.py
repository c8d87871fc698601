"""Mixed precision: measures on the integer graph which layers need their bits.

Measures the loss with fewer bits of each layer, chooses bits within a budget of 2.5 per weight,
compares the choice with 2 and 3 bits everywhere, and trains it; then learns the bits.

    pip install -e '.[train,reference]' scikit-learn
    python examples/mixed_precision.py [--quick]

In full it prints, on 540 images: 2 bits everywhere 94.63 % +- 1.90, 3 bits 97.59 % +- 1.29, those
chosen (conv1 4, conv2 3, conv3 2: 2.50 a weight) 96.11 % +- 1.63, trained 97.96 % +- 1.19; those
learned (4, 2, 3: 2.55 a weight) 98.15 % +- 1.14; 0 mismatches in 6.7 million elements.

Exits 1 if an accuracy is below the promised one, or an integer differs.
"""

from __future__ import annotations

import argparse
import sys

import digits
import numpy as np
import optax

from tosajax import quant as tq

BUDGET = 2.5  # bits a weight
PRICE = 0.03  # price of a bit per weight, in units of the loss


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter training, fewer images")
    quick = parser.parse_args().quick
    split = digits.load()
    images, labels = split.train_images[:512], split.train_labels[:512].astype(np.int32)
    test = split.test_images, split.test_labels
    steps = 300 if quick else 600

    graph = digits.trained_float(split, steps=600 if quick else 1500)
    model = tq.prepare(graph, _rules(learned=False))
    params = tq.calibrate(model, [images])

    def loss(outputs):
        return optax.softmax_cross_entropy_with_integer_labels(outputs[0], labels)

    scores = tq.sensitivity(model, params, images, bits=(2, 3, 4, 8), loss=loss)
    for name, of_bits in scores.items():
        growth = "  ".join(f"{bits} bits {grown:+.4f}" for bits, grown in of_bits.items())
        print(f"{name:14} {params['values'][name].size:6} weights  {growth}")

    sizes = {name: params["values"][name].size for name in scores}
    total = sum(sizes.values())
    bits = tq.allocate_bits(scores, BUDGET, lambda name, b: sizes[name] * b / total)
    mixed = params
    choices = {f"{b} bits everywhere": dict.fromkeys(scores, b) for b in (2, 3)}
    for name, choice in {**choices, f"chosen {_short(bits)}": bits}.items():
        mixed = tq.with_bits(model, params, choice)
        mean, share = float(tq.mean_bits(model, mixed)), digits.accuracy(model, mixed, *test)
        print(f"{name}: {mean:.2f} bits a weight, {digits.interval(share, len(test[1]))}")
    trained = digits.train(model, mixed, split, steps=steps)
    share = digits.accuracy(model, trained, *test)
    print(f"the chosen bits, trained: {digits.interval(share, len(test[1]))}")
    checked = split.test_images[: 32 if quick else 540]
    equal = tq.check_bit_exact(model, trained, checked)
    print(f"against Arm's model: {equal}")

    model = tq.prepare(graph, _rules(learned=True))
    params = tq.calibrate(model, [images])

    def resolved(params):
        """The weights in their present bits, with the scales for these bits."""
        bits = {name: params["qparams"][name].bits for name in model.weights}
        return tq.with_bits(model, params, bits)

    def penalty(params):
        return PRICE * tq.mean_bits(model, params)

    params = digits.train(
        model, params, split, steps=steps, rate=6e-3, derive=resolved, penalty=penalty
    )
    learned = {n: round(float(params["qparams"][n].bits)) for n in model.weights}
    params = tq.with_bits(model, params, learned)
    after, mean = digits.accuracy(model, params, *test), float(tq.mean_bits(model, params))
    print(f"learned {_short(learned)}: {mean:.2f} bits a weight, ", end="")
    print(digits.interval(after, len(test[1])))
    same = tq.check_bit_exact(model, params, checked)
    print(f"against Arm's model: {same}")
    passes = share >= 0.96 and after >= 0.96 and mean <= (4 if quick else 3)
    return 0 if passes and equal and same else 1


def _rules(*, learned: bool) -> list[tq.Rule]:
    """Weights in 8 bits or fewer, activations in 8."""
    weight = tq.QSpec(
        per_channel=True,
        narrow_range=True,
        observer=tq.min_max() if learned else tq.mse(),
        learned_bits=learned,
    )
    return [tq.rule(".*", weight=weight)]


def _short(bits: dict[str, int]) -> str:
    return " ".join(f"{name.split('/')[0]} {b}" for name, b in bits.items())


if __name__ == "__main__":
    sys.exit(main())
