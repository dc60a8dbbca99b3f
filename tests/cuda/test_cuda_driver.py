"""The driver is opened at run time; each way that this fails is one sentence, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys

import driven
import emulated
import pytest

SCRIPT = """
import numpy as np, heterocompute as hc
print(hc.show_config(mode="dicts")["cuda"])
q = hc.quantize(np.ones((2, 32), np.float32), "int8")
try:
    q.to("cuda")
except Exception as error:
    print(type(error).__name__, error)
else:
    print("moved")
{more}
"""


def run(more: str = "", **changed: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "HETEROCOMPUTE_CUDA_DRIVER"}
    script = SCRIPT.format(more=more)
    return subprocess.run(
        [sys.executable, "-u", "-c", script],
        env={**environment, **changed},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_machine_without_a_driver_says_so() -> None:
    done = run(HETEROCOMPUTE_CUDA_DRIVER="/nonexistent/libcuda.so.1")
    assert done.returncode == 0, done.stderr
    config, error = done.stdout.splitlines()
    assert "no driver (/nonexistent/libcuda.so.1: cannot open shared object file" in config
    assert error.startswith("Unsupported cuda: no driver")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"FAKE_DRIVER_EMPTY": "1"}, "cuda: the driver finds no device"),
        ({"FAKE_DRIVER_VERSION": "12080"}, "cuda: the driver supports CUDA 12.8, expected 13.0: update it to 580"),
        ({"FAKE_DRIVER_FAILS": "1"}, "cuda: the driver does not start: unknown error (error 999)"),
    ],
)
def test_a_driver_that_does_not_start_is_a_sentence(changed: dict[str, str], sentence: str) -> None:
    done = run(**driven.environment(), **changed)
    assert done.returncode == 0, done.stderr
    assert f"Unsupported {sentence}" in done.stdout


def test_a_library_that_is_no_driver_is_a_sentence() -> None:
    kernels = driven.environment()["FAKE_DRIVER_KERNELS"]
    done = run(HETEROCOMPUTE_CUDA_DRIVER=kernels)
    assert done.returncode == 0, done.stderr
    assert "the driver has no function cuInit" in done.stdout


def test_the_driver_is_found_by_its_name(tmp_path: object) -> None:
    paths = driven.environment()
    os.symlink(paths["HETEROCOMPUTE_CUDA_DRIVER"], f"{tmp_path}/libcuda.so.1")
    done = run(LD_LIBRARY_PATH=str(tmp_path), FAKE_DRIVER_KERNELS=paths["FAKE_DRIVER_KERNELS"])
    assert done.returncode == 0, done.stderr
    config, moved = done.stdout.splitlines()
    assert "driver 13.0; cuda:0 fake device (sm_80), cuda:1 fake device (sm_80)" in config and moved == "moved"


def test_memory_of_the_fake_device_is_out_of_reach_of_the_host() -> None:
    touch = "import ctypes; ctypes.string_at(q.to('cuda').components['codes'].address, 1)"
    done = run(touch, **driven.environment())
    assert done.returncode and done.stdout.splitlines()[-1] == "moved"  # -11, or 1 under a sanitizer


@pytest.mark.parametrize(
    ("before", "holds"),
    [
        ("NumPy:\n\n", "y.tobytes() == hc.linear(x, q.to('cpu'), activations='int8').tobytes()"),
        ("run it with a fake driver.\n\n", "y.tobytes() == hc.linear(x, q.to('cpu')).tobytes()"),
        ("it runs with a fake driver.\n\n", "ready.nbytes == 5 * 64 * 128 // 8 + 256"),
    ],
)
def test_the_blocks_for_numpy_on_the_page_run(before: str, holds: str) -> None:
    page = (emulated.ROOT / "docs/cuda.md").read_text()
    block = page.split(f"{before}```py\n")[1].split("```")[0]
    done = run(f"{block}\nassert {holds}\n", **driven.environment())
    assert done.returncode == 0, done.stderr


def test_a_device_that_fails_is_a_sentence_until_the_process_ends() -> None:
    more = """
from heterocompute.arrays.device import DeviceArray
x = DeviceArray.from_numpy(np.ones((200, 32), np.float32))
small = DeviceArray.empty((2, 32), np.float32)
large = DeviceArray(small, small.address, (200, 32), small.dtype, (128, 4), 0, 1)
for _ in range(2):
    try:
        q.to("cuda"), hc.fake_quantize(x, "int8", out=large)
    except RuntimeError as error:
        print(error)
"""
    done = run(more, **driven.environment())
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    if os.environ.get("HETEROCOMPUTE_TEST_PTX"):  # each address is checked
        assert "st.global.v4.u32 touches 16 bytes at" in first and first.endswith(
            "which no allocation holds (error 719)"
        )
        return
    assert first == "cuda: hc_encode_known_int8 failed: hc_encode_known_int8 writes beside an allocation (error 719)"
    assert second.startswith("cuda: copying to the device failed: hc_encode_known_int8 writes beside")
