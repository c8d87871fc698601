"""The test bench of matrix times vector (guide 5.3)."""

from __future__ import annotations

from types import SimpleNamespace

from tosajax.hifi.bench._job import Bench, Job
from tosajax.hifi.bench._kernel import (
    NAMES,
    Step,
    check_name,
    check_precision,
    file_options,
    kernel_job,
    library_step,
    then,
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

# The elements that membank_padding adds to each row.
_PADDING = 16
_ZERO_BIASES = ("mat1_zero_bias", "mat2_zero_bias", "vec1_zero_bias", "vec2_zero_bias")
# The names of options, by argument name in C, where they differ.
_RENAMED = {
    "input_zero_bias": "vec1_zero_bias",
    "weight_zero_bias": "mat1_zero_bias",
    "weight_depth": "cols1",
    "out_depth": "rows",
}
# The additional bias precision of functions with an activation, by input precision.
_WIDE_BIAS = {16: 64, 8: 32}

_ABOUT = """Matrix times vector, and its variants.

A file of inputs holds mat1, vec1, mat2, vec2 and bias, for each frame, without gaps in the
matrices; mat1, vec1 and bias with batch, with fc or by cols2 0. With batch there are vec_count
vectors and outputs. relu stands for relu_std, which has no threshold; like softmax it follows a
function without activation. The library's own program has 0 for both shifts, not the guide's
defaults. Quantized functions take the options from mat1_zero_bias on, which the guide does not
have."""

_OPTIONS = (
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
    *(Option(name, -127, "of asym8u; also of vectors of asym8s") for name in _ZERO_BIASES),
    Option("out_multiplier", 2**30, "of quantized outputs"),
    Option("out_shift", -8, "of quantized outputs"),
    Option("out_zero_bias", 127, "of quantized outputs"),
)


def _job(options: SimpleNamespace) -> Job:
    step = _product(options)
    activation, out = options.activation, NAMES[options.out_precision]
    if activation in ("relu", "softmax"):
        holds = activation == "relu" or out in ("32", "f32")
        check(holds, f"-out_precision is {options.out_precision}, expected 32 or -1 for softmax")
        name = f"xa_nn_vec_{activation.replace('relu', 'relu_std')}_{out}_{out}"
        check_name(name, "-activation and -out_precision")
        step = then(step, library_step(name, {"vec_length": options.rows}), "x")
    return kernel_job(options, step, terms=options.cols1 + options.cols2)


def _product(options: SimpleNamespace) -> Step:
    """Makes the step of the matrix-vector function, which may include an activation."""
    check(not (options.batch and options.fc), "-batch is 1, expected 0 with -fc 1")
    is_dual = not (options.batch or options.fc)
    activation = options.activation
    holds = activation == "bypass" or is_dual
    check(holds, f"-activation is {activation}, expected bypass with -batch 1 or -fc 1")
    name = _name_of(options)
    check_name(name, "-mat_precision, -inp_precision, -out_precision and -activation")
    for i in (1, 2) if is_dual and options.cols2 else (1,):
        columns, stride = getattr(options, f"cols{i}"), getattr(options, f"row_stride{i}")
        wanted = f"expected at least cols{i}, {columns}"
        check(stride >= columns, f"-row_stride{i} is {stride}, {wanted}")
    padding = _PADDING * options.membank_padding
    strides = {key: getattr(options, key) + padding for key in ("row_stride1", "row_stride2")}
    renamed = {argument: getattr(options, option) for argument, option in _RENAMED.items()}
    null = () if options.cols2 else ("p_mat2", "p_vec2")
    step = library_step(name, {**vars(options), **renamed, **strides}, null=null, **_RENAMED)
    is_fused = activation in ("sigmoid", "tanh") and options.inp_precision in _WIDE_BIAS
    wide = [_WIDE_BIAS[options.inp_precision]] if is_fused else []
    if options.bias_precision not in wide:
        check_precision(options, "bias_precision", step.bias_precision, *wide)
    return step


def _name_of(options: SimpleNamespace) -> str:
    kind = "matXvec_batch" if options.batch else "fully_connected" if options.fc else "matXvec"
    words = (options.mat_precision, options.inp_precision, options.out_precision)
    mat, inp, out = (NAMES[precision] for precision in words)
    precision = "f32" if options.fc and mat == inp == out == "f32" else f"{mat}x{inp}_{out}"
    fused = f"_{options.activation}" if options.activation in ("sigmoid", "tanh") else ""
    return f"xa_nn_{kind}_{precision}{fused}"


BENCH = Bench(_ABOUT, _OPTIONS, _job)
