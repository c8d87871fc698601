"""Mutants of compiled, saved and batched calls."""

from __future__ import annotations

from mutation.changes import assign, change, condition, left, result, right, skip, unwrap
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "runtime/batching.py",
        "runtime/test_batching.py runtime/test_saved.py",
        {
            "share": [assign("calls", "1"), change("calls", "1"), unwrap("min", argument=1)],
            "call_in_parts": [
                assign("results", "_spread(part, count)", 1),
                condition("size >= count - 1", 0),
            ],
            "part_of": [condition("batch.examples == batch.at_once", 0), condition("not _", 2)],
            "_taken": [change("start", "0")],
            "_put": [change("start", "0")],
            "_over_devices": [change("everything", "examples", 1)],
            "carries_batch": [change("1", "2")],
            "_in_parts": [change("count", "-count", 1)],
            "batched": [change("count", "-count", 3)],
        },
    ),
    *mutants(
        "runtime/saved.py",
        "runtime/test_saved.py",
        {
            "SavedExecutable._batch_of": [
                unwrap("min", argument=1),
                assign("limit", "examples"),
                condition("False", 2),
            ],
            "SavedExecutable.__call__": [skip("assign", 4)],
            "load_executable": [change("exported.platforms", "()", 0), condition("False", 2)],
            "write": [change("part_state", "state", 1), condition("True", 0)],
            "_arrays": [condition("False")],
        },
    ),
    *mutants(
        "runtime/saved_file.py",
        "runtime/test_saved.py",
        {
            "_batch": [left("and", 4), right("and", 3), left("and", 3), left("and", 2)],
            "_read": [left("or"), condition("False", 3), condition("False", 5)],
        },
    ),
    *mutants(
        "compare/etrecord_scales.py",
        "compare/test_etrecord_scales.py",
        {
            "_check": [condition("False", 0)],
            "_Match._add": [skip("self._refused.add")],
            "_Match.run": [skip("self._add_by_sources"), skip("self._add_ends", 1)],
        },
    ),
    *mutants(
        "arguments/archives.py",
        "arguments/test_archives.py",
        {"content": [change("entry.file_size", "0", 0), condition("False", 0)]},
    ),
    *mutants(
        "runtime/saved_graph.py",
        "runtime/test_saved_graph.py",
        {
            "content_of": [condition("False")],
            "native_call": [left("or", 0), left("or", 1), skip("_check")],
            "NativeCall.__call__": [condition("True")],
            "_of_a_call": [condition("False", 1), condition("True", 1)],
            "_check": [condition("False", 0), condition("True", 1), condition("True", 2)],
        },
    ),
    *mutants(
        "runtime/executable.py",
        "runtime/test_saved_graph.py",
        {"Executable.save": [left("and", 1), right("and", 2), left("and", 3)]},
    ),
    *mutants(
        "runtime/exported.py",
        "runtime/test_exported.py",
        {
            "_forbidden_name": [result("None", 0), result("None", 2), change("in", "not in", 1)],
            "_layout": [skip("_expect", 2)],
        },
    ),
]
