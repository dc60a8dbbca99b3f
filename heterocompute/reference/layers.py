"""The layers of transformers (norms, gates, softmax, rotary positions, attention) and pooling, as the C core has them.

    sum       16 accumulators, value i to accumulator i mod 16, folded i with i + 8, + 4, + 2, + 1
    exp(x)    x = n log(2) + r; a polynomial of r times 2^n, by fma
    attention 64 keys at a time with a running maximum: Dao et al., "FlashAttention", 2022, algorithm 1. Each product is
              added by one fma

Float32, every other step rounded by itself. The core gives the same bits on every instruction set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import fma

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

SUMS, KEYS = 16, 64
F = np.float32
POLYNOMIAL = (1.4061316614970565e-3, 8.379030041396618e-3, 4.166477546095848e-2, 0.16666364669799805,
              0.5000000596046448, 1, 1)  # fmt: skip

# Of log P(X < m), X normal, -6.5 <= m <= 0
LOG_PART = (
    -1.4269686543499915e-09,
    -5.59927606502697e-08,
    -9.683071766630746e-07,
    -9.63003003562335e-06,
    -5.906076330575161e-05,
    -0.00020291727560106665,
    -2.853036221495131e-06,
    0.004824912175536156,
    0.036362092941999435,
    -0.3183022141456604,
    0.7978853583335876,
    -0.6931471824645996,
)


def _fma(x: Any, y: Any, z: Any) -> FloatArray:
    return np.asarray(fma(np.asarray(x, F), np.asarray(y, F), np.asarray(z, F)), F)


def summed(x: FloatArray) -> FloatArray:
    """Return the sums along the last axis."""
    acc = np.zeros((*x.shape[:-1], SUMS), F)
    for i in range(0, x.shape[-1], SUMS):
        part = x[..., i : i + SUMS]
        acc[..., : part.shape[-1]] += part
    return _folded(acc)


def dotted(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the sums of x times y along the last axis, each product added by one fma."""
    acc = np.zeros((*np.broadcast_shapes(x.shape, y.shape)[:-1], SUMS), F)
    for i in range(0, x.shape[-1], SUMS):
        n = min(SUMS, x.shape[-1] - i)
        acc[..., :n] = _fma(x[..., i : i + n], y[..., i : i + n], acc[..., :n])
    return _folded(acc)


def _folded(acc: FloatArray) -> FloatArray:
    half = SUMS // 2
    while half:
        acc = acc[..., :half] + acc[..., half : 2 * half]
        half //= 2
    return acc[..., 0]


def exp(x: FloatArray) -> FloatArray:
    """Return e to the power of x: 0 below -104, infinity above 89."""
    with np.errstate(all="ignore"):
        t = np.where(x < F(-104), F(-104), x)
        t = np.where(t > F(89), F(89), t)
        whole = _fma(t, F(1.44269504), F(12582912)) - F(12582912)
        r = _fma(whole, F(2.12194440e-4), _fma(whole, F(-0.693359375), t))
        p = np.full_like(r, F(POLYNOMIAL[0]))
        for c in POLYNOMIAL[1:]:
            p = _fma(p, r, F(c))
        n = np.where(x == x, whole, F(0)).astype(np.int32)
        half = n >> 1
        found: FloatArray = p * np.ldexp(F(1), half) * np.ldexp(F(1), n - half)
        return found


def rms_norm(x: FloatArray, weight: FloatArray | None = None, epsilon: float = 1e-6) -> FloatArray:
    """Return x / sqrt(mean(x x) + epsilon) * weight."""
    return _normed(x, weight, None, epsilon)


def layer_norm(
    x: FloatArray, weight: FloatArray | None = None, bias: FloatArray | None = None, epsilon: float = 1e-5
) -> FloatArray:
    """Return rms_norm of x - mean(x), plus bias."""
    return _normed(x - (summed(x) / F(x.shape[-1]))[..., None], weight, bias, epsilon)


def _normed(d: FloatArray, weight: FloatArray | None, bias: FloatArray | None, epsilon: float) -> FloatArray:
    with np.errstate(all="ignore"):
        factor = F(1) / np.sqrt(summed(d * d) / F(d.shape[-1]) + F(epsilon))
        y = d * factor[..., None]
        y = y if weight is None else y * weight
        found: FloatArray = y if bias is None else y + bias
        return found


def softmax(x: FloatArray) -> FloatArray:
    """Return exp(x - max(x)) times 1 / sum."""
    with np.errstate(all="ignore"):
        e = exp(x - np.fmax.reduce(x, axis=-1, keepdims=True, initial=-np.inf))
        return e * (F(1) / summed(e))[..., None]


def swiglu(gate: FloatArray, up: FloatArray) -> FloatArray:
    """Return gate sigmoid(gate) up."""
    with np.errstate(all="ignore"):
        return gate / (F(1) + exp(-gate)) * up


def gelu(x: FloatArray, up: FloatArray | None = None) -> FloatArray:
    """Return x sigmoid(sqrt(8 / pi) (x + 0.044715 x^3)) up."""
    with np.errstate(all="ignore"):
        y = x / (F(1) + exp(-(F(1.5957691216) * (x + F(0.044715) * x * x * x))))
        return y if up is None else y * up


