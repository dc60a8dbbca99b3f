"""Closed or full standard streams, full disks, and devices and pipes in place of files."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec

import numpy as np
import pytest
from common import HANG, default_signals

import heterocompute as hc
from heterocompute.cli import command as cli
from heterocompute.files import checkpoint
from heterocompute.files.safetensors import save

pytestmark = pytest.mark.skipif(os.name != "posix" or not os.path.exists("/dev/full"), reason="needs /dev/full")

FULL = "No space left on device"


@pytest.fixture
def model(tmp_path):
    path = str(tmp_path / "model.safetensors")
    save(path, {"fc.weight": np.random.default_rng(3).standard_normal((64, 512)).astype(np.float32)})
    return path


def shell(line, *arguments, **environment):
    """Run the command by a shell line, in which "$@" stands for the command."""
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "heterocompute", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, env={**os.environ, **environment})
    for text in (done.stdout, done.stderr):
        assert "Traceback" not in text and "Exception" not in text
    return done


COMMANDS = {
    "inspect": lambda model: ["inspect", model],
    "study": lambda model: ["study", model, "--formats", "int8"],
    "devices": lambda model: ["devices"],
    "count": lambda model: ["count", "resnet18"],
    "map": lambda model: ["map", "--example"],
    "info": lambda model: ["info"],
    "help": lambda model: ["quantize", "--help"],
}


@pytest.mark.parametrize("name, unbuffered", [*((name, "") for name in COMMANDS), ("inspect", "1"), ("help", "1")])
@pytest.mark.sweep(every=12)
def test_a_full_standard_output_is_named(model, name, unbuffered):
    done = shell('"$@" >/dev/full', *COMMANDS[name](model), PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f": standard output: {FULL}")


@pytest.mark.parametrize("name", ["inspect", "help"])
def test_a_closed_standard_output_is_refused_before_any_work(model, name):
    done = shell('"$@" >&-', *COMMANDS[name](model))
    assert done.returncode == 1
    assert done.stderr == ("heterocompute: standard output: closed; redirect it to /dev/null to show nothing\n")


CLOSED = ['"$@" >&-', '"$@" >&- 2>&-', '"$@" <&- >&- 2>&-']


@pytest.mark.parametrize("line", CLOSED)
@pytest.mark.sweep(every=3)
def test_files_are_written_without_standard_output(model, tmp_path, line):
    out, page = tmp_path / "out.safetensors", tmp_path / "page.html"
    done = shell(line, "quantize", model, out, "--format", "int8")
    assert done.returncode == 0 and done.stdout == "" and "closed" not in done.stderr
    assert hc.load(out)["fc.weight"] == hc.quantize(hc.load(model)["fc.weight"], "int8")
    done = shell(line, "study", model, "--formats", "int8", "--html", page)
    assert done.returncode == 0 and page.read_text().startswith("<!doctype html>")
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors", "out.safetensors", "page.html"]


@pytest.mark.parametrize("line", CLOSED)
@pytest.mark.parametrize("rest", [[], ["--json", "--html", "page.html"]])
@pytest.mark.sweep(every=12)
def test_a_command_that_only_prints_needs_standard_output(model, tmp_path, line, rest):
    rest = [str(tmp_path / one) if "." in one else one for one in rest]
    done = shell(line, "study", model, "--formats", "int8", *rest)
    assert done.returncode == 1 and os.listdir(tmp_path) == ["model.safetensors"]
    if "2>&-" not in line:
        assert "standard output: closed; redirect it to /dev/null" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
@pytest.mark.sweep(every=0)
def test_an_interrupt_at_any_moment_is_an_exit_code(model, tmp_path):
    """From the first line of the package to the end of the interpreter, which removes signal handlers."""
    script = tmp_path / "heterocompute"
    script.write_text("import sys\nfrom heterocompute.base import interrupt\nprint(flush=True)\n"
                      "from heterocompute.cli import main\nsys.exit(main())\n")  # fmt: skip
    codes, taken = set(), None
    for i in range(8):
        process = subprocess.Popen(
            [sys.executable, str(script), "formats", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=default_signals,
        )
        process.stdout.readline()
        begin = time.monotonic()
        if taken is not None:  # most moments are near the end
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(taken * (0.3, 0.6, 0.8, 0.9, 0.95, 1, 1.02)[i - 1])
            process.send_signal(signal.SIGINT)
        process.stdout.read()
        codes.add(process.wait(HANG))
        taken = taken or time.monotonic() - begin
    assert codes <= {0, 130} and 0 in codes


LAST = """
import atexit, ctypes, os, signal, sys
from heterocompute.base import interrupt
from heterocompute.cli import main

