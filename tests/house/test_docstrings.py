"""Examples of docstrings run and give the stated results; their parameters are those of the function."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from sources import PY_FILES, name, report

import heterocompute

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(heterocompute.__path__, "heterocompute.")
    if not module.name.endswith(("__main__", "._heterocompute"))
)
SECTION = r"^Parameters\n-+\n(.*?)(?:\n\n\w+\n---|\Z)"


@pytest.mark.parametrize("name", ["heterocompute", *MODULES])
@pytest.mark.sweep(every=4)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    if name.startswith(("heterocompute.interop.torch.", "heterocompute.interop.models.")):  # their packages need none
        pytest.importorskip("torch")
    if name == "heterocompute.interop.transformers":
        pytest.importorskip("transformers", minversion="5")
    module = importlib.import_module(name)
    failures, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert failures == 0, f"{failures} examples of {name} fail: see the captured output"


def test_parameters_of_a_docstring_are_those_of_the_function() -> None:
    """Also of internal functions, whose names no other rule reads."""
    found = []
    for path in PY_FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                given = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
                section = re.search(SECTION, ast.get_docstring(node) or "", re.DOTALL | re.MULTILINE)
                heads = re.findall(r"^([*\w][*\w, ]*?)(?= ?:|$)", section[1] if section else "", re.MULTILINE)
                names = {one.strip(" *") for head in heads for one in head.split(",")}
                found += [f"{name(path)}:{node.lineno} {node.name}: {wrong}" for wrong in sorted(names - given)]
    report("a docstring names the parameters of its function", found)
