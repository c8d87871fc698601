"""Which values of a tensor its range holds."""

import math

import jax.numpy as jnp
import numpy as np

from tosajax.quant.ranges.relevance import Logit, LogitTerm, RowFactor, softmax_margin


def test_logits_far_below_the_greatest_of_their_row_count_as_the_least_that_matter():
    x = jnp.array([[0, -3, -1e4], [50, 49, -50]], jnp.float32)
    margin = softmax_margin(3, 8)
    assert margin == math.log(512 * 3)
    least = jnp.array([[-margin], [50 - margin]], jnp.float32)
    values = Logit("x", 1).values({"x": x}, 8)
    np.testing.assert_array_equal(values, np.maximum(x, least))
    # Exponentials so far below are half a step of the greatest together.
    assert 3 * math.exp(-softmax_margin(3, 16)) * 2**16 <= 0.5 + 1e-9


def test_rows_that_are_masked_as_a_whole_do_not_count():
    x = jnp.array([[0, -3], [-1e4, -1e4 + 2]], jnp.float32)
    values = np.asarray(Logit("x", 1).values({"x": x}, 8))
    assert np.isnan(values).tolist() == [[False, False], [True, True]]


def test_terms_of_logits_count_as_far_as_they_mask():
    scores, mask = jnp.array([[1, 2, 3]], np.float32), np.array([[0, -1e4, -9]], jnp.float32)
    tensors = {"scores": scores, "mask": mask, "sum": scores + mask}
    least = 1 - softmax_margin(3, 8)
    values = LogitTerm("mask", "scores", "sum", 1).values(tensors, 8)
    np.testing.assert_allclose(values, [[0, least - 2, -9]], rtol=1e-6)
    # Where the mask is enough, the score does not matter.
    values = LogitTerm("scores", "mask", "sum", 1).values(tensors, 8)
    np.testing.assert_array_equal(values, np.array([[1, np.nan, 3]], np.float32))


def test_factors_of_rows_of_zeros_do_not_count():
    factor = jnp.array([[[300]], [[1]]], jnp.float32)
    product = jnp.array([[[0, 0]], [[-1, 0.5]]], jnp.float32)
    values = RowFactor("f", ("p",)).values({"f": factor, "p": product}, 8)
    np.testing.assert_array_equal(values, np.array([[[np.nan]], [[1]]], np.float32))
    values = RowFactor("f", ("p",)).values({"f": factor, "p": product * 0}, 8)
    assert np.isnan(np.asarray(values)).all()
    product = jnp.array([[[np.nan, np.inf]], [[-1, 0.5]]], jnp.float32)
    values = RowFactor("f", ("p",)).values({"f": factor, "p": product}, 8)
    np.testing.assert_array_equal(values, np.array([[[np.nan]], [[1]]], np.float32))
    # A row that is 0 in one product may matter in another.
    tensors = {"f": factor, "p": product, "q": jnp.ones((2, 1, 3))}
    np.testing.assert_array_equal(RowFactor("f", ("p", "q")).values(tensors, 8), factor)
