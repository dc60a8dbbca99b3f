"""Tensors that are another program's codes and scales, not weights, recognized by names, dtypes and shapes.

`SIGNS` lists programs. Each has endings of names after one stem, and a kind of dtype for each ending: ``fc.weight`` of
float8 next to ``fc.scale_weight`` of float32 is FP8 of ComfyUI. `_unnamed` is the general rule: integers or float8 next
to scales of the same stem are codes, whatever their names. float8 without scales is a plain cast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

Shape = tuple[int, ...]
Tensors = Mapping[str, tuple[str, Shape]]  # NumPy's name of the dtype, shape

FLOATS = ("float16", "bfloat16", "float32", "float64")
BYTES = ("int8", "uint8")
LONGS = ("int64", "uint64")
WORDS = ("int16", "uint16", "int32", "uint32", *LONGS)
EIGHTS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
SCALE_EIGHTS = (*EIGHTS, "float8_e8m0fnu")
FOURS = ("float4_e2m1fn",)
KINDS = {
    "float": (*FLOATS, "float8_e8m0fnu"),
    "f8": SCALE_EIGHTS,
    "byte": BYTES,
    "word": WORDS,
    "int": (*BYTES, *WORDS),
    "code": (*BYTES, *WORDS, *EIGHTS, *FOURS),
    "scale": (*FLOATS, *SCALE_EIGHTS, *BYTES),
}


class Found(NamedTuple):
    """The program, by the name its users know, and the tensor that reveals it."""

    program: str
    name: str


# The program; ending:kind of each tensor with the same stem, "|" between alternative names. The first is searched.
SIGNS = (
    ("ModelOpt", "weight_scale_2:float weight_scale:scale weight:code"),
    ("ModelOpt", "pre_quant_scale:float weight_scale:scale weight:code"),
    ("ModelOpt", "weight_quantizer._scale|weight_quantizer._amax:scale weight:code"),
    ("TensorRT-LLM", "weights_scaling_factor:scale weight:code"),
    ("ComfyUI", "scale_weight:float weight:f8"),
    ("ComfyUI", "comfy_quant:byte weight:code"),
    ("fp8 in blocks", "weight_scale_inv:scale weight:code"),
    ("FBGEMM", "input_scale_ub:float weight:code"),
    ("fp8", "weight_scale:float weight:f8"),
    ("MXFP8", "weight_scale:byte weight:f8"),
    ("MXFP4", "weight_scale:byte weight:byte"),
    ("compressed-tensors", "weight_packed:code weight_scale:scale"),
    ("Quark", "weight_zero_point:int weight_scale:float weight:code"),
    ("HIGGS", "tables2:float scales:float weight:code"),
    ("MLX", "biases:float scales:float weight:word"),
    ("MLX", "scales:scale weight:word"),
    ("MLC", "q_scale:float q_weight:word"),
    ("quanto", "_scale:float _data:code"),
    ("quanto", "_scale:float _data._data:code"),
    ("HQQ", "W_q:code scale:scale"),
    ("HQQ", "W_q:code meta.scale:scale"),
    ("HQQ", "W_q:code scale_q:code"),
    ("torchao", "weight_qdata:code weight_scale|weight__scale|weight_scales:scale"),
    ("torchao", "weight_qdata:code weight_block_scale|weight_scale_and_zero:scale"),
    ("torchao", "_weight_qdata:code _scale:scale"),
    ("torchao", "qdata:code scale|_scale|scale_and_zero:scale"),
    ("torchao", "tensor_impl.int_data:code tensor_impl.scale:float"),
    ("torchao", "int_data:code scale:float"),
    ("gpt-oss (MXFP4)", "_blocks:byte _scales:scale"),
    ("EETQ", "weight_scales:float weight:byte"),
    ("BitNet, Quark or another", "weight_scale:float weight:byte"),
    ("bitsandbytes", "weight.quant_map:float weight:code"),
    ("bitsandbytes", "weight.absmax:any weight:code"),
    ("bitsandbytes", "SCB|weight.SCB|scb:float weight:byte"),
    ("SpQR", "dense_weights:int row_offsets:int"),
    ("AQLM", "codebooks:float codes:int"),
    ("QuIP#", "Qidxs:int"),
    ("QTIP or EXL3", "trellis:word"),
    ("EXL2", "q_weight:word q_scale:int"),
    ("VPTQ", "indices:int centroids.weight:float"),
    ("SVDQuant", "wscales|wcscales|wtscale:any qweight:code"),
    ("SVDQuant", "svd_up:any svd_down:any scale:any weight:code"),
    ("GPTQ or AWQ", "qweight:code scales:scale"),
    ("GPTQ or AWQ", "qzeros:int qweight:code"),
    ("Marlin", "B:word s:float"),
    ("torch-int", "a:float weight:byte"),
    ("DFloat11", "encoded_exponent:byte sign_mantissa:byte"),
)
# A tensor that shows by itself that all tensors are another program's, and its dtypes.
MARKERS = {"scaled_fp8": ("ComfyUI", SCALE_EIGHTS)}

SCALE_WORDS = frozenset(
    "scale scales scaling scb absmax amax absmean qscale qscales wscale wscales dscale descale descales sc "
    "multiplier".split()
)
# Words for the weight itself, and words that programs put before or after its name for its codes or its scales.
OWN_WORDS = frozenset(
    "weight weights w kernel q wq qw qweight qweights quantized quant dequant deq packed data qdata blocks block codes "
    "code int int4 int8 repr uint8 fp8 fp4 nf4 inv factor factors quantizer fake group per row channel value values "
    "tensor impl and zero 2 s".split()
)
# Floats of a layer that are not scales.
NO_SCALES = frozenset("bias biases mean var beta norm zero zeros offset shift".split())
# Integers that a layer stores for itself: positions, masks, tables of indices, counters.
NO_CODES = re.compile(
    r"ids?$|idxs?$|tokens?$|index|indices|mask|position|tracked|length|count|step|bias|bucket|perm|order|offset|g_idx"
    r"|vocab|shape|size|seed|(?:^|[._])zeros?(?:$|[._])|zero_points?$|zeros$|model$"
)
MOST_NEAR = 4  # codes of a module with which scales are compared
PARTS = re.compile(r"[^._/:]+")


def is_codes(name: str, dtype: str, shape: Shape) -> bool:
    """Tell whether a tensor may be codes of weights: integers or float8, but not positions, masks or counters."""
    last = _last(_unnumbered(name))
    stored = dtype in KINDS["code"] and (dtype not in LONGS or OWN_WORDS.issuperset(_words(last)))  # indices of torch
    return stored and math.prod(shape) > 1 and len(shape) > 0 and not NO_CODES.search(last)


def program_in(tensors: Tensors) -> Found | None:
    """Return the program whose codes and scales are among some tensors, or None if all may be weights.

    Parameters
    ----------
    tensors : mapping of str to (str, tuple of int)
        Name -> dtype and shape, without the components of packed arrays of this package.

    Examples
    --------
    >>> program_in({"fc.weight": ("float8_e4m3fn", (8, 8)), "fc.scale_weight": ("float32", ())})
    Found(program='ComfyUI', name='fc.scale_weight')
    >>> program_in({"fc.weight": ("float8_e4m3fn", (8, 8)), "norm.scale": ("float32", (8,))})
    """
    best = len(SIGNS), Found("", "")
    for name, (dtype, _) in tensors.items():
        if (marked := MARKERS.get(_last(name))) and dtype in marked[1]:
            return Found(marked[0], name)
        for rank, own, others in _LOOKED_FOR.get(_key(name), ()):
            stem = _stem(name, own, dtype) if rank < best[0] else None
            if stem is not None and all(_has(tensors, stem, other) for other in others):
                best = rank, Found(SIGNS[rank][0], name)
    return best[1] if best[0] < len(SIGNS) else next(_unnamed(tensors), None)


class _Part(NamedTuple):
    ending: str
    dtypes: tuple[str, ...] | None


def _parsed(text: str) -> list[list[_Part]]:
    """Return the parts of an entry of the table, each with its possible names."""
    pairs = (word.split(":") for word in text.split())
    return [[_Part(ending, KINDS.get(kind)) for ending in endings.split("|")] for endings, kind in pairs]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _unnumbered(name: str) -> str:
    """Return a name without the numbers that lists in modules append: ``fc.scale`` of ``fc.scale.0``."""
    return re.sub(r"(?<=.)(?:\.\d+)+$", "", name) if name[-1:].isdigit() else name


@lru_cache(1 << 12)
def _words(last: str) -> tuple[str, ...]:
    """Return the words of the last part of a name; a capital inside starts a new word: ``wScale`` is two."""
    return tuple(word.lower() for word in PARTS.findall(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last)))


def _key(ending: str) -> str:
    """Return the key of the table: the last word of the last part of a name."""
    return (_words(_last(ending)) or ("",))[-1]


# By the last word of the first name: its rank in the table, that name, the other names.
_LOOKED_FOR: dict[str, list[tuple[int, _Part, list[list[_Part]]]]] = {}
for _rank, (_, _text) in enumerate(SIGNS):
    _first, *_others = _parsed(_text)
    for _own in _first:
        _LOOKED_FOR.setdefault(_key(_own.ending), []).append((_rank, _own, _others))


def _stem(name: str, part: _Part, dtype: str) -> str | None:
    """Return a name without this end; None if it has another end or another dtype."""
    if not name.endswith(part.ending) or (part.dtypes is not None and dtype not in part.dtypes):
        return None
    stem = name[: len(name) - len(part.ending)]
    return stem if not stem or stem[-1] in "._/:" or part.ending[0] == "_" else None


def _has(tensors: Tensors, stem: str, names: list[_Part]) -> bool:
    found = ((tensors.get(f"{stem}{part.ending}"), part.dtypes) for part in names)
    return any(info is not None and (dtypes is None or info[0] in dtypes) for info, dtypes in found)


class _Codes(NamedTuple):
    name: str
    dtype: str
    shape: Shape
    own: frozenset[str]  # words of the name that are not in OWN_WORDS


def _near(tensors: Tensors) -> dict[tuple[str, frozenset[str] | None], list[_Codes]]:
    """Return a few codes of each module: by the module and their own words, and by the module alone."""
    near: dict[tuple[str, frozenset[str] | None], list[_Codes]] = {}
    for name, (dtype, shape) in tensors.items():
        if is_codes(name, dtype, shape):
            stem = _unnumbered(name)
            codes = _Codes(name, dtype, shape, frozenset(_words(_last(stem))) - OWN_WORDS)
            for place in (stem, stem.rpartition(".")[0]):  # scales may be called NAME.scale
                for key in ((place, codes.own), (place, None)):
                    if len(found := near.setdefault(key, [])) < MOST_NEAR:
                        found.append(codes)
    return near


def _unnamed(tensors: Tensors) -> Iterator[Found]:
    """Yield codes of programs that are not in the table, found by scales next to them with the same stem."""
    near = _near(tensors)
    if not near:
        return
    for name, (dtype, shape) in tensors.items():
        if dtype not in KINDS["scale"]:
            continue
        place = stem = _unnumbered(name)
        words = frozenset(_words(_last(stem)))
        theirs = words - OWN_WORDS - SCALE_WORDS
        for _ in range(3):  # a quantizer inside the weight's module may hold the scales, so go up to three modules
            if not place:
                break
            place = place.rpartition(".")[0]
            between = stem[len(place) :].strip(".").rpartition(".")[0]
            keys = [(place, frozenset[str]()), (place, theirs or None)]
            for codes in (one for key in keys for one in near.get(key, ())):
                if codes.name != name and _go_together(codes, words, theirs, dtype, shape, between):
                    yield Found("another program", name)
                    return


def _go_together(
    codes: _Codes, words: frozenset[str], theirs: frozenset[str], dtype: str, shape: Shape, between: str
) -> bool:
    """Tell whether a tensor is the scales of some codes: dtypes, words of the names, and shapes.

    `words` are the words of the scales' name, `theirs` those that say more than that they are scales; `between` are
    the modules from the codes' module down to the scales.
    """
    most = math.prod(shape)
    if most >= math.prod(codes.shape) or (dtype in BYTES and codes.dtype not in (*BYTES, *EIGHTS)):
        return False
    named = not words.isdisjoint(SCALE_WORDS)
    if not codes.own and codes.dtype not in EIGHTS and len(codes.shape) > 1 and dtype not in BYTES:
        # integers called `weight` are codes: any floats of the right shape are scales, with any name
        known = named or (not between and "." in codes.name)
        return known and words.isdisjoint(NO_SCALES) and _fits(codes.shape, shape)
    inner = not between or "quant" in between or between in ("meta", "tensor_impl")
    if not named or not inner or (theirs and codes.own != theirs):
        return False
    if dtype == codes.dtype and dtype in EIGHTS:  # a model that was cast as a whole, including its parameter `scale`
        return False
    if codes.own and not theirs:  # next to something else that has integers
        return "." in codes.name and most > 1 and _fits(codes.shape, shape)
    if dtype in BYTES or len(codes.shape) < 2:  # bytes that are not codes, such as a file in a tensor, are common
        return bool(codes.own) or (most > 1 and shape[:1] == codes.shape[:1])
    return bool(codes.own) or _fits(codes.shape, shape)


def _fits(shape: Shape, scales: Shape) -> bool:
    """Tell whether these may be scales of rows, columns or blocks: one size equals that of the codes, or divides it."""
    sizes = [n for n in scales if n > 1]
    return (
        not sizes
        or any(n in shape for n in sizes)
        or (len(scales) == len(shape) and all(n <= m for n, m in zip(scales, shape, strict=True)))
    )
