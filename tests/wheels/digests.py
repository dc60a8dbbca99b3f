"""Print one digest per operation and format: equal lines on every machine, system and version of Python.

python tests/wheels/digests.py [OPERATION ...]

It needs the package alone. The process must not use a BLAS: set HETEROCOMPUTE_BLAS=own.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable

import numpy as np

import heterocompute as hc

FORMATS = [text for family in hc.Format.families() for text in family.examples]


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return float32 numbers from integer arithmetic only: an odd multiple of a counter, truncated to 24 bits."""
    count = np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(1 + 7919 * seed)
    mixed = count * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)).reshape(shape)


def digest(*arrays: np.ndarray) -> str:
    """Return the first 16 digits of a SHA-256 of dtypes, shapes and little-endian bytes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def quantize() -> None:
    """Print the digests of the components and values of each format."""
    w = numbers((24, 256), 1)
    for text in FORMATS:
        q = hc.quantize(w, text)
        print("quantize", text, digest(*(q.components[name] for name in sorted(q.components)), q.dequantize()))


def linear() -> None:
    """Print the digests of a batch and one vector times packed weights, with float and with int8 inputs."""
    x, w = numbers((17, 256), 2), numbers((24, 256), 1)
    for text in FORMATS:
        q = hc.quantize(w, text)
        for activations in (None, "int8"):
            found = [hc.linear(rows, q, activations=activations) for rows in (x, x[:1])]
            print("linear", text, activations, digest(*found))


def layers() -> None:
    """Print the digests of dense and sparse matmuls and convolutions."""
    x, w = numbers((33, 192), 3), numbers((40, 192), 4)
    print("dense", digest(hc.linear(x, w)))
    sparse = hc.prune(w, "2:4")
    print("2:4", digest(hc.linear(x, sparse)))
    image, filters = numbers((2, 8, 14, 14), 5), numbers((16, 8, 3, 3), 6)
    print("conv2d", digest(hc.conv2d(image, filters, padding=1)))
    packed = hc.quantize(filters, "int8", axis=(2, 3, 1))
    print("conv2d int8", digest(hc.conv2d(image, packed, padding=1, activations="int8")))


OPERATIONS: dict[str, Callable[[], None]] = {call.__name__: call for call in (quantize, linear, layers)}

if __name__ == "__main__":
    for name in sys.argv[1:] or OPERATIONS:
        OPERATIONS[name]()
