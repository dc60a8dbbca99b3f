"""Old names of arguments are errors of one line that name the new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.zoo.llm.network import LanguageModel

W = np.ones((4, 32), np.float32)
NET = {"w": W}

OLD: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (lambda **more: hc.quantize(W, **more), {"fmt": "int8"}, "quantize: fmt is an old name, expected format="),
    (
        lambda **more: hc.fake_quantize(W, **more),
        {"fmt": "int8"},
        "fake_quantize: fmt is an old name, expected format=",
    ),
    (lambda **more: hc.ptq.calibrate(NET, **more), {"evaluate": len}, "calibrate: evaluate .* expected inputs="),
    (lambda **more: hc.ptq.quantize(NET, len, **more), {"formats": "int8"}, "quantize: formats .* expected format="),
    (lambda **more: hw.roofline(**more, device="t4"), {"model": "digits"}, "roofline: model .* expected network="),
    (lambda **more: hw.roofline("digits", **more), {"device_name": "t4"}, "device_name .* expected device="),
    (lambda **more: hw.roofline("digits", **more), {"chip": "t4"}, "roofline: chip .* expected device="),
    (lambda **more: hw.roofline("digits", "t4", **more), {"positions": 4}, "positions .* expected context="),
    (lambda **more: hw.count(**more), {"model": "digits"}, "count: model .* expected network="),
    (lambda **more: hw.memory.kv_cache("llama_7b", **more), {"positions": 8}, "positions .* expected context="),
    (lambda **more: hw.systems.tpp(**more), {"chip": "t4"}, "tpp: chip .* expected device="),
    (lambda **more: hc.ptq.search(NET, ["int4"], {}, **more), {"calibration": 1}, "search: calibration .* inputs="),
    (lambda **more: hc.verify("a", "b", **more), {"calibration": 1}, "verify: calibration .* expected inputs="),
    (lambda **more: hc.ptq.rotate(**more), {"net": None}, "rotate: net .* expected network="),
    (lambda **more: hc.codebook_gradient(q=W, **more), {"grad_w": W}, "codebook_gradient: grad_w .* expected dw="),
    (lambda **more: hc.codebook_step(W, lr=1.0, **more), {"grad": W}, "codebook_step: grad .* expected gradient="),
    (lambda **more: hc.training.sr_ste(w=W, mask=W, **more), {"g": W}, "sr_ste: g .* expected dw="),
    (lambda **more: hc.training.linear_step(W, W, **more), {"g": W}, "linear_step: g .* expected dy="),
    (lambda **more: hc.training.attention_step(W, W, W, **more), {"g": W}, "attention_step: g .* expected dy="),
    (lambda **more: hc.scores.sparsegpt(W, **more), {"hessian": W}, "sparsegpt: hessian .* expected h="),
    (lambda **more: hc.study_training(None, [], **more), {"rate": 0.1}, "study_training: rate .* expected lr="),
    (lambda **more: hw.accelerators.eie().report(**more), {"model": "digits"}, "report: model .* expected network="),
    (lambda **more: hw.Machine.named("eyeriss").report(**more), {"model": "digits"}, "model .* expected network="),
    (lambda **more: LanguageModel.generate(None, "a", **more), {"n": 2}, "generate: n .* expected tokens="),
    (lambda **more: hw.systolic.conv(8, 9, 9, 8, 3, 3, **more), {"cols": 4}, "conv: cols .* expected columns="),
    (lambda **more: hw.mapper.search(*[None] * 2, **more), {"workers": 2}, "search: workers .* expected threads="),
]


@pytest.mark.parametrize(("call", "old", "words"), OLD)
def test_an_old_argument_is_an_error_with_the_new_one(
    call: Callable[..., Any], old: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        call(**old)
    assert isinstance(caught.value, hc.ArgumentError) and "\n" not in str(caught.value)


@pytest.mark.parametrize("devices", ["t4", ["h100-sxm", "t4"], hw.device("t4")])
def test_compare_has_the_order_of_roofline(devices: Any) -> None:
    with pytest.raises(TypeError, match=r"compare: network is .* expected a network: compare\(network, devices\)"):
        hw.compare(devices, "digits")
    assert (
        hw.compare("digits", "t4", "fp16", "int8", 4)[0]["seconds"]
        == hw.roofline("digits", "t4", "fp16", "int8", 4).seconds
    )


def test_other_errors_of_types_stay() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'bits'"):
        hc.quantize(W, "int8", bits=3)  # type: ignore[call-arg]


def test_the_context_of_a_roofline_is_that_of_decoding() -> None:
    found = hw.roofline("llama_7b", "t4", context=1024)
    assert found.seconds == hw.roofline(hw.as_network("llama_7b").decoding(1024), "t4").seconds


@pytest.mark.parametrize("command", ["ptq a b --format int4 --calibration x.npz", "study m --calibration=x.npz"])
def test_an_old_option_is_an_error_with_the_new_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = run(capsys, *command.split())
    assert code == 2 and "--calibration is an old name, expected --inputs" in said


def test_functions_that_draw_accept_generators() -> None:
    """SPEC 7: an int is the seed, a generator draws one; both give the same result again."""

    def drawn(**more: Any) -> Any:
        return hc.training.fake_quantize(W / 3, "int4", rounding="stochastic", **more)[0]

    assert np.array_equal(drawn(rng=5), drawn(seed=5))
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    assert np.array_equal(drawn(rng=first), drawn(rng=second)) and first.random() == second.random()
    assert np.array_equal(hc.ptq.hadamard(W, rng=np.random.SeedSequence(3)), hc.ptq.hadamard(W, rng=np.random.PCG64(3)))
    with pytest.raises(ValueError, match="rng is given with seed 4, expected one of them"):
        drawn(seed=4, rng=1)
    with pytest.raises(TypeError, match="rng is 'x', expected an int or a generator"):
        drawn(rng="x")
