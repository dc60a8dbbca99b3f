"""A training step on many devices, from the layers: matmuls in the formats of a recipe, memory, and communication.

    one device, one microbatch   sum over layers of max(operations / rate, bytes / bandwidth)
    tensor parallelism           4 all-reduces of the residual stream a block, 6 with recomputation
    pipeline, 1F1B               m + (p - 1) / v slots of a stage: m microbatches, p stages of v parts
    data                         all-reduce of gradients: 2 P; ZeRO-3 and FSDP: 3 P
    memory, Adam, 16 bits        2 P + 2 P + 12 P; ZeRO divides the 12 P (1), gradients (2), weights (3) by devices

Narayanan et al., SC 2021 (pipeline, interleaving); Shoeybi et al., arXiv 1909.08053; Rajbhandari et al., SC 2020.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arrays.components import component_layout
from ...base.errors import WrongType, WrongValue, shown
from ...base.lazy import renamed
from ...base.notebooks.shown import Facts
from ...base.values import as_int, check_count, check_number
from ...formats import Format
from ..chips.chip import Device, dtype_bits
from ..chips.database import device as find_device
from ..cost.pairing import product_dtype
from ..network.graph import Flow, Network
from ..network.heads import Experts
from ..network.layers import Context, Scores
from ..network.liveness import saved_sizes
from ..network.lookup import as_network
from .multi.collectives import allreduce, link_rate
from .multi.fabric import Fabric
from .parallel import Parallel, repeated_of, scores_of

__all__ = ["TrainingStep", "training_step", "zero_memory"]


def __dir__() -> list[str]:
    return __all__


DAY = 86400.0
GRADIENT, MASTER, ADAM = 2.0, 4.0, 8.0  # bytes per parameter


@dataclass(frozen=True, repr=False)
class TrainingStep(Facts):
    """The result of `training_step`.

    Attributes
    ----------
    network, device : str
    devices, batch : int
    seconds : float
    energy : float or None
        Joules of all devices at full design power; None if it is unknown.
    parts : dict of str to float
        Seconds of forward, input_gradients, weight_gradients, elementwise, rounding, recompute, tensor_parallel,
        expert_parallel, bubble, data_parallel and optimizer. They add up to `seconds`.
    bytes : dict of str to float
        Bytes of one device: memory traffic, and sent for tensor, pipeline, expert and data parallelism.
    memory_per_device : dict of str to float
        Bytes of weights, gradients, master, optimizer and activations.
    peak_memory : float
        Their sum.
    fits : bool
        Whether it is at most the memory of the device.
    operations : float
        Operations of the model: forward and backward, without recomputation.
    utilization : float
        `operations` over the dense peak of the forward type (MFU).
    notes : list of str
        What the model leaves out for these arguments.
    """

    network: str
    device: str
    devices: int
    batch: int
    seconds: float
    energy: float | None
    parts: dict[str, float]
    bytes: dict[str, float]
    memory_per_device: dict[str, float]
    peak_memory: float
    fits: bool
    operations: float
    utilization: float
    notes: list[str] = field(default_factory=list)

    def days(self, samples: float) -> float:
        """Return the days of a training with a number of samples.

        Parameters
        ----------
        samples : float

        Returns
        -------
        float
        """
        return check_number("days", "samples", samples) / self.batch * self.seconds / DAY

    def device_hours(self, samples: float) -> float:
        """Return the hours of all devices together for a number of samples.

        Parameters
        ----------
        samples : float

        Returns
        -------
        float
        """
        return self.days(samples) * 24 * self.devices

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        return dict(vars(self))

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {time:.3g} s" for name, time in self.parts.items() if time)
        limit = "" if self.fits else ", more than it has"
        return (
            f"<TrainingStep of {self.network} on {self.devices} {self.device}, batch {self.batch}: {self.seconds:.4g} "
            f"s = {parts}; {self.utilization:.1%} of peak; {self.peak_memory / 1e9:.4g} GB per device{limit}>"
        )


def zero_memory(parameters: float, devices: int, stage: int, optimizer_bytes: float = MASTER + ADAM) -> float:
    """Compute the bytes per device of weights, gradients and optimizer states under ZeRO, in mixed precision.

    Parameters
    ----------
    parameters : float
    devices : int
        Data-parallel devices.
    stage : {0, 1, 2, 3}
    optimizer_bytes : float, optional
        Bytes per parameter of float32 weights and states. Default: those of Adam, 12.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        A number is out of range.

    Notes
    -----
    Rajbhandari et al., "ZeRO", SC 2020, figure 1.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> [round(hw.zero_memory(7.5e9, 64, stage) / 1e9, 1) for stage in range(4)]
    [120.0, 31.4, 16.6, 1.9]
    """
    count = check_number("zero_memory", "parameters", parameters)
    devices, stage = check_count("zero_memory", "devices", devices), as_int(stage, "zero_memory: stage", 0, 3)
    states = check_number("zero_memory", "optimizer_bytes", optimizer_bytes, closed=True)
    divided = [devices if stage >= least else 1 for least in (1, 2, 3)]
    return count * (states / divided[0] + GRADIENT / divided[1] + 2.0 / divided[2])


@renamed(net="network")
def training_step(
    network: object,
    device: str | Device,
    recipe: object = "bf16",
    *,
    batch: int = 1,
    fabric: Fabric | None = None,
    parallel: Parallel | None = None,
    input_shape: Sequence[int] | None = None,
    sustained: float = 1.0,
) -> TrainingStep:
    """Compute the time, energy, traffic and memory of a training step with an Adam-like optimizer.

    Parameters
    ----------
    network, input_shape
        As in `count`.
    device : str or Device
    recipe : heterocompute.training.Recipe or str, optional
        Formats of operands, states and all-reduce. A name is that of a published recipe.
    batch : int, optional
        Samples of a step, over all devices.
    fabric : Fabric, optional
        The links: the innermost tier for tensor parallelism, the outermost for the rest. Default: the device's link.
    parallel : Parallel, optional
    sustained : float, optional
        Share of the peak rate that the largest matmuls of the device sustain, if it is known. Default: 1.

    Returns
    -------
    TrainingStep

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, the batch is not a multiple of the microbatches, or there are more stages than
        blocks.

    Notes
    -----
    A matmul takes its operations over the rate of its operands' type, or its bytes over the bandwidth. Other layers
    read and write memory, each by itself. So do the roundings of x and g to formats below 16 bits. Communication does
    not overlap. The formats of a recipe that the device lacks run in its fastest 16-bit type.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> step = hw.training_step("gpt2", "a100-sxm-80gb", batch=8, parallel=hw.Parallel(microbatch=8))
    >>> step.fits, round(sum(step.parts.values()) / step.seconds, 6)
    (True, 1.0)
    """
    chosen, chip, split = as_recipe(recipe, "training_step: recipe"), find_device(device), parallel or Parallel()
    if not isinstance(split, Parallel):
        raise WrongType(f"training_step: parallel is {shown(parallel)}, expected a Parallel")
    network = as_network(network, input_shape)
    batch = check_count("training_step", "batch", batch)
    share = check_number("training_step", "sustained", sustained, high=1.0)
    each = split.data * split.microbatch
    if batch % each:
        raise WrongValue(f"training_step: batch is {batch}, expected a multiple of data x microbatch, {each}")
    blocks, stream = _blocks(network), network.stream or 0
    if split.pipeline * split.interleaved > max(blocks, 1):
        raise WrongValue(f"training_step: pipeline is {split.pipeline} stages of {split.interleaved} parts, and the "
                         f"network has {blocks} blocks")  # fmt: skip
    work = _Work(network, chip, chosen, split, share)
    count = batch // each
    traffic, sent = work.traffic, {"tensor_parallel": 0.0, "expert_parallel": 0.0}
    inner, outer = _rates(chip, fabric, split)
    size = split.microbatch * stream * work.bits / 8
    rounds = 4 * blocks + work.repeated_sums
    parts = dict(work.seconds)
    if split.tensor > 1:
        link: Any = fabric.of(split.tensor) if fabric is not None else chip
        parts["tensor_parallel"] = rounds * allreduce(size, split.tensor, link)
        sent["tensor_parallel"] = rounds * 2 * (split.tensor - 1) / split.tensor * size
    if split.expert > 1 and work.routed:
        sent["expert_parallel"] = work.routed * (split.expert - 1) / split.expert
        parts["expert_parallel"] = _shown(sent["expert_parallel"] / outer, parts, split)
    slots = count / split.pipeline  # of the whole network, per stage
    parts = {name: seconds * slots for name, seconds in parts.items()}
    busy = math.fsum(parts.values())
    copies = 2 * size / split.tensor / outer * split.interleaved if split.pipeline > 1 else 0.0
    parts["bubble"] = (busy / count / split.interleaved + copies) * (split.pipeline - 1)
    held = work.parameters
    reduced = held * dtype_bits_of(chosen.all_reduce, 16) / 8
    times = {0: 2.0, 1: 2.0, 2: 2.0, 3: 3.0}[split.zero] * (split.data - 1) / split.data
    parts["data_parallel"] = _shown(times * reduced / outer, parts, split)
    memory = _memory(network, chosen, split, work, count)
    states = memory["optimizer"] + memory["master"]
    parts["optimizer"] = (2 * states + memory["weights"] + memory["gradients"]) / chip.need("bandwidth")
    seconds = math.fsum(parts.values())
    peak = math.fsum(memory.values())
    operations = 6.0 * batch * sum(flow.macs for flow in network)
    power = None if chip.tdp is None else chip.tdp * split.devices * seconds
    return TrainingStep(
        network=network.name,
        device=chip.name,
        devices=split.devices,
        batch=batch,
        seconds=seconds,
        energy=power,
        parts=parts,
        bytes={"memory": traffic * slots, **{name: size * slots for name, size in sent.items()},
               "pipeline": 2 * size / split.tensor * count if split.pipeline > 1 else 0.0,
               "data_parallel": times * reduced},
        memory_per_device=memory,
        peak_memory=peak,
        fits=chip.memory is None or peak <= chip.memory,
        operations=operations,
        utilization=operations / (seconds * split.devices * work.peak),
        notes=work.notes,
    )  # fmt: skip


class _Work:
    """One microbatch on the devices of a tensor-parallel group, as if one device had all stages."""

    def __init__(self, network: Network, chip: Device, recipe: Any, split: Parallel, share: float) -> None:
        self.bits = 32 if dtype_bits_of(recipe.activations, 16) > 16 and dtype_bits_of(recipe.weights, 16) > 16 else 16
        self.notes: list[str] = []
        last = recipe.weight_matmul
        pairs = {
            "forward": (recipe.weights, recipe.activations),
            "input_gradients": (recipe.weights, recipe.gradients),
            "weight_gradients": (last or recipe.gradients, last or recipe.activations),
        }
        rates = {name: self._rate(chip, *pair) for name, pair in pairs.items()}
        formats = recipe.attention_formats("")
        values, slopes = formats["activations"], formats["gradients"]
        outer = recipe.formats_of("")
        inner = {"forward": (values, values), "input_gradients": (values, slopes), "weight_gradients": (slopes, values)}
        inner_rates = {name: self._rate(chip, *pair) for name, pair in inner.items()}
        self.peak = rates["forward"]
        bandwidth, samples = chip.need("bandwidth"), split.microbatch
        self.seconds = dict.fromkeys((*pairs, "elementwise", "rounding", "recompute"), 0.0)
        self.traffic = self.parameters = self.routed = 0.0
        stream = network.stream
        self.scores = scores_of(network)
        self.repeated = repeated_of(network, split, self.scores)
        # All-reduces of tensor parallelism that the recomputation repeats: of the matmuls that end in a residual.
        sums = {name for flow in network if len(flow.node.inputs) > 1 and not flow.macs for name in flow.node.inputs}
        self.repeated_sums = 2 * _blocks(network) if split.recompute == "full" else sum(
            flow.name in self.repeated and flow.name in sums and flow.output_elements == stream and flow.macs > 0
            for flow in network
        )  # fmt: skip
        for flow in network:
            divided = split.tensor if split.sequence or flow.output_elements != stream or flow.macs else 1
            is_expert = isinstance(flow.layer, Experts)
            params = flow.layer.weight_params + flow.layer.bias_params
            self.parameters += params / split.tensor / split.pipeline / (split.expert if is_expert else 1)
            if is_expert and flow.layer.joins:  # type: ignore[attr-defined]
                positions = math.prod(flow.output[:-1])
                copies = min(split.expert_copies or flow.layer.used, flow.layer.used)  # type: ignore[attr-defined]
                values = samples * positions * copies * flow.output[-1] / split.tensor
                narrow = min(dtype_bits_of(recipe.activations, 16), self.bits)  # sent to the experts, and back
                self.routed += values * 2 * (narrow + self.bits) / 8 * (1.5 if flow.name in self.repeated else 1.0)
            elements = samples * (flow.input_elements + flow.output_elements)
            if split.fused_attention and flow.name in self.scores:
                if not flow.macs:
                    continue
                elements = samples * min(flow.input_elements, flow.output_elements)
            if not flow.macs:
                moved = elements * self.bits / 8 / divided
                times = {"elementwise": 2.5, "recompute": 1.0 if flow.name in self.repeated else 0.0}
                for name, factor in times.items():
                    self.seconds[name] += factor * moved / bandwidth
                    self.traffic += factor * moved
                continue
            is_attention = isinstance(flow.layer, (Scores, Context))
            sizes = flow.input_elements, flow.output_elements
            again = flow.name in self.repeated and not is_attention
            moved = samples * self._rounded_bits(formats if is_attention else outer, sizes, again) / 8 / split.tensor
            self.seconds["rounding"] += moved / bandwidth
            self.traffic += moved
            for name, (a, b) in (inner if is_attention else pairs).items():
                rate = (inner_rates if is_attention else rates)[name]
                bits = max(dtype_bits_of(a, 16), dtype_bits_of(b, 16))
                moved = (elements + params) * bits / 8 / split.tensor
                time = max(2 * samples * flow.macs / split.tensor / (rate * share), moved / bandwidth)
                is_repeated = split.fused_attention and name == "input_gradients" and isinstance(flow.layer, Scores)
                self.seconds[name] += time * (1 + is_repeated)
                self.traffic += moved * (1 + is_repeated)
                if name == "forward" and flow.name in self.repeated:
                    self.seconds["recompute"] += time
                    self.traffic += moved

    def _rounded_bits(self, formats: dict[str, Format], sizes: tuple[int, int], again: bool) -> float:
        """Return the bits that roundings of x and g move: wide values are read, narrow values are written.

        Formats with groups along one axis are rounded a second time, along the other. Weights, which are rounded once a
        step, are left out.
        """
        total = 0.0
        for key, size in (("activations", sizes[0]), ("gradients", sizes[1])):
            fmt = formats[key]
            bits = dtype_bits_of(fmt, 16)
            if bits >= 16:
                continue
            is_one = getattr(getattr(fmt, "form", None), "any_axis", False)
            total += size * ((self.bits + bits) * (1 + (again and key == "activations")) + (0 if is_one else 2 * bits))
        return total

    def _rate(self, chip: Device, a: Format, b: Format) -> float:
        texts = {str(a), str(b)}
        for exact in ("fp32", "tf32"):
            if exact in texts and exact in chip.dense_rates:
                return chip.peak(exact)
        dtype = product_dtype(chip, a, b)
        if dtype_bits(dtype) > max(dtype_bits_of(a, 16), dtype_bits_of(b, 16)):
            note = f"{chip.name} has no matmul of {a} by {b}: {dtype} is its type"
            self.notes += [note] if note not in self.notes else []
        return chip.peak(dtype)


def _shown(seconds: float, parts: dict[str, float], split: Parallel) -> float:
    """Return the seconds of a communication that matmuls do not hide."""
    matmuls = sum(parts[name] for name in ("forward", "input_gradients", "weight_gradients"))
    return seconds - min(seconds * split.overlapped, matmuls)


def dtype_bits_of(fmt: Format, default: int) -> int:
    """Return the bits of a format's codes."""
    return int(getattr(fmt, "bits", None) or (fmt.form.bits if hasattr(fmt, "form") else default))


