"""The accelerators: sums, formats, zeros, voltage, refusals."""

from __future__ import annotations

import json
import math
import runpy
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.cli import main
from heterocompute.hardware.accelerators import nonzeros, row_stationary

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "figures" / "accelerators"))
MACHINES = [hw.accelerators.accelerator(name) for name in hw.accelerators.names()]


@pytest.mark.sweep(every=0)
def test_the_page_has_todays_figures() -> None:
    text = SCRIPT["PAGE"].read_text(encoding="utf-8")
    assert SCRIPT["filled"](text) == text, "run python docs/figures/accelerators"


@pytest.mark.sweep(every=0)
def test_the_pictures_are_todays() -> None:
    for name, drawn in SCRIPT["pictures"]().items():
        assert SCRIPT["PAGE"].with_name(name).read_text(encoding="utf-8") == drawn, name
        assert f"]({name})" in SCRIPT["PAGE"].read_text(encoding="utf-8"), name


def runnable(machine: Any) -> Any:
    for model, batch in (("digits", 2), ((hw.layers.Linear(256, 64, bias=False),), 2)):
        try:
            shape = None if model == "digits" else (256,)
            return machine.report(model, batch=batch, input_shape=shape)
        except NotImplementedError:
            continue
    raise AssertionError("neither")


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.name)
@pytest.mark.sweep(every=3)
def test_a_report_adds_up(machine: Any) -> None:
    found = runnable(machine)
    record = json.loads(json.dumps(found.to_dict()))
    assert math.isclose(record["energy"], sum(record["energy_parts"].values()))
    assert math.isclose(record["energy"], sum(row["energy"] for row in record["layers"]))
    assert math.isclose(record["seconds"], sum(row["seconds"] for row in record["layers"]))
    assert record["macs"] == sum(row["macs"] for row in record["layers"])
    assert 0 < record["energy_parts"]["arithmetic"] < record["energy"]
    for layer in found.layers:
        assert layer.cycles >= layer.work > 0 and 0 < layer.active <= 1
    text = str(found)
    assert all(layer.name in text for layer in found.layers) and text.endswith(found.summary())
    assert machine.name in repr(found) and machine.name in repr(machine)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.name)
@pytest.mark.sweep(every=4)
def test_no_layer_is_faster_than_the_peak(machine: Any) -> None:
    found = runnable(machine)
    if machine.cost.__name__ == "mapped_cost":
        assert all(layer.macs <= layer.work * found.multiply_adds for layer in found.layers)
        assert all(layer.dram_bits > 0 for layer in found.layers)


def test_more_bits_cost_more() -> None:
    machine = hw.accelerators.nvdla()
    small, *wide = (machine.report("digits", format) for format in ("int8", "int16", "fp16"))
    assert all(1.9 * small.energy < one.energy < 2.1 * small.energy for one in wide)  # most of it is twice the bytes
    integers, floats = (one.energy_parts["arithmetic"] for one in wide)  # of 16 x 16 bits, and of 11 x 11
    assert small.energy_parts["arithmetic"] < floats < integers
    assert machine.peak("int8") == 2 * machine.peak("int16")


def test_weights_of_a_tpu_are_read_once_and_activations_stay_on_chip() -> None:
    found = hw.accelerators.tpu_v1().report("resnet50")
    weights = sum(layer.weights for layer in hw.networks["resnet50"].problems())
    assert found.dram_bytes == weights
    large = hw.layers.Conv2d(64, 64, 3, padding=1)  # 13.5 million values in and as many out: more than 24 MiB
    (layer,) = hw.accelerators.tpu_v1().report(large, input_shape=(64, 460, 460)).layers
    assert layer.dram_bits / 8 > 2 * 64 * 460 * 460


def test_the_same_every_time() -> None:
    from heterocompute.hardware.accelerators import mapped

    machine = hw.accelerators.eyeriss()
    first = machine.report("digits").to_dict()
    mapped._costed.cache_clear()
    mapped._searched.cache_clear()
    assert machine.report("digits").to_dict() == first


