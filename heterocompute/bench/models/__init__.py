"""Whole models through `ht.convert` against PyTorch, torchao and onnxruntime: MiniLM, a small CNN, EfficientNet-lite0.

`cosine` compares the output with the float32 model's. The profile gives the share of a packed model's time in its
packed layers; the rest is PyTorch's: attention, normalization, activations.
"""

from __future__ import annotations

import copy
import io
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ...base.runtime import use
from ...interop import torch as ht
from ..measure import Candidate, CheckFailed, Options, Row, Table, Times
from ..peers import installed
from . import networks

OURS = (
    ("int8 x int8", "int8", "int8"),
    ("vsq4-g16-s4 x int8", "vsq4-g16-s4", "int8"),
    ("int4-g32-f16, float activations", "int4-g32-f16", None),
    ("vsq4-g16-s4, float activations", "vsq4-g16-s4", None),
)
FLOAT = "torch float32"
LOWEST_COSINE = 0.2  # a smaller cosine indicates a wrong call: EfficientNet with 4-bit depthwise filters has about 0.5
TOKENS = ((1, 8), (1, 32), (1, 128), (8, 128))
Call = Callable[[], Any]


def measure(options: Options) -> list[Table]:
    """Measure each model at each size with each thread count; nothing if torch is missing."""
    torch = installed("torch")
    if torch is None:
        options.report_progress("torch is missing")
        return []
    tables = []
    for title, model, inputs, embeddings in _models(torch, options):
        for threads in options.threads:
            options.report_progress(f"{title}, {threads} threads")
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                with use(threads=threads), torch.inference_mode():
                    tables += _tables(torch, title, model, inputs, embeddings, threads, options)
            finally:
                torch.set_num_threads(before)
    return tables


def _models(torch: Any, options: Options) -> Iterator[tuple[str, Any, dict[str, Any], list[str]]]:
    """Yield titles, models, their inputs, and patterns of layers that stay floats for all candidates."""
    if options.quick:
        yield "small CNN, 1 x 3 x 32 x 32", networks.small_cnn(2), {"input": torch.randn(1, 3, 32, 32)}, []
        return
    model = networks.minilm()
    for batch, tokens in TOKENS if model is not None else ():
        ids = torch.randint(1000, 20000, (batch, tokens), generator=torch.Generator().manual_seed(0))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        yield f"MiniLM, {batch} x {tokens} tokens", model, inputs, ["embeddings.*"]
    for batch in (1, 8):
        yield f"small CNN, {batch} x 3 x 32 x 32", networks.small_cnn(), {"input": torch.randn(batch, 3, 32, 32)}, []
    network = networks.efficientnet()
    for batch in (1, 4):
        yield f"EfficientNet-lite0, {batch} x 3 x 224 x 224", network, {"x": torch.randn(batch, 3, 224, 224)}, []


def _tables(
    torch: object, title: str, model: Any, inputs: dict[str, Any], floats: list[str], threads: int, options: Options
) -> list[Table]:
    exact = _first(model(**inputs)).numpy()
    calls: dict[str, Call] = {FLOAT: lambda: _first(model(**inputs)).numpy()}
    packed = {}
    for name, fmt, activations in OURS:
        packed[name] = ht.convert(model, fmt, activations=activations, exclude=floats)
        calls[name] = _caller(packed[name], inputs)
    peers = _peers(torch, model, inputs, threads, options)
    calls |= peers
    candidates = [_candidate(name, call, exact) for name, call in calls.items()]
    times = Times(candidates, options, threads)
    best = times.best([name for name in peers if "int8" in name])
    rows: list[Row] = []
    for name in times.candidates:
        row = times.row(name, to_torch=times.speedup(name, FLOAT), to_int8_peer=times.speedup(name, best))
        row = {key: value for key, value in row.items() if key not in ("rate", "unit")}
        if name in packed:
            row["in_packed"] = _share(packed[name], inputs, threads)
        rows.append(row)
    return [{"title": title, "threads": threads, "rows": rows}]


def _first(answer: Any) -> Any:
    return answer if hasattr(answer, "numpy") else answer[0]


def _caller(model: Any, inputs: dict[str, Any]) -> Call:
    return lambda: _first(model(**inputs)).numpy()


def _candidate(name: str, call: Call, exact: Any) -> Candidate:
    found = np.asarray(call(), np.float64).ravel()
    wanted = exact.astype(np.float64).ravel()
    cosine = float(found @ wanted / (np.linalg.norm(found) * np.linalg.norm(wanted)))

    def check() -> None:
        if not cosine >= LOWEST_COSINE:
            raise CheckFailed(f"{name}: the cosine to the float32 model is {cosine:.3f}")

    return Candidate(name, call, 1.0, "models/s", check, {"cosine": cosine})


