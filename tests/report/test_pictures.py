"""Pictures drawn by matplotlib and in a browser: names do not overlap, are at their dots, and are large enough."""

from __future__ import annotations

import html
import itertools
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from common import bad_argument

from heterocompute import hardware as hw
from heterocompute.report import published, rounding, study_page
from heterocompute.report.chart import Chart
from heterocompute.report.plot import figure_of, study_figure
from heterocompute.report.roofline import roofline_page
from heterocompute.report.scale import for_metric, logarithmic
from heterocompute.report.study import Judge
from heterocompute.report.timeline import timeline
from heterocompute.studies.result import Study

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

FORMATS = [
    "fp32", "int8", "int6", "int4", "int4-g32-f16", "int2", "vsq6-g16-s6", "vsq4-g16-s4", "vsq3-g16-s4", "vsq2-g16-s4",
    "cb4", "cb3", "nf4-g64", "log8-8", "log5-2", "mxfp4", "mxfp8_e4m3", "nvfp4", "fp8_e4m3fn", "int8+2:4", "2:4",
]  # fmt: skip


def row(fmt: str, kind: str | None, i: int, **more: Any) -> dict[str, Any]:
    """Return a row of a study with crowded points: bits from 2 to 8, similar accuracy, kl over seven decades."""
    bits = 32.0 if fmt == "fp32" else 2.1 + 0.31 * (i % 13) + 3 * (i % 2)
    sqnr = None if fmt == "fp32" else 5.9 * bits - 7
    accuracy = 0.3 if "2" in fmt[:4] else 0.99 + 0.0017 * (i % 4)
    kl = 0.0 if sqnr is None else 10 ** (-sqnr / 9)
    return {
        "format": fmt, "activations": kind, "emulate": None, "retrained": None, "bits": bits,
        "bytes": int(bits * 1000), "sqnr_db": sqnr, "accuracy": accuracy, "kl": kl, "seconds": 1e-5, **more,
    }  # fmt: skip


ROWS = [row(fmt, kind, i) for i, fmt in enumerate(FORMATS) for kind in (None, "int8")]
ROWS += [row("int4", None, 3, retrained=True, accuracy=0.997), row("int4", "int8", 3, emulate="int16-sat")]
FRONT = [5, 12, 20, 8, 30]
ACCURACY = Judge("accuracy", True, FRONT)
KL = Judge("kl", False, FRONT)
ROOF = hw.roofline("resnet50", "t4", "fp16").to_dict()

# Positions of elements, in pixels of the screen.
MEASURE = """
<script>
const seen = [...document.querySelectorAll("main svg")].filter((svg) => svg.querySelector(".label")).map((svg) => {
  const hidden = svg.closest("[hidden]");
  if (hidden) hidden.hidden = false;
  const boxes = (selector) => [...svg.querySelectorAll(selector)].map((node) => {
    const box = node.getBoundingClientRect();
    return [box.left, box.top, box.right, box.bottom, node.textContent, node.dataset.i];
  });
  const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
  const found = { labels: boxes(".label"), dots: boxes(".dot"), texts: boxes("text"), frame: [frame.left, frame.right],
                  size: 12 / scale };
  if (hidden) hidden.hidden = true;
  return found;
}).filter((found) => found.frame[1] > found.frame[0]);
const wide = document.documentElement.scrollWidth - innerWidth;
const told = JSON.stringify({ seen, wide, width: innerWidth });
document.body.append(Object.assign(document.createElement("pre"), { id: "seen", textContent: told }));
</script>
"""


def overlap(a: Any, b: Any, slack: float = 0.0) -> bool:
    return bool(a[0] + slack < b[2] and a[2] - slack > b[0] and a[1] + slack < b[3] and a[3] - slack > b[1])


