"""Choice of devices: compared with all assignments, sizes at which the choice changes, copies, energy, and this CPU."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute import hardware as hw

CPU = hw.Device("cpu", peak={"fp32": 1e12}, bandwidth=1e11, tdp=100, kind="cpu")
GPU = hw.Device("gpu", peak={"fp32": 2e13, "fp16": 1e14}, bandwidth=1e12, tdp=300, links={"pcie4": 6.3e10}, kind="gpu")
NPU = hw.Device("npu", peak={"fp32": 4e12}, bandwidth=1.2e11, tdp=10, links={"pcie3": 3.15e10}, kind="npu")
LAYERS = [
    ("conv1", hw.layers.Conv2d(3, 8, 3)), ("conv2", hw.layers.Conv2d(8, 128, 3)),
    ("pool", hw.layers.AdaptiveAvgPool2d(1)),
    ("flat", hw.layers.Flatten()), ("fc1", hw.layers.Linear(128, 4096)), ("fc2", hw.layers.Linear(4096, 10)),
]  # fmt: skip


def every_way(objective: str, batch: int) -> float:
    """Try all devices for all layers of a chain. The pooled input of a layer moves between devices."""
    network = hw.systems.dispatch(LAYERS, [CPU], batch=batch, input_shape=(3, 64, 64))  # names the layers with a time
    assert [row["layer"] for row in network.plan] == ["conv1", "conv2", "fc1", "fc2"]
    shapes = [3 * 64**2, 8 * 62**2, 128, 4096, 10]
    chips = (CPU, GPU, NPU)
    runs = {one.name: hw.roofline(LAYERS, one, "fp32", batch=batch, input_shape=(3, 64, 64)).layers for one in chips}
    power = {one.name: one.tdp or 0.0 for one in chips}
    link = {"cpu": math.inf, "gpu": 6.3e10 / 2, "npu": 3.15e10 / 2}

    def copy(a: str, b: str, elements: int) -> float:
        if a == b:
            return 0.0
        seconds = 4 * batch * elements * (1 / link[a] + 1 / link[b])
        return seconds * (power[a] + power[b] if objective == "energy" else 1)

    best = math.inf
    for way in itertools.product([one.name for one in chips], repeat=4):
        total = copy("cpu", way[0], shapes[0]) + copy(way[-1], "cpu", shapes[-1])
        for i, name in enumerate(way):
            total += runs[name][i]["seconds"] * (power[name] if objective == "energy" else 1)
            total += copy(way[i - 1], name, shapes[i]) if i else 0
        best = min(best, total)
    return best


@pytest.mark.parametrize("objective", ["time", "energy"])
@pytest.mark.parametrize("batch", [1, 64])
def test_no_other_way_is_cheaper(objective: str, batch: int) -> None:
    found = hw.systems.dispatch(LAYERS, [CPU, GPU, NPU], objective, batch=batch, input_shape=(3, 64, 64))
    cost = found.seconds if objective == "time" else found.energy
    assert cost == pytest.approx(every_way(objective, batch), rel=1e-12)
    for row in found.alone:
        assert row[{"time": "seconds", "energy": "energy"}[objective]] >= cost * (1 - 1e-12)
    parts = sum(row["seconds"] + row["copy_seconds"] for row in found.plan) + found.back_seconds
    assert found.seconds == pytest.approx(parts)


def test_objectives_differ_and_so_does_the_plan() -> None:
    quick = hw.systems.dispatch(LAYERS, [CPU, GPU, NPU], batch=64, input_shape=(3, 64, 64))
    frugal = hw.systems.dispatch(LAYERS, [CPU, GPU, NPU], "energy", batch=64, input_shape=(3, 64, 64))
    assert quick.seconds < frugal.seconds and quick.energy is not None and frugal.energy is not None
    assert frugal.energy < quick.energy and quick.chosen != frugal.chosen


def test_the_choice_flips_where_copies_are_paid_back() -> None:
    home = hw.Device("home", peak={"fp32": 1e12}, bandwidth=1e15, kind="cpu")
    away = hw.Device("away", peak={"fp32": 1.4e13}, bandwidth=1e15, links={"pcie4": 6.3e10}, kind="gpu")
    found = hw.systems.dispatch(lambda n: hw.systems.product_work(n, n, n), [home, away], sizes=(8, 5000))
    expected = hw.systems.offload_break_even(away, home)
    assert [(row["before"], row["after"]) for row in found.flips] == [("home", "away")]
    assert found.flips[0]["size"] == math.ceil(expected) and found.chosen == "away"
    for size in (found.flips[0]["size"] - 1, found.flips[0]["size"]):
        one = hw.systems.dispatch(hw.systems.product_work(size, size, size), [home, away])
        assert one.chosen == ("home" if size < expected else "away")
        alone = {row["device"]: row["seconds"] for row in one.alone}
        assert one.seconds == pytest.approx(min(alone.values()))
    assert f"from size {found.flips[0]['size']:,} on away instead of home" in repr(found)


def test_every_flip_between_doubled_sizes_is_found() -> None:
    """A device with a long latency and high speed, one in between, and the CPU: three regions, two changes."""
    home, middle, far = (
        hw.Device(name, peak={"fp32": rate}, bandwidth=1e15, links={"pcie4": 2e18}, kind="cpu")
        for name, rate in (("home", 1e9), ("middle", 1e10), ("far", 1e12))
    )
    begin = {"middle": 1e-4, "far": 1e-2}
    found = hw.systems.dispatch(
        lambda n: hw.systems.product_work(n, n, n), [home, middle, far], sizes=(2, 4096), launch=begin
    )
    assert [row["after"] for row in found.flips] == ["middle", "far"]
    first, second = (row["size"] for row in found.flips)
    assert first == math.ceil((1e-4 / 2 / (1e-9 - 1e-10)) ** (1 / 3))
    assert second == math.ceil((0.99e-2 / 2 / (1e-10 - 1e-12)) ** (1 / 3))
    same = hw.systems.dispatch(lambda n: hw.systems.product_work(n, n, n), [home], sizes=(2, 64))
    assert same.flips == [] and same.chosen == "home" and same.to_dict()["flips"] == []


def test_who_cannot_run_it_says_why() -> None:
    dumb = hw.Device("dumb", peak={"int8": 1e12}, bandwidth=1e11)
    far = hw.Device("far", peak={"fp32": 1e15}, bandwidth=1e12)
    found = hw.systems.dispatch(hw.systems.product_work(64, 64, 64), [CPU, dumb, far])
    why = {row["device"]: row["why"] for row in found.alone}
    assert why["cpu"] == "" and "no rate for 'fp32'" in why["dumb"] and "no PCIe link" in why["far"]
    assert "dumb alone: dumb: no rate" in repr(found) and found.chosen == "cpu"
    linked = hw.systems.dispatch(hw.systems.product_work(2048, 2048, 2048), [CPU, far], links={"far": 1e11})
    assert linked.chosen == "far" and linked.energy is None
    typed = hw.systems.dispatch(hw.systems.product_work(2048, 2048, 2048), [CPU, dumb],
                                dtype={"*": "fp32", "dumb": "int8"},
                        links={"dumb": 1e9})  # fmt: skip
    assert {row["device"] for row in typed.alone if not row["why"]} == {"cpu", "dumb"}
    with bad_argument(ValueError, None, "value", "no device can run it: dumb: no rate"):
        hw.systems.dispatch(hw.systems.product_work(2, 2, 2), [dumb])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hw.systems.dispatch("alexnet", []), r"devices are \[\], expected one or more"),
        (lambda: hw.systems.dispatch("alexnet", [CPU, CPU]), "expected one or more, each once"),
        (lambda: hw.systems.dispatch("alexnet", [CPU], "price"), "objective is 'price', expected one of time, energy"),
        (lambda: hw.systems.dispatch("alexnet", [CPU], sizes=(1, 2)), "sizes is .*, expected a callable op"),
        (lambda: hw.systems.dispatch(lambda n: "alexnet", [CPU]), "sizes is missing"),
        (lambda: hw.systems.dispatch(lambda n: "alexnet", [CPU], sizes=(8, 2)), "sizes is 2, expected 8 or more"),
        (
            lambda: hw.systems.dispatch(lambda n: "alexnet", [CPU], sizes=8),
            "sizes is 8, expected the least and the largest",
        ),
        (lambda: hw.systems.dispatch("alexnet", [CPU, GPU], links={"gpu": 0}), r"links\['gpu'\] is 0"),
        (lambda: hw.systems.dispatch("alexnet", [CPU, GPU], launch={"gpu": -1}), r"launch\['gpu'\] is -1"),
        (lambda: hw.systems.dispatch("alexnet", [CPU, GPU], batch="4"), "batch is '4', expected a positive integer"),
        (lambda: hw.systems.dispatch("alexnet", "cpu"), "'cpu' is not a known device"),
        (lambda: hw.systems.dispatch({"operations": 5}, [CPU]), "expected operations, bytes, input_bytes"),
        (lambda: hw.systems.product_work(0, 1, 1), "m is 0"),
    ],
)
def test_what_makes_no_sense_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("table", ["links", "launch"])
def test_rates_are_a_mapping(table: str) -> None:
    with pytest.raises(TypeError, match=f"{table} is 5.0, expected a mapping of devices"):
        hw.systems.dispatch("alexnet", [CPU, GPU], **{table: 5.0})


def test_a_residual_network_moves_all_that_is_alive() -> None:
    found = hw.systems.dispatch("resnet18", [CPU, GPU], batch=4)
    assert found.chosen == "gpu" and len(found.plan) == 21
    assert found.plan[0]["copy_seconds"] == pytest.approx(4 * 4 * 3 * 224**2 / 3.15e10)
    assert found.back_seconds == pytest.approx(4 * 4 * 1000 / 3.15e10)


def test_this_cpu_by_the_model_by_its_plan_and_by_the_clock() -> None:
    chip = hw.Device("one core", peak={"fp32": 1e11, "int8": 4e11}, bandwidth=1e10, kind="cpu")
    found = hw.systems.check_host(16, 64, 128, "int8", "int8", device=chip, seconds=0)
    w = hc.quantize(np.zeros((64, 128), np.float32), "int8")
    with hc.use(threads=1):
        plan = hc.explain(np.zeros((16, 128), np.float32), w.T, "int8")
    assert found["path"] == plan.chosen and found["measured_seconds"] > 0
    predicted = next(row.predicted_ms for row in plan.candidates if row.path == plan.chosen)
    assert predicted is not None and found["predicted_seconds"] == predicted / 1e3
    traffic = 64 * (128 + 4) + 16 * (128 + 64)  # int8 weights with a float32 scale per row, int8 in and out
    assert found["bound_seconds"] == pytest.approx(max(2 * 16 * 64 * 128 / 4e11, traffic / 1e10))
    assert found["share"] == found["bound_seconds"] / found["measured_seconds"]
    with bad_argument(ValueError, "n", "value"):
        hw.systems.check_host(1, 0, 1)
