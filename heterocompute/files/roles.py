"""Roles of the tensors of a model: which axes its matmuls sum over, and which tensors are no matrices.

A file of weights does not say how they are used. Its configuration does: `TABLE` has the weights of each model type of
Hugging Face that are not stored as (out, in), and the names of biases, norms, positions and routers are the same in
most models. The metadata of TensorFlow and Flax files state that kernels are stored as (..., in, out).

    Linear            (out, in)              Conv1D of transformers       (in, out)
    convolution       (out, in, ...)         transposed convolution       (in, out, ...)
    stack of experts  (experts, out, in)     in GPT-OSS, Llama 4, Aria    (experts, in, out)
    Keras and Flax    (..., in, out)
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.json_text import strict_json
from ..base.tensors import Tensors
from ..base.texts import read_small
from ..families.table import KINDS
from .companions import CONFIG

Axes = tuple[int, ...]
Shapes = Mapping[str, Sequence[int]]

MAX_CONFIG = 1 << 24
LONGEST_FILTER = 31  # of signals; a longer last axis belongs to a stack of matrices

# Model types with `Conv1D` of transformers, whose weights are (in, out).
CONV1D = r"(^|\.)(c_attn|q_attn|c_proj|c_fc)(\.base_layer)?\.weight$"
# Parts of the experts: inputs of the first are the hidden states, outputs of the second.
EXPERTS = r"experts?|moe|parallel_experts"
FIRST = r"(gate|up|gate_up|gate_and_up|w1|w3|v1|w13|fc1|wi|wi_\d|input_linear|in)(_projs?)?(_weight|\.weight)?$"
LAST = r"(down|w2|fc2|wo|output_linear|out)(_projs?)?(_weight|\.weight)?$"
STACK = rf"\.({EXPERTS})\.(\w+\.)*({FIRST[:-1]}|{LAST[:-1]})$"
# Modules of transposed convolutions, whose filters are (in, out, ...).
TURNED_FILTER = (
    r"(^|\.)(convtr|conv_t\d*|convt_\w+|conv_?transpose\w*|upsampler(\.\d+)?|upscale_conv\d+|compress_vit_conv\d+|"
    r"mask_decoder\.encoder_conv\d+|scale_layers\.\d+|fpn1\.(0|3)|fpn2\.0|transposed_conv\w*)"
    r"(\.parametrizations)?\.weight(\.original1|_v)?$"
)

# Model types whose stacks of experts are stored either way: the shapes tell.
EITHER = ("qwen3_vl_moe", "qwen3_vl_moe_text")

# Model type -> the weights that are not summed along the usual axes, and these axes. The first match counts.
TURNED = {"conv1d": ((CONV1D, (0,)),), "experts": ((STACK, (1,)),)}
TABLE: Mapping[str, tuple[tuple[str, Axes], ...]] = {
    **{name: TURNED[kind.turned] for name, (_, kind) in KINDS.items() if kind.turned},
    **dict.fromkeys(("openai-gpt", "imagegpt", "decision_transformer", "clvp", "clvp_decoder", "gpt-sw3"),
                    TURNED["conv1d"]),
    **dict.fromkeys(("llama4", "llama4_text", "aria", "aria_text", "openai_privacy_filter"), TURNED["experts"]),
    "dbrx": ((r"\.experts\.mlp\.w2$", (0,)),),
    "convbert": ((r"\.(intermediate|output)\.dense\.weight$", (1,)),),  # groups, if it has three dimensions
    "csm_depth_decoder_model": ((r"codebooks_head\.weight$", (1,)),),
    "funnel": ((r"\.r_kernel$", (0,)),),
    "recurrent_gemma": ((r"\.rg_lru\.(input|recurrent)_gate_weight$", (1,)),),
    "xclip": ((r"(^|\.)prompts_visual_projection$", (0,)),),
    "xlnet": ((r"\.rel_attn\.[qkvr]$", (0,)), (r"\.rel_attn\.o$", (1, 2))),
    **dict.fromkeys(("mimi", "csm", "mimi_decoder", "pocket_tts_audio_tokenizer", "pocket_tts_audio_tokenizer_decoder"),
                    ((r"(^|\.)upsample\.conv\.weight$", (2, 0)), (r"codebooks_head\.weight$", (1,)))),
    "depth_pro": ((r"\.(scaled_images|intermediate)\.\d+\.layers\.[1-9]\d*\.weight$", (2, 3, 0)),
                  (r"\.image_block\.layers\.\d+\.weight$", (2, 3, 0))),
    **dict.fromkeys(("gemma3", "t5gemma2", "t5gemma2_encoder"), ((r"\.mm_input_projection_weight$", (0,)),)),
}  # fmt: skip

BIAS = re.compile(r"(^|[./])(\w+_)?(bias|biases)(_[a-z]|_[a-z]{2}_l\d+(_reverse)?)?(:0)?$", re.IGNORECASE)
# Parameters that are no matrices, by the last part of their names.
PARAMETERS = re.compile(
    r"(^|\.)(\w*(token|emb|latent|query|probe|prompt|scale|gamma|position|rel_pos|newline|extensor|pointer|sink)\w*|"
    r"\w*pos_\w*|time_mix_\w+|\w*_decay|slope_rate|A_log|D|alpha|beta|fn|hc_fn|b[12]|base|codevectors|pad_(up|down|left|right)|translate|"
    r"original0|weight_g|\w*_factor|lora_magnitude\w*|(rel_logits_proj|relative_position_bias)\.proj)$"
)
NORM = re.compile(r"(^|\.)(\w*norm\w*|ln\w*|ln_\w+|bn\d*|grn)\.(weight|scale|gamma|beta)$", re.IGNORECASE)
POSITIONS = re.compile(
    r"(^|\.)(\w*(position(al)?|pos)_?(emb\w*|encodings?|bias)|wpe|positions_embed|pos_embed\w*|\w*embed_positions\w*|"
    r"relative_attention_bias|relative_position_\w+|\w*relative_embeddings?|distance_embedding|rel_embeddings|"
    r"relative_attention_bias_layer\.bias_values)(\.embedding|\.emb)?\.weight$"
)
ROUTER = re.compile(r"(^|\.)(router|shared_expert_gate|gate_inp)(\.\w+)*\.weight(_1)?$|(^|\.)router(\.\w+)?$")
GATE = re.compile(r"^(?P<block>.*?)\.?(text_moe\.|vision_moe\.)?(gate|gating|wg|gate\.wg)\.weight(_1)?$")

# Parts of a model that loaders of other programs expect as plain values, in the order in which they are tried.
PARTS = {
    "vision tower": re.compile(
        r"(^|\.)(vision\w*|visual\w*|image_\w+|audio\w*|speech\w*|multi_modal_projector|mm_projector|embed_(vision|audio))\."
    ),
    "router": ROUTER,
    "output layer": re.compile(r"(^|\.)(lm_head|embed_out|output_layer|predictions\.decoder)\.weight$"
                               r"|^(score|qa_outputs|classifier(\.\w+)?)\.weight$"),
    "embedding": re.compile(r"(^|\.)(\w*embed\w*|wte|wpe)\.weight$"),
}  # fmt: skip


@dataclass(frozen=True)
class Roles:
    """The use of tensors that is known without a guess.

    Attributes
    ----------
    axes : mapping of str to tuple of int
        Reduction axes.
    plain : frozenset of str
        Tensors that are no matrices: biases, norms, positions, routers and further parameters.
    is_told : bool
        Whether a configuration or the file describes the model, so that the usual axes hold for all other tensors.
    """

    axes: Mapping[str, Axes] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()
    is_told: bool = False


NOTHING = Roles()


def is_bias(name: str) -> bool:
    """Tell whether a tensor is a bias, which no matmul multiplies by, whatever its shape.

    Examples
    --------
    >>> is_bias("experts.gate_up_proj_bias"), is_bias("fc.bias"), is_bias("relative_attention_bias.weight")
    (True, True, False)
    """
    return BIAS.search(name) is not None


def roles_of(reader: Tensors, shapes: Shapes | None = None) -> Roles:
    """Return the roles of the tensors of a checkpoint, by its own statements or the configuration next to it.

    Parameters
    ----------
    shapes : mapping of str to sequence of int, optional
        Of the arrays that are asked about. Default: those of the tensors of the file.
    """
    if shapes is None:
        shapes = {name: reader.info(name).shape for name in reader.names}
    if reader.axes or not reader.is_configured:
        return Roles(dict(reader.axes), is_told=True)
    if reader.metadata.get("format") in ("tf", "flax", "keras", "jax"):
        return Roles(_kernels(shapes), frozenset(filter(is_bias, shapes)), True)
    return roles_in(_config_beside(reader.path), shapes)


def roles_in(config: Mapping[str, Any], shapes: Shapes) -> Roles:
    """Return the roles of tensors by the configuration of their model.

    Parameters
    ----------
    config : mapping
        The content of config.json.

    Returns
    -------
    Roles
        `NOTHING` if the configuration does not describe a model.

    Examples
    --------
    >>> shapes = {"h.0.attn.c_attn.weight": (64, 192), "wpe.weight": (128, 64), "wte.weight": (999, 64)}
    >>> found = roles_in({"model_type": "gpt2"}, shapes)
    >>> found.axes, sorted(found.plain)
    ({'h.0.attn.c_attn.weight': (0,)}, ['wpe.weight'])
    """
    declared = list(_objects(config))
    types = [kind for one in declared if isinstance(kind := one.get("model_type"), str)]
    if not types and not isinstance(config.get("architectures"), list):
        return NOTHING
    entries = [(re.compile(pattern), axes) for kind in dict.fromkeys(types) for pattern, axes in TABLE.get(kind, ())]
    if any(one.get("attention_type") == "factorized" for one in declared):
        entries = [(pattern, (2,) if "r_kernel" in pattern.pattern else axes) for pattern, axes in entries]
    if _is_linear(shapes):
        entries = [entry for entry in entries if entry[0].pattern != CONV1D]
    plain = frozenset(name for name, shape in shapes.items() if len(shape) > 1 and _is_plain(name, shape, shapes))
    axes = {}
    for name, shape in shapes.items():
        if len(shape) < 2 or name in plain:
            continue
        found = next((some for pattern, some in entries if pattern.search(name) and max(some) < len(shape)), None)
        if found is not None and not (found == (1,) and len(shape) == 2):
            axes[name] = found
        elif (usual := _filter(name, shape, shapes)) is not None:
            axes[name] = usual
    return Roles(axes | _stacks(declared, shapes, axes), plain, True)


def parts_of(names: Iterable[str], parts: Collection[str]) -> dict[str, str]:
    """Return the tensors that belong to some parts of a model, and the name of the part.

    A model that is a vision tower alone has no such part.

    Examples
    --------
    >>> names = ["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "visual.proj.weight"]
    >>> parts_of(names, PARTS)
    {'model.embed_tokens.weight': 'embedding', 'visual.proj.weight': 'vision tower'}
    """
    names = list(names)
    found = {
        name: part
        for name in names
        if (part := next((part for part, fits in PARTS.items() if part in parts and fits.search(name)), None))
    }
    if "router" in parts:
        found = {name: "router" for name in names if name not in found and _is_gate(name, names)} | found
    if len(found) == len(names):
        found = {name: part for name, part in found.items() if part != "vision tower"}
    return found


def roles_from(weights: object) -> Roles:
    """Return what a mapping of weights states: the roles of a checkpoint, or the axes of a network's weights."""
    found = getattr(weights, "roles", None)
    if isinstance(found, Roles):
        return found
    axes = getattr(weights, "axes", None)
    return Roles(dict(axes), is_told=True) if isinstance(axes, Mapping) and axes else NOTHING


def turned_in(reader: Tensors, names: Iterable[str]) -> list[str]:
    """Return the names of weights that the model stores as matrices (in, out), for a file in another program's layout.

    The shapes are not known yet, so only `TABLE` decides.
    """
    if not reader.is_configured:
        return []
    roles = roles_in(_config_beside(reader.path), dict.fromkeys(names, (2, 2)))
    return [name for name, axes in roles.axes.items() if axes == (0,)]


def is_turned(axes: Axes | None, shape: Sequence[int]) -> bool:
    """Tell whether axes are those of a matrix (in, out), or of a stack of such matrices."""
    return axes is not None and len(shape) in (2, 3) and tuple(axes) == (len(shape) - 2,)


def _is_linear(shapes: Shapes) -> bool:
    """Tell whether fused projections of a GPT-2 are stored as (3 out, in), as by programs without `Conv1D`."""
    fused = [shape for name, shape in shapes.items() if name.endswith("c_attn.weight") and len(shape) == 2]
    return any(shape[0] == 3 * shape[1] for shape in fused)


def _is_gate(name: str, names: Iterable[str]) -> bool:
    """Tell whether a tensor is the router of a block with experts, by the names of the tensors next to it."""
    gate = GATE.match(name)
    return gate is not None and any(".experts." in one and one.startswith(f"{gate['block']}.") for one in names)


def _is_plain(name: str, shape: Sequence[int], shapes: Shapes) -> bool:
    """Tell whether a tensor of a model with a configuration is no matrix."""
    if any(pattern.search(name) for pattern in (BIAS, NORM, POSITIONS, ROUTER)):
        return True
    if _is_gate(name, shapes):
        return True
    if not name.endswith(".weight"):
        return PARAMETERS.search(name) is not None or sum(size != 1 for size in shape) < 2
    return False


def _filter(name: str, shape: Sequence[int], shapes: Shapes) -> Axes | None:
    """Return the axes of the filters of a convolution, if the usual ones do not hold."""
    count = len(shape)
    if count < 3 or (count == 3 and not _is_signal_filter(name, shape)):
        return None
    taps = tuple(range(2, count))
    bias = shapes.get(re.sub(r"(\.parametrizations)?\.weight(\.original1|_v)?$", ".bias", name), ())
    is_told = name.endswith(("weight", "weight.original1", "weight_v")) and len(bias) == 1 and shape[0] != shape[1]
    if re.search(TURNED_FILTER, name) or (is_told and bias[0] == shape[1]):
        return (*taps, 0)
    return (*taps, 1)


def _is_signal_filter(name: str, shape: Sequence[int]) -> bool:
    if re.search(rf"(^|\.)({EXPERTS})(\.|$)", name):
        return False
    return "conv" in name.lower() or shape[2] <= LONGEST_FILTER


def _stacks(declared: Sequence[Mapping[str, Any]], shapes: Shapes, known: Mapping[str, Axes]) -> dict[str, Axes]:
    """Return the axes of stacks of experts (experts, out, in) or (experts, in, out).

    One side of each matrix has the size of the hidden states. If the sizes of the first and of the last matrices of the
    experts agree, they decide. Otherwise `TABLE` does.
    """
    keys = ("hidden_size", "d_model", "n_embd", "dim")
    sizes = {one[key] for one in declared for key in keys if type(one.get(key)) is int}
    stacks = [name for name, shape in shapes.items() if len(shape) == 3 and re.search(STACK, f".{name}")]
    votes: dict[bool, set[Axes]] = {}
    for name in stacks:
        rows, columns = (size in sizes for size in shapes[name][1:])
        is_last = re.search(rf"[._]{LAST}", f".{name}") is not None
        if rows != columns:
            votes.setdefault(is_last, set()).add((2,) if rows == is_last else (1,))
    found = set().union(*votes.values())
    is_either = any(one.get("model_type") in EITHER for one in declared)
    decided = next(iter(found)) if len(found) == 1 and (len(votes) == 2 or is_either) else None
    return {name: decided or known.get(name, (2,)) for name in stacks}


def _kernels(shapes: Shapes) -> dict[str, Axes]:
    """Return the axes of the kernels of Keras and Flax: all but those of the outputs, the channels last."""
    axes: dict[str, Axes] = {}
    for name, shape in shapes.items():
        own = name.removesuffix(":0").replace(".", "/")
        count = len(shape)
        if count < 2 or not own.endswith("kernel"):
            continue
        if own.endswith("depthwise_kernel"):
            axes[name] = tuple(range(count - 2))
        elif count == 3 and re.search(r"(query|key|value)/kernel$", own):
            axes[name] = (0,)
        else:
            axes[name] = tuple(range(count - 1))
    return axes


def _objects(config: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield a configuration and the objects in it, such as text_config."""
    yield config
    for value in config.values():
        if isinstance(value, Mapping) and depth < 4:
            yield from _objects(value, depth + 1)


def _config_beside(path: str) -> Mapping[str, Any]:
    """Return the config.json in the folder of a file, empty if there is none that can be read."""
    try:
        found = strict_json(read_small(os.path.join(os.path.dirname(path), CONFIG), MAX_CONFIG))
    except (OSError, ValueError, ImportError):
        return {}
    return found if isinstance(found, Mapping) else {}
