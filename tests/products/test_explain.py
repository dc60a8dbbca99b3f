"""The path of a matmul as reported by explain; the choice does not change results."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute.products import explain as explaining

Array = np.ndarray[Any, Any]
FLOATS = ("gemm", "gemm-nonzeros")


SMALL = "values so small that a zero might change its sign"
REFUSED = {
    "plain": "panels of float32, decoded where a side is packed",
    "small": SMALL,
    "tiny weights": SMALL,
    "infinite": "x has a value that is not finite",
    "nan": "x has a value that is not finite",
}


def chosen(a: Any, b: Any, activations: str | None = None) -> str:
    found = hc.explain(a, b, activations)
    assert found.chosen in [candidate.path for candidate in found.candidates] or found.chosen == "nothing"
    return found.chosen


def test_dense_products_go_to_the_blas_or_stay() -> None:
    x, w = reals((20, 64), 1), reals((64, 24), 2)
    assert chosen(x, w) == "gemm"
    with hc.use(blas="own"):
        assert chosen(x, w) == "gemm"
    if hc.show_config(mode="dicts")["blas"] != "none, own kernels":  # type: ignore[index]
        with hc.use(blas="openblas"):
            assert chosen(x, w) == "OpenBLAS"
        table = {one.path: one.reason for one in hc.explain(x, w).candidates}
        assert "on request alone" in table["OpenBLAS"]
    assert chosen(x.astype(np.float64), w) == "gemm"
    assert chosen(x[:0], w) == chosen(x, w[:, :0]) == "nothing"


@pytest.mark.parametrize("isa", isas("sparse_", "gemm_"))
def test_paths_by_operands_and_rows(isa: str) -> None:
    x, w = reals((64, 128), 3), reals((48, 128), 4)
    vsq, int8, codebook = (hc.quantize(w, text) for text in ("vsq4-g16-s4", "int8-g32-f16", "nf4-g64"))
    quarter = hc.prune(w, "1:4")
    with hc.use(isa=isa):
        assert chosen(x, vsq.T) == chosen(x, codebook.T) == "gemm"
        assert chosen(x[0], vsq.T) == chosen(vsq, x[0]) == "gemv"
        assert chosen(x[0], quarter.T).startswith("gemv-")
        assert chosen(x, quarter.T) == chosen(quarter, x.T) == "gemm-nonzeros"
        assert chosen(x, vsq.T, "int8") in ("rows", "lanes", "gemm")  # scales fold into the codes
        assert chosen(x, hc.quantize(w, "int8").T, "int8") in ("rows", "lanes", "gemm")
        assert chosen(x, int8.T, "int8") in ("lanes", "gemm")  # a float32 scale per group
        assert chosen(x, codebook.T, "int8") == "gemm"
        assert chosen(hc.quantize(x, "int8"), vsq.T) in ("rows", "lanes", "gemm")
        assert chosen(x, vsq.T, "int8+2:4") in ("rows", "lanes", "gemm", "gemm-nonzeros")
        assert chosen(x, hc.quantize(w, "int8+2:4").T, "int8") in ("rows", "lanes", "gemm", "gemm-nonzeros")


def test_every_path_has_a_time_or_a_reason() -> None:
    x, q = reals((3, 128), 3), hc.quantize(reals((48, 128), 4), "int8+2:4")
    found = hc.explain(x, q.T, "int8")
    assert [c.path for c in found.candidates][-7:] == [  # after the other routes
        "gemv", "gemv-2:4", "gemv-nonzeros", "rows", "lanes", "gemm", "gemm-nonzeros",
    ]  # fmt: skip
    reasons = {c.path: c.reason for c in found.candidates}
    assert reasons["gemv"] == "the weights have a pattern"
    for c in found.candidates[1:]:
        assert (c.predicted_ms is None) == (c.reason not in ("slower by estimate",) and c.path != found.chosen)


def test_three_dimensions_count_all_rows() -> None:
    x, s = reals((3, 4, 128), 5), hc.prune(reals((48, 128), 6), "1:4")
    assert chosen(x, s.T) == "gemm-nonzeros"
    assert chosen(x[:2], s.T).startswith("gemv-")


def test_a_compared_product_shows_both_times() -> None:
    x, s = reals((64, 512), 7), hc.prune(reals((256, 512), 8), "3:4")
    found = hc.explain(x, s.T)
    times = {candidate.path: candidate.predicted_ms for candidate in found.candidates}
    assert found.chosen in FLOATS
    assert all(times[path] is not None and times[path] > 0 for path in FLOATS)
    assert times["OpenBLAS"] is None
    assert hc.explain(x, s.T) == found  # measured once
    data = found.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["chosen"] == found.chosen
    stars = [line for line in str(found).splitlines() if line.startswith("*")]
    assert [line.split()[1] for line in stars] == [found.chosen]


@pytest.mark.parametrize("kind", ["plain", "small", "infinite", "nan", "tiny weights"])
@pytest.mark.parametrize("pattern", ["1:2", "5:8", "3:4", "7:8", "15:16", "1:1"])
@pytest.mark.sweep(every=5)
def test_a_choice_changes_no_bit(pattern: str, kind: str) -> None:
    rng = np.random.default_rng(9)
    x, w = reals((24, 512), 10), reals((96, 512), 11)
    if kind == "small":  # products that round to +0 or -0
        x *= np.exp2(rng.integers(-120, -20, x.shape)).astype(np.float32)
    if kind == "tiny weights":
        w *= np.exp2(rng.integers(-140, -20, w.shape)).astype(np.float32)
    if kind in ("infinite", "nan"):
        x[3, rng.integers(0, 512, 9)] = np.inf if kind == "infinite" else np.nan
    s = hc.prune(w, pattern)
    with hc.use(path="gemm-nonzeros"):
        assert chosen(x, s.T) == "gemm-nonzeros"
        y = hc.linear(x, s)
    for isa in isas("gemm_nm_f32", "gemm_f32"):
        with hc.use(isa=isa):
            found = {c.path: c.reason for c in hc.explain(x, s.T).candidates}["gemm"]
            assert found in (REFUSED[kind], "slower by estimate") if kind == "plain" else found == REFUSED[kind]
            assert same_bits(hc.linear(x, s), y)
            assert same_bits(hc.matmul(s, x.T), np.ascontiguousarray(y.T))
        with hc.use(isa=isa, path="gemm"):
            if kind == "plain":
                assert same_bits(hc.linear(x, s), y)
                assert same_bits(hc.matmul(s, x.T), np.ascontiguousarray(y.T))
            else:
                with pytest.raises(ValueError, match=REFUSED[kind]):
                    hc.linear(x, s)
    kept, masked = s.to_dense(), s.mask
    chain = np.zeros((24, 96))  # of the kept values alone
    with np.errstate(invalid="ignore"):
        for k in range(512):
            terms = np.multiply.outer(x[:, k].astype(np.float64), kept[:, k].astype(np.float64))
            chain = np.where(masked[:, k], (terms + chain).astype(np.float32), chain)
    finite = np.isfinite(x).all(axis=1)
    bound = 2 * 513 * np.finfo(np.float32).eps * (np.abs(x[finite]) @ np.abs(kept).T.astype(np.float64))
    assert np.all(np.abs(y[finite] - chain[finite]) <= bound + 2.0**-149 * 513)
    assert np.array_equal(np.isnan(y), np.isnan(chain))


def test_bad_arguments_are_refused_as_by_matmul() -> None:
    x, q = reals((4, 32), 12), hc.quantize(reals((8, 32), 13), "int8")
    with bad_argument(ValueError, "b", "shape"):
        hc.explain(x, reals((16, 8)))
    with bad_argument(ValueError, "b", "axis"):
        hc.explain(x, hc.quantize(reals((32, 8)), "int8"))
    with bad_argument(ValueError, "activations", "missing"):
        hc.explain(x, reals((32, 8)), activations="int8")
    with bad_argument(ValueError, "a", "value", r"at index \(1, 2\)"):
        x[1, 2] = np.nan
        hc.explain(x, q.T, activations="int8")
    with bad_argument(ValueError, None, "value", "not a format"):
        hc.explain(x, q.T, activations="int99")


def test_nothing_to_multiply_is_said() -> None:
    s = hc.prune(np.ones((8, 16), np.float32), "2:4")
    for x in (np.ones((0, 16), np.float32), np.ones((0, 16), np.float32)[:0]):
        assert hc.explain(x, s.T).chosen == "nothing"
    assert hc.explain(np.ones((4, 0), np.float32), np.ones((0, 3), np.float32)).chosen == "nothing"


def compressed(kind: str, w: Array) -> Any:
    if kind == "eie":
        return hc.encode_eie(w)
    sparse = pytest.importorskip("scipy.sparse")
    return getattr(sparse, f"{kind}_array")(w)


@pytest.mark.parametrize("kind", ["eie", "csr", "csc"])
def test_a_compressed_operand_is_explained_as_it_is_multiplied(kind: str) -> None:
    w = np.where(reals((12, 40), 14) > 1, reals((12, 40), 15), 0).astype(np.float32)
    e, x = compressed(kind, w), reals((20, 40), 16)
    for a, b in ((e, x.T), (e, x[0]), (x, e.T), (x[:3], e.T), (e, hc.quantize(x, "int8").T)):
        assert chosen(a, b) == "compressed" and hc.matmul(a, b).size
    assert chosen(e, x.T, "int8") == "compressed"
    assert chosen(e, x[:0].T) == "nothing"
    assert chosen(compressed(kind, w[:, :0]), x[:, :0].T) == "nothing"


@pytest.mark.parametrize("kind", ["eie", "csr", "csc"])
def test_a_compressed_operand_is_refused_as_by_matmul(kind: str) -> None:
    w, x = np.eye(12, 40, dtype=np.float32), reals((20, 40), 17)
    e = compressed(kind, w)
    holes = x.copy()
    holes[3, 5] = np.nan
    calls: list[tuple[Any, ...]] = [
        (e, x), (x.T, e), (e, e), (e, None), (e, 2.5), (None, e), (e, "x"), (e, np.float32(1)),
        (e, np.ones((40, 3), int)), (e, holes.T, "int8"), (e, x.T, "int99"), (e, x.T, 3), (e, hc.quantize(x.T, "int8")),
        (x.T, e.T),
        (e, hc.quantize(x, "int8").T, "int8"), (e.T, w), (x[:, :12], e), (e, x.T[None], "2:4"),
    ]  # fmt: skip
    for arguments in calls:
        answers = []
        for call in (hc.matmul, hc.explain):
            try:
                call(*arguments)
                answers.append((None, ""))
            except (TypeError, ValueError) as error:
                answers.append((type(error), str(error).replace("explain:", "matmul:")))
        assert answers[0] == answers[1], arguments


def test_indices_of_a_sparse_matrix_are_checked_without_a_product() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    x = reals((3, 8), 18)
    for part, value in (("indices", 99), ("indptr", 99), ("indices", -1)):
        w = sparse.csr_array(np.eye(8, dtype=np.float32))
        getattr(w, part)[2] = value
        with pytest.raises(ValueError) as product:
            hc.matmul(w, x.T)
        with pytest.raises(ValueError) as explained:
            hc.explain(w, x.T)
        assert str(explained.value).replace("explain:", "matmul:") == str(product.value)
    with bad_argument(TypeError, "a", "type"):
        hc.explain(sparse.coo_array(np.eye(8, dtype=np.float32)), x.T)


def test_a_pattern_of_the_activations_alone_is_said_to_save_no_time() -> None:
    x, w = reals((32, 64), 1), reals((48, 64), 2)

    def reason(weights: Any, activations: str) -> str:
        found = hc.explain(x, weights.T, activations)
        return next(one.reason for one in found.candidates if one.path == found.chosen)

    said = "the zeros of activations=2:4 are multiplied too: only pruned weights save time"
    assert said in reason(hc.quantize(w, "int8"), "2:4")
    assert said not in reason(hc.prune(w, "2:4"), "2:4") and "zeros of" not in reason(hc.quantize(w, "int8"), "int8")
    both = hc.explain(x, hc.quantize(w, "int8").T, "int8+2:4")
    text = next(one.reason for one in both.candidates if one.path == both.chosen)
    assert ("zeros of activations=int8+2:4" in text) == ("nonzeros" not in both.chosen)


def test_panels_that_exist_are_weighed_and_exclude_no_path() -> None:
    x = hc.quantize(reals((40, 256), 7), "int8")
    for text in ("int8", "vsq4-g16-s4", "int8+2:4", "vsq8-g64-s8"):
        q = hc.quantize(reals((64, 256), 8), text)
        w = hc.prepack(q)
        before, after = (hc.explain(x, each.T).candidates for each in (q, w))
        wanted = hc.matmul(x, q.T)
        for one, other in zip(before, after, strict=True):
            assert one.path == other.path and (one.predicted_ms is None) == (other.predicted_ms is None)
            if other.predicted_ms is not None and one.predicted_ms is not None:
                assert other.predicted_ms <= one.predicted_ms
                with hc.use(path=other.path):
                    assert same_bits(hc.matmul(x, w.T), wanted)


def test_panels_of_a_pattern_that_exist_cost_no_packing() -> None:
    x, q = reals((8, 512), 9), hc.quantize(reals((512, 512), 10), "int8+2:4")
    for isa in isas():
        with hc.use(isa=isa):
            before, after = (
                next(c.predicted_ms for c in hc.explain(x, w.T, "int8").candidates if c.path == "gemm-nonzeros")
                for w in (q, hc.prepack(q))
            )
            assert (before is None) == (after is None)
            if before is not None and after is not None:
                assert after < before / 1.5
            assert same_bits(hc.matmul(x, hc.prepack(q).T, activations="int8"), hc.matmul(x, q.T, activations="int8"))


def test_extreme_codes_of_the_longest_rows_are_exact() -> None:
    k = 65536
    for ours, theirs in ((-128, -128), (127, -128), (127, 127)):
        x, w = hc.quantize(reals((9, k), 1), "int8"), hc.quantize(reals((5, k), 2), "int8")
        for array, code in ((x, ours), (w, theirs)):
            array.components["codes"][...] = np.uint8(code % 256)
            array.components["scales"][...] = 1
        for path in ("rows", "lanes", "gemm"):
            with hc.use(path=path):
                assert (np.asarray(hc.matmul(x, w.T)) == np.float32(ours * theirs * k)).all(), path


def test_a_call_that_only_a_device_can_compute_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = [
        ("own kernels", "paths", "not here", 0.0),
        ("OpenBLAS", "sgemm", "not here", 0.0),
        ("far", "it", None, 0.0),
    ]
    monkeypatch.setattr(explaining, "_core", SimpleNamespace(explain=lambda *call: (2, routes, (-1, [], None))))
    found = hc.explain(reals((3, 4), 1), reals((4, 5), 2))
    assert found.chosen == "far"
    assert [(one.path, one.reason) for one in found.candidates] == [("OpenBLAS", "not here"), ("far", "it")]


def test_a_path_without_costs_shows_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = [("own kernels", "paths", None, 1e-6), ("OpenBLAS", "sgemm", "not here", 0.0)]
    paths = [("gemm", "panels", None, 1e-6), ("new", "rows", None, 1e6)]
    monkeypatch.setattr(explaining, "_core", SimpleNamespace(explain=lambda *call: (0, routes, (0, paths, None))))
    new = hc.explain(reals((3, 4), 1), reals((4, 5), 2)).candidates[-1]
    assert (new.path, new.predicted_ms, new.reason) == ("new", None, "taken if forced: its costs are not measured")
