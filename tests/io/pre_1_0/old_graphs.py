"""Graphs before TOSA 1.0: a builder, a writer of files, and a legal graph of each operator.

`TYPES` has the types of 0.80: facts of its tables of supported data types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tosajax.dtypes import DType, pack
from tosajax.io import flatbuffer, json_form
from tosajax.io.pre_1_0 import schema
from tosajax.io.pre_1_0.model import OldGraph, OldNode, OldTensor
from tosajax.io.schema import IDENTIFIER

_PRODUCTS = (
    "INT8 INT8 INT32; INT8 INT4 INT32; INT16 INT8 INT48; FP16 FP16 FP16; FP16 FP16 FP32; "
    "BF16 BF16 FP32; FP32 FP32 FP32"
)
_FLOATS = "FP16; BF16; FP32"
_INTEGERS = "INT8; INT16; INT32"
_ARITHMETIC = "INT32; FP16; BF16; FP32"
_POOLED = "INT8; INT16; FP16; BF16; FP32"
_MOVED = f"{_INTEGERS}; {_FLOATS}"
_ALL = f"BOOL; {_MOVED}"
_COMPARED = "INT32 BOOL; FP16 BOOL; BF16 BOOL; FP32 BOOL"
_BY_TYPES = {
    "ARGMAX": "INT8 INT32; INT16 INT32; FP16 INT32; BF16 INT32; FP32 INT32",
    "AVG_POOL2D": "INT8 INT32; INT16 INT32; FP16 FP16; FP16 FP32; BF16 FP32; FP32 FP32",
    "CONV2D CONV3D DEPTHWISE_CONV2D TRANSPOSE_CONV2D FULLY_CONNECTED": _PRODUCTS,
    "FFT2D RFFT2D": "FP32",
    "MATMUL": "INT8 INT32; INT16 INT48; FP16 FP16; FP16 FP32; BF16 FP32; FP32 FP32",
    "MAX_POOL2D CLAMP": _POOLED,
    "ERF SIGMOID TANH POW CEIL EXP FLOOR LOG RECIPROCAL RSQRT REDUCE_PRODUCT": _FLOATS,
    "ADD SUB": f"{_ARITHMETIC}; SHAPE",
    "ARITHMETIC_RIGHT_SHIFT BITWISE_AND BITWISE_OR BITWISE_XOR BITWISE_NOT": _INTEGERS,
    "LOGICAL_LEFT_SHIFT LOGICAL_RIGHT_SHIFT": _INTEGERS,
    "INTDIV": "INT32; SHAPE",
    "LOGICAL_AND LOGICAL_OR LOGICAL_XOR LOGICAL_NOT REDUCE_ALL REDUCE_ANY": "BOOL",
    "MAXIMUM MINIMUM ABS REDUCE_SUM": _ARITHMETIC,
    "MUL": ("INT8 INT32; INT16 INT32; INT32 INT32; SHAPE SHAPE; FP16 FP16; BF16 BF16; FP32 FP32"),
    "TABLE": "INT8 INT8; INT16 INT32",
    "CLZ": "INT32",
    "NEGATE": _MOVED,
    "SELECT PAD RESHAPE SLICE TILE TRANSPOSE IDENTITY DIM": _ALL,
    "EQUAL GREATER GREATER_EQUAL": _COMPARED,
    "REDUCE_MAX REDUCE_MIN GATHER SCATTER": _MOVED,
    "CONCAT REVERSE": f"{_ALL}; SHAPE",
    "RESIZE": ("INT8 INT32; INT8 INT8; INT16 INT48; INT16 INT16; FP16 FP16; BF16 BF16; FP32 FP32"),
    "CAST": (
        "BOOL INT8; BOOL INT16; BOOL INT32; INT8 BOOL; INT8 INT16; INT8 INT32; INT8 FP16; "
        "INT8 BF16; INT8 FP32; INT16 BOOL; INT16 INT8; INT16 INT32; INT16 FP16; INT16 BF16; "
        "INT16 FP32; INT32 BOOL; INT32 INT8; INT32 INT16; INT32 FP16; INT32 BF16; INT32 FP32; "
        "BF16 INT8; BF16 INT16; BF16 INT32; BF16 FP32; FP16 INT8; FP16 INT16; FP16 INT32; "
        "FP16 FP32; FP32 INT8; FP32 INT16; FP32 INT32; FP32 BF16; FP32 FP16"
    ),
    "RESCALE": (
        "INT8 INT8; INT8 INT16; INT8 INT32; INT16 INT8; INT16 INT16; INT16 INT32; INT32 INT8; "
        "INT32 INT16; INT32 INT32; INT48 INT8; INT48 INT16; INT48 INT32"
    ),
    "CONST": "BOOL; INT4; INT8; INT16; INT32; INT48; SHAPE; FP16; BF16; FP32",
    "CUSTOM COND_IF WHILE_LOOP": "INT8; FP32",
    "VARIABLE VARIABLE_WRITE VARIABLE_READ": "INT8; FP16; FP32",
}
TYPES = {
    op: [tuple(row.split()) for row in rows.split("; ")]
    for ops, rows in _BY_TYPES.items()
    for op in ops.split()
}
CASES = [(op, row) for op, rows in TYPES.items() for row in rows]
CASE_IDS = [f"{op}-{'-'.join(row)}" for op, row in CASES]
# The operators that files of 0.60 do not have, and those that no file has.
LATER = ("ERF", "DIM")
NOT_IN_FILES = ("VARIABLE", "VARIABLE_WRITE", "VARIABLE_READ")

_UNSIGNED = {"UINT8": np.uint8, "UINT16": np.uint16}
_SIGNLESS = {"UINT8": "INT8", "UINT16": "INT16"}


def storage(dtype: str) -> np.dtype:
    """The NumPy type of the values of an old tensor."""
    return np.dtype(_UNSIGNED.get(dtype) or DType[dtype].storage)


class Old:
    """Builds a graph before 1.0."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.inputs: list[str] = []
        self.tensors: dict[str, OldTensor] = {}
        self.nodes: list[OldNode] = []
        self.subgraphs: dict[str, OldGraph] = {}

    def input(self, dtype: str, shape: Sequence[int] | None, name: str = "") -> str:
        name = self.tensor(dtype, shape, name or f"x{len(self.inputs)}")
        self.inputs.append(name)
        return name

    def const(self, dtype: str, values: Any, name: str = "") -> str:
        array = np.asarray(values).astype(storage(dtype))
        name = self.tensor(dtype, array.shape, name or f"c{len(self.tensors)}", array)
        self.nodes.append(OldNode("CONST", (), (name,)))
        return name

    def op(
        self,
        op: str,
        inputs: Sequence[str],
        dtype: str,
        shape: Sequence[int] | None,
        name: str = "",
        **attributes: Any,
    ) -> str:
        (output,) = self.ops(op, inputs, [(dtype, shape)], [name], **attributes)
        return output

    def ops(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[tuple[str, Sequence[int] | None]],
        names: Sequence[str] = (),
        **attributes: Any,
    ) -> list[str]:
        names = [
            self.tensor(*output, name or f"y{len(self.tensors)}")
            for output, name in zip(outputs, names or [""] * len(outputs), strict=True)
        ]
        self.nodes.append(OldNode(op, tuple(inputs), tuple(names), attributes))
        return list(names)

    def tensor(
        self, dtype: str, shape: Sequence[int] | None, name: str, values: np.ndarray | None = None
    ) -> str:
        assert name not in self.tensors
        dims = None if shape is None else tuple(shape)
        self.tensors[name] = OldTensor(name, dtype, dims, values)
        return name

    def graph(self, *outputs: str) -> OldGraph:
        return OldGraph(
            tuple(self.inputs), outputs, self.tensors, tuple(self.nodes), self.subgraphs, self.name
        )


