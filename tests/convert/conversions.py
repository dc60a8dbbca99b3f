"""Shared code of the conversion tests: weights saved in a layout, stored tensors, rows of a summary."""

from __future__ import annotations

import numpy as np

import heterocompute as hc
from heterocompute.files.opening import reader_of

RNG = np.random.default_rng(7)
W = (RNG.standard_normal((64, 256)) * 0.1).astype(np.float32)
BIAS = np.ones(64, np.float32)
OURS = "heterocompute"


def saved(path, layout, fmt, more=None):
    arrays = {"fc.weight": hc.quantize(W, fmt), "up.weight": hc.quantize(-2 * W, fmt), "fc.bias": BIAS, **(more or {})}
    hc.save(path, arrays, layout=None if layout == OURS else layout)
    return arrays


def data_of(path):
    """Return dtypes, shapes and bytes of the stored tensors."""
    with reader_of(path) as reader:
        found = {}
        for name in reader.names:
            is_packed = reader.format_of(name) is not None
            stored = reader.blocks(name)[1] if is_packed else reader.tensor(name)
            found[name] = (reader.info(name).dtype, reader.info(name).shape, stored.tobytes())
        return found


def row_of(summary, name="fc.weight"):
    return next(row for row in summary["tensors"] if row["name"] == name)
