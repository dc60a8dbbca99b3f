"""Which way a product goes, and why: what `matmul` would do, asked of the same code."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import _heterocompute as _core
from . import runtime
from .arguments import as_format, as_operand, core_operand, is_compressed
from .arrays import QuantizedArray, core_format
from .formats import Format
from .ops import _checked_product, _suits_blas

__all__ = ["Candidate", "Explanation", "explain"]

Array = np.ndarray[Any, Any]

_WHAT = {
    "OpenBLAS": "dense float32 matrices as they are",
    "tiles": "own kernel on float32 tiles, decoded where an operand is packed",
    "skip": "kept values alone meet the activations",
    "skip integers": "kept codes alone meet the activations' codes, exact",
    "few": "up to 8 vectors: weights are read as they are stored",
    "few integers": "up to 8 vectors of codes: weights are read as they are stored, exact",
    "folded": "integers, scales multiplied into the codes, exact",
    "grouped": "integers, one scale a group",
    "compressed": "stored values of a matrix with zeros left out",
}
_INTEGERS = ("skip integers", "few integers", "folded", "grouped")
_ROWS = ("OpenBLAS", "tiles", "skip", "few", "integers")


@dataclass(frozen=True)
class Candidate:
    """One way that a product might go.

    Attributes
    ----------
    path : str
    predicted_ms : float or None
        Milliseconds in one thread, by a measurement on a part of the operands; None where nothing was compared.
    reason : str
        What it does, of the chosen one; else why it is not taken.
    """

    path: str
    predicted_ms: float | None
    reason: str


@dataclass(frozen=True)
class Explanation:
    """The ways that a product might go, and the one that it takes; printing shows them as a table.

    Attributes
    ----------
    chosen : str
        A path of the candidates, or ``"nothing"`` where a size is 0.
    candidates : tuple of Candidate
    """

    chosen: str
    candidates: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data.

        Returns
        -------
        dict
            ``chosen`` and ``candidates``, a list of dicts with the fields of `Candidate`.
        """
        return {"chosen": self.chosen, "candidates": [asdict(candidate) for candidate in self.candidates]}

    def __str__(self) -> str:
        wide = max((len(candidate.path) for candidate in self.candidates), default=0)
        lines = [f"  {'path':{wide}}  predicted ms"]
        for candidate in self.candidates:
            mark = "*" if candidate.path == self.chosen else " "
            time = "-" if candidate.predicted_ms is None else f"{candidate.predicted_ms:.3g}"
            lines.append(f"{mark} {candidate.path:{wide}}  {time:>12}  {candidate.reason}")
        return "\n".join(lines)

    __repr__ = __str__


def explain(a: Any, b: Any, activations: Format | str | None = None) -> Explanation:
    """Say which way ``matmul(a, b, activations)`` goes.

    Parameters
    ----------
    a, b, activations
        As in `matmul`; for ``linear(x, w)`` ask with ``w.T``.

    Returns
    -------
    Explanation
        Printed, it is a table: the chosen path has a star.

    Raises
    ------
    ValueError, TypeError
        As `matmul`.

    Notes
    -----
    Nothing is multiplied: the product's own code runs up to its drivers. Where a pattern keeps more than a quarter,
    skipping and decoded tiles are compared by a quick measurement on a part of the operands, which is remembered; the
    bits are the same, or there is no choice.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> s = hc.prune(np.ones((64, 128), np.float32), "1:4")
    >>> found = hc.explain(np.ones((32, 128), np.float32), s.T)
    >>> found.chosen
    'skip'
    >>> [candidate.path for candidate in found.candidates]
    ['OpenBLAS', 'tiles', 'skip', 'few', 'integers']
    """
    if is_compressed(a) or is_compressed(b):
        return _compressed(a, b, activations)
    left, right = as_operand(a, "explain: a"), as_operand(b, "explain: b")
    fmt = None if activations is None else as_format(activations, "explain: activations")
    packed = isinstance(left, QuantizedArray) + isinstance(right, QuantizedArray)
    if fmt is not None and packed != 1:
        raise ValueError("explain: activations needs one dense and one quantized operand")
    found: list[Explanation] = []

    def note(x: Any, y: Any, fmt: Format | None, bias: Array | None, out: Array) -> None:
        found.append(_explained(x, y, fmt, out))

    _checked_product(left, right, fmt, None, None, "explain", (left, right), note)
    return found[0]


