"""Groups of one value, as of filters with one channel: random bytes have the values of scalar code on every ISA."""

from __future__ import annotations

import numpy as np
import pytest
from common import isas, reals, same_bits

import heterocompute as hc

FORMATS = (
    "int4-g32-f16", "int8-g64", "int4-g32-asym", "int3-g6-asym", "vsq4-g16-s4", "vsq8-g64-s8", "vsq6-g16-s6",
    "vsq4-g16", "mxfp4", "mxint8", "mxfp8_e4m3", "mxfp6_e2m3", "nvfp4", "nf4-g64", "cb4-g32", "fp8_e4m3fn", "log8-8",
)  # fmt: skip


def random_bytes(text: str, shape: tuple[int, ...], seed: int) -> hc.QuantizedArray:
    """Return an array whose codes, and scales unless they are floats, are random bytes."""
    rng = np.random.default_rng(seed)
    q = hc.quantize(reals(shape, seed), text, axis=(2, 3, 1))
    for name, part in q.components.items():
        if part.dtype == np.uint8:
            part[...] = rng.integers(0, 256, part.shape)
        elif name == "scales":
            with np.errstate(all="ignore"):
                part[...] = rng.choice([1e-7, 0.5, 1.0, 6e4, 3e38, np.inf, np.nan, 0.0, -1.0], part.shape)
    return q


@pytest.mark.parametrize("text", FORMATS)
def test_values_and_integers_are_those_of_scalar_code(text: str) -> None:
    for seed, (filters, *window) in enumerate([(5, 3, 3), (19, 5, 5), (17, 7, 7), (3, 1, 70), (2, 33, 40)]):
        q = random_bytes(text, (filters, 1, *window), seed)
        x = reals((1, filters, window[0] + 2, window[1] + 3), seed)
        where = {"groups": filters, "algorithm": "implicit"}
        with hc.use(isa="scalar"):
            values = q.dequantize()
            sums = [hc.conv2d(x, q, activations=activations, **where) for activations in (None, "int8")]
        for isa in [*isas(), None]:
            with hc.use(isa=isa):
                assert same_bits(q.dequantize(), values), (isa, window)
                for activations, wanted in zip((None, "int8"), sums, strict=True):
                    found = hc.conv2d(x, q, activations=activations, **where)
                    assert same_bits(found, wanted), (isa, window, activations)
