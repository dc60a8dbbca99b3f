"""A study of a language model: rows for weights, activations and KV caches, evaluated on a text; the commands."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.cli import main
from heterocompute.cli.parts import format_list
from heterocompute.studies.language import hessians_by_layer, paired_by_layer

IDS = np.random.default_rng(0).integers(2, 96, 60)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return hc.zoo.open_llm(made.write_gguf(tmp_path_factory.mktemp("study") / "m.gguf"))


def test_rows_are_formats_times_activations_times_caches(net: Any, tmp_path: Path) -> None:
    steps: list[str] = []
    found = hc.study(
        net, ["int8", "int3"], text=IDS, activations=["int8"], kv_cache=["int4-g16"],
        progress=lambda done, total, text: steps.append(text),
    )  # fmt: skip
    rows = found.table
    assert [(row["format"], row["activations"], row["kv_cache"]) for row in rows] == [
        (fmt, a, kv) for fmt in ("stored", "int8", "int3") for a in (None, "int8") for kv in (None, "int4-g16")
    ]
    assert rows[0]["kl"] == 0 and rows[0]["agreement"] == 1 and rows[0]["sqnr_db"] is None
    assert rows[0]["perplexity"] == pytest.approx(net.perplexity(IDS), rel=1e-9)
    changed = {name: hc.quantize(np.asarray(net.weights[name]), "int3") for name in net.matrices if "blk" in name}
    assert rows[-1]["perplexity"] == net.perplexity(IDS, weights=changed, activations="int8", kv_cache="int4-g16")
    assert rows[-1]["bytes"] == sum(q.nbytes for q in changed.values()) and rows[-1]["kv_bits"] == 6.0
    assert rows[4]["kl"] < rows[8]["kl"] and rows[1]["kl"] > 0
    assert {row["name"] for row in found.layers} == set(changed) and len(steps) == 2 * len(changed) + 4
    assert "perplexity" in repr(found) and "kv_cache" in repr(found)
    found.to_html(tmp_path / "r.html")
    found.to_csv(tmp_path / "r.csv")
    assert "kv_cache" in (tmp_path / "r.csv").read_text() and "perplexity" in (tmp_path / "r.html").read_text()
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.pareto(cost="kv_bits")


def test_an_interrupted_study_of_a_text_continues(net: Any, tmp_path: Path) -> None:
    keep = tmp_path / "study.jsonl"
    options: dict[str, Any] = {"text": IDS, "activations": ["int8"], "per_layer": True, "keep": keep}

    def stop(done: int, total: int, text: str) -> None:
        if text == "judge  int3":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hc.study(net, ["int8", "int3"], progress=stop, **options)
    steps: list[str] = []
    found = hc.study(net, ["int8", "int3"], progress=lambda done, total, text: steps.append(text), **options)
    assert "judge  int8" not in steps and "judge  int3" in steps
    assert hc.study(net, ["int8", "int3"], **options).to_dict() == found.to_dict()
    whole = hc.study(net, ["int8", "int3"], **{**options, "keep": None})
    assert [row["kl"] for row in found.table] == [row["kl"] for row in whole.table] and found.alone == whole.alone
    found.save(tmp_path / "s.json")
    assert hc.Study.load(tmp_path / "s.json").to_dict() == found.to_dict()
    assert hc.study(net, ["int8"], **{**options, "text": IDS[:-1]}).table[0]["kl"] == 0


def test_names_choose_what_is_quantized(net: Any) -> None:
    mixed = hc.study(net, [{"*attn*": "int8", "*": "int4"}], text=IDS, include=["*"], kv_cache=None)
    assert len(mixed.layers) == len(net.matrices) and "kv_cache" not in repr(mixed)
    assert {row["format"] for row in mixed.layers if "attn" in row["name"]} == {"int8"}


def test_accumulators_are_emulated_where_they_multiply_the_formats(net: Any) -> None:
    found = hc.study(net, ["int4", "int4-g16"], text=IDS, activations=["int8"], emulate=["int12-sat", "int24-sat"])
    rows = [row for row in found.table if row["emulate"] is not None]
    assert {(row["format"], row["activations"]) for row in rows} >= {("int4", "int8")}
    exact = {row["format"]: row["kl"] for row in found.table if row["activations"] and row["emulate"] is None}
    kl = {(row["format"], row["emulate"]): row["kl"] for row in rows}
    assert kl["int4", "int24-sat"] == pytest.approx(exact["int4"], rel=1e-3)
    assert kl["int4", "int12-sat"] > 1.5 * exact["int4"]
    assert all(row["seconds"] is None for row in rows)


def test_gptq_walks_the_layers_with_the_hessians_of_one_run(net: Any) -> None:
    names = [name for name in net.matrices if "blk" in name] + net.tables
    held = {name: np.asarray(net.weights[name], np.float32) for name in names}

    def run(weights: Any) -> None:
        for tokens, _ in net.windows(IDS, stride=None):
            net.logits(tokens, weights=weights)

    in_groups = hc.ptq.calibrate(held, run)
    by_layer = list(hessians_by_layer(net, names, IDS))
    assert [len(found) for found in by_layer] == [7, 7, 1]
    for found in by_layer:
        for name, h in found.items():
            wanted = in_groups[name].full()
            # rows whose last bits differ: the embedding is a plain array here, packed there
            assert np.abs(h.full() - wanted).max() <= 1e-4 * np.abs(wanted).max() and h.tokens == in_groups[name].tokens


def test_caches_and_accumulators_have_pictures_and_advice(net: Any, tmp_path: Path) -> None:
    found = hc.study(
        net, ["int8", "int4"], text=IDS, activations=["int8"], kv_cache=["int8", "int3"],
        emulate=["int10-sat", "int16-sat"],
    )  # fmt: skip
    rows, first = found.table, found.table[0]
    assert {row["accumulator_bits"] for row in rows} == {None, 10, 16}
    cache, accumulator = found._views()
    assert [row["bits"] for row in cache.rows if row["activations"] is None] == [32.0, 10.0, 5.0]
    assert [row["format"] for row in accumulator.rows] == ["exact", "int10-sat", "int16-sat"]
    for view in (cache, accumulator):
        good = [row for row in view.rows if row["perplexity"] <= 1.01 * view.rows[0]["perplexity"]]
        assert view.advice is not None and view.advice[1].startswith(f"{min(row['bits'] for row in good):.2f} bits")
    said = found.to_dict()["advice"]
    assert [text.split()[0] for text in said] == [said[0].split()[0], "KV", "accumulator"]
    assert all(f"→ {text}" in repr(found) for text in said[1:])
    assert all(row["kv_cache"] is None and row["emulate"] is None for row in found.pareto())
    found.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "What a bit of the KV cache buys" in page and "What a bit of the accumulator buys" in page
    assert first["kv_cache"] is None and len(hc.study(net, ["int8"], text=IDS)._views()) == 0


def test_functions_are_rows_as_formats(net: Any, tmp_path: Path) -> None:
    mine = hc.define("llm-eighths", round=lambda x: np.rint(x * 8) / 8, bits=4.5)
    found = hc.study(net, ["int8", mine], text=IDS, kv_cache=[mine], device="a100-sxm-80gb")
    rows, label = found.table, "llm-eighths (function)"
    assert [(row["format"], row["kv_cache"]) for row in rows[4:]] == [(label, None), (label, label)]
    assert rows[1]["kv_bits"] == 4.5 and rows[1]["kl"] > 0 and rows[4]["bits"] == pytest.approx(4.5, rel=1e-3)
    assert rows[4]["seconds"] is None and rows[4]["tokens_per_s"] is None and rows[2]["tokens_per_s"] > 0
    names = [name for name in net.matrices if "blk" in name]
    changed = {name: hc.fake_quantize(np.asarray(net.weights[name], np.float32), mine) for name in names}
    assert rows[4]["perplexity"] == net.perplexity(IDS, weights=changed)
    assert rows[5]["perplexity"] == net.perplexity(IDS, weights=changed, kv_cache=mine)
    assert label in repr(found)
    json.dumps(found.to_dict(), allow_nan=False)
    found.to_html(tmp_path / "r.html")
    assert label in (tmp_path / "r.html").read_text()


@pytest.mark.sweep(every=0)
def test_the_picture_has_all_parts(net: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = hc.study(net, ["int8"], text=IDS, activations=["int8"], kv_cache=["int8"], emulate=["int16-sat"])
    figure = found.plot(tmp_path / "r.svg")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert any("KV cache" in title for title in titles) and any("accumulator" in title for title in titles)
    assert "<svg" in (tmp_path / "r.svg").read_text()


def test_a_chip_decodes_tokens(net: Any) -> None:
    found = hc.study(net, ["int4"], text=IDS, activations=["int8"], kv_cache=["int8"], device="a100-sxm-80gb")
    rows = {(row["format"], row["activations"], row["kv_cache"]): row for row in found.table}
    bandwidth, context = hw.device("a100-sxm-80gb").bandwidth, net.shape.context
    plain, packed = rows["stored", None, None], rows["int4", "int8", "int8"]
    assert plain["kv_bytes"] == hw.memory.kv_cache(net, context, dtype="fp32")
    assert packed["kv_bytes"] == context * 2 * 2 * 2 * (16 + 4)  # layers, keys and values, heads; codes and a scale
    read = sum(np.asarray(net.weights[name]).nbytes for name in net.matrices) + plain["kv_bytes"]
    assert 0.7 < 1 / plain["tokens_per_s"] / (read / bandwidth) < 1.3  # bound by memory
    assert packed["tokens_per_s"] > plain["tokens_per_s"]
    assert "tokens_per_s" not in hc.study(net, ["int4"], text=IDS, device="mac").table[0]


def test_a_chip_rotates_the_heads_of_a_cache(net: Any) -> None:
    slow = hw.Device("slow", peak={"fp32": 1e6}, bandwidth=1e15)
    found = hc.study(net, [], text=IDS, kv_cache=["int4-g16", "int4-g16+had"], device=slow).table
    heads, width = net.shape.cached
    additions = len(net.shape.windows) * 2 * (net.shape.heads + heads) * width * np.log2(width)
    gap = 1 / found[2]["tokens_per_s"] - 1 / found[1]["tokens_per_s"]
    assert gap == pytest.approx(additions / 1e6) and found[2]["kv_bytes"] == found[1]["kv_bytes"]
    if width % 16 == 0:
        row = hc.study(net, [], text=IDS, kv_cache=["int4-g16+had16"], device=slow).table[1]
        gap = 1 / row["tokens_per_s"] - 1 / found[1]["tokens_per_s"]
        assert gap == pytest.approx(additions / 1e6 * 4 / np.log2(width))


def test_which_matrix_hurts(net: Any) -> None:
    found = hc.study(net, ["int3-g16", {"*ffn*": "int2-g16"}], text=IDS, include=["*"], per_layer=True)
    rows = found.alone
    assert {(row["name"], row["format"]) for row in rows} == {
        *((name, "int3-g16") for name in net.matrices), *((name, "int2-g16") for name in net.matrices if "ffn" in name)
    }  # fmt: skip
    row = rows[0]
    w = {row["name"]: hc.quantize(np.asarray(net.weights[row["name"]]), row["format"])}
    judged = net.judged(IDS, [(w,)], compare=True)[0]
    assert {key: row[key] for key in judged} == judged
    assert found.to_dict()["alone"] == rows


def test_gptq_is_given_the_text(net: Any) -> None:
    found = hc.study(net, ["int3-g16"], text=np.tile(IDS, 2), methods=["rtn", "gptq"])
    nearest, rounded = (row for row in found.table if row["format"] == "int3-g16")
    assert nearest["method"] == "rtn" and rounded["method"] == "gptq"
    assert rounded["sqnr_db"] < nearest["sqnr_db"]  # weights have a larger error, outputs on this text a smaller one
    assert rounded["kl"] < nearest["kl"]


def test_rotated_caches_are_rows_of_a_study(net: Any) -> None:
    found = hc.study(net, [], text=IDS, kv_cache=["int4-g16", "int4-g16+had"])
    assert [row["kv_cache"] for row in found.table] == [None, "int4-g16", "int4-g16+had"]
    assert found.table[1]["kv_bits"] == found.table[2]["kv_bits"] and found.table[1]["kl"] != found.table[2]["kl"]
    assert found.table[2]["perplexity"] == net.perplexity(IDS, kv_cache="int4-g16+had")
    assert list(map(str, format_list("none,int8,int4-g16+had"))) == ["none", "int8", "int4-g16+had"]
    with pytest.raises(argparse.ArgumentTypeError, match="int4-g5x"):
        format_list("int4-g5x+had")


def test_qronos_walks_both_networks_layer_by_layer(net: Any) -> None:
    names = [name for name in net.matrices if "blk" in name] + net.tables
    made: dict[str, Any] = {}
    seen = []
    for found in paired_by_layer(net, names, IDS, made):
        for name, h in found.items():
            seen.append((name, h.cross is not None, np.array_equal(h.matrix, h.unrounded)))
            made[name] = hc.quantize(np.asarray(net.weights[name], np.float32), "int3-g16")
    assert sorted(name for name, _, _ in seen) == sorted(names) and all(paired for _, paired, _ in seen)
    assert [same for _, _, same in seen] == [True] * 3 + [False] * (len(seen) - 3)
    rows = hc.study(net, ["int3-g16"], text=np.tile(IDS, 2), methods=["rtn", "gptq", "qronos"]).table
    assert [row["method"] for row in rows] == [None, "rtn", "gptq", "qronos"]
    assert rows[3]["kl"] < rows[1]["kl"]


def test_tokens_that_calibrate_are_not_evaluated(net: Any) -> None:
    found = hc.study(net, ["int3-g16"], text=IDS, methods=["rtn", "gptq"])
    half = len(IDS) // 2
    assert found.notes[-2:] == [
        f"the text has only {len(IDS) - half} tokens: another text may rank formats otherwise",
        f"gptq is calibrated with the first {half} tokens, which are not evaluated",
    ]
    assert found.table[0]["perplexity"] == net.perplexity(IDS[half:])
    assert found.table[1]["kl"] == hc.study(net, ["int3-g16"], text=IDS[half:]).table[1]["kl"]
    with pytest.raises(ValueError, match="study: text has 3 tokens, expected at least 4 with gptq"):
        hc.study(net, "int3-g16", text=IDS[:3], methods=["gptq"])


@pytest.mark.sweep(every=0)
def test_the_commands(net: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    text = tmp_path / "corpus.txt"
    text.write_text(made.TEXT)
    assert (
        main(
            [
                "study",
                net.path,
                "--text",
                str(text),
                "--formats",
                "int4-g32",
                "--kv-cache",
                "int8",
                "--json",
                "--plot",
                str(tmp_path / "r.svg"),
            ]
        )
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert (tmp_path / "r.svg").exists()
    assert [row["kv_cache"] for row in rows] == [None, "int8"] * 2
    options = ["--tokens", "5", "--format", "vsq4-g16-s4", "--activations", "int8", "--kv-cache", "int8"]
    assert main(["generate", net.path, "the cat", *options, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    kept = net.quantized("vsq4-g16-s4")
    assert answer["text"] == net.generate("the cat", 5, weights=kept, activations="int8", kv_cache="int8")
    recipe = tmp_path / "recipe.toml"
    options = ["--budget", "bits=7", "--formats", "int8,int4-g16", "--save", str(recipe), "--json"]
    assert main(["search", net.path, "--text", str(text), *options]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert "int4-g16" in json.dumps(plan) and "attn_q" in recipe.read_text()
    assert main(["generate", net.path, "the cat", "--tokens", "3"]) == 0
    assert capsys.readouterr().out.startswith("the cat")


def test_the_recipe_of_a_search_becomes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    model, out, recipe, text = (str(tmp_path / name) for name in ("m.gguf", "q.gguf", "r.toml", "corpus.txt"))
    net = hc.zoo.open_llm(made.write_gguf(Path(model), kind="q8_0"))
    Path(text).write_text(made.TEXT)
    options = ["--text", text, "--budget", "bytes=0.06MB", "--formats", "q8_0,q4_0", "--out", recipe]
    assert main(["search", model, *options]) == 0
    assert main(["quantize", model, out, "--layout", "gguf", "--recipe", recipe]) == 1
    assert "quantize --requantize rounds a second time" in capsys.readouterr().err
    assert main(["quantize", model, out, "--layout", "gguf", "--recipe", recipe, "--requantize", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    found = hc.zoo.open_llm(out)
    formats = tomllib.loads(Path(recipe).read_text())["formats"]
    assert set(formats.values()) == {"q8_0", "q4_0"} and summary["bytes"] < summary["bytes_before"]
    weights = {name: hc.quantize(np.asarray(net.weights[name]), fmt, axis=-1) for name, fmt in formats.items()}
    np.testing.assert_array_equal(found.logits(IDS), net.logits(IDS, weights))
    assert found.tokenizer.encode("the cat") == net.tokenizer.encode("the cat")
    assert found.weights["token_embd.weight"] == net.weights["token_embd.weight"]
    assert {row["name"]: row["bytes"] for row in summary["tensors"]}["token_embd.weight"] < 18_000


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["study", "{net}", "--kv-cache", "int8"], 2, "--kv-cache needs --text"),
        (["study", "--text", "{text}"], 2, "--text needs MODEL"),
        (["search", "--text", "{text}", "--budget", "bits=4"], 2, "--text needs MODEL"),
        (
            ["study", "{net}", "--text", "{text}", "--inputs", "x.npz"],
            2,
            "--text and --inputs do not go together",
        ),
        (["study", "{net}", "--text", "{bytes}"], 1, "heterocompute study: {bytes}: not UTF-8"),
        (["study", "{net}", "--text", "{empty}"], 1, "heterocompute study: {empty}: has 0 tokens, expected at least 2"),
        (["search", "{net}", "--text", "{empty}", "--budget", "bits=4"], 1, "heterocompute search: {empty}: has 0 tok"),
        (["study", "{net}", "--text", "{net}"], 1, "heterocompute study: {net}: not UTF-8"),
        (["study", "{net}", "--text", "{text}", "--plot", "a.mp3"], 2, "--plot is 'a.mp3', expected a suffix such as"),
        (["study", "{text}", "--text", "{text}"], 1, "corpus.txt"),
        (["search", "{net}", "--text", "{text}", "--budget", "bytes=60XB"], 2, "'bytes=60XB', expected KIND=NUMBER"),
        (["generate", "{net}", ""], 1, "prompt has no tokens"),
        (["generate", "{net}", "a", "--tokens", "0"], 2, "expected a number of tokens"),
        (["generate", "{net}", "a", "--tokens", "500"], 1, "more than the context"),
        (["generate", "{net}", "a", "--format", "int4,int8"], 2, "expected one format"),
        (["generate", "{net}", "a", "--temperature", "nan"], 1, "temperature is nan"),
        (["generate", "{net}", "a", "--seed", "-1"], 2, "--seed is -1"),
    ],
)
def test_usage_and_files_that_are_wrong(
    words: list[str], code: int, said: str, net: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib" if "--plot" in words else "tokenizers")
    for name, data in (("corpus.txt", made.TEXT.encode()), ("bytes.txt", b"\xff\xfe"), ("empty.txt", b"")):
        (tmp_path / name).write_bytes(data)
    places = {
        "net": net.path,
        "text": tmp_path / "corpus.txt",
        "bytes": tmp_path / "bytes.txt",
        "empty": tmp_path / "empty.txt",
    }
    try:
        found = main([word.format(**places) for word in words])
    except SystemExit as end:
        found = end.code
    err = capsys.readouterr().err
    assert found == code and said.format(**places) in err, err


def test_options_are_checked_before_the_weights_are_quantized(
    net: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tokenizers")
    monkeypatch.setattr(type(net), "quantized", lambda *_: pytest.fail("quantized first"))
    for option, value, said in (
        ("--kv-cache", "nvfp4", "KVCache: format is nvfp4"), ("--temperature", "-1", "temperature is -1"),
    ):  # fmt: skip
        assert main(["generate", net.path, "a", "--format", "int8", option, value]) == 1
        assert said in capsys.readouterr().err
