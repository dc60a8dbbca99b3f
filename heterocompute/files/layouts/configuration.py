"""The files beside the weights, and their metadata, that state how another program quantized them.

metadata        quantization_config
config.json     quantization_config, compression_config, quantization; or an object in it that has one (text_config)
other files     OLDER_CONFIGS of AutoGPTQ and AutoAWQ, which are read; PROGRAM_FILES of other programs

`table.layout_named` says which layout a method is. AutoRound's depends on `packing_format`, see `auto_round`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...arrays.layout import KEY as PACKED
from ...base.errors import WrongType, WrongValue, shown
from ...base.json_text import strict_json
from ...base.locations import exists
from ...base.tensors import Tensors
from ...base.texts import read_small
from ..companions import CONFIG, OLDER_CONFIGS, PROGRAM_FILES
from .expressions import matches

KEY = "quantization_config"
OTHER_KEYS = ("compression_config", "quantization")
MAX_CONFIG = 1 << 24
AUTO_ROUND = "auto-round"
PACKING = "auto_round:auto_gptq"  # where a configuration names none
# Suffixes of packing formats without integers -> the layout of each number of bits.
FLOATS = {"fp8_static": {8: "fp8"}, "llm_compressor": {4: "compressed-tensors", 8: "fp8"}}
INTEGERS = ("", "exllamav2", "tritonv2", "marlin", "gptqmodel")  # version 2 of GPTQ


def config_of(reader: Tensors, key: str = KEY) -> Mapping[str, Any]:
    """Return the quantization_config of a file: of its metadata, of config.json, or of what older programs wrote.

    `key` is the name that a program gives it in config.json.

    Raises
    ------
    FileNotFoundError, KeyError
        There is no such configuration.
    TypeError
        The entry is not an object.
    ValueError, OSError
        It cannot be read.
    """
    config = strict_json(reader.metadata[KEY]) if KEY in reader.metadata else _beside(reader.path, key)
    if not isinstance(config, Mapping):
        raise WrongType(f"{KEY} is not an object")
    return config


def config_in(reader: Tensors) -> Mapping[str, Any]:
    """Return the quantization_config of a file, empty if there is none or it cannot be read."""
    try:
        return config_of(reader)
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def method_of(config: Mapping[str, Any]) -> str | None:
    """Return the program that a configuration names."""
    declared = config.get("quant_method")
    return declared if isinstance(declared, str) else None


def declared_by(reader: Tensors, config: Mapping[str, Any]) -> str | None:
    """Return the name, for messages, of the program that quantized a file; None if no configuration names it."""
    method = method_of(config)
    if method is not None:
        packing = config.get("packing_format")
        return shown(method) + (f" (packing_format {shown(packing)})" if packing is not None else "")
    folder = os.path.dirname(reader.path)
    found = next((name for name in PROGRAM_FILES if exists(os.path.join(folder, name))), None)
    if found is not None:
        return f"{PROGRAM_FILES[found]} ({found})"
    if config:
        return f"a {KEY} without quant_method"
    return f"the {declared} of {CONFIG}" if (declared := _said_otherwise(folder)) else None


def plain_names(reader: Tensors) -> list[str]:
    """Return the names of a file's tensors that are not components of this package's packed arrays."""
    try:
        packed = strict_json(reader.metadata[PACKED])["tensors"] if PACKED in reader.metadata else {}
    except (ValueError, KeyError, TypeError):
        packed = {}
    return [name for name in reader.names if name.rpartition(".")[0] not in packed]


def _beside(path: str, key: str) -> Any:
    """Return the quantization_config of config.json in a file's folder, or that of older programs there."""
    folder = os.path.dirname(path)
    try:
        declared = _json(folder, CONFIG)
        inner = (one for one in [declared, *declared.values()] if isinstance(one, Mapping) and one.get(key) is not None)
        return next(inner)[key]
    except (FileNotFoundError, StopIteration, AttributeError):
        for name in OLDER_CONFIGS:
            if exists(os.path.join(folder, name)):
                return _json(folder, name)
        raise FileNotFoundError(path) from None


def _json(folder: str, name: str) -> Any:
    return strict_json(read_small(os.path.join(folder, name), MAX_CONFIG))


def _said_otherwise(folder: str) -> str | None:
    """Return the key of config.json with another name that shows a quantization."""
    try:
        declared = _json(folder, CONFIG)
    except (OSError, ValueError):
        return None
    return next((key for key in OTHER_KEYS if isinstance(declared, Mapping) and declared.get(key)), None)


