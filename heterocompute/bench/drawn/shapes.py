"""Shapes of layers: those of the networks of `hardware.networks`, and of layers that none of them has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ...hardware.network.builtin import networks
from ...hardware.network.graph import Flow
from ...hardware.network.layers import Conv2d, LayerNorm, Linear, Scores
from ...hardware.network.windows import pair

__all__ = ["Heads", "Window", "attentions", "matrices", "widths", "windows"]

MOST_WEIGHTS = 1 << 24


class Window(NamedTuple):
    """A convolution: channels, height and width, filters, their height and width, and how they move."""

    network: str
    c: int
    height: int
    width: int
    k: int
    r: int
    s: int
    stride: int = 1
    before: tuple[int, int] = (0, 0)
    dilation: int = 1
    groups: int = 1


class Heads(NamedTuple):
    """An attention: heads of queries, heads of keys, the width of each."""

    heads: int
    kv_heads: int
    width: int


# Layers of exported and trained networks that the built-in ones lack.
MORE = (
    *(Window("ConvNeXt-T", c, n, n, c, 7, 7, 1, (3, 3), 1, c) for c, n in ((96, 56), (192, 28), (384, 14), (768, 7))),
    Window("ConvNeXt-T", 3, 224, 224, 96, 4, 4, 4),
    Window("ConvNeXt-T", 96, 56, 56, 192, 2, 2, 2),
    Window("Swin-T", 3, 224, 224, 96, 4, 4, 4),
    Window("ViT-B/16", 3, 224, 224, 768, 16, 16, 16),
    Window("ViT-L/14", 3, 224, 224, 1024, 14, 14, 14),
    *(Window("ResNeXt", c, n, n, c, 3, 3, 1, (1, 1), 1, 32) for c, n in ((128, 56), (256, 28), (512, 14), (1024, 7))),
    Window("ResNeXt", 256, 56, 56, 256, 3, 3, 2, (1, 1), 1, 32),
    *(Window("RegNetY", c, n, n, c, 3, 3, 1, (1, 1), 1, c // 16) for c, n in ((48, 56), (128, 28), (192, 14))),
    *(Window("ShuffleNet", c, n, n, k, 1, 1, groups=4) for c, n, k in ((272, 28, 68), (68, 28, 272), (544, 14, 136))),
    *(Window("ShuffleNetV2", c, n, n, c, 3, 3, 2, (1, 1), 1, c) for c, n in ((58, 56), (116, 28), (232, 14))),
    *(Window("DeepLabV3", c, 33, 33, 256, 3, 3, 1, (d, d), d) for c, d in ((256, 2), (320, 6), (320, 12))),
    Window("DRN", 256, 28, 28, 256, 3, 3, 1, (2, 2), 2),
    Window("MNASNet", 72, 56, 56, 72, 5, 5, 2, (2, 2), 1, 72),
    Window("MobileNetV3", 120, 28, 28, 120, 5, 5, 1, (2, 2), 1, 120),
    Window("MobileNetV3", 672, 14, 14, 672, 5, 5, 2, (2, 2), 1, 672),
    *(Window("MobileNetV3", c, 1, 1, k, 1, 1) for c, k in ((72, 24), (24, 72), (120, 32), (960, 240), (240, 960))),
    *(Window("Inception", 128, 17, 17, 128, r, s, 1, (r // 2, s // 2)) for r, s in ((1, 7), (7, 1))),
    *(Window("Inception", 384, 8, 8, 384, r, s, 1, (r // 2, s // 2)) for r, s in ((1, 3), (3, 1))),
    *(Window("DenseNet", c, n, n, 128, 1, 1) for c, n in ((64, 56), (256, 28), (512, 14), (896, 7))),
    *(Window("DenseNet", 128, n, n, 32, 3, 3, 1, (1, 1)) for n in (56, 28, 14, 7)),
    *(Window("SqueezeNet", c, n, n, k, 1, 1) for c, n, k in ((96, 55, 16), (128, 27, 32), (256, 13, 48))),
    *(Window("YOLO", c, n, n, 2 * c, 3, 3, 2, (1, 1)) for c, n in ((16, 160), (32, 80), (64, 40), (128, 20))),
    *(Window("U-Net", c, n, n, c, 3, 3, 1, (1, 1)) for c, n in ((16, 128), (64, 64), (128, 32))),
    *(Window("PP-OCR", c, h, w, c, 3, 3, 1, (1, 1), 1, c) for c, h, w in ((32, 24, 160), (64, 12, 160), (256, 6, 80))),
    *(Window("PP-OCR", c, h, w, k, 1, 1) for c, h, w, k in ((32, 24, 160, 64), (128, 6, 80, 256), (480, 3, 80, 480))),
    *(Window("Silero", c, 1, n, k, 1, 3, 1, (0, 1)) for c, n, k in ((129, 64, 128), (128, 32, 64), (64, 16, 64))),
    *(Window("wav2vec", 512, 1, n, 512, 1, r, 2) for n, r in ((799, 3), (199, 2))),
    Window("Whisper", 80, 1, 3000, 384, 1, 3, 1, (0, 1)),
)  # fmt: skip


@cache
def _flows() -> tuple[Flow, ...]:
    found: list[Flow] = []
    for name in networks:
        try:
            found += networks[name].flows
        except ValueError:
            continue  # it states no size of its input that fits
    return tuple(found)


@cache
def windows() -> tuple[Window, ...]:
    """Return the distinct convolutions in a fixed order."""
    found = list(_windows())
    return tuple(dict.fromkeys([*found, *MORE]))


def _windows() -> Iterator[Window]:
    seen = set()
    for name in networks:
        try:
            flows = networks[name].flows
        except ValueError:
            continue
        for flow in flows:
            layer = flow.layer
            if isinstance(layer, Conv2d):
                (c, height, width), (r, s) = flow.inputs[0], pair(layer.kernel_size)
                before = pair(layer.padding)
                shape = (c, height, width, layer.out_channels, r, s, pair(layer.stride)[0], before)
                found = (*shape, pair(layer.dilation)[0], layer.groups)
                if found not in seen:
                    seen.add(found)
                    yield Window(name, *found)


@cache
def matrices() -> tuple[tuple[int, int], ...]:
    """Return the distinct (outputs, inputs) of linear layers that fit in a test."""
    found = [(one.layer.out_features, one.layer.in_features) for one in _flows() if isinstance(one.layer, Linear)]
    small = [(120, 400), (84, 120), (10, 84), (128, 256), (10, 128), (384, 384), (1536, 384), (384, 1536)]
    return tuple(sorted({(n, k) for n, k in found + small if n * k <= MOST_WEIGHTS}))


@cache
def attentions() -> tuple[Heads, ...]:
    """Return the distinct shapes of attention."""
    found = set()
    for flow in _flows():
        layer = flow.layer
        if isinstance(layer, Scores):
            found.add(Heads(layer.heads, layer.kv_heads or layer.heads, flow.inputs[0][-1] // layer.heads))
    return tuple(sorted(found | {Heads(12, 12, 32), Heads(3, 3, 64), Heads(6, 6, 64)}))


@cache
def widths() -> tuple[int, ...]:
    """Return the distinct widths of normalized layers."""
    return tuple(sorted({flow.layer.width for flow in _flows() if isinstance(flow.layer, LayerNorm)} | {384}))
