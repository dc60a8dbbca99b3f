"""Time `hc.ptq.gptq` and the published GPTQ in PyTorch: python docs/figures/gptq.py [--size K] [--rounds N]

One weight of K x K to int4-g32, with all threads of this process; each round runs all candidates once. The other
implementation is `fasterquant` of github.com/IST-DASLab/gptq (Frantar et al., ICLR 2023) with its defaults: natural
order, scales from the largest magnitude when columns reach a group, on the grid of `int4-g32`, float32, two Cholesky
factors and an inverse, 128 columns at a time. It has no descent, so `hc.ptq.gptq` is timed without descent, and also
with its defaults. Prints medians of seconds, medians of the ratios within a round, errors under H, and the time of the
factor relative to LAPACK's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import torch
from runner import interleaved, options

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.bench.machine import machine

GROUP, LARGEST, BLOCK = 32, 7, 128
Array = np.ndarray[Any, Any]


def published(w: Array, h: Array) -> Array:
    """Round like `fasterquant`; return the values."""
    left, matrix = torch.tensor(w), torch.tensor(h, dtype=torch.float32)
    columns, scale = len(matrix), torch.ones(len(w))
    diagonal = torch.arange(columns)
    matrix[diagonal, diagonal] += 0.01 * torch.mean(torch.diag(matrix))
    inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(matrix)), upper=True)
    found = torch.zeros_like(left)
    for first in range(0, columns, BLOCK):
        last = min(first + BLOCK, columns)
        block, errors = left[:, first:last].clone(), torch.zeros(len(w), last - first)
        factor = inverse[first:last, first:last]
        for i in range(last - first):
            x, pivot = block[:, i], factor[i, i]
            if (first + i) % GROUP == 0:
                scale = left[:, first + i : first + i + GROUP].abs().amax(dim=1) / LARGEST
            value = torch.clamp(torch.round(x / scale), -LARGEST, LARGEST) * scale
            found[:, first + i] = value
            error = (x - value) / pivot
            block[:, i:] -= error.unsqueeze(1).matmul(factor[i, i:].unsqueeze(0))
            errors[:, i] = error
        left[:, last:] -= errors.matmul(inverse[first:last, last:])
    return found.numpy()


def problem(k: int) -> tuple[Array, Array]:
    """Return a weight, and a Hessian of correlated inputs."""
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((k // 8, k))
    x = rng.standard_normal((2 * k, k // 8)) @ mix / np.sqrt(k / 8) + rng.standard_normal((2 * k, k)) / 2
    x *= np.exp(rng.standard_normal(k) / 2)
    return rng.standard_normal((k, k), dtype=np.float32), x.T @ x


def factor(h: Array) -> Array:
    """Factor like `gptq`."""
    matrix, pivots = h.copy(), np.empty(len(h))
    assert core.ptq_factor(runtime.run(), matrix, pivots) < 0
    return matrix


def main() -> None:
    """Measure, and print the results."""
    parser = options(__doc__)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    threads = hc.get_num_threads()
    torch.set_num_threads(threads)
    w, h = problem(arguments.size)
    h = np.triu(h) + np.triu(h, 1).T
    damped = h + 0.01 * np.diagonal(h).mean() * np.eye(len(h))
    plain: dict[str, Any] = {"order": "natural", "scales": "absmax", "sweeps": 0}
    calls = {
        "torch": lambda: published(w, h),
        "the same": lambda: hc.ptq.gptq(w, h, "int4-g32", **plain),
        "searched scales, three sweeps": lambda: hc.ptq.gptq(w, h, "int4-g32", refit=False),
        "as it is called": lambda: hc.ptq.gptq(w, h, "int4-g32"),
        "factor": lambda: factor(damped),
        "numpy.linalg.cholesky": lambda: np.linalg.cholesky(damped),
        "scipy.linalg.cholesky": lambda: scipy.linalg.cholesky(damped, check_finite=False),
    }
    seconds = interleaved(calls, arguments.rounds)
    rounded = {name: call for name, call in calls.items() if "chol" not in name and name != "factor"}
    errors = {name: hc.ptq.error(w, np.asarray(call()), h).output_db for name, call in rounded.items()}
    print(machine())
    print(
        f"{arguments.size} x {arguments.size}, {threads} threads, torch {torch.__version__}, scipy {scipy.__version__}"
    )
    for name, found in seconds.items():
        peers = ("torch",) if name in errors else ("numpy.linalg.cholesky", "scipy.linalg.cholesky")
        ratios = (f"{np.median(np.divide(seconds[peer], found)):.2f} x {peer}" for peer in peers if peer != name)
        level = f", {errors[name]:.2f} dB" if name in errors else ""
        print(f"{name:30} {np.median(found):7.2f} s{level:12}", ", ".join(ratios))


if __name__ == "__main__":
    main()
