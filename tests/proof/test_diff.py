"""`heterocompute.diff` of checkpoints: equal across layouts, and each difference is measured and sorted by harm."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.cli import main


def made(path: Path, **changes: object) -> str:
    rng = np.random.default_rng(0)
    weights: dict[str, object] = {name: rng.standard_normal((32, 64), dtype=np.float32) for name in "ab"}
    weights |= {"bias": np.ones(32, np.float32), "ids": np.arange(5)} | changes
    hc.save(str(path), {name: value for name, value in weights.items() if value is not None})
    return str(path)


def rows(found: hc.Difference) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in found.rows}


def test_equal_files_are_equal(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a.safetensors"), made(tmp_path / "b.safetensors")
    found = hc.diff(a, b)
    assert found.equal and found.layer is None and {row["status"] for row in found.rows} == {"equal"}
    np.savez(tmp_path / "c.npz", **hc.load(a))
    assert hc.diff(a, str(tmp_path / "c.npz")).equal


@pytest.mark.parametrize(("fmt", "first", "second"), [
    ("q4_0", "gguf", "compressed-tensors"), ("int4-g32-f16", "gptq", "compressed-tensors"),
    ("mxfp4", "gguf", "heterocompute"),
])  # fmt: skip
def test_layouts_may_differ(fmt: str, first: str, second: str, tmp_path: Path) -> None:
    base = str(tmp_path / "base.safetensors")
    rng = np.random.default_rng(0)
    hc.save(base, {f"{name}.weight": rng.standard_normal((32, 64), dtype=np.float32) for name in "ab"})
    a, b = str(tmp_path / f"a.{'gguf' if first == 'gguf' else 'safetensors'}"), str(tmp_path / "b.safetensors")
    hc.quantize_checkpoint(base, a, fmt, layout=first)
    hc.convert_checkpoint(a, b, second)
    found = hc.diff(a, b)
    assert found.equal and {row["status"] for row in found.rows} <= {"equal", "layout"}
    far = hc.diff(base, b)
    assert far.cause == "format" and far.layer in ("a.weight", "b.weight")


def test_differences_are_measured(tmp_path: Path) -> None:
    a = made(tmp_path / "a.safetensors")
    values = hc.load(a)
    near, far = values["a"].copy(), values["b"].copy()
    near[3, 4] = np.nextafter(np.nextafter(near[3, 4], np.float32(9)), np.float32(9))
    far *= np.float32(1.1)
    ids = np.arange(5)
    ids[2] += 1
    b = made(tmp_path / "b.safetensors", a=near, b=far, ids=ids, bias=np.ones(31, np.float32), more=np.ones(1))
    found = hc.diff(a, b)
    assert [row["name"] for row in found.rows][:2] == ["more", "bias"]
    assert [row["status"] for row in found.rows] == ["only in b", "shape", "differs", "differs", "differs"]
    row = rows(found)["a"]
    assert (row["ulp"], row["index"], row["values"]) == (2, [3, 4], 1 / 2048)
    assert abs(rows(found)["b"]["sqnr_db"] - 20) < 1e-3 and rows(found)["ids"]["index"] == [2]  # type: ignore[operator]
    order = [row["name"] for row in found.rows]
    assert order.index("ids") < order.index("b") < order.index("a")
    assert found.cause == "missing" and not found.equal


def test_codes_and_special_values(tmp_path: Path) -> None:
    w = np.random.default_rng(1).standard_normal((8, 64), dtype=np.float32)
    q = hc.quantize(w, "int4-g32")
    codes = q.components["codes"].copy()
    codes[2, 3] ^= 1
    other = q._remade({**q.components, "codes": codes}, q.shape, q.axis)
    a, b = made(tmp_path / "a.safetensors", q=q), made(tmp_path / "b.safetensors", q=other)
    row = hc.diff(a, b).rows[0]
    assert (row["name"], row["codes"], row["steps"], row["index"]) == ("q", 1 / 512, 1, [2, 6])
    x = np.float32([1, np.nan, np.inf, 0.0])
    for y, status in (
        (x, "equal"), (np.float32([1, np.nan, np.inf, -0.0]), "differs"), (np.float32([1, 2, np.inf, 0]), "differs")
    ):  # fmt: skip
        b = made(tmp_path / "b.safetensors", x=y, q=q)
        row = rows(hc.diff(made(tmp_path / "a.safetensors", x=x, q=q), b))["x"]
        assert row["status"] == status
    assert row["index"] == [1] and row["sqnr_db"] is None


def test_bf16_and_float32_files(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")
    hc.quantize_checkpoint(a, b, "bf16")
    found = hc.diff(a, b)
    assert found.cause == "format" and rows(found)["bias"]["status"] == "equal"
    assert 50 < rows(found)["a"]["sqnr_db"] < 60  # type: ignore[operator]
    hc.quantize_checkpoint(b, str(tmp_path / "c.safetensors"), "f32")
    assert hc.diff(b, str(tmp_path / "c.safetensors")).equal


def test_exit_codes_and_files_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = made(tmp_path / "a.safetensors"), made(tmp_path / "b.safetensors", a=np.zeros((32, 64), np.float32))
    assert main(["diff", a, a]) == 0
    capsys.readouterr()
    assert main(["diff", a, b, "--json", "--html", str(tmp_path / "x.html"), "--csv", str(tmp_path / "x.csv")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["layer"] == "a" and not found["equal"]
    assert "<table" in (tmp_path / "x.html").read_text() and "sqnr_db" in (tmp_path / "x.csv").read_text()
    (tmp_path / "bad.safetensors").write_bytes(b"1234567890")
    for other in (str(tmp_path / "missing"), str(tmp_path / "bad.safetensors")):
        assert main(["diff", a, other]) == 2
        assert capsys.readouterr().err.strip().startswith("heterocompute diff: ")
    with pytest.raises(SystemExit) as end:
        main(["diff", a])
    assert end.value.code == 2
    with pytest.raises(TypeError, match="diff: b is"):
        hc.diff(a, np.ones(3))  # type: ignore[arg-type]
