"""What a network costs on a machine: operations, bytes, time, energy and area. Figures and formulas, no measurements.

>>> from heterocompute import hardware as hw
>>> round(hw.device("h100-sxm").ridge("fp16"), 1)
295.3
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the table below imports at run time; tests/house/test_structure.py compares both
    from . import accelerators as accelerators, systolic as systolic
    from .accelerators.exploring import *
    from .chips.chip import *
    from .chips.database import *
    from .chips.glossary import *
    from .chips.host import *
    from .cost import intensity as intensity, memory as memory
    from .cost.comparison import *
    from .cost.estimates import *
    from .cost.fusion import *
    from .cost.pairing import *
    from .cost.roofline import *
    from .ledger.figure import *
    from .ledger.records import *
    from .mapper import *
    from .network.builtin import *
    from .network.conventions import *
    from .network.counting import *
    from .network.graph import *
    from .network.layers import *
    from .network.lookup import *
    from .network.loops import *
    from .network.plain import *
    from .silicon.checks import *
    from .silicon.mac import *
    from .silicon.operands import *
    from .silicon.speedup import *
    from .systems import multi as multi
    from .systems.arithmetic import *
    from .systems.batches import *
    from .systems.dispatch import *
    from .systems.logs import *
    from .systems.pipeline import *
    from .systems.quantities import *
    from .systems.this_cpu import *
    from .systems.timing import *
    from .systems.utilization import *
else:  # hidden from type checkers, which would accept any name
    from ..base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(
        __name__,
        {
            "accelerators": "",
            "accelerators.exploring": "Exploration explore",
            "chips.chip": "Device",
            "chips.database": "device devices load_devices",
            "chips.glossary": "glossary",
            "chips.host": "host",
            "cost.comparison": "BatchSweep batch_sweep compare",
            "cost.estimates": (
                "PETAFLOP_DAY amdahl break_even_density copy_seconds doubling_time "
                "offload_break_even overlap tpp training_flops training_time"
            ),
            "cost.fusion": "Fusion fuse",
            "cost.intensity": "",
            "cost.memory": "",
            "cost.pairing": "product_dtype",
            "cost.roofline": "Roofline roofline",
            "mapper": (
                "Arch Density Files Found Level Mapping Problem Stats evaluate mapping_page read_yaml search write_yaml"
            ),
            "network.builtin": "networks",
            "network.conventions": "CONVENTIONS",
            "network.counting": "Counts count",
            "network.graph": "Attention Builder Network Node",
            "network.layers": "AddTable BatchNorm2d Context Conv2d Embedding Layer LayerNorm Linear MatMul Scores",
            "network.lookup": "as_network",
            "network.loops": "Loops",
            "network.plain": (
                "Activation AdaptiveAvgPool2d Add AvgPool2d Concat Flatten MaxPool2d Multiply Select Softmax"
            ),
            "ledger.figure": "PublishedFigure",
            "ledger.records": "PublishedFigures published",
            "silicon.checks": "ranked",
            "silicon.mac": "MacCost mac",
            "silicon.operands": "Operand operand state_arithmetic",
            "silicon.speedup": "Overhead explain_gain overhead series",
            "systems.arithmetic": "dvfs efficiency energy_ratio precision_ratio ratio throughput",
            "systems.batches": "LargestBatch largest_batch",
            "systems.dispatch": "Dispatch dispatch product_work",
            "systems.logs": "read_smi",
            "systems.multi": "",
            "systems.pipeline": "Feed PipelineRun pipeline",
            "systems.quantities": "Quantity quantity",
            "systems.this_cpu": "check_host",
            "systems.timing": "Measurement measure possible",
            "systems.utilization": "Utilization hbm_bandwidth saturating_sms utilization",
            "systolic": "",
        },
    )
