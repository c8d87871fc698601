"""Data sets: every form of source, in batches, against its examples."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tosajax.sweep import Data
from tosajax.sweep.data import Batch

COUNT = 10
X = np.random.default_rng(0).normal(size=(COUNT, 2, 3)).astype(np.float32)
Z = np.arange(COUNT * 4, dtype=np.int8).reshape(COUNT, 4)
Y = np.arange(COUNT, dtype=np.int64) % 7
SIZES = (1, 2, 3, 4, 7, 9, 10, 11, 25)


def _cuts(*ends: int) -> list[slice]:
    return [slice(a, b) for a, b in zip((0, *ends), (*ends, COUNT), strict=True)]


def _uneven() -> list[tuple[np.ndarray, np.ndarray]]:
    return [(X[at], Y[at]) for at in _cuts(1, 6, 7)]


class _Loader:
    """A loader like PyTorch's: an iterable of lists that starts anew each time."""

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        for x, y in _uneven():
            yield [x, y]


def _generated() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield from _uneven()


def _sources(folder: Path) -> dict[str, Any]:
    np.savez(folder / "all.npz", image=X, labels=Y)
    np.savez(folder / "first.npz", labels=Y[:3], image=X[:3])
    np.savez(folder / "rest.npz", image=X[3:], labels=Y[3:])
    return {
        "pair": (X, Y),
        "a tuple of one input": ((X,), Y),
        "jax arrays": (jnp.asarray(X), Y),
        "a list of labels": (X, Y.tolist()),
        "mapping": {"image": X, "labels": Y},
        "npz": folder / "all.npz",
        "npz by a string": str(folder / "all.npz"),
        "one batch": [(X, Y)],
        "uneven batches": _uneven(),
        "a tuple of batches": tuple(_uneven()),
        "a tuple of two batches": tuple((X[at], Y[at]) for at in _cuts(5)),
        "mappings": [{"image": x, "labels": y} for x, y in _uneven()],
        "files": [folder / "first.npz", str(folder / "rest.npz")],
        "single examples": [(X[i : i + 1], Y[i : i + 1]) for i in range(COUNT)],
        "loader": _Loader(),
        "function": _generated,
    }


def _read(data: Data, size: int, **options: Any) -> list[Batch]:
    """Batches, after a check: all of one size, filled up with the last example."""
    batches = list(data.batches(size, **options))
    for batch in batches:
        arrays = [*batch.inputs, *(batch.stored or ())]
        arrays += [] if batch.labels is None else [batch.labels]
        for array in arrays:
            assert array.shape[0] == size
            for filling in array[batch.count :]:
                np.testing.assert_array_equal(filling, array[batch.count - 1])
    counts = [batch.count for batch in batches]
    assert counts[:-1] == [size] * (len(counts) - 1)
    assert 1 <= counts[-1] <= size
    return batches


def _joined(batches: list[Batch], of: Any) -> np.ndarray:
    return np.concatenate([of(batch)[: batch.count] for batch in batches])


