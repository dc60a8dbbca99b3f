"""Files of torch.save (.pt, .pth, .bin): tensors of nested dicts and lists, without torch and without `pickle`.

Since torch 1.6 a zip archive: ``*/data.pkl``, and a member ``*/data/KEY`` for each storage. Before: five pickles (a
magic number, 1001, sizes of C types, the object, the keys), then for each key int64 count and raw data. A tensor is
called by the keys that lead to it, joined with dots; what is not a tensor is left out. torch/serialization.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...arrays.layout import SINGLE
from ...base.container import FILE_NAMES, MAX_DIMENSIONS, numpy_dtype
from ...base.errors import WrongValue, shown
from ...base.texts import counted, quoted
from .archive import Member, member_bytes, opened
from .container import MAX_NAME, Container
from .inert import INERT, PickledArray
from .pickled import Global, Inert, Table, Unknown, unpickled

MAX_PICKLE = 64 << 20
MAX_NODES, MAX_DEPTH = 1 << 20, 64  # a second
MAX_LOOKS = 1 << 22  # number of values of lists that are visited; a list may occur several times
MAX_EXPANDED = 1 << 26  # bytes of all tensors that repeat values of their storages, such as results of expand
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001

STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "QInt8": "int8", "QUInt8": "uint8", "QInt32": "int32", "QUInt4x2": "uint8", "QUInt2x4": "uint8",
}  # fmt: skip
DTYPES = {name: name for name in FILE_NAMES if not name.startswith(("float6", "float4"))} | {"complex128": "complex128"}


@dataclass(frozen=True)
class Storage:
    """A run of values in the file; dtype None is raw bytes, as the tensor will say."""

    dtype: str | None
    key: str
    count: int


@dataclass(frozen=True)
class View:
    """A tensor: the position of its values in a storage."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pending: tuple[str, ...] = ()  # operations on the values that are applied when they are read


@dataclass(frozen=True)
class Unread:
    """A tensor whose values are not those of a storage: it is named in messages, and left out."""

    what: str
    shape: tuple[int, ...] = ()


PENDING: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {"conj": np.conjugate, "neg": np.negative}


def _pending(properties: object) -> tuple[str, ...]:
    """Return the postponed operations of a tensor: a bit alone may conjugate or negate it."""
    if properties is None:
        return ()
    if not isinstance(properties, dict) or not all(type(done) is bool for done in properties.values()):
        raise WrongValue("a tensor whose properties are not a dict of bools")
    unknown = [str(key) for key in properties if key not in PENDING]
    if unknown:
        raise WrongValue(f"a tensor with the property {quoted(unknown[0])}, expected {' or '.join(PENDING)}")
    return tuple(key for key in PENDING if properties.get(key))


def _counts(values: Any) -> tuple[int, ...]:
    few = isinstance(values, (tuple, list)) and len(values) <= MAX_DIMENSIONS
    if not few or not all(type(n) is int and 0 <= n < 2**63 for n in values):
        raise WrongValue(f"a tensor with the illegal sizes {shown(values)}")
    return tuple(values)


def _tensor(
    storage: object,
    offset: object,
    shape: object,
    strides: object,
    _: object = None,
    __: object = None,
    properties: object = None,
) -> View:
    if not isinstance(storage, Storage) or storage.dtype is None:
        raise WrongValue("a tensor without a storage of a type")
    return View(storage, storage.dtype, _counts([offset])[0], _counts(shape), _counts(strides), _pending(properties))


def _typed_tensor(
    storage: object,
    offset: object,
    shape: object,
    strides: object,
    _: object,
    __: object,
    dtype: object,
    properties: object = None,
) -> View | Unread:
    if not isinstance(storage, Storage) or not isinstance(dtype, (Global, Unknown)):
        raise WrongValue("a tensor without a storage or a dtype")
    name = dtype.name.removeprefix("torch.")
    found = DTYPES.get(name)
    if found is None:  # such as 4 bits, two per byte
        return Unread(f"of the dtype {name}", _counts(shape))
    return View(storage, found, _counts([offset])[0], _counts(shape), _counts(strides), _pending(properties))


def _quantized(storage: object, offset: object, shape: object, *_: object) -> Unread:
    return Unread("a quantized tensor of torch", _counts(shape))


def _sparse(layout: object, data: object) -> Unread:
    sizes = [part for part in data if isinstance(part, tuple)] if isinstance(data, tuple) else []
    return Unread("a sparse tensor", _counts(sizes[0]) if sizes else ())


