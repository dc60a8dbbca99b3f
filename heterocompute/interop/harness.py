"""Language models for the harness of EleutherAI, the package `lm_eval`: any of its tasks, in any format.

    python -m heterocompute.interop.harness --model heterocompute \\
        --model_args path=model.gguf,format=vsq4-g16-s4,activations=int8 --tasks hellaswag --limit 100

registers the model and goes on as the command ``lm_eval``; in Python, `harness_model` returns what
``lm_eval.simple_evaluate(model=...)`` accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..base.values import shown
from ..products.layers import softmax
from ..zoo import open_llm
from ..zoo.llm.judge import log_softmax
from ..zoo.llm.run import Run, Way

__all__ = ["Answers", "harness_model", "register"]

NAME = "heterocompute"
MOST_NEW = 256  # tokens of an answer where the task says nothing
IGNORED = ("batch_size", "max_batch_size", "device")  # what the command passes to every model


class Answers:
    """What the harness asks of a language model.

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
        Neither a path nor a network, or another option.
    """

    def __init__(
        self,
        path: Any = None,
        net: Any = None,
        format: Any = None,
        activations: Any = None,
        kv_cache: Any = None,
        **more: Any,
    ) -> None:
        super().__init__()
        if unknown := [key for key in more if key not in IGNORED]:
            raise TypeError(
                f"harness: model_args has {shown(unknown[0])}, expected path, format, activations and kv_cache"
            )
        if (path is None) == (net is None):
            raise TypeError("harness: model_args needs path, a GGUF file or the folder of a language model")
        self.net = open_llm(path) if net is None else net
        weights = None if format is None else self.net.quantized(format)
        self._way = Way(weights, activations, kv_cache)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return (log-likelihood, whether it is what greedy decoding gives) of each (context, continuation)."""
        return [self._likelihood(*request.args) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihood of each text, in windows of the whole context of which each token is in one."""
        return [self._rolling(request.args[0]) for request in requests]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return what follows each context, up to a text at which the task says to stop."""
        return [self._answer(*request.args) for request in requests]

    @property
    def _prefix(self) -> int:
        """The token before a text without a context."""
        begin = self.net.tokens.begin
        return begin if begin is not None else min(self.net.tokens.ends, default=0)

    def _likelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        spaces = len(context) - len(context.rstrip())
        if spaces:  # a blank belongs to the word after it
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        encode = self.net.tokens.encode
        before = encode(context) if context else [self._prefix]
        whole = encode(context + continuation) if context else [*before, *encode(continuation, special=False)]
        after = whole[len(before) :]
        return self._scored([*before, *after], len(after))

    def _scored(self, ids: list[int], count: int) -> tuple[float, bool]:
        """Return the log-likelihood of the last `count` tokens, at most the context's before them."""
        if not count:
            return 0.0, True
        some = np.asarray(ids[-(self.net.shape.context + 1) :], np.int64)
        count = min(count, len(some) - 1)
        run = Run(self.net, self._way, 1)
        logits = run.scores(run.hidden_of(some[:-1])[-count:])
        logs, wanted = log_softmax(logits, softmax(logits)), some[-count:]
        likelihood = float(logs[np.arange(count), wanted].sum(dtype=np.float64))
        return likelihood, bool((logs.argmax(axis=-1) == wanted).all())

    def _rolling(self, text: str) -> float:
        ids, most = self.net.tokens.encode(text, special=False), self.net.shape.context
        total = 0.0
        for at in range(0, len(ids), most):
            part = ids[at : at + most]
            begin = max(0, at + len(part) - most)  # the last window is as long as the others
            before = [self._prefix] if at == 0 else ids[begin - 1 if begin else 0 : at]
            total += self._scored([*before, *part], len(part))[0]
        return total

    def _answer(self, context: str, options: Any) -> str:
        until = options.get("until") or []
        stops = [until] if isinstance(until, str) else list(until)
        count = min(int(options.get("max_gen_toks", MOST_NEW)), self.net.shape.context - 1)
        heat = float(options.get("temperature", 0.0)) if options.get("do_sample", False) else 0.0
        ids = (self.net.tokens.encode(context) or [self._prefix])[-(self.net.shape.context - count) :]
        found: list[int] = []
        steps: Iterable[Any] = self.net._steps(np.asarray(ids, np.int64), count, heat, 0, self._way)
        for token in steps:
            if int(token[0]) in self.net.tokens.ends:
                break
            found.append(int(token[0]))
            text = self.net.tokens.decode(found)
            if any(stop in text for stop in stops if stop):
                break
        text = self.net.tokens.decode(found)
        for stop in stops:
            text = text.split(stop)[0] if stop else text
        return text


def _model_class() -> Any:
    try:
        from lm_eval.api.model import LM  # optional
    except ImportError:
        raise ImportError("harness: the package lm_eval is not installed: pip install lm_eval") from None
    return type("HeterocomputeLM", (Answers, LM), {"__doc__": Answers.__doc__})


def harness_model(path: Any = None, **options: Any) -> Any:
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
