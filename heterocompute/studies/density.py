"""The number of weights that a network needs: its evaluation against their density, for each kind of layers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from ..base.errors import WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.keeping.digest import digest_of
from ..base.keeping.results import KeptResults
from ..base.modules import is_module
from ..base.progress import Progress, Steps
from ..base.values import as_list, as_real
from ..files.selection import axes_of, check_patterns, select
from ..pruning.prune import parsed, prune
from .callers import evaluator, retrainer, train_again
from .density_result import DensityStudy
from .request import Request
from .source import Source, module_of, named, network_of

__all__ = ["study_density"]

PATTERNS: Mapping[str, Sequence[str]] = {
    "unstructured": "30% 50% 60% 70% 80% 85% 90% 93% 95% 97% 98%".split(),
    "N:M": "3:4 2:4 3:8 1:4 1:8 1:16 1:32".split(),
}
COLUMNS = ("layers", "structure", "pattern", "density", "retrained")


@counts_subnormals
def study_density(
    weights: object,
    patterns: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    evaluate: Callable[..., Any] | None = None,
    retrain: bool | Callable[..., Any] | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    axis: int | tuple[int, ...] | Mapping[str, int | tuple[int, ...]] | None = None,
    slack: float = 0.005,
    progress: Progress | bool | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> DensityStudy:
    """Prune the layers of a network to decreasing densities and measure the loss, per kind of layer.

    Parameters
    ----------
    weights : network, mapping of str to array, path, or torch.nn.Module
        As in `heterocompute.study`. Everything except a network requires `evaluate`.
    patterns : mapping of str to sequence of str, or sequence of str, optional
        Patterns of `heterocompute.prune`, by the name of the curve, such as ``{"blocks": ["block:4x1:50%"]}``. Default:
        a share of each row from 30 to 98 percent removed, and N:M from 3:4 to 1:32.
    evaluate : callable, optional
        ``evaluate(weights)`` as in `heterocompute.study`. It gets a `SparseArray` for each array pruned to N:M, and a
        float32 ndarray with zeros for the other patterns. For a module it is ``evaluate(module)``, called with a copy
        with the pruned weights.
    retrain : bool or callable, optional
        ``retrain(weights, changed)`` as in `heterocompute.study`. Pruned values must stay zero. Default: the network's
        own method if it has one. False: no retraining.
    include, exclude : str or iterable of str, optional
        Globs over the names. Default: float tensors with two or more dimensions.
    axis : int, tuple of int or mapping of str to these, optional
        Reduction axes. Default: the axes that the operators of an ONNX file reduce; (2, 3, 1) for a 4-D tensor;
        otherwise the last axis.
    slack : float, optional
        Tolerated loss, in units of the first number of `evaluate`. 0.005 is half a point of accuracy.
    progress : callable or bool, optional
        As in `heterocompute.study`. Called as ``progress(done, total, text)`` before each step, and once at the end.
    keep : path, optional
        File of results, as in `heterocompute.study`: an interrupted study continues.

    Returns
    -------
    DensityStudy

    Raises
    ------
    TypeError
        `evaluate`, `retrain` or `progress` is not a function, slack is not a number, or `evaluate` does not return a
        number.
    ValueError
        There is no way to evaluate, a pattern or tensor is unknown, slack is not positive, pruned values are not zero
        after `retrain`, or a tensor holds NaN.

    Notes
    -----
    Han, Pool, Tran, Dally, "Learning both Weights and Connections for Efficient Neural Networks", NIPS 2015
    (arXiv 1506.02626), prunes and retrains in this way.

    Examples
    --------
    >>> import heterocompute as hc
    >>> r = hc.study_density(hc.zoo.digits(), ["50%", "90%"], retrain=False, exclude="conv*")
    >>> [(row["layers"], row["pattern"], round(row["density"], 2)) for row in r.table]
    [(None, None, 1.0), ('linear', '50%', 0.5), ('linear', '90%', 0.1)]
    """
    if is_module(weights):
        request = module_of(
            Request(weights, None, evaluate, include, exclude, axis=axis, retrain=retrain, study="study_density")
        )
        weights, evaluate, include, exclude = request.weights, request.evaluate, None, None
    network = network_of(weights)
    if evaluate is None:
        evaluate = network.evaluate
    if evaluate is None:
        raise WrongValue("study_density: weights alone have nothing that judges them; expected a network, or evaluate")
    call = evaluator(evaluate, [], "study_density", COLUMNS)
    assert call is not None
    wanted = network.retrain is not None if retrain is None else retrain
    train = retrainer(wanted, network.retrain, "study_density")
    curves = _curves(PATTERNS if patterns is None else patterns)
    loss = as_real(slack, "study_density: slack", "a positive number")
    if not 0 < loss < float("inf"):
        raise WrongValue(f"study_density: slack is {shown(slack)}, expected a positive number")

    with ExitStack() as stack:
        source = Source(network.weights, stack)
        names = select(source.infos, include, exclude, plain=source.roles.plain)
        if not names:
            raise WrongValue("study_density: no float tensor with two or more dimensions among the weights")
        if isinstance(axis, Mapping):
            check_patterns(source.infos, axis)
        axes = axes_of(names, source.shapes, source.roles, axis, "study_density")
        kinds: dict[str, list[str]] = {"convolution": [], "linear": []}
        for name in names:
            kinds["convolution" if len(source.infos[name][1]) > 2 else "linear"].append(name)
        kinds = {kind: members for kind, members in kinds.items() if members}
        everything = {name: source.original(name) for name in source.names}
        points = len(kinds) * sum(map(len, curves.values())) * (1 if train is None else 2)
        step = Steps(1 + points, progress, "study_density")
        step("evaluate")
        kept = KeptResults(keep, "study_density")
        kept.belongs_to(
            {name: digest_of(value) for name, value in everything.items()} if kept else None, evaluate, axes
        )
        training = kept.same(train)
        numbers = kept.get(("baseline",), lambda: call(dict(everything), {}))
        rows: list[dict[str, Any]] = [{**dict.fromkeys(COLUMNS), "density": 1.0, **numbers}]
        if len(rows[0]) == len(COLUMNS):
            raise WrongValue("study_density: evaluate returned no number")

        def point(kind: str, structure: str, text: str) -> list[dict[str, Any]]:
            step(f"{kind}  {text}")
            if (held := kept.find(kinds[kind], text, training)) is None:
                held = measured(kind, text)
                kept.add(held, kinds[kind], text, training)
            elif train is not None:
                step(f"retrain  {kind}  {text}")
            row = {"layers": kind, "structure": structure, "pattern": text}
            return [{**row, **one} for one in held]

        def measured(kind: str, text: str) -> list[dict[str, Any]]:
            changed = dict(everything)
            for name in kinds[kind]:
                with named(name):
                    changed[name] = prune(source.load(name), text, axes[name])
            masks = {name: _not_zero(changed[name]) for name in kinds[kind]}
            found = sum(int(mask.sum()) for mask in masks.values())
            density = found / max(1, sum(mask.size for mask in masks.values()))
            answers = [{"density": density, "retrained": None, **call(dict(changed), {})}]
            if train is not None:
                step(f"retrain  {kind}  {text}")
                after = train_again(train, everything, changed, "study_density")
                _check_zeros(after, masks, text)
                answers.append({"density": density, "retrained": True, **call(after, {})})
            return answers

        for kind in kinds:
            for structure, texts in curves.items():
                for text in texts:
                    rows += point(kind, structure, text)
        step.finish()
    metrics = list(dict.fromkeys(key for row in rows for key in row if key not in COLUMNS))
    table = [{**{key: row[key] for key in COLUMNS}, **{key: row.get(key) for key in metrics}} for row in rows]
    return DensityStudy(table, metrics, loss)


def _curves(patterns: object) -> dict[str, list[str]]:
    curves = dict(patterns) if isinstance(patterns, Mapping) else {"pruned": patterns}
    found = {}
    for name, texts in curves.items():
        texts = [texts] if isinstance(texts, str) else as_list(texts, "study_density: patterns", "texts such as '2:4'")
        for text in texts:
            parsed(text, "study_density")  # an unknown pattern is refused before any work
        found[str(name)] = texts
    if not any(found.values()):
        raise WrongValue("study_density: no patterns")
    return found


@counts_subnormals
def _not_zero(value: object) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(value) != 0
    return found


def _check_zeros(after: Mapping[str, Any], masks: Mapping[str, Any], text: str) -> None:
    for name, mask in masks.items():
        if np.any(_not_zero(after[name])[~mask]):
            raise WrongValue(f"study_density: retrain returned {shown(name)} with values where {text} had pruned them")
