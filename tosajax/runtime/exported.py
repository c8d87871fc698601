"""Checks programs in files: their operations, and the arrays that they take and return.

A program is StableHLO, which XLA compiles to machine code. StableHLO's operations stay within their
arrays; a custom call runs arbitrary code on its operands, which may end the process or do worse. So
a program runs only if it holds no operations except the operations of lowered graphs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.mlir import deserialize_portable_artifact, ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from tosajax.dtypes import Part
from tosajax.graph import DYNAMIC, Tensor
from tosajax.report import FormatError, UnsupportedError
from tosajax.runtime.batching import of_a_batch, of_a_call
from tosajax.runtime.saved_file import Manifest

_DIALECTS = frozenset({"builtin", "func", "stablehlo"})
# Operations on the host or on its data.
_OF_THE_HOST = frozenset(f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv"))
# The only target in programs of graphs, for any operator and platform: JAX checks open dimensions
# with it, and removes it before XLA gets the program.
_TARGETS = frozenset({"shape_assertion"})
_COMPOSITES = "chlo."  # composites of a single operation, ERF


class Layout(NamedTuple):
    """The types and shapes of the arrays that a file holds, besides its program."""

    constants: list[tuple[np.dtype, tuple[int, ...]]]
    state: list[tuple[np.dtype, tuple[int, ...]]]

    @property
    def nbytes(self) -> int:
        return sum(d.itemsize * math.prod(s) for d, s in (*self.constants, *self.state))


def check_program(
    exported: jax.export.Exported, manifest: Manifest, allow: Collection[str]
) -> Layout:
    """Checks a program before anything else uses it.

    Args:
      exported: the program.
      manifest: the manifest of its file.
      allow: additional operations, and targets of custom calls, that the program may hold.

    Returns:
      The layout of its constants and variables.

    Raises:
      FormatError: the program is damaged, or does not fit the manifest.
      UnsupportedError: the program holds an operation that is not allowed, or needs another version
        of jax.
    """
    oldest, newest = (
        jax.export.minimum_supported_calling_convention_version,
        jax.export.maximum_supported_calling_convention_version,
    )
    if not oldest <= exported.calling_convention_version <= newest:
        message = f"the program calls as of version {exported.calling_convention_version}"
        raise UnsupportedError(f"{message}, this jax as of {oldest} to {newest}")
    if exported.nr_devices != 1 or exported.ordered_effects or exported.unordered_effects:
        raise UnsupportedError("the program has effects, or is of several devices")
    try:
        with ir.Context() as context, ir.Location.unknown():
            stablehlo.register_dialect(context)
            module = deserialize_portable_artifact(exported.mlir_module_serialized)
            forbidden = _forbidden(module, allow)
            if not forbidden:
                _check_main(module, exported)
                return _layout(exported, manifest)
    except UnsupportedError:
        raise
    except Exception as error:  # jax and MLIR have no error of their own for broken bytes
        raise FormatError(f"the program is damaged, or another's: {error}") from None
    raise UnsupportedError(
        f"the program holds {', '.join(forbidden)}, which programs of graphs do not; if you trust "
        "it, give the names in allow="
    )


def _forbidden(module: ir.Module, allow: Collection[str]) -> list[str]:
    """The names of operations that the program may not hold, each once."""
    names: dict[str, None] = {}

    def note(operation: ir.Operation) -> ir.WalkResult:
        name = _forbidden_name(operation)
        if name is not None and name not in allow:
            names[name] = None
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    return list(names)


def _forbidden_name(operation: ir.Operation) -> str | None:
    """The name by which `allow` admits an operation; None if every program may hold it."""
    name, attributes = operation.name, operation.attributes
    if name == "stablehlo.custom_call":
        target = ir.StringAttr(attributes["call_target_name"]).value
        return None if target in _TARGETS else target
    if any("backend_config" in attribute for attribute in attributes.keys()):  # noqa: SIM118
        return "backend_config"
    if name == "stablehlo.composite":
        name = ir.StringAttr(attributes["name"]).value
        return None if name.startswith(_COMPOSITES) else name
    return name if name in _OF_THE_HOST or name.split(".")[0] not in _DIALECTS else None


def _check_main(module: ir.Module, exported: jax.export.Exported) -> None:
    """Checks that the main function takes and returns the arrays that jax expects."""
    functions = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body}
    signature = ir.FunctionType(ir.TypeAttr(functions["main"].attributes["function_type"]).value)
    kept = exported.module_kept_var_idx
    _expect(list(kept) == sorted(set(kept)), f"it takes the arguments {kept}")
    inputs = [_tensor_type(_described(exported.in_avals[i])) for i in kept]
    if len(exported.platforms) > 1:  # the first input chooses the platform
        inputs.insert(0, _tensor_type((np.dtype(np.int32), ())))
    outputs = [_tensor_type(_described(aval)) for aval in exported.out_avals]
    fits = list(signature.inputs) == inputs and list(signature.results) == outputs
    _expect(fits, f"its function is {signature}")


def _tensor_type(described: tuple[np.dtype, tuple[int, ...]]) -> ir.Type:
    dtype, shape = described
    sizes = [ir.ShapedType.get_dynamic_size() if n == DYNAMIC else n for n in shape]
    return ir.RankedTensorType.get(sizes, mlir.dtype_to_ir_type(dtype))


def _layout(exported: jax.export.Exported, manifest: Manifest) -> Layout:
    """The arrays that belong to the program; checks its arguments and results by the manifest."""
    batch, leaves = manifest.batch, 2 * len(manifest.variables)
    inputs = [
        Part(part.dtype, of_a_call(part.shape, batch) if carried else part.shape)
        for tensor, carried in zip(manifest.inputs, batch.carries, strict=True)
        for part in tensor.dtype.parts(tensor.shape or ())
    ]
    outputs = [part for t in manifest.outputs for part in t.dtype.parts(t.shape or ())]
    others = exported.in_tree.num_leaves - leaves - len(inputs)
    arguments = ([0] * others, [0] * leaves, *(0 for _ in inputs)), {}
    _expect(exported.in_tree == jax.tree.structure(arguments), "its arguments are others")
    flags = len(manifest.flags or ())
    results = [0] * leaves, [0] * flags, [0] * len(outputs)
    _expect(exported.out_tree == jax.tree.structure(results), "its results are others")
    taken, returned = (
        [*map(_described, avals)] for avals in (exported.in_avals, exported.out_avals)
    )
    constants, state = taken[:others], taken[others : others + leaves]
    _expect(returned[:leaves] == state, "its variables change their types")
    are_flags = all(d == np.bool_ for d, _ in returned[leaves : leaves + flags])
    _expect(are_flags, "its flags are not bool")
    for name, part, array in zip(
        _names(manifest.inputs), inputs, taken[others + leaves :], strict=True
    ):
        _expect(array == part, f"it takes {array} for {name!r}")
    for name, part, (dtype, shape) in zip(
        _names(manifest.outputs), outputs, returned[leaves + flags :], strict=True
    ):
        array = dtype, of_a_batch(shape, batch)
        _expect(array == part, f"it gives {array} for {name!r}")
    _expect(all(DYNAMIC not in shape for _, shape in (*constants, *state)), "a constant is open")
    return Layout(constants, [(d, tuple(of_a_batch(s, batch))) for d, s in state])


def _names(tensors: Sequence[Tensor]) -> list[str]:
    """The names of the tensors' arrays, in the order of `flat`."""
    return [name for tensor in tensors for name in tensor.dtype.names(tensor.name)]


def _described(aval: Any) -> tuple[np.dtype, tuple[int, ...]]:
    """The type and shape of an array, with DYNAMIC for open dimensions."""
    return np.dtype(aval.dtype), tuple(n if isinstance(n, int) else DYNAMIC for n in aval.shape)


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
