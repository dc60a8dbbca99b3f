"""An encoder of texts: states of tokens, and embeddings of texts.

    x = norm(embedding[ids] + types[0] + positions)
    each layer:  x = norm(x + attention(x));  x = norm(x + feed_forward(x))
    embedding = pooling of x over the tokens

Devlin et al., "BERT", 2019 (arXiv 1810.04805); Reimers and Gurevych, "Sentence-BERT", 2019 (arXiv 1908.10084).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import WrongValue
from ...base.float_env import counts_subnormals
from ...base.values import check_flag
from ..llm.inputs import ids_of, sequences_of
from ..llm.model import Model
from ..llm.run import RunOptions
from ..llm.shape import Shape
from ..llm.tokens import Tokens
from .pooling import kinds_of, pooled
from .run import EncoderRun

FloatArray = np.ndarray[Any, np.dtype[np.float32]]


class Encoder(Model):
    """An encoder read from a folder. Returned by `heterocompute.zoo.open_encoder`.

    Attributes
    ----------
    path : str
    weights : mapping of str to QuantizedArray or ndarray
        By the names in the folder, packed as stored, each read on first access.
    shape : Shape
    tokenizer : Tokens
    pooling : tuple of str
        Kinds of pooling, whose results follow one another in an embedding.
    normalizes : bool
        Embeddings have length 1.
    """

    def __init__(
        self, path: str, weights: Mapping[str, Any], shape: Shape, roles: Mapping[str, str], tokenizer: Tokens,
        pooling: Sequence[str] = ("mean",), normalizes: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(path, weights, shape, roles, tokenizer)
        self.pooling, self.normalizes = tuple(pooling), normalizes

    def __repr__(self) -> str:
        s, pooling = self.shape, "+".join(self.pooling)
        sizes = f"{s.layers} layers, width {s.width}, vocabulary {s.vocabulary}, context {s.context}"
        return f"Encoder({s.family}, {sizes}, pooling {pooling}{', normalized' if self.normalizes else ''})"

    @counts_subnormals
    def states(
        self, ids: Any, weights: Mapping[str, Any] | None = None, activations: object = None, emulate: str | None = None
    ) -> FloatArray:
        """Return the states of the tokens of a text after the last layer.

        Parameters
        ----------
        ids : str, or array_like of int, shape (n,) or (batch, n)
        weights, activations, emulate
            As in `embed`.

        Returns
        -------
        ndarray of float32, ids.shape + (width,)
            Each text of a batch runs alone.
        """
        some = ids_of(self, self.tokenizer.encode(ids) if isinstance(ids, str) else ids, "states")
        way = RunOptions(weights, activations, None, emulate)
        rows = [self._states(row, way) for row in some.reshape(-1, some.shape[-1])]
        return np.stack(rows).reshape(*some.shape, self.shape.width)

    @counts_subnormals
    def embed(
        self,
        texts: Any,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        weights: Mapping[str, Any] | None = None,
        activations: object = None,
        emulate: str | None = None,
    ) -> FloatArray:
        """Return the embeddings of texts.

        Parameters
        ----------
        texts : str, array_like of int, or a list of texts or of tokens of any length
            Texts have the tokens of ``tokenizer.encode(text)``. Prompts such as ``"query: "`` are not added.
        pooling : str or sequence of str, optional
            ``"cls"``, ``"mean"``, ``"max"``, ``"last"``, ``"weighted_mean"`` or ``"mean_sqrt"``. Default: that of the
            folder.
        normalize : bool, optional
            Divide embeddings by their length. Default: as the folder says.
        weights : mapping of str to array, optional
            Replacements for weights of the folder, by name.
        activations : Format or str, optional
            Quantize the input of every matmul on the fly.
        emulate : str, optional
            Compute the matmuls of the layers with emulated hardware, see `heterocompute.emulate.parse`.

        Returns
        -------
        ndarray of float32, shape (width,) for one text, (texts, width) for a list
            Each text runs alone: its embedding does not depend on other texts. Bitwise identical on every instruction
            set and number of threads.

        Raises
        ------
        TypeError
            Tokens are not integers.
        ValueError
            A text has no tokens or more than the context, or the pooling is unknown.

        Examples
        --------
        >>> net = hc.zoo.open_encoder("all-MiniLM-L6-v2")  # doctest: +SKIP
        >>> a, b, c = net.embed(["a cat", "a kitten", "a tax form"])  # doctest: +SKIP
        >>> a @ b > a @ c  # doctest: +SKIP
        True
        """
        kinds = self.pooling if pooling is None else kinds_of(pooling, "embed: pooling")
        whole = self.normalizes if normalize is None else check_flag("embed", "normalize", normalize)
        way = RunOptions(weights, activations, None, emulate)
        if isinstance(texts, (list, tuple)) and not texts:
            raise WrongValue("embed: texts is empty, expected at least 1 text")
        is_one = isinstance(texts, str) or not _is_list(texts)
        given = sequences_of(self, [texts] if is_one else list(texts), "embed: texts")
        found = np.stack([pooled(self._states(ids, way), kinds, whole) for ids in given])
        return found[0] if is_one else found

    def _states(self, ids: np.ndarray[Any, np.dtype[np.int64]], way: RunOptions) -> FloatArray:
        found: FloatArray = EncoderRun(self, way, 1).hidden(ids[None])[0]
        return found

    def search_inputs(
        self, texts: object, tables: bool = False
    ) -> tuple[dict[str, Any], Callable[..., dict[str, float]]]:
        """Return weights as floats and a function that judges them by texts, for `heterocompute.ptq.search`.

        Parameters
        ----------
        texts : str or list of str or of tokens
        tables : bool
            Also return the embeddings of tokens, types and positions.

        Returns
        -------
        tuple
            float32 matrices by name, in memory; and a function ``evaluate(weights, activations=None, emulate=None)``.
            It returns ``cosine``, the mean cosine between embeddings with these weights and as stored,
            ``worst_cosine``, the least, and ``rank_correlation``: Spearman's, of the cosines between all pairs of
            texts (with 3 texts or more).

        Examples
        --------
        >>> weights, evaluate = net.search_inputs(texts)  # doctest: +SKIP
        >>> evaluate(net.quantized("int4-g32"))["cosine"]  # doctest: +SKIP
        0.991
        """
        listed = [texts] if isinstance(texts, str) else texts
        left = set() if tables else set(self.tables)
        held = {name: np.asarray(self.weights[name], np.float32) for name in self.matrices if name not in left}
        wanted = np.atleast_2d(self.embed(listed, normalize=True)).astype(np.float64)

        def evaluate(
            weights: Mapping[str, Any], activations: object = None, emulate: str | None = None
        ) -> dict[str, float]:
            changed = {name: w for name, w in weights.items() if w is not held.get(name)}
            found = self.embed(listed, normalize=True, weights=changed, activations=activations, emulate=emulate)
            return _compared(wanted, np.atleast_2d(found).astype(np.float64))

        return held, evaluate


def _is_list(texts: Any) -> bool:
    """Tell whether a value is a list of texts or of sequences of tokens, not one sequence."""
    if isinstance(texts, (list, tuple)):
        return isinstance(texts[0], (str, list, tuple)) or np.ndim(texts[0]) > 0
    return np.ndim(texts) > 1


def _compared(wanted: Any, found: Any) -> dict[str, float]:
    """Return how near embeddings of length 1 are to others."""
    each = np.clip((wanted * found).sum(axis=1), -1.0, 1.0)
    result = {"cosine": float(each.mean()), "worst_cosine": float(each.min())}
    if len(each) > 2:
        pairs = np.triu_indices(len(each), 1)
        products = (np.einsum("ik,jk->ij", x, x)[pairs] for x in (wanted, found))  # in one order on every machine
        first, second = (np.argsort(np.argsort(one, kind="stable")) for one in products)
        n, apart = len(first), int(np.square(first - second).sum())
        result["rank_correlation"] = 1 - 6 * apart / (n * (n * n - 1))
    return result
