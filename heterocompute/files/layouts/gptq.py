"""GPTQ and AWQ: words of 32 bits along in or along out, scales float16.

    GPTQ  NAME.qweight int32 (in bits/32, out), little end first along in; NAME.qzeros (groups, out bits/32);
          NAME.scales float16 (groups, out); NAME.g_idx int32 (in,)
    AWQ   NAME.qweight int32 (in, out/8), qzeros (groups, out/8): 4 bits, in the order 0 2 4 6 1 3 5 7; scales as above

GPTQ version 1 stores the zero point minus 1, which is impossible for 0: kernels differ in the meaning of the code -1.
The layout gptq writes symmetric arrays in version 1 and others in version 2, gptq-v1 writes all in version 1:
``checkpoint_format`` of the config. GPTQModel, nn_modules/qlinear; AutoAWQ, gemm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.bits import pack
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue, shown
from ...base.texts import counted, quoted
from ...formats import Int
from .configuration import of_layer
from .expressions import matches
from .layout import Layout
from .linear import (
    AWQ as AWQ_ORDER,
    WORD_COLUMNS,
    Array,
    Codes,
    Packed,
    Parts,
    array_of,
    checked,
    codes_in,
    from_words,
    matrix_of,
    one_of,
    order_of,
    refuse,
    to_words,
    unordered,
)
from .weight import Weight, of_array

VERSIONS = ("gptq", "gptq_v2")
BITS = (2, 3, 4, 8)


def _of_module(prefix: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of one module: the first pattern of ``dynamic`` that matches its name changes it.

    In files of AutoRound the key is ``extra_config``.
    """
    dynamic = config.get("dynamic") or {}
    if not isinstance(dynamic, Mapping):
        raise WrongValue(f"{prefix}: dynamic is {shown(dynamic)}, expected an object of patterns")
    for pattern, changed in dynamic.items():
        try:
            fits = matches(pattern[2:] if pattern[:2] in ("+:", "-:") else pattern, prefix)
        except ValueError as error:
            raise WrongValue(f"{prefix}: dynamic of the configuration: {error}") from None
        if not fits:
            continue
        if pattern.startswith("-:"):
            raise WrongValue(
                f"{prefix}.qweight is packed, but dynamic of the configuration says by {quoted(pattern)} that it is not"
            )
        if not isinstance(changed, Mapping):
            raise WrongValue(f"{prefix}: dynamic says {shown(changed)} for {quoted(pattern)}, expected an object")
        return {**config, **changed}
    return of_layer(prefix, config)


