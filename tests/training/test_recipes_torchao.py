"""Casts of recipes against torchao's references, value for value."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    nvfp4 = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")

LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def values(seed: int) -> Any:
    random = np.random.default_rng(seed)
    x = random.standard_normal((64, 256), dtype=np.float32) * np.exp(random.standard_normal((64, 1))).astype(np.float32)
    return torch.from_numpy(x)


@pytest.mark.parametrize("seed", range(3))
def test_nvfp4_has_the_codes_of_torchao(seed: int) -> None:
    x = values(seed)
    coarse = nvfp4.per_tensor_amax_to_scale(x.abs().max())
    scales, pairs = nvfp4.nvfp4_quantize(x, 16, coarse)
    codes = torch.stack([pairs & 15, pairs >> 4], -1).reshape(x.shape).long()
    theirs = torch.cat([LEVELS, -LEVELS])[codes].reshape(len(x), -1, 16) * (scales.float() * coarse)[..., None]
    q = hc.quantize(x, hc.training.recipe("nvfp4").activations)
    assert np.array_equal(q.components["scales"], scales.view(torch.uint8).numpy())
    assert float(q.components["coarse"]) == float(coarse)
    assert np.array_equal(q.dequantize(), theirs.reshape(x.shape).numpy())


@pytest.mark.parametrize(("mode", "fmt"), [("RCEIL", "mxfp8_e4m3-rceil"), ("FLOOR", "mxfp8_e4m3")])
def test_mxfp8_has_the_codes_of_torchao(mode: str, fmt: str) -> None:
    x = values(7)
    scales, codes = mx.to_mx(x, torch.float8_e4m3fn, 32, mx.ScaleCalculationMode[mode])
    theirs = codes.float().reshape(len(x), -1, 32) * scales.float()[..., None]
    assert np.array_equal(np.asarray(hc.fake_quantize(x, fmt)), theirs.reshape(x.shape).numpy())
