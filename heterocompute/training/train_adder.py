"""Train the network of `heterocompute.zoo.adder` again: python -m heterocompute.training.train_adder

Data: pairs of numbers from 0 to 999, in random order; the first 4096 are held out, the rest are shown twice. Network:
linear 60 -> 128 -> 128 -> 40, ReLU between. Training: Adam, cosine learning rate, softmax cross-entropy of each digit.
The same seed writes the same bytes with any number of threads. Needs about 15 s.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ..base.writer import Writer
from ..zoo.addition import FILE, Adder, examples, pairs
from ..zoo.layers import ADDER
from .descent import descend, first_weights, steps_of

SEED = 0
EPOCHS = 2
RATE = 2e-3
REPORT = 1000


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the shipped network that adds again.")
    parser.add_argument("--out", type=Path, default=FILE, help="the file to write (default: the one in the package)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="default: %(default)s")
    parser.add_argument("--pairs", type=int, help="only so many pairs an epoch")
    options = parser.parse_args(arguments)

    shown = pairs()[1][: options.pairs]
    random = np.random.default_rng(SEED)
    weights = first_weights(ADDER, random)

    losses: list[float] = []
    steps = steps_of(len(shown), Adder.batch, options.epochs)
    orders = (random.permutation(shown) for _ in range(options.epochs))
    given = (examples(order[i : i + Adder.batch]) for order in orders for i in range(0, len(order), Adder.batch))
    for loss in descend(ADDER, weights, given, steps, RATE, 0.0):
        losses.append(loss)
        if len(losses) % REPORT == 0:
            print(f"step {len(losses)} of {steps}: mean loss {np.mean(losses[-REPORT:]):.5f}", flush=True)
    with Writer(options.out, {f"weights/{name}": (w.dtype.name, w.shape) for name, w in weights.items()}) as writer:
        for name, w in weights.items():
            writer.write(f"weights/{name}", w)
    net = Adder.load(options.out)
    print(f"{options.out}: {net.accuracy(net.weights):.4f} of {len(net.test_y)} held-out sums right")


if __name__ == "__main__":
    main()