def _check(data: Data, size: int) -> None:
    batches = _read(data, size)
    assert len(batches) == -(-COUNT // size)
    for found, wanted in (
        (_joined(batches, lambda b: b.inputs[0]), X),
        (_joined(batches, lambda b: b.labels), Y),
    ):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    assert all(batch.stored is None for batch in batches)


def test_every_source_gives_the_same_examples(tmp_path: Path) -> None:
    for name, source in _sources(tmp_path).items():
        data = Data(source)
        assert not data.is_read_once, name
        for size in SIZES:
            _check(data, size)


def test_every_source_has_the_same_digest(tmp_path: Path) -> None:
    digests = {name: Data(source).digest() for name, source in _sources(tmp_path).items()}
    assert len(set(digests.values())) == 1, digests
    assert len(digests["pair"]) == 64


def test_many_examples_have_the_same_digest() -> None:
    """More examples than a digest reads at a time."""
    x = np.arange(1000, dtype=np.int32)
    whole = Data(x).digest()
    assert Data([x[:63], x[63:64], x[64:129], x[129:]]).digest() == whole
    changed = x.copy()
    changed[-1] += 1
    assert Data(changed).digest() != whole


def test_an_iterator_is_read_once() -> None:
    for size in SIZES:
        data = Data(_generated())
        assert data.is_read_once
        _check(data, size)
        with pytest.raises(ValueError, match="iterator, which has been read already"):
            next(data.batches(size))
    with pytest.raises(ValueError, match="name the data set"):
        Data(_generated()).digest()
    assert Data(_generated(), name="mine").digest() == "mine"


def test_looking_at_the_first_example_takes_nothing_away(tmp_path: Path) -> None:
    for source in (*_sources(tmp_path).values(), _generated()):
        data = Data(source)
        for _ in range(3):
            first = data.first()
            assert first.count == 1
            np.testing.assert_array_equal(first.inputs[0], X[:1])
            np.testing.assert_array_equal(first.labels, Y[:1])  # type: ignore[arg-type]
        _check(data, 4)
        assert data.first().count == 1


def test_the_first_example_of_an_iterator_that_was_read() -> None:
    data = Data(_generated())
    _check(data, 4)
    with pytest.raises(ValueError, match="has been read already"):
        data.first()


def test_a_function_that_returns_one_iterator_again() -> None:
    rest = _generated()
    data = Data(lambda: rest, name="mine")
    data.first()
    with pytest.raises(ValueError, match="has been read already"):
        next(data.batches(4))


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (X, [X]),
        (jnp.asarray(X), [X]),
        ((X, None), [X]),
        (((X, Z), None), [X, Z]),
        ({"b": X, "a": Z}, [X, Z]),
        ({"b": X, "labels": None}, [X]),
        ([X[:4], X[4:]], [X]),
        ([X[:4], X[4:7], X[7:]], [X]),
        ([((X[:4], Z[:4]), None), ((X[4:], Z[4:]), None)], [X, Z]),
    ],
)
def test_inputs_without_labels(source: Any, wanted: list[np.ndarray]) -> None:
    batches = _read(Data(source), 4)
    assert all(batch.labels is None for batch in batches)
    assert {len(batch.inputs) for batch in batches} == {len(wanted)}
    for i, x in enumerate(wanted):
        np.testing.assert_array_equal(_joined(batches, lambda b, i=i: b.inputs[i]), x)


def test_npy_files_are_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    assert Data(tmp_path / "x.npy").digest() == Data(X).digest()


def test_counts() -> None:
    assert Data((X, Y)).count == COUNT
    assert Data([(X, Y)]).count is None
    assert Data(X[:1]).count == 1


def test_a_data_set_is_taken_as_it_is() -> None:
    data = Data(X)
    assert Data.of(data) is data
    assert Data.of(X).count == COUNT


def test_digests_differ() -> None:
    changed = X.copy()
    changed.view(np.uint8).reshape(-1)[-1] ^= 1
    labels = Y.copy()
    labels[3] += 1
    names = {
        "whole": (X, Y),
        "another byte": (changed, Y),
        "another label": (X, labels),
        "no labels": X,
        "another type": (X.view(np.int32), Y),
        "another type of labels": (X, Y.astype(np.int32)),
        "another shape": (X.reshape(COUNT, 3, 2), Y),
        "another order": (X[::-1], Y[::-1]),
        "fewer": (X[:-1], Y[:-1]),
        "labels as an input": ((X, Y), None),
        "two inputs": ((X, Z), Y),
        "two inputs, the other way round": ((Z, X), Y),
    }
    digests = {name: Data(source).digest() for name, source in names.items()}
    assert len(set(digests.values())) == len(digests), digests


