"""The layers and names of the house, read from the sources: a test a rule, which lists all that breaks it."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
C_FILES = sorted(path for pattern in ("*.c", "*.h") for path in (ROOT / "csrc").rglob(pattern))
KERNEL_FILES = [path for path in C_FILES if path.suffix == ".c" and path.relative_to(ROOT).parts[1] == "kernels"]
PY_FILES = sorted((ROOT / "heterocompute").rglob("*.py"))
TEST_FILES = sorted(path for pattern in ("*.py", "*.c", "*.h") for path in (ROOT / "tests").rglob(pattern))

# A room of csrc/ and the rooms that it may include, besides its own files.
C_ROOMS: dict[str, set[str]] = {
    "base": set(),
    "formats": {"base"},
    "kernels": {"base"},
    "sparsity": {"base"},
    "model": {"base"},
    "ptq": {"kernels", "base"},
    "ops": {"hc.h", "formats", "sparsity", "kernels", "base"},
    "cuda": {"hc.h", "formats", "kernels/training/chance.h", "ops/codec/rows.h", "base"},
    "hc.h": {"base"},
    "python": {"hc.h", "model", "ptq", "cuda", "base/platform/platform.h"},
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
    "hardware": {*PRODUCTS, "report"},
}
ABOVE = {"studies", "ptq", "training", "files", "interop", "bench", "cli", "__main__"}
PY_ROOMS |= {room: {*MODELS, "reference", "report", "hardware", *ABOVE} for room in ABOVE}
PY_ROOMS["cli"] |= {"__version__"}
# Imports against the layers, inside a function: the operators of an array are products, a network is retrained, a
# module of PyTorch is calibrated by interop; a language model, and its sizes, are read from its file.
UPWARD = {("arrays", "products"), ("zoo", "training"), ("ptq", "interop"), ("zoo", "files"), ("hardware", "files")}
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
    "tqdm",
    "lm_eval",
    "distributed",
    "ray",
    "fsspec",
}
SLOW = {"rich", "ml_dtypes", "scipy_openblas32", "difflib"}
SLOW_ROOMS = {("cli", room) for room in ("bench", "emulate", "files", "hardware", "ptq", "report", "studies", "zoo")}
SLOW_ROOMS |= {("studies", "hardware"), ("studies", "interop"), ("ptq", "hardware"), ("cli", "interop")}
QUICK = {"signal"}  # base/interrupt.py comes before everything else

TOP_LEVEL = {
    "csrc",
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
TOP_LEVEL |= {"pyproject.toml", "setup.py", "README.md", "LICENSE"}

MAX_LINES = 600
MAX_HEAD_LINES = 12
MAX_FILES, MAX_KERNEL_FILES = 24, 48


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def report(rule: str, found: Iterable[str]) -> None:
    offenders = list(dict.fromkeys(found))
    assert not offenders, rule + ":\n" + "\n".join(offenders)


def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def quoted_includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE)


def code_of(path: Path) -> str:
    """A C source without comments."""
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


# Rooms and sizes.


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
    texts |= {path: ast.get_docstring(ast.parse(path.read_text()), clean=False) for path in PY_FILES}
    report(
        "a file begins with a comment that says what it is", (name(path) for path, head in texts.items() if not head)
    )
    lines = {name(path): head.count("\n") + 1 for path, head in texts.items() if head}
    rule = f"a head has at most {MAX_HEAD_LINES} lines"
    report(rule, (f"{at}: {n}" for at, n in lines.items() if n > MAX_HEAD_LINES))


# Layers of the core.


def test_c_includes_follow_the_layers() -> None:
    rooms, paths, found = [], [], []
    for path in C_FILES:
        room = name(path).split("/")[1]
        if room not in C_ROOMS:
            rooms.append(name(path))
            continue
        for header in quoted_includes(path):
            if "/" not in header and header != "hc.h":
                paths.append(f"{name(path)}: {header}")
            target = header.split("/")[0]
            if target != room and not {target, header} & C_ROOMS[room]:
                found.append(f"{name(path)}: {header}")
    report(f"the rooms of csrc/ are {', '.join(sorted(C_ROOMS))}", rooms)
    report("paths of headers start at csrc/", paths)
    report("a room includes only what C_ROOMS says", found)


def test_c_includes_run_in_no_circle() -> None:
    """A file and its header are one place; lists of kernels, which headers read, are none."""
    places: dict[str, set[str]] = {name(path.with_suffix("")): set() for path in C_FILES}
    for path in C_FILES:
        place = name(path.with_suffix(""))
        found = {f"csrc/{header.rpartition('.')[0]}" for header in quoted_includes(path) if not header.endswith(".def")}
        places[place] |= found & places.keys() - {place}
    report("files of csrc/ include each other in no circle", circles(places))


def test_checks_need_no_operation() -> None:
    files = [path for path in C_FILES if re.fullmatch(r"csrc/ops/check\.[ch]", name(path))]
    included = {header for path in files for header in quoted_includes(path) if header.startswith("ops/")}
    report("every operation includes ops/check.h, so that includes none", sorted(included - {"ops/check.h"}))


def test_memory_of_the_core_comes_from_one_place() -> None:
    """tests/c/allocations.c can refuse all of it."""
    call = r"\b((?:m|c|re|aligned_)alloc|posix_memalign|strn?dup|free)\s*\("
    found = {name(path): re.findall(call, path.read_text()) for path in C_FILES}
    offenders = (f"{at}: {', '.join(calls)}" for at, calls in found.items() if calls and not is_platform(at))
    report("memory comes from hc_alloc_aligned", offenders)


def is_platform(file: str) -> bool:
    return file.startswith("csrc/base/platform/")


def test_the_operating_system_is_known_to_one_place() -> None:
    words = r"#include <(\w+\.h|sys/\w+\.h)>|\b(_WIN32|__linux__|__APPLE__|__unix__)\b"
    plain = "assert cpuid ctype float immintrin limits math stdalign stdarg stdatomic stdbool stddef stdint stdio"
    plain += " stdlib string xmmintrin arm_neon Python"
    known = {f"{word}.h" for word in plain.split()}
    found = []
    for path in C_FILES:
        used = {next(filter(None, groups)) for groups in re.findall(words, path.read_text())}
        if not is_platform(name(path)):
            found += [f"{name(path)}: {word}" for word in sorted(used - known)]
    report("csrc/base/platform/ alone includes headers of an operating system", found)


def test_operations_are_handed_what_they_need() -> None:
    files = [path for path in C_FILES if name(path).startswith("csrc/ops/")]
    found = (name(path) for path in files if re.search(r"\b(?:_Thread_local|thread_local|__thread)\b", code_of(path)))
    report("csrc/ops/ has no thread-local variable", found)


def test_a_path_calls_no_other_path() -> None:
    symbols = re.findall(r"^HC_PATH\(\w+, (\w+)", text_of("csrc/ops/product/paths.def"), re.MULTILINE)
    assert symbols
    # not where it is defined, after its type
    word = rf"(?<!hc_status )(?<!hc_work )(?<!char \*)\bhc_(?:{'|'.join(symbols)})_(?:refuses|work|run|differs)\b"
    call = re.compile(word)
    files = [path for path in C_FILES if name(path) != "csrc/ops/product/plan.c"]
    found = (f"{name(path)}: {function}" for path in files for function in call.findall(code_of(path)))
    report("the plan alone calls paths", found)


# Formats and kernels.


def test_a_format_is_a_folder_that_sees_no_other_format() -> None:
    found = []
    for path in (ROOT / "csrc/formats").rglob("*.[ch]"):
        allowed = {path.parent.name} | ({"simd"} if path.stem.endswith("_simd") else set())
        seen = {header.split("/")[1] for header in quoted_includes(path) if header.count("/") == 2}
        found += [f"{name(path)}: {other}/" for other in sorted(seen - allowed)]
    report("what formats share lies in formats/", found)


def test_options_have_names_in_the_folder_of_their_format() -> None:
    indexed = [path for path in C_FILES if re.search(r"(?:->|\.)option\[", path.read_text())]
    found = (name(path) for path in indexed if not re.fullmatch(r"csrc/formats/(\w+)/\1\.h", name(path)))
    report("option[i] is known to formats/<f>/<f>.h alone, which gives it a name", found)


def test_every_folder_of_formats_has_its_line() -> None:
    lines = re.findall(r"^(HC_FORMAT|HC_SIMD)\((\w+)\)", text_of("csrc/formats/formats.def"), re.MULTILINE)
    formats, fast = ({text for kind, text in lines if kind == wanted} for wanted in ("HC_FORMAT", "HC_SIMD"))
    folders = {path.name for path in (ROOT / "csrc/formats").iterdir() if path.is_dir()} - {"simd"}
    report("formats.def has a line HC_FORMAT(f) for each folder formats/f/", sorted(folders ^ formats))
    files = {path.stem.removesuffix("_simd") for path in (ROOT / "csrc/formats").rglob("*_simd.c")}
    report("formats.def has a line HC_SIMD(f) for each file formats/f/f_simd.c", sorted(files ^ fast))


def has_registers(path: Path) -> bool:
    return path.relative_to(ROOT).parts[1] == "kernels" or path.parent.name == "simd"


def test_registers_stay_in_kernels() -> None:
    # base/float_env.h alone touches the rounding and flush bits, which are reached through two intrinsics.
    intrinsic = re.compile(r"immintrin\.h|arm_neon\.h|\b_mm\d*_(?!getcsr|setcsr)\w+|\b__m(?:128|256|512)\w*")
    macro = re.compile(r"#\s*(?:el)?if.*\b(__(?:AVX|FMA|SSE|BMI|F16C|AMX|ARM_FEATURE|ARM_NEON)\w*)")
    plain = {path: path.read_text() for path in C_FILES if not has_registers(path)}
    found = (f"{name(path)}: {word}" for path, text in plain.items() for word in intrinsic.findall(text))
    report("intrinsics live in kernels/ and formats/simd/; *_simd.c use the primitives of these", found)
    found = (f"{name(path)}: {word}" for path, text in plain.items() for word in macro.findall(text))
    report("kernels are picked at run time, not by the compiler's macros", found)
    sets = {path: re.findall(r"\bHC_SIMD_[a-z]\w*", code_of(path)) for path in C_FILES if path.name != "simd.h"}
    report("formats/simd/simd.h alone tells SIMD sets apart", (f"{name(at)}: {x}" for at in sets for x in sets[at]))


def test_every_kernel_has_the_type_of_its_family() -> None:
    rooms = sorted((ROOT / "csrc/kernels").rglob("*.def"))
    headers = "".join(path.read_text() for path in sorted((ROOT / "csrc/kernels").rglob("*.h")))
    types = set(re.findall(r"^typedef [^;]*?\b(hc_\w+_fn)(?:\(|;)", headers, re.MULTILINE))
    untyped, found = [], []
    for room in rooms:
        family = ""
        for kind, first, second in re.findall(r"^HC_(FAMILY|KERNEL)\((\w+), (\w+)", room.read_text(), re.MULTILINE):
            if kind == "FAMILY":
                family = first
                untyped += [f"{name(room)}: {first} is a {second}"] if second not in types else []
            elif first != family:
                found.append(f"{name(room)}: {first}, {second} stands below {family}")
    report("a family has a type that a header of its room says", untyped)
    report("a kernel stands below HC_FAMILY of its family", found)
    declared = "HC_KERNEL(family, isa, ...) HC_IF_##isa(hc_##family##_family hc_##family##_##isa;)"
    assert declared in text_of("csrc/kernels/kernel.h"), "kernel.h declares each line of a .def with its family's type"


def test_a_kernel_lies_in_a_file_of_its_instruction_set() -> None:
    rooms = sorted((ROOT / "csrc/kernels").rglob("*.def"))
    lines = [line for room in rooms for line in re.findall(r"^HC_KERNEL\((\w+), (\w+)", room.read_text(), re.MULTILINE)]
    words = {path: set(re.findall(r"\bhc_\w+", path.read_text())) for path in KERNEL_FILES}
    nowhere, found = [], []
    for family, isa in lines:
        kernel = f"hc_{family}_{isa}"
        files = [path for path, used in words.items() if kernel in used]
        nowhere += [] if files else [kernel]
        found += [f"{name(path)}: {kernel}" for path in files if not path.stem.endswith("_" + isa)]
    report("a line of a .def file has its kernel", nowhere)
    report("a kernel lies in a file that ends with its instruction set", found)


def test_the_page_lists_the_kernels_that_arm_lacks() -> None:
    sets: dict[str, set[str]] = {}
    for room in sorted((ROOT / "csrc/kernels").rglob("*.def")):
        for family, isa in re.findall(r"^HC_KERNEL\((\w+), (\w+)", room.read_text(), re.MULTILINE):
            sets.setdefault(family, set()).add(isa)
    lacking = {family for family, isas in sets.items() if "avx2" in isas and not isas & {"neon", "dotprod", "i8mm"}}
    section = text_of("docs/contributing.md").split("\n## aarch64\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    listed = {family for cell in cells for family in re.findall(r"`(\w+)`", cell)}
    report("docs/contributing.md lists the families without kernels for ARM", sorted(lacking ^ listed))


def test_kernels_of_arm_lie_in_their_folder() -> None:
    arm = {"neon", "dotprod", "i8mm"}
    found = (path for path in KERNEL_FILES if (path.stem.rpartition("_")[2] in arm) != (path.parent.name == "arm"))
    report("kernels of ARM lie in arm/ of their room, and no others", map(name, found))


def test_c_functions_that_others_see_begin_with_hc() -> None:
    other = r"(?!.*\bstatic\b|typedef\b|extern\b|[A-Z]+ |[A-Z_]+\()"
    starts = re.compile(rf"^{other}[A-Za-z_][\w \*]*?[ \*](\w+)\(", re.MULTILINE)
    files = [path for path in C_FILES if path.suffix == ".c" and "python" not in path.parts]
    found = {path: [text for text in starts.findall(path.read_text()) if not text.startswith("hc_")] for path in files}
    report("a function is static or begins with hc_", (f"{name(p)}: {', '.join(f)}" for p, f in found.items() if f))


def declared_by_hand(code: str) -> list[str]:
    """Functions that a C source declares, macros aside, without `static`: others define them."""
    code = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", code, flags=re.MULTILINE)
    declared = r"^[ \t]*(?:extern[ \t]+)?(?:const[ \t]+)?[A-Za-z_]\w*[ \t]*\*?[ \t]*\b(hc_\w+)\([^;{}]*\)[ \t]*;"
    found = re.finditer(declared, code, re.MULTILINE)
    return [one[1] for one in found if not re.match(r"\s*(?:return|static|typedef|else|Py_\w+)\b", one[0])]


def test_a_function_is_declared_in_a_header() -> None:
    """A declaration in a source file is an include that the rules of layers and circles cannot see."""
    assert declared_by_hand("hc_status hc_run(\n    int a);\nstatic int hc_own(void);\n    return hc_f(x);\n") == [
        "hc_run"
    ]
    assert declared_by_hand("extern const char *hc_a(void);\n#define X(s) \\\n  bool hc_##s(void);\n") == ["hc_a"]
    files = [path for path in C_FILES if path.suffix == ".c"]
    found = (f"{name(path)}: {function}" for path in files for function in declared_by_hand(code_of(path)))
    report("a .c file includes the header of a function and does not declare it", found)


def test_isa_names_are_the_same_in_the_build_and_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.chdir(ROOT)
    flags = runpy.run_path(str(ROOT / "setup.py"))["ISA_FLAGS"]
    in_build = {isa for machine in flags.values() for isa in machine}
    at_run_time = set(
        re.findall(r'^    \{"(\w+)", (?:0|HC_ISA_\w+),', (ROOT / "csrc/base/cpu.c").read_text(), re.MULTILINE)
    )
    assert in_build == at_run_time - {"scalar"}, "ISA_FLAGS of setup.py and ISA_NAMES of base/cpu.c name the same ISAs"


# Layers of the package.


def test_formats_are_data_outside_of_their_room() -> None:
    """A format is asked for its form, not for its class: a list of classes lacks every format that is added later."""
    rooms = ("heterocompute/formats/", "heterocompute/files/layouts/")  # which write the formats of others byte by byte
    rooms += ("heterocompute/files/gguf.py",)  # as the layouts do: types of blocks are what the file holds
    trees = {path: ast.parse(path.read_text()) for path in PY_FILES}
    classes = {
        node.name
        for path, tree in trees.items()
        if path.parent.name == "formats"
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Format" for base in node.bases)
    }
    assert {"Int", "Sparse"} <= classes
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree) if not name(path).startswith(rooms) else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
                asked = {ast.unparse(part).split(".")[-1] for part in ast.walk(node.args[1])} & classes
                found += [f"{name(path)}:{node.lineno}: {', '.join(sorted(asked))}"] if asked else []
    report("isinstance(x, <a format>) stands in formats/ and files/layouts/ alone", found)


Import = tuple[str, int, bool]  # target, line, whether it stands in a function


def modules() -> dict[str, Path]:
    """Names of our modules, packages by their own name, and their files."""
    parts = {path: path.relative_to(ROOT).with_suffix("").parts for path in PY_FILES}
    return {".".join(names[:-1] if names[-1] == "__init__" else names): path for path, names in parts.items()}


@functools.cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """What a file imports at run time: full names, `package.name` for both modules and what they hold."""
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

    return tuple(below(ast.parse(path.read_text()), False))


def room_of(module: str) -> str:
    """The first name below the package: `zoo` of heterocompute.zoo.network, `__init__` of the package itself."""
    return (*module.split("."), "__init__")[1]


def ours() -> Iterator[tuple[str, str, Import]]:
    """Modules of rooms, and each room beside their own that they import."""
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


def circles(graph: dict[str, set[str]]) -> list[str]:
    """The nodes that can be reached from themselves."""
    reached = {node: set(targets) for node, targets in graph.items()}
    for middle in graph:
        for targets in reached.values():
            if middle in targets:
                targets |= reached[middle]
    return [node for node, targets in reached.items() if node in targets]


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
    """The package, the modules among its public names, and those that pages import by their path."""
    import heterocompute as hc  # here, so that a package that cannot be imported breaks no other rule

    yield hc
    for package in (hc, hc.hardware):
        yield from (found for name in package.__all__ if isinstance(found := getattr(package, name), ModuleType))
    for other in ("bench", "cli", "formats", "interop", "interop.onnx_run", "reference", "training.gradients"):
        yield importlib.import_module(f"heterocompute.{other}")
    for other in ("torch", "jax"):
        if importlib.util.find_spec(other) is not None:
            yield importlib.import_module(f"heterocompute.interop.{other}")


def test_a_public_module_shows_public_names_alone() -> None:
    for module in public_modules():
        assert sorted(dir(module)) == sorted(getattr(module, "__all__", ["jax", "torch"])), module.__name__


def test_public_names_stand_in_the_table_and_where_they_are_defined() -> None:
    """Type checkers read star imports, the running package its table."""
    import heterocompute as hc  # here, so that a package that cannot be imported breaks no other rule

    for package in (hc, hc.hardware):
        assert sorted(dir(package)) == sorted(package.__all__)
        for public in package.__all__:
            assert getattr(package, public) is not None, public
        init = Path(package.__file__)
        listed = re.findall(r"^    from (\.[\w.]*) import (.+)$", init.read_text(), re.MULTILINE)
        names: set[str] = set()
        for module, what in listed:
            if what == "*":
                names |= set(importlib.import_module(module, package.__name__).__all__)
            else:
                names |= {part.split(" as ")[-1].strip() for part in what.split(",")} - {"public_names"}
        report(
            f"TYPE_CHECKING and the table of {init.parent.name}/__init__.py agree", sorted(names ^ set(package.__all__))
        )
