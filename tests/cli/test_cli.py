"""The command line: output on stdout and stderr, usage and failures."""

import csv
import json
import os
import shlex

import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.cli import command as cli
from heterocompute.files.safetensors import save

COMMANDS = list(cli._parser()._subparsers._group_actions[0].choices)


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def parse(text):
    assert text.count("\n") == 1
    return json.loads(text, parse_constant=refuse)


def assert_one_line(stderr, *words):
    lines = [line for line in stderr.splitlines() if "%" not in line[:60]]  # progress precedes it
    assert len(lines) == 1
    assert "Traceback" not in stderr and "\x1b" not in stderr
    for word in words:
        assert word in lines[0]


def assert_usage(stderr, command, *words):
    """Assert that stderr has the usage of the command, and below it one line with the error."""
    usage, _, last = stderr.rstrip("\n").rpartition("\n")
    assert usage.startswith(f"usage: {command} ") and "\n\n" not in usage
    assert all(line.startswith("  ") for line in usage.splitlines()[1:])
    assert_one_line(last, *words)
    assert last.startswith(f"{command}: ") and last.endswith(f"(see {command} --help)")


# Help and usage.


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_parses(capsys, command):
    code, stdout, _ = run(capsys, command, "--help")
    assert code == 0
    examples = [shlex.split(line)[1:] for line in stdout.split("example:")[1].splitlines() if line.strip()]
    assert examples
    for example in examples:
        found = cli._parser().parse_args(example)
        assert found.command == command


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["nonsense"], ["nonsense"]),
        (["quantize", "a"], ["OUT"]),
        (["quantize", "a", "b"], ["--format or --recipe"]),
        (["quantize", "a", "b", "--format", "int17"], ["--format", "int17", "int16"]),
        (["quantize", "a", "b", "--form", "int8"], ["--form", "the nearest is --format"]),
        (["quantize", "a", "b", "--format", "int8,int4"], ["'int8,int4' are several, expected one format"]),
        (["quantize", "a", "b", "--format", "gptq"], ["'gptq' is not a format; 'heterocompute formats' lists them"]),
        (["formats", "vsw"], ["there is no family 'vsw', expected one of ggml, nf4, codebook"]),
        (["completion", "fish"], ["fish", "bash"]),
        (["study", "--threads", "257"], ["--threads", "'257', expected a number from 1 to 256"]),
        (["quantize", "a", "a", "--format", "int8"], ["OUT and IN are the same file"]),
        (["quantize", "a", "./a", "--format", "int8"], ["OUT and IN are the same file"]),
        (["study", "a", "--formats", "int8,nonsense"], ["nonsense"]),
        (["study", "a", "--formats", ""], ["--formats"]),
        (["study", "a", "--activations", "int8,vsq99"], ["vsq99"]),
        (["study", "a", "--html", "a"], ["--html and MODEL are the same file"]),
        (["study", "a", "--html", "b", "--csv", "./b"], ["--csv and --html are the same file"]),
        (["study", "a", "--csv", "b", "--recipe", "b"], ["--csv and --recipe are the same file"]),
        (["study", "--device", "d", "--device-file", "b", "--csv", "b"], ["--csv and --device-file are the same file"]),
        (["quantize", "a", "b", "--recipe", "b"], ["OUT and --recipe are the same file"]),
        (["prune", "a", "b", "--recipe", "./b"], ["OUT and --recipe are the same file"]),
        (["devices", "--device-file", "a", "--html", "a"], ["--html and --device-file are the same file"]),
        (["count", "a.onnx", "--html", "a.onnx"], ["--html and MODEL are the same file"]),
        (
            ["roofline", "resnet18", "d", "--device-file", "a", "--plot", "a"],
            ["--plot and --device-file are the same file"],
        ),
        (["roofline", "resnet18", "d", "--html", "a", "--plot", "a"], ["--html and --plot are the same file"]),
        (["map", "a", "b", "--yaml", "b"], ["--yaml and FILE are the same file"]),
        (["explore", "digits", "--study", "a", "--csv", "a"], ["--csv and --study are the same file"]),
        (["explore", "a.onnx", "--html", "a.onnx"], ["--html and MODEL are the same file"]),
        (["map", "a", "--html", "b", "--yaml", "b"], ["--yaml and --html are the same file"]),
        (["inspect", "a", "--unknown"], ["--unknown"]),
        (["bench", "nonsense"], ["nonsense"]),
        (["bench", "--threads", "0"], ["--threads"]),
    ],
)
def test_usage_errors_exit_with_2(capsys, arguments, words):
    code, stdout, stderr = run(capsys, *arguments)
    assert code == 2 and stdout == ""
    known = arguments[0] in COMMANDS
    assert_usage(stderr, f"heterocompute {arguments[0]}" if known else "heterocompute", *words)


