"""Where nodes come from, in the words of each producer."""

from __future__ import annotations

import json

import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType
from tosajax.graph import Node
from tosajax.graph.locations import described, matches, tensors_at, tensors_by_names


def stack(*lines: str, modules: dict | None = None) -> str:
    torch = {"stack_trace": list(lines), "nn_module_stack": modules or {}}
    return json.dumps({"event_id": 3, "torch_info": torch})


FRAMES = (
    'File "digits/train.py", line 7, in main', "    model(x)",
    'File "digits/net.py", line 23, in forward', "    y = F.relu(s.b2(s.dw(x)))",
    '  File "lib/site-packages/torch/nn/conv.py", line 565, in forward', "    return conv(x)", "",
)  # fmt: skip
MODULES = {"L__self__": ["", "net.Net"], "L__self__dw": ["features.dw", "torch.nn.Conv2d"]}

CASES = {
    "nothing": (None, ""),
    "tensor": ('loc("a/b;c"("out/model.tflite":0:0))', "a/b;c"),
    "tensors": ('loc(fused["a"("m.tflite":0:0), "b"("m.tflite":0:0)])', "b"),
    "quotes": ('loc("a\\"b"("m.tflite":0:0))', 'a\\"b'),
    "file": ('loc("out/model.mlir":86:11)', "out/model.mlir:86"),
    "unknown": ("loc(unknown)", "unknown"),
    "name": ('loc("conv1")', "conv1"),
    "own words": ("layer3/conv", "layer3/conv"),
    "stack": (stack(*FRAMES, modules=MODULES), "net.py:23 y = F.relu(s.b2(s.dw(x))) [features.dw]"),
    "no modules": (stack(*FRAMES), "net.py:23 y = F.relu(s.b2(s.dw(x)))"),
    "no frames": (stack(modules=MODULES), "features.dw"),
    "library": (stack(*FRAMES[4:]), stack(*FRAMES[4:])),
    "other JSON": ('{"a": 1}', '{"a": 1}'),
    "odd JSON": ('{"torch_info": 3}', '{"torch_info": 3}'),
    "no JSON": ("{broken", "{broken"),
}


@pytest.mark.parametrize("case", CASES)
def test_described(case):
    location, want = CASES[case]
    assert described(location) == want


def test_of_executorch(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    texts = [described(node.location) for node in graph.nodes if node.inputs]
    assert all(text.startswith("et_models.py:") for text in texts)
    assert "et_models.py:25 return s.fc(x) [fc]" in texts


def test_tensors_at():
    found = tensors_at(small.two_layers())
    assert found == {"first;conv": ["acc1", "act1", "relu1"], "second/conv": ["acc2", "out"]}


def test_tensors_by_names(data):
    """By the kind of name: a node of the exported program, one made of it, a module, a place."""
    tflite, *torch, places = tensors_by_names(small.two_layers())
    assert tflite == places == tensors_at(small.two_layers())
    assert torch == [{}, {}, {}]
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    tflite, exported, made, modules, places = tensors_by_names(graph)
    first = ["tosa_depthwise_conv2d_default", "tosa_rescale_default_1"]
    assert tflite == {}
    assert exported["conv2d"] == first
    assert made["convolution"] == first
    assert modules["c1"] == places["et_models.py:22 x = F.relu(s.b1(s.c1(x))) [c1]"] == first
    assert "" not in modules
    vit = tosajax.load(data / "et_digits_vit_a8w8" / "model.tosa")
    modules = tensors_by_names(vit)[3]
    assert set(modules["blocks.0.n1"]) < set(modules["blocks.0"])


@pytest.mark.parametrize("location", ["{broken", '{"torch_info": 3}', "loc(unknown)", None])
def test_places_without_names_of_torch(location):
    b = Builder()
    graph = b.graph([b.op("ABS", b.input("x", DType.FP32, (1,)), name="y", location=location)])
    assert tensors_by_names(graph)[:4] == [{}, {}, {}, {}]


def test_matches():
    node = Node("ADD", ("a",), ("sum",), location=small.LOCATIONS[0])
    for where in (None, "", "sum", "^s", "first;conv$", "con"):
        assert matches(node, where)
    for where in ("ADD", "^um", "tflite"):
        assert not matches(node, where)
