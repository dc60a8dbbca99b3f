"""Layers between matmuls: pooling and normalization of images, norms, positions and activations of transformers."""

from .images import avg_pool2d, fold_batch_norm, max_pool2d
from .transformer import gelu, layer_norm, rms_norm, rope, softmax, swiglu

__all__ = [
    "avg_pool2d",
    "fold_batch_norm",
    "gelu",
    "layer_norm",
    "max_pool2d",
    "rms_norm",
    "rope",
    "softmax",
    "swiglu",
]


def __dir__() -> list[str]:
    return __all__
