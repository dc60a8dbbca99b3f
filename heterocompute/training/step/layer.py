"""Rounding of the operands of one layer: the formats, the scales of earlier steps, and the seeds.

    y  = Q(x) Q(w)^T       forward           x and w along the input features
    dx = Q(g) Q(w)         input gradient    g and w along the output features
    dw = Q(g)^T Q(x)       weight gradient   g and x along the rows of the batch

An operand whose format has no groups is the same along both axes, and is rounded once. Arrays are those of NumPy, or
whatever `Arrays` computes with. The two matmuls of attention are such layers too, see `attention`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base.errors import WrongValue, shown
from ...formats import Format, is_function
from ...products.matmul import matmul
from ...products.quantize import fake_quantize_array, quantize
from ..chance import mix
from ..stochastic import stochastic_round
from .recipe import FP32, OPERANDS, Current, Delayed, Recipe, unscaled

LARGEST = float(np.finfo(np.float32).max)
LONG = 256  # values in a row whose overhead is small

# The uses of seeds within a layer and step.
FORWARD_X, FORWARD_W, BACK_G, BACK_W, LAST_G, LAST_X, RESULT = range(7)


class Arrays:
    """The array operations of a step, for NumPy arrays of float32."""

    def rounded(self, x: Any, fmt: Format, axis: int | tuple[int, ...], seed: int | None) -> Any:
        """Return the values rounded to a format, stochastically with a seed; NaN if the format cannot hold a NaN."""
        if fmt == FP32:
            return x
        if is_free(fmt) and x.ndim and x.flags.c_contiguous:
            return self._rounded(in_long_rows(x), fmt, -1, seed).reshape(x.shape)
        return self._rounded(x, fmt, axis, seed)

    def _rounded(
        self, x: np.ndarray[Any, Any], fmt: Format, axis: int | tuple[int, ...], seed: int | None
    ) -> np.ndarray[Any, Any]:
        try:
            if seed is None:
                return fake_quantize_array(x, fmt, axis)
            return stochastic_round(x, quantize(x, fmt, axis), seed)
        except ValueError:
            if np.isfinite(x).all():
                raise
            return np.full(x.shape, np.nan, np.float32)

    def amax(self, x: Any) -> float:
        """Return the largest magnitude; NaN if there is one."""
        return float(max(x.max(), -x.min())) if x.size else 0.0

    def scaled(self, x: Any, scale: np.float32) -> Any:
        """Return x / scale."""
        return x if scale == 1 else x / scale

    def restored(self, x: Any, scale: np.float32) -> Any:
        """Return x times scale."""
        return x if scale == 1 else x * scale

    def turned(self, x: Any, matrix: np.ndarray[Any, Any]) -> Any:
        """Return the rows of x, padded with zeros, multiplied by a matrix, block by block."""
        size = len(matrix)
        padded = np.pad(x, ((0, -len(x) % size), (0, 0))) if len(x) % size else x
        return np.asarray(np.matmul(matrix, padded.reshape(-1, size, x.shape[1])).reshape(padded.shape))

    def host(self, x: Any) -> np.ndarray[Any, Any]:
        """Return x as a contiguous NumPy array."""
        return np.ascontiguousarray(x)

    def back(self, x: np.ndarray[Any, Any], like: Any) -> Any:
        """Return a NumPy array as an array of the kind of `like`."""
        return x

    def product(self, a: Any, b: Any) -> Any:
        """Return a @ b in float32, of each matrix if there are several."""
        if a.ndim > 2:
            return each_matrix(self.product, a, b)
        return matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))


NUMPY = Arrays()


def each_matrix(product: Any, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the products of the matrices in the last two dimensions."""
    found = np.empty((*a.shape[:-1], b.shape[-1]), np.float32)
    for index in np.ndindex(*a.shape[:-2]):
        found[index] = product(a[index], b[index])
    return found


