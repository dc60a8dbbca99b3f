"""What a network costs on a machine: operations, bytes, time, energy and area. Figures and formulas, no measurements.

>>> from heterocompute import hardware as hw
>>> round(hw.device("h100-sxm").ridge("fp16"), 1)
295.3
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import intensity, memory, multi, systolic
    from .bounds import Roofline, roofline
    from .chip import Device
    from .comparison import BatchSweep, batch_sweep, compare
    from .conventions import CONVENTIONS
    from .counting import Counts, count
    from .database import device, devices, load_devices
    from .estimates import (
        PETAFLOP_DAY,
        amdahl,
        break_even_density,
        copy_seconds,
        doubling_time,
        offload_break_even,
        overlap,
        tpp,
        training_flops,
        training_time,
    )
    from .fusion import Fusion, fuse
    from .gains import Overhead, explain_gain, overhead, series
    from .layers import (
        Activation,
        AdaptiveAvgPool2d,
        Add,
        AddTable,
        AvgPool2d,
        BatchNorm2d,
        Concat,
        Context,
        Conv2d,
        Embedding,
        Flatten,
        Layer,
        LayerNorm,
        Linear,
        MatMul,
        MaxPool2d,
        Multiply,
        Scores,
        Select,
        Softmax,
    )
    from .machine import host
    from .mapper import (
        Arch,
        Density,
        Files,
        Found,
        Level,
        Mapping,
        Problem,
        Stats,
        evaluate,
        mapping_page,
        read_yaml,
        search,
        write_yaml,
    )
    from .network import Attention, Builder, Network, Node, as_network
    from .networks_table import networks
    from .operands import Operand, operand, state_arithmetic
    from .pairing import product_dtype
    from .silicon import MacCost, mac
    from .words import glossary

# The room's names and the files they live in; a file is opened when someone first asks for one of its names.
_LAZY = {
    **dict.fromkeys(("Attention", "Builder", "Network", "Node", "as_network"), "network"),
    "multi": "multi",
    "glossary": "words",
    **dict.fromkeys(("BatchSweep", "batch_sweep", "compare"), "comparison"),
    "product_dtype": "pairing",
    **dict.fromkeys(
        (
            "PETAFLOP_DAY",
            "amdahl",
            "break_even_density",
            "copy_seconds",
            "doubling_time",
            "offload_break_even",
            "overlap",
            "tpp",
            "training_flops",
            "training_time",
        ),
        "estimates",
    ),
    **dict.fromkeys(("Overhead", "explain_gain", "overhead", "series"), "gains"),
    **dict.fromkeys(("Operand", "operand", "state_arithmetic"), "operands"),
    **dict.fromkeys(("MacCost", "mac"), "silicon"),
    **dict.fromkeys(("Fusion", "fuse"), "fusion"),
    "memory": "memory",
    "intensity": "intensity",
    **dict.fromkeys(("Roofline", "roofline"), "bounds"),
    "CONVENTIONS": "conventions",
    **dict.fromkeys(("Counts", "count"), "counting"),
    "networks": "networks_table",
    **dict.fromkeys(
        (
            "Activation",
            "AdaptiveAvgPool2d",
            "Add",
            "AddTable",
            "AvgPool2d",
            "BatchNorm2d",
            "Concat",
            "Context",
            "Conv2d",
            "Embedding",
            "Flatten",
            "Layer",
            "LayerNorm",
            "Linear",
            "MatMul",
            "MaxPool2d",
            "Multiply",
            "Scores",
            "Select",
            "Softmax",
        ),
        "layers",
    ),
    "Device": "chip",
    **dict.fromkeys(("device", "devices", "load_devices"), "database"),
    "host": "machine",
    **dict.fromkeys(
        (
            "Arch",
            "Density",
            "Files",
            "Found",
            "Level",
            "Mapping",
            "Problem",
            "Stats",
            "evaluate",
            "mapping_page",
            "read_yaml",
            "search",
            "write_yaml",
        ),
        "mapper",
    ),
    "systolic": "systolic",
}

__all__ = [
    "Activation",
    "AdaptiveAvgPool2d",
    "Add",
    "AddTable",
    "Arch",
    "Attention",
    "AvgPool2d",
    "BatchNorm2d",
    "BatchSweep",
    "Builder",
    "CONVENTIONS",
    "Concat",
    "Context",
    "Conv2d",
    "Counts",
    "Density",
    "Device",
    "Embedding",
    "Files",
    "Flatten",
    "Found",
    "Fusion",
    "Layer",
    "LayerNorm",
    "Level",
    "Linear",
    "MacCost",
    "Mapping",
    "MatMul",
    "MaxPool2d",
    "Multiply",
    "Network",
    "Node",
    "Operand",
    "Overhead",
    "PETAFLOP_DAY",
    "Problem",
    "Roofline",
    "Scores",
    "Select",
    "Softmax",
    "Stats",
    "amdahl",
    "as_network",
    "batch_sweep",
    "break_even_density",
    "compare",
    "copy_seconds",
    "count",
    "device",
    "devices",
    "doubling_time",
    "evaluate",
    "explain_gain",
    "fuse",
    "glossary",
    "host",
    "intensity",
    "load_devices",
    "mac",
    "mapping_page",
    "memory",
    "multi",
    "networks",
    "offload_break_even",
    "operand",
    "overhead",
    "overlap",
    "product_dtype",
    "read_yaml",
    "roofline",
    "search",
    "series",
    "state_arithmetic",
    "systolic",
    "tpp",
    "training_flops",
    "training_time",
    "write_yaml",
]

if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module = import_module(f".{_LAZY[name]}", __name__)
        value = module if name == _LAZY[name] else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
