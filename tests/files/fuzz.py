"""Mutations of real files of every kind: each is read completely, or refused with one line that names it.

    python tests/files/fuzz.py 500000 [SEED] [KIND ...]

The suite runs ten thousand mutations (test_fuzz.py). This script runs any number of each kind, with other mutations for
another seed. Packed arrays are decoded, too, which runs the C core; weights of other programs are read in their layout.
Kinds alternate, and an interrupted run prints the number of cases of each. A case that takes more than 2 s or 200 MiB,
or fails without a proper message, is printed with the bytes of its file, and the run continues.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import datetime
import functools
import io
import json
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import inspect
from heterocompute.files.manifest import read_manifest, source_in
from heterocompute.files.recipes import parse_recipe, read_recipe
from heterocompute.files.selection import FirstMatch
from heterocompute.products import tuned
from heterocompute.ptq.streaming import Inputs

SAMPLES = Path(__file__).parent / "samples"
ARRAYS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "on": np.array([True, False]), "n": np.array(3)}
INDEX = "model.safetensors.index.json"
LAYOUTS = {"compressed-tensors": "int3-g32-asym", "gptq": "int4-g16-f16", "awq": "int4-g16-asym-f16",
           "bitsandbytes": "nf4-g16"}  # fmt: skip
READ_ONLY = {"eight": "compressed-tensors", "nested": "bitsandbytes", "scb": "bitsandbytes"}  # never written
EXTERNAL = "external.onnx"
SECONDS, MEMORY = 2.0, 200 << 10  # limits per case; memory in KiB, as Linux counts
ROUND = 500


def seeds(folder: Path) -> dict[str, bytes]:
    """Return the files that are mutated, by kind; the folder has the files next to them."""
    found = {kind: (SAMPLES / kind).read_bytes() for kind in ("zip.pt", "legacy.pt", "small.gguf", "small.onnx")}
    for name, save in (("stored.npz", np.savez), ("deflated.npz", np.savez_compressed)):
        buffer = io.BytesIO()
        save(buffer, **ARRAYS)
        found[name] = buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, ARRAYS["w"])
    found["one.npy"] = buffer.getvalue()
    hc.save(folder / "part.safetensors", {"w": ARRAYS["w"], "q": hc.quantize(ARRAYS["w"], "int4-g2")})
    (folder / "config.json").write_text("{}")  # a lost configuration of a layout is searched here
    w = np.random.default_rng(0).standard_normal((32, 32), np.float32)
    for layout, fmt in LAYOUTS.items():
        hc.save(folder / layout, {"fc.weight": hc.quantize(w, fmt)}, layout=layout)
    for name, (tensors, config) in _read_only(folder, w).items():
        save_arrays(folder / name, tensors, {}, metadata={"quantization_config": json.dumps(config)})
    found["training.pt"] = _training()
    with contextlib.suppress(ImportError):  # blocks are read as packed arrays
        blocks = {text: hc.quantize(np.tile(w[:2], 8), text) for text in (*hc.GGML.examples, "mxfp4", "nvfp4")}
        hc.save(folder / "gguf", blocks, layout="gguf")
        found["gguf"] = (folder / "gguf").read_bytes()
    formats = ("vsq4-g16-s4", "cb4-g16", "nf4-g16-dq", "log4-1-g16", "mxfp4", "nvfp4", "int8+2:4", "q4_k", "int4-asym")
    packed: dict[str, Any] = {fmt: hc.quantize(np.tile(w[:2], 8), fmt) for fmt in formats}
    packed |= {"2:4": hc.prune(w, "2:4"), "bitmap": hc.encode_bitmap(hc.prune(w, "50%"))}
    levels = np.float32([0, *range(1, 16)])
    packed["eie"] = hc.encode_eie(hc.prune(w, "50%"), codebook=levels)
    hc.save(folder / "packed.safetensors", packed)
    h = hc.ptq.Hessian(4)
    h.add(w[:, :4])
    h.save(folder / "hessian.safetensors")
    np.savez(folder / "calibration.npz", w=ARRAYS["w"])
    (folder / "recipe.toml").write_text('[formats]\n"*.bias" = "skip"\n"w[[]0]" = \'int8\'\nw = "int4-g32"\n')
    entry = {"choice": "gemm", "ms": {"gemm": 1.5, "gemv": 2}}
    (folder / "tuning.json").write_text(json.dumps({tuned._machine(): {"a product": entry, "another": entry}}))
    for name in ("packed.safetensors", "hessian.safetensors", "calibration.npz", "recipe.toml", "tuning.json",
                 "part.safetensors", *LAYOUTS, *READ_ONLY):  # fmt: skip
        found[name] = (folder / name).read_bytes()
    where = {name: "part.safetensors" for name in ("w", "q.codes", "q.scales")}
    found[INDEX] = json.dumps({"metadata": {}, "weight_map": where}).encode()
    found["manifest.json"] = _manifest(folder)
    with contextlib.suppress(ImportError):
        found[EXTERNAL] = _external(folder)
    return found


def _training() -> bytes:
    """Return a file of torch.save with objects other than tensors, and NumPy arrays."""
    held = {"args": argparse.Namespace(lr=0.1, w=ARRAYS["w"]), "at": Path("a"), "on": {1, 2}, ("a", 1): [ARRAYS["w"].T],
            "step": np.int64(3), "names": np.array(["a", None]), "when": datetime.date(2026, 1, 1),
            "by": collections.defaultdict(list, a=[1.5]), "of": collections.deque([np.dtype("f4")])}  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps(held, 2))
    return buffer.getvalue()


def _read_only(folder: Path, w: Any) -> dict[str, Any]:
    """Return tensors and configuration of weights in read-only layouts."""
    codes, few = w.astype(np.int8), np.ones((32, 1), np.float32)
    eight = {"a.weight": codes, "a.weight_scale": few, "a.weight_zero_point": few.astype(np.int8),
             "b.weight": w.astype(ml_dtypes.float8_e4m3fn), "b.weight_scale": np.ones((2, 4), np.float32)}  # fmt: skip
    weights = [
        {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False},
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 8], "symmetric": True},
    ]
    groups = {f"group_{i}": {"targets": ["Linear"], "weights": one} for i, one in enumerate(weights)}
    nested = hc.load(folder / "bitsandbytes")
    name = next(name for name in nested if "quant_state" in name)
    state = json.loads(nested[name].tobytes()) | {
        "nested_blocksize": 8,
        "nested_dtype": "float32",
        "nested_offset": 1.0,
    }
    nested |= {
        name: np.frombuffer(json.dumps(state).encode(), np.uint8),
        "fc.weight.absmax": np.arange(64, dtype=np.uint8),
        "fc.weight.nested_absmax": np.ones(8, np.float32),
        "fc.weight.nested_quant_map": np.ones(256, np.float32),
    }
    scb = {"fc.weight": codes, "fc.SCB": few.reshape(-1), "fc.weight_format": np.zeros((), np.uint8)}
    bits = {"quant_method": "bitsandbytes"}
    method = {"quant_method": "compressed-tensors", "format": "naive-quantized", "config_groups": groups}
    return {"eight": (eight, method), "nested": (nested, bits), "scb": (scb, bits)}


def _manifest(folder: Path) -> bytes:
    """Return the manifest of a run that ended after it had deleted a part."""
    source = folder / "consumed"
    source.mkdir(exist_ok=True)
    for name, array in (("a", ARRAYS["w"]), ("b", ARRAYS["w"] * np.nan)):
        hc.save(source / f"{name}.safetensors", {name: array})
    index = {"weight_map": {name: f"{name}.safetensors" for name in "ab"}}
    (source / INDEX).write_text(json.dumps(index))
    with contextlib.suppress(ValueError):
        hc.quantize_checkpoint(source, folder / "out", "int8", shard_size=20, consume=True)
    return (folder / "out.partial" / "manifest.json").read_bytes()


def _external(folder: Path) -> bytes:
    """Return an ONNX model with a tensor in a separate file."""
    import onnx

    (folder / "weights.bin").write_bytes(bytes(range(64)))
    tensor = onnx.TensorProto(name="w", dims=[3, 4], data_type=onnx.TensorProto.FLOAT)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "8"), ("length", "48")):
        tensor.external_data.add(key=key, value=value)
    graph = onnx.helper.make_graph([], "g", [], [], [tensor])
    return bytes(onnx.helper.make_model(graph).SerializeToString())


def mutated(data: bytes, dice: random.Random, others: list[bytes]) -> bytes:
    """Change a few bytes, numbers or runs of a file."""
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        at, what = dice.randrange(len(found) + 1), dice.randrange(8)
        if what == 0:
            found[at : at + 1] = bytes([dice.randrange(256)])
        elif what == 1 and at < len(found):
            found[at] ^= 1 << dice.randrange(8)
        elif what == 2:
            found[at : at + 4] = dice.choice((0, 1, 255, 2**16, 2**31 - 1, 2**32 - 1)).to_bytes(4, "little")
        elif what == 3:
            found[at : at + 8] = dice.choice((0, 1, 2**32, 2**40, 2**63 - 1, 2**64 - 1)).to_bytes(8, "little")
        elif what == 4:
            del found[at : at + dice.randrange(1, 40)]
        elif what == 5:
            found[at:at] = found[at : at + dice.randrange(1, 40)] * dice.choice((1, 1, 20))
        elif what == 6:
            other = dice.choice(others)
            start = dice.randrange(len(other))
            found[at : at + dice.randrange(20)] = other[start : start + dice.randrange(1, 20)]
        else:
            del found[at:]
        if not found:
            break
    return bytes(found)


WRONG = (None, True, -1, 0, 1, 2**31, 2**63, 10**40, 1e300, 0.5, "", "..", "/etc/passwd", "\0", "int8", [], [[]], [-1],
         {}, {"a": 1})  # fmt: skip


def other_values(data: bytes, dice: random.Random) -> bytes:
    """Change a value of a JSON file, or of the header of a safetensors file."""
    begin = 8 if data[:1] != b"{" else 0
    end = begin + int.from_bytes(data[:8], "little") if begin else len(data)
    found = json.loads(data[begin:end])
    for _ in range(dice.choice((1, 1, 2))):
        at, key = None, None
        inside: Any = found
        while isinstance(inside, (dict, list)) and inside and (at is None or dice.random() < 0.8):
            at, key = inside, dice.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
            inside = at[key]
        if at is None:
            break
        if isinstance(inside, str) and inside[:1] == "{" and dice.random() < 0.8:  # JSON in a string of the metadata
            at[key] = other_values(inside.encode(), dice).decode()
        elif dice.random() < 0.15:
            del at[key]
        else:
            at[key] = copy.deepcopy(dice.choice(WRONG))
    text = json.dumps(found).encode()
    return (len(text).to_bytes(8, "little") if begin else b"") + text + data[end:]


def read_checkpoint(path: Path) -> None:
    """Open a file and read all of it."""
    with hc.open_checkpoint(path) as weights:
        for name in weights:
            info, array = weights.info(name), weights[name]
            assert tuple(array.shape) == tuple(info.shape), name
            assert not isinstance(array, np.ndarray) or array.dtype.name == info.dtype, name
            array.to_dense() if hasattr(array, "to_dense") else np.asarray(array)
    if path.suffix == ".pt":
        hc.load(path)  # tensors of one storage share memory there
    if path.name in (*LAYOUTS, "gguf"):
        for array in hc.load(path, layout=path.name).values():
            np.asarray(array)
    if path.name in (*LAYOUTS, *READ_ONLY):
        inspect(path, layout=READ_ONLY.get(path.name, path.name))  # columns of gptq may have any order


def read_a_recipe(path: Path) -> None:
    found = read_recipe(path)
    try:
        FirstMatch(parse_recipe(found))("w")
    except ValueError as error:  # the command prefixes these with the file
        raise ValueError(f"{path}: {error}") from None


def read_a_manifest(path: Path) -> None:
    out = path.parent / "out.partial"
    source_in(read_manifest(str(path)), str(out), path.parent / "consumed")


def read_tuning(path: Path) -> None:
    os.environ["HETEROCOMPUTE_CACHE"] = str(path.parent)
    tuned._found.clear()
    assert isinstance(tuned.choice("a product"), str | None) and tuned.times("another") is not None


def read_calibration(path: Path) -> None:
    dict(Inputs(str(path), {"w": ARRAYS["w"]}))


def read_hessian(path: Path) -> None:
    assert hc.ptq.Hessian.load(path).matrix.ndim in (2, 3)


READERS: dict[str, Callable[[Path], None]] = {
    "recipe.toml": read_a_recipe, "manifest.json": read_a_manifest, "tuning.json": read_tuning,
    "calibration.npz": read_calibration, "hessian.safetensors": read_hessian,
}  # fmt: skip
KINDS = [
    "zip.pt", "legacy.pt", "training.pt", "small.gguf", "small.onnx", EXTERNAL, "stored.npz", "deflated.npz", "one.npy",
    "part.safetensors", "packed.safetensors", INDEX, *LAYOUTS, *READ_ONLY, "gguf", *READERS,
]  # fmt: skip


def attempt(path: Path) -> str:
    """Read a file; the only allowed failure is a proper message."""
    try:
        READERS.get(path.name, read_checkpoint)(path)
        return "read"
    except (ValueError, ImportError, OSError) as error:
        message = str(error)
        # in a folder, the message names the wrong file
        assert str(path.parent) in message and "\n" not in message and len(message) < 3000, message
        assert isinstance(error, OSError) or message.startswith((str(path.parent), "--inputs")), message
        return "refused"


@functools.cache
def _made(folder: Path) -> dict[str, bytes]:
    return seeds(folder)


def cases(kind: str, folder: Path, seed: object, count: int, go_on: bool = False) -> Iterator[str]:
    """Yield the results of some mutations of one kind."""
    files = _made(folder)
    dice, others, path = random.Random(f"{kind}{seed}"), list(files.values()), folder / kind
    has_values = kind.endswith((".json", ".safetensors"))
    with np.errstate(all="ignore"):
        for i in range(count):
            data = files[kind]
            if has_values and dice.random() < 0.4:
                data = other_values(data, dice)
            if data is files[kind] or dice.random() < 0.1:
                data = mutated(data, dice, others)
            path.write_bytes(data)
            start, before = time.process_time(), _peak()
            try:
                what = attempt(path)
                assert time.process_time() - start < SECONDS, f"{time.process_time() - start:.1f} s"
                assert _peak() - before < MEMORY or len(data) > MEMORY, f"{(_peak() - before) >> 10} MiB"
                yield what
            except Exception:
                print(f"{kind}, seed {seed}, case {i}: {data.hex()}", file=sys.stderr, flush=True)
                if not go_on:
                    raise
                traceback.print_exc()
                yield "failed"
    path.write_bytes(files[kind])  # other kinds need it


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(count: int, seed: int = 0, *kinds: str) -> None:
    """Run `count` mutations of each kind, and print their results and times."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.suppress(KeyboardInterrupt):
        chosen = [kind for kind in kinds or KINDS if kind in _made(Path(name))]
        found = {kind: {"read": 0, "refused": 0, "failed": 0, "s": 0.0, "slowest": 0.0} for kind in chosen}
        for first in range(0, count, ROUND):
            for kind, row in found.items():
                last = time.process_time()
                for what in cases(kind, Path(name), f"{seed}.{first}", min(ROUND, count - first), go_on=True):
                    now = time.process_time()
                    row[what] += 1
                    row["s"] += now - last
                    row["slowest"], last = max(row["slowest"], now - last), now
    for kind, row in found.items():
        n = row["read"] + row["refused"] + row["failed"]
        print(f"{kind}: {n} mutations, {row['read']} read, {row['failed']} failed, {row['s']:.0f} s, "
              f"slowest {row['slowest']:.2f} s")  # fmt: skip
    print(f"{sum(row['read'] + row['refused'] + row['failed'] for row in found.values())} in all, {_peak() >> 10} MiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