def _peers(torch: object, model: object, inputs: dict[str, Any], threads: int, options: Options) -> dict[str, Call]:
    """Return the int8 models of other libraries that are installed and support this one."""
    found: dict[str, Call] = {}
    for name, maker in (("torch dynamic int8", _torch_int8), ("torchao int8 x int8", _torchao)):
        with _quiet():
            try:
                built = maker(torch, model)
                if built is not None:
                    _first(built(**inputs))
                    found[name] = _caller(built, inputs)
            except (AttributeError, ImportError, NotImplementedError, RuntimeError, TypeError, ValueError) as problem:
                options.report_progress(f"{name}: left out, {type(problem).__name__}")
    if options.quick:  # the export alone takes seconds
        return found
    with _quiet():
        try:
            found |= _onnxruntime(torch, model, inputs, threads)
        except Exception as problem:  # exporters and runtimes raise exceptions of their own
            options.report_progress(f"onnxruntime: left out, {type(problem).__name__}")
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _torch_int8(torch: Any, model: Any) -> Any:
    """Quantize linear layers only: PyTorch has no convolutions with dynamic quantization."""
    if sum(isinstance(one, torch.nn.Linear) for one in model.modules()) < 3:
        return None
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)


def _torchao(torch: Any, model: Any) -> Any:
    quantization = installed("torchao.quantization")
    if quantization is None or sum(isinstance(one, torch.nn.Linear) for one in model.modules()) < 3:
        return None
    built = copy.deepcopy(model)
    quantization.quantize_(built, quantization.Int8DynamicActivationInt8WeightConfig())
    return built


def _onnxruntime(torch: Any, model: object, inputs: dict[str, Any], threads: int) -> dict[str, Call]:
    runtime, tools = installed("onnxruntime"), installed("onnxruntime.quantization")
    if runtime is None or tools is None or installed("onnxscript") is None:
        return {}
    file = io.BytesIO()
    torch.onnx.export(model, (), file, kwargs=inputs, dynamo=True, verbose=False, external_data=False)
    calls: dict[str, Call] = {}
    feeds = {name: value.numpy() for name, value in inputs.items()}
    models = {"float32": file.getvalue(), "dynamic int8": _onnx_int8(tools, file.getvalue())}
    if any(value.ndim == 4 for value in feeds.values()):
        models["static int8"] = _onnx_static(runtime, tools, file.getvalue(), feeds)
    for title, data in models.items():
        settings = runtime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = runtime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
        named = dict(zip([one.name for one in session.get_inputs()], feeds.values(), strict=False))
        calls[f"onnxruntime {title}"] = partial(_ran, session, named)
    return calls


def _ran(session: Any, inputs: dict[str, Any]) -> Any:
    return session.run(None, inputs)[0]


def _onnx_int8(tools: Any, data: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("float.onnx", "int8.onnx")]
        with open(paths[0], "wb") as file:
            file.write(data)
        tools.quantize_dynamic(paths[0], paths[1], weight_type=tools.QuantType.QInt8, per_channel=True)
        with open(paths[1], "rb") as file:
            return file.read()


def _onnx_static(runtime: Any, tools: Any, data: bytes, feeds: dict[str, Any]) -> bytes:
    """Return a model with scales of activations that are calibrated with the inputs themselves."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("float.onnx", "ready.onnx", "int8.onnx")]
        with open(paths[0], "wb") as file:
            file.write(data)
        tools.shape_inference.quant_pre_process(paths[0], paths[1], skip_symbolic_shape=True)
        names = [one.name for one in runtime.InferenceSession(paths[1]).get_inputs()]
        examples = iter([dict(zip(names, feeds.values(), strict=False))])

        class Examples(tools.CalibrationDataReader):  # type: ignore[misc]
            def get_next(self) -> Any:
                return next(examples, None)

        tools.quantize_static(paths[1], paths[2], Examples(), per_channel=True, weight_type=tools.QuantType.QInt8)
        with open(paths[2], "rb") as made:
            return made.read()


def _share(model: Any, inputs: dict[str, Any], threads: int) -> float:
    """Return the share of a call's time in packed layers, by the clock of `measure.Times`."""
    now = time.process_time if threads == 1 else time.perf_counter
    spent, begun = [0.0], [0.0]

    def begin(*_: object) -> None:
        begun[0] = now()

    def end(*_: object) -> None:
        spent[0] += now() - begun[0]

    hooks = []
    for one in model.modules():
        if isinstance(getattr(one, "weight", None), ht.PackedWeight):
            hooks += [one.register_forward_pre_hook(begin), one.register_forward_hook(end)]
    shares = []
    try:
        for _ in range(5):
            spent[0], first = 0.0, now()
            model(**inputs)
            shares.append(spent[0] / max(now() - first, 1e-9))
    finally:
        for hook in hooks:
            hook.remove()
    return float(np.median(shares))
