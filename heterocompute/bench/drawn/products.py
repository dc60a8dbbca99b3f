"""Drawn matmuls of every family of formats and activations, next to NumPy, torch and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...arrays.components import core_format
from ...arrays.prepacked import prepack
from ...base import runtime
from ...formats import format as parse_format, has_pattern
from ...products.arguments import core_operand
from ...products.matmul import linear
from ...products.quantize import fake_quantize, quantize
from ...reference import product as reference
from ..measure import expect_equal
from ..peers import installed, product_peers
from .call import Array, Call, Calls, Draw, close, sizes_text
from .shapes import matrices

ERROR = 1e-4  # of sums of float32, relative to their norm
FORMATS = (  # of the weights
    "int8", "int4", "int8-g64", "int4-g32-f16", "int4-g128-asym", "int3-g32-f16", "vsq4-g16-s4", "vsq6-g16-s6",
    "vsq8-g64-s8", "mxfp4", "mxfp6_e3m2", "mxfp8_e4m3", "mxint8", "nvfp4", "nf4-g64", "fp8_e4m3fn", "fp8_e4m3fn-row",
    "fp8_e5m2", "bf16", "fp16", "log8-8", "log4-2", "q4_k", "q8_0", "q4_0", "q6_k", "cb4", "posit8.1", "ternary",
    "int8+2:4", "2:4",
)  # fmt: skip
#: Weights whose products with int8 are sums of integers of up to 8 bits: other libraries have int8 products for these.
INTEGERS = ("int8", "int4", "int8-g64", "int4-g32-f16", "int4-g128-asym", "vsq4-g16-s4", "vsq6-g16-s6", "vsq8-g64-s8")
OTHERS = tuple(fmt for fmt in FORMATS if fmt not in INTEGERS)
ACTIVATIONS = (None, None, None, "int8", "int8", "int8", "int8", "int16", "fp8_e4m3fn-row", "mxfp8_e4m3", "bf16")
ROWS = (1, 1, 1, 2, 4, 8, 16, 32, 64, 128, 197, 512)
MOST_WORK = 500_000_000  # multiply-adds of a call
SAMPLE, MOST_EXACT = 4, 1 << 21  # rows of weights that the definition multiplies, and values that it is worth


def draw_matmul(draw: Draw, threads: int) -> Call | None:
    """Return a linear layer; None if it is too large."""
    n, k = (draw.size(size) for size in draw.pick(matrices()))
    m = draw.pick(ROWS)
    m = m if m < 16 else draw.size(m)
    kind = draw.rng.random()
    fmt = "" if kind < 0.2 else draw.pick(INTEGERS) if kind < 0.65 else draw.pick(OTHERS)
    activations = draw.pick(ACTIVATIONS) if fmt and fmt != "2:4" else None
    if fmt in ("q4_k", "q6_k"):
        k = max(256, k - k % 256)
    elif fmt in ("q8_0", "q4_0"):
        k = max(32, k - k % 32)
    if m * n * k > (MOST_WORK // 100 if draw.quick else MOST_WORK):
        return None
    (x, dtype), w = draw.floats(m, k), draw.normal(n, k)
    bias = draw.normal(n) if draw.chance(0.3) else None
    q: Any = quantize(w, fmt) if fmt else w
    out = np.empty((m, n), np.float32)
    run = partial(linear, x, q, bias, activations=activations, out=out)
    paths, loose, chosen, estimates = forced(x, q, activations, bias, out)
    exact = x.astype(np.float64) @ w.T.astype(np.float64) + (0 if bias is None else bias)
    of_ints = fmt in INTEGERS and activations == "int8"
    text = f"{fmt or 'float32'} x {activations or 'float32'}"
    group = "float32" if not fmt else f"packed x {activations or 'float32'}"
    group = group if activations in (None, "int8") else "packed x other formats"
    group += ", integers" * of_ints
    return Call(
        group,
        f"{sizes_text((m, n, k))}, {text}{dtype}{', bias' if bias is not None else ''}",
        run,
        _checked(run, x, q, bias, activations, out),
        _peers(x, w, bias, threads, of_ints, exact),
        paths,
        loose,
        chosen,
        estimates,
        lambda: out,
        partial(linear, x, prepack(q), bias, activations=activations, out=out) if of_ints else None,
    )


def _checked(
    run: Callable[[], Any], x: Array, q: Any, bias: Array | None, activations: str | None, out: Array
) -> Callable[[], None]:
    """Return a check of all values against float64, and of a few, if they are few enough, against the definition."""

    def check() -> None:
        rows = fake_quantize(x, activations) if activations else x
        weights = q if isinstance(q, np.ndarray) else q.dequantize()
        exact = rows.astype(np.float64) @ weights.T.astype(np.float64)
        close("linear", run, exact if bias is None else exact + bias, ERROR)()
        patterned = not isinstance(q, np.ndarray) and has_pattern(q.format)
        if isinstance(q, np.ndarray) or patterned or len(x) * q.shape[1] * SAMPLE > MOST_EXACT:
            return
        step = max(q.shape[0] // SAMPLE, 1)
        fmt = parse_format(activations) if activations else None
        wanted = reference.linear(x, q[::step], None if bias is None else bias[::step], fmt)
        expect_equal("linear", np.ascontiguousarray(out[:, ::step]), wanted)

    return check


def forced(
    x: Array, q: Any, activations: str | None, bias: Array | None, out: Array
) -> tuple[dict[str, Callable[[], Any]], frozenset[str], str, dict[str, float]]:
    """Return calls by path and by a BLAS, those with other bits, the chosen path, and the estimated seconds."""
    if isinstance(q, np.ndarray):
        runtime.open_blas()
    fmt = core_format(parse_format(activations)) if activations else None
    run, operands = runtime.run(), (core_operand(x), core_operand(q.T))
    route, routes, (number, found, _) = _core.explain(run, *operands, fmt, out)
    numbers = _core.paths()[0]
    calls: dict[str, Callable[[], Any]] = {}
    for name, _, reason, *_ in found:
        if reason is None:
            by = (*run[:2], 1 + numbers.index(name), runtime.OWN, run[4])
            calls[name] = partial(_core.matmul, by, *operands, fmt, bias, out)
    blas = routes[1][0]
    if routes[1][2] is None:
        calls[blas] = partial(_core.matmul, (*run[:3], runtime.OPENBLAS, run[4]), *operands, fmt, bias, out)
    estimates = {one[0]: one[3] for one in found} | {blas: routes[1][3]}
    return calls, frozenset({blas}), found[number][0] if route == 0 else routes[route][0], estimates


def _peers(x: Array, w: Array, bias: Array | None, threads: int, of_ints: bool, exact: Array) -> Calls:
    """Return int8 products of other libraries for integers times int8; for the rest, and without them, float32."""
    single = np.ascontiguousarray(x, np.float32)
    found: Calls = {}
    for peer in product_peers(w, threads, ("int8",)) if of_ints else ():
        given = peer.prepare(single)
        run = partial(peer.products[0], given)
        product = exact if bias is None else exact - bias

        def answer(peer: Any = peer, run: Callable[[], Any] = run) -> Array:
            found: Array = peer.answer(run())
            return found

        found[peer.name] = (run, close(peer.name, answer, product, peer.error))
    if found:
        return found
    out = np.empty((len(x), len(w)), np.float32)

    def numpy() -> Array:
        np.matmul(x.astype(np.float32, copy=False), w.T, out=out)
        return out if bias is None else np.add(out, bias, out=out)

    found["NumPy"] = (numpy, close("NumPy", numpy, exact))
    torch = installed("torch")
    if torch is not None:
        given, weights = torch.from_numpy(x), torch.from_numpy(w)
        added = None if bias is None else torch.from_numpy(bias)

        def of_torch() -> Any:
            return torch.nn.functional.linear(given.float(), weights, added)

        found["torch"] = (of_torch, close("torch", of_torch, exact))
    return found
