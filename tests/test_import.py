"""Importing tosajax changes nothing in JAX, is quick, and imports only its needs."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import tosajax

# Parts of tosajax that no public name needs.
UNUSED = ["cli", "compare", "compliance", "quant", "reference_model", "rewrite", "sweep", "viz"]
# Time goes into modules that are loaded and into programs of JAX, so these are looked at instead.
SCRIPT = """
import json, sys
import tosajax

alone = sorted(set(sys.modules) & {"jax", "numpy", "ml_dtypes"})
import jax

config = {name: repr(value) for name, value in jax.config.values.items()}
events = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
for name in tosajax.__all__:
    getattr(tosajax, name)
after = {name: repr(value) for name, value in jax.config.values.items()}
loaded = {name.split(".")[0] for name in sys.modules}
parts = {name.split(".")[1] for name in sys.modules if name.startswith("tosajax.")}
changed = sorted(name for name in {**config, **after} if config.get(name) != after.get(name))
found = {"alone": alone, "changed": changed, "events": events}
print(json.dumps({**found, "loaded": sorted(loaded), "parts": sorted(parts)}))
"""
DEPENDENCIES = "import sys, jax, jaxlib, ml_dtypes, numpy, flatbuffers; print(*sys.modules)"


def _run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    return json.loads(_run(SCRIPT))


def test_configuration_of_jax_is_left_alone(run):
    assert run["changed"] == []


def test_quick(run):
    """Importing loads no package, and each name only the parts that it needs; nothing is traced."""
    assert run["alone"] == []
    assert not {*run["parts"]} & {*UNUSED}
    assert run["events"] == []


def test_nothing_but_dependencies_is_loaded(run):
    theirs = {name.split(".")[0] for name in _run(DEPENDENCIES).split()}
    added = set(run["loaded"]) - theirs - sys.stdlib_module_names
    assert added == {"tosajax"}


COMMANDS = """
import contextlib, io, sys
from tosajax.cli import main

def heavy():
    return sorted({name.split(".")[0] for name in sys.modules} & set(HEAVY))

HEAVY = ("jax", "jaxlib", "numpy", "ml_dtypes", "matplotlib")
names = "info show check explain run compare convert dump export rewrite rounding sweep".split()
wrong = [["no-such"], ["run", "m.tosa"], ["info", "m.tosa", "--batch", "0"], ["info", "nowhere"]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    for arguments in (["--help"], ["--version"], *([n, "--help"] for n in names), *wrong[:3]):
        with contextlib.suppress(SystemExit):
            main(arguments)
print(*heavy())
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main(wrong[3])
    for command in ("info", "check"):
        assert main([command, sys.argv[1]]) == 0
print(*heavy())
"""


def test_commands_load_what_they_need(data):
    model = str(data / "et_digits_cnn_a8w8" / "model.tosa")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, model], capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    help_loads, info_loads = done.stdout.splitlines()
    assert help_loads == ""
    assert info_loads.split() == ["ml_dtypes", "numpy"]


def test_choices_of_help_are_those_of_what_it_does_not_import():
    from tosajax.cli import export as export_command
    from tosajax.cli import rewrite as rewrite_command
    from tosajax.cli import sweep as sweep_command
    from tosajax.from_jax.scope import HifiLayers
    from tosajax.rewrite.rescale import Rounding
    from tosajax.sweep.evaluate import STRATEGIES

    assert get_args(HifiLayers) == export_command.HIFI_LAYERS
    assert get_args(Rounding) == rewrite_command.ROUNDINGS
    assert ("auto", *STRATEGIES) == sweep_command.STRATEGIES


def test_public_names():
    """Every lazy name is there."""
    tree = ast.parse(Path(tosajax.__file__).read_text())
    (typed,) = (n for n in tree.body if isinstance(n, ast.If))
    imported = {a.name for n in ast.walk(typed) if isinstance(n, ast.ImportFrom) for a in n.names}
    assert imported | {"load"} == set(tosajax.__all__)
    assert set(tosajax.__all__) <= set(dir(tosajax))
    assert inspect.ismodule(tosajax.ops)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = tosajax.nothing  # pyright: ignore[reportAttributeAccessIssue]


PARTS = sorted({*dir(tosajax)} - {*tosajax.__all__} - {n for n in dir(tosajax) if n[:2] == "__"})


def test_dir_lists_what_is_public():
    assert {"compare", "compliance", "hifi", "quant", "rewrite", "sweep", "viz"} <= {*PARTS}
    assert {"__version__", "__doc__", "Builder", "load"} <= {*dir(tosajax)}
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib"} & {*dir(tosajax)}


@pytest.mark.parametrize("part", PARTS)
def test_dir_of_a_part_lists_what_is_public(part):
    module = importlib.import_module(f"tosajax.{part}")
    assert getattr(tosajax, part) is module
    names = dir(module)
    assert {*module.__all__} <= {*names}
    for name in names:
        assert hasattr(module, name) or importlib.import_module(f"tosajax.{part}.{name}")
    assert not {"annotations", "dataclasses", "np", "os"} & {*names}
