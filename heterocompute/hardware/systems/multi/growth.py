"""The training of networks from AlexNet to GPT-3: operations counted from their layers or parameters.

A network for images: 2 operations per multiply-add, times 3 (one forward pass, two backward), times images x epochs.
A transformer: 6 operations per parameter and token.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ...cost.estimates import PETAFLOP_DAY, training_flops
from ...network.builtin import networks
from ...network.counting import count
from ...network.layers import Conv2d, Linear
from ...network.plain import Flatten


class _Training(NamedTuple):
    name: str
    year: float
    operations: Callable[[], float]


def _images(network: str, images: float, epochs: float) -> float:
    return 6.0 * count(network).macs * images * epochs


def _dqn() -> float:
    layers = [Conv2d(3, 16, 8, stride=4), Conv2d(16, 32, 4, stride=2), Flatten(), Linear(2592, 256)]
    return 6.0 * count(layers, (3, 84, 84)).macs * 5e6 * 32  # updates x images of each


TRAININGS = (
    _Training("AlexNet", 2012.7, lambda: _images("alexnet_original", 1.2e6, 90)),
    _Training("DQN", 2013.9, _dqn),
    _Training("VGG-16", 2014.7, lambda: _images("vgg16", 1.2e6, 74)),
    _Training("BERT-Base", 2018.8, lambda: training_flops(networks["bert_base"].params, 250e9)),
    _Training("GPT-3 Small", 2020.4, lambda: training_flops(networks["gpt2"].params, 300e9)),
    _Training("GPT-3 175B", 2020.4, lambda: training_flops(networks["gpt3_175b"].params, 300e9)),
)  # fmt: skip


def growth() -> list[dict[str, Any]]:
    """Return the training operations of published networks, and their growth.

    Returns
    -------
    list of dict
        ``name``, ``year``, ``operations``, ``petaflop_days`` (10^15 operations/s for a day), ``gain`` over the first,
        ``doubling_months`` since the first. The latter is None for the first and for networks with fewer operations.
        The printed figures are in ``hw.published("training")``.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> last = hw.multi.growth()[-1]
    >>> last["name"], round(last["petaflop_days"]), round(last["doubling_months"], 1)
    ('GPT-3 175B', 3638, 4.8)
    """
    rows: list[dict[str, Any]] = []
    for name, year, operations in TRAININGS:
        work = operations()
        gain = work / rows[0]["operations"] if rows else 1.0
        months = 12 * (year - TRAININGS[0].year) * math.log(2) / math.log(gain) if gain > 1 else None
        rows.append({"name": name, "year": year, "operations": work, "petaflop_days": work / PETAFLOP_DAY,
                     "gain": gain, "doubling_months": months})  # fmt: skip
    return rows
