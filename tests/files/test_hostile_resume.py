"""An unfinished output is untrusted: its content deletes nothing, and files of other runs are not used."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, bytes_of

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint

NAMES = [f"layers.{i}" for i in range(6)]
SIZE = 2500  # bytes: two layers in int8


def make_folder(folder: Path, seed: int = 0, last: float = 1.0) -> Path:
    folder.mkdir()
    where = {}
    for i in range(3):
        part = f"model-{i + 1:05d}-of-00003.safetensors"
        arrays = {
            name: np.random.default_rng(seed + j).standard_normal((16, 64)).astype(np.float32)
            for j, name in enumerate(NAMES)
            if j // 2 == i
        }
        if i == 2:
            arrays[NAMES[-1]] *= last
        hc.save(folder / part, arrays)
        os.utime(folder / part, ns=(10**18, 10**18))  # like an archive that does not keep times
        where |= dict.fromkeys(arrays, part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (folder / "config.json").write_text("{}")
    return folder


def quantized(source: Path, out: Path, **options: Any) -> Any:
    return hc.quantize_checkpoint(source, out, **{"format": "int8", "shard_size": SIZE, **options})


@pytest.fixture
def ended(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return a source with a NaN in its last part, an output that ended there, and its manifest."""
    source = make_folder(tmp_path / "in", last=np.nan)
    with bad_argument(ValueError, None, "file", "(nan|NaN)"):
        quantized(source, tmp_path / "out")
    return source, tmp_path / "out", tmp_path / "out.partial" / "manifest.json"


