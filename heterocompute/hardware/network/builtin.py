"""The built-in networks by name; each is built on first use."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from ...base.texts import near_words
from ...base.values import shown
from . import cnns
from .graph import Network
from .language import decoder_of_config
from .transformers import bert, gpt, llama, vit, whisper_encoder

__all__ = ["networks"]

MODELS = "models.toml"

_MAKERS: dict[str, Callable[[], Network]] = {
    "alexnet": cnns.alexnet,
    "alexnet_original": cnns.alexnet_original,
    "vgg16": cnns.vgg16,
    "googlenet": cnns.googlenet,
    "resnet18": lambda: cnns.resnet("resnet18", (2, 2, 2, 2), False),
    "resnet34": lambda: cnns.resnet("resnet34", (3, 4, 6, 3), False),
    "resnet50": lambda: cnns.resnet("resnet50", (3, 4, 6, 3), True),
    "resnet101": lambda: cnns.resnet("resnet101", (3, 4, 23, 3), True),
    "mobilenet_v1": cnns.mobilenet_v1,
    "mobilenet_v2": cnns.mobilenet_v2,
    "efficientnet_b0": cnns.efficientnet_b0,
    "bert_base": lambda: bert("bert_base", 768, 12, 12),
    "bert_large": lambda: bert("bert_large", 1024, 24, 16),
    "gpt2": lambda: gpt("gpt2", 768, 12, 12, 1024, 1024),
    "gpt3_175b": lambda: gpt("gpt3_175b", 12288, 96, 96, 2048, 2048),
    "llama_7b": lambda: llama("llama_7b", 4096, 32, 32, 11008, 32000, 2048),
    "llama2_70b": lambda: llama("llama2_70b", 8192, 80, 64, 28672, 32000, 4096, 8, "Touvron et al. 2023, Llama 2"),
    "vit_b_16": lambda: vit("vit_b_16", 768, 12, 12),
    "vit_l_16": lambda: vit("vit_l_16", 1024, 24, 16),
    "whisper_tiny_encoder": lambda: whisper_encoder("whisper_tiny_encoder", 384, 4, 6),
    "whisper_small_encoder": lambda: whisper_encoder("whisper_small_encoder", 768, 12, 12),
    "whisper_large_v3_encoder": lambda: whisper_encoder("whisper_large_v3_encoder", 1280, 32, 20, 128),
    "doc_cnn": cnns.doc_cnn,
    "digits": cnns.digits,
}


@cache
def published() -> dict[str, dict[str, Any]]:
    """Return the entries of config.json of the language models of models.toml, by name."""
    message = tomllib.loads(Path(__file__).with_name(MODELS).read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = {}
    for name, entries in message.items():
        base = {key: value for key, value in found.get(entries.get("like", ""), {}).items() if key != "params"}
        found[name] = base | {key: value for key, value in entries.items() if key != "like"}
    return found


def _language_model(name: str) -> Network:
    return decoder_of_config(MODELS, published()[name], name).network()


@cache
def _makers() -> dict[str, Callable[[], Network]]:
    return _MAKERS | {name: partial(_language_model, name) for name in published()}


def name_of(text: str) -> str:
    """Return the listed name of a network for a text such as ``"Llama-3.1-8B"``; return other values unchanged."""
    return _squeezed_names().get(_squeezed(text), text)


def _squeezed(text: str) -> str:
    return text.lower().translate(dict.fromkeys(map(ord, "-_. ")))


@cache
def _squeezed_names() -> dict[str, str]:
    return {_squeezed(name): name for name in _makers()}


class _Networks(Mapping[str, Network]):
    """The built-in networks: a mapping from names."""

    def __init__(self) -> None:
        self._build: dict[str, Network] = {}

    def __getitem__(self, name: str) -> Network:
        if name not in _makers():
            near = near_words(str(name).lower().replace("-", "_"), _makers(), 3)
            words = (
                f"the nearest are {', '.join(near)}"
                if near
                else "hw.networks has the names, such as resnet50, bert_base or llama_7b"
            )
            raise KeyError(f"network: {shown(name, 30)} is not a built-in network; {words}")
        if name not in self._build:
            self._build[name] = _makers()[name]()
        return self._build[name]

    def __contains__(self, name: object) -> bool:
        return name in _makers()

    def __iter__(self) -> Iterator[str]:
        return iter(_makers())

    def __len__(self) -> int:
        return len(_makers())

    def __repr__(self) -> str:
        return f"<networks: {', '.join(_makers())}>"


networks: Mapping[str, Network] = _Networks()
