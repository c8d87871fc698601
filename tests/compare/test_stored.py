"""Stored tensors: by name, by location, in order, in every form of file."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType
from tosajax.compare import Tolerance, compare
from tosajax.runtime.dump import dump

X = small.images(6)


@pytest.fixture(scope="module")
def known() -> dict[str, np.ndarray]:
    return dump(small.two_layers(), X)


def rows(stored, **options) -> list[tuple[str, int]]:
    found = compare(small.two_layers(), stored, X, batch=4, **options)
    return [(row.tensor, row.total.mismatches) for row in found.rows]


def test_names(known):
    wrong = {"relu1": known["relu1"], "out": known["out"].copy(), "other": np.zeros(3)}
    wrong["out"][5, 0, 0, 0] += 1
    assert rows(wrong) == [("relu1", 0), ("out", 1)]
    assert rows(wrong, local=True) == [("relu1", 0), ("out", 1)]


def test_locations(known):
    """The last tensor of a place that has the array's form."""
    assert rows({"first;conv": known["relu1"]}) == [("relu1", 0)]
    assert rows({"first;conv": known["acc1"], "second/conv": known["out"]}) == [
        ("acc1", 0),
        ("out", 0),
    ]


@pytest.mark.parametrize("compressed", [False, True])
def test_npz(known, tmp_path, compressed):
    path = tmp_path / "all.npz"
    (np.savez_compressed if compressed else np.savez)(path, **known)
    assert rows(path) == [(name, 0) for name in known]
    assert rows([str(path)]) == [(name, 0) for name in known]


@pytest.mark.parametrize("form", ["along", "stacked"])
def test_npy_of_outputs(known, tmp_path, form):
    out = known["out"] if form == "along" else known["out"][:, None]
    np.save(tmp_path / "out.npy", out)
    assert rows(tmp_path / "out.npy") == [("out", 0)]
    np.save(tmp_path / "out.npy", out.view(np.uint8))  # other numbers, of the same bits
    with pytest.raises(ValueError, match=r"out uint8 .* fits the graph's"):
        rows([tmp_path / "out.npy"])
    np.save(tmp_path / "out.npy", np.asfortranarray(out.astype(np.int64)))  # as PyTorch has them
    assert rows([tmp_path / "out.npy"]) == [("out", 0)]


def test_one_example():
    graph, one = small.two_layers(), X[:1]
    found = dump(graph, one)
    assert compare(graph, found, one)
    assert len(compare(graph, found, one).rows) == 5


def test_bits_of_bf16():
    b = Builder()
    x = b.input("x", DType.BF16, (1, 3))
    graph = b.graph([b.op("ADD", x, x, name="y")])
    ones, twos = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[2, 4, 6], [8, 10, 12]])
    values, doubled = (x.astype(ml_dtypes.bfloat16) for x in (ones, twos))
    assert compare(graph, {"y": doubled.view(np.uint16)}, values)
    assert not compare(graph, {"y": values}, values)
    narrow = compare(graph, {"y": twos.astype(np.float16)}, values)
    assert (bool(narrow), narrow.rows[0].as_real) == (True, True)
    assert compare(graph, {"y": twos.astype(np.float64)}, values)


def test_floats_for_integers(known):
    real = {"out": (0.5, -7)}
    floats = (known["out"].astype(np.float32) + 7) * np.float32(0.5)
    assert rows({"out": floats}, real=real) == [("out", 0)]
    with pytest.raises(ValueError, match="give the scale"):
        rows({"out": floats})


def test_floats_are_judged_in_steps_of_integers(known):
    """Noise of floats is no difference; a step is."""
    real = {"out": (0.1, -7)}
    floats = (known["out"].astype(np.float32) + 7) * np.float32(0.1)
    noisy = floats * np.float32(1 + 2e-7) + np.float32(1e-6)
    found = compare(small.two_layers(), {"out": noisy}, X, real=real)
    assert found
    assert (found.rows[0].total.mismatches, found.rows[0].total.max_error) == (0, 0)
    assert 100 < found.rows[0].total.sqnr < np.inf
    noisy[2, 1, 0, 1] += 0.2
    found = compare(small.two_layers(), {"out": noisy}, X, real=real)
    assert not found
    assert (found.rows[0].total.mismatches, found.rows[0].total.max_error) == (1, 2)
    for steps, enough in ((1.9, False), (2, True)):
        tolerance = Tolerance(atol_lsb=steps)
        graph = small.two_layers()
        assert bool(compare(graph, {"out": noisy}, X, real=real, tolerance=tolerance)) is enough


