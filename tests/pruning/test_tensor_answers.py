"""Functions that return arrays return PyTorch tensors for tensor arguments."""

from __future__ import annotations

import numpy as np
import pytest
from common import reals

import heterocompute as hc

torch = pytest.importorskip("torch")

W = reals((8, 32), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_pruned_tensors_are_tensors_of_their_dtype(dtype: torch.dtype) -> None:
    w = torch.from_numpy(W).to(dtype)
    pruned, mask = hc.prune(w, "50%"), hc.prune_mask(w, "2:4")
    assert pruned.dtype == dtype and mask.dtype == torch.bool
    assert int((pruned == 0).sum()) == 128 and int(mask.sum()) == 128
    assert torch.equal(torch.where(pruned != 0, w, 0), pruned)


def test_masks_and_scores_are_those_of_arrays() -> None:
    w, x = torch.from_numpy(W), torch.from_numpy(reals((64, 32), 2))
    assert np.array_equal(hc.prune_mask(w, "2:4").numpy(), hc.prune_mask(W, "2:4"))
    assert np.array_equal(hc.scores.wanda(w, x).numpy(), hc.scores.wanda(W, x.numpy()))
    assert np.array_equal(hc.scores.sparsegpt(w, x.T @ x).numpy(), hc.scores.sparsegpt(W, (x.T @ x).numpy()))
    assert isinstance(hc.prune_mask(W, "2:4"), np.ndarray)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sr_ste_answers_a_gradient_for_a_gradient(dtype: torch.dtype) -> None:
    w = torch.from_numpy(W).to(dtype).requires_grad_()
    mask = hc.prune_mask(w.detach(), "2:4")
    (w * mask).sum().backward()
    w.grad = hc.training.sr_ste(w.grad, w.detach(), mask, decay=0.5)
    assert w.grad.dtype == dtype
    assert torch.allclose(w.grad, (mask + 0.5 * ~mask * w.detach()).to(dtype))
    assert hc.training.mask_flips(mask, mask) == 0
