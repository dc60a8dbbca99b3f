"""Convolutions of ResNet-50, VGG-16 and MobileNetV2, and filters of other sizes: every algorithm, and the peers.

A row is a layer. It compares `auto` with the fastest of our algorithms, the best peer (torch in either layout,
onnxruntime) and the float32 limit of the same run; and int8 with torch's int8, both from floats to floats, unless
torch's sums are wrong. ``candidates`` in the JSON has the rate of each. Operations per byte count the images, the
filters and the result once. The last tables show matmuls under the same roof, and the sizes from which Winograd and the
Fourier transform pay.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays.prepacked import prepack
from ..base.runtime import use
from ..products.arguments import empty_at_a_line
from ..products.conv import ALGORITHMS, conv2d
from ..products.explain import explain
from ..products.matmul import matmul
from ..products.quantize import quantize
from .limits import loop_limit, read_limits
from .machine import beyond_cache_bytes
from .measure import Candidate, CheckFailed, Options, Row, Table, Times, expect_close
from .onnx_model import one_node_model
from .peers import installed

Array = np.ndarray[Any, Any]

BATCHES = (1, 8)
INTEGERS = ("int8", "vsq4-g16-s4")
# Relative to the norm: Winograd's largest tiles lose four digits; rounding to 8 and 4 bits costs 0.01 and 0.1.
FLOAT_ERROR, INT8_ERROR, VSQ_ERROR = 1e-4, 0.05, 0.25
SAMPLES = 64


class Layer(NamedTuple):
    """A convolution with square images and filters, padded to keep the size.

    Attributes
    ----------
    network : str
    c, size, k : int
        Channels in, height and width of the images, filters.
    r, stride, groups : int
    """

    network: str
    c: int
    size: int
    k: int
    r: int
    stride: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        """Return the layer's name in a table."""
        step = f"/{self.stride}" * (self.stride > 1)
        depthwise = " depthwise" * (self.groups > 1)
        return f"{self.network} {self.r}x{self.r}{step}{depthwise} {self.c}@{self.size} to {self.k}"


LAYERS = (
    Layer("ResNet-50", 3, 224, 64, 7, 2),
    Layer("ResNet-50", 64, 56, 64, 1),
    Layer("ResNet-50", 64, 56, 64, 3),
    Layer("ResNet-50", 64, 56, 256, 1),
    Layer("ResNet-50", 256, 56, 64, 1),
    Layer("ResNet-50", 128, 56, 128, 3, 2),
    Layer("ResNet-50", 128, 28, 128, 3),
    Layer("ResNet-50", 512, 28, 128, 1),
    Layer("ResNet-50", 256, 14, 256, 3),
    Layer("ResNet-50", 1024, 14, 256, 1),
    Layer("ResNet-50", 512, 7, 512, 3),
    Layer("ResNet-50", 512, 7, 2048, 1),
    Layer("VGG-16", 3, 224, 64, 3),
    Layer("VGG-16", 64, 224, 64, 3),
    Layer("VGG-16", 128, 112, 128, 3),
    Layer("VGG-16", 256, 56, 256, 3),
    Layer("VGG-16", 512, 28, 512, 3),
    Layer("VGG-16", 512, 14, 512, 3),
    Layer("MobileNetV2", 32, 112, 32, 3, 1, 32),
    Layer("MobileNetV2", 96, 112, 96, 3, 2, 96),
    Layer("MobileNetV2", 144, 56, 144, 3, 1, 144),
    Layer("MobileNetV2", 384, 14, 384, 3, 1, 384),
    Layer("MobileNetV2", 960, 7, 960, 3, 1, 960),
    Layer("MobileNetV2", 96, 56, 24, 1),
    Layer("MobileNetV2", 64, 14, 384, 1),
    Layer("AlexNet", 96, 27, 256, 5),
    Layer("filters", 64, 56, 64, 5),
    Layer("filters", 64, 56, 64, 7),
)
QUICK_LAYERS = (Layer("quick", 3, 9, 5, 3, 2), Layer("quick", 4, 6, 4, 3, 1, 4), Layer("quick", 4, 6, 6, 3))
WINOGRAD_CHANNELS, FFT_FILTERS = (4, 8, 16, 32, 64, 128), (3, 5, 7, 11, 15, 31)


