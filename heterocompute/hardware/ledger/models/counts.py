"""Parameters, operations and memory of networks; operations of whole trainings."""

from __future__ import annotations

from ...accelerators.densities import DENSITIES
from ...cost import memory
from ...cost.estimates import PETAFLOP_DAY, training_flops, training_time
from ...network.builtin import networks
from ...network.counting import count
from ...network.layers import Linear
from ...systems.multi.growth import growth

__all__ = [
    "adam_bytes",
    "conv_macs",
    "conv_ratio",
    "data_parallel_days",
    "kept_share",
    "linear_memory",
    "macs",
    "macs_ratio",
    "params",
    "per_conv_mac",
    "per_frame",
    "process_memory",
    "token_work",
    "training_days",
    "training_ratio",
    "training_work",
]


def params(network: str) -> float:
    """Return the parameters of a network."""
    return float(count(network).params)


def macs(network: str, like: str = "mac", unit: float = 1e9) -> float:
    """Return the operations of a network as a tool counts them."""
    return float(count(network, like=like).total) / unit


def conv_macs(network: str, batch: int = 1, unit: float = 1e9) -> float:
    """Return the multiply-adds of a network's convolutions."""
    return batch * float(sum(row["macs"] for row in count(network).layers if row["kind"] == "Conv2d")) / unit


def conv_ratio(network: str, other: str) -> float:
    """Return the multiply-adds of a network's convolutions over another's."""
    return conv_macs(network) / conv_macs(other)


def macs_ratio(network: str, other: str) -> float:
    """Return the multiply-adds of a network over another's."""
    return count(network).macs / count(other).macs


def per_conv_mac(network: str, batch: int, amount: float) -> float:
    """Return an amount per multiply-add of a batch's convolutions."""
    return amount / conv_macs(network, batch, 1.0)


def per_frame(network: str, rate: float) -> float:
    """Return frames/s from multiply-adds/s of the convolutions."""
    return rate / conv_macs(network, 1, 1.0)


def token_work(parameters: float, tokens: float) -> float:
    """Return petaflop/s-days of a training: 6 operations per parameter and token."""
    return training_flops(parameters, tokens) / PETAFLOP_DAY


def training_work(row: str = "", name: str = "", unit: float = PETAFLOP_DAY) -> float:
    """Return the operations of one of the trainings of `hw.multi.growth`."""
    return next(float(one["operations"]) for one in growth() if one["name"] == (row or name)) / unit


def training_ratio(name: str, other: str) -> float:
    """Return the ratio of the operations of two trainings."""
    return training_work(name=name) / training_work(name=other)


def training_days(parameters: float, tokens: float, devices: int, rate: float) -> float:
    """Return days on A100s that each reach `rate` of their 312e12 operations/s, with outputs recomputed."""
    seconds = training_time(parameters, tokens, "a100-sxm-80gb", devices, rate / 312e12, recompute=True)
    return seconds / 86400


def data_parallel_days(rate: float, peak: float) -> float:
    """Return a rate over a peak, in percent."""
    return 100 * rate / peak


def linear_memory(part: str) -> float:
    """Return MiB of Linear(1024, 1024): its parameters, 100 outputs of 10,240 rows each, or a backward pass."""
    layer, shape = Linear(1024, 1024), (1024,)
    if part == "params":
        found = memory.infer(layer, shape).params
    elif part == "outputs":
        found = memory.forward(layer, shape, batch=10240, outputs=100).output
    else:
        found = sum(memory.backward(layer, shape).to_dict()[key] for key in ("params", "gradients"))
    return found / 2**20


def process_memory(sizes: list[int]) -> float:
    """Return MiB of a process with such tensors on a V100."""
    return memory.device_total(sizes) / 2**20


def adam_bytes() -> float:
    """Return the bytes per parameter of Adam in mixed precision."""
    parts = memory.training("gpt2", dtype="fp16").to_dict()
    return float(sum(parts[key] for key in ("params", "gradients", "master", "optimizer"))) / networks["gpt2"].params


def kept_share(kind: str) -> float:
    """Return the density of pruned AlexNet's weights, in layers whose names start with this."""
    layers = [one for one in networks["alexnet_original"].problems() if one.name.startswith(kind)]
    shares = DENSITIES["alexnet_original"]
    return sum(one.weights * shares[one.name]["W"] for one in layers) / sum(one.weights for one in layers)
