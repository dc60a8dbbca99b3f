"""The weights of a network that reads tokens, by their roles: what language models and encoders share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.cached import cached
from ...base.errors import WrongType, WrongValue, shown
from ...base.float_env import counts_subnormals
from ...base.lazy import renamed
from ...base.notebooks.shown import Shown, facts_html
from ...base.progress import Progress, Steps
from ...base.texts import counted, quoted
from ...products.arguments import as_format
from ...products.quantize import quantize
from .memory import Memory
from .shape import Rope, Shape
from .tokens import Tokens
from .weights import expected

Array = np.ndarray[Any, Any]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]

TABLES = ("token_embd", "output", "position_embd", "token_types")


class Model(Shown):
    """A network that reads tokens: its weights, its shape and its tokens.

    Attributes
    ----------
    path : str
    weights : mapping of str to QuantizedArray or ndarray
    shape : Shape
    tokenizer : Tokens
    """

    def __init__(
        self, path: str, weights: Mapping[str, Any], shape: Shape, roles: Mapping[str, str], tokenizer: Tokens,
        plus_one: bool = False, factors: FloatArray | None = None,
    ) -> None:  # fmt: skip
        self.path, self.weights, self.shape, self.tokenizer = path, weights, shape, tokenizer
        self._roles, self._plus_one, self._factors = dict(roles), plus_one, factors
        self._expected = expected(shape, roles)

    def _repr_html_(self) -> str:
        s = self.shape
        facts = {
            "family": s.family, "file": self.path, "layers": s.layers, "width": s.width, "vocabulary": s.vocabulary,
            "context": s.context, "weights": counted(len(self.roles), "tensor"),
        }  # fmt: skip
        return facts_html(facts)

    @property
    def tokens(self) -> NoReturn:
        """Raise AttributeError: the name of today is `tokenizer`."""
        raise AttributeError("tokens of a network is named tokenizer: net.tokenizer")

    @property
    def roles(self) -> dict[str, str]:
        """Return the tensor names by role, such as ``blk.3.attn_q.weight``. Roles are the names of GGUF."""
        return {role: name for role, name in self._roles.items() if role in self._expected}

    @property
    def matrices(self) -> list[str]:
        """Return the names of the matmul weights, including the embedding."""
        roles = (one for one, shape in self._expected.items() if len(shape) > 1)
        return [self._roles[one] for one in roles if one.endswith(".weight") and not one.endswith("_norm.weight")]

    @property
    def tables(self) -> list[str]:
        """Return the names of the embedding and, if stored separately, of the output and of a table of positions."""
        return [self._roles[f"{role}.weight"] for role in TABLES if f"{role}.weight" in self._roles]

    @renamed(fmt="format")
    @counts_subnormals
    def quantized(
        self, format: object = None, progress: Progress | bool | None = None, recipe: object = None
    ) -> dict[str, Any]:
        """Quantize the matrices of the layers; the embedding and the output stay as stored.

        Parameters
        ----------
        format : Format, str or mapping of str to these
            One format, or pattern -> format, ``"skip"`` or None; the first match applies.
        progress : callable or bool, optional
            Called as ``progress(done, total, text)``.
        recipe : path, or mapping of str to (Format, str or None), optional
            As a mapping in `format`, also as a TOML file of `heterocompute.quantize_checkpoint`. Its patterns come
            before `format`.

        Returns
        -------
        dict of str to QuantizedArray
            For the argument `weights` of `logits`, `generate` and `perplexity`. RotatedArrays for a format with
            ``+had``, whose products rotate the activations.

        Raises
        ------
        ValueError
            The format does not fit the width of a matrix, or a tensor holds NaN or infinity.
        """
        from ...files.recipes import SKIP, with_recipe  # files reads networks, too
        from ...files.selection import FirstMatch, check_patterns  # files reads networks, too

        if format is None and recipe is None:
            raise WrongValue("quantized: format is None, expected a format, or a recipe")
        format, tables = with_recipe(format, recipe), set(self.tables)
        names = [name for name in self.matrices if name not in tables]
        given = format if isinstance(format, Mapping) else {"*": format}
        check_patterns(names, given)
        of_name = FirstMatch(
            {
                key: None if one in (None, SKIP) else as_format(one, "quantized: format", rotated=True)
                for key, one in given.items()
            }
        )
        wanted = {name: fmt for name in names if (fmt := of_name(name)) is not None}
        step, found, memory = Steps(len(wanted), progress, "quantized"), {}, Memory()
        for name, fmt in wanted.items():
            step(name)
            found[name] = memory.placed(quantize(np.asarray(self.weights[name], np.float32), fmt, axis=-1))
        step.finish()
        return found

    @cached
    def frequencies(self) -> dict[Rope, Array]:
        """Return the angles per position of each RoPE of the network."""
        s = self.shape
        ropes = {s.rope, s.local_rope} | ({s.long_rope} if s.long_rope is not None else set())
        found = {rope: rope.frequencies() for rope in ropes}
        if self._factors is not None:
            found[self.shape.rope] = found[self.shape.rope] / self._factors.astype(np.float64)
        return found

    @cached
    def layer_roles(self) -> list[list[tuple[str, str]]]:
        """Return the roles of each layer's tensors: as ``attn_q.weight`` and as ``blk.3.attn_q.weight``."""
        found: list[list[tuple[str, str]]] = [[] for _ in range(self.shape.layers)]
        for role in self._expected:
            if role.startswith("blk."):
                _, i, name = role.split(".", 2)
                found[int(i)].append((name, role))
        return found

    def taken(self, role: str, weights: Mapping[str, Any] | None) -> Any:
        """Return the operand of a role, checked for its shape; None if the network has no such tensor."""
        name = self._roles.get(role)
        if name is None:
            return None
        array = self.weights[name] if weights is None or name not in weights else weights[name]
        if not hasattr(array, "shape"):
            raise WrongType(f"weights[{quoted(name)}] is {shown(array)}, expected an array or a packed array")
        if tuple(array.shape) != self._expected[role]:
            raise WrongValue(
                f"{self.path}: tensor {quoted(name)} has shape {tuple(array.shape)}, expected {self._expected[role]}"
            )
        if role.endswith("_norm.weight") and isinstance(array, QuantizedArray):  # a vector for each head
            array = array.dequantize()
        if self._plus_one and role.endswith("norm.weight"):
            return array + np.float32(1)
        return array
