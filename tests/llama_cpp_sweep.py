"""Drawn configurations of every family, written as GGUF and run by llama.cpp: its probabilities are those of torch.

    python tests/llama_cpp_sweep.py --seed 0 --count 80 [--family llama ...]

Prints a line for each family: models that agree, models that are refused, and the largest difference of a logarithm of
a probability. llama.cpp keeps keys and values as float16, so the limit is 0.02; a model with two experts whose scores
are nearer than that rounding may differ more (docs/llm.md). Needs torch, transformers, gguf and
xllamacpp.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import heterocompute as hc

sys.path[:0] = [str(Path(__file__).parent / "llm"), str(Path(__file__).parent)]

made, families = import_module("made"), import_module("test_llm_llama_cpp")

FLAGS = ("attention_bias", "mlp_bias", "tie_word_embeddings", "norm_topk_prob", "use_qk_norm", "use_bias", "qkv_bias",
         "use_parallel_residual", "use_qkv_bias", "multi_query", "bias")  # fmt: skip
LIMIT = 0.02
PROMPTS = (made.TEXT[:70], "12 cats")


def drawn(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """Return options of a small model."""
    kind, options = {**made.FAMILIES, **families.FAMILIES, **families.MIXTURES}[name]
    import transformers

    usual = getattr(transformers, f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config")().to_dict()
    heads = int(rng.choice([2, 4, 8]))
    found = {**options, "hidden_size": 64, "num_attention_heads": heads, "intermediate_size": int(rng.choice([64, 96]))}
    if "num_hidden_layers" not in options and "layer_types" not in options:
        found["num_hidden_layers"] = int(rng.integers(1, 4))
    share = [n for n in (1, 2, 4, 8) if heads % n == 0]
    is_grouped = "num_key_value_heads" in usual and "kv_lora_rank" not in usual
    found["num_key_value_heads"] = int(rng.choice(share)) if is_grouped else heads
    if usual.get("head_dim") is not None and "kv_lora_rank" not in usual and rng.random() < 0.5:
        found["head_dim"] = int(rng.choice([16, 32]))
    elif "head_dim" in found:
        found["head_dim"] = 64 // heads
    for flag in FLAGS:
        if flag in usual and rng.random() < 0.5:
            found[flag] = bool(rng.random() < 0.5)
    for key in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"):
        if key in usual and "kv_lora_rank" not in usual:
            found[key] = float(rng.choice([1e-6, 1e-5, 1e-3]))
    if isinstance(usual.get("rope_parameters"), dict) and "rope_parameters" not in options:
        if "rope_theta" in usual["rope_parameters"] and rng.random() < 0.7:
            found["rope_parameters"] = {"rope_type": "default", "rope_theta": float(rng.choice([500.0, 1e4, 1e6]))}
            if rng.random() < 0.4 and kind != "Phi3" and "kv_lora_rank" not in usual:
                found["rope_parameters"] |= {"rope_type": "linear", "factor": float(rng.choice([2.0, 3.5]))}
    for key, value in options.items():
        if key in ("num_experts", "num_local_experts", "n_routed_experts"):
            found[key] = int(value * rng.choice([1, 2]))
        if isinstance(value, float):
            found[key] = float(value * rng.choice([0.5, 1.0, 1.5]))
    return found


def compared(folder: Path, name: str, options: dict[str, Any]) -> tuple[str, float]:
    """Return "" and the largest difference, or why the model is not written."""
    import torch
    import xllamacpp

    kind = {**made.FAMILIES, **families.FAMILIES, **families.MIXTURES}[name][0]
    try:
        place, model = families.folder_of(folder / "in", name, options, kind)
    except Exception as error:
        return f"transformers: {str(error).splitlines()[0]}", 0.0
    path = folder / "m.gguf"
    if hc.quantize_checkpoint(place, path, "q8_0", exclude="*", layout="gguf")["architecture"] is None:
        from heterocompute.files.layouts.gguf.llama_cpp import model_in
        from heterocompute.files.opening import reader_of

        try:
            model_in(reader_of(str(place)))
        except ValueError as error:
            return str(error), 0.0
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.cpuparams.n_threads, settings.warmup = str(path), 128, 1, False
    server, worst, tokens = xllamacpp.Server(settings), 0.0, hc.zoo.open_llm(path).tokenizer
    for prompt in PROMPTS:
        answer = server.handle_completions({"prompt": prompt, "n_predict": 3, "temperature": 0, "n_probs": 300})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        ids = tokens.encode(prompt)
        for one in answer["choices"][0]["logprobs"]["content"]:
            with torch.no_grad():
                wanted = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1], -1).numpy()
            there = {found["id"]: found["logprob"] for found in one["top_logprobs"]}
            worst = max(worst, *(abs(wanted[i] - value) for i, value in there.items() if value > -12))
            ids.append(one["id"])
    return "", worst


def main() -> None:
    """Print a line for each family; exit with 1 if a model differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--family", nargs="*")
    given, wrong = parser.parse_args(), False
    names = given.family or [*families.FAMILIES, *families.MIXTURES]
    for name in names:
        refused, differences, failed = Counter[str](), list[float](), list[str]()
        for i in range(given.count):
            rng = np.random.default_rng([given.seed, i, *name.encode()])
            options = drawn(rng, name)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    why, worst = compared(Path(folder), name, options)
                except Exception as error:
                    failed.append(f"{error}: {options}")
                    continue
            if why:
                refused[why.split(",")[0][:90]] += 1
            else:
                differences.append(worst)
                failed += [f"{worst:.3g}: {options}"] if worst > LIMIT else []
        wrong |= bool(failed)
        print(f"{name}: {len(differences)} run, largest {max(differences, default=0):.2g}, {dict(refused)}", flush=True)
        for one in failed:
            print(f"  FAILED {one}", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
