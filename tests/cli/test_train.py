"""`heterocompute train`: the table, JSON, pages, and usage errors."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from heterocompute.cli import main

SHORT = ["--steps", "2", "--seeds", "1", "--recipes", "fp8-current"]


def test_the_table_and_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", "adder", *SHORT, "--html", str(tmp_path / "a.html"), "--csv", str(tmp_path / "a.csv")]) == 0
    assert "fp8-current" in capsys.readouterr().out
    assert "polyline" in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.csv").read_text().startswith("recipe,accuracy")


def test_json_has_the_curves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SHORT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["recipe"] for row in found["table"]] == ["bf16", "fp8-current"]
    assert len(found["curves"]["bf16"][0]) == 2


def test_unknown_recipes_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--recipes", "fp9"]) == 2
    assert "--recipes has 'fp9', expected fp32, " in capsys.readouterr().err


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_a_language_model_of_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "text", *SHORT, "--batch", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 2 < found["table"][1]["loss"] < 6
