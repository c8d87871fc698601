"""Runs every family of integer operators under every composition of transforms, in one process.

JAX reads the number of CPU devices and the use of 64-bit types when a process starts, so
`test_transform_matrix.py` starts one process for each setting, with a share of the cases. The whole
matrix takes minutes:

    python tests/support/transform_worker.py --x64 off
    python tests/support/transform_worker.py --x64 on --family matmul --composition vmap
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROOT = Path(__file__).parent
DEVICES = 2

# A function of one example's arrays, a tree; results are a tree.
Function = Callable[[Any], Any]


def one(stacked: Any, example: int) -> Any:
    return jax.tree.map(lambda x: _device(x[example]), stacked)


def many(stacked: Any) -> Any:
    return jax.tree.map(_device, stacked)


def pairs(stacked: Any) -> Any:
    """Examples on two axes."""
    return jax.tree.map(lambda x: _device(x.reshape(DEVICES, -1, *x.shape[1:])), stacked)


def each(function: Function, stacked: Any) -> Any:
    """Calls a function with one example after the other."""
    count = len(jax.tree.leaves(stacked)[0])
    results = [jax.tree.map(np.asarray, function(one(stacked, i))) for i in range(count)]
    return jax.tree.map(lambda *parts: np.stack(parts), *results)


def joined(results: Any) -> Any:
    """Undoes `pairs`."""
    return jax.tree.map(lambda y: np.asarray(y).reshape(-1, *y.shape[2:]), results)


def _device(x: np.ndarray) -> jax.Array:
    # Users of int48 have to do that themselves.
    with jax.enable_x64(x.dtype == np.int64):
        return jnp.asarray(x)


# The compositions: (function of one example, stacked examples) -> stacked results.


def eager(function: Function, stacked: Any) -> Any:
    return each(function, stacked)


def jit(function: Function, stacked: Any) -> Any:
    return each(jax.jit(function), stacked)


def vmap(function: Function, stacked: Any) -> Any:
    return jax.vmap(function)(many(stacked))


def jit_of_vmap(function: Function, stacked: Any) -> Any:
    return jax.jit(jax.vmap(function))(many(stacked))


def vmap_of_jit(function: Function, stacked: Any) -> Any:
    return jax.vmap(jax.jit(function))(many(stacked))


def vmap_of_vmap(function: Function, stacked: Any) -> Any:
    return joined(jax.jit(jax.vmap(jax.vmap(function)))(pairs(stacked)))


def scan(function: Function, stacked: Any) -> Any:
    turns, results = lax.scan(lambda turn, x: (turn + 1, function(x)), 0, many(stacked))
    assert turns == len(jax.tree.leaves(stacked)[0])
    return results


def map(function: Function, stacked: Any) -> Any:
    return jax.jit(lambda xs: lax.map(function, xs))(many(stacked))


def while_loop(function: Function, stacked: Any) -> Any:
    """The results of the last turn; example n takes n turns."""
    xs = many(stacked)
    nothing = _zeros(function, stacked)

    def turn(carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        at, _ = carry
        return at + 1, function(jax.tree.map(lambda x: x[at], xs))

    @jax.jit
    def run(count: jax.Array, nothing: Any) -> Any:
        return lax.while_loop(lambda carry: carry[0] < count, turn, (jnp.int32(0), nothing))[1]

    counts = np.arange(1, len(jax.tree.leaves(stacked)[0]) + 1, dtype=np.int32)
    return each(lambda count: run(count, nothing), counts)


def cond(function: Function, stacked: Any) -> Any:
    """One branch computes, the other does not; batched, both become a select."""
    nothing = _zeros(function, stacked)

    def choose(condition: jax.Array, x: Any) -> Any:
        return lax.cond(condition, function, lambda _: nothing, x)

    taken = jax.jit(choose)
    for leaf in jax.tree.leaves(taken(jnp.asarray(False), one(stacked, 0))):
        assert not np.asarray(leaf).any()
    return each(lambda x: taken(jnp.asarray(True), x), stacked)


def checkpoint(function: Function, stacked: Any) -> Any:
    return jax.jit(jax.vmap(jax.checkpoint(function)))(many(stacked))


def jit_of_scan_of_vmap(function: Function, stacked: Any) -> Any:
    def turn(carry: jax.Array, x: Any) -> tuple[jax.Array, Any]:
        return carry, jax.vmap(function)(x)

    return joined(jax.jit(lambda xs: lax.scan(turn, jnp.int32(0), xs)[1])(pairs(stacked)))


def exported(function: Function, stacked: Any) -> Any:
    """Lowered for every platform, and called on this one."""
    # Arrays: with x64 off, JAX narrows a jax.ShapeDtypeStruct of 64 bits.
    arrays = one(stacked, 0)
    export.export(jax.jit(function), platforms=["cuda", "tpu"])(arrays)
    here = export.export(jax.jit(function), platforms=["cpu"])(arrays)
    return each(export.deserialize(here.serialize()).call, stacked)


def ahead_of_time(function: Function, stacked: Any) -> Any:
    return each(jax.jit(function).lower(one(stacked, 0)).compile(), stacked)


def shard_map(function: Function, stacked: Any) -> Any:
    examples = PartitionSpec("examples")
    mapped = jax.shard_map(jax.vmap(function), mesh=_mesh(), in_specs=examples, out_specs=examples)
    return jax.jit(mapped)(many(stacked))


def sharded(function: Function, stacked: Any) -> Any:
    """Several devices, chosen by the sharding of the examples alone."""
    where = NamedSharding(_mesh(), PartitionSpec("examples"))
    return jax.jit(jax.vmap(function))(jax.device_put(many(stacked), where))


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:DEVICES]), ("examples",))


def _zeros(function: Function, stacked: Any) -> Any:
    shapes = jax.eval_shape(function, one(stacked, 0))
    return jax.tree.map(lambda s: _device(np.zeros(s.shape, s.dtype)), shapes)


COMPOSITIONS: list[Callable[[Function, Any], Any]] = [
    *(eager, jit, vmap, jit_of_vmap, vmap_of_jit, vmap_of_vmap),
    *(scan, map, while_loop, cond, checkpoint, jit_of_scan_of_vmap),
    *(exported, ahead_of_time, shard_map, sharded),
]


def failures(cases: Sequence[Any], composition: Callable[[Function, Any], Any]) -> list[str]:
    """The cases whose results differ, or the error."""

    def together(inputs: list[tuple[Any, ...]]) -> list[Any]:
        return [case.function(*x) for case, x in zip(cases, inputs, strict=True)]

    try:
        results = composition(together, [case.inputs for case in cases])
    except Exception:
        return [traceback.format_exc(limit=-3)]
    found = []
    for case, result in zip(cases, jax.tree.map(np.asarray, results), strict=True):
        wanted = case.expected
        if (result.dtype, result.shape) != (wanted.dtype, wanted.shape):
            found.append(f"{case.name}: {result.dtype}{result.shape}")
        elif not np.array_equal(result, wanted):
            found.append(f"{case.name}: {(result != wanted).mean():.0%} of the values differ")
    return found


def chosen(cases: Sequence[Any], at: int, options: argparse.Namespace) -> list[Any]:
    """A share of the cases, another one for each composition.

    With x64 off all cases of int48 stay: a single composition may narrow them.
    """
    share = min(options.share, len(cases))
    first = at % share

    def is_wide(case: Any) -> bool:
        return any(x.dtype == np.int64 for x in (*case.inputs, case.expected))

    return [
        case
        for i, case in enumerate(cases)
        if i % share == first or (is_wide(case) and options.x64 == "off")
    ]


def matrix(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One cell after another."""
    from transform_families import FAMILIES

    for family in options.family or FAMILIES:
        cases = FAMILIES[family]()
        for at, composition in enumerate(COMPOSITIONS):
            if not options.composition or composition.__name__ in options.composition:
                start = time.perf_counter()
                found = failures(chosen(cases, at, options), composition)
                seconds = round(time.perf_counter() - start, 3)
                yield {
                    "family": family,
                    "composition": composition.__name__,
                    "failures": found,
                    "seconds": seconds,
                }


