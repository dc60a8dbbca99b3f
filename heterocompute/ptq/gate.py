"""The smallest recipe of a ladder that is good enough: `accept` and its result, `Gate`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

import numpy as np

from ..arrays.base import PackedArray
from ..arrays.components import stored_bytes
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import call_back, counts_subnormals
from ..base.keeping.digest import digest_of
from ..base.keeping.results import KeptResults
from ..base.lazy import renamed
from ..base.progress import Progress, Steps
from ..base.texts import counted
from ..base.values import as_int, as_real, check_flag
from ..files.recipes import parse_recipe
from ..files.selection import FirstMatch, select
from ..formats import Format
from ..formats.base import or_words
from ..products.arguments import as_format
from ..report import rounding as report
from ..report.files import write_text
from ..report.results.tabular import Tabular
from .methods import CALIBRATED, METHODS, by_method
from .network import quantize

NEIGHBOURS = 2  # smaller recipes than the answer that are evaluated, too
RUNS, SECONDS = 3, 0.5  # of a measurement of time: the number of runs, and the seconds after which none begins


@dataclass(frozen=True)
class Step:
    """One step of a ladder: formats, and the method that rounds to them."""

    formats: Any
    method: str
    text: str

    @classmethod
    def of(cls, given: Any, method: str, name: str, methods: Sequence[str]) -> Step:
        """Return a step from a format, a recipe, or a pair of one and its method."""
        if isinstance(given, tuple) and len(given) == 2:
            given, method = given
        if method not in methods:
            raise WrongValue(f"{name}: the ladder has the method {shown(method)}, expected {or_words(methods)}")
        formats: Any
        if isinstance(given, Mapping):
            formats = parse_recipe(given)
            text = " ".join(f"{pattern}={fmt or 'float'}" for pattern, fmt in formats.items())
        else:
            formats = as_format(given, f"{name}: ladder", rotated=True)
            text = str(formats)
        return cls(formats, method, text if method == "rtn" else f"{text} / {method}")


def ladder_of(ladder: Any, method: str, name: str, methods: Sequence[str] = METHODS) -> list[Step]:
    """Return the steps of a ladder."""
    if isinstance(ladder, (str, Format, Mapping)) or not isinstance(ladder, Sequence):
        raise WrongType(f"{name}: ladder is {shown(ladder)}, expected a list of formats, recipes or (format, method)")
    if not ladder:
        raise WrongValue(f"{name}: ladder is empty, expected formats, recipes or pairs (format, method)")
    return [Step.of(one, method, name, methods) for one in ladder]


@dataclass(frozen=True)
class Gate(Tabular):
    """Hold the answer of `accept`.

    Attributes
    ----------
    recipe : str or None
        The smallest accepted recipe with its method; None if the float weights remain.
    passed : bool
        Whether a recipe was accepted.
    score : float or None
        Its score; without a recipe the best score of the ladder.
    evaluations : int
        Number of calls of the function.
    table : list of dict
        One row per recipe, by bytes: ``recipe method bytes score ms passed``. The score of a recipe that was not
        evaluated is None. ms: milliseconds of the network on its calibration inputs, of a module on the first batch,
        the least of up to three runs. None without such inputs.
    reason : str
        One sentence.
    layers : dict of str to str
        With `mix`, if a mixture was accepted: the recipe of each of its layers.
    """

    recipe: str | None
    passed: bool
    score: float | None
    evaluations: int
    table: list[dict[str, Any]]
    reason: str
    layers: dict[str, str] = field(default_factory=dict)

    kind = "gate"
    names = ("recipe",)
    no_sum = "one recipe is the answer to one ladder: pass one ladder with all steps and keep= to accept"
    columns_of_files = {"recipe": str, "method": str, "bytes": int, "score": float | None, "ms": float | None,
                        "passed": bool | None}  # fmt: skip

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        if not fields["table"]:
            raise WrongValue("table has no recipes")

    @counts_subnormals
    def to_html(self, path: str | os.PathLike[str], title: str = "The smallest recipe that is good enough") -> None:
        """Write one self-contained page: the sentence, the scores against bytes and milliseconds, and the table.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        write_text(path, report.gate_page(title, self.table, self.recipe, self.reason, self.layers, self._stored()))

    @counts_subnormals
    def __str__(self) -> str:
        width = max(len(row["recipe"]) for row in self.table)
        lines = [f"{'recipe':{width}}  {'bytes':>12}  {'ms':>8}  score"]
        for row in self.table:
            score = "not evaluated" if row["score"] is None else f"{row['score']:.6g}{'' if row['passed'] else '  no'}"
            ms = "" if row["ms"] is None else f"{row['ms']:.4g}"
            lines.append(f"{row['recipe']:{width}}  {row['bytes']:12,}  {ms:>8}  {score}")
        return "\n".join([*lines, self.reason])