class LayerState:
    """The state of one layer between steps, and its roundings.

    Parameters
    ----------
    recipe : Recipe
    name : str
        Name of the layer, for `Recipe.keep` and errors.
    index : int
        Index of the layer in the network, which seeds depend on.
    arrays : Arrays, optional
        The operations on arrays.
    attention : bool, optional
        The layer is a matmul of attention, whose second operand is not a weight: activations and gradients alone.
    labels : mapping of str to str, optional
        Names of the operands for `watcher`.

    Attributes
    ----------
    step : int
        Number of training steps so far.
    history : dict of str to ndarray
        With `Delayed`: for each operand, the largest magnitudes of earlier steps, the latest first.
    watcher : callable or None
        Called as ``watcher(state, tensor, values, rounded, format, axis, scale)`` after each rounding.
    """

    def __init__(
        self,
        recipe: Recipe,
        name: str,
        index: int,
        arrays: Arrays = NUMPY,
        attention: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.recipe, self.name, self.index, self.arrays = recipe, name, index, arrays
        self.is_attention, self.labels = attention, labels or {}
        self.formats = recipe.attention_formats(name) if attention else recipe.formats_of(name)
        self.step = 0
        self.training = True
        self.watcher: Any = None
        scaling = self.scaling = recipe.scaling or (Current() if recipe.sums else None)
        is_delayed = isinstance(scaling, Delayed)
        self._bare = {key: unscaled(fmt) if scaling is not None else None for key, fmt in self.formats.items()}
        measured = {_operand(key) for key, bare in self._bare.items() if is_delayed and bare is not None}
        self.history: dict[str, np.ndarray[Any, Any]] = {
            key: np.zeros(scaling.history, np.float32)  # type: ignore[union-attr]
            for key in OPERANDS
            if key in measured
        }
        self.scales: dict[str, np.float32] = {}
        self._seen: dict[str, float] = {}
        self._matrix: np.ndarray[Any, Any] | None = None
        self._is_kept = recipe.kept(name) is not None or (attention and recipe.attention is not None)
        self.hadamard = None if self._is_kept or attention else recipe.hadamard
        self.is_direct = self.hadamard is None and recipe.sums is None  # a convolution needs no patches
        self.is_shared = {
            "activations": self._same_along_both("activations", "wgrad_activations"),
            "gradients": self._same_along_both("gradients", "wgrad_gradients"),
            "weights": self._is_one("weights"),
        }

    def check(self, inputs: int, outputs: int, function: str = "train_in") -> None:
        """Refuse groups that do not divide the rows of the operands, unless the recipe pads.

        Raises
        ------
        ValueError
        """
        if self.recipe.pad:
            return
        for key, size, what in (
            ("weights", inputs, "input"), ("activations", inputs, "input"), ("gradients", outputs, "output"),
            ("weights", outputs, "output"),
        ):  # fmt: skip
            group = getattr(self.formats[key], "group", None)
            if group is not None and size % group and function != "train_in":
                raise WrongValue(
                    f"{function}: the operands have {size} {what} features, expected a multiple of {group}, the group "
                    f"of {key} in {self.formats[key]}, or a recipe with pad=True"
                )
            if group is not None and size % group:
                raise WrongValue(
                    f"train_in: layer {shown(self.name)} has {size} {what} features, expected a multiple of {group}, "
                    f"the group of {key} in {self.formats[key]}; "
                    f"expected pad=True in the recipe (dataclasses.replace), or keep={{{shown(self.name)}: 'bf16'}}"
                )

    def begin(self) -> None:
        """Begin a training step: the largest magnitudes of the last step become history."""
        self.step += 1
        for key, history in self.history.items():
            if key in self._seen:
                history[1:] = history[:-1]
                history[0] = self._seen[key]
        self._seen.clear()

    def scale(self, key: str, x: Any) -> np.float32:
        """Return the scale of an operand with a format of one scale per tensor; NaN if a value is not finite."""
        scaling = self.scaling
        bare = self._bare[key]
        assert bare is not None
        margin, power = scaling.margin, scaling.power_of_two  # type: ignore[union-attr]
        largest = bare.form.maximum
        own = self.arrays.amax(x) if self.training or isinstance(scaling, Current) else 0.0
        if not math.isfinite(own):
            return np.float32(math.nan)
        if isinstance(scaling, Current):
            return scale_of(own, largest, margin, power)
        history = self.history[_operand(key)]
        if self.training:
            self._seen[_operand(key)] = max(self._seen.get(_operand(key), 0.0), own)
        assert isinstance(scaling, Delayed)
        amax = float(history[0] if scaling.amax == "most_recent" else history.max())
        return scale_of(amax, largest, margin, power)

    def rounded(self, x: Any, key: str, axis: int, use: int) -> Any:
        """Round one operand along an axis."""
        fmt, role = self.formats[key], _operand(key)
        if fmt == FP32 and self.watcher is None:
            return x
        is_random = not self._is_kept and self.recipe.rounding.get(self._role(role)) == "stochastic"
        seed = seed_of(self.recipe.seed, self.step, self.index, use) if is_random else None
        scale = None if self._bare[key] is None else self.scale(key, x)
        if scale is None:
            y = self.arrays.rounded(x, fmt, axis, seed)
        else:
            self.scales[key] = scale
            bare = self._bare[key]
            assert bare is not None
            small = self.arrays.rounded(self.arrays.scaled(x, scale), bare, axis, seed)
            y = self.arrays.restored(small, scale)
        if self.watcher is not None and self.training:
            self.watcher(self, self.labels.get(role, role), x, y, fmt, axis, scale)
        return y

    def forward(self, x: Any, w: Any) -> tuple[Any, Any]:
        """Return the operands of ``y = x w^T``; x has rows of input features."""
        return self.rounded(x, "activations", -1, FORWARD_X), self.rounded(w, "weights", -1, FORWARD_W)

    def kept_for_backward(self, x: Any, w: Any, operands: tuple[Any, Any]) -> tuple[Any, Any, dict[str, np.float32]]:
        """Return what the backward pass reads of x and w: rounded operands where they serve again.

        The third part is their scales, which `begin_backward` reads.
        """
        again = self.recipe.requantize
        return (
            operands[0] if self.is_shared["activations"] or "activations" in again else x,
            operands[1] if self.is_shared["weights"] or self._role("weights") in again else w,
            dict(self.scales),
        )

    def begin_backward(self, scales: dict[str, np.float32]) -> None:
        """Use the scales that `kept_for_backward` returned: another forward pass may have changed them."""
        self.scales.update(scales)

    def scale_in_use(self, key: str) -> np.float32:
        """Return the scale of the last rounding of an operand."""
        role = _operand(key)
        shared = self.is_shared[role]
        return self.scales.get(role if shared else key, np.float32(1))

    def input_gradient(self, g: Any, w: Any) -> tuple[Any, Any]:
        """Return the operands of ``dx = g w``; w is that of `kept_for_backward`."""
        other = w if self.is_shared["weights"] else self.rounded(w, "weights", -2, BACK_W)
        return self.rounded(g, "gradients", -1, BACK_G), other

    def weight_gradient(self, g: Any, x: Any, rounded_g: Any = None) -> tuple[Any, Any]:
        """Return the operands of ``dw = g^T x``; x is that of `kept_for_backward`, `rounded_g` of `input_gradient`."""
        if self.hadamard is not None:
            matrix = self._hadamard_matrix()
            g, x = self.arrays.turned(g, matrix), self.arrays.turned(x, matrix)
        is_old = self.is_shared["gradients"] and rounded_g is not None
        return (
            rounded_g if is_old else self.rounded(g, "wgrad_gradients", -2, LAST_G),
            x if self.is_shared["activations"] else self.rounded(x, "wgrad_activations", -2, LAST_X),
        )

    def result(self, dw: Any) -> Any:
        """Round the weight gradient. The second operand of attention is not a weight: its gradient is not rounded."""
        fmt = self.recipe.weight_gradients
        if self.is_attention or (fmt == FP32 and self.watcher is None):
            return dw
        is_random = self.recipe.rounding.get("weight_gradients") == "stochastic"
        y = self.arrays.rounded(dw, fmt, 1, seed_of(self.recipe.seed, self.step, self.index, RESULT) if is_random else
                                None)  # fmt: skip
        if self.watcher is not None and self.training:
            self.watcher(self, "weight_gradients", dw, y, fmt, 1, None)
        return y

    def state(self) -> dict[str, Any]:
        """Return what `restore` reads: the step, and the history with the magnitudes of the current step."""
        return {"step": self.step, "history": {key: value.tolist() for key, value in self.history.items()},
                "seen": dict(self._seen)}  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a result of `state`.

        Raises
        ------
        ValueError
            The histories are those of another recipe.
        """
        sizes = {key: len(value) for key, value in state["history"].items()}
        if sizes != {key: len(value) for key, value in self.history.items()}:
            raise WrongValue(f"load_state_dict: layer {shown(self.name)} has histories of another recipe: {sizes}")
        self.step, self._seen = int(state["step"]), dict(state["seen"])
        self.history = {key: np.array(value, np.float32) for key, value in state["history"].items()}

    def _role(self, operand: str) -> str:
        """Return the field of the recipe that an operand has."""
        return "activations" if self.is_attention and operand == "weights" else operand

    def _is_one(self, key: str) -> bool:
        """Tell whether an operand is the same along both axes; blocks of several matrices may reach into the next."""
        fmt = self.formats[key]
        return is_square(fmt) and not (self.is_attention and hasattr(fmt, "block_rows") and not fmt.form.any_axis)

    def _same_along_both(self, key: str, last: str) -> bool:
        return self.hadamard is None and self.formats[key] == self.formats[last] and self._is_one(key)

    def _hadamard_matrix(self) -> np.ndarray[Any, Any]:
        if self._matrix is None:
            assert self.hadamard is not None
            self._matrix = hadamard(self.hadamard, self.recipe.seed)
        return self._matrix


def scale_of(amax: float, largest: float, margin: int, power_of_two: bool) -> np.float32:
    """Return amax / largest * 2^margin in float32, 1 where amax is 0 or not finite.

    Examples
    --------
    >>> float(scale_of(896.0, 448.0, 0, False)), float(scale_of(600.0, 448.0, 0, True))
    (2.0, 2.0)
    """
    if not 0 < amax < math.inf:
        return np.float32(1)
    scale = np.float32(amax) / np.float32(largest) * np.float32(2.0**margin)
    if power_of_two:
        fraction, exponent = math.frexp(float(scale))
        scale = np.float32(math.ldexp(1.0, exponent - (fraction == 0.5)))
    return np.float32(np.clip(scale, 2.0**-126, LARGEST))


def seed_of(seed: int, *numbers: int) -> int:
    """Return the seed of one rounding: the mix of SplitMix64 over the recipe's seed, step, layer and use.

    Examples
    --------
    >>> seed_of(0, 1, 2, 3) == seed_of(0, 1, 2, 3), seed_of(0, 1, 2, 3) == seed_of(0, 1, 2, 4)
    (True, False)
    """
    for number in numbers:
        seed = mix(seed + (number + 1) * 0x9E3779B97F4A7C15)
    return seed


def hadamard(size: int, seed: int) -> np.ndarray[Any, Any]:
    """Return H D / sqrt(size): Sylvester's matrix with random signs of the columns, which is orthogonal.

    Examples
    --------
    >>> h = hadamard(4, 0)
    >>> bool((h @ h.T == np.eye(4)).all())
    True
    """
    found = np.ones((1, 1))
    while len(found) < size:
        found = np.block([[found, found], [found, -found]])
    signs = [1 - 2 * (seed_of(seed, index) >> 63) for index in range(size)]
    return np.asarray(found * signs / math.sqrt(size), np.float32)


def is_free(fmt: Format) -> bool:
    """Tell whether a format rounds values the same along any axis: no row or group has a scale of its own."""
    return bool(not is_function(fmt) and fmt.form.any_axis)


def in_long_rows(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a view with rows of at least `LONG` values where possible; x is contiguous. Short rows round slowly.

    Examples
    --------
    >>> in_long_rows(np.zeros((64, 32, 8, 8))).shape
    (64, 2048)
    """
    columns = 1
    for size in reversed(x.shape):
        if columns >= LONG:
            break
        columns *= size
    return x.reshape(-1, columns) if columns else x


def is_square(fmt: Format) -> bool:
    """Tell whether a format rounds a matrix the same along both axes: without groups, or in square blocks."""
    rows = getattr(fmt, "block_rows", None)
    return is_free(fmt) or bool(not is_function(fmt) and rows is not None and rows == getattr(fmt, "group", None))


def _operand(key: str) -> str:
    return key.removeprefix("wgrad_")
