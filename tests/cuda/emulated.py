"""The CUDA kernels compiled for the host, and plans of the core run by them: NumPy's memory is the device's.

A launch runs block by block with fibres as threads (host/device.h). `order` is that of the threads and blocks.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import _heterocompute
from heterocompute.training.device import infinity_of
from heterocompute.training.stochastic import levels_of

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "tests/cuda/host/host.cpp"
FLAGS = ["-std=gnu++20", "-O1", "-fPIC", "-ffp-contract=off", "-w"]  # nvcc warns
if os.environ.get("HETEROCOMPUTE_SANITIZE"):
    FLAGS += [f"-fsanitize={os.environ['HETEROCOMPUTE_SANITIZE']}", "-fno-sanitize-recover=all", "-g1"]
FAMILIES = re.findall(r"^HC_FORMAT\((\w+)\)", (ROOT / "csrc/formats/formats.def").read_text(), re.MULTILINE)
PARTS = ["codes", "scales", "coarse", "codebook", "zero_points", "metadata", "mean", "minima"]
DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
MAX_DIMS, PLAN_BYTES = 32, 1 << 16
launched: list[str] = []  # kernels of the last plan


class View(ctypes.Structure):
    """hc_view of csrc/hc.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("strides", ctypes.c_int64 * MAX_DIMS),
        ("device", ctypes.c_int),
    ]


