"""A small transformer that predicts characters, for comparisons of recipes."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


class Block(torch.nn.Module):
    """Attention and a feed-forward network, each after a norm, with residuals.

    Parameters
    ----------
    width, heads : int
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class CharacterModel(torch.nn.Module):
    """A decoder of characters.

    Parameters
    ----------
    alphabet : int
        Number of characters.
    width, layers, heads, context : int, optional
    seed : int, optional
        Seed of the first weights.

    Examples
    --------
    >>> CharacterModel(50, width=32)(torch.zeros(1, 8, dtype=torch.int64)).shape  # doctest: +SKIP
    torch.Size([1, 8, 50])
    """

    def __init__(
        self, alphabet: int, width: int = 64, layers: int = 2, heads: int = 4, context: int = 64, seed: int = 0
    ) -> None:
        super().__init__()
        state = torch.random.get_rng_state()
        torch.manual_seed(seed)
        self.table, self.places = torch.nn.Embedding(alphabet, width), torch.nn.Embedding(context, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, alphabet)
        torch.random.set_rng_state(state)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids) + self.places.weight[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))
