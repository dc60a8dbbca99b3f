"""Attention, and caches of keys and values in any format. The C core computes it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ... import _heterocompute as _core
from ...arrays.array_like import ArrayLike
from ...arrays.components import layout_of, rows_stand_alone
from ...arrays.dense import as_array
from ...arrays.device import DeviceArray, is_on_device
from ...arrays.quantized import QuantizedArray
from ...arrays.rotated import turned
from ...base import runtime
from ...base.devices import A_DEVICE, KIND, has_device
from ...base.errors import Unsupported, WrongType, WrongValue, shown
from ...base.float_env import converted, counts_subnormals
from ...base.texts import counted
from ...base.values import as_int, as_list, as_real, check_flag
from ...formats import Format, has_pattern, is_function, unrotated
from ..arguments import FloatArray
from ..device import settle
from ..given.functions import rounded_by
from ..quantize import quantize
from .device import TOGETHER, device_attention, device_heads, in_batches, in_library_of_first, is_device_input
from .device_cache import DeviceTokens, check_row, device_tokens
from .transformer import as_floats
from .turned import block_of, cache_format

__all__ = ["KVCache", "attention"]

TILE = 64  # keys per tile, HC_KEYS of the core
MAX_SCALE = 3e38
LEAST_SCALE, HIDDEN = 1e-8, 1e30  # with a bias: products of both stay in the range of float32
MAX_LAYERS = 1 << 16  # each layer needs its own lists


class Tokens(NamedTuple):
    """The state of a layer of a `KVCache`. It is replaced as a whole, so that an error leaves the old one."""

    memory: tuple[Any, Any]  # keys and values, (tokens, batch, heads, width), or None before the first tokens
    held: int  # tokens in memory
    seen: int  # tokens so far


class Kept(NamedTuple):
    """Rows of keys or values of a `KVCache`: a packed array (tokens, batch, heads, width)."""

    packed: Any  # a QuantizedArray, or one on a device
    block: int = 0  # of the rotation of the heads, see turned.py; 0 without

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, heads, tokens, width)."""
        tokens, batch, heads, width = self.packed.shape
        return batch, heads, tokens, width

    def dequantize(self) -> Any:
        """Return the values, float32 (batch, heads, tokens, width)."""
        values = _by_heads(self.packed.dequantize())
        return turned(values, self.block) if self.block else values


