"""The operators of torch that multiply: positions of their operands, sizes, layers, and refused operators.

Other operators move data, reduce, or apply element by element: they count no multiply-adds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ...base.errors import WrongValue
from .layers import Conv2d, Layer, Product
from .plain import AvgPool2d, MaxPool2d
from .windows import Shape

#: The arguments that are multiplied; a vector counts as a matrix of one row or column.
MATRICES = {"mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "vdot": (0, 1), "_int_mm": (0, 1),
            "_scaled_mm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "addbmm": (1, 2), "addmv": (1, 2),
            "addr": (1, 2), "_addmm_activation": (1, 2), "_grouped_mm": (0, 1)}  # fmt: skip
ACTIVATIONS = {"relu": "relu", "hardtanh": "relu6", "gelu": "gelu", "silu": "silu", "sigmoid": "sigmoid",
               "tanh": "tanh", "hardswish": "hardswish", "hardsigmoid": "hardsigmoid"}  # fmt: skip
#: No operation if the shape stays the same.
ALIASES = {"detach", "alias", "clone", "_to_copy", "view", "_unsafe_view", "reshape", "expand", "contiguous",
           "native_dropout", "lift_fresh", "unsqueeze", "squeeze"}  # fmt: skip
#: They read or create a value without using the data of their input.
MAKERS = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_empty", "new_zeros",
          "new_ones", "new_full"}  # fmt: skip

# Families of operators that multiply: newer versions of torch have more members of each.
MULTIPLIES = re.compile(
    r"mm(?:_|$)|matmul|attention|encoder_layer|conv(?!ert)|linear(?:_|$)|linalg|cholesky|triangular|fft|cdist|"
    r"euclidean_dist|affine_grid|(?:^|_)(?:lstm|gru|rnn|pdist|ormqr|orgqr|geqrf|lu|svd|qr|bilinear|einsum)(?:_|$)"
)
HARMLESS = {"linalg_cross", "linalg_vector_norm", "_linalg_check_errors"}
# Operators of torchvision that select or average.
OTHERS = re.compile(r"torchvision::(?:_?nms|_?roi_align|_?roi_pool|_?ps_roi_align|_?ps_roi_pool)")


def is_refused(namespace: str, kind: str) -> bool:
    """Return True if an operator may multiply in an unsupported way, such as an operator of an extension.

    Parameters
    ----------
    namespace, kind : str
        As in ``aten`` and ``_cdist_forward``.
    """
    if namespace != "aten":
        return not OTHERS.fullmatch(f"{namespace}::{kind}")
    return kind not in HARMLESS and MULTIPLIES.search(kind) is not None


OWN, OWN_PRODUCTS = "heterocompute", ("linear", "conv2d", "rows")  # operators with packed weights
OWN_OTHERS = ((OWN, "fake_quantize"), (OWN, "pass_gradient"))  # they round, and multiply nothing
Sizes = tuple[int, int, int, int]  # count, m, n, k


class Refusal(WrongValue):
    """An operator that multiplies in an unsupported way."""


def is_packed(module: object) -> bool:
    """Tell whether a module is a packed weight of `interop.torch`, which may not have been imported."""
    return type(module).__name__ == "PackedWeight" and type(module).__module__.startswith(f"{OWN}.")


def parameters_of(module: Any, kind: str) -> dict[str, Any]:
    """Return the parameters or buffers that the modules of a module hold, each place once.

    A module with two names has one place: PyTorch's functional_call would restore the second name's to what it has put
    at the first.
    """
    return {
        f"{path}.{name}".lstrip("."): value
        for path, one in module.named_modules()
        for name, value in vars(one)[kind].items()
        if value is not None
    }


def multiplied(kind: str, a: Any, b: Any) -> Sizes:
    """Return (count, m, n, k) of a product of matrices or vectors."""
    if kind == "addr":
        return 1, int(a.numel()), int(b.numel()), 1
    count = int(a.shape[0]) if a.dim() == 3 else 1
    return count, int(a.shape[-2]) if a.dim() > 1 else 1, int(b.shape[-1]) if b.dim() > 1 else 1, int(a.shape[-1])


def convolved(args: Any, out: Any) -> Sizes:
    """Return (groups, m, n, k) of a convolution: a transposed one multiplies every input with all taps."""
    x, weight, transposed, groups = args[0], args[1], args[6], int(args[8])
    taps = math.prod(map(int, weight.shape[2:]))
    positions = int(x.shape[0]) * math.prod(map(int, (x if transposed else out).shape[2:]))
    if transposed:
        return groups, positions, int(weight.shape[1]) * taps, int(weight.shape[0]) // groups
    return groups, positions, int(weight.shape[0]) // groups, int(weight.shape[1]) * taps


def packed_sizes(shape: Shape, window: Sequence[Any], out: Any) -> Sizes:
    """Return (groups, m, n, k) of a convolution with packed filters (k, c, r, s), whose window ends with the groups."""
    (k, c, r, s), groups = shape, int(window[6])
    return groups, math.prod(map(int, out.shape)) // k, k // groups, c * r * s


def packed_convolution(
    shape: Shape, window: Sequence[Any], parent: Any, before: Any, out: object, sample: Shape, new: int, shared: bool
) -> Layer:
    """Return the layer of a convolution with packed filters.

    Parameters
    ----------
    shape : tuple of int
        Of the filters, (k, c, r, s).
    window : sequence of int
        Stride, padding, dilation, groups, as in the operator.
    parent : torch.nn.Module or None
        The module that holds the filters.
    before : torch.Tensor or None
        Input of a transposed convolution, before zeros are put between its values.
    out : torch.Tensor
    sample : tuple of int
        Shape of one sample of `out`.
    new : int
        Parameters that were not counted before.
    """
    k, c, r, s = shape
    down, across, above, left, tall, wide, groups = map(int, window)
    if before is None:
        return Conv2d(c * groups, k, (r, s), (down, across), (above, left), (tall, wide), groups, False, shared)
    windows_count = before.numel() // int(before.shape[-1 - len(parent.kernel_size)])
    return Product("transposed convolution", (groups, windows_count, k // groups * r * s, c), sample, new)


def pool(kind: str, args: Any) -> Layer:
    """Return the layer of a pool with a window."""
    window, stride, padding = (tuple(args[i]) if len(args) > i else () for i in (1, 2, 3))
    layer, place = (MaxPool2d, 5) if kind.startswith("max") else (AvgPool2d, 4)
    ceil = len(args) > place and bool(args[place])

    def pair(value: Any, default: object) -> Any:
        return (int(value[0]), int(value[-1])) if value else default

    size = pair(window, 1)
    return layer(size, pair(stride, size), pair(padding, 0), ceil)
