"""Rounding that also corrects the drift of a layer's inputs: `qronos`."""

from __future__ import annotations

from typing import Any

from ..arrays.quantized import QuantizedArray
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..formats import Format
from .gptq import rounded_under, warned


@renamed(fmt="format")
@counts_subnormals
def qronos(
    w: Any,
    h: Any,
    format: Format | str,
    order: str = "activation",
    scales: str = "search",
    damping: float = 1e-3,
    sweeps: int = 3,
    refit: bool | int = True,
    axis: int | tuple[int, ...] | None = None,
    mask: Any = None,
    shrinkage: float = 0.0,
) -> QuantizedArray:
    """Round a weight so that its output on the rounded network's inputs is closest to the unrounded network's output.

    The first column takes the best value while all other weights are unchanged. The remaining weights then move to the
    least-squares solution for the rounded column, and the columns are rounded one by one, each correcting for the
    errors of the columns before it. Scales are searched and codes are improved as in `gptq`.

    Parameters
    ----------
    w : array_like, (outputs, inputs) or (K, C, R, S)
        Floats.
    h : Hessian or array_like
        Hessian of the layer's inputs in the rounded network and in the unrounded one: ``h.add(x, x_float)``. Without
        x_float the two are the same, and the method is `gptq` with this damping.
    format : Format or str
        Any format or pattern of `gptq`.
    order, scales, sweeps, refit, axis, mask
        As in `gptq`.
    damping : float
        0 or more. This share of the largest eigenvalue of the matrix, by 30 steps of power iteration, is added to the
        diagonal. If the matrix does not factor, ten times as much is added, with a warning. The authors use 1e-6, which
        needs many more inputs than the layer has: docs/ptq.md has measurements.
    shrinkage : float
        As in `gptq`; added to the cross matrix, too, so that w stays the solution without rounding.

    Returns
    -------
    QuantizedArray
        As `gptq`. Plain rounding of w is always a candidate.

    Raises
    ------
    TypeError, ValueError
        As in `gptq`.

    Notes
    -----
    Zhang, Zhang, Colbert and Saab, "Qronos", ICLR 2026 (arXiv 2505.11695). With ``scales="absmax", sweeps=0`` this is
    the published method, in the form of LDLQ: the weights after the first column follow from the solution
    ``v = (w cross + l w)(H + l I)^-1`` and the errors ``v - q``. Memory as `gptq` with `cross`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> rng = np.random.default_rng(0)
    >>> x_float = rng.standard_normal((512, 64)) @ rng.standard_normal((64, 64))
    >>> x = np.asarray(hc.quantize(x_float.astype(np.float32), "int4"))  # the inputs after rounded layers
    >>> w = rng.standard_normal((32, 64), dtype=np.float32)
    >>> h = hc.ptq.Hessian(64)
    >>> h.add(x, x_float)
    >>> hc.ptq.error(w, hc.ptq.qronos(w, h, "int4-g32"), h).output_db > 2 + hc.ptq.error(
    ...     w, hc.quantize(w, "int4-g32"), h).output_db
    True
    """
    options = {"order": order, "scales": scales, "damping": damping, "sweeps": sweeps, "refit": refit}
    options["shrinkage"] = shrinkage
    found: QuantizedArray = warned(
        rounded_under(w, h, format, axis, mask, method="qronos", **options), "qronos", damping
    )
    return found
