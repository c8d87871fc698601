"""The C functions of the layers; `tosajax.hifi.layers` exports them."""

from __future__ import annotations

# It takes its names from the modules here, and so has to come first where one of them is imported.
import tosajax.hifi.layers  # noqa: F401