@counts_subnormals
@in_library_of_first
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    causal: bool = True,
    scale: float | None = None,
    window: int | None = None,
    cap: float | None = None,
    sinks: ArrayLike | None = None,
    bias: ArrayLike | None = None,
) -> FloatArray:
    """Return the attention ``softmax(scale q k^T) v``.

    Parameters
    ----------
    q : array_like, shape (..., heads, n, width)
        The queries of the last n tokens.
    k, v : array_like or QuantizedArray, shape (..., kv_heads, m, width)
        Keys and values of all m tokens, or the result of `KVCache.add`. m is at least n, or at least 1 without `causal`
        and `window`. Packed keys and values are quantized along the last axis and decoded tile by tile. heads is a
        multiple of kv_heads: query head i uses head ``i // (heads // kv_heads)``. All of q, k and v are on the CPU, or
        all on one device, in float32 or packed.
    causal : bool
        Mask all tokens after the query's own.
    scale : float, optional
        Default: ``width ** -0.5``.
    window : int, optional
        Number of tokens that a query sees, the last of which is its own. Default: all.
    cap : float, optional
        Replace each score by ``cap tanh(score / cap)``.
    sinks : array_like, shape (heads,), optional
        A further score of each head, whose value is 0. It takes its share of the softmax. On the CPU only.
    bias : array_like, shape (heads, m), optional
        Joins the score of each head and key before `cap`, as ALiBi does. On the CPU only, with a scale of at least 1e-8
        or at most -1e-8. Minus infinity and numbers below -1e30 are -1e30, which hides a key from queries that see
        another one. Numbers above 1e30 are refused, and with `cap` those below -1e30.

    Returns
    -------
    ndarray of float32, shape of q
        Bitwise identical on every instruction set and number of threads. Packed keys and values give the result of
        their decoded values. Working memory: two tiles of 64 keys, four with a bias, and 16 tokens of queries per
        thread. Arrays on a device give an array there, with the same bits. Packed keys and values are decoded there as
        a whole.

    Raises
    ------
    ValueError
        The shapes do not match, or keys or values are quantized along another axis or by a format with a pattern.
    TypeError
        Some arguments are on a device and some are not.
    NotImplementedError
        Arrays on a device are not float32 or not contiguous along the last axis.

    Notes
    -----
    Vaswani et al., 2017, equation 1; Dao et al., "FlashAttention", 2022 (arXiv 2205.14135), algorithm 1;
    grouped heads: Ainslie et al., 2023 (arXiv 2305.13245); sinks: Xiao et al., 2023 (arXiv 2309.17453), section 3.3.
    A bias is a further value of each key, which the query multiplies by ``1 / scale``: Press et al., 2021
    (arXiv 2108.12409), section 3.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = k = np.zeros((1, 2, 4), np.float32)
    >>> v = np.float32([[[1, 1, 1, 1], [3, 3, 3, 3]]])
    >>> hc.attention(q, k, v)[0, :, 0]
    array([1., 2.], dtype=float32)
    """
    qs = _heads(q, "q")
    shape = qs.shape
    blocks = [one.block if isinstance(one, Kept) else 0 for one in (k, v)]
    if any(blocks):
        if blocks[0] != blocks[1]:
            raise WrongValue("attention: k and v are rotated differently, expected both to be of one KVCache")
        if shape[-1] % blocks[0]:
            raise WrongValue(f"attention: q has shape {shape}, expected a width of {_shape_of(k, None)[-1]}")
        qs = turned(qs, blocks[0])
    qs = _in_batches(qs, "q")
    kept = [_kept(one, shape, name) for one, name in ((k, "k"), (v, "v"))]
    (k_shape, keys, ks), (v_shape, values, vs) = kept
    if k_shape != v_shape:
        raise WrongValue(f"attention: k has shape {_shape_of(k, ks)} and v {_shape_of(v, vs)}, expected one shape")
    batch, heads, n, width = qs.shape
    hides = check_flag("attention", "causal", causal)
    least = n if hides or window is not None else min(n, 1)
    if heads % max(k_shape[1], 1) or (heads and not k_shape[1]) or k_shape[2] < least:
        raise WrongValue(
            f"attention: k has {k_shape[1]} heads of {k_shape[2]} tokens, expected a divisor of {heads} heads and at "
            f"least {counted(least, 'token')}{'; causal=False without a window takes fewer' if least > 1 else ''}"
        )
    times = max(width, 1) ** -0.5 if scale is None else as_real(scale, "attention: scale", "a number")
    limit = 0.0 if cap is None else as_real(cap, "attention: cap", "a number above 0")
    if not abs(times) <= MAX_SCALE or not 0.0 <= limit <= MAX_SCALE or (cap is not None and limit == 0.0):
        raise WrongValue(f"attention: scale is {shown(scale)} and cap {shown(cap)}, expected numbers, cap above 0")
    seen = 0 if window is None else min(as_int(window, "attention: window", 1), 1 << 62)
    scores = None if sinks is None else as_floats(sinks, "attention: sinks")
    if scores is not None and scores.shape != (heads,):
        raise WrongValue(f"attention: sinks have shape {scores.shape}, expected ({heads},)")
    with np.errstate(over="ignore"):  # a value beyond float32 is refused below
        joined = None if bias is None else as_floats(bias, "attention: bias")
    if joined is not None and joined.shape != (heads, k_shape[2]):
        raise WrongValue(f"attention: bias has shape {joined.shape}, expected {(heads, k_shape[2])}")
    if joined is not None:
        if not abs(times) >= LEAST_SCALE:
            raise WrongValue(f"attention: scale is {shown(scale)}, expected 1e-8 or more in magnitude with a bias")
        if not (joined <= HIDDEN).all() or (limit and (joined < -HIDDEN).any()):
            least = ", and with a cap at least -1e30" if limit else ""
            raise WrongValue(f"attention: bias has NaN or numbers beyond the limits, expected at most 1e30{least}")
        joined = np.maximum(joined, np.float32(-HIDDEN))
    if any(is_device_input(one) for one in (qs, ks, vs)):
        for name, one in (("sinks", scores), ("a bias", joined)):
            if one is not None:
                raise Unsupported(f"attention: {name} is given, which {A_DEVICE} does not compute; expected None")
        answer = device_attention(qs, (ks, vs), (keys, values), k_shape[1], hides, seen, times, limit, None, None)
        return answer.reshaped(shape)  # type: ignore[return-value]
    out = np.empty((batch, n, heads, width), np.float32).transpose(0, 2, 1, 3)  # the order that the next matmul reads
    if out.size:
        _core.attention(runtime.run(), qs, keys, values, out, k_shape[1], hides, seen, times, limit, scores, joined)
    if blocks[1]:
        out = turned(out, blocks[1])
    return out if len(shape) == 4 else out.reshape(shape)


