"""The accelerators of the literature, by name, with the cost of an inference in seconds and joules.

>>> from heterocompute import hardware as hw
>>> found = hw.accelerators.eyeriss().report("digits")
>>> found.macs, sorted(found.energy_parts)[:2]
(477824, ['DRAM', 'accumulators'])
"""

from .accelerator import Accelerator as Accelerator
from .catalogue import (
    accelerator as accelerator,
    diannao as diannao,
    eie as eie,
    eyeriss as eyeriss,
    groq_lpu as groq_lpu,
    magnet as magnet,
    names as names,
    nvdla as nvdla,
    scnn as scnn,
    simba as simba,
    tensor_core as tensor_core,
    tpu_v1 as tpu_v1,
)
from .report import AcceleratorReport as AcceleratorReport, Layer as Layer

__all__ = [
    "Accelerator",
    "AcceleratorReport",
    "Layer",
    "accelerator",
    "diannao",
    "eie",
    "eyeriss",
    "groq_lpu",
    "magnet",
    "names",
    "nvdla",
    "scnn",
    "simba",
    "tensor_core",
    "tpu_v1",
]


def __dir__() -> list[str]:
    return __all__
