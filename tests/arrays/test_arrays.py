"""QuantizedArray: views, copies, comparison, operators, and arrays of other libraries."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
from common import FORMATS, bad_argument, reals, same_bits

import heterocompute as hc
from heterocompute.arrays.bits import unpack


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_views_are_the_values_of_the_view(text: str) -> None:
    x = reals((6, 3, 35))
    q = hc.quantize(x, text)
    values = q.dequantize()
    if "mean" in q.components:
        with pytest.raises(ValueError, match="dequantize"):
            q[1:3]
        return
    if q.format.shared_rows > 1:
        pytest.skip("views of whole blocks: tests/formats/test_sentences.py")
    for index in (0, -1, 3, slice(1, 4), slice(None, None, 2), slice(None, None, -1), slice(4, 1), np.int64(2)):
        assert np.array_equal(q[index].dequantize(), values[index], equal_nan=True)
    m = hc.quantize(x[0], text)
    assert m.T.shape == (35, 3) and m.T.axis == (0,)
    assert np.array_equal(m.T.dequantize(), m.dequantize().T, equal_nan=True)
    assert m.T.T == m
    assert len(q) == 6
    assert q[1:3].nbytes <= q.nbytes


def test_views_share_memory() -> None:
    q = hc.quantize(reals((6, 64)), "vsq4-g16-s4")
    for name in q.components:
        assert np.shares_memory(q[2:5].components[name], q.components[name])
        assert np.shares_memory(q.T.components[name], q.components[name])
        assert np.shares_memory(copy.copy(q).components[name], q.components[name])
        assert not np.shares_memory(copy.deepcopy(q).components[name], q.components[name])


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_copies_and_pickles_are_equal(text: str) -> None:
    q = hc.quantize(reals((5, 40)), text)
    for other in (copy.copy(q), copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert other == q and not other != q
        assert other.source_dtype == q.source_dtype
    assert q != hc.quantize(-reals((5, 40)) - 1, text)
    assert q != q.dequantize().shape
    with pytest.raises(TypeError, match="unhashable"):
        hash(q)


def test_what_numpy_sees() -> None:
    q = hc.quantize(reals((4, 8)), "int8")
    assert np.asarray(q).dtype == np.float32
    assert np.asarray(q, dtype=np.float64).dtype == np.float64
    assert np.array(q).shape == (4, 8)
    assert q.dtype == np.float32 and q.size == 32 and q.ndim == 2
    with bad_argument(ValueError, None, "value", "copy"):
        np.asarray(q, copy=False)
    calls = (lambda: q + 1, lambda: 2 * q, lambda: np.exp(q), lambda: -q, lambda: np.add.reduce(q), lambda: q < q)
    for call in (*calls, lambda: np.stack([q, q]), lambda: np.dot(q, q)):
        with pytest.raises(TypeError, match="dequantize"):
            call()


@pytest.mark.parametrize("text", [*FORMATS, "int8+2:4", "2:4"])
@pytest.mark.sweep(every=5)
def test_concatenate_is_the_inverse_of_slices(text: str) -> None:
    for shape, axis in (((5, 256), -1), ((4, 3, 256), 2), ((4, 2, 256), (1, 2))):
        q = hc.quantize(reals(shape), text, axis)
        if not q.format.splits_into_rows:
            with pytest.raises(ValueError, match="dequantize"):
                np.concatenate([q, q])
            return
        joined = np.concatenate([q[:1], q[1:1], q[1:]])
        assert joined == q and type(joined) is type(q)
        assert same_bits(joined.dequantize(), q.dequantize())


def test_arrays_that_do_not_fit_are_not_joined() -> None:
    q = hc.quantize(reals((4, 64)), "int8")
    assert np.concatenate([hc.prepack(q[:2]), q[2:]]) == q
    shared = [hc.quantize(reals((4, 64)) * scale, "nvfp4") for scale in (1, 3)]
    for arrays, options, error, sentence in (
        ([q, q.dequantize()], {}, TypeError, "concatenate: array 1 is ndarray, expected a QuantizedArray"),
        ([q, q], {"axis": 1}, ValueError, "concatenate: axis is 1, expected 0"),
        ([q, q], {"dtype": np.float32}, TypeError, "concatenate: packed arrays have no dtype"),
        ([q, hc.quantize(reals((4, 64)), "int4")], {}, ValueError, "concatenate: array 1 is QuantizedArray.int4"),
        ([q.T, q.T], {}, ValueError, "axis 0 is a reduction axis"),
        (shared, {}, ValueError, "concatenate: arrays 0 and 1 have different coarse"),
        ([hc.encode_bitmap(np.ones(3)), q], {}, TypeError, "concatenate is not for a BitmapArray"),
    ):
        with pytest.raises(error, match=sentence):
            np.concatenate(arrays, **options)


def test_operators_reach_the_product() -> None:
    x, w = reals((3, 32), 1), reals((5, 32), 2)
    q = hc.quantize(w, "vsq4-g16-s4")
    expected = hc.linear(x, q)
    assert np.array_equal(x @ q.T, expected)
    assert np.array_equal(np.matmul(x, q.T), expected)
    assert np.array_equal((q @ x.T).T, expected)
    out = np.zeros((3, 5), np.float32)
    assert np.matmul(x, q.T, out=out) is out and np.array_equal(out, expected)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        ((0, 1), ValueError),
        ([0, 1], ValueError),
        (np.array([True] * 4), ValueError),
        (None, ValueError),
        (True, ValueError),
        (4, IndexError),
        (-5, IndexError),
        (..., ValueError),
    ],
)
def test_other_indices_name_dequantize(index, error) -> None:
    q = hc.quantize(reals((4, 8)), "int8")
    with pytest.raises(error, match="dequantize|range"):
        q[index]


def test_reduction_axis_and_other_ndim_are_refused() -> None:
    with bad_argument(ValueError, "axis", "axis"):
        hc.quantize(reals((4, 8)), "int8", axis=0)[0]
    with bad_argument(ValueError, None, "shape", "T:"):
        hc.quantize(reals((2, 4, 8)), "int8").T  # noqa: B018


def test_repr_is_one_line_and_html_shows_codes() -> None:
    q = hc.quantize(reals((4, 32)), "vsq4-g16-s4")
    assert "\n" not in repr(q) and "vsq4-g16-s4" in repr(q)
    assert "first codes" in q._repr_html_() and "vsq4-g16-s4" in q._repr_html_()
    assert "first codes" not in hc.quantize(np.zeros((0, 4), np.float32), "int8")._repr_html_()
    for fmt in ("int4", "mxfp4", "q4_0"):  # a colour for each sign, and the level of each code in words
        html = hc.quantize(np.float32([[-7.0, 7.0, *[0.0] * 30]]), fmt)._repr_html_()
        first, second, third = re.findall(r"<td title='([^']*)' style='background:hsl\((\d+),75%,(\d+)%", html)[:3]
        assert float(first[0]) < 0 < float(second[0]) and (first[1], second[1]) == ("28", "210")
        assert third[1:] == ("210", "96") and float(third[0]) == 0
    html = hc.quantize(np.float32([[1, np.inf, -np.inf, np.nan, 57344]]), "fp8_e5m2-nosat")._repr_html_()
    assert re.findall(r"title='([^']*)'", html) == ["1", "inf", "-inf", "nan", "57344"]
    assert re.findall(r"75%,(\d+)%", html) == ["96", "54", "54", "96", "54"]


def test_wrong_components_are_refused() -> None:
    q = hc.quantize(reals((4, 32)), "vsq4-g16-s4")
    parts = dict(q.components)
    for wrong in (
        {**parts, "codes": parts["codes"][:3]},
        {**parts, "codes": parts["codes"].astype(np.int8)},
        {**parts, "scales": parts["scales"][:, :0]},
        {name: part for name, part in parts.items() if name != "coarse"},
        {**parts, "codebook": parts["coarse"]},
    ):
        with bad_argument(ValueError, None, "value", "QuantizedArray"):
            hc.QuantizedArray(wrong, q.format, q.shape, q.axis)
    strided = {**parts, "codes": np.repeat(parts["codes"], 2, axis=1)[:, ::2]}
    with bad_argument(ValueError, None, "value", "strides"):
        hc.QuantizedArray(strided, q.format, q.shape, q.axis).dequantize()


@pytest.mark.parametrize(
    "fmt", [*FORMATS, "int8+2:4", "int4-g2+2:8", "cb4-d2+4:8", "cb2-g6+3:5", "log4-1+1:32", "mxfp4+4:32"]
)
@pytest.mark.sweep(every=3)
def test_the_first_group_shows_its_codes(fmt: str) -> None:
    """The page shows every code of the first group of the first row, and no other code."""
    known = hc.format(fmt)
    for length in (1, 3, 70):
        q = hc.quantize(reals((2, length), 5), fmt)
        shown = re.findall(r"padding:1px 4px'>([0-9a-f]+)</td>", q._repr_html_())
        if known.bits > 8:
            assert shown == []
            continue
        base = known.base if isinstance(known, hc.Sparse) else known
        stored = known.stored_length(length)
        count = -(-min(base.group or stored, stored, 64) // getattr(base, "dim", 1))
        codes = unpack(q.components["codes"], known.bits, count)[0]
        assert [int(code, 16) for code in shown] == codes.tolist()


class _Exporter:
    """An object that is not an ndarray but supports DLPack or `__array__`."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_dlpack_arrays_go_in_without_a_copy() -> None:
    x = reals((6, 40), 4)
    for view in (x, x[::2], x.T, x[:, ::-1][::-1]):
        assert hc.quantize(_Exporter(view), "int4-g16") == hc.quantize(view, "int4-g16")
    from heterocompute.arrays.dense import as_array

    assert np.shares_memory(as_array(_Exporter(x), "x"), x)
    with bad_argument(TypeError, "w", "dtype"):
        hc.quantize(_Exporter(np.arange(6)), "int8")


def test_torch_tensors_go_in_alike() -> None:
    torch = pytest.importorskip("torch")
    t = torch.randn(6, 64)
    assert hc.quantize(t, "int8") == hc.quantize(t.numpy(), "int8")
    assert hc.quantize(t.T, "int8", axis=0) == hc.quantize(t.numpy().T, "int8", axis=0)
    half = t.to(torch.bfloat16)
    assert hc.quantize(half, "int8") == hc.quantize(half.float().numpy(), "int8")
    assert hc.quantize(half, "int8").source_dtype == "bfloat16"
    assert hc.quantize(torch.nn.Parameter(t).detach(), "int8") == hc.quantize(t, "int8")