def _meta(dtype: object, shape: object, *_: object) -> Unread:
    return Unread("a tensor of the device meta, without values,", _counts(shape))


def _nested(*_: object) -> Unread:
    return Unread("a nested tensor")


def _uninitialized(*_: object) -> Unread:
    return Unread("a parameter without a shape")


def _wrapper(kind: object, dtype: object, shape: object, *_: object) -> Unread:
    return Unread(_class_of(kind), _counts(shape))


def _class_of(kind: object) -> str:
    name = kind.name if isinstance(kind, (Global, Unknown)) else "no class"
    return f"of the class {name}"


def _with_class(rebuild: object, kind: object, arguments: object, state: object = None) -> Any:
    """Return a tensor of a class with attributes: plain for torch's own classes, otherwise with the class's name.

    The attributes are left out. A class may change the meaning of its values: codes, or a part of a larger tensor.
    """
    known = TABLE.get(rebuild.name) if isinstance(rebuild, Global) and rebuild.name in REBUILT else None
    made = known(*arguments) if known is not None and isinstance(arguments, tuple) else None
    if made is not None and isinstance(kind, Global) and kind.name in PLAIN_CLASSES:
        return made
    return Unread(_class_of(kind), getattr(made, "shape", ()))


def _width(dtype: str | None) -> int:
    """Return the bytes of one value; a storage without a type counts bytes."""
    return 1 if dtype is None else 16 if dtype == "complex128" else numpy_dtype(dtype).itemsize


def _span(view: View) -> int:
    """Return the bytes from the first value of a view to the end of its last."""
    if 0 in view.shape:
        return 0
    steps = zip(view.shape, view.strides, strict=True)
    return (1 + sum((n - 1) * step for n, step in steps)) * _width(view.dtype)


def _inner(value: object, *_: object) -> Any:
    return value


def _joined(name: str, key: object, place: int) -> str:
    """Return the name of a value below a key; a key that is no text is replaced by its position."""
    if isinstance(key, Inert):
        key = key.text or place
    return f"{name}.{key}" if name else str(key)


