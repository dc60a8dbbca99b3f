"""Train the network of `heterocompute.zoo.digits` again, in plain NumPy: python -m heterocompute.training.train_digits
With `--format cb2` its weights are quantized to codebooks, and those are trained: three seeds, before and after.

Data: scikit-learn's handwritten digits, 1797 images of 8 x 8. The last 599 of them, in scikit-learn's order (not
shuffled, so that one person's digits rarely stand on both sides), are held out: nothing is trained on them, and the
weights are those after the last epoch.
Network: 3x3 convolutions 1 -> 32, 32 -> 64 (stride 2), 64 -> 64 (stride 2), linear 256 -> 64 -> 10, ReLU between.
Training: Adam, cosine learning rate, softmax cross-entropy, random shifts, turns and sizes. Fixed seed, one BLAS
thread: the same machine writes the same bytes. Takes about half a minute; needs scikit-learn.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.container import Writer
from ..formats import format as parse_format
from ..products.quantize import quantize
from ..zoo.network import FILE, LAYERS, STRIDES, Digits, digits
from .codebooks import codebook_gradient, codebook_step

F32 = NDArray[np.float32]

SEED = 4
TRAIN_IMAGES = 1198
EPOCHS = 200
BATCH = 32
LEARNING_RATE = 4e-3
WEIGHT_DECAY = 1e-4
LAST = list(LAYERS)[-1]

# Of training codebooks.
SEEDS = (0, 1, 2)
TUNING_EPOCHS = 20
MOMENTUM = 0.9
ROW_RATE, TENSOR_RATE = 1e-3, 3e-4  # of a few tried, those of the least training loss


def windows(x: F32, stride: int) -> F32:
    """Every 3x3 window of x (n, c, h, w), padded by one: (n, h', w', c, 3, 3)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return view[:, :, ::stride, ::stride].transpose(0, 2, 3, 1, 4, 5)


def convolve(x: F32, w: F32, b: F32, stride: int) -> tuple[F32, F32]:
    """The convolution (n, k, h', w') and its columns (n h' w', c 9), which the gradient needs."""
    view = windows(x, stride)
    n, h, width = view.shape[:3]
    columns = view.reshape(n * h * width, -1)
    y = columns @ w.reshape(w.shape[0], -1).T + b
    return y.reshape(n, h, width, -1).transpose(0, 3, 1, 2), columns


def convolve_backward(dy: F32, columns: F32, w: F32, shape: tuple[int, ...], stride: int) -> tuple[F32, F32, F32]:
    """Gradients of the input, the weights and the bias."""
    n, _, h, width = dy.shape
    flat = dy.transpose(0, 2, 3, 1).reshape(-1, w.shape[0])
    dw = (flat.T @ columns).reshape(w.shape)
    by_place = w.transpose(0, 2, 3, 1).reshape(w.shape[0], -1)  # channels last, where they lie side by side
    dcolumns = (flat @ by_place).reshape(n, h, width, 3, 3, shape[1])
    dx = np.zeros((n, shape[2] + 2, shape[3] + 2, shape[1]), dy.dtype)
    for r in range(3):
        for s in range(3):
            dx[:, r : r + stride * h : stride, s : s + stride * width : stride] += dcolumns[:, :, :, r, s]
    return dx[:, 1:-1, 1:-1].transpose(0, 3, 1, 2), dw, flat.sum(axis=0)


def gradients(weights: dict[str, F32], x: F32, labels: NDArray[np.int64]) -> tuple[float, dict[str, F32]]:
    """Mean cross-entropy of one batch, and its gradient for every weight."""
    saved: list[Any] = []
    for name in LAYERS:
        w, b = weights[f"{name}.weight"], weights[f"{name}.bias"]
        if w.ndim == 4:
            y, columns = convolve(x, w, b, STRIDES[name])
            saved.append((name, x.shape, columns, y > 0))
        else:
            flat = x.reshape(len(x), -1)
            y = flat @ w.T + b
            saved.append((name, x.shape, flat, y > 0))
        x = np.maximum(y, 0) if name != LAST else y
    shifted = x - x.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(np.maximum(probabilities[rows, labels], 1e-30)).mean())
    dy = probabilities
    dy[rows, labels] -= 1
    dy /= len(labels)
    found: dict[str, F32] = {}
    for name, shape, inputs, positive in reversed(saved):
        w = weights[f"{name}.weight"]
        if name != LAST:
            dy = dy.reshape(positive.shape) * positive
        if w.ndim == 4:
            dy, found[f"{name}.weight"], found[f"{name}.bias"] = convolve_backward(dy, inputs, w, shape, STRIDES[name])
        else:
            found[f"{name}.weight"], found[f"{name}.bias"] = dy.T @ inputs, dy.sum(axis=0)
            dy = (dy @ w).reshape(shape)
    return loss, found


