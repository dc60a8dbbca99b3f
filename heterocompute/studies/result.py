"""The result of a study: plain lists of dicts, and the views of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.errors import WrongValue, shown
from ..base.float_env import counts_subnormals
from ..report import sensitivity, study as report, study_page
from ..report.files import write_figure, write_text
from ..report.plot import study_figure
from ..report.results.checking import check_columns, check_rows, check_texts
from ..report.results.tabular import Tabular
from ..report.study import Judge
from ..report.study_page import View, views_of
from ..report.table import captured, print_words, terminal
from .accumulators import savings
from .joining import StudyDifference, joined, key_of

__all__ = ["Study"]

TEXTS = tuple(name for name in report.TEXTS if name != "retrained")  # True or None
LOWER_IS_BETTER = set(
    "loss losses perplexity ppl error errors mse rmse mae nll entropy kl divergence seconds bits bytes "
    "distance angle deviation difference cost penalty misses wer cer fid eer".split()
)


@dataclass(frozen=True, eq=False, repr=False)
class Study(Tabular):
    """Hold the result of `heterocompute.study`; displays as a table in a terminal and in Jupyter.

    ``a + b`` joins studies of the same weights. ``a - b`` has the differences of the rows that both have. `save` writes
    a file that `load` reads.

    Attributes
    ----------
    table : list of dict
        One row per format, method, activation format and emulation, with the baseline first. Columns:

        - ``format``, ``method``, ``activations`` and ``emulate`` (text or None), ``retrained`` (True or None).
        - ``bits`` (stored bits per value), ``bytes``.
        - ``sqnr_db``: over all tensors, against the original weights; None if lossless.
        - The numbers that `evaluate` returned.
        - ``seconds``: one batch-1 matmul with every tensor, in one thread, with the weights in memory and not in a
          cache. None for an emulation.
        - ``output_db``, with Hessians: the mean relative error of layers' outputs, in dB.
        - ``device_us`` and ``device_uj``, with a device: modelled time and energy of the same matmuls. The time is at
          full design power; None if that is unknown.
        - With emulations ``accumulator_bits`` (None for exact sums), and of an emulated integer accumulator
          ``guaranteed_bits``, which no input overflows, and ``needed_bits``, which the first inputs of each layer need
          (see `heterocompute.ptq.accumulator_bits`).
        - ``machine_us`` and ``machine_uj``, with a machine: modelled time and energy of an inference of the network.
          None for formats that the machine's multipliers cannot have, and for several formats in one row.
        - ``mac_pj`` and ``mac_um2``, with ``"mac"``: energy and area of one multiply-add.
        - Of a language model: ``kv_cache`` (text or None), ``kv_bits``; with a device
          ``tokens_per_s`` (modelled decoding of one sequence after 4096 tokens, or the context) and ``kv_bytes`` of
          these tokens.
    layers : list of dict
        One row per tensor and format, largest loss first: ``name``, ``shape``, ``format``, ``bits``, ``bytes``,
        ``sqnr_db``, ``seconds``; with Hessians ``output_db``.
    metrics : list of str
        Names of the numbers that `evaluate` returned.
    histograms : list of dict
        Per tensor: ``counts`` in equal bins over [-``range``, ``range``], the share of values ``outside``, and
        ``levels``: per format, the values of row ``row`` after quantization.
    alone : list of dict
        With ``per_layer``, per tensor and format: ``name``, ``format``, ``method`` and the numbers that `evaluate`
        returned with only this tensor rounded, largest loss first.
    notes : list of str
        Warnings on tensors that do not suit some formats: scales shared by fewer than 8 values, and groups that do not
        divide the rows.
    """

    table: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    metrics: list[str]
    histograms: list[dict[str, Any]]
    alone: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    kind = "study"
    names = report.TEXTS
    _difference = StudyDifference
    columns_of_files = {"format": str, "bits": float, "bytes": int}

    def __post_init__(self) -> None:
        order = {name: i for i, name in enumerate(report.worst_first(self.layers))}
        object.__setattr__(self, "layers", sorted(self.layers, key=lambda row: order[row["name"]]))
        object.__setattr__(self, "histograms", sorted(self.histograms, key=lambda one: order[one["name"]]))
        if self.alone:
            costly = sensitivity.losses(self.alone, self.table[0], self._metric, more_is_better(self._metric))
            object.__setattr__(self, "alone", [row for _, row in costly])

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return key_of(row)

    def _name(self, row: dict[str, Any]) -> str:
        return report.row_name(row)

    def _joined(self, other: Study) -> Study:
        return joined(self, other)

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        check_rows("table", fields["table"], TEXTS)
        if not fields["table"] or not all(set(fields["metrics"]) <= row.keys() for row in fields["table"]):
            raise WrongValue("table lacks a metric")
        check_rows("layers", fields["layers"], ("name", "format", "method"), ("shape",))
        check_rows("alone", fields["alone"], ("name", "format", "method"))
        check_columns(fields["layers"], {"name": str, "shape": list[int], "format": str}, "layers")
        check_columns(fields["alone"], {"name": str, "format": str}, "alone")
        check_texts("metrics", fields["metrics"])
        check_texts("notes", fields["notes"])
        for one in fields["histograms"]:
            check_rows("histograms", [{**one, "levels": None}], ("name",), ("counts",))
            check_rows("levels", [one["levels"]], (), tuple(one["levels"]))

    @counts_subnormals
    def pareto(
        self, metric: str | None = None, cost: str = "bits", maximize: bool | None = None
    ) -> list[dict[str, Any]]:
        """Return the Pareto front: rows for which no other row is as good at less cost, or better at the same cost.

        Parameters
        ----------
        metric : str, optional
            Column to maximize or minimize. Default: the first number that `evaluate` returned, else ``output_db`` with
            Hessians, else ``sqnr_db``.
        cost : str, optional
            Cost column; less is better. ``"bits"`` compares weights: rows of a language model with a packed KV cache or
            an emulated accumulator are left out.
        maximize : bool, optional
            Whether larger values of `metric` are better. Default: True, unless the name contains a word such as loss,
            perplexity, error, kl or distance.

        Returns
        -------
        list of dict
            Rows of `table`, by increasing cost.

        Raises
        ------
        ValueError
            The column does not exist or holds no numbers.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> w = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
        >>> r = hc.study(w, formats=["int8", "int4", "int4-g16", "vsq4-g16-s4"])
        >>> [row["format"] for row in r.pareto()]
        ['int4', 'vsq4-g16-s4', 'int4-g16', 'int8', 'fp32']
        """
        return [self.table[i] for i in self._front(metric, cost, maximize)]

    def _front(self, metric: str | None = None, cost: str = "bits", maximize: bool | None = None) -> list[int]:
        """Return the indices of the rows of `pareto`."""
        metric = self._metric if metric is None else metric
        self._check_columns("pareto", metric, cost)
        sign = 1.0 if (more_is_better(metric) if maximize is None else maximize) else -1.0
        points = []
        for i, row in enumerate(self.table):
            if cost == "bits" and report.elsewhere(row):
                continue
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
                raise WrongValue(f"{source}: no column of numbers {shown(name)}; there are {', '.join(columns)}")

    @property
    def _metric(self) -> str:
        if self.metrics:
            return self.metrics[0]
        return "output_db" if self.table and "output_db" in self.table[0] else "sqnr_db"

    @property
    def _judges(self) -> list[Judge]:
        """Return the columns to draw against bits: the numbers of `evaluate`, without the spread of seeds, and SQNR."""
        spread = ("_lowest", "_highest")
        numbers = [*self.metrics, *(key for key in reversed(report.DECIBELS) if self.table and key in self.table[0])]
        return [self._judge(name) for name in numbers if not name.endswith(spread)]

    def _views(self, metric: str | None = None) -> list[View]:
        """Return the other plots: the metric against the bits of the KV cache and of accumulators."""
        name = self._metric if metric is None else metric

        def judge(rows: list[dict[str, Any]]) -> Judge:
            return Judge(name, more_is_better(name), replace(self, table=rows, layers=[], histograms=[])._front(name))

        return views_of(self.table, judge)

    def _judge(self, metric: str) -> Judge:
        return Judge(metric, more_is_better(metric), self._front(metric))

    @counts_subnormals
    def to_dict(self) -> dict[str, Any]:
        """Return ``{"rows": table, "layers": layers, "pareto": indices, "notes": notes}``, ready for JSON.

        ``"advice"`` is a list of the sentences that `show` ends with. With ``per_layer`` the result also has
        ``"alone"``. It contains no NaN and no infinity.

        Returns
        -------
        dict
        """
        return {
            "rows": [dict(row) for row in self.table],
            "layers": [dict(row) for row in self.layers],
            "pareto": self._front(),
            "notes": list(self.notes),
            "advice": [f"{what}: {why}".replace("\u00a0", " ") for what, why in self._advice],
            **({"alone": [dict(row) for row in self.alone]} if self.alone else {}),
        }

    @counts_subnormals
    def to_html(self, path: str | os.PathLike[str], title: str = "Study of number formats") -> None:
        """Write one self-contained page with the table, scatter plot, layers and histograms.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        more = "" if not self.alone else sensitivity.section(*self._harm)
        page = study_page.page(
            title, self.table, self.layers, self._judges, self.histograms, more, self.notes, self._views(),
            self._stored(),
        )  # fmt: skip
        write_text(path, page)

    @counts_subnormals
    def plot(self, path: str | os.PathLike[str] | None = None, metric: str | None = None) -> Any:
        """Plot a metric against bits, and the error of each layer.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure to this path, in the format of the suffix.
        metric : str, optional
            Column to plot. Default: as in `pareto`, in the dots of the table and in the advice: the first number that
            `evaluate` returned, else ``output_db`` with Hessians, else ``sqnr_db``.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed; install the extra ``plot``.
        ValueError
            The column does not exist or holds no numbers.
        """
        if metric is not None:
            self._check_columns("plot", metric)
        chosen = self._metric if metric is None else metric
        figure = study_figure(self.table, self.layers, self._judge(chosen), self._views(chosen))
        if path is not None:
            write_figure(path, figure)
        return figure

    @property
    def _advice(self) -> list[tuple[str, str]]:
        """Return the recommendation and its reason: a format, and a KV cache and accumulator if there are several."""
        first = report.advice(self.table, self._metric, more_is_better(self._metric)) if self.table else None
        return [best for best in (first, *(view.advice for view in self._views())) if best is not None]

    @property
    def _harm(self) -> tuple[list[dict[str, Any]], dict[str, Any], str, bool]:
        return self.alone, self.table[0], self._metric, more_is_better(self._metric)

    @counts_subnormals
    def plot_layers(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot the loss from rounding each layer alone, largest first.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure to this path, in the format of the suffix.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed; install the extra ``plot``.
        ValueError
            The study has no rows of single layers. Run it with ``per_layer=True``.
        """
        if not self.alone:
            raise WrongValue("plot_layers: the study has no rows of single layers: pass per_layer=True to hc.study")
        figure = sensitivity.figure(*self._harm)
        if path is not None:
            write_figure(path, figure)
        return figure

    @counts_subnormals
    def show(
        self, console: object = None, more: Sequence[str] = ("table",), more_layers: Sequence[str] = ("layers",)
    ) -> None:
        """Print the table, the worst layers, the Pareto front and the smallest format with nearly no loss.

        Parameters
        ----------
        console : rich.console.Console, optional
            Default: standard output.
        more, more_layers : sequence of str, optional
            How to show the columns of formats and of tensors that do not fit a narrow terminal.
        """
        console = terminal() if console is None else console
        report.show(self.table, self.layers, self._judge(self._metric), console, more, more_layers, self.notes)
        for what, why in (view.advice for view in self._views()):
            print_words(f"→ {what}: {why}".replace("\u00a0", " "), console)
        for words in savings(self.table, self._metric):
            print_words(words, console)
        if self.alone:
            sensitivity.show(*self._harm, console)

    @counts_subnormals
    def __repr__(self) -> str:
        return captured(self.show)

    @counts_subnormals
    def _repr_html_(self) -> str:
        more = "" if not self.alone else sensitivity.section(*self._harm)
        return report.table_html(self.table, self._judge(self._metric), notes=self.notes) + more


def more_is_better(metric: str) -> bool:
    """Tell from its name whether a number is better when it is larger.

    Examples
    --------
    >>> more_is_better("accuracy"), more_is_better("valid_perplexity")
    (True, False)
    """
    words = metric.lower().replace("-", "_").replace(" ", "_").split("_")
    return not any(word in LOWER_IS_BETTER for word in words)
