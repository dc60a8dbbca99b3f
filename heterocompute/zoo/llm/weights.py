"""The weights of a language model by role: the tensor of each role in the file, as an operand of matmuls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.base import PackedArray
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue, printable
from ...base.float_env import converted
from ...base.texts import quoted
from ...families.kind import Kind
from ...families.record import HF_NAMES, LAYER, Family
from ...families.sizes import Latent
from ...products.quantize import quantize
from .memory import Memory
from .shape import Shape

QK_NORM = re.compile(r"\.attn_[qk]_norm\.")
QK_NORMS = (".attn_q_norm.", ".attn_k_norm.")
FUSED = ("attn_qkv", "ffn_gate_up")
FLOATS = ("float16", "bfloat16", "float32", "float64")
FORMATS = {"float16": "fp16", "bfloat16": "bf16"}  # exact, and half the memory of float32
FURTHER, MAX_FURTHER = "num_nextn_predict_layers", 64
# Constants that the network computes itself, the picture side of Gemma 3, heads of training, and scales of
# activations and caches that other programs quantize.
HARMLESS = re.compile(
    r".*\.(rotary_emb\.(inv_freq|cos_cached|sin_cached)|masked_bias|attn\.bias)"
    r"|(model\.)?(vision_tower|vision_model|multi_modal_projector)\..*|v_head\..*"
    r"|.*\.((k|q|v|kv)_scale|(input|output|activation)_(scale|zero_point|global_scale)|[kqv]_zero_point)"
)
# Of encoders also heads of tasks, which follow the states, and the pooler of classifiers.
OF_TASKS = re.compile(rf"{HARMLESS.pattern}|(.*\.)?(pooler|cls|lm_head|classifier|qa_outputs|head|decoder)\..*"
                      r"|(.*\.)?embeddings\.(position_ids|token_type_ids)")  # fmt: skip


class Stored(Mapping[str, Any]):
    """The tensors of a file by name, each read when it is first asked for, and kept.

    Parameters
    ----------
    path : str
    reads : mapping of str to callable
    source : object
        What the functions need to stay alive.
    """

    def __init__(self, path: str, reads: Mapping[str, Callable[[], Any]], source: object) -> None:
        self.path, self._reads, self._source = path, dict(reads), source
        self._held: dict[str, Any] = {}
        self._memory = Memory()

    def __getitem__(self, name: str) -> Any:
        found = self._held.get(name)
        if found is None:
            found = operand_of(self._reads[name]())
            if not isinstance(found, PackedArray) and found.dtype.name not in FLOATS:
                raise WrongValue(
                    f"{printable(self.path)}: tensor {quoted(name)} is {found.dtype.name}, expected {', '.join(FLOATS)}"
                )
            found = self._held[name] = self._memory.placed(found)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._reads

    def __iter__(self) -> Iterator[str]:
        return iter(self._reads)

    def __len__(self) -> int:
        return len(self._reads)


def operand_of(array: Any) -> Any:
    """Return a tensor as an operand of matmuls: 16-bit matrices packed, which is exact; vectors as float32."""
    if isinstance(array, PackedArray):
        return array
    if array.ndim >= 2 and array.dtype.name in FORMATS:
        return quantize(array, FORMATS[array.dtype.name], axis=-1)
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return converted(array, np.float32)
    return array


def embedding_rows(table: object, ids: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return rows of a table, which may be packed: only these rows are decoded.

    Parameters
    ----------
    table : ndarray or QuantizedArray
        (vocabulary, width).
    ids : ndarray of int64
        Any shape, each a row.

    Returns
    -------
    ndarray of float32, ids.shape + (width,)
    """
    if not isinstance(table, QuantizedArray) or not table.format.splits_into_rows:
        found: np.ndarray[Any, np.dtype[np.float32]] = np.asarray(table, np.float32)[ids]
        return found
    if ids.size == 1:
        row = int(ids.reshape(-1)[0])
        return np.asarray(table[row : row + 1].dequantize(), np.float32).reshape(*ids.shape, table.shape[1])
    used, place = np.unique(ids.reshape(-1), return_inverse=True)
    rows = np.empty((len(used), table.shape[1]), np.float32)
    for i, row in enumerate(used.tolist()):
        rows[i] = table[row : row + 1].dequantize()[0]
    return rows[place].reshape(*ids.shape, table.shape[1])


