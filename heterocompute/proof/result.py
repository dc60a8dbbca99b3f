"""The answer of `verify`: the status of each tensor, and of each file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..base.notebooks.shown import Facts
from ..report.results.saved import Saved
from .statement import Statement

VERIFIED, DIFFERENT, UNCHECKED = "verified", "different", "not checked"
EQUAL, DIFFERS, MISSING, EXTRA, SKIPPED = "equal", "differs", "missing", "extra", "unchecked"


@dataclass(frozen=True)
class TensorCheck:
    """The check of one tensor.

    Attributes
    ----------
    name : str
    status : {"equal", "differs", "missing", "extra", "unchecked"}
    index : tuple of int or None
        The first index that differs: of the tensor if codes differ, otherwise of the stored part that `how` names.
    how : str
        How the tensor differs.
    """

    name: str
    status: str
    index: tuple[int, ...] | None = None
    how: str = ""


@dataclass(frozen=True)
class FileCheck:
    """A difference outside of the tensors.

    Attributes
    ----------
    name : str
        The name of the file.
    offset : int or None
        The first byte that differs.
    how : str
    """

    name: str
    offset: int | None
    how: str


@dataclass(frozen=True)
class Verification(Facts, Saved):
    """The answer of `heterocompute.verify`; `save` writes a file that `load` reads.

    Attributes
    ----------
    ok : bool
        Whether the file is verified.
    verdict : str
        ``"verified"``, ``"different"`` or ``"not checked"``, and the reason.
    tensors : list of TensorCheck
    files : list of FileCheck
        Differences in headers, indices and other files.
    statement : Statement or None
        The statement that was used.
    nearest : str or None
        With ``guess=True``: the recipe that gives the bytes, or the nearest recipe.
    seed : int or None
        Seed of the sample.
    """

    ok: bool
    verdict: str
    tensors: list[TensorCheck] = field(repr=False)
    files: list[FileCheck] = field(default_factory=list, repr=False)
    statement: Statement | None = field(default=None, repr=False)
    nearest: str | None = None
    seed: int | None = None

    kind = "verification"

    @property
    def code(self) -> int:
        """Exit code of the command: 0 verified, 1 different, 2 not checked."""
        return 0 if self.ok else 1 if self.verdict.startswith(DIFFERENT) else 2

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "tensors": [{**vars(one), "index": None if one.index is None else list(one.index)} for one in self.tensors],
            "files": [dict(vars(one)) for one in self.files],
            "nearest": self.nearest,
            "seed": self.seed,
        }

    def __str__(self) -> str:
        lines = [
            f"{one.name}: {one.status}"
            + ("" if one.index is None else f" at {one.index}")
            + (one.how and f", {one.how}")
            for one in self.tensors
            if one.status != EQUAL
        ]
        return "\n".join([*lines, *(f"{one.name}: {one.how}" for one in self.files), self.verdict])
