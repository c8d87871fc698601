"""Hand-made modules of one input and one output."""

from __future__ import annotations

HEAD = """
OpCapability Shader
OpCapability VulkanMemoryModel
OpCapability TensorsARM
OpCapability GraphARM
OpExtension "SPV_ARM_tensors"
OpExtension "SPV_ARM_graph"
%tosa = OpExtInstImport "TOSA.001000.1"
OpMemoryModel Logical Vulkan
"""
_ENUMERANTS = {
    "Shader": 1,
    "Kernel": 6,
    "Int64": 11,
    "Int16": 22,
    "Int8": 39,
    "TensorsARM": 4174,
    "GraphARM": 4191,
    "VulkanMemoryModel": 5345,
    "Logical": 0,
    "Physical64": 2,
    "Vulkan": 3,
    "UniformConstant": 0,
    "Binding": 33,
    "DescriptorSet": 34,
}

# Types that most modules need: %t is FP32[2,3].
TYPES = """
%bool = OpTypeBool
%i8 = OpTypeInt 8 0
%i16 = OpTypeInt 16 0
%i32 = OpTypeInt 32 0
%i64 = OpTypeInt 64 0
%f16 = OpTypeFloat 16
%f32 = OpTypeFloat 32
%0 = OpConstant %i32 0
%1 = OpConstant %i32 1
%2 = OpConstant %i32 2
%3 = OpConstant %i32 3
%4 = OpConstant %i32 4
%array1 = OpTypeArray %i32 %1
%array2 = OpTypeArray %i32 %2
%shape1 = OpConstantComposite %array1 %1
%shape2 = OpConstantComposite %array1 %2
%shape3 = OpConstantComposite %array1 %3
%shape23 = OpConstantComposite %array2 %2 %3
%t = OpTypeTensorARM %f32 %2 %shape23
%row = OpTypeTensorARM %f32 %1 %shape3
%list2 = OpTypeTensorARM %i32 %1 %shape2
"""

GRAPH = """
%x_pointer = OpTypePointer UniformConstant {input}
%y_pointer = OpTypePointer UniformConstant {output}
%x_variable = OpVariable %x_pointer UniformConstant
%y_variable = OpVariable %y_pointer UniformConstant
%graph_type = OpTypeGraphARM 1 {input} {output}
OpGraphEntryPointARM %graph "main" %x_variable %y_variable
%graph = OpGraphARM %graph_type
%x = OpGraphInputARM {input} %0
{body}
OpGraphSetOutputARM %y %0
OpGraphEndARM
"""


def module(
    body: str = "%y = OpExtInst %t %tosa 31 %x",  # ABS
    declared: str = "",
    *,
    head: str = HEAD,
    names: str = "",
    input: str = "%t",
    output: str = "%t",
    tail: str = "",
) -> str:
    """The text of a module."""
    graph = GRAPH.format(body=body, input=input, output=output)
    return plain("\n".join([head, names, TYPES, declared, graph, tail]))


def plain(text: str) -> str:
    """The text with numbers in place of the names of enumerants."""
    return "\n".join(
        " ".join(str(_ENUMERANTS.get(token, token)) for token in line.split(" "))
        for line in text.splitlines()
    )
