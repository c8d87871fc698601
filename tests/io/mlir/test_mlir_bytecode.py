"""MLIR bytecode, by way of tosa-opt."""

from __future__ import annotations

import importlib.metadata
import random
import subprocess
import sys

import pytest
from paths import CORPUS

from tosajax import io
from tosajax.graph.alike import difference
from tosajax.io import mlir
from tosajax.io.mlir import bytecode
from tosajax.report import FormatError, TosaError, UnsupportedError

pytest.importorskip("xdsl")

_SAMPLES = {
    "allops": "allops",
    "conv_f32.tosa": "conv_f32.tosa",
    "conv_int8.tosa": "conv_int8.tosa",
    "extra": "extra",
    "fp32_convnet": "fp32_convnet",
    "int8_convnet": "int8_convnet",
    "types": "types",
    "types.v4": "types",
}


@pytest.fixture(autouse=True)
def _needs(tosa_opt):
    """Skips where tosa-opt is not."""


@pytest.mark.parametrize("stem", _SAMPLES)
def test_samples(stem, sample):
    graph = mlir.read_bytecode(sample(f"{stem}.mlirbc"))
    text = mlir.read_text(sample(f"{_SAMPLES[stem]}.mlir"))
    assert difference(graph, text) is None
    version, llvm = ("4" if "v4" in stem else "6"), ("23" if "tosa" in stem else "24")
    assert graph.source.format == "MLIR bytecode"
    assert graph.source.version == f"{version}, TOSA 1.0 dialect"
    assert graph.source.producer == f"MLIR{llvm}.0.0git"


def test_names_and_locations_are_kept(small_graph, sample):
    assert mlir.read_bytecode(mlir.to_bytecode(small_graph)) == small_graph
    for name in ("allops", "types"):
        graph = mlir.read_text(sample(f"{name}.mlir"))
        assert mlir.read_bytecode(mlir.to_bytecode(graph)) == graph


@pytest.mark.parametrize(
    "name", ["hello_world_int8", "jax_attn", "seanet_int16_dev", "resnet8_int8"]
)
def test_models(name):
    paths = sorted((CORPUS / name).glob("*.tosa"))
    if not paths:
        pytest.skip(f"no models in {CORPUS / name}")
    for path in paths[:3]:
        graph = io.load(path)
        assert mlir.read_bytecode(mlir.to_bytecode(graph)) == graph


@pytest.mark.parametrize("bits", [4, 8, 48])
def test_unsigned_constants_are_signless(bits):
    half = 1 << (bits - 1)
    for body, wanted in ((f"[{half - 1}, {half}]", [half - 1, -half]), (half, [-half, -half])):
        kind = f"tensor<2xui{bits}>"
        values = f"values = dense<{body}> : {kind}"
        text = f"""func.func @main() -> {kind} {{
          %c = "tosa.const"() <{{{values}}}> : () -> {kind}
          return %c : {kind} }}"""
        graph = mlir.read_bytecode(bytecode.of_text(text))
        found = graph.tensors[graph.outputs[0]].values
        assert found is not None
        assert found.tolist() == wanted


def test_function(sample):
    content = sample("conv_f32.tosa.mlirbc")
    assert mlir.read_bytecode(content, "main").name == "main"
    with pytest.raises(ValueError, match="no function is named 'other'"):
        mlir.read_bytecode(content, "other")


# What cannot be read or written.


def test_an_unknown_producer_before_1_0(sample):
    """One that does not say which LLVM it is: tosa-opt refuses the file itself."""
    content = sample("pre10_dialect_llvm19.mlirbc").replace(b"MLIR19.1.7\0", b"some other\0")
    with pytest.raises(FormatError, match=r"tosa-opt of tosa-tools \S+ does not read bytecode 6"):
        mlir.read_bytecode(content)


def test_other_dialects(tmp_path):
    text = 'func.func @main() {\n"foo.bar"() : () -> () loc("layer 3")\nreturn }'
    path = tmp_path / "foo.mlirbc"
    options = ["--allow-unregistered-dialect", "--emit-bytecode", "-o", str(path)]
    command = [str(bytecode.program()), "-", *options]
    subprocess.run(command, input=text.encode(), check=True)
    named = r"operation foo\.bar, at layer 3, is not of the TOSA dialect"
    with pytest.raises(UnsupportedError, match=named):
        mlir.read_bytecode(path.read_bytes())


