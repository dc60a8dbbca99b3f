"""Sizes of folders and layers of the package, read from the sources: one test per rule, which lists all violations."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from sources import C_FILES, PY_FILES, ROOT, TEST_FILES, circles, name, report

# Folder of heterocompute/ -> the folders that it may import, besides its own files.
CORE = {"_heterocompute", "base"}
ARRAYS = {*CORE, "formats", "arrays"}
PRODUCTS = {*ARRAYS, "products"}
MODELS = {*PRODUCTS, "families", "pruning", "emulate", "zoo"}
PY_ROOMS: dict[str, set[str]] = {
    "base": {"_heterocompute"},
    "families": {"base"},
    "formats": CORE,
    "arrays": ARRAYS,
    "products": PRODUCTS,
    "pruning": PRODUCTS,
    "emulate": PRODUCTS,
    "zoo": MODELS,
    "reference": set(),
    "report": {"base"},
    "hardware": {*PRODUCTS, "families", "report"},
}
ABOVE = {"studies", "ptq", "training", "files", "interop", "bench", "proof", "cli", "__main__"}
PY_ROOMS |= {"layers": PRODUCTS, "scores": {*PRODUCTS, "pruning"}}  # names of rooms for the import statement
PY_ROOMS |= {room: {*MODELS, "reference", "report", "hardware", *ABOVE} for room in ABOVE}
PY_ROOMS["cli"] |= {"__version__"}
# Imports against the layers, inside a function: the operators of an array are products, a network is retrained, a
# module of PyTorch is calibrated by interop; a language model, and its sizes, are read from its file; a training step
# is modelled in the formats of a recipe.
UPWARD = {("arrays", "products"), ("zoo", "training"), ("ptq", "interop"), ("zoo", "files"), ("hardware", "files")}
UPWARD |= {("hardware", "training")}
OPERATORS = ("heterocompute.arrays.base", "heterocompute.products.matmul")  # the one circle of modules

# What may be imported inside a function: packages and modules that may be missing, and what takes long to import.
OPTIONAL = {
    "fcntl",
    "scipy",
    "sklearn",
    "threadpoolctl",
    "pandas",
    "matplotlib",
    "yaml",
    "onnx",
    "onnxruntime",
    "gguf",
    "torch",
    "peft",
    "transformers",
    "jax",
    "shtab",
    "tokenizers",
    "jinja2",
    "resource",
    "tqdm",
    "lm_eval",
    "distributed",
    "ray",
    "fsspec",
}
SLOW = {"rich", "ml_dtypes", "scipy_openblas32", "difflib"}
SLOW_ROOMS = {
    ("cli", room) for room in ("bench", "emulate", "files", "hardware", "ptq", "report", "studies", "training", "zoo")
}
SLOW_ROOMS |= {("studies", "hardware"), ("studies", "interop"), ("ptq", "hardware"), ("cli", "interop")}
SLOW_ROOMS |= {("cli", "proof"), ("interop", "interop"), ("interop", "zoo")}
QUICK = {"signal"}  # base/interrupt.py comes before everything else

TOP_LEVEL = {
    "csrc",
    "cuda",
    "heterocompute",
    "tests",
    "notebooks",
    "docs",
    "CHANGELOG.md",
    "CITATION.cff",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
}
TOP_LEVEL |= {"pyproject.toml", "setup.py", "noxfile.py", "README.md", "LICENSE"}

MAX_LINES = 600
MAX_HEAD_LINES = 12
MAX_FILES, MAX_KERNEL_FILES = 24, 48


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return a module's syntax, which several tests read."""
    return ast.parse(path.read_text())


# Folders and sizes.


def test_nothing_else_at_the_top_level() -> None:
    git = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("no git checkout: what is ignored cannot be known")
    listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    top = {line.split("/")[0].strip('"') for line in listed}
    extra = sorted(entry for entry in top - TOP_LEVEL if not entry.startswith("."))
    report(f"the top level holds only {sorted(TOP_LEVEL)} and dotfiles", extra)


