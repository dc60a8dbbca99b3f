"""Attention with packed projections: `torch.nn.MultiheadAttention` multiplies by its weights itself.

PyTorch's fused paths of attention and of `torch.nn.TransformerEncoderLayer` read the weights of their layers. None of
them is taken where a weight is packed: a `PackedWeight` has ``__torch_function__``, which PyTorch asks for first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from .products import linear
from .weights import PackedWeight


class PackedMultiheadAttention(torch.nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with some or all projections packed. Returned by `convert`.

    Attributes
    ----------
    in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight : PackedWeight, torch.nn.Parameter or None
    out_proj : PackedLinear or torch.nn.Linear
    """

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: object = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, Any]:
        batched = query.dim() == 3
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = self._batch_first(query, key, value)
        q, k, v = (self._heads(one) for one in self._projected(query, key, value))
        mask = self._mask(attn_mask, key_padding_mask, q, k, need_weights, is_causal)
        k, v, mask = self._longer(k, v, mask)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            weights = torch.softmax(scores if mask is None else scores + mask, -1)
            y = functional.dropout(weights, dropout) @ v if dropout else weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            y = functional.scaled_dot_product_attention(q, k, v, mask, dropout)
        y = self.out_proj(y.transpose(1, 2).flatten(2))
        if not batched:
            return y[0], None if weights is None else weights[0]
        return (y if self.batch_first else y.transpose(0, 1)), weights

    def _batch_first(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """Return the inputs with the batch first; equal inputs stay one tensor."""
        turned = {id(one): one.transpose(0, 1) for one in (query, key, value)}
        return turned[id(query)], turned[id(key)], turned[id(value)]

    def _projected(self, query: object, key: object, value: object) -> list[Any]:
        """Return the three projections; for a single input, from one matmul."""
        bias, n = self.in_proj_bias, self.embed_dim
        biases = [None] * 3 if bias is None else list(bias.split(n))
        if not self._qkv_same_embed_dim:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            return [_times(*one) for one in zip((query, key, value), weights, biases, strict=True)]
        weight = self.in_proj_weight
        if query is key and key is value:
            return list(_times(query, weight, bias).split(n, -1))
        if not isinstance(weight, PackedWeight):
            return [_times(*one) for one in zip((query, key, value), weight.split(n), biases, strict=True)]
        # one packed weight: products with the rows that are not wanted are left out by slices, or dropped in a graph
        found = []
        for i, x in enumerate((query, key, value)):
            if torch.compiler.is_compiling() or not weight.format.splits_into_rows:
                found.append(linear(x, weight, bias).split(n, -1)[i])
            else:
                part: Any = weight[i * n : (i + 1) * n]
                found.append(linear(x, part, biases[i]))
        return found

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _mask(self, attn: Any, padding: Any, q: Any, k: Any, need_weights: bool, is_causal: bool) -> Any:
        """Return the mask to add to the scores, or None."""
        if is_causal and attn is None:
            raise RuntimeError("MultiheadAttention: is_causal is a hint, expected attn_mask with it")
        found = None
        for mask, shape in ((attn, None), (padding, (q.shape[0], 1, 1, k.shape[2]))):
            if mask is None:
                continue
            if mask.dtype is torch.bool:
                mask = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(mask, float("-inf"))
            if shape is None and mask.dim() == 3:
                mask = mask.unflatten(0, (q.shape[0], self.num_heads))
            mask = mask.to(q.dtype) if shape is None else mask.to(q.dtype).reshape(shape)
            found = mask if found is None else found + mask
        return found

    def _longer(self, k: Any, v: Any, mask: object) -> tuple[Any, Any, Any]:
        """Return keys, values and mask with the rows of `add_bias_kv` and `add_zero_attn`."""
        more = []
        if self.bias_k is not None:
            more.append((self._heads(self.bias_k), self._heads(self.bias_v)))
        if self.add_zero_attn:
            more.append((k.new_zeros(1, self.num_heads, 1, self.head_dim),) * 2)
        for key, value in more:
            size = (k.shape[0], -1, -1, -1)
            k, v = torch.cat([k, key.expand(size).to(k.dtype)], 2), torch.cat([v, value.expand(size).to(v.dtype)], 2)
            mask = None if mask is None else functional.pad(mask, (0, 1))
        return k, v, mask


def _times(x: object, weight: object, bias: object) -> Any:
    return linear(x, weight, bias) if isinstance(weight, PackedWeight) else functional.linear(x, weight, bias)
