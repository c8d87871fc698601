"""The files of test benches: read, written, refused."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hifi.bench_cases import raw

from tosajax import atomic
from tosajax.hifi.bench import _files, _job
from tosajax.hifi.bench._options import parse
from tosajax.hifi.bench.cli import BENCHES

FILE_OPTIONS = [
    (name, option)
    for name, bench in BENCHES.items()
    for option, default in vars(parse(bench.options, [])).items()
    if default is None and not option.startswith(("write", "output"))
]


@pytest.mark.parametrize(("name", "option"), FILE_OPTIONS)
def test_files_that_cannot_be_read_give_2(bench, name, option):
    size = {"in_feats": 4, "out_feats": 4} if name in ("gru", "lstm") else {}
    is_folder = option == "filter_path"
    missing = bench.path("missing")
    target = (
        os.path.join(missing, {"gru": "w_z.bin", "lstm": "w_xf.bin"}[name])
        if is_folder
        else missing
    )
    assert bench.run(name, **size, **{option: missing}) == 2
    assert bench.refused(repr(target), "No such file or directory"), bench.err
    if is_folder:
        os.makedirs(target)
    else:
        os.makedirs(missing)
    assert bench.run(name, **size, **{option: missing}) == 2
    assert bench.refused(repr(target), "is not a regular file"), bench.err
    os.rmdir(target)
    for length in (0, 1, 99999):
        with open(target, "wb") as file:
            file.write(bytes(length))
        assert bench.run(name, **size, **{option: missing}) == 2
        assert bench.refused(repr(target), f"has {length} bytes, expected "), bench.err
    assert bench.files() == ["missing"]


def test_a_huge_file_is_refused_before_it_is_read(bench):
    with open(bench.path("huge"), "wb") as file:
        file.truncate(1 << 40)
    assert bench.run("activations", read_inp_file_name=bench.path("huge")) == 2
    assert bench.refused("has 1099511627776 bytes, expected 256: 2 x 128 for x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads and writes everything")
def test_files_without_permission_give_2(bench):
    path = bench.write("inp", np.zeros(64, np.int32))
    os.chmod(path, 0)
    assert bench.run("activations", read_inp_file_name=path) == 2
    assert bench.refused(path, "Permission denied")


def test_files_that_fail_as_they_are_read_give_2(bench, monkeypatch):
    path = bench.write("inp", np.zeros(64, np.int32))

    def fail(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_files.Path, "read_bytes", fail)
    assert bench.run("activations", read_inp_file_name=path) == 2
    assert bench.refused(repr(path), "Permission denied")


def test_files_that_cannot_be_written_give_2_before_any_work(bench, monkeypatch):
    monkeypatch.setattr(_job, "random_frames", None)
    os.mkdir(bench.path("folder"))
    os.mkfifo(bench.path("fifo"))
    for path, text in (
        (bench.path("no/out"), "there is no folder"),
        (bench.path("folder"), "is not a regular file"),
        (bench.path("fifo"), "is not a regular file"),
        ("/dev/null", "is not a regular file"),
        ("\0", "null"),
    ):
        assert bench.run("pool", write_file=1, write_out_file_name=path) == 2
        assert bench.refused(repr(path), text), bench.err
    assert bench.files() == ["fifo", "folder"]
    other = os.path.join(bench.path("folder"), os.pardir, "out")
    options = {"write_inp_file_name": bench.path("out"), "write_out_file_name": other}
    assert bench.run("pool", write_file=1, **options) == 2
    assert bench.refused("is the name of two files to be written")


def test_files_are_written_by_write_file_alone(bench):
    out = {"write_out_file_name": bench.path("out")}
    assert bench.run("activations", **out) == 2
    assert bench.refused("-write_out_file_name is given, expected -write_file 1")
    assert bench.run("activations", write_file=1) == 2
    assert bench.refused("-write_file is 1, expected -write_inp_file_name or -write_out_file_name")
    assert bench.files() == []
    assert bench.run("activations", write_file=1, **out) == 0
    assert bench.files() == ["out"]


@pytest.mark.parametrize("before", [None, b"before"])
def test_a_file_is_written_whole_or_not_at_all(bench, monkeypatch, before):
    if before is not None:
        (bench.folder / "out").write_bytes(before)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    options = {"write_file": 1, "write_out_file_name": bench.path("out")}
    for place, name in ((atomic, "open"), (atomic.os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail, raising=False)
            assert bench.run("activations", **options) == 2
        assert bench.refused(repr(bench.path("out")), "No space left on device")
        assert bench.files() == ([] if before is None else ["out"])
        assert before is None or (bench.folder / "out").read_bytes() == before
    assert bench.run("activations", **options) == 0
    assert os.path.getsize(bench.path("out")) == 256


def test_nothing_is_written_where_something_is_of_no_use(bench):
    options = {"write_file": 1, "write_out_file_name": bench.path("out")}
    options["write_inp_file_name"] = bench.path("inp")
    assert bench.run("activations", **options, read_ref_file_name=bench.path("missing")) == 2
    assert bench.run("conv", **options, kernel_height=17) == 2
    assert bench.run("cnn", **options, kernel_height=17) == 2
    assert bench.files() == []


def test_written_files_have_the_permissions_of_new_ones(bench):
    options = {"write_file": 1, "write_out_file_name": bench.path("out")}
    assert bench.run("activations", **options) == 0
    bench.write("new", np.zeros(1, np.int8))
    assert os.stat(bench.path("out")).st_mode == os.stat(bench.path("new")).st_mode
    os.chmod(bench.path("out"), 0o640)
    assert bench.run("activations", **options) == 0
    assert os.stat(bench.path("out")).st_mode & 0o777 == 0o640


def test_elements_are_little_endian():
    x = np.array([1, -2, 2**31 - 1], np.int32)
    assert raw(x) == b"\x01\0\0\0\xfe\xff\xff\xff\xff\xff\xff\x7f"
    assert raw(x.astype(">i4")) != x.astype(">i4").tobytes()
