"""Checkpoints in shards have the same bytes for any workers and any number of interruptions."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil

import numpy as np
import pytest
from common import bad_argument, bytes_of, run, run_until

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint, quantize_checkpoint
from heterocompute.files.work import size_of

RANDOM = np.random.default_rng(7)
PARTS = 4
NAMES = [f"layers.{i}.{kind}" for i in range(8) for kind in ("weight", "bias")]
WEIGHTS = {
    name: RANDOM.standard_normal((16, 64) if name.endswith("weight") else 16).astype(np.float32) for name in NAMES
}
SIZE = 3500  # bytes: three layers in int8; a part has two


def make_folder(folder, weights=WEIGHTS):
    folder.mkdir()
    where = {}
    for i, names in enumerate(np.array_split(list(weights), PARTS)):
        part = f"model-{i + 1:05d}-of-{PARTS:05d}.safetensors"
        hc.save(folder / part, {str(name): weights[str(name)] for name in names})
        where |= {str(name): part for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (folder / "config.json").write_text('{"hidden_size": 64}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def source(tmp_path):
    return make_folder(tmp_path / "in")


def quantized(source, out, **options):
    summary = quantize_checkpoint(source, out, "int8", **{"shard_size": SIZE, **options})
    assert not os.path.exists(f"{out}.partial")
    return summary


def test_a_folder_becomes_a_folder_of_shards(source, tmp_path):
    summary = quantized(source, tmp_path / "out")
    files = [f"model-{i + 1:05d}-of-00003.safetensors" for i in range(3)]
    companions = ["config.json", "model.safetensors.index.json", "tokenizer.json"]
    assert sorted(bytes_of(tmp_path / "out")) == sorted([*files, *companions])
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == summary["bytes"] and sorted(set(index["weight_map"].values())) == files
    with hc.open_checkpoint(tmp_path / "out") as found:
        assert list(found) == NAMES
        for name, array in WEIGHTS.items():
            assert found[name] == hc.quantize(array, "int8") if array.ndim > 1 else (found[name] == array).all()
    loaded = [hc.load(tmp_path / "out" / file) for file in files]
    sizes = [sum(array.nbytes for array in arrays.values()) for arrays in loaded]
    assert max(sizes) <= SIZE and sum(sizes) == summary["bytes"]
    dequantize_checkpoint(tmp_path / "out", tmp_path / "plain.safetensors")
    assert list(hc.load(tmp_path / "plain.safetensors")) == NAMES


def test_where_the_output_goes(source, tmp_path):
    quantize_checkpoint(source, tmp_path / "small.safetensors", "int8", shard_size=SIZE)
    quantize_checkpoint(source, tmp_path / "folder", "int8")
    assert sorted(bytes_of(tmp_path / "folder")) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (tmp_path / "small.safetensors").read_bytes() == (tmp_path / "folder" / "model.safetensors").read_bytes()
    hc.save(tmp_path / "one", WEIGHTS)
    for name, options, files in (
        ("a", {}, None), ("b", {"shard_size": SIZE}, 4), ("c/", {}, 1), ("d", {"shard_size": None}, None),
        ("e.safetensors", {"shard_size": SIZE}, None),
    ):  # fmt: skip
        quantize_checkpoint(tmp_path / "one", f"{tmp_path}/{name}", "int8", **options)
        assert (tmp_path / name).is_dir() == (files is not None)
        assert files is None or len(list((tmp_path / name).iterdir())) == files
    with bad_argument(ValueError, None, "file", "out: exists and is not an empty folder"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").touch()
        quantize_checkpoint(source, tmp_path / "out", "int8")
    assert bytes_of(tmp_path / "out") == {"mine": b""}


@pytest.mark.parametrize("workers", ["1", "3", "map", "processes"])
def test_any_workers_write_the_same_bytes(source, tmp_path, workers):
    quantized(source, tmp_path / "expected")
    calls = []
    options = {"progress": lambda *call: calls.append(call)}
    if workers == "processes":
        with concurrent.futures.ProcessPoolExecutor(2) as pool:
            quantized(source, tmp_path / "out", workers=pool.map, **options)
    else:
        quantized(source, tmp_path / "out", workers=map if workers == "map" else int(workers), **options)
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")
    total = sum(array.nbytes for array in WEIGHTS.values())
    assert calls[-1] == (total, total, "") and [done for done, _, _ in calls] == sorted(done for done, _, _ in calls)


def test_workers_of_dask_write_the_same_bytes(source, tmp_path):
    distributed = pytest.importorskip("distributed")
    quantized(source, tmp_path / "expected")
    cluster = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "processes": True}
    with distributed.LocalCluster(**cluster) as local, distributed.Client(local) as client:
        quantized(source, tmp_path / "out", workers=lambda f, items: client.gather(client.map(f, items)))
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.sweep(every=20)
@pytest.mark.parametrize("consume", [False, True])
@pytest.mark.parametrize("first", range(5))
def test_killed_at_any_moment_and_begun_again(source, tmp_path, first, consume):
    quantized(source, tmp_path / "expected")
    expected, step, finished = bytes_of(tmp_path / "expected"), first, False
    while not finished:
        shutil.copytree(source, tmp_path / "copy")
        before = {path.name: os.stat(path).st_mtime_ns for path in source.iterdir()}
        for name, time in before.items():
            os.utime(tmp_path / "copy" / name, ns=(time, time))

        def call():
            quantized(tmp_path / "copy", tmp_path / "out", consume=consume)  # noqa: B023

        finished = run_until(step, call)
        if (tmp_path / "out").exists():  # never incomplete
            assert bytes_of(tmp_path / "out") == expected
        if (tmp_path / "out.partial" / "manifest.json").exists() or not (tmp_path / "out").exists():
            call()
        assert bytes_of(tmp_path / "out") == expected
        left = {"config.json", "tokenizer.json"} if consume else set(before)
        assert set(os.listdir(tmp_path / "copy")) == left
        shutil.rmtree(tmp_path / "copy")
        shutil.rmtree(tmp_path / "out")
        shutil.rmtree(tmp_path / "out.partial", ignore_errors=True)  # it may be empty
        step += 5
    assert step > 30


def test_files_of_the_source_go_as_they_are_done(source, tmp_path):
    left = []
    quantized(source, tmp_path / "out", consume=True, progress=lambda *_: left.append(len(list(source.glob("*-of-*")))))
    assert sorted(set(left)) == [0, 1, 3, 4]  # shards end in the second, the third and the last part
    assert sorted(os.listdir(source)) == ["config.json", "tokenizer.json"]
    with hc.open_checkpoint(tmp_path / "out") as found:
        assert list(found) == NAMES


def test_what_cannot_be_consumed(source, tmp_path):
    hc.save(tmp_path / "one", WEIGHTS)
    with bad_argument(ValueError, None, "file", "one: consume .* this is one file"):
        quantized(tmp_path / "one", tmp_path / "out", consume=True)
    with bad_argument(ValueError, None, "file", r"out\.safetensors"):
        quantized(source, tmp_path / "out.safetensors", consume=True)
    part = source / "model-00002-of-00004.safetensors"
    os.rename(part, source / "other")
    os.symlink("other", part)
    with bad_argument(ValueError, None, "file", "model-00002"):
        quantized(source, tmp_path / "out", consume=True)
    assert len(list(source.iterdir())) == 8 and sorted(os.listdir(tmp_path)) == ["in", "one"]


@pytest.fixture
def broken(tmp_path):
    """Return a source with a NaN in its last part, and an output that ended there."""
    folder = make_folder(tmp_path / "in", {**WEIGHTS, "layers.7.weight": WEIGHTS["layers.7.weight"] * np.nan})
    return folder, tmp_path / "out"


def ended(broken, **options):
    with bad_argument(ValueError, None, "file", "in/.*: tensor 'layers.7.weight'.*(nan|NaN)"):
        quantized(*broken, **options)
    assert not broken[1].exists()


@pytest.mark.parametrize("consume", [False, True])
def test_other_options_finish_what_an_error_ended(broken, tmp_path, consume):
    make_folder(tmp_path / "same", hc.load(broken[0]))
    quantized(tmp_path / "same", tmp_path / "expected", exclude="layers.7.weight")
    ended(broken, consume=consume)
    stamps = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out.partial" / "out").iterdir()}
    assert len(stamps) == 2 and len(list(broken[0].iterdir())) == (4 if consume else 7)
    quantized(*broken, exclude="layers.7.weight")
    assert bytes_of(broken[1]) == bytes_of(tmp_path / "expected")
    assert {name: (broken[1] / name.replace("00003", "00005")).stat().st_mtime_ns for name in stamps} == stamps


def test_what_is_deleted_needs_the_same_options(broken, tmp_path):
    ended(broken, consume=True)
    with bad_argument(ValueError, None, "file", "'layers.0.weight'"):
        quantize_checkpoint(*broken, "int4", shard_size=SIZE)
    with bad_argument(ValueError, None, "file", "of which parts are deleted already"):
        quantized(make_folder(tmp_path / "other"), broken[1])
    quantized(*broken, exclude="layers.7.*", resume=False)
    assert set(hc.load(broken[1])) == set(NAMES)


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_of_another_time_is_made_again(broken, tmp_path, resume):
    ended(broken)
    shutil.rmtree(broken[0])
    turned = {name: array[::-1].copy() for name, array in WEIGHTS.items()}
    make_folder(broken[0], turned)
    quantized(*broken, resume=resume)
    assert (hc.load(broken[1])["layers.0.bias"] == turned["layers.0.bias"]).all()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "shards": [3]}', None, "lost"])
def test_what_stands_in_the_way_is_not_believed(broken, tmp_path, text):
    ended(broken)
    manifest = tmp_path / "out.partial" / "manifest.json"
    if text is None:
        shutil.rmtree(tmp_path / "out.partial")
        (tmp_path / "out.partial").write_text("mine")
    elif text == "lost":
        manifest.unlink()
        (tmp_path / "out.partial" / "mine").touch()
    else:
        manifest.write_text(text)
    with bad_argument(ValueError, None, "file", r"out\.partial.*: (is in the way|not a manifest)") as caught:
        quantized(*broken, exclude="layers.7.weight")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["out.partial", "out.partial/out"])
def test_nothing_is_written_or_deleted_behind_a_link(source, tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(tmp_path / "mine")
    with bad_argument(ValueError, None, "file", r"out\.partial."):
        quantized(source, tmp_path / "out")
    assert os.listdir(tmp_path / "mine") == ["file"] and not (tmp_path / "out").exists()


def test_files_without_a_manifest_stay(source, tmp_path):
    (tmp_path / "out.partial" / "out").mkdir(parents=True)
    (tmp_path / "out.partial" / "out" / "mine").touch()
    with bad_argument(ValueError, None, "file", r"out\.partial."):
        quantized(source, tmp_path / "out")
    assert (tmp_path / "out.partial" / "out" / "mine").exists()


def test_one_file_needs_no_other_name(source, tmp_path):
    for name in ("a.safetensors", "b"):
        (tmp_path / f"{name}.partial").write_text("mine")
        quantize_checkpoint(source / "model-00001-of-00004.safetensors", tmp_path / name, "int8")
        assert (tmp_path / name).is_file() and (tmp_path / f"{name}.partial").read_text() == "mine"


def test_a_source_that_changes_is_noticed(source, tmp_path):
    def touch(done, total, name):
        if name == "layers.1.weight":
            os.utime(source / "model-00001-of-00004.safetensors")

    with bad_argument(ValueError, None, "file", "00001-of-00004.safetensors"):
        quantized(source, tmp_path / "out", progress=touch)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"workers": 0}, "workers"), ({"workers": "2x"}, "workers"), ({"workers": 1.5}, "workers is 1.5, expected"),
        ({"workers": lambda f, items: None}, "3 of 3 tasks"), ({"shard_size": "5 GB/s"}, "such as '5GB'"),
        ({"workers": lambda f, items: map(f, items[:1])}, "2 of 3 tasks"),
        ({"consume": "no"}, "consume is 'no', expected True or False"), ({"resume": 0}, "resume is 0"),
        ({"shard_size": 0}, "shard_size"), ({"shard_size": 1.5}, "shard_size"), ({"shard_size": "nanGB"}, "shard_size"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing(source, tmp_path, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        quantized(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_command_line_has_the_same_options(source, tmp_path, capsys):
    quantized(source, tmp_path / "expected")
    options = ["--format", "int8", "--shard-size", f"{SIZE}"]
    (tmp_path / "out").mkdir()
    code, text, _ = run(capsys, "quantize", source, tmp_path / "out", *options, "--workers", "2", "--consume")
    assert code == 0 and "8 tensors quantized, 8 copied" in text
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected") and len(os.listdir(source)) == 2
    for wrong in (["--shard-size", "x"], ["--workers", "0"], ["--format", "int4", "--consume"]):
        code, _, error = run(capsys, "quantize", tmp_path / "out", tmp_path / "out", *options, *wrong)
        assert code == 2 and "Traceback" not in error
    code, _, error = run(capsys, "quantize", tmp_path / "expected", tmp_path / "out", *options)
    assert code == 1 and "already quantized" in error


def test_sizes_are_texts():
    texts = ("5GB", "500 MB", "1.5GiB", "7", 9)
    assert [size_of(text) for text in texts] == [5 * 10**9, 5 * 10**8, 3 * 2**29, 7, 9]


def test_folders_of_modules_and_templates_go_along(source, tmp_path):
    texts = {"1_Pooling/config.json": '{"pooling_mode": "cls"}', "2_Dense/model.safetensors": "weights",
             "additional_chat_templates/tool.jinja": "{{ messages }}"}  # fmt: skip
    for name, text in {**texts, "other/config.json": "{}", "0_Transformer/a": "", "1_Pooling/.hidden": ""}.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)

    def found(out):
        return {str(file.relative_to(out)): file.read_text() for file in out.rglob("*")
                if file.is_file() and file.parent != out}  # fmt: skip

    quantized(source, tmp_path / "out")
    assert found(tmp_path / "out") == texts
    for part in ("2/2", "1/2"):
        quantize_checkpoint(source, tmp_path / "parts", "int8", shard_size=SIZE, part=part)
    hc.finish_checkpoint(tmp_path / "parts")
    assert found(tmp_path / "parts") == texts
    step, finished = 0, False
    while not finished:
        finished = run_until(step, lambda step=step: quantized(source, tmp_path / f"ends{step}"))
        if not (tmp_path / f"ends{step}").exists():
            quantized(source, tmp_path / f"ends{step}")
        assert found(tmp_path / f"ends{step}") == texts
        step += 4
    assert step > 12
