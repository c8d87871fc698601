"""Scales that an ExecuTorch program holds, for the graph of its delegate. Needs no ExecuTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tosajax.compare._model_files import SKIPPED, read, same_size, table
from tosajax.dtypes import DType
from tosajax.graph import Graph, Quantization, Tensor
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.io.schema import Blob, Scalar, Union, Vector
from tosajax.report import FormatError

IDENTIFIER = b"ET12"
# By numbers of ScalarType, the types with scales and whether they are unsigned.
_TYPES = {0: (DType.INT8, True), 1: (DType.INT8, False), 2: (DType.INT16, False)}
_QUANTIZED = {dtype for dtype, _ in _TYPES.values()}
_Known = Mapping[int, tuple[float, int]]  # scale and zero point, by number of the value


# The layout of "schema/program.fbs", as far as the scales.
_INT = table("Int", int_val=Scalar.INT64)
_DOUBLE = table("Double", double_val=Scalar.FLOAT64)
_TENSOR = table(
    "Tensor",
    scalar_type=Scalar.UINT8, storage_offset=Scalar.INT32, sizes=Vector(Scalar.INT32),
    dim_order=SKIPPED, requires_grad=Scalar.BOOL, data_buffer_idx=Scalar.UINT32,
    allocation_info=SKIPPED, layout=Scalar.UINT8, shape_dynamism=Scalar.UINT8,
    extra_tensor_info=SKIPPED,
)  # fmt: skip
_VALUE = table(
    "EValue", val_type=Scalar.UINT8, val=Union("val_type", {2: _INT, 4: _DOUBLE, 5: _TENSOR})
)
_KERNEL_CALL = table("KernelCall", op_index=Scalar.INT32, args=Vector(Scalar.INT32))
_DELEGATE_CALL = table("DelegateCall", delegate_index=Scalar.INT32, args=Vector(Scalar.INT32))
_INSTRUCTION = table(
    "Instruction",
    args_type=Scalar.UINT8, instr_args=Union("args_type", {1: _KERNEL_CALL, 2: _DELEGATE_CALL}),
)  # fmt: skip
_CHAIN = table(
    "Chain",
    inputs=SKIPPED, outputs=SKIPPED, instructions=Vector(_INSTRUCTION), stacktrace=SKIPPED,
)  # fmt: skip
_OPERATOR = table("Operator", name=Blob.TEXT, overload=SKIPPED)
_PLAN = table(
    "ExecutionPlan",
    name=Blob.TEXT, container_meta_type=SKIPPED, values=Vector(_VALUE),
    inputs=Vector(Scalar.INT32), outputs=Vector(Scalar.INT32), chains=Vector(_CHAIN),
    operators=Vector(_OPERATOR), delegates=SKIPPED, non_const_buffer_sizes=SKIPPED,
    non_const_buffer_device=SKIPPED,
)  # fmt: skip
_PROGRAM = table("Program", version=Scalar.UINT32, execution_plan=Vector(_PLAN))


def scales_of_executorch(path: str | os.PathLike[str], graph: Graph) -> dict[str, Quantization]:
    """What the integers of a graph stand for, by the ExecuTorch program that holds it.

    The graph is what a delegate runs. Its inputs and outputs have the scales of the
    quantize_per_tensor and dequantize_per_tensor that surround the delegate; or, where those were
    removed, the ones that `executorch.exir.passes.quantize_io_pass` leaves in the program.

    Args:
      path: of the .pte file.
      graph: of one of its delegates.

    Returns:
      By the graph's names, what is known of its inputs and outputs.

    Raises:
      FormatError: the file is not an ExecuTorch program, or damaged.
      ValueError: no delegate has inputs and outputs as the graph has, or several have, with other
        scales; or they have no scales.
      OSError: the file cannot be read.
    """
    plans = read(path, IDENTIFIER, "an ExecuTorch program", _PROGRAM, "execution_plan")
    try:
        given = _given_scales(plans)
        found = [
            _quantizations(graph, plan, args, known)
            for plan in plans
            for known in (_scales(plan, given),)
            for args in _delegate_calls(plan)
            if _fits(graph, plan, args)
        ]
    except (IndexError, TypeError, KeyError, OverflowError) as error:
        raise FormatError(f"{path}: the program is damaged ({error!r})") from None
    except ValueError as error:
        raise FormatError(f"{path}: {error}") from None
    ends = f"{len(graph.inputs)} inputs and {len(graph.outputs)} outputs"
    if not found:
        raise ValueError(f"{path}: no delegate has the graph's {ends}, in types and sizes")
    if any(other != found[0] for other in found):
        raise ValueError(
            f"{path}: {len(found)} delegates have the graph's {ends}, with different scales: give "
            "them one by one"
        )
    if not found[0]:
        raise ValueError(f"{path} has no scales of the graph's {ends}")
    return found[0]


def _calls(plan: Mapping[str, Any], kind: int) -> Iterator[Mapping[str, Any]]:
    for chain in plan["chains"] or ():
        for instruction in chain["instructions"] or ():
            if instruction["args_type"] == kind:
                yield instruction["instr_args"]


def _delegate_calls(plan: Mapping[str, Any]) -> Iterator[Sequence[int]]:
    return (call["args"] or () for call in _calls(plan, 2))


def _scales(plan: Mapping[str, Any], given: Mapping[str, float | int]) -> _Known:
    """Of each value of integers that a float was made into, or that a float is made of."""
    known = {}
    for what in ("input", "output"):
        for number, value in enumerate(plan[f"{what}s"] or ()):
            for prefix in (f"{plan['name']}_", ""):
                name = f"{prefix}{what}{number}"
                if {f"{name}_scale", f"{name}_zp"} <= given.keys():
                    known[value] = float(given[f"{name}_scale"]), int(given[f"{name}_zp"])
    for call in _calls(plan, 1):
        name = _at(plan["operators"], call["op_index"])["name"].split("::")[-1]
        if name not in ("quantize_per_tensor", "dequantize_per_tensor"):
            continue
        args = call["args"]
        scale, zero_point = (_number(plan, args[i]) for i in (1, 2))
        if scale is not None and zero_point is not None:
            known[args[-1] if name == "quantize_per_tensor" else args[0]] = scale, int(zero_point)
    return known


def _given_scales(plans: Sequence[Mapping[str, Any]]) -> dict[str, float | int]:
    """The numbers that methods without inputs return, by the names of the methods."""
    found = {}
    for plan in plans:
        if not plan["inputs"] and len(plan["outputs"] or ()) == 1:
            number = _number(plan, plan["outputs"][0])
            if number is not None:
                found[plan["name"]] = number
    return found


def _at(items: Sequence[Any], index: int) -> Any:
    if not 0 <= index < len(items):
        raise IndexError(f"{index} of {len(items)}")
    return items[index]


def _number(plan: Mapping[str, Any], index: int) -> float | int | None:
    value = _at(plan["values"], index)
    field = {2: "int_val", 4: "double_val"}.get(value["val_type"])
    return None if field is None else value["val"][field]


def _fits(graph: Graph, plan: Mapping[str, Any], args: Sequence[int]) -> bool:
    tensors = (*graph.input_tensors, *graph.output_tensors)
    if len(args) != len(tensors):
        return False
    values = (_at(plan["values"], index) for index in args)
    return all(
        v["val_type"] == 5
        and _type_of(v)[0] is (t.dtype if t.dtype in _QUANTIZED else None)
        and same_size(t, v["val"]["sizes"] or ())
        for t, v in zip(tensors, values, strict=True)
    )


def _type_of(value: Mapping[str, Any]) -> tuple[DType | None, bool]:
    return _TYPES.get(value["val"]["scalar_type"], (None, False))


def _quantizations(
    graph: Graph, plan: Mapping[str, Any], args: Sequence[int], known: _Known
) -> dict[str, Quantization]:
    unsigned = unsigned_tensors(graph)
    found = {}
    tensors: Sequence[Tensor] = (*graph.input_tensors, *graph.output_tensors)
    for tensor, index in zip(tensors, args, strict=True):
        dtype, is_unsigned = _type_of(_at(plan["values"], index))
        if dtype is None or index not in known:
            continue
        scale, zero_point = known[index]
        if is_unsigned and tensor.name not in unsigned:
            zero_point -= 1 << (dtype.bits - 1)
        quantization = Quantization((scale,), (zero_point,))
        if quantization.fits(tensor):
            found[tensor.name] = quantization
    return found