def gelu_erf(x: FloatArray) -> FloatArray:
    """Return x (1 + erf(x / sqrt(2))) / 2: max(x, 0) + m e^p(m) with m = -|x|, where the product is 0 below -6.5.

    The error is at most 2 units in the last place for x > 0, 3 from -1 on, 8 from -2 on, and 5e-8 below.
    """
    m = np.where(-np.abs(x) < F(-6.5), F(-6.5), -np.abs(x))
    p = np.full_like(m, F(LOG_PART[0]))
    for c in LOG_PART[1:]:
        p = _fma(p, m, F(c))
    return _fma(m, np.where(m > F(-6.5), exp(p), F(0)), np.where(x < 0, F(0), x))


def activated(name: str, x: FloatArray, up: FloatArray | None = None) -> FloatArray:
    """Return gelu_erf, x (1 + erf(x / sqrt(2))) / 2, or relu, or relu2, its square, times up."""
    with np.errstate(all="ignore"):
        if name == "gelu_erf":
            y = gelu_erf(x)
        else:
            y = np.where(x < 0, F(0), x)
            y = y * y if name == "relu2" else y
        return y if up is None else y * up


def rope(x: FloatArray, cosine: FloatArray, sine: FloatArray, pairs: bool = False) -> FloatArray:
    """Return x with rotated pairs of values."""
    half, y = cosine.shape[-1], x.copy()
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if pairs else (slice(half), slice(half, 2 * half))
    a, b = x[..., first], x[..., second]
    y[..., first], y[..., second] = a * cosine - b * sine, a * sine + b * cosine
    return y


def pooled(
    x: FloatArray, size: tuple[int, int], stride: tuple[int, int], before: tuple[int, int], answer: tuple[int, int],
    means: bool,
) -> FloatArray:  # fmt: skip
    """Return the maxima or means of the windows of x (N, C, H, W).

    Parameters
    ----------
    before : (int, int)
        Padding above and left.
    answer : (int, int)
        Height and width of the result.

    Returns
    -------
    ndarray of float32
        Maxima down each column of a window, then across; a pixel replaces the maximum so far if it is greater or NaN.
        Means are float64 sums over r, s ascending, divided and rounded once.
    """
    out = np.zeros((*x.shape[:2], *answer), F)
    for n, c, p, q in np.ndindex(*out.shape):
        first, left = p * stride[0] - before[0], q * stride[1] - before[1]
        rows = [i for i in range(first, first + size[0]) if 0 <= i < x.shape[2]]
        columns = [j for j in range(left, left + size[1]) if 0 <= j < x.shape[3]]
        if means:
            total = np.float64(0)
            for i in rows:
                for j in columns:
                    total += np.float64(x[n, c, i, j])
            out[n, c, p, q] = total / (size[0] * size[1])
        else:
            out[n, c, p, q] = _largest([_largest([x[n, c, i, j] for i in rows]) for j in columns])
    return out


def _largest(values: list[Any]) -> Any:
    most = F(-np.inf)
    for value in values:
        if value > most or value != value:
            most = value
    return most


def attention(
    q: FloatArray, k: FloatArray, v: FloatArray, causal: bool = True, scale: float | None = None,
    window: int | None = None, cap: float | None = None, sinks: FloatArray | None = None,
    bias: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Return softmax(scale q k^T) v of (heads, tokens, width). A bias (heads, m) is a further value of each key."""
    heads, n, width = q.shape
    m, group = k.shape[1], heads // k.shape[0]
    times, out = F(width**-0.5 if scale is None else scale), np.zeros(q.shape, F)
    if bias is not None:
        k = np.concatenate([np.repeat(k, group, axis=0), np.asarray(bias, F)[..., None]], axis=2)
        q = np.pad(q, ((0, 0), (0, 0), (0, 1)), constant_values=F(1 / np.float64(times)))
        v, group = np.repeat(v, group, axis=0), 1
    for head, i in np.ndindex(heads, n):
        at = m - n + i
        first = max(0, at - window + 1) if window else 0
        last = at + 1 if causal else m
        out[head, i] = _attended(q[head, i], k[head // group], v[head // group], first, last, times, cap,
                                 None if sinks is None else F(sinks[head]))  # fmt: skip
    return out


def _attended(
    q: FloatArray, k: FloatArray, v: FloatArray, first: int, last: int, scale: np.float32, cap: float | None,
    sink: np.floating[Any] | None,
) -> FloatArray:  # fmt: skip
    """Return the attention of one query that sees keys first .. last - 1; a sink is a score before all others."""
    largest, total = (F(-np.inf), F(0)) if sink is None else (F(sink), F(1))
    answer: FloatArray = np.zeros(v.shape[1], F)
    with np.errstate(all="ignore"):
        for tile in range(first - first % KEYS, last, KEYS):
            low, high = max(first - tile, 0), min(last - tile, KEYS)
            s = dotted(q, k[tile + low : tile + high]) * scale
            if cap is not None:
                s = F(cap) * (F(1) - F(2) / (exp(F(2) * (s / F(cap))) + F(1)))
            most = np.fmax(largest, np.fmax.reduce(s))
            p = np.zeros(KEYS, F)
            p[low:high] = exp(s - most)
            factor = exp(np.asarray(largest - most, F)[None])[0]
            total, answer = total * factor + summed(p), answer * factor
            for j in range(low, high):
                answer = _fma(p[j], v[tile + j], answer)
            largest = most
        return np.asarray(answer / total, F)


def rotate_heads(x: FloatArray) -> FloatArray:
    """Return x times Sylvester's matrix of its last axis, a power of two, and 1 / sqrt(width)."""
    width, half = x.shape[-1], 1
    found = np.asarray(x, F).copy()
    while half < width:
        pairs = found.reshape(*x.shape[:-1], width // (2 * half), 2, half)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        found = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        half *= 2
    return np.asarray(found * F(1 / np.sqrt(width)), F)
