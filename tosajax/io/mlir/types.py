"""Parses MLIR types: element types, shapes, and the scales of quantized types."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Quantization
from tosajax.report import FormatError, UnsupportedError

# Names of element types in MLIR.
NAMES = {
    DType.BOOL: "i1",
    DType.INT4: "i4",
    DType.INT8: "i8",
    DType.INT16: "i16",
    DType.INT32: "i32",
    DType.INT48: "i48",
    DType.FP32: "f32",
    DType.FP16: "f16",
    DType.BF16: "bf16",
    DType.FP8E4M3: "f8E4M3FN",
    DType.FP8E5M2: "f8E5M2",
}
_DTYPES = {name: dtype for dtype, name in NAMES.items()}
# Types that only the draft of TOSA 1.1 has: their names in MLIR and in TOSA.
_DRAFT = {
    "f6E2M3FN": "FP6E2M3",
    "f6E3M2FN": "FP6E3M2",
    "f4E2M1FN": "FP4E2M1",
    "f8E8M0FNU": "FP8UE8M0",
    "i64": "INT64",
}
_TENSOR = re.compile(r"tensor<(\*x|(?:(?:\?|[0-9]+)x)*)(.*)>", re.DOTALL)
_SHAPE = re.compile(r"!tosa\.shape<\s*([0-9]{1,9})\s*>")
_SIGN = re.compile(r"[su](?=i[0-9])")
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?)"
_INTEGER = r"-?[0-9]{1,20}"
_UNIFORM = re.compile(
    rf"!quant\.uniform\s*<\s*([iu][0-9]+)(?:\s*<\s*({_INTEGER})\s*:\s*({_INTEGER})\s*>)?"
    r"\s*:\s*(b?f[0-9]+)\s*(?::\s*([0-9]+|\{[^}]*\}))?\s*,\s*(.*)>",
    re.DOTALL,
)
_SCALE = re.compile(rf"\s*({_NUMBER})\s*(?::\s*({_INTEGER})\s*)?")
_BLOCK = re.compile(r"\s*([0-9]{1,9})\s*:\s*([0-9]{1,18})\s*")
_STORED = re.compile(r"!quant\.any<\s*([iu][0-9]+)\b.*>", re.DOTALL)
_CALIBRATED = re.compile(r"!quant\.calibrated<\s*(b?f[0-9]+)\b.*>", re.DOTALL)


class Element(NamedTuple):
    """An element type.

    Args:
      name: the name in MLIR, without quantization, such as "ui8".
      stated: the type as in the text.
      quantization: the scales of a quantized type, if `Quantization` can express them.
    """

    name: str
    stated: str
    quantization: Quantization | None = None

    @property
    def is_unsigned(self) -> bool:
        return self.name.startswith("u")

    @property
    def dtype(self) -> DType:
        """The element type in TOSA, whatever the signedness of integers.

        Raises:
          UnsupportedError: TOSA 1.0 does not have the type.
        """
        dtype = _DTYPES.get(_SIGN.sub("", self.name))
        if dtype is not None:
            return dtype
        draft = _DRAFT.get(self.name)
        why = f"is {draft} of TOSA 1.1" if draft else "is not a type of TOSA"
        raise UnsupportedError(f"element type {self.stated} {why}, expected one of TOSA 1.0")


class TensorType(NamedTuple):
    """The type of a tensor, or of a shape, whose `element` is None."""

    shape: tuple[int, ...] | None
    element: Element | None

    @property
    def dtype(self) -> DType:
        return DType.SHAPE if self.element is None else self.element.dtype


@functools.lru_cache(maxsize=512)
def tensor_type(text: str) -> TensorType:
    """Parses the type of a tensor or shape.

    Raises:
      FormatError: the scales of a quantized type are broken, or a dimension exceeds 64 bits.
      UnsupportedError: the type is not a tensor or shape, has an encoding, or is block scaled.
    """
    if match := _SHAPE.fullmatch(text):
        return TensorType((int(match[1]),), None)
    if text.startswith("!tosa.block_scaled"):
        raise UnsupportedError(f"type {text} is of TOSA 1.1, expected one of TOSA 1.0")
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise UnsupportedError(f"type {text[:80]} is not a tensor or shape")
    dims, rest = match.groups()
    element = element_of(rest)
    if dims == "*x":
        return TensorType(None, element)
    shape = tuple(
        DYNAMIC if d == "?" else int(d.lstrip("0")[:20] or 0) for d in dims.split("x")[:-1]
    )
    if any(dim >= 1 << 63 for dim in shape):
        raise FormatError(f"type {text[:80]} has a dimension beyond 64 bits")
    return TensorType(shape, element)


def element_of(text: str) -> Element:
    """Parses an element type.

    Raises:
      FormatError: the scales of a quantized type are broken.
      UnsupportedError: an encoding follows, or TOSA 1.0 does not have the type.
    """
    if not text.startswith("!"):
        if "," in text:
            raise UnsupportedError(f"a tensor of {text[:80]} has an encoding, expected none")
        return Element(text, text)
    if match := _UNIFORM.fullmatch(text):
        storage, low, high, _, axes, scales = match.groups()
        bounds = (int(low), int(high)) if low is not None else None
        quantization = _quantization(scales, axes, bounds, storage)
        return Element(_storage(storage), text, quantization)
    if match := _STORED.fullmatch(text):
        return Element(_storage(match[1]), text)
    if match := _CALIBRATED.fullmatch(text):
        return Element(match[1], text)
    if text.startswith("!tosa."):
        raise UnsupportedError(f"element type {text[:80]} is of TOSA 1.1, expected one of TOSA 1.0")
    raise UnsupportedError(f"element type {text[:80]} is not one of TOSA 1.0")


def spelled(text: str) -> str:
    """Normalizes the text of a `!quant.uniform` type; returns other texts unchanged."""
    match = _UNIFORM.fullmatch(text)
    if match is None:
        return text
    storage, low, high, expressed, axes, scales = match.groups()
    bounds = "" if low is None or (int(low), int(high)) == _widest(storage) else f"<{low}:{high}>"
    channels = _channels(axes or "{}")
    if channels is not None and len(channels) == 1:
        axes = str(channels[0])
    place = "" if axes is None else f":{axes}"
    numbers = _SCALE.sub(_spelled_scale, scales)
    return re.sub(r"\s", "", f"!quant.uniform<{storage}{bounds}:{expressed}{place}, {numbers}>")


def _spelled_scale(match: re.Match[str]) -> str:
    zero = int(match[2] or 0)
    return f"{float(match[1])!r}{f':{zero}' if zero else ''}"


def _storage(name: str) -> str:
    """Converts the storage type of a quantized type to MLIR's name: u8 to ui8."""
    return f"ui{name[1:]}" if name.startswith("u") else name


