"""The paths that `tune` found fastest: the keys of products, and the file that stores them.

The file is keyed by processor and version; inside it, by the product: shapes, formats, layouts in memory, threads,
instruction sets. It is read once in a process, and consulted only under ``hc.use(tuned=True)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .. import _heterocompute as _core
from ..arrays.prepacked import Prepacked
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.cache_files import cache_path, cpu_model, merge_cache, read_cache
from ..base.version import __version__

BLAS = "OpenBLAS"
MOST = 10_000  # products per machine and version; the oldest are removed

_found: dict[str, dict[str, dict[str, Any]]] = {}  # by file: product -> {"choice", "ms"}
listeners: list[Callable[[], None]] = []  # called when a choice may have changed, so that caches are cleared


def tuning_file() -> Path:
    """Return where the choices are kept."""
    return cache_path("tuning.json")


def product_key(name: str, left: object, right: object, activations: object, *more: object) -> str:
    """Return the text that names a product.

    Parameters
    ----------
    name : str
        ``"matmul"`` or ``"conv2d"``.
    left, right : ndarray or QuantizedArray
    activations : Format or None
    *more : object
        What else the time depends on.
    """
    mask = runtime.run()[0]
    parts = [name, _operand(left), _operand(right), f"activations {activations}", *map(str, more)]
    order = ["one order"] if runtime.one_order() else []
    return "; ".join([*parts, f"threads {runtime.get_num_threads()}", f"isa {mask:x}", *order])


def operand_text(value: QuantizedArray) -> str:
    """Return the text that names a packed operand; it is stored on the operand."""
    text: str | None = getattr(value, "_text", None)
    if text is None:
        prepacked = " prepacked" if isinstance(value, Prepacked) else ""
        text = value._text = f"{value.shape} {value.format} along {value.axis}{prepacked}"
    return text


def _operand(value: Any) -> str:
    if isinstance(value, QuantizedArray):
        return operand_text(value)
    order = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
    return f"{value.shape} {value.dtype} in order {order}"


@cache
def _machine() -> str:
    return f"{cpu_model()}; heterocompute {__version__}"


def _choices() -> dict[str, dict[str, Any]]:
    path = tuning_file()
    if str(path) not in _found:
        kept = read_cache(path).get(_machine())
        products = kept if isinstance(kept, dict) else {}
        _found[str(path)] = {key: entry for key, entry in products.items() if _is_entry(entry)}
    return _found[str(path)]


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("ms"), dict):
        return False
    times = entry["ms"].values()
    choice = entry.get("choice")
    return (
        isinstance(choice, str)
        and choice in entry["ms"]
        and all(isinstance(ms, (int, float)) and ms > 0 for ms in times)
    )


def choice(key: str) -> str | None:
    """Return the fastest path of a product that was tuned, by its name, or None."""
    entry = _choices().get(key)
    return None if entry is None else str(entry["choice"])


def times(key: str) -> Mapping[str, float]:
    """Return the milliseconds of each path of a product that was tuned."""
    entry = _choices().get(key)
    return {} if entry is None else entry["ms"]


def keep(key: str, found: str, ms: Mapping[str, float]) -> None:
    """Keep the times of a product, here and in the file.

    Parameters
    ----------
    found : str
        The fastest way.
    """
    entry = {"choice": found, "ms": dict(ms)}

    def merge(kept: dict[str, Any]) -> dict[str, Any]:
        before = kept.get(_machine())
        products = {**(before if isinstance(before, dict) else {}), **_choices()}
        products.pop(key, None)
        products[key] = entry
        return {**kept, _machine(): dict(list(products.items())[-MOST:])}

    merge_cache(tuning_file(), merge)
    _choices()[key] = entry
    for changed in listeners:
        changed()


def forget() -> None:
    """Read the file again at the next call, as a new process does."""
    _found.clear()
    for changed in listeners:
        changed()


def path_number(name: str) -> int:
    """Return a path in a run's numbering: 1 + its number; 0 for one that this version lacks."""
    names = ["", *_core.paths()[0]]
    return names.index(name) if name in names else 0
