"""The layers of the built-in networks: shapes of the weights in order, strides of the convolutions."""

from __future__ import annotations

DIGITS: dict[str, tuple[int, ...]] = {
    "conv1": (32, 1, 3, 3),
    "conv2": (64, 32, 3, 3),
    "conv3": (64, 64, 3, 3),
    "fc1": (64, 256),
    "fc2": (10, 64),
}
ADDER: dict[str, tuple[int, ...]] = {
    "fc1": (128, 60),
    "fc2": (128, 128),
    "fc3": (40, 128),
}
STRIDES = {"conv1": 1, "conv2": 2, "conv3": 2}