def is_auto_round(method: str | None) -> bool:
    """Tell whether AutoRound wrote a file."""
    return method is not None and AUTO_ROUND in method.lower().replace("_", "-")


def is_fp8_of_quark(config: Mapping[str, Any]) -> bool:
    """Tell whether Quark stored weights as FP8 with a scale for each row or for all."""
    declared = config.get("global_quant_config")
    weight = declared.get("weight") if isinstance(declared, Mapping) else None
    if not isinstance(weight, Mapping) or weight.get("dtype") not in ("fp8_e4m3", "fp8_e5m2"):
        return False
    scheme = weight.get("qscheme")
    return scheme == "per_tensor" or (scheme == "per_channel" and weight.get("ch_axis") in (0, None))


def packing_of(config: Mapping[str, Any]) -> str:
    """Return the packing format of a configuration of AutoRound."""
    declared = config.get("packing_format")
    if declared is None:
        declared = config.get("backend")
    return declared if isinstance(declared, str) and declared != "auto" else PACKING


def auto_round(config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the layout of a file of AutoRound, and the version of GPTQ.

    auto_round:auto_gptq, auto_round:gptq, auto   GPTQ version 1, which stores zero points minus 1
    auto_round, auto_round:gptqmodel and others   GPTQ version 2
    auto_round:auto_awq, auto_round:awq           AWQ
    auto_round:fp8_static                         FP8
    auto_round:llm_compressor                     compressed-tensors (4 bits) or FP8 (8 bits)

    AutoRound, auto_round/inference/convert_model.py and backend.py.
    """
    first, _, packing = packing_of(config).lower().replace("-", "_").partition(":")
    if packing in FLOATS:
        return FLOATS[packing].get(config.get("bits", 0)), None
    if "awq" in packing or first in ("awq", "auto_awq"):
        return "awq", None
    if "gptq" in packing.replace("gptqmodel", "") or first in ("gptq", "auto_gptq"):
        return "gptq", "gptq"
    return ("gptq", "gptq_v2") if first == "auto_round" and packing in INTEGERS else (None, None)


def own_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration in the words of the layout's own program; only that of AutoRound differs.

    Raises
    ------
    ValueError
        A packing format or a rotation of weights that is not read.
    """
    if not is_auto_round(method_of(config)):
        return config
    layout, version = auto_round(config)
    if layout is None:
        what = f"packing_format is {shown(packing_of(config))} of {shown(config.get('bits'))} bits"
        raise WrongValue(
            f"{what}, expected auto_round:auto_gptq, :gptqmodel, :auto_awq, :fp8_static or :llm_compressor"
        )
    for key in ("rotation_config", "hadamard_config", "transform_config"):
        if config.get(key):
            raise WrongValue(f"{key} says that weights are rotated, which is not undone here: expected the original")
    found = {key: config[key] for key in ("bits", "group_size", "sym", "dynamic", "extra_config") if key in config}
    if layout in ("gptq", "awq"):
        kind = config.get("data_type", "int")
        if not isinstance(kind, str) or not kind.startswith("int"):
            raise WrongValue(f"data_type is {shown(kind)}, expected int for packed integers")
        found |= {"desc_act": False, "sym": config.get("sym", True)}
        found |= {"checkpoint_format": version} if layout == "gptq" else {"zero_point": not found["sym"]}
    return {"quant_method": layout, **found}


def of_layer(prefix: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of one layer: the entry of ``extra_config`` for its name or an expression in it.

    Raises
    ------
    ValueError
        The entry says that the layer is not quantized, or is not an object.
    """
    declared = config.get("extra_config") or {}
    if not isinstance(declared, Mapping):
        raise WrongValue(f"{prefix}: extra_config is {shown(declared)}, expected an object of layers")
    name = prefix if prefix in declared else next((one for one in declared if _is_in(one, prefix)), None)
    if name is None or not declared[name]:
        return config
    if not isinstance(declared[name], Mapping):
        raise WrongValue(f"{prefix}: extra_config says {shown(declared[name])} for {shown(name)}, expected an object")
    bits = declared[name].get("bits")
    if isinstance(bits, int) and bits > 8:
        raise WrongValue(f"{prefix} is packed, but extra_config says by {shown(name)} that it has {bits} bits")
    return {**config, **{key: declared[name][key] for key in ("bits", "group_size", "sym") if key in declared[name]}}


def _is_in(pattern: object, name: str) -> bool:
    """Tell whether an expression fits some part of a name; AutoRound ignores invalid expressions."""
    try:
        return isinstance(pattern, str) and matches(f"(?:.*)(?:{pattern})", name)
    except ValueError:
        return False
