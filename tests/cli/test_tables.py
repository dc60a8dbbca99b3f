"""Tables on terminals of any width, and without a terminal: no text is cut, and omitted columns are named."""

import json
import os
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

from heterocompute.cli import command as cli
from heterocompute.cli.map import EXAMPLE
from heterocompute.files.safetensors import save
from heterocompute.report.study import study_columns
from heterocompute.report.table import Column, fitting, lay_out

SECONDS = 120
LONG = "model.layers.31.self_attn.q_proj.weight." * 5
NAMES = ["[bold]a[/bold].weight", "größe.重み", LONG, "b", "a\x1b[31m\x07"]

# Runs each line of arguments in one process, a line of dashes after each.
EACH = """
import json, sys
from heterocompute.cli import command as cli
from heterocompute.cli.map import EXAMPLE
for arguments in json.loads(sys.argv[1]):
    try:
        code = cli.main(arguments)
    except SystemExit as end:  # --help
        code = end.code
    assert not code, arguments
    print("=====", flush=True)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "[red]model.safetensors")
    random = np.random.default_rng(0)
    save(path, {name: random.standard_normal((8, 32)).astype(np.float32) for name in NAMES})
    with open(os.path.join(os.path.dirname(path), "conv.toml"), "w") as file:
        file.write(EXAMPLE)
    return path


def commands(model):
    return {
        "study": ["study", "--formats", "int8,vsq4-g16-s4,int4-g32-f16", "--activations", "int8", "--timing"],
        "study MODEL": ["study", model, "--formats", "int8,vsq4-g16-s4"],
        "inspect": ["inspect", model],
        "devices": ["devices"],
        "devices NAME": ["devices", "t4"],
        "count": ["count", "resnet18"],
        "roofline": ["roofline", "resnet18", "t4"],
        "accelerators": ["accelerators", "alexnet_original", "eyeriss"],
        "formats": ["formats", "nf4"],
        "info": ["info"],
        "map": ["map", os.path.join(os.path.dirname(model), "conv.toml"), "--search", "--budget", "1000"],
    }


@pytest.fixture(scope="module")
def whole(model):
    """Return the output of each command in a pipe, independent of the environment."""
    lines = commands(model)
    return dict(zip(lines, run(list(lines.values()), COLUMNS="60", FORCE_COLOR="1"), strict=True))


def run(lines, width=None, stderr=subprocess.DEVNULL, **environment):
    """Return the output of some commands on a terminal of a width, or in a pipe."""
    command = [sys.executable, "-c", EACH, json.dumps(lines)]
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "LC_ALL", "LC_CTYPE")}
    environment = {**kept, "TERM": "xterm", "LANG": "C.UTF-8", **environment}
    if width is None:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=SECONDS)
        code, out, error = done.returncode, done.stdout, done.stderr
    else:
        code, out, error = on_a_terminal(command, width, stderr, environment)
    assert code == 0, error
    return out.decode().replace("\r", "").split("=====\n")[: len(lines)]


def on_a_terminal(command, width, stderr, environment):
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    with subprocess.Popen(command, stdout=theirs, stderr=stderr, env=environment) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # Linux reports the closed terminal so
                break
            if not part:
                break
            parts.append(part)
        os.close(ours)
        return process.wait(SECONDS), b"".join(parts), b""


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def cells(text):
    """Return the parts of a text that are separated by two blanks or a line end; tables do not break these."""
    return {word for line in plain(text).splitlines() for word in re.split(r"  +", line.strip())}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.sweep(every=0)
def test_on_a_terminal_nothing_is_cut(model, whole, width):
    from rich.cells import cell_len

    lines = commands(model)
    shown = dict(zip(lines, run(list(lines.values()), width), strict=True))
    for name, text in shown.items():
        longest = [line for line in plain(text).splitlines() if cell_len(line) > width]
        assert all(line.strip() == LONG for line in longest), (name, longest)
        assert "…" not in text and "\x1b[31m" not in text
        if "time" not in cells(text) | cells(whole[name]):  # times differ from run to run
            numbers = {word for word in cells(text) if re.fullmatch(r"[0-9.,?%-]+", word)}
            assert numbers <= cells(whole[name]) and (numbers or name in ("devices NAME", "info"))
    for name in ("study MODEL", "inspect"):
        found = plain(shown[name])
        for tensor in ("[bold]a[/bold].weight", "größe.重み", LONG, "a\\x1b[31m\\x07"):
            assert tensor in found
    assert {"vsq4-g16-s4", "int4-g32-f16", "accuracy", "bits"} <= {word.strip("● ") for word in cells(shown["study"])}
    heads = {60: {"size", "time", "vs fp32"}, 80: set(), 120: set()}[width]
    assert not heads & cells(shown["study"])
    assert ("not shown: size, SQNR dB, time, vs fp32 (a wider" in plain(shown["study"])) == bool(heads)
    if width == 60:
        assert re.search(r"^not shown: min, max \(a wider terminal, --json", shown["inspect"], re.MULTILINE)
    assert shown["study"].rpartition("\n→ ")[2].startswith("vsq4-g16-s4: 4.37 bits")


@pytest.mark.sweep(every=0)
def test_a_pipe_gets_the_whole_table_without_escapes(whole):
    found = whole
    assert not [name for name, text in found.items() if "\x1b" in text or "not shown" in text]
    assert {"size", "SQNR dB", "accuracy", "time", "vs fp32"} <= cells(found["study"])
    assert {"dtype", "shape", "format", "bytes", "min", "max", "NaN"} <= cells(found["inspect"])
    *_, last = found["study"].splitlines()
    assert re.fullmatch(
        r"→ vsq4-g16-s4( / int8)?: 4.37 bits, 7.3 x smaller: the smallest within 1 % of .*accuracy", last
    )


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"LC_ALL": "C"}], ids=str)
@pytest.mark.sweep(every=3)
def test_terminals_that_can_do_little(model, environment):
    # a bar moves the cursor, even without colour; without cursor control, progress is printed as lines
    bar = {"stderr": subprocess.STDOUT} if "NO_COLOR" not in environment else {}
    found = run(list(commands(model).values()), 80, **bar, **environment)
    assert not bar or "study digits: 100% done" in found[0]
    for text in found:
        assert "\x1b" not in text
        assert text.isascii() or "LC_ALL" not in environment
        assert "\\u2" not in text  # characters of the package are replaced, not escaped


@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}], ids=str)
@pytest.mark.sweep(every=2)
def test_without_unicode_all_is_ascii(model, environment):
    lines = {**commands(model), "study --help": ["study", "--help"], "map --example": ["map", "--example"]}
    shown = dict(zip(lines, run(list(lines.values()), **environment), strict=True))
    for text in shown.values():
        assert text.isascii() and "\\u2" not in text
    assert r"gr\xf6\xdfe.\u91cd\u307f" in shown["inspect"]  # names are escaped if the encoding lacks a character


def test_tables_without_rows(tmp_path, capsys):
    save(tmp_path / "none.safetensors", {})
    assert cli.main(["inspect", str(tmp_path / "none.safetensors")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 tensors, 0 B"
    assert cli.main(["devices", "--year", "1900"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 devices;")


# The rule itself.


def test_columns_leave_in_their_order_and_only_as_many_as_must():
    columns = [
        Column("a", "name"),
        *(Column(key, key * 8, leaves=n) for key, n in zip("bcde", (2, 0, 1, 2), strict=True)),
    ]
    row = dict(zip("abcde", ("x" * 10, 1, 2, 3, 4), strict=True))
    found = {}
    for width in range(20, 60):
        head, ((line,),), left_out = lay_out(columns, [row], width)
        assert head[0].split() == [column.title for column in columns if column.title not in left_out]
        assert max(map(len, (*head, line))) <= width
        found[tuple(text[0] for text in left_out)] = width
    assert found == {("b", "d", "e"): 29, ("b", "e"): 49, (): 59}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_width_names_and_numbers_are_whole(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 7))
    columns = [Column(f"{i}", f"title{i}", leaves=int(random.integers(0, 4)), left=i % 2 == 1) for i in range(n)]
    rows = [{f"{i}": "n" * int(random.integers(1, 30)) + f"{i}" for i in range(n)} for _ in range(8)]
    for width in range(1, 200, 7):
        _, lines, left_out = lay_out(columns, rows, width)
        for row, found in zip(rows, lines, strict=True):
            words = " ".join(found).split()
            assert words == [row[column.key] for column in columns if column.title not in left_out]
        assert all(columns[int(title[-1])].leaves for title in left_out)


def test_a_long_name_stands_above_its_figures():
    columns = [Column("name", "name"), Column("bits", "bits"), Column("size", "size", leaves=1)]
    rows = [{"name": name, "bits": 4, "size": 100} for name in ("short", "l" * 50)]
    _, lines, left_out = lay_out(columns, rows, 20)
    assert lines == [["short     4   100"], ["l" * 50, "          4   100"]] and not left_out


def test_numbers_of_evaluate_are_columns_that_leave_before_the_metric():
    row = {"format": "int8", "activations": None, "bits": 8, "bytes": 9, "sqnr_db": 1, "seconds": 1}
    leaves = {c.key: c.leaves for c in study_columns([{**row, "accuracy": 1, "kl": 2, "new": 3}], "accuracy")}
    assert sorted(leaves, key=leaves.get)[-6:] == ["kl", "new", "sqnr_db", "seconds", "speed", "bytes"]
    assert leaves["accuracy"] == leaves["bits"] == leaves["format"] == 0


def test_signs_fit_the_encoding():
    for encoding in ("utf-8", "ascii", "latin-1", "cp437", None):
        fitting("─●–µ×→… 重み", encoding).encode(encoding or "utf-8")
    assert fitting("─●–µ→", "ascii") == "-*-u->" and fitting("µ", "latin-1") == "µ"


def test_a_pipe_needs_no_rich():
    """Its import takes 70 ms, of which a study in a pipe and a notebook has no use."""
    code = (
        "import sys, numpy as np, heterocompute as hc; from heterocompute.cli import main; main(['devices', 't4']); "
        "print(hc.study({'grö': np.ones((4, 64), 'f4')}, ['int8'])); main(['formats']); print('rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code], capture_output=True, text=True, timeout=SECONDS, encoding="utf-8"
    )
    assert done.returncode == 0 and done.stdout.endswith("\nFalse\n") and "● int8" in done.stdout, done.stderr
