"""docs/hifi.md names every kernel and precision once, with evidence that exists."""

from __future__ import annotations

import re
import sys

import pytest
from paths import ROOT

from tosajax.hifi import kernels
from tosajax.hifi.kernels import basic
from tosajax.hifi.kernels.names import FAMILIES

sys.path.insert(0, str(ROOT))

from benchmarks import hifi as benchmark

PAGE = (ROOT / "docs" / "hifi.md").read_text()
KINDS = set(re.findall(r"^- \*\*(\w+)\*\*:", PAGE, re.MULTILINE))
# Claims that hold for some functions only, and so need the condition beside them.
CLAIMS = re.compile(r"bit[- ]for[- ]bit|bit[- ]exact|to the last bit|identical to the library")


def rows(section):
    """The cells of a section's last table."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (?!-)(.*) \|$", text, re.MULTILINE)
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


def test_every_kernel_and_precision_is_in_the_table_once():
    known = {
        (family.function.__name__, precision)
        for family in FAMILIES
        if not family.name.endswith("getsize")
        for precision in family.precisions or ("",)
    }
    known |= {(name, basic.ELM_ADD[1]) for name in ("elm_add", "elm_mul")}
    table = rows("Kernels")[1:]
    listed = [(name, p) for name, precisions, *_ in table for p in precisions.split(", ")]
    assert sorted(listed) == sorted(known)
    assert f"all {len(kernels.NAMES)}" in PAGE


def test_evidence_is_explained_and_there(data):
    found = {row[2] for row in rows("Kernels")[1:]} | {row[1] for row in rows("Layers")[1:4]}
    assert found | {"own"} == KINDS
    for pattern in re.findall(r"`tests/data/(hifi/\w+\*)`", PAGE):
        assert list(data.glob(pattern)), pattern
    files = [path.stem for path in (data / "hifi").glob("*.npz")]
    with_model = {row[0] for row in rows("Kernels")[1:] if row[2] == "model"}
    assert with_model == {"matXvec", "conv2d_std", "avgpool", "maxpool"}
    for words in ("model_matXvec", "model_conv2d_std", "model_pool", "ideal_gru", "ideal_lstm"):
        assert any(name.startswith(words) for name in files)


@pytest.mark.parametrize(
    ("precisions", "evidence"), [(("32_32", "32_16", "32_8"), "own"), (("f32_f32",), "float")]
)
def test_activations_of_our_own_are_marked(precisions, evidence):
    table = {(name, p): kind for name, ps, kind, _ in rows("Kernels")[1:] for p in ps.split(", ")}
    for name in ("sigmoid", "tanh"):
        assert {table[name, precision] for precision in precisions} == {evidence}
    assert table["softmax", "32_32"] == "own"
    fused = {table["matXvec_fused", p] for p in ("16x16_16", "8x16_16", "8x8_8")}
    assert fused == {"own"}


def test_differences_of_activations_are_as_printed():
    share, most = benchmark.differences(benchmark.LAYERS["GRU"], "16x16")
    assert ("GRU 16x16", f"{share:.1%}", f"{most} LSB") in rows("Layers")
    titles = {f"{layer} {p}" for layer in benchmark.LAYERS for p in benchmark.COEFFICIENTS}
    assert titles <= {row[0] for row in rows("Layers")}


def test_no_claim_of_equality_without_its_condition():
    """The whole library is not what tosajax.hifi equals; see docs/hifi.md."""
    section = (ROOT / "docs" / "hifi_guide.md").read_text()
    assert "(hifi.md)" in section
    assert not CLAIMS.search(section)
    for path in (ROOT / "tosajax" / "hifi").rglob("*.py"):
        claims = [line for line in path.read_text().splitlines() if CLAIMS.search(line)]
        # As the option -verify of test benches does, against a reference file.
        assert all("to verify the output" in line for line in claims), (path.name, claims)
