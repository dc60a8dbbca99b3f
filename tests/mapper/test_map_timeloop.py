"""Stored runs of Timeloop v4, number by number.

From Accelergy-Project/timeloop-accelergy-exercises: the mapping of `timeloop-mapper.map.txt`, the energies of
`timeloop-mapper.ERT.yaml`, and the counts of `timeloop-mapper.stats.txt` in

- workspace/example_designs/example_designs/{eyeriss_like, simba_like, simple_output_stationary,
  simple_weight_stationary}/ref_outputs/default_problem,
- workspace/tutorial_exercises/02_interface_and_design_space_exploration_2024/outputs.

Two of them are older than 2025, when Timeloop dropped a halo if a loop that does not move the tile is inside the loop
that slides it: 157,296 input words there, 156,600 and 152,550 in the current program and here. Only these words and
their cost differ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from heterocompute.hardware import mapper

#: The default problem of the example designs.
LAYER = mapper.Problem(
    {"C": 3, "M": 32, "R": 3, "S": 3, "P": 112, "Q": 112},
    {
        "W": [{"C": 1}, {"M": 1}, {"R": 1}, {"S": 1}],
        "I": [{"C": 1}, {"R": 1, "P": 2}, {"S": 1, "Q": 2}],
        "O": [{"M": 1}, {"Q": 1}, {"P": 1}],
    },
    "O",
)
POINTWISE = mapper.Problem(
    {"C": 128, "M": 128, "N": 32, "P": 128, "Q": 128},
    {
        "W": [{"C": 1}, {"M": 1}],
        "I": [{"N": 1}, {"C": 1}, {"P": 1}, {"Q": 1}],
        "O": [{"N": 1}, {"M": 1}, {"Q": 1}, {"P": 1}],
    },
    "O",
)


class Stored(NamedTuple):
    """A stored run. `counts`: (level, tensor) -> tile, reads, fills, updates, energy of all instances in pJ."""

    problem: mapper.Problem
    arch: mapper.Arch
    temporal: dict[str, Any]
    spatial: dict[str, Any]
    cycles: int
    utilisation: float
    counts: dict[tuple[str, str], tuple[int, int, int, int, float]]
    leakage: dict[str, float]
    fj: dict[str, float]  # of a compute, by level
    total: float
    halo: tuple[int, int] = (0, 0)  # input words from DRAM: stored, and by today's rule


def cost(read: float, write: float, leak: float = 0.0) -> dict[str, float]:
    return {"read": read, "write": write, "update": write, "leak": leak}


def memory(block: int) -> mapper.Level:
    return mapper.Level("DRAM", block=block, **cost(512.0, 512.0))


def simple() -> list[mapper.Level]:
    """Return the levels inside the global buffer of the two simple designs."""
    register = {"instances": 256, "read": 0.144}
    return [
        mapper.Level("inter_PE", keeps=set()),
        mapper.Level("pe_spad", words=192, instances=256, **cost(0.680237, 1.582678, 0.001165)),
        mapper.Level("weight_reg", words=1, keeps={"W"}, **register),
        mapper.Level("input_reg", words=1, keeps={"I"}, **register),
        mapper.Level("output_reg", words=1, keeps={"O"}, **register),
    ]


def simple_arch(glb: set[str], spad: set[str]) -> mapper.Arch:
    levels = [
        memory(4),
        mapper.Level("glb", words=65536, block=4, keeps=glb, read_bandwidth=16, write_bandwidth=16,
                 **cost(32.377775, 26.156875, 0.005353)),
        *simple(),
    ]  # fmt: skip
    levels[3] = mapper.Level("pe_spad", words=192, keeps=spad, instances=256, **cost(0.680237, 1.582678, 0.001165))
    return mapper.Arch(levels, mac=0.315, macs=256)


RF = {"instances": 168, "read_bandwidth": 2, "write_bandwidth": 2}
RUNS = {
    "eyeriss": Stored(
        LAYER,
        mapper.Arch(
            [
                memory(8),
                mapper.Level("glb", words=131072, block=8, keeps={"I", "O"}, read_bandwidth=16, write_bandwidth=16,
                         **cost(18.183829, 14.137929, 0.005652)),
                mapper.Level("columns", keeps=set()),
                mapper.Level("inter_PE", keeps=set(), instances=14),
                mapper.Level("ifmap", words=24, block=2, keeps={"I"}, **RF, **cost(0.202442, 0.176713, 0.000101)),
                mapper.Level("weights", words=384, block=2, keeps={"W"}, **RF, **cost(1.976602, 1.881657, 0.001592)),
                mapper.Level("psum", words=16, keeps={"O"}, **RF, **cost(0.2513, 0.2191, 0.000134)),
            ],
            mac=0.207692,
        ),
        {"DRAM": [("P", 8), ("Q", 2), ("M", 4)], "glb": [("P", 14), ("Q", 4)], "weights": [("R", 3)],
         "psum": [("M", 8)]},
        {"columns": [("Q", 14)], "inter_PE": [("C", 3), ("S", 3)]}, 86016, 0.75,
        {
            ("psum", "O"): (8, 57344, 0, 86016, 4190338.25), ("weights", "W"): (24, 86016, 1536, 0, 10893306.24),
            ("ifmap", "I"): (3, 86016, 10752, 0, 1216735.96), ("glb", "I"): (9831, 1354752, 157296, 0, 3357302.30),
            ("glb", "O"): (6272, 0, 0, 401408, 709384.73), ("DRAM", "W"): (864, 13824, 0, 0, 884736.0),
            ("DRAM", "I"): (151875, 157296, 0, 0, 10066944.0), ("DRAM", "O"): (401408, 0, 0, 401408, 25690112.0),
        },
        {"psum": 1452.29, "weights": 17254.12, "ifmap": 1094.64, "glb": 486.16},
        {"psum": 386.77, "weights": 1006.69, "ifmap": 112.37, "glb": 375.27, "DRAM": 3380.86}, 5469.65,
        (157296, 156600),
    ),
    "simba": Stored(
        LAYER,
        mapper.Arch(
            [
                memory(8),
                mapper.Level("glb", words=65536, block=32, keeps={"I", "O"}, **cost(51.870888, 66.310888, 0.003241)),
                mapper.Level("inter_PE", keeps=set()),
                mapper.Level("input", words=65536, block=8, keeps={"I"}, instances=16,
                         **cost(242.079552, 241.503552, 0.207488)),
                mapper.Level("distributed", keeps=set(), instances=16),
                mapper.Level("weight", words=32768, block=8, keeps={"W"}, instances=64,
                         **cost(121.36387, 120.78787, 0.104535)),
                mapper.Level("accu", words=128, keeps={"O"}, instances=64, **cost(3.091057, 2.875058, 0.003416)),
                mapper.Level("inter_reg", keeps=set(), instances=64),
                mapper.Level("regs", words=1, keeps={"W"}, instances=256, cluster=64,
                             **cost(0.259899, 0.080139, 0.000169)),
            ],
            mac=0.315,
        ),
        {"DRAM": [("Q", 28)], "glb": [("P", 4)], "input": [("Q", 4)], "weight": [("R", 3), ("P", 4), ("S", 3)],
         "accu": [("M", 2), ("P", 7)]},
        {"inter_PE": [("C", 3), ("M", 4)], "distributed": [("M", 4)]}, 225792, 0.1875,
        {
            ("regs", "W"): (1, 225792, 32256, 0, 245072.31), ("accu", "O"): (14, 200704, 50176, 225792, 67862952.49),
            ("weight", "W"): (18, 32256, 18, 0, 23505671.40), ("input", "I"): (513, 225792, 56700, 0, 102530765.43),
            ("glb", "I"): (6075, 170100, 151875, 0, 590523.43), ("glb", "O"): (14336, 802816, 0, 1204224, 3796748.18),
            ("DRAM", "W"): (864, 864, 0, 0, 55296.0), ("DRAM", "I"): (151875, 151875, 0, 0, 9720320.0),
            ("DRAM", "O"): (401408, 0, 0, 401408, 25690112.0),
        },
        {"regs": 1831.62, "accu": 37022.66, "weight": 1132952.0, "input": 562189.57, "glb": 731.79},
        {"regs": 22.78, "accu": 6264.98, "weight": 2273.35, "input": 9512.16, "glb": 404.87, "DRAM": 3272.35},
        22065.49,
    ),
    "output-stationary": Stored(
        LAYER,
        simple_arch({"W", "I"}, {"O"}),
        {"DRAM": [("P", 2), ("Q", 8), ("M", 2)], "glb": [("Q", 14), ("R", 3)],
         "pe_spad": [("C", 3), ("P", 4), ("S", 3)], "weight_reg": [("P", 14)]},
        {"inter_PE": [("M", 16)]}, 677376, 0.0625,
        {
            ("output_reg", "O"): (1, 652288, 652288, 677376, 1502871.55),
            ("input_reg", "I"): (1, 677376, 677376, 0, 1560674.30),
            ("weight_reg", "W"): (1, 677376, 48384, 0, 1560674.30),
            ("pe_spad", "O"): (56, 652288, 0, 677376, 24252456.40),
            ("glb", "W"): (432, 774144, 13824, 0, 6356663.22), ("glb", "I"): (9831, 677376, 157296, 0, 6511574.88),
            ("DRAM", "W"): (864, 13824, 0, 0, 1769472.0), ("DRAM", "I"): (151875, 157296, 0, 0, 20133888.0),
            ("DRAM", "O"): (401408, 0, 0, 401408, 51380224.0),
        },
        {"pe_spad": 12626.29, "glb": 3625.99},
        {"output_reg": 138.67, "input_reg": 144.0, "weight_reg": 144.0, "pe_spad": 2238.89, "glb": 1187.66,
         "DRAM": 6761.72},
        10929.93, (157296, 152550),
    ),
    "weight-stationary": Stored(
        LAYER,
        simple_arch({"W", "I", "O"}, {"W"}),
        {"DRAM": [("Q", 14)], "glb": [("S", 3), ("P", 2), ("M", 8)], "pe_spad": [("R", 3), ("Q", 2), ("P", 2)],
         "weight_reg": [("P", 28), ("Q", 4)]},
        {"inter_PE": [("M", 4), ("C", 3)]}, 903168, 0.046875,
        {
            ("output_reg", "O"): (1, 802816, 802816, 903168, 1387266.05),
            ("input_reg", "I"): (1, 903168, 903168, 0, 1560674.30),
            ("weight_reg", "W"): (1, 903168, 2016, 0, 1560674.30), ("pe_spad", "W"): (3, 2016, 2016, 0, 54744.44),
            ("glb", "W"): (864, 24192, 864, 0, 201470.67), ("glb", "I"): (11475, 2709504, 151875, 0, 22925078.11),
            ("glb", "O"): (28672, 3211264, 0, 3612672, 49617448.29), ("DRAM", "W"): (864, 864, 0, 0, 110592.0),
            ("DRAM", "I"): (151875, 151875, 0, 0, 19440128.0), ("DRAM", "O"): (401408, 0, 0, 401408, 51380224.0),
        },
        {"pe_spad": 12626.29, "glb": 4834.66},
        {"output_reg": 128.0, "input_reg": 144.0, "weight_reg": 144.0, "pe_spad": 6.22, "glb": 6712.38,
         "DRAM": 6544.64},
        13994.23,
    ),
    # The fan-out is directly above the multipliers: they share an input, which is reused over M.
    "fan-out": Stored(
        POINTWISE,
        mapper.Arch(
            [
                memory(8), mapper.Level("buffer", words=8192, block=16, **cost(9.65335, 12.6203, 0.000271)),
                mapper.Level("inter_PE", keeps=set()),
            ],
            mac=3.275, macs=8,
        ),
        {"DRAM": [("C", 2), ("N", 32), ("M", 2), ("Q", 4), ("P", 128)], "buffer": [("C", 64), ("Q", 32), ("M", 8)]},
        {"inter_PE": [("M", 8)]}, 1073741824, 1.0,
        {
            ("buffer", "W"): (4096, 8589934592, 524288, 0, 5183016360.35),
            ("buffer", "I"): (2048, 134217728, 134217728, 0, 186844918.58),
            ("buffer", "O"): (2048, 8522825728, 67108864, 8589934592, 11970519079.32),
            ("DRAM", "W"): (16384, 524288, 0, 0, 33554432.0),
            ("DRAM", "I"): (67108864, 134217728, 0, 0, 8589934592.0),
            ("DRAM", "O"): (67108864, 67108864, 0, 134217728, 12884901888.0),
        },
        {"buffer": 290984.03}, {"buffer": 2018.72, "DRAM": 2503.91}, 7797.63,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_every_figure_of_a_stored_run(name: str) -> None:
    run = RUNS[name]
    stats = mapper.evaluate(run.problem, run.arch, mapper.Mapping(run.temporal, run.spatial))
    assert (stats.cycles, stats.utilisation) == (run.cycles, run.utilisation)
    assert set(stats.accesses) == set(run.counts)
    old, today = run.halo
    saved = {level.name: 0.0 for level in run.arch.levels}
    for (name, tensor), (tile, reads, fills, updates, energy) in run.counts.items():
        found, level = stats[name, tensor], run.arch.levels[run.arch.names.index(name)]
        if old and (reads == old or fills == old):
            assert tensor == "I"
            vectors = -(-old // level.block) + (-today // level.block)
            saved[name] += vectors * (level.read if reads == old else level.write)
            reads, fills = (today if count == old else count for count in (reads, fills))
        assert (found.tile, found.reads, found.fills, found.updates) == (tile, reads, fills, updates), (name, tensor)
        assert found.energy == pytest.approx(energy - (saved[name] if tensor == "I" else 0), abs=0.0051), (name, tensor)
    for level_name, leak in run.leakage.items():
        assert stats.leakage[level_name] == pytest.approx(leak, abs=0.0051), level_name
    computes = stats.computes / 1000
    for level_name, energy in run.fj.items():
        found_energy = (stats.level_energy(level_name) + saved[level_name]) / computes
        assert found_energy == pytest.approx(energy, abs=0.0051), level_name
    assert (stats.energy + sum(saved.values())) / computes == pytest.approx(run.total, abs=0.0051)
    assert bool(old) == any(saved.values())


def test_a_word_of_its_own_does_not_rest_in_a_multiplier() -> None:
    """Neighbours share words; a weight that only one multiplier needs is read for every product."""
    problem = mapper.Problem.gemm(4, 3, 8)  # M, N, K
    arch = mapper.Arch([mapper.Level("Buffer"), mapper.Level("Lanes", keeps=set())], macs=3)
    stats = mapper.evaluate(problem, arch, mapper.Mapping({"Buffer": [("K", 8), ("M", 4)]}, {"Lanes": [("N", 3)]}))
    assert stats["Buffer", "W"].reads == 8 * 4 * 3 and stats["Buffer", "I"].reads == 8 * 4
    stats = mapper.evaluate(problem, arch, mapper.Mapping({"Buffer": [("K", 8), ("N", 3), ("M", 4)]}))
    assert stats["Buffer", "I"].reads == 96 and stats["Buffer", "W"].reads == 96  # one multiplier shares with nobody
    # Partial sums of three multipliers with the same output stay in the multipliers, too.
    problem = mapper.Problem.gemm(4, 2, 9)
    stats = mapper.evaluate(
        problem, arch, mapper.Mapping({"Buffer": [("M", 4), ("N", 2), ("K", 3)]}, {"Lanes": [("K", 3)]})
    )
    assert (stats["Buffer", "O"].updates, stats["Buffer", "O"].reads) == (8, 0)


def test_idle_instances_do_not_leak_and_clusters_share_an_access() -> None:
    problem = mapper.Problem.gemm(1, 4, 2)
    register = mapper.Level("Register", instances=16, cluster=8, read=1.0, leak=0.5)
    stats = mapper.evaluate(problem, mapper.Arch([mapper.Level("Buffer"), register]),
                            mapper.Mapping({"Register": [("K", 2)]}, {"Buffer": [("N", 4)]}))  # fmt: skip
    assert stats.leakage["Register"] == 0.5 * 4 * 2
    # Four instances are in two clusters of eight, not in one.
    assert stats["Register", "W"].energy == 2 * 2
