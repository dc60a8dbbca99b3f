"""Old names of arguments are errors of one line that name the new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import hardware as hw

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
    (lambda **more: hw.count(**more), {"model": "digits"}, "count: model .* expected network="),
    (lambda **more: hw.memory.kv_cache("llama_7b", **more), {"positions": 8}, "positions .* expected context="),
    (lambda **more: hw.systems.tpp(**more), {"chip": "t4"}, "tpp: chip .* expected device="),
    (lambda **more: hw.mapper.search(*[None] * 2, **more), {"workers": 2}, "search: workers .* expected threads="),
]


@pytest.mark.parametrize(("call", "old", "words"), OLD)
def test_an_old_argument_is_an_error_with_the_new_one(
    call: Callable[..., Any], old: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        call(**old)
    assert isinstance(caught.value, hc.ArgumentError) and "\n" not in str(caught.value)


def test_other_errors_of_types_stay() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'bits'"):
        hc.quantize(W, "int8", bits=3)  # type: ignore[call-arg]


def test_the_context_of_a_roofline_is_that_of_decoding() -> None:
    found = hw.roofline("llama_7b", "t4", context=1024)
    assert found.seconds == hw.roofline(hw.as_network("llama_7b").decoding(1024), "t4").seconds
