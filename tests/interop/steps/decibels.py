"""The decibels of a packed module's outputs."""

from __future__ import annotations

from typing import Any

import torch


@torch.no_grad()
def output_db(model: Any, small: Any, x: Any) -> float:
    """Return the ratio of outputs to their error, in dB."""
    exact, found = model(x), small(x)
    return float(10 * torch.log10(exact.square().mean() / (found - exact).square().mean()))
