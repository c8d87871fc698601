"""C functions of the recurrent layers: parameters, and outputs."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hifi.c_layers import (
    ALIGN,
    ALLOC,
    CNN,
    GRU,
    LSTM,
    OK,
    RECURRENT,
    SHAPE,
    SIZE,
    drawn,
    handle_of,
    process,
    process_arguments,
    process_faults,
    set_weights,
)
from hifi.memory import at
from oracle import hifi_recurrent as oracle
from oracle.hifi_oracle import draw

from tosajax.hifi import layers
from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import (
    CNNParam,
    Coefficients,
    GRUParam,
    Handle,
    LSTMParam,
    Pointer,
    Precision,
    Shape,
    matrix,
    vector,
)


@pytest.fixture
def rng():
    return np.random.default_rng(53)


# Parameters.


def contexts(layer):
    """The parameters that hold a state, with the types of their elements."""
    if layer is GRU:
        return {GRUParam.RESTORE_CONTEXT: np.int16}
    return {
        LSTMParam.RESTORE_CONTEXT_OUTPUT: np.int16,
        LSTMParam.RESTORE_CONTEXT_CELL: np.int32,
    }


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_parameters(layer, rng):
    config = layer.config(**SIZE)
    handle = handle_of(layer, config)
    get, put = (functools.partial(layer.call, f"{verb}_config", handle) for verb in ("get", "set"))
    for param, dtype in contexts(layer).items():
        read = at(np.ones(8, dtype))
        assert get(param, read) == OK
        np.testing.assert_array_equal(read, np.zeros(8))
        given = at(draw(rng, dtype, (10,)), offset=4)
        assert put(param, given) == OK
        wanted = given[:8].copy()
        given[:] = 0
        assert get(param, read) == OK
        np.testing.assert_array_equal(read, wanted)
    found = Pointer()
    assert get(layer.param.WEIGHT, found) == OK
    assert set(found.target) == {Coefficients()}
    matrices, biases = set_weights(layer, handle, config, drawn(rng, layer))
    for param, given in ((layer.param.WEIGHT, matrices), (layer.param.BIAS, biases)):
        assert get(param, found) == OK
        assert type(found.target) is type(given)
        for read, set_to in zip(found.target, given, strict=True):
            # The library keeps pointers, but no shapes.
            assert read.data is set_to.data
            assert read.shape == Shape()
    assert get(layer.param.INPUT_SHAPE, found) == OK
    assert found.target == vector(12)
    assert get(layer.param.OUTPUT_SHAPE, found) == OK
    assert found.target == vector(8)
    # Setting up again clears the state and the pointers.
    assert layer.call("init", handle, config) == OK
    for param, dtype in contexts(layer).items():
        read = at(np.ones(8, dtype))
        assert get(param, read) == OK
        assert not read.any()
    assert get(layer.param.BIAS, found) == OK
    assert set(found.target) == {Coefficients()}


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_contexts_are_aligned_to_4_bytes(layer):
    handle = handle_of(layer, layer.config(**SIZE))
    for function in ("get_config", "set_config"):
        context = at(np.zeros(8, np.int16), offset=2)
        assert layer.call(function, handle, 0, context) == ALIGN
        assert layer.call(function, handle, 0, at(context, offset=4)) == OK


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
@pytest.mark.parametrize("param", ["WEIGHT", "BIAS"])
def test_weights_are_checked(layer, param, rng):
    """NULL before alignment before shapes, for each of the pointers."""
    config = layer.config(**SIZE)
    handle = handle_of(layer, config)
    number = layer.param[param]
    valid = layer.pointers(config, layer.weights(**drawn(rng, layer)))[param == "BIAS"]
    shape = (lambda length: vector(length)) if param == "BIAS" else (lambda rows: matrix(rows, 12))
    put = functools.partial(layer.call, "set_config", handle, number)
    assert put(valid) == OK

    def changed(name, **what):
        return {name: getattr(valid, name)._replace(**what)}

    first, last = valid._fields[0], valid._fields[-1]
    for name in valid._fields:
        null, wrong = changed(name, data=None), changed(name, shape=shape(12))
        other = last if name == first else first
        shifted = at(getattr(valid, name).data, offset=4)
        assert put(valid._replace(**null)) == ALLOC
        assert put(valid._replace(**changed(name, data=shifted))) == ALIGN
        assert put(valid._replace(**wrong)) == SHAPE
        assert put(valid._replace(**changed(name, shape=Shape()))) == SHAPE
        misaligned = changed(other, data=at(getattr(valid, other).data, offset=4))
        assert put(valid._replace(**null, **misaligned)) == ALLOC
        assert put(valid._replace(**wrong, **misaligned)) == ALIGN
        assert put(valid._replace(**null, **changed(other, shape=Shape()))) == ALLOC
    if param == "WEIGHT":
        of_x, of_h = layer.oracle[0][0], layer.oracle[1][0]
        for name, wanted in ((of_x, matrix(8, 12)), (of_h, matrix(8, 8))):
            row_offset = wanted.dim._replace(row_offset=wanted.dim.cols + 16)
            padded = dataclasses.replace(wanted, dim=row_offset)
            assert put(valid._replace(**changed(name, shape=padded))) == SHAPE
            many = dataclasses.replace(wanted, n_shapes=2)
            assert put(valid._replace(**changed(name, shape=many))) == SHAPE
            wide = matrix(8, wanted.dim.cols + 4)
            assert put(valid._replace(**changed(name, shape=wide))) == SHAPE
    # The parameters have not changed.
    found = Pointer()
    assert layer.call("get_config", handle, number, found) == OK
    assert [c.data for c in found.target] == [c.data for c in valid]
    with pytest.raises(TypeError, match=f"params is NoneType, expected {type(valid).__name__}"):
        put(Pointer())
    with pytest.raises(TypeError, match=f"params is list, expected {type(valid).__name__}"):
        put([c.data for c in valid])


# Processing.


def expected_of(layer, weights, xs, coeff, states):
    if layer is GRU:
        return oracle.gru_scan(weights, states[0], xs, coeff, 12)
    h, c = states
    return oracle.lstm_scan(weights, h, c, xs, coeff, 12)[0]


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
@pytest.mark.parametrize(("dtype", "pad"), [(np.int16, 1), (np.int8, 0), (np.int8, 1)])
def test_process(layer, dtype, pad, rng):
    coeff = np.iinfo(dtype).bits - 1
    precision = Precision.P16bx16b if dtype is np.int16 else Precision.P8bx16b
    config = layer.config(**SIZE, pad=pad, precision=precision, coeff_Qformat=coeff)
    handle = handle_of(layer, config, activation="ideal")
    weights, xs = drawn(rng, layer, dtype), draw(rng, np.int16, (4, 12))
    matrices, biases = set_weights(layer, handle, config, weights)
    for name, (data, shape) in {**matrices._asdict(), **biases._asdict()}.items():
        np.testing.assert_array_equal(data[..., : weights[name].shape[-1]], weights[name])
        if data.ndim == 2:
            assert data.shape[1] == shape.dim.cols + 16 * pad
            # The padding is not read.
            data[:, shape.dim.cols :] = -1
    zeros = np.zeros(8, np.int16), np.zeros(8, np.int32)
    out, scratch = at(np.ones(12, np.int16)), at(np.ones(4, np.uint8))
    for x, wanted in zip(xs, expected_of(layer, weights, xs, coeff, zeros), strict=True):
        shapes = Pointer(vector(100)), Pointer(vector(9))
        given = at(np.append(x, [1, 2]).astype(np.int16))
        assert layer.call("process", handle, scratch, given, out, *shapes) == OK
        np.testing.assert_array_equal(out, [*wanted, 1, 1, 1, 1])
        np.testing.assert_array_equal(given[:12], x)
        assert [p.target for p in shapes] == [vector(12), vector(8)]
    read = at(np.ones(8, np.int16))
    assert layer.call("get_config", handle, 0, read) == OK
    np.testing.assert_array_equal(read, out[:8])
    # Another state, and setting up again.
    states = [at(draw(rng, dtype, (8,))) for dtype in contexts(layer).values()]
    for param, state in zip(contexts(layer), states, strict=True):
        assert layer.call("set_config", handle, param, state) == OK
    assert process(layer, handle, at(xs[0]), out[:8]) == OK
    np.testing.assert_array_equal(out[:8], expected_of(layer, weights, xs[:1], coeff, states)[0])
    assert layer.call("init", handle, config) == OK
    set_weights(layer, handle, config, weights)
    assert process(layer, handle, at(xs[0]), out[:8]) == OK
    np.testing.assert_array_equal(out[:8], expected_of(layer, weights, xs[:1], coeff, zeros)[0])


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_process_equals_step(layer, rng):
    """By default with integer activations; with coefficients, which may be arrays."""
    config, weights = layer.config(**SIZE), drawn(rng, layer)
    xs, state = draw(rng, np.int16, (2, 12)), getattr(layers, f"{layer.name.lower()}_init")(config)
    step = getattr(layers, f"{layer.name.lower()}_step")
    arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), FIXED)
    coarse = FIXED._replace(tanh_scale=FIXED.tanh_scale // 2)
    assert handle_of(layer, config).activation == "fixed"
    results = []
    for expected, handles in (
        ("fixed", [handle_of(layer, config), handle_of(layer, config, activation=arrays)]),
        (coarse, [handle_of(layer, config, activation=coarse)]),
    ):
        run, now = jax.jit(functools.partial(step, config, activation=expected)), state
        for handle in handles:
            set_weights(layer, handle, config, weights)
        for x in xs:
            now, y = run(layer.weights(**weights), now, x)
            for handle in handles:
                out = at(np.zeros(8, np.int16))
                assert process(layer, handle, at(x), out) == OK
                np.testing.assert_array_equal(out, y)
            results.append(np.asarray(y))
    assert (results[1] != results[-1]).any()


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_input_and_output_may_be_the_same_memory(layer, rng):
    config = layer.config(in_feats=8, out_feats=8)
    handle = handle_of(layer, config, activation="ideal")
    weights = oracle.scaled(oracle.draw_weights(rng, layer.oracle, 8, 8, np.int16), 6)
    set_weights(layer, handle, config, weights)
    both = at(draw(rng, np.int16, (8,)))
    zeros = np.zeros(8, np.int16), np.zeros(8, np.int32)
    wanted = expected_of(layer, weights, [both.copy()], 15, zeros)[0]
    assert process(layer, handle, both, both) == OK
    np.testing.assert_array_equal(both, wanted)


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_order_of_checks(layer, rng):
    """The code is that of the first of two faults in the library's order; nothing has changed."""
    config = layer.config(**SIZE)
    good, shifted = handle_of(layer, config), handle_of(layer, config)
    for handle in (good, shifted):
        set_weights(layer, handle, config, drawn(rng, layer))
    shifted.memory = at(shifted.memory, offset=4)
    faults = process_faults(layer)
    for (first, code), (second, _) in itertools.combinations(faults, 2):
        if first.keys() == second.keys():
            continue
        given = process_arguments(good, (20, 20))
        output, shapes = given["output"], [given["p_in_shape"], given["p_out_shape"]]
        given |= first | second
        given["handle"] = shifted if given["handle"] == "shifted" else given["handle"]
        assert layer.call("process", *given.values()) == code, (first, second)
        assert (output == 1).all()
        assert [p.target for p in shapes] == [vector(20), vector(20)]


