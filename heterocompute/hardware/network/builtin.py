"""The built-in networks by name; each is put together when someone first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...base.texts import near_words
from ...base.values import shown
from . import cnns
from .graph import Network
from .transformers import bert, gpt, llama

__all__ = ["networks"]

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
    "doc_cnn": cnns.doc_cnn,
    "digits": cnns.digits,
}


class _Networks(Mapping[str, Network]):
    """The built-in networks: a mapping from names."""

    def __init__(self) -> None:
        self._made: dict[str, Network] = {}

    def __getitem__(self, name: str) -> Network:
        if name not in _MAKERS:
            near = near_words(str(name).lower().replace("-", "_"), _MAKERS, 3)
            words = f"; the nearest are {', '.join(near)}" if near else f", which are {', '.join(_MAKERS)}"
            raise KeyError(f"network: {shown(name, 30)} is none of the built-in ones{words}")
        if name not in self._made:
            self._made[name] = _MAKERS[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in _MAKERS

    def __iter__(self) -> Iterator[str]:
        return iter(_MAKERS)

    def __len__(self) -> int:
        return len(_MAKERS)

    def __repr__(self) -> str:
        return f"<networks: {', '.join(_MAKERS)}>"


networks: Mapping[str, Network] = _Networks()
