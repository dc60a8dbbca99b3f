"""The presets of tensor cores agree with MMA-Sim, which its authors compared with each chip. Needs torch and mmasim."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

pytest.importorskip("torch")
pytest.importorskip("mmasim")
sys.path.append(str(Path(__file__).resolve().parents[2] / "docs" / "figures" / "tensor_cores"))

mma_sim: Any = pytest.importorskip("mma_sim")
tensor_cores: Any = pytest.importorskip("tensor_cores")

PRESETS = [
    (text, sums)
    for text, preset in hc.emulate.INSTRUCTIONS.items()
    if text.startswith("hmma-")
    for sums in preset.accumulators
]
GROUPS = ("near", "wide", "all", "cancel", "large", "probe", "mixed")


@pytest.mark.parametrize("text, sums", PRESETS)
def test_presets_are_those_of_mma_sim(text: str, sums: str) -> None:
    """Except for the smallest exponent of some chips, which docs/emulate.md lists."""
    chip, _, kind = text.removeprefix("hmma-").partition("-")
    kind, total = kind or "f16", "f16" if sums == "fp16" else "f32"
    model = mma_sim.model_of(chip, kind, total)
    step = tensor_cores.Instruction(f"wgmma_{kind}_k{model.k}" + ("_f16" if total == "f16" else ""))
    for group, length, with_c in (*((group, 1, True) for group in GROUPS), ("wide", 4, False)):
        a, b, c = tensor_cores.tiles(step, group, length * model.k, 1)
        c = c if with_c else np.zeros_like(c)
        numbers = tensor_cores.values(kind, a), tensor_cores.values(kind, b), tensor_cores.values(total, c)
        with np.errstate(over="ignore"):
            found = mma_sim.simulated(model, kind, total, *numbers)
            wanted = mma_sim.emulated(text, kind, sums, *numbers)
        assert mma_sim.alike(found, wanted).all(), group


@pytest.mark.parametrize("fmt, kind, accumulator, chip", [
    ("fp16", "f16", "hmma-h100+fp32", "h100"),
    ("fp16", "f16", "hmma-v100+fp32", "v100"),
    ("bf16", "bf16", "hmma-a100-bf16", "a100"),
    ("fp8_e4m3fn", "e4m3", "hmma-ada-e4m3+fp22", "ada"),
    ("fp8_e5m2", "e5m2", "hmma-b200-e5m2", "b200"),
])  # fmt: skip
def test_golden_vectors_are_those_of_mma_sim(fmt: str, kind: str, accumulator: str, chip: str, tmp_path: Path) -> None:
    model = mma_sim.model_of(chip, kind, "f32")
    hc.vectors(fmt, tmp_path / "v", kinds=["dots"], count=24, length=2 * model.k, accumulators=[accumulator])
    rows = json.loads((tmp_path / "v" / "dots.json").read_text())["rows"]
    a, b, sums = (
        np.array([[int(word, 16) for word in row[key]] for row in rows], np.uint32).view(np.float32)
        for key in ("a", "b", f"sum_{accumulator}")
    )
    with np.errstate(over="ignore"):
        start = np.zeros((len(a), 1, 1), np.float32)
        found = mma_sim.simulated(model, kind, "f32", a[:, None], b[:, None], start)
    assert len(rows) == 24 and mma_sim.alike(found[:, 0], sums).all()
