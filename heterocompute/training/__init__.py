"""Training of weights that are quantized or pruned: gradients, schedules, codebooks, retraining."""

from .straight_through import (
    fake_quantize as fake_quantize,
    mask_flips as mask_flips,
    sparsity_at as sparsity_at,
    sr_ste as sr_ste,
)

__all__ = ["fake_quantize", "mask_flips", "sparsity_at", "sr_ste"]


def __dir__() -> list[str]:
    return __all__
