"""`heterocompute.vectors`: tables equal other libraries, files agree, and common bugs of casts are exposed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.cli import main
from heterocompute.proof.golden import KINDS

Array = np.ndarray[Any, Any]
DTYPES = {
    "fp8_e4m3fn": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e4m3fn-nosat": "float8_e4m3fn",
    "fp8_e5m2-nosat": "float8_e5m2",
    "fp6_e2m3": "float6_e2m3fn",
    "fp6_e3m2": "float6_e3m2fn",
    "fp4_e2m1": "float4_e2m1fn",
    "bf16": "bfloat16",
    "fp16": "float16",
}


def columns(folder: Path, kind: str) -> dict[str, Array]:
    rows = json.loads((folder / f"{kind}.json").read_text())["rows"]
    return {name: np.array([[int(word, 16) for word in row[name]] for row in rows], np.uint64) for name in rows[0]}


def floats(words: Array) -> Array:
    return words.astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("fmt", [name for name in DTYPES if name not in ("bf16", "fp16")])
def test_codes_and_casts_equal_ml_dtypes(fmt: str, tmp_path: Path) -> None:
    dtype = np.dtype(getattr(ml_dtypes, DTYPES[fmt], np.float16))
    hc.vectors(fmt, tmp_path / "v", kinds=["codes", "casts"])
    table = columns(tmp_path / "v", "codes")
    values = table["code"].astype(np.uint8).view(dtype).astype(np.float32)
    np.testing.assert_array_equal(floats(table["value"]), values)
    table = columns(tmp_path / "v", "casts")
    x = floats(table["input"])
    with np.errstate(all="ignore"):
        if "nosat" not in fmt:  # ml_dtypes overflows to NaN or infinity
            most = float(ml_dtypes.finfo(dtype).max)
            x = np.where(np.isnan(x), x, np.clip(x, -most, most))
        casts = x.astype(dtype)
    known = ~np.isnan(x) if "fp8" in fmt else np.isfinite(x)  # a NaN has several codes
    np.testing.assert_array_equal(table["code"][known], casts.view(np.uint8)[known].astype(np.uint64))


@pytest.mark.parametrize("fmt", ["fp8_e4m3fn", "fp8_e5m2", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1"])
def test_codes_and_casts_equal_gfloat(fmt: str, tmp_path: Path) -> None:
    gfloat = pytest.importorskip("gfloat")
    from gfloat import formats

    info = getattr(formats, f"format_info_ocp_{fmt.partition('_')[2].removesuffix('fn')}")
    hc.vectors(fmt, tmp_path / "v", kinds=["codes", "casts"])
    table = columns(tmp_path / "v", "codes")
    for code, value in zip(table["code"][:, 0].tolist(), floats(table["value"])[:, 0].tolist(), strict=True):
        np.testing.assert_equal(gfloat.decode_float(info, code).fval, value)
    table = columns(tmp_path / "v", "casts")
    pairs = zip(floats(table["input"])[:, 0].tolist(), table["code"][:, 0].tolist(), strict=True)
    known = [(x, code) for x, code in pairs if np.isfinite(x)]  # infinities saturate here, a NaN has several codes
    assert len(known) > 40
    for x, code in known:
        assert code == gfloat.encode_float(info, gfloat.round_float(info, x, sat=True)), x


@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_long_casts_equal_ml_dtypes(fmt: str, tmp_path: Path) -> None:
    hc.vectors(fmt, tmp_path / "v", kinds=["casts"], count=16)
    table = columns(tmp_path / "v", "casts")
    x = floats(table["input"])
    with np.errstate(all="ignore"):
        found = x.astype(getattr(ml_dtypes, DTYPES[fmt], np.float16)).view(np.uint16)
    known = np.abs(floats(table["value"])) < np.float32(65504 if fmt == "fp16" else 3e38)
    assert known.sum() > 500 and (table["code"][known] == found[known]).all()


@pytest.mark.parametrize("fmt", ["mxfp4", "nvfp4", "int4-g32-asym", "vsq4-g16-s4", "nf4-g64", "fp8_e5m2", "int8"])
@pytest.mark.sweep(every=7)
def test_stored_groups_decode_to_the_stated_values(fmt: str, tmp_path: Path) -> None:
    kinds = hc.vectors(fmt, tmp_path / "v", count=24)["kinds"]
    assert set(kinds) <= set(KINDS) and {"codes", "casts", "dots"} <= set(kinds)
    for kind in {"casts", "scales"} & set(kinds):
        table = columns(tmp_path / "v", kind)
        q = hc.quantize(floats(table["input"]), fmt)
        np.testing.assert_array_equal(floats(table["value"]), q.dequantize())
    values = floats(columns(tmp_path / "v", "codes")["value"])[:, 0]
    table = columns(tmp_path / "v", "casts")
    if fmt not in ("int4-g32-asym", "fp8_e5m2"):
        scale = floats(table["value"])[:, :1] / values[np.isfinite(values)].max()
        found = values[table["code"].astype(np.int64)] * scale
        np.testing.assert_allclose(floats(table["value"]), found, rtol=1e-6)
        assert len(np.unique(table["code"])) >= len(values) - 2  # every code but -0 and the lowest integer is a result


def test_sums_equal_exact_arithmetic(tmp_path: Path) -> None:
    hc.vectors(
        "int8", tmp_path / "v", kinds=["dots"], count=40, length=256, accumulators=["int32", "int16-sat", "int12-wrap"]
    )
    table = columns(tmp_path / "v", "dots")
    a, b = (table[name].astype(np.uint8).view(np.int8).astype(np.int64) for name in "ab")
    sums = {name: table[f"sum_{name}"].view(np.int64)[:, 0] for name in ("int32", "int16-sat", "int12-wrap")}
    assert (sums["int32"] == (a * b).sum(1)).all()
    assert (sums["int12-wrap"] == ((a * b).sum(1) + 2048) % 4096 - 2048).all()
    one = np.zeros(len(a), np.int64)
    for k in range(a.shape[1]):
        one = np.clip(one + a[:, k] * b[:, k], -(2**15), 2**15 - 1)
    assert (sums["int16-sat"] == one).all() and (one != (a * b).sum(1)).any()


def test_random_numbers_decide_stochastic_rounding(tmp_path: Path) -> None:
    hc.vectors("fp4_e2m1", tmp_path / "v", kinds=["stochastic"], seed=7)
    table = columns(tmp_path / "v", "stochastic")
    x, y = floats(table["input"]).astype(np.float64), floats(table["value"])
    u = table["random"].astype(np.float64) * 2.0**-53
    levels = np.array([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6])
    below = np.clip(np.searchsorted(levels, x, "right") - 1, 0, len(levels) - 2)
    low, high = levels[below], levels[below + 1]
    np.testing.assert_array_equal(y, np.where(u < (x - low) / (high - low), high, low))


def test_rows_of_a_pattern_decode(tmp_path: Path) -> None:
    hc.vectors("int8", tmp_path / "v", kinds=["nm"], pattern="2:4", count=8)
    table = columns(tmp_path / "v", "nm")
    scales = floats(table["scales"])
    dense = floats(table["dense"])
    found = np.zeros_like(dense)
    codes = table["code"].astype(np.uint8).view(np.int8)
    group = codes.shape[1] // scales.shape[1]
    for row in range(8):
        for i, (code, position) in enumerate(zip(codes[row], table["position"][row], strict=True)):
            found[row, i // 2 * 4 + int(position)] = np.float32(code) * scales[row, i // group]
    np.testing.assert_array_equal(found, dense)


def test_every_file_has_the_same_words(tmp_path: Path) -> None:
    manifest = hc.vectors("mxfp4", tmp_path / "v", count=12, length=8, accumulators=["fp32"])
    assert json.loads((tmp_path / "v" / "manifest.json").read_text()) == manifest
    names = {"manifest.json"}
    for kind, one in manifest["kinds"].items():
        table = columns(tmp_path / "v", kind)
        for name, digest in one["files"].items():
            names.add(name)
            assert hashlib.sha256((tmp_path / "v" / name).read_bytes()).hexdigest() == digest
        lines = (tmp_path / "v" / f"{kind}.hex").read_text().splitlines()[1:]
        words = np.array([[int(word, 16) for word in line.split()] for line in lines], np.uint64)
        assert (words == np.concatenate(list(table.values()), 1)).all()
        for name, column in table.items():
            bits = one["columns"][name]["bits"]
            memory = [int(line, 16) for line in (tmp_path / "v" / f"{kind}.{name}.mem").read_text().split()]
            assert [
                [row >> (i * bits) & (2**bits - 1) for i in range(column.shape[1])] for row in memory
            ] == column.tolist()
    assert names == set(os.listdir(tmp_path / "v"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_the_header_compiles(tmp_path: Path) -> None:
    hc.vectors("mxfp4", tmp_path / "v", count=6, length=4, accumulators=["fp32"])
    lines = "".join(f'#include "{path.name}"\n' for path in sorted((tmp_path / "v").glob("*.h")))
    (tmp_path / "v" / "main.c").write_text(f"{lines}int main(void) {{ return codes_value[1][0] != 0x3f000000; }}\n")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-variable", "-Wno-unused-const-variable", "-Werror",
               "main.c", "-o", "main"]  # fmt: skip
    subprocess.run(command, cwd=tmp_path / "v", check=True)
    subprocess.run(["./main"], cwd=tmp_path / "v", check=True)


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="no iverilog")
def test_a_planted_bug_is_found_in_verilog(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/vectors.md").read_text()
    source = re.findall(r"^```verilog\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    hc.vectors("int8", tmp_path / "v", kinds=["dots"], length=32, accumulators=["int16-sat"])
    for code, is_right in ((source, True), (source.replace("32767", "32766"), False)):
        (tmp_path / "v" / "mac.v").write_text(code)
        subprocess.run(["iverilog", "-g2012", "-o", "mac", "mac.v"], cwd=tmp_path / "v", check=True)
        out = subprocess.run(["vvp", "mac"], cwd=tmp_path / "v", capture_output=True, text=True, check=True).stdout
        assert ("0 wrong" in out) is is_right


@pytest.mark.parametrize("bug", ["nan for a clamp", "ties away", "truncated", "flushes subnormals", "no negative zero"])
def test_common_bugs_are_exposed(bug: str, tmp_path: Path) -> None:
    hc.vectors("fp8_e5m2", tmp_path / "v", kinds=["casts"])
    table = columns(tmp_path / "v", "casts")
    x, wanted = floats(table["input"])[:, 0], table["code"][:, 0].astype(np.uint8)
    most = np.float32(57344)
    clipped = np.where(np.isnan(x), x, np.clip(x, -most, most)).astype(ml_dtypes.float8_e5m2)
    right = np.isfinite(x)
    assert (clipped.view(np.uint8)[right] == wanted[right]).all()
    found = clipped.view(np.uint8).copy()
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).view(np.uint16)
    if bug == "nan for a clamp":
        found[np.abs(x) > most] = 0x7F
    elif bug == "ties away":
        found = (half + np.uint16(0x80) >> 8).astype(np.uint8)
    elif bug == "truncated":
        found = (half >> 8).astype(np.uint8)
    elif bug == "flushes subnormals":
        found[(found & 0x7C) == 0] &= 0x80
    else:
        found[found == 0x80] = 0
    assert (found[right] != wanted[right]).any()


def test_bytes_depend_on_the_arguments_alone(tmp_path: Path) -> None:
    manifests = []
    for i, (threads, seed) in enumerate([(1, 0), (2, 0), (1, 1)]):
        with hc.use(threads=threads):
            manifests.append(hc.vectors("vsq4-g16-s4", tmp_path / str(i), seed=seed, count=8, length=8))
    assert manifests[0] == manifests[1] != manifests[2]


def test_own_formats_have_vectors(tmp_path: Path) -> None:
    fmt = hc.define(None, hc.Minifloat(3, 2), group=16, scale="e8m0")
    assert hc.vectors(fmt, tmp_path / "v", count=8, length=8)["kinds"]["codes"]["rows"] == 64


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    for options, words in (
        ({"kinds": ["nonsense"]}, "kinds has 'nonsense'"),
        ({"kinds": ["scales"]}, "has no scales"),
        ({"count": 0}, "count is 0"),
        ({"accumulators": ["int99-sat"]}, "int99-sat"),
        ({"kinds": ["nm"], "pattern": "x"}, "nm"),
    ):
        with pytest.raises(ValueError, match=words):
            hc.vectors("fp8_e4m3fn", tmp_path / "v", **options)
    with pytest.raises(TypeError, match="kinds"):
        hc.vectors("fp8_e4m3fn", tmp_path / "v", kinds="codes")
    assert not (tmp_path / "v").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(ValueError, match="not an empty folder"):
        hc.vectors("fp8_e4m3fn", tmp_path / "full")


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vectors", "fp4_e2m1", str(tmp_path / "v"), "--kinds", "codes,casts", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["kinds"]) == {"codes", "casts"}
    assert main(["vectors", "int8", str(tmp_path / "w"), "--accumulators", "int32", "--kinds", "dots"]) == 0
    assert "sum_int32 64x1" in capsys.readouterr().out
    assert main(["vectors", "nonsense", str(tmp_path / "x")]) == 2
    assert main(["vectors", "int8", str(tmp_path / "v")]) == 1
