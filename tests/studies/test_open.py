"""`hc.open`: the content of a file decides what it returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc

W = np.random.default_rng(0).standard_normal((8, 32), np.float32)


def test_files_of_arrays_are_checkpoints(tmp_path: Path) -> None:
    hc.save(tmp_path / "m.safetensors", {"w": hc.quantize(W, "int4"), "b": W[0]})
    np.savez(tmp_path / "m.npz", w=W, b=W[0])
    (tmp_path / "folder").mkdir()
    hc.save(tmp_path / "folder" / "model.safetensors", {"w": W, "b": W[0]})
    for name in ("m.safetensors", "m.npz", "folder"):
        with hc.open(tmp_path / name) as found:
            assert isinstance(found, hc.Checkpoint) and sorted(found) == ["b", "w"]
            w = found["w"]
            assert w.shape == W.shape and isinstance(w, hc.QuantizedArray) == (name == "m.safetensors")


def test_an_unknown_family_is_a_checkpoint(tmp_path: Path) -> None:
    config = {"model_type": "t5", "hidden_size": 32}
    hc.save(tmp_path / "model.safetensors", {"w": W})
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="open: opened as a checkpoint, not as a network: .*t5"):
        found = hc.open(tmp_path)
    assert isinstance(found, hc.Checkpoint) and list(found) == ["w"]


def test_gguf_is_a_language_model_or_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    hc.save_gguf(tmp_path / "m.gguf", {"w": W})
    with pytest.warns(UserWarning, match="not as a network"):
        found = hc.open(tmp_path / "m.gguf")
    with hc.open_checkpoint(tmp_path / "m.gguf") as same:
        assert list(found) == ["w"] and np.array_equal(found["w"], same["w"])


def test_onnx_is_a_network(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value, make = onnx.helper.make_tensor_value_info, onnx.helper
    ends = [value(name, onnx.TensorProto.FLOAT, ["n", size]) for name, size in (("x", 8), ("y", 32))]
    node = make.make_node("MatMul", ["x", "w"], ["y"])
    graph = make.make_graph([node], "net", ends[:1], ends[1:], [onnx.numpy_helper.from_array(W, "w")])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((16, 8), np.float32)
    found: Any = hc.open(tmp_path / "m.onnx", x=x, labels=(x @ W).argmax(axis=1))
    assert list(found.weights) == ["w"] and hc.study(found, ["int8"], timing=False).table[0]["accuracy"] == 1
    assert isinstance(hc.open(tmp_path / "m.onnx", "onnx"), hc.Checkpoint)


def test_what_does_not_apply_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", w=W)
    with bad_argument(ValueError, "x", "unsupported"):
        hc.open(tmp_path / "m.npz", x=W)
    with bad_argument(ValueError, "labels", "unsupported"):
        hc.open(tmp_path / "m.npz", labels=W)
    (tmp_path / "text").write_text("words\n")
    with pytest.raises(ValueError, match="a text file"):
        hc.open(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        hc.open(tmp_path / "nothing")
