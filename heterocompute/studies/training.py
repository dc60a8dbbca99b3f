"""`study_training`: the same training in several recipes, and where each leaves bfloat16."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.keeping.results import KeptResults
from ..base.lazy import renamed
from ..base.progress import Progress, Steps
from ..base.values import as_int, as_list, check_number
from ..report.files import write_text
from ..report.page import page as whole_page, rows_html
from ..report.results.checking import check_rows, to_json
from ..report.results.tabular import Tabular
from ..training.descent import batches as distorted, share_of
from ..training.step.named import as_recipe
from ..training.step.network import NetworkTrainer
from ..training.step.recipe import Recipe
from ..training.step.watching import Watch
from ..zoo.network import Network

__all__ = ["TrainingStudy", "study_training"]


def __dir__() -> list[str]:
    return __all__


BASE = "bf16"
WATCHED = 20  # recorded steps of each training
MEAN = 10  # steps of the moving mean of a curve
# A departure: this number of standard deviations, at least this loss, and this share of the loss of bf16.
SPREADS, LEAST, SHARE = 3.0, 0.05, 0.25
COLORS = ("#222222", "#33658a", "#c1440e", "#3a7d44", "#8e5572", "#b08900", "#4f6d7a", "#d1495b", "#6a4c93", "#1b998b",
          "#7f5539", "#5c677d", "#a23e48")  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class TrainingStudy(Tabular):
    """Hold the result of `heterocompute.study_training`. `save` writes a file that `load` reads.

    Attributes
    ----------
    table : list of dict
        One row per recipe: ``recipe``, ``accuracy`` (mean over seeds), ``spread`` (standard deviation over seeds, None
        for one seed), ``loss`` (mean of the last ten steps), ``skipped`` (steps that met an overflow), ``departs``
        (the step of `first_departure`, or None), ``layer``, ``tensor``, ``underflow`` and ``saturation`` of the worst
        rounding there.
    curves : dict of str to list of list of float
        Per recipe and seed, the loss of each step; NaN after a training that failed.
    first_departure : dict of str to dict or None
        Per recipe: the first step from which on the mean loss stays above that of bf16 for ten steps or more, by three
        standard deviations over seeds, 0.05 and a quarter; with the worst rounding recorded until then.
    notes : list of str
        A warning if the file of ``keep=`` holds only results of something else.
    """

    table: list[dict[str, Any]]
    curves: dict[str, list[list[float]]]
    first_departure: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    kind = "training study"
    names = ("recipe",)
    columns_of_files = {
        "recipe": str, "accuracy": float, "spread": float | None, "loss": float | None, "skipped": int,
        "departs": int | None, "layer": str | None, "tensor": str | None, "underflow": float | None,
        "saturation": float | None,
    }  # fmt: skip

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        names = [row["recipe"] for row in fields["table"]]
        if not names:
            raise WrongValue("table has no recipes")
        for key in ("curves", "first_departure"):
            if list(fields[key]) != names:
                raise WrongValue(f"{key} has other names than the table")
        for several in fields["curves"].values():
            if not several or len({len(one) for one in several}) != 1:
                raise WrongValue("curves are no lists of one length")
        departures = [row for row in fields["first_departure"].values() if row is not None]
        check_rows("first_departure", departures, ("layer", "tensor"))

    def _joined(self, other: TrainingStudy) -> TrainingStudy:
        for name in self.curves.keys() & other.curves.keys():
            if to_json(self.curves[name]) != to_json(other.curves[name]):
                raise WrongValue(f"training study + training study: {name} has other curves: another model or data")
        notes = list(dict.fromkeys((*self.notes, *other.notes)))
        departures = {**other.first_departure, **self.first_departure}
        table = self._joined_table(other)
        curves = {**other.curves, **self.curves}
        ordered = [row["recipe"] for row in table]
        return TrainingStudy(
            table, {name: curves[name] for name in ordered}, {name: departures[name] for name in ordered}, notes
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the table, curves, departures and notes; NaN is None.

        Returns
        -------
        dict
        """
        curves = {
            name: [[value if math.isfinite(value) else None for value in one] for one in several]
            for name, several in self.curves.items()
        }
        return {"table": self.table, "curves": curves, "first_departure": self.first_departure,
                "notes": self.notes}  # fmt: skip

    def to_html(self, path: str | os.PathLike[str], title: str = "Training in number formats") -> None:
        """Write the curves and the table as a page, which `load` reads.

        Parameters
        ----------
        path : str or path-like
        title : str, optional
        """
        write_text(path, whole_page(title, self._repr_html_(), stored=self._stored()))

    def _repr_html_(self) -> str:
        return _picture(self.curves) + rows_html(self.table, "; ".join(self.notes))

    def __repr__(self) -> str:
        lines = []
        for row in self.table:
            spread = "" if row["spread"] is None else f" +- {row['spread']:.4f}"
            loss = "failed" if row["loss"] is None else f"loss {row['loss']:.4f}"
            lines.append(f"{row['recipe']:16} {row['accuracy']:.4f}{spread}  {loss}")
        return "\n".join([*lines, *self.notes])


