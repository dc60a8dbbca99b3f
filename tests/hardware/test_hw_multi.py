"""Several devices: formulas compared with schedules and exchanges that are simulated step by step."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from common import bad_argument

from heterocompute import hardware as hw
from heterocompute.base.values import check_number
from heterocompute.hardware.systems.multi.scaling import balanced

multi = hw.multi


def ring_seconds(count: int, size: float, rate: float, latency: float) -> float:
    """Pass pieces around a ring until each device has every sum, and return the sum of the steps."""
    have = [[{device} for _ in range(count)] for device in range(count)]  # whose part is in each piece
    seconds = 0.0
    for step in range(2 * (count - 1)):
        sent = []
        for device in range(count):
            piece = (device - step) % count
            sent.append((piece, set(have[device][piece])))
        for device, (piece, parts) in enumerate(sent):
            have[(device + 1) % count][piece] |= parts
        seconds += size / count / rate + latency
    assert all(len(parts) == count for device in have for parts in device)
    return seconds


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_a_ring_is_its_steps(count: int) -> None:
    assert multi.allreduce(6e8, count, 3e8, 1e-3) == pytest.approx(ring_seconds(count, 6e8, 3e8, 1e-3), rel=1e-12)


def test_trees_win_where_latency_counts() -> None:
    for size, best in ((1e3, "tree"), (1e10, "ring")):
        found = {way: multi.allreduce(size, 64, 1e11, 1e-5, way) for way in ("ring", "tree")}
        assert min(found, key=lambda way: found[way]) == best
    assert multi.allreduce(0, 1024, 1e9, 1e-6, "tree") == pytest.approx(20e-6)
    assert multi.allreduce(1e9, 8, 1e9, 0, "switch") == 1.0


def test_tiers_follow_each_other_or_overlap() -> None:
    pod = multi.fabric("dgx-a100", 1024)
    inside, outside = multi.allreduce(1e9, 8, 300e9), multi.allreduce(1e9 / 8, 128, 25e9)
    steps = 14 * 0.6e-6 + 254 * 2.7e-6
    assert multi.allreduce(1e9, 1024, pod) == pytest.approx(max(inside, outside) + steps)
    assert multi.allreduce(1e9, 1024, pod, pipelined=False) == pytest.approx(inside + outside + steps)
    assert multi.allreduce(1e9, 8, pod) == pytest.approx(inside + 14 * 0.6e-6)
    assert multi.allreduce(1e9, 1, pod) == 0
    slow = multi.Fabric("mine", (multi.Tier("node", 4, 1e9, 1e-3), multi.Tier("net", 2, 1e8)))
    assert multi.allreduce(0, 8, slow) == pytest.approx(6e-3)


def test_a_small_message_waits_for_the_steps_of_its_fabric() -> None:
    """Steps of NCCL's tuning table: 2 x 7 over NVLink and 2 x 7 over InfiniBand."""
    pod = multi.fabric("dgx-h100", 64)
    assert multi.allreduce(4096, 64, pod) == pytest.approx(14 * 0.6e-6 + 14 * 2.7e-6, rel=0.01)
    assert multi.reduce_bandwidth(64, pod) == pytest.approx(1 / max(14 / 8 / 450e9, 14 / 8 / 8 / 50e9))


def test_a_superpod_joins_1024_gpus() -> None:
    pod = multi.fabric("dgx-a100", 1024)
    assert [tier.count for tier in pod.tiers] == [8, 128] and pod.bisection == 1024 * 25e9
    assert multi.fabric("dgx-a100").bisection == 2.4e12 and multi.fabric("dgx-h100").bisection == 3.6e12
    node = multi.fabric("dgx-2")
    assert node.count == 16 and node.all_to_all == pytest.approx(16 * 150e9)
    assert pod.all_to_all == pytest.approx(1024 * 25e9 * 1023 / 1016)
    with bad_argument(ValueError, "count", "value"):
        multi.fabric("dgx-a100", 1028)
    with bad_argument(ValueError, "count", "value"):
        multi.fabric("dgx-h100-nvlink", 2048)
    with bad_argument(ValueError, None, "value", "dgx-a100"):
        multi.fabric("dgx-a10")
    with bad_argument(ValueError, None, "value", "'dgx-2'"):
        multi.fabric(["dgx-2"])  # type: ignore[arg-type]
    with bad_argument(ValueError, "rate", "value"):
        multi.Tier("x", 2, -1)


