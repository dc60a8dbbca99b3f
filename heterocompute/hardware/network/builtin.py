"""The built-in networks by name; each is built on first use."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from ...base.errors import shown
from ...base.texts import near_words
from . import cnns
from .graph import Network
from .language import decoder_of_config
from .transformers import bert, vit, whisper_encoder

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
    "gpt2": lambda: gpt("gpt2", 768, 12, 12, 1024),
    "gpt3_175b": lambda: gpt("gpt3_175b", 12288, 96, 96, 2048),
    "llama_7b": lambda: _llama("llama_7b", "Touvron et al. 2023", hidden_size=4096, intermediate_size=11008),
    "llama2_70b": lambda: _llama(
        "llama2_70b",
        "Touvron et al. 2023, Llama 2",
        hidden_size=8192,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        intermediate_size=28672,
        max_position_embeddings=4096,
    ),
    "vit_b_16": lambda: vit("vit_b_16", 768, 12, 12),
    "vit_l_16": lambda: vit("vit_l_16", 1024, 24, 16),
    "whisper_tiny_encoder": lambda: whisper_encoder("whisper_tiny_encoder", 384, 4, 6),
    "whisper_small_encoder": lambda: whisper_encoder("whisper_small_encoder", 768, 12, 12),
    "whisper_large_v3_encoder": lambda: whisper_encoder("whisper_large_v3_encoder", 1280, 32, 20, 128),
    "doc_cnn": cnns.doc_cnn,
    "digits": cnns.digits,
}


def gpt(name: str, width: int, layers: int, heads: int, positions: int) -> Network:
    """Return a decoder with the layers of GPT-2."""
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": positions, "vocab_size": 50257}
    note = f"{positions} tokens unless said otherwise; attention counted over all pairs of positions"
    return decoder_of_config(name, {"model_type": "gpt2", **sizes}, name).network(positions, note)


def _llama(name: str, paper: str, **sizes: int) -> Network:
    usual = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
             "max_position_embeddings": 2048}  # fmt: skip
    found = decoder_of_config(name, {**usual, **sizes}, name)
    note = f"{paper}, {found.context} tokens unless said otherwise; rotary positions not counted"
    return found.network(found.context, note)


@cache
def published() -> dict[str, dict[str, Any]]:
    """Return the entries of config.json of the language models of models.toml, by name."""
    message = tomllib.loads(Path(__file__).with_name(MODELS).read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = {}
    for name, entries in message.items():
        base = {key: value for key, value in found.get(entries.get("like", ""), {}).items() if key != "params"}
        found[name] = base | {key: value for key, value in entries.items() if key != "like"}
        if found[name].get("sliding_window") == 0:  # TOML has no null
            found[name]["sliding_window"] = None
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