def stored_bits(fmt: Format, values: int = 1 << 16) -> float:
    """Return the stored bits per value of a long row, with scales.

    Examples
    --------
    >>> import heterocompute as hc
    >>> stored_bits(hc.format("int8-g256"))
    8.125
    """
    layout = component_layout(fmt, (values,), (0,), "float32")
    total = sum(kind.itemsize * math.prod(shape) for kind, shape in layout.values())
    return 8 * total / values


def _memory(network: Network, recipe: Any, split: Parallel, work: _Work, count: int) -> dict[str, float]:
    held = work.parameters
    divided = [split.data if split.zero >= least else 1 for least in (1, 2, 3)]
    bits = work.bits
    is_narrow = stored_bits(recipe.master) <= bits
    names = ("exp_avg_sq",) if recipe.update == "madam" else ("exp_avg", "exp_avg_sq")
    states = sum(stored_bits(recipe.optimizer[name]) if name in recipe.optimizer else 32.0 for name in names)
    sizes, stream = saved_sizes(network), network.stream
    if split.fused_attention:
        hidden = work.scores
        sizes = [(0, 0) if flow.name in hidden and not isinstance(flow.layer, Context) else size
                 for flow, size in zip(network, sizes, strict=True)]  # fmt: skip
    each = [_kept(flow, size, stream, split) for flow, size in zip(network, sizes, strict=True)]
    blocks = max(_blocks(network), 1)
    if split.recompute == "full" and stream:
        elements, once = blocks * stream / (split.tensor if split.sequence else 1), sum(each) / blocks
    else:
        again = [size for flow, size in zip(network, each, strict=True) if flow.name in work.repeated]
        elements, once = sum(each) - sum(again), sum(again) / blocks
    elements /= split.pipeline
    in_flight = min(count, split.pipeline * (1 + (split.pipeline - 1) / split.pipeline / split.interleaved
                                             if split.interleaved > 1 else 1))  # fmt: skip
    return {
        "weights": held * bits / 8 / divided[2],
        "gradients": held * bits / 8 / divided[1],
        "master": 0.0 if is_narrow or bits == 32 else held * stored_bits(recipe.master) / 8 / divided[0],
        "optimizer": held * states / 8 / divided[0],
        "activations": (elements * in_flight + once) * split.microbatch * bits / 8,
    }


def _kept(flow: Flow, size: tuple[int, int], stream: int | None, split: Parallel) -> float:
    whole = flow.output_elements == stream and not split.sequence
    return size[0] / (1 if whole else split.tensor)


def _blocks(network: Network) -> int:
    return sum(isinstance(flow.layer, Context) for flow in network)


def _rates(chip: Device, fabric: Fabric | None, split: Parallel) -> tuple[float, float]:
    """Return B/s out of a device inside of a node, and between nodes."""
    if fabric is None:
        rate = link_rate(chip) if split.devices > 1 else 1.0
        return rate, rate
    if not isinstance(fabric, Fabric):
        raise WrongType(f"training_step: fabric is {shown(fabric)}, expected a Fabric: multi.fabric('dgx-a100')")
    tiers = fabric.of(split.devices).tiers if split.devices <= fabric.count else fabric.tiers
    used = [tier.rate for tier in tiers if tier.count > 1] or [tiers[0].rate]
    return used[0], used[-1]


def as_recipe(value: object, name: str) -> Any:
    """Return a recipe from its name, or a recipe unchanged.

    Raises
    ------
    TypeError, ValueError
    """
    from ...training.step.named import as_recipe as named  # a layer above

    return named(value, name)
