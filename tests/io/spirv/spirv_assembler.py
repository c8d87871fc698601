"""An assembler of SPIR-V, of a few lines, which shares nothing with tosajax.

A line is an instruction as disassemblers print it, `%sum = OpExtInst %type %tosa 14 %a %b`: ids by
any names, numbers, texts in quotes, and numbers of 32 bits by their floats, `1.5f`.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator

OPCODES = {
    "OpNop": 0,
    "OpUndef": 1,
    "OpSource": 3,
    "OpName": 5,
    "OpMemberName": 6,
    "OpString": 7,
    "OpLine": 8,
    "OpExtension": 10,
    "OpExtInstImport": 11,
    "OpExtInst": 12,
    "OpMemoryModel": 14,
    "OpEntryPoint": 15,
    "OpExecutionMode": 16,
    "OpCapability": 17,
    "OpTypeVoid": 19,
    "OpTypeBool": 20,
    "OpTypeInt": 21,
    "OpTypeFloat": 22,
    "OpTypeVector": 23,
    "OpTypeArray": 28,
    "OpTypeStruct": 30,
    "OpTypePointer": 32,
    "OpTypeFunction": 33,
    "OpConstantTrue": 41,
    "OpConstantFalse": 42,
    "OpConstant": 43,
    "OpConstantComposite": 44,
    "OpConstantNull": 46,
    "OpSpecConstantTrue": 48,
    "OpSpecConstantFalse": 49,
    "OpSpecConstant": 50,
    "OpSpecConstantComposite": 51,
    "OpSpecConstantOp": 52,
    "OpFunction": 54,
    "OpVariable": 59,
    "OpDecorate": 71,
    "OpCompositeExtract": 81,
    "OpIAdd": 128,
    "OpNoLine": 317,
    "OpModuleProcessed": 330,
    "OpTypeTensorARM": 4163,
    "OpGraphConstantARM": 4181,
    "OpGraphEntryPointARM": 4182,
    "OpGraphARM": 4183,
    "OpGraphInputARM": 4184,
    "OpGraphSetOutputARM": 4185,
    "OpGraphEndARM": 4186,
    "OpTypeGraphARM": 4190,
    "OpConstantCompositeReplicateEXT": 4461,
    "OpSpecConstantCompositeReplicateEXT": 4462,
}
# Those whose result has no type.
_UNTYPED = ("OpType", "OpString", "OpExtInstImport", "OpLabel")
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')


def assemble(
    text: str,
    *,
    order: str = "<",
    version: int = 0x00010600,
    generator: int = 0,
    bound: int | None = None,
) -> bytes:
    """The bytes of a module.

    Args:
      text: a line for each instruction; what follows `;` is a comment.
      order: of bytes, "<" or ">".
      version: the header's word.
      generator: the header's word.
      bound: of ids; by default as it has to be.
    """
    ids: dict[str, int] = {}
    words = [word for line in text.splitlines() for word in _instruction(line, ids)]
    header = [0x07230203, version, generator, bound or len(ids) + 1, 0]
    return struct.pack(f"{order}{len(words) + 5}I", *header, *words)


def _instruction(line: str, ids: dict[str, int]) -> list[int]:
    tokens = [_TOKEN.fullmatch(t[0]) or t for t in _TOKEN.finditer(line.split(";")[0])]
    if not tokens:
        return []
    result = None
    if len(tokens) > 1 and tokens[1].group() == "=":
        result, _, *tokens = tokens
    name, operands = tokens[0].group(), tokens[1:]
    if result is not None:
        operands.insert(0 if name.startswith(_UNTYPED) else 1, result)
    words = list(itertools.chain.from_iterable(_words(token, ids) for token in operands))
    return [(len(words) + 1) << 16 | OPCODES[name], *words]


def _words(token: re.Match[str], ids: dict[str, int]) -> Iterator[int]:
    text, word = token.group(1), token.group(2)
    if text is not None:
        content = text.encode() + b"\0"
        content += bytes(-len(content) % 4)
        yield from struct.unpack(f"<{len(content) // 4}I", content)
    elif word.startswith("%"):
        yield ids.setdefault(word, len(ids) + 1)
    elif word.endswith("f"):
        yield struct.unpack("<I", struct.pack("<f", float(word[:-1])))[0]
    else:
        yield int(word, 0) & 0xFFFFFFFF
