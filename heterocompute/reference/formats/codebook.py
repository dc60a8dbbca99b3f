"""Learned codebooks: Han, Mao, Dally, "Deep Compression", ICLR 2016 (arXiv 1510.00149), section 3; for dim > 1 the
product quantization of Jegou, Douze, Schmid, PAMI 2011.

    v = x, or float32(x / s) with s = absmax of the group        centroids = k-means of float32(v), see `kmeans`
    code = the centroid nearest to v                             value = centroid, or float32(centroid * s)

A codebook belongs to a row or to the whole array. With dim > 1 a code covers dim consecutive columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import kmeans
from ..arithmetic import Array
from ..layout import Geometry, Terms, pack, real, row_bytes, unpack

NO_MINUS_ZERO = True


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    codebook = (2**fmt.bits, fmt.dim) if fmt.dim > 1 else (2**fmt.bits,)
    components: dict[str, tuple[Any, tuple[int, ...]]] = {
        "codes": (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group // fmt.dim, fmt.bits))),
        "codebook": (np.float32, codebook if fmt.per == "tensor" else (sizes.rows, *codebook)),
    }
    if fmt.group is not None:
        components["scales"] = (np.float32, (sizes.rows, sizes.groups))
    return components


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any, importance: Array | None = None) -> dict[str, Array]:
    """Quantize groups of values."""
    if clip is not None:
        raise ValueError(f"clip: {clip!r:.80}, a codebook has no scale that it could change; expected None")
    v, scales = x, np.zeros((sizes.rows, sizes.groups), np.float32)
    if fmt.group is not None:
        scales = np.abs(x).max(axis=-1, initial=0.0).astype(np.float32)
        wide = np.broadcast_to(scales.astype(np.float64)[..., None], x.shape)
        v = np.divide(x, wide, out=np.zeros(x.shape), where=wide != 0).astype(np.float32).astype(np.float64)
    # A group whose scale is 0 has no v: it decodes to 0 for every codebook.
    learned = np.broadcast_to(real(sizes) if fmt.dim == 1 else np.ones((sizes.groups, sizes.group), bool), x.shape)
    if fmt.group is not None:
        learned = learned & (scales[..., None] != 0)
    k = 2**fmt.bits
    if fmt.per == "tensor":
        codebook = _learn(fmt, v[learned], None if importance is None else importance[learned], k)
    else:
        rows = [
            _learn(fmt, v[i][learned[i]], None if importance is None else importance[i][learned[i]], k)
            for i in range(sizes.rows)
        ]
        codebook = np.array(rows, np.float32).reshape(sizes.rows, k, *([fmt.dim] if fmt.dim > 1 else []))
    codes = np.zeros((sizes.rows, sizes.groups * sizes.group // fmt.dim), np.int64)
    for i in range(sizes.rows):
        levels = codebook if fmt.per == "tensor" else codebook[i]
        row = v[i].reshape(-1)
        codes[i] = (
            kmeans.nearest(levels, row) if fmt.dim == 1 else kmeans.nearest_vector(levels, row.reshape(-1, fmt.dim))
        )
    components = {"codebook": codebook}
    if fmt.group is not None:
        components["scales"] = scales
        codes = codes.reshape(sizes.rows, sizes.groups, sizes.group // fmt.dim)
        codes = np.where(scales[..., None] == 0, 0, codes).reshape(sizes.rows, sizes.groups * sizes.group // fmt.dim)
    return {"codes": pack(codes, fmt.bits), **components}


def stored_codes(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Array:
    """Unpack the codes, one for `dim` values."""
    codes = unpack(components["codes"], fmt.bits, sizes.groups * sizes.group // fmt.dim, signed=False)
    return codes.reshape(sizes.rows, sizes.groups, sizes.group // fmt.dim)


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values."""
    codes, codebook = stored_codes(fmt, sizes, components), components["codebook"]
    row = np.arange(sizes.rows)[:, None, None]
    found = codebook[codes] if fmt.per == "tensor" else codebook[row, codes]
    values = found.reshape(sizes.rows, sizes.groups, sizes.group).astype(np.float64)
    return Terms(values, components.get("scales"), None)


def _learn(fmt: Any, values: Array, weights: Array | None, k: int) -> Array:
    with np.errstate(under="ignore"):
        values = values.astype(np.float32)
    if fmt.dim == 1:
        return kmeans.optimal(values, weights, k)
    shape = (-1 if values.size else 0, fmt.dim)
    weights = None if weights is None else weights.reshape(shape)
    return kmeans.vectors(values.reshape(shape), weights, k, 2 if fmt.per == "tensor" else 1)