def test_types_of_dialects_with_bytecode_of_their_own(sample):
    """A function of torch-mlir with !quant.uniform, a dialect that tosa-opt does not have."""
    wanted = "dialect 'quant' does not .*; mlir-opt --mlir-print-op-generic .* text, which is read"
    with pytest.raises(UnsupportedError, match=wanted):
        mlir.read_bytecode(sample("quantized.mlirbc"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with 4d4cef52, not with"),
        (b"ML\xefS\x0d", "not with 4d4cef53"),
        (b"ML\xefR", "the header"),
        (b"ML\xefR\x0dMLIR24", "the header"),
        (b"ML\xefR\x0d" + b"x" * 1000 + b"\0", "the header"),
        (b"ML\xefR\x0dMLIR24.0.0git\0", "tosa-opt of tosa-tools .* does not read bytecode 6 by"),
    ],
)
def test_broken_headers(content, message):
    with pytest.raises(FormatError, match=message):
        mlir.read_bytecode(content)


@pytest.mark.parametrize(
    ("octets", "version"),
    [
        (b"\x01", 0),
        (b"\x0d", 6),
        (b"\xff", 127),
        (b"\x02\x02", 128),
        (b"\0" + b"\x07" + b"\0" * 7, 7),
    ],
)
def test_versions_in_several_bytes(octets, version):
    header = bytecode.header(b"ML\xefR" + octets + b"me\0")
    assert header == bytecode.Header(version, "me")


def test_graphs_that_tosa_opt_refuses(small_graph):
    graph = mlir.read_text(
        "func.func @main(%a: tensor<0xf32>) { %r = tosa.abs %a : tensor<0xf32> return }"
    )
    with pytest.raises(ValueError, match=r"tosa-opt of tosa-tools .* does not write the graph: "):
        mlir.to_bytecode(graph)


def test_time_is_bounded(sample, monkeypatch, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    slow.chmod(0o755)
    monkeypatch.setattr(bytecode, "program", lambda: slow)
    monkeypatch.setattr(bytecode, "_SECONDS", 1)
    with pytest.raises(FormatError, match="it took more than 1 seconds"):
        mlir.read_bytecode(sample("extra.mlirbc"))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "it ended with signal 11"),
        ("import sys; sys.exit(3)", "it ended with status 3"),
        ("x = bytearray(8 << 30)", "it ended with status 1"),
        ("import sys\nwhile True: sys.stdout.buffer.write(b'x' * (1 << 20))", "it ended with s"),
    ],
)
def test_crashes_and_limits(script, message, sample, monkeypatch, tmp_path):
    """Of a program in the place of tosa-opt: memory and output are bounded."""
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nimport sys; sys.stdin.buffer.read()\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(bytecode, "program", lambda: program)
    with pytest.raises(FormatError, match=message):
        mlir.read_bytecode(sample("extra.mlirbc"))


def test_without_tosa_tools(sample, monkeypatch):
    def missing(name: str):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(ImportError, match=r"pip install 'tosajax\[reference\]'"):
        mlir.read_bytecode(sample("extra.mlirbc"))


# Damage.


def _is_read(content: bytes) -> bool:
    try:
        mlir.read_bytecode(content)
        message = ""
    except (FormatError, UnsupportedError, TosaError) as error:
        message = str(error)
    assert len(message) < 1000
    return not message


def test_truncated(sample):
    content = sample("allops.mlirbc")
    assert not any(_is_read(content[:end]) for end in range(0, len(content), 64))


@pytest.mark.parametrize("name", ["extra", "pre10_dialect_llvm19"])
def test_flipped_bytes(name, sample):
    content = sample(f"{name}.mlirbc")
    random_ = random.Random(11)
    for _ in range(40):
        broken = bytearray(content)
        broken[random_.randrange(20, len(broken))] ^= random_.randrange(1, 256)
        _is_read(bytes(broken))
