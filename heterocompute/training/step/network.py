"""Training of the shipped networks in a recipe with NumPy: forward, backward, loss scale, optimizer.

The layers are those of `heterocompute.zoo`: 3 x 3 convolutions padded by one, then linear layers, ReLU between.
Everything outside of the matmuls is float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays.quantized import QuantizedArray
from ...base.runtime import use
from ...products.quantize import quantize
from ...zoo.layers import STRIDES
from ...zoo.network import Network
from ..descent import LEARNING_RATE, first_weights
from ..gradients import cross_entropy
from .layer import NUMPY, LayerState, seed_of
from .products import backward, forward, patches, unpatched
from .recipe import FP32, DynamicScale, Recipe

F32 = NDArray[np.float32]
OPTIMIZER, MASTER, REDUCED = 2**32, 0, 1
MADAM_RATE, BETA, BOUND = 2.0**-5, 0.999, 10.0


class NetworkTrainer:
    """A network of the zoo that is trained from the start in a recipe.

    Parameters
    ----------
    net : heterocompute.zoo.Network
    recipe : Recipe
    seed : int
        Seed of the first weights.

    Attributes
    ----------
    weights : dict of str to ndarray
    states : list of LayerState
    skipped : int
        Number of steps that met an overflow.

    Examples
    --------
    >>> import heterocompute as hc
    >>> net = hc.zoo.digits()
    >>> trainer = NetworkTrainer(net, hc.training.recipe("bf16"), 0)
    >>> 2 < trainer.step(net.train_x[:32], net.train_y[:32]) < 4
    True
    """

    def __init__(self, net: Network, recipe: Recipe, seed: int) -> None:
        self.net, self.recipe = net, recipe
        self.weights = first_weights(net.layers, np.random.default_rng(seed))
        self.states = [LayerState(recipe, name, index) for index, name in enumerate(net.layers)]
        for state, shape in zip(self.states, net.layers.values(), strict=True):
            state.check(int(np.prod(shape[1:])), shape[0])
        scale = recipe.loss_scale
        self._dynamic = scale if isinstance(scale, DynamicScale) else None
        self.loss_scale = self._dynamic.initial if self._dynamic else float(scale or 1.0)
        self.steps = self.skipped = self._good = 0
        self._memory: dict[str, dict[str, Any]] = {name: {} for name in self.weights}
        self._round_weights(False)

    def step(self, x: F32, labels: NDArray[np.int64], share: float = 1.0) -> float:
        """Train on one batch, and return its mean loss.

        Parameters
        ----------
        x, labels : ndarray
        share : float, optional
            Factor of the learning rate.

        Returns
        -------
        float
        """
        self.steps += 1
        for state in self.states:
            state.begin()
        logits, saved = self._forward(x, True)
        loss, dy = cross_entropy(logits, labels)
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._backward(dy * np.float32(self.loss_scale), saved)
            for name in found:
                found[name] = found[name] / np.float32(self.loss_scale)
        if self._dynamic is None or not self._overflowed(found):
            with np.errstate(over="ignore", invalid="ignore"):
                self._update(found, share)
                self._round_weights(True)
        return loss

    def logits(self, x: F32) -> F32:
        """Return the outputs for examples, in the formats of the recipe, without training."""
        return self._forward(x, False)[0]

    def accuracy(self) -> float:
        """Return the share of right answers for the held-out examples."""
        answers = self.logits(self.net.test_x).reshape(*self.net.test_y.shape, -1)
        return float(np.mean(answers.argmax(-1) == self.net.test_y))

    def _forward(self, x: F32, is_training: bool) -> tuple[F32, list[Any]]:
        saved: list[Any] = []
        with use(blas="own"), np.errstate(over="ignore", invalid="ignore"):
            for state in self.states:
                state.training = is_training
                w, b = self.weights[f"{state.name}.weight"], self.weights[f"{state.name}.bias"]
                shape = x.shape
                rows = patches(x, w.shape[-1], STRIDES[state.name]) if w.ndim == 4 else x.reshape(len(x), -1)
                y, kept = forward(state, rows.reshape(-1, rows.shape[-1]), w.reshape(len(w), -1))
                y = y.reshape(*rows.shape[:-1], len(w)) + b
                is_last = state is self.states[-1]
                saved.append((state, shape, rows.shape, kept, y > 0))
                y = y if is_last else np.maximum(y, 0)
                x = np.ascontiguousarray(y.transpose(0, 3, 1, 2)) if w.ndim == 4 else y
        return x, saved

    def _backward(self, dy: F32, saved: list[Any]) -> dict[str, F32]:
        found: dict[str, F32] = {}
        with use(blas="own"):
            for state, shape, rows, kept, positive in reversed(saved):
                name, w = state.name, self.weights[f"{state.name}.weight"]
                if dy.ndim != positive.ndim:  # the first linear layer after convolutions
                    dy = dy.reshape(len(positive), positive.shape[-1], *positive.shape[1:3])
                if w.ndim == 4:
                    dy = dy.transpose(0, 2, 3, 1)
                if state is not self.states[-1]:
                    dy = dy * positive
                g = np.ascontiguousarray(dy).reshape(-1, len(w))
                found[f"{name}.bias"] = g.sum(axis=0)
                is_first = state is self.states[0]
                dx, dw = backward(state, g, kept, not is_first)
                found[f"{name}.weight"] = dw.reshape(w.shape)
                if not is_first:
                    dy = unpatched(dx.reshape(rows), shape, w.shape[-1], STRIDES[name]) if w.ndim == 4 else (
                        dx.reshape(shape))  # fmt: skip
        return found

    def _overflowed(self, found: Mapping[str, F32]) -> bool:
        assert self._dynamic is not None
        if all(np.isfinite(g).all() for g in found.values()):
            self._good += 1
            if self._good == self._dynamic.interval:
                self._good, self.loss_scale = 0, self.loss_scale * self._dynamic.growth
            return False
        self._good, self.loss_scale = 0, self.loss_scale * self._dynamic.backoff
        self.skipped += 1
        return True

    def _update(self, found: Mapping[str, F32], share: float) -> None:
        for index, (name, w) in enumerate(self.weights.items()):
            g = _as_rows(found[name])
            if self.recipe.all_reduce != FP32:
                g = NUMPY.rounded(g, self.recipe.all_reduce, 1, self._seed("all_reduce", index, REDUCED))
            g, memory = g.reshape(w.shape), self._memory[name]
            if self.recipe.update == "madam":
                self._multiply(w, g, memory, share)
                continue
            mean, square = self._opened(memory, "exp_avg", w), self._opened(memory, "exp_avg_sq", w)
            mean += 0.1 * (g - mean)
            square += 0.001 * (g * g - square)
            fair = np.sqrt(square / (1 - 0.999**self.steps)) + 1e-8
            w -= np.float32(LEARNING_RATE * share) * (mean / (1 - 0.9**self.steps) / fair).astype(np.float32)
            self._closed(memory, "exp_avg", mean)
            self._closed(memory, "exp_avg_sq", square)

    def _multiply(self, w: F32, g: F32, memory: dict[str, Any], share: float) -> None:
        """Change logarithms of weights, as Madam does; biases, which begin with 0, by addition."""
        if not memory:
            memory["bound"] = 3.0 * float(np.sqrt(np.square(w).mean()))
        square = self._opened(memory, "exp_avg_sq", w)
        square += (1 - BETA) * (g * g - square)
        change = np.clip(g / (np.sqrt(square / (1 - BETA**self.steps)) + 1e-12), -BOUND, BOUND)
        rate = np.float32(MADAM_RATE * share)
        if w.ndim < 2:
            w -= rate * change
        else:
            w *= np.exp2(-rate * np.sign(w) * change)
            np.clip(w, -memory["bound"], memory["bound"], out=w)
        self._closed(memory, "exp_avg_sq", square)

    def _opened(self, memory: dict[str, Any], name: str, w: F32) -> F32:
        value = memory.get(name)
        if value is None:
            return np.zeros_like(w)
        return value.dequantize().reshape(w.shape) if isinstance(value, QuantizedArray) else value

    def _closed(self, memory: dict[str, Any], name: str, value: F32) -> None:
        fmt = self.recipe.state_format(name, value.size)
        memory[name] = value if fmt is None else quantize(value.reshape(-1), fmt)

    def _round_weights(self, is_step: bool) -> None:
        if self.recipe.master == FP32:
            return
        for index, w in enumerate(self.weights.values()):
            seed = self._seed("master", index, MASTER) if is_step else None
            w[...] = NUMPY.rounded(_as_rows(w), self.recipe.master, 1, seed).reshape(w.shape)

    def _seed(self, tensor: str, index: int, use: int) -> int | None:
        if self.recipe.rounding.get(tensor) != "stochastic":
            return None
        return seed_of(self.recipe.seed, self.steps, OPTIMIZER + index, use)


def _as_rows(values: F32) -> F32:
    return values.reshape(len(values), -1) if values.ndim > 1 else values.reshape(1, -1)
