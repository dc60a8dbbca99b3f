"""Rounding a network with less error, without training: the inputs of its layers show which errors matter.

`Hessian` gathers a layer's inputs, `gptq` rounds weights under it to any format with steps or levels, `error` is the
resulting error at the layer's output. Their definition in plain NumPy is ``heterocompute/reference/ptq.py``.
"""

from .accumulator import AccumulatorBits, accumulator_bits
from .adjust import Rescaling, bound, correct_bias, rescale
from .checkpoint import quantize_checkpoint
from .error import OutputError, error
from .gate import Gate, accept
from .gptq import gptq
from .hadamard import hadamard
from .hessian import Hessian
from .network import Calibration, Rounded, calibrate, quantize
from .qronos import qronos
from .results.plan import Plan
from .rotate import rotate
from .search import search

__all__ = [
    "AccumulatorBits",
    "Calibration",
    "Gate",
    "Hessian",
    "OutputError",
    "Plan",
    "Rescaling",
    "Rounded",
    "accept",
    "accumulator_bits",
    "bound",
    "calibrate",
    "correct_bias",
    "error",
    "gptq",
    "hadamard",
    "qronos",
    "quantize",
    "quantize_checkpoint",
    "rescale",
    "rotate",
    "search",
]


def __dir__() -> list[str]:
    return __all__
