"""Stacks of experts in MXFP4, as gpt-oss has them.

    NAME_blocks  uint8 (experts, out, in / 32, 16): codes E2M1, the even one low
    NAME_scales  uint8 (experts, out, in / 32): 2^(byte - 127)

The weight is called NAME.weight here. The experts of transformers may be written under the names that they have there,
and `files.foreign` returns them to a plain checkpoint of such a model.

gpt-oss, torch/weights.py; transformers, integrations/mxfp4.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.tensors import Tensors
from ...base.texts import quoted
from ...formats import MX
from ..roles import is_turned, roles_of
from .layout import Layout
from .linear import Array, Packed, Parts, refuse
from .weight import Weight, of_array

EXPERTS = (".experts.gate_up_proj", ".experts.down_proj")  # parameters of transformers


class GptOss(Layout):
    name = "gpt-oss"
    methods = ("mxfp4",)
    marks = ("_blocks",)
    ends = ("_blocks", "_scales")
    signs = (("_blocks", "_scales"),)
    needs_config = False
    only_stacks = True
    stacks = True

    def fits(self, reader: Tensors, prefix: str, dtypes: Sequence[str]) -> bool:
        return tuple(dtypes) == ("uint8", "uint8")

    def model_stacks(self, reader: Tensors, names: Iterable[str]) -> dict[str, str]:
        found = {}
        for name in names:
            own = name.removesuffix(".weight")
            count, rows, groups = reader.info(f"{own}_scales").shape
            shape = count, 32 * groups, rows
            if is_turned(roles_of(reader, {own: shape}).axes.get(own), shape):
                found[name] = own
        return found

    def shapes(self, name: str, q: Packed) -> Parts:
        if not isinstance(q.format, MX) or q.format.element != "fp4" or q.shape[-1] % 32:
            refuse(name, q, self.name, "mxfp4 with rows of whole groups is the nearest")
        if not name.endswith((".weight", *EXPERTS)):
            raise WrongValue(f"save: tensor {quoted(name)}: {self.name} stores weights called NAME.weight")
        prefix, groups = name.removesuffix(".weight"), (*q.shape[:-1], q.shape[-1] // 32)
        return {f"{prefix}_blocks": ("uint8", (*groups, 16)), f"{prefix}_scales": ("uint8", groups)}

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        groups = (*q.shape[:-1], q.shape[-1] // 32)
        return q.components["codes"].reshape(*groups, 16), q.components["scales"].reshape(groups)

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        return {"quant_method": "mxfp4", "modules_to_not_convert": list(plain)}

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        blocks, scales = tensors[f"{prefix}_blocks"], tensors[f"{prefix}_scales"]
        if blocks.dtype != np.uint8 or blocks.ndim != 4 or blocks.shape[3] != 16 or 0 in blocks.shape:
            raise WrongValue(
                f"{prefix}_blocks is {blocks.dtype} {blocks.shape}, expected uint8 (experts, out, in / 32, 16)"
            )
        if scales.dtype != np.uint8 or scales.shape != blocks.shape[:3]:
            raise WrongValue(f"{prefix}_scales is {scales.dtype} {scales.shape}, expected uint8 {blocks.shape[:3]}")
        count, rows, groups = scales.shape
        parts = {"codes": blocks.reshape(count * rows, 16 * groups), "scales": scales.reshape(count * rows, groups)}
        return of_array(QuantizedArray(parts, MX("fp4"), (count, rows, 32 * groups), (2,)))
