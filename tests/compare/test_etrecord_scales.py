"""Scales that an ETRecord holds of inner tensors, without ExecuTorch and PyTorch."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_networks as small
from paths import DATA

import tosajax
from tosajax import FormatError, Quantization
from tosajax.compare import compare, scales_of_etrecord, scales_of_model

SCALES = DATA / "et_scales"
# From the graph that PyTorch prints: what quantize_per_tensor reads, scale and zero point.
X, RELU, CONV = (
    ((0.026788847520947456,), (-26,)),
    ((0.005871702451258898,), (-128,)),
    ((0.004616943653672934,), (5,)),
)
SILU, ADD = ((0.00225256010890007,), (-32,)), ((0.007096507120877504,), (-98,))
FC, SIGMOID = ((0.006139371544122696,), (31,)), ((0.002521062735468149,), (-128,))
INNER = {
    "quantized_decomposed_quantize_per_tensor_default": X,
    "tosa_transpose_default": X,
    "tosa_rescale_default": RELU,
    "tosa_rescale_default_2": CONV,
    "tosa_table_default": SILU,
    "tosa_rescale_default_4": ADD,
    "tosa_max_pool2d_default": ADD,
    "tosa_transpose_default_1": ADD,
    "tosa_reshape_default": ADD,
    "tosa_rescale_default_5": FC,
    "tosa_reshape_default_1": FC,
    "tosa_table_default_1": SIGMOID,
}
BYTE, CHAR, SHORT, FLOAT = 1, 2, 3, 7
PASS = "Interpreter_Interpreter"


def numbers(found: dict[str, Quantization]) -> dict[str, tuple[Any, Any]]:
    return {name: (own.scale, own.zero_point) for name, own in found.items()}


@pytest.fixture
def inner() -> tosajax.Graph:
    return tosajax.load(SCALES / "inner.tosa")


def test_a_real_record(inner):
    """Each tensor: by locations, by what a TABLE reads, by operators that keep scales."""
    found = scales_of_etrecord(SCALES / "inner.etrecord", inner)
    assert numbers(found) == INNER
    assert scales_of_model(SCALES / "inner.etrecord", inner) == found


def test_layers_of_pytorch_are_compared_in_steps_of_the_integers(inner):
    scales = scales_of_etrecord(SCALES / "inner.etrecord", inner)
    with np.load(SCALES / "inner_modules.npz") as file:
        modules = dict(file)
    graph = dataclasses.replace(inner, quantization=scales)
    found = compare(graph, modules, modules.pop("x"), clip=True)
    errors = {row.other: row.total.max_error for row in found.rows}
    assert set(errors) == {"stem", "block.conv", "block", "pool", "fc"}
    del errors["stem"]  # PyTorch's is before the ReLU that the graph fuses
    assert max(errors.values()) <= 2


@pytest.mark.parametrize("kept", ["exported_program", "edge_dialect_exported_program/forward"])
def test_each_program_of_a_record(inner, tmp_path, kept):
    """ETRecords have the programs before and after lowering, or one; before 1.0 without methods."""
    with zipfile.ZipFile(SCALES / "inner.etrecord") as archive:
        member = archive.read(kept)
    for name in (kept, "edge_dialect_exported_program"):
        with zipfile.ZipFile(tmp_path / "one.etrecord", "w") as archive:
            for end, content in (("", member), ("_state_dict", b"")):
                archive.writestr(name + end, content)
        assert scales_of_etrecord(tmp_path / "one.etrecord", inner).keys() == INNER.keys()
    with zipfile.ZipFile(tmp_path / "net.pt2", "w") as archive:
        archive.writestr("net/models/model.json", member)
    assert scales_of_etrecord(tmp_path / "net.pt2", inner).keys() == INNER.keys()


def test_without_locations(inner):
    nodes = tuple(dataclasses.replace(node, location=None) for node in inner.nodes)
    bare = dataclasses.replace(inner, nodes=nodes)
    assert scales_of_etrecord(SCALES / "inner.etrecord", bare).keys() == INNER.keys()


# Records of a few nodes, for `small_networks.two_layers`.


def tensor(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def node(target: str, inputs: list, outputs: list[str], *trace: str) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for name in reversed(trace):
        entry = {"name": name, "pass_name": PASS, "from_node": [entry] if entry else []}
    return {
        "target": target,
        "inputs": [{"name": "", "arg": tensor(i) if isinstance(i, str) else i} for i in inputs],
        "outputs": [tensor(name) for name in outputs],
        "metadata": {"from_node": json.dumps([entry])} if trace else {},
    }


def quantized(
    source: str, name: str, scale: float, zero_point: int, kind: int = CHAR, *, back: bool = True
) -> list[dict[str, Any]]:
    """quantize_per_tensor to `name`, and dequantize_per_tensor to `name.f`."""
    given = [
        {"as_float": scale}, {"as_int": zero_point}, {"as_int": -128}, {"as_int": 127},
        {"as_scalar_type": kind},
    ]  # fmt: skip
    space = "torch.ops.quantized_decomposed"
    found = [node(f"{space}.quantize_per_tensor.default", [source, *given], [name])]
    return [
        *found,
        *[node(f"{space}.dequantize_per_tensor.default", [name, *given], [f"{name}.f"])] * back,
    ]


SIZES = {"x": (1, 2, 4, 4), "qx": (1, 2, 4, 4), "q1": (1, 3, 4, 4), "q2": (1, 2, 4, 4)}


def program(*nodes: dict[str, Any], output: str = "q2.f") -> dict[str, Any]:
    values = {n: {"dtype": FLOAT, "sizes": [{"as_int": s} for s in SIZES[n]]} for n in SIZES}
    return {
        "graph_module": {
            "graph": {"nodes": list(nodes), "tensor_values": values},
            "signature": {
                "input_specs": [
                    {"parameter": {"arg": {"name": "w"}, "parameter_name": "w"}},
                    {"user_input": {"arg": tensor("x")}},
                ],
                "output_specs": [{"user_output": {"arg": tensor(output)}}],
            },
        },
        "schema_version": {"major": 5, "minor": 4},
    }


def layers(
    kind: int = CHAR, zero_points: tuple[int, int, int] = (-3, 5, -7), scale: float = 0.25
) -> dict[str, Any]:
    a, b, c = zero_points
    return program(
        *quantized("x", "qx", scale, a, kind),
        node("torch.ops.aten.conv2d.default", ["qx.f", "w"], ["conv"], "conv_1", "conv"),
        node("torch.ops.aten.relu.default", ["conv"], ["relu"], "relu"),
        *quantized("relu", "q1", 0.5, b, kind),
        node("torch.ops.aten.conv2d.default", ["q1.f", "w"], ["conv2"], "conv_2"),
        *quantized("conv2", "q2", 2.0, c, kind),
    )


def located(graph: tosajax.Graph, **traces: tuple[str, ...]) -> tosajax.Graph:
    """The graph with the traces of ExecuTorch, the newest name first, at nodes by their outputs."""

    def at(names: tuple[str, ...]) -> str:
        entries = [{"name": name, "pass_name": PASS} for name in names]
        return json.dumps({"torch_info": {"node_trace": entries}})

    nodes = tuple(
        dataclasses.replace(n, location=at(traces.get(n.outputs[0], ("tosa_node",))))
        for n in graph.nodes
    )
    return dataclasses.replace(graph, nodes=nodes)


LOCATED = {
    "acc1": ("later", "conv_1", "conv"),
    "act1": ("later", "conv_1", "conv"),
    "acc2": ("conv_2",),
    "out": ("conv_2",),
}
WANTED = {
    "x": ((0.25,), (-3,)),
    "act1": ((0.5,), (5,)),
    "relu1": ((0.5,), (5,)),
    "out": ((2.0,), (-7,)),
}


@pytest.fixture
def record(tmp_path):
    def of(*programs: Any, kind: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
        path = tmp_path / "net.etrecord"
        with zipfile.ZipFile(path, "w", kind) as archive:
            archive.writestr("ETRECORD_V0", "")
            for number, one in enumerate(programs):
                archive.writestr(f"p{number}", json.dumps(one))
                archive.writestr(f"p{number}_state_dict", "")
            for name, content in members.items():
                archive.writestr(name, content)
        return path

    return of


def test_a_fused_activation_takes_the_place_of_its_operator(record):
    """Nodes of one input before the quantized value are looked for, the nearest first."""
    fused = layers()
    # Another value computed from the input, so that only names tell which one is in the graph.
    fused["graph_module"]["graph"]["nodes"] += quantized("qx.f", "other", 3.0, 9)
    found = scales_of_etrecord(record(fused), located(small.two_layers(), **LOCATED))
    assert numbers(found) == WANTED
    opened = located(small.two_layers(batch=-1), **LOCATED)
    assert numbers(scales_of_etrecord(record(layers()), opened)) == WANTED


def test_the_last_tensor_of_a_place(record):
    """What an operator needs of its inputs is computed before it, at the same place."""
    graph = located(small.two_layers(), **(LOCATED | {"act1": ("conv_2",)}))
    only = program(
        *quantized("x", "qx", 0.25, -3),
        node("torch.ops.aten.conv2d.default", ["qx.f", "w"], ["conv2"], "conv_2"),
        *quantized("conv2", "any_size", 2.0, -7),
    )
    with pytest.warns(UserWarning, match="has scales of 2 of"):
        found = scales_of_etrecord(record(only), graph)
    assert numbers(found) == {"x": WANTED["x"], "out": WANTED["out"]}


def test_ends_by_their_order(record):
    """Where nothing else tells."""
    either = layers()
    either["graph_module"]["graph"]["nodes"] += quantized("q1.f", "other", 3.0, 9)
    assert numbers(scales_of_etrecord(record(either), small.two_layers())) == WANTED


def test_names_of_tensors(record):
    """As ExecuTorch gave them before it wrote locations."""
    named = copy.deepcopy(layers())
    text = json.dumps(named).replace('"conv2"', '"out"').replace('"relu"', '"relu1"')
    graph = located(small.two_layers())
    assert numbers(scales_of_etrecord(record(json.loads(text)), graph)) == WANTED


def test_unsigned_integers(record):
    """Bytes are signed in the graph."""
    shifted = layers(BYTE, (125, 133, 121))
    found = scales_of_etrecord(record(shifted), located(small.two_layers(), **LOCATED))
    assert numbers(found) == WANTED


def test_programs_of_delegates(record):
    lowered = {"backend_id": "TOSABackend", "original_module": layers()}
    call = node("torch.ops.higher_order.executorch_call_delegate", [], ["q2"])
    call["inputs"] = [{"name": "m", "arg": {"as_string": json.dumps(lowered)}}]
    whole = program(*quantized("x", "qx", 0.25, -3, back=False), call)
    graph = located(small.two_layers(), **LOCATED)
    assert numbers(scales_of_etrecord(record(whole), graph)) == WANTED


def test_several_programs(record):
    """The one with the most tensors; not where as many have other scales."""
    graph = located(small.two_layers(), **LOCATED)
    less = program(*quantized("x", "qx", 0.125, -3))
    assert numbers(scales_of_etrecord(record(less, layers(), layers()), graph)) == WANTED
    with pytest.raises(ValueError, match="several programs have the names of 4 tensors, with diff"):
        scales_of_etrecord(record(layers(), layers(scale=0.125)), graph)


def test_some_tensors_are_missing(record):
    """A warning says how many, and what would help."""
    graph = small.two_layers()
    words = r"has scales of 1 of the graph's 4 INT8 and INT16 tensors: its locations do not name"
    with pytest.warns(UserWarning, match=words):
        found = scales_of_etrecord(record(program(*quantized("x", "qx", 0.25, -3))), graph)
    assert numbers(found) == {"x": WANTED["x"]}


def test_two_values_at_one_place_are_not_told_apart(record):
    """Neither gets its scale."""
    twice = program(
        *quantized("x", "qx", 0.25, -3),
        node("torch.ops.aten.neg.default", ["qx.f"], ["neg"], "conv_2"),
        *quantized("neg", "q", 4.0, -7),
        node("torch.ops.aten.conv2d.default", ["q.f", "w"], ["conv2"], "conv_2"),
        *quantized("conv2", "q2", 2.0, -7),
    )
    with pytest.warns(UserWarning, match="has scales of 1 of"):
        found = scales_of_etrecord(record(twice), located(small.two_layers(), **LOCATED))
    assert numbers(found) == {"x": WANTED["x"]}


def test_a_graph_of_another_calibration(record):
    """Zero points tell: none of its scales is used."""
    graph = located(small.two_layers(), **LOCATED)
    with pytest.raises(ValueError, match=r"'act1' has zero point 6 there, and 5 in the graph: "):
        scales_of_etrecord(record(layers(zero_points=(-3, 6, -7))), graph)


def test_nothing_fits(record, tmp_path):
    graph = located(small.two_layers(), **LOCATED)
    with pytest.raises(ValueError, match=r"none of 3 quantized tensors was found in the graph$"):
        scales_of_etrecord(record(layers(SHORT)), graph)
    with pytest.raises(ValueError, match=r"none of 3 .* found in the graph: its locations do not"):
        scales_of_etrecord(record(layers(SHORT)), small.two_layers())
    dynamic = layers()
    for one in dynamic["graph_module"]["graph"]["nodes"]:
        for given in one["inputs"]:
            if "as_float" in given["arg"]:
                given["arg"] = tensor("scale")
    with pytest.raises(ValueError, match="quantize no tensor by one constant scale"):
        scales_of_etrecord(record(dynamic), graph)


def test_other_archives(record, tmp_path):
    graph = small.two_layers()
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    with pytest.raises(FormatError, match=r"neither an ETRecord nor a \.pt2 file"):
        scales_of_model(tmp_path / "x.npz", graph)
    with pytest.raises(FormatError, match="the ETRecord holds no program"):
        scales_of_model(record(), graph)
    (tmp_path / "x").write_bytes(b"PK\x03\x04" + bytes(99))
    with pytest.raises(FormatError, match="damaged: File is not a zip file"):
        scales_of_model(tmp_path / "x", graph)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "it lacks 'graph_module'"),
        (b"[" * 100_000, "recursion"),
        (b'{"graph_module": ' + b"9" * 10_000 + b"}", "digits"),
        (b'{"graph_module": {"graph": {"nodes": [3]}}}', "not subscriptable"),
        (b"\xff{", "decode"),
    ],
)
def test_absurd_members(record, content, words):
    path = record(p=content, p_state_dict=b"")
    with pytest.raises(FormatError, match=r"net\.etrecord: the ETRecord is damaged: ") as error:
        scales_of_etrecord(path, small.two_layers())
    assert words in str(error.value)


def test_a_member_that_grows(record):
    bomb = record(kind=zipfile.ZIP_DEFLATED, p=b" " * 10_000_000, p_state_dict=b"")
    with pytest.raises(FormatError, match=r"p has 10000000 bytes in .*, expected at most 64 times"):
        scales_of_etrecord(bomb, small.two_layers())


@pytest.mark.parametrize("scale", [-1.0, 0.0, float("nan"), float("inf")])
def test_impossible_scales(record, scale):
    with pytest.raises(FormatError, match=r"damaged: the scale of qx is .*, expected"):
        scales_of_etrecord(record(layers(scale=scale)), small.two_layers())


@pytest.mark.filterwarnings("ignore")  # of tensors without scales, and of a member's name
@pytest.mark.parametrize("inside", [False, True])
def test_any_damage(tmp_path, inner, inside):
    """Of the archive, or of the JSON in it: is found, or is in numbers."""
    generator, outcomes = random.Random(0), set()
    path, whole = tmp_path / "net.etrecord", (SCALES / "inner.etrecord").read_bytes()
    with zipfile.ZipFile(SCALES / "inner.etrecord") as archive:
        text = archive.read("exported_program")
    for _ in range(300):
        damaged = bytearray(text if inside else whole)
        for _ in range(generator.choice((1, 3, 30))):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        if generator.random() < 0.2:
            del damaged[generator.randrange(len(damaged)) :]
        if inside:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("p", bytes(damaged))
                archive.writestr("p_state_dict", b"")
        else:
            path.write_bytes(damaged)
        try:
            scales_of_etrecord(path, inner)
            outcomes.add("read")
        except ValueError:  # FormatError is one
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
