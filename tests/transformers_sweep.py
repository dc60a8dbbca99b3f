"""Drawn configurations of every family of language models against transformers.

    python tests/transformers_sweep.py --seed 0 --count 40 [--family llama ...]

Compared are the logits of a batch, of tokens one by one with a cache, and of sequences of two lengths, which
transformers gets with padding on the right and on the left. A line for each family has the number of models and the
largest difference relative to the largest logit. The limit is 1e-5. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import heterocompute as hc
from heterocompute.zoo.llm.run import Run, RunOptions

sys.path[:0] = [str(Path(__file__).parent / "llm"), str(Path(__file__).parent)]

made, drawn = import_module("made"), import_module("llama_cpp_sweep").drawn

VOCABULARY, LENGTH, LIMIT = 128, 40, 1e-5
SHORT = 23  # tokens of the other sequence


def model_of(rng: np.random.Generator, name: str, options: dict[str, Any]) -> Any:
    """Return a model of transformers with drawn weights."""
    import torch
    import transformers

    kind = made.FAMILIES[name][0]
    config = getattr(transformers, f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config")(**{
        "vocab_size": VOCABULARY, "max_position_embeddings": 128, "pad_token_id": 0,
        "num_hidden_layers": len(options.get("layer_types", "12")), **options,
    })  # fmt: skip
    config._attn_implementation = "sdpa" if options.get("alibi") else "eager"  # eager adds Falcon's biases twice
    torch.manual_seed(int(rng.integers(1 << 30)))
    model = getattr(transformers, f"{kind}{made.ENDING.get(kind, 'ForCausalLM')}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * float(rng.choice([0.1, 0.2])))
    return model


def padded(model: Any, sequences: list[np.ndarray[Any, Any]], left: bool) -> list[np.ndarray[Any, Any]]:
    """Return the logits of sequences of different lengths in one batch."""
    import torch

    longest = max(map(len, sequences))
    ids, mask = np.zeros((2, len(sequences), longest), np.int64)
    parts = [slice(longest - len(one), longest) if left else slice(len(one)) for one in sequences]
    for i, (one, part) in enumerate(zip(sequences, parts, strict=True)):
        ids[i, part], mask[i, part] = one, 1
    given = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    if left and model.config.model_type not in ("bloom", "opt"):  # which count by the mask
        given["position_ids"] = torch.tensor(np.maximum(mask.cumsum(1) - 1, 0))
    with torch.no_grad():
        found = model(**given).logits.numpy()
    return [found[i, part] for i, part in enumerate(parts)]


def compared(folder: Path, rng: np.random.Generator, name: str, options: dict[str, Any]) -> tuple[str, float]:
    """Return "" and the largest relative difference, or why one of both does not run the model."""
    import torch

    try:
        model = model_of(rng, name, options)
        ids = rng.integers(1, VOCABULARY, (2, LENGTH))
        with torch.no_grad():
            wanted = model(torch.tensor(ids)).logits.numpy()
        several = [ids[0], ids[1, :SHORT]]
        batches = [padded(model, several, left) for left in (False, True)]
    except Exception as error:
        return f"transformers: {str(error).splitlines()[0]}", 0.0
    model.save_pretrained(folder)
    try:
        net = hc.zoo.open_llm(folder)
    except ValueError as error:
        return f"refused: {str(error).partition(': ')[2]}", 0.0
    run = Run(net, RunOptions(), 2)
    pieces = [run.logits(ids[:, :9]), *(run.logits(ids[:, i : i + 1]) for i in range(9, LENGTH))]
    pairs = [(net.logits(ids), wanted), (np.concatenate(pieces, axis=1), wanted)]
    together = net.logits([one.tolist() for one in several])
    pairs += [pair for batch in batches for pair in zip(together, batch, strict=True)]
    largest = max(float(np.abs(wanted).max()), 1.0)
    return "", max(float(np.abs(found - other).max()) for found, other in pairs) / largest


def main() -> None:
    """Print a line for each family; exit with 1 if a model differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--family", nargs="*")
    given, wrong = parser.parse_args(), False
    for name in given.family or [*made.FAMILIES]:
        refused, differences, failed = Counter[str](), list[float](), list[str]()
        for i in range(given.count):
            rng = np.random.default_rng([given.seed, i, *name.encode()])
            options = drawn(rng, name)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    why, worst = compared(Path(folder), rng, name, options)
                except Exception as error:
                    failed.append(f"{error}: {options}")
                    continue
            if why:
                refused[why[:90]] += 1
            else:
                differences.append(worst)
                failed += [f"{worst:.3g}: {options}"] if not worst <= LIMIT else []
        wrong |= bool(failed)
        print(f"{name}: {len(differences)} run, largest {max(differences, default=0):.2g}, {dict(refused)}", flush=True)
        for one in failed:
            print(f"  FAILED {one}", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
