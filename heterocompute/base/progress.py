"""Progress of long work, reported step by step: to the caller, to the logger "heterocompute", as a notebook's bar."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from .errors import WrongType, shown
from .float_env import call_back

Progress = Callable[[int, int, str], None]
LOGGER = "heterocompute"
SILENT, INTERVAL = 2.0, 1.0  # seconds before and between lines of a bar that nobody asked for


def reported(progress: Progress | bool | None, name: str, total: int = 0) -> Progress | None:
    """Return what a caller asks for with ``progress=`` as a function, or None.

    Parameters
    ----------
    progress : callable, bool or None
        ``progress(done, total, text)``; True: a bar of tqdm; False: nothing; None: a bar in notebooks.
    name : str
        The function, for errors and the bar.
    total : int
        Steps, if they are known already.

    Raises
    ------
    TypeError
        `progress` is something else.
    ImportError
        A bar is asked for and tqdm is not installed.

    Examples
    --------
    >>> reported(False, "study") is None, reported(print, "study") is print
    (True, True)
    """
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise WrongType(f"{name}: progress is {shown(progress)}, expected a function, True, False or None")
    if progress is True:
        found = bar(name, total)
        if found is None:
            raise ImportError(f"{name}: progress=True needs tqdm: pip install tqdm")
        return found
    if progress is None:
        return bar(name, total, SILENT) if in_notebook() else None
    return progress or None


class Steps:
    """Tell the caller how far the work is.

    Parameters
    ----------
    progress : callable, bool or None
        ``progress(done, total, text)``; True: a bar of tqdm; False: nothing; None: a bar in notebooks.
    """

    def __init__(self, total: int, progress: Progress | bool | None, name: str = "study") -> None:
        self.done, self.total, self.name = 0, total, name
        self.progress = reported(progress, name, total)

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


def in_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def bar(name: str, total: int, silent: float = 0.0) -> Progress | None:
    """Return a function that moves a tqdm bar, which appears after `silent` seconds; None if tqdm is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a notebook without ipywidgets, whose bar is a line of text
            from tqdm.auto import tqdm  # optional
    except ImportError:
        return None
    bar = tqdm(total=total, desc=name, leave=False, delay=silent, mininterval=INTERVAL if silent else 0.0)

    def move(done: int, total: int, text: str) -> None:
        bar.total = total
        bar.set_postfix_str(text, refresh=False)
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    return move
