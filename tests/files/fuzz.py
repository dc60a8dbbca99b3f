"""Mutations of real files of every kind: each is read whole, or refused by one line that names it.

    python tests/files/fuzz.py 500000 [SEED]

The suite runs ten thousand of them (test_fuzz.py), this as many of each kind as one asks for, and others with another
seed. What is packed is decoded too, which runs the C core; weights of other programs are read in their layout.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import heterocompute as hc

SAMPLES = Path(__file__).parent / "samples"
ARRAYS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "on": np.array([True, False]), "n": np.array(3)}
INDEX = "model.safetensors.index.json"
LAYOUTS = {"compressed-tensors": "int3-g32-asym", "gptq": "int4-g16-f16", "awq": "int4-g16-asym-f16",
           "bitsandbytes": "nf4-g16"}  # fmt: skip


def seeds(folder: Path) -> dict[str, bytes]:
    """Return the files that are mutated, by kind."""
    found = {kind: (SAMPLES / kind).read_bytes() for kind in ("zip.pt", "legacy.pt", "small.gguf", "small.onnx")}
    for name, save in (("stored.npz", np.savez), ("deflated.npz", np.savez_compressed)):
        buffer = io.BytesIO()
        save(buffer, **ARRAYS)
        found[name] = buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, ARRAYS["w"])
    found["one.npy"] = buffer.getvalue()
    hc.save(folder / "part.safetensors", {"w": ARRAYS["w"], "q": hc.quantize(ARRAYS["w"], "int4-g2")})
    found["part.safetensors"] = (folder / "part.safetensors").read_bytes()
    (folder / "config.json").write_text("{}")  # where the configuration of a layout is sought that is lost
    w = np.random.default_rng(0).standard_normal((32, 32), np.float32)
    for layout, fmt in LAYOUTS.items():
        hc.save(folder / layout, {"fc.weight": hc.quantize(w, fmt)}, layout=layout)
        found[layout] = (folder / layout).read_bytes()
    where = {name: "part.safetensors" for name in ("w", "q.codes", "q.scales")}
    found[INDEX] = json.dumps({"metadata": {}, "weight_map": where}).encode()
    return found


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


def attempt(path: Path) -> str:
    """Open a file and read all of it; what may happen is that, or a sentence."""
    try:
        with hc.open_checkpoint(path) as weights:
            for name in weights:
                info, array = weights.info(name), weights[name]
                assert tuple(array.shape) == tuple(info.shape), name
                assert isinstance(array, hc.QuantizedArray) or array.dtype.name == info.dtype, name
                np.asarray(array)
        if path.suffix == ".pt":
            hc.load(path)  # where tensors of one storage share it
        if path.name in LAYOUTS:
            for array in hc.load(path, layout=path.name).values():
                np.asarray(array)
        return "read"
    except (ValueError, ImportError) as error:
        message = str(error)
        # in a folder the sentence names the file that is wrong
        assert message.startswith(str(path.parent)) and "\n" not in message and len(message) < 3000, message
        return "refused"


def cases(kind: str, folder: Path, seed: int, count: int) -> Iterator[str]:
    """Yield what became of some mutations of one kind."""
    files = seeds(folder)
    dice, others, path = random.Random(f"{kind}{seed}"), list(files.values()), folder / kind
    with np.errstate(all="ignore"):
        for i in range(count):
            data = mutated(files[kind], dice, others)
            path.write_bytes(data)
            try:
                yield attempt(path)
            except BaseException:
                print(f"{kind}, seed {seed}, case {i}: {data.hex()}", file=sys.stderr)
                raise


def main(count: int, seed: int = 0) -> None:
    """Run `count` mutations of each kind, and print how many were read and how long they took."""
    with tempfile.TemporaryDirectory() as name, contextlib.suppress(KeyboardInterrupt):
        for kind in seeds(Path(name)):
            start = time.process_time()
            slowest, n_read, last = 0.0, 0, start
            for what in cases(kind, Path(name), seed, count):
                n_read += what == "read"
                now = time.process_time()
                slowest, last = max(slowest, now - last), now
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            took = last - start
            print(
                f"{kind}: {count} mutations, {n_read} read, {took:.0f} s, slowest {slowest:.2f} s, {peak} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
