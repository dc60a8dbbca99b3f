"""Codebooks after they are learned: trained by back-propagation, and what their codes would take as a Huffman code."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .arrays import QuantizedArray
from .bits import unpack
from .float_env import counts_subnormals
from .formats import Codebook, Sparse
from .inputs import as_array

__all__ = ["CodeStorage", "code_storage", "codebook_gradient", "codebook_step"]

Array = np.ndarray[Any, Any]

BLOCK = 1 << 22  # codes unpacked at a time


@counts_subnormals
def codebook_gradient(grad_w: Any, q: QuantizedArray) -> Array:
    """Turn the gradient of a loss for the values into its gradient for the codebook.

    Parameters
    ----------
    grad_w : array_like
        dL/dW, of q's shape.
    q : QuantizedArray
        Of a `Codebook` format.

    Returns
    -------
    ndarray of float32
        Of the shape of ``q.components["codebook"]``: for each centroid the sum over its members, in C order of
        `grad_w`, of the gradient times the scale of the member's group, in float64.

    Raises
    ------
    TypeError
        q is no array of a codebook format, or grad_w holds no floats.
    ValueError
        grad_w has another shape.

    Notes
    -----
    Han, Mao, Dally, "Deep Compression", ICLR 2016 (arXiv 1510.00149), section 3.3, equation 3.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.float32([1, 1, 5, 7]), "cb1")
    >>> q.components["codebook"], hc.codebook_gradient(np.float32([0.5, 0.25, 1, -3]), q)
    (array([[1., 6.]], dtype=float32), array([[ 0.75, -2.  ]], dtype=float32))
    """
    fmt = _codebook_format(q, "codebook_gradient")
    gradient = as_array(grad_w, "codebook_gradient: grad_w")
    if gradient.shape != q.shape:
        raise ValueError(f"codebook_gradient: grad_w has shape {gradient.shape}, wanted {q.shape}")
    codebook = q.components["codebook"]
    members = _unpacked(q).astype(np.int64)
    if fmt.per == "row":
        members += 2**fmt.bits * np.arange(len(members)).reshape(-1, 1, 1)
    if fmt.dim > 1:
        members = (members[..., None] * fmt.dim + np.arange(fmt.dim)).reshape(*members.shape[:2], -1)
    weights = gradient.astype(np.float64)
    if fmt.group is not None:
        runs, padded = members.shape[1:]
        scales = q.components["scales"].reshape(len(members), runs, -1).astype(np.float64)
        group = padded // max(scales.shape[2], 1)
        weights = weights * _values(q, np.repeat(scales, group, axis=2))
    sums = np.bincount(_values(q, members).reshape(-1), weights.reshape(-1), codebook.size)
    return sums.astype(np.float32).reshape(codebook.shape)


@counts_subnormals
def codebook_step(q: QuantizedArray, grad: Any, lr: float) -> QuantizedArray:
    """Take one step of gradient descent on a codebook.

    Parameters
    ----------
    q : QuantizedArray
        Of a `Codebook` format.
    grad : array_like
        What `codebook_gradient` returned, or any direction of its shape.
    lr : float
        The learning rate.

    Returns
    -------
    QuantizedArray
        With the codebook ``float32(codebook - lr * grad)``, computed in float64. It shares codes and scales with q.

    Raises
    ------
    TypeError
        q is no array of a codebook format, grad holds no floats, or lr is no number.
    ValueError
        grad has another shape, or the step is not finite.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.float32([1, 1, 5, 7]), "cb1")
    >>> hc.codebook_step(q, np.float32([[0.75, -2]]), lr=0.5).dequantize()
    array([0.625, 0.625, 7.   , 7.   ], dtype=float32)
    """
    _codebook_format(q, "codebook_step")
    gradient, codebook = as_array(grad, "codebook_step: grad"), q.components["codebook"]
    if gradient.shape != codebook.shape:
        raise ValueError(f"codebook_step: grad has shape {gradient.shape}, wanted {codebook.shape}")
    if isinstance(lr, (bool, np.bool_)) or not isinstance(lr, (int, float, np.integer, np.floating)):
        raise TypeError(f"codebook_step: lr is {lr!r} of type {type(lr).__name__}, wanted a number")
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (codebook.astype(np.float64) - np.float64(lr) * gradient.astype(np.float64)).astype(np.float32)
    if not np.isfinite(moved).all():
        raise ValueError(f"codebook_step: with lr {lr!r} a centroid is no finite number any more")
    return QuantizedArray({**q.components, "codebook": moved}, q.format, q.shape, q.axis, q.source_dtype)


@dataclass(frozen=True)
class CodeStorage:
    """What an array's codes take, as they are stored and as a Huffman code.

    Attributes
    ----------
    codes : int
        Codes, without those that only pad a short group.
    bits : int
        Stored bits of a code.
    entropy : float
        Of the codes' frequencies, bits a code: no code of single codes takes less.
    huffman : float
        Bits a code of a Huffman code; less than entropy + 1.
    nbytes : int
        Bytes of the array as it is stored.
    huffman_nbytes : int
        Bytes with the codes as one Huffman stream, a byte for the code length of each of the 2^bits symbols, and all
        other components as they are.
    ratio, huffman_ratio : float
        4 bytes a value, divided by each of the two.
    """

    codes: int
    bits: int
    entropy: float
    huffman: float
    nbytes: int
    huffman_nbytes: int
    ratio: float
    huffman_ratio: float


def code_storage(q: QuantizedArray) -> CodeStorage:
    """Report what the codes of an array take as they are, by their entropy, and as a Huffman code.

    Parameters
    ----------
    q : QuantizedArray
        Of any format with codes of up to 16 bits, of a sparse one the codes of the kept values. Products and files keep
        the codes as they are stored.

    Returns
    -------
    CodeStorage

    Raises
    ------
    TypeError
        q is no quantized array.
    ValueError
        Codes of more than 16 bits.

    Notes
    -----
    Han, Mao, Dally, "Deep Compression", ICLR 2016 (arXiv 1510.00149), section 4, after Huffman, Proc. IRE 1952.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> report = hc.code_storage(hc.quantize(np.float32([[1, 1, 1, 1, 5, 5, 7, 9]]), "cb2"))
    >>> report.bits, report.entropy, report.huffman, report.nbytes, report.huffman_nbytes
    (2, 1.75, 1.75, 18, 22)
    """
    if not isinstance(q, QuantizedArray):
        raise TypeError(f"code_storage: q is {type(q).__name__}, wanted a QuantizedArray")
    bits = q.format.bits
    if bits > 16:
        raise ValueError(f"code_storage: codes of {q.format} have {bits} bits, wanted at most 16")
    counts = np.zeros(2**bits, np.int64)
    rows = max(1, BLOCK * 8 // max(8 * q.components["codes"][:1].nbytes, 1))
    for first in range(0, len(q.components["codes"]), rows):
        counts += np.bincount(_real_codes(q, first, rows).reshape(-1), minlength=2**bits)
    n = int(counts.sum())
    p = counts[counts > 0] / max(n, 1)
    lengths = huffman_lengths(counts.tolist())
    stream = sum(length * count for length, count in zip(lengths, counts.tolist(), strict=True))
    others = q.nbytes - q.components["codes"].nbytes
    packed = -(-stream // 8) + 2**bits + others
    return CodeStorage(
        n,
        bits,
        abs(float(-(p * np.log2(p)).sum())),
        stream / n if n else 0.0,
        q.nbytes,
        packed,
        4 * q.size / q.nbytes if q.nbytes else 0.0,
        4 * q.size / packed,
    )


def huffman_lengths(counts: list[int]) -> list[int]:
    """Return the code length of each symbol; 0 for one that never occurs, 1 for one that is alone.

    Parameters
    ----------
    counts : list of int

    Returns
    -------
    list of int

    Examples
    --------
    >>> from heterocompute.codebooks import huffman_lengths
    >>> huffman_lengths([5, 0, 1, 1, 2])
    [1, 0, 3, 3, 2]
    """
    heap: list[tuple[int, int, tuple[int, ...]]] = [(count, i, (i,)) for i, count in enumerate(counts) if count]
    if len(heap) == 1:
        return [int(count > 0) for count in counts]
    heapq.heapify(heap)
    lengths: Counter[int] = Counter()
    while len(heap) > 1:
        (a, first, left), (b, second, right) = heapq.heappop(heap), heapq.heappop(heap)
        lengths.update(left + right)
        heapq.heappush(heap, (a + b, min(first, second), left + right))
    return [lengths[symbol] for symbol in range(len(counts))]


def _codebook_format(q: Any, name: str) -> Codebook:
    if not isinstance(q, QuantizedArray) or not isinstance(q.format, Codebook):
        kind = f"an array of {q.format}" if isinstance(q, QuantizedArray) else type(q).__name__
        raise TypeError(f"{name}: q is {kind}, wanted an array of a codebook format such as cb4")
    return q.format


def _geometry(q: QuantizedArray) -> tuple[int, int, int, int]:
    """Return runs of a row, stored values of a run, codes of a run with and without those that are padding alone."""
    length, dim = q.shape[q.axis[-1]], getattr(q.format, "dim", 1)
    if isinstance(q.format, Sparse):
        length, dim = q.format.stored_length(length), getattr(q.format.base, "dim", 1)
    runs = prod(q.shape[a] for a in q.axis[:-1])
    group = length if q.format.group is None else min(q.format.group, length)
    group = -(-max(group, 1) // dim) * dim
    padded = -(-length // group) * group
    return runs, length, padded // dim, -(-length // dim)


def _unpacked(q: QuantizedArray, first: int = 0, rows: int | None = None) -> Array:
    """Return the codes of some rows, (rows, runs, codes of a run), padding included."""
    runs, _, padded, _ = _geometry(q)
    stored = q.components["codes"][first : None if rows is None else first + rows]
    return unpack(stored, q.format.bits, runs * padded).reshape(len(stored), runs, padded)


def _real_codes(q: QuantizedArray, first: int, rows: int) -> Array:
    return _unpacked(q, first, rows)[:, :, : _geometry(q)[3]]


def _values(q: QuantizedArray, padded: Array) -> Array:
    """Bring (rows, runs, padded values of a run) into q's shape, without the padding."""
    kept = [a for a in range(q.ndim) if a not in q.axis]
    order = [*kept, *q.axis]
    real = padded[:, :, : _geometry(q)[1]]
    return real.reshape([q.shape[a] for a in order]).transpose(np.argsort(order))
