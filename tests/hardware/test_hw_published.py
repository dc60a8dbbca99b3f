"""Published results: statuses, the rule, the page, the command; worked examples, and the pages that scripts write."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
from common import bad_argument

from heterocompute import hardware as hw
from heterocompute.cli import main
from heterocompute.hardware.ledger.figure import KINDS, STATUSES, as_written, headline, limit_of, read_printed
from heterocompute.hardware.ledger.models import MODELS
from heterocompute.studies.papers import PAPERS, reproduce_paper

FIGURES = hw.published()
SLOW = (
    "sparsity",
    "eie",
    "simba",
    "magnet",
    "vs-quant",
    "scnn",
    "eyeriss",
    "tensor cores",
    "diannao",
    "groq_lpu",
    "nvdla",
)
SCRIPTS = Path(__file__).resolve().parents[2] / "docs" / "figures"

WORKED = runpy.run_path(str(SCRIPTS / "hardware_examples"))
EXAMPLES: list[Any] = WORKED["examples"]()


def check(figure: hw.results.PublishedFigure) -> None:
    """A result that differs or has no model states a reason; a reason that is no longer needed must be removed."""
    unmet = figure.status in ("off", "not modelled", "said")
    assert figure.status in STATUSES and figure.status != "reproduced" or figure.kind != "words"
    assert unmet == bool(figure.why), (figure.status, figure.rows)
    assert figure.claim and figure.source and figure.topic and figure.kind in KINDS
    assert all(math.isfinite(row["modelled"]) for row in figure.rows.values())
    json.dumps(figure.to_dict(), allow_nan=True)


@pytest.mark.parametrize("figure", [one for one in FIGURES if one.topic not in SLOW], ids=lambda one: one.name)
def test_a_status_agrees_with_its_reason(figure: hw.results.PublishedFigure) -> None:
    check(figure)


@pytest.mark.parametrize("figure", [one for one in FIGURES if one.topic in SLOW], ids=lambda one: one.name)
@pytest.mark.sweep(every=80)
def test_a_status_of_a_mapped_machine_agrees_with_its_reason(figure: hw.results.PublishedFigure) -> None:
    check(figure)


def test_names_are_unique_and_every_model_is_used() -> None:
    assert len({one.name for one in FIGURES}) == len(FIGURES)
    used = {one.model for one in FIGURES}
    assert not [name for name, model in MODELS.items() if model not in used]


@pytest.mark.parametrize(
    "text, found",
    [
        ("34.7", (34.7, 34.7, 0.05)),
        ("0.50", (0.5, 0.5, 0.005)),
        ("9", (9, 9, 0.5)),
        ("1.35e3", (1350, 1350, 5)),
        ("2.7e-5", (2.7e-5, 2.7e-5, 5e-7)),
        ("61,100,840", (61100840, 61100840, 0.5)),
        ("15 to 30", (15, 30, 0)),
        ("1.3 or more", (1.3, math.inf, 0)),
        ("0.1 or less", (-math.inf, 0.1, 0)),
    ],
)
def test_the_rounding_of_a_printed_figure(text: str, found: tuple[float, float, float]) -> None:
    assert read_printed(text) == pytest.approx(found)


def test_a_text_that_is_no_figure_is_named() -> None:
    for text in ("", "about 3", "3 %", "nan"):
        with bad_argument(ValueError, "value", "value"):
            read_printed(text)
    assert as_written("1.35e3") == "1,350" and as_written("0.80") == "0.80"


def figure(kind: str, value: float, why: str = "", **printed: str) -> hw.results.PublishedFigure:
    given = printed or {"": "10"}
    return hw.results.PublishedFigure("a/b", "t", "c", given, "", kind, "s", why=why, model=lambda *_: value)


@pytest.mark.parametrize(
    "kind, value, status",
    [
        ("count", 10, "reproduced"),
        ("count", 10.1, "off"),
        ("peak", 10.49, "reproduced"),
        ("peak", 10.51, "off"),
        ("ratio", 10.99, "reproduced"),
        ("ratio", 11.01, "off"),
        ("energy", 12.49, "reproduced"),
        ("energy", 12.51, "off"),
        ("share", 10.49, "reproduced"),
        ("share", 10.51, "off"),
    ],
)
def test_the_limit_is_the_larger_of_rounding_and_stated_error(kind: str, value: float, status: str) -> None:
    assert figure(kind, value).status == status


@pytest.mark.parametrize(
    "kind, text, limit",
    [
        ("energy", "0.1", 0.25),  # half a unit is 50 %, and at most a tenth counts
        ("peak", "0.1", 0.1),
        ("peak", "9", 0.5 / 9),
        ("peak", "92", 0.03),
        ("count", "576", 0),
        ("count", "61,100,840", 0),
        ("count", "4.13", 0.005 / 4.13),
        ("count", "2.3e1", 0.5 / 23),
        ("ratio", "1.5 to 2", 0.1),
        ("share", "0.5", 0.05),
        ("words", "about half", math.inf),
    ],
)
def test_a_rounding_is_never_added_to_the_error(kind: str, text: str, limit: float) -> None:
    assert limit_of(kind, text) == pytest.approx(limit)


def test_words_have_a_number_of_ours_and_are_never_reproduced() -> None:
    said = [one for one in FIGURES if one.kind == "words"]
    assert len(said) > 10 and all(list(one.numbers) == list(one.printed) and one.machine for one in said)
    assert not [one.name for one in FIGURES if one.numbers and one.kind != "words"]
    one = hw.results.PublishedFigure(
        "a/b", "t", "c", {"": "about half"}, "", "words", "s", {"": "0.5"}, why="less", model=lambda: 0.5
    )
    assert (one.status, one.verdict) == ("said", "said: less")
    assert one.to_dict()["figures"][0]["number"] == "0.5"


def test_a_modelled_figure_of_a_machine_names_it() -> None:
    """Models of machines begin their text with a machine's name; formulas in such a topic say so."""
    names = {*hw.accelerators.names(), "tpu_like", "device", "devices", "formula", "count"}
    rooms = ("vectors.", "layers.", "sparse.", "eyeriss.")
    of = {model: name for name, model in MODELS.items()}
    for one in FIGURES:
        if one.model is not None and (one.machine or of[one.model].startswith(rooms)):
            assert one.machine.partition(":")[0].partition(" ")[0] in names, (one.name, one.machine)


