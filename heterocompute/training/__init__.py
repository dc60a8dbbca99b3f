"""Training in number formats: gradients of rounding, recipes of whole steps, schedules, codebooks, retraining."""

from .step.attention import AttentionStep as AttentionStep, attention_step as attention_step
from .step.named import recipe as recipe, recipes as recipes
from .step.products import LinearStep as LinearStep, linear_step as linear_step
from .step.recipe import (
    Current as Current,
    Delayed as Delayed,
    DynamicScale as DynamicScale,
    Recipe as Recipe,
)
from .step.watching import Watch as Watch
from .straight_through import (
    fake_quantize as fake_quantize,
    mask_flips as mask_flips,
    sparsity_at as sparsity_at,
    sr_ste as sr_ste,
)

__all__ = [
    "AttentionStep", "Current", "Delayed", "DynamicScale", "LinearStep", "Recipe", "Watch", "attention_step",
    "fake_quantize", "linear_step", "mask_flips", "recipe", "recipes", "sparsity_at", "sr_ste",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