def in_browser(page: str, folder: Path, width: int) -> dict[str, Any]:
    """Return what the page shows in a frame of a given width; browser windows have a minimum width."""
    (folder / "page.html").write_text(page.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    outer = f'<iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe>'
    tell = '<script>onload=()=>{const f=document.querySelector("iframe").contentDocument.getElementById("seen");'
    tell += 'document.body.append(Object.assign(document.createElement("pre"),{id:"told",textContent:f.textContent}))}'
    (folder / "outer.html").write_text(f"<!doctype html><body>{outer}{tell}</script></body>", encoding="utf-8")
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=1600,1000", "--virtual-time-budget=5000"]
    done = subprocess.run(
        [*command, "--dump-dom", (folder / "outer.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},  # a sanitizer is not for it
    )  # fmt: skip
    found = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    shown: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert shown["width"] == width
    return shown


def study() -> str:
    return study_page.page("T", ROWS, [], [ACCURACY, KL], [])


def roof() -> str:
    return roofline_page(ROOF)


@needs_browser
@pytest.mark.parametrize(("make", "count"), [(study, 2), (roof, 1)], ids=["study", "roofline"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.sweep(every=4)
def test_names_on_a_page_cover_nothing(make: Any, count: int, width: int, tmp_path: Path) -> None:
    shown = in_browser(make(), tmp_path, width)
    assert len(shown["seen"]) == count and shown["wide"] <= 0  # tables scroll, the page does not
    for found in shown["seen"]:
        assert found["size"] >= (11 if width == 1400 else 9)
        assert len(found["labels"]) >= (10 if width == 1400 else 4)
        for a, b in itertools.combinations(found["labels"], 2):
            assert not overlap(a, b, 1.5), (a, b)  # boxes of lines are higher than their letters
        for label, dot in itertools.product(found["labels"], found["dots"]):
            assert not overlap(label, dot, 1.5), (label, dot)
        others = [text for text in found["texts"] if text not in found["labels"]]
        for a, b in itertools.combinations(others, 2):
            assert not overlap(a, b, 1.5), (a, b)
        for text in found["texts"]:
            assert found["frame"][0] - 1 <= text[0] and text[2] <= found["frame"][1] + 1, text


@pytest.mark.parametrize("judge", [ACCURACY, KL], ids=["accuracy", "kl"])
def test_names_of_a_figure_cover_nothing(judge: Judge) -> None:
    pytest.importorskip("matplotlib")
    figure = study_figure(ROWS, [], judge)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [text for text in axes.texts if text.get_text()]
    boxes = {text: text.get_window_extent() for text in names}
    dots = [line for line in axes.lines if line.get_gid() == "dot"]
    places = [
        (*axes.transData.transform(point), line.get_markersize() / 2 * figure.dpi / 72)
        for line in dots
        for point in line.get_xydata()
    ]
    assert len(places) == len(ROWS) and len(names) >= 10
    for a, b in itertools.combinations(names, 2):
        assert not overlap(boxes[a].extents, boxes[b].extents, 1.5), (a, b)
    for text in names:
        box = boxes[text].extents
        gaps = [math.hypot(max(box[0] - x, x - box[2], 0), max(box[1] - y, y - box[3], 0)) - r for x, y, r in places]
        assert min(gaps) > 0, text
        kind = text.get_text().split(" / ")[0]
        named = [i for i, one in enumerate(ROWS) if one["format"] == kind]
        assert named
    legend = figure.legends[0].get_window_extent()
    assert not overlap(legend.extents, axes.get_window_extent().extents)


def test_picture_front_table_and_advice_have_one_metric() -> None:
    text = study()
    assert text.index('data-metric="accuracy"') < text.index('data-metric="kl" hidden') and "accuracy against" in text
    data = json.loads(re.search(r"const data = (.*);\n", text)[1])  # type: ignore[index]
    assert data["metrics"] == ["accuracy", "kl"] and data["metric"] == "accuracy"


def test_a_study_draws_any_metric() -> None:
    pytest.importorskip("matplotlib")
    found = Study(ROWS, [], ["accuracy", "kl"], [])
    assert found.plot().axes[0].get_ylabel() == "accuracy (axis stretched near the best)"
    assert found.plot(metric="kl").axes[0].get_ylabel() == "kl"
    with bad_argument(ValueError, None, "value", "no column of numbers 'f1'"):
        found.plot(metric="f1")


@pytest.mark.parametrize("high", [1.15, 1.4, 3.0, 9.0, 200.0, 1e9])
@pytest.mark.parametrize("low", [0.95, 3e-12, 4.2e6])
def test_a_logarithmic_axis_has_three_different_values_written(low: float, high: float) -> None:
    scale = logarithmic([low, low * high])
    texts = [text for _, text in scale.ticks]
    assert len(texts) >= 3 and len(set(texts)) == len(texts) <= 8
    assert all(0 <= scale.place(value) <= 1 for value, _ in scale.ticks)


@pytest.mark.parametrize(
    ("values", "higher"),
    [([0.0, 1e-6, 1e-3, 2.0], False), ([5.5, 5.6, 5.61, 5.9, 80.0], False), ([0.99, 0.98, 0.991, 0.99, 0.2], True),
     ([1.0], True), ([9.14], False), ([0.0], False), ([3.0, 9.0, 27.0], True), ([0.5, 0.5, 0.5, 0.5, 0.5], True),
     ([-1.0, -2.0, -300.0, -1.1, -1.2], True), ([1e-300, 1e300], False)],
)  # fmt: skip
def test_an_axis_keeps_the_order_and_holds_all(values: list[float], higher: bool) -> None:
    scale = for_metric(values, higher)
    places = [scale.place(value) for value in sorted(values)]
    assert places == sorted(places) and 0 < places[0] and places[-1] < 1
    assert len(set(places)) == len(set(values)) and scale.ticks
    texts = [text for _, text in scale.ticks]
    assert len(set(texts)) == len(texts) <= 20
    for value, text in scale.ticks:
        assert float(text) == pytest.approx(value, rel=1e-3, abs=1e-12)
    for value in values:
        if value > 0:
            assert scale.value(scale.place(value)) == pytest.approx(value, rel=1e-6)


def test_the_roof_bends_at_the_ridge_and_no_layer_lies_above() -> None:
    text = roof()
    corners = [tuple(map(float, one.split(","))) for one in re.search(r'<polyline points="([^"]*)"', text)[1].split()]  # type: ignore[index]
    (x1, y1), (x2, y2), (x3, y3) = corners
    assert x1 < x2 < x3 and y1 > y2 == y3  # up the slope, then flat; y grows downwards
    broad = text[: text.index('class="narrow"')]
    dots = [tuple(map(float, one)) for one in re.findall(r'class="dot" d="M([\d.]+) ([\d.]+)', broad)]
    assert len(dots) > 10 and text.count("<tr>") == len(ROOF["layers"]) + 1
    for x, y in dots:
        slope = y1 + (x - x1) / (x2 - x1) * (y2 - y1)
        assert y >= max(slope, y2) - 6


@pytest.mark.sweep(every=0)
def test_thousands_of_rows_stay_small() -> None:
    rows = [{**row(FORMATS[i % 21], None, i), "bits": 2 + i / 1000, "kl": 1.0 / (i + 1)} for i in range(5000)]
    text = study_page.page("T", rows, [], [ACCURACY._replace(front=[0]), KL._replace(front=[0])], [])
    assert len(text) < 1200 * len(rows)


def test_names_of_layers_cannot_leave_their_place() -> None:
    hostile = "</script><img src=x onerror=alert(1)>{{data}}"
    work = [{"name": hostile, "operations": 2e9, "bytes": 1e7}, {"name": "b", "operations": 1e9, "bytes": 1e9}]
    text = roofline_page({**hw.roofline(work, "t4").to_dict(), "network": hostile, "note": hostile})
    assert text.count("<script>") == text.count("</script>") == 1 and "<img" not in text
    assert not re.findall(r"https?:|@import|url\(", text)
    assert json.loads(re.search(r"const data = (.*);\n", text)[1])[0].startswith("</script><img")  # type: ignore[index]


@pytest.mark.parametrize("rows", [ROWS[:1], ROWS[4:5], [{**ROWS[4], "bits": 9.14}], [{**ROWS[4], "accuracy": None}]])
def test_a_picture_of_one_row_still_stands(rows: list[dict[str, Any]]) -> None:
    judge = Judge("accuracy", True, [0])
    assert study_page.page("T", rows, [], [judge, KL._replace(front=[0])], []).endswith("</html>\n")
    pytest.importorskip("matplotlib")
    study_figure(rows, [], judge).draw_without_rendering()


def charts_of_rows() -> dict[str, Chart]:
    """Return the pictures that have a named row for each topic, tensor or lane."""
    figure = {"row": "", "printed": "2", "modelled": 3.0, "low": 1.5, "high": 2.5}
    record = {"topic": "chips", "status": "off", "claim": "a < b", "kind": "ratio",
              "figures": [figure, {**figure, "modelled": None}]}  # fmt: skip
    bar = {"lane": "worker 0", "begin": 0.0, "end": 0.5, "kind": "read", "name": "of batch 0"}
    layers = [{"name": "a", "before": 20.0, "after": math.inf}, {"name": "b" * 80, "before": 1.0, "after": 26.5}]
    return {
        "timeline": timeline([{**bar, "lane": "device", "faint": True}, bar], "A pipeline"),
        "published": published.picture([record, {**record, "topic": "links", "status": "reproduced"}]),
        "rounding": rounding.picture(layers, "before", "after"),
    }


@pytest.mark.parametrize("name", ["timeline", "published", "rounding"])
def test_pictures_of_named_rows_are_drawn_by_both_writers(name: str) -> None:
    pytest.importorskip("matplotlib")
    chart = charts_of_rows()[name]
    drawn, axes = chart.svg(), figure_of(chart).axes[0]
    assert drawn.count('class="dot"') == len(chart.dots) and drawn.count("<polyline") == len(chart.curves)
    assert sum(len(line.get_xdata()) for line in axes.lines if line.get_gid() == "dot") == len(chart.dots)
    assert len([line for line in axes.lines if line.get_gid() is None and len(line.get_xdata())]) == len(chart.curves)
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == [words for _, words in chart.y.ticks]
    assert all(f">{words}</text>" in drawn for words in rows)
    assert chart.y.place(0) > chart.y.place(1)  # the first row is above
    positions = [chart.x.place(x) for curve in chart.curves for x, _ in curve.points]
    assert all(0 <= place <= 1 for place in [*positions, *(chart.x.place(dot.x) for dot in chart.dots)])


def test_hints_of_rows_are_escaped_and_numbered_lanes_stand_first() -> None:
    charts = charts_of_rows()
    assert [words for _, words in charts["timeline"].y.ticks] == ["worker 0", "device"]
    assert "<title>read of batch 0: 0 to 500 ms</title>" in charts["timeline"].svg()
    assert "<title>a &lt; b: published 2, here 3</title>" in charts["published"].svg()
    assert charts["published"].dots[0].x == 3.0 / 2.5  # the published range is that of its rounding
    assert ">\u2026" in charts["rounding"].svg()


def test_an_axis_of_bits_has_two_values_at_least() -> None:
    for values in ((4.5, 5.0), (4.25, 4.5), (4.1, 8.0), (2.3, 32.0)):
        ticks = logarithmic(values, study_page.BITS).ticks
        assert len(ticks) >= 2, values
        assert all(float(text) == pytest.approx(value) for value, text in ticks)
    assert [text for _, text in logarithmic((5.0,), study_page.BITS).ticks] == ["5"]