# Files.


def nested(graph: OldGraph, version: tuple[int, int] = (0, 80), **numbers: Any) -> dict[str, Any]:
    """The nested form of the file of a graph and its subgraphs, each in a region."""
    layout = schema.LAYOUTS[version]
    stated = {"_major": version[0], "_minor": version[1], "_patch": 0, "_draft": False}
    regions = [
        {"name": name, "blocks": [{"name": name, **_block(part, layout)}]}
        for name, part in {graph.name: graph, **graph.subgraphs}.items()
    ]
    return {"version": stated | numbers, "regions": regions}


def to_flatbuffer(root: Mapping[str, Any], version: tuple[int, int] = (0, 80)) -> bytes:
    return flatbuffer.encode(root, schema.LAYOUTS[version].graph, IDENTIFIER)


def to_json(root: Mapping[str, Any], version: tuple[int, int] = (0, 80)) -> bytes:
    return json_form.encode(root, schema.LAYOUTS[version].graph).encode()


def _block(graph: OldGraph, layout: schema.Layout) -> dict[str, Any]:
    return {
        "operators": [_operator(node, layout) for node in graph.nodes],
        "tensors": [_tensor(tensor, layout) for tensor in graph.tensors.values()],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
    }


def _operator(node: OldNode, layout: schema.Layout) -> dict[str, Any]:
    table = schema.ATTRIBUTES.get(node.op)
    ends = {"inputs": list(node.inputs), "outputs": list(node.outputs)}
    number = 0 if table is None else layout.attribute_type.numbers.get(table.name, 0)
    fields = {"op": layout.op.numbers[node.op], "attribute_type": number, **ends}
    if number and table is not None:
        names = {name: old for old, name in schema.RENAMED.items()}
        known = layout.graph is schema.LAYOUTS[0, 60].graph
        fields["attribute"] = {
            names.get(name, name) if known else name: _attribute(name, value)
            for name, value in node.attributes.items()
        }
    return fields


