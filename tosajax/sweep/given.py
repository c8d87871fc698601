"""Arguments of a sweep: checks their types, and makes objects of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from numpy.typing import ArrayLike

from tosajax.graph import Graph
from tosajax.quant import QModel
from tosajax.quant.model.recipes import Params
from tosajax.runtime.batching import Devices
from tosajax.sweep import digest
from tosajax.sweep.data import Data, Source, refuse_nan
from tosajax.sweep.evaluate import STRATEGIES, Strategy
from tosajax.sweep.graphs import GraphSubject, Scales, of_graph
from tosajax.sweep.models import ModelSubject, of_model
from tosajax.sweep.program import unsigned_outputs
from tosajax.sweep.space import Space
from tosajax.sweep.subject import Subject, of_function

Model = Graph | tuple[QModel, Params] | Subject | Callable[..., Any]
# "float", a function of inputs, or the outputs of all examples.
References = str | Callable[..., Any] | ArrayLike | Sequence[ArrayLike]


def subject_of(
    model: Model, input_quant: Scales | None, output_quant: Scales | None, *, clip: bool = False
) -> Subject:
    """Makes the subject that runs a model.

    Raises:
      TypeError: the model is of another type, or scales are given and it is not a Graph.
    """
    if isinstance(model, Graph):
        return of_graph(model, input_quant=input_quant, output_quant=output_quant, clip=clip)
    if input_quant is not None or output_quant is not None:
        raise TypeError("input_quant and output_quant are of a Graph")
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], QModel):
        return of_model(*model)
    if isinstance(model, Subject):
        return model
    if callable(model):
        return of_function(model)
    raise TypeError(
        f"model is {type(model).__name__}, expected a Graph, (QModel, parameters), a function, or "
        "what of_graph, of_model or of_function returns"
    )


def data_of(data: Source | Data, allow_nan: bool) -> Data:
    """Makes the data set."""
    if not isinstance(data, Data):
        return Data(data, allow_nan=allow_nan)
    return data.with_nan() if allow_nan else data


def check_settings(subject: Subject, configs: Space) -> None:
    """Checks the names and values of all settings, and the values and range ends of axes.

    Raises:
      TypeError, ValueError: a name is unknown, or a value is not possible.
    """
    for number, setting in enumerate(configs):
        try:
            subject.check(setting)
        except (TypeError, ValueError) as error:
            raise type(error)(f"setting {number}: {error}") from None
    for name, axis in configs.axes.items():
        for value in axis.ends():
            subject.check({name: value})


def strategy_of(name: str, devices: Devices, are_given: bool) -> Strategy:
    """The strategy with a name; "auto" chooses by the devices.

    Raises:
      ValueError: the strategy is unknown, or does not support several processes.
    """
    if name == "auto":
        if jax.process_count() > 1 or (are_given and len(devices) > 1):
            return "sharded"
        if len(devices) > 1 and devices[0].platform != "cpu":
            return "sharded"
        return "loop" if devices[0].platform == "cpu" else "vmap"
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r}, expected 'auto' or one of {', '.join(STRATEGIES)}")
    if name != "sharded" and jax.process_count() > 1:
        raise ValueError(f"strategy {name!r} of several processes, expected 'sharded'")
    return cast(Strategy, name)


class Reference(NamedTuple):
    """Outputs to compare with: from a function of inputs, or stored for all examples; or none.

    Args:
      run: the function (*inputs) -> outputs, for a batch.
      stored: outputs with all examples on the first axis.
      digest: identifies the reference in a store.
      given: the user's argument.
    """

    run: Callable[..., Any] | None = None
    stored: tuple[np.ndarray, ...] = ()
    digest: str = ""
    given: References | None = None


def reference_of(
    subject: Subject, given: References | None, *, allow_nan: bool = False
) -> Reference:
    """Makes the reference of a sweep.

    Raises:
      ValueError: "float" for a model without a float graph, or an array has NaN.
    """
    if given is None:
        return Reference()
    if isinstance(given, str):
        if given != "float" or not isinstance(subject, ModelSubject):
            raise ValueError(f"reference {given!r}: only a QModel has a 'float' graph to refer to")
        model, params = subject.model, subject.params
        run = jax.jit(lambda *x: model.apply(params, *x, mode="float"))
        return Reference(run, (), "float", given)
    if callable(given):
        run = jax.jit(given)
        name = getattr(given, "__qualname__", type(given).__name__)
        return Reference(
            lambda *x: y if isinstance(y := run(*x), tuple) else (y,), (), f"function {name}", given
        )
    arrays = given if isinstance(given, tuple | list) else (given,)
    stored = tuple(map(np.asarray, arrays))
    if not allow_nan:
        for number, array in enumerate(stored):
            refuse_nan(f"reference {number}", array)
    if isinstance(subject, GraphSubject):
        stored = unsigned_outputs(subject.graph, stored)
    return Reference(None, stored, digest.of_arrays(stored), given)
