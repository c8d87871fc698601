"""Numbers of SPIR-V: instructions, capabilities, extensions and the TOSA instruction set.

The tables have only the parts that graph modules use, and a few more names for messages.
Source: "SPIR-V Specification" 1.6, SPV_ARM_tensors, SPV_ARM_graph, SPV_KHR_bfloat16,
SPV_EXT_float8, SPV_EXT_replicated_composites, NonSemantic.Graph.DebugInfo.1 and TOSA.001000.1.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.spec import Argument, Form, Operator

MAGIC = 0x07230203
WRITTEN_VERSION = (1, 6)  # has the Vulkan memory model and non-semantic sets in its core
INSTRUCTION_SET = "TOSA.001000.1"
DEBUG_SET = "NonSemantic.Graph.DebugInfo.1"
WITHOUT_MEANING = "NonSemantic."  # name prefix of instruction sets that may be ignored


class Op(enum.IntEnum):
    """Instructions, with the names of their specifications."""

    OpNop = 0
    OpSourceContinued = 2
    OpSource = 3
    OpSourceExtension = 4
    OpName = 5
    OpMemberName = 6
    OpString = 7
    OpLine = 8
    OpExtension = 10
    OpExtInstImport = 11
    OpExtInst = 12
    OpMemoryModel = 14
    OpEntryPoint = 15
    OpExecutionMode = 16
    OpCapability = 17
    OpTypeVoid = 19
    OpTypeBool = 20
    OpTypeInt = 21
    OpTypeFloat = 22
    OpTypeVector = 23
    OpTypeMatrix = 24
    OpTypeImage = 25
    OpTypeSampler = 26
    OpTypeArray = 28
    OpTypeRuntimeArray = 29
    OpTypeStruct = 30
    OpTypePointer = 32
    OpTypeFunction = 33
    OpConstantTrue = 41
    OpConstantFalse = 42
    OpConstant = 43
    OpConstantComposite = 44
    OpConstantNull = 46
    OpSpecConstantTrue = 48
    OpSpecConstantFalse = 49
    OpSpecConstant = 50
    OpSpecConstantComposite = 51
    OpSpecConstantOp = 52
    OpFunction = 54
    OpVariable = 59
    OpDecorate = 71
    OpMemberDecorate = 72
    OpCompositeExtract = 81
    OpNoLine = 317
    OpModuleProcessed = 330
    OpTypeTensorARM = 4163
    OpGraphConstantARM = 4181
    OpGraphEntryPointARM = 4182
    OpGraphARM = 4183
    OpGraphInputARM = 4184
    OpGraphSetOutputARM = 4185
    OpGraphEndARM = 4186
    OpTypeGraphARM = 4190
    OpConstantCompositeReplicateEXT = 4461
    OpSpecConstantCompositeReplicateEXT = 4462


# Instructions that do not affect the values of a graph.
REMARKS = {
    *(Op.OpNop, Op.OpSourceContinued, Op.OpSource, Op.OpSourceExtension),
    *(Op.OpMemberName, Op.OpModuleProcessed),
}
SHADERS = {
    *(Op.OpEntryPoint, Op.OpExecutionMode, Op.OpFunction, Op.OpTypeFunction),
    *(Op.OpTypeVector, Op.OpTypeMatrix, Op.OpTypeImage, Op.OpTypeSampler, Op.OpTypeRuntimeArray),
}


class Capability(enum.IntEnum):
    """Capabilities that a module may require."""

    Matrix = 0
    Shader = 1
    Float16 = 9
    Int64 = 11
    Int16 = 22
    Int8 = 39
    TensorsARM = 4174
    StorageTensorArrayDynamicIndexingARM = 4175
    GraphARM = 4191
    Float8EXT = 4212
    BFloat16TypeKHR = 5116
    VulkanMemoryModel = 5345
    ReplicatedCompositesEXT = 6024


EXTENSIONS = {
    "SPV_ARM_graph",
    "SPV_ARM_tensors",
    "SPV_EXT_float8",
    "SPV_EXT_replicated_composites",
    "SPV_KHR_bfloat16",
    "SPV_KHR_non_semantic_info",
    "SPV_KHR_vulkan_memory_model",
}
EXTENSION_OF = {
    Capability.TensorsARM: "SPV_ARM_tensors",
    Capability.GraphARM: "SPV_ARM_graph",
    Capability.Float8EXT: "SPV_EXT_float8",
    Capability.BFloat16TypeKHR: "SPV_KHR_bfloat16",
    Capability.ReplicatedCompositesEXT: "SPV_EXT_replicated_composites",
}


class Decoration(enum.IntEnum):
    """Decorations of an id; none of them affects the values of a graph."""

    SpecId = 1
    ArrayStride = 6
    Restrict = 19
    Aliased = 20
    NonWritable = 24
    NonReadable = 25
    Binding = 33
    DescriptorSet = 34


LOGICAL, VULKAN = 0, 3  # addressing and memory models
UNIFORM_CONSTANT = 0  # storage class
DEBUG_GRAPH, DEBUG_OPERATION = 1, 2  # instructions of DEBUG_SET


class Width(NamedTuple):
    """The width of a number type in bits, and the encoding of floats that are not IEEE 754."""

    bits: int
    encoding: int | None = None


INTEGERS = {8: DType.INT8, 16: DType.INT16, 32: DType.INT32, 64: DType.INT48}
FLOATS = {
    Width(16): DType.FP16,
    Width(32): DType.FP32,
    Width(16, 0): DType.BF16,
    Width(8, 4214): DType.FP8E4M3,
    Width(8, 4215): DType.FP8E5M2,
}
CAPABILITY_OF = {
    DType.INT8: Capability.Int8,
    DType.INT16: Capability.Int16,
    DType.INT48: Capability.Int64,
    DType.FP16: Capability.Float16,
    DType.BF16: Capability.BFloat16TypeKHR,
    DType.FP8E4M3: Capability.Float8EXT,
    DType.FP8E5M2: Capability.Float8EXT,
}
# Float encodings of later versions.
OTHER_ENCODINGS = {
    4223: "Float6E2M3",
    4224: "Float6E3M2",
    4225: "Float4E2M1",
    4226: "Float8UnsignedE8M0",
    4227: "MXInt8",
}

# Tools that write graphs or arbitrary modules, by their registered number.
TOOLS = {
    5: "Arm",
    7: "SPIR-V Tools Assembler",
    17: "SPIR-V Tools Linker",
    22: "LLVM MLIR SPIR-V Serializer",
    43: "LLVM SPIR-V Backend",
    47: "Arm",
}


# The TOSA instruction set. Operands are an operator's attributes, then its inputs, in the order of
# the operator table.

NUMBERS = {
    operator.name: operator.instruction
    for operator in spec.OPERATORS.values()
    if operator.instruction is not None
}
INSTRUCTIONS = {number: name for name, number in NUMBERS.items()}


def inputs(operator: Operator, count: int) -> tuple[Argument, ...]:
    """The argument of each of `count` inputs of an instruction; a tensor list has 1 or more."""
    first = operator.inputs[0]
    is_list = first.form is Form.TENSOR_LIST
    return (first,) * max(count, 1) if is_list else operator.inputs
