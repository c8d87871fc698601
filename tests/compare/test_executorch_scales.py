"""Scales that an ExecuTorch program holds, without ExecuTorch."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import small_networks as small
from paths import DATA

import tosajax
from tosajax import FormatError, Quantization
from tosajax.compare import scales_of_executorch, scales_of_model
from tosajax.compare.executorch_scales import _PROGRAM
from tosajax.io import flatbuffer

SCALES = DATA / "et_scales"
# From the graph that ExecuTorch prints.
ENDS = [((0.003910720814019442,), (-128,)), ((0.002928487490862608,), (39,))]
BYTE, CHAR, SHORT = 0, 1, 2


@pytest.mark.parametrize("name", ["float_ends.pte", "integer_ends.pte"])
def test_real_programs(name):
    graph = tosajax.load(SCALES / "delegate.tosa")
    ends = (*graph.inputs, *graph.outputs)
    wanted = {end: Quantization(*pair) for end, pair in zip(ends, ENDS, strict=True)}
    assert scales_of_executorch(SCALES / name, graph) == wanted
    assert scales_of_model(SCALES / name, graph) == wanted


def number(value: float | int) -> dict[str, Any]:
    if isinstance(value, float):
        return {"val_type": 4, "val": {"double_val": value}}
    return {"val_type": 2, "val": {"int_val": value}}


def tensor(kind: int, sizes: tuple[int, ...] = small.SHAPE) -> dict[str, Any]:
    return {"val_type": 5, "val": {"scalar_type": kind, "sizes": list(sizes)}}


def kernel(operator: int, *args: int) -> dict[str, Any]:
    return {"args_type": 1, "instr_args": {"op_index": operator, "args": list(args)}}


def delegate(index: int, *args: int) -> dict[str, Any]:
    return {"args_type": 2, "instr_args": {"delegate_index": index, "args": list(args)}}


def method(values: list, instructions: list, **more: Any) -> dict[str, Any]:
    names = ("cortex_m::quantize_per_tensor", "quantized_decomposed::dequantize_per_tensor")
    return {
        "name": "forward",
        "values": values,
        "chains": [{"instructions": instructions}],
        "operators": [{"name": name} for name in (*names, "aten::add")],
        "inputs": [0],
        "outputs": [1],
    } | more


def plan(kind: int = CHAR, scale: float = 0.25, zero_point: int = -3) -> dict[str, Any]:
    """Floats, integers, what the delegate makes of them, floats."""
    values = [
        tensor(6), tensor(6), tensor(kind), tensor(kind),
        number(scale), number(zero_point), number(2.0), number(0),
    ]  # fmt: skip
    calls = [kernel(0, 0, 4, 5, 2, 2), kernel(2, 0, 1, 1), delegate(0, 2, 3), kernel(1, 3, 6, 7, 1)]
    return method(values, calls)


@pytest.fixture
def read(tmp_path):
    def of(*plans: dict[str, Any], graph: tosajax.Graph | None = None) -> dict[str, Quantization]:
        path = tmp_path / "net.pte"
        program = {"version": 0, "execution_plan": list(plans)}
        path.write_bytes(flatbuffer.encode(program, _PROGRAM, b"ET12"))
        return scales_of_executorch(path, graph or small.two_layers())

    return of


def test_types(read):
    wanted = {"x": Quantization((0.25,), (-3,)), "out": Quantization((2.0,), (0,))}
    assert read(plan()) == wanted
    assert read(plan(), graph=small.two_layers(batch=-1)) == wanted
    # Bytes are signed in the graph.
    of_bytes = {"x": Quantization((0.25,), (-3,)), "out": Quantization((2.0,), (-128,))}
    assert read(plan(BYTE, zero_point=125)) == of_bytes
    # A zero point that INT8 does not have says nothing of the tensor.
    assert list(read(plan(zero_point=999))) == ["out"]


def test_methods_that_hold_scales(read):
    def constant(name: str, value: float | int) -> dict[str, Any]:
        return method([number(value)], [], name=name, inputs=[], outputs=[0])

    ends = method([tensor(CHAR), tensor(CHAR)], [delegate(0, 0, 1)])
    given = {"input0_scale": 0.5, "input0_zp": 7, "output0_scale": 2.0, "output0_zp": -9}
    wanted = {"x": Quantization((0.5,), (7,)), "out": Quantization((2.0,), (-9,))}
    for prefix in ("", "forward_"):
        assert read(ends, *(constant(prefix + n, v) for n, v in given.items())) == wanted
    with pytest.raises(ValueError, match="no scales of the graph's 1 inputs and 1 outputs"):
        read(ends, constant("input0_scale", 0.5))


@pytest.mark.parametrize("place", [4, 5])
def test_a_scale_or_a_zero_point_that_the_program_computes(read, place):
    computed = plan()
    computed["values"][place] = tensor(6)
    assert list(read(computed)) == ["out"]


def test_several_delegates(read):
    other = method([tensor(CHAR)], [delegate(1, 0, 0, 0)], name="other")
    floats = method([tensor(6), tensor(6)], [delegate(0, 0, 1)])
    assert read(other, floats, plan(), plan()) == read(plan())
    with pytest.raises(ValueError, match=r"2 delegates have .* different scales"):
        read(plan(), plan(scale=0.5))


def test_other_programs(read, tmp_path):
    for found in (
        plan(SHORT),
        method([tensor(CHAR, (1, 4, 4)), tensor(CHAR)], [delegate(0, 0, 1)]),
        method([tensor(CHAR)], [delegate(0, 0)]),
        method([number(1), tensor(CHAR)], [delegate(0, 0, 1)]),
        method([], []),
    ):
        with pytest.raises(ValueError, match="no delegate has the graph's 1 inputs and 1 outputs"):
            read(found)
    with pytest.raises(FormatError, match=r"scale is .*-1"):
        read(plan(scale=-1.0))
    for index in (-1, 8):
        beyond = copy.deepcopy(plan())
        beyond["chains"][0]["instructions"][0]["instr_args"]["args"][1] = index
        with pytest.raises(FormatError, match=f"damaged .*{index} of 8"):
            read(beyond)
    (tmp_path / "x.pte").write_bytes(b"1234ET13" + bytes(99))
    with pytest.raises(FormatError, match="is not an ExecuTorch program"):
        scales_of_executorch(tmp_path / "x.pte", small.two_layers())
    with pytest.raises(FormatError, match="neither a TFLite model nor an ExecuTorch program"):
        scales_of_model(tmp_path / "x.pte", small.two_layers())


def test_any_damage(tmp_path):
    """Is found, or is in numbers: nothing else is raised."""
    graph, generator = tosajax.load(SCALES / "delegate.tosa"), random.Random(0)
    path, whole = tmp_path / "net.pte", (SCALES / "integer_ends.pte").read_bytes()
    outcomes = set()
    for _ in range(1000):
        damaged = bytearray(whole)
        for _ in range(generator.choice((1, 3, 30))):
            damaged[generator.randrange(8, 3000)] = generator.randrange(256)
        path.write_bytes(damaged)
        try:
            scales_of_executorch(path, graph)
            outcomes.add("read")
        except ValueError:  # FormatError is one
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