def test_the_headline_counts_reproduced_figures_among_checked_ones() -> None:
    assert headline({"reproduced": 1, "off": 2, "restated": 9, "said": 9}) == (
        "1 of 3 checked figures are reproduced (33 %)"
    )
    assert headline({}) == "0 of 0 checked figures are reproduced"


def test_a_table_has_the_status_of_its_worst_row() -> None:
    found = figure("count", 2, "because", a="2", b="4", c="1 to 3")
    assert found.status == "off" and found.worst["deviation"] == -0.5
    assert found.verdict == "off by 0.50 x: because"
    assert figure("count", 101, "why", a="100").verdict == "off by +1 %: why"
    assert figure("count", 4.1338, "why", a="4.14").verdict == "off by -0.15 %: why"
    assert figure("share", 0.5, "why", a="0.3").verdict == "off by +20 points: why"


def test_the_five_dataflows_are_inside_what_was_published() -> None:
    (found,) = hw.published("eyeriss-isca-2016/dataflows-conv")
    ratios = {name: row["modelled"] for name, row in found.rows.items()}
    expected = {"ws": 1.47, "os-a": 2.47, "os-b": 1.62, "os-c": 2.41, "nlr": 2.46}
    assert ratios == pytest.approx(expected, abs=0.01) and found.status == "reproduced"


def test_names_choose_figures() -> None:
    assert {one.topic for one in hw.published("links")} == {"links"}
    several = hw.published(["links", "gpipe-neurips-2019/pieces-4"])
    assert [one.topic for one in several[:-1]] == ["links"] * (len(several) - 1) and several[-1].name[-8:] == "pieces-4"
    assert len(hw.published("gpipe-neurips-2019")) == 2 and len(hw.published("gpipe-neurips-2019/pieces-4")) == 1
    with bad_argument(ValueError, "name", "value"):
        hw.published("eyeris")
    with bad_argument(TypeError, "name", "type"):
        hw.published(3)  # type: ignore[arg-type]


