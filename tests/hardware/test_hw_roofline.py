"""Intensity, roofline, memory and fusion: published tables to all digits, and independent counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.hardware.network.liveness import IN_PLACE, live_elements, peak_elements

# TPU v1, ISCA 2017, tables 1 and 3: multiply-adds per weight byte, measured TOPS, roofline in TOPS.
TPU_V1 = {
    "MLP0": (200, 12.3, 13.6),
    "MLP1": (168, 9.7, 11.4),
    "LSTM0": (64, 3.7, 4.35),
    "LSTM1": (96, 2.8, 6.5),
    "CNN0": (2888, 86.0, 92),
    "CNN1": (1750, 14.1, 92),
}


def significant(value: float, printed: float) -> float:
    """Round a value to the digits of a published one."""
    text = f"{printed:g}"
    return round(value, len(text.partition(".")[2]))


@pytest.mark.parametrize("app", TPU_V1)
def test_the_roofline_table_of_tpu_v1(app: str) -> None:
    macs_a_byte, measured, roof = TPU_V1[app]
    work = [{"name": app, "operations": 2e9 * macs_a_byte, "bytes": 1e9}]
    found = hw.roofline(work, "tpu-v1", "int8")
    attained = found.operations / found.seconds / 1e12
    assert significant(attained, roof) == roof
    assert measured <= attained
    assert found.bound == ("compute" if app.startswith("CNN") else "memory")
    if app == "MLP0":
        assert round(100 * measured / attained) == 90


def test_ridges_of_the_tpu_paper() -> None:
    assert round(hw.device("xeon-e5-2699-v3").ridge("fp32") / 2) == 13
    assert round(hw.device("k80").ridge("fp32") / 2) == 9
    assert round(hw.device("tpu-v1").ridge("int8") / 2) == 1353  # the paper prints 1350
    assert round(65536 * 0.7e9 / 34e9, 1) == 1349.3


def test_intensity_of_products() -> None:
    assert round(hw.intensity.gemm(4096, 4096, 4096, "fp16"), 1) == 1365.3
    assert hw.intensity.gemv(1 << 20, 1 << 20, "fp16") == pytest.approx(1, rel=1e-5)
    assert hw.intensity.gemm(7, 5, 3, ("fp16", "int4", "fp32")) == 2 * 7 * 5 * 3 / (2 * 21 + 0.5 * 15 + 4 * 35)
    assert hw.intensity.gemv(64, 32, "fp32") == hw.intensity.gemm(1, 64, 32, "fp32")
    with bad_argument(ValueError, "m", "value"):
        hw.intensity.gemm(0, 4, 4)
    with bad_argument(ValueError, "dtype", "value"):
        hw.intensity.gemm(1, 4, 4, ("fp16", "fp16"))  # type: ignore[arg-type]


def test_intensity_of_convolutions() -> None:
    layer = hw.layers.Conv2d(16, 32, 3, stride=2, padding=1, groups=2, bias=False)
    macs = 32 * 8 * 3 * 3 * 14 * 14
    moved = 2 * (5 * 16 * 28 * 28 + 32 * 8 * 9 + 5 * 32 * 14 * 14)
    assert hw.intensity.conv2d(layer, (16, 28, 28), batch=5) == pytest.approx(2 * 5 * macs / moved, rel=1e-12)
    unrolled = moved + 2 * 5 * 2 * (2 * 14 * 14 * 72)
    assert hw.intensity.conv2d(layer, (16, 28, 28), batch=5, unrolled=True) == pytest.approx(10 * macs / unrolled)
    assert hw.intensity.conv2d_reuse(64, (3, 3)) == 576 and hw.intensity.im2col_copies((5, 5), 2) == 6.25


def test_a_layer_is_bound_by_what_takes_longer() -> None:
    layer = hw.layers.Linear(4096, 4096, bias=False)
    for batch in (1, 64, 256, 512, 4096):
        found = hw.roofline(layer, "h100-sxm", "fp16", batch=batch, input_shape=(4096,))
        intensity = hw.intensity.gemm(batch, 4096, 4096, "fp16")
        assert found.intensity == pytest.approx(intensity, rel=1e-12)
        assert found.bound == ("compute" if intensity >= 295.3432 else "memory")
        compute, memory = 2 * batch * 4096**2 / 989.4e12, found.traffic / 3.35e12
        assert found.seconds == pytest.approx(max(compute, memory), rel=1e-12)
        assert found.share == pytest.approx(compute / max(compute, memory), rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "int4",
        "int8",
        "int4-g32",
        "int4-g32-f16",
        "vsq4-g16-s4",
        "int4-g128-asym",
        "int8+2:4",
        "vsq4-g16-s4+2:4",
        "int4-g32-f16+1:8",
        "nvfp4",
        "cb4",
        "log4-1-g16",
    ],
)
def test_bytes_of_a_format_are_those_of_a_packed_array(text: str) -> None:
    found = hw.roofline(hw.layers.Linear(300, 200, bias=False), "h100-sxm", "fp16", format=text, input_shape=(300,))
    packed = hc.quantize(np.ones((200, 300), np.float32), text)
    assert found.layers[0]["weight_bytes"] == packed.nbytes
    # Weights in memory only: the rate stays that of fp16, the sparse one where the pattern is 2:4.
    assert found.peak == (1978.9e12 if text.endswith("+2:4") else 989.4e12)


def test_what_a_format_buys() -> None:
    layer, shape = hw.layers.Linear(4096, 4096, bias=False), (4096,)
    four = hw.roofline(layer, "h100-sxm", "fp16", "int4", input_shape=shape)
    plain = hw.roofline(layer, "h100-sxm", "fp16", input_shape=shape)
    assert four.speedup == plain.seconds / four.seconds > 3.9 and plain.speedup == 1
    assert "x as fast as fp16 weights" in repr(four) and "as fast" not in repr(plain)
    many = hw.roofline(layer, "h100-sxm", "fp16", "int4", batch=4096, input_shape=shape)
    assert many.bound == "compute" and many.speedup == 1  # bytes buy nothing here


@pytest.mark.parametrize("dtype, share", [("fp16", 0.5625), ("int8", 0.625), ("int4", 0.75)])
def test_two_of_four_takes_fewer_bytes_and_the_sparse_rate(dtype: str, share: float) -> None:
    layer = hw.layers.Linear(4096, 4096, bias=False)
    dense = hw.roofline(layer, "a100-sxm-40gb", dtype, input_shape=(4096,))
    sparse = hw.roofline(layer, "a100-sxm-40gb", dtype, "2:4", input_shape=(4096,))
    assert sparse.layers[0]["weight_bytes"] / dense.layers[0]["weight_bytes"] == share
    assert sparse.peak == 2 * dense.peak
    other = hw.roofline(layer, "t4", dtype, "2:4", input_shape=(4096,))
    assert other.peak == hw.device("t4").peak(dtype) and "zeros are work" in other.note
    with bad_argument(ValueError, None, "value", "2:4-sparse.*'fp16'"):
        hw.roofline(layer, "t4", "fp16", "2:4", input_shape=(4096,), sparse=True)


def test_networks_and_their_layers() -> None:
    found = hw.roofline("resnet50", "a100-sxm-80gb", "fp16", batch=32)
    assert found.operations == 2 * 32 * 4_089_184_256
    assert found.seconds == pytest.approx(math.fsum(row["seconds"] for row in found.layers))
    first = found.layers[0]
    assert first["bytes"] == 2 * (9408 + 32 * (3 * 224 * 224 + 64 * 112 * 112))
    assert len(found.layers) == 54 and found.to_dict()["bound"] == found.bound
    assert "ResNet" not in repr(found) and "operations a byte" in repr(found)
    one = hw.roofline(hw.networks["llama_7b"].decoding(1023), "h100-sxm", "fp16")
    kept = 2 * 32 * 4096 * 1023 * 2
    matrices = 2 * (hw.networks["llama_7b"].params - 32000 * 4096)
    assert one.bound == "memory" and one.traffic == pytest.approx(matrices + kept, rel=2e-3)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hw.roofline("resnet50", "v100-sxm2", "bf16"), "v100-sxm2: no rate for 'bf16'"),
        (lambda: hw.roofline("resnet50", "diannao", "int16"), "diannao: its bandwidth is not known"),
        (lambda: hw.roofline("resnet50", "h100-sxm", "fp16", "int17"), "'int17' is not a format"),
        (lambda: hw.roofline("resnet50", "h100-sxm", "fp16", "5:4"), "expected 1 <= N <= M <= 32"),
        (lambda: hw.roofline("resnet50", "h100-sxm", batch=0), "batch is 0"),
        (lambda: hw.roofline([{"operations": 1}], "h100-sxm"), "expected name, operations and bytes"),
        (lambda: hw.roofline([{"operations": -1, "bytes": 1}], "h100-sxm"), "operations of '' is -1"),
        (lambda: hw.roofline([{"operations": 1, "bytes": 1}], "h100-sxm", format="int8"), "whose bytes are given"),
        (lambda: hw.roofline([{"operations": 1, "bytes": 1}], "h100-sxm", batch=2), "whose bytes are given"),
        (lambda: hw.roofline([hw.layers.Activation()], "h100-sxm", input_shape=(4,)), "no layer with a product"),
    ],
)
def test_bad_questions_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_operations_that_move_nothing() -> None:
    found = hw.roofline([{"operations": 989.4e9, "bytes": 0}], "h100-sxm")
    assert found.intensity is None and found.bound == "compute" and found.seconds == pytest.approx(1e-3)
    assert "no traffic" in repr(found) and found.to_dict()["intensity"] is None


def test_a_roofline_on_eyeriss_and_what_others_lack() -> None:
    found = hw.roofline("alexnet_original", "eyeriss", "int16", batch=4)
    assert (found.peak, found.bandwidth) == (67.2e9, 60e6 * 64 / 8)
    with bad_argument(ValueError, None, "value", "hw.Device"):
        hw.roofline("alexnet_original", "diannao", "int16")
    with bad_argument(ValueError, None, "value", "'fp16'.*int16"):
        hw.roofline("alexnet_original", "eyeriss")


def test_the_figure_of_a_roofline() -> None:
    pytest.importorskip("matplotlib")
    figure = hw.roofline("alexnet", "h100-sxm", "fp16").plot()
    assert figure.axes[0].get_xlabel().startswith("operations a byte") and len(figure._repr_png_()) > 1000


# Memory


def test_memory_of_a_linear_layer() -> None:
    layer, shape = hw.layers.Linear(1024, 1024), (1024,)
    m = hw.memory.forward(layer, shape, batch=10240, outputs=100)
    assert [size / 2**20 for size in (m.params, m.input, m.output)] == [4.00390625, 40, 4000]
    b = hw.memory.backward(layer, shape, batch=10240)
    assert [size / 2**20 for size in (b.params + b.gradients, b.input, b.output)] == [8.0078125, 40, 40]
    assert hw.memory.infer(layer, shape).params == 4_198_400
    assert hw.memory.infer(hw.layers.Activation(), (3, 256, 256), batch=32).input == 25_165_824


def test_training_keeps_sixteen_bytes_a_parameter() -> None:
    n = hw.networks["gpt2"].params
    m = hw.memory.training("gpt2", dtype="fp16", optimizer="adam")
    assert m.params + m.gradients + m.master + m.optimizer == 16 * n
    assert hw.memory.training("gpt2", dtype="fp32", optimizer="sgd").optimizer == 0
    some = hw.memory.training("gpt2", dtype="fp16", recompute=12)
    assert some.intermediates < m.intermediates / 4 and some.total < m.total
    assert hw.memory.training("gpt2", dtype="fp16", recompute=1).intermediates == m.intermediates
    with bad_argument(ValueError, "optimizer", "value"):
        hw.memory.training("gpt2", optimizer="sdg")


def test_keys_and_values() -> None:
    assert hw.memory.kv_cache("llama_7b", 1) == 2 * 32 * 4096 * 2
    assert hw.memory.kv_cache("gpt3_175b", 2048, batch=2, dtype="int8") == 2 * 96 * 12288 * 2048 * 2
    assert hw.memory.kv_cache("llama_7b", 100, windows=10) == 2 * 32 * 4096 * 2 * 10
    assert hw.memory.kv_cache("llama_7b", 100, windows=[None] + [10] * 31) == 2 * 4096 * 2 * (100 + 31 * 10)
    assert hw.memory.kv_cache("llama_7b", 100, latent=576) == 32 * 576 * 2 * 100
    with pytest.raises(ValueError, match="windows has 2 entries, expected 32"):
        hw.memory.kv_cache("llama_7b", 4, windows=[1, None])
    with pytest.raises(ValueError, match="windows"):
        hw.memory.kv_cache("llama_7b", 4, windows=0)
    with bad_argument(ValueError, "resnet18", "missing"):
        hw.memory.kv_cache("resnet18", 4)


def test_the_allocator_and_the_context() -> None:
    mib = 2**20
    assert hw.memory.allocated(1) == (512, 2 * mib) and hw.memory.allocated(mib) == (mib, 2 * mib)
    assert hw.memory.allocated(mib + 1)[1] == 20 * mib and hw.memory.allocated(4 * mib)[1] == 20 * mib
    assert hw.memory.allocated(10 * mib)[1] == 10 * mib and hw.memory.allocated(11 * mib)[1] == 12 * mib
    assert hw.memory.allocated(0) == (0, 0)
    assert hw.memory.device_total([4 * mib]) == 1073 * mib
    with bad_argument(ValueError, "size", "value"):
        hw.memory.allocated(-1)


# Fusion, against a simulation that holds buffers by name


def simulated_peak(network: hw.Network) -> int:
    """Run a network with buffers: each value is freed when no later layer needs it."""
    flows = network.flows
    buffers = {"input": math.prod(network.input_shape)}
    peak = sum(buffers.values())
    for i, flow in enumerate(flows):
        needed = {name for later in flows[i + 1 :] for name in later.node.inputs}
        first = flow.node.inputs[0]
        if isinstance(flow.layer, IN_PLACE) and first not in needed:
            buffers[flow.name] = buffers.pop(first)
        else:
            buffers[flow.name] = math.prod(flow.output)
        peak = max(peak, sum(buffers.values()))
        buffers = {name: size for name, size in buffers.items() if name in needed}
    return peak


@pytest.mark.parametrize("name", ["alexnet", "googlenet", "resnet50", "mobilenet_v2", "efficientnet_b0", "bert_base"])
def test_liveness_equals_a_simulation_with_buffers(name: str) -> None:
    network = hw.networks[name]
    assert peak_elements(network) == simulated_peak(network)


def test_random_graphs_need_what_the_simulation_needs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        net = hw.Builder("random", (4, 8, 8))
        names = ["input"]
        for i in range(int(rng.integers(1, 12))):
            a, b = (names[int(rng.integers(len(names)))] for _ in range(2))
            kind = int(rng.integers(3))
            layer = (hw.layers.Conv2d(4, 4, 3, padding=1), hw.layers.Activation(), hw.layers.Add())[kind]
            names.append(net.add(f"n{i}", layer, *((a, b) if kind == 2 else (a,))))
        network = net.build()
        assert peak_elements(network) == simulated_peak(network)
        assert len(list(live_elements(network))) == len(network.nodes)


@pytest.mark.parametrize("dtype, bits", [("fp16", 16), ("int8", 8), ("int4", 4)])
@pytest.mark.parametrize("name", ["resnet50", "bert_base", "gpt2"])
@pytest.mark.sweep(every=20)
def test_the_sram_at_which_a_whole_network_fits(name: str, dtype: str, bits: int) -> None:
    network = hw.networks[name]
    found = hw.fuse(name, 230_000_000, dtype=dtype)
    exact = (network.params + simulated_peak(network)) * bits / 8
    assert exact <= found.whole <= exact + len(network.nodes)  # each layer's weights end on a byte
    assert found.fits == (found.whole <= 230_000_000) == (not (name == "gpt2" and dtype == "fp16"))
    if found.fits and name == "resnet50":  # weights, first input, last output
        assert found.after == (25_557_032 + 3 * 224 * 224 + 1000) * bits // 8 and len(found.groups) == 1
    for chip in ("graphcore-gc200", "cerebras-wse2"):
        assert hw.fuse(name, int(hw.device(chip).need("on_chip")), dtype=dtype).fits


def test_fusion_moves_less_and_never_more_with_more_memory() -> None:
    after = []
    for kib in (64, 256, 1024, 4096, 16384, 65536):
        found = hw.fuse("resnet18", kib * 1024, dtype="int8")
        after.append(found.after)
        assert found.after <= found.before
        assert sum(group["traffic"] for group in found.groups) == found.after
        assert [name for group in found.groups for name in group["layers"]] == [f.name for f in hw.networks["resnet18"]]
        assert all(group["need"] <= kib * 1024 for group in found.groups if group["fits"])
        assert all(len(group["layers"]) == 1 for group in found.groups if not group["fits"])
    assert after == sorted(after, reverse=True) and after[-1] < after[0] / 1.2


def test_a_chain_of_groups_is_the_best_of_all_cuts() -> None:
    layers: list[Any] = [hw.layers.Conv2d(4, 8, 3, padding=1, bias=False),
                         hw.layers.Conv2d(8, 8, 3, padding=1, bias=False),
                         hw.layers.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
                         hw.layers.Conv2d(16, 4, 1, bias=False),
                         hw.layers.Conv2d(4, 4, 3, bias=False)]  # fmt: skip
    shape = (4, 12, 12)
    flows = hw.count(layers, shape).layers
    sizes = [math.prod(shape), *(math.prod(row["output"]) for row in flows)]
    weights = [row["params"] for row in flows]
    for sram in (500, 1500, 2500, 3500, 5000, 10**6):
        best = math.inf
        for cuts in range(2**4):
            edges = [0, *(i + 1 for i in range(4) if cuts >> i & 1), 5]
            total = 0.0
            for begin, end in zip(edges, edges[1:], strict=False):
                need = sum(weights[begin:end]) + max(sizes[i] + sizes[i + 1] for i in range(begin, end))
                alone = end == begin + 1
                total += sum(weights[begin:end]) + sizes[begin] + sizes[end] if alone or need <= sram else math.inf
            best = min(best, total)
        assert hw.fuse(layers, sram, dtype="int8", input_shape=shape).after == best


def test_training_pays_for_what_the_backward_pass_needs() -> None:
    run = [hw.fuse("resnet18", 4 << 20, dtype="int8", training=t, recompute=r) for t, r in ((0, 0), (1, 0), (1, 1))]
    plain, kept, again = run
    assert plain.after < again.after < kept.after
    assert kept.operations == 3 * plain.operations < again.operations <= 4 * plain.operations
    with bad_argument(ValueError, "recompute", "value"):
        hw.fuse("resnet18", 1 << 20, recompute=True)
    with bad_argument(ValueError, "sram_bytes", "value"):
        hw.fuse("resnet18", 0)


def test_a_network_that_does_not_fit_is_noted() -> None:
    found = hw.roofline("llama_7b", "groq-tsp")
    held = hw.memory.weight_bytes(hw.networks["llama_7b"], "fp16")
    held += hw.memory.peak_bytes(hw.networks["llama_7b"], 1, "fp16")
    assert f"weights and activations are {held / 1e9:.4g} GB, groq-tsp has 0.23 GB" in found.note
    assert found.note in repr(found) and found.to_dict()["note"] == found.note and found.seconds > 0
    assert hw.roofline("llama_7b", "h100-sxm").note == "all 2048 tokens of a text at once"
    assert hw.roofline("resnet18", "groq-tsp").note == ""
    full = hw.networks["llama_7b"].decoding(2000)  # keys and values count: 1 GiB for each sequence
    assert (
        hw.roofline(full, "h100-sxm", batch=32).note == "one token after 2000"
        and "does not fit" in hw.roofline(full, "h100-sxm", batch=80).note
    )
    both = hw.roofline("llama_7b", "groq-tsp", format="2:4").note
    assert "zeros are work; does not fit" in both


def test_sizes_and_shapes_of_other_types_are_taken_or_named() -> None:
    assert hw.fuse("resnet18", sram_bytes=230e6) == hw.fuse("resnet18", 230_000_000)
    for wrong in (2.5, float("nan"), float("inf"), True):
        with bad_argument(ValueError, "sram_bytes", "value"):
            hw.fuse("resnet18", wrong)
    assert hw.memory.device_total(5) == hw.memory.device_total([5])
    with bad_argument(TypeError, "input_shape", "type"):
        hw.count("resnet18", input_shape=5)  # type: ignore[arg-type]
    with bad_argument(ValueError, None, "value", "t4: need of 'x', expected bandwidth, memory"):
        hw.device("t4").need("x")


def test_a_sparse_matrix_times_a_vector_is_as_bound_by_memory() -> None:
    """With 16-bit values and 32-bit columns, a nonzero is 2 operations and 6 bytes."""
    assert hw.intensity.gemv(4096, 4096, density=0.1, index_bits=32) == pytest.approx(2 / 6, rel=0.01)
    assert hw.intensity.gemv(4096, 4096, "fp16", 1.0) == hw.intensity.gemm(1, 4096, 4096)
    half = hw.intensity.gemv(4096, 4096, "int8", density=0.5, index_bits=2)
    assert half == pytest.approx(2 / (10 / 8), rel=0.01)
    with bad_argument(ValueError, "density", "value"):
        hw.intensity.gemv(4, 4, density=0)
