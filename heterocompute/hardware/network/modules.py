"""A network from a torch.nn.Module, for counting: shapes and parameters, never the values of the weights.

The caller has imported torch: a module cannot exist without it, and nothing here imports it. The forward pass runs once
on a sample without memory (device "meta"; on the module's own weights if that fails), and every operator that torch
dispatches becomes a node: convolutions and matrix products become our layers, any other operator a node with its shape.
Layers that the module holds but does not use are missing. A parameter that is used twice counts once.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import WrongType, WrongValue, printable, shown
from ...base.texts import sentence, shortened
from .aten import Refusal
from .graph import Network, check_shape
from .recorder import Recorder

PACKED_TABLES = ("PackedEmbedding", "PackedEmbeddingBag")
TOKENS = ("ids", "mask")  # ends of the names of inputs with integers


def read_module(module: Any, input_shape: Sequence[int] | None, training: int = 0, inputs: object = None) -> Network:
    """Return the network of a torch.nn.Module.

    Parameters
    ----------
    module : torch.nn.Module
        With one input: floats, or tokens where `input_shape` has one axis and the module an embedding.
    input_shape : sequence of int
        Of one sample, without a batch.
    inputs : tuple, list or dict, optional
        In place of `input_shape`, for modules with several inputs: see `Inputs`.
    training : int, optional
        Samples, 1 or 2, to run the module on as it is trained, to note what a backward pass needs; batch normalization
        runs as in evaluation, since one sample has no statistics. Axes of one sample can be merged without a copy
        that more samples need.

    Raises
    ------
    ValueError
        There is no shape, the forward pass fails on it, or an operator multiplies in an unsupported way.
    """
    torch, name = sys.modules["torch"], type(module).__name__
    module = _plain(torch, module, name)
    if inputs is not None and input_shape is not None:
        raise WrongValue("inputs and input_shape are both given, expected one of them")
    if input_shape is None and inputs is None:
        raise WrongValue(f"input_shape is missing: {name}, a torch.nn.Module, needs the shape of one sample")
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    reads = any(isinstance(one, tables) or type(one).__name__ in PACKED_TABLES for one in module.modules())
    floats = next((p.dtype for p in module.parameters() if p.dtype.is_floating_point), torch.float32)
    given = None if inputs is None else Inputs(torch, inputs, floats, reads)
    shape = check_shape(input_shape or ()) if given is None else given.shape
    dtype = torch.int64 if reads and len(shape) == 1 else floats
    place = next((p.device for p in module.parameters()), "cpu")
    # The module's own device if the forward pass reads values or creates tensors on another device.
    tries = [(records_saved, device) for records_saved in range(training, -1, -1) for device in ("meta", place)]
    for records_saved, device in tries:
        try:
            with _at_rest(torch, module, records_saved > 0):
                found = Recorder(torch, module, shape, dtype, device, records_saved, given)
            break
        except Refusal:
            raise
        except Exception as error:  # the module may raise any exception for such a sample
            if (records_saved, device) == tries[-1]:
                what = f"input_shape {shown(shape)} does" if given is None else "inputs do"
                raise WrongValue(f"{name}: {what} not run: {sentence(error)}") from None
    note = "read from a torch.nn.Module"
    return Network(name, tuple(found.nodes), shape, note, found.frozen, found.prepared)


class Inputs:
    """The inputs of a module: tensors or shapes, by position or by name.

    Parameters
    ----------
    torch : module
    given : tuple, list or dict
        Arrays as the module takes them, with a batch of one, or shapes of one sample, without a batch.
    floats : torch.dtype
        Of inputs that only have a shape.
    reads : bool
        The module looks up tokens: a shape with one axis has integers.

    Attributes
    ----------
    shape : tuple of int
        Of one sample of the first input.
    """

    def __init__(self, torch: Any, given: object, floats: object, reads: bool) -> None:
        if not isinstance(given, (tuple, list, Mapping)) or not given:
            raise WrongType(f"inputs is {shown(given)}, expected a tuple or a dict of arrays or shapes")
        pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
        self.torch, self.is_named = torch, isinstance(given, Mapping)
        self.values = {key: self._tensor(key, one, floats, reads) for key, one in pairs}
        first = next((one for one in self.values.values() if isinstance(one, torch.Tensor)), None)
        if first is None:
            raise WrongValue(f"inputs is {shown(given)}, expected an array or a shape among them")
        if first.dim() == 0 or first.shape[0] != 1:
            raise WrongValue(f"inputs has the shape {tuple(first.shape)} first, expected a batch of 1")
        self.shape = check_shape(tuple(map(int, first.shape[1:])) or (1,))

    def _tensor(self, key: object, value: object, floats: object, reads: bool) -> Any:
        torch = self.torch
        if value is None or isinstance(value, (bool, str)) or isinstance(value, torch.Tensor):
            return value
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.ascontiguousarray(value))
        if isinstance(value, (tuple, list)) and all(type(one) is int for one in value):
            shape = check_shape(value)
            tokens = f"{key}".endswith(TOKENS) or reads and len(shape) == 1
            return torch.zeros((1, *shape), dtype=torch.int64 if tokens else floats)
        raise WrongType(f"inputs has {shown(value)} for {shown(key)}, expected an array or a shape of integers")

    def placed(self, device: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments and keywords of a call, with new tensors on a device."""
        inputs_by_type: dict[Any, Any] = {
            key: one.detach().to(device, copy=True) if isinstance(one, self.torch.Tensor) else one
            for key, one in self.values.items()
        }
        args: tuple[Any, ...] = () if self.is_named else tuple(inputs_by_type.values())
        return args, inputs_by_type if self.is_named else {}


