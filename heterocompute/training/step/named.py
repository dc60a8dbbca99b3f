"""Published training recipes by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ...base.errors import WrongType, WrongValue, shown
from ...formats import Format, Levels, define
from .recipe import Current, Delayed, DynamicScale, Recipe

__all__ = ["recipe", "recipes"]


def __dir__() -> list[str]:
    return __all__


@lru_cache(maxsize=2)
def dynamic_map(signed: bool) -> Format:
    """Return the 8-bit dynamic map of Dettmers with one scale per block of 256 values.

    Zeros after the sign count powers of ten, the rest of a code is a linear fraction between 0.1 and 1. The unsigned
    map has no 0: a mean of squares that becomes 0 lets Adam divide by eps.

    Examples
    --------
    >>> dynamic_map(True).bits
    8
    """
    found: list[float] = []
    for zeros in range(7):
        edges = np.linspace(0.1, 1, 2 ** (zeros + (0 if signed else 1)) + 1)
        found += (10.0 ** (zeros - 6) * (edges[1:] + edges[:-1]) / 2).tolist()
    levels = [*(-level for level in found), *found, 0.0, 1.0] if signed else [*found, 1.0]
    return define(None, Levels(tuple(sorted(levels))), scale="f32", group=256)


def _adam8bit() -> Recipe:
    states = {"exp_avg": dynamic_map(True), "exp_avg_sq": dynamic_map(False)}
    return Recipe(optimizer=states, optimizer_size=4096, name="adam8bit",
                  source="Dettmers et al., ICLR 2022, arXiv 2110.02861")  # fmt: skip


def _all(fmt: str, **more: object) -> dict[str, object]:
    return {"weights": fmt, "activations": fmt, "gradients": fmt, **more}


# Definitions. A name is the key; `Recipe.name` repeats it.
# Recipes below 16 bits state that attention's matmuls stay in 16 bits.
FP8 = {"weights": "fp8_e4m3fn-tensor", "activations": "fp8_e4m3fn-tensor", "gradients": "fp8_e5m2-tensor",
       "attention": "bf16"}  # fmt: skip
TABLE: dict[str, tuple[str, dict[str, object]]] = {
    "fp32": ("float32 throughout", {}),
    "fp16-loss-scale": (
        "Micikevicius et al., ICLR 2018, arXiv 1710.03740",
        _all("fp16-nosat", weight_gradients="fp16-nosat", loss_scale=DynamicScale()),
    ),
    "bf16": ("Kalamkar et al., 2019, arXiv 1905.12322", _all("bf16", weight_gradients="bf16")),
    "tf32": ("NVIDIA A100 whitepaper, 2020", _all("tf32")),
    "fp8-delayed": (
        "Micikevicius et al., 2022, arXiv 2209.05433; Transformer Engine, DelayedScaling",
        {**FP8, "scaling": Delayed(history=1024)},
    ),
    "fp8-current": ("Transformer Engine, Float8CurrentScaling", {**FP8, "scaling": Current()}),
    "deepseek-fp8": (
        "DeepSeek-V3, 2024, arXiv 2412.19437, section 3.3",
        {
            "weights": "e4m3fn-b128x128", "activations": "e4m3fn-g128", "gradients": "e4m3fn-g128",
            "attention": "bf16", "requantize": ("activations",), "optimizer": {"exp_avg": "bf16", "exp_avg_sq": "bf16"},
        },
    ),
    "mxfp8": ("Mishra et al., 2025, arXiv 2506.08027", _all("mxfp8_e4m3-rceil", attention="bf16")),
    "nvfp4": (
        "NVIDIA, 2025, arXiv 2509.25149",
        {
            "weights": "e2m1-b16x16-e4m3fn-f32tensor", "activations": "nvfp4", "gradients": "nvfp4", "hadamard": 16,
            "attention": "bf16", "rounding": {"gradients": "stochastic"},
        },
    ),
    "int8-switchback": (
        "Wortsman et al., NeurIPS 2023, arXiv 2304.13013",
        {"weights": "int8-tensor", "activations": "int8", "gradients": "int8", "weight_matmul": "bf16",
         "attention": "bf16"},
    ),
    "lns-madam": (
        "Zhao et al., 2021, arXiv 2106.13914",
        _all("log8-8", weight_gradients="log8-8", update="madam"),
    ),
    "sr-bf16": (
        "Zamirai et al., 2020, arXiv 2010.06192",
        _all("bf16", weight_gradients="bf16", master="bf16", rounding={"master": "stochastic"}),
    ),
}  # fmt: skip
SPECIAL: dict[str, Callable[[], Recipe]] = {"adam8bit": _adam8bit}


def recipe(name: str) -> Recipe:
    """Return a published recipe.

    Parameters
    ----------
    name : str
        One of `recipes`.

    Returns
    -------
    Recipe
        ``dataclasses.replace`` changes parts of it.

    Raises
    ------
    TypeError, ValueError
        The name is unknown.

    Examples
    --------
    >>> import heterocompute as hc
    >>> r = hc.training.recipe("fp8-delayed")
    >>> str(r.weights), str(r.gradients), r.scaling.history
    ('fp8_e4m3fn-tensor', 'fp8_e5m2-tensor', 1024)
    """
    if not isinstance(name, str):
        raise WrongType(f"recipe: name is {shown(name)}, expected a str")
    if name in SPECIAL:
        return SPECIAL[name]()
    if name not in TABLE:
        raise WrongValue(f"recipe: name is {shown(name)}, expected one of {', '.join(recipes())}")
    source, fields = TABLE[name]
    return Recipe(name=name, source=source, **fields)  # type: ignore[arg-type]


def recipes() -> dict[str, str]:
    """Return the names of the published recipes, with their sources.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.training.recipes()["mxfp8"]
    'Mishra et al., 2025, arXiv 2506.08027'
    """
    return {name: source for name, (source, _) in TABLE.items()} | {name: one().source for name, one in SPECIAL.items()}


def as_recipe(value: object, name: str) -> Recipe:
    """Return a recipe from its name, or a recipe unchanged.

    Raises
    ------
    TypeError, ValueError
    """
    if isinstance(value, Recipe):
        return value
    if isinstance(value, str):
        return recipe(value)
    raise WrongType(f"{name} is {shown(value)}, expected a Recipe or the name of one")
