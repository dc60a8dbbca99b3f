"""Whole systems: the pipeline that feeds a device, which device runs which layer, utilization, training, measured runs.

>>> from heterocompute import hardware as hw
>>> round(hw.systems.amdahl(0.5, 2), 3)
1.333
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the table below imports at run time; tests/house/test_structure.py compares both
    from ..cost.estimates import (
        PETAFLOP_DAY as PETAFLOP_DAY,
        amdahl as amdahl,
        copy_seconds as copy_seconds,
        doubling_time as doubling_time,
        offload_break_even as offload_break_even,
        overlap as overlap,
        tpp as tpp,
        training_flops as training_flops,
        training_time as training_time,
    )
    from .batches import largest_batch as largest_batch
    from .dispatching import dispatch as dispatch, product_work as product_work
    from .logs import read_smi as read_smi
    from .pipelines import Feed as Feed, pipeline as pipeline
    from .saturation import hbm_bandwidth as hbm_bandwidth, saturating_sms as saturating_sms, utilization as utilization
    from .this_cpu import check_host as check_host
else:  # hidden from type checkers, which would accept any name
    from ...base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(
        __name__.rpartition(".")[0],
        {
            "cost.estimates": (
                "PETAFLOP_DAY amdahl copy_seconds doubling_time "
                "offload_break_even overlap tpp training_flops training_time"
            ),
            "systems.batches": "largest_batch",
            "systems.dispatching": "dispatch product_work",
            "systems.logs": "read_smi",
            "systems.pipelines": "Feed pipeline",
            "systems.saturation": "hbm_bandwidth saturating_sms utilization",
            "systems.this_cpu": "check_host",
        },
        module=__name__,
    )
