"""Ctrl-C while the command `heterocompute` is still importing, or already ending: one word, exit code 130.

The package imports this file first, so it imports as little as possible. Around a command, `seen` makes Ctrl-C the
usual KeyboardInterrupt.
"""

from __future__ import annotations

import os
import sys


def is_command() -> bool:
    """Tell whether this process is the command, as a script or as ``python -m heterocompute``."""
    name = os.path.basename((getattr(sys, "argv", None) or [""])[0] or "")
    if name == "-m":  # while the module is being located
        return _module() in ("heterocompute", "heterocompute.__main__")
    return name in ("heterocompute", "heterocompute.exe")


def _module() -> str:
    """Return the argument of the interpreter's option -m, which may follow others (-Im, -X dev -m)."""
    given = iter(sys.orig_argv[1:])
    for text in given:
        at = min((i for i in map(text.find, "mXW") if i > 0), default=0)
        if at and text[0] == "-" and text[1] != "-":
            value = text[at + 1 :] or next(given, "")
            if text[at] == "m":
                return value
    return ""


class seen:
    """Make Ctrl-C raise KeyboardInterrupt in the ``with`` block; outside it, Ctrl-C ends the process."""

    def __enter__(self) -> None:
        self._watched = _watched()
        if self._watched:
            import signal  # only what is needed, 1 ms

            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        if self._watched:
            import signal  # only what is needed, 1 ms

            signal.signal(signal.SIGINT, _end)


def over() -> None:
    """Let a finished command exit with its code, although Python removes handlers while it shuts down.

    Ctrl-C ends the command with 130 up to here, and is ignored from here on. The mask is for this thread, whose pending
    signals are looked at once more; the handler is for threads of other libraries.
    """
    if _watched():
        import signal  # only what is needed, 1 ms

        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _watched() -> bool:
    import signal  # only what is needed, 1 ms

    return signal.getsignal(signal.SIGINT) is _end


def _end(number: int, frame: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:  # standard error may be closed
        os._exit(130)


if is_command():
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # no handler of another program
        try:
            signal.signal(signal.SIGINT, _end)
        except ValueError:  # imported by another thread
            pass