def test_energy_on_chip_goes_with_the_square_of_the_voltage() -> None:
    for machine in (hw.accelerators.eyeriss(), hw.accelerators.scnn()):
        usual = machine.report("digits")
        assert usual.voltage is not None
        half = machine.report("digits", voltage=usual.voltage / 2)
        for part, joules in usual.energy_parts.items():
            assert half.energy_parts[part] == pytest.approx(joules * (1 if part == "DRAM" else 0.25))
        assert half.seconds == usual.seconds and half.to_dict()["voltage"] == usual.voltage / 2
    for volts in (0, -1, math.nan, 11, "low"):
        with bad_argument(ValueError, "voltage", "value"):
            hw.accelerators.eyeriss().report("digits", voltage=volts)  # type: ignore[arg-type]


def test_a_kind_of_dram_has_its_energy_for_a_bit() -> None:
    machine = hw.accelerators.nvdla()
    found = machine.report("digits")
    for kind, bit in (("hbm2", 3.9), ("GDDR6", 7.5), (2.5, 2.5)):
        other = machine.report("digits", dram=kind)
        assert other.energy_parts["DRAM"] == pytest.approx(8 * found.dram_bytes * bit * 1e-12)
        assert other.energy_parts["weights"] == found.energy_parts["weights"]
    assert (
        hw.accelerators.eie().report(hw.layers.Linear(64, 64), input_shape=(64,), dram="hbm2").energy_parts["DRAM"] == 0
    )
    for wrong in ("hbm9", 0, -1):
        with bad_argument(ValueError, "dram", "value"):
            machine.report("digits", dram=wrong)


def test_two_of_four_weights_take_half_of_the_time() -> None:
    layer = [hw.layers.Linear(1024, 1024, bias=False)]
    machine = hw.accelerators.tensor_core("ampere")
    dense, half = (machine.report(layer, f, 1024, input_shape=(1024,)) for f in ("int8", "int8+2:4 x int8"))
    assert dense.layers[0].work == 2 * half.layers[0].work and dense.macs == half.macs
    # 10 bits for two of four values of 8
    assert half.layers[0].stores["DRAM W"] == pytest.approx(dense.layers[0].stores["DRAM W"] * 10 / 16)
    chosen = hw.mac("int8+2:4", "int8", 32, 8, "7nm")
    assert half.energy_parts["arithmetic"] == pytest.approx(chosen.energy_pj * half.macs * 1e-12)


def test_explore_finds_the_time_that_patterns_save() -> None:
    found = hw.explore({"format": ["int8", "int8+2:4 x int8"]}, "digits").table
    rows = {row["format"]: row for row in found}
    assert rows["int8+2:4 x int8"]["seconds"] < rows["int8"]["seconds"]
    assert rows["int8"]["area"] < rows["int8+2:4 x int8"]["area"] < 1.05 * rows["int8"]["area"]


def test_winograd_is_taken_where_it_is_faster() -> None:
    layer = hw.layers.Conv2d(128, 128, 3, padding=1)
    shape = (128, 56, 56)
    (direct,), (fast,) = (
        hw.accelerators.nvdla(winograd).report(layer, input_shape=shape).layers for winograd in (False, True)
    )
    assert direct.work == pytest.approx(2.25 * fast.work) and fast.macs == direct.macs
    assert fast.energy["arithmetic"] < direct.energy["arithmetic"]
    for other in (
        hw.layers.Conv2d(64, 64, 3, stride=2),
        hw.layers.Conv2d(64, 64, 5),
        hw.layers.Conv2d(64, 64, 3, groups=64),
    ):
        one, two = (hw.accelerators.nvdla(way).report(other, input_shape=(64, 28, 28)) for way in (False, True))
        assert one.seconds == two.seconds and one.energy == two.energy
    with bad_argument(TypeError, "winograd", "type"):
        hw.accelerators.nvdla(winograd="yes")  # type: ignore[arg-type]


