"""Attention over latents: keys and values of all heads come from one vector per token, which alone is cached.

    c, r = norm(x A), rope(x R)             cached, (tokens, rank + rotary)
    s_h  = (q_h K_h) c + rope(p_h) r        K_h maps the plain part of a query to the space of latents
    y_h  = softmax(scale s_h) c V_h

The cache holds the first half of a token's vector as key and the second half as value, so that it needs no memory for
values of their own. DeepSeek-AI, "DeepSeek-V2", 2024 (arXiv 2405.04434), section 2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....families.sizes import Latent
from ....products.layers import rms_norm, rope
from ....products.layers.attention import attention
from ....products.matmul import matmul

if TYPE_CHECKING:
    from ..run import Run, Turns

FloatArray = np.ndarray[Any, np.dtype[np.float32]]


def attended(run: Run, i: int, part: dict[str, Any], x: FloatArray, turns: Turns) -> FloatArray:
    """Return the attention of a layer over states (batch, n, width), before its output matrix."""
    s, latent, (batch, n) = run.shape, run.shape.latent, x.shape[:2]
    assert latent is not None
    q = x
    if latent.query:
        q = rms_norm(run.product(x, part, "attn_q_a"), part["attn_q_a_norm.weight"], latent.epsilon)
    q = run.product(q, part, "attn_q_b" if latent.query else "attn_q").reshape(batch, n, s.heads, -1)
    both = run.product(x, part, "attn_kv_a_mqa")
    c = rms_norm(np.ascontiguousarray(both[..., : latent.keys]), part["attn_kv_a_norm.weight"], latent.epsilon)
    r = rope(np.ascontiguousarray(both[..., None, latent.keys :]), *turns, s.rope.pairs)[:, :, 0]
    turned = rope(np.ascontiguousarray(q[..., latent.plain :]), *turns, s.rope.pairs)
    keys, values = _maps(run, i, part, latent)
    rows = np.ascontiguousarray(q[..., : latent.plain].transpose(2, 0, 1, 3)).reshape(s.heads, batch * n, -1)
    mapped = matmul(rows, keys).reshape(s.heads, batch, n, -1).transpose(1, 0, 2, 3)
    queries = np.concatenate([mapped, turned.transpose(0, 2, 1, 3)], axis=-1)
    held = run.kept(i, np.concatenate([c, r], axis=-1))[:, None]
    y = attention(queries, held, held, True, s.scale)[..., : latent.keys]
    rows = np.ascontiguousarray(y.transpose(1, 0, 2, 3)).reshape(s.heads, batch * n, -1)
    found: FloatArray = matmul(rows, values).reshape(s.heads, batch, n, -1).transpose(1, 2, 0, 3)
    return np.ascontiguousarray(found).reshape(batch, n, -1)


def arguments_of(run: Run, i: int, part: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the C core's arguments for the latents of a layer, None in other families."""
    latent = run.shape.latent
    if latent is None:
        return None
    names = ("attn_q_a" if latent.query else "", "attn_q_b" if latent.query else "attn_q", "attn_kv_a_mqa")
    return (
        (latent.query, latent.keys, latent.plain, latent.rotary, latent.value), latent.epsilon,
        (part.get("attn_q_a_norm.weight") if latent.query else None, part["attn_kv_a_norm.weight"]),
        tuple(part.get(f"{name}.weight") for name in names), tuple(part.get(f"{name}.bias") for name in names),
        _maps(run, i, part, latent),
    )  # fmt: skip


def _maps(run: Run, i: int, part: dict[str, Any], latent: Latent) -> tuple[FloatArray, FloatArray]:
    """Return the matrices (heads, plain, rank) of queries and (heads, rank, value) of latents, made once."""
    found = run.maps.get(i)
    if found is None:
        if "attn_k_b.weight" in part:  # of GGUF
            keys, values = (np.asarray(part[f"attn_{one}_b.weight"], np.float32).swapaxes(1, 2) for one in "kv")
        else:
            both = np.asarray(part["attn_kv_b.weight"], np.float32).reshape(run.shape.heads, -1, latent.keys)
            keys, values = both[:, : latent.plain], both[:, latent.plain :].swapaxes(1, 2)
        found = np.ascontiguousarray(keys), np.ascontiguousarray(values)
        run.maps[i] = found
    return found
