"""Mutants of integer arithmetic, and of whole files."""

from __future__ import annotations

from mutation.changes import (
    change,
    condition,
    left,
    result,
    right,
    skip,
    swap,
    unwrap,
)
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "atomic.py",
        "test_atomic.py",
        {
            "replacing": [change(".replace()", "os.rename(target, target)")],
            "_open_draft": [condition("True", 1)],
            "_remove_abandoned": [condition("True")],
        },
    ),
    *mutants(
        "fixedpoint/_x64.py",
        "fixedpoint/test_x64.py",
        {
            "scope": [change("True", "False"), change("True", "jax.config.jax_enable_x64")],
            "widen": [
                change("np.int64", "np.int32"),
                change("np.int64", "np.uint32"),
                change("value", "-value"),
                unwrap("lax.convert_element_type"),
            ],
            "from_numpy": [
                change("np.int64", "np.int32"),
                change(".array()", "np.abs(_)"),
                change(".array()", "1 + _"),
                change("scope()", "jax.enable_x64(False)"),
            ],
            "scope_of": [change("==", ">")],
        },
    ),
    *mutants(
        "fixedpoint/saturation.py",
        "fixedpoint/test_scale.py -k saturate",
        {
            "saturate": [
                left("-"),
                change("0", "1"),
                change("0", "info.min"),
                condition("not _", 0),
                change("info.min", "-info.max", 1),
                change("info.max", "info.max - 1", 1),
                change(".type()", "None", 1),
                change(".type()", "None", 0),
                unwrap(".astype"),
                unwrap("jnp.clip"),
                change("info.max", "info.max + 1", 0),
            ],
        },
    ),
    *mutants(
        "fixedpoint/table.py",
        "fixedpoint/test_scale.py -k lookup",
        {
            "apply_lookup": [
                change("32768", "32767"),
                change("+", "-", 0),
                change("7", "8", 0),
                change("127", "63"),
                unwrap(".astype", 1),
                left("+", 1),
                change("7", "6", 1),
                swap("-"),
                change("fraction", "fraction + 1"),
                change("base", "following", 0),
                left("&"),
            ],
        },
    ),
    *mutants(
        "fixedpoint/scale.py",
        "fixedpoint/test_scale.py",
        {
            "apply_scale_32": [
                change("<=", "<"),
                change("shift.min", "shift.max"),
                condition("shift.flat[0] > 32", 1),
            ],
            "reciprocal_scale": [left("-"), left("+", 0), change("30", "31", 1)],
            "_shift": [
                left("&"),
                left(">>", 0),
                left("+"),
            ],
            "_scale_wide": [
                change("31", "30"),
                change("31", "32"),
                change("30", "29"),
                change("<", ">"),
                unwrap("jnp.where", argument=2),
            ],
            "_scale_high": [
                change("32", "31"),
                change("*", "+"),
                change("30", "29"),
                right("|"),
                change("2", "1"),
                left("-", 1),
                left("+", 2),
            ],
        },
    ),
    *mutants(
        "ops/routes/platform.py",
        "ops/test_platforms.py",
        {
            "on_cpu": [
                change("cpu", "other", 0),
                result("lax.platform_dependent(*operands, cpu=other, default=cpu)", 1),
            ],
            "tracing_for": [change("platform", "ANY"), skip("_current.reset")],
        },
    ),
]
