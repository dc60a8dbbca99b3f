"""The colours and marks of every picture and page: one of each per family of formats, the same everywhere.

A colour has a contrast of 3 or more on white, on the cards of the pages and on a dark page, so one set serves light and
dark. Colours with such similar lightness cannot all be distinguished by every eye, so each family has its own shape as
well. The hues begin with those of Okabe and Ito, "Color universal design" (2008).
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

Points = tuple[tuple[float, float], ...]

GREY = "#757b84"  # of text and axes: contrast of at least 4.2 on white and on #0d1117
LIGHT, DARK = ("#ffffff", "#f6f7f9"), ("#0d1117", "#1a2029")  # background colours of GitHub's pages and of ours


class Mark(NamedTuple):
    """The drawing of a family: a colour, the corners of its shape in a circle of radius 1 (none: a circle), a name."""

    color: str
    corners: Points
    words: str


def _regular(count: int, turn: float = 90.0, inner: float | None = None) -> Points:
    """Return a regular polygon; with `inner` a star, whose inner corners have this radius."""
    radii = [1.0] * count if inner is None else [1.0, inner] * count
    step = 360 / len(radii)
    angles = [math.radians(turn + i * step) for i in range(len(radii))]
    return tuple((round(r * math.cos(a), 3), round(r * math.sin(a), 3)) for r, a in zip(radii, angles, strict=True))


_ARM = 0.36
_PLUS = tuple(
    (round(x * c - y * s, 3), round(x * s + y * c, 3))
    for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1))
    for x, y in ((1.0, -_ARM), (1.0, _ARM), (_ARM, _ARM))
)
_CROSS = tuple((round((x - y) * 0.75, 3), round((x + y) * 0.75, 3)) for x, y in _PLUS)

FAMILIES = {
    "plain": Mark(GREY, _regular(6), "fp32"),
    "int": Mark("#cc7a00", _regular(4, 45), "int"),
    "vsq": Mark("#0072b2", (), "VS-Quant"),
    "codebook": Mark("#009e73", _regular(3), "codebook"),
    "nf4": Mark("#aa4499", _regular(3, 270), "nf4"),
    "log": Mark("#e8194b", _regular(4), "log"),
    "float": Mark("#5f7a38", _regular(3, 0), "float"),
    "mx": Mark("#2f87e0", _PLUS, "MX"),
    "nvfp4": Mark("#5b57f0", _regular(5, 90, 0.45), "NVFP4"),
    "ggml": Mark("#8a8f00", _regular(4, 45, 0.5), "ggml"),
    "affine": Mark("#a8497a", _regular(6, 0, 0.5), "affine"),
    "own": Mark("#0f8aa8", _regular(5, 270), "own"),
    "sparse": Mark("#d55e00", _CROSS, "sparse"),
    "mixed": Mark("#8c6a5c", _regular(3, 180), "mixed"),
    "other": Mark("#7d74b5", _regular(5), "other"),
}
# For series that are not families, in order of use: parts of a sum, curves of one picture, operands.
SERIES = tuple(FAMILIES[name] for name in ("vsq", "int", "codebook", "nf4", "float", "log"))
BOUNDS = {"memory": FAMILIES["vsq"], "compute": FAMILIES["int"]}  # for layers below a roofline

_BEGINNINGS = {
    "int": "int", "vsq": "vsq", "cb": "codebook", "nf": "nf4", "log": "log", "mxfp": "mx", "mxint": "mx",
    "nvfp": "nvfp4", "fp": "float", "bf": "float", "tf": "float", "q": "ggml", "iq": "ggml", "tq": "ggml",
    "affine": "affine",
}  # fmt: skip


def family(text: str) -> str:
    """Return the family of a format's text, a key of `FAMILIES`; "mixed" for a recipe.

    Sentences of integers and logs have the marks of integers and logs, all other sentences and defined names "own".

    Examples
    --------
    >>> family("vsq4-g16-s4"), family("int8+2:4"), family("fp32"), family("fp8_e4m3fn"), family("e2m1-g16")
    ('vsq', 'sparse', 'plain', 'float', 'own')
    """
    if text == "fp32":
        return "plain"
    if text in ("stored", "exact") or text.endswith("(function)"):  # rows of language models without a format
        return "other"
    if re.search(r"[=\s]", text):
        return "mixed"
    if re.search(r"[0-9]:[0-9]", text):
        return "sparse"
    found = re.match(r"[a-z]+(?=[0-9])", text)
    if found and found[0] in _BEGINNINGS:
        return _BEGINNINGS[found[0]]
    return "own" if re.fullmatch(r"[a-z][a-z0-9_.@-]*", text) else "mixed"


def css() -> str:
    """Return the colours as variables of a page: ``--vsq``, ``--s0`` and so on."""
    found = {f"--{name}": mark.color for name, mark in FAMILIES.items()}
    found |= {f"--s{i}": mark.color for i, mark in enumerate(SERIES)}
    return " ".join(f"{name}: {color};" for name, color in found.items())


def luminance(color: str) -> float:
    """Return the relative luminance of ``#rrggbb`` (WCAG 2.1)."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.1).

    Examples
    --------
    >>> contrast("#ffffff", "#000000")
    21.0
    """
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
