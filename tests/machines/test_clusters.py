"""Real clusters: a scheduler and workers in separate processes and folders, one of which is killed during the run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from common import bytes_of, run

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.base.workers import in_order

RANDOM = np.random.default_rng(5)
WEIGHTS = {f"layers.{i}.weight": RANDOM.standard_normal((64, 64)).astype(np.float32) for i in range(12)}
SIZE = 3000  # bytes: a layer in each file
SETTINGS = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "20s",
    "HETEROCOMPUTE_THREADS": "1",
}


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


class Cluster:
    """A scheduler and two workers of Dask, each started by its command in a separate folder."""

    def __init__(self, folder):
        self.address, self.folder = f"tcp://127.0.0.1:{free_port()}", folder
        scheduler = ["scheduler", "--host", self.address, "--no-dashboard", "--no-show"]
        self.children = [self._started("scheduler", *scheduler)]
        for name in ("first", "second"):
            options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name, "--death-timeout", "60"]
            self.children.append(self._started(name, "worker", self.address, *options))

    def _started(self, name, *words):
        (self.folder / name).mkdir()
        code = "import sys; from dask.__main__ import main; sys.argv[0] = 'dask'; main()"
        path = os.pathsep.join(one for one in [os.path.dirname(__file__), *sys.path] if one)
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", code, *words],
                cwd=self.folder / name,
                env={**os.environ, **SETTINGS, "PYTHONPATH": path},
                stdout=log,
                stderr=log,
            )

    def wait(self, count):
        distributed = pytest.importorskip("distributed")
        with distributed.Client(self.address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("distributed")
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        found.wait(2)
        yield found
    finally:
        for child in found.children:
            child.kill()
            child.wait()


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    hc.save(folder / "model.safetensors", WEIGHTS)
    (folder / "config.json").write_text('{"hidden_size": 64}')
    return folder


@pytest.mark.sweep(every=0)
def test_workers_of_dask_have_the_same_answers(cluster, source, tmp_path, monkeypatch, capsys):
    """Relative paths refer to the caller's folder, although workers run in other folders."""
    monkeypatch.chdir(tmp_path)
    who = f"dask:{cluster.address}"
    hc.quantize_checkpoint("in", "expected", "int4-g32", shard_size=SIZE)
    hc.quantize_checkpoint("in", "out", "int4-g32", shard_size=SIZE, workers=who)
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected") and len(bytes_of(tmp_path / "out")) == 14
    words = ["prune", "in", "pruned", "--pattern", "2:4", "--shard-size", "20kB"]
    assert run(capsys, *words, "--workers", who)[0] == 0
    words[2] = "also"
    assert run(capsys, *words)[0] == 0 and bytes_of(tmp_path / "pruned") == bytes_of(tmp_path / "also")
    hc.convert_checkpoint("out", "converted", "compressed-tensors", "int4-g32-f16", workers=who)
    hc.convert_checkpoint("out", "alone", "compressed-tensors", "int4-g32-f16")
    assert bytes_of(tmp_path / "converted") == bytes_of(tmp_path / "alone")
    code, text, _ = run(capsys, "study", "in/model.safetensors", "--formats", "int4", "--json", "--workers", who)
    rows = [{**row, "seconds": None} for row in hc.study("in/model.safetensors", ["int4"]).table]
    assert code == 0 and json.loads(text)["rows"] == json.loads(json.dumps(rows))
    np.savez("x.npz", **{name: RANDOM.standard_normal((99, 64)).astype(np.float32) for name in list(WEIGHTS)[:2]})
    words = ["ptq", "in", "one.safetensors", "--format", "int4-g32", "--inputs", "x.npz"]
    assert run(capsys, *words)[0] == 0
    words[2] = "two.safetensors"
    assert run(capsys, *words, "--workers", who)[0] == 0
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()
    space = {"lanes": [8, 16]}
    assert hw.explore(space, "digits", workers=who).table == hw.explore(space, "digits").table
    with pytest.raises(ValueError, match="has nan"):
        hc.save(source / "model.safetensors", {**WEIGHTS, "layers.3.weight": np.full((64, 64), np.nan, np.float32)})
        hc.quantize_checkpoint("in", "nan", "int4-g32", shard_size=SIZE, workers=who)
    assert not (tmp_path / "nan").exists()


@pytest.mark.sweep(every=0)
def test_a_worker_that_is_killed_midway(cluster, source, tmp_path):
    """The other worker does the rest; the bytes are those of one process."""
    hc.quantize_checkpoint(source, tmp_path / "expected", "int4-g32", shard_size=SIZE)
    ended = []

    def end_one(done, total, name):
        if done and not ended:
            cluster.children[1].send_signal(signal.SIGKILL)
            ended.append((done, total))

    who = f"dask:{cluster.address}"
    hc.quantize_checkpoint(source, tmp_path / "out", "int4-g32", shard_size=SIZE, workers=who, progress=end_one)
    assert ended[0][0] < ended[0][1] and cluster.children[1].wait(30) == -signal.SIGKILL
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")
    again = hc.quantize_checkpoint(source, tmp_path / "again", "int4-g32", shard_size=SIZE, workers=who)
    assert bytes_of(tmp_path / "again") == bytes_of(tmp_path / "expected") and len(again["tensors"]) == 12


def test_a_scheduler_that_is_not_there(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("heterocompute.base.workers.CONNECT_SECONDS", 0.5)
    for address in (f"tcp://127.0.0.1:{free_port()}", "nonsense://x", "tcp://", "127.0.0.1:99999999"):
        with pytest.raises(OSError, match="which does not answer") as caught:
            in_order(f"dask:{address}", str, [1], "example")
        assert "\n" not in str(caught.value)


@pytest.mark.sweep(every=0)
def test_workers_of_ray_have_the_same_answers(source, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    hc.quantize_checkpoint("in", "expected", "int4-g32", shard_size=SIZE)
    hc.quantize_checkpoint("in", "out", "int4-g32", shard_size=SIZE, workers="ray:local")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected") and not ray.is_initialized()
    ray.init(address="local", num_cpus=2, log_to_driver=False)
    try:  # connected processes stay connected
        space = {"lanes": [8, 16]}
        assert hw.explore(space, "digits", workers="ray:auto").table == hw.explore(space, "digits").table
        studies = [hc.study("in/model.safetensors", ["int4"], workers=workers) for workers in ("ray:auto", 1)]
        first, second = ([{**row, "seconds": None} for row in one.layers] for one in studies)
        assert first == second
        hessians = {name: hc.ptq.Hessian(64) for name in WEIGHTS}
        for h in hessians.values():
            h.add(RANDOM.standard_normal((99, 64)))
        for name, workers in (("a", "ray:auto"), ("b", 1)):
            hc.ptq.quantize_checkpoint("in", f"{name}.safetensors", hessians, workers=workers)
        assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
        with pytest.raises(ValueError, match="has nan"):
            wrong = {**WEIGHTS, "layers.3.weight": np.full((64, 64), np.nan, np.float32)}
            hc.save(source / "model.safetensors", wrong)
            hc.quantize_checkpoint("in", "nan", "int4-g32", shard_size=SIZE, workers="ray:auto")
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    with pytest.raises(OSError, match="which does not answer"):
        in_order("ray:nonsense://x", str, [1], "example")