def as_held(shape: Shape, names: Mapping[str, Any]) -> Shape:
    """Return the shape of a GGUF file with what its tensors tell, and no key does."""
    for tensor, family in shape.options.marks.items():
        shape = replace(shape, family=family) if tensor in names else shape
    if shape.options.qk_norm_flag and "blk.0.attn_q_norm.weight" not in names:
        shape = replace(shape, qk_norm=False)
    return shape


def gguf_names(names: Mapping[str, Any], shape: Shape) -> dict[str, str]:
    """Return role -> name of the tensor in a GGUF file; the roles have the names of GGUF."""
    found = {name: name for name in names if shape.options.qk_norm or not QK_NORM.search(name)}
    for role, part in shape.options.gguf.items():
        for at in (f"blk.{i}." for i in range(shape.layers)):
            is_split = role == "ffn_gate_up" and f"{at}ffn_gate.weight" in found
            for end in ("weight", "bias") if not is_split else ():
                if f"{at}{part}.{end}" in found:
                    found[f"{at}{role}.{end}"] = found.pop(f"{at}{part}.{end}")
    return found


def hf_names(path: str, names: Mapping[str, Any], shape: Shape) -> dict[str, str]:
    """Return role -> name of the tensor in a Hugging Face checkpoint."""
    prefix = prefix_in(path, names, shape.options)
    head = shape.options.names.get("output", HF_NAMES["output"])
    inner = f"{prefix.removesuffix('model.')}{head}"
    wanted = wanted_names(shape, prefix, inner if f"{inner}.weight" in names else head)
    return {role: name for role, name in wanted.items() if name in names and _has(shape, role)}


def prefix_in(path: str, names: Iterable[str], family: Family) -> str:
    """Return the beginning of the names of a model's tensors in a Hugging Face checkpoint, such as ``model.``."""
    found = next((name for name in names if name.endswith(family.table)), None)
    if found is None:
        raise WrongValue(f"{printable(path)}: the tensor model.{family.table} is missing")
    return found.removesuffix(family.table)


def further_layers(prefix: str, shape: Shape, config: Mapping[str, Any], kind: Kind) -> tuple[str, ...]:
    """Return how the names of layers begin that only predict further tokens; transformers does not compute them."""
    count = config.get(FURTHER) if FURTHER in kind.reads else 0
    layers = range(shape.layers, shape.layers + (count if type(count) is int and 0 < count < MAX_FURTHER else 0))
    return tuple(f"{prefix}layers.{i}." for i in layers)


def _has(shape: Shape, role: str) -> bool:
    """Tell whether the family of a Hugging Face folder has a role."""
    part, _, end = role.removesuffix("_norm").rpartition(".")
    part = part.rpartition(".")[2]
    if QK_NORM.search(role):
        return bool(shape.options.qk_norm) and shape.qk_norm and end == "weight"
    if part in FUSED and part not in shape.options.fused:
        return False
    if role.removesuffix(".bias").endswith("_norm"):
        return end == "weight" or shape.options.norm_bias
    if part == "output":
        return end == "weight" or shape.options.output_bias
    if part in ("attn_q_a", "attn_kv_a_mqa"):
        part = "attn_output"  # one flag for all three
    return end == "weight" or shape.biases is None or part in shape.biases


