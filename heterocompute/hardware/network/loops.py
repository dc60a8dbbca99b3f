"""The loops of a layer on an accelerator. Every product is a convolution; a matrix has one column of pixels.

N images, C channels in, K out, P x Q pixels out, R x S taps; `groups` of channels that are convolved separately. A
linear layer over m positions has P = m and Q = R = S = 1; a matmul of two activations has a group for each head, and
the second operand counts as the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...base.errors import WrongValue
from ...base.values import check_fields
from ..mapper.problem import Problem
from .heads import Experts
from .layers import Conv2d, Product
from .windows import pair

if TYPE_CHECKING:
    from .graph import Flow

__all__ = ["Loops"]


@dataclass(frozen=True)
class Loops:
    """The seven loops of a layer, with its stride and groups.

    Attributes
    ----------
    name : str
    n : int
        Images in the batch.
    c, k : int
        Input and output channels of all groups together.
    p, q : int
        Height and width of the output.
    r, s : int
        Height and width of the filter.
    stride, dilation, padding : (int, int)
        (vertical, horizontal).
    groups : int

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> first = hw.networks["resnet50"].problems()[0]
    >>> first.c, first.k, first.p, first.r, first.stride, first.macs
    (3, 64, 112, 7, (2, 2), 118013952)
    """

    name: str
    n: int
    c: int
    k: int
    p: int
    q: int = 1
    r: int = 1
    s: int = 1
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    padding: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        check_fields(self, ("padding",))
        for name in ("c", "k"):
            if getattr(self, name) % self.groups:
                raise WrongValue(f"Loops: {name} is {getattr(self, name)}, expected a multiple of groups {self.groups}")

    @property
    def macs(self) -> int:
        """Return the multiply-adds of all groups and images."""
        return self.n * self.c * self.k * self.p * self.q * self.r * self.s // self.groups

    @property
    def weights(self) -> int:
        """Return the number of weights."""
        return self.c * self.k * self.r * self.s // self.groups

    @property
    def inputs(self) -> int:
        """Return the number of input values that the windows span, including padding and pixels that strides skip."""
        high = 1 + self.stride[0] * (self.p - 1) + self.dilation[0] * (self.r - 1)
        wide = 1 + self.stride[1] * (self.q - 1) + self.dilation[1] * (self.s - 1)
        return self.n * self.c * high * wide

    @property
    def outputs(self) -> int:
        """Return the number of output values."""
        return self.n * self.k * self.p * self.q

    def problem(self) -> Problem:
        """Return one group as a problem of the mapper, with the tensors W, I and O.

        Returns
        -------
        Problem
        """
        (down, across), (tall, wide) = self.stride, self.dilation
        dims = {"N": self.n, "K": self.k // self.groups, "C": self.c // self.groups}
        dims |= {"P": self.p, "Q": self.q, "R": self.r, "S": self.s}
        tensors = {
            "W": [{"K": 1}, {"C": 1}, {"R": 1}, {"S": 1}],
            "I": [{"N": 1}, {"C": 1}, {"P": down, "R": tall}, {"Q": across, "S": wide}],
            "O": [{"N": 1}, {"K": 1}, {"P": 1}, {"Q": 1}],
        }
        return Problem(dims, tensors, "O")

    def to_dict(self) -> dict[str, Any]:
        """Return the loops by the letters of the literature, for JSON.

        Returns
        -------
        dict
        """
        found: dict[str, Any] = {key.upper(): getattr(self, key) for key in ("n", "c", "k", "p", "q", "r", "s")}
        pairs = {key: list(getattr(self, key)) for key in ("stride", "dilation", "padding")}
        return {**found, **pairs, "groups": self.groups}


def runs_of(flow: Flow, batch: int) -> int:
    """Return how many times a node runs for a batch: once if both operands are made of parameters."""
    return 1 if isinstance(flow.layer, Product) and flow.layer.once else batch


def matmuls(flow: Flow, batch: int) -> tuple[int, int, int, int] | None:
    """Return (count, m, n, k) of the matmuls of one sample; for experts, of the whole batch.

    Returns
    -------
    (int, int, int, int) or None
        None if the node has no matmul.
    """
    if isinstance(flow.layer, Experts):
        positions, width = flow.inputs[0]
        return flow.layer.gemm((batch * positions, width))
    return flow.layer.gemm(*flow.inputs)


def loops_of(flow: Flow, batch: int) -> Loops | None:
    """Return the loops of a node for a batch; None if it has no product."""
    product = matmuls(flow, batch)
    if product is None:
        return None
    groups, m, n, k = product
    layer = flow.layer
    if not isinstance(layer, Conv2d):
        runs = 1 if isinstance(layer, Experts) else runs_of(flow, batch)
        return Loops(flow.name, runs, k * groups, n * groups, m, groups=groups)
    (p, q), (r, s) = flow.output[1:], pair(layer.kernel_size)
    stride, dilation = pair(layer.stride), pair(layer.dilation)
    sizes = (batch, layer.in_channels, layer.out_channels, p, q, r, s)
    return Loops(flow.name, *sizes, stride, dilation, groups, pair(layer.padding))
