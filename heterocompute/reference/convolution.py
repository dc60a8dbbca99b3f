"""Convolution as a product of windows and filters, reduction order r, s, c.

    y[n, k, p, q] = sum_(r, s, c) x[n, c, p * stride + r * dilation - padding, ...] * w[k, c, r, s]

Float operands: one chain of fma. Both quantized: as the products of matrices. Padding is the value 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import exact_rows, geometry, integer_terms
from .arithmetic import Array, decoded
from .product import Columns, columns, has_integers, many_vectors, packed, product

FILTER_AXIS = (2, 3, 1)
IMAGE_AXIS = (1, 3, 4, 2)


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    activations: Any = None,
    layout: str = "NCHW",
    relu: bool = False,
) -> Array:
    """Convolve images with filters.

    Parameters
    ----------
    x : ndarray, (N, C, H, W) or (N, H, W, C)
    w : ndarray or Packed, (K, C / groups, R, S)
        A packed one has axis (2, 3, 1): one row a filter.
    bias : ndarray of float32, (K,), or None
        Added last.
    stride, dilation : int or pair of int
    padding : int, pair of int, two pairs of int, "same" or "valid"
    groups : int
    activations : Format or None
        x is seen as (N, groups, C / groups, H, W) and quantized along (1, 3, 4, 2): one row an image.
    layout : {"NCHW", "NHWC"}
        Of x and of the answer.
    relu : bool
        max(y, 0), last of all: +0 where y is -0, NaN where it is NaN.

    Returns
    -------
    ndarray of float32, (N, K, P, Q) or (N, P, Q, K)

    Raises
    ------
    ValueError
        A packed filter has another axis.
    """
    x = np.asarray(x)
    x = x.transpose(0, 3, 1, 2) if layout == "NHWC" else x
    images, channels, height, width = x.shape
    filters, depth, *kernel = w.shape
    x = x.reshape(images, groups, depth, height, width)
    windows = _Windows((height, width), (kernel[0], kernel[1]), _pair(stride), padding, _pair(dilation))

    is_packed = hasattr(w, "components")
    if is_packed and tuple(w.axis) != FILTER_AXIS:
        raise ValueError(f"conv2d: w is quantized along {w.axis}, expected {FILTER_AXIS}")
    y = np.zeros((images, filters, *windows.size), dtype=np.float32)
    of_group = np.arange(filters).reshape(groups, -1)
    if not y.size or not depth * kernel[0] * kernel[1]:
        pass  # no units, or no sums
    elif is_packed and activations is not None and has_integers(w) and has_integers(packed(x, activations, IMAGE_AXIS)):
        image = _image_columns(x, activations)
        weight = columns(*_factors(w))
        for g in range(groups):
            part = product(windows.columns(image, g), _rows(weight, of_group[g]))
            y[:, of_group[g]] = windows.as_image(part, images)
    else:
        if activations is not None:
            x = decoded(_image_values(x, activations))
        weights = decoded(exact_rows(w.components, w.format, w.shape, w.axis)) if is_packed else _filter_rows(w)
        channels_last = x.astype(np.float32).transpose(0, 1, 3, 4, 2)
        for g in range(groups):
            part = many_vectors(windows.rows(channels_last[:, g]), weights[of_group[g]])
            y[:, of_group[g]] = windows.as_image(part, images)
    if bias is not None:
        y = y + np.asarray(bias, dtype=np.float32)[:, None, None]
    if relu:
        y = np.where(y <= 0, np.float32(0), y)
    return y.transpose(0, 2, 3, 1) if layout == "NHWC" else y


class _Windows:
    """The input pixels of each output pixel."""

    def __init__(
        self,
        image: tuple[int, int],
        kernel: tuple[int, int],
        stride: tuple[int, int],
        padding: Any,
        dilation: tuple[int, int],
    ) -> None:
        reach = [d * (r - 1) + 1 for d, r in zip(dilation, kernel, strict=True)]
        if padding == "same":
            # ceil(size / step) outputs; an odd pixel of padding is added after.
            wanted = [-(-size // step) for size, step in zip(image, stride, strict=True)]
            total = [
                max((n - 1) * step + r - size, 0) for n, step, r, size in zip(wanted, stride, reach, image, strict=True)
            ]
            self.padding = [(both // 2, both - both // 2) for both in total]
        else:
            sides = (0, 0) if padding == "valid" else (padding, padding) if isinstance(padding, int) else padding
            self.padding = [(n, n) if isinstance(n, int) else (n[0], n[1]) for n in sides]
        self.kernel, self.stride, self.dilation = kernel, stride, dilation
        self.size = tuple(
            max((size + sum(around) - r) // step + 1, 0)
            for size, around, r, step in zip(image, self.padding, reach, stride, strict=True)
        )

    def rows(self, images: Array) -> Array:
        """Return (N, H, W, C) as (N * P * Q, R * S * C), with zeros in the padding."""
        padded = np.pad(images, ((0, 0), *self.padding, (0, 0)))
        p, q = self.size
        taps = []
        for r in range(self.kernel[0]):
            for s in range(self.kernel[1]):
                top, left = r * self.dilation[0], s * self.dilation[1]
                down = slice(top, top + (p - 1) * self.stride[0] + 1, self.stride[0])
                across = slice(left, left + (q - 1) * self.stride[1] + 1, self.stride[1])
                taps.append(padded[:, down, across])
        return np.stack(taps, axis=3).reshape(len(images) * p * q, -1)

    def columns(self, image: dict[str, Any], g: int) -> Columns:
        """Do the same for codes and scales; each tap is a run, so its channels start a group."""
        codes = self.rows(image["codes"][:, g])
        taps = self.kernel[0] * self.kernel[1]
        pixels = self.size[0] * self.size[1]
        return Columns(
            integers=None if image["integers"] is None else self.rows(image["integers"][:, g]),
            row_scale=None if image["row_scale"] is None else np.repeat(image["row_scale"], pixels),
            codes=codes,
            scale=self.rows(image["scale"][:, g]),
            starts=np.tile(image["starts"], taps),
        )

    def as_image(self, y: Array, images: int) -> Array:
        return y.reshape(images, *self.size, -1).transpose(0, 3, 1, 2)


def _image_columns(x: Array, fmt: Any) -> dict[str, Any]:
    found = columns(*_factors(packed(x, fmt, IMAGE_AXIS)))
    images, groups, depth, height, width = x.shape
    shape = (images, groups, height, width, depth)
    # A row-scaled format has one start in the whole row; for all others the run of the first pixel is enough.
    one_group = fmt.group is None
    return {
        "codes": found.codes.reshape(shape),
        "integers": None if found.integers is None else found.integers.reshape(shape),
        "scale": found.scale.reshape(shape),
        "row_scale": found.row_scale,
        "starts": np.zeros(depth, dtype=bool) if one_group else found.starts[:depth],
    }


def _image_values(x: Array, fmt: Any) -> Array:
    found = packed(x, fmt, IMAGE_AXIS)
    images, groups, depth, height, width = x.shape
    exact = exact_rows(found.components, found.format, found.shape, found.axis)
    return exact.reshape(images, groups, height, width, depth).transpose(0, 1, 4, 2, 3)


def _factors(q: Any) -> tuple[Any, Any]:
    found = integer_terms(q.components, q.format, q.shape, q.axis)
    return found, geometry(q.format.group, q.shape, q.axis, q.format.unit)


def _rows(c: Columns, rows: Array) -> Columns:
    return Columns(
        None if c.integers is None else c.integers[rows],
        None if c.row_scale is None else c.row_scale[rows],
        c.codes[rows],
        c.scale[rows],
        c.starts,
    )


def _filter_rows(w: Any) -> Array:
    values = np.asarray(w).astype(np.float32)
    return values.transpose(0, 2, 3, 1).reshape(len(values), -1)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
