"""The config_groups of compressed-tensors: selects the group of a weight and checks it against its tensors.

`chosen` calls one of the other functions for the parameters of a weight: bits and group of packed integers, or the
block of 8-bit codes that share a scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ....base.errors import WrongValue, shown
from ....base.texts import counted
from .. import scaled
from ..expressions import matches
from ..linear import Array, one_of, spaced_words, words

MXFP8 = "mxfp8-quantized"
MX_PACKED = {"fp4": "mxfp4-pack-quantized", "fp6_e2m3": "mxfp6-pack-quantized"}  # by element
NAIVE = ("int-quantized", "float-quantized", "naive-quantized", MXFP8)


class Scheme(NamedTuple):
    """A config_group: the format of the file, and its entry `weights`."""

    stored: Any
    weights: Mapping[str, Any]


def chosen(prefix: str, config: Mapping[str, Any], plan_of: Any, tensors: Mapping[str, Array]) -> Any:
    """Return the result of `plan_of` for the config_group of a weight: the group that its dtypes and shapes fit.

    Targets are classes of modules, or names. A file has only names, so shapes distinguish the groups.
    """
    groups = config.get("config_groups") or {"": {}}
    schemes = {
        name: Scheme(group.get("format") or config.get("format"), group.get("weights") or {})
        for name, group in groups.items()
        if len(groups) == 1 or (isinstance(group, Mapping) and group.get("weights"))
    }
    if len(schemes) == 1:
        return plan_of(prefix, next(iter(schemes.values())), tensors)
    found: dict[str, Any] = {}
    for name, scheme in schemes.items():
        try:
            found[name] = plan_of(prefix, scheme, tensors)
        except (ValueError, KeyError, TypeError):
            continue
    targets = {name: groups[name].get("targets") for name in found}
    named = [name for name, declared in targets.items() if isinstance(declared, list) and _names(declared, prefix)]
    plans = [found[name] for name in (named if len(named) == 1 else found)]
    if not plans or any(plan != plans[0] for plan in plans):
        which = f"{shown(sorted(found))} alike" if plans else f"none of {shown(sorted(schemes))}"
        raise WrongValue(f"{prefix}: its tensors fit {which}, expected one of the config_groups")
    return plans[0]


def _names(targets: list[Any], prefix: str) -> bool:
    """Tell whether targets name a layer: by its name, or by a regular expression after ``re:``."""
    texts = [one for one in targets if isinstance(one, str)]
    return prefix in texts or any(one.startswith("re:") and matches(one[3:], prefix) for one in texts)


def element_of(prefix: str, scheme: Scheme, tensors: Mapping[str, Array]) -> str:
    """Return the element of packed MX; ValueError for another layout."""
    stored = one_of(prefix, "format", scheme.stored, tuple(MX_PACKED.values()))
    return next(element for element, name in MX_PACKED.items() if name == stored)


def packed_of(prefix: str, scheme: Scheme, tensors: Mapping[str, Array]) -> tuple[int, int | None, bool]:
    """Return bits, values per group (None: per row), and whether there are no zero points."""
    weights = scheme.weights
    one_of(prefix, "format", scheme.stored, ("pack-quantized",))
    one_of(prefix, "type", weights.get("type"), ("int",))
    declared = weights.get("strategy") or ("group" if (weights.get("group_size") or 0) > 0 else "channel")
    strategy = one_of(prefix, "strategy", declared, ("group", "channel", "tensor"))
    rows, count = rows_of(prefix, tensors)
    bits, symmetric = _whole(prefix, weights, "num_bits"), weights.get("symmetric", True) is True
    group = _whole(prefix, weights, "group_size") if strategy == "group" else None
    packed, scales = tensors[f"{prefix}.weight_packed"], tensors[f"{prefix}.weight_scale"]
    wanted = (rows, words(count, bits))
    if packed.dtype != np.int32:
        raise WrongValue(f"{prefix}.weight_packed is {packed.dtype} {packed.shape}, expected int32 {wanted}")
    old = (rows, spaced_words(count, bits))
    if packed.shape not in (wanted, old):
        declared = f"{counted(bits, 'bit')} in the configuration"
        raise WrongValue(f"{prefix}.weight_packed is {packed.shape}, expected {wanted} of {declared}")
    if group is not None and (group < 1 or count % group):
        raise WrongValue(f"{prefix}: rows of {counted(count, 'value')} in groups of {group}, expected whole groups")
    wanted = (rows, count // (group or count))
    if strategy == "tensor" and scales.size == 1:
        if not symmetric:
            raise WrongValue(f"{prefix}: one zero point of the tensor is not read, expected symmetric weights")
        return bits, group, symmetric
    if scales.shape != wanted or strategy == "tensor":
        declared = f"the strategy {strategy}" if group is None else f"group_size {group}"
        raise WrongValue(
            f"{prefix}.weight_scale is {scales.shape}, expected {wanted} of {declared} in the configuration"
        )
    points = tensors.get(f"{prefix}.weight_zero_point")
    if symmetric and points is not None and points.any():
        raise WrongValue(f"{prefix}.weight_zero_point is not 0, expected none of symmetric weights")
    if not symmetric:
        length = (words if packed.shape[1] == words(count, bits) else spaced_words)(rows, bits)
        shapes = {"int32": (length, wanted[1]), "int8": wanted}  # int8 in old versions
        if points is None or points.shape != shapes.get(points.dtype.name):
            what = None if points is None else f"{points.dtype} {points.shape}"
            raise WrongValue(f"{prefix}.weight_zero_point is {what}, expected int32 {shapes['int32']} or int8 {wanted}")
        half = 1 << (bits - 1)
        if points.dtype == np.int8 and not -half <= points.min(initial=0) <= points.max(initial=0) < half:
            raise WrongValue(f"{prefix}.weight_zero_point holds values of more than {counted(bits, 'bit')}")
    return bits, group, symmetric


def check_nvfp4(prefix: str, scheme: Scheme, tensors: Mapping[str, Array]) -> None:
    """Raise ValueError if a group or the tensors are not NVFP4."""
    one_of(prefix, "format", scheme.stored, ("nvfp4-pack-quantized",))
    packed, scales, whole = (tensors[f"{prefix}.weight_{part}"] for part in ("packed", "scale", "global_scale"))
    wanted = (packed.shape[0], packed.shape[1] // 8) if packed.ndim == 2 else None
    if packed.dtype != np.uint8 or scales.dtype.name != "float8_e4m3fn" or scales.shape != wanted:
        what = f"{packed.dtype} {packed.shape} with scales {scales.dtype} {scales.shape}"
        raise WrongValue(
            f"{prefix}.weight_packed is {what}, expected uint8 (out, in / 2) and float8_e4m3fn (out, in / 16)"
        )
    if (
        whole.size < 1
        or packed.shape[0] % whole.size
        or whole.dtype != np.float32
        or not (np.isfinite(whole) & (whole > 0)).all()
    ):
        raise WrongValue(
            f"{prefix}.weight_global_scale is {whole.dtype} {shown(whole.tolist())}, expected one float32 > 0"
        )


def rows_of(prefix: str, tensors: Mapping[str, Array]) -> tuple[int, int]:
    """Return the rows and columns in the tensor of a matrix's shape."""
    stated = tensors[f"{prefix}.weight_shape"]
    if stated.shape != (2,):
        packed = tensors[f"{prefix}.weight_packed"]
        raise WrongValue(
            f"{prefix}.weight_shape is {shown(stated.tolist())}, but {prefix}.weight_packed is {packed.shape}"
        )
    return int(stated[0]), int(stated[1])


