"""Arrays of other libraries: read in place by DLPack, or refused with a message that says what to pass instead.

No framework is imported: objects are recognized by their attributes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base.devices import has_interface, is_named
from ..base.errors import WrongType, shown

# Codes of DLPack whose numbers NumPy has only as bits: https://dmlc.github.io/dlpack/latest/c_api.html
_SMALL = {
    4: "bfloat16",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
    17: "float4_e2m1fn",
}
_PAIRS = 17  # two values in one byte, the first in its low bits


class Unreadable(WrongType):
    """An array of another library that must not be read: not on the CPU, or one that records gradients."""


def exports_dlpack(value: object) -> bool:
    """Tell whether a value is an array of another library that shares its memory by DLPack."""
    return hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__") and not isinstance(value, np.generic)


def alike(answer: np.ndarray[Any, Any], given: object) -> Any:
    """Return an answer as an array of the argument's library: PyTorch, JAX, or another one of the array API standard.

    Parameters
    ----------
    given : object
        The argument. For an array of NumPy, a packed array or a list the answer is the array itself.

    Returns
    -------
    ndarray, torch.Tensor, jax.Array or array of another library
        A tensor of PyTorch shares the memory of the array.
    """
    if type(given) is np.ndarray:
        return answer
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(given, getattr(torch, "Tensor", ())):
        namespace = getattr(given, "__array_namespace__", None)
        if namespace is None or isinstance(given, (np.ndarray, np.generic)) or not exports_dlpack(given):
            return answer
        return namespace().asarray(answer)
    if answer.dtype.name == "bfloat16":  # PyTorch accepts bfloat16 from NumPy only as integers
        return torch.from_numpy(answer.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(answer)


def on_cpu(value: Any) -> bool:
    """Tell whether an object with ``__dlpack_device__`` is in CPU memory; a meta tensor has no memory."""
    try:
        return bool(value.__dlpack_device__()[0] == 1)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return False


def as_exported(value: object, name: str) -> np.ndarray[Any, Any]:
    """Return an array of another library as an ndarray of any dtype; TypeError if it does not share its memory."""
    refuse_unreadable(value, name)
    try:
        return _from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as problem:
        raise WrongType(f"{name}: expected an array of floats in the memory of the CPU ({problem})") from None


def as_foreign(value: object, name: str, wanted: str) -> np.ndarray[Any, Any]:
    """Return a value that is neither an ndarray nor packed as an ndarray: by DLPack, otherwise by NumPy."""
    if exports_dlpack(value):
        return as_exported(value, name)
    refuse_unreadable(value, name)
    try:
        array: np.ndarray[Any, Any] | None = np.asarray(value)
    except (AttributeError, RuntimeError, TypeError, ValueError):  # rows of unequal length, recursive lists
        array = None
    if array is None or array.dtype.kind == "O":
        raise WrongType(f"{name} is {shown(value)}, expected {wanted}")
    return array


def _from_dlpack(value: Any) -> np.ndarray[Any, Any]:
    """Return the array behind ``__dlpack__``, including bfloat16, float8 and float4, which NumPy does not accept."""
    if (
        hasattr(value, "is_neg") and value.is_neg()
    ):  # a view whose memory has the negated values; DLPack does not report this
        if not hasattr(value, "resolve_neg"):
            raise WrongType("its values are those of the memory negated: pass .resolve_neg() of it")
        value = value.resolve_neg()
    if str(getattr(value, "dtype", "")).startswith("float4"):  # JAX has one value in a byte, which DLPack cannot say
        return np.asarray(value)
    array, code = _core.from_dlpack(value.__dlpack__())
    if code in _SMALL:
        import ml_dtypes  # 5 ms

        if code == _PAIRS:
            array = np.stack([array & 15, array >> 4], axis=-1).reshape(*array.shape[:-1], -1)
        array = array.view(getattr(ml_dtypes, _SMALL[code]))
    return array


def refuse_unreadable(value: object, name: str) -> None:
    """Raise TypeError where a value is no array, or one of another library that must not be read.

    Parameters
    ----------
    value : object
        Neither an ndarray nor a packed array.
    name : str
        What the sentence calls it.

    Raises
    ------
    Unreadable
        It records gradients, which would be lost, or is not in the memory of the CPU.
    TypeError
        A path, a dict, a module, arrays of another library in a list.
    """
    if _is_traced(value):
        raise Unreadable(
            f"{name} is {_kind(value)}, a traced value, which has no values yet: call this outside of jit and grad, "
            "or heterocompute.interop.jax, which works inside (docs/training.md)"
        )
    if isinstance(value, (str, bytes, os.PathLike)):
        raise WrongType(f"{name} is {shown(value)}, expected an array: hc.load reads the arrays of a checkpoint")
    if isinstance(value, Mapping):
        first = next(iter(value), None)
        one = f", such as that of {shown(first)}" if value else ""
        raise WrongType(
            f"{name} is {_kind(value)} of {len(value)}, expected one array: pass one of its values{one}; "
            "hc.study takes all of them"
        )
    if callable(getattr(value, "state_dict", None)):
        raise WrongType(
            f"{name} is {_kind(value)}, expected an array: pass one of its weights, such as module.weight.detach(); "
            "hc.study takes all of module.state_dict()"
        )
    if callable(getattr(value, "get_weights", None)):
        raise WrongType(f"{name} is {_kind(value)}, expected an array: pass one of the arrays of its get_weights()")
    if isinstance(value, (list, tuple)):
        first = next(iter(value), None)
        if (exports_dlpack(first) or is_elsewhere(first)) and not isinstance(first, np.ndarray):
            raise WrongType(
                f"{name} is {_kind(value)} of {len(value)}, the first {_kind(first)}, expected one array: "
                "pass one at a time, or stack them (torch.stack, jax.numpy.stack)"
            )
        return
    refuse_elsewhere(value, name)
    if getattr(value, "requires_grad", False) is True:
        w = name.rpartition(": ")[2]  # only the argument
        raise Unreadable(
            f"{name} is {_kind(value)} that requires a gradient, which would be lost here: pass {w}.detach(); "
            "to train through rounding, heterocompute.interop.torch.fake_quantize (docs/training.md)"
        )


def is_elsewhere(value: object) -> bool:
    """Tell whether a value is an array, packed or not, that is not in CPU memory."""
    if isinstance(value, np.ndarray):
        return False
    if exports_dlpack(value):
        return not on_cpu(value)
    return has_interface(value) or is_named(str(getattr(value, "device", "cpu")))


def refuse_elsewhere(value: object, name: str) -> None:
    """Raise Unreadable if a value is an array, packed or not, that is not in CPU memory."""
    if not is_elsewhere(value):
        return
    device = shown(str(getattr(value, "device", "another device")))
    if device == "'meta'":
        raise Unreadable(f"{name} is {_kind(value)} on the device 'meta', which has no values: load them first")
    copies = {  # of torch, of CuPy, of Numba, of packed arrays
        "cpu": "pass .cpu() of it",
        "get": "pass .get() of it",
        "copy_to_host": "pass .copy_to_host() of it",
        "to": "pass .to('cpu') of it",
    }
    how = next((text for method, text in copies.items() if callable(getattr(value, method, None))), None)
    raise Unreadable(
        f"{name} is {_kind(value)} on {device}, expected an array in the memory of the CPU: "
        + (how or "copy it there first (jax.device_get)")
    )


def _is_traced(value: object) -> bool:
    return any(base.__name__ == "Tracer" for base in type(value).__mro__)


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
