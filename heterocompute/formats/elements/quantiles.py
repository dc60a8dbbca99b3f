"""Levels from the literature that an equation gives: quantiles of distributions, and sums of powers of two.

normal_float    Dettmers et al., "QLoRA", NeurIPS 2023 (arXiv 2305.14314), appendix E; of other bits as the programs of
                Guo et al., "LQ-LoRA", ICLR 2024 (arXiv 2311.12023), which keep the outermost probability of 4 bits
student_float   Dotzel et al., "Learning from Students", ICML 2024 (arXiv 2405.03103), equation 3
apot            Li, Dong and Wang, "Additive Powers-of-Two Quantization", ICLR 2020 (arXiv 1909.13144), equation 4
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from statistics import NormalDist

from ...base.errors import WrongValue, shown

# fmt: off
NF4 = (
    -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
)
# fmt: on


def _checked(bits: int, name: str, least: int = 2) -> int:
    if type(bits) is not int or not least <= bits <= 8:
        raise WrongValue(f"{name}: bits is {shown(bits)}, expected {least} to 8")
    return bits


def _quantiles(bits: int, quantile: Callable[[float], float]) -> tuple[float, ...]:
    """Return 2^bits levels from -1 to 1 with a 0: one more above 0 than below, at even steps of probability."""
    last = 1 - (1 / 30 + 1 / 32) / 2  # of 16 levels, and used for any number of them
    above, below = 1 << (bits - 1), (1 << (bits - 1)) - 1
    higher = [quantile(last + (0.5 - last) * i / above) for i in range(above)]
    lower = [-quantile(last + (0.5 - last) * i / below) for i in range(below)]
    return tuple(one / higher[0] for one in [*lower, 0.0, *reversed(higher)])


def normal_float(bits: int) -> tuple[float, ...]:
    """Return quantiles of a normal distribution; with 4 bits the published ones.

    Parameters
    ----------
    bits : int
        2 to 8.

    Examples
    --------
    >>> from heterocompute.formats.elements.quantiles import normal_float
    >>> [round(one, 3) for one in normal_float(3)]
    [-1.0, -0.479, -0.217, 0.0, 0.161, 0.338, 0.563, 1.0]
    """
    bits = _checked(bits, "normal_float")
    return NF4 if bits == 4 else _quantiles(bits, NormalDist().inv_cdf)


def student_float(bits: int, nu: float = 5.0) -> tuple[float, ...]:
    """Return quantiles of Student's t-distribution.

    Parameters
    ----------
    bits : int
        2 to 8.
    nu : float
        Degrees of freedom, 0.5 to 1,000.

    Examples
    --------
    >>> from heterocompute.formats.elements.quantiles import student_float
    >>> [round(one, 3) for one in student_float(4, 5)[8:]]
    [0.066, 0.133, 0.205, 0.284, 0.376, 0.491, 0.657, 1.0]
    """
    bits = _checked(bits, "student_float")
    if not 0.5 <= nu <= 1000:
        raise WrongValue(f"student_float: nu is {shown(nu)}, expected 0.5 to 1000")
    return _quantiles(bits, lambda p: _student_quantile(p, float(nu)))


def _student_quantile(p: float, nu: float) -> float:
    """Return the t below which a variable is with probability p >= 1/2, by bisection of t / (1 + t)."""
    low, high = 0.0, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        t = middle / (1 - middle)
        low, high = (middle, high) if _student_tail(t, nu) > 1 - p else (low, middle)
    return low / (1 - low)


def _student_tail(t: float, nu: float) -> float:
    """Return the probability of more than t >= 0: half the regularized incomplete beta function of nu / (nu + t^2)."""
    return _incomplete_beta(nu / (nu + t * t), nu / 2, 0.5) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return I_x(a, b) by its continued fraction (Lentz), "Numerical Recipes", section 6.4."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return front * fraction


def apot(bits: int, term_bits: int = 2) -> tuple[float, ...]:
    """Return sums of powers of two, scaled to a largest of 1.

    Parameters
    ----------
    bits : int
        3 to 8, with the sign. The magnitude has ``(bits - 1) / term_bits`` terms.
    term_bits : int
        Bits of each term, which is 0 or one of ``2 ** term_bits - 1`` powers of two.

    Examples
    --------
    >>> from heterocompute.formats.elements.quantiles import apot
    >>> [round(one, 4) for one in apot(5)[15:]]
    [0.0, 0.0208, 0.0417, 0.0625, 0.0833, 0.125, 0.1667, 0.1875, 0.25, 0.3333, 0.375, 0.5, 0.6667, 0.6875, 0.75, 1.0]
    """
    bits = _checked(bits, "apot", 3)
    terms, rest = divmod(bits - 1, term_bits if isinstance(term_bits, int) and term_bits > 0 else bits)
    if rest or not terms:
        raise WrongValue(
            f"apot: term_bits is {shown(term_bits)}, expected a divisor of the {bits - 1} bits of a magnitude"
        )
    powers = [[0.0, *(2.0 ** -(i + j * terms) for j in range((1 << term_bits) - 1))] for i in range(terms)]
    sums = sorted({sum(chosen) for chosen in product(*powers)})
    magnitudes = [one / sums[-1] for one in sums]
    return tuple([-one for one in reversed(magnitudes[1:])] + magnitudes)
