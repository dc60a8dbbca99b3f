"""`heterocompute bench cuda`: the check on a device, and the sanitizer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heterocompute.bench.cuda import sanitizer
from heterocompute.bench.measure import CheckFailed, Options

sys.path.append(str(Path(__file__).parents[1] / "cuda"))
import driven

OPTIONS = Options(quick=True, threads=[1], name="cuda", check=True)


@pytest.mark.sweep(every=0)
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
    assert len(timed) == 4 and all(row["seconds"] > 0 for table in timed for row in table["rows"])
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
