"""MLIR bytecode, by way of tosa-opt."""

from __future__ import annotations

import importlib.metadata
import mmap
import random
import subprocess
import sys

import pytest
from paths import CORPUS

from tosajax import Quantization, io
from tosajax.graph.alike import difference
from tosajax.io import mlir
from tosajax.io.mlir import bytecode, loading
from tosajax.io.mlir.loading import loading_tosa
from tosajax.io.mlir.octets import Octets
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


_QUANTIZED = """
!q = !quant.uniform<i8:f32, 0.015:-3>
!w = !quant.uniform<i8<-127:127>:f32:0, {0.5, 0.25, 0.125}>
!u = !quant.uniform<u8:f32, 0.007:128>
!sum = !quant.uniform<i32:f32:3, {0.0075, 0.00375, 0.001875}>
func.func @conv(%a: tensor<1x4x4x2x!q>, %w: tensor<3x1x1x2x!w>, %b: tensor<3xi32>)
    -> tensor<1x4x4x3x!sum> {
  %0 = "tosa.const"() <{values = dense<-3> : tensor<1xi8>}> : () -> tensor<1xi8>
  %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %2 = "tosa.conv2d"(%a, %w, %b, %0, %1) {acc_type = i32, dilation = array<i64: 1, 1>,
    pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>}
    : (tensor<1x4x4x2x!q>, tensor<3x1x1x2x!w>, tensor<3xi32>, tensor<1xi8>, tensor<1xi8>)
    -> tensor<1x4x4x3x!sum>
  return %2 : tensor<1x4x4x3x!sum>
}
func.func @rescale(%a: tensor<2x3x!u>) -> tensor<2x3x!q> {
  %m = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %iz = "tosa.const"() <{values = dense<128> : tensor<1xui8>}> : () -> tensor<1xui8>
  %oz = "tosa.const"() <{values = dense<-3> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = "tosa.rescale"(%a, %m, %s, %iz, %oz) {input_unsigned = true, output_unsigned = false,
    per_channel = false, rounding_mode = #tosa.rounding_mode<SINGLE_ROUND>, scale32 = true}
    : (tensor<2x3x!u>, tensor<1xi32>, tensor<1xi8>, tensor<1xui8>, tensor<1xi8>) -> tensor<2x3x!q>
  return %0 : tensor<2x3x!q>
}
func.func @reshape(%a: tensor<2x3x!u>) -> tensor<6x!u> {
  %s = "tosa.const_shape"() {values = dense<6> : tensor<1xindex>} : () -> !tosa.shape<1>
  %0 = "tosa.reshape"(%a, %s) : (tensor<2x3x!u>, !tosa.shape<1>) -> tensor<6x!u>
  return %0 : tensor<6x!u>
}
func.func @kinds(%a: tensor<2x!q>, %b: tensor<2x!quant.any<i8<-8:7>:f32>>,
    %c: tensor<2x!quant.any<i8>>, %d: tensor<2x!quant.calibrated<f32<-0.998:1.2321>>>,
    %e: tensor<2x!quant.uniform<i16:f64, 2.0e-30:-5>>, %f: tensor<2x!quant.uniform<u4:f16, 0.3:7>>,
    %g: tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{2.0:1, 3.0:2}, {4.0:3, 5.0:4}}>>)
    -> tensor<2x!q> {
  return %a : tensor<2x!q>
}
func.func @apart(%a: tensor<16x!q>) -> tensor<16x!q> {
  %0 = "tosa.const"() {values = dense_resource<w> : tensor<16xi8>} : () -> tensor<16x!q>
  %1 = "tosa.maximum"(%a, %0) {nan_mode = #tosa.nan_mode<PROPAGATE>}
    : (tensor<16x!q>, tensor<16x!q>) -> tensor<16x!q>
  return %1 : tensor<16x!q>
}
{-# dialect_resources: {builtin: {w: "0x40000000000102030405060708090A0B0C0D0E0F"}} #-}
"""