def _plain(torch: Any, module: Any, name: str) -> Any:
    """Return the innermost module of wrappers that only pass inputs on; refuse scripted ones, which take no hooks."""
    while isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        module = module.module
    for path, one in module.named_modules():
        if isinstance(one, torch.jit.ScriptModule):
            place = f"its {printable(shortened(path))}" if path else "it"
            raise WrongValue(f"{name}: {place} is made by torch.jit, expected the module that it was made of")
    return module


@contextlib.contextmanager
def _at_rest(torch: Any, module: Any, training: bool) -> Iterator[None]:
    """Set the mode of a module and of torch, and restore both, with the attributes that the forward pass sets."""
    before = [(one, dict(vars(one))) for one in module.modules()]
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    attend = torch.nn.functional.scaled_dot_product_attention
    try:
        with contextlib.suppress(NotImplementedError):  # torch.export has fixed the mode
            module.train(training)
        for one in module.modules():
            if isinstance(one, torch.nn.modules.batchnorm._NormBase):
                one.eval()
        torch.backends.mha.set_fastpath_enabled(False)  # it would hide a whole block in one operator
        torch._C._set_mkldnn_enabled(False)  # it would do the same with recurrent layers
        if training:
            torch.nn.functional.scaled_dot_product_attention = _fused(torch, attend)
        with torch.inference_mode(False), torch.set_grad_enabled(training):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch._C._set_mkldnn_enabled(onednn)
        torch.nn.functional.scaled_dot_product_attention = attend
        for one, attributes in before:
            vars(one).clear()
            vars(one).update(attributes)


def _fused(torch: Any, attend: Callable[..., Any]) -> Callable[..., Any]:
    """Return attention as one operator with the tensors that a fused kernel keeps; otherwise torch decomposes it."""

    def fused(q: Any, k: object, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
              scale: object = None, enable_gqa: bool = False) -> Any:  # fmt: skip
        masked = attn_mask is not None
        apart = q.dim() != 4 or dropout_p or q.shape[-1] != v.shape[-1] or masked and attn_mask.requires_grad
        if apart or q.device.type != "meta":
            return attend(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if masked and attn_mask.dtype == torch.bool:
            attn_mask = attn_mask.new_zeros(attn_mask.shape, dtype=q.dtype)
        one = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return one(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]

    return fused