class Format(ctypes.Structure):
    """hc_format of csrc/base/packed.h."""

    _fields_ = [
        ("family", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("group", ctypes.c_int32),
        ("option", ctypes.c_int32 * 6),
        ("n", ctypes.c_int32),
        ("m", ctypes.c_int32),
    ]


class Component(ctypes.Structure):
    """hc_component of csrc/base/packed.h."""

    _fields_ = [("data", ctypes.c_void_p), ("row_stride", ctypes.c_int64), ("device", ctypes.c_int)]


class Packed(ctypes.Structure):
    """hc_packed of csrc/hc.h."""

    _fields_ = [
        ("format", Format),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("n_axes", ctypes.c_int),
        ("axes", ctypes.c_int * MAX_DIMS),
        ("parts", Component * len(PARTS)),
        ("first_row", ctypes.c_int64),
        ("prepacked", ctypes.c_void_p),
    ]


class Operand(ctypes.Structure):
    """hc_operand of csrc/hc.h."""

    _fields_ = [("dense", ctypes.c_void_p), ("packed", ctypes.c_void_p)]


class Error(ctypes.Structure):
    """The sentence of an hc_error, and room for the rest of it."""

    _fields_ = [("text", ctypes.c_char * 256), ("rest", ctypes.c_char * 1024)]


class PlanHead(ctypes.Structure):
    """The first fields of an hc_cuda_plan."""

    _fields_ = [
        ("n", ctypes.c_int),
        ("workspace_bytes", ctypes.c_int64),
        ("architecture", ctypes.c_int32),
        ("multiprocessors", ctypes.c_int32),
        ("device_order", ctypes.c_bool),
        ("path", ctypes.c_char_p),
        ("explanation", ctypes.c_void_p),
        ("illegal", ctypes.c_void_p),
    ]


class Unsupported(Exception):
    """The kernels lack an operation, and the planner says so."""


@functools.cache
def kernels() -> ctypes.CDLL:
    """Load the kernels: compiled for the host, or by nvcc to PTX of HETEROCOMPUTE_TEST_PTX, 80 or 100."""
    if virtual := os.environ.get("HETEROCOMPUTE_TEST_PTX"):
        import compiled

        return opened(compiled.kernels(virtual=virtual))
    return load("kernels", [*sorted((ROOT / "csrc/cuda").rglob("*.cu")), HOST])


def load(name: str, sources: list[Path]) -> ctypes.CDLL:
    """Compile with the host's C++ compiler, and open."""
    return opened(library_of(name, sources))


def opened(library: Path) -> ctypes.CDLL:
    """Open a library with host/host.cpp."""
    loaded = ctypes.CDLL(str(library))
    for function in (loaded.hc_cuda_host_run, loaded.hc_cuda_host_step, loaded.hc_cuda_host_launch):
        function.restype = ctypes.c_char_p
    return loaded


def included() -> list[Path]:
    """Return the files that kernels may include."""
    return sorted(
        path
        for suffix in ("*.c", "*.h", "*.def")
        for folder in (ROOT / "csrc", HOST.parent)
        for path in folder.rglob(suffix)
    )


def library_of(name: str, sources: list[Path], headers: Sequence[Path] = (), flags: Sequence[str] = FLAGS) -> Path:
    """Compile with the host's C++ compiler; a library is kept for processes with the same sources."""
    cxx = shlex.split(os.environ.get("CXX", "c++"))
    if not shutil.which(cxx[0]):
        pytest.skip("no C++ compiler")
    made_of = [*sources, *headers, *included()]
    digest = hashlib.sha256("\0".join([*cxx, *flags, *(path.read_text() for path in made_of)]).encode()).hexdigest()
    library = Path(tempfile.gettempdir(), f"heterocompute-{name}-{os.getuid()}-{digest[:20]}.so")
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several processes compiles
        if not library.exists():
            build(cxx, sources, library, flags)
    return library


def build(cxx: list[str], sources: list[Path], library: Path, flags: Sequence[str] = FLAGS) -> None:
    """Compile each source, two at a time, and link."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:

        def compile_one(number: int) -> str:
            target = f"{folder}/{number}.o"
            command = [
                *cxx,
                *flags,
                "-Icsrc",
                "-Itests/cuda",
                "-x",
                "c++",
                "-c",
                str(sources[number].relative_to(ROOT)),
                "-o",
                target,
            ]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return target

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, range(len(sources))))
        subprocess.run([*cxx, *flags, "-shared", *objects, "-o", f"{folder}/kernels.so"], check=True)
        os.replace(f"{folder}/kernels.so", library)


def function_of(name: str) -> Any:
    """Return a planner of the core."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(_heterocompute.cuda_addresses()[name])


def view(array: np.ndarray[Any, Any]) -> View:
    """Describe an array; it must outlive the view."""
    made = View(array.ctypes.data, DTYPES[array.dtype.name], array.ndim)
    made.shape[: array.ndim] = array.shape
    made.strides[: array.ndim] = array.strides
    return made


def format_of(spec: hc.Format) -> Format:
    """Describe a format."""
    base = spec.base if isinstance(spec, hc.Sparse) else spec
    bits, group, *options = base.core_params()
    made = Format(FAMILIES.index(base.family), bits, group)
    made.option[: len(options)] = options
    if base is not spec:
        made.n, made.m = spec.n, spec.m
    return made


def packed(q: Any, components: dict[str, np.ndarray[Any, Any]]) -> Packed:
    """Describe a packed array like q whose components are these arrays."""
    made = Packed(format_of(q.format), len(q.shape))
    made.shape[: len(q.shape)] = q.shape
    made.n_axes = len(q.axis)
    made.axes[: len(q.axis)] = q.axis
    for i, name in enumerate(PARTS):
        part = components.get(name)
        if part is not None:
            shared = (
                part.ndim == 0
                or name in {"codebook", "mean"}
                or (name == "coarse" and isinstance(q.format, hc.NF4))
                or (name == "scales" and getattr(q.format, "block_rows", None) is not None)
            )
            made.parts[i] = Component(part.ctypes.data, 0 if shared else part.strides[0], 0)
    return made


def run(planner: str, *arguments: Any, order: int = 0, workspace: bool = True, **said: Any) -> int:
    """Plan with the core and run on the host; return its hc_cuda_illegal. `said`: fields to set in the plan."""
    error, plan, illegal = Error(), ctypes.create_string_buffer(PLAN_BYTES), np.zeros(1, np.uint32)
    PlanHead.from_buffer(plan).illegal = illegal.ctypes.data
    for name, value in said.items():
        setattr(PlanHead.from_buffer(plan), name, value)
    call = function_of(planner)
    passed = [ctypes.byref(a) if isinstance(a, (ctypes.Structure, ctypes.Array)) else a for a in arguments]
    address = None
    for is_sized in (False, True):
        room = [ctypes.c_void_p(address)] if workspace else []
        if call(*passed, *room, plan, ctypes.byref(error)):
            raise Unsupported(error.text.decode())
        if is_sized or not workspace:
            break
        # junk, as a plan clears what must be zero; on a multiple of 256
        memory = filled((PlanHead.from_buffer(plan).workspace_bytes,), 0xA5, np.uint8)
        address = memory.ctypes.data
    names = (kernels().hc_cuda_host_step(plan, number) for number in range(PlanHead.from_buffer(plan).n))
    launched[:] = [name.decode() for name in names]
    fault = kernels().hc_cuda_host_run(plan, ctypes.c_uint32(order))
    assert fault is None, fault.decode()
    return int(illegal[0])


def filled(shape: tuple[int, ...], value: float = np.nan, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return an array on a multiple of 256 bytes, as a device allocates."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + 256, np.uint8)
    made: np.ndarray[Any, Any] = memory[-memory.ctypes.data % 256 :][:nbytes].view(dtype).reshape(shape)
    made[...] = value
    return made


def junk_like(part: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of the same shape and dtype, all bytes of it junk."""
    made = filled(part.shape, 0, part.dtype)
    made.reshape(-1).view(np.uint8)[:] = 0x5A
    return made


def quantize(x: np.ndarray[Any, Any], q: Any, order: int = 0) -> tuple[dict[str, np.ndarray[Any, Any]], int]:
    """Return the components that the kernels make of x in the format and axes of q, and the state's `illegal`."""
    components = {name: junk_like(part) for name, part in q.components.items()}
    return components, run("quantize", view(x), None, packed(q, components), order=order)


def fake_quantize(
    x: np.ndarray[Any, Any], spec: hc.Format, axes: tuple[int, ...], order: int = 0
) -> np.ndarray[Any, Any]:
    """Return the rounded values of x."""
    out = filled(x.shape)
    array = (ctypes.c_int * len(axes))(*axes)
    run("fake_quantize", view(x), None, format_of(spec), len(axes), array, view(out), order=order)
    return out


def dequantize(q: Any, dtype: Any = np.float32, order: int = 0) -> np.ndarray[Any, Any]:
    """Return the values of a packed array."""
    out = filled(q.shape, dtype=dtype)
    run("dequantize", packed(q, q.components), ctypes.c_float(0), view(out), order=order)
    return out


def linear(
    x: Any,
    w: Any,
    bias: np.ndarray[Any, Any] | None = None,
    activations: hc.Format | None = None,
    order: int = 0,
    prepacked: np.ndarray[Any, Any] | None = None,
    **said: Any,
) -> np.ndarray[Any, Any]:
    """Return x @ w.T + bias; x is an array with `activations`, or packed. `prepacked`: w by `prepack`."""
    out = filled((*x.shape[:-1], w.shape[0]))
    operand = Operand()
    described = view(x) if isinstance(x, np.ndarray) else packed(x, x.components)
    setattr(operand, "dense" if isinstance(x, np.ndarray) else "packed", ctypes.addressof(described))
    added = None if bias is None else ctypes.c_void_p(bias.ctypes.data)
    spec = format_of(activations) if activations else None
    weights = packed(w, w.components)
    weights.prepacked = None if prepacked is None else prepacked.ctypes.data
    run("matmul", operand, spec, weights, added, view(out), order=order, **said)
    return out


def prepack(q: Any, order: int = 0) -> np.ndarray[Any, Any]:
    """Return the bytes that matmuls read instead of q's components; empty if they read the components."""
    described, plan, error = packed(q, q.components), ctypes.create_string_buffer(PLAN_BYTES), Error()
    call = function_of("prepack")
    assert call(ctypes.byref(described), None, plan, ctypes.byref(error)) == 0, error.text
    nbytes = PlanHead.from_buffer(plan).workspace_bytes
    memory = filled((nbytes,), 0xA5, np.uint8)
    assert call(ctypes.byref(described), ctypes.c_void_p(memory.ctypes.data), plan, ctypes.byref(error)) == 0
    fault = kernels().hc_cuda_host_run(plan, ctypes.c_uint32(order))
    assert fault is None, fault.decode()
    return memory


class Levels(ctypes.Structure):
    """hc_levels of csrc/hc.h."""

    _fields_ = [
        ("n", ctypes.c_int),
        ("table", ctypes.c_void_p),
        ("fraction", ctypes.c_double),
        ("least", ctypes.c_double),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
    ]


def stochastic_round(x: np.ndarray[Any, Any], q: Any, seed: int, order: int = 0) -> np.ndarray[Any, Any]:
    """Return x rounded by chance with the scales of q, to which x is quantized."""
    table, fraction, least, low, high = levels_of(q.format)
    levels = Levels(0 if table is None else len(table), None, fraction, least, low, high)
    if table is not None:
        levels.table = table.ctypes.data
    out = filled(x.shape)
    number, infinity = ctypes.c_uint64(seed), ctypes.c_float(infinity_of(q.format))
    components = {name: junk_like(part) for name, part in q.components.items()}
    run("chance", view(x), None, packed(q, components), levels, infinity, number, view(out), order=order)
    return out


def prune(
    x: np.ndarray[Any, Any],
    n: int,
    m: int,
    axes: tuple[int, ...],
    kept: dict[str, np.ndarray[Any, Any]],
    order: int = 0,
) -> dict[str, np.ndarray[Any, Any]]:
    """Return values and metadata of the shapes of `kept`."""
    made = {name: junk_like(part) for name, part in kept.items()}
    addresses = [ctypes.c_void_p(made[name].ctypes.data) for name in ("values", "metadata")]
    run("prune", view(x), n, m, len(axes), (ctypes.c_int * len(axes))(*axes), *addresses, workspace=False, order=order)
    return made


class Window(ctypes.Structure):
    """hc_window of csrc/hc.h."""

    _fields_ = [
        ("stride", ctypes.c_int64 * 2),
        ("pad_before", ctypes.c_int64 * 2),
        ("dilation", ctypes.c_int64 * 2),
        ("groups", ctypes.c_int64),
    ]


def conv2d(
    x: np.ndarray[Any, Any],
    w: Any,
    shape: tuple[int, ...],
    window: Window,
    bias: np.ndarray[Any, Any] | None = None,
    activations: hc.Format | None = None,
    relu: bool = False,
    order: int = 0,
) -> np.ndarray[Any, Any]:
    """Return the convolution of x with packed filters; the answer has this shape."""
    out = filled(shape)
    added = None if bias is None else ctypes.c_void_p(bias.ctypes.data)
    spec = format_of(activations) if activations else None
    filters = packed(w, w.components)
    run("conv2d", view(x), spec, filters, window, ctypes.c_bool(relu), added, view(out), order=order)
    return out


def check(words: np.ndarray[Any, Any], answers: np.ndarray[Any, Any], of_warpgroups: bool = False) -> None:
    """Fill `answers` with the results of the instructions for words."""
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (words, answers)]
    architecture = 90 if of_warpgroups else 80
    run("check", *addresses, ctypes.c_bool(of_warpgroups), workspace=False, architecture=architecture)


class Layer(ctypes.Structure):
    """hc_layer of csrc/hc_layers.h."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("rows", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
        ("half", ctypes.c_int64),
        ("repeat", ctypes.c_int64),
        ("turns", ctypes.c_int64),
        ("pairs", ctypes.c_bool),
    ]


def layer(kind: int, x: np.ndarray[Any, Any], weight: Any = None, bias: Any = None, **others: Any) -> Any:
    """Return the answer of a layer of `hc_layer_kind`."""
    order = others.pop("order", 0)
    out = filled(x.shape)
    made = Layer(kind, x.size // x.shape[-1], x.shape[-1], x.ctypes.data, y=out.ctypes.data, **others)
    made.weight = None if weight is None else weight.ctypes.data
    made.bias = None if bias is None else bias.ctypes.data
    run("layer", made, workspace=False, order=order)
    return out


class KeptTokens(ctypes.Structure):
    """hc_kept of csrc/hc_layers.h."""

    _fields_ = [("packed", ctypes.c_void_p), ("data", ctypes.c_void_p), ("step", ctypes.c_int64 * 3)]


class Attention(ctypes.Structure):
    """hc_attention of csrc/hc_layers.h."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("batch", "heads", "kv_heads", "n", "m", "width")],
        ("q", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("q_step", ctypes.c_int64 * 3),
        ("out_step", ctypes.c_int64 * 3),
        ("k", KeptTokens),
        ("v", KeptTokens),
        ("causal", ctypes.c_bool),
        ("window", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("cap", ctypes.c_float),
    ]


def attention(
    q: np.ndarray[Any, Any], k: Any, v: Any, causal: bool, window: int, scale: float, cap: float, order: int = 0
) -> np.ndarray[Any, Any]:
    """Return attention over plain or packed keys and values, (batch, heads, tokens, width)."""
    out = filled(q.shape)
    batch, heads, n, width = q.shape
    kv_heads, m = k.shape[1:3]
    made = Attention(batch, heads, kv_heads, n, m, width, q.ctypes.data, out.ctypes.data)
    made.q_step[:] = made.out_step[:] = [heads * n * width, n * width, width]
    held = []
    for kept, given in ((made.k, k), (made.v, v)):
        unit = 1
        if isinstance(given, np.ndarray):
            kept.data, unit = given.ctypes.data, width
        else:
            held.append(packed(given, given.components))
            kept.packed = ctypes.addressof(held[-1])
        kept.step[:] = [kv_heads * m * unit, m * unit, unit]
    made.causal, made.window, made.scale, made.cap = causal, window, scale, cap
    run("attention", made, order=order)
    return out
