"""Sentences: their grammar, the formats of the package said as sentences, products, blocks of rows, and `define`."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc
from heterocompute import reference
from heterocompute.formats import Integer, Levels, Minifloat
from heterocompute.formats.defining import from_definition
from heterocompute.formats.elements.text import element
from heterocompute.formats.own import Own
from heterocompute.reference import product

FLOATS = {"fp8_e4m3fn": "e4m3fn", "fp8_e5m2": "e5m2", "fp6_e3m2": "e3m2", "fp6_e2m3": "e2m3", "fp4_e2m1": "e2m1",
          "bf16": "e8m7", "fp16": "e5m10"}  # fmt: skip
MICROSCALED = {"fp8_e4m3": "e4m3fn", "fp8_e5m2": "e5m2", "fp6_e3m2": "e3m2", "fp6_e2m3": "e2m3", "fp4": "e2m1",
               "int8": "int8f6"}  # fmt: skip


def pairs() -> list[tuple[str, Own]]:
    """Return formats of the package, and the same as sentences."""
    found: list[tuple[str, Any]] = [("nvfp4", hc.format("e2m1-g16-e4m3fn-f32tensor"))]
    for bits in (2, 3, 4, 5, 6, 7, 8):
        found += [(f"int{bits}", Own(Integer(bits))), (f"int{bits}-g5", Own(Integer(bits), group=5))]
        found += [(f"int{bits}-g16-f16", Own(Integer(bits), "f16", 16)), (f"int{bits}-f16", Own(Integer(bits), "f16"))]
    for bits, group, scale in ((4, 16, 4), (8, 16, 10), (3, 5, 9), (2, 16, 4)):
        found.append((f"vsq{bits}-g{group}", Own(Integer(bits), group=group)))
        for sign, shared in (("", ""), ("u", ""), ("", "-tensor"), ("u", "-tensor")):
            second = "tensor" if shared else "row"
            own = Own(Integer(bits, signed=not sign), f"s{scale}", group, second=second)
            found.append((f"vsq{bits}{sign}-g{group}-s{scale}{shared}", own))
    for name, text in FLOATS.items():
        for saturate in (True, False):
            kind, raw = element(text), "" if saturate else "-nosat"
            if saturate or kind.table().nan is not None:
                found += [
                    (f"{name}{raw}", Own(kind, saturate=saturate)),
                    (f"{name}{raw}-row", Own(kind, "f32", saturate=saturate)),
                ]
                found += [(f"{name}{raw}-tensor", Own(kind, per="tensor", saturate=saturate)),
                          (f"{name}{raw}-g16", Own(kind, group=16, saturate=saturate))]  # fmt: skip
    for name, text in MICROSCALED.items():
        for rule in ("floor", "ceil", "rceil", "even"):
            suffix = "" if rule == "floor" else f"-{rule}"
            found.append((f"mx{name}{suffix}", Own(element(text), "e8m0", 32, rule=rule)))
    found += [(f"nf4-g{group}", Own(Levels.normal_float(4), group=group)) for group in (64, 5)]
    for text in ("log8-8", "log8-1", "log8-32", "log7-16", "log5-2", "log4-1", "log2-1"):
        found += [(text, Own(element(text))), (f"{text}-g16", Own(element(text), group=16))]
    return found


PAIRS = pairs()


@pytest.mark.parametrize(("text", "own"), PAIRS, ids=[text for text, _ in PAIRS])
@pytest.mark.sweep(every=4)
def test_formats_of_the_package_have_the_bytes_of_their_sentences(text: str, own: Own) -> None:
    fmt, rng = hc.format(text), np.random.default_rng(len(text))
    assert own != fmt and type(fmt) is not Own
    for turn in range(6):
        shape = (int(rng.integers(1, 6)), int(rng.integers(1, 70)))
        x = (rng.standard_normal(shape) * 4.0 ** rng.integers(-6, 6)).astype(rng.choice([np.float32, np.float64]))
        if turn == 1:
            x = np.round(x * 2) / 2
        elif turn == 2:
            x[rng.random(shape) < 0.4] *= -0.0
        elif turn == 3:
            x[:] = 0
        elif turn == 4 and (text.startswith("mx") or not fmt.form.has_scales):
            x[0, 0] = np.nan if text.startswith(("mx", "bf", "fp1")) else np.inf if "nosat" not in text else 1
        elif turn == 5:
            x *= 1e-30
        axis = int(rng.integers(0, 2))
        a, b = hc.quantize(x, fmt, axis=axis), hc.quantize(x, own, axis=axis)
        assert a.components.keys() == b.components.keys()
        for name, part in a.components.items():
            assert part.dtype == b.components[name].dtype and part.tobytes() == b.components[name].tobytes(), name
        assert same_bits(a.dequantize(), b.dequantize()) and same_bits(
            a.dequantize(np.float64), b.dequantize(np.float64)
        )
    x = reals((5, 33), 3)
    for clip in (0.5, "octav", "percentile:99"):
        try:
            a = hc.quantize(x, fmt, clip=clip)
        except ValueError:
            with pytest.raises(ValueError, match="clip"):
                hc.quantize(x, own, clip=clip)
        else:
            b = hc.quantize(x, own, clip=clip)
            assert all(part.tobytes() == b.components[name].tobytes() for name, part in a.components.items())


@pytest.mark.parametrize("text", Own.examples)
@pytest.mark.sweep(every=4)
def test_a_sentence_is_its_definition(text: str) -> None:
    fmt, rng = hc.format(text), np.random.default_rng(len(text))
    assert str(fmt) == text and hc.format(str(fmt)) == fmt
    for turn in range(4):
        shape = (int(rng.integers(1, 20)), int(rng.integers(1, 60)))
        x = (rng.standard_normal(shape) * 4.0 ** rng.integers(-3, 3)).astype(rng.choice([np.float32, np.float64]))
        if turn == 1:
            x[:] = 0
        axis = int(rng.integers(0, 2))
        q, wanted = hc.quantize(x, fmt, axis=axis), reference.quantize(x, fmt, axis=axis)
        for name, part in wanted.items():
            assert q.components[name].tobytes() == np.asarray(part).tobytes(), name
        assert same_bits(q.dequantize(), reference.dequantize(wanted, fmt, x.shape, axis))


@pytest.mark.parametrize(
    "text", [*Own.examples, "int4f2", "int8f3", "e2m3-row", "ternary", "binary", "uint8-g16-s8-f32row"]
)
@pytest.mark.parametrize("activations", [None, "int8", "int8-g32", "mxfp4"])
@pytest.mark.sweep(every=4)
def test_products_have_the_bits_of_the_definition(text: str, activations: str | None) -> None:
    q = hc.quantize(reals((6, 70), 2), text)
    for rows in (1, 5, 12):
        x: Any = reals((rows, 70), rows)
        x = x if activations is None else hc.quantize(x, activations)
        assert same_bits(hc.matmul(x, q.T), product.matmul(x, q.T))


def test_texts_have_one_form() -> None:
    for text, near in (
        ("int4-row", "int4"), ("int4-f32", "int4"), ("e2m1-g32-f32", "e2m1-g32"), ("e4m3ieee", "e4m3"),
        ("ternary-g8-absmax", "ternary-g8"), ("e3m4-g8-e8m0-floor", "e3m4-g8-e8m0"), ("posit8.1@4-row", "posit8.1-row"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"the nearest is '{near}'"):
            hc.format(text)
    assert type(hc.format("int4-g32")) is hc.Int and type(hc.format("log5-3")) is Own
    assert str(hc.define(None, "int4", group=32)) == "int4-g32" and hc.define(None, "int4", group=32) != hc.format(
        "int4-g32"
    )
    assert hc.define(None, "posit8.1@2", group=8) == hc.define(None, "posit8.1", group=8, target=2)


def test_every_target_has_a_sentence() -> None:
    for target in (1e-9, 0.1, 2.5, 999999.5):
        fmt = hc.define(None, "takum8", target=target)
        assert hc.format(str(fmt)) == fmt, str(fmt)
    for target in (1 / 3, 3e37):
        with pytest.raises(ValueError, match="expected below 1e9, with at most 9 decimals"):
            hc.define(None, "takum8", target=target)
    with pytest.raises(ValueError, match="target is 2.0, the largest number of ternary is 1.0, expected 1e-09 to 1.0"):
        hc.format("ternary@2")


def test_powers_of_two_are_an_element() -> None:
    x = np.float32([[0, -0.0, -3, np.nan, np.inf, 1.4, 1.5, 2.9]])
    q = hc.quantize(x, "e8m0")
    assert q.components["codes"][0].tolist() == [0, 0, 0, 255, 254, 127, 128, 128]
    assert same_bits(q.dequantize(), reference.dequantize(q.components, q.format, x.shape, 1))
    assert hc.error(np.abs(reals((4, 64), 1)), hc.quantize(np.abs(reals((4, 64), 1)), "e8m0-g16")).sqnr_db > 14


def test_targets_and_means_change_scales() -> None:
    x = reals((4, 64), 5)
    near, far = (hc.error(x, hc.quantize(x, text)).sqnr_db for text in ("posit8.1-row", "posit8.1@4096-row"))
    assert near > far + 20  # most numbers of a posit are near 1
    q = hc.quantize(x, "ternary-g16-absmean")
    means = np.abs(x).reshape(4, 4, 16).astype(np.float64).mean(axis=-1).astype(np.float32)
    np.testing.assert_allclose(q.components["scales"], means, rtol=1e-7)
    b = hc.quantize(x[:, :61], "binary-g16-absmean")  # the padding of the last group does not count
    last = np.abs(x[:, 48:61]).astype(np.float64).mean(axis=-1)
    np.testing.assert_allclose(b.components["scales"][:, 3], last, rtol=1e-7)


def test_blocks_share_scales_over_rows() -> None:
    x = reals((10, 20), 4)
    for text in ("e2m1-b4x8-e4m3fn-f32tensor", "e4m3fn-b4x8", "int4-b4x8", "int4-b4x8-e8m0", "ternary-b4x8-absmean"):
        q = hc.quantize(x, text)
        assert q.components["scales"].shape == (3, 3)
        assert np.array_equal(q[4:8].dequantize(), q.dequantize()[4:8]) and np.array_equal(
            q[8:].dequantize(), q.dequantize()[8:]
        )
        for index in (1, slice(1, 3), slice(0, 3), slice(0, 8, 2), slice(None, None, -1)):
            with pytest.raises(ValueError, match="multiples of 4 rows"):
                q[index]
    whole = hc.quantize(x, "int4-b4x8")
    absmax = np.abs(np.pad(x, ((0, 2), (0, 4)))).reshape(3, 4, 3, 8).max(axis=(1, 3))
    assert np.array_equal(whole.components["scales"], absmax / np.float32(7))
    square = hc.quantize(reals((16, 16), 1), "e4m3fn-b8x8")
    y = reals((3, 16), 2)
    np.testing.assert_allclose(hc.matmul(y, square.T), y @ square.dequantize().T, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep(every=0)
def test_defined_formats_are_formats_as_any_other(tmp_path: Path) -> None:
    fmt = hc.define("mine-e3m4", Minifloat(3, 4, specials="fnuz"), scale="e8m0", group=32)
    assert hc.define("mine-e3m4", "e3m4fnuz", scale="e8m0", group=32) == fmt == hc.format("mine-e3m4")
    levels = hc.define("mine-levels", Levels([-1, -0.3, 0, 0.2, 1]), scale="f16", group=16)
    nameless = hc.define(None, Levels([-1, 0.25, 1], [-0.5, 0.5]), group=16)
    assert str(fmt) == "mine-e3m4" and fmt.sentence == "e3m4fnuz-g32-e8m0" and hc.format(str(nameless)) == nameless
    x = reals((8, 64), 1)
    formats = (fmt, levels, nameless, hc.format("mine-e3m4+2:4"), hc.format("ternary-g32-absmean"))
    for i, one in enumerate(formats):
        q = hc.quantize(x, one)
        assert pickle.loads(pickle.dumps(q)) == q == copy.deepcopy(q)
        hc.save(tmp_path / f"a{i}.safetensors", {"w": q, "plain": x})
        found = hc.load(tmp_path / f"a{i}.safetensors")["w"]
        assert found == q and found.format == one
        (tmp_path / f"values{i}").write_bytes(q.dequantize().tobytes())
    # in a process that has defined none of them; the last file first, so that none is there by the name of another
    call = "import sys, heterocompute as hc\nfor i in map(int, sys.argv[2:]):\n"
    call += "    q = hc.load(f'{sys.argv[1]}/a{i}.safetensors')['w']\n    print(q.format)\n"
    call += "    assert q.dequantize().tobytes() == open(f'{sys.argv[1]}/values{i}', 'rb').read()\n"
    order = [str(i) for i in reversed(range(len(formats)))]
    command = [sys.executable, "-c", call, str(tmp_path), *order]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert made.stdout.split() == [str(one) for one in reversed(formats)]
    hc.save(tmp_path / "b.safetensors", {"w": hc.quantize(x, "int8")})
    for name, version in ((f"a{len(formats) - 1}", 2), ("b", 1)):
        raw = (tmp_path / f"{name}.safetensors").read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        assert json.loads(header["__metadata__"]["heterocompute"])["version"] == version


def test_drawn_definitions_are_formats_or_sentences() -> None:
    junk: list[Any] = [
        None, True, 0, -1, 2, 3.5, float("nan"), float("inf"), 1 << 31, 1 << 80, 10**400, "", "f32", "e8m0", "e4m3fn",
        "s4", "row", "tensor", "absmean", "x" * 70000, [], [0, 1], {}, {"levels": []}, {"levels": [1, 0]},
        {"levels": [float("nan"), 1]}, {"levels": list(range(300))}, {"levels": [0, 1], "thresholds": [2]},
        {"levels": [0, 1], "thresholds": "a"}, {"levels": [0, 1e308]}, {"levels": [10**400, 1]}, {"levels": [True, 2]},
        "int4", "e3m4", "int99", "e9m9", "posit8.9", "takum99", "ternary", "e3m4b999", "binary8p9se", "e4m3\n",
    ]  # fmt: skip
    names = ["element", "scale", "group", "block_rows", "per", "second", "rule", "target", "saturate", "name", "more"]
    rng, known = np.random.default_rng(0), 0
    for _ in range(4000):
        chosen = [*rng.choice(names, rng.integers(0, 4), replace=False), *(["element"] if rng.random() < 0.9 else [])]
        definition = {name: junk[rng.integers(0, len(junk))] for name in chosen}
        try:
            found: Any = from_definition(definition, "int4")
        except ValueError as problem:
            assert "\n" not in str(problem) and len(str(problem)) < 600
            known += "the text beside it" in str(problem)
        else:
            known += hc.quantize(reals((3, 20), 1), found).shape == (3, 20)
    assert known > 50
    for text in ("{", "{}", "{" * 100000, '{"format": 1, "definition": 2}', '{"a": NaN}'):
        with pytest.raises(ValueError, match="is not a definition, expected JSON"):
            hc.format(text)


def test_hostile_definitions_in_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    hc.save(path, {"w": hc.quantize(reals((4, 32), 1), hc.define(None, Levels([-1, 0, 1]), group=16))})
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    about = json.loads(header["__metadata__"]["heterocompute"])
    good = about["tensors"]["w"]["definition"]
    for bad in (
        {"element": {"levels": [0, float("nan")]}}, {"element": {"levels": [1, 0, -1]}}, {"element": {"levels": []}},
        {"element": {"levels": list(range(500))}}, {"element": {"levels": "x"}}, {"element": 3}, {"group": 2**31},
        {"element": "e9m9"}, {"scale": "s99"}, {"surplus": 1}, {"name": "../x"}, {"name": "other"}, {"group": 8}, [],
        None,
        {"element": {"levels": [-1, 0, 1], "thresholds": [5, 6]}}, {"saturate": 1}, {"per": []},
    ):  # fmt: skip
        about["tensors"]["w"]["definition"] = {**good, **bad} if isinstance(bad, dict) else bad
        header["__metadata__"]["heterocompute"] = json.dumps(about)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + body)
        with pytest.raises(ValueError, match="a.safetensors"):
            hc.load(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "int8"}, "choose another"), ({"name": "X"}, "name is 'X'"), ({"name": "a b"}, "name is"),
        ({"name": "levels3_0123abcd"}, "levels without a name"),
        ({"element": "foo"}, "is not an element"), ({"scale": "s4"}, "without a second level"),
        ({"scale": "f64"}, "scale is 'f64'"),
        ({"scale": "s1", "second": "row", "group": 4}, "'s2' to 's10'"),
        ({"second": "tensor", "group": 4}, "second is 'tensor'"),
        ({"scale": "e8m0", "group": 4, "rule": "absmean"}, "rule is 'absmean'"), ({"rule": "floor"}, "rule is 'floor'"),
        ({"group": 3, "block": (2, 2)}, "one of both"), ({"per": "tensor", "group": 3}, "one of both"),
        ({"per": "tensor", "scale": "f16"}, "per is 'tensor'"), ({"group": 2**31}, "group is 2147483648"),
        ({"block": (0, 4)}, "define: block_rows is 0"), ({"group": 0}, "define: group is 0"),
        ({"block": (4, 4), "scale": "s4", "second": "tensor"}, "block"),
        ({"element": "e2m1", "saturate": False}, "no infinity or NaN beyond its largest"),
        ({"target": 1e9}, "target is"), ({"element": Levels([0, 1e-10]), "target": 1e-10}, "expected None below 1e-09"),
        ({"element": "ternary", "scale": "e8m0", "group": 4, "rule": "even"}, "rule is 'even'"),
        ({"rounding": "up"}, "rounding"),
        ({"element": Levels([0, 1e-38]), "scale": "ue4m3b40", "second": "tensor", "group": 8}, "is 0 in float32"),
        ({"element": "posit8.1@2", "target": 3}, "one of both"), ({"element": "posit8.1@x"}, "a number after the @"),
    ],
)  # fmt: skip
def test_what_cannot_be_defined_is_said_at_once(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hc.define(**{"name": None, "element": "int4", **arguments})


def test_wrong_types_are_named() -> None:
    for arguments in (
        {"block": (4, None)},
        {"element": 3},
        {"name": 3},
        {"group": 1.5},
        {"block": 4},
        {"scale": 4},
        {"saturate": 1},
        {"target": "x"},
    ):
        with pytest.raises(TypeError, match="expected"):
            hc.define(**{"name": None, "element": "int4", **arguments})  # type: ignore[arg-type]
    hc.define("taken", "int4")
    with pytest.raises(ValueError, match="taken"):
        hc.define("taken", "int5")


@pytest.mark.parametrize("sharing", ["-row", "-g8", "-b2x8", "-g8-s4-f32row", "-g8-e4m3fn-f32tensor", "-tensor"])
def test_scales_of_small_targets_saturate(sharing: str, tmp_path: Path) -> None:
    """limit / target is beyond float32 for numbers like these."""
    fmt = hc.format(f"e2m2b15{sharing}")
    w = np.float32([[3e38, -1e38, 2e37] * 5, [1, -3.4e38, 0] * 5])
    q, wanted = hc.quantize(w, fmt), reference.quantize(w, fmt)
    for name, part in wanted.items():
        assert q.components[name].tobytes() == np.asarray(part).tobytes(), name
        assert name == "codes" or np.isfinite(part).all()
    decoded = q.dequantize()
    assert same_bits(decoded, reference.dequantize(wanted, fmt, w.shape, -1)) and np.isfinite(decoded).all()
    hc.save(tmp_path / "q.safetensors", {"q": q})
    assert hc.load(tmp_path / "q.safetensors")["q"] == q


@pytest.mark.parametrize("name", ["int8", "e3m4-row", "q4_k", "int99", "none", "skip", "f16"])
def test_names_do_not_shadow_other_formats_and_words(name: str) -> None:
    text = json.dumps({"format": name, "definition": {"element": "binary", "scale": "f32", "name": name}})
    for call in (lambda: hc.define(name, "binary"), lambda: hc.format(text)):
        with pytest.raises(ValueError, match=f"name is '{name}', .*; choose another"):
            call()


def test_pickles_of_levels_are_checked_and_known_where_they_are_read() -> None:
    fmt = hc.define(None, Levels([-1, 0.375, 2], [-0.5, 1]), group=4)
    code = "import pickle, sys, heterocompute as hc; f = pickle.load(sys.stdin.buffer); print(hc.format(str(f)) == f)"
    call = [sys.executable, "-c", code]
    assert subprocess.run(call, input=pickle.dumps(fmt), capture_output=True, check=True).stdout.strip() == b"True"
    with pytest.raises(ValueError, match="numbers that as float32 ascend"):
        pickle.loads(pickle.dumps(fmt, 0).replace(b"F0.375", b"F-3.75"))


def test_an_own_mask_is_kept() -> None:
    w, rng = reals((4, 10, 3), 1), np.random.default_rng(2)
    for axis in (-1, 1, (2, 1), 0):
        mask = hc.prune_mask(w, "2:4", axis=axis)
        assert hc.prune(w, "2:4", axis=axis, mask=mask) == hc.prune(w, "2:4", axis=axis)
        fewer, holed = mask & (rng.random(w.shape) < 0.7), w.copy()
        fewer[0, 0, 0], holed[0, 0, 0] = False, np.nan
        assert np.array_equal(hc.prune(holed, "2:4", axis=axis, mask=fewer).to_dense(), np.where(fewer, w, 0))
    every = np.zeros(w.shape, bool)
    every[1, 4:8, 2] = True
    with pytest.raises(ValueError, match=r"keeps 4 values of the block of 4 that begins at index \(1, 4, 2\)"):
        hc.prune(w, "2:4", axis=1, mask=every)
    with pytest.raises(TypeError, match="mask"):
        hc.prune(w, "2:4", axis=1, mask=every.astype(int))
    for wrong in ({"mask": every[0]}, {"mask": every, "scores": w}, {"mask": every, "pattern": "50%"}):
        with pytest.raises(ValueError, match="mask"):
            hc.prune(**{"w": w, "pattern": "2:4", "axis": 1, **wrong})
