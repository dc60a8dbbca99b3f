"""The harness gets results from the logits, with and without the package lm_eval."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import made
import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.interop import harness
from heterocompute.interop.harness import Answers, harness_model, register

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return hc.zoo.open_llm(made.write_folder(tmp_path_factory.mktemp("harness")))


def asked(*arguments: Any) -> list[Any]:
    return [SimpleNamespace(args=arguments)]


def logs(net: Any, ids: list[int]) -> np.ndarray[Any, Any]:
    logits = net.logits(ids).astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_likelihoods_are_those_of_the_logits(net: Any) -> None:
    model = Answers(net=net)
    whole, before = net.tokenizer.encode("the cat sat"), net.tokenizer.encode("the cat")
    found = logs(net, whole)
    wanted = sum(found[i - 1, whole[i]] for i in range(len(before), len(whole)))
    for context, continuation in (("the cat", " sat"), ("the cat ", "sat")):
        ((got, greedy),) = model.loglikelihood(asked(context, continuation))
        assert got == pytest.approx(wanted, rel=1e-5) and not greedy
    best = net.generate(before, 3).tolist()
    _, greedy = model._scored([*before, *best], 3)
    assert greedy
    ((alone, _),) = model.loglikelihood(asked("", "the"))
    ids = [1, *net.tokenizer.encode("the")]
    assert alone == pytest.approx(sum(logs(net, ids)[i - 1, ids[i]] for i in range(1, len(ids))), rel=1e-5)
    assert model.loglikelihood(asked("the", "")) == [(0.0, True)]


def test_rolling_likelihoods_have_each_token_once(net: Any) -> None:
    text = made.TEXT * 2
    ids = net.tokenizer.encode(text)
    assert 128 < len(ids) and len(ids) % 128
    (got,) = Answers(net=net).loglikelihood_rolling(asked(text))
    wanted, most = 0.0, 128
    for at in range(0, len(ids), most):
        part = ids[at : at + most]
        given = [1, *part] if at == 0 else ids[max(0, at + len(part) - most - 1) : at + len(part)]
        found = logs(net, given[:-1])
        wanted += sum(found[i, given[i + 1]] for i in range(len(given) - len(part) - 1, len(given) - 1))
    assert got == pytest.approx(wanted, rel=1e-5)
    assert Answers(net=net).loglikelihood_rolling(asked("")) == [0.0]


def test_answers_end_where_the_task_says(net: Any) -> None:
    model = Answers(net=net)
    (whole,) = model.generate_until(asked("the cat", {"until": [], "max_gen_toks": 12}))
    assert whole == net.generate("the cat", 12)
    stop = whole[3:5]
    (cut,) = model.generate_until(asked("the cat", {"until": [stop], "max_gen_toks": 12}))
    assert stop and cut == whole.split(stop)[0]
    (long,) = model.generate_until(asked(made.TEXT * 5, {"until": "\n", "max_gen_toks": 4}))
    assert isinstance(long, str)


def test_formats_reach_the_network(net: Any, tmp_path: Path) -> None:
    plain, packed = Answers(net=net), Answers(net=net, format="int3", activations="int8", kv_cache="int8")
    assert plain.loglikelihood(asked("the", " cat")) != packed.loglikelihood(asked("the", " cat"))
    with bad_argument(TypeError, "model_args", "type"):
        Answers(net=net, dtype="auto")
    with bad_argument(TypeError, "model_args", "missing"):
        Answers()


def test_the_package_takes_the_model(net: Any) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval.api.registry import get_model

    register()
    made_by_name = get_model("heterocompute").create_from_arg_string(
        f"path={net.path},format=int8", {"batch_size": 1, "max_batch_size": None, "device": "cpu"}
    )
    direct = harness_model(net.path, format="int8")
    assert made_by_name.loglikelihood(asked("the", " cat")) == direct.loglikelihood(asked("the", " cat"))


def test_the_entry_point_names_the_class_of_the_model(
    net: Any, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stub in place of lm_eval, whose base class is all that the model needs."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    entry = EntryPoint("heterocompute", project["entry-points"]["lm_eval.models"]["heterocompute"], "lm_eval.models")
    model = ModuleType("lm_eval.api.model")
    model.LM = type("LM", (), {})  # type: ignore[attr-defined]
    for name, module in (("lm_eval", ModuleType("lm_eval")), ("lm_eval.api", ModuleType("lm_eval.api"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", model)
    harness._model_class.cache_clear()
    try:
        found = entry.load()
        assert issubclass(found, model.LM)
        assert found(net=net).loglikelihood(asked("the", "")) == [(0.0, True)]
    finally:
        harness._model_class.cache_clear()
