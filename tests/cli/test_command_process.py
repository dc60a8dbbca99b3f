"""The command as a process: closed pipes, encodings, and no remaining files after Ctrl-C."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from common import HANG, default_signals

from heterocompute.base.interrupt import is_command
from heterocompute.files.safetensors import save


def start(*arguments, code=None, **options):
    command = ["-m", "heterocompute"] if code is None else ["-c", code]
    return subprocess.Popen(
        [sys.executable, *command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
        **options,
    )


def test_module_is_the_command(model):
    process = start("inspect", model, "--json")
    stdout, _ = process.communicate(timeout=HANG)
    assert process.returncode == 0 and len(json.loads(stdout)["tensors"]) == 3
    process = start("inspect", model + ".absent")
    stdout, stderr = process.communicate(timeout=HANG)
    assert process.returncode == 1 and stdout == ""
    assert len(stderr.splitlines()) == 1 and "absent" in stderr and "Traceback" not in stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes are POSIX's")
def test_closed_pipe_is_no_traceback(model):
    process = start("inspect", model)
    process.stdout.close()
    stderr = process.stderr.read()
    process.wait(timeout=HANG)
    assert "Traceback" not in stderr and "Exception" not in stderr


@pytest.mark.skipif(os.name != "posix", reason="needs an encoding by the locale")
def test_names_fit_a_narrow_encoding(tmp_path):
    path = str(tmp_path / "model.safetensors")
    save(path, {"größe.重み": np.ones((2, 2))})
    process = start("inspect", path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    stdout, stderr = process.communicate(timeout=HANG)
    assert process.returncode == 0 and "gr\\xf6\\xdfe" in stdout, stderr


# A call of the core that takes long and cannot be interrupted: the second thread sleeps, whatever the main one does.
BUSY = """
import sys, time
import heterocompute.files.changes as changes, heterocompute.ptq.methods as methods
from heterocompute.cli import command as cli
from heterocompute.base.interrupt import is_command

def busy(*_, **__):
    print("busy", file=sys.stderr, flush=True)
    time.sleep(600)

changes.quantize = methods.quantize = busy
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
@pytest.mark.parametrize("command", ["quantize", "study"])
@pytest.mark.sweep(every=4)
def test_interrupt_leaves_nothing_behind(model, out, tmp_path, command):
    rest = [out, "--format", "int8", "--overwrite"] if command == "quantize" else ["--formats", "int8", "--html", out]
    if command == "quantize":
        with open(out, "w") as file:
            file.write("old")
    before = sorted(os.listdir(tmp_path))
    process = start(command, model, *rest, code=BUSY)
    try:
        for line in process.stderr:
            if line == "busy\n":
                break
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert stdout == "" and stderr == "interrupted\n"
    assert sorted(os.listdir(tmp_path)) == before
    if command == "quantize":
        with open(out) as file:
            assert file.read() == "old"


@pytest.mark.skipif(os.name != "posix", reason="needs SIGTERM")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_told_to_end_leaves_nothing_behind(model, out, tmp_path, number):
    before = sorted(os.listdir(tmp_path))
    process = start("quantize", model, out, "--format", "int8", code=BUSY)
    try:
        for line in process.stderr:
            if line == "busy\n":
                break
        assert sorted(os.listdir(tmp_path)) != before
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode == -number and stdout == stderr == ""
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("options", "ours"),
    [
        (["-m", "heterocompute", "info"], True),
        (["-X", "dev", "-Im", "heterocompute"], True),
        (["-W", "mild", "-mheterocompute"], True),
        (["-m", "heterocompute.__main__"], True),
        (["-m", "package.module", "heterocompute"], False),
        (["-mpackage.module", "-mheterocompute"], False),
        (["-m", "package.module", "-m", "heterocompute"], False),
    ],
)
def test_a_module_of_others_is_not_the_command(monkeypatch, options, ours):
    monkeypatch.setattr(sys, "argv", ["-m"])
    monkeypatch.setattr(sys, "orig_argv", ["python", *options])
    assert is_command() is ours


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
@pytest.mark.parametrize("way", ["module", "script"])
def test_interrupt_during_the_import_is_no_traceback(tmp_path, way):
    script = tmp_path / "heterocompute"  # the content of the installed command
    script.write_text("import sys\nfrom heterocompute.cli import main\nsys.exit(main())\n")
    arguments = ["-m", "heterocompute"] if way == "module" else [str(script)]
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *arguments, "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    try:
        for line in process.stderr:  # a module of NumPy is imported, but heterocompute and most of NumPy are not
            if "numpy" in line:
                break
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert stdout == "" and "Traceback" not in stderr and stderr.endswith("interrupted\n")


def test_importing_the_package_leaves_signals_alone():
    code = "import signal; import heterocompute; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True, preexec_fn=default_signals)
