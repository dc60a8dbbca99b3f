"""PackedArray: what all arrays of stored components share: shape, equality, copies, files, operators.

A subclass names its components and defines how they become values (`_values`), the arguments of its constructor
(`_arguments`) and its entry in a file (`_entry`, and the class methods that read one).
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..base.devices import NAME
from ..base.errors import Unsupported, WrongIndex, WrongType, WrongValue, shown
from ..base.float_env import converted, counts_subnormals
from ..base.magic import refuse_other_name
from ..base.notebooks.shown import Shown, facts_html
from ..base.rereading import as_check
from .device import DeviceArray
from .layout import SINGLE, Entry, Plain, as_path, save_arrays

Array = np.ndarray[Any, Any]

_OWN = ("__dict__", "__weakref__", "_rows", "_seen", "_text", "_turned")  # attributes that a copy does not inherit
INSTEAD = {  # operators for functions of NumPy
    **dict.fromkeys(("dot", "einsum", "inner", "tensordot"), "; @ multiplies it as it is"),
    **dict.fromkeys(("array_equal", "array_equiv", "allclose"), "; == compares packed arrays"),
}


class PackedArray(Shown, NDArrayOperatorsMixin):
    """An array stored as named components, such as `QuantizedArray`, `EIEArray` or `BitmapArray`.

    ``@`` and ``numpy.matmul`` multiply; any other ufunc raises, so that nothing is decoded silently. ``==`` is one
    bool; arrays are not hashable.
    """

    __slots__ = ("_axis", "_components", "_shape")
    __hash__ = None  # type: ignore[assignment]

    _axis: tuple[int, ...]
    _components: dict[str, Array]
    _shape: tuple[int, ...]

    _copied: ClassVar[tuple[str, ...]] = __slots__

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        slots = [base.__dict__.get("__slots__", ()) for base in cls.__mro__]
        names = [name for of_base in slots for name in ([of_base] if isinstance(of_base, str) else of_base)]
        cls._copied = tuple(name for name in names if name not in _OWN)

    # What a subclass defines.

    @property
    def _decoder(self) -> str:
        """The method that returns the values, for error messages."""
        raise NotImplementedError

    def _values(self) -> Array:
        """Return all values."""
        raise NotImplementedError

    def _wide_values(self) -> Array:
        """Return all values as float64, without the rounding to float32 where a format has more digits."""
        return converted(self._values(), np.float64)

    def _slabs(self, count: int) -> Iterator[tuple[Any, Array]]:
        """Yield all values in C order, about `count` at a time where that is possible, each with its index."""
        yield (...,), self._values()

    def _occurring(self) -> Iterator[Array]:
        """Yield, some at a time, values that include every value of the array."""
        raise NotImplementedError

    def _kind(self) -> object:
        """Return a value that is equal for two arrays whose components have the same meaning, such as the format."""
        raise NotImplementedError

    def _arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the constructor."""
        raise NotImplementedError

    def _facts(self) -> dict[str, str]:
        """Return the properties that Jupyter shows."""
        raise NotImplementedError

    def _entry(self) -> Entry:
        """Return the entry that describes this array in a file."""
        raise NotImplementedError

    @classmethod
    def _described(
        cls,
        text: str,
        shape: tuple[int, ...],
        axis: tuple[int, ...],
        dtype: str,
        stored: Callable[[str], Plain],
    ) -> Entry | None:
        """Return the entry of a description in a file, None if it is of another class; ValueError says what is wrong.

        `stored` returns NumPy's name of the dtype and the shape of a component, or ("", (0,)) if there is none.
        """
        raise NotImplementedError

    @classmethod
    def _wrong_part(cls, entry: Entry, parts: Mapping[str, Array]) -> tuple[str, str] | None:
        """Return the name of a component that holds invalid values and a description of them, or None."""
        return None

    @classmethod
    def _restored(cls, entry: Entry, parts: Mapping[str, Array]) -> Self:
        """Return the array of an entry and its components; ValueError if they do not fit each other."""
        raise NotImplementedError

    def _as_floats(self, name: str) -> Array:
        """Return the values as floats for a function that takes such arrays; TypeError if the caller must decode."""
        raise WrongType(f"{name} is {self._named()}; take its {self._decoder} first, or numpy.asarray().astype()")

    # What all arrays share.

    def _named(self) -> str:
        kind = type(self).__name__
        return f"an {kind}" if kind[0] in "AEIOU" else f"a {kind}"

    def to(self, device: object) -> Any:
        """Return the array on another device.

        Parameters
        ----------
        device : str
            ``"cpu"``. Quantized arrays can move to a device.

        Returns
        -------
        PackedArray
            The array itself.

        Raises
        ------
        NotImplementedError
            The device is not the CPU.
        """
        if str(device) != "cpu":
            raise Unsupported(
                f"to: device is {shown(str(device))}, expected 'cpu': {self._named()} has no {NAME} kernels"
            )
        return self

    def _remade(self, components: Mapping[str, Array], shape: Sequence[int], axis: Sequence[int]) -> Self:
        """Return an array of the same class and format; nothing is checked."""
        made = object.__new__(type(self))
        for slot in self._copied:
            if hasattr(self, slot):
                setattr(made, slot, getattr(self, slot))
        if hasattr(self, "__dict__"):  # of a class that a user derived
            made.__dict__.update(self.__dict__)
        made._components, made._shape, made._axis = dict(components), tuple(shape), tuple(axis)
        return made

    @property
    def components(self) -> Mapping[str, Array]:
        return MappingProxyType(self._components)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def axis(self) -> tuple[int, ...]:
        return self._axis

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return prod(self._shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def device(self) -> str:
        """The device of the components; "cpu", as for an ndarray."""
        return next((part.device for part in self._components.values()), "cpu")

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._components.values())

    @property
    @counts_subnormals
    def bits_per_value(self) -> float:
        return 8 * self.nbytes / self.size if self.size else 0.0

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise WrongValue(f"{type(self).__name__}: there is no array of values to share; copy=False is impossible")
        if dtype is not None and np.dtype(dtype) == np.float64:  # type: ignore[call-overload]
            return self._wide_values()
        values = self._values()
        return values if dtype is None else converted(values, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is not np.matmul or method != "__call__" or set(options) - {"out"}:
            raise WrongType(f"{ufunc.__name__} is not for {self._named()}; call {self._decoder} for its values")
        return _product(inputs[0], inputs[1], out=options.get("out", (None,))[0])

    def __array_function__(self, func: Any, types: object, args: Any, kwargs: Any) -> Any:
        if func is np.concatenate:
            return self._joined(*args, **kwargs)
        instead = INSTEAD.get(func.__name__, "")
        raise WrongType(f"{func.__name__} is not for {self._named()}; call {self._decoder} for its values{instead}")

    def __matmul__(self, other: object) -> Any:
        return _product(self, other)

    def __rmatmul__(self, other: object) -> Any:
        return _product(other, self)

    def _joined(self, arrays: object, axis: object = 0, **options: object) -> Self:
        """Return arrays one after the other along axis 0; without codes and scales of rows there is no such array."""
        raise WrongType(f"concatenate is not for {self._named()}; call {self._decoder} for its values")

    def _transposed(self) -> Self:
        """Return the transposed array of two dimensions, whose components are shared."""
        if len(self._shape) != 2:
            raise WrongValue(f"T: expected two dimensions, got shape {self._shape}; {self._decoder} has transpose")
        return self._remade(self._components, self._shape[::-1], [1 - a for a in self._axis])

    def __len__(self) -> int:
        if not self._shape:
            raise WrongType("len() of an array without dimensions")
        return self._shape[0]

    def _rows_of(self, index: Any) -> tuple[slice, bool]:
        """Return an index of axis 0 as a slice, and whether it removes the axis; only an int or a slice is accepted."""
        if isinstance(index, slice):
            return index, False
        try:
            if isinstance(index, (bool, np.bool_)):
                raise TypeError
            at = operator.index(index)
        except TypeError:
            raise WrongValue(f"only an int or a slice of axis 0; call {self._decoder} for other indices") from None
        if not -self._shape[0] <= at < self._shape[0]:
            raise WrongIndex(f"index {at} is out of range for axis 0 with size {self._shape[0]}")
        at %= self._shape[0]
        return slice(at, at + 1), True

    def _at(self, index: object, fmt: Any, layout: Mapping[str, Any], cut: Callable[[Any, int, slice], Any]) -> Self:
        """Return one index or a slice of axis 0.

        `layout` is that of the components. ``cut(part, rows, indices)`` returns the indices of a part that has `rows`
        rows per index.
        """
        if 0 in self._axis:
            raise WrongValue(f"axis 0 is a reduction axis; call {self._decoder} to index the values")
        indices, one = self._rows_of(index)
        each = prod(n for a, n in enumerate(self._shape) if a not in self._axis and a > 0)
        parts = {name: cut(part, each, indices) if layout[name][2] else part for name, part in self._components.items()}
        if not fmt.splits_into_rows:
            blocks = self._blocks_of(fmt, indices, each)
            scales = parts["scales"]
            parts["scales"] = (
                scales.rows(blocks.start, blocks.stop - blocks.start)
                if isinstance(scales, DeviceArray)
                else scales[blocks]
            )
        if one:
            return self._remade(parts, self._shape[1:], [a - 1 for a in self._axis])
        return self._remade(parts, (len(range(*indices.indices(self._shape[0]))), *self._shape[1:]), self._axis)

    def _blocks_of(self, fmt: Any, indices: slice, each: int) -> slice:
        """Return the rows of scales of some indices of axis 0; ValueError if they are not those of whole blocks."""
        rows, at = fmt.shared_rows, range(*indices.indices(self._shape[0]))
        if rows == 1:
            raise WrongValue(f"rows of {fmt} share blocks of scales; call {self._decoder} to index the values")
        first, last = at.start * each, at.stop * each
        whole = first % rows == 0 and (last % rows == 0 or at.stop == self._shape[0])
        if at.step != 1 or (len(at) and not whole):
            raise WrongValue(
                f"{rows} rows of {fmt} share scales, expected a slice that begins and ends at multiples of {rows} "
                f"rows; call {self._decoder} to index the values"
            )
        return slice(first // rows, -(-last // rows) if len(at) else first // rows)

    def __eq__(self, other: object) -> bool:
        """Tell whether format, shape, axis and the bytes of all components are the same."""
        if not isinstance(other, PackedArray):
            return NotImplemented
        mine, theirs = self._components, other._components
        return (
            (self._kind(), self._shape, self._axis) == (other._kind(), other._shape, other._axis)
            and mine.keys() == theirs.keys()
            and all(
                part.dtype == theirs[name].dtype
                and part.shape == theirs[name].shape
                and part.tobytes() == theirs[name].tobytes()
                for name, part in mine.items()
            )
        )

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __copy__(self) -> Self:
        return self._remade(self._components, self._shape, self._axis)

    def __deepcopy__(self, memo: object) -> Self:
        parts = {name: part.copy() for name, part in self._components.items()}
        return self._remade(parts, self._shape, self._axis)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments(), getattr(self, "__dict__", None) or None

    def save(self, path: str | os.PathLike[str], check: str = "sample") -> None:
        """Write the components to a safetensors file, which `heterocompute.load` reads.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        check : {"sample", "all", "none"}
            Whether the written file is read again and compared, as in `heterocompute.save`.

        Raises
        ------
        TypeError
            The path has the wrong type, or a safetensors file cannot hold the dtype.
        ValueError
            The name has the suffix of another kind of file, such as ``.gguf``.
        OSError
            The file cannot be written.
        """
        place = as_path(path, "save")
        refuse_other_name(place)
        save_arrays(place, {SINGLE: self}, {SINGLE: self._entry()}, single=True, check=as_check(check, "save"))

    @counts_subnormals
    def _repr_html_(self) -> str:
        return facts_html(self._facts())


def _product(a: Any, b: Any, out: object = None) -> Any:
    from ..products.matmul import matmul  # products are above arrays in the layers; only operators import upwards

    return matmul(a, b, out=out)
