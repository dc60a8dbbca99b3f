"""The families, by the name of their architecture in GGUF and by the ``model_type`` of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..base.errors import shown
from ..base.texts import near_words
from .keys import Keys
from .kind import Kind
from .record import Family

NAMED = 12  # families in a message
# The modules of this folder with a tuple FAMILIES, in the order of lists in messages.
MODULES = ("llama", "qwen", "phi", "gemma", "deepseek", "gpt", "others", "mixtures", "encoders")
FAMILIES: dict[str, Family] = {
    family.name: family for name in MODULES for family in import_module(f".{name}", __package__).FAMILIES
}
KINDS = {kind.name: (family, kind) for family in FAMILIES.values() for kind in family.kinds}
RUN = {name: family for name, family in FAMILIES.items() if family.runs and not family.is_encoder}  # by zoo.open_llm
# Of several families of an architecture the first, whose `marks` name the others.
GGUF = {family.architecture: family for family in reversed(RUN.values()) if not family.no_gguf}
GGUF = {name: GGUF[name] for name in dict.fromkeys(family.architecture for family in RUN.values()) if name in GGUF}
ENCODER_GGUF = {one.architecture: one for one in reversed(FAMILIES.values()) if one.is_encoder and not one.no_gguf}
RUN_KINDS = {name: pair for name, pair in KINDS.items() if pair[0].runs and not pair[0].is_encoder}
ENCODER_KINDS = {name: pair for name, pair in KINDS.items() if pair[0].is_encoder}  # by zoo.open_encoder


def family_of(keys: Keys, architecture: object, encoder: bool = False) -> Family:
    """Return the family of a GGUF file that zoo.open_llm runs, or zoo.open_encoder, or raise ValueError."""
    known, others = (ENCODER_GGUF, GGUF) if encoder else (GGUF, ENCODER_GGUF)
    if architecture in others:
        what, call = ("a language model", "open_llm") if encoder else ("an encoder", "open_encoder")
        keys.fail(f"general.architecture is {shown(architecture)}, {what}: open it by heterocompute.zoo.{call}")
    return known[_checked(keys, architecture, known, "general.architecture")]


def kind_named(keys: Keys, name: object, kinds: Mapping[str, tuple[Family, Kind]]) -> tuple[Family, Kind]:
    """Return the family and the kind of a ``model_type``, or raise ValueError."""
    family, kind = kinds[_checked(keys, name, kinds, "model_type")]
    return (family if kind.variant is None else FAMILIES[kind.variant(keys.found)]), kind


def _checked(keys: Keys, text: object, names: Mapping[str, Any], key: str) -> str:
    if not isinstance(text, str) or text not in names:
        near = near_words(text, names) if isinstance(text, str) else []
        hint = f"; the nearest is {near[0]}" if near else ""
        some = ", ".join([*names][:NAMED])
        more = f" and {len(names) - NAMED} more families, which docs/llm.md lists" if len(names) > NAMED else ""
        keys.fail(f"{key} is {shown(text)}, expected one of {some}{more}{hint}")
    return text
