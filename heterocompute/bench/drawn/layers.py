"""Drawn layers between matmuls, and attention, next to torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...products import layers
from ...products.layers.attention import KVCache, attention
from ...products.layers.transformer import activated
from ...reference import layers as reference
from ..measure import expect_equal
from ..peers import installed
from .call import Array, Call, Draw, close, sizes_text
from .shapes import attentions, matrices, widths, windows

OPERATIONS = ("softmax", "gelu", "gelu_erf", "layer_norm", "rms_norm", "swiglu", "rope", "pool",
              "attention", "attention", "attention", "decoding")  # fmt: skip
TOKENS = (1, 7, 16, 32, 64, 77, 128, 197, 256, 512)
CACHES = (None, None, "int8", "int4-g32", "fp8_e4m3fn")
MOST_VALUES, MOST_WORK, MOST_EXACT = 1 << 22, 400_000_000, 1 << 16
GELU_ERROR, ATTENTION_ERROR = 1e-3, 0.5


def draw_layer(draw: Draw, threads: int) -> Call | None:
    """Return a layer; None if it is too large."""
    operation = draw.pick(OPERATIONS)
    if operation in ("attention", "decoding"):
        return _attention(draw, is_decoding=operation == "decoding")
    if operation == "pool":
        return _pool(draw)
    if operation == "rope":
        return _rope(draw)
    tokens = draw.size(draw.pick(TOKENS))
    lead: tuple[int, ...]
    if operation == "softmax":
        lead, n = (draw.pick(attentions()).heads, tokens), draw.size(draw.pick((tokens, *TOKENS)))
    else:
        of_gates = operation in ("gelu", "gelu_erf", "swiglu")
        lead, n = (tokens,), draw.size(draw.pick([n for n, _ in matrices()] if of_gates else widths()))
    if np.prod(lead) * n > (1 << 14 if draw.quick else MOST_VALUES):
        return None
    x, dtype = draw.floats(*lead, n)
    weight, bias = draw.normal(n), draw.normal(n)
    arguments: dict[str, tuple[Any, ...]] = {"layer_norm": (x, weight, bias), "rms_norm": (x, weight)}
    arguments["swiglu"] = (x, x[::-1].copy())
    given = arguments.get(operation, (x,))
    is_exact = operation == "gelu_erf"
    run = partial(activated, operation, x) if is_exact else partial(getattr(layers, operation), *given)
    peers: dict[str, Any] = {}
    torch = installed("torch")
    if torch is not None:
        theirs = _theirs(torch, operation, tuple(torch.from_numpy(one) for one in given))
        wanted = np.asarray(run(), np.float64)
        peers = {"torch": (theirs, close("torch", theirs, wanted, GELU_ERROR if operation == "gelu" else 1e-4))}
    check = _checked(operation, run, getattr(reference, operation), given)
    return Call(operation, f"{operation}, {sizes_text(x.shape)}{dtype}", run, check, peers)


def _theirs(torch: Any, operation: str, given: tuple[Any, ...]) -> Callable[[], Any]:
    functional, (x, *rest) = torch.nn.functional, given
    calls: dict[str, Callable[[], Any]] = {
        "softmax": lambda: torch.softmax(x.float(), -1),
        "gelu": lambda: functional.gelu(x.float(), approximate="tanh"),
        "gelu_erf": lambda: functional.gelu(x.float()),
        "layer_norm": lambda: functional.layer_norm(x.float(), x.shape[-1:], *rest, 1e-5),
        "rms_norm": lambda: functional.rms_norm(x.float(), x.shape[-1:], *rest, 1e-6),
        "swiglu": lambda: functional.silu(x.float()).mul_(rest[0].float()),
    }
    return calls[operation]


def _checked(
    name: str, run: Callable[[], Array], definition: Callable[..., Array], given: tuple[Any, ...]
) -> Callable[[], None]:
    """Return a check against the definition of the first rows."""

    def check() -> None:
        x = given[0]
        rows = max(1, min(x.shape[-2], MOST_EXACT // x.shape[-1] // max(int(np.prod(x.shape[:-2])), 1)))
        some = [np.asarray(one[..., :rows, :] if one.shape == x.shape else one, np.float32) for one in given]
        expect_equal(name, np.ascontiguousarray(run()[..., :rows, :]), definition(*some))

    return check


def _rope(draw: Draw) -> Call | None:
    shape, tokens = draw.pick(attentions()), draw.size(draw.pick(TOKENS))
    if tokens * shape.heads * shape.width > (1 << 14 if draw.quick else MOST_VALUES):
        return None
    x, half = draw.normal(tokens, shape.heads, shape.width), shape.width // 2
    cosine, sine = draw.normal(tokens, 1, half), draw.normal(tokens, 1, half)
    run = partial(layers.rope, x, cosine, sine)
    torch = installed("torch")
    peers: dict[str, Any] = {}
    if torch is not None:
        given, cos, sin = (torch.from_numpy(one) for one in (x, np.tile(cosine, 2), np.tile(sine, 2)))

        def theirs() -> Any:  # as transformers writes it
            turned = torch.cat((-given[..., half:], given[..., :half]), -1)
            return given * cos + turned * sin

        peers = {"torch": (theirs, close("torch", theirs, np.asarray(run(), np.float64)))}
    text = f"rope, {sizes_text(x.shape)}"
    return Call("rope", text, run, lambda: expect_equal("rope", run(), reference.rope(x, cosine, sine)), peers)


def _pool(draw: Draw) -> Call | None:
    window = draw.pick(windows())
    c, height, width = window.c, window.height, window.width
    size, stride, padding = draw.pick(((2, 2, 0), (3, 2, 1), (3, 1, 1)))
    kind = draw.pick(("max_pool2d", "avg_pool2d"))
    if min(height, width) < 3 or c * height * width > (1 << 12 if draw.quick else 1 << 20):
        return None
    x = draw.normal(draw.pick((1, 1, 4)), c, height, width)
    run = partial(getattr(layers, kind), x, size, stride, padding)
    padded = np.pad(
        x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=-np.inf if kind[0] == "m" else 0
    )
    seen = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]
    wanted = seen.max((4, 5)) if kind[0] == "m" else seen.mean((4, 5), dtype=np.float64)
    torch = installed("torch")
    peers: dict[str, Any] = {}
    if torch is not None:
        theirs = partial(getattr(torch.nn.functional, kind), torch.from_numpy(x), size, stride, padding)
        peers = {"torch": (theirs, close("torch", theirs, wanted.astype(np.float64)))}
    text = f"{kind}, {sizes_text(x.shape)}, {size}x{size}/{stride}"
    return Call("pool", text, run, close(kind, run, wanted.astype(np.float64)), peers)


def _attention(draw: Draw, is_decoding: bool) -> Call | None:
    shape = draw.pick(attentions())
    heads, kv_heads, width = (4, 2, 16) if draw.quick else shape
    tokens = draw.size(draw.pick(TOKENS))
    keys = draw.size(draw.pick((128, 512, 1000, 2048))) if is_decoding else tokens
    queries = 1 if is_decoding else tokens
    causal = is_decoding or draw.chance(0.4)
    batch = draw.pick((1, 1, 2)) if not is_decoding else 1
    if batch * heads * queries * keys * width * 2 > MOST_WORK or batch * heads * keys * width > MOST_VALUES:
        return None
    q = draw.normal(batch, heads, queries, width)
    k, v = draw.normal(batch, kv_heads, keys, width), draw.normal(batch, kv_heads, keys, width)
    fmt = draw.pick(CACHES) if is_decoding else None
    held: tuple[Any, Any] = (k, v)
    if is_decoding:
        held = KVCache(fmt, layers=1, heads=kv_heads, width=width).add(0, k, v)
    run = partial(attention, q, *held, causal=causal)
    floats = [np.asarray(one if isinstance(one, np.ndarray) else one.dequantize()) for one in held]

    def check() -> None:
        few = slice(-2, None)
        if causal:  # the last tokens see all keys
            wanted = reference.attention(q[0][:1, few], floats[0][0, :1], floats[1][0, :1], causal=True)
        else:
            wanted = reference.attention(q[0][:1, few], floats[0][0, :1], floats[1][0, :1], causal=False)
        expect_equal("attention", np.ascontiguousarray(run()[0, :1, few]), wanted)

    torch = installed("torch")
    peers: dict[str, Any] = {}
    if torch is not None:
        given = [torch.from_numpy(one) for one in (q, k, v)]
        theirs = partial(torch.nn.functional.scaled_dot_product_attention, *given,
                         is_causal=causal and queries > 1, enable_gqa=heads != kv_heads)  # fmt: skip
        error = ATTENTION_ERROR if fmt else 1e-4
        peers = {"torch": (theirs, close("torch", theirs, np.asarray(run(), np.float64), error))}
    group = "decoding" if is_decoding else "attention, causal" if causal else "attention, encoder"
    what = f"{batch} x {heads} heads ({kv_heads}) of {width}, {queries} queries, {keys} keys"
    return Call(group, f"{group}: {what}, cache {fmt or 'float32'}", run, check, peers)
