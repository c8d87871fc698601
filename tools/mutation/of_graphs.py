"""Mutants of what runs a graph: passes, lowering, costs and inputs."""

from __future__ import annotations

from mutation.changes import change, condition, left, right, skip, unsigned
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "lowering/build.py",
        "lowering",
        {
            "_constants": [change("name_in()", "name"), condition("True", 0)],
        },
    ),
    *mutants(
        "lowering/control_flow.py",
        "lowering/test_control_flow.py lowering/test_unpredictable.py",
        {
            "_merged_flags": [left("|", 0), right("|", 1)],
            "_with_flags": [change("_merged_flags()", "flags")],
            "while_loop_step": [
                change("_merged_flags()", "flags", 0),
                change("_merged_flags()", "flags", 1),
            ],
        },
    ),
    *mutants(
        "rewrite/unsigned_ends.py",
        "rewrite/test_unsigned_ends.py",
        {
            "_chosen": [
                change("is", "is not", 1),
                condition("False", 2),
                condition("False", 3),
                condition("False", 4),
                condition("False", 5),
                condition("False", 6),
                condition("False", 7),
            ],
            "_rescale": [change("half", "0", 0), change("half", "0", 1)],
            "_unsigned": [left("+", 0), left("+", 1), left("+", 2), left("and")],
        },
    ),
    *mutants(
        "lowering/operators.py",
        "passes/test_binding.py lowering",
        {
            "_with_fixed": [change("in", "not in"), left("+")],
            "custom_step": [skip("_check_results")],
            "_check_results": [change("!=", "==")],
        },
    ),
    *mutants(
        "lowering/variable_steps.py",
        "lowering/test_variables.py",
        {
            "read_step": [condition("False"), unsigned("~")],
            "write_step": [change("True", "False")],
            "_checked_variable": [change("!=", "=="), skip("raise")],
        },
    ),
    *mutants(
        "passes/folding.py",
        "passes/test_folding.py",
        {
            "fold": [change("not in", "in")],
            "_is_kept": [left("and"), condition("False")],
            "_is_exact": [condition("not _"), change("not in", "in"), unsigned("not")],
            "_grows": [change(">", "<"), change("_LARGE", "0")],
            "_live": [left("or"), unsigned("not"), skip("read.update")],
        },
    ),
    *mutants(
        "passes/binding.py",
        "passes/test_binding.py",
        {
            "_bound_input": [left("and", 0), change("and", "or", 1), change("in", "not in", 1)],
            "_settled": [left("or"), change("1", "0")],
            "_reshape_shape": [change("!=", "=="), change("//", "*"), unsigned("-")],
            "_slice_size": [left("-")],
            "_filled": [change("==", "!=")],
        },
    ),
    *mutants(
        "passes/one_example.py",
        "passes/test_one_example.py",
        {
            "one_example": [change("1", "0", 0), left("or", 0), condition("False", 0)],
            "_grows": [change("2", "1")],
            "_keeps_examples": [
                left("or", 0),
                change("!=", "==", 0),
                change("==", "!=", 4),
            ],
            "_broadcasts": [change("1", "2", 1)],
        },
    ),
    *mutants(
        "runtime/cost.py",
        "runtime/test_cost.py",
        {
            "peak_bytes": [
                skip("left.update"),
                change("max()", "peak"),
                skip("left.subtract"),
                change(">", ">="),
            ],
            "_bytes_of": [condition("False")],
            "_slow_kernels": [left("or", 1)],
            "_scope_of": [change("max", "min")],
        },
    ),
    *mutants(
        "runtime/inputs.py",
        "runtime/test_executable.py runtime/test_cost.py",
        {
            "check_known": [left("or")],
            "_accepted": [skip("check_shape"), skip("check_range")],
        },
    ),
    *mutants(
        "lowering/inputs.py",
        "lowering/test_inputs.py runtime/test_executable.py",
        {
            "checked_inputs": [
                skip("_check_params"),
                skip("_check_state"),
                skip("check_count"),
                skip("check_shape"),
                skip("check_range"),
            ],
            "_check_params": [condition("False", 0), condition("False", 1), skip("_check_form")],
            "_check_state": [condition("False", 0), condition("False", 1)],
            "_check_form": [condition("False", 0), condition("False", 1)],
            "_conversion": [left("and", 0), condition("False", 1), condition("False", 2)],
            "check_range": [change("<", "<="), left("or", 1), change(">", ">=")],
            "_reshaping": [condition("False", 1), left("and", 2)],
            "_transposition": [left("or")],
            "_transposed": [change("!=", "==")],
        },
    ),
    *mutants(
        "lowering/inputs.py",
        "runtime/test_inputs.py",
        {
            "holds": [condition("False"), left("and", 0)],
            "typed": [left("and", 0), condition("False", 1)],
        },
    ),
    *mutants(
        "graph/quantization.py",
        "graph/test_quantization.py",
        {
            "Clipping.refuse": [condition("False", 0)],
            "Clipping.is_large": [change(">", ">=")],
            "Clipping.add": [change("<", "<=", 0), change("-", "+", 1)],
            "Clipping._hint": [condition("False", 0)],
        },
    ),
    *mutants(
        "arguments/types.py",
        "runtime/test_executable.py",
        {"check_count": [condition("False")]},
    ),
]
