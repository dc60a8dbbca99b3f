"""EETQ: 8-bit integers in the order of FasterTransformer's kernels for NVIDIA GPUs from Turing on.

    NAME.weight         int8 (in, out), called NAME.qweight by EETQ itself: bytes of all codes, the shape says no order
    NAME.weight_scales  float16 (out,)

    columns    two rows of the weight side by side, 64 inputs of the first, 64 of the second, and so on
    16 inputs  in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15
    4 bytes    0 2 1 3, each code + 128

value = code x scale in float32. FasterTransformer, cutlass_preprocessors.cc, preprocess_weights_for_mixed_gemm with
ColumnMajorTileInterleave<64, 2>; transformers, integrations/eetq.py; EETQ, python/eetq/modules/qlinear.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.texts import quoted
from ...formats import Int
from . import scaled
from .layout import Layout
from .linear import Array, Packed, Parts, check_finite, prefix_of, refuse
from .weight import Weight, of_codes

TILE, PAIR = 64, 2  # inputs of a tile, rows side by side
ORDER = np.array([0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15])  # the input in each place of 16
SWAPPED = np.array([0, 2, 1, 3])
OFFSET = np.uint8(128)


class EETQ(Layout):
    name = "eetq"
    marks = (".weight_scales",)
    ends = (".weight", ".qweight", ".weight_scales")
    needs_config = False
    examples = ("int8-f16",)

    def shapes(self, name: str, q: Packed) -> Parts:
        fmt = q.format
        if (
            not isinstance(fmt, Int)
            or fmt.bits != 8
            or fmt.group is not None
            or not fmt.symmetric
            or fmt.scale != "f16"
        ):
            refuse(name, q, self.name, "int8-f16 is the nearest")
        prefix, (rows, count) = prefix_of(name, q, self.name), q.shape
        if rows % TILE or count % TILE:
            raise WrongValue(
                f"save: tensor {quoted(name)} of shape {q.shape}: {self.name} has multiples of {TILE} values"
            )
        return {f"{prefix}.weight": ("int8", (count, rows)), f"{prefix}.weight_scales": ("float16", (rows,))}

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        rows, count = q.shape
        codes = q.components["codes"].view(np.uint8)[:, :count].reshape(rows, count // 16, 16)[..., ORDER]
        tiles = codes.reshape(rows // PAIR, PAIR, count // TILE, TILE).transpose(0, 2, 1, 3)
        stored = tiles.reshape(-1, 4)[:, SWAPPED] ^ OFFSET
        return stored.reshape(count, rows).view(np.int8), q.components["scales"].reshape(-1)

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        return {"quant_method": self.name, "weights": "int8", "modules_to_not_convert": list(plain)}

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        name = next(end for end in self.ends if f"{prefix}{end}" in tensors)
        if name in self.marks:
            raise KeyError(f"{prefix}{self.ends[0]}")
        stored, scales = tensors[f"{prefix}{name}"], tensors[f"{prefix}{self.marks[0]}"]
        if stored.dtype != np.int8 or stored.ndim != 2 or 0 in stored.shape or any(n % TILE for n in stored.shape):
            what = f"expected int8 (in, out), multiples of {TILE}"
            raise WrongValue(f"{prefix}{name} is {stored.dtype} {stored.shape}, {what}")
        count, rows = stored.shape
        if scales.dtype.name not in scaled.SCALES or scales.shape != (rows,):
            raise WrongValue(f"{prefix}{self.marks[0]} is {scales.dtype} {scales.shape}, expected floats {(rows,)}")
        check_finite(f"{prefix}{self.marks[0]}", scales)
        given = np.ascontiguousarray(stored).view(np.uint8).reshape(-1, 4)[:, SWAPPED] ^ OFFSET
        tiles = given.reshape(rows // PAIR, count // TILE, PAIR, TILE).transpose(0, 2, 1, 3)
        codes = tiles.reshape(rows, count // 16, 16)[..., np.argsort(ORDER)].reshape(rows, count).view(np.int8)
        return of_codes(f"{prefix}.weight", self.name, scaled.Codes(codes, scales.reshape(rows, 1), None, (1, count)))