def test_weights_without_zeros_are_stored_beside_a_mask() -> None:
    layer, shares = hw.layers.Linear(512, 512, bias=False), {"0.linear": {"W": 0.25, "I": 0.5}}
    plain, packed = (
        hw.accelerators.nvdla(compressed=way).report(layer, input_shape=(512,), zeros=shares).layers[0]
        for way in (False, True)
    )
    assert packed.stores["DRAM W"] == pytest.approx((0.25 + 1 / 8) * plain.stores["DRAM W"])
    assert packed.dram_bits < plain.dram_bits and packed.cycles < plain.cycles
    assert packed.energy["arithmetic"] == plain.energy["arithmetic"]
    dense = hw.accelerators.nvdla().report(layer, input_shape=(512,)).layers[0]
    assert plain.energy["arithmetic"] == pytest.approx(dense.energy["arithmetic"] * 0.125)


def test_an_operand_without_a_pad_takes_a_register_file_for_each_use() -> None:
    layer = hw.layers.Conv2d(16, 32, 3)
    stationary = row_stationary.dataflow_machine("ws")
    unit = stationary.mac_pj
    (found,) = stationary.report(layer, input_shape=(16, 14, 14)).layers
    assert unit is not None and found.stores["registers I"] == pytest.approx(unit * found.macs)
    assert "registers W" not in found.stores
    (rows,) = row_stationary.dataflow_machine("rs").report(layer, input_shape=(16, 14, 14)).layers
    assert not [name for name in rows.stores if name.startswith("registers")]


def test_zeros_leave_dram_and_stop_the_multiplier() -> None:
    machine = hw.accelerators.eyeriss()
    layer = hw.layers.Conv2d(16, 32, 3, padding=1)
    shares = {"0.conv2d": {"W": 1.0, "I": 0.3, "O": 0.4}}
    dense = machine.report(layer, input_shape=(16, 28, 28))
    sparse = machine.report(layer, input_shape=(16, 28, 28), zeros=shares)
    assert sparse.energy_parts["arithmetic"] == pytest.approx(0.3 * dense.energy_parts["arithmetic"])
    assert sparse.dram_bytes < dense.dram_bytes
    pads = {
        name: (sparse.layers[0].stores[name], dense.layers[0].stores[name]) for name in ("pads W", "pads O", "pads I")
    }
    assert all(pads[name][0] == pytest.approx(0.3 * pads[name][1]) for name in ("pads W", "pads O"))
    assert pads["pads I"][0] == pads["pads I"][1]


def test_weight_stationary_adds_up_one_channel_in_the_array() -> None:
    """Otherwise the sums over its 32 channels move to the buffer and back, at the cost of six multiply-adds each."""
    machine = row_stationary.dataflow_machine("ws")
    assert machine.mac_pj is not None
    (found,) = machine.report(hw.layers.Conv2d(32, 16, 3), input_shape=(32, 14, 14)).layers
    writes_and_reads = 32 + 31
    assert found.stores["GLB O"] == pytest.approx(6 * machine.mac_pj * writes_and_reads * 16 * 12 * 12, rel=0.04)


def test_small_products_fill_small_arrays_better() -> None:
    """16 filters of 16 channels on arrays of 4 x 4 x 4 and of 256 x 256."""
    layer = hw.layers.Conv2d(16, 16, 1)
    small = hw.accelerators.tensor_core("volta").report(layer, input_shape=(16, 64, 64))
    large = hw.accelerators.tpu_v1().report(layer, input_shape=(16, 64, 64))
    assert large.active == pytest.approx((16 / 256) ** 2) and small.active > 10 * large.active
    assert small.energy_parts["instructions"] > 0 == large.energy_parts["instructions"]


def test_depthwise_layers_leave_multipliers_idle() -> None:
    tpu = hw.accelerators.tpu_v1()
    depthwise = tpu.report(hw.layers.Conv2d(64, 64, 3, padding=1, groups=64), input_shape=(64, 14, 14))
    full = tpu.report(hw.layers.Conv2d(64, 64, 3, padding=1), input_shape=(64, 14, 14))
    assert depthwise.active < full.active / 50


