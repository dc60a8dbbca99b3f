"""Progress of long work, reported step by step: to the caller, to the logger "heterocompute", as a notebook's bar."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .errors import WrongType, shown
from .float_env import call_back

Progress = Callable[[int, int, str], None]
LOGGER = "heterocompute"


class Steps:
    """Tell the caller how far the work is."""

    def __init__(self, total: int, progress: Progress | None, name: str = "study") -> None:
        if progress is not None and not callable(progress):
            raise WrongType(f"{name}: progress is {shown(progress)}, expected a function or None")
        self.done, self.total, self.name = 0, total, name
        self.progress = notebook_bar(name, total) if progress is None else progress

    def __call__(self, text: str) -> None:
        logging = sys.modules.get("logging")  # a caller who wants messages has imported it
        if logging is not None:
            logging.getLogger(LOGGER).debug("%s: %d of %d: %s", self.name, self.done, self.total, text)
        if self.progress is not None:
            call_back(self.progress, self.done, self.total, text)
        self.done += 1

    def finish(self) -> None:
        if self.progress is not None:
            call_back(self.progress, self.total, self.total, "done")


def notebook_bar(name: str, total: int) -> Progress | None:
    """Return a function that moves a tqdm bar; None outside notebooks, or if tqdm is not installed."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    try:
        from tqdm.auto import tqdm  # optional
    except ImportError:
        return None
    bar = tqdm(total=total, desc=name, leave=False)

    def move(done: int, total: int, text: str) -> None:
        bar.n, bar.total = done, total
        bar.set_postfix_str(text)
        if done >= total:
            bar.close()

    return move
