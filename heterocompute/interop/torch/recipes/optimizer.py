"""`optimizer_in`: an optimizer whose states, weights and gradients have the formats of a recipe; `Madam`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongType, WrongValue, shown
from ....base.values import as_real
from ....formats import Format
from ....products.quantize import quantize
from ....training.step.layer import seed_of
from ....training.step.named import as_recipe
from ....training.step.recipe import FP32, DynamicScale, Recipe
from ..operators import array_of, described, parts_of
from .layers import ARRAYS

# Seeds of the optimizer: behind those of any layer.
OPTIMIZER, MASTER, REDUCED = 2**32, 0, 1


class RecipeOptimizer(torch.optim.Optimizer):
    """An optimizer in the formats of a recipe. `optimizer_in` makes it.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
        The optimizer that computes the steps.
    loss_scale : float
        The present factor of the loss.
    steps, skipped : int
        Number of calls of `step`, and how many of them met an overflow and changed nothing.
    is_reduced : bool
        Gradients have the format of the all-reduce already: `reduce_in` rounded them.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> opt = ht.optimizer_in(torch.optim.AdamW(net.parameters()), "fp16-loss-scale")  # doctest: +SKIP
    >>> opt.scale(loss).backward(); opt.step()  # doctest: +SKIP
    """

    def __init__(self, optimizer: torch.optim.Optimizer, recipe: Recipe) -> None:
        self.optimizer, self.recipe = optimizer, recipe
        scale = recipe.loss_scale
        self._dynamic = scale if isinstance(scale, DynamicScale) else None
        self.loss_scale = self._dynamic.initial if self._dynamic else float(scale or 1.0)
        self.steps = self.skipped = self._good = 0
        self._is_scaled = self._is_unscaled = False
        self.is_reduced = False
        self._packed: dict[tuple[Any, str], QuantizedArray] = {}
        self._round_weights(None)

    @property
    def param_groups(self) -> Any:
        """Return the groups of parameters of the optimizer."""
        return self.optimizer.param_groups

    @property
    def defaults(self) -> Any:
        """Return the default options of the optimizer."""
        return self.optimizer.defaults

    @property
    def state(self) -> Any:
        """Return the states that are not rounded; the others are codes between steps."""
        return self.optimizer.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients.

        Parameters
        ----------
        set_to_none : bool, optional
        """
        self._is_scaled = self._is_unscaled = False
        self.optimizer.zero_grad(set_to_none)

    def scale(self, loss: Any) -> Any:
        """Return the loss times the loss scale, for `backward`.

        Parameters
        ----------
        loss : torch.Tensor

        Returns
        -------
        torch.Tensor
        """
        self._is_scaled = True
        return loss if self.recipe.loss_scale is None else loss * self.loss_scale

    def unscale_(self) -> None:
        """Divide the gradients by the loss scale, to clip them before `step`.

        Raises
        ------
        ValueError
            The loss was not scaled with `scale`.
        """
        if self.recipe.loss_scale is None or self._is_unscaled:
            return
        if not self._is_scaled:
            raise WrongValue(
                "optimizer_in: the recipe has a loss scale, expected optimizer.scale(loss).backward() before step()"
            )
        for p in self.parameters():
            if p.grad is not None:
                p.grad.div_(self.loss_scale)
        self._is_unscaled = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the weights, unless a gradient overflowed under a dynamic loss scale.

        Parameters
        ----------
        closure : None
            Not supported.

        Returns
        -------
        bool
            False if the step was skipped.

        Raises
        ------
        TypeError, ValueError
            There is a closure, or the loss was not scaled.
        """
        if closure is not None:
            raise WrongType("optimizer_in: step has a closure, expected none: a closure does not scale its loss")
        self.unscale_()
        self.steps += 1
        self._is_scaled = self._is_unscaled = False
        seed = self.recipe.seed
        found = [p for p in self.parameters() if p.grad is not None]
        if self._dynamic is not None and self._overflowed(found):
            return False
        if self.recipe.all_reduce != FP32 and not self.is_reduced:
            is_random = self.recipe.rounding.get("all_reduce") == "stochastic"
            for index, p in enumerate(found):
                chosen = seed_of(seed, self.steps, OPTIMIZER + index, REDUCED) if is_random else None
                p.grad.copy_(rounded_as_rows(p.grad, self.recipe.all_reduce, chosen))
        for (p, name), q in self._packed.items():
            self.optimizer.state[p][name] = _opened(q, p)
        self.optimizer.step()
        self._pack()
        self._round_weights(self.steps)
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer, of the loss scale, and the codes of rounded states.

        Returns
        -------
        dict
        """
        where = {id(p): index for index, p in enumerate(self.parameters())}
        packed = {f"{where[id(p)]}.{name}": _written(q) for (p, name), q in self._packed.items()}
        mine = {"loss_scale": self.loss_scale, "steps": self.steps, "skipped": self.skipped, "good": self._good}
        return {"optimizer": self.optimizer.state_dict(), "packed": packed, "recipe": mine}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a result of `state_dict`.

        Parameters
        ----------
        state_dict : dict

        Raises
        ------
        ValueError
            The state was not written by an optimizer of a recipe.
        """
        if not {"optimizer", "packed", "recipe"} <= set(state_dict):
            raise WrongValue("load_state_dict: the state has no recipe, expected that of an optimizer of optimizer_in")
        self.optimizer.load_state_dict(state_dict["optimizer"])
        mine = state_dict["recipe"]
        self.loss_scale, self.steps = mine["loss_scale"], mine["steps"]
        self.skipped, self._good = mine["skipped"], mine["good"]
        parameters = self.parameters()
        self._packed = {}
        for key, value in state_dict["packed"].items():
            index, name = key.split(".", 1)
            self._packed[parameters[int(index)], name] = _read(value)

    def state_bytes(self) -> int:
        """Return the bytes of the states between steps: codes and scales, and the tensors that are not rounded.

        Returns
        -------
        int
        """
        plain = sum(
            value.numel() * value.element_size()
            for state in self.optimizer.state.values()
            for name, value in state.items()
            if isinstance(value, torch.Tensor) and name != "step"
        )
        return int(plain + sum(q.nbytes for q in self._packed.values()))

    def __repr__(self) -> str:
        return f"<RecipeOptimizer: {type(self.optimizer).__name__}, recipe {self.recipe.name or 'own'}>"

    def parameters(self) -> list[Any]:
        """Return the parameters of all groups.

        Returns
        -------
        list of torch.nn.Parameter
        """
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _overflowed(self, parameters: list[Any]) -> bool:
        assert self._dynamic is not None
        if all(bool(torch.isfinite(p.grad).all()) for p in parameters):
            self._good += 1
            if self._good == self._dynamic.interval:
                self._good, self.loss_scale = 0, self.loss_scale * self._dynamic.growth
            return False
        self._good, self.loss_scale = 0, self.loss_scale * self._dynamic.backoff
        self.skipped += 1
        return True

    def _pack(self) -> None:
        """Replace the states that the recipe rounds by codes."""
        for p, state in self.optimizer.state.items():
            for name in self.recipe.optimizer:
                fmt = self.recipe.state_format(name, p.numel())
                values = None if fmt is None else state.pop(name, None)
                if fmt is not None and values is not None:
                    self._packed[p, name] = quantize(values.detach().cpu().numpy().reshape(-1), fmt)

    def _round_weights(self, step: int | None) -> None:
        """Round the weights to the format of the master copy; the first time to nearest."""
        if self.recipe.master == FP32:
            return
        is_random = step is not None and self.recipe.rounding.get("master") == "stochastic"
        with torch.no_grad():
            for index, p in enumerate(self.parameters()):
                seed = seed_of(self.recipe.seed, step or 0, OPTIMIZER + index, MASTER) if is_random else None
                p.copy_(rounded_as_rows(p, self.recipe.master, seed))


def optimizer_in(optimizer: Any, recipe: Recipe | str) -> RecipeOptimizer:
    """Run an optimizer in the formats of a recipe.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        The parameters are rounded to the recipe's format of the master copy.
    recipe : Recipe or str

    Returns
    -------
    RecipeOptimizer
        `step` divides gradients by the loss scale, rounds them to `Recipe.all_reduce`, opens the codes of the states,
        calls the optimizer, and rounds states and weights. `all_reduce` rounds the gradient once, as each worker does
        with its part of the sum. `reduce_in` rounds the parts of the workers instead.

    Raises
    ------
    TypeError, ValueError
        The recipe is unknown, the optimizer has no state of a given name, or the recipe needs `Madam`.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> opt = ht.optimizer_in(torch.optim.AdamW(net.parameters()), "adam8bit")  # doctest: +SKIP
    """
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, RecipeOptimizer):
        raise WrongType(f"optimizer_in: optimizer is {shown(optimizer)}, expected a torch.optim.Optimizer")
    chosen = as_recipe(recipe, "optimizer_in: recipe")
    if chosen.update == "madam" and not isinstance(optimizer, Madam):
        raise WrongValue(
            f"optimizer_in: optimizer is {type(optimizer).__name__}, expected Madam, whose updates recipe "
            f"{chosen.name or 'own'} is stated for"
        )
    known = STATE_NAMES.get(type(optimizer).__name__)
    for name in chosen.optimizer:
        if known is not None and name not in known:
            raise WrongValue(
                f"optimizer_in: the recipe rounds {name}, but {type(optimizer).__name__} has {', '.join(known) or 'no'}"
                " states"
            )
    return RecipeOptimizer(optimizer, chosen)


STATE_NAMES = {
    "Adam": ("exp_avg", "exp_avg_sq"), "AdamW": ("exp_avg", "exp_avg_sq"), "NAdam": ("exp_avg", "exp_avg_sq"),
    "SGD": ("momentum_buffer",), "Madam": ("exp_avg_sq",),
}  # fmt: skip


class Madam(torch.optim.Optimizer):
    """Multiplicative updates: the logarithm of a weight changes, its sign does not.

    Parameters
    ----------
    params : iterable
        Parameters, or groups of them.
    lr : float, optional
        Change of the base-2 logarithm per step, for a gradient of the usual size.
    beta : float, optional
        Factor of the mean of squared gradients.
    largest : float, optional
        Magnitudes stay below this number times the root mean square of the first weights.
    eps : float, optional

    Raises
    ------
    TypeError, ValueError
        A number is out of range.

    Notes
    -----
    With v the mean of squared gradients without its bias, ``w <- w 2^(-lr sign(w) clip(g / sqrt(v), -10, 10))``:
    Bernstein et al., NeurIPS 2020 (arXiv 2006.14560), in the base-2 form of LNS-Madam (Zhao et al., arXiv 2106.13914).
    Such an update never changes a 0, so parameters with fewer than two dimensions are changed by
    ``w <- w - lr clip(g / sqrt(v), -10, 10)``.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> opt = ht.optimizer_in(ht.Madam(net.parameters()), "lns-madam")  # doctest: +SKIP
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 2.0**-5, beta: float = 0.999, largest: float = 3.0, eps: float = 1e-12
    ) -> None:
        for name, value in {"lr": lr, "largest": largest, "eps": eps}.items():
            if not as_real(value, f"Madam: {name}", "a number") > 0:
                raise WrongValue(f"Madam: {name} is {shown(value)}, expected above 0")
        if not 0 <= as_real(beta, "Madam: beta", "a number") < 1:
            raise WrongValue(f"Madam: beta is {shown(beta)}, expected 0 or more, below 1")
        super().__init__(params, {"lr": lr, "beta": beta, "largest": largest, "eps": eps})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the weights.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss with gradients.

        Returns
        -------
        torch.Tensor or None
            The loss of the closure.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._change(p, group)
        return loss

    def _change(self, p: Any, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["step"], state["exp_avg_sq"] = 0, torch.zeros_like(p)
            state["bound"] = group["largest"] * float(p.square().mean().sqrt())
        state["step"] += 1
        beta = group["beta"]
        square = state["exp_avg_sq"].mul_(beta).addcmul_(p.grad, p.grad, value=1 - beta)
        usual = (square / (1 - beta ** state["step"])).sqrt_().add_(group["eps"])
        change = (p.grad / usual).clamp_(-10, 10)
        if p.dim() < 2:
            p.sub_(change, alpha=group["lr"])
            return
        p.mul_(torch.exp2(-group["lr"] * p.sign() * change)).clamp_(-state["bound"], state["bound"])


def rounded_as_rows(t: Any, fmt: Format, seed: int | None) -> Any:
    """Return a tensor rounded as a matrix, the first dimension being its rows."""
    flat = t.detach().flatten(1) if t.dim() > 1 else t.detach().reshape(1, -1)
    return ARRAYS.rounded(flat, fmt, 1, seed).reshape(t.shape)


def _opened(q: QuantizedArray, p: Any) -> Any:
    return torch.from_numpy(q.dequantize()).reshape(p.shape).to(p.device)


def _written(q: QuantizedArray) -> dict[str, Any]:
    return {"about": described(q), "parts": [part.clone() for part in parts_of(q).values()]}


def _read(written: dict[str, Any]) -> QuantizedArray:
    return array_of([part.clone() for part in written["parts"]], written["about"])
