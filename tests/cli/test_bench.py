"""Every benchmark runs at a tiny size and checks its own results; no time is asserted."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from common import HANG, bad_argument

from heterocompute import _heterocompute as _core, bench
from heterocompute.base.devices import devices
from heterocompute.bench import conv, gemm, gemv, points, quantize
from heterocompute.bench.blas import find_blas
from heterocompute.bench.limits import NAMES as LOOPS
from heterocompute.bench.measure import Candidate, CheckFailed, Options, Times, expect_close, expect_equal
from heterocompute.bench.onnx_model import one_node_model
from heterocompute.bench.peers import Peer
from heterocompute.bench.plan import columns
from heterocompute.bench.show import markdown
from heterocompute.cli import command as cli
from heterocompute.products.conv import ALGORITHMS

QUICK = Options(quick=True, threads=[1])
ISAS = _core.isa_names(_core.cpu_isa())


@pytest.fixture(scope="module")
def reports():
    """Return the results of all benchmarks, run once."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert bench.main([], json=True, quick=True, threads=2) == 0
    return json.loads(output.getvalue())["benchmarks"]


def names_of(table):
    return {row["name"] for row in table["rows"]}


def numbers_of(row):
    found = [value for value in row.values() if isinstance(value, float)]
    return found + [number for value in row.values() if isinstance(value, list) for number in value]


def has_device():
    try:
        return bool(devices())
    except NotImplementedError:  # no kernels, or no driver
        return False


@pytest.mark.parametrize("name", bench.NAMES)
@pytest.mark.sweep(every=0)
def test_every_benchmark_runs(name, reports):
    if name == "models":
        pytest.importorskip("torch")
    report = reports[name]
    assert report["benchmark"] == name and report["quick"]
    assert report["machine"]["isa"][0] == "scalar" and report["machine"]["processors"] >= 1
    assert report["machine"]["environment"]["OPENBLAS_THREAD_TIMEOUT"] == "4"
    assert report["tables"] or (name == "cuda" and not has_device())
    for table in report["tables"]:
        assert len({(row["name"], row.get("compared")) for row in table["rows"]}) == len(table["rows"]) > 0
        for row in table["rows"]:
            numbers = numbers_of(row)
            assert numbers and all(np.isfinite(numbers)), row
            assert all(value > 0 for key, value in row.items() if isinstance(value, float) and key[-3:] != "_db"), row


@pytest.mark.sweep(every=0)
def test_the_rows_are_there(reports):
    assert list(reports) == list(bench.NAMES)
    assert set(LOOPS.values()) | {"read", "read with prefetch"} <= names_of(reports["limits"]["tables"][0])
    products = names_of(reports["gemm"]["tables"][0])
    assert {gemm.OWN, gemm.INT8_LIMIT} <= products
    assert {f"{weights} x {activations or 'float32'}" for weights, activations in gemm.PRODUCTS} <= products
    assert [table["shape"][0] for table in reports["gemv"]["tables"]] == list(gemv.BATCHES)
    for table in reports["gemv"]["tables"]:
        wanted = {f"{fmt} x float32" for fmt in gemv.FORMATS} | {f"{fmt} x int8" for fmt in gemv.INTEGERS}
        assert wanted <= names_of(table)
    assert {f"quantize {fmt}" for fmt in quantize.FORMATS} <= names_of(reports["quantize"]["tables"][0])


@pytest.mark.skipif(not bench._can_be_avx2(), reason="the kernels in use are not more than AVX2")
@pytest.mark.sweep(every=0)
def test_what_is_left_without_vnni_is_measured(reports):
    narrow = [row for table in reports["gemm"]["tables"] if "AVX2" in table["title"] for row in table["rows"]]
    assert {row["isa"] for row in narrow if "isa" in row} == {"avx2"}


