"""Modules that are damaged, or have what TOSA 1.0 does not have: each is named."""

from __future__ import annotations

import struct

import pytest
from spirv_assembler import assemble
from spirv_modules import HEAD, module, plain

from tosajax.io import spirv
from tosajax.report import FormatError, UnsupportedError

_SMALL = assemble(module())
_ADD = "%y = OpExtInst %t %tosa 14 %x %k"


def _error(text: str, kind: type[Exception] = FormatError) -> str:
    with pytest.raises(kind) as found:
        spirv.read(assemble(text))
    return str(found.value)


# Words.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes, expected a multiple of 4 from 20 on"),
        (_SMALL[:16], "has 16 bytes"),
        (_SMALL[:-1], "expected a multiple of 4"),
        (b"SPIR" + _SMALL[4:], "the first word is 0x52495053"),
        (_SMALL[:16] + b"\1\0\0\0" + _SMALL[20:], "the schema 1, expected 0"),
        (_SMALL[:4] + b"\0\6\1\1" + _SMALL[8:], "the version is 0x01010600"),
        (_SMALL[:20] + struct.pack("<I", 17), "at word 5 has 0 words, expected 1 to"),
        (_SMALL[:20] + struct.pack("<I", 9 << 16 | 17), "at word 5 has 9 words, expected 1 to 1"),
        (_SMALL[:20] + struct.pack("<2I", 2 << 16 | 10, 0x41414141), "a text has no end"),
        (_SMALL[:20] + struct.pack("<2I", 2 << 16 | 10, 0x0000FFFF), "a text is not UTF-8"),
    ],
)
def test_words(content, message):
    with pytest.raises(FormatError, match=message):
        spirv.read(content)


@pytest.mark.parametrize(
    ("version", "named"), [(0x00010700, "1.7"), (0x00020000, "2.0"), (0, "0.0")]
)
def test_version(version, named):
    with pytest.raises(UnsupportedError, match=f"the version is {named}, expected 1.0 to 1.6"):
        spirv.read(assemble(module(), version=version))


def test_every_instruction_may_be_cut_short():
    """Less than all of its operands: an error that names it, or another module."""
    words = struct.unpack(f"<{len(_SMALL) // 4}I", _SMALL)
    at, errors = 5, 0
    while at < len(words):
        count, opcode = words[at] >> 16, words[at] & 0xFFFF
        for kept in range(1, count):
            start = [*words[:at], kept << 16 | opcode, *words[at + 1 : at + kept]]
            cut = [*start, *words[at + count :]]
            try:
                spirv.read(struct.pack(f"<{len(cut)}I", *cut))
            except (FormatError, UnsupportedError):
                errors += 1
        at += count
    assert errors > 50


@pytest.mark.parametrize("above", [None, 0, 99])
def test_ids_beyond_the_bound(above):
    (bound,) = struct.unpack_from("<I", _SMALL, 12)
    id = 0 if above is None else bound + above
    content = _SMALL + struct.pack("<2I", 2 << 16 | 19, id)  # OpTypeVoid
    message = f"%{id} is beyond the ids of the module, 1 to {bound - 1}$"
    with pytest.raises(FormatError, match=rf"OpTypeVoid at word \d+: {message}"):
        spirv.read(content)


def test_id_defined_twice():
    assert "OpTypeBool at word" in _error(module(declared="%f32 = OpTypeBool"))
    assert "is defined twice" in _error(module("%x = OpExtInst %t %tosa 31 %x"))


