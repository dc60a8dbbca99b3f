"""Parameters that configurations of language models state, by the formulas of their layers."""

from __future__ import annotations

import json

import pytest

from heterocompute import hardware as hw

WIDTH, HEADS, KV, HEAD, HIDDEN, EXPERT, EXPERTS, LAYERS, TOKENS = 32, 4, 2, 16, 48, 24, 4, 4, 60
BASE = {
    "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HEAD,
    "vocab_size": TOKENS, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "tie_word_embeddings": False,
}  # fmt: skip
ROUTED = {"num_experts": EXPERTS, "moe_intermediate_size": EXPERT, "num_experts_per_tok": 2}


def counted(folder, **config):
    (folder / "config.json").write_text(json.dumps(BASE | config))
    return hw.count(folder).params


def test_layers_without_experts(tmp_path):
    attention = 2 * WIDTH * HEADS * HEAD + 2 * WIDTH * KV * HEAD + 2 * HEAD
    fixed = 2 * TOKENS * WIDTH + WIDTH + LAYERS * (attention + 2 * WIDTH)
    for more, dense in (
        ({}, 0),
        ({"mlp_only_layers": [0, 2]}, 2),
        ({"decoder_sparse_step": 3, "mlp_only_layers": [1]}, 3),
    ):
        want = fixed + dense * 3 * WIDTH * HIDDEN + (LAYERS - dense) * (EXPERTS * 3 * WIDTH * EXPERT + EXPERTS * WIDTH)
        assert counted(tmp_path, model_type="qwen3_moe", **ROUTED, **more) == want
    with pytest.raises(ValueError, match="mlp_only_layers is 'all', expected a list"):
        counted(tmp_path, model_type="qwen3_moe", **ROUTED, mlp_only_layers="all")
    with pytest.raises(ValueError, match="moe_layer_freq is 2"):
        counted(tmp_path, model_type="qwen3_moe", **ROUTED, moe_layer_freq=2)
    with pytest.raises(ValueError, match="expected one number of experts"):
        counted(tmp_path, model_type="qwen3_moe", **ROUTED, num_local_experts=8)


def test_biases_and_tied_tables(tmp_path):
    plain = counted(tmp_path, model_type="llama")
    assert counted(tmp_path, model_type="llama", mlp_bias=True) - plain == LAYERS * (2 * HIDDEN + WIDTH)
    of_attention = HEADS * HEAD + 2 * KV * HEAD + WIDTH
    assert counted(tmp_path, model_type="llama", attention_bias=True) - plain == LAYERS * of_attention
    assert counted(tmp_path, model_type="mistral", attention_bias=True) == plain  # the family has no such biases
    gpt = {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 16}
    tied = counted(tmp_path, **{**gpt, "tie_word_embeddings": True})
    assert counted(tmp_path, **gpt) - tied == TOKENS * 32


def test_windows_of_layers_without_rotary_positions(tmp_path):
    more = {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 8, "no_rope_layer_interval": 2}
    counted(tmp_path, **more)
    found = [node.layer.window for node in hw.as_network(tmp_path).nodes if type(node.layer).__name__ == "Scores"]
    assert found == [None, 8, None, 8]
    with pytest.raises(ValueError, match="layer_types"):
        counted(tmp_path, **more, layer_types=["linear_attention"] * LAYERS)


def test_windows_larger_than_the_map_count_once():
    layer = hw.layers.AvgPool2d(64, 64, ceil_mode=True)
    assert layer.output_shape((8, 9, 7)) == (8, 1, 1)
    with pytest.raises(ValueError, match="does not fit"):
        hw.layers.AvgPool2d(64).output_shape((8, 9, 7))


def test_modules_with_several_inputs_and_packed_weights():
    torch = pytest.importorskip("torch")
    from heterocompute.interop import torch as ht

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 4), torch.nn.Linear(6, 4)
            self.register_buffer("held", torch.ones(1, 3, 8))

        def forward(self, x=None, y=None):
            return self.first(self.held if x is None else x) @ self.second(self.held[..., :6] if y is None else y).mT

    for inputs in ({"x": (3, 8), "y": (5, 6)}, (torch.zeros(1, 3, 8), torch.zeros(1, 5, 6).numpy())):
        found = hw.count(Two(), inputs=inputs)
        assert (found.params, found.macs) == (64, 3 * 32 + 5 * 24 + 3 * 4 * 5)
    with pytest.raises(TypeError, match="expected a tuple or a dict"):
        hw.count(Two(), inputs=3)

    class Held(torch.nn.Linear):
        def forward(self, x):
            return super().forward(torch.ones(1, self.in_features, device=self.weight.device))

    with pytest.raises(ValueError, match="does not use its input, expected inputs="):
        hw.count(Held(8, 4), (1,))
    nets = (
        (
            torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, groups=2), torch.nn.Flatten(), torch.nn.Linear(72, 4)),
            (4, 5, 5),
        ),
        (torch.nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1, output_padding=1, groups=2), (4, 5, 6)),
        (torch.nn.Sequential(torch.nn.Embedding(50, 32), torch.nn.Linear(32, 8)), (6,)),
    )
    for net, shape in nets:
        plain, small = hw.count(net, shape), hw.count(ht.convert(net, "int8"), shape)
        assert (small.macs, small.params) == (plain.macs, plain.params)
    found = hw.count(torch.nn.Sequential(ht.QuantLinear(64, 8, "int4-g32")), (64,))
    assert (found.macs, found.params) == (512, 520)
