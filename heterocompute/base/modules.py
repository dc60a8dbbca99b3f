"""Modules of torch that callers pass, recognized without importing torch."""

from __future__ import annotations

import sys


def is_module(model: object) -> bool:
    """Tell whether a value is a torch.nn.Module, without importing torch.

    Parameters
    ----------
    model : Any
    """
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "nn") and isinstance(model, torch.nn.Module)
