"""Timeloop's files as dumped by its front end: keys that do not change counts, and repeated entries."""

from __future__ import annotations

from pathlib import Path

import pytest
from common import bad_argument

from heterocompute.hardware import mapper

# Shortened from workspace/tutorial_exercises/02_interface_and_design_space_exploration_2024/outputs of
# Accelergy-Project/timeloop-accelergy-exercises: parsed-processed-input.yaml and timeloop-mapper.ERT.yaml, and in
# Timeloop's layout the mapping of timeloop-mapper.map.txt. Keys of its eyeriss_like and simba_like inputs are added.
DUMP = """
dumped_by_timeloop_front_end: true
architecture:
  version: '0.4'
  subtree:
  - name: system_top_level
    attributes: {version: '0.4', technology: "45nm", global_cycle_seconds: 1e-9, DATAWIDTH: 8, has_power_gating: false}
    local:
    - name: DRAM[1..1]
      class: DRAM
      attributes: {type: "LPDDR4", width: 64, datawidth: 8, has_power_gating: false, n_banks: 2, cluster_size: 1,
                   reduction_supported: true, multiple_buffering: 1, min_utilization: 0, allow_overbooking: false,
                   meshX: 1, meshY: 1, power_gated_at: "DRAM"}
      required_actions: [write, read, leak, update]
      enabled: true
    - name: buffer[1..1]
      class: smartbuffer_SRAM
      attributes: {depth: 512, width: 128, datawidth: 8, nports: 2, update_fifo_depth: 2, n_banks: 2}
      required_actions: [write, read, leak, update]
      enabled: true
    - name: inter_PE_spatial[1..1]
      class: dummy_storage
      attributes: {width: 1, depth: 1, datawidth: 1, technology: -1}
      enabled: true
    - name: mac[1..8]
      class: intmac
      attributes: {multiplier_width: 8, adder_width: 16, has_power_gating: false, meshX: 8, meshY: 1}
      required_actions: [compute]
      enabled: true
architecture_constraints:
  targets:
  - {type: temporal, permutation: GSR, target: DRAM}
  - {keep: [Inputs, Outputs, Weights], type: dataspace, target: buffer}
  - {type: spatial, factors: 'N=1,P=1,Q=1,R=1,M=8,C=1', permutation: GNPQRSCM, split: 17, target: inter_PE_spatial}
  - {bypass: [Weights, Inputs, Outputs], type: dataspace, target: inter_PE_spatial}
problem:
  version: '0.4'
  instance: {C: 128, G: 1, H: 1, Hdilation: 1, Hpad: 0, Hstride: 1, M: 128, N: 32, P: 128, Q: 128, R: 1, S: 1, W: 1,
             Wdilation: 1, Wpad: 0, Wstride: 1,
             densities: {Weights: {density: 1.0, distribution: fixed_structured, band_width: 0,
                                   workload_tensor_size: null}}}
  shape:
    coefficients: [{name: Wstride, default: 1}, {name: Hstride, default: 1}, {name: Wdilation, default: 1},
                   {name: Hdilation, default: 1}]
    data_spaces:
    - {name: Weights, projection: [[[C]], [[M]], [[R]], [[S]], [[G]]], read_write: false}
    - {name: Inputs, projection: [[[N]], [[C]], [[R, Wdilation], [P, Wstride]], [[S, Hdilation], [Q, Hstride]], [[G]]],
       read_write: false}
    - {name: Outputs, projection: [[[N]], [[M]], [[Q]], [[P]], [[G]]], read_write: true}
    dimensions: [C, M, R, S, N, P, Q, G]
    name: ''
compound_components: {version: '0.4', classes: []}
mapping: []
mapper: {version: '0.4', num_threads: 4}
mapspace: {version: '0.4', template: ruby}
globals: {version: '0.4', environment_variables: {}, expression_custom_functions: []}
"""
ERT = """
ERT:
  version: '0.4'
  tables:
  - name: system_top_level.DRAM[1..1]
    actions: [{name: write, arguments: {global_cycle_seconds: 1e-09}, energy: 512.0}, {name: read, energy: 512.0},
              {name: leak, energy: 0.0}, {name: update, energy: 512.0}]
  - name: system_top_level.buffer[1..1]
    actions: [{name: write, energy: 12.6203}, {name: read, energy: 9.65335}, {name: leak, energy: 0.000271},
              {name: update, energy: 12.6203}]
  - {name: "system_top_level.mac[1..8]", actions: [{name: compute, arguments: {}, energy: 3.275}]}
"""
MAP = """
mapping:
- {target: inter_PE_spatial, type: datatype, keep: [], bypass: [Weights, Inputs, Outputs]}
- {target: buffer, type: datatype, keep: [Weights, Inputs, Outputs], bypass: []}
- {target: inter_PE_spatial, type: spatial, factors: C1 M8 R1 S1 N1 P1 Q1 G1, permutation: MCRSNPQG, split: 1}
- {target: inter_PE_spatial, type: temporal, factors: C1 M1 R1 S1 N1 P1 Q1 G1, permutation: CMRSNPQG}
- {target: buffer, type: temporal, factors: C64 M8 R1 S1 N1 P1 Q32 G1, permutation: MQCRSNPG}
- {target: DRAM, type: temporal, factors: C2 M2 R1 S1 N32 P128 Q4 G1, permutation: PQMNCRSG}
"""


