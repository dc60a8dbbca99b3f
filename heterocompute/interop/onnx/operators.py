"""Operators that onnx's reference evaluator computes wrongly: computed here by their definition, or refused by name.

LRN                 sums squares of the channels c - floor((size - 1) / 2) to c + ceil((size - 1) / 2)
LpNormalization     the L1 norm sums magnitudes
GlobalMaxPool, GlobalLpPool   one value per channel, for any number of axes
Optional            holds its value, not a list of it
MaxPool             SAME_LOWER pads an odd pixel before
ConvTranspose       groups
Resize              align_corners spans the whole pixels of the output; before opset 11 "nearest" rounds down where the
                    output is larger, and up where it is smaller
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...files.containers.onnx_graph import STANDARD, text_of
from .convolutions import CONVOLUTIONS
from .norms import NORMS
from .quantizers import QUANTIZERS

Array = np.ndarray[Any, Any]
# Operators whose meaning changed with this opset; onnx's evaluator implements only the newest meaning.
CHANGED = {"BatchNormalization": 14, "Dropout": 12, "Hardmax": 13, "LogSoftmax": 13, "Softmax": 13, "Resize": 11,
           "Scan": 9, "Upsample": 10}  # fmt: skip
OLD_NEAREST = "before_11"  # nearest_mode of a Resize of an older opset; not a name of ONNX
RECURRENT = {"LSTM": [b"Sigmoid", b"Tanh", b"Tanh"], "GRU": [b"Sigmoid", b"Tanh"], "RNN": [b"Tanh"]}  # activations
# For these the converter to the newest opset keeps the meaning.
CONVERTED = {"BatchNormalization", "Dropout", "LogSoftmax", "Softmax", "Resize", "Upsample"}


def reason_to_refuse(node: Any, opset: int, is_converted: bool) -> str | None:
    """Return why a node is not computed, or None.

    Parameters
    ----------
    node : onnx.NodeProto
        Of the model as it came.
    opset : int
        Of that model.
    is_converted : bool
        Whether the model has been converted to the newest opset.
    """
    if node.domain not in STANDARD:
        return None
    kind, given = text_of(node.op_type), {one.name: one for one in node.attribute}
    if opset < CHANGED.get(kind, 0) and not (is_converted and kind in CONVERTED):
        return f"of opset {opset}"
    if kind in RECURRENT:
        usual = RECURRENT[kind]
        if "clip" in given or "input_forget" in given:
            return "with clip or input_forget"
        if "activations" in given and list(given["activations"].strings) not in (usual, usual * 2):
            return "with activations of its own"
        if len(node.input) > 4 and node.input[4]:
            return "with sequence_lens"
    mode = given["mode"].s if "mode" in given else b""
    if kind == "GridSample" and mode in (b"cubic", b"bicubic"):
        return f"with mode {mode.decode()}"
    if kind == "Resize" and "coordinate_transformation_mode" in given:
        if given["coordinate_transformation_mode"].s == b"tf_crop_and_resize":
            return "with tf_crop_and_resize"
    return None


def operators() -> list[type]:
    """Return classes for onnx's evaluator."""
    from onnx.reference.op_run import OpRun  # optional
    from onnx.reference.ops import op_conv_transpose, op_max_pool, op_resize  # optional

    other_pool: Any = op_max_pool.MaxPool
    other_transpose: Any = op_conv_transpose.ConvTranspose
    other_resize: Any = op_resize.Resize

    class LRN(OpRun):
        op_domain = ""

        def _run(
            self, x: Array, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1
        ) -> tuple[Array]:
            before, after = (size - 1) // 2, size // 2
            around = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
            windows = np.lib.stride_tricks.sliding_window_view(np.pad(x * x, around), size, axis=1)
            return ((x / (bias + alpha / size * windows.sum(axis=-1)) ** beta).astype(x.dtype),)

    class LpNormalization(OpRun):
        op_domain = ""

        def _run(self, x: Array, axis: int = -1, p: int = 2) -> tuple[Array]:
            norm = np.linalg.norm(x, p, axis, keepdims=True)
            return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)

    class GlobalMaxPool(OpRun):
        op_domain = ""

        def _run(self, x: Array) -> tuple[Array]:
            return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)

    class GlobalLpPool(OpRun):
        op_domain = ""

        def _run(self, x: Array, p: int = 2) -> tuple[Array]:
            total = (np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
            return ((total ** (1 / p)).astype(x.dtype),)

    class Optional(OpRun):
        op_domain = ""

        def _run(self, x: object = None, type: object = None) -> tuple[Any]:  # noqa: A002 (ONNX's name)
            return (x,)

    class MaxPool(other_pool):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: Array, auto_pad: str | None = None, **options: Any) -> Any:
            axes = x.ndim - 2
            steps, holes = (options.get(key) or [1] * axes for key in ("strides", "dilations"))
            pads = options.get("pads") or [0] * 2 * axes
            if auto_pad == "SAME_LOWER":
                auto_pad, total = "NOTSET", []
                for size, kernel, step, hole in zip(x.shape[2:], options["kernel_shape"], steps, holes, strict=True):
                    total.append(max((-(-size // step) - 1) * step + (kernel - 1) * hole + 1 - size, 0))
                pads = [-(-n // 2) for n in total] + [n // 2 for n in total]
            options = {"ceil_mode": 0, "storage_order": 0, **options}
            # onnx's class for windows of stride 1 exchanges the sides of the padding
            return self._max_pool(x, auto_pad, **{**options, "strides": steps, "dilations": holes, "pads": pads})

    class ConvTranspose(other_transpose):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: Array, w: Array, b: Array | None = None, group: int | None = None, **options: object) -> Any:
            n = group or 1
            biases = [None] * n if b is None else np.split(b, n)
            parts = [
                super(ConvTranspose, self)._run(*part, group=1, **options)[0]
                for part in zip(np.split(x, n, axis=1), np.split(w, n), biases, strict=True)
            ]
            return (np.concatenate(parts, axis=1),)

    class Resize(other_resize):  # type: ignore[misc]
        op_domain = ""

        def _run(
            self, x: Array, roi: Array | None, scales: Array | None = None, sizes: Array | None = None, **options: Any
        ) -> Any:
            if options.get("mode") == "nearest" and options.get("nearest_mode") == OLD_NEAREST:
                return (_nearest_before_11(x, np.asarray(scales)),)
            if options.get("coordinate_transformation_mode") == "align_corners" and scales is not None and scales.size:
                axes = options.get("axes") or range(x.ndim)
                sizes = (np.array([x.shape[axis] for axis in axes]) * np.float64(scales)).astype(np.int64)
                scales = None
            return super()._run(x, roi, scales, sizes, **options)

    defined = [operator_class(OpRun, *one) for table in (CONVOLUTIONS, NORMS, QUANTIZERS) for one in table.items()]
    return [LRN, LpNormalization, GlobalMaxPool, GlobalLpPool, Optional, MaxPool, ConvTranspose, Resize, *defined]


def operator_class(base: type, name: str, compute: Callable[..., Any]) -> type:
    """Return the class of an operator that a function defines: inputs in order, attributes by name."""

    def run(_: object, *inputs: object, **attributes: object) -> Any:
        return compute(*inputs, **{key: one for key, one in attributes.items() if one is not None})

    return type(name, (base,), {"op_domain": "", "_run": run})


def _nearest_before_11(x: Array, scales: Array) -> Array:
    for axis, (size, scale) in enumerate(zip(x.shape, scales, strict=True)):
        at = np.arange(int(size * np.float32(scale)), dtype=np.float32) / scale
        at = np.ceil(at) if scale < 1 else np.floor(at)
        x = x.take(np.minimum(at, size - 1).astype(np.int64), axis)
    return x
