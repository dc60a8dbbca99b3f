"""Recomputation chooses the cuts with the least memory, as in an exhaustive search, and the sum for block inputs."""

from __future__ import annotations

import itertools
import random

import pytest

from heterocompute import hardware as hw
from heterocompute.hardware.cost import recompute
from heterocompute.hardware.network.graph import Builder, Network
from heterocompute.hardware.network.language import decoder_of_config

SIZES = {"n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257}
XL = decoder_of_config("gpt2_xl", {"model_type": "gpt2", **SIZES}, "gpt2_xl").network()  # 1.56e9 parameters


def test_gpt2_of_1558_million_parameters_keeps_block_inputs_and_one_block() -> None:
    assert XL.params == pytest.approx(1.558e9, rel=1e-3)
    width = 32 * 1024 * 1600 * 2  # bytes of one activation of the whole batch in 16 bits
    # Inside a block: 9 activations of the model's width (its output is the next input), 2 of four times the width, and
    # the scores of 25 heads twice.
    block = 9 * width + 2 * 4 * width + 2 * 25 * 1024 * 1024 * 32 * 2
    inputs = 48 * width
    found = {n: hw.memory.training(XL, batch=32, dtype="bf16", recompute=n).intermediates for n in (0, 1, 24, 48, 97)}
    assert found[48] <= inputs + block + width
    assert found[48] / 1e9 == pytest.approx(10.3, abs=0.05)
    assert found[0] == found[1] > found[24] > found[48] >= found[97]


@pytest.mark.parametrize("name", ["vgg16", "resnet18", "mobilenet_v2", "bert_base", "gpt2"])
@pytest.mark.sweep(every=4)
def test_more_segments_are_never_worse(name: str) -> None:
    found = [hw.memory.training(name, recompute=n).intermediates for n in (0, 1, 2, 3, 5, 9, 17, 500)]
    assert found == sorted(found, reverse=True) and found[2] < 0.8 * found[0]


def chain(rng: random.Random, length: int) -> Network:
    """Linear layers of random widths; some outputs are added to one that comes later."""
    net = Builder("chain", (4,))
    widths = [4]
    for i in range(length):
        widths.append(rng.choice((1, 2, 3, 5, 8, 13)))
        net.add(f"fc{i}", hw.layers.Linear(widths[-2], widths[-1], bias=False))
        if i > 2 and rng.random() < 0.4:
            early = rng.randrange(i - 2)
            net.add(f"skip{i}", hw.layers.Linear(widths[early + 1], widths[-1], bias=False), f"fc{early}")
            net.add(f"back{i}", hw.layers.Linear(widths[-1], widths[-1], bias=False), f"fc{i}")
    return net.build()


def by_hand(network: Network, count: int) -> int:
    """Try all cuts: values that are used after a cut are kept once, a segment holds the others."""
    flows = network.flows
    size = {flow.name: flow.output_elements for flow in flows[:-1]} | {flows[-1].name: 0, "input": 0}
    best = sum(size.values())
    for n in range(1, count):
        for cuts in itertools.combinations(range(1, len(flows)), n):
            places = [0, *cuts, len(flows)]
            kept: set[str] = set()
            for place in cuts:
                used = {name for flow in flows[place:] for name in flow.node.inputs}
                kept |= used & {flow.name for flow in flows[:place]}
            largest = 0
            for start, stop in itertools.pairwise(places):
                used = {name for flow in flows[stop:] for name in flow.node.inputs}
                inside = {flow.name for flow in flows[start:stop]} - used
                largest = max(largest, sum(size[name] for name in inside))
            best = min(best, sum(size[name] for name in kept) + largest)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_cuts_are_the_best_of_all(seed: int) -> None:
    rng = random.Random(seed)
    network = chain(rng, rng.randrange(2, 7))
    for count in (1, 2, 3, 4):
        assert sum(recompute.cut(network, count)) == by_hand(network, count)