def read(folder: Path, *texts: str) -> mapper.Files:
    paths = []
    for i, text in enumerate(texts):
        paths.append(folder / f"{i}.yaml")
        paths[-1].write_text(text)
    return mapper.read_yaml(*paths)


@pytest.mark.parametrize("turned", [False, True])
def test_a_dumped_input_comes_out(turned: bool, tmp_path: Path) -> None:
    texts = (MAP, ERT, DUMP) if turned else (DUMP, MAP, ERT)
    found = read(tmp_path, *texts)
    assert found.problem is not None and found.arch is not None and found.mapping is not None
    stats = mapper.evaluate(found.problem, found.arch, found.mapping)
    # timeloop-mapper.stats.txt: 1073741824 cycles, 7797.63 fJ a compute.
    assert (stats.cycles, stats["buffer", "Inputs"].reads) == (1073741824, 134217728)
    assert stats.energy_per_compute * 1000 == pytest.approx(7797.63, abs=0.005)
    assert found.notes == [
        "architecture_constraints: limits of loops are left aside",
        "compound_components: left aside, it changes no count",
        "mapper: left aside, it changes no count",
        "mapspace: left aside, it changes no count",
        "globals: left aside, it changes no count",
        "problem.instance: left aside, they change no count: H, W, Hpad, Wpad",
        "architecture: left aside, they change no count: adder_width, multiplier_width, nports, update_fifo_depth",
        f"{tmp_path / ('2' if turned else '0')}.yaml: its mapping is left aside",
    ]


def test_a_dump_without_a_mapping_is_a_problem_and_a_machine(tmp_path: Path) -> None:
    found = read(tmp_path, DUMP)
    assert found.mapping is None and found.problem is not None and found.problem.densities == {}
    with bad_argument(ValueError, None, "file", r"'mapping'.*1\.yaml"):
        read(tmp_path, DUMP, MAP, MAP)


def test_what_a_level_keeps_stands_in_its_constraints(tmp_path: Path) -> None:
    limit = "{keep: [Inputs, Outputs], bypass: [Weights], type: dataspace, target: buffer}"
    text = DUMP.replace("{keep: [Inputs, Outputs, Weights], type: dataspace, target: buffer}", limit)
    assert text != DUMP
    found = read(tmp_path, text)
    assert found.arch is not None and found.arch.levels[1].keeps == {"Inputs", "Outputs"}


def test_a_cluster_shares_its_width(tmp_path: Path) -> None:
    """PEWeightRegs of simba_like: 512 bits, 64 instances of 8 bits: one word each."""
    regs = "attributes: {depth: 1, width: 512, cluster_size: 64, num_ports: 2, datawidth: 8, n_banks: 2}"
    buffer = "attributes: {depth: 512, width: 128, datawidth: 8, nports: 2, update_fifo_depth: 2, n_banks: 2}"
    found = read(tmp_path, DUMP.replace(buffer, regs))
    assert found.arch is not None
    level = found.arch.levels[1]
    assert (level.block, level.words, level.cluster) == (1, 1, 64)
    with bad_argument(ValueError, None, "file", "512.0.*48.*1.33"):
        read(tmp_path, DUMP.replace(buffer, regs.replace("cluster_size: 64", "cluster_size: 48")))


def test_a_band_and_other_constraints_are_refused(tmp_path: Path) -> None:
    with bad_argument(ValueError, None, "file", "densities.Weights.band_width"):
        read(tmp_path, DUMP.replace("band_width: 0", "band_width: 3"))
    with bad_argument(ValueError, None, "file", "'utilization'"):
        read(tmp_path, DUMP.replace("{type: temporal, permutation: GSR,", "{type: utilization, min: 0.5,"))
