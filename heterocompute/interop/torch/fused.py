"""Blocks of encoders that run as one call of the C core: `fuse`.

    x = after(x + out(attention(norm(x) Q, K, V)))
    x = after(x + down(act(up(norm(x)))))

A block keeps its modules, so that names, states and hooks stay. A call that one of them, a gradient, a mask or another
argument would observe runs module by module as before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ... import _heterocompute as _core
from ...arrays.components import core_format, layout_of
from ...base import runtime
from ...base.errors import WrongType, WrongValue, shown
from ...base.texts import sentence
from ...products.arguments import as_format
from ...products.layers.transformer import GATES
from ..models.batches import evaluating
from .carrying import copied, own_function
from .chains.network import fuse_network, has_convolutions
from .operators import is_unobserved
from .weights import PackedWeight

_all_hooks = torch.nn.modules.module
NO_NORM = (None, None)
_classes: dict[Any, Any] = {}
# Attributes of a block and of its modules that its result depends on; others are modules and tensors
NUMBERS = (
    "eps", "scaling", "num_heads", "num_attention_heads", "head_dim", "is_causal", "is_decoder", "norm_first",
    "batch_first", "activation", "intermediate_act_fn", "activation_fn",
)  # fmt: skip
ATTENTION = "_attn_implementation_internal"  # of a configuration of transformers
KINDS = ("eager", "sdpa", None)
LIBRARIES = ("torch", "transformers", __name__.partition(".")[0])
LARGEST = 0.05  # difference to the block's own steps, of the largest output: rounded activations may move by a code


class Linear(NamedTuple):
    """A packed linear layer: the module and the names of its weight and bias."""

    module: Any
    weight: str = "weight"
    bias: str = "bias"


class Parts(NamedTuple):
    """The parts of a block; norms before and after the two sums, of which either pair may be None."""

    heads: int
    scale: float
    qkv: tuple[Linear, ...]  # one of all three, or three
    out: Linear
    up: Linear
    down: Linear
    act: Any
    before: tuple[Any, Any] = NO_NORM
    after: tuple[Any, Any] = NO_NORM


def _bert(block: Any) -> Parts | None:
    attention, own = block.attention, block.attention.self
    if block.is_decoder or block.add_cross_attention or own.is_causal:
        return None
    return Parts(
        own.num_attention_heads, own.scaling, (Linear(own.query), Linear(own.key), Linear(own.value)),
        Linear(attention.output.dense), Linear(block.intermediate.dense), Linear(block.output.dense),
        block.intermediate.intermediate_act_fn, NO_NORM, (attention.output.LayerNorm, block.output.LayerNorm),
    )  # fmt: skip


def _vit(block: Any) -> Parts | None:
    own, mlp = block.attention, block.mlp
    return Parts(
        own.num_attention_heads, own.scaling, (Linear(own.q_proj), Linear(own.k_proj), Linear(own.v_proj)),
        Linear(own.o_proj), Linear(mlp.fc1), Linear(mlp.fc2), mlp.activation_fn,
        (block.layernorm_before, block.layernorm_after),
    )  # fmt: skip


def _torch(block: Any) -> Parts | None:
    own, norms = block.self_attn, (block.norm1, block.norm2)
    if not own.batch_first or not own._qkv_same_embed_dim or own.bias_k is not None or own.add_zero_attn:
        return None
    return Parts(
        own.num_heads, own.head_dim**-0.5, (Linear(own, "in_proj_weight", "in_proj_bias"),), Linear(own.out_proj),
        Linear(block.linear1), Linear(block.linear2), block.activation,
        *((norms, NO_NORM) if block.norm_first else (NO_NORM, norms)),
    )  # fmt: skip


def _of_transformers(family: str, name: str) -> str:
    return f"transformers.models.{family}.modeling_{family}.{name}"


KNOWN: dict[str, Callable[[Any], Parts | None]] = {
    _of_transformers("bert", "BertLayer"): _bert,
    _of_transformers("roberta", "RobertaLayer"): _bert,
    _of_transformers("xlm_roberta", "XLMRobertaLayer"): _bert,
    _of_transformers("camembert", "CamembertLayer"): _bert,
    _of_transformers("electra", "ElectraLayer"): _bert,
    _of_transformers("vit", "ViTLayer"): _vit,
    _of_transformers("deit", "DeiTLayer"): _vit,
    "torch.nn.modules.transformer.TransformerEncoderLayer": _torch,
}
STACKS = {_of_transformers(*one) for one in (
    ("bert", "BertEncoder"), ("roberta", "RobertaEncoder"), ("xlm_roberta", "XLMRobertaEncoder"),
    ("camembert", "CamembertEncoder"), ("electra", "ElectraEncoder"),
)}  # fmt: skip
ACTS = {
    "torch.nn.modules.activation.ReLU": "relu", "torch.nn.functional.relu": "relu",
    "torch.nn.modules.activation.SiLU": "silu", "transformers.activations.SiLUActivation": "silu",
    "transformers.activations.GELUActivation": "gelu_erf", "transformers.activations.NewGELUActivation": "gelu",
    "transformers.activations.GELUTanh": "gelu",
}  # fmt: skip


def _name_of(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _act_of(act: Any) -> str | None:
    """Return the key of `GATES` of an activation, a module or a function; None if it has none."""
    if act is torch.nn.functional.gelu:
        return "gelu_erf"
    if type(act) is torch.nn.GELU:
        return "gelu" if act.approximate == "tanh" else "gelu_erf"
    if isinstance(act, torch.nn.Module):
        return ACTS.get(_name_of(type(act)))
    return ACTS.get(f"{getattr(act, '__module__', '')}.{getattr(act, '__name__', '')}")


def _configurations(module: Any) -> list[dict[str, Any]]:
    """Return the attributes of the configurations of transformers that a module and its modules have."""
    found = (getattr(getattr(one, "config", one), "__dict__", {}) for one in module.modules())
    return [*{id(one): one for one in found if ATTENTION in one}.values()]


class Block:
    """The arguments of the C core for a block, made of the present memory of its parts."""

    def __init__(self, module: Any, parts: Parts) -> None:
        every = [*module.modules()]
        self.inner = [vars(one) for one in every[1:] if not isinstance(one, PackedWeight)]
        self.children = [(one, type(one), (*one._modules.values(),)) for one in every if one._modules]
        self.plain = [(vars(one), name, vars(one)[name]) for one in every for name in NUMBERS if name in vars(one)]
        self.plain += [(one, ATTENTION, one[ATTENTION]) for one in _configurations(module)]
        linears = [*parts.qkv, parts.out, parts.up, parts.down]
        self.weights = [one.module._modules[one.weight] for one in linears]
        self.arrays = [one.array() for one in self.weights]
        self.tensors: list[tuple[Any, str, Any, int]] = []
        biases = [self._floats(one.module, one.bias) for one in linears]
        norms = [None if one is None else (self._floats(one, "weight"), self._floats(one, "bias"))
                 for one in (*parts.before, *parts.after)]  # fmt: skip
        first, second, last, end = (one or NO_NORM for one in norms)
        epsilon = next(one.eps for one in (*parts.before, *parts.after) if one is not None)
        activations = self.weights[0].activations
        self.format = None if activations is None else core_format(as_format(activations, "fuse"))
        q, hidden = self.arrays[-3].shape[1], self.arrays[-2].shape[0]
        self.width, d = self.arrays[-3].shape[0], q // parts.heads
        numbers = (parts.heads, parts.heads, d, hidden, max(d // 2, 1), False, GATES[_act_of(parts.act) or ""], True,
                   False, 0, 0, 0, True)  # fmt: skip
        n = len(parts.qkv)
        placed = [(*one[:n], None) if n == 3 else (None, None, None, *one[:n]) for one in (self.arrays, biases)]
        weights, offsets = (
            (*first_four, one[n], None, one[n + 1], None, one[n + 2])
            for first_four, one in zip(placed, (self.arrays, biases), strict=True)
        )
        self.arguments: Any = (
            numbers, (epsilon, parts.scale, 0.0, 1.0),
            *((first[i], None, None, None, second[i], None, last[i], end[i]) for i in range(2)),
            weights, offsets, *[None] * 9, 0,
        )  # fmt: skip

    def _floats(self, module: Any, name: str) -> Any:
        """Return a parameter as an ndarray that shares its memory, None if there is none."""
        tensor = module._parameters.get(name)
        if tensor is None:
            return None
        self.tensors.append((module._parameters, name, tensor, tensor.data_ptr()))
        return tensor.detach().numpy()

    def is_current(self) -> bool:
        """Tell whether modules and numbers are those of then, and weights and parameters have the same memory."""
        for one, kind, children in self.children:
            if type(one) is not kind or (*one._modules.values(),) != children:
                return False
        for holder, name, value in self.plain:
            if holder.get(name) is not value:
                return False
        for holder, name, tensor, address in self.tensors:
            if holder.get(name) is not tensor or tensor.data_ptr() != address:
                return False
        return all(one.array() is kept for one, kept in zip(self.weights, self.arrays, strict=True))

    def is_observed(self) -> bool:
        """Tell whether an inner module has to be called: for a hook, a function of its own, or dropout."""
        for own in self.inner:
            if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["training"] or "forward" in own:
                return True
        return False


def _input_of(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the states that a module is called with if one call of the core can compute it, else None."""
    x: Any = args[0] if args else kwargs.get("hidden_states", kwargs.get("src"))
    if module.training or any(one is not None and one is not False for one in args[1:]):
        return None
    if any(one is not None and one is not False and one is not x for one in kwargs.values()):
        return None
    if type(x) is not torch.Tensor or x.dtype is not torch.float32 or not x.is_cpu or not is_unobserved(x):
        return None
    if x.dim() != 3 or not x.numel() or x.is_neg() or torch.is_autocast_enabled("cpu") or runtime.tuned():
        return None
    if _all_hooks._global_forward_hooks or _all_hooks._global_forward_pre_hooks:
        return None
    return None if runtime.backend_device() is not None else x.detach().contiguous().numpy()