def test_eie_counts_an_encoded_matrix() -> None:
    found = hw.accelerators.eie().report(hw.layers.Linear(1000, 640, bias=False), input_shape=(1000,), batch=3)
    (layer,) = found.layers
    assert layer.cycles == 3 * (640 * 1000 / 64 + 1)  # nothing is zero; one cycle for the first broadcast
    zeros = {"0.linear": {"W": 0.1, "I": 0.5}}
    (layer,) = (
        hw.accelerators.eie().report(hw.layers.Linear(1000, 640, bias=False), input_shape=(1000,), zeros=zeros).layers
    )
    ideal = 0.1 * 0.5 * 640 * 1000 / 64
    assert ideal < layer.cycles < 1.5 * ideal and layer.dram_bits == 0


def test_lpus_hold_the_weights_or_say_how_many_would() -> None:
    token = hw.networks["llama_7b"].decoding(512)
    with bad_argument(
        NotImplementedError,
        None,
        "unsupported",
        r"llama_7b in fp16 need 59 chips of 230 MB and there is 1: groq_lpu\(chips=59",
    ):
        hw.accelerators.groq_lpu().report(token, "fp16")
    found = hw.accelerators.groq_lpu(59).report(token, "fp16")
    assert found.dram_bytes == 0 and found.bound == "links"
    waits = [layer.detail["exchange_seconds"] for layer in found.layers]
    assert found.seconds == pytest.approx(sum(waits) + sum(layer.work for layer in found.layers) / found.clock)
    widest = max(found.layers, key=lambda layer: layer.macs)
    assert widest.detail["exchange_seconds"] == pytest.approx(3e-6 + 32000 * 2 / 240e9)


def test_one_lpu_streams_rows_past_blocks_of_weights() -> None:
    layer = hw.layers.Linear(640, 641, bias=False)
    (found,) = hw.accelerators.groq_lpu().report([layer], input_shape=(1000, 640)).layers
    assert found.work == 2 * 3 * 1000 / 4 == found.cycles
    assert found.active == pytest.approx(640 * 641 / (2 * 3 * 320 * 320))


def test_deeper_queues_never_wait_longer() -> None:
    zeros = {"0.linear": {"W": 0.1, "I": 0.5}}
    cycles = []
    for depth in (1, 2, 8, 32):
        found = hw.accelerators.eie(depth).report(
            hw.layers.Linear(1000, 640, bias=False), input_shape=(1000,), zeros=zeros
        )
        cycles.append(found.layers[0].cycles)
    assert cycles == sorted(cycles, reverse=True) and cycles[-1] < cycles[0]


def test_scnn_skips_zeros_of_both() -> None:
    layer = hw.layers.Conv2d(16, 64, 3, padding=1)

    def cycles(weights: float, inputs: float) -> float:
        zeros = {"0.conv2d": {"W": weights, "I": inputs}}
        found = hw.accelerators.scnn().report(layer, input_shape=(16, 32, 32), zeros=zeros)
        return found.layers[0].work

    assert cycles(0.2, 0.2) < cycles(0.2, 0.6) < cycles(0.6, 0.6) < cycles(1.0, 1.0)
    assert cycles(1.0, 1.0) >= 16 * 64 * 9 * 1024 / 1024  # as many multipliers, all of them busy


def test_scnn_and_its_rival_wait_for_the_same_dram() -> None:
    """64 channels of 224 x 224 from three: more than fits on either chip, and few multiply-adds."""
    zeros = {"0.conv2d": {"W": 1.0, "I": 1.0, "O": 0.5}}
    layer = hw.layers.Conv2d(3, 64, 3, padding=1)
    (found,) = hw.accelerators.scnn().report(layer, input_shape=(3, 224, 224), zeros=zeros).layers
    values = 64 * 224 * 224 + 3 * 226 * 226 + 64 * 27
    assert found.detail["dense_cycles"] == pytest.approx(values * 2 / 50e9 * 1e9)
    assert found.detail["speedup"] == found.detail["dense_cycles"] / found.cycles


