"""Training of a torch model in a recipe, for `heterocompute.study_training`."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ....base.errors import WrongType, shown
from ....training.step.recipe import Recipe
from .model import states_of, train_in
from .optimizer import Madam, RecipeOptimizer, optimizer_in
from .watching import _host

RATES = {"optimizer": 4e-3, "madam": 2.0**-5}


class ModelTrainer:
    """A model that is trained in a recipe with AdamW, or with Madam if the recipe says so.

    Parameters
    ----------
    model : torch.nn.Module
        Its outputs are logits, with the classes last.
    recipe : Recipe
    data : (array_like, array_like, array_like, array_like)
        Training inputs and labels, held-out inputs and labels.
    rate : float, optional
        Learning rate.
    """

    host = staticmethod(_host)

    def __init__(self, model: Any, recipe: Recipe, data: Any, rate: float | None = None) -> None:
        if not isinstance(model, torch.nn.Module):
            raise WrongType(f"study_training: make_model returned {shown(model)}, expected a torch.nn.Module")
        self.model = train_in(model, recipe).train()
        self.rate = RATES[recipe.update] if rate is None else rate
        optimizer: Any = Madam if recipe.update == "madam" else torch.optim.AdamW
        self.optimizer: RecipeOptimizer = optimizer_in(optimizer(model.parameters(), lr=self.rate), recipe)
        self.held_out = [torch.as_tensor(one) for one in data[2:]]

    @property
    def states(self) -> Any:
        """Return the states of the layers."""
        return states_of(self.model)

    @property
    def skipped(self) -> int:
        """Return the number of steps that met an overflow."""
        return self.optimizer.skipped

    def step(self, x: Any, labels: Any, share: float = 1.0) -> float:
        """Train on one batch, and return its mean loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * share
        logits = self.model(torch.as_tensor(x))
        loss = functional.cross_entropy(logits.flatten(0, -2), torch.as_tensor(labels).flatten())
        self.optimizer.zero_grad()
        self.optimizer.scale(loss).backward()
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def accuracy(self) -> float:
        """Return the share of right answers for the held-out inputs."""
        self.model.eval()
        x, labels = self.held_out
        right = 0
        for i in range(0, len(x), 256):
            right += int((self.model(x[i : i + 256]).argmax(-1) == labels[i : i + 256]).sum())
        self.model.train()
        return right / int(labels.numel())
