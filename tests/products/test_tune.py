"""hc.tune: its results are stored, merged, used on request, and do not change guaranteed bits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import HANG, bad_argument, reals, same_bits

import heterocompute as hc
from heterocompute.base import runtime
from heterocompute.products import conv, matmul, tuned


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HETEROCOMPUTE_CACHE", str(tmp_path / "cache"))
    forget()
    return tmp_path / "cache"


def forget() -> None:
    """Read the file again, like a new process."""
    tuned.forget()


CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "dense": (hc.matmul, (reals((24, 40), 1), reals((40, 16), 2)), {}),
    "packed": (hc.matmul, (reals((24, 40), 1), hc.quantize(reals((16, 40), 2), "int4-g8").T), {}),
    "integers": (hc.linear, (reals((9, 64), 1), hc.quantize(reals((16, 64), 2), "int8")), {"activations": "int8"}),
    "one vector": (hc.linear, (reals((64,), 1), hc.quantize(reals((16, 64), 2), "vsq4-g16-s4")), {}),
    "batches": (hc.matmul, (reals((3, 9, 24), 1), hc.quantize(reals((16, 24), 2), "int8").T), {}),
    "images": (hc.conv2d, (reals((2, 5, 8, 7), 1), reals((6, 5, 3, 3), 2)), {"padding": 1, "accuracy": "strict"}),
    "depthwise": (hc.conv2d, (reals((1, 6, 8, 7), 1), reals((6, 1, 3, 3), 2)), {"groups": 6, "accuracy": "strict"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_way_is_measured_kept_and_taken_when_asked_for(name: str, folder: Path) -> None:
    function, arguments, options = CALLS[name]
    before, y = hc.explain(function, *arguments, **options), function(*arguments, **options)
    found = hc.tune(function, *arguments, seconds=0, **options)
    ms = {one.path: one.measured_ms for one in found.candidates if one.measured_ms is not None}
    assert len(ms) >= 1 and found.chosen == min(ms, key=ms.__getitem__)
    predicted = {one.path for one in before.candidates if one.predicted_ms is not None}
    assert predicted - {tuned.BLAS} <= ms.keys()  # a BLAS is used on request alone
    assert "measured ms" in str(found) and "measured ms" not in str(before)
    assert (found.operations, found.bytes) == (before.operations, before.bytes) and found.intensity > 0
    assert sorted(path.name for path in folder.iterdir()) == [".tuning.json.lock", "tuning.json"]
    forget()
    assert hc.explain(function, *arguments, **options).chosen == before.chosen  # nothing changes unasked
    with hc.use(tuned=True):
        assert hc.explain(function, *arguments, **options) == found
        if name != "dense":
            assert same_bits(function(*arguments, **options), y)


def test_what_auto_does_not_admit_is_not_chosen_by_measurement() -> None:
    x, w = reals((1, 16, 12, 12), 1), reals((16, 16, 3, 3), 2)
    for accuracy, refused in (("default", {"winograd6"}), ("strict", {"winograd2", "winograd4", "winograd6", "fft"})):
        found = hc.tune(hc.conv2d, x, w, seconds=0, accuracy=accuracy)
        out = {one.path for one in found.candidates if "than auto admits" in one.reason}
        assert out == refused
        assert {one.path for one in found.candidates if one.measured_ms is None} == {*refused, "depthwise"}
    packed = hc.explain(hc.conv2d, x, hc.quantize(w, "int8", axis=(2, 3, 1)))
    assert {one.path for one in packed.candidates if one.predicted_ms is not None} <= {
        "direct", "planes", "implicit", "im2col",
    }  # fmt: skip


def test_a_product_goes_the_way_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x, q = reals((24, 40), 1), hc.quantize(reals((16, 40), 2), "int8")
    gone: list[int] = []
    for owner, name in ((matmul._core, "matmul"), (matmul, "_direct")):  # with and without the general path's checks
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda run, *rest, real=real: (gone.append(run[2]), real(run, *rest))[1])
    expected = hc.linear(x, q, activations="int8")
    for way in ("rows", "gemm"):
        tuned.keep(tuned.product_key("matmul", x, q.T, hc.format("int8")), way, {way: 1.0})
        with hc.use(tuned=True):
            assert same_bits(hc.linear(x, q, activations="int8"), expected)
            assert gone[-1] == tuned.path_number(way) > 0
            hc.linear(x[:20], q, activations="int8")  # another shape
            assert gone[-1] == 0
            with hc.use(path="rows"):  # a forced path has priority
                assert hc.explain(hc.linear, x, q, activations="int8").chosen == "rows"


def test_a_convolution_goes_the_way_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = reals((2, 5, 8, 7), 1), reals((6, 5, 3, 3), 2)
    gone: list[Any] = []
    real = conv._core.conv2d
    monkeypatch.setattr(conv._core, "conv2d", lambda *rest: (gone.append(rest[10]), real(*rest))[1])
    expected = hc.conv2d(x, w)
    for way in ("implicit", "direct"):
        tuned.keep(conv.convolution_key(conv.prepared("test", x, w)), way, {way: 1.0})
        with hc.use(tuned=True):
            assert same_bits(hc.conv2d(x, w), expected) and gone[-1] == way
            hc.conv2d(x, w, algorithm="implicit")
            assert gone[-1] == "implicit"
            hc.conv2d(x, w, padding=1)
            assert gone[-1] is None


def test_values_that_cannot_go_the_kept_way_go_another() -> None:
    x, s = reals((24, 512), 10), hc.prune(reals((96, 512), 11), "5:8")
    x[3, 7] = np.nan
    with bad_argument(ValueError, None, "unsupported", "not finite"), hc.use(path="gemm"):
        hc.linear(x, s)
    expected = hc.linear(x, s)
    tuned.keep(tuned.product_key("matmul", x, s.T, None), "gemm", {"gemm": 1.0})
    with hc.use(tuned=True):
        assert np.array_equal(hc.linear(x, s), expected, equal_nan=True)
    with hc.use(tuned=True), bad_argument(ValueError, "x", "value"):
        hc.linear(x, hc.quantize(reals((8, 512)), "int8"), activations="int8")


def test_what_processes_write_at_once_is_merged(folder: Path) -> None:
    code = (
        "import sys; from heterocompute.products import tuned\n"
        "for i in range(40): tuned.keep(f'{sys.argv[1]} {i}', 'gemm', {'gemm': 1.0})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("a", "b")]
    assert [writer.wait(HANG) for writer in writers] == [0, 0]
    assert [path.name for path in sorted(folder.iterdir())] == [".tuning.json.lock", "tuning.json"]  # no others
    for name in ("a", "b"):
        assert all(tuned.choice(f"{name} {i}") == "gemm" for i in range(40))
    kept = json.loads(tuned.tuning_file().read_text())
    assert [key.rpartition(" ")[2] for key in kept] == [hc.__version__] and len(next(iter(kept.values()))) == 80


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"x": 1}', "\xff", '{"MACHINE": {"k": {"choice": "gemm", "ms": {}}}}',
             '{"MACHINE": {"k": {"choice": ["gemm"], "ms": {"gemm": 1}}}}'],
)  # fmt: skip
def test_a_file_that_is_not_ours_is_none(text: str, folder: Path) -> None:
    folder.mkdir()
    tuned.tuning_file().write_text(text.replace("MACHINE", tuned._machine()), encoding="latin-1")
    assert tuned.choice("k") is None
    tuned.keep("k", "gemm", {"gemm": 1.0})
    forget()
    assert tuned.choice("k") == "gemm"


def test_a_folder_that_cannot_be_written_keeps_times_for_the_process(folder: Path) -> None:
    folder.write_text("a file")
    tuned.keep("k", "gemm", {"gemm": 1.0})
    assert tuned.choice("k") == "gemm"
    forget()
    assert tuned.choice("k") is None


def test_another_version_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned.keep("k", "gemm", {"gemm": 1.0})
    forget()
    monkeypatch.setattr(tuned, "_machine", lambda: "another processor; heterocompute 9")
    assert tuned.choice("k") is None
    tuned.keep("k", "rows", {"rows": 1.0})
    monkeypatch.undo()


def test_wrong_arguments_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    x, q = reals((4, 32), 1), hc.quantize(reals((8, 32), 2), "int8")
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: hc.tune(x, q.T), TypeError, "tune: the function is an array .* expected matmul, linear or conv2d"),
        (lambda: hc.tune(hc.quantize, x, "int8"), TypeError, "expected matmul, linear or conv2d"),
        (lambda: hc.tune(hc.matmul, x), TypeError, "tune: matmul: missing a required argument: 'b'"),
        (lambda: hc.tune(hc.matmul, x, q), ValueError, "reduction axis"),
        (lambda: hc.tune(hc.matmul, x, x), ValueError, "tune: b has 4 rows but a has 32 columns"),
        (lambda: hc.tune(hc.matmul, x[:0], q.T), ValueError, "nothing to multiply"),
        (lambda: hc.tune(hc.conv2d, x, x), ValueError, "tune: x has shape"),
        (lambda: hc.tune(hc.matmul, hc.encode_eie(reals((8, 32))), x.T), ValueError, "a compressed matrix has one way"),
        (lambda: hc.tune(hc.linear, x, q, seconds="1"), TypeError, "tune: seconds is '1'"),
        (lambda: hc.tune(hc.linear, x, q, seconds=-1), ValueError, "tune: seconds is -1"),
        (lambda: hc.explain(hc.prune, x), TypeError, "explain: the function is"),
        (lambda: hc.use(tuned=1).__enter__(), TypeError, "use: tuned is 1, expected a bool"),
        (
            lambda: hc.conv2d(reals((1, 1, 3, 3)), reals((1, 1, 3, 3)), accuracy=1),
            TypeError,
            "accuracy is 1, expected a str",
        ),
    ]
    for call, kind, words in cases:
        with pytest.raises(kind, match=words):
            call()
    with hc.use(path="gemm"), bad_argument(ValueError, None, "value", "a path is forced"):
        hc.tune(hc.matmul, x, q.T)
    monkeypatch.setenv("HETEROCOMPUTE_TUNED", "yes")
    runtime._environment.cache_clear()
    try:
        with bad_argument(ValueError, None, "value", "HETEROCOMPUTE_TUNED.*0.*1.*'yes'"):
            hc.matmul(x, q.T)
        monkeypatch.setenv("HETEROCOMPUTE_TUNED", "1")
        runtime._environment.cache_clear()
        assert runtime.tuned()
        with hc.use(tuned=False):
            assert not runtime.tuned()
    finally:
        monkeypatch.delenv("HETEROCOMPUTE_TUNED")
        runtime._environment.cache_clear()


@pytest.mark.parametrize("name", ["packed", "integers", "one vector", "batches"])
def test_a_packed_operand_never_tries_the_blas(name: str) -> None:
    function, arguments, options = CALLS[name]
    found = hc.tune(function, *arguments, seconds=0, **options)
    assert next(one for one in found.candidates if one.path == tuned.BLAS).measured_ms is None
    assert found.chosen != tuned.BLAS
    usual = hc.tune(hc.matmul, *CALLS["dense"][1], seconds=0)  # the bits of the default stay
    assert usual.chosen != tuned.BLAS
    assert next(one for one in usual.candidates if one.path == tuned.BLAS).measured_ms is None
    with hc.use(blas="auto"):
        dense = hc.tune(hc.matmul, *CALLS["dense"][1], seconds=0)
        assert next(one for one in dense.candidates if one.path == tuned.BLAS).measured_ms is not None
        double = hc.tune(hc.matmul, CALLS["dense"][1][0].astype(np.float64), CALLS["dense"][1][1], seconds=0)
    assert next(one for one in double.candidates if one.path == tuned.BLAS).measured_ms is None


def test_a_call_like_an_earlier_one_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, q = reals((24, 40), 1), reals((16, 40), 3), hc.quantize(reals((16, 40), 2), "int8")
    keys: list[str] = []
    monkeypatch.setattr(matmul, "product_key", lambda *rest: (keys.append(""), tuned.product_key(*rest))[1])
    with hc.use(tuned=True, blas="auto"):
        for operand, fmt in ((q, "int8"), (q, None), (w, None)):
            for _ in range(5):
                hc.linear(x, operand, activations=fmt)
                hc.matmul(x, operand.T, activations=fmt)
            assert 2 <= len(keys) <= 4  # the first call of each, and again after the general path
            keys.clear()
        key = tuned.product_key("matmul", x, q.T, hc.format("int8"))
        for way in ("rows", "gemm"):  # a new choice takes effect at once
            tuned.keep(key, way, {way: 1.0})
            found = matmul._kept_way(runtime.run(), True, x, q, "int8")
            assert found is not None and found[2:] == (tuned.path_number(way), runtime.OWN, False)
        with hc.use(threads=1):
            assert matmul._kept_way(runtime.run(), True, x, q, "int8") is None


def test_the_choice_of_a_blas_is_gone_with(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = reals((6, 512), 1), reals((512, 512), 2)
    gone: list[int] = []
    real = matmul._direct
    monkeypatch.setattr(matmul, "_direct", lambda run, *rest: (gone.append(run[3]), real(run, *rest))[1])
    hc.matmul(x, w)
    assert gone == [runtime.OWN]
    tuned.keep(tuned.product_key("matmul", x, w, None), tuned.BLAS, {tuned.BLAS: 1.0})
    with hc.use(tuned=True):
        hc.matmul(x, w)
        assert gone[-1] == runtime.OWN
    with hc.use(tuned=True, blas="auto"):
        hc.matmul(x, w)
        assert gone[-1] == runtime.OPENBLAS
        with hc.use(blas="own"):  # an explicit setting has priority
            hc.matmul(x, w)
            assert gone[-1] == runtime.OWN
