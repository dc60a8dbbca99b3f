"""A study with a device: modelled time and energy, or the cost of the arithmetic in silicon."""

from __future__ import annotations

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.hardware.silicon.gate_costs import float_add

WEIGHTS = {"a": np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32),
           "b": np.random.default_rng(1).standard_normal((32, 8, 3, 3)).astype(np.float32)}  # fmt: skip


def test_a_device_adds_time_and_energy() -> None:
    r = hc.study(WEIGHTS, ["int8", "vsq4-g16-s4"], device="h100-sxm")
    for row in r.table:
        tensors = [one for one in r.layers if one["format"] == row["format"]]
        moved = sum(one["bytes"] for one in tensors) + 2 * (64 + 128) + 2 * (32 + 72)
        assert row["device_us"] == pytest.approx(1e6 * moved / 3.35e12)  # one row: memory bounds all of it
        assert row["device_uj"] == pytest.approx(700 * row["device_us"])
    assert r.table[0]["device_us"] > r.table[1]["device_us"] > r.table[2]["device_us"]
    assert r.metrics == [] and "device_us" in repr(r)
    assert set(r.to_dict()["rows"][0]) >= {"device_us", "device_uj", "seconds"}


def test_silicon_adds_energy_and_area() -> None:
    r = hc.study(WEIGHTS, ["int8", "int4"], activations=["int8"], device="mac")
    found = {(row["format"], row["activations"]): row for row in r.table}
    for text in ("int8", "int4"):
        cost = hw.mac(text, "int8")
        assert found[text, "int8"]["mac_pj"] == pytest.approx(cost.energy_pj)
        assert found[text, "int8"]["mac_um2"] == pytest.approx(cost.area_um2)
    assert found["fp32", None]["mac_pj"] == pytest.approx(4.6)
    assert r.pareto(cost="mac_pj")[0]["format"] == "int4"


def test_mixed_formats_are_weighted_by_size() -> None:
    r = hc.study(WEIGHTS, [{"a": "int4", "b": "int8"}], activations=["int8"], device="mac")
    total = 64 * 128 + 32 * 72
    wanted = (64 * 128 * hw.mac("int4", "int8").energy_pj + 32 * 72 * hw.mac("int8", "int8").energy_pj) / total
    assert r.table[-1]["mac_pj"] == pytest.approx(wanted)


def test_ones_own_device_and_what_is_missing() -> None:
    mine = hw.Device("mine", peak={"int8": 4e9, "fp32": 1e9}, bandwidth=1e12)
    r = hc.study(WEIGHTS, ["int8"], activations=["int8"], device=mine)
    assert r.table[-1]["device_us"] == pytest.approx(1e6 * 2 * (64 * 128 + 32 * 72) / 4e9)  # arithmetic bounds it
    assert r.table[-1]["device_uj"] is None  # no design power
    with bad_argument(ValueError, None, "value", "'h10'.*h100-sxm"):
        hc.study(WEIGHTS, ["int8"], device="h10")
    with bad_argument(ValueError, None, "value", "diannao: its bandwidth is not known"):
        hc.study(WEIGHTS, ["int8"], device="diannao")
    assert "device_us" not in hc.study(WEIGHTS, ["int8"]).table[0]


def test_names_of_the_new_columns_are_taken() -> None:
    with bad_argument(ValueError, "evaluate", "value"):
        hc.study(WEIGHTS, ["int8"], evaluate=lambda weights: {"mac_pj": 1.0})


@pytest.mark.parametrize(("text", "block"), [("int4-g32+had", 128), ("int4-g32+had16", 16)])
def test_rotated_formats_add_the_additions_of_their_inputs(text: str, block: int) -> None:
    weights = {"a": WEIGHTS["a"]}
    slow = hw.Device("slow", peak={"int8": 4e9, "fp32": 1e9}, bandwidth=1e15)
    plain, turned = (hc.study(weights, [one], device=slow).table[-1] for one in ("int4-g32", text))
    additions = 128 * np.log2(block)
    assert turned["device_us"] - plain["device_us"] == pytest.approx(1e6 * additions / 1e9)
    assert turned["bytes"] == plain["bytes"]
    plain, turned = (hc.study(weights, [one], device="mac").table[-1] for one in ("int4-g32", text))
    for key, part in (("mac_pj", "energy"), ("mac_um2", "area")):
        share = getattr(float_add(24), part) * np.log2(block) / 64
        assert turned[key] - plain[key] == pytest.approx(share)
