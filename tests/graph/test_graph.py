"""Graphs as data that go from one process to another."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tosajax

NETWORKS = ["et_digits_cnn_a8w8", "et_digits_cnn_a16w8", "jax_gather"]


@pytest.mark.parametrize("name", NETWORKS)
def test_copies_are_equal(data, name):
    graph = tosajax.load(data / name / "model.tosa")
    for copied in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert copied == graph
        assert copied.source == graph.source
        assert [n.location for n in copied.nodes] == [n.location for n in graph.nodes]
        tensors: Any = copied.tensors
        with pytest.raises(TypeError):
            tensors["more"] = None


def test_values_of_a_copy_are_frozen(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    copied = pickle.loads(pickle.dumps(graph))
    values = [t.values for t in copied.tensors.values() if t.values is not None]
    assert values
    for array in values:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = np.zeros_like(array)
