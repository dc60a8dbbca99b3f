"""A checkpoint is rounded one tensor at a time, and an interrupted run continues to the same bytes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals

import heterocompute as hc
from heterocompute.ptq.parts import Parts

W = {
    "a": reals((8, 64), 1),
    "b": reals((6, 4, 3, 2), 2),
    "c": reals((5, 64), 3).astype(np.float16),
    "d": reals((7,), 4),
}


@pytest.fixture()
def hessians(tmp_path: Path) -> dict[str, Any]:
    found = {name: hc.ptq.Hessian(k) for name, k in (("a", 64), ("b", 24), ("c", 64))}
    for name, h in found.items():
        h.add(reals((200, h.k), ord(name)).cumsum(axis=1))
    found["c"].save(tmp_path / "c.h.safetensors")
    return {**found, "c": tmp_path / "c.h.safetensors"}


def test_a_run_that_is_ended_goes_on_to_the_same_bytes(tmp_path: Path, hessians: dict[str, Any]) -> None:
    before, whole, ended = (tmp_path / f"{name}.safetensors" for name in ("in", "whole", "ended"))
    hc.save(before, W)
    formats = {"b": "int8+2:4", "*": "int4-g32"}
    summary = hc.ptq.quantize_checkpoint(before, whole, hessians, formats, sweeps=1)
    held = hc.load(whole)
    assert held["a"] == hc.ptq.gptq(W["a"], hessians["a"], "int4-g32", sweeps=1) and (held["d"] == W["d"]).all()
    rows = {row["name"]: row for row in summary["tensors"]}
    assert rows["b"]["after"] > rows["b"]["before"] and rows["b"]["tokens"] == 200 and "after" not in rows["d"]

    class Ended(Exception):
        pass

    def stop(_done: int, _all: int, name: str) -> None:
        if name == "d":
            raise Ended

    with pytest.raises(Ended):
        hc.ptq.quantize_checkpoint(before, ended, hessians, formats, progress=stop, sweeps=1)
    parts = sorted((tmp_path / "ended.safetensors.parts").iterdir())
    times = [part.stat().st_mtime_ns for part in parts]
    assert sorted(part.suffix for part in parts) == 3 * [".safetensors"] + 3 * [".sum"] and not ended.exists()
    seen: list[int] = []

    def watch(_done: int, _all: int, name: str) -> None:
        if name == "d":  # the last
            seen.extend(part.stat().st_mtime_ns for part in parts)

    again = hc.ptq.quantize_checkpoint(before, ended, hessians, formats, progress=watch, sweeps=1)
    assert again["tensors"] == summary["tensors"] and ended.read_bytes() == whole.read_bytes()
    assert seen == times and not parts[0].parent.exists()


def test_what_was_kept_of_another_run_is_not_taken(tmp_path: Path, hessians: dict[str, Any]) -> None:
    before, after = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    hc.save(before, W)
    for fmt, more in (("int4", {}), ("int3", {}), ("int3", {"refit": False})):
        with bad_argument(ValueError, None, "file", "h is of"):
            hc.ptq.quantize_checkpoint(before, after, {**hessians, "c": hessians["b"]}, fmt, **more)
        hc.ptq.quantize_checkpoint(before, after, hessians, fmt, **more)
        assert hc.load(after)["a"] == hc.ptq.gptq(W["a"], hessians["a"], fmt, **more)


def test_what_is_refused(tmp_path: Path, hessians: dict[str, Any]) -> None:
    before, after = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    hc.save(before, W)
    with bad_argument(ValueError, None, "file", "is the input itself"):
        hc.ptq.quantize_checkpoint(before, before, hessians)
    with bad_argument(TypeError, "hessians", "type"):
        hc.ptq.quantize_checkpoint(before, after, 3)  # type: ignore[arg-type]
    with bad_argument(TypeError, None, "type", "quantize_checkpoint.*'foo'"):
        hc.ptq.quantize_checkpoint(before, after, hessians, foo=3)
    with bad_argument(ValueError, None, "file", "hessians has .*z.*, which is not a tensor"):
        hc.ptq.quantize_checkpoint(before, after, {**hessians, "z": hessians["a"]})
    with bad_argument(ValueError, None, "file", "tensor .*c.*: gptq: h is of"):
        hc.ptq.quantize_checkpoint(before, after, {"c": hessians["b"]})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.h.safetensors", "in.safetensors"]


def test_a_folder_is_written_too(tmp_path: Path, hessians: dict[str, Any]) -> None:
    hc.save(tmp_path / "in.safetensors", W)
    for again in range(2):
        out = str(tmp_path / f"out{again}") + "/"
        hc.ptq.quantize_checkpoint(tmp_path / "in.safetensors", out, hessians, sweeps=0)
        assert sorted(path.name for path in Path(out).iterdir()) == ["model.safetensors"]
    assert not list(tmp_path.glob("*.part*"))


def test_parts_of_another_kind_are_refused(tmp_path: Path, hessians: dict[str, Any]) -> None:
    before, after = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    hc.save(before, W)
    with bad_argument(ValueError, None, "file", "h is of"):
        hc.ptq.quantize_checkpoint(before, after, {**hessians, "c": hessians["b"]}, include="[ac]", sweeps=0)
    (part,) = (tmp_path / "out.safetensors.parts").glob("*.safetensors")
    q, report = hc.load(part)["array"], np.zeros(5)
    other = hc.quantize(W["a"], "int8")
    for held in ({"x": q}, {"array": W["a"], "report": report}, {"array": other, "report": report}, {"array": q}):
        Parts(after).write(str(part), partial(hc.save, arrays=held))
        with bad_argument(ValueError, None, "file", "tensor 'a': .*parts.*: is not what an earlier run has left"):
            hc.ptq.quantize_checkpoint(before, after, hessians, include="[ac]", sweeps=0)
    assert not after.exists()
