"""Tiling of loops over a memory hierarchy: the cost of a mapping, and the search for a good one."""

from .accesses import Access as Access, Stats, evaluate
from .arch import Arch, Level
from .dataflow import DATAFLOWS as DATAFLOWS
from .files import Files, read_yaml, write_yaml
from .mapping import Mapping
from .page import mapping_page
from .problem import Density, Problem
from .searching import Found, search

__all__ = [
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
]


def __dir__() -> list[str]:
    return __all__
