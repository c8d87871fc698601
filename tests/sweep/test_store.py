"""Stores: readers find every appended row, whatever happens to the writers."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tosajax.report import FormatError
from tosajax.sweep import store as store_module
from tosajax.sweep.store import Store

ROWS = [
    {"key": "a", "setting": {"bits": 4}, "metrics": {"accuracy": 0.1}, "error": None},
    {"key": "b", "setting": {}, "metrics": {}, "error": 'ValueError: "x" \n\\ é\ud800'},
    {"key": "c", "metrics": {"x": math.inf, "y": -math.inf, "z": 0.1 + 0.2, "t": 5e-324}},
]

# Loaded by itself, as the package takes a second to import. Rows name their writer, and are longer
# than a pipe or a page takes at once.
_WRITER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("store", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
store = module.Store(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
name, count, each = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
for start in range(0, count, each):
    rows = range(start, start + each)
    store.append([{"key": f"{name}{i}", "text": f"{name}{i}," * (400 + i % 300)} for i in rows])
"""


def _writer(path: Path, name: str, count: int, each: int) -> subprocess.Popen[str]:
    source = sys.modules[Store.__module__].__file__
    command = [sys.executable, "-c", _WRITER, str(source), str(path), name, str(count), str(each)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def _go(writer: subprocess.Popen[str]) -> None:
    assert writer.stdin is not None
    writer.stdin.write("\n")
    writer.stdin.flush()


def _ended(writer: subprocess.Popen[str]) -> int:
    code = writer.wait(60)
    for pipe in (writer.stdin, writer.stdout):
        assert pipe is not None
        pipe.close()
    return code


def _check(row: dict[str, Any]) -> None:
    i = int(row["key"].lstrip("ab"))
    assert row == {"key": row["key"], "text": f"{row['key']}," * (400 + i % 300)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_rows_come_back(path: Path) -> None:
    store = Store(path)
    assert store.read() == {}
    store.append(ROWS[:1])
    store.append([])
    store.append(ROWS[1:])
    wanted = {row["key"]: row for row in ROWS}
    assert store.read() == wanted
    assert list(store.read()) == ["a", "b", "c"]
    assert Store(str(path)).read() == wanted
    assert path.read_bytes().count(b"\n") == len(ROWS)
    assert path.read_bytes().isascii()


def test_nan_comes_back(path: Path) -> None:
    Store(path).append([{"key": "a", "x": math.nan}])
    assert math.isnan(Store(path).read()["a"]["x"])


def test_the_last_of_equal_keys_counts(path: Path) -> None:
    """A setting that failed may be run again."""
    store = Store(path)
    store.append([{"key": "a", "error": "failed"}, {"key": "b", "error": None}])
    store.append([{"key": "a", "error": None}])
    assert store.read()["a"] == {"key": "a", "error": None}


def test_the_key_is_first_in_a_line(path: Path) -> None:
    Store(path).append([{"x": 1, "key": "a"}])
    assert path.read_bytes() == b'{"key": "a", "x": 1}\n'
    assert Store(path).read() == {"a": {"key": "a", "x": 1}}


def test_none_keeps_nothing() -> None:
    store = Store(None)
    store.append(ROWS)
    assert store.read() == {}


def test_rows_that_cannot_be_written(path: Path) -> None:
    store = Store(path)
    for bad, error in (
        ({"key": "b", "x": object()}, TypeError),
        ({"key": 3}, TypeError),
        ({"key": None}, TypeError),
        ({"x": 1}, KeyError),
    ):
        with pytest.raises(error):
            store.append([ROWS[0], bad])
    assert path.read_bytes() == b""


def test_a_torn_line_is_passed_over(path: Path) -> None:
    """A cut at every byte loses no later row, and the torn row may be written again."""
    Store(path).append([{"key": "a", "x": 1}, {"key": "b", "x": "{é}", "y": {"key": "c"}}])
    whole = path.read_bytes()
    first, second = whole.index(b"\n"), len(whole) - 1
    new = {"key": "new"}
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        known = {"a"} if end >= first else set()
        known |= {"b"} if end >= second else set()
        assert set(Store(path).read()) == known, end
        Store(path).append([new])
        assert set(Store(path).read()) == known | {"new"}, end
        Store(path).append([{"key": "b", "x": 2}])
        assert set(Store(path).read()) == known | {"new", "b"}, end
        assert Store(path).read()["b"]["x"] == 2


def test_lines_that_are_torn_twice(path: Path) -> None:
    Store(path).append([{"key": "a", "x": 1}])
    whole = path.read_bytes()
    for one in range(len(whole)):
        for two in (0, 1, 9, len(whole) - 2):
            path.write_bytes(whole[:one] + b"\n" + whole[:two])
            Store(path).append([{"key": "new"}])
            assert set(Store(path).read()) == ({"new", "a"} if one == len(whole) - 1 else {"new"})


@pytest.mark.parametrize("rest", [b"\0" * 100, b"\xff\xfe\x00", b'{"key": "b", "x\0\0\0'])
def test_what_a_disk_leaves_when_power_fails(path: Path, rest: bytes) -> None:
    Store(path).append(ROWS[:1])
    path.write_bytes(path.read_bytes() + rest)
    Store(path).append([{"key": "new"}])
    assert set(Store(path).read()) == {"a", "new"}


def test_every_beginning_of_a_row_is_passed_over() -> None:
    """Rows of all JSON values: a cut leaves half a word, a number, an escape, an open bracket."""
    values = [1.5e-300, -17, True, None, "a\\b\n\u00e9\U0001f600", [], {}, [{"x": [0.1]}]]
    text = json.dumps({"key": "a\u00e9", "m": [math.nan, math.inf, -math.inf, *values]})
    for end in range(len(text)):
        assert store_module._parsed(text[:end].encode()) == (None, None), text[:end]
    assert store_module._parsed(text.encode())[0]


GOOD = '{"key": "a", "setting": {}, "columns": {}, "metrics": {"m": 0.5}, "error": null}'


@pytest.mark.parametrize(
    ("edited", "fault"),
    [
        (GOOD.replace("{}", "[" * 10**5), "nested too deeply"),
        (GOOD.replace("{}", '{"x":' * 10**5), "nested too deeply"),
        (GOOD.replace("0.5", "9" * 5000), "digits"),
        (GOOD.replace("0.5", "9" * 400), "metrics has 'm': 9999.*, expected a number"),
        (GOOD.replace("0.5", '"0.5"'), "metrics has 'm': 0.5, expected a number"),
        (GOOD.replace("0.5", "true"), "metrics has 'm': True, expected a number"),
        (GOOD.replace("0.5", "[1]"), r"metrics has 'm': \[1\], expected a number"),
        (GOOD.replace('{"m": 0.5}', "3"), "'metrics' is '3', expected an object"),
        (GOOD.replace('"columns": {}', '"columns": null'), "'columns' is 'None', expected an obj"),
        (GOOD.replace('"setting": {}, ', ""), "'setting' is missing, expected an object"),
        (GOOD.replace("null", "NaN"), "'error' is 'nan', expected a text or null"),
        (GOOD.replace(', "error": null', ""), "'error' is missing, expected a text or null"),
        (GOOD.replace('"setting"', '"key": "b", "setting"'), "'key' is given twice"),
        (GOOD.replace('"m": 0.5', '"m": 0.5, "m": 1'), "'m' is given twice"),
        (GOOD.replace("null}", "null,}"), "not JSON at column"),
        (GOOD.replace("0.5", "0.5.5"), "not JSON at column"),
        (GOOD + " ,", "not JSON at column"),
        (GOOD.replace("null", '"\xff"'), "not UTF-8 at byte"),
        ("[1]", "does not begin"),
        ("  " + GOOD, "does not begin"),
        ("hello", "does not begin"),
    ],
)
def test_edited_rows_are_refused_by_their_line(path: Path, edited: str, fault: str) -> None:
    content = f"{GOOD}\n{edited}\n{GOOD}\n".encode("latin-1")
    path.write_bytes(content)
    with pytest.raises(FormatError, match=rf"run\.jsonl line 2: .*{fault}.*; delete the line"):
        Store(path, store_module.fault_of)
    assert path.read_bytes() == content


def test_numbers_that_are_not_finite_are_in_order(path: Path) -> None:
    path.write_text(GOOD.replace("0.5", "NaN") + "\n" + GOOD.replace("0.5", "1e999") + "\n")
    assert Store(path, store_module.fault_of).read()["a"]["metrics"] == {"m": math.inf}


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b"[]",
        b'{"x": 1, "key": "a"}\n',
        b'{"key": 3}\n',
        b'{\n "key": "a"\n}\n',
        b'{\n "x": 1}\n{"key": "a"}\n',
        b"\x89PNG\r\n\x1a\n\0\0",
        b"\xff\xfe{\0",
        b"x",
        b"a,b\n1,2\n",
    ],
)
def test_other_files_are_refused_and_stay_as_they_are(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    reason = r"run\.jsonl is not a store of sweeps: line \d is not a row"
    with pytest.raises(FormatError, match=reason):
        Store(path)
    assert path.read_bytes() == content


def test_a_file_that_becomes_another(path: Path) -> None:
    store = Store(path)
    path.write_bytes(b"hello\n")
    with pytest.raises(ValueError, match="line 1 is not a row"):
        store.read()


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Store(tmp_path)
    with pytest.raises(FileNotFoundError):
        Store(tmp_path / "none" / "run.jsonl")
    store = Store(tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl").unlink()
    with pytest.raises(FileNotFoundError):
        store.read()


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_new_file_has_the_usual_permissions(path: Path) -> None:
    before = os.umask(0o022)
    try:
        Store(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_writes_that_take_part_of_a_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is nearly full."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, text: write(file, bytes(text)[:7]))
    Store(path).append(ROWS)
    assert Store(path).read() == {row["key"]: row for row in ROWS}


def test_rows_are_on_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda f: (sizes.append(os.fstat(f).st_size), fsync(f)))
    Store(path).append(ROWS)
    assert sizes == [path.stat().st_size]


def test_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{Store.__module__}.fcntl", None)
    monkeypatch.delattr(os, "pread")
    store = Store(path)
    store.append(ROWS[:1])
    path.write_bytes(path.read_bytes() + b'{"key')
    store.append(ROWS[1:])
    assert set(store.read()) == {"a", "b", "c"}


def test_without_locks_lines_go_to_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while another process appends."""
    store = Store(path)
    store.append(ROWS[:1])
    ends_whole = sys.modules[Store.__module__]._ends_whole  # type: ignore[attr-defined]

    def interrupted(file: int) -> bool:
        found = ends_whole(file)
        with path.open("ab") as other:
            other.write(b'{"key": "other"}\n')
        return found

    monkeypatch.setattr(f"{Store.__module__}.fcntl", None)
    monkeypatch.setattr(f"{Store.__module__}._ends_whole", interrupted)
    store.append(ROWS[1:])
    assert set(store.read()) == {"a", "b", "c", "other"}


def test_files_are_closed(path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    store = Store(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        store.append(ROWS)
        store.read()
    assert len(os.listdir("/proc/self/fd")) == before


def test_processes_append_at_the_same_time(path: Path) -> None:
    Store(path).append([{"key": "start", "error": None}])
    # An unfinished row precedes both.
    path.write_bytes(path.read_bytes() + b'{"key": "torn')
    writers = [_writer(path, name, 200, each) for name, each in (("a", 1), ("b", 4))]
    for writer in writers:
        _go(writer)
    reader = Store(path)
    while any(writer.poll() is None for writer in writers):
        for row in list(reader.read().values())[1:]:
            _check(row)
        time.sleep(0.02)
    assert [_ended(writer) for writer in writers] == [0, 0]
    rows = reader.read()
    assert set(rows) == {"start"} | {f"{name}{i}" for name in "ab" for i in range(200)}
    for row in list(rows.values())[1:]:
        _check(row)
    lines = path.read_text().splitlines()
    assert len(lines) == 402
    assert sum(_is_torn(line) for line in lines) == 1


def test_a_lock_is_waited_for(path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    writer = _writer(path, "a", 1, 1)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _go(writer)
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(0.2)
        assert path.read_bytes() == b""
    assert _ended(writer) == 0
    assert set(Store(path).read()) == {"a0"}


@pytest.mark.skipif(os.name != "posix", reason="kills by signals")
def test_processes_that_are_killed_while_they_append(path: Path) -> None:
    moments = random.Random(7)
    kept: set[str] = set()
    for attempt in range(10):
        writer = _writer(path, "a", 10**6, 50)
        before = path.stat().st_size
        _go(writer)
        while attempt % 2 and path.stat().st_size == before:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.04))
        writer.send_signal(signal.SIGKILL)
        assert _ended(writer) == -signal.SIGKILL
        rows = Store(path).read()
        for row in rows.values():
            _check(row)
        # The rows before are still there.
        assert kept <= set(rows)
        kept = set(rows)
    assert kept
    torn = sum(_is_torn(line) for line in path.read_text().split("\n") if line)
    assert torn <= 10
    Store(path).append([{"key": "new"}])
    assert set(Store(path).read()) == kept | {"new"}


def _is_torn(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return True
    return False
