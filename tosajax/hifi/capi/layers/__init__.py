"""The C functions of the layers; `tosajax.hifi.layers` exports them."""

from __future__ import annotations

# The modules here import from it, and it imports their functions: it has to start first.
import tosajax.hifi.layers  # noqa: F401
