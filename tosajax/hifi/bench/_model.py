"""What the test benches of networks share: they recognize a word from a spectrogram."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tosajax.hifi.bench import _reference
from tosajax.hifi.bench._files import Array, Frame
from tosajax.hifi.bench._job import Arrays, Input, Inputs, Job, Output, call
from tosajax.hifi.bench._options import Option, path, size, word
from tosajax.hifi.bench._verify import Tolerance
from tosajax.hifi.bench._window import Axes, Axis
from tosajax.hifi.bench.conv import in_memory

# Of the TensorFlow tutorial "Simple Audio Recognition": what networks tell apart, and what of.
_LABELS = {
    "Yes_No": ("silence", "unknown", "yes", "no"),
    "Ten_Word": (
        *("silence", "unknown", "yes", "no", "up", "down", "left", "right", "on", "off", "stop"),
        "go",
    ),
}
_SPECTROGRAM = (98, 40)

FILES_ABOUT = f"""The network is that of the TensorFlow tutorial "Simple Audio Recognition", whose
trained weights are not part of tosajax. A file of weights holds kernel and bias of each
convolution, [out_channels, height, width, channels], and those of the fully connected layer,
[labels, inputs]; without it weights are random, and the words mean nothing. A file of inputs holds
a spectrogram of {_SPECTROGRAM[0]} x {_SPECTROGRAM[1]} for each frame. All elements are float32."""

OPTIONS = (
    path("read_inp_file_name", "the file of spectrograms, instead of random ones"),
    word("model", "Yes_No", "the words", tuple(_LABELS)),
    Option("precision", -1, "-1 for float32", choices=(-1,)),
    size("frames", 1, "how many spectrograms there are"),
    path("read_weights_file_name", "the file of weights; the guide does not have this option"),
)


class Convolution(NamedTuple):
    """A convolution, which ReLU follows; an image is padded so that strides alone make it smaller.

    Args:
      kernel: height and width.
      stride: of both.
      channels: of the output.
    """

    kernel: tuple[int, int]
    stride: int
    channels: int


def job(name: str, convolutions: Sequence[Convolution], options: SimpleNamespace) -> Job:
    """What to run for some options.

    Args:
      name: of the network.
      convolutions: of all; between two, the maximum of windows of 2 x 2 halves the image. A fully
        connected layer and softmax come last.
      options: the values of OPTIONS.
    """
    labels = _LABELS[options.model]
    weights = list(_weights(convolutions, len(labels)))

    def results(functions: Any, inputs: Inputs) -> list[list[Any]]:
        frames, (given,) = inputs
        return [[_scores(functions, convolutions, given, x["spectrogram"]) for x in frames]]

    return Job(
        name,
        [
            Input(
                [Array("spectrogram", np.float32, _SPECTROGRAM)],
                options.frames,
                options.read_inp_file_name,
            ),
            Input(weights, 1, options.read_weights_file_name),
        ],
        [Output(Array("scores", np.float32, (len(labels),)), options.frames)],
        lambda inputs: results(_Library, inputs),
        lambda inputs: results(_NumPy, inputs),
        Tolerance(terms=sum(math.prod(array.shape[1:]) for array in weights)),
        text=lambda outputs: _told(labels, outputs[0]),
    )


def _weights(convolutions: Sequence[Convolution], labels: int) -> Iterator[Array]:
    """The arrays of a file of weights; random ones neither grow nor vanish from layer to layer."""
    size, channels = _SPECTROGRAM, 1
    for i, layer in enumerate(convolutions):
        inputs = math.prod(layer.kernel) * channels
        yield _weight(f"kernel{i}", (layer.channels, *layer.kernel, channels), inputs)
        yield _weight(f"bias{i}", (layer.channels,), inputs)
        size = tuple(axis.outputs for axis in _axes(size, layer))
        if i + 1 < len(convolutions):
            size = tuple(length // 2 for length in size)
        channels = layer.channels
    inputs = math.prod(size) * channels
    yield _weight("weight", (labels, inputs), inputs)
    yield _weight("bias", (labels,), inputs)


def _weight(name: str, shape: tuple[int, ...], inputs: int) -> Array:
    return Array(name, np.float32, shape, limit=math.sqrt(6 / inputs))


def _scores(functions: Any, convolutions: Sequence[Convolution], given: Frame, x: Any) -> Any:
    """How likely each label is, computed by some functions."""
    x = x[..., None]
    for i, layer in enumerate(convolutions):
        if i:
            y, z = x.shape[:2]
            x = functions.maxpool(x, (Axis(y, 2, 2, 0, y // 2), Axis(z, 2, 2, 0, z // 2)))
        axes = _axes(x.shape[:2], layer)
        x = functions.relu(functions.conv2d(x, given[f"kernel{i}"], given[f"bias{i}"], axes))
    return functions.softmax(functions.dense(given["weight"], x.reshape(-1), given["bias"]))


def _axes(size: Sequence[int], layer: Convolution) -> Axes:
    def axis(length: int, kernel: int) -> Axis:
        count = -(-length // layer.stride)
        padding = max((count - 1) * layer.stride + kernel - length, 0)
        return Axis(length, kernel, layer.stride, padding // 2, count)

    y, x = map(axis, size, layer.kernel)
    return y, x


def _told(labels: Sequence[str], scores: Arrays) -> str:
    """The likeliest label of each frame."""
    best = [int(np.argmax(x)) for x in scores]
    rows = enumerate(zip(best, scores, strict=True))
    return "\n".join(f"frame {i}: {labels[at]} ({x[at]:.2f})" for i, (at, x) in rows)


class _Library:
    """The layers by functions of the library."""

    @staticmethod
    def conv2d(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray, axes: Axes) -> np.ndarray:
        out = np.zeros((axes[0].outputs, axes[1].outputs, bias.size), np.float32)
        operands = {"p_ker": in_memory(kernel, 2), "p_bias": bias, "out_channels": bias.size}
        call("xa_nn_conv2d_std_f32", _image(x, out, axes) | operands)
        return out

    @staticmethod
    def maxpool(x: np.ndarray, axes: Axes) -> np.ndarray:
        out = np.zeros((axes[0].outputs, axes[1].outputs, x.shape[2]), np.float32)
        call("xa_nn_maxpool_f32", _image(x, out, axes))
        return out

    @staticmethod
    def relu(x: np.ndarray) -> np.ndarray:
        return _vector("xa_nn_vec_relu_std_f32_f32", x)

    @staticmethod
    def softmax(x: np.ndarray) -> np.ndarray:
        return _vector("xa_nn_vec_softmax_f32_f32", x)

    @staticmethod
    def dense(weight: np.ndarray, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        out = np.zeros(bias.size, np.float32)
        pointers = {"p_out": out, "p_weight": weight, "p_inp": x, "p_bias": bias}
        lengths = {"weight_depth": x.size, "out_depth": bias.size}
        call("xa_nn_fully_connected_f32", pointers | lengths)
        return out


class _NumPy:
    """The layers in float64."""

    maxpool = staticmethod(_reference.maxpool)

    @staticmethod
    def conv2d(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray, axes: Axes) -> np.ndarray:
        sums = _reference.conv2d(_reference.wide(x), _reference.wide(kernel), axes)
        return sums + bias

    @staticmethod
    def relu(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    @staticmethod
    def softmax(x: np.ndarray) -> np.ndarray:
        return _reference.activation("softmax", x, np.float32, np.float32)

    @staticmethod
    def dense(weight: np.ndarray, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return _reference.dot(weight, x) + bias


def _image(x: np.ndarray, out: np.ndarray, axes: Axes) -> dict[str, Any]:
    """The arguments of a function of an image, channels last."""
    values: dict[str, Any] = dict.fromkeys(("inp_data_format", "out_data_format"), 0)
    for name, letter, axis in zip(("height", "width"), "yx", axes, strict=True):
        values |= {
            f"input_{name}": axis.length,
            f"kernel_{name}": axis.kernel,
            f"{letter}_stride": axis.stride,
            f"{letter}_padding": axis.padding,
            f"out_{name}": axis.outputs,
        }
    pointers = {"p_out": out, "p_inp": x, "p_scratch": np.zeros(8, np.int8)}
    return values | pointers | {"input_channels": x.shape[2]}


def _vector(name: str, x: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    call(name, {"p_out": out, "p_vec": x, "vec_length": x.size})
    return out
