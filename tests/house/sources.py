"""The sources for the tests of structure, and the report of violations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
C_FILES = sorted(path for pattern in ("*.c", "*.h") for path in (ROOT / "csrc").rglob(pattern))
PY_FILES = sorted((ROOT / "heterocompute").rglob("*.py"))
TEST_FILES = sorted(path for pattern in ("*.py", "*.c", "*.h") for path in (ROOT / "tests").rglob(pattern))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def report(rule: str, found: Iterable[str]) -> None:
    offenders = list(dict.fromkeys(found))
    assert not offenders, rule + ":\n" + "\n".join(offenders)


def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Return the nodes that can be reached from themselves."""
    reached = {node: set(targets) for node, targets in graph.items()}
    for middle in graph:
        for targets in reached.values():
            if middle in targets:
                targets |= reached[middle]
    return [node for node, targets in reached.items() if node in targets]
