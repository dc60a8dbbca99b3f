"""An accelerator: its stores from the outermost in, the loops that may spread over its multipliers, its clock.

A machine of the literature is one value of one class. `Store` is a level of `hw.mapper.Arch`, in bytes
instead of words, so that one description serves every number format. It includes the loops that the machine may run
at that level: its dataflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.errors import Unsupported, WrongType, WrongValue, shown
from ...base.lazy import renamed
from ...base.notebooks.shown import Facts
from ...base.values import as_list, check_choice, check_count, check_fields, check_number
from ..network.lookup import as_network
from ..network.loops import Loops
from ..silicon.gate_costs import PROCESSES
from .densities import DENSITIES
from .energies import dram_bit, value_bits
from .inmemory import ComputeInMemory
from .report import AcceleratorReport, Layer

ALL = "NKCPQRS"


@dataclass(frozen=True)
class Store:
    """A memory, `count` times on the chip; without tensors (``keeps=""``) it is only a fan-out.

    Attributes
    ----------
    name : str
    size : int, dict of str to int, or None
        Bytes of one, for all tensors together or per tensor; None: unlimited.
    pj : float
        Energy per bit read or written.
    keeps : str
        Letters of the tensors that it holds: W, I, O.
    count : int
    over : str
        Loops that may spread over the instances of the next store; the first is rounded up to fill them evenly.
    loops : str
        Loops in time that it may run.
    wide : str
        Tensors stored as sums, in the width of the accumulator.
    bandwidth : float or None
        Bytes/s, reads and writes together.
    part : str
        Part of the energy that it counts as, instead of weights, activations or accumulators by tensor.
    wire : float
        Energy per bit sent to or from one of the next stores, or the multipliers.
    trunk : float
        Energy per bit that leaves or enters this store, however many of the next stores it reaches.
    ports : int
        Ports of a crossbar to the next stores, 0 for other networks.
    link_bits : int or None
        Bits per cycle of the network below an instance, of one port for a crossbar.
    coded : float
        For DRAM: words per nonzero input or output, if zeros are left out; 0: zeros are stored.
    read : float or None
        Energy per bit read, if it differs: a register whose output does not change costs nothing.
    masked : str
        Tensors that are stored without their zeros, with a mask of one bit per value.
    idle : str
        Tensors that are neither read nor written if a zero stops the multiplier.
    """

    name: str
    size: int | Mapping[str, int] | None
    pj: float
    keeps: str = "WIO"
    count: int = 1
    over: str = ""
    loops: str = ALL
    wide: str = ""
    bandwidth: float | None = None
    part: str = ""
    wire: float = 0.0
    trunk: float = 0.0
    ports: int = 0
    link_bits: int | None = None
    coded: float = 0.0
    read: float | None = None
    masked: str = ""
    idle: str = ""


@dataclass(frozen=True, repr=False)
class Accelerator(Facts):
    """A model of a published accelerator.

    Attributes
    ----------
    name, title, source : str
    year : int or None
    process : str
    clock : float
        Hz.
    formats : mapping of str to int
        Supported number formats, with the multiply-adds per cycle in each. The first is the default.
    cost : callable
        ``cost(accelerator, loops, format, zeros)`` returns a `Layer`: by the mapper, or by a model of sparse hardware.
    stores : callable
        ``stores(format)`` returns its memories, for the mapper.
    accumulator_bits : int
    vector : int
        Products that a tree adds before the accumulator.
    resident : str
        Memory that keeps the inputs and outputs of a layer if both fit. DRAM then moves only weights.
    operations : int or None
        Operations per cycle at the peak, if not two per multiply-add.
    watts : float or None
        Published power in operation.
    mac_pj : float or None
        Energy of a multiply-add, if not that of `hw.mac`.
    gated : str
        Tensors whose zeros stop the multipliers. The arithmetic of those multiply-adds costs nothing.
    instruction_pj : float
        Energy of fetching and decoding instructions, per multiply-add.
    still : str
        Tensor that is stationary, at every level, while loops run that do not move it.
    winograd : bool
        Whether 3 x 3 filters of stride 1 run as F(2 x 2, 3 x 3).
    operand_pj : float
        Energy per bit of an input or weight that reaches a multiplier without a local memory. The multiplier's register
        is then written or read for each multiply-add.
    holds : float or None
        Bytes of weights that one chip holds, if there is no DRAM.
    chips : int
    sizes : mapping
        Named sizes of the machine's file.
    skipped : str
        Tensors whose zeros cost no cycles.
    cim : ComputeInMemory or None
        Arrays that multiply in memory, in place of digital multipliers.
    clock_tree, control : float
        Energy of the clock tree and of control, relative to the energy on chip of all other parts.
    leakage : float
        W, at the usual voltage.
    waits : str
        Resource that the multipliers wait for.
    notes : tuple of str
        Assumptions and omissions of the model.
    """

    name: str
    title: str
    source: str
    year: int | None
    process: str
    clock: float
    formats: Mapping[str, int]
    cost: Callable[[Accelerator, Loops, str, Mapping[str, float]], Layer]
    stores: Callable[[str], Sequence[Store]] = lambda _: ()
    accumulator_bits: int = 32
    vector: int = 1
    resident: str = ""
    operations: int | None = None
    watts: float | None = None
    mac_pj: float | None = None
    gated: str = ""
    instruction_pj: float = 0.0
    still: str = ""
    operand_pj: float = 0.0
    winograd: bool = False
    holds: float | None = None
    chips: int = 1
    sizes: Mapping[str, Any] = field(default_factory=dict)
    skipped: str = ""
    cim: ComputeInMemory | None = None
    clock_tree: float = 0.0
    control: float = 0.0
    leakage: float = 0.0
    waits: str = "DRAM"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.formats, Mapping) or not self.formats:
            raise WrongType(
                f"Accelerator: formats is {shown(self.formats)}, expected {{format: multiply-adds a cycle}}"
            )
        counts = {
            name: check_count("Accelerator", f"formats[{shown(name)}]", each) for name, each in self.formats.items()
        }
        object.__setattr__(self, "formats", counts)
        for name in ("cost", "stores"):
            if not callable(getattr(self, name)):
                raise WrongType(f"Accelerator: {name} is {shown(getattr(self, name))}, expected a callable")
        for name in ("clock", "watts", "mac_pj", "instruction_pj", "operand_pj", "holds", "clock_tree", "control",
                     "leakage"):  # fmt: skip
            if (value := getattr(self, name)) is not None:
                closed = name not in ("clock", "watts", "holds")
                object.__setattr__(self, name, check_number("Accelerator", name, value, closed=closed))
        object.__setattr__(self, "notes", tuple(as_list(self.notes, "Accelerator: notes", "texts")))

    def peak(self, format: str | None = None) -> float:
        """Return the peak operations/s, two per multiply-add.

        Parameters
        ----------
        format : str, optional

        Returns
        -------
        float

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> hw.accelerators.tpu_v1().peak() / 1e12
        91.7504
        """
        text = self._format(format)
        if self.operations is not None and text == next(iter(self.formats)):
            return self.operations * self.clock
        return 2 * self.formats[text] * self.clock

    def _shares(self, layer: str, shares: Mapping[str, float]) -> dict[str, float]:
        function = f"{self.name}.report"
        return {tensor: check_number(function, f"zeros[{shown(layer)}][{shown(tensor)}]", share, high=1.0, closed=True)
                for tensor, share in shares.items()}  # fmt: skip

    @renamed(model="network")
    def report(
        self,
        network: object,
        format: str | None = None,
        batch: int = 1,
        *,
        input_shape: Sequence[int] | None = None,
        zeros: Mapping[str, Mapping[str, float]] | None = None,
        layers: Sequence[str] | None = None,
        voltage: float | None = None,
        dram: str | float | None = None,
    ) -> AcceleratorReport:
        """Compute the seconds, joules by part, utilisation and DRAM bytes of an inference.

        Parameters
        ----------
        network : Network, str, path, torch.nn.Module or sequence of layers
            As in `hw.count`.
        format : str, optional
            A number format that the machine supports.
        batch : int, optional
        input_shape : sequence of int, optional
            Shape of one sample, without a batch.
        zeros : dict of str to dict, optional
            Per layer name, the shares of ``W``, ``I`` and ``O`` that are nonzero, for machines that exploit zeros.
            Default: those measured on a pruned network if the package has them, otherwise no zeros.
        layers : sequence of str, optional
            Names of the layers to include.
        voltage : float, optional
            V. Energy on chip scales with its square; DRAM, clock and mapping do not change. Default: that of the
            process in `hw.mac`, 0.8 V at 16 nm and 0.7 V at 5 nm.
        dram : str or float, optional
            A kind of DRAM, ``"hbm2"``, ``"hbm2e"``, ``"gddr5"``, ``"gddr6"``, ``"gddr6x"``, ``"lpddr5"``, ``"lpddr4"``,
            ``"lpddr"``, ``"ddr3"``, or pJ per bit. Default: that of the machine, or the 20 pJ of Horowitz' table.

        Returns
        -------
        AcceleratorReport

        Raises
        ------
        ValueError
            The format is not supported, shapes do not match, a layer or a kind of DRAM is unknown, the batch is not a
            positive integer, or the voltage is not above 0 and below 10 V.
        NotImplementedError
            The machine cannot run a layer, or cannot hold the weights.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> layer = hw.layers.Linear(256, 256, bias=False)
        >>> found = hw.accelerators.tpu_v1().report(layer, input_shape=(256,), batch=200)
        >>> found.bound, found.dram_bytes
        ('DRAM', 65536.0)
        """
        text = self._format(format)
        batch = check_count(f"{self.name}.report", "batch", batch)
        network = as_network(network, input_shape)
        self._hold(network.name, network.params, text)
        known = DENSITIES.get(network.name, {}) if zeros is None else zeros
        if not isinstance(known, Mapping) or not all(isinstance(shares, Mapping) for shares in known.values()):
            raise WrongType(f"{self.name}.report: zeros is {shown(zeros)}, expected {{layer: {{tensor: share}}}}")
        known = {layer: self._shares(layer, shares) for layer, shares in known.items()}
        problems = network.problems(batch)
        if layers is not None:
            layers = as_list(layers, f"{self.name}.report: layers", "names of layers")
            missing = [name for name in layers if name not in [loops.name for loops in problems]]
            if missing:
                why = f"{network.name} has no such layer with a product"
                raise WrongValue(f"{self.name}.report: layers has {shown(missing[0])}, {why}")
            problems = tuple(loops for loops in problems if loops.name in layers)
        if not problems:
            raise WrongValue(f"report: {network.name} has no layer with a product")
        found = [self.cost(self, loops, text, known.get(loops.name, {})) for loops in problems]
        found, usual = at_voltage(self, found, voltage)
        if dram is not None:
            bit = dram_bit(f"{self.name}.report", dram)
            found = [_scaled(layer, 1.0, bit * layer.dram_bits / (layer.energy.get("DRAM") or 1.0)) for layer in found]
        peak, notes = self.formats[text], self.notes
        return AcceleratorReport(
            self.name, network.name, text, batch, self.clock, peak, found, notes, self.waits, usual
        )

    def _hold(self, network: str, params: int, format: str) -> None:
        if self.holds is None:
            return
        needed = -(-params * value_bits(format) // int(8 * self.holds))
        if needed > self.chips:
            raise Unsupported(
                f"{self.name}: the weights of {network} in {format} need {needed} chips of {self.holds / 1e6:.4g} MB "
                f"and there {'is 1' if self.chips == 1 else f'are {self.chips}'}: {self.name}(chips={needed})"
            )

    def _format(self, format: str | None) -> str:
        if format is None:
            return next(iter(self.formats))
        check_choice(self.name, "format", format, self.formats)
        return format

    def __repr__(self) -> str:
        peaks = ", ".join(f"{self.peak(one) / 1e12:.4g}e12 {one}" for one in self.formats)
        return f"<Accelerator {self.name}: {self.title}; {peaks} operations/s>"


def at_voltage(
    machine: Accelerator, layers: Sequence[Layer], voltage: float | None
) -> tuple[list[Layer], float | None]:
    """Return layers with the clock tree, control and leakage, at a voltage, and the voltage.

    Parameters
    ----------
    machine : Accelerator
    layers : sequence of Layer
        As `cost` returns them.
    voltage : float or None
        V. None: the usual voltage of the process.

    Returns
    -------
    (list of Layer, float or None)
    """
    found = [_completed(machine, layer) for layer in layers]
    usual = PROCESSES[machine.process][1] if machine.process in PROCESSES else None
    if voltage is None:
        return found, usual
    volts = check_number(f"{machine.name}.report", "voltage", voltage, high=10.0)
    if usual is None:
        why = f"the usual voltage of process {shown(machine.process)} is not known"
        raise WrongValue(f"{machine.name}.report: voltage is {shown(voltage)}, but {why}")
    return [_scaled(layer, (volts / usual) ** 2, 1.0) for layer in found], volts


def _completed(machine: Accelerator, layer: Layer) -> Layer:
    """Add the clock tree, control and leakage to a layer."""
    if not (machine.clock_tree or machine.control or machine.leakage):
        return layer
    chip = math.fsum(pj for part, pj in layer.energy.items() if part != "DRAM")
    leaked = machine.leakage * layer.cycles / machine.clock * 1e12
    return replace(layer, energy={**layer.energy, "clock": machine.clock_tree * chip, "control": machine.control * chip,
                                  "leakage": leaked})  # fmt: skip


def _scaled(layer: Layer, chip: float, dram: float) -> Layer:
    """Scale the on-chip and DRAM parts of a layer."""
    energy = {part: pj * (dram if part == "DRAM" else chip) for part, pj in layer.energy.items()}
    stores = {name: pj * (dram if name.startswith("DRAM ") else chip) for name, pj in layer.stores.items()}
    return replace(layer, energy=energy, stores=stores)
