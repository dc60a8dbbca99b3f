"""Tensors and keys that llama.cpp reads for each architecture, beyond those that all of them have.

A tensor that llama.cpp does not read stops it from loading the file. A key that it does not read changes nothing there.
llama.cpp, src/models/*.cpp: `load_arch_hparams` and `load_arch_tensors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....zoo.llm.shape import Shape

__all__ = ["ARCHITECTURES", "ATTENTION_CAP", "LOGIT_CAP", "LONG", "Architecture"]

QKV = frozenset({"attn_q", "attn_k", "attn_v"})
LAYER = QKV | {"attn_norm", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}
HEAD_NORMS = frozenset({"attn_q_norm", "attn_k_norm"})
ATTENTION_CAP, LOGIT_CAP = "attn_logit_softcapping", "final_logit_softcapping"
POST_NORMS = frozenset({"post_attention_norm", "post_ffw_norm"})


@dataclass(frozen=True)
class Architecture:
    """Tensors and keys of one architecture of llama.cpp.

    Attributes
    ----------
    parts : frozenset of str
        Tensors of a layer, by role.
    biases : frozenset of str
        Those that may have a bias.
    has_output : bool
        The output may be another matrix than the embedding.
    has_divisors : bool
        ``rope_freqs.weight`` divides the angles of RoPE.
    has_long : bool
        ``rope_factors_short.weight`` and ``rope_factors_long.weight`` do (`longrope`).
    is_square : bool
        All heads together have the width of the model.
    has_windows : bool
        ``attention.sliding_window`` and its pattern are read.
    caps : tuple of str
        Which of ``attn_logit_softcapping`` and ``final_logit_softcapping`` are read.
    """

    parts: frozenset[str] = LAYER
    biases: frozenset[str] = QKV
    has_output: bool = True
    has_divisors: bool = False
    has_long: bool = False
    is_square: bool = False
    has_windows: bool = False
    caps: tuple[str, ...] = ()

    def refusal_of(self, shape: Shape, roles: Iterable[str]) -> str | None:
        """Return why the architecture cannot hold a model, as a sentence; None if it can.

        Parameters
        ----------
        shape : Shape
        roles : iterable of str
            Of the tensors of the model.
        """
        for role in roles:
            part, end = role.split(".")[-2:]
            allowed = self.biases if end == "bias" else self.parts
            if role.startswith("blk.") and part not in allowed:
                return f"the architecture {shape.family} has no tensor {role}"
            if not role.startswith("blk.") and end == "bias":
                return f"the architecture {shape.family} has no tensor {role}"
        if "output.weight" in roles and not self.has_output:
            return f"the output of the architecture {shape.family} is the embedding, and this model has another one"
        if self.is_square and shape.heads * shape.head_width != shape.width:
            what = f"{shape.heads} heads of {shape.head_width} values have another width than the model, {shape.width}"
            return f"{what}, which the architecture {shape.family} does not have"
        for key, cap in ((ATTENTION_CAP, shape.attention_cap), (LOGIT_CAP, shape.logit_cap)):
            if cap is not None and key not in self.caps:
                return f"the architecture {shape.family} has no {key}"
        if shape.rope.scaling == "llama3" and not self.has_divisors:
            return f"the architecture {shape.family} has no divisors of RoPE's frequencies, which llama3 needs"
        if shape.long_rope is not None and not self.has_long:
            return f"the architecture {shape.family} has no factors of longrope"
        return None


LONG = ("rope_factors_short.weight", "rope_factors_long.weight")
ARCHITECTURES = {
    "llama": Architecture(biases=QKV | {"attn_output", "ffn_gate", "ffn_up", "ffn_down"}, has_divisors=True),
    "qwen2": Architecture(is_square=True),
    "qwen3": Architecture(parts=LAYER | HEAD_NORMS),
    "qwen3moe": Architecture(parts=LAYER | HEAD_NORMS),
    "phi3": Architecture(
        parts=frozenset({"attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_gate_up", "ffn_down"}),
        biases=frozenset({"attn_qkv"}), has_long=True, is_square=True,
    ),
    "gemma": Architecture(has_output=False),
    "gemma2": Architecture(parts=LAYER | POST_NORMS, has_output=False, has_windows=True,
                           caps=(ATTENTION_CAP, LOGIT_CAP)),
    "gemma3": Architecture(parts=LAYER | HEAD_NORMS | POST_NORMS, has_windows=True, caps=(LOGIT_CAP,)),
}  # fmt: skip