# What no graph of TOSA 1.0 has.


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("OpCapability Kernel", "OpCapability at word .*: capability 6, expected some of .*Int8"),
        ('OpExtension "SPV_INTEL_int4"', "extension 'SPV_INTEL_int4', expected some of SPV_ARM_g"),
        ('%n = OpExtInstImport "TOSA.001001.1"', "'TOSA.001001.1', expected 'TOSA.001000.1'"),
        ("OpMemoryModel Physical64 Vulkan", "addressing model 2, expected Logical"),
        ('OpEntryPoint 5 %m "main"', "OpEntryPoint at word .*: the module has shaders"),
        ("OpExecutionMode %m 17 1 1 1", "OpExecutionMode at word .*: the module has shaders"),
        ("OpDecorate %x_variable 2", "decoration 2, expected one of .*Binding"),
    ],
)
def test_head(lines, message):
    with pytest.raises(UnsupportedError, match=message):
        spirv.read(assemble(module(head=HEAD + plain(lines))))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("%v = OpTypeVector %f32 4", "OpTypeVector at word .*: the module has shaders"),
        ("%v = OpTypeFunction %f32", "OpTypeFunction at word .*: the module has shaders"),
        ("%v = OpFunction %f32 0 %t", "OpFunction at word .*: the module has shaders"),
        ("%v = OpSpecConstantOp %i32 128 %1 %1", "OpSpecConstantOp at word .*: no graph of TOSA"),
        ("%v = OpUndef %t", "instruction 1 at word .*: no graph of TOSA"),
        ("%n = OpTypeInt 4 0", "integers of 4 bits, which TOSA 1.0 does not have"),
        ("%n = OpTypeFloat 64", "floats of 64 bits, which TOSA 1.0 does not have"),
        ("%n = OpTypeFloat 8 4226", "floats of 8 bits in encoding Float8UnsignedE8M0"),
        ("%n = OpTypeFloat 6 4223", "floats of 6 bits in encoding Float6E2M3"),
        ("%n = OpTypeFloat 4 4225", "floats of 4 bits in encoding Float4E2M1"),
        ("%n = OpTypeFloat 8 4227", "floats of 8 bits in encoding MXInt8"),
        ("%n = OpTypeFloat 8", "floats of 8 bits, which"),
        ("%n = OpTypeFloat 16 7", "floats of 16 bits in encoding 7"),
        ("%n = OpTypeArray %t %1", "an array of FP32.2,3., expected one of scalars"),
        ("%n = OpTypePointer 12 %f32", "it is of a scalar FP32, expected tensors"),
        ("%n = OpTypeStruct %f32", "it is of a scalar FP32, expected tensors"),
        ("%p = OpTypePointer 0 %t\n%n = OpVariable %p 12", "a variable is a pointer to FP32"),
        ("%n = OpVariable %f32 0", "a variable is a scalar FP32, expected one to a tensor"),
        ("%s = OpTypeStruct %t\n%n = OpConstantNull %s", "a constant of a struct of 1 tensors"),
        ("%r = OpConstant %i32 33\n%n = OpTypeTensorARM %f32 %r", "the rank is 33, of which TOSA"),
        ("%r = OpConstant %i32 -1\n%n = OpTypeTensorARM %f32 %r", "the rank is 4294967295"),
    ],
)
def test_declarations(lines, message):
    with pytest.raises(UnsupportedError, match=message):
        spirv.read(assemble(module(declared=plain(lines))))


def test_instruction_of_another_set():
    head = HEAD.replace(
        "OpMemory", '%arm = OpExtInstImport "Arm.ExperimentalMLOperations"\nOpMemory'
    )
    text = module("%y = OpExtInst %t %arm 0 %x", head=head)
    message = _error(text, UnsupportedError)
    assert "instruction 0 of the set 'Arm.ExperimentalMLOperations'" in message


def test_instruction_within_a_graph():
    message = _error(module("%y = OpIAdd %t %x %x"), UnsupportedError)
    assert message.startswith("instruction 128 at word")
    assert "no graph of TOSA 1.0 has such an instruction in it" in message


def test_arrays_of_tensors():
    text = module().replace("OpGraphInputARM %t %0", "OpGraphInputARM %t %0 %0")
    assert "an array of tensors" in _error(text, UnsupportedError)
    text = module().replace("OpGraphSetOutputARM %y %0", "OpGraphSetOutputARM %y %0 %0")
    assert "an array of tensors" in _error(text, UnsupportedError)


