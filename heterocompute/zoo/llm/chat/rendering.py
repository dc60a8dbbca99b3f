"""Renders one chat template in a process of its own: `template.py` starts this file, which imports no package of ours.

A template comes from a file of weights. The sandbox of jinja2 keeps it from Python, but bounds neither time nor memory:
so this process has limits of both.

stdin   JSON: source, values, now (an ISO date or null), path (folder with jinja2), seconds, memory, most (bytes)
stdout  JSON: {"text": ...} or {"error": ...}
"""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import datetime
from typing import Any


def main() -> None:
    """Render what stdin states."""
    asked = json.loads(sys.stdin.buffer.read())
    sys.path.append(asked["path"])
    import jinja2  # optional
    import jinja2.ext  # optional
    import jinja2.sandbox  # optional

    _bound(asked["seconds"], asked["memory"])
    try:
        text = rendered(jinja2, asked)
    except MemoryError:
        found = {"error": "needs more memory than a chat template may have"}
    except RecursionError:
        found = {"error": "calls itself too often"}
    except Exception as error:  # whatever a template does wrong
        found = {"error": f"{type(error).__name__}: {error}"[:2000]}
    else:
        found = {"text": text} if len(text.encode("utf-8", "replace")) <= asked["most"] else {"error": "is too long"}
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def _bound(seconds: float, memory: int) -> None:
    """End this process after so much time, and refuse memory beyond the limit."""
    timer = threading.Timer(seconds, os._exit, (124,))
    timer.daemon = True
    timer.start()
    try:
        import resource  # optional: POSIX
    except ImportError:  # not POSIX
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    try:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (ValueError, OSError):  # systems without this limit
        return


def rendered(jinja2: Any, asked: dict[str, Any]) -> str:
    """Return the text of a template, in the environment that transformers gives it."""

    class Generation(jinja2.ext.Extension):  # type: ignore[misc]
        """The tag of transformers around the answers of the assistant, which is for training."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    def refuse(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def as_json(
        value: object, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def now(form: str) -> str:
        moment = datetime.now() if asked["now"] is None else datetime.fromisoformat(asked["now"])
        return moment.strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = now
    text: str = environment.from_string(asked["source"]).render(**asked["values"])
    return text


if __name__ == "__main__":
    main()
