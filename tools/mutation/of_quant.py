"""Mutants of quantization: where integers are derived, and where scales are chosen."""

from __future__ import annotations

from mutation.changes import change, condition, left, result, right, skip, unsigned, unwrap
from mutation.listing import mutants

MUTANTS = [
    *mutants(
        "quant/tune/costs.py",
        "quant/tune/test_costs.py",
        {
            "Limits.fits": [
                change(">", "<", 0),
                change(">", "<", 1),
                left("or"),
                right("or"),
                change("<=", ">="),
            ],
            "Limits.cost": [condition("False")],
        },
    ),
    *mutants(
        "quant/tune/lifts.py",
        "quant/tune/test_costs.py",
        {"refused": [left("-")], "_nearest": [change("in", "not in", 0)]},
    ),
    *mutants(
        "quant/convert/activation_specs.py",
        "quant/test_preparation.py",
        {"ActivationSpecs.__init__": [change("moved_into()", "graph.outputs")]},
    ),
    *mutants(
        "graph/costs.py",
        "graph/test_costs.py",
        {
            "_fused": [left("and", 0), right("and", 0), left("and", 1), right("and", 1)],
            "_takes": [
                *(left("or", at) for at in range(4)),
                *(right("or", at) for at in range(4)),
            ],
            "_wide": [change("is", "is not", 0), change("is", "is not", 1)],
            "_Around.is_alone": [left("and"), right("and")],
            "_Around.ends": [left("and", 0), right("and", 1)],
            "_filled_macs": [change("<=", ">")],
            "_lifetimes": [change("max", "min", 1), change("min", "max"), left("-", 1)],
        },
    ),
    *mutants(
        "quant/graphs/inner.py",
        "quant/graphs/test_inner.py",
        {
            "elementwise_operands": [right("and", 0), change("all", "any")],
            "with_narrow_copies": [right("and")],
            "operands_of_maxima": [left("or", 0), left("or", 1), right("or", 0)],
            "_is_maximum": [left("or"), change(">", "<=")],
            "_terms_of_sums": [left("or"), right("or"), left("and", 0)],
            "_inner": [right("and", 1)],
            "_reads_wide": [left("or", 0), right("or", 0), left("or", 2)],
            "_is_residual_sum": [right("and", 0)],
            "is_relu": [change("==", "!=")],
        },
    ),
    *mutants(
        "quant/limiting.py",
        "quant/ranges/test_limited.py",
        {
            "_limited": [change(".min", ".max"), change(".max", ".min")],
            "_still": [change("<=", ">")],
        },
    ),
    *mutants(
        "quant/convert/limited.py",
        "quant/ranges/test_limited.py",
        {"read_by_functions_alone": [left("and", 0), right("and", 0), change("-", "|", 1)]},
    ),
    *mutants(
        "quant/graphs/fake_quants.py",
        "quant/graphs/test_fake_quants.py",
        {
            "FakeQuant.bits": [change("+", "-", 1)],
            "FakeQuant.is_narrow": [change("==", "!=")],
            "FakeQuant.zero_point": [condition("False", 0)],
            "FakeQuant.is_known": [change("<=", "<", 0), left("or", 1), change("==", "!=")],
            "_Chain.is_whole": [left("and"), right("and")],
            "_Chain.after": [change("max", "min"), left("or"), left("and")],
            "_Matcher.match": [left("and"), left("or", 0), right("or", 1)],
            "_Matcher.straight_through": [change("==", "!=", 1)],
            "_Matcher._of": [condition("False", 0), change("max", "min")],
            "_Matcher.limit": [condition("False"), right("or")],
            "_Matcher._nearest": [right("and", 0), change("any", "all"), change("==", "!=", 1)],
            "_Matcher._is_below_half": [right("and"), change("==", "!=")],
            "_Matcher._is_tie": [condition("False", 1), right("and")],
            "_integers": [change("<", ">")],
            "_is_within": [left("and"), right("and")],
            "_Matcher._truncated": [left("and", 2)],
            "_Matcher._rounding": [change("-", "+", 0)],
            "without_fake_quants": [change("==", "!=")],
        },
    ),
    *mutants(
        "quant/ranges/on_grid.py",
        "quant/graphs/test_fake_quants.py",
        {
            "_largest_integers": [change("==", "!=", 0), change("+", "-")],
            "scales_of_integers": [change("<", ">")],
            "ends_around_zero": [change("<=", "<", 0), change("<=", "<", 1), left("or")],
            "qparams_of_ends": [change("<", ">"), change("-", "+", 0)],
        },
    ),
    *mutants(
        "quant/graphs/channels.py",
        "quant/graphs/test_early_scales.py quant/graphs/test_simplify.py",
        {
            "is_convolution": [right("and", 0), right("and", 1)],
            "by_channel": [change("np.all", "np.any")],
        },
    ),
    *mutants(
        "quant/graphs/early_scales.py",
        "quant/graphs/test_early_scales.py",
        {
            "_Writer.write": [left("and", 1)],
            "_Writer._passes_on": [change("==", "!=", 1), condition("False", 1)],
            "_Writer._is_of_convolutions": [left("or", 1), right("and", 0)],
            "_Writer._parts": [change("!=", "==", 0), change("!=", "==", 1)],
            "_Writer._of_channels": [change(">", "<")],
        },
    ),
    *mutants(
        "quant/model/output_noise.py",
        "quant/test_error_report.py",
        {
            "noise_of_outputs": [change("/", "*")],
            "_along_probe": [change("jnp.linalg.norm()", "1.0")],
        },
    ),
    *mutants(
        "quant/error_report.py",
        "quant/test_error_report.py",
        {
            "worst_part": [change("ratios.argmin()", "ratios.argmax()"), change("<", ">")],
            "_errors": [change("x.own", "x.wanted")],
            "_row": [change(">", "<", 1)],
        },
    ),
    *mutants(
        "quant/convert/states.py",
        "quant/convert/test_states.py",
        {
            "check_states": [change("not in", "in"), change("!=", "==")],
            "ties_of_states": [
                condition("False", 0),
                condition("False", 1),
                change("min", "max"),
                change("in", "not in"),
            ],
        },
    ),
    *mutants(
        "quant/sequences.py",
        "quant/test_sequences.py",
        {
            "scan": [skip("model.check")],
            "_steps": [condition("False", 0), change("not in", "in", 1)],
            "_check_lengths": [
                condition("False", 0),
                left("or", 1),
                right("or", 1),
                change(">", ">="),
            ],
            "_initial_state": [condition("False", 1), condition("False", 0)],
            "_outputs": [condition("False", 0)],
            "_before": [change("1", "2")],
            "_with_states": [condition("False", 0)],
        },
    ),
    *mutants(
        "quant/graphs/canonical.py",
        "quant/graphs/test_inner.py",
        {
            "_scaled_choice": [change("1", "2", 0)],
            "_chosen_product": [change("factor", "one", 2), change("1", "0", 0)],
        },
    ),
    *mutants(
        "quant/graphs/canonical.py",
        "quant/graphs/test_canonical.py",
        {
            "_slice_of_operand": [
                right("and"),
                left("and"),
                change("<=", "<", 0),
                change("<=", "<", 1),
            ]
        },
    ),
    *mutants(
        "quant/freezing.py",
        "quant/test_freezing.py",
        {
            "warn_of_joined": [change("<", ">="), left("and")],
            "_steps_after": [change("/", "*"), condition("False", 0)],
        },
    ),
    *mutants(
        "quant/model/arguments.py",
        "quant/test_batches_or_inputs.py",
        {"_is_batch": [left("and", 1), change(">=", ">")], "are_batches": [condition("False", 1)]},
    ),
    *mutants(
        "quant/convert/activation_specs.py",
        "quant/graphs/test_inner.py quant/test_preparation.py",
        {
            "ActivationSpecs.of": [
                left("and", 0),
                condition("True", 0),
                condition("False", 0),
            ],
        },
    ),
    *mutants(
        "quant/model/on_host.py",
        "quant/model/test_on_host.py",
        {
            "_equations_for": [condition("False", 1)],
            "_is_defined": [left("or"), condition("False")],
            "_divided": [change("//", "*")],
            "_converted": [left("or"), change(">", "<")],
            "_rounded": [change(">=", ">"), condition("True")],
            "_cumulative_sum": [condition("False")],
        },
    ),
    *mutants(
        "quant/tune/noise.py",
        "quant/tune/test_noise.py",
        {
            "lowers_noise": [change("<", ">="), left("or"), right("or"), left("and"), left("+")],
            "falls_clearly": [condition("False", 0), change("<", ">="), change(">=", "<")],
            "_errors": [left("/", 0), left("/", 1)],
            "relative_noise": [left("/", 0), unwrap("np.maximum")],
        },
    ),
    *mutants(
        "quant/tune/automatic.py",
        "quant/tune/test_automatic.py",
        {
            "_Search._outliers": [change(">", "<")],
            "_Search._is_no_worse": [change(">", "<"), change("!=", "==")],
        },
    ),
    *mutants(
        "quant/tune/automatic.py",
        "quant/tune/test_automatic.py",
        {
            "_Search._is_better": [change(">", "<"), left("and"), left("or", 1)],
            "_Search._try": [change(">", "<")],
            "_Search._ranges_of": [condition("True")],
            "_Search._rounds_better": [left("and", 1), right("and", 1), change("<", ">")],
            "_Search._noise_of_weights": [change("self.heads", "self.names")],
        },
    ),
    *mutants(
        "quant/convert/channel_scales.py",
        "quant/convert/test_channel_scales.py",
        {
            "channel_count": [
                change("is", "is not", 0),
                *(side("and", n) for side in (left, right) for n in (0, 2, 3, 4)),
                *(change(*signs) for signs in (("<=", ">="), (">=", "<="))),
                change("all", "any"),
            ],
            "factors_read": [change("not in", "in")],
            "_has_channel_scales": [
                condition("False"),
                *(side("and", n) for side in (left, right) for n in range(2)),
            ],
        },
    ),
    *mutants(
        "quant/ranges/channel_scales.py",
        "quant/convert/test_channel_scales.py",
        {
            "channel_ends": [unsigned("-", 1), change("0", "y", 0)],
            "_factors": [unwrap("np.minimum"), change(">", ">="), change("1", "0", 0)],
        },
    ),
    *mutants(
        "quant/observing.py",
        "quant/convert/test_channel_scales.py quant/test_outliers.py",
        {
            "observed_batches": [condition("True", 0), left("and", 1), right("and", 1)],
            "_rows_kept": [condition("True")],
            "updated_states": [left("*", 0)],
        },
    ),
    *mutants(
        "quant/model/recipes.py",
        "quant/convert/test_channel_scales.py",
        {
            "channel_factors": [unwrap("lax.stop_gradient")],
            "Scale.terms": [
                condition("False", 3),
                condition("False", 4),
                skip("divisors.append", 1),
            ],
        },
    ),
    *mutants(
        "quant/tune/islands.py",
        "quant/convert/test_channel_scales.py",
        {"with_rules": [condition("False", 1)]},
    ),
    *mutants(
        "quant/training/fitting.py",
        "quant/convert/test_channel_scales.py",
        {"_Run._step": [unwrap("without_fixed_steps")]},
    ),
    *mutants(
        "compare/scales.py",
        "quant/test_scales_travel.py",
        {"scales_in": [left("and"), change("-", "+")]},
    ),
    *mutants(
        "compare/measure.py",
        "quant/test_scales_travel.py",
        {"_Values.add": [left("*", 0)]},
    ),
    *mutants(
        "quant/outliers.py",
        "quant/test_outliers.py",
        {
            "outliers": [change("<", ">"), change("<=", ">=")],
            "_left_out": [
                left("or", 0),
                right("or", 0),
                change("<", ">", 1),
                unwrap("np.minimum"),
                unwrap("np.maximum"),
            ],
            "times_usual": [left("&"), right("&"), left("/"), change(">", "<", 1)],
            "without": [condition("False", 0), condition("False", 1)],
            "warned_outliers": [left("-", 0)],
            "sized_outputs": [left("and"), right("and")],
        },
    ),
    *mutants(
        "quant/tune/lifts.py",
        "quant/tune/test_lifts.py",
        {
            "by_miss": [left("and"), right("and"), change("<", ">"), left("/"), left("+")],
            "_missed": [left("-"), change("!=", "=="), change(">", "<=", 1)],
            "sets_to_lift": [change("<", "<=")],
            "best_set": [left("+"), change("<=", ">=")],
            "outputs_to_lift": [
                *(side("and", n) for side in (left, right) for n in range(4)),
                change("not in", "in"),
            ],
            "lift_some": [change("not in", "in", 0), change("not in", "in", 1)],
        },
    ),
    *mutants(
        "quant/model/parts.py",
        "quant/ranges/test_limited.py quant/tune/test_automatic.py",
        {"_head": [condition("False", 0), left("and", 1)]},
    ),
    *mutants(
        "quant/graphs/early_clamps.py",
        "quant/graphs/test_early_clamps.py",
        {
            "_Writer.write": [left("and", 0), right("and", 0)],
            "_Writer._is_read_once": [left("and"), right("and")],
            "_Writer._source": [left("or"), right("or")],
            "_passes_on": [left("and", 0), left("and", 1)],
        },
    ),
    *mutants(
        "quant/graphs/nan_constants.py",
        "quant/graphs/test_nan_constants.py",
        {
            "_nans_for_argmax": [right("and", 0), left("and", 0)],
            "_nan_sources": [change("then", "other", 1)],
            "Nans.check": [left("or"), right("or")],
        },
    ),
    *mutants(
        "quant/convert/elementwise_ternary.py",
        "quant/graphs/test_nan_constants.py",
        {"_with_nan": [change("1", "0", 1)]},
    ),
    *mutants(
        "quant/qparams.py",
        "quant/test_qparams.py",
        {
            "multiplier_and_shift": [left("|")],
            "unchecked_multiplier_and_shift": [
                change("127", "126"),
                left("|"),
                change("7", "8"),
                change("1", "0", 0),
                left(">>", 4),
                left(">>", 5),
                left("+", 1),
                change("31", "30"),
                unwrap("jnp.minimum"),
            ],
        },
    ),
    *mutants(
        "quant/storages/integers.py",
        "quant/test_qparams.py",
        {
            "Integers.grid": [
                change("2", "1"),
                left("-", 1),
                condition("not _"),
            ],
            "Integers.quantize": [
                left("+", 0),
                change("divide()", "x * qparams.scale"),
                unwrap("jnp.clip"),
                change("_HALF_EVEN", "lax.RoundingMethod.AWAY_FROM_ZERO"),
                change("<", ">"),
                left("+", 2),
            ],
            "Integers.dequantize": [change("-", "+"), left("*")],
            "zero_point_integer": [
                condition("False"),
                change("jnp.clip()", "value"),
                change("_HALF_EVEN", "lax.RoundingMethod.AWAY_FROM_ZERO"),
            ],
        },
    ),
    *mutants(
        "quant/storages/float8.py",
        "quant/convert/test_float8.py",
        {
            "Float8.quantize": [unwrap("jnp.clip"), change("reciprocal()", "qparams.scale")],
            "Float8.dequantize": [left("*")],
        },
    ),
    *mutants(
        "quant/ranges/observers.py",
        "quant/ranges/test_observers.py",
        {
            "scale_and_zero_point": [
                change("jnp.maximum", "jnp.minimum"),
                unsigned("-", 0),
                change("-", "+", 0),
                condition("not _", 1),
                change("1.0", "0.0", 0),
                change("+", "-"),
                change("-", "+", 2),
                change("jnp.clip()", "grid.qmin", 2),
            ],
            "tail": [change("100", "99", 0)],
            "_range_of": [
                unwrap("_bounded"),
                change("jnp.inf", "0.0", 0),
                change("jnp.max", "jnp.min"),
            ],
            "_widen": [change("jnp.minimum", "jnp.maximum"), change("state.high", "own.high")],
            "_average": [change("1", "0"), change("&", "|"), change("either", "old")],
            "_count": [
                change("jnp.maximum", "jnp.minimum"),
                left(">>", 0),
                left(">>", 1),
                left("&"),
                left("+", 1),
                change(">", "<"),
            ],
            "_fold": [change("31", "1"), left("+")],
            "_exponent": [change("126", "127")],
            "percentile_qparams": [
                left("+"),
                condition("not _"),
                change("jnp.maximum()", "state.range.high"),
            ],
            "_quantile": [
                left("-", 0),
                change("<=", "<", 0),
                change("0.5", "0.0"),
                left("-", 3),
                left("+", 1),
                change("<=", "<", 1),
            ],
            "_least_loss_scale": [
                change("jnp.min", "jnp.max"),
                change("jnp.argmax", "jnp.argmin"),
                change("jnp.minimum", "jnp.maximum", 0),
                change("2", "0"),
            ],
            "_not_zero": [unsigned("-")],
            "_squared_error": [
                change("12", "6"),
                change("3", "1", 0),
                change("+", "-", 1),
                left("*", 1),
            ],
            "_divergence": [
                change("&", "|"),
                change("jnp.inf", "0.0"),
                right("-", 5),
                left("/", 2),
            ],
            "_saturated": [left("-", 0), change("last", "first", 0)],
            "_spread": [change("!=", "=="), left("/")],
        },
    ),
    *mutants(
        "quant/sampling.py",
        "quant/test_follow.py",
        {
            "_sampled_tables": [condition("not _", 0), condition("True", 1)],
            "_samples": [
                change("TABLE_STEP", "127", 1),
                unwrap("lax.stop_gradient", 1),
                left("+", 1),
                left("/"),
            ],
        },
    ),
    *mutants(
        "quant/qparams.py",
        "quant/convert/test_activation.py",
        {"spread": [left("+", 0), left("+", 1)]},
    ),
    *mutants(
        "quant/freezing.py",
        "quant/convert/test_activation.py",
        {
            "_without_idle_spreads": [
                change("==", "!=", 1),
                condition("False", 4),
                change("1", "3", 3),
            ]
        },
    ),
    *mutants(
        "quant/model/arguments.py",
        "quant/test_follow.py",
        {"check_sampled": [condition("False", 1), condition("not _", 0)]},
    ),
    *mutants(
        "quant/tune/bits.py",
        "quant/tune/test_bits.py",
        {
            "check_bits": [change("2", "1", 0), change("<=", "<", 1)],
            "of_same_range": [change("-", "+"), condition("not _")],
            "mean_bits": [change("&", "|"), left("*"), left("/")],
            "_pareto_front": [change("min", "max"), change("<=", "<"), left("+", 0)],
        },
    ),
    *mutants(
        "grad/once.py",
        "grad/test_once.py",
        {
            "once": [
                unsigned("-", 0),
                unsigned("-", 1),
                condition("False", 0),
            ],
            "_transposed": [unwrap("_fenced.bind")],
            "_kept": [unwrap("once")],
            "sums_once": [condition("False")],
        },
    ),
    *mutants(
        "grad/shared.py",
        "grad/test_shared.py",
        {"_key": [condition("False", 0), condition("False", 1)]},
    ),
    *mutants(
        "grad/type_conversion.py",
        "grad/test_once.py grad/test_exact_rows.py",
        {
            "_rescale": [unwrap("once"), change("2", "4")],
            "rescale": [unwrap("gradient_once")],
        },
    ),
    *mutants(
        "grad/type_conversion.py",
        "grad/test_type_conversion.py",
        {"rescale_before_clamp": [condition("False"), condition("True")]},
    ),
    *mutants(
        "lowering/uses.py",
        "grad/test_type_conversion.py",
        {"uses_of": [change("==", ">=", 0), left("-", 0)]},
    ),
    *mutants(
        "quant/storages/division.py",
        "quant/storages/test_division.py",
        {
            "_divide": [left("/")],
            "_differentiate": [unsigned("-"), left("+"), *(left("/", at) for at in range(3))],
        },
    ),
    *mutants(
        "grad/depthwise.py",
        "grad/test_depthwise.py",
        {
            "_to_input": [
                change("-", "+", 1),
                right("-", 3),
                unsigned("-", 1),
                change("window.dilation", "ones"),
            ],
            "_to_weight": [change("window.stride", "window.dilation")],
            "_batched": [change("0", "1", 1), change("1", "0", 3)],
            "_in_channels": [unsigned("-", 1)],
        },
    ),
    *mutants(
        "grad/conv.py",
        "grad/test_conv.py",
        {
            "_linear": [change("shape.stride", "shape.dilation", 1)],
            "_depthwise": [
                change("jnp.repeat", "jnp.tile"),
                change("shape.stride", "shape.dilation", 0),
            ],
            "_window": [change("'pad'", "'dilation'"), change("'dilation'", "'stride'")],
            "_transposed": [left("-", 0)],
        },
    ),
    *mutants(
        "quant/training/steps.py",
        "quant/training/test_steps.py",
        {
            "_relative_change": [unwrap("jnp.log", 0), left("-"), left("/", 1)],
            "_chain_rule": [left("*", 0), left("*", 1), left("*", 2)],
            "_qparams_step": [
                unwrap("jnp.clip", 0),
                unwrap("jnp.clip", 1),
                change("jnp.expm1", "jnp.exp", 0),
                left("*", 1),
            ],
            "_half_range": [left("-")],
            "without_fixed_steps": [result("steps", 1)],
            "relative": [change("state.start", "params['qparams']", 0)],
        },
    ),
    *mutants(
        "quant/sampling.py",
        "quant/convert/test_activation.py",
        {"_samples": [left("+", 0)]},
    ),
    *mutants(
        "quant/tune/islands.py",
        "quant/tune/test_islands.py",
        {
            "with_rules": [condition("False", 0)],
            "_carried_qparams": [left("and", 0), condition("False", 1)],
            "_ends": [left("-"), left("*")],
        },
    ),
    *mutants(
        "quant/qmodel.py",
        "quant/tune/test_islands.py",
        {"prepared": [left("or")]},
    ),
    *mutants("quant/qmodel.py", "quant/test_lifting.py", {"prepared": [right("or")]}),
    *mutants(
        "quant/tune/rescuing.py",
        "quant/tune/test_islands.py",
        {
            "rescue": [condition("False", 1)],
            "lift_candidates": [condition("False", 1)],
            "_smallest_set": [change("<=", ">=", 1)],
            "_verified": [change("<=", ">=")],
            "lift_rules": [condition("False", 0), change("DType.INT8", "own.dtype")],
            "_order_by_gain": [change("sorted()", "range(count)")],
        },
    ),
    *mutants(
        "quant/model/parts.py",
        "quant/tune/test_reconstruction.py",
        {
            "cuts": [left("and", 0)],
            "_subgraph": [left("and")],
        },
    ),
    *mutants(
        "quant/tune/blocks.py",
        "quant/tune/test_reconstruction.py",
        {
            "Block.learned": [change("<", ">")],
            "Block._objective": [left("/", 1), left("+", 0)],
            "Block._rounded_outputs": [change("soft_rounding", "_to_integer")],
            "Block._error": [left("*")],
            "_dropped": [change("<", ">")],
            "_regularizer": [left("**"), left("-", 3)],
            "_with_scales": [condition("False", 0)],
            "_without_bits": [unwrap("lax.stop_gradient")],
        },
    ),
    *mutants(
        "quant/tune/walking.py",
        "quant/tune/test_reconstruction.py",
        {"_blocks": [condition("False", 0)], "_checked_ends": [left("and", 0)]},
    ),
    *mutants(
        "quant/tune/reconstruction.py",
        "quant/tune/test_reconstruction.py",
        {"_importance": [unwrap("jax.tree.map"), left("+", 0)]},
    ),
    *mutants(
        "quant/tune/gptq.py",
        "quant/tune/test_gptq.py",
        {
            "round_in_order": [
                left("+", 0),
                left("@"),
                left("/"),
                unsigned("-", 0),
            ],
            "_rounded": [unwrap("np.clip"), left("*"), left("+")],
            "_patches": [left("-", 0), change("stride", "d")],
            "_layers": [left("or"), right("or")],
        },
    ),
    *mutants(
        "quant/graphs/canonical.py",
        "quant/tune/test_bias_correction.py",
        {"_with_own_bias": [left("and"), right("and"), left("or", 0)]},
    ),
    *mutants(
        "quant/tune/bias_correction.py",
        "quant/tune/test_bias_correction.py",
        {"_corrected_biases": [left("or", 0)], "_Correction._mean_error": [change(">", "<", 0)]},
    ),
    *mutants(
        "quant/tune/scalings.py",
        "quant/tune/test_equalization.py",
        {
            "Scaling.applied": [left("/")],
            "_Channels._is_own": [change("==", "!=")],
            "_Channels._joined": [left("or"), right("or")],
            "_Channels._along": [right("or")],
            "_Channels._gated": [condition("False"), change("<", ">")],
            "_Channels._product": [condition("False", 1), left("and", 0), right("and", 0)],
            "_Channels._weighed": [right("or")],
            "_Channels._moved": [left("and", 0), right("and", 0)],
            "_Channels.scalings": [left("&"), right("&")],
            "_is_relu": [left("and"), right("and")],
            "_last_axis": [condition("False", 1)],
            "find_scalings": [unwrap("channels.pin")],
        },
    ),
    *mutants(
        "quant/tune/equalization.py",
        "quant/tune/test_equalization.py",
        {
            "_ratio": [left("/"), left("**", 0), right("**", 1)],
            "_relative_range": [left("/"), unwrap("xp.maximum", 0), left("+", 0), left("+", 1)],
            "_scaled_by_input_channel": [left("and"), right("and")],
            "_is_zero": [left("or", 0), right("or", 0)],
        },
    ),
    *mutants(
        "quant/tune/mixing.py",
        "quant/tune/test_mixing.py",
        {
            "storage_cost": [left("and"), change("8", "16", 1)],
            "_pareto_front": [change("<", ">")],
            "_rules": [left("and")],
            "_scores": [left("-")],
            "mixed_precision": [change("<=", ">=")],
        },
    ),
    *mutants(
        "quant/model/room.py",
        "quant/model/test_room.py",
        {
            "fitted_qparams": [
                change("<", "=="),
                change(">", "<", 1),
                unwrap("jnp.maximum", 0),
            ],
            "_least_unit": [change("_LEAST_RATIO", "0.0"), left("*", 0), left("*", 2)],
        },
    ),
    *mutants(
        "quant/model/norms.py",
        "quant/model/test_norms.py",
        {
            "Norm.shift": [left("-"), left("*", 0)],
            "Norm.factor": [change("self.deviation", "self.gamma", 0)],
            "Norm.__call__": [left("+"), left("*")],
            "held_statistics": [unwrap("map")],
            "BatchNorms.of": [unwrap("lax.pmean", 0), unwrap("lax.pmean", 1), left("+")],
            "shifted": [left("-", 0), left("-", 1), left("+", 0), left("+", 1)],
            "_with_moved_statistics": [
                left("-", 0),
                left("-", 1),
                unwrap("jnp.square", 1),
                unwrap("jnp.sqrt"),
            ],
            "Moments.with_moments": [left("+", 1), left("+", 2), left("*", 0), left("*", 1)],
        },
    ),
    *mutants(
        "quant/tune/statistics.py",
        "quant/model/test_norms.py",
        {"_joint_norm": [left("+"), unwrap("jnp.sqrt"), left("*", 0)]},
    ),
    *mutants(
        "quant/training/losses.py",
        "quant/training/test_losses.py",
        {
            "distillation": [left("-"), left("*", 1)],
            "_divergence": [left("**"), left("/", 0), unsigned("-", 0)],
            "squared_difference": [unwrap("jnp.square")],
        },
    ),
    *mutants(
        "quant/training/schedule.py",
        "quant/training/test_schedule.py",
        {
            "Schedule.with_held_scales": [change("<", "<=")],
            "Schedule.averaged": [unwrap("jnp.minimum"), change("10", "1")],
            "Schedule.check": [condition("False", 0), condition("False", 1)],
            "_widened": [condition("qparams.storage.is_integer")],
            "_with_more_bits": [unwrap("jnp.minimum"), left("*"), change("1", "0"), left("/", 1)],
            "_dithered": [change("0.5", "0.0", 0), left("*", 0), left("+")],
        },
    ),
    *mutants(
        "quant/training/fitting.py",
        "quant/training/test_fitting.py",
        {
            "_Run.start": [change("_copy()", "params", 0)],
            "_Run.result": [left("or")],
            "_Looks.look": [condition("False", 0), unwrap("_copy")],
            "_with_score": [unwrap("_copy"), left("+"), change("jnp.int32()", "state.waited")],
            "fit": [
                change("derived", "params", 1),
                *(condition("False", at) for at in (1, 2, 3, 5)),
            ],
            "_train": [condition("False", at) for at in (1, 2, 3, 4)],
        },
    ),
    *mutants(
        "quant/training/examples.py",
        "quant/training/test_fitting.py",
        {
            "examples": [change(">=", ">"), condition("False", 2)],
            "_batches_from": [left("%")],
        },
    ),
    *mutants(
        "quant/training/fitting.py",
        "quant/training/test_schedule.py",
        {
            "_Run.observe": [change("_copy()", "state.average", 1)],
            "_train": [condition("False", 0)],
        },
    ),
    *mutants(
        "quant/convert/control_flow.py",
        "quant/convert/test_control_flow.py",
        {
            "while_loop": [change("c.in_unit()", "c.get(name)"), skip("c.observe")],
            "_converted": [change("inner.in_unit()", "inner.get(name)")],
        },
    ),
    *mutants(
        "quant/graphs/recording.py",
        "quant/convert/test_control_flow.py",
        {"recorded": [change("record.times", "0", 0)]},
    ),
]
