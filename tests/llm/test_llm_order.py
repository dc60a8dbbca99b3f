"""Under hc.use(order="one") the logits of a prompt, a batch and decoding are bitwise identical."""

from __future__ import annotations

from pathlib import Path

import made
import numpy as np
import pytest
from common import same_bits

import heterocompute as hc
from heterocompute.zoo.llm.run import Run, RunOptions


@pytest.mark.parametrize("weights", [None, "int4-g32-f16", "nf4-g32", "vsq4-g16-s4", "fp8_e4m3fn-row"])
@pytest.mark.parametrize("activations, kv_cache", [(None, None), ("int8", None), (None, "int8")])
def test_logits_of_a_prompt_are_those_of_its_tokens_one_by_one(
    weights: str | None, activations: str | None, kv_cache: str | None, tmp_path: Path
) -> None:
    net = hc.zoo.open_llm(made.write_folder(tmp_path))
    packed = None if weights is None else net.quantized(weights)
    ids = np.random.default_rng(3).integers(2, 200, (3, 40))
    with hc.use(order="one"):
        whole = net.logits(ids, packed, activations, kv_cache)
        for row in range(3):
            assert same_bits(net.logits(ids[row : row + 1], packed, activations, kv_cache)[0], whole[row])
        run = Run(net, RunOptions(packed, activations, kv_cache), 1)
        for at in range(ids.shape[1]):
            step = run.logits(ids[:1, at : at + 1])
            assert same_bits(step[0, 0], whole[0, at]), at