# Classes of torch whose values are the values of the storage.
PLAIN_CLASSES = ("torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
# Allowed contents of a checkpoint: constructors of tensors, and values that are not tensors.
TABLE: Table = {
    **INERT,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _inner,
    "torch._utils._rebuild_parameter_with_state": _inner,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _inner,
    "torch._utils._rebuild_device_tensor_from_numpy": _inner,
    "torch._utils._rebuild_xla_tensor": _inner,
    "torch._utils._rebuild_qtensor": _quantized,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._utils._rebuild_nested_tensor": _nested,
    "torch._utils._rebuild_wrapper_subclass": _wrapper,
    "torch.tensor._rebuild_from_type": _with_class,
    "torch._tensor._rebuild_from_type": _with_class,
    "torch._tensor._rebuild_from_type_v2": _with_class,
    "torch.nn.parameter.UninitializedParameter": _uninitialized,
    "torch.nn.parameter.UninitializedBuffer": _uninitialized,
    "collections.OrderedDict": lambda pairs=(): dict(pairs),
    "torch.Size": lambda sizes=(): sizes,
    "torch.device": lambda *words: None,
    "_codecs.encode": lambda text, encoding="latin1": text,
    "torch.storage.UntypedStorage": None,
    "torch.UntypedStorage": None,
    **{f"torch.{name}Storage": None for name in STORAGES},
    **{f"torch.{name}": None for name in DTYPES},
    **dict.fromkeys(PLAIN_CLASSES),
}
REBUILT = frozenset(name for name in TABLE if name.startswith("torch._utils._rebuild"))


Raw = Callable[[Storage, int, int, str], NDArray[np.uint8]]


class _Torch(Container):
    what: ClassVar[str] = "file of torch.save"
    _views: dict[str, tuple[View, Raw]]
    _expanded: int
    _storages: dict[str, NDArray[np.uint8]]
    _arrays: dict[str, PickledArray]
    _read_arrays: dict[PickledArray, NDArray[Any]]

    def shared(self, name: str) -> NDArray[Any]:
        """Read one tensor; tensors of one storage share its memory, as in the program that wrote the file."""
        self.info(name)  # refuses an unknown name
        if name not in self._views:
            array = self._arrays[name]
            if array not in self._read_arrays:
                self._read_arrays[array] = self.tensor(name)
            return self._read_arrays[array]
        view, raw = self._views[name]
        key, count = view.storage.key, view.storage.count * _width(view.storage.dtype)

        def load() -> NDArray[Any]:
            if key not in self._storages:
                self._storages[key] = raw(view.storage, 0, count, name)
            first = view.offset * _width(view.dtype)
            return self._seen(view, self._storages[key][first : first + _span(view)], name)

        return self.made(name, load)

    def same(self, name: str) -> Hashable:
        """Return the view of a storage that holds a tensor, or the NumPy array of the pickle."""
        return self._views[name][0] if name in self._views else self._arrays.get(name, name)

    def _seen(self, view: View, data: NDArray[np.uint8], name: str) -> NDArray[Any]:
        """Return the values of a view from its bytes, which begin with the first value."""
        dtype = numpy_dtype(view.dtype)
        self.values(data, dtype, name)
        steps = [step * _width(view.dtype) for step in view.strides]
        values: NDArray[Any] = np.ndarray(view.shape, dtype, data, 0, steps)
        for change in view.pending:
            values = PENDING[change](values)
        return values

    def _object(self, data: bytes, begin: int, persistent: Callable[[Any], Any]) -> tuple[Any, int]:
        try:
            return unpickled(data, begin, TABLE, persistent)
        except ValueError as error:
            self._fail(str(error))

    def _storage(self, identity: object) -> Storage:
        if not isinstance(identity, tuple) or not 5 <= len(identity) <= 6 or identity[0] != "storage":
            raise WrongValue("a persistent id that is not a storage")
        kind, key, count = identity[1], identity[2], identity[4]
        if len(identity) == 6 and identity[5] is not None:
            raise WrongValue("a storage that is a part of another, as torch wrote before 0.4")
        if not isinstance(kind, Global) or not isinstance(key, str) or type(count) is not int or not 0 <= count < 2**62:
            raise WrongValue("a storage without a kind, key or size")
        name = kind.name.removeprefix("torch.").removesuffix("Storage")
        return Storage(STORAGES.get(name), key, count)  # None: untyped, counted in bytes

    def _add_all(self, found: object, raw: Raw) -> None:
        self._views, self._storages, self._arrays, self._read_arrays = {}, {}, {}, {}
        self._expanded = 0
        nodes: list[tuple[str, Any, int]] = [("", found, 0)]
        seen = looked = 0
        while nodes:
            name, value, depth = nodes.pop()
            seen, looked = seen + 1, looked + (len(value) if isinstance(value, (dict, list, tuple)) else 0)
            if looked > MAX_LOOKS:
                self._fail(f"more than {MAX_LOOKS} values")
            if seen > MAX_NODES or depth > MAX_DEPTH:
                self._fail(f"more than {MAX_NODES} values, or nested more than {MAX_DEPTH} deep")
            tensor = name or SINGLE
            match value:
                case View():
                    self._add_view(tensor, value, raw)
                case PickledArray(dtype=np.dtype() as dtype):
                    self._arrays[tensor] = value
                    self.add(tensor, dtype.name, value.shape, partial(self._array, tensor, value))
                case PickledArray():
                    nodes.append((name, value.held, depth + 1))
                case Unread():
                    self.add(tensor, value.what, value.shape, lambda: np.empty(0))  # among those that are skipped
                case dict() | list() | tuple():
                    nodes += self._inside(name, value, depth + 1, MAX_NODES - seen - len(nodes))[::-1]

    def _inside(
        self, name: str, value: dict[Any, Any] | list[Any] | tuple[Any, ...], depth: int, most: int
    ) -> list[tuple[str, Any, int]]:
        """Return the values of a container that may hold tensors, with their names and depth."""
        if len(name) > MAX_NAME:
            self._fail(f"the name {quoted(name)} has more than {MAX_NAME} characters")
        deeper = (
            (_joined(name, key, place), one, depth)
            for place, (key, one) in enumerate(value.items() if isinstance(value, dict) else enumerate(value))
            if isinstance(one, (View, Unread, PickledArray, dict, list, tuple))
        )
        inner = list(islice(deeper, most + 1))
        if len(inner) > most:
            self._fail(f"more than {MAX_NODES} values")
        return inner

    def _array(self, name: str, array: PickledArray) -> NDArray[Any]:
        """Return a NumPy array of the pickle."""
        assert array.dtype is not None
        try:
            data = array.stored()
        except ValueError:
            self._fail(f"tensor {quoted(name)} holds characters that are no bytes")
        found = self.values(data, array.dtype, name).reshape(array.shape, order=array.order)
        return np.array(found, array.dtype.newbyteorder("="), order="C")

    def _add_view(self, name: str, view: View, raw: Raw) -> None:
        if len(view.shape) != len(view.strides):
            self._fail(f"tensor {quoted(name)} has {len(view.shape)} sizes and {len(view.strides)} strides")
        count, width = math.prod(view.shape), _width(view.dtype)
        held = view.storage.count if view.storage.dtype else view.storage.count // width
        last = _span(view) // width - 1
        if view.offset + last >= held + (not count):
            self._fail(f"tensor {quoted(name)} of shape {shown(view.shape)} does not lie in its storage of {held}")
        self._expanded += count * width if count > held else 0
        if count > held and self._expanded > MAX_EXPANDED:
            self.add(name, f"expanded from {counted(held, 'value')} to the shape", view.shape, lambda: np.empty(0))
            return

        def load() -> NDArray[Any]:
            return np.array(
                self._seen(view, raw(view.storage, view.offset * width, _span(view), name), name), order="C"
            )

        self._views[name] = view, raw
        self.add(name, view.dtype, view.shape, load)


class ZipTorch(_Torch):
    """An archive of torch.save."""

    def _read(self) -> None:
        members = opened(self)
        pickles = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            self._fail(f"an archive with {len(pickles)} members data.pkl, one is what torch.save writes")
        folder = pickles[0].removesuffix("data.pkl")
        order = members.get(f"{folder}byteorder")
        if order is not None and member_bytes(self, order, limit=8).tobytes() != b"little":
            self._fail("a file of a machine with the other order of bytes")
        if members[pickles[0]].size > MAX_PICKLE:
            self._fail(f"a pickle of {members[pickles[0]].size} bytes, at most {MAX_PICKLE} are read")
        data = member_bytes(self, members[pickles[0]]).tobytes()
        found, _ = self._object(data, 0, lambda identity: self._placed(identity, folder, members))
        self._add_all(found, lambda storage, *where: self._raw(members[f"{folder}data/{storage.key}"], *where))

    def _placed(self, identity: object, folder: str, members: dict[str, Member]) -> Storage:
        storage = self._storage(identity)
        member = members.get(f"{folder}data/{storage.key}")
        if member is None or member.size != storage.count * _width(storage.dtype):
            raise WrongValue(f"the storage {quoted(storage.key)} of {counted(storage.count, 'value')} "
                             "is missing or has another size")  # fmt: skip
        return storage

    def _raw(self, member: Member, begin: int, count: int, name: str) -> NDArray[np.uint8]:
        if member.method == 0:
            return self.bytes_at(member.begin + begin, count, f"tensor {quoted(name)}")
        return member_bytes(self, member)[begin : begin + count]


class LegacyTorch(_Torch):
    """Five pickles, followed by the data."""

    def _read(self) -> None:
        data = self.bytes_at(0, min(self.size, MAX_PICKLE), "the pickles").tobytes()
        storages: dict[str, Storage] = {}

        def persistent(identity: object) -> Storage:
            storage = self._storage(identity)
            first = storages.setdefault(storage.key, storage)  # bytes without a type count as uint8
            if (first.count, _width(first.dtype)) != (storage.count, _width(storage.dtype)):
                raise WrongValue(f"the storage {quoted(storage.key)} has two types or sizes")
            return storage

        values, at = [], 0
        for _ in range(5):
            value, at = self._object(data, at, persistent)
            values.append(value)
        magic, protocol, system, found, keys = values
        if magic != MAGIC or protocol != PROTOCOL or not isinstance(system, dict):
            self._fail("a pickle, but none of torch.save")
        if system.get("little_endian") is not True:
            self._fail("a file of a machine with the other order of bytes")
        texts = isinstance(keys, list) and all(isinstance(key, str) for key in keys)  # for other types this may not end
        if not texts or sorted(keys) != sorted(storages):
            self._fail("the keys of the storages are others than those that tensors name")
        places: dict[str, int] = {}
        for key in keys:
            storage = storages[key]
            if int.from_bytes(self.bytes_at(at, 8, f"the storage {quoted(storage.key)}").tobytes(), "little") != (
                storage.count
            ):
                self._fail(
                    f"the storage {quoted(storage.key)} has not the {counted(storage.count, 'value')} that tensors name"
                )
            places[storage.key] = at + 8
            at += 8 + storage.count * _width(storage.dtype)
            if at > self.size:
                self._fail(f"cut off: the storage {quoted(storage.key)} ends at {at}, the file at {self.size}")
        self._add_all(
            found,
            lambda storage, begin, count, name: self.bytes_at(
                places[storage.key] + begin, count, f"tensor {quoted(name)}"
            ),
        )
