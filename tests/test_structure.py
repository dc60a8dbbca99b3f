"""The layers and names of the house, read from the sources: each test fails with the sentence of its rule."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
C_FILES = sorted(path for pattern in ("*.c", "*.h") for path in (ROOT / "csrc").rglob(pattern))
KERNEL_FILES = [path for path in C_FILES if path.suffix == ".c" and "kernels" in path.parts]
PY_FILES = sorted((ROOT / "heterocompute").rglob("*.py"))
TEST_FILES = sorted(path for pattern in ("*.py", "*.c", "*.h") for path in (ROOT / "tests").rglob(pattern))

# A room of csrc/ and the rooms that it may include, besides its own files.
C_ROOMS: dict[str, set[str]] = {
    "base": set(),
    "formats": {"base"},
    "kernels": {"base"},
    "sparsity": {"base"},
    "model": {"base"},
    "ops": {"hc.h", "formats", "sparsity", "kernels", "base"},
    "cuda": {"ops/backend.h", "formats/format.h", "base"},
    "hc.h": {"base"},
    "python": {"hc.h", "model"},
}

# A room of heterocompute/ and the rooms that it may import, besides its own files.
CORE = {"_heterocompute", "base"}
ARRAYS = {*CORE, "formats", "arrays"}
PRODUCTS = {*ARRAYS, "products"}
MODELS = {*PRODUCTS, "pruning", "emulate", "zoo"}
PY_ROOMS: dict[str, set[str]] = {
    "base": {"_heterocompute"},
    "formats": CORE,
    "arrays": ARRAYS,
    "products": PRODUCTS,
    "pruning": PRODUCTS,
    "emulate": PRODUCTS,
    "zoo": MODELS,
    "reference": set(),
    "report": set(),
    "hardware": {*CORE, "formats", "report"},
}
ABOVE = {"studies", "ptq", "training", "files", "interop", "bench", "cli", "__main__"}
PY_ROOMS |= {room: {*MODELS, "reference", "report", "hardware", *ABOVE} for room in ABOVE}
# The operators of an array are products.
OPERATORS = {("arrays/base.py", "products"), ("zoo/network.py", "training")}

TOP_LEVEL = {"csrc", "heterocompute", "tests", "notebooks", "docs"}
TOP_LEVEL |= {"pyproject.toml", "setup.py", "README.md", "LICENSE"}

MAX_LINES = 600
MAX_HEAD_LINES = 12


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=name)


@pytest.fixture(scope="module")
def kernel_lines() -> list[tuple[str, str]]:
    rooms = sorted((ROOT / "csrc/kernels").rglob("*.def"))
    return [line for room in rooms for line in re.findall(r"^HC_KERNEL\((\w+), (\w+)", room.read_text(), re.MULTILINE)]


@each(C_FILES)
def test_c_includes_follow_the_layers(path: Path) -> None:
    room = name(path).split("/")[1]
    assert room in C_ROOMS, f"csrc/{room} is no room of csrc/; those are {', '.join(sorted(C_ROOMS))}"
    for header in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
        assert "/" in header or header == "hc.h", f'{name(path)}: write "{room}/{header}", paths start at csrc/'
        target = header.split("/")[0]
        allowed = target == room or bool({target, header} & C_ROOMS[room])
        assert allowed, f"{name(path)} includes {header}: {room}/ may include only {sorted(C_ROOMS[room])} and its own"


def test_checks_need_no_operation() -> None:
    for path in (ROOT / "csrc/ops").glob("check.*"):
        found = set(re.findall(r'"(ops/[^"]+)"', path.read_text())) - {"ops/check.h"}
        assert not found, f"{name(path)} includes {sorted(found)}: every operation includes check.h"


@pytest.mark.parametrize("path", C_FILES, ids=name)
def test_memory_of_the_core_comes_from_one_place(path: Path) -> None:
    """So that tests/c/allocations.c can refuse all of it."""
    called = re.findall(r"\b((?:m|c|re|aligned_)alloc|posix_memalign|strn?dup|free)\s*\(", path.read_text())
    assert not called or name(path) == "csrc/base/status.c", f"{name(path)}: take hc_alloc_aligned, not {called[0]}"


def module_of(path: Path) -> str:
    """The first name below the package: `zoo` for zoo/network.py, `__init__` for the root."""
    return path.relative_to(ROOT / "heterocompute").parts[0].removesuffix(".py")


def imports_of_ours(path: Path) -> Iterator[str]:
    """First names below heterocompute that a file imports, anywhere in it."""
    package = ("heterocompute", *path.relative_to(ROOT / "heterocompute").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            targets = [base] if len(base) > 1 else [[*base, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "heterocompute":
                yield target[1] if len(target) > 1 else "__init__"


@each([path for path in PY_FILES if module_of(path) != "__init__"])
def test_python_imports_follow_the_layers(path: Path) -> None:
    module = module_of(path)
    assert module in PY_ROOMS, f"{name(path)}: say in PY_ROOMS of tests/test_structure.py what {module}/ may import"
    inside = path.relative_to(ROOT / "heterocompute").as_posix()
    for target in imports_of_ours(path):
        assert target in PY_ROOMS[module] | {module} or (inside, target) in OPERATORS, (
            f"{name(path)} imports {target}: {module} may import of ours only {sorted(PY_ROOMS[module]) or 'nothing'}"
        )


def test_the_definition_needs_numpy_only() -> None:
    for path in sorted((ROOT / "heterocompute/reference").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            foreign = {first for first in (full.split(".")[0] for full in names) if not is_standard(first)}
            assert foreign <= {"numpy"}, f"{name(path)} imports {foreign}: reference/ is plain NumPy"


def is_standard(module: str) -> bool:
    import sys

    return module in sys.stdlib_module_names


def test_a_format_is_a_folder_that_sees_no_other_format() -> None:
    for path in (ROOT / "csrc/formats").rglob("*.[ch]"):
        own = path.parent.name
        for header in re.findall(r'^#include "formats/(\w+)/', path.read_text(), re.MULTILINE):
            allowed = {own} | ({"simd"} if path.stem.endswith("_simd") else set())
            assert header in allowed, f"{name(path)} includes formats/{header}/: what formats share lies in formats/"


def test_options_have_names_in_the_folder_of_their_format() -> None:
    indexed = [path for path in C_FILES if re.search(r"(?:->|\.)option\[", path.read_text())]
    found = [name(path) for path in indexed if not re.fullmatch(r"csrc/formats/(\w+)/\1\.h", name(path))]
    assert not found, f"{', '.join(found)}: option[i] is known to formats/<f>/<f>.h alone, which gives it a name"


def test_every_folder_of_formats_has_its_line() -> None:
    lines = re.findall(r"^(HC_FORMAT|HC_SIMD)\((\w+)\)", (ROOT / "csrc/formats/formats.def").read_text(), re.MULTILINE)
    formats, fast = ({text for kind, text in lines if kind == wanted} for wanted in ("HC_FORMAT", "HC_SIMD"))
    folders = {path.name for path in (ROOT / "csrc/formats").iterdir() if path.is_dir()} - {"simd"}
    assert folders == formats, "formats.def has a line HC_FORMAT(f) for each folder formats/f/"
    files = {path.stem.removesuffix("_simd") for path in (ROOT / "csrc/formats").rglob("*_simd.c")}
    assert files == fast, "formats.def has a line HC_SIMD(f) for each file formats/f/f_simd.c, else nothing calls it"


def has_registers(path: Path) -> bool:
    return "kernels" in path.parts or path.parent.name == "simd" or path.stem.endswith("_simd")


@each([path for path in C_FILES if not has_registers(path)])
def test_registers_stay_in_kernels(path: Path) -> None:
    text = path.read_text()
    # base/float_env.h alone touches the rounding and flush bits, which are reached through two intrinsics.
    found = re.search(r"immintrin\.h|arm_neon\.h|\b_mm\d*_(?!getcsr|setcsr)\w+|\b__m(?:128|256|512)", text)
    assert not found, f"{name(path)}: {found and found[0]}: intrinsics live in kernels/, formats/simd/ and *_simd.c"
    found = re.search(r"#\s*(?:el)?if.*\b__(?:AVX|FMA|SSE|BMI|F16C|AMX|ARM_FEATURE|ARM_NEON)\w*", text)
    assert not found, (
        f"{name(path)}: {found and found[0]}: kernels are picked at run time, not by the compiler's macros"
    )


@each(C_FILES)
def test_c_heads_are_short(path: Path) -> None:
    head = re.match(r"/\*.*?\*/", path.read_text(), re.DOTALL)
    assert head, f"{name(path)} begins with a comment that says what it is"
    lines = head[0].count("\n") + 1
    assert lines <= MAX_HEAD_LINES, f"{name(path)}: a head has at most {MAX_HEAD_LINES} lines, this one {lines}"


@each(PY_FILES)
def test_python_heads_are_short(path: Path) -> None:
    head = ast.get_docstring(ast.parse(path.read_text()), clean=False)
    assert head, f"{name(path)} begins with a docstring that says what it is"
    lines = head.count("\n") + 1
    assert lines <= MAX_HEAD_LINES, f"{name(path)}: a head has at most {MAX_HEAD_LINES} lines, this one {lines}"


@each(C_FILES + PY_FILES + TEST_FILES)
def test_a_file_is_one_room(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= MAX_LINES, f"{name(path)} has {lines} lines: above {MAX_LINES} it is two rooms"


def test_nothing_else_at_the_top_level() -> None:
    git = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("no git checkout: what is ignored cannot be known")
    listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    top = {line.split("/")[0].strip('"') for line in listed}
    extra = {entry for entry in top - TOP_LEVEL if not entry.startswith(".")}
    assert not extra, f"the top level holds only {sorted(TOP_LEVEL)} and dotfiles, not {sorted(extra)}"


@each([path for path in C_FILES if path.suffix == ".c" and "python" not in path.parts])
def test_c_functions_that_others_see_begin_with_hc(path: Path) -> None:
    other = r"(?!.*\bstatic\b|typedef\b|extern\b|[A-Z]+ |[A-Z_]+\()"
    starts = re.compile(rf"^{other}[A-Za-z_][\w \*]*?[ \*](\w+)\(", re.MULTILINE)
    for function in starts.findall(path.read_text()):
        assert function.startswith("hc_"), f"{name(path)}: {function} is static or begins with hc_"


def test_a_kernel_lies_in_a_file_of_its_instruction_set(kernel_lines: list[tuple[str, str]]) -> None:
    for family, isa in kernel_lines:
        files = [path for path in KERNEL_FILES if re.search(rf"\bhc_{family}_{isa}\b", path.read_text())]
        assert files, f"no file defines hc_{family}_{isa}, which a .def file has"
        for path in files:
            assert path.stem.endswith("_" + isa), f"{name(path)}: hc_{family}_{isa} wants a file that ends with _{isa}"


def test_isa_names_are_the_same_in_the_build_and_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.chdir(ROOT)
    flags = runpy.run_path(str(ROOT / "setup.py"))["ISA_FLAGS"]
    in_build = {isa for machine in flags.values() for isa in machine}
    at_run_time = set(
        re.findall(r'^    \{"(\w+)", (?:0|HC_ISA_\w+),', (ROOT / "csrc/base/cpu.c").read_text(), re.MULTILINE)
    )
    assert in_build == at_run_time - {"scalar"}, "ISA_FLAGS of setup.py and ISA_NAMES of base/cpu.c name the same ISAs"
