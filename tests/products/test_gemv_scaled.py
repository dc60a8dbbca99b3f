"""Groups with float scales times few integer vectors: the bits of the definition on every ISA."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from common import guarded_copy, isas, reals, same_bits

import heterocompute as hc
from heterocompute.reference import product

# Groups of 4, 8, 16, 32 words and more; fewer words, zero points and integer scales, which use other paths.
FORMATS = [
    "int4-g32-f16", "int4-g32", "int4-g64-f16", "int4-g128", "int4-g256-f16", "int4-g512", "int4-g16-f16",
    "int4-g32-asym-f16", "int8-g16-f16", "int8-g32", "int8-g64-f16", "int8-g128", "int8-g256", "int5-g32",
    "vsq4-g32", "vsq4u-g64", "vsq8-g32", "vsq4-g32-s4",
]  # fmt: skip
# Around blocks of 16 rows and of 16 groups; rows that end within a register of codes; padded groups.
SIZES = [(1, 16, 2048), (2, 17, 512), (3, 5, 1056), (4, 33, 100), (7, 1, 4641), (8, 3, 31)]
ACTIVATIONS = ["int8", "int8-g64", "int8-g16", "int16"]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=5)
def test_few_integer_vectors_follow_the_definition(text: str, isa: str) -> None:
    for seed, (m, n, k) in enumerate(SIZES):
        x, w = reals((m, k), seed), hc.quantize(reals((n, k), seed + 1), text)
        activations = ACTIVATIONS[seed % len(ACTIVATIONS)] if k < 2048 else "int8"
        expected = product.linear(x, w, None, hc.format(activations))
        with hc.use(isa=isa):
            assert same_bits(hc.linear(x, w, activations=activations), expected), (m, n, k)


@pytest.mark.parametrize("activations", ACTIVATIONS)
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_isas_and_threads_agree_on_extreme_codes_and_scales(text: str, activations: str) -> None:
    """Codes and scales of random bytes, including infinity and NaN, and x at both ends of its range."""
    rng = np.random.default_rng(7)
    for m, n, k in [(1, 37, 1000), (6, 18, 520)]:
        x, w = np.where(rng.random((m, k)) < 0.5, -1, 1).astype(np.float32), hc.quantize(reals((n, k), 2), text)
        w.components["codes"][...] = rng.integers(0, 256, w.components["codes"].shape)
        w.components["codes"][::3] = rng.choice([0x00, 0x77, 0x88, 0xFF])
        scales = w.components["scales"]
        if scales.dtype.kind == "f":
            with np.errstate(all="ignore"):
                scales[...] = rng.choice([1e-7, 0.5, 1.0, 6e4, np.inf, -np.inf, np.nan, 0.0, -1.0], scales.shape)
        with hc.use(isa="scalar", threads=1):
            expected = hc.linear(x, w, activations=activations)
        for isa in isas():
            for threads in (1, 2):
                with hc.use(isa=isa, threads=threads):
                    assert same_bits(hc.linear(x, w, activations=activations), expected), (isa, threads)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_no_byte_behind_the_operands_is_read(text: str, isa: str) -> None:
    for m, k in [(1, 65), (2, 200), (4, 1056), (1, 2048)]:
        x, q = reals((m, k), 3), hc.quantize(reals((18, k), 4), text)
        expected = hc.linear(x, q, activations="int8")
        with ExitStack() as stack, hc.use(isa=isa):
            parts = {name: stack.enter_context(guarded_copy(part)) for name, part in q.components.items()}
            guarded = hc.QuantizedArray(parts, q.format, q.shape, q.axis, q.source_dtype)
            y = hc.linear(stack.enter_context(guarded_copy(x)), guarded, activations="int8")
            assert same_bits(y, expected), (m, k)
