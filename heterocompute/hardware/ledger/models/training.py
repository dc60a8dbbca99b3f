"""Published trainings of language models, from their layers: memory under ZeRO, days, and hours of devices."""

from __future__ import annotations

from dataclasses import replace

from ...network.builtin import gpt
from ...network.graph import Network
from ...network.layers import Context
from ...network.lookup import as_network
from ...systems.multi.fabric import Fabric, fabric
from ...systems.parallel import Parallel
from ...systems.training import TrainingStep, training_step, zero_memory

__all__ = [
    "deepseek_hours",
    "h100_network",
    "llama2_hours",
    "llama3_hours",
    "megatron_days",
    "megatron_rate",
    "zero_gb",
]

#: Share of the peak that matmuls sustain, from the smallest model of Narayanan et al., which one device holds.
SUSTAINED = 0.6

#: Heads, width, blocks, tensor and pipeline parallelism, devices, batch: Narayanan et al., table 1.
MEGATRON = {
    "1.7B": (24, 2304, 24, 1, 1, 32, 512),
    "18B": (48, 6144, 40, 8, 1, 256, 1024),
    "39B": (64, 8192, 48, 8, 2, 512, 1536),
    "76B": (80, 10240, 60, 8, 4, 1024, 1792),
    "146B": (96, 12288, 80, 8, 8, 1536, 2304),
    "310B": (128, 16384, 96, 8, 16, 1920, 2160),
    "530B": (128, 20480, 105, 8, 35, 2520, 2520),
    "1T": (160, 25600, 128, 8, 64, 3072, 3072),
}


def zero_gb(row: str) -> float:
    """Return GB per device of 7.5e9 parameters on 64 devices, under a stage of ZeRO."""
    return zero_memory(7.5e9, 64, int(row)) / 1e9


def megatron_rate(row: str) -> float:
    """Return 10^12 operations/s per device of a model of Megatron, with those of the recomputation."""
    step = _megatron(row)
    return step.operations * 4 / 3 / step.seconds / step.devices / 1e12


def megatron_days(model: str) -> float:
    """Return days of GPT-3 for 300e9 tokens on 1,024 devices, or of 1e12 parameters for 450e9 on 3,072."""
    if model == "1T":
        return _megatron("1T").days(450e9 / 2048)
    split = Parallel(data=16, tensor=8, pipeline=8, recompute="full")
    step = training_step("gpt3_175b", "a100-sxm-80gb", "fp16-loss-scale", batch=1536, fabric=_larger("dgx-a100", 128),
                         parallel=split, sustained=SUSTAINED)  # fmt: skip
    return step.days(300e9 / 2048)


def llama3_hours(tokens: float) -> float:
    """Return 10^6 device hours of Llama-3.1 405B on 16,384 H100: 16 stages of 7 parts, 8192 positions."""
    split = Parallel(data=128, tensor=8, pipeline=16, zero=2, interleaved=7, sequence=True, fused_attention=True,
                     overlapped=1.0)  # fmt: skip
    step = training_step("llama3_1_405b", "h100-sxm", batch=2048, input_shape=(8192,), fabric=_larger("dgx-h100", 2048),
                         parallel=split, sustained=SUSTAINED)  # fmt: skip
    return step.device_hours(tokens / 8192) / 1e6


def deepseek_hours(tokens: float) -> float:
    """Return 10^6 device hours of DeepSeek-V3 on 2,048 H800, in the configuration of its report.

    Section 3.2: 16 stages, 64-way experts on at most 4 nodes, NVLink with 160 GB/s. Section 3.2.3: norms and
    up-projections of the attention are computed again. Section 3.5.1: 20 of 132 multiprocessors communicate only.
    Section 4.2: 15,360 sequences of 4096 tokens. Table 2: bubbles of DualPipe take 14 thirds of a stage's forward and
    backward pass, those of 3 interleaved parts 15. One more block with a head predicts a second token.
    """
    system = _larger("dgx-h100", 256)
    slower = replace(system, tiers=(replace(system.tiers[0], rate=160e9), *system.tiers[1:]))
    again = ["*norm*", "*.attention.query", "*.attention.query_rotary", "*.attention.key_up", "*.attention.value_up"]
    split = Parallel(data=128, pipeline=16, expert=64, zero=1, interleaved=3, expert_copies=4, fused_attention=True,
                     overlapped=1.0, recompute=again)  # fmt: skip
    network = as_network("deepseek_v3", (4096,))
    step = training_step(network, "h800-sxm", "deepseek-fp8", batch=15360, fabric=slower, parallel=split,
                         sustained=SUSTAINED * (1 - 20 / 132))  # fmt: skip
    last = f"block{sum(isinstance(flow.layer, Context) for flow in network) - 1}."
    second = sum(flow.macs for flow in network if flow.name.startswith(last) or flow is network.flows[-1])
    return step.device_hours(tokens / 4096) / 1e6 * (1 + second / sum(flow.macs for flow in network))


def h100_network(row: str) -> float:
    """Return how many times faster a GPU of an H100 system sends to another node than one of an A100 system."""
    systems = {"InfiniBand": "dgx-h100", "NVLink switches": "dgx-h100-nvlink"}
    return fabric(systems[row]).tiers[1].rate / fabric("dgx-a100").tiers[1].rate


def llama2_hours(tokens: float) -> float:
    """Return 10^6 device hours of Llama-2 70B on 2,048 A100, tensor parallel within a node, 4 stages."""
    split = Parallel(data=64, tensor=8, pipeline=4, zero=1, sequence=True, fused_attention=True)
    step = training_step("llama2_70b", "a100-sxm-80gb", batch=1024, fabric=_larger("dgx-a100", 256), parallel=split,
                         sustained=SUSTAINED)  # fmt: skip
    return step.device_hours(tokens / 4096) / 1e6


def _megatron(name: str) -> TrainingStep:
    heads, width, blocks, tensor, pipeline, devices, batch = MEGATRON[name]
    split = Parallel(data=devices // tensor // pipeline, tensor=tensor, pipeline=pipeline, recompute="full")
    return training_step(_gpt(name, width, blocks, heads), "a100-sxm-80gb", "fp16-loss-scale", batch=batch,
                         fabric=_larger("dgx-a100", 384), parallel=split, sustained=SUSTAINED)  # fmt: skip


def _gpt(name: str, width: int, blocks: int, heads: int) -> Network:
    return gpt(f"megatron_{name}", width, blocks, heads, 2048)


def _larger(name: str, nodes: int) -> Fabric:
    """Return a known system with a number of nodes, more than one of its pods."""
    found = fabric(name)
    inside, outside = found.tiers
    return replace(found, tiers=(inside, replace(outside, count=nodes)))
