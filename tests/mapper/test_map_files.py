"""Reading and writing YAML: our layout, the subset of Timeloop's, and hostile files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from common import bad_argument

pytest.importorskip("yaml", reason="PyYAML is not installed (extra yaml)")

from heterocompute.hardware import mapper
from heterocompute.hardware.mapper import yaml_text

ARCH = """
architecture:
  version: 0.4
  nodes:
  - !Container
    name: System
    attributes: {technology: "40nm", global_cycle_seconds: 1e-9}
  - !Component
    name: MainMemory
    class: DRAM
    attributes: {width: 256, datawidth: 8}
  - !Container
    name: PE
    spatial: {meshX: 16}
  - !Component
    name: GlobalBuffer
    class: SRAM
    attributes: {depth: 32768, width: 64, datawidth: 8}
  - !Component
    name: RegisterFile
    class: regfile
    attributes: {depth: 64, width: 8, datawidth: 8}
  - !Component
    name: MACC
    class: intmac
    attributes: {datawidth: 8}
"""
PROBLEM = """
problem:
  version: 0.4
  shape:
    name: Conv1D
    dimensions: [C, K, R, P]
    coefficients: []
    data_spaces:
    - name: Weights
      projection: [[[C]], [[K]], [[R]]]
    - name: Inputs
      projection: [[[C]], [[R], [P]]]
    - name: Outputs
      projection: [[[K]], [[P]]]
      read_write: True
  instance: {C: 32, K: 32, R: 3, P: 16}
"""
MAPPING = """
mapping:
- {target: MainMemory, type: temporal, factors: [R=1, P=1, K=1, C=1], permutation: [P, R, K, C]}
- {target: PE, type: spatial, factors: [R=1, P=1, K=1, C=16], permutation: [P, R, K, C]}
- {target: GlobalBuffer, type: temporal, factors: "R=3,P=1,K=0,C=2", permutation: PRKC}
- {target: RegisterFile, type: temporal, factors: P16, permutation: RPKC}
"""
ERT = """
ERT:
  version: '0.4'
  tables:
  - name: System_top_level.MainMemory[1..1]
    actions: [{name: leak, energy: 0.0}, {name: update, energy: 2048.0}, {name: read, energy: 2048.0},
              {name: write, energy: 2048.0}]
  - name: System_top_level.GlobalBuffer[1..16]
    actions: [{name: leak, energy: 0.007972}, {name: update, energy: 30.878292}, {name: read, energy: 43.353054},
              {name: write, energy: 30.878292}]
  - name: System_top_level.RegisterFile[1..16]
    actions: [{name: leak, energy: 0.000861}, {name: update, energy: 0.42564}, {name: read, energy: 0.42564},
              {name: write, energy: 0.42564}]
  - name: System_top_level.MACC[1..16]
    actions: [{name: compute, energy: 0.845}]
"""


def read(tmp_path: Path, *texts: str) -> mapper.Files:
    paths = []
    for i, text in enumerate(texts):
        paths.append(tmp_path / f"{i}.yaml")
        paths[-1].write_text(text)
    return mapper.read_yaml(*paths)


def test_an_exercise_of_timeloop_is_read_and_comes_out(tmp_path: Path) -> None:
    found = read(tmp_path, ARCH, PROBLEM, MAPPING, ERT)
    assert found.notes == []
    assert found.problem is not None and found.arch is not None and found.mapping is not None
    assert str(found.mapping) == ("MainMemory: -\nGlobalBuffer: C2 K32 R3\nRegisterFile: P16\nPE: - | spatial C16")
    stats = mapper.evaluate(found.problem, found.arch, found.mapping)
    # The reference output of that exercise: 3072 cycles, 49152 computes, and these energies in pJ.
    assert (stats.cycles, stats.computes) == (3072, 49152)
    assert stats["GlobalBuffer", "Inputs"].energy == pytest.approx(102355.70, abs=0.005)
    assert stats["RegisterFile", "Outputs"].energy == pytest.approx(41842.11, abs=0.005)
    assert stats.mac_energy == pytest.approx(41533.44, abs=0.005)


def test_the_flat_form_of_the_front_end_is_the_same(tmp_path: Path) -> None:
    flat = """
