"""Sources of one chip's gain over another: number format, instruction, sparsity, process, area.

The energies of instructions are those of Dally's lectures (45 nm estimates); the printed overheads are kept as printed,
next to those computed from 30 pJ of fetch, decode and operand fetch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...base.errors import WrongValue, shown
from ...base.notebooks.shown import Facts
from ...base.values import check_choice, check_flag, check_number
from ..chips.chip import Device, dtype_bits, plain_dtype
from ..chips.database import device
from .mac import mac


@dataclass(frozen=True)
class Instruction:
    """An instruction of a GPU.

    Attributes
    ----------
    name, operands : str
    operations : int
        A multiply-add is two.
    math_pj : float
        Energy of its arithmetic, 45 nm.
    printed_percent : float
        Overhead as its source prints it.
    note : str
    """

    name: str
    operands: str
    operations: int
    math_pj: float
    printed_percent: float
    note: str = ""


INSTRUCTIONS = {
    one.name: one
    for one in (
        Instruction("hfma", "fp16 x fp16 + fp16", 2, 1.5, 2000, "1.1 pJ for the product, 0.4 pJ for the sum"),
        Instruction("hdp4a", "dot product of four fp16", 8, 6.0, 500, "four times hfma's arithmetic"),
        Instruction("hmma", "4 x 4 x 4 fp16 into fp32", 128, 110.0, 22,
                    "the same source also says: reduced to 10 to 20 % of the original"),
        Instruction("imma", "integer matrix product", 1024, 160.0, 16, "the number of operations is not confirmed"),
    )
}  # fmt: skip

# Single-chip inference, 10^12 operations/s, as on the chart of W. J. Dally's lectures; its figures are rounded, and a
# B200 in a server of eight has 18,000.
CHART = (
    ("k20x", 2012, 3.94, "fp32"), ("m40", 2015, 6.84, "fp32"), ("p100-sxm2", 2016, 21.20, "fp16"),
    ("v100-sxm2", 2017, 125.0, "fp16"), ("quadro-rtx8000", 2018, 261.0, "int8"),
    ("a100-sxm-40gb", 2020, 1248.0, "int8"), ("h100-sxm", 2022, 4000.0, "fp8"), ("b200", 2024, 20000.0, "fp4"),
)  # fmt: skip


@dataclass(frozen=True)
class Overhead(Facts):
    """The result of `overhead`: the percentage computed from `overhead_pj`, and the printed one.

    Attributes
    ----------
    instruction : str
    percent : float
        Overhead relative to the energy of the arithmetic, or to the total.
    relative_to : {"math", "total"}
    overhead_pj, math_pj : float
    operations : int
    pj_per_operation : float
    printed_percent : float
    printed_needs_pj : float
        The overhead over the arithmetic that gives the printed percentage.
    note : str
    """

    instruction: str
    percent: float
    relative_to: str
    overhead_pj: float
    math_pj: float
    operations: int
    pj_per_operation: float
    printed_percent: float
    printed_needs_pj: float
    note: str


def overhead(instruction: str, relative_to: str = "math", overhead_pj: float = 30.0) -> Overhead:
    """Compute the energy of fetching and decoding an instruction relative to its arithmetic.

    Parameters
    ----------
    instruction : {"hfma", "hdp4a", "hmma", "imma"}
    relative_to : {"math", "total"}, optional
        Reference of the percentage.
    overhead_pj : float, optional
        Energy of fetch, decode and operand fetch.

    Returns
    -------
    Overhead
        Computed and printed percentages, which disagree for hmma and imma. 22 % and 16 % are not 30 pJ over their
        arithmetic (27.3 and 18.8 %), but 24.2 and 25.6 pJ over it, or about 31 pJ of the total.

    Raises
    ------
    ValueError
        The instruction or reference is unknown, or the energy is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> [round(hw.overhead(name).percent, 1) for name in ("hfma", "hdp4a", "hmma", "imma")]
    [2000.0, 500.0, 27.3, 18.8]
    >>> hw.overhead("hmma").printed_percent
    22
    """
    name = instruction.strip().lower() if isinstance(instruction, str) else ""
    if name not in INSTRUCTIONS:
        raise WrongValue(f"overhead: instruction is {shown(instruction)}, expected one of {', '.join(INSTRUCTIONS)}")
    check_choice("overhead", "relative_to", relative_to, ("math", "total"))
    overhead_pj = check_number("overhead", "overhead_pj", overhead_pj)
    one = INSTRUCTIONS[name]
    total = one.math_pj + overhead_pj
    base = one.math_pj if relative_to == "math" else total
    return Overhead(
        name,
        100 * overhead_pj / base,
        relative_to,
        overhead_pj,
        one.math_pj,
        one.operations,
        total / one.operations,
        one.printed_percent,
        one.math_pj * one.printed_percent / 100,
        one.note,
    )


def series() -> list[dict[str, Any]]:
    """Return the curve of single-chip inference rates, with the gain since its start.

    Returns
    -------
    list of dict
        ``device``, ``year``, ``tops`` (10^12 operations/s as printed on the chart; sparse rates from the A100 on),
        ``dtype``, ``gain`` over the first, ``yearly`` (growth per year since the first: 2 is doubling).

    Notes
    -----
    The gain to the A100, with its 2:4 sparsity, is 317 times in eight years: a factor of two per year.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> a100 = next(row for row in hw.series() if row["device"] == "a100-sxm-40gb")
    >>> round(a100["gain"], 2), round(a100["yearly"], 2)
    (316.75, 2.05)
    """
    _, begin, first, _ = CHART[0]
    rows = []
    for name, year, tops, dtype in CHART:
        gain = tops / first
        yearly = gain ** (1 / (year - begin)) if year > begin else None
        rows.append({"device": name, "year": year, "tops": tops, "dtype": dtype, "gain": gain, "yearly": yearly})
    return rows


def explain_gain(
    a: str | Device,
    b: str | Device,
    a_dtype: str | None = None,
    b_dtype: str | None = None,
    sparse: bool | None = None,
) -> dict[str, Any]:
    """Split the gain of one chip's peak rate over another's into factors that multiply to the gain.

    Parameters
    ----------
    a, b : str or Device
        The older and the newer chip.
    a_dtype, b_dtype : str, optional
        The types to compare. Default: those of `series` for its chips, otherwise each chip's fastest type.
    sparse : bool, optional
        Whether b's rate is the sparse one. Default: if it has one.

    Returns
    -------
    dict
        ``a``, ``b``, ``gain``, and ``factors``:

        - ``sparsity``: sparse over dense rate.
        - ``number``: b's rate of `b_dtype` over that of the widest type of the matrix unit.
        - ``instruction``: that rate over b's fp32 vector rate.
        - ``area``: ratio of the die areas.
        - ``process``: the gain of b's fp32 vector rate beyond the area, from density and clock.
        - ``base``: a's fp32 rate over its rate of `a_dtype`.

        If a die area is unknown, ``process and area`` is one factor instead of two. ``area`` next to `factors` is the
        ratio of the dies or None, and ``note`` names the chip without an area.

        ``splits`` has two splits, ``{split: {factor: {value, printed, counts}}}``. ``rates`` is the split of `factors`:
        ratios of peak rates, whose product is the gain. ``energy`` is the split of Dally's lectures: energy per
        operation. Its factors have the same names but count other things, and they do not multiply to the gain. Its
        ``printed`` values are those of the lectures. Its ``value`` is computed from the energies that the lectures
        print and that `mac` uses, or is None.

    Raises
    ------
    ValueError
        A device does not support the types.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.explain_gain("k20x", "a100-sxm-40gb")
    >>> round(found["gain"], 2), {name: round(factor, 2) for name, factor in found["factors"].items()}
    (316.75, {'sparsity': 2.0, 'number': 4.0, 'instruction': 8.0, 'area': 1.47, 'process': 3.36, 'base': 1.0})
    """
    old, new = device(a), device(b)
    chart = {name: dtype for name, _, _, dtype in CHART}
    first = plain_dtype(a_dtype if a_dtype is not None else chart.get(old.name) or _fastest(old))
    second = plain_dtype(b_dtype if b_dtype is not None else chart.get(new.name) or _fastest(new))
    take_sparse = bool(new.sparse_rates.get(second)) if sparse is None else check_flag("explain_gain", "sparse", sparse)
    rate = new.peak(second, sparse=take_sparse)
    dense = new.peak(second)
    gain = rate / old.peak(first)
    wide = next((one for one in ("tf32", "fp16", "bf16") if one in new.dense_rates), "fp32")
    if dtype_bits(second) >= dtype_bits(wide):
        wide = second
    area = new.die_mm2 / old.die_mm2 if new.die_mm2 and old.die_mm2 else None
    vector = new.peak("fp32") / old.peak("fp32")
    missing = [one.name for one in (old, new) if not one.die_mm2]
    note = f"process and area are one factor: the die area of {' and '.join(missing)} is not known" if missing else ""
    factors = {
        "sparsity": rate / dense,
        "number": dense / new.peak(wide),
        "instruction": new.peak(wide) / new.peak("fp32"),
        **({"process and area": vector} if area is None else {"area": area, "process": vector / area}),
        "base": old.peak("fp32") / old.peak(first),
    }
    rates = {
        name: {"value": value, "printed": None, "counts": RATE_COUNTS[name].format(a=old.name, b=new.name, wide=wide,
               first=first, second=second)} for name, value in factors.items()
    }  # fmt: skip
    splits = {"rates": rates, "energy": _by_energy(rate / dense, area)}
    return {"a": old.name, "b": new.name, "a_dtype": first, "b_dtype": second, "gain": gain, "factors": factors,
            "area": area, "note": note, "splits": splits}  # fmt: skip


RATE_COUNTS = {
    "sparsity": "sparse over dense rate of {b} in {second}",
    "number": "rate of {b} in {second} over that in {wide}, both in its matrix unit",
    "instruction": "rate of {b}'s matrix unit in {wide} over its fp32 vector rate: lanes that an instruction drives",
    "area": "area of the dies",
    "process": "fp32 vector rate, {b} over {a}, beyond the area of the dies: density and clock",
    "process and area": "fp32 vector rate, {b} over {a}",
    "base": "fp32 rate of {a} over its rate in {first}",
}


def _by_energy(sparsity: float, area: float | None) -> dict[str, dict[str, Any]]:
    """Return the split of Dally's lectures, of which one gives the process a factor of 1.5 to 2."""
    number = mac("fp32", "fp32", 32).energy_pj / mac("int8", "int8").energy_pj
    simple, matrix = overhead("hfma").pj_per_operation, overhead("hmma").pj_per_operation
    return {
        "number": {"value": number, "printed": "16 to 32", "counts": "energy of a multiply-add, fp32 over int8"},
        "instruction": {"value": simple / matrix, "printed": "12.5",
                        "counts": "energy of an fp16 operation with 30 pJ to fetch and decode, hfma over hmma"},
        "process": {"value": None, "printed": "2.5 to 3, or 1.5 to 2",
                    "counts": "energy of one circuit in the older process over the newer"},
        "sparsity": {"value": sparsity, "printed": "2", "counts": "multiply-adds that are skipped"},
        "die": {"value": area, "printed": "2", "counts": "area of the dies"},
    }  # fmt: skip


def _fastest(chip: Device) -> str:
    if not chip.dense_rates:
        raise WrongValue(f"{chip.name}: no rate is known")
    return max(chip.dense_rates, key=lambda dtype: chip.dense_rates[dtype])
