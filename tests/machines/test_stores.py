"""Checkpoints by URL: the same content as in files, and errors of a store in one message."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from common import bad_argument, run

import heterocompute as hc
from heterocompute.base import locations
from heterocompute.files.checkpoint import dequantize_checkpoint, inspect, prune_checkpoint

fsspec = pytest.importorskip("fsspec")
RANDOM = np.random.default_rng(13)
WEIGHTS = {f"layers.{i}.weight": RANDOM.standard_normal((32, 64)).astype(np.float32) for i in range(7)}
SIZE = 4500  # bytes: two layers in int8
COUNT = itertools.count()


@pytest.fixture
def store():
    return f"memory://t{next(COUNT)}"


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    hc.save(folder / "model.safetensors", WEIGHTS)
    (folder / "config.json").write_text('{"hidden_size": 64}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def remote(source, store):
    for path in source.iterdir():
        locations.put(f"{store}/in/{path.name}", path.read_bytes())
    return f"{store}/in"


def bytes_of(folder):
    if isinstance(folder, str):
        return {name: locations.content_of(f"{folder}/{name}") for name in locations.names_in(folder)}
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def quantized(source, out, **options):
    return hc.quantize_checkpoint(source, out, "int8", **{"shard_size": SIZE, **options})


@pytest.mark.parametrize("workers", [1, 3])
def test_folders_in_a_store(source, remote, store, tmp_path, workers):
    quantized(source, tmp_path / "expected")
    expected = bytes_of(tmp_path / "expected")
    for given, out in ((source, f"{store}/a"), (remote, f"{store}/b/"), (remote, tmp_path / "c")):
        summary = quantized(given, out, workers=workers)
        out = out.rstrip("/") if isinstance(out, str) else out
        assert bytes_of(out) == expected and summary["output"].rstrip("/") == str(out)
        assert not locations.exists(f"{out}.partial")
        with hc.open_checkpoint(out) as found:
            assert found["layers.3.weight"] == hc.quantize(WEIGHTS["layers.3.weight"], "int8")
    assert sorted(hc.load(f"{store}/a")) == sorted(WEIGHTS)


def test_files_in_a_store(store, tmp_path):
    hc.save(f"{store}/model.safetensors", WEIGHTS)
    for name, value in WEIGHTS.items():
        assert (hc.load(f"{store}/model.safetensors")[name] == value).all()
    np.savez(tmp_path / "w.npz", **WEIGHTS)
    np.save(tmp_path / "w.npy", WEIGHTS["layers.0.weight"])
    for name in ("w.npz", "w.npy"):
        locations.upload(str(tmp_path / name), f"{store}/{name}")
    assert (hc.load(f"{store}/w.npz")["layers.2.weight"] == WEIGHTS["layers.2.weight"]).all()
    assert (hc.load(f"{store}/w.npy") == WEIGHTS["layers.0.weight"]).all()
    assert inspect(f"{store}/w.npz") == inspect(tmp_path / "w.npz")
    hc.quantize_checkpoint(f"{store}/model.safetensors", f"{store}/small.safetensors", "int4-g32")
    dequantize_checkpoint(f"{store}/small.safetensors", f"{store}/plain.safetensors")
    prune_checkpoint(f"{store}/model.safetensors", tmp_path / "sparse.safetensors", "2:4")
    assert (hc.load(tmp_path / "sparse.safetensors")["layers.1.weight"]).format.n == 2
    before, after = hc.load(f"{store}/small.safetensors"), hc.load(f"{store}/plain.safetensors")
    assert all((before[name].dequantize() == after[name]).all() for name in WEIGHTS)
    assert hc.study(f"{store}/model.safetensors", ["int4"], workers=2).table[1]["bits"] == 4.5


def test_gguf_in_a_store(store, tmp_path):
    pytest.importorskip("gguf")
    hc.save_gguf(f"{store}/model.gguf", WEIGHTS, types={"*": "q8_0"})
    hc.save_gguf(tmp_path / "model.gguf", WEIGHTS, types={"*": "q8_0"})
    assert locations.content_of(f"{store}/model.gguf") == (tmp_path / "model.gguf").read_bytes()
    found = hc.convert_checkpoint(f"{store}/model.gguf", f"{store}/out", "heterocompute")
    assert found["written"] and sorted(hc.load(f"{store}/out")) == sorted(WEIGHTS)


def test_a_file_url_is_a_path(source, tmp_path):
    quantized(f"file://{source}", f"file://{tmp_path}/out")
    quantized(source, tmp_path / "expected")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")
    with bad_argument(ValueError, None, "file", "is the input itself"):
        hc.quantize_checkpoint(f"file://{source}/model.safetensors", source / "model.safetensors", "int8")


def test_a_run_that_was_ended_goes_on(source, store):
    def stop(done, total, name):
        if name == "layers.5.weight":
            raise KeyboardInterrupt

    quantized(source, f"{store}/expected")
    with pytest.raises(KeyboardInterrupt):
        quantized(source, f"{store}/out", progress=stop)
    held = locations.names_in(f"{store}/out")
    assert held == ["model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors"]
    with bad_argument(ValueError, None, "value", "expected one index of a checkpoint or one file of weights"):
        hc.load(f"{store}/out")  # it is incomplete
    broken = bytearray(locations.content_of(f"{store}/out/{held[0]}"))
    broken[-1] ^= 1
    locations.put(f"{store}/out/{held[0]}", bytes(broken))
    kept = locations.state_of_url(f"{store}/out/{held[1]}")
    told = []
    quantized(source, f"{store}/out", progress=lambda *at: told.append(at[2]))
    assert "layers.0.weight" in told and "layers.2.weight" not in told
    assert kept == locations.state_of_url(f"{store}/out/{held[1]}")
    assert bytes_of(f"{store}/out") == bytes_of(f"{store}/expected") and not locations.exists(f"{store}/out.partial")
    with bad_argument(ValueError, None, "value", "out: exists and is not an empty folder"):
        quantized(source, f"{store}/out")


def test_parts_in_a_store(source, store):
    quantized(source, f"{store}/expected")
    for part in ("2/3", "3/3"):
        quantized(source, f"{store}/out", part=part)
    with pytest.raises(ValueError, match="2 of 4 files .* run the part 1/3$"):
        hc.finish_checkpoint(f"{store}/out")
    quantized(source, f"{store}/out", part="1/3")
    quantized(source, f"{store}/out", part="3/3")
    assert len(hc.finish_checkpoint(f"{store}/out")["files"]) == 4
    assert bytes_of(f"{store}/out") == bytes_of(f"{store}/expected") and not locations.exists(f"{store}/out.partial")


def test_other_files_of_a_store_stay(source, store):
    locations.put(f"{store}/a/mine", b"1")
    with pytest.raises(ValueError, match="a: exists and is not an empty folder"):
        quantized(source, f"{store}/a")
    locations.put(f"{store}/b.partial/mine", b"1")
    with pytest.raises(ValueError, match="b.partial/mine: is in the way"):
        quantized(source, f"{store}/b")
    assert locations.names_in(f"{store}/a") == locations.names_in(f"{store}/b.partial") == ["mine"]
    with bad_argument(ValueError, None, "file", "consume deletes files of this machine"):
        quantized(source, f"{store}/c", consume=True)
    with bad_argument(ValueError, None, "value", "is the input itself"):
        quantized(f"{store}/a/", f"{store}/a")
    with bad_argument(ValueError, None, "value", "is a URL, and ptq keeps parts beside its output"):
        hc.ptq.quantize_checkpoint(source, f"{store}/d", {})


class Broken(fsspec.AbstractFileSystem):
    """A store that fails like real stores."""

    protocol = "broken"
    error: Exception = RuntimeError("first line\nsecond line")

    def info(self, path, **_):
        raise self.error

    ls = cat_file = put_file = pipe_file = info


@pytest.mark.parametrize(
    "url, kind, words",
    [
        ("memory://nowhere/model.safetensors", FileNotFoundError, "nowhere"),
        ("nonsense://a/b", OSError, "nonsense://a/b: Protocol not known"),
        ("memory://", OSError, "names no file"),
        ("broken://a/b", OSError, "broken://a/b: first line second line"),
    ],
)
def test_errors_of_a_store_are_one_sentence(source, url, kind, words):
    fsspec.register_implementation("broken", Broken, clobber=True)
    for call in (hc.load, lambda place: hc.quantize_checkpoint(place, "never", "int8")):
        with pytest.raises(kind, match=words) as caught:
            call(url)
        assert "\n" not in str(caught.value)
    if "nowhere" not in url:
        with pytest.raises(OSError, match=words.rpartition("//a/b: ")[2]):
            quantized(source, url)


@pytest.mark.parametrize("error", [PermissionError(), TimeoutError("slow"), ValueError("x" * 5000), KeyError("k")])
def test_any_error_of_a_store(source, monkeypatch, error):
    fsspec.register_implementation("broken", Broken, clobber=True)
    monkeypatch.setattr(Broken, "error", error)
    with pytest.raises(OSError) as caught:
        hc.load("broken://a/b")
    assert "broken://a/b" in str(caught.value) and len(str(caught.value)) < 1000


def test_a_store_that_loses_what_is_written(source, store, tmp_path, monkeypatch):
    """After a failed upload there is no object, and no local file."""
    memory = fsspec.filesystem("memory")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    hc.save(f"{store}/other.safetensors", WEIGHTS)

    def fails(*_, **__):
        raise ConnectionError("reset by peer")

    monkeypatch.setattr(type(memory), "put_file", fails)
    with pytest.raises(OSError, match="model.safetensors: reset by peer"):
        hc.save(f"{store}/model.safetensors", WEIGHTS)
    assert not locations.exists(f"{store}/model.safetensors") and locations.exists(f"{store}/other.safetensors")
    assert not list((tmp_path / "temporary").iterdir())


def test_a_store_without_its_package(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match=r"needs fsspec: pip install 'heterocompute\[remote\]'"):
        hc.load("memory://a/b")


def test_the_command_line_takes_urls(remote, store, capsys):
    words = ["quantize", remote, f"{store}/out", "--format", "int8", "--shard-size", f"{SIZE}"]
    code, text, _ = run(capsys, *words)
    assert code == 0 and "7 tensors quantized" in text
    code, text, _ = run(capsys, "inspect", f"{store}/out", "--json")
    assert code == 0 and len(json.loads(text)["tensors"] if "tensors" in text else json.loads(text)) >= 1
    code, _, error = run(capsys, "quantize", "memory://nowhere/at", f"{store}/x", "--format", "int8")
    assert code == 1 and "No such file" in error and "Traceback" not in error
    code, _, error = run(capsys, *words)
    assert code == 1 and "exists" in error


def test_parts_of_a_file_are_read_alone(store, monkeypatch):
    """A tensor of a large file is one request of its bytes."""
    hc.save(f"{store}/model.safetensors", WEIGHTS)
    asked = []
    memory = type(fsspec.filesystem("memory"))
    cat = memory.cat_file
    monkeypatch.setattr(
        memory,
        "cat_file",
        lambda self, path, start=None, end=None: asked.append(end - start) or cat(self, path, start, end),
    )
    with hc.open_checkpoint(f"{store}/model.safetensors") as found:
        asked.clear()
        found["layers.4.weight"]
    assert asked == [WEIGHTS["layers.4.weight"].nbytes]
