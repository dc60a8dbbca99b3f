"""Digests of arrays, formats and functions, for the keys of kept results.

The digest of a function covers its code, its defaults, and the values of the variables that it reads, because these
determine its answers. A value whose content is unknown counts by its type alone.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

DEEP = 24  # levels of values within values
PACKAGES = ("heterocompute", "numpy", "scipy", "torch", "jax", "transformers")  # whose functions count by name
PLAIN = (type(None), bool, int, float, complex, str, bytes)


def digest_of(*values: object) -> str:
    """Return a digest that differs if one of the values differs.

    Examples
    --------
    >>> import functools, numpy as np
    >>> half, double = functools.partial(np.multiply, 0.5), functools.partial(np.multiply, 2)
    >>> digest_of(half) == digest_of(double), digest_of(half) == digest_of(functools.partial(np.multiply, 0.5))
    (False, True)
    """
    found = hashlib.blake2b(digest_size=16)
    held: dict[int, tuple[int, object]] = {}
    for value in values:
        _add(found, value, held, 0)
    return found.hexdigest()


def _add(found: Any, value: object, held: dict[int, tuple[int, object]], depth: int) -> None:
    """Add a value to a hash; `held` has the values that were added and their numbers, by identity."""
    if isinstance(value, PLAIN):
        found.update(" ".join((type(value).__name__, repr(value), ";")).encode("utf-8", "surrogatepass"))
        return
    if id(value) in held or depth > DEEP:
        found.update(f"seen {held[id(value)][0] if id(value) in held else None};".encode())
        return
    held[id(value)] = (len(held), value)  # the reference keeps the identity from being used again
    kind = type(value)
    found.update(f"{kind.__module__}.{kind.__qualname__}(".encode())
    if (array := _array_of(value)) is not None:
        _add_array(found, array)
    else:
        for part in _parts(value):
            _add(found, part, held, depth + 1)
    found.update(b")")


def _array_of(value: Any) -> Any:
    """Return an array or a tensor as an array of NumPy, None for other values."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "shape") and not hasattr(value, "components"):
        plain = value.detach().cpu() if hasattr(value, "detach") else value
        try:
            return np.asarray(plain)
        except (TypeError, RuntimeError):  # a type that NumPy lacks, such as bfloat16 of torch
            return np.asarray(plain.float()) if hasattr(plain, "float") else None
    return None


def _add_array(found: Any, array: Any) -> None:
    found.update(f"{array.dtype.str} {array.dtype.name} {array.shape}".encode())
    if array.dtype.hasobject:
        found.update(repr(array.tolist()).encode("utf-8", "surrogatepass"))
    elif array.size:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _parts(value: Any) -> Iterator[object]:
    """Yield the values that determine a value."""
    if isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.CodeType):
        yield from _of_code(value)
    elif isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
        yield getattr(value, "__qualname__", None) or value.__name__
    elif isinstance(value, Mapping):
        for key in value:
            yield key
            yield value[key]
    elif isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, Set):
        yield from sorted(value, key=repr)
    elif hasattr(value, "components") and hasattr(value, "format"):  # a packed array
        yield from (str(value.format), value.shape, getattr(value, "axis", None), dict(value.components))
    elif hasattr(value, "state_dict"):  # a module of torch
        yield dict(value.state_dict())
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, one.name) for one in dataclasses.fields(value))
    else:
        yield from _of_object(value)


def _of_function(function: types.FunctionType) -> Iterator[object]:
    yield function.__qualname__
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            yield None
    if function.__module__ and function.__module__.partition(".")[0] in PACKAGES:
        return
    yield function.__code__
    yield function.__defaults__
    yield function.__kwdefaults__
    for name in sorted(_names(function.__code__)):
        yield name
        yield function.__globals__.get(name)


def _names(code: types.CodeType) -> set[str]:
    """Return the names of globals and attributes that a function, and the functions in it, read."""
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _of_code(code: types.CodeType) -> Iterator[object]:
    yield from (code.co_code, code.co_names, code.co_varnames, code.co_consts)


def _of_object(value: Any) -> Iterator[object]:
    """Yield the attributes of an object; private ones often are caches, so only their arrays count."""
    for name, held in sorted(getattr(value, "__dict__", {}).items()):
        if not name.startswith("_") or _array_of(held) is not None:
            yield name
            yield held
