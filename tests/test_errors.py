"""Exceptions: each survives pickling, which brings it out of another process."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil

import pytest
from illegal_graph import fail, illegal

import tosajax
from tosajax import FormatError, TosaError, UnsupportedError
from tosajax.hifi.bench._options import BenchError
from tosajax.hifi.errors import ErrorCode, Fault, NNLibConfigError, NNLibParamError
from tosajax.sweep.evaluate import ReadError

# Importing the worker reads standard input; importing the command line ends the process.
SCRIPTS = ("tosajax.__main__", "tosajax.reference_model._worker")


FAULT = Fault(ErrorCode.GRU_CONFIG_FATAL_INVALID_IN_FEATS, "in_feats", 3, "a multiple of 4")
EXAMPLES = [
    TosaError(tosajax.validate(illegal())),
    FormatError("no file"),
    UnsupportedError("CUSTOM"),
    NNLibParamError("xa_nn_matXvec", "acc_shift", 99, "within [-31, 31]"),
    NNLibConfigError("GRU", FAULT),
    BenchError("'-x' is not an option"),
    ReadError(FileNotFoundError(2, "No such file or directory", "images.npy")),
]


def exceptions() -> set[type]:
    """Every exception that a module of the package defines."""
    names = [m.name for m in pkgutil.walk_packages(tosajax.__path__, "tosajax.")]
    modules = [importlib.import_module(name) for name in names if name not in SCRIPTS]
    found = [value for module in modules for value in vars(module).values()]
    classes = {value for value in found if inspect.isclass(value)}
    return {c for c in classes if issubclass(c, Exception) and c.__module__.startswith("tosajax.")}


def test_each_exception_has_an_example():
    assert {type(error) for error in EXAMPLES} == exceptions()


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_pickled_and_copied(error):
    error.add_note("while testing")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        found, wanted = (
            {name: (type(value), str(value)) for name, value in vars(e).items()}
            for e in (again, error)
        )
        assert found == wanted


def test_raised_in_another_process():
    with contextlib.closing(multiprocessing.get_context("spawn").Pool(1)) as pool:
        try:
            with pytest.raises(TosaError, match="ADD 'sum'") as caught:
                pool.apply_async(fail).get(timeout=120)
        finally:
            pool.terminate()
    assert caught.value.report == tosajax.validate(illegal())
