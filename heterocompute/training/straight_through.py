"""Rounding inside a training loop: the rounded values, and the gradient of the original values.

Straight through (Bengio et al., arXiv 1308.3432): the gradient of a value is that of its rounded value if the value is
in the format's range, otherwise 0. The value before rounding decides, and the bounds are included, so a value that
rounds to the last code keeps its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from ..arrays.array_like import ArrayLike
from ..arrays.dense import as_array, normalize_axes
from ..arrays.foreign import alike, refuse_elsewhere
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..base.values import Rng, as_real, check_text, seed_from
from ..formats import Format
from ..products.arguments import as_format
from ..products.device import runs_on_device
from .device import rounded_on_device
from .learned_scale import rounded_with_scale
from .passing import passed, rounded
from .stochastic import as_seed

Array = np.ndarray[Any, Any]


@renamed(fmt="format")
@counts_subnormals
def fake_quantize(
    w: ArrayLike,
    format: Format | str,
    axis: int | tuple[int, ...] = -1,
    clip: object = None,
    rounding: str = "nearest",
    seed: int = 0,
    scale: ArrayLike | None = None,
    *,
    rng: Rng = None,
) -> tuple[Array, Callable[[Any], Any]]:
    """Round an array, and return the values and the function that computes the gradient through the rounding.

    Parameters
    ----------
    w, format, axis, clip
        As in `heterocompute.quantize`. The scale is computed from w at each call and is not trained.
    rounding : {"nearest", "stochastic"}
        Stochastic rounding rounds up with probability (w - lower) / (upper - lower), so that the mean is w, with the
        scales as stored. The random number of an element depends only on `seed` and its index (in C order; for
        a pattern, the index among the nonzeros). Results are bitwise identical on every machine and number of threads.
    seed : int
        0 to 2^64 - 1. Use another one at each step.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).
    scale : array_like, optional
        For symmetric integers: a trained scale that replaces the computed one. float32, above 0, of the shape of
        ``hc.quantize(w, fmt, axis).components["scales"]``.

    Returns
    -------
    (ndarray of float32, callable)
        The values, and ``back(g)``, which returns dL/dw for dL/dy, in float32. With `scale` it returns the pair
        (dL/dw, dL/dscale). For an array on a device all of these are on that device, with the bits of the CPU.

    Raises
    ------
    TypeError, ValueError
        As in `heterocompute.quantize`. Also for an unknown rounding, stochastic rounding to a learned codebook, a scale
        with another format, shape or sign, or a scale together with `clip` or stochastic rounding.

    Notes
    -----
    dL/dw is dL/dy times

    ===========================================  =====================================================================
    format                                       factor
    ===========================================  =====================================================================
    scaled by the largest magnitude, clip=None   1; for `VSQ` unsigned 0 where w < 0
    `Int`, `VSQ`, `NF4`, `Log`, scaled `Float`   with a clip 1 up to the threshold T of the group, 0 beyond
    the same with ``clip="octav"``               1 up to T, T / abs(w) beyond (MAD: Sakr, ICML 2022)
    `Int` with ``scale=s``                       1 where abs(w) <= Q s, Q the largest code, 0 beyond; of s, the sum over
                                                 the group of g times RNE(w / s) - w / s inside, Q sign(w) beyond,
                                                 times 1 / sqrt(values of the group * Q) (LSQ: Esser, ICLR 2020)
    `MX`, `NVFP4`                                1: scales are rounded, but what they cut off is in range
    `Float` without a scale                      1 up to the type's largest value, 0 beyond
    a function (`define` with ``round=``)        1
    `Codebook`                                   1; of its centres `heterocompute.codebook_gradient`
    own formats (`define`)                       as these: without a scale 0 beyond the largest, unsigned 0 where w < 0
    patterns such as ``"int8+2:4"``              1, also where nothing is kept; `sr_ste` pulls these to zero
    ===========================================  =====================================================================

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> y, back = hc.training.fake_quantize(np.float32([0.2, 1.0, -3.0, 0.6]), "int2", clip=0.5)
    >>> y, back(np.float32([1, 2, 3, 4]))
    (array([ 0. ,  1.5, -1.5,  0. ], dtype=float32), array([1., 2., 0., 4.], dtype=float32))
    """
    format = as_format(format, "fake_quantize: format", functions=not runs_on_device(w))
    if check_text("fake_quantize", "rounding", rounding) not in ("nearest", "stochastic"):
        raise WrongValue(f"fake_quantize: rounding is {shown(rounding)}, expected 'nearest' or 'stochastic'")
    chosen = as_seed(seed_from("fake_quantize", seed, rng))
    if scale is not None and (clip is not None or rounding != "nearest"):
        raise WrongValue("fake_quantize: with scale= there is no clip, and rounding is 'nearest'")
    if runs_on_device(w):
        return rounded_on_device(w, format, axis, clip, rounding, chosen, scale)
    x = as_array(w, "fake_quantize: w")
    axes = normalize_axes(axis, x.ndim, "fake_quantize")
    if scale is not None:
        return rounded_with_scale(x, format, axes, scale)
    y, note = rounded(x, format, axes, clip, rounding, chosen)

    @counts_subnormals
    def back(g: ArrayLike) -> Array:
        gradient = as_array(g, "back: g")
        if gradient.shape != y.shape:
            raise WrongValue(f"back: g has shape {gradient.shape}, expected {y.shape}")
        found = passed(gradient, note, format, axes)
        return found.copy() if found is gradient else found

    return y, back


@counts_subnormals
@renamed(g="dw")
def sr_ste(dw: ArrayLike, w: ArrayLike, mask: ArrayLike, decay: float = 2e-4) -> Any:
    """Add a decay of pruned weights to a gradient, so that the pattern settles.

    Parameters
    ----------
    dw, w : array_like
        dL/d(w * mask), and the weights.
    mask : array_like of bool
        True for nonzeros.
    decay : float

    Returns
    -------
    ndarray of float32
        ``dw + decay * (1 - mask) * w``; a tensor of dw's dtype if dw is a tensor.

    Raises
    ------
    ValueError
        The shapes differ.

    Notes
    -----
    Zhou et al., "Learning N:M Fine-grained Structured Sparse Neural Networks From Scratch", ICLR 2021, equation 9.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.training.sr_ste(np.float32([1, 1]), np.float32([4, 4]), [True, False], decay=0.5)
    array([1., 3.], dtype=float32)
    """
    gradient, weights = as_array(dw, "sr_ste: dw"), as_array(w, "sr_ste: w")
    kept = _mask(mask, "sr_ste: mask")
    if not gradient.shape == weights.shape == kept.shape:
        raise WrongValue(f"sr_ste: dw has shape {gradient.shape}, w {weights.shape} and mask {kept.shape}")
    decay = as_real(decay, "sr_ste: decay", "a number")
    if not isfinite(decay):
        raise WrongValue(f"sr_ste: decay is {decay}, expected a finite number")
    pull = np.float32(decay) * weights.astype(np.float32)
    answer = gradient.astype(np.float32) + np.where(kept, np.float32(0), pull)
    return answer if isinstance(dw, np.ndarray) else alike(answer.astype(gradient.dtype, copy=False), dw)


@counts_subnormals
def sparsity_at(step: float, begin: float, end: float, final: float, power: float = 3) -> float:
    """Compute the fraction of the weights to prune at one step of a gradual schedule.

    Parameters
    ----------
    step, begin, end : float
        The result is 0 up to `begin`, and `final` from `end` on.
    final : float
        From 0 to 1.
    power : float
        Above 0. With 3, pruning is fast at first and slow at the end.

    Returns
    -------
    float
        ``final * (1 - (1 - (step - begin) / (end - begin)) ** power)``.

    Raises
    ------
    ValueError
        end is not after begin, final is not in 0 to 1, or power is not above 0.

    Notes
    -----
    Zhu, Gupta, "To prune, or not to prune" (arXiv 1710.01878), equation 1.

    Examples
    --------
    >>> import heterocompute as hc
    >>> [hc.training.sparsity_at(step, 0, 100, 0.5) for step in (0, 50, 100)]
    [0.0, 0.4375, 0.5]
    """
    step, begin, end, final, power = (
        as_real(value, f"sparsity_at: {name}", "a number")
        for name, value in {"step": step, "begin": begin, "end": end, "final": final, "power": power}.items()
    )
    if step != step:
        raise WrongValue("sparsity_at: step is nan, expected a number")
    if not isfinite(begin):
        raise WrongValue(f"sparsity_at: begin is {begin}, expected a finite number")
    if not end > begin:
        raise WrongValue(f"sparsity_at: end is {shown(end)}, expected more than begin, {shown(begin)}")
    if not 0 <= final <= 1 or not power > 0:
        raise WrongValue(f"sparsity_at: final is {shown(final)} and power {shown(power)}, expected 0 to 1 and above 0")
    done = min(max((step - begin) / (end - begin), 0.0), 1.0)
    return float(final * (1 - (1 - done) ** power))


@counts_subnormals
def mask_flips(old: ArrayLike, new: ArrayLike) -> float:
    """Compute the fraction of a mask that changed, which shows whether a pattern settles.

    Parameters
    ----------
    old, new : array_like of bool

    Returns
    -------
    float
        From 0 to 1; 0 for empty masks.

    Raises
    ------
    ValueError
        The shapes differ.

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.training.mask_flips([True, True, False, False], [True, False, True, False])
    0.5
    """
    before, after = _mask(old, "mask_flips: old"), _mask(new, "mask_flips: new")
    if before.shape != after.shape:
        raise WrongValue(f"mask_flips: old has shape {before.shape} and new {after.shape}")
    return float((before != after).mean()) if before.size else 0.0


def _mask(mask: object, name: str) -> Array:
    refuse_elsewhere(mask, name)
    found = np.asarray(mask)
    if found.dtype != np.bool_:
        raise WrongType(f"{name} has dtype {found.dtype}, expected bool")
    return found
