"""What a study found: plain lists of dicts, and the ways to look at them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.float_env import counts_subnormals
from ..base.values import shown
from ..report import alone as alone_report, study as report, study_page
from ..report.files import Tabular, write_figure, write_text
from ..report.plot import study_figure
from ..report.study_page import Judge
from ..report.table import terminal

__all__ = ["Study"]

LOWER_IS_BETTER = set(
    "loss losses perplexity ppl error errors mse rmse mae nll entropy kl divergence seconds bits bytes "
    "distance angle deviation difference cost penalty misses wer cer fid eer".split()
)


@dataclass(frozen=True, eq=False, repr=False)
class Study(Tabular):
    """The result of `heterocompute.study`; it shows itself as a table, in a terminal and in Jupyter.

    Attributes
    ----------
    table : list of dict
        One row for each format, method, kind of activations and emulation, the baseline first: ``format``, ``method``,
        ``activations`` and ``emulate`` (text or None), ``retrained`` (True or None), ``bits`` (stored bits a value),
        ``bytes``, ``sqnr_db`` (over all tensors, against the weights as they came; None where nothing was lost), the
        numbers that `evaluate` returned, ``seconds`` (one product of every tensor with one row, the weights in memory
        and in no cache, in one thread; None of an emulation). With Hessians ``output_db``, that of the mean relative
        error of layers' outputs.
        With a device: its modelled ``device_us`` and ``device_uj`` of the same products (the time at full design power,
        None where that is not known), or for ``"mac"`` ``mac_pj`` and ``mac_um2`` of one multiply-add.
    layers : list of dict
        One row for each tensor and format, the tensors that lose most first: ``name``, ``shape``, ``format``, ``bits``,
        ``bytes``, ``sqnr_db``, ``seconds``; with Hessians ``output_db``.
    metrics : list of str
        The names of the numbers that `evaluate` returned.
    histograms : list of dict
        For each tensor: ``counts`` in equal bins over [-``range``, ``range``], the share of values ``outside``, and
        ``levels``: for each format the values that row ``row`` takes after quantization.
    alone : list of dict
        With ``per_layer``: for each tensor and format ``name``, ``format``, ``method`` and what `evaluate` returned
        with this tensor alone rounded, those that cost most first.
    notes : list of str
        Sentences on tensors that some of the formats do not suit: scales that serve fewer than 8 values, and groups
        that do not divide the rows.
    """

    table: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    metrics: list[str]
    histograms: list[dict[str, Any]]
    alone: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        order = {name: i for i, name in enumerate(report.worst_first(self.layers))}
        object.__setattr__(self, "layers", sorted(self.layers, key=lambda row: order[row["name"]]))
        object.__setattr__(self, "histograms", sorted(self.histograms, key=lambda one: order[one["name"]]))
        if self.alone:
            costly = alone_report.losses(self.alone, self.table[0], self._metric, more_is_better(self._metric))
            object.__setattr__(self, "alone", [row for _, row in costly])

    @counts_subnormals
    def pareto(self, metric: str | None = None, cost: str = "bits", maximize: bool | None = None) -> list[int]:
        """Return the rows that no other row beats: none is as good for less, or better for as much.

        Parameters
        ----------
        metric : str, optional
            The column to judge by. Default: the first number that `evaluate` returned, else ``output_db`` where there
            are Hessians, else ``sqnr_db``.
        cost : str, optional
            The column to pay in; less is better.
        maximize : bool, optional
            Whether more of `metric` is better. Default: it is, unless a word of the name is one such as loss,
            perplexity, error, kl or distance.

        Returns
        -------
        list of int
            Indices into `table`, by rising cost.

        Raises
        ------
        ValueError
            No such column of numbers.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> w = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
        >>> r = hc.study(w, formats=["int8", "int4", "int4-g16", "vsq4-g16-s4"])
        >>> [r.table[i]["format"] for i in r.pareto()]
        ['int4', 'vsq4-g16-s4', 'int4-g16', 'int8', 'fp32']
        """
        metric = self._metric if metric is None else metric
        self._check_columns("pareto", metric, cost)
        sign = 1.0 if (more_is_better(metric) if maximize is None else maximize) else -1.0
        points = []
        for i, row in enumerate(self.table):
            value = float("inf") if metric in report.DECIBELS and row[metric] is None else row[metric]
            if value is not None and row[cost] is not None:
                points.append((row[cost], -sign * value, i))
        front, best, best_cost = [], float("inf"), None
        for paid, lost, i in sorted(points):
            if lost < best or (lost == best and paid == best_cost):
                front.append(i)
                best, best_cost = lost, paid
        return front

    def _check_columns(self, source: str, *names: str) -> None:
        columns = [name for name in self.table[0] if name not in report.TEXTS]
        for name in names:
            if name not in columns:
                raise ValueError(f"{source}: no column of numbers {shown(name)}; there are {', '.join(columns)}")

    @property
    def _metric(self) -> str:
        if self.metrics:
            return self.metrics[0]
        return "output_db" if self.table and "output_db" in self.table[0] else "sqnr_db"

    @property
    def _shown(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[int], str, bool]:
        return self.table, self.layers, self.pareto(), self._metric, more_is_better(self._metric)

    @property
    def _judges(self) -> list[Judge]:
        """What can be drawn against bits: the numbers of `evaluate`, but for the spread of seeds, and SQNR."""
        spread = ("_lowest", "_highest")
        numbers = [*self.metrics, *(key for key in reversed(report.DECIBELS) if self.table and key in self.table[0])]
        return [self._judge(name) for name in numbers if not name.endswith(spread)]

    def _judge(self, metric: str) -> Judge:
        return Judge(metric, more_is_better(metric), self.pareto(metric))

    @counts_subnormals
    def to_dict(self) -> dict[str, Any]:
        """Return ``{"rows": table, "layers": layers, "pareto": indices, "notes": notes}``, ready for JSON.

        There is no NaN and no infinity. With ``per_layer`` also ``"alone"``.

        Returns
        -------
        dict
        """
        return {
            "rows": [dict(row) for row in self.table],
            "layers": [dict(row) for row in self.layers],
            "pareto": self.pareto(),
            "notes": list(self.notes),
            **({"alone": [dict(row) for row in self.alone]} if self.alone else {}),
        }

    @counts_subnormals
    def to_html(self, path: str | os.PathLike[str], title: str = "Study of number formats") -> None:
        """Write one page that needs nothing else: table, scatter, layers, histograms.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        first, *others = self._judges
        page = study_page.page(
            title, self.table, self.layers, first.front, first.metric, first.higher, self.histograms, others,
            "" if not self.alone else alone_report.section(*self._harm), self.notes,
        )  # fmt: skip
        write_text(path, page)

    @counts_subnormals
    def plot(self, path: str | os.PathLike[str] | None = None, metric: str | None = None) -> Any:
        """Draw a metric against bits, and the error of each layer.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure there, in the format of the suffix.
        metric : str, optional
            The column to draw. Default: that of `pareto`, of the table's dots and of the advice: the first number that
            `evaluate` returned, else ``output_db`` where there are Hessians, else ``sqnr_db``.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra ``plot`` brings it.
        ValueError
            No such column of numbers.
        """
        if metric is not None:
            self._check_columns("plot", metric)
        figure = study_figure(self.table, self.layers, self._judge(self._metric if metric is None else metric))
        if path is not None:
            write_figure(path, figure)
        return figure

    @property
    def _harm(self) -> tuple[list[dict[str, Any]], dict[str, Any], str, bool]:
        return self.alone, self.table[0], self._metric, more_is_better(self._metric)

    @counts_subnormals
    def plot_layers(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw what each layer costs if it alone is rounded, the most harmful first.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure there, in the format of the suffix.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra ``plot`` brings it.
        ValueError
            The study has no rows of single layers: it was made without ``per_layer=True``.
        """
        if not self.alone:
            raise ValueError("plot_layers: the study has no rows of single layers: pass per_layer=True to hc.study")
        figure = alone_report.figure(*self._harm)
        if path is not None:
            write_figure(path, figure)
        return figure

    @counts_subnormals
    def show(
        self, console: Any = None, more: Sequence[str] = ("table",), more_layers: Sequence[str] = ("layers",)
    ) -> None:
        """Print the table, the worst layers, the Pareto front and the smallest format that costs next to nothing.

        Parameters
        ----------
        console : rich.console.Console, optional
            Default: standard output.
        more, more_layers : sequence of str, optional
            What shows the columns that a narrow terminal leaves out, of the formats and of the tensors.
        """
        console = terminal() if console is None else console
        report.show(*self._shown, console, more, more_layers, self.notes)
        if self.alone:
            alone_report.show(*self._harm, console)

    @counts_subnormals
    def __repr__(self) -> str:
        return report.captured(self.show)

    @counts_subnormals
    def _repr_html_(self) -> str:
        return report.table_html(
            self.table, self.pareto(), self._metric, more_is_better(self._metric), notes=self.notes
        )


def more_is_better(metric: str) -> bool:
    """Tell from its name whether a number is better when it is larger.

    Parameters
    ----------
    metric : str

    Returns
    -------
    bool

    Examples
    --------
    >>> more_is_better("accuracy"), more_is_better("valid_perplexity")
    (True, False)
    """
    words = metric.lower().replace("-", "_").replace(" ", "_").split("_")
    return not any(word in LOWER_IS_BETTER for word in words)
