"""Short training of weights that are quantized or pruned, on examples that trained the network.

pattern   w <- mask (w - step)                 the mask never changes (Han et al., NIPS 2015, section 3)
format    loss(round(w)), w <- w - step        the gradient goes through the rounding as if it were not there
codebook  C_k <- C_k - step of sum over k      the codes never change (Han et al., ICLR 2016, section 3.3)

Adam for weights, momentum for codebooks, cosine learning rate, softmax cross-entropy. Sums have one
order (gradients.py): the same bytes with any number of threads and any BLAS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..arrays.sparse import SparseArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.values import as_int
from ..formats import Float, Sparse, has_pattern
from ..products.quantize import fake_quantize, quantize
from .codebooks import codebook_gradient, codebook_step
from .descent import LEARNING_RATE, MOMENTUM, ROW_RATE, TENSOR_RATE, Adam, batches, share_of, steps_of
from .gradients import gradients

F32 = NDArray[np.float32]


class Trainable(Protocol):
    """The methods that a network needs to be trained, as `heterocompute.zoo.Network` has them."""

    @property
    def layers(self) -> Mapping[str, Any]: ...
    @property
    def batch(self) -> int: ...
    @property
    def train_x(self) -> F32: ...
    @property
    def train_y(self) -> NDArray[np.int64]: ...


@counts_subnormals
def retrain(
    net: Trainable, weights: Mapping[str, Any], changed: Mapping[str, Any], seed: int, epochs: int
) -> dict[str, Any]:
    """Train as `heterocompute.zoo.Network.retrain` describes.

    Parameters
    ----------
    net : Trainable
        Whose layers and training examples are used.
    seed, epochs : int
        0 or more.

    Raises
    ------
    TypeError
        An argument is not a mapping, or the seed or epochs are not ints.
    ValueError
        The two mappings differ in names or shapes, or the seed or epochs are below 0.

    Examples
    --------
    >>> import heterocompute as hc
    >>> from heterocompute.training.retrain import retrain
    >>> net = hc.zoo.digits()
    >>> changed = {**net.weights, "fc2.weight": hc.quantize(net.weights["fc2.weight"], "int2")}
    >>> str(retrain(net, net.weights, changed, 0, 1)["fc2.weight"].format)
    'int2'
    """
    seed, epochs = as_int(seed, "retrain: seed", 0), as_int(epochs, "retrain: epochs", 0)
    for what, given in (("weights", weights), ("changed", changed)):
        if not isinstance(given, Mapping):
            raise WrongType(f"retrain: {what} is {shown(given)}, expected a mapping of names to arrays")
    if set(weights) != set(changed):
        raise WrongValue(f"retrain: changed has the names {sorted(changed)}, expected those of weights")
    for name, value in changed.items():
        shape = getattr(value, "shape", None)
        if shape != weights[name].shape:
            got = "no shape" if shape is None else f"shape {shape}"
            raise WrongValue(f"retrain: changed[{shown(name)}] has {got}, expected {weights[name].shape}")
    trained = {name: _trained(weights[name], value) for name, value in changed.items() if value is not weights[name]}
    steps = steps_of(len(net.train_x), net.batch, epochs)
    examples = batches(net.train_x, net.train_y, net.batch, epochs, np.random.default_rng(seed))
    for step, (x, labels) in enumerate(examples, 1):
        values = {**weights, **{name: one.values() for name, one in trained.items()}}
        _, found = gradients(net.layers, values, x, labels)
        share = share_of(step, steps)
        for name, one in trained.items():
            one.move(found[name], share)
    return {name: trained[name].result() if name in trained else value for name, value in changed.items()}


def mask_of(q: QuantizedArray) -> NDArray[np.bool_]:
    """Return which values the pattern of an array keeps.

    Parameters
    ----------
    q : QuantizedArray
        Of a format with a pattern, such as ``int8+2:4``.

    Returns
    -------
    ndarray of bool, of q's shape

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> mask_of(hc.quantize(np.float32([[1, -4, 3, 2]]), "int8+2:4"))
    array([[False,  True,  True, False]])
    """
    fmt = q.format
    assert has_pattern(fmt)
    length = q.shape[q.axis[-1]]
    nonzeros = int(np.prod([q.shape[a] for a in q.axis[:-1]], dtype=np.int64)) * fmt.stored_length(length)
    metadata = q.components["metadata"]
    ones = np.ones((len(metadata), nonzeros), np.float32)
    plain = Sparse(Float("fp32"), fmt.n, fmt.m)
    return SparseArray({"values": ones, "metadata": metadata}, plain, q.shape, q.axis).mask


def _trained(w: object, changed: object) -> _Codebook | _Weights:
    if isinstance(changed, RotatedArray):
        raise changed.format.refusal("retrain: the format of a weight")
    if isinstance(changed, QuantizedArray) and changed.format.learns_codebook:
        return _Codebook(changed)
    return _Weights(np.asarray(w, np.float32), changed)


class _Weights:
    """Values that a mask, a format or both shape."""

    def __init__(self, w: F32, changed: Any) -> None:
        self._changed = changed
        fmt = changed.format if isinstance(changed, QuantizedArray) else None
        self._mask = np.asarray(changed) != 0 if fmt is None else None
        self._rounding = fmt
        if has_pattern(fmt):
            self._mask = mask_of(changed)
            self._rounding = None if fmt.is_plain else fmt
        self._w: F32 = w.copy() if self._mask is None else np.where(self._mask, w, np.float32(0))
        self._adam = Adam(self._w.shape)

    def values(self) -> F32:
        if self._rounding is None:
            return self._w
        return fake_quantize(self._w, self._rounding, axis=self._changed.axis)

    def move(self, gradient: F32, share: float) -> None:
        if self._mask is not None:
            gradient = gradient * self._mask
        self._w -= np.float32(LEARNING_RATE * share) * self._adam.direction(gradient)

    def result(self) -> Any:
        q = self._changed
        if not isinstance(q, QuantizedArray):
            return self._w
        if not has_pattern(q.format):
            return quantize(self._w, q.format, axis=q.axis)
        assert self._mask is not None
        pruned = SparseArray.from_mask(self._w, self._mask, f"{q.format.n}:{q.format.m}", q.axis)
        return pruned if q.format.is_plain else quantize(pruned, q.format.base)


class _Codebook:
    """Values of a codebook whose codes stay."""

    def __init__(self, q: QuantizedArray) -> None:
        self._q = q
        self._rate = TENSOR_RATE if q.format.form.shared else ROW_RATE
        self._velocity = np.zeros_like(q.components["codebook"])

    def values(self) -> F32:
        return self._q.dequantize()

    def move(self, gradient: F32, share: float) -> None:
        self._velocity = MOMENTUM * self._velocity + codebook_gradient(gradient, self._q)
        self._q = codebook_step(self._q, self._velocity, self._rate * share)

    def result(self) -> QuantizedArray:
        return self._q
