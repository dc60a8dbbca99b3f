"""Print the tables of docs/training.md: python docs/figures/training.py [--fashion FOLDER | --speed THREADS]

The built-in digits network is rounded or pruned and then trained for some epochs on its training images, with three
seeds: with the gradients of heterocompute.training, and without them. FOLDER has the four files of Fashion-MNIST
(Debian: dataset-fashion-mnist, in /usr/share/datasets), for a perceptron that is trained first. --speed: the time of
rounding 2048 x 2048 values with its gradient, relative to PyTorch; needs torch.
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
from runner import interleaved, options

import heterocompute as hc
from heterocompute.training.descent import Adam, batches, descend, first_weights, share_of, steps_of
from heterocompute.training.gradients import gradients

SEEDS = (0, 1, 2)
RATE = 4e-3
PERCEPTRON = {"fc1": (128, 784), "fc2": (10, 128)}


class Perceptron:
    """The network for Fashion-MNIST, with the interface that `train` needs."""

    batch = 128
    layers = PERCEPTRON

    def __init__(self, folder: Path) -> None:
        self.train_x, self.train_y = images(folder, "train")
        self._x, self._y = images(folder, "t10k")
        self.weights = first_weights(PERCEPTRON, np.random.default_rng(0))
        steps = steps_of(len(self.train_x), self.batch, 8)
        given = batches(self.train_x, self.train_y, self.batch, 8, np.random.default_rng(1))
        for _ in descend(PERCEPTRON, self.weights, given, steps, 2e-3, 1e-4):
            pass

    def accuracy(self, weights: dict[str, Any]) -> float:
        x = self._x
        for name in PERCEPTRON:
            x = hc.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
            x = np.maximum(x, 0) if name != "fc2" else x
        return float((x.argmax(1) == self._y).mean())


def images(folder: Path, part: str) -> tuple[Any, Any]:
    """Read one part of Fashion-MNIST as float32 in 0..1 and labels."""

    def read(name: str, head: int) -> Any:
        found = next(folder.glob(f"{part}-{name}*"))
        data = gzip.open(found).read() if found.suffix == ".gz" else found.read_bytes()
        return np.frombuffer(data, np.uint8)[head:]

    labels = read("labels", 8).astype(np.int64)
    return read("images", 16).reshape(len(labels), -1).astype(np.float32) / 255, labels


def axis_of(w: Any) -> Any:
    return (2, 3, 1) if w.ndim == 4 else -1


def changed(weights: dict[str, Any], fmt: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rounded matrices and filters, unchanged biases, and the function of each that returns its gradient."""
    values, back = dict(weights), {}
    for name, w in weights.items():
        if w.ndim > 1:
            values[name], back[name] = hc.training.fake_quantize(w, fmt, axis_of(w))
    return values, back


def train(net: Any, fmt: str, epochs: int, seed: int, ours: bool, decay: float) -> float:
    """Train the unrounded weights; without our gradients, train the rounded weights and round them again at the end."""
    weights = {name: w.copy() for name, w in net.weights.items()}
    steps = steps_of(len(net.train_x), net.batch, epochs)
    adam = {name: Adam(w.shape) for name, w in weights.items()}
    given = batches(net.train_x, net.train_y, net.batch, epochs, np.random.default_rng(seed))
    for step, (x, labels) in enumerate(given, 1):
        values, back = changed(weights, fmt) if ours else (weights, {})
        _, slopes = gradients(net.layers, values, x, labels)
        for name, w in weights.items():
            g = slopes[name]
            if name in back:
                g = back[name](g)
                if ":" in fmt:
                    g = hc.training.sr_ste(g, w, values[name] != 0, decay)
            w -= np.float32(RATE * share_of(step, steps)) * adam[name].direction(g)
    return net.accuracy(changed(weights, fmt)[0])


