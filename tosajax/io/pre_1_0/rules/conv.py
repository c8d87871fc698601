"""Rules of "Tensor Operators", convolutions.

Zero points become inputs, and the accumulator type, which the tensor types implied, an attribute.
1.0 does not have convolutions of FP16 or BF16 with FP32 output. A convolution of FP32 replaces
them, and computes the same sums: inputs, weights and products are exact in FP32.
"""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC
from tosajax.io.pre_1_0.step import Step, member
from tosajax.report import FormatError
from tosajax.spec import AccType

_HALVES = (DType.FP16, DType.BF16)


def conv2d(step: Step) -> None:
    _convolution(step, "pad", "stride", "dilation")


conv3d = depthwise_conv2d = conv2d


def transpose_conv2d(step: Step) -> None:
    """Upgrades TRANSPOSE_CONV2D: drops output_shape, which is redundant."""
    _check_output_shape(step)
    if step.dtype(step.output).is_float:
        step.note("kept", "the bias is added last, not first, so that sums may round otherwise")
    _convolution(step, "out_pad", "stride")


def fully_connected(step: Step) -> None:
    """Replaces FULLY_CONNECTED by a 1x1 CONV2D."""
    x, weight, bias = step.input(0), step.input(1), step.input(2)
    shapes = step.shape(x), step.shape(weight)
    if [*map(len, shapes)] != [2, 2]:
        message = f"input and weight have shapes {shapes[0]} and {shapes[1]}"
        raise FormatError(f"{message}, expected rank 2")
    (n, channels), (outputs, depth) = shapes
    x, weight = step.reshaped(x, (n, 1, 1, channels)), step.reshaped(weight, (outputs, 1, 1, depth))
    dtype = step.dtype(step.output)
    y = step.tensor("conv2d", dtype, (n, 1, 1, outputs))
    lists = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    _emit(step, "CONV2D", (x, weight, bias), y, lists)
    if dtype is DType.INT48:
        # RESHAPE does not take INT48; only RESCALE reads INT48, and accepts any rank.
        step.work.unfolded[step.output] = y
        step.note("CONV2D of 1x1, the RESCALE after it between RESHAPEs")
    else:
        step.reshape(y, step.output)
        step.note("RESHAPE, CONV2D of 1x1, RESHAPE")


def _convolution(step: Step, *lists: str) -> None:
    inputs = step.input(0), step.input(1), step.input(2)
    _emit(step, step.node.op, inputs, step.output, {n: step.integers(n) for n in lists})


def _emit(
    step: Step,
    op: str,
    inputs: tuple[str, str, str],
    output: str,
    lists: dict[str, tuple[int, ...]],
) -> None:
    x, weight, bias = inputs
    if step.dtype(x) in _HALVES and step.dtype(output) is DType.FP32:
        x, weight = _in_fp32(step, "input", x), _in_fp32(step, "weight", weight)
        step.note(f"CASTs to FP32, and {op} of FP32", "errors are bounded as of FP32 inputs")
    zero_points = step.zero_point("input_zp", x), step.zero_point("weight_zp", weight)
    acc_type = _acc_type(step, x, output)
    local_bound = bool(step.get("local_bound", False))
    step.emit(
        op,
        (x, weight, bias, *zero_points),
        (output,),
        **lists,
        acc_type=acc_type,
        local_bound=local_bound,
    )


def _in_fp32(step: Step, argument: str, name: str) -> str:
    result = step.tensor(f"{argument}_fp32", DType.FP32, step.shape(name))
    step.emit("CAST", (name,), (result,))
    return result


def _acc_type(step: Step, x: str, output: str) -> DType:
    stated = step.get("acc_type", None)
    if stated is not None:
        return member("acc_type", AccType, stated).dtype
    by_input = {DType.INT8: DType.INT32, DType.INT16: DType.INT48, DType.FP16: step.dtype(output)}
    return by_input.get(step.dtype(x), DType.FP32)


def _check_output_shape(step: Step) -> None:
    """Checks the attribute output_shape, if it is stated, as far as shapes are known.

    Raises:
      FormatError: the stated shape contradicts the input, weight, padding and stride.
    """
    sizes = () if step.get("output_shape", None) is None else step.integers("output_shape")
    if not sizes:
        return
    x, weight = step.shape(step.input(0)), step.shape(step.input(1))
    pad, stride = step.integers("out_pad"), step.integers("stride")
    if [*map(len, (sizes, x, weight, pad, stride))] != [4, 4, 4, 4, 2]:
        raise FormatError(f"output_shape is {sizes}, with {x}, {weight}, {pad} and {stride}")
    wanted = (
        x[0],
        _span(x[1], stride[0], pad[0] + pad[1], weight[1]),
        _span(x[2], stride[1], pad[2] + pad[3], weight[2]),
        weight[0],
    )
    if any(DYNAMIC not in pair and pair[0] != pair[1] for pair in zip(sizes, wanted, strict=True)):
        raise FormatError(f"output_shape is {sizes}, expected {wanted}")


def _span(size: int, stride: int, pad: int, kernel: int) -> int:
    """The output height or width of a transposed convolution."""
    return DYNAMIC if DYNAMIC in (size, kernel) else (size - 1) * stride + pad + kernel
