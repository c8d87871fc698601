"""Public functions refuse arguments of other types by name, before they do anything."""

# The arguments are of other types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

import numpy as np
import programs
import pytest

import tosajax
from tosajax import Builder, DType, Target

GRAPH = programs.plus(1, "main", (1, 3))
X = np.zeros((1, 3), np.int32)
A_GRAPH = "graph is .*, expected a Graph, as from tosajax.load"
TARGET = r'expected a Target or a text such as "PRO-INT\+EXT-INT16@8K"'

CASES = {
    "compile a path": (lambda: tosajax.compile("m.tosa"), A_GRAPH),
    "lower a path": (lambda: tosajax.lower("m.tosa"), A_GRAPH),
    "validate a path": (lambda: tosajax.validate("m.tosa"), A_GRAPH),
    "bind a path": (lambda: tosajax.bind("m.tosa", batch=2), A_GRAPH),
    "differentiate None": (lambda: tosajax.differentiable(None), A_GRAPH),
    "save a path": (lambda: tosajax.save("m.tosa", "n.tosa"), A_GRAPH),
    "save to 1": (lambda: tosajax.save(GRAPH, 1), "path is 1 .int., expected a path"),
    "load 1": (lambda: tosajax.load(1), r"source is 1 \(int\), expected a path or the bytes"),
    "load batch=True": (lambda: tosajax.load("m.tosa", True), r"batch is True \(bool\), expected"),
    "a batch as the target": (lambda: tosajax.compile(GRAPH, 16), rf"target is 16 .int., {TARGET}"),
    "batch=True": (
        lambda: tosajax.compile(GRAPH, batch=True),
        r"batch is True \(bool\), expected an",
    ),
    "batch=2.0": (
        lambda: tosajax.compile(GRAPH, batch=2.0),
        r"batch is 2.0 \(float\), expected an",
    ),
    "micro_batch='x'": (
        lambda: tosajax.compile(GRAPH, batch=2, micro_batch="x"),
        r"micro_batch is 'x' \(str\)",
    ),
    "devices='cpu'": (
        lambda: tosajax.compile(GRAPH, batch=2, devices="cpu"),
        "devices is 'cpu' .str., expected a",
    ),
    "devices=1": (
        lambda: tosajax.compile(GRAPH, batch=2, devices=1),
        "devices is 1 .int., expected",
    ),
    "devices=[0]": (
        lambda: tosajax.compile(GRAPH, batch=2, devices=[0]),
        "a device is 0 .int., expected",
    ),
    "state=[]": (
        lambda: tosajax.compile(GRAPH, state=[]),
        r"state is \[\] .list., expected a dict",
    ),
    "cache_dir=1": (
        lambda: tosajax.compile(GRAPH, cache_dir=1),
        "cache_dir is 1 .int., expected the",
    ),
    "validate with 1": (lambda: tosajax.validate(GRAPH, 1), rf"target is 1 .int., {TARGET}"),
    "parse 1": (lambda: Target.parse(1), "a target is 1 .int., expected a text such as"),
    "profiles of text": (lambda: Target("PRO-FP"), "profiles is 'PRO-FP' .* Target.parse reads"),
    "run_op of 1": (lambda: tosajax.run_op(1, []), "op is 1 .int., expected the name"),
    "run_op of an array": (
        lambda: tosajax.run_op("ABS", X),
        "inputs is .*ndarray.*, expected a list",
    ),
    "load_executable(1)": (lambda: tosajax.load_executable(1), "path is 1 .int., expected a path"),
    "an array in a Builder": (lambda: Builder().op("ABS", X), "an input of ABS is .*ndarray"),
    "a type of NumPy": (
        lambda: Builder().input("x", np.int8, (1,)),
        "dtype is .*int8.*, expected a DType",
    ),
    "an output of text": (
        lambda: Builder().graph(["x"]),
        "an output is 'x' .str., expected a Tensor",
    ),
    "outputs that are one": (lambda: Builder().graph(5), "outputs is 5 .int., expected a list"),
}


@pytest.mark.parametrize("case", CASES)
def test_of_another_type(case):
    call, message = CASES[case]
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("name", ["batch", "micro_batch"])
def test_counts_below_one(name):
    with pytest.raises(ValueError, match=f"{name} is 0, expected at least 1"):
        tosajax.compile(GRAPH, **{"batch": 2, name: 0})


def test_counts_of_numpy():
    assert tosajax.compile(GRAPH, batch=np.int64(2)).examples == 2


def test_a_target_is_a_text_everywhere():
    floats = programs.unary("ABS", "main", DType.FP32)
    with pytest.raises(tosajax.TosaError, match="PRO-FP"):
        tosajax.compile(floats, "PRO-INT")
    assert tosajax.compile(GRAPH, "PRO-INT@none").target == Target.parse("PRO-INT@none")
    assert not tosajax.validate(GRAPH, "pro-int").errors
    with pytest.raises(tosajax.TosaError, match="PRO-FP"):
        tosajax.run_op("ABS", [X.astype(np.float32)], target="PRO-INT")
    for text, message in {
        "PRO-XY": "unknown profile 'PRO-XY', expected one of PRO-INT, PRO-FP",
        "": "a target needs a profile",
        "PRO-INT@9K": "unknown level '9K', expected one of",
    }.items():
        with pytest.raises(ValueError, match=message):
            tosajax.validate(GRAPH, text)