# Constants.


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("%k = OpConstantTrue %f32", "a boolean is a scalar FP32"),
        ("%k = OpConstant %bool 1", "a number is a scalar BOOL"),
        ("%k = OpConstant %t 1", "a number is FP32.2,3."),
        ("%k = OpConstant %f32 1 2", "2 words of a scalar FP32"),
        ("%k = OpConstant %i64 1", "1 words of a scalar INT48"),
        ("%k = OpConstantComposite %t %1 %1", "a part of FP32.2,3. is a scalar INT32, not FP32.3."),
        ("%k = OpConstantComposite %row %1 %1 %1", "is a scalar INT32, not a scalar FP32"),
        ("%k = OpConstantComposite %t %1", "1 parts of FP32.2,3."),
        ("%k = OpConstantComposite %row %x %x %x", "is no type, not a scalar FP32"),
        ("%k = OpConstantComposite %f32", "0 parts of a scalar FP32"),
        ("%k = OpConstantCompositeReplicateEXT %t %1 %1", "2 equal parts of FP32.2,3."),
        ("%k = OpConstantCompositeReplicateEXT %t %1", "a scalar INT32, not FP32.3."),
        (
            "%open = OpTypeTensorARM %f32 %2\n%k = OpConstantNull %open",
            "expected a tensor of known",
        ),
        ("%any = OpTypeTensorARM %f32\n%k = OpConstantNull %any", "expected a tensor of known"),
        ("%k = OpGraphConstantARM %f32 1", "a constant outside is a scalar FP32"),
        ("%k = OpTypeArray %i32 %0", "a number is 0, expected at least 1"),
        ("%k = OpTypeArray %i32 %array1", "%.* is not a constant"),
        ("%k = OpTypeTensorARM %f32 %0", "a number is 0, expected at least 1"),
        ("%k = OpTypeTensorARM %f32 %2 %shape1", "1 dimensions, 0 of them 0, expected 2"),
        ("%s = OpConstantComposite %array1 %0\n%k = OpTypeTensorARM %f32 %1 %s", "1 of them 0"),
        ("%k = OpTypeTensorARM %f32 %shape23", "2 numbers, expected one"),
        ("%k = OpTypeTensorARM %t %1", "a tensor of FP32.2,3., expected one of scalars"),
        ("%k = OpTypeTensorARM %f32 %1 %shape1 %1", "5 operands, expected at most 4"),
        ("%k = OpTypeFloat 16 0 0", "4 operands, expected 2 or 3"),
        ("%k = OpTypeGraphARM 2 %t", "2 inputs of 1 types"),
        ("%k = OpGraphARM %t", "a graph is FP32.2,3."),
        ("%k = OpExtInst %t %tosa 31 %x", "OpExtInst at word .*: no graph"),
    ],
)
def test_constants_and_types(lines, message):
    with pytest.raises((FormatError, UnsupportedError), match=message):
        spirv.read(assemble(module(declared=lines)))


# Graphs.


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%y = OpExtInst %t %tosa 66 %x", "TOSA.001000.1 has no instruction 66"),
        ("%y = OpExtInst %t %bool 31 %x", "is not a set of instructions"),
        ("%y = OpExtInst %t %tosa 31", r"ABS %\d+: 0 operands, expected 1"),
        ("%y = OpExtInst %t %tosa 31 %x %x", r"ABS %\d+: 2 operands, expected 1"),
        ("%y = OpExtInst %t %tosa 54 %0", r"CONCAT %\d+: 1 operands, expected 2"),
        ("%y = OpExtInst %t %tosa 31 %f32", r"ABS %\d+: input1: %\d+ is neither a constant"),
        ("%y = OpExtInst %t %tosa 31 %y", r"ABS %\d+: input1: %\d+ is neither a constant nor an"),
        ("%y = OpExtInst %t %tosa 31 %0", r"ABS %\d+: input1: it is a scalar INT32, expected a te"),
        ("%y = OpExtInst %f32 %tosa 31 %x", "the result is a scalar FP32, expected a tensor"),
        ("%y = OpExtInst %pair %tosa 31 %x", "the result is a struct of 2 tensors, expected a ten"),
        ("%y = OpExtInst %t %tosa 8 %yes %x", "the result is FP32.2,3., expected a struct of 2"),
        ("%y = OpExtInst %three %tosa 8 %yes %x", "a struct of 3 tensors, expected a struct of 2"),
        ("%y = OpExtInst %t %tosa 48 %x %x", r"REDUCE_ALL %\d+: axis: %\d+ is not a constant"),
        ("%y = OpExtInst %t %tosa 48 %yes %x", "axis: it is a scalar BOOL, expected a scalar"),
        ("%y = OpExtInst %pair %tosa 8 %0 %x", "local_bound: it is a scalar INT32, expected a sca"),
        ("%y = OpExtInst %t %tosa 25 %0 %x %x", r"nan_mode: it is 0, expected one of 1 \(PROPA"),
        ("%y = OpExtInst %t %tosa 10 %0 %0 %1 %x", "min_val: it is a scalar INT32, expected a sca"),
        ("%y = OpExtInst %t %tosa 60 %1 %x", "perms: it is a scalar INT32, expected a list of INT"),
        ("%y = OpExtInst %t %tosa 60 %zeros %x", r"perms: it is FP32\[2,3\], expected a list of"),
        ("%y = OpExtInst %t %tosa 60 %grid %x", r"perms: it is INT32\[2,3\], expected a list of"),
        ("%y = OpExtInst %t %tosa 56 %x %x", r"RESHAPE %\d+: shape: %\d+ is not a constant"),
        ("%y = OpExtInst %t %tosa 56 %x %zeros", r"shape: it is FP32\[2,3\], expected a list of"),
        ("%s = OpExtInst %pair %tosa 8 %yes %x\n%y = OpCompositeExtract %t %s 2", "part 2 of %"),
        ("%y = OpCompositeExtract %t %x 0", r"part 0 of %\d+, which has no such tensor"),
        ("%s = OpExtInst %pair %tosa 8 %yes %x\n%y = OpCompositeExtract %row %s 0", "the type is"),
        ("%y = OpExtInst %pair %tosa 8 %yes %x", r"%\d+ is a struct, expected a tensor"),
        ("%y = OpExtInst %row %tosa 31 %x", r"the type is FP32\[2,3\], expected FP32\[3\] of"),
        ("%z = OpGraphInputARM %t %1\n%y = OpExtInst %t %tosa 31 %x", "is not a number below 1"),
        ("%z = OpGraphInputARM %row %0\n%y = OpExtInst %t %tosa 31 %x", r"the type is FP32\[3\]"),
        ("%y = OpExtInst %t %tosa 31 %x\nOpGraphSetOutputARM %y %0", "output 0 is set twice"),
    ],
)  # fmt: skip
def test_bodies(body, message):
    declared = (
        "%pair = OpTypeStruct %t %t\n%three = OpTypeStruct %t %t %t\n"
        "%yes = OpConstantTrue %bool\n%zeros = OpConstantNull %t\n"
        "%integers = OpTypeTensorARM %i32 %2 %shape23\n%grid = OpConstantNull %integers"
    )
    with pytest.raises(FormatError, match=message):
        spirv.read(assemble(module(body, declared)))


