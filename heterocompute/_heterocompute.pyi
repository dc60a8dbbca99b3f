"""The C core as Python sees it (csrc/python/). Arguments are checked by ops and arrays before they come here."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Run: TypeAlias = tuple[int, int]  # (mask of instruction sets, threads)
_Format: TypeAlias = tuple[Any, ...]  # (family, *core_params())
_Clip: TypeAlias = tuple[int, float]  # (kind, value) of hc_clip
_Packed: TypeAlias = tuple[_Format, tuple[int, ...], tuple[int, ...], Mapping[str, NDArray[Any]]]
_Floats: TypeAlias = NDArray[Any]  # float16, float32, float64; uint16 stands for bfloat16
_Operand: TypeAlias = _Floats | _Packed

def formats() -> dict[str, str]: ...
def check_format(params: _Format, /) -> None: ...
def layout(
    params: _Format, shape: tuple[int, ...], axes: tuple[int, ...], /
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], bool]]: ...
def quantize(run: _Run, x: _Floats, clip: _Clip | None, packed: _Packed, /) -> None: ...
def dequantize(run: _Run, packed: _Packed, out: _Floats, /) -> None: ...
def fake_quantize(
    run: _Run, x: _Floats, params: _Format, axes: tuple[int, ...], clip: _Clip | None, out: _Floats, /
) -> None: ...
def compare(run: _Run, x: _Floats, y: _Floats, /) -> tuple[float, float, float, float, float]: ...
def matmul(
    run: _Run,
    a: _Operand,
    b: _Operand,
    activations: _Format | None,
    bias: _Floats | None,
    out: _Floats,
    /,
) -> None: ...
def conv2d(
    run: _Run,
    x: _Floats,
    w: _Operand,
    bias: _Floats | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    activations: _Format | None,
    out: _Floats,
    /,
) -> None: ...
def limit(run: _Run, what: str, amount: int | NDArray[Any], /) -> tuple[float, int, str]: ...
def kernels() -> list[tuple[str, str, int]]: ...
def cpu_isa() -> int: ...
def isa_mask(name: str, /) -> int: ...
def isa_names(mask: int, /) -> list[str]: ...
def compiler() -> str: ...
def blas_open(
    path: str | bytes | PathLike[str], gemm: str, gemv: str, set_threads: str, config: str, /
) -> str: ...
def blas_sgemm(threads: int, a: _Floats, b: _Floats, out: _Floats, /) -> bool: ...
def from_dlpack(capsule: object, /) -> tuple[NDArray[Any], bool]: ...
