"""The effect of accumulators: emulation strings, emulated layers, the built-in network and studies of both."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.arrays.components import component_layout
from heterocompute.cli import command as cli
from heterocompute.reference import emulation

RANDOM = np.random.default_rng(3)
AXES: dict[int, tuple[int, ...]] = {4: (2, 3, 1), 2: (1,)}


def quantized(weights: dict[str, Any], fmt: str) -> dict[str, Any]:
    return {name: hc.quantize(w, fmt, axis=AXES[w.ndim]) if w.ndim > 1 else w for name, w in weights.items()}


@pytest.fixture(scope="module")
def net() -> hc.zoo.Digits:
    return hc.zoo.digits()


# Texts.


def test_texts_are_arguments_of_matmul() -> None:
    assert hc.emulate.parse("int32") == {"accumulator": "int32"}
    assert hc.emulate.parse("int24-sat-p8") == {"accumulator": "int24-sat", "scale_product_bits": 8}
    assert hc.emulate.parse("hmma-v100") == {"instruction": "hmma-v100"}
    for text in ("fp16", "float64", "bf16", "int2-wrap", "int63-sat", *hc.emulate.INSTRUCTIONS):
        hc.emulate.parse(text)


def test_a_text_that_is_like_none_gets_the_list() -> None:
    with bad_argument(ValueError, None, "value", "'foo'.*int32.*hmma-b200-e5m2.*int2-sat.*int63-wrap"):
        hc.emulate.parse("foo")


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("int16-stat", "int16-sat"),
        ("INT32", "int32"),
        ("hmma-h10", "hmma-h100"),
        ("int24-sat-p99", "int24-sat-p16"),
        ("int24-sat-p1", "int24-sat-p2"),
        ("fp16-p8", "fp16"),
        ("dp4a-p8", "dp4a"),
        ("int64-sat", "int6-sat"),
    ],
)
def test_a_text_that_is_none_names_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is not a known emulation; the nearest is '{nearest}'"):
        hc.emulate.parse(text)
    with pytest.raises(ValueError, match=f"nearest is '{nearest}'"):
        hc.study(np.eye(4, dtype=np.float32), "int8", lambda weights, **options: 1.0, emulate=["int32", text])


@pytest.mark.parametrize(
    ("text", "activations", "weights", "expected"),
    [
        ("int16-sat", "int8", "vsq4-g16-s4", True),
        ("int16-sat", None, "int8", False),
        ("int16-sat", "int8", None, False),
        ("int16-sat", "int8", "mxfp4", False),
        ("int24-sat-p8", "int8", "vsq4-g16-s4", True),
        ("int24-sat-p8", "int8", "int4", False),
        ("dp4a", "int8", "int8", True),
        ("dp4a", "int8", "vsq4-g16-s4", False),
        ("int24-sat", "log8-8", "log8-8", True),
        ("int24-sat", "int8", "log8-8", False),
        ("float64", "int8", "int8", False),
        ("hmma", None, None, True),
        ("fp16", "int8", "nvfp4", True),
    ],
)
def test_what_an_emulation_accepts_is_what_it_multiplies(
    text: str, activations: Any, weights: Any, expected: bool
) -> None:
    assert hc.emulate.accepts(text, activations, weights) is expected
    x, w = (RANDOM.standard_normal((2, 64), dtype=np.float32) for _ in range(2))
    q = w if weights is None else hc.quantize(w, weights)
    if expected:
        assert hc.emulate.linear(x, q, None, activations, text).shape == (2, 2)
    else:
        with pytest.raises(ValueError, match=r"emulate\.matmul"):
            hc.emulate.linear(x, q, None, activations, text)


def test_an_accumulator_without_room_for_a_row_is_not_accepted() -> None:
    assert hc.emulate.accepts("int8-sat", "log8-8", "log8-8", length=100)
    assert not hc.emulate.accepts("int8-sat", "log8-8", "log8-8", length=200)


# Layers.


@pytest.mark.parametrize(
    ("weights", "activations"),
    [
        ("int8", "int8"),
        ("int3-asym", "int8-asym"),
        ("vsq4-g16-s4", "int8"),
        ("vsq4-g5-s4", "vsq4u-g16-s6"),
        ("vsq4-g16", "int8"),
        ("int4-g16-f16", "int8-g5"),
        ("vsq4-g64-s8", "vsq8u-g64-s8"),
    ],
)
@pytest.mark.parametrize("channels", [1, 32, 40])
def test_wide_accumulators_give_the_bits_of_the_plain_layers(weights: str, activations: str, channels: int) -> None:
    x = np.maximum(RANDOM.standard_normal((3, channels, 6, 7), dtype=np.float32), 0)
    w, bias = RANDOM.standard_normal((4, channels, 3, 2), dtype=np.float32), RANDOM.standard_normal(4, dtype=np.float32)
    q = hc.quantize(w, weights, axis=(2, 3, 1))
    for stride, padding in ((1, (1, 0)), ((2, 1), 2), (3, "same")):
        plain = hc.conv2d(x, q, bias, stride, padding, activations=activations)
        assert np.array_equal(hc.emulate.conv2d(x, q, bias, stride, padding, activations, "int40-sat"), plain)
    rows, flat = x.reshape(3, -1), hc.quantize(RANDOM.standard_normal((4, channels * 42), dtype=np.float32), weights)
    plain = hc.linear(rows, flat, bias, activations=activations)
    assert np.array_equal(hc.emulate.linear(rows, flat, bias, activations, "int40-sat"), plain)


def test_every_format_gives_the_plain_convolution_or_is_not_accepted() -> None:
    x, w = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((2, 40, 4, 4), (3, 40, 3, 3)))
    accepted = set()
    for text in (text for family in hc.Format.families() for text in family.examples):
        q = hc.quantize(w, text, axis=(2, 3, 1))
        if hc.emulate.accepts("int40-sat", "int8", text, 360):
            found = hc.emulate.conv2d(x, q, None, 1, 1, "int8", "int40-sat")
            assert np.array_equal(found, hc.conv2d(x, q, None, 1, 1, activations="int8")), text
            accepted.add(q.format.family)
        else:
            with pytest.raises(ValueError, match="emulate"):
                hc.emulate.conv2d(x, q, None, 1, 1, "int8", "int40-sat")
    assert {"int", "vsq"} <= accepted


def windows(image: np.ndarray, stride: int) -> np.ndarray:
    """Return the 3 x 3 windows of images (n, H, W, C) with a margin of 1 as (windows, r s c)."""
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    n, height, width, _ = padded.shape
    places = [(i, y, x) for i in range(n) for y in range(0, height - 2, stride) for x in range(0, width - 2, stride)]
    return np.stack([padded[i, y : y + 3, x : x + 3].reshape(-1) for i, y, x in places])


@pytest.mark.parametrize(("text", "bits", "width"), [("int13-sat", 13, None), ("int17-sat-p3", 17, 3)])
def test_convolution_is_the_definition_in_the_order_r_s_c(text: str, bits: int, width: int | None) -> None:
    """The definition multiplies matrices: the windows of the codes, with the scale of their image."""
    x, w = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((2, 32, 4, 4), (3, 32, 3, 3)))
    image, q = hc.quantize(x, "int8", axis=(2, 3, 1)), hc.quantize(w, "vsq4-g16-s4", axis=(2, 3, 1))
    assert component_layout(q.format, (3, 288), (1,)) == component_layout(q.format, q.shape, q.axis)
    codes = windows(image.components["codes"].reshape(2, 4, 4, 32), 2)
    scales = image.components["scales"].repeat(4, axis=0)
    a = hc.QuantizedArray({"codes": codes, "scales": scales}, image.format, codes.shape, (1,))
    b = hc.QuantizedArray(q.components, q.format, (3, 288), (1,))
    expected = emulation.codes_product(a, b, bits, True, None, width, "exact")
    assert not np.array_equal(expected, hc.matmul(a, b.T))  # something was lost
    found = hc.emulate.conv2d(x, q, None, 2, 1, "int8", text)
    assert np.array_equal(found.transpose(0, 2, 3, 1).reshape(8, 3), expected)


@pytest.mark.parametrize("text", ["hmma", "hfma"])
def test_convolution_of_floats_is_rounded_to_what_the_instruction_multiplies(text: str) -> None:
    x, w = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((2, 5, 4, 4), (3, 5, 3, 3)))
    preset, q = hc.emulate.INSTRUCTIONS[text], hc.quantize(w, "nvfp4", axis=(2, 3, 1))
    a = windows(x.astype(np.float16).transpose(0, 2, 3, 1), 1).astype(np.float32)
    b = q.dequantize().astype(np.float16).transpose(0, 2, 3, 1).reshape(3, 45).astype(np.float32)
    kind = preset.accumulators[0]
    expected = emulation.float_product(
        a, b, kind, preset.chunk or 1, preset.aligned_bits, preset.rounding(kind), "fp16"
    )
    found = hc.emulate.conv2d(x, q, None, 1, 1, None, text)
    assert np.array_equal(found.transpose(0, 2, 3, 1).reshape(32, 3), expected)


@pytest.mark.parametrize("text", ["fp8_e4m3fn", "fp4_e2m1-tensor", "cb4-tensor"])
def test_convolution_takes_formats_without_an_axis(text: str) -> None:
    x, w = RANDOM.standard_normal((1, 4, 5, 5)), RANDOM.standard_normal((3, 4, 3, 3))
    q, turned = hc.quantize(w, text), hc.quantize(w, text, axis=(2, 3, 1))
    assert np.array_equal(q.dequantize(), turned.dequantize())
    assert np.array_equal(hc.emulate.conv2d(x, q, emulate="fp16"), hc.emulate.conv2d(x, turned, emulate="fp16"))


def test_log_numbers_in_windows() -> None:
    x, w = (RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((2, 12, 4, 4), (3, 12, 3, 3)))
    for weights, activations in (("log8-8", "log8-8"), ("log8-8-g5", "log6-8-g8")):
        q = hc.quantize(w, weights, axis=(2, 3, 1))
        image = hc.quantize(x, activations, axis=(2, 3, 1)).dequantize(np.float64)
        expected = windows(image.transpose(0, 2, 3, 1), 1) @ q.dequantize(np.float64).transpose(2, 3, 1, 0).reshape(
            108, 3
        )
        found = hc.emulate.conv2d(x, q, None, 1, 1, activations, "float64").transpose(0, 2, 3, 1).reshape(32, 3)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_layers_refuse_what_does_not_fit() -> None:
    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 3, 3), np.float32)
    q = hc.quantize(w, "int8", axis=(2, 3, 1))
    for wrong in (
        lambda: hc.emulate.conv2d(x[:, :1], q, activations="int8"),
        lambda: hc.emulate.conv2d(x[0], q, activations="int8"),
        lambda: hc.emulate.conv2d(x, hc.quantize(w, "int8", axis=1), activations="int8"),
        lambda: hc.emulate.conv2d(x, q, stride=0, activations="int8"),
        lambda: hc.emulate.conv2d(x, q, padding="some", activations="int8"),
        lambda: hc.emulate.conv2d(x, q),
        lambda: hc.emulate.linear(x, w, activations="int8"),
    ):
        with pytest.raises(ValueError, match="emulate"):
            wrong()


# The network.


def test_the_network_in_int32_has_the_logits_of_the_plain_products(net: hc.zoo.Digits) -> None:
    for fmt in ("int8", "vsq4-g16-s4"):
        weights, x = quantized(net.weights, fmt), net.test_x[:100]
        assert np.array_equal(net.forward(weights, x, "int8", "int32"), net.forward(weights, x, "int8"))


def test_a_dense_layer_is_computed_as_ever_where_codes_are_multiplied(net: hc.zoo.Digits) -> None:
    weights, x = {**net.weights, "fc1.weight": hc.quantize(net.weights["fc1.weight"], "int8")}, net.test_x[:50]
    plain = net.forward(weights, x, "int8")
    assert np.array_equal(net.forward(weights, x, "int8", "int32"), plain)
    assert not np.array_equal(net.forward(weights, x, "int8", "int12-sat"), plain)
    assert not np.array_equal(net.forward(net.weights, x, None, "bf16"), net.forward(net.weights, x))
    with bad_argument(ValueError, "accumulator", "dtype"):
        net.forward(weights, x, None, "int16-sat")


# Studies.


@pytest.mark.sweep(every=0)
def test_narrow_accumulators_cost_the_shipped_network_its_accuracy(net: hc.zoo.Digits) -> None:
    r = hc.study(net, ["int8", "nvfp4"], emulate=["int32", "int16-sat", "int12-sat"])
    found = {(row["format"], row["activations"], row["emulate"]): row["accuracy"] for row in r.table}
    assert list(found) == [  # float formats, float activations and the baseline have no integers to add
        ("fp32", None, None),
        ("fp32", "int8", None),
        ("int8", None, None),
        ("int8", "int8", None),
        ("int8", "int8", "int32"),
        ("int8", "int8", "int16-sat"),
        ("int8", "int8", "int12-sat"),
        ("nvfp4", None, None),
        ("nvfp4", "int8", None),
    ]
    plain, exact, short, far_too_short = [
        found["int8", "int8", text] for text in (None, "int32", "int16-sat", "int12-sat")
    ]
    assert plain == exact > short + 0.03
    assert far_too_short < 0.2 < 0.9 < short


def test_one_layer_of_a_function_of_ones_own(net: hc.zoo.Digits) -> None:
    """The table of docs/emulate.md: only layer fc1 is emulated, the rest is unchanged."""
    h = net.test_x
    for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 2)):
        h = np.maximum(hc.conv2d(h, net.weights[f"{name}.weight"], net.weights[f"{name}.bias"], stride, padding=1), 0)
    h = h.reshape(len(h), -1)

    def evaluate(weights: dict[str, Any], activations: Any = None, emulate: str | None = None) -> float:
        w, bias = weights["fc1.weight"], weights["fc1.bias"]
        linear = hc.linear if emulate is None else hc.emulate.linear
        y = linear(h, w, bias, activations, *([] if emulate is None else [emulate]))
        logits = hc.linear(np.maximum(y, 0), weights["fc2.weight"], weights["fc2.bias"])
        return float((logits.argmax(axis=1) == net.test_y).mean())

    texts = {"int32": 0.995, "int18-sat": 0.995, "int16-sat": 0.993, "int15-sat": 0.977, "int16-wrap": 0.574}
    r = hc.study(net.weights, "int8", evaluate, include="fc1.weight", activations="int8", emulate=list(texts))
    found = {row["emulate"]: row["evaluate"] for row in r.table if row["emulate"]}
    assert {text: round(value, 3) for text, value in found.items()} == texts


def study_of(evaluate: Any, **options: Any) -> hc.Study:
    weights = {"a": RANDOM.standard_normal((8, 64), dtype=np.float32), "b": np.eye(8, 40, dtype=np.float32)}
    return hc.study(weights, evaluate=evaluate, **options)


def test_rows_that_make_no_sense_are_left_out() -> None:
    calls: list[tuple[Any, ...]] = []

    def evaluate(weights: dict[str, Any], activations: Any, emulate: Any) -> float:
        calls.append((isinstance(weights["a"], hc.QuantizedArray), activations, emulate))
        return len(calls)

    formats = ["vsq4-g16-s4", {"a": "int8"}, {"a": "int8", "b": "int4"}]
    steps: list[tuple[int, int]] = []
    r = study_of(
        evaluate,
        formats=formats,
        activations=["int8"],
        emulate=["none", "int16-sat-p4", "dp4a", "dp4a", "fp32"],
        timing=True,
        progress=lambda done, total, text: steps.append((done, total)),
    )
    found = [(row["format"], row["activations"], row["emulate"]) for row in r.table]
    everywhere = [(text, kind, e) for text in ("fp32",) for kind in (None, "int8") for e in (None, "fp32")]
    assert found[:4] == everywhere
    assert found[4:] == [
        ("vsq4-g16-s4", None, None), ("vsq4-g16-s4", None, "fp32"),
        ("vsq4-g16-s4", "int8", None), ("vsq4-g16-s4", "int8", "int16-sat-p4"), ("vsq4-g16-s4", "int8", "fp32"),
        ("a=int8", None, None), ("a=int8", None, "fp32"), ("a=int8", "int8", None), ("a=int8", "int8", "fp32"),
        ("a=int8 b=int4", None, None), ("a=int8 b=int4", None, "fp32"),
        ("a=int8 b=int4", "int8", None), ("a=int8 b=int4", "int8", "dp4a"), ("a=int8 b=int4", "int8", "fp32"),
    ]  # fmt: skip
    assert [row["evaluate"] for row in r.table] == list(range(1, len(found) + 1))
    assert [(None if a is None else str(a), e) for _, a, e in calls] == [row[1:] for row in found]
    assert all((row["seconds"] is None) == (row["emulate"] is not None) for row in r.table)
    assert steps[-1] == (steps[-1][1],) * 2 and [done for done, _ in steps] == list(range(len(steps)))


def test_the_keyword_alone_and_a_function_without_it(tmp_path: Path) -> None:
    r = study_of(lambda weights, emulate: 0.5 if emulate else 1.0, formats="int8", emulate="fp16")
    assert [(row["emulate"], row["evaluate"]) for row in r.table] == [(None, 1.0), ("fp16", 0.5)] * 2
    with bad_argument(TypeError, "evaluate", "type"):
        hc.study(tmp_path / "absent", "int8", lambda weights: 1.0, emulate="fp16")
    with bad_argument(TypeError, "evaluate", "type"):
        hc.study(tmp_path / "absent", "int8", lambda weights, activations: 1.0, activations="int8", emulate="fp16")
    with bad_argument(ValueError, "emulate", "missing"):
        study_of(None, formats="int8", emulate="int32")
    with bad_argument(ValueError, "emulate", "value"):
        study_of(lambda weights, emulate: 1.0, formats=["int8", "int4"], emulate=["fp16", "int32"])
    with bad_argument(TypeError, None, "type", "emulate: 3 is of type int, expected a str"):
        study_of(lambda weights, emulate: 1.0, formats="int8", emulate=[3])
    with bad_argument(ValueError, "evaluate", "value"):
        study_of(lambda weights: {"emulate": 1.0}, formats="int8")


def test_the_column_is_everywhere_and_only_where_asked_for(tmp_path: Path) -> None:
    r = study_of(lambda weights, emulate: 0.5 if emulate else 1.0, formats="int8", emulate=["fp16"])
    assert [row["emulate"] for row in json.loads(json.dumps(r.to_dict()))["rows"]] == [None, "fp16"] * 2
    r.to_csv(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", encoding="utf-8") as file:
        assert [row["emulate"] for row in csv.DictReader(file)] == ["", "fp16"] * 2
    r.to_html(tmp_path / "t.html")
    for text in (repr(r), r._repr_html_(), (tmp_path / "t.html").read_text(encoding="utf-8")):
        assert "fp16" in text and "emulate" in text
    assert r.pareto() == [r.table[2]]  # int8 as it is: for fewer bits than fp32, better than in fp16
    plain = study_of(lambda weights: 1.0, formats="int8")
    assert plain.table[0]["emulate"] is None and "emulate" not in repr(plain)


def test_emulated_rows_are_drawn_against_the_width_of_their_accumulator() -> None:
    pytest.importorskip("matplotlib")
    r = study_of(lambda weights, emulate: 0.5 if emulate else 1.0, formats="int8", emulate="fp16")
    figure = r.plot()
    bits, widths = [
        sorted(point for line in axes.lines if line.get_gid() == "dot" for point in zip(*line.get_data(), strict=True))
        for axes in (figure.axes[0], figure.axes[-1])
    ]
    assert [y for _, y in bits] == [1.0, 1.0] and widths == [(16, 0.5), (64, 1.0)]
    assert "accumulator" in figure.axes[-1].get_xlabel()


@pytest.mark.sweep(every=0)
def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "--formats", "int4", "--emulate", "none,int9-sat", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["format"], row["activations"], row["emulate"]) for row in rows] == [
        ("fp32", None, None), ("fp32", "int8", None),
        ("int4", None, None), ("int4", "int8", None), ("int4", "int8", "int9-sat"),
    ]  # fmt: skip
    assert rows[4]["accuracy"] < 0.5 < rows[3]["accuracy"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["study", "--emulate", "int16-stat"])
    assert stop.value.code == 2 and "the nearest is 'int16-sat'" in capsys.readouterr().err
