"""`watch`: what rounding does to every tensor of a training step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ....base.errors import WrongValue
from ....training.step.watching import Watch
from .model import states_of


def watch(model: Any, every: int = 1) -> Watch:
    """Record underflow, saturation, error and scale of each tensor in the training steps that follow.

    Parameters
    ----------
    model : torch.nn.Module
        A model of `train_in`.
    every : int, optional
        Record one of this number of steps.

    Returns
    -------
    heterocompute.training.Watch
        ``.rows`` has the latest step, ``.history`` all steps, ``.plot(path)`` the exponents. ``.close()`` stops it.

    Raises
    ------
    ValueError
        The model has no layers with a recipe.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> report = ht.watch(net)  # doctest: +SKIP
    >>> report.rows[0]["underflow"]  # doctest: +SKIP
    0.0
    """
    states = states_of(model) if isinstance(model, torch.nn.Module) else []
    if not states:
        raise WrongValue("watch: model has no layer with a recipe, expected a model of train_in")
    return Watch(states, every, _host)


def _host(t: Any) -> np.ndarray[Any, Any]:
    return np.asarray(t.detach().cpu().numpy())
