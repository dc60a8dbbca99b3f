"""A multiply-add in silicon for a pair of formats: energy and area by part.

A unit of `vector` lanes multiplies pairs, adds them in a tree, scales the sum of a group if the formats say so and adds
to an accumulator. Each part is charged to one lane: shared parts are divided by the number of lanes. For fixed,
interpolated and assumed numbers see gate_costs.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...base.errors import WrongValue
from ...base.notebooks.shown import Facts
from ...base.values import check_count
from ...formats import Format
from .gate_costs import ASSUMPTIONS, Cost, float_add, float_multiply, int_add, int_multiply, mux, scaled, table_read
from .operands import Operand, log_range, operand

PARTS = (
    "multiplier", "alignment", "adder tree", "scale product", "table look-up", "log to linear", "accumulator",
    "selection",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class MacCost(Facts):
    """Energy and area of one multiply-add, including one lane's share of shared parts.

    Attributes
    ----------
    weights, activations : str
    accumulator_bits, vector : int
    process : str
    energy : dict of str to float
        pJ by part: multiplier, alignment, adder tree, scale product, table look-up, log to linear, accumulator,
        selection.
    area : dict of str to float
        um^2 by part.
    density : float
        Share of nonzero weights. Energy is per weight of the dense array, area per lane.
    assumptions : tuple of str
    """

    weights: str
    activations: str
    accumulator_bits: int
    vector: int
    process: str
    energy: dict[str, float]
    area: dict[str, float]
    density: float = 1.0
    assumptions: tuple[str, ...] = ASSUMPTIONS

    @property
    def energy_pj(self) -> float:
        """Return the energy of all parts, in pJ per multiply-add of the dense matmul."""
        return math.fsum(self.energy.values())

    @property
    def area_um2(self) -> float:
        """Return the area of all parts, in um^2 per lane."""
        return math.fsum(self.area.values())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("weights", "activations", "accumulator_bits", "vector", "process", "energy_pj", "area_um2", "density")
        return {**{key: getattr(self, key) for key in keys}, "energy": self.energy, "area": self.area}

    def __repr__(self) -> str:
        parts = ", ".join(f"{part} {value:.3g}" for part, value in self.energy.items() if value)
        return (
            f"<{self.weights} x {self.activations} at {self.process}: {self.energy_pj:.4g} pJ, {self.area_um2:.4g} um2 "
            f"(pJ: {parts})>"
        )


def mac(
    weight_format: str | Format,
    activation_format: str | Format,
    accumulator_bits: int | None = None,
    vector: int = 16,
    process: str = "45nm",
    voltage: float | None = None,
    log_sharing: int = 1,
) -> MacCost:
    """Compute the energy and area of a multiply-add, by part.

    Parameters
    ----------
    weight_format, activation_format : Format or str
        Any format of `heterocompute.formats`, or fp32, tf32, fp16, bf16.
    accumulator_bits : int, optional
        Width of the integer accumulator, at least that of one product. Default: 24, or for wider products their width
        and 8 bits more, as 24 is for int8. Float sums use fp32 if this is above 16, otherwise fp16.
    vector : int, optional
        Lanes that share an adder tree and an accumulator.
    process : str, optional
        ``"45nm"``, the process of the table, or another to which energy and area are scaled.
    voltage : float, optional
        Supply voltage in volts, if it is not the usual one of the process.
    log_sharing : int, optional
        Number of products of two log numbers that share a conversion. 1: each reads a table. More: the design of
        LNS-Madam. It adds exponents, sorts the products by the remainder of the exponent, sums each remainder and
        converts once per remainder.
        and converts once for each remainder.

    Returns
    -------
    MacCost

    Raises
    ------
    ValueError
        The format or process is unknown, the arithmetic of a family is not stated, a width is not positive, or an
        integer accumulator is narrower than one product.

    Notes
    -----
    - Integers: a multiplier of the two widths, a tree of vector - 1 growing adders, and one addition to the accumulator
      per vector. A zero point is subtracted first; the code then has one bit more.
    - Integer scales (two-level VS-Quant): an M x M product of the two scales if both operands have one, and its product
      with the sum of the group, both once per group. Float scales: the same in float, then a sum in fp32. Exponent
      scales: an 8-bit addition.
    - Floats of at most 11 significand bits, with more than one lane: significands multiply as integers, exponents add,
      and every product is shifted to the largest exponent of the vector or group. An integer tree adds the products,
      and one float addition follows (such a unit: Chen et al., "INT v.s. FP", arXiv 2510.25602). Wider floats, and one
      lane: a float multiplication and a float addition per product.
    - Codebooks: a table read per operand with a codebook, then as fp16.
    - Log numbers: an addition of exponents, a table of 2^(-r/gamma) with gamma entries, and a shift. With an integer
      operand, a product with the entry replaces the addition. Sums are integers. With a float operand: the table, then
      a float multiplication; for gamma 1 an addition of exponents.
    - An integer times a float is a float multiplication with the integer's bits as its significand.
    - N:M sparsity: N/M of the energy of each multiply-add, and the multiplexers that select activations.

    Horowitz, ISSCC 2014; Dai et al., VS-Quant, MLSys 2021, section 6 (the scale product); Zhao et al., LNS-Madam, 2021.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> m = hw.mac("vsq4-g16-s4", "vsq4-g16-s4", accumulator_bits=24, vector=16)
    >>> round(m.energy["scale product"], 4), m.energy_pj < hw.mac("int8", "int8").energy_pj
    (0.0218, True)
    """
    vector = check_count("mac", "vector", vector)
    log_sharing = check_count("mac", "log_sharing", log_sharing)
    process = process.replace(" ", "").lower() if isinstance(process, str) else process
    w, x = operand(weight_format), operand(activation_format)
    product = _product_bits(w, x)
    if accumulator_bits is None:
        accumulator_bits = 24 if product <= 24 else product + 8
    if check_count("mac", "accumulator_bits", accumulator_bits) < product:
        raise WrongValue(
            f"mac: accumulator_bits is {accumulator_bits}, narrower than one product of {weight_format} x "
            f"{activation_format}, which has {product} bits; expected at least {product}"
        )
    kinds = {w.kind, x.kind}
    groups = [one.group for one in (w, x) if one.group]
    lanes = min([vector, *groups])
    aligned = False
    if "float" in kinds or "table" in kinds:
        aligned = lanes > 1 and "log" not in kinds and max(_significands(w, x)) <= 11
        parts, sum_bits = (_aligned_parts if aligned else _float_parts)(w, x, accumulator_bits, lanes)
    elif "log" in kinds:
        parts, sum_bits = _log_parts(w, x, accumulator_bits, lanes, log_sharing)
    else:
        parts, sum_bits = _int_parts(w, x, accumulator_bits, lanes)
    parts["scale product"] = _scale_part(w, x, sum_bits, aligned)
    if any(one.scale in ("float", "exponent") for one in (w, x)) and "float" not in kinds and "table" not in kinds:
        group = _group(w, x)
        parts["accumulator"] = int_add(sum_bits) * (1 / lanes) + float_add(24) * (1 / group)
    density = 1.0
    for one in (w, x):
        if one.pattern is not None:
            n, m = one.pattern
            density *= n / m
            other = x if one is w else w
            parts["selection"] = parts.get("selection", Cost()) + mux(other.bits, m)
    costs = {part: scaled(parts.get(part, Cost()), process, voltage) for part in PARTS}
    return MacCost(
        str(weight_format),
        str(activation_format),
        accumulator_bits,
        vector,
        process,
        {part: cost.energy * density for part, cost in costs.items()},
        {part: cost.area for part, cost in costs.items()},
        density,
    )


def _product_bits(w: Operand, x: Operand) -> int:
    """Return the bits of a product in an integer accumulator; 0 for floats, and for logs, which are shifted into it."""
    if {w.kind, x.kind} == {"int"}:
        return w.bits + w.zero_point + x.bits + x.zero_point
    if {w.kind, x.kind} == {"int", "log"}:
        other, log = (w, x) if w.kind == "int" else (x, w)
        return other.bits + other.zero_point + (8 if log.gamma > 1 else 0)
    return 0


def _int_parts(w: Operand, x: Operand, accumulator_bits: int, lanes: int) -> tuple[dict[str, Cost], float]:
    widths = [one.bits + one.zero_point for one in (w, x)]
    parts = {"multiplier": int_multiply(*widths)}
    for one in (w, x):
        if one.zero_point:
            parts["multiplier"] += int_add(one.bits)
    product = sum(widths)
    parts["adder tree"], grown = _tree(product, lanes)
    parts["accumulator"] = int_add(accumulator_bits) * (1 / lanes)
    return parts, min(grown, accumulator_bits)


def _significands(w: Operand, x: Operand) -> list[int]:
    wide = [11 if one.kind == "log" else one.significand or min(one.bits, 24) for one in (w, x)]
    # Table entries are multiplied in fp16 at least.
    return [max(11, one) for one in wide] if "table" in (w.kind, x.kind) else wide


def _look_up(w: Operand, x: Operand) -> Cost:
    cost = Cost()
    for one in (w, x):
        if one.kind == "table":
            cost += table_read(2**one.bits, 16 * one.dim) * (1 / one.dim)
    return cost


def _aligned_parts(w: Operand, x: Operand, accumulator_bits: int, lanes: int) -> tuple[dict[str, Cost], float]:
    """Return the parts for products shifted to the largest exponent of the lanes and added as integers."""
    wide = _significands(w, x)
    span = w.span + x.span
    exponent = math.ceil(math.log2(span + 1))
    width = min(sum(wide) + span, accumulator_bits)
    # The product's exponent; its comparison, in a tree; its distance from the largest exponent.
    exponents = int_add(exponent) * (2 + (lanes - 1) / lanes)
    tree, grown = _tree(width, lanes)
    bits = 24 if accumulator_bits > 16 else 11
    parts = {
        "multiplier": int_multiply(*wide),
        "table look-up": _look_up(w, x),
        "alignment": exponents + mux(width, min(span, width) + 1),
        "adder tree": tree,
        "accumulator": float_add(bits) * (1 / lanes),
    }
    return parts, grown


def _float_parts(w: Operand, x: Operand, accumulator_bits: int, lanes: int) -> tuple[dict[str, Cost], float]:
    parts = {"table look-up": _look_up(w, x)}
    for one in (w, x):
        if one.kind == "log" and one.gamma > 1:
            parts["log to linear"] = parts.get("log to linear", Cost()) + table_read(one.gamma, 16)
    wide = _significands(w, x)
    parts["multiplier"] = float_multiply(math.sqrt(wide[0] * wide[1]))
    if any(one.kind == "log" and one.gamma == 1 for one in (w, x)):  # a power of two: exponents add
        parts["multiplier"] = int_add(8)
    parts["accumulator"] = float_add(24 if accumulator_bits > 16 else 11)
    return parts, 24 if accumulator_bits > 16 else 11


def _log_parts(
    w: Operand, x: Operand, accumulator_bits: int, lanes: int, sharing: int
) -> tuple[dict[str, Cost], float]:
    logs = [one for one in (w, x) if one.kind == "log"]
    others = [one for one in (w, x) if one.kind != "log"]
    gamma = max(one.gamma for one in logs)
    reach = min(sum(log_range(one) for one in logs), accumulator_bits)
    steps = Cost()
    if others:  # an integer times 2^(-e): by the table's entry, then shifted
        (other,) = others
        multiplier = int_multiply(other.bits + other.zero_point, 8) if gamma > 1 else Cost()
        steps = table_read(gamma, 8) if gamma > 1 else Cost()
    else:  # exponents add
        multiplier = int_add(max(one.bits for one in logs))
        steps = table_read(gamma, accumulator_bits) if gamma > 1 else Cost()
    shift = mux(accumulator_bits, reach + 1)
    tree, _ = _tree(accumulator_bits, lanes, grows=False)
    if sharing > 1 and gamma > 1 and not others:
        # One tree per remainder, to one of which each product is added; the sum of a tree times 2^(-r/gamma), and the
        # sum of all trees.
        tree = Cost(tree.energy, gamma * tree.area)
        steps = mux(accumulator_bits, gamma)
        steps += (int_multiply(accumulator_bits, 8) + int_add(accumulator_bits)) * (gamma / sharing)
    parts = {
        "multiplier": multiplier,
        "log to linear": steps + shift,
        "adder tree": tree,
        "accumulator": int_add(accumulator_bits) * (1 / lanes),
    }
    return parts, accumulator_bits


def _tree(product_bits: float, lanes: int, grows: bool = True) -> tuple[Cost, float]:
    """Return the adders of a tree over the lanes, per lane, and the width of the sum."""
    cost, width, left = Cost(), product_bits, lanes
    while left > 1:
        pairs = left // 2
        width += 1 if grows else 0
        cost += int_add(width) * pairs
        left -= pairs
    return cost * (1 / lanes), width


def _group(w: Operand, x: Operand) -> int:
    return min(one.group for one in (w, x) if one.group)


def _scale_part(w: Operand, x: Operand, sum_bits: float, aligned: bool) -> Cost:
    """Return the product of the scales and its product with the sum of a group, per lane."""
    scaled_operands = [one for one in (w, x) if one.scale != "none"]
    if not scaled_operands:
        return Cost()
    group = _group(w, x)
    kinds = {one.scale for one in scaled_operands}
    if kinds == {"int"}:
        bits = sum(one.scale_bits for one in scaled_operands)
        both = int_multiply(w.scale_bits, x.scale_bits) if len(scaled_operands) == 2 else Cost()
        return (both + int_multiply(bits, sum_bits)) * (1 / group)
    if kinds == {"exponent"}:
        return int_add(8) * (len(scaled_operands) / group)
    wide = [one.scale_bits if one.scale == "float" else 1 for one in scaled_operands]
    if aligned and max(wide) <= 11:  # their significands are integers, and so is the sum
        both = int_multiply(wide[0], wide[1]) if len(wide) == 2 else Cost()
        return (both + int_multiply(sum(wide), sum_bits) + int_add(8) * len(wide)) * (1 / group)
    both = float_multiply(math.sqrt(wide[0] * wide[1])) if len(wide) == 2 else Cost()
    return (both + float_multiply(24)) * (1 / group)