@pytest.mark.sweep(every=0)
def test_the_page_is_what_its_script_writes() -> None:
    names = runpy.run_path(str(SCRIPTS / "published.py"))
    assert names["PAGE"].read_text(encoding="utf-8") == names["page"](), "run python docs/figures/published.py"


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["reproduce", "training", "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "openai-2018/work" in out and "reproduced" in out
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text and "openai-2018/work" in text and "a total, not a rate" in text
    assert main(["reproduce", "surveys", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["counts"].values()) == len(found["figures"]) == len(hw.published("surveys"))
    assert main(["reproduce", "nobody"]) == 1 and "'heterocompute reproduce' lists them" in capsys.readouterr().err
    assert main(["reproduce", "eyeris"]) == 1 and "the nearest are eyeriss" in capsys.readouterr().err
    assert main(["reproduce", "training", "--model", "digits"]) == 2
    assert main(["reproduce", "--data", "x.npy"]) == 2


@pytest.mark.parametrize("paper", ["mx", "nm-sparsity", "deep-compression", "mixed-precision-memory", "tpu-v1"])
@pytest.mark.sweep(every=4)
def test_a_paper_on_a_network(paper: str) -> None:
    found = reproduce_paper(paper, "digits")
    assert found.table and all(set(row) == set(found.columns) for row in found.table)
    if "accuracy" in found.columns:
        assert found.table[0]["accuracy"] > 0.99
    json.dumps(found.to_dict(), default=float)


def test_a_paper_without_examples(tmp_path: Path) -> None:
    import numpy as np

    import heterocompute as hc

    path = tmp_path / "w.safetensors"
    hc.save(path, {"w": np.random.default_rng(0).standard_normal((16, 64), dtype=np.float32)})
    found = reproduce_paper("mx", path)
    assert "accuracy" not in found.columns and found.table[1]["sqnr_db"] > 30
    for paper in ("gptq", "deep-compression"):
        with pytest.raises(ValueError, match=f"reproduce: {paper} needs"):
            reproduce_paper(paper, path)
    with bad_argument(ValueError, "paper", "value"):
        reproduce_paper("vsquant")
    assert set(PAPERS) >= {"vs-quant", "eyeriss"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.what[:90])
@pytest.mark.sweep(every=4)
def test_the_model_gives_the_other_figure(example: Any) -> None:
    assert example.source and 0 <= example.within <= 0.25
    assert example.holds != bool(example.missed), f"modelled {example.modelled()}, deviation {example.deviation}"


@pytest.mark.parametrize("script", ["hardware_examples", "hardware_devices.py"])
@pytest.mark.sweep(every=4)
def test_pages_are_what_their_scripts_write(script: str) -> None:
    names = runpy.run_path(str(SCRIPTS / script))
    assert names["PAGE"].read_text(encoding="utf-8") == names["page"](), f"run python docs/figures/{script}"


def test_the_picture_is_what_its_script_draws() -> None:
    names = runpy.run_path(str(SCRIPTS / "hardware_rooflines.py"))
    assert names["PICTURE"].read_text(encoding="utf-8") == names["picture"]()


def test_the_silicon_table_has_todays_figures() -> None:
    names = runpy.run_path(str(SCRIPTS / "hardware_silicon.py"))
    rows = names["measure"]()
    words = names["PAGE"].read_text(encoding="utf-8")
    for line in names["table"](rows).splitlines():
        assert line in words, "run python docs/figures/hardware_silicon.py"
    assert names["PICTURE"].read_text(encoding="utf-8") == names["picture"](rows)


def test_no_measurement_of_tpu_v1_is_above_its_roof() -> None:
    (found,) = hw.published("tpu-v1-isca-2017/rates")
    for row in found.rows.values():
        assert row["high"] <= row["modelled"] <= 1.000001 * hw.device("tpu-v1").peak("int8") / 1e12


def test_a_narrow_terminal_shows_published_and_modelled_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reasons follow the table, and each value of a figure has its line."""
    monkeypatch.setattr("heterocompute.report.table.WIDE", 80)  # columns of a stream
    assert main(["reproduce", "tpu_v1"]) == 0
    out = capsys.readouterr().out
    head, rule, *lines = out.splitlines()
    assert head.split() == ["figure", "published", "here", "status"] and len(rule) <= 80
    figure = next(one for one in FIGURES if one.name == "tpu-v1-isca-2017/rates")
    shown = [line for line in lines if line.startswith(f"{figure.name} ")]
    assert [line.split()[1] for line in shown] == list(figure.rows)
    assert f"{figure.name}, {figure.verdict}" in " ".join(out.split())


def test_a_picture_names_only_the_bounds_that_its_layers_have() -> None:
    pytest.importorskip("matplotlib")
    found = hw.roofline("llama_7b", "h100-sxm", "fp16", format="int8")
    axes = hw.roofline(hw.networks["llama_7b"].decoding(1024), "h100-sxm", "fp16", format="int8").plot().axes[0]
    assert [one.get_text() for one in axes.get_legend().get_texts()] == ["memory-bound"]
    assert "weights int8" in axes.get_title() and {row["bound"] for row in found.layers} == {"memory", "compute"}
