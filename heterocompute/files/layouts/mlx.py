"""MLX: integers with a scale and a bias for each group, or FP4 with scales alone.

    NAME.weight  uint32 (out, in bits / 32): unsigned codes, dense along a row, little-endian
    NAME.scales  float (out, groups)                       mxfp4, nvfp4: uint8, E8M0 or E4M3
    NAME.biases  float (out, groups), of the same dtype

Stacks of experts (SwitchLinear) have one more axis: (experts, out, ...).
value = code x scale + bias, here in float32. A weight whose bias is -scale x zero point becomes an `Int`. Others become
`q4_1` or `q5_1` if their scales are float16 and these formats have the bits, otherwise `Affine`.
``quantization`` of config.json has group_size, bits, mode, and those of single layers.
MLX, python/src/ops.cpp, quantize.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays.bits import pack
from ...arrays.components import component_layout
from ...arrays.quantized import QuantizedArray
from ...base.container import numpy_dtype
from ...base.errors import WrongValue, shown
from ...base.tensors import Tensors
from ...base.texts import counted, quoted
from ...formats import GGML, MX, NVFP4, Affine, Format, Int
from .forms import CHUNK, integers_of, is_uniform
from .layout import Layout
from .linear import (
    ROWS,
    Array,
    Codes,
    Packed,
    Parts,
    array_of,
    check_finite,
    codes_in,
    no_format,
    one_of,
    prefix_of,
    refuse,
    words,
)
from .weight import Weight, as_matrix, of_array, of_values

BITS, GROUPS = (2, 3, 4, 5, 6, 8), (32, 64, 128)
FLOATS = ("float16", "bfloat16", "float32")
MODES = ("affine", "mxfp4", "nvfp4")


def _mode_of(fmt: Format) -> str | None:
    if isinstance(fmt, MX) and fmt.element == "fp4":
        return "mxfp4"
    if isinstance(fmt, NVFP4):
        return "nvfp4"
    return "affine" if is_uniform(fmt) and fmt.bits in BITS and fmt.group in GROUPS else None


def _dtype_of(fmt: Any) -> str:
    """Return a dtype that represents scales and biases of a format exactly."""
    if isinstance(fmt, Int):
        return "float16" if fmt.symmetric and fmt.scale == "f16" else "float32"
    if isinstance(fmt, Affine):
        return "float16" if fmt.scale == "f16" else "float32"
    return "float16" if fmt.kind.group == fmt.kind.block else "float32"


class _Rows(NamedTuple):
    """The description of a stack as one matrix of all rows."""

    format: Any
    shape: tuple[int, ...]
    axis: tuple[int, ...]


def _as_rows(
    prefix: str, tensors: Mapping[str, Array], parts: Sequence[str]
) -> tuple[dict[str, Array], tuple[int, ...] | None]:
    """Return the tensors of a weight as those of one matrix, and (experts, out) of a stack, None for a matrix."""
    found = {part: tensors[f"{prefix}.{part}"] for part in parts}
    stored = found["weight"]
    if stored.ndim != 3:
        return found, None
    lead = stored.shape[:2]
    for part, values in found.items():
        if values.ndim != 3 or values.shape[:2] != lead or 0 in values.shape:
            raise WrongValue(
                f"{prefix}.{part} is {values.dtype} {values.shape}, expected (experts, out, ...) next to a stack "
                f"{stored.shape}"
            )
    return {part: values.reshape(lead[0] * lead[1], values.shape[2]) for part, values in found.items()}, lead


def _said(prefix: str, config: Mapping[str, Any]) -> tuple[int, int, str]:
    """Return the values per group, bits and mode of a layer."""
    own = config.get(prefix)
    declared = {**config, **own} if isinstance(own, Mapping) else config
    mode = one_of(prefix, "mode", declared.get("mode"), MODES)
    group, bits = declared.get("group_size"), declared.get("bits")
    if type(group) is not int or type(bits) is not int or bits not in BITS or not 1 <= group <= 1 << 20:
        raise WrongValue(f"{prefix}: group_size and bits are {shown(group)} and {shown(bits)}, expected those of MLX")
    return group, bits, str(mode)


def _affine(
    prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]
) -> tuple[Codes, Array, Array, int, tuple[int, ...] | None]:
    """Return codes, scales, biases, the values per group, and (experts, out) of a stack."""
    group, bits, _ = _said(prefix, config)
    found, lead = _as_rows(prefix, tensors, ("weight", "scales", "biases"))
    stored, scales, biases = found["weight"], found["scales"], found["biases"]
    if stored.ndim != 2 or stored.dtype != np.uint32 or 0 in stored.shape:
        raise WrongValue(f"{prefix}.weight is {stored.dtype} {stored.shape}, expected uint32 (out, words)")
    rows, count = len(stored), stored.shape[1] * 32 // bits
    if count % group or words(count, bits) != stored.shape[1]:
        raise WrongValue(f"{prefix}.weight holds {counted(count, 'value')} a row, expected whole groups of {group}")
    for part, values in (("scales", scales), ("biases", biases)):
        if values.shape != (rows, count // group) or values.dtype.name not in FLOATS or values.dtype != scales.dtype:
            what = f"{values.dtype} {values.shape}"
            raise WrongValue(
                f"{prefix}.{part} is {what}, expected floats {(rows, count // group)} of groups of {group}"
            )
        check_finite(f"{prefix}.{part}", values)
    return codes_in(stored.view(np.int32), ROWS, bits, rows, count), scales, biases, group, lead


def with_biases(codes: Codes, scales: Array, biases: Array, group: int) -> QuantizedArray | None:
    """Return the array of values code x scale + bias, None if no format has these values.

    Parameters
    ----------
    scales, biases : ndarray, (out, groups)
        Floats of one dtype. If it is float32, product and sum are rounded to float32.
    """
    points = _points(scales, biases, codes.bits)
    kind = "f16" if scales.dtype == np.float16 else "f32"
    if points is not None:
        q = array_of(Int(codes.bits, group, False, kind), codes, scales, points)
        exact = scales.dtype.itemsize == 2 or _is_same(q, codes, scales, biases, group)
        return _symmetric(q, codes, points) if exact else None
    fmt: Format | None = {4: GGML("q4_1"), 5: GGML("q5_1")}.get(codes.bits) if kind == "f16" else None
    if fmt is None or group % 32:
        fmt = Affine(codes.bits, group, kind)
    repeats = group // (fmt.group or group)
    dtype = np.float16 if kind == "f16" else np.float32
    parts = {
        "scales": (scales if repeats == 1 else np.repeat(scales, repeats, 1)).astype(dtype, copy=False),
        "minima": (biases if repeats == 1 else np.repeat(biases, repeats, 1)).astype(dtype, copy=False),
        "codes": codes.stored(),
    }
    shape = (len(codes.packed), codes.length)
    order = component_layout(fmt, shape, (1,))
    q = QuantizedArray({key: np.ascontiguousarray(parts[key]) for key in order}, fmt, shape, (1,))
    return q if scales.dtype.itemsize == 2 or _is_same(q, codes, scales, biases, group) else None


def _points(scales: Array, biases: Array, bits: int) -> Array | None:
    """Return the zero points z with bias = -scale * z; None if some bias has none."""
    points = np.empty(scales.shape, np.uint8)
    step = max(1, CHUNK // scales.shape[1])
    for first in range(0, len(scales), step):  # float64 copies of all would be larger than the weight
        some = slice(first, first + step)
        wide, low = scales[some].astype(np.float64), biases[some].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(wide != 0, -low / wide, 0)
        fits = (found == np.rint(found)) & (found >= 0) & (found < 1 << bits) & (-found * wide == low)
        if np.signbit(wide).any() or not fits.all():
            return None
        points[some] = found
    return points


def _symmetric(q: QuantizedArray, codes: Codes, points: Array) -> QuantizedArray:
    """Return an array as a symmetric one if all zero points are the middle and the lowest code is not used."""
    fmt: Any = q.format
    middle = 1 << (codes.bits - 1)
    if not (points == middle).all() or codes.holds(0):
        return q
    symmetric = Int(fmt.bits, fmt.group, True, fmt.scale)
    return array_of(symmetric, codes._replace(flip=codes.flip ^ middle), q.components["scales"], None)


def _is_same(q: QuantizedArray, codes: Codes, scales: Array, biases: Array, group: int) -> bool:
    step = max(1, CHUNK // codes.length)
    firsts = range(0, len(codes.packed), step)
    return all(
        np.array_equal(q[i : i + step].dequantize(), _values(codes, scales, biases, group, slice(i, i + step)))
        for i in firsts
    )


def _values(codes: Codes, scales: Array, biases: Array, group: int, some: slice) -> Array:
    rows = codes._replace(packed=np.ascontiguousarray(codes.packed[some]))
    values = rows.unpacked().astype(np.float32).reshape(len(rows.packed), -1, group)
    with np.errstate(over="ignore"):
        values *= scales[some].astype(np.float32)[:, :, None]
        values += biases[some].astype(np.float32)[:, :, None]
    return values.reshape(len(rows.packed), -1)


def _is_stack(q: Packed) -> bool:
    return len(q.shape) == 3 and q.axis == (2,) and 0 not in q.shape


def _floats_of(prefix: str, tensors: Mapping[str, Array], mode: str) -> Weight:
    found, lead = _as_rows(prefix, tensors, ("weight", "scales"))
    stored, scales = found["weight"], found["scales"]
    fmt: Format = MX("fp4") if mode == "mxfp4" else NVFP4()
    group = 32 if mode == "mxfp4" else 16
    if stored.ndim != 2 or stored.dtype != np.uint32 or 0 in stored.shape:
        raise WrongValue(f"{prefix}.weight is {stored.dtype} {stored.shape}, expected uint32 (out, in / 8)")
    shape = (len(stored), 8 * stored.shape[1])
    if scales.dtype != np.uint8 or scales.shape != (shape[0], shape[1] // group) or shape[1] % group:
        wanted = f"uint8 {(shape[0], shape[1] // group)} of groups of {group}"
        raise WrongValue(f"{prefix}.scales is {scales.dtype} {scales.shape}, expected {wanted}")
    parts = {"codes": np.ascontiguousarray(stored).view(np.uint8), "scales": scales}
    if mode == "nvfp4":
        parts["coarse"] = np.ones((), np.float32)
    return _made(QuantizedArray(parts, fmt, shape, (1,)), lead)


def _made(q: QuantizedArray, lead: tuple[int, ...] | None) -> Weight:
    """Return the weight of a matrix of all rows: a stack if there are several matrices."""
    if lead is not None:
        q = QuantizedArray(dict(q.components), q.format, (*lead, q.shape[1]), (2,), q.source_dtype)
    return of_array(q)


class MLX(Layout):
    name = "mlx"
    marks = (".scales",)
    ends = (".weight", ".scales", ".biases")
    signs = ((".scales", ".weight"),)
    config_key = "quantization"
    has_several = True
    stacks = True
    reaches_lowest = True
    keeps = ()
    reads_conv1d = True
    examples = ("int4-g64-f16", "mxfp4")

    def fits(self, reader: Tensors, prefix: str, dtypes: Sequence[str]) -> bool:
        return dtypes[-1] == "uint32"

    def depends_on_values(self, fmt: object) -> bool:
        """Tell whether only some arrays of a format can be stored: scale x code + bias is rounded twice."""
        return isinstance(fmt, Int | Affine) and fmt.scale == "f32" and fmt.bits in BITS and fmt.group in GROUPS

    def shapes(self, name: str, q: Packed) -> Parts:
        if _is_stack(q):
            matrix = (q.shape[0] * q.shape[1], q.shape[2])
            parts = self.shapes(name, as_matrix(q) if isinstance(q, QuantizedArray) else _Rows(q.format, matrix, (1,)))
            return {key: (dtype, (*q.shape[:2], shape[1])) for key, (dtype, shape) in parts.items()}
        mode, fmt = _mode_of(q.format), q.format
        if self.depends_on_values(fmt) and not isinstance(q, QuantizedArray):
            refuse(name, q, self.name, f"{fmt}-f16 is the nearest, because sums of float32 are rounded")
        if mode is None or q.shape[-1] % fmt.group or q.shape[-1] * fmt.bits % 32:
            refuse(name, q, self.name, "int4-g64-f16, or mxfp4, with rows of whole groups is the nearest")
        prefix, (rows, count) = prefix_of(name, q, self.name), q.shape
        found: Parts = {f"{prefix}.weight": ("uint32", (rows, count * fmt.bits // 32))}
        if mode != "affine":
            return found | {f"{prefix}.scales": ("uint8", (rows, count // fmt.group))}
        dtype = _dtype_of(fmt)
        return found | {f"{prefix}.{part}": (dtype, (rows, count // fmt.group)) for part in ("scales", "biases")}

    def tensors(self, name: str, q: QuantizedArray) -> dict[str, Array]:
        self.shapes(name, q)  # refuses
        if _is_stack(q):
            return self.stacked(name, self.tensors(name, as_matrix(q)), q.shape)
        prefix, mode = prefix_of(name, q, self.name), _mode_of(q.format)
        fmt: Any = q.format
        if mode != "affine":
            coarse = q.components.get("coarse")
            if coarse is not None and coarse != 1:
                raise WrongValue(f"save: tensor {quoted(name)}: the scale of the tensor is {float(coarse):.9g}: "
                                 f"{self.name} has none")  # fmt: skip
            return {
                f"{prefix}.weight": q.components["codes"].view(np.uint32),
                f"{prefix}.scales": q.components["scales"],
            }
        dtype = numpy_dtype(_dtype_of(fmt))
        stored = np.empty((q.shape[0], words(q.shape[1], fmt.bits)), np.uint32)
        scales = np.empty((q.shape[0], q.shape[1] // fmt.group), dtype)
        biases = np.empty_like(scales)
        step = max(1, CHUNK // q.shape[1])
        for first in range(0, q.shape[0], step):
            some = slice(first, first + step)
            rows = integers_of(q[some])
            offset = np.int16(1 << (rows.bits - 1) if fmt.form.signed else 0)
            exact = -rows.scales * (rows.zeros + offset) if rows.minima is None else rows.minima
            with np.errstate(over="ignore"):
                scales[some], biases[some] = rows.scales, exact
            if not (np.array_equal(scales[some], rows.scales) and np.array_equal(biases[some], exact)):
                raise WrongValue(f"save: tensor {quoted(name)}: a scale or bias is beyond {dtype}")
            unsigned = (rows.codes + offset).astype(np.uint8)
            stored[some] = pack(unsigned, rows.bits).view(np.uint32)
            if self.depends_on_values(fmt):
                kept = Codes(pack(unsigned, rows.bits), rows.bits, q.shape[1])
                found = _values(kept, scales[some], biases[some], fmt.group, slice(None))
                if not np.array_equal(found, q[some].dequantize()):
                    what = "scale x code + bias is rounded to other values in float32: scales of float16 are exact"
                    raise WrongValue(f"save: tensor {quoted(name)}: {what}")
        return {f"{prefix}.weight": stored, f"{prefix}.scales": scales, f"{prefix}.biases": biases}

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        """Return the configuration of most layers, and those of all other layers."""
        declared = {
            name: {"group_size": fmt.group, "bits": fmt.bits, "mode": _mode_of(fmt)} for name, fmt in formats.items()
        }
        kinds = list(declared.values())
        usual = max(kinds, key=kinds.count)
        others = {name.removesuffix(".weight"): kind for name, kind in declared.items() if kind != usual}
        return {**usual, **others}

    def files(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"quantization": config}

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        mode = _said(prefix, config)[2]
        if mode != "affine":
            return _floats_of(prefix, tensors, mode)
        codes, scales, biases, group, lead = _affine(prefix, tensors, config)
        if (q := with_biases(codes, scales, biases, group)) is not None:
            return _made(q, lead)
        values = _values(codes, scales, biases, group, slice(None))
        declared = f"{codes.bits} bits and {scales.dtype.name} biases in groups of {group}"
        values = values if lead is None else values.reshape(*lead, -1)
        nbytes = codes.packed.nbytes + scales.nbytes + biases.nbytes
        why = f"{prefix}.biases: biases that are not multiples of the scales {no_format(self.name)}"
        return of_values(values, declared, nbytes, why)
