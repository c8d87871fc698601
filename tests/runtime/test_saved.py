"""Executables in files: the same results, and clear errors for other files."""

from __future__ import annotations

import concurrent.futures
import copy
import hashlib
import json
import pickle
import zipfile

import jax
import numpy as np
import programs
import pytest

import tosajax
from tosajax import Builder, DType, FormatError, TosaError, UnsupportedError


def digits(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    return graph, np.load(data / "et_digits_cnn_a8w8" / "inputs_0.npy").reshape(-1, 8, 8, 1)


def counter() -> tosajax.Graph:
    b = Builder()
    x = b.input("x", DType.FP32, (1,))
    b.variable("total", DType.FP32, (1,), initial_value=[5])
    total = b.op("ADD", b.read("total", DType.FP32, (1,)), x)
    b.write("total", total)
    return b.graph([total])


def changed(path, member: str, content: bytes, *, sealed: bool = True) -> None:
    """Replaces one part of a file and, if `sealed`, the sums of all parts in the manifest."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[member] = content
    if sealed:
        manifest = json.loads(parts["manifest.json"])
        manifest["sha256"] = {n: hashlib.sha256(parts[n]).hexdigest() for n in manifest["sha256"]}
        parts["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def change_manifest(path, change) -> None:
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    changed(path, "manifest.json", json.dumps(manifest | change).encode())


@pytest.fixture(scope="module")
def content(data, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "digits.tjx"
    tosajax.compile(digits(data)[0], batch=4).save(path)
    return path.read_bytes()


@pytest.fixture
def saved(content, data, tmp_path):
    path = tmp_path / "digits.tjx"
    path.write_bytes(content)
    return path, digits(data)[1][:4]


@pytest.mark.parametrize("micro_batch", [2, None])
def test_fixed_batch(data, tmp_path, micro_batch):
    graph, images = digits(data)
    run = tosajax.compile(graph, batch=7, micro_batch=micro_batch)
    run.save(tmp_path / "a.tjx")
    again = tosajax.load_executable(tmp_path / "a.tjx")
    assert [t.name for t in again.inputs] == list(graph.inputs)
    assert [t.shape for t in again.outputs] == [(7, 10)]
    np.testing.assert_array_equal(again(images[:7])[0], run(images[:7])[0])
    with pytest.raises(ValueError, match=r"shape \(3, 8, 8, 1\), expected \(7, 8, 8, 1\)"):
        again(images[:3])
    with pytest.raises(TypeError, match="type float32, expected int8"):
        again(images[:7].astype(np.float32))


def test_open_batch_for_several_platforms(data, tmp_path):
    graph, images = digits(data)
    run = tosajax.compile(graph, batch=5)
    run.save(tmp_path / "a.tjx", open_batch=True, platforms=("cpu", "cuda", "tpu"))
    again = tosajax.load_executable(tmp_path / "a.tjx")
    expected = np.asarray(run(images[:5])[0])
    for count in (1, 2, 5):
        np.testing.assert_array_equal(again(images[:count])[0], expected[:count])


def sizes_of_calls(run, monkeypatch):
    """A list to which a loaded executable adds the number of examples of each call."""
    sizes, call = [], run._call

    def note(state, x):
        sizes.append(len(x))
        return call(state, x)

    monkeypatch.setattr(run, "_call", note)
    return sizes


def test_calls_take_a_micro_batch(data, tmp_path, monkeypatch):
    graph, images = digits(data)
    (expected,) = tosajax.compile(graph, batch=12)(images[:12])
    run = tosajax.compile(graph, batch=12, micro_batch=5)
    run.save(tmp_path / "fixed.tjx")
    run.save(tmp_path / "open.tjx", open_batch=True)
    for name, calls in (("fixed", {12: [4, 4, 4]}), ("open", {12: [5, 5, 5], 5: [5], 3: [3]})):
        again = tosajax.load_executable(tmp_path / f"{name}.tjx")
        sizes = sizes_of_calls(again, monkeypatch)
        for count, wanted in calls.items():
            np.testing.assert_array_equal(again(images[:count])[0], expected[:count])
            if name == "fixed" or jax.default_backend() == "cpu":
                assert sizes == wanted
            sizes.clear()


def test_open_batches_take_what_the_cache_holds(tmp_path, monkeypatch):
    b = Builder()
    x = b.input("x", DType.FP32, (1, 2**18))  # 2 MiB with the output, of 16
    run = tosajax.compile(b.graph([b.op("TANH", x)]), batch=1)
    run.save(tmp_path / "a.tjx", open_batch=True)
    again = tosajax.load_executable(tmp_path / "a.tjx")
    sizes = sizes_of_calls(again, monkeypatch)
    images = np.linspace(-3, 3, 19 * 2**18, dtype=np.float32).reshape(19, -1)
    np.testing.assert_allclose(again(images)[0], np.tanh(images), rtol=1e-5)
    assert sizes == ([8, 8, 8] if jax.default_backend() == "cpu" else [19])


def test_an_open_batch_of_several_inputs(tmp_path):
    """Those of one example more than once, and one of rank 0 for all."""
    b = Builder()
    x, y = b.input("x", DType.INT32, (1, 3)), b.input("y", DType.INT32, (1, 3))
    shared = b.op("RESHAPE", b.input("shared", DType.INT32, ()), b.const_shape((1, 1)))
    run = tosajax.compile(b.graph([b.op("ADD", b.op("SUB", x, y), shared)]), batch=2)
    run.save(tmp_path / "a.tjx", open_batch=True)
    again = tosajax.load_executable(tmp_path / "a.tjx")
    rows = np.arange(12, dtype=np.int32).reshape(4, 3)
    (found,) = again(rows, rows[::-1], np.array(7, np.int32))
    np.testing.assert_array_equal(found, rows - rows[::-1] + 7)
    with pytest.raises(ValueError, match="input 'y' holds 3 examples, expected 4 as in input 'x'"):
        again(rows, rows[:3], np.array(7, np.int32))


@pytest.mark.parametrize("dtype", [DType.INT48, DType.BF16, DType.FP8E4M3, DType.INT4, DType.BOOL])
def test_element_types(dtype, tmp_path):
    b = Builder()
    values = np.array([[0, 1, 1, 0, 1] * 9]).astype(dtype.storage)
    x = b.input("x", dtype, values.shape)
    constant = b.op("IDENTITY", b.const(values[:, ::-1], dtype))
    run = tosajax.compile(b.graph([b.op("IDENTITY", x), constant]))
    run.save(tmp_path / "a.tjx")
    for y, expected in zip(
        tosajax.load_executable(tmp_path / "a.tjx")(values), (values, values[:, ::-1]), strict=True
    ):
        assert y.dtype == dtype.storage
        assert np.asarray(y).tobytes() == expected.tobytes()


def test_int48_is_not_narrowed(tmp_path):
    b = Builder()
    x = b.input("x", DType.INT48, (2,))
    constant = b.op("IDENTITY", b.const([2**40, -(2**40)], DType.INT48))
    tosajax.compile(b.graph([b.op("IDENTITY", x), constant])).save(tmp_path / "a.tjx")
    y, z = tosajax.load_executable(tmp_path / "a.tjx")(np.array([2**47 - 1, -(2**47)]))
    assert np.asarray(y).tolist() == [2**47 - 1, -(2**47)]
    assert np.asarray(z).tolist() == [2**40, -(2**40)]


def test_variables_go_on_where_they_were(tmp_path):
    run = tosajax.compile(counter())
    run(np.ones(1, np.float32))
    run.save(tmp_path / "a.tjx")
    again = tosajax.load_executable(tmp_path / "a.tjx")
    assert [int(again(np.ones(1, np.float32))[0][0]) for _ in range(3)] == [7, 8, 9]
    assert int(run.state["total"].value[0]) == 6
    assert int(again.state["total"].value[0]) == 9


def test_variables_of_a_batch_in_micro_batches(tmp_path):
    run = tosajax.compile(counter(), batch=5, micro_batch=2)
    run.save(tmp_path / "a.tjx")
    again = tosajax.load_executable(tmp_path / "a.tjx")
    totals = [again(np.arange(5, dtype=np.float32))[0].tolist() for _ in range(2)]
    assert totals == [[5, 6, 7, 8, 9], [5, 7, 9, 11, 13]]
    assert np.asarray(again.state["total"].value).tolist() == [[5], [7], [9], [11], [13]]


def test_int48_of_a_batch_in_micro_batches(tmp_path):
    b = Builder()
    x = b.input("x", DType.INT48, (1, 2))
    tosajax.compile(b.graph([b.op("IDENTITY", x)]), batch=3, micro_batch=2).save(tmp_path / "a.tjx")
    values = np.array([[2**47 - 1, -(2**47)], [2**40, 1], [-1, -(2**33)]])
    (y,) = tosajax.load_executable(tmp_path / "a.tjx")(values)
    np.testing.assert_array_equal(np.asarray(y), values)


def test_flags(tmp_path):
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    run = tosajax.compile(b.graph([b.op("ADD", x, x, name="sum")]), report_unpredictable=True)
    run.save(tmp_path / "a.tjx")
    again = tosajax.load_executable(tmp_path / "a.tjx")
    for value in (1, 2**31 - 1):
        x = np.array([value, 0], np.int32)
        (found, flags), (expected, wanted) = again(x), run(x)
        np.testing.assert_array_equal(found[0], expected[0])
        assert {k: bool(v) for k, v in flags.items()} == {k: bool(v) for k, v in wanted.items()}
    assert any(map(bool, flags.values()))


def zero_point_input(path) -> None:
    """Writes an executable whose zero point is an input that must be 0."""
    b = Builder()
    x, zero_point = b.input("x", DType.INT16, (2,)), b.input("zp", DType.INT16, (1,))
    zero = b.const([0], DType.INT16)
    graph = b.graph([b.op("NEGATE", x, zero_point, zero, name="y")])
    tosajax.compile(graph, report_unpredictable=True).save(path)


def test_zero_points_of_calls_are_checked(tmp_path):
    zero_point_input(tmp_path / "a.tjx")
    again = tosajax.load_executable(tmp_path / "a.tjx")
    x = np.array([1, -5], np.int16)
    with pytest.raises(TosaError) as caught:
        again(x, np.ones(1, np.int16))
    assert str(caught.value) == "NEGATE 'y': input1_zp is 1, expected 0 for INT16 [negate.e1]"
    (found,), flags = again(x, np.zeros(1, np.int16))
    assert found.tolist() == [-1, 5]
    assert {name: bool(flag) for name, flag in flags.items()} == {("NEGATE 'y'", "negate.e1"): 0}


def test_files_without_rules_of_zero_points_are_read(tmp_path):
    zero_point_input(tmp_path / "a.tjx")
    with zipfile.ZipFile(tmp_path / "a.tjx") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    del manifest["zero_points"], manifest["unsigned"]
    changed(tmp_path / "a.tjx", "manifest.json", json.dumps(manifest).encode())
    again = tosajax.load_executable(tmp_path / "a.tjx")
    x, one = np.array([1, -5], np.int16), np.ones(1, np.int16)
    # The flags of the program are all that such a file has.
    _, flags = again(x, one)
    assert {name: bool(flag) for name, flag in flags.items()} == {("NEGATE 'y'", "negate.e1"): 1}


@pytest.mark.parametrize(
    "change",
    [
        {"tensor": "z"},
        {"tensor": ["zp"]},
        {"label": 1},
        {"unsigned": 0},
        {"argument": None},
        {"more": 1},
    ],
)
def test_zero_points_that_do_not_fit(tmp_path, change):
    path = tmp_path / "a.tjx"
    zero_point_input(path)
    entry = {"tensor": "zp", "node": "NEGATE", "label": "negate.e1"}
    entry |= {"argument": "input1_zp", "unsigned": False}
    change_manifest(path, {"zero_points": [entry]})
    tosajax.load_executable(path)
    change_manifest(path, {"zero_points": [entry | change]})
    with pytest.raises(FormatError, match=r"a\.tjx is not .*: (zero_points hold|it lacks 'z')"):
        tosajax.load_executable(path)


def test_what_cannot_be_saved(data, tmp_path):
    graph, _ = digits(data)
    with pytest.raises(ValueError, match="cannot leave its batch open"):
        tosajax.compile(graph).save(tmp_path / "a.tjx", open_batch=True)
    with pytest.raises(ValueError, match="cannot leave its batch open"):
        tosajax.compile(counter(), batch=2).save(tmp_path / "a.tjx", open_batch=True)
    b = Builder()
    x = b.input("x", DType.INT48, (-1, 3))
    run = tosajax.compile(b.graph([b.op("IDENTITY", x)]), batch=2)
    with pytest.raises(UnsupportedError, match="int48"):
        run.save(tmp_path / "a.tjx", open_batch=True)
    with pytest.raises(ValueError, match="open dimensions"):
        tosajax.compile(b.graph([x])).save(tmp_path / "a.tjx")
    with pytest.raises(FileNotFoundError):
        tosajax.compile(graph).save(tmp_path / "no folder" / "a.tjx")
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_old_file(saved, monkeypatch, data):
    path, _ = saved
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(OSError, match="disk full"):
        tosajax.compile(digits(data)[0], batch=4).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_truncated_and_changed_files(saved):
    path, images = saved
    whole = path.read_bytes()
    expected = np.asarray(tosajax.load_executable(path)(images)[0])
    rng = np.random.default_rng(1)
    for cut in (0, 1, 3, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(FormatError, match="is not a tosajax executable"):
            tosajax.load_executable(path)
    for at in rng.integers(0, len(whole), 60):
        broken = bytearray(whole)
        broken[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        try:
            again = tosajax.load_executable(path)
        except (FormatError, UnsupportedError):
            continue
        # A flag or a date of the archive, on which nothing depends.
        np.testing.assert_array_equal(again(images)[0], expected)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": "something else"}, FormatError),
        ({"version": 1}, UnsupportedError),
        ({"inputs": [{"name": "x"}]}, FormatError),
        ({"inputs": [{"name": "x", "dtype": "INT7", "shape": [1]}]}, FormatError),
        ({"inputs": [{"name": "x", "dtype": ["INT8"], "shape": [1]}]}, FormatError),
        ({"inputs": [{"name": 1, "dtype": "INT8", "shape": [4, 8, 8, 1]}]}, FormatError),
        ({"inputs": [{"name": "x", "dtype": "INT8", "shape": [4, 8, 8, 1.0]}]}, FormatError),
        ({"inputs": [{"name": "x", "dtype": "INT8", "shape": [4, 8, 8, True]}]}, FormatError),
        ({"inputs": [{"name": "x", "dtype": "INT8", "shape": [-1, 8, 8, 1]}]}, FormatError),
        ({"inputs": None}, FormatError),
        ({"outputs": {}}, FormatError),
        ({"version": [3]}, FormatError),
        ({"version": "3"}, FormatError),
        ({"version": True}, FormatError),
        ({"sha256": {}}, FormatError),
        ({"flags": [["ADD"]]}, FormatError),
        ({"flags": ["ADD"]}, FormatError),
        ({"flags": [["ADD", "add.r1"]]}, FormatError),
        ({"variables": ["x", "x"]}, FormatError),
        ({"variables": [1]}, FormatError),
        ({"parts": [[True], 4, 4]}, FormatError),
        ({"variables": 5}, FormatError),
        ({"flags": None, "variables": ["x"] * 1000}, FormatError),
        ({"parts": {"examples": 4}}, FormatError),
    ],
)
def test_a_manifest_that_does_not_fit(saved, change, error):
    path, _ = saved
    change_manifest(path, change)
    with pytest.raises(error):
        tosajax.load_executable(path)


@pytest.mark.parametrize(
    "parts",
    [
        {"carries": [1], "examples": 4, "at_once": 4},
        {"carries": [True], "examples": True, "at_once": True},
        {"carries": [], "examples": 4, "at_once": 4},
        {"carries": [True], "examples": 5, "at_once": 4},
        {"carries": [True], "examples": 4, "at_once": 5},
        {"carries": [True], "examples": 4, "at_once": 0},
        {"carries": [True], "examples": 4, "at_once": 2.0},
        {"carries": [False], "examples": -1, "at_once": 4},
    ],
)
def test_parts_that_do_not_fit(saved, parts):
    path, _ = saved
    change_manifest(path, {"parts": parts})
    with pytest.raises(FormatError, match=r"digits.tjx is not .*: (parts are|carries|zip)"):
        tosajax.load_executable(path)


@pytest.mark.parametrize(
    "manifest", [b"1", b"[1]", b"null", b"{}", b"[1, 2", b"\xff", b"[" * 100_000, b"9" * 10_000]
)
def test_a_manifest_that_is_none(saved, manifest):
    path, _ = saved
    changed(path, "manifest.json", manifest, sealed=False)
    with pytest.raises(FormatError, match=r"digits.tjx is not a tosajax executable, or damaged: "):
        tosajax.load_executable(path)


def test_members_that_do_not_fit(saved):
    path, _ = saved
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        arrays, program = archive.read("arrays.bin"), archive.read("program.bin")
    changed(path, "program.bin", b"no program")
    with pytest.raises(FormatError, match="cannot read the program"):
        tosajax.load_executable(path)
    path.write_bytes(whole)
    changed(path, "arrays.bin", arrays[:-1])
    with pytest.raises(FormatError, match=rf"{len(arrays) - 1} bytes .*expected {len(arrays)}"):
        tosajax.load_executable(path)
    path.write_bytes(whole)
    changed(path, "program.bin", program[:-1] + bytes([program[-1] ^ 1]), sealed=False)
    with pytest.raises(FormatError, match="the manifest is of another program or other arrays"):
        tosajax.load_executable(path)
    path.write_bytes(whole)
    changed(path, "notes.txt", b"")
    with pytest.raises(FormatError, match=r"notes\.txt, expected manifest\.json"):
        tosajax.load_executable(path)


def test_damage_within_an_archive_that_is_whole(saved):
    """JAX raises no error, at load or later, as its readers never get damaged bytes."""
    path, _ = saved
    whole = path.read_bytes()
    for member in ("program.bin", "arrays.bin"):
        with zipfile.ZipFile(path) as archive:
            content = archive.read(member)
        for at in np.random.default_rng(2).integers(0, len(content), 8):
            damaged = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
            changed(path, member, damaged, sealed=False)
            with pytest.raises(FormatError, match="the manifest is of another program"):
                tosajax.load_executable(path)
            path.write_bytes(whole)


def test_a_small_file_asks_for_little_memory(saved):
    path, _ = saved
    whole = path.read_bytes()
    for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
        path.write_bytes(whole)
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        parts["arrays.bin"] = bytes(2**22)
        with zipfile.ZipFile(path, "w", kind) as archive:
            for name, part in parts.items():
                archive.writestr(name, part, zipfile.ZIP_STORED if name[0] != "a" else kind)
        assert path.stat().st_size < 2**17
        with pytest.raises(FormatError, match=r"32 times as many|has compression 12"):
            tosajax.load_executable(path)


def test_constants_that_would_be_small_are_left_as_they_are(tmp_path):
    b = Builder()
    x, zeros = b.input("x", DType.INT32, (1,)), b.const(np.zeros(2**16), DType.INT32)
    tosajax.compile(b.graph([b.op("ADD", x, zeros)])).save(tmp_path / "a.tjx")
    assert (tmp_path / "a.tjx").stat().st_size > 4 * 2**16
    (y,) = tosajax.load_executable(tmp_path / "a.tjx")(np.ones(1, np.int32))
    np.testing.assert_array_equal(y, np.ones(2**16))


def test_encrypted_and_repeated_members(saved):
    path, _ = saved
    whole = path.read_bytes()
    encrypted = bytearray(whole)
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = encrypted.find(signature)
        while at >= 0:
            encrypted[at + flags] |= 1
            at = encrypted.find(signature, at + 1)
    path.write_bytes(encrypted)
    with pytest.raises(FormatError, match=r"manifest\.json is encrypted"):
        tosajax.load_executable(path)
    path.write_bytes(whole)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("program.bin", b"another")
    with pytest.raises(FormatError, match="two members of one name"):
        tosajax.load_executable(path)


def test_a_sparse_file_is_refused_at_once(tmp_path):
    with open(tmp_path / "a.tjx", "wb") as file:
        file.truncate(5 * 2**30)
    with pytest.raises(FormatError, match="is not a tosajax executable"):
        tosajax.load_executable(tmp_path / "a.tjx")


def test_savers_of_one_path(tmp_path):
    """Threads with different programs: the file is one of them, whole, and no draft is left."""
    path, x = tmp_path / "a.tjx", np.ones((1, 3), np.int32)
    runs = [tosajax.compile(programs.plus(n, "main", (1, 3))) for n in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda run: run.save(path), runs * 3))
    assert [p.name for p in tmp_path.iterdir()] == ["a.tjx"]
    assert int(tosajax.load_executable(path)(x)[0][0, 0]) in {1, 2, 3, 4}


def test_errors_name_the_path_and_not_a_draft(tmp_path):
    run = tosajax.compile(programs.plus(1, "main"))
    with pytest.raises(FileNotFoundError) as caught:
        run.save(tmp_path / "nodir" / "x.tjx")
    assert str(caught.value).endswith("nodir/x.tjx")
    with pytest.raises(IsADirectoryError) as caught:
        run.save(tmp_path)
    assert str(caught.value).endswith(f"{str(tmp_path)!r}")


def test_executables_are_saved_and_not_pickled(tmp_path):
    run = tosajax.compile(programs.plus(1, "main"))
    run.save(tmp_path / "a.tjx")
    again = tosajax.load_executable(tmp_path / "a.tjx")
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"an Executable .*: write it with `save` and read it"):
            copied(run)
        with pytest.raises(TypeError, match=r"a SavedExecutable .* tosajax.load_executable, in"):
            copied(again)


def test_another_platform(data, tmp_path):
    graph, _ = digits(data)
    tosajax.compile(graph, batch=2).save(tmp_path / "a.tjx", platforms=("tpu",))
    if jax.default_backend() != "tpu":
        with pytest.raises(UnsupportedError, match="is for tpu, and this is"):
            tosajax.load_executable(tmp_path / "a.tjx")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        tosajax.load_executable(tmp_path / "none.tjx")
