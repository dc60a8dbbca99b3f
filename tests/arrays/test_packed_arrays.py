"""Common behaviour of all arrays of stored components: copies, pickles, files, slices, matmuls, and errors."""

from __future__ import annotations

import copy
import json
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.arrays.base import PackedArray
from heterocompute.base.writer import Writer
from heterocompute.files.checkpoint import inspect, prune_checkpoint
from heterocompute.files.safetensors import save

W = np.random.default_rng(0).standard_normal((6, 32)).astype(np.float32)
W[W < 0.3] = 0
MADE = {
    "quantized": hc.quantize(W, "vsq4-g16-s4"),
    "sparse": hc.prune(W, "2:4"),
    "quantized-sparse": hc.quantize(W, "int8+2:4"),
    "eie": hc.encode_eie(W),
    "bitmap": hc.encode_bitmap(W),
    "prepacked": hc.prepack(hc.quantize(W, "vsq4-g16-s4")),
}
each = pytest.mark.parametrize("a", MADE.values(), ids=MADE)
SLICED = {name: a for name, a in MADE.items() if name != "eie"}
sliced = pytest.mark.parametrize("a", SLICED.values(), ids=SLICED)


@each
def test_copies_and_files_bring_it_back(a: PackedArray, tmp_path: Path) -> None:
    kind = hc.QuantizedArray if isinstance(a, hc.Prepacked) else type(a)
    path = tmp_path / "a.safetensors"
    a.save(path)
    pickled = pickle.loads(pickle.dumps(a))
    assert type(pickled) is type(a)
    for back in (copy.copy(a), copy.deepcopy(a), pickled, hc.load(path)):
        assert (type(back) is kind or back is pickled) and back == a and not back != a
        assert np.asarray(back).tobytes() == np.asarray(a).tobytes()
    assert all(copy.copy(a).components[name] is part for name, part in a.components.items())
    save(path, {"w": a, "plain": np.arange(3)})
    assert hc.load(path)["w"] == a and hc.load(path)["plain"].tolist() == [0, 1, 2]
    assert {row["name"]: row["bytes"] for row in inspect(path)}["w"] == sum(x.nbytes for x in a.components.values())
    with bad_argument(ValueError, None, "file", "tensor 'w' is already (quantized|pruned)"):
        prune_checkpoint(path, tmp_path / "out", "2:4")
    with bad_argument(TypeError, None, "type", "save: path is 3"):
        a.save(3)  # type: ignore[arg-type]


@each
def test_an_array_lies_where_its_components_do(a: PackedArray) -> None:
    assert a.device == "cpu" == hc.prepack(np.ones((1, 1, 1, 1), np.float32)).device
    assert {part.device for part in a.components.values()} == {a.device}


@each
def test_products_are_the_only_functions_of_numpy(a: PackedArray) -> None:
    x = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)
    expected = np.asarray(a) @ x.T
    for y in (a @ x.T, np.matmul(a, x.T), hc.matmul(a, x.T)):
        assert np.allclose(y, expected, atol=1e-5)
    wanted = "to_dense" if isinstance(a, (hc.EIEArray, hc.BitmapArray)) else "dequantize"
    for call in (lambda: a + 1, lambda: np.exp(a), lambda: a < 1, lambda: np.add.reduce(a), lambda: np.dot(a, x.T)):
        with pytest.raises(TypeError, match=rf"is not for an? {type(a).__name__}; call {wanted}\(\) for its values"):
            call()
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)
    with bad_argument(ValueError, None, "value", "copy=False is impossible"):
        np.array(a, copy=False)
    assert (a.shape, a.ndim, a.size, len(a), a.dtype) == ((6, 32), 2, 192, 6, np.float32)
    assert "\n" not in repr(a) and "(6, 32)" in repr(a) and "(6, 32)" in a._repr_html_()


