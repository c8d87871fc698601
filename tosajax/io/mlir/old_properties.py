"""The operations of the dialect before TOSA 1.0: arity, and properties in bytecode.

Bytecode stores properties by position, in the order of their names: each as an attribute index; an
optional one as 0 or as the index shifted left by one with the lowest bit set. The dialect changed
between LLVM versions, so each property list of an LLVM up to 20 is tried, and exactly one must
match in the number and the kinds of its attributes.

Source: the dialects tosa and func in LLVM 17 to 20.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tosajax import spec
from tosajax.io.mlir.octets import Octets
from tosajax.report import UnsupportedError
from tosajax.spec import Form

_MANY = 1 << 32
_SYMBOL = "sym_name? sym_visibility?"
_CONV = (
    "dilation pad quantization_info? stride",
    "dilation local_bound? pad quantization_info? stride",
    "acc_type dilation local_bound? pad quantization_info? stride",
)
_AXIS = ("axis",)
_AXIS_NAN = ("axis", "axis nan_mode?")
_NAN = ("", "nan_mode?")
_ZERO_POINTS = ("quantization_info?",)
_NAME = ("name",)
# The property lists of each operation; names of optional properties end with a question mark.
_PROPERTIES = {
    "builtin.module": (_SYMBOL,),
    "func.func": ("arg_attrs? function_type res_attrs? sym_name sym_visibility?",),
    "tosa.apply_scale": ("double_round",),
    "tosa.argmax": _AXIS_NAN,
    "tosa.arithmetic_right_shift": ("round",),
    "tosa.avg_pool2d": ("acc_type kernel pad quantization_info? stride",),
    "tosa.clamp": ("max_fp max_int min_fp min_int", "max_fp max_int min_fp min_int nan_mode?"),
    "tosa.concat": _AXIS,
    "tosa.const": ("value",),
    "tosa.const_shape": ("value",),
    "tosa.conv2d": _CONV,
    "tosa.conv3d": _CONV,
    "tosa.custom": ("domain_name implementation_attrs operator_name",),
    "tosa.depthwise_conv2d": _CONV,
    "tosa.fft2d": ("inverse", "inverse local_bound?"),
    "tosa.fully_connected": _ZERO_POINTS,
    "tosa.matmul": _ZERO_POINTS,
    "tosa.max_pool2d": ("kernel pad stride", "kernel nan_mode? pad stride"),
    "tosa.maximum": _NAN,
    "tosa.minimum": _NAN,
    "tosa.mul": ("shift", ""),
    "tosa.negate": _ZERO_POINTS,
    "tosa.pad": _ZERO_POINTS,
    "tosa.reduce_all": _AXIS,
    "tosa.reduce_any": _AXIS,
    "tosa.reduce_max": _AXIS_NAN,
    "tosa.reduce_min": _AXIS_NAN,
    "tosa.reduce_prod": _AXIS,
    "tosa.reduce_sum": _AXIS,
    "tosa.rescale": (
        "double_round input_zp multiplier output_zp per_channel scale32 shift",
        "double_round input_unsigned? input_zp multiplier output_unsigned? output_zp per_channel "
        "scale32 shift",
    ),
    "tosa.reshape": ("new_shape",),
    "tosa.resize": ("border mode offset scale",),
    "tosa.reverse": _AXIS,
    "tosa.rfft2d": ("", "local_bound?"),
    "tosa.slice": ("size start",),
    "tosa.tile": ("multiples", ""),
    "tosa.transpose_conv2d": (
        "out_pad out_shape quantization_info? stride",
        "local_bound? out_pad out_shape quantization_info? stride",
        "acc_type local_bound? out_pad out_shape quantization_info? stride",
    ),
    "tosa.variable": ("initial_value? name type",),
    "tosa.variable.read": _NAME,
    "tosa.variable.write": _NAME,
}
# LLVM up to 18 had different names for these properties.
_SINCE_19 = ("tosa.custom",)
_BEFORE_19 = {"tosa.custom": "config identifier implementation_attrs"}
_KINDS_OF = {
    "boolean": "double_round input_unsigned inverse local_bound output_unsigned per_channel round "
    "scale32",
    "integer": "axis input_zp max_int min_int output_zp shift",
    "integers": "border dilation kernel multiples multiplier new_shape offset out_pad out_shape "
    "pad scale shift size start stride",
    "float": "max_fp min_fp",
    "string": "domain_name implementation_attrs mode name nan_mode operator_name sym_name "
    "sym_visibility",
    "symbol": "name",
    "type": "acc_type function_type type",
    "constant": "initial_value value",
    "array": "arg_attrs res_attrs",
}
_QUANTIZATION = "quantization_info"
_QUANTIZATIONS = {
    "tosa.avg_pool2d": "#tosa.unary_quant",
    "tosa.matmul": "#tosa.matmul_quant",
    "tosa.negate": "#tosa.unary_quant",
    "tosa.pad": "#tosa.pad_quant",
}
_CONV_QUANTIZATION = "#tosa.conv_quant"
_SHIFTS = {"tosa.mul": "integer", "tosa.rescale": "integers"}


class Counts(NamedTuple):
    """The numbers of operands, results and regions that an operation may have.

    Args:
      operands: minimum and maximum.
      results: minimum and maximum.
      regions: the exact number.
    """

    operands: tuple[int, int]
    results: tuple[int, int]
    regions: int = 0


_ANY = (0, _MANY)
# Operations whose counts differ from TOSA 1.0's operators, or that TOSA 1.0 does not have.
_COUNTS = {
    "builtin.module": Counts((0, 0), (0, 0), 1),
    "func.func": Counts((0, 0), (0, 0), 1),
    "func.return": Counts(_ANY, (0, 0)),
    "tosa.apply_scale": Counts((3, 3), (1, 1)),
    "tosa.avg_pool2d": Counts((1, 1), (1, 1)),
    "tosa.concat": Counts((1, _MANY), (1, 1)),
    "tosa.cond_if": Counts((1, _MANY), _ANY, 2),
    "tosa.conv2d": Counts((3, 3), (1, 1)),
    "tosa.conv3d": Counts((3, 3), (1, 1)),
    "tosa.custom": Counts(_ANY, _ANY),
    "tosa.depthwise_conv2d": Counts((3, 3), (1, 1)),
    "tosa.fully_connected": Counts((3, 3), (1, 1)),
    "tosa.int_div": Counts((2, 2), (1, 1)),
    "tosa.matmul": Counts((2, 2), (1, 1)),
    "tosa.mul": Counts((2, 3), (1, 1)),
    "tosa.negate": Counts((1, 1), (1, 1)),
    "tosa.pad": Counts((2, 3), (1, 1)),
    "tosa.reduce_prod": Counts((1, 1), (1, 1)),
    "tosa.rescale": Counts((1, 1), (1, 1)),
    "tosa.reshape": Counts((1, 1), (1, 1)),
    "tosa.resize": Counts((1, 1), (1, 1)),
    "tosa.slice": Counts((1, 1), (1, 1)),
    "tosa.tile": Counts((1, 2), (1, 1)),
    "tosa.transpose": Counts((2, 2), (1, 1)),
    "tosa.transpose_conv2d": Counts((3, 3), (1, 1)),
    "tosa.variable": Counts((0, 0), (0, 0)),
    "tosa.variable.read": Counts((0, 0), (1, 1)),
    "tosa.variable.write": Counts((1, 1), (0, 0)),
    "tosa.while_loop": Counts(_ANY, _ANY, 2),
    "tosa.yield": Counts(_ANY, (0, 0)),
}
# Operators whose names in TOSA 1.0 the old dialect did not have.
_LATER = ("INTDIV", "REDUCE_PRODUCT", "VARIABLE_READ", "VARIABLE_WRITE")


def counts(name: str) -> Counts:
    """The numbers of operands, results and regions that an operation may have.

    Raises:
      UnsupportedError: the dialect before TOSA 1.0 does not have the operation.
    """
    if name in _COUNTS:
        return _COUNTS[name]
    dialect, _, operator = name.partition(".")
    row = spec.OPERATORS.get(operator.upper()) if operator.islower() else None
    if dialect != "tosa" or row is None or row.name in _LATER:
        raise UnsupportedError(f"operation {name} is not of the TOSA dialect before 1.0")
    tensors = (Form.TENSOR_LIST, Form.GRAPH)
    if any(a.form in tensors for a in (*row.inputs, *row.attributes)):
        raise UnsupportedError(f"operation {name} is not of the TOSA dialect before 1.0")
    inputs, outputs = len(row.inputs), len(row.outputs)
    return Counts((inputs, inputs), (outputs, outputs))


def names(name: str) -> frozenset[str]:
    """All attributes that an operation of the dialect before TOSA 1.0 may have."""
    lists = (*_PROPERTIES.get(name, ()), _BEFORE_19.get(name, ""))
    return frozenset(" ".join(lists).replace("?", "").split())


def properties(
    name: str, blob: Octets | None, llvm: int | None, kind_of: Callable[[int], str]
) -> dict[str, int]:
    """The indices of an operation's attributes, by name.

    Args:
      name: the operation's name.
      blob: its encoded properties; None if it has none.
      llvm: the major version of the LLVM that wrote the bytecode; None if unknown.
      kind_of: function that returns the kind of an attribute, given its index.

    Raises:
      FormatError: an attribute is broken.
      UnsupportedError: no property list matches, or more than one.
    """
    lists = _PROPERTIES.get(name, ("",))
    if name in _SINCE_19 and (llvm is None or llvm < 19):
        lists = ()
    numbers = _numbers(blob)
    choices = [_fitting(name, names.split(), numbers, kind_of) for names in lists]
    fitting = [attributes for attributes in choices if attributes is not None]
    if len(fitting) == 1:
        return fitting[0]
    raise UnsupportedError(
        f"{name}: its {len(numbers)} properties fit {len(fitting)} lists of properties of the "
        "dialect before TOSA 1.0, expected one"
    )


def _numbers(blob: Octets | None) -> list[int]:
    numbers = []
    while blob:
        numbers.append(blob.number())
    return numbers


def _fitting(
    operation: str, names: list[str], numbers: list[int], kind_of: Callable[[int], str]
) -> dict[str, int] | None:
    """Matches attribute indices to a list of names; None if they do not match."""
    if len(names) != len(numbers):
        return None
    attributes: dict[str, int] = {}
    for name, number in zip(names, numbers, strict=True):
        if name.endswith("?"):
            if number == 0:
                continue
            if not number & 1:
                return None
            number >>= 1
        name = name.removesuffix("?")
        if kind_of(number) not in kinds(operation, name):
            return None
        attributes[name] = number
    return attributes


def kinds(operation: str, name: str) -> tuple[str, ...]:
    """The kinds that an attribute of this name may have; empty if the name is unknown."""
    if name == _QUANTIZATION:
        return (_QUANTIZATIONS.get(operation, _CONV_QUANTIZATION),)
    if name == "shift":
        return (_SHIFTS.get(operation, ""),)
    return tuple(kind for kind, names in _KINDS_OF.items() if name in names.split())
