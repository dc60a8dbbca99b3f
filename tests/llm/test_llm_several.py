"""Several texts at once: each gets bitwise the result that it gets alone. With order="one" also token by token."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made
import numpy as np
import pytest
from common import same_bits

import heterocompute as hc
from heterocompute.interop.harness import Answers
from heterocompute.zoo.llm.run import Run, RunOptions

RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(2, 96, n).tolist() for n in (3, 20, 9, 1, 40, 5, 8, 33, 2, 17)]  # more than run together
WAYS = {
    "as stored": {},
    "packed": {"activations": "int8", "kv_cache": "int8"},
    "a scale that rows share": {"activations": "nvfp4"},
    "emulated": {"emulate": "bf16"},
}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return hc.zoo.open_llm(made.write_gguf(tmp_path_factory.mktemp("several") / "m.gguf", kind="q8_0"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sweep(every=4)
def test_each_sequence_gets_what_it_gets_alone(net: Any, way: str) -> None:
    how = WAYS[way]
    end = min(net.tokenizer.ends)
    for heat in (0.0, 1.5):
        alone = [net.generate(one, 6, heat, 3, **how).tolist() for one in PROMPTS]
        longest = max(map(len, alone))
        assert net.generate(PROMPTS, 6, heat, 3, **how).tolist() == [
            one + [end] * (longest - len(one)) for one in alone
        ]
    for one, logits in zip(PROMPTS, net.logits(PROMPTS, **how), strict=True):
        np.testing.assert_array_equal(logits, net.logits(one, **how))
    texts = [one for one in PROMPTS if len(one) > 1]
    assert net.perplexity(texts, window=16, **how) == [net.perplexity(one, window=16, **how) for one in texts]


def test_sequences_of_sliding_windows_and_experts_go_together_or_not(tmp_path: Path) -> None:
    for name, config in (("window", {"model_type": "mistral", "sliding_window": 8}), ("plain", {})):
        model = hc.zoo.open_llm(made.write_folder(tmp_path / name, config))
        alone = [model.generate(one, 80).tolist() for one in PROMPTS[:4]]
        together = model.generate(PROMPTS[:4], 80)
        for one, row in zip(alone, together.tolist(), strict=True):
            assert row[: len(one)] == one


def test_texts_go_together(net: Any) -> None:
    pytest.importorskip("tokenizers")
    texts = ["the cat", "in the hat there was", "a"]
    assert net.generate(texts, 5) == [net.generate(text, 5) for text in texts]
    assert [len(one) for one in net.logits(texts)] == [len(net.tokenizer.encode(text)) for text in texts]
    assert net.perplexity(texts[:2]) == [net.perplexity(text) for text in texts[:2]]


def test_the_harness_continues_several_contexts(net: Any) -> None:
    pytest.importorskip("tokenizers")
    model = Answers(net=net, activations="int8")
    asked = [
        SimpleNamespace(args=("the cat " * i, {"until": ["t"], "max_gen_toks": i % 5, "do_sample": i == 3,
                                              "temperature": 2.0}))
        for i in range(12)
    ]  # fmt: skip
    assert model.generate_until(asked) == [model.generate_until([one])[0] for one in asked]
    pairs = [SimpleNamespace(args=(context, one)) for context in ("the", "in the hat") for one in (" a", " b", " cat")]
    assert model.loglikelihood(pairs) == [model.loglikelihood([one])[0] for one in pairs]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda net: net.logits([[1], [999, 2]]), r"logits: ids\[1\]: token 999 is out of range"),
        (lambda net: net.logits([[1], []]), r"logits: ids\[1\] has no tokens, expected at least 1"),
        (lambda net: net.generate([[1], [1] * 120], 20), "the prompt of 120 tokens and tokens of 20 are more than"),
        (lambda net: net.generate([[1], []], 2), r"generate: prompt\[1\] has no tokens, expected at least 1"),
        (lambda net: net.perplexity([[1, 2], [3]]), r"perplexity: text\[1\] has 1 token, expected at least 2"),
        (lambda net: net.perplexity(np.ones((1, 2, 3), int)), "expected at least 2 in one sequence"),
        (lambda net: net.logits([[1], [[1, 2]]]), "sequences of different lengths"),
    ],
)
def test_the_sequence_that_is_wrong_is_named(net: Any, call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(net)


def test_sequences_of_one_length_get_what_they_get_alone(net: Any) -> None:
    """Lists and arrays: the lengths of the others and the number of rows do not matter, nor do their draws."""
    rows = RNG.integers(2, 96, (11, 4))
    alone = [net.generate(one, 5, 1.5, 3).tolist() for one in rows]
    padded = [one + [net.tokenizer.end] * (5 - len(one)) for one in alone]
    for prompts in (rows, list(rows), rows.tolist()):
        assert net.generate(prompts, 5, 1.5, 3).tolist() == padded
    assert net.generate(rows[:1], 5, 1.5, 3).tolist() == [alone[0]]
    assert net.generate(rows, 0).shape == (11, 0)


@pytest.mark.parametrize("weights", [None, "int4-g32-f16", "nf4-g32", "vsq4-g16-s4", "fp8_e4m3fn-row"])
@pytest.mark.parametrize("activations, kv_cache", [(None, None), ("int8", None), (None, "int8")])
def test_logits_of_a_prompt_are_those_of_its_tokens_one_by_one(
    weights: str | None, activations: str | None, kv_cache: str | None, tmp_path: Path
) -> None:
    net = hc.zoo.open_llm(made.write_folder(tmp_path))
    packed = None if weights is None else net.quantized(weights)
    ids = np.random.default_rng(3).integers(2, 200, (3, 40))
    with hc.use(order="one"):
        whole = net.logits(ids, packed, activations, kv_cache)
        for row in range(3):
            assert same_bits(net.logits(ids[row : row + 1], packed, activations, kv_cache)[0], whole[row])
        run = Run(net, RunOptions(packed, activations, kv_cache), 1)
        for at in range(ids.shape[1]):
            step = run.logits(ids[:1, at : at + 1])
            assert same_bits(step[0, 0], whole[0, at]), at
