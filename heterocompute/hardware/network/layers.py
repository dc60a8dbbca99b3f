"""Layers of networks as values: input and output shapes, parameters, multiply-adds. No numbers are computed.

A shape has no batch: (channels, height, width) of an image, (positions, width) of a sequence, (width,) of a vector,
(positions,) of tokens. Multiply-adds are those of one sample.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.errors import WrongValue, shown
from ...base.values import check_fields
from .windows import Pair, Shape, pair, want_image, want_last, window

__all__ = [
    "AddTable",
    "BatchNorm2d",
    "Context",
    "Conv2d",
    "Embedding",
    "Layer",
    "LayerNorm",
    "Linear",
    "MatMul",
    "Scores",
]


def _with_shapes(method: Any) -> Any:
    """Return a method of a layer that checks its shapes before it runs."""

    @functools.wraps(method)
    def checked(self: Any, *inputs: object) -> Any:
        for shape in inputs:
            if type(shape) is not tuple or not all(type(size) is int and 0 < size < 2**63 for size in shape):
                inputs = tuple(_shape(self, one) for one in inputs)
                break
        try:
            return method(self, *inputs)
        except (IndexError, ValueError) as error:
            if isinstance(error, ValueError) and "unpack" not in str(error):
                raise
            title, given = type(self).__name__, f"input is {', '.join(map(shown, inputs)) or 'missing'}"
            raise WrongValue(f"{title}: {given}, expected shapes of its inputs, without a batch") from None

    return checked


def _shape(layer: object, shape: object) -> Shape:
    parts = tuple(shape) if isinstance(shape, (tuple, list)) else ()
    whole = all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in parts)
    if not isinstance(shape, (tuple, list)) or not whole or not all(0 < one < 2**63 for one in parts):
        raise WrongValue(f"{type(layer).__name__}: input is {shown(shape)}, expected a shape of positive integers")
    return tuple(int(one) for one in parts)


@dataclass(frozen=True)
class Layer:
    """Base class of all layers. Sizes that a layer does not state are free."""

    def __post_init__(self) -> None:
        check_fields(self, ("padding", "cached", "held", "biases"))

    def __init_subclass__(cls) -> None:
        for name in ("output_shape", "gemm"):
            if name in vars(cls):
                setattr(cls, name, _with_shapes(vars(cls)[name]))

    @property
    def params(self) -> int:
        """Return the number of parameters, including the bias."""
        return self.weight_params + self.bias_params

    @property
    def weight_params(self) -> int:
        """Return the number of parameters without the bias."""
        return 0

    @property
    def bias_params(self) -> int:
        """Return the number of parameters of the bias."""
        return 0

    def output_shape(self, *inputs: Shape) -> Shape:
        """Return the output shape of one sample; ValueError if the input shapes do not match."""
        return inputs[0]

    def macs(self, *inputs: Shape) -> int:
        """Return the multiply-adds of matmuls and convolutions of one sample, without the bias."""
        products = self.gemm(*inputs)
        return math.prod(products) if products else 0

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int] | None:
        """Return (count, m, n, k) of the matmuls that `macs` counts, of one sample; None if there are none.

        The n x k operand is the weight, or the cache for matmuls of two activations.
        """
        return None


@dataclass(frozen=True)
class Conv2d(Layer):
    """Convolution over (channels, height, width).

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size : int or (int, int)
    stride, padding, dilation : int or (int, int), optional
    groups : int, optional
    bias : bool, optional
    shared : bool, optional
        The filters belong to another layer: they add multiply-adds but no parameters.
    """

    in_channels: int
    out_channels: int
    kernel_size: Pair
    stride: Pair = 1
    padding: Pair = 0
    dilation: Pair = 1
    groups: int = 1
    bias: bool = True
    shared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise WrongValue(f"Conv2d: {name} is {getattr(self, name)}, not a multiple of groups {self.groups}")

    @property
    def weight_params(self) -> int:
        taps = math.prod(pair(self.kernel_size))
        return 0 if self.shared else self.out_channels * self.in_channels // self.groups * taps

    @property
    def bias_params(self) -> int:
        return self.out_channels if self.bias else 0

    def output_shape(self, *inputs: Shape) -> Shape:
        want_image(self, inputs[0], self.in_channels)
        return (self.out_channels, *window(self, inputs[0], self.dilation))

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        positions = math.prod(self.output_shape(*inputs)[1:])
        k = self.in_channels // self.groups * math.prod(pair(self.kernel_size))
        return self.groups, positions, self.out_channels // self.groups, k


@dataclass(frozen=True)
class Linear(Layer):
    """Fully connected layer over the last axis.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool, optional
    shared : bool, optional
        The matrix belongs to another layer (a tied output layer): it adds multiply-adds but no parameters.
    """

    in_features: int
    out_features: int
    bias: bool = True
    shared: bool = False

    @property
    def weight_params(self) -> int:
        return 0 if self.shared else self.in_features * self.out_features

    @property
    def bias_params(self) -> int:
        return self.out_features if self.bias else 0

    def output_shape(self, *inputs: Shape) -> Shape:
        want_last(self, inputs[0], self.in_features)
        return (*inputs[0][:-1], self.out_features)

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        *leading, n = self.output_shape(*inputs)
        return 1, math.prod(leading), n, self.in_features


@dataclass(frozen=True)
class Scores(Layer):
    """Attention's first matmul: queries (positions, heads·d) times keys, d = width / heads.

    Parameters
    ----------
    heads : int
    kv_heads : int, optional
        Heads of the keys, if several query heads share one.
    cached : int, optional
        Positions whose keys are already cached.
    window : int, optional
        Positions that a query sees, its own included. Default: all. Only `Network.decoding` uses it.
    """

    heads: int
    kv_heads: int | None = None
    cached: int = 0
    window: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_heads(self)

    def output_shape(self, *inputs: Shape) -> Shape:
        queries, keys = inputs
        _want_heads(self, queries, keys)
        return (self.heads, queries[0], self.cached + keys[0])

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        _, m, n = self.output_shape(*inputs)
        groups = self.kv_heads or self.heads
        return groups, m * (self.heads // groups), n, inputs[0][1] // self.heads


@dataclass(frozen=True)
class Context(Layer):
    """Attention's second matmul: weights (heads, positions, keys) times values (positions, kv_heads·d).

    Parameters
    ----------
    heads : int
    kv_heads : int, optional
    cached : int, optional
        Positions whose values are already cached.
    window : int, optional
        Positions that a query sees, its own included. Default: all. Only `Network.decoding` uses it.
    """

    heads: int
    kv_heads: int | None = None
    cached: int = 0
    window: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_heads(self)

    def output_shape(self, *inputs: Shape) -> Shape:
        weights, values = inputs
        groups = self.kv_heads or self.heads
        if len(weights) != 3 or len(values) != 2 or weights[0] != self.heads or values[1] % groups:
            raise WrongValue(
                f"Context: inputs are {shown(weights)} and {shown(values)}, expected ({self.heads}, m, n) and (n, "
                "width)"
            )
        if weights[2] != self.cached + values[0]:
            raise WrongValue(
                f"Context: {weights[2]} weights per query, expected one for each of {self.cached + values[0]} values"
            )
        return (weights[1], self.heads * (values[1] // groups))

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        m, width = self.output_shape(*inputs)
        groups = self.kv_heads or self.heads
        return groups, m * (self.heads // groups), width // self.heads, inputs[0][2]


@dataclass(frozen=True)
class MatMul(Layer):
    """Matmul of two activations, (..., m, k) times (..., k, n), with equal leading axes."""

    def output_shape(self, *inputs: Shape) -> Shape:
        a, b = inputs
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-2] or a[:-2] != b[:-2]:
            raise WrongValue(f"MatMul: inputs are {shown(a)} and {shown(b)}, expected (..., m, k) and (..., k, n)")
        return (*a[:-1], b[-1])

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        *leading, m, n = self.output_shape(*inputs)
        return math.prod(leading), m, n, inputs[0][-1]


@dataclass(frozen=True)
class TimesMatrix(Layer):
    """Product with a constant matrix of (k, n), as ONNX writes linear layers.

    Parameters
    ----------
    k, n : int
    """

    k: int
    n: int

    @property
    def weight_params(self) -> int:
        return self.k * self.n

    def output_shape(self, *inputs: Shape) -> Shape:
        want_last(self, inputs[0], self.k)
        return (*inputs[0][:-1], self.n)

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        *leading, n = self.output_shape(*inputs)
        return 1, math.prod(leading), n, self.k


@dataclass(frozen=True)
class Product(Layer):
    """Products of known sizes that no other layer describes, such as convolutions of one or three dimensions.

    Parameters
    ----------
    kind : str
        The operator, or the equation of an einsum.
    sizes : (int, int, int, int)
        (count, m, n, k) of the products of one sample.
    shape : tuple of int
        Of the output, without a batch.
    held, biases : int, optional
        Parameters of the weights, and of the bias.
    once : bool, optional
        Both operands are made of parameters: the product is computed once for a batch.
    """

    kind: str
    sizes: tuple[int, int, int, int]
    shape: Shape
    held: int = 0
    biases: int = 0
    once: bool = False

    @property
    def weight_params(self) -> int:
        return self.held

    @property
    def bias_params(self) -> int:
        return self.biases

    def output_shape(self, *inputs: Shape) -> Shape:
        return self.shape

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        return self.sizes


@dataclass(frozen=True)
class Embedding(Layer):
    """Look up a row of a table for each token.

    Parameters
    ----------
    rows, width : int
    """

    rows: int
    width: int

    @property
    def weight_params(self) -> int:
        return self.rows * self.width

    def output_shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 1:
            raise WrongValue(f"Embedding: input is {shown(inputs[0])}, expected (positions,)")
        return (inputs[0][0], self.width)


@dataclass(frozen=True)
class AddTable(Layer):
    """Add rows of a table to a sequence: position or type embeddings.

    Parameters
    ----------
    rows, width : int
    limits : bool, optional
        Whether the table's rows limit the length of the sequence.
    """

    rows: int
    width: int
    limits: bool = True

    @property
    def weight_params(self) -> int:
        return self.rows * self.width

    def output_shape(self, *inputs: Shape) -> Shape:
        want_last(self, inputs[0], self.width)
        if self.limits and inputs[0][0] > self.rows:
            raise WrongValue(f"AddTable: {inputs[0][0]} positions, but the table has {self.rows} rows")
        return inputs[0]


@dataclass(frozen=True)
class BatchNorm2d(Layer):
    """Batch normalization. Its running statistics do not count as parameters.

    Parameters
    ----------
    channels : int
    affine : bool, optional
    """

    channels: int
    affine: bool = True

    @property
    def weight_params(self) -> int:
        return self.channels if self.affine else 0

    @property
    def bias_params(self) -> int:
        return self.channels if self.affine else 0

    def output_shape(self, *inputs: Shape) -> Shape:
        want_image(self, inputs[0], self.channels)
        return inputs[0]


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Normalization of the last axis. Without a bias it has the size of RMSNorm.

    Parameters
    ----------
    width : int
    bias : bool, optional
    """

    width: int
    bias: bool = True

    @property
    def weight_params(self) -> int:
        return self.width

    @property
    def bias_params(self) -> int:
        return self.width if self.bias else 0

    def output_shape(self, *inputs: Shape) -> Shape:
        want_last(self, inputs[0], self.width)
        return inputs[0]


def _check_heads(layer: Scores | Context) -> None:
    groups = layer.heads if layer.kv_heads is None else layer.kv_heads
    if layer.heads % groups:
        name = type(layer).__name__
        raise WrongValue(f"{name}: kv_heads is {groups}, expected a divisor of heads {layer.heads}")


def _want_heads(layer: Scores, queries: Shape, keys: Shape) -> None:
    groups = layer.kv_heads or layer.heads
    fits = len(queries) == len(keys) == 2 and not queries[1] % layer.heads and not keys[1] % groups
    if not fits or queries[1] // layer.heads != keys[1] // groups:
        raise WrongValue(
            f"Scores: inputs are {shown(queries)} and {shown(keys)}, expected (m, {layer.heads} x d) and (n, "
            f"{groups} x d)"
        )
