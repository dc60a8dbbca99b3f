"""A layout of files is declared in one file: no module elsewhere names one."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import heterocompute
from heterocompute.files.layouts.table import LAYOUTS

ROOT = Path(heterocompute.__file__).parent
# Modules in which such a word is another thing: a method of rounding, a kind of file, a program, a format of a chip.
OTHER_WORDS = (
    "ptq/", "studies/", "hardware/", "cli/study.py", "cli/hardware.py", "interop/torch/", "base/magic.py",
    "files/companions.py", "families/", "files/opening.py", "zoo/", "bench/", "training/", "cli/rounding/",
    "interop/opening.py",
)  # fmt: skip


def test_no_module_outside_of_their_folder_names_a_layout() -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("files/layouts/", *OTHER_WORDS)):
            continue
        found += [
            f"{name}:{node.lineno}: {node.value!r}"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and node.value in LAYOUTS
        ]
    assert not found


def test_the_page_of_files_has_every_layout() -> None:
    page = (ROOT.parent / "docs/files.md").read_text()
    assert [name for name in LAYOUTS if f"`{name}`" not in page] == []


def test_a_layout_is_known_in_another_process() -> None:
    """Its text is part of the digest of a file, by which a run that is repeated knows what is finished."""
    for name, layout in LAYOUTS.items():
        assert " at 0x" not in repr(layout) and pickle.loads(pickle.dumps(layout)).name == name
    assert len({repr(layout) for layout in LAYOUTS.values()}) == len(LAYOUTS)
