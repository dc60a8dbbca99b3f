"""The loops of layers have every multiply-add, and are valid problems of the mapper."""

from __future__ import annotations

import pytest
from common import bad_argument

from heterocompute import hardware as hw


@pytest.mark.parametrize("name", [name for name in hw.networks if name != "doc_cnn"])  # whose shapes do not fit
@pytest.mark.sweep(every=12)
def test_loops_hold_every_multiply_add(name: str) -> None:
    network = hw.networks[name]
    problems = network.problems(batch=3)
    assert sum(layer.macs for layer in problems) == 3 * sum(flow.macs for flow in network)
    assert all(layer.groups * layer.problem().computes == layer.macs for layer in problems)
    assert all(layer.groups * layer.problem().words("W") == layer.weights for layer in problems)
    assert all(layer.groups * layer.problem().words("I") == layer.inputs for layer in problems)
    assert all(layer.groups * layer.problem().words("O") == layer.outputs for layer in problems)


def test_a_grouped_strided_dilated_convolution_keeps_its_numbers() -> None:
    layer = hw.layers.Conv2d(8, 12, (3, 5), (2, 1), (1, 2), (1, 2), groups=4)
    (loops,) = hw.as_network(layer, (8, 16, 20)).problems(2)
    sizes = (loops.n, loops.c, loops.k, loops.p, loops.q, loops.r, loops.s)
    assert sizes == (2, 8, 12, 8, 16, 3, 5)
    assert (loops.stride, loops.dilation, loops.padding, loops.groups) == ((2, 1), (1, 2), (1, 2), 4)
    assert loops.problem().tensors["I"] == [{"N": 1}, {"C": 1}, {"P": 2, "R": 1}, {"Q": 1, "S": 2}]
    assert loops.problem().dims["C"] == 2 and loops.problem().dims["K"] == 3


def test_heads_are_groups() -> None:
    problems = {layer.name: layer for layer in hw.networks["bert_base"].problems()}
    scores, context = problems["block0.attention.scores"], problems["block0.attention.context"]
    assert (scores.groups, scores.c, scores.k, scores.p) == (12, 768, 12 * 128, 128)
    assert (context.groups, context.c, context.k, context.p) == (12, 12 * 128, 768, 128)


def test_count_carries_the_loops() -> None:
    rows = {row["name"]: row for row in hw.count("alexnet_original", batch=4).layers}
    wanted = {"N": 4, "C": 96, "K": 256, "P": 27, "Q": 27, "R": 5, "S": 5}
    assert rows["conv2"]["loops"] == {**wanted, "stride": [1, 1], "dilation": [1, 1], "padding": [2, 2], "groups": 2}
    assert rows["relu2"]["loops"] is None


def test_a_batch_is_positive() -> None:
    with bad_argument(ValueError, "batch", "value"):
        hw.networks["digits"].problems(0)
