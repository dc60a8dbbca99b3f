"""The pictures of docs/ and the README are legible on white and on GitHub's dark page, with large enough letters."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

from heterocompute.report.palette import contrast

SHOWN = 846  # CSS pixels that a README has for a picture
LEAST = 9.0  # points
FAINT = "#888888"  # grid lines, drawn at a quarter


def pictures(checkout: Path) -> list[Path]:
    return sorted((checkout / "docs").rglob("*.svg"))


def test_they_are_all_read(checkout: Path) -> None:
    assert len(pictures(checkout)) >= 15


def test_colours_read_on_light_and_dark_pages(checkout: Path) -> None:
    for path in pictures(checkout):
        colours = set(re.findall(r"#[0-9a-f]{6}\b", path.read_text(encoding="utf-8"))) - {FAINT}
        assert colours, path.name
        for colour in colours:
            assert contrast(colour, "#ffffff") >= 3 and contrast(colour, "#0d1117") >= 3, (path.name, colour)


def test_nothing_lies_behind_them(checkout: Path) -> None:
    for path in pictures(checkout):
        picture = ElementTree.parse(path).getroot()
        width = float(picture.get("viewBox", "").split()[2])
        for one in picture.iter():
            assert not (one.tag.endswith("rect") and float(one.get("width", "0").rstrip("%")) >= width), path.name
        assert not re.search(r"fill: ?(#ffffff|white)", path.read_text(encoding="utf-8")), path.name


def test_letters_are_large_enough_where_they_are_shown(checkout: Path) -> None:
    for path in pictures(checkout):
        text = path.read_text(encoding="utf-8")
        picture = ElementTree.fromstring(text)
        units = float(picture.get("viewBox", "").split()[2])
        width = picture.get("width", "")
        pixels = float(width.removesuffix("pt")) * (4 / 3 if width.endswith("pt") else 1)
        scale = min(pixels, SHOWN) / units  # pixels a unit
        sizes = [float(size) for size in re.findall(r'font-size[=:] ?"?([\d.]+)', text)]
        assert sizes and min(sizes) * scale * 0.75 >= LEAST * 0.98, (path.name, min(sizes) * scale * 0.75)


@pytest.mark.parametrize("script", ["ranking.py", "study_density.py", "hardware_rooflines.py", "systems.py"])
@pytest.mark.sweep(every=4)
def test_drawing_again_changes_nothing(script: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pictures that are drawn from stored numbers or from the model are up to date."""
    written = {}
    monkeypatch.setattr("sys.argv", [script, "--draw"])
    monkeypatch.setattr(Path, "write_text", lambda self, text, **_: written.update({self.name: text}))
    monkeypatch.setattr(
        "heterocompute.studies.density_result.write_text", lambda at, text: written.update({at.name: text})
    )
    runpy.run_path(str(checkout / "docs" / "figures" / script), run_name="__main__")
    assert written
    for name, text in written.items():
        assert text == (checkout / "docs" / name).read_text(encoding="utf-8"), name