def test_messages_name_nodes_by_name():
    text = module("%y = OpExtInst %t %tosa 31 %0", names='OpName %y "layer 3"')
    assert _error(text).startswith("ABS 'layer 3': input1: ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("OpGraphEndARM", "", "a graph has no end"),
        ("OpGraphSetOutputARM %y %0", "", "graph 'main' does not set output 0"),
        ("OpGraphSetOutputARM %y %0", "OpGraphSetOutputARM %y %1", "is not a number below 1"),
        ("OpGraphEntryPointARM %graph", "OpGraphEntryPointARM %t", "which is not a graph"),
        (" %x_variable %y_variable", " %x_variable", "has 1 variables, and its graph 2 inputs and"),
        (" %x_variable %y_variable", " %x_variable %x", "is no type, and the graph's FP32"),
        (
            "OpTypeGraphARM 1 %t %t",
            "OpTypeGraphARM 1 %row %t",
            r"is FP32\[2,3\], and the graph's FP",
        ),
        ("OpTypeGraphARM 1 %t %t", "OpTypeGraphARM 2 %t %t", "does not set|is not a number below"),
    ],
)
def test_ends(old, new, message):
    text = module()
    assert text.count(old) == 1
    with pytest.raises(FormatError, match=message):
        spirv.read(assemble(text.replace(old, new)))


def test_no_entry_point():
    lines = [x for x in module().splitlines() if not x.startswith("OpGraphEntryPoint")]
    assert "the module has no entry point of a graph" in _error("\n".join(lines))


def test_entry_points_of_one_name():
    entry = 'OpGraphEntryPointARM %graph "main" %x_variable %y_variable'
    assert "two entry points have the same name" in _error(module(tail=entry))


def test_lines_of_no_file():
    assert "OpLine at word" in _error(module("OpLine %x 1 1\n%y = OpExtInst %t %tosa 31 %x"))


def test_messages_are_short():
    long = "x" * 5000
    lines = f'OpName %y "{long}"\n%other = OpExtInstImport "TOSA.{long}"'
    for text in (
        module("%y = OpExtInst %t %tosa 31 %0", names=f'OpName %y "{long}"'),
        module(head=HEAD + f'OpExtension "{long}"'),
        module(names=lines),
        module().replace('"main"', f'"{long}"').replace("OpGraphSetOutputARM %y %0", ""),
    ):
        with pytest.raises((FormatError, UnsupportedError)) as found:
            spirv.read(assemble(text))
        assert len(str(found.value)) < 500
