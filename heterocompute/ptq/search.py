"""The search for a format for each tensor: `search`, least predicted loss within a budget of bytes, with a proof.

Predicted loss = sum over tensors of alpha * e: e is the relative output error of tensor and format by the method that
will be used, and alpha is the network's loss per unit of it, from one evaluation per tensor, rounded by a probe whose
error is large enough to measure and too small to destroy the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from math import floor, inf, isfinite, log10, prod
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import call_back, counts_subnormals
from ..base.keeping.digest import digest_of
from ..base.keeping.results import KeptResults
from ..base.lazy import renamed
from ..base.modules import is_module
from ..base.progress import Steps
from ..base.values import as_list, as_real
from ..files.opening import check_weights
from ..files.roles import roles_from
from ..files.selection import axes_of, escaped, unknown
from ..formats import Format
from ..formats.defining import readable
from ..products.arguments import as_format
from ..products.columns import to_columns
from .budgets import cost_tables, limits
from .error import error
from .hessian import Hessian
from .knapsack import Solution, solve
from .methods import codes_or_values, takes
from .network import chosen_arrays
from .results.plan import Plan

Array = np.ndarray[Any, Any]

COARSE = ("accuracy", "acc", "top1", "top5", "exact")  # counts of right answers


@renamed(calibration="inputs")
@counts_subnormals
def search(
    weights: Any,
    formats: Iterable[Format | str],
    budget: Mapping[str, float],
    evaluate: Callable[..., Any] | None = None,
    metric: str | None = None,
    hessians: Mapping[str, Hessian] | None = None,
    groups: Sequence[Sequence[str]] = (),
    probe: Format | str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    device: Any = None,
    activations: Format | str | None = None,
    progress: Callable[[int, int, str], None] | bool | None = None,
    inputs: Any = None,
    keep: str | os.PathLike[str] | None = None,
) -> Plan:
    """Choose a format for every tensor that minimizes the network's loss within a budget.

    Parameters
    ----------
    weights : mapping of str to array_like, network with `weights` and `evaluate`, or torch.nn.Module
    formats : sequence of Format or str
        The candidates.
    budget : mapping
        One or several limits:

        - ``bits``: stored bits per value over all chosen tensors.
        - ``bytes``: all components.
        - ``seconds``: measured on this machine, of one batch-1 matmul with every tensor.
        - ``device_us`` and ``device_uj``: modelled time and energy of these matmuls on `device`.
        - ``mac_pj`` and ``mac_um2``: energy and area of a multiply-add in silicon, the mean over all multiply-adds.
    evaluate : callable, optional
        ``evaluate(weights)`` returns a number, or a dict of numbers of which `metric` names one. It should grow
        smoothly with errors, as a loss, a divergence or a root mean square does. By default every tensor's relative
        error counts the same. For a module it is ``evaluate(module)``, called with a copy with packed layers.
    metric : str, optional
        Required if evaluate returns several numbers. Accuracy is rejected.
    hessians : mapping of str to Hessian, optional
        Result of `calibrate`. Errors are then those of layers' outputs, and tensors with a Hessian are rounded by
        `gptq`. Tensors without one use the scale search and the relative error of their weights.
    groups : sequence of sequence of str
        Globs of names. The tensors of one group get one format.
    probe : Format or str, optional
        Format that each tensor is rounded to once, to measure its effect. Default: the candidate with an error nearest
        to 15 dB, which is measurable but not destructive.
    include, exclude : str or iterable of str, optional
    device : str or Device, optional
        Device of the budget, as in `heterocompute.study`.
    activations : Format or str, optional
        Format of the other operand, for budgets of time, energy and area. Default: float.
    progress : callable or bool, optional
        As in `heterocompute.study`. Called as ``progress(done, total, text)`` before each step, and once at the end.
    inputs : Calibration or batches, optional
        For a module, instead of `hessians`: the result of `calibrate`, or the calibration batches.
    keep : path, optional
        File of results, as in `heterocompute.study`: errors and answers of `evaluate` are appended as soon as they are
        known, and not computed again.

    Returns
    -------
    Plan
        ``print(plan)`` shows whether the plan is proven optimal.

    Raises
    ------
    TypeError, ValueError
        Weights, budget, Hessians or metric have the wrong type, a Hessian matches no tensor (similar names are listed),
        the budget is below the cheapest formats, or the metric counts correct answers or never changes.

    Examples
    --------
    >>> import heterocompute as hc
    >>> net = hc.zoo.digits()
    >>> plan = hc.ptq.search(net.weights, ["int2-g16", "int4-g32", "int8"], {"bits": 4.5})
    >>> plan.bits <= 4.5, plan.gap
    (True, 0.0)
    """
    if is_module(weights):
        from ..interop.models.searching import searched  # optional: torch

        if hessians is not None:
            raise WrongValue("search: hessians is for weights; pass inputs= with a torch.nn.Module")
        of_weights = partial(
            search, formats=formats, budget=budget, metric=metric, groups=groups, probe=probe, device=device,
            activations=activations, progress=progress, keep=keep,
        )  # fmt: skip
        plan: Plan = searched(of_weights, weights, evaluate, inputs, include, exclude)
        return plan
    if inputs is not None:
        raise WrongValue("search: inputs are for a torch.nn.Module; pass hessians= with weights")
    if evaluate is None and hasattr(weights, "weights"):
        evaluate = weights.evaluate
    held = getattr(weights, "weights", weights)
    arrays, known = _checked(held, {} if hessians is None else hessians)
    wanted = as_list(formats, "search: formats", "a list of formats or their texts")
    choices = list(dict.fromkeys(as_format(fmt, "search: formats", functions=True, rotated=True) for fmt in wanted))
    if not choices:
        raise WrongValue("search: there are no formats to choose from")
    given = None if probe is None else as_format(probe, "search: probe", functions=True, rotated=True)
    roles = roles_from(held)
    values = chosen_arrays(arrays, include, exclude, "search", roles.plain)
    names = list(values)
    if not names:
        raise WrongValue("search: there is no float tensor of two or more dimensions to choose for")
    items = _items(names, groups)
    shapes = {name: tuple(getattr(w, "shape", ())) for name, w in {**arrays, **values}.items()}
    layers = {n: (values[n].shape, along) for n, along in axes_of(names, shapes, roles, caller="search").items()}
    count = sum(prod(shape) for shape, _ in layers.values())
    allowed = limits(budget, device)
    judge = None if evaluate is None else _judge(evaluate, metric)
    step = Steps(len(names) + (0 if judge is None else len(items) + 2), progress, "search")
    other = None if activations is None else as_format(activations, "search: activations")
    tables = cost_tables([*allowed, "bytes"], list(layers.values()), choices, device, other)
    place = {name: i for i, name in enumerate(names)}
    item_costs = {
        kind: np.array([np.sum(table[[place[name] for name in item]], axis=0) for item in items])
        for kind, table in tables.items()
    }
    bounds = _bounds(item_costs, allowed, count, items)

    kept = KeptResults(keep, "search")
    rounder = _Rounder(values, {name: axis for name, (_, axis) in layers.items()}, known, kept)
    kept.belongs_to("errors of tensors")
    judged_by = digest_of({name: digest_of(value) for name, value in arrays.items()}, evaluate, metric) if kept else ""
    errors = {}
    for name in names:
        step(name)
        errors[name] = [rounder.error(name, fmt) for fmt in choices]
    alphas, probes, exact = dict.fromkeys(names, 1.0), dict[str, str | None].fromkeys(names), 0.0
    if judge is not None:
        kept.belongs_to(judged_by)
        disturbed = [{name: given or _probe(choices, errors[name]) for name in item} for item in items]
        alphas, exact = _effects(judge, arrays, disturbed, rounder, kept, step)
        probes = {name: fmt.label for item in disturbed for name, fmt in item.items()}

    item_losses = np.array([np.sum([np.array(errors[name]) * alphas[name] for name in item], axis=0) for item in items])
    found = _solved(item_costs, item_losses, bounds)
    of = {name: f for item, f in zip(items, found.choice, strict=True) for name in item}
    chosen = {name: rounder.round(name, choices[of[name]]) for name in names}
    measured = None
    if judge is not None:
        step("evaluate  what was chosen")
        mix = [(name, choices[of[name]], rounder.about(name)) for name in names]
        measured = kept.get(("mix", mix), lambda: judge({**arrays, **chosen})) - exact
    step.finish()

    stored = tables["bytes"].astype(np.int64)
    total = int(sum(stored[place[name], of[name]] for name in names))
    rows = [
        {
            "name": name,
            "shape": list(layers[name][0]),
            "format": choices[of[name]].label,
            "method": rounder.method(name, choices[of[name]]),
            "bits": 8 * int(stored[place[name], of[name]]) / max(prod(layers[name][0]), 1),
            "bytes": int(stored[place[name], of[name]]),
            "probe": probes[name],
            "error": errors[name][of[name]],
            "alpha": alphas[name],
            "loss": alphas[name] * errors[name][of[name]],
        }
        for name in names
    ]
    whole, lost = item_costs["bytes"].sum(axis=0), item_losses.sum(axis=0)
    uniform = [
        {"format": fmt.label, "bits": 8 * int(size) / max(count, 1), "bytes": int(size), "predicted": float(loss)}
        for fmt, size, loss in zip(choices, whole, lost, strict=True)
    ]
    spent = {
        kind: 8 * amount / max(count, 1) if kind == "bits" else amount
        for kind, amount in zip(allowed, found.costs, strict=True)
    }
    return Plan(
        {escaped(name): readable(choices[of[name]]) for name in names},
        {**arrays, **chosen},
        rows,
        total,
        8 * total / max(count, 1),
        allowed,
        spent,
        found.loss,
        found.bound,
        max(found.loss - found.bound, 0.0),
        measured,
        uniform,
        partial(_front, item_costs["bytes"], item_losses, max(count, 1)),
        kept.notes,
    )


def _checked(held: Any, hessians: Any) -> tuple[dict[str, Any], dict[str, Hessian]]:
    """Return weights and Hessians by name, checked."""
    for name, value in (("weights", held), ("hessians", hessians)):
        if not isinstance(value, Mapping):
            raise WrongType(f"search: {name} is {shown(value)}, expected a mapping of names")
    check_weights(held, "search")
    arrays, known = dict(held), dict(hessians)
    for name, h in known.items():
        if name not in arrays:
            raise WrongValue(f"search: hessians has {unknown(str(name), arrays)}")
        if not isinstance(h, Hessian):
            raise WrongType(f"search: hessians[{shown(name)}] is {shown(h)}, expected a Hessian")
    return arrays, known


def _effects(
    judge: Callable[[Mapping[str, Any]], float],
    arrays: Mapping[str, Any],
    disturbed: Sequence[Mapping[str, Format]],
    rounder: _Rounder,
    kept: KeptResults,
    step: Steps,
) -> tuple[dict[str, float], float]:
    """Return the loss per unit of error of each tensor, and the metric of the exact weights."""
    alphas, disturbs = dict[str, float](), False
    step("evaluate")
    exact = kept.get(("exact",), lambda: judge(arrays))
    for item in disturbed:
        step(f"evaluate  {', '.join(item)}")
        size = sum(rounder.error(name, fmt) for name, fmt in item.items())

        def judged(item: Mapping[str, Format] = item) -> float:
            return judge({**arrays, **{name: rounder.round(name, fmt) for name, fmt in item.items()}})

        about = [(name, fmt, rounder.about(name)) for name, fmt in item.items()]
        change = abs(kept.get(("mix", about), judged) - exact)
        alphas |= dict.fromkeys(item, change / size if size else 0.0)
        disturbs = disturbs or size > 0
    if disturbs and not any(alphas.values()):
        raise WrongValue(
            f"search: evaluate returned {shown(exact)} for every rounding of a tensor, so it cannot say what an error "
            "costs; expected a loss, a divergence or a root mean square"
        )
    return alphas, exact


def _bounds(
    costs: Mapping[str, Array], allowed: Mapping[str, float], count: int, items: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return the budgets in units of the costs, for this number of values, unless the cheapest choices exceed one."""
    # the cost of bits is in bytes
    bounds: dict[str, float] = {
        kind: floor(amount * count / 8) if kind == "bits" else amount for kind, amount in allowed.items()
    }
    for kind, amount in allowed.items():
        cheapest = costs[kind].min(axis=1)
        least = float(cheapest.sum())
        if least > bounds[kind]:
            needs = f"{8 * least / count:.4g} bits per value" if kind == "bits" else f"{least:.9g} {kind}"
            largest = int(cheapest.argmax())
            share = float(cheapest[largest]) / least if least else 1.0
            raise WrongValue(
                f"search: the cheapest choices take {needs}, more than the budget of {amount:.9g}; the largest part is "
                f"{', '.join(map(shown, items[largest][:3]))} with {share:.0%}: exclude it, add smaller formats or "
                "raise the budget"
            )
    return bounds