def test_single_faults_of_process_have_their_codes(rng):
    for layer in RECURRENT.values():
        config = layer.config(**SIZE)
        handle = handle_of(layer, config)
        set_weights(layer, handle, config, drawn(rng, layer))
        for changed, code in process_faults(layer)[-4:]:
            given = process_arguments(handle, (12, 8))
            assert layer.call("process", *(given | changed).values()) == code


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_misuse(layer, rng):
    config, other = layer.config(**SIZE), LSTM if layer is GRU else GRU
    x, out = at(np.zeros(12, np.int16)), at(np.zeros(8, np.int16))
    handle = handle_of(layer, config)
    # Missing weights: all of them, or only the biases.
    assert process(layer, handle, x, out) == ALLOC
    matrices, _ = layer.pointers(config, layer.weights(**drawn(rng, layer)))
    assert layer.call("set_config", handle, layer.param.WEIGHT, matrices) == OK
    assert process(layer, handle, x, out) == ALLOC
    set_weights(layer, handle, config, drawn(rng, layer))
    empty = Handle(at(np.zeros(4096, np.uint8)))
    with pytest.raises(RuntimeError, match=f"holds nothing, expected {layer.name}: call xa_nnlib"):
        process(layer, empty, x, out)
    for function in ("get_config", "set_config"):
        with pytest.raises(RuntimeError, match=f"holds {layer.name}, expected {other.name}: call"):
            other.call(function, handle, 0, x)
    with pytest.raises(RuntimeError, match=f"holds {layer.name}, expected CNN: call xa_nnlib_cnn"):
        CNN.call("get_config", handle, CNNParam.KERNEL, Pointer())
    with pytest.raises(TypeError, match="input is float32, expected a NumPy array of int16"):
        process(layer, handle, x.astype(np.float32), out)
    shapes = Pointer(vector(12)), Pointer(vector(8))
    with pytest.raises(TypeError, match="output is list, expected a NumPy array of int16"):
        layer.call("process", handle, x, x, [0] * 8, *shapes)
    with pytest.raises(ValueError, match=r"input of shape \[4\] does not hold 12 elements"):
        layer.call("process", handle, x, x[:4], out, *shapes)
    with pytest.raises(ValueError, match="without gaps"):
        process(layer, handle, at(np.zeros(24, np.int16))[::2], out)
    with pytest.raises(TypeError, match="p_out_shape is Shape, expected a Pointer to write"):
        layer.call("process", handle, x, x, out, Pointer(vector(12)), vector(8))
    with pytest.raises(TypeError, match="params is Shape, expected a Pointer to write through"):
        layer.call("get_config", handle, layer.param.INPUT_SHAPE, vector(8))
    with pytest.raises(TypeError, match="params is int8, expected a NumPy array of int16"):
        layer.call("set_config", handle, 0, at(np.zeros(8, np.int8)))
    with pytest.raises(ValueError, match=r"params of shape \[7\] does not hold 8 elements"):
        layer.call("get_config", handle, 0, at(np.zeros(7, np.int16)))
    short = matrices._replace(**{layer.oracle[0][0]: Coefficients(x, matrix(8, 12))})
    assert layer.call("set_config", handle, layer.param.WEIGHT, short) == OK
    with pytest.raises(ValueError, match=f"{layer.oracle[0][0]} of shape"):
        process(layer, handle, x, out)
