"""Every example in a docstring runs and gives the stated result."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import heterocompute

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(heterocompute.__path__, "heterocompute.")
    if not module.name.endswith(("__main__", "._heterocompute"))
)


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