@pytest.mark.parametrize("size", [(3, 20, 17), (5, 33, 40), (2, 8, 8)])
def test_scnn_takes_the_steps_of_the_outer_product(size: tuple[int, int, int]) -> None:
    random = np.random.default_rng(1)
    x, w = random.random(size) < 0.4, random.random((21, size[0], 3, 3)) < 0.3
    tile = [-(-length // 8) for length in size[1:]]
    group = max(1, 1024 // ((tile[0] + 2) * (tile[1] + 2)))
    whole = np.zeros((size[0], 8 * tile[0], 8 * tile[1]), bool)
    whole[:, : size[1], : size[2]] = x
    values = whole.reshape(size[0], 8, tile[0], 8, tile[1]).sum((2, 4))
    weights = np.stack([w[first : first + group].sum((0, 2, 3)) for first in range(0, len(w), group)])
    ours = nonzeros.outer_steps(nonzeros.Tiling(values, weights, group), 8)
    operands = (x[None].astype(np.float32), w.astype(np.float32))
    _, counts = hc.conv2d_outer(*operands, padding=1, counts=True)
    assert (ours["steps"], ours["products"]) == (counts.steps, counts.products)
    assert ours["cycles"] <= counts.cycles  # there a conflict of banks takes cycles
    assert ours["cycles"] * 64 >= ours["steps"]


@pytest.mark.parametrize(("rows", "columns", "density"), [(5, 40, 0.5), (1300, 70, 0.04), (640, 33, 1.0), (64, 9, 0.0)])
@pytest.mark.parametrize("depth", [1, 8, 10**9])
def test_eie_runs_as_the_encoded_matrix_does(rows: int, columns: int, density: float, depth: int) -> None:
    random = np.random.default_rng(2)
    w, x = random.random((rows, columns)) < density, random.random(columns) < 0.6
    encoded = hc.encode_eie(w.astype(np.float32), np.arange(16, dtype=np.float32), 64)
    load = encoded.load_balance(x.astype(np.float32), depth)
    padded = np.zeros((-(-rows // 64) * 64, columns), bool)
    padded[:rows] = w
    entries = nonzeros.count_entries(padded.reshape(-1, 64, columns).transpose(0, 2, 1), columns, 64)
    ours = nonzeros.run_queues(entries, np.flatnonzero(x), depth)
    wanted = load.cycles, load.broadcasts, load.stalls, load.busy.sum(), load.padding
    assert (ours.cycles, ours.broadcasts, ours.stalls, ours.busy, ours.padding) == wanted
    assert ours.entries == encoded.components["entries"].size


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("taps", "dilation", "padding"), [(1, 1, 0), (3, 1, 1), (7, 1, 3), (3, 2, 2), (3, 24, 24)])
def test_phases_and_tiles_hold_every_value_once(taps: int, dilation: int, padding: int, stride: int) -> None:
    extent = dilation * (taps - 1) + 1
    outputs = (33 + 2 * padding - extent) // stride + 1
    spanned = (outputs - 1) * stride + extent - 2 * padding
    axis = nonzeros.Axis(outputs, taps, stride, dilation, padding)
    for parts in (1, 8, 16):
        cells = axis.cells(parts)
        assert cells.shape == (stride, parts) and cells.min() >= 0 and cells.sum() == spanned
        assert cells.max() <= -(-axis.length // parts)
    assert axis.phase_taps().sum() == taps


def test_a_sample_of_a_large_layer_costs_what_the_layer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nonzeros.eie_load(4096, 2000, 0.1, 0.4, 8, 64)
    loops = hw.networks["vgg16"].problems()[8]
    steps = nonzeros.scnn_steps(loops, 0.3, 0.5, 8, 1, 1024)
    monkeypatch.setattr(nonzeros, "VALUES", 1 << 20)
    monkeypatch.setattr(nonzeros, "COUNTS", 1 << 13)
    assert nonzeros.eie_load(4096, 2000, 0.1, 0.4, 8, 64).cycles == pytest.approx(whole.cycles, rel=0.01)
    few = nonzeros.scnn_steps(loops, 0.3, 0.5, 8, 1, 1024)
    assert few["groups"] == steps["groups"]
    for key in ("cycles", "products", "steps"):
        assert few[key] == pytest.approx(steps[key], rel=0.05)
    monkeypatch.setattr(nonzeros, "LENGTH", 1024)
    assert nonzeros.eie_load(4096, 2000, 0.1, 0.4, 8, 64).cycles == pytest.approx(whole.cycles, rel=0.05)


@pytest.mark.parametrize("name", ["eie", "scnn"])
@pytest.mark.sweep(every=4)
def test_machines_that_skip_zeros_store_no_matrix(name: str) -> None:
    """The two large matrices of a GPT-3 layer; a matrix of a GiB would not fit the limit."""
    machine = hw.accelerators.accelerator(name)
    zeros = {f"{i}.linear": {"W": 0.1, "I": 0.4, "O": 1.0} for i in range(2)}
    model = [hw.layers.Linear(49152, 12288, bias=False), hw.layers.Linear(12288, 10**7, bias=False)]
    tracemalloc.start()
    try:
        found = machine.report(model, input_shape=(49152,), zeros=zeros)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 400 << 20
    first, second = found.layers
    assert second.work / first.work == pytest.approx(10**7 / 49152, rel=0.05)  # 12,288 random inputs: 1.1% each


def test_scnn_counts_huge_layers_or_says_why_not() -> None:
    machine = hw.accelerators.scnn()
    for layer, shape in (
        (hw.layers.Conv2d(3, 8, 3, padding=1), (3, 10**11, 10**11)),
        (hw.layers.Linear(1, 2**40), (1,)),
    ):
        (found,) = machine.report(layer, input_shape=shape).layers
        assert math.isfinite(found.cycles) and found.work >= found.macs / 1024
    with pytest.raises(NotImplementedError, match="^scnn: layer '0.conv2d' has the strides"):
        machine.report(hw.layers.Conv2d(3, 8, 3, 1000), input_shape=(3, 10**6, 10**6))


def test_scnn_runs_filters_wider_than_the_image() -> None:
    """Dilation 24 and a 33 x 33 image, as in DeepLab."""
    machine, zeros = hw.accelerators.scnn(), {"0.conv2d": {"W": 1.0, "I": 1.0, "O": 1.0}}
    layer = hw.layers.Conv2d(64, 64, 3, padding=24, dilation=24)
    (found,) = machine.report(layer, input_shape=(64, 33, 33), zeros=zeros).layers
    parts, values = machine.formats["int16"] // 16, 64 * 33 * 33
    assert found.work >= values * 64 * 9 / 16 / parts


def test_a_stride_is_phases() -> None:
    strided = hw.accelerators.scnn().report(hw.layers.Conv2d(3, 64, 8, 4), input_shape=(3, 132, 132))
    phases = hw.accelerators.scnn().report(hw.layers.Conv2d(48, 64, 2), input_shape=(48, 33, 33))
    assert strided.layers[0].work == phases.layers[0].work


def test_a_machine_says_which_layer_it_cannot_run() -> None:
    with bad_argument(NotImplementedError, "eie", "unsupported"):
        hw.accelerators.eie().report("alexnet_original")


def test_collectors_take_work_from_the_buffers() -> None:
    layer = hw.layers.Conv2d(64, 64, 3, padding=1)
    found = {
        dataflow: hw.accelerators.magnet(dataflow).report(layer, input_shape=(64, 28, 28)).energy_parts
        for dataflow in ("ws", "ws-los", "os-lws")
    }
    for dataflow in ("ws-los", "os-lws"):
        assert found[dataflow]["accumulators"] < found["ws"]["accumulators"] / 2
        assert found[dataflow]["collectors"] > found["ws"]["collectors"]
        assert found[dataflow]["arithmetic"] == found["ws"]["arithmetic"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: hw.accelerators.accelerator("eyeris"),
            "'eyeris' is not a known accelerator; the nearest are eyeriss$",
        ),
        (
            lambda: hw.accelerators.accelerator("abacus"),
            "'abacus' is not a known accelerator, which are nvdla, tpu_v1, ",
        ),
        (
            lambda: hw.accelerators.eyeriss().report("digits", "int8"),
            "eyeriss: format is 'int8', expected one of int16",
        ),
        (
            lambda: hw.accelerators.tensor_core("kepler"),
            "generation is 'kepler', expected one of volta, turing, ampere, hopper",
        ),
        (lambda: hw.accelerators.magnet("rs"), "magnet: dataflow is 'rs', expected one of ws, ws-los, os-lws"),
        (lambda: hw.accelerators.eyeriss().peak("fp16"), "eyeriss: format is 'fp16'"),
        (lambda: hw.accelerators.eyeriss().report("digits", batch=0), "batch is 0"),
        (lambda: hw.accelerators.eyeriss().report("digits", batch=2.5), "eyeriss.report: batch is 2.5, expected a pos"),
        (lambda: hw.accelerators.groq_lpu(0), "groq_lpu: chips is 0, expected a positive integer"),
        (
            lambda: hw.accelerators.eyeriss().report("digits", layers=["conv9"]),
            "layers has 'conv9', digits has no such",
        ),
        (lambda: hw.accelerators.eyeriss().report(hw.layers.Flatten(), input_shape=(3, 4)), "no layer with a product"),
    ],
)
def test_refusals_say_what_was_wanted(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["accelerators", *arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.mark.sweep(every=0)
def test_the_command_answers_for_every_machine_and_format(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, _ = run(capsys, "digits", "--html", str(page))
    assert code == 0
    code, text, _ = run(capsys, "digits", "--json")
    record = json.loads(text)
    named = {row["accelerator"] for row in record["reports"]} | {row["accelerator"] for row in record["refused"]}
    assert named == set(hw.accelerators.names())
    assert {row["format"] for row in record["reports"] if row["accelerator"] == "nvdla"} == {"int8", "int16", "fp16"}
    assert all(name in out and name in page.read_text() for name in named)
    record = json.loads(run(capsys, "digits", "nvdla", "--format", "fp16", "--batch", "3", "--json")[1])
    assert record == json.loads(json.dumps(hw.accelerators.nvdla().report("digits", "fp16", 3).to_dict()))
    assert "conv1" in run(capsys, "digits", "nvdla")[1]
    assert all(one.title in run(capsys)[1] for one in MACHINES[:1])
    assert run(capsys, "digits", "--format", "int3")[0] == 2
    chosen = json.loads(run(capsys, "alexnet_original", "eie", "--layers", "fc7,fc8", "--json")[1])
    assert [row["name"] for row in chosen["layers"]] == ["fc7", "fc8"]
    assert "--layers needs MACHINE" in run(capsys, "digits", "--layers", "fc")[2]
    for option in (["--format", "int8"], ["--input", "3,4,4"], ["--batch", "2"], ["--layers", "fc"]):
        code, out, err = run(capsys, *option)
        assert code == 2 and not out and f"{option[0]} needs MODEL" in err
    assert run(capsys, "digits", "nothing")[0] == 1
    found = json.loads(run(capsys, "digits", "nvdla", "--voltage", "0.4", "--dram", "hbm2", "--json")[1])
    expected = hw.accelerators.nvdla().report("digits", voltage=0.4, dram="hbm2")
    assert found["energy_parts"] == expected.energy_parts and found["voltage"] == 0.4
    assert (
        json.loads(run(capsys, "digits", "nvdla", "--dram", "3.9", "--json")[1])["energy_parts"]["DRAM"]
        == (expected.energy_parts["DRAM"])
    )
    code, _, err = run(capsys, "digits", "nvdla", "--dram", "hbm9")
    assert code == 1 and "dram is 'hbm9', expected pJ a bit or one of horowitz, ddr3" in err