def test_digests_of_arrays_that_lie_otherwise_in_memory() -> None:
    wanted = Data(X).digest()
    assert Data(np.asfortranarray(X)).digest() == wanted
    assert Data(np.repeat(X, 2, axis=0)[::2]).digest() == wanted
    assert Data(X).digest() == Data(X.copy()).digest()


def test_a_name_saves_reading() -> None:
    def fails() -> Iterator[Any]:
        raise AssertionError("read")
        yield

    assert Data(fails, name="mine").digest() == "mine"


def test_stored_references() -> None:
    reference = (X[:, 0] * 2, np.arange(COUNT))
    for source in ((X, Y), _uneven(), _generated()):
        data = Data(source)
        batches = _read(data, 4, with_reference=reference)
        for i, wanted in enumerate(reference):
            found = _joined(batches, lambda b, i=i: b.stored[i])
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("count", [0, 7, 8, 9, 11, 100])
def test_references_of_other_lengths(count: int) -> None:
    reference = (np.zeros(COUNT), np.zeros(count))
    with pytest.raises(ValueError, match=f"the reference has {count} examples, the data"):
        list(Data(_uneven()).batches(4, reference))


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_of_batches(size: int) -> None:
    with pytest.raises(ValueError, match=f"batches of {size} examples, expected at least 1"):
        next(Data(X).batches(size))


@pytest.mark.parametrize(
    "source",
    [
        (X, Y[:-1]),
        (X[:-1], Y),
        ((X, Z[:-1]), None),
        X[:0],
        (X[:0], Y[:0]),
        np.float32(3),
        (X, np.int32(3)),
        {"labels": Y},
        {},
        {"a": X, "b": Z[1:]},
    ],
)
def test_numbers_of_examples(source: Any) -> None:
    with pytest.raises(ValueError, match="expected the same number of examples, at least one"):
        Data(source)
    data = Data([source]) if not isinstance(source, tuple) else Data(lambda: [source])
    with pytest.raises(ValueError, match="expected the same number of examples, at least one"):
        data.first()


@pytest.mark.parametrize("source", [3, None, 2.5])
def test_what_is_no_data(source: Any) -> None:
    with pytest.raises(TypeError, match=f"data is {type(source).__name__}, expected arrays"):
        Data(source)


@pytest.mark.parametrize("batch", [[1, 2, 3], (X, Y, Z), 5, [[1, 2], [3, 4]], None, (1, 2)])
def test_what_is_no_batch(batch: Any) -> None:
    data = Data(lambda: [(X, Y), batch])
    with pytest.raises(TypeError, match=f"a batch is {type(batch).__name__}, expected an array"):
        list(data.batches(4))


@pytest.mark.parametrize(
    "other",
    [
        X,
        (X.astype(np.float16), Y),
        (X[:, :1], Y),
        (X, Y.astype(np.int32)),
        (X, Y[:, None]),
        ((X, Z), Y),
    ],
)
@pytest.mark.parametrize("size", [COUNT, 7])
def test_batches_of_different_kinds(other: Any, size: int) -> None:
    for source in ([(X, Y), other], [other, (X, Y)]):
        with pytest.raises(ValueError, match=r"batch 1 has inputs .* that differ in size only"):
            list(Data(source).batches(size))


def test_no_batches() -> None:
    assert list(Data([]).batches(4)) == []
    for source in ([], iter([])):
        with pytest.raises(ValueError, match="the data set has no examples"):
            Data(source).first()


def test_files_that_are_no_data(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Data(tmp_path / "none.npz")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    with pytest.raises(ValueError, match=r"objects\.npz: x\.npy holds Python objects"):
        Data(tmp_path / "objects.npz")


def test_copies_for_other_processes_begin_anew() -> None:
    data = Data(_Loader())
    next(data.batches(4))
    data.first()
    again = pickle.loads(pickle.dumps(data))
    _check(again, 4)
    assert again.digest() == data.digest()
