"""One random convolution: the oracle gathers the windows and multiplies rows, in the order r, s, c."""

from __future__ import annotations

import numpy as np

import heterocompute as hc

from .arrays import components
from .compare import same
from .draw import chance, choose, draw_format, draw_operand, lay_out, machine
from .encoded import Encoded
from .exact import float32
from .formats import encode
from .multiply import halves
from .products import (
    Scaled,
    by_groups,
    dense_groups,
    in_order,
    integer_rows,
    is_stated,
    last_scaling,
    row_scaled,
    scaled,
)


def draw(rng, masks) -> dict:
    fmt = draw_format(rng, integers=0.7)
    activations = draw_format(rng, integers=0.7) if chance(rng, 0.6) else None
    groups, n = int(choose(rng, [1, 1, 1, 2, 3])), int(rng.integers(1, 4))
    channels, filters = groups * int(choose(rng, [1, 2, 3, 4, 8, 17])), groups * int(rng.integers(1, 9))
    window = [int(v) for v in rng.integers(1, 4, 2)]
    stride, dilation, padding = ([int(v) for v in rng.integers(low, low + 3, 2)] for low in (1, 1, 0))
    image = [int(rng.integers(1, 7)) + (window[i] - 1) * dilation[i] for i in (0, 1)]
    return {
        "weights": fmt,
        "activations": activations,
        "groups": groups,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "layout": choose(rng, ["NCHW", "NHWC"]),
        "quantize": machine(rng, masks),
        "convolve": machine(rng, masks),
        "x": lay_out(rng, draw_operand(rng, (n, channels, *image), activations))[1],
        "w": lay_out(rng, draw_operand(rng, (filters, channels // groups, *window), fmt))[1],
        "bias": float32(rng.standard_normal(filters)) if chance(rng, 0.3) else None,
    }


def smaller(case):
    """Return the same case with half of the images, filters or channels."""
    x, w, bias = case["x"], case["w"], case["bias"]
    for half in halves(len(x)):
        yield case | {"x": x[half]}
    if case["groups"] == 1:
        for half in halves(len(w)):
            yield case | {"w": w[half], "bias": None if bias is None else bias[half]}
        for half in halves(x.shape[1]):
            yield case | {"x": x[:, half], "w": w[:, half]}


def check(case) -> None:
    fmt, activations, groups, layout = (case[name] for name in ("weights", "activations", "groups", "layout"))
    stride, padding, dilation = case["stride"], case["padding"], case["dilation"]
    x, w, bias = case["x"], case["w"], case["bias"]
    (n, channels, *image), (filters, _, *window) = x.shape, w.shape
    with hc.use(**case["quantize"]):
        q = hc.quantize(w, fmt, axis=(2, 3, 1))
    weights = encode(fmt, w, (2, 3, 1), learned=components(q))
    split = np.asarray(x).reshape(n, groups, channels // groups, *image)
    a = None
    if activations is not None:
        learned = components(hc.quantize(split, activations, axis=(1, 3, 4, 2)))
        a = encode(activations, split, (1, 3, 4, 2), learned=learned)
    with hc.use(**case["convolve"]):
        y = hc.conv2d(
            x if layout == "NCHW" else np.moveaxis(x, 1, 3),
            q, bias, tuple(stride), tuple(padding), tuple(dilation), groups,
            activations=None if activations is None else str(activations), layout=layout,
        )  # fmt: skip
    if not is_stated(a, weights):
        return
    where, size = windows(split.shape, window, stride, padding, dilation)
    wanted = convolve(split.astype(np.float32), where, weights, a, groups)
    wanted = np.moveaxis(wanted.reshape(n, *size, filters), 3, 1)
    if bias is not None:
        wanted = wanted + bias[:, None, None]
    same("conv2d", y if layout == "NCHW" else np.moveaxis(y, 3, 1), wanted)


def windows(shape, window, stride, padding, dilation):
    """Return (pixels, r s c) positions in a row (h, w, c) of one group of channels; padding is past the end."""
    _, _, c, h, w = shape
    size = [(shape[3 + i] + 2 * padding[i] - dilation[i] * (window[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    where = np.full((*size, *window, c), h * w * c)
    for p, q, r, s in np.ndindex(*size, *window):
        i, j = p * stride[0] - padding[0] + r * dilation[0], q * stride[1] - padding[1] + s * dilation[1]
        if 0 <= i < h and 0 <= j < w:
            where[p, q, r, s] = (i * w + j) * c + np.arange(c)
    return where.reshape(size[0] * size[1], -1), size


def convolve(x, where, weights: Encoded, a: Encoded | None, groups: int) -> np.ndarray:
    """Return the outputs as (images * pixels, filters)."""
    n, _, c, h, w = x.shape
    filters = len(weights.units) // groups
    exact = a is not None and a.integers and weights.integers

    def gather(matrix, group):
        """Return rows (image, pixel) of the values in each window, 0 for padding."""
        part = matrix.reshape(n, groups, h * w * c)[:, group]
        part = np.concatenate([part, np.zeros((n, 1), part.dtype)], axis=1)
        return part[:, where].reshape(n * len(where), -1)

    parts = []
    for group in range(groups):
        mine = slice(group * filters, group * filters + filters)
        if not exact:
            decoded = np.transpose(x, (0, 1, 3, 4, 2)) if a is None else a.decoded()
            parts.append(in_order(gather(decoded, group), weights.decoded()[mine]))
        elif row_scaled(a) and row_scaled(weights):
            total = gather(integer_rows(a), group) @ integer_rows(weights)[mine].T
            parts.append(last_scaling(total, np.repeat(a.outer, len(where)), weights.outer[mine]))
        else:
            left, right = scaled(a), scaled(weights)
            in_pixel = dense_groups(a)[:c] if a.scale is not None else np.zeros(c, int)
            pixels = where.shape[1] // c
            ids = np.concatenate([in_pixel + i * c * (a.scale is not None) for i in range(pixels)])
            rows = Scaled(gather(left.units, group), gather(left.scales, group), ids)
            parts.append(by_groups(rows, Scaled(right.units[mine], right.scales[mine], right.groups)))
    return np.concatenate(parts, axis=1)
