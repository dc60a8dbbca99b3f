"""compressed-tensors, which vLLM reads: pack-quantized integers, MXFP4, MXFP6 and NVFP4; 8-bit codes (scaled.py).

    NAME.weight_packed      int32 (out, words): code + 2^(bits - 1), dense across words, in old
                            versions 32 // bits codes per word; mxfp4 uint8, even code low
    NAME.weight_scale       (out, groups)
    NAME.weight_zero_point  int32 (words, groups), packed along out (old versions: int8); asymmetric formats only
    NAME.weight_shape       int64 (2,)
    NAME.weight_g_idx       int32 (in,): the group of each column; only with actorder "group"

compressed_tensors/compressors/pack_quantized, mxfp4. For NVFP4 the file stores the reciprocal of the tensor's scale. A
packed array is refused if no reciprocal gives the same products; values are rounded with the next scale that has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....arrays.bits import pack, unpack
from ....arrays.quantized import QuantizedArray
from ....base.container import numpy_dtype
from ....base.errors import WrongValue, shown
from ....base.float_env import converted
from ....base.texts import quoted
from ....formats import MX, NVFP4, Float, Format, Int
from ....products.quantize import quantize
from .. import scaled
from ..layout import Layout
from ..linear import (
    ROWS,
    WORD_COLUMNS,
    Array,
    Codes,
    Packed,
    Parts,
    array_of,
    check_finite,
    checked,
    codes_in,
    matrix_of,
    no_format,
    order_of,
    prefix_of,
    refuse,
    spaced,
    unordered,
    words,
)
from ..weight import Weight, of_array, of_codes, of_values
from .renaming import targets_of
from .schemes import MX_PACKED, MXFP8, check_nvfp4, chosen, element_of, packed_of, rows_of, scaled_of

NAME = "compressed-tensors"
NEAR = 1 << 14  # scales that are tried, up to 0.2 % larger
LARGEST = 6 * 448  # of E2M1 times that of E4M3
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
FP8 = (Float("fp8_e4m3fn", scaled="row"), Float("fp8_e4m3fn", scaled="tensor"))


def _is_packed_mx(q: Packed) -> bool:
    return isinstance(q.format, MX) and q.format.element in MX_PACKED and q.shape[-1] % 32 == 0


def _is_mxfp8(q: Packed) -> bool:
    return isinstance(q.format, MX) and q.format.element == "fp8_e4m3" and q.shape[-1] % 32 == 0


def _nvfp4_parts(name: str, q: QuantizedArray) -> dict[str, Array]:
    prefix, coarse = prefix_of(name, q, NAME), q.components["coarse"]
    if q.shape[1] % 16:
        raise WrongValue(f"save: tensor {quoted(name)}: rows of {q.shape[1]} values, {NAME} has NVFP4 in groups of 16")
    inverse = reciprocal(coarse, q.components["scales"])
    if inverse is None:
        declared = f"the scale of the tensor, {float(coarse):.9g}, has no reciprocal that gives the same products"
        raise WrongValue(f"save: tensor {quoted(name)}: {declared}, which {NAME} stores: mxfp4 is the nearest")
    return {
        f"{prefix}.weight_packed": q.components["codes"],
        f"{prefix}.weight_scale": q.components["scales"].view(numpy_dtype("float8_e4m3fn")),
        f"{prefix}.weight_global_scale": inverse.reshape(1),
    }


def reciprocal(scale: Array, bytes_used: Array, divides: bool = False) -> Array | None:
    """Return the float32 by which all block scales divided are what they are times another one; None if there is none.

    Parameters
    ----------
    scale : ndarray of float32
        One.
    bytes_used : ndarray of uint8
        Block scales, E4M3.
    divides : bool
        Whether `scale` is what divides, and the other one is looked for.
    """
    one = np.asarray(scale, np.float32).reshape(())
    used = np.unique(bytes_used.view(np.uint8)).view(numpy_dtype("float8_e4m3fn")).astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = used / one if divides else used * one
        guess = np.float32(1) / one
        for step in (0, 1, -1, 2, -2):
            near = (np.asarray(guess).view(np.int32) + np.int32(step)).view(np.float32)
            found = used * near if divides else used / near
            if np.isfinite(near) and near > 0 and np.array_equal(found, wanted):
                return np.asarray(near, np.float32).reshape(())
    return None


def with_reciprocal(scale: Array) -> list[Array]:
    """Return the next scales from a float32 on whose products with E4M3 numbers are quotients by a float32."""
    bits = np.asarray(scale, np.float32).reshape(()).view(np.int32) + np.arange(NEAR, dtype=np.int32)
    scales, parts = bits.view(np.float32), np.arange(8, 16, dtype=np.float32)[:, None]  # all significands of E4M3
    guess, fits = (np.float32(1) / scales).view(np.int32), np.zeros(NEAR, bool)
    for step in (0, 1, -1, 2, -2):
        fits |= (parts * scales == parts / (guess + np.int32(step)).view(np.float32)).all(axis=0)
    return list(scales[fits])


def nvfp4_of(values: Any, axes: tuple[int, ...]) -> QuantizedArray:
    """Return values rounded to NVFP4 with a tensor scale that has a reciprocal.

    A further row, whose largest value gives the scale, is dropped afterwards.
    """
    q = quantize(values, NVFP4(), axis=axes)
    if q.axis != (q.ndim - 1,) or q.ndim < 2 or reciprocal(q.components["coarse"], q.components["scales"]) is not None:
        return q
    x = converted(np.asarray(values), np.dtype(np.float32)).reshape(-1, q.shape[-1])
    for scale in with_reciprocal(q.components["coarse"]):
        further = np.zeros((1, q.shape[-1]), np.float32)
        further[0, 0] = scale * np.float32(LARGEST)
        found = quantize(np.concatenate([x, further]), NVFP4(), axis=-1).components
        if found["coarse"] == scale:
            parts = {key: part[:-1] if part.ndim else part for key, part in found.items()}
            return QuantizedArray(parts, q.format, q.shape, q.axis, q.source_dtype)
    return q


def _weights_of(fmt: Any) -> tuple[dict[str, Any], str]:
    """Return the `weights` of a config_group for a format, and the name of the group's layout."""
    weights: dict[str, Any]
    if isinstance(fmt, MX) and fmt.element not in MX_PACKED:
        weights = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}
        return weights | {"scale_dtype": "torch.uint8"}, MXFP8
    if isinstance(fmt, MX):
        weights = {"num_bits": fmt.bits, "type": "float", "strategy": "group", "group_size": 32}
        return weights | {"symmetric": True, "scale_dtype": "torch.uint8"}, MX_PACKED[fmt.element]
    if isinstance(fmt, scaled.Blocks):
        is_float = fmt.dtype != "int8"
        weights = {"num_bits": 8, "type": "float" if is_float else "int", "symmetric": True}
        if fmt.high == 1:
            weights |= {"strategy": "group", "group_size": fmt.wide}
        else:
            weights |= {"strategy": "block", "block_structure": [fmt.high, fmt.wide]}
        return weights, "float-quantized" if is_float else "int-quantized"
    if scaled.is_scaled(fmt):
        weights = {"num_bits": 8, "type": "float", "symmetric": True}
        return weights | {"strategy": "channel" if fmt.scaled == "row" else "tensor"}, "float-quantized"
    if isinstance(fmt, NVFP4):
        weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
        return weights | {"scale_dtype": "torch.float8_e4m3fn"}, "nvfp4-pack-quantized"
    weights = {"num_bits": fmt.bits, "type": "int", "symmetric": fmt.symmetric, "group_size": fmt.group}
    weights["strategy"] = "channel" if fmt.group is None else "group"
    return weights, "pack-quantized"


