"""Observers and masks: from the values of tensors to scales and zero points."""