@pytest.mark.sweep(every=0)
def test_the_summary_is_the_table_of_the_readme(capfd):
    assert bench.main(["summary"], json=False, quick=True, threads=1, markdown=True) == 0
    measured = [line.split(" | ") for line in capfd.readouterr().out.splitlines() if line.startswith("| ")]
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- figures begin -->")[2].partition("<!-- figures end -->")[0].splitlines()
    stated = [line.split(" | ") for line in lines if line.startswith("| ")]
    assert [cell.strip("| ") for cell in stated[0][1:]] == [cell.strip("| ") for cell in measured[0][1:]]

    def compared(rows):
        libraries = [row[1].replace("`", "") for row in rows if "---" not in row[0]][1:]
        own = [name for name in libraries if name.startswith(("OpenBLAS", "NumPy", "int8", "vsq4"))]
        return [name for name in own if bench._can_be_avx2() or "Haswell" not in name]

    if find_blas() is not None:
        assert compared(measured) == compared(stated)


def test_people_get_tables_without_json(capfd):
    assert bench.main(["limits"], json=False, quick=True, threads=1) == 0
    output = capfd.readouterr().out
    assert "float32 FMA" in output and "GFLOP/s" in output
    assert "{" not in output


def test_all_benchmarks_are_meant_without_a_name(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(bench, "_run", lambda name, *rest: asked.append(name) or {"tables": []})
    assert bench.main([], json=True, quick=True, threads=None) == 0
    assert [name for name in asked if not name.endswith("-avx2")] == list(bench.NAMES)
    assert list(json.loads(capsys.readouterr().out)["benchmarks"]) == list(bench.NAMES)


def test_a_failed_benchmark_is_exit_code_1(monkeypatch, capfd):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert bench.main(["limits"], json=True, quick=True, threads=1) == 1
    assert capfd.readouterr().out == ""


def test_a_child_ends_with_its_parent():
    code = "from heterocompute.bench.child import main; main()"
    command = [sys.executable, "-c", code, "quantize", "1"]  # the full size takes minutes
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        child.stderr.readline()
        child.stdin.close()
        assert child.wait(timeout=HANG) == 130


def test_a_wrong_result_is_not_timed():
    out = np.zeros(3, np.float32)
    calls = []

    def check():
        calls.append("check")
        expect_equal("x", out, np.ones(3, np.float32))

    with pytest.raises(CheckFailed, match="x"):
        Times([Candidate("x", lambda: calls.append("run"), 1.0, "GB/s", check)], QUICK, 1)
    assert calls == ["run", "check"]


def test_signs_and_shapes_count_in_the_comparison():
    expect_equal("x", np.float32([0.0]), np.float32([0.0]))
    with pytest.raises(CheckFailed):
        expect_equal("x", np.float32([0.0]), np.float32([-0.0]))
    with pytest.raises(CheckFailed):
        expect_equal("x", np.zeros((1, 2)), np.zeros((2, 1)))
    expect_close("x", np.float32([1.0, 0.01]), np.array([1.0, 0.0]), 0.02)
    with pytest.raises(CheckFailed):
        expect_close("x", np.float32([np.nan]), np.array([1.0]), 0.5)


def test_ratios_are_medians_of_the_rounds():
    candidates = [Candidate(name, lambda: None, work, "GB/s") for name, work in (("a", 10.0), ("b", 30.0))]
    times = Times(candidates, QUICK, 1)
    times.seconds = {"a": [1.0, 2.0, 4.0], "b": [2.0, 2.0, 2.0]}
    assert times.speedup("a", "b") == 1.0 and times.speedup("b", "a") == 1.0
    assert times.fraction("b", "a") == 3.0
    assert times.rate("b") == 15.0 and times.best(["a", "b", "c"]) == "b"
    assert times.speedup("a", None) is None and times.fraction("a", "c") is None and times.best([]) is None


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("what", ["fma", "dot", "shuffle"])
def test_every_isa_runs_the_same_loop(what, isa):
    for steps in (0, 1, 16, 17, 100, 1000):
        scalar_sum = _core.limit((0, 1), what, steps)[1]
        for threads in (1, 2, 3):
            work, found, _ = _core.limit((_core.isa_mask(isa), threads), what, steps)
            assert found == scalar_sum
            assert (work > 0) == (steps > 0)
    works = [_core.limit((_core.isa_mask(isa), 1), what, steps)[0] for steps in (160, 320, 480)]
    assert len({after - before for before, after in pairwise(works)}) == 1, "work grows with the steps"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("what", ["read", "read-ahead"])
def test_every_isa_reads_every_whole_line_once(what, isa):
    memory = np.random.default_rng(0).integers(0, 2**64, (3 << 17) + 64, np.uint64)
    first = -memory.ctypes.data % 64 // 8  # of the first whole cache line
    for lines in (0, 1, 3, 4, 5, (1 << 20) // 64, (1 << 20) // 64 + 1, 40_000):
        part = memory[first : first + 8 * lines]
        for threads in (1, 3):
            work, found, used = _core.limit((_core.isa_mask(isa), threads), what, part)
            assert (work, found) == (64 * lines, int(part.sum(dtype=np.uint64)))
            assert used in ISAS
    inner = memory[first + 8 : first + 8 * 9]
    outer = memory[first + 1 : first + 8 * 9 + 7]
    assert _core.limit((_core.isa_mask(isa), 1), what, outer)[:2] == (inner.nbytes, int(inner.sum(dtype=np.uint64)))


def test_a_limit_says_what_it_wants():
    with bad_argument(ValueError, None, "value", "'walk'"):
        _core.limit((0, 1), "walk", 1)
    with bad_argument(ValueError, "amount", "value"):
        _core.limit((0, 1), "fma", -1)
    with pytest.raises(TypeError, match="needs bytes"):
        _core.limit((0, 1), "read", 64)
    with pytest.raises(TypeError, match="needs a number of steps"):
        _core.limit((0, 1), "dot", np.zeros(64, np.uint8))


def test_a_model_is_what_onnx_reads():
    onnx = pytest.importorskip("onnx")
    weights = np.arange(12, dtype=np.int8).reshape(3, 4)
    data = one_node_model("DoIt", "com.example", {"x": (300, 3), "b": weights}, (300, 4), K=7)
    model = onnx.load_model_from_string(data)
    (node,) = model.graph.node
    assert (node.op_type, node.domain) == ("DoIt", "com.example")
    assert (list(node.input), list(node.output)) == (["x", "b"], ["y"])
    assert onnx.helper.get_attribute_value(node.attribute[0]) == 7
    assert np.array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), weights)
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [300, 3]