def test_a_folder_can_be_read_at_a_glance() -> None:
    found, groups = [], []
    for folder in sorted({path.parent for path in C_FILES + PY_FILES + TEST_FILES}):
        names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix not in {".so", ".pyd"})
        kernels = name(folder).startswith("csrc/kernels")
        if len(names) > (MAX_KERNEL_FILES if kernels else MAX_FILES):
            found.append(f"{name(folder)}: {len(names)}")
        if kernels or name(folder).startswith("tests"):  # whose names begin with the family, or "test"
            continue
        prefixes = Counter(stem.split("_")[0] for stem in {Path(text).stem for text in names} if "_" in stem.strip("_"))
        groups += [f"{name(folder)}/{prefix}_*" for prefix, count in prefixes.items() if prefix and count > 2]
    report(f"a folder holds at most {MAX_FILES} files, one of kernels {MAX_KERNEL_FILES}", found)
    report("three files that begin alike are a folder", groups)


def test_modules_of_tests_have_names_of_their_own() -> None:
    names = Counter(path.name for path in TEST_FILES if path.name.startswith("test_"))
    assert not [name for name, count in names.items() if count > 1]  # pytest imports them without their folders


def test_a_file_is_one_room() -> None:
    lines = {name(path): path.read_text().count("\n") for path in C_FILES + PY_FILES + TEST_FILES}
    report(f"above {MAX_LINES} lines it is two rooms", (f"{at}: {n}" for at, n in lines.items() if n > MAX_LINES))


def test_a_file_begins_with_what_it_is() -> None:
    heads = {path: re.match(r"/\*.*?\*/", path.read_text(), re.DOTALL) for path in C_FILES}
    texts: dict[Path, str | None] = {path: head and head[0] for path, head in heads.items()}
    texts |= {path: ast.get_docstring(tree_of(path), clean=False) for path in PY_FILES}
    report(
        "a file begins with a comment that says what it is", (name(path) for path, head in texts.items() if not head)
    )
    lines = {name(path): head.count("\n") + 1 for path, head in texts.items() if head}
    rule = f"a head has at most {MAX_HEAD_LINES} lines"
    report(rule, (f"{at}: {n}" for at, n in lines.items() if n > MAX_HEAD_LINES))


# Layers of the package.


def test_formats_are_data_outside_of_their_room() -> None:
    """Code uses the form of a format, not its class: a list of classes lacks every format that is added later."""
    rooms = ("heterocompute/formats/", "heterocompute/files/layouts/")  # which write the formats of others byte by byte
    rooms += ("heterocompute/files/gguf.py",)  # as the layouts do: types of blocks are what the file holds
    trees = {path: tree_of(path) for path in PY_FILES}
    classes = {
        node.name
        for path, tree in trees.items()
        if path.parent.name == "formats"
        for node in tree.body
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & {"Format", "OnBase"}
    }
    assert {"Int", "Sparse"} <= classes
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree) if not name(path).startswith(rooms) else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("isinstance", "issubclass"):
                asked = {ast.unparse(part).split(".")[-1] for part in ast.walk(node.args[1])} & classes
                found += [f"{name(path)}:{node.lineno}: {', '.join(sorted(asked))}"] if asked else []
    report("isinstance(x, <a format>) stands in formats/ and files/layouts/ alone", found)


Import = tuple[str, int, bool]  # target, line, whether it stands in a function


def modules() -> dict[str, Path]:
    """Return the names of our modules and packages, and their files."""
    parts = {path: path.relative_to(ROOT).with_suffix("").parts for path in PY_FILES}
    return {".".join(names[:-1] if names[-1] == "__init__" else names): path for path, names in parts.items()}