def test_what_does_not_fit(known, tmp_path):
    with pytest.raises(ValueError, match="fits the graph's for 6 examples"):
        rows({"out": known["out"][:5]})
    with pytest.raises(ValueError, match=r"2 .npy files, the graph has 1 \(out\)"):
        rows(["a.npy", "b.npy"])
    with pytest.raises(FileNotFoundError):
        rows("nowhere.npy")
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    with pytest.raises(
        ValueError, match=r"bad\.npz is neither \.npy nor \.npz, expected an \.npz file"
    ):
        rows(tmp_path / "bad.npz")
    np.savez(tmp_path / "objects.npz", out=np.array([None]))
    with pytest.raises(ValueError, match=r"objects\.npz: out\.npy holds Python objects"):
        rows(tmp_path / "objects.npz")
    with pytest.raises(ValueError, match="do not fit INT8"):
        rows({"out": known["out"].astype(np.int64) + 1000})


def test_a_large_file_is_read_as_it_goes(tmp_path):
    b = Builder()
    graph = b.graph([b.op("REVERSE", b.input("x", DType.INT32, (1, 64)), axis=1, name="y")])
    x = np.zeros((1 << 14, 64), np.int32)
    np.savez(tmp_path / "y.npz", y=x)
    tracemalloc.start()
    assert compare(graph, tmp_path / "y.npz", x, batch=64)
    assert tracemalloc.get_traced_memory()[1] < x.nbytes
    tracemalloc.stop()


def test_what_arms_model_left_in_a_file(data):
    folder = data / "et_digits_ae_fp32"
    graph = tosajax.load(folder / "model.tosa")
    found = compare(graph, folder / "expected_ref_0.npy", np.load(folder / "inputs_0.npy"))
    assert found.rows[0].total.sqnr > 100


@pytest.fixture(scope="module")
def torch_graph(data):
    """A CNN that ExecuTorch lowered, its inputs, and its own tensors."""
    folder = data / "et_digits_cnn_fp32"
    graph, x = tosajax.load(folder / "model.tosa"), np.load(folder / "inputs_0.npy")
    return graph, x, dump(graph, x)


def keyed(torch_graph, stored) -> list[tuple[str, str, int]]:
    graph, x, _ = torch_graph
    found = compare(graph, stored, x)
    return [(row.tensor, row.other, row.total.mismatches) for row in found.rows]


CONV, POOLED, LAST = "tosa_conv2d_default_1", "tosa_max_pool2d_default", "tosa_reshape_default"


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_names_of_modules_nodes_and_places(torch_graph, layout):
    """Modules of PyTorch, nodes of its exported program, and locations as reports print them."""
    *_, known = torch_graph
    count = len(known[LAST])

    def held(name):
        values = known[name].reshape(count, *known[name].shape[-3:])
        return np.moveaxis(values, -1, 1) if layout == "NCHW" else values

    logits = known[LAST].reshape(count, 10)
    place = "et_models.py:24 x = s.pool(F.relu(s.b4(s.c2(x)))); x = x.mean((2, 3)) [c2]"
    for stored in (
        {"c2": held(CONV), "pool": held(POOLED), "fc": logits},
        {"conv2d_3": held(CONV), "max_pool2d": held(POOLED), "linear": logits},
        {"convolution_3": held(CONV), "pool": held(POOLED), "fc": logits},
        {place: held(CONV), POOLED: held(POOLED), LAST: logits},
    ):
        first, second, third = stored
        assert keyed(torch_graph, stored) == [
            (CONV, first, 0), (POOLED, second, 0), (LAST, third, 0),
        ]  # fmt: skip


def test_layouts_and_unused_arrays_are_said(torch_graph):
    graph, x, known = torch_graph
    count = len(known[LAST])
    values = np.moveaxis(known[CONV].reshape(count, 4, 4, 32), -1, 1)
    stored = {"c2": values, "b2": np.zeros((count, 16, 8, 8)), "pool": np.zeros((count, 3))}
    matched, layout = compare(graph, stored, x).notes
    assert matched.startswith("1 of ")
    assert f"not used: b2 float64 ({count}, 16, 8, 8) names nothing here, pool" in matched
    assert "has another form" in matched
    assert layout == "channels first, as in NCHW: c2"


def test_sizes_that_fit_both_layouts():
    """PyTorch's names mean its layout, tensors' own names the graph's; the former is said."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 3, 3, 3))
    torch = '{"torch_info": {"nn_module_stack": {"a": ["", "N"], "b": ["act.0", "R"]}}}'
    graph = b.graph([b.op("ABS", x, name="y", location=torch)])
    values = np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3)
    moved = np.ascontiguousarray(np.moveaxis(values, -1, 1))
    assert compare(graph, {"y": values}, values).notes == ()
    found = compare(graph, {"act.0": moved}, values)
    assert found
    assert found.notes == (
        "channels first, as in NCHW: act.0 (by its sizes act.0 may have them last as well)",
    )
    assert not compare(graph, {"act.0": values}, values)