def _keep_programs() -> None:
    """Shares programs with the run of the tests that started this process, if one did."""
    from kept_programs import FOLDER, keep_programs
    from shared_contexts import share_contexts

    gc.set_threshold(50_000, 20, 20)
    share_contexts()
    if FOLDER in os.environ:
        keep_programs(Path(os.environ[FOLDER]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--x64", choices=["off", "on"], default="off")
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--composition", action="append", default=[])
    parser.add_argument(
        "--share",
        type=int,
        default=1,
        help="runs one in so many cases of each cell; with --x64 off, and all of int48",
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("error")  # for example of a 64-bit type that was narrowed
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", options.x64 == "on")
    sys.path[:0] = [str(ROOT)]
    _keep_programs()
    cells = []
    for cell in matrix(options):
        cells.append(cell)
        mark = "FAILED" if cell["failures"] else "ok"
        print(f"{cell['family']:32} {cell['composition']:22} {mark:7} {cell['seconds']:.2f} s")
        print(*cell["failures"], sep="\n", end="\n" if cell["failures"] else "", flush=True)
    if options.json:
        options.json.write_text(json.dumps(cells))
    passed = sum(not cell["failures"] for cell in cells)
    print(f"{passed} of {len(cells)} cells are exact, jax_enable_x64 {options.x64}")
    return 0 if passed == len(cells) else 1


if __name__ == "__main__":
    raise SystemExit(main())