def _whole(prefix: str, weights: Mapping[str, Any], key: str) -> int:
    """Return an integer of the configuration."""
    try:
        return int(weights[key])
    except (KeyError, TypeError, ValueError):
        raise WrongValue(f"{prefix}: {key} is {shown(weights.get(key))}, expected an integer") from None


def scaled_of(prefix: str, scheme: Scheme, tensors: Mapping[str, Array]) -> tuple[int, int]:
    """Return the rows and columns that share a scale, for 8-bit codes that are not packed."""
    weights, codes = scheme.weights, tensors[f"{prefix}.weight"]
    one_of(prefix, "format", scheme.stored, NAIVE)
    kind = one_of(prefix, "type", weights.get("type"), ("int", "float"))
    one_of(prefix, "num_bits", int(weights.get("num_bits", 8)), (8,) if kind == "float" else (8, *range(2, 8)))
    wanted = "float8_e4m3fn" if kind == "float" else "int8"
    if codes.ndim != 2 or codes.dtype.name != wanted:
        raise WrongValue(f"{prefix}.weight is {codes.dtype} {codes.shape}, expected {wanted} of 2 dimensions")
    declared = weights.get("strategy") or ("group" if (weights.get("group_size") or 0) > 0 else None)
    strategy = one_of(prefix, "strategy", declared, ("tensor", "channel", "group", "block"))
    rows, count = codes.shape
    block = {"tensor": (rows, count), "channel": (1, count)}.get(strategy)
    if strategy == "group":
        block = (1, _whole(prefix, weights, "group_size"))
    if strategy == "block":
        declared = weights["block_structure"]
        high, wide = map(int, declared.split("x") if isinstance(declared, str) else declared)
        block = (high, wide)
    assert block is not None
    points = tensors.get(f"{prefix}.weight_zero_point")
    symmetric = weights.get("symmetric", True) is True
    if symmetric and points is not None and points.astype(np.float32).any():
        raise WrongValue(f"{prefix}.weight_zero_point is not 0, expected none of symmetric weights")
    if not symmetric and points is None:
        raise WrongValue(f"{prefix}.weight_zero_point is missing, expected one of asymmetric weights")
    scaled.check(prefix, codes, tensors[f"{prefix}.weight_scale"], None if symmetric else points, block)
    return block