def _as_matrix(prefix: str, tensors: Mapping[str, Array]) -> tuple[dict[str, Array], tuple[int, ...] | None]:
    """Return the tensors of a stack of experts, (experts, out, in), as those of one matrix, and the shape of the stack.

    The rows of all experts are contiguous. For a matrix the tensors are unchanged and the shape is None.
    """
    found = dict(tensors)
    codes = found.get(f"{prefix}.weight_packed", found.get(f"{prefix}.weight"))
    whole = found.get(f"{prefix}.weight_global_scale")
    if codes is None or codes.ndim < 3:
        if whole is not None and whole.size != 1:
            raise WrongValue(f"{prefix}.weight_global_scale is {whole.dtype} {whole.shape}, expected one float32 > 0")
        return found, None
    name = f"{prefix}.weight" + "_packed" * (f"{prefix}.weight_packed" in found)
    if codes.ndim > 3:
        raise WrongValue(f"{name} is {codes.dtype} {codes.shape}, expected (out, in) or (experts, out, in)")
    count, rows = codes.shape[:2]
    columns = codes.shape[2] * (2 if codes.dtype == np.uint8 else 1)
    stated = found.get(f"{prefix}.weight_shape")
    if stated is not None:
        sizes = np.unique(stated.reshape(-1, stated.shape[-1]), axis=0)
        several = stated.ndim > 1 and len(stated) != count
        if several or len(sizes) != 1 or tuple(sizes[0][:-1]) not in ((rows,), (count, rows)):
            raise WrongValue(f"{prefix}.weight_shape is {shown(stated.tolist())}, but {name} is {codes.shape}")
        columns = int(sizes[0][-1])
        found[f"{prefix}.weight_shape"] = np.array([count * rows, columns], np.int64)
    for part in ("weight", "weight_packed", "weight_scale", "weight_zero_point"):
        values = found.get(f"{prefix}.{part}")
        if values is None:
            continue
        if values.ndim != 3 or values.shape[0] != count:
            what = f"{values.dtype} {values.shape}, expected one for each row of {name} {codes.shape}"
            raise WrongValue(f"{prefix}.{part} is {what}")
        if values.dtype == np.int32 and part == "weight_zero_point" and 32 * values.shape[1] % rows:
            raise WrongValue(f"{prefix}.{part} is {values.shape}: words that {rows} outputs do not fill are not read")
        found[f"{prefix}.{part}"] = values.reshape(-1, values.shape[2])
    if whole is not None and whole.size == count and (whole == whole.flat[0]).all():
        found[f"{prefix}.weight_global_scale"] = whole.reshape(-1)[:1]
    return found, (count, rows, columns)


