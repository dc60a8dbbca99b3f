"""Deep nesting in files and arguments is refused in one sentence; the binding names arguments of another kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_long_values import MOST

import heterocompute as hc
from heterocompute import _heterocompute as _core
from heterocompute.base.json_text import MAX_DEPTH, strict_json
from heterocompute.cli.command import main

hw = hc.hardware


def nested(kind: type, depth: int) -> Any:
    value: Any = kind()
    for _ in range(depth):
        value = {"a": value} if kind is dict else kind((value,))
    return value


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
def test_json_is_at_most_64_deep(opening: str, closing: str) -> None:
    text = opening * MAX_DEPTH + "1" + closing * MAX_DEPTH
    assert strict_json(text) == json.loads(text)
    for depth in (MAX_DEPTH + 1, 900, 100_000):
        with pytest.raises(ValueError, match="nested more than 64 deep"):
            strict_json(opening * depth + "1" + closing * depth)


def test_json_of_many_values_is_not_deep() -> None:
    assert len(strict_json("[" + "[1], " * 100_000 + "[1]]")) == 100_001


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_study_that_nests_deeply_is_refused(depth: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "study.json"
    path.write_text('{"rows": [' + "[" * depth + "]" * depth + "]}", encoding="utf-8")
    assert main(["explore", "digits", "--study", str(path)]) == 1
    assert "is not JSON (nested more than 64 deep)" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_arguments_that_nest_deeply_are_refused(kind: type) -> None:
    value = nested(kind, 5000)
    w = np.ones((8, 32), np.float32)
    for call in (
        lambda: hc.load(value),
        lambda: hc.open_checkpoint(value),
        lambda: hc.save(value, {"w": w}),
        lambda: hc.save_gguf(value, {"w": w}),
        lambda: hc.finish_checkpoint(value, "out"),
        lambda: hc.convert_checkpoint("in", "out", value),
        lambda: hc.quantize(w, value),
        lambda: hc.format(value),
    ):
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        assert len(str(error.value)) < MOST


def test_the_binding_names_arguments_that_are_no_tuples() -> None:
    run, codes = (0, 1), np.ones((2, 2), np.int32)
    out = np.zeros((2, 2), np.int64)
    with pytest.raises(TypeError, match="eie: expected a tuple"):
        _core.eie_check(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="csr: expected a tuple"):
        _core.csr_transpose([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="emulate: a: expected a tuple"):
        _core.emulate_codes(run, 5, 5, 32, True, 1, False, 0, 1, None, 1.0, out)  # type: ignore[arg-type]
    scales = np.ones((2, 0), np.float32)
    with pytest.raises(ValueError, match="emulate: a: too few scales"):  # the number of groups does not wrap
        _core.emulate_codes(run, (codes, 2**63 - 1, scales), 5, 32, True, 1, False, 0, 1, None, 1.0, out)  # type: ignore[arg-type]


def test_a_pattern_of_a_pattern_is_refused() -> None:
    params: Any = ("int", 8, 0)
    for _ in range(100_000):
        params = (params, 2, 4)
    with pytest.raises(TypeError, match="a pattern of a pattern"):
        _core.check_format(params)


def test_positions_that_were_written_over_are_refused() -> None:
    q = hc.quantize(np.random.default_rng(0).standard_normal((4, 128)).astype(np.float32), "int8+2:6")
    q.components["metadata"][...] = 255
    with pytest.raises(ValueError, match="component metadata has positions that do not ascend below 6"):
        q.codes()


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8])
def test_integers_of_numpy_count_as_those_of_python(kind: type) -> None:
    two = kind(2)
    assert hw.count("resnet18", batch=two).macs == hw.count("resnet18", batch=2).macs
    assert hw.systems.hbm_bandwidth(two, 64, 3.2e9) == hw.systems.hbm_bandwidth(2, 64, 3.2e9)
    assert hw.roofline("resnet18", "a100-sxm-80gb", "fp16", batch=two).seconds == (
        hw.roofline("resnet18", "a100-sxm-80gb", "fp16", batch=2).seconds
    )
    assert hw.memory.kv_cache("llama_7b", kind(100), windows=two) == hw.memory.kv_cache("llama_7b", 100, windows=2)


def test_many_inputs_given_as_int32_do_not_wrap() -> None:
    assert hw.count("resnet18", batch=np.int32(2**30)).macs == 2**30 * hw.count("resnet18").macs


def test_numbers_that_ended_in_another_functions_words_or_never() -> None:
    nan = float("nan")
    for call, words in (
        (lambda: hc.ptq.bound(np.float32([[7, 1]]), "int4", np.eye(2), damping=-1), "bound: damping is -1"),
        (lambda: hc.ptq.bound(np.float32([[7, 1]]), "int4", np.eye(2), damping=-np.inf), "bound: damping is -inf"),
        (lambda: hc.ptq.Hessian(10**19), "Hessian: 1 x 10000000000000000000 x 10000000000000000000 sums"),
        (lambda: hc.emulate.accepts("fp32", None, None, 10**19), "emulate.accepts: length is 10000000000000000000"),
        (lambda: hw.systems.check_host(10**19, 1, 1), "check_host: rows is 10000000000000000000"),
        (lambda: hw.systems.check_host(2**20, 2**20, 1), "check_host: the matmul has"),
        (lambda: hw.systems.check_host(1, 1, 1, seconds=nan), "check_host: seconds is nan"),
        (lambda: hw.host(refresh=nan), "host: refresh is nan"),
        (lambda: hw.explore({}, "digits", seed=nan), "explore: seed is nan"),
        (lambda: hw.explore({}, "digits", progress=3), "explore: progress is 3"),
        (lambda: hc.ptq.hadamard(np.ones(4, np.float32), inverse=nan), "hadamard: inverse is nan"),
    ):
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        assert words in str(error.value)
