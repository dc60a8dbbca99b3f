"""Layers with packed weights, which `convert` puts in the places of PyTorch's."""

from __future__ import annotations

from typing import Any, Self

import torch

from ...arrays.quantized import QuantizedArray
from ...base.values import shown
from ...formats import Format
from .products import linear
from .weights import PackedWeight

__all__ = ["PackedLinear"]


class Packed(torch.nn.Module):
    """What layers with one packed weight have in common.

    Attributes
    ----------
    weight : PackedWeight
    bias : torch.nn.Parameter or None
    activations : str or None
        Format that inputs are rounded to; it can be set.
    """

    weight: PackedWeight

    def __init__(
        self, q: QuantizedArray | PackedWeight, bias: Any = None, activations: Format | str | None = None
    ) -> None:
        super().__init__()
        weight = q if isinstance(q, PackedWeight) else PackedWeight(q, activations)
        self.weight = weight
        if bias is not None and not isinstance(bias, torch.Tensor):
            raise TypeError(f"{type(self).__name__}: bias is {shown(bias)}, expected a torch.Tensor or None")
        parameter = bias if bias is None or isinstance(bias, torch.nn.Parameter) else torch.nn.Parameter(bias)
        self.register_parameter("bias", parameter)

    @property
    def activations(self) -> str | None:
        return self.weight.activations

    def packed(self) -> QuantizedArray:
        """Return the weight as a QuantizedArray, which shares the memory of the buffers."""
        return self.weight.array()

    def _repr_of_weight(self) -> str:
        return f"bias={self.bias is not None}"


class PackedLinear(Packed):
    """A linear layer with a packed weight.

    Parameters
    ----------
    q : QuantizedArray or PackedWeight
        (out_features, in_features), quantized along the inputs.
    bias : torch.Tensor, optional
        (out_features,). It can be trained, and so can x; the weight is frozen.
    activations : Format or str, optional
        Round inputs to this format, row by row.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> layer = PackedLinear(hc.quantize(np.eye(4, 32, dtype=np.float32), "int4-g32"), activations="int8")
    >>> layer(torch.ones(2, 32)).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """

    def __init__(
        self, q: QuantizedArray | PackedWeight, bias: Any = None, activations: Format | str | None = None
    ) -> None:
        super().__init__(q, bias, activations)
        if len(self.weight.shape) != 2:
            raise ValueError(
                f"PackedLinear: q has shape {tuple(self.weight.shape)}, expected (out_features, in_features)"
            )
        self.out_features, self.in_features = self.weight.shape

    @classmethod
    def from_module(cls, module: Any, weight: PackedWeight) -> Self:
        """Take over the bias of a layer."""
        made = cls(weight, module.bias)
        made.train(module.training)
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = linear(x, self.weight, self.bias)
        return answer

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {self._repr_of_weight()}"
