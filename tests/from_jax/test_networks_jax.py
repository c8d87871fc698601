"""The networks of the collection: each runs in JAX, and its row in the table is true."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_networks import ROWS, Network, Size, as_users, build
from jax_networks.census import parameters, primitives


def _network(name: str, size: Size = "small") -> Network:
    package = ROWS[name].package
    if package is not None and find_spec(package) is None:
        pytest.skip(f"needs {package}")
    return build(name, size)


def _compared(names: Iterable[str]) -> set[str]:
    """JAX 0.10, for which the table is, unpacks arrays by slices; later versions by `unstack`."""
    unpacking = set() if jax.__version__.startswith("0.10.") else {"slice", "squeeze", "unstack"}
    return set(names) - unpacking


def _outputs(network: Network) -> list[np.ndarray]:
    with as_users():
        outputs = jax.jit(network.function())(*network.args)
    return [np.asarray(output, np.float64) for output in jax.tree.leaves(outputs)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_runs_and_row_is_true(name, quick):
    network, row = _network(name), ROWS[name]
    assert network.name == name
    assert len(network.names) == len(network.args)
    assert parameters(network) == row.small
    assert _compared(primitives(network)) == _compared(row.primitives.split())
    outputs = _outputs(network)
    assert all(np.isfinite(output).all() for output in outputs)
    # Numbers of the magnitude that a trained network has, which depend on the input.
    assert all(1e-3 < np.abs(output).max() < 1e5 for output in outputs[:1])
    assert any(output.size == 1 or output.std() > 1e-3 for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_full_network_runs_and_row_is_true(name):
    network, row = _network(name, "full"), ROWS[name]
    assert parameters(network) == row.full
    assert _compared(primitives(network)) == _compared(row.primitives.split())
    assert all(np.isfinite(output).all() for output in _outputs(network))


# Published numbers of parameters, without batch norms' statistics; channels of batch norms.
_PUBLISHED = {
    "resnet18": (11_689_512, 4_800),
    "resnet50": (25_557_032, 26_560),
    "mobilenet_v2": (3_504_872, 17_056),
    "mobilenet_v3": (5_483_032, 12_200),
    "efficientnet_b0": (5_288_548, 21_008),
    "vit": (86_567_656, 0),
    "swin": (28_288_354, 0),
    "convnext": (28_589_128, 0),
    "mixer": (18_528_264, 0),
    # These differ from ViT-Ti/16 by the class token and its position, from GPT-2 by 896 positions.
    "flax_vit": (5_717_416 - 2 * 192, 0),
    "flax_language_model": (124_439_808 - 896 * 768, 0),
}


@pytest.mark.parametrize("name", _PUBLISHED)
def test_full_network_has_published_size(name):
    published, channels = _PUBLISHED[name]
    assert ROWS[name].full == published + 2 * channels


@pytest.mark.parametrize("name", ["flax_cnn", "mobilenet_v2", "keras_cnn", "resnet18", "detector"])
def test_weights_are_seeded(name):
    first, second = (
        [leaf for leaf in jax.tree.leaves(_network(name).params) if _is_numbers(leaf)]
        for _ in range(2)
    )
    assert len(first) == len(second) > 0
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["flax_cnn", "mobilenet_v2", "keras_cnn"])
def test_batch_norms_have_statistics(name):
    paths = jax.tree_util.tree_leaves_with_path(_network(name).params)
    leaves = [leaf for _, leaf in paths if _is_numbers(leaf) and leaf.ndim == 1]
    assert not any(np.ptp(leaf) == 0 for leaf in leaves)


def _is_numbers(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating) or jnp.issubdtype(leaf.dtype, jnp.signedinteger)
