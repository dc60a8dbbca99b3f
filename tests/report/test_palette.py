"""Every family has a colour that is legible on light and dark pages and its own shape, in every picture."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import heterocompute as hc
from heterocompute.formats.base import Format
from heterocompute.report import page, palette


@pytest.mark.parametrize("background", [*palette.LIGHT, *palette.DARK])
@pytest.mark.parametrize("name", palette.FAMILIES)
def test_colours_have_contrast_on_light_and_dark(name: str, background: str) -> None:
    assert palette.contrast(palette.FAMILIES[name].color, background) >= 3


def test_words_in_pictures_read_on_both_pages() -> None:
    for background in ("#ffffff", "#0d1117"):
        assert palette.contrast(palette.GREY, background) >= 4.2


def test_contrast_is_that_of_the_standard() -> None:
    assert palette.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # WCAG 2.1, the well-known grey
    assert palette.contrast("#ffffff", "#0000ff") == pytest.approx(8.59, abs=0.005)


def test_colour_is_not_the_only_cue() -> None:
    marks = list(palette.FAMILIES.values())
    assert len({mark.color for mark in marks}) == len({mark.corners for mark in marks}) == len(marks)
    assert len({mark.words for mark in marks}) == len(marks)


def test_every_format_has_the_mark_of_its_family() -> None:
    texts = [str(text) for cls in Format.families() for text in cls.examples]
    assert len(texts) > 20
    for text in texts:  # families without their own mark share one
        own = hc.format(text).family
        wanted = own if own in palette.FAMILIES else "other"
        if own == "own" and text.startswith(("int", "log")):  # sentences have the mark of their numbers
            wanted = text[:3]
        assert palette.family(text) == ("plain" if text == "fp32" else wanted)
        assert palette.family(f"{text}+2:4") == "sparse"
    assert palette.family("2:4") == "sparse" and palette.family("*.bias=int8 *=int4") == "mixed"
    assert palette.family("my-name") == palette.family("ternary-g128-absmean") == "own"


def test_pages_and_pictures_take_their_colours_from_one_place(checkout: Path) -> None:
    whole = page.page("T", "")
    for name, mark in palette.FAMILIES.items():
        assert f"--{name}: {mark.color};" in whole
    colours = [mark.color for mark in palette.FAMILIES.values()]
    files = [*(checkout / "heterocompute").rglob("*.py"), *(checkout / "docs").rglob("*.py")]
    files += [*(checkout / "heterocompute").rglob("*.html"), *(checkout / "heterocompute").rglob("*.js")]
    found = [
        f"{file.name}: {colour}"
        for file, colour in itertools.product(files, colours)
        if file.name != "palette.py" and colour in file.read_text(encoding="utf-8")
    ]
    assert not found
