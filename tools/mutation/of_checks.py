"""Mutants of the rules' common part, of operators by element, and of control flow."""

from __future__ import annotations

from mutation.changes import (
    assign,
    change,
    condition,
    drop,
    exchange,
    forget,
    left,
    result,
    right,
    skip,
    unsigned,
    unwrap,
)
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "checks/__init__.py",
        "checks/test_every_operator.py lowering/test_variables.py lowering/test_unpredictable.py",
        {
            "_rules": [
                change("'tosajax.checks.'", "'tosajax.ops.'"),
                unwrap(".lower"),
                change("kinds", "sorted(kinds)"),
                change("kinds", "reversed(kinds)"),
                change("getattr()", "_ if kind != 'errors' else None"),
                change("getattr()", "_ if kind != 'levels' else None"),
                change("getattr()", "_ if kind != 'undefined' else None"),
            ],
            "Rules.require": [
                change("'tosajax.checks.require.'", "'tosajax.checks.'"),
                unwrap(".lower"),
                change("'_require'", "'_requires'"),
            ],
            "_chapter": [change("is", "is not")],
            "RULES": [change(".values()", "list(_)[:-1]")],
        },
    ),
    *mutants(
        "checks/_common.py",
        "checks/test_every_operator.py checks -k not require",
        {
            "_OUTPUT": [change("3", "2")],
            "list_value": [condition("value is None")],
            "lists_known": [change("all", "any")],
            "output_errors": [condition("len(c.output.shape) != len(wanted)")],
            "rank_errors": [
                change("!=", ">"),
                assign("rank", "(len(c.input1.shape), len(c.output.shape))"),
            ],
            "size_errors": [change("math.prod", "sum", 0), change("!=", ">")],
            "length_errors": [change("!=", "<")],
            "minimum_errors": [
                change("<", "<="),
                change("min", "max"),
                change("numbers", "numbers[1:]", 0),
            ],
            "axis_errors": [change("<", "<="), change("<=", "<"), right("<=")],
            "input_shape": [change("c.input", "c.output")],
            "input1_shape": [change("c.input1.shape", "c.input1.shape[::-1]")],
            "constant_shape": [condition("False"), change("c.output.values", "c.output")],
            "broadcast_shape": [
                change("!=", ">", 0),
                change("a", "b", 4),
                condition("True", 0),
                left("and"),
                change("1", "2", 1),
            ],
            "broadcast_errors": [change("'e1'", "'e2'", 0), change("'e1'", "'arguments'", 1)],
            "window_size": [change("1", "0", 0), left("+"), change("+", "-")],
            "window_errors": [
                left("+"),
                change("<", "<="),
                condition("False", 0),
                condition("False", 1),
                change("!=", "<"),
            ],
            "limits": [drop("1"), change(">", ">=")],
            "list_limits": [
                assign("lists", "('output_list', 'input_list')"),
                change("'MAX_TENSOR_LIST_SIZE'", "'MAX_KERNEL'"),
            ],
        },
    ),
    *mutants(
        "checks/activation.py",
        "checks/test_activation.py",
        {
            "clamp_shape": [forget("clamp_shape")],
            "clamp_errors": [
                change("<", "<="),
                change("<", ">"),
                change("'e1'", "'e2'"),
                change("'e2'", "'e1'"),
                condition("not _", 0),
                drop("'max_val'"),
                drop("'min_val'"),
                change("np.isnan", "np.isinf"),
                skip("return"),
            ],
            "_bound_errors": [
                drop("'max_val'"),
                unsigned("not", 0),
                change("int", "int | float"),
                left("|"),
                change("<=", "<", 0),
                left("<=", 1),
                change("'attributes'", "'e1'"),
            ],
        },
    ),
    *mutants(
        "checks/indices.py",
        "checks/test_indices.py",
        {
            "argmax_shape": [
                change("!=", "=="),
                change("c.axis", "c.axis + 1"),
                change("!=", "<"),
                change("enumerate()", "enumerate(c.input.shape, 1)"),
            ],
            "argmax_errors": [
                change("'e1'", "'e2'"),
                change("len()", "_ - 1"),
                change("len()", "_ + 1"),
                change("c.input", "c.output"),
                change("or", "and"),
                left("or"),
                change("'e2'", "'arguments'"),
            ],
        },
    ),
    *mutants(
        "checks/call.py",
        "checks/test_call.py checks/test_every_operator.py lowering/test_control_flow.py "
        "lowering/test_variables.py",
        {
            "Call.__init__": [
                change("around", "ALONE", 0),
                skip("self._values.update", 0),
                change("around", "ALONE", 1),
            ],
            "_input_values": [
                change(
                    "arguments(operator, node.inputs, spec.Kind.INPUT).items",
                    "arguments(operator, node.inputs, spec.Kind.OUTPUT).items",
                ),
                change("operand", "operand[:2]", 1),
                change("operand", "reversed(operand)", 1),
                change("is", "is not"),
                left("and"),
                unwrap("int"),
                change("int()", "abs(_)"),
            ],
            "Call.known": [change("is not", "is"), result("True"), result("False")],
            "Call.label": [unwrap(".lower")],
            "_attribute_values": [
                unwrap("node.attributes.get", argument=1),
                drop("a.default"),
                change("is", "is not"),
            ],
            "_output_values": [
                assign("results", "arguments(operator, node.inputs, spec.Kind.INPUT)"),
                change("tuple()", "tensors[value[0]]"),
            ],
            "Call.__getattr__": [skip("raise")],
        },
    ),
    *mutants(
        "checks/comparison.py",
        "checks/test_comparison.py",
        {
            "equal_shape": [
                forget("equal_shape"),
                change("broadcast_shape", "lambda c: (c.output.shape,)"),
                change(
                    "broadcast_shape",
                    "lambda c: (tuple(map(max, c.input1.shape, c.input2.shape)),)",
                ),
            ],
            "equal_errors": [
                forget("equal_errors"),
                change("broadcast_errors", "lambda c: iter(())"),
                change(
                    "broadcast_errors",
                    "lambda c: broadcast_errors(c) if c.input1.shape else iter(())",
                ),
                change("broadcast_errors", "lambda c: iter(list(broadcast_errors(c)) * 2)"),
            ],
        },
    ),
    *mutants(
        "checks/control_flow.py",
        "checks/test_control_flow.py",
        {
            "cond_if_shape": [
                change("c.then_graph.output_tensors", "c.then_graph.input_tensors"),
                change("c.then_graph.output_tensors", "c.input_list"),
            ],
            "while_loop_shape": [change("c.input_list", "c.cond_graph.output_tensors")],
            "cond_if_errors": [
                change("'e2'", "'e3'"),
                change("then", "other", 0),
                change("other", "then", 0),
                change("then", "other", 1),
                change("'output_list'", "'input_list'", 1),
                assign("size", "len(c.condition.shape) or 1"),
                condition("size > 2"),
                change("'e6'", "'e7'"),
            ],
            "while_loop_errors": [
                change("c.output_list", "c.input_list"),
                change("condition", "body", 0),
                change("'e4'", "'e5'"),
                change("body.output_tensors", "body.input_tensors"),
                condition("len(results) != 1", 0),
                change("any", "all"),
            ],
            "while_loop_levels": [forget("while_loop_levels")],
            "_list_errors": [
                condition("[t.shape for t in tensors] != [t.shape for t in wanted]"),
                condition("[t.dtype for t in tensors] != [t.dtype for t in wanted]"),
                condition(
                    "any(((t.shape, t.dtype) != (w.shape, w.dtype)"
                    " for t, w in zip(tensors, wanted)))"
                ),
            ],
            "_shapes": [condition("False")],
        },
    ),
    *mutants(
        "checks/control_flow.py",
        "lowering/test_control_flow.py",
        {"_nesting_errors": [change(">=", ">"), change("depth", "depth + 1", 0)]},
    ),
    *mutants(
        "checks/conv.py",
        "checks/test_conv.py",
        {
            "conv2d_zero_points": [change("'weight_zp'", "'input_zp'"), change("'e2'", "'e1'")],
            "_PAD": [
                assign(
                    "_PAD", "('pad_d0', 'pad_d1', 'pad_bottom', 'pad_top', 'pad_left', 'pad_right')"
                )
            ],
            "_STRIDE": [assign("_STRIDE", "('stride_d', 'stride_x', 'stride_y')")],
            "conv2d_shape": [change("channels", "c.input.shape[-1]")],
            "conv2d_errors": [change("channels", "1")],
            "depthwise_conv2d_shape": [change("*", "+")],
            "depthwise_conv2d_errors": [right("*"), change("!=", ">")],
            "transpose_conv2d_shape": [
                left("-", 0),
                change("+", "-", 4),
                change("kernel_x", "kernel_y"),
            ],
            "transpose_conv2d_errors": [
                change("1", "0", 0),
                change("<=", "<", 0),
                change("min", "max", 0),
                change("kernel_x", "kernel_y", 0),
                change("'e3'", "'e4'"),
                condition("True", 2),
                change("!=", ">"),
                right("+"),
                change("channels", "c.input.shape[-1]"),
                exchange('"e6"', '"e7"'),
            ],
            "transpose_conv2d_levels": [
                change("kernel_y", "kernel_x"),
                change("left", "right"),
                change("'MAX_STRIDE'", "'MAX_KERNEL'", 1),
            ],
            "_spans": [left("-", 0), left("-", 2), left("+", 1)],
            "_errors": [
                change("0", "1"),
                change("1", "2", 0),
                change("'e5'", "'e4'"),
                change("6", "5", 0),
                change("6", "5", 1),
            ],
            "_bias_errors": [drop("1")],
            "_shape": [change("0", "1")],
            "_levels": [change("*", "+", 0), exchange("y", "x", 0)],
        },
    ),
    *mutants(
        "checks/custom.py",
        "lowering/test_custom_ops.py",
        {
            "custom_levels": [
                forget("custom_levels"),
                result("iter(())"),
                result("iter(list(list_limits(c, level)) * 2)"),
                result("(p for p in list_limits(c, level) if p.label != 'custom.l1')"),
                result("(p for p in list_limits(c, level) if p.label != 'custom.l2')"),
                result("list_limits(c, level) if len(c.input_list) > 64 else iter(())"),
                result("(p._replace(label='custom.l1') for p in list_limits(c, level))"),
                result("(p._replace(label=f'{p.label}1') for p in list_limits(c, level))"),
            ],
        },
    ),
    *mutants(
        "checks/elementwise_binary.py",
        "checks/test_elementwise_binary.py",
        {
            "bitwise_or_shape": [forget("bitwise_or_shape")],
            "logical_xor_shape": [forget("logical_xor_shape")],
            "pow_errors": [forget("sub_errors"), change("broadcast_errors", "input1_shape")],
            "logical_xor_errors": [forget("logical_xor_errors")],
            "pow_shape": [change("broadcast_shape", "input1_shape")],
            "table_shape": [change("input1_shape", "lambda c: (c.table.shape,)")],
        },
    ),
    *mutants(
        "checks/elementwise_ternary.py",
        "checks/test_elementwise_ternary.py",
        {
            "select_shape": [
                forget("select_shape"),
                change("broadcast_shape", "lambda c: (c.input1.shape,)"),
                change("broadcast_shape", "lambda c: (c.input2.shape,)"),
                change("broadcast_shape", "lambda c: (c.output.shape,)"),
                change("broadcast_shape", "lambda c: (broadcast_shape(c)[0][::-1],)"),
                change("broadcast_shape", "broadcast_errors"),
            ],
            "select_errors": [
                forget("select_errors"),
                change("broadcast_errors", "lambda c: iter(())"),
                change("broadcast_errors", "lambda c: iter(list(broadcast_errors(c)) * 2)"),
                change(
                    "broadcast_errors",
                    "lambda c: (p for p in broadcast_errors(c) if 'rank' in str(p))",
                ),
                change(
                    "broadcast_errors",
                    "lambda c: (p for p in broadcast_errors(c) if 'input3' not in str(p))",
                ),
                change(
                    "broadcast_errors",
                    "lambda c: (p._replace(label='select.e') for p in broadcast_errors(c))",
                ),
            ],
        },
    ),
    *mutants(
        "checks/elementwise_unary.py",
        "checks/test_elementwise_unary.py",
        {
            "abs_shape": [forget("abs_shape")],
            "reciprocal_shape": [
                forget("reciprocal_shape"),
                change("input1_shape", "lambda c: (c.input1.shape[::-1],)"),
            ],
            "exp_shape": [forget("exp_shape")],
            "negate_zero_points": [
                change("'e1'", "'e2'"),
                change("'input1_zp'", "'output_zp'"),
            ],
            "negate_errors": [forget("negate_errors")],
        },
    ),
    *mutants(
        "checks/elementwise_unary.py",
        "validation/test_constants.py",
        {
            "_more_than_the_least": [
                change("np.iinfo(np.int32).min", "np.iinfo(np.int32).max"),
                change("np.iinfo(np.int32).min", "np.iinfo(np.int32).min + 1"),
            ],
        },
    ),
    *mutants(
        "checks/values.py",
        "validation/test_constants.py checks/test_conv.py checks/test_type_conversion.py",
        {
            "ValueRule.message": [change("0", "-1", 0), change(">", ">=")],
            "in_range": [change("<", "<=", 1), change(">", ">="), left("|"), right("|")],
            "zero_point": [change("is not", "is")],
            "zero_point_rule": [change("is not", "is"), change("!=", ">"), change("and", "or")],
            "_has_bits_below_the_first": [left("<<"), change("!=", ">")],
            "derived_problems": [change("any", "all"), change("is not", "is")],
            "fits_int32": [
                change("DType.INT32.minimum", "0"),
            ],
            "shifted": [change("1", "2", 0), change("+", "-"), left(">>", 0)],
        },
    ),
    *mutants(
        "checks/type_conversion.py",
        "validation/test_constants.py checks/test_require_values.py",
        {
            "_scaled": [change("<", "<=", 0), change(">=", ">", 2), change("+", "-")],
        },
    ),
    *mutants(
        "checks/zero_points.py",
        "lowering/test_zero_points.py",
        {
            "open_zero_points": [unsigned("not"), change("call.label", "str")],
            "check_zero_points": [change("in", "not in")],
            "input_zero_points": [change("in", "not in")],
        },
    ),
    *mutants(
        "lowering/zero_points.py",
        "lowering/test_zero_points.py",
        {
            "judge_zero_points": [change("|", "&")],
            "_is_known": [right("and"), unsigned("not")],
        },
    ),
    *mutants(
        "checks/variable.py",
        "checks/test_variable.py lowering/test_variables.py",
        {
            "variable_errors": [
                change("is not", "is"),
                condition("False", 0),
                condition("len(tensor.shape) != len(c.var_shape)", 1),
                change("'attributes'", "'e1'", 0),
            ],
            "variable_undefined": [change("1", "2"), change(">", ">="), change("'r3'", "'r2'")],
            "variable_write_undefined": [change("'r1'", "'r2'"), exchange('"r3"', '"r4"')],
            "variable_read_undefined": [change("'r4'", "'r3'")],
            "variable_read_shape": [right("or")],
            "_access": [
                change("declared", "shape"),
                condition("len(tensor.shape) > 9", 0),
                change("is not", "is"),
            ],
            "_variable": [change("c.name", "next(iter(c.around.variables))", 0)],
        },
    ),
]
