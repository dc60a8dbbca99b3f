"""The keys of config.json and of GGUF files: read, harmless, or refused by name.

    read        computed with, by every family or by those whose record has the key
    neutral     changes the network, except for the values in the table
    another     another name of a key that is read, with the same value
    harmless    does not change the network: names, training, generation, tokens, layouts of weights
    None        not set
    other       refused, because its meaning is unknown

transformers, src/transformers/configuration_utils.py and src/transformers/models/; llama.cpp, src/llama-arch.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..base.errors import shown
from ..base.texts import quoted
from .keys import Keys
from .kind import Kind
from .table import ENCODER_KINDS, RUN_KINDS

READ = frozenset(
    "model_type hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
    "vocab_size max_position_embeddings rms_norm_eps hidden_act hidden_activation tie_word_embeddings rope_parameters "
    "rope_scaling rope_theta partial_rotary_factor original_max_position_embeddings use_bidirectional_attention "
    "bos_token_id eos_token_id".split()
)
# Keys that change a network in other families, forks or programs, with the values that do not.
NEUTRAL: dict[str, Collection[Any]] = {
    "is_encoder_decoder": (False,), "add_cross_attention": (False,), "tie_encoder_decoder": (False,),
    "is_causal": (True,), "pruned_heads": ({},), "per_layer_config": ({},), "rope_interleaved": (False,),
    "use_mrope": (False,), "full_attn_mod": (1,), "interpolate_factor": (1,), "lm_head_bias": (False,),
    "qkv_bias": (False,), "use_qkv_bias": (False,), "bias": (False,), "use_bias": (False,), "no_bias": (True,),
    "attention_out_bias": (False,), "use_qk_norm": (False,), "qk_norm": (False,), "qk_layernorm": (False,),
    "clip_qkv": (), "alibi": (False,), "parallel_attn": (False,), "use_parallel_residual": (False,),
    "embedding_multiplier": (1,), "residual_multiplier": (1,), "attention_multiplier": (), "logits_scaling": (1,),
    "logit_scale": (1,), "logit_softcap": (), "attention_chunk_size": (), "no_rope_layers": ([],),
    "no_rope_layer_interval": (0,), "attention_sinks": (False,), "num_nextn_predict_layers": (0,),
    "n_shared_experts": (0,), "shared_expert_intermediate_size": (0,), "use_cross_attention": (False,),
    "activation": ("swiglu", "silu"), "scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,),
    "n_group": (1,), "topk_group": (1,), "routed_scaling_factor": (1,), "first_k_dense_replace": (0,),
    "swiglu_alpha": (), "swiglu_limit": (), "enable_bias": (True,),
    "reorder_and_upcast_attn": (False,), "do_layer_norm_before": (True,), "layer_norm_elementwise_affine": (True,),
    "apply_residual_connection_post_layernorm": (False,), "position_embedding_type": ("absolute",),
    "norm_bias": (False,), "mlp_type": ("default",), "norm_type": ("layer_norm",), "rotary_pct": (1,),
    "order_of_interleaved_layers": ("local_attn_first",), "use_embedding_sharing": (True,),
    "use_gated_activation": (True,), "use_parallel_block": (False,),
}  # fmt: skip
# Names of other programs, and of other families, for keys that are read. Harmless with the value of these.
ANOTHER = {
    "sliding_window_size": "sliding_window", "d_model": "hidden_size", "n_embd": "hidden_size", "dim": "hidden_size",
    "embedding_size": "hidden_size", "word_embed_proj_dim": "hidden_size",
    "n_layer": "num_hidden_layers", "n_layers": "num_hidden_layers",
    "num_layers": "num_hidden_layers", "n_head": "num_attention_heads", "n_heads": "num_attention_heads",
    "num_heads": "num_attention_heads", "n_kv_heads": "num_key_value_heads", "num_kv_heads": "num_key_value_heads",
    "n_positions": "max_position_embeddings", "n_ctx": "max_position_embeddings", "n_inner": "intermediate_size",
    "ffn_hidden_size": "intermediate_size", "ffn_dim": "intermediate_size",
    "layer_norm_eps": "rms_norm_eps", "layer_norm_epsilon": "rms_norm_eps", "layernorm_epsilon": "rms_norm_eps",
    "norm_eps": "rms_norm_eps", "norm_epsilon": "rms_norm_eps",
    "rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta", "rope_base": "rope_theta",
    "act_fn": "hidden_act", "experts_per_token": "num_experts_per_tok", "layer_switch": "sliding_window_pattern",
    "activation_function": "hidden_act", "padded_vocab_size": "vocab_size", "n_vocab": "vocab_size",
}  # fmt: skip
GENERATION = frozenset(
    "assistant_confidence_threshold assistant_early_exit assistant_ensemble_weight assistant_lookbehind bad_words_ids "
    "begin_suppress_tokens cache_config cache_implementation compile_config constraints continuous_batching_config "
    "decoder_start_token_id disable_compile diversity_penalty do_sample dola_layers early_stopping "
    "encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff "
    "exponential_decay_length_penalty force_words_ids forced_bos_token_id forced_eos_token_id generation_config "
    "guidance_scale is_assistant length_penalty low_memory max_cache_len max_length max_matching_ngram_size "
    "max_new_tokens max_time min_length min_new_tokens min_p no_repeat_ngram_size num_assistant_tokens "
    "num_assistant_tokens_schedule num_beam_groups num_beams num_return_sequences output_logits output_scores "
    "penalty_alpha prefill_chunk_size prompt_lookup_num_tokens remove_invalid_values renormalize_logits "
    "repetition_penalty return_dict_in_generate sequence_bias speculation_type stop_strings suppress_tokens "
    "target_lookbehind temperature token_healing top_h top_k top_p typical_p use_mtp watermarking_config".split()
)
TRAINING = frozenset(
    "attention_dropout attention_probs_dropout_prob attn_pdrop aux_loss_alpha dropout embd_pdrop finetuning_task "
    "gradient_checkpointing hidden_dropout hidden_dropout_prob initializer_factor initializer_range "
    "label_smoothing loss_type neftune_noise_alpha output_router_logits pretraining_tp resid_pdrop seq_aux "
    "router_aux_loss_coef router_jitter_noise router_z_loss_coef sequence_parallel tf_legacy_loss use_recompute "
    "activation_dropout embedding_dropout ffn_dropout hidden_dropout_rate residual_dropout z_loss init_std layerdrop "
    "input_jitter_noise summary_activation summary_first_dropout summary_proj_to_labels summary_type "
    "summary_use_proj".split()
)
OTHERS = frozenset(
    # names, and programs that read or wrote the file
    "architectures attn_implementation auto_map base_model custom_pipelines dtype experts_implementation is_decoder "
    "is_llama_config language library_name license mlx_lm_version model_name name_or_path quantization "
    "quantization_config tags task_specific_params tensor_parallel_style torch_dtype torchscript "
    "transformers.js_config transformers_version unsloth_fixed unsloth_tiled_mlp unsloth_version use_bfloat16 "
    "use_flash_attention use_flash_attention_2 use_flash_attn use_memory_efficient_attention use_sdpa use_xformers "
    "paddlenlp_version "
    # of encoders: heads of tasks, and code of other programs
    "classifier_activation classifier_bias classifier_pooling cls_token_id decoder_bias deterministic_flash_attn "
    "directionality initializer_cutoff_factor mlp_dropout pooler_fc_size pooler_num_attention_heads "
    "pooler_num_fc_layers pooler_size_per_head pooler_type reference_compile repad_logits_with_grad "
    "sparse_pred_ignore_index sparse_prediction "
    # of the training of BLOOM
    "attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi skip_bias_add skip_bias_add_qkv "
    "scale_attention_softmax_in_fp32 slow_but_exact use_parallel_embedding "
    # memory and results
    "cache_dtype chunk_size_feed_forward output_attentions output_hidden_states return_dict tie_last_hidden_states "
    "use_cache use_return_dict "
    # lengths that only a tokenizer or a server uses, tokens, and heads of other tasks
    "dual_chunk_attention_config id2label image_token_id label2id max_sequence_length max_seq_len model_max_length "
    "initial_context_length "
    "num_labels pad_token_id prefix problem_type sep_token_id seq_length tokenizer_class unk_token_id "
    "classifier_dropout bos_token eos_token pad_token unk_token chat_template ignore_index mask_token_id "
    "num_logits_to_keep logits_to_keep pad_vocab_size_multiple_of tokenizer_type video_token_id "
    # the picture side of Gemma 3
    "boi_token_id boi_token_index eoi_token_id eoi_token_index image_token_index mm_tokens_per_image text_config "
    "vision_config".split()
)
HARMLESS = GENERATION | TRAINING | OTHERS

ROPE_TYPES: dict[str, Collection[str]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
             "mscale_all_dim", "truncate"),
    "longrope": ("factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"),
}  # fmt: skip
ROPE = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
ROPE_HARMLESS = ("finetuned",)
TEMPERATURE = "llama_4_scaling_beta"  # of the queries of Ministral 3, among the parameters of yarn

GGUF_READ = frozenset(
    "block_count context_length embedding_length feed_forward_length expert_count expert_used_count "
    "expert_feed_forward_length attn_logit_softcapping final_logit_softcapping attention.head_count "
    "attention.head_count_kv attention.key_length attention.value_length attention.layer_norm_rms_epsilon "
    "attention.sliding_window attention.sliding_window_pattern attention.scale rope.dimension_count rope.freq_base "
    "rope.freq_base_swa rope.scale_linear rope.scaling.type rope.scaling.factor rope.scaling.attn_factor "
    "rope.scaling.original_context_length rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_fast "
    "rope.scaling.yarn_beta_slow rope.scaling.yarn_ext_factor".split()
)
GGUF_LISTS = ("attention.sliding_window_pattern", "attention.head_count", "attention.head_count_kv",
              "feed_forward_length")  # fmt: skip
GGUF_HARMLESS = frozenset(
    "vocab_size attention.layer_norm_epsilon rope.scaling.finetuned pooling_type classifier.output_labels "
    "tensor_data_layout".split()
)
GGUF_NEUTRAL: dict[str, Collection[float]] = {
    "attention.causal": (1,), "use_parallel_residual": (0,), "attention.max_alibi_bias": (0,),
    "attention.clamp_kqv": (0,), "attention.output_scale": (0, 1), "attention.temperature_length": (0,),
    "attention.temperature_scale": (0,), "attention.shared_kv_layers": (0,), "logit_scale": (0, 1),
    "residual_scale": (0, 1), "embedding_scale": (0, 1), "router_logit_softcapping": (0,),
    "expert_weights_norm": (1,), "expert_weights_scale": (0, 1), "expert_gating_func": (0, 1),
    "expert_shared_count": (0,), "expert_shared_feed_forward_length": (0,), "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1), "leading_dense_block_count": (0,), "interleave_moe_layer_step": (0, 1),
    "moe_every_n_layers": (0, 1), "nextn_predict_layers": (0,), "n_deepstack_layers": (0,),
    "rope.scaling.yarn_log_multiplier": (0,), "rope.scaling.alpha": (0, 1), "full_attention_interval": (0, 1),
}  # fmt: skip
GGUF_ANOTHER = {
    "attention.key_length_swa": "attention.key_length", "attention.value_length_swa": "attention.value_length",
    "rope.dimension_count_swa": "rope.dimension_count", "embedding_length_out": "embedding_length",
    "features_length": "embedding_length",
}  # fmt: skip


READ_BY = frozenset[str]().union(
    *(kind.read_keys() for table in (RUN_KINDS, ENCODER_KINDS) for _, kind in table.values())
)


def check_config(keys: Keys, config: Mapping[str, Any], kind: Kind) -> None:
    """Refuse a key of config.json that may change the network and is not read.

    Parameters
    ----------
    keys : Keys
        For errors.
    kind : Kind
        Keys that only other kinds read are ignored, as transformers does.

    Raises
    ------
    ValueError
        It names the key and its value.
    """
    read = kind.read_keys() | (READ_BY - NEUTRAL.keys() - ANOTHER.keys())
    for key, value in config.items():
        is_known = key in READ or key in read or key in HARMLESS or key.startswith("_")
        same = ANOTHER.get(key, "")
        is_known = is_known or value in [config[one] for one in (same, *kind.keys.get(same, ())) if one in config]
        if not is_known and value is not None and not _among(value, NEUTRAL.get(key, ())):
            keys.fail(
                f"{printed(key)} is {shown(value)}, which is not read in the family {kind.name} and may change the "
                "network; remove the key if it does not"
            )


def check_rope(keys: Keys, given: Mapping[str, Any], kind: str, name: str, more: Collection[str] = ()) -> None:
    """Refuse a key of RoPE's parameters that neither the type nor the family has."""
    for key, value in given.items():
        if key in more:
            continue
        if key not in (*ROPE, *ROPE_TYPES[kind], *ROPE_HARMLESS) and value is not None:
            keys.fail(f"{name} has {printed(key)} {shown(value)}, which does not apply to the rope_type {kind}")


