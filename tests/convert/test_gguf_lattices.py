"""IQ1 to IQ3 in GGUF files, and the files of importance matrices."""

from __future__ import annotations

import ctypes
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import isas

import heterocompute as hc
from heterocompute.files.layouts.gguf.importance import importance_in
from heterocompute.files.layouts.gguf.lattices import LATTICES, encoded, points_of

gguf = pytest.importorskip("gguf")
RNG = np.random.default_rng(31)


def drawn(rows: int, columns: int) -> tuple[Any, Any]:
    x = RNG.standard_normal((rows, columns)) * RNG.lognormal(0, 0.5, columns)
    return x.astype(np.float32), RNG.lognormal(0, 1, columns).astype(np.float32)


def error(kind: str, data: Any, x: Any, w: Any) -> float:
    """Return the weighted error of blocks relative to the values, decoded by the package gguf."""
    values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind.upper()]).reshape(x.shape).astype(np.float64)
    return float((w * (x - values) ** 2).sum() / (w * x.astype(np.float64) ** 2).sum())


@pytest.mark.parametrize("kind", LATTICES)
@pytest.mark.sweep(every=7)
def test_values_of_a_file_are_near(kind: str, tmp_path: Path) -> None:
    x, w = drawn(6, 512)
    arrays = {"a.weight": x, "b.weight": x[:, :96], "c.weight": np.stack([x, -x]), "d.bias": x[0], "z.weight": 0 * x}
    chosen = hc.save_gguf(tmp_path / "a.gguf", arrays, types={"*": kind}, importance={"a.weight": w}, check="all")
    assert chosen == {"a.weight": kind, "b.weight": "iq4_nl", "c.weight": kind, "d.bias": "f32", "z.weight": kind}
    found = hc.load(tmp_path / "a.gguf")
    limit = {"iq1_s": 0.3, "iq1_m": 0.25, "iq2_xxs": 0.15, "iq2_xs": 0.12, "iq2_s": 0.1}.get(kind, 0.05)
    for name, weight in (("a.weight", w), ("c.weight", 1)):
        values, wanted = np.asarray(found[name], np.float64), arrays[name]
        assert (weight * (values - wanted) ** 2).sum() < limit * (weight * wanted.astype(np.float64) ** 2).sum()
    assert not np.asarray(found["z.weight"]).any()
    plain = encoded(LATTICES[kind], x, None)
    assert error(kind, encoded(LATTICES[kind], x, np.broadcast_to(w, x.shape)), x, w) < error(kind, plain, x, w)


@pytest.mark.parametrize("kind", LATTICES)
def test_bytes_do_not_depend_on_the_instruction_set(kind: str) -> None:
    x, w = drawn(4, 256)
    wanted = encoded(LATTICES[kind], x, np.broadcast_to(w, x.shape))
    for isa in isas():
        with hc.use(isa=isa, threads=2):
            assert np.array_equal(encoded(LATTICES[kind], x, np.broadcast_to(w, x.shape)), wanted)


@pytest.mark.parametrize("kind", LATTICES)
def test_points_that_are_exact_are_found(kind: str) -> None:
    """Values of blocks of the type are rounded to themselves, or nearly: the scale is searched."""
    x, _ = drawn(3, 256)
    once = encoded(LATTICES[kind], x, None)
    values = gguf.quants.dequantize(once, gguf.GGMLQuantizationType[kind.upper()]).reshape(x.shape)
    again = encoded(LATTICES[kind], values, None)
    assert error(kind, again, values, 1) < 0.02 * error(kind, once, x, 1)
    assert len(points_of(LATTICES[kind])) in (256, 512, 1024, 2048)


@pytest.mark.skipif(find_spec("ik_llama_cpp") is None, reason="needs ik-llama-cpp-python")
@pytest.mark.parametrize("kind", LATTICES)
def test_errors_are_below_those_of_ggml(kind: str) -> None:
    spec = find_spec("ik_llama_cpp")
    assert spec is not None and spec.submodule_search_locations
    library = ctypes.CDLL(str(Path(spec.submodule_search_locations[0]) / "lib/libggml.so"))
    floats, n = ctypes.POINTER(ctypes.c_float), ctypes.c_int64
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, floats, ctypes.c_void_p, n, n, n, floats]
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    number = int(gguf.GGMLQuantizationType[kind.upper()])
    library.ggml_quantize_init(number)
    for _ in range(3):
        x, w = drawn(4, 256)
        theirs = np.zeros((4, LATTICES[kind].nbytes), np.uint8)
        arguments = x.ctypes.data_as(floats), theirs.ctypes.data, 0, 4, 256, w.ctypes.data_as(floats)
        assert library.ggml_quantize_chunk(number, *arguments) == theirs.size
        ours = encoded(LATTICES[kind], x, np.broadcast_to(w, x.shape))
        assert error(kind, ours, x, w) < error(kind, theirs, x, w)


def test_importance_matrices_are_read(tmp_path: Path) -> None:
    x, w = drawn(4, 256)
    sums, counts = np.stack([w, 2 * w]), np.array([[4.0], [0.0]], np.float32)
    writer = gguf.GGUFWriter(tmp_path / "i.gguf", "imatrix")
    for name, part in (("a.weight.in_sum2", sums[:1]), ("a.weight.counts", counts[:1]), ("e.weight.in_sum2", sums),
                       ("e.weight.counts", counts)):  # fmt: skip
        writer.add_tensor(name, part.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = importance_in(str(tmp_path / "i.gguf"))
    assert np.array_equal(found["a.weight"], w[None] / 4)
    assert np.array_equal(found["e.weight"], np.stack([w / 4, np.ones_like(w)]))  # an expert that was never called
    data = struct.pack("<i", 1) + struct.pack("<i", 8) + b"a.weight" + struct.pack("<ii", 4, 256) + w.tobytes()
    (tmp_path / "i.dat").write_bytes(data)
    assert np.array_equal(importance_in(str(tmp_path / "i.dat"))["a.weight"], w[None] / 4)
    arrays = {"a.weight": x, "e.weight": np.stack([x, x])}
    for file in ("i.gguf", "i.dat"):
        hc.save_gguf(tmp_path / "m.gguf", arrays, types={"*": "iq2_xs"}, importance=tmp_path / file)
        hc.save_gguf(tmp_path / "n.gguf", {"a.weight": x}, types={"*": "iq2_xs"}, importance={"a.weight": w / 4})
        ours, wanted = hc.load(tmp_path / "m.gguf"), hc.load(tmp_path / "n.gguf")
        assert np.array_equal(ours["a.weight"], wanted["a.weight"])
    for wrong, words in ((data[:-1], "cut off"), (b"", "cut off"), (struct.pack("<i", -1), "the count -1"),
                         (data[:4] + struct.pack("<i", 1 << 20), "a name of"),
                         (data[:-4] + struct.pack("<f", -1), "negative or not finite")):  # fmt: skip
        (tmp_path / "i.dat").write_bytes(wrong)
        with pytest.raises(ValueError, match=words):
            importance_in(str(tmp_path / "i.dat"))
    with pytest.raises(ValueError, match="expected an importance matrix"):
        importance_in(str(tmp_path / "m.gguf"))


def test_wrong_values_are_refused(tmp_path: Path) -> None:
    x, w = drawn(2, 256)
    x[0, 3] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        hc.save_gguf(tmp_path / "a.gguf", {"a": x}, types={"*": "iq2_s"})
    with pytest.raises(ValueError, match="importance"):
        hc.save_gguf(tmp_path / "a.gguf", {"a": 0 * x[1:]}, types={"*": "iq2_s"}, importance={"a": -w})
