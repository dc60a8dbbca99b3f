"""The path of a matmul or convolution and the reasons for it, from the code that would compute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from inspect import signature
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .. import _heterocompute as _core
from ..arrays.components import core_format
from ..arrays.quantized import QuantizedArray
from ..arrays.sparse import SparseArray
from ..base import runtime
from ..base.devices import KIND
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.notebooks.shown import Shown, facts_html
from ..formats import Format, has_pattern
from .arguments import as_format, core_operand, is_compressed
from .conv import ERRORS, conv2d, convolution_key, prepared
from .csr import compressed_product, multiply
from .device import copied_bytes
from .matmul import _checked_product, linear, matmul
from .place import HERE, Here, place_of
from .tuned import choice, product_key, times

__all__ = ["Explanation", "explain"]

Array = np.ndarray[Any, Any]

_COMPRESSED = "stored values of a matrix with zeros left out"
_UNMEASURED = 1e6  # seconds, the least estimate of a path without costs
_ZEROS = "; the zeros of activations={fmt} are multiplied too: only pruned weights save time"


@dataclass(frozen=True)
class Candidate:
    """One possible path of a call.

    Attributes
    ----------
    path : str
    predicted_ms : float or None
        Milliseconds in one thread or on the device, from the measurements of this class of machines or of a part of the
        operands; None if the path is excluded for another reason than its time.
    reason : str
        What the chosen path does, or why another path is not chosen.
    measured_ms : float or None
        Milliseconds that `tune` measured on this machine, if it did.
    """

    path: str
    predicted_ms: float | None
    reason: str
    measured_ms: float | None = None


@dataclass(frozen=True)
class Explanation(Shown):
    """List the available paths of a call and the chosen one; printing shows a table.

    Attributes
    ----------
    chosen : str
        Name of a candidate, or ``"nothing"`` if a size is 0.
    candidates : tuple of Candidate
    operations : int
        Multiplications and additions of the dense matmul.
    bytes : int
        Least memory traffic: the stored operands and the result, each once.
    """

    chosen: str
    candidates: tuple[Candidate, ...]
    operations: int = 0
    bytes: int = 0

    @property
    @counts_subnormals
    def intensity(self) -> float:
        """Return operations per byte, the abscissa of a roofline; 0 if no bytes are moved."""
        return self.operations / self.bytes if self.bytes else 0.0

    @counts_subnormals
    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data.

        Returns
        -------
        dict
            ``chosen``, ``candidates``, a list of dicts with the fields of `Candidate`, ``operations``, ``bytes`` and
            ``intensity``.
        """
        work = {"operations": self.operations, "bytes": self.bytes, "intensity": self.intensity}
        return {"chosen": self.chosen, "candidates": [asdict(one) for one in self.candidates], **work}

    @counts_subnormals
    def __str__(self) -> str:
        wide = max((len(candidate.path) for candidate in self.candidates), default=0)
        measured = any(candidate.measured_ms is not None for candidate in self.candidates)
        lines = [f"  {'path':{wide}}  predicted ms{'  measured ms' * measured}"]
        for candidate in self.candidates:
            mark = "*" if candidate.path == self.chosen else " "
            times = f"{_shown(candidate.predicted_ms):>12}"
            times += f"  {_shown(candidate.measured_ms):>11}" * measured
            lines.append(f"{mark} {candidate.path:{wide}}  {times}  {candidate.reason}")
        if self.bytes:
            work = f"{self.operations:.3g} operations, {self.bytes:.3g} bytes"
            lines.append(f"  {work}: {self.intensity:.3g} operations a byte")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = {}
        for one in self.candidates:
            times = {"predicted": one.predicted_ms, "measured": one.measured_ms}
            said = [f"{_shown(ms).strip()} ms {how}" for how, ms in times.items() if ms is not None]
            rows[f"{'* ' * (one.path == self.chosen)}{one.path}"] = "; ".join([*said, one.reason])
        return facts_html(rows)


def explain(*arguments: object, **options: object) -> Explanation:
    """Show which path ``matmul(a, b, activations)`` or a call of `matmul`, `linear` or `conv2d` uses, and why.

    Parameters
    ----------
    *arguments, **options
        The arguments of `matmul`, or a function of this package (`matmul`, `linear` or `conv2d`) and its arguments:
        ``explain(hc.conv2d, x, w, padding=1)``.

    Returns
    -------
    Explanation
        Prints as a table with a star at the chosen path. It includes the times of `tune`, if measured.

    Raises
    ------
    ValueError, TypeError
        As raised by the function itself.

    Notes
    -----
    Nothing is multiplied; this is the plan that the matmul itself makes. The order of summation depends on shapes and
    formats only. The listed paths keep this order, so their results are bitwise identical. If a pattern keeps more
    than a quarter of the values, two paths are compared by a quick measurement on a part of the operands. The result
    is cached. `use` forces a path by its name. A matmul of many matrices reports the plan of the first. On a device
    the chosen path also names its kernels and the bytes that are copied.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> s = hc.prune(np.ones((64, 128), np.float32), "1:4")
    >>> found = hc.explain(np.ones((32, 128), np.float32), s.T)
    >>> found.chosen
    'gemm-nonzeros'
    >>> [candidate.path for candidate in found.candidates]
    ['OpenBLAS', 'gemm', 'gemm-nonzeros']
    >>> images, w = np.ones((1, 8, 9, 9), np.float32), np.ones((16, 8, 3, 3), np.float32)
    >>> found = hc.explain(hc.conv2d, images, w)
    >>> found.operations, found.bytes, round(found.intensity, 1)
    (112896, 10336, 10.9)
    """
    return explained_call("explain", *arguments, **options).explanation


