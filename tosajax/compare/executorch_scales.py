"""Reads the scales of a delegate's inputs and outputs from an ExecuTorch program.

Needs no ExecuTorch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tosajax.compare._model_files import read
from tosajax.dtypes import DType
from tosajax.graph import Graph, Quantization
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.io.schema import Blob, Scalar, Union, Vector
from tosajax.io.stored import SKIPPED, Fields, Stored, same_size, table
from tosajax.report import FormatError

IDENTIFIER = b"ET12"
# The types with scales, by their ScalarType numbers.
_TYPES = {0: Stored(DType.INT8, is_unsigned=True), 1: Stored(DType.INT8), 2: Stored(DType.INT16)}
_Known = Mapping[int, tuple[float, int]]  # index of a value -> scale and zero point
# Union type numbers of values and of instructions.
_INT_VALUE, _DOUBLE_VALUE, _TENSOR_VALUE = 2, 4, 5
_KERNEL, _DELEGATE = 1, 2

# The part of "schema/program.fbs" that is needed to find the scales.
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
    "EValue",
    val_type=Scalar.UINT8,
    val=Union("val_type", {_INT_VALUE: _INT, _DOUBLE_VALUE: _DOUBLE, _TENSOR_VALUE: _TENSOR}),
)
_KERNEL_CALL = table("KernelCall", op_index=Scalar.INT32, args=Vector(Scalar.INT32))
_DELEGATE_CALL = table("DelegateCall", delegate_index=Scalar.INT32, args=Vector(Scalar.INT32))
_INSTRUCTION = table(
    "Instruction",
    args_type=Scalar.UINT8,
    instr_args=Union("args_type", {_KERNEL: _KERNEL_CALL, _DELEGATE: _DELEGATE_CALL}),
)
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
    """Reads the scales of a graph's inputs and outputs from the ExecuTorch program that holds it.

    A delegate of the program runs the graph. Its inputs and outputs have the scales of the
    quantize_per_tensor and dequantize_per_tensor around the delegate. If
    `executorch.exir.passes.quantize_io_pass` removed these operators, it left their scales in the
    program.

    Args:
      path: the path of the .pte file.
      graph: the graph of one of its delegates.

    Returns:
      The quantization of inputs and outputs, as far as the program has it, by the graph's names.

    Raises:
      FormatError: the file is not an ExecuTorch program, or damaged.
      ValueError: no delegate has the graph's inputs and outputs, several have them with different
        scales, or they have no scales.
      OSError: the file cannot be read.

    Example:
      >>> import tosajax
      >>> from tosajax.compare import scales_of_executorch
      >>> graph = tosajax.load("model.tosa")  # doctest: +SKIP
      >>> scales = scales_of_executorch("model.pte", graph)  # doctest: +SKIP
    """
    plans = read(path, IDENTIFIER, "an ExecuTorch program", _PROGRAM, "execution_plan")
    try:
        constants = _given_scales(plans)
        candidates = [
            _quantizations(graph, plan, args, scales)
            for plan in plans
            for scales in (_scales(plan, constants),)
            for args in (call["args"] or () for call in _calls(plan, _DELEGATE))
            if _fits(graph, plan, args)
        ]
    except (IndexError, TypeError, KeyError, OverflowError) as error:
        raise FormatError(f"{path}: the program is damaged ({error!r})") from None
    except ValueError as error:
        raise FormatError(f"{path}: {error}") from None
    ends = f"{len(graph.inputs)} inputs and {len(graph.outputs)} outputs"
    if not candidates:
        raise ValueError(f"{path}: no delegate has the graph's {ends}, in types and sizes")
    if any(other != candidates[0] for other in candidates):
        raise ValueError(
            f"{path}: {len(candidates)} delegates have the graph's {ends}, with different scales: "
            "give them one by one"
        )
    if not candidates[0]:
        raise ValueError(f"{path} has no scales of the graph's {ends}")
    return candidates[0]


def _calls(plan: Fields, kind: int) -> Iterator[Fields]:
    for chain in plan["chains"] or ():
        for instruction in chain["instructions"] or ():
            if instruction["args_type"] == kind:
                yield instruction["instr_args"]


def _scales(plan: Fields, constants: Mapping[str, float | int]) -> _Known:
    """The scales of all values that are quantized from a float or dequantized to one."""
    scales = {}
    for kind in ("input", "output"):
        for number, value in enumerate(plan[f"{kind}s"] or ()):
            for prefix in (f"{plan['name']}_", ""):
                name = f"{prefix}{kind}{number}"
                if {f"{name}_scale", f"{name}_zp"} <= constants.keys():
                    scales[value] = float(constants[f"{name}_scale"]), int(constants[f"{name}_zp"])
    for call in _calls(plan, _KERNEL):
        name = _checked_item(plan["operators"], call["op_index"])["name"].split("::")[-1]
        if name not in ("quantize_per_tensor", "dequantize_per_tensor"):
            continue
        args = call["args"]
        scale, zero_point = (_number(plan, args[i]) for i in (1, 2))
        if scale is not None and zero_point is not None:
            scales[args[-1] if name == "quantize_per_tensor" else args[0]] = scale, int(zero_point)
    return scales


def _given_scales(plans: Sequence[Fields]) -> dict[str, float | int]:
    """The numbers that methods without inputs return, by method name."""
    scales = {}
    for plan in plans:
        if not plan["inputs"] and len(plan["outputs"] or ()) == 1:
            number = _number(plan, plan["outputs"][0])
            if number is not None:
                scales[plan["name"]] = number
    return scales


def _checked_item(items: Sequence[Any], index: int) -> Any:
    if not 0 <= index < len(items):
        raise IndexError(f"{index} of {len(items)}")
    return items[index]


def _number(plan: Fields, index: int) -> float | int | None:
    value = _checked_item(plan["values"], index)
    field = {_INT_VALUE: "int_val", _DOUBLE_VALUE: "double_val"}.get(value["val_type"])
    return None if field is None else value["val"][field]


def _fits(graph: Graph, plan: Fields, args: Sequence[int]) -> bool:
    tensors = (*graph.input_tensors, *graph.output_tensors)
    if len(args) != len(tensors):
        return False
    quantized = {stored.dtype for stored in _TYPES.values()}
    for tensor, index in zip(tensors, args, strict=True):
        value = _checked_item(plan["values"], index)
        if value["val_type"] != _TENSOR_VALUE:
            return False
        stored = _TYPES.get(value["val"]["scalar_type"])
        dtype = tensor.dtype if tensor.dtype in quantized else None
        if dtype is not (stored and stored.dtype):
            return False
        if not same_size(tensor, value["val"]["sizes"] or ()):
            return False
    return True


def _quantizations(
    graph: Graph, plan: Fields, args: Sequence[int], scales: _Known
) -> dict[str, Quantization]:
    unsigned = unsigned_tensors(graph)
    quantizations = {}
    for tensor, index in zip((*graph.input_tensors, *graph.output_tensors), args, strict=True):
        stored = _TYPES.get(_checked_item(plan["values"], index)["val"]["scalar_type"])
        if stored is None or index not in scales:
            continue
        scale, zero_point = scales[index]
        is_unsigned = tensor.name in unsigned
        own = stored.quantization(tensor, (scale,), (zero_point,), unsigned=is_unsigned)
        if own is not None:
            quantizations[tensor.name] = own
    return quantizations
