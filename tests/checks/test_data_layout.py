"""Rules of data layout: every label, both sides of every bound, shapes against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax.checks import RULES

LEGAL = {
    "CONCAT": {"input1": [(2, 3, 4), (2, 1, 4), (2, 2, 4)], "axis": 1, "output": (2, 6, 4)},
    "PAD": {
        "input1": (2, 3),
        "padding": [1, 2, 0, 4],
        "pad_const": np.ones(1),
        "output": (5, 7),
    },
    "RESHAPE": {"input1": (2, 3, 4), "shape": [4, 6], "output": (4, 6)},
    "REVERSE": {"input1": (2, 3, 4), "axis": 1, "output": (2, 3, 4)},
    "SLICE": {"input1": (5, 6), "start": [1, 0], "size": [3, 6], "output": (3, 6)},
    "TILE": {"input1": (2, 3), "multiples": [3, 1], "output": (6, 3)},
    "TRANSPOSE": {"input1": (2, 3, 4), "perms": (2, 0, 1), "output": (4, 2, 3)},
}
BOUNDARY = [
    ("CONCAT", {"input1": [(2, 3, 4)], "output": (2, 3, 4)}),
    ("CONCAT", {"input1": [(1, 3), (2, 3)], "axis": 0, "output": (3, 3)}),
    ("CONCAT", {"input1": [(2, 3), (2, 5)], "axis": 1, "output": (2, 8)}),
    ("PAD", {"padding": [0, 0, 0, 0], "output": (2, 3)}),
    ("PAD", {"input1": (2,), "padding": [1, 2], "output": (5,)}),
    ("PAD", {"input1": (1, 1, 1), "padding": [1, 0] * 3, "output": (2, 2, 2)}),
    ("RESHAPE", {"input1": (1, 1), "shape": [], "output": ()}),
    ("RESHAPE", {"input1": (), "shape": [1], "output": (1,)}),
    ("REVERSE", {"axis": 0}),
    ("REVERSE", {"axis": 2}),
    ("SLICE", {"start": [0, 0], "size": [1, 1], "output": (1, 1)}),
    ("SLICE", {"start": [4, 5], "size": [1, 1], "output": (1, 1)}),
    ("SLICE", {"start": [0, 0], "size": [5, 6], "output": (5, 6)}),
    ("TILE", {"multiples": [1, 1], "output": (2, 3)}),
    ("TRANSPOSE", {"perms": (0, 1, 2), "output": (2, 3, 4)}),
    ("TRANSPOSE", {"input1": (4,), "perms": (0,), "output": (4,)}),
]
ILLEGAL = [
    ("concat.e1", {"input1": []}, "input1 has no tensors, expected at least 1"),
    ("concat.e2", {"axis": -1, "input1": [(2, 3, 4)]}, "axis is -1, expected 0 to 2 for rank 3"),
    ("concat.e2", {"axis": 3, "input1": [(2, 3, 4)]}, "axis is 3, expected 0 to 2 for rank 3"),
    ("concat.e3", {"input1": [(2, 3, 4), (2, 3)]}, "input1[1] has rank 2, expected 3"),
    (
        "concat.e4",
        {"input1": [(2, 3, 4), (2, 3, 4), (2, 3, 5)]},
        "input1[2] has shape (2, 3, 5), expected (2, 3, 4) except along axis 1",
    ),
    (
        "concat.e4",
        {"input1": [(2, 3, 4), (1, 3, 4)]},
        "input1[1] has shape (1, 3, 4), expected (2, 3, 4) except along axis 1",
    ),
    ("concat.e5", {"output": (2, 7, 4)}, "output has shape (2, 7, 4), expected (2, 6, 4)"),
    ("concat.e5", {"output": (2, 6, 3)}, "output has shape (2, 6, 3), expected (2, 6, 4)"),
    ("concat.e5", {"output": (12, 4)}, "output has shape (12, 4), expected (2, 6, 4)"),
    ("pad.e1", {"output": (5, 7, 1)}, "output has rank 3, expected 2, the rank of input1"),
    *(
        (
            "pad.e2",
            {"padding": padding},
            f"padding is {tuple(padding)}, expected values of at least 0",
        )
        for padding in ([-1, 4, 0, 4], [4, -1, 0, 4], [1, 2, -1, 5], [1, 2, 5, -1])
    ),
    ("pad.e3", {"output": (5, 6)}, "output has shape (5, 6), expected (5, 7)"),
    ("pad.e3", {"output": (4, 7)}, "output has shape (4, 7), expected (5, 7)"),
    ("pad.arguments", {"padding": [1, 2]}, "padding has 2 elements, expected 4"),
    ("pad.arguments", {"padding": [1, 2, 0, 4, 0, 0]}, "padding has 6 elements, expected 4"),
    (
        "reshape.e1",
        {"shape": [4, 5], "output": (4, 5)},
        "output has 20 elements, expected 24, those of input1",
    ),
    ("reshape.arguments", {"shape": [6, 4]}, "output has shape (4, 6), expected (6, 4)"),
    ("reshape.arguments", {"shape": [4, 6, 1]}, "output has shape (4, 6), expected (4, 6, 1)"),
    ("reverse.e1", {"axis": -1}, "axis is -1, expected 0 to 2 for rank 3"),
    ("reverse.e1", {"axis": 3}, "axis is 3, expected 0 to 2 for rank 3"),
    ("slice.e1", {"start": [1]}, "start has 1 elements, expected 2"),
    ("slice.e1", {"size": [3, 6, 1]}, "size has 3 elements, expected 2"),
    ("slice.e2", {"output": (3, 6, 1)}, "output has rank 3, expected 2, the rank of input1"),
    ("slice.e3", {"start": [-1, 0]}, "start is (-1, 0), expected values of at least 0"),
    ("slice.e3", {"start": [1, -1]}, "start is (1, -1), expected values of at least 0"),
    ("slice.e4", {"size": [0, 6]}, "size is (0, 6), expected values of at least 1"),
    ("slice.e4", {"size": [3, -1]}, "size is (3, -1), expected values of at least 1"),
    (
        "slice.e5",
        {"start": [3, 0]},
        "start + size is (6, 6), expected at most (5, 6), input1's shape",
    ),
    (
        "slice.e5",
        {"start": [1, 1]},
        "start + size is (4, 7), expected at most (5, 6), input1's shape",
    ),
    ("slice.e6", {"output": (2, 6)}, "output has shape (2, 6), expected (3, 6)"),
    ("slice.e6", {"output": (3, 5)}, "output has shape (3, 5), expected (3, 6)"),
    ("tile.e1", {"output": (6, 3, 1)}, "output has rank 3, expected 2, the rank of input1"),
    ("tile.e2", {"output": (6, 6)}, "output has shape (6, 6), expected (6, 3)"),
    ("tile.e2", {"output": (2, 3)}, "output has shape (2, 3), expected (6, 3)"),
    ("tile.e2", {"multiples": [3, 0]}, "output has shape (6, 3), expected (6, 0)"),
    ("tile.arguments", {"multiples": [3]}, "multiples has 1 elements, expected 2"),
    ("tile.arguments", {"multiples": [3, 1, 1]}, "multiples has 3 elements, expected 2"),
    ("transpose.e1", {"output": (4, 6)}, "output has rank 2, expected 3, the rank of input1"),
    (
        "transpose.e2",
        {"output": (4, 2, 4)},
        "output has 32 elements, expected 24, those of input1",
    ),
    (
        "transpose.e3",
        {"perms": (3, 0, 1)},
        "perms is (3, 0, 1), expected values of at most 2",
    ),
    ("transpose.e4", {"perms": (2, 0, -1)}, "perms is (2, 0, -1), expected values of at least 0"),
    ("transpose.e5", {"perms": (2, 0, 0)}, "perms is (2, 0, 0), expected each dimension once"),
    ("transpose.e6", {"output": (4, 3, 2)}, "output has shape (4, 3, 2), expected (4, 2, 3)"),
    # The same elements along the first two axes in another order.
    ("transpose.e6", {"perms": (1, 2, 0)}, "output has shape (4, 2, 3), expected (3, 4, 2)"),
    ("transpose.arguments", {"perms": (1, 0)}, "perms has 2 elements, expected 3"),
    ("transpose.arguments", {"perms": ()}, "perms has 0 elements, expected 3"),
    (
        "transpose.arguments",
        {"input1": (4,), "perms": (), "output": (4,)},
        "perms has 0 elements, expected 1",
    ),
]
ABOVE = [
    (
        "concat.l1",
        {"input1": [(1,)] * 65},
        "length of input1 is 65, expected at most 64 (MAX_TENSOR_LIST_SIZE)",
    ),
]
WITHIN = [("CONCAT", {"input1": [(1,)] * 64})]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


@pytest.mark.parametrize(("label", "change", "message"), ILLEGAL, ids=[c[0] for c in ILLEGAL])
def test_illegal(findings, label, change, message):
    op = label.split(".")[0].upper()
    assert findings(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize(("label", "change", "message"), ABOVE, ids=[c[0] for c in ABOVE])
def test_level(exceeded, label, change, message):
    op = label.split(".")[0].upper()
    assert exceeded(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize(("op", "change"), WITHIN)
def test_level_boundary(exceeded, op, change):
    assert exceeded(op, LEGAL[op] | change) == []


def test_reshape_to_a_scalar(call_of):
    rule = RULES["RESHAPE"].errors
    assert rule is not None
    call = call_of("RESHAPE", LEGAL["RESHAPE"] | {"shape": [], "output": ()})
    message = "output has 1 elements, expected 24, those of input1"
    assert list(rule(call)) == [("reshape.e1", message)]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_shape(rng):
    return tuple(rng.integers(1, 5, rng.integers(1, 6)).tolist())


def test_concat_shape(derived, rng):
    for _ in range(50):
        shape = random_shape(rng)
        axis = int(rng.integers(len(shape)))
        sizes = rng.integers(1, 5, rng.integers(1, 5)).tolist()
        shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        wanted = np.concatenate([np.zeros(s) for s in shapes], axis).shape
        assert derived("CONCAT", {"input1": shapes, "axis": axis}) == wanted


def test_pad_shape(derived, rng):
    for _ in range(50):
        shape = random_shape(rng)
        padding = rng.integers(0, 4, (len(shape), 2))
        change = {"input1": shape, "padding": padding.reshape(-1)}
        assert derived("PAD", LEGAL["PAD"] | change) == np.pad(np.zeros(shape), padding).shape


def test_reshape_shape(derived, rng):
    for _ in range(50):
        shape = random_shape(rng)
        assert derived("RESHAPE", {"input1": (int(np.prod(shape)),), "shape": shape}) == shape
    assert derived("RESHAPE", {"input1": (1,), "shape": []}) == ()


def test_reverse_shape(derived, rng):
    for _ in range(10):
        shape = random_shape(rng)
        assert derived("REVERSE", {"input1": shape, "axis": 0}) == shape


def test_slice_shape(derived, rng):
    for _ in range(50):
        shape = random_shape(rng)
        start = [int(rng.integers(dim)) for dim in shape]
        end = [int(rng.integers(s + 1, dim + 1)) for s, dim in zip(start, shape, strict=True)]
        picked = np.zeros(shape)[tuple(map(slice, start, end))]
        size = [e - s for s, e in zip(start, end, strict=True)]
        assert derived("SLICE", {"input1": shape, "start": start, "size": size}) == picked.shape


def test_tile_shape(derived, rng):
    for _ in range(50):
        shape = random_shape(rng)
        multiples = rng.integers(1, 4, len(shape)).tolist()
        wanted = np.tile(np.zeros(shape), multiples).shape
        assert derived("TILE", {"input1": shape, "multiples": multiples}) == wanted


def test_transpose_shape(derived, rng):
    for _ in range(50):
        shape = random_shape(rng)
        perms = tuple(rng.permutation(len(shape)).tolist())
        wanted = np.zeros(shape).transpose(perms).shape
        assert derived("TRANSPOSE", {"input1": shape, "perms": perms}) == wanted


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("CONCAT", {"input1": [(2, 3), (2,)]}),
        ("PAD", {"padding": [1, 1]}),
        ("TILE", {"multiples": [1]}),
        ("TRANSPOSE", {"perms": (0, 1, 1)}),
        ("TRANSPOSE", {"perms": (0, 1, 3)}),
    ],
)
def test_no_shape(derived, op, change):
    with pytest.raises(ValueError):
        derived(op, LEGAL[op] | change)
