"""What is read into reused memory never changes, and a written file is compared before it takes its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.base.container import Loans, Reader, numpy_dtype
from heterocompute.base.rereading import drawn, refuse_different
from heterocompute.base.writer import Writer
from heterocompute.files import rewrite
from heterocompute.files.checkpoint import dequantize_checkpoint, prune_checkpoint, quantize_checkpoint
from heterocompute.files.convert import convert_checkpoint
from heterocompute.files.layouts.gguf import model as gguf_model
from heterocompute.files.layouts.onnx import model as onnx_model
from heterocompute.files.layouts.table import LAYOUTS, WRITTEN
from heterocompute.ptq import Hessian, quantize_checkpoint as round_checkpoint

Array = np.ndarray[Any, Any]
PLAIN = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
FORMATS = {"awq": "int4-g32-f16", "bitsandbytes": "nf4-g64", "fp8": "fp8_e4m3fn-tensor", "modelopt": "nvfp4",
           "gpt-oss": "mxfp4", "mlx": "int4-g32-f16", "bitnet": "tq2_0", "eetq": "int8-f16", "onnx": "int8",
           "gguf": "q8_0"}  # fmt: skip


def suffix_of(layout: str | None) -> str:
    return {"gguf": ".gguf"}.get(str(layout), ".onnx" if str(layout).startswith("onnx") else ".safetensors")


def weights(dtype: str = "float32", seed: int = 0) -> dict[str, Array]:
    """Six matrices of different sizes: the largest is not the first, and two rows are not whole blocks."""
    draw = np.random.default_rng(seed)
    sizes = [*((int(draw.integers(1, 9)) * 16, int(draw.integers(1, 9)) * 32) for _ in range(4)), (16, 24), (8, 20)]
    made = {f"layer{i}.weight": draw.standard_normal(size).astype(numpy_dtype(dtype)) for i, size in enumerate(sizes)}
    return made | {"layer0.bias": draw.standard_normal(sizes[0][0]).astype(numpy_dtype(dtype))}


# Reused memory.


def test_a_view_of_a_lent_tensor_never_changes(tmp_path: Path) -> None:
    held = weights()
    hc.save(tmp_path / "a.safetensors", held)
    draw = np.random.default_rng(5)
    with Reader(tmp_path / "a.safetensors") as reader:
        kept = []
        for _ in range(60):
            name = str(draw.choice(list(held)))
            found = reader.lent(name)
            if draw.random() < 0.5:
                kept.append((name, found[..., 1:] if draw.random() < 0.5 else found.T))
            del found
        for name, view in kept:
            assert np.array_equal(view, held[name][..., 1:]) or np.array_equal(view, held[name].T)


def test_a_piece_of_a_tensor_never_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w = np.arange(1000, dtype=np.int32)
    hc.save(tmp_path / "a.safetensors", {"w": w})
    monkeypatch.setattr("heterocompute.base.container.CHUNK", 64)
    with Reader(tmp_path / "a.safetensors") as reader:
        assert np.array_equal(np.concatenate(list(reader.parts("w"))), w)
        assert b"".join(list(reader.chunks("w"))) == w.tobytes()


def test_memory_is_reused_when_nothing_refers_to_it() -> None:
    loans = Loans()
    first = loans.take(4096)
    first[:] = 7
    place = first.ctypes.data
    del first
    again = loans.take(1000)
    assert again.ctypes.data == place and (again == 255).all()  # the tests poison it: see conftest.py
    view = memoryview(again)[3:5]
    del again
    assert loans.take(1000).ctypes.data != place
    assert view.tolist() == [255, 255] and loans.take(0).size == 0


# Plain types: what is written is what was read.


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize("layout", [None, *WRITTEN])
@pytest.mark.sweep(every=4)
def test_a_plain_type_has_the_values_of_the_source(layout: str | None, text: str, seed: int, tmp_path: Path) -> None:
    if layout == "onnx-matmulnbits":
        pytest.skip("this layout has no models without matmuls")
    if layout is not None and LAYOUTS[layout].is_file:
        pytest.importorskip("gguf" if layout == "gguf" else "onnx")
    dtype = ("float32", "float16", "bfloat16")[(seed + len(text)) % 3]
    held = weights(dtype, seed)
    before, after = tmp_path / "in.safetensors", tmp_path / f"out{suffix_of(layout)}"
    hc.save(before, held)
    quantize_checkpoint(before, after, text, layout=layout, check=("sample", "none")[seed % 2])
    with hc.open_checkpoint(after) as found:
        for name, w in held.items():
            wanted = numpy_dtype(PLAIN[text] if w.ndim > 1 else dtype)
            assert np.array_equal(found[name].astype(np.float32), w.astype(wanted).astype(np.float32)), name


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_short_rows_fall_back_to_the_values_of_the_source(dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    held = weights(dtype, 3)
    before, after = tmp_path / "in.safetensors", tmp_path / "out.gguf"
    hc.save(before, held)
    quantize_checkpoint(before, after, "q8_0", layout="gguf")
    with hc.open_checkpoint(after) as found:
        for name in ("layer4.weight", "layer5.weight"):
            assert np.array_equal(np.asarray(found[name], np.float16), held[name].astype(np.float16))


# A file that is not as it was to be written.


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Change the first byte of each tensor on its way into a file."""

    def flipped(data: Any) -> Array:
        found = np.frombuffer(data, np.uint8).copy()
        found[:1] ^= 16
        return found

    write_at = Writer._write_at

    def write_wrong(writer: Writer, begin: int, view: memoryview) -> None:
        write_at(writer, begin, flipped(view).data if begin and len(view) else view)

    class WrongFile:
        def __init__(self, *arguments: Any) -> None:
            self.file = open(*arguments)

        def __enter__(self) -> WrongFile:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[:-1] + bytes([data[-1] ^ 1]))

        def seek(self, place: int) -> None:
            self.file.seek(place)

        def read(self, count: int) -> bytes:
            found: bytes = self.file.read(count)
            return found

    def to_wrong_file(array: Any, file: Any, *_: Any) -> None:
        file.write(flipped(np.ascontiguousarray(array).reshape(-1).view(np.ndarray).view(np.uint8).data).data)

    monkeypatch.setattr(Writer, "_write_at", write_wrong)
    monkeypatch.setattr(gguf_model.Whole, "tofile", to_wrong_file)
    monkeypatch.setattr(onnx_model, "open", WrongFile, raising=False)
    yield


