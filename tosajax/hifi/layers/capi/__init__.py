"""The C functions of the layers; `tosajax.hifi.layers` exports them."""
