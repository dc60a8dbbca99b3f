"""A chip's cost of one token of a language model: its matrices and the attention, by the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import Format, unrotated
from ..products.layers.turned import block_of

CONTEXT = 4096  # tokens before the decoded one, at most the model's context


def decoding(
    net: Any, chip: Any, changed: Mapping[str, Any], activations: Format | None, cache: Format | None, bits: float
) -> dict[str, Any]:
    """Return the columns that a study of a language model adds to a row for a chip.

    Parameters
    ----------
    net : LanguageModel
    chip : Device or str
    changed : mapping of str to QuantizedArray or ndarray
        Weights that differ from the stored ones.
    bits : float
        Per value of keys and values, with their scales.

    Returns
    -------
    dict
        ``tokens_per_s``: 1 / (sum of the rooflines of all matmuls and attentions) of one sequence after `CONTEXT`
        tokens. Each weight, key and value is read once, and the experts of one token alone. A cache with ``+had``
        rotates the queries, keys and values of the token, and its outputs. ``kv_bytes``: keys and values of these
        tokens.
    """
    from ..hardware.cost.pairing import format_columns  # 60 ms

    s, lookup = net.shape, "token_embd.weight" if "output.weight" in net.roles else None
    matrices, attentions, held, turned = [], [], 0.0, 0.0
    unknown = any(isinstance(one, np.ndarray) for one in changed.values())  # values of a function
    for role, name in net.roles.items():
        array = changed.get(name, net.weights[name])
        if (
            len(array.shape) < 2 or role.endswith(".bias") or role in (lookup, "position_embd.weight")
        ):  # rows of an embedding are looked up
            continue
        share = s.experts_used / s.experts if len(array.shape) == 3 else 1.0
        rows = round(math.prod(array.shape[:-1]) * share)
        matrices.append((rows, array.shape[-1], round(array.nbytes * share), getattr(array, "format", None)))
    for window in s.windows:
        seen = min(CONTEXT, s.context, CONTEXT if window is None else window)
        stored = 2 * math.prod(s.cached) * seen * bits / 8
        attentions.append((s.attended, seen, round(stored), unrotated(cache)))
        heads, width = s.cached
        turned += 2 * (s.heads + heads) * width * math.log2(block_of(cache, width, "study: kv_cache") or 1)
        held += stored
    times = [format_columns(chip, matrices, activations), format_columns(chip, attentions, None, turned)]
    total = (
        None if unknown or any(one["device_us"] is None for one in times) else sum(one["device_us"] for one in times)
    )
    return {"tokens_per_s": total and 1e6 / total, "kv_bytes": round(held)}
