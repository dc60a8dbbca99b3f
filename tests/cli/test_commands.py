"""Common properties of commands: names of options, threads, the version, the list of formats, shell completion."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.cli.command import main
from heterocompute.cli.parts import format_list
from heterocompute.files import checkpoint
from heterocompute.files.safetensors import save
from heterocompute.formats.defining import carried


@pytest.fixture
def model(tmp_path):
    path = str(tmp_path / "model.safetensors")
    save(path, {"fc.weight": np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)})
    return path


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out.safetensors")


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"heterocompute {hc.__version__}\n", "")


def test_format_and_formats_are_the_same_everywhere(capsys, model, out):
    for name in ("--format", "--formats"):
        code, stdout, _ = run(capsys, "quantize", model, out, name, "int4", "--json", "--overwrite")
        assert code == 0 and json.loads(stdout)["tensors"][0]["format"] == "int4"
        code, stdout, _ = run(capsys, "study", model, name, "int8,int4", name, "int2", "--json")
        assert code == 0 and [row["format"] for row in json.loads(stdout)["rows"]] == ["fp32", "int8", "int4", "int2"]
        code, stdout, _ = run(capsys, "roofline", "resnet18", "t4", name, "int4-g32", "--json")
        assert code == 0 and json.loads(stdout)["format"] == "int4-g32"


def test_commands_take_sentences(capsys, tmp_path):
    w = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    plain, out = tmp_path / "m.safetensors", tmp_path / "q.safetensors"
    hc.save(plain, {"a.weight": w, "b.weight": w[:32]})
    recipe = tmp_path / "r.toml"
    recipe.write_text('[formats]\n"a*" = "e3m4fnuz-g32-e8m0"\n"*" = "ternary-g32-absmean+2:4"\n')
    assert run(capsys, "quantize", plain, out, "--recipe", recipe)[0] == 0
    found = hc.load(out)
    assert found["a.weight"] == hc.quantize(w, "e3m4fnuz-g32-e8m0")
    assert found["b.weight"] == hc.quantize(w[:32], "ternary-g32-absmean+2:4")
    code, stdout, _ = run(capsys, "inspect", out, "--json")
    said = json.loads(stdout)["tensors"][0]
    assert code == 0 and said["definition"] == {"element": "e3m4fnuz", "scale": "e8m0", "group": 32}
    mine = hc.define("cli-levels", hc.Levels([-1, 0.25, 1]), group=32)
    hc.save(out, {"a": hc.quantize(w, mine), "b": hc.quantize(w, "int8")})
    code, stdout, _ = run(capsys, "inspect", out)
    assert code == 0 and "cli-levels: element 3 levels from -1 to 1, scale f32, group 32" in stdout
    page = tmp_path / "s.html"
    code, stdout, _ = run(capsys, "study", plain, "--formats", "e4m3fn-b16x16,posit8.1-row", "--html", page)
    assert code == 0 and "e4m3fn-b16x16" in stdout and "posit8.1-row" in page.read_text()
    code, stdout, _ = run(capsys, "formats", "e3m4-g32-e8m0+2:4")
    assert code == 0 and "e3m4-g32-e8m0+2:4  5.125" in stdout


def test_formats_lists_every_family_and_what_is_stored(capsys):
    code, stdout, _ = run(capsys, "formats", "--json")
    found = json.loads(stdout)
    assert code == 0 and set(found["families"]) == {*hc.formats(), "pattern"}
    for row in found["formats"]:
        assert str(hc.format(row["text"])) == row["text"]
        assert sum(row["stored"].values()) == pytest.approx(row["bits"], abs=1e-12)
        assert hc.quantize(np.ones((64, 4096), np.float32), row["text"]).bits_per_value == row["bits"]
    assert {row["family"] for row in found["formats"]} == set(found["families"])
    code, stdout, _ = run(capsys, "formats", "nvfp4")
    assert code == 0 and [line.split()[0] for line in stdout.splitlines() if "codes" in line] == [
        "nvfp4",
        "nvfp4-4over6",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["quantize", "MODEL", "OUT", "--format", "int8"],
        ["prune", "MODEL", "OUT", "--pattern", "2:4"],
        ["inspect", "MODEL"],
        ["study", "MODEL", "--formats", "int8"],
    ],
)
def test_threads_reach_what_is_computed(capsys, monkeypatch, model, out, arguments):
    seen = []

    def spy(*_, **__):
        seen.append(hc.get_num_threads())
        raise ValueError("enough")

    for place in ("quantize", "prune", "inspect"):
        monkeypatch.setattr(checkpoint, {"inspect": "inspect"}.get(place, f"{place}_checkpoint"), spy)
    monkeypatch.setattr("heterocompute.studies.study.study", spy)
    line = [{"MODEL": model, "OUT": out}.get(word, word) for word in arguments]
    before = hc.get_num_threads()
    assert run(capsys, *line, "--threads", "3")[0] == 1
    assert seen == [3] and hc.get_num_threads() == before


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_options_and_files(tmp_path):
    pytest.importorskip("shtab", reason="shtab is not installed (extra completion)")
    command = [sys.executable, "-m", "heterocompute", "completion", "bash"]
    script = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    (tmp_path / "model.safetensors").write_text("")
    ask = """
    source /dev/stdin
    complete -p heterocompute >/dev/null || exit 1
    _get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]}; }
    for line in "heterocompute stu" "heterocompute quantize --form" "heterocompute inspect mod"; do
      COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
      _shtab_heterocompute
      echo "${COMPREPLY[@]}"
    done
    """
    done = subprocess.run(["bash", "-c", ask], input=script, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout.splitlines() == ["study", "--format --formats", "model.safetensors"], done.stderr


def test_completion_without_its_extra_says_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    code, stdout, stderr = run(capsys, "completion", "zsh")
    assert code == 1 and stdout == ""
    assert stderr == "heterocompute completion: completion needs shtab: pip install 'heterocompute[completion]'\n"


@pytest.mark.parametrize("command", ["inspect", "quantize", "prune", "dequantize"])
def test_tensors_that_cannot_be_read_are_named(tmp_path, capsys, command):
    path, out = tmp_path / "model.npz", tmp_path / "out.safetensors"
    options = {"quantize": ["--format", "int8"], "prune": ["--pattern", "2:4"]}.get(command, [])
    asked = [command, path] if command == "inspect" else [command, path, out, "--overwrite", *options]
    wide = {name: np.ones((2, 2), np.complex128) for name in "abcd"}
    for count in (0, 1, 4):
        skipped = dict(list(wide.items())[:count])
        np.savez(path, w=np.ones((2, 32), np.float32), **skipped)
        lines = []
        for more in ([], ["--json"]):
            code, text, err = run(capsys, *asked, *more)
            assert code == 0
            lines.append([line for line in err.splitlines() if "left out" in line])
        some = ", ".join(f"'{name}' (complex128 (2, 2))" for name in list(skipped)[:3])
        said = f"{path}: {count} tensor{'s' * (count > 1)} left out: {some}{', ...' * (count > 3)}"
        assert lines == [[said] if count else []] * 2
        if command != "inspect":
            assert json.loads(text)["skipped"] == dict.fromkeys(skipped, "complex128 (2, 2)")


def test_quantize_keeps_what_loaders_of_a_layout_expect_plain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, names = tmp_path / "in.safetensors", ("model.embed_tokens.weight", "fc.weight", "lm_head.weight")
    hc.save(path, {name: np.ones((32, 64), np.float32) for name in names})
    kept = f"2 tensors plain, as loaders of {{}} expect: '{names[0]}' (embedding), '{names[2]}' (output layer)"
    packed = f"'{names[0]}' is quantized, but loaders of {{}} expect a plain embedding"
    for number, (layout, fmt, more, count, said) in enumerate((
        ("compressed-tensors", "int8", [], 1, kept), ("gptq", "int4-g32-f16", ["--exclude", "lm_head*"], 1, ""),
        ("awq", "int4-g32-f16", ["--include", "*"], 3, packed), ("compressed-tensors", "bf16", [], 3, ""),
        ("mlx", "int4-g32-f16", [], 3, ""), ("fp8", "fp8_e4m3fn-tensor", [], 1, kept),
    )):  # fmt: skip
        out = str(tmp_path / str(number))
        status, text, error = run(capsys, "quantize", str(path), out, "--layout", layout, "--format", fmt, *more)
        assert status == 0 and f"{count} tensor" in text and said.format(layout) in error, error
        assert bool(said) or "expect" not in error.replace("exclude", "") or number == 1


def test_quantize_names_tensors_whose_scales_serve_few_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1-D filters are one row each. Rows that groups do not divide are named with the cost of their padding."""
    path, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    rng = np.random.default_rng(0)
    shapes = {"conv1.weight": (128, 129, 3), "fc.weight": (10, 100), "experts.up": (2, 64, 8)}
    hc.save(path, {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()})
    status, _, error = run(capsys, "quantize", str(path), str(out), "--format", "int8")
    assert status == 0 and "many bits" in error
    assert "1 tensor of many bits per value" in error and "'experts.up' 12.0 instead of 8.0 (int8)" in error
    assert hc.load(out)["conv1.weight"].axis == (2, 1) and hc.load(out)["experts.up"].axis == (2,)
    more = ["--exclude", "experts.up", "--overwrite"]
    status, _, error = run(capsys, "quantize", str(path), str(out), "--format", "int4-g32", *more)
    assert status == 0 and "'fc.weight' 6.4 instead of 5.0 (int4-g32)" in error
    status, _, error = run(capsys, "quantize", str(path), str(out), "--format", "int8", *more)
    assert status == 0 and "many bits" not in error


