"""Print the numbers of docs/ptq.md about rounding without data and the bound: python docs/figures/rounding.py"""

from __future__ import annotations

import numpy as np

import heterocompute as hc

FORMATS = ("int4", "int4-g32", "vsq2-g16-s4", "nf4-g64", "nvfp4")
DAMPING = 0.01


def main() -> None:
    """Compute and print the numbers."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 4096), dtype=np.float32)
    for fmt in FORMATS:
        plain, searched = (hc.error(x, q).sqnr_db for q in (hc.quantize(x, fmt), hc.quantize(x, fmt, clip="search")))
        print(f"{fmt:12} {plain:.2f} dB, scales searched {searched:.2f}")
    for k in (384, 1536):
        inputs = rng.standard_normal((4 * k, k)) @ (rng.standard_normal((k, k)) * np.exp(rng.standard_normal(k) / 2))
        h = hc.ptq.Hessian(k)
        h.add(inputs)
        damped = h.matrix + DAMPING * np.diagonal(h.matrix).mean() * np.eye(k)
        w = rng.standard_normal((64, k)).astype(np.float32)
        for fmt in ("int6", "int8", "int8-g32"):  # the largest magnitude is the last step: nothing is clipped
            q = hc.ptq.gptq(w, h, fmt, scales="absmax", sweeps=0, refit=False, damping=DAMPING)
            lost = w.astype(np.float64) - q.dequantize(np.float64)
            share = np.sum(lost @ damped * lost, axis=1) / hc.ptq.bound(w, fmt, h, DAMPING)
            print(f"{k} inputs, {fmt:8} error over the bound: mean {share.mean():.3f}, at most {share.max():.3f}")


if __name__ == "__main__":
    main()