def climb(
    steps: Sequence[Step],
    sizes: Sequence[int],
    judge: Callable[[int], float],
    at_least: float,
    evaluations: int | None,
    times: Mapping[int, float] | None = None,
) -> tuple[int | None, Gate]:
    """Search the smallest step that passes: by bisection over the sizes, then the steps below the answer.

    `times` are the milliseconds of the steps that `judge` has evaluated.

    Returns
    -------
    (int or None, Gate)
        The index of the step.
    """
    order = sorted(range(len(steps)), key=lambda i: (sizes[i], i))
    scores: dict[int, float] = {}

    def passes(at: int) -> bool:
        if order[at] not in scores:
            scores[order[at]] = judge(order[at])
        return scores[order[at]] >= at_least

    def spent() -> bool:
        return evaluations is not None and len(scores) >= evaluations

    low, high = 0, len(order)  # the answer is at most `high`, steps before `low` are taken as too small
    while low < high and not spent():
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle + 1
    best = high if high < len(order) else None
    below = [at for at in range((len(order) if best is None else best) - 1, -1, -1) if order[at] not in scores]
    for at in below[:NEIGHBOURS]:  # a larger recipe may be worse than a smaller one
        if not spent() and passes(at):
            best = at
    table = [
        {
            "recipe": steps[i].text,
            "method": steps[i].method,
            "bytes": int(sizes[i]),
            "score": scores.get(i),
            "ms": (times or {}).get(i),
            "passed": None if i not in scores else scores[i] >= at_least,
        }
        for i in order
    ]
    highest = max(scores.values(), default=None)
    if best is None:
        reason = f"no recipe reaches {at_least:g}: the float weights remain; the best of {len(scores)} has {highest:g}"
        return None, Gate(None, False, highest, len(scores), table, reason)
    chosen = order[best]
    reason = (
        f"{steps[chosen].text} is the smallest recipe found with at least {at_least:g}: {scores[chosen]:g}, after "
        f"{len(scores)} of {len(steps)} evaluations"
    )
    return chosen, Gate(steps[chosen].text, True, scores[chosen], len(scores), table, reason)


@dataclass(frozen=True)
class Exchange:
    """A layer of a network in a larger and in a smaller rounding: bytes saved, and the relative errors of both."""

    name: str
    saved: int
    small: float
    large: float

    def price(self) -> float:
        """Return the error that is added per byte."""
        return max(self.small - self.large, 0.0) / self.saved


def best_failing(gate: Gate) -> int | None:
    """Return the row of the table with the best score of the recipes that are smaller than the answer and fail."""
    rows = gate.table
    end = next((i for i, row in enumerate(rows) if row["recipe"] == gate.recipe), len(rows))
    failed = [i for i in range(end) if rows[i]["passed"] is False]
    return max(failed, key=lambda i: (rows[i]["score"], -i), default=None)


def blended(
    gate: Gate,
    small: str,
    size: int,
    exchanges: Sequence[Exchange],
    judge: Callable[[Sequence[str]], tuple[float, float | None]],
    at_least: float,
    evaluations: int | None,
) -> tuple[list[str], Gate]:
    """Give as many layers as possible a smaller rounding: by bisection over their number, the cheapest first.

    Parameters
    ----------
    gate : Gate
        Answer of `climb`.
    small : str
        The recipe of the smaller rounding.
    size : int
        Bytes of all weights in the larger rounding.
    exchanges : sequence of Exchange
        Of each layer that the two roundings store in different sizes.
    judge : callable
        Returns the score and the milliseconds of the network with some layers in the smaller rounding.

    Returns
    -------
    (list of str, Gate)
        The layers in the smaller rounding.
    """
    cheap = sorted((one for one in exchanges if one.saved > 0), key=lambda one: (one.price(), one.name))
    large, rows = gate.recipe or "float", list(gate.table)
    low, used, best = 0, gate.evaluations, gate.score
    high = len(cheap) + (len(cheap) < len(exchanges))  # with all layers exchanged it is the recipe that fails
    while high - low > 1 and (evaluations is None or used < evaluations):
        middle = (low + high) // 2
        score, ms = judge([one.name for one in cheap[:middle]])
        used += 1
        text = f"{small} in {middle} of {len(cheap)} layers, {large} in the others"
        left = size - sum(one.saved for one in cheap[:middle])
        rows.append({"recipe": text, "method": "mix", "bytes": left, "score": score, "ms": ms,
                     "passed": score >= at_least})  # fmt: skip
        low, high, best = (middle, high, score) if score >= at_least else (low, middle, best)
    rows.sort(key=lambda row: row["bytes"])
    chosen = [one.name for one in cheap[:low]]
    if not low:
        return [], replace(gate, evaluations=used, table=rows)
    text = f"{small} in {low} of {len(cheap)} layers, {large} in the others"
    reason = f"{text}, is the smallest recipe found with at least {at_least:g}: {best:g}, after {used} evaluations"
    recipes = {one.name: small if one.name in chosen else large for one in exchanges}
    return chosen, Gate(text, True, best, used, rows, reason, recipes)


