"""Densities of weights, inputs and outputs of pruned networks, by layer: densities.toml, with its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ...base.toml_text import read_toml

FILE = Path(__file__).with_name("densities.toml")

Shares = Mapping[str, float]


@cache
def _table() -> dict[str, dict[str, Shares]]:
    found = read_toml(FILE, 1 << 20)
    return {
        network: {layer: dict(zip("WIO", row, strict=True)) for layer, row in rows.items()}
        for network, rows in found.items()
    }


class _Densities(Mapping[str, Mapping[str, Shares]]):
    """By network and layer, read when somebody first asks."""

    def __getitem__(self, network: str) -> Mapping[str, Shares]:
        return _table()[network]

    def __iter__(self) -> Iterator[str]:
        return iter(_table())

    def __len__(self) -> int:
        return len(_table())


DENSITIES: Mapping[str, Mapping[str, Shares]] = _Densities()