class Fused:
    """The forward of a fused block: `fuse` adds it to the class of the block."""

    _block: Block | None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the block in one call, or as its own class does."""
        x = _input_of(self, args, kwargs)
        answer = None if x is None else _run(x, [self])
        return super().forward(*args, **kwargs) if answer is None else answer  # type: ignore[misc]

    def _ready(self, width: int) -> Block | None:
        """Return the arguments of the core for states of a width, None if the block has to run step by step."""
        block = self._block
        if block is None or not block.is_current():
            parts = parts_of(self)
            if isinstance(parts, str):
                return None
            block = self._block = Block(self, parts)
        if width != block.width or block.is_observed() or self.training:  # type: ignore[attr-defined]
            return None
        if torch.is_grad_enabled() and any(one[2].requires_grad for one in block.tensors):
            return None
        return block

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _remade, (type(self).__mro__[2],), {**self.__dict__, "_block": None}


class FusedStack:
    """The forward of a stack of fused blocks of transformers, whose other steps return the states."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run all blocks in one call, or as the class of the stack does."""
        x = _input_of(self, args, kwargs)
        blocks = None if x is None else [*self.layer]  # type: ignore[attr-defined]
        if blocks and not any(
            one._forward_hooks or one._forward_pre_hooks or "forward" in vars(one)
            for one in (*blocks, self.layer)  # type: ignore[attr-defined]
        ):
            answer = _run(x, blocks)
            if answer is not None:
                return sys.modules[type(self).__module__].BaseModelOutputWithPastAndCrossAttentions(answer)
        return super().forward(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _remade, (type(self).__mro__[2],), self.__dict__


def _run(x: Any, modules: list[Any]) -> Any:
    """Return the states after some blocks, or None if one of them does not run in this way."""
    ready = [one._ready(x.shape[2]) if isinstance(one, Fused) else None for one in modules]
    first = ready[0]
    if first is None or any(one is None or one.format != first.format for one in ready):
        return None
    found, done = _core.llm_layers(runtime.run(), first.format, x, [one.arguments for one in ready if one is not None])
    return torch.from_numpy(found) if done == len(ready) else None


def _class_of(kind: Any) -> Any:
    """Return the class of a fused block or stack of a class."""
    if kind not in _classes:
        mixed = FusedStack if _name_of(kind) in STACKS else Fused
        own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _classes[kind] = type(kind.__name__, (mixed, kind), own)
    return _classes[kind]


def _remade(kind: Any) -> Any:
    made = _class_of(kind)
    return made.__new__(made)


def parts_of(block: Any) -> Parts | str:
    """Return the parts of a block, or the reason why it has none that one call computes."""
    kind = type(block).__mro__[2] if isinstance(block, Fused) else type(block)
    try:
        found = KNOWN[_name_of(kind)](block)
    except AttributeError as problem:
        return f"its class differs from the known one: {sentence(problem)}"
    if found is None:
        return "it is no block of an encoder"
    for one in [*block.modules()][1:]:
        if own_function(one):
            return f"forward of its {type(one).__name__} was replaced"
        if type(one).__module__.partition(".")[0] not in LIBRARIES:
            return f"it has a layer of class {type(one).__name__}"
    if any(one[ATTENTION] not in KINDS for one in _configurations(block)):
        return "its attention is not that of transformers"
    for one in (*found.qkv, found.out, found.up, found.down):
        if not isinstance(one.module._modules.get(one.weight), PackedWeight):
            return "not all of its linear layers are packed"
        if type(one.module).__name__ not in ("PackedLinear", "PackedMultiheadAttention"):
            return f"it has a layer of class {type(one.module).__name__}"
    weights = [one.module._modules[one.weight] for one in (*found.qkv, found.out, found.up, found.down)]
    if any(one.device.type != "cpu" for one in weights):
        return "it is not on the CPU"
    if len({one.activations for one in weights}) > 1:
        return "its layers round their inputs to different formats"
    norms = [one for one in (*found.before, *found.after) if one is not None]
    if any(type(one) is not torch.nn.LayerNorm or one.weight is None for one in norms) or not norms:
        return "it has norms other than LayerNorm with weights"
    if len({one.eps for one in norms}) > 1:
        return "its norms differ in epsilon"
    if _act_of(found.act) is None:
        return "its activation is not gelu, relu or silu"
    floats = [part for one in norms for part in one.parameters()]
    floats += [one.module._parameters[one.bias] for one in (*found.qkv, found.out, found.up, found.down)
               if one.module._parameters.get(one.bias) is not None]  # fmt: skip
    if any(one.dtype is not torch.float32 or not one.is_cpu or not one.is_contiguous() for one in floats):
        return "its norms and biases are not contiguous float32 on the CPU"
    return found


def _joined(linears: tuple[Linear, ...]) -> None:
    """Put weights that multiply the same input one after the other in memory, so that they are one matmul."""
    weights = [one.module._modules[one.weight] for one in linears]
    arrays = [one.array() for one in weights]
    first = arrays[0]
    same = len({id(one) for one in weights}) == len(weights) > 1
    if not same or any(one.format != first.format or one.shape[1:] != first.shape[1:] for one in arrays[1:]):
        return
    layout = layout_of(first.format, first.shape, first.axis)
    if first.axis != (1,) or not first.format.splits_into_rows or not all(kept[2] for kept in layout.values()):
        return
    for name in first.components:
        parts = [one._buffers[name] for one in weights]
        whole, at = torch.cat(parts), 0
        for one, part in zip(weights, parts, strict=True):
            one._buffers[name] = whole[at : at + len(part)]
            at += len(part)


def _blocks_in(model: Any) -> Iterator[tuple[str, Any]]:
    for path, module in model.named_modules():
        if not isinstance(module, Fused) and _name_of(type(module)) in KNOWN:
            yield path, module


def fuse(model: Any, *, inplace: bool = False, inputs: Any = None) -> Any:
    """Let blocks of encoders and runs of convolutions run as one call each, with all steps between their packed layers.

    Parameters
    ----------
    model : torch.nn.Module
        A model of `convert`, in evaluation mode. Blocks are those of BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA,
        ViT and DeiT of transformers, and `torch.nn.TransformerEncoderLayer` with ``batch_first=True``. All linear
        layers of a block are packed, with one format of activations.
    inplace : bool
        Change the model itself. By default the blocks of a copy are changed.
    inputs : torch.Tensor, optional
        Images (N, C, H, W) for a model of convolutions, whose steps are recorded with them. Runs of convolutions become
        one call each, with zero padding, sums, ReLU, ReLU6 and other limits between them. Their inputs are rounded:
        ``activations`` of `convert` are integers, such as ``"int8"``. PyTorch runs the other steps.

    Returns
    -------
    torch.nn.Module
        The copy, or the model. Names of modules, state_dict and hooks are those of before. Attention, norms and
        activations are those of `heterocompute.attention` and `heterocompute.layers`, so that results differ from
        those of PyTorch's functions by rounding, and have the same bits on every machine and with every number of
        threads. A call with a mask, in training, with gradients, under autocast, or with hooks, a replaced ``forward``
        or dropout inside of a block runs module by module. Runs of convolutions have the bits of their modules. Images
        of another shape or of other strides are recorded at their first call.

    Raises
    ------
    TypeError
        The model is not a module.
    ValueError
        The model has no such block; the message has the reason for the first.

    Examples
    --------
    >>> from heterocompute.interop.torch import convert
    >>> block = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    >>> small = fuse(convert(block, "int8", activations="int8"))
    >>> with torch.inference_mode():
    ...     small(torch.ones(1, 5, 32)).shape
    torch.Size([1, 5, 32])
    """
    if not isinstance(model, torch.nn.Module):
        raise WrongType(f"fuse: model is {shown(model)}, expected a torch.nn.Module")
    if not inplace:
        with torch.inference_mode(False):  # tensors with versions
            model = copied(model, {}, (), "fuse")
    reasons, count = [], 0
    if inputs is not None:
        if not has_convolutions(model):
            raise WrongValue("fuse: inputs are images, but the model has no packed convolutions of images")
        reason = fuse_network(model, inputs)
        if reason:
            raise WrongValue(f"fuse: {type(model).__name__}: {reason}")
        return model
    for path, block in [*_blocks_in(model)]:
        parts = "its forward was replaced" if own_function(block) else parts_of(block)
        reason = parts if isinstance(parts, str) else _fuse_one(block, parts)
        if reason:
            reasons.append(f"{path or type(block).__name__}: {reason}")
        count += not reason
    for stack in [one for one in model.modules() if _name_of(type(one)) in STACKS and not own_function(one)]:
        if not isinstance(stack, FusedStack) and all(isinstance(one, Fused) for one in stack.layer):
            stack.__class__ = _class_of(type(stack))
    if not count:
        why = f": {reasons[0]}" if reasons else ""
        if any(isinstance(one, Fused) for one in model.modules()):
            why = " and is not fused already"
        elif has_convolutions(model):
            why = f"{why}; for its convolutions, pass images as inputs="
        raise WrongValue(f"fuse: the model has no block that one call computes{why}")
    return model


def _fuse_one(block: Any, parts: Parts) -> str:
    """Change the class of a block; return the reason if its own steps have another result."""
    if any(one._forward_hooks or one._forward_pre_hooks for one in [*block.modules()][1:]):
        return "its layers have hooks: fuse the model first, and then add them"
    _joined(parts.qkv)
    kind = type(block)
    block.__class__, block._block = _class_of(kind), None
    width = parts.out.module._modules["weight"].shape[0]
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 5, width), dtype=np.float32))
    with evaluating(block):
        found = _run(x.numpy(), [block])
        wanted = None if found is None else kind.forward(block, x)
    if found is None or not isinstance(wanted, torch.Tensor):
        reason = "the core refuses its layers"
    elif not bool((found - wanted).abs().max() <= LARGEST * wanted.abs().max()):
        reason = "its own steps have another result"
    else:
        return ""
    block.__class__ = kind
    del block._block
    return reason