def milliseconds(call: Callable[[], Any]) -> float:
    """Return the least time of up to three calls."""
    least, begun = inf, time.perf_counter()
    for _ in range(RUNS):
        start = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - start)
        if time.perf_counter() - begun > SECONDS:
            break
    return 1000 * least


def scored(evaluate: Callable[[Any], Any], given: Any, name: str) -> float:
    """Return the score of a network.

    Raises
    ------
    TypeError, ValueError
        It is not a finite number.
    """
    found = call_back(evaluate, given)
    found = found.item() if hasattr(found, "item") and np.size(found) == 1 else found
    score = as_real(found, f"{name}: the score", "a number")
    if not isfinite(score):
        raise WrongValue(f"{name}: the score is {shown(score)}, expected a finite number")
    return score


@renamed(calibration="inputs")
@counts_subnormals
def accept(
    weights: Any,
    ladder: Any,
    evaluate: Callable[[Any], Any],
    at_least: float,
    inputs: Any = None,
    method: str | None = None,
    evaluations: int | None = None,
    include: Any = None,
    exclude: Any = None,
    mix: bool = False,
    shrinkage: float = 0.0,
    progress: Progress | bool | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> tuple[dict[str, Any], Gate]:
    """Return the smallest rounding of a network that is good enough, or the float weights.

    Parameters
    ----------
    weights : mapping of str to array_like
    ladder : list of Format, str, mapping or tuple
        Formats, or recipes of patterns and formats. A pair (format, method) has a method of its own.
    evaluate : callable
        ``evaluate(weights)`` returns a number, the higher the better: accuracy, agreement, a cosine, or minus a loss.
    at_least : float
        The score that is good enough.
    inputs : callable, optional
        Runs the network, as `inputs` of `quantize`. Required by methods with calibration inputs.
    method : {"rtn", "search", "gptq", "qronos"}, optional
        Default: ``"gptq"`` with `inputs`, ``"rtn"`` without.
    evaluations : int, optional
        Maximum number of evaluations. Default: those of the search, at most log2 of the length, plus three.
    include, exclude
        As in `quantize`.
    mix : bool
        Then also try mixtures: layers of the best recipe that fails, among those of the answer, or among float weights.
        The layers with the least added error per byte are exchanged first, and their number is found by bisection, with
        log2 of the number of layers more evaluations. Errors are those of the layers' outputs with calibration, of the
        weights without.
    shrinkage : float
        0 or more. As in `gptq`, for the steps with calibration inputs.
    progress : callable or bool, optional
        As in `heterocompute.study`, with one step per evaluation.
    keep : path, optional
        File of results, as in `heterocompute.study`: scores and times are appended as soon as they are known.

    Returns
    -------
    (dict, Gate)
        All weights, and the report. Recipes are sorted by bytes and searched by bisection. Two recipes below the answer
        are evaluated as well, since a larger recipe can be worse.

    Raises
    ------
    TypeError, ValueError
        The ladder is empty or not a list, the score is not a number, or as in `quantize`.

    Examples
    --------
    >>> import heterocompute as hc
    >>> net = hc.zoo.digits()
    >>> ladder = ["int2-g16", "int3-g16", "int4-g32", "int8"]
    >>> small, gate = hc.ptq.accept(net.weights, ladder, net.accuracy, at_least=0.99)
    >>> gate.passed, gate.evaluations <= 4
    (True, True)
    """
    if not isinstance(weights, Mapping):
        raise WrongType(f"accept: weights is {shown(weights)}, expected a mapping of names to arrays")
    if not callable(evaluate):
        raise WrongType(f"accept: evaluate is {shown(evaluate)}, expected a function of the weights")
    wanted = as_real(at_least, "accept: at_least", "a number")
    most = None if evaluations is None else as_int(evaluations, "accept: evaluations", 1)
    steps = ladder_of(ladder, method or ("rtn" if inputs is None else "gptq"), "accept")
    if inputs is None and (needy := [step.method for step in steps if step.method in CALIBRATED]):
        raise WrongValue(f"accept: inputs is None, expected the function that {needy[0]} rounds with")
    mixes = check_flag("accept", "mix", mix)
    share = as_real(shrinkage, "accept: shrinkage", "a number")
    if not 0 <= share < inf:
        raise WrongValue(f"accept: shrinkage is {shown(shrinkage)}, expected a finite number, 0 or more")
    if share and not any(step.method in CALIBRATED for step in steps):
        raise WrongValue(f"accept: shrinkage is for {or_words(CALIBRATED)}, and no step has one of them")
    made: dict[int, tuple[dict[str, Any], dict[str, float]]] = {}
    times: dict[int, float] = {}

    def judged(some: dict[str, Any]) -> tuple[float, float | None]:
        score = scored(evaluate, some, "accept")
        return score, None if inputs is None else milliseconds(lambda: call_back(inputs, some))

    kept = KeptResults(keep, "accept")
    digests = {name: digest_of(value) for name, value in weights.items()} if kept else None
    kept.belongs_to(digests, evaluate, inputs, include, exclude, share)
    tell = Steps(most or len(steps).bit_length() + NEIGHBOURS, progress, "accept")

    def made_of(i: int) -> tuple[dict[str, Any], dict[str, float]]:
        if i not in made:
            made[i] = _rounded(weights, steps[i], inputs, include, exclude, share)
        return made[i]

    def judged_step(i: int) -> float:
        tell(steps[i].text)
        score: float
        score, ms = kept.get(("step", steps[i]), lambda: judged(made_of(i)[0]))
        if ms is not None:
            times[i] = ms
        return score

    sizes = [_size(weights, step, include, exclude) for step in steps]
    chosen, gate = climb(steps, sizes, judged_step, wanted, most, times)
    answer, large = (dict(weights), dict[str, float]()) if chosen is None else made_of(chosen)
    if not mixes or (row := best_failing(gate)) is None:
        tell.finish()
        return answer, gate
    at = sorted(range(len(steps)), key=lambda i: (sizes[i], i))[row]
    smaller, small = made_of(at)
    exchanges = [
        Exchange(name, _array(answer[name]).nbytes - _array(smaller[name]).nbytes, small[name], large.get(name, 0.0))
        for name in small
    ]

    def judged_mix(names: Sequence[str]) -> tuple[float, float | None]:
        tell(f"{steps[at].text} in {counted(len(names), 'layer')}")
        mixed = {**answer, **{name: smaller[name] for name in names}}
        about = "mix", steps[at], None if chosen is None else steps[chosen], list(names)
        score, ms = kept.get(about, lambda: judged(mixed))
        return score, ms

    size = sum(_array(value).nbytes for value in answer.values())
    names, gate = blended(gate, steps[at].text, size, exchanges, judged_mix, wanted, most)
    tell.finish()
    return {**answer, **{name: smaller[name] for name in names}}, gate


def _formats_of(weights: Mapping[str, Any], step: Step, include: Any, exclude: Any) -> dict[str, Format]:
    """Return the format of each weight that a step rounds."""
    first = FirstMatch(step.formats if isinstance(step.formats, Mapping) else {"*": step.formats})
    infos = {
        name: (np.asarray(value).dtype.name, np.shape(value))
        for name, value in weights.items()
        if not isinstance(value, PackedArray)
    }
    found = {name: first(name) for name in select(infos, include, exclude)}
    return {name: fmt for name, fmt in found.items() if fmt is not None}


def _size(weights: Mapping[str, Any], step: Step, include: Any, exclude: Any) -> int:
    """Return the bytes of all weights of a step."""
    formats = _formats_of(weights, step, include, exclude)
    return sum(
        stored_bytes(formats[name], np.shape(value), _axes_of(value)) if name in formats else value.nbytes
        for name, value in ((name, _array(value)) for name, value in weights.items())
    )


def _array(value: Any) -> Any:
    return value if isinstance(value, PackedArray) else np.asarray(value)


def _axes_of(value: Any) -> tuple[int, ...]:
    return (2, 3, 1) if value.ndim == 4 else (value.ndim - 1,)


def _rounded(
    weights: Mapping[str, Any], step: Step, run: Any, include: Any, exclude: Any, shrinkage: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the weights of one step, and the relative errors of its layers.

    Without a calibration run all selected weights are rounded alone.
    """
    if run is not None:
        more: dict[str, Any] = {"shrinkage": shrinkage} if shrinkage and step.method in CALIBRATED else {}
        found = quantize(weights, run, step.formats, include=include, exclude=exclude, method=step.method, **more)
        return found.weights, {row["name"]: 10 ** (-row["after"] / 10) for row in found.table}
    rounded, errors = dict(weights), {}
    for name, fmt in _formats_of(weights, step, include, exclude).items():
        rounded[name] = by_method(weights[name], fmt, _axes_of(np.asarray(weights[name])), step.method)
        errors[name] = relative_error(weights[name], rounded[name])
    return rounded, errors


def relative_error(w: Any, q: Any) -> float:
    """Return the squared error of a rounded weight, relative to the weight."""
    values = np.asarray(w, np.float64)
    whole = float(np.square(values).sum())
    return float(np.square(values - q.dequantize(np.float64)).sum()) / whole if whole else 0.0
