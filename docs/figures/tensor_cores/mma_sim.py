"""Compare hc.emulate with MMA-Sim, bitwise. Needs torch and `pip install --no-deps mmasim`, no GPU.

    cd docs/figures/tensor_cores
    python mma_sim.py

MMA-Sim is Microsoft's model of tensor cores, which was compared with each chip: Xie et al., "MMA-Sim" (arXiv
2511.10909), version 2.1.1. The tiles are those of tensor_cores.py. `hc.emulate.matmul` computes the tiles with C = 0,
the same step in float64 computes the others; tests compare this step with the definition.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
import torch
from mmasim import nv_ptx
from tensor_cores import RUNS, Array, Instruction, chain, tiles, values

import heterocompute as hc

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "f32": torch.float32,
}


class Chip(NamedTuple):
    """MMA-Sim's name of the architecture, its class, and shapes by the types of the operands."""

    arch: str
    model: type
    shapes: dict[str, str]


OLD = {"f16": "m16n8k16", "bf16": "m16n8k16", "tf32": "m16n8k8"}
CHIPS = {
    "v100": Chip("Volta", nv_ptx.MMA, {"f16": "m8n8k4"}),
    "a100": Chip("Ampere", nv_ptx.MMA, OLD),
    "ada": Chip("Ada Lovelace", nv_ptx.MMA, {**OLD, "e4m3": "m16n8k32", "e5m2": "m16n8k32"}),
    "h100": Chip(
        "Hopper",
        nv_ptx.WGMMA,
        {"f16": "m64n8k16", "bf16": "m64n8k16", "tf32": "m64n8k8", "e4m3": "m64n8k32", "e5m2": "m64n8k32"},
    ),
    "b200": Chip(
        "Blackwell",
        nv_ptx.TCGen05MMA,
        {
            "f16": "m64n8k16.kind::f16",
            "bf16": "m64n8k16.kind::f16",
            "tf32": "m64n8k8.kind::tf32",
            "e4m3": "m64n8k32.kind::f8f6f4",
            "e5m2": "m64n8k32.kind::f8f6f4",
        },
    ),
}

# The exponent of zeros, the smallest exponent in sums of fp32 and of fp16.
ENDS = {"v100": (-131, -19), "a100": (-132, -20), "ada": (-132, -20), "h100": (-133, -21), "b200": (-133, -21)}


def model_of(chip: str, kind: str, total: str) -> Any:
    """Return the instruction of MMA-Sim."""
    arch, model, shapes = CHIPS[chip]
    end = f".{total}" if model is nv_ptx.MMA else ""
    return model(arch, f"{shapes[kind]}.{total}.{kind}.{kind}{end}")


def simulated(model: Any, kind: str, total: str, a: Array, b: Array, c: Array) -> Array:
    """Return d (count, m, n) for a (count, m, k), b (count, n, k) and c, float32, computed by MMA-Sim."""
    left, right = (torch.from_numpy(x.astype(np.float32)).to(DTYPES[kind]) for x in (a, b))
    start = torch.from_numpy(c.astype(np.float32)).to(DTYPES[total])
    left = left[:, :, None].expand(-1, -1, b.shape[1], -1)
    right = right[:, None].expand(-1, a.shape[1], -1, -1)
    return model.dpa(left, right, start).float().numpy()


def emulated(text: str, kind: str, sums: str, a: Array, b: Array, c: Array) -> Array:
    """Return d computed by hc.emulate."""
    if c.any():
        return chain(c, a, b, kind, text, sums).astype(np.float32)
    return hc.emulate.matmul(a.astype(np.float32), b.swapaxes(-1, -2).astype(np.float32), sums, instruction=text)


def alike(found: Array, wanted: Array) -> Array:
    """Tell which values have the same bits; all NaN are equal."""
    return (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=24, help="of a group")
    options = parser.parse_args()
    for text, preset in hc.emulate.INSTRUCTIONS.items():
        chip, _, kind = text.removeprefix("hmma-").partition("-")
        if chip not in CHIPS:
            continue
        kind = kind or "f16"
        for sums in preset.accumulators:
            total = "f16" if sums == "fp16" else "f32"
            model = model_of(chip, kind, total)
            equal = with_end = count = 0
            different: dict[str, int] = {}
            runs = list(RUNS)
            if total == "f16" or kind in ("bf16", "tf32"):
                runs += [("floor16" if total == "f16" else "floor", n, 0.5, True) for n in (1, 4)]
            for group, length, share, with_c in runs:
                step = Instruction(f"wgmma_{kind}_k{model.k}" + ("_f16" if total == "f16" else ""))
                a, b, c = tiles(step, group, length * model.k, max(round(options.tiles * share), 1))
                c = c if with_c else np.zeros_like(c)
                numbers = values(kind, a), values(kind, b), values(total, c)
                with np.errstate(over="ignore"):
                    found = simulated(model, kind, total, *numbers)
                    wanted = emulated(text, kind, sums, *numbers)
                    ended = chain(numbers[2], *numbers[:2], kind, text, sums, lowest=ENDS[chip][sums == "fp16"])
                same = alike(found, wanted)
                with_end += int(alike(found, ended.astype(np.float32)).sum())
                equal, count = equal + int(same.sum()), count + same.size
                if not same.all():
                    different[group] = different.get(group, 0) + int(same.size - same.sum())
            told = ", ".join(f"{group} {n}" for group, n in different.items())
            if different:
                told += f"; with the end {ENDS[chip][sums == 'fp16']} {count - with_end:,} differ"
            print(f"{text:16} {sums:5} {equal:9,} of {count:9,} equal  {told}", flush=True)


if __name__ == "__main__":
    main()
