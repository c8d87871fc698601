"""The test bench of matrix times vector (guide 5.3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tosajax.hifi.bench import _reference
from tosajax.hifi.bench._files import Array, Frame
from tosajax.hifi.bench._job import (
    BIAS_LIMIT,
    BIASES,
    NAMES,
    TYPES,
    Job,
    call,
    check_name,
    check_precision,
    file_options,
    kernel_job,
)
from tosajax.hifi.bench._options import (
    FRAMES,
    VERIFY,
    WRITE_FILE,
    Option,
    check,
    flag,
    size,
    word,
)
from tosajax.hifi.bench._verify import Tolerance

# Elements that membank_padding adds to each row.
_PADDING = 16
_ZERO_BIASES = ("mat1_zero_bias", "mat2_zero_bias", "vec1_zero_bias", "vec2_zero_bias")
# Bias precisions that only functions with an activation know, by that of inputs.
_WIDE_BIAS = {16: 64, 8: 32}

ABOUT = """Matrix times vector, and its variants.

A file of inputs holds mat1, vec1, mat2, vec2 and bias, for each frame, without gaps in the
matrices; mat1, vec1 and bias with batch, with fc or by cols2 0. With batch there are vec_count
vectors, and as many outputs. relu stands for relu_std, which has no threshold; like softmax it
follows a function without activation. The library's own program has 0 for both shifts, not the
guide's defaults. Quantized functions take the options from mat1_zero_bias on, which the guide does
not have."""

OPTIONS = (
    size("rows", 32, "rows of the matrices"),
    size("cols1", 32, "columns of mat1"),
    size("cols2", 32, "columns of mat2; 0 for no second product", least=0),
    size("row_stride1", 32, "elements from one row of mat1 to the next, in memory"),
    size("row_stride2", 32, "the same of mat2"),
    size("vec_count", 1, "how many vectors there are, with batch"),
    Option("acc_shift", -7, "bits to the left, of the sum"),
    Option("bias_shift", 7, "bits to the left, of the bias"),
    Option("mat_precision", 16, "of the matrices", choices=(8, 16, -1, -3, -5)),
    Option("inp_precision", 16, "of the vectors", choices=(8, 16, -1, -3, -4)),
    Option("out_precision", 16, "of the output", choices=(8, 16, 32, 64, -1, -3, -4)),
    Option("bias_precision", 16, "of the bias", choices=(8, 16, 32, 64, -1)),
    flag("membank_padding", 1, f"1 for {_PADDING} more elements to each row in memory"),
    FRAMES,
    word("activation", "bypass", "of the output", ("bypass", "sigmoid", "tanh", "relu", "softmax")),
    WRITE_FILE,
    *file_options("inp"),
    VERIFY,
    flag("batch", 0, "1 for the functions of many vectors"),
    flag("fc", 0, "1 for the fully connected functions"),
    *(Option(name, -127, "of asym8u; vectors of asym8s, too") for name in _ZERO_BIASES),
    Option("out_multiplier", 2**30, "of quantized outputs"),
    Option("out_shift", -8, "of quantized outputs"),
    Option("out_zero_bias", 127, "of quantized outputs"),
)


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    kind, name, then = _functions(options)
    arrays = _arrays(options, kind)
    batch = (options.vec_count,) if kind == "batch" else ()
    output = Array("out", TYPES[options.out_precision], (*batch, options.rows))

    def run(frame: Frame) -> np.ndarray:
        out = np.zeros(output.shape, output.dtype)
        _run(name, kind, options, frame, out)
        if then is None:
            return out
        after = np.zeros_like(out)
        call(then, {"p_out": after, "p_vec": out, "vec_length": out.size})
        return after

    def expected(frame: Frame) -> Any:
        return _expected(options, frame, output.dtype)

    is_exact = options.activation in ("bypass", "relu")
    return kernel_job(
        name if then is None else f"{name}, {then}",
        options,
        {"inp": arrays},
        output,
        run,
        expected,
        Tolerance(0 if is_exact else 1, terms=options.cols1 + options.cols2),
        room=options.rows * (options.row_stride1 + options.row_stride2),
    )


def _functions(options: SimpleNamespace) -> tuple[str, str, str | None]:
    """The kind of function, its name, and that of the activation that follows it."""
    check(not (options.batch and options.fc), "-batch is 1, expected 0 with -fc 1")
    kind = "batch" if options.batch else "fc" if options.fc else "dual"
    activation = options.activation
    holds = activation == "bypass" or kind == "dual"
    check(holds, f"-activation is {activation}, expected bypass with -batch 1 or -fc 1")
    prefix = {"batch": "matXvec_batch", "fc": "fully_connected", "dual": "matXvec"}[kind]
    words = (options.mat_precision, options.inp_precision, options.out_precision)
    mat, inp, out = (NAMES[precision] for precision in words)
    precision = "f32" if kind == "fc" and mat == inp == out == "f32" else f"{mat}x{inp}_{out}"
    name = f"xa_nn_{prefix}_{precision}"
    then = None
    if activation in ("sigmoid", "tanh"):
        name = f"{name}_{activation}"
    elif activation != "bypass":
        holds = activation == "relu" or out in ("32", "f32")
        check(holds, f"-out_precision is {options.out_precision}, expected 32 or -1 for softmax")
        then = f"xa_nn_vec_{activation.replace('relu', 'relu_std')}_{out}_{out}"
        check_name(then, "-activation and -out_precision")
    check_name(name, "-mat_precision, -inp_precision, -out_precision and -activation")
    return kind, name, then


def _arrays(options: SimpleNamespace, kind: str) -> list[Array]:
    """The arrays of a file."""
    biases = [BIASES[options.inp_precision]]
    if options.activation in ("sigmoid", "tanh") and options.inp_precision in _WIDE_BIAS:
        biases.append(_WIDE_BIAS[options.inp_precision])
    check_precision(options, "bias_precision", *biases)
    mat, vec = TYPES[options.mat_precision], TYPES[options.inp_precision]
    rows, cols1, cols2 = options.rows, options.cols1, options.cols2
    batch = (options.vec_count,) if kind == "batch" else ()
    arrays = [Array("mat1", mat, (rows, cols1)), Array("vec1", vec, (*batch, cols1))]
    if kind == "dual" and cols2:
        arrays += [Array("mat2", mat, (rows, cols2)), Array("vec2", vec, (cols2,))]
    for i in (1, 2) if len(arrays) == 4 else (1,):
        cols, stride = getattr(options, f"cols{i}"), getattr(options, f"row_stride{i}")
        wanted = f"expected at least cols{i}, {cols}"
        check(stride >= cols, f"-row_stride{i} is {stride}, {wanted}")
    limit = BIAS_LIMIT if options.inp_precision in (-3, -4) else None
    return [*arrays, Array("bias", TYPES[options.bias_precision], (rows,), limit)]


def _run(name: str, kind: str, options: SimpleNamespace, frame: Frame, out: np.ndarray) -> None:
    """Calls a function with the arrays of a frame."""
    padding = _PADDING * options.membank_padding
    stride1, stride2 = options.row_stride1 + padding, options.row_stride2 + padding
    # By the names of all functions, each of which takes those that it knows.
    values = {
        **vars(options),
        "p_out": out,
        "p_mat1": _with_stride(frame["mat1"], stride1),
        "p_vec1": frame["vec1"],
        "p_mat2": None,
        "p_vec2": None,
        "p_bias": frame["bias"],
        "row_stride1": stride1,
        "row_stride2": stride2,
        "p_scratch": np.zeros(options.rows, np.int32),
        "p_weight": frame["mat1"],
        "p_inp": frame["vec1"],
        "weight_depth": options.cols1,
        "out_depth": options.rows,
        "input_zero_bias": options.vec1_zero_bias,
        "weight_zero_bias": options.mat1_zero_bias,
    }
    if "mat2" in frame:
        values |= {"p_mat2": _with_stride(frame["mat2"], stride2), "p_vec2": frame["vec2"]}
    if kind == "batch":
        # Pointers are aligned to 8 bytes, which rows of an array need not be.
        vectors = [vector.copy() for vector in frame["vec1"]]
        rows = [np.zeros_like(row) for row in out]
        values |= {"p_out": rows, "p_vec1": vectors}
    renamed = {"input_zero_bias": "vec1_zero_bias", "weight_zero_bias": "mat1_zero_bias"}
    call(name, values, **renamed, weight_depth="cols1", out_depth="rows")
    if kind == "batch":
        out[...] = values["p_out"]


def _expected(options: SimpleNamespace, frame: Frame, out: type) -> Any:
    is_quantized = options.inp_precision in (-3, -4)
    # Floats have no zero biases, weights of sym8s have 0.
    of_vec, of_mat = is_quantized, options.mat_precision == -3
    sums: Any = 0
    for i in (1, 2):
        if f"mat{i}" in frame:
            mat_bias = getattr(options, f"mat{i}_zero_bias") if of_mat else 0
            vec_bias = getattr(options, f"vec{i}_zero_bias") if of_vec else 0
            sums = sums + _reference.dot(frame[f"mat{i}"], frame[f"vec{i}"], mat_bias, vec_bias)
    is_fused = options.activation in ("sigmoid", "tanh")
    wide = np.int32 if is_fused and out is not np.float32 else out
    names = _reference.SCALE if is_quantized else _reference.SHIFTS
    numbers = {name: getattr(options, name) for name in names}
    total = _reference.finish(sums, frame["bias"], wide, numbers)
    match options.activation:
        case "bypass":
            return total
        case "relu":
            return _reference.relu(total, wide)
    return _reference.activation(options.activation, total, wide, out)


def _with_stride(matrix: np.ndarray, stride: int) -> np.ndarray:
    """A matrix as it lies in memory."""
    return np.pad(matrix, [(0, 0), (0, stride - matrix.shape[1])])
