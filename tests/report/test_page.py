"""All pages share the same head, colours and script, and the format of numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import cli, hardware as hw
from heterocompute.report import numbers, page
from heterocompute.report.drawings import Point, bars, scatter
from heterocompute.report.roofline import roofline_page


def pages(folder: Path) -> dict[str, str]:
    w = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    found = {"study": folder / "study.html", "density": folder / "density.html", "roofline": folder / "roofline.html"}
    hc.study(w, ["int4"]).to_html(found["study"])
    hc.study_density({"fc": w}, ["50%"], lambda weights: 1.0).to_html(found["density"])
    hw.roofline("alexnet", "t4").to_html(found["roofline"])
    for name, *words in (("devices", "devices"), ("count", "count", "alexnet")):
        found[name] = folder / f"{name}.html"
        assert cli.main([*words, "--html", str(found[name])]) == 0
    texts = {name: path.read_text(encoding="utf-8") for name, path in found.items()}
    texts["map"] = hw.mapper.mapping_page(
        hw.mapper.Problem.gemm(4, 4, 4), hw.mapper.Arch([hw.mapper.Level("DRAM"), hw.mapper.Level("B", words=16)])
    )
    return texts


def test_all_pages_share_one_head_and_script(tmp_path: Path) -> None:
    empty = page.page("T", "")
    style = re.search(r"<style>(.*)</style>", empty, re.DOTALL)[1].rstrip()  # type: ignore[index]
    script = empty[empty.index("const $ ") : empty.index("</script>")].rstrip()
    for name, text in pages(tmp_path).items():
        assert style in text and script in text, name
        assert text.count("<style>") == text.count("<script>") == text.count("<h1>") == 1, name
        stored = text.count('<script type="application/json" id="stored">')
        assert (
            text.count("</script>") == 1 + stored and text.startswith("<!doctype html>") and text.endswith("</html>\n")
        ), name
        assert not re.search(r"{{\w+}}", text), name
        inside = re.sub(r"<pre.*?</pre>", "", text)
        assert inside.count("<table") <= inside.count('<div class="wide">'), name  # each scrolls on its own
    assert "prefers-color-scheme: dark" in style and "max-width: 480px" in style and "overflow-x: auto" in style


def test_cells_are_escaped_and_sort_by_their_values() -> None:
    text = page.table(["<a>", "b"], [[("<img src=x>", '"><script>'), ("1.2 k", 1200)]], caption="<c>")
    assert "<img" not in text and "<script" not in text and "&lt;c&gt;" in text and "&lt;a&gt;" in text
    assert 'data-v="&quot;&gt;&lt;script&gt;"' in text and 'data-v="1200"' in text
    assert "<img" not in page.section("<img>", "<img>", "") + page.tiles([("<img>", "<img>")])


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0, "s", "0 s"), (999.4, "B", "999 B"), (999.6, "B", "1 kB"), (1.18e-3, "s", "1.18 ms"), (9.894e14, "", "989 T"),
     (-2.5e-7, "J", "-250 nJ"), (5e-19, "s", "0.0005 fs"), (2e19, "", "2e+04 P"), (None, "s", "–")],
)  # fmt: skip
def test_quantities_have_three_digits_and_a_prefix(value: float | None, unit: str, text: str) -> None:
    assert numbers.quantity(value, unit) == text


def test_pictures_of_commands_have_names_and_alternative_text():
    points = [Point(1e-3, 2.0, "a int8", "int8"), Point(1e-2, 3.0, "b fp16", "fp16"), Point(0.0, 1.0, "not drawn")]
    found = scatter(points, "seconds", "joules", "Energy <and> time")
    assert "a int8" in found and "not drawn" not in found and "Energy &lt;and&gt; time" in found
    assert scatter([], "x", "y", "t") == bars([], "MAC", "t") == ""
    drawn = bars([("small", 1.0), ("large <&>", 3.0), ("none", 0.0)], "MAC", "MAC by layer")
    assert drawn.index("large &lt;&amp;&gt;") < drawn.index("small") and "75.0%" in drawn and "none" not in drawn
    assert 'role="img"' in drawn and "<title>MAC by layer</title>" in drawn
    assert drawn.count("<svg") == drawn.count("75.0%") == 2 and 'class="narrow"' in drawn  # also for narrow screens


def test_a_ratio_has_no_prefix():
    row = {"name": "fc", "operations": 991.0, "bytes": 1000.0, "intensity": 0.991, "seconds": 1e-9, "bound": "memory",
           "share": 0.01}  # fmt: skip
    found = {"network": "n", "device": "d", "dtype": "fp16", "format": "fp16", "batch": 1, "seconds": 1e-9,
             "bound": "memory", "intensity": 0.991, "ridge": 295.0, "share": 0.01, "peak": 989e12, "bandwidth": 3.35e12,
             "layers": [row], "note": "", "plain_seconds": None}  # fmt: skip
    text = roofline_page(found)
    assert "991 m" not in text and "0.991" in text and "3.35 TB/s" in text and "peak 989 T operations/s" in text
