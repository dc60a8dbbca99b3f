"""One text that grows token by token, and a chat: its turns share a run, so that each token is computed once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ....base.errors import WrongValue
from ....base.float_env import counts_subnormals
from ....base.texts import counted
from ....products.divergence import kl_divergence
from ..run import Run, RunOptions
from .sampling import Pieces, Sampling

if TYPE_CHECKING:
    from ..network import LanguageModel

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

GREEDY = Sampling()


class Following:
    """A run that follows sequences: tokens that it has seen at the beginning of a sequence are not computed again."""

    def __init__(self, net: LanguageModel, way: RunOptions) -> None:
        self._net, self._way = net, way
        self._run, self._seen = Run(net, way, 1), np.empty(0, np.int64)

    @counts_subnormals
    def after(self, ids: IntArray) -> FloatArray:
        """Return the logits after a sequence, which may continue the last one."""
        seen = len(self._seen)
        if seen >= len(ids) or not np.array_equal(ids[:seen], self._seen):
            self._run, seen = Run(self._net, self._way, 1), 0
        found: FloatArray = self._run.logits(ids[None, seen:], last=True)[0, -1]
        self._seen = ids
        return found


class Answer:
    """An answer, token by token.

    Parameters
    ----------
    follow : Following
    ids : ndarray of int64
        The tokens before it.
    count : int
        Most tokens.
    stops : sequence of str
        Texts that end it.
    watch : callable, optional
        Called with all tokens so far and the logits after them, before each draw.

    Attributes
    ----------
    tokens : list of int
        All tokens so far; the one that ends the text is none of them.
    """

    def __init__(
        self, net: LanguageModel, follow: Following, ids: IntArray, count: int, sampling: Sampling,
        stops: Sequence[str] = (), watch: Callable[[IntArray, FloatArray], None] | None = None,
    ) -> None:  # fmt: skip
        self._net, self._follow, self._ids, self._count, self._sampling = net, follow, ids, count, sampling
        self._watch = watch
        self._pieces, self.tokens = Pieces(net.tokenizer, ids.tolist(), stops), list[int]()

    def __iter__(self) -> Iterator[str]:
        """Yield the pieces of the text, each as soon as it is certain."""
        rng = np.random.default_rng(self._sampling.seed)
        for token in self._drawn(rng):
            if piece := self._pieces.add(token):
                yield piece
            if self._pieces.ended:
                return
        if piece := self._pieces.rest():
            yield piece

    def _drawn(self, rng: np.random.Generator) -> Iterator[int]:
        for _ in range(self._count):
            so_far = np.concatenate([self._ids, np.array(self.tokens, np.int64)])
            logits = self._follow.after(so_far)
            if self._watch is not None:
                self._watch(so_far, logits)
            token = self._sampling.drawn(logits, rng)
            if token in self._net.tokenizer.ends:
                return
            self.tokens.append(token)
            yield token


class Compared:
    """The divergence of a network from the stored one, token by token.

    Attributes
    ----------
    kl : float or None
        Mean of KL(stored || this network) in nats.
    agreement : float or None
        Fraction of tokens that both find most likely.
    each : list of float
        KL(stored || this network) of each token, in nats.
    """

    def __init__(self, stored: Following) -> None:
        self._stored, self._count, self._kl, self._same = stored, 0, 0.0, 0
        self.each: list[float] = []

    @counts_subnormals
    def watch(self, ids: IntArray, logits: FloatArray) -> None:
        """Add the logits after some tokens."""
        stored = self._stored.after(ids)
        self._count += 1
        self.each.append(kl_divergence(stored[None], logits[None]))
        self._kl += self.each[-1]
        self._same += int(stored.argmax() == logits.argmax())

    @property
    def kl(self) -> float | None:
        return self._kl / self._count if self._count else None

    @property
    def agreement(self) -> float | None:
        return self._same / self._count if self._count else None


class Chat:
    """A conversation with a language model.

    Parameters
    ----------
    net : LanguageModel
    weights, activations, kv_cache
        As in `LanguageModel.generate`.
    tokens : int
        Most tokens of an answer.
    sampling : Sampling
    system : str, optional
        A first message of the role ``system``.
    stop : sequence of str
        Texts that end an answer.
    template, template_name, now
        As in `LanguageModel.chat_ids`.
    against : bool
        Also ask the network as stored, which gets the same messages.

    Attributes
    ----------
    messages : list of dict
    tokens : int
        Tokens of the last answer.
    stored : str
        With `against`, the stored network's answer to the last message.
    """

    def __init__(
        self, net: LanguageModel, weights: Mapping[str, Any] | None = None, activations: object = None,
        kv_cache: object = None, tokens: int = 512, sampling: Sampling = GREEDY, system: str | None = None,
        stop: Sequence[str] = (), template: str | None = None, template_name: str | None = None,
        now: datetime | str | None = None, against: bool = False,
    ) -> None:  # fmt: skip
        self._net, self._n, self._sampling, self._stop = net, tokens, sampling.checked("chat"), tuple(stop)
        self._template, self._now = (template, template_name), now
        self._way = RunOptions(weights, activations, kv_cache)
        self._follow = Following(net, self._way)
        self._others = (Following(net, RunOptions()), Following(net, RunOptions())) if against else None
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forget the conversation; a system message stays."""
        self.messages = list(self._system)
        self.tokens, self.stored = 0, ""
        self._compared: Compared | None = None

    @property
    def kl(self) -> float | None:
        """Mean KL(stored || this network) over the tokens of the last answer so far, in nats."""
        return None if self._compared is None else self._compared.kl

    @property
    def kl_of_tokens(self) -> list[float]:
        """KL(stored || this network) of each token of the last answer, in nats; it grows while `say` yields."""
        return [] if self._compared is None else list(self._compared.each)

    @property
    def agreement(self) -> float | None:
        """Fraction of the tokens of the last answer that both networks find most likely."""
        return None if self._compared is None else self._compared.agreement

    def gain(self, activations: str) -> float | None:
        """Measure how many times faster one token is with another format of activations.

        Returns
        -------
        float or None
            The ratio of the least of two times, measured in turns. None if the weights do not allow this format.
        """
        ids, least = np.zeros(1, np.int64), [math.inf, math.inf]
        ways = self._way, self._way._replace(activations=activations)
        try:
            for i in (0, 1, 0, 1):
                begun = time.perf_counter()
                Following(self._net, ways[i]).after(ids)
                least[i] = min(least[i], time.perf_counter() - begun)
        except (ValueError, NotImplementedError):
            return None
        return least[0] / least[1]

    def say(self, text: str) -> Iterator[str]:
        """Add a message of the user, and yield the pieces of the answer.

        The conversation has both when the answer is complete.

        Raises
        ------
        ValueError
            The conversation fills the context, or the template refuses it.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        ids = self._net.chat_ids(asked, *self._template, now=self._now)
        room = self._net.shape.context - len(ids)
        if room < 1:
            raise WrongValue(
                f"chat: the conversation has {counted(len(ids), 'token')}, expected fewer than the context of "
                f"{self._net.shape.context}: reset it"
            )
        count, said, watch = min(self._n, room), "", None
        if self._others is not None:
            self._compared = Compared(self._others[0])
            watch = self._compared.watch
        answer = Answer(self._net, self._follow, ids, count, self._sampling, self._stop, watch)
        self.tokens, self.stored = 0, ""
        for piece in answer:
            said += piece
            self.tokens = len(answer.tokens)
            yield piece
        self.tokens = len(answer.tokens)
        self.messages = [*asked, {"role": "assistant", "content": said}]
        if self._others is not None:
            self.stored = "".join(Answer(self._net, self._others[1], ids, count, self._sampling, self._stop))
