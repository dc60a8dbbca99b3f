"""The mappings of a network's layers on a machine: the searches that a report makes, with their mappings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....base.errors import Unsupported, WrongValue, printable, shown
from ....base.progress import Progress, Steps
from ....base.values import Rng, as_int, check_choice, check_count, seed_from
from ....report.page import rows_html
from ....report.results.saved import Saved
from ...mapper.mapping import Mapping
from ...network.lookup import as_network
from ..accelerator import Accelerator, at_voltage
from ..mapped import WALKS, Effort, mapped_cost, mapped_layer
from ..report import Layer
from .machine import machine_of

__all__ = ["MappedNetwork", "search"]


@dataclass(frozen=True, repr=False)
class MappedNetwork(Saved):
    """The best mapping found of each layer; `save` writes a file that `load` reads.

    Attributes
    ----------
    machine, network, format, objective : str
    batch : int
    clock : float
        Hz.
    layers : list of Layer
        As of a report.
    mappings : dict of str to Mapping
        By layer name.
    """

    machine: str
    network: str
    format: str
    objective: str
    batch: int
    clock: float
    layers: Sequence[Layer] = field(compare=False)
    mappings: dict[str, Mapping] = field(compare=False)

    kind = "mapped network"

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        if [one.name for one in fields["layers"]] != list(fields["mappings"]):
            raise WrongValue("mappings has other names than layers")
        if not fields["clock"] > 0:
            raise WrongValue(f"clock is {shown(fields['clock'])}, expected a positive number")

    @property
    def seconds(self) -> float:
        """Return the time of the whole batch."""
        return math.fsum(layer.cycles for layer in self.layers) / self.clock

    @property
    def energy(self) -> float:
        """Return J of the whole batch."""
        return math.fsum(layer.picojoules for layer in self.layers) * 1e-12

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("machine", "network", "format", "objective", "batch", "seconds", "energy")
        return {**{key: getattr(self, key) for key in keys}, "layers": [self._row(one) for one in self.layers]}

    def _row(self, layer: Layer) -> dict[str, Any]:
        return {
            "name": layer.name,
            "macs": layer.macs,
            "seconds": layer.cycles / self.clock,
            "energy": layer.picojoules * 1e-12,
            "dram_bytes": layer.dram_bits / 8,
            "active": layer.active,
            "mapping": str(self.mappings[layer.name]),
        }

    def __str__(self) -> str:
        lines = [f"{printable(one.name)}\n{self.mappings[one.name]}\n" for one in self.layers]
        return "\n".join([*lines, repr(self).strip("<>")])

    def __repr__(self) -> str:
        return (
            f"<MappedNetwork: {printable(self.network)} on {self.machine}, {self.format}, batch {self.batch}, best "
            f"{self.objective} found: {self.seconds * 1e3:.4g} ms, {self.energy * 1e3:.4g} mJ, "
            f"{len(self.layers)} layers>"
        )

    def _repr_html_(self) -> str:
        rows = [{**row, "mapping": row["mapping"].replace("\n", "; ")} for row in self.to_dict()["layers"]]
        return rows_html(rows, repr(self).strip("<>"))


def search(
    network: object,
    machine: object,
    objective: str = "edp",
    *,
    batch: int = 1,
    format: str | None = None,
    input_shape: Sequence[int] | None = None,
    budget: int = 36_000,
    seed: int = 0,
    rng: Rng = None,
    progress: Progress | bool | None = None,
) -> MappedNetwork:
    """Search for the best mapping of each layer of a network on a machine.

    Parameters
    ----------
    network : Network, str, path, torch.nn.Module or sequence of layers
        As in `as_network`.
    machine : Machine, Accelerator, str or path
        A machine of your own, its TOML file, or a published one.
    objective : {"edp", "energy", "delay"}
        Energy times cycles, pJ, or cycles.
    batch : int, optional
    format : str, optional
        A number format of the machine. Default: its first.
    input_shape : sequence of int, optional
        Shape of one sample, without a batch.
    budget : int, optional
        Mappings to try per layer, in six walks. Equal layers are searched once.
    seed : int, optional
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` before each layer, and at the end. True: a bar of tqdm. False:
        nothing. Default: a bar in notebooks.

    Returns
    -------
    MappedNetwork

    Raises
    ------
    ValueError
        A name, format or objective is unknown, or no mapping fits.
    NotImplementedError
        The machine has no mappings, such as EIE.

    Notes
    -----
    `hw.mapper.search` searches one problem with energies of your own, and all mappings of it if they are few.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.search("digits", "tpu_v1", "energy")
    >>> list(found.mappings)[:2], found.energy <= hw.search("digits", "tpu_v1", "delay").energy
    (['conv1', 'conv2'], True)
    """
    if isinstance(machine, Accelerator):
        chip, voltage = machine, None
    else:
        own = machine_of("search", machine)
        chip, voltage = own.accelerator, own.table.get("voltage")
    if chip.cost is not mapped_cost:
        raise Unsupported(f"search: {chip.name} has no mappings to search: its model counts nonzeros or streams")
    check_choice("search", "objective", objective, ("edp", "energy", "delay"))
    batch, budget = check_count("search", "batch", batch), check_count("search", "budget", budget)
    if budget > 10**9:
        raise WrongValue(f"search: budget is {shown(budget)}, expected at most 10^9")
    effort = Effort(objective, WALKS, -(-budget // WALKS), as_int(seed_from("search", seed, rng), "search: seed", 0))
    text = next(iter(chip.formats)) if format is None else format
    check_choice("search", "format", text, chip.formats)
    net = as_network(network, input_shape)
    layers: list[Layer] = []
    mappings: dict[str, Mapping] = {}
    known: dict[Any, tuple[Layer, Mapping]] = {}
    problems = list(net.problems(batch))
    step = Steps(len(problems), progress, "search")
    for loops in problems:
        step(loops.name)
        plain = replace(loops, name="")
        if plain not in known:
            known[plain] = mapped_layer(chip, plain, text, {}, effort)[:2]
        layer, mapping = known[plain]
        layers.append(replace(at_voltage(chip, [layer], voltage)[0][0], name=loops.name))
        mappings[loops.name] = mapping
    step.finish()
    if not layers:
        raise WrongValue(f"search: {net.name} has no layer with a product")
    return MappedNetwork(chip.name, net.name, text, objective, batch, chip.clock, layers, mappings)
