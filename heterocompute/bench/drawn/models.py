"""Drawn whole models of PyTorch with packed layers, next to torch, torchao and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ...interop import torch as ht
from ..measure import CheckFailed, Options
from ..models import FLOAT, LOWEST_COSINE, _caller, _first, _peers, networks
from ..peers import installed
from .call import Call, Draw

RECIPES = (("int8", "int8"), ("int8", "int8"), ("vsq4-g16-s4", "int8"), ("int4-g32-f16", None))
NAMES = ("MiniLM", "MiniLM", "ViT", "small CNN", "EfficientNet-lite0")
FUSED = ("MiniLM", "ViT")
CHAINS = ("EfficientNet-lite0",)  # the convolutions of the small CNN have pooling between them
TOKENS = (8, 16, 32, 64, 128)


def draw_model(draw: Draw, threads: int) -> Call | None:
    """Return a model with inputs; None if torch or the model is missing."""
    torch = installed("torch")
    if torch is None:
        return None
    name = "small CNN" if draw.quick else draw.pick(NAMES)
    batch, tokens, (fmt, activations) = draw.pick((1, 1, 1, 2, 4)), draw.pick(TOKENS), draw.pick(RECIPES)
    channels = 2 if draw.quick else draw.pick((16, 32, 48))
    model = _built(name, channels)
    if model is None:
        return None
    if name == "MiniLM":
        ids = torch.from_numpy(draw.rng.integers(1000, 20000, (batch, tokens)))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        text, floats = f"{name}, {batch} x {tokens} tokens", ["embeddings.*"]
    elif name == "ViT":
        inputs = {"pixel_values": torch.from_numpy(draw.normal(batch, 3, 224, 224))}
        text, floats = f"{name} of 192, {batch} x 3 x 224 x 224", []
    else:
        size = 32 if name == "small CNN" else 224
        inputs = {"input" if name == "small CNN" else "x": torch.from_numpy(draw.normal(batch, 3, size, size))}
        text, floats = f"{name}{f' of {channels}' if size == 32 else ''}, {batch} x 3 x {size} x {size}", []
    exact = _first(model(**inputs)).numpy()
    small = ht.convert(model, fmt, activations=activations, exclude=floats)
    if name in FUSED:
        small = ht.fuse(small)
    elif activations and name in CHAINS:
        small = ht.fuse(small, inputs=next(iter(inputs.values())))
    run = _caller(small, inputs)
    calls = {FLOAT: _caller(model, inputs)}
    calls |= _peers(torch, model, inputs, threads, Options(draw.quick, [threads], "drawn"))
    int8 = {title: call for title, call in calls.items() if "int8" in title}
    wanted = int8 if int8 and activations else {title: call for title, call in calls.items() if title not in int8}
    peers = {title: (call, _similar(title, call, exact)) for title, call in wanted.items()}
    recipe = f"{fmt} x {activations or 'float32'}"
    return Call(recipe, f"{text}, {recipe}", run, _similar(text, run, exact), peers)


@cache
def _built(name: str, channels: int) -> Any:
    return {
        "MiniLM": networks.minilm,
        "ViT": networks.vit,
        "small CNN": lambda: networks.small_cnn(channels),
        "EfficientNet-lite0": networks.efficientnet,
    }[name]()


def _similar(name: str, call: Callable[[], Any], exact: Any) -> Callable[[], None]:
    """Return a check of the cosine to the result of floats."""

    def check() -> None:
        found, wanted = (np.asarray(one, np.float64).ravel() for one in (call(), exact))
        cosine = float(found @ wanted / (np.linalg.norm(found) * np.linalg.norm(wanted)))
        if not cosine >= LOWEST_COSINE:
            raise CheckFailed(f"{name}: the cosine to the float32 model is {cosine:.3f}")

    return check
