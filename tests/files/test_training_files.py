"""Training checkpoints have more than tensors: harmless objects are skipped, unknown ones are refused."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import fractions
import functools
import io
import pathlib
import pickle
import re
import tracemalloc
import types
import uuid
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc

GRID = np.arange(12, dtype=np.float32).reshape(3, 4)


def written(path: Path, value: Any, protocol: int = 2) -> Path:
    """Write a file like torch.save, for values without torch tensors."""
    program = value if isinstance(value, bytes) else pickle.dumps(value, protocol)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", program)
    return path


def harmless() -> dict[str, Any]:
    return {
        "args": argparse.Namespace(lr=0.1, betas=(0.9, 0.999), save_dir=pathlib.Path("x/y"), arch="wav2vec"),
        "hyper_parameters": types.SimpleNamespace(width=3),
        "epoch": 7,
        "seen": {"a", "b"},
        "frozen": frozenset([1, 2]),
        "by_name": collections.defaultdict(list, {"x": [1]}),
        "counts": collections.Counter("aab"),
        "history": collections.deque([1.5, 2.5], maxlen=4),
        "best": np.float64(0.5),
        "step": np.int64(3),
        "text": np.str_("t"),
        "dtype": np.dtype(np.float32),
        "record": np.dtype([("a", "f4"), ("b", "i4")]),
        "texts": np.array(["a", "bc"]),
        "class": np.float32,
        "when": datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC),
        "took": datetime.timedelta(seconds=3),
        "day": datetime.date(2024, 5, 6),
        "pure": pathlib.PureWindowsPath("c:/x"),
        ("a", 1): 4,
        frozenset([3]): 5,
        np.int64(4): 6,
        2.5: 7,
        "complex": 1 + 2j,
        "bytes": b"abc\xff",
        "none": b"",
        "array": bytearray(b"abc"),
        "slice": slice(1, 2),
        "range": range(3),
        "decimal": decimal.Decimal("1.5"),
        "fraction": fractions.Fraction(1, 3),
        "pattern": re.compile("a+"),
        "id": uuid.UUID(int=5),
        "function": int,
    }


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_that_do_no_harm_are_passed_over(tmp_path: Path, protocol: int) -> None:
    path = written(tmp_path / "model.pt", {**harmless(), "w": GRID, "last": {"b": GRID[0]}}, protocol)
    found = hc.load(path)
    assert list(found) == ["w", "last.b"] and same_bits(found["w"], GRID) and same_bits(found["last.b"], GRID[0])
    for name, value in harmless().items():
        assert hc.load(written(path, {name: value, "w": GRID}, protocol)).keys() == {"w"}, name


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_of_numpy_are_tensors(tmp_path: Path, protocol: int) -> None:
    arrays = {
        "fortran": np.asfortranarray(GRID),
        "steps": GRID[::2, ::-1],
        "big": GRID.astype(">f4"),
        "half": GRID.astype(np.float16),
        "high": np.arange(250, 256, dtype=np.uint8),
        "on": np.array([True, False]),
        "scalar": np.array(2.5),
        "none": np.zeros((0, 3), np.int64),
    }
    objects = np.empty(2, object)
    objects[0] = GRID
    found = hc.load(
        written(tmp_path / "model.pt", {**arrays, "args": argparse.Namespace(w=GRID), "o": objects}, protocol)
    )
    assert list(found) == [*arrays, "args.w", "o.0"]
    for name, array in arrays.items():
        wanted = array.astype(array.dtype.newbyteorder("="))
        assert found[name].dtype == wanted.dtype and same_bits(found[name], wanted), name
        assert found[name].flags.writeable and found[name].flags.c_contiguous
    with hc.open_checkpoint(tmp_path / "model.pt") as weights:
        assert weights.info("big").dtype == "float32" and same_bits(weights["big"], GRID)


@pytest.mark.parametrize("zipped", [True, False])
def test_checkpoints_of_training_that_torch_writes(tmp_path: Path, zipped: bool) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    held = {
        **harmless(),
        "device": torch.device("cpu"),
        "torch_dtype": torch.bfloat16,
        "size": torch.Size([3, 4]),
        "layout": torch.strided,
        "model": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": (np.random.RandomState(0).get_state(), torch.get_rng_state()),
        "meters": collections.defaultdict(list, {"loss": [torch.tensor(2.0)]}),
        "queue": collections.deque([torch.ones(2)]),
        "buffers": argparse.Namespace(mean=torch.ones(3)),
        ("tied", 1): torch.ones(1),
        np.int64(4): [torch.ones(1)],
    }
    torch.save(held, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    found = hc.load(tmp_path / "model.pt")
    assert same_bits(found["model.weight"], module.weight.detach().numpy())
    assert same_bits(found["optimizer.state.0.exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"].numpy())
    assert found["rng.0.1"].dtype == np.uint32 and found["rng.1"].dtype == np.uint8
    names = {"meters.loss.0", "queue.0", "buffers.mean", "('tied', 1)"}
    assert names < found.keys() and sum(name.endswith(".0") for name in found) >= 3


class Mine:
    pass


def test_other_names_are_refused_with_what_to_save(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    for value in (Mine(), functools.partial(print, 1), io.BytesIO):
        written(path, {"a": value, "w": GRID})
        with bad_argument(ValueError, None, "file", r"model\.pt: .*(Mine|partial|print|BytesIO)") as caught:
            hc.load(path)
        assert "nothing of it was run" in str(caught.value) and "model.state_dict()" in str(caught.value)


def numpy_array(state: bytes, dtype: bytes = b"U\2f4", order: bytes = b"U\1<") -> bytes:
    head = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85U\1btR"
    kind = b"cnumpy\ndtype\n(" + dtype + b"\x89\x88tR(K\3" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    return b"\x80\2" + head + b"(K\1" + state.replace(b"DTYPE", kind) + b"tb."


def test_arrays_that_lie_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    good = b"K\2K\2\x86DTYPE\x89U\x10" + GRID.tobytes()[:16]
    assert same_bits(hc.load(written(path, numpy_array(good)))["array"], GRID.reshape(-1)[:4].reshape(2, 2))
    huge = b"\x8a\x08" + (2**62).to_bytes(8, "little")
    bad = {
        "short": b"K\2K\3\x86DTYPE\x89U\x10" + bytes(16),
        "huge": huge + huge + b"\x86DTYPE\x89U\0",
        "overflow": b"(" + huge * 9 + b"K\0tDTYPE\x89U\0",
        "dimensions": b"(" + huge * 100_000 + b"tDTYPE\x89U\0",
        "negative": b"J\xff\xff\xff\xffK\0\x86DTYPE\x89U\0",
        "a list for a shape": b"]DTYPE\x89U\0",
        "characters": b"K\1\x85DTYPE\x89X\x0a\0\0\0" + b"\xe2\x82\xac" * 3 + b"a",
    }
    for state in bad.values():
        with bad_argument(ValueError, None, "file", r"w\.pt: "):
            hc.load(written(path, numpy_array(state)))
    twos = numpy_array(b"K\2\x85DTYPE\x89U\2\2\1", b"U\2b1", b"U\1|")
    with bad_argument(ValueError, None, "file", "neither 0 nor 1"):
        hc.load(written(path, twos))
    for dtype in (b"U\1c", b"U\2O8", b"U\3V16", b"K\1", b"U\3f99", b"U\2m8"):
        program = numpy_array(b"K\0\x85DTYPE\x89U\0", dtype)
        try:
            assert hc.load(written(path, program)) == {}, dtype
        except ValueError as error:
            assert "w.pt: " in str(error)


DOUBLED = b"]q\x000" + b"](h\0h\0eq\x000" * 60 + b"h\0"  # its repr would have 2^60 brackets
NESTED = b"]q\x000" + b"]h\0aq\x000" * 20_000 + b"h\0"


@pytest.mark.sweep(every=0)
def test_hostile_values_stay_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read or refused at once; the time does not grow with the product of its parts."""
    monkeypatch.setattr("heterocompute.files.containers.torch_files.MAX_LOOKS", 1 << 18)
    path = tmp_path / "w.pt"
    many = b"(" + b"K\1" * 20_000 + b"l"
    programs = {
        "lists that stand in many places": b"\x80\2" + many + b"q\0(" + b"h\0" * 20_000 + b"l\x86.",
        "sets of them": b"\x80\2" + many + b"q\0c__builtin__\nset\nq\1(" + b"h\1h\0\x85R" * 20_000 + b"l\x86.",
        "attributes": b"\x80\2}(" + b"".join(b"M%c%cN" % (i % 256, i // 256) for i in range(6_000)) + b"uq\0"
        b"cargparse\nNamespace\n)\x81q\1(" + b"h\1h\0b0" * 3000 + b"l\x86.",
        "texts": b"\x80\2(X\x40\x42\x0f\0"
        + b"a" * 1_000_000
        + b"q\0c_codecs\nencode\nq\1("
        + b"h\1h\0U\x06latin1\x86R" * 100_000
        + b"ll.",
        "keys": b"\x80\2" + many[:-1] + b"tq\0}(" + b"h\0N" * 20_000 + b"u\x86.",
        "a namespace in itself": b"\x80\2cargparse\nNamespace\n)\x81q\0}U\1ah\0sb.",
        "nested keys": b"\x80\2}(" + b")" + b"\x85" * 200_000 + b"K\1u.",
        "items of a namespace": b"\x80\2cargparse\nNamespace\n)\x81K\1K\1s.",
        "a date with items": b"\x80\2cdatetime\ndate\n)RK\1K\1s.",
        "a call of a class": b"\x80\2cnumpy\nndarray\n)R.",
        "a call of a number": b"\x80\2K\1)\x81.",
        "arguments": b"\x80\2cargparse\nNamespace\nK\1\x85\x81.",
        "a set of a number": b"\x80\2c__builtin__\nset\nK\1\x85R.",
        "a global of lists": b"\x80\2" + DOUBLED + b"h\0\x93.",
        "a global of depth": b"\x80\2" + NESTED + b"h\0\x93.",
    }
    for name, program in programs.items():
        try:
            assert hc.load(written(path, program)) == {}, name
        except ValueError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error), name


@pytest.mark.parametrize("keys", [DOUBLED, NESTED, b"](K\1e"])
def test_keys_of_storages_that_are_no_texts_are_refused(tmp_path: Path, keys: bytes) -> None:
    path = tmp_path / "w.pt"
    head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
    path.write_bytes(head + b"\x80\2}." + b"\x80\2" + keys + b".")
    with bad_argument(ValueError, None, "file", r"w\.pt: the keys of the storages"):
        hc.load(path)


def test_few_bytes_take_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opcodes of one or two bytes count as many steps as they need memory."""
    monkeypatch.setattr("heterocompute.files.containers.pickled.MAX_STEPS", 1 << 17)
    long = b"".join(b"X\0\1\0\0" + "\U0010fffe".encode() * 64 for _ in range(15))
    pair = b"](" + b"(" + long + b"tN\x86q\0" + b"h\0" * 1_000 + b"eq\1"  # keys of 10 kB, made for each pair
    programs = {
        "keys": b"\x80\2(" + pair + b"ccollections\nOrderedDict\nq\2" + b"h\2h\1\x85R" * 3 + b"l.",
        "lists": b"\x80\2(" + b"]" * 37_500 + b"l.",
        "dicts": b"\x80\2(" + b"}" * 37_500 + b"l.",
    }
    for name, program in programs.items():
        path = written(tmp_path / "w.pt", program)
        tracemalloc.start()
        with bad_argument(ValueError, None, "file", "steps"):
            hc.load(path)
        assert tracemalloc.get_traced_memory()[1] < 5 << 20, name
        tracemalloc.stop()


def test_an_array_that_stands_in_many_places_is_one(tmp_path: Path) -> None:
    one = np.arange(6.0).reshape(2, 3)
    path = written(tmp_path / "w.pt", {"a": one, "b": [one] * 100, "c": one.copy()})
    found = hc.load(path)
    assert len(found) == 102 and all(same_bits(array, one) for array in found.values())
    assert found["a"] is found["b.7"] and found["a"] is not found["c"]
    with hc.open_checkpoint(path) as weights:
        assert weights["a"] is not weights["a"]