def _solved(costs: Mapping[str, Array], losses: Array, bounds: Mapping[str, float]) -> Solution:
    """Return the choices of least loss within the budgets."""
    try:
        return solve([costs[kind] for kind in bounds], losses, list(bounds.values()))
    except ValueError as problem:
        raise WrongValue(f"search: {problem}") from None


class _Rounder:
    """Rounds tensors by the best available method: `gptq` with a Hessian, the scale search, or plainly.

    Each tensor is rounded once to each format, and the packed arrays stay for later evaluation. A format whose error is
    in the file of results is rounded only if it is evaluated.
    """

    def __init__(
        self,
        values: Mapping[str, Array],
        axes: Mapping[str, tuple[int, ...]],
        hessians: Mapping[str, Hessian],
        kept: KeptResults,
    ) -> None:
        self.values, self.axes, self.hessians, self.kept = values, axes, hessians, kept
        self.packed: dict[tuple[str, Format], QuantizedArray | Array] = {}
        self.errors: dict[tuple[str, Format], float] = {}
        self.digests: dict[str, str] = {}

    def about(self, name: str) -> str:
        """Return a digest of what determines the rounding of a tensor to each format, if results are kept."""
        if self.kept and name not in self.digests:
            self.digests[name] = digest_of(self.values[name], self.axes[name], self.hessians.get(name))
        return self.digests.get(name, "")

    def method(self, name: str, fmt: Format) -> str:
        ways = ("gptq", "search") if name in self.hessians else ("search",)
        return next((way for way in ways if takes(way, fmt)), "rtn")

    def round(self, name: str, fmt: Format) -> QuantizedArray | Array:
        if (name, fmt) not in self.packed:
            method = self.method(name, fmt)
            try:
                q = codes_or_values(self.values[name], fmt, self.axes[name], method, self.hessians.get(name))
            except ValueError as problem:
                raise WrongValue(f"search: {shown(name)}: {problem}") from None
            self.packed[name, fmt] = q
        return self.packed[name, fmt]

    def error(self, name: str, fmt: Format) -> float:
        """Return the relative error, at the layer's output if its inputs are known."""
        if (name, fmt) not in self.errors:
            about = ("error", name, self.about(name), fmt, self.method(name, fmt))
            self.errors[name, fmt] = self.kept.get(about, lambda: self._error(name, self.round(name, fmt)))
        return self.errors[name, fmt]

    def _error(self, name: str, q: QuantizedArray | Array) -> float:
        if name in self.hessians:
            return error(self.values[name], q, self.hessians[name], self.axes[name]).relative
        exact = to_columns(self.values[name], self.axes[name])
        values = q.dequantize(np.float64) if isinstance(q, (QuantizedArray, RotatedArray)) else q
        lost = exact - to_columns(values, self.axes[name])
        whole = float(np.sum(exact * exact))
        return float(np.sum(lost * lost)) / whole if whole else 0.0


