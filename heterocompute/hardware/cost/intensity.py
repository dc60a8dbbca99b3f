"""Arithmetic intensity: operations for each byte of traffic, if every operand moves once.

One multiply-add is two operations. `dtype` is one type for all operands, or (first operand, weights, output).
"""

from __future__ import annotations

from ...base.errors import WrongType, WrongValue, shown
from ...base.values import as_list, check_count, check_flag, check_number
from ..chips.chip import dtype_bits
from ..network.graph import check_shape
from ..network.layers import Conv2d

__all__ = ["conv2d", "conv2d_reuse", "gemm", "gemv", "im2col_copies"]


def __dir__() -> list[str]:
    return __all__


DType = str | tuple[str, str, str]


def gemm(m: int, n: int, k: int, dtype: DType = "fp16") -> float:
    """Compute the intensity of an m x k times k x n matmul: 2mnk / (bytes of mk, kn and mn).

    Each element of the first operand is used n times, each of the second m times.

    Parameters
    ----------
    m, n, k : int
    dtype : str or tuple of str, optional
        Type of all operands, or of (first, second, output).

    Returns
    -------
    float
        Operations per byte.

    Raises
    ------
    ValueError
        A size is not positive, or the type is unknown.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.intensity.gemm(4096, 4096, 4096, "fp16"), 1)
    1365.3
    """
    m, n, k = (check_count("intensity.gemm", name, value) for name, value in (("m", m), ("n", n), ("k", k)))
    a, b, c = _bits(dtype)
    return 2 * m * n * k * 8 / (a * m * k + b * k * n + c * m * n)


def gemv(m: int, k: int, dtype: DType = "fp16", density: float = 1.0, index_bits: float = 0.0) -> float:
    """Compute the intensity of an m x k matrix times a vector; each element of the matrix is used once.

    A sparse matrix is as memory-bound as a dense one: its nonzeros are also used once, and each has an index.

    Parameters
    ----------
    m, k : int
        Rows and columns of the matrix.
    dtype : str or tuple of str, optional
        Type of all operands, or of (vector, matrix, output).
    density : float, optional
        Share of the matrix that is stored. Only stored values count as operations.
    index_bits : float, optional
        Bits per stored value in addition: 32 for CSR with 32-bit columns, 2 for 2:4.

    Returns
    -------
    float
        Operations per byte; about 1 for 16-bit types, whatever the size.

    Raises
    ------
    ValueError
        A size is not positive, the type is unknown, the density is outside 0 to 1, or the bits are negative.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.intensity.gemv(4096, 4096, "fp16"), 3)
    1.0
    >>> round(hw.intensity.gemv(4096, 4096, "fp16", density=0.1, index_bits=32), 3)
    0.333
    """
    m, k = check_count("intensity.gemv", "m", m), check_count("intensity.gemv", "k", k)
    density = check_number("intensity.gemv", "density", density, high=1.0)
    index_bits = check_number("intensity.gemv", "index_bits", index_bits, closed=True)
    a, b, c = _bits(dtype)
    return 2 * m * k * density * 8 / (a * k + (b + index_bits) * m * k * density + c * m)


def conv2d(
    layer: Conv2d,
    input_shape: tuple[int, int, int],
    dtype: DType = "fp16",
    batch: int = 1,
    unrolled: bool = False,
) -> float:
    """Compute the intensity of a convolution whose input, filters and output move once.

    Parameters
    ----------
    layer : Conv2d
    input_shape : (channels, height, width)
    dtype : str or tuple of str, optional
        Type of all operands, or of (input, filters, output).
    batch : int, optional
    unrolled : bool, optional
        Copy the input into a matrix in memory first (im2col): it is read, the matrix is written and read.

    Returns
    -------
    float
        Operations per byte.

    Raises
    ------
    ValueError
        The shapes do not match, the batch is not positive, or the type is unknown.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> layer = hw.layers.Conv2d(64, 64, 3, padding=1, bias=False)
    >>> direct = hw.intensity.conv2d(layer, (64, 56, 56), "fp16")
    >>> round(direct, 1), round(hw.intensity.conv2d(layer, (64, 56, 56), "fp16", unrolled=True), 1)
    (263.8, 28.5)
    """
    batch = check_count("intensity.conv2d", "batch", batch)
    check_flag("intensity.conv2d", "unrolled", unrolled)
    if not isinstance(layer, Conv2d):
        raise WrongType(f"intensity.conv2d: layer is {shown(layer)}, expected a Conv2d")
    shape = check_shape(input_shape)
    a, b, c = _bits(dtype)
    output = layer.output_shape(shape)
    groups, positions, _, k = layer.gemm(shape)
    elements = shape[0] * shape[1] * shape[2]
    moved = elements + 2 * groups * positions * k if unrolled else elements
    traffic = a * batch * moved + b * layer.weight_params + c * batch * output[0] * output[1] * output[2]
    macs: int = layer.macs(shape)
    return 2 * batch * macs * 8 / traffic


def conv2d_reuse(filters: int, kernel_size: tuple[int, int], stride: int = 1) -> float:
    """Compute how often an inner input element is used: R·S·K / stride^2.

    Parameters
    ----------
    filters : int
    kernel_size : (int, int)
    stride : int, optional

    Returns
    -------
    float

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.intensity.conv2d_reuse(64, (3, 3)), hw.intensity.conv2d_reuse(64, (3, 3), stride=2)
    (576.0, 144.0)
    """
    return im2col_copies(kernel_size, stride) * check_count("intensity.conv2d_reuse", "filters", filters)


def im2col_copies(kernel_size: tuple[int, int], stride: int = 1) -> float:
    """Compute how many copies of an inner element im2col stores: R·S / stride^2.

    Parameters
    ----------
    kernel_size : (int, int)
    stride : int, optional

    Returns
    -------
    float

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.intensity.im2col_copies((3, 3)), hw.intensity.im2col_copies((7, 7), stride=2)
    (9.0, 12.25)
    """
    pair = as_list(kernel_size, "intensity.im2col_copies: kernel_size", "two positive integers")
    if len(pair) != 2:
        raise WrongValue(
            f"intensity.im2col_copies: kernel_size is {shown(kernel_size)}, expected two positive integers"
        )
    rows, columns = (check_count("intensity.im2col_copies", "kernel_size", one) for one in pair)
    return rows * columns / check_count("intensity.im2col_copies", "stride", stride) ** 2


def _bits(dtype: DType) -> tuple[int, int, int]:
    if isinstance(dtype, tuple):
        if len(dtype) != 3:
            raise WrongValue(f"dtype is {shown(dtype)}, expected one type or three: first operand, weights, output")
        a, b, c = (dtype_bits(one) for one in dtype)
        return a, b, c
    bits = dtype_bits(dtype)
    return bits, bits, bits
