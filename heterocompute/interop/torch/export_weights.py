"""A packed weight as operators of ONNX: codes, scales, and what makes values of them.

    integers, and the floats of 8 bits that ONNX has    DequantizeLinear(codes, scales, zero points)
    all other elements                                  Gather(levels, Cast(codes)) * Gather(scales, groups)

A product of a level and a scale in two levels is float64, as here, and rounded at the end. The values of a weight are
compared with those that the operators have by their definition, before anything is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.texts import quoted
from ...files.layouts.onnx.model import packed_bits
from ...formats import Integer, has_pattern, is_own
from ...products.columns import from_columns
from ...products.grid_of import grid_of
from .modules import original

__all__ = ["Stored", "original", "stored_weight"]

Array = np.ndarray[Any, Any]

FLOATS = {"e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"}  # for which onnxruntime has DequantizeLinear
CATALOGUE = {"fp8_e4m3fn": "e4m3fn", "fp8_e5m2": "e5m2"}
EXACT = 2.0**-22  # relative: integers with scales in two levels have products that are rounded twice


@dataclass(frozen=True)
class Stored:
    """A weight as operators of ONNX compute it.

    Attributes
    ----------
    kind : str
        Type of the codes in ONNX.
    codes : ndarray
        In the array's shape.
    scale : ndarray
        Scale of each value, in the array's shape.
    points : ndarray or None
        Zero point of each value.
    levels : ndarray or None
        Value of each code, if a table has them.
    group : int or None
        Consecutive values along the last reduction axis that share a scale.
    """

    kind: str
    codes: Array
    scale: Array
    points: Array | None
    levels: Array | None
    group: int | None

    def values(self) -> Array:
        """Return the values that the operators compute."""
        if self.levels is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                found: Array = (self.levels[self.codes] * self.scale).astype(np.float32)
            return found
        if self.kind.startswith("FLOAT"):
            import ml_dtypes  # optional, as onnx needs it

            codes = self.codes.view(getattr(ml_dtypes, f"float8_{self.kind[6:].lower()}")).astype(np.float32)
        else:
            codes = self.codes.astype(np.float32)
        return np.asarray((codes if self.points is None else codes - self.points.astype(np.float32)) * self.scale)

    def nodes(self, onnx: Any, name: str, q: QuantizedArray, module: Any) -> tuple[list[Any], list[Any]]:
        """Return nodes with the output `name`, in the shape of PyTorch's weight, and the constants that they read."""
        made = _Constants(onnx, name)
        transposed, axis = int(getattr(module, "transposed", False)), q.axis[-1]
        codes = original(np.ascontiguousarray(self.codes), module)
        first: list[Any] = [slice(None)] * q.ndim
        for a in q.axis:
            first[a] = slice(None, None, self.group) if self.group and a == axis else slice(None) if self.group else 0
        parts = {"scale": self.scale[tuple(first)]}
        if self.points is not None:
            parts["zero_point"] = self.points[tuple(first)]
        if self.group:
            parts = {key: original(np.ascontiguousarray(part), module) for key, part in parts.items()}
        if self.levels is None:
            blocks = {"axis": transposed}
            if self.group:
                blocks = {"axis": axis - transposed, "block_size": self.group}
            inputs = [made.of("codes", codes, self.kind), made.of("scale", parts["scale"])]
            if self.points is not None:
                inputs.append(made.of("zero_point", parts["zero_point"], self.kind))
            return [made.node("DequantizeLinear", inputs, name, **blocks)], made.tensors
        scale = parts["scale"]
        if not self.group:
            scale = scale.reshape([-1 if a == transposed else 1 for a in range(codes.ndim)])
        axis -= transposed
        places = made.step("Cast", [made.of("codes", codes, self.kind)], to=onnx.TensorProto.INT32)
        steps = [made.step("Gather", [made.of("levels", self.levels), places])]
        if (self.scale != 1).any():
            held = made.of("scale", scale)
            if self.group and scale.shape[axis] > 1:
                groups = np.arange(codes.shape[axis], dtype=np.int32) // np.int32(self.group)
                held = made.step("Gather", [held, made.of("groups", groups)], axis=axis)
            steps.append(made.step("Mul", [steps[-1], held]))
        if self.levels.dtype == np.float64:
            made.step("Cast", [steps[-1]], to=onnx.TensorProto.FLOAT)
        made.made[-1].output[0] = name
        return made.made, made.tensors


