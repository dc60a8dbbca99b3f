"""Train the network of `heterocompute.zoo.digits` again: python -m heterocompute.training.train_digits
With `--format cb2` its weights are quantized to codebooks, and those are trained: three seeds, before and after.

Data: scikit-learn's handwritten digits, 1797 images of 8 x 8. The last 599 of them, in scikit-learn's order (not
shuffled, so that one person's digits rarely stand on both sides), are held out: nothing is trained on them, and the
weights are those after the last epoch.
Network: 3x3 convolutions 1 -> 32, 32 -> 64 (stride 2), 64 -> 64 (stride 2), linear 256 -> 64 -> 10, ReLU between.
Training: Adam, cosine learning rate, softmax cross-entropy, random shifts, turns and sizes. The same seed writes the
same bytes with any number of threads. The file that ships was trained when NumPy multiplied: other bytes, equally good
(0.9950 of the held-out images both).
Needs about half a minute, and scikit-learn.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.writer import Writer
from ..formats import format as parse_format
from ..products.quantize import quantize
from ..zoo.digit_images import FILE, Digits, digits
from ..zoo.layers import DIGITS
from .codebooks import codebook_gradient, codebook_step
from .descent import (
    LEARNING_RATE,
    MOMENTUM,
    ROW_RATE,
    TENSOR_RATE,
    WEIGHT_DECAY,
    batches,
    descend,
    first_weights,
    share_of,
    steps_of,
)
from .gradients import gradients

F32 = NDArray[np.float32]

SEED = 4
TRAIN_IMAGES = 1198
EPOCHS = 200

# Of training codebooks.
SEEDS = (0, 1, 2)
TUNING_EPOCHS = 20


def train(
    x: F32, labels: NDArray[np.int64], epochs: int = EPOCHS, seed: int = SEED, quiet: bool = False
) -> dict[str, F32]:
    """Train from the start; x (n, 1, 8, 8) in 0..1."""
    random = np.random.default_rng(seed)
    weights = first_weights(DIGITS, random)
    steps = steps_of(len(x), Digits.batch, epochs)
    losses: list[float] = []
    given = batches(x, labels, Digits.batch, epochs, random)
    for loss in descend(DIGITS, weights, given, steps, LEARNING_RATE, WEIGHT_DECAY):
        losses.append(loss)
        if not quiet and len(losses) == 10 * steps // epochs:
            print(f"mean loss of ten epochs: {np.mean(losses):.4f}", flush=True)
            losses.clear()
    return weights


def quantized(weights: Mapping[str, F32], fmt: str) -> dict[str, Any]:
    """Quantize the matrices and filters; biases stay."""
    axis = {4: (2, 3, 1), 2: (-1,)}
    return {name: quantize(w, fmt, axis[w.ndim]) if w.ndim > 1 else w for name, w in weights.items()}


def fine_tune(
    weights: Mapping[str, F32], fmt: str, x: F32, labels: NDArray[np.int64], epochs: int, seed: int
) -> dict[str, Any]:
    """Train the codebooks with fixed codes and biases: gradient descent with momentum, cosine learning rate.

    One code covers many weights, whose gradients add up (Deep Compression, section 3.3); a codebook of a whole
    layer therefore takes shorter steps than one of a row.
    """
    tuned = quantized(weights, fmt)
    first_rate = TENSOR_RATE if getattr(parse_format(fmt), "per", "row") == "tensor" else ROW_RATE
    velocity = {name: np.zeros_like(q.components["codebook"]) for name, q in tuned.items() if q.ndim > 1}
    steps = steps_of(len(x), Digits.batch, epochs)
    given = batches(x, labels, Digits.batch, epochs, np.random.default_rng(seed))
    for step, (images, wanted) in enumerate(given, 1):
        values = {name: np.asarray(w) for name, w in tuned.items()}
        _, found = gradients(DIGITS, values, images, wanted)
        rate = first_rate * share_of(step, steps)
        for name in velocity:
            velocity[name] = MOMENTUM * velocity[name] + codebook_gradient(found[name], tuned[name])
            tuned[name] = codebook_step(tuned[name], velocity[name], rate)
    return tuned


def compare_formats(texts: list[str], net: Digits, x: F32, labels: NDArray[np.int64], epochs: int) -> list[str]:
    """Return lines of a table: accuracy of the quantized network before and after training its codebooks."""
    lines = ["| format | bits per value | before | after, mean | standard deviation |", "|---|---|---|---|---|"]
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
    """Write the file that `Digits.load` reads: the weights, and the images (n, 1, 8, 8) of 0..16 with their labels."""
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

    from sklearn.datasets import load_digits  # optional

    images, labels = load_digits(return_X_y=True)
    pixels = images.reshape(-1, 1, 8, 8).astype(np.uint8)  # 0..16
    x, labels = pixels.astype(np.float32) / 16, labels.astype(np.int64)
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
