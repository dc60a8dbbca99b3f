"""Layers with packed weights, by which `convert` replaces PyTorch's.

`build` maps a kind of `walk.Layer` to its replacement. PyTorch's attributes keep their names.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch.nn import functional

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongType, WrongValue, shown
from ...formats import Format
from .products import convolve, embedding, linear
from .weights import PackedWeight

Array = np.ndarray[Any, Any]


class Packed(torch.nn.Module):
    """Base class of layers with one packed weight.

    Attributes
    ----------
    weight : PackedWeight
    bias : torch.nn.Parameter or None
    """

    kind: str  # of `walk.Layer`
    weight: PackedWeight

    def __init__(
        self, q: QuantizedArray | PackedWeight, bias: object = None, activations: Format | str | None = None
    ) -> None:
        super().__init__()
        self.weight = q if isinstance(q, PackedWeight) else PackedWeight(q, activations)
        if bias is not None and not isinstance(bias, torch.Tensor):
            raise WrongType(f"{type(self).__name__}: bias is {shown(bias)}, expected a torch.Tensor or None")
        parameter = bias if bias is None or isinstance(bias, torch.nn.Parameter) else torch.nn.Parameter(bias)
        self.register_parameter("bias", parameter)

    @property
    def activations(self) -> str | None:
        """Return the format that inputs are rounded to, as a text that any process reads."""
        return self.weight.activations

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local: object,
        strict: bool,
        missing: object,
        unexpected: object,
        errors: Any,
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, local, strict, missing, unexpected, errors)
        if f"{prefix}weight" in state_dict:
            errors.append(f"{prefix}weight is of floats, but packed in the model: load floats before convert")

    def packed(self) -> QuantizedArray:
        """Return the weight as a QuantizedArray, which shares the memory of the buffers."""
        return self.weight.array()

    def _values(self) -> Array:
        """Return the float32 weight in the shape that PyTorch's layer has."""
        return original(self.weight.array().dequantize(), self)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """Return inputs as they are before they are rounded; a second call returns the inputs."""
        return x


def original(values: Array, module: Any) -> Array:
    """Return values of the shape of a packed weight in the shape that PyTorch's layer has."""
    kernel = getattr(module, "kernel_size", None)
    if kernel is None or values.ndim != 4:
        return values
    found = values.reshape(*values.shape[:2], *kernel)
    if module.transposed:
        groups = module.groups
        found = np.flip(found, tuple(range(2, found.ndim)))
        found = found.reshape(groups, -1, *found.shape[1:]).swapaxes(1, 2)
        found = found.reshape(-1, *found.shape[2:])
    return np.ascontiguousarray(found)


class PackedLinear(Packed):
    """A linear layer with a packed weight.

    Parameters
    ----------
    q : QuantizedArray or PackedWeight
        Shape (out_features, in_features), quantized along in_features.
    bias : torch.Tensor, optional
        Shape (out_features,). Its gradient and that of x are computed; the weight is frozen.
    activations : Format or str, optional
        Round the inputs to this format, per row.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> layer = PackedLinear(hc.quantize(np.eye(4, 32, dtype=np.float32), "int4-g32"), activations="int8")
    >>> layer(torch.ones(2, 32)).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """

    kind = "linear"

    def __init__(
        self, q: QuantizedArray | PackedWeight, bias: object = None, activations: Format | str | None = None
    ) -> None:
        super().__init__(q, bias, activations)
        if len(self.weight.shape) != 2:
            raise WrongValue(
                f"PackedLinear: q has shape {tuple(self.weight.shape)}, expected (out_features, in_features)"
            )
        self.out_features, self.in_features = self.weight.shape

    @classmethod
    def from_module(cls, module: object, weight: PackedWeight) -> Self:
        """Copy the bias of a layer."""
        return cls(weight, getattr(module, "bias", None))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = linear(input, self.weight, self.bias)
        return answer

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


OF_CONVOLUTIONS = (
    *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
    *("transposed", "output_padding", "padding_mode", "_reversed_padding_repeated_twice"),
)


