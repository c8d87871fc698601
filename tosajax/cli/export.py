"""`tosajax export`: makes a graph from a JAX function."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from typing import TYPE_CHECKING, Any

import tosajax
from tosajax.cli._common import add_output, positive

if TYPE_CHECKING:
    import jax
    import numpy as np

    from tosajax.dtypes import DType

HELP = "write the graph of a JAX function"
EXAMPLES = (
    'export my_model:forward --input "f32[1,8]" --output model.tosa',
    'export my_model:forward --input "f32[1,8]" --check 0 -o model.mlir',
)
MODEL = "the function, or a module of Flax or Equinox: package.module:name"

# The values that `tosajax.export` takes, repeated here as a command's help imports nothing.
HIFI_LAYERS = ("custom", "operators")
_INPUT = re.compile(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", type=_input, action="append", default=[], metavar="TYPE[DIMS]",
        help='type and shape of an argument, as "f32[1,32,32,3]"; once for each',
    )  # fmt: skip
    parser.add_argument(
        "--params", metavar="MODULE:NAME",
        help="a pytree, or a function that returns one: the function's first argument",
    )  # fmt: skip
    add_output(parser)
    parser.add_argument("--target", help='that it has to be legal for, as "PRO-FP@8K" (all)')
    parser.add_argument(
        "--dynamic-batch", action="store_true", help="leave the first dimension of inputs open"
    )
    parser.add_argument(
        "--max-unroll", type=positive, default=64, metavar="N",
        help="the most turns of a loop that are written one after the other (64)",
    )  # fmt: skip
    parser.add_argument(
        "--hifi-layers", choices=HIFI_LAYERS, default="custom",
        help="how layers of tosajax.hifi leave: as CUSTOM, or as operators of TOSA",
    )  # fmt: skip
    parser.add_argument(
        "--check", type=int, metavar="SEED",
        help="run both on random inputs, and compare the outputs",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    from tosajax import io

    io.check_path(arguments.output)
    function = _imported(arguments.model)
    params = None if arguments.params is None else _params(arguments.params)
    seed = arguments.check
    inputs = arguments.input if seed is None else _random(arguments.input, seed)
    graph = tosajax.export(
        function,
        *inputs,
        target=arguments.target,
        params=params,
        dynamic_batch=arguments.dynamic_batch,
        max_unroll=arguments.max_unroll,
        hifi_layers=arguments.hifi_layers,
    )
    tosajax.save(graph, arguments.output)
    print(f"{arguments.output}: {len(graph.nodes)} nodes, from {arguments.model}")
    for line in (*graph.source.rewrites, *graph.source.agreement):
        print(f"  {line}")
    return 0


def _input(text: str) -> jax.ShapeDtypeStruct:
    """Parses the shape and type of an argument."""
    import jax

    from tosajax.dtypes import DType
    from tosajax.from_jax.values import ARRAY_TYPES

    types = {_short(dtype): held for dtype, held in ARRAY_TYPES.items() if dtype is not DType.INT48}
    match = _INPUT.fullmatch(text.replace(" ", ""))
    if match is None or match[1] not in types:
        wanted = f"expected f32[1,32,32,3]; types are {', '.join(types)}"
        raise argparse.ArgumentTypeError(f"{text!r}, {wanted}")
    return jax.ShapeDtypeStruct(tuple(int(n) for n in match[2].split(",") if n), types[match[1]])


def _short(dtype: DType) -> str:
    """The short name of an element type in an option: f32, bf16, i8, bool."""
    return dtype.name.lower().replace("fp", "f").replace("int", "i")


def _imported(path: str) -> Any:
    """The object MODULE:NAME; modules of the working directory can be imported."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise ValueError(f"{path!r}, expected package.module:name")
    if "" not in sys.path:
        sys.path.insert(0, "")
    value = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(value, part):
            raise ValueError(f"{path}: {value!r} has no {part!r}")
        value = getattr(value, part)
    return value


def _params(path: str) -> Any:
    value = _imported(path)
    return value() if inspect.isfunction(value) else value


def _random(inputs: list[jax.ShapeDtypeStruct], seed: int) -> list[np.ndarray]:
    """Random arrays of the inputs' shapes and types."""
    import numpy as np

    rng = np.random.default_rng(seed)

    def values(x: jax.ShapeDtypeStruct) -> np.ndarray:
        if x.dtype == bool:
            return rng.integers(0, 2, x.shape).astype(bool)
        if np.dtype(x.dtype).kind == "i" or str(x.dtype) == "int4":
            return rng.integers(-8, 8, x.shape).astype(x.dtype)
        return rng.standard_normal(x.shape).astype(x.dtype)

    return [values(x) for x in inputs]
