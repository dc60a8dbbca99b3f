"""Layers of networks on NumPy arrays and packed arrays, as `hc.layers` and for ``from heterocompute.layers import``.

>>> from heterocompute.layers import gelu
>>> float(gelu([0.0])[0])
0.0
"""

from .products.layers import (
    __all__ as __all__,
    avg_pool2d as avg_pool2d,
    fold_batch_norm as fold_batch_norm,
    gelu as gelu,
    layer_norm as layer_norm,
    max_pool2d as max_pool2d,
    rms_norm as rms_norm,
    rope as rope,
    softmax as softmax,
    swiglu as swiglu,
)


def __dir__() -> list[str]:
    return __all__