def test_generations_of_nvlink_are_those_of_the_devices() -> None:
    for generation, link in multi.NVLINK.items():
        assert 2 * link.rate == hw.device(link.chip).links[f"nvlink{generation}"]
    rates = [link.rate for link in multi.NVLINK.values()]
    assert [round(b / a, 3) for a, b in zip(rates, rates[1:], strict=False)] == [1.875, 2.0, 1.5, 2.0]


def test_without_waiting_the_server_is_the_limit() -> None:
    found = multi.parameter_server(0.1, 1e8, 4, 1e10)
    assert found["bound"] == "workers" and found["updates"] == pytest.approx(4 / 0.12)
    many = multi.parameter_server(0.1, 1e8, 100, 1e10)
    assert many["bound"] == "servers" and many["updates"] == pytest.approx(100) and many["staleness"] == 99
    assert multi.parameter_server(0.1, 0, 4, 1e10)["efficiency"] == 1
    synchronous = multi.data_parallel(0.1, 1e8, 4, 1e10)
    assert 1 / synchronous["seconds"] * 4 > found["updates"]  # a ring moves less than a push and a pull


def schedule(times: list[float], pieces: int, copy: float) -> float:
    """Run pieces through stages that process one piece at a time."""
    free = [0.0] * len(times)
    for _ in range(pieces):
        ready = 0.0
        for stage, seconds in enumerate(times):
            begin = max(ready, free[stage])
            free[stage] = begin + seconds
            ready = free[stage] + copy
    return free[-1]


@pytest.mark.parametrize("times", [[1.0] * 8, [1.0, 3.0, 2.0], [2.5]])
def test_a_pipeline_is_its_schedule(times: list[float]) -> None:
    for pieces in (1, 4, 32):
        found = multi.pipeline_parallel(times, pieces, copy_seconds=0.25)
        assert found["seconds"] == pytest.approx(schedule(times, pieces, 0.25), rel=1e-12)
    if len(set(times)) == 1:
        equal = multi.pipeline_parallel(len(times), 16)
        assert equal["bubble"] == pytest.approx((len(times) - 1) / (16 + len(times) - 1))
        parts = multi.pipeline_parallel(len(times), 16, interleaved=4)
        assert parts["bubble"] == pytest.approx((len(times) - 1) / (4 * 16 + len(times) - 1))


def test_a_slice_of_each_block_sums_its_outputs() -> None:
    found = multi.tensor_parallel(8.0, 1e8, 24, 8, 3e11)
    assert found["allreduce"] == pytest.approx(24 * 4 * multi.allreduce(1e8, 8, 3e11))
    assert found["seconds"] == pytest.approx(1.0 + found["allreduce"])
    assert multi.tensor_parallel(8.0, 1e8, 24, 1, 3e11)["efficiency"] == 1


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 7])
def test_stages_are_as_even_as_layers_allow(parts: int) -> None:
    times = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    ends = balanced(times, parts)
    assert len(ends) == parts and ends[-1] == len(times) and ends == sorted(set(ends))
    longest = max(sum(times[a:b]) for a, b in zip([0, *ends], ends, strict=False))
    ways = itertools.combinations(range(1, len(times)), parts - 1)
    best = min(max(sum(times[a:b]) for a, b in itertools.pairwise([0, *way, len(times)])) for way in ways)
    assert longest == pytest.approx(best)


