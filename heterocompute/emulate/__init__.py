"""Products with the accumulation of given hardware, bit for bit: narrow integers, rounded scales, logs, tensor cores.

`matmul` chooses between two models by its accumulator: codes (integers and log numbers) and floats. Their definition in
plain Python is ``heterocompute/reference/emulation.py``. `parse`, `accepts`, `linear` and `conv2d` serve studies of
whole networks.
"""

from .layers import conv2d, linear
from .model import INSTRUCTIONS, Instruction
from .product import matmul
from .text import accepts, parse

__all__ = ["INSTRUCTIONS", "Instruction", "accepts", "conv2d", "linear", "matmul", "parse"]


def __dir__() -> list[str]:
    return __all__
