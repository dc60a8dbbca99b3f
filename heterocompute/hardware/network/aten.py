"""The operators of torch that multiply: matrix products with the positions of their operands, and refused operators.

Other operators move data, reduce, or apply element by element: they count no multiply-adds.
"""

from __future__ import annotations

import re

__all__ = ["ACTIVATIONS", "ALIASES", "MAKERS", "MATRICES", "is_refused"]

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
    """Tell whether an operator multiplies, or may, in a way that is not read: those of extensions are unknown.

    Parameters
    ----------
    namespace, kind : str
        As in ``aten`` and ``_cdist_forward``.

    Returns
    -------
    bool
    """
    if namespace != "aten":
        return not OTHERS.fullmatch(f"{namespace}::{kind}")
    return kind not in HARMLESS and MULTIPLIES.search(kind) is not None
