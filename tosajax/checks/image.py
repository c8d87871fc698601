"""Rules of "Image Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import (
    Shapes,
    length_errors,
    limits,
    list_value,
    lists_known,
    window_errors,
    window_size,
)
from tosajax.checks.call import Call, Problem
from tosajax.dtypes import DType
from tosajax.spec import Level, ResizeMode

_MAX_SIZE = 16384  # exclusive
_MAX_SCALE_N = 1 << 11
_MAX_DOWNSCALE = 16


def resize_shape(c: Call) -> Shapes:
    n, *_, channels = c.input.shape
    (span_y, span_x), (_, scale_y_d, _, scale_x_d) = _spans(c), list_value(c, "scale")
    return ((n, window_size(span_y, scale_y_d), window_size(span_x, scale_x_d), channels),)


def resize_errors(c: Call) -> Iterator[Problem]:
    yield from _type_errors(c)
    for name in ("input", "output"):
        _, height, width, _ = getattr(c, name).shape or (0, 0, 0, 0)
        if max(height, width) >= _MAX_SIZE:
            message = f"{name} is {height} x {width}"
            yield c.problem("e1", f"{message}, expected less than {_MAX_SIZE} in both")
    if not lists_known(c, "scale", "offset", "border"):
        return
    illegal = [
        *length_errors(c, "arguments", "scale", 4),
        *length_errors(c, "arguments", "offset", 2),
        *length_errors(c, "arguments", "border", 2),
    ]
    illegal = illegal or list(_scale_errors(c))
    yield from illegal or _position_errors(c)


def resize_levels(c: Call, level: Level) -> Iterator[Problem]:
    if lists_known(c, "scale") and len(c.scale) == 4 and min(c.scale) > 0:
        scale_y_n, scale_y_d, scale_x_n, scale_x_d = c.scale
        yield from limits(
            c,
            level,
            ("scale_y_n / scale_y_d", scale_y_n // scale_y_d, "MAX_SCALE"),
            ("scale_x_n / scale_x_d", scale_x_n // scale_x_d, "MAX_SCALE"),
        )


def _type_errors(c: Call) -> Iterator[Problem]:
    """Checks the output's type: integers widen in BILINEAR mode only."""
    other = "nearest" if c.mode is ResizeMode.BILINEAR else "bilinear"
    rows = [row for row in c.operator.types if not row.mode.endswith(other)]
    outputs = {row.types["in_t"]: DType(row.types["out_t"]) for row in rows}
    dtype, wanted = c.output.dtype, outputs[c.input.dtype]
    if dtype is not wanted:
        message = f"output is {dtype.name}, expected {wanted.name} in mode {c.mode.name}"
        yield c.problem("arguments", message)


def _scale_errors(c: Call) -> Iterator[Problem]:
    scale_y_n, scale_y_d, scale_x_n, scale_x_d = c.scale
    if min(c.scale) <= 0:
        yield c.problem("e2", f"scale is {c.scale}, expected values of at least 1")
        return
    if max(scale_y_n, scale_x_n) > _MAX_SCALE_N:
        yield c.problem("e3", f"scale is {c.scale}, expected numerators of at most {_MAX_SCALE_N}")
    if scale_y_d >= _MAX_DOWNSCALE * scale_y_n or scale_x_d >= _MAX_DOWNSCALE * scale_x_n:
        wanted = f"expected denominators below {_MAX_DOWNSCALE} times the numerator"
        yield c.problem("e4", f"scale is {c.scale}, {wanted}")


def _position_errors(c: Call) -> Iterator[Problem]:
    scale_y_n, scale_y_d, scale_x_n, scale_x_d = c.scale
    offset_y, offset_x = c.offset
    border_y, border_x = c.border
    illegal = [
        *_range_errors(c, "e5", "offset_y", offset_y, -scale_y_n, _MAX_DOWNSCALE * scale_y_n),
        *_range_errors(c, "e6", "offset_x", offset_x, -scale_x_n, _MAX_DOWNSCALE * scale_x_n),
        *_range_errors(c, "e7", "border_y", border_y, -_MAX_DOWNSCALE * scale_y_n, scale_y_n),
        *_range_errors(c, "e8", "border_x", border_x, -_MAX_DOWNSCALE * scale_x_n, scale_x_n),
    ]
    yield from illegal
    if not illegal:
        span_y, span_x = _spans(c)
        yield from window_errors(c, "e9", "OH", span_y, "scale_y_d", scale_y_d)
        yield from window_errors(c, "e10", "OW", span_x, "scale_x_d", scale_x_d)


def _range_errors(
    c: Call, rule: str, name: str, found: int, minimum: int, end: int
) -> Iterator[Problem]:
    if not minimum <= found < end:
        yield c.problem(rule, f"{name} is {found}, expected {minimum} to {end - 1}")


def _spans(c: Call) -> tuple[int, int]:
    """Distances from the first to the last sample along y and x, in units of 1 / scale_n."""
    _, height, width, _ = c.input.shape
    scale_y_n, _, scale_x_n, _ = list_value(c, "scale")
    offset_y, offset_x = list_value(c, "offset")
    border_y, border_x = list_value(c, "border")
    return (
        (height - 1) * scale_y_n - offset_y + border_y,
        (width - 1) * scale_x_n - offset_x + border_x,
    )