@pytest.fixture
def consumed(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return the same with deleted first parts."""
    source = make_folder(tmp_path / "in", last=np.nan)
    with bad_argument(ValueError, None, "file", "(nan|NaN)"):
        quantized(source, tmp_path / "out", consume=True)
    assert sorted(path.name for path in source.glob("*-of-*")) == ["model-00003-of-00003.safetensors"]
    return source, tmp_path / "out", tmp_path / "out.partial" / "manifest.json"


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(spot for key, one in inside for spot in spots(one, (*path, key)))]


WRONG = (None, True, -1, 0, 10**40, 1e300, "", "..", "/etc/passwd", "\ud800", "a\0b", [], [[]], {}, {"": 1})


@pytest.mark.sweep(every=12)
@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_manifests_of_other_types_are_refused_or_mean_the_same(
    consumed: tuple[Path, Path, Path], tmp_path: Path, wrong: Any
) -> None:
    source, out, manifest = consumed
    shutil.copytree(source, tmp_path / "kept")
    shutil.copytree(manifest.parent, tmp_path / "kept.partial")
    good, refused = json.loads(manifest.read_text()), 0
    for spot in spots(good):
        changed = copy.deepcopy(good)
        at = changed
        for key in spot[:-1]:
            at = at[key]
        if spot:
            at[spot[-1]] = wrong
        manifest.write_text(json.dumps(changed if spot else wrong))
        before = bytes_of(source)
        try:
            quantized(source, out, consume=True, exclude=NAMES[-1])
        except ValueError as error:
            assert "\n" not in str(error) and str(error).startswith(str(tmp_path)), spot
            assert bytes_of(source) == before and not out.exists(), spot
            refused += 1
        else:
            held = hc.load(out)
            assert list(held) == NAMES and held[NAMES[0]] == hc.quantize(array(0), "int8"), spot
        for left in (source, out, manifest.parent):
            shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", source)
        shutil.copytree(tmp_path / "kept.partial", manifest.parent)
    assert refused > 20


def array(i: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed + i).standard_normal((16, 64)).astype(np.float32)


def rewrite(manifest: Path, old: str, new: str) -> None:
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new))


def test_a_manifest_deletes_no_file_that_the_index_does_not_name(
    consumed: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    source, out, manifest = consumed
    text = manifest.read_text()
    first = source / "model-00001-of-00003.safetensors"
    hc.save(source / "other.safetensors", {"x": np.ones(3)})
    hc.save(tmp_path / "mine.safetensors", {"x": np.ones(3)})
    (source / "linked.safetensors").symlink_to(tmp_path / "mine.safetensors")
    for precious in (source / "other.safetensors", tmp_path / "mine.safetensors", source / "linked.safetensors",
                     source / "config.json", source / ".." / "mine.safetensors"):  # fmt: skip
        rewrite(manifest, str(first), str(precious))
        with bad_argument(ValueError, None, "file", "as a part of the checkpoint .* nothing is deleted"):
            quantized(source, out, consume=True, exclude=NAMES[-1])
        assert precious.exists()
        manifest.write_text(text)
    rewrite(manifest, "model.safetensors.index.json", "config.json")  # which would be deleted like the index
    with bad_argument(ValueError, None, "file", "nothing is deleted"):
        quantized(source, out, consume=True, exclude=NAMES[-1])
    assert (source / "config.json").exists()
    (source / "model.safetensors.index.json").unlink()
    manifest.write_text(text)
    with bad_argument(ValueError, None, "file", "nothing is deleted"):
        quantized(source, out, consume=True, exclude=NAMES[-1])
    assert (source / "model-00003-of-00003.safetensors").exists()


def test_nothing_more_is_deleted_without_consume(consumed: tuple[Path, Path, Path]) -> None:
    source, out, manifest = consumed
    quantized(source, out, exclude=NAMES[-1])
    assert list(hc.load(out)) == NAMES and not manifest.parent.exists()
    assert (source / "model-00003-of-00003.safetensors").exists() and (source / "model.safetensors.index.json").exists()


def test_a_part_that_changed_is_read_anew(tmp_path: Path) -> None:
    source, out = make_folder(tmp_path / "in"), tmp_path / "out"

    def stop(done: int, total: int, name: str) -> None:
        if name == NAMES[4]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantized(source, out, progress=stop)
    first = source / "model-00001-of-00003.safetensors"
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(bytes(data))
    os.utime(first, ns=(10**18, 10**18))
    quantized(source, out)  # its shard is rewritten: size and time are no proof
    changed = array(1)
    changed.view(np.uint8)[-1, -1] ^= 1
    assert hc.load(out)[NAMES[1]] == hc.quantize(changed, "int8")


def test_what_a_damaged_or_foreign_shard_holds_is_not_taken(ended: tuple[Path, Path, Path], tmp_path: Path) -> None:
    source, out, manifest = ended
    quantized(source, tmp_path / "expected", exclude=NAMES[-1])
    with bad_argument(ValueError, None, "file", "NaN|nan"):
        quantized(make_folder(tmp_path / "other", seed=50, last=np.nan), tmp_path / "foreign")
    name = "model-00001-of-00003.safetensors"
    whole = manifest.parent / "out" / name
    damaged = bytearray(whole.read_bytes())
    damaged[-5] ^= 64
    foreign = (tmp_path / "foreign.partial" / "out" / name).read_bytes()
    assert len(foreign) == len(damaged) and foreign[:200] == damaged[:200]
    shutil.copytree(manifest.parent, tmp_path / "kept")
    for content in (bytes(damaged), foreign, b"", whole.read_bytes()[:-1]):
        whole.write_bytes(content)
        quantized(source, out, exclude=NAMES[-1])
        assert bytes_of(out) == bytes_of(tmp_path / "expected")
        shutil.rmtree(out)
        shutil.copytree(tmp_path / "kept", manifest.parent)
    shutil.rmtree(source)
    shutil.copytree(tmp_path / "other", source)  # names, sizes and times are the same
    quantized(source, out, exclude=NAMES[-1])
    assert hc.load(out)[NAMES[0]] == hc.quantize(array(0, seed=50), "int8")


def test_another_format_takes_nothing(ended: tuple[Path, Path, Path], tmp_path: Path) -> None:
    source, out, _ = ended
    for fmt in ("int8-g64", "log8-8"):
        quantized(source, tmp_path / fmt, format=fmt, exclude=NAMES[-1])
        shutil.copytree(tmp_path / "out.partial", tmp_path / "kept")
        quantized(source, out, format=fmt, exclude=NAMES[-1])
        assert bytes_of(out) == bytes_of(tmp_path / fmt)
        shutil.rmtree(out)
        os.rename(tmp_path / "kept", tmp_path / "out.partial")


@pytest.mark.parametrize("place", ["mine.txt", "out/mine.txt", "out/notes/x", "done/mine.json", "out/x.safetensors"])
@pytest.mark.parametrize("options", [{}, {"resume": False}])
def test_files_of_others_stay(ended: tuple[Path, Path, Path], place: str, options: dict[str, Any]) -> None:
    source, out, manifest = ended
    mine = manifest.parent / place
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with bad_argument(ValueError, None, "file", r"out\.partial."):
        quantized(source, out, exclude=NAMES[-1], **options)
    assert mine.read_text() == "mine" and len(list((manifest.parent / "out").glob("model-*"))) == 2


def test_an_unfinished_output_is_no_source_of_itself(ended: tuple[Path, Path, Path]) -> None:
    _, out, manifest = ended
    shard = manifest.parent / "out" / "model-00001-of-00003.safetensors"
    before = shard.read_bytes()
    with bad_argument(ValueError, None, "file", "is a file of the input in"):
        dequantize_checkpoint(shard, f"{out}/")
    assert shard.read_bytes() == before


def test_one_file_asks_no_manifest(tmp_path: Path) -> None:
    hc.save(tmp_path / "in.safetensors", {"w": array(0)})
    (tmp_path / "out.safetensors.partial").mkdir()
    (tmp_path / "out.safetensors.partial" / "manifest.json").write_text("mine")
    hc.quantize_checkpoint(tmp_path / "in.safetensors", tmp_path / "out.safetensors", "int8")
    assert hc.load(tmp_path / "out.safetensors")["w"] == hc.quantize(array(0), "int8")
    assert (tmp_path / "out.safetensors.partial" / "manifest.json").read_text() == "mine"
