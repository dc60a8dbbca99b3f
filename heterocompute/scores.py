"""Scores of weights for pruning, as `hc.scores` and for ``from heterocompute.scores import``.

>>> from heterocompute.scores import wanda
>>> wanda([[-2.0, 1.0]], [[1.0, 3.0]]).tolist()
[[2.0, 3.0]]
"""

from .pruning.scores import __all__ as __all__, sparsegpt as sparsegpt, wanda as wanda


def __dir__() -> list[str]:
    return __all__
