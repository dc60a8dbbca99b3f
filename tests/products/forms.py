"""A convolution in all its forms: what every algorithm is held against."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import same_bits

import heterocompute as hc


def check_forms(image: Any, filters: Any, bias: Any, plain: Any, arguments: dict[str, Any], what: Any = None) -> None:
    """Assert the bits of a result without bias, with bias and ReLU, in memory with gaps, and of images in NHWC."""
    biased = plain + bias[:, None, None]
    gaps = np.zeros((*plain.shape, 2), np.float32)[..., 1]
    assert same_bits(hc.conv2d(image, filters, **arguments), plain), what
    assert same_bits(hc.conv2d(image, filters, bias, **arguments, relu=True), np.where(biased <= 0, 0, biased)), what
    assert same_bits(np.array(hc.conv2d(image, filters, **arguments, out=gaps)), plain), what
    found = hc.conv2d(image.transpose(0, 2, 3, 1), filters, bias, **arguments, layout="NHWC")
    assert same_bits(np.ascontiguousarray(found.transpose(0, 3, 1, 2)), biased), what
