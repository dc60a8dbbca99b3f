"""Layers and nodes of networks, for networks built by hand.

>>> from heterocompute import hardware as hw
>>> hw.layers.Conv2d(64, 128, 3, padding=1).macs((64, 28, 28))
57802752
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the table below imports at run time; tests/house/test_structure.py compares both
    from .network.graph import Attention as Attention, Node as Node
    from .network.layers import *
    from .network.loops import *
    from .network.plain import *
else:  # hidden from type checkers, which would accept any name
    from ..base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(
        __package__,
        {
            "network.graph": "Attention Node",
            "network.layers": "AddTable BatchNorm2d Context Conv2d Embedding Layer LayerNorm Linear MatMul Scores",
            "network.loops": "Loops",
            "network.plain": (
                "Activation AdaptiveAvgPool2d Add AvgPool2d Concat Flatten MaxPool2d Multiply Select Softmax"
            ),
        },
        module=__name__,
    )
