"""OpenBLAS called directly: sgemm and sgemv of the library that the package itself uses."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from ..base.runtime import named_blas

Array = np.ndarray[Any, Any]

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112
FLOAT_POINTER = ctypes.POINTER(ctypes.c_float)


class Blas:
    """The functions that benchmarks compare with; the thread count is set before each call."""

    def __init__(self, path: str, prefix: str) -> None:
        library = ctypes.CDLL(path)
        self._gemm = getattr(library, f"{prefix}cblas_sgemm")
        self._gemv = getattr(library, f"{prefix}cblas_sgemv")
        self._set_threads = getattr(library, f"{prefix}openblas_set_num_threads", None)
        integer, real = ctypes.c_int, ctypes.c_float
        self._gemm.argtypes = [integer] * 6 + [real, FLOAT_POINTER, integer, FLOAT_POINTER, integer, real]
        self._gemm.argtypes += [FLOAT_POINTER, integer]
        self._gemv.argtypes = [integer] * 4 + [real, FLOAT_POINTER, integer, FLOAT_POINTER, integer, real]
        self._gemv.argtypes += [FLOAT_POINTER, integer]
        self._gemm.restype = self._gemv.restype = None

    def _limit(self, threads: int) -> None:
        if self._set_threads is not None:
            self._set_threads(threads)

    def gemm(self, threads: int, x: Array, w: Array, out: Array) -> None:
        """out (m, n) = x (m, k) @ w (n, k).T; all C-ordered float32."""
        self._limit(threads)
        (m, k), n = x.shape, len(w)
        self._gemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1.0, _data(x), k, _data(w), k, 0.0, _data(out), n)

    def gemv(self, threads: int, w: Array, x: Array, out: Array) -> None:
        """out (n,) = w (n, k) @ x (k,); all C-ordered float32."""
        self._limit(threads)
        n, k = w.shape
        self._gemv(ROW_MAJOR, NO_TRANS, n, k, 1.0, _data(w), k, _data(x), 1, 0.0, _data(out), 1)


def _data(array: Array) -> Any:
    return array.ctypes.data_as(FLOAT_POINTER)


def find_blas() -> Blas | None:
    """Return the BLAS of HETEROCOMPUTE_BLAS or of scipy_openblas32; None if there is neither."""
    if path := named_blas():
        return Blas(path, "")
    try:
        import scipy_openblas32  # 30 ms
    except ImportError:
        return None
    library = os.path.join(scipy_openblas32.get_lib_dir(), scipy_openblas32.get_library(fullname=True))
    return Blas(library, "scipy_")
