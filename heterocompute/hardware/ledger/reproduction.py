"""Published figures with the results of this version of the model: kept, saved, and compared with another version."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...base.errors import WrongValue
from ...base.keeping.digest import digest_of
from ...base.keeping.results import KeptResults
from ...base.progress import Progress, Steps
from ...base.texts import counted
from ...report.files import write_text
from ...report.published import published_page
from ...report.results.tabular import Tabular
from .figure import STATUSES, PublishedFigure

OF_ROW = ("row", "printed", "number", "low", "high", "modelled", "deviation", "limit")


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(Tabular):
    """Hold published figures with the model's results. ``a - b`` compares two versions of the model.

    Attributes
    ----------
    table : list of dict
        One row per printed number: ``name row topic claim unit kind source machine version where process voltage takes
        why status verdict`` and ``printed number low high modelled deviation limit``.
    """

    table: list[dict[str, Any]]

    kind = "reproduction"
    names = ("name", "row")
    columns_of_files = {"name": str, "row": str, "status": str, "verdict": str, "printed": str,
                        "modelled": float | None}  # fmt: skip

    @classmethod
    def of(
        cls,
        figures: Iterable[PublishedFigure],
        progress: Progress | bool | None = None,
        keep: str | os.PathLike[str] | None = None,
    ) -> Reproduction:
        """Compute figures.

        Parameters
        ----------
        progress : callable or bool, optional
            As in `heterocompute.study`.
        keep : path, optional
            File of results: each figure is appended when it is known, and not computed again by this version.
        """
        wanted = list(figures)
        step, kept, table = Steps(len(wanted), progress, "reproduce"), KeptResults(keep, "reproduce"), []
        kept.belongs_to("published figures")
        for one in wanted:
            step(one.name)
            record = kept.get((digest_of(one) if kept else "",), one.to_dict)
            rest = {key: value for key, value in record.items() if key != "figures"}
            table += [{**rest, **dict.fromkeys(OF_ROW), **row} for row in record["figures"]]
        step.finish()
        return cls(table)

    def records(self) -> list[dict[str, Any]]:
        """Return one record per figure, as `PublishedFigure.to_dict` does."""
        found: dict[str, dict[str, Any]] = {}
        for row in self.table:
            rest = {key: value for key, value in row.items() if key not in OF_ROW}
            record = found.setdefault(row["name"], {**rest, "figures": []})
            known = OF_ROW if row["modelled"] is not None else [key for key in OF_ROW if key not in ("low", "high")]
            record["figures"].append({key: row[key] for key in known})
        return list(found.values())

    def to_html(self, path: str | os.PathLike[str], title: str = "Published figures") -> None:
        """Write one self-contained page with a plot and the figures.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        write_text(path, published_page(title, self.records(), STATUSES, stored=self._stored()))

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        if not all(row["status"] in STATUSES for row in fields["table"]):
            raise WrongValue("table has an unknown status")

    def _joined(self, other: Reproduction) -> Reproduction:
        return Reproduction(self._joined_table(other))

    def __repr__(self) -> str:
        return f"<Reproduction of {counted(len(self.records()), 'figure')}>"
