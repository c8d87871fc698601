"""Outputs of modules by hooks; modules here only look like PyTorch's, which tests do not need."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tosajax.compare import torch_tensors


class Tensor:
    """As much of torch.Tensor as hooks see."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.dtype = values, f"torch.{values.dtype.name}"

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def float(self) -> Tensor:
        return Tensor(self.values.astype(np.float32))

    def numpy(self) -> np.ndarray:
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values


class Module:
    """As much of torch.nn.Module as `torch_tensors` uses."""

    def __init__(self, function: Any, **parts: Module) -> None:
        self.function, self.parts, self.hooks, self.training = function, parts, [], False

    def named_modules(self, prefix: str = "") -> Any:
        yield prefix, self
        for name, part in self.parts.items():
            yield from part.named_modules(f"{prefix}.{name}" if prefix else name)

    def register_forward_hook(self, hook: Any) -> Any:
        self.hooks.append(hook)
        owner = self

        class Handle:
            def remove(self) -> None:
                owner.hooks.remove(hook)

        return Handle()

    def __call__(self, *inputs: Any) -> Any:
        output = self.function(*inputs, **self.parts)
        for hook in [*self.hooks]:
            hook(self, inputs, output)
        return output


def double(x: Tensor) -> Tensor:
    return Tensor(x.values * 2)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def network(**others: Any) -> Module:
    inner = Module(lambda x, act: act(x), act=Module(double))
    return Module(lambda x, first, **_: first(first(x)), first=inner, **others)


def test_outputs_by_the_names_of_modules():
    """Those of the last call; hooks are gone afterwards, and the module itself has no name."""
    net = network(unused=Module(double))
    found = torch_tensors(net, Tensor(X))
    assert list(found) == ["first.act", "first"]
    np.testing.assert_array_equal(found["first"], 4 * X, strict=True)
    assert not any(part.hooks for _, part in net.named_modules())


def test_an_array_is_not_changed_by_later_modules():
    def in_place(x: Tensor) -> Tensor:
        x.values *= 0
        return x

    both = Module(lambda x, a, b: b(a(x)), a=Module(double), b=Module(in_place))
    np.testing.assert_array_equal(torch_tensors(both, Tensor(X.copy()))["a"], 2 * X)


@pytest.mark.parametrize(
    "several", [lambda x: (None, [x, 1]), lambda x: {"y": x}, lambda x: [{}, (x,)]]
)
def test_the_first_tensor_of_several(several):
    net = Module(lambda x, a: a(x), a=Module(several))
    np.testing.assert_array_equal(torch_tensors(net, Tensor(X))["a"], X)


def test_outputs_that_are_no_tensors():
    net = Module(lambda x, a: a(x), a=Module(lambda x: "text"))
    assert torch_tensors(net, Tensor(X)) == {}


def test_bf16_becomes_float32():
    net = Module(lambda x, a: a(x), a=Module(lambda x: x))
    found = torch_tensors(net, Tensor(X.astype(ml_dtypes.bfloat16)))["a"]
    np.testing.assert_array_equal(found, X, strict=True)


def test_misuse_and_failure():
    net = network()
    net.training = True
    with pytest.raises(ValueError, match=r"training mode: call module.eval\(\)"):
        torch_tensors(net, Tensor(X))
    with pytest.raises(TypeError, match=r"module is function, expected a torch\.nn\.Module"):
        torch_tensors(double, Tensor(X))
    net.training = False
    with pytest.raises(AttributeError):
        torch_tensors(net, "no tensor")
    assert not any(part.hooks for _, part in net.named_modules())
