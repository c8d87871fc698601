"""Values of a block-scaled type through each part that makes, checks, stores or reads values."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import block_types
import jax
import ml_dtypes
import numpy as np
import pytest
from block_types import drawn, expected, graph

import tosajax
from tosajax import Builder, DType, Tensor, UnsupportedError, dtypes, io, reference_model
from tosajax.block_scaled import BlockScaled
from tosajax.compare import compare, random_inputs
from tosajax.graph.alike import difference
from tosajax.graph.edit import Draft
from tosajax.graph.summary import summarize
from tosajax.io.formats import WRITTEN
from tosajax.passes.folding import fold
from tosajax.report import FormatError
from tosajax.runtime import saved_file
from tosajax.runtime.dump import dump, dump_npz
from tosajax.runtime.watch import Watch

E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
FP4 = np.dtype(ml_dtypes.float4_e2m1fn)


@pytest.fixture
def mx(monkeypatch) -> DType:
    return block_types.register(monkeypatch)


def one_bit_off(value: BlockScaled) -> BlockScaled:
    """The value with its last scale doubled."""
    scales = np.asarray(value.scales).copy()
    scales.view(np.uint8).flat[-1] += 1
    return BlockScaled(value.values, scales)


# The type.


def test_parts_of_the_type(mx):
    assert mx.block == 32
    assert mx.parts((2, 64)) == ((FP4, (2, 64)), (E8M0, (2, 2)))
    assert mx.parts((-1, -1)) == ((FP4, (-1, -1)), (E8M0, (-1, -1)))
    assert mx.names("y") == ("y", "y_scale")
    assert mx.nbytes((2, 64)) == 2 * 64 + 2 * 2
    zeros = mx.zeros((2, 64))
    assert zeros.shape == (2, 64)
    assert not zeros.exact().any()
    assert mx.accepts(zeros)
    assert mx.join(mx.arrays(zeros)) == zeros
    struct = mx.struct((2, 64))
    assert (struct.values.dtype, struct.scales.dtype) == (FP4, E8M0)
    assert (struct.values.shape, struct.scales.shape) == ((2, 64), (2, 2))
    for shape in ((), (2, 33)):
        with pytest.raises(ValueError, match=r"MXFP4E2M1 of shape .* expected an innermost axis"):
            mx.parts(shape)


def test_values_that_the_type_does_not_hold(mx):
    x = drawn(1, 64)
    others = [
        x.values,
        BlockScaled(x.values, x.scales, block=16),
        BlockScaled(x.values.astype(np.float32), x.scales),
        BlockScaled(x.values, x.scales.astype(np.float32)),
    ]
    for other in others:
        assert not mx.accepts(other)
        with pytest.raises(ValueError, match=", expected a BlockScaled of float4_e2m1fn in blo"):
            Tensor("c", mx, (1, 64), other)
    with pytest.raises(ValueError, match="scales have shape"):
        Tensor("c", mx, (1, 64), BlockScaled(x.values, x.scales[:, :1]))
    for convert in (
        lambda: dtypes.pack(x, mx),  # pyright: ignore
        lambda: dtypes.unpack(b"", mx, (0,)),
    ):
        with pytest.raises(ValueError, match="bytes of MXFP4E2M1, expected a type whose values"):
            convert()


def test_exact_numbers_at_the_ends_of_scales():
    values = np.array([[448.0] * 32, [2.0**-9] * 32], ml_dtypes.float8_e4m3fn)
    x = BlockScaled(values, np.array([[2.0**127], [2.0**-127]]).astype(E8M0))
    assert x.exact()[0, 0] == 448 * 2.0**127
    assert x.exact()[1, 0] == 2.0**-136


# Graphs.


def test_constants(mx):
    own = graph(mx)
    constant = own.tensors["c"]
    assert constant.values == drawn(1, 1, 64, seed=9)
    assert str(constant) == "MXFP4E2M1[1,1,64]"
    assert not constant.values.values.flags.writeable
    assert not constant.values.scales.flags.writeable
    assert own == graph(mx)
    other = graph(mx, one_bit_off(drawn(1, 1, 64, seed=9)))
    assert own != other
    assert difference(own, graph(mx)) is None
    assert "values of 'c' and 'c' differ" in str(difference(own, other))
    assert pickle.loads(pickle.dumps(constant)) == copy.copy(constant) == constant
    assert tosajax.validate(own).findings == ()
    assert (summarize(own).parameters, summarize(own).parameter_bytes) == (64, 64 + 2)
    # The shape of RESHAPE takes 16.
    assert "82 bytes" in own._repr_html_()


def test_a_constant_of_another_shape_than_its_tensor(mx):
    b = Builder()
    c = b.const(drawn(1, 64), mx, name="c")
    whole = b.graph([b.op("IDENTITY", c)])
    wrong = Tensor("c", mx, (2, 64), c.values)
    report = tosajax.validate(dataclasses.replace(whole, tensors={**whole.tensors, "c": wrong}))
    assert any("values of shape (1, 64)" in str(finding) for finding in report.errors)


def test_folding(mx):
    folded = fold(graph(mx))
    assert [node.op for node in folded.nodes if node.op != "CONST_SHAPE"].count("TRANSPOSE") == 0
    assert folded.tensors["turned"].values == drawn(1, 1, 64, seed=9).transpose((1, 0, 2))


# Programs.


def test_lower(mx):
    x = drawn(1, 2, 64)
    fn, params = tosajax.lower(graph(mx))
    c: Any = params["c"]
    for run in (fn, jax.jit(fn)):
        y, z = run(params, x)
        assert y == expected(x)["y"]
        assert z == expected(x)["z"].reshape((3, 64))
    with pytest.raises(TypeError, match=r"input 'x' is an array, float4_e2m1fn\[1, 2, 64\], exp"):
        fn(params, x.values)
    with pytest.raises(TypeError, match="input 'x' is a BlockScaled of float4_e2m1fn in bl"):
        fn(params, BlockScaled(x.values, drawn(1, 2, 128).scales, block=16))
    with pytest.raises(ValueError, match=r"input 'x' has shape \(1, 3, 64\), expected \(1, 2, 64"):
        fn(params, drawn(1, 3, 64))
    with pytest.raises(TypeError, match=r"input 'x' is .*: scales have shape \(1, 2, 1\)"):
        fn(params, BlockScaled(x.values, x.scales[..., :1]))
    with pytest.raises(TypeError, match=r"params\['c'\] is an array"):
        fn({"c": c.values}, x)
    with pytest.raises(ValueError, match=r"params\['c'\]\.scales has shape \(1, 1, 1\)"):
        fn({"c": BlockScaled(c.values, c.scales[..., :1])}, x)


def test_a_block_scaled_value_for_a_plain_type(mx):
    b = Builder()
    plain = b.graph([b.op("IDENTITY", b.input("x", DType.FP32, (1, 64)))])
    for run in (tosajax.compile(plain), lambda x: tosajax.run(plain, x), lambda x: dump(plain, x)):
        with pytest.raises(TypeError, match=r"input 'x' is .*BlockScaled.*, expected an array"):
            run(drawn(1, 64))


@pytest.mark.parametrize("on_device", [False, True])
def test_compile(mx, on_device):
    x = drawn(1, 2, 64)
    run = tosajax.compile(graph(mx))
    y, z = run(jax.tree.map(jax.numpy.asarray, x) if on_device else x)
    assert y == expected(x)["y"]
    assert z == expected(x)["z"].reshape((3, 64))
    assert "ENTRY" in run.hlo()
    assert str(run.explain())


def test_the_caller_may_write_to_its_arrays_after_a_call(mx):
    x = drawn(1, 2, 64)
    want = expected(drawn(1, 2, 64))["y"]
    y, _ = tosajax.compile(graph(mx))(x)
    x.values[...] = 0
    x.scales[...] = 1
    assert y == want


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_batches(mx, micro_batch):
    x = drawn(3, 2, 64)
    y, z = tosajax.compile(graph(mx), batch=3, micro_batch=micro_batch)(x)
    assert y == expected(x)["y"]
    assert z == expected(x)["z"]


def test_run_over_examples(mx):
    x = drawn(5, 2, 64)
    y, z = tosajax.run(graph(mx), x, batch=2)
    assert y == expected(x)["y"]
    assert z == expected(x)["z"]
    stacked, _ = tosajax.run(graph(mx), x.reshape((5, 1, 2, 64)), batch=2)
    assert stacked == expected(x)["y"].reshape((5, 1, 3, 64))


@pytest.mark.parametrize("options", [{}, {"batch": 3}, {"batch": 2, "open_batch": True}])
def test_saved_executables(mx, tmp_path, options):
    count = 3 if options else 1
    x = drawn(count, 2, 64)
    executable = tosajax.compile(graph(mx), batch=options.get("batch"), micro_batch=None)
    executable.save(tmp_path / "mx.bin", open_batch=options.get("open_batch", False))
    saved = tosajax.load_executable(tmp_path / "mx.bin")
    assert "x: MXFP4E2M1" in repr(saved)
    y, z = saved(x)
    assert y == expected(x)["y"]
    assert z == (expected(x)["z"] if options else expected(x)["z"].reshape((3, 64)))
    with pytest.raises(TypeError, match="input 'x' is an array"):
        saved(x.values)


def test_a_saved_executable_whose_manifest_states_another_type(mx, tmp_path):
    path = tmp_path / "mx.bin"
    tosajax.compile(graph(mx)).save(path)
    manifest, contents = saved_file.read(path)
    plain = tuple(Tensor(t.name, DType.FP8E5M2, t.shape) for t in manifest.inputs)
    saved_file.write(path, manifest._replace(inputs=plain), contents)
    with pytest.raises(FormatError, match="its arguments are others"):
        tosajax.load_executable(path)


def test_watch(mx):
    own = graph(mx)
    x = drawn(3, 2, 64)
    found = Watch(own, ("x", "y", "z"), batch=2)([jax.tree.map(lambda part: part[:2, None], x)])
    assert found["x"] == jax.tree.map(lambda part: part[:2, None], x)
    assert found["y"] == jax.tree.map(lambda part: part[:2, None], expected(x)["y"])
    assert found["z"] == jax.tree.map(lambda part: part[:2], expected(x)["z"])


def test_watch_of_an_input_without_an_axis_for_examples(mx):
    b = Builder()
    x = b.input("x", mx, (2, 64))
    own = b.graph([b.op("TRANSPOSE", x, perms=(0, 1), name="y")])
    rows = drawn(3, 2, 64)
    assert Watch(own, ("y",), batch=3)([rows])["y"] == rows


def test_dump(mx, tmp_path):
    x = drawn(3, 2, 64)
    found = dump(graph(mx), x, batch=2)
    assert found == expected(x)
    shapes = dump_npz(tmp_path / "mx.npz", graph(mx), x, batch=2)
    assert shapes == {"y": (3, 3, 64), "z": (3, 3, 64)}
    with np.load(tmp_path / "mx.npz") as file:
        assert file.files == ["y", "y_scale", "z", "z_scale"]
        assert file["y"].dtype == file["y_scale"].dtype == np.uint8
        back = BlockScaled(file["y"].view(FP4), file["y_scale"].view(E8M0))
    assert back == expected(x)["y"]


def test_dump_of_two_tensors_of_one_name_in_the_file(mx, tmp_path):
    b = Builder()
    x = b.input("x", mx, (1, 64))
    y = b.op("IDENTITY", x, name="y")
    own = b.graph([y, b.op("IDENTITY", y, name="y_scale")])
    with pytest.raises(ValueError, match="'y_scale' would be two arrays of the file: of tensors"):
        dump_npz(tmp_path / "mx.npz", own, drawn(1, 64))
    assert not list(tmp_path.iterdir())


def test_run_op(mx):
    x = drawn(1, 2, 64)
    assert tosajax.run_op("IDENTITY", [x]) == x
    turned = jax.jit(lambda x: tosajax.run_op("TRANSPOSE", [x], {"perms": (1, 0, 2)}))(x)
    assert turned == x.transpose((1, 0, 2))
    with pytest.raises(TypeError, match="input1_0 is a BlockScaled of float4_e2m1fn in bl"):
        tosajax.run_op("IDENTITY", [BlockScaled(x.values, x.scales, block=16)])


def test_differentiable(mx):
    b = Builder()
    x, c = b.input("x", mx, (1, 64)), b.const(drawn(1, 64, seed=1), mx)
    own = b.graph([b.op("IDENTITY", x), b.op("IDENTITY", c)])
    fn, params = tosajax.differentiable(own)
    one, two = fn(params, drawn(1, 64))
    assert one == drawn(1, 64)
    assert two == drawn(1, 64, seed=1)


def test_real_inputs_beside_a_block_scaled_one(mx):
    b = Builder()
    x, i = b.input("x", mx, (1, 64)), b.input("i", DType.INT8, (1, 2))
    own = b.graph([b.op("IDENTITY", x), b.op("IDENTITY", i)])
    scale = {"i": tosajax.Quantization((0.5,))}
    own = dataclasses.replace(own, quantization=scale)
    value, integers = own.quantized(drawn(1, 64), np.array([[1, 2]], np.float32))
    assert value == drawn(1, 64)
    assert integers.tolist() == [[2, 4]]
    results = tosajax.run(own, drawn(3, 64), np.array([[1, 2]] * 3, np.float32))
    assert results[0] == drawn(3, 64)
    assert results[1].tolist() == [[2, 4]] * 3


def test_cache_of_compiled_programs(mx, tmp_path):
    x = drawn(1, 2, 64)
    y, _ = tosajax.compile(graph(mx), cache_dir=tmp_path)(x)
    assert y == expected(x)["y"]


def test_calls_inside_jit_are_refused(mx):
    run = tosajax.compile(graph(mx))
    with pytest.raises(TypeError, match=r"inside jit use tosajax\.lower"):
        jax.jit(lambda x: run(x))(drawn(1, 2, 64))


def test_rewritten_constants(mx):
    draft = Draft(graph(mx))
    name = draft.const("c", drawn(1, 64), mx)
    assert draft.tensors[name].values == drawn(1, 64)


# Comparisons.


def test_compare_two_graphs(mx):
    x = drawn(3, 2, 64)
    same = compare(graph(mx), graph(mx), x, batch=2, local=True)
    assert same
    assert [row.tensor for row in same.rows] == ["y", "z"]
    assert same.rows[0].dtype == "MXFP4E2M1"
    other = graph(mx, one_bit_off(drawn(1, 1, 64, seed=9)))
    differs = compare(graph(mx), other, x, batch=2)
    assert not differs
    (first, _) = differs.rows
    mine, theirs = (run(x) for run in (lambda x: dump(graph(mx), x), lambda x: dump(other, x)))
    apart = mine["y"].exact() != theirs["y"].exact()
    assert first.total.mismatches == np.count_nonzero(apart) > 0
    assert first.total.elements == 3 * 3 * 64
    assert first.total.max_error == np.abs(mine["y"].exact() - theirs["y"].exact()).max()
    assert first.total.max_ulp is None
    assert str(differs)


def test_compare_with_random_inputs(mx):
    (x,) = random_inputs(graph(mx), 4, seed=1)
    assert x.shape == (4, 1, 2, 64)
    assert mx.accepts(x)
    assert len(np.unique(x.exact())) > 15
    assert random_inputs(graph(mx), 4, seed=1)[0] == x
    assert compare(graph(mx), graph(mx), examples=3)


def test_compare_with_a_dump(mx, tmp_path):
    x = drawn(3, 2, 64)
    dump_npz(tmp_path / "mx.npz", graph(mx), x)
    for stored in (tmp_path / "mx.npz", dump(graph(mx), x)):
        found = compare(graph(mx), stored, x, batch=2)
        assert found
        assert [row.tensor for row in found.rows] == ["y", "z"]
        other = graph(mx, one_bit_off(drawn(1, 1, 64, seed=9)))
        assert not compare(other, stored, x, batch=2)


def test_compare_with_values_whose_scales_are_missing(mx):
    stored = {"y": expected(drawn(3, 2, 64))["y"].values}
    with pytest.raises(ValueError, match="no stored array"):
        compare(graph(mx), stored, drawn(3, 2, 64))


def test_compare_with_real_numbers(mx):
    x = drawn(3, 2, 64)
    stored = {"y": expected(x)["y"].exact().astype(np.float32)}
    assert compare(graph(mx), stored, x)
    stored["y"][0, 0, 0] += 1
    assert compare(graph(mx), stored, x).rows[0].total.mismatches == 1


# What has no representation.


@pytest.mark.parametrize("suffix", [known.suffix for known in WRITTEN])
def test_formats_refuse_the_type_by_name(mx, tmp_path, suffix):
    with pytest.raises(UnsupportedError, match=r"tensor 'x' is MXFP4E2M1\[1,2,64\]: .* has no"):
        tosajax.save(graph(mx), tmp_path / f"mx{suffix}")
    assert not list(tmp_path.iterdir())


def test_the_reference_model_refuses_the_type_by_name(mx):
    with pytest.raises(UnsupportedError, match=r"tensor 'x' is MXFP4E2M1\[1,2,64\]: .* has no"):
        reference_model.run(graph(mx), drawn(1, 2, 64))  # pyright: ignore
    with pytest.raises(UnsupportedError, match=r"tensor 'x' is MXFP4E2M1\[1,2,64\]: .* has no"):
        io.to_bytes(graph(mx))
