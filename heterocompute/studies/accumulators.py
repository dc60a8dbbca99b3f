"""The bits of accumulators next to those of an emulation: those that no input overflows, and those that inputs need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..emulate.text import parse
from ..formats import Format
from ..hardware.silicon.mac import mac
from ..ptq.accumulator import AccumulatorBits, accumulator_bits
from ..ptq.recorder import Recorder
from ..report.study_page import widest

Array = np.ndarray[Any, Any]
KEYS = ("guaranteed_bits", "needed_bits")
FEW = 16  # inputs of a layer
WIDE = 32  # bits of the accumulator that others are compared with


class FewInputs:
    """The first inputs of a layer, as a recorder gathers them."""

    def __init__(self) -> None:
        self.rows: list[Array] = []

    def add(self, x: Any, x_float: Any = None) -> None:
        """Keep the first inputs."""
        left = FEW - sum(map(len, self.rows))
        if left > 0:
            values = np.asarray(x, np.float32)
            self.rows.append(values.reshape(-1, values.shape[-1])[:left].copy())

    def add_to(self, group: int, x: Any) -> None:
        """Keep the first inputs of one expert."""
        self.add(x)


def inputs_of(call: Callable[..., Any], everything: Mapping[str, Any], names: list[str]) -> dict[str, Array]:
    """Run a network once, and return the first inputs of each tensor.

    Tensors that are not multiplied by this package have none, and networks that cannot be recorded have none at all.
    """
    recorders = {}
    for name in names:
        if isinstance(everything[name], np.ndarray) and everything[name].dtype == np.float32:
            recorders[name] = Recorder.of(everything[name], name, None, lambda axes, k, groups: FewInputs())
    try:
        call({**everything, **recorders}, {"activations": None, "emulate": None})
    except Exception:  # the caller's function does not accept recording arrays, or needs other options
        return {}
    found = {}
    for name, recorder in recorders.items():
        for sums in (recorder._sums or {}).values():
            if sums.rows:
                found[name] = np.concatenate(sums.rows)
    return found


def bits_of(
    text: str | None,
    activations: Format | None,
    arrays: Mapping[str, Any],
    names: list[str],
    inputs: Callable[[], Mapping[str, Array]],
) -> dict[str, int | None]:
    """Return the columns `KEYS` of a row: the largest over all tensors, None where no integers are added.

    Parameters
    ----------
    text : str or None
        The emulation.
    arrays : mapping
        Rounded weights by name.
    names : list of str
        The tensors.
    inputs : callable
        Returns the first inputs of tensors.
    """
    nothing: dict[str, int | None] = dict.fromkeys(KEYS)
    options = {} if text is None else parse(text)
    if not str(options.get("accumulator", "")).startswith("int") or activations is None or len(options) > 1:
        return nothing
    found: list[tuple[AccumulatorBits, bool]] = []
    for name in names:
        q = arrays[name]
        if not isinstance(q, QuantizedArray):
            return nothing
        some = inputs().get(name)
        try:
            found.append((accumulator_bits(q, activations, inputs=some), some is not None))
        except (TypeError, ValueError):  # a format without integers
            return nothing
    key = "needed_wrapping" if "wrap" in options["accumulator"] else "needed_saturating"
    known = all(is_known for _, is_known in found)
    needed = max((getattr(one, key) for one, _ in found), default=None) if known else None
    return {"guaranteed_bits": max((one.bits for one, _ in found), default=None), "needed_bits": needed}


def savings(rows: Sequence[dict[str, Any]], metric: str) -> list[str]:
    """Return a sentence per emulated integer accumulator: its cost in a metric, and what it saves of a MAC of 32 bits.

    The MAC has an accumulator of its own (``vector=1``). A tree of several lanes shares one, and saves less.

    Parameters
    ----------
    rows : sequence of dict
        Of a study.
    metric : str
        Column of a number.
    """
    exact = widest([row for row in rows if row.get("emulate")], rows)
    if exact is None or exact["activations"] is None or exact.get(metric) is None:
        return []
    told = []
    for row in rows:
        options = parse(row["emulate"]) if row.get("emulate") else {}
        bits = row.get("accumulator_bits") or WIDE
        is_alike = all(row.get(key) == exact.get(key) for key in ("format", "method", "activations", "kv_cache"))
        if not is_alike or not str(options.get("accumulator", "")).startswith("int") or bits >= WIDE:
            continue
        try:
            narrow, wide = (mac(row["format"], row["activations"], one, 1) for one in (bits, WIDE))
        except (TypeError, ValueError):  # several formats, or an accumulator narrower than a product
            continue
        saved = [
            1 - one / other for one, other in ((narrow.energy_pj, wide.energy_pj), (narrow.area_um2, wide.area_um2))
        ]
        cost = abs(row[metric] - exact[metric])
        told.append(
            f"{row['emulate']} costs {cost:.2g} of {metric} and saves {saved[0]:.0%} of the energy and {saved[1]:.0%} "
            f"of the area of one MAC with {WIDE} bits ({row['format']} x {row['activations']})"
        )
    return told
