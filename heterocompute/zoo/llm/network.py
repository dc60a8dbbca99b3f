"""A language model: the forward pass of all families, logits, text judged and generated.

    x = embedding[ids]
    each layer:  x += attention(norm(x));  x += feed_forward(norm(x))
    logits = norm(x) @ output.T

Vaswani et al., "Attention Is All You Need", 2017; Touvron et al., "LLaMA", 2023 (arXiv 2302.13971).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from ...base.errors import WrongType, WrongValue, shown
from ...base.float_env import counts_subnormals
from ...base.lazy import renamed
from ...base.progress import Progress, Steps
from ...base.texts import counted
from ...base.values import Rng, as_int, check_flag, seed_from
from .chat.conversation import Answer, Following
from .chat.sampling import NOT_FINITE, Sampling, stops_of
from .chat.template import prompt_of
from .inputs import ids_of, is_list, sequences_of, text_ids_of
from .judge import Reference, Totals, pieces
from .model import Model
from .run import Run, RunOptions
from .several import continued

Array = np.ndarray[Any, Any]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

PUBLIC = ("chat_ids", "generate", "logits", "matrices", "path", "perplexity", "quantized", "roles", "search_inputs",
          "shape", "tables", "tokenizer", "weights")  # fmt: skip
WINDOW = 512  # tokens of a window of `perplexity`


class LanguageModel(Model):
    """A language model read from a file. Returned by `heterocompute.zoo.open_llm`.

    Attributes
    ----------
    path : str
    weights : mapping of str to QuantizedArray or ndarray
        By the names in the file, packed as stored, each read on first access.
    shape : Shape
        Sizes and options, such as ``shape.layers`` and ``shape.context``.
    tokenizer : Tokens
        ``tokenizer.encode(text)``, ``tokenizer.decode(ids)``, ``tokenizer.offsets(text)`` and ``tokenizer.special``.
    """

    def __repr__(self) -> str:
        s = self.shape
        sizes = f"{s.layers} layers, width {s.width}, vocabulary {s.vocabulary}, context {s.context}"
        return f"LanguageModel({s.family}, {sizes})"

    def __dir__(self) -> list[str]:
        return list(PUBLIC)  # what users call, for the completion of names

    def remade(self, weights: Mapping[str, Any]) -> LanguageModel:
        """Return the network with other weights, given by role and complete; norms hold their actual factors."""
        roles = {role: role for role in weights}
        return LanguageModel(self.path, weights, self.shape, roles, self.tokenizer, factors=self._factors)

    @counts_subnormals
    def logits(
        self,
        ids: Any,
        weights: Mapping[str, Any] | None = None,
        activations: object = None,
        kv_cache: object = None,
        emulate: str | None = None,
    ) -> Any:
        """Run the network and return the logits.

        Parameters
        ----------
        ids : str, array_like of int, shape (n,) or (batch, n), or a list of texts or of tokens of any length
            Tokens, as `tokens.encode` returns them; at most `shape.context` of them per sequence.
        weights : mapping of str to array, optional
            Replacements for weights of the file, by name. All other weights stay as stored.
        activations : Format or str, optional
            Quantize the input of every matmul on the fly.
        kv_cache : Format or str, optional
            Format of the keys and values, quantized along each head.
        emulate : str, optional
            Compute the matmuls of the layers with emulated hardware, see `heterocompute.emulate.parse`.

        Returns
        -------
        ndarray of float32, ids.shape + (vocabulary,)
            The logits of the token after each token. Bitwise identical on every instruction set and number of threads.
            A list of one such array per sequence for texts or sequences of different lengths, bitwise identical to
            each alone.

        Raises
        ------
        TypeError
            ids are not integers.
        ValueError
            A token is out of range, there are no tokens or more than the context, the emulation does not support these
            formats, or the logits are not finite.

        Examples
        --------
        >>> net = hc.zoo.open_llm("model.gguf")  # doctest: +SKIP
        >>> net.logits(net.tokenizer.encode("The capital of France is"))[-1].argmax()  # doctest: +SKIP
        7042
        """
        way = RunOptions(weights, activations, kv_cache, emulate)
        if is_list(ids):
            return [self._finite(Run(self, way, 1).logits(x[None])[0]) for x in sequences_of(self, ids, "logits: ids")]
        some = ids_of(self, self.tokenizer.encode(ids) if isinstance(ids, str) else ids, "logits")
        run = Run(self, way, max(1, some.size // some.shape[-1]))
        found = self._finite(run.logits(some.reshape(-1, some.shape[-1])))
        return found.reshape(*some.shape, self.shape.vocabulary)

    @counts_subnormals
    @renamed(n="tokens")
    def generate(
        self,
        prompt: Any = None,
        tokens: int = 64,
        temperature: float = 0.0,
        seed: int = 0,
        weights: Mapping[str, Any] | None = None,
        activations: object = None,
        kv_cache: object = None,
        emulate: str | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        stream: bool = False,
        stop: str | Sequence[str] | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        template: str | None = None,
        template_name: str | None = None,
        now: datetime | str | None = None,
        rng: Rng = None,
    ) -> Any:
        """Generate a continuation of a prompt, or the answer to messages.

        Parameters
        ----------
        prompt : str, array_like of int (tokens,) or (batch, tokens), or a list of texts or of tokens of any length
            Several prompts share matmuls, and each gets the continuation that it gets alone.
        tokens : int
            Maximum number of tokens to add. Generation stops earlier at the end-of-text token.
        temperature : float
            0 selects the most likely token. Otherwise tokens are drawn from softmax(logits / temperature).
        seed : int
            Seed of the draws, which each prompt has of its own: equal prompts get equal continuations.
        weights, activations, kv_cache, emulate
            As in `logits`.
        messages : sequence of mapping, optional
            Instead of `prompt`: ``[{"role": "user", "content": "..."}]``. The chat template of the model makes the
            prompt of them (needs jinja2, extra ``llm``).
        stream : bool, optional
            Return an iterator of the pieces of the text, each as soon as it is certain, for one text or messages.
        stop : str or sequence of str, optional
            Texts that end the continuation, which does not contain them.
        top_k, top_p, min_p : number, optional
            Draw only from the `top_k` most likely tokens, from the most likely ones whose shares reach `top_p`, and
            from those of at least `min_p` times the largest share.
        template, template_name : str, optional
            The text of another chat template, and the name of one of several in the model. Default: ``"default"``.
        now : datetime or str, optional
            The time that the chat template is told by ``strftime_now``, such as ``"2026-07-01T12:00"``. Default: the
            time of this machine, so that prompts differ from day to day.
        rng : int or numpy.random.Generator, optional
            In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

        Returns
        -------
        str or ndarray of int64
            The continuation without the prompt: a str for a str or messages, a list of str for a list, tokens (m,) or
            (batch, m) for tokens. A finished sequence of a batch repeats the end-of-text token.

        Raises
        ------
        ValueError
            A prompt is empty, the tokens exceed the context, or the model has no chat template.

        Examples
        --------
        >>> net = hc.zoo.open_llm("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
        >>> net.generate("The capital of France is", 2)  # doctest: +SKIP
        ' Paris.'
        >>> messages = [{"role": "user", "content": "What is the capital of France?"}]
        >>> for piece in net.generate(messages=messages, stream=True):  # doctest: +SKIP
        ...     print(piece, end="", flush=True)
        The capital of France is Paris.
        """
        seed = seed_from("generate", seed, rng)
        way, count = RunOptions(weights, activations, kv_cache, emulate), as_int(tokens, "generate: tokens", 0)
        sampling = Sampling(temperature, top_k, top_p, min_p, seed).checked("generate")
        stops, is_streamed = stops_of(stop, "generate"), check_flag("generate", "stream", stream)
        if (prompt is None) == (messages is None):
            raise WrongValue("generate: prompt and messages are both given or both missing, expected one of them")
        given = ("template", template), ("template_name", template_name), ("now", now)
        Run(self, way, 1)  # refuses names and formats, even if no token is asked for
        if messages is not None:
            ids = self.chat_ids(messages, template, template_name, now)
        elif (name := next((key for key, value in given if value is not None), None)) is not None:
            raise WrongValue(f"generate: {name} is given without messages, expected both")
        if messages is None and is_list(prompt, equal=True):
            is_several, sequences = True, sequences_of(self, prompt, "generate: prompt")
        else:
            if messages is None:
                ids = ids_of(
                    self, self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt, "generate: prompt"
                )
            is_several, sequences = ids.ndim == 2, list(ids.reshape(-1, ids.shape[-1]))
        self._check_room(max(map(len, sequences)), count)
        is_text = messages is not None or isinstance(prompt, str)
        if (is_streamed or stops) and not is_text:
            raise WrongValue("generate: stream and stop are for one text or messages, expected neither of them")
        if is_streamed or stops:
            answer = Answer(self, Following(self, way), sequences[0], count, sampling, stops)
            return iter(answer) if is_streamed else "".join(answer)
        every = self._each(sequences, count, sampling, way)
        if is_text:
            return self._text(every[0], sequences[0])
        if is_several and isinstance(prompt[0], str):
            return [self._text(*one) for one in zip(every, sequences, strict=True)]
        return self._stacked(every) if is_several else self._stacked(every)[0]

    def chat_ids(
        self,
        messages: object,
        template: str | None = None,
        template_name: str | None = None,
        now: datetime | str | None = None,
    ) -> IntArray:
        """Return the tokens of messages by the chat template of the model.

        Parameters
        ----------
        messages, template, template_name
            As in `generate`.
        now : datetime or str, optional
            The time that templates are told. Default: that of this machine.

        Returns
        -------
        ndarray of int64, shape (n,)
        """
        text = prompt_of(self, messages, template, template_name, now)
        return ids_of(self, self.tokenizer.encode(text, special=False), "generate: messages", whole=False)

    def _text(self, found: Sequence[int] | IntArray, prompt: IntArray) -> str:
        """Return the text that new tokens, up to the end-of-text token, add to that of the prompt."""
        ended = np.flatnonzero(np.isin(found, list(self.tokenizer.ends)))
        return self.tokenizer.decode(found[: ended[0]] if len(ended) else found, after=prompt)

    def _stacked(self, every: list[list[int]]) -> IntArray:
        """Return sequences as rows of equal length; finished sequences repeat the end-of-text token."""
        longest, end = max(map(len, every)), self.tokenizer.end or 0
        return np.array([one + [end] * (longest - len(one)) for one in every], np.int64)

    def _check_room(self, tokens: int, count: int) -> None:
        if tokens + count > self.shape.context:
            raise WrongValue(
                f"generate: the prompt of {counted(tokens, 'token')} and tokens of {count} are more than the context "
                f"of {self.shape.context} tokens; shorten the prompt or lower tokens"
            )

    def _each(self, sequences: list[IntArray], count: int, sampling: Sampling, way: RunOptions) -> list[list[int]]:
        """Return the continuation of each sequence, which has its own draws."""
        found: list[list[int]] = [[] for _ in sequences]
        draws = [np.random.default_rng(sampling.seed) for _ in sequences]

        def goes_on(i: int, logits: FloatArray) -> int | None:
            token = sampling.drawn(logits, draws[i])
            found[i].append(token)
            return None if len(found[i]) == count or token in self.tokenizer.ends else token

        if count:
            continued(self, way, sequences, goes_on)
        return found

    @counts_subnormals
    def perplexity(
        self,
        text: Any,
        stride: int | None = None,
        window: int | None = None,
        weights: Mapping[str, Any] | None = None,
        activations: object = None,
        kv_cache: object = None,
        emulate: str | None = None,
        progress: Progress | bool | None = None,
    ) -> Any:
        """Compute the perplexity of a text: exp of the mean negative log-likelihood of its tokens.

        Parameters
        ----------
        text : str, array_like of int, or a list of texts or of tokens of any length
        stride : int, optional
            Tokens between the starts of two windows. Every token is predicted once, in the first window that holds it.
            Default: half a window. Each token after the first window then has at least that many tokens before it.
        window : int, optional
            Tokens per window. Default: 512, or the context if that is smaller.
        weights, activations, kv_cache, emulate
            As in `logits`.
        progress : callable or bool, optional
            As in `heterocompute.study`, with one step per window.

        Returns
        -------
        float
            A list of one number per text for several texts, bitwise identical to each alone.

        Raises
        ------
        ValueError
            There are fewer than two tokens, or the window or stride is invalid.

        Notes
        -----
        Each window begins with the beginning-of-text token, if the model has one. A first token without a token before
        it is not predicted. Sums are float64.
        """
        way = RunOptions(weights, activations, kv_cache, emulate)
        is_one = not is_list(text, equal=True) and getattr(text, "ndim", 1) < 2
        given = [("perplexity: text", text)] if is_one else [(f"perplexity: text[{i}]", x) for i, x in enumerate(text)]
        texts = [text_ids_of(self, one, name) for name, one in given]
        step = Steps(sum(len(list(self.windows(ids, stride, window))) for ids in texts), progress, "perplexity")
        found = [float(self.judged(ids, [way], stride, window, step=step)[0]["perplexity"]) for ids in texts]
        step.finish()
        if any(map(math.isnan, found)):
            raise WrongValue(f"perplexity: {NOT_FINITE}")
        return found[0] if is_one else found

    def judged(
        self,
        text: object,
        ways: Sequence[RunOptions | tuple[Any, ...]],
        stride: int | None = None,
        window: int | None = None,
        compare: bool = False,
        parts: int = 0,
        states: dict[int, FloatArray] | None = None,
        step: Callable[[str], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Compare several configurations of the network on one text.

        Parameters
        ----------
        text : str or array_like of int
        ways : sequence of (weights, activations, kv_cache, emulate)
            As in `logits`; missing entries are None.
        stride, window
            As in `perplexity`.
        compare : bool
            Also run the network as stored, and compare the distributions of each configuration with it.
        parts : int
            Also divide windows into this number of equal parts, and evaluate the tokens of each part.
        states : dict, optional
            Receives the last states of the network as stored, for the next call with the same text, stride and window:
            4 bytes per token and value of the width.
        step : callable, optional
            Called with a text before each window.

        Returns
        -------
        list of dict
            One per configuration: ``perplexity``. With `compare` also ``kl``, the mean of KL(stored || configuration)
            in nats, and ``agreement``, the fraction of tokens with the same most likely token. With `parts` also
            ``by_position``, a list of perplexities, beginning with the tokens at the start of their window; NaN for a
            part without tokens. With both, ``kl_by_position`` is the list of the divergences.
        """
        ids = text_ids_of(self, text, "judged: text")
        ways = _ways(ways)
        divided = as_int(parts, "judged: parts", 0, self._window(window))
        totals = [Totals(self._window(window)) for _ in ways]
        kept, outputs = {} if states is None else states, [Run(self, way, 1) for way in ways]
        for i, (tokens, first) in enumerate(self.windows(ids, stride, window)):
            if step is not None:
                step(f"window {i + 1}")
            reference: Reference | None = None
            if compare:
                reference = Reference(Run(self, RunOptions(), 1), tokens, first, kept.get(i))
                if states is not None:
                    states[i] = reference.states
            found = [
                Run(self, way, 1).hidden_of(tokens)[first - 1 : -1]
                if reference is None or any(way)
                else reference.states  # the network as stored
                for way in ways
            ]
            for rows in pieces(len(tokens) - first, self.shape.vocabulary):
                stored = None if reference is None else reference.part(rows)
                for total, run, x in zip(totals, outputs, found, strict=True):
                    total.add(run.scores(x[rows]), tokens[first:][rows], first + rows.start, stored)
        return [total.found(compare, divided) for total in totals]

    def search_inputs(
        self, text: object, tables: bool = False
    ) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], dict[str, float]]]:
        """Return weights as floats and a function that judges them by a text, for `heterocompute.ptq.search`.

        Parameters
        ----------
        text : str or array_like of int
        tables : bool
            Also return the embedding and the output.

        Returns
        -------
        tuple
            float32 matrices by name, in memory; and a function of such a mapping, which returns ``perplexity``, ``kl``
            and ``agreement`` as `judged` does.

        Examples
        --------
        >>> weights, evaluate = net.search_inputs(text)  # doctest: +SKIP
        >>> plan = hc.ptq.search(weights, ["int8", "int4-g32"], {"bits": 5}, evaluate, "kl")  # doctest: +SKIP
        """
        ids, left = text_ids_of(self, text, "search_inputs: text"), set() if tables else set(self.tables)
        held = {name: np.asarray(self.weights[name], np.float32) for name in self.matrices if name not in left}

        def evaluate(weights: Mapping[str, Any]) -> dict[str, float]:
            changed = {name: w for name, w in weights.items() if w is not held.get(name)}
            return self.judged(ids, [RunOptions(changed)], compare=True)[0]

        return held, evaluate

    def windows(
        self, ids: IntArray, stride: int | None = None, window: int | None = None
    ) -> Iterator[tuple[IntArray, int]]:
        """Yield the windows of a text: their tokens, and the index of the first that is predicted in each."""
        size = self._window(window)
        begin = self.tokenizer.begin
        inner = size - (begin is not None)  # tokens of the text in a window
        if inner < 2:
            raise WrongValue(f"perplexity: window is {size}, expected {size + 2 - inner} or more")
        step = max(1, inner // 2) if stride is None else as_int(stride, "perplexity: stride", 1, inner)
        done = 0 if begin is not None else 1  # tokens of the text that need no more prediction
        for at in range(0, len(ids), step):
            end = min(at + inner, len(ids))
            if end > done:
                part = ids[at:end]
                shift = 0
                if begin is not None:
                    part, shift = np.concatenate([np.array([begin], np.int64), part]), 1
                first = max(done - at, 0 if shift else 1) + shift
                if first < len(part):  # the last window may hold one token that follows no other
                    yield part, first
                done = end
            if end == len(ids):
                return

    def _window(self, window: int | None) -> int:
        """Return the tokens of a window."""
        if window is None:
            return min(WINDOW, self.shape.context)
        return as_int(window, "perplexity: window", 2, self.shape.context)

    def _finite(self, logits: FloatArray) -> FloatArray:
        if not np.isfinite(logits.max()):
            raise WrongValue(f"logits: {NOT_FINITE}")
        return logits

    def run(self, weights: Mapping[str, Any] | None = None) -> Run:
        """Begin a pass over one sequence, for callers that run the layers one by one."""
        return Run(self, RunOptions(weights), 1)


def _ways(given: object) -> list[RunOptions]:
    """Return the configurations of `judged`."""
    if not isinstance(given, (list, tuple)):
        raise WrongType(f"judged: ways is {shown(given)}, expected a list of (weights, activations, kv_cache, emulate)")
    for i, one in enumerate(given):
        if not isinstance(one, (list, tuple)) or len(one) > len(RunOptions._fields):
            raise WrongType(f"judged: ways[{i}] is {shown(one)}, expected (weights, activations, kv_cache, emulate)")
    return [RunOptions(*one) for one in given]
