"""IDENTITY keeps every type as it is."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from oracle.table_rows import rows
from oracle.transforms import assert_identical

from tosajax.fixedpoint import _x64
from tosajax.ops.data_nodes import identity


@pytest.mark.parametrize(("name", "types"), rows("IDENTITY"))
def test_identity(name, types):
    dtype = types["in_out_t"].storage
    small = np.arange(-3, 4)
    wide = dtype == np.int64
    x = _x64.from_numpy(small * 2**40) if wide else jax.device_put(small.astype(dtype))
    assert_identical(identity(x), x)
    assert_identical(jax.jit(identity)(x), x)
