"""Classes of the results that functions of `heterocompute.hardware` return, for annotations and `isinstance`.

>>> from heterocompute import hardware as hw
>>> isinstance(hw.roofline("alexnet", "h100-sxm"), hw.results.Roofline)
True
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the table below imports at run time; tests/house/test_structure.py compares both
    from .accelerators.exploring import Exploration as Exploration
    from .accelerators.machines.fusing import FusedNetwork as FusedNetwork
    from .accelerators.machines.searching import MappedNetwork as MappedNetwork
    from .cost.comparison import BatchSweep as BatchSweep
    from .cost.fusion import Fusion as Fusion
    from .cost.roofline import Roofline as Roofline
    from .ledger.figure import PublishedFigure as PublishedFigure
    from .ledger.records import PublishedFigures as PublishedFigures
    from .ledger.reproduction import Reproduction as Reproduction
    from .network.counting import Counts as Counts
    from .silicon.mac import MacCost as MacCost
    from .silicon.operands import Operand as Operand
    from .silicon.speedup import Overhead as Overhead
    from .systems.batches import LargestBatch as LargestBatch
    from .systems.dispatching import Dispatch as Dispatch
    from .systems.pipelines import PipelineRun as PipelineRun
    from .systems.quantities import Quantity as Quantity
    from .systems.saturation import Utilization as Utilization
    from .systems.timing import Measurement as Measurement
else:  # hidden from type checkers, which would accept any name
    from ..base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(
        __package__,
        {
            "accelerators.exploring": "Exploration",
            "accelerators.machines.fusing": "FusedNetwork",
            "accelerators.machines.searching": "MappedNetwork",
            "cost.comparison": "BatchSweep",
            "cost.fusion": "Fusion",
            "cost.roofline": "Roofline",
            "ledger.figure": "PublishedFigure",
            "ledger.records": "PublishedFigures",
            "ledger.reproduction": "Reproduction",
            "network.counting": "Counts",
            "silicon.mac": "MacCost",
            "silicon.operands": "Operand",
            "silicon.speedup": "Overhead",
            "systems.batches": "LargestBatch",
            "systems.dispatching": "Dispatch",
            "systems.pipelines": "PipelineRun",
            "systems.quantities": "Quantity",
            "systems.saturation": "Utilization",
            "systems.timing": "Measurement",
        },
        module=__name__,
    )
