"""The inputs of a PyTorch model's layers: every product with a weight is recorded while the model runs.

    aten.mm, addmm, mv, addmv, linear     x w^T or x w: the axis that is summed is the one that the operator sums
    aten.bmm, baddbmm                     each matrix of a stack by itself
    the same with one expert of a stack   each expert has a matrix of inputs of its own
    aten.convolution                      windows of x in the order of the weight's axes, each group by itself; of a
                                          transposed one those of the convolution that computes it, if wanted

An operator's operand is a weight if it is the weight's memory, perhaps transposed, or a copy of it in another dtype: so
`MultiheadAttention`, tied weights and handwritten products are recorded like layers. A weight that is computed in each
forward pass (rounding in training, parametrizations, pruning) is recognized by the tensor that the layer multiplies by.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from ...arrays.dense import as_array
from ...base.errors import shown
from ...ptq.hessian import Hessian
from ..torch.walk import Layer
from .batches import Problem
from .weights import weight_source

Array = np.ndarray[Any, Any]
PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2), "mv": (0, 1), "addmv": (1, 2)}
COPIES = ("_to_copy", "clone")


class ProductRecorder:
    """The Hessians of weights, gathered from recorded products.

    Parameters
    ----------
    weights : dict of str to torch.Tensor
        The parameters whose products are recorded, by name.
    memory : int, optional
        Bytes of Hessians at most, though always one: further weights are `postponed`.
    make : callable, optional
        Returns the sums of a weight's inputs: of its name, the number of inputs and groups.
    transposed : bool
        Also record transposed convolutions, for weights in the form of the convolution that computes them.

    Attributes
    ----------
    hessians : dict of str to Hessian
    axes : dict of str to tuple of int
        Axes of each weight that were summed.
    postponed : set of str
        Weights that another pass records.
    keep : ndarray of bool, (sequences, tokens), or None
        What of a batch is a token, not padding. It is used for layers that are called with an input of this shape.
    """

    def __init__(
        self,
        weights: dict[str, Any],
        memory: int | None = None,
        make: Callable[[str, int, int], Any] = lambda name, k, groups: Hessian(k, groups),
        transposed: bool = False,
    ) -> None:
        self.transposed = transposed
        self.hessians: dict[str, Any] = {}
        self._make = make
        self.axes: dict[str, tuple[int, ...]] = {}
        self.postponed: set[str] = set()
        self.keep: Any = None
        self._called: dict[str, tuple[int, ...]] = {}  # the shape of the input without its last axis
        self._memory, self._used = memory, 0
        self._known: dict[int, tuple[tuple[str, ...], Any]] = {}
        self._fleeting: list[int] = []  # of tensors that exist only during a batch
        for name, tensor in weights.items():
            names = self._known.get(tensor.data_ptr(), ((), None))[0]
            self._known[tensor.data_ptr()] = ((*names, name), tensor)
        self._stacks = [one for one in self._known.values() if one[1].dim() == 3 and one[1].stride(0) > 0]

    def computed(self, name: str, tensor: Any, lasting: bool = False) -> None:
        """Store the tensor that a layer multiplies by, for this batch or for the whole run."""
        self._known[tensor.data_ptr()] = ((name,), tensor)
        if not lasting:
            self._fleeting.append(tensor.data_ptr())

    def called(self, name: str, inputs: tuple[Any, ...]) -> None:
        """Note that a layer is called, before its product."""
        if self.keep is not None and inputs and hasattr(inputs[0], "shape"):
            self._called[name] = tuple(inputs[0].shape[:-1])

    def forget(self) -> None:
        """Forget the tensors computed in a batch."""
        for place in self._fleeting:
            self._known.pop(place, None)
        self._fleeting.clear()
        self._called.clear()

    def copied(self, source: Any, copy: Any) -> None:
        """Treat a copy of a weight as the weight."""
        found = self._known.get(source.data_ptr()) if source.dim() > 1 else None
        same = found is not None and (source.shape, source.stride()) == (found[1].shape, found[1].stride())
        if found is not None and same and copy.data_ptr() not in self._known:
            self._known[copy.data_ptr()] = (found[0], copy)
            self._fleeting.append(copy.data_ptr())

    def product(self, a: Any, b: Any) -> None:
        """Record the inputs of a @ b, for matrices, stacks of matrices, or a matrix and a vector."""
        if a.dim() == b.dim() == 3:
            if b.stride(0) == 0 and self._holds(b):  # repeated by PyTorch for inputs that it does not flatten
                self.product(a.reshape(-1, a.shape[-1]), b[0])
            elif a.stride(0) == 0 and self._holds(a):
                self.product(a[0], b.transpose(0, 1).reshape(b.shape[1], -1))
            elif self._holds(a) or self._holds(b):
                for one, other in zip(a, b, strict=True):
                    self.product(one, other)
            return
        for weight, x, side in ((b, a, 0), (a, b, 1)):
            found = self._matrix(weight)
            if found is None:
                continue
            names, whole, expert, count = found
            summed = weight.dim() - 2 if side == 0 else weight.dim() - 1
            axis = _axis_in(whole, weight, summed)
            if axis is None:
                continue
            inputs = x if side == 0 or x.dim() < 2 else x.transpose(-1, -2)
            rows = inputs.reshape(-1, inputs.shape[-1])
            if expert is None:
                self._add(names, (axis,), rows, 1, rows=True)
            else:
                self._add(names, (axis + 1,), rows, count, rows=True, expert=expert)
            return

    def _holds(self, operand: Any) -> bool:
        """Return whether an operand begins in the memory of a weight."""
        at = operand.data_ptr()
        return at in self._known or any(0 <= at - one.data_ptr() < one.nbytes for _, one in self._stacks)

    def _matrix(self, weight: Any) -> tuple[tuple[str, ...], Any, int | None, int] | None:
        """Return the names of an operand and the matrix that it is, and of a stack the index of the expert."""
        if weight.dim() != 2:
            return None
        found = self._known.get(weight.data_ptr())
        if found is not None and found[1].dim() == 2:
            return *found, None, 1
        for names, stack in self._stacks:
            at = weight.data_ptr() - stack.data_ptr()
            size = stack.stride(0) * stack.element_size()
            if 0 <= at < len(stack) * size and at % size == 0:
                return names, stack[at // size], at // size, len(stack)
        return None

    def convolution(self, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
        """Record a convolution that is not transposed."""
        spatial = weight.dim() - 2
        sizes = [tuple(given) * (spatial // len(given)) for given in (stride, padding, dilation)]
        axes = (*range(2, weight.dim()), 1)
        self._windows(x, weight, axes, groups, lambda part: windows(part, tuple(weight.shape[2:]), *sizes))

    def transposed_convolution(
        self, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: int
    ) -> None:
        """Record the windows of the convolution that computes a transposed one: its inputs with zeros between them."""
        spatial, ones = weight.dim() - 2, (1,) * (weight.dim() - 2)
        taps = tuple(weight.shape[2:])
        steps, pads, dils, more = (
            tuple(given) * (spatial // len(given)) for given in (stride, padding, dilation, output_padding)
        )

        def of_part(part: Array) -> Array:
            return windows(spread(part, taps, steps, pads, dils, more), taps, ones, (0,) * spatial, dils)

        self._windows(x, weight, (2, 3, 1), groups, of_part)

    def _windows(
        self, x: Any, weight: Any, axes: tuple[int, ...], groups: int, of_part: Callable[[Array], Array]
    ) -> None:
        """Add the windows of each image, of each group of its channels."""
        found = self._known.get(weight.data_ptr())
        if found is None or found[1].shape != weight.shape:
            return
        for image in x if x.dim() == weight.dim() else x[None]:
            array = as_array(image.detach(), "calibrate: the input of a convolution")
            parts = [of_part(part) for part in np.split(array, groups)]  # along channels
            rows = np.stack(parts, axis=1) if groups > 1 else parts[0]
            self._add(found[0], axes, rows, groups, rows=False)

    def _add(
        self,
        names: tuple[str, ...],
        axes: tuple[int, ...],
        inputs: Any,
        groups: int,
        rows: bool,
        expert: int | None = None,
    ) -> None:
        first, *others = names
        if first in self.postponed:
            return
        k = inputs.shape[-1]
        if first not in self.hessians:
            size = 8 * groups * k * k
            is_full = self._memory is not None and self.hessians and self._used + size > self._memory
            if is_full or self.postponed:  # the order of weights does not depend on the memory
                self.postponed.update(names)
                return
            self._used += size
            self.hessians[first], self.axes[first] = self._make(first, k, groups), axes
            for other in others:  # tied weights share their inputs
                self.hessians[other], self.axes[other] = self.hessians[first], axes
        if self.axes[first] != axes:
            raise Problem(
                f"calibrate: {shown(first)} is multiplied along the axes {self.axes[first]} and {axes}, expected one "
                "of them: leave it out with exclude="
            )
        if rows:
            array = as_array(inputs.detach(), f"calibrate: inputs of {shown(first)}")
            tokens = self.keep is not None and any(self._called.get(name) == self.keep.shape for name in names)
            if tokens and self.keep.size == len(array):
                array = array[self.keep.reshape(-1)]
        else:
            array = inputs
        try:
            if expert is None:
                self.hessians[first].add(array)
            else:
                self.hessians[first].add_to(expert, array)
        except ValueError as problem:
            raise Problem(f"calibrate: {shown(first)}: {problem}") from None


def _axis_in(whole: Any, weight: Any, summed: int) -> int | None:
    """Return the axis of a weight along which an operand, the weight or its transposed view, is summed."""
    if weight.dim() != whole.dim():
        return None
    if weight.shape == whole.shape and weight.stride() == whole.stride():
        return summed
    turned = whole.transpose(-1, -2)
    if weight.shape == turned.shape and weight.stride() == turned.stride():
        return int(2 * whole.dim() - 3 - summed)  # the other one of the last two axes
    return None


def windows(
    image: Array, size: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> Array:
    """Return the windows of an image (C, ...) as rows over (taps, channels), the order of a weight's axes.

    Parameters
    ----------
    image : ndarray, (C, ...)
    size, stride, padding, dilation : tuple of int
        One number for each axis after the channels.

    Returns
    -------
    ndarray, (positions, taps * C)

    Examples
    --------
    >>> import numpy as np
    >>> windows(np.float32([[1, 2, 3]]), (2,), (1,), (0,), (1,))
    array([[1., 2.],
           [2., 3.]], dtype=float32)
    """
    n = len(size)
    padded = np.pad(image, ((0, 0), *((p, p) for p in padding)))
    reach = tuple((taps - 1) * d + 1 for taps, d in zip(size, dilation, strict=True))
    if any(length < needed for length, needed in zip(padded.shape[1:], reach, strict=True)):
        return np.empty((0, prod(size) * len(image)), image.dtype)
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(1, n + 1)))
    steps = (slice(None), *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    view = view[steps]
    order = (*range(1, 2 * n + 1), 0)
    return np.ascontiguousarray(view.transpose(order)).reshape(-1, prod(size) * len(image))


def spread(
    image: Array,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    output_padding: tuple[int, ...],
) -> Array:
    """Return an image (C, ...) with zeros between its values and around them, which a transposed convolution reads.

    Examples
    --------
    >>> import numpy as np
    >>> spread(np.float32([[1, 2]]), (3,), (2,), (1,), (1,), (1,))
    array([[0., 1., 0., 2., 0., 0.]], dtype=float32)
    """
    lengths = image.shape[1:]
    found = np.zeros((len(image), *((n - 1) * s + 1 for n, s in zip(lengths, stride, strict=True))), image.dtype)
    found[(slice(None), *(slice(None, None, s) for s in stride))] = image
    for axis, (taps, pad, gap, more) in enumerate(zip(size, padding, dilation, output_padding, strict=True), 1):
        first = gap * (taps - 1) - pad
        ends = first, first + more
        widths = [(0, 0)] * found.ndim
        widths[axis] = max(ends[0], 0), max(ends[1], 0)
        found = np.pad(found, widths)
        cut = slice(max(-ends[0], 0), found.shape[axis] - max(-ends[1], 0))
        found = found[(slice(None),) * axis + (cut,)]
    return found


@functools.cache
def _mode() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode  # optional

    class _RecordingMode(TorchDispatchMode):  # type: ignore[misc]
        """Reports each product to an `ProductRecorder`, and computes it as usual."""

        def __init__(self, recorder: ProductRecorder) -> None:
            super().__init__()
            self.recorder = recorder

        def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            name = func._schema.name.removeprefix("aten::")
            result = func(*args, **(kwargs or {}))
            _record_operator(self.recorder, name, args)  # only for arguments that the operator accepted
            if name in COPIES:
                self.recorder.copied(args[0], result)
            return result

    return _RecordingMode


def _record_operator(recorder: ProductRecorder, name: str, args: Any) -> None:
    if name in PRODUCTS:
        first, second = PRODUCTS[name]
        recorder.product(args[first], args[second])
    elif name == "linear":
        recorder.product(args[0].reshape(-1, args[0].shape[-1]), args[1].t())
    elif name in ("convolution", "_convolution"):
        x, weight, _, stride, padding, dilation, is_transposed, more, groups = args[:9]
        if not is_transposed:
            recorder.convolution(x, weight, stride, padding, dilation, groups)
        elif recorder.transposed:
            recorder.transposed_convolution(x, weight, stride, padding, dilation, more, groups)


@contextlib.contextmanager
def recording(model: Any, recorder: ProductRecorder, layers: list[Layer]) -> Iterator[None]:
    """Record a model's products: in evaluation mode, without gradients; its state is restored afterwards.

    Parameters
    ----------
    model : torch.nn.Module
    layers : list of Layer
        The layers whose products are recorded.
    """
    import torch  # optional

    modes = [(one, one.training) for one in model.modules()]
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    with contextlib.ExitStack() as stack:
        stack.callback(_restore, torch, modes, fast, onednn)
        model.eval()
        torch.backends.mha.set_fastpath_enabled(False)  # it would hide the products of a whole block in one operator
        torch._C._set_mkldnn_enabled(False)  # it would do the same with recurrent layers
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.nn.utils.parametrize.cached())
        for layer in layers:
            if layer.kind == "experts" and hasattr(layer.module, "config"):  # other ways multiply all experts at once
                stack.callback(setattr, layer.module, "config", layer.module.config)
                layer.module.config = copy.copy(layer.module.config)
                layer.module.config._experts_implementation = "eager"
            stack.callback(_announced(recorder, layer))
            if layer.attribute == "weight":
                call = functools.partial(_call, recorder, layer.name)
                stack.callback(layer.module.register_forward_pre_hook(call).remove)
        stack.enter_context(_mode()(recorder))
        yield


def _restore(torch: Any, modes: list[tuple[Any, bool]], fast: bool, onednn: bool) -> None:
    for one, training in modes:
        one.training = training
    torch.backends.mha.set_fastpath_enabled(fast)
    torch._C._set_mkldnn_enabled(onednn)


def _call(recorder: ProductRecorder, name: str, _: object, inputs: Any) -> None:
    recorder.called(name, inputs)


def _announced(recorder: ProductRecorder, weight: Layer) -> Callable[[], None]:
    """Make a module report its computed weight to the recorder; return a function that ends this."""
    module, attribute, name = weight.module, weight.attribute, weight.name
    origin = weight_source(weight)
    if origin == "held":
        return lambda: None
    if origin == "rounded":
        rounded = module.rounded

        def record(value: object) -> Any:
            result = rounded(value)
            recorder.computed(name, result)
            return result

        module.__dict__["rounded"] = record
        return functools.partial(module.__dict__.pop, "rounded")
    if origin == "parametrized":  # computed once, while the context keeps it
        recorder.computed(name, getattr(module, attribute), lasting=True)
        return lambda: None
    hook = module.register_forward_pre_hook(lambda one, _: recorder.computed(name, getattr(one, attribute)))
    return hook.remove  # type: ignore[no-any-return]
