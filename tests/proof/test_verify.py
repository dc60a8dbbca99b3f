"""`heterocompute.verify`: files that come from a base pass, and every planted change is named where it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.cli import main
from heterocompute.files.safetensors import Reader
from heterocompute.proof.sampling import chance_of_missing
from heterocompute.proof.statement import read_statement

WEIGHTS = ("fc.weight", "out.weight")
CASES = [
    ("int4-g32", None),
    ("vsq4-g16-s4", None),
    ("mxfp4", None),
    ("bf16", None),
    ("int8+2:4", None),
    ("int4-g32-asym-f16", "gptq"),
    ("int4-g32-asym-f16", "awq"),
    ("int4-g32-f16", "compressed-tensors"),
    ("nvfp4", "modelopt"),
    ("int4-g32-asym-f16", "mlx"),
    ("q4_0", "gguf"),
    ("q4_k", "gguf"),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    path = str(tmp_path_factory.mktemp("base") / "model.safetensors")
    weights = {name: 0.02 * rng.standard_normal((32, 256), dtype=np.float32) for name in WEIGHTS}
    hc.save(path, {**weights, "fc.bias": rng.standard_normal(32).astype(np.float32)})
    return path


def quantized(base: str, folder: Path, fmt: str, layout: str | None, name: str = "small") -> str:
    """Write a checkpoint with a statement by the command, and return its path."""
    out = str(folder / f"{name}.{'gguf' if layout == 'gguf' else 'safetensors'}")
    more = [] if layout is None else ["--layout", layout]
    assert main(["quantize", base, out, "--format", fmt, "--statement", *more]) == 0
    return out


@pytest.mark.parametrize(("fmt", "layout"), CASES)
def test_a_file_comes_from_its_base(base: str, fmt: str, layout: str | None, tmp_path: Path) -> None:
    out = quantized(base, tmp_path, fmt, layout)
    before = Path(out).read_bytes()
    found = hc.verify(out, base)
    assert found.ok and found.verdict == "verified" and found.code == 0
    assert {one.status for one in found.tensors} == {"equal"} and not found.files
    assert Path(out).read_bytes() == before and sorted(os.listdir(tmp_path)) == sorted(
        [os.path.basename(out), os.path.basename(out) + ".intoto.json"]
    )
    guessed = hc.verify(out, base, guess=True)
    assert guessed.ok and guessed.nearest is not None


def test_a_statement_does_not_depend_on_place_or_time(base: str, tmp_path: Path) -> None:
    texts = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        with hc.use(threads=1 if folder == "a" else 2):
            texts.append(Path(quantized(base, tmp_path / folder, "int4-g32", None) + ".intoto.json").read_text())
    assert texts[0] == texts[1] and str(tmp_path) not in texts[0]


@pytest.mark.parametrize(("fmt", "layout"), [("int4-g32", None), ("mxfp4", None), ("int4-g32-f16", "gptq")])
@pytest.mark.sweep(every=3)
def test_each_planted_bit_of_a_tensor_is_named(base: str, fmt: str, layout: str | None, tmp_path: Path) -> None:
    out = quantized(base, tmp_path, fmt, layout)
    data = bytearray(Path(out).read_bytes())
    with Reader(out) as reader:
        infos = {name: reader.info(name) for name in reader.names}
    begin = 8 + int.from_bytes(data[:8], "little")
    rng = np.random.default_rng(1)
    for _ in range(40):
        at, bit = int(rng.integers(begin, len(data))), int(rng.integers(8))
        part = next(name for name, info in infos.items() if 0 <= at - begin - info.begin < info.nbytes)
        data[at] ^= 1 << bit
        Path(out).write_bytes(data)
        data[at] ^= 1 << bit
        found = hc.verify(out, base, digest=False)
        (row,) = [one for one in found.tensors if one.status != "equal"]
        assert not found.ok and found.code == 1 and row.status == "differs" and row.index is not None
        assert row.name.rpartition(".")[0] == part.split(".")[0]
        assert row.how.startswith(f"one bit: bit {bit} of byte {at - begin - infos[part].begin}")
        assert (part == row.name) or part in row.how
        if layout is None and part.endswith(".codes"):  # the index is that of the value
            own, other = (hc.quantize(hc.load(base)[row.name], fmt), None)
            codes = bytearray(own.components["codes"].tobytes())
            codes[at - begin - infos[part].begin] ^= 1 << bit
            other = own._remade(
                {**own.components, "codes": np.frombuffer(codes, np.uint8).reshape(own.components["codes"].shape)},
                own.shape, own.axis,
            )  # fmt: skip
            wrong = np.argwhere(own.dequantize() != other.dequantize())
            assert [row.index] == [tuple(map(int, one)) for one in wrong] or not len(wrong)  # +0 and -0


def test_each_planted_bit_outside_of_tensors_is_named(base: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    hc.save(str(folder / "model.safetensors"), hc.load(base))
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text('{"version": 1}')
    out = str(tmp_path / "out")
    argv = ["quantize", str(folder), out, "--format", "int4-g32", "--shard-size", "6kB", "--statement"]
    assert main(argv) == 0
    assert hc.verify(out, str(folder)).ok
    rng = np.random.default_rng(2)
    names = sorted(name for name in os.listdir(out) if "statement" not in name)
    assert len(names) == 5
    for i in range(25):
        name = names[i % len(names)]
        path = Path(out) / name
        data = bytearray(path.read_bytes())
        end = 8 + int.from_bytes(data[:8], "little") if name.endswith(".safetensors") else len(data)
        at = int(rng.integers(0, end))
        data[at] ^= 1 << int(rng.integers(8))
        before = path.read_bytes()
        path.write_bytes(data)
        found = hc.verify(out, str(folder), digest=False)
        path.write_bytes(before)
        assert not found.ok and found.code == 1
        assert (name, at) in [(one.name, one.offset) for one in found.files]
    (Path(out) / "extra.bin").write_bytes(b"1")
    (Path(out) / "tokenizer.json").unlink()
    found = hc.verify(out, str(folder), digest=False)
    assert {(one.name, one.how) for one in found.files} == {("extra.bin", "is extra"), ("tokenizer.json", "is missing")}


def test_a_difference_says_how(base: str, tmp_path: Path) -> None:
    weights = hc.load(base)
    out = str(tmp_path / "other.safetensors")
    hc.save(out, {**weights, **{name: hc.quantize(weights[name], "int4-g32", clip="octav") for name in WEIGHTS}})
    found = hc.verify(out, base, "int4-g32")
    assert found.tensors[0].how == "another scale rule: clip='octav' gives these bytes"
    assert hc.verify(out, base, guess=True).nearest == "int4-g32, clip='octav': 2; copied: 1"

    negated = {name: hc.quantize(-weights[name], "int4-g32") for name in WEIGHTS}
    hc.save(out, {**weights, **negated})
    assert "another base" in hc.verify(out, base, "int4-g32").tensors[0].how

    rng = np.random.default_rng(0)
    q = hc.quantize(weights["fc.weight"], "int8")
    codes = q.components["codes"].view(np.int8).copy()
    codes[(rng.random(codes.shape) < 0.1) & (codes < 127)] += np.int8(1)
    rounded = q._remade({**q.components, "codes": codes.view(np.uint8)}, q.shape, q.axis)
    hc.save(out, {**weights, "fc.weight": rounded, "out.weight": hc.quantize(weights["out.weight"], "int8")})
    found = hc.verify(out, base, "int8")
    assert found.tensors[0].how.startswith("another rounding") and found.tensors[1].status == "equal"
    index = found.tensors[0].index
    assert index is not None and codes[index] != q.components["codes"].view(np.int8)[index]
    guessed = hc.verify(out, base, guess=True)
    assert not guessed.ok and "by at most 1 steps" in guessed.tensors[0].how


def test_another_base_has_another_digest(base: str, tmp_path: Path) -> None:
    out = quantized(base, tmp_path, "int4-g32", None)
    other = str(tmp_path / "other.safetensors")
    weights = hc.load(base)
    hc.save(other, {**weights, "fc.bias": weights["fc.bias"] + 1})
    found = hc.verify(out, other)
    assert [one.name for one in found.tensors if one.status != "equal"] == ["fc.bias"]
    assert any(one.how.startswith("base: ") for one in found.files)


def test_guess_finds_rules_of_other_programs(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(3)
    base, out = (str(tmp_path / f"{name}.safetensors") for name in ("base", "out"))
    w = 0.02 * rng.standard_normal((16, 256), dtype=np.float32)
    hc.save(base, {"a.weight": w, "b.weight": w + 1, "c.weight": w})
    truncated = (w.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
    hc.save(out, {"a.weight": truncated, "b.weight": (w + 1).astype(ml_dtypes.bfloat16),
                  "c.weight": w.astype(ml_dtypes.float8_e4m3fn)})  # fmt: skip
    found = hc.verify(out, base, guess=True)
    assert found.ok and found.nearest is not None and found.nearest.split(": 1; ") == [
        "cast to bfloat16, truncated", "cast to bfloat16", "cast to float8_e4m3fn: 1"
    ]  # fmt: skip
    # GPTQ's rtn, asymmetric: scale = (max - min) / 15, codes from the float32 scale
    x = w.reshape(16, 8, 32)
    scale = (np.maximum(x.max(-1), 0) - np.minimum(x.min(-1), 0)) / np.float32(15)
    zero = np.rint(-np.minimum(x.min(-1), 0) / scale)
    codes = np.clip(np.rint(x / scale[..., None]) + zero[..., None], 0, 15).astype(np.uint8).reshape(16, 256)
    q = hc.quantize(w, "int4-g32-asym-f16")
    packed = lambda a: np.ascontiguousarray(a[:, ::2] | a[:, 1::2] << 4)  # noqa: E731
    parts = {"codes": packed(codes), "scales": scale.astype(np.float16), "zero_points": packed(zero.astype(np.uint8))}
    hc.save(out, {"a.weight": q._remade(parts, q.shape, q.axis)})
    hc.save(base, {"a.weight": w})
    found = hc.verify(out, base, guess=True)
    assert found.ok and found.tensors[0].how.startswith("rtn of GPTQ, asymmetric")


def test_calibrated_rounding_needs_its_calibration(base: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    out, inputs, others = (str(tmp_path / name) for name in ("small.safetensors", "x.npz", "y.npz"))
    for path in (inputs, others):
        np.savez(path, **{"fc.weight": rng.standard_normal((64, 256), dtype=np.float32)})
    argv = ["ptq", base, out, "--format", "int4-g32", "--inputs", inputs, "--statement"]
    assert main(argv) == 0
    for calibration, words in ((None, "not given"), (others, "another digest"), (str(tmp_path / "no.npz"), "does not")):
        found = hc.verify(out, base, inputs=calibration)
        assert found.code == 2 and found.verdict.startswith("not checked: calibration") and words in found.verdict
    assert hc.verify(out, base, inputs=inputs).ok
    data = bytearray(Path(out).read_bytes())
    data[-1] ^= 1
    Path(out).write_bytes(data)
    assert hc.verify(out, base, inputs=inputs).code == 1


def test_parts_and_conversions_have_statements(base: str, tmp_path: Path) -> None:
    out = str(tmp_path / "parts")
    for part in ("2/2", "1/2"):
        argv = [
            "quantize",
            base,
            out + os.sep,
            "--format",
            "int8",
            "--shard-size",
            "9kB",
            "--part",
            part,
            "--statement",
        ]
        assert main(argv) == 0
    assert main(["finish", out, "--statement"]) == 0
    assert hc.verify(out, base, workers=2).ok and not list(tmp_path.glob("*.begun*"))
    assert main(["finish", out, "--statement"]) == 1  # no part
    gptq = quantized(base, tmp_path, "int4-g32-f16", "gptq")
    awq = str(tmp_path / "awq.safetensors")
    assert main(["convert", gptq, awq, "--layout", "awq", "--statement"]) == 0
    assert hc.verify(awq, gptq).ok and read_statement(awq + ".intoto.json").command == "convert"
    pruned = str(tmp_path / "pruned.safetensors")
    assert main(["prune", base, pruned, "--pattern", "2:4", "--statement"]) == 0
    assert hc.verify(pruned, base).ok and hc.verify(pruned, base, "2:4").ok


def test_a_sample_says_what_it_may_miss(base: str, tmp_path: Path) -> None:
    out = quantized(base, tmp_path, "int4-g32", None)
    found = hc.verify(out, base, sample=1, seed=5)
    assert found.ok and found.seed == 5 and "probability 0.667" in found.verdict
    assert [one.status for one in found.tensors].count("unchecked") == 2
    assert hc.verify(out, base, sample=1, seed=5).tensors == found.tensors
    assert hc.verify(out, base, sample=1).seed != hc.verify(out, base, sample=1).seed
    assert chance_of_missing(10, 10) == 0 and chance_of_missing(10, 5) == 0.5
    halves = [hc.verify(out, base, part=f"{k}/2").tensors for k in (1, 2)]
    assert all((a.status == "equal") != (b.status == "equal") for a, b in zip(*halves, strict=True))


HOSTILE: list[tuple[Any, str]] = [
    (lambda s: s.update(_type="x"), "_type"),
    (lambda s: s.update(predicateType="x"), "predicateType"),
    (lambda s: s["predicate"].update(more=1), "predicate"),
    (lambda s: s["predicate"].pop("base"), "predicate"),
    (lambda s: s["predicate"].update(command="rm"), "command"),
    (lambda s: s["predicate"]["options"].update(progress=1), "options"),
    (lambda s: s["predicate"]["options"].update(format={"a": 1}), "options"),
    (lambda s: s["predicate"].update(calibration=[]), "calibration"),
    (lambda s: s["predicate"].update(recipe=[["a"]]), "recipe"),
    (lambda s: s["subject"][0].update(name="../x"), "path"),
    (lambda s: s["subject"][0].update(name="/etc/passwd"), "path"),
    (lambda s: s["subject"][0]["digest"].update(sha256="00"), "64"),
    (lambda s: s["predicate"]["base"][0]["digest"].update(sha256="z" * 64), "64"),
    (lambda s: s["subject"].append(s["subject"][0]), "twice"),
    (lambda s: s.update(subject=[]), "empty"),
    (lambda s: s.update(subject=s["predicate"]["base"]), "same files"),
    (lambda s: s["predicate"]["options"].update(format="nonsense"), "nonsense"),
    (lambda s: s["predicate"].update(base="x" * 100_000), "base"),
    (lambda s: s["predicate"]["options"].update(fallback=7), "fallback is 7"),
    (lambda s: s["predicate"]["options"].update(include=["*a" * 2000] * 50), "*a*a"),
    (lambda s: s["predicate"].update(command="convert", options={}), "options have no layout"),
    (lambda s: s["predicate"]["tensors"][0]["digest"].update(sha256="a" * 65), "64"),
    (lambda s: s["subject"][0]["digest"].update(sha256="\u0663" * 64), "64"),
]


@pytest.mark.parametrize(("change", "words"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_statement_is_one_sentence(
    base: str, change: Any, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = quantized(base, tmp_path, "int4-g32", None)
    place = Path(out + ".intoto.json")
    statement = json.loads(place.read_text())
    change(statement)
    place.write_text(json.dumps(statement))
    capfd.readouterr()
    assert main(["verify", out, "--from", base]) == 2
    error = capfd.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("heterocompute verify: ")]
    assert len(lines) == 1 and words in lines[0] and len(lines[0]) < 600


POOL: list[Any] = [
    None, True, -1, 0, 10**30, 1e300, "", "x" * 5000, "a\nb", "\x1b[2J", "../../etc/passwd", "/etc/passwd", "..", ".",
    "a\\b", "C:x", "\u202e", "0" * 63, "g" * 64, "0" * 64, "F" * 64, [], {}, [[[]]], {"sha256": "0"}, {"": ""}, ["*"],
]  # fmt: skip


def mutated(statement: Any, rng: np.random.Generator) -> bytes:
    """Return the bytes of a statement with one to three changes at drawn places, of values, keys or bytes."""
    for _ in range(rng.integers(1, 4)):
        places: list[tuple[Any, Any]] = []
        stack = [statement]
        while stack:
            one = stack.pop()
            for key, value in one.items() if isinstance(one, dict) else enumerate(one):
                places.append((one, key))
                stack += [value] if isinstance(value, (dict, list)) else []
        if not places:
            break
        one, key = places[rng.integers(len(places))]
        kind, value = rng.integers(5), POOL[rng.integers(len(POOL))]
        if kind == 0:
            del one[key]
        elif kind == 1 and isinstance(one, dict):
            one[str(value)[:100]] = json.loads(json.dumps(one[key]))
        elif kind == 2 and isinstance(one[key], str) and one[key]:
            at = int(rng.integers(len(one[key])))
            one[key] = one[key][:at] + chr(rng.integers(1, 300)) + one[key][at + 1 :]
        elif kind == 3:
            for _ in range(40):
                one[key] = [one[key]]
        else:
            one[key] = json.loads(json.dumps(value))
    data = bytearray(json.dumps(statement).encode())
    for _ in range(rng.integers(0, 2)):
        data[rng.integers(len(data))] = rng.integers(256)
    return bytes(data[: rng.integers(len(data))] if rng.integers(8) == 0 else data)


@pytest.mark.parametrize("seed", range(8))
def test_drawn_changes_of_a_statement_are_one_sentence(base: str, seed: int, tmp_path: Path) -> None:
    out = quantized(base, tmp_path, "int4-g32", None)
    place, rng, refused = Path(out + ".intoto.json"), np.random.default_rng(seed), 0
    exact = place.read_text()
    digests = {one.split('"')[0] for one in exact.split('"sha256": "')[1:]}
    for _ in range(25):
        place.write_bytes(data := mutated(json.loads(exact), rng))
        try:
            found = hc.verify(out, base)
        except (ValueError, OSError, TypeError) as error:
            text, refused = str(error), refused + 1
            assert text.isprintable() and len(text) < 600, (data, text)
            continue
        assert found.code in (0, 1, 2), data
        assert not found.ok or all(one.encode() in data for one in digests), data
    assert refused > 15


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a":' * 100, "[" * 200_000, "\x00", '{"_type": 1, "_type": 2}'])
def test_other_files_are_not_statements(base: str, text: str, tmp_path: Path) -> None:
    out = quantized(base, tmp_path, "int4-g32", None)
    place = Path(out + ".intoto.json")
    place.write_text(text)
    with pytest.raises(ValueError, match="intoto.json") as error:
        hc.verify(out, base)
    assert "\n" not in str(error.value)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(ValueError, match="regular file"):
        hc.verify(out, base)


def test_unknown_fields_outside_of_the_predicate_are_ignored(base: str, tmp_path: Path) -> None:
    out = quantized(base, tmp_path, "int4-g32", None)
    place = Path(out + ".intoto.json")
    statement = json.loads(place.read_text())
    statement["extension"] = {"a": [1]}
    statement["subject"][0]["annotations"] = {}
    place.write_text(json.dumps(statement))
    assert hc.verify(out, base).ok


def test_exit_codes_of_the_command(base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = quantized(base, tmp_path, "int4-g32", None)
    capsys.readouterr()
    assert main(["verify", out, "--from", base, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "verified"
    assert main(["verify", out, "--from", base, "--recipe", "int8"]) == 1
    for argv in (
        ["--from", base, "--recipe", "nonsense"],
        [],
        ["--from", out + "x"],
        ["--from", base, "--part", "3/2"],
    ):
        assert main(["verify", out, *argv]) == 2
    Path(out + ".intoto.json").unlink()
    assert main(["verify", out, "--from", base]) == 2
    other = tmp_path / "other.safetensors"
    for content in (b"", b"not a checkpoint", b"\xff" * 100):
        other.write_bytes(content)
        assert main(["verify", str(other), "--from", base, "--recipe", "int8"]) == 2
    with pytest.raises(ValueError, match="no statement"):
        hc.verify(out, base)


def test_filters_have_recipes(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    base, out = (str(tmp_path / f"{name}.safetensors") for name in ("base", "out"))
    hc.save(base, {"conv.weight": rng.standard_normal((8, 4, 3, 3), dtype=np.float32)})
    hc.quantize_checkpoint(base, out, "int8")
    assert hc.verify(out, base, guess=True).nearest == "int8: 1" and hc.verify(out, base, "int8").ok


def test_guess_finds_the_rule_of_float8_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((200, 300)).astype(np.float32) * np.exp(rng.standard_normal((200, 1))).astype(np.float32)
    base, out = tmp_path / "base.safetensors", tmp_path / "out.safetensors"
    hc.save(base, {"a.weight": w})
    rows, columns = np.arange(200) // 128, np.arange(300) // 128
    largest = np.zeros((2, 3), np.float32)
    np.maximum.at(largest, (rows[:, None], columns[None]), np.abs(w))
    each = largest[rows][:, columns]
    most = np.float32(448)
    ways = {
        "max / 448": (w / (each / most), largest / most),
        "max / 448, multiplied": (w * (most / each), largest / most),
        "1 / (448 / max)": (w * (most / each), 1 / (most / largest)),
        "powers of two": (w / np.exp2(np.ceil(np.log2(each / most))), np.exp2(np.ceil(np.log2(largest / most)))),
    }
    for rule, (scaled, scales) in ways.items():
        codes = np.clip(scaled, -most, most).astype(ml_dtypes.float8_e4m3fn)
        hc.save(out, {"a.weight": codes, "a.weight_scale_inv": scales.astype(np.float32)})
        found = hc.verify(out, base, guess=True)
        assert found.ok and str(found.nearest).startswith("float8_e4m3fn in blocks of 128 x 128"), found
        assert rule in str(found.nearest) or np.array_equal(ways["max / 448"][1], scales), (rule, found.nearest)
        codes.view(np.uint8)[150, 290] ^= 1
        hc.save(out, {"a.weight": codes, "a.weight_scale_inv": scales.astype(np.float32)})
        found = hc.verify(out, base, guess=True)
        assert not found.ok and found.tensors[0].index == (150, 290) and "0.00% of the codes" in found.tensors[0].how


def test_guess_knows_scales_of_16_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    w = rng.standard_normal((20, 64)).astype(np.float32)
    base, out = tmp_path / "base.safetensors", tmp_path / "out.safetensors"
    hc.save(base, {"a.weight": w})
    scales = np.abs(w).max(axis=1, keepdims=True) / np.float32(448)
    codes = (w / scales).astype(ml_dtypes.float8_e4m3fn)
    for dtype in (ml_dtypes.bfloat16, np.float16):
        hc.save(out, {"a.weight": codes, "a.weight_scale": scales.astype(dtype)})
        found = hc.verify(out, base, guess=True)
        assert found.ok and f"scales in {np.dtype(dtype)}" in str(found.nearest), found


def test_guess_checks_columns_in_a_stored_order(tmp_path: Path) -> None:
    w = np.random.default_rng(4).standard_normal((16, 64)).astype(np.float32)
    base, plain, out = (tmp_path / f"{name}.safetensors" for name in ("base", "plain", "out"))
    order = np.random.default_rng(5).permutation(64)
    hc.save(base, {"a.weight": w[:, np.argsort(order)]})  # w is the base in the order of activations
    hc.save(tmp_path / "turned.safetensors", {"a.weight": w})
    hc.quantize_checkpoint(tmp_path / "turned.safetensors", plain, "int4-g32-asym-f16", layout="gptq")
    parts = dict(hc.load(plain))
    # Row i of the file belongs to column i of the model: packed codes are moved to their columns.
    codes = parts["a.qweight"].view(np.uint32)
    nibbles = ((codes[:, None, :] >> (4 * np.arange(8, dtype=np.uint32))[None, :, None]) & 15).reshape(64, -1)
    moved = nibbles[np.argsort(order)].reshape(8, 8, -1)
    packed = (moved << (4 * np.arange(8, dtype=np.uint32))[None, :, None]).sum(axis=1, dtype=np.uint32)
    parts["a.qweight"] = packed.view(np.int32)
    parts["a.g_idx"] = (np.argsort(order) // 32).astype(np.int32)
    hc.save(out, parts)
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": True,
              "checkpoint_format": "gptq_v2"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    found = hc.verify(out, base, guess=True)
    assert found.ok and "columns in the stored order" in found.tensors[0].how, found.tensors


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_guess_knows_the_casts_of_pytorch(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    from safetensors.torch import save_file

    torch.manual_seed(0)
    w = torch.randn(32, 64) * torch.exp(3 * torch.randn(32, 1))
    save_file({"a.weight": w}, tmp_path / "base.safetensors")
    save_file({"a.weight": w.to(getattr(torch, name))}, tmp_path / "out.safetensors")
    found = hc.verify(tmp_path / "out.safetensors", tmp_path / "base.safetensors", guess=True)
    assert found.ok and str(found.nearest).startswith(f"cast to {name}")  # of large values another in each version


def test_a_second_rounding_has_a_recipe(base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"  # the layout is that of the ending
    assert main(["quantize", base, str(first), "--format", "q8_0"]) == 0
    assert main(["quantize", str(first), str(second), "--format", "q4_0", "--requantize"]) == 0
    assert hc.verify(second, first, "q4_0").verdict == "verified"
    assert not hc.verify(second, first, "q4_1").ok
    capsys.readouterr()
    assert main(["verify", str(second), "--from", str(first)]) == 2
    error = capsys.readouterr().err
    assert "--recipe" in error and "--guess" in error
