"""Functions of values as formats: who takes them, the shape they are given, and the checks of their answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc

Array = np.ndarray[Any, Any]


def quarters(x: Array) -> Array:
    return np.rint(x * 4) / 4


def by_absmax(x: Array) -> Array:
    """Round as int4 with a scale per group."""
    scale = np.abs(x).max(axis=-1, keepdims=True) / np.float32(7)
    steps = np.divide(x, scale, out=np.zeros(x.shape), where=scale != 0, dtype=np.float64)
    return ((np.clip(np.rint(steps), -7, 7) + 0.0) * scale.astype(np.float64)).astype(np.float32)  # no -0


@pytest.mark.parametrize(("shape", "axis"), [((7, 37), -1), ((7, 37), 0), ((3, 5, 2, 2), (2, 3, 1)), ((33,), 0)])
def test_groups_are_those_of_formats_with_codes(shape: tuple[int, ...], axis: Any) -> None:
    mine = hc.define("by-absmax-g8", round=by_absmax, bits=8, group=8)
    rows = hc.define("by-absmax", round=by_absmax, bits=4)
    for turn in range(3):
        x = reals(shape, turn).astype([np.float32, np.float64, np.float16][turn])
        assert same_bits(hc.fake_quantize(x, mine, axis), hc.fake_quantize(x.astype(np.float32), "int4-g8", axis))
        assert same_bits(hc.fake_quantize(x, rows, axis), hc.fake_quantize(x.astype(np.float32), "int4", axis))
        y, back = hc.training.fake_quantize(x, "by-absmax-g8", axis)
        assert same_bits(y, hc.fake_quantize(x, mine, axis)) and same_bits(back(y), y)
    assert hc.fake_quantize(np.zeros((0, 9), np.float32), mine).shape == (0, 9)
    assert hc.fake_quantize(np.zeros((9, 0), np.float32), mine).shape == (9, 0)


def test_operations_without_codes_take_functions(tmp_path: Any) -> None:
    mine = hc.define("quarters", round=quarters, bits=4.5, group=16)
    w = {"a": reals((24, 64), 1), "b": reals((8, 3, 3, 3), 2)}
    report = hc.study(
        w, ["int4", mine], lambda held: {"largest": float(np.abs(np.asarray(held["a"])).max())}, workers=1
    )
    row = report.table[-1]
    assert row["format"] == "quarters (function)" and row["seconds"] is None
    assert row["bits"] == pytest.approx(4.5, rel=1e-2) and row["largest"] == np.abs(quarters(w["a"])).max()
    alone = hc.study(w["a"], [mine], device="mac").table[-1]
    assert alone["sqnr_db"] == pytest.approx(hc.error(w["a"], quarters(w["a"])).sqnr_db) and alone["mac_pj"] is None
    assert "quarters (function)" in repr(report) and "quarters (function)" in json.dumps(report.to_dict())
    report.to_html(tmp_path / "page.html")
    assert "quarters (function)" in (tmp_path / "page.html").read_text()
    plan = hc.ptq.search(w, ["int2", mine, "int8"], {"bits": 6})
    assert plan.recipe["a"] == "quarters" and np.array_equal(plan.weights["a"], quarters(w["a"]))
    assert {row["format"] for row in plan.table} <= {"quarters (function)", "int2", "int8"}
    assert "quarters (function)" in json.dumps(plan.to_dict())
    token = reals((1, 2, 5, 32), 3)
    cache = hc.KVCache("quarters", heads=2, width=32)
    cache.add(0, token[:, :, :3], token[:, :, :3])
    k, v = cache.add(0, token[:, :, 3:], token[:, :, 3:])
    assert np.array_equal(k, quarters(token)) and np.array_equal(v, k)


def test_operations_with_codes_refuse_functions(tmp_path: Any) -> None:
    mine, w = hc.define("quarters", round=quarters, bits=4.5, group=16), reals((6, 16), 1)
    images, filters = reals((1, 2, 4, 4), 1), reals((2, 2, 3, 3), 1)
    for call in (
        lambda: hc.quantize(w, mine),
        lambda: hc.matmul(w, w.T, activations="quarters"),
        lambda: hc.linear(w, w, activations=mine),
        lambda: hc.conv2d(images, filters, activations=mine),
        lambda: hc.ptq.gptq(w, np.eye(16), mine),
        lambda: hc.ptq.quantize_checkpoint(tmp_path, tmp_path / "out", {}, mine),
        lambda: hc.study(w, ["int4"], lambda held, activations: {"a": 1.0}, activations=[mine]),
        lambda: hc.KVCache(mine, width=16).room(0, 1),
        lambda: mine.form,
    ):
        with pytest.raises(ValueError, match="'?quarters'?,? (is )?a function of values"):
            call()
    with pytest.raises(ValueError, match="takes no pattern"):
        hc.Sparse(mine, 2, 4)
    with pytest.raises(ValueError, match="without scales"):
        hc.fake_quantize(w, mine, clip=0.5)
    with pytest.raises(ValueError, match="levels are unknown"):
        hc.training.fake_quantize(w, mine, rounding="stochastic")


def test_answers_of_functions_are_checked() -> None:
    w, large = reals((3, 16), 1), np.float64(1e300)
    for i, (made, kind, words) in enumerate(
        (
            (lambda x: x[0], ValueError, r"has shape \(1, 16\), expected \(3, 1, 16\)"),
            (lambda x: x * np.nan, ValueError, "has nan at index"),
            (lambda x: x + large, ValueError, "has inf at index"),
            (lambda x: "text", TypeError, "'str', expected an array of floats"),
            (lambda x: x + 1j, TypeError, "complex.*, expected an array of floats"),
        )
    ):
        with pytest.raises(kind, match=f"fake_quantize: what the function of wrong-{i} returned .*{words}"):
            hc.fake_quantize(w, hc.define(f"wrong-{i}", round=made, bits=4))
    with pytest.raises(ValueError, match=r"w has nan at index \(0, 0\)"):
        hc.fake_quantize(w * np.nan, hc.define("quarters", round=quarters, bits=4.5, group=16))
    with pytest.raises(ZeroDivisionError):  # errors of the function itself are its own
        hc.fake_quantize(w, hc.define("divides", round=lambda x: 1 // 0, bits=4))


def test_definitions_of_functions_are_checked() -> None:
    for name, options, words in (
        ("bad", {"round": 3, "bits": 4}, "round is 3"),
        ("bad", {"round": quarters}, "bits is None"),
        ("bad", {"bits": 4}, "round is None"),
        ("bad", {"round": quarters, "bits": 0}, "bits is 0"),
        ("bad", {"round": quarters, "bits": True}, "bits is True"),
        ("bad", {"round": quarters, "bits": 4, "group": 0}, "group is 0"),
        ("bad", {"round": quarters, "bits": 4, "scale": "f16"}, "parts of a sentence"),
        ("int4", {"round": quarters, "bits": 4}, "is the format string of"),
        (None, {"round": quarters, "bits": 4}, "name is None"),
        ("bad", {}, "element is None"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            hc.define(name, **options)  # type: ignore[arg-type]

    def made() -> hc.Format:
        return hc.define("twice", round=lambda x: x, bits=4)

    assert made() is made()  # a cell of a notebook may run again
    with pytest.raises(ValueError, match="choose another"):
        hc.define("twice", round=quarters, bits=4)


def test_training_in_torch_and_jax_takes_functions() -> None:
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    from heterocompute.interop import jax as hj, torch as ht

    mine, x = hc.define("quarters", round=quarters, bits=4.5, group=16), reals((3, 20), 1)
    t = torch.from_numpy(x).requires_grad_()
    y = ht.fake_quantize(t, mine)
    y.sum().backward()
    assert np.array_equal(y.detach().numpy(), quarters(x)) and (t.grad == 1).all()
    layer = ht.QuantLinear(20, 3, mine)
    assert np.array_equal(layer.rounded(layer.weight).detach().numpy(), quarters(layer.weight.detach().numpy()))
    net = torch.nn.Sequential(layer)
    with pytest.raises(ValueError, match="packed: fmt is 'quarters', a function"):
        ht.packed(net)
    assert str(ht.convert(net, "int8")[0].weight.format) == "int8"  # the format before was that of the training
    found = jax.jit(lambda w: hj.fake_quantize(w, mine))(x)
    assert np.array_equal(np.asarray(found), quarters(x))
