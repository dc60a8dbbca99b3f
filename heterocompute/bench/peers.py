"""Other libraries that multiply by quantized weights; each is measured if it is installed.

A peer is prepared once with float32 weights (n, k) and called with activations (m, k). Its thread count is that of
all candidates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from .onnx_model import Inputs, one_node_model

Array = np.ndarray[Any, Any]

BLOCK = 32  # of onnxruntime's 4-bit weights

# Relative to the norm of the result. Rounding to 8 bits costs about 0.01 of it, to 4 bits 0.1; a larger error indicates
# a wrong call.
INT8_ERROR, INT4_ERROR, BF16_ERROR = 0.05, 0.25, 0.02


@dataclass(frozen=True)
class Peer:
    """A product of another library.

    Attributes
    ----------
    name : str
    kind : str
        ``"int8"`` quantizes its input, ``"int8 codes"`` gets it quantized, ``"4 bit"``, ``"bf16"``.
    products : list of callable
        One per copy of the weights; its argument is the result of `prepare`, its result has the library's own type.
    error : float
        Allowed distance from the float32 result, relative to its norm.
    prepare : callable
        Prepares the activations; not timed.
    answer : callable
        Converts a result to a float array (m, n).
    """

    name: str
    kind: str
    products: list[Callable[[Any], Any]]
    error: float
    prepare: Callable[[Array], Any] = lambda x: x
    answer: Callable[[Any], Array] = lambda y: np.asarray(y[0])


def installed(name: str) -> Any:
    """Return a module, or None if it is missing or cannot be loaded here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except (ImportError, OSError, AttributeError, RuntimeError):
        return None


def product_peers(w: Array, threads: int, kinds: tuple[str, ...] = (), copies: int = 1) -> list[Peer]:
    """Return the peers for weights w (n, k), of some kinds or all, each with this many copies of the weights."""
    peers = []
    makers = (_torch_dynamic, _torch_int_mm, _torch_bf16, _onnx_dynamic, _onnx_4_bit)
    for kind, maker in zip(("int8", "int8 codes", "bf16", "int8", "4 bit"), makers, strict=True):
        if kinds and kind not in kinds:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                peers += maker(w, threads, copies)
        except (AttributeError, RuntimeError, NotImplementedError, ValueError):
            continue  # a version without this function
    return peers


def _torch(threads: int) -> Any:
    torch = installed("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    return torch


def _torch_dynamic(w: Array, threads: int, copies: int) -> list[Peer]:
    torch = _torch(threads)
    if torch is None:
        return []
    scales = torch.from_numpy(np.abs(w).max(axis=1).astype(np.float64) / 127)
    zeros = torch.zeros(len(w), dtype=torch.int64)
    weights = torch.quantize_per_channel(torch.from_numpy(w), scales, zeros, 0, torch.qint8)
    reduce_range = _saturates()  # 7 bits for x, the default of PyTorch's own modules

    def product(engine: str) -> Callable[[Any], Any]:
        packed = torch.ops.quantized.linear_prepack(weights, None)

        def run(x: object) -> Any:
            torch.backends.quantized.engine = engine
            return torch.ops.quantized.linear_dynamic(x, packed, reduce_range)

        return run

    peers = []
    for engine in ("fbgemm", "onednn"):
        if engine in torch.backends.quantized.supported_engines:
            torch.backends.quantized.engine = engine
            products = [product(engine) for _ in range(copies)]
            name = f"torch dynamic int8, {engine}"
            peers.append(Peer(name, "int8", products, INT8_ERROR, torch.from_numpy, lambda y: np.asarray(y)))
    return peers


def _torch_int_mm(w: Array, threads: int, copies: int) -> list[Peer]:
    torch = _torch(threads)
    if torch is None:
        return []
    codes, scale = _int8(w)
    seen: list[Array] = []  # the scales of the most recently prepared activations

    def prepare(x: Array) -> Any:
        x_codes, x_scale = _int8(x)
        seen[:] = [x_scale]
        return torch.from_numpy(x_codes)

    def product() -> Callable[[Any], Any]:
        right = torch.from_numpy(codes.copy()).t()
        return lambda left: torch._int_mm(left, right)

    products = [product() for _ in range(copies)]
    return [
        Peer("torch _int_mm", "int8 codes", products, INT8_ERROR, prepare, lambda y: y.numpy() * (seen[0] * scale.T))
    ]


def _torch_bf16(w: Array, threads: int, copies: int) -> list[Peer]:
    torch = _torch(threads)
    if torch is None:
        return []

    def prepare(x: Array) -> Any:
        return torch.from_numpy(x).bfloat16()

    def product() -> Callable[[Any], Any]:
        right = prepare(w)
        return lambda left: torch.nn.functional.linear(left, right)

    products = [product() for _ in range(copies)]
    return [Peer("torch bfloat16", "bf16", products, BF16_ERROR, prepare, lambda y: np.asarray(y.float()))]


def _onnx_peer(name: str, kind: str, model: bytes, threads: int, copies: int, error: float) -> list[Peer]:
    onnxruntime = installed("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4

    def product() -> Callable[[Any], Any]:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda x: session.run(None, {"x": x})

    try:
        return [Peer(name, kind, [product() for _ in range(copies)], error)]
    except Exception:  # its exceptions have no common base class: the operator is missing in this version
        return []


def _onnx_dynamic(w: Array, threads: int, copies: int) -> list[Peer]:
    if installed("onnxruntime") is None:
        return []
    n, k = w.shape
    codes, scale = _int8(w, 64 if _saturates() else 127)  # as its quantizer's reduce_range
    inputs: Inputs = {"x": (None, k), "b": np.ascontiguousarray(codes.T), "b_scale": scale[:, 0]}
    model = one_node_model("DynamicQuantizeMatMul", "com.microsoft", inputs, (None, n))
    return _onnx_peer("onnxruntime DynamicQuantizeMatMul", "int8", model, threads, copies, INT8_ERROR)


def _onnx_4_bit(w: Array, threads: int, copies: int) -> list[Peer]:
    if installed("onnxruntime") is None or w.shape[1] % BLOCK:
        return []
    n, k = w.shape
    groups = w.reshape(n, k // BLOCK, BLOCK)
    scale = np.abs(groups).max(axis=2) / np.float32(7)
    codes = np.rint(groups / np.where(scale == 0, 1, scale)[..., None]).astype(np.int8) + 8
    packed = (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)
    peers = []
    for level in (4, 1):  # activations as int8, as float32
        inputs: Inputs = {"x": (None, k), "b": packed, "scales": scale.reshape(-1)}
        attributes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK, "accuracy_level": level}
        model = one_node_model("MatMulNBits", "com.microsoft", inputs, (None, n), **attributes)
        name = f"onnxruntime MatMulNBits 4 bit, level {level}"
        peers += _onnx_peer(name, "4 bit", model, threads, copies, INT4_ERROR)
    return peers


def _saturates() -> bool:
    """Tell whether sums of two byte products saturate at 16 bits in instructions that peers use nevertheless."""
    return not any("vnni" in name for name in _core.isa_names(_core.cpu_isa()))


def _int8(values: Array, largest: int = 127) -> tuple[Array, Array]:
    """Return codes and scales (rows, 1) of symmetric int8 rows."""
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(largest)
    return np.rint(values / scale).astype(np.int8), scale
