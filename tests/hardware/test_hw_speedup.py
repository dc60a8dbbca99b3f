"""Overheads, the 317-fold curve, small formulas, comparisons, batch sweeps, several devices, wording."""

from __future__ import annotations

import math
from typing import Any

import pytest
from common import bad_argument

from heterocompute import hardware as hw


def test_overheads_are_computed_and_printed_ones_kept() -> None:
    names = ("hfma", "hdp4a", "hmma", "imma")
    assert [round(hw.overhead(name).percent, 1) for name in names] == [2000.0, 500.0, 27.3, 18.8]
    assert [round(hw.overhead(name, "total").percent, 1) for name in names] == [95.2, 83.3, 21.4, 15.8]
    assert [hw.overhead(name).printed_percent for name in names] == [2000, 500, 22, 16]
    assert [round(hw.overhead(name).printed_needs_pj, 1) for name in names] == [30.0, 30.0, 24.2, 25.6]
    for name in ("hmma", "imma"):  # or about 31 pJ as a share of the total
        assert round(hw.overhead(name, "total", 31).percent) == hw.overhead(name).printed_percent
    assert hw.overhead("HFMA").pj_per_operation == 31.5 / 2 and "10 to 20 %" in hw.overhead("hmma").note
    assert hw.overhead("hdp4a").math_pj == 4 * hw.overhead("hfma").math_pj == 4 * (1.1 + 0.4)
    for call, message in (
        (lambda: hw.overhead("fma"), "instruction is 'fma', expected one of hfma"),
        (lambda: hw.overhead("hmma", "sum"), "relative_to is 'sum'"),
        (lambda: hw.overhead("hmma", overhead_pj=0), "overhead_pj is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_curve_of_inference_rates() -> None:
    rows = hw.series()
    assert [row["tops"] for row in rows] == [3.94, 6.84, 21.20, 125, 261, 1248, 4000, 20000]
    a100 = rows[5]
    assert round(a100["gain"], 2) == 316.75 and 2.0 < a100["yearly"] < 2.1
    for row in rows[:6]:  # each is a rate of the table
        chip = hw.device(row["device"])
        rate = chip.sparse_rates[row["dtype"]] if row["device"].startswith("a100") else chip.peak(row["dtype"])
        assert rate / 1e12 == pytest.approx(row["tops"], rel=1e-9)


def test_the_gain_splits_into_factors() -> None:
    found = hw.explain_gain("k20x", "a100-sxm-40gb")
    assert math.prod(found["factors"].values()) == pytest.approx(found["gain"]) == pytest.approx(1248 / 3.94)
    assert (
        found["factors"]["sparsity"] == 2 and found["factors"]["number"] == 4 and found["factors"]["instruction"] == 8
    )
    for a, b in (("p100-sxm2", "v100-sxm2"), ("v100-sxm2", "h100-sxm"), ("k20x", "t4")):
        other = hw.explain_gain(a, b)
        assert math.prod(other["factors"].values()) == pytest.approx(other["gain"])
    same = hw.explain_gain("a100-sxm-40gb", "h100-sxm", "fp16", "fp16", sparse=False)["factors"]
    assert (same["sparsity"], same["number"], same["base"]) == (1, 2, 19.5 / 312)
    with bad_argument(ValueError, None, "value", "'bf16'"):
        hw.explain_gain("v100-sxm2", "h100-sxm", "bf16")


def test_growth_and_amdahl() -> None:
    assert [round(hw.systems.doubling_time(r), 2) for r in (0.25, 0.52, 0.23, 0.12)] == [3.11, 1.66, 3.35, 6.12]
    assert round(hw.systems.doubling_time(0.03), 1) == 23.4
    assert (
        hw.systems.amdahl(0.5, 2) == pytest.approx(4 / 3)
        and hw.systems.amdahl(0, 9) == 1
        and hw.systems.amdahl(1, 9) == 9
    )
    for call in (
        lambda: hw.systems.doubling_time(0),
        lambda: hw.systems.amdahl(1.5, 2),
        lambda: hw.systems.amdahl(0.5, 0),
    ):
        with pytest.raises(ValueError, match="expected a number"):
            call()


def test_export_arithmetic() -> None:
    assert hw.systems.tpp("a100-sxm-40gb")["tpp"] == 4992 and hw.systems.tpp("a100-sxm-40gb")["listed"] is True
    assert hw.systems.tpp("h100-sxm")["tpp"] == pytest.approx(15830, abs=2)
    assert hw.systems.tpp("a800-sxm-80gb")["listed"] is False  # the same rate, 400 GB/s
    assert hw.systems.tpp("t4")["tpp"] == 65 * 16


def test_copies_and_offload() -> None:
    chip = hw.device("a100-sxm-80gb")
    n = hw.systems.offload_break_even(chip, 1e12, "fp32")
    for size, pays in ((0.9 * n, False), (1.1 * n, True)):
        there = 3 * size**2 * 4 / (31.5e9) + 2 * size**3 / chip.peak("fp32")
        assert (there < 2 * size**3 / 1e12) is pays
    assert hw.systems.offload_break_even(chip, 1e15) == math.inf
    assert hw.systems.copy_seconds(1e9, 1e9) == 1
    with bad_argument(ValueError, None, "value", "PCIe"):
        hw.systems.copy_seconds(1, "tpu-v3")


def test_training_totals() -> None:
    assert hw.systems.training_flops(175e9, 300e9) == pytest.approx(3.15e23)
    assert (
        round(hw.systems.training_flops(175e9, 300e9) / hw.systems.PETAFLOP_DAY) == 3646
        and hw.systems.PETAFLOP_DAY == 8.64e19
    )
    assert round(323e21 / 262e15 / 1e6, 2) == 1.23  # GPT-3 over AlexNet, as printed
    seconds = hw.systems.training_time(1e9, 1e9, "a100-sxm-80gb", count=4, utilization=0.5)
    assert seconds == pytest.approx(6e18 / (4 * 312e12 * 0.5))
    again = hw.systems.training_time(1e9, 1e9, "a100-sxm-80gb", count=4, utilization=0.5, recompute=True)
    assert again == pytest.approx(8e18 / (4 * 312e12 * 0.5))
    with bad_argument(ValueError, "utilization", "value"):
        hw.systems.training_time(1, 1, "a100-sxm-80gb", utilization=1.5)
    assert hw.systems.overlap([1, 3, 2]) == 3 and hw.systems.overlap([1, 3, 2], prefetch=False) == 6
    assert round(hw.break_even_density(1 / 0.79), 2) == 0.79 and hw.break_even_density(0.5) == 1


def test_break_even_of_scnn_is_where_both_densities_fall() -> None:
    """SCNN, ISCA 2017: 0.79 of the speed and 1.33 of the energy on dense data; it breaks even at 0.85 and 0.83."""
    for dense, published in ((1 / 0.79, 0.85), (1.33, 0.83)):
        assert hw.break_even_density(dense, operands=2) == pytest.approx(published, rel=0.05)
        assert hw.break_even_density(dense) == pytest.approx(1 / dense)
        assert 1 / dense < 0.95 * published
    assert hw.break_even_density(1.5, 0.25, operands=2) ** 2 == pytest.approx(0.75 / 1.25)
    with bad_argument(ValueError, "operands", "value"):
        hw.break_even_density(1.33, operands=3)


def test_both_splits_of_a_gain_say_what_they_count() -> None:
    splits = hw.explain_gain("k20x", "a100-sxm-40gb")["splits"]
    rates, energy = splits["rates"], splits["energy"]
    assert math.prod(one["value"] for one in rates.values()) == pytest.approx(316.75, rel=1e-3)
    assert rates["number"]["value"] == 4 and rates["number"]["counts"].startswith("rate of a100-sxm-40gb in int8 over")
    # Dally prints 16 to 32 for the number: fp32 to int8 is 4.6 pJ to 0.2566 pJ, inside that range.
    assert energy["number"]["value"] == pytest.approx(17.9, abs=0.05) and energy["number"]["printed"] == "16 to 32"
    # And 12.5 for instructions: (1.5 + 30) / 2 to (110 + 30) / 128 pJ an operation.
    assert energy["instruction"]["value"] == pytest.approx(15.75 / 1.09375) and energy["sparsity"]["value"] == 2
    assert energy["process"]["value"] is None and all(one["counts"] for one in energy.values())


def test_all_reduce_on_a_ring() -> None:
    assert hw.multi.allreduce(1e9, 8, 300e9) == pytest.approx(2 * 7 / 8 * 1e9 / 300e9)
    assert hw.multi.allreduce(1e9, 1, "a100-sxm-80gb") == 0
    assert hw.multi.allreduce(0, 4, 1e9, latency=1e-5) == pytest.approx(6e-5)
    assert hw.multi.data_parallel(1.0, 1e9, 4, 1e9, overlapped=1.0)["efficiency"] == 1
    with bad_argument(ValueError, "count", "value"):
        hw.multi.allreduce(1, 0, 1e9)
    for wrong in ({"size": -1}, {"size": float("nan")}, {"latency": -1}):
        with pytest.raises(ValueError, match="expected a number from 0 up"):
            hw.multi.allreduce(**{"size": 1, "count": 2, "link": 1e9, **wrong})  # type: ignore[arg-type]
    with bad_argument(ValueError, "size", "value"):
        hw.systems.copy_seconds(-1, 1e9)
    with bad_argument(ValueError, "stages", "value"):
        hw.systems.overlap([1, float("nan")])


def test_three_chips_side_by_side() -> None:
    """The rows of a common table with corrected errors: A100 600 GB/s, 4090 165 with fp32 sums."""
    rows = {row["device"]: row for row in hw.compare("llama_7b", ["h100-sxm", "a100-sxm-80gb", "rtx4090"], context=512)}
    assert [hw.device(name).peak("fp16") / 1e12 for name in rows] == [989.4, 312, 165.2]
    assert all(row["bound"] == "memory" and row["fits"] for row in rows.values())
    rate = {name: hw.device(name).need("bandwidth") for name in rows}
    for name, row in rows.items():
        assert row["throughput"] == pytest.approx(rows["h100-sxm"]["throughput"] * rate[name] / rate["h100-sxm"])


def test_prices_are_the_callers() -> None:
    prices = {"h100-sxm": 30_000, "4090": 2_000}
    h100, ada = hw.compare("bert_base", ["h100-sxm", "rtx4090"], price=prices, batch=64)
    assert h100["performance_price"] == pytest.approx(h100["throughput"] / 30_000)
    assert ada["price"] == 2_000 and ada["cost"] == pytest.approx(1e6 * 2_000 / (ada["throughput"] * 3 * 365 * 86400))
    assert hw.compare("resnet18", ["t4"])[0]["cost"] is None
    with bad_argument(ValueError, None, "value", "the price of 't4' is 0"):
        hw.compare("resnet18", ["t4"], price={"t4": 0})
    with bad_argument(ValueError, None, "value", "'t44'"):
        hw.compare("resnet18", ["t4"], price={"t44": 1})
    with bad_argument(ValueError, "lifetime_years", "value"):
        hw.compare("resnet18", ["t4"], lifetime_years=0)
    assert [hw.product_dtype(one, None, None) for one in ("t4", "p40", "tpu-v3", "tpu-v1")] == [
        "fp16",
        "fp32",
        "bf16",
        "int8",
    ]
    assert hw.compare("resnet18", "t4", price={"h100": 2, "t4": 1})[0]["price"] == 1


def test_what_does_not_fit_is_spread_over_devices() -> None:
    (one,) = hw.compare("gpt3_175b", ["rtx4090"], context=100)
    assert one["fits"] is False and one["count"] == math.ceil(one["memory"] / (24 * 2**30)) and one["link_seconds"] > 0
    (four,) = hw.compare("gpt3_175b", ["h100-sxm"], format="int4-g128-f16", context=100)
    assert four["memory"] < one["memory"] / 3.3 and four["count"] == 2


@pytest.mark.parametrize("name", ["resnet50", "bert_base"])
def test_a_batch_sweep_saturates(name: str) -> None:
    sweep = hw.batch_sweep(name, "a100-sxm-80gb")
    throughputs = [row["throughput"] for row in sweep.rows]
    memories = [row["memory"] for row in sweep.rows]
    assert throughputs == sorted(throughputs) and memories == sorted(memories)
    assert throughputs[-1] <= 312e12 / (2 * hw.count(name).macs)
    assert sweep.to_dict()["rows"][0]["batch"] == 1 and sweep.largest == 1024


def test_the_knee_is_where_arithmetic_begins_to_bound() -> None:
    sweep = hw.batch_sweep(
        hw.layers.Linear(4096, 4096, bias=False), "h100-sxm", range(300, 400, 4), input_shape=(4096,)
    )
    first = next(b for b in range(300, 400, 4) if hw.intensity.gemm(b, 4096, 4096, "fp16") >= 295.35)
    assert sweep.knee == first
    with bad_argument(ValueError, "batches", "value"):
        hw.batch_sweep("resnet18", "t4", [])


def test_the_figure_of_a_sweep() -> None:
    pytest.importorskip("matplotlib")
    assert len(hw.batch_sweep("digits", "t4", [1, 2, 4]).plot().axes) == 3


@pytest.mark.parametrize(
    "weights, activations, chip, dtype",
    [
        ("int4", "int4", "a100-sxm-80gb", "int4"), ("int4", "int8", "a100-sxm-80gb", "int8"),
        ("vsq4-g16-s4", "int8", "h100-sxm", "int8"), ("int4", "int4", "h100-sxm", "int8"),
        ("int8-asym", "int8", "a100-sxm-80gb", "int8"), ("int8", None, "a100-sxm-80gb", "fp16"),
        ("int8", "int8", "v100-sxm2", "fp16"), (None, None, "k20x", "fp32"), ("int8", "int8", "tpu-v3", "bf16"),
    ],
)  # fmt: skip
def test_the_type_of_a_product(weights: Any, activations: Any, chip: str, dtype: str) -> None:
    assert hw.product_dtype(chip, weights, activations) == dtype


def test_words_have_one_line() -> None:
    words = hw.glossary()
    assert {"RT Core", "HCCS", "BPU", "ZPU", "CANN", "PUE", "WMMA"} <= set(words)
    assert all(text and "\n" not in text for text in words.values())


def test_an_unknown_die_merges_process_and_area() -> None:
    found = hw.explain_gain("k20x", "b200")
    assert found["area"] is None and "die area of b200 is not known" in found["note"]
    assert not {"area", "process"} & set(found["factors"])
    assert found["factors"]["process and area"] == hw.device("b200").peak("fp32") / hw.device("k20x").peak("fp32")
    assert math.prod(found["factors"].values()) == pytest.approx(found["gain"])
    known = hw.explain_gain("k20x", "a100-sxm-40gb")
    assert known["note"] == "" and known["area"] == known["factors"]["area"] == pytest.approx(826 / 561, rel=0.03)


def test_links_count_where_several_devices_are_needed() -> None:
    (row,) = hw.compare("gpt3_175b", ["rtx4090"], context=100, price={"rtx4090": 2000}, batch=2)
    assert row["count"] > 1 and row["link_seconds"] > 0
    assert row["throughput"] == pytest.approx(2 / (row["seconds"] + row["link_seconds"]), rel=1e-12)
    assert row["performance_price"] == pytest.approx(row["throughput"] / (2000 * row["count"]))
    assert row["cost"] == pytest.approx(1e6 * row["cost_each"], rel=1e-12)
    assert row["cost_each"] == pytest.approx(2000 * row["count"] / (row["throughput"] * 3 * 365 * 86400))
    (alone,) = hw.compare("llama_7b", ["groq"], price={"groq": 1})  # several are needed, no link is known
    assert alone["count"] > 1 and alone["link_seconds"] is None
    assert alone["throughput"] is alone["cost"] is alone["cost_each"] is alone["performance_price"] is None


def test_a_batch_sweep_takes_one_batch_and_names_a_wrong_one() -> None:
    assert [row["batch"] for row in hw.batch_sweep("digits", "t4", 5).rows] == [5]
    for wrong in (None, ["a", 1], 0, [2.5]):
        with bad_argument(ValueError, "batches", "value"):
            hw.batch_sweep("digits", "t4", wrong)  # type: ignore[arg-type]


def test_numbers_beyond_a_float_are_named() -> None:
    with bad_argument(ValueError, "rate", "value"):
        hw.systems.doubling_time(10**400)
    with bad_argument(ValueError, None, "value", "expected a positive number"):
        hw.Device("mine", peak={"int8": 10**400})
    with bad_argument(ValueError, None, "value", "'t4'.*1000"):
        hw.compare("digits", "t4", price={"t4": 10**400})
    with bad_argument(ValueError, None, "value", "''.*1000..*0"):
        hw.roofline([{"operations": 10**400, "bytes": 1}], "t4")


def test_errors_of_compare_name_it() -> None:
    for call, message in (
        (lambda: hw.compare("resnet18", ["nope"]), "compare: 'nope' is not a known device"),
        (lambda: hw.compare("resnet18", [3]), "compare: 3 of type int, expected a name or a Device"),
        (lambda: hw.compare("llama_7b", "t4", context=-5), "compare: context is -5, expected 0 or more"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()