def _quantization(
    scales: str, axes: str | None, bounds: tuple[int, int] | None, storage: str
) -> Quantization | None:
    """The scales of a quantized type; None if `Quantization` cannot express them, as for blocks."""
    channels, pairs = _channels(axes or "{}"), _scales(scales)
    if channels is None or bool(channels) != scales.lstrip().startswith("{"):
        return None
    if bounds == _widest(storage):
        bounds = None
    try:
        numbers, zeros = zip(*pairs, strict=True)
        return Quantization(numbers, zeros if any(zeros) else (0,), channels, bounds)
    except ValueError:
        return None


def _widest(storage: str) -> tuple[int, int]:
    bits = int(storage[1:])
    if storage.startswith("u"):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _channels(text: str) -> tuple[int, ...] | None:
    """Parses the channel axes in `0` or `{0:1, 2:1}`; None if a block has several elements."""
    if not text.startswith("{"):
        return (int(text),)
    body = text[1:-1].strip()
    blocks = [_BLOCK.fullmatch(part) for part in body.split(",")] if body else []
    if any(b is None or int(b[2]) != 1 for b in blocks):
        return None
    axes = tuple(int(b[1]) for b in blocks if b is not None)
    return axes if list(axes) == sorted({*axes}) else None


def _scales(text: str) -> list[tuple[float, int]]:
    """Parses the scales and zero points in `0.1:3` or `{{0.1:3}, {0.2}}`.

    Raises:
      FormatError: the text is not a list of scales.
    """
    matches = [_SCALE.fullmatch(part) for part in re.sub(r"[{}]", "", text).split(",")]
    if not all(matches):
        raise FormatError(f"{text[:80]} is not a list of scales")
    return [(float(m[1]), int(m[2] or 0)) for m in matches if m is not None]
