"""Keys and values of a `KVCache` in the memory of a device: tokens are encoded there, and memory grows there."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...arrays.components import core_format
from ...arrays.device import DeviceArray, as_device, c_strides, is_on_device
from ...arrays.quantized import QuantizedArray
from ...base import runtime
from ...base.devices import A_DEVICE, KIND, move
from ...base.errors import TO_CPU, Unsupported, WrongType, WrongValue, unsupported
from ...formats import Float, Format
from ..device import refuse_row
from .device import TOGETHER

Parts = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]  # component -> dtype and shape of a row
FLOATS = ("float32", "float16", "bfloat16")  # dtypes that float32 represents exactly


class DeviceTokens:
    """Memory for the keys or values of some tokens: each component has one row per token, batch and head."""

    def __init__(self, parts: Parts, sizes: tuple[int, ...], number: int, stream: int) -> None:
        self.sizes, self.number, self.stream = sizes, number, stream  # (tokens, batch, heads, width)
        rows = prod(sizes[:3])
        self.parts = {
            name: DeviceArray.empty((rows, *shape), dtype, number, stream) for name, (dtype, shape) in parts.items()
        }

    def filled_from(self, old: DeviceTokens, begin: int, end: int) -> DeviceTokens:
        """Copy some tokens of other memory to the first positions."""
        for name, part in self.parts.items():
            token = part.nbytes // self.sizes[0]
            source = old.parts[name].address + begin * token
            move(self.number, self.stream, part.address, source, (end - begin) * token)
        return self

    def write(self, x: DeviceArray, begin: int, fmt: Format | None) -> int:
        """Encode the tokens of x, (batch, heads, tokens, width), and store them from token `begin` on.

        Returns the first row with a value that the format lacks, or -1; waits for that if there is a format.
        """
        turned = x.transposed((2, 0, 1, 3))
        at = {key: part.address + begin * (part.nbytes // self.sizes[0]) for key, part in self.parts.items()}
        if fmt is None:
            memory = self.parts["values"]
            steps = c_strides(turned.shape, memory.dtype.itemsize)
            to = DeviceArray(memory, at["values"], turned.shape, memory.dtype, steps, self.number, self.stream)
            _copy(turned, to)
            return -1
        try:
            packed = core_format(fmt), turned.shape, (3,), at, 0, self.number
            return int(_core.quantize(runtime.run_on(self.number, self.stream), turned.view, None, packed))
        except NotImplementedError as problem:
            raise unsupported("KVCache.add", problem) from None

    def first(self, tokens: int, fmt: Format | None) -> Any:
        """Return the first tokens, as an array (tokens, batch, heads, width); the memory is shared."""
        sizes = (tokens, *self.sizes[1:])
        views = {name: part.reshaped((prod(sizes[:3]), *part.shape[1:])) for name, part in self.parts.items()}
        if fmt is None:
            return views["values"].reshaped(sizes)
        return QuantizedArray._trusted(views, fmt, sizes, (3,), "float32")  # type: ignore[arg-type]


def check_row(row: int, name: str, x: DeviceArray, fmt: Format | None) -> None:
    """Raise ValueError if `write` found a value that the format lacks; its rows are (token, batch, head)."""
    if row >= 0 and fmt is not None:
        batches, heads, tokens = x.shape[:3]
        token, batch, head = np.unravel_index(row, (tokens, batches, heads))
        refuse_row(int(np.ravel_multi_index((batch, head, token), x.shape[:3])), name, x.shape, (3,), fmt)


def _copy(x: DeviceArray, to: DeviceArray) -> None:
    """Copy values of any strides to C order, as float32; waits for nothing."""
    run = runtime.run_on(to.number, to.stream)
    _core.fake_quantize(run, x.view, core_format(Float("fp32")), (3,), None, to.view)


def device_tokens(
    k: object, v: object, number: int | None, stream: int | None, shape: tuple[int, ...]
) -> list[DeviceArray]:
    """Return keys and values on the device of a cache, after their checks; `shape` is (batch, heads, width).

    `number` and `stream` are those of the cache, None before its first tokens.
    """
    found: list[DeviceArray] = []
    for word, one in (("k", k), ("v", v)):
        name = f"KVCache.add: {word}"
        place = f"the cache on {KIND}:{number}" if number is not None else f"the other argument on {A_DEVICE}"
        if not is_on_device(one):
            raise WrongType(f"{name} is on the CPU and {place}, {TOGETHER}")
        made = as_device(one, name, stream)
        number, stream = made.number if number is None else number, made.stream if stream is None else stream
        if made.number != number:
            raise WrongType(f"{name} is on {made.device} and {place}, {TOGETHER}")
        if made.dtype.name not in FLOATS:
            wanted = f"expected {', '.join(FLOATS)} on {A_DEVICE}"
            raise Unsupported(f"{name} is {made.dtype}, {wanted}: {TO_CPU}")
        found.append(made)
    n = found[0].shape[2] if found[0].ndim == 4 else 0
    for word, made in zip("kv", found, strict=True):
        batch, heads, width = shape
        if made.shape != (batch, heads, n, width):
            raise WrongValue(f"KVCache.add: {word} has shape {made.shape}, expected {(batch, heads, 'tokens', width)}")
    return found