def test_a_network_scales_in_three_ways() -> None:
    pod = multi.fabric("dgx-a100", 16)
    rows = multi.scaling("gpt2", "a100-sxm-80gb", pod, batch=8, utilization=0.5)
    assert [row["count"] for row in rows] == [1, 2, 4, 8, 16]
    step = 3 * hw.roofline("gpt2", "a100-sxm-80gb", "bf16", batch=8).seconds / 0.5
    assert all(rows[0][way]["seconds"] == pytest.approx(step) for way in ("data", "tensor", "pipeline"))
    four = rows[2]
    expected = multi.tensor_parallel(step, 8 * 1024 * 768 * 2, 12, 4, pod.of(4))
    assert four["tensor"]["efficiency"] == expected["efficiency"]
    gradients = 2 * hw.networks["gpt2"].params
    expected = multi.data_parallel(step, gradients, 4, pod.of(4))
    assert four["data"]["throughput"] == pytest.approx(4 * 8 / expected["seconds"])
    bubble = multi.pipeline_parallel(4, 8)["efficiency"]
    assert 0 < four["pipeline"]["efficiency"] <= bubble and rows[4]["tensor"] is None  # 12 heads on 16
    assert multi.scaling("alexnet", "t4", pod, [16], dtype="fp16")[0]["pipeline"] is None  # 8 layers


def bytes_by_hand(c: int, k: int, pixels: int, columns: int, rows: int) -> int:
    """Count, per channel, the chiplets that need it and that add to it; 3 bytes per partial sum, 1 per operand."""
    places = [(a, b) for a in range(columns) for b in range(rows)]
    inputs = sum(pixels for channel in range(c) for _, b in places if channel * rows // c == b)
    sums = sum(3 * pixels for channel in range(k) for a, b in places if channel * columns // k == a and b)
    return inputs + sums + k * pixels


def test_bytes_between_chiplets_are_those_that_each_needs() -> None:
    layer = [hw.layers.Linear(24, 36, bias=False)]
    for count in (2, 4, 6, 12):
        row = multi.chiplets(layer, count, 1, input_shape=(10, 24)).layers[0]
        assert row["package_bytes"] == bytes_by_hand(24, 36, 10, *row["grid"])
    alone = multi.chiplets(layer, 1, 4, input_shape=(10, 24))
    assert alone.package_bytes == 0 and alone.layers[0]["chip_bytes"] == bytes_by_hand(
        24, 36, 10, *alone.layers[0]["element_grid"]
    )
    assert alone.energy == 0


def test_more_chiplets_are_faster_until_links_bind() -> None:
    seconds = [multi.chiplets("alexnet", count).seconds for count in (1, 4, 9, 36)]
    assert seconds == sorted(seconds, reverse=True)
    slow = multi.chiplets("alexnet", 36, link=1e7)
    assert all(row["seconds"] == row["package_seconds"] for row in slow.layers)
    found = multi.chiplets("mobilenet_v2", 36)
    assert found.to_dict()["package_bytes"] == sum(row["package_bytes"] for row in found.layers) > 0
    assert sum(row["macs"] for row in found.layers) == hw.count("mobilenet_v2").macs
    assert 2 * found.to_dict()["layers"][0]["macs"] / (36 * 16 * 127.8e12 / 576) <= found.layers[0]["seconds"]


def test_collectives_add_up() -> None:
    """A ring all-reduce is a reduce-scatter and an all-gather; an all-to-all sends all pieces except the local one."""
    both = sum(multi.collective(kind, 1e9, 8, 300e9, 1e-6) for kind in ("reduce-scatter", "all-gather"))
    assert both == pytest.approx(multi.allreduce(1e9, 8, 300e9, 1e-6))
    assert multi.collective("broadcast", 1e9, 8, 1e9, 1e-3) == pytest.approx(1.003)
    assert multi.collective("scatter", 1e9, 8, 1e9) == multi.collective("gather", 1e9, 8, 1e9) == 0.875
    assert multi.collective("all-to-all", 1e9, 8, "a100-sxm-80gb") == pytest.approx(0.875e9 / 300e9)
    assert multi.collective("reduce", 1e9, 1, 1e9, 1.0) == 0
    with bad_argument(ValueError, "kind", "value"):
        multi.collective("gossip", 1, 2, 1e9)


def test_one_process_sends_weights_and_batches_too() -> None:
    found = multi.one_process(0.1, 1e9, 4, 1e10, input_bytes=4e8, output_bytes=4e6)
    assert found["moved"] == pytest.approx(0.1 + 0.03 + 0.0003 + 0.1)
    assert found["efficiency"] == pytest.approx(0.1 / (0.1 + found["moved"]))
    assert found["efficiency"] < multi.data_parallel(0.1, 1e9, 4, 1e10)["efficiency"]
    assert multi.one_process(0.1, 1e9, 1, 1e10)["moved"] == 0


def test_growth_is_a_series() -> None:
    rows = {row["name"]: row for row in multi.growth()}
    assert rows["AlexNet"]["gain"] == 1 and rows["AlexNet"]["doubling_months"] is None
    # "10^4" is printed for BERT to GPT-3; the table of the GPT-3 paper, and this, give 1,926 and 1,914
    gain = rows["GPT-3 175B"]["operations"] / rows["BERT-Base"]["operations"]
    assert gain == pytest.approx(3640 / 1.89, rel=0.01)
    # 323 10^21 operations are printed for GPT-3
    assert rows["GPT-3 175B"]["operations"] == pytest.approx(323e21, rel=0.03)
    assert 3.4 < rows["GPT-3 175B"]["doubling_months"] < 24


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: multi.allreduce(1, 2, 1e9, algorithm="star"),
            "algorithm is 'star', expected one of ring, tree, switch",
        ),
        (lambda: multi.allreduce(1, 2, 0), "link is 0"),
        (lambda: multi.pipeline_parallel(0, 4), "stages is 0"),
        (lambda: multi.pipeline_parallel([], 4), "stages are empty"),
        (lambda: multi.pipeline_parallel([1, 2], 4, interleaved=2), "the stages are not equal"),
        (lambda: multi.pipeline_parallel([1, math.nan], 4), "stages is nan"),
        (lambda: multi.parameter_server(0, 1, 1, 1e9), "step_seconds is 0"),
        (lambda: multi.tensor_parallel(1, 1, 0, 1, 1e9), "blocks is 0"),
        (lambda: multi.chiplets("alexnet", 0), "count is 0"),
        (lambda: multi.chiplets("alexnet", 10**12), "count is 1000000000000, at most 1048576"),
        (lambda: multi.chiplets("alexnet", elements=2**21), "elements is 2097152, at most 1048576"),
        (lambda: multi.chiplets("alexnet", link=math.inf), "link is inf"),
    ],
)
def test_what_makes_no_sense_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64])
def test_numbers_of_numpy_are_numbers(kind: Any) -> None:
    found = check_number("call", "name", kind(2))
    assert type(found) is float and found == 2
    with bad_argument(ValueError, "name", "value"):
        check_number("call", "name", kind(3), high=2)


