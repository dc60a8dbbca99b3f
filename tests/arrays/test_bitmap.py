"""Bitmaps: every type is stored exactly, NumPy's packbits is the definition, and invalid arguments are refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument, guarded_copy, isas

import heterocompute as hc

DTYPES = [
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    np.bool_,
    *(np.dtype(kind + size) for kind in "iu" for size in "1248"),
]
SIZES = [0, 1, 7, 8, 9, 63, 64, 65, 1000, 32768, 32769, 70_001]


def sample(size: int, dtype: Any, density: float, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return random bits, which include NaN and subnormals for floats."""
    rng = np.random.default_rng(seed)
    wide = np.dtype(dtype).itemsize
    raw = rng.integers(0, 256, (size, wide), np.uint8)
    if np.dtype(dtype) == np.bool_:
        raw &= 1
    raw[rng.random(size) >= density] = 0
    return raw.reshape(-1).view(dtype)


@pytest.mark.parametrize("isa", isas("bitmap_"))
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.sweep(every=3)
def test_what_is_encoded_comes_back_to_the_bit(dtype: Any, isa: str) -> None:
    for seed, size in enumerate(SIZES):
        for density in (0.0, 0.02, 0.5, 1.0):
            a = sample(size, dtype, density, seed)
            for threads in (1, 2):
                with hc.use(isa=isa, threads=threads), guarded_copy(a) as guarded:
                    b = hc.encode_bitmap(guarded)
                    stored = a.view(f"u{a.itemsize}") != 0
                    assert b.components["bitmap"].tobytes() == np.packbits(stored, bitorder="little").tobytes()
                    assert b.components["values"].tobytes() == a[stored].tobytes() and b.dtype == a.dtype
                    with guarded_copy(b.components["values"]) as v, guarded_copy(b.components["bitmap"]) as m:
                        assert hc.BitmapArray(m, v, a.shape).to_dense().tobytes() == a.tobytes()
            assert b.nbytes == -(-size // 8) + int(stored.sum()) * a.itemsize


def test_minus_zero_is_no_zero() -> None:
    a = np.float32([0.0, -0.0, 1.0])
    b = hc.encode_bitmap(a)
    assert b.components["bitmap"].tolist() == [6] and len(b.components["values"]) == 2
    assert b.to_dense().tobytes() == a.tobytes()


def test_any_shape_and_strides() -> None:
    rng = np.random.default_rng(1)
    a = np.where(rng.random((4, 5, 6)) < 0.5, rng.standard_normal((4, 5, 6)), 0).astype(np.float32)
    for view in (a, a.T, a[::-1, ::2], np.asfortranarray(a), a[:0], a[1, 2, 3], a.astype(">f4")):
        b = hc.encode_bitmap(view)
        assert b.shape == np.shape(view) and np.array_equal(b.to_dense(), view)
    assert hc.encode_bitmap(a[0].tolist()).dtype == np.float64
    assert hc.encode_bitmap(np.float32(3)).to_dense() == 3


def test_what_it_says_of_itself() -> None:
    b = hc.encode_bitmap(np.float32([[0, 1, 0, 0], [0, 0, 2, 0]]))
    assert (b.shape, b.ndim, b.size, len(b), b.nbytes, b.density) == ((2, 4), 2, 8, 2, 9, 0.25)
    assert b.bits_per_value == 9 and repr(b) == "BitmapArray(shape=(2, 4), dtype=float32, density=0.25, nbytes=9)"
    assert np.asarray(b).tolist() == b.to_dense().tolist() and np.asarray(b, np.float64).dtype == np.float64
    assert pickle.loads(pickle.dumps(b)) == b == copy.deepcopy(b)
    assert b != hc.encode_bitmap(b.to_dense().reshape(4, 2)) and b != hc.encode_bitmap(b.to_dense().astype(int))
    assert (b == 3) is False
    with pytest.raises(TypeError, match="unhashable"):
        hash(b)
    with bad_argument(ValueError, None, "value", "copy=False is impossible"):
        np.array(b, copy=False)
    assert hc.encode_bitmap(np.zeros((0, 3))).density == 0


def test_hostile_parts_are_refused() -> None:
    bitmap, values = np.uint8([0b101]), np.float32([1, 2])
    assert hc.BitmapArray(bitmap, values, (3,)).to_dense().tolist() == [1, 0, 2]
    for wrong, sentence in [
        ((bitmap, values[:1], (3,)), "2 bits of bitmap are set for 1 value$"),
        ((bitmap, np.float32([1, 2, 3]), (3,)), "2 bits of bitmap are set for 3 values"),
        ((bitmap, values, (2,)), "bits behind the last element"),
        ((bitmap, values, (9,)), "bitmap has 1 byte,"),
        ((bitmap, values, (-3,)), r"shape is \(-3,\)"),
        ((bitmap, values, (2**40, 2**40)), "2\\^60 elements"),
        ((bitmap[None], values, (3,)), "bitmap has shape"),
        ((bitmap, values[None], (3,)), "values has shape"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            hc.BitmapArray(*wrong)
    for odd, sentence in [
        ((bitmap.astype(np.int64), values, (3,)), "bitmap has dtype int64"),
        ((bitmap, values.astype(np.complex64), (3,)), "values has dtype complex64"),
        ((bitmap, values.astype(">f4"), (3,)), "byte order"),
        ((bitmap, [1.0, 2.0], (3,)), "values is a list"),
        ((bitmap, values, ("3",)), "expected ints"),
    ]:
        with pytest.raises(TypeError, match=sentence):
            hc.BitmapArray(*odd)  # type: ignore[arg-type]


def test_parts_that_change_later_are_refused_too() -> None:
    b = hc.encode_bitmap(np.float32([1, 0, 2]))
    b.components["bitmap"][0] = 7
    with bad_argument(ValueError, None, "value", "3 bits are set for 2 values"):
        b.to_dense()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "int8", "uint8", "bool"])
def test_tensors_are_taken_as_they_lie(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    plain = np.float32([[0, 1.5, 0, -0.0], [0, 0, 3, 2]])
    tensor = torch.from_numpy(plain.copy()).to(getattr(torch, dtype))
    for given in (tensor, tensor.T, tensor[:, ::2], tensor[:0]):
        expected = given.float().numpy().astype(getattr(ml_dtypes, dtype, dtype))
        b = hc.encode_bitmap(given)
        assert b.dtype == expected.dtype and b.to_dense().tobytes() == expected.tobytes()
    if tensor.dtype.is_floating_point:
        with bad_argument(TypeError, "a", "type"):
            hc.encode_bitmap(tensor.requires_grad_())


def test_a_tensor_of_another_type_or_place_is_refused() -> None:
    torch = pytest.importorskip("torch")
    with bad_argument(TypeError, "a", "dtype"):
        hc.encode_bitmap(torch.ones(2, dtype=torch.complex64))
    small = hc.encode_bitmap(torch.tensor([0.0, 1.5]).to(torch.float8_e4m3fn))
    assert small.dtype == "float8_e4m3fn" and small.to_dense().astype(float).tolist() == [0, 1.5]
    for other in (torch.ones(2, device="meta"), torch.ones((2, 2)).to_sparse()):
        with pytest.raises(TypeError, match="encode_bitmap: a"):
            hc.encode_bitmap(other)


@pytest.mark.parametrize("a", [[[1.0], [1.0, 2.0]], hc.quantize(np.ones((1, 4), np.float32), "2:4")])
def test_what_is_no_plain_array_is_refused(a: Any) -> None:
    with bad_argument(TypeError, "a", "type"):
        hc.encode_bitmap(a)


@pytest.mark.parametrize("a", [np.ones(2, complex), np.array(["a"]), np.array([None]), np.array(["2020"], "M8[Y]")])
def test_other_types_are_refused(a: Any) -> None:
    with bad_argument(TypeError, "a", "dtype"):
        hc.encode_bitmap(a)
