"""Golden vectors for hardware and firmware: `vectors` writes tables of a format as files with a manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from ..base.errors import WrongType, WrongValue, printable, shown
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..base.texts import file_name
from ..base.values import Rng, as_int, seed_from
from ..base.version import __version__
from ..emulate import parse
from ..files.shards import write_whole
from ..formats import Format
from ..formats.defining import carried
from ..products.arguments import as_format
from .golden import KINDS, Order, table
from .tables import written

CALLER = "vectors"
MANIFEST = "manifest.json"


@renamed(fmt="format")
@counts_subnormals
def vectors(
    format: Format | str,
    folder: str | os.PathLike[str],
    seed: int = 0,
    kinds: Iterable[str] | None = None,
    *,
    count: int = 64,
    length: int = 32,
    accumulators: Iterable[str] = (),
    pattern: str = "2:4",
    rng: Rng = None,
) -> dict[str, Any]:
    """Write golden vectors of a format for tests of RTL and firmware.

    Each table is written as JSON, as hexadecimal text, as a C header, and as one file per column for ``$readmemh``. The
    bytes of all files depend on the arguments alone.

    Parameters
    ----------
    format : Format or str
        Any format, also one of `define`.
    folder : str or os.PathLike
        A new or empty folder.
    seed : int
        Seed of the drawn values.
    kinds : iterable of str, optional
        Default: all tables that the format has.

        - ``"codes"``: every code and its value.
        - ``"casts"``: values at, between and next to all levels, special values, and values beyond the largest.
        - ``"scales"``: groups of many magnitudes, with the codes of each rule of scales.
        - ``"dots"``: dot products by accumulators of `heterocompute.emulate`.
        - ``"stochastic"``: stochastic rounding with stated random numbers.
        - ``"nm"``: N:M rows, stored and decoded.
    count : int
        Rows of drawn tables.
    length : int
        Products of a dot product.
    accumulators : iterable of str, optional
        Emulation strings, such as ``"int24-sat"`` or ``"hmma-h100"``. Default: four integer accumulators, or all float
        accumulators and instructions that multiply the elements.
    pattern : str
        N:M of the table ``"nm"``.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

    Returns
    -------
    dict
        The manifest, also written as ``manifest.json``: `format`, `seed`, and for each of `kinds` its `rows`, `columns`
        (bits, words per row, meaning) and `files` with their SHA-256.

    Raises
    ------
    ValueError
        The folder is not empty, the format does not have a table of `kinds`, or an argument is invalid.

    Examples
    --------
    >>> import os, tempfile
    >>> import heterocompute as hc
    >>> folder = os.path.join(tempfile.mkdtemp(), "e4m3")
    >>> manifest = hc.vectors("fp8_e4m3fn", folder)
    >>> list(manifest["kinds"]), manifest["kinds"]["codes"]["rows"]
    (['codes', 'casts', 'dots', 'stochastic', 'nm'], 256)
    >>> with open(os.path.join(folder, "codes.hex")) as file:
    ...     print(file.readlines()[1 + 0x38].strip())
    38 3f800000
    """
    found = as_format(format, f"{CALLER}: format")
    place = file_name(folder)
    if isinstance(kinds, str) or isinstance(accumulators, str):
        raise WrongType(f"{CALLER}: kinds and accumulators are several texts, got {shown(kinds or accumulators)}")
    asked = None if kinds is None else list(kinds)
    for kind in asked or ():
        if kind not in KINDS:
            raise WrongValue(f"{CALLER}: kinds has {shown(kind)}, expected some of {', '.join(KINDS)}")
    texts = tuple(accumulators)
    for text in texts:
        parse(text)
    order = Order(
        found,
        as_int(seed_from(CALLER, seed, rng), f"{CALLER}: seed", 0),
        as_int(count, f"{CALLER}: count", 1, 1 << 20),
        as_int(length, f"{CALLER}: length", 1, 1 << 16),
        texts,
        pattern,
    )
    if os.path.lexists(place) and not (os.path.isdir(place) and not os.listdir(place)):
        raise WrongValue(f"{printable(place)}: exists and is not an empty folder: expected the name of a new one")
    tables = {}
    for kind in KINDS if asked is None else asked:
        try:
            tables[kind] = table(order, kind)
        except WrongValue:
            if asked is not None:
                raise
    if not tables:
        raise WrongValue(f"{CALLER}: format is {found}, which has no table: its codes have no fixed values")
    os.makedirs(place, exist_ok=True)
    manifest = {
        "program": "heterocompute",
        "version": __version__,
        "format": carried(found),
        "seed": order.seed,
        "count": order.count,
        "length": order.length,
        "kinds": {kind: written(place, kind, columns) for kind, columns in tables.items()},
    }
    write_whole(os.path.join(place, MANIFEST), json.dumps(manifest, indent=1) + "\n")
    return manifest
