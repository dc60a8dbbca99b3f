"""EIE's storage, its matmuls and the cycles of its machine, compared with their definition."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, same_bits

import heterocompute as hc
from heterocompute.base.writer import Writer
from heterocompute.files.checkpoint import inspect
from heterocompute.files.safetensors import save
from heterocompute.reference import compressed, kmeans

SHAPES = [(1, 1), (4, 1), (1, 7), (23, 5), (64, 65), (130, 33), (5, 0), (0, 5), (0, 0)]
COUNTS = [1, 2, 4, 64]
ISAS = isas("csr", "eie", "pack_x32")


def pruned(shape: tuple[int, ...], density: float, seed: int = 0, levels: int = 0) -> np.ndarray[Any, Any]:
    """Return zeros and nonzeros; the nonzeros have a given number of different values (0: any)."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, levels + 1, shape) - levels / 2 - 0.25 if levels else rng.standard_normal(shape)
    return np.where(rng.random(shape) < density, values, 0).astype(np.float32)


def encoded(w: np.ndarray[Any, Any], elements: int) -> hc.EIEArray:
    return hc.encode_eie(w, elements=min(elements, max(len(w), 1)))


def test_the_stated_example() -> None:
    """[0, 0, 1, 2, 18 zeros, 3] -> values 1, 2, 0, 3, runs 2, 0, 15, 2."""
    column = np.zeros((23, 1), np.float32)
    column[[2, 3, 22], 0] = 1, 2, 3
    e = hc.encode_eie(column, elements=1)
    assert e.values().tolist() == [1, 2, 0, 3] and e.runs().tolist() == [2, 0, 15, 2]
    assert e.components["pointers"].tolist() == [[0, 4]] and e.padding == 1
    assert same_bits(e.to_dense(), column)


