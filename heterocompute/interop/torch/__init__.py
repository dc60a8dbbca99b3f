"""PyTorch: modules with packed weights, matmuls with them, and rounding with a gradient.

`convert` packs the layers of a model, `linear` and `conv2d` multiply by packed weights, `fake_quantize`, `QuantLinear`
and `parametrize` round in training. Importing this package imports torch: an operator must be known before anything
is compiled.

>>> from heterocompute.interop import torch as ht
>>> small = ht.convert(torch.nn.Linear(64, 8), "int4-g32", activations="int8")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...base.errors import shown

if TYPE_CHECKING or find_spec("torch") is not None:
    from .attention import PackedMultiheadAttention
    from .conversion import convert, load_packed
    from .export import export_onnx
    from .fused import fuse
    from .modules import (
        PackedConv1d,
        PackedConv2d,
        PackedConv3d,
        PackedConvTranspose1d,
        PackedConvTranspose2d,
        PackedConvTranspose3d,
        PackedEmbedding,
        PackedEmbeddingBag,
        PackedLinear,
    )
    from .products import conv2d, linear
    from .recipes.model import train_in
    from .recipes.optimizer import Madam, RecipeOptimizer, optimizer_in
    from .recipes.plain import without_recipe
    from .recipes.reducing import reduce_in
    from .recipes.watching import watch
    from .rounding import QuantLinear, fake_quantize, packed, parametrize
    from .steps import report
    from .summary import Summary, summary
    from .unit import as_device
    from .walk import Layer, layers
    from .weights import PackedWeight
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {shown(__name__)} has no attribute {shown(name)}")
        raise ImportError("interop.torch needs torch: pip install torch")


__all__ = [
    "Layer",
    "Madam",
    "PackedConv1d",
    "PackedConv2d",
    "PackedConv3d",
    "PackedConvTranspose1d",
    "PackedConvTranspose2d",
    "PackedConvTranspose3d",
    "PackedEmbedding",
    "PackedEmbeddingBag",
    "PackedLinear",
    "PackedMultiheadAttention",
    "PackedWeight",
    "QuantLinear",
    "RecipeOptimizer",
    "Summary",
    "as_device",
    "conv2d",
    "convert",
    "export_onnx",
    "fake_quantize",
    "fuse",
    "layers",
    "linear",
    "load_packed",
    "optimizer_in",
    "packed",
    "parametrize",
    "reduce_in",
    "report",
    "summary",
    "train_in",
    "watch",
    "without_recipe",
]


def __dir__() -> list[str]:
    return __all__
