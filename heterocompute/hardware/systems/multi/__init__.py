"""Several devices: links and switches, all-reduce, training and networks split over devices, chiplets, growth.

>>> from heterocompute import hardware as hw
>>> round(hw.multi.allreduce(1e9, 8, "a100-sxm-80gb") * 1e3, 3)
5.833
"""

from .chiplets import ChipletTraffic as ChipletTraffic, chiplets as chiplets
from .collectives import allreduce as allreduce, collective as collective, reduce_bandwidth as reduce_bandwidth
from .fabric import NVLINK as NVLINK, Fabric as Fabric, Tier as Tier, fabric as fabric
from .growth import growth as growth
from .parallel import (
    data_parallel as data_parallel,
    one_process as one_process,
    parameter_server as parameter_server,
    pipeline_parallel as pipeline_parallel,
    tensor_parallel as tensor_parallel,
)
from .scaling import scaling as scaling

__all__ = [
    "ChipletTraffic",
    "Fabric",
    "NVLINK",
    "Tier",
    "allreduce",
    "chiplets",
    "collective",
    "data_parallel",
    "fabric",
    "growth",
    "one_process",
    "parameter_server",
    "pipeline_parallel",
    "reduce_bandwidth",
    "scaling",
    "tensor_parallel",
]


def __dir__() -> list[str]:
    return __all__
