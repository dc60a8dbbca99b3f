"""Checkpoints of other programs: recognized by content, read lazily, with the values of their own library."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import sys
import tracemalloc
import zipfile
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument, run, same_bits

import heterocompute as hc
from heterocompute.files.checkpoint import inspect

RANDOM = np.random.default_rng(4)
WEIGHTS = {
    "fc.weight": RANDOM.standard_normal((6, 32)).astype(np.float32),
    "fc.bias": RANDOM.standard_normal(6).astype(np.float16),
    "ids": np.arange(6).reshape(2, 3),
    "on": np.array([True, False]),
}


def check(path, wanted=WEIGHTS):
    with hc.open_checkpoint(path) as found:
        assert list(found) == list(wanted) and len(found) == len(wanted)
        for name, array in wanted.items():
            assert (found.info(name).dtype, found.info(name).shape) == (array.dtype.name, array.shape)
            assert same_bits(np.ascontiguousarray(found[name]), np.ascontiguousarray(array)), name
        with pytest.raises(KeyError):
            found["absent"]
        return found.skipped


@pytest.fixture
def parts(tmp_path):
    """Write a checkpoint in two parts, and its index."""
    names = list(WEIGHTS)
    where = {name: f"model-{1 + (i > 1)}.safetensors" for i, name in enumerate(names)}
    for part in sorted(set(where.values())):
        hc.save(tmp_path / part, {name: WEIGHTS[name] for name in names if where[name] == part})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": where}))
    return tmp_path, index, where


def test_arrays_of_numpy(tmp_path):
    np.savez(tmp_path / "w.npz", **WEIGHTS, text=np.array(["a"]), wide=np.ones(2, np.complex128))
    assert set(check(tmp_path / "w.npz")) == {"text", "wide"}
    np.savez_compressed(tmp_path / "w.bin", **WEIGHTS)  # recognized by content, not by name
    os.rename(tmp_path / "w.bin.npz", tmp_path / "w.bin")
    check(tmp_path / "w.bin")
    turned = np.asfortranarray(WEIGHTS["fc.weight"]).astype(">f4")
    np.save(tmp_path / "w.npy", turned)
    check(tmp_path / "w.npy", {"array": WEIGHTS["fc.weight"]})
    assert same_bits(np.ascontiguousarray(hc.load(tmp_path / "w.npy")), WEIGHTS["fc.weight"])
    for array in (np.float32(3), np.zeros((0, 4)), np.ones((2, 0, 3), np.int8)):
        np.save(tmp_path / "w.npy", array)
        check(tmp_path / "w.npy", {"array": np.asarray(array)})
    np.savez(tmp_path / "none.npz")
    check(tmp_path / "none.npz", {})


def test_a_folder_with_an_index(parts):
    folder, index, _ = parts
    for path in (folder, index):
        with hc.open_checkpoint(path) as found:
            assert list(found) == list(WEIGHTS)
            assert all(same_bits(found[name], array) for name, array in WEIGHTS.items())


def test_a_folder_with_one_file(tmp_path):
    hc.save(tmp_path / "model.safetensors", WEIGHTS)
    check(tmp_path)
    hc.save(tmp_path / "other.safetensors", {"w": np.ones(2)})
    check(tmp_path)  # the one that has the usual name
    os.rename(tmp_path / "model.safetensors", tmp_path / "model2.safetensors")
    with bad_argument(ValueError, None, "file", "'model2.safetensors'.*'other.safetensors'"):
        hc.open_checkpoint(tmp_path)


def test_packed_arrays_in_parts(parts):
    folder, index, where = parts
    q = hc.quantize(WEIGHTS["fc.weight"], "int4-g32")
    hc.save(folder / "model-1.safetensors", {"fc.weight": q, "fc.bias": WEIGHTS["fc.bias"]})
    del where["fc.weight"]
    where |= {f"fc.weight.{key}": "model-1.safetensors" for key in q.components}
    index.write_text(json.dumps({"weight_map": where}))
    with hc.open_checkpoint(folder) as found:
        assert found["fc.weight"] == q and set(found) == set(WEIGHTS)


def test_index_and_headers_must_agree_both_ways(parts, tmp_path):
    folder, index, where = parts

    def refused(changed, *words):
        index.write_text(json.dumps({"weight_map": changed}))
        with pytest.raises(ValueError) as caught:
            hc.open_checkpoint(folder)
        message = str(caught.value)
        assert message.startswith(str(folder)) and "\n" not in message and all(word in message for word in words)

    refused({**where, "more": "model-1.safetensors"}, "'more'", "does not have it")
    refused({name: part for name, part in where.items() if name != "on"}, "'on'", "the index does not say")
    refused({**where, "on": "model-1.safetensors"}, "'on'")
    refused({**where, "more": "model-3.safetensors"}, "'model-3.safetensors', which is missing")
    hc.save(tmp_path.parent / "outside.safetensors", {"more": np.ones(2)})
    os.symlink(tmp_path.parent / "outside.safetensors", folder / "link.safetensors")
    absolute = str(tmp_path.parent / "outside.safetensors")
    for part in ("../outside.safetensors", absolute, "link.safetensors", "", "a\0b"):
        refused({**where, "more": part}, "a file of its own folder")
    refused({**where, "more": "model.safetensors.index.json"}, "an index inside an index")
    refused({**where, "more": 3}, "weight_map")
    os.remove(tmp_path.parent / "outside.safetensors")


def test_the_store_of_a_model_hub_is_no_way_out(tmp_path):
    (tmp_path / "blobs").mkdir()
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    hc.save(tmp_path / "blobs" / "123", {"w": np.ones(2)})
    os.symlink("../../blobs/123", snapshot / "model-1.safetensors")
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "model-1.safetensors"}}))
    check(snapshot, {"w": np.ones(2)})


SAMPLES = Path(__file__).parent / "samples"
GRID = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("name", ["zip.pt", "legacy.pt"])
def test_files_of_torch_without_torch(name):
    """torch.save wrote them: a state_dict, a transposed tensor, two of one storage, a parameter, a number."""
    expected = {"model.weight": GRID, "model.bias": GRID[0, :3], "turned": GRID.T, "tied.0": GRID}
    expected |= {"tied.1": GRID[1:, ::2], "half": np.ones(2, ml_dtypes.bfloat16), "parameter": GRID}
    check(SAMPLES / name, expected)


def test_gguf_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    with hc.open_checkpoint(SAMPLES / "small.gguf") as found:
        assert list(found) == ["w", "half", "q"] and found.metadata["general.name"] == "tiny"
        assert same_bits(found["w"], x) and same_bits(found["half"], x[0].astype(np.float16))
        with pytest.raises(ImportError, match=r"tensor 'q' is Q8_0.*pip install 'heterocompute\[gguf\]'"):
            found["q"]


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/heterocompute-was-here",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_no_pickle_runs(tmp_path, protocol):
    path = tmp_path / "model.pt"
    for inside in (Evil(), {"w": [Evil()]}, print, argparse.Namespace(a=Evil())):
        data = pickle.dumps(inside, protocol)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model/data.pkl", data)
        with bad_argument(ValueError, None, "file", "a pickle that names .*: nothing of it was run"):
            hc.open_checkpoint(path)
        path.write_bytes((SAMPLES / "legacy.pt").read_bytes()[:21] + data)
        with bad_argument(ValueError, None, "file", "a pickle"):
            hc.open_checkpoint(path)


def pt(path, program, *members):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", program)
        for name, data in members:
            archive.writestr(name, data)


def tensor_program(shape, strides, offset=0, count=4, properties=b""):
    """Return the pickle of one tensor, written opcode by opcode."""

    def number(n):
        return b"\x8a\x08" + n.to_bytes(8, "little", signed=True)

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpu" + number(count) + b"tQ"
    arguments = b"(" + storage + number(offset) + numbers(shape) + numbers(strides) + b"\x89}" + properties + b"t"
    return b"\x80\2ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R."


def test_tensors_stay_in_their_storage(tmp_path):
    path, data = tmp_path / "w.pt", ("m/data/0", np.arange(4, dtype=np.float32).tobytes())
    pt(path, tensor_program((2, 2), (1, 2)), data)
    check(path, {"array": np.float32([[0, 2], [1, 3]])})
    pt(path, tensor_program((8,), (0,), 1, 4), data)  # like torch's expand
    check(path, {"array": np.full(8, 1, np.float32)})
    bad = [((2, 2), (1, 3), 0, 4), ((2, 2), (1, 2), 1, 4), ((2**40, 2**40), (0, 0), 0, 4)]
    bad += [((2,), (1, 1), 0, 4), ((-1,), (1,), 0, 4), ((2,), (-1,), 1, 4), ((2**62, 2**62, 0), (1, 1, 1), 0, 4)]
    bad += [((2, 2), (1, 2), 0, 5), ((2, 2), (1, 2), 2**62, 4), ((1,) * 65, (1,) * 65, 0, 4)]
    for case in bad:
        pt(path, tensor_program(*case), data)
        with bad_argument(ValueError, None, "file", r"w\.pt: "):
            hc.open_checkpoint(path)
    pt(path, tensor_program((2, 2), (1, 2)))
    with bad_argument(ValueError, None, "file", "'0' of 4 values is missing"):
        hc.open_checkpoint(path)


def test_what_torch_has_put_off_is_done(tmp_path):
    """x.conj().imag is a tensor with a pending negation, which reading applies."""
    path, data = tmp_path / "w.pt", ("m/data/0", np.arange(4, dtype=np.float32).tobytes())

    def properties(name, value):
        return b"}X" + len(name).to_bytes(4, "little") + name + value + b"s"

    for value, sign in ((b"\x88", -1), (b"\x89", 1)):
        pt(path, tensor_program((2, 2), (1, 2), properties=properties(b"neg", value)), data)
        check(path, {"array": sign * np.float32([[0, 2], [1, 3]])})
        assert same_bits(hc.load(path)["array"], sign * np.float32([[0, 2], [1, 3]]))
    for wrong, words in (
        (properties(b"turned", b"\x88"), "property 'turned'"),
        (properties(b"neg", b"K\1"), "of bools"),
    ):
        pt(path, tensor_program((2, 2), (1, 2), properties=wrong), data)
        with pytest.raises(ValueError, match=words):
            hc.open_checkpoint(path)


@pytest.mark.parametrize("deflated", [False, True])
def test_tensors_of_one_storage_share_its_memory(tmp_path, deflated):
    """Hundreds of views of one storage need its memory once, and it is decompressed once."""
    for name in ("zip.pt", "legacy.pt"):
        found = hc.load(SAMPLES / name)
        assert np.shares_memory(found["parameter"], found["tied.0"]) and same_bits(found["tied.0"], GRID)
        found["parameter"][0, 0] += 1
        assert found["tied.0"][0, 0] == GRID[0, 0] + 1
    one = tensor_program((300, 500), (1, 300), 0, 150_000)[2:-1]
    program = b"\x80\2(" + one * 300 + b"l."
    with zipfile.ZipFile(tmp_path / "w.pt", "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        archive.writestr("m/data.pkl", program)
        archive.writestr("m/data/0", bytes(600_000))
    tracemalloc.start()
    found = hc.load(tmp_path / "w.pt")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 300 and found["299"].shape == (300, 500) and peak < 20e6  # 180 MB if each had its own


def test_programs_that_grow_are_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("heterocompute.files.containers.torch_files.MAX_NODES", 10_000)
    path = tmp_path / "w.pt"
    lists = [b"]q%c(" % i + b"h%c" % (i - 1) * 9 + b"e" for i in range(1, 30)]
    pt(path, b"\x80\2(]q\0" + b"".join(lists) + b"l.")
    with bad_argument(ValueError, None, "file", "more than .* values"):
        hc.open_checkpoint(path)
    itself = b"\x80\2]q\0h\0a."
    pt(path, itself)
    with bad_argument(ValueError, None, "file", "nested more than"):
        hc.open_checkpoint(path)
    deep = b"\x80\2" + b"]" * 100_000 + b"a" * 99_999 + b"."
    pt(path, deep)
    with bad_argument(ValueError, None, "file", "nested more than"):
        hc.open_checkpoint(path)
    for program in (b"\x80\2\x8b\xff\xff\xff\x7f", b"\x80\2X\xff\xff\xff\x7fa.", b"\x80\2}(K\1l.", b"\x80\2"):
        pt(path, program)
        with bad_argument(ValueError, None, "file", "a pickle"):
            hc.open_checkpoint(path)


def test_archives_that_lie(tmp_path):
    path = tmp_path / "w.npz"
    np.savez_compressed(path, w=np.zeros(4096))
    data = path.read_bytes()
    at = data.rindex(b"PK\1\2")
    bomb = data[: at + 24] + (2**31).to_bytes(4, "little") + data[at + 28 :]
    path.write_bytes(bomb)
    with bad_argument(ValueError, None, "file", "'w.npy'.*2147483648"):
        hc.open_checkpoint(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", data)
        archive.writestr("b.npy", data)
    twice = bytearray(path.read_bytes())
    place = twice.rindex(b"PK\1\2") + 42
    twice[place : place + 4] = bytes(4)  # both names refer to one offset
    path.write_bytes(twice)
    with bad_argument(ValueError, None, "file", "overlaps another"):
        hc.open_checkpoint(path)
    np.savez(path, w=np.arange(4096))
    changed = bytearray(path.read_bytes())
    changed[4000] ^= 1
    path.write_bytes(changed)
    with hc.open_checkpoint(path) as found, bad_argument(ValueError, None, "file", "was changed"):
        found["w"]


def test_headers_of_gguf_that_lie(tmp_path):
    path, data = tmp_path / "w.gguf", (SAMPLES / "small.gguf").read_bytes()

    def refused(at, new, *words):
        path.write_bytes(data[:at] + new + data[at + len(new) :])
        with pytest.raises(ValueError) as caught:
            hc.open_checkpoint(path)
        assert all(word in str(caught.value) for word in ("w.gguf: ", *words))

    refused(4, b"\1", "GGUF of version 1")
    refused(8, b"\xff" * 8, "tensors and")
    refused(16, b"\xff" * 8, "keys")
    name = data.index(b"\1\0\0\0\0\0\0\0w\2") + 9
    refused(name, b"\xff\xff\xff\x7f", "dimensions, at most 4")
    refused(name + 4, b"\xff" * 8, "overflows")
    refused(name + 20, b"\x63", "the type 99")
    refused(name + 24, b"\1", "no multiple of 32")
    refused(name + 24, b"\0\0\0\0\1", "cut off")
    tokens = data.index(b"tokens") + 6
    refused(tokens + 4, b"\x09", "lists of lists")
    refused(tokens + 8, b"\xff" * 8, "texts")
    key = b"\x11" + bytes(7) + b"general.alignment\x08\0\0\0\x88\x13" + bytes(6) + b"9" * 5000
    refused(8, bytes(8) + b"\1" + bytes(7) + key, "the alignment is '999", "expected a power of two")


def test_a_shape_of_numpy_that_is_long_makes_a_short_sentence(tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"99999999999999999999," * 2000 + b"), }"
    (tmp_path / "w.npy").write_bytes(b"\x93NUMPY\3\0" + len(header).to_bytes(4, "little") + header)
    with bad_argument(ValueError, None, "file", "does not fill") as caught:
        hc.load(tmp_path / "w.npy")
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_keys_of_an_ordered_dict_that_are_tuples_are_not_hashed(tmp_path):
    """The hash of nested tuples recurs as deep as they are, which can overflow the stack."""
    pt(tmp_path / "w.pt", b"\x80\2ccollections\nOrderedDict\n](" + b")" + b"\x85" * 100_000 + b"K\1ta\x85R.")
    assert hc.load(tmp_path / "w.pt") == {}


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.pt"
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    state = {
        "model": module.state_dict(),
        "turned": base.T,
        "part": base[1:, ::2],
        "tied": [base, base],
        "half": torch.ones(2, dtype=torch.bfloat16),
        "on": torch.tensor([True, False]),
        "parameter": torch.nn.Parameter(base),
        "epoch": 3,
        "loss": 1.5,
        "names": ["a", "b"],
        "empty": torch.zeros(0, 3),
        "number": torch.tensor(2.5, dtype=torch.float64),
        "wide": torch.ones(2, dtype=torch.complex128),
        "rate": OrderedDict(lr=1e-3),
        "size": torch.Size([1, 2]),
    }
    state |= {"conjugated": torch.tensor([1 + 2j]).conj(), "imaginary": torch.tensor([3 + 1j]).conj().imag}
    if zipped:
        state["small"] = torch.ones(3).to(torch.float8_e4m3fn)
        state["wider"] = torch.ones(3, 4).to(torch.float8_e5m2)
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    expected = {f"model.{name}": tensor.numpy() for name, tensor in state["model"].items()}
    expected |= {
        "turned": base.T.numpy(),
        "part": base[1:, ::2].numpy(),
        "tied.0": base.numpy(),
        "tied.1": base.numpy(),
    }
    expected |= {"half": np.ones(2, ml_dtypes.bfloat16), "on": np.array([True, False]), "parameter": base.numpy()}
    expected |= {"empty": np.zeros((0, 3), np.float32), "number": np.array(2.5)}
    expected |= {"conjugated": np.complex64([1 - 2j]), "imaginary": np.float32([-1])}
    if zipped:
        expected["small"] = np.ones(3, ml_dtypes.float8_e4m3fn)
        expected["wider"] = np.ones((3, 4), ml_dtypes.float8_e5m2)
    assert set(check(path, expected)) == {"wide"}
    torch.save(base, path, _use_new_zipfile_serialization=zipped)
    check(path, {"array": base.numpy()})


def test_models_of_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    inner = helper.make_graph([], "g", [], [], [numpy_helper.from_array(WEIGHTS["fc.bias"], "b")])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(WEIGHTS["ids"])),
        helper.make_node("If", ["x"], ["y"], name="if", then_branch=inner, else_branch=inner),
    ]
    typed = helper.make_tensor("typed", onnx.TensorProto.BFLOAT16, [3], [1.0, 2.0, 3.0])
    held = [numpy_helper.from_array(WEIGHTS["fc.weight"], "w"), typed, numpy_helper.from_array(WEIGHTS["on"], "on")]
    texts = helper.make_tensor("texts", onnx.TensorProto.STRING, [1], [b"a"])
    model = helper.make_model(helper.make_graph(nodes, "g", [], [], [*held, texts]))
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    bias = WEIGHTS["fc.bias"]
    expected = {"w": WEIGHTS["fc.weight"], "typed": np.array([1, 2, 3], ml_dtypes.bfloat16), "on": WEIGHTS["on"]}
    expected |= {"c": WEIGHTS["ids"], "if.else_branch.b": bias, "if.then_branch.b": bias}
    assert set(check(path, expected)) == {"texts"}
    path.write_bytes(path.read_bytes().replace(b"typed", b"typ\xff\xfe"))  # protobuf returns such a name as bytes
    with hc.open_checkpoint(path) as found:
        assert same_bits(found["typ\ufffd\ufffd"], expected["typed"])
    onnx.save(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    check(path, expected)
    companions = tmp_path / "weights.bin"
    held = companions.read_bytes()
    with bad_argument(ValueError, None, "file", "weights.bin: is a file of the input"):
        hc.quantize_checkpoint(path, companions, "int8")
    assert companions.read_bytes() == held
    text = path.read_bytes()
    path.write_bytes(text.replace(b"weights.bin", b"../eights.b"))
    with bad_argument(ValueError, None, "file", "'../eights.b'"):
        hc.open_checkpoint(path)
    path.write_bytes(text)
    with open(tmp_path / "weights.bin", "r+b") as file:
        file.truncate(100)
    with bad_argument(ValueError, None, "file", "cut off: tensor"):
        hc.open_checkpoint(path)


def test_gguf(tmp_path):
    gguf = pytest.importorskip("gguf")
    from heterocompute.files.containers.gguf_files import BLOCKS, PLAIN

    for kind, (name, values, n_bytes) in BLOCKS.items():
        known = gguf.GGMLQuantizationType(kind)
        assert known.name == name and gguf.GGML_QUANT_SIZES[known] == (values, n_bytes)
    assert all(gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)][0] == 1 for kind in PLAIN)
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_string("general.name", "tiny")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_array("numbers", list(range(2000)))
    plain = {"w": WEIGHTS["fc.weight"], "b": WEIGHTS["fc.bias"], "i": np.arange(5, dtype=np.int32)}
    for name, array in plain.items():
        writer.add_tensor(name, array)
    x = RANDOM.standard_normal((3, 256)).astype(np.float32)
    expected = dict(plain)
    for kind in ("Q4_0", "Q8_0", "MXFP4", "Q5_1", "TQ1_0"):
        known = gguf.GGMLQuantizationType[kind]
        packed = gguf.quants.quantize(x, known)
        writer.add_tensor(kind, packed, raw_dtype=known)
        expected[kind] = gguf.quants.dequantize(packed, known)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    check(path, expected)
    with hc.open_checkpoint(path) as found:
        assert found.metadata["general.name"] == "tiny" and "numbers" not in found.metadata


def test_commands_take_all_of_them(tmp_path, capsys):
    path, packed, plain = tmp_path / "w.npz", tmp_path / "q.safetensors", tmp_path / "p.safetensors"
    np.savez(path, **WEIGHTS)
    assert "fc.weight" in run(capsys, "inspect", path)[1]
    assert run(capsys, "quantize", path, packed, "--format", "int4-g32")[0] == 0
    assert hc.load(packed)["fc.weight"] == hc.quantize(WEIGHTS["fc.weight"], "int4-g32")
    assert same_bits(hc.load(packed)["ids"], WEIGHTS["ids"])
    assert run(capsys, "prune", path, plain, "--pattern", "50%")[0] == 0
    assert np.array_equal(hc.load(plain)["fc.weight"], hc.prune(WEIGHTS["fc.weight"], "50%"))
    assert run(capsys, "dequantize", path, plain, "--overwrite")[0] == 0
    study = hc.study(path, ["int8"])
    assert {row["name"] for row in study.layers} == {"fc.weight"}


SMALL = {"F4": "float4_e2m1fn", "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn", "F8_E8M0": "float8_e8m0fnu",
         "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}  # fmt: skip


@pytest.mark.parametrize("kind", SMALL)
def test_small_floats_are_those_of_safetensors(kind: str, tmp_path: Path) -> None:
    """Values of 4 and 6 bits are packed, the first in the lowest bits; `safetensors` reads the sizes."""
    dtype = np.dtype(getattr(ml_dtypes, SMALL[kind]))
    bits = int(SMALL[kind][5])
    rng = np.random.default_rng(8)
    codes = rng.integers(0, 1 << bits, (7, 12), np.uint8)
    x = codes.view(dtype)
    path = tmp_path / "a.safetensors"
    hc.save(path, {"x": x, "y": np.ones(3, np.float32)})
    stream = np.unpackbits(codes.reshape(-1, 1), axis=1, bitorder="little")[:, :bits].reshape(-1)
    assert np.packbits(stream, bitorder="little").tobytes() in path.read_bytes()
    found = hc.load(path)["x"]
    assert found.dtype == dtype and np.array_equal(found.view(np.uint8), codes)
    [row] = [one for one in inspect(path) if one["name"] == "x"]
    assert row["dtype"] == SMALL[kind] and row["bytes"] == 7 * 12 * bits // 8
    assert row["max"] == float(np.nanmax(x.astype(np.float32))) and row["nan"] == int(
        np.isnan(x.astype(np.float32)).sum()
    )
    with hc.open_checkpoint(path) as opened:
        assert np.array_equal(np.asarray(opened["x"]).view(np.uint8), codes)
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(path, "np") as opened:
        assert opened.get_slice("x").get_shape() == [7, 12] and opened.get_slice("x").get_dtype() == kind
    with pytest.raises(ValueError, match="do not fill whole bytes") if bits < 8 else contextlib.nullcontext():
        hc.save(path, {"x": x.reshape(-1)[:5]})


def test_four_bit_floats_of_torch(tmp_path: Path) -> None:
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    codes = torch.arange(64, dtype=torch.uint8).reshape(4, 16)
    safetensors.save_file({"x": codes.view(torch.float4_e2m1fn_x2)}, tmp_path / "a.safetensors")
    found = hc.load(tmp_path / "a.safetensors")["x"]
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    wanted = np.stack([codes.numpy() & 15, codes.numpy() >> 4], -1).reshape(4, 32)
    assert np.array_equal(found.astype(np.float32), levels[wanted & 7] * np.where(wanted > 7, -1, 1).astype(np.float32))
    hc.save(tmp_path / "b.safetensors", {"x": found})
    assert torch.equal(safetensors.load_file(tmp_path / "b.safetensors")["x"].view(torch.uint8), codes)
