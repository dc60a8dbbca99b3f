"""Matmuls of `as_device` are those of MMA-Sim, a model of tensor cores by others. Needs torch and mmasim."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mmasim")
ht = pytest.importorskip("heterocompute.interop.torch")
sys.path.append(str(Path(__file__).resolve().parents[2] / "docs" / "figures" / "tensor_cores"))
mma_sim: Any = pytest.importorskip("mma_sim")

KINDS = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp8_e4m3fn": "e4m3", "fp8_e5m2": "e5m2"}
UNITS = [("v100", "fp16")] + [
    (chip, inputs)
    for chip in ("a100", "ada", "h100", "b200")
    for inputs in KINDS
    if chip != "a100" or not inputs.startswith("fp8")
]


@pytest.mark.parametrize("chip, inputs", UNITS)
def test_layers_are_those_of_mma_sim(chip: str, inputs: str) -> None:
    torch.manual_seed(0)
    sums = "fp22" if inputs.startswith("fp8") and chip != "b200" else "fp32"
    unit, kind = ht.as_device(chip, inputs=inputs, sums=sums), KINDS[inputs]
    net, x = torch.nn.Sequential(torch.nn.Linear(128, 24, bias=False), torch.nn.Linear(24, 64)), torch.randn(6, 128)
    net[0].weight.data *= torch.exp(3 * torch.randn(24, 128))  # of many exponents
    net[0].weight.data.clamp_(-400, 400)  # which e4m3 holds
    with torch.no_grad(), unit:
        y = net[0](x)
    numbers = [unit._rounded(one)[None] for one in (x, net[0].weight)]
    model = mma_sim.model_of(chip, kind, "f32")
    wanted = mma_sim.simulated(model, kind, "f32", *numbers, np.zeros((1, 6, 24), np.float32))
    assert mma_sim.alike(y.numpy(), wanted[0]).all()
    q, k = torch.randn(2, 3, 5, 32), torch.randn(2, 3, 7, 32)
    with unit:
        scores = q @ k.transpose(-1, -2)
    parts = [unit._rounded(one.reshape(6, -1, 32)) for one in (q, k)]
    wanted = mma_sim.simulated(model, kind, "f32", *parts, np.zeros((6, 5, 7), np.float32))
    assert mma_sim.alike(scores.numpy().reshape(6, 5, 7), wanted).all()