def distort(x: F32, random: np.random.Generator) -> F32:
    """Each image turned by up to 0.15 radians, sized by up to 10 % and shifted by up to one pixel (bilinear)."""
    n, _, h, w = x.shape
    angle = random.uniform(-0.15, 0.15, (n, 1, 1))
    size = random.uniform(0.9, 1.1, (n, 1, 1))
    move = random.uniform(-1, 1, (2, n, 1, 1))
    row, column = np.meshgrid(np.arange(h) - (h - 1) / 2, np.arange(w) - (w - 1) / 2, indexing="ij")
    source_row = size * (np.cos(angle) * row - np.sin(angle) * column) + move[0] + (h - 1) / 2
    source_column = size * (np.sin(angle) * row + np.cos(angle) * column) + move[1] + (w - 1) / 2
    padded = np.pad(x[:, 0], ((0, 0), (3, 3), (3, 3)))
    source_row = np.clip(source_row + 3, 0, h + 4)
    source_column = np.clip(source_column + 3, 0, w + 4)
    r, c = np.floor(source_row).astype(int), np.floor(source_column).astype(int)
    fr, fc = source_row - r, source_column - c
    i = np.arange(n)[:, None, None]
    top = padded[i, r, c] * (1 - fc) + padded[i, r, c + 1] * fc
    bottom = padded[i, r + 1, c] * (1 - fc) + padded[i, r + 1, c + 1] * fc
    turned: F32 = (top * (1 - fr) + bottom * fr)[:, None].astype(np.float32)
    return turned


