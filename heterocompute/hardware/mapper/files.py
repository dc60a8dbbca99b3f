"""Problems, machines and mappings in files: our own layout in TOML or YAML, and Timeloop's, which is YAML.

problem: {dims: {P: 16, R: 3}, tensors: {W: [{R: 1}], I: [{P: 1, R: 1}], O: [{P: 1}]}, output: O}
arch: {mac: 0.8, levels: [{name: DRAM, read: 640}, {name: Buffer, words: 64, read: 5}]}
mapping: {DRAM: {temporal: [[R, 3]]}, Buffer: {temporal: [[P, 16]], spatial: [], keeps: [W, I]}}
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ...base.errors import WrongValue, printable, shown
from ...base.texts import read_small
from ...base.toml_text import parse_toml, toml_text
from ...report.files import write_text
from .arch import Arch, Level
from .mapping import Loop, Mapping, check_kinds
from .problem import Density, Problem
from .timeloop import DUMPED, from_timeloop
from .yaml_text import MAX_BYTES, keyed, listed, parse, yaml_module

OURS = ("problem", "arch", "mapping")


@dataclass(frozen=True)
class Files:
    """The contents of files; None for missing parts.

    Attributes
    ----------
    problem : Problem or None
    arch : Arch or None
    mapping : Mapping or None
    notes : list of str
        Ignored parts, and parts without an energy.
    """

    problem: Problem | None = None
    arch: Arch | None = None
    mapping: Mapping | None = None
    notes: list[str] = field(default_factory=list)


def read_yaml(*paths: str | os.PathLike[str]) -> Files:
    """Read a problem, a machine and a mapping from one file or several.

    Parameters
    ----------
    *paths : path
        Files in this package's layout, in TOML or in YAML, or those of a Timeloop v4 exercise: architecture, problem,
        mapping, sparse optimizations, and the energies of Accelergy (ERT). Timeloop features that are not modelled
        raise an error with their name.

    Returns
    -------
    Files

    Raises
    ------
    ValueError
        A file is invalid; the message has the file, the entry and the expected value.
    ImportError
        A file is not TOML, and PyYAML is not installed.
    OSError
        A file cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from heterocompute import hardware as hw
    >>> path = pathlib.Path(tempfile.mkdtemp(), "problem.toml")
    >>> _ = path.write_text('[problem]\\ndims = {P = 4}\\ntensors = {I = [{P = 1}], O = [{P = 1}]}\\noutput = "O"\\n')
    >>> hw.mapper.read_yaml(path).problem.dims["P"]
    4
    """
    if not paths:
        raise WrongValue("read_yaml: no file")
    merged: dict[str, Any] = {}
    place: dict[str, str] = {}
    dumped: list[tuple[Any, str]] = []
    for path in paths:
        found, name = _read(path), printable(os.fsdecode(path))
        if not isinstance(found, dict):
            raise WrongValue(f"{name}: expected keys such as problem, arch or architecture, mapping")
        for key, value in found.items():
            if not isinstance(key, str):
                raise WrongValue(f"{name}: the key {shown(key)} is not a string")
            if key == "mapping" and DUMPED in found:
                dumped.append((value, name))
                continue
            if key in merged:
                raise WrongValue(f"{name}: {shown(key)} is also in {place[key]}")
            merged[key], place[key] = value, name
    # The dump of the front end repeats the given mapping; if the mapping has its own file, that file is used.
    repeated = [f"{name}: its mapping is left aside" for _, name in dumped if "mapping" in merged]
    if dumped and not repeated:
        merged["mapping"], place["mapping"] = dumped[0]
    names = ", ".join(dict.fromkeys(place.values()))
    try:
        strange = [key for key in merged if key not in OURS]
        if strange and "arch" in merged and "architecture" not in merged:  # a combination that Timeloop does not have
            raise WrongValue(f"{shown(strange[0])} is not one of {', '.join(OURS)}")
        if "architecture" in merged or not set(merged) <= set(OURS) or _is_timeloop(merged):
            problem, arch, mapping, notes = from_timeloop(merged)
            return Files(problem, arch, mapping, notes + repeated)
        return _ours(merged)
    except (ValueError, TypeError) as error:
        raise WrongValue(f"{names}: {error}") from None


def _read(path: str | os.PathLike[str]) -> Any:
    """Read a file as TOML, otherwise as YAML: a text that is both contains only comments."""
    text = read_small(path, MAX_BYTES)
    try:
        try:
            return parse_toml(text)
        except ValueError:
            if _is_toml(path):
                raise
        return parse(text)
    except ValueError as error:
        raise WrongValue(f"{printable(os.fsdecode(path))}: {error}") from None


def _is_toml(path: str | os.PathLike[str]) -> bool:
    return os.fsdecode(path).lower().endswith(".toml")


def _is_timeloop(found: dict[str, Any]) -> bool:
    problem = found.get("problem")
    return isinstance(found.get("mapping"), list) or (isinstance(problem, dict) and "shape" in problem)


def write_yaml(
    path: str | os.PathLike[str],
    problem: Problem | None = None,
    arch: Arch | None = None,
    mapping: Mapping | None = None,
) -> None:
    """Write a problem, a machine and a mapping in this package's layout: TOML for a ``.toml`` path, otherwise YAML.

    Parameters
    ----------
    path : path
        An existing file is replaced when the new one is complete.
    problem, arch, mapping : optional

    Raises
    ------
    ImportError
        The output is YAML, and PyYAML is not installed.

    Examples
    --------
    >>> import os, tempfile
    >>> from heterocompute import hardware as hw
    >>> path = os.path.join(tempfile.mkdtemp(), "product.toml")
    >>> hw.mapper.write_yaml(path, hw.mapper.Problem.gemm(4, 8, 16))
    >>> hw.mapper.read_yaml(path).problem.dims
    {'M': 4, 'N': 8, 'K': 16}
    """
    given = {"problem": problem, "arch": arch, "mapping": mapping}
    check_kinds("write_yaml", **{name: value for name, value in given.items() if value is not None})
    yaml = None if _is_toml(path) else yaml_module()
    found: dict[str, Any] = {}
    if problem is not None:
        densities = {tensor: {"share": d.share, "kind": d.kind} for tensor, d in problem.densities.items()}
        found["problem"] = {
            "dims": dict(problem.dims),
            "tensors": {tensor: [dict(axis) for axis in axes] for tensor, axes in problem.tensors.items()},
            "output": problem.output,
            **({"densities": densities} if densities else {}),
        }
    if arch is not None:
        found["arch"] = {"mac": arch.mac, "macs": arch.macs, "levels": [_level_dict(level) for level in arch.levels]}
    if mapping is not None:
        found["mapping"] = {
            name: {
                **({"temporal": _lists(mapping.temporal[name])} if name in mapping.temporal else {}),
                **({"spatial": _lists(mapping.spatial[name])} if name in mapping.spatial else {}),
                **({"keeps": sorted(mapping.keeps[name])} if name in mapping.keeps else {}),
            }
            for name in dict.fromkeys([*mapping.temporal, *mapping.spatial, *mapping.keeps])
        }
    if yaml is None:
        write_text(path, toml_text(found))
    else:
        options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "default_flow_style": None, "width": 110}
        write_text(path, yaml.safe_dump(found, **options))


def _lists(loops: Sequence[Loop]) -> list[list[Any]]:
    return [list(loop) for loop in loops]


def _level_dict(level: Level) -> dict[str, Any]:
    found: dict[str, Any] = {"name": level.name}
    plain = Level(level.name)
    for entry in fields(Level)[1:]:
        value = getattr(level, entry.name)
        if value == getattr(plain, entry.name):
            continue
        if isinstance(value, frozenset):
            value = sorted(value)
        elif entry.name in ("gate", "skip"):
            value = {tensor: sorted(zeros) for tensor, zeros in value.items()}
        found[entry.name] = value
    return found


def _ours(found: dict[str, Any]) -> Files:
    problem = arch = mapping = None
    if "problem" in found:
        keys = keyed(found["problem"], "problem", {"dims", "tensors", "output"}, {"densities"})
        densities = keyed(keys.get("densities", {}), "problem.densities")
        problem = Problem(
            keyed(keys["dims"], "problem.dims"),
            keyed(keys["tensors"], "problem.tensors"),
            keys["output"],
            {tensor: _density(value, f"problem.densities.{tensor}") for tensor, value in densities.items()},
        )
    if "arch" in found:
        keys = keyed(found["arch"], "arch", {"levels"}, {"mac", "macs"})
        names = {entry.name for entry in fields(Level)}
        levels = [
            Level(**keyed(level, f"arch.levels[{i}]", {"name"}, names))
            for i, level in enumerate(listed(keys["levels"], "arch.levels"))
        ]
        arch = Arch(levels, mac=keys.get("mac", 0.0), macs=keys.get("macs", 0))
    if "mapping" in found:
        levels_of = keyed(found["mapping"], "mapping")
        parts = {
            name: keyed(part, f"mapping.{name}", set(), {"temporal", "spatial", "keeps"})
            for name, part in levels_of.items()
        }
        mapping = Mapping(
            {name: part["temporal"] for name, part in parts.items() if "temporal" in part},
            {name: part["spatial"] for name, part in parts.items() if "spatial" in part},
            {name: part["keeps"] for name, part in parts.items() if "keeps" in part},
        )
    return Files(problem, arch, mapping)


def _density(value: Any, where: str) -> Density:
    return Density(**keyed(value, where, {"share"}, {"kind"})) if isinstance(value, dict) else Density(value)
