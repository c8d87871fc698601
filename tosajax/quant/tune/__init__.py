"""What improves a quantized model: weights, biases, rounding, bits."""
