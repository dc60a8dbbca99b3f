"""Cost of a network on a machine: operations, bytes, time, energy and area. Models only, no measurements.

>>> from heterocompute import hardware as hw
>>> round(hw.device("h100-sxm").ridge("fp16"), 1)
295.3
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names that the table below imports at run time; tests/house/test_structure.py compares both
    from . import (
        accelerators as accelerators,
        layers as layers,
        mapper as mapper,
        results as results,
        systems as systems,
        systolic as systolic,
    )
    from .accelerators.exploring import explore as explore
    from .accelerators.machines.machine import Machine as Machine
    from .accelerators.machines.searching import search as search
    from .chips.chip import *
    from .chips.database import *
    from .chips.glossary import *
    from .chips.host import *
    from .cost import intensity as intensity, memory as memory
    from .cost.comparison import batch_sweep as batch_sweep, compare as compare
    from .cost.estimates import break_even_density as break_even_density
    from .cost.fusion import fuse as fuse
    from .cost.pairing import *
    from .cost.roofline import roofline as roofline
    from .ledger.records import published as published
    from .network.builtin import *
    from .network.conventions import *
    from .network.counting import count as count
    from .network.graph import Builder as Builder, Network as Network
    from .network.lookup import *
    from .silicon.checks import *
    from .silicon.mac import mac as mac
    from .silicon.operands import operand as operand, state_arithmetic as state_arithmetic
    from .silicon.speedup import explain_gain as explain_gain, overhead as overhead, series as series
    from .systems import multi as multi
    from .systems.arithmetic import *
    from .systems.parallel import *
    from .systems.quantities import quantity as quantity
    from .systems.timing import measure as measure, possible as possible
    from .systems.training import *
else:  # hidden from type checkers, which would accept any name
    from ..base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(
        __name__,
        {
            "accelerators": "",
            "accelerators.exploring": "explore",
            "accelerators.machines.machine": "Machine",
            "accelerators.machines.searching": "search",
            "chips.chip": "Device",
            "chips.database": "device devices load_devices",
            "chips.glossary": "glossary",
            "chips.host": "host",
            "cost.comparison": "batch_sweep compare",
            "cost.estimates": "break_even_density",
            "cost.fusion": "fuse",
            "cost.intensity": "",
            "cost.memory": "",
            "cost.pairing": "product_dtype",
            "cost.roofline": "roofline",
            "layers": "",
            "ledger.records": "published",
            "mapper": "",
            "network.builtin": "networks",
            "network.conventions": "CONVENTIONS",
            "network.counting": "count",
            "network.graph": "Builder Network",
            "network.lookup": "as_network",
            "results": "",
            "silicon.checks": "ranked",
            "silicon.mac": "mac",
            "silicon.operands": "operand state_arithmetic",
            "silicon.speedup": "explain_gain overhead series",
            "systems": "",
            "systems.arithmetic": "dvfs efficiency energy_ratio precision_ratio ratio throughput",
            "systems.multi": "",
            "systems.quantities": "quantity",
            "systems.timing": "measure possible",
            "systems.parallel": "Parallel",
            "systems.training": "TrainingStep training_step zero_memory",
            "systolic": "",
        },
        namespaces=("layers", "mapper", "results", "systems"),
    )
