"""Writes tests/data/digits_test: the 540 held-out digits, quantized for et_digits_cnn_a8w8, with
the outputs of Arm's reference model.

Needs scikit-learn and tosa-tools; run it from the root of the repository. The split is that of the
network's training: a stratified 30 % of the 1,797 images, random_state=0.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

os.environ["TOSA_MODEL_NO_BACKTRACE"] = "1"


def main() -> None:
    """Writes inputs_0.npy, labels.npy and expected_ref_0.npy."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    model = Path("tests/data/et_digits_cnn_a8w8")
    folder = Path("tests/data/digits_test")
    folder.mkdir(exist_ok=True)
    digits = load_digits()
    _, images, _, labels = train_test_split(
        digits.images, digits.target, test_size=0.3, random_state=0, stratify=digits.target
    )
    quant = json.loads((model / "meta.json").read_text())["input_quant"]
    real = images[..., None] / 16.0
    inputs = np.rint(real / quant["scale"]) + quant["zero_point"]
    inputs = np.clip(inputs, -128, 127).astype(np.int8)
    np.save(folder / "inputs_0.npy", inputs)
    np.save(folder / "labels.npy", labels.astype(np.int8))
    np.save(folder / "expected_ref_0.npy", _reference(model / "model.tosa", inputs))


def _reference(model: Path, inputs: np.ndarray) -> np.ndarray:
    import tosa_reference_model

    file = model.read_bytes()
    rows = [
        tosa_reference_model.run(file, [image[None]], tosa_level="EIGHTK")[0][0] for image in inputs
    ]
    return np.concatenate(rows)


if __name__ == "__main__":
    main()