def _heads(x: Any, name: str) -> Any:
    """Return heads as float32 with a contiguous last axis, on their device."""
    if type(x) is np.ndarray and x.dtype == np.float32 and x.ndim == 4 and x.strides[3] == 4 and x.flags.aligned:
        return x
    on_device = device_heads(x, f"attention: {name}")
    found: Any = as_floats(x, f"attention: {name}") if on_device is None else on_device
    if found.ndim < 3:
        raise WrongValue(f"attention: {name} has shape {found.shape}, expected (..., heads, tokens, width)")
    return found


def _in_batches(x: Any, name: str) -> Any:
    """Return heads as (batch, heads, tokens, width)."""
    if isinstance(x, DeviceArray):
        return in_batches(x, f"attention: {name}")
    return x if x.ndim == 4 else x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])


def _kept(x: object, shape: tuple[int, ...], name: str) -> tuple[tuple[int, ...], Any, Any]:
    """Return (batch, heads, tokens, width) of keys or values, their arguments for the C core, and the array."""
    packed: Any
    if isinstance(x, Kept):
        batch, heads, tokens, width = x.shape
        sizes, steps, packed = x.shape, (heads, 1, batch * heads), x.packed
    elif isinstance(x, QuantizedArray):
        if x.ndim < 3 or x.axis != (x.ndim - 1,) or has_pattern(x.format):
            raise WrongValue(
                f"attention: {name} is {x.format} of shape {x.shape} along axis {x.axis}, expected (..., tokens, "
                "width), quantized along the last axis and without a pattern"
            )
        heads, tokens, width = x.shape[-3:]
        sizes, steps, packed = (math.prod(x.shape[:-3]), heads, tokens, width), (heads * tokens, tokens, 1), x
    else:
        heads_given = _heads(x, name)
        floats = _in_batches(heads_given, name)
        sizes, packed = floats.shape, None
    whole = packed if packed is not None else floats
    found, lead = _shape_of(x, heads_given if packed is None else whole), tuple(shape[:-3])
    if sizes[3] != shape[-1] or sizes[0] != math.prod(lead) or (found[:-3] and found[:-3] != lead):
        raise WrongValue(f"attention: {name} has shape {found}, expected {(*lead, 'kv_heads', 'tokens', shape[-1])}")
    if packed is None:
        return sizes, floats.view if isinstance(floats, DeviceArray) else floats, heads_given
    return sizes, (packed._packed(), steps, (sizes[0] * sizes[1], sizes[2], sizes[3])), packed


def _shape_of(x: object, whole: Any) -> tuple[int, ...]:
    """Return the shape of keys or values: their own, or that of the array made of an array_like."""
    return tuple(x.shape if isinstance(x, Kept) else whole.shape)


def _by_heads(tokens: Any) -> Any:
    """Return an array (tokens, batch, heads, width) as (batch, heads, tokens, width); the memory is shared."""
    order = (1, 2, 0, 3)
    return tokens.transposed(order) if isinstance(tokens, DeviceArray) else tokens.transpose(order)


