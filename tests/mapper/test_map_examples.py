"""Worked examples whose results are published: Timeloop's exercises, Sparseloop's, Eyeriss' formula."""

from __future__ import annotations

import math
from typing import Any

import pytest

from heterocompute.hardware import mapper

RF = {"words": 64, "read": 0.42564, "write": 0.42564, "update": 0.42564, "leak": 0.000861}
SRAM = {"words": 262144, "block": 8, "read": 43.353054, "write": 30.878292, "update": 30.878292, "leak": 0.007972}
DRAM = {"block": 32, "read": 2048.0, "write": 2048.0, "update": 2048.0}
MAC = 0.845

CONV = mapper.Problem({"P": 16, "R": 3}, {"W": [{"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"P": 1}]}, "O")
CONV_K = mapper.Problem(
    {"K": 32, "P": 16, "R": 3}, {"W": [{"K": 1}, {"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"K": 1}, {"P": 1}]}, "O"
)
CONV_CK = mapper.Problem(
    {"C": 32, "K": 32, "P": 16, "R": 3},
    {"W": [{"C": 1}, {"K": 1}, {"R": 1}], "I": [{"C": 1}, {"P": 1, "R": 1}], "O": [{"K": 1}, {"P": 1}]},
    "O",
)
ONE = mapper.Arch([mapper.Level("Buffer", **RF)], mac=MAC)
TWO = mapper.Arch([mapper.Level("MainMemory", **SRAM), mapper.Level("Buffer", **RF)], mac=MAC)
THREE = mapper.Arch(
    [mapper.Level("DRAM", **DRAM), mapper.Level("GlobalBuffer", **SRAM), mapper.Level("RF", **RF)], mac=MAC
)

# pJ per multiply-add, and W, I, O counts of (level, reads, fills, updates).
EXAMPLES: dict[str, tuple[Any, ...]] = {
    "00": (CONV, ONE, {"Buffer": [("P", 16), ("R", 3)]}, 2.406541, [("Buffer", (48, 48, 32), (0, 0, 0), 48)]),
    "01-ws": (
        CONV, TWO, {"MainMemory": [("R", 3)], "Buffer": [("P", 16)]}, 7.5000805,
        [("Buffer", (48, 48, 32), (3, 18, 0), 48), ("MainMemory", (3, 18, 0), (0, 0, 0), 16)],
    ),
    "01-os": (
        CONV, TWO, {"MainMemory": [("P", 16)], "Buffer": [("R", 3)]}, 7.5000805,
        [("Buffer", (48, 48, 32), (3, 18, 0), 48), ("MainMemory", (3, 18, 0), (0, 0, 0), 16)],
    ),
    "02-os": (
        CONV_K, TWO, {"MainMemory": [("K", 32), ("P", 16)], "Buffer": [("R", 3)]}, 6.2581961,
        [("Buffer", (1536, 1536, 1024), (96, 576, 0), 1536), ("MainMemory", (96, 576, 0), (0, 0, 0), 512)],
    ),
    "03-no-bypass": (
        CONV_K, THREE, {"GlobalBuffer": [("K", 16), ("P", 16)], "RF": [("K", 2), ("R", 3)]}, 32.1305139,
        [("GlobalBuffer", (96, 288, 0), (96, 18, 0), 512), ("DRAM", (96, 18, 0), (0, 0, 0), 512)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_timeloop_exercises_come_out(name: str) -> None:
    problem, arch, temporal, energy, counts = EXAMPLES[name]
    stats = mapper.evaluate(problem, arch, mapper.Mapping(temporal))
    # The published number has so many digits.
    assert stats.energy_per_compute == pytest.approx(energy, abs=0.5e-7 if name != "00" else 1e-12)
    assert stats.energy_per_compute == pytest.approx(energy, rel=1e-6)
    for level, reads, fills, updates in counts:
        assert tuple(stats[level, tensor].reads for tensor in "WIO") == reads
        assert tuple(stats[level, tensor].fills for tensor in "WIO") == fills
        assert stats[level, "O"].updates == updates
    assert stats.cycles == stats.computes and stats.utilisation == 1


def test_tiles_of_the_first_exercises() -> None:
    one = mapper.evaluate(CONV, ONE, mapper.Mapping({"Buffer": [("P", 16), ("R", 3)]}))
    assert [one["Buffer", t].tile for t in "WIO"] == [3, 18, 16]
    ws = mapper.evaluate(CONV, TWO, mapper.Mapping({"MainMemory": [("R", 3)], "Buffer": [("P", 16)]}))
    assert [ws["Buffer", t].tile for t in "WIO"] == [1, 16, 16]
    os = mapper.evaluate(CONV, TWO, mapper.Mapping({"MainMemory": [("P", 16)], "Buffer": [("R", 3)]}))
    assert [os["Buffer", t].tile for t in "WIO"] == [3, 3, 1]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("00", {"Buffer": 1.56154}),
        ("01-ws", {"Buffer": 1.74776, "MainMemory": 4.90732}),
        ("02-os", {"Buffer": 1.74776, "MainMemory": 3.66544}),
        ("03-no-bypass", {"RF": 1.66795, "GlobalBuffer": 2.95090, "DRAM": 26.66667}),
    ],
)
def test_energy_by_level(name: str, parts: dict[str, float]) -> None:
    problem, arch, temporal, _, _ = EXAMPLES[name]
    stats = mapper.evaluate(problem, arch, mapper.Mapping(temporal))
    assert stats.mac_energy / stats.computes == pytest.approx(MAC, rel=1e-12)
    for level, energy in parts.items():
        assert stats.level_energy(level) / stats.computes == pytest.approx(energy, abs=0.5e-5)


def test_sixteen_global_buffers() -> None:
    """The reference output of exercise 04 has a global buffer in each cell, below the fan-out."""
    arch = mapper.Arch(
        [
            mapper.Level("DRAM", **DRAM),
            mapper.Level("GB", instances=16, **SRAM),
            mapper.Level("RF", instances=16, **RF),
        ],
        mac=MAC,
    )
    mapping = mapper.Mapping({"GB": [("C", 2), ("K", 32), ("R", 3)], "RF": [("P", 16)]}, {"DRAM": [("C", 16)]})
    stats = mapper.evaluate(CONV_CK, arch, mapping)
    assert (stats.cycles, stats.computes) == (3072, 49152)
    wanted = {
        ("RF", "W"): (3072, 192, 0, 22228.62), ("RF", "I"): (3072, 1152, 0, 28766.45),
        ("RF", "O"): (2560, 512, 3072, 41842.11), ("GB", "W"): (192, 192, 0, 28504.84),
        ("GB", "I"): (1152, 36, 0, 102355.70), ("GB", "O"): (512, 0, 1024, 107632.27),
        ("DRAM", "W"): (3072, 0, 0, 196608.0), ("DRAM", "I"): (576, 0, 0, 36864.0), ("DRAM", "O"): (0, 0, 512, 32768.0),
    }  # fmt: skip
    for place, (reads, fills, updates, energy) in wanted.items():
        found = stats[place]
        assert (found.reads, found.fills, found.updates) == (reads, fills, updates), place
        assert found.energy == pytest.approx(energy, abs=0.005)
    assert stats.leakage["RF"] == pytest.approx(42.32, abs=0.005)
    assert stats.leakage["GB"] == pytest.approx(391.84, abs=0.005)


def test_containers_are_judged_alone() -> None:
    """The diagonal of Eyeriss: 14 columns and 3 rows need 16 inputs in one level, 42 in two."""
    problem = mapper.Problem({"Q": 14, "S": 3}, {"W": [{"S": 1}], "I": [{"Q": 1, "S": 1}], "O": [{"Q": 1}]}, "O")
    levels = [
        mapper.Level("Buffer"),
        mapper.Level("Columns", keeps=set(), instances=14),
        mapper.Level("Cell", instances=42),
    ]
    stats = mapper.evaluate(
        problem, mapper.Arch(levels), mapper.Mapping({}, {"Buffer": [("Q", 14)], "Columns": [("S", 3)]})
    )
    assert stats["Buffer", "I"].reads == 42
    flat = mapper.Arch([mapper.Level("Buffer"), mapper.Level("Cell", instances=42)])
    stats = mapper.evaluate(problem, flat, mapper.Mapping({}, {"Buffer": [("Q", 14), ("S", 3)]}))
    assert stats["Buffer", "I"].reads == 16


@pytest.mark.parametrize("reuse", [(2, 3, 4, 5), (1, 7, 2, 3), (4, 1, 1, 6), (3, 5, 8, 1)])
def test_eyeriss_energy_of_nested_reuse(reuse: tuple[int, int, int, int]) -> None:
    """a DRAM + a b GLB + a b c array + a b c d RF for each input, relative costs 200, 6, 2, 1 (ISCA 2016)."""
    a, b, c, d = reuse
    dims = {"A": a, "B": b, "C": c, "D": d, "X1": 2, "X2": 3, "X3": 2, "X4": 5}
    values = {"X1": 30, "X2": 10, "X3": 5, "X4": 1}
    problem = mapper.Problem(dims, {"I": [values], "O": [{"A": 1}, {"B": 1}, {"C": 1}, {"D": 1}]}, "O")
    arch = mapper.Arch(
        [
            mapper.Level("DRAM", read=200.0),
            mapper.Level("GLB", keeps={"I"}, read=6.0),
            mapper.Level("array", keeps={"I"}, read=2.0, instances=c),
            mapper.Level("RF", keeps={"I"}, read=1.0, instances=c),
        ]
    )
    temporal = {
        "DRAM": [("A", a), ("X1", 2)], "GLB": [("B", b), ("X2", 3)], "array": [("X3", 2)], "RF": [("D", d), ("X4", 5)]
    }  # fmt: skip
    stats = mapper.evaluate(problem, arch, mapper.Mapping(temporal, {"GLB": [("C", c)]}))
    found = sum(stats[level, "I"].energy for level in ("DRAM", "GLB", "array", "RF"))
    assert found == 60 * (a * 200 + a * b * 6 + a * b * c * 2 + a * b * c * d * 1)


def test_eyeriss_figures_agree_with_each_other() -> None:
    """The numbers of the chip's paper (JSSC 2017) follow from its layers: AlexNet with 4 frames, VGG-16."""
    alexnet = [(3, 96, 55, 11), (48, 256, 27, 5), (256, 384, 13, 3), (192, 384, 13, 3), (192, 256, 13, 3)]
    vgg = [(3, 64, 224), (64, 64, 224), (64, 128, 112), (128, 128, 112), (128, 256, 56), (256, 256, 56), (256, 256, 56)]
    vgg += [(256, 512, 28), (512, 512, 28), (512, 512, 28), *[(512, 512, 14)] * 3]
    macs = sum(mapper.Problem.conv2d(c=c, k=k, p=p, q=p, r=r, s=r).computes for c, k, p, r in alexnet)
    assert macs == 665_784_864 and round(4 * macs / 1e9, 2) == 2.66
    assert round(15.4e6 / 2 / (4 * macs), 4) == 0.0029 and round(7.7e6 / (4 * 227**2), 1) == 37.4
    large = sum(mapper.Problem.conv2d(c=c, k=k, p=p, q=p, r=3, s=3).computes for c, k, p in vgg)
    assert large == 15_346_630_656 and round(large / macs, 2) == 23.05


def dot(**zeros: Any) -> mapper.Stats:
    problem = mapper.Problem({"K": 16}, {"A": [{"K": 1}], "B": [{"K": 1}], "Z": []}, "Z", densities={"A": 0.25})
    return mapper.evaluate(
        problem, mapper.Arch([mapper.Level("Buffer", words=64, **zeros)]), mapper.Mapping({"Buffer": [("K", 16)]})
    )


def test_zeros_of_a_dot_product() -> None:
    dense = dot()
    assert (dense.cycles, dense.actual_computes, dense["Buffer", "Z"].reads) == (16, 16, 15)
    gated = dot(gate={"B": {"A"}, "Z": {"A"}})
    assert (gated.cycles, gated.actual_computes) == (16, 4)
    b, z = gated["Buffer", "B"], gated["Buffer", "Z"]
    assert (b.reads, b.gated_reads, b.skipped_reads) == (4, 12, 0)
    assert (z.reads, z.updates, z.gated_updates) == (3, 4, 12)
    skipped = dot(compress={"A": 4}, skip={"B": {"A"}, "Z": {"A"}})
    assert (skipped.cycles, skipped.actual_computes) == (4, 4)
    assert skipped["Buffer", "A"].stored == 4 and skipped["Buffer", "A"].reads == 4
    assert (skipped["Buffer", "B"].reads, skipped["Buffer", "B"].skipped_reads) == (4, 12)
    assert (skipped["Buffer", "Z"].reads, skipped["Buffer", "Z"].skipped_reads) == (3, 12)


def test_zeros_of_two_sparse_matrices() -> None:
    tensors = {"A": [{"M": 1}, {"K": 1}], "B": [{"K": 1}, {"N": 1}], "Z": [{"M": 1}, {"N": 1}]}
    problem = mapper.Problem({"M": 8, "K": 8, "N": 8}, tensors, "Z", densities={"A": 0.25, "B": 0.5})
    packed = {"A": 4, "B": 4}
    skip = {"A": {"B"}, "B": {"A"}, "Z": {"A", "B"}}
    arch = mapper.Arch(
        [mapper.Level("Backing", compress=packed), mapper.Level("Buffer", words=128, compress=packed, skip=skip)]
    )
    stats = mapper.evaluate(problem, arch, mapper.Mapping({"Buffer": [("M", 8), ("K", 8), ("N", 8)]}))
    assert (stats.cycles, stats.actual_computes, stats.computes) == (64, 64, 512)
    a, b, z = (stats["Buffer", tensor] for tensor in "ABZ")
    assert (a.stored, a.reads, a.skipped_reads, a.fills) == (16, 64, 64, 16)
    assert (b.stored, b.reads, b.skipped_reads, b.fills) == (32, 64, 192, 32)
    assert (z.reads, z.skipped_reads, z.updates, z.skipped_updates) == (56, 392, 64, 448)
    assert (stats["Backing", "A"].reads, stats["Backing", "B"].reads) == (16, 32)


@pytest.mark.parametrize(
    ("density", "m", "spread", "cycles", "computes"),
    [(0.43, 1, 1, 12, 12), (0.33, 1, 1, 9, 9), (0.4333, 16, 1, 188, 188), (0.4333, 16, 4, 47, 188)],
)
def test_zeros_of_a_convolution(density: float, m: int, spread: int, cycles: int, computes: int) -> None:
    tensors = {"W": [{"M": 1}, {"S": 1}], "I": [{"S": 1, "Q": 1}], "O": [{"M": 1}, {"Q": 1}]}
    problem = mapper.Problem({"M": m, "S": 3, "Q": 9}, tensors, "O", densities={"W": density})
    buffer = mapper.Level("Buffer", compress={"W": 4}, skip={"I": {"W"}, "O": {"W"}}, instances=spread)
    arch = mapper.Arch([mapper.Level("Backing", compress={"W": 4}), buffer])
    spatial = {"Backing": [("M", spread)]}
    stats = mapper.evaluate(
        problem, arch, mapper.Mapping({"Buffer": [("M", m // spread), ("Q", 9), ("S", 3)]}, spatial)
    )
    assert (stats.cycles, stats.actual_computes) == (cycles, computes)
    if density == 0.33:  # the reference output that is published
        assert [stats["Buffer", t].reads for t in "WIO"] == [9, 9, 5]
        assert (stats["Buffer", "W"].fills, stats["Backing", "W"].reads, stats["Buffer", "O"].updates) == (1, 1, 9)


def test_two_of_four_is_half() -> None:
    problem = mapper.Problem.gemm(1, 8, 8)
    sparse = mapper.Problem(problem.dims, problem.tensors, "O", densities={"W": mapper.Density.n_of_m(2, 4)})
    arch = mapper.Arch([mapper.Level("Buffer", compress={"W": 2})])
    stats = mapper.evaluate(sparse, arch, mapper.Mapping({"Buffer": [("N", 8), ("K", 8)]}))
    w = stats["Buffer", "W"]
    assert (w.tile, w.stored, w.index_bits, stats["Buffer", "I"].index_bits) == (64, 32, 64, 0)


def test_shares_are_decimals() -> None:
    """100 x 0.07 is above 7 in binary, and must not become 8."""
    problem = mapper.Problem({"K": 100}, {"A": [{"K": 1}], "Z": []}, "Z", densities={"A": 0.07})
    stats = mapper.evaluate(
        problem, mapper.Arch([mapper.Level("B", compress={"A": 1})]), mapper.Mapping({"B": [("K", 100)]})
    )
    assert stats["B", "A"].stored == 7


def test_a_random_tile_reserves_more_than_its_mean() -> None:
    def stored(kind: str, k: int) -> int:
        zeros = {"A": mapper.Density(0.1, kind)}
        problem = mapper.Problem({"K": 10000}, {"A": [{"K": 1}], "Z": []}, "Z", densities=zeros)
        arch = mapper.Arch([mapper.Level("DRAM"), mapper.Level("B", compress={"A": 8})])
        stats = mapper.evaluate(problem, arch, mapper.Mapping({"DRAM": [("K", 10000 // k)], "B": [("K", k)]}))
        return stats["B", "A"].stored

    assert stored("fixed", 100) == 10
    # 10 + 2.33 standard deviations of sqrt(100 x 0.1 x 0.9 x 9900 / 9999).
    assert stored("uniform", 100) == math.ceil(10 + 2.3263478740408408 * math.sqrt(9 * 9900 / 9999)) == 17
    assert stored("uniform", 10000) == 1000


def test_bandwidth_stalls() -> None:
    arch = mapper.Arch([mapper.Level("DRAM", read_bandwidth=0.125), mapper.Level("Buffer")])
    mapping = mapper.Mapping({"DRAM": [("R", 3)], "Buffer": [("P", 16)]})
    assert mapper.evaluate(CONV, arch, mapping).cycles == 21 * 8
    arch = mapper.Arch([mapper.Level("DRAM"), mapper.Level("Buffer", bandwidth=2, write_bandwidth=0.5)])
    # 48 + 48 + 32 read, 3 + 18 filled, 48 updated: 69 / 0.5 cycles for what comes in.
    assert mapper.evaluate(CONV, arch, mapping).cycles == 138


FIT = mapper.Mapping({"MainMemory": [("R", 3)], "Buffer": [("P", 16)]})
SMALL = mapper.Arch([mapper.Level("MainMemory"), mapper.Level("Buffer", words=32)])


@pytest.mark.parametrize(
    ("arch", "mapping", "sentence"),
    [
        (SMALL, FIT, "mapping: Buffer holds 32 words, the tiles take 33 (W 1, I 16, O 16): 1 too many"),
        (
            mapper.Arch([mapper.Level("MainMemory"), mapper.Level("Buffer", words={"I": 12})]), FIT,
            "mapping: Buffer holds 12 words, the tiles take 16 (I 16): 4 too many",
        ),
        (
            TWO, mapper.Mapping({"MainMemory": [("R", 3)]}, {"Buffer": [("P", 16)]}),
            "mapping: Buffer spreads over 16 instances below it, there are 1: 15 too many",
        ),
        (TWO, mapper.Mapping({"Buffer": [("P", 16)]}), "mapping: the bounds of R multiply to 1, the problem has 3"),
        (TWO, mapper.Mapping({"Cache": []}), "mapping: no level is called 'Cache', there are MainMemory, Buffer"),
        (TWO, mapper.Mapping({"Buffer": [("X", 2)]}), "mapping: Buffer loops over 'X', the problem has P, R"),
        (
            TWO, mapper.Mapping({"Buffer": [("P", 16), ("R", 3)]}, keeps={"MainMemory": {"W"}}),
            "level MainMemory: the outermost level keeps every tensor, not only ['W']",
        ),
        (
            mapper.Arch([mapper.Level("MainMemory", skip={"W": {"I"}}), mapper.Level("Buffer")]), FIT,
            "level MainMemory: W is gated or skipped there, but only the last level that keeps a tensor can do this, "
            "because zeros are tested element by element",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_by_how_much(arch: mapper.Arch, mapping: mapper.Mapping, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        mapper.evaluate(CONV, arch, mapping)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: mapper.Problem({"P": 0}, {"O": [{"P": 1}]}, "O"), "Problem: dimension P is 0, expected at least 1"),
        (lambda: mapper.Problem({"P": -3}, {"O": [{"P": 1}]}, "O"), "Problem: dimension P is -3, expected at least 1"),
        (lambda: mapper.Problem({"P": 2.5}, {"O": []}, "O"), "Problem: dimension P is 2.5, expected a whole number"),
        (lambda: mapper.Problem({"P": 2}, {"O": [{"Q": 1}]}, "O"), "Problem: O has an axis over 'Q', the dims are P"),
        (
            lambda: mapper.Problem({"P": 2}, {"Z": [{"P": 0}]}, "Z"),
            "Problem: coefficient of P in Z is 0, expected at least 1",
        ),
        (lambda: mapper.Problem({"P": 2}, {"O": []}, "X"), "Problem: output is 'X', the tensors are O"),
        (
            lambda: mapper.Problem({"P": 2**40, "Q": 2**40}, {"O": []}, "O"),
            "Problem: more than 2^53 operations or words (1208925819614629174706176 operations)",
        ),
        (lambda: mapper.Mapping({"A": [("P", 0)]}), "Mapping: bound of P at A is 0, expected at least 1"),
        (lambda: mapper.Mapping({"A": ["P16"]}), "Mapping: a loop of A is 'P16', expected (dimension, bound)"),
        (lambda: mapper.Level("A", words=0), "Level A: words is 0, expected at least 1"),
        (
            lambda: mapper.Level("A", read=math.nan),
            "Level A: read is nan, expected a finite number that is not negative",
        ),
        (lambda: mapper.Density(1.5), "Density: share is 1.5, expected above 0 and at most 1"),
        (
            lambda: mapper.Arch([mapper.Level("A"), mapper.Level("B", instances=3), mapper.Level("C", instances=4)]),
            "Arch: 4 instances of C cannot be divided among the 3 above them",
        ),
        (lambda: mapper.Arch([mapper.Level("A"), mapper.Level("A")]), "Arch: two levels have one name: A, A"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_says_why(make: Any, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        make()
    assert str(caught.value) == sentence
