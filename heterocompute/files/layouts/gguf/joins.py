"""Tensors of a folder that GGUF stores as several, or the other way round: the inverse of stacks.py.

gate_up of all experts       gate and up, one after the other or with alternating rows
kv_b_proj of DeepSeek        attn_k_b, turned, and attn_v_b
matrices of Conv1D           the same, turned
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....arrays.components import rows_stand_alone
from ....arrays.quantized import QuantizedArray
from ..linear import Array
from ..weight import Weight, of_array, of_rows, of_values


@dataclass(frozen=True)
class Join:
    """A tensor of a folder, made of tensors of a GGUF file.

    Attributes
    ----------
    names : tuple of str
        Tensors of the file.
    is_interleaved : bool
        Rows of the tensors alternate; otherwise they follow each other, of each expert or head.
    is_turned : bool
        The folder has (..., in, out).
    of_heads : bool
        The tensors are (heads, in, rows) and (heads, rows, in), and the folder has a matrix.
    """

    names: tuple[str, ...]
    is_interleaved: bool = False
    is_turned: bool = False
    of_heads: bool = False

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape of the tensor."""
        first = shapes[0]
        if self.of_heads:
            return first[0] * (first[2] + shapes[1][1]), first[1]
        found = (first[0], first[1] * len(shapes), *first[2:]) if len(shapes) > 1 else first
        return (*found[:-2], found[-1], found[-2]) if self.is_turned and len(found) > 1 else found

    def values(self, parts: Sequence[Array]) -> Array:
        """Return the plain tensor."""
        if self.of_heads:
            both = np.concatenate([np.swapaxes(parts[0], 1, 2), parts[1]], axis=1)
            return np.ascontiguousarray(both.reshape(-1, both.shape[-1]))
        found = np.asarray(parts[0])
        if len(parts) > 1:
            found = np.stack(parts, axis=2) if self.is_interleaved else np.concatenate(parts, axis=1)
            found = found.reshape(len(found), -1, *parts[0].shape[2:])
        return np.ascontiguousarray(found.swapaxes(-1, -2) if self.is_turned and found.ndim > 1 else found)

    def weight(self, parts: Sequence[Weight]) -> Weight:
        """Return the weight; of several formats its values."""
        if len(parts) == 1:
            return replace(parts[0], turned=self.is_turned)
        arrays = [part.array for part in parts if part.array is not None]
        first = parts[0]
        formats = {str(one.format) for one in arrays}
        if (
            self.of_heads
            or len(arrays) < len(parts)
            or len(formats) > 1
            or not rows_stand_alone(arrays[0].format, arrays[0].shape[-1])
        ):
            declared = ", ".join(dict.fromkeys(part.declared for part in parts))
            plain = replace(self, is_turned=False).values([part.values() for part in parts])
            return replace(of_values(plain, declared, sum(part.nbytes for part in parts)), turned=self.is_turned)
        (count, rows, columns), each = first.shape, len(parts)
        components = {key: np.concatenate([one.components[key] for one in arrays]) if part.ndim else part
                      for key, part in arrays[0].components.items()}  # fmt: skip
        at = np.arange(each * count * rows).reshape(each, count, rows)
        order = at.transpose(1, 2, 0) if self.is_interleaved else at.swapaxes(0, 1)
        whole = QuantizedArray(components, arrays[0].format, (at.size, columns), (1,), arrays[0].source_dtype)
        q = of_rows(whole, order.reshape(-1))
        q = QuantizedArray(dict(q.components), q.format, (count, each * rows, columns), (2,), q.source_dtype)
        return replace(of_array(q), turned=self.is_turned)
