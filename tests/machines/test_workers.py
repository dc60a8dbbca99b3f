"""Workers: the same results for any number, for processes and for any map, and messages for invalid workers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.base.workers import SERVE, checked_workers, in_order, in_workers
from heterocompute.ptq.streaming import quantize_streamed

RANDOM = np.random.default_rng(3)
WEIGHTS = {f"l{i}.weight": RANDOM.standard_normal((16, 64)).astype(np.float32) for i in range(4)}


def backwards(function, tasks):
    return [function(task) for task in reversed(tasks)]


def shared(function, tasks):
    """Send arrays as read-only memory, like Ray."""

    def sent(value):
        buffers = []
        text = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        return pickle.loads(text, buffers=[bytes(buffer) for buffer in buffers])

    return [sent(sent(function)(sent(task))) for task in tasks]


def doubled(x):
    return 2 * x


def failing(x):
    if x == 2:
        raise ValueError("two")
    if x == 3:
        sys.exit(3)
    if x == 7:
        os._exit(7)
    return x


@pytest.mark.parametrize("workers", [None, 1, 3, "2", map, backwards, np.int64(2)])
def test_results_are_in_order(workers):
    told = []
    who = checked_workers(workers, "example")
    assert in_order(who, doubled, range(5), "example", lambda *at: told.append(at)) == [0, 2, 4, 6, 8]
    assert told == [(i + 1, 5) for i in range(5)] and in_order(who, doubled, [], "example") == []


@pytest.mark.sweep(every=0)
def test_processes_answer_raise_and_end():
    assert in_order(2, int, ["1", "2", "3"], "example", processes=True) == [1, 2, 3]
    with pytest.raises(ValueError, match="invalid literal"):
        in_order(2, int, ["1", "x", "3"], "example", processes=True)
    with pytest.raises(RuntimeError, match="example: a worker process ended with exit code 7"):
        in_order(2, os._exit, [7, 7, 7, 7], "example", processes=True)


def test_a_process_without_a_reader_ends_without_words():
    """As after Ctrl-C, which ends the caller, and which all processes of a terminal receive."""
    child = subprocess.Popen([sys.executable, "-c", SERVE], stdin=-1, stdout=-1, stderr=-1)
    child.stdin.write(pickle.dumps((int, "1")))
    child.stdin.flush()
    assert pickle.load(child.stdout) == (True, 1)
    child.send_signal(signal.SIGINT)
    child.stdout.close()
    child.stdin.write(pickle.dumps((int, "2")))
    child.stdin.close()
    assert child.wait(60) == 1 and child.stderr.read() == b""
    child.stderr.close()


def test_the_first_error_ends_the_work():
    done = []

    def note(x):
        done.append(x)
        return failing(x)

    with pytest.raises(ValueError, match="two"):
        in_order(2, note, [2] + 100 * [1], "example")
    assert len(done) < 101


@pytest.mark.parametrize("workers", ["", "two", "dask", "dask:", "spark:x", "-1", "1.5", "²", 1.5, [2], b"2", True])
def test_what_is_no_workers(workers):
    with pytest.raises(
        (TypeError, ValueError),
        match="expected a number of workers, 'dask:ADDRESS', 'ray:ADDRESS' or a function like map",
    ):
        checked_workers(workers, "example")


@pytest.mark.parametrize("workers", [0, -1, 1025, "0", "99999"])
def test_numbers_that_are_no_workers(workers):
    with pytest.raises(ValueError, match="workers is .*, expected 1 to 1024"):
        checked_workers(workers, "example")


def test_a_map_that_returns_something_else():
    with bad_argument(ValueError, "workers", "value"):
        list(in_workers(lambda f, tasks: [1, 2], doubled, [1, 2], "example"))
    for wrong in (lambda f, tasks: None, lambda f, tasks: 5):
        with pytest.raises(ValueError, match="the results of 2 of 2 tasks"):
            list(in_workers(wrong, doubled, [1, 2], "example"))


@pytest.mark.parametrize(
    "kind, words",
    [
        ("dask", r"needs Dask: pip install 'heterocompute\[dask\]'"),
        ("ray", r"needs Ray: pip install 'heterocompute\[ray\]'"),
    ],
)
def test_clusters_that_are_not_installed(monkeypatch, kind, words):
    monkeypatch.setitem(sys.modules, {"dask": "distributed", "ray": "ray"}[kind], None)
    with pytest.raises(ImportError, match=words):
        in_order(f"{kind}:tcp://127.0.0.1:1", doubled, [1], "example")


def test_threads_have_the_settings_of_the_caller():
    with hc.use(threads=1):
        assert in_order(2, lambda _: hc.get_num_threads(), range(4), "example") == [1, 1, 1, 1]


def numbers_of(study):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in [*study.table, *study.layers]]


def test_studies_have_the_same_numbers(tmp_path):
    path = tmp_path / "model.safetensors"
    hc.save(path, WEIGHTS)
    formats = ["int4", "vsq4-g16-s4"]
    with ProcessPoolExecutor(1) as pool:
        for weights in (path, WEIGHTS):
            expected = hc.study(weights, formats)
            for workers in (3, pool.map, shared):
                told = []
                found = hc.study(weights, formats, workers=workers, progress=lambda *at, t=told: t.append(at))
                assert numbers_of(found) == numbers_of(expected) and told[-1][0] == told[-1][1]
                assert all(row["seconds"] is None for row in found.table) and "no times" in str(found)


def test_a_study_that_is_evaluated(tmp_path):
    def evaluate(weights):
        return float(sum(np.abs(np.asarray(w)).sum() for w in weights.values()))

    methods = ["rtn", "search"]
    expected = hc.study(WEIGHTS, ["int4-g32"], evaluate, methods=methods)
    assert numbers_of(hc.study(WEIGHTS, ["int4-g32"], evaluate, methods=methods, workers=2)) == numbers_of(expected)
    broken = {**WEIGHTS, "l2.weight": np.full((2, 64), np.nan, np.float32)}
    with pytest.raises(ValueError, match="l2.weight"):
        hc.study(broken, ["int4"], workers=2)


def test_layers_are_rounded_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hc.save("model.safetensors", WEIGHTS)
    inputs = {name: RANDOM.standard_normal((100, 64)).astype(np.float32) for name in WEIGHTS}
    np.savez("x.npz", **inputs)
    hessians = {name: hc.ptq.Hessian(64) for name in WEIGHTS}
    for name, h in hessians.items():
        h.add(inputs[name])
    hessians["l1.weight"].save("h.safetensors")
    mixed = {**hessians, "l1.weight": "h.safetensors"}
    found = []
    with ProcessPoolExecutor(1) as pool, ThreadPoolExecutor(2) as threads:
        for workers in (1, 3, pool.map, threads.map, shared):
            summary = hc.ptq.quantize_checkpoint("model.safetensors", "a.safetensors", mixed, workers=workers)
            streamed = quantize_streamed(
                "model.safetensors", "b.safetensors", {"*": "int4-g32"}, "x.npz", workers=workers
            )
            files = [(tmp_path / f"{name}.safetensors").read_bytes() for name in "ab"]
            found.append((summary["tensors"], streamed.table, files))
    assert all(one == found[0] for one in found) and len(found[0][1]) == 4
    assert not list(tmp_path.glob("*.parts"))


def test_a_layer_that_cannot_be_rounded_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    hc.save(path, {**WEIGHTS, "l2.weight": np.full((16, 64), np.inf, np.float32)})
    h = hc.ptq.Hessian(64)
    h.add(RANDOM.standard_normal((100, 64)))
    for workers in (1, 2):
        with pytest.raises(ValueError, match=r"model\.safetensors: tensor 'l2\.weight': ") as caught:
            hc.ptq.quantize_checkpoint(path, tmp_path / "out", dict.fromkeys(WEIGHTS, h), workers=workers)
        assert str(caught.value).count("model.safetensors") == 1


@pytest.mark.parametrize("layout, lossy", [("compressed-tensors", None), ("awq", "int4-g32-asym-f16"), ("gptq", None)])
def test_conversions_have_the_same_plans(tmp_path, monkeypatch, layout, lossy):
    monkeypatch.chdir(tmp_path)
    packed = {name: hc.quantize(w, "int8-g32-f16") for name, w in WEIGHTS.items()}
    hc.save("packed.safetensors", {**packed, "bias": np.zeros(3, np.float32)})
    found = []
    with ProcessPoolExecutor(1) as pool:
        for i, workers in enumerate((1, 3, pool.map, shared)):
            told = []
            summary = hc.convert_checkpoint(
                "packed.safetensors", f"out{i}", layout, lossy, workers=workers, shard_size="1kB",
                progress=lambda *at, t=told: t.append(at),
            )  # fmt: skip
            files = {path.name: path.read_bytes() for path in (tmp_path / f"out{i}").iterdir()}
            found.append((files, summary["tensors"]))
            assert told[-1][0] == told[-1][1]
    assert all(one == found[0] for one in found) and len(found[0][0]) > 3
    with pytest.raises(ValueError, match="not representable in nothing|layout is 'nothing'"):
        hc.convert_checkpoint("packed.safetensors", "never", "nothing", workers=2)


def test_a_weight_that_is_not_representable_is_told_by_workers(tmp_path):
    path = tmp_path / "packed.safetensors"
    hc.save(path, {name: hc.quantize(w, "vsq4-g16-s4") for name, w in WEIGHTS.items()})
    refused = []
    for workers in (1, 2):
        with pytest.raises(ValueError, match="4 tensors not representable in compressed-tensors") as caught:
            hc.convert_checkpoint(path, tmp_path / "out", "compressed-tensors", workers=workers)
        refused.append((str(caught.value), caught.value.summary))
    assert refused[0] == refused[1]
