"""Operators of ONNX that onnx's reference evaluator computes wrongly, by their definition; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["operators", "reason_to_refuse"]

Array = np.ndarray[Any, Any]


def reason_to_refuse(node: Any, opset: int) -> str | None:
    """Return why onnx's evaluator and the operators below do not compute a node, or None."""
    return None


def operators(opset: int) -> list[type]:
    """Return classes for onnx's evaluator of a version of the standard operator set."""
    return []
