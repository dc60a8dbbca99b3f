"""Absurd arguments of `hardware`: an error that names the argument, no infinity, no unformatted Python error."""

from __future__ import annotations

from typing import Any

import pytest

from heterocompute import hardware as hw

HUGE = 10**400
GEMM = hw.mapper.Problem.gemm(4, 4, 4)
DRAM = hw.mapper.Arch([hw.mapper.Level("DRAM")])
EIE = hw.accelerators.eie()
FEED = {"step": 0.05, "read": 0.02, "decode": 0.1, "copy": 0.01}


@pytest.mark.parametrize("name", [*FEED, "open_seconds", "staging", "metrics"])
@pytest.mark.parametrize("value", [1e308, HUGE, 1e-320, -1, float("nan"), float("inf"), "x", None])
def test_seconds_of_a_pipeline(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"pipeline: {name} is .*, expected a number from 0 to 1e\\+09"):
        hw.systems.pipeline(**(FEED | {name: value}))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hw.systems.pipeline(**FEED, files=HUGE), "pipeline: files is .*, expected 0 to"),
        (lambda: hw.systems.pipeline(**FEED, storage=HUGE), "pipeline: storage is .*, expected 1 to"),
        (lambda: hw.systems.utilization(HUGE), "utilization: blocks is an int of|utilization: blocks is 1000"),
        (lambda: hw.systems.utilization(1, threads=HUGE), "threads is"),
        (lambda: hw.systems.hbm_bandwidth(HUGE, 1024, 1e9), "stacks is .*, expected a positive integer below 2\\^63"),
        (lambda: hw.systems.hbm_bandwidth(5, 1024, 1e308),
         "rate is 1e\\+308, expected a number above 0 of 1e-60 to 1e\\+60"),
        (lambda: hw.systems.training_flops(1e308, 1), "parameters is 1e\\+308"),
        (lambda: hw.systems.doubling_time(1e-320), "is 1e-320, expected a number above 0 of 1e-60"),
        (lambda: hw.systems.copy_seconds(HUGE, "t4"), "size is 1000"),
        (lambda: hw.systems.copy_seconds("x", "t4"), "size is 'x', expected a number from 0"),
        (lambda: hw.throughput(1e308, "1000 op", "1 s"), "is 1e\\+308, expected"),
        (lambda: hw.dvfs("1 W", "1 s", ("1e-100 V", "1e59 V"), ("1 GHz", "1 GHz")), "inf"),
        (lambda: hw.dvfs("1 W", "1 s", None, ("1 GHz", "1 GHz")), "dvfs: voltage is None, expected two"),
        (lambda: hw.overhead("hfma", overhead_pj=HUGE), "overhead_pj is 1000"),
        (lambda: hw.mac("int8", "int8", HUGE), "accumulator_bits is 1000"),
        (lambda: hw.systolic.simulate([[1]], [[1]], 2, 2**20), "systolic: 2 x 1048576 cells take .* at most 2\\^36 to"),
        (lambda: hw.multi.allreduce(1e6, HUGE, 1e9), "count is 1000"),
        (lambda: hw.multi.pipeline_parallel(10**12, 4), "stages is 1000000000000, expected at most 2\\^20"),
        (lambda: hw.systems.largest_batch("alexnet", "t4", optimizer=[]), "optimizer is \\[\\], expected one of"),  # type: ignore[arg-type]
        (lambda: hw.accelerators.tensor_core([]), "generation is \\[\\], expected one of volta"),
        (lambda: hw.accelerators.magnet({}), "dataflow is {}, expected one of ws"),
        (lambda: hw.accelerators.magnet("ws", []), "process is \\[\\], expected one of"),
        (lambda: hw.accelerators.eie(HUGE), "eie: depth is 1000"),
        (lambda: hw.accelerators.groq_lpu([]), "groq_lpu: chips is \\[\\]"),
        (lambda: EIE.report("digits", layers=[[]]), "eie.report: layers has \\[\\], digits has no such layer"),
        (lambda: hw.explore({"format": ["zz"]}, "digits"), "explore: no point runs the networks; the first one: .*zz"),
        (lambda: hw.accelerators.tpu_v1().report("digits", []), "format is \\[\\], expected one of int8"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_absurd_values_are_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hw.possible(1e9, 1e6, 3, ["t4"]), "possible: timings is 3, expected seconds"),
        (lambda: hw.possible(1e9, 1e6, {"x": 1.0}, 3), "possible: devices is 3, expected names of devices"),
        (lambda: hw.systems.dispatch("alexnet", None), "dispatch: devices is None, expected names"),
        (lambda: hw.explore({"lanes": [8]}, "digits", 3), "objective is 3, expected a column"),
        (lambda: hw.multi.scaling("gpt2", "t4", "dgx-a100"), "fabric is 'dgx-a100', expected a Fabric"),
        (lambda: hw.mapper.search("conv1", DRAM), "search: problem is 'conv1', expected a Problem"),  # type: ignore[arg-type]
        (lambda: hw.mapper.search(GEMM, "eyeriss"), "search: arch is 'eyeriss', expected an Arch"),  # type: ignore[arg-type]
        (lambda: hw.mapper.evaluate(None, DRAM, {}), "evaluate: problem is None, expected a Problem"),  # type: ignore[arg-type]
        (lambda: hw.mapper.evaluate(GEMM, [], {}), "evaluate: arch is \\[\\], expected an Arch"),  # type: ignore[arg-type]
        (lambda: hw.mapper.evaluate(GEMM, DRAM, {"DRAM": []}), "evaluate: mapping is .*, expected a Mapping"),  # type: ignore[arg-type]
        (lambda: hw.mapper.mapping_page(GEMM, DRAM, 3), "mapping_page: mapping is 3, expected a Mapping"),  # type: ignore[arg-type]
        (lambda: hw.mapper.write_yaml("never.toml", 3), "write_yaml: problem is 3, expected a Problem"),  # type: ignore[arg-type]
        (lambda: EIE.report("digits", layers="fc"), "eie.report: layers is 'fc', expected names of layers"),
        (lambda: EIE.report("digits", zeros=3), "eie.report: zeros is 3, expected {layer"),  # type: ignore[arg-type]
        (lambda: EIE.report("digits", zeros={"fc": 0.5}), "eie.report: zeros is {'fc': 0.5}, expected"),  # type: ignore[dict-item]
        (lambda: hw.mapper.Arch(3), "Arch: levels is 3, expected at least one Level"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_wrong_types_are_named(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()
