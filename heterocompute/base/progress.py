"""How far long work is, told to the caller step by step."""

from __future__ import annotations

from collections.abc import Callable

from .float_env import call_back
from .values import shown

__all__ = ["Progress", "Steps"]

Progress = Callable[[int, int, str], None]


class Steps:
    """Tell the caller how far the work is."""

    def __init__(self, total: int, progress: Progress | None, name: str = "study") -> None:
        if progress is not None and not callable(progress):
            raise TypeError(f"{name}: progress is {shown(progress)}, wanted a function or None")
        self.done, self.total, self.progress = 0, total, progress

    def __call__(self, text: str) -> None:
        if self.progress is not None:
            call_back(self.progress, self.done, self.total, text)
        self.done += 1

    def finish(self) -> None:
        if self.progress is not None:
            call_back(self.progress, self.total, self.total, "done")
