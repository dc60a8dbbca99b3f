"""The worked examples: each within what its printed digits allow, and the pages as the scripts write them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from heterocompute import hardware as hw

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
SCRIPT = runpy.run_path(str(FIGURES / "hardware_examples.py"))
EXAMPLES = SCRIPT["examples"]()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.family}: {one.what}"[:90])
def test_the_model_gives_what_is_published(example: Any) -> None:
    assert example.source
    if example.within is None:
        assert ":" in example.what, "a deviation that stays says why"
        assert example.deviation != 0
    elif example.within == 0:
        assert example.modelled() == example.published
    else:
        assert abs(example.deviation) <= example.within


def test_there_are_enough_examples() -> None:
    assert len(EXAMPLES) > 80 and {one.family for one in EXAMPLES} >= {
        "count",
        "roofline",
        "memory",
        "gains",
        "silicon",
    }


@pytest.mark.parametrize("script", ["hardware_examples", "hardware_devices"])
def test_pages_are_what_their_scripts_write(script: str) -> None:
    names = runpy.run_path(str(FIGURES / f"{script}.py"))
    assert names["PAGE"].read_text(encoding="utf-8") == names["page"](), f"run python docs/figures/{script}.py"


def test_the_picture_is_what_its_script_draws() -> None:
    names = runpy.run_path(str(FIGURES / "hardware_rooflines.py"))
    assert names["PICTURE"].read_text(encoding="utf-8") == names["picture"]()


def test_the_silicon_table_has_todays_figures() -> None:
    names = runpy.run_path(str(FIGURES / "hardware_silicon.py"))
    rows = names["measure"]()
    words = names["PAGE"].read_text(encoding="utf-8")
    for line in names["table"](rows).splitlines():
        assert line in words, "run python docs/figures/hardware_silicon.py"
    assert names["PICTURE"].read_text(encoding="utf-8") == names["picture"](rows)


def test_no_measurement_of_tpu_v1_is_above_its_roof() -> None:
    measured = [one for one in EXAMPLES if one.what.startswith("TPU v1") and ", measured," in one.what]
    assert len(measured) == 6
    assert all(one.published <= one.modelled() <= hw.device("tpu-v1").peak("int8") / 1e12 for one in measured)