@pytest.mark.parametrize("command", COMMANDS)
def test_usage_errors_lead_to_the_help_of_the_command(capsys, command):
    """This includes unknown arguments, which argparse reports with the main parser."""
    needed = {"quantize": ["a", "b"], "prune": ["a", "b"], "inspect": ["a"], "count": ["a"], "roofline": ["a", "b"]}
    needed |= {
        "dequantize": ["a", "b"],
        "convert": ["a", "b"],
        "convert-model": ["a", "b"],
        "explore": ["a"],
        "finish": ["a"],
        "ptq": ["a", "b"],
        "generate": ["a", "b"],
        "chat": ["a"],
        "verify": ["a"],
        "diff": ["a", "b"],
        "vectors": ["a", "b"],
    }
    for arguments in ([*needed.get(command, []), "--no-such-option"], [*"abcdef"]):
        if arguments[0] == "a" and command == "train":
            arguments[0] = "digits"
        if arguments == [*"abcdef"] and command in ("map", "bench", "explore"):  # these accept any number of arguments
            continue
        code, stdout, stderr = run(capsys, command, *(["bash"] if command == "completion" else []), *arguments)
        assert code == 2 and stdout == ""
        assert_usage(stderr, f"heterocompute {command}", f"heterocompute {command}: unrecognized arguments: ")


def test_without_a_command_the_help_is_shown(capsys):
    code, stdout, stderr = run(capsys)
    assert code == 2 and stdout == ""
    assert all(f"    {command}" in stderr for command in COMMANDS)
    assert stderr.endswith("\nheterocompute: no COMMAND\n")