def speed(threads: int) -> None:
    """Print the median processor time of rounding and its gradient in ms, and the ratio of PyTorch's time to it."""
    import torch
    from torch.ao.quantization import FakeQuantize, MovingAveragePerChannelMinMaxObserver

    from heterocompute.interop import torch as ht

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    n = 2048
    w, g = torch.randn(n, n, requires_grad=True), torch.randn(n, n)
    zeros = torch.zeros(n, dtype=torch.int32)
    observed = FakeQuantize(
        MovingAveragePerChannelMinMaxObserver, quant_min=-8, quant_max=7, dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric, ch_axis=0,
    )  # fmt: skip

    def of_rows() -> Any:
        return torch.fake_quantize_per_channel_affine(w, w.detach().abs().amax(1) / 7, zeros, 0, -7, 7)

    def of_groups() -> Any:
        x = w.view(n, -1, 32)
        scale = x.detach().abs().amax(-1, keepdim=True) / 7
        return (x + (torch.clamp(torch.round(x / scale), -7, 7) * scale - x).detach()).view(n, n)

    def of_clipped_groups() -> Any:
        x = w.view(n, -1, 32)
        largest = 0.9 * x.detach().abs().amax(-1, keepdim=True)
        scale, inside = largest / 7, torch.clamp(x, -largest, largest)
        return (inside + (torch.round(inside / scale) * scale - inside).detach()).view(n, n)

    def by_chance() -> Any:
        x = w.view(n, -1, 32)
        scale = x.detach().abs().amax(-1, keepdim=True) / 7
        rounded = torch.clamp(torch.floor(x.detach() / scale + torch.rand_like(x)), -7, 7) * scale
        return (x + (rounded - x).detach()).view(n, n)

    fused = torch.ao.quantization.FusedMovingAvgObsFakeQuantize(
        observer=MovingAveragePerChannelMinMaxObserver, quant_min=-8, quant_max=7, dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric, ch_axis=0,
    )  # fmt: skip

    def ours(fmt: str, **more: Any) -> Any:
        return lambda: ht.fake_quantize(w, fmt, **more)

    calls = {
        "torch.fake_quantize_per_channel_affine, absmax": of_rows,
        "torch.ao.quantization.FakeQuantize, rows": lambda: observed(w),
        "torch.ao.quantization.FusedMovingAvgObsFakeQuantize, rows": lambda: fused(w),
        "torch operators, groups of 32": of_groups,
        "torch operators, groups of 32, clipped": of_clipped_groups,
        "torch operators, groups of 32, by chance": by_chance,
        "ht.fake_quantize, int4": ours("int4"),
        "ht.fake_quantize, int4-g32": ours("int4-g32"),
        "ht.fake_quantize, int4-g32-asym": ours("int4-g32-asym"),
        "ht.fake_quantize, vsq4-g16-s4": ours("vsq4-g16-s4"),
        "ht.fake_quantize, nf4-g64": ours("nf4-g64"),
        "ht.fake_quantize, mxfp4": ours("mxfp4"),
        "ht.fake_quantize, nvfp4": ours("nvfp4"),
        "ht.fake_quantize, fp8_e4m3fn": ours("fp8_e4m3fn"),
        "ht.fake_quantize, log4-1-g16": ours("log4-1-g16"),
        "ht.fake_quantize, q4_k": ours("q4_k"),
        "ht.fake_quantize, int4-g32, clip=0.9": ours("int4-g32", clip=0.9),
        "ht.fake_quantize, int4-g32, clip='octav'": ours("int4-g32", clip="octav"),
        "ht.fake_quantize, int4-g32, clip='percentile:99'": ours("int4-g32", clip="percentile:99"),
        "ht.fake_quantize, int4-g32, stochastic": ours("int4-g32", rounding="stochastic"),
        "ht.fake_quantize, nf4-g64, stochastic": ours("nf4-g64", rounding="stochastic"),
    }
    print(f"torch {torch.__version__}, {threads} threads")
    with hc.use(threads=threads):
        steps = {name: lambda call=call: torch.autograd.grad(call(), w, g) for name, call in calls.items()}
        times = interleaved(steps, 13, time.process_time)
    largest = np.median(times["torch.ao.quantization.FusedMovingAvgObsFakeQuantize, rows"][2:])
    for name, found in times.items():
        print(f"| {name} | {np.median(found[2:]) * 1e3:.1f} | {largest / np.median(found[2:]):.1f} |")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--fashion", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--formats", default="int2,1:8")
    parser.add_argument("--decay", type=float, default=2e-4)
    parser.add_argument("--speed", type=int)
    given = parser.parse_args()
    if given.speed:
        speed(given.speed)
        return
    net = Perceptron(given.fashion) if given.fashion else hc.zoo.digits()
    print(f"float32: {net.accuracy(net.weights):.4f}")
    print("| format | one shot | trained, our gradients | trained without, rounded at the end |\n|---|---|---|---|")
    for fmt in given.formats.split(","):
        line = [f"{net.accuracy(changed(net.weights, fmt)[0]):.4f}"]
        for ours in (True, False):
            found = [train(net, fmt, given.epochs, seed, ours, given.decay) for seed in SEEDS]
            line.append(", ".join(f"{one:.4f}" for one in found))
        print(f"| {fmt} | " + " | ".join(line) + " |", flush=True)


if __name__ == "__main__":
    main()
