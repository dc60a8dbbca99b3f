"""Searches a format for each layer of a PyTorch model: `heterocompute.ptq.search` with a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...files.selection import escaped
from ...ptq.calibration import Calibration
from .calibration import calibrated
from .network import module_network


def searched(
    search: Callable[..., Any], model: object, evaluate: object, calibration: object, include: object, exclude: object
) -> Any:
    """Search formats for the layers of a module.

    Parameters
    ----------
    search : callable
        `heterocompute.ptq.search` of weights, with its other arguments.
    model : torch.nn.Module
    evaluate : callable, optional
        Of a module.
    calibration : Calibration or batches, optional
    include, exclude
        Patterns of names of weights or modules.

    Returns
    -------
    Plan
        With all names of tied weights.
    """
    weights, judge = module_network(model, evaluate, include, exclude, "search")
    if calibration is not None and not isinstance(calibration, Calibration):
        calibration = calibrated(model, calibration, list(map(escaped, weights)), None, False, "search")
    known = None if calibration is None else {name: h for name, h in calibration.items() if name in weights}
    plan = search(weights, evaluate=judge, hessians=known)
    rounded = {name: weights.trained_or_rounded(name, value) for name, value in plan.weights.items()}
    tied = {name: first for name, first in weights.twins.items() if name != first}
    return replace(
        plan,
        recipe={**plan.recipe, **{escaped(name): plan.recipe[escaped(first)] for name, first in tied.items()}},
        weights={**rounded, **{name: rounded[first] for name, first in tied.items()}},
    )
