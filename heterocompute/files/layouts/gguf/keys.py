"""Keys of a GGUF file, each in the type that llama.cpp expects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.errors import WrongType, WrongValue, shown
from ....base.texts import quoted

NUMBERS = (str, bool, int, float, np.bool_, np.integer, np.float16, np.float32, np.float64)
ALIGNMENT_KEY, ALIGNMENT = "general.alignment", 32


def check_text(declared: str, text: str) -> None:
    """Raise ValueError for a text that UTF-8 cannot represent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise WrongValue(f"save_gguf: {declared} is {shown(text)}, expected text that UTF-8 holds") from None


def add_key(writer: Any, gguf: Any, key: object, value: Any) -> None:
    """Write one key; TypeError or ValueError for a value that GGUF cannot represent."""
    if not isinstance(key, str) or not key:
        raise WrongType(f"save_gguf: a key of metadata is {shown(key)}, expected a str")
    check_text("a key of metadata", key)
    if key == ALIGNMENT_KEY and value != ALIGNMENT:
        raise WrongValue(f"save_gguf: {key} is {shown(value)}, expected {ALIGNMENT}, as the file is laid out")
    each = value if isinstance(value, list) else [value]
    if not each or len(set(map(type, each))) != 1 or not isinstance(each[0], NUMBERS):
        raise WrongType(
            f"save_gguf: {quoted(key)} is {shown(value)}, expected a str, bool, int, float or a list of one"
        )
    if isinstance(each[0], str):
        for text in each:
            check_text(quoted(key), text)
    kind = gguf.GGUFValueType[_key_type(key, value, each)]
    plain = [one.item() if isinstance(one, np.generic) else one for one in each]
    if isinstance(value, list):
        writer.add_key_value(key, plain, gguf.GGUFValueType.ARRAY, sub_type=kind)
    else:
        writer.add_key_value(key, plain[0], kind)


def _key_type(key: str, value: object, each: Sequence[Any]) -> str:
    """Return the type of a key's values: for Python's numbers the one that llama.cpp expects, for NumPy's their own."""
    one = each[0]
    if isinstance(one, str):
        return "STRING"
    if isinstance(one, (bool, np.bool_)):
        return "BOOL"
    if isinstance(one, np.generic):
        return "FLOAT32" if one.dtype == np.float16 else one.dtype.name.upper()
    if isinstance(one, float):
        if any(math.isfinite(x) and abs(x) > float(np.finfo(np.float32).max) for x in each):
            raise WrongValue(
                f"save_gguf: {quoted(key)} is {shown(value)}, beyond float32, as which Python's floats are stored; "
                "np.float64 is stored as 64 bits"
            )
        return "FLOAT32"
    low, high = min(each), max(each)
    if isinstance(value, list) or low < 0:
        if -(2**31) <= low <= high < 2**31:
            return "INT32"
    elif high < 2**32:
        return "UINT32"
    bits = 32 if isinstance(value, list) else 64
    if isinstance(value, list) or not -(2**63) <= low <= high < 2**63:
        raise WrongValue(f"save_gguf: {quoted(key)} is {shown(value)}, expected integers of {bits} bits")
    return "INT64"
