"""The codes of an array: row by row, and their size as a Huffman code."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import WrongType, WrongValue
from ..base.float_env import counts_subnormals
from ..base.notebooks.shown import Facts
from .bits import rows_per_chunk
from .foreign import refuse_elsewhere
from .quantized import QuantizedArray
from .unpacked import code_geometry, row_codes

__all__ = ["CodeStorage", "code_storage"]

Array = np.ndarray[Any, Any]

BLOCK = 1 << 22  # codes unpacked at a time


@dataclass(frozen=True)
class CodeStorage(Facts):
    """The size of an array's codes, as stored and as a Huffman code.

    Attributes
    ----------
    codes : int
        Number of codes, without the padding of short groups.
    bits : int
        Stored bits per code.
    entropy : float
        Entropy of the code frequencies in bits per code, the lower bound for any code of single symbols.
    huffman : float
        Bits per code of a Huffman code; less than entropy + 1.
    nbytes : int
        Bytes of the array as stored.
    huffman_nbytes : int
        Bytes with the codes as one Huffman stream, one byte for the code length of each of the 2^bits symbols, and all
        remaining components unchanged.
    ratio, huffman_ratio : float
        4 bytes per value, divided by the bytes as stored and as a Huffman code.
    """

    codes: int
    bits: int
    entropy: float
    huffman: float
    nbytes: int
    huffman_nbytes: int
    ratio: float
    huffman_ratio: float


@counts_subnormals
def code_storage(q: QuantizedArray) -> CodeStorage:
    """Report the size of an array's codes as stored, by their entropy, and as a Huffman code.

    Parameters
    ----------
    q : QuantizedArray
        An array of any format with codes of up to 16 bits. For a sparse array the codes of the nonzeros count. Matmuls
        and files use the codes as stored.

    Returns
    -------
    CodeStorage

    Raises
    ------
    TypeError
        q is not a QuantizedArray.
    ValueError
        The codes have more than 16 bits.

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
    refuse_elsewhere(q, "code_storage: q")
    if not isinstance(q, QuantizedArray):
        raise WrongType(f"code_storage: q is {type(q).__name__}, expected a QuantizedArray")
    bits = q.format.bits
    if bits > 16:
        raise WrongValue(f"code_storage: codes of {q.format} have {bits} bits, expected at most 16")
    counts = np.zeros(2**bits, np.int64)
    rows = rows_per_chunk(len(q.components["codes"]), q.components["codes"][:1].nbytes, BLOCK)
    for first in range(0, len(q.components["codes"]) if q.size else 0, rows):
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

    Examples
    --------
    >>> from heterocompute.arrays.codes import huffman_lengths
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


def _real_codes(q: QuantizedArray, first: int, rows: int) -> Array:
    return row_codes(q, first, rows)[:, :, : code_geometry(q)[3]]
