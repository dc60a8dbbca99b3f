"""`heterocompute bench cuda`: the check on a device, the sanitizer, and the times that are predicted without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import driven
import pytest

from heterocompute.bench.cuda import sanitizer
from heterocompute.bench.cuda.predicted import predicted
from heterocompute.bench.measure import CheckFailed, Options
from heterocompute.cli import command as cli

OPTIONS = Options(quick=True, threads=[1], name="cuda", check=True)


def test_the_benchmark_checks_every_kernel() -> None:
    command = [sys.executable, "-m", "heterocompute", "bench", "cuda", "--check", "--quick", "--json"]
    done = subprocess.run(
        command, env={**os.environ, **driven.environment()}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    checked, *timed = json.loads(done.stdout)["benchmarks"]["cuda"]["tables"]
    counts = {row["name"]: row["cases"] for row in checked["rows"]}
    operations = "quantize dequantize fake_quantize linear conv2d".split() + ["stochastic rounding", "patterns"]
    assert all(counts[name] > 5 for name in operations)
    assert any(name.startswith("instruction: ") for name in counts)
    assert len(timed) == 3 and all(row["seconds"] > 0 for table in timed for row in table["rows"])
    missing = {**os.environ, "HETEROCOMPUTE_CUDA_DRIVER": "/nonexistent.so"}
    done = subprocess.run(command, env=missing, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "no driver (/nonexistent.so" in done.stderr


def pretend(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_sanitizer_runs_the_quick_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    found = pretend(tmp_path / "compute-sanitizer", f'echo "$@" >> {log}')
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: found)
    assert [row["result"] for row in sanitizer.sanitized(OPTIONS)["rows"]] == ["no error", "no error"]
    first, second = log.read_text().splitlines()
    assert first.startswith("--tool memcheck --target-processes all --error-exitcode 86 ")
    assert "--tool racecheck" in second and "heterocompute bench cuda --check --quick" in first
    pretend(tmp_path / "compute-sanitizer", "echo '========= Invalid read'; echo other; exit 86")
    with pytest.raises(CheckFailed, match="--tool memcheck ends with 86: ========= Invalid read$"):
        sanitizer.sanitized(OPTIONS)
    monkeypatch.setattr(sanitizer, "SECONDS", 0.2)
    pretend(tmp_path / "compute-sanitizer", "exec sleep 5")
    assert [row["result"] for row in sanitizer.sanitized(OPTIONS)["rows"]] == ["not finished in 0.2 s"] * 2
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: None)
    assert sanitizer.sanitized(OPTIONS)["rows"][0]["result"] == "not run: there is no compute-sanitizer"


def test_predicted_times_are_those_of_the_plans() -> None:
    h100, h200 = predicted("h100-sxm"), predicted("h200-sxm")
    assert h100["title"].startswith("PREDICTED, not measured")
    rows = {row["name"]: row for row in h100["rows"]}
    vector = rows["float32 x vsq4-g16-s4, 1 x 16384 x 16384"]
    assert vector["seconds"] == pytest.approx((16384**2 * 4.25 / 8 + 4 * 3 * 16384) / 3.35e12, rel=1e-3)
    assert vector["isa"].startswith("hc_gemv_vsq") and vector["bound"] == "memory"
    many = rows["int8 x int8, 4096 x 8192 x 8192, to int8"]
    assert many["bound"] == "L2" and many["isa"].endswith("hc_gemm_90a_folded_256")
    m, n, k, lanes = 4096, 8192, 8192, 66.9e12 / 2
    tiles = m * k * (n / 256) + n * k * (m / 128) + 4 * m * n  # bytes that the blocks read, and the answers
    quantized = rows["quantize int8"]["seconds"] * m * k / (65536 * 1024)
    assert many["seconds"] == pytest.approx(tiles / (5.5e12 / 25.6e12 * lanes) + quantized, rel=0.02)
    a100 = predicted("a100-sxm-80gb")["rows"][3]
    assert a100["isa"].endswith("hc_gemm_s8_128_folded") and a100["bound"] == "arithmetic"
    assert rows["quantize nvfp4"]["ratio"] < 0.6 * rows["quantize int8"]["ratio"] <= 0.6  # x is read twice, once
    bounds = [rows[f"{name} int8"]["bound"] for name in ("quantize", "dequantize", "fake_quantize")]
    assert bounds == ["memory", "memory", "memory"]
    for one, other in zip(h100["rows"], h200["rows"], strict=True):
        assert one["name"] == other["name"] and 0 < other["seconds"] <= one["seconds"]


def test_predictions_are_asked_for_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "cuda", "--predict", "h200", "--json"]) == 0
    assert "PREDICTED" in capsys.readouterr().out
    for words, sentence in (
        (["bench", "gemm", "--predict", "h100"], "--predict is for `heterocompute bench cuda`"),
        (["bench", "cuda", "--check", "--predict", "h100"], "without --check"),
        (["bench", "cuda", "--predict", "tpu-v4"], "--predict 'tpu-v4' is not a GPU"),
    ):
        assert cli.main(words) == 2
        assert sentence in capsys.readouterr().err
