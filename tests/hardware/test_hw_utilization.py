"""Utilization meters of a GPU, memory bandwidth, measurement, published timings, and the largest batch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from common import bad_argument

from heterocompute import hardware as hw


def meters_by_hand(blocks: int, sms: int, each: int, warps: int, most: int) -> tuple[float, float]:
    """Assign blocks one by one, wave by wave, and average over multiprocessors and waves."""
    active = resident = waves = 0.0
    while blocks:
        load = [0] * sms
        for i in range(min(blocks, sms * each)):
            load[i % sms] += 1
        blocks -= sum(load)
        active += sum(one > 0 for one in load) / sms
        resident += sum(load) * warps / (sms * most)
        waves += 1
    return 100 * active / waves, 100 * resident / waves


@pytest.mark.parametrize("blocks", [1, 107, 108, 109, 864, 865, 5000])
def test_meters_are_those_of_blocks_handed_out(blocks: int) -> None:
    found = hw.systems.utilization(blocks, "a100-sxm-80gb", 256)
    active, resident = meters_by_hand(blocks, 108, found.blocks_per_sm, 8, 64)
    assert found.blocks_per_sm == 8 and found.bound == "threads"
    assert found.sm_active == pytest.approx(active) and found.occupancy == pytest.approx(resident)
    assert found.waves == math.ceil(blocks / 864) and found.nvml == 100


def test_one_block_is_all_and_nothing() -> None:
    one = hw.systems.utilization(1, "a100-sxm-40gb", tensor_share=0.5)
    assert one.nvml == 100 and round(one.sm_active, 2) == 0.93 and one.tensor_active == one.sm_active / 2
    h100 = hw.systems.utilization(1, "h100-sxm")
    assert round(h100.sm_active, 2) == 0.76  # 132 multiprocessors
    half = hw.systems.utilization(10_000, "v100-sxm2", busy_share=0.4)
    assert half.nvml == 40 and half.sm_active < 40.0001 and half.to_dict()["sms"] == 80


@pytest.mark.parametrize(
    "options, each, bound",
    [
        ({"threads": 1024}, 2, "threads"),
        ({"threads": 32}, 32, "blocks"),
        ({"threads": 256, "registers": 128}, 2, "registers"),
        ({"threads": 128, "shared": 48 << 10}, 3, "shared memory"),
        ({"threads": 33}, 32, "threads"),  # whole warps
    ],
)
def test_what_a_multiprocessor_holds(options: dict[str, int], each: int, bound: str) -> None:
    found = hw.systems.utilization(100, "a100-sxm-40gb", **options)
    assert (found.blocks_per_sm, found.bound) == (each, bound)


def test_what_no_launch_is() -> None:
    with bad_argument(
        ValueError, None, "value", "does not fit on a multiprocessor of t4: too much for its shared memory"
    ):
        hw.systems.utilization(1, "t4", shared=65 << 10)
    with bad_argument(ValueError, None, "value", "tpu-v3"):
        hw.systems.utilization(1, "tpu-v3")
    for wrong in ({"blocks": 0}, {"tensor_share": 2.0}, {"threads": 2000}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
            hw.systems.utilization(**{"blocks": 1, **wrong})
    with bad_argument(ValueError, "rate", "value"):
        hw.systems.hbm_bandwidth(5, 1024, 0)


def ticking(times: list[float]) -> Any:
    """A clock that returns these durations one after the other."""
    marks = [value for i in range(len(times)) for value in (sum(times[:i]), sum(times[: i + 1]))]
    return iter(marks).__next__


def test_the_median_counts_and_warm_up_does_not() -> None:
    calls: list[str] = []
    times = [9.0, 1.0, 2.0, 3.0, 4.0]
    found = hw.measure(lambda: calls.append("call"), batch=6, warmup=2, runs=5, seconds=0, clock=ticking(times),
                       synchronize=lambda: calls.append("wait"))  # fmt: skip
    assert found.seconds == 3 and (found.low, found.high) == (2, 4) and found.rate == 2 and found.runs == 5
    assert calls == ["call"] * 2 + ["wait", "call", "wait"] * 5
    longer = hw.measure(lambda: None, runs=2, seconds=10.0, clock=ticking([1.0] * 30))
    assert longer.runs == 10 and hw.measure(lambda: None, runs=2, seconds=99.0, clock=ticking([1.0] * 30)).runs == 20
    assert "half of 10 runs" in repr(longer)
    with bad_argument(TypeError, "call", "type"):
        hw.measure(5)  # type: ignore[arg-type]


def test_which_printed_timings_can_be_true() -> None:
    """256 filters of 5 x 5 x 3, stride 2, over 128 images of 256 x 256; 2.44 s, 280 ms, 2.47 s, 1.22 ms printed."""
    work = hw.count([hw.layers.Conv2d(3, 256, 5, stride=2, padding=2)], (3, 256, 256), batch=128)
    traffic = 4 * 128 * (3 * 256**2 + 256 * 128**2)
    assert work.flops == 2 * 128 * 128**2 * 256 * 75 == 80_530_636_800
    printed = {"2.44 s": 2.44, "280 ms": 0.28, "2.47 s": 2.47, "1.22 ms": 1.22e-3}
    host = hw.Device("two cores", peak={"fp32": 2 * 32 * 2.3e9}, bandwidth=2e10)
    rows = hw.possible(work.flops, traffic, printed, [host, "k80", "t4", "tpu-v2", "tpu-v2-8"])
    share = {(row["timing"], row["device"]): row["share"] for row in rows}
    wanted = {
        ("280 ms", "two cores"): 1.95,
        ("280 ms", "k80"): 0.103,
        ("1.22 ms", "tpu-v2"): 2.63,
        ("1.22 ms", "tpu-v2-8"): 0.66,
    }
    assert {key: share[key] for key in wanted} == pytest.approx(wanted, abs=0.01)
    fits = {
        timing: {device for (when, device), part in share.items() if when == timing and part <= 1} for timing in printed
    }
    assert fits["1.22 ms"] == {"tpu-v2-8"} and fits["280 ms"] == {"k80", "t4", "tpu-v2", "tpu-v2-8"}
    assert fits["2.44 s"] == fits["2.47 s"] == {"two cores", *fits["280 ms"]}
    assert {row["dtype"] for row in rows if row["device"].startswith("tpu")} == {"bf16"}
    with bad_argument(ValueError, "timings", "value"):
        hw.possible(1, 1, [0], ["t4"])


@pytest.mark.parametrize("options", [{}, {"training": False}, {"dtype": "int4", "training": False}, {"dtype": "fp16"}])
def test_one_more_does_not_fit(options: dict[str, Any]) -> None:
    chip = hw.Device("small", peak={"fp16": 1e12}, bandwidth=1e11, memory=2e9)
    found = hw.systems.largest_batch("resnet18", chip, **options)
    kind = {key: value for key, value in options.items() if key != "training"}
    takes = hw.memory.infer if options.get("training") is False else hw.memory.training
    sizes = [takes("resnet18", batch=found.batch + more, **kind).total for more in (0, 1)]
    assert sizes[0] == found.bytes <= found.limit < sizes[1] and found.target == 2 * found.batch


def test_what_makes_room_is_said_in_bytes() -> None:
    found = hw.systems.largest_batch("resnet18", "t4", target=1000)
    saved = {row["change"]: row for row in found.changes}
    assert list(saved) == [row["change"] for row in sorted(found.changes, key=lambda row: -row["saved"])]
    assert set(saved) == {"format", "checkpointing", "optimizer", "accumulation"}
    params = hw.networks["resnet18"].params
    assert saved["optimizer"]["saved"] == 8 * params
    before = hw.memory.training("resnet18", batch=1000).total
    assert saved["format"]["saved"] == before - hw.memory.training("resnet18", batch=1000, dtype="fp16").total
    parts = -(-1000 // found.batch)
    piece = hw.memory.training("resnet18", batch=-(-1000 // parts)).total
    assert saved["accumulation"]["saved"] == before - piece and saved["accumulation"]["fits"] and piece <= found.limit
    assert saved["checkpointing"]["batch"] > found.batch and "checkpointing" in repr(found)
    assert found.to_dict()["changes"] == found.changes
    shorter = {row["change"]: row for row in hw.systems.largest_batch("bert_base", "t4", target=64).changes}["sequence"]
    half = hw.memory.training(hw.networks["bert_base"].with_input((64,)), batch=64).total
    assert shorter["saved"] == hw.memory.training("bert_base", batch=64).total - half and shorter["how"][:3] == "64 "
    none = hw.systems.largest_batch("llama_7b", "t4", dtype="fp16")
    assert none.batch == 0 and none.target == 1 and none.bytes > none.limit
    with bad_argument(ValueError, None, "value", "its memory is not known"):
        hw.systems.largest_batch("resnet18", "eyeriss")


def test_multiprocessors_that_saturate_the_memory() -> None:
    """A100, 40 GB: 1555e9 B/s for 500 ns are 777,500 bytes in flight, 2,048 threads with 16 bytes each 32,768."""
    assert hw.systems.saturating_sms("a100-sxm-40gb", 500e-9) == math.ceil(1555e9 * 500e-9 / 32768) == 24
    assert hw.systems.saturating_sms("a100-sxm-40gb", 500e-9, threads=1024) == 48
    with bad_argument(ValueError, None, "value", "needs 190 multiprocessors .* has 108"):
        hw.systems.saturating_sms("a100-sxm-40gb", 500e-9, bytes_a_thread=4, threads=1024)
    with bad_argument(ValueError, None, "value", "tpu-v2"):
        hw.systems.saturating_sms("tpu-v2", 500e-9)


QUERY = """\
timestamp, index, utilization.gpu [%], utilization.memory [%], memory.used [MiB], power.draw [W], clocks.sm [MHz]
2026/11/26 10:00:00.000, 0, 90 %, 40 %, 1024 MiB, 300.00 W, 1400 MHz
2026/11/26 10:00:00.010, 1, 0 %, 0 %, 3 MiB, [N/A], 210 MHz
2026/11/26 10:00:02.000, 0, 100 %, 50 %, 2048 MiB, 310.00 W, 1410 MHz
"""
DMON = """# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk
# Idx      W      C      C      %      %      %      %    MHz    MHz
    0    300     60      -     90     40      0      0   1215   1400
    0    310     62      -    100     50      0      0   1215   1410
