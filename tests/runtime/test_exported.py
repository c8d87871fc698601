"""Programs in files: those of graphs load, and those that call other code do not."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
from jax import lax
from jax.extend.mlir import ir
from jax.interpreters import mlir
from oracle.legal_graphs import legal_graph

import tosajax
from tosajax import Builder, DType, FormatError, Graph, UnsupportedError, spec
from tosajax.graph import Tensor
from tosajax.runtime import saved_file
from tosajax.runtime.batching import Batch
from tosajax.runtime.exported import _forbidden
from tosajax.runtime.saved_file import Contents, Manifest

ALL = ("cpu", "cuda", "rocm", "tpu")
X = Tensor("x", DType.FP32, (2, 2))
MANIFEST = Manifest((X,), (Tensor("y", DType.FP32, (2, 2)),), Batch((False,)), (), None)
SAFETY = jax.export.DisabledSafetyCheck


def write(
    path, function, manifest=MANIFEST, *, shapes=((2, 2),), targets=(), state=(), after: Any = list
) -> None:
    """A file of this function of the inputs, whatever it does, and of `after` of the state."""

    def program(constants, state, *inputs):
        return after(state), [], [function(*inputs)]

    inputs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    checks = [SAFETY.custom_call(target) for target in targets]
    exported = jax.export.export(jax.jit(program), disabled_checks=checks)([], list(state), *inputs)
    contents = Contents(bytes(exported.serialize()), b"", b"")
    saved_file.write(path, manifest, contents)


def calls(target):
    def call(x):
        return jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    return call


HIDDEN = {
    "outside": lambda call, x: call(x),
    "in a function": lambda call, x: jax.jit(call)(x),
    "in a loop": lambda call, x: lax.fori_loop(0, 3, lambda _, y: call(y), x),
    "in a branch": lambda call, x: lax.cond(x[0, 0] > 0, call, lambda y: y, x),
    "in a composite": lambda call, x: lax.composite(call, "chlo.erf")(x),
}


@pytest.mark.parametrize("place", HIDDEN)
@pytest.mark.parametrize("target", ["xla_ffi_python_cpu_callback", "__onednn$matmul"])
def test_a_custom_call_is_refused(place, target, tmp_path):
    path = tmp_path / "a.tjx"
    write(path, functools.partial(HIDDEN[place], calls(target)), targets=[target])
    with pytest.raises(UnsupportedError, match="the program holds ") as caught:
        tosajax.load_executable(path)
    assert f"holds {target}, which programs of graphs do not" in str(caught.value)
    tosajax.load_executable(path, allow=[target])  # loading calls nothing


def test_what_is_allowed_is_a_list_of_names(tmp_path):
    write(tmp_path / "a.tjx", lambda x: x)
    for allow in ("target", [1]):
        with pytest.raises(TypeError, match="expected a list of names"):
            tosajax.load_executable(tmp_path / "a.tjx", allow=allow)  # pyright: ignore


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ('stablehlo.add %x, %x {mhlo.backend_config = "{}"} : tensor<2xf32>', "backend_config"),
        ('stablehlo.composite "xla.other" %x {decomposition = @g} : (tensor<2xf32>) -> '
         "tensor<2xf32>", "xla.other"),
        ('"stablehlo.infeed"(%t) {infeed_config = ""} : (!stablehlo.token) -> '
         "(tensor<2xf32>, !stablehlo.token)", "stablehlo.infeed"),
        ("chlo.erf %x : tensor<2xf32> -> tensor<2xf32>", "chlo.erf"),
        ('stablehlo.composite "chlo.erf" %x {decomposition = @g} : (tensor<2xf32>) -> '
         "tensor<2xf32>", None),
    ],
)  # fmt: skip
def test_other_operations(operation, name):
    text = f"""
      func.func @main(%x: tensor<2xf32>, %t: !stablehlo.token) {{
        %0{":2" if "infeed" in operation else ""} = {operation}
        return
      }}
      func.func @g(%x: tensor<2xf32>) -> tensor<2xf32> {{ return %x : tensor<2xf32> }}
    """
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        assert _forbidden(module, ()) == ([] if name is None else [name])
        assert _forbidden(module, (str(name),)) == []


def one_of_each_operator() -> list[Graph]:
    """A graph for each operator that can stand alone, and graphs with all the others."""
    alone = [op for op in spec.OPERATORS.values() if op.chapter not in ("variable", "custom")]
    graphs = [legal_graph(op, op.types[0]) for op in alone if op.chapter != "control_flow"]
    return [*graphs, programs.nested(2), programs.accumulator([1, 2, 3])]


def test_programs_of_graphs_hold_nothing_else(tmp_path):
    for graph in one_of_each_operator():
        run = tosajax.compile(graph, report_unpredictable=True)
        run.save(tmp_path / "a.tjx", platforms=ALL)
        tosajax.load_executable(tmp_path / "a.tjx")


def test_custom_operators_are_allowed_by_name(tmp_path):
    b = Builder()
    attributes = {"operator_name": "f", "domain_name": "d", "implementation_attrs": b""}
    y = b.op("CUSTOM", b.input("x", DType.FP32, (2, 2)), shape=(2, 2), dtype=DType.FP32,
             **attributes)  # fmt: skip

    def inverse(x, *, implementation_attrs):
        return jnp.linalg.qr(x)[0]

    run = tosajax.compile(b.graph([y]), custom_ops={("d", "f"): inverse})
    run.save(tmp_path / "a.tjx", platforms=["cpu"])
    with pytest.raises(UnsupportedError, match="holds lapack_sgeqrf_ffi, lapack_sorgqr_ffi, which"):
        tosajax.load_executable(tmp_path / "a.tjx")
    if jax.default_backend() == "cpu":
        allow = ["lapack_sgeqrf_ffi", "lapack_sorgqr_ffi"]
        x = np.array([[1, 2], [3, 5]], np.float32)
        found = tosajax.load_executable(tmp_path / "a.tjx", allow=allow)(x)[0]
        np.testing.assert_array_equal(found, run(x)[0])


def test_variables_that_change_their_types(tmp_path):
    state = [jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((), jnp.bool_)]
    write(
        tmp_path / "a.tjx",
        lambda x: x,
        MANIFEST._replace(variables=("v",)),
        state=state,
        after=lambda state: [state[0].astype(jnp.int32), state[1]],
    )
    with pytest.raises(FormatError, match="its variables change their types"):
        tosajax.load_executable(tmp_path / "a.tjx")


@pytest.mark.parametrize(
    ("change", "shapes", "message"),
    [
        ({}, ((2, 3),), "it takes .*2, 3.* for 'x'"),
        ({}, ((2, 2), (2, 2)), "its results are others|its constants|its arguments are others"),
        ({"inputs": (Tensor("x", DType.INT32, (2, 2)),)},
         ((2, 2),), "it takes .*float32.* for 'x'"),
        ({"outputs": (Tensor("y", DType.FP32, (2, 1)),)}, ((2, 2),), "it gives .* for 'y'"),
        ({"outputs": (X, X)}, ((2, 2),), "its results are others"),
        ({"variables": ("v",)}, ((2, 2),), "its arguments are others"),
        ({"flags": (("ADD", "add.r1"),)}, ((2, 2),), "its results are others"),
        ({"batch": Batch((True,), 2, 1)}, ((2, 2),), "it takes .* for 'x'"),
    ],
)  # fmt: skip
def test_a_program_of_another_manifest(change, shapes, message, tmp_path):
    write(tmp_path / "a.tjx", lambda *x: x[0], MANIFEST._replace(**change), shapes=shapes)
    with pytest.raises(
        FormatError, match=f"a.tjx: the program is damaged, or another's: {message}"
    ):
        tosajax.load_executable(tmp_path / "a.tjx")
