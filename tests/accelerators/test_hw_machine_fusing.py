"""Fusion of layers on a machine's buffer, against every cut of short chains."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators.machines.fusing import Sizes, cost_of

TABLE: dict[str, Any] = {
    "name": "m", "process": "16nm", "clock": 1e9, "mac": {"weights": "int8", "sums": 24},
    "level": [{"name": "dram", "kind": "ddr3", "bandwidth": 4e9}, {"name": "buffer", "kib": 16},
              {"name": "pe", "count": [8, 8], "spread": ["K", "C"]}],
}  # fmt: skip


def chain(rng: random.Random) -> Any:
    channels = [rng.choice((4, 8, 16)) for _ in range(rng.randint(2, 5))]
    layers = []
    for c, k in itertools.pairwise(channels):
        r = rng.choice((1, 3))
        layers.append(hw.layers.Conv2d(c, k, r, rng.choice((1, 1, 2)), r // 2))
        if rng.random() < 0.5:
            layers.append(hw.layers.Activation())
    return hw.as_network(layers, (channels[0], *[rng.choice((12, 17, 24))] * 2))


@pytest.mark.parametrize("seed", range(8))
def test_groups_are_the_best_of_all_cuts(seed: int) -> None:
    rng = random.Random(seed)
    machine = hw.Machine(TABLE).set({"buffer.kib": rng.choice((1, 4, 16, 64)), "voltage": rng.choice((0.5, 0.8))})
    net, batch, objective = chain(rng), rng.choice((1, 3)), rng.choice(("energy", "delay"))
    found = machine.fuse(net, batch, objective)
    sizes = Sizes(machine.accelerator, net, batch, machine.table["voltage"])
    count, costs = len(sizes.layers), []
    for cuts in itertools.product((False, True), repeat=count - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), count]
        if not all(sizes.linked[i] or cut for i, cut in enumerate(cuts)):
            continue
        ways = [list(sizes.ways(a, b)) for a, b in itertools.pairwise(edges)]
        if all(ways):
            costs.append(sum(min(cost_of(one, objective) for one in some) for some in ways))
    assert sum(cost_of(one, objective) for one in found.groups) == pytest.approx(min(costs))
    assert [name for one in found.groups for name in one.layers] == [layer.name for layer in sizes.layers]
    assert all(one.need <= sizes.room for one in found.groups)
    before = found.to_dict()["unfused"]
    report = machine.report(net, batch)
    assert before["seconds"] == pytest.approx(report.seconds) and before["energy"] == pytest.approx(report.energy)
    assert found.energy <= before["energy"] * (1 + 1e-9) or objective == "delay"


def test_traffic_of_a_group_is_its_ends() -> None:
    """Everything fits: weights, the first input and the last output cross DRAM once."""
    machine = hw.Machine(TABLE).set({"buffer.kib": 4096})
    net = hw.as_network([hw.layers.Conv2d(8, 16, 3, 1, 1), hw.layers.Conv2d(16, 4, 1)], (8, 20, 20))
    (group,) = machine.fuse(net).groups
    assert group.dram_bits / 8 == 8 * 20 * 20 + 4 * 20 * 20 + 8 * 16 * 9 + 16 * 4 and group.work == 1


def test_a_larger_buffer_never_moves_more() -> None:
    net = hw.as_network([hw.layers.Conv2d(16, 16, 3, 1, 1) for _ in range(4)], (16, 32, 32))
    energies = []
    for kib in (1, 4, 16, 64, 1024):
        machine = hw.Machine(TABLE).set({"buffer.kib": kib, "buffer.pj": 0.1})
        energies.append(machine.fuse(net).energy)
    assert all(b <= a * 1.02 for a, b in itertools.pairwise(energies)) and energies[-1] < energies[0]


def test_shared_values_and_pooling_are_not_fused() -> None:
    digits = hw.Machine(TABLE).set({"buffer.kib": 1 << 20}).fuse("digits")
    assert all(len({name[:2] for name in one.layers}) == 1 for one in digits.groups)  # the values are flattened
    block = hw.networks["resnet18"].problems()[1].name
    groups = hw.Machine(TABLE).set({"buffer.kib": 1 << 20, "pe.count": [64, 64]}).fuse("resnet18").groups
    assert groups[0].layers == ("conv1",) or block not in groups[0].layers  # pooling between
    with pytest.raises(NotImplementedError, match="no memory on chip"):
        hw.Machine.named("diannao").fuse("digits")
    with pytest.raises(NotImplementedError, match="nonzeros or streams"):
        hw.Machine.named("scnn").fuse("digits")
    with pytest.raises(ValueError, match="objective is 'edp'"):
        hw.Machine.named("eyeriss").fuse("digits", objective="edp")
