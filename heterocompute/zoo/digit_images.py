"""A small convolutional network for 8 x 8 digits: its weights and its images.

x (n, 1, 8, 8) -> conv1 3x3 -> 32 -> ReLU -> conv2 3x3, stride 2 -> 64 -> ReLU -> conv3 3x3, stride 2 -> 64 -> ReLU
  -> 256 values -> fc1 -> 64 -> ReLU -> fc2 -> 10 logits.   72,842 parameters.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .layers import DIGITS
from .network import Network, read, weights_of

FILE = Path(__file__).with_name("digits.safetensors")


class Digits(Network):
    """The digits network with its images. `digits` loads the pretrained one.

    The attributes are those of `Network`: `test_x` float32 (n, 1, 8, 8) in 0 to 1, `test_y` int64 (n,), 0 to 9;
    ``conv1.weight`` (32, 1, 3, 3), ``conv1.bias`` (32,), ..., ``fc2.weight`` (10, 64).
    """

    layers = DIGITS
    batch = 32
    hardware = "digits"

    @classmethod
    def load(cls, path: str | Path = FILE) -> Digits:
        """Read a file that ``python -m heterocompute.training.train_digits`` wrote.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Digits
        """
        tensors = read(path)
        x = {part: tensors[f"{part}/images"].astype(np.float32) / np.float32(16) for part in ("test", "train")}
        y = {part: tensors[f"{part}/labels"].astype(np.int64) for part in ("test", "train")}
        return cls(weights_of(tensors, DIGITS), x["test"], y["test"], x["train"], y["train"])


def digits() -> Digits:
    """Load the pretrained digits network: about 73 thousand parameters, trained on scikit-learn's handwritten digits.

    Returns
    -------
    Digits

    Notes
    -----
    The images are from E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
    Repository, 1998 (CC BY 4.0), as included in scikit-learn. `heterocompute/training/train_digits.py` repeats the
    training.

    Examples
    --------
    >>> import heterocompute as hc
    >>> net = hc.zoo.digits()
    >>> net.test_x.shape
    (599, 1, 8, 8)
    """
    return Digits.load()
