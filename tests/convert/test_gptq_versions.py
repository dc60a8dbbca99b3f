"""Versions of GPTQ: zero points are stored unchanged, or minus 1."""

from __future__ import annotations

import json

import decoders
import numpy as np
import pytest
from common import reals
from conversions import data_of, row_of

import heterocompute as hc
from heterocompute.files.convert import convert_checkpoint

W = reals((64, 256), 3)


@pytest.mark.parametrize("fmt", ["int4-g32-asym-f16", "int3-g64-asym-f16", "int8-asym-f16", "int4-g32-f16"])
def test_asymmetric_arrays_are_written_as_version_1(tmp_path, fmt):
    q, bits = hc.quantize(W, fmt), hc.format(fmt).bits
    v1, v2, out = (tmp_path / f"{name}.safetensors" for name in ("v1", "v2", "out"))
    hc.save(v1, {"fc.weight": q}, layout="gptq-v1")
    assert np.array_equal(decoders.gptq(hc.load(v1), "fc", bits, 1), q.dequantize())
    with hc.open_checkpoint(v1) as found:
        assert json.loads(found.metadata["quantization_config"])["checkpoint_format"] == "gptq"
    assert hc.load(v1, layout="gptq")["fc.weight"] == hc.load(v1, layout="gptq-v1")["fc.weight"] == q
    for before, layout, after in ((v1, "gptq", v2), (v2, "gptq-v1", v1)):
        hc.save(before, {"fc.weight": q}, layout="gptq-v1" if before == v1 else "gptq")
        summary = convert_checkpoint(before, out, layout)
        assert row_of(summary)["status"] == "equal" and summary["layout"] == layout
        hc.save(after, {"fc.weight": q}, layout=layout)
        assert data_of(out) == data_of(after)


def test_version_1_has_no_zero_point_0(tmp_path):
    """AutoGPTQ's kernels add 1 to the stored 15 and differ in whether that is 16 or 0."""
    q = hc.quantize(np.abs(W) + 1, "int4-g32-asym-f16")
    out = tmp_path / "out.safetensors"
    with pytest.raises(
        ValueError, match="'fc.weight': version 1 of GPTQ has no place for the zero point 0; layout gptq"
    ):
        hc.save(out, {"fc.weight": q}, layout="gptq-v1")
    hc.save(tmp_path / "v2.safetensors", {"fc.weight": q}, layout="gptq")
    wider = convert_checkpoint(tmp_path / "v2.safetensors", tmp_path / "wider.safetensors", "gptq-v1")
    assert row_of(wider)["to"].startswith("int8-g32")  # whose middle is the zero point 0
    hc.save(tmp_path / "plain.safetensors", {"fc.weight": np.abs(W) + 1})
    with pytest.raises(ValueError, match="version 1 of GPTQ has no place for the zero point 0"):
        hc.quantize_checkpoint(tmp_path / "plain.safetensors", out, "int4-g32-asym-f16", layout="gptq-v1")
    assert not out.exists()