def _codes(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> tuple[scaled.Codes, Array | None]:
    """Return 8-bit codes with the columns of each group adjacent, and their order; None if they are in place."""
    tensors = _with_float_scales(prefix, tensors, config)
    high, wide = chosen(prefix, config, scaled_of, tensors)
    codes, points = tensors[f"{prefix}.weight"], tensors.get(f"{prefix}.weight_zero_point")
    order = _order(prefix, tensors, codes.shape[1], wide) if high == 1 and wide < codes.shape[1] else None
    if order is not None:
        codes = np.take(codes, order, axis=1)  # in C order
    return scaled.checked(prefix, codes, tensors[f"{prefix}.weight_scale"], points, (high, wide)), order


def _with_float_scales(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Mapping[str, Array]:
    """Return the tensors of a weight with float32 scales, if the scales are powers of two of one byte each (MXFP8)."""
    scales, groups = tensors.get(f"{prefix}.weight_scale"), config.get("config_groups") or {}
    declared = [config.get("format"), *(one.get("format") for one in groups.values() if isinstance(one, Mapping))]
    if scales is None or not (
        scales.dtype.name == "float8_e8m0fnu" or (scales.dtype == np.uint8 and MXFP8 in declared)
    ):
        return tensors
    return {**tensors, f"{prefix}.weight_scale": scaled.powers(scales)}


def _order(prefix: str, tensors: Mapping[str, Array], count: int, group: int) -> Array | None:
    """Return the columns sorted by group, or None if they are sorted; an index that contains -1 was never set."""
    index = tensors.get(f"{prefix}.weight_g_idx")
    if index is None or (index == -1).any():
        return None
    return order_of(f"{prefix}.weight_g_idx", index, np.arange(count) // group)


def _nvfp4_from(
    prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any], stack: tuple[int, ...] | None
) -> Weight:
    """Return the weight of NVFP4 whose tensor scale divides: an array if a multiplication gives the same products."""
    chosen(prefix, config, check_nvfp4, tensors)
    packed, scales, whole = (tensors[f"{prefix}.weight_{part}"] for part in ("packed", "scale", "global_scale"))
    shape, wide = (len(packed), 2 * packed.shape[1]), scaled.e4m3_values(scales)
    check_finite(f"{prefix}.weight_scale", wide)
    if whole.size > 1:
        quotients = (wide.reshape(whole.size, -1) / whole.reshape(-1, 1)).reshape(len(packed), -1)
        return of_array(_shaped(scaled.nvfp4_groups(f"{prefix}.weight_scale", packed, quotients, shape), stack))
    coarse = reciprocal(whole, scales, divides=True)
    if coarse is not None:
        parts = {"codes": packed, "scales": scales.view(np.uint8), "coarse": coarse}
        return of_array(_shaped(QuantizedArray(parts, NVFP4(), shape, (1,)), stack))
    with np.errstate(all="ignore"):
        quotients = np.repeat(wide / whole.reshape(()), 16, axis=1)
    values = E2M1[unpack(packed, 4, shape[1])]
    values *= quotients
    why = (
        f"{prefix}.weight_global_scale is {float(whole.reshape(())):.9g}, and dividing by it differs from every "
        f"multiplication: such weights {no_format(NAME)}"
    )
    nbytes = packed.nbytes + scales.nbytes + 4
    return of_values(values.reshape(stack or shape), "nvfp4 of compressed-tensors", nbytes, why)


def _shaped(q: QuantizedArray, stack: tuple[int, ...] | None) -> QuantizedArray:
    return q if stack is None else QuantizedArray(dict(q.components), q.format, stack, (2,))


def _packed_from(
    prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]
) -> tuple[QuantizedArray, Array | None]:
    """Return a matrix of packed codes with its columns sorted by group, and their order; None if they are in place."""
    packed, scales = tensors[f"{prefix}.weight_packed"], tensors[f"{prefix}.weight_scale"]
    if packed.dtype == np.uint8:
        mx = MX(chosen(prefix, config, element_of, tensors))
        rows, count = packed.shape[0], packed.shape[1] * 8 // mx.bits
        if _order(prefix, tensors, count, 32) is not None:
            raise WrongValue(f"{prefix}.weight_g_idx: columns of {mx} in another order than their groups are not read")
        return QuantizedArray({"codes": packed, "scales": scales}, mx, (rows, count), (1,)), None
    bits, group, symmetric = chosen(prefix, config, packed_of, tensors)
    rows, count = rows_of(prefix, tensors)
    if scales.size == 1:  # one of the tensor, or of its only row
        scales = np.full((rows, 1), scales.reshape(()), scales.dtype)
    middle = 1 << (bits - 1)
    if packed.shape[1] == words(count, bits):
        codes = codes_in(packed, ROWS, bits, rows, count)
    else:
        codes = Codes(pack(spaced(packed, bits, count), bits), bits, count)
    order = _order(prefix, tensors, count, group or count)
    if order is not None:
        codes = codes.of_columns(order)
    points = None
    if not symmetric:
        stored = tensors[f"{prefix}.weight_zero_point"]
        if stored.dtype == np.int8:
            points = (stored.astype(np.int16) + np.int16(middle)).astype(np.uint8)
        elif packed.shape[1] == words(count, bits):
            points = codes_in(stored, WORD_COLUMNS, bits, stored.shape[1], rows).unpacked().T
        else:
            points = spaced(np.ascontiguousarray(stored.T), bits, rows).T
    elif not codes.holds(0):
        codes = codes._replace(flip=codes.flip ^ middle)
    else:  # there is a code -2^(bits - 1), which symmetric formats here lack
        points = np.full(scales.shape, middle, np.uint8)
    fmt = Int(bits, group, points is None, "f16" if scales.dtype == np.float16 else "f32")
    return array_of(fmt, codes, scales, points), order


class CompressedTensors(Layout):
    name = NAME
    programs = ("vllm", "llm-compressor", "sglang")
    marks = (".weight_packed", ".weight_scale")
    signs = ((".weight_packed", ".weight_scale"),)
    order_name = "weight_g_idx"
    examples = ("int4-g32", "int8", "int3-g32-asym", "int4-g64-f16", "mxfp4", "fp8_e4m3fn-row")
    has_several = True
    stacks = True
    stacks_blocks = True
    reaches_lowest = True

    def depends_on_values(self, fmt: object) -> bool:
        return isinstance(fmt, NVFP4)

    def rounded(self, values: object, fmt: Format, axes: tuple[int, ...]) -> QuantizedArray:
        return nvfp4_of(values, axes) if isinstance(fmt, NVFP4) else super().rounded(values, fmt, axes)

    def shapes(self, name: str, q: Packed) -> Parts:
        if _is_mxfp8(q):
            prefix, (rows, count) = prefix_of(name, q, NAME), q.shape
            return {
                f"{prefix}.weight": ("float8_e4m3fn", (rows, count)),
                f"{prefix}.weight_scale": ("uint8", (rows, count // 32)),
            }
        if _is_packed_mx(q):
            prefix, (rows, count) = prefix_of(name, q, NAME), q.shape
            return {
                f"{prefix}.weight_packed": ("uint8", (rows, count * q.format.bits // 8)),
                f"{prefix}.weight_scale": ("uint8", (rows, count // 32)),
            }
        if q.format == FP8[0] or q.format == FP8[1]:
            return scaled.parts_like(prefix_of(name, q, NAME), q.format, q.shape)
        if isinstance(q.format, NVFP4) and isinstance(q, QuantizedArray):
            return {key: (part.dtype.name, part.shape) for key, part in _nvfp4_parts(name, q).items()}
        if isinstance(q.format, NVFP4) and len(q.shape) == 2 and q.shape[1] % 16 == 0:
            prefix, (rows, count) = prefix_of(name, q, NAME), q.shape
            return {
                f"{prefix}.weight_packed": ("uint8", (rows, count // 2)),
                f"{prefix}.weight_scale": ("float8_e4m3fn", (rows, count // 16)),
                f"{prefix}.weight_global_scale": ("float32", (1,)),
            }
        if not isinstance(q.format, Int):
            refuse(name, q, NAME, "mxfp4, or int4-g128, is the nearest")
        fmt, (prefix, _, groups), (rows, count) = q.format, checked(name, q, NAME), q.shape
        found: Parts = {
            f"{prefix}.weight_packed": ("int32", (rows, words(count, fmt.bits))),
            f"{prefix}.weight_scale": ("float16" if fmt.scale == "f16" else "float32", (rows, groups)),
            f"{prefix}.weight_shape": ("int64", (2,)),
        }
        if not fmt.symmetric:
            found[f"{prefix}.weight_zero_point"] = ("int32", (words(rows, fmt.bits), groups))
        return found

    def tensors(self, name: str, q: QuantizedArray) -> dict[str, Array]:
        self.shapes(name, q)  # refuses
        if _is_mxfp8(q):
            prefix, codes = prefix_of(name, q, NAME), q.components["codes"].view(numpy_dtype("float8_e4m3fn"))
            return {f"{prefix}.weight": codes, f"{prefix}.weight_scale": q.components["scales"]}
        if _is_packed_mx(q):
            prefix, scales = prefix_of(name, q, NAME), q.components["scales"]
            return {f"{prefix}.weight_packed": q.components["codes"], f"{prefix}.weight_scale": scales}
        if scaled.is_scaled(q.format):
            return scaled.parts_of(prefix_of(name, q, NAME), q)
        if isinstance(q.format, NVFP4):
            return _nvfp4_parts(name, q)
        fmt: Any = q.format
        m = matrix_of(name, q, NAME)
        found = {
            f"{m.prefix}.weight_packed": m.packed.words(),
            f"{m.prefix}.weight_scale": m.scales,
            f"{m.prefix}.weight_shape": np.array(q.shape, np.int64),
        }
        if not fmt.symmetric:
            found[f"{m.prefix}.weight_zero_point"] = Codes(
                pack(m.points.T, m.bits), m.bits, len(m.points)
            ).word_columns()
        return found

    def stacked(self, name: str, parts: dict[str, Array], shape: tuple[int, ...]) -> dict[str, Array]:
        found = {key: part.reshape(shape[0], -1, part.shape[-1]) for key, part in parts.items() if part.ndim == 2}
        found |= {key: part for key, part in parts.items() if part.ndim != 2}
        stated = f"{name.removesuffix('.weight')}.weight_shape"
        return found | ({stated: np.array(shape, np.int64)} if stated in parts else {})

    def check_stack(self, shape: tuple[int, ...], fmt: object) -> None:
        """Raise ValueError if zero points of an expert do not fill words."""
        if isinstance(fmt, Int) and not fmt.symmetric and shape[1] * fmt.bits % 32:
            raise WrongValue(
                f"{NAME} packs zero points into 32-bit words, which {shape[1]} outputs of an expert do not fill"
            )

    def check_blocks(self, name: str, shape: tuple[int, ...], blocks: scaled.Blocks) -> None:
        if not name.endswith(".weight"):
            raise WrongValue(f"{NAME} stores weights called NAME.weight")
        if blocks.dtype not in ("int8", "float8_e4m3fn"):
            raise WrongValue(f"{NAME} has no place for {blocks.dtype}")
        if len(shape) > 2 and blocks.high != 1:
            raise WrongValue(f"{NAME} has no place for a stack with {blocks}")

    def block_tensors(self, name: str, shape: tuple[int, ...], codes: scaled.Codes) -> dict[str, Array]:
        prefix = name.removesuffix(".weight")
        parts = {f"{prefix}.weight": codes.codes, f"{prefix}.weight_scale": codes.scales}
        if codes.points is not None:
            parts[f"{prefix}.weight_zero_point"] = codes.points
        return parts if len(shape) == 2 else self.stacked(name, parts, shape)

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        """Return the configuration, with one group per format; it names only the weights."""
        groups: dict[str, dict[str, Any]] = {}
        named = targets_of({name.removesuffix(".weight"): fmt for name, fmt in formats.items()}, plain)
        for i, fmt in enumerate(dict.fromkeys(formats.values())):
            weights, layout = _weights_of(fmt)
            if ordered and isinstance(fmt, Int) and fmt.group is not None:
                weights["actorder"] = "group"
            targets = [name for name, one in named.items() if one == fmt]
            groups[f"group_{i}"] = {"targets": targets, "weights": weights, "format": layout}
        layouts = {group["format"] for group in groups.values()}
        layout = layouts.pop() if len(layouts) == 1 else "mixed-precision"
        status = {"quantization_status": "compressed"}  # without it, programs assume plain weights
        return {"quant_method": NAME, "format": layout, **status, "config_groups": groups}

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        matrix, stack = _as_matrix(prefix, tensors)
        if f"{prefix}.weight_packed" not in matrix:
            codes, order = _codes(prefix, matrix, config)
            return of_codes(f"{prefix}.weight", NAME, codes, stack, order)
        if f"{prefix}.weight_global_scale" in matrix:
            return _nvfp4_from(prefix, matrix, config, stack)
        q, order = _packed_from(prefix, matrix, config)
        return of_array(_shaped(q, stack), order, "" if order is None else unordered(f"{prefix}.weight_g_idx", NAME))
