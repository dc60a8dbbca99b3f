"""Open checkpoints that are closed or sent to another process, and files that cannot be written."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument, run, same_bits

import heterocompute as hc
from heterocompute.files.work import size_of

W = np.random.default_rng(3).standard_normal((8, 384)).astype(np.float32)


@pytest.fixture
def full() -> Any:
    """A disk that accepts a limited number of bytes per file."""
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")

    @contextlib.contextmanager
    def limited(size: int = 100) -> Any:
        before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)

    return limited


@pytest.mark.parametrize("layout", ["gguf", "onnx", "onnx-matmulnbits", "compressed-tensors", "save_gguf"])
def test_an_error_of_the_system_names_the_file(tmp_path: Path, full: Any, layout: str) -> None:
    pytest.importorskip(layout.split("-")[0].removeprefix("save_").replace("compressed", "heterocompute"))
    q = hc.quantize(W, "int4-g32-f16" if "gguf" in layout else "int4-g32")

    def write(path: Path) -> None:
        if layout == "save_gguf":
            hc.save_gguf(path, {"fc.weight": W})
        else:
            hc.save(path, {"fc.weight": q}, layout=layout)

    path = tmp_path / "out.bin"
    path.write_bytes(b"older")
    with full(500 if "gguf" in layout else 100), pytest.raises(OSError) as caught:  # of gguf the header has room
        write(path)
    assert caught.value.filename == str(path) and path.read_bytes() == b"older"
    assert caught.value.strerror and isinstance(caught.value.errno, int)
    assert os.listdir(tmp_path) == ["out.bin"]
    with pytest.raises(FileNotFoundError) as missing:
        write(tmp_path / "no" / "out.bin")
    assert missing.value.filename == str(tmp_path / "no" / "out.bin")
    with pytest.raises(ValueError, match="is a directory, expected a regular file"):
        write(tmp_path)
    (tmp_path / "link").symlink_to("out.bin")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and len(path.read_bytes()) > 5


def test_a_closed_checkpoint_says_so(tmp_path: Path) -> None:
    hc.save(tmp_path / "a", {"w": W, "q": hc.quantize(W, "int8")})
    hc.save(tmp_path / "b", {"fc.weight": hc.quantize(W, "int4-g32")}, layout="compressed-tensors")
    np.savez(tmp_path / "c.npz", w=W)
    for name, layout in (("a", None), ("b", "compressed-tensors"), ("c.npz", None)):
        with hc.open_checkpoint(tmp_path / name, layout) as weights:
            pass
        key = next(iter(weights))
        uses = (weights.check_weights, lambda w=weights: pickle.dumps(w),
                lambda w=weights, k=key: w[k], lambda w=weights, k=key: w.info(k))  # fmt: skip
        for use in uses:
            with pytest.raises(ValueError, match=rf"{name}: the checkpoint is closed"):
                use()
        weights.close()
        assert key in weights and "Checkpoint(" in repr(weights)


def _sum(weights: Any) -> float:
    return float(sum(np.asarray(array).sum() for array in weights.values()))


def test_a_checkpoint_goes_to_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hc.save(tmp_path / "b", {"fc.weight": hc.quantize(W, "int4-g32")}, layout="compressed-tensors")
    monkeypatch.chdir(tmp_path)
    with hc.open_checkpoint("b", "compressed-tensors") as weights:
        data = pickle.dumps(weights)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(_sum, [weights]) == [_sum(weights)]
    monkeypatch.chdir("/")
    with pickle.loads(data) as again:
        assert again["fc.weight"] == hc.quantize(W, "int4-g32")
    os.unlink(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)


@pytest.mark.parametrize("text, size", [("500kB", 500_000), ("500 KB", 500_000), ("1KiB", 1024), ("0.5MiB", 1 << 19),
                                        ("2MB", 2_000_000), ("1GiB", 1 << 30), ("7", 7)])  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert size_of(text) == size


def test_a_wrong_size_is_a_sentence(tmp_path: Path, capsys: Any) -> None:
    hc.save(tmp_path / "a", {"fc.weight": W})
    for wrong in ("500kb", "5G", "GB", "", "1e999GB", "-1MB", "nan"):
        with bad_argument(ValueError, "shard_size", "value"):
            size_of(wrong)
        code, _, error = run(capsys, "quantize", str(tmp_path / "a"), "b/", "--format", "int8", f"--shard-size={wrong}")
        assert code == 2 and "expected a size such as '5GB'" in error.splitlines()[-1]
    assert (
        run(capsys, "quantize", str(tmp_path / "a"), f"{tmp_path}/b/", "--format", "int8", "--shard-size", "1kB")[0]
        == 0
    )


def test_names_of_a_graph_that_collide_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    q = hc.quantize(W, "int4-g32")
    for layout, arrays, name in (
        ("onnx-matmulnbits", {"fc.weight": q, "fc.B": W}, "fc.B"),
        ("onnx-matmulnbits", {"fc.weight": q, "fc.input": W}, "fc.input"),
        ("onnx-matmulnbits", {"fc.weight": q, "fc.output": W}, "fc.output"),
        ("onnx", {"fc.weight": q, "fc.weight.codes": W}, "fc.weight.codes"),
    ):
        with pytest.raises(ValueError, match=f"save: two tensors would be called '{name}'"):
            hc.save(tmp_path / "a.onnx", arrays, layout=layout)
    assert not os.listdir(tmp_path)


def test_rows_of_gguf_that_hold_no_whole_blocks(tmp_path: Path, capsys: Any) -> None:
    """The command uses the types of save_gguf, and reports them."""
    pytest.importorskip("gguf")
    rng = np.random.default_rng(2)
    arrays = {
        "a.weight": W,
        "b.weight": rng.standard_normal((4, 512)).astype(np.float32),
        "c.weight": rng.standard_normal((4, 40)).astype(np.float32),
        "d.bias": W[0].astype(ml_dtypes.bfloat16),
        "steps": np.array(7),
    }
    hc.save(tmp_path / "in", arrays)
    for kind in ("q4_k", "q6_k", "iq4_xs", "q2_k", "q8_0", "mxfp4", "nvfp4"):
        out = tmp_path / f"{kind}.gguf"
        command = ("quantize", str(tmp_path / "in"), str(out), "--format", kind, "--layout", "gguf")
        code, text, error = run(capsys, *command, "--json")
        summary = json.loads(text)
        found = {row["name"]: row["format"] for row in summary["tensors"]}
        wanted = hc.save_gguf(tmp_path / "other", {n: arrays[n] for n in ("a.weight", "b.weight", "c.weight")},
                              types={"*": kind})  # fmt: skip
        assert code == 0 and {name: found[name] for name in wanted} == wanted
        changed = {name: kind for name, became in wanted.items() if became != kind}
        assert summary["instead"] == changed and changed
        assert f"without rows of whole blocks of {kind}: " in error
        assert all(f"'{name}' {wanted[name]}" in error for name in changed)
        theirs, ours = hc.load(tmp_path / "other"), hc.load(out)
        assert all(same_bits(ours[name], theirs[name]) for name in wanted)
        assert same_bits(ours["d.bias"], arrays["d.bias"]) and ours["steps"].tolist() == [7]
    with bad_argument(ValueError, None, "missing", "int4"):
        hc.quantize_checkpoint(tmp_path / "in", tmp_path / "x.gguf", "int4", layout="gguf")
    with bad_argument(ValueError, None, "file", "beyond float16's largest"):
        hc.save(tmp_path / "large", {"w": np.full((2, 40), 1e9, np.float32)})
        hc.quantize_checkpoint(tmp_path / "large", tmp_path / "x.gguf", "q8_0", layout="gguf")


def test_bf16_and_no_dimensions_in_gguf(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    half = W.astype(ml_dtypes.bfloat16)
    chosen = hc.save_gguf(
        path,
        {"a": W, "b": half, "n": np.array(3), "x": np.float32(1.5), "y": np.array(2.5)},
        types={"*": "bf16"},
    )
    assert chosen == {"a": "bf16", "b": "bf16", "n": "i64", "x": "f32", "y": "f32"}
    found = hc.load(path)
    assert same_bits(found["a"], half) and same_bits(found["b"], half)
    assert [found[name].tolist() for name in "nxy"] == [[3], [1.5], [2.5]]
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert theirs["a"].tensor_type.name == "BF16"
    assert same_bits(gguf.quants.dequantize(theirs["a"].data, theirs["a"].tensor_type), half.astype(np.float32))
    with bad_argument(ValueError, None, "value", "bfloat16"):
        hc.save_gguf(path, {"a": np.full((2, 32), np.finfo(np.float32).max)}, types={"*": "bf16"})
    hc.save(path, {"b": half, "c": half[0, 0], "n": np.array(3)}, layout="gguf")
    found = hc.load(path)
    assert same_bits(found["b"], half) and same_bits(found["c"], half[0, :1]) and found["n"].tolist() == [3]
