"""Gradient descent on a network of `heterocompute.zoo`: batches in random order, Adam, a cosine learning rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .gradients import distort, gradients

F32 = NDArray[np.float32]
Batch = tuple[F32, NDArray[np.int64]]

LEARNING_RATE = 4e-3
WEIGHT_DECAY = 1e-4

# Of codebooks.
MOMENTUM = 0.9
ROW_RATE, TENSOR_RATE = 1e-3, 3e-4  # the best of a few tried values by training loss


def steps_of(examples: int, batch: int, epochs: int) -> int:
    """Return how many batches `batches` yields."""
    return epochs * -(-examples // batch)


def batches(x: F32, labels: NDArray[np.int64], batch: int, epochs: int, random: np.random.Generator) -> Iterator[Batch]:
    """Yield batches, each pass in another order; images are distorted differently each time."""
    for _ in range(epochs):
        order = random.permutation(len(x))
        for begin in range(0, len(x), batch):
            chosen = order[begin : begin + batch]
            yield distort(x[chosen], random) if x.ndim == 4 else x[chosen], labels[chosen]


def share_of(step: int, steps: int) -> float:
    """Return the remaining share of the learning rate at a step, 1 to `steps`: half a cosine down to 0."""
    return float(0.5 * (1 + np.cos(np.pi * step / steps)))


class Adam:
    """The direction of each step of one array (Kingma and Ba, ICLR 2015, algorithm 1)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._mean, self._square = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._step = 0

    def direction(self, gradient: F32) -> F32:
        self._step += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient * gradient - self._square)
        found: F32 = (self._mean / (1 - 0.9**self._step)) / (np.sqrt(self._square / (1 - 0.999**self._step)) + 1e-8)
        return found


def first_weights(layers: Mapping[str, tuple[int, ...]], random: np.random.Generator) -> dict[str, F32]:
    """Return He's initialisation: normal values of variance 2 / fan-in, biases 0."""
    weights = {}
    for name, shape in layers.items():
        fan_in = int(np.prod(shape[1:]))
        weights[f"{name}.weight"] = (random.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return weights


def descend(
    layers: Mapping[str, Any], weights: dict[str, F32], given: Iterable[Batch], steps: int, rate: float, decay: float
) -> Iterator[float]:
    """Train `weights` in place, Adam with decoupled weight decay; yields the mean loss of each batch."""
    adam = {name: Adam(w.shape) for name, w in weights.items()}
    for step, (x, labels) in enumerate(given, 1):
        loss, found = gradients(layers, weights, x, labels)
        for name, w in weights.items():
            w -= np.float32(rate * share_of(step, steps)) * (adam[name].direction(found[name]) + np.float32(decay) * w)
        yield loss
