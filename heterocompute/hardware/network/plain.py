"""Layers without parameters: activations, pooling, joins and selections. Shapes as in `layers`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...base.errors import WrongValue, shown
from .layers import Layer
from .windows import Pair, Shape, pair, want_image, window

__all__ = [
    "Activation",
    "AdaptiveAvgPool2d",
    "Add",
    "AvgPool2d",
    "Concat",
    "Flatten",
    "MaxPool2d",
    "Multiply",
    "Select",
    "Softmax",
]


@dataclass(frozen=True)
class Activation(Layer):
    """A function of each element: relu, relu6, gelu, silu, sigmoid, tanh, ...

    Parameters
    ----------
    kind : str, optional
    functional : bool, optional
        Called as a function instead of a module. Counters that hook modules do not see it.
    """

    kind: str = "relu"
    functional: bool = False


@dataclass(frozen=True)
class Softmax(Layer):
    """Softmax over the last axis."""


@dataclass(frozen=True)
class MaxPool2d(Layer):
    """Maximum of each window.

    Parameters
    ----------
    kernel_size, stride, padding : int or (int, int)
    ceil_mode : bool, optional
        Round the output size up.
    """

    kernel_size: Pair
    stride: Pair = 1
    padding: Pair = 0
    ceil_mode: bool = False

    def output_shape(self, *inputs: Shape) -> Shape:
        want_image(self, inputs[0], None)
        return (inputs[0][0], *window(self, inputs[0], 1, self.ceil_mode))


@dataclass(frozen=True)
class AvgPool2d(MaxPool2d):
    """Mean of each window; parameters as in `MaxPool2d`."""


@dataclass(frozen=True)
class AdaptiveAvgPool2d(Layer):
    """Average pooling with windows chosen for a given output size.

    Parameters
    ----------
    size : int or (int, int), optional
    functional : bool, optional
        Called as a function instead of a module. Counters that hook modules do not see it.
    """

    size: Pair = 1
    functional: bool = False

    def output_shape(self, *inputs: Shape) -> Shape:
        want_image(self, inputs[0], None)
        return (inputs[0][0], *pair(self.size))


@dataclass(frozen=True)
class Flatten(Layer):
    """Reshape all axes to one."""

    def output_shape(self, *inputs: Shape) -> Shape:
        return (math.prod(inputs[0]),)


@dataclass(frozen=True)
class Add(Layer):
    """Sum of inputs of equal shape."""

    def output_shape(self, *inputs: Shape) -> Shape:
        if any(shape != inputs[0] for shape in inputs):
            raise WrongValue(f"{type(self).__name__}: inputs are {', '.join(map(shown, inputs))}, expected one shape")
        return inputs[0]


@dataclass(frozen=True)
class Multiply(Layer):
    """Elementwise product of two inputs; the second may have axes of size 1."""

    def output_shape(self, *inputs: Shape) -> Shape:
        a, b = inputs
        if len(a) != len(b) or any(y not in (1, x) for x, y in zip(a, b, strict=True)):
            raise WrongValue(
                f"Multiply: inputs are {shown(a)} and {shown(b)}, expected one shape, or ones in the second"
            )
        return a


@dataclass(frozen=True)
class Concat(Layer):
    """Concatenation of inputs along the first axis."""

    def output_shape(self, *inputs: Shape) -> Shape:
        if any(shape[1:] != inputs[0][1:] for shape in inputs):
            raise WrongValue(f"Concat: inputs are {', '.join(map(shown, inputs))}, expected equal axes but the first")
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])


@dataclass(frozen=True)
class Select(Layer):
    """The first position of a sequence, as in BERT's pooler; the last one with `last`."""

    last: bool = False

    def output_shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 2:
            raise WrongValue(f"Select: input is {shown(inputs[0])}, expected (positions, width)")
        return inputs[0][1:]