class KVCache:
    """Store the keys and values of all tokens so far, in float32 or packed in a format.

    The first tokens decide where the memory is: on the CPU, or on their device.

    Parameters
    ----------
    format : Format or str, optional
        Format of keys and values. When a token is added, each head is quantized along its width. Default: float32.
        With the suffix ``+had``, such as ``"int4-g32+had"``, heads are rotated by a Hadamard matrix before. `attention`
        rotates queries and results alike, so that only the rounding changes. On the CPU, for widths of powers of two.
        ``+had32`` rotates blocks of 32, for widths that are multiples of it.
        A function (`define` with ``round=``) rounds float32 tokens as they are added, on the CPU.
    layers, heads, width : int
        `heads` is the number of key heads.
    batch : int
    windows : sequence of int or None, optional
        Number of tokens that each layer needs. Older tokens are dropped from memory. Default: all.

    Raises
    ------
    ValueError
        The format has a pattern, or its rows share data, such as the scale of the whole tensor or a learned codebook.
        A size or a window is below 1.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> cache = hc.KVCache("int8", layers=1, heads=2, width=32)
    >>> token = np.ones((1, 2, 1, 32), np.float32)
    >>> k, v = cache.add(0, token, token)
    >>> hc.attention(token, k, v).shape, cache.length, cache.nbytes
    ((1, 2, 1, 32), 1, 144)
    """

    def __init__(
        self,
        format: Format | str | None = None,
        layers: int = 1,
        heads: int = 1,
        width: int = 64,
        batch: int = 1,
        windows: object = None,
    ) -> None:
        given_format = cache_format(format, "KVCache: format")
        self.format = unrotated(given_format)
        sizes = {"layers": layers, "heads": heads, "width": width, "batch": batch}
        self.layers, self.heads, self.width, self.batch = (
            as_int(value, f"KVCache: {name}", 1, MAX_LAYERS if name == "layers" else 1 << 40)
            for name, value in sizes.items()
        )
        wanted = "a sequence of int or None"
        given = [None] * self.layers if windows is None else as_list(windows, "KVCache: windows", wanted)
        self.windows = [None if one is None else as_int(one, "KVCache: windows", 1) for one in given]
        if len(self.windows) != self.layers:
            raise WrongValue(f"KVCache: windows has {len(self.windows)} entries, expected {self.layers}")
        self.block = block_of(given_format, self.width, "KVCache")
        self._name = "float32" if given_format is None else str(given_format)
        self.rows = self.heads * self.batch  # rows per token
        self._parts: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
        self._parts = {"values": (np.dtype(np.float32), (self.width,))}
        if self.format is not None and not is_function(self.format):
            layout = layout_of(self.format, (1, self.width), (1,))
            if not rows_stand_alone(self.format, self.width):
                raise WrongValue(
                    f"KVCache: format is {self.format}, whose rows share a scale, codebook or pattern; expected one "
                    "with all of it per row or group, such as int8, int4-g32 or fp8_e4m3fn-row"
                )
            self._parts = {name: (dtype, shape[1:]) for name, (dtype, shape, _) in layout.items()}
        self._tokens = [Tokens((None, None), 0, 0)] * self.layers

    def __repr__(self) -> str:
        size = f"layers x batch x heads x width {self.layers} x {self.batch} x {self.heads} x {self.width}"
        return f"<KVCache: {self._name}, {size}, {self.length} tokens, {self.nbytes:,} bytes>"

    @property
    def _device_stream(self) -> tuple[int, int] | None:
        """Return the device and the stream of the memory, None on the CPU or without memory."""
        memory = next((one.memory[0] for one in self._tokens if one.memory[0] is not None), None)
        return (memory.number, memory.stream) if isinstance(memory, DeviceTokens) else None

    @property
    def _is_packed(self) -> bool:
        return not (self.format is None or is_function(self.format))

    @property
    def length(self) -> int:
        """Return the number of tokens added to the last layer."""
        return self._tokens[-1].seen

    @property
    def device(self) -> str:
        """Return ``"cpu"``, or the name of the device of the tokens."""
        place = self._device_stream
        return "cpu" if place is None else f"{KIND}:{place[0]}"

    @property
    def nbytes(self) -> int:
        """Return the bytes of the tokens in memory, for all layers."""
        row = sum(dtype.itemsize * math.prod(shape) for dtype, shape in self._parts.values())
        return 2 * row * self.rows * sum(one.held for one in self._tokens)

    @counts_subnormals
    def add(self, layer: int, k: ArrayLike, v: ArrayLike) -> tuple[Any, Any]:
        """Append the keys and values of new tokens and return all in memory.

        Parameters
        ----------
        layer : int
        k, v : array_like, shape (batch, heads, tokens, width)
            On the CPU, or in float32, float16 or bfloat16 on the device of the tokens so far.

        Returns
        -------
        tuple
            Keys and values of all tokens in memory, for `attention`. Valid until the next call for this layer. They
            are on the device of k and v, with the bytes of those on the CPU.

        Raises
        ------
        ValueError
            The shapes do not match, or the format cannot represent a NaN or infinity.
        TypeError
            k and v are not on the device of the tokens so far.
        NotImplementedError
            k and v are on a device, which has no kernel for the format or the dtype.
        """
        i = as_int(layer, "KVCache.add: layer", 0, self.layers - 1)
        place = self._device_stream
        if place is not None or ((is_on_device(k) or is_on_device(v)) and has_device()):
            return self._add_on_device(i, k, v, place)
        parts = [as_array(one, f"KVCache.add: {name}") for one, name in ((k, "k"), (v, "v"))]
        if not self._is_packed:
            parts = [converted(one, np.float32) for one in parts]
        n = parts[0].shape[2] if parts[0].ndim == 4 else 0
        for one, name in zip(parts, "kv", strict=True):
            if one.shape != (self.batch, self.heads, n, self.width):
                wanted = (self.batch, self.heads, "tokens", self.width)
                raise WrongValue(f"KVCache.add: {name} has shape {one.shape}, expected {wanted}")
        begin, memory = self._with_room(i, n)
        for whole, new in zip(memory, parts, strict=True):
            self._write(whole, begin, n, new.transpose(2, 0, 1, 3))  # the rows of a token are contiguous
        kept = self._kept(memory[0], begin + n), self._kept(memory[1], begin + n)
        self._tokens[i] = Tokens(memory, begin + n, self._tokens[i].seen + n)
        return kept

    def _add_on_device(self, i: int, k: object, v: object, place: tuple[int, int] | None) -> tuple[Any, Any]:
        """Append tokens on a device; `place` has the device and the stream of the tokens so far."""
        if is_function(self.format):
            raise self.format.refusal("KVCache.add: the format of tokens on a device")
        if self.block:
            raise WrongValue(f"KVCache.add: k or v is on {A_DEVICE} and the format {self._name}, expected the CPU")
        if place is None and any(one.seen for one in self._tokens):
            raise WrongType(f"KVCache.add: k or v is on {A_DEVICE} and the cache on the CPU, {TOGETHER}")
        number, stream = place or (None, None)
        given = device_tokens(k, v, number, stream, (self.batch, self.heads, self.width))
        number, stream = given[0].number, stream or given[0].stream
        memory, all_held, seen = self._tokens[i]
        begin, n = all_held - self._too_old(i), given[0].shape[2]
        made = []
        for name, old, new in zip("kv", memory, given, strict=True):
            held = old.sizes[0] if isinstance(old, DeviceTokens) else 0
            if not held or begin + n > held or begin < all_held:
                tokens = held if begin + n <= held else max(begin + n, 2 * begin, 16)
                longer = DeviceTokens(self._parts, (tokens, self.batch, self.heads, self.width), number, stream)
                old = longer.filled_from(old, all_held - begin, all_held) if held else longer
            if new.size:
                check_row(old.write(new, begin, self.format), f"KVCache.add: {name}", new, self.format)
            made.append(old)
        settle(number, stream, *given)
        found = [one.first(begin + n, self.format) for one in made]
        k_kept, v_kept = (_by_heads(one) if self.format is None else Kept(one) for one in found)
        self._tokens[i] = Tokens((made[0], made[1]), begin + n, seen + n)
        return k_kept, v_kept

    def room(self, layer: int, n: int) -> tuple[int, tuple[Any, Any]]:
        """Reserve memory for n more tokens of a layer; return the number of tokens, and the arrays of keys and values.

        Each array has shape (tokens, batch, heads, width) and is packed if the cache has a format. Its first tokens are
        filled. The caller fills the next ones, with rotated heads if the format ends with ``+had``, then calls
        `advance`. The memory is on the CPU.
        """
        if is_function(self.format):
            raise WrongValue(f"KVCache.room: {self.format} is a function of values, expected add, which calls it")
        if self._device_stream is not None:
            raise WrongType(f"KVCache.room: the cache is on {self.device}, expected one on the CPU: use add")
        begin, memory = self._with_room(layer, n)
        self._tokens[layer] = Tokens(memory, begin, self._tokens[layer].seen)
        return begin, memory

    def advance(self, layer: int, n: int) -> None:
        """Count n tokens that the caller wrote to the memory of a layer."""
        memory, held, seen = self._tokens[layer]
        self._tokens[layer] = Tokens(memory, held + n, seen + n)

    def _with_room(self, layer: int, n: int) -> tuple[int, tuple[Any, Any]]:
        """Return the number of tokens to keep, and memory that begins with them and has room for n more.

        The memory of the cache is returned if all of its tokens are kept and it is long enough. Otherwise it is copied
        and stays as it is, so that an error on the way changes nothing.
        """
        memory, held, _ = self._tokens[layer]
        old, length = self._too_old(layer), 0 if memory[0] is None else memory[0].shape[0]
        begin = held - old
        if not old and length and begin + n <= length:
            return begin, memory
        tokens = length if length and begin + n <= length else max(begin + n, 2 * begin, 16)
        keys, values = (self._copied(one, old, held, tokens) for one in memory)
        return begin, (keys, values)

    def _copied(self, memory: object, first: int, end: int, tokens: int) -> Any:
        """Return memory for some tokens that begins with tokens [first, end) of other memory."""
        sizes = (tokens, self.batch, self.heads, self.width)
        made = {name: np.empty((tokens * self.rows, *shape), dtype) for name, (dtype, shape) in self._parts.items()}
        for name, part in made.items():
            if end > first:
                part[: (end - first) * self.rows] = _parts_of(memory, name)[first * self.rows : end * self.rows]
        if self.format is None or not self._is_packed:
            return made["values"].reshape(sizes)
        return QuantizedArray._trusted(made, self.format, sizes, (3,), "float32")

    def _write(self, whole: Any, begin: int, n: int, tokens: FloatArray) -> None:
        if self.block:
            tokens = turned(converted(tokens, np.float32), self.block)
        if is_function(self.format):
            tokens = rounded_by(self.format, tokens, (3,), "KVCache.add: k or v")
        if self.format is None or not self._is_packed:
            whole[begin : begin + n] = tokens
            return
        made = quantize(np.ascontiguousarray(tokens), self.format, axis=-1).components
        for name in self._parts:
            whole.components[name][begin * self.rows : (begin + n) * self.rows] = made[name]

    def _kept(self, whole: Any, tokens: int) -> Any:
        if self.format is None or not self._is_packed:
            return whole[:tokens].transpose(1, 2, 0, 3)
        found = {name: whole.components[name][: tokens * self.rows] for name in self._parts}
        sizes = (tokens, self.batch, self.heads, self.width)
        return Kept(QuantizedArray._trusted(found, self.format, sizes, (3,), "float32"), self.block)

    def _too_old(self, layer: int) -> int:
        """Return the number of tokens that no query will see, in whole tiles, which keeps the order of sums."""
        window = self.windows[layer]
        if window is None:
            return 0
        old = self._tokens[layer].held - (window - 1)
        return 0 if old < max(window, TILE) else old - old % TILE  # rarely, so that copying costs little


def _parts_of(whole: Any, name: str) -> np.ndarray[Any, Any]:
    """Return a component of the memory of a cache, a row per token, batch and head."""
    return whole.components[name] if isinstance(whole, QuantizedArray) else whole.reshape(-1, whole.shape[-1])
