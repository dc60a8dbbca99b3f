"""Counting conventions of different tools: the same network has a different number of operations in each.

Each rule takes a node with its shapes and the batch size and returns what the tool adds for it. Checked against the
tools themselves: thop 0.1.1 (2022), fvcore 0.1.5, ptflops 0.7.5, torchinfo 1.8.0, torch 2.15 FlopCounterMode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...base.values import check_choice
from .graph import Flow
from .layers import AddTable, BatchNorm2d, Conv2d, Layer, LayerNorm, Linear, Product, Scores, TimesMatrix
from .plain import Activation, AdaptiveAvgPool2d, AvgPool2d, MaxPool2d, Softmax

__all__ = ["CONVENTIONS"]

Rule = Callable[[Flow, int], int]


@dataclass(frozen=True)
class Convention:
    """A way to count.

    Attributes
    ----------
    name : str
    unit : {"MAC", "FLOP"}
        Unit of one count, in the tool's words; fvcore calls a multiply-add one FLOP.
    flops_per_count : int
        Operations of `Counts.flops` per count.
    leaves_out : str
        What is not counted.
    rule : callable
        (node, batch) -> count.
    """

    name: str
    unit: str
    flops_per_count: int
    leaves_out: str
    rule: Rule


def _convolves(layer: Layer) -> bool:
    """Tell whether a product is a convolution that `Conv2d` does not describe."""
    return isinstance(layer, Product) and "conv" in layer.kind.lower()


def _mac(flow: Flow, batch: int) -> int:
    return batch * flow.macs


def _thop(flow: Flow, batch: int) -> int:
    elements = batch * flow.output_elements
    match flow.layer:
        case Product() as layer if "transpose" in layer.kind.lower():
            groups, _, n, k = layer.sizes  # as if every output used every tap
            return elements * k * (n * groups // flow.output[0])
        case layer if isinstance(layer, (Conv2d, Linear)) or _convolves(layer):
            return batch * flow.macs
        case BatchNorm2d(affine=affine):
            return elements * (4 if affine else 2)
        case LayerNorm():
            return elements * 4
        case AdaptiveAvgPool2d(functional=False):
            ratio = math.prod(a / b for a, b in zip(flow.inputs[0][1:], flow.output[1:], strict=True))
            return int((ratio + 1) * elements)
        case AvgPool2d():
            return elements
    return 0


def _fvcore(flow: Flow, batch: int) -> int:
    elements = batch * flow.output_elements
    match flow.layer:
        case BatchNorm2d(affine=affine):
            return elements * (2 if affine else 1)
        case LayerNorm():
            return elements * 5
        case AdaptiveAvgPool2d():
            return batch * flow.input_elements
    return batch * flow.macs


def _ptflops(flow: Flow, batch: int) -> int:
    elements = batch * flow.output_elements
    match flow.layer:
        case Conv2d(bias=bias) | Linear(bias=bias):
            return batch * flow.macs + (elements if bias else 0)
        case layer if _convolves(layer):
            return batch * flow.macs + (elements if layer.bias_params else 0)
        case BatchNorm2d(affine=affine):
            return elements * (2 if affine else 1)
        case LayerNorm(bias=bias):
            return elements if bias else 0  # it knows torch.nn.LayerNorm, no RMSNorm
        case Activation(kind=kind, functional=functional):
            # A module is counted by its hook, and again by the patched function that it calls, if there is one.
            by_hook = kind in ("relu", "relu6", "gelu") and not functional
            # A GELU that is not a module was bound before the patch, as in transformers.
            by_patch = kind in ("relu", "silu", "relu6" if functional else "gelu")
            return elements * (by_hook + by_patch)
        case AdaptiveAvgPool2d(functional=True):
            return batch * flow.input_elements
        case AdaptiveAvgPool2d() | MaxPool2d():
            return batch * flow.input_elements * 2
        case Softmax():
            return elements
    return batch * flow.macs


def _ptflops_aten(flow: Flow, batch: int) -> int:
    layer = flow.layer
    bias = isinstance(layer, (Conv2d, Linear)) and layer.bias or _convolves(layer) and layer.bias_params
    return batch * (flow.macs + (flow.output_elements if bias else 0))


def _torchinfo(flow: Flow, batch: int) -> int:
    layer = flow.layer
    if isinstance(layer, Conv2d) or _convolves(layer):
        return batch * layer.params * math.prod(flow.output[1:])
    if isinstance(layer, Linear) and layer.shared:
        return batch * layer.in_features * layer.out_features
    if isinstance(layer, AddTable) and layer.limits:
        return layer.params  # positions are looked up once for the whole batch
    return batch * layer.params


def _torch(flow: Flow, batch: int) -> int:
    return 2 * batch * flow.macs


CONVENTIONS: Mapping[str, Convention] = {
    one.name: one
    for one in (
        Convention("mac", "MAC", 2, "all but multiply-adds of products and convolutions: bias, normalization, "
                   "activations, pooling, softmax, sums", _mac),
        Convention("flop", "FLOP", 1, "as mac, a multiply-add is two operations", _torch),
        Convention("thop", "MAC", 2, "bias, activations, max pooling, products of two activations, whatever is no "
                   "module; BatchNorm and LayerNorm 4 an element, adaptive pooling (window + 1) an output", _thop),
        Convention("fvcore", "FLOP", 1, "bias, activations, max pooling, softmax, sums; a fused multiply-add is one "
                   "FLOP, BatchNorm 2 an element, LayerNorm 5, adaptive pooling 1 an input", _fvcore),
        Convention("ptflops", "MAC", 2, "sums and products of tensors; bias counts, BatchNorm 2 an element, LayerNorm "
                   "1; a ReLU or pooling module counts twice, by hook and by patched function", _ptflops),
        Convention("ptflops-aten", "MAC", 2, "all but products and convolutions with their bias", _ptflops_aten),
        Convention("torchinfo", "MAC", 2, "products of two activations; parameters times positions for a convolution, "
                   "parameters times batch for everything else, whatever the length of a sequence", _torchinfo),
        Convention("torch", "FLOP", 1, "all but products and convolutions; a multiply-add is two FLOP", _torch),
    )
}  # fmt: skip


def convention(name: str) -> Convention:
    """Return a convention by its name; ValueError lists the names."""
    check_choice("count", "like", name, CONVENTIONS)
    return CONVENTIONS[name]


def counts_activations(flow: Flow) -> bool:
    """Tell whether fvcore counts a node's output as an activation: of a convolution or a matrix product."""
    return isinstance(flow.layer, (Conv2d, Linear, TimesMatrix)) or isinstance(flow.layer, Scores) or flow.macs > 0
