"""Parts of a checkpoint that several runs write in any order: the bytes of one run, and only complete files."""

from __future__ import annotations

import json
import os
import shutil
from itertools import permutations

import numpy as np
import pytest
from common import bad_argument, bytes_of, run, run_until

import heterocompute as hc
from heterocompute.base.workers import in_order
from heterocompute.files.checkpoint import dequantize_checkpoint, prune_checkpoint

RANDOM = np.random.default_rng(11)
WEIGHTS = {f"layers.{i}.weight": RANDOM.standard_normal((32, 64)).astype(np.float32) for i in range(7)}
SIZE = 4500  # bytes: two layers in int8


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    hc.save(folder / "model.safetensors", WEIGHTS)
    (folder / "config.json").write_text('{"hidden_size": 64}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


def quantized(source, out, **options):
    return hc.quantize_checkpoint(source, out, "int8", **{"shard_size": SIZE, **options})


def test_parts_in_any_order_are_the_bytes_of_one_run(source, tmp_path):
    quantized(source, tmp_path / "expected")
    expected = bytes_of(tmp_path / "expected")
    assert len([name for name in expected if name.endswith(".safetensors")]) == 4
    for order in permutations((1, 2, 3)):
        for number in (*order, order[0]):  # one of them twice
            told = []
            summary = quantized(source, tmp_path / "out", part=f"{number}/3", progress=lambda *at, t=told: t.append(at))
            assert summary["part"] == f"{number}/3" and told[-1][0] == told[-1][1] and not (tmp_path / "out").exists()
        found = hc.finish_checkpoint(tmp_path / "out")
        assert (found["parts"], len(found["files"])) == (3, 4) and found["bytes"] == summary["bytes"]
        assert bytes_of(tmp_path / "out") == expected and not (tmp_path / "out.partial").exists()
        shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("count", [1, 2, 9])
def test_any_number_of_parts(source, tmp_path, count):
    """There may be more parts than files; some parts have nothing to do."""
    quantized(source, tmp_path / "expected")
    for number in range(1, count + 1):
        quantized(source, tmp_path / "out", part=f"{number}/{count}", workers=2)
    hc.finish_checkpoint(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")


def test_one_file_of_parts(source, tmp_path):
    for number in (2, 1):
        quantized(source, tmp_path / "out", part=f"{number}/2", shard_size=None)
    assert hc.finish_checkpoint(tmp_path / "out")["files"] == ["model.safetensors"]
    quantized(source, tmp_path / "expected", shard_size=None)
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")


def test_other_calls_have_parts(source, tmp_path):
    quantized(source, tmp_path / "packed")
    calls = {
        "pruned": lambda out, **options: prune_checkpoint(source, out, "2:4", shard_size=SIZE, **options),
        "plain": lambda out, **options: dequantize_checkpoint(tmp_path / "packed", out, shard_size=3 * SIZE, **options),
        "converted": lambda out, **options: hc.convert_checkpoint(
            tmp_path / "grouped", out, "awq", shard_size=SIZE, **options
        ),
    }
    hc.quantize_checkpoint(source, tmp_path / "grouped", "int4-g32-asym-f16", layout="gptq")
    for name, call in calls.items():
        call(tmp_path / name)
        for number in (2, 1):
            assert call(tmp_path / "out", part=f"{number}/2")["part"] == f"{number}/2"
        hc.finish_checkpoint(tmp_path / "out")
        assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / name)
        shutil.rmtree(tmp_path / "out")


def test_missing_parts_are_named(source, tmp_path):
    with bad_argument(ValueError, None, "file", r"out\.partial"):
        hc.finish_checkpoint(tmp_path / "out")
    quantized(source, tmp_path / "out", part="2/3")
    with bad_argument(ValueError, None, "file", "not there or not whole .*: run the parts 1/3, 3/3$"):
        hc.finish_checkpoint(tmp_path / "out")
    quantized(source, tmp_path / "out", part="1/3")
    with bad_argument(ValueError, None, "file", "run the part 3/3$"):
        hc.finish_checkpoint(tmp_path / "out")
    quantized(source, tmp_path / "out", part="3/3")
    first = tmp_path / "out.partial" / "out" / "model-00001-of-00004.safetensors"
    broken = bytearray(first.read_bytes())
    broken[-3] ^= 1
    first.write_bytes(broken)
    with bad_argument(ValueError, None, "file", "1.*4.*00001-of-00004..*1/3"):
        hc.finish_checkpoint(tmp_path / "out")
    broken[-3] ^= 1
    broken[40] ^= 1  # in the header
    first.write_bytes(broken)
    with bad_argument(ValueError, None, "file", "1.*4.*00001-of-00004..*1/3"):
        hc.finish_checkpoint(tmp_path / "out")
    quantized(source, tmp_path / "out", part="1/3")
    (tmp_path / "out.partial" / "out" / "tokenizer.json").unlink()
    with bad_argument(ValueError, None, "file", r"'tokenizer\.json'"):
        hc.finish_checkpoint(tmp_path / "out")
    quantized(source, tmp_path / "out", part="1/3")
    hc.finish_checkpoint(tmp_path / "out")
    with bad_argument(ValueError, None, "file", "'.*out'"):
        hc.finish_checkpoint(tmp_path / "out")
    with bad_argument(ValueError, None, "file", "out: exists and is not an empty folder"):
        quantized(source, tmp_path / "out", part="1/3")


def test_parts_of_other_options_are_not_mixed(source, tmp_path):
    quantized(source, tmp_path / "out", part="1/3")
    held = bytes_of(tmp_path / "out.partial" / "out")
    for options in ({"part": "2/4"}, {"part": "2/3", "shard_size": None}, {"part": "2/3", "exclude": "layers.0.*"}):
        with bad_argument(ValueError, None, "file", "was begun with other options"):
            quantized(source, tmp_path / "out", **options)
    assert bytes_of(tmp_path / "out.partial" / "out") == held
    quantized(source, tmp_path / "out")  # a complete run uses the existing parts
    quantized(source, tmp_path / "expected")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")


def test_a_finish_that_was_ended(source, tmp_path):
    quantized(source, tmp_path / "out", part="1/1")
    shutil.copytree(tmp_path / "out.partial", tmp_path / "kept")
    hc.finish_checkpoint(tmp_path / "out")
    expected = bytes_of(tmp_path / "out")
    shutil.move(tmp_path / "kept", tmp_path / "out.partial")
    shutil.rmtree(tmp_path / "out.partial" / "out")
    hc.finish_checkpoint(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == expected and not (tmp_path / "out.partial").exists()


def test_what_a_killed_worker_left_does_not_go_along(source, tmp_path):
    quantized(source, tmp_path / "expected")
    quantized(source, tmp_path / "out", part="1/1")
    (tmp_path / "out.partial" / "out" / ".heterocompute-0123456789abcdef.tmp").write_bytes(b"half")
    hc.finish_checkpoint(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")


@pytest.mark.parametrize(
    "change", [{"parts": -1}, {"parts": "3"}, {"beside": "x"}, {"beside": ["../x"]}, {"beside": [3]}, {"beside": [""]}]
)
def test_a_manifest_is_not_believed(source, tmp_path, change):
    quantized(source, tmp_path / "out", part="1/2")
    manifest = tmp_path / "out.partial" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    with bad_argument(ValueError, None, "file", r"out\.partial.*: (is in the way|not a manifest)") as caught:
        hc.finish_checkpoint(tmp_path / "out")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["0/3", "4/3", "1", "1/2/3", "a/b", "", "1/9999999", "-1/2", (1, 2), 3])
def test_parts_that_do_not_exist(source, tmp_path, part):
    with pytest.raises((TypeError, ValueError), match="expected a text such as '2/3'"):
        quantized(source, tmp_path / "out", part=part)


@pytest.mark.parametrize("options", [{"part": "4/3"}, {"part": 3}, {"workers": 0}, {"resume": "no"}])
def test_errors_name_the_function_that_was_called(source, tmp_path, options):
    calls = {
        "quantize_checkpoint": lambda: hc.quantize_checkpoint(source, tmp_path / "a", "int8", **options),
        "prune_checkpoint": lambda: prune_checkpoint(source, tmp_path / "b", "2:4", **options),
        "dequantize_checkpoint": lambda: dequantize_checkpoint(source, tmp_path / "c", **options),
        "convert_checkpoint": lambda: hc.convert_checkpoint(source, tmp_path / "d", "awq", **options),
    }
    (name,) = options
    for caller, call in calls.items():
        with pytest.raises((TypeError, ValueError), match=f"^{caller}: {name} is "):
            call()


def test_what_has_no_parts(source, tmp_path):
    for out, options in (
        ("a.safetensors", {}),
        ("b", {"consume": True}),
        ("c.gguf", {"layout": "gguf"}),
    ):
        with pytest.raises(ValueError, match="parts write a folder|consume and part are given|gguf is one file"):
            quantized(source, tmp_path / out, part="1/2", **options)
    with bad_argument(ValueError, None, "file", "is not written in parts"):
        with pytest.raises(ZeroDivisionError):
            quantized(source, tmp_path / "d", progress=lambda done, total, name: 1 / (name != "layers.4.weight"))
        hc.finish_checkpoint(tmp_path / "d")


def test_the_command_line_has_parts(source, tmp_path, capsys):
    quantized(source, tmp_path / "expected")
    words = ["quantize", source, tmp_path / "out", "--format", "int8", "--shard-size", f"{SIZE}"]
    code, text, _ = run(capsys, *words, "--part", "2/2")
    assert code == 0 and "part 2/2 written" in text and "heterocompute finish" in text
    code, _, error = run(capsys, "finish", tmp_path / "out")
    assert code == 1 and "run the part 1/2" in error and "Traceback" not in error
    code, text, _ = run(capsys, *words, "--part", "1/2", "--json")
    assert code == 0 and json.loads(text)["part"] == "1/2"
    code, text, _ = run(capsys, "finish", tmp_path / "out")
    assert code == 0 and "4 files of 2 parts" in text
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")
    code, _, error = run(capsys, *words, "--part", "3/2")
    assert code == 2 and "'2/3'" in error


def part_of(task):
    source, out, part = task
    return quantized(source, out, part=part)["part"]


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("again", range(4))
def test_parts_at_the_same_time(source, tmp_path, again):
    """Parts run in separate processes, some twice, and never see an incomplete file of another process."""
    quantized(source, tmp_path / "expected")
    parts = [f"{number}/4" for number in (1, 2, 3, 4, 4, 1)][again % 2 :]
    tasks = [(source, tmp_path / "out", part) for part in ([*parts, "1/4"] if again % 2 else parts)]
    assert in_order(6, part_of, tasks, "example", processes=True) == [part for _, _, part in tasks]
    hc.finish_checkpoint(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("first", range(5))
def test_a_part_or_a_finish_that_is_killed_at_any_moment(source, tmp_path, first):
    quantized(source, tmp_path / "expected")
    expected, step, finished = bytes_of(tmp_path / "expected"), first, False

    def call():
        quantized(source, tmp_path / "out", part="1/2")
        quantized(source, tmp_path / "out", part="2/2")
        hc.finish_checkpoint(tmp_path / "out")

    while not finished:
        finished = run_until(step, call)
        if (tmp_path / "out").exists():  # never incomplete
            assert bytes_of(tmp_path / "out") == expected
            if (tmp_path / "out.partial" / "manifest.json").exists():
                hc.finish_checkpoint(tmp_path / "out")
        else:
            call()
        assert bytes_of(tmp_path / "out") == expected
        shutil.rmtree(tmp_path / "out")
        shutil.rmtree(tmp_path / "out.partial", ignore_errors=True)
        step += 5
    assert step > 30