def refused(call: Any, out: Path) -> None:
    out.write_bytes(b"older")
    with pytest.raises(ValueError, match="was read back with .* is deleted"):
        call(out)
    assert out.read_bytes() == b"older" and not list(out.parent.glob(".heterocompute*"))


@pytest.mark.parametrize("check", ["sample", "all"])
@pytest.mark.parametrize("layout", [None, *WRITTEN])
def test_a_wrong_file_of_a_layout_is_refused(
    layout: str | None, check: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if layout is not None and LAYOUTS[layout].is_file:
        pytest.importorskip("gguf" if layout == "gguf" else "onnx")
    shape = (2, 32, 128) if layout == "gpt-oss" else (128, 256)
    name = "experts.gate_up_proj.weight" if layout == "gpt-oss" else "fc.weight"
    fmt = FORMATS.get(str(layout), "int4-g32-f16" if layout else "vsq4-g16-s4")
    before, packed = tmp_path / "in.safetensors", tmp_path / "packed.safetensors"
    w = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    w = np.sign(w) if layout == "bitnet" else w
    q = hc.quantize(w, fmt)
    hc.save(before, {name: w})
    hc.save(packed, {name: q})
    request.getfixturevalue("broken")
    calls = [
        lambda out: quantize_checkpoint(before, out, fmt, layout=layout, check=check),
        lambda out: hc.save(out, {name: q}, layout, check),
        lambda out: convert_checkpoint(packed, out, layout or "heterocompute", check=check),
    ]
    for call in calls[2:] if layout in ("bitnet", "gpt-oss") else calls:
        refused(call, tmp_path / f"out{suffix_of(layout)}")


def test_other_wrong_files_are_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    before, packed, out = (tmp_path / f"{name}.safetensors" for name in ("in", "packed", "out"))
    q, h = hc.quantize(w, "int8"), Hessian(64)
    h.add(w)
    hc.save(before, {"fc.weight": w, "kept": w[0]})
    hc.save(packed, {"fc.weight": q})
    request.getfixturevalue("broken")
    refused(lambda out: prune_checkpoint(before, out, "2:4"), out)
    refused(lambda out: prune_checkpoint(before, out, "50%"), out)
    refused(lambda out: dequantize_checkpoint(packed, out), out)
    refused(lambda out: quantize_checkpoint(before, out, "int8", exclude="kept"), out)
    refused(lambda out: quantize_checkpoint(before, out, "int8", fake=True), out)
    refused(lambda out: round_checkpoint(before, out, {"fc.weight": h}, "int4-g32"), out)
    refused(lambda out: q.save(out), out)
    refused(lambda out: hc.save(out, {"a": w, "q": q}), out)
    if pytest.importorskip("gguf"):
        refused(lambda out: hc.save_gguf(out, {"a.weight": w, "b": w[0]}, types={"*": "q4_0"}), tmp_path / "out.gguf")


def test_a_folder_is_not_named_after_a_wrong_file(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before, out = tmp_path / "in.safetensors", tmp_path / "folder"
    hc.save(before, weights())
    request.getfixturevalue("broken")
    with pytest.raises(ValueError, match="was read back with another value"):
        quantize_checkpoint(before, out, "int8", shard_size=4096)
    assert not out.exists()


def test_the_commands_end_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    before, packed, out = (tmp_path / f"{name}.safetensors" for name in ("in", "packed", "out"))
    hc.save(before, {"fc.weight": np.eye(64, dtype=np.float32)})
    hc.save(packed, {"fc.weight": hc.quantize(np.eye(64, dtype=np.float32), "int8")})
    request.getfixturevalue("broken")
    commands = [("quantize", before, out, "--format", "int8"), ("prune", before, out, "--pattern", "2:4"),
                ("dequantize", packed, out), ("convert", packed, out, "--layout", "compressed-tensors")]  # fmt: skip
    for command in commands:
        code, _, said = run(capsys, *command)
        assert code == 1 and "was read back with" in said and not out.exists()
        code, _, said = run(capsys, *command, "--check", "none")
        assert code == 0, said
        out.unlink()
        assert run(capsys, *command, "--check", "some")[0] == 2


def test_arrays_that_differ_from_a_second_reading_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views of memory that is read into again hold the bytes of other tensors."""
    pytest.importorskip("gguf")
    held = {f"layer{i}.weight": np.full((32, 32), i, np.float32) for i in range(4)}
    hc.save(tmp_path / "in.safetensors", held)
    memory, made, done = np.empty(4096, np.uint8), rewrite._made, []

    def made_in_one_memory(*arguments: Any) -> Array:
        done.append(made(*arguments))
        if len(done) > len(held):
            return done[-1]
        memory[:] = done[-1].view(np.uint8).reshape(-1)
        return memory.view(np.float32).reshape(32, 32)

    monkeypatch.setattr(rewrite, "_made", made_in_one_memory)
    monkeypatch.setattr(rewrite, "drawn", lambda *_: ["layer0.weight"])
    with pytest.raises(ValueError, match="'layer0.weight' was read back with"):
        quantize_checkpoint(tmp_path / "in.safetensors", tmp_path / "out.gguf", "f32", layout="gguf")
    assert not (tmp_path / "out.gguf").exists()


# The draw.


def test_a_sample_has_each_kind_and_a_share_of_the_bytes() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        tensors = {f"t{i}": (int(draw.integers(4)), int(draw.integers(0, 10_000))) for i in range(draw.integers(40))}
        chosen = drawn(tensors, "sample")
        assert {tensors[name][0] for name in chosen} == {kind for kind, _ in tensors.values()}
        assert 16 * sum(tensors[name][1] for name in chosen) >= sum(size for _, size in tensors.values())
        assert chosen == drawn(tensors, "sample") and drawn(tensors, "all") == list(tensors)
        assert not drawn(tensors, "none")


@pytest.mark.parametrize("value", ["some", "", None, True, 1])
def test_another_check_is_refused(value: Any, tmp_path: Path) -> None:
    wanted = "check is .*, expected 'sample', 'all' or 'none'"
    error = ValueError if isinstance(value, str) else TypeError
    hc.save(tmp_path / "a.safetensors", {"a": np.ones((2, 2), np.float32)})
    with pytest.raises(error, match=f"save: {wanted}"):
        hc.save(tmp_path / "b.safetensors", {"a": np.ones(2)}, check=value)
    with pytest.raises(error, match=f"quantize_checkpoint: {wanted}"):
        quantize_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "int8", check=value)
    with pytest.raises(error, match=f"save_gguf: {wanted}"):
        pytest.importorskip("gguf")
        hc.save_gguf(tmp_path / "b.gguf", {"a": np.ones(2, np.float32)}, check=value)


def test_nan_equals_nan_and_shapes_are_compared() -> None:
    nan = np.array([np.nan, 1, -0.0])
    refuse_different("file", "t", nan, np.array([np.nan, 1, 0.0]))
    refuse_different("file", "t", nan.astype(np.float16), nan)
    with pytest.raises(ValueError, match=r"2\.0 at index \(1,\), expected 1\.0"):
        refuse_different("file", "t", nan, np.array([np.nan, 2, 0.0]))
    with pytest.raises(ValueError, match=r"shape \(2,\), expected \(3,\)"):
        refuse_different("file", "t", nan, nan[:2])
