"""Mutants of native kernels."""

from __future__ import annotations

from mutation.changes import change, condition, left, result, right, skip, unsigned, unwrap
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "native/codegen/requantize.py",
        "native/test_kernels.py",
        {
            "_write_upper": [change("4", "8", 1), change("1", "2", 0), change("1", "0", 1)],
            "_write_full": [change("31", "32"), change("8", "4"), right("+", 0)],
            "_apply_upper": [change("<", ">"), change("1", "0", 2), change("30", "31", 0)],
            "_apply_full": [change("32", "31"), condition("False")],
            "EvenOdd.from_i32": [change(">>", "<<", 1)],
            "EvenOdd.from_words": [left("|", 0), change("32", "31", 1), left("&", 1)],
        },
    ),
    *mutants(
        "native/codegen/requantize.py",
        "native/test_addition.py",
        {
            "ByteScaleForm.for_constant": [condition("False", 1)],
            "ByteScale.from_i64": [
                change("46", "62"),
                change("31", "32"),
                left("-", 2),
                left("-", 3),
            ],
            "ByteScale.apply": [condition("True", 1), left("^"), left("-", 0)],
        },
    ),
    *mutants(
        "native/kernels/epilogue.py",
        "native/test_kernels.py",
        {
            "EpilogueWriter.store": [left("+", 0), right("+", 2), right("+", 3)],
            "EpilogueWriter._channel_counts": [condition("False"), change("1", "0")],
            "EpilogueWriter._write": [left("+", 0), right("+", 0), left("+", 1)],
            "_in_lane_order": [change(".even", ".odd")],
            "EpilogueKey.scale_rows": [condition("False")],
            "EpilogueKey.add_table_size": [left("*")],
        },
    ),
    *mutants(
        "native/codegen/narrowing.py",
        "native/test_kernels.py",
        {
            "pack_portably": [left("-", 1), change("1", "2", 1)],
            "Narrowing.clamp": [left("+")],
            "Narrowing.narrow": [left("and"), change("2", "1", 1)],
            "_clamped": [unwrap("values.smax(least).smin")],
            "_in_lane_order": [left("+", 0), left("+", 1)],
        },
    ),
    *mutants(
        "native/calls/handler.py",
        "native/test_kernels.py",
        {
            "_helper_count": [left("-")],
            "_schedule": [unsigned("-", 0)],
            "_write_release": [change("1", "0", 1)],
        },
    ),
    *mutants(
        "native/calls/handler.py",
        "native/test_chain.py",
        {
            "_pointers": [left("+", 1), left("+", 2), left("*", 0)],
            "_write_stage": [left("+")],
            "_write_item": [left("*"), left("+", 0), left("+", 1)],
            "_write_work": [skip("code.call", 0)],
        },
    ),
    *mutants(
        "native/calls/schedule.py",
        "native/test_chain.py",
        {
            "_CallPlanner.__init__": [left("//")],
            "_CallPlanner._assign_places": [left("+", 2), left("+", 7)],
            "_CallPlanner._last_uses": [condition("False")],
            "_CallPlanner._rounds": [left("or", 0), change("begin", "begin + 1", 0)],
            "_CallPlanner._round": [condition("True", 0), condition("True", 1)],
            "_CallPlanner._plan": [left("*")],
            "_CallPlanner._is_thread_local": [left("and"), right("and")],
            "_CallPlanner._allocate": [change(">=", ">"), left("and"), left("//")],
            "_CallPlanner._live_range": [condition("True"), left("+", 0)],
            "_CallPlanner._pointers": [left("//"), left("*"), condition("False", 1)],
        },
    ),
    *mutants(
        "native/call.py",
        "native/test_chain.py",
        {
            "run_all": [condition("False", 0), left("and", 0), left("and", 1)],
        },
    ),
    *mutants(
        "lowering/chains.py",
        "lowering/test_chains.py",
        {
            "_continues": [condition("False", 0), left("and", 0), left("and", 1), right("and", 1)],
            "_batch_size": [condition("False", 1), condition("True", 0)],
        },
    ),
    *mutants(
        "native/codegen/floats.py",
        "native/test_float_kernels.py",
        {
            "clamp": [change("'olt'", "'ult'"), change("'ogt'", "'ugt'")],
        },
    ),
    *mutants(
        "native/kernels/epilogue.py",
        "native/test_float_kernels.py",
        {
            "EpilogueWriter._operands": [left("+", 0), left("+", 1)],
            "EpilogueWriter._of_padded": [
                left("*", 0),
                left("+", 0),
                unwrap("(channels - channel).smax", argument=0),
            ],
        },
    ),
    *mutants(
        "native/kernels/depthwise_float.py",
        "native/test_float_kernels.py",
        {
            "_Item._sums": [left("+", 1), right("+", 1), change("not in", "in")],
            "_Item._write_vector": [left("+", 0), right("+", 0), left("*", 0)],
        },
    ),
    *mutants(
        "native/call.py",
        "native/test_float_kernels.py",
        {
            "_is_column": [right("and"), left("and")],
            "convolve": [condition("False", 0)],
            "convolve_depthwise": [condition("False", 0), condition("False", 1)],
            "_convolve_depthwise_float": [condition("True"), condition("False")],
        },
    ),
    *mutants(
        "native/kernels/pool.py",
        "native/test_pool.py",
        {
            "_Item._combined": [condition("False", 0), condition("True", 1)],
            "_Item._finish": [condition("False", 1)],
        },
    ),
    *mutants(
        "lowering/fusions/floats.py",
        "lowering/test_float_fusions.py",
        {
            "_following": [
                left("or", 1),
                right("or", 1),
                left("and", 1),
                right("and", 1),
            ],
            "_is_step": [condition("False", at) for at in range(3)],
            "_kind": [left("or"), condition("False", 1), condition("False", 2)],
            "_pads_channels": [left("or", 0), right("or", 0), left("and"), right("and")],
            "float_obstacle": [condition("False", at) for at in range(3)],
            "_obstacle_of_window": [
                *(side("or") for side in (left, right)),
                *(side("and", at) for side in (left, right) for at in range(2)),
                change("%", "+"),
            ],
            "find_float_products": [side("and", at) for side in (left, right) for at in range(2)],
        },
    ),
    *mutants(
        "lowering/kernels.py",
        "lowering/test_chains.py",
        {"chain_step": [change("placeholder.shape", "placeholder.shape[::-1]")]},
    ),
    *mutants(
        "lowering/build.py",
        "lowering/test_chains.py",
        {"_chained": [change("not in", "in"), left("|")]},
    ),
    *mutants(
        "native/kernels/convolution.py",
        "native/test_kernels.py",
        {
            "_Item.write": [left("or", 0), right("or", 0)],
            "_Item._write_block": [left("-", 0), left("+", 1)],
        },
    ),
    *mutants(
        "native/kernels/row_block.py",
        "native/test_kernels.py",
        {
            "RowBlock.__init__": [change("%", "//"), left("-")],
            "RowBlock.input_row": [unsigned("-"), change("<", ">"), left("&"), left("-")],
            "RowBlock.copy_row": [
                left("*", 0),
                left("*", 1),
                left("*", 2),
                left("+", 0),
                left("+", 2),
            ],
            "RowBlock._fill": [left("*")],
            "RowBlock._copy": [
                left("*", 0),
                left("*", 1),
                left("-", 1),
                change("below", "count", 1),
            ],
        },
    ),
    *mutants(
        "native/kernels/depthwise.py",
        "native/test_kernels.py",
        {
            "_Item._copy_rows": [condition("False", 1), change("*", "+", 1)],
            "_Item._load_words": [change(".padding", ".out_row")],
            "_Item.write": [change("1", "0")],
        },
    ),
    *mutants(
        "native/kernels/gemm_tile.py",
        "native/test_kernels.py",
        {
            "accumulate": [change("*", "+", 1), condition("True", 1)],
            "accumulate_int16": [left("-", 1), change("8", "0"), left("*", 1)],
            "staging_conversions": [
                left("^", 0),
                left("^", 1),
                left("^", 2),
                change("8", "7"),
                left("-"),
            ],
            "join_bytes": [change("256", "128"), change("total", "lower[0]", 1)],
        },
    ),
    *mutants(
        "native/operands.py",
        "native/test_kernels.py",
        {
            "channel_operands": [condition("False", 1), condition("False", 2)],
            "_int48_bias_words": [left("-", 0), left("-", 1), left("+"), change("32", "31")],
            "array_module": [change("jnp", "np")],
            "_allows_upper_only": [change(">=", "<="), left("and")],
        },
    ),
    *mutants(
        "native/tiling.py",
        "native/test_kernels.py",
        {
            "pixels_per_vector": [condition("True", 0), condition("True", 1)],
            "_is_1x1": [left("and"), right("and")],
            "_is_padded": [result("False")],
            "_staging": [right("and", 0), change("==", "!=", 0), right("and", 4)],
            "_read": [change("max", "min", 0)],
            "of_depthwise": [left("and"), right("and")],
        },
    ),
    *mutants(
        "native/kernels/matmul.py",
        "native/test_matmul.py",
        {
            "_Item.__init__": [change("-", "+"), change("//", "%", 1)],
            "_Item.write": [
                condition("False", 0),
                condition("False", 1),
                left("or", 0),
                left("-", 0),
                left("+", 1),
            ],
            "_Item._correct_rows": [left("-")],
            "_Item._row_sum": [left("+"), left("-")],
            "_Item._write_block": [left("-", 0), left("+", 0)],
            "_Item._pack": [condition("False")],
            "_Item._pack_word": [left("+")],
            "_Item._clear_rest": [left("+", 0), left("+", 1)],
            "_Item._store_bias": [left("+")],
            "_split_words": [condition("True"), change("32", "16")],
            "_Item._accumulate": [change("1", "2", 1)],
            "_Item._conversions": [change("255", "127"), change("8", "7")],
        },
    ),
    *mutants(
        "native/codegen/accumulators.py",
        "native/test_kernels.py",
        {
            "VectorAccumulators.step": [left("^"), change("*", "+", 1)],
            "PairAccumulators.__init__": [change("2", "1", 0)],
            "PairAccumulators.step": [change("16", "0", 1), change("32", "16")],
            "PairAccumulators.values": [left("+", 1)],
            "_transposed_2x2": [change("5", "6"), change("2", "3", 0)],
            "TileAccumulators.initialize": [left("+")],
            "TileAccumulators.step": [left("+", 0), left("+", 1), left("*", 2)],
            "TileAccumulators.values": [left("+", 1), left("*", 2)],
        },
    ),
    *mutants(
        "native/codegen/accumulators.py",
        "native/test_isa.py",
        {
            "TileAccumulators.enter": [skip("code.call")],
            "TileAccumulators.leave": [skip("code.call")],
            "TileAccumulators.tile_rows": [left("-"), change("16", "8", 0)],
        },
    ),
    *mutants(
        "native/codegen/isa.py",
        "native/test_compiler.py",
        {
            "_may_use_tiles": [change("0", "-1")],
            "features": [condition("False", 0), condition("False", 2)],
        },
    ),
    *mutants(
        "native/tiling.py",
        "native/test_kernels.py",
        {"cut_of": [condition("False", 0), change("max", "min")]},
    ),
    *mutants(
        "native/call.py",
        "native/test_kernels.py",
        {
            "convolve": [condition("False", 1)],
        },
    ),
    *mutants(
        "native/tiling.py",
        "native/test_matmul.py",
        {
            "_MOST_WIDE_TERMS": [change("256", "258")],
            "of_matmul": [condition("True", 0), unsigned("-", 0), left("and", 0), right("and", 0)],
            "_tiles": [left("*")],
        },
    ),
    *mutants(
        "native/kernels/gemm_tile.py",
        "native/test_matmul.py",
        {"pack_words": [condition("False", 2), left("-", 1)]},
    ),
    *mutants(
        "native/forms.py",
        "lowering/test_fusions.py",
        {
            "convolve_transposed": [change("0", "1", 3), right("-", 0), condition("True", 1)],
        },
    ),
    *mutants(
        "native/tiling.py",
        "lowering/test_fusions_int16.py",
        {"_MOST_TERMS": [change("510", "512")]},
    ),
    *mutants(
        "lowering/fusions/products.py",
        "lowering/test_fusions_int16.py",
        {
            "_MOST_TERMS": [left("//")],
        },
    ),
    *mutants(
        "native/calls/compiler.py",
        "native/test_compiler.py",
        {
            "_object_file": [condition("True")],
            "_cache_file": [change("text", "0")],
            "_target": [condition("False", 0), unsigned("not", 1)],
        },
    ),
    *mutants(
        "native/codegen/isa.py",
        "lowering/test_fusions.py",
        {"chosen": [condition("False", 0), change("s.is_default", "True")]},
    ),
    *mutants(
        "lowering/fusions/products.py",
        "lowering/test_fusions.py",
        {
            "_less_zero_point": [
                condition("False", 0),
                condition("False", 1),
                condition("True", 2),
            ],
            "_matmul": [condition("True", 1)],
            "_columns": [right("or", 1), left("or", 1)],
        },
    ),
    *mutants(
        "lowering/fusions/pattern.py",
        "lowering/test_fusions.py",
        {"clamp_of": [right("and", 0)]},
    ),
    *mutants(
        "lowering/fusions/additions.py",
        "lowering/test_fusions.py",
        {
            "ProductAddition.is_right": [change("==", "!=")],
            "joined": [condition("True", 0), change("max", "min")],
        },
    ),
    *mutants(
        "lowering/kernel_plan.py",
        "lowering/test_kernel_plan.py",
        {
            "KernelPlan._described": [condition("False", 0), condition("False", 1)],
            "KernelPlan.__str__": [change(">", ">=", 0), change(">", ">=", 1)],
            "_title": [change("is", "is not")],
        },
    ),
    *mutants(
        "lowering/kernel_plan.py",
        "lowering/test_fusions.py",
        {"KernelPlan.leaves_little": [condition("False", 2), change("<=", ">"), left("and")]},
    ),
    *mutants(
        "lowering/fusions/products.py",
        "runtime/test_reasons.py",
        {
            "is_integer_product": [right("and")],
            "integer_obstacle": [
                condition("False", 2),
                change("==", "!=", 1),
                change(">", ">=", 0),
                change(">", ">=", 1),
                condition("False", 5),
            ],
        },
    ),
    *mutants(
        "lowering/fusions/pattern.py",
        "lowering/test_fusions.py",
        {
            "is_rescale": [right("or"), change("DType.INT8", "DType.INT16")],
            "rounds_twice": [change("==", "!=")],
            "Reader.value": [condition("False")],
            "Reader.epilogue": [condition("False")],
        },
    ),
    *mutants(
        "lowering/fusions/slices.py",
        "lowering/test_fusions.py",
        {
            "needless_slice": [
                condition("False", 0),
                condition("False", 1),
                *(left("or", at) for at in (0, 1, 4, 5)),
                right("or", 4),
                right("and", 0),
                condition("True", 2),
            ],
        },
    ),
    *mutants(
        "lowering/fusions/pattern.py",
        "sweep/test_program.py",
        {"Reader.attribute": [condition("True")]},
    ),
    *mutants(
        "lowering/fusions/additions.py",
        "lowering/test_fusions.py",
        {
            "find_additions": [condition("True", 0), condition("True", 1), left("and", 0)],
            "_is_of_equal_shapes": [change(">=", "<=")],
            "_is_scaling": [left("and"), right("and")],
        },
    ),
    *mutants(
        "native/kernels/addition.py",
        "native/test_addition.py",
        {
            "_Item.write": [left("+", 0), change("4", "2")],
            "_Item._loaded": [change("lanes", "1", 1)],
        },
    ),
    *mutants(
        "native/kernels/fused_add.py",
        "native/test_addition.py",
        {
            "AddKey.tables": [change("scale.size", "0")],
            "_label": [left("+")],
            "AddWriter.rescaled_sums": [change("'SUB'", "'ADD'")],
            "AddWriter._rescaled": [condition("False")],
        },
    ),
    *mutants(
        "native/kernels/fused_add.py",
        "native/test_kernels.py",
        {"AddWriter.rescaled_sums": [unsigned("not"), condition("False", 0), condition("True", 0)]},
    ),
    *mutants(
        "native/kernels/pool.py",
        "native/test_pool.py",
        {
            "_covered": [change("0", "1"), right("-", 0), right("-", 1)],
            "_Item._reduced": [change("0", "1", 0)],
            "_Item._average_of": [
                change("29", "30"),
                change("1", "2", 1),
                left("-", 1),
                left("+", 2),
            ],
        },
    ),
    *mutants(
        "native/calls/threads.py",
        "native/test_threads.py",
        {
            "_write_task_began": [unsigned("-")],
            "_hand_over": [left("-")],
            "_write_claim": [left("-"), left("*")],
            "_claim_queued_tasks": [left("-")],
            "_park_in": [change("_PARKED", "_EMPTY", 1)],
        },
    ),
    *mutants(
        "lowering/fusions/pools.py",
        "lowering/test_fusions.py",
        {
            "_is_faster": [
                *(side("and", at) for side in (left, right) for at in range(2)),
                condition("False", 0),
            ]
        },
    ),
    *mutants(
        "runtime/compiled.py",
        "runtime/test_compiled.py",
        {"_is_native": [condition("True"), condition("False")]},
    ),
]
