"""Language models for EleutherAI's harness, the package `lm_eval`: any of its tasks, in any format.

    python -m heterocompute.interop.harness --model heterocompute \\
        --model_args path=model.gguf,format=vsq4-g16-s4,activations=int8 --tasks hellaswag --limit 100

registers the model and goes on as the command ``lm_eval``; in Python, `harness_model` returns what
``lm_eval.simple_evaluate(model=...)`` accepts. The entry point ``heterocompute`` of the
group ``lm_eval.models`` names the class `HeterocomputeLM`, for releases of the harness that read this group. Release
0.4.13 does not read it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.errors import WrongType, shown
from ..products.layers import softmax
from ..zoo import open_llm
from ..zoo.llm.chat.sampling import Sampling
from ..zoo.llm.judge import log_softmax
from ..zoo.llm.run import Run, RunOptions
from ..zoo.llm.several import continued

NAME = "heterocompute"
MOST_NEW = 256  # tokens of a generated answer, unless the task sets a number
LAST = 16  # tokens of a prompt that decide how the text of an answer begins
IGNORED = ("batch_size", "max_batch_size", "device")  # arguments that the command passes to every model


class Answers:
    """The methods of a language model that the harness calls.

    Parameters
    ----------
    path : str or os.PathLike, optional
        Of `heterocompute.zoo.open_llm`.
    net : LanguageModel, optional
        In place of a path.
    format, activations, kv_cache : Format or str, optional
        Of the layers' weights, of inputs, of keys and values; default: as stored.

    Raises
    ------
    TypeError
        The model is neither a path nor a network, or an option is unknown.
    """

    def __init__(
        self,
        path: Any = None,
        net: Any = None,
        format: Any = None,
        activations: object = None,
        kv_cache: object = None,
        **more: object,
    ) -> None:
        super().__init__()
        if unknown := [key for key in more if key not in IGNORED]:
            raise WrongType(
                f"harness: model_args has {shown(unknown[0])}, expected path, format, activations and kv_cache"
            )
        if (path is None) == (net is None):
            raise WrongType("harness: model_args needs path, a GGUF file or the folder of a language model")
        self.net = open_llm(path) if net is None else net
        weights = None if format is None else self.net.quantized(format)
        self._way = RunOptions(weights, activations, kv_cache)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return (log-likelihood, whether greedy decoding gives it) of each (context, continuation)."""
        pairs = [self._pair(*request.args) for request in requests]
        found: list[tuple[float, bool]] = [(0.0, True)] * len(pairs)
        alike: dict[bytes, list[int]] = {}  # answers of one token share their context
        for i, (ids, count) in enumerate(pairs):
            if count:
                alike.setdefault(np.array(self._cut(ids)[:-1], np.int64).tobytes(), []).append(i)
        for indices in alike.values():
            some = self._cut(pairs[indices[0]][0])[:-1]
            run = Run(self.net, self._way, 1)
            states = run.hidden_of(np.asarray(some, np.int64))
            for i in indices:
                ids, count = pairs[i]
                found[i] = self._judged(run, states, self._cut(ids), count)
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihood of each text, in windows of the whole context, with each token in one window."""
        return [self._rolling(request.args[0]) for request in requests]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the continuation of each context, up to a stop text of the task."""
        answers = [_Answer(self.net, *request.args) for request in requests]
        prompts = [self._prompt(answer) for answer in answers]
        continued(self.net, self._way, prompts, lambda i, logits: answers[i].next_token(logits))
        return [answer.text for answer in answers]

    @property
    def _prefix(self) -> int:
        """Return the token before a text without a context."""
        tokens = self.net.tokenizer
        return tokens.begin if tokens.begin is not None else tokens.end or 0

    def _pair(self, context: str, continuation: str) -> tuple[list[int], int]:
        """Return the tokens of both, and the number of them that are scored."""
        spaces = len(context) - len(context.rstrip())
        if spaces:  # a blank belongs to the following word
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        encode = self.net.tokenizer.encode
        before = encode(context) if context else [self._prefix]
        whole = encode(context + continuation) if context else [*before, *encode(continuation, special=False)]
        after = whole[len(before) :]
        return [*before, *after], len(after)

    def _cut(self, ids: list[int]) -> list[int]:
        """Return the last tokens, at most the context's length before the last one."""
        return ids[-(self.net.shape.context + 1) :]

    def _scored(self, ids: list[int], count: int) -> tuple[float, bool]:
        """Return the log-likelihood of the last `count` tokens, after at most the context's length of others."""
        if not count:
            return 0.0, True
        some, run = self._cut(ids), Run(self.net, self._way, 1)
        return self._judged(run, run.hidden_of(np.asarray(some[:-1], np.int64)), some, count)

    def _judged(self, run: Run, states: Any, ids: list[int], count: int) -> tuple[float, bool]:
        """Return the log-likelihood of the last `count` tokens from the states before each token."""
        count = min(count, len(ids) - 1)
        logits = run.scores(states[-count:])
        logs, wanted = log_softmax(logits, softmax(logits)), np.asarray(ids[-count:], np.int64)
        likelihood = float(logs[np.arange(count), wanted].sum(dtype=np.float64))
        return likelihood, bool((logs.argmax(axis=-1) == wanted).all())

    def _rolling(self, text: str) -> float:
        ids, most = self.net.tokenizer.encode(text, special=False), self.net.shape.context
        total = 0.0
        for at in range(0, len(ids), most):
            part = ids[at : at + most]
            begin = max(0, at + len(part) - most)  # the last window has the same length as the others
            before = [self._prefix] if at == 0 else ids[begin - 1 if begin else 0 : at]
            total += self._scored([*before, *part], len(part))[0]
        return total

    def _prompt(self, answer: _Answer) -> Any:
        """Return the last tokens of a context that leave room for the answer, which continues them."""
        ids = self.net.tokenizer.encode(answer.context) or [self._prefix]
        ids = ids[-(self.net.shape.context - answer.count) :]
        answer.follow(ids)
        return np.asarray(ids, np.int64)