def first_weights(random: np.random.Generator) -> dict[str, F32]:
    weights = {}
    for name, shape in LAYERS.items():
        fan_in = int(np.prod(shape[1:]))
        weights[f"{name}.weight"] = (random.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return weights


def train(
    x: F32, labels: NDArray[np.int64], epochs: int = EPOCHS, seed: int = SEED, quiet: bool = False
) -> dict[str, F32]:
    """Adam with decoupled weight decay; x (n, 1, 8, 8) in 0..1."""
    random = np.random.default_rng(seed)
    weights = first_weights(random)
    mean = {name: np.zeros_like(w) for name, w in weights.items()}
    square = {name: np.zeros_like(w) for name, w in weights.items()}
    steps_an_epoch = -(-len(x) // BATCH)
    step, steps = 0, epochs * steps_an_epoch
    for epoch in range(epochs):
        order = random.permutation(len(x))
        total = 0.0
        for begin in range(0, len(x), BATCH):
            batch = order[begin : begin + BATCH]
            loss, found = gradients(weights, distort(x[batch], random), labels[batch])
            total += loss * len(batch)
            step += 1
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for name, gradient in found.items():
                mean[name] += 0.1 * (gradient - mean[name])
                square[name] += 0.001 * (gradient * gradient - square[name])
                direction = (mean[name] / (1 - 0.9**step)) / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
                weights[name] -= np.float32(rate) * (direction + WEIGHT_DECAY * weights[name])
        if not quiet and (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1} of {epochs}: mean loss {total / len(x):.4f}", flush=True)
    return weights


def quantized(weights: Mapping[str, F32], fmt: str) -> dict[str, Any]:
    """Quantize the matrices and filters; biases stay."""
    axis = {4: (2, 3, 1), 2: (-1,)}
    return {name: quantize(w, fmt, axis[w.ndim]) if w.ndim > 1 else w for name, w in weights.items()}


def fine_tune(
    weights: Mapping[str, F32], fmt: str, x: F32, labels: NDArray[np.int64], epochs: int, seed: int
) -> dict[str, Any]:
    """Train the codebooks alone, codes and biases fixed: gradient descent with momentum, cosine learning rate.

    One code covers many weights, whose gradients add up (Deep Compression, section 3.3); a codebook of a whole
    layer therefore takes shorter steps than one of a row.
    """
    random = np.random.default_rng(seed)
    tuned = quantized(weights, fmt)
    first_rate = TENSOR_RATE if getattr(parse_format(fmt), "per", "row") == "tensor" else ROW_RATE
    velocity = {name: np.zeros_like(q.components["codebook"]) for name, q in tuned.items() if q.ndim > 1}
    step, steps = 0, epochs * -(-len(x) // BATCH)
    for _ in range(epochs):
        order = random.permutation(len(x))
        for begin in range(0, len(x), BATCH):
            batch = order[begin : begin + BATCH]
            values = {name: np.asarray(w) for name, w in tuned.items()}
            _, found = gradients(values, distort(x[batch], random), labels[batch])
            step += 1
            rate = first_rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            for name in velocity:
                velocity[name] = MOMENTUM * velocity[name] + codebook_gradient(found[name], tuned[name])
                tuned[name] = codebook_step(tuned[name], velocity[name], rate)
    return tuned


def compare_formats(texts: list[str], net: Digits, x: F32, labels: NDArray[np.int64], epochs: int) -> list[str]:
    """Lines of a table: accuracy of the quantized network before and after training its codebooks."""
    lines = ["| format | bits/value | before | after, mean | standard deviation |", "|---|---|---|---|---|"]
    print(*lines, sep="\n", flush=True)
    for text in texts:
        before = quantized(net.weights, text)
        packed = [q for q in before.values() if q.ndim > 1]
        bits = sum(8 * q.nbytes for q in packed) / sum(q.size for q in packed)
        after = [net.accuracy(fine_tune(net.weights, text, x, labels, epochs, seed)) for seed in SEEDS]
        numbers = (net.accuracy(before), np.mean(after), np.std(after, ddof=1))
        lines.append(f"| {text} | {bits:.2f} | " + " | ".join(f"{number:.4f}" for number in numbers) + " |")
        print(lines[-1], flush=True)
    return lines


def write(path: Path, weights: Mapping[str, F32], pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
    """Write what `Digits.load` reads: the weights, and the images (n, 1, 8, 8) of 0..16 with their labels."""
    tensors: dict[str, NDArray[Any]] = {f"weights/{name}": w for name, w in weights.items()}
    for part, these in (("test", slice(TRAIN_IMAGES, None)), ("train", slice(TRAIN_IMAGES))):
        tensors[f"{part}/images"] = pixels[these]
        tensors[f"{part}/labels"] = labels[these].astype(np.uint8)
    with Writer(path, {name: (array.dtype.name, array.shape) for name, array in tensors.items()}) as writer:
        for name, array in tensors.items():
            writer.write(name, array)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the shipped digits network again.")
    parser.add_argument("--out", type=Path, default=FILE, help="the file to write (default: the one in the package)")
    parser.add_argument("--epochs", type=int, help=f"default: {EPOCHS}, or {TUNING_EPOCHS} with --format")
    parser.add_argument("--format", help="train codebooks of the network that ships instead, e.g. cb1,cb2,cb3")
    options = parser.parse_args(arguments)

    import threadpoolctl  # comes with scikit-learn
    from sklearn.datasets import load_digits  # optional

    images, labels = load_digits(return_X_y=True)
    pixels = images.reshape(-1, 1, 8, 8).astype(np.uint8)  # 0..16
    x, labels = pixels.astype(np.float32) / 16, labels.astype(np.int64)
    one_thread: Any = threadpoolctl.threadpool_limits
    with one_thread(1):  # sums in the same order whatever the number of cores
        if options.format:
            texts, epochs = options.format.split(","), options.epochs or TUNING_EPOCHS
            compare_formats(texts, digits(), x[:TRAIN_IMAGES], labels[:TRAIN_IMAGES], epochs)
            return
        weights = train(x[:TRAIN_IMAGES], labels[:TRAIN_IMAGES], options.epochs or EPOCHS)
    write(options.out, weights, pixels, labels)
    net = Digits.load(options.out)
    print(f"{options.out}: {net.accuracy(net.weights):.4f} of {len(net.test_y)} held-out images right")


if __name__ == "__main__":
    main()
