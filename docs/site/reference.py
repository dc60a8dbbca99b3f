"""Write the reference: one page per public object, and one table per subject.

Subjects follow from the module in which an object is defined, so a new public name has a page without an edit here.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import heterocompute as hc

#: Subject and title by the beginning of the module's name, the longest that fits.
SUBJECTS = {
    "heterocompute.formats": ("formats", "Number formats"),
    "heterocompute.arrays": ("arrays", "Packed arrays"),
    "heterocompute.products": ("products", "Matmul, convolution, quantization"),
    "heterocompute.products.layers": ("layers", "Layers and attention"),
    "heterocompute.products.explain": ("plan", "Explain and tune"),
    "heterocompute.products.tune": ("plan", "Explain and tune"),
    "heterocompute.bench.calibration": ("plan", "Explain and tune"),
    "heterocompute.base": ("settings", "Settings"),
    "heterocompute.files": ("files", "Files and checkpoints"),
    "heterocompute.interop": ("interop", "Other libraries"),
    "heterocompute.studies": ("studies", "Studies"),
    "heterocompute.zoo": ("studies", "Studies"),
    "heterocompute.ptq": ("ptq", "Post-training quantization"),
    "heterocompute.pruning": ("pruning", "Pruning"),
    "heterocompute.training": ("training", "Training"),
    "heterocompute.proof": ("proof", "Proof and test vectors"),
    "heterocompute.emulate": ("emulate", "Arithmetic of given hardware"),
    "heterocompute.hardware": ("hardware", "Model of hardware"),
    "heterocompute.hardware.chips": ("devices", "Devices"),
    "heterocompute.hardware.network": ("networks", "Networks and counting"),
    "heterocompute.hardware.cost": ("cost", "Roofline, memory, fusion"),
    "heterocompute.hardware.mapper": ("mapping", "Mapping onto memories"),
    "heterocompute.hardware.systolic": ("mapping", "Mapping onto memories"),
    "heterocompute.hardware.accelerators": ("accelerators", "Accelerators of the literature"),
    "heterocompute.hardware.silicon": ("accelerators", "Accelerators of the literature"),
    "heterocompute.hardware.systems": ("systems", "Whole systems"),
    "heterocompute.hardware.ledger": ("published", "Published figures"),
}
#: Modules among the public names whose members have pages of their own.
OPENED = ("heterocompute.hardware", "heterocompute.ptq", "heterocompute.training", "heterocompute.emulate",
          "heterocompute.zoo", "heterocompute.products.layers", "heterocompute.pruning.scores",
          "heterocompute.hardware.accelerators", "heterocompute.hardware.cost.memory",
          "heterocompute.hardware.cost.intensity", "heterocompute.hardware.systems.multi",
          "heterocompute.hardware.systolic", "heterocompute.hardware.layers", "heterocompute.hardware.mapper",
          "heterocompute.hardware.results", "heterocompute.hardware.systems")  # fmt: skip
SHORT = {"heterocompute": "hc", "heterocompute.hardware": "hw"}


def public_objects(module: ModuleType = hc, name: str = "heterocompute") -> Iterator[tuple[str, Any]]:
    """Yield the public path and the object of every public function and class, modules opened."""
    for key in sorted(module.__all__):
        one = getattr(module, key)
        path = f"{name}.{key}"
        if isinstance(one, ModuleType):
            if one.__name__ in OPENED:
                yield from public_objects(one, path)
        elif inspect.isclass(one) or inspect.isfunction(one):
            yield path, one


def subject_of(one: Any) -> tuple[str, str]:
    """Return the file name and the title of an object's subject."""
    known = [prefix for prefix in SUBJECTS if (one.__module__ + ".").startswith(prefix + ".")]
    if not known:
        raise ValueError(f"reference: {one.__module__} has no subject in SUBJECTS")
    return SUBJECTS[max(known, key=len)]


def short(path: str) -> str:
    """Return the name as pages write it: hc.quantize, hw.roofline."""
    for module in sorted(SHORT, key=len, reverse=True):
        if path.startswith(module + "."):
            return SHORT[module] + path[len(module) :]
    return path


def summary(one: Any) -> str:
    """Return the first line of the docstring."""
    return (inspect.getdoc(one) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def used_in(path: str, pages: dict[Path, str]) -> list[Path]:
    """Return the pages whose text contains the name."""
    pattern = re.compile(re.escape(short(path)) + r"\b(?!\.)")
    return [page for page, text in pages.items() if pattern.search(text)]


def write(target: Path, docs: Path) -> None:
    """Write the pages of the reference into a folder, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    (target / "objects").mkdir(parents=True)
    pages = {
        page: page.read_text()
        for page in sorted(docs.glob("*.md"))
        if page.name not in ("changelog.md", "benchmarks.md")
    }
    pages |= {page: page.read_text() for page in sorted((docs / "formats").glob("*.md"))}
    tables: dict[tuple[str, str], list[tuple[str, Any]]] = defaultdict(list)
    for path, one in public_objects():
        tables[subject_of(one)].append((path, one))
        (target / "objects" / f"{path}.rst").write_text(object_page(path, one, pages, docs))
    for (name, title), rows in tables.items():
        lines = [f"# {title}", "", "| name | |", "|---|---|"]
        lines += [f"| [`{short(path)}`](objects/{path}.rst) | {summary(one)} |" for path, one in rows]
        lines += ["", "```{toctree}", ":hidden:", "", *(f"objects/{path}" for path, _ in rows), "```", ""]
        (target / f"{name}.md").write_text("\n".join(lines))
    order = dict.fromkeys(name for name, _ in SUBJECTS.values())
    titles = {name: title for name, title in tables}
    lines = [
        "# Public names",
        "",
        "One page per public object, by subject. `hc` is `heterocompute`, `hw` is `heterocompute.hardware`.",
        "",
    ]
    lines += [
        f"- [{titles[name]}]({name}.md): {len(tables[name, titles[name]])} names" for name in order if name in titles
    ]
    lines += ["- [C core](c-api.md): the types and entry points of `csrc/hc.h`", "", "```{toctree}", ":hidden:", ""]
    lines += [*(name for name in order if name in titles), "c-api", "```", ""]
    (target / "index.md").write_text("\n".join(lines))
    header = (docs.parent / "csrc/hc.h").read_text()
    (target / "c-api.md").write_text(
        "# C core\n\nThe C core has no stable interface. All files of `csrc/` share this header.\n\n"
        f"```c\n{header}```\n"
    )


def object_page(path: str, one: Any, pages: dict[Path, str], docs: Path) -> str:
    """Return the page of an object: signature, docstring, and the pages that use it."""
    name = short(path)
    kind = "autoclass" if inspect.isclass(one) else "autofunction"
    lines = [name, "=" * len(name), "", f".. {kind}:: {one.__module__}.{one.__qualname__}"]
    if kind == "autoclass":
        lines += ["   :members:", "   :inherited-members: tuple, list, dict, int, str, ABC, Mapping, object"]
    found = used_in(path, pages)
    if found:
        lines += ["", "Used in", "-------", ""]
        lines += [f"- :doc:`/docs/{page.relative_to(docs).with_suffix('').as_posix()}`" for page in found]
    return "\n".join(lines) + "\n"
