"""BitNet b1.58 as transformers stores it: codes of -1, 0 and 1, one scale for a matrix.

    NAME.weight        uint8 (out / 4, in): code + 1 in 2 bits, of rows i, i + out / 4 ..., the first in the lowest bits
    NAME.weight_scale  float (1,)

value = code x scale if the configuration's ``linear_class`` is "autobitlinear", otherwise code x float32(1 / scale),
because the class "bitlinear" divides. transformers, integrations/bitnet.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.bits import unpack
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.texts import quoted
from ...formats import Int
from .layout import Layout
from .linear import Array, Packed, Parts, array_of, one_of, prefix_of, refuse
from .weight import Weight, of_array

FLOATS = ("float16", "bfloat16", "float32")
CLASSES = ("bitlinear", "autobitlinear")  # the first is the default of configurations
PARTS, MIDDLE, UNUSED = 4, 1, 3  # rows per byte; the code of 0; the code that none of the three values has


class BitNet(Layout):
    name = "bitnet"
    marks = (".weight_scale",)
    ends = (".weight", ".weight_scale")

    def depends_on_values(self, fmt: object) -> bool:
        """Tell whether only some arrays of a format can be stored: those whose rows share one scale."""
        return isinstance(fmt, Int) and fmt.bits == 2 and fmt.symmetric and fmt.group is None

    def shapes(self, name: str, q: Packed) -> Parts:
        if not self.depends_on_values(q.format):
            refuse(name, q, self.name, "int2 is the nearest")
        prefix, (rows, count) = prefix_of(name, q, self.name), q.shape
        if rows % PARTS:
            raise WrongValue(
                f"save: tensor {quoted(name)} of shape {q.shape}: {self.name} has multiples of {PARTS} rows"
            )
        scales = q.components["scales"] if isinstance(q, QuantizedArray) else None
        if scales is None or (scales != scales[0, 0]).any():
            refuse(name, q, self.name, "rows must have one scale, which weights of tq2_0 or bitnet may have")
        return {f"{prefix}.weight": ("uint8", (rows // PARTS, count)), f"{prefix}.weight_scale": ("float32", (1,))}

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        rows, count = q.shape
        codes = (unpack(q.components["codes"], 2, count) + np.uint8(MIDDLE)) & np.uint8(3)
        parts = codes.reshape(PARTS, rows // PARTS, count)
        packed = parts[0] | parts[1] << np.uint8(2) | parts[2] << np.uint8(4) | parts[3] << np.uint8(6)
        return packed, q.components["scales"][0].astype(np.float32).reshape(1)

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        found = {"quant_method": self.name, "linear_class": "autobitlinear", "quantization_mode": "offline"}
        return found | {"modules_to_not_convert": list(plain)}

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        packed, scale = tensors[f"{prefix}.weight"], tensors[f"{prefix}.weight_scale"]
        if packed.dtype != np.uint8 or packed.ndim != 2 or 0 in packed.shape:
            raise WrongValue(f"{prefix}.weight is {packed.dtype} {packed.shape}, expected uint8 (out / {PARTS}, in)")
        if scale.dtype.name not in FLOATS or scale.size != 1:
            raise WrongValue(
                f"{prefix}.weight_scale is {scale.dtype} {scale.shape}, expected one of {', '.join(FLOATS)}"
            )
        own = scale.reshape(1, 1).astype(np.float32)
        if one_of(prefix, "linear_class", config.get("linear_class"), CLASSES) == CLASSES[0]:
            with np.errstate(divide="ignore", over="ignore"):
                own = np.float32(1) / own
        if not np.isfinite(own).all() or (own < 0).any():
            raise WrongValue(
                f"{prefix}.weight_scale is {float(scale.reshape(())):.9g}, from which no finite scale of 0 or more "
                "follows"
            )
        codes = np.concatenate([packed >> np.uint8(2 * i) & np.uint8(3) for i in range(PARTS)])
        if (codes == UNUSED).any():
            raise WrongValue(f"{prefix}.weight holds the code {UNUSED}, expected 0 to {UNUSED - 1}")
        stored = (codes - np.uint8(MIDDLE)) & np.uint8(3)
        return of_array(array_of(Int(2), stored, np.repeat(own, len(codes), 0), None))
