"""Post-training quantization of a float CNN: from a float graph to an integer file.

Trains a CNN on 8x8 digits in float32, quantizes it with 512 unlabelled images, shows the noise of
each layer, learns the rounding of 3-bit weights, saves the integer graph and compares it with Arm's
reference model, tensor by tensor.

    pip install -e '.[train,reference]' scikit-learn
    python examples/ptq_cnn.py [--quick]

In full it prints, on 540 images: float32 97.96 % +- 1.19, W8A8 97.78 % (the worst layer conv3, with
43.2 dB by itself), W3A8 97.78 % with weights rounded to nearest and 97.96 % with learned rounding;
0 mismatches in 3.4 million elements.

Exits 1 if an accuracy is below the promised one, or an integer differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import digits
import numpy as np

import tosajax
from tosajax import quant as tq


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter training, fewer images")
    quick = parser.parse_args().quick
    split = digits.load()
    unlabelled = [split.train_images[:512]]
    test = split.test_images, split.test_labels
    checked = split.test_images[:32] if quick else split.test_images

    graph = digits.trained_float(split, steps=600 if quick else 1500)
    model = tq.prepare(graph, digits.rules(8, 8))
    params = tq.calibrate(model, unlabelled)
    reference = digits.accuracy(model, params, *test, mode="float")
    print(f"float32                  {digits.interval(reference, len(test[1]))}")

    eight = digits.accuracy(model, params, *test)
    print(f"W8A8                     {digits.interval(eight, len(test[1]))}")
    print(tq.report(model, params, *unlabelled))

    narrow = tq.prepare(graph, digits.rules(3, 8))
    values = tq.equalize(narrow)
    start = tq.bias_correct(narrow, tq.calibrate(narrow, unlabelled, values=values), unlabelled)
    nearest = digits.accuracy(narrow, start, *test)
    print(f"W3A8, nearest            {digits.interval(nearest, len(test[1]))}")
    parts = np.split(unlabelled[0], 8)
    learned = tq.learned_rounding(narrow, start, parts, steps=150 if quick else 400)
    rounded = digits.accuracy(narrow, learned, *test)
    print(f"W3A8, learned rounding   {digits.interval(rounded, len(test[1]))}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits_w3a8.tosa"
        tosajax.save(narrow.freeze(learned), path)
        print(f"saved                    {path.name}, {path.stat().st_size:,} bytes")
    equal = tq.check_bit_exact(narrow, learned, checked)
    print(f"against Arm's model      {equal}")

    passes = reference >= 0.97 if quick else reference >= 0.975
    passes = passes and eight >= reference - 0.005 and rounded >= reference - 0.015
    return 0 if passes and equal else 1


if __name__ == "__main__":
    sys.exit(main())
