"""A network that adds two numbers of three digits: an answer must be right in every digit, so precision matters.

x (n, 60), digits one-hot -> fc1 -> 128 -> ReLU -> fc2 -> 128 -> ReLU -> fc3 -> 4 digits of 10 logits.
29,480 parameters.
Digits are ordered from the ones up: those of a, then those of b; the sum has four. One carry may change all four.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .layers import ADDER
from .network import Network, read, weights_of

FILE = Path(__file__).with_name("adder.safetensors")
NUMBERS = 1000
TEST_PAIRS, TRAIN_PAIRS = 4096, 25_600  # held out; the rest of the pairs that `train_x` shows


class Adder(Network):
    """The addition network with pairs of numbers. `adder` loads the pretrained one.

    The attributes are those of `Network`: `test_x` float32 (n, 60), six digits one-hot; `test_y` int64 (n, 4), the
    digits of the sums; ``fc1.weight`` (128, 60), ``fc1.bias`` (128,), ..., ``fc3.weight`` (40, 128).
    """

    layers = ADDER
    batch = 256

    @classmethod
    def load(cls, path: str | Path = FILE) -> Adder:
        """Read a file that ``python -m heterocompute.training.train_adder`` wrote.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Adder
        """
        test, train = pairs()
        return cls(weights_of(read(path), ADDER), *examples(test), *examples(train[:TRAIN_PAIRS]))


def pairs() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs a, b as 1000 a + b, in random order: those held out, and all others.

    Returns
    -------
    tuple of ndarray
        int64 (4096,) and (995904,).
    """
    order = np.random.default_rng(0).permutation(NUMBERS**2)
    return order[:TEST_PAIRS], order[TEST_PAIRS:]


def examples(numbers: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the network's inputs for each pair, and the digits of the sum.

    Parameters
    ----------
    numbers : ndarray
        int64 (n,): 1000 a + b.

    Returns
    -------
    tuple of ndarray
        float32 (n, 60) and int64 (n, 4).

    Examples
    --------
    >>> import numpy as np
    >>> x, y = examples(np.array([999_001]))
    >>> x.reshape(6, 10).argmax(axis=1), y
    (array([9, 9, 9, 1, 0, 0]), array([[0, 0, 0, 1]]))
    """
    a, b = np.divmod(numbers, NUMBERS)
    read = np.stack([n // 10**i % 10 for n in (a, b) for i in range(3)], axis=1)
    x = (read[:, :, None] == np.arange(10)).reshape(len(numbers), 60).astype(np.float32)
    return x, np.stack([(a + b) // 10**i % 10 for i in range(4)], axis=1)


def adder() -> Adder:
    """Load the pretrained network that adds two three-digit numbers: about 29 thousand parameters.

    Returns
    -------
    Adder

    Notes
    -----
    Training used every pair of numbers except the 4096 of `test_x` about twice. A sum is correct if all four digits
    are. `heterocompute/training/train_adder.py` repeats the training.

    Examples
    --------
    >>> import heterocompute as hc
    >>> net = hc.zoo.adder()
    >>> net.test_x.shape, net.accuracy(net.weights) > 0.999
    ((4096, 60), True)
    >>> four_bits = {k: hc.quantize(w, "int4") if w.ndim > 1 else w for k, w in net.weights.items()}
    >>> net.accuracy(four_bits) < 0.8
    True
    """
    return Adder.load()
