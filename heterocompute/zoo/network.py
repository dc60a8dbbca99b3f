"""A small convolutional network for 8 x 8 digits: its weights, its held-out test images and its forward pass.

x (n, 1, 8, 8) -> conv1 3x3 -> 32 -> ReLU -> conv2 3x3, stride 2 -> 64 -> ReLU -> conv3 3x3, stride 2 -> 64 -> ReLU
  -> 256 values -> fc1 -> 64 -> ReLU -> fc2 -> 10 logits.   72,842 parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import emulate as emulation
from ..arrays.quantized import QuantizedArray
from ..base.container import Reader
from ..base.float_env import counts_subnormals
from ..products.conv import conv2d
from ..products.matmul import linear
from .layers import LAYERS, STRIDES

__all__ = ["Digits", "digits"]

FILE = Path(__file__).with_name("digits.safetensors")


@dataclass(frozen=True, eq=False)
class Digits:
    """The digits network with its held-out images; `digits` loads the one that ships.

    Attributes
    ----------
    weights : dict of str to ndarray
        float32: ``conv1.weight`` (32, 1, 3, 3), ``conv1.bias`` (32,), ..., ``fc2.weight`` (10, 64).
    test_x : ndarray
        float32 (n, 1, 8, 8) in 0 to 1: images that the training never saw.
    test_y : ndarray
        int64 (n,): their digits, 0 to 9.
    train_x, train_y : ndarray
        The same of the images that it was trained on.
    """

    weights: dict[str, NDArray[np.float32]]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]

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
        with Reader(path) as reader:
            tensors = {name: reader.tensor(name) for name in reader.names}
        weights = {
            f"{name}.{part}": tensors[f"weights/{name}.{part}"] for name in LAYERS for part in ("weight", "bias")
        }
        x = {part: tensors[f"{part}/images"].astype(np.float32) / np.float32(16) for part in ("test", "train")}
        y = {part: tensors[f"{part}/labels"].astype(np.int64) for part in ("test", "train")}
        return cls(weights, x["test"], y["test"], x["train"], y["train"])

    @counts_subnormals
    def forward(
        self,
        weights: Mapping[str, Any],
        x: NDArray[np.float32],
        activations: Any = None,
        emulate: str | None = None,
    ) -> NDArray[np.float32]:
        """Run the network.

        Parameters
        ----------
        weights : mapping of str to ndarray or QuantizedArray
            Like `weights`; any of them may be quantized, the convolutions with ``axis=(2, 3, 1)``.
        x : ndarray
            float32 (n, 1, 8, 8).
        activations : Format, str or None
            Format to which every layer's input is quantized on the fly.
        emulate : str or None
            Multiply as given hardware does, `heterocompute.emulate.parse`. A layer whose weight is no quantized array
            is computed as ever where the emulation multiplies codes only.

        Returns
        -------
        ndarray
            float32 (n, 10) logits.

        Raises
        ------
        ValueError
            The emulation does not multiply these formats.

        Examples
        --------
        >>> import heterocompute as hc
        >>> net = hc.zoo.digits()
        >>> net.forward(net.weights, net.test_x[:3]).argmax(axis=1) == net.test_y[:3]
        array([ True,  True,  True])
        """
        for name, shape in LAYERS.items():
            w, b = weights[f"{name}.weight"], weights[f"{name}.bias"]
            x = x if len(shape) == 4 else x.reshape(len(x), -1)
            if emulate is not None and (isinstance(w, QuantizedArray) or emulation.accepts(emulate, activations, None)):
                if len(shape) == 4:
                    x = emulation.conv2d(x, w, b, STRIDES[name], 1, activations, emulate)
                else:
                    x = emulation.linear(x, w, b, activations, emulate)
            elif len(shape) == 4:
                x = conv2d(x, w, b, stride=STRIDES[name], padding=1, activations=activations)
            else:
                x = linear(x, w, b, activations=activations)
            if name != "fc2":
                x = np.maximum(x, 0)
        return x

    def accuracy(self, weights: Mapping[str, Any], activations: Any = None, emulate: str | None = None) -> float:
        """Return the fraction of the test images that the network gets right.

        Parameters
        ----------
        weights : mapping of str to ndarray or QuantizedArray
        activations : Format, str or None
        emulate : str or None

        Returns
        -------
        float

        Examples
        --------
        >>> import heterocompute as hc
        >>> net = hc.zoo.digits()
        >>> net.accuracy(net.weights) > 0.97
        True
        """
        logits = self.forward(weights, self.test_x, activations, emulate)
        return float((logits.argmax(axis=1) == self.test_y).mean())

    def evaluate(
        self, weights: Mapping[str, Any], activations: Any = None, emulate: str | None = None
    ) -> dict[str, float]:
        """Return ``{"accuracy": ...}``: what `heterocompute.study` asks of a network.

        Parameters
        ----------
        weights : mapping of str to ndarray or QuantizedArray
        activations : Format, str or None
        emulate : str or None

        Returns
        -------
        dict of str to float
        """
        return {"accuracy": self.accuracy(weights, activations, emulate)}

    def retrain(
        self, weights: Mapping[str, Any], changed: Mapping[str, Any], seed: int = 0, epochs: int = 5
    ) -> dict[str, Any]:
        """Train shortly what a format or pruning left of the weights; `heterocompute.study` asks for it as well.

        Parameters
        ----------
        weights : mapping of str to ndarray
            Like `weights`, before the change.
        changed : mapping of str to ndarray or QuantizedArray
            The same names; what is not the very array of `weights` is trained, all else stays.
        seed : int
            0 or more: of the order of the training images and their distortions.
        epochs : int
            Passes over the training images, a fifth of a second each; 0 only rounds what is there.

        Returns
        -------
        dict of str to ndarray or QuantizedArray
            Of the same formats and shapes. A codebook keeps its codes and moves its values; a pattern, or the zeros of
            an ndarray, stay where they are; of any other format the values that it rounds are trained as if it did not
            round them (the straight-through estimator), and rounded again.

        Notes
        -----
        `heterocompute.training.retrain` says how. The same arguments give the same bytes on the same machine.

        Examples
        --------
        >>> import heterocompute as hc
        >>> net = hc.zoo.digits()
        >>> pruned = {k: hc.prune(w, "1:8", axis=(2, 3, 1) if w.ndim == 4 else -1) if w.ndim > 1 else w
        ...           for k, w in net.weights.items()}
        >>> net.accuracy(pruned) < 0.6 < 0.8 < net.accuracy(net.retrain(net.weights, pruned))
        True
        """
        from ..training.retrain import retrain  # training stands above the networks that it trains

        return retrain(self, weights, changed, seed, epochs)


def digits() -> Digits:
    """Load the network that ships: about 73 thousand parameters, trained on scikit-learn's handwritten digits.

    Returns
    -------
    Digits

    Notes
    -----
    The images are from E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
    Repository, 1998 (CC BY 4.0), as scikit-learn carries them. `heterocompute/training/train_digits.py` trains it
    again.

    Examples
    --------
    >>> import heterocompute as hc
    >>> net = hc.zoo.digits()
    >>> net.test_x.shape
    (599, 1, 8, 8)
    """
    return Digits.load()
