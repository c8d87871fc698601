"""Whole layers as CUSTOM operators of TOSA graphs, and the functions that run them.

`gru`, `lstm` and `cnn` add a node to a Builder; the graph can be saved like any graph. `OPERATORS`
has the functions that run the nodes:

    b = Builder()
    h, x = b.input("h", DType.INT16, (1, 256)), b.input("x", DType.INT16, (1, 100, 64))
    _, y = gru(b, config, weights, GRUState(h), x)
    run = tosajax.compile(b.graph([y]), custom_ops=OPERATORS)

Tensors have a leading batch axis N, unlike arrays in `tosajax.hifi.layers`. The configuration is
stored as JSON in the node's implementation_attrs.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.hifi.kernels import ActivationCoefficients
from tosajax.hifi.layers import (
    CNNConfig,
    CNNWeights,
    Cube,
    GRUConfig,
    GRUState,
    GRUWeights,
    LSTMConfig,
    LSTMState,
    LSTMWeights,
    Matrix,
    Shape,
    ShapeType,
    Vector,
    cnn_apply,
    gru_scan,
    lstm_scan,
)
from tosajax.ops.recording import Call
from tosajax.report import UnsupportedError

DOMAIN = "tosajax.hifi"

_DTYPES = {np.dtype(d.storage): d for d in (DType.INT8, DType.INT16, DType.INT32, DType.FP32)}
_DIMENSIONS = {
    ShapeType.VECTOR: Vector,
    ShapeType.MATRIX: Matrix,
    ShapeType.CUBE_DWH: Cube,
    ShapeType.CUBE_WHD: Cube,
}


def gru(
    b: Builder,
    config: GRUConfig,
    weights: GRUWeights,
    state: GRUState,
    xs: Tensor,
    *,
    update: str = "library",
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[GRUState, Tensor]:
    """Adds a GRU over a sequence.

    Args:
      b: the Builder.
      config: the layer's configuration.
      weights: arrays, which become constants.
      state: the initial state, of Tensors [N, out_feats].
      xs: int16, [N, steps, in_feats].
      update: see `gru_step`.
      activation: see `gru_step`.

    Returns:
      The last state, of Tensors, and the outputs, int16 [N, steps, out_feats].

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax.hifi import custom, layers
      >>> config = layers.GRUConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 6 + [(4,)] * 3
      >>> weights = layers.GRUWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> b = tosajax.Builder()
      >>> start = layers.GRUState(b.input("h", tosajax.DType.INT16, (1, 4)))
      >>> xs = b.input("xs", tosajax.DType.INT16, (1, 3, 4))
      >>> state, ys = custom.gru(b, config, weights, start, xs)
      >>> b.graph([state.prev_h, ys])
      Graph('main', (h: INT16[1,4], xs: INT16[1,3,4])
          -> (custom_11_0: INT16[1,4], custom_11_1: INT16[1,3,4]), 10 nodes)
    """
    attributes = {**_recurrent(config, activation), "update": update}
    last, ys = _scan(b, "gru", attributes, weights, state, xs, config.out_feats)
    return GRUState(*last), ys


def lstm(
    b: Builder,
    config: LSTMConfig,
    weights: LSTMWeights,
    state: LSTMState,
    xs: Tensor,
    *,
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[LSTMState, Tensor]:
    """Adds an LSTM over a sequence.

    Args:
      b: the Builder.
      config: the layer's configuration.
      weights: arrays, which become constants.
      state: the initial state, of Tensors [N, out_feats].
      xs: int16, [N, steps, in_feats].
      activation: see `lstm_step`.

    Returns:
      The last state, of Tensors, and the outputs, int16 [N, steps, out_feats].

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax.hifi import custom, layers
      >>> config = layers.LSTMConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 8 + [(4,)] * 4
      >>> weights = layers.LSTMWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> b = tosajax.Builder()
      >>> h = b.input("h", tosajax.DType.INT16, (1, 4))
      >>> c = b.input("c", tosajax.DType.INT32, (1, 4))
      >>> xs = b.input("xs", tosajax.DType.INT16, (1, 3, 4))
      >>> state, ys = custom.lstm(b, config, weights, layers.LSTMState(h, c), xs)
      >>> b.graph([*state, ys])
      Graph('main', (h: INT16[1,4], c: INT32[1,4], xs: INT16[1,3,4])
          -> (custom_15_0: INT16[1,4], custom_15_1: INT32[1,4], custom_15_2: INT16[1,3,4]),
          13 nodes)
    """
    attributes = _recurrent(config, activation)
    last, ys = _scan(b, "lstm", attributes, weights, state, xs, config.out_feats)
    return LSTMState(*last), ys


def cnn(b: Builder, config: CNNConfig, weights: CNNWeights, x: Tensor) -> Tensor:
    """Adds a CNN layer.

    Args:
      b: the Builder.
      config: the layer's configuration.
      weights: arrays, which become constants.
      x: [N, ...], the images; see `cnn_apply`.

    Returns:
      [N, ...], the results; see `cnn_apply`.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax.hifi import custom, layers
      >>> config = layers.conv2d_std_config(
      ...     input_size=(5, 5, 4), kernel_size=(3, 3), output_size=(3, 3), output_channels=4
      ... )
      >>> weights = layers.CNNWeights(np.ones((4, 3, 3, 4), np.int8), np.zeros(4, np.int16))
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT16, (1, 5, 5, 4))
      >>> b.graph([custom.cnn(b, config, weights, x)])
      Graph('main', (x: INT16[1,5,5,4]) -> (custom_3: INT16[1,3,3,4]), 3 nodes)
    """
    assert x.shape is not None
    values = [np.asarray(w) for w in weights if w is not None]
    image = x.dtype.struct(x.shape[1:])
    out = jax.eval_shape(functools.partial(cnn_apply, config, CNNWeights(*values)), image)
    shape = x.shape[0], *out.shape
    attributes = {"config": _encode_cnn(config)}
    (y,) = _node(b, "cnn", attributes, [x], values, [shape], [x.dtype])
    return y


def graph_of(op: str, call: Call, operands: Sequence[Any]) -> Graph:
    """Makes the graph of a recorded call of a layer: a CUSTOM operator with reshapes around it.

    Args:
      op: the recorded name in the jaxpr equation, such as "hifi.layers.gru_scan".
      call: the recorded call of the equation.
      operands: the equation's operands: a `jax.ShapeDtypeStruct` for each input of the graph, an
        array for each constant.

    Returns:
      A graph whose outputs are the results of the equation.

    Raises:
      UnsupportedError: weights are inputs, or differ between examples of a batch.
    """
    results = jax.eval_shape(call, *operands)
    b = Builder()
    places = call.arguments(range(len(operands)))
    data = [i for key in _DATA for i in jax.tree.leaves(places.get(key))]
    sizes = _batch(call, operands)
    held: list[Any] = list(operands)
    for i, x in enumerate(operands):
        differs = [axes[i] for axes in call.batches or ()]
        if i in data:
            held[i] = _examples(b, f"input_{i}", x, differs, sizes)
        elif any(differs) or isinstance(x, jax.ShapeDtypeStruct):
            wanted = "constants that all examples share"
            raise UnsupportedError(f"{op}: weights or coefficients are computed, expected {wanted}")
    outputs = _layer(b, op.rpartition(".")[2], call.arguments(held))
    pairs = zip(outputs, results, strict=True)
    return b.graph([_reshape(b, output, result.shape) for output, result in pairs])


# The arguments of layers that have a batch axis.
_DATA = ("state", "xs", "x")


def _layer(b: Builder, name: str, attributes: dict[str, Any]) -> Sequence[Tensor]:
    """Adds a layer, given Tensors [N, ...]; returns its results."""
    if name == "cnn_apply":
        return [cnn(b, **attributes)]
    if name.endswith("step"):
        x = attributes.pop("x")
        attributes["xs"] = _reshape(b, x, (x.shape[0], 1, *x.shape[1:]))
    layer: Callable[..., Any] = gru if name.startswith("gru") else lstm
    state, ys = layer(b, **attributes)
    return *state, ys


def _batch(call: Call, operands: Sequence[Any]) -> tuple[int, ...]:
    """The batch size of each `vmap` around a call."""
    batches = call.batches or ()
    sizes: list[int] = []
    for depth, differs in enumerate(batches):
        i = differs.index(True)
        sizes.append(operands[i].shape[sum(axes[i] for axes in batches[:depth])])
    return tuple(sizes)


def _examples(
    b: Builder, name: str, x: Any, differs: Sequence[bool], sizes: tuple[int, ...]
) -> Tensor:
    """Converts an operand to [N, ...]; it has a batch axis for each true value of `differs`."""
    dtype = _DTYPES[np.dtype(x.dtype)]
    is_input = isinstance(x, jax.ShapeDtypeStruct)
    tensor = b.input(name, dtype, x.shape) if is_input else b.const(np.asarray(x), dtype)
    own = x.shape[sum(differs) :]
    repeats = [1 if has else n for has, n in zip(differs, sizes, strict=True)]
    if math.prod(repeats) > 1:
        front = [n if has else 1 for has, n in zip(differs, sizes, strict=True)]
        tensor = _reshape(b, tensor, (*front, *own))
        tensor = b.op("TILE", tensor, b.const_shape([*repeats, *(1 for _ in own)]))
    return _reshape(b, tensor, (math.prod(sizes), *own))


def _reshape(b: Builder, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else b.op("RESHAPE", x, b.const_shape(shape))


def _scan(
    b: Builder,
    name: str,
    attributes: dict[str, Any],
    weights: Any,
    state: Any,
    xs: Tensor,
    outputs: int,
) -> tuple[Sequence[Tensor], Tensor]:
    assert xs.shape is not None
    batch, steps, _ = xs.shape
    shapes = [(batch, outputs)] * len(state) + [(batch, steps, outputs)]
    dtypes = [*(tensor.dtype for tensor in state), DType.INT16]
    *last, ys = _node(b, name, attributes, [xs, *state], list(weights), shapes, dtypes)
    return last, ys


def _node(
    b: Builder,
    name: str,
    attributes: dict[str, Any],
    inputs: Sequence[Tensor],
    weights: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[DType],
) -> tuple[Tensor, ...]:
    constants = [b.const(w, _DTYPES[np.asarray(w).dtype]) for w in weights]
    return b.ops(
        "CUSTOM",
        *inputs,
        *constants,
        shapes=shapes,
        dtypes=dtypes,
        operator_name=name,
        domain_name=DOMAIN,
        implementation_attrs=json.dumps(attributes),
    )


# Configurations as JSON.


def _recurrent(
    config: GRUConfig | LSTMConfig, activation: str | ActivationCoefficients
) -> dict[str, Any]:
    if isinstance(activation, ActivationCoefficients):
        numbers = {k: np.asarray(v).tolist() for k, v in activation._asdict().items()}
        return {"config": dataclasses.asdict(config), "activation": numbers}
    return {"config": dataclasses.asdict(config), "activation": activation}


def _encode_cnn(config: CNNConfig) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return dataclasses.asdict(value) if isinstance(value, Shape) else value

    return {f.name: plain(getattr(config, f.name)) for f in dataclasses.fields(config)}


def _decode_recurrent(kind: type, attributes: dict[str, Any]) -> dict[str, Any]:
    activation = attributes["activation"]
    if not isinstance(activation, str):
        activation = ActivationCoefficients(**activation)
    return {**attributes, "config": kind(**attributes["config"]), "activation": activation}


def _decode_cnn(attributes: dict[str, Any]) -> dict[str, Any]:
    def shape_of(value: dict[str, Any]) -> Shape:
        dim = value["dim"] and _DIMENSIONS[ShapeType(value["shape_type"])](*value["dim"])
        return Shape(**{**value, "dim": dim})

    fields = attributes["config"].items()
    values: Any = {k: shape_of(v) if isinstance(v, dict) else v for k, v in fields}
    return {"config": CNNConfig(**values)}


def _attributes(name: str, text: str | bytes, decode: Callable[[Any], Any]) -> dict[str, Any]:
    """Decodes the attributes of a node.

    Raises:
      ValueError: the text is damaged, or not written by this module.
    """
    try:
        return decode(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"CUSTOM {name}: implementation_attrs are {text!r}, expected the configuration"
        raise ValueError(f"{message} that tosajax.hifi.custom writes") from error


# The functions of the nodes.


def _run_gru(xs: jax.Array, h: jax.Array, *weights: jax.Array, implementation_attrs: Any) -> Any:
    decode = functools.partial(_decode_recurrent, GRUConfig)
    attributes = _attributes("gru", implementation_attrs, decode)
    config = attributes.pop("config")

    def run(h: jax.Array, xs: jax.Array) -> tuple[jax.Array, ...]:
        state, ys = gru_scan(config, GRUWeights(*weights), GRUState(h), xs, **attributes)
        return *state, ys

    return jax.vmap(run)(h, xs)


def _run_lstm(
    xs: jax.Array, h: jax.Array, c: jax.Array, *weights: jax.Array, implementation_attrs: Any
) -> Any:
    decode = functools.partial(_decode_recurrent, LSTMConfig)
    attributes = _attributes("lstm", implementation_attrs, decode)
    config = attributes.pop("config")

    def run(h: jax.Array, c: jax.Array, xs: jax.Array) -> tuple[jax.Array, ...]:
        state, ys = lstm_scan(config, LSTMWeights(*weights), LSTMState(h, c), xs, **attributes)
        return *state, ys

    return jax.vmap(run)(h, c, xs)


def _run_cnn(x: jax.Array, *weights: jax.Array, implementation_attrs: Any) -> Any:
    attributes = _attributes("cnn", implementation_attrs, _decode_cnn)
    return jax.vmap(functools.partial(cnn_apply, attributes["config"], CNNWeights(*weights)))(x)


OPERATORS: dict[tuple[str, str], Callable[..., Any]] = {
    (DOMAIN, "gru"): _run_gru,
    (DOMAIN, "lstm"): _run_lstm,
    (DOMAIN, "cnn"): _run_cnn,
}
"""For the `custom_ops` of `tosajax.compile` and `tosajax.lower`."""
