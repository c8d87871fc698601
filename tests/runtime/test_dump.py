"""The values of every tensor, as arrays and in a file."""

from __future__ import annotations

import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest
import small_networks as small

from tosajax import Builder, DType, reference_model
from tosajax.runtime.dump import dump, dump_npz

NAMES = ["acc1", "act1", "relu1", "acc2", "out"]


@pytest.mark.parametrize("batch", [2, 5])
def test_every_tensor_is_arms(batch):
    graph, x = small.two_layers(), small.images(5)
    found = dump(graph, x, batch=batch)
    assert list(found) == NAMES
    for name, want in reference_model.run(graph, x[:, None], tensors=NAMES).items():
        np.testing.assert_array_equal(found[name], want[:, 0])
        assert found[name].dtype == want.dtype


def test_the_form_of_the_inputs_and_chosen_names():
    graph, x = small.two_layers(batch=-1), small.images(3)
    assert {k: v.shape for k, v in dump(graph, x, tensors="2$|u1").items()} == {
        "relu1": (3, 4, 4, 3),
        "acc2": (3, 4, 4, 2),
    }
    assert dump(graph, x[:, None], tensors="out")["out"].shape == (3, 1, 4, 4, 2)
    with pytest.raises(ValueError, match="no tensor of graph 'main' matches 'nowhere'"):
        dump(graph, x, tensors="nowhere")


def test_constants_and_what_follows_from_them_are_left_out():
    b = Builder()
    x = b.input("x", DType.INT32, (1, 4))
    fixed = b.op("NEGATE", b.const([[1, 2, 3, 4]], DType.INT32), *_zeros(b), name="fixed")
    graph = b.graph([b.op("ADD", x, fixed, name="y"), x, fixed])
    assert list(dump(graph, np.ones((2, 4), np.int32))) == ["y"]


def _zeros(b: Builder):
    return (b.const([0], DType.INT32), b.const([0], DType.INT32))


def test_npz(tmp_path):
    graph, x = small.two_layers(), small.images(5)
    steps = []
    shapes = dump_npz(
        tmp_path / "all.npz", graph, x, batch=2, progress=lambda s, total: steps.append(total) or s
    )
    assert steps == [3]
    with np.load(tmp_path / "all.npz", allow_pickle=False) as file:
        assert file.files == NAMES
        assert {name: file[name].shape for name in NAMES} == shapes
        for name, want in dump(graph, x).items():
            np.testing.assert_array_equal(file[name], want)
            assert file[name].dtype == want.dtype
    assert [p.name for p in tmp_path.iterdir()] == ["all.npz"]


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(DType.BF16, np.uint16), (DType.FP8E4M3, np.uint8), (DType.FP8E5M2, np.uint8)],
)
def test_bits_of_types_that_numpy_does_not_know(tmp_path, dtype, bits):
    b = Builder()
    x = b.input("x", dtype, (1, 3))
    graph = b.graph([b.op("REVERSE", x, axis=1, name="a/b;c")])
    values = np.array([[1, 2, -3]], ml_dtypes.bfloat16).astype(dtype.storage)
    dump_npz(tmp_path / "all.npz", graph, values)
    with np.load(tmp_path / "all.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["a/b;c"], values[:, ::-1].view(bits))


def test_nothing_is_left_of_a_failure(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("disk full")

    graph, x = small.two_layers(), small.images(2)
    path = tmp_path / "all.npz"
    path.write_bytes(b"old")
    monkeypatch.setattr(zipfile, "ZipFile", fail)
    with pytest.raises(OSError, match="disk full"):
        dump_npz(path, graph, x)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]
    with pytest.raises(FileNotFoundError, match="there is no folder for"):
        dump_npz(tmp_path / "away" / "all.npz", graph, x)


def test_memory_holds_one_batch(tmp_path):
    b = Builder()
    x = b.input("x", DType.INT32, (1, 256))
    y = b.op("REVERSE", b.op("REVERSE", x, axis=1), axis=1)
    graph, values = b.graph([y]), np.zeros((4096, 256), np.int32)
    dump_npz(tmp_path / "all.npz", graph, values[:32])  # imports what it needs
    tracemalloc.start()
    dump_npz(tmp_path / "all.npz", graph, values)
    assert tracemalloc.get_traced_memory()[1] < values.nbytes / 2
    tracemalloc.stop()
