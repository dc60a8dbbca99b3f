"""Rotation of a language model's residual stream, folded into its weights: `rotate`.

    x' = x H;  the weights that read x have their columns rotated, those that write to it their rows

A norm's weight is multiplied into the weights after it, since only then do the norm and H commute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..base.errors import WrongType, WrongValue, printable
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..base.values import Rng, seed_from
from .hadamard import hadamard

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

READS = {"attn_norm": "attn_q attn_k attn_v attn_qkv", "ffn_norm": "ffn_gate ffn_up ffn_gate_up ffn_gate_inp "
         "ffn_gate_exps ffn_up_exps ffn_gate_up_exps"}  # fmt: skip
NORM_OF = {name: norm for norm, names in READS.items() for name in names.split()}
WRITES = ("attn_output", "ffn_down", "ffn_down_exps")


@counts_subnormals
@renamed(net="network")
def rotate(network: Any, seed: int = 0, *, rng: Rng = None) -> Any:
    """Rotate the residual stream of a language model, and the values of its heads.

    The network computes the same function, except for float32 rounding. Outliers of the residual stream are spread over
    all its values. This reduces the error of weights, activations and cached values at few bits.

    Parameters
    ----------
    network : LanguageModel
        Result of `heterocompute.zoo.open_llm`.
    seed : int
        Seed of the signs, see `hadamard`.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

    Returns
    -------
    LanguageModel
        Its weights are float32 and named as in GGUF. Each is computed on first access, then kept. The output has its
        own weight, and norms before matmuls have the weight 1.

    Raises
    ------
    TypeError
        `network` is not a LanguageModel.
    ValueError
        The family has norms after attention (gemma2, gemma3), whose weights do not commute with a rotation, or the
        width has no Hadamard matrix.

    Notes
    -----
    Ashkboos et al., "QuaRot", NeurIPS 2024 (arXiv 2404.00456), stages 1a and 1c. The rotation of the input of
    ``ffn_down`` is left out, because it would add a step to the network. Liu et al., "SpinQuant", 2024 (arXiv
    2405.16406), R1 and R2 as Hadamard matrices.

    Examples
    --------
    >>> net = hc.zoo.open_llm("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
    >>> turned = hc.ptq.rotate(net)  # doctest: +SKIP
    >>> turned.perplexity(text, weights=turned.quantized("int4"))  # doctest: +SKIP
    """
    shape: Any = getattr(network, "shape", None)
    if not hasattr(shape, "options"):
        raise WrongType(f"rotate: network is of type {type(network).__name__}, expected a network of hc.zoo.open_llm")
    family = shape.options
    if family.post_norms:
        raise WrongValue(
            f"rotate: network is {shape.family}, whose norms behind attention do not change places with a rotation; "
            "expected a family without them, such as llama or qwen2"
        )
    if family.centered or family.learned_positions or family.qk_norm == "all" or shape.shared_hidden or family.sinks:
        raise WrongValue(f"rotate: network is {shape.family}, whose block is not rotated; expected one such as llama")
    for width, name in ((shape.width, "width"), (shape.head_width, "head width")):
        try:
            hadamard(np.zeros(width, np.float32))
        except ValueError as problem:
            raise WrongValue(f"rotate: the {name} of {printable(network.path)}: {problem}") from None
    seed = seed_from("rotate", seed, rng)
    turned = {role: partial(_turned, network, role, seed) for role in (*network.roles, "output.weight")}
    return network.remade(LazyWeights(turned))


class LazyWeights(Mapping[str, FloatArray]):
    """Arrays by name, each made on first use and cached."""

    def __init__(self, makes: Mapping[str, Callable[[], FloatArray]]) -> None:
        self._makes, self._held = dict(makes), dict[str, FloatArray]()

    def __getitem__(self, name: str) -> FloatArray:
        if name not in self._held:
            self._held[name] = self._makes[name]()
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makes)

    def __len__(self) -> int:
        return len(self._makes)


def _floats(net: Any, role: str) -> FloatArray:
    return np.asarray(net.taken(role, None), np.float32)


def _turned(net: Any, role: str, seed: int) -> FloatArray:
    """Return one tensor of the rotated network."""
    if role == "token_embd.weight":
        return hadamard(_floats(net, role), seed=seed)
    if role == "output.weight":
        table = role if role in net.roles else "token_embd.weight"
        return hadamard(_floats(net, table) * _floats(net, "output_norm.weight"), seed=seed)
    w, part = _floats(net, role), role.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]
    if role.endswith("norm.weight"):
        return np.ones_like(w) if part in (*READS, "output_norm") else w
    if role.endswith(".weight") and part in NORM_OF:
        layer = role.rpartition(f"{part}.weight")[0]
        w = hadamard(w * _floats(net, f"{layer}{NORM_OF[part]}.weight"), seed=seed)
    if part in WRITES:
        w = hadamard(w, axis=-2 if role.endswith(".weight") else -1, seed=seed)
    return _heads(net.shape, w, part, role.endswith(".weight"))


def _heads(shape: Any, w: FloatArray, part: str, is_matrix: bool) -> FloatArray:
    """Rotate the values of each head: the rows that make them, and the columns that read them."""
    width = shape.head_width
    if part == "attn_output" and is_matrix:
        return hadamard(w, block=width)
    if part in ("attn_v", "attn_qkv"):
        first = len(w) - shape.kv_heads * width
        w = w.copy()
        w[first:] = hadamard(w[first:], axis=0, block=width)
    return w
