"""Elements of formats: the numbers that codes stand for, as data that the NumPy definition and the core read."""

from .element import Element, Table
from .floats import Minifloat, PowersOfTwo
from .integers import Integer, Logs
from .levels import Levels, levels_named
from .tapered import Posit, Takum

__all__ = [
    "Element", "Integer", "Levels", "Logs", "Minifloat", "Posit", "PowersOfTwo", "Table", "Takum", "levels_named",
]  # fmt: skip