def test_unknown_format_in_a_recipe_is_a_usage_error(capsys, model, out, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[formats]\n"*" = "int17"\n')
    code, _, stderr = run(capsys, "quantize", model, out, "--recipe", recipe)
    assert code == 2
    assert_usage(stderr, "heterocompute quantize", "recipe.toml", "int17")


# Failures.


@pytest.mark.parametrize("command", ["study", "inspect", "quantize"])
def test_unreadable_files_exit_with_1(capsys, tmp_path, out, command):
    rest = [out, "--format", "int8"] if command == "quantize" else []
    (tmp_path / "empty").mkdir()
    hostile = tmp_path / "hostile\n\x1b[31m"
    hostile.write_bytes(b"not a safetensors file at all")
    for path, words in (
        (tmp_path / "absent", ["absent"]),
        (tmp_path / "empty", ["expected one index"]),
        (hostile, ["hostile\\n\\x1b"]),
    ):
        code, stdout, stderr = run(capsys, command, path, *rest)
        assert code == 1 and stdout == ""
        assert_one_line(stderr, f"heterocompute {command}: ", *words)
    assert not os.path.exists(out)


@pytest.mark.parametrize("command", ["study", "quantize"])
def test_nan_names_file_tensor_and_index(capsys, tmp_path, out, command):
    path = str(tmp_path / "nan.safetensors")
    array = np.ones((3, 8), np.float32)
    array[1, 5] = np.nan
    save(path, {"first": np.ones((2, 2)), "broken": array})
    rest = [out, "--format", "int8"] if command == "quantize" else ["--formats", "int8"]
    code, stdout, stderr = run(capsys, command, path, *rest)
    assert code == 1 and stdout == ""
    assert_one_line(stderr, path, "'broken'", "(1, 5)")
    assert os.listdir(tmp_path) == ["nan.safetensors"]


@pytest.mark.parametrize("command", ["study", "quantize"])
def test_unknown_tensor_exits_with_1(capsys, model, out, command):
    rest = [out, "--format", "int8"] if command == "quantize" else []
    for option, name in (("--include", "absent"), ("--exclude", "absent"), ("--include", "absent*")):
        code, _, stderr = run(capsys, command, model, *rest, option, name)
        assert code == 1
        assert_one_line(stderr, model, "absent")
    assert not os.path.exists(out)


def test_output_that_cannot_be_written_exits_with_1(capsys, model, tmp_path):
    absent = str(tmp_path / "absent" / "out")
    for arguments in (
        ["quantize", model, absent, "--format", "int8"],
        ["quantize", model, str(tmp_path), "--format", "int8"],
        ["study", model, "--html", absent],
        ["study", model, "--csv", str(tmp_path)],
    ):
        code, stdout, stderr = run(capsys, *arguments)
        assert code == 1 and stdout == ""
        assert_one_line(stderr, str(tmp_path))


# Successes.


def test_quantize_prints_one_object(capsys, model, out):
    code, stdout, stderr = run(
        capsys, "quantize", model, out, "--format", "vsq4-g16-s4", "--exclude", "*odd*", "--json"
    )
    assert code == 0 and "quantize" in stderr
    found = parse(stdout)
    assert {row["name"]: row["format"] for row in found["tensors"]}["fc.weight"] == "vsq4-g16-s4"
    assert sum(row["format"] is not None for row in found["tensors"]) == 1
    assert found["bytes"] < found["bytes_before"]
    assert str(hc.load(out)["fc.weight"].format) == "vsq4-g16-s4"


def test_quantize_follows_a_recipe_and_replaces(capsys, model, out, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[formats]\n"fc.*" = "int4-g16"\n"*" = "skip"\n')
    with open(out, "w") as file:
        file.write("old")
    code, stdout, stderr = run(capsys, "quantize", model, out, "--recipe", recipe)
    assert code == 2 and "OUT is an existing file, which --overwrite replaces" in stderr
    with open(out) as file:
        assert file.read() == "old"
    code, stdout, _ = run(capsys, "quantize", model, out, "--recipe", recipe, "--overwrite")
    assert code == 0 and "1 tensor quantized, 2 copied" in stdout
    assert str(hc.load(out)["fc.weight"].format) == "int4-g16"


def test_inspect_prints_one_object_without_nan(capsys, tmp_path):
    path = str(tmp_path / "x.safetensors")
    save(path, {"w": np.array([[np.nan, np.inf, 1]]), "q": hc.quantize(np.ones((2, 8), np.float32), "int4")})
    code, stdout, _ = run(capsys, "inspect", path, "--json")
    rows = parse(stdout)["tensors"]
    assert code == 0
    assert all(set(row) == {"name", "dtype", "shape", "format", "bytes", "min", "max", "nan"} for row in rows)
    assert rows[0] == {
        "name": "w", "dtype": "float64", "shape": [1, 3], "format": None, "bytes": 24, "min": 1.0, "max": None, "nan": 1
    }  # fmt: skip
    assert (rows[1]["name"], rows[1]["format"], rows[1]["bytes"]) == ("q", "int4", 16)


def test_tables_are_plain_text_without_a_terminal(capsys, model):
    code, stdout, stderr = run(capsys, "inspect", model)
    assert code == 0
    assert "\x1b" not in stdout + stderr
    assert "[red]odd\\x1b[31m.weight" in stdout and "16 x 64" in stdout and "3 tensors" in stdout
    assert stderr.splitlines()[-1] == "inspect model.safetensors: 100%"


def test_study_of_a_checkpoint(capsys, model, tmp_path):
    table, page = str(tmp_path / "t.csv"), str(tmp_path / "r.html")
    code, stdout, stderr = run(
        capsys, "study", model, "--formats", "int8,vsq4-g16-s4", "--csv", table, "--html", page, "--json"
    )
    assert code == 0 and "100%" in stderr
    found = parse(stdout)
    assert [row["format"] for row in found["rows"]] == ["stored", "int8", "vsq4-g16-s4"]
    assert {row["name"] for row in found["layers"]} == {"fc.weight", "[red]odd\x1b[31m.weight"}
    with open(table, newline="") as file:
        assert [row["format"] for row in csv.DictReader(file)] == ["stored", "int8", "vsq4-g16-s4"]
    with open(page) as file:
        assert "vsq4-g16-s4" in file.read()


def test_study_takes_a_recipe_as_one_more_row(capsys, model, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[formats]\n"fc.*" = "int4"\n"*" = "skip"\n')
    code, stdout, _ = run(capsys, "study", model, "--formats", "int8", "--recipe", recipe, "--json")
    rows = parse(stdout)["rows"]
    assert code == 0 and len(rows) == 3
    assert rows[1]["bytes"] < rows[2]["bytes"] or rows[2]["bits"] < 32


def test_study_prints_tables(capsys, model):
    code, stdout, _ = run(capsys, "study", model, "--formats", "int8,int4", "--include", "fc.*")
    assert code == 0
    assert "int4" in stdout and "Pareto" in stdout and "\x1b" not in stdout


def test_info_shows_the_machine(capsys):
    code, stdout, _ = run(capsys, "info")
    assert code == 0 and "scalar" in stdout
    code, stdout, _ = run(capsys, "info", "--json")
    assert code == 0 and "scalar" in parse(stdout)["isa_found"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["study", "--csv", "-"],
        ["study", "--html", "-"],
        ["devices", "--html", "-"],
        ["count", "resnet50", "--html", "-"],
        ["roofline", "resnet50", "a100-sxm-80gb", "--plot", "-"],
        ["map", "absent.yaml", "--yaml", "-"],
        ["map", "absent.yaml", "--html", "-"],
        ["quantize", "absent", "-", "--format", "int8"],
        ["prune", "absent", "-", "--pattern", "2:4"],
    ],
)
def test_a_dash_is_no_file(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = run(capsys, *arguments)
    assert code == 2 and stdout == "" and not os.listdir(tmp_path)
    assert_usage(stderr, f"heterocompute {arguments[0]}", "is '-', expected the path of a file", "--json")


def test_every_file_that_is_written_is_asked_for_by_a_known_name():
    """Otherwise a new option would not refuse a dash."""
    names = set()
    for command in cli._parser()._subparsers._group_actions[0].choices.values():
        command.fill()
        names |= {action.dest for action in command._actions if action.metavar in ("PATH", "OUT")}
    assert names == set(cli.WRITTEN)


def test_every_file_that_is_read_is_asked_for_by_a_known_name():
    """Otherwise a command could overwrite the file of a new option."""
    names = set()
    for command in cli._parser()._subparsers._group_actions[0].choices.values():
        command.fill()
        kinds = ("FILE", "IN", "MODEL", "C", "NPY", "BASE")
        names |= {action.dest for action in command._actions if action.metavar in kinds}
    assert names == set(cli.READ)


@pytest.mark.parametrize("arguments", [["devices", "--html"], ["count", "resnet18", "--html"], ["study", "--csv"]])
def test_places_that_cannot_be_written_are_found_before_the_work(capsys, tmp_path, arguments):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for place in ("absent/out", ".", "file/out", "pipe"):
        code, stdout, stderr = run(capsys, *arguments, tmp_path / place)
        assert code == 1 and stdout == ""
        assert_one_line(stderr, str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["file", "pipe"]
