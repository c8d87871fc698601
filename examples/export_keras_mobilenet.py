"""A MobileNet-like network in Keras becomes integers: trained in floats, then on its integers.

Keras runs on JAX, and `stateless_call` is the function to quantize. `QModel.pytree` gives values
for the variables of the Keras model.

    pip install -e '.[train,reference,keras]' scikit-learn
    python examples/export_keras_mobilenet.py [--quick]

In full, on 540 images: floats 98.89 %; trained on integers, W8A8 98.52 %, W4A8 98.89 %.
Of 64 of these images, every integer is that of Arm's reference model.

Exits 1 if an integer differs from Arm's reference model, or the accuracy is low.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import digits
import jax
import jax.numpy as jnp
import jax_chain

os.environ["KERAS_BACKEND"] = "jax"  # read once, at import

import keras
from keras import layers


def normed(x: Any, layer: layers.Layer, *, is_clipped: bool = True) -> Any:
    """A convolution with its batch norm, and ReLU6."""
    x = layers.BatchNormalization(momentum=0.9)(layer(x))
    return layers.ReLU(6.0)(x) if is_clipped else x


def inverted_residual(x: Any, features: int, stride: int) -> Any:
    """A wide depthwise convolution between two of 1x1."""
    hidden = 4 * x.shape[-1]
    y = normed(x, layers.Conv2D(hidden, 1, use_bias=False))
    y = normed(y, layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False))
    y = normed(y, layers.Conv2D(features, 1, use_bias=False), is_clipped=False)
    return layers.Add()([x, y]) if stride == 1 and features == x.shape[-1] else y


def network() -> keras.Model:
    """A convolution, two inverted residuals, and a mean over the image."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 1))
    x = normed(image, layers.Conv2D(16, 3, padding="same", use_bias=False))
    x = inverted_residual(x, 16, 1)
    x = inverted_residual(x, 24, 2)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(10)(x))


def train(net: keras.Model, split: digits.Split, steps: int) -> None:
    """Trains the variables of the network in floats."""

    def loss(trained: Any, others: Any, images: Any, labels: Any) -> tuple[jax.Array, Any]:
        scores, others = net.stateless_call(trained, others, images, training=True)[:2]
        return jax_chain.cross_entropy(scores, labels), others

    groups = net.trainable_variables, net.non_trainable_variables
    start, state = ([jnp.asarray(v.value) for v in variables] for variables in groups)
    final = jax_chain.trained(loss, start, state, split, steps)
    for variables, arrays in zip(groups, final, strict=True):
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)


def main() -> int:
    """Returns the exit status."""
    chosen = jax_chain.settings(__doc__ or "")
    split = digits.load()
    net = network()
    train(net, split, chosen.float_steps)
    # By path, so that tensors of the graph have the names of the variables.
    params = {v.path: jnp.asarray(v.value) for v in net.variables}

    def apply(params: dict[str, jax.Array], image: Any) -> Any:
        trained, others = (
            [params[v.path] for v in variables]
            for variables in (net.trainable_variables, net.non_trainable_variables)
        )
        return net.stateless_call(trained, others, image, training=False)[0]

    share = jax_chain.accuracy(jax.jit(apply)(params, split.test_images), split.test_labels)
    print(f"float {100 * share:.2f} %")

    def run(params: dict[str, jax.Array], images: Any) -> Any:
        for variable in net.variables:
            variable.assign(params[variable.path])
        return net(images)

    passes = jax_chain.quantized(apply, params, split.test_images[:1], run, split, chosen)
    return 0 if passes and share > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
