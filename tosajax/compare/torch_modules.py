"""Records the tensors of a PyTorch module, for comparison with the graph converted from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def torch_tensors(module: Any, *inputs: Any) -> dict[str, np.ndarray]:
    """Runs a PyTorch module and records the output of each module inside it.

    `compare` finds the graph's tensors by these names if locations hold them, which ExecuTorch
    writes with `dump_debug_info(ArmCompileSpec.DebugMode.TOSA)`. If a batch norm was folded into a
    module, its tensor in the graph holds the values after the norm: fold norms before.

    Args:
      module: a `torch.nn.Module` in evaluation mode, with forward hooks.
      inputs: the module's inputs, tensors with the examples along the first axis.

    Returns:
      Arrays by module name ("features.3"), in PyTorch's layout; from the last call if a module is
      called several times, and the first tensor if it returns several.

    Raises:
      TypeError: the module has no hooks.
      ValueError: the module is in training mode.

    Example:
      >>> import torch  # doctest: +SKIP
      >>> from tosajax.compare import torch_tensors
      >>> layers = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())  # doctest: +SKIP
      >>> tensors = torch_tensors(layers, torch.zeros(1, 4))  # doctest: +SKIP
    """
    if not hasattr(module, "named_modules") or not hasattr(module, "register_forward_hook"):
        raise TypeError(f"module is {type(module).__name__}, expected a torch.nn.Module")
    if getattr(module, "training", False):
        raise ValueError("module is in training mode: call module.eval() first")
    arrays: dict[str, np.ndarray] = {}
    hooks = [
        part.register_forward_hook(_keeping(arrays, name))
        for name, part in module.named_modules()
        if name
    ]
    try:
        module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return arrays


def _keeping(arrays: dict[str, np.ndarray], name: str) -> Callable[[Any, Any, Any], None]:
    def keep(module: Any, inputs: Any, output: Any) -> None:
        tensor = _first(output)
        if tensor is not None:
            arrays[name] = _as_array(tensor)

    return keep


def _first(output: Any) -> Any:
    """The first tensor of an output; None if there is none."""
    if hasattr(output, "detach"):
        return output
    parts = output.values() if isinstance(output, Mapping) else output
    if not isinstance(output, Mapping | list | tuple):
        return None
    return next((t for part in parts if (t := _first(part)) is not None), None)


def _as_array(tensor: Any) -> np.ndarray:
    """A copy (later modules may write to the tensor); bf16, which NumPy lacks, as float32."""
    tensor = tensor.detach().cpu()
    if "bfloat16" in str(tensor.dtype):
        tensor = tensor.float()
    return np.array(tensor.numpy())
