"""The largest batch that a device holds, and the bytes that other measures would free."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...base.errors import WrongValue, shown
from ...base.lazy import renamed
from ...base.notebooks.shown import Facts
from ...base.values import check_count, check_flag, check_number
from ..chips.chip import Device, dtype_bits
from ..chips.database import device as find_device
from ..cost import memory
from ..network.graph import Network
from ..network.layers import Context, Embedding
from ..network.lookup import as_network
from .parallel import Parallel
from .training import as_recipe, training_step

USABLE = 15079 / 16384  # of a T4's memory: the memory that nvidia-smi shows as usable
MOST = 1 << 20

Bytes = Callable[[int], int]


@dataclass(frozen=True, repr=False)
class LargestBatch(Facts):
    """The result of `largest_batch`.

    Attributes
    ----------
    network, device : str
    batch : int
        The largest batch size that fits; 0 if none does.
    bytes, limit : int
        Memory of that batch size (of batch size 1 if none fits), and available memory.
    target : int
        The batch size that `changes` aim at.
    changes : list of dict
        ``change``, ``how``, ``saved`` (bytes, of the target), ``batch`` (the largest that fits with it), ``fits``
        (whether the target does), the largest savings first.
    """

    network: str
    device: str
    batch: int
    bytes: int
    limit: int
    target: int
    changes: list[dict[str, Any]] = field(compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        return asdict(self)

    def __repr__(self) -> str:
        head = (
            f"<LargestBatch of {self.network} on {self.device}: {self.batch}, {self.bytes / 1e9:.4g} of "
            f"{self.limit / 1e9:.4g} GB; for {self.target}:"
        )
        rows = [
            f"  {row['change']} saves {row['saved'] / 1e9:.4g} GB, {row['batch']} fit: {row['how']}"
            for row in self.changes
        ]
        return "\n".join([head, *rows]) + ">"


@renamed(chip="device", model="network")
def largest_batch(
    network: object,
    device: str | Device,
    *,
    dtype: str = "fp32",
    training: bool = True,
    optimizer: str = "adam",
    target: int | None = None,
    usable: float = USABLE,
    input_shape: Sequence[int] | None = None,
    recipe: object = None,
) -> LargestBatch:
    """Find the largest batch size that fits a device's memory, and the changes that allow a larger one.

    Parameters
    ----------
    network, input_shape
        As in `count`.
    device : str or Device
    dtype : str, optional
        Type of weights and activations.
    training : bool, optional
        False: inference.
    optimizer : str, optional
        As in `memory.training`.
    target : int, optional
        The desired batch size. Default: twice the largest that fits, 1 if none does.
    usable : float, optional
        Share of the memory that programs can use. Default: that of a T4, 15,079 of 16,384 MiB.
    recipe : heterocompute.training.Recipe or str, optional
        Formats of a training, as in `training_step`. It replaces `dtype` and `optimizer`.

    Returns
    -------
    LargestBatch

    Raises
    ------
    ValueError
        The device's memory is unknown, `recipe` comes with `dtype`, `optimizer` or inference, or as in
        `memory.training` and `memory.infer`.

    Notes
    -----
    Activations are counted as in `memory.training`. Workspaces, fragmentation and copies of a framework are extra.
    Checkpointing costs a second forward pass. Accumulation only makes matmuls smaller. A network of tokens can also use
    sequences of half the length: attention scores shrink to a quarter, everything else to a half.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.systems.largest_batch("resnet50", "t4")
    >>> found.batch, found.changes[0]["change"]
    (102, 'checkpointing')
    >>> hw.systems.largest_batch("gpt2", "t4", recipe="adam8bit").changes[0]["how"]
    'the forward pass of each block again in the backward pass'
    """
    one = find_device(device)
    usable = check_number("largest_batch", "usable", usable, high=1.0)
    check_flag("largest_batch", "training", training)
    network = as_network(network, input_shape, training=2 if training else 0)
    limit = int(one.need("memory") * usable)
    if recipe is not None:
        for name, given, default in (
            ("dtype", dtype, "fp32"),
            ("optimizer", optimizer, "adam"),
            ("training", training, True),
        ):
            if given != default:
                raise WrongValue(
                    f"largest_batch: {name} is {shown(given)} next to a recipe, expected its default {default}"
                )
        recipe = as_recipe(recipe, "largest_batch: recipe")
    takes = _takes(network, dtype, training, optimizer) if recipe is None else _step_takes(network, one, recipe)
    largest = _fitting(takes, limit)
    wanted = max(1, 2 * largest) if target is None else check_count("largest_batch", "target", target)
    now = takes(wanted)
    changes: list[dict[str, Any]] = []
    found = (
        _changes(network, one, dtype, training, optimizer) if recipe is None else _step_changes(network, one, recipe)
    )
    for change, how, other in found:
        saved = now - other(wanted)
        fitting = _fitting(other, limit)
        if saved > 0:
            changes.append({"change": change, "how": how, "saved": saved, "batch": fitting, "fits": fitting >= wanted})
    if 0 < largest < wanted and training:
        parts = -(-wanted // largest)
        piece = -(-wanted // parts)
        changes.append({"change": "accumulation", "how": f"{parts} batches of {piece} before a step of the optimizer",
                        "saved": now - takes(piece), "batch": largest, "fits": True})  # fmt: skip
    changes.sort(key=lambda row: row["saved"], reverse=True)
    return LargestBatch(network.name, one.name, largest, takes(max(1, largest)), limit, wanted, changes)


def _takes(
    network: Network, dtype: str, training: bool, optimizer: str, recompute: int = 0, format: object = None
) -> Bytes:
    def total(batch: int) -> int:
        if training:
            return memory.training(network, batch=batch, dtype=dtype, optimizer=optimizer, recompute=recompute).total
        return memory.infer(network, batch=batch, dtype=dtype, format=format).total

    if dtype_bits(dtype) < 8:  # bytes are rounded up
        return total
    fixed, each = 2 * total(1) - total(2), total(2) - total(1)
    return lambda batch: fixed + batch * each


def _fitting(takes: Bytes, limit: int) -> int:
    """Return the largest batch within the limit: bytes never fall as a batch grows."""
    if takes(1) > limit:
        return 0
    low, high = 1, 2
    while high < MOST and takes(high) <= limit:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) <= limit else (low, middle)
    return low


def _changes(
    network: Network, chip: Device, dtype: str, training: bool, optimizer: str
) -> Iterator[tuple[str, str, Bytes]]:
    narrow = next((kind for kind in ("bf16", "fp16") if kind in chip.dense_rates), None)
    if narrow and dtype_bits(dtype) > 16:
        yield "format", f"{narrow} instead of {dtype}", _takes(network, narrow, training, optimizer)
    if len(network.input_shape) == 1 and network.input_shape[0] > 1 and isinstance(network.nodes[0].layer, Embedding):
        positions, half = network.input_shape[0], network.input_shape[0] // 2
        shorter = network.with_input((half,))
        yield "sequence", f"{half} positions instead of {positions}", _takes(shorter, dtype, training, optimizer)
    if not training:
        for format in ("int8", "int4-g128-f16"):
            yield "format", f"weights in {format}", _takes(network, dtype, False, optimizer, 0, format)
        return
    segments = max(2, round(math.sqrt(len(network.nodes))))
    how = f"{segments} segments computed again in the backward pass"
    yield "checkpointing", how, _takes(network, dtype, True, optimizer, segments)
    if optimizer not in ("sgd", "none"):
        yield "optimizer", f"sgd instead of {optimizer}", _takes(network, dtype, True, "sgd")


def _step_takes(network: Network, chip: Device, recipe: Any, recompute: str = "none") -> Bytes:
    """Return the bytes of a step of one device, whose samples are one microbatch."""

    def total(batch: int) -> int:
        split = Parallel(microbatch=batch, recompute=recompute)
        return math.ceil(training_step(network, chip, recipe, batch=batch, parallel=split).peak_memory)

    fixed, each = 2 * total(1) - total(2), total(2) - total(1)
    return lambda batch: fixed + batch * each


def _step_changes(network: Network, chip: Device, recipe: Any) -> Iterator[tuple[str, str, Bytes]]:
    if any(isinstance(flow.layer, Context) for flow in network):
        how = "the forward pass of each block again in the backward pass"
        yield "checkpointing", how, _step_takes(network, chip, recipe, "full")
        how = "the scores of attention again in the backward pass"
        yield "selective checkpointing", how, _step_takes(network, chip, recipe, "attention")
    small = as_recipe("adam8bit", "largest_batch").optimizer
    small = {name: fmt for name, fmt in small.items() if recipe.update != "madam" or name == "exp_avg_sq"}
    yield "optimizer", "states in 8 bits", _step_takes(network, chip, replace(recipe, optimizer=small))
    if len(network.input_shape) == 1 and network.input_shape[0] > 1 and isinstance(network.nodes[0].layer, Embedding):
        positions, half = network.input_shape[0], network.input_shape[0] // 2
        shorter = network.with_input((half,))
        yield "sequence", f"{half} positions instead of {positions}", _step_takes(shorter, chip, recipe)