@pytest.mark.parametrize(
    ("name", "width", "layers"), [("qwen3_32b", 5120, 64), ("gemma3_27b", 5376, 62), ("deepseek_v3", 7168, 61)]
)
def test_links_carry_the_width_of_the_model(name: str, width: int, layers: int) -> None:
    """Heads together are 8192, 4096 and 16384 wide, and DeepSeek has two products with keys per layer."""
    network = hw.networks[name]
    positions = network.input_shape[0]
    assert network.stream == positions * width and network.decoding(100).stream == width
    chip, pod = hw.device("a100-sxm-80gb"), multi.fabric("dgx-a100", 8)
    one, two = multi.scaling(name, chip, pod, [1, 2], batch=1, dtype="bf16", utilization=1.0)
    step = 3 * hw.roofline(network, chip, "bf16").seconds
    assert one["tensor"] is not None and two["tensor"] is not None
    sent = multi.tensor_parallel(step, positions * width * 2, layers, 2, pod.of(2))
    assert two["tensor"]["seconds"] == pytest.approx(sent["seconds"])
    (row,) = hw.compare(name, "a100-sxm-80gb", context=100)
    assert row["link_seconds"] == pytest.approx((row["count"] - 1) * width * 2 / (chip.links["nvlink3"] / 2))
