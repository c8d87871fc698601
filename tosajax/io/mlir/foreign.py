"""Finds operations of dialects other than TOSA, and gives advice on them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

from tosajax.io.mlir.locations import Locations
from tosajax.io.mlir.tree import Operation, Region
from tosajax.report import UnsupportedError

_OWN = ("tosa.", "func.return")
CONSTANT = "arith.constant"  # of another dialect, and of a tensor as good as TOSA's own
_MOST_NAMED = 8
_CONVERT = "convert it to TOSA first"
_HELP = {
    "tfl": "the converter has no TOSA for it: change or cut this part of the TFLite model",
    "func": "inline the functions first, as with mlir-opt --inline",
    "stablehlo": _CONVERT,
    "mhlo": _CONVERT,
    "torch": _CONVERT,
    "onnx": _CONVERT,
    "linalg": "read the module as it was before it was lowered from TOSA",
}


def check(body: Region, locations: Locations) -> None:
    """Checks that all operations of a function are in the TOSA dialect.

    Raises:
      UnsupportedError: some are not; the message names the first, and counts the rest by name.
    """
    operations = list(_foreign(body))
    if not operations:
        return
    first = operations[0]
    others = Counter(operation.name for operation in operations)
    others[first.name] -= 1
    place = locations.read(first.location).text
    at = "" if place is None else f", at {place},"
    listed = [f"{n} {name}" for name, n in (+others).most_common(_MOST_NAMED)]
    more = f" ({sum(others.values())} more: {', '.join(listed)})" if listed else ""
    raise UnsupportedError(f"{first.title}: {message(first.name, at)}{more}")


def is_constant(operation: Operation) -> bool:
    """Whether an operation of another dialect is a constant tensor, which converters leave."""
    kinds = [value.type.startswith("tensor<") for value in operation.results]
    return operation.name == CONSTANT and kinds == [True]


def as_own(operation: Operation, attribute: str) -> Operation:
    """A constant as the TOSA dialect has it, with its values in this attribute."""
    if not is_constant(operation):
        return operation
    attributes = {attribute: operation.attributes.get("value")}
    return dataclasses.replace(operation, name="tosa.const", attributes=attributes)


def message(name: str, at: str = "") -> str:
    """The error message about an operation of another dialect; `at` is its location, or ""."""
    helps = _HELP.get(name.partition(".")[0])
    return f"operation {name}{at} is not of the TOSA dialect{f': {helps}' if helps else ''}"


def _foreign(body: Region) -> Iterator[Operation]:
    """Yields the operations of other dialects, without operations in their regions."""
    for operation in body.operations:
        if is_constant(operation):
            continue
        if not operation.name.startswith(_OWN):
            yield operation
        else:
            for region in operation.regions:
                yield from _foreign(region)
