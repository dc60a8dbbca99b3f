"""The last line of a cell: results have a short text and an HTML table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.base.notebooks.shown import MOST_FACTS, Shown, facts_html, told
from heterocompute.report.page import MOST_ROWS, rows_html

NET = hc.zoo.digits()
LEVELS = [
    {"name": "dram", "kind": "lpddr5", "bandwidth": 50e9},
    {"name": "buffer", "kib": 512, "width": 256, "banks": 8},
    {"name": "pe", "count": [16, 16], "spread": ["K", "C"]},
    {"name": "regs", "bytes": 64, "keeps": ["weights"]},
]
MAC = {"weights": "int8", "activations": "int8", "sums": 24}
MACHINE = {"name": "mine", "process": "7 nm", "clock": 1e9, "level": LEVELS, "mac": MAC}
RESULTS: dict[str, Callable[[], Any]] = {
    "roofline": lambda: hw.roofline("digits", "t4", "fp16"),
    "count": lambda: hw.count("digits"),
    "device": lambda: hw.device("t4"),
    "accelerator": lambda: hw.accelerators.accelerator("eyeriss").report("digits"),
    "plan": lambda: hc.ptq.search(NET.weights, ["int4", "int8"], {"bits": 5}),
    "rounded": lambda: hc.ptq.quantize(NET, lambda weights: NET.forward(weights, NET.train_x[:8]), "int4"),
    "published": lambda: hw.published("tpu_v1"),
    "published figure": lambda: hw.published("eyeriss-jssc-2017/alexnet-frames")[0],
    "mapping": lambda: found_mapping().mapping,
    "found": lambda: found_mapping(),
    "training step": lambda: hw.training_step("digits", "t4"),
    "batches": lambda: hw.batch_sweep("digits", "t4"),
    "machine": lambda: hw.Machine(MACHINE),
    "network": lambda: NET,
    "calibration": lambda: hc.ptq.calibrate(NET.weights, lambda weights: NET.forward(weights, NET.train_x[:8])),
    "accumulator": lambda: hc.ptq.accumulator_bits(hc.quantize(np.ones((4096, 32), np.float32), "int4"), "int8"),
    "error": lambda: hc.error(np.eye(8, dtype=np.float32), hc.quantize(np.eye(8, dtype=np.float32), "int4")),
}
# Public classes that are arguments, layers and arrays in memory, not results: their repr is what one types, or a line.
PLAIN = {"Builder", "Instruction", "KVCache", "PrepackedFilters", "Hessian", "Fabric", "Tier"}
PLAIN |= {
    "Integer",
    "Levels",
    "Minifloat",
    "Arch",
    "Density",
    "Files",
    "Level",
    "Problem",
    "Delayed",
    "Current",
    "DynamicScale",
}
PLAIN |= {"AttentionStep", "LinearStep"}  # tuples of arrays


def test_every_public_result_has_a_table() -> None:
    rooms = [hc, hc.ptq, hc.training, hc.emulate, hc.zoo, hw, hw.results, hw.mapper, hw.systems, hw.multi]
    found = {name: getattr(room, name) for room in rooms for name in (getattr(room, "__all__", None) or dir(room))}
    classes = {name: one for name, one in found.items() if inspect.isclass(one) and name[0] != "_"}
    ours = {name: one for name, one in classes.items() if one.__module__.startswith("heterocompute.")}
    results = {n: c for n, c in ours.items() if not issubclass(c, (hc.Format, Exception)) and n not in PLAIN}
    assert len(results) > 40
    assert [name for name, one in results.items() if not issubclass(one, Shown)] == []
    assert PLAIN <= set(ours)


def found_mapping() -> hw.mapper.Found:
    levels = [hw.mapper.Level("DRAM", read=640.0), hw.mapper.Level("Buffer", words=64, read=5.0)]
    return hw.mapper.search(hw.mapper.Problem.gemm(8, 8, 8), hw.mapper.Arch(levels, mac=1.0))


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_has_a_short_text_and_a_table(name: str) -> None:
    found = RESULTS[name]()
    assert len(repr(found)) < 250 and "\n" not in repr(found)
    text = found._repr_html_()
    lines = {"published figure": 2, "mapping": 3, "found": 3}.get(name, 4)  # with the head
    assert " object at 0x" not in text
    assert text.count("<tr") >= lines and text.count("<table") == 1
    assert found._repr_mimebundle_() == {"text/plain": repr(found), "text/html": text}
    assert found._repr_mimebundle_(include={"text/html"}) == {"text/html": text}
    assert found._repr_mimebundle_(exclude={"text/html"}) == {"text/plain": repr(found)}


def test_the_shipped_networks_have_one_line() -> None:
    assert repr(NET) == "<Digits: 5 layers, 72,842 weights, 599 held-out examples>"
    assert repr(hc.zoo.adder()).startswith("<Adder: ")


def test_a_table_of_rows_is_escaped_and_short() -> None:
    rows = [{"name": "<b>", "value": i / 3, "many": [1], "none": None} for i in range(MOST_ROWS + 5)]
    text = rows_html(rows, "<i>")
    assert "<b>" not in text and "<i>" not in text and "many" not in text and "... and 5 rows" in text
    assert text.count("<tr") == 1 + MOST_ROWS and "0.3333" in text
    assert rows_html([], "none") == "<p>none</p>"


def test_a_table_of_facts_is_short_and_can_be_written() -> None:
    many = facts_html({f"{i}" * 300: i for i in range(MOST_FACTS + 5)})
    assert many.count("<tr") == MOST_FACTS + 1 and "and 5 more" in many and len(many) < 300 * MOST_FACTS
    assert facts_html({"path": "\udcff<"}).encode() == facts_html({"path": "\\udcff<"}).encode()
    odd = (
        np.array(["a", None], object),
        np.array(["a"]),
        np.zeros(2, [("a", int)]),
        np.full(2, np.nan),
        np.zeros((0, 2)),
    )
    assert [told(one) for one in odd] == [
        "object (2,)", "<U1 (1,)", "[('a', '<i8')] (2,)", "float64 (2,), nan to nan", "float64 (0, 2)"]  # fmt: skip
    assert max(len(told(one)) for one in ({"k" * 5000: 1}, [["x" * 500] * 9] * 9, "x" * 5000)) < 210


def test_a_study_of_single_layers_shows_them() -> None:
    w = np.random.default_rng(0).standard_normal((8, 32), dtype=np.float32)
    r = hc.study(
        {"first": w, "second": w}, ["int4"], lambda held: float(np.asarray(held["first"]).sum()), per_layer=True
    )
    assert "with one layer alone" in r._repr_html_() and r._repr_html_().count("<table") == 2


def test_progress_is_a_function_a_bar_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    w = np.ones((4, 32), np.float32)
    hc.study(w, ["int4"], progress=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(TypeError, match="progress is 3, expected a function, True, False or None"):
        hc.study(w, ["int4"], progress=3)  # type: ignore[arg-type]
    pytest.importorskip("tqdm")
    hc.study(w, ["int4"], progress=True)
    assert "study" in capsys.readouterr().err