def _attribute(name: str, value: Any) -> Any:
    if name == "mode":
        return schema.RESIZE_MODE.numbers[value]
    if name == "accum_dtype":
        return schema.DTYPE.numbers[value]
    if name in ("min_fp", "max_fp", "pad_const_fp"):
        return np.float32(value).tobytes()
    return list(value) if isinstance(value, tuple) else value


def _tensor(tensor: OldTensor, layout: schema.Layout) -> dict[str, Any]:
    dtype = DType[_SIGNLESS.get(tensor.dtype, tensor.dtype)]
    fields: dict[str, Any] = {"name": tensor.name, "type": layout.dtype.numbers[tensor.dtype]}
    fields["shape"] = list(tensor.shape or ())
    if tensor.shape is None:
        fields["is_unranked"] = True
    if tensor.values is not None:
        values = tensor.values
        if tensor.dtype in _UNSIGNED:
            values = values.view(dtype.storage)
        data = pack(values, dtype)
        fields["data"] = data + bytes(-len(data) % 8)  # as writers of the time did
    return fields


# Legal graphs.


def values_of(dtype: str, shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Values with the ends of the type among them; floats are small integers and halves."""
    generator = np.random.default_rng([seed, len(shape), *shape])
    count = int(np.prod(shape, dtype=int))
    if dtype == "BOOL":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype in ("FP16", "BF16", "FP32"):
        numbers = generator.integers(-8, 9, shape) / 2
        return numbers.astype(DType[dtype].storage)
    low, high = (0, np.iinfo(storage(dtype)).max) if dtype in _UNSIGNED else _limits(dtype)
    flat = generator.integers(low, high, count, endpoint=True)
    ends = [low, high, 0, low + 1, high - 1]
    flat[: len(ends)] = ends[:count]
    return flat.reshape(shape).astype(storage(dtype))


def _limits(dtype: str) -> tuple[int, int]:
    return DType[dtype].minimum, DType[dtype].maximum


def legal(op: str, row: Sequence[str]) -> OldGraph:
    """A small legal graph of an operator in a row of its types."""
    if row[-1] == "SHAPE":
        return _of_shapes(op)
    make: Callable[..., OldGraph] | None = globals().get(f"_{op.lower()}")
    if make is not None:
        return make(*row)
    if op in _ARITIES:
        return _elementwise(op, row)
    return _reduction(op, row)


_UNARY = (
    "ERF SIGMOID TANH ABS BITWISE_NOT CEIL CLZ EXP FLOOR LOG LOGICAL_NOT RECIPROCAL RSQRT IDENTITY "
    "CAST"
)
_BINARY = (
    "ADD SUB INTDIV BITWISE_AND BITWISE_OR BITWISE_XOR LOGICAL_AND LOGICAL_OR LOGICAL_XOR MAXIMUM "
    "MINIMUM POW EQUAL GREATER GREATER_EQUAL LOGICAL_LEFT_SHIFT LOGICAL_RIGHT_SHIFT "
    "ARITHMETIC_RIGHT_SHIFT MUL"
)
_ARITIES = {
    **dict.fromkeys(_UNARY.split(), 1),
    **dict.fromkeys(_BINARY.split(), 2),
}


def _elementwise(op: str, row: Sequence[str]) -> OldGraph:
    b = Old()
    shapes = [(2, 3), (1, 3)][: _ARITIES[op]]
    attributes: dict[str, Any] = {}
    if op == "ARITHMETIC_RIGHT_SHIFT":
        attributes["round"] = True
    if op == "MUL":
        attributes["shift"] = 5 if row[0] == "INT32" else 0
    return b.graph(b.op(op, [b.input(row[0], s) for s in shapes], row[-1], (2, 3), **attributes))


def _reduction(op: str, row: Sequence[str]) -> OldGraph:
    b = Old()
    x = b.input(row[0], (2, 3, 4))
    return b.graph(b.op(op, [x], row[0], (2, 1, 4), axis=1))


def _argmax(dtype: str, out: str) -> OldGraph:
    b = Old()
    return b.graph(b.op("ARGMAX", [b.input(dtype, (2, 5, 3))], out, (2, 3), axis=1))


def _pool(op: str, dtype: str, **attributes: Any) -> OldGraph:
    b = Old()
    x = b.input(dtype, (1, 5, 6, 2))
    window = {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 1, 0, 0)}
    return b.graph(b.op(op, [x], dtype, (1, 3, 3, 2), **window, **attributes))


def _avg_pool2d(dtype: str, acc: str) -> OldGraph:
    zero_points: dict[str, Any] = {"input_zp": -3, "output_zp": 7} if dtype == "INT8" else {}
    return _pool("AVG_POOL2D", dtype, **zero_points, accum_dtype=acc)


def _max_pool2d(dtype: str) -> OldGraph:
    return _pool("MAX_POOL2D", dtype)


def _zero_points(dtype: str, weight: str) -> dict[str, int]:
    found = {"input_zp": -128} if dtype == "INT8" else {}
    return found | ({"weight_zp": 127} if weight == "INT8" == dtype else {})


def _products(
    op: str,
    types: tuple[str, str, str],
    shapes: tuple[Sequence[int], Sequence[int], Sequence[int]],
    channels: int,
    **attributes: Any,
) -> OldGraph:
    dtype, weight_type, out = types
    b = Old()
    x = b.input(dtype, shapes[0])
    weight = b.const(weight_type, values_of(weight_type, shapes[1], 1), "weight")
    bias = b.const(out, np.arange(channels) * 3 - 2, "bias")
    zero_points = _zero_points(dtype, weight_type)
    return b.graph(b.op(op, [x, weight, bias], out, shapes[2], **zero_points, **attributes))


def _conv2d(*types: str) -> OldGraph:
    shapes = (1, 5, 4, 3), (2, 3, 2, 3), (1, 3, 4, 2)
    lists: dict[str, Any] = {"pad": (1, 1, 1, 0), "stride": (2, 1), "dilation": (1, 1)}
    return _products("CONV2D", types, shapes, 2, **lists)  # type: ignore[arg-type]


def _conv3d(*types: str) -> OldGraph:
    shapes = (1, 2, 3, 4, 2), (3, 2, 1, 2, 2), (1, 1, 3, 3, 3)
    lists = {"pad": (0, 0, 0, 0, 0, 1), "stride": (1, 1, 1), "dilation": (1, 1, 2)}
    return _products("CONV3D", types, shapes, 3, **lists)  # type: ignore[arg-type]


def _depthwise_conv2d(*types: str) -> OldGraph:
    shapes = (1, 4, 4, 2), (2, 2, 2, 3), (1, 3, 3, 6)
    lists = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    return _products("DEPTHWISE_CONV2D", types, shapes, 6, **lists)  # type: ignore[arg-type]


def _transpose_conv2d(*types: str) -> OldGraph:
    shapes = (1, 2, 3, 2), (3, 2, 3, 2), (1, 3, 6, 3)
    lists = {"out_pad": (0, -1, 0, -1), "stride": (2, 2), "output_shape": (1, 3, 6, 3)}
    return _products("TRANSPOSE_CONV2D", types, shapes, 3, **lists)  # type: ignore[arg-type]


def _fully_connected(*types: str) -> OldGraph:
    """One of INT48 goes to RESCALE, which is all that can read it."""
    shapes = (3, 5), (4, 5), (3, 4)
    graph = _products("FULLY_CONNECTED", types, shapes, 4)  # type: ignore[arg-type]
    if types[-1] != "INT48":
        return graph
    b = Old()
    b.inputs, b.tensors, b.nodes = list(graph.inputs), dict(graph.tensors), list(graph.nodes)
    scale: dict[str, Any] = {
        "multiplier": (3, 1, 16384, 9),
        "shift": (6, 2, 14, 4),
        "scale32": False,
    }
    y = b.op("RESCALE", graph.outputs, "INT32", (3, 4), per_channel=True, **scale)
    return b.graph(y)


def _matmul(dtype: str, out: str) -> OldGraph:
    b = Old()
    zero_points: dict[str, Any] = {"a_zp": -128, "b_zp": 127} if dtype == "INT8" else {}
    inputs = b.input(dtype, (2, 3, 4)), b.input(dtype, (2, 4, 2))
    return b.graph(b.op("MATMUL", inputs, out, (2, 3, 2), **zero_points))


def _fft2d(dtype: str) -> OldGraph:
    b = Old()
    inputs = [b.input(dtype, (1, 4, 8)) for _ in range(2)]
    outputs = [(dtype, (1, 4, 8))] * 2
    return b.graph(*b.ops("FFT2D", inputs, outputs, inverse=True))


def _rfft2d(dtype: str) -> OldGraph:
    b = Old()
    return b.graph(*b.ops("RFFT2D", [b.input(dtype, (1, 4, 8))], [(dtype, (1, 4, 5))] * 2))


def _clamp(dtype: str) -> OldGraph:
    b = Old()
    bounds = {"min_int": -5, "max_int": 100, "min_fp": -1.5, "max_fp": 2.25}
    return b.graph(b.op("CLAMP", [b.input(dtype, (3, 4))], dtype, (3, 4), **bounds))


def _table(dtype: str, out: str) -> OldGraph:
    b = Old()
    table = values_of("INT8", (256,)) if dtype == "INT8" else (np.arange(513) * 97) % 30000 - 15000
    attributes: dict[str, Any] = {"table": tuple(int(n) for n in table)}
    return b.graph(b.op("TABLE", [b.input(dtype, (3, 7))], out, (3, 7), **attributes))


def _negate(dtype: str) -> OldGraph:
    b = Old()
    zero_points: dict[str, Any] = {"input1_zp": 127, "output_zp": -128} if dtype == "INT8" else {}
    return b.graph(b.op("NEGATE", [b.input(dtype, (2, 3))], dtype, (2, 3), **zero_points))


def _select(dtype: str) -> OldGraph:
    b = Old()
    inputs = b.input("BOOL", (1, 3)), b.input(dtype, (2, 3)), b.input(dtype, (2, 1))
    return b.graph(b.op("SELECT", inputs, dtype, (2, 3)))


def _concat(dtype: str) -> OldGraph:
    b = Old()
    inputs = b.input(dtype, (2, 3)), b.input(dtype, (2, 1)), b.input(dtype, (2, 2))
    return b.graph(b.op("CONCAT", inputs, dtype, (2, 6), axis=1))


def _pad(dtype: str) -> OldGraph:
    b = Old()
    attributes = {"padding": (0, 1, 2, 0), "pad_const_int": 1, "pad_const_fp": 2.5}
    return b.graph(b.op("PAD", [b.input(dtype, (2, 3))], dtype, (3, 5), **attributes))


def _dim(dtype: str) -> OldGraph:
    """The sizes of a tensor, in the order in which RESHAPE takes them."""
    b = Old()
    x = b.input(dtype, (2, 3))
    sizes = [b.op("DIM", [x], "SHAPE", (), axis=axis) for axis in (1, 0)]
    shape = b.op("CONCAT", sizes, "SHAPE", (2,), axis=0)
    return b.graph(b.op("RESHAPE", [x, shape], dtype, (3, 2)))


def _reshape(dtype: str) -> OldGraph:
    b = Old()
    return b.graph(b.op("RESHAPE", [b.input(dtype, (2, 3))], dtype, (3, 1, 2), new_shape=(3, 1, 2)))


def _reverse(dtype: str) -> OldGraph:
    b = Old()
    return b.graph(b.op("REVERSE", [b.input(dtype, (2, 3))], dtype, (2, 3), axis=1))


def _slice(dtype: str) -> OldGraph:
    b = Old()
    x = b.input(dtype, (4, 5))
    return b.graph(b.op("SLICE", [x], dtype, (2, 3), start=(1, 2), size=(2, 3)))


def _tile(dtype: str) -> OldGraph:
    b = Old()
    return b.graph(b.op("TILE", [b.input(dtype, (2, 3))], dtype, (4, 3), multiples=(2, 1)))


def _transpose(dtype: str) -> OldGraph:
    b = Old()
    x = b.input(dtype, (2, 3, 4))
    return b.graph(b.op("TRANSPOSE", [x], dtype, (4, 2, 3), perms=(2, 0, 1)))


def _gather(dtype: str) -> OldGraph:
    b = Old()
    inputs = b.input(dtype, (2, 4, 3)), b.const("INT32", [[3, 0], [1, 2]])
    return b.graph(b.op("GATHER", inputs, dtype, (2, 2, 3)))


def _scatter(dtype: str) -> OldGraph:
    b = Old()
    indices = b.const("INT32", [[3, 0], [1, 2]])
    inputs = b.input(dtype, (2, 4, 3)), indices, b.input(dtype, (2, 2, 3))
    return b.graph(b.op("SCATTER", inputs, dtype, (2, 4, 3)))


def _resize(dtype: str, out: str) -> OldGraph:
    b = Old()
    nearest = dtype == out and dtype in ("INT8", "INT16")
    attributes = {"scale": (4, 2, 4, 2), "offset": (-1, -1), "border": (1, 1)}
    mode = "NEAREST" if nearest else "BILINEAR"
    x = b.input(dtype, (1, 3, 2, 2))
    return b.graph(b.op("RESIZE", [x], out, (1, 6, 4, 2), mode=mode, **attributes))


def _rescale(dtype: str, out: str) -> OldGraph:
    wide = dtype == "INT48"
    zero_points: dict[str, Any] = {"input_zp": 3} if dtype == "INT8" else {}
    zero_points |= {"output_zp": -7} if out == "INT8" else {}
    return rescale(
        dtype,
        out,
        multiplier=(1 << 14, 3, 32767) if wide else (1 << 30, 1500000000, 7),
        shift=(16, 40, 62) if wide else (31, 40, 62),
        scale32=not wide,
        double_round=not wide,
        per_channel=True,
        **zero_points,
    )


def rescale(dtype: str, out: str, shape: Sequence[int] = (4, 3), **attributes: Any) -> OldGraph:
    """A RESCALE; INT48 and unsigned inputs are inputs of the graph, too."""
    b = Old()
    return b.graph(b.op("RESCALE", [b.input(dtype, shape)], out, shape, **attributes))


def _const(dtype: str) -> OldGraph:
    """An INT4 goes to a convolution and an INT48 to RESCALE, as neither can be an output."""
    if dtype == "INT4":
        return _conv2d("INT8", "INT4", "INT32")
    b = Old()
    values = b.const(dtype, values_of(dtype, (2, 3)))
    if dtype != "INT48":
        return b.graph(values)
    scale: dict[str, Any] = {"multiplier": (1,), "shift": (20,), "scale32": False}
    return b.graph(b.op("RESCALE", [values], "INT32", (2, 3), **scale))


def _custom(dtype: str) -> OldGraph:
    b = Old()
    inputs = b.input(dtype, (2,)), b.input(dtype, (3,))
    names = {"operator_name": "spin", "domain_name": "test", "implementation_attrs": b"\0\1\xff"}
    return b.graph(*b.ops("CUSTOM", inputs, [(dtype, (2,)), ("INT32", (1,))], **names))


def branch(name: str, op: str, dtype: str, out: str) -> OldGraph:
    b = Old(name)
    inputs = b.input(dtype, (3,), "a"), b.input(dtype, (3,), "b")
    return b.graph(b.op(op, inputs[: _ARITIES[op]], out, (3,), "out"))


def _cond_if(dtype: str) -> OldGraph:
    b = Old()
    b.subgraphs = {name: branch(name, "IDENTITY", dtype, dtype) for name in ("first", "second")}
    inputs = b.input("BOOL", (1,)), b.input(dtype, (3,)), b.input(dtype, (3,))
    branches = {"then_branch": "first", "else_branch": "second"}
    return b.graph(b.op("COND_IF", inputs, dtype, (3,), **branches))


def _while_loop(dtype: str) -> OldGraph:
    """Ends at once, as the condition is false."""
    b = Old()
    condition = Old("condition")
    condition.input(dtype, (3,), "a")
    b.subgraphs["condition"] = condition.graph(condition.const("BOOL", [False], "no"))
    body = Old("body")
    b.subgraphs["body"] = body.graph(
        body.op("IDENTITY", [body.input(dtype, (3,), "a")], dtype, (3,), "out")
    )
    branches = {"cond_branch": "condition", "body_branch": "body"}
    return b.graph(b.op("WHILE_LOOP", [b.input(dtype, (3,))], dtype, (3,), **branches))


def _variable(dtype: str) -> OldGraph:
    b = Old()
    state = {"uid": 7, "var_shape": (2, 3), "type": dtype}
    initial = values_of(dtype, (2, 3))
    b.nodes.append(OldNode("VARIABLE", (), (), {**state, "initial_value": initial}))
    y = b.op("VARIABLE_READ", [], dtype, (2, 3), uid=7)
    b.nodes.append(OldNode("VARIABLE_WRITE", (b.input(dtype, (2, 3)),), (), {"uid": 7}))
    return b.graph(y)


_variable_read = _variable_write = _variable


def _of_shapes(op: str) -> OldGraph:
    """Computes the shape (6, 4) in which a tensor of (2, 12) is to be."""
    b = Old()
    x = b.input("INT8", (2, 12))

    def number(value: int) -> str:
        return b.const("SHAPE", np.asarray(value, np.int64))

    def of(*numbers: int) -> str:
        return b.op(op, [number(n) for n in numbers], "SHAPE", ())

    binary = {"ADD": (2, 4), "SUB": (9, 3), "MUL": (2, 3), "INTDIV": (13, 2)}
    if op in binary:
        shape = b.op("CONCAT", [of(*binary[op]), number(4)], "SHAPE", (2,), axis=0)
    elif op == "CONCAT":
        shape = b.op(op, [number(6), number(4)], "SHAPE", (2,), axis=0)
    elif op == "REVERSE":
        shape = b.op(op, [b.const("SHAPE", [4, 6])], "SHAPE", (2,), axis=0)
    else:
        shape = b.const("SHAPE", [6, 4])
    return b.graph(b.op("RESHAPE", [x, shape], "INT8", (6, 4)))