class _Constants:
    """The constants and nodes of a weight."""

    def __init__(self, onnx: Any, name: str) -> None:
        self.onnx, self.name = onnx, name
        self.tensors: list[Any] = []
        self.made: list[Any] = []

    def of(self, key: str, values: Array, kind: str | None = None) -> str:
        """Add a constant; `kind`: type of codes."""
        usual = {"float32": "FLOAT", "float64": "DOUBLE", "int32": "INT32"}
        dtype = getattr(self.onnx.TensorProto, kind or usual[values.dtype.name])
        few = kind is not None and kind.endswith("INT4")
        raw = packed_bits(np.ascontiguousarray(values), 4) if few else np.ascontiguousarray(values).tobytes()
        held = f"{self.name}.{key}"
        self.tensors.append(self.onnx.helper.make_tensor(held, dtype, values.shape, raw, raw=True))
        return held

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> Any:
        return self.onnx.helper.make_node(kind, inputs, [output], **attributes)

    def step(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node in a chain; return its output."""
        output = f"{self.name}.{len(self.made)}"
        self.made.append(self.node(kind, inputs, output, **attributes))
        return output


def stored_weight(name: str, q: QuantizedArray) -> Stored:
    """Return a weight as operators of ONNX compute it.

    Raises
    ------
    ValueError
        No operators have its values; the message begins with the name.
    """
    fmt = q.format
    group = fmt.group
    if has_pattern(fmt) and group is not None:  # the groups of a pattern are of nonzeros
        group = group // fmt.n * fmt.m
    # rows are blocks too: onnxruntime would round x in a matmul with a weight that has one scale per row
    group = group or (q.shape[1] if q.ndim == 2 else None)
    exact = q.dequantize()
    with contextlib.suppress(ValueError):  # scales that no grid has, as those of fp16 and of ggml's blocks with minima
        for one in _forms(q, group):
            found = one.values()
            near = EXACT * np.abs(exact) if one.levels is None else 0.0
            with np.errstate(invalid="ignore"):
                if ((np.abs(found - exact) <= near) | (np.isnan(found) & np.isnan(exact)) | (found == exact)).all():
                    return one
    raise WrongValue(
        f"export_onnx: {quoted(name)} is {fmt}, which no operators of ONNX decode; expected a format such as int4-g32, "
        "e4m3fn-row or nf4-g64"
    )


def _forms(q: QuantizedArray, group: int | None) -> Iterator[Stored]:
    """Yield the forms of a weight that could have its values, the smallest first."""
    fmt, codes = q.format, q.codes()
    base: Any = fmt.base if has_pattern(fmt) else fmt
    element: Any
    form, element = fmt.form, (base.element if is_own(base) else None)
    points: Array | None = None
    if is_own(base) or has_pattern(fmt) or form.codes != "integer":
        scale, points, codes = _of_grid(q, codes)
    else:  # blocks of ggml have no grid
        scale = q.scales_expanded()
        points = q.zero_points_expanded() if form.zero_points else None
    scale = _in_blocks(scale, q.axis, group)
    single = scale.astype(np.float32)
    if form.bits > 16:
        return
    bits = codes.astype(np.uint16) & np.uint16((1 << form.bits) - 1)
    few = "4" if form.bits <= 4 else "8" if form.bits <= 8 else "16"
    if form.codes == "integer" or isinstance(element, Integer):
        signed, fraction = (
            (form.signed, form.fraction_bits) if element is None else (element.signed, element.fraction_bits)
        )
        half = (1 << (form.bits - 1)) if signed else 0
        whole = ((bits.astype(np.int32) ^ half) - half).astype(f"{'' if signed else 'u'}int{max(int(few), 8)}")
        points = None if points is None else _in_blocks(points, q.axis, group).astype(np.uint8)
        yield Stored(f"{'' if signed else 'U'}INT{few}", whole, np.ldexp(single, -fraction), points, None, group)
    text = CATALOGUE.get(str(base).partition("-")[0], "") if element is None else str(element)
    if text in FLOATS:
        yield Stored(f"FLOAT8{text.upper()}", codes.astype(np.uint8), single, None, None, group)
    levels = _levels(base)
    if levels is None:
        return
    bits = bits if form.bits > 8 else bits.astype(np.uint8)
    yield Stored(f"UINT{few}", bits, single, None, levels.astype(np.float32), group)
    yield Stored(f"UINT{few}", bits, scale.astype(np.float64), None, levels, group)


def _in_blocks(parts: Array, axis: tuple[int, ...], group: int | None) -> Array:
    """Return the first scale or zero point of each block for all values of it, as operators read them."""
    if not group:
        first = tuple(slice(1) if a in axis else slice(None) for a in range(parts.ndim))
        return np.broadcast_to(parts[first], parts.shape)
    starts = np.arange(parts.shape[axis[-1]]) // group * group
    return np.take(parts, starts, axis=axis[-1])


def _levels(fmt: Any) -> Array | None:
    """Return the value of each code of a format without a pattern, or None: float32, but of logs float64."""
    if not is_own(fmt):
        return np.array(fmt.form.levels) if fmt.form.levels else None
    levels = fmt.element.table(fmt.saturate).levels
    with np.errstate(over="ignore"):
        return levels if fmt.element.kind == "log" else np.asarray(levels.astype(np.float32).astype(np.float64))


def _of_grid(q: QuantizedArray, codes: Array) -> tuple[Array, Array | None, Array]:
    """Return scales, zero points and codes of all values. Values that a pattern removes have the code of 0."""
    grid = grid_of(q)
    scale = from_columns(grid.scale[grid.group], q.shape, q.axis)
    points = None if grid.zero is None else from_columns(grid.zero[grid.group], q.shape, q.axis)
    if grid.pattern is not None:
        zeros: Any = 0 if points is None else points
        if grid.thresholds is not None and grid.stored is not None:
            zeros = grid.stored[(grid.thresholds < 0).sum(axis=0)]
        kept = from_columns(grid.pattern.mask, q.shape, q.axis)
        codes = np.where(kept, codes, np.asarray(zeros).astype(codes.dtype))
    return scale, points, codes