def _probe(choices: Sequence[Format], errors: Sequence[float]) -> Format:
    """Return the format whose error is nearest to 15 dB."""
    away = [abs(10 * log10(error) + 15) if error > 0 else inf for error in errors]
    return choices[away.index(min(away))]


def _items(names: Sequence[str], groups: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return groups of tensors that share a format, with single tensors in groups of one, in the order of the names."""
    home: dict[str, int] = {}
    wanted = "sequences of globs, such as [['*.q', '*.k']]"
    for number, given in enumerate(as_list(groups, "search: groups", wanted)):
        patterns = as_list(given, "search: a group", wanted)  # in a string each letter would be a pattern
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise WrongType(f"search: a group is {shown(patterns)}, expected globs of names")
        members = [name for name in names if any(name == one or fnmatchcase(name, one) for one in patterns)]
        if not members:
            raise WrongValue(f"search: no tensor fits the group {shown(patterns)}")
        for name in members:
            if home.setdefault(name, number) != number:
                raise WrongValue(f"search: {shown(name)} is in two groups")
    items: dict[Any, list[str]] = {}
    for name in names:
        items.setdefault(home.get(name, name), []).append(name)
    return list(items.values())


def _judge(evaluate: Callable[..., Any], metric: str | None) -> Callable[[Mapping[str, Any]], float]:
    """Return a function from weights to the metric."""
    if not callable(evaluate):
        raise WrongType(f"search: evaluate is {shown(evaluate)}, expected a function of the weights")

    def call(weights: Mapping[str, Any]) -> float:
        found = call_back(evaluate, dict(weights))
        if isinstance(found, Mapping):
            if metric is None and len(found) != 1:
                raise WrongValue(f"search: evaluate returned {', '.join(found)}; choose one with metric=")
            name = metric if metric is not None else next(iter(found))
            if name not in found:
                raise WrongValue(f"search: evaluate returned no {shown(name)}, only {', '.join(found)}")
            found = found[name]
        value = as_real(found, "search: what evaluate returned", "a number")
        if not isfinite(value):
            raise WrongValue(f"search: evaluate returned {value}, expected a finite number")
        return value

    if metric is not None and not isinstance(metric, str):
        raise WrongType(f"search: metric is {shown(metric)}, expected a name")
    if metric is not None and metric.lower() in COARSE:
        raise WrongValue(
            f"search: metric is {shown(metric)}, which counts right answers: one tensor's rounding changes few of them "
            "or none, so that it cannot say what an error costs; expected a loss, a divergence or a root mean square"
        )
    return call


def _front(costs: Array, losses: Array, count: int) -> list[dict[str, Any]]:
    """Return the best choices for 17 budgets of bytes, without choices that a smaller budget matches."""
    low, high = costs.min(axis=1).sum(), costs.max(axis=1).sum()
    points: list[dict[str, Any]] = []
    for i in range(17):
        found = solve([costs], losses, [low + (high - low) * i // 16])
        if not points or found.loss < points[-1]["predicted"]:
            size = int(found.costs[0])
            points.append({"bits": 8 * size / count, "bytes": size, "predicted": found.loss})
    return points
