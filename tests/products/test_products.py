"""matmul and linear: the stated orders and the exact integers of the definition, bitwise, on every ISA."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from common import FORMATS, bad_argument, guarded_copy, isas, reals, same_bits

import heterocompute as hc
from heterocompute.reference import integer_terms, product

WEIGHTS = [
    "int8", "int5", "int2", "int16", "int8-asym", "int4-g32-f16", "int4-g128", "int3-g5-asym", "int8-g16-asym",
    "int2-g1", "vsq4-g16-s4", "vsq4-g32-s4", "vsq4-g64-s8", "vsq3-g16-s4", "vsq4-g16", "vsq8-g16-s10", "vsq6-g5-s6",
    "vsq4u-g16-s4", "vsq8u-g16", "vsq4-g16-s4-tensor",
]  # fmt: skip
ACTIVATIONS = [None, "int8", "int16", "int24", "vsq4-g16-s4", "int4-g32", "int8-asym", "vsq8-g64-s8-tensor", "vsq4-g16"]
EXACT_PAIRS = [
    ("vsq4-g16-s4", "vsq4-g16-s4"),
    ("vsq6-g32-s6", "int8"),
    ("vsq8-g16-s10", "vsq8u-g64-s8"),
    ("int8", "int24"),
]
SIZES = [(1, 5, 50), (3, 17, 64), (8, 33, 37), (9, 16, 37), (13, 35, 128), (2, 3, 1), (30, 1, 200)]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.sweep(every=10)
def test_products_are_those_of_the_definition(weights: str, isa: str) -> None:
    fmt = hc.format(weights)
    with hc.use(isa=isa):
        for seed, ((m, n, k), activations) in enumerate(itertools.product(SIZES, ACTIVATIONS)):
            x, w = reals((m, k), seed), reals((n, k), seed + 1)
            q = hc.quantize(w, fmt)
            act = None if activations is None else hc.format(activations)
            expected = product.linear(x, product.packed(w, fmt), activations=act)
            found = hc.linear(x, q, activations=act)
            assert same_bits(found, expected), (m, n, k, activations)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("text", FORMATS)
def test_every_format_multiplies(text: str) -> None:
    x, w = reals((5, 70), 1), reals((6, 70), 2)
    expected = product.linear(x, product.packed(w, hc.format(text)))
    assert same_bits(hc.linear(x, hc.quantize(w, text)), expected)
    both = product.matmul(product.packed(x, hc.format(text)), product.packed(w.T, hc.format("int8"), axis=0))
    assert same_bits(hc.matmul(hc.quantize(x, text), hc.quantize(w.T, "int8", axis=0)), both)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("k", [4096, 65536, 65537, 131072])
@pytest.mark.sweep(every=3)
def test_extreme_codes_give_the_exact_integer(k: int, isa: str) -> None:
    """The largest products of one sign, where an int32 or a saturating int16 sum would break."""
    with hc.use(isa=isa):
        for sign, m in itertools.product((1.0, -1.0), (2, 11)):
            x, w = np.full((m, k), 1.0, np.float32), np.full((3, k), sign, np.float32)
            y = hc.matmul(hc.quantize(x, "int8"), hc.quantize(w, "int8").T)
            s = np.float64(np.float32(1) / np.float32(127))
            assert (y == np.float32(s * s * np.float64(sign * 127 * 127 * k))).all()
            wide = hc.matmul(x, hc.quantize(w, "vsq4-g16-s4").T, activations="int24")
            gamma = np.float64(hc.quantize(w, "vsq4-g16-s4").components["coarse"][0])
            top = np.float64(np.float32(1) / np.float32(2**23 - 1))
            assert (wide == np.float32(gamma * top * np.float64(sign * 105 * (2**23 - 1) * k))).all()


@pytest.mark.parametrize("weights", ["int24", "int24+2:4"])
@pytest.mark.parametrize("m", [1, 8, 9])
def test_sums_beyond_64_bits_are_refused(m: int, weights: str) -> None:
    w = np.ones((2, 2**17 + 1), np.float32)
    with bad_argument(ValueError, None, "value", "131073.*8388607.*8388607.*64-bit"):
        hc.linear(np.ones((m, w.shape[1]), np.float32), hc.quantize(w, weights), activations="int24")
    y = hc.linear(np.ones((m, 2**17), np.float32), hc.quantize(w[:, 1:], "int24"), activations="int24")
    assert (y == 2**17).all()


@pytest.mark.parametrize("isa", isas())
@pytest.mark.sweep(every=6)
def test_random_integer_products_are_equation_5(isa: str) -> None:
    rng = np.random.default_rng(0)
    with hc.use(isa=isa):
        for (wf, af), (m, n, k) in itertools.product(EXACT_PAIRS, [(4, 6, 1000), (33, 70, 777), (64, 65, 4097)]):
            x = rng.standard_normal((m, k)).astype(np.float32)
            w = rng.standard_normal((n, k)).astype(np.float32)
            a, b = product.packed(x, hc.format(af)), product.packed(w, hc.format(wf))
            qa, qb = hc.quantize(x, af), hc.quantize(w, wf)
            integers = _integers(qa), _integers(qb)
            assert k * int(np.abs(integers[0]).max()) * int(np.abs(integers[1]).max()) < 2**63
            exact = integers[0] @ integers[1].T  # within int64, as the line above says
            scale = np.multiply.outer(_row_scale(qa), _row_scale(qb))
            expected = (scale * exact.astype(np.float64)).astype(np.float32)
            assert same_bits(hc.matmul(qa, qb.T), expected)
            assert same_bits(product.linear(a, b), expected)


def _row_scale(q: hc.QuantizedArray) -> np.ndarray:
    part = q.components["coarse"] if "coarse" in q.components else q.components["scales"][:, 0]
    return part.astype(np.float64)


def _integers(q: hc.QuantizedArray) -> np.ndarray:
    """Return the integers of a row-scaled array, from its unrounded values."""
    return np.rint(q.dequantize(np.float64) / _row_scale(q)[:, None]).astype(np.int64)


def test_isas_and_threads_change_nothing() -> None:
    rng = np.random.default_rng(1)
    for (m, n, k), weights, activations in itertools.product(
        [(1, 301, 515), (7, 64, 256), (61, 133, 515), (200, 37, 1024)],
        ["vsq4-g16-s4", "int4-g32-f16", "int8", "vsq4-g16"],
        [None, "int8", "int24"],
    ):
        x, q = (
            rng.standard_normal((m, k)).astype(np.float32),
            hc.quantize(rng.standard_normal((n, k)).astype(np.float32), weights),
        )
        with hc.use(isa="scalar", threads=1):
            expected = hc.linear(x, q, activations=activations)
        for isa, threads in itertools.product(isas(), (1, 2, 5)):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(hc.linear(x, q, activations=activations), expected), (isa, threads, weights)


@pytest.mark.parametrize("isa", isas())
def test_own_dense_product_is_one_chain(isa: str) -> None:
    with hc.use(isa=isa, blas="own"):
        for m, n, k in [(1, 1, 1), (3, 5, 7), (15, 33, 130), (29, 65, 1025), (0, 3, 4), (3, 0, 4), (3, 4, 0)]:
            a, b = reals((m, k), 1), reals((k, n), 2)
            assert same_bits(hc.matmul(a, b), product.many_vectors(a, b.T))
            assert same_bits(hc.matmul(a.T.copy().T, b[:, ::-1][:, ::-1]), product.many_vectors(a, b.T))


def test_float_products_stay_within_the_derived_bound() -> None:
    for m, k in [(1, 300), (8, 1000), (40, 3000)]:
        x, w = reals((m, k), 3), reals((20, k), 4)
        for text in ("vsq4-g16-s4", "int4-g32-f16", "int8"):
            q = hc.quantize(w, text)
            values = q.dequantize(np.float64)
            bound = 2 * (k + 1) * np.finfo(np.float32).eps * np.abs(x).max() * np.abs(values).max()
            assert np.abs(hc.linear(x, q) - x.astype(np.float64) @ values.T).max() <= bound


SHAPES = [
    ((3, 40), (40, 5)), ((40,), (40, 5)), ((3, 40), (40,)), ((40,), (40,)), ((2, 3, 40), (40, 5)),
    ((3, 40), (2, 40, 5)), ((2, 3, 40), (2, 40, 5)), ((4, 1, 3, 40), (2, 40, 5)), ((2, 12, 40), (1, 40, 5)),
    ((0, 40), (40, 5)), ((3, 40), (40, 0)), ((3, 0), (0, 4)), ((0, 3, 40), (40, 5)), ((12, 40), (40, 15)),
    ((2, 11, 40), (3, 1, 40, 13)),
]  # fmt: skip


@pytest.mark.parametrize("text", ["int8", "vsq4-g16-s4", "int4-g8"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_broadcast_as_in_numpy(shapes, text: str) -> None:
    a, b = reals(shapes[0], 1), reals(shapes[1], 2)
    qa, qb = hc.quantize(a, text), hc.quantize(b, text, -2 if b.ndim > 1 else 0)
    va, vb = qa.dequantize(np.float64), qb.dequantize(np.float64)
    k = a.shape[-1]

    def close(found: np.ndarray, left: np.ndarray, right: np.ndarray) -> bool:
        expected = np.matmul(left.astype(np.float64), right.astype(np.float64))
        top = np.abs(left).max(initial=0) * np.abs(right).max(initial=0)
        limit = 2 * (k + 1) * np.finfo(np.float32).eps * k * top
        alike = found.dtype == np.float32 and found.shape == expected.shape
        return alike and bool((np.abs(found - expected) <= limit).all())

    assert close(hc.matmul(a, b), a, b)
    with hc.use(blas="own"):
        assert close(hc.matmul(a, b), a, b)
    assert close(hc.matmul(qa, b), va, b) and close(hc.matmul(a, qb), a, vb) and close(hc.matmul(qa, qb), va, vb)
    assert close(hc.matmul(a, qb, activations="int24"), a, vb) and close(hc.matmul(qa, b, activations="int24"), va, b)
    shape = np.matmul(va, vb).shape
    backwards = np.empty(shape, np.float32)[::-1] if shape else np.empty(shape, np.float32)
    for out in (np.empty(shape[::-1], np.float32).T, np.empty((*shape, 2), np.float32)[..., 0], backwards):
        out[...] = 7
        assert hc.matmul(qa, qb, out=out) is out and close(out, va, vb)
        assert hc.matmul(a, qb, out=out) is out and close(out, a, vb)


def test_nothing_beside_out_is_written() -> None:
    x, q = reals((21, 50), 1), hc.quantize(reals((19, 50), 2), "vsq4-g16-s4")
    for activations in (None, "int8"):
        for rows in (1, 8, 21):
            frame = np.full((rows + 2, 19 + 2), 7.0, np.float32)
            hc.linear(x[:rows], q, activations=activations, out=frame[1:-1, 1:-1])
            assert same_bits(np.ascontiguousarray(frame[1:-1, 1:-1]), hc.linear(x[:rows], q, activations=activations))
            frame[1:-1, 1:-1] = 7
            assert (frame == 7).all()


@pytest.mark.parametrize("isa", isas())
def test_operands_end_on_a_guard_page(isa: str) -> None:
    with hc.use(isa=isa):
        texts = ["vsq4-g16-s4", "int4-g32-f16", "int8", "int3", "mxfp4", "mxfp6_e2m3", "nvfp4"]
        for weights, k, m in itertools.product(texts, [37, 64, 129], [1, 5, 20]):
            q = hc.quantize(reals((23, k), 2), weights)
            parts = dict(q.components)
            for activations in (None, "int8"):
                expected = hc.linear(reals((m, k), 1), q, activations=activations)
                for name in parts:
                    with guarded_copy(parts[name]) as copy, guarded_copy(reals((m, k), 1)) as x:
                        moved = hc.QuantizedArray({**parts, name: copy}, q.format, q.shape, q.axis)
                        assert same_bits(hc.linear(x, moved, activations=activations), expected)
                        del copy, x, moved


def test_linear_with_bias_and_activations() -> None:
    x, w, b = reals((4, 7, 48), 1), reals((9, 48), 2), reals((9,), 3)
    q = hc.quantize(w, "vsq4-g16-s4")
    assert same_bits(hc.linear(x, q, b), hc.linear(x, q) + b)
    assert same_bits(hc.linear(x, q, b, activations="int8"), hc.linear(x, q, activations="int8") + b)
    assert same_bits(hc.linear(x, w, b, activations="int8"), hc.linear(hc.fake_quantize(x, "int8"), w, b))
    assert same_bits(hc.linear(x[0, 0], q, b), hc.linear(x[:1, 0], q, b)[0])
    for packed in (hc.quantize(x, "int8"), hc.quantize(x, "mxfp4"), hc.prune(x, "2:4")):  # leading dimensions too
        for weights in (w, q, hc.prune(w, "2:4"), hc.prepack(q)):
            for given in (b, np.repeat(b, 2)[::2]):
                for some in (packed, packed[0], packed[0][0]):
                    assert same_bits(hc.linear(some, weights, given), hc.linear(some, weights) + b)
    tensor = hc.linear(x, q, activations="vsq8-g16-s8-tensor")
    whole = hc.quantize(x, "vsq8-g16-s8-tensor")
    assert same_bits(tensor, hc.matmul(whole, q.T))


@pytest.mark.parametrize(
    "text",
    ["nf4-g64", "mxfp8_e4m3", "mxfp6_e3m2", "log8-8", "fp8_e4m3fn-row", "cb4", "nf4-g64+2:4", "mxfp4+2:4", "nvfp4+2:4"],
)
def test_rounded_floats_times_weights_without_integers_are_floats(text: str) -> None:
    for m in (1, 3, 8, 9):
        x, q = reals((m, 200), m), hc.quantize(reals((17, 200), 2), text)
        for activations in ("int8", "vsq4-g16-s4"):
            y = hc.linear(x, q, activations=activations)
            assert same_bits(y, hc.linear(hc.fake_quantize(x, activations), q)), (m, activations)
            assert same_bits(y, hc.matmul(q, x.T, activations=activations).T), (m, activations)
            assert m > 8 or hc.explain(x, q.T, activations).chosen == hc.explain(x, q.T).chosen


@pytest.mark.parametrize("text", ["mxfp4", "mxfp6_e2m3", "mxint8", "nvfp4"])
def test_few_bits_of_floats_are_integers(text: str) -> None:
    q = hc.quantize(reals((17, 200), 2), text)
    factors = integer_terms(q.components, q.format, q.shape, q.axis)
    assert factors is not None and factors.codes.dtype == np.int64 and np.abs(factors.codes).max() <= 127
    values = (factors.codes * factors.group_scale[..., None]).reshape(17, -1)[:, :200]
    assert np.array_equal(values.astype(np.float32), q.dequantize())  # -0 is 0
    for m, activations in itertools.product((1, 3, 8, 9, 40), ("int8", "int16", "vsq4-g16-s4", text)):
        x = reals((m, 200), m)
        expected = product.linear(x, q, activations=hc.format(activations))
        for isa in isas():
            with hc.use(isa=isa):
                assert same_bits(hc.linear(x, q, activations=activations), expected), (m, activations, isa)


def test_a_group_that_is_no_number_makes_its_row_one() -> None:
    w = reals((17, 200), 2)
    w[3, 40] = np.inf
    q = hc.quantize(w, "mxfp4")
    for m in (1, 8, 40):
        y = hc.linear(reals((m, 200), m), q, activations="int8")
        assert np.isnan(y[:, 3]).all() and np.isfinite(np.delete(y, 3, axis=1)).all()


def test_rows_left_over_from_blocks_are_rounded_as_many() -> None:
    x, q = reals((130, 2**16), 1), hc.quantize(reals((2, 2**16), 2), "nf4-g64")  # rounded in blocks of 128 rows
    assert same_bits(hc.linear(x, q, activations="int8")[-3:], hc.linear(x[-30:], q, activations="int8")[-3:])


def test_slices_of_packed_arrays_multiply() -> None:
    w = reals((12, 64), 1)
    x = reals((3, 64), 2)
    for text in ("vsq4-g16-s4", "int4-g32-f16", "int8"):
        q = hc.quantize(w, text)
        for rows in (slice(2, 9), slice(None, None, 3), slice(None, None, -1)):
            for activations in (None, "int8"):
                whole = hc.linear(x, q, activations=activations)
                assert same_bits(hc.linear(x, q[rows], activations=activations), np.ascontiguousarray(whole[:, rows]))


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x, q: hc.matmul(x, q), ValueError, "axis"),
        (lambda x, q: hc.matmul(x[:, :5], q.T), ValueError, "columns"),
        (lambda x, q: hc.matmul(x, x.T, activations="int8"), ValueError, "activations"),
        (lambda x, q: hc.matmul(q, q.T, activations="int8"), ValueError, "activations"),
        (lambda x, q: hc.matmul(x, q.T, activations="int99"), ValueError, "int99"),
        (lambda x, q: hc.matmul(x, q.T, activations=8), TypeError, "activations"),
        (lambda x, q: hc.matmul(x.astype(int), q.T), TypeError, "astype"),
        (lambda x, q: hc.matmul(np.float32(1), q.T), ValueError, "dimensions"),
        (lambda x, q: hc.matmul(x, q.T, out=np.zeros((4, 6))), TypeError, "float32"),
        (lambda x, q: hc.matmul(x, q.T, out=np.zeros((4, 5), np.float32)), ValueError, "shape"),
        (lambda x, q: hc.matmul(x, q.T, out=[0]), TypeError, "float32"),
        (lambda x, q: hc.matmul(x, x.T, out=x[:4, :4]), ValueError, "memory"),
        (lambda x, q: hc.matmul(x, q.T, out=np.broadcast_to(np.float32(0), (4, 6))), ValueError, "read-only"),
        (lambda x, q: hc.matmul(x * np.float32("nan"), q.T, activations="int8"), ValueError, "nan"),
        (lambda x, q: hc.matmul(np.broadcast_to(np.float32(0), (2**40, 1)), np.broadcast_to(np.float32(0), (1, 2**40))),
         ValueError, "overflow"),
        (lambda x, q: hc.linear(x, q, bias=np.zeros(3, np.float32)), ValueError, "bias"),
        (lambda x, q: hc.linear(x, q[0]), ValueError, "out_features"),
        (lambda x, q: hc.linear(x, hc.quantize(reals((6, 8)), "int8", axis=0)), ValueError, "axis"),
        (lambda x, q: hc.matmul(np.zeros((2, 4, 8)), np.zeros((3, 8, 2))), ValueError, "broadcast"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, kind, words) -> None:
    with pytest.raises(kind, match=words):
        call(reals((4, 8), 14), hc.quantize(reals((6, 8), 15), "int8"))


def test_a_pickle_is_packed_again_for_the_machine_that_reads_it() -> None:
    q, x = hc.quantize(reals((24, 64), 1), "vsq4-g16-s4"), reals((20, 64), 2)
    expected = hc.linear(x, q, activations="int8")
    ready = hc.prepack(q)
    assert ready.isa == ready.T.isa == tuple(hc.show_config("dicts")["isa_used"]) and ready.version == hc.__version__
    with hc.use(isa="scalar"):  # like a machine without instruction sets
        elsewhere = pickle.loads(pickle.dumps(ready))
        assert elsewhere.isa == ("scalar",) and elsewhere.nbytes > 0
        assert same_bits(hc.linear(x, elsewhere, activations="int8"), expected)
    assert same_bits(hc.linear(x, elsewhere, activations="int8"), expected)  # packed for fewer sets


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.sweep(every=40)
def test_prepacked_weights_give_the_same_bits(weights: str, isa: str) -> None:
    with hc.use(isa=isa):
        for (n, k), activations in itertools.product([(5, 64), (70, 100), (33, 1030)], ACTIVATIONS):
            q = hc.quantize(reals((n, k), 1), weights)
            ready = hc.prepack(q)
            for m in (1, 9, 50):
                x = reals((m, k), 2)
                expected = hc.linear(x, q, activations=activations)
                assert same_bits(hc.linear(x, ready, activations=activations), expected)
                assert same_bits(hc.matmul(x, ready.T, activations=activations), expected)
                out = np.empty((n, m), np.float32).T
                assert same_bits(np.ascontiguousarray(hc.linear(x, ready, activations=activations, out=out)), expected)
                with hc.use(isa="scalar", threads=2):
                    assert same_bits(hc.linear(x, ready, activations=activations), expected)


def test_panels_belong_to_their_array() -> None:
    small, large = (hc.quantize(np.ones((rows, 64), np.float32), "int8") for rows in (32, 3200))
    ready = hc.prepack(small)
    with pytest.raises(AttributeError, match="source"):
        ready.source = large  # type: ignore[misc]
    for other in (large, hc.quantize(np.ones((32, 64), np.float32), "int7")):
        with bad_argument(ValueError, None, "shape", "panels belong to an array of another format or shape"):
            hc.linear(np.ones((20, 64), np.float32), hc.Prepacked(other, ready._panels), activations="int8")


def test_what_was_prepacked_can_no_longer_be_changed() -> None:
    q = hc.quantize(reals((24, 64), 1), "vsq4-g16-s4")
    ready = hc.prepack(q)
    for array in (q, ready):
        for component in array.components.values():
            with pytest.raises(ValueError, match="read-only"):
                component[...] = 0
    changed = copy.deepcopy(q)
    changed.components["codes"][...] = 0
    for rows in (1, 20):
        assert not hc.linear(np.ones((rows, 64), np.float32), hc.prepack(changed), activations="int8").any()


def test_prepacked_arrays_behave_as_their_source() -> None:
    q = hc.quantize(reals((24, 64), 1), "vsq4-g16-s4")
    ready = hc.prepack(q)
    assert ready == q and ready.shape == q.shape and ready.source is q and ready.nbytes >= q.size
    for other in (copy.copy(ready), copy.deepcopy(ready)):
        assert type(other) is hc.QuantizedArray and other == q
    again = pickle.loads(pickle.dumps(ready))
    assert type(again) is hc.Prepacked and again == q and again.nbytes == ready.nbytes
    assert hc.prepack(ready).source is q
    assert ready.T.T == q and np.array_equal(ready[3:5].dequantize(), q[3:5].dequantize())
    w = hc.quantize(reals((24, 16, 3, 3), 2), "vsq4-g16-s4", axis=(2, 3, 1))
    x = reals((2, 16, 8, 8), 3)
    assert same_bits(hc.conv2d(x, hc.prepack(w), activations="int8"), hc.conv2d(x, w, activations="int8"))
    many = hc.quantize(reals((24, 4, 3, 3), 2), "int8", axis=(2, 3, 1))
    grouped = hc.conv2d(x, many, groups=4, activations="int8")
    assert same_bits(hc.conv2d(x, hc.prepack(many), groups=4, activations="int8"), grouped)
    assert hc.prepack(hc.quantize(np.zeros((0, 4), np.float32), "int8")).nbytes == 0
    with bad_argument(ValueError, "w", "shape"):
        hc.prepack(reals((3, 4)))


def test_weights_beside_at_want_their_transpose() -> None:
    x, q = np.ones((4, 64), np.float32), hc.quantize(np.ones((16, 64), np.float32), "int4-g32")
    with bad_argument(ValueError, "b", "axis"):
        x @ q
    with bad_argument(ValueError, "b", "axis"):  # its transpose does not fit either
        np.ones((4, 16), np.float32) @ q
    with bad_argument(ValueError, "h", "value"):
        hc.ptq.gptq(np.ones((16, 64), np.float32), x, "int4-g32")


def lowest(fmt: hc.Int, rows: int, columns: int) -> hc.QuantizedArray:
    """Return an array of the lowest code, which is one further from 0 than the largest."""
    q = hc.quantize(np.ones((rows, columns), np.float32), fmt)
    parts = {name: np.array(one) for name, one in q.components.items()}
    bits = np.tile([(1 << fmt.bits - 1 >> i) & 1 for i in range(fmt.bits)], columns).astype(np.uint8)
    row = np.packbits(bits, bitorder="little")
    parts["codes"].view(np.uint8).reshape(rows, -1)[:, : len(row)] = row
    parts["scales"][...] = 1
    return hc.QuantizedArray(parts, fmt, q.shape, (1,))


@pytest.mark.parametrize(
    ("left", "right", "columns"), [((16,), (8,), 512), ((12,), (8,), 8192), ((16, 512), (8, 512), 512)]
)
def test_sums_of_lowest_codes_are_exact(left: tuple[int, ...], right: tuple[int, ...], columns: int) -> None:
    a, b = lowest(hc.Int(*left), 3, columns), lowest(hc.Int(*right), 9, columns)
    wanted = 2.0 ** (left[0] + right[0] - 2) * columns
    for isa in isas("gemm_s8"):
        for path in ("auto", "gemm"):
            with hc.use(isa=isa, path=path):
                assert (hc.matmul(a, b.T) == wanted).all() and (hc.matmul(b, a.T) == wanted).all()


def test_lowest_codes_under_the_largest_scales_are_exact() -> None:
    q = hc.quantize(np.ones((9, 2304), np.float32), "vsq4-g16-s10")
    parts = {name: np.array(one) for name, one in q.components.items()}
    parts["codes"][...], parts["scales"].view(np.uint8)[...], parts["coarse"][...] = 0x88, 255, 1
    w = hc.QuantizedArray(parts, q.format, q.shape, (1,))
    found = hc.matmul(-np.ones((24, 2304), np.float32), w.T, activations="int8")
    assert (found == np.float32(8 * 1023 * 2304)).all()


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("fmt", ["vsq8-g64-s8", "vsq6-g16-s6"])
def test_long_rows_with_integer_scales_are_summed_in_parts(fmt: str, isa: str) -> None:
    """int32 does not hold the sums of all these columns, whether or not the weights are prepacked."""
    x, w = reals((13, 1400), 5), reals((19, 1400), 6)
    q = hc.quantize(w, fmt)
    with hc.use(isa=isa, path="gemm"):
        ready = hc.prepack(q)
        for rows in (1, 2, 3, 4, 5, 13):
            wanted = product.linear(x[:rows], q, None, hc.format("int8"))
            for weights in (q, ready):
                assert same_bits(hc.linear(x[:rows], weights, activations="int8"), wanted)