@functools.cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Return the full names that a file imports at run time: `package.name` for modules and for their members."""
    package = path.relative_to(ROOT).parts[:-1]

    def below(node: ast.AST, inside: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):  # no import lies in an expression
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from below(ast.Module(child.orelse, []), inside)
            elif isinstance(child, ast.Import):
                yield from ((alias.name, child.lineno, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else ()
                base += tuple(child.module.split(".")) if child.module else ()
                yield from ((".".join((*base, alias.name)), child.lineno, inside) for alias in child.names)
            elif not isinstance(child, ast.expr):
                yield from below(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))

    return tuple(below(tree_of(path), False))


def room_of(module: str) -> str:
    """Return the first name below the package: `zoo` for heterocompute.zoo.network, `__init__` for the package."""
    return (*module.split("."), "__init__")[1]


def ours() -> Iterator[tuple[str, str, Import]]:
    """Yield each import of our modules: the module, the folder of the imported module, and the import."""
    for module, path in modules().items():
        for target, line, inside in imports_of(path):
            if target.startswith("heterocompute.") and module != "heterocompute":
                yield module, room_of(target), (target, line, inside)


def test_python_imports_follow_the_layers() -> None:
    unknown = {room_of(module) for module in modules()} - {"__init__"} - PY_ROOMS.keys()
    report("PY_ROOMS says what a room may import", sorted(unknown))
    found = []
    for module, room, (target, line, inside) in ours():
        own = room_of(module)
        if room not in PY_ROOMS[own] | {own} and not (inside and (own, room) in UPWARD):
            found.append(f"{name(modules()[module])}:{line}: {target}")
    report("a room imports only what PY_ROOMS says", found)


def test_imports_run_in_no_circle() -> None:
    known = modules()
    files: dict[str, set[str]] = {module: set() for module in known}
    rooms: dict[str, set[str]] = {room_of(module): set() for module in known}
    for module, room, (target, _, inside) in ours():
        home = target if target in known else target.rpartition(".")[0]
        if home in known and home != module and (module, home) != OPERATORS:
            files[module].add(home)
        if room in rooms and room != room_of(module) and not (inside and (room_of(module), room) in UPWARD):
            rooms[room_of(module)].add(room)
    report("modules import each other in no circle", circles(files))
    report("rooms import each other in no circle", circles(rooms))


def test_an_import_inside_a_function_has_its_reason() -> None:
    found, silent = [], []
    for module, path in modules().items():
        lines = path.read_text().splitlines()
        for target, line, inside in imports_of(path):
            if not inside:
                continue
            first, room = target.split(".")[0], room_of(target)
            own = (room_of(module), room)
            allowed = own in SLOW_ROOMS | UPWARD if first == "heterocompute" else first in OPTIONAL | SLOW | QUICK
            found += [] if allowed else [f"{name(path)}:{line}: {target}"]
            silent += [] if "  # " in lines[line - 1] else [f"{name(path)}:{line}: {target}"]
    report("imports stand at the top, but for optional packages and what takes long", found)
    report("an import inside a function says why: # optional, # 30 ms", silent)


def test_the_definition_needs_numpy_only() -> None:
    foreign = {
        f"{name(path)}: {target}"
        for path in PY_FILES
        if "reference" in path.parent.parts
        for target, _, _ in imports_of(path)
        if target.split(".")[0] not in {"numpy", "heterocompute", *sys.stdlib_module_names}
    }
    report("reference/ is plain NumPy", sorted(foreign))


def public_modules() -> Iterator[ModuleType]:
    """Return the package, the modules among its public names, and those that pages import by path."""
    import heterocompute as hc  # here, so that a package that cannot be imported breaks no other rule

    yield hc
    for package in (hc, hc.hardware):
        yield from (found for name in package.__all__ if isinstance(found := getattr(package, name), ModuleType))
    for other in ("bench", "cli", "formats", "interop", "interop.onnx_run", "reference", "training.gradients"):
        yield importlib.import_module(f"heterocompute.{other}")
    for other in ("torch", "jax"):
        if importlib.util.find_spec(other) is not None:
            yield importlib.import_module(f"heterocompute.interop.{other}")


@pytest.mark.build
def test_a_public_module_shows_public_names_alone() -> None:
    for module in public_modules():
        assert sorted(dir(module)) == sorted(getattr(module, "__all__", ["jax", "torch"])), module.__name__


@pytest.mark.build
def test_public_names_stand_in_the_table_and_where_they_are_defined() -> None:
    """Type checkers read star imports, the running package reads its table."""
    import heterocompute as hc  # here, so that a package that cannot be imported breaks no other rule

    for package in (hc, hc.hardware, hc.hardware.layers, hc.hardware.results, hc.hardware.systems):
        assert sorted(dir(package)) == sorted(package.__all__)
        for public in package.__all__:
            assert getattr(package, public) is not None, public
        init = Path(package.__file__)
        listed = re.findall(r"^    from (\.[\w.]*) import (\([^)]+\)|.+)$", init.read_text(), re.MULTILINE)
        names: set[str] = set()
        for module, what in listed:
            if what == "*":
                names |= set(importlib.import_module(module, package.__spec__.parent).__all__)
            else:
                parts = (part.split(" as ")[-1].strip() for part in what.strip("(),\n ").split(","))
                names |= {*parts} - {"public_names", ""}
        report(
            f"TYPE_CHECKING and the table of {init.parent.name}/{init.name} agree", sorted(names ^ set(package.__all__))
        )