def test_long_lists_are_folded(capsys):
    """Results come first, similar layers and kernels share a row, and ten formats precede all families."""
    _, text, _ = run(capsys, "roofline", "llama_7b", "h100-sxm")
    lines = text.splitlines()
    assert lines[0].startswith("llama_7b on h100-sxm") and "block1.gate" not in text and len(lines) < 20
    row = next(line.split() for line in lines if line.startswith("block0.gate "))
    assert row[1] == "32"
    _, text, _ = run(capsys, "count", "llama_7b")
    assert text.splitlines()[0].startswith("llama_7b") and len(text.splitlines()) < 25
    _, text, _ = run(capsys, "info")
    assert len(text) < 1500 and "scalar" in text
    _, text, _ = run(capsys, "formats")
    assert text.index("vsq4-g16-s4") < text.index("-gN one scale per N values") < text.index("codebook  ")
    assert len(text.splitlines()) < 40
    _, text, _ = run(capsys, "formats", "codebook")
    assert "cb8-d2" in text


def test_a_study_says_how_it_was_run_and_is_judged_by_a_function(tmp_path, monkeypatch, capsys):
    w = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    hc.save(tmp_path / "m.safetensors", {"fc.weight": w})
    body = "import numpy as np\ntotal = lambda weights: float(abs(np.asarray(weights['fc.weight'])).sum())\n"
    (tmp_path / "judge_of_a_test.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    options = ["m.safetensors", "--formats", "int8", "--evaluate", "judge_of_a_test:total", "--json"]
    code, text, _ = run(capsys, "study", *options)
    found = json.loads(text)
    assert code == 0 and found["rows"][0]["evaluate"] == pytest.approx(float(np.abs(w).sum()))
    assert found["run"]["version"] == hc.__version__ and found["run"]["machine"]["cpu"]
    assert found["run"]["arguments"]["formats"] == ["int8"]
    assert found["run"]["arguments"]["evaluate"] == "judge_of_a_test:total"
    code, _, errors = run(capsys, "study", *options[:3], "--evaluate", "judge_of_a_test:other")
    assert code == 1 and "--evaluate judge_of_a_test:other" in errors


def test_a_definition_is_a_format_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fmt = hc.define("command-levels", hc.Levels([-1, -0.3, 0, 0.2, 1]), scale="f16", group=16)
    w = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    hc.save(tmp_path / "in.safetensors", {"w": w})
    files = [tmp_path / "in.safetensors", tmp_path / "out.safetensors"]
    code, _, err = run(capsys, "quantize", *files, "--format", carried(fmt))
    assert code == 0, err
    assert hc.load(tmp_path / "out.safetensors")["w"] == hc.quantize(w, fmt)
    assert format_list(f"int8, {carried(fmt)},none") == [hc.format("int8"), fmt, "none"]
    code, _, err = run(capsys, "quantize", *files, "--format", f"int8,{carried(fmt)}")
    assert code == 2 and "are several, expected one format" in err
    code, _, err = run(capsys, "quantize", *files, "--format", '{"a": 1, "b": 2}')
    assert code == 2 and "is not a definition, expected JSON" in err


def test_a_mistyped_command_or_choice_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["quantise", "a", "b"], "invalid choice: 'quantise'; the nearest is quantize"),
        (["study", "--network", "digit"], "invalid choice: 'digit'; the nearest is digits"),
        (["xyzzy"], "invalid choice: 'xyzzy' (choose from "),
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2 and said in capsys.readouterr().err
