"""Hugging Face: models that are packed while loading, saved, loaded again, used for generation and for LoRA."""

from __future__ import annotations

import json
import warnings

import pytest
import said

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")
from heterocompute.interop import torch as ht  # noqa: E402
from heterocompute.interop.transformers import HeteroConfig, lora_on_packed  # noqa: E402

IDS = torch.arange(3, 19).reshape(2, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=100, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("llama")
    transformers.LlamaForCausalLM(config).save_pretrained(path, max_shard_size="200KB")
    assert len(list(path.glob("*.safetensors"))) > 1
    return path


def read(path, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(path, **options)


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


@pytest.mark.parametrize(("fmt", "activations"), [("vsq4-g16-s4", "int8"), ("int4-g32-f16", None), ("nvfp4", None)])
def test_a_model_is_packed_as_it_is_read_and_read_again_bit_by_bit(folder, tmp_path, fmt, activations):
    small = read(folder, quantization_config=HeteroConfig(fmt, activations=activations))
    plain = read(folder)
    floats = ["lm_head", "model.embed_tokens"]
    assert torch.equal(logits(small), logits(ht.convert(plain, fmt, activations=activations, exclude=floats)))
    assert isinstance(small.model.layers[3].mlp.up_proj, ht.PackedLinear) and type(small.lm_head) is torch.nn.Linear
    small.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["quantization_config"]["format"] == fmt
    again = read(tmp_path)
    state, other = small.state_dict(), again.state_dict()
    assert list(state) == list(other) and all(torch.equal(part, other[name]) for name, part in state.items())
    assert torch.equal(logits(small), logits(again))
    greedy = {"max_new_tokens": 6, "do_sample": False}
    assert torch.equal(small.generate(IDS, **greedy), again.generate(IDS, **greedy))


def test_recipes_and_patterns(folder):
    config = HeteroConfig({"*.mlp.*": "int4-g32", "*.v_proj": "skip", "*": "int8"}, exclude=["model.layers.0"])
    model = read(folder, quantization_config=config)
    assert type(model.model.layers[0].mlp.up_proj) is ht.PackedLinear  # a pattern matches a module, not its children
    config = HeteroConfig({"*.mlp.*": "int4-g32", "*.v_proj": "skip", "*": "int8"}, exclude=["model.layers.0.*"])
    model = read(folder, quantization_config=config)
    layer = model.model.layers[1]
    assert type(model.model.layers[0].mlp.up_proj) is torch.nn.Linear is type(layer.self_attn.v_proj)
    assert str(layer.mlp.up_proj.weight.format) == "int4-g32" and str(layer.self_attn.q_proj.weight.format) == "int8"
    assert isinstance(model.lm_head, ht.PackedLinear) and isinstance(model.model.embed_tokens, ht.PackedEmbedding)


def test_tied_weights_stay_floats(folder, tmp_path):
    config = transformers.AutoConfig.from_pretrained(folder)
    config.tie_word_embeddings = True
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    model = read(tmp_path, quantization_config=HeteroConfig("int8", exclude=[]))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert isinstance(model.model.layers[0].mlp.up_proj, ht.PackedLinear)


def test_lora_trains_on_top(folder):
    peft = pytest.importorskip("peft")
    model = read(folder, quantization_config=HeteroConfig("vsq4-g16-s4"))
    config = lora_on_packed(peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft does not know the layer
        model = peft.get_peft_model(model, config)
    trained = [one for one in model.parameters() if one.requires_grad]
    step, losses = torch.optim.Adam(trained, 1e-2), []
    for _ in range(3):
        loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
        step.step()
        step.zero_grad()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (lambda: HeteroConfig("int9000"), "int9000"),
        (lambda: HeteroConfig("int8", activation="int8"), "HeteroConfig: there is no option 'activation', expected"),
        (lambda: HeteroConfig("int8", include="*heads"), "from_pretrained: pattern '[*]heads', which is not a weight"),
        (lambda: HeteroConfig({"*": None}), "from_pretrained: HeteroConfig leaves no layer to pack"),
    ],
)
def test_bad_configs_are_one_sentence(folder, config, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        read(folder, quantization_config=config())


def test_packed_layers_run_on_the_cpu(folder):
    with pytest.raises(ValueError, match=said.FROM_PRETRAINED_DEVICE_MAP_HAS_CUDA):
        read(folder, quantization_config=HeteroConfig("int8"), device_map={"": "cuda:0"})
