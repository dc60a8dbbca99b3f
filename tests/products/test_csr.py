"""Matmuls with sparse matrices of SciPy equal their definition: layouts, dtypes, instruction sets, hostile matrices."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
from common import bad_argument, guarded_copy, isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as _core
from heterocompute.base import runtime
from heterocompute.reference import compressed

scipy_sparse = pytest.importorskip("scipy.sparse")

Array = np.ndarray[Any, Any]
ISAS = isas("csr", "pack_x32")
# Rows of x, rows of w, columns. Panels have 4 to 64 lanes, groups 128 rows.
SHAPES = [(1, 1, 1), (1, 70, 33), (2, 130, 40), (5, 7, 300), (9, 33, 17), (17, 129, 64), (65, 20, 31), (130, 3, 129)]
EMPTY = [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 4, 0), (1, 0, 4), (0, 0, 0)]


def pruned(shape: tuple[int, ...], density: float, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < density, rng.standard_normal(shape), 0).astype(np.float32)


def wanted(x: Array, w: Any) -> Array:
    """Return the result by definition, for a matrix with ascending columns."""
    starts = w.indptr.astype(np.int64)
    if len(x) == 1:
        return compressed.csr_spmv(x[0], starts, w.indices, w.data)[None]
    return compressed.csr_chain(x, starts, w.indices, w.data)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", [*SHAPES, *EMPTY])
@pytest.mark.parametrize("density", [0, 0.01, 0.1, 0.6])
@pytest.mark.sweep(every=3)
def test_every_form_of_a_product_has_the_bits_of_the_definition(
    shape: tuple[int, int, int], density: float, isa: str
) -> None:
    m, n, k = shape
    x, dense = pruned((m, k), 1, seed=1), pruned((n, k), density)
    w = scipy_sparse.csr_array(dense)
    expected = wanted(x, w)
    for threads in (1, 2, 3):
        with hc.use(isa=isa, threads=threads), guarded_copy(x) as a:
            assert same_bits(hc.linear(a, w), expected)
            assert same_bits(hc.linear(np.asfortranarray(x), w.tocsc()), expected)
            assert same_bits(hc.matmul(a, w.T), expected)
            assert same_bits(hc.matmul(a, scipy_sparse.csr_matrix(dense.T)), expected)
            turned = np.ascontiguousarray(expected.T)
            assert same_bits(hc.matmul(w, x.T), turned) and same_bits(hc.linear(w, a), turned)
            assert same_bits(hc.matmul(scipy_sparse.csc_matrix(dense), x.T), turned)
            out = np.full((m, 2 * n), 7, np.float32)
            assert same_bits(np.ascontiguousarray(hc.linear(a, w, out=out[:, ::2])), expected)
            assert (out[:, 1::2] == 7).all()
            out = np.zeros((n, m), np.float32)
            hc.linear(a, w, out=out.T)
            assert same_bits(out, turned)


def test_many_vectors_equal_the_own_dense_product() -> None:
    x, dense = pruned((40, 200), 1, seed=1), pruned((90, 200), 0.2)
    with hc.use(blas="own"):
        expected = hc.linear(x, dense)
    assert np.array_equal(hc.linear(x, scipy_sparse.csr_array(dense)), expected)


@pytest.mark.parametrize("isa", ISAS)
def test_columns_beyond_a_chunk_and_a_slab(isa: str) -> None:
    """With 4 lanes a chunk has 32768 columns and a slab of 8 MiB has 524288; few values are stored."""
    columns, rng = 1_100_000, np.random.default_rng(0)
    at = np.sort(rng.choice(columns, (3, 50), replace=False), axis=1)
    at[0, :3] = 0, 1, 2
    at[1, -1], at[2, 0] = columns - 1, 524288
    data = rng.standard_normal(150).astype(np.float32)
    w = scipy_sparse.csr_array((data, np.sort(at, axis=1).reshape(-1), [0, 50, 100, 150]), shape=(3, columns))
    x = rng.standard_normal((2, columns), dtype=np.float32)
    for threads in (1, 2, 200):  # 200: slabs are smaller
        with hc.use(isa=isa, threads=threads):
            assert same_bits(hc.linear(x, w), wanted(x, w))


def test_leading_dimensions_and_vectors() -> None:
    x, dense = pruned((2, 3, 4, 20), 1, seed=1), pruned((6, 20), 0.3)
    w = scipy_sparse.csr_array(dense)
    flat = hc.linear(x.reshape(24, 20), w)
    assert same_bits(hc.linear(x, w), flat.reshape(2, 3, 4, 6))
    assert same_bits(hc.matmul(w, np.swapaxes(x, -1, -2)), np.swapaxes(flat.reshape(2, 3, 4, 6), -1, -2).copy())
    one = hc.linear(x[0, 0, 0], w)
    assert one.shape == (6,) and same_bits(hc.matmul(w, x[0, 0, 0]), one)
    assert same_bits(hc.matmul(x[0, 0, 0], w.T), one) and same_bits(hc.linear(w, x[0, 0]), flat[:4].T.copy())


def test_bias_comes_last_and_activations_are_rounded() -> None:
    x, dense, bias = pruned((12, 40), 1, seed=1), pruned((6, 40), 0.3), pruned((6,), 1, seed=2)
    w = scipy_sparse.csr_array(dense)
    assert same_bits(hc.linear(x, w, bias=bias), hc.linear(x, w) + bias)
    assert same_bits(hc.linear(x, w, activations="vsq4-g16-s4"), hc.linear(hc.fake_quantize(x, "vsq4-g16-s4"), w))
    assert same_bits(hc.matmul(w, x.T, activations="int8"), hc.matmul(w, hc.fake_quantize(x.T, "int8", axis=0)))
    assert same_bits(hc.linear(x, w, activations="2:4"), hc.linear(hc.prune(x, "2:4").to_dense(), w))


@pytest.mark.parametrize("fmt", ["int8", "vsq4-g16-s4", "mxfp4", "2:4", "int8+2:4", "bf16"])
def test_the_other_operand_may_be_packed(fmt: str) -> None:
    x, dense = pruned((12, 64), 1, seed=1), pruned((6, 64), 0.3)
    w = scipy_sparse.csr_array(dense)
    q = hc.quantize(x, fmt)
    assert same_bits(hc.linear(q, w), hc.linear(q.dequantize(), w))
    assert same_bits(hc.matmul(q, w.T), hc.linear(q.dequantize(), w))
    assert same_bits(hc.matmul(w, q.T), hc.matmul(w, q.dequantize().T))
    assert same_bits(hc.matmul(w, hc.quantize(x[0], fmt)), hc.matmul(w, hc.quantize(x[0], fmt).dequantize()))
    deep = hc.quantize(x.reshape(3, 4, 64), fmt, axis=-1)
    assert same_bits(hc.linear(deep, w), hc.linear(deep.dequantize(), w))
    if fmt != "bf16":
        with bad_argument(ValueError, "b", "axis"):
            hc.matmul(w, hc.quantize(x.reshape(64, 12), fmt))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_float_types_are_rounded_once(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    x, dense = pruned((12, 40), 1, seed=1), pruned((6, 40), 0.3)
    w = scipy_sparse.csr_array(dense)
    other = type("Csr", (), {})()  # SciPy itself holds neither float16 nor bfloat16
    other.format, other.shape, other.nnz, other.tocsr = "csr", w.shape, w.nnz, w.tocsr
    other.indptr, other.indices, other.data = w.indptr, w.indices, w.data.astype(kind)
    w.data = other.data.astype(np.float32)
    assert same_bits(hc.linear(x.astype(kind), other), hc.linear(x.astype(kind).astype(np.float32), w))


@pytest.mark.parametrize("vectors", [1, 5])
def test_order_duplicates_and_zeros_of_what_is_stored(vectors: int) -> None:
    """Columns are sorted, entries at the same position keep their order, and stored zeros are multiplied."""
    x = pruned((vectors, 6), 1, seed=1)
    data = np.float32([1, 2, 3, 4, 0, 6])
    unsorted = scipy_sparse.csr_array((data, [3, 1, 3, 0, 5, 1], [0, 3, 3, 6]), shape=(3, 6))
    ordered = scipy_sparse.csr_array((data[[1, 0, 2, 3, 5, 4]], [1, 3, 3, 0, 1, 5], [0, 3, 3, 6]), shape=(3, 6))
    assert same_bits(hc.linear(x, unsorted), wanted(x, ordered))
    assert same_bits(hc.linear(x, unsorted.tocsc()), wanted(x, ordered))
    assert unsorted.indices.tolist() == [3, 1, 3, 0, 5, 1]  # the caller's matrix is unchanged
    x[:, 5] = np.inf
    assert np.isnan(hc.linear(x, unsorted)[:, 2]).all()  # inf * 0, which is stored
    assert np.isfinite(hc.linear(x, unsorted)[:, :2]).all()


@pytest.mark.parametrize("vectors", [1, 5])
def test_wide_indices_are_taken(vectors: int) -> None:
    x, w = pruned((vectors, 40), 1, seed=1), scipy_sparse.csr_array(pruned((6, 40), 0.3))
    expected = hc.linear(x, w)
    for index in (np.int64, np.uint32, np.int16):
        w.indices, w.indptr = w.indices.astype(index), w.indptr.astype(index)
        assert same_bits(hc.linear(x, w), expected)


@pytest.mark.parametrize("vectors", [1, 5])
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_hostile_matrices_are_refused(layout: str, vectors: int) -> None:
    limit = 6 if layout == "csr" else 4
    x = np.ones((vectors, 6), np.float32)

    def refused(error: type[Exception], match: str, **changes: Any) -> None:
        w = scipy_sparse.csr_array(np.eye(4, 6, dtype=np.float32)).asformat(layout)
        for name, value in changes.items():
            w.__dict__[name] = value
        with pytest.raises(error, match=match):
            hc.linear(x, w)

    for bad in (limit, -1, 2**31 - 1):
        refused(ValueError, rf"indices\[2\] .* is {bad}, expected 0", indices=np.int32([0, 1, bad, 3]))
    refused(ValueError, "indices has 4294967296", indices=np.int64([0, 1, 2**32, 3]))
    refused(ValueError, "indices has -5", indices=np.int64([0, 1, -5, 3]))
    good = np.minimum(np.arange({"csr": 5, "csc": 7}[layout]), 4)
    for place, value in ((0, 1), (2, 0), (2, 2**40), (-1, 3), (1, -1)):
        wrong = good.copy()
        wrong[place] = value
        refused(ValueError, "indptr", indptr=wrong)
    refused(ValueError, "indptr has shape", indptr=good[:-1])
    refused(ValueError, "indices", indices=np.int32([0, 1, 2]))
    refused(TypeError, "indices is an array of float64", indices=np.arange(4.0))
    refused(TypeError, "holds int64", data=np.arange(4))
    refused(TypeError, "holds complex64", data=np.ones(4, np.complex64))
    refused(ValueError, "data has shape", data=np.ones(5, np.float32))


def test_bad_arguments_are_named() -> None:
    w = scipy_sparse.csr_array(np.eye(4, 6, dtype=np.float32))
    x = np.ones((3, 6), np.float32)
    with bad_argument(ValueError, "x", "shape"):
        hc.linear(x[:, :5], w)
    with bad_argument(ValueError, "b", "shape"):
        hc.matmul(w, x)
    for layout in ("coo", "lil", "bsr", "dok", "dia"):
        with pytest.raises(TypeError, match=rf"layout '{layout}', expected 'csr' or 'csc': call its tocsr"):
            hc.linear(x, w.asformat(layout))
    other = type("Other", (), {"nnz": 1, "shape": (4, 6)})()
    with bad_argument(TypeError, "w", "type"):
        hc.linear(x, other)
    with bad_argument(TypeError, None, "type", "both operands are compressed"):
        hc.matmul(w, w.T)
    with bad_argument(ValueError, "x", "shape"):
        hc.linear(np.float32(1), w)
    with bad_argument(ValueError, "w", "shape"):
        hc.linear(w, x[None])
    with bad_argument(ValueError, "bias", "shape"):
        hc.linear(x, w, bias=np.ones(3, np.float32))
    with bad_argument(ValueError, "out", "shape"):
        hc.linear(x, w, out=np.ones((3, 5), np.float32))
    with bad_argument(ValueError, "out", "memory"):
        hc.linear(x, w, out=x[:, :4])
    square = scipy_sparse.csr_array(np.ones((4, 4), np.float32))
    with bad_argument(ValueError, "out", "memory"):
        hc.linear(np.ones((4, 4), np.float32), square, out=square.data.reshape(4, 4))
    with bad_argument(ValueError, "x", "value"):
        hc.linear(hc.quantize(x, "int8"), w, activations="int8")
    with bad_argument(TypeError, "x", "dtype"):
        hc.linear(np.ones((3, 6), np.int64), w)
    with bad_argument(ValueError, "x", "value", r"at index \(1, 2\)"):
        bad = x.copy()
        bad[1, 2] = np.nan
        hc.linear(bad, w, activations="int8")


def test_scipy_is_imported_by_its_user_alone() -> None:
    code = "import sys, numpy, heterocompute as hc; hc.linear(numpy.ones((2, 3), 'f'), numpy.ones((4, 3), 'f'))"
    code += "; hc.linear(numpy.ones(3, 'f'), hc.encode_eie(numpy.eye(3, dtype='f'), elements=1))"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'scipy' not in sys.modules"], check=True)


def test_out_shares_memory_with_no_part_of_an_operand() -> None:
    m = scipy_sparse.csr_array(reals((64, 64), 1))
    x = reals((25, 64), 2)
    views = [m.data[:1600], m.indices.view(np.float32)[:1600]]
    for view in views:
        with bad_argument(ValueError, "out", "memory"):
            hc.linear(x, m, out=view.reshape(25, 64))
    z = reals((64, 64), 3)
    with bad_argument(ValueError, "out", "memory"):
        hc.linear(z, m, activations="int8", out=z)


def test_arrays_at_odd_addresses_are_taken() -> None:
    m = scipy_sparse.csr_array(reals((8, 16), 1))
    raw = np.zeros(m.data.nbytes + 1, np.uint8)
    raw[1:] = m.data.view(np.uint8)
    odd = scipy_sparse.csr_array(m)
    odd.data = raw[1:].view(np.float32)
    assert same_bits(hc.linear(np.eye(16, dtype=np.float32), odd), m.toarray().T)


@pytest.mark.parametrize("vectors", [1, 8, 9, 33])
def test_the_sign_of_zero_is_that_of_any_number_of_vectors(vectors: int) -> None:
    """A product below the smallest float32 leaves -0, which a column whose x is 0 must not touch."""
    e = hc.encode_eie(np.float32([[-1e-30, 1e-30]]))
    x = np.tile(np.float32([1e-30, 0]), (vectors, 1))
    assert np.signbit(hc.linear(x, e)).all()


def test_shapes_of_other_objects_are_checked() -> None:
    """Any object with the attributes of a matrix of SciPy is accepted, so that its shape may be anything."""
    w = scipy_sparse.csr_array(np.eye(8, 16, dtype=np.float32))
    given = {"format": "csr", "indptr": w.indptr, "indices": w.indices, "data": w.data, "dtype": w.dtype, "nnz": 8}
    for shape in (("a", 3), (-8, 16), (8,), (8.5, 16)):
        with pytest.raises(ValueError, match="linear: w is a sparse array of shape .*, expected two dimensions"):
            hc.linear(np.ones((2, 16), np.float32), types.SimpleNamespace(shape=shape, **given))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.sweep(every=3)
def test_short_rows_have_the_bits_of_the_definition(isa: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        n, k, most = int(rng.integers(1, 300)), int(rng.integers(1, 90)), int(rng.integers(0, 30))
        x = reals((1, k), int(rng.integers(1 << 30)))
        dense = np.zeros((n, k), np.float32)
        for row in dense:
            at = rng.permutation(k)[: rng.integers(0, most + 1)]
            row[at] = rng.standard_normal(len(at), dtype=np.float32) * np.float32(rng.choice([1e-30, 1, 1e20]))
        w = scipy_sparse.csr_array(dense)
        if rng.random() < 0.5:
            w.indptr = w.indptr.astype(np.int64)
        if rng.random() < 0.3:
            x[0, rng.integers(k)] = rng.choice([np.inf, -np.inf, np.nan, -0.0])
        expected = compressed.csr_spmv(x[0], w.indptr.astype(np.int64), w.indices, w.data)[None]
        expected[np.isnan(expected)] = np.nan
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                found, out = hc.linear(x, w), np.empty((1, n), np.float32)
                assert same_bits(found, expected) and same_bits(hc.linear(x, w, out=out), expected)
                assert hc.linear(x[0], w).shape == (n,) and same_bits(hc.linear(x[0], w)[None], expected)


def test_a_quick_call_refuses_what_the_long_one_refuses() -> None:
    w, x = scipy_sparse.csr_array(pruned((9, 7), 0.5)), np.ones((1, 7), np.float32)
    out = np.empty((1, 9), np.float32)
    assert hc.linear(x, w, out=out) is out
    for wrong in (np.empty((1, 8), np.float32), np.empty(9, np.float32), np.empty((1, 9)), w.data[:9][None]):
        with pytest.raises((TypeError, ValueError), match="out"):
            hc.linear(x, w, out=wrong)
    w.indices = w.indices.copy()
    w.indices[2] = 7
    with pytest.raises(ValueError, match=r"indices\[2\]"):
        hc.linear(x, w, out=out)
    starts = scipy_sparse.csr_array(pruned((9, 7), 0.5))
    starts.indptr = starts.indptr.copy()
    starts.indptr[4] = 99
    with pytest.raises(ValueError, match=r"indptr\[4\]"):
        hc.linear(x, starts, out=out)


@pytest.mark.parametrize("size", [(0, 16), (1, 1, 1, 3, 16)])
def test_x_may_change_while_attributes_of_w_are_read(size: tuple[int, ...]) -> None:
    x, w = reals((3, 16), 1).copy(), scipy_sparse.csr_array(np.eye(8, 16, dtype=np.float32))

    class Matrix:
        format, shape, indptr, indices = "csr", w.shape, w.indptr, w.indices

        @property
        def data(self) -> Array:
            x.resize(size, refcheck=False)
            return w.data

    assert _core.csr_linear(runtime.run(), x, Matrix(), None) is None