class _Answer:
    """An answer that grows token by token."""

    def __init__(self, net: Any, context: str, options: Any) -> None:
        until = options.get("until") or []
        self.context, self._net = context, net
        self._stops = [stop for stop in ([until] if isinstance(until, str) else until) if stop]
        self.count = min(int(options.get("max_gen_toks", MOST_NEW)), net.shape.context - 1)
        heat = float(options.get("temperature", 0.0)) if options.get("do_sample", False) else 0.0
        self._sampling = Sampling(heat)
        self._rng, self._tokens, self._before = np.random.default_rng(0), list[int](), list[int]()

    def follow(self, prompt: list[int]) -> None:
        """Set the tokens before the answer, of which the last ones decide how its text begins."""
        self._before = prompt[-LAST:]

    def next_token(self, logits: Any) -> int | None:
        """Append the next token and return it; None at the end."""
        if len(self._tokens) >= self.count:
            return None
        token = self._sampling.drawn(logits, self._rng)
        if token in self._net.tokenizer.ends:
            return None
        self._tokens.append(token)
        text = self._net.tokenizer.decode(self._tokens, after=self._before)
        done = len(self._tokens) == self.count or any(stop in text for stop in self._stops)
        return None if done else token

    @property
    def text(self) -> str:
        """Return the answer up to the task's stop text."""
        text = str(self._net.tokenizer.decode(self._tokens, after=self._before))
        for stop in self._stops:
            text = text.split(stop)[0]
        return text


def __getattr__(name: str) -> Any:
    if name == "HeterocomputeLM":
        return _model_class()
    raise AttributeError(f"module {shown(__name__)} has no attribute {shown(name)}")


@functools.cache
def _model_class() -> Any:
    try:
        from lm_eval.api.model import LM  # optional
    except ImportError:
        raise ImportError("harness: the package lm_eval is not installed: pip install lm_eval") from None
    return type("HeterocomputeLM", (Answers, LM), {"__doc__": Answers.__doc__})


def harness_model(path: object = None, **options: object) -> Any:
    """Return a language model for ``lm_eval.simple_evaluate(model=...)``.

    Parameters
    ----------
    path : str or os.PathLike
        Of `heterocompute.zoo.open_llm`.
    **options
        As of `Answers`.

    Returns
    -------
    lm_eval.api.model.LM

    Raises
    ------
    ImportError
        The package lm_eval is not installed.
    """
    return _model_class()(path, **options)


def register() -> None:
    """Register the model under the name ``heterocompute``.

    Raises
    ------
    ImportError
        The package lm_eval is not installed.
    """
    made = _model_class()
    import lm_eval.models  # noqa: F401  # optional
    from lm_eval.api.registry import register_model  # optional

    register_model(NAME)(made)


if __name__ == "__main__":
    register()
    from lm_eval.__main__ import cli_evaluate  # optional

    cli_evaluate()
