"""`tosajax sweep`: bits of single layers, and costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def swept(command, folder):
    """Runs a sweep of model.tosa: its rows."""
    np.save("labels.npy", np.arange(6, dtype=np.int32))

    def run(*options: str) -> list[dict]:
        status, _, err = command(
            "sweep", "model.tosa", "--data", "x.npy", "--labels", "labels.npy",
            "--json", "rows.json", *options,
        )  # fmt: skip
        assert (status, err) == (0, "")
        return json.loads(Path("rows.json").read_text())

    return run


def test_bits_of_layers(swept):
    # The convolutions have 3x3 and 1x1 kernels, or what the network has: bytes tell.
    whole, first, both, exact = swept(
        "--weight-bits", "8", "acc1=4", "acc=4,acc2=2", "^acc1$=4,acc2=8",
        "--metrics", "accuracy", "weight_bytes", "macs",
    )  # fmt: skip
    assert whole["weight_bits"] == 8
    assert both["weight_bits"] == {"acc": 4, "acc2": 2}
    least = whole["weight_bytes"] - first["weight_bytes"]  # half of the first one's bytes
    second = whole["weight_bytes"] - 2 * least
    assert least > 0 < second
    assert both["weight_bytes"] == least + second / 4
    assert exact["weight_bytes"] == first["weight_bytes"]
    assert exact["accuracy"] == first["accuracy"]
    assert len({row["macs"] for row in (whole, first, both)}) == 1


def test_one_layer_after_the_other(swept):
    rows = swept("--weight-bits", "4", "2", "--act-bits", "3", "--one-layer")
    asked = [(row["weight_bits"], row["act_bits"]) for row in rows]
    assert asked == [
        (None, None),
        *(({name: n}, None) for name in ("acc1", "acc2") for n in (4, 2)),
        *((None, {name: 3}) for name in ("act1", "relu1", "out")),
    ]


def test_a_page_against_bytes(swept):
    pytest.importorskip("matplotlib")
    swept("--weight-bits", "acc1=4", "acc1=2,acc2=4", "--html", "p.html", "--cost", "weight_bytes")
    page = Path("p.html").read_text()
    assert "accuracy against weight_bytes" in page
    assert "weight_bits[acc1]" in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--weight-bits", "nowhere=4"], "weight_bits: no layer of weights matches 'nowhere'"),
        (["--act-bits", "acc1=4"], "act_bits: no layer of activations matches 'acc1'"),
        (["--weight-bits", "acc1=9"], "weight_bits is 9, expected 1 to 8"),
        (["--weight-bits", "(=4"], "weight_bits: '(' is not a regular expression"),
        (["--one-layer"], "--one-layer: give --weight-bits or --act-bits as numbers"),
        (["--one-layer", "--weight-bits", "acc1=4"], "--one-layer: give --weight-bits"),
        (["--weight-bits", "acc1=4", "--cost", "weight_bits", "--html", "p"], "between layers"),
        (["--act-bits", "4", "--cost", "weight_bits", "--html", "p"], "give --html and --weight"),
        (["--weight-bits", "4", "--cost", "macs"], "--cost macs is for a page: give --html"),
        (["--weight-bits", "4", "--metrics", "macs"], "expected at least one"),
    ],
)
def test_trouble(command, folder, options, words):
    np.save("labels.npy", np.arange(6, dtype=np.int32))
    status, out, err = command(
        "sweep", "model.tosa", "--data", "x.npy", "--labels", "labels.npy", *options
    )
    assert (status, out) == (1, "")
    assert words in err


@pytest.mark.parametrize("text", ["=4", "acc1=", "acc1=0", "acc1=4,", "acc1=4,2", "a=x"])
def test_misspelt_bits_of_layers(command, text, capsys):
    with pytest.raises(SystemExit) as caught:
        command("sweep", "model.tosa", "--data", "x.npy", "--weight-bits", text)
    assert caught.value.code == 2
    assert "--weight-bits" in capsys.readouterr().err