class _PackedConvolution(Packed):
    """A convolution with packed filters. Returned by `convert`.

    The filters are (K, C / groups, R, S), including those of a transposed convolution, which is computed as a
    convolution of x with zeros between its values. 1-D filters are (K, C / groups, 1, S). 3-D filters are
    (K, C / groups, T R S, 1): each window is stored, and activations are rounded per window.

    Attributes
    ----------
    in_channels, out_channels, kernel_size, stride, padding, dilation, groups, transposed, output_padding, padding_mode
        As in `torch.nn.Conv2d`.
    """

    @classmethod
    def from_module(cls, module: Any, weight: PackedWeight) -> Self:
        """Copy the bias and the window of a layer."""
        made = cls(weight, module.bias)
        for name in OF_CONVOLUTIONS:
            setattr(made, name, getattr(module, name))
        return made

    def _padded(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return x with the padding that the core does not support, and the remaining padding."""
        twice, n = self._reversed_padding_repeated_twice, len(self.kernel_size)
        if self.padding_mode != "zeros":
            return functional.pad(x, twice, mode=self.padding_mode), (0,) * n
        if not isinstance(self.padding, str):
            return x, self.padding
        pairs = [(twice[2 * i], twice[2 * i + 1]) for i in range(n - 1, -1, -1)]
        if all(before == after for before, after in pairs):
            return x, tuple(before for before, _ in pairs)
        return functional.pad(x, twice), (0,) * n

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        input, padding = self._padded(input)
        window = self.kernel_size, self.stride, padding, self.dilation, self.groups
        answer: torch.Tensor = convolve(input, self.weight, self.bias, *window)
        return answer

    def extra_repr(self) -> str:
        names = ("kernel_size", "stride", "padding", "dilation", "groups")
        more = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"{self.in_channels}, {self.out_channels}, {more}, bias={self.bias is not None}"


class _PackedTransposed(_PackedConvolution):
    __doc__ = _PackedConvolution.__doc__

    def forward(self, input: torch.Tensor, output_size: object = None) -> torch.Tensor:
        n = len(self.kernel_size)
        if input.dim() == n + 1:
            return self(input[None], output_size)[0]
        beyond = self.output_padding
        if output_size is not None:
            rule = torch.nn.ConvTranspose2d._output_padding
            beyond = rule(self, input, output_size, self.stride, self.padding, self.kernel_size, n, self.dilation)
        pads: list[int] = []
        for i in range(n - 1, -1, -1):
            before = self.dilation[i] * (self.kernel_size[i] - 1) - self.padding[i]
            pads += [before, before + beyond[i]]
        spread = functional.pad(between_zeros(input, self.stride), pads)
        ones, zeros = (1,) * n, (0,) * n
        answer: torch.Tensor = convolve(
            spread, self.weight, self.bias, self.kernel_size, ones, zeros, self.dilation, self.groups
        )
        return answer


def between_zeros(x: torch.Tensor, stride: Any) -> torch.Tensor:
    """Return x with ``stride - 1`` zeros between its values along each dimension but the first two."""
    for i, step in enumerate(stride):
        if step > 1:
            dim = i + 2
            x = functional.pad(x.unsqueeze(dim + 1), [0, 0] * (x.dim() - dim - 1) + [0, step - 1]).flatten(dim, dim + 1)
            x = x.narrow(dim, 0, x.shape[dim] - step + 1)
    return x


class PackedConv1d(_PackedConvolution):
    __doc__ = _PackedConvolution.__doc__
    kind = "conv1d"


class PackedConv2d(_PackedConvolution):
    __doc__ = _PackedConvolution.__doc__
    kind = "conv2d"


class PackedConv3d(_PackedConvolution):
    __doc__ = _PackedConvolution.__doc__
    kind = "conv3d"


class PackedConvTranspose1d(_PackedTransposed):
    __doc__ = _PackedConvolution.__doc__
    kind = "conv_transpose1d"


class PackedConvTranspose2d(_PackedTransposed):
    __doc__ = _PackedConvolution.__doc__
    kind = "conv_transpose2d"


class PackedConvTranspose3d(_PackedTransposed):
    __doc__ = _PackedConvolution.__doc__
    kind = "conv_transpose3d"


class PackedEmbedding(Packed):
    """An embedding with a packed table; rows are decoded at lookup.

    Parameters
    ----------
    q : QuantizedArray or PackedWeight
        Shape (num_embeddings, embedding_dim), quantized along embedding_dim.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> table = PackedEmbedding(hc.quantize(np.eye(4, 32, dtype=np.float32), "int4-g32"))
    >>> table(torch.tensor([[2]]))[0, 0, :4].tolist()
    [0.0, 0.0, 1.0, 0.0]
    """

    kind = "embedding"

    def __init__(self, q: QuantizedArray | PackedWeight) -> None:
        super().__init__(q)
        self.num_embeddings, self.embedding_dim = self.weight.shape

    @classmethod
    def from_module(cls, module: Any, weight: PackedWeight) -> Self:
        """Copy the row options of a layer."""
        made = cls(weight)
        made.padding_idx = module.padding_idx
        return made

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return embedding(input, self.weight, self.weight.dtype)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class PackedEmbeddingBag(PackedEmbedding):
    """A packed embedding whose rows are summed per bag, as in `torch.nn.EmbeddingBag`."""

    kind = "embedding_bag"

    @classmethod
    def from_module(cls, module: object, weight: PackedWeight) -> Self:
        """Copy the bag options of a layer."""
        made = cls(weight)
        for name in ("mode", "include_last_offset", "padding_idx"):
            setattr(made, name, getattr(module, name))
        return made

    def forward(self, input: torch.Tensor, offsets: object = None, per_sample_weights: object = None) -> torch.Tensor:
        ids, places = torch.unique(input, return_inverse=True)
        rows = embedding(ids, self.weight, self.weight.dtype)
        padding = None
        if self.padding_idx is not None:
            hit = (ids == self.padding_idx).nonzero()
            padding = int(hit) if hit.numel() else None
        answer: torch.Tensor = functional.embedding_bag(
            places.to(input.dtype),
            rows,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )
        return answer
