"""The README and the pages of docs/: their blocks run from top to bottom with the stated results, and links exist.

The ```python and ```sh blocks of a page run in order in one folder, which has a small checkpoint, model.safetensors, in
place of the reader's. Python blocks share their names. In ```sh blocks, lines run that call the command `heterocompute`
or write a file, except `LEFT_OUT`. A trailing comment on an expression, `1 + 1  # 2`, is its value, and a ```text block
right after Python is its output; `...` stands for anything.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import heterocompute as hc

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "csrc/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "reference" not in page.parts]  # written by docs/site/reference.py
PAGES += [page for page in sorted(ROOT.glob("*.md")) if page not in PAGES]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")

# Of Python blocks: without it such a block is left out, and with it those that use what it would have made.
OPTIONAL = ("sklearn", "scipy", "torch", "onnx", "transformers")
# Commands that take seconds to minutes, and have tests of their own: bench, the whole main job, training, emulation,
# every machine with every layer of a large network, every published figure, and files that a page does not make.
LEFT_OUT = re.compile(
    r"heterocompute (bench|study( --network adder| --retrain .*|.* --emulate .*)?$|accelerators resnet50$"
    r"|.*model-folder|roofline model.gguf|reproduce( off.*|.* --model (digits|model.onnx).*)?$)"
)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def blocks(page: Path) -> Iterator[tuple[str, str, str | None]]:
    """Yield the language and text of each block of a page that runs, with its output if the page shows it."""
    words = page.read_text()
    fences = list(FENCE.finditer(words))
    for i, fence in enumerate(fences):
        if fence[1] not in ("python", "sh"):
            continue
        following = fences[i + 1] if i + 1 < len(fences) else None
        if following and (following[1] != "text" or words[fence.end() : following.start()].strip()):
            following = None
        yield fence[1], fence[2], following[2] if following else None


def run(code: str, names: dict[str, Any]) -> None:
    """Run a block, and compare the value of each expression that has a trailing comment."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = {token.start[0]: token.string[1:].strip() for token in tokens if token.type == tokenize.COMMENT}
    for statement in ast.parse(code).body:
        shown = comments.get(statement.end_lineno or 0) if isinstance(statement, ast.Expr) else None
        source = ast.get_source_segment(code, statement) or ""
        if isinstance(statement, ast.Expr) and shown is not None:
            found = repr(eval(source, names))
            assert is_shown(found, shown), f"{source}\n  is    {found}\n  shown {shown}"
        else:
            exec(compile(ast.Module([statement], []), "<docs>", "exec"), names)


def needs(code: str, name: str) -> bool:
    """Tell whether a block imports an optional package, or one of our modules that imports it."""
    return any(words in code for words in (f"import {name}", f"from {name}", f"interop.{name}"))


def made(code: str) -> set[str]:
    """Return the names that a block assigns."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def used(code: str) -> set[str]:
    """Return the names that a block reads and does not assign itself."""
    names = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Load)} - made(code)


def is_shown(found: str, shown: str) -> bool:
    """Tell whether two texts are equal, except for white space, the kind of quotes and `...`."""

    def plain(text: str) -> str:
        return re.sub(r"\s+", "", text).replace('"', "'")

    pattern = plain(shown).replace("[", "[[]").replace("?", "[?]").replace("...", "*")
    return fnmatchcase(plain(found), pattern)


def commands(block: str) -> str:
    """Return the lines of a shell block that run: those with the command, and those that write files."""
    kept = []
    for command in re.findall(r"(?:.*<<'END'.*\n(?:.*\n)*?END\n|(?:.*\\\n)*.*\n)", block):
        plain = command.partition("#")[0].strip()
        if command.startswith("cat > ") or plain.startswith("heterocompute ") and not LEFT_OUT.match(plain):
            kept.append(command)
    return "".join(kept)


@each_page
@pytest.mark.sweep(every=6)
def test_the_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HETEROCOMPUTE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    weights = ("embeddings.weight", "0.attention.query.weight", "0.dense.weight", "fc.weight")
    save_file({name: rng.standard_normal((8, 64), dtype=np.float32) for name in weights}, "model.safetensors")
    missing: set[str] = set()  # names of blocks that were left out
    for language, code, printed in blocks(page):
        if language == "sh" and page == PAGES[0]:
            continue  # tests/house/test_readme.py
        if language == "sh":
            script = f'heterocompute() {{ {sys.executable} -m heterocompute "$@"; }}\n{commands(code)}'
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True)
            assert done.returncode == 0, f"{code}\n{done.stderr}"
            continue
        if any(needs(code, name) and find_spec(name) is None for name in OPTIONAL) or missing & used(code):
            missing |= made(code)
            continue
        missing -= made(code)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            run(code, names)
        if printed is not None:
            assert is_shown(output.getvalue(), printed), f"{code}\nprints\n{output.getvalue()}\nshown\n{printed}"


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        is_generated = page.parent.name == "site" and target.startswith("reference/")  # docs/site/reference.py
        if not target.startswith("https://") and not is_generated:
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links {target}"


def test_every_format_has_its_page() -> None:
    table = (ROOT / "docs/formats.md").read_text()
    for family in hc.Format.families():
        page = ROOT / f"docs/formats/{family.family}.md"
        assert page.exists(), f"docs/formats/{family.family}.md says what {family.family} is and where it comes from"
        assert f"(formats/{page.name})" in table and family.description in table, (
            f"docs/formats.md lists {family.family}"
        )


def test_texts_of_formats_are_formats() -> None:
    """Code in pages that begins with the letters of a family and a digit is a valid format string."""
    text = re.compile(r"`((?:int|vsq|log|fp|bf|tf|mxfp|mxint|nvfp)\d[\w-]*)`")
    pages = [ROOT / "README.md", ROOT / "docs/formats.md", *(ROOT / "docs/formats").glob("*.md")]
    found = {name for page in pages for name in text.findall(page.read_text())}
    assert len(found) >= 10
    for name in found:
        assert str(hc.format(name)) == name


def test_the_two_commands_stand_in_the_first_screen() -> None:
    screen = (ROOT / "README.md").read_text().splitlines()[:30]
    for command in ("python3 -m venv .venv && ", ".venv/bin/pip install -e '.[test]' && "):
        assert any(line.startswith(command) for line in screen), command


def test_every_environment_variable_stands_on_its_page() -> None:
    sources = [
        *(ROOT / "heterocompute").rglob("*.py"),
        *(ROOT / "csrc").rglob("*.[ch]"),
        *(ROOT / "tests").rglob("*.py"),
    ]
    word = re.compile(r"\bHETEROCOMPUTE_[A-Z_]*[A-Z]\b")
    read = {name for path in (*sources, ROOT / "setup.py") for name in word.findall(path.read_text())}
    rows = set(
        re.findall(r"^\| `(HETEROCOMPUTE_[A-Z_]+)` \|", (ROOT / "docs/environment.md").read_text(), re.MULTILINE)
    )
    assert rows == read and len(rows) >= 8
    assert "[docs/environment.md](docs/environment.md)" in (ROOT / "README.md").read_text()
