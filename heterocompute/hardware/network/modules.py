"""A network from a torch.nn.Module, for counting: shapes and parameters, never the values of the weights.

torch is the caller's: a module cannot exist without it, and nothing here imports it. The forward pass runs once on a
sample without memory (device "meta"; on the module's own weights where that fails), and every operator that torch
dispatches becomes a node: convolutions and matrix products layers of ours, any other one a node with its shape. Layers
that the module holds and does not use are not there. A parameter that is used twice counts once.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ...base.texts import sentence
from ...base.values import shown
from .graph import Network, check_shape
from .recorder import Recorder, Refusal

__all__ = ["read_module"]


def read_module(module: Any, input_shape: Sequence[int] | None, training: bool = False) -> Network:
    """Return the network of a torch.nn.Module.

    Parameters
    ----------
    module : torch.nn.Module
        With one input: floats, or tokens where `input_shape` has one axis and the module an embedding.
    input_shape : sequence of int
        Of one sample, without a batch.
    training : bool, optional
        Run the module as it is trained, and note what a backward pass needs; batch normalization as in evaluation,
        since one sample has no statistics.

    Returns
    -------
    Network

    Raises
    ------
    ValueError
        No shape, a forward pass that fails on it, an operator that multiplies in a way that is not read.
    """
    torch, name = sys.modules["torch"], type(module).__name__
    if input_shape is None:
        raise ValueError(f"input_shape is missing: {name}, a torch.nn.Module, needs the shape of one sample")
    shape = check_shape(input_shape)
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    tokens = len(shape) == 1 and any(isinstance(one, tables) for one in module.modules())
    dtype = next((p.dtype for p in module.parameters() if p.dtype.is_floating_point), torch.float32)
    dtype = torch.int64 if tokens else dtype
    place = next((p.device for p in module.parameters()), "cpu")
    # The module's own device where the forward pass looks at values or makes tensors on a device of its own.
    tries = [(mode, device) for mode in ([True, False] if training else [False]) for device in ("meta", place)]
    for mode, device in tries:
        try:
            with _at_rest(torch, module, mode):
                found = Recorder(torch, module, shape, dtype, device, mode)
            break
        except Refusal:
            raise
        except Exception as error:  # whatever the module raises on such a sample
            if (mode, device) == tries[-1]:
                raise ValueError(f"{name}: input_shape {shown(shape)} does not run: {sentence(error)}") from None
    note = "read from a torch.nn.Module"
    return Network(name, tuple(found.nodes), shape, note, found.frozen, found.prepared)


@contextlib.contextmanager
def _at_rest(torch: Any, module: Any, training: bool) -> Iterator[None]:
    """Set the mode of a module and of torch, and put both back, attributes that the forward pass sets included."""
    before = [(one, dict(vars(one))) for one in module.modules()]
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    try:
        module.train(training)
        for one in module.modules():
            if isinstance(one, torch.nn.modules.batchnorm._NormBase):
                one.eval()
        torch.backends.mha.set_fastpath_enabled(False)  # it hides a whole block in one operator
        torch._C._set_mkldnn_enabled(False)  # it does so with recurrent layers
        with torch.inference_mode(False), torch.set_grad_enabled(training):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch._C._set_mkldnn_enabled(onednn)
        for one, attributes in before:
            vars(one).clear()
            vars(one).update(attributes)
