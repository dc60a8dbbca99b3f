"""The worked examples: each within its limit, and the pages as the scripts write them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from heterocompute import hardware as hw

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
SCRIPT = runpy.run_path(str(FIGURES / "hardware_examples"))
EXAMPLES = SCRIPT["examples"]()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.what[:90])
def test_the_model_gives_the_other_figure(example: Any) -> None:
    assert example.source and 0 <= example.within <= 0.25
    assert example.holds != bool(example.missed), f"modelled {example.modelled()}, deviation {example.deviation}"


@pytest.mark.parametrize("script", ["hardware_examples", "hardware_devices.py"])
def test_pages_are_what_their_scripts_write(script: str) -> None:
    names = runpy.run_path(str(FIGURES / script))
    assert names["PAGE"].read_text(encoding="utf-8") == names["page"](), f"run python docs/figures/{script}"


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


@pytest.mark.parametrize(
    ("macs", "measured"), [(200, 12.3), (168, 9.7), (64, 3.7), (96, 2.8), (2888, 86.0), (1750, 14.1)]
)
def test_no_measurement_of_tpu_v1_is_above_its_roof(macs: int, measured: float) -> None:
    """Six applications, multiply-adds a weight byte, 10^12 operations/s: Jouppi et al., ISCA 2017, tables 1 and 3."""
    work = [{"name": "app", "operations": 2e9 * macs, "bytes": 1e9}]
    roof = 2e9 * macs / hw.roofline(work, "tpu-v1", "int8").seconds / 1e12
    assert measured <= roof <= hw.device("tpu-v1").peak("int8") / 1e12
