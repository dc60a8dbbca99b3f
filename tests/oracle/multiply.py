"""One random matmul: only weights quantized, activations quantized on the fly, or both operands quantized."""

from __future__ import annotations

import numpy as np

import heterocompute as hc

from .arrays import components
from .compare import same, within
from .draw import SIZES, chance, choose, draw_format, draw_operand, lay_out, machine
from .encoded import Encoded
from .exact import float32
from .formats import encode
from .products import bound, by_groups, few_vectors, in_order, integer_rows, is_stated, last_scaling, row_scaled, scaled

FORMS = [
    "linear",
    "linear",
    "prepacked",
    "matmul",
    "weights first",
    "axis 0",
    "both",
    "vector",
    "batch of x",
    "batches",
    "dense",
    "dense, own",
]


def draw(rng, masks) -> dict:
    fmt = draw_format(rng, integers=0.7)
    activations = draw_format(rng, integers=0.7) if chance(rng, 0.5) else None
    form = choose(rng, FORMS if activations else [form for form in FORMS if form != "both"])
    k, n = choose(rng, SIZES), choose(rng, SIZES)
    m = int(rng.integers(1, 9)) if chance(rng, 0.6) else int(rng.integers(9, 40))
    if chance(rng, 0.1):
        k = int(rng.integers(256, 600))
    elif chance(rng, 0.02):
        k, m, n = min(k, 48), int(rng.integers(60, 300)), int(rng.integers(60, 300))
    elif chance(rng, 0.02):
        k, m, n = int(rng.integers(1000, 5000)), min(m, 12), min(n, 12)
    leading = (int(rng.integers(1, 4)),) if form in ("batch of x", "batches") else ()
    w = draw_operand(rng, (*leading, n, k) if form == "batches" else (n, k), fmt)
    x = draw_operand(rng, (k,) if form == "vector" else (*leading, m, k), activations)
    return {
        "weights": fmt,
        "activations": activations,
        "form": form,
        "quantize": machine(rng, masks),
        "multiply": machine(rng, masks),
        "x": lay_out(rng, x)[1],
        "w": lay_out(rng, w)[1],
        "bias": float32(rng.standard_normal(n)) if form in ("linear", "prepacked", "batch of x") else None,
    }


def smaller(case):
    """Return the same case with m, n or k halved."""
    x, w, bias = case["x"], case["w"], case["bias"]
    for half in halves(x.shape[-1]):
        yield case | {"x": x[..., half], "w": w[..., half]}
    for half in halves(w.shape[-2]):
        yield case | {"w": w[..., half, :], "bias": None if bias is None else bias[half]}
    for half in halves(x.shape[-2] if x.ndim > 1 else 1):
        yield case | {"x": x[..., half, :]}


def halves(size: int) -> list[slice]:
    return [slice(size // 2), slice(size // 2, None)] if size > 1 else []


def check(case) -> None:
    fmt, activations, form = case["weights"], case["activations"], case["form"]
    x, w, bias = case["x"], case["w"], case["bias"]
    (m, k), n = ((1, *x.shape) if x.ndim == 1 else x.shape[-2:]), w.shape[-2]
    if form.startswith("dense"):
        return check_dense(case)
    with hc.use(**case["quantize"]):
        q = hc.quantize(w, fmt, axis=-1)
    weights = encode(fmt, w, (-1,), learned=components(q))
    with hc.use(**case["multiply"]):
        y = multiply(x, w, q, fmt, activations, bias, form)
        learned = components(hc.quantize(x, activations)) if activations else None
    a = None if activations is None else encode(activations, x, (-1,), learned=learned)
    if not is_stated(a, weights):
        return
    rows = x.reshape(-1, k).astype(np.float32)
    wanted = product(rows, a, weights, m if form == "batches" else len(rows), form == "both")
    if form == "batches":  # each matrix of x has its own matrix of weights
        wanted = np.stack([wanted[i * m : i * m + m, i * n : i * n + n] for i in range(len(w))])
    wanted = wanted.reshape(*x.shape[:-1], n)
    same("product", y, wanted if bias is None else wanted + bias)


def check_dense(case) -> None:
    """Check a dense matmul of x rounded to `activations`: OpenBLAS adds in any order, the package in the stated one."""
    x, w, activations = case["x"].astype(np.float32), case["w"].astype(np.float32), case["activations"]
    if activations is not None:
        x = hc.fake_quantize(case["x"], activations)  # compared elsewhere
    with hc.use(**case["multiply"], blas="own" if "own" in case["form"] else "openblas"):
        y = hc.linear(case["x"], w, activations=activations and str(activations))
    if "own" in case["form"]:
        return same("product, own", y, in_order(x, w))
    if np.isfinite(x).all():  # `-nosat` may have made infinities
        within("product, OpenBLAS", y, *bound(x, w))


def multiply(x, w, q, fmt, activations, bias, form):
    named = None if activations is None else str(activations)
    if form in ("linear", "batch of x"):
        return hc.linear(x, q, bias, activations=named)
    if form == "prepacked":
        return hc.linear(x, hc.prepack(q), bias, activations=named)
    if form == "weights first":
        return hc.matmul(q, x.T, activations=named).T
    if form == "both":
        return hc.matmul(hc.quantize(x, activations), q.T)
    if form == "batches":
        return hc.matmul(x, hc.quantize(np.swapaxes(w, 1, 2), fmt, axis=1), activations=named)
    if form == "axis 0":
        out = np.full((len(x), len(w)), np.nan, np.float32)
        return hc.matmul(x, hc.quantize(w.T, fmt, axis=0), activations=named, out=out)
    return x @ q.T if named is None and x.dtype == np.float32 else hc.matmul(x, q.T, activations=named)


def product(x, a: Encoded | None, weights: Encoded, vectors: int, is_packed: bool) -> np.ndarray:
    """Return (rows of x, rows of weights). `a` is x quantized, before the matmul if `is_packed`. `vectors`: the number
    of rows that one matrix multiplies."""
    if a is not None and a.integers and weights.integers:
        if row_scaled(a) and row_scaled(weights):
            return last_scaling(integer_rows(a) @ integer_rows(weights).T, a.outer, weights.outer)
        return by_groups(scaled(a), scaled(weights))
    values = x if a is None else a.decoded()
    is_few = vectors <= 8 and not (is_packed or weights.huge)
    return few_vectors(values, weights) if is_few else in_order(values, weights.decoded())
