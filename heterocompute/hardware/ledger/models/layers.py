"""Dense networks on NVDLA, the TPU, DianNao, tensor cores and Groq's LPU."""

from __future__ import annotations

from functools import cache

from ...accelerators.catalogue import accelerator, groq_lpu, nvdla, tensor_core, tpu_v1
from ...accelerators.densities import DENSITIES
from ...accelerators.report import AcceleratorReport
from ...chips.database import device
from ...cost.roofline import roofline
from ...network.builtin import networks
from ...network.layers import Linear
from ...network.plain import Activation

__all__ = ["format_gain", "frames", "groq_chips", "groq_over", "groq_tokens", "instructions_share", "matmul_share",
           "mlp0", "mlp0_over", "mlp0_waits", "nvdla_frames", "nvdla_winograd", "nvdla_zeros", "power"]  # fmt: skip


@cache
def report(machine: str, network: str, format: str | None = None) -> AcceleratorReport:
    """Return the cost of one image."""
    return accelerator(machine).report(network, format)


def frames(machine: str, network: str) -> float:
    """Return images/s, one at a time."""
    return 1 / report(machine, network).seconds


def nvdla_frames(network: str) -> float:
    """Return images/s of NVDLA with Winograd, for one image at a time."""
    return 1 / nvdla(winograd=True).report(network).seconds


def nvdla_winograd(row: str) -> float:
    """Return the cycles of NVDLA's multipliers without Winograd over those with it, without waiting for DRAM."""
    plain, fast = nvdla().report(row), nvdla(winograd=True).report(row)
    return sum(layer.work for layer in plain.layers) / sum(layer.work for layer in fast.layers)


def nvdla_zeros(network: str) -> float:
    """Return the share of the DRAM traffic of compressed NVDLA that is zeros, for a network with known densities."""
    moved = zeros = 0.0
    for layer in nvdla(compressed=True).report(network).layers:
        shares = DENSITIES[network][layer.name]
        moved += sum(layer.stores[f"DRAM {tensor}"] for tensor in "WIO")
        zeros += sum(layer.stores[f"DRAM {tensor}"] * (1 - shares[tensor]) for tensor in "IO")
    return zeros / moved


def format_gain(row: str, machine: str, format: str, other: str, batch: int = 64) -> float:
    """Return the speedup of a format over another one, for a network on a machine."""
    seconds = [accelerator(machine).report(row, one, batch).seconds for one in (format, other)]
    return seconds[1] / seconds[0]


def matmul_share(row: str, size: int) -> float:
    """Return the share of a machine's multipliers in use on a matmul of three equal sizes."""
    layer = Linear(size, size, bias=False)
    return accelerator(row).report([layer], batch=size, input_shape=(size,)).active


def power(machine: str, network: str) -> float:
    """Return mW without DRAM."""
    found = report(machine, network)
    return 1e3 * (found.energy - found.energy_parts["DRAM"]) / found.seconds


@cache
def _mlp0() -> AcceleratorReport:
    layers = [Linear(2000, 2000, bias=False), Activation()] * 5
    return tpu_v1().report(layers, batch=200, input_shape=(2000,))


def mlp0() -> float:
    """Return 10^12 operations/s of MLP0 on the TPU, from its layers."""
    return 2 * _mlp0().macs / _mlp0().seconds / 1e12


def mlp0_waits() -> float:
    """Return the share of the time spent waiting for weights."""
    layers = _mlp0().layers
    return 1 - sum(layer.work for layer in layers) / sum(layer.cycles for layer in layers)


def mlp0_over(name: str) -> float:
    """Return the TPU's inferences/s over a CPU's or GPU's at its roof: batch 16, fp32 weights, both within 7 ms."""
    chip, batch, weights = device(name), 16, 20e6
    rate = batch / max(2 * batch * weights / chip.peak("fp32"), 4 * weights / chip.need("bandwidth"))
    return 200 / _mlp0().seconds / rate


def instructions_share() -> float:
    """Return the ratio of a V100's energy of instructions to the energy of arithmetic, on ResNet-50."""
    parts = tensor_core("volta").report("resnet50").energy_parts
    return parts["instructions"] / parts["arithmetic"]


def groq_chips() -> float:
    """Return how many chips hold the weights of Llama 2 70B in fp16."""
    return -(-2 * networks["llama2_70b"].params // int(device("groq-tsp").need("on_chip")))


@cache
def groq_tokens() -> float:
    """Return tokens/s of one user of Llama 2 70B after 1,024 others."""
    token = networks["llama2_70b"].decoding(1024)
    return 1 / groq_lpu(int(groq_chips())).report(token, "fp16").seconds


def groq_over(name: str) -> float:
    """Return `groq_tokens` over the tokens/s of another device at its roof."""
    return groq_tokens() * roofline(networks["llama2_70b"].decoding(1024), name, "fp16").seconds
