"""Log numbers: Miyashita et al. 2016 (arXiv 1603.01025), Zhao et al., "LNS-Madam", 2021 (arXiv 2106.13914).

A sign and an exponent e in steps of 1 / gamma octave, below the largest magnitude s of a row or a group:

    value = float32(sign * (s * T_e))     T_e = 2^(-e / gamma) as float64     e = 0 .. 2^(b-1) - 2
    e = the first with |x| / s >= 2^(-(e + 1/2) / gamma), at most the last one
    |x| / s < T_last / 2 becomes zero, whose exponent code is 2^(b-1) - 1

A code is sign << (b-1) | e; zeros keep their sign. All codes of an all-zero group are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import Array
from ..clip import thresholds
from ..layout import Geometry, Terms, pack, real, row_bytes, unsigned_codes as stored_codes

# float64 nearest to 2^(-i/64), as hexadecimal text: gamma divides 32, so every fraction of a T_e and every fraction
# of a threshold between two is one of them.
_POWERS = """
    0x1.0000000000000p+0, 0x1.fa7c1819e90d8p-1, 0x1.f50765b6e4540p-1, 0x1.efa1bee615a27p-1,
    0x1.ea4afa2a490dap-1, 0x1.e502ee78b3ff6p-1, 0x1.dfc97337b9b5fp-1, 0x1.da9e603db3285p-1,
    0x1.d5818dcfba487p-1, 0x1.d072d4a07897cp-1, 0x1.cb720dcef9069p-1, 0x1.c67f12e57d14bp-1,
    0x1.c199bdd85529cp-1, 0x1.bcc1e904bc1d2p-1, 0x1.b7f76f2fb5e47p-1, 0x1.b33a2b84f15fbp-1,
    0x1.ae89f995ad3adp-1, 0x1.a9e6b5579fdbfp-1, 0x1.a5503b23e255dp-1, 0x1.a0c667b5de565p-1,
    0x1.9c49182a3f090p-1, 0x1.97d829fde4e50p-1, 0x1.93737b0cdc5e5p-1, 0x1.8f1ae99157736p-1,
    0x1.8ace5422aa0dbp-1, 0x1.868d99b4492edp-1, 0x1.82589994cce13p-1, 0x1.7e2f336cf4e62p-1,
    0x1.7a11473eb0187p-1, 0x1.75feb564267c9p-1, 0x1.71f75e8ec5f74p-1, 0x1.6dfb23c651a2fp-1,
    0x1.6a09e667f3bcdp-1, 0x1.6623882552225p-1, 0x1.6247eb03a5585p-1, 0x1.5e76f15ad2148p-1,
    0x1.5ab07dd485429p-1, 0x1.56f4736b527dap-1, 0x1.5342b569d4f82p-1, 0x1.4f9b2769d2ca7p-1,
    0x1.4bfdad5362a27p-1, 0x1.486a2b5c13cd0p-1, 0x1.44e086061892dp-1, 0x1.4160a21f72e2ap-1,
    0x1.3dea64c123422p-1, 0x1.3a7db34e59ff7p-1, 0x1.371a7373aa9cbp-1, 0x1.33c08b26416ffp-1,
    0x1.306fe0a31b715p-1, 0x1.2d285a6e4030bp-1, 0x1.29e9df51fdee1p-1, 0x1.26b4565e27cddp-1,
    0x1.2387a6e756238p-1, 0x1.2063b88628cd6p-1, 0x1.1d4873168b9aap-1, 0x1.1a35beb6fcb75p-1,
    0x1.172b83c7d517bp-1, 0x1.1429aaea92de0p-1, 0x1.11301d0125b51p-1, 0x1.0e3ec32d3d1a2p-1,
    0x1.0b5586cf9890fp-1, 0x1.0874518759bc8p-1, 0x1.059b0d3158574p-1, 0x1.02c9a3e778061p-1,
"""
POWERS = np.array([float.fromhex(text) for text in _POWERS.replace(",", " ").split()])


def magnitudes(fmt: Any) -> Array:
    """Return T_e of every exponent code except the code of zero.

    Parameters
    ----------
    fmt : Log

    Returns
    -------
    ndarray of float64, (2^(bits-1) - 1,)
        Descending, the first is 1.
    """
    return _powers(np.arange(2 ** (fmt.bits - 1) - 1) * (64 // fmt.gamma))


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    return {
        "codes": (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, fmt.bits))),
        "scales": (np.float32, (sizes.rows, sizes.groups)),
    }


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize groups of values."""
    scales = thresholds(np.abs(x), real(sizes), clip, fmt.bits)
    divisor = np.broadcast_to(scales.astype(np.float64)[..., None], x.shape)
    with np.errstate(under="ignore"):
        quotient = np.divide(np.abs(x), divisor, out=np.zeros(x.shape), where=divisor != 0)
    last = 2 ** (fmt.bits - 1) - 2
    between = _powers((2 * np.arange(last) + 1) * (32 // fmt.gamma))  # e and e + 1; equal: the larger magnitude
    e = last - np.searchsorted(between[::-1], quotient, side="right")
    e = np.where(quotient < magnitudes(fmt)[last] / 2, last + 1, e)
    codes = np.where(divisor == 0, 0, e + (np.signbit(x) << (fmt.bits - 1)))
    return {"codes": pack(codes.reshape(sizes.rows, sizes.groups * sizes.group), fmt.bits), "scales": scales}


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values: sign * T_e in place of a code, a signed zero included."""
    codes = stored_codes(fmt, sizes, components)
    table = np.append(magnitudes(fmt), 0.0)
    values = np.concatenate([table, -table])[codes]
    scales = components["scales"]
    return Terms(values, None, scales[:, 0]) if fmt.group is None else Terms(values, scales, None)


def _powers(i: Array) -> Array:
    """Return 2^(-i/64): a fraction of the table, halved exactly for each octave."""
    powers: Array = np.ldexp(POWERS[i % 64], -(i // 64))
    return powers