"""


def test_logs_of_nvidia_smi(tmp_path: Path) -> None:
    (tmp_path / "query.csv").write_text(QUERY)
    first, second = hw.systems.read_smi(tmp_path / "query.csv")
    assert first["gpu"] == "0" and first["samples"] == 2 and first["busy"] == 95 and first["memory_busy"] == 45
    assert first["memory"] == 2048 << 20 and first["watts"] == 305 and first["clock"] == 1.405e9
    assert first["seconds"] == pytest.approx(2) and first["joules"] == pytest.approx(610)
    assert second["gpu"] == "1" and "watts" not in second and "joules" not in second
    (tmp_path / "dmon.txt").write_text(DMON)
    (found,) = hw.systems.read_smi(str(tmp_path / "dmon.txt"))
    assert found == {
        "gpu": "0",
        "samples": 2,
        "busy": 95,
        "memory_busy": 45,
        "watts": 305,
        "clock": 1.405e9,
        "celsius": 61,
    }


def test_a_log_without_a_header_has_the_columns_of_the_query(tmp_path: Path) -> None:
    (tmp_path / "query.csv").write_text(QUERY)
    head, _, rest = QUERY.lstrip().partition("\n")
    (tmp_path / "bare.csv").write_text(rest)
    names = ",".join(one.split("[")[0].strip() for one in head.split(","))
    assert hw.systems.read_smi(tmp_path / "bare.csv", names) == hw.systems.read_smi(tmp_path / "query.csv")
    for columns, message in (
        (None, "columns= names those of a log without a header"),
        ("a,b", "columns is 'a,b', expected names such as"),
        ("index,power.draw", "line 1 of .* has 7 values, expected 2"),
    ):
        with pytest.raises(ValueError, match=f"read_smi: .*{message}"):
            hw.systems.read_smi(tmp_path / "bare.csv", columns)
    with pytest.raises(ValueError, match="begins with names of its own"):
        hw.systems.read_smi(tmp_path / "query.csv", names)
    with pytest.raises(TypeError, match="columns"):
        hw.systems.read_smi(tmp_path / "bare.csv", ["index"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is empty"),
        ("a, b\n1, 2\n", "no line of names"),
        (QUERY.splitlines()[0], "no sample"),
        (QUERY.replace("90 %", "ninety %"), "utilization.gpu in line 2 .* is 'ninety %', expected a number"),
        (QUERY.replace(", 300.00 W", ""), "line 2 .* has 6 values, expected 7"),
        ("# what\n0 1 2\n", "line 2 .* is before the names of columns"),
    ],
)
def test_what_is_no_log_of_nvidia_smi(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(ValueError, match=f"read_smi: .*{message}"):
        hw.systems.read_smi(tmp_path / "log")