def test_arrays_of_other_kinds_are_not_equal() -> None:
    different = [a for name, a in MADE.items() if name != "prepacked"]
    for i, a in enumerate(different):
        assert [a == b for b in different] == [i == j for j in range(len(different))]
        assert a != np.asarray(a).tolist() and (a == 3) is False


@sliced
def test_slices_are_of_the_same_class(a: Any) -> None:
    kind = hc.QuantizedArray if isinstance(a, hc.Prepacked) else type(a)
    dense = np.asarray(a)
    for index in (0, -1, slice(1, 4), slice(None, None, 2), slice(4, 1), slice(5, None, -2), np.int8(3)):
        part = a[index]
        assert type(part) is kind and part.shape == dense[index].shape
        assert np.asarray(part).tobytes() == np.ascontiguousarray(dense[index]).tobytes()
    assert len(list(a)) == 6
    with bad_argument(IndexError, "index", "value"):
        a[6]
    for index in (None, True, [0], (0, 1), ...):
        with bad_argument(ValueError, None, "value", "call (dequantize|to_dense)"):
            a[index]


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 11), (0, 4), (4, 0)])
@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64"])
def test_slices_of_a_bitmap_begin_at_any_bit(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(2)
    dense = (rng.integers(-2, 3, shape) * (rng.random(shape) < 0.6)).astype(dtype)
    b = hc.encode_bitmap(dense)
    for first in range(shape[0] + 1):
        for last in range(shape[0] + 2):
            assert b[first:last] == hc.encode_bitmap(dense[first:last])
    assert [row == hc.encode_bitmap(one) for row, one in zip(b, dense, strict=True)] == [True] * shape[0]


class Labelled(hc.QuantizedArray):
    """A user's subclass with an additional attribute."""

    label = "none"


class Slotted(hc.QuantizedArray):
    __slots__ = ("__weakref__", "tag")


def test_classes_of_users_stay_in_what_is_made_of_them() -> None:
    a = Labelled({**MADE["quantized"].components}, hc.format("vsq4-g16-s4"), (6, 32), (1,))
    a.label = "first"
    for made in (a.T, a[0], a[1:3], copy.copy(a), copy.deepcopy(a)):
        assert type(made) is Labelled and made.label == "first"
    back = pickle.loads(pickle.dumps(a))
    assert type(back) is Labelled and back.label == "first" and a == MADE["quantized"]
    b = Slotted({**MADE["quantized"].components}, hc.format("vsq4-g16-s4"), (6, 32), (1,))
    assert not hasattr(copy.copy(b), "tag")
    b.tag = 3
    assert copy.copy(b).tag == b[1:3].tag == 3 and weakref.ref(b)() is b


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float64", "int8", "uint64", "bool"])
def test_bitmaps_of_any_type_come_back_from_files(dtype: str, tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([[0, 1, 0], [1, 0, 1]]).astype(getattr(ml_dtypes, dtype, None) or dtype)
    for b in (hc.encode_bitmap(values), hc.encode_bitmap(values[:0]), hc.encode_bitmap(values[0, 1])):
        b.save(tmp_path / "b")
        back = hc.load(tmp_path / "b")
        assert back == b and back.to_dense().tobytes() == b.to_dense().tobytes()


def test_a_type_without_a_place_in_files_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values, path = np.ones(8, ml_dtypes.int4), tmp_path / "b"
    with pytest.raises(TypeError, match="tensor 'array.values' is int4"):
        hc.encode_bitmap(values).save(path)
    with pytest.raises(TypeError, match="tensor 'x' is int4"):
        save(path, {"x": values, "y": np.arange(3)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "float6_e2m3fn"])
def test_types_that_a_file_packs_fill_whole_bytes(dtype: str, tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tmp_path / "b"
    for count in (3, 5, 7):
        with pytest.raises(ValueError, match=f"{dtype} values of shape .{count}. do not fill whole bytes"):
            hc.encode_bitmap(np.ones(count, getattr(ml_dtypes, dtype))).save(path)
    assert not list(tmp_path.iterdir())
    b = hc.encode_bitmap(np.arange(12).astype(getattr(ml_dtypes, dtype))[4:])
    b.save(path)
    assert hc.load(path) == b and hc.load(path).to_dense().tobytes() == b.to_dense().tobytes()


def test_hostile_files_of_bitmaps_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "b.safetensors")
    parts = {"bitmap": np.uint8([0b101, 1]), "values": np.float32([1, 2, 3])}
    fields = {"format": "bitmap", "shape": [3, 3], "axis": [], "dtype": "float32"}

    def write(change: dict[str, Any] | None = None, **changed: Any) -> None:
        tensors = {f"array.{name}": part for name, part in {**parts, **changed}.items() if part is not None}
        entry = {"version": 1, "single": True, "tensors": {"array": {**fields, **(change or {})}}}
        layout = {name: (part.dtype.name, part.shape) for name, part in tensors.items()}
        with Writer(path, layout, {"heterocompute": json.dumps(entry)}) as writer:
            for name, part in tensors.items():
                writer.write(name, part)

    def refused(words: str, change: dict[str, Any] | None = None, **changed: Any) -> None:
        write(change, **changed)
        with pytest.raises(ValueError, match=words) as caught:
            hc.load(path)
        assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)

    write()
    assert hc.load(path).to_dense().tolist() == [[1, 0, 2], [0, 0, 0], [0, 0, 3]]
    refused("'array.bitmap' is uint8", {"shape": [3, 6]})
    refused(
        "3 bits of bitmap are set for 0 values", {"shape": [2, 4]}, bitmap=np.uint8([0b111]), values=parts["values"][:0]
    )
    refused("bits behind the last element", bitmap=np.uint8([0b001, 0b110]))
    refused("3 bits of bitmap are set for 2 values", values=np.float32([1, 2]))
    refused("a bitmap has no axis", {"axis": [1]})
    refused("'array.values' is float32", {"dtype": "float16"})
    refused("'array.values' is float32", {"dtype": "no type"})
    refused("illegal shape", {"shape": [3, -3]})
    refused("size overflows", {"shape": [2**40, 2**40]})
    refused("lacks its component 'array.bitmap'", bitmap=None)
    refused("lacks its component 'array.values'", values=None)
    refused("'array.values' is float32", values=parts["values"][None])
    refused("values has dtype complex64", {"dtype": "complex64"}, values=parts["values"].astype(np.complex64))
    refused("'array.metadata' is no component of bitmap", metadata=np.zeros((1, 1), np.uint8))


def test_components_that_are_no_rows_are_refused_at_once() -> None:
    q = hc.quantize(W, "int4-g16")
    codes, scales = q.components["codes"], q.components["scales"]
    raw = np.zeros(scales.nbytes + 1, np.uint8)
    for name, other in (
        ("codes", np.repeat(codes, 2, axis=1)[:, ::2]),
        ("scales", np.asfortranarray(scales)),
        ("scales", raw[1:].view(np.float32).reshape(scales.shape)),
    ):
        with pytest.raises(ValueError, match=rf"QuantizedArray: component {name} .*pass {name}\.copy\(\)"):
            hc.QuantizedArray({**q.components, name: other}, q.format, q.shape, q.axis)
    backwards = {name: np.ascontiguousarray(part[::-1])[::-1] for name, part in q.components.items()}
    again = hc.QuantizedArray(backwards, q.format, q.shape, q.axis)
    assert again == q and np.array_equal(hc.linear(W, again), hc.linear(W, q))


def test_arrays_are_joined_along_axis_0_by_either_name() -> None:
    q = hc.quantize(W, "int8")
    assert np.concatenate([q[:2], q[2:]], axis=-2) == q
    with pytest.raises(ValueError, match="concatenate: axis is -1, expected 0"):
        np.concatenate([q, q], axis=-1)