architecture:
  version: '0.4'
  subtree:
  - name: System_top_level
    attributes: {version: '0.4', technology: 40nm, has_power_gating: false}
    local:
    - {name: "MainMemory[1..1]", class: DRAM, attributes: {width: 256, datawidth: 8, meshX: 1, cluster_size: 1}}
    - {name: "inter_PE_spatial[1..1]", class: dummy_storage, attributes: {width: 1, depth: 1, datawidth: 1}}
    - {name: "GlobalBuffer[1..16]", class: SRAM, attributes: {depth: 32768, width: 64, datawidth: 8, meshX: 16}}
    - {name: "RegisterFile[1..16]", class: regfile, attributes: {depth: 64, width: 8, datawidth: 8}, enabled: true}
    - {name: "MACC[1..16]", class: intmac, attributes: {datawidth: 8}, required_actions: [compute]}
architecture_constraints: {targets: []}
mapper: {algorithm: hybrid}
"""
    mapping = MAPPING.replace("target: PE", "target: inter_PE_spatial")
    mapping += "- {target: inter_PE_spatial, type: bypass, bypass: [Weights, Inputs, Outputs]}\n"
    one = read(tmp_path, ARCH, PROBLEM, MAPPING, ERT)
    two = read(tmp_path, flat, PROBLEM, mapping, ERT)
    assert two.notes == ["mapper: left aside, it changes no count"]
    nested, level = (mapper.evaluate(f.problem, f.arch, f.mapping) for f in (one, two))
    assert level.accesses == nested.accesses and level.energy == nested.energy and level.cycles == 3072


def test_what_costs_nothing_is_noted(tmp_path: Path) -> None:
    notes = read(tmp_path, ARCH, PROBLEM).notes
    assert notes[0] == "MainMemory: no energies in an ERT, its accesses cost 0" and len(notes) == 4


def test_bypass_directives(tmp_path: Path) -> None:
    bypass = "- {target: GlobalBuffer, type: datatype, keep: [Weights, Inputs], bypass: [Outputs]}\n"
    found = read(tmp_path, ARCH, PROBLEM, MAPPING + bypass, ERT)
    stats = mapper.evaluate(found.problem, found.arch, found.mapping)
    assert ("GlobalBuffer", "Outputs") not in stats.accesses and ("GlobalBuffer", "Inputs") in stats.accesses


def test_sparse_optimizations(tmp_path: Path) -> None:
    text = """
architecture:
  version: 0.4
  nodes:
  - !Component {name: Buffer, class: regfile, attributes: {depth: 64, width: 8, datawidth: 8, read_bandwidth: 3}}
  - !Component {name: MAC, class: intmac}
problem:
  shape:
    name: dot
    dimensions: [K, M]
    data-spaces:
    - {name: A, projection: [[[K]]]}
    - {name: B, projection: [[[K]]]}
    - {name: Z, projection: [[[M]]], read-write: true}
  instance: {K: 16, M: 1, densities: {A: {distribution: fixed-structured, density: 0.25}}}
mapping: [{target: Buffer, type: temporal, factors: K=16 M=1, permutation: KM}]
sparse_optimizations:
  targets:
  - name: Buffer
    representation-format: {data-spaces: [{name: A, ranks: [{format: CP}]}]}
    action-optimization:
    - {type: skipping, target: B, condition-on: [A]}
    - {type: skipping, options: [{target: Z, condition-on: [A]}]}
