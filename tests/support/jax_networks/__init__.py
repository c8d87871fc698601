"""Networks in plain JAX, Flax, Keras and Equinox, written as users of them write.

`build("resnet50", "full")` makes one; `census.py` tells what they consist of.
"""

from jax_networks._network import Network, Size, as_users
from jax_networks.table import ROWS, Row, build

__all__ = ["ROWS", "Network", "Row", "Size", "as_users", "build"]
