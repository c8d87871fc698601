"""MATMUL: sums of int32 (int48 of int16), in units of a times b; a constant ADD is their bias."""

from __future__ import annotations

import dataclasses

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.quant.convert.accumulators import Accumulator, bias_limit
from tosajax.quant.convert.converter import Converter
from tosajax.quant.model.recipes import Bias, Scale

# Of two differences of INT8: where so many of them leave no room in int32, a bias is added later.
_LARGEST_PRODUCT = 255 * 255


def matmul(c: Converter, node: Node) -> None:
    (a, b), (output,) = node.inputs[:2], node.outputs
    left = c.get(a)
    right = c.get(b) if c.constant(b) is None else _weight(c, output, b, left.dtype)
    zero_points = [c.zero_point(name, f"{output}/acc") for name in (a, b)]
    if left.dtype is not right.dtype:
        # INT8 beside INT16: TOSA has no product of two types.
        at = 0 if left.dtype is DType.INT8 else 1
        widened = c.wide((a, b)[at], f"{output}/{'AB'[at]}")
        left, right = (widened, right) if at == 0 else (left, widened)
        zero_points[at] = c.zero(f"{output}/{'AB'[at]}/zero", DType.INT16)
    acc_type = DType.INT48 if left.dtype is DType.INT16 else DType.INT32
    unit = Scale((c.owner(a), c.owner(b)))
    assert left.shape is not None
    assert right.shape is not None
    per_channel = c.scaled[c.owner(b)].channel_axes
    channels = right.shape[-1] if per_channel else 1
    acc = c.builder.op(
        "MATMUL",
        left,
        right,
        *zero_points,
        name=f"{output}/acc",
        dtype=acc_type,
        location=node.location,
    )
    products = left.shape[-1] * _LARGEST_PRODUCT
    after = _up_to_bias(c, output, channels)
    # TOSA adds no INT48.
    if after and (acc_type is DType.INT48 or products >= 2**31 - 256):
        # The bias is added to tensors between; INT8 would round them in units of their own.
        c.act_specs.widen(output)
        after = []
    for reader in after:
        (final,) = reader.outputs
        bias = Bias("", unit, limit=bias_limit(acc_type, products))
        acc = _in_accumulator(c, reader, acc, bias, channels)
        c.done.add(final)
    final = after[-1].outputs[0] if after else output
    c.finish(final, Accumulator(acc, unit), channels=channels, also=(output,))


def _weight(c: Converter, output: str, name: str, dtype: DType) -> Tensor:
    """A constant of the type of the operand it multiplies; INT8 also where rules give INT4."""
    spec = c.asked.weight(output, name)
    return c.weight(name, dataclasses.replace(spec, dtype=dtype), (2,))


def _up_to_bias(c: Converter, name: str, channels: int) -> list[Node]:
    """The RESHAPEs and the ADD of a constant that alone read a product, in order.

    Empty where there is none, or where a TABLE reads a tensor between.
    """
    readers: list[Node] = []
    sources = {function.source for function in c.functions.values()}
    while (reader := c.sole_reader(name)) is not None and name not in sources:
        (output,) = reader.outputs
        before, after = (c.graph.tensors[n].shape or () for n in (name, output))
        # Scales per channel lie along the final axis.
        keeps_channels = channels == 1 or after[-1:] == (channels,)
        if output in c.covered or output in c.functions or not keeps_channels:
            return []
        readers.append(reader)
        if reader.op == "ADD":
            is_bias = any(c.constant(n) is not None for n in reader.inputs)
            return readers if is_bias and before == after else []
        if reader.op != "RESHAPE":
            return []
        name = output
    return []


def _in_accumulator(c: Converter, node: Node, acc: Tensor, bias: Bias, channels: int) -> Tensor:
    """A RESHAPE of int32, or a sum of it and a constant in its unit."""
    (output,) = node.outputs
    if node.op == "RESHAPE":
        operand = c.get(node.inputs[1])
    else:
        name = next(n for n in node.inputs if c.constant(n) is not None)
        *shape, last = c.graph.tensors[name].shape or (1,)
        shape = (*shape, max(last, channels))
        recipe = dataclasses.replace(bias, tensor=name, shape=shape)
        operand = c.from_recipe(f"{output}/bias", recipe, DType.INT32, shape)
    return c.builder.op(node.op, acc, operand, name=f"{output}/acc", location=node.location)
