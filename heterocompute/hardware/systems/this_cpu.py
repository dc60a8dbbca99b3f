"""This machine's CPU: a product's time by the model, by the product's own plan, and measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import runtime
from ...base.errors import WrongValue
from ...base.lazy import renamed
from ...base.values import Rng, as_int, check_number, seed_from
from ...formats import Format
from ...products.explain import explain
from ...products.matmul import linear
from ...products.quantize import quantize
from ..chips.chip import Device
from ..chips.host import host
from ..cost.roofline import roofline
from ..network.layers import Linear
from .timing import measure

MOST = 1 << 30  # values of all operands


@renamed(chip="device")
def check_host(
    rows: int,
    n: int,
    k: int,
    format: str | Format = "int8",
    activations: str | Format | None = None,
    *,
    device: Device | None = None,
    dtype: str | None = None,
    seconds: float = 0.1,
    seed: int = 0,
    rng: Rng = None,
) -> dict[str, Any]:
    """Compare the prediction of `dispatch` for this CPU with the plan of the matmul and with a measurement.

    Parameters
    ----------
    rows, n, k : int
        Sizes of the matmul of a (rows, k) array with the transpose of (n, k) weights.
    format : Format or str, optional
        Format of the weights.
    activations : Format or str, optional
        As in `linear`.
    device : Device, optional
        Default: ``host(threads=1)``, this machine in one thread, measured once.
    dtype : str, optional
        Type that the CPU computes in. Default: int8 with activations, otherwise fp32.
    seconds : float, optional
        Least measuring time.
    seed : int, optional
        Seed of the numbers.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

    Returns
    -------
    dict
        ``bound_seconds`` and ``bound`` of the roofline; ``path`` and ``predicted_seconds`` of the plan in `explain`,
        None if the plan has no time; ``measured_seconds``, the median in one thread; ``share``, bound over measured,
        the fraction of the model's limit that the matmul reaches.

    Raises
    ------
    ValueError
        A size is below 1, the operands have more than 2^30 values, or the format is invalid.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.systems.check_host(8, 256, 512, "int8", "int8")  # doctest: +SKIP
    >>> found["path"], found["share"] < 1  # doctest: +SKIP
    ('gemv-batch', True)
    """
    rows, n, k = (as_int(size, f"check_host: {name}", 1, MOST) for name, size in (("rows", rows), ("n", n), ("k", k)))
    seconds = check_number("check_host", "seconds", seconds, closed=True)
    seed = as_int(seed_from("check_host", seed, rng), "check_host: seed", 0)
    if rows * k + n * k + rows * n > MOST:
        raise WrongValue(f"check_host: the matmul has ({rows}, {k}) x ({k}, {n}) values, at most {MOST} are measured")
    one = host(threads=1) if device is None else device
    kind = dtype or ("fp32" if activations is None else "int8")
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((rows, k), dtype=np.float32)
    w = quantize(numbers.standard_normal((n, k), dtype=np.float32), format)
    model = roofline(Linear(k, n, bias=False), one, kind, format, rows, input_shape=(k,))
    with runtime.use(threads=1):
        plan = explain(x, w.T, activations)
        measured = measure(lambda: linear(x, w, activations=activations), seconds=seconds)
    predicted = next((row.predicted_ms for row in plan.candidates if row.path == plan.chosen), None)
    return {
        "rows": rows,
        "n": n,
        "k": k,
        "format": str(format),
        "bound_seconds": model.seconds,
        "bound": model.bound,
        "path": plan.chosen,
        "predicted_seconds": None if predicted is None else predicted / 1e3,
        "measured_seconds": measured.seconds,
        "share": model.seconds / measured.seconds,
    }
