"""The weights of a PyTorch model by name: what each layer multiplies by, whatever makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...base.texts import quoted
from ..torch_modules import maker_of

__all__ = ["Weight", "check_place", "weights_of"]


@dataclass(frozen=True, eq=False)
class Weight:
    """A float tensor of two or more dimensions that a module holds or computes.

    Attributes
    ----------
    name : str
        In the model without rounding, pruning or parametrizations: ``"encoder.0.weight"``.
    module : torch.nn.Module
    attribute : str
        Of the module.
    made : str
        ``"held"``: a parameter; ``"rounded"``: by `QuantLinear` in each forward pass; ``"parametrized"``;
        ``"hooked"``: by a hook before each forward pass, such as that of `torch.nn.utils.prune`.
    """

    name: str
    module: Any
    attribute: str
    made: str


def weights_of(model: Any) -> Iterator[Weight]:
    """Yield the weights of a model, tied ones by each of their names.

    Parameters
    ----------
    model : torch.nn.Module
    """
    for path, part in model.named_modules(remove_duplicate=False):
        if "parametrizations" in path.split("."):
            continue
        prefix = f"{path}." if path else ""
        made = {name: "parametrized" for name in getattr(part, "parametrizations", {})}
        for name in ("weight", "in_proj_weight"):
            if maker_of(part, name)[0] is not None:
                made[name] = "hooked"
        hidden = [f"{name}_" for name in made]
        for name, value in part._parameters.items():
            if value is None or value.dim() < 2 or not value.is_floating_point():
                continue
            if not any(name.startswith(one) for one in hidden):
                rounded = name == "weight" and hasattr(part, "rounded")
                yield Weight(prefix + name, part, name, "rounded" if rounded else "held")
        for name, how in made.items():
            value = getattr(part, name, None)
            if value is not None and value.dim() > 1:
                yield Weight(prefix + name, part, name, how)


def check_place(model: Any, name: str) -> None:
    """Refuse a model whose weights are not in the memory of the CPU.

    Parameters
    ----------
    model : torch.nn.Module
    name : str
        Of the function.

    Raises
    ------
    ValueError
        A parameter on another device.
    """
    for path, one in model.named_parameters():
        if one.device.type == "meta":
            raise ValueError(f"{name}: {quoted(path)} of the model is on the device 'meta', which has no values: load them first")
        if one.device.type != "cpu":
            raise ValueError(f"{name}: {quoted(path)} of the model is on {one.device}, expected the CPU: pass model.cpu()")
