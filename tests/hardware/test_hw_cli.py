"""The commands devices, count and roofline, and study --device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from common import run

from heterocompute import hardware as hw


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_devices_lists_all_with_marks(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "devices")
    assert code == 0 and all(name in out for name in hw.devices())
    rows = run_json(capsys, "devices", "--kind", "tpu")["devices"]
    assert {row["name"] for row in rows} == set(hw.devices("tpu"))
    rows = run_json(capsys, "devices", "--year", "2012")["devices"]
    assert [row["name"] for row in rows] == ["k20x"] and rows[0]["peak.fp32"] == 3.94e12
    assert "33.3?" in run(capsys, "devices", "--kind", "fpga")[1]


def test_one_device_shows_every_figure_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "devices", "a100-sxm-80gb")
    figures = {row["figure"]: row for row in found["figures"]}
    assert figures["peak.int8"]["value"] == 624e12 and all(row["source"] for row in found["figures"])
    code, out, _ = run(capsys, "devices", "alveo-u250")
    assert code == 0 and "33.3e12 operations/s?" in out and "DDR4" in out


def test_a_table_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[device.mine]\ntitle = "Mine"\npeak_tops = { int8 = 4 }\nbandwidth_gb_s = 50\n')
    assert [row["name"] for row in run_json(capsys, "devices", "--device-file", str(path))["devices"]] == ["mine"]
    code, out, _ = run(capsys, "devices", "mine", "--device-file", str(path))
    assert code == 0 and "80.0" in out


def test_count_prints_what_count_returns(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "count", "resnet50", "--like", "thop")
    assert found["total"] == 4_133_742_592 and found["unit"] == "MAC" and len(found["layers"]) > 100
    found = run_json(capsys, "count", "bert_base", "--input", "384", "--batch", "2")
    assert found["macs"] == 2 * 35_333_406_720
    code, out, _ = run(capsys, "count", "alexnet")
    assert code == 0 and "61,100,840 parameters" in out and "Not counted" in out


def test_context_counts_one_token_in_every_command_with_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    token = hw.networks["gpt2"].decoding(100)
    found = run_json(capsys, "roofline", "gpt2", "t4", "--context", "100", "--kv-cache", "int8")
    assert found["traffic"] == hw.roofline(token, "t4", kv_cache="int8").traffic
    rotated = run_json(capsys, "roofline", "gpt2", "t4", "--context", "100", "--kv-cache", "int4-g32+had32")
    assert rotated["kv_cache"] == "int4-g32+had32"
    assert rotated["traffic"] == hw.roofline(token, "t4", kv_cache="int4-g32").traffic < found["traffic"]
    assert "which rotates values" in run(capsys, "roofline", "gpt2", "t4", "--format", "int4-g32+had")[2]
    assert "keys and values int8" in run(capsys, "roofline", "gpt2", "t4", "--context", "9", "--kv-cache", "int8")[1]
    assert run_json(capsys, "count", "gpt2", "--context", "100")["macs"] == hw.count(token).macs
    found = run_json(capsys, "accelerators", "gpt2", "tpu_v1", "--context", "100")
    assert sum(row["macs"] for row in found["layers"]) == hw.count(token).macs


def test_several_devices_have_one_row_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("roofline", "Llama-3.1-8B", "h100-sxm, l40s", "--context", "8192", "--batch", "64", "--kv-cache",
                 "int8", "--format", "int4-g128-f16")  # fmt: skip
    found = run_json(capsys, *arguments)
    rows = hw.compare(
        "llama3_1_8b", ["h100-sxm", "l40s"], format="int4-g128-f16", context=8192, batch=64, kv_cache="int8"
    )
    assert [row["device"] for row in found["devices"]] == ["h100-sxm", "l40s"]
    assert all(row[key] == one[key] for row, one in zip(found["devices"], rows, strict=True) for key in row)
    code, out, _ = run(capsys, *arguments, "--html", str(tmp_path / "rows.html"))
    assert code == 0 and "tokens/s" in out and "weights int4-g128-f16, keys and values int8" in out.replace("\n", " ")
    assert "l40s" in (tmp_path / "rows.html").read_text()
    code, _, errors = run(capsys, "roofline", "gpt2", "t4,l4", "--plot", "a.png")
    assert code == 2 and "--plot needs one DEVICE" in errors
    code, _, errors = run(capsys, "roofline", "gpt2", "t4,l9")
    assert code == 1 and "'l9' is not a known device" in errors


@pytest.mark.parametrize(("arguments", "words"), [
    (("count", "gpt2", "--context", "5", "--input", "8"), "--input does not apply with --context, which is one token"),
    (("count", "gpt2", "--context", "-1"), "--context is -1, expected a number from 0 up"),
    (("count", "gpt2", "--input", ""), "--input is '', expected positive numbers"),
    (("accelerators", "--context", "5"), "--context needs MODEL"),
    (("roofline", "gpt2", "t4", "--kv-cache", "int8"), "--kv-cache needs --context"),
    (("roofline", "gpt2", "t4", "--context", "5", "--kv-cache", "int99"), "format: 'int99' is not"),
    (("accelerators", "--input", "8"), "--input needs MODEL"),
    (("explore", "digits", "--objective", "energy", "--plot", "a.png"), "--plot draws two columns, --objective has"),
    (("devices", "t4", "--kind", "tpu"), "--kind does not apply with NAME, which is one device"),
    (("devices", "t4", "--year", "2018"), "--year does not apply with NAME"),
    (("map", "--example", "--json"), "--json does not apply with --example, which prints TOML"),
])  # fmt: skip
def test_options_that_would_have_no_effect_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, errors = run(capsys, *arguments)
    assert code == 2 and not out and words in errors


def test_roofline_says_what_bounds_a_layer_and_what_four_bits_buy(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("roofline", "llama_7b", "h100-sxm", "--format", "int4-g128-f16", "--context", "1024")
    found = run_json(capsys, *arguments)
    assert found["bound"] == "memory" and found["format"] == "int4-g128-f16"
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "memory-bound" in out and "times as long" in out


def test_pages_and_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(capsys, "roofline", "alexnet", "t4", "--html", str(page))[0] == 0
    text = page.read_text()
    assert text.startswith("<!doctype html>") and "memory" in text and "http" not in text
    assert run(capsys, "devices", "--html", str(page))[0] == 0 and "33.3?" in page.read_text()
    assert run(capsys, "devices", "t4", "--html", str(page))[0] == 0 and "vGPU" not in page.read_text()
    assert run(capsys, "count", "alexnet", "--html", str(page))[0] == 0 and "61,100,840" in page.read_text()
    pytest.importorskip("matplotlib")
    figure = tmp_path / "roof.png"
    assert run(capsys, "roofline", "alexnet", "t4", "--plot", str(figure))[0] == 0 and figure.stat().st_size > 1000


def test_a_rate_is_listed_under_its_own_type(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = {row["name"]: row for row in run_json(capsys, "devices", "--kind", "tpu")["devices"]}
    assert rows["tpu-v3"]["peak.fp16"] is None and rows["tpu-v3"]["peak.bf16"] == 123e12
    assert "2023?" in run(capsys, "devices", "xeon-max-9462")[1]
    assert run_json(capsys, "devices", "xeon-max-9462")["unverified"] == ["year", "tdp"]
    path = tmp_path / "mine.toml"
    path.write_text('[device.one]\naliases = ["uno"]\ntdp_w = 3\n')
    assert run_json(capsys, "devices", "uno", "--device-file", str(path))["name"] == "one"


def test_study_with_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "study", "--formats", "int8", "--device", "mac")
    assert found["rows"][0]["mac_pj"] == pytest.approx(4.6)
    assert run(capsys, "study", "--formats", "int8", "--device", "h10")[0] == 1


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (("devices", "h10"), 1, "'h10' is not a known device; the nearest are h100-sxm"),
        (("devices", "--kind", "chips"), 2, "kind is 'chips', expected one of gpu"),
        (("devices", "--device-file", "missing.toml"), 1, "missing.toml"),
        (("count", "resnet51"), 1, "the nearest are resnet50"),
        (("count", "resnet50", "--like", "top"), 2, "--like is 'top', expected one of mac"),
        (("count", "resnet50", "--input", "3,0,4"), 2, "--input is '3,0,4', expected positive numbers"),
        (("count", "resnet50", "--batch", "0"), 2, "--batch is 0"),
        (("count", "doc_cnn"), 1, "layer 'fc1': Linear: input is (1600,), expected 16384"),
        (("count", "missing.onnx"), 1, "missing.onnx"),
        (("roofline", "resnet50", "v100-sxm2", "--dtype", "bf16"), 1, "no rate for 'bf16'; it has fp64, fp32, fp16"),
        (("roofline", "resnet50", "diannao"), 1, "its bandwidth is not known"),
        (("roofline", "resnet50", "t4", "--format", "int17"), 2, "'int17' is not a format"),
        (("roofline", "resnet50", "t4", "--dtype", "int9"), 2, "dtype is 'int9', expected one of fp64"),
        (("roofline", "gpt2", "t4", "--context", "-1"), 2, "--context is -1"),
        (("count", "resnet50", "--dtype", "int9"), 2, "dtype is 'int9', expected one of fp64"),
        (("roofline", "resnet50"), 2, "DEVICE"),
    ],
)
def test_errors_are_one_line_with_the_right_code(
    arguments: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    found, out, err = run(capsys, *arguments)
    assert found == code and message in err and not out
    *usage, last = err.strip().splitlines()
    assert message in last and bool(usage) == (code == 2)
    assert not usage or usage[0].startswith(f"usage: heterocompute {arguments[0]} ")


def test_a_file_of_devices_is_the_only_source_of_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[device.mine]\npeak_tops = { fp16 = 4 }\nbandwidth_gb_s = 50\nmemory_gb = 1\n")
    found = run_json(capsys, "roofline", "llama_7b", "mine", "--device-file", str(path))
    assert found["device"] == "mine" and "does not fit" in found["note"]
    assert "does not fit" in run(capsys, "roofline", "llama_7b", "mine", "--device-file", str(path))[1]
    for command in (("devices", "t4"), ("roofline", "resnet18", "t4")):
        code, _, err = run(capsys, *command, "--device-file", str(path))
        assert code == 1 and "'t4' is not a device of this file; it has mine" in err