def _group_of(
    prefix: str, config: Mapping[str, Any], count: int, scales: Array, rows: int, key: str = "group_size"
) -> int | None:
    """Return how many inputs share a scale, None for a whole row, as the configuration states."""
    declared = config.get(key)
    if declared is not None and (type(declared) is not int or (declared < 1 and declared != -1)):
        raise WrongValue(f"{prefix}: {key} is {shown(declared)}, expected a number of inputs, or -1")
    if scales.ndim != 2 or 0 in scales.shape or scales.shape[1] != rows:
        raise WrongValue(f"{prefix}.scales is {scales.shape}, expected (groups, {rows}) next to {rows} outputs")
    groups = len(scales)
    if declared is None and count % groups:
        raise WrongValue(
            f"{prefix}.scales has {counted(groups, 'group')} of {counted(count, 'input')}, and the configuration says "
            f"no {key}: expected one"
        )
    group = count // groups if declared is None else count if declared == -1 else declared
    if -(-count // group) != groups:
        raise WrongValue(
            f"{prefix}.scales has {counted(groups, 'group')} of {counted(count, 'input')}, but {key} of the "
            f"configuration is {declared}, which makes {-(-count // group)}"
        )
    return None if groups == 1 and declared in (None, -1) else min(group, count)


def _points_of(prefix: str, config: Mapping[str, Any], stored: Array, bits: int, first: bool) -> tuple[Array, bool]:
    """Return the zero points, and whether all are in the middle of the range.

    Version 1 stores them minus 1. In a symmetric file all are the middle, whichever version its configuration names:
    some published files have the points of the other version.
    """
    middle = 1 << (bits - 1)
    alike = stored.size and stored.min() == stored.max()
    symmetric = config.get("sym", True)
    if symmetric is True and alike and stored.flat[0] in (middle, middle - 1):
        return np.full(stored.shape, middle, np.uint8), True
    if config.get("sym") is True:
        raise WrongValue(
            f"{prefix}.qzeros holds {stored.min()} to {stored.max()}, but sym of the configuration says that all zero "
            f"points are the middle, {middle} or {middle - 1}"
        )
    return (stored + np.uint8(first)) & np.uint8((1 << bits) - 1), False


def _as_int32(words: Array) -> Array:
    return words.view(np.int32) if words.dtype == np.uint32 else words


def _codes_of_gptq(qweight: Array, bits: int, rows: int, count: int, flip: int) -> Codes:
    if qweight.dtype.itemsize == 4:
        return codes_in(_as_int32(qweight), WORD_COLUMNS, bits, rows, count, flip)
    return Codes(pack(from_words(np.ascontiguousarray(qweight.T), bits, count), bits), bits, count)


def _made(bits: int, group: int | None, symmetric: bool, codes: Codes, scales: Array, points: Array) -> QuantizedArray:
    middle = 1 << (bits - 1)
    kind = "f16" if scales.dtype == np.float16 else "f32"  # bfloat16 reaches below float16
    if symmetric and not codes.holds(0):
        return array_of(Int(bits, group, True, kind), codes._replace(flip=codes.flip ^ middle), scales.T, None)
    return array_of(Int(bits, group, False, kind), codes, scales.T, points)


class GPTQ(Layout):
    name = "gptq"
    methods: tuple[str, ...] = ("gptq-v1",)
    programs: tuple[str, ...] = ("autogptq", "gptqmodel")
    marks = (".qweight",)
    signs: tuple[tuple[str, ...], ...] = ((".qweight", ".qzeros", ".scales", ".g_idx"),)
    order_name = "g_idx"
    examples: tuple[str, ...] = ("int4-g32-f16", "int3-g32-asym-f16", "int8-f16")
    reaches_lowest = True
    reads_conv1d = True
    is_first = False  # version 1 of all arrays

    def shapes(self, name: str, q: Packed) -> Parts:
        fmt = q.format
        if not isinstance(fmt, Int) or fmt.scale != "f16" or fmt.bits not in (2, 3, 4, 8):
            refuse(name, q, self.name, "int4-g128-f16, or int4-g128-asym-f16, is the nearest")
        (prefix, _, groups), (rows, count), bits = checked(name, q, self.name), q.shape, fmt.bits
        if count * bits % 32 or rows * bits % 32:
            what = f"tensor {quoted(name)} of shape {q.shape}"
            raise WrongValue(f"save: {what} does not fill whole 32-bit words, which {self.name} needs")
        return {
            f"{prefix}.qweight": ("int32", (count * bits // 32, rows)),
            f"{prefix}.qzeros": ("int32", (groups, rows * bits // 32)),
            f"{prefix}.scales": ("float16", (groups, rows)),
            f"{prefix}.g_idx": ("int32", (count,)),
        }

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        fmt: Any = q.format
        m = matrix_of(name, q, self.name)
        if self.is_first and not m.points.all():
            raise WrongValue(
                f"save: tensor {quoted(name)}: version 1 of GPTQ has no place for the zero point 0; layout gptq has one"
            )
        points = m.points - np.uint8(fmt.symmetric or self.is_first)
        index = np.arange(q.shape[1], dtype=np.int32) // np.int32(m.group)
        return m.packed.word_columns(), to_words(points.T, m.bits), np.ascontiguousarray(m.scales.T), index

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        fmt = next(iter(formats.values()))
        version = VERSIONS[0 if fmt.symmetric or self.is_first else 1]
        return {"quant_method": "gptq", "bits": fmt.bits, "group_size": fmt.group or -1, "sym": fmt.symmetric,
                "desc_act": ordered, "checkpoint_format": version,
                "lm_head": any(name.endswith("lm_head.weight") for name in formats)}  # fmt: skip

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        """Return a weight; `order` holds its columns sorted by group, if they are stored in another order.

        GPTQ with ``desc_act`` rounds columns in the order of their activations, and groups them in that order.
        """
        config = _of_module(prefix, config)
        bits = config["bits"]
        if type(bits) is not int or bits not in BITS:
            raise WrongValue(f"{prefix}: bits is {shown(bits)}, expected 2, 3, 4 or 8")
        version = one_of(prefix, "checkpoint_format", config.get("checkpoint_format", config.get("format")), VERSIONS)
        one_of(prefix, "is_marlin_format", config.get("is_marlin_format"), (False,))
        scales, qweight = tensors[f"{prefix}.scales"], tensors[f"{prefix}.qweight"]
        if f"{prefix}.qzeros" not in tensors and config.get("sym") is True and scales.ndim == 2:  # all are the middle
            qzeros = to_words(np.full(scales.shape, 1 << (bits - 1), np.uint8), bits)
        else:
            qzeros = tensors[f"{prefix}.qzeros"]
        for part, words in (("qweight", qweight), ("qzeros", qzeros)):
            if words.ndim != 2 or words.dtype.kind not in "iu" or (bits == 3 and words.dtype.itemsize != 4):
                raise WrongValue(f"{prefix}.{part} is {words.dtype} {words.shape}, expected int32 of two dimensions")
        rows, count = qweight.shape[1], 8 * qweight.dtype.itemsize * qweight.shape[0] // bits
        index = tensors.get(f"{prefix}.g_idx")
        group = _group_of(prefix, config, count, scales, rows)
        wanted = (len(scales), -(-rows * bits // (8 * qzeros.dtype.itemsize)))
        if qzeros.shape != wanted:
            what = f"{wanted} of the {counted(bits, 'bit')} that the configuration says"
            raise WrongValue(f"{prefix}.qzeros is {qzeros.dtype} {qzeros.shape}, expected {what}")
        if index is None and config.get("desc_act") is True and len(scales) > 1:
            raise WrongValue(
                f"{prefix}.g_idx is missing, but desc_act of the configuration says that groups are not contiguous"
            )
        points, symmetric = _points_of(prefix, config, from_words(qzeros, bits, rows).T, bits, version == "gptq")
        codes = _codes_of_gptq(qweight, bits, rows, count, 1 << (bits - 1) if symmetric else 0)
        order = None if index is None else order_of(f"{prefix}.g_idx", index, np.arange(count) // (group or count))
        if order is not None:
            codes = codes.of_columns(order)
        why = "" if order is None else unordered(f"{prefix}.g_idx", self.name)
        return of_array(_made(bits, group, symmetric, codes, scales, points), order, why)


class GPTQVersion1(GPTQ):
    name = "gptq-v1"
    methods = ()
    programs = ()
    signs = ()
    is_first = True
    examples = ("int4-g32-asym-f16",)


class AWQ(Layout):
    name = "awq"
    programs = ("autoawq",)
    marks = (".qweight",)
    signs = ((".qweight", ".qzeros", ".scales"),)
    examples = ("int4-g32-asym-f16",)

    def shapes(self, name: str, q: Packed) -> Parts:
        fmt = q.format
        if not isinstance(fmt, Int) or fmt.scale != "f16" or fmt.bits != 4:
            refuse(name, q, self.name, "int4-g128-asym-f16 is the nearest")
        (prefix, _, groups), (rows, count) = checked(name, q, self.name), q.shape
        if rows % 8:
            raise WrongValue(
                f"save: tensor {quoted(name)} of shape {q.shape}: {self.name} needs a multiple of 8 outputs"
            )
        return {
            f"{prefix}.qweight": ("int32", (count, rows // 8)),
            f"{prefix}.qzeros": ("int32", (groups, rows // 8)),
            f"{prefix}.scales": ("float16", (groups, rows)),
        }

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        m = matrix_of(name, q, self.name)
        points = Codes(pack(m.points, 4), 4, m.points.shape[1])
        return m.packed.columns(AWQ_ORDER), points.columns(AWQ_ORDER), np.ascontiguousarray(m.scales.T)

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        fmt = next(iter(formats.values()))
        return {"quant_method": self.name, "bits": 4, "group_size": fmt.group or -1, "zero_point": True,
                "version": "gemm", "modules_to_not_convert": list(plain)}  # fmt: skip

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        config = of_layer(prefix, config)
        for key in ("version", "checkpoint_format", "format"):
            one_of(prefix, key, config.get(key), ("gemm",))
        one_of(prefix, "bits", config.get("bits", config.get("w_bit")), (4,))
        scales, qweight, qzeros = (tensors.get(f"{prefix}.{part}") for part in ("scales", "qweight", "qzeros"))
        if scales is None or qweight is None or qweight.ndim != 2 or qweight.dtype.itemsize != 4:
            raise WrongValue(f"{prefix}.qweight or .scales is missing, or of another kind than int32 (in, out / 8)")
        count, rows = len(qweight), qweight.shape[1] * 8
        group = _group_of(
            prefix, config, count, scales, rows, "group_size" if "group_size" in config else "q_group_size"
        )
        if qzeros is None:
            if config.get("zero_point") is not False:
                raise WrongValue(f"{prefix}.qzeros is missing, but zero_point of the configuration does not say False")
            points = np.full((rows, len(scales)), 8, np.uint8)
        elif qzeros.shape != (len(scales), rows // 8):
            raise WrongValue(f"{prefix}.qzeros is {qzeros.shape}, expected {(len(scales), rows // 8)}")
        else:
            points = codes_in(_as_int32(qzeros), AWQ_ORDER, 4, rows, len(scales)).unpacked()
        codes = codes_in(_as_int32(qweight), AWQ_ORDER, 4, rows, count)
        return of_array(_made(4, group, False, codes, scales, points))