def measure(options: Options) -> list[Table]:
    """Measure the layers with each thread count and batch, then products, then the break-even points."""
    tables: list[Table] = []
    for threads in options.threads:
        with use(threads=threads):
            tables += [layers_table(options, threads, batch) for batch in (BATCHES[:1] if options.quick else BATCHES)]
            tables.append(products_table(options, threads))
            tables += break_evens(options, threads)
    return tables


def layers_table(options: Options, threads: int, batch: int) -> Table:
    """Return one row per layer."""
    rows = []
    for layer in QUICK_LAYERS if options.quick else LAYERS:
        options.report_progress(f"{layer.name}, batch {batch}, {threads} threads")
        rows.append(_row(layer, batch, threads, options))
    return {"title": f"Convolutions, float32 and int8, batch {batch}", "threads": threads, "batch": batch, "rows": rows}


def products_table(options: Options, threads: int) -> Table:
    """Return a product that reuses its operands, one that does not, and the limits that bound them."""
    sizes = (
        {"GEMM": (17, 24, 32), "GEMV": (1, 24, 32)}
        if options.quick
        else {"GEMM": (512, 1024, 1024), "GEMV": (1, 8192, 8192)}
    )
    rng = np.random.default_rng(0)
    memory = np.ones((1 << 12 if options.quick else beyond_cache_bytes()) // 4, np.float32)
    candidates = [loop_limit("fma", threads, options), *read_limits([memory], threads)]
    details = {}
    for name, (m, n, k) in sizes.items():
        a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
        found = explain(a, b)
        label = f"{name} {m} x {n} x {k}"
        details[label] = {"intensity": found.intensity, "operations": float(found.operations)}
        run = partial(matmul, a, b, out=np.empty((m, n), np.float32))
        candidates.append(Candidate(label, run, found.operations, "GFLOP/s", details=details[label]))
    times = Times(candidates, options, threads)
    rows = [times.row(name) for name in times.candidates]
    return {"title": "Products and limits", "threads": threads, "rows": rows}


def break_evens(options: Options, threads: int) -> list[Table]:
    """Return the speed of Winograd over the best other algorithm by channels, and the Fourier transform's by filter."""
    cases = {"winograd": [Layer("break-even", c, 56, c, 3) for c in WINOGRAD_CHANNELS]}
    cases["fft"] = [Layer("break-even", 64, 56, 64, r) for r in FFT_FILTERS]
    tables = []
    for kind, layers in cases.items():
        names = [name for name in ALGORITHMS if name.startswith(kind)]
        if not names:
            continue
        rows = []
        for layer in layers[:1] if options.quick else layers:
            times, _ = _times(layer, 1, threads, options, peers=False)
            best, other = (
                times.best(names),
                times.best([n for n in ALGORITHMS if not n.startswith(("winograd", "fft"))]),
            )
            if best and other:
                ratio = times.speedup(best, other)
                rows.append({"name": layer.name, "fastest": best, "seconds": times.median(best), "to_dense": ratio})
        if rows:
            tables.append({"title": f"Break-even of {kind}, to the best other", "threads": threads, "rows": rows})
    return tables


def _row(layer: Layer, batch: int, threads: int, options: Options) -> Row:
    times, details = _times(layer, batch, threads, options, peers=True)
    ours = [name for name in ALGORITHMS if name in times.candidates]
    fastest, peer = (
        times.best(ours),
        times.best([n for n in times.candidates if n.startswith(("torch", "onnxruntime"))]),
    )
    row = times.row(
        "auto",
        to_int8_peer=times.speedup("int8 x int8", "int8 torch") if "int8 x int8" in times.candidates else None,
        to_peer=times.speedup("auto", peer),
        of_limit=times.fraction("auto", "float32 FMA"),
        slower=times.speedup(fastest, "auto") if fastest else None,
    )
    rates = {name: times.rate(name) / 1e9 for name in times.candidates}
    return {**row, **details, "name": layer.name, "fastest": fastest, "peer": peer, "candidates": rates}


def _times(layer: Layer, batch: int, threads: int, options: Options, peers: bool) -> tuple[Times, Row]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, layer.c, layer.size, layer.size), dtype=np.float32)
    w = rng.standard_normal((layer.k, layer.c // layer.groups, layer.r, layer.r), dtype=np.float32)
    # Starts at a cache line, like the tensors of the other libraries.
    last = empty_at_a_line((batch, layer.size, layer.size, layer.c))
    last[...] = x.transpose(0, 2, 3, 1)
    where: dict[str, Any] = {"stride": layer.stride, "padding": layer.r // 2, "groups": layer.groups}
    found = explain(conv2d, x, w, **where)
    out = empty_at_a_line(conv2d(last, w, layout="NHWC", **where).shape)
    exact = _exact(x, w, layer)
    work = float(found.operations)

    def ours(name: str, filters: Any, error: float, unit: str, **options: Any) -> Candidate:
        call = partial(conv2d, last, filters, layout="NHWC", out=out, **where, **options)

        def check() -> None:
            _check(name, call().transpose(0, 3, 1, 2), exact, error)

        return Candidate(name, call, work, unit, check)

    candidates = [ours("auto", w, FLOAT_ERROR, "GFLOP/s")]
    candidates += [ours("auto prepacked", prepack(w), FLOAT_ERROR, "GFLOP/s")] * peers  # as those of onnxruntime are
    for name in ALGORITHMS:
        candidate = ours(name, w, FLOAT_ERROR, "GFLOP/s", algorithm=name)
        with suppress(ValueError):  # it refuses these filters
            candidate.run()
            candidates.append(candidate)
    if peers:
        candidates.append(loop_limit("fma", threads, options))
        for text in INTEGERS:
            error = INT8_ERROR if text == "int8" else VSQ_ERROR
            q = prepack(quantize(w, text, axis=(2, 3, 1)))  # as the peer's are
            candidates.append(ours(f"{text} x int8", q, error, "GOP/s", activations="int8"))
        for name, run, answer in _peers(x, w, layer, threads):
            check = partial(_checked, name, run, answer, exact)
            candidates.append(Candidate(name, run, work, "GFLOP/s", check))
        candidates += sound(_int8_peer(x, w, layer, threads, work, exact), layer.name, options)
    chosen = found.chosen if found.chosen in ALGORITHMS else "auto"
    return Times(candidates, options, threads), {"intensity": found.intensity, "operations": work, "chosen": chosen}


def _int8_peer(
    x: Array, w: Array, layer: Layer, threads: int, work: float, exact: tuple[tuple[Array, ...], Array]
) -> list[Candidate]:
    """Return torch's convolution of integers between floats, like ours; it gets the scales of x and y beforehand."""
    torch = installed("torch")
    if torch is None or "onednn" not in torch.backends.quantized.supported_engines:
        return []
    torch.set_num_threads(threads)
    last = torch.channels_last
    images, filters = (torch.from_numpy(value).contiguous(memory_format=last) for value in (x, w))
    each = torch.from_numpy(np.abs(w).reshape(layer.k, -1).max(1).astype(np.float64) / 127)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it warns that quantized tensors are deprecated
        codes = torch.quantize_per_channel(filters, each, torch.zeros(layer.k, dtype=torch.int64), 0, torch.qint8)
    where = [layer.stride] * 2, [layer.r // 2] * 2, [1, 1], layer.groups
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "onednn"
    try:
        packed = torch.ops.quantized.conv2d_prepack(codes.contiguous(memory_format=last), None, *where)
    finally:
        torch.backends.quantized.engine = before
    y = torch.nn.functional.conv2d(images, filters, None, *where)
    x_scale, y_scale = (float(value.abs().max()) / 127 for value in (images, y))

    def run() -> Any:
        torch.backends.quantized.engine = "onednn"
        try:
            x_codes = torch.quantize_per_tensor(images, x_scale, 128, torch.quint8)
            return torch.ops.quantized.conv2d(x_codes, packed, y_scale, 128).dequantize()
        finally:
            torch.backends.quantized.engine = before

    def check() -> None:
        _check("int8 torch", np.asarray(run()), exact, INT8_ERROR)

    return [Candidate("int8 torch", run, work, "GOP/s", check)]


def sound(peers: list[Candidate], where: str, options: Options) -> list[Candidate]:
    """Return the peers whose results are right, and print which are left out.

    On processors without a dot product of bytes, some add two products of bytes in 16 bits, which saturate: a fault
    of theirs, and no reason to skip the measurement.
    """
    right = []
    for peer in peers:
        try:
            peer.check()
        except CheckFailed as failed:
            options.report_progress(f"{where}: left out, its sums are wrong on this machine: {failed}")
        else:
            right.append(peer)
    return right


def _checked(name: str, run: Callable[[], Any], answer: Callable[[Any], Array], exact: Any) -> None:
    _check(name, answer(run()), exact, FLOAT_ERROR)


def _check(name: str, y: Array, exact: tuple[tuple[Array, ...], Array], error: float) -> None:
    indices, wanted = exact
    expect_close(name, y[indices], wanted, error)


def _exact(x: Array, w: Array, layer: Layer) -> tuple[tuple[Array, ...], Array]:
    """Return random positions of the answer and their values in float64."""
    rng, pad, side = np.random.default_rng(1), layer.r // 2, -(-layer.size // layer.stride)
    indices = tuple(rng.integers(0, high, SAMPLES) for high in (len(x), layer.k, side, side))
    depth, each = w.shape[1], layer.k // layer.groups
    values = []
    for n, k, p, q in zip(*indices, strict=True):
        first = k // each * depth
        padded = np.pad(x[n, first : first + depth], ((0, 0), (pad, pad), (pad, pad))).astype(np.float64)
        top, left = p * layer.stride, q * layer.stride
        values.append((padded[:, top : top + layer.r, left : left + layer.r] * w[k]).sum())
    return indices, np.array(values)


def _peers(
    x: Array, w: Array, layer: Layer, threads: int
) -> list[tuple[str, Callable[[], Any], Callable[[Any], Array]]]:
    found: list[tuple[str, Callable[[], Any], Callable[[Any], Array]]] = []
    pad = layer.r // 2
    torch = installed("torch")
    if torch is not None:
        torch.set_num_threads(threads)
        for name, form in (("torch NCHW", torch.contiguous_format), ("torch channels-last", torch.channels_last)):
            left, right = (torch.from_numpy(value).contiguous(memory_format=form) for value in (x, w))

            def run(left: object = left, right: object = right) -> Any:
                with torch.no_grad():
                    return torch.nn.functional.conv2d(left, right, None, layer.stride, pad, 1, layer.groups)

            found.append((name, run, lambda y: np.asarray(y)))
    onnxruntime = installed("onnxruntime")
    if onnxruntime is not None:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        settings.log_severity_level = 4
        side = -(-layer.size // layer.stride)
        model = one_node_model(
            "Conv", "", {"x": x.shape, "w": w}, (len(x), layer.k, side, side),
            strides=[layer.stride] * 2, pads=[pad] * 4, group=layer.groups,
        )  # fmt: skip
        session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        found.append(("onnxruntime", lambda: session.run(None, {"x": x}), lambda y: np.asarray(y[0])))
    return found
