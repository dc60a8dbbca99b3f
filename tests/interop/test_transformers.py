"""Hugging Face: models that are packed while loading, saved, loaded again, used for generation and for LoRA."""

from __future__ import annotations

import json
import warnings

import pytest
from common import bad_argument

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


def test_what_convert_packed_is_not_saved_as_floats(folder, tmp_path):
    """`from_pretrained` would find no weights in the folder, and make some by chance."""
    small = ht.convert(read(folder), "int8")
    for model in (small, small.model, ht.load_packed(read(folder), small.state_dict())):
        with pytest.raises(ValueError, match="save_pretrained: the model was packed by convert.* expected torch.save"):
            model.save_pretrained(tmp_path)
        assert not list(tmp_path.glob("*.safetensors"))


def test_tied_weights_stay_floats(folder, tmp_path):
    config = transformers.AutoConfig.from_pretrained(folder)
    config.tie_word_embeddings = True
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    model = read(tmp_path, quantization_config=HeteroConfig("int8", exclude=[]))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert isinstance(model.model.layers[0].mlp.up_proj, ht.PackedLinear)


def sizes(**more):
    return {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 100, **more}  # fmt: skip


def read_and_read_again(model, tmp_path, inputs, **options):
    """Return a model that is packed as it is read; it is the packed original, and the same after it is saved."""
    model.eval().save_pretrained(tmp_path / "plain")
    small = type(model).from_pretrained(tmp_path / "plain", quantization_config=HeteroConfig("int8", **options))
    packed = [layer.name for layer in ht.layers(small) if layer.packed is not None]
    small.save_pretrained(tmp_path / "small")
    again = type(model).from_pretrained(tmp_path / "small")
    with torch.no_grad():
        first, *others = (one(inputs)[0] for one in (ht.convert(model, "int8", include=packed), small, again))
    assert all(torch.equal(first, one) for one in others)
    return small


@pytest.mark.parametrize("exclude", [None, ["*experts*"]])
def test_experts_are_saved_as_they_are_packed(tmp_path, exclude):
    """transformers undoes the conversions of the files of experts when it saves, which it cannot do to codes."""
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**sizes(num_local_experts=4, num_key_value_heads=2))
    small = read_and_read_again(transformers.MixtralForCausalLM(config), tmp_path, IDS, exclude=exclude)
    kind = type(small.model.layers[1].mlp.experts.gate_up_proj)
    assert kind is (ht.PackedWeight if exclude is None else torch.nn.Parameter)


def test_split_matrices_are_saved_as_they_are_packed(tmp_path):
    torch.manual_seed(0)
    config = transformers.Dinov2Config(**sizes(image_size=32, patch_size=8, use_swiglu_ffn=True))
    read_and_read_again(transformers.Dinov2Model(config), tmp_path, torch.randn(1, 3, 32, 32))


def test_weights_that_are_computed_stay_floats(tmp_path):
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        **sizes(vocab_size=32), conv_dim=(32, 32), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    small = read_and_read_again(transformers.Wav2Vec2Model(config), tmp_path, torch.randn(1, 400))
    assert type(small.encoder.pos_conv_embed.conv.weight) is torch.Tensor
    config = transformers.FalconConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
    small = read_and_read_again(transformers.FalconForCausalLM(config), tmp_path / "falcon", IDS)
    assert isinstance(small.transformer.h[0].mlp.dense_h_to_4h, ht.PackedLinear)


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
        (lambda: HeteroConfig({"*": None}), "from_pretrained: HeteroConfig leaves no layer to pack$"),
    ],
)
def test_bad_configs_are_one_sentence(folder, config, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        read(folder, quantization_config=config())


def test_packed_layers_run_on_the_cpu(folder):
    pytest.importorskip("accelerate")  # transformers refuses device_map without it
    with bad_argument(ValueError, "device_map", "value"):
        read(folder, quantization_config=HeteroConfig("int8"), device_map={"": "cuda:0"})
