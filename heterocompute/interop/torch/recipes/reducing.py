"""`reduce_in`: gradients that each worker rounds to the recipe's format before DistributedDataParallel adds them."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from ....base.errors import WrongType, shown
from ....training.step.layer import seed_of
from ....training.step.recipe import FP32
from .optimizer import OPTIMIZER, REDUCED, RecipeOptimizer, rounded_as_rows


def reduce_in(model: Any, optimizer: RecipeOptimizer) -> None:
    """Round the gradients of each worker to `Recipe.all_reduce` before they are added.

    Parameters
    ----------
    model : torch.nn.parallel.DistributedDataParallel
        It has no communication hook yet. The sum over workers is that of the process group, in float32.
    optimizer : RecipeOptimizer
        A result of `optimizer_in`, of the same parameters. Its steps do not round gradients again.

    Raises
    ------
    TypeError
        The model or the optimizer has another type.

    Notes
    -----
    Gradients are rounded with their loss scale, which is what is sent. Random numbers of stochastic rounding depend on
    the rank too, so that errors of workers are independent.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> net = torch.nn.parallel.DistributedDataParallel(ht.train_in(model, recipe))  # doctest: +SKIP
    >>> opt = ht.optimizer_in(torch.optim.AdamW(net.parameters()), recipe)  # doctest: +SKIP
    >>> ht.reduce_in(net, opt)  # doctest: +SKIP
    """
    if not isinstance(model, DistributedDataParallel):
        raise WrongType(f"reduce_in: model is {shown(model)}, expected a DistributedDataParallel")
    if not isinstance(optimizer, RecipeOptimizer):
        raise WrongType(f"reduce_in: optimizer is {shown(optimizer)}, expected a result of optimizer_in")
    group: Any = model.process_group
    where = {id(p): index for index, p in enumerate(optimizer.parameters())}
    recipe, rank, count = optimizer.recipe, distributed.get_rank(group), distributed.get_world_size(group)
    is_random = recipe.rounding.get("all_reduce") == "stochastic"

    def reduced(_: object, bucket: Any) -> Any:
        for p, g in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if recipe.all_reduce != FP32:
                use = OPTIMIZER + where.get(id(p), len(where))
                seed = seed_of(recipe.seed, optimizer.steps + 1, use, REDUCED, rank) if is_random else None
                g.copy_(rounded_as_rows(g, recipe.all_reduce, seed))
        sent = distributed.all_reduce(bucket.buffer(), group=group, async_op=True)
        return sent.get_future().then(lambda found: found.value()[0].div_(count))

    reduced.__annotations__ = {"bucket": distributed.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    model.register_comm_hook(None, reduced)
    optimizer.is_reduced = True
