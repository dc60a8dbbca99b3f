"""An accelerator: its stores from the outermost in, what may spread over its multipliers, its clock.

A machine of the literature is one value of one class. `Store` is a level of `hw.Arch` in bytes instead of words, so
that one description serves every number format, with the loops that the machine may run there: that is a dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.values import as_list, check_count, check_fields, check_number, shown
from ..network.lookup import as_network
from ..network.loops import Loops
from ..silicon.gate_costs import PROCESSES
from .densities import DENSITIES
from .energies import dram_bit, value_bits
from .report import AcceleratorReport, Layer

__all__ = ["Accelerator"]

ALL = "NKCPQRS"


@dataclass(frozen=True)
class Store:
    """A memory, `count` times on the chip; without tensors (``keeps=""``) a fan-out alone.

    Attributes
    ----------
    name : str
    size : int, dict of str to int, or None
        Bytes of one, for all tensors or for each its own; None: unlimited.
    pj : float
        Energy of a bit that is read or written.
    keeps : str
        Letters of the tensors that it holds: W, I, O.
    count : int
    over : str
        Loops that may spread over the `count` of the next store; the first is rounded up to fill it evenly.
    loops : str
        Loops in time that it may run.
    wide : str
        Tensors that lie there as sums, in the width of the accumulator.
    bandwidth : float or None
        Bytes/s, reads and writes together.
    part : str
        Where its energy is listed, in place of weights, activations or accumulators by tensor.
    wire : float
        Energy of a bit that goes to or comes from one of the next stores, or of the multipliers.
    coded : float
        Of DRAM: words for each input or output that is not zero, where zeros are left out; 0: they are stored.
    read : float or None
        Energy of a bit that is read, where it differs: a register whose output does not change costs nothing.
    masked : str
        Tensors that are stored without their zeros, beside a mask of one bit a value.
    idle : str
        Tensors that are neither read nor written where a zero stops the multiplier.
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
    coded: float = 0.0
    read: float | None = None
    masked: str = ""
    idle: str = ""


