"""Rules of "Elementwise Binary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.checks._common import broadcast_errors, broadcast_shape, input1_shape

add_shape = arithmetic_right_shift_shape = bitwise_and_shape = broadcast_shape
bitwise_or_shape = bitwise_xor_shape = intdiv_shape = logical_and_shape = broadcast_shape
logical_left_shift_shape = logical_right_shift_shape = logical_or_shape = broadcast_shape
logical_xor_shape = maximum_shape = minimum_shape = mul_shape = broadcast_shape
pow_shape = sub_shape = broadcast_shape

add_errors = arithmetic_right_shift_errors = bitwise_and_errors = broadcast_errors
bitwise_or_errors = bitwise_xor_errors = intdiv_errors = logical_and_errors = broadcast_errors
logical_left_shift_errors = logical_right_shift_errors = logical_or_errors = broadcast_errors
logical_xor_errors = maximum_errors = minimum_errors = mul_errors = broadcast_errors
pow_errors = sub_errors = broadcast_errors

table_shape = input1_shape
