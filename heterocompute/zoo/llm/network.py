"""A language model: the forward pass of all families, logits, text judged and generated.

    x = embedding[ids]
    each layer:  x += attention(norm(x));  x += feed_forward(norm(x))
    logits = norm(x) @ output.T

Vaswani et al., "Attention Is All You Need", 2017; Touvron et al., "LLaMA", 2023 (arXiv 2302.13971).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.float_env import counts_subnormals
from ...base.kept import kept
from ...base.progress import Progress, Steps
from ...base.runtime import use
from ...base.texts import quoted
from ...base.values import as_int, as_real, shown
from ...products.arguments import as_format
from ...products.layers import gelu, rms_norm, rope, softmax, swiglu
from ...products.layers.attention import KVCache, attention
from ...products.matmul import linear
from ...products.quantize import quantize
from .shape import Rope, Shape
from .tokens import Tokens
from .weights import embedding_rows, expected

__all__ = ["LanguageModel"]

Array = np.ndarray[Any, Any]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

WINDOW = 512  # tokens of a window of `perplexity`
AT_ONCE = 512  # tokens that go through the layers together
LOGITS = 1 << 24  # logits at a time


class LanguageModel:
    """A language model of a file. Made by `heterocompute.zoo.open_llm`.

    Attributes
    ----------
    path : str
    weights : mapping of str to QuantizedArray or ndarray
        By the names of the file, packed as stored; each is read when it is first asked for.
    shape : Shape
        Sizes and options, such as ``shape.layers`` and ``shape.context``.
    tokens : Tokens
        ``tokens.encode(text)`` and ``tokens.decode(ids)``.
    """

    def __init__(
        self, path: str, weights: Mapping[str, Any], shape: Shape, roles: Mapping[str, str], tokens: Tokens,
        plus_one: bool = False, factors: FloatArray | None = None,
    ) -> None:  # fmt: skip
        self.path, self.weights, self.shape, self.tokens = path, weights, shape, tokens
        self._roles, self._plus_one, self._factors = dict(roles), plus_one, factors
        self._expected = expected(shape, roles)

    def __repr__(self) -> str:
        s = self.shape
        return f"LanguageModel({s.family}, {s.layers} layers, width {s.width}, vocabulary {s.vocabulary}, context {s.context})"

    @property
    def matrices(self) -> list[str]:
        """Names of the tensors that a product multiplies by, the embedding among them."""
        return [self._roles[role] for role, shape in self._expected.items() if len(shape) > 1]

    @property
    def tables(self) -> list[str]:
        """Names of the embedding and, if it is a tensor of its own, of the output."""
        return [self._roles[role] for role in ("token_embd.weight", "output.weight") if role in self._roles]

    @counts_subnormals
    def quantized(self, fmt: Any, progress: Progress | None = None) -> dict[str, Any]:
        """Quantize the matrices of the layers; the embedding and the output stay as stored.

        Parameters
        ----------
        fmt : Format or str
        progress : callable, optional
            Called as ``progress(done, total, text)``.

        Returns
        -------
        dict of str to QuantizedArray
            For the argument `weights` of `logits`, `generate` and `perplexity`.

        Raises
        ------
        ValueError
            The format does not fit the width of a matrix; NaN or infinity in a tensor.
        """
        wanted, tables = as_format(fmt, "quantized: fmt"), set(self.tables)
        names = [name for name in self.matrices if name not in tables]
        step, found = Steps(len(names), progress), {}
        for name in names:
            step(name)
            found[name] = quantize(np.asarray(self.weights[name], np.float32), wanted, axis=-1)
        step.finish()
        return found

    @counts_subnormals
    def logits(
        self,
        ids: Any,
        weights: Mapping[str, Any] | None = None,
        activations: Any = None,
        kv_cache: Any = None,
    ) -> FloatArray:
        """Run the network.

        Parameters
        ----------
        ids : array_like of int, shape (n,) or (batch, n)
            Tokens, as `tokens.encode` returns them; at most `shape.context` of them.
        weights : mapping of str to array, optional
            Weights that take the place of those of the file, by the same names; others stay as stored.
        activations : Format or str, optional
            Quantize the input of every product on the fly.
        kv_cache : Format or str, optional
            Format of the keys and values, quantized along each head.

        Returns
        -------
        ndarray of float32, ids.shape + (vocabulary,)
            The logits of the token after each. Bitwise identical on every instruction set and number of threads.

        Raises
        ------
        TypeError
            ids are not integers.
        ValueError
            A token out of range, no tokens, or more than the context.

        Examples
        --------
        >>> net = hc.zoo.open_llm("model.gguf")  # doctest: +SKIP
        >>> net.logits(net.tokens.encode("The capital of France is"))[-1].argmax()  # doctest: +SKIP
        7042
        """
        some = self._ids(ids, "logits")
        run = Run(self, weights, activations, kv_cache, max(1, some.size // some.shape[-1]))
        found = run.logits(some.reshape(-1, some.shape[-1]))
        return found.reshape(*some.shape, self.shape.vocabulary)

    @counts_subnormals
    def generate(
        self,
        prompt: Any,
        n: int = 64,
        temperature: float = 0.0,
        seed: int = 0,
        weights: Mapping[str, Any] | None = None,
        activations: Any = None,
        kv_cache: Any = None,
    ) -> Any:
        """Continue a prompt.

        Parameters
        ----------
        prompt : str, or array_like of int (tokens,) or (batch, tokens)
        n : int
            Tokens to add at most; a text ends earlier at the token that ends texts.
        temperature : float
            0 takes the likeliest token; else tokens are drawn from softmax(logits / temperature).
        seed : int
            Of the draws.
        weights, activations, kv_cache
            As of `logits`.

        Returns
        -------
        str or ndarray of int64
            The continuation without the prompt: a str for a str, tokens (n,) or (batch, n) for tokens. A sequence of a
            batch that has ended repeats the token that ends texts.

        Raises
        ------
        ValueError
            An empty prompt, or more tokens than the context holds.

        Examples
        --------
        >>> net = hc.zoo.open_llm("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
        >>> net.generate("The capital of France is", 2)  # doctest: +SKIP
        ' Paris.'
        """
        is_text = isinstance(prompt, str)
        some = self._ids(self.tokens.encode(prompt) if is_text else prompt, "generate: prompt")
        out = [ids for ids in self._steps(some, n, temperature, seed, weights, activations, kv_cache)]
        found = np.stack(out, axis=-1) if out else np.zeros((*some.shape[:-1], 0), np.int64)
        found = found.reshape(*some.shape[:-1], found.shape[-1])
        if not is_text:
            return found
        ended = np.flatnonzero(np.isin(found, list(self.tokens.ends)))
        return self.tokens.decode(found[: ended[0]] if len(ended) else found)

    def _steps(
        self, some: IntArray, n: Any, temperature: Any, seed: Any, weights: Any, activations: Any, kv_cache: Any
    ) -> Iterator[IntArray]:
        """Yield the next token of each sequence."""
        count = as_int(n, "generate: n", 0)
        heat = as_real(temperature, "generate: temperature", "a number")
        if not 0.0 <= heat < math.inf:
            raise ValueError(f"generate: temperature is {shown(temperature)}, expected 0 or more")
        rng = np.random.default_rng(as_int(seed, "generate: seed", 0))
        if some.shape[-1] + count > self.shape.context:
            raise ValueError(
                f"generate: the prompt of {some.shape[-1]} tokens and n of {count} are more than the context of "
                f"{self.shape.context} tokens; shorten the prompt or n"
            )
        ids = some.reshape(-1, some.shape[-1])
        run = Run(self, weights, activations, kv_cache, len(ids))
        ended = np.zeros(len(ids), bool)
        for _ in range(count):
            logits = run.logits(ids, last=True)[:, -1]
            token = _drawn(logits, heat, rng)
            if self.tokens.ends:
                token = np.where(ended, min(self.tokens.ends), token)
                ended |= np.isin(token, list(self.tokens.ends))
            yield token
            if ended.all():
                return
            ids = token[:, None]

    @counts_subnormals
    def perplexity(
        self,
        text: Any,
        stride: int | None = None,
        window: int | None = None,
        weights: Mapping[str, Any] | None = None,
        activations: Any = None,
        kv_cache: Any = None,
    ) -> float:
        """Judge the network by a text: exp of the mean negative log-likelihood of its tokens.

        Parameters
        ----------
        text : str or array_like of int
        stride : int, optional
            Tokens between the beginnings of two windows; every token is predicted once, in the first window that holds
            it. Default: half a window, so that each token but those of the first window has at least as many before it.
        window : int, optional
            Tokens that the network sees at a time. Default: 512, or the context if that is smaller.
        weights, activations, kv_cache
            As of `logits`.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            Fewer than two tokens, or a window or stride that does not fit.

        Notes
        -----
        Each window begins with the token that begins texts, if the model has one. Sums in float64.
        """
        sums = self.judged(text, [(weights, activations, kv_cache)], stride, window)
        return sums[0]["perplexity"]

    def judged(
        self,
        text: Any,
        ways: Sequence[tuple[Mapping[str, Any] | None, Any, Any]],
        stride: int | None = None,
        window: int | None = None,
        compare: bool = False,
    ) -> list[dict[str, float]]:
        """Judge ways to run the network by one text.

        Parameters
        ----------
        text : str or array_like of int
        ways : sequence of (weights, activations, kv_cache)
            As of `logits`.
        stride, window
            As of `perplexity`.
        compare : bool
            Also run the network as stored, and compare the distributions of each way with those.

        Returns
        -------
        list of dict of str to float
            One per way: ``perplexity``; with `compare` also ``kl``, the mean of KL(stored || way) in nats, and
            ``agreement``, the fraction of tokens where both have the same likeliest token.
        """
        ids = self._text_ids(text)
        totals = [_Totals() for _ in ways]
        for tokens, first in self.windows(ids, stride, window):
            reference: _Reference | None = None
            if compare:
                reference = _Reference(Run(self, None, None, None, 1), tokens, first)
            for total, (weights, activations, kv_cache) in zip(totals, ways, strict=True):
                total.add(Run(self, weights, activations, kv_cache, 1), tokens, first, reference)
        return [total.found(compare) for total in totals]

    def windows(self, ids: IntArray, stride: int | None = None, window: int | None = None) -> Iterator[tuple[IntArray, int]]:
        """Yield the windows of a text: their tokens, and the index of the first one that is predicted in this window."""
        size = min(WINDOW, self.shape.context) if window is None else as_int(window, "perplexity: window", 2, self.shape.context)
        begin = self.tokens.begin
        inner = size - (begin is not None)  # tokens of the text in a window
        if inner < 2:
            raise ValueError(f"perplexity: window is {size}, expected {size + 2 - inner} or more")
        step = max(1, inner // 2) if stride is None else as_int(stride, "perplexity: stride", 1, inner)
        done = 0 if begin is not None else 1  # tokens of the text that need no more prediction
        for at in range(0, len(ids), step):
            end = min(at + inner, len(ids))
            if end > done:
                part = ids[at:end]
                shift = 0
                if begin is not None:
                    part, shift = np.concatenate([np.int64([begin]), part]), 1
                yield part, max(done - at, 0 if shift else 1) + shift
                done = end
            if end == len(ids):
                return

    def _text_ids(self, text: Any) -> IntArray:
        if isinstance(text, str):
            ids = np.asarray(self.tokens.encode(text, special=False), np.int64)
        else:
            ids = self._ids(text, "perplexity: text", whole=False)
        if ids.ndim != 1 or len(ids) < 2 - (self.tokens.begin is not None):
            raise ValueError(f"perplexity: text has {ids.size} tokens, expected at least 2 in one sequence")
        return ids

    def _ids(self, ids: Any, name: str, whole: bool = True) -> IntArray:
        try:
            array = np.asarray(ids)
        except ValueError:
            raise ValueError(f"{name}: ids are sequences of different lengths, expected one length per batch") from None
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"{name}: ids are {array.dtype}, expected integers")
        if array.ndim not in (1, 2) or not array.size:
            raise ValueError(f"{name}: ids have shape {array.shape}, expected (n,) or (batch, n) with n of 1 or more")
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= self.shape.vocabulary:
            raise ValueError(
                f"{name}: token {low if low < 0 else high} is out of range, expected 0 to {self.shape.vocabulary - 1}"
            )
        if whole and array.shape[-1] > self.shape.context:
            raise ValueError(
                f"{name}: {array.shape[-1]} tokens are more than the context of {self.shape.context}; shorten the text"
            )
        return array.astype(np.int64)

    @kept
    def frequencies(self) -> dict[Rope, Array]:
        """Angles per position of each RoPE of the network."""
        found = {rope: rope.frequencies() for rope in {self.shape.rope, self.shape.local_rope}}
        if self._factors is not None:
            found[self.shape.rope] = found[self.shape.rope] / self._factors.astype(np.float64)
        return found

    def taken(self, role: str, weights: Mapping[str, Any] | None) -> Any:
        """Return the operand of a role, checked for its shape; None if the network has no such tensor."""
        name = self._roles.get(role)
        if name is None:
            return None
        array = self.weights[name] if weights is None or name not in weights else weights[name]
        if tuple(array.shape) != self._expected[role]:
            raise ValueError(
                f"{self.path}: tensor {quoted(name)} has shape {tuple(array.shape)}, expected {self._expected[role]}"
            )
        if self._plus_one and role.endswith("norm.weight"):
            return array + np.float32(1)
        return array


def _drawn(logits: FloatArray, heat: float, rng: np.random.Generator) -> IntArray:
    """Return one token per row of logits."""
    if heat == 0:
        return logits.argmax(axis=-1).astype(np.int64)
    scaled = logits.astype(np.float64)
    scaled = np.exp((scaled - scaled.max(axis=-1, keepdims=True)) / heat)
    shares = np.cumsum(scaled, axis=-1)
    draws = rng.random(len(logits)) * shares[:, -1]
    return np.minimum((shares <= draws[:, None]).sum(axis=-1), logits.shape[-1] - 1).astype(np.int64)


class Run:
    """One pass over sequences of a batch, with the keys and values of all tokens so far."""

    def __init__(
        self, net: LanguageModel, weights: Mapping[str, Any] | None, activations: Any, kv_cache: Any, batch: int
    ) -> None:
        self.net, self.shape, self.activations = net, net.shape, activations
        self._weights, self._taken = weights, {}
        s = net.shape
        self.cache = KVCache(kv_cache, s.layers, s.kv_heads, s.head_width, batch, s.windows)

    def logits(self, ids: IntArray, last: bool = False) -> FloatArray:
        """Add tokens (batch, n) and return their logits, or those of the last token alone."""
        parts = [self.hidden(ids[:, i : i + AT_ONCE]) for i in range(0, ids.shape[1], AT_ONCE)]
        x = parts[-1][:, -1:] if last else np.concatenate(parts, axis=1)
        return self.scores(x)

    def hidden_of(self, tokens: IntArray) -> FloatArray:
        """Add the tokens (n,) of one sequence and return their states (n, width)."""
        return np.concatenate([self.hidden(tokens[None, i : i + AT_ONCE])[0] for i in range(0, len(tokens), AT_ONCE)])

    def scores(self, x: FloatArray) -> FloatArray:
        """Return the logits of hidden states."""
        table = self.operand("output.weight")
        table = self.operand("token_embd.weight") if table is None else table
        with use(blas="own"):  # a BLAS sums in another order with other threads
            found = self._linear(x, table, None)
        cap = self.shape.logit_cap
        return found if cap is None else np.float32(cap) * np.tanh(found / np.float32(cap))

    def operand(self, role: str) -> Any:
        """Return the operand of a role; None if the network has none."""
        try:
            return self._taken[role]
        except KeyError:
            found = self._taken[role] = self.net.taken(role, self._weights)
            return found

    def hidden(self, ids: IntArray) -> FloatArray:
        """Add tokens (batch, n) and return their states after the last norm, (batch, n, width)."""
        with use(blas="own"):  # a BLAS sums in another order with other threads
            return self._layers(ids)

    def _layers(self, ids: IntArray) -> FloatArray:
        s = self.shape
        x = embedding_rows(self.operand("token_embd.weight"), ids)
        if s.options.scaled_embedding:
            x = x * np.float32(math.sqrt(s.width))
        turns = self._turns(ids.shape[1])
        for i in range(s.layers):
            at = f"blk.{i}."
            y = self._attention(i, at, self._norm(x, at + "attn_norm"), turns[s.local_rope if s.windows[i] else s.rope])
            x = x + (self._norm(y, at + "post_attention_norm") if s.options.post_norms else y)
            y = self._norm(x, at + "ffn_norm")
            y = self._experts(at, y) if s.experts else self._feed_forward(at, y)
            x = x + (self._norm(y, at + "post_ffw_norm") if s.options.post_norms else y)
        return self._norm(x, "output_norm")

    def _turns(self, n: int) -> dict[Rope, tuple[FloatArray, FloatArray]]:
        """Return cosine and sine (n, 1, width / 2) of the next n positions, of each RoPE."""
        at = np.arange(self.cache.length, self.cache.length + n, dtype=np.float64)[:, None]
        found = {}
        for rotation, frequencies in self.net.frequencies.items():
            angles = at * frequencies
            parts = (rotation.amplitude * turn(angles) for turn in (np.cos, np.sin))
            cosine, sine = (part.astype(np.float32)[:, None] for part in parts)  # of all heads
            found[rotation] = cosine, sine
        return found

    def _norm(self, x: FloatArray, role: str) -> FloatArray:
        return rms_norm(x, self.operand(f"{role}.weight"), self.shape.epsilon)

    def _linear(self, x: FloatArray, w: Any, bias: Any) -> FloatArray:
        return linear(x, w, bias, activations=self.activations)

    def _product(self, x: FloatArray, role: str) -> FloatArray:
        return self._linear(x, self.operand(f"{role}.weight"), self.operand(f"{role}.bias"))

    def _attention(self, i: int, at: str, x: FloatArray, turns: tuple[FloatArray, FloatArray]) -> FloatArray:
        s, (batch, n) = self.shape, x.shape[:2]
        d, kv = s.head_width, s.kv_heads
        if self.operand(f"{at}attn_qkv.weight") is not None:
            q, k, v = np.split(self._product(x, f"{at}attn_qkv"), [s.heads * d, (s.heads + kv) * d], axis=-1)
        else:
            q, k, v = (self._product(x, f"{at}attn_{part}") for part in "qkv")
        q, k, v = (part.reshape(batch, n, -1, d) for part in (q, k, v))
        if (weight := self.operand(f"{at}attn_q_norm.weight")) is not None:
            q = rms_norm(q, weight, s.epsilon)
            k = rms_norm(k, self.operand(f"{at}attn_k_norm.weight"), s.epsilon)
        pairs = s.rope.pairs
        q, k = rope(q, *turns, pairs), rope(k, *turns, pairs)
        q, k, v = (part.transpose(0, 2, 1, 3) for part in (q, k, v))
        keys, values = self.cache.add(i, k, v)
        y = attention(q, keys, values, True, s.scale, s.windows[i], s.attention_cap)
        return self._product(y.transpose(0, 2, 1, 3).reshape(batch, n, -1), f"{at}attn_output")

    def _gated(self, gate: FloatArray, up: FloatArray) -> FloatArray:
        return swiglu(gate, up) if self.shape.options.activation == "silu" else gelu(gate, up)

    def _feed_forward(self, at: str, x: FloatArray) -> FloatArray:
        if self.operand(f"{at}ffn_gate_up.weight") is not None:
            gate, up = np.split(self._product(x, f"{at}ffn_gate_up"), 2, axis=-1)
        else:
            gate, up = self._product(x, f"{at}ffn_gate"), self._product(x, f"{at}ffn_up")
        return self._product(self._gated(gate, up), f"{at}ffn_down")

    def _experts(self, at: str, x: FloatArray) -> FloatArray:
        """Sum the experts that a router picks for each token, each with its share."""
        s, rows = self.shape, x.reshape(-1, x.shape[-1])
        router = self._linear(rows, self.operand(f"{at}ffn_gate_inp.weight"), None)
        picked = np.argsort(-router, axis=-1, kind="stable")[:, : s.experts_used]
        best = np.take_along_axis(router, picked, axis=-1)
        shares = np.exp(best - best.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        stacks = [self.operand(f"{at}ffn_{part}_exps.weight") for part in ("gate", "up", "down")]
        out = np.zeros_like(rows)
        for expert in range(s.experts):
            token, place = np.nonzero(picked == expert)
            if len(token):
                gate, up, down = (stack[expert] for stack in stacks)
                some = rows[token]
                y = self._linear(self._gated(self._linear(some, gate, None), self._linear(some, up, None)), down, None)
                out[token] += y * shares[token, place][:, None]
        return out.reshape(x.shape)


class _Reference:
    """Probabilities of a window by the network as stored, a piece at a time."""

    def __init__(self, run: Run, tokens: IntArray, first: int) -> None:
        self._run, self._x = run, run.hidden_of(tokens)[first - 1 : -1]

    def part(self, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Return probabilities of some rows, and their logarithms."""
        logits = self._run.scores(self._x[rows])
        shares = softmax(logits)
        return shares, log_softmax(logits, shares)


class _Totals:
    """Sums over the tokens of a text, in float64."""

    def __init__(self) -> None:
        self.loss = self.kl = 0.0
        self.count = self.same = 0

    def add(self, run: Run, tokens: IntArray, first: int, reference: _Reference | None) -> None:
        """Add the tokens of a window from the first that is predicted in it."""
        x, targets = run.hidden_of(tokens)[first - 1 : -1], tokens[first:]
        step = max(1, LOGITS // run.shape.vocabulary)
        for begin in range(0, len(targets), step):
            rows = slice(begin, begin + step)
            logits, wanted = run.scores(x[rows]), targets[rows]
            logs = log_softmax(logits, softmax(logits))
            self.loss -= float(logs[np.arange(len(wanted)), wanted].sum(dtype=np.float64))
            self.count += len(wanted)
            if reference is not None:
                shares, stored = reference.part(rows)
                self.kl += float(np.einsum("ij,ij->i", shares, stored - logs).sum(dtype=np.float64))
                self.same += int((stored.argmax(axis=-1) == logs.argmax(axis=-1)).sum())

    def found(self, compare: bool) -> dict[str, float]:
        """Return the means."""
        mean = self.loss / self.count
        found = {"perplexity": math.exp(mean) if mean < 700 else math.inf}
        if compare:
            found |= {"kl": max(self.kl / self.count, 0.0), "agreement": self.same / self.count}
        return found


def log_softmax(logits: FloatArray, shares: FloatArray) -> FloatArray:
    """Return log(softmax(logits)) along the last axis; the largest of the shares is 1 / sum(exp(logits - max))."""
    total = np.log(shares.max(axis=-1, keepdims=True).astype(np.float64)).astype(np.float32)
    return logits - logits.max(axis=-1, keepdims=True) + total