def check_gguf(keys: Keys, names: Iterable[str], architecture: str, read: Collection[str] = ()) -> None:
    """Refuse a key of a GGUF file that may change the network and is not read.

    Parameters
    ----------
    keys : Keys
        Numbers and strings of the file.
    names : iterable of str
        All keys of the file.
    read : collection of str
        Keys that the architecture reads, beyond those of every one.

    Raises
    ------
    ValueError
        It names the key and its value.
    """
    for name in names:
        key = name.removeprefix(f"{architecture}.")
        value = keys.found.get(name)
        if key in GGUF_READ and value is None and key not in GGUF_LISTS:
            keys.fail(f"{printed(name)} is a list, expected one number")
        if (
            key == name or key in GGUF_READ or key in GGUF_HARMLESS or (key in read and value is not None)
        ):  # llama.cpp ignores keys of other architectures
            continue
        if key in GGUF_ANOTHER and value is not None and value == keys.found.get(f"{architecture}.{GGUF_ANOTHER[key]}"):
            continue
        if not _among(_number(value), GGUF_NEUTRAL.get(key, ())):
            what = "a list" if value is None else shown(value)
            keys.fail(f"{printed(name)} is {what}, which is not read and may change the network")


def printed(key: str) -> str:
    return key if re.fullmatch(r"[\w.-]{1,80}", key) else quoted(key)


def _among(value: object, neutral: Collection[Any]) -> bool:
    """Tell whether a value is one of some, where True is not 1."""
    return any(type(value) is type(one) and value == one for one in neutral) or (
        type(value) is float and value in [one for one in neutral if type(one) is int]
    )


def _number(value: Any) -> Any:
    """Return the number of a key, whose booleans are texts."""
    try:
        return {"True": 1.0, "False": 0.0}.get(value, None) if value in ("True", "False") else float(value)
    except (TypeError, ValueError):
        return value
