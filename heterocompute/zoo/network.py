"""Shared by the networks that ship: weights, examples, and a forward pass that accepts any kind of operand.

Layers with ReLU between: 3 x 3 convolutions padded by one, then linear layers; `layers.py` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import emulate as emulation
from ..arrays.quantized import QuantizedArray
from ..base.cached import cached
from ..base.container import Reader
from ..base.float_env import counts_subnormals
from ..base.notebooks.shown import Shown, facts_html
from ..base.runtime import use
from ..base.values import Rng, seed_from
from ..products.conv import conv2d
from ..products.divergence import kl_divergence
from ..products.matmul import linear
from .layers import STRIDES


@dataclass(frozen=True, eq=False, repr=False)
class Network(Shown):
    """A small network with held-out examples, which evaluates and trains its own weights.

    Attributes
    ----------
    weights : dict of str to ndarray
        float32: ``fc1.weight`` (out_features, in_features), ``fc1.bias`` (out_features,), ..., with the shapes in
        `layers`.
    test_x : ndarray
        float32 (n, ...): held-out examples.
    test_y : ndarray
        int64 (n,) or (n, answers): the correct classes, from 0 on.
    train_x, train_y : ndarray
        The training examples, in the same form.
    layers : mapping of str to tuple of int
        Shapes of the weights by layer name, first to last.
    batch : int
        Training batch size.
    hardware : str or None
        Name of the same network in `heterocompute.hardware.networks`.
    """

    weights: dict[str, NDArray[np.float32]]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]
    layers: ClassVar[Mapping[str, tuple[int, ...]]]
    batch: ClassVar[int]
    hardware: ClassVar[str | None] = None

    def __repr__(self) -> str:
        size = sum(w.size for w in self.weights.values())
        sizes = f"{len(self.layers)} layers, {size:,} weights, {len(self.test_x)} held-out examples"
        return f"<{type(self).__name__}: {sizes}>"

    def _repr_html_(self) -> str:
        shapes = {name: " x ".join(map(str, w.shape)) for name, w in self.weights.items()}
        return facts_html({"network": repr(self).strip("<>"), **shapes})

    @counts_subnormals
    def forward(
        self,
        weights: Mapping[str, Any],
        x: NDArray[np.float32],
        activations: Any = None,
        emulate: str | None = None,
    ) -> NDArray[np.float32]:
        """Run the network and return the logits.

        Parameters
        ----------
        weights : mapping of str to ndarray or QuantizedArray
            Like `weights`. Any of them may be quantized, convolutions with ``axis=(2, 3, 1)``.
        x : ndarray
            float32, like `test_x`.
        activations : Format, str or None
            Format to which every layer's input is quantized on the fly.
        emulate : str or None
            Compute with emulated hardware, see `heterocompute.emulate.parse`. If the emulation multiplies only codes,
            layers with unquantized weights are computed as usual.

        Returns
        -------
        ndarray
            float32 (n, logits), bitwise identical on any machine with any number of threads.

        Raises
        ------
        ValueError
            The emulation does not support these formats.

        Examples
        --------
        >>> import heterocompute as hc
        >>> net = hc.zoo.digits()
        >>> net.forward(net.weights, net.test_x[:3]).argmax(axis=1) == net.test_y[:3]
        array([ True,  True,  True])
        """
        last = list(self.layers)[-1]
        for name, shape in self.layers.items():
            w, b = weights[f"{name}.weight"], weights[f"{name}.bias"]
            x = x if len(shape) == 4 else x.reshape(len(x), prod(x.shape[1:]))
            if emulate is not None and (isinstance(w, QuantizedArray) or emulation.accepts(emulate, activations, None)):
                if len(shape) == 4:
                    x = emulation.conv2d(x, w, b, STRIDES[name], 1, activations, emulate)
                else:
                    x = emulation.linear(x, w, b, activations, emulate)
            elif len(shape) == 4:
                x = conv2d(x, w, b, stride=STRIDES[name], padding=1, activations=activations)
            else:
                with use(blas="own"):  # a BLAS sums in an order that depends on the number of threads
                    x = linear(x, w, b, activations=activations)
            if name != last:
                x = np.maximum(x, 0)
        return x

    @counts_subnormals
    def accuracy(self, weights: Mapping[str, Any], activations: object = None, emulate: str | None = None) -> float:
        """Compute the accuracy: the fraction of held-out examples with all answers correct.

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
        return self.evaluate(weights, activations, emulate)["accuracy"]

    @counts_subnormals
    def evaluate(
        self, weights: Mapping[str, Any], activations: object = None, emulate: str | None = None
    ) -> dict[str, float]:
        """Evaluate weights on the held-out examples, as `heterocompute.study` requires.

        Parameters
        ----------
        weights : mapping of str to ndarray or QuantizedArray
        activations : Format, str or None
        emulate : str or None

        Returns
        -------
        dict of str to float
            ``accuracy``, as in `accuracy`, and ``kl``, the `heterocompute.kl_divergence` from the predictions of the
            original float32 `weights`, in nats. It is 0 for the original weights.

        Examples
        --------
        >>> import heterocompute as hc
        >>> net = hc.zoo.digits()
        >>> net.evaluate(net.weights)["kl"], net.evaluate(net.weights, activations="int4")["kl"] > 0.001
        (0.0, True)
        """
        logits = self._answers(self.forward(weights, self.test_x, activations, emulate))
        right = (logits.argmax(axis=-1) == self.test_y).reshape(len(self.test_y), -1).all(axis=1)
        return {"accuracy": float(right.mean()), "kl": kl_divergence(self._test_logits, logits)}

    def _answers(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return logits.reshape(*self.test_y.shape, -1)

    @cached
    def _test_logits(self) -> NDArray[np.float32]:
        return self._answers(self.forward(self.weights, self.test_x))

    def retrain(
        self,
        weights: Mapping[str, Any],
        changed: Mapping[str, Any],
        seed: int = 0,
        epochs: int = 5,
        *,
        rng: Rng = None,
    ) -> dict[str, Any]:
        """Train quantized or pruned weights for a short time; `heterocompute.study` uses this method.

        Parameters
        ----------
        weights : mapping of str to ndarray
            Like `weights`, before the change.
        changed : mapping of str to ndarray or QuantizedArray
            The same names. Arrays that are not the identical object of `weights` are trained; all others stay.
        seed : int
            0 or more. Seed of the order of the training examples and of the image distortions.
        epochs : int
            Passes over `train_x`, a fifth of a second each. 0 only rounds the present values.
        rng : int or numpy.random.Generator, optional
            In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

        Returns
        -------
        dict of str to ndarray or QuantizedArray
            Same formats and shapes. A codebook keeps its codes and changes its values. A pattern, or the zeros of an
            ndarray, stay in place. For every other format the unrounded values are trained with the straight-through
            estimator, and rounded again.

        Notes
        -----
        See `heterocompute.training.retrain`. The same arguments give identical bytes with any number of threads.

        Examples
        --------
        >>> import heterocompute as hc
        >>> net = hc.zoo.digits()
        >>> pruned = {k: hc.prune(w, "1:8", axis=(2, 3, 1) if w.ndim == 4 else -1) if w.ndim > 1 else w
        ...           for k, w in net.weights.items()}
        >>> net.accuracy(pruned) < 0.6 < 0.8 < net.accuracy(net.retrain(net.weights, pruned))
        True
        """
        from ..training.retrain import retrain  # a later import: training may import networks, not the reverse

        return retrain(self, weights, changed, seed_from("retrain", seed, rng), epochs)


def read(path: str | Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a safetensors file by name."""
    with Reader(path) as reader:
        return {name: reader.tensor(name) for name in reader.names}


def weights_of(tensors: Mapping[str, NDArray[Any]], layers: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Pick ``weights/<layer>.weight`` and ``.bias`` of each layer, in order.

    Returns
    -------
    dict of str to ndarray
        ``<layer>.weight`` and ``<layer>.bias``.
    """
    return {f"{name}.{part}": tensors[f"weights/{name}.{part}"] for name in layers for part in ("weight", "bias")}
