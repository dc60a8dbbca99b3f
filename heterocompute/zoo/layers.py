"""The layers of the network of `heterocompute.zoo.digits`: shapes of the weights, strides of the convolutions."""

from __future__ import annotations

LAYERS = {
    "conv1": (32, 1, 3, 3),
    "conv2": (64, 32, 3, 3),
    "conv3": (64, 64, 3, 3),
    "fc1": (64, 256),
    "fc2": (10, 64),
}
STRIDES = {"conv1": 1, "conv2": 2, "conv3": 2}
