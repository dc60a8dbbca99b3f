"""Values of a training checkpoint besides tensors: names of harmless classes, which are never called.

A name in these lists counts as something that is not a tensor, whatever its arguments. Values that may contain tensors
are kept: attributes of a Namespace, a defaultdict, a set. A NumPy array is a tensor if its dtype is numeric.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...base.container import MAX_DIMENSIONS
from ...base.errors import WrongValue
from .pickled import Attributes, Inert, Table

# Python's own values, with the module names of protocols below 3 and from 3 on.
CALLED = ("bool", "bytearray", "complex", "float", "int", "long", "range", "slice", "str", "type", "unicode", "xrange")
CLASSES = ("dict", "list", "object", "tuple")
PATHS = ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath")
NUMBERS = (
    "bool", "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "longdouble", "complex64", "complex128", "str_", "bytes_", "datetime64", "timedelta64",
)  # fmt: skip


class Dtype(Inert):
    """A NumPy dtype: its text and the byte order of its state; no text if it is not a plain dtype."""

    __slots__ = ()

    def __init__(self, text: object = None, *_: object) -> None:
        plain = isinstance(text, str) and len(text) <= 3 and text[:1] in tuple("bifuc") and text[1:].isdecimal()
        self.text: Any = text if plain else None

    def build(self, state: object) -> None:
        """Take the state of a dtype: version, byte order, and three items that are None for numbers."""
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            self.text = None
        elif self.text is not None and state[1] in ("<", ">", "|"):
            self.text = state[1] + self.text
        else:
            self.text = None


class PickledArray(Inert):
    """A NumPy array in a pickle.

    Attributes
    ----------
    dtype : np.dtype or None
        The stored dtype; None for arrays that are not numeric, such as texts and objects.
    shape : tuple of int
    order : {"C", "F"}
    data : bytes or str
        In a str each character is a byte.
    held : list or tuple
        The elements of an array of objects.
    """

    __slots__ = ("data", "dtype", "held", "order", "shape")

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.dtype: np.dtype[Any] | None = None
        self.shape: tuple[int, ...] = ()
        self.order: Literal["C", "F"] = "C"
        self.data: bytes | str = b""
        self.held: Any = ()

    def build(self, state: object) -> None:
        """Take the state: version, shape, dtype, whether the order is Fortran's, then bytes, or a list for objects."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise WrongValue("a NumPy array of another state than shape, dtype, order and bytes")
        self.take(state[4], state[2], state[1], "F" if state[3] is True else "C")

    def take(self, data: Any, dtype: Any, shape: Any, order: Literal["C", "F"]) -> None:
        """Store the array's description; its bytes are checked when they are read."""
        sizes = isinstance(shape, tuple) and len(shape) <= MAX_DIMENSIONS
        if not sizes or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
            raise WrongValue("a NumPy array with an illegal shape")
        if isinstance(data, list):
            self.held = data
        elif isinstance(dtype, Dtype) and dtype.text is not None:
            found = np.dtype(dtype.text)
            if not isinstance(data, (str, bytes)) or len(data) != math.prod(shape) * found.itemsize:
                raise WrongValue("a NumPy array whose number of bytes does not match its shape and dtype")
            self.data, self.dtype, self.shape, self.order = data, found, shape, order

    def stored(self) -> NDArray[np.uint8]:
        """Return the bytes; ValueError if a character is not a byte."""
        data = self.data.encode("latin-1") if isinstance(self.data, str) else self.data
        return np.frombuffer(data, np.uint8)


def _array_of(data: object, dtype: object, shape: object, order: object = "C") -> PickledArray:
    found = PickledArray()
    found.take(data, dtype, shape, "F" if order == "F" else "C")
    return found


def _inert(*_: object) -> Inert:
    return Inert()


def _bytes(*arguments: object) -> Any:
    return Inert() if arguments else b""


def _items(items: object = ()) -> Any:
    """Return the argument of a set or Counter, which holds the same elements; it is not copied."""
    if not isinstance(items, (dict, list, tuple)):
        raise WrongValue("a set of a value that is not a list")
    return items


def _at(modules: tuple[str, ...], names: tuple[str, ...], what: Callable[..., Any] | None) -> Table:
    return {f"{module}.{name}": what for module in modules for name in names}


BUILTINS, MULTIARRAY = ("builtins", "__builtin__"), ("numpy.core.multiarray", "numpy._core.multiarray")
INERT: Table = {
    **_at(BUILTINS, CALLED, _inert),
    **_at(BUILTINS, ("bytes",), _bytes),
    **_at(BUILTINS, CLASSES, None),
    **_at(BUILTINS, ("frozenset", "set"), _items),
    **_at(("argparse",), ("Namespace",), lambda: Attributes()),
    **_at(("types",), ("SimpleNamespace",), lambda: Attributes()),
    **_at(("collections",), ("defaultdict",), lambda factory=None: {}),
    **_at(("collections",), ("deque",), lambda items=(), most=None: items or []),
    **_at(("collections",), ("Counter",), _items),
    **_at(("datetime",), ("date", "datetime", "time", "timedelta", "timezone"), _inert),
    **_at(("decimal",), ("Decimal",), _inert),
    **_at(("fractions",), ("Fraction",), _inert),
    **_at(("pathlib", "pathlib._local"), PATHS, _inert),
    **_at(("re",), ("_compile",), _inert),
    **_at(("uuid",), ("UUID",), _inert),
    **_at(("numpy",), NUMBERS, _inert),
    **_at(("numpy",), ("ndarray",), None),
    **_at(("numpy",), ("dtype",), Dtype),
    **_at(MULTIARRAY, ("scalar",), _inert),
    **_at(MULTIARRAY, ("_reconstruct",), PickledArray),
    **_at(("numpy.core.numeric", "numpy._core.numeric"), ("_frombuffer",), _array_of),
    **_at(("torch.serialization",), ("_get_layout",), _inert),
    **_at(("torch",), ("complex32", "qint8", "qint32", "quint8", "quint4x2", "quint2x4"), None),
    **_at(("torch",), ("per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams"), None),
}
