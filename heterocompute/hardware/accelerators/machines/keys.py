"""Keys of a machine file, and checks of single values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....base.errors import WrongType, WrongValue, shown
from ....base.texts import near_words
from ....base.values import as_list, check_count, check_number, check_text
from ..accelerator import ALL

MAX_LEVELS, MAX_UNITS, MAX_SIZE, MAX_FORMATS, MAX_SIZES, MAX_NOTES = 24, 1 << 24, 1 << 50, 64, 64, 64
KEYS = (
    "name", "title", "source", "year", "device", "process", "voltage", "clock", "watts", "sizes", "formats", "level",
    "mac", "notes", "overhead", "resident", "winograd", "model", "holds", "chips",
)  # fmt: skip
MEMORY = (
    "kind", "kib", "bytes", "entries", "width", "banks", "bandwidth", "keeps", "loops", "sums", "pj", "read_pj", "mm2",
    "masked", "idle", "coded", "wire_pj",
)  # fmt: skip
FAN = ("count", "spread", "network", "network_bits")
MAC = (
    "kind", "lanes", "tree", "spread", "weights", "activations", "sums", "adder", "zeros", "gates", "pj", "mm2",
    "operations", "instruction_pj", "instruction_macs", "adc_bits", "adc_pj", "cell_pj", "cell_bits", "input_bits",
)  # fmt: skip
CIM = ("adc_bits", "adc_pj", "cell_pj", "cell_bits", "input_bits")
TENSORS = {"weights": "W", "inputs": "I", "outputs": "O"}
ZEROS = ("none", "gate", "skip")
NETWORKS = ("mesh", "multicast", "crossbar")
#: Sizes that a model of sparse or streaming hardware reads, with the least value of each.
MODELS: dict[str, dict[str, int]] = {
    "eie": {"elements": 1, "depth": 1},
    "scnn": {"side": 1, "accumulators": 1, "banks": 1, "queue": 0, "crossbar": 0},
    "streams": {},
}
OVERHEADS = ("clock", "control", "leakage")
#: Kinds of memory that are no DRAM.
CHIP = ("sram", "latches")


#: Keys of mac that may be texts of sizes.
MAC_AMOUNTS = (
    "lanes", "tree", "sums", "adder", "pj", "mm2", "operations", "instruction_pj", "instruction_macs", "adc_bits",
    "adc_pj", "cell_pj", "cell_bits", "input_bits",
)  # fmt: skip


def near(word: object, words: Sequence[str] | Mapping[str, Any]) -> str:
    """Return the nearest of several words in a phrase, or the first of them."""
    found = near_words(str(word), words, 1)
    listed = ", ".join(list(words)[:8]) + ", ..." * (len(words) > 8)
    return f"the nearest is {found[0]}" if found else f"expected one of {listed}"


def known(where: str, table: object, keys: Sequence[str], needed: Sequence[str] = ()) -> dict[str, Any]:
    """Return a table as a dict; its keys are among some, and some are needed."""
    if not isinstance(table, Mapping):
        raise WrongType(f"Machine: {where} is {shown(table)}, expected a table")
    for key in table:
        if key not in keys:
            raise WrongValue(f"Machine: {where} has key {shown(key)}, {near(key, keys)}")
    for key in needed:
        if key not in table:
            raise WrongValue(f"Machine: {where} has no {key}, expected {', '.join(needed)}")
    return dict(table)


def is_fan(one: Mapping[str, Any]) -> bool:
    """Return whether a level only spreads loops."""
    return "count" in one and not {"kind", "kib", "bytes", "entries"} & set(one)


def is_dram(one: Mapping[str, Any]) -> bool:
    """Return whether a level is outside the chip."""
    return "kind" in one and one["kind"] not in CHIP


def size_of(one: Mapping[str, Any]) -> int | dict[str, int] | None:
    """Return the bytes of one instance, by letter of the tensor if each has its own; None if it has no limit."""
    if "entries" in one:
        return max(1, int(one["entries"] * one["width"] // 8))
    if isinstance(one.get("bytes"), Mapping):
        return {TENSORS[tensor]: round(size) for tensor, size in one["bytes"].items()}
    size = 1024 * one["kib"] if "kib" in one else one.get("bytes")
    return None if size is None else max(1, round(size))


def tensors_of(what: str, names: object) -> list[str]:
    """Return names of tensors, each once."""
    found = as_list(names, f"Machine: {what}", "names of tensors")
    for tensor in found:
        if not isinstance(tensor, str) or tensor not in TENSORS:
            raise WrongValue(f"Machine: {what} has {shown(tensor)}, {near(tensor, TENSORS)}")
    return list(dict.fromkeys(found))


def dims_of(what: str, dims: object, empty: bool = False) -> str:
    """Return letters of loops, each once."""
    text = dims if empty and dims == "" else check_text("Machine", what, dims)
    if not isinstance(text, str) or set(text) - set(ALL) or len(set(text)) != len(text) or not (text or empty):
        raise WrongValue(f"Machine: {what} is {shown(dims)}, expected letters of {ALL}, each once")
    return text


def checked_mac(mac: dict[str, Any]) -> dict[str, Any]:
    """Return the table of the multipliers with its values checked."""
    for key in ("lanes", "tree", "instruction_macs"):
        if isinstance(mac.get(key), float) and mac[key].is_integer():
            mac[key] = int(mac[key])
    highs = {"lanes": MAX_SIZE, "tree": MAX_UNITS, "sums": 128, "adder": 128, "instruction_macs": MAX_UNITS,
             "adc_bits": 16, "cell_bits": 16, "input_bits": 32}  # fmt: skip
    for key, high in highs.items():
        if key in mac and check_count("Machine", f"{key} of mac", mac[key]) > high:
            raise WrongValue(f"Machine: {key} of mac is {shown(mac[key])}, expected at most {high}")
    if "spread" in mac:
        mac["spread"] = dims_of("spread of mac", mac["spread"])
    for key in ("pj", "mm2", "operations", "instruction_pj", "adc_pj", "cell_pj"):
        if key in mac:
            mac[key] = check_number("Machine", f"{key} of mac", mac[key], closed=True, high=1e12)
    if ("instruction_pj" in mac) != ("instruction_macs" in mac):
        raise WrongValue("Machine: mac has one of instruction_pj and instruction_macs, expected both or neither")
    if "zeros" in mac and mac["zeros"] not in ZEROS:
        raise WrongValue(f"Machine: zeros of mac is {shown(mac['zeros'])}, expected one of {', '.join(ZEROS)}")
    if "gates" in mac:
        mac["gates"] = tensors_of("gates of mac", mac["gates"])
        if "outputs" in mac["gates"] or not mac["gates"] or mac.get("zeros", "none") == "none":
            raise WrongValue(f"Machine: gates of mac is {shown(mac['gates'])}, expected weights, inputs or both, and "
                             "zeros as gate or skip")  # fmt: skip
    kind = mac.get("kind", "digital")
    if kind not in ("digital", "cim"):
        raise WrongValue(f"Machine: kind of mac is {shown(kind)}, {near(kind, ('digital', 'cim'))}")
    if kind == "cim":
        if not {"adc_bits", "cell_pj"} <= set(mac) or {"pj", "instruction_pj", "adder", "tree"} & set(mac):
            raise WrongValue("Machine: mac is cim, expected adc_bits, cell_pj and no pj, tree, adder or instruction_pj")
        if mac.get("zeros", "none") == "skip":
            raise WrongValue("Machine: mac is cim and zeros is 'skip', expected none or gate: its rows run together")
    else:
        for key in CIM:
            if key in mac:
                raise WrongValue(f"Machine: mac has {key}, which only kind = 'cim' has")
    return mac
