"""Records of families: names are unique, and networks, counts and files read the same facts."""

from __future__ import annotations

from typing import Any

import pytest

from heterocompute.families.keys import Keys
from heterocompute.families.known import check_config
from heterocompute.families.record import LAYER, Kind
from heterocompute.families.table import FAMILIES, KINDS, MODULES
from heterocompute.hardware.network.language import decoder_of_config
from heterocompute.zoo.llm.configuration import of_config

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 64}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}


def test_names_are_unique_and_tensors_known() -> None:
    kinds = [kind.name for family in FAMILIES.values() for kind in family.kinds]
    assert len(set(kinds)) == len(kinds) == len(KINDS) and len(set(MODULES)) == len(MODULES)
    for family in FAMILIES.values():
        assert family.parts >= set(family.biases) or not family.runs, family.name
        assert set(family.gguf) <= {*LAYER, *family.layer}, family.name


@pytest.mark.parametrize("kind", [name for name, (family, _) in KINDS.items() if family.runs])
def test_networks_and_counts_read_the_same_sizes(kind: str) -> None:
    config: dict[str, Any] = {"model_type": kind, **SIZES, **(EXPERTS if KINDS[kind][1].experts else {})}
    shape, decoder = of_config("c", config, 100), decoder_of_config("c", config, "m")
    for size in ("head_width", "kv_heads", "hidden", "context", "windows", "experts", "experts_used", "expert_hidden"):
        assert getattr(shape, size) == getattr(decoder, size), size
    assert shape.biases == decoder.biases
    assert shape.head_width == KINDS[kind][1].defaults.get("head_dim", 16)


def test_a_key_of_one_kind_stays_refused_in_others() -> None:
    config = {"embedding_multiplier": 2}
    check_config(Keys("c", config), config, Kind("granite", reads=("embedding_multiplier",)))
    with pytest.raises(ValueError, match="embedding_multiplier is 2, which is not read in the family llama"):
        check_config(Keys("c", config), config, KINDS["llama"][1])


def test_counts_refuse_a_window_without_a_size() -> None:
    with pytest.raises(ValueError, match="sliding_window is null, expected a number"):
        decoder_of_config("c", {"model_type": "gemma2", **SIZES, "sliding_window": None}, "m")