@pytest.mark.sweep(every=0)
def test_tables_in_markdown_have_every_row_and_column(reports):
    table = next(table for table in reports["gemm"]["tables"] if table["title"] == points.TITLE)
    assert {row["of"] for row in table["rows"] if "of" in row} >= {*points.FORMATS, points.SGEMM}
    assert [row["shape"] for row in table["rows"] if row.get("of") == points.SGEMM] == [[1, 48, 64], [2, 48, 64]]
    for name in ("gemm", "gemv"):
        text = markdown(reports[name])
        lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
        assert len(lines) == sum(len(table["rows"]) + 2 for table in reports[name]["tables"])
        for table in reports[name]["tables"]:
            assert f"**{table['title']}, " in text
            for row in table["rows"]:
                assert any(line[0].strip() == row["name"] and f" {row['seconds'] * 1e3:.3g} " in line for line in lines)


def test_json_and_markdown_are_one_or_the_other(capsys):
    assert cli.main(["bench", "gemm", "--quick", "--json", "--markdown"]) == 2
    assert "--json and --markdown" in capsys.readouterr().err


@pytest.mark.sweep(every=0)
def test_costs_of_paths_become_files(tmp_path, capsys):
    assert cli.main(["bench", "plan", "--quick", "--json", "--threads", "1", "--costs", str(tmp_path)]) == 0
    for kind, least in (("product", 50), ("conv", 16)):
        (path,) = tmp_path.glob(f"{kind}-*")
        with gzip.open(path, "rt", newline="") as file:
            header, *rows = csv.reader(file)
        assert path.name == f"{kind}-{_core.cpu_processor()}.csv.gz" and tuple(header) == columns(kind)
        assert len(rows) > least and all(len(row) == len(header) and float(row[header.index("ns")]) > 0 for row in rows)
    assert cli.main(["bench", "plan", "--quick", "--costs", str(path)]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_peer_of_other_work_is_found_out():
    x, w = np.ones((2, 8), np.float32), np.arange(32, dtype=np.float32).reshape(4, 8)
    for factor in (1.0, 2.0):
        peer = Peer("peer", "int8", [lambda x, factor=factor: factor * (x @ w.T)], 0.05, answer=lambda y: y)
        candidate = points._peer(peer, x, w, (x @ w[::2].T).astype(np.float64), slice(None, None, 2))
        with pytest.raises(CheckFailed) if factor != 1 else contextlib.nullcontext():
            candidate.check()


def test_points_are_counted_where_a_peer_stands_beside_them():
    assert points._count([], 1.0, "int8") == "no int8 peer is installed"
    assert points._count([0.5, 1.0, 2.0], 1.0, "4-bit") == "1 of 3 below 1.0 x the best 4-bit peer"


def test_where_dense_products_go_is_no_library_of_the_bench(monkeypatch):
    pytest.importorskip("scipy_openblas32")
    monkeypatch.setenv("HETEROCOMPUTE_BLAS", "own")
    assert find_blas() is not None


def test_markdown_has_a_column_for_every_candidate():
    rows = [
        {"name": "a", "rate": 12.345, "chosen": "direct", "candidates": {"auto": 12.345, "direct": 13.0}},
        {"name": "b", "rate": 2.0, "chosen": "implicit", "candidates": {"auto": 2.0, "torch": 3.0}},
    ]
    table = {"title": "Layers", "threads": 1, "rows": rows}
    assert markdown({"tables": [table, {"title": "None", "threads": 2, "rows": []}]}).splitlines() == [
        "**Layers, 1 thread**",
        "",
        "|  | chosen | rate | auto | direct | torch |",
        "| --- | --- | --- | --- | --- | --- |",
        "| a | direct | 12.3 | 12.3 | 13 |  |",
        "| b | implicit | 2 | 2 |  | 3 |",
        "",
        "**None, 2 threads**",
        "",
        "|  |",
        "| --- |",
    ]


@pytest.mark.sweep(every=0)
def test_layers_are_measured_by_every_algorithm(capfd):
    assert bench.main(["conv"], json=True, quick=True, threads=1) == 0
    first = json.loads(capfd.readouterr().out)["benchmarks"]["conv"]["tables"][0]
    for row in first["rows"]:
        assert {"auto", "direct", "implicit", "float32 FMA", "int8 x int8"} <= row["candidates"].keys()
        assert row["chosen"] in ALGORITHMS and row["fastest"] in ALGORITHMS and row["intensity"] > 0


def test_a_peer_whose_sums_are_wrong_is_left_out_and_ours_are_not(capfd, monkeypatch):
    def wrong():
        raise CheckFailed("int8 torch: the result is off by 0.5 of its norm")

    peers = [Candidate("int8 torch", lambda: None, 1.0, "GOP/s", check) for check in (wrong, lambda: None)]
    monkeypatch.setattr(conv, "_int8_peer", lambda *_: peers[:1])
    layer = conv.QUICK_LAYERS[-1]
    times, _ = conv._times(layer, 1, 1, QUICK, peers=True)
    assert "int8 x int8" in times.candidates and "int8 torch" not in times.candidates
    said = capfd.readouterr().err
    assert layer.name in said and "wrong on this machine: int8 torch: the result is off by 0.5" in said
    assert conv.sound(peers, "a layer", QUICK) == peers[1:]
    monkeypatch.setattr(conv, "INT8_ERROR", 1e-9)
    with pytest.raises(CheckFailed, match="int8 x int8"):
        conv._times(layer, 1, 1, QUICK, peers=True)