if sys.argv[-1] == "handlers of Python":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
else:  # Python has ended, and the signal would end the process
    libc = ctypes.CDLL(None)
    send = ctypes.cast(getattr(libc, "raise"), ctypes.c_void_p)
    libc.__cxa_atexit(send, ctypes.c_void_p(signal.SIGINT), None)
sys.argv[1:] = ["formats", "--json"]
sys.exit(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the C library of Linux")
@pytest.mark.parametrize("when", ["handlers of Python", "handlers of C"])
@pytest.mark.sweep(every=4)
def test_an_interrupt_while_the_interpreter_ends_leaves_the_code(tmp_path, when):
    script = tmp_path / "heterocompute"
    script.write_text(LAST)
    done = subprocess.run(
        [sys.executable, str(script), when],
        capture_output=True,
        timeout=HANG,
        preexec_fn=default_signals,
    )
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.startswith(b"{")


@pytest.mark.parametrize("line", ['"$@" 2>&-', '"$@" <&- 2>/dev/full'])
@pytest.mark.sweep(every=2)
def test_nobody_needs_to_read_standard_error(model, tmp_path, line):
    out = tmp_path / "out.safetensors"
    done = shell(line, "quantize", model, out, "--format", "int8")
    assert done.returncode == 0 and "1 tensor quantized" in done.stdout
    assert hc.load(out)["fc.weight"] == hc.quantize(hc.load(model)["fc.weight"], "int8")
    for code, arguments in (1, ["inspect", tmp_path / "absent"]), (2, ["inspect"]):
        done = shell(line, *arguments)
        assert done.returncode == code and done.stdout == ""


# A file that may have no byte is a full disk.

WRITERS = {
    "quantize": lambda model, out: ["quantize", model, out, "--format", "int8"],
    "prune": lambda model, out: ["prune", model, out, "--pattern", "50%"],
    "study --csv": lambda model, out: ["study", model, "--formats", "int8", "--csv", out],
    "study --html": lambda model, out: ["study", model, "--formats", "int8", "--html", out],
    "devices --html": lambda model, out: ["devices", "--html", out],
    "roofline --plot": lambda model, out: ["roofline", "resnet18", "t4", "--plot", out],
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.sweep(every=16)
def test_a_full_disk_names_the_file_and_leaves_nothing(model, tmp_path, name):
    if "plot" in name:
        pytest.importorskip("matplotlib")
    out = str(tmp_path / "out.png")
    done = shell('ulimit -f 0; "$@"', *WRITERS[name](model, out))
    assert done.returncode == 1 and done.stderr.splitlines()[-1].endswith(f"{out}: File too large")
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_nothing_is_written_to_a_device(model, capsys):
    for make in WRITERS.values():
        assert cli.main(make(model, "/dev/full")) == 1
        assert "/dev/full: is a character device, expected a regular file" in capsys.readouterr().err.splitlines()[-1]
        assert not os.path.exists("/dev/full.png")


def test_a_mapping_is_written_whole_or_not_at_all(tmp_path):
    pytest.importorskip("yaml")
    arguments = ["map", tmp_path / "in.yaml", "--yaml", tmp_path / "out.yaml"]
    (tmp_path / "in.yaml").write_text(shell('"$@"', "map", "--example").stdout)
    (tmp_path / "out.yaml").write_text("old")
    done = shell('ulimit -f 0; "$@"', *arguments)
    assert done.returncode == 1 and done.stderr.endswith(f"{tmp_path / 'out.yaml'}: File too large\n")
    assert sorted(os.listdir(tmp_path)) == ["in.yaml", "out.yaml"] and (tmp_path / "out.yaml").read_text() == "old"


# Files that are read.

READERS = {
    "inspect": lambda model, path: ["inspect", path],
    "study": lambda model, path: ["study", path],
    "quantize": lambda model, path: ["quantize", path, f"{model}.out", "--format", "int8"],
    "recipe": lambda model, path: ["quantize", model, f"{model}.out", "--recipe", path],
    "study --recipe": lambda model, path: ["study", model, "--recipe", path],
    "prune --recipe": lambda model, path: ["prune", model, f"{model}.out", "--recipe", path],
    "devices --device-file": lambda model, path: ["devices", "--device-file", path],
    "roofline --device-file": lambda model, path: ["roofline", "resnet18", "mine", "--device-file", path],
    "study --device-file": lambda model, path: ["study", model, "--device", "mine", "--device-file", path],
    "map": lambda model, path: ["map", path],
    "count": lambda model, path: ["count", f"{path}.onnx"],
    "roofline": lambda model, path: ["roofline", f"{path}.onnx", "t4"],
    "accelerators": lambda model, path: ["accelerators", f"{path}.onnx"],
    "explore": lambda model, path: ["explore", f"{path}.onnx"],
    "explore --study": lambda model, path: ["explore", "lenet5", "--study", path],
    "study of ONNX": lambda model, path: ["study", f"{path}.onnx"],
    "study of ONNX --data": lambda model, path: [
        "study",
        f"{path}.onnx",
        "--data",
        f"{model}.npy",
        "--labels",
        f"{model}.npy",
    ],
    "study --data": lambda model, path: ["study", f"{model}.onnx", "--data", path, "--labels", "y.npy"],
    "study --labels": lambda model, path: ["study", f"{model}.onnx", "--data", f"{model}.npy", "--labels", path],
    "quantize of ONNX": lambda model, path: ["quantize", f"{path}.onnx", f"{model}.out", "--format", "int8"],
    "prune": lambda model, path: ["prune", path, f"{model}.out", "--pattern", "2:4"],
    "dequantize": lambda model, path: ["dequantize", path, f"{model}.out"],
    "search": lambda model, path: ["search", path, "--budget", "bits=4"],
    "ptq": lambda model, path: ["ptq", path, f"{model}.out", "--format", "int4", "--inputs", model],
    "ptq --inputs": lambda model, path: [
        *("ptq", model, f"{model}.out", "--format", "int4", "--inputs", path),
    ],
    "search --inputs": lambda model, path: ["search", model, "--budget", "bits=4", "--inputs", path],
    "quantize, to be written": lambda model, path: ["quantize", model, path, "--format", "int8"],
    "study --csv, to be written": lambda model, path: ["study", model, "--csv", path],
}


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path)


KINDS = {
    "a character device": lambda path: os.symlink("/dev/zero", path),
    "a FIFO": os.mkfifo,
    "a socket": make_socket,
}


# Runs each line of arguments in one process, with a time limit.
EACH = """
import contextlib, io, json, sys
from heterocompute.cli import command as cli
for arguments in json.load(sys.stdin):
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        code = cli.main(arguments)
    print(code, error.getvalue().splitlines()[-1])
"""


@pytest.mark.sweep(every=0)
def test_what_has_no_end_is_not_read(model):
    np.save(f"{model}.npy", np.zeros((2, 2), np.float32))
    needs = {"map": "yaml"} | {name: "onnx" for name, make in READERS.items() if ".onnx" in str(make("", ""))}
    readers = [make for name, make in READERS.items() if name not in needs or find_spec(needs[name])]
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket is short
        paths = {kind: os.path.join(folder, str(i)) for i, kind in enumerate(KINDS)}
        for kind, path in paths.items():
            for place in (path, f"{path}.onnx"):
                KINDS[kind](place)
        asked = [(kind, path, make(model, path)) for kind, path in paths.items() for make in readers]
        lines = json.dumps([arguments for *_, arguments in asked])
        done = subprocess.run([sys.executable, "-c", EACH], input=lines, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    for line, (kind, path, arguments) in zip(done.stdout.splitlines(), asked, strict=True):
        assert line.startswith("1 heterocompute "), (arguments, line)
        assert path in line and line.endswith(f"is {kind}, expected a regular file"), (arguments, line)


@pytest.mark.parametrize("name", ["recipe", "devices --device-file", "map"])
def test_texts_have_a_largest_size(model, tmp_path, capsys, name):
    if name == "map":
        pytest.importorskip("yaml")
    path = tmp_path / "given"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    assert cli.main(READERS[name](model, str(path))) == 1
    assert f"{path}: more than " in capsys.readouterr().err.splitlines()[-1]


def test_too_little_memory_names_file_and_tensor(model, tmp_path, monkeypatch, capsys):
    def starve(*_, **__):
        raise MemoryError

    monkeypatch.setattr("heterocompute.files.changes.quantize", starve)
    assert cli.main(["quantize", model, str(tmp_path / "out"), "--format", "int8"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"heterocompute quantize: {model}: tensor 'fc.weight': not enough memory"
    monkeypatch.setattr("heterocompute.ptq.methods.quantize", starve)
    assert cli.main(["study", model, "--formats", "int8"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"heterocompute study: {model}: tensor 'fc.weight': not enough memory"
    monkeypatch.setattr(np, "empty", starve)
    assert cli.main(["quantize", model, str(tmp_path / "out"), "--format", "int8"]) == 1
    assert f"{model}: tensor 'fc.weight': " in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setattr(checkpoint, "entries", starve)
    assert cli.main(["inspect", model]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"heterocompute inspect: {model}: not enough memory"
    assert os.listdir(tmp_path) == ["model.safetensors"]
