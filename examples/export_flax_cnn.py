"""A CNN in Flax (nnx) becomes integers: trained in floats, then on its integers, and read back.

`quant.prepare` takes the module itself. The batch norms go into the convolutions before them, and
`QModel.pytree` gives the module with the weights that were trained in their place.

    pip install -e '.[train,reference,flax]' scikit-learn
    python examples/export_flax_cnn.py [--quick]

In full, on 540 images: floats 99.26 %; trained on integers, W8A8 98.70 %, W4A8 99.07 %.
Of 64 of these images, every integer is that of Arm's reference model.

Exits 1 if an integer differs from Arm's reference model, or the accuracy is low.
"""

from __future__ import annotations

import sys
from typing import Any

import digits
import jax_chain
from flax import nnx


class Cnn(nnx.Module):
    """Two convolutions with batch norms, and two linear layers."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 16, (3, 3), use_bias=False, rngs=rngs)
        self.norm1 = nnx.BatchNorm(16, rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
        self.norm2 = nnx.BatchNorm(32, rngs=rngs)
        self.hidden = nnx.Linear(2 * 2 * 32, 32, rngs=rngs)
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, image: Any) -> Any:
        x = nnx.relu(self.norm1(self.conv1(image)))
        x = nnx.relu(self.norm2(self.conv2(x)))
        x = nnx.max_pool(x, (2, 2), strides=(2, 2))
        x = nnx.relu(self.hidden(x.reshape(x.shape[0], -1)))
        return self.head(x)


def trained(split: digits.Split, steps: int) -> Cnn:
    """The network, trained in floats."""
    net = Cnn(rngs=nnx.Rngs(0))
    definition, params, state = nnx.split(net, nnx.Param, ...)

    def loss(params: Any, state: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        net = nnx.merge(definition, params, state, copy=True)
        value = jax_chain.cross_entropy(net(images), labels)
        return value, nnx.split(net, nnx.Param, ...)[2]

    params, state = jax_chain.trained(loss, params, state, split, steps)
    net = nnx.merge(definition, params, state)
    net.eval()  # batch norms have their statistics from now on
    return net


def main() -> int:
    """Returns the exit status."""
    chosen = jax_chain.settings(__doc__ or "")
    split = digits.load()
    net = trained(split, chosen.float_steps)
    share = jax_chain.accuracy(net(split.test_images), split.test_labels)
    print(f"float {100 * share:.2f} %")

    def run(net: Cnn, images: Any) -> Any:
        return net(images)

    passes = jax_chain.quantized(net, None, split.test_images[:1], run, split, chosen)
    return 0 if passes and share > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
