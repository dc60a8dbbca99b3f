"""The built-in transformers that are not decoders: BERT, ViT for images, and Whisper's encoder for sound."""

from __future__ import annotations

from .graph import Attention, Builder, Network
from .heads import Patches
from .layers import AddTable, Context, Conv2d, Embedding, LayerNorm, Linear, Scores
from .plain import Activation, Add, Select, Softmax


def bert(name: str, width: int, blocks: int, heads: int, positions: int = 128) -> Network:
    """Return BERT with its pooler: normalization after each sum, 4 x width inside, 30,522 tokens."""
    net = Builder(name, (positions,))
    net.add("embeddings.word", Embedding(30522, width))
    net.add("embeddings.position", AddTable(512, width))
    net.add("embeddings.type", AddTable(2, width, limits=False))
    source = net.add("embeddings.norm", LayerNorm(width))
    for i in range(blocks):
        Attention(width, heads, residual=True).add_to(net, f"block{i}.attention", source)
        middle = net.add(f"block{i}.norm1", LayerNorm(width))
        net.add(f"block{i}.fc1", Linear(width, 4 * width))
        net.add(f"block{i}.gelu", Activation("gelu", functional=True))
        last = net.add(f"block{i}.fc2", Linear(4 * width, width))
        net.add(f"block{i}.add", Add(), middle, last)
        source = net.add(f"block{i}.norm2", LayerNorm(width))
    net.add("pooler.first", Select())
    net.add("pooler.fc", Linear(width, width))
    net.add("pooler.tanh", Activation("tanh"))
    return net.build(f"Devlin et al. 2018, with the pooler, {positions} tokens unless said otherwise")


def vit(name: str, width: int, blocks: int, heads: int, patch: int = 16) -> Network:
    """Return a vision transformer for 224 x 224 pixels and 1000 classes."""
    net = Builder(name, (3, 224, 224))
    net.add("patches", Conv2d(3, width, patch, patch))
    net.add("class_token", Patches(width, 1))
    source = net.add("position", AddTable((224 // patch) ** 2 + 1, width))
    for i in range(blocks):
        source = _block(net, f"block{i}", width, heads, source)
    net.add("norm", LayerNorm(width), source)
    net.add("first", Select())
    net.add("head", Linear(width, 1000))
    return net.build(f"Dosovitskiy et al. 2020, patches of {patch} x {patch} pixels")


def whisper_encoder(name: str, width: int, blocks: int, heads: int, mels: int = 80) -> Network:
    """Return Whisper's encoder for 30 s of sound: a spectrogram (mels, 1, 3000) to (1500, width)."""
    net = Builder(name, (mels, 1, 3000))
    net.add("conv1", Conv2d(mels, width, (1, 3), 1, (0, 1)))
    net.add("gelu1", Activation("gelu", functional=True))
    net.add("conv2", Conv2d(width, width, (1, 3), (1, 2), (0, 1)))
    net.add("gelu2", Activation("gelu", functional=True))
    net.add("sequence", Patches(width, 0))
    source = net.add("position", AddTable(1500, width))
    for i in range(blocks):
        at = f"block{i}.attention"
        norm = net.add(f"block{i}.norm1", LayerNorm(width), source)
        query = net.add(f"{at}.query", Linear(width, width), norm)
        key = net.add(f"{at}.key", Linear(width, width, bias=False), norm)
        value = net.add(f"{at}.value", Linear(width, width), norm)
        scores = net.add(f"{at}.scores", Scores(heads), query, key)
        mixed = net.add(f"{at}.context", Context(heads), net.add(f"{at}.softmax", Softmax(), scores), value)
        last = net.add(f"{at}.output", Linear(width, width), mixed)
        source = net.add(f"block{i}.add1", Add(), source, last)
        source = _mlp(net, f"block{i}", width, source)
    net.add("norm", LayerNorm(width), source)
    return net.build("Radford et al. 2022, the encoder alone")


def _block(net: Builder, at: str, width: int, heads: int, source: str) -> str:
    norm = net.add(f"{at}.norm1", LayerNorm(width), source)
    last = Attention(width, heads).add_to(net, f"{at}.attention", norm)
    return _mlp(net, at, width, net.add(f"{at}.add1", Add(), source, last))


def _mlp(net: Builder, at: str, width: int, source: str) -> str:
    net.add(f"{at}.norm2", LayerNorm(width), source)
    net.add(f"{at}.fc1", Linear(width, 4 * width))
    net.add(f"{at}.gelu", Activation("gelu", functional=True))
    last = net.add(f"{at}.fc2", Linear(4 * width, width))
    return net.add(f"{at}.add2", Add(), source, last)
