"""Layers of language models with several parallel matrices: norms and matmuls of heads, and experts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...base.errors import WrongValue, shown
from ...base.values import check_fields
from .layers import Context, Layer, Scores
from .windows import Shape, want_image, want_last


@dataclass(frozen=True)
class HeadNorm(Layer):
    """RMSNorm of each head of (positions, heads·width).

    Parameters
    ----------
    heads, width : int
    apart : bool
        Each head has factors of its own.
    """

    heads: int
    width: int
    apart: bool = False

    @property
    def weight_params(self) -> int:
        return self.width * (self.heads if self.apart else 1)

    def output_shape(self, *inputs: Shape) -> Shape:
        want_last(self, inputs[0], self.heads * self.width)
        return inputs[0]


@dataclass(frozen=True)
class Heads(Layer):
    """One matrix per head: (positions, heads·in) to (positions, heads·out), without a bias.

    Parameters
    ----------
    heads, in_features, out_features : int
        Features are those of a head.
    """

    heads: int
    in_features: int
    out_features: int

    @property
    def weight_params(self) -> int:
        return self.heads * self.in_features * self.out_features

    def output_shape(self, *inputs: Shape) -> Shape:
        want_last(self, inputs[0], self.heads * self.in_features)
        return (*inputs[0][:-1], self.heads * self.out_features)

    def macs(self, *inputs: Shape) -> int:
        return math.prod(self.output_shape(*inputs)) * self.in_features

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        return self.heads, math.prod(inputs[0][:-1]), self.out_features, self.in_features


@dataclass(frozen=True)
class Experts(Layer):
    """One matrix per expert, of which each position uses some.

    The matmuls are those of the experts that the positions reach. Routing is uniform and independent for each position,
    which leaves experts (1 - used / experts)^positions experts unreached on average. Each reached expert multiplies the
    same number of positions, rounded.

    Parameters
    ----------
    in_features, out_features : int
        Of one expert.
    experts, used : int
        All of them, and those that each position uses.
    bias : bool, optional
    joins : bool, optional
        Whether the input holds features for each expert in use, (positions, used·in), and the outputs are summed to
        (positions, out). By default (positions, in) becomes (positions, used·out).
    """

    in_features: int
    out_features: int
    experts: int
    used: int
    bias: bool = False
    joins: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.used > self.experts:
            raise WrongValue(f"Experts: used is {shown(self.used)}, expected at most experts, {shown(self.experts)}")

    @property
    def weight_params(self) -> int:
        return self.experts * self.in_features * self.out_features

    @property
    def bias_params(self) -> int:
        return self.experts * self.out_features if self.bias else 0

    def output_shape(self, *inputs: Shape) -> Shape:
        want_last(self, inputs[0], self.in_features * (self.used if self.joins else 1))
        return (*inputs[0][:-1], self.out_features * (1 if self.joins else self.used))

    def macs(self, *inputs: Shape) -> int:
        return math.prod(inputs[0][:-1]) * self.used * self.in_features * self.out_features

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        positions = math.prod(inputs[0][:-1])
        reached = round(self.experts * (1 - (1 - self.used / self.experts) ** positions))
        return reached, max(1, round(positions * self.used / reached)), self.out_features, self.in_features


@dataclass(frozen=True)
class FusedAttention(Layer):
    """Attention in one kernel: queries, keys and values to their mix. The scores stay on chip.

    Dao et al., "FlashAttention", NeurIPS 2022.

    Parameters
    ----------
    heads, kv_heads : int
    sinks : bool, optional
        Whether each head has a learned score.
    """

    heads: int
    kv_heads: int
    sinks: bool = False

    @property
    def bias_params(self) -> int:
        return self.heads if self.sinks else 0

    def output_shape(self, *inputs: Shape) -> Shape:
        queries, keys, values = inputs
        scores = Scores(self.heads, self.kv_heads).output_shape(queries, keys)
        return Context(self.heads, self.kv_heads).output_shape(scores, values)

    def gemm(self, *inputs: Shape) -> tuple[int, int, int, int]:
        queries, keys, values = inputs
        width = queries[1] // self.heads + values[1] // self.kv_heads
        return self.kv_heads, queries[0] * (self.heads // self.kv_heads), keys[0], width


@dataclass(frozen=True)
class Sinks(Layer):
    """A learned score of each head that takes part in the softmax.

    Parameters
    ----------
    heads : int
    """

    heads: int

    @property
    def weight_params(self) -> int:
        return self.heads


@dataclass(frozen=True)
class Patches(Layer):
    """An image (channels, height, width) as a sequence (height·width + learned, channels).

    Parameters
    ----------
    channels : int
    learned : int, optional
        Learned positions that are put before the others, such as the class token.
    """

    channels: int
    learned: int = 1

    def __post_init__(self) -> None:
        check_fields(self, ("learned",))

    @property
    def weight_params(self) -> int:
        return self.learned * self.channels

    def output_shape(self, *inputs: Shape) -> Shape:
        want_image(self, inputs[0], self.channels)
        return (math.prod(inputs[0][1:]) + self.learned, self.channels)