def _compressed(a: Any, b: Any, activations: Any) -> Explanation:
    from .csr import compressed_product, multiply

    def check(dense: Any, w: Any, transposed: bool, out: Array, name: str) -> None:
        n, k = w.shape[::-1] if transposed else w.shape
        multiply(np.empty((0, k), np.float32), w, transposed, np.empty((0, n), np.float32), name)  # checks w alone

    answer = compressed_product(a, b, None, activations, None, "explain", check)
    inner = a.shape[-1] if is_compressed(a) else b.shape[0]
    chosen = "compressed" if answer.size and inner else "nothing"
    reason = _WHAT["compressed"] if answer.size and inner else "there is nothing to multiply"
    return Explanation(chosen, (Candidate("compressed", None, reason),))


def _explained(a: Any, b: Any, fmt: Format | None, out: Array) -> Explanation:
    packed = [value for value in (a, b) if isinstance(value, QuantizedArray)]
    skip_s, tiles_s, refused = 0.0, 0.0, None
    if not packed and runtime.use_blas() and _suits_blas(a, b, out):
        chosen = "OpenBLAS"
    else:
        core_fmt = core_format(fmt) if fmt else None
        path, skip_s, tiles_s, refused = _core.explain(runtime.run(), core_operand(a), core_operand(b), core_fmt, out)
        chosen = path if path and out.size and a.shape[-1] else "nothing"
    why = _reasons(chosen, a, b, fmt, refused)
    times = {"skip": skip_s, "tiles": tiles_s}
    rows = []
    for row in _ROWS:
        name = chosen if row == "integers" and chosen in _INTEGERS else row
        seconds = times.get(name, 0.0)
        reason = _WHAT[name] if name == chosen else why[row]
        rows.append(Candidate(name, seconds * 1e3 if seconds else None, reason))
    return Explanation(chosen, tuple(rows))


def _reasons(chosen: str, a: Any, b: Any, fmt: Format | None, refused: str | None) -> dict[str, str]:
    """Say of each row why it is not taken, given what is."""
    if chosen == "nothing":
        return dict.fromkeys(_ROWS, "there is nothing to multiply")
    packed = [value for value in (a, b) if isinstance(value, QuantizedArray)]
    sparse = any(hasattr(value.format, "m") for value in packed) or hasattr(fmt, "m")
    integers, few = chosen in _INTEGERS, chosen in ("few", "few integers")
    exact = "integers on both sides stay integers"
    if packed:
        blas = "an operand is packed: the bits must be the same everywhere"
    elif not runtime.use_blas():
        blas = "hc.use(blas='own'), or there is no BLAS"
    else:
        blas = "takes float32 alone"
    if integers:
        tiles = exact
    elif chosen == "OpenBLAS":
        tiles = "dense float32 products go to OpenBLAS"
    elif few:
        tiles = "up to 8 vectors have an order of their own"
    else:
        tiles = refused or "slower"
    if not sparse:
        skip = "no operand has a pattern"
    elif chosen == "tiles":
        skip = "slower"
    else:
        skip = (
            "no line for these integers, or for few vectors" if integers else "up to 8 vectors have a way of their own"
        )
    vectors = exact if integers else "both operands are dense" if not packed else "for up to 8 float vectors"
    both = len(packed) == 2 or fmt is not None
    whole = "a format has no integers" if both else "needs integers on both sides: activations=, or a quantized x"
    return {"OpenBLAS": blas, "tiles": tiles, "skip": skip, "few": vectors, "integers": whole}
