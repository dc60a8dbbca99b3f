"""Pruning and SparseArray: the choice of nonzeros, their storage, and refused arguments."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
from common import bad_argument, guarded_copy, isas, reals, same_bits

import heterocompute as hc
from heterocompute.reference import sparsity

PATTERNS = [(2, 4), (1, 4), (4, 8), (2, 8), (1, 8), (1, 16), (1, 1), (3, 7), (31, 32), (32, 32), (1, 32), (5, 5)]
LENGTHS = [1, 3, 4, 5, 8, 16, 31, 64, 100, 515]


def text(n: int, m: int) -> str:
    return f"{n}:{m}"


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize(("n", "m"), PATTERNS)
@pytest.mark.sweep(every=3)
def test_what_stays_is_what_the_definition_keeps(n: int, m: int, isa: str) -> None:
    rng = np.random.default_rng(n * 100 + m)
    with hc.use(isa=isa):
        for length in LENGTHS:
            w = rng.integers(-3, 4, (3, length)).astype(np.float32)  # many ties, zeros of both signs
            w[w == 0] *= np.where(rng.random((w == 0).sum()) < 0.5, -1, 1)
            for scores in (None, rng.integers(-2, 3, w.shape).astype(np.float32)):
                values, positions, metadata = sparsity.keep(
                    w[:, None], None if scores is None else scores[:, None], n, m
                )
                with guarded_copy(w) as x:
                    s = hc.prune(x, text(n, m), scores=scores)
                assert same_bits(s.components["values"], values)
                assert same_bits(s.components["metadata"], metadata)
                assert same_bits(s.positions(), positions)
                dense = sparsity.scatter(values, positions, n, m, 1, length)[:, 0]
                assert same_bits(s.to_dense(), dense)
                ones = sparsity.scatter(np.ones_like(values), positions, n, m, 1, length)[:, 0]
                assert np.array_equal(s.mask, ones != 0)
                assert np.array_equal(hc.prune_mask(w, text(n, m), scores=scores), s.mask)


@pytest.mark.parametrize("isa", isas())
def test_magnitudes_of_any_size_compare(isa: str) -> None:
    special = np.float32([0, -0.0, 1e-45, -1e-45, 1, -1, 3e38, -3e38, np.inf, -np.inf])
    blocks = np.array(list(itertools.product(special, repeat=4)), np.float32).reshape(40, -1)
    with hc.use(isa=isa):
        s = hc.prune(blocks, "2:4")
    values, _, metadata = sparsity.keep(blocks[:, None], None, 2, 4)
    assert same_bits(s.components["values"], values)
    assert same_bits(s.components["metadata"], metadata)


def test_any_axes_strides_and_dtypes() -> None:
    w = reals((6, 5, 3, 9), 1)
    for axis in (-1, 0, (1,), (2, 3, 1), (3, 0), (0, 1, 2, 3)):
        axes = tuple(a % 4 for a in (axis if isinstance(axis, tuple) else (axis,)))
        others = [a for a in range(4) if a not in axes]
        rows = np.ascontiguousarray(w.transpose([*others, *axes])).reshape(
            int(np.prod([w.shape[a] for a in others])), -1, w.shape[axes[-1]]
        )
        values, positions, metadata = sparsity.keep(rows, None, 2, 4)
        for dtype in (np.float32, np.float64):
            for view in (w, np.asfortranarray(w), np.repeat(w, 2, axis=1)[:, ::2], w[::-1][::-1]):
                s = hc.prune(view.astype(dtype), "2:4", axis=axis)
                assert same_bits(s.components["values"], values)
                assert same_bits(s.components["metadata"], metadata)
        dense = sparsity.scatter(values, positions, 2, 4, rows.shape[1], rows.shape[2])
        dense = dense.reshape([w.shape[a] for a in (*others, *axes)]).transpose(np.argsort([*others, *axes]))
        assert np.array_equal(s.to_dense(), dense)
        assert np.array_equal(s.to_dense(np.float64), dense)
    half = w.astype(np.float16)
    assert hc.prune(half, "2:4").to_dense().tobytes() == hc.prune(half.astype(np.float32), "2:4").to_dense().tobytes()


def test_empty_arrays() -> None:
    for shape in ((0, 8), (3, 0), (0,)):
        s = hc.prune(np.zeros(shape, np.float32), "2:4")
        assert s.shape == shape
        assert s.to_dense().shape == shape
        assert not s.mask.any()
        assert hc.prune(np.zeros(shape, np.float32), "50%").shape == shape
        assert hc.prune(np.zeros((*shape, 2), np.float32), "block:2x2:50%").shape == (*shape, 2)
        for axis in (0, -1):
            q = hc.quantize(np.zeros(shape, np.float32), "int8+2:4", axis=axis)
            assert (q.shape, q.dequantize().shape) == (shape, shape)


@pytest.mark.parametrize("pattern", ["2:4", "50%"])
def test_what_float32_cannot_hold_is_refused(pattern: str) -> None:
    w = np.array([[1.0, 1e300, np.inf, 2.0]])
    with bad_argument(ValueError, "w", "value", r"at index \(0, 1\)"):
        hc.prune(w, pattern)
    with bad_argument(ValueError, "w", "value"):
        hc.SparseArray.from_mask(w, w == 1e300, "2:4")


def test_illegal_positions_are_refused() -> None:
    s = hc.prune(reals((2, 8), 1), "2:4")
    for array in (s, hc.quantize(s, "int8")):
        parts = dict(array.components)
        parts["metadata"] = np.full_like(parts["metadata"], 0x55)
        with bad_argument(ValueError, None, "value", "component metadata has positions that do not ascend below 4"):
            type(array)(parts, array.format, array.shape, array.axis)  # type: ignore[arg-type]
    assert repr(s).startswith("SparseArray(2:4")


def test_importance_is_not_for_patterns() -> None:
    w = reals((2, 8), 1)
    for given in (w, hc.prune(w, "2:4")):
        with bad_argument(ValueError, "importance", "value"):
            hc.quantize(given, "cb2+2:4", importance=np.ones(3, np.float32))


def test_entries_of_one_place_are_added() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    twice = scipy_sparse.csr_array((np.float32([1, 2, 3]), [0, 0, 1], [0, 3]), shape=(1, 4))
    assert hc.SparseArray.from_scipy(twice, "2:4").to_dense().tolist() == [[3, 3, 0, 0]]
    with bad_argument(ValueError, "matrix", "shape"):
        hc.SparseArray.from_scipy(scipy_sparse.coo_array(np.ones(4)), "2:4")


def test_bits_and_density() -> None:
    s = hc.prune(reals((16, 64), 2), "2:4")
    assert (s.n, s.m, s.density) == (2, 4, 0.5)
    assert s.nbytes == 16 * 32 * 4 + 16 * 8
    assert s.bits_per_value == 17.0
    # formats.md, section 9: 20 of 32 bits for int8 at 2:4, and one scale per row
    q = hc.quantize(s, "int8")
    assert q.nbytes == 16 * (32 + 8 + 4)


def test_shares_of_rows_of_the_array_and_of_blocks() -> None:
    w = np.float32([[1, -2, 3, -4], [8, 7, 6, 5]])
    assert hc.prune(w, "50%").tolist() == [[0, 0, 3, -4], [8, 7, 0, 0]]
    assert hc.prune(w, "global:50%").tolist() == [[0, 0, 0, 0], [8, 7, 6, 5]]
    assert hc.prune(w, "50%", axis=0).tolist() == [[0, 0, 0, 0], [8, 7, 6, 5]]
    assert hc.prune(w, "30%").tolist() == [[0, -2, 3, -4], [8, 7, 6, 0]]  # floor(1.2)
    assert hc.prune(w, "0%").tolist() == w.tolist()
    assert not hc.prune(w, "100%").any()
    assert hc.prune(w, "block:2x1:50%").tolist() == [[1, -2, 0, 0], [8, 7, 0, 0]]  # sums of 9: ties
    assert hc.prune(w, "block:1x3:50%").tolist() == [[1, -2, 3, 0], [8, 7, 6, 0]]  # a tail is a block of its own
    assert hc.prune(np.ones((1, 6), np.float32), "50%").tolist() == [[1, 1, 1, 0, 0, 0]]
    scores = -np.abs(w)
    assert hc.prune_mask(w, "25%", scores=scores).tolist() == [[True, True, True, False], [False, True, True, True]]


def test_a_block_of_both_infinities_has_no_score() -> None:
    w, inf = np.ones((2, 8), np.float32), np.inf
    scores = np.float32([[1] * 8, [1, 1, inf, -inf, 1, 1, 2, 2]])
    for prune in (hc.prune, hc.prune_mask):
        with pytest.raises(
            ValueError, match=f"^{prune.__name__}: the block of scores from row 1, column 2 on has both"
        ):
            prune(w, "block:1x2:75%", scores=scores)
    wide = np.ones((3, 2**21), np.float32)  # more values than one block of the sum
    wide[2, -2:] = inf, -inf
    with bad_argument(ValueError, None, "value", "2.*2097150"):
        hc.prune(wide, "block:2x2:50%", scores=wide)
    mask = hc.prune_mask(w, "block:2x2:75%", scores=np.abs(scores))
    assert mask.tolist() == [[False, False, True, True, False, False, False, False]] * 2


@pytest.mark.parametrize(
    "pattern", ["5:4", "0:4", "1:33", "2", "2:4 ", "101%", "-1%", "block:0x1:5%", "50", "", "02:4"]
)
def test_other_patterns_are_refused(pattern: str) -> None:
    for prune in (hc.prune, hc.prune_mask):
        with bad_argument(ValueError, "pattern", "value"):
            prune(np.ones((4, 4), np.float32), pattern)
    with bad_argument(TypeError, "pattern", "type"):
        hc.prune(np.ones(4, np.float32), 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("isa", isas())
def test_nan_scores_are_refused_by_name_and_index(isa: str) -> None:
    with hc.use(isa=isa):
        for at in ((0, 0), (2, 37), (4, 98)):
            w = reals((5, 99), 3)
            w[at] = np.nan
            for pattern in ("2:4", "3:5", "50%", "block:2x2:50%"):
                with pytest.raises(ValueError, match=rf"w has nan at index \({at[0]}, {at[1]}\)"):
                    hc.prune(w, pattern)
                with pytest.raises(ValueError, match=rf"scores has nan at index \({at[0]}, {at[1]}\)"):
                    hc.prune(np.zeros_like(w), pattern, scores=w)
    with bad_argument(ValueError, "scores", "shape"):
        hc.prune(np.zeros((2, 4), np.float32), "2:4", scores=np.zeros((4, 2), np.float32))


def test_padding_is_the_last_to_stay() -> None:
    w = np.float32([[1, 2, 3, 4, 5, 6]])
    scores = np.float32([[0, 0, 0, 0, -7, -np.inf]])
    s = hc.prune(w, "1:4", scores=scores)
    assert s.to_dense().tolist() == [[1, 0, 0, 0, 5, 0]]
    assert hc.prune(w, "3:4", scores=scores).mask.tolist() == [[True, True, True, False, True, True]]


def test_a_mask_makes_an_array_or_is_refused() -> None:
    w = reals((4, 22), 5)
    mask = hc.prune_mask(w, "2:4")
    assert hc.SparseArray.from_mask(w, mask, "2:4") == hc.prune(w, "2:4")
    fewer = mask & (np.arange(22) % 4 != 1)
    s = hc.SparseArray.from_mask(w, fewer, "2:4")
    assert np.array_equal(s.to_dense(), np.where(fewer, w, 0))
    mask[2, 4:8] = [True, True, False, True]
    with bad_argument(ValueError, None, "value", "row 2, group 1 of mask keeps 3 values of 4, 2:4 keeps 2"):
        hc.SparseArray.from_mask(w, mask, "2:4")
    with bad_argument(ValueError, "mask", "shape"):
        hc.SparseArray.from_mask(w, mask[:2], "2:4")
    with bad_argument(TypeError, "mask", "dtype"):
        hc.SparseArray.from_mask(w, mask.astype(int), "2:4")
    turned = hc.SparseArray.from_mask(w.T, hc.prune_mask(w, "2:4").T, "2:4", axis=0)
    assert np.array_equal(turned.to_dense().T, hc.prune(w, "2:4").to_dense())


def test_views_copies_and_files(tmp_path: Path) -> None:
    s = hc.prune(reals((6, 21), 6), "2:4")
    dense = s.to_dense()
    assert np.array_equal(s.T.to_dense(), dense.T)
    assert isinstance(s.T, hc.SparseArray)
    assert s.T.T == s
    for index in (0, -1, slice(1, 5, 2), slice(None, None, -1)):
        assert np.array_equal(s[index].to_dense(), dense[index])
        assert np.shares_memory(s[index].components["values"], s.components["values"])
    with bad_argument(ValueError, "axis", "axis"):
        s.T[0]
    for again in (copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert again == s
        assert isinstance(again, hc.SparseArray)
    assert s != hc.prune(dense, "3:4")
    assert not isinstance(hash, type(s.__hash__))
    s.save(tmp_path / "s.safetensors")
    loaded = hc.load(tmp_path / "s.safetensors")
    assert isinstance(loaded, hc.SparseArray)
    assert loaded == s
    with bad_argument(TypeError, "add", "type"):
        np.add(s, 1)
    assert same_bits(np.asarray(s), dense)
    assert "2:4" in repr(s)
    assert "2:4" in s._repr_html_()


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    for pattern, byte in (("2:4", 0x00), ("2:4", 0x01), ("1:5", 0xFF), ("3:5", 0x00)):
        s = hc.prune(reals((2, 20), 7), pattern)
        s.components["metadata"][1, 0] = byte
        s.to_dense()  # must be safe for any content
        hc.matmul(np.ones((12, 20), np.float32), s.T)
        hc.matmul(np.ones((1, 20), np.float32), s.T)
        path = tmp_path / "bad.safetensors"
        s.save(path)
        with bad_argument(ValueError, None, "file", "array.metadata"):
            hc.load(path)
    s = hc.prune(reals((2, 4), 7), "1:4")
    s.components["metadata"][0, 0] |= 0x80
    s.save(path)
    with bad_argument(ValueError, None, "file", "array.metadata"):
        hc.load(path)


def test_quantized_patterns() -> None:
    w = reals((5, 70), 8)
    s = hc.prune(w, "2:4")
    for base in ("int8", "int4-g32-f16", "vsq4-g16-s4", "int8-asym", "fp16", "mxfp4", "nvfp4"):
        q = hc.quantize(w, f"{base}+2:4")
        assert q == hc.quantize(s, base)
        assert str(q.format) == f"{base}+2:4"
        kept = hc.quantize(s.components["values"], base)
        dense = sparsity.scatter(kept.dequantize(), s.positions(), 2, 4, 1, 70)[:, 0]
        assert same_bits(q.dequantize(), dense)
        double = sparsity.scatter(kept.dequantize(np.float64), s.positions(), 2, 4, 1, 70)[:, 0]
        assert same_bits(q.dequantize(np.float64), double)
        assert q.nbytes == kept.nbytes + s.components["metadata"].nbytes
        assert same_bits(hc.fake_quantize(w, f"{base}+2:4"), dense)
    assert hc.quantize(w, "2:4") == s
    with bad_argument(ValueError, None, "value", "not a multiple of the 3 kept"):
        hc.format("int4-g32+3:4")
    with bad_argument(ValueError, "format", "value"):
        hc.quantize(s, "int8+1:4")
    with bad_argument(ValueError, "axis", "shape"):
        hc.quantize(s, "int8", axis=0)
    with bad_argument(ValueError, "w", "value", r"at index \(1, 2\)"):
        w[1, 2] = np.inf
        hc.quantize(w, "int8+2:4")
    with bad_argument(ValueError, "w", "value", r"at index \(0, 3\)"):
        w[0, 3] = np.nan
        hc.quantize(w, "int8+2:4")


def test_texts_of_patterns() -> None:
    for example in hc.Sparse.examples:
        fmt = hc.format(example)
        assert str(fmt) == example
        assert pickle.loads(pickle.dumps(fmt)) == fmt
        assert hash(fmt) == hash(hc.format(example))
    assert hc.format("2:4") == hc.Sparse(hc.Float("fp32"), 2, 4)
    with bad_argument(ValueError, None, "value", "'2:4'"):
        hc.format("fp32+2:4")
    for bad in ("int8+5:4", "int8+2:4+2:4", "int17+2:4", "+2:4", "2:4+int8", "int8+"):
        with bad_argument(ValueError, None, "value", "is not a format"):
            hc.format(bad)
    with bad_argument(TypeError, "base", "type"):
        hc.Sparse(hc.format("2:4"), 2, 4)


def test_scores_are_those_of_the_papers() -> None:
    rng = np.random.default_rng(9)
    w, x = rng.standard_normal((6, 40)), rng.standard_normal((100, 40)) * np.exp(rng.standard_normal(40))
    x[:, 7] = 0
    assert np.allclose(hc.scores.wanda(w, x), sparsity.wanda(w, x), rtol=1e-6)
    h = x.T @ x
    for pattern, n, m in (("2:4", 2, 4), ("1:5", 1, 5)):
        found = hc.scores.sparsegpt(w, h, pattern)
        damped, start = h.copy(), w.copy()
        start[:, 7] = 0
        damped[np.diag_indices(40)] += np.where(np.arange(40) == 7, 1, 0.01 * np.mean(np.diag(h)))
        assert np.allclose(found, sparsity.sparsegpt(start, damped, n, m), atol=1e-5)
        s = hc.prune(found, pattern)
        assert np.array_equal(s.to_dense(), found)
        plain = hc.prune(w, pattern).to_dense()
        assert np.linalg.norm(x @ (w - found).T) < np.linalg.norm(x @ (w - plain).T)
    wide = rng.standard_normal((3, 300))
    inputs = rng.standard_normal((400, 300))
    exact = sparsity.sparsegpt(wide, inputs.T @ inputs + np.eye(300) * 0.01 * np.mean((inputs**2).sum(0)), 2, 4)
    assert np.allclose(hc.scores.sparsegpt(wide, inputs.T @ inputs), exact, atol=1e-5)
    with bad_argument(ValueError, "h", "value"):
        hc.scores.sparsegpt(w, -np.eye(40))
    with bad_argument(ValueError, "h", "shape"):
        hc.scores.sparsegpt(w, h[:3])
    with bad_argument(ValueError, "w", "shape"):
        hc.scores.wanda(w, x[:, :39])


def test_the_layout_of_torch(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for shape in ((32, 32), (64, 96), (160, 160)):
        s = hc.prune(reals(shape, 11).astype(np.float16), "2:4")
        for dtype in (np.float16, ml_dtypes.bfloat16):
            values, metadata = s.to_semi_structured(dtype)
            again = hc.SparseArray.from_semi_structured(values, metadata)
            assert np.array_equal(again.mask, s.mask)
            assert np.array_equal(again.components["values"], values.astype(np.float32))
        # int16 (row, column) of the plain layout, by the rule for rows 0 to 7 and columns 0, 1 of the first block
        plain = s.components["metadata"].view("<i2")
        flat = s.to_semi_structured()[1].reshape(-1)
        assert list(flat[:4]) == [plain[0, 0], plain[8, 0], plain[0, 1], plain[8, 1]]
        assert list(flat[8:12]) == [plain[1, 0], plain[9, 0], plain[1, 1], plain[9, 1]]
    with bad_argument(ValueError, None, "value", "expected 2:4"):
        hc.prune(np.ones((64, 32), np.float32), "1:4").to_semi_structured()
    with bad_argument(ValueError, None, "shape", "32 i"):
        hc.prune(np.ones((32, 48), np.float32), "2:4").to_semi_structured()
    values, metadata = hc.prune(np.ones((64, 32), np.float32), "2:4").to_semi_structured()
    metadata[0, 0] = 0
    with bad_argument(ValueError, "metadata", "value"):
        hc.SparseArray.from_semi_structured(values, metadata)


def test_the_layout_of_torch_keeps_the_dtype_and_refuses_what_it_cannot_hold() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    large = np.full((32, 64), 1e5, np.float32)
    for dtype, wanted in ((bfloat16, bfloat16), (np.float16, np.float16), (np.float32, np.float16)):
        s = hc.prune(reals((32, 64), 13).astype(dtype), "2:4")
        values, metadata = s.to_semi_structured()
        assert values.dtype == wanted and np.array_equal(values, s.components["values"].astype(wanted))
        again = hc.SparseArray.from_semi_structured(values, metadata)
        assert again.components["values"].dtype == wanted and again.source_dtype == np.dtype(wanted).name
        assert again == s or wanted != dtype
        assert np.array_equal(again.to_semi_structured()[0], values)
    brain = hc.prune(large.astype(bfloat16), "2:4")
    assert (brain.to_semi_structured()[0].astype(np.float32) == np.float32(99840)).all()
    assert np.array_equal(hc.SparseArray.from_semi_structured(*brain.to_semi_structured()).mask, brain.mask)
    for s, dtype in ((brain, np.float16), (hc.prune(large, "2:4"), None), (hc.prune(-large, "2:4"), np.float16)):
        with bad_argument(
            ValueError, None, "dtype", "is -?(99840|100000), which is too large for float16, pass dtype=ml_dt"
        ):
            s.to_semi_structured(dtype)
    assert np.isfinite(hc.prune(large, "2:4").to_semi_structured(bfloat16)[0].astype(np.float32)).all()
    with bad_argument(ValueError, None, "value", r"3.40282e\+38.*bfloat16"):
        hc.prune(np.full((32, 64), np.finfo(np.float32).max), "2:4").to_semi_structured(bfloat16)
    with bad_argument(TypeError, "values", "dtype"):
        hc.SparseArray.from_semi_structured(np.ones((32, 16), np.int8), np.zeros((32, 2), np.int16))


def test_the_layout_is_that_of_torch_itself() -> None:
    torch = pytest.importorskip("torch")
    conversions = pytest.importorskip("torch.sparse._semi_structured_conversions")
    for shape in ((32, 32), (64, 96), (160, 160)):
        # without zeros: in a block with fewer than two nonzeros, torch chooses which zeros to keep
        s = hc.prune((np.abs(reals(shape, 12)) + 1).astype(np.float16), "2:4")
        dense = torch.from_numpy(s.to_dense(np.float16))
        values, metadata = conversions.sparse_semi_structured_from_dense_cutlass(dense)
        found = s.to_semi_structured()
        assert np.array_equal(found[1], metadata.numpy())
        assert np.array_equal(found[0], values.numpy())
        back = conversions.sparse_semi_structured_to_dense_cutlass(*map(torch.from_numpy, found))
        assert np.array_equal(back.numpy(), s.to_dense(np.float16))
        brain = (torch.from_numpy(np.abs(reals(shape, 12)) + 1) * 1e5).to(torch.bfloat16)
        found = hc.prune(brain, "2:4").to_semi_structured()
        kept = torch.from_numpy(hc.prune(brain, "2:4").to_dense()).to(torch.bfloat16)
        values, metadata = conversions.sparse_semi_structured_from_dense_cutlass(kept)
        assert np.array_equal(found[0].view(np.int16), values.view(torch.int16).numpy())
        assert np.array_equal(found[1], metadata.numpy())


def test_matrices_of_scipy() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    s = hc.prune(reals((7, 22), 13), "2:4")
    for layout in ("csr", "csc"):
        matrix = s.to_scipy(layout)
        assert matrix.format == layout
        assert np.array_equal(matrix.toarray(), s.to_dense())
        assert matrix.nnz == s.mask.sum()
        assert np.array_equal(hc.SparseArray.from_scipy(matrix, "2:4").to_dense(), s.to_dense())
    assert np.array_equal(hc.SparseArray.from_scipy(s.T.to_scipy(), "2:4", axis=0).to_dense(), s.to_dense().T)
    full = scipy_sparse.csr_array(np.ones((2, 8), np.float32))
    with bad_argument(ValueError, None, "value", "from_scipy.*0.*0.*4"):
        hc.SparseArray.from_scipy(full, "2:4")
    with bad_argument(TypeError, "matrix", "type"):
        hc.SparseArray.from_scipy(np.ones((2, 8)), "2:4")
    with bad_argument(ValueError, "layout", "value"):
        s.to_scipy("coo")


def test_a_checkpoint_is_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from heterocompute.cli import main
    from heterocompute.files.safetensors import save

    weights = {"a.weight": reals((8, 20), 1), "b.weight": reals((4, 6, 3, 3), 2), "a.bias": reals(8, 3)}
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    save(before, weights)
    assert main(["prune", str(before), str(after), "--pattern", "2:4"]) == 0
    assert "2 tensors pruned, 1 copied" in capsys.readouterr().out
    loaded = hc.load(after)
    assert loaded["a.weight"] == hc.prune(weights["a.weight"], "2:4")
    assert loaded["b.weight"] == hc.prune(weights["b.weight"], "2:4", axis=(2, 3, 1))
    assert np.array_equal(loaded["a.bias"], weights["a.bias"])
    assert main(["inspect", str(after)]) == 0
    assert "2:4" in capsys.readouterr().out
    assert main(["quantize", str(before), str(after), "--format", "int8+2:4", "--overwrite"]) == 0
    assert hc.load(after)["a.weight"] == hc.quantize(weights["a.weight"], "int8+2:4")
    for wrong in ("int8", "5:4", "int8+2:4"):
        with pytest.raises(SystemExit, match="2"):
            main(["prune", str(before), str(after), "--pattern", wrong])
    weights["a.weight"][1, 2] = np.nan
    save(before, weights)
    assert main(["prune", str(before), str(after), "--pattern", "2:4", "--overwrite"]) == 1
    assert "a.weight" in capsys.readouterr().err
