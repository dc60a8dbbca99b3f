"""Arrays of other libraries: valid and refused capsules, and the owner that frees the memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals

import heterocompute as hc
from heterocompute.arrays.dense import as_array

FLOAT, BFLOAT, BOOL, INT, UINT = 2, 4, 6, 0, 1


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Foreign:
    """An array of a library that writes its own capsules; counts the calls that free one."""

    def __init__(self, array: np.ndarray[Any, Any], code: int = FLOAT, **fields: Any) -> None:
        self.array, self.freed = array, 0
        shape = fields.pop("shape", array.shape)
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.tensor = _Tensor(
            data=array.ctypes.data,
            device=(1, 0),
            ndim=len(shape),
            code=code,
            bits=fields.pop("bits", 8 * array.itemsize),
            lanes=fields.pop("lanes", 1),
            shape=self.shape,
            deleter=type(_Tensor().deleter)(self._free),
        )

    def _free(self, _: Any) -> None:
        self.freed += int("1")  # Python code, which fails if an exception is pending

    def __dlpack__(self, **options: object) -> object:
        return _new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_a_capsule_is_read_and_freed_once() -> None:
    x = reals((5, 32), 1)
    for array, code in ((x, FLOAT), (x.astype(np.float64), FLOAT), (x.astype(np.float16), FLOAT)):
        foreign = Foreign(array, code)
        view = as_array(foreign, "x")
        assert np.shares_memory(view, array)
        assert np.array_equal(view, array)
        del view
        assert foreign.freed == 1
        assert hc.quantize(foreign, "int8") == hc.quantize(array, "int8")
        assert foreign.freed == 2
    half = Foreign((x.view(np.uint32) >> 16).astype(np.uint16), BFLOAT)
    assert hc.quantize(half, "int8").source_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("code", "bits"),
    [*((FLOAT, bits) for bits in (0, 8, 15, 17, 31, 33, 63, 65, 128)), (BFLOAT, 17), (BFLOAT, 32), (3, 32), (5, 64)],
)
def test_widths_that_no_type_has_are_refused(code: int, bits: int) -> None:
    foreign = Foreign(np.zeros((4, 8)), code, bits=bits)
    with bad_argument(TypeError, "w", "type"):
        hc.quantize(foreign, "int8")


@pytest.mark.parametrize(("code", "bits"), [(INT, 33), (UINT, 9), (BOOL, 1), (BOOL, 16), (INT, 4)])
def test_so_are_those_of_integers(code: int, bits: int) -> None:
    with bad_argument(TypeError, "a", "type"):
        hc.encode_bitmap(Foreign(np.zeros((4, 8)), code, bits=bits))
    assert hc.encode_bitmap(Foreign(np.arange(4, dtype=np.int32), INT)).to_dense().tolist() == [0, 1, 2, 3]
    with bad_argument(TypeError, "w", "type"):
        hc.quantize(Foreign(np.zeros(8, np.float32), lanes=2), "int8")


def test_memory_is_freed_while_an_exception_is_on_its_way() -> None:
    foreign = Foreign(np.zeros(8, np.float32), shape=(2, -4))  # NumPy refuses it after the memory was taken over
    with bad_argument(TypeError, "w", "shape"):
        hc.quantize(foreign, "int8")
    assert foreign.freed == 1


def test_more_dimensions_than_the_core_has_are_named() -> None:
    x = np.ones((1,) * 39 + (4,), np.float32)
    w, q = np.ones((4, 4), np.float32), hc.quantize(np.ones((4, 4), np.float32), "int8")
    calls = {
        "quantize: w": lambda a: hc.quantize(a, "int8"),
        "fake_quantize: w": lambda a: hc.fake_quantize(a, "2:4"),
        "prune: w": lambda a: hc.prune(a, "50%"),
        "linear: x": lambda a: hc.linear(a, w),
        "linear: bias": lambda a: hc.linear(w, w, a),
        "matmul: a": lambda a: hc.matmul(a, q.T),
        "matmul: b": lambda a: hc.matmul(w, a),
        "error: w": lambda a: hc.error(a, a),
        "permute_channels: w": lambda a: hc.permute_channels(a, "2:4"),
        "emulate.matmul: a": lambda a: hc.emulate.matmul(a, w, accumulator="fp32"),
    }
    for name, call in calls.items():
        for given in (x, x.astype(np.float64), Foreign(x)):
            with pytest.raises(ValueError, match=f"^{name} has 40 dimensions, at most 32 are possible$"):
                call(given)
    with bad_argument(ValueError, "a", "shape"):
        hc.emulate.matmul(x.astype(np.int8), w.astype(np.int8))
    most = x.reshape((1,) * 31 + (4,))
    assert hc.linear(most, w).shape == most.shape
    assert hc.quantize(most, "int8").dequantize().shape == most.shape


class Negated(Foreign):
    """Like torch's views whose memory has the negated values (the imaginary part of a conjugate)."""

    def is_neg(self) -> bool:
        return True


class Resolvable(Negated):
    def resolve_neg(self) -> Foreign:
        self.resolved = Foreign(-self.array)  # its memory lives as long as this object, independent of the capsule
        return self.resolved


def test_negated_memory_is_resolved_or_refused() -> None:
    x = reals((4, 8), 2)
    assert hc.quantize(Resolvable(x), "int8") == hc.quantize(-x, "int8")
    assert np.array_equal(hc.encode_bitmap(Resolvable(x)).to_dense(), -x)
    for call in (lambda a: hc.quantize(a, "int8"), lambda a: hc.linear(a, np.ones((2, 8), np.float32))):
        with pytest.raises(TypeError, match=r"resolve_neg\(\)"):
            call(Negated(x))
    with bad_argument(TypeError, "a", "type"):
        hc.encode_bitmap(Negated(x))


def test_so_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    t = torch.from_numpy(reals((4, 8), 3))
    for negated in (torch._neg_view(t), torch.complex(t, t).conj().imag):
        assert negated.is_neg()
        assert hc.quantize(negated, "int8") == hc.quantize(-t, "int8")
        assert np.array_equal(hc.encode_bitmap(negated).to_dense(), -t.numpy())
        assert np.array_equal(hc.linear(t, negated), hc.linear(t, (-t).numpy()))
    integers = torch.arange(1, 9, dtype=torch.int8).reshape(2, 4)
    assert hc.emulate.matmul(integers, integers.T).tolist() == [[30, 70], [70, 174]]
    assert hc.emulate.matmul(torch._neg_view(integers), integers.T).tolist() == [[-30, -70], [-70, -174]]
