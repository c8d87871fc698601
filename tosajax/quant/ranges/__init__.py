"""From the values of tensors to scales and zero points."""
