"""Calls of `heterocompute map`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from common import HANG, default_signals

from heterocompute.cli import main, map as cli_map
from heterocompute.hardware import mapper

pytest.importorskip("yaml", reason="PyYAML is not installed (extra yaml)")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "conv.yaml"
    path.write_text(cli_map.EXAMPLE)
    return path


def test_the_example_is_the_published_exercise(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "--example"]) == 0
    assert capsys.readouterr().out == example.read_text()
    assert main(["map", str(example), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["stats"]["energy_per_compute_pj"] == pytest.approx(32.1305139, rel=1e-8)
    assert found["search"] is None and found["mapping"]["temporal"]["RF"] == [["K", 2], ["R", 3]]


def test_a_table_for_people(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", str(example)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("GlobalBuffer: K16 P16\nRF: K2 R3\n")
    assert "1536 cycles, 49352.47 pJ (32.1305 a multiply-add, 2.6% of it arithmetic), utilisation 100.0%" in out


def test_a_search_finds_what_the_library_finds(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--search", "--objective", "energy", "--budget", "5000000", "--json"]
    assert main(["map", str(example), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    files = mapper.read_yaml(example)
    assert files.problem is not None and files.arch is not None
    best = mapper.search(files.problem, files.arch, "energy", budget=5_000_000)
    assert found["search"]["exhaustive"] and found["stats"] == best.stats.to_dict()
    assert found["stats"]["energy_pj"] < 49352.47


def test_other_problems_on_the_same_machine(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", str(example), "--gemm", "8,4,2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problem"]["dims"] == {"M": 8, "N": 4, "K": 2}
    assert main(["map", str(example), "--conv", "2,4,6,6,3,3,2", "--dataflow", "os", "--budget", "2000"]) == 0
    assert "mappings that were tried" in capsys.readouterr().out


def test_what_is_written_is_read_again(example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "out.yaml", tmp_path / "page.html"
    assert main(["map", str(example), "--yaml", str(out), "--html", str(page), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["map", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ([], 2, "heterocompute map: no FILE that holds a machine"),
        (["{file}", "--gemm", "1,2"], 2, "argument --gemm: '1,2', expected 3 numbers"),
        (["{file}", "--gemm", "0,2,3"], 2, "argument --gemm: 0, expected a positive number"),
        (["{file}", "--budget", "-5"], 2, "argument --budget: '-5', expected a whole number"),
        (["{file}", "--dataflow", "xs"], 2, "argument --dataflow: invalid choice: 'xs' (choose from "),
        (["{file}", "--html", "{file}"], 2, "heterocompute map: --html and FILE are the same file: "),
        (["{file}", "--html", "/absent/page.html"], 1, "/absent/page.html: No such file or directory"),
        (["absent.yaml"], 1, "heterocompute map: absent.yaml: No such file or directory"),
    ],
)
def test_wrong_calls(
    options: list[str], code: int, sentence: str, example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["map", *(option.replace("{file}", str(example)) for option in options)]
    try:
        found = main(arguments)
    except SystemExit as stop:
        found = stop.code
    err = capsys.readouterr().err
    *usage, last = err.splitlines()
    assert found == code and sentence in last and bool(usage) == (code == 2)
    assert not usage or usage[0].startswith("usage: heterocompute map ")


def test_a_file_that_holds_too_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("arch: {levels: [{name: DRAM}]}\n")
    assert main(["map", str(tmp_path / "a.yaml")]) == 2
    assert "the files hold no problem; add one, or --gemm or --conv" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_shows_the_best_so_far(example: Path) -> None:
    command = [sys.executable, "-m", "heterocompute", "map", str(example), "--conv", "64,96,28,28,3,3", "--json"]
    out = b""
    for delay in (0.5, 2, 8, 32, 128):  # when busy it takes a while
        started = subprocess.Popen(
            [*command, "--budget", "2000000000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=default_signals,
        )
        assert started.stderr is not None and started.stderr.readline() == b"heterocompute map: searching\n"
        time.sleep(delay)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=HANG)
        assert started.returncode == 130 and err.decode().strip().endswith("interrupted")
        if out:
            break
    found = json.loads(out)
    assert found["search"]["interrupted"] and found["stats"]["cycles"] > 0
