"""Layers and nodes of networks, for networks built by hand.

>>> from heterocompute import hardware as hw
>>> hw.layers.Conv2d(64, 128, 3, padding=1).macs((64, 28, 28))
57802752
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the table below imports at run time; tests/house/test_structure.py compares both
    from .network.graph import Attention as Attention, Node as Node
    from .network.layers import (
        AddTable as AddTable,
        BatchNorm2d as BatchNorm2d,
        Context as Context,
        Conv2d as Conv2d,
        Embedding as Embedding,
        Layer as Layer,
        LayerNorm as LayerNorm,
        Linear as Linear,
        MatMul as MatMul,
        Scores as Scores,
    )
    from .network.loops import Loops as Loops
    from .network.plain import (
        Activation as Activation,
        AdaptiveAvgPool2d as AdaptiveAvgPool2d,
        Add as Add,
        AvgPool2d as AvgPool2d,
        Concat as Concat,
        Flatten as Flatten,
        MaxPool2d as MaxPool2d,
        Multiply as Multiply,
        Select as Select,
        Softmax as Softmax,
    )
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
