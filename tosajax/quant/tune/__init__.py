"""Improvements of a quantized model: weights, biases, rounding, bits."""