@counts_subnormals
@renamed(rate="lr")
def study_training(
    make_model: Any,
    recipes: Iterable[Recipe | str],
    data: Sequence[Any] | None = None,
    steps: int = 200,
    seeds: int = 3,
    batch: int | None = None,
    lr: float | None = None,
    progress: Progress | bool | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> TrainingStudy:
    """Train a model in several recipes, from the same first weights and on the same batches.

    Parameters
    ----------
    make_model : heterocompute.zoo.Network or callable
        A shipped network, which is trained with NumPy, or a function that returns a torch.nn.Module for a seed.
    recipes : iterable of Recipe or str
        bf16 is added as the first if it is missing. Groups that do not divide rows are allowed.
    data : sequence of four array_like, optional
        For a function: training inputs and labels, held-out inputs and labels. The last dimension of the model's
        outputs are the classes of each label.
    steps, seeds : int, optional
        Number of steps, and of trainings per recipe.
    batch : int, optional
        Batch size. Default: that of the network, or 32.
    lr : float, optional
        Learning rate of AdamW for a function, with a cosine schedule.
    progress : callable or bool, optional
        As in `heterocompute.study`, with one step per training.
    keep : path, optional
        File of results, as in `heterocompute.study`: each training is appended when it ends, and not repeated.

    Returns
    -------
    TrainingStudy

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, a recipe occurs twice, or data is missing.

    Examples
    --------
    >>> import heterocompute as hc
    >>> r = hc.study_training(hc.zoo.digits(), ["fp8-current"], steps=4, seeds=1)
    >>> [row["recipe"] for row in r.table], len(r.curves["bf16"][0])
    (['bf16', 'fp8-current'], 4)
    """
    chosen = _named(recipes)
    steps, seeds = as_int(steps, "study_training: steps", 1), as_int(seeds, "study_training: seeds", 1)
    is_network = isinstance(make_model, Network)
    if not is_network and not callable(make_model):
        raise WrongType(
            f"study_training: make_model is {shown(make_model)}, expected a network of the zoo, or a function of a seed"
        )
    if not is_network and (data is None or len(data) != 4):
        raise WrongValue("study_training: data is missing, expected (train_x, train_y, test_x, test_y)")
    if is_network and (data is not None or lr is not None):
        raise WrongValue("study_training: a network of the zoo has data and a learning rate of its own, expected none")
    usual = make_model.batch if is_network else 32
    size = as_int(usual if batch is None else batch, "study_training: batch", 1)
    lr = None if lr is None else check_number("study_training", "lr", lr)
    curves: dict[str, list[list[float]]] = {}
    seen: dict[str, list[dict[str, Any]]] = {}
    table: list[dict[str, Any]] = []
    kept = KeptResults(keep, "study_training")
    kept.belongs_to(make_model, data, steps, size, lr)
    step = Steps(len(chosen) * seeds, progress, "study_training")
    for name, recipe in chosen.items():
        scores, skipped = [], 0
        for seed in range(seeds):
            step(f"{name}, seed {seed}")

            def trained(recipe: Recipe = recipe, seed: int = seed) -> dict[str, Any]:
                trainer = _trainer(make_model, recipe, data, seed, lr)
                watch = Watch(trainer.states, max(steps // WATCHED, 1), getattr(trainer, "host", np.asarray))
                curve = _trained(trainer, _batches(make_model, data, size, steps, seed), steps)
                watch.close()
                score = trainer.accuracy() if math.isfinite(curve[-1]) else 0.0
                return {"curve": curve, "seen": watch.history, "score": float(score), "skipped": int(trainer.skipped)}

            one = kept.get((replace(recipe, name=""), seed), trained)
            curves.setdefault(name, []).append(one["curve"])
            seen.setdefault(name, []).extend(one["seen"])
            scores.append(one["score"])
            skipped += one["skipped"]
        spread = float(np.std(scores, ddof=1)) if seeds > 1 else None
        last = float(np.mean([curve[-MEAN:] for curve in curves[name]]))
        table.append({"recipe": name, "accuracy": float(np.mean(scores)), "spread": spread,
                      "loss": last if math.isfinite(last) else None, "skipped": skipped})  # fmt: skip
    departures = {name: _departure(curves[BASE], curves[name], seen[name]) for name in chosen}
    for row in table:
        found = departures[row["recipe"]] or {}
        row["departs"] = found.get("step")
        row |= {key: found.get(key) for key in ("layer", "tensor", "underflow", "saturation")}
    step.finish()
    return TrainingStudy(table, curves, departures, kept.notes)


def _named(recipes: Iterable[Recipe | str]) -> dict[str, Recipe]:
    found: dict[str, Recipe] = {}
    given = [recipes] if isinstance(recipes, (str, Recipe)) else recipes
    for index, one in enumerate(as_list(given, "study_training: recipes", "recipes")):
        recipe = as_recipe(one, f"study_training: recipes[{index}]")
        name = recipe.name or f"recipe {index + 1}"
        if name in found:
            raise WrongValue(f"study_training: recipe {shown(name)} occurs twice, expected different names: set name=")
        found[name] = replace(recipe, pad=True)
    base = found.pop(BASE, None) or replace(as_recipe(BASE, "recipes"), pad=True)
    return {BASE: base, **found}


def _trainer(make_model: Any, recipe: Recipe, data: Any, seed: int, lr: float | None) -> Any:
    if isinstance(make_model, Network):
        return NetworkTrainer(make_model, recipe, seed)
    from ..interop.torch.recipes.trainer import ModelTrainer  # torch

    return ModelTrainer(make_model(seed), recipe, data, lr)


def _batches(make_model: Any, data: Any, size: int, steps: int, seed: int) -> Iterator[tuple[Any, Any]]:
    random = np.random.default_rng(seed)
    if isinstance(make_model, Network):
        x, y = make_model.train_x, make_model.train_y
        yield from distorted(x, y, size, -(-steps * size // len(x)) + 1, random)
        return
    x, y = data[:2]
    for _ in range(steps):
        chosen = random.integers(len(x), size=size)
        yield x[chosen], y[chosen]


def _trained(trainer: Any, given: Iterator[tuple[Any, Any]], steps: int) -> list[float]:
    """Return the loss of each step; NaN from the step on at which the training fails."""
    curve: list[float] = []
    for step in range(1, steps + 1):
        x, y = next(given)
        try:
            loss = trainer.step(x, y, share_of(step, steps + 1))
        except ValueError:
            if not curve:
                raise
            loss = math.nan  # a state of the optimizer overflowed
        if not math.isfinite(loss):
            return curve + [math.nan] * (steps - len(curve))
        curve.append(loss)
    return curve


def _departure(
    base: list[list[float]], curves: list[list[float]], history: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """Return the first step from which on the mean curve stays above that of bf16, with the worst rounding so far."""
    first, mine = _smooth(base), _smooth(curves)
    spread = first.std(axis=0, ddof=1) if len(first) > 1 else np.zeros(first.shape[1])
    with np.errstate(invalid="ignore"):
        usual = first.mean(axis=0)
        above = ~(mine.mean(axis=0) <= usual + np.maximum(SPREADS * spread, np.maximum(LEAST, SHARE * usual)))
    below = np.flatnonzero(~above)
    step = int(below[-1]) + 2 if len(below) else 1
    if step > len(above) - min(MEAN, len(above)) + 1:
        return None
    until = [row for row in history if row["step"] <= step] or history
    worst = max(until, key=lambda row: row["underflow"] + row["saturation"], default=None)
    found = {} if worst is None else {key: worst[key] for key in ("layer", "tensor", "underflow", "saturation")}
    return {"step": step, **found}


def _smooth(curves: list[list[float]]) -> Any:
    sums = np.cumsum(np.pad(np.array(curves), ((0, 0), (1, 0))), axis=1)
    ends = np.arange(1, sums.shape[1])
    begins = np.maximum(ends - MEAN, 0)
    return (sums[:, ends] - sums[:, begins]) / (ends - begins)


def _picture(curves: dict[str, list[list[float]]]) -> str:
    """Return the smoothed losses as SVG: a line per recipe, a band from the least to the largest seed."""
    width, height, parts = 640, 360, []
    means = {name: _smooth(several) for name, several in curves.items()}
    values = np.concatenate([mean.ravel() for mean in means.values()])
    values = values[np.isfinite(values) & (values > 0)]
    low, high = (math.log(values.min()), math.log(values.max())) if values.size else (0.0, 1.0)
    for index, (name, mean) in enumerate(means.items()):
        color = COLORS[index % len(COLORS)]

        def points(line: Any) -> list[str]:
            return [
                f"{20 + width * i / len(line):.1f},{20 + height * (high - math.log(v)) / max(high - low, 1e-9):.1f}"
                for i, v in enumerate(line)
                if math.isfinite(v) and v > 0
            ]

        band = " ".join(points(mean.min(axis=0)) + points(mean.max(axis=0))[::-1])
        parts.append(f'<polygon points="{band}" fill="{color}" opacity="0.12"/>')
        parts.append(f'<polyline points="{" ".join(points(mean.mean(axis=0)))}" fill="none" stroke="{color}"/>')
        parts.append(f'<text x="{width + 30}" y="{32 + 16 * index}" fill="{color}">{html.escape(name)}</text>')
    size = f'width="{width + 200}" height="{height + 50}"'
    axis = f'<text x="20" y="{height + 44}">steps; logarithm of the loss, mean of {MEAN} steps, band over seeds</text>'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
            f"{''.join(parts)}{axis}</svg>")  # fmt: skip
