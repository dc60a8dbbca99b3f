"""The entry point of the definitions: any format by name, on any N:M pattern."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import heterocompute as hc

from .encoded import Encoded
from .exact import pack
from .floats import encode_float, encode_mx, encode_nvfp4
from .integers import encode_int, encode_vsq
from .rows import Refused, Rows, check_finite, first
from .tables import check_codebook, encode_log, encode_nf4

ENCODERS = {
    hc.Int: encode_int,
    hc.VSQ: encode_vsq,
    hc.Float: encode_float,
    hc.MX: encode_mx,
    hc.NVFP4: encode_nvfp4,
    hc.Log: encode_log,
    hc.NF4: encode_nf4,
}
WITHOUT_CLIP = (hc.MX, hc.NVFP4, hc.Codebook)


def encode(fmt, x, axis, clip=None, learned=None, importance=None) -> Encoded:
    """Quantize by the definition. `learned`: components with a learned codebook, which is checked, not learned.

    `x` is an array of any supported float type, `axis` a tuple.
    """
    x = np.asarray(x).astype(np.float64)
    axis = tuple(a % x.ndim for a in axis)
    base = fmt.base if isinstance(fmt, hc.Sparse) else fmt
    if clip is not None and (isinstance(base, WITHOUT_CLIP) or getattr(base, "scaled", base) is None):
        raise Refused("no threshold")
    if isinstance(fmt, hc.Sparse):
        return encode_sparse(fmt, x, axis, clip, learned)
    return encode_plain(fmt, x, axis, clip, learned, importance)


def encode_plain(fmt, x, axis, clip, learned, importance) -> Encoded:
    if isinstance(fmt, hc.Codebook):
        if learned is None:
            check_finite(x)
        return check_codebook(fmt, x, axis, learned, importance)
    return ENCODERS[type(fmt)](fmt, x, axis, clip)


def keep(x, axis, n: int, m: int):
    """Return the n largest of every m along the last named axis: nonzeros, and their positions in the block."""
    blocks = Rows(x.shape, axis[-1:], m)
    size = -(-blocks.last // m) * m
    rows = np.zeros((blocks.rows, size))
    rows[:, : blocks.last] = blocks.flat(blocks.split(x))
    quads = rows.reshape(blocks.rows, size // m, m)
    with np.errstate(over="ignore"):
        scores = np.abs(quads).astype(np.float32)  # magnitudes are compared as float32; of equal ones the first is kept
    places = np.sort(np.argsort(-scores, axis=2, kind="stable")[:, :, :n], axis=2)
    kept = np.take_along_axis(quads, places, axis=2)
    shape = list(x.shape)
    shape[axis[-1]] = size // m * n
    back = Rows(tuple(shape), axis[-1:], None)
    return back.join(kept.reshape(blocks.rows, 1, size // m * n)), back.join(
        places.reshape(blocks.rows, 1, size // m * n)
    )


def encode_sparse(fmt, x, axis, clip, learned) -> Encoded:
    if np.isnan(x).any():
        raise Refused("NaN has no place in the order of magnitudes", first(~np.isfinite(x)))
    if not isinstance(fmt.base, hc.MX) and getattr(fmt.base, "scaled", fmt.base) is not None:
        check_finite(x)
    kept, places = keep(x, axis, fmt.n, fmt.m)
    try:
        encoded = encode_plain(fmt.base, kept, axis, clip, learned, None)
    except Refused as error:  # the first infinity of a block is always kept
        raise Refused(str(error), error.index and first(~np.isfinite(x))) from None
    whole = Rows(kept.shape, axis, None)
    places = whole.flat(whole.split(places))
    metadata = pack(places, (fmt.m - 1).bit_length())
    dense = Rows(x.shape, axis, None)
    last, per_segment = x.shape[axis[-1]], kept.shape[axis[-1]]
    where = np.full((dense.rows, dense.length), places.shape[1], np.int64)  # the index past the end has zero
    for row, i in np.ndindex(*places.shape):
        segment, j = divmod(i, per_segment)
        position = j // fmt.n * fmt.m + places[row, i]
        if position < last:
            where[row, segment * last + position] = i
    components = encoded.components | {"metadata": metadata}
    integers = encoded.integers and encoded.places == 1
    return replace(encoded, components=components, kept=where, dense=dense, pattern=(fmt.n, fmt.m), integers=integers)
