"""`heterocompute ptq` holds one layer at a time, and continues after an interruption, with the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals, run

import heterocompute as hc
from heterocompute.files.staging import Staging
from heterocompute.ptq import streaming
from heterocompute.ptq.parts import Parts
from heterocompute.ptq.streaming import quantize_streamed

NETWORK = """
import numpy as np, heterocompute as hc
net = hc.zoo.digits()
calls = []
def run(weights):
    calls.append(1)
    net.forward(weights, net.train_x[:16])
"""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ptq_digits_of_a_test.py").write_text(NETWORK)
    hc.save("model.safetensors", hc.zoo.digits().weights)
    import ptq_digits_of_a_test  # type: ignore[import-not-found]

    yield ptq_digits_of_a_test
    del sys.modules["ptq_digits_of_a_test"]


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("in_groups", [1 << 30, 1])
@pytest.mark.sweep(every=4)
def test_it_is_what_a_network_in_memory_becomes(
    network: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch, sequential: bool, in_groups: int
) -> None:
    monkeypatch.setattr(streaming, "RUN_BYTES", in_groups)  # 1: a run of the network for each layer
    formats = {"conv1*": None, "*": "int4-g16"}
    expected = hc.ptq.quantize(hc.load("model.safetensors"), network.run, formats, sequential)
    Path("recipe.toml").write_text('[formats]\n"conv1*" = "skip"\n"*" = "int4-g16"\n')
    options = ["--recipe", "recipe.toml", "--inputs", "ptq_digits_of_a_test:run", *["--sequential"][:sequential]]
    network.calls.clear()
    code, out, err = run(capsys, "ptq", "model.safetensors", "out.safetensors", *options, "--json")
    assert code == 0, err
    found = hc.load("out.safetensors")
    assert list(found) == list(expected.weights) and json.loads(out)["tensors"] == expected.table
    for name, q in expected.weights.items():
        assert found[name] == q if isinstance(q, hc.QuantizedArray) else (found[name] == q).all()
    assert len(network.calls) == (4 if sequential or in_groups == 1 else 1)
    assert not list(Path().glob("out.safetensors.*"))


@pytest.mark.parametrize("method", ["rtn", "search", "qronos"])
@pytest.mark.sweep(every=3)
def test_each_method_rounds_as_in_memory(network: Any, capsys: Any, method: str) -> None:
    weights = hc.load("model.safetensors")
    expected = hc.ptq.quantize(weights, network.run, {"fc*": "int3-g16", "*": "int4-g16"}, method=method)
    Path("recipe.toml").write_text('[formats]\n"fc*" = "int3-g16"\n"*" = "int4-g16"\n')
    options = ["--recipe", "recipe.toml", "--inputs", "ptq_digits_of_a_test:run", "--method", method]
    network.calls.clear()
    code, out, err = run(capsys, "ptq", "model.safetensors", "out.safetensors", *options, "--json")
    assert code == 0, err
    assert json.loads(out)["tensors"] == expected.table
    found = hc.load("out.safetensors")
    assert all(found[name] == q for name, q in expected.weights.items() if isinstance(q, hc.QuantizedArray))
    assert len(network.calls) == (1 + 2 * 4 if method == "qronos" else 1)  # the first layer has no drift


def test_parts_of_another_method_are_not_reused(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(out: str, method: str) -> Any:
        return quantize_streamed("model.safetensors", out, {"*": "int3-g16"}, network.run, method=method)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(streaming, "round_checkpoint", stop)
        call("out.safetensors", "qronos")
    network.calls.clear()
    assert call("out.safetensors", "search").table == call("other.safetensors", "search").table
    assert len(network.calls) == 2
    assert Path("out.safetensors").read_bytes() == Path("other.safetensors").read_bytes()


def test_refused_methods(network: Any, tmp_path: Path) -> None:
    np.savez("inputs.npz", **{"fc2.weight": np.ones((4, 64), np.float32)})

    def streamed(calibration: Any, **options: Any) -> None:
        quantize_streamed("model.safetensors", "out.safetensors", {"*": "int4"}, calibration, **options)

    for options, words in (({"method": "qronos"}, "method 'qronos'"), ({"sequential": True}, "sequential")):
        with pytest.raises(ValueError, match=f"{words} runs the network after each layer"):
            streamed("inputs.npz", **options)
    with pytest.raises(ValueError, match="ptq: method 'awq' moves scales into the layer before"):
        streamed(network.run, method="awq")
    with pytest.raises(ValueError, match="quantize_checkpoint: method is 'best', expected rtn, search, gptq or"):
        hc.ptq.quantize_checkpoint("model.safetensors", "out.safetensors", {}, "int4", method="best")
    with pytest.raises(ValueError, match="quantize_checkpoint: method is 'rtn', expected gptq or qronos, with"):
        hc.ptq.quantize_checkpoint("model.safetensors", "out.safetensors", {}, "int4", method="rtn", sweeps=1)


def killed_at(step: int, call: Callable[[], Any]) -> bool:
    """Call in a child that is killed at the n-th call that changes files; return whether the child finished."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    left = step

    def count(event: str, *_: Any) -> None:
        nonlocal left
        if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        call()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.sweep(every=0)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("out", ["out.safetensors", "out/"])
