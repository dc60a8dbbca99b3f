"""The PyTorch operators of `interop.torch`, and functions for torch.func and for derivatives of derivatives.

    fake_quantize (t) -> (y, note)          dL/dt = pass_gradient (dL/dy, note), which is linear: so is its derivative
    linear (x, q) -> x q^T                  dL/dx = linear_backward (dL/dy, q) = dL/dy q, whose derivative is linear
    conv2d (x, q) -> x * q                  dL/dx = conv2d_backward (dL/dy, q), likewise

q is the components of a packed weight as tensors, and a string that describes them (`described`). So a graph stores a
weight like any other tensor. torch.compile keeps the operators whole. Both forms are needed: torch.compile does not
trace functions with a forward derivative, and torch.func does not differentiate operators.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from ...arrays.components import VALUES, component_layout, layout_of
from ...arrays.dense import as_array, normalize_axes
from ...arrays.quantized import QuantizedArray
from ...base.devices import KIND
from ...base.errors import WrongIndex, WrongType, WrongValue, shown
from ...formats.defining import carried
from ...products.arguments import as_format
from ...products.conv import conv2d
from ...products.matmul import linear as product, matmul
from ...training.passing import note_of, passed, rounded
from . import device
from .derivatives import register_batches, rules_of

Pair = tuple[int, int]
PLAIN = (torch.Tensor, torch.nn.Parameter)
_n_modes, _top_transform = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack


def described(q: QuantizedArray) -> str:
    """Return format, shape, axes and source dtype of a packed weight as a string, the argument of operators.

    Examples
    --------
    >>> import heterocompute as hc
    >>> described(hc.quantize([[1.0, 2.0]], "int4"))
    '{"format": "int4", "shape": [1, 2], "axis": [1], "dtype": "float64"}'
    """
    return json.dumps(
        {"format": carried(q.format), "shape": list(q.shape), "axis": list(q.axis), "dtype": q.source_dtype}
    )


def parts_of(q: QuantizedArray) -> dict[str, Any]:
    """Return the components of a packed weight as tensors that share their memory, in the order of its layout."""
    return {name: _as_tensor(q.components[name]) for name in _about(described(q))[4]}


def _as_tensor(part: Any) -> Any:
    if not part.flags.writeable or min(part.strides, default=0) < 0:  # PyTorch warns of these, or refuses
        part = np.array(part)
    if part.dtype.name == "bfloat16":
        return torch.from_numpy(part.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(part)


@lru_cache(maxsize=4096)
def _about(text: str) -> tuple[Any, ...]:
    """Return format, shape, axes, source dtype and the dtypes of components from a string of `described`."""
    about = json.loads(text)
    fmt, shape, axis, dtype = as_format(about["format"], "format"), about["shape"], about["axis"], about["dtype"]
    layout = component_layout(fmt, shape, axis, dtype if dtype in VALUES else "float32")
    return fmt, tuple(shape), tuple(axis), dtype, {name: kind for name, (kind, _) in layout.items()}


def on_device(parts: Sequence[Any], text: str) -> device.Packed:
    """Return a packed weight on a device in the form of `device`; it shares the memory of contiguous tensors.

    Behind the components may be the panels of `PackedWeight.prepack`.
    """
    fmt, shape, axis, _, kinds = _about(text)
    names = kinds if len(parts) == len(kinds) else (*kinds, device.PANELS)
    bare = [part if part.is_contiguous() else part.detach().contiguous() for part in parts]
    return fmt, shape, axis, dict(zip(names, bare, strict=True))


def sliced(parts: Sequence[Any], text: str, index: Any) -> tuple[list[Any], str]:
    """Return an index or a slice of the first dimension of a packed weight; the memory is shared."""
    fmt, shape, axis, dtype, kinds = _about(text)
    if 0 in axis or not fmt.splits_into_rows:
        raise WrongValue(
            f"interop.torch: rows of {fmt} along axis {axis} share scales: call dequantize() of the weight"
        )
    is_one = not isinstance(index, slice)
    rows = range(shape[0])[index : index + 1 or None] if is_one else range(shape[0])[index]
    if (is_one and len(rows) != 1) or rows.step != 1:
        raise WrongIndex(
            f"interop.torch: index {shown(index)} of a packed weight, expected one of {shape[0]} or a slice"
        )
    each = prod(n for a, n in enumerate(shape) if a > 0 and a not in axis)
    layout = layout_of(fmt, shape, axis)
    found = [
        part[rows.start * each : rows.stop * each] if layout[name][2] else part
        for name, part in zip(kinds, parts, strict=True)
    ]
    size = shape[1:] if is_one else (len(rows), *shape[1:])
    about = {"format": carried(fmt), "shape": size, "axis": [a - is_one for a in axis], "dtype": dtype}
    return found, json.dumps(about)


def array_of(parts: Sequence[Any], text: str) -> QuantizedArray:
    """Return the packed weight of components and a string of `described`; it shares the memory of the tensors."""
    fmt, shape, axis, dtype, kinds = _about(text)
    components = {name: _as_ndarray(part).view(kind) for (name, kind), part in zip(kinds.items(), parts, strict=True)}
    return QuantizedArray._trusted(components, fmt, shape, axis, dtype)


def is_plain(t: object) -> bool:
    """Tell whether no compiler, mode or transform of PyTorch intercepts operations on a tensor."""
    return type(t) in PLAIN and not _n_modes() and _top_transform() is None


def is_unobserved(x: Any) -> bool:
    """Tell whether no gradient, compiler or transform of PyTorch observes a call with this input."""
    if torch.compiler.is_compiling() or not is_plain(x) or (x.requires_grad and torch.is_grad_enabled()):
        return False
    return bool(forward_ad._current_level < 0 and x.layout is torch.strided and not torch._C._is_tracing())


def _check_devices(t: Any, q: Sequence[Any]) -> None:
    """Raise TypeError if a packed weight is on another device than t: a weight on "meta" has no values, for example."""
    if t.device.type != "meta" and any(part.device != t.device for part in q):
        place = next(part.device for part in q if part.device != t.device)
        raise WrongType(
            f"interop.torch: the packed weight is on {place}, expected {t.device}: move the model, or load its values"
        )


def rows_of(q: QuantizedArray, ids: Any) -> Any:
    """Return the values of some rows of a packed matrix as float32; only these rows are decoded.

    Raises
    ------
    IndexError
        An index of a row is out of range.
    """
    count, length = q.shape
    flat = ids.reshape(-1)
    if flat.size and not 0 <= int(flat.min()) <= int(flat.max()) < count:
        wrong = int(flat.min()) if flat.min() < 0 else int(flat.max())
        raise WrongIndex(f"embedding: x has index {wrong}, expected 0 to {count - 1}")
    layout = layout_of(q.format, q.shape, q.axis)
    parts = {name: part[flat] if layout[name][2] else part for name, part in q.components.items()}
    found = QuantizedArray._trusted(parts, q.format, (flat.size, length), q.axis, q.source_dtype)
    return found.dequantize().reshape(*ids.shape, length)


def _rows_on_device(ids: Any, q: device.Packed) -> Any:
    """Return the values of some rows of a packed matrix; PyTorch checks the indices on the device."""
    fmt, shape, axis, parts = q
    layout, flat = layout_of(fmt, shape, axis), ids.reshape(-1)
    chosen = {name: part.index_select(0, flat) if layout[name][2] else part for name, part in parts.items()}
    return device.decoded((fmt, (flat.shape[0], shape[1]), axis, chosen)).reshape((*ids.shape, shape[1]))


def _bare_values(t: Any) -> Any:
    """Return a tensor without its gradient and without a pending negation, so that its memory has its values."""
    if t.requires_grad or t.is_neg():
        return t.detach().resolve_neg()
    return t


def _as_ndarray(part: Any) -> Any:
    if part.device.type != "cpu":
        how = "load its values first" if part.device.type == "meta" else "call .cpu() of the model"
        raise WrongType(f"interop.torch: the packed weight is on {part.device}, expected the CPU: {how}")
    return (part.detach().view(torch.int16) if part.itemsize == 2 else part.detach()).numpy()


def defined() -> SimpleNamespace:
    """Define the operators, once in a process.

    Returns
    -------
    SimpleNamespace
        The operators, and what `functions` needs of them.
    """

    def array(t: torch.Tensor) -> Any:
        if t.device.type != "cpu":
            raise WrongType(f"interop.torch: the tensor is on {t.device}, expected one of the CPU: pass .cpu() of it")
        return as_array(t.detach(), "interop.torch: the tensor")

    def operator(name: str, schema: str, forward: object, fake: object) -> Any:
        made = torch.library.custom_op(f"heterocompute::{name}", forward, mutates_args=(), schema=schema)
        made.register_fake(fake)
        raw[name] = forward
        return made

    raw: dict[str, Any] = {}

    def round_forward(t: torch.Tensor, fmt: str, axis: str, clip: str, rounding: str, seed: int) -> tuple[Any, Any]:
        parsed = as_format(fmt, "fake_quantize: format", functions=t.device.type != KIND)
        if t.device.type == KIND:
            axes = normalize_axes(_axes(axis), t.dim(), "fake_quantize")
            return device.rounded(_bare_values(t), parsed, axes, _clip_of(clip), rounding, seed % 2**64)
        x = array(t)
        y, note = rounded(x, parsed, normalize_axes(_axes(axis), x.ndim, "fake_quantize"), _clip_of(clip), rounding,
                          seed % 2**64)  # fmt: skip
        return torch.from_numpy(y).to(t.dtype), torch.from_numpy(np.empty(0, np.uint8) if note is None else note)

    def round_fake(t: torch.Tensor, fmt: str, axis: str, clip: str, rounding: str, seed: int) -> tuple[Any, Any]:
        shape = tuple(int(n) for n in t.shape)
        axes = normalize_axes(_axes(axis), len(shape), "fake_quantize")
        note = note_of(
            as_format(fmt, "fake_quantize: format", functions=True), _clip_of(clip), shape, axes, t.device.type == KIND
        )
        kind, size = (np.uint8, (0,)) if note is None else note
        of_note = t.new_empty(size, dtype=torch.uint8 if kind is np.uint8 else torch.float32)
        return torch.empty_like(t, memory_format=torch.contiguous_format), of_note

    def pass_forward(g: torch.Tensor, note: torch.Tensor, fmt: str, axis: str) -> Any:
        if g.device.type == KIND:
            return device.passed(_bare_values(g), note)
        axes = normalize_axes(_axes(axis), g.ndim, "fake_quantize")
        found = passed(
            array(g).astype(np.float32, copy=False), note.numpy(), as_format(fmt, "fmt", functions=True), axes
        )
        return torch.from_numpy(found).to(g.dtype)

    def pass_fake(g: torch.Tensor, note: torch.Tensor, fmt: str, axis: str) -> Any:
        return torch.empty_like(g, memory_format=torch.contiguous_format)

    def times(x: torch.Tensor, q: Sequence[torch.Tensor], text: str, activations: str) -> Any:
        if x.device.type == KIND:
            return device.product(_bare_values(x), on_device(q, text), activations)
        return torch.from_numpy(product(array(x), array_of(q, text), activations=activations or None))

    def times_fake(x: torch.Tensor, q: Sequence[torch.Tensor], text: str, activations: str) -> Any:
        _check_devices(x, q)
        return x.new_empty((*x.shape[:-1], json.loads(text)["shape"][0]), dtype=torch.float32)

    def back(g: torch.Tensor, q: Sequence[torch.Tensor], text: str) -> Any:
        if g.device.type == KIND:
            return _bare_values(g).to(torch.float32).matmul(device.decoded(on_device(q, text)))
        return torch.from_numpy(matmul(array(g), array_of(q, text).dequantize()))

    def back_fake(g: torch.Tensor, q: Sequence[torch.Tensor], text: str) -> Any:
        _check_devices(g, q)
        return g.new_empty((*g.shape[:-1], json.loads(text)["shape"][1]), dtype=torch.float32)

    def convolve(x: torch.Tensor, q: Sequence[torch.Tensor], text: str, window: Sequence[int], activations: str) -> Any:
        stride, padding, dilation, groups = _window(window)
        if x.device.type == KIND:
            return device.convolved(_bare_values(x), on_device(q, text), _window(window), activations)
        w = array_of(q, text)
        y = conv2d(array(x), w, None, stride, padding, dilation, groups, activations or None)
        return torch.from_numpy(y)

    def convolve_fake(
        x: torch.Tensor, q: Sequence[torch.Tensor], text: str, window: Sequence[int], activations: str
    ) -> Any:
        stride, padding, dilation, groups = _window(window)
        _check_devices(x, q)
        filters = x.new_empty(json.loads(text)["shape"], dtype=torch.float32)
        return torch.ops.aten.convolution(
            x.float(), filters, None, stride, padding, dilation, False, [0, 0], groups
        ).contiguous()

    def convolve_back(
        g: torch.Tensor, q: Sequence[torch.Tensor], text: str, window: Sequence[int], height: int, width: int
    ) -> Any:
        stride, padding, dilation, groups = _window(window)
        is_device_input = g.device.type == KIND
        w = device.decoded(on_device(q, text)) if is_device_input else torch.from_numpy(array_of(q, text).dequantize())
        size = (g.shape[0], w.shape[1] * groups, height, width)
        if not g.numel():  # of images smaller than the filters, which torch refuses
            return g.new_zeros(size, dtype=torch.float32)
        return torch.nn.grad.conv2d_input(size, w, g.float(), stride, padding, dilation, groups).contiguous()

    def convolve_back_fake(
        g: torch.Tensor, q: Sequence[torch.Tensor], text: str, window: Sequence[int], height: int, width: int
    ) -> Any:
        _check_devices(g, q)
        channels = json.loads(text)["shape"][1] * window[-1]
        return g.new_empty((g.shape[0], channels, height, width), dtype=torch.float32)

    def rows(ids: torch.Tensor, q: Sequence[torch.Tensor], text: str) -> Any:
        if ids.device.type == KIND:
            return _rows_on_device(ids, on_device(q, text))
        return torch.from_numpy(rows_of(array_of(q, text), ids.numpy()))

    def rows_fake(ids: torch.Tensor, q: Sequence[torch.Tensor], text: str) -> Any:
        _check_devices(ids, q)
        return ids.new_empty((*ids.shape, json.loads(text)["shape"][1]), dtype=torch.float32)

    round_schema = "(Tensor t, str fmt, str axis, str clip, str rounding, int seed) -> (Tensor, Tensor)"
    pass_schema = "(Tensor g, Tensor note, str fmt, str axis) -> Tensor"
    packed = "Tensor[] q, str text"
    made = SimpleNamespace(
        raw=raw,
        fake_quantize=operator("fake_quantize", round_schema, round_forward, round_fake),
        pass_gradient=operator("pass_gradient", pass_schema, pass_forward, pass_fake),
        linear=operator("linear", f"(Tensor x, {packed}, str activations) -> Tensor", times, times_fake),
        linear_backward=operator("linear_backward", f"(Tensor g, {packed}) -> Tensor", back, back_fake),
        conv2d=operator(
            "conv2d", f"(Tensor x, {packed}, int[] window, str activations) -> Tensor", convolve, convolve_fake
        ),
        conv2d_backward=operator(
            "conv2d_backward",
            f"(Tensor g, {packed}, int[] window, SymInt height, SymInt width) -> Tensor",
            convolve_back,
            convolve_back_fake,
        ),
        rows=operator("rows", f"(Tensor ids, {packed}) -> Tensor", rows, rows_fake),
    )
    for name, rule in rules_of(made, lambda q: [None] * len(q)).items():
        getattr(made, name).register_autograd(rule.backward, setup_context=rule.keep)
    register_batches(made)
    return made


class _Several:
    """A list that torch.func treats as one input; with plain lists it miscounts the items in repeated derivatives.

    Wrappers of torch.func around a packed weight, which has no derivative, are removed.
    """

    def __init__(self, items: list[Any]) -> None:
        self.items = [_bare(one) if isinstance(one, torch.Tensor) else one for one in items]


def _bare(part: object) -> Any:
    inside = torch._C._functorch
    while inside.is_functorch_wrapped_tensor(part):
        if inside.is_batchedtensor(part):
            raise WrongType("interop.torch: vmap over packed weights, expected vmap over inputs")
        part = inside.get_unwrapped(part)
    return part


def functions(operators: SimpleNamespace) -> SimpleNamespace:
    """Return the operators as functions with forward, backward and repeated derivatives, also in torch.func.

    Parameters
    ----------
    operators : SimpleNamespace
        The result of `defined`.

    Returns
    -------
    SimpleNamespace
        The functions, and `never_compile`, which keeps the compiler, once it is imported, from what they call.
    """

    def function(name: str, rule: SimpleNamespace) -> Any:
        operator, raw = getattr(operators, name), operators.raw[name]

        def forward(*inputs: object) -> Any:
            given = [one.items if type(one) is _Several else one for one in inputs]
            return (raw if is_plain(inputs[0]) else operator)(*given)  # calling an operator takes 100 us

        methods = {
            "generate_vmap_rule": True,
            "forward": staticmethod(forward),
            "setup_context": staticmethod(rule.keep),
            "backward": staticmethod(rule.backward),
            "jvp": staticmethod(rule.forward),
        }
        made: Any = type(name, (torch.autograd.Function,), methods)
        classes.append(made)
        return lambda *inputs: made.apply(*(_Several(one) if type(one) is list else one for one in inputs))

    def never_compile() -> None:
        while classes:
            one = classes.pop()
            for method in ("forward", "setup_context", "backward", "jvp"):
                setattr(one, method, staticmethod(torch.compiler.disable(getattr(one, method))))

    classes: list[Any] = []
    found = SimpleNamespace(never_compile=never_compile)
    for name, rule in rules_of(found, lambda q: None).items():
        setattr(found, name, function(name, rule))
    return found


def axes_text(axes: Iterable[int]) -> str:
    """Return axes as a string for operators: torch.func would treat a list as several arguments."""
    return " ".join(map(str, axes))


def _window(numbers: Sequence[int]) -> tuple[Pair, Pair, Pair, int]:
    """Return stride, padding, dilation and groups from the argument of an operator."""
    down, across, above, left, dilated, sparse, groups = numbers
    return (down, across), (above, left), (dilated, sparse), groups


def _axes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def _clip_of(text: str) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text
