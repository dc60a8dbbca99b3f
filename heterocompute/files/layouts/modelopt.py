"""ModelOpt's unified checkpoints: NVFP4, FP8 with one scale per tensor or per block, MXFP8 and MXFP4.

    NVFP4  NAME.weight uint8 (out, in / 2), the even code low; NAME.weight_scale float8_e4m3fn (out, in / 16);
           NAME.weight_scale_2 float32 (), the factor of all; NAME.input_scale, a plain tensor
    FP8    NAME.weight float8_e4m3fn (out, in); NAME.weight_scale float32 (), (out,), or of blocks (fp8.py)
    MX     the same with uint8 scales, 2^(byte - 127), for every 32 values; MXFP4 has codes as NVFP4

Stacks (experts, out, ...) have one NAME.weight_scale_2, or one for each expert.

The format is named by ``hf_quant_config.json``, by config.json with the method "modelopt", and by dtypes and shapes.
NVIDIA Model Optimizer, torch/export/unified_export_hf.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.container import numpy_dtype
from ...base.errors import WrongValue, shown
from ...base.tensors import Tensors
from ...formats import NVFP4, Float
from . import fp8, scaled
from .layout import Layout
from .linear import Array, Packed, Parts, prefix_of, refuse
from .weight import Weight, of_array

PRODUCER = {"name": "modelopt", "version": "0.29.0"}  # the first version whose loaders know all of these keys


class ModelOpt(Layout):
    name = "modelopt"
    methods = ("modelopt_fp4", "modelopt_fp8", "modelopt_mxfp8")
    marks = (".weight_scale",)
    ends = (".weight", ".weight_scale", ".weight_scale_2")
    signs = ((".weight_scale_2", ".weight_scale", ".weight"),)
    needs_config = False
    examples = ("nvfp4", "fp8_e4m3fn-tensor")

    def fits(self, reader: Tensors, prefix: str, dtypes: Sequence[str]) -> bool:
        return tuple(dtypes) == ("float32", "float8_e4m3fn", "uint8")

    def shapes(self, name: str, q: Packed) -> Parts:
        if isinstance(q.format, Float) and q.format.name == "fp8_e4m3fn" and q.format.scaled == "tensor":
            prefix = prefix_of(name, q, self.name)
            return {f"{prefix}.weight": ("float8_e4m3fn", q.shape), f"{prefix}.weight_scale": ("float32", ())}
        if not isinstance(q.format, NVFP4) or q.shape[-1] % 16:
            refuse(name, q, self.name, "nvfp4 with rows of whole groups, or fp8_e4m3fn-tensor, is the nearest")
        prefix, (rows, count) = prefix_of(name, q, self.name), q.shape
        return {
            f"{prefix}.weight": ("uint8", (rows, count // 2)),
            f"{prefix}.weight_scale": ("float8_e4m3fn", (rows, count // 16)),
            f"{prefix}.weight_scale_2": ("float32", ()),
        }

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        parts, eights = q.components, numpy_dtype("float8_e4m3fn")
        coarse = parts["coarse"].reshape(())
        if not isinstance(q.format, NVFP4):
            return parts["codes"].view(eights), coarse
        return parts["codes"], parts["scales"].view(eights), coarse

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        is_four = isinstance(next(iter(formats.values())), NVFP4)
        weights = {"dynamic": False, "num_bits": 4 if is_four else 8, "type": "float"} | (
            {"group_size": 16} if is_four else {}
        )
        return {
            "quant_method": self.name,
            "quant_algo": "NVFP4" if is_four else "FP8",
            "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
            "ignore": list(plain),
            "producer": PRODUCER,
        }

    def files(self, config: Mapping[str, Any]) -> dict[str, Any]:
        declared = {
            "quant_algo": config["quant_algo"],
            "kv_cache_quant_algo": None,
            "exclude_modules": config["ignore"],
        }
        if config["quant_algo"] == "NVFP4":
            declared["group_size"] = 16
        return {"hf_quant_config.json": {"producer": PRODUCER, "quantization": declared}}

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        codes, scales = tensors[f"{prefix}.weight"], tensors[f"{prefix}.weight_scale"]
        whole = tensors.get(f"{prefix}.weight_scale_2")
        if whole is None:
            return fp8.weight_in(prefix, tensors, {}, self.name)
        if codes.dtype != np.uint8 or codes.ndim not in (2, 3) or scales.dtype.name != "float8_e4m3fn":
            what = f"{codes.dtype} {codes.shape} with scales of {scales.dtype}"
            raise WrongValue(f"{prefix}.weight is {what}, expected uint8 (out, in / 2) and float8_e4m3fn")
        wanted = (*codes.shape[:-1], codes.shape[-1] // 8)
        if scales.shape != wanted or codes.shape[-1] % 8:
            raise WrongValue(f"{prefix}.weight_scale is {scales.shape}, expected {wanted} of groups of 16")
        if whole.dtype != np.float32 or whole.size not in {1, len(codes) if codes.ndim == 3 else 1}:
            what = "one float32" + " for each expert" * (codes.ndim == 3)
            raise WrongValue(f"{prefix}.weight_scale_2 is {whole.dtype} {shown(whole.shape)}, expected {what}")
        return of_array(scaled.nvfp4_of(f"{prefix}.weight", codes, scales, whole))
