"""Data sets: examples and labels, in batches of one size."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tosajax.arguments.arrays import load_array, load_arrays
from tosajax.arguments.nan import first_nan
from tosajax.runtime.rows import filled
from tosajax.sweep import digest

_DIGESTED = 64  # examples that are hashed at a time

# Arrays, or batches of them; see `Data`.
Source = (
    ArrayLike
    | tuple[Any, Any]
    | Mapping[str, ArrayLike]
    | str
    | os.PathLike[str]
    | Iterable[Any]
    | Callable[[], Iterable[Any]]
)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Examples on the first axis of each array.

    Args:
      inputs: the model's inputs.
      labels: an array, or None.
      stored: the reference outputs of these examples, or None.
      count: the number of examples; further rows are padding.
      names: names of the inputs, for messages.
    """

    inputs: tuple[np.ndarray, ...]
    labels: np.ndarray | None
    stored: tuple[np.ndarray, ...] | None
    count: int
    names: tuple[str, ...] = ()


class Data:
    """A data set that a sweep reads batch by batch, once for each chunk of settings.

    Args:
      source: one of
        - inputs: an array, with the examples on its first axis;
        - (inputs, labels): inputs are one array or a tuple of arrays; labels may be None;
        - a mapping of arrays: "labels", if there are any, and the inputs, in their order;
        - the path of an `.npz` file of this mapping, or of an `.npy` file of inputs;
        - an iterable of batches in one of these forms, or a function that returns such an iterable.
          Pairs may be lists, as in PyTorch's loaders. Batches may differ in size; examples must
          have the same order each time. An iterator can be read only once.
      name: identifies the data set in a store; by default a digest of all examples.
      allow_nan: whether inputs and labels may have NaN. By default NaN is an error, raised when the
        examples are read and before any row is written. Infinities are always accepted: floats
        compute with them, and quantization saturates them.

    Raises:
      OSError: a file cannot be read.
      TypeError: the source has another form.
      ValueError: arrays have different numbers of examples, or none.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> batches = [(np.zeros((2, 4), np.float32), np.zeros(2, np.int32)) for _ in range(3)]
      >>> run = sweep.Sweep(lambda setting, x: x, sweep.Data(batches))
      >>> run.run().examples
      6
    """

    def __init__(self, source: Source, *, name: str | None = None, allow_nan: bool = False):
        self._arrays = _as_one_batch(source) if _has_all_examples(source) else None
        self._source: Any = source if self._arrays is None else None
        if self._arrays is None and not callable(source) and not isinstance(source, Iterable):
            raise TypeError(f"data is {type(source).__name__}, expected arrays or batches")
        self._name = name
        self._seeks_nan = not allow_nan
        self._first: Batch | None = None
        self._reading: Iterator[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads from the start: an iterator cannot be copied.
        return {**self.__dict__, "_reading": None}

    @classmethod
    def of(cls, source: Source | Data) -> Data:
        """Makes a data set of a source; returns a data set unchanged."""
        return source if isinstance(source, Data) else cls(source)

    def with_nan(self) -> Data:
        """A copy of the data set that accepts NaN."""
        data = copy.copy(self)
        data._seeks_nan = False
        return data

    @property
    def count(self) -> int | None:
        """The number of examples; None if the source is batches."""
        return None if self._arrays is None else self._arrays.count

    @property
    def labels(self) -> np.ndarray | None:
        """All labels; None without labels, or if the source is batches."""
        return None if self._arrays is None else self._arrays.labels

    @property
    def is_read_once(self) -> bool:
        return isinstance(self._source, Iterator)

    def digest(self) -> str:
        """The name of the data set, or else a digest, which reads all examples.

        The digest covers inputs and labels in their order; it does not depend on batches.

        Raises:
          ValueError: the data can be read only once, and have no name.
        """
        if self._name is None:
            if self.is_read_once:
                raise ValueError(
                    "an iterator can be read only once: name the data set (Data(..., name=...)), "
                    "or give an iterable"
                )
            hasher = hashlib.sha256()
            for part in _regrouped(self._parts(), _DIGESTED):
                hasher.update(digest.of_arrays((part.inputs, part.labels)).encode())
            self._name = hasher.hexdigest()
        return self._name

    def batches(self, size: int, with_reference: Sequence[np.ndarray] = ()) -> Iterator[Batch]:
        """The examples, `size` at a time.

        Args:
          size: the size of each batch, at least 1; the last example pads the last batch.
          with_reference: outputs to compare with, with all examples on the first axis.

        Raises:
          TypeError: a batch has another form.
          ValueError: batches have different types or shapes, the reference has another number of
            examples, inputs or labels have NaN, or an iterator has been read already.
        """
        if size < 1:
            raise ValueError(f"batches of {size} examples, expected at least 1")
        start = 0
        for part in _regrouped(self._parts(), size):
            end = start + part.count
            _check_reference(with_reference, end, is_all=False)
            stored = tuple(x[start:end] for x in with_reference) or None
            yield _padded(dataclasses.replace(part, stored=stored), size)
            start = end
        _check_reference(with_reference, start, is_all=True)

    def first(self) -> Batch:
        """The first example, for types and shapes.

        Raises:
          ValueError: there are no examples, or an iterator has been read already.
        """
        if self._first is None:
            part = next(self._parts(), None)
            if part is None:
                raise ValueError("the data set has no examples")
            if self.is_read_once:
                # Later reads start with this part again.
                self._source = itertools.chain([part], self._source)
            self._first = _slice(part, 0, 1)
        return self._first

    def _parts(self) -> Iterator[Batch]:
        if self._arrays is not None:
            self._check_nan(self._arrays, 0)
            self._seeks_nan = False  # there is none
            yield self._arrays
            return
        batches = iter(self._source if isinstance(self._source, Iterable) else self._source())
        if batches is self._reading:
            raise ValueError("the data come from an iterator, which has been read already")
        self._reading = batches
        first: Batch | None = None
        start = 0
        for number, batch in enumerate(batches):
            part = _as_one_batch(batch)
            first = first or part
            if _batch_types(part) != _batch_types(first):
                types = f"{_batch_types(part)}, the first one {_batch_types(first)}"
                raise ValueError(
                    f"batch {number} has {types}, expected batches that differ in size only"
                )
            self._check_nan(part, start)
            start += part.count
            yield part

    def _check_nan(self, part: Batch, start: int) -> None:
        if self._seeks_nan:
            for name, array in zip(part.names, part.inputs, strict=True):
                refuse_nan(name, array, start)
            if part.labels is not None:
                refuse_nan("labels", part.labels, start)


def _has_all_examples(source: Any) -> bool:
    """Whether a source holds all examples, rather than batches."""
    if isinstance(source, tuple):
        return _is_pair(source)
    return isinstance(source, Mapping | str | os.PathLike) or _is_array(source)


def _is_array(source: Any) -> bool:
    return hasattr(source, "__array__")


def _is_pair(source: Sequence[Any]) -> bool:
    if len(source) != 2:
        return False
    inputs, labels = source
    arrays = inputs if isinstance(inputs, tuple) else (inputs,)
    return all(map(_is_array, arrays)) and (
        labels is None or isinstance(labels, list) or _is_array(labels)
    )


def _as_one_batch(source: Any) -> Batch:
    """Reads a source of all examples as one batch."""
    if isinstance(source, Batch):
        return source
    if isinstance(source, str | os.PathLike):
        source = _load(source)
    labels, names = None, ()
    if isinstance(source, Mapping):
        named = dict(source)
        labels = named.pop("labels", None)
        names, inputs = tuple(f"input {str(name)!r}" for name in named), tuple(named.values())
    elif isinstance(source, tuple | list) and _is_pair(source):
        inputs, labels = source
    elif _is_array(source):
        inputs = source
    else:
        raise TypeError(
            f"a batch is {type(source).__name__}, expected an array, (inputs, labels), a mapping "
            "of arrays, or a path"
        )
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    names = names or tuple(f"input {i}" for i in range(len(inputs)))
    inputs = tuple(map(_numbers, names, inputs))
    labels = None if labels is None else _numbers("labels", labels)
    counts = {x.shape[:1] for x in (*inputs, *(() if labels is None else (labels,)))}
    if not inputs or len(counts) != 1 or counts <= {(), (0,)}:
        shapes = ", ".join(str(x.shape) for x in inputs) or "nothing"
        also = "" if labels is None else f" and labels {labels.shape}"
        raise ValueError(
            f"data of shapes {shapes}{also}, expected the same number of examples, at least one, "
            "on the first axis"
        )
    return Batch(inputs, labels, None, len(inputs[0]), names)


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise TypeError(f"data: {name} is not an array: {error}") from None
    if array.dtype.kind in "OUSMm":
        kind = type(values).__name__ if array.ndim == 0 else f"an array of {array.dtype}"
        raise TypeError(f"data: {name} is {kind}, expected an array of numbers")
    return array


def refuse_nan(name: str, array: np.ndarray, start: int = 0) -> None:
    """Raises ValueError if there is a NaN; the message has the place of the first.

    Args:
      name: the name of the array, for the message.
      array: an array with the examples on the first axis.
      start: the number of examples before this array.
    """
    if (at := first_nan(array)) is None:
        return
    example, *position = at
    where = f" at ({', '.join(map(str, position))})" if position else ""
    raise ValueError(
        f"data: {name}: NaN in example {start + example}{where}; repair the data, or take it as "
        "it is by allow_nan=True (--allow-nan)"
    )


def _load(path: str | os.PathLike[str]) -> Any:
    is_npz = os.fspath(path).endswith(".npz") or zipfile.is_zipfile(path)
    return load_arrays(path) if is_npz else load_array(path, mapped=True)


def _batch_types(batch: Batch) -> str:
    """The types and shapes of examples."""
    inputs = ", ".join(f"{x.dtype}{list(x.shape[1:])}" for x in batch.inputs)
    labels = "no" if batch.labels is None else f"{batch.labels.dtype}{list(batch.labels.shape[1:])}"
    return f"inputs {inputs} and {labels} labels"


def _check_reference(reference: Sequence[np.ndarray], count: int, *, is_all: bool) -> None:
    for x in reference:
        if len(x) < count or (is_all and len(x) > count):
            raise ValueError(
                f"the reference has {len(x)} examples, the data {'' if is_all else 'at least '}"
                f"{count}"
            )


def _regrouped(parts: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Regroups batches to batches of `size` examples; the last one may be smaller."""
    held: list[Batch] = []
    count = 0
    for part in parts:
        held.append(part)
        count += part.count
        if count < size:
            continue
        whole = _concatenated(held)
        full = count - count % size
        for start in range(0, full, size):
            yield _slice(whole, start, start + size)
        held = [_slice(whole, full, count)] if full < count else []
        count -= full
    if held:
        yield _concatenated(held)


def _concatenated(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    joined = _map_arrays(lambda *arrays: np.concatenate(arrays), *batches)
    return dataclasses.replace(joined, count=sum(b.count for b in batches))


def _slice(batch: Batch, start: int, end: int) -> Batch:
    return dataclasses.replace(_map_arrays(lambda x: x[start:end], batch), count=end - start)


def _padded(batch: Batch, size: int) -> Batch:
    """Pads a batch to `size` rows with the last example; padding does not count."""

    def fill(x: np.ndarray) -> np.ndarray:
        return filled(x, size)

    stored = None if batch.stored is None else tuple(map(fill, batch.stored))
    return dataclasses.replace(_map_arrays(fill, batch), stored=stored)


def _map_arrays(function: Callable[..., np.ndarray], *batches: Batch) -> Batch:
    """Applies a function to the matching inputs and labels of batches; returns one batch."""
    inputs = tuple(function(*xs) for xs in zip(*(b.inputs for b in batches), strict=True))
    labels = [b.labels for b in batches if b.labels is not None]
    return dataclasses.replace(
        batches[0], inputs=inputs, labels=function(*labels) if labels else None
    )
