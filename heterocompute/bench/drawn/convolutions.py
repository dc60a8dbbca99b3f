"""Drawn convolutions and their gradients, in both layouts, next to torch and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...products.backward import conv2d_backward_input, conv2d_backward_weight
from ...products.conv import conv2d, prepared
from ...products.matmul import matmul
from ...products.quantize import fake_quantize, quantize
from ..measure import CheckFailed
from ..onnx_model import one_node_model
from ..peers import installed
from .call import Array, Call, Calls, Draw, close, sizes_text
from .products import ERROR
from .shapes import Window, matrices, windows

MOST_WORK = 500_000_000  # multiply-adds of a call
SAMPLES = 48
ONE_ORDER = ("direct", "depthwise", "planes", "implicit", "im2col")  # r, s, c: the same bits
INTEGERS = ("int8", "int8", "int8", "int4", "vsq4-g16-s4", "vsq8-g64-s8", "int4-g32-f16")
OTHERS = ("nf4-g64", "mxfp4", "mxfp8_e4m3", "fp8_e4m3fn-row", "bf16", "log8-8", "int8", "int8+2:4", "ternary")


def draw_conv(draw: Draw, threads: int) -> Call | None:
    """Return a convolution; None if it is too large."""
    window, images, layout = _drawn(draw)
    if window is None:
        return None
    x, dtype = _images(draw, window, images, layout)
    w = draw.normal(window.k, window.c // window.groups, window.r, window.s)
    kind = draw.rng.random()
    fmt, activations = None, None
    if kind > 0.85:
        fmt, activations = draw.pick(OTHERS), draw.pick((None, "int8"))
    elif kind > 0.55:
        fmt, activations = draw.pick(INTEGERS), "int8"
    filters: Any = w if fmt is None else quantize(w, fmt, axis=(2, 3, 1))
    where = _where(window)
    bias = draw.normal(window.k) if draw.chance(0.3) else None
    call = prepared("drawn", x, filters, bias, **where, activations=activations, layout=layout)
    if not call.result.size:
        return None
    chosen, found, _ = _core.explain_conv2d(*call.core)
    run = partial(conv2d, x, filters, bias, **where, activations=activations, layout=layout, out=call.result)
    paths: dict[str, Callable[[], Any]] = {
        name: partial(_core.conv2d, *call.arguments_for(name)) for name, _, reason, *_ in found if reason is None
    }
    loose = _other_orders(paths, found[chosen][0]) if fmt is None or activations is None else frozenset()
    exact = _exact(x, w, bias, window, layout)
    rounded = (
        x if activations is None else _rounded(x, activations, window, layout),
        w if fmt is None else filters.dequantize(),
    )
    peers = _torch(x, w, bias, window, layout, exact) | _onnx(x, w, bias, window, layout, threads, exact)
    text = "float32" if fmt is None else f"{fmt} x {activations or 'float32'}"
    group = text if fmt is None or text == "int8 x int8" else "packed x int8" if activations else "packed x float32"
    return Call(
        f"{group}, {layout}",
        f"{_text(window, images)}, {layout}, {text}{dtype}{', bias' if bias is not None else ''}",
        run,
        _sampled("conv2d", run, _exact(*rounded, bias, window, layout), layout, ERROR),
        peers,
        paths,
        loose,
        found[chosen][0],
        {name: seconds for name, _, _, seconds, *_ in found},
        lambda: call.result,
    )


def draw_gradients(draw: Draw, threads: int) -> Call | None:
    """Return a gradient of a convolution or of a linear layer; None if it is too large."""
    return _linear_gradient(draw) if draw.chance(0.3) else _conv_gradient(draw)


def _drawn(draw: Draw) -> tuple[Window | None, int, str]:
    """Draw a layer, images and a layout; no layer if it is too large."""
    found = draw.pick(windows())
    images, layout = draw.pick((1, 1, 1, 2, 4, 8)), draw.pick(("NCHW", "NHWC"))
    if draw.chance(0.25):  # another size of the image, as detectors and crops have
        height, width = (max(found.r, draw.size(found.height))), max(found.s, draw.size(found.width))
        found = found._replace(height=height, width=width)
    if found.groups == 1 and draw.chance(0.2):
        found = found._replace(c=draw.size(found.c), k=draw.size(found.k))
    if draw.quick:
        found = found._replace(height=max(found.r, min(found.height, 9)), width=max(found.s, min(found.width, 9)))
        images = 1
    pixels = -(-found.height // found.stride) * -(-found.width // found.stride)
    work = images * pixels * found.k * (found.c // found.groups) * found.r * found.s
    limit = MOST_WORK // 50 if draw.quick else MOST_WORK
    reach = ((size - 1) * found.dilation + 1 for size in (found.r, found.s))
    room = (size + 2 * pad for size, pad in zip((found.height, found.width), found.before, strict=True))
    fits = all(need <= size for need, size in zip(reach, room, strict=True))
    return (found if work <= limit and fits else None), images, layout


def _images(draw: Draw, window: Window, images: int, layout: str) -> tuple[Array, str]:
    c, height, width = window.c, window.height, window.width
    return draw.floats(*((images, c, height, width) if layout == "NCHW" else (images, height, width, c)))


def _rounded(x: Array, activations: str, window: Window, layout: str) -> Array:
    """Return the images that the product sees: one row of numbers an image."""
    nchw = x if layout == "NCHW" else x.transpose(0, 3, 1, 2)
    groups = nchw.reshape(len(nchw), window.groups, -1, *nchw.shape[2:])
    rounded: Array = fake_quantize(groups, activations, axis=(1, 3, 4, 2)).reshape(nchw.shape)
    return rounded if layout == "NCHW" else rounded.transpose(0, 2, 3, 1)


def _where(window: Window) -> dict[str, Any]:
    return {
        "stride": window.stride,
        "padding": window.before,
        "dilation": window.dilation,
        "groups": window.groups,
    }


def _text(window: Window, images: int) -> str:
    steps = f"/{window.stride}" * (window.stride > 1) + f" dilated {window.dilation}" * (window.dilation > 1)
    groups = f", {window.groups} groups" * (window.groups > 1)
    image = f"{window.c} @ {window.height} x {window.width}"
    return f"{window.network}: {images} x {image} to {window.k}, {window.r}x{window.s}{steps}{groups}"


def _other_orders(paths: Iterable[str], chosen: str) -> frozenset[str]:
    """Return the algorithms that add floats in another order than the chosen one."""
    same = ONE_ORDER if chosen in ONE_ORDER else (chosen,)
    return frozenset(paths) - frozenset(same)


def _exact(x: Array, w: Array, bias: Array | None, window: Window, layout: str) -> tuple[tuple[Array, ...], Array]:
    """Return random positions of the answer as (N, K, P, Q), and their values in float64."""
    nchw = x if layout == "NCHW" else x.transpose(0, 3, 1, 2)
    (top, left), step, far = window.before, window.stride, window.dilation
    sizes = [
        (size + 2 * pad - (taps - 1) * far - 1) // step + 1
        for size, pad, taps in zip(nchw.shape[2:], window.before, (window.r, window.s), strict=True)
    ]
    rng = np.random.default_rng(1)
    indices = tuple(rng.integers(0, high, SAMPLES) for high in (len(x), window.k, *sizes))
    depth, each = window.c // window.groups, window.k // window.groups
    values = []
    for n, k, p, q in zip(*indices, strict=True):
        first = k // each * depth
        total = 0.0 if bias is None else float(bias[k])
        for r in range(window.r):
            for s in range(window.s):
                i, j = p * step + r * far - top, q * step + s * far - left
                if 0 <= i < nchw.shape[2] and 0 <= j < nchw.shape[3]:
                    pixel = nchw[n, first : first + depth, i, j].astype(np.float64)
                    total += float(pixel @ w[k, :, r, s].astype(np.float64))
        values.append(total)
    return indices, np.array(values)


def _sampled(
    name: str, call: Callable[[], Any], exact: tuple[tuple[Array, ...], Array], layout: str, error: float
) -> Callable[[], None]:
    indices, wanted = exact

    def check() -> None:
        found = np.asarray(call())
        found = found if layout == "NCHW" else found.transpose(0, 3, 1, 2)
        close(name, lambda: found[indices], wanted, error)()

    return check


def _torch(x: Array, w: Array, bias: Array | None, window: Window, layout: str, exact: Any) -> Calls:
    """Return torch's convolution of float32 in both of its layouts."""
    torch = installed("torch")
    if torch is None:
        return {}
    nchw = torch.from_numpy(np.ascontiguousarray(x if layout == "NCHW" else x.transpose(0, 3, 1, 2)))
    added = None if bias is None else torch.from_numpy(bias)
    found: Calls = {}
    for name, form in (("torch NCHW", torch.contiguous_format), ("torch channels-last", torch.channels_last)):
        left = nchw.float().contiguous(memory_format=form)
        right = torch.from_numpy(w).contiguous(memory_format=form)

        where = (window.stride, window.before, window.dilation, window.groups)
        run = partial(torch.nn.functional.conv2d, left, right, added, *where)
        found[name] = (run, _sampled(name, run, exact, "NCHW", ERROR))
    return found


