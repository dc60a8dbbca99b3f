"""Results of an H100 are reproduced bitwise: h100.npz, tiles of docs/figures/tensor_cores/tensor_cores.py --keep.

One NVIDIA H100 80GB HBM3, driver 580.159.04, CUDA 13.0, wgmma; mma.sync gave the same results. The file has the sums
that distinguish most other models. An array is (groups, rows of a, b or sums, values): codes of a and b, then C, then
the results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import same_bits

import heterocompute as hc
from heterocompute.reference import emulation

STORED = np.load(Path(__file__).with_name("h100.npz"))
TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
NAMES = list(dict.fromkeys(name.split()[0] for name in STORED))


def preset_of(name: str) -> tuple[str, str]:
    """Return the instruction of hc.emulate, and the type of its sum."""
    kind, half = name.split("_")[1], name.endswith("_f16")
    text = "hmma-h100" if kind == "f16" else f"hmma-h100-{kind}"
    return text, "fp16" if half else hc.emulate.INSTRUCTIONS[text].accumulators[0]


def stored(name: str, chain: bool) -> list[Any]:
    """Return a, b, c and d as float32, for single instructions or chains."""
    k = int(name.split("_")[2][1:]) * (4 if chain else 1)
    kind, total = name.split("_")[1], np.float16 if name.endswith("_f16") else np.float32
    parts = []
    for letter in "abcd":
        part = STORED[f"{name} {k} {letter}"]
        parts.append(part.view(total if letter in "cd" else TYPES[kind]).astype(np.float32))
    return parts


def by_definition(name: str, a: Any, b: Any, c: Any, **other: Any) -> Any:
    """Return one step of the definition that starts from C."""
    text, total = preset_of(name)
    preset = hc.emulate.INSTRUCTIONS[text]
    chosen = {"width": preset.aligned_bits, "lowest": preset.lowest.get(total), **other}
    d = np.empty_like(c)
    for i in np.ndindex(*c.shape):
        pairs = list(zip(a[i[0], i[1]].tolist(), b[i[0], i[2]].tolist(), strict=True))
        roundings = other.get("roundings", (preset.rounding(total), "truncate"))
        smallest = emulation.INPUTS[preset.inputs]
        d[i] = emulation.step(float(c[i]), pairs, total, chosen["width"], roundings, smallest, chosen["lowest"])
    return d


@pytest.mark.parametrize("name", NAMES)
def test_chains_of_instructions_give_what_an_h100_gave(name: str) -> None:
    text, total = preset_of(name)
    a, b, c, d = stored(name, chain=True)
    assert not c.any() and len(np.unique(d)) > d.size // 2
    assert same_bits(hc.emulate.matmul(a, b.swapaxes(-1, -2), total, instruction=text), d)


@pytest.mark.parametrize("name", NAMES)
def test_one_instruction_gives_what_an_h100_gave(name: str) -> None:
    a, b, c, d = stored(name, chain=False)
    assert a.shape[-1] == hc.emulate.INSTRUCTIONS[preset_of(name)[0]].chunk and (c != 0).mean() > 0.25
    assert same_bits(by_definition(name, a, b, c), d)
    text, total = preset_of(name)
    alone = hc.emulate.matmul(a, b.swapaxes(-1, -2), total, instruction=text)  # where C is nothing
    assert same_bits(alone[c == 0], d[c == 0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(every=12)
def test_what_is_stored_tells_other_models_apart(name: str) -> None:
    a, b, c, d = stored(name, chain=False)
    text, total = preset_of(name)
    preset = hc.emulate.INSTRUCTIONS[text]
    width, lowest = preset.aligned_bits, preset.lowest.get(total)
    assert width is not None
    others: list[dict[str, Any]] = [{"width": width - 1}, {"width": width + 1}, {"width": None}]
    others += [{"roundings": (sums, cut)} for sums in ("rne", "truncate") for cut in ("rne", "truncate")]
    others.remove({"roundings": (preset.rounding(total), "truncate")})
    if "f16_k16_f16" in name or "bf16" in name or "tf32" in name:  # products of other types do not overflow
        assert lowest is not None
        others += [{"lowest": other} for other in (None, lowest - 1, lowest + 1)]
    for other in others:
        assert not same_bits(by_definition(name, a, b, c, **other), d), other


def test_fp8_products_of_torch_on_an_h100() -> None:
    """torch._scaled_mm (2.11.0+cu130) of 16 x 512 x 16 into float32, 6 rows and columns of it.

    use_fast_accum=True is one chain. Without it, every 128 values are a chain, and chains are added in float32.
    """
    stored = np.load(Path(__file__).with_name("h100_torch.npz"))
    a, b = (stored[name].view(ml_dtypes.float8_e4m3fn).astype(np.float32) for name in "ab")
    assert same_bits(hc.emulate.matmul(a, b.T, instruction="hmma-h100-e4m3"), stored["fast"])
    total = np.zeros((6, 6), np.float32)
    for first in range(0, 512, 128):
        part = slice(first, first + 128)
        total += hc.emulate.matmul(a[:, part], b[:, part].T, instruction="hmma-h100-e4m3")
    assert same_bits(total, stored["parts"]) and not same_bits(total, stored["fast"])
