"""The machine: storage levels from the outermost to the innermost, and the multipliers below the last.

Energies are in picojoules. A level without tensors (`keeps=set()`) holds nothing: it is a container that spreads loops
over the level below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.errors import WrongType, WrongValue, shown
from ...base.values import as_int, as_list
from .problem import named, whole

MAX_AMOUNT = 1e100  # the product with any count, squared, is still finite in float64


def amount(value: object, what: str) -> float:
    """Return a number that is finite and not negative."""
    if isinstance(value, (np.integer, np.floating)):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongType(f"{what} is {shown(value)}, expected a number")
    if not 0 <= value < float("inf"):
        raise WrongValue(f"{what} is {shown(value)}, expected a finite number that is not negative")
    if value > MAX_AMOUNT:
        raise WrongValue(f"{what} is {shown(value)}, expected at most {MAX_AMOUNT:g}")
    return value


def _names(what: str, value: object) -> frozenset[str]:
    found = as_list(value, what, "a set of tensors")
    if not all(isinstance(name, str) for name in found):
        raise WrongType(f"{what} is {shown(value)}, expected a set of tensors")
    return frozenset(found)


@dataclass(frozen=True)
class Level:
    """One storage level, with `instances` copies.

    Parameters
    ----------
    name : str
    words : int, dict of str to int, or None
        Capacity of one instance in words, shared by all tensors or given per tensor. None: unlimited.
    keeps : set of str, or None
        Tensors that it holds; all others bypass it. None: all.
    read, write, update : float
        Energy in pJ of one access to a vector. `write` is for fills from outside, `update` for results from inside.
    leak : float
        Energy in pJ per cycle of one instance in use. Instances that a mapping does not use are off.
    block : int
        Words of one vector access.
    instances : int
        Number on the whole machine. It divides the number of the next level.
    cluster : int
        Instances that share the energy of accesses: at most instances / cluster accesses count at a time.
    read_bandwidth, write_bandwidth, bandwidth : float or None
        Words per cycle that one instance reads, writes (fills and updates), and both together. None: unlimited.
    compress : dict of str to float
        Tensors that are stored without zeros, with the index bits per word.
    gate, skip : dict of str to set of str
        ``{"B": {"A"}}``: if A is zero, an access to B is gated (takes its cycle, costs no energy) or skipped (takes no
        cycle). Applies only if the level feeds the multipliers with B.

    Examples
    --------
    >>> Level("Buffer", words=64, read=0.42564, write=0.42564, update=0.42564).words
    64
    """

    name: str
    words: int | dict[str, int] | None = None
    keeps: frozenset[str] | set[str] | None = None
    read: float = 0.0
    write: float = 0.0
    update: float = 0.0
    leak: float = 0.0
    block: int = 1
    instances: int = 1
    cluster: int = 1
    read_bandwidth: float | None = None
    write_bandwidth: float | None = None
    bandwidth: float | None = None
    compress: dict[str, float] = field(default_factory=dict)
    gate: dict[str, Iterable[str]] = field(default_factory=dict)
    skip: dict[str, Iterable[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        what = f"Level {named(self.name, 'Level: name')}"
        if self.words is not None:
            if isinstance(self.words, MappingABC):
                words: Any = {named(t, what): whole(n, f"{what}: words of {t}") for t, n in self.words.items()}
            else:
                words = whole(self.words, f"{what}: words")
            object.__setattr__(self, "words", words)
        if self.keeps is not None:
            object.__setattr__(self, "keeps", _names(f"{what}: keeps", self.keeps))
        for key in ("compress", "gate", "skip"):
            if not isinstance(getattr(self, key), MappingABC):
                raise WrongType(f"{what}: {key} is {shown(getattr(self, key))}, expected a mapping of tensors")
        for key in ("read", "write", "update", "leak"):
            amount(getattr(self, key), f"{what}: {key}")
        for key in ("block", "instances", "cluster"):
            object.__setattr__(self, key, whole(getattr(self, key), f"{what}: {key}"))
        for key in ("read_bandwidth", "write_bandwidth", "bandwidth"):
            if getattr(self, key) is not None and not amount(getattr(self, key), f"{what}: {key}") > 0:
                raise WrongValue(f"{what}: {key} is 0, expected more, or None for no limit")
        for tensor, bits in dict(self.compress).items():
            amount(bits, f"{what}: index bits of {tensor}")
        object.__setattr__(self, "compress", dict(self.compress))
        for key in ("gate", "skip"):
            rules = dict(getattr(self, key))
            found = {tensor: _names(f"{what}: {key}[{shown(tensor)}]", zeros) for tensor, zeros in rules.items()}
            object.__setattr__(self, key, found)
        if set(self.gate) & set(self.skip):
            raise WrongValue(f"{what}: {sorted(set(self.gate) & set(self.skip))} are both gated and skipped")


@dataclass(frozen=True)
class Arch:
    """A machine: storage levels from the outermost to the innermost, and the multipliers.

    Parameters
    ----------
    levels : sequence of Level
        The outermost level holds every tensor and has one instance.
    mac : float
        Energy of one multiply-add in pJ.
    macs : int, optional
        Number of multipliers. Default: the instances of the last level.

    Raises
    ------
    ValueError, TypeError
        Names are not unique, the outermost level bypasses a tensor, or instances do not divide those of the next level.

    Examples
    --------
    >>> Arch([Level("DRAM"), Level("Buffer", words=64, instances=4)], mac=0.845).macs
    4
    """

    levels: tuple[Level, ...] | Sequence[Level]
    mac: float = 0.0
    macs: int = 0

    def __post_init__(self) -> None:
        levels = tuple(as_list(self.levels, "Arch: levels", "at least one Level, outer to inner"))
        if not levels or not all(isinstance(level, Level) for level in levels):
            raise WrongType(f"Arch: levels is {shown(self.levels)}, expected at least one Level, outer to inner")
        object.__setattr__(self, "levels", levels)
        names = [level.name for level in levels]
        if len(set(names)) < len(names):
            raise WrongValue(f"Arch: two levels have one name: {', '.join(names)}")
        amount(self.mac, "Arch: mac")
        macs = whole(self.macs, "Arch: macs", 0)
        object.__setattr__(self, "macs", macs or levels[-1].instances)
        if levels[0].instances != 1:
            raise WrongValue(f"Arch: the outermost level {names[0]} has {levels[0].instances} instances, expected 1")
        counts = [*(level.instances for level in levels), self.macs]
        for name, outer, inner in zip([*names[1:], "macs"], counts, counts[1:], strict=False):
            if inner % outer:
                raise WrongValue(f"Arch: {inner} instances of {name} cannot be divided among the {outer} above them")

    @property
    def names(self) -> list[str]:
        """Return the names of the levels, outer to inner."""
        return [level.name for level in self.levels]

    def fanout(self, place: int) -> int:
        """Return the instances of the next level under one instance of this one.

        Parameters
        ----------
        place : int
            Index of the level.

        Returns
        -------
        int
        """
        place = as_int(place, "Arch.fanout: place", 0, len(self.levels) - 1)
        below = self.levels[place + 1].instances if place + 1 < len(self.levels) else self.macs
        return below // self.levels[place].instances
