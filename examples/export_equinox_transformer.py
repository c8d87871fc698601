"""A transformer in Equinox becomes integers: trained in floats, then on its integers.

`quant.prepare` takes the module itself, which is of one image; the integers run in batches all the
same. Softmax, layer norms and GELU are integers as well. `QModel.pytree` gives the module back.

    pip install -e '.[train,reference,equinox]' scikit-learn
    python examples/export_equinox_transformer.py [--quick]

In full, on 540 images: floats 96.11 %; trained on integers, W8A8 95.37 %, W4A8 95.74 %.
Of 64 of these images, every integer is that of Arm's reference model.

Exits 1 if an integer differs from Arm's reference model, or the accuracy is low.
"""

from __future__ import annotations

import sys
from typing import Any

import digits
import equinox as eqx
import jax
import jax.numpy as jnp
import jax_chain

WIDTH, HEADS = 32, 2
ROWS, COLUMNS = 8, 8  # of an image


class Block(eqx.Module):
    """Attention and an MLP, each after a layer norm and around which its input goes."""

    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=first)
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 2 * WIDTH, 1, jax.nn.gelu, key=second)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))


class Transformer(eqx.Module):
    """One block on the rows of an image."""

    embed: eqx.nn.Linear
    positions: jax.Array
    block: Block
    head: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        self.embed = eqx.nn.Linear(COLUMNS, WIDTH, key=keys[0])
        self.positions = 0.1 * jax.random.normal(keys[1], (ROWS, WIDTH))
        self.block = Block(keys[2])
        self.head = eqx.nn.Linear(WIDTH, 10, key=keys[3])

    def __call__(self, image: jax.Array) -> jax.Array:
        x = jax.vmap(self.embed)(image.reshape(ROWS, COLUMNS)) + self.positions
        return self.head(self.block(x).mean(axis=0))


def run(net: Transformer, images: Any) -> jax.Array:
    """The scores of images."""
    return jax.vmap(net)(jnp.asarray(images))


def trained(split: digits.Split, steps: int) -> Transformer:
    """The network, trained in floats."""
    params, rest = eqx.partition(Transformer(jax.random.key(0)), eqx.is_array)

    def loss(params: Any, state: None, images: Any, labels: Any) -> tuple[jax.Array, None]:
        scores = run(eqx.combine(params, rest), images)
        return jax_chain.cross_entropy(scores, labels), state

    return eqx.combine(jax_chain.trained(loss, params, None, split, steps)[0], rest)


def main() -> int:
    """Returns the exit status."""
    chosen = jax_chain.settings(__doc__ or "")
    split = digits.load()
    net = trained(split, 2 * chosen.float_steps)
    share = jax_chain.accuracy(run(net, split.test_images), split.test_labels)
    print(f"float {100 * share:.2f} %")
    passes = jax_chain.quantized(net, None, split.test_images[0], run, split, chosen)
    return 0 if passes and share > 0.85 else 1


if __name__ == "__main__":
    sys.exit(main())
