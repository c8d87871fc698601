"""A node as rules see it: defaults of attributes, known values, names that it does not have."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax.spec import NanMode

CLAMP = {"input": (2,), "output": (2,), "min_val": np.int8(-5), "max_val": np.int8(7)}


def test_attributes_that_are_not_given_have_their_default(call_of):
    assert call_of("CLAMP", CLAMP).nan_mode is NanMode.PROPAGATE
    assert call_of("CLAMP", CLAMP | {"nan_mode": NanMode.IGNORE}).nan_mode is NanMode.IGNORE


def test_lists_are_integers(call_of):
    arguments = {"input1": (2, 3, 4), "shape": [4, -1], "output": (4, 6)}
    assert call_of("RESHAPE", arguments).shape == (4, -1)


def test_values_of_constants_are_known(call_of):
    arguments = {"input1": (2,), "input2": np.ones(2), "shift": np.zeros(1), "output": (2,)}
    call = call_of("MUL", arguments)
    assert [call.known(name) for name in ("input1", "input2", "shift")] == [False, True, True]


def test_no_argument_of_that_name(call_of):
    with pytest.raises(AttributeError, match="CLAMP has no argument 'input1'"):
        _ = call_of("CLAMP", CLAMP).input1
