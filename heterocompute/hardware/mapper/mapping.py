"""A mapping of a problem to a machine: the level of each loop, in time or in space."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC, Sequence
from dataclasses import dataclass, field

from ...base.errors import WrongType, printable, shown
from ...base.notebooks.shown import Shown
from ...base.values import as_list, is_several
from ...report.page import rows_html
from .arch import Arch
from .problem import Problem, named, whole

Loop = tuple[str, int]


@dataclass(frozen=True, repr=False)
class Mapping(Shown):
    """The loops of each level, outer to inner.

    Parameters
    ----------
    temporal : dict of str to list of (str, int)
        Loops in time per level, ``(dimension, bound)``, outer to inner. A missing level has none.
    spatial : dict of str to list of (str, int), optional
        Loops over the instances of the next inner level, inside the loops in time of the same level.
    keeps : dict of str to set of str, optional
        Tensors that a level holds, if they differ from the machine's default.

    Examples
    --------
    >>> Mapping({"DRAM": [("R", 3)], "Buffer": [("P", 16)]}).temporal["DRAM"]
    (('R', 3),)
    """

    temporal: dict[str, Sequence[Loop]]
    spatial: dict[str, Sequence[Loop]] = field(default_factory=dict)
    keeps: dict[str, frozenset[str] | set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("temporal", "spatial"):
            loops = getattr(self, key)
            if not isinstance(loops, MappingABC):
                raise WrongType(f"Mapping: {key} is {shown(loops)}, expected {{level: [(dimension, bound), ...]}}")
            object.__setattr__(self, key, {level: _loops(level, found) for level, found in loops.items()})
        keeps: dict[str, frozenset[str]] = {}
        if not isinstance(self.keeps, MappingABC):
            raise WrongType(f"Mapping: keeps is {shown(self.keeps)}, expected {{level: tensors}}")
        for level, tensors in self.keeps.items():
            keeps[level] = frozenset(as_list(tensors, f"Mapping: keeps of {shown(level)}", "a set of tensors"))
        object.__setattr__(self, "keeps", keeps)

    def __repr__(self) -> str:
        loops = sum(map(len, [*self.temporal.values(), *self.spatial.values()]))
        return f"<Mapping: {loops} loops over {', '.join(self._levels)}>"

    def _repr_html_(self) -> str:
        rows = [
            {
                "level": level,
                "in time": _text(self.temporal.get(level, ())),
                "in space": _text(self.spatial.get(level, ())),
                "keeps": ", ".join(sorted(self.keeps[level])) if level in self.keeps else "default",
            }
            for level in self._levels
        ]
        return rows_html(rows, repr(self).strip("<>"))

    @property
    def _levels(self) -> list[str]:
        return list(dict.fromkeys([*self.temporal, *self.spatial]))

    def __str__(self) -> str:
        lines = []
        for level in self._levels:
            spread = _text(self.spatial.get(level, ()))
            text = _text(self.temporal.get(level, ())) or "-"
            lines.append(printable(f"{level}: {text}" + (f" | spatial {spread}" if spread else "")))
        return "\n".join(lines)


def _text(loops: Sequence[Loop]) -> str:
    return " ".join(f"{dim}{bound}" for dim, bound in loops)


def _loops(level: object, loops: object) -> tuple[Loop, ...]:
    named(level, "Mapping: a level")
    if isinstance(loops, MappingABC) or not is_several(loops):
        raise WrongType(f"Mapping: the loops of {level} are {shown(loops)}, expected [(dimension, bound), ...]")
    checked = []
    for loop in loops:
        if isinstance(loop, str) or not isinstance(loop, Sequence) or len(loop) != 2:
            raise WrongType(f"Mapping: a loop of {level} is {shown(loop)}, expected (dimension, bound)")
        dim = named(loop[0], f"Mapping: a dimension of {level}")
        checked.append((dim, whole(loop[1], f"Mapping: bound of {dim} at {level}")))
    return tuple(checked)


#: Constructors of the arguments of `evaluate`, `search` and pages.
MADE: dict[str, tuple[type, str]] = {
    "problem": (Problem, "a Problem, such as Problem.gemm(m, n, k) or Problem.conv2d(...)"),
    "arch": (Arch, "an Arch([Level(...), ...], mac=pJ)"),
    "mapping": (Mapping, "a Mapping({level: [(dimension, bound), ...]})"),
}


def check_kinds(function: str, **values: object) -> None:
    """Refuse a problem, machine or mapping of the wrong type, with the argument's name."""
    for name, value in values.items():
        kind, how = MADE[name]
        if not isinstance(value, kind):
            raise WrongType(f"{function}: {name} is {shown(value)}, expected {how}")