def wanted_names(shape: Shape, prefix: str, head: str) -> dict[str, str]:
    """Return role -> name in a Hugging Face checkpoint, of every tensor that one may have.

    Parameters
    ----------
    prefix : str
        Of the names, such as ``"model."``.
    head : str
        The name of the last matrix, without ``.weight``.
    """
    family = shape.options
    norms = {*family.norms(shape.parallel), *(part.strip(".") for part in QK_NORMS)}
    roles = {role: part for role, part in {**LAYER, **family.layer}.items() if "_norm" not in role or role in norms}
    names = {**HF_NAMES, **family.names}
    layers = names.pop("layers")
    found = {f"{role}.{end}": f"{prefix}{part}.{end}" for role, part in names.items() for end in ("weight", "bias")}
    found |= {f"output.{end}": f"{head}.{end}" for end in ("weight", "bias")}
    for i in range(shape.layers):
        if family.sinks:
            found[f"blk.{i}.attn_sinks.weight"] = f"{prefix}{layers}.{i}.self_attn.sinks"
        for role, part in roles.items():
            for end in ("weight", "bias"):
                found[f"blk.{i}.{role}.{end}"] = f"{prefix}{layers}.{i}.{part}.{end}"
    return found


def expected(shape: Shape, roles: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """Return role -> shape of every tensor that the forward pass reads."""
    q, kv, width, family = shape.heads * shape.head_width, shape.kv_heads * shape.head_width, shape.width, shape.options
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (shape.vocabulary, width)}
    if family.token_types:
        found["token_types.weight"] = (shape.token_types, width)
    if family.learned_positions:
        found["position_embd.weight"] = (shape.context + family.position_offset, width)
    outer = {"output_norm": family.output_norm, "token_embd_norm": family.embedding_norm}
    found |= _norms(family, {name: width for name, has in outer.items() if has})
    if "output.weight" in roles:
        found["output.weight"] = (shape.vocabulary, width)
    if "output.bias" in roles and family.output_bias:
        found["output.bias"] = (shape.vocabulary,)
    head: dict[str, Any] = {"attn_q_norm": q, "attn_k_norm": kv} if family.qk_norm == "all" else {}
    if family.qk_norm == "apart":
        head = {f"attn_{name}_norm": (n, shape.head_width) for name, n in (("q", shape.heads), ("k", shape.kv_heads))}
    if family.qk_norm == "head":
        head = {"attn_q_norm": shape.head_width, "attn_k_norm": shape.head_width}
    if shape.latent is not None:
        head = {"attn_q_a_norm": shape.latent.query, "attn_kv_a_norm": shape.latent.keys}
    for i in range(shape.layers):
        at = f"blk.{i}."
        names = (name for name in family.norms(shape.parallel) if shape.qk_norm or f".{name}." not in QK_NORMS)
        names = (name for name in names if not (family.skips_first_norm and i == 0 and name == "attn_norm"))
        norms = {f"{at}{name}": head.get(name, width) for name in names if head.get(name, width)}
        found |= _norms(family, norms)
        if shape.latent is not None:
            found |= _latents(shape, shape.latent, roles, at)
        parts = (
            {"attn_qkv": q + 2 * kv} if f"{at}attn_qkv.weight" in roles else {"attn_q": q, "attn_k": kv, "attn_v": kv}
        )
        for part, rows in parts.items() if shape.latent is None else ():
            found[f"{at}{part}.weight"] = (rows, width)
        columns = q if shape.latent is None else shape.heads * shape.latent.value
        found[f"{at}attn_output.weight"] = (width, columns)
        if family.sinks:
            found[f"{at}attn_sinks.weight"] = (shape.heads,)
        for part, rows in {**parts, "attn_output": width}.items():
            if f"{at}{part}.bias" in roles:
                found[f"{at}{part}.bias"] = (rows,)
        if shape.experts and i not in shape.dense:
            found |= expected_experts(shape, roles, at)
            continue
        hidden = shape.hidden
        both = f"{at}ffn_gate_up.weight" in roles
        parts = {"ffn_gate_up": 2 * hidden} if both else {"ffn_gate": hidden, "ffn_up": hidden}
        parts = parts if family.is_gated else {"ffn_up": hidden}
        for part, rows in parts.items():
            found[f"{at}{part}.weight"] = (rows, width)
        found[f"{at}ffn_down.weight"] = (width, hidden)
        for part, rows in {**parts, "ffn_down": width}.items():
            if f"{at}{part}.bias" in roles:
                found[f"{at}{part}.bias"] = (rows,)
    return found