def test_runs_are_counted_in_the_rows_of_an_element_and_begin_anew_in_each_column() -> None:
    w = np.zeros((8, 2), np.float32)
    w[[0, 6], 0] = 1, 2
    w[[5, 7], 1] = 3, 4
    e = hc.encode_eie(w, elements=2)
    # Element 0 has rows 0 2 4 6, element 1 has rows 1 3 5 7.
    assert e.components["pointers"].tolist() == [[0, 2, 2], [0, 0, 2]]
    assert e.runs().tolist() == [0, 2, 2, 0] and e.values().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("elements", COUNTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("density", [0, 0.02, 0.3, 1])
@pytest.mark.sweep(every=3)
def test_encoding_is_the_definition_and_comes_back(shape: tuple[int, int], density: float, elements: int) -> None:
    w = pruned(shape, density)
    e = encoded(w, elements)
    pointers, entries = compressed.eie_encode(w, e.components["codebook"], e.elements)
    assert same_bits(e.components["pointers"], pointers) and same_bits(e.components["entries"], entries)
    dense = e.to_dense()
    assert same_bits(dense, compressed.eie_decode(shape[0], e.components["codebook"], pointers, entries))
    assert np.array_equal(dense != 0, w != 0)  # no centroid of these is 0
    levels = e.components["codebook"][1:].astype(np.float64)
    if w.any():
        nearest = np.abs(w[w != 0].astype(np.float64)[:, None] - levels).min(axis=1)
        assert np.array_equal(np.abs(w.astype(np.float64) - dense)[w != 0], nearest)
    assert same_bits(hc.encode_eie(dense, e.components["codebook"], e.elements).to_dense(), dense)
    assert e.padding == np.count_nonzero(entries & 15 == 0) == len(entries) - np.count_nonzero(w)
    assert e.nbytes == len(entries) + 64 + 4 * pointers.size
    assert e.density == np.count_nonzero(w) / max(w.size, 1)


@pytest.mark.parametrize("levels", [1, 2, 15])
def test_up_to_15_values_are_exact(levels: int) -> None:
    w = pruned((200, 70), 0.1, levels=levels)
    for elements in COUNTS:
        e = hc.encode_eie(w, elements=elements)
        assert same_bits(e.to_dense(), w) and e == hc.encode_eie(w.astype(np.float64), elements=elements)


def test_the_default_codebook_is_the_best_of_15() -> None:
    w = pruned((64, 64), 0.5)
    learned = hc.encode_eie(w).components["codebook"]
    assert learned[0] == 0
    assert same_bits(learned[1:], kmeans.optimal(w[w != 0], None, 15).astype(np.float32))


def test_layout_dtype_threads_and_isa_change_nothing() -> None:
    w = pruned((150, 90), 0.2)
    expected = hc.encode_eie(w, elements=8)
    for isa in isas():
        for threads in (1, 2, 5):
            with hc.use(isa=isa, threads=threads):
                for same in (w.copy("F"), np.repeat(w, 2, axis=1)[:, ::2], w.astype(np.float64)):
                    found = hc.encode_eie(same, elements=8)
                    assert found == expected and same_bits(found.to_dense(), expected.to_dense())
    half = w.astype(np.float16)
    assert hc.encode_eie(half, elements=8) == hc.encode_eie(half.astype(np.float32), elements=8)
    negative = np.where(w == 0, np.float32(-0.0), w)
    assert hc.encode_eie(negative, elements=8) == expected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("density", [0.02, 0.3, 1])
@pytest.mark.sweep(every=3)
def test_a_vector_meets_the_entries_in_order_and_zeros_are_skipped(shape: tuple[int, int], density: float) -> None:
    w, x = pruned(shape, density), pruned(shape[1:], 0.4, seed=1)
    for elements in COUNTS:
        e = encoded(w, elements)
        parts = e.components
        wanted = compressed.eie_multiply(shape[0], parts["codebook"], parts["pointers"], parts["entries"], x)
        for isa in ISAS:
            for threads in (1, 2):
                with hc.use(isa=isa, threads=threads):
                    assert same_bits(hc.linear(x, e), wanted)
                    few = np.stack([x, np.zeros_like(x), x])
                    assert same_bits(hc.linear(few, e), np.stack([wanted, np.zeros_like(wanted), wanted]))
                    assert same_bits(hc.matmul(e, few.T), np.stack([wanted, np.zeros_like(wanted), wanted], axis=1))
                    assert same_bits(hc.matmul(e, x), wanted)
                    assert same_bits(hc.matmul(e, x[:, None]), wanted[:, None])
                    assert same_bits(e @ x, wanted)


def test_sums_that_become_minus_zero_are_those_of_the_entries() -> None:
    """Tiny products round to -0, which later zeros of x must not change."""
    w, x = pruned((40, 30), 0.5), pruned((3, 30), 0.5, seed=3)
    e = hc.encode_eie(w, elements=4)
    parts = e.components
    for scale in (1e-30, 1e-44, 1):
        few = (x * np.float32(scale)).astype(np.float32)
        few[:, 20:] = 0
        wanted = [
            compressed.eie_multiply(40, parts["codebook"], parts["pointers"], parts["entries"], row) for row in few
        ]
        assert same_bits(hc.linear(few, e), np.stack(wanted)) and same_bits(hc.linear(few[1], e), wanted[1])


def test_the_rows_of_products_are_not_a_component() -> None:
    e = hc.encode_eie(pruned((40, 30), 0.5))
    size = e.nbytes
    hc.linear(np.ones(30, np.float32), e)
    assert e.nbytes == size and hc.encode_eie(e.to_dense()) == e and same_bits(e.T.to_dense(), e.to_dense().T)
    with pytest.raises(ValueError, match="shares memory"):
        both = np.ones(60, np.float32)
        hc.linear(both[:30], e, out=both[:40])


@pytest.mark.parametrize("vectors", [9, 70])
def test_more_vectors_meet_all_entries_in_order(vectors: int) -> None:
    w = pruned((60, 50), 0.2)
    x, e = pruned((vectors, 50), 0.6, seed=2), hc.encode_eie(w)
    rows = [np.flatnonzero(row) for row in w]
    starts = np.cumsum([0, *map(len, rows)])
    dense = e.to_dense()
    values = np.concatenate([row[at] for row, at in zip(dense, rows, strict=True)])
    wanted = compressed.csr_chain(x, starts, np.concatenate(rows).astype(np.int32), values)
    for isa in ISAS:
        with hc.use(isa=isa, threads=2):
            assert same_bits(hc.linear(x, e), wanted)
            assert same_bits(hc.matmul(e, x.T), np.ascontiguousarray(wanted.T))
    one = np.stack([hc.linear(row, e) for row in x])
    assert np.array_equal(one, wanted)  # skipping only changes the sign of a zero if numbers underflow


def test_bias_activations_and_out() -> None:
    w, x, bias = pruned((12, 40), 0.3), pruned((5, 40), 1, seed=3), pruned((12,), 1, seed=4)
    e = hc.encode_eie(w)
    plain = hc.linear(x, e)
    out = np.zeros((5, 24), np.float32)[:, ::2]
    assert hc.linear(x, e, bias=bias, out=out) is out and np.array_equal(out, plain + bias)
    rounded = hc.fake_quantize(x, "int8")
    assert same_bits(hc.linear(x, e, activations="int8"), hc.linear(rounded, e))
    assert np.array_equal(hc.linear(hc.quantize(x, "int8"), e), hc.linear(rounded, e))
    assert same_bits(hc.linear(x[None, :, None], e), plain[None, :, None])


def test_what_is_not_finite_meets_only_what_is_stored() -> None:
    w = np.zeros((40, 2), np.float32)
    w[39, 0], w[0, 1] = 1, 1  # column 0 has entries that pad
    for vectors in (1, 3, 9):
        x = np.full((vectors, 2), np.inf, np.float32)
        x[:, 1] = 1
        for isa in ISAS:
            with hc.use(isa=isa):
                found = hc.linear(x, hc.encode_eie(w, elements=1))
        wanted = np.zeros(40, np.float32)
        wanted[0], wanted[39] = 1, np.inf
        assert np.array_equal(found, np.tile(wanted, (vectors, 1)))


@pytest.mark.parametrize("elements", COUNTS)
@pytest.mark.parametrize("shape", [(64, 40), (70, 33), (64, 0)])
def test_cycles_are_those_of_the_machine(shape: tuple[int, int], elements: int) -> None:
    for density in (0, 0.02, 0.1, 0.5):
        e = encoded(pruned(shape, density), elements)
        for depth in (1, 2, 3, 8, 1000):
            for x in (None, pruned(shape[1:], 0.5, seed=9)):
                active = np.ones(shape[1], bool) if x is None else x != 0
                found = e.load_balance(x, depth)
                parts = e.components
                cycles, broadcasts, stalls, busy, padding = compressed.eie_cycles(
                    parts["pointers"], parts["entries"], active, depth
                )
                assert (found.cycles, found.broadcasts, found.stalls) == (cycles, broadcasts, stalls)
                assert np.array_equal(found.busy, busy) and found.padding == padding


def test_a_deeper_queue_balances_better() -> None:
    e = hc.encode_eie(pruned((640, 200), 0.1), elements=64)
    loads = [e.load_balance(depth=depth) for depth in (1, 2, 4, 8, 16, 256)]
    assert all(a.cycles >= b.cycles for a, b in zip(loads, loads[1:], strict=False))
    assert loads[0].efficiency < 0.6 < loads[-1].efficiency <= 1
    assert all(load.busy.sum() == e.components["entries"].size for load in loads)
    assert loads[-1].stalls == 0 and loads[0].useful == pytest.approx(1 - e.padding / e.components["entries"].size)


def test_it_behaves_as_an_array() -> None:
    w = pruned((9, 7), 0.3, levels=4)
    e = hc.encode_eie(w, elements=3)
    assert (e.shape, e.ndim, e.size, e.dtype, len(e), e.elements) == ((9, 7), 2, 63, np.float32, 9, 3)
    assert same_bits(np.asarray(e), w) and np.asarray(e, np.float64).dtype == np.float64
    assert e.to_dense(np.float16).dtype == np.float16
    for same in (pickle.loads(pickle.dumps(e)), copy.deepcopy(e), copy.copy(e)):
        assert same == e
    assert e != hc.encode_eie(w, elements=2) and e != w.tolist()
    assert "elements=3" in repr(e)
    with bad_argument(TypeError, "add", "type"):
        e + 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(e)
    for part in e.components.values():
        with pytest.raises(ValueError, match="read-only"):
            part[...] = 0
    entries = e.components["entries"].copy()
    other = hc.EIEArray({**e.components, "entries": entries}, e.shape)
    entries[:] = 255
    assert other == e  # writable arrays are copied


def test_bad_arguments_are_named() -> None:
    w = np.ones((4, 3), np.float32)
    for bad in (np.ones(3, np.float32), np.ones((1, 2, 3), np.float32)):
        with bad_argument(ValueError, "w", "shape"):
            hc.encode_eie(bad)
    for value in (np.nan, np.inf, 1e300):
        wrong = np.ones((4, 3))
        wrong[2, 1] = value
        with bad_argument(ValueError, "w", "value", r"at index \(2, 1\)"):
            hc.encode_eie(wrong)
    with bad_argument(TypeError, "w", "dtype"):
        hc.encode_eie(w.astype(np.int64))
    for elements in (0, -1, 4097, 2**70):
        with bad_argument(ValueError, "elements", "value"):
            hc.encode_eie(w, elements=elements)
    for odd in (2.0, "4", None, True, np.ones(2)):
        with bad_argument(TypeError, "elements", "type"):
            hc.encode_eie(w, elements=odd)  # type: ignore[arg-type]
    good = np.arange(16, dtype=np.float32)
    for table in (good[1:], good[:15], good + 1, good[::-1], np.where(good == 5, np.nan, good)):
        with pytest.raises(ValueError, match="encode_eie: codebook"):
            hc.encode_eie(w, table)
    e = hc.encode_eie(w)
    with bad_argument(TypeError, "b", "axis"):
        hc.matmul(np.ones((2, 4), np.float32), e)
    with bad_argument(TypeError, None, "type", "both operands are compressed"):
        hc.matmul(e, e)
    with bad_argument(ValueError, "x", "shape"):
        hc.linear(np.ones((2, 4), np.float32), e)
    with bad_argument(ValueError, "depth", "value"):
        e.load_balance(depth=0)
    for odd in (1.5, "8", None, True):
        with bad_argument(TypeError, "depth", "type"):
            e.load_balance(depth=odd)  # type: ignore[arg-type]
    with bad_argument(ValueError, "x", "shape"):
        e.load_balance(np.ones(4, np.float32))


def test_components_that_do_not_fit_are_refused() -> None:
    e = hc.encode_eie(pruned((40, 6), 0.2), elements=4)
    good = {name: part.copy() for name, part in e.components.items()}

    def refused(match: str, shape: tuple[int, ...] = (40, 6), **parts: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=match):
            hc.EIEArray({**good, **parts}, shape)

    far = good["pointers"].copy()
    far[1, 3] = 2**32 - 1
    falling = good["pointers"].copy()
    falling[2, 1] += 5
    late = good["pointers"].copy()
    late[0] += 1
    for pointers in (far, falling, late, np.zeros_like(far)):
        refused("element .* column", pointers=pointers)
    refused("element .* column", entries=good["entries"] | 0xF0)  # runs past the rows
    refused("element .* column", entries=good["entries"][:-1])
    refused("element .* column", entries=np.append(good["entries"], good["entries"][:1]))
    refused("pointers have shape", pointers=good["pointers"][:, 1:])
    refused("pointers have shape", shape=(40, 5))
    refused("element", shape=(36, 6))
    refused("element 0, column 0", shape=(3, 6))
    refused("elements for", pointers=np.zeros((0, 7), np.uint32), entries=good["entries"][:0])
    refused("shape is", shape=(40,))
    refused("shape is", shape=(-1, 6))
    refused("pointers is int64", pointers=good["pointers"].astype(np.int64))
    refused("entries is list", entries=[1])
    refused("codebook has shape", codebook=good["codebook"][:15])
    for number, value in ((0, 1), (3, np.nan), (15, np.inf)):
        table = good["codebook"].copy()
        table[number] = value
        refused(rf"codebook\[{number}\]", codebook=table)
    with bad_argument(TypeError, "components", "type"):
        hc.EIEArray({"codes": good["entries"]}, (40, 6))
    assert hc.EIEArray(good, (40, 6)) == e


def test_components_cannot_be_written_to() -> None:
    e = hc.encode_eie(np.ones((64, 64), np.float32))
    for part in e.components.values():
        with pytest.raises(ValueError, match="WRITEABLE"):
            part.flags.writeable = True
    parts = {name: part.copy() for name, part in e.components.items()}
    view = parts["entries"][:]
    parts["entries"].flags.writeable = False
    made = hc.EIEArray(parts, e.shape)
    view[:] = 0xF1
    assert made == e
    for shape in (5, None, (8.0, 16), (2**63, 16), (64, 64, 1)):
        with bad_argument(ValueError, "shape", "value"):
            hc.EIEArray(e.components, shape)  # type: ignore[arg-type]


def test_the_transposed_matrix_shares_its_components() -> None:
    w = pruned((12, 40), 0.3)
    e, x = hc.encode_eie(w), pruned((20, 40), 1, seed=3)
    assert (e.axis, e.T.axis, e.T.shape, e.T.T) == ((1,), (0,), (40, 12), e) and e.T != e
    assert same_bits(e.T.to_dense(), np.ascontiguousarray(e.to_dense().T))
    assert all(e.T.components[name] is part for name, part in e.components.items())
    for vectors in (x[0], x[:3], x, x.reshape(4, 5, 40)):
        assert same_bits(hc.matmul(vectors, e.T), hc.linear(vectors, e))
        assert same_bits(vectors @ e.T, hc.linear(vectors, e)) and same_bits(np.matmul(vectors, e.T), vectors @ e.T)
    assert same_bits(hc.matmul(hc.quantize(x, "int8"), e.T), hc.linear(hc.quantize(x, "int8"), e))
    for wrong in (lambda: e.T @ x[:, :12].T, lambda: hc.linear(x[:, :12], e.T), lambda: hc.explain(e.T, x[:, :12].T)):
        with pytest.raises(TypeError, match=r"stored along axis \(0,\), its reduction axis is 1"):
            wrong()
    with bad_argument(ValueError, None, "value", "this matrix is transposed"):
        e.T.load_balance()
    for same in (pickle.loads(pickle.dumps(e.T)), copy.deepcopy(e.T), hc.EIEArray(e.components, (40, 12), axis=(0,))):
        assert same == e.T


class Named(hc.EIEArray):
    pass


def test_a_subclass_stays_one() -> None:
    e = encoded(pruned((5, 4), 0.5), 2)
    named = Named(e.components, e.shape)
    for same in (named.T.T, pickle.loads(pickle.dumps(named)), copy.deepcopy(named)):
        assert type(same) is Named and same == e


def test_what_takes_floats_decodes_nothing_silently() -> None:
    w = pruned((8, 8), 0.5, levels=5)
    e = encoded(w, 2)
    calls: list[Callable[[], Any]] = [
        lambda: hc.quantize(e, "int8"),
        lambda: hc.prune(e, "2:4"),
        lambda: hc.fake_quantize(e, "int8"),
        lambda: hc.scores.wanda(e, np.ones((3, 8), np.float32)),
        lambda: hc.study(e, ["int8"]),
        lambda: hc.encode_eie(e),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"is an EIEArray; take its to_dense\(\) first"):
            call()
    with bad_argument(ValueError, None, "shape", "no float tensor"):  # it is copied, like a QuantizedArray
        hc.study({"a": e}, ["int8"])
    assert hc.error(w, e).max_abs == 0


def test_the_mask_is_what_is_stored() -> None:
    w = pruned((70, 9), 0.1)
    e = hc.encode_eie(w, elements=1)
    assert e.padding and np.array_equal(e.mask, w != 0) and np.array_equal(e.T.mask, w.T != 0)
    table = np.arange(16, dtype=np.float32) * 0
    table[15] = 1
    assert np.array_equal(hc.encode_eie(w, table).mask, w != 0)  # a stored value may be 0


def test_scipy_gets_what_is_stored() -> None:
    pytest.importorskip("scipy.sparse")
    w, x = pruned((70, 9), 0.1), pruned((20, 9), 1, seed=1)
    e = hc.encode_eie(w, elements=1)
    for array, dense in ((e, e.to_dense()), (e.T, e.T.to_dense())):
        for layout in ("csr", "csc"):
            found = array.to_scipy(layout)
            assert found.format == layout and found.nnz == e.nnz and np.array_equal(found.toarray(), dense)
    assert same_bits(hc.linear(x, e.to_scipy()), hc.linear(x, e))
    with bad_argument(ValueError, "layout", "value"):
        e.to_scipy("coo")


def test_numpy_reaches_nothing_but_products() -> None:
    e = hc.encode_eie(pruned((9, 7), 0.3))
    for call in (lambda: np.concatenate([e, e]), lambda: np.sum(e), lambda: np.add(e, 1), lambda: np.where(e, 1, 0)):
        with pytest.raises(TypeError, match=r"is not for an EIEArray; call to_dense\(\) for its values"):
            call()
    with bad_argument(ValueError, None, "value", "to_dense"):
        e[0]
    with bad_argument(ValueError, None, "value", "copy=False is impossible"):
        np.array(e, copy=False)
    with pytest.raises(TypeError, match="does not support item assignment"):
        e.components["entries"] = 1  # type: ignore[index]
    assert "<td>axis</td>" not in e._repr_html_() and "(9, 7)" in e._repr_html_()
    for dtype in ("x", np.int8, complex, [("a", "f4")], 2.5):
        with pytest.raises(TypeError, match="to_dense: dtype is .*, expected float16"):
            e.to_dense(dtype)


def test_more_elements_than_rows_are_idle() -> None:
    w = pruned((3, 50), 0.5, levels=4)
    e = hc.encode_eie(w, elements=64)
    assert e.elements == 64 and same_bits(e.to_dense(), w) and not e.components["pointers"][3:].any()
    x = pruned((50,), 1, seed=1)
    for isa in ISAS:
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                assert np.array_equal(hc.linear(x, e), hc.linear(x, hc.encode_eie(w, elements=3)))
                assert same_bits(hc.linear(np.tile(x, (9, 1)), e)[8], hc.linear(np.tile(x, (9, 1)), e)[0])
    load = e.load_balance()
    assert not load.busy[3:].any() and load.efficiency <= 3 / 64
    pointers, entries = compressed.eie_encode(w, e.components["codebook"], 64)
    assert same_bits(e.components["pointers"], pointers) and same_bits(e.components["entries"], entries)
    assert hc.encode_eie(w[:0]).elements == hc.encode_eie(w[:1]).elements == 4


@pytest.mark.parametrize("shape", [(23, 5), (5, 0), (0, 5), (0, 0), (130, 33)])
def test_files_bring_it_back(shape: tuple[int, int], tmp_path: Path) -> None:
    e, path = hc.encode_eie(pruned(shape, 0.3)), tmp_path / "e.safetensors"
    for array in (e, e.T):
        array.save(path)
        back = hc.load(path)
        assert isinstance(back, hc.EIEArray) and back == array
        back.save(tmp_path / "again.safetensors")
        assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    q = hc.quantize(np.ones((2, 8), np.float32), "int4")
    save(path, {"e": e, "t": e.T, "q": q, "plain": np.arange(3)})
    found = hc.load(path)
    assert (found["e"], found["t"], found["q"]) == (e, e.T, q) and found["plain"].tolist() == [0, 1, 2]
    rows = {row["name"]: row for row in inspect(path)}
    assert rows["e"]["format"] == "eie-p4" and rows["e"]["shape"] == list(shape) and rows["e"]["bytes"] == e.nbytes


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    e, path = hc.encode_eie(pruned((40, 6), 0.2)), str(tmp_path / "e.safetensors")
    parts = {f"array.{name}": part for name, part in e.components.items()}
    fields = {"format": "eie-p4", "shape": [40, 6], "axis": [1], "dtype": "float32"}

    def refused(words: str, change: dict[str, Any] | None = None, **changed: Any) -> None:
        tensors = {**parts, **{f"array.{name}": part for name, part in changed.items()}}
        tensors = {name: part for name, part in tensors.items() if part is not None}
        entry = {"version": 1, "single": True, "tensors": {"array": {**fields, **(change or {})}}}
        layout = {name: (part.dtype.name, part.shape) for name, part in tensors.items()}
        with Writer(path, layout, {"heterocompute": json.dumps(entry)}) as writer:
            for name, part in tensors.items():
                writer.write(name, part)
        with pytest.raises(ValueError, match=words) as caught:
            hc.load(path)
        assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)

    refused("'array.pointers' is uint32", {"format": "eie-p3"})
    refused("'array.pointers' is uint32", {"shape": [40, 7]})
    refused("'array.pointers' is uint32", {"axis": [0]})
    refused("more rows than the element has", {"shape": [4, 6]})
    refused("two dimensions and one axis", {"shape": [40, 6, 1]})
    refused("two dimensions and one axis", {"axis": [0, 1]})
    refused("axis .* does not fit shape", {"axis": [2]})
    refused("not a format", {"format": "eie-p0"})
    refused("not a format", {"format": "eie"})
    refused("unknown source dtype", {"dtype": "int8"})
    refused("size overflows", {"shape": [2**40, 2**40]})
    refused("at most 2\\^31 - 1", {"shape": [2**33, 6]})
    refused("'array.pointers' is uint32", {"format": "eie-p999999999"})
    refused("lacks its component 'array.entries'", entries=None)
    refused("'array.entries' is uint8", entries=e.components["entries"][None])
    refused("element .* column", entries=e.components["entries"] | np.uint8(0xF0))
    refused("element .* column", pointers=e.components["pointers"][::-1] + np.uint32(1))
    refused(r"codebook\[3\]", codebook=np.where(np.arange(16) == 3, np.nan, e.components["codebook"]).astype("f4"))
    refused("ascend", codebook=np.float32([0, *range(15, 0, -1)]))
    refused("'array.codes' is no component of eie-p4", codes=np.zeros((1, 1), np.uint8))
    refused("does not hold exactly 'array'", other=np.zeros(1, np.uint8))
