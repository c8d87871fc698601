"""Convolutions as their definitions read, element by element, in int64 or float64."""

from __future__ import annotations

from itertools import product

import numpy as np


def _inside(position, shape):
    return all(0 <= p < n for p, n in zip(position, shape, strict=True))


def _out_length(length, size, pad, stride, dilation):
    whole = length - 1 + sum(pad) - (size - 1) * dilation
    assert whole % stride == 0, "the test case is not a valid graph"
    return whole // stride + 1


def conv(x, weight, bias, x_zp=0, w_zp=0, *, pad, stride, dilation, extra=False):
    """CONV2D and CONV3D: [N, ..., IC] by [OC, ..., IC]; `extra` also multiplies padding."""
    space, kernel = x.shape[1:-1], weight.shape[1:-1]
    rank = len(space)
    pads = [pad[2 * i : 2 * i + 2] for i in range(rank)]
    out = [_out_length(*axis) for axis in zip(space, kernel, pads, stride, dilation, strict=True)]
    result = np.zeros((x.shape[0], *out, weight.shape[0]), x.dtype)
    for at in product(*map(range, out)):
        for k in product(*map(range, kernel)):
            position = [at[i] * stride[i] - pads[i][0] + k[i] * dilation[i] for i in range(rank)]
            taps = weight[(slice(None), *k)] - w_zp  # [OC, IC]
            if _inside(position, space):
                values = x[(slice(None), *position)] - x_zp  # [N, IC]
            elif extra:
                values = np.zeros((x.shape[0], x.shape[-1]), x.dtype)
            else:
                continue
            result[(slice(None), *at)] += (values[:, None] * taps[None]).sum(axis=-1)
    return result + bias


def depthwise(x, weight, bias, x_zp=0, w_zp=0, *, pad, stride, dilation, extra=False):
    """DEPTHWISE_CONV2D: [N, IH, IW, C] by [KH, KW, C, M]."""
    n, ih, iw, c = x.shape
    kh, kw, _, m = weight.shape
    oh = _out_length(ih, kh, pad[:2], stride[0], dilation[0])
    ow = _out_length(iw, kw, pad[2:], stride[1], dilation[1])
    result = np.zeros((n, oh, ow, c * m), x.dtype)
    for oy, ox, ky, kx in product(range(oh), range(ow), range(kh), range(kw)):
        y = oy * stride[0] - pad[0] + ky * dilation[0]
        xx = ox * stride[1] - pad[2] + kx * dilation[1]
        inside = 0 <= y < ih and 0 <= xx < iw
        if not inside and not extra:
            continue
        for channel in range(c):
            for k in range(m):
                value = x[:, y, xx, channel] - x_zp if inside else np.zeros(n, x.dtype)
                result[:, oy, ox, channel * m + k] += value * (weight[ky, kx, channel, k] - w_zp)
    return result + bias


def transpose(x, weight, bias, x_zp=0, w_zp=0, *, out_pad, stride, extra=False):
    """TRANSPOSE_CONV2D: [N, IH, IW, IC] by [OC, KH, KW, IC], gathered for each output."""
    n, ih, iw, _ = x.shape
    oc, kh, kw, _ = weight.shape
    oh = (ih - 1) * stride[0] + out_pad[0] + out_pad[1] + kh
    ow = (iw - 1) * stride[1] + out_pad[2] + out_pad[3] + kw
    result = np.zeros((n, oh, ow, oc), x.dtype)
    for oy, ox, ky, kx in product(range(oh), range(ow), range(kh), range(kw)):
        y, xx = oy - out_pad[0] - ky, ox - out_pad[2] - kx
        hit = 0 <= y < ih * stride[0] and 0 <= xx < iw * stride[1]
        if hit and y % stride[0] == 0 and xx % stride[1] == 0:
            values = x[:, y // stride[0], xx // stride[1]] - x_zp
        elif extra:
            values = np.zeros((n, x.shape[-1]), x.dtype)
        else:
            continue
        result[:, oy, ox] += (values[:, None] * (weight[:, ky, kx] - w_zp)[None]).sum(axis=-1)
    return result + bias
