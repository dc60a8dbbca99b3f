"""The storage of packed weights of a language model changes only the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from common import same_bits

import heterocompute as hc
from heterocompute.zoo.llm import memory
from heterocompute.zoo.llm.memory import Memory


def end_of(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data + array.nbytes)


@pytest.mark.parametrize("fmt", ["int8", "vsq4-g16-s4", "int4-g32-f16", "q4_1"])
def test_matrices_of_the_same_input_lie_side_by_side(tmp_path: Path, fmt: str) -> None:
    net = hc.zoo.open_llm(made.write_gguf(tmp_path / "small.gguf", "q8_0"))
    packed = net.quantized(fmt)
    for names in (("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up")):
        some = [packed[f"blk.1.{name}.weight"] for name in names]
        for before, after in zip(some, some[1:], strict=False):
            for part, stored in before.components.items():
                assert end_of(stored) == after.components[part].ctypes.data


def test_logits_do_not_depend_on_the_place(tmp_path: Path) -> None:
    net = hc.zoo.open_llm(made.write_gguf(tmp_path / "small.gguf", "q8_0"))
    ids = np.arange(20) % 50
    for fmt in ("int8", "vsq4-g16-s4", "int4-g32-f16", "q4_1", "nvfp4", "cb4"):
        packed = net.quantized(fmt)
        apart = {name: hc.quantize(np.asarray(net.weights[name], np.float32), fmt, axis=-1) for name in packed}
        for activations in (None, "int8"):
            for n in (1, 20):
                wanted = net.logits(ids[:n], apart, activations)
                assert same_bits(net.logits(ids[:n], packed, activations), wanted)


def test_memory_copies_what_is_small_and_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    some, floats = Memory(), np.ones((2, 3), np.float32)
    assert some.placed(floats) is floats
    q = hc.quantize(np.random.default_rng(0).standard_normal((5, 64), dtype=np.float32), "int4-g32-f16")
    found = [some.placed(q) for _ in range(3)]
    for one in found:
        assert one.components["codes"].tobytes() == q.components["codes"].tobytes()
        assert same_bits(one.dequantize(), q.dequantize()) and one.source_dtype == q.source_dtype
    monkeypatch.setattr(memory, "LEAST", q.components["codes"].nbytes)
    one = some.placed(q)
    assert one.components["codes"] is q.components["codes"]  # large parts have huge pages of their own
    assert one.components["scales"].base is not None and one.components["scales"] is not q.components["scales"]
    assert same_bits(one.dequantize(), q.dequantize())


def test_a_block_that_is_full_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    q = hc.quantize(np.random.default_rng(1).standard_normal((3, 64), dtype=np.float32), "int4-g32-f16")
    monkeypatch.setattr(memory, "LEAST", q.nbytes + 1)
    some = Memory()
    found = [some.placed(q) for _ in range(9)]
    assert all(same_bits(one.dequantize(), q.dequantize()) for one in found)
    assert len({id(one.components["codes"].base) for one in found}) > 1
