"""Mutants of readers and writers."""

from __future__ import annotations

from mutation.changes import change, condition, left, right, skip
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "io/flatbuffer.py",
        "io/test_flatbuffer.py",
        {
            "_Reader.run": [change("*", "+"), skip(".check")],
            "_Reader.text": [change("1", "2", 2)],
        },
    ),
    *mutants(
        "io/interchange.py",
        "io/test_io_structure.py",
        {
            "_with_declaration": [left("or", 0)],
        },
    ),
    *mutants(
        "io/mlir/octets.py",
        "io/mlir/test_octets.py",
        {
            "Octets.take": [change(">", ">=")],
            "Octets.item": [change(">=", ">")],
            "Octets.text": [skip(".wrong")],
        },
    ),
    *mutants(
        "io/mlir/old.py",
        "io/mlir/test_mlir_old.py",
        {
            "_dtype": [right("or", 0)],
            "_zero_points": [change("1", "2", 0)],
        },
    ),
    *mutants(
        "io/mlir/old_attributes.py",
        "io/mlir/test_mlir_old_bytecode.py",
        {
            "_unpacked": [condition("not _", 1)],
            "Attributes._attribute": [skip("raise", 1)],
        },
    ),
    *mutants(
        "io/mlir/old_bytecode.py",
        "io/mlir/test_mlir_old_bytecode.py",
        {
            "File._say_resources": [condition("not _", 0)],
        },
    ),
    *mutants(
        "io/mlir/old_operations.py",
        "io/mlir/test_mlir_old_bytecode.py",
        {
            "Body.regions": [right("or")],
        },
    ),
    *mutants(
        "io/mlir/writer.py",
        "io/mlir/test_mlir_bytecode.py",
        {
            "_Block.__init__": [condition("not _")],
        },
    ),
    *mutants(
        "io/naming.py",
        "io/test_tflite.py",
        {
            "_with_own_outputs": [skip("ends.add")],
            "with_ends": [change("in", "not in")],
        },
    ),
    *mutants(
        "io/onnx/floors.py",
        "io/test_onnx.py",
        {
            "_corrected": [change("//", "*"), change("-", "+", 0)],
        },
    ),
    *mutants(
        "io/onnx/quantized.py",
        "io/test_onnx.py",
        {
            "_Rewriting._move": [condition("not _", 0)],
            "_Expansion._bias": [change("*", "+")],
        },
    ),
    *mutants(
        "io/onnx/resizes.py",
        "io/test_onnx.py",
        {
            "_simplify": [change("and", "or", 0)],
            "_check_scales": [change("*", "/")],
        },
    ),
    *mutants(
        "io/pre_1_0/files.py",
        "io/pre_1_0/test_every_operator.py",
        {
            "_Block.__init__": [change("in", "not in")],
        },
    ),
    *mutants(
        "io/pre_1_0/files.py",
        "io/pre_1_0/test_files.py",
        {
            "_Block.variable": [condition("not _", 0)],
        },
    ),
    *mutants(
        "io/pre_1_0/rules/conv.py",
        "io/mlir/test_mlir_old.py",
        {
            "_check_output_shape": [change("1", "2", 5)],
        },
    ),
    *mutants(
        "io/pre_1_0/rules/conv.py",
        "io/pre_1_0/test_products.py",
        {
            "fully_connected": [change("0", "1", 1)],
        },
    ),
    *mutants(
        "io/pre_1_0/rules/data_layout.py",
        "io/mlir/test_mlir_old.py",
        {
            "pad": [change("1", "2")],
        },
    ),
    *mutants(
        "io/pre_1_0/rules/elementwise_unary.py",
        "io/mlir/test_mlir_old.py",
        {
            "negate": [change("0", "1")],
        },
    ),
    *mutants(
        "io/pre_1_0/rules/type_conversion.py",
        "io/pre_1_0/test_semantics.py",
        {
            "_End.signed": [change("-", "+")],
        },
    ),
    *mutants(
        "io/pre_1_0/rules/variable.py",
        "io/pre_1_0/test_shapes_and_state.py",
        {
            "_name": [change("or", "and")],
        },
    ),
    *mutants(
        "io/pre_1_0/step.py",
        "io/mlir/test_mlir_old_bytecode.py",
        {
            "new_tensor": [change("in", "not in")],
        },
    ),
    *mutants(
        "io/spirv/constants.py",
        "io/spirv/test_spirv_corruption.py",
        {
            "Constants._composite": [change("!=", "==")],
        },
    ),
    *mutants(
        "io/spirv/declaring.py",
        "io/spirv/test_spirv_round_trip.py",
        {
            "Declarations._scalar": [change("is", "is not")],
        },
    ),
    *mutants(
        "io/spirv/module.py",
        "io/spirv/test_spirv_modules.py",
        {
            "Module._remark": [condition("not _")],
            "Module.entry_point": [condition("not _", 4)],
        },
    ),
    *mutants(
        "io/spirv/types.py",
        "io/spirv/test_spirv_errors.py",
        {
            "_positive": [skip("raise")],
        },
    ),
    *mutants(
        "io/spirv/words.py",
        "io/spirv/test_spirv_round_trip.py",
        {
            "encoded": [change("|", "&")],
        },
    ),
    *mutants(
        "io/reopening.py",
        "io/test_tflite.py",
        {
            "_open_sizes": [change("and", "or")],
            "_takes": [change("==", "!=", 0)],
        },
    ),
    *mutants(
        "io/tflite/edits.py",
        "io/test_tflite.py",
        {
            "Model.close": [condition("not _", 1)],
            "Model._make_dense": [change("<", ">")],
        },
    ),
    *mutants(
        "io/tflite/schema.py",
        "io/test_tflite.py",
        {
            "_check_tensor": [change("!=", "==")],
            "_check_indices": [change("<=", "<", 0)],
        },
    ),
    *mutants(
        "io/tflite/sparse.py",
        "io/test_tflite.py",
        {
            "dense": [change("*", "+", 0)],
            "_children": [change("!=", "==", 0)],
        },
    ),
    *mutants(
        "io/vgf/joining.py",
        "io/test_vgf.py",
        {
            "_Joined._refine": [right("and")],
        },
    ),
]
