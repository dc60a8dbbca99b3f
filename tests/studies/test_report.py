"""Tables and pages show the rows for any names, and files are written completely or not at all."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from heterocompute.report import files, study as report, study_page
from heterocompute.report.numbers import quantity
from heterocompute.report.table import clean

HOSTILE = "</script><img src=x onerror=alert(1)> \x1b[31m[bold]{{table}} & 'q' \u2028"


def row(fmt: str, bits: float, accuracy: float | None, sqnr: float | None, kind: str | None = None) -> dict[str, Any]:
    return {
        "format": fmt, "activations": kind, "bits": bits, "bytes": int(bits * 1000), "sqnr_db": sqnr,
        "accuracy": accuracy, "seconds": 1e-5 * bits,
    }  # fmt: skip


ROWS = [row("fp32", 32.0, 0.99, None), row("int8", 8.1, 0.98, 40.0), row("int2", 2.1, None, 1.5, "int8")]
JUDGE = report.Judge("accuracy", True, [1, 0])
LAYERS = [
    {"name": name, "shape": [4, 5], "format": fmt, "bits": 4.0, "bytes": 10, "sqnr_db": sqnr, "seconds": 1e-6}
    for name, values in (("good", (None, 40.0, 9.0)), (HOSTILE, (None, 20.0, 3.0)), ("exact", (None, None, None)))
    for fmt, sqnr in zip(("fp32", "int8", "int2"), values, strict=True)
]
HISTOGRAMS = [
    {"name": HOSTILE, "range": 1.0, "counts": [1, 5, 1], "outside": 0.1, "row": 2, "levels": {"int2": [-0.5, 0.0, 0.5]}}
]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.script, self.cells, self._open = "", [], ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.script += data
        if self._open == "td":
            self.cells.append(data)


def page(**changes: Any) -> str:
    arguments = {"title": "T", "rows": ROWS, "layers": LAYERS, "judges": [JUDGE]}
    return study_page.page(**{**arguments, "histograms": HISTOGRAMS, **changes})


def test_the_page_fetches_nothing_and_runs_one_script() -> None:
    text = page()
    found = Page(text)
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert not {"link", "img", "iframe", "object", "embed"} & {tag for tag, _ in found.tags}
    assert not [a for _, attributes in found.tags for a in attributes if a in ("src", "href", "onclick", "onerror")]
    urls = set(re.findall(r"https?://[^\s\"']+", text))
    assert urls == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert "@import" not in text and "url(" not in text


def test_the_page_holds_every_number() -> None:
    found = Page(page())
    data = json.loads(re.search(r"const data = (.*);\n", found.script)[1])
    assert [{k: v for k, v in one.items() if k != "speed"} for one in data["rows"]] == ROWS
    assert data["front"] == JUDGE.front and data["metric"] == "accuracy"
    assert data["layers"]["names"] == [HOSTILE, "good", "exact"]
    assert data["layers"]["sqnr"] == [[20.0, 3.0], [40.0, 9.0], [None, None]]
    assert data["histograms"][0]["levels"] == {"int2": [3, [250, 500, 749]]}
    assert {"fp32", "0.9900", "8.10", "exact"} <= {cell.strip(" ●") for cell in found.cells}


def test_names_cannot_leave_their_place() -> None:
    rows = [ROWS[0], {**ROWS[1], "format": HOSTILE}, ROWS[2]]
    text = page(title=HOSTILE, rows=rows)
    assert "<img" not in text and text.count("</script>") == 1
    data = json.loads(re.search(r"const data = (.*);\n", Page(text).script)[1])
    assert data["rows"][1]["format"] == "mix 1" and f"mix 1: {html.escape(clean(HOSTILE))}" in text
    assert data["histograms"][0]["name"] == HOSTILE
    assert "<img" not in report.table_html(rows, JUDGE)
    terminal = report.text(rows, LAYERS, JUDGE)
    assert "\x1b" not in terminal and "[bold]" in terminal


def test_a_page_of_little_still_stands() -> None:
    for changes in (
        {"layers": [], "histograms": []},
        {"rows": ROWS[:1], "judges": [JUDGE._replace(front=[0])]},
        {"judges": [JUDGE._replace(metric="sqnr_db")]},
    ):
        assert page(**changes).endswith("</html>\n")


def test_text_marks_the_front_and_shows_the_worst_first() -> None:
    lines = report.text(ROWS, LAYERS, JUDGE).splitlines()
    marked = [line.split()[1] for line in lines if line.strip().startswith("●") and "Pareto" not in line]
    assert marked == ["fp32", "int8"]
    int2 = next(line for line in lines if line.split()[:2] == ["int2", "int8"])
    assert "–" in int2 and "1.5" in int2 and "2.10" in int2
    names = [line.split("  ")[0].strip() for line in lines]
    places = [next(i for i, name in enumerate(names) if word in name) for word in ("onerror", "good", "exact")]
    assert places == sorted(places)


def test_worst_first_counts_exact_as_best() -> None:
    assert report.worst_first(LAYERS) == [HOSTILE, "good", "exact"]


def test_csv_keeps_all_columns_and_leaves_none_empty() -> None:
    lines = list(csv.DictReader(io.StringIO(files.csv_text([*ROWS, {**ROWS[0], "more": 'a,"b"\n'}]))))
    assert list(lines[0]) == [*ROWS[0], "more"]
    assert lines[0]["sqnr_db"] == "" and lines[1]["sqnr_db"] == "40.0" and lines[3]["more"] == 'a,"b"\n'


def test_a_file_is_replaced_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    files.write_text(path, "old ● text")
    assert path.read_text(encoding="utf-8") == "old ● text"

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(KeyboardInterrupt):
        files.write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old ● text" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        files.write_text(tmp_path / "absent" / "page.html", "new")


def test_a_link_keeps_leading_there_and_a_device_stays(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("old")
    os.symlink(tmp_path / "page.html", tmp_path / "link.html")
    files.write_text(tmp_path / "link.html", "new")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "page.html").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="exists and is not a regular file"):
        files.write_text(tmp_path / "pipe", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html", "page.html", "pipe"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (99_600, "99.6 kB"), (90_868_376, "90.9 MB")]
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert quantity(count, "B") == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5e-7, "250 ns"), (9.996e-4, "1 ms"), (0.0123, "12.3 ms"), (61.0, "61 s"), (None, "–")]
)
def test_times_read_well(seconds: float | None, text: str) -> None:
    assert quantity(seconds, "s") == text


def test_of_rows_of_one_size_the_advice_takes_the_best() -> None:
    rows = [row("fp32", 32.0, 0.99, None), row("int8", 8.0, 0.985, 40.0)]
    for method, accuracy, kl, output in (
        ("rtn", 0.99, 0.03, 21.2),
        ("gptq", 0.99, 0.01, 28.0),
        ("bad", 0.985, 0.0, 30.0),
    ):
        rows.append({**row("int4", 4.0, accuracy, 20.5), "method": method, "kl": kl, "output_db": output})
    rows = [{"kl": 0.0, "output_db": None, "method": None, **one} for one in rows]
    assert report.advice(rows, "accuracy", True)[0] == "int4 / gptq"  # the metric, then kl
    assert report.advice(rows, "output_db", True)[0] == "int4 / bad"
    rows[2]["kl"] = 0.01
    assert report.advice(rows, "accuracy", True)[0] == "int4 / gptq"  # then the outputs
    losses = [{**one, "loss": 1 - one["accuracy"]} for one in rows]
    assert report.advice([{**one, "loss": one["loss"] + 1} for one in losses], "loss", False)[0] == "int4 / gptq"


def test_a_name_is_coloured_on_the_front_where_next_to_nothing_is_lost() -> None:
    rows = [row("fp32", 32.0, 0.99, None), row("int8", 8.0, 0.985, 40.0), row("int2", 2.0, 0.28, 1.0)]
    found = re.findall(
        r'<tr class="([a-z ]+)"><td class="text"[^>]*>(\w+)', report.table_html(rows, JUDGE._replace(front=[0, 1, 2]))
    )
    assert found == [("front good", "fp32"), ("front good", "int8"), ("front", "int2")]


def test_the_last_line_is_the_advice_of_the_page() -> None:
    rows = [row("fp32", 32.0, 0.99, None), row("int8", 8.0, 0.985, 40.0), row("int4", 4.0, 0.981, 17.0, "int8")]
    rows += [row("int2", 2.0, 0.9, 1.0), row("none", 1.0, None, 0.5)]
    words = "4.00 bits, 8.0 x smaller: the smallest within 1\u00a0% of the baseline's accuracy"
    assert report.advice(rows, "accuracy", True) == ("int4 / int8", words)
    last = report.text(rows, LAYERS, JUDGE).splitlines()[-1]
    assert last == "→ int4 / int8: " + words.replace("\u00a0", " ")
    assert f"<b>int4 / int8</b><span>{words.replace(chr(39), '&#x27;')}</span>" in page(rows=rows)
    # less is better: 1 % above 0.99 is allowed
    losses = [{**one, "accuracy": value} for one, value in zip(rows, (0.99, 0.999, 1.01, 0.5, None), strict=True)]
    assert report.advice(losses, "accuracy", False)[0] == "int2"
    # nothing judges: 20 dB
    assert report.advice(rows, "sqnr_db", True) == ("int8", "8.00 bits: the smallest with an SQNR of 20 dB or more")
    for few in (rows[:1], [rows[0], rows[3]]):  # no format is good enough
        assert report.advice(few, "accuracy", True) is None and report.advice(few, "sqnr_db", True) is None
        assert report.text(few, [], JUDGE._replace(front=[0])).splitlines()[-1].startswith("● Pareto front")
    assert "1\u00a0%" not in page(rows=rows[:1])