def _written(text: str) -> bytes:
    """Bytecode of text whose quantized types have bytecode of their own."""
    loading = f"#loads = !tosa.shape<0>\n{text}"  # the TOSA dialect, and so `quant`
    command = [str(bytecode.program()), "-", "--emit-bytecode"]
    done = subprocess.run(command, input=loading.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert b"!quant" not in done.stdout
    return done.stdout


@pytest.mark.parametrize("function", ["conv", "rescale", "reshape", "kinds", "apart"])
def test_quantized_types(function):
    """All that the dialect `quant` has, as text reads them."""
    graph = mlir.read_bytecode(_written(_QUANTIZED), function)
    wanted = mlir.read_text(_QUANTIZED, function)
    assert difference(graph, wanted) is None
    assert list(graph.quantization.values()) == list(wanted.quantization.values())
    assert graph.quantization
    assert len(graph.source.rewrites) == len(wanted.source.rewrites)


def test_constants_that_are_aligned():
    """As 64 bytes are, which LLVM wants of their addresses in memory."""
    data = bytes(range(16))
    content = _written(f"""func.func @main() -> tensor<16xi8> {{
      %0 = "tosa.const"() {{values = dense_resource<w> : tensor<16xi8>}} : () -> tensor<16xi8>
      return %0 : tensor<16xi8>
    }}
    {{-# dialect_resources: {{builtin: {{w: "0x40000000{data.hex()}"}}}} #-}}""")
    values = mlir.read_bytecode(content).tensors["0"].values
    assert values is not None
    assert values.tobytes() == data


@pytest.mark.parametrize("size", [0, -1, 1, 4096])
def test_files_that_are_mapped_to_memory(size):
    """Longer than four pages, and no whole pages."""
    start, end = b"ML\xefR\x0dMLIR24.0.0git", b"\0" + bytes(range(100))
    content = start + end + bytes(-len(start + end) % mmap.PAGESIZE + mmap.PAGESIZE + size)
    found = bytecode._mapped(content)
    assert len(found) % mmap.PAGESIZE
    assert len(found) >= 4 * mmap.PAGESIZE
    assert (len(found) - len(content)) % 64 == 0  # alignments are kept
    assert found.replace(b" ", b"") == content.replace(b" ", b"")


def test_a_quantized_function_of_torch_mlir(sample):
    graph = mlir.read_bytecode(sample("quantized.mlirbc"))
    assert dict(graph.quantization) == dict.fromkeys(("arg0", "0"), Quantization((0.1,), (3,)))
    assert graph.nodes[0].location == "q.mlir:2:7"


def test_types_of_dialects_with_bytecode_of_their_own(sample):
    """A dialect that tosa-opt does not have."""
    content = sample("quantized.mlirbc").replace(b"quant\0", b"quart\0")
    wanted = "dialect 'quart' does not .*; mlir-opt --mlir-print-op-generic .* text, which is read"
    with pytest.raises(UnsupportedError, match=wanted):
        mlir.read_bytecode(content)


def test_damage_of_quantized_types(sample):
    """Of bytes that tosajax reads itself, before tosa-opt does."""
    content, random_ = sample("quantized.mlirbc"), random.Random(5)
    outcomes = set()
    for _ in range(2000):
        broken = bytearray(content)
        for _ in range(random_.choice([1, 1, 3, 20])):
            broken[random_.randrange(19, len(broken))] = random_.randrange(256)
        if random_.random() < 0.2:
            del broken[random_.randrange(19, len(broken)) :]
        try:
            loading_tosa(bytes(broken))
            outcomes.add("changed")
        except FormatError:
            outcomes.add("refused")
    assert outcomes == {"changed", "refused"}
    with pytest.raises(FormatError, match=r"bytecode 6 by 'MLIR24.0.0git' is broken: MLIR bytec"):
        mlir.read_bytecode(content + bytes(1))


@pytest.mark.parametrize("size", [0, 1, 127, 128, (1 << 14) - 1, 1 << 14, 1 << 55, (1 << 64) - 1])
def test_numbers_of_bytecode(size):
    octets = loading._number(size)
    part = Octets(octets, 0, None, "numbers")
    assert part.number() == size
    part.check_end()


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


@pytest.mark.parametrize("name", ["extra", "pre10_dialect_llvm19", "quantized"])
def test_flipped_bytes(name, sample):
    content = sample(f"{name}.mlirbc")
    random_ = random.Random(11)
    for _ in range(15):
        broken = bytearray(content)
        broken[random_.randrange(20, len(broken))] ^= random_.randrange(1, 256)
        _is_read(bytes(broken))
