"""Time `hc.run_onnx` against onnxruntime: python docs/figures/onnx_models.py MODEL.onnx ... [--shape NAME=1,3,48,320]

float32 against one session of onnxruntime, int8 weights and activations against its dynamic quantization
(`quant_pre_process`, then `quantize_dynamic`), interleaved. Inputs are random; an open axis without --shape is 1.
Prints a table in Markdown.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # a pinned core is slower than the machine's own
    os.environ.pop(name, None)

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
from onnxruntime.quantization import quantize_dynamic  # noqa: E402
from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: E402
from runner import options  # noqa: E402

import heterocompute as hc  # noqa: E402
from heterocompute.interop.onnx_run import OnnxNetwork  # noqa: E402

DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def session_of(path: str, threads: int) -> Any:
    """Return a session of onnxruntime with a number of threads."""
    given = onnxruntime.SessionOptions()
    given.log_severity_level, given.intra_op_num_threads = 4, threads
    given.add_session_config_entry("session.intra_op.allow_spinning", "0")  # its idle threads would take a core
    return onnxruntime.InferenceSession(path, given, providers=["CPUExecutionProvider"])


def feeds_of(session: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return random inputs."""
    rng = np.random.default_rng(0)
    feeds = {}
    for one in session.get_inputs():
        shape = shapes.get(one.name) or tuple(size if isinstance(size, int) else 1 for size in one.shape)
        dtype = DTYPES[one.type]
        if dtype == np.float32:
            feeds[one.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            feeds[one.name] = np.array(16000, dtype) if not shape else rng.integers(0, 256, shape).astype(dtype)
    return feeds


def ratio_of(peer: Callable[[], Any], ours: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Return our milliseconds and the ratio of onnxruntime's time to ours, medians of interleaved calls."""
    taken: tuple[list[float], list[float]] = ([], [])
    for call in (peer, ours, peer, ours):
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for call, times in zip((peer, ours), taken, strict=True):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(taken[1])), float(np.median(np.divide(*taken)))


def main() -> None:
    """Time all models and print the table."""
    parser = options(__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=SIZES")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    shapes = {}
    for text in arguments.shape:
        name, sizes = text.split("=")
        shapes[name] = tuple(map(int, sizes.split(",")))
    print(f"numpy {np.__version__}, onnxruntime {onnxruntime.__version__}; {hc.show_config('dicts')['dense']}\n")
    print("| model | threads | float32, ms | to onnxruntime | int8, ms | to dynamic quantization |")
    print("|---|---|---|---|---|---|")
    for path in arguments.models:
        network = OnnxNetwork(path)
        packed = network.quantized("int8")
        with tempfile.TemporaryDirectory() as folder:
            ready, other = (os.path.join(folder, name) for name in ("ready.onnx", "dynamic.onnx"))
            quant_pre_process(path, ready, skip_symbolic_shape=True)  # weights of Constant nodes become initializers
            quantize_dynamic(ready, other)
            for threads in (1, 2):
                with hc.use(threads=threads):
                    sessions = session_of(path, threads), session_of(other, threads)
                    cells = row_of(network, packed, sessions, shapes, arguments.seconds)
                print(f"| {Path(path).stem} | {threads} | {cells} |", flush=True)


def row_of(network: OnnxNetwork, packed: Any, sessions: Any, shapes: dict[str, tuple[int, ...]], seconds: float) -> str:
    """Return the cells of a model: float32 and int8, each with its ratio."""
    plain, dynamic = sessions
    feeds = feeds_of(plain, shapes)
    for exact, found in zip(plain.run(None, feeds), network.run(feeds).values(), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)
    ms, ratio = ratio_of(partial(plain.run, None, feeds), partial(network.run, feeds), seconds)
    ours = partial(network.run, feeds, packed, "int8")
    ms8, ratio8 = ratio_of(partial(dynamic.run, None, feeds), ours, seconds)
    return f"{ms:.3g} | {ratio:.2f} | {ms8:.3g} | {ratio8:.2f}"


if __name__ == "__main__":
    main()
