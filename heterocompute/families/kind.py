"""The records of a ``model_type``: its keys in config.json, windows and experts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Windows:
    """The keys of config.json for layers with a sliding window, whose size is ``sliding_window``.

    Attributes
    ----------
    every : bool
        Every layer has the window.
    is_switched : bool
        There is a window only with ``use_sliding_window``.
    is_listed : bool
        ``layer_types`` decides where it is given; with `every` it must agree.
    is_late, is_early : bool
        Layers from ``max_window_layers`` on have the window; every second one before has it.
    period : int
        Every `period`-th layer sees all positions.
    period_key : str
        Key that replaces `period`.
    by_rope : bool
        Layers without rotary positions have the window: ``no_rope_layers``, else ``no_rope_layer_interval``.
    """

    every: bool = False
    is_switched: bool = False
    is_listed: bool = False
    is_late: bool = False
    is_early: bool = False
    period: int = 0
    period_key: str = ""
    by_rope: bool = False


@dataclass(frozen=True)
class Experts:
    """The keys of config.json for experts; their number is in any of the keys that transformers knows.

    Attributes
    ----------
    count : int
        Default number of experts.
    key : str
        Key of the number of experts in files of transformers.
    hidden : str
        Key of the hidden width of an expert.
    dense : {"", "first", "step"}
        Layers with one dense feed-forward part instead: the first ``first_k_dense_replace`` layers; or those of
        ``mlp_only_layers`` and all but every ``decoder_sparse_step``-th.
    shared : {"", "count", "width"}
        Experts that every token uses: ``n_shared_experts``, or the width ``shared_expert_intermediate_size``.
    is_shared_gated : bool
        A gate scales the shared experts.
    shares : str
        Flag that the shares of the used experts sum to 1; "": they always do.
    are_raw : bool
        The shares of the used experts do not sum to 1, whatever a flag says.
    router : {"softmax", "sigmoid", "mixer"}
        Function of the scores of experts; `mixer` is that of Phi-3.5-MoE, for two experts.
    factor : str
        Key of the factor of all shares.
    is_corrected : bool
        A bias per expert changes which experts are used, but not their shares.
    has_groups : bool
        Only the experts of the best groups are used (``n_group``, ``topk_group``).
    is_interleaved : bool
        Rows of gate and up alternate.
    is_joined : bool
        A checkpoint has stacks of all experts, with gate and up in one; otherwise a matrix of each expert.
    block, parts : str, tuple of str
        Names of listed experts in a checkpoint: ``layers.3.BLOCK.experts.5.PART.weight``, for gate, up and down.
    """

    count: int
    hidden: str = "intermediate_size"
    key: str = "num_experts"
    dense: Literal["", "first", "step"] = ""
    shared: Literal["", "count", "width"] = ""
    is_shared_gated: bool = False
    shares: str = ""
    are_raw: bool = False
    router: Literal["softmax", "sigmoid", "mixer"] = "softmax"
    factor: str = ""
    is_corrected: bool = False
    has_groups: bool = False
    is_interleaved: bool = False
    is_joined: bool = False
    block: str = "mlp"
    parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Mixture:
    """The experts that llama.cpp computes in an architecture.

    Attributes
    ----------
    has_width : bool
        The hidden width of an expert has a key of its own; otherwise it is ``feed_forward_length``.
    sums : {"always", "never", "key"}
        The shares of the used experts sum to 1.
    router : {"softmax", "sigmoid", "key"}
        Function of the scores; `key`: ``expert_gating_func`` has it.
    shared : {"", "count", "width"}
        Experts that every token uses: their number, or their width.
    is_scaled : bool
        All shares have a factor (``expert_weights_scale``).
    is_corrected : bool
        A bias per expert changes which experts are used, with a sigmoid.
    has_groups : bool
        Only the experts of the best groups are used (``expert_group_count``, ``expert_group_used_count``).
    has_dense : bool
        The first layers may be dense (``leading_dense_block_count``).
    clamp : tuple of float or None
        alpha and limit: the activation is that of gpt-oss.
    """

    has_width: bool = True
    sums: Literal["always", "never", "key"] = "always"
    router: Literal["softmax", "sigmoid", "key"] = "softmax"
    shared: Literal["", "count", "width"] = ""
    is_scaled: bool = False
    is_corrected: bool = False
    has_groups: bool = False
    has_dense: bool = False
    clamp: tuple[float, float] | None = None

    @property
    def keys(self) -> set[str]:
        """Return the keys that are read, beyond those of every family."""
        found = {"expert_shared_count"} if self.shared == "count" else set[str]()
        found |= {"expert_shared_feed_forward_length"} if self.shared == "width" else set()
        found |= {"expert_weights_scale"} if self.is_scaled else set()
        found |= {"expert_weights_norm"} if self.sums == "key" else set()
        found |= {"expert_gating_func"} if self.router != "softmax" else set()
        found |= {"expert_group_count", "expert_group_used_count"} if self.has_groups else set()
        return found | ({"leading_dense_block_count"} if self.has_dense else set())


@dataclass(frozen=True)
class Kind:
    """One ``model_type`` of a family.

    Attributes
    ----------
    name : str
        The value of ``model_type``.
    defaults : mapping of str to Any
        Values of missing keys, as in transformers, where they differ from those of Llama.
    keys : mapping of str to tuple of str
        Usual key -> its names here, the first that is found counts.
    reads : collection of str
        Keys that are read, beyond those of every family.
    biases : mapping of str to tuple of str
        Flag -> the matrices to which it gives a bias; "": biases that the model always has.
    windows : Windows or None
    experts : Experts or None
    hidden : int
        Default of the hidden width, in widths of the model; 0: the key is required.
    activations : tuple of str
        Further names of the activation.
    end : int or None
        Default token that ends texts.
    is_rebuilt : bool
        transformers opens a folder that names LlamaTokenizer with the tokens of that tokenizer.
    turned : {"", "conv1d", "experts"}
        Weights stored as (in, out): those of the module Conv1D, or stacks of experts.
    title : str
        Name of the class of transformers without its ending; default: the name of the family.
    base : float
        RoPE's base where config.json has none; 0: that of the family.
    has_local_rope : bool
        Layers with a window have other parameters of RoPE.
    implied : callable or None
        Returns the values of usual keys that follow from several others, which are its argument.
    stated : callable or None
        Returns keys of config.json that follow from a `Shape`, for a folder made of a GGUF file.
    variant : callable or None
        Returns the name of the family, if values of config.json choose one of several.
    factors : mapping of str to str
        Keys of factors -> their meaning: ``embedding``, ``residual`` (of what a part of a layer adds), ``attention``
        (of scores), ``logits``, or ``logits divided`` for their inverse.
    """

    name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reads: Collection[str] = ()
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    windows: Windows | None = None
    experts: Experts | None = None
    hidden: int = 0
    activations: tuple[str, ...] = ()
    end: int | None = None
    is_rebuilt: bool = False
    turned: Literal["", "conv1d", "experts"] = ""
    title: str = ""
    base: float = 0.0
    has_local_rope: bool = False
    implied: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    stated: Callable[[Any], Mapping[str, Any]] | None = None
    variant: Callable[[Mapping[str, Any]], str] | None = None
    factors: Mapping[str, str] = field(default_factory=dict)

    def read_keys(self) -> set[str]:
        """Return the keys that are read, beyond those of every kind."""
        found = {*self.reads, *self.biases, *self.factors, *(name for names in self.keys.values() for name in names)}
        if (windows := self.windows) is not None:
            found |= {"sliding_window", windows.period_key}
            found |= {"use_sliding_window"} if windows.is_switched else set()
            found |= {"layer_types"} if windows.is_listed else set()
            found |= {"max_window_layers"} if windows.is_late or windows.is_early else set()
            found |= {"no_rope_layers", "no_rope_layer_interval"} if windows.by_rope else set()
        if (experts := self.experts) is not None:
            found |= {"num_local_experts", "num_experts", "num_experts_per_tok", experts.hidden, experts.shares}
            found |= {"n_routed_experts", experts.factor}
            found |= {"decoder_sparse_step", "mlp_only_layers"} if experts.dense == "step" else set()
            found |= {"first_k_dense_replace"} if experts.dense == "first" else set()
            found |= {"n_shared_experts"} if experts.shared == "count" else set()
            found |= {"shared_expert_intermediate_size"} if experts.shared == "width" else set()
            found |= {"n_group", "topk_group"} if experts.has_groups else set()
            found |= {"router_jitter_noise"} if experts.router == "mixer" else set()
        return found - {""}