"""
    found = read(tmp_path, text)
    stats = mapper.evaluate(found.problem, found.arch, found.mapping)
    assert (stats.cycles, stats["Buffer", "A"].stored, stats["Buffer", "Z"].reads) == (4, 4, 3)
    assert "A: stored without zeros, indices are not counted" in found.notes


def test_ours_come_back(tmp_path: Path) -> None:
    problem = mapper.Problem.conv2d(c=4, k=8, p=6, q=6, r=3, s=3, stride=2)
    problem = mapper.Problem(problem.dims, problem.tensors, "O", densities={"W": mapper.Density(0.5, "uniform")})
    levels = [
        mapper.Level("DRAM", read=640.0, block=4, compress={"W": 4.0}),
        mapper.Level("GLB", words={"I": 500, "O": 100}, keeps={"I", "O"}, bandwidth=4.0, leak=0.5),
        mapper.Level("RF", words=32, instances=8, cluster=2, skip={"O": {"W"}}, gate={"I": {"W"}}),
    ]
    arch = mapper.Arch(levels, mac=0.8, macs=16)
    mapping = mapper.Mapping(
        {"DRAM": [("K", 8), ("P", 6), ("Q", 6)], "RF": [("R", 3), ("S", 3)]}, {"GLB": [("C", 4)]}, {"RF": {"W", "O"}}
    )
    path = tmp_path / "all.yaml"
    mapper.write_yaml(path, problem, arch, mapping)
    found = mapper.read_yaml(path)
    assert (found.problem, found.arch, found.mapping) == (problem, arch, mapping)


BOMB = list(zip("abcdefgh", "bcdefghi", strict=True))

REFUSED: dict[str, tuple[str, ...]] = {
    "outside": (
        (PROBLEM.replace("instance: {", "instance: {densities: {Weights: {distribution: banded, density: 0.5}}, ")),
        "problem.instance.densities.Weights.distribution 'banded' is outside the part of Timeloop v4 that is modelled",
    ),
    "kind": (
        ARCH.replace("- !Component\n    name: GlobalBuffer", "- !Parallel\n    name: GlobalBuffer"),
        "a node of kind Parallel (GlobalBuffer) is outside the part",
    ),
    "attribute": (
        ARCH.replace("depth: 64,", "depth: 64, n_teeth: 3,"),
        "architecture: RegisterFile: the attribute n_teeth is outside the part",
    ),
    "power": (
        ARCH.replace("depth: 64,", "depth: 64, has_power_gating: true,"),
        "RegisterFile: has_power_gating True is outside the part",
    ),
    "constraints": (
        ARCH.replace("name: MACC", "name: MACC\n    constraints: {temporal: {factors: [K=1]}}"),
        "architecture: MACC: constraints.temporal is outside the part",
    ),
    "version": (ARCH.replace("0.4", "0.3"), "architecture.version 0.3 is outside the part"),
    "key": ("problem: {}\nnoc: {}\n", "'noc' is outside the part"),
    "tag": ("arch: !!python/object/apply:os.system [echo]\n", "could not determine a constructor for the tag"),
    "tag of nobody": ("arch: !Magic {a: 1}\n", "line 1: the tag !Magic is not known"),
    "template": ("problem: {{ include('x') }}\n", "templates ({{ ... }}) are outside the part"),
    "twice": ("problem: {a: 1, a: 2}\n", "line 1: 'a' appears twice"),
    "syntax": ("problem: [1, 2\n", "line 2: expected ',' or ']', but got '<stream end>'"),
    "nameless": (
        "architecture: {subtree: [{name: a, local: [{class: DRAM}]}]}\n",
        "architecture.local lacks 'name'",
    ),
    "list": ("- 1\n", "expected keys such as problem, arch or architecture, mapping"),
    "ours": ("arch: {levels: [{name: A, colour: 3}]}\n", "arch.levels[0].colour is not known"),
    "zero": ("problem: {dims: {P: 0}, tensors: {O: []}, output: O}\n", "dimension P is 0, expected at least 1"),
    "negative": ("problem: {dims: {P: -2}, tensors: {O: []}, output: O}\n", "dimension P is -2, expected at least 1"),
    "number as a key": ("1: 2\n", "the key 1 is not a string"),
    "nothing as a key": ("problem: {}\nnull: 2\n", "the key None is not a string"),
    "energy": (f"arch: {{levels: [{{name: A, read: 1{'0' * 400}}}]}}\n", "Level A: read is 1000"),
    "great energy": ("arch: {levels: [{name: A, read: 1.0e+101}]}\n", "A: read is 1e+101, expected at most 1e+100"),
    "energy of a product": (f"arch: {{mac: 1{'0' * 400}, levels: [{{name: A}}]}}\n", "Arch: mac is 1000"),
    "many digits": (f"arch: {{levels: [{{name: A, read: 0x{'f' * 5000}}}]}}\n", "read is an int of 20000 bits"),
    "negative digits": (
        f"problem: {{dims: {{P: -0x{'f' * 5000}}}, tensors: {{O: []}}, output: O}}\n",
        "dimension P is an int of 20000 bits, expected at least 1",
    ),
    "energy of Timeloop": (
        (ARCH + ERT).replace("energy: 2048.0", f"energy: 1{'0' * 400}"), "energy of update is 1000"
    ),
    "width": (ARCH.replace("width: 256", f"width: 1{'0' * 400}"), "MainMemory: width is 1000"),
    "vector": (ARCH.replace("width: 256, datawidth: 8", "width: 1.0e+99, datawidth: 1.0e-99"), "block_size is 9.99"),
    "depth": (ARCH.replace("depth: 64,", "depth: 1.0e+99,"), "Level RegisterFile: words is more than 2^53"),
    "huge": (f"arch: {{levels: [{{name: A, words: 1{'0' * 400}}}]}}\n", "Level A: words is more than 2^53"),
    "infinite": ("arch: {levels: [{name: A, read: 1.0e+999}]}\n", "Level A: read is inf, expected a finite number"),
    "date": ("problem: {dims: {P: 2020-01-01}, tensors: {O: []}, output: O}\n", "expected a whole number"),
    "deep": ("a: " + "[" * 40 + "]" * 40 + "\n", "nested more than 24 deep"),
    "many": ("a: [" + "1," * 30_000 + "]\n", "more than 20000 nodes"),
    "bomb": (
        "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in BOMB),
        "more than 20000 nodes once aliases are written out",
    ),
    "loop": ("a: &a [*a]\n", "an alias refers to a node that contains it"),
    "merge": ("a: &a {<<: *a}\n", "an alias refers to a node that contains it"),
    "large": ("#" * 300_000, "more than 262144 bytes"),
    "key of a list": ("? [1, 2]\n: 3\n", "a key is not a plain value"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str, tmp_path: Path) -> None:
    text, sentence = REFUSED[name]
    with pytest.raises(ValueError) as caught:
        read(tmp_path, text)
    assert sentence in str(caught.value) and str(caught.value).startswith(str(tmp_path / "0.yaml"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("R=3,P=1", "R=2,P=1"), None),
        (("factors: P16", "factors: 'P=16,15'"), "mapping[3]: the factor '15' is outside the part"),
        (("K=0", "K=5"), None),
        (("PRKC", "PRKX"), "mapping[2]: the permutation is ['P', 'R', 'K', 'X'], the problem has C, K, R, P"),
        (("permutation: PRKC", "permutation: RC"), "mapping[2]: loops ['K'] that the permutation does not place"),
        (("target: RegisterFile", "target: Cache"), "mapping[3]: no level is called 'Cache', there are MainMemory, PE"),
        (("type: spatial", "type: skew"), "mapping[1]: a directive of type 'skew' is outside the part"),
    ],
)
def test_mappings_that_are_refused(change: tuple[str, str], sentence: str | None, tmp_path: Path) -> None:
    text = MAPPING.replace(*change)
    assert text != MAPPING
    if sentence is None:  # the factors no longer multiply to the problem's
        found = read(tmp_path, ARCH, PROBLEM, text)
        with bad_argument(ValueError, None, "value", r"^mapping: the bounds of \w multiply to"):
            mapper.evaluate(found.problem, found.arch, found.mapping)
        return
    with pytest.raises(ValueError) as caught:
        read(tmp_path, ARCH, PROBLEM, text)
    assert sentence in str(caught.value)


def test_without_pyyaml_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.yaml").write_text("a: 1\n")
    with pytest.raises(ImportError, match=r"YAML files need PyYAML: pip install 'heterocompute\[yaml\]'"):
        mapper.read_yaml(tmp_path / "a.yaml")


def test_one_key_stands_in_one_file(tmp_path: Path) -> None:
    with bad_argument(ValueError, None, "file", "'problem'.*0.yaml"):
        read(tmp_path, PROBLEM, PROBLEM)
    with pytest.raises(FileNotFoundError):
        mapper.read_yaml(tmp_path / "absent.yaml")


def test_aliases_and_merged_tables_are_read() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, z: [*a, 0x10, 1e-9]}\n"
    a = {"x": 1, "y": 2}
    assert yaml_text.parse(text) == {"a": a, "b": {**a, "x": 3}, "c": {**a, "x": 3, "z": [a, 16, "1e-9"]}}
    several = "a: &a {x: 1, y: 2}\nb: &b {x: 5, z: 7}\nc: {<<: [*a, *b], y: 3}\n"
    assert yaml_text.parse(several)["c"] == {"x": 1, "y": 3, "z": 7}
    for wrong in ("c: {<<: 3}", "c: {<<: [[1]]}"):
        with bad_argument(ValueError, None, "value", "line 1: << does not name a table"):
            yaml_text.parse(wrong)
    assert yaml_text.parse("") is None and yaml_text.parse("!Container {name: A}") == {
        "!kind": "Container",
        "name": "A",
    }


def test_random_text_is_refused_and_nothing_else(tmp_path: Path) -> None:
    import random

    rng = random.Random(0)
    alphabet = [
        "- ",
        "{",
        "}",
        "[",
        "]",
        ": ",
        "&a ",
        "*a",
        "!Component ",
        "\n",
        "  ",
        "name",
        "problem",
        "0x",
        "'",
        "|",
    ]
    for _ in range(300):
        text: Any = "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 40)))
        try:
            yaml_text.parse(text)
        except ValueError as error:
            assert str(error)
