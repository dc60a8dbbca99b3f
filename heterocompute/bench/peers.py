"""Other libraries that multiply by quantized weights, measured where they are installed and not needed otherwise.

A peer is prepared once with float32 weights (n, k) and called with float32 activations (m, k), unless its comment
says otherwise. Its thread count is that of all candidates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from .onnx_model import one_node_model

Array = np.ndarray[Any, Any]

BLOCK = 32  # of onnxruntime's 4-bit weights

# Of the norm of the answer. Rounding to 8 bits costs about 0.01 of it, to 4 bits 0.1; more is a wrong call.
INT8_ERROR, INT4_ERROR, BF16_ERROR = 0.05, 0.25, 0.02


@dataclass(frozen=True)
class Peer:
    """A product of another library.

    Attributes
    ----------
    name : str
    kind : str
        ``"int8"`` quantizes its input, ``"int8 codes"`` takes it quantized, ``"4 bit"``, ``"bf16"``.
    run : callable
        Returns the answer in the library's own type.
    answer : callable
        Turns that into a float array (m, n).
    error : float
        How far the answer may be from the float32 product, as a part of its norm.
    """

    name: str
    kind: str
    run: Callable[[], Any]
    answer: Callable[[Any], Array]
    error: float


def installed(name: str) -> Any:
    """Return a module, or None where it is missing or cannot be loaded here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except (ImportError, OSError, AttributeError, RuntimeError):
        return None


def product_peers(x: Array, w: Array, threads: int, kinds: tuple[str, ...] = ()) -> list[Peer]:
    """Return the peers for x (m, k) times w (n, k) transposed, of some kinds or of all."""
    peers = []
    makers = (_torch_dynamic, _torch_int_mm, _torch_bf16, _onnx_dynamic, _onnx_4_bit)
    for kind, maker in zip(("int8", "int8 codes", "bf16", "int8", "4 bit"), makers, strict=True):
        if kinds and kind not in kinds:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                peers += maker(x, w, threads)
        except (AttributeError, RuntimeError, NotImplementedError, ValueError):
            continue  # a version without this function
    return peers


def _torch(threads: int) -> Any:
    torch = installed("torch")
    if torch is not None:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
    return torch


def _torch_dynamic(x: Array, w: Array, threads: int) -> list[Peer]:
    torch = _torch(threads)
    if torch is None:
        return []
    scales = torch.from_numpy(np.abs(w).max(axis=1).astype(np.float64) / 127)
    zeros = torch.zeros(len(w), dtype=torch.int64)
    weights = torch.quantize_per_channel(torch.from_numpy(w), scales, zeros, 0, torch.qint8)
    activations = torch.from_numpy(x)
    peers = []
    for engine in ("fbgemm", "onednn"):
        if engine not in torch.backends.quantized.supported_engines:
            continue
        torch.backends.quantized.engine = engine
        packed = torch.ops.quantized.linear_prepack(weights, None)

        def run(packed: Any = packed, engine: str = engine) -> Any:
            torch.backends.quantized.engine = engine
            return torch.ops.quantized.linear_dynamic(activations, packed)

        peers.append(Peer(f"torch dynamic int8, {engine}", "int8", run, lambda y: y.numpy(), INT8_ERROR))
    return peers


def _torch_int_mm(x: Array, w: Array, threads: int) -> list[Peer]:
    torch = _torch(threads)
    if torch is None:
        return []
    (x_codes, x_scale), (w_codes, w_scale) = _int8(x), _int8(w)
    left, right = torch.from_numpy(x_codes), torch.from_numpy(w_codes).t()

    def answer(y: Any) -> Array:
        return np.asarray(y.numpy() * (x_scale * w_scale.T))

    return [Peer("torch _int_mm", "int8 codes", lambda: torch._int_mm(left, right), answer, INT8_ERROR)]


def _torch_bf16(x: Array, w: Array, threads: int) -> list[Peer]:
    torch = _torch(threads)
    if torch is None:
        return []
    left, right = torch.from_numpy(x).bfloat16(), torch.from_numpy(w).bfloat16()
    run = torch.nn.functional.linear
    return [Peer("torch bfloat16", "bf16", lambda: run(left, right), lambda y: y.float().numpy(), BF16_ERROR)]


def _session(model: bytes, threads: int) -> Any:
    onnxruntime = installed("onnxruntime")
    if onnxruntime is None:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # its exceptions have no common base: the operator is missing in this version
        return None


def _onnx_peer(name: str, kind: str, model: bytes, x: Array, threads: int, error: float) -> list[Peer]:
    session = _session(model, threads)
    if session is None:
        return []
    return [Peer(name, kind, lambda: session.run(None, {"x": x}), lambda y: np.asarray(y[0]), error)]


def _onnx_dynamic(x: Array, w: Array, threads: int) -> list[Peer]:
    if installed("onnxruntime") is None:
        return []
    codes, scale = _int8(w)
    inputs = {"x": x.shape, "b": np.ascontiguousarray(codes.T), "b_scale": scale[:, 0]}
    model = one_node_model("DynamicQuantizeMatMul", "com.microsoft", inputs, (len(x), len(w)))
    return _onnx_peer("onnxruntime DynamicQuantizeMatMul", "int8", model, x, threads, INT8_ERROR)


def _onnx_4_bit(x: Array, w: Array, threads: int) -> list[Peer]:
    if installed("onnxruntime") is None or w.shape[1] % BLOCK:
        return []
    n, k = w.shape
    groups = w.reshape(n, k // BLOCK, BLOCK)
    scale = np.abs(groups).max(axis=2) / np.float32(7)
    codes = np.rint(groups / np.where(scale == 0, 1, scale)[..., None]).astype(np.int8) + 8
    packed = (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)
    peers = []
    for level in (4, 1):  # activations as int8, as float32
        inputs = {"x": x.shape, "b": packed, "scales": scale.reshape(-1)}
        attributes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK, "accuracy_level": level}
        model = one_node_model("MatMulNBits", "com.microsoft", inputs, (len(x), n), **attributes)
        name = f"onnxruntime MatMulNBits 4 bit, level {level}"
        peers += _onnx_peer(name, "4 bit", model, x, threads, INT4_ERROR)
    return peers


def _int8(values: Array) -> tuple[Array, Array]:
    """Return codes and scales (rows, 1) of symmetric int8 rows."""
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    return np.rint(values / scale).astype(np.int8), scale
