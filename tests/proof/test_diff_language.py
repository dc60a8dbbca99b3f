"""`heterocompute.diff` of language models: planted faults are found at their layer, with their cause."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

sys.path.append(str(Path(__file__).resolve().parents[1] / "llm"))
made: Any = pytest.importorskip("made")
IDS = np.random.default_rng(0).integers(2, 96, 12)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return hc.zoo.open_llm(made.write_gguf(tmp_path_factory.mktemp("diff") / "m.gguf"))


def with_weight(net: Any, name: str, change: Any) -> Any:
    other = copy.copy(net)
    other.weights = {**net.weights, name: change(np.array(net.weights[name], np.float32))}
    return other


def with_shape(net: Any, **options: Any) -> Any:
    shape = replace(net.shape, **options)
    return type(net)(net.path, net.weights, shape, net._roles, net.tokenizer, net._plus_one, net._factors)


def test_equal_models_are_equal(net: Any) -> None:
    found = hc.diff(net, copy.copy(net), IDS)
    assert found.equal and [row["name"] for row in found.rows] == [
        "embedding", *(f"layer {i}" for i in range(net.shape.layers)), "output"]  # fmt: skip
    assert hc.diff(net, copy.copy(net), IDS, IDS[::-1].copy()).cause == "input"


def test_faults_are_found_at_their_layer(net: Any) -> None:
    last = net.shape.layers - 1
    name = net._roles[f"blk.{last}.ffn_down.weight"]
    found = hc.diff(net, with_weight(net, name, lambda w: w * np.float32(1.05)), IDS)
    assert (found.layer, found.cause) == (f"layer {last}", "weights") and name in found.notes[0]

    coded = with_weight(net, name, lambda w: hc.quantize(w, "int4-g16"))
    found = hc.diff(net, coded, IDS)
    assert (found.layer, found.cause) == (f"layer {last}", "format")

    slow = with_shape(net, rope=replace(net.shape.rope, base=net.shape.rope.base * 50))
    found = hc.diff(net, slow, IDS)
    assert (found.layer, found.cause) == ("layer 0", "position") and "rope" in found.notes[0]

    found = hc.diff(net, with_shape(net, epsilon=0.1), IDS)
    assert (found.layer, found.cause) == ("layer 0", "operation") and "epsilon" in found.notes[0]

    table = net._roles["token_embd.weight"]
    found = hc.diff(net, with_weight(net, table, lambda w: w + np.float32(0.1)), IDS)
    assert (found.layer, found.cause) == ("embedding", "weights")


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_side_that_changes_from_run_to_run_is_named(net: Any, side: str) -> None:
    """Weights that other code changes between two runs, as a buffer under training does."""
    name, other = net._roles["blk.0.ffn_down.weight"], copy.copy(net)
    rng = np.random.default_rng(1)

    class Shaking(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: str) -> Any:
            w = super().__getitem__(key)
            return np.array(w, np.float32) * np.float32(rng.uniform(0.5, 2)) if key == name else w

    other.weights = Shaking(net.weights)
    found = hc.diff(*((other, net) if side == "a" else (net, other)), IDS)
    assert (found.layer, found.cause) == ("layer 0", "nondeterminism") and found.notes[0].startswith(side)


def test_other_sizes_are_refused(net: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="diff: inputs has no tokens"):
        hc.diff(net, net, [])
    other = with_shape(net, layers=net.shape.layers - 1)
    with pytest.raises(ValueError, match="expected networks of one size"):
        hc.diff(net, other, IDS)
