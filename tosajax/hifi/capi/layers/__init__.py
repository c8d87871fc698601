"""The C functions of the layers; `tosajax.hifi.layers` exports them."""

from __future__ import annotations

# The import comes first: modules here import from `layers`, which imports their functions.
import tosajax.hifi.layers  # noqa: F401
