"""Digests: the same in every process, and different for different things."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import os
import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tosajax.dtypes import DType
from tosajax.quant import QParams
from tosajax.sweep import digest


def _array(dtype: Any, values: Any) -> np.ndarray:
    return np.asarray(values, dtype)


f32 = functools.partial(_array, np.float32)

VALUES = {
    "float": np.arange(6, dtype=np.float32),
    "shape": np.arange(6, dtype=np.float32).reshape(2, 3),
    "shape with 1": np.arange(6, dtype=np.float32)[None],
    "type": np.arange(6, dtype=np.int32),
    "zeros": np.zeros(4, np.int8),
    "zeros of another type": np.zeros(4, np.uint8),
    "fewer zeros": np.zeros(3, np.int8),
    "no zeros": np.zeros(0, np.int8),
    "no zeros, two axes": np.zeros((0, 2), np.int8),
    "0-d": np.float32(1),
    "1-d": f32([1]),
    "bf16": np.ones(3, ml_dtypes.bfloat16),
    "fp8": np.ones(3, ml_dtypes.float8_e4m3fn),
    "int4": np.ones(3, ml_dtypes.int4),
    "bool": np.ones(3, bool),
    "minus zero": f32([-0.0]),
    "zero": f32([0.0]),
    "text": np.asarray("abc"),
    "pair": (np.zeros(2), np.zeros(3)),
    "nested": ((np.zeros(2),), np.zeros(3)),
    "list": [np.zeros(2), np.zeros(3)],
    "mapping": {"a": np.zeros(2), "b": np.zeros(3)},
    "other keys": {"a": np.zeros(2), "c": np.zeros(3)},
    "with None": (np.zeros(2), None, np.zeros(3)),
    "None first": (None, np.zeros(2), np.zeros(3)),
    "nothing": (),
    "None": None,
}


def test_digests_differ() -> None:
    digests = {name: digest.of_arrays(value) for name, value in VALUES.items()}
    assert len(set(digests.values())) == len(digests), digests


def test_static_fields_count() -> None:
    q = QParams(jnp.float32(1), jnp.float32(0), jnp.float32(8), dtype=DType.INT8)
    other = dataclasses.replace(q, dtype=DType.INT16)
    assert digest.of_arrays(q) != digest.of_arrays(other)
    assert digest.of_arrays(q) == digest.of_arrays(dataclasses.replace(q))


def test_one_byte_counts() -> None:
    values = np.arange(40, dtype=np.uint8).reshape(4, 10)
    found = {digest.of_arrays(values)}
    for at in range(40):
        changed = values.copy()
        changed.reshape(-1)[at] ^= 1
        found.add(digest.of_arrays(changed))
    assert len(found) == 41


@pytest.mark.parametrize("value", [VALUES["shape"], np.arange(24).reshape(2, 3, 4)])
def test_memory_does_not_count(value: np.ndarray) -> None:
    wanted = digest.of_arrays(value)
    strided = np.repeat(value, 2, axis=0)[::2]
    backwards = np.ascontiguousarray(value[::-1])[::-1]
    fixed = value.copy()
    fixed.flags.writeable = False
    for same in (np.asfortranarray(value), strided, backwards, fixed, value.copy()):
        assert digest.of_arrays(same) == wanted
    assert digest.of_arrays(value.T) != wanted


def test_jax_arrays_are_arrays() -> None:
    for name in ("shape", "0-d", "bf16", "bool", "no zeros"):
        assert digest.of_arrays(jnp.asarray(VALUES[name])) == digest.of_arrays(VALUES[name])


def test_order_of_keys_does_not_count() -> None:
    a, b = np.zeros(2), np.zeros(3)
    assert digest.of_arrays({"a": a, "b": b}) == digest.of_arrays({"b": b, "a": a})


@pytest.mark.parametrize("leaf", [np.array([{}, 1], object), object()])
def test_objects_have_no_digest(leaf: object) -> None:
    with pytest.raises(TypeError, match=r"\['a'\] is .*, not an array"):
        digest.of_arrays({"a": leaf})


_SCRIPT = """
import jax.numpy as jnp, numpy as np
from tosajax.dtypes import DType
from tosajax.quant import QParams
from tosajax.sweep import digest
q = QParams(jnp.float32(1), jnp.float32(0), jnp.float32(8), dtype=DType.INT8)
print(digest.of_arrays({"x": np.arange(6.0), "q": q}))
print(digest.canonical({"b": {"y", "z"} and ["y", "z"], "a": DType.INT8, "c": np.arange(3)}))
"""


def test_processes_agree() -> None:
    """Hashes and addresses differ between processes."""
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        found.add(ran.stdout)
    assert len(found) == 1


def test_texts() -> None:
    parts = [("a", "b"), ("ab",), ("a\0b",), ("a", "", "b"), ("b", "a"), (), ("",), ('a", "b',)]
    digests = [digest.of_text(*p) for p in parts]
    assert len(set(digests)) == len(parts)
    assert digest.of_text("a", "b") == digests[0]
    assert len(digest.of_text("\ud800")) == 64


def test_equal_settings_have_one_text() -> None:
    array = np.arange(3)
    first = {"a": 1, "b": (1, 2.5), "c": {"y": None, "x": array}, "d": DType.INT8}
    second = {"d": DType.INT8, "c": {"x": array.copy(), "y": None}, "b": [1, 2.5], "a": 1}
    assert digest.canonical(first) == digest.canonical(second)
    assert digest.canonical({"a": np.int64(3)}) == digest.canonical({"a": 3})
    assert digest.canonical({"a": jnp.float32(0.5)}) == digest.canonical({"a": 0.5})
    assert digest.canonical({"a": np.bool_(True)}) == digest.canonical({"a": True})


def test_different_settings_have_different_texts() -> None:
    values = [
        *(1, 1.0, True, "1", None, "None", 0, -0.0, 0.0, False, "", [], {}, [1], {"1": 1}),
        *(0.1, np.float32(0.1), np.nan, np.inf, -np.inf, "nan", "NaN", [1, 2], [2, 1], [[1], 2]),
        *(np.array([1]), np.array([2]), np.array([1], np.int8), np.array([[1]])),
        *(DType.INT8, DType.INT16, 2**70),
    ]
    texts = [digest.canonical({"a": v}) for v in values]
    assert len(set(texts)) == len(values)


def test_plain_values_are_for_json() -> None:
    class Number(enum.IntEnum):
        TWO = 2

    setting = {
        "a": np.int8(-3),
        "b": (jnp.int32(4), np.float64(0.25)),
        3: DType.BF16,
        "e": Number.TWO,
        "f": np.zeros((2, 3), np.int8),
    }
    found = json.loads(json.dumps(digest.plain(setting)))
    shown = found.pop("f")
    assert found == {"a": -3, "b": [4, 0.25], "3": "BF16", "e": 2}
    assert shown.startswith("int8[2,3]:")
    assert len(shown) == len("int8[2,3]:") + 12
    assert shown != digest.plain(np.ones((2, 3), np.int8))


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 1j, len])
def test_settings_of_other_types(value: object) -> None:
    with pytest.raises(TypeError, match=r"a setting has .* expected a number, a string"):
        digest.canonical({"a": [value]})