def test_killed_at_any_moment_and_begun_again(network: Any, sequential: bool, out: str) -> None:
    def call(path: str) -> Any:
        return quantize_streamed("model.safetensors", path, {"*": "int4-g16"}, network.run, sequential)

    def bytes_of(path: str) -> bytes:
        return Path(path, "model.safetensors" if path.endswith("/") else "").read_bytes()

    expected = call(f"whole-{out}")
    step, finished = 0, False
    while not finished:
        finished = killed_at(step, lambda: call(out))
        if Path(out).exists():
            assert bytes_of(out) == bytes_of(f"whole-{out}")
        if not finished:
            if Path("out.partial/manifest.json").exists() or not Path(out).is_dir():
                assert call(out).table == expected.table
            assert not Path(f"{out.rstrip('/')}.parts").exists()
        assert bytes_of(out) == bytes_of(f"whole-{out}")
        shutil.rmtree(out) if Path(out).is_dir() else os.remove(out)
        shutil.rmtree("out.partial", ignore_errors=True)  # where it had all but deleted it
        step += 8
    assert step > 12


def test_what_was_heard_is_not_heard_again(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(streaming, "round_checkpoint", ended)
        quantize_streamed("model.safetensors", "out.safetensors", {"*": "int4-g16"}, network.run)
    network.calls.clear()
    kept = Path("out.safetensors.parts")
    shutil.copytree(kept, "kept")
    quantize_streamed("model.safetensors", "out.safetensors", {"*": "int3-g16"}, network.run)
    assert not network.calls and not kept.exists()
    shutil.copytree("kept", kept)
    quantize_streamed("model.safetensors", "out.safetensors", {"*": "int3-g16"}, network.run, resume=False)
    assert len(network.calls) == 1
    shutil.copytree("kept", kept)
    hc.save("model.safetensors", {name: 2 * w for name, w in hc.zoo.digits().weights.items()})
    quantize_streamed("model.safetensors", "out.safetensors", {"*": "int3-g16"}, network.run)
    assert len(network.calls) == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"x": [1]}', '{"fc1.weight": 1}', '{"fc1.weight": [7]}', '{"fc1.weight": ["a"]}']
)
def test_what_was_left_is_not_believed(network: Any, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    def ended(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(streaming, "round_checkpoint", ended)
        quantize_streamed("model.safetensors", "out.safetensors", {"*": "int4-g16"}, network.run)
    (heard,) = Path("out.safetensors.parts").glob("*.json")
    Parts("out.safetensors").write(str(heard.resolve()), lambda place: Path(place).write_text(text))
    with bad_argument(ValueError, None, "file", r"\.json"):
        quantize_streamed("model.safetensors", "out.safetensors", {"*": "int3-g16"}, network.run)


def ended_before_the_end(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Staging, "finish", ended)
        call()


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("change", ["a bit", "cut off"])
def test_what_was_changed_is_made_anew(network: Any, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    def call(resume: bool = True) -> Any:
        return quantize_streamed("model.safetensors", "out/", {"*": "int4-g16"}, network.run, resume=resume)

    ended_before_the_end(call, monkeypatch)
    shutil.copytree("out.parts", "kept")
    shutil.copytree("out.partial", "kept.partial")
    expected = call().table
    whole = Path("out/model.safetensors").read_bytes()
    for path in sorted(Path("kept").iterdir()):
        found = path.read_bytes()
        changed = found[:-2] + (bytes([found[-2] ^ 1]) + found[-1:] if change == "a bit" else b"")
        shutil.rmtree("out")
        shutil.copytree("kept", "out.parts")
        (Path("out.parts") / path.name).write_bytes(changed)
        assert call().table == expected and Path("out/model.safetensors").read_bytes() == whole
    shutil.rmtree("out")
    shutil.copytree("kept.partial", "out.partial")
    shard = Path("out.partial/out/model.safetensors")
    before = shard.stat().st_ino, shard.stat().st_mtime_ns
    ended_before_the_end(call, monkeypatch)
    assert (shard.stat().st_ino, shard.stat().st_mtime_ns) == before
    ended_before_the_end(lambda: call(resume=False), monkeypatch)
    assert not shard.exists()  # neither used nor kept


def test_a_place_that_is_taken_is_refused_before_any_work(network: Any) -> None:
    def refused(words: str, out: str, **more: Any) -> None:
        with pytest.raises(ValueError, match=words):
            quantize_streamed("model.safetensors", out, {"*": "int4-g16"}, network.run, **more)
        assert not network.calls

    Path("full").mkdir()
    Path("full/notes").write_text("mine")
    refused("full: exists and is not an empty folder", "full")
    Path("elsewhere").mkdir()
    Path("elsewhere/0123456789abcdef0123456789abcdef.json").write_text("mine")
    os.symlink("elsewhere", "out.safetensors.parts")
    refused("out.safetensors.parts: is in the way", "out.safetensors")
    refused("out.safetensors.parts: is in the way", "out.safetensors", resume=False)
    assert len(list(Path("elsewhere").iterdir())) == 1
    Path("other.safetensors.parts").write_text("mine")
    refused("other.safetensors.parts: is in the way", "other.safetensors")


MEMORY = """
import resource, sys, numpy as np, heterocompute as hc
from heterocompute.ptq.streaming import quantize_streamed
hc.ptq.gptq(np.ones((8, 64), np.float32), np.eye(64), "int4-g32")
if sys.argv[1] != "x.npz":
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
def network(weights):
    for name in weights:
        x @ weights[name].T
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
calibration = sys.argv[1] if sys.argv[1] == "x.npz" else network
quantize_streamed("model.safetensors", "out.safetensors", {"*": "int4-g32"}, calibration)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.sweep(every=0)
@pytest.mark.skipif(sys.platform != "linux", reason="counts KiB as Linux does")
@pytest.mark.parametrize("calibration", ["x.npz", "function"])
def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path, calibration: str) -> None:
    w = {f"layers.{i}": np.tile(reals((512, 64), i), (32, 1)) for i in range(20)}  # 4 MiB each
    hc.save(tmp_path / "model.safetensors", w)
    np.savez(tmp_path / "x.npz", **{name: reals((64, 64), 1) for name in w})
    command = [sys.executable, "-c", MEMORY, calibration]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(found.stdout) < 60, found.stdout  # MiB, of 80


@pytest.mark.sweep(every=0)
def test_tied_names_hear_together(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    w = torch.from_numpy(reals((8, 32), 1))
    torch.save({"embed": w, "head": w, "other": w.clone()}, tmp_path / "tied.pt")
    x, out = reals((50, 32), 2), str(tmp_path / "out.safetensors")

    def network(weights: Any) -> None:
        _ = x @ weights["head"].T

    found = quantize_streamed(str(tmp_path / "tied.pt"), out, {"*": "int4"}, network)
    assert [row["name"] for row in found.table] == ["embed", "head"] and found.left == ["other"]
    held = hc.load(out)
    assert held["embed"] == held["head"] and isinstance(held["other"], np.ndarray)
    with pytest.raises(ValueError, match="'embed' and 'head' are one array"):
        quantize_streamed(str(tmp_path / "tied.pt"), out, {"embed": "int8", "*": "int4"}, network)