@dataclass(frozen=True, repr=False)
class Accelerator:
    """A machine of the literature.

    Attributes
    ----------
    name, title, source : str
    year : int
    process : str
    clock : float
        Hz.
    formats : dict of str to int
        Number formats that it computes in, and the multiply-adds a cycle in each; the first is the usual one.
    cost : callable
        ``cost(accelerator, loops, format, zeros)`` gives a `Layer`: the mapper's, or that of a machine for zeros.
    stores : callable
        ``stores(format)``: its memories, for the mapper.
    accumulator_bits : int
    vector : int
        Products that a tree adds before they meet an accumulator.
    resident : str
        The store where inputs and outputs of a layer stay if both fit: DRAM moves weights alone then.
    operations : int or None
        Operations a cycle at the peak where they are not two for each multiply-add.
    watts : float or None
        Published, while it runs.
    mac_pj : float or None
        Energy of a multiply-add where it is not that of `hw.mac`.
    gated : str
        Tensors whose zeros stop the multipliers: the arithmetic of those multiply-adds costs nothing.
    instruction_pj : float
        Energy of fetching and decoding instructions, for each multiply-add.
    still : str
        A tensor that rests while all loops run that do not move it, at every level.
    winograd : bool
        Whether 3 x 3 filters of stride 1 run as F(2 x 2, 3 x 3).
    operand_pj : float
        Energy of a bit of an input or weight that reaches a multiplier past no memory beside it: its register there is
        written or read for each multiply-add.
    holds : float or None
        Bytes of weights that one chip holds, where there is no DRAM.
    chips : int
    waits : str
        What the multipliers wait for.
    notes : tuple of str
        What the model assumes, and what it leaves out.
    """

    name: str
    title: str
    source: str
    year: int
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
    waits: str = "DRAM"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.formats, Mapping) or not self.formats:
            raise TypeError(f"Accelerator: formats is {shown(self.formats)}, wanted {{format: multiply-adds a cycle}}")
        for name, each in self.formats.items():
            check_count("Accelerator", f"formats[{shown(name)}]", each)
        for name in ("cost", "stores"):
            if not callable(getattr(self, name)):
                raise TypeError(f"Accelerator: {name} is {shown(getattr(self, name))}, wanted a callable")
        for name in ("clock", "watts", "mac_pj", "instruction_pj", "operand_pj", "holds"):
            if (value := getattr(self, name)) is not None:
                closed = name in ("mac_pj", "instruction_pj", "operand_pj")
                object.__setattr__(self, name, check_number("Accelerator", name, value, closed=closed))
        object.__setattr__(self, "notes", tuple(as_list(self.notes, "Accelerator: notes", "texts")))

    def peak(self, format: str | None = None) -> float:
        """Operations/s at most, one multiply-add being two.

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

    def report(
        self,
        model: Any,
        format: str | None = None,
        batch: int = 1,
        *,
        input_shape: Sequence[int] | None = None,
        zeros: Mapping[str, Mapping[str, float]] | None = None,
        layers: Sequence[str] | None = None,
        voltage: float | None = None,
        dram: str | float | None = None,
    ) -> AcceleratorReport:
        """Say what an inference takes: seconds, joules by part, utilisation, bytes of DRAM.

        Parameters
        ----------
        model : Network, str, path, torch.nn.Module or sequence of layers
            As for `hw.count`.
        format : str, optional
            A number format that the machine computes in.
        batch : int, optional
        input_shape : sequence of int, optional
            Of one sample, without a batch.
        zeros : dict of str to dict, optional
            Of each layer by name the shares of ``W``, ``I`` and ``O`` that are not zero, for machines that make use of
            zeros. Default: those measured on a pruned network where the package has them, else none is zero.
        layers : sequence of str, optional
            Only these, by name.
        voltage : float, optional
            V. Energy on chip scales with its square; DRAM, clock and mapping stay. Default: that of the process in
            `hw.mac`, 0.8 V at 16 nm and 0.7 V at 5 nm.
        dram : str or float, optional
            A kind of DRAM, ``"hbm2"``, ``"hbm2e"``, ``"gddr5"``, ``"gddr6"``, ``"gddr6x"``, ``"lpddr4"``, ``"lpddr"``,
            ``"ddr3"``, or pJ a bit. Default: that of the machine; where it names none, the 20 pJ of Horowitz' table.

        Returns
        -------
        AcceleratorReport

        Raises
        ------
        ValueError
            A format that it lacks, shapes that do not fit, no such layer, a batch that is no positive integer, a
            voltage that is not above 0 and below 10 V, an unknown kind of DRAM.
        NotImplementedError
            A layer that the machine cannot run, or weights that it cannot hold.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> found = hw.accelerators.tpu_v1().report(hw.Linear(256, 256, bias=False), input_shape=(256,), batch=200)
        >>> found.bound, found.dram_bytes
        ('DRAM', 65536.0)
        """
        text = self._format(format)
        check_count(f"{self.name}.report", "batch", batch)
        network = as_network(model, input_shape)
        self._hold(network.name, network.params, text)
        known = DENSITIES.get(network.name, {}) if zeros is None else zeros
        if not isinstance(known, Mapping) or not all(isinstance(shares, Mapping) for shares in known.values()):
            raise TypeError(f"{self.name}.report: zeros is {shown(zeros)}, wanted {{layer: {{tensor: share}}}}")
        known = {layer: self._shares(layer, shares) for layer, shares in known.items()}
        problems = network.problems(batch)
        if layers is not None:
            layers = as_list(layers, f"{self.name}.report: layers", "names of layers")
            missing = [name for name in layers if name not in [loops.name for loops in problems]]
            if missing:
                why = f"{network.name} has no such layer with a product"
                raise ValueError(f"{self.name}.report: layers has {shown(missing[0])}, {why}")
            problems = tuple(loops for loops in problems if loops.name in layers)
        if not problems:
            raise ValueError(f"report: {network.name} has no layer with a product")
        found = [self.cost(self, loops, text, known.get(loops.name, {})) for loops in problems]
        usual = PROCESSES[self.process][1] if self.process in PROCESSES else None
        if voltage is not None:
            volts = check_number(f"{self.name}.report", "voltage", voltage, high=10.0)
            if usual is None:
                why = f"the usual voltage of process {shown(self.process)} is not known"
                raise ValueError(f"{self.name}.report: voltage is {shown(voltage)}, but {why}")
            found, usual = [_scaled(layer, (volts / usual) ** 2, 1.0) for layer in found], volts
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
            raise NotImplementedError(
                f"{self.name}: the weights of {network} in {format} need {needed} chips of {self.holds / 1e6:.4g} MB "
                f"and there {'is 1' if self.chips == 1 else f'are {self.chips}'}: {self.name}(chips={needed})"
            )

    def _format(self, format: str | None) -> str:
        if format is None:
            return next(iter(self.formats))
        if not isinstance(format, str) or format not in self.formats:
            raise ValueError(f"{self.name}: format is {shown(format)}, wanted one of {', '.join(self.formats)}")
        return format

    def __repr__(self) -> str:
        peaks = ", ".join(f"{self.peak(one) / 1e12:.4g}e12 {one}" for one in self.formats)
        return f"<Accelerator {self.name}: {self.title}; {peaks} operations/s>"


def _scaled(layer: Layer, chip: float, dram: float) -> Layer:
    """Scale what a layer takes on chip and in DRAM."""
    energy = {part: pj * (dram if part == "DRAM" else chip) for part, pj in layer.energy.items()}
    stores = {name: pj * (dram if name.startswith("DRAM ") else chip) for name, pj in layer.stores.items()}
    return replace(layer, energy=energy, stores=stores)