class Explained(NamedTuple):
    """The explanation of a call, and what `tune` needs to force its paths.

    Attributes
    ----------
    explanation : Explanation
    key : str
        The call's key in the file of tuned times; "" if there is only one path.
    function : str
    blas : bool
        Whether a BLAS can compute it.
    is_device_input : bool
        Whether a device computes it.
    """

    explanation: Explanation
    key: str
    function: str
    blas: bool
    is_device_input: bool = False


@counts_subnormals
def explained_call(caller: str, *arguments: object, **options: object) -> Explained:
    """Check and explain a call without running it."""
    function, *rest = arguments if arguments and callable(arguments[0]) else (matmul, *arguments)
    if function is conv2d:
        return _convolution(caller, bound(caller, conv2d, rest, options))
    if function not in (matmul, linear):
        raise WrongType(f"{caller}: the function is {shown(function)}, expected matmul, linear or conv2d")
    given = bound(caller, function, rest, options)
    if function is matmul:
        return _product(caller, given["a"], given["b"], given.get("activations"))
    x, w, activations = given["x"], given["w"], given.get("activations")
    if activations is not None and not isinstance(w, QuantizedArray):
        activations = None  # x is rounded first, then multiplied as floats
    return _product(caller, x, w, activations, is_linear=True)


def bound(caller: str, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function by name."""
    try:
        return signature(function).bind(*arguments, **options).arguments
    except TypeError as error:
        raise WrongType(f"{caller}: {function.__name__}: {error}") from None


def _product(caller: str, a: object, b: Any, activations: object, is_linear: bool = False) -> Explained:
    function = "linear" if is_linear else "matmul"
    place = place_of(caller, a, b, a=a, b=b)
    if place is HERE and (is_compressed(a) or is_compressed(b)):
        return Explained(_compressed(caller, a, b.T if is_linear else b, activations), "", function, False)
    words = ("x", "w") if is_linear else ("a", "b")
    left, right = (place.operand(one, f"{caller}: {word}") for one, word in zip((a, b), words, strict=True))
    right = right.T if is_linear else right
    fmt = None if activations is None else as_format(activations, f"{caller}: activations")
    packed = isinstance(left, QuantizedArray) + isinstance(right, QuantizedArray)
    if fmt is not None and packed != 1:
        raise WrongValue(f"{caller}: activations needs one dense and one quantized operand")
    found: list[Explained] = []

    def note(x: Any, y: Any, fmt: Format | None, bias: Array | None, out: Any, place: Here) -> None:
        work = 2 * out.size * x.shape[-1], sum(value.nbytes for value in (left, right, out))
        if place is not HERE:
            core_fmt, run = None if fmt is None else core_format(fmt), place.memory.run()
            _, _, paths = _core.explain(run, core_operand(x), core_operand(y), core_fmt, out.view)
            explained = _explained_on_device(paths, place, (a, b), *work, out.nbytes)
            found.append(Explained(explained, "", function, False, is_device_input=True))
            return
        key = product_key("matmul", x, y, fmt)
        explained, blas = _explained(x, y, fmt, out)
        explained = replace(_tuned(explained, key), operations=work[0], bytes=work[1])
        found.append(Explained(explained, key, function, blas))

    _checked_product(left, right, fmt, None, None, caller, (left, right), a, place, note)
    return found[0] if found else Explained(_nothing(), "", function, False)


def _explained_on_device(
    found: tuple[int, list[Any], list[str] | None],
    place: Here,
    given: tuple[Any, Any],
    work: int,
    moved: int,
    answer: int,
) -> Explanation:
    """Return the explanation of a call on a device: its paths, the kernels, and the bytes that are copied."""
    number, paths, kernels = found
    sent, returned = copied_bytes(given, given[0], answer)
    copies = f"copies {sent:,} bytes there and {returned:,} bytes back" if sent or returned else "copies nothing"
    rows = []
    for i, (path, what, reason, seconds, *_) in enumerate(paths):
        if i == number:
            reason = f"{what}; on {place.memory.name}: {', '.join(kernels or ())}; {copies}"
        elif seconds >= _UNMEASURED:
            reason = "its costs are not measured for so many rows"
        elif reason is None:
            reason = "slower by estimate"
        rows.append(Candidate(path, seconds * 1e3 if 0 < seconds < _UNMEASURED else None, reason))
    return Explanation(paths[number][0], tuple(rows), work, moved)


def _tuned(explained: Explanation, key: str) -> Explanation:
    """Add the measured times of the candidates, and the choice if it is in force."""
    ms = times(key)
    candidates = tuple(replace(one, measured_ms=ms.get(one.path)) for one in explained.candidates)
    way = choice(key) if runtime.tuned() and explained.chosen != "nothing" else None
    if way is None or way == explained.chosen or way not in [one.path for one in candidates]:
        return replace(explained, candidates=candidates)
    reasons = {way: "fastest by measurement", explained.chosen: "slower by measurement"}
    candidates = tuple(replace(one, reason=reasons.get(one.path, one.reason)) for one in candidates)
    return replace(explained, chosen=way, candidates=candidates)


def _nothing() -> Explanation:
    return Explanation("nothing", (Candidate("nothing", None, "there is nothing to multiply"),))


def _convolution(caller: str, given: dict[str, Any]) -> Explained:
    call = prepared(caller, **given)
    operations = 2 * call.result.size * prod(call.filters.shape[1:])
    moved = sum(value.nbytes for value in (call.image, call.filters, call.result))
    if call.place is not HERE:
        with call.place.refusals(caller, f"{caller}: x", call.image, given.get("activations")):
            paths = _core.explain_conv2d(*call.core)
        explained = _explained_on_device(
            paths, call.place, (given["x"], given["w"]), operations, moved, call.result.nbytes
        )
        return Explained(explained, "", "conv2d", False, is_device_input=True)
    key = convolution_key(call)
    chosen, found, _ = _core.explain_conv2d(*call.core)
    if chosen < 0:
        return Explained(_nothing(), key, "conv2d", False)
    rows = []
    for number, (name, what, reason, seconds, _, _, admitted, _) in enumerate(found):
        if reason is None and not admitted:
            error = f"its error is about {ERRORS[name]:g} times that of one sum"
            reason, seconds = f"{error}, more than auto admits here", 0.0
        elif reason is None and number != chosen:
            reason = "slower by estimate"
        rows.append(Candidate(name, seconds * 1e3 if seconds else None, reason or what))
    explained = _tuned(Explanation(found[chosen][0], tuple(rows), operations, moved), key)
    return Explained(explained, key, "conv2d", False)


def _compressed(caller: str, a: Any, b: Any, activations: object) -> Explanation:
    def check(dense: object, w: Any, transposed: bool, out: Array, name: str) -> None:
        n, k = w.shape[::-1] if transposed else w.shape
        multiply(np.empty((0, k), np.float32), w, transposed, np.empty((0, n), np.float32), name)  # checks w alone

    answer = compressed_product(a, b, None, activations, None, caller, check)
    inner = a.shape[-1] if is_compressed(a) else b.shape[0]
    chosen = "compressed" if answer.size and inner else "nothing"
    reason = _COMPRESSED if answer.size and inner else "there is nothing to multiply"
    return Explanation(chosen, (Candidate("compressed", None, reason),))


def _shown(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.3g}"


def _explained(a: object, b: object, fmt: Format | None, out: Array) -> tuple[Explanation, bool]:
    """Return the explanation of a product, and whether a BLAS can compute it."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        runtime.open_blas()
    core_fmt = core_format(fmt) if fmt else None
    run = runtime.run()
    route, routes, (number, found, _) = _core.explain(run, core_operand(a), core_operand(b), core_fmt, out)
    if route < 0:
        return _nothing(), False
    otherwise = "used on request alone: hc.use(blas='openblas')" if run[3] == runtime.OWN else "slower by estimate"
    chosen = found[number][0] if route == 0 else routes[route][0]
    rows = []
    for i, (name, what, reason, seconds) in enumerate(routes[1:], 1):  # the paths belong to route 0
        if name == KIND:  # of arrays elsewhere
            continue
        why = reason or (what if i == route else otherwise)
        rows.append(Candidate(name, seconds * 1e3 if seconds else None, why))
    # A pattern of the activations alone has a path only for integer codes, and only if it is faster there.
    zeros = has_pattern(fmt) and not any(isinstance(x, SparseArray) for x in (a, b)) and "nonzeros" not in chosen
    for path, what, reason, seconds, *_ in found:
        if seconds == _UNMEASURED:
            reason, seconds = "taken if forced: its costs are not measured" if path != chosen else None, 0.0
        elif reason is None and path != chosen:
            reason = f"the product goes to {chosen}" if route else "slower by estimate"
        what += _ZEROS.format(fmt=fmt) if zeros and path == chosen else ""
        rows.append(Candidate(path, seconds * 1e3 if seconds else None, reason or what))
    return Explanation(chosen, tuple(rows)), routes[1][2] is None
