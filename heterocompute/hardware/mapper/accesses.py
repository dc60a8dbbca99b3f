"""Accesses, cycles and energy of a mapping: uniform reuse, as Timeloop counts it (Parashar et al., ISPASS 2019).

A tensor is kept by a chain of levels that ends with the multipliers. A parent's accesses are a child's fills times the
number of different tiles among its siblings. Inputs: reads = accesses. The output: updates = accesses; reads and fills
are fewer by the first visit of each word, which starts from zero. Loops inside the innermost one that moves a tile cost
nothing (stationarity); a tile that slides along one axis fetches only the new words (halo). Multipliers keep nothing,
except a word that neighbours directly below a fan-out share: in Timeloop they pass it on (ComputeNetworkLinkTransfers).
Instances in use leak; min(instances in use, instances / cluster) clusters pay for accesses. Not counted: a halo along
two loops, other forwarding between neighbours, skew. Factors are perfect.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from ...base.notebooks.shown import Facts
from ...base.values import check_choice
from ...report.table import Column, lay_out
from .arch import Arch, Level
from .mapping import Mapping, check_kinds
from .nest import Nest, nest, share_down, share_up
from .problem import Problem

COLUMNS = (  # of the table of a mapping's accesses
    Column("level", "level"),
    Column("tensor", "tensor", left=True),
    Column("tile", "tile", leaves=1),
    Column("reads", "reads"),
    Column("fills", "fills"),
    Column("updates", "updates"),
    Column("instances", "instances", leaves=2),
    Column("energy", "energy pJ", "{:.2f}".format),
)


@dataclass(frozen=True)
class Access:
    """One tensor at one level. Counts are words of one instance that the mapping uses.

    Attributes
    ----------
    tile : int
        Words of the tile, zeros included.
    stored : int
        Words that the tile occupies: fewer than `tile` if it is compressed.
    index_bits : float
        Bits of indices besides these words; they count as no words and cost no energy.
    partition : int
        Words of the tensor that one instance ever touches.
    reads, fills, updates : int
        Words read from it, filled from outside, updated from inside, without gated and skipped ones.
    gated_reads, gated_updates, skipped_reads, skipped_updates : int
        Accesses that zeros save.
    instances : int
        Instances in use.
    energy : float
        pJ of all instances, without leakage.
    """

    tile: int
    stored: int
    index_bits: float
    partition: int
    reads: int
    fills: int
    updates: int
    gated_reads: int
    gated_updates: int
    skipped_reads: int
    skipped_updates: int
    instances: int
    energy: float


@dataclass(frozen=True)
class Stats(Facts):
    """The accesses, cycles and energy of a mapping.

    Attributes
    ----------
    accesses : dict of (str, str) to Access
        By level and tensor; ``stats["Buffer", "W"]`` is a shorthand.
    cycles : int
        Loops in time, without skipped ones; more if a bandwidth is too low.
    computes : int
        Multiply-adds of the problem.
    actual_computes : int
        Multiply-adds that are neither gated nor skipped.
    mac_energy : float
        pJ.
    leakage : dict of str to float
        pJ per level.
    utilisation : float
        Share of the multipliers that the mapping uses.
    """

    accesses: dict[tuple[str, str], Access]
    cycles: int
    computes: int
    actual_computes: int
    mac_energy: float
    leakage: dict[str, float]
    utilisation: float

    def __getitem__(self, place: tuple[str, str]) -> Access:
        return self.accesses[place]

    @property
    def energy(self) -> float:
        """Return the total energy in pJ."""
        return self.mac_energy + sum(self.level_energy(level) for level in self.leakage)

    @property
    def edp(self) -> float:
        """Return energy times delay, pJ x cycles."""
        return self.energy * self.cycles

    @property
    def energy_per_compute(self) -> float:
        """Return pJ per multiply-add of the problem."""
        return self.energy / self.computes

    @property
    def arithmetic_share(self) -> float:
        """Return the share of the energy in multiply-adds; 0 if the energy is 0."""
        return self.mac_energy / self.energy if self.energy else 0.0

    def level_energy(self, level: str) -> float:
        """Return the energy of a level in pJ, including leakage.

        Parameters
        ----------
        level : str

        Returns
        -------
        float
        """
        check_choice("Stats", "level", level, self.leakage)
        return self.leakage[level] + sum(a.energy for (name, _), a in self.accesses.items() if name == level)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        rows = [{"level": level, "tensor": tensor, **asdict(a)} for (level, tensor), a in self.accesses.items()]
        return {
            "cycles": self.cycles,
            "computes": self.computes,
            "actual_computes": self.actual_computes,
            "energy_pj": self.energy,
            "energy_per_compute_pj": self.energy_per_compute,
            "mac_energy_pj": self.mac_energy,
            "arithmetic_share": self.arithmetic_share,
            "edp_pj_cycles": self.edp,
            "utilisation": self.utilisation,
            "leakage_pj": dict(self.leakage),
            "accesses": rows,
        }

    def __str__(self) -> str:
        (head, _), lines, _ = lay_out(COLUMNS, self.to_dict()["accesses"])
        return "\n".join([head, *(line for row in lines for line in row), self.summary])

    @property
    def summary(self) -> str:
        """Return cycles and energy in a sentence."""
        return (
            f"{self.cycles} cycles, {self.energy:.2f} pJ ({self.energy_per_compute:.4f} a multiply-add, "
            f"{self.arithmetic_share:.1%} of it arithmetic), utilisation {self.utilisation:.1%}"
        )


def evaluate(problem: Problem, arch: Arch, mapping: Mapping) -> Stats:
    """Count the accesses of a mapping, and compute its cycles and energy.

    Parameters
    ----------
    problem : Problem
    arch : Arch
    mapping : Mapping

    Returns
    -------
    Stats

    Raises
    ------
    ValueError
        The mapping does not fit; the message has the level and the excess.
    TypeError
        An argument is not a Problem, Arch or Mapping.

    References
    ----------
    Parashar et al., "Timeloop", ISPASS 2019; for zeros Wu et al., "Sparseloop", MICRO 2022.

    Examples
    --------
    >>> p = Problem({"P": 16, "R": 3}, {"W": [{"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"P": 1}]}, output="O")
    >>> a = Arch([Level("DRAM", read=640.0), Level("Buffer", words=64, read=5.0)], mac=1.0)
    >>> s = evaluate(p, a, Mapping({"DRAM": [("R", 3)], "Buffer": [("P", 16)]}))
    >>> s["DRAM", "I"].reads, s["Buffer", "W"].fills, s.cycles
    (18, 3, 48)
    """
    check_kinds("evaluate", problem=problem, arch=arch, mapping=mapping)
    laid = nest(problem, arch, mapping)
    accesses = {}
    for place, level in enumerate(arch.levels):
        for tensor in problem.tensors:
            if tensor in laid.keeps[place]:
                accesses[level.name, tensor] = _access(laid, tensor, place)
    left = zero_shares(laid)
    in_time = math.prod(bound for loops in laid.temporal for _, bound in loops)
    cycles = share_up(in_time, left.cycles)
    for place, level in enumerate(arch.levels):
        cycles = max(cycles, _stall(level, [accesses[level.name, tensor] for tensor in laid.keeps[place]]))
    return Stats(
        accesses=accesses,
        cycles=cycles,
        computes=problem.computes,
        actual_computes=left.computes,
        mac_energy=left.computes * arch.mac,
        leakage={level.name: level.leak * laid.used(place) * cycles for place, level in enumerate(arch.levels)},
        utilisation=laid.used(len(arch.levels)) / arch.macs,
    )


def _access(laid: Nest, tensor: str, place: int) -> Access:
    problem, level = laid.problem, laid.arch.levels[place]
    chain = laid.chain(tensor)
    child = chain[chain.index(place) + 1]
    outermost = chain[0] == place
    requested = laid.fills(tensor, child) * laid.copies(tensor, place, child)
    reads, updates, fills = requested, 0, 0 if outermost else laid.fills(tensor, place)
    partition = laid.partition(tensor, place)
    if tensor == problem.output:
        updates = requested
        reads = max(0, requested - partition)
        fills = 0 if outermost else max(0, fills - partition)
    if tensor in level.compress:
        stored_tensors = problem.density(tensor)
        reads, fills = share_up(reads, stored_tensors), share_up(fills, stored_tensors)
    counts = {"reads": reads, "fills": fills, "updates": updates}
    saved = dict.fromkeys(("gated_reads", "gated_updates", "skipped_reads", "skipped_updates"), 0)
    for verb, rules in (("gated", level.gate), ("skipped", level.skip)):
        if tensor in rules:
            share = _share(problem, frozenset(rules[tensor]))
            # The first visit of a word needs no read, whether or not its operands are zero, so the remaining reads are
            # rounded down.
            left = share_down(reads, share) if tensor == problem.output else share_up(reads, share)
            counts = {"reads": left, "fills": fills, "updates": share_up(updates, share)}
            saved[f"{verb}_reads"], saved[f"{verb}_updates"] = reads - left, updates - counts["updates"]
    used = laid.used(place)
    energy = laid.clusters(place) * sum(
        -(-counts[key] // level.block) * cost
        for key, cost in (("reads", level.read), ("fills", level.write), ("updates", level.update))
    )
    words = laid.words(tensor, place)
    stored = laid.stored(tensor, place)
    bits = stored * level.compress.get(tensor, 0) if tensor in problem.densities else 0
    return Access(words, stored, bits, partition, **counts, **saved, instances=used, energy=energy)


@dataclass(frozen=True)
class ZeroShares:
    """Shares that remain after gating and skipping: multiply-adds, cycles, and accesses per level and tensor."""

    computes: int
    cycles: float
    accesses: dict[tuple[int, str], float]


def zero_shares(laid: Nest) -> ZeroShares:
    """Return the shares that gating and skipping leave; they are the same for every mapping."""
    problem = laid.problem
    levels = laid.arch.levels
    skipped = frozenset(zero for level in levels for zeros in level.skip.values() for zero in zeros)
    gated = frozenset(zero for level in levels for zeros in level.gate.values() for zero in zeros)
    accesses = {
        (place, tensor): _share(problem, frozenset(zeros))
        for place, level in enumerate(levels)
        for rules in (level.gate, level.skip)
        for tensor, zeros in rules.items()
    }
    computes = share_up(problem.computes, _share(problem, gated | skipped))
    return ZeroShares(computes, _share(problem, skipped), accesses)


def _share(problem: Problem, tensors: frozenset[str]) -> float:
    return math.prod(problem.density(tensor) for tensor in problem.tensors if tensor in tensors)


def _stall(level: Level, accesses: list[Access]) -> int:
    """Return the cycles that a level's bandwidth requires."""
    reads = sum(a.reads for a in accesses)
    writes = sum(a.fills + a.updates for a in accesses)
    limits = ((reads, level.read_bandwidth), (writes, level.write_bandwidth), (reads + writes, level.bandwidth))
    return max((math.ceil(words / limit) for words, limit in limits if limit is not None), default=0)