def _onnx(x: Array, w: Array, bias: Array | None, window: Window, layout: str, threads: int, exact: Any) -> Calls:
    onnxruntime = installed("onnxruntime")
    if onnxruntime is None:
        return {}
    nchw = np.ascontiguousarray(x if layout == "NCHW" else x.transpose(0, 3, 1, 2), np.float32)
    model = one_node_model(
        "Conv", "", {"x": nchw.shape, "w": w, **({} if bias is None else {"b": bias})}, (None,) * 4,
        strides=[window.stride] * 2, pads=[*window.before] * 2, dilations=[window.dilation] * 2, group=window.groups,
    )  # fmt: skip
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])

    def run() -> Any:
        return session.run(None, {"x": nchw})[0]

    return {"onnxruntime": (run, _sampled("onnxruntime", run, exact, "NCHW", ERROR))}


def _conv_gradient(draw: Draw) -> Call | None:
    window, images, layout = _drawn(draw)
    if window is None:
        return None
    x, _ = _images(draw, window, images, layout)
    x = np.ascontiguousarray(x, np.float32)
    w = draw.normal(window.k, window.c // window.groups, window.r, window.s)
    where = {**_where(window), "layout": layout}
    dy = draw.normal(*conv2d(x, w, **where).shape)
    torch = installed("torch")
    of_x = draw.chance(0.5)
    if of_x:
        run = partial(conv2d_backward_input, dy, w, (window.height, window.width), **where)
    else:
        run = partial(conv2d_backward_weight, dy, x, (window.r, window.s), **where)
    found = run()
    name = f"gradient of {'x' if of_x else 'w'}"
    text, group = f"{_text(window, images)}, {layout}, {name}", f"{name}, {layout}"
    if torch is None:
        return Call(group, text, run, _adjoint(name, run, x, w, dy, where, of_x))
    images_first = (0, 3, 1, 2) if layout == "NHWC" else (0, 1, 2, 3)
    peers: Calls = {}
    for title, form in (("torch NCHW", torch.contiguous_format), ("torch channels-last", torch.channels_last)):
        dys, xs = (torch.from_numpy(one.transpose(images_first)).contiguous(memory_format=form) for one in (dy, x))
        ws = torch.from_numpy(w).contiguous(memory_format=form)

        def theirs(dys: Any = dys, xs: Any = xs, ws: Any = ws) -> Any:
            return torch.ops.aten.convolution_backward(
                dys, xs, ws, None, [window.stride] * 2, [*window.before], [window.dilation] * 2, False, [0, 0],
                window.groups, [of_x, not of_x, False],
            )[0 if of_x else 1]  # fmt: skip

        wanted = found.transpose(images_first) if of_x else found
        peers[title] = (theirs, close(title, theirs, wanted.astype(np.float64), 1e-3))
    return Call(group, text, run, _adjoint(name, run, x, w, dy, where, of_x), peers)


def _adjoint(
    name: str, run: Callable[[], Any], x: Array, w: Array, dy: Array, where: dict[str, Any], of_x: bool
) -> Callable[[], None]:
    """Return a check that the gradient is the adjoint of the convolution: <dy, conv(v)> = <gradient, v>."""

    def check() -> None:
        rng = np.random.default_rng(1)
        v: Any = rng.standard_normal((x if of_x else w).shape, dtype=np.float32)
        y = conv2d(v, w, **where) if of_x else conv2d(x, v, **where)
        left, right = (float(np.vdot(a.astype(np.float64), b)) for a, b in ((y, dy), (run(), v)))
        if not abs(left - right) <= 1e-3 * float(np.linalg.norm(y)) * float(np.linalg.norm(dy)):
            raise CheckFailed(f"{name}: the gradient is not the adjoint of the convolution: {left} and {right}")

    return check


def _linear_gradient(draw: Draw) -> Call | None:
    n, k = (draw.size(size) for size in draw.pick(matrices()))
    m = draw.size(draw.pick((8, 16, 32, 64, 128, 256)))
    if m * n * k > MOST_WORK:
        return None
    dy, x, w = draw.normal(m, n), draw.normal(m, k), draw.normal(n, k)
    of_x = draw.chance(0.5)
    left, right = (dy, w) if of_x else (dy.T, x)
    out = np.empty((left.shape[0], right.shape[1]), np.float32)
    run = partial(matmul, left, right, out=out)
    wanted = left.astype(np.float64) @ right
    peers: Calls = {}
    theirs = partial(np.matmul, left, right, out=np.empty_like(out))
    peers["NumPy"] = (theirs, close("NumPy", theirs, wanted))
    torch = installed("torch")
    if torch is not None:
        of_torch = partial(torch.mm, torch.from_numpy(left), torch.from_numpy(right))
        peers["torch"] = (of_torch, close("torch", of_torch, wanted))
    name = f"gradient of {'x' if of_x else 'w'}"
    return Call(f"{name}, linear", f"{name}, linear: {sizes_text((m, n, k))}", run, close(name, run, wanted), peers)