def _latents(shape: Shape, latent: Latent, roles: Mapping[str, str], at: str) -> dict[str, tuple[int, ...]]:
    """Return the matrices of attention over latents, and their biases."""
    queries, width = shape.heads * (latent.plain + latent.rotary), shape.width
    found: dict[str, tuple[int, ...]] = {f"{at}attn_kv_a_mqa.weight": (latent.keys + latent.rotary, width)}
    if f"{at}attn_k_b.weight" in roles:
        found |= {f"{at}attn_k_b.weight": (shape.heads, latent.keys, latent.plain),
                  f"{at}attn_v_b.weight": (shape.heads, latent.value, latent.keys)}  # fmt: skip
    else:
        found[f"{at}attn_kv_b.weight"] = (shape.heads * (latent.plain + latent.value), latent.keys)
    if latent.query:
        found |= {f"{at}attn_q_a.weight": (latent.query, width), f"{at}attn_q_b.weight": (queries, latent.query)}
    else:
        found[f"{at}attn_q.weight"] = (queries, width)
    biases = {name.replace(".weight", ".bias"): (size[0],) for name, size in found.items()}
    return {**found, **{name: size for name, size in biases.items() if name in roles}}


def _norms(family: Family, widths: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the tensors of some norms."""
    ends = ("weight", "bias") if family.norm_bias else ("weight",)
    sizes = {name: n if isinstance(n, tuple) else (n,) for name, n in widths.items()}
    return {f"{name}.{end}": size for name, size in sizes.items() for end in ends}


def expected_experts(shape: Shape, roles: Mapping[str, str], at: str) -> dict[str, tuple[int, ...]]:
    """Return role -> shape of the experts of a layer, whose roles begin with `at`."""
    hidden, shared, width, count = shape.expert_hidden, shape.shared_hidden, shape.width, shape.experts
    found: dict[str, tuple[int, ...]] = {f"{at}ffn_gate_inp.weight": (count, width)}
    both = f"{at}ffn_gate_up_exps.weight" in roles
    parts = {"ffn_gate_up": 2 * hidden} if both else {"ffn_gate": hidden, "ffn_up": hidden}
    for part, rows in parts.items():
        found[f"{at}{part}_exps.weight"] = (count, rows, width)
    found[f"{at}ffn_down_exps.weight"] = (count, width, hidden)
    for part, rows in {**parts, "ffn_down": width}.items():
        if f"{at}{part}_exps.bias" in roles:
            found[f"{at}{part}_exps.bias"] = (count, rows)
    if f"{at}ffn_gate_inp.bias" in roles:
        found[f"{at}ffn_gate_inp.bias"] = (count,)
    if shape.routing.is_corrected:
        found[f"{at}exp_probs_b.bias"] = (count,)
    if shared:
        found |= {f"{at}ffn_{part}_shexp.weight": (shared, width) for part in ("gate", "up")}
        found[f"{at}ffn_down_shexp.weight"] = (width, shared)
        for part, rows in {"gate": shared, "up": shared, "down": width}.items():
            if f"{at}ffn_{part}_shexp.bias" in roles:
                found[f"{at}ffn_{part}_shexp.bias"] = (rows,)
        if f"{at}ffn_gate_inp_shexp.weight" in roles:
            found[f"{at}ffn_gate_inp_shexp.weight"] = (1, width)
    return found
