"""The division of a training over devices, and the layers whose forward pass is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...base.errors import WrongValue, shown
from ...base.notebooks.shown import Facts
from ...base.values import as_int, check_count, check_flag, check_number
from ..network.graph import Network
from ..network.layers import Context, Scores

__all__ = ["Parallel"]


def __dir__() -> list[str]:
    return __all__


RECOMPUTED = ("none", "full", "attention")


@dataclass(frozen=True)
class Parallel(Facts):
    """The division of a training over devices.

    Parameters
    ----------
    data, tensor, pipeline, expert : int, optional
        Number of parts. Expert groups are within `data`.
    zero : {0, 1, 2, 3}, optional
        Stage of ZeRO: `data` devices divide optimizer states (1), gradients (2), weights (3, as FSDP).
    microbatch : int, optional
        Samples of a microbatch.
    interleaved : int, optional
        Parts of each pipeline stage.
    recompute : str or sequence of str, optional
        ``"full"`` keeps the input of each block, and repeats its forward pass. ``"attention"`` repeats the scores and
        the softmax, whose outputs are the largest (Korthikanti et al., arXiv 2205.05198). Otherwise patterns of names
        of layers, whose outputs are not kept.
    expert_copies : int, optional
        Most copies of a position that leave a node for its experts, as with routing to few nodes. Default: one for each
        expert in use.
    sequence : bool, optional
        Whether tensor parallelism divides norms and residuals along the positions.
    fused_attention : bool, optional
        Whether attention is one kernel, which neither writes nor keeps scores, and repeats their matmul backward.
    overlapped : float, optional
        Share of the expert- and data-parallel communication that matmuls hide, if they last long enough.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.Parallel(data=16, tensor=8, pipeline=8).devices
    1024
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    zero: int = 0
    microbatch: int = 1
    interleaved: int = 1
    recompute: str | Sequence[str] = "none"
    expert_copies: int | None = None
    sequence: bool = False
    fused_attention: bool = False
    overlapped: float = 0.0

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "expert", "microbatch", "interleaved"):
            check_count("Parallel", name, getattr(self, name))
        as_int(self.zero, "Parallel: zero", 0, 3)
        if self.recompute not in RECOMPUTED:
            object.__setattr__(self, "recompute", _checked_patterns(self.recompute))
        if self.expert_copies is not None:
            check_count("Parallel", "expert_copies", self.expert_copies)
        check_flag("Parallel", "sequence", self.sequence)
        check_flag("Parallel", "fused_attention", self.fused_attention)
        check_number("Parallel", "overlapped", self.overlapped, high=1.0, closed=True)
        if self.data % self.expert:
            raise WrongValue(f"Parallel: expert is {self.expert}, expected a divisor of data, {self.data}")

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return self.data * self.tensor * self.pipeline


def scores_of(network: Network) -> set[str]:
    """Return the names of the layers from the scores of attention to the product with the values.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> sorted(scores_of(hw.networks["gpt2"]))[:3]
    ['block0.attention.context', 'block0.attention.scores', 'block0.attention.softmax']
    """
    found: set[str] = set()
    ends: set[str] = set()
    for flow in network:
        if isinstance(flow.layer, Scores) or (found - ends).intersection(flow.node.inputs):
            found.add(flow.name)
            if isinstance(flow.layer, Context):
                ends.add(flow.name)
    return found


def repeated_of(network: Network, split: Parallel, scores: set[str]) -> set[str]:
    """Return the names of the layers whose forward pass is repeated in the backward pass.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> network = hw.networks["gpt2"]
    >>> found = repeated_of(network, Parallel(recompute="attention"), scores_of(network))
    >>> sorted(found)[:2]
    ['block0.attention.scores', 'block0.attention.softmax']
    """
    if split.recompute == "none":
        return set()
    if split.recompute == "full":
        return {flow.name for flow in network}
    if split.recompute == "attention":
        hidden = {flow.name for flow in network if isinstance(flow.layer, Context)}
        return set() if split.fused_attention else scores - hidden
    from ...files.selection import FirstMatch, unknown  # files stand above the networks

    found: set[str] = set()
    names = [flow.name for flow in network]
    for pattern in split.recompute:
        matches = set(filter(FirstMatch({pattern: True}), names))
        if not matches:
            raise WrongValue(f"training_step: recompute has {unknown(pattern, names, f'layer of {network.name}')}")
        found |= matches
    return found


def _checked_patterns(value: object) -> tuple[str, ...]:
    is_several = isinstance(value, (list, tuple)) and value and all(isinstance(one, str) for one in value)
    if not is_several:
        raise WrongValue(
            f"Parallel: recompute is {shown(value)}, expected one of {', '.join(RECOMPUTED)}, or patterns of layers"
        )
    return tuple(value)  # type: ignore[arg-type]
