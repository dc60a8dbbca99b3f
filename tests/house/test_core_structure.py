"""The layers and names of the core, read from its sources: one test per rule, which lists all violations."""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path

import pytest
from sources import C_FILES, ROOT, circles, name, report, text_of

KERNEL_FILES = [path for path in C_FILES if path.suffix == ".c" and path.relative_to(ROOT).parts[1] == "kernels"]

PUBLIC = {"hc.h", "hc_emulate.h", "hc_layers.h"}

# Folder of csrc/ -> the folders that it may include, besides its own files.
C_ROOMS: dict[str, set[str]] = {
    "base": set(),
    "formats": {"base"},
    "kernels": {"base"},
    "sparsity": {"base"},
    "model": {"base"},
    "ptq": {"kernels", "base"},
    "ops": {*PUBLIC, "formats", "sparsity", "kernels", "base"},
    "cuda": {
        "hc.h",
        "hc_layers.h",
        "formats",
        "kernels/training/chance.h",
        "ops/codec/clip.h",
        "ops/codec/rows.h",
        "base",
    },
    "hc.h": {"base"},
    "hc_emulate.h": {"hc.h"},
    "hc_layers.h": {"hc.h"},
    "python": {*PUBLIC, "model", "ptq", "cuda", "base/platform/platform.h", "base/watch.h"},
}


@cache
def quoted_includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE)


def code_of(path: Path) -> str:
    """Return a C source without comments."""
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


# Layers of the core.


def test_c_includes_follow_the_layers() -> None:
    rooms, paths, found = [], [], []
    for path in C_FILES:
        room = name(path).split("/")[1]
        if room not in C_ROOMS:
            rooms.append(name(path))
            continue
        for header in quoted_includes(path):
            if "/" not in header and header not in PUBLIC:
                paths.append(f"{name(path)}: {header}")
            target = header.split("/")[0]
            if target != room and not {target, header} & C_ROOMS[room]:
                found.append(f"{name(path)}: {header}")
    report(f"the rooms of csrc/ are {', '.join(sorted(C_ROOMS))}", rooms)
    report("paths of headers start at csrc/", paths)
    report("a room includes only what C_ROOMS says", found)


def test_c_includes_run_in_no_circle() -> None:
    """A file and its header are one node; lists of kernels, which headers include, are no nodes."""
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
    """So tests/c/allocations.c can refuse every allocation."""
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
        headers = (header for header in quoted_includes(path) if header.startswith("formats/"))
        seen = {header.split("/")[1] for header in headers if header.count("/") == 2}
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
    return path.relative_to(ROOT).parts[1] == "kernels" or path.parent.name in ("simd", "lanes")


def test_registers_stay_in_kernels() -> None:
    # Only base/float_env.h accesses the rounding and flush bits, through two intrinsics.
    intrinsic = re.compile(r"immintrin\.h|arm_neon\.h|\b_mm\d*_(?!getcsr|setcsr)\w+|\b__m(?:128|256|512)\w*")
    macro = re.compile(r"#\s*(?:el)?if.*\b(__(?:AVX|FMA|SSE|BMI|F16C|AMX|ARM_FEATURE|ARM_NEON)\w*)")
    plain = {path: path.read_text() for path in C_FILES if not has_registers(path)}
    found = (f"{name(path)}: {word}" for path, text in plain.items() for word in intrinsic.findall(text))
    report("intrinsics live in kernels/, base/lanes/ and formats/simd/; *_simd.c use the primitives of these", found)
    found = (f"{name(path)}: {word}" for path, text in plain.items() for word in macro.findall(text))
    report("kernels are picked at run time, not by the compiler's macros", found)
    sets = {path: re.findall(r"\bHC_SIMD_[a-z]\w*", code_of(path)) for path in C_FILES if path.name != "simd.h"}
    report("formats/simd/simd.h alone tells SIMD sets apart", (f"{name(at)}: {x}" for at in sets for x in sets[at]))


def included_by(path: Path) -> set[str]:
    """Return the files that a C source includes, directly or not."""
    found: set[str] = set()
    ahead = [path]
    while ahead:
        of = ahead.pop()
        for header in quoted_includes(of):
            places = (folder / header for folder in (of.parent, ROOT / "csrc", ROOT / "tests/c"))
            file = next(place for place in places if place.exists())
            if name(file) not in found:
                found.add(name(file))
                ahead.append(file)
    return found


def test_every_kernel_has_the_type_of_its_family() -> None:
    headers = "".join(path.read_text() for path in sorted((ROOT / "csrc/kernels").rglob("*.h")))
    types = set(re.findall(r"^typedef [^;]*?\b(hc_\w+_fn)(?:\(|;)", headers, re.MULTILINE))
    families = re.findall(r"^HC_FAMILY\((\w+), (\w+)\)", text_of("csrc/kernels/families.def"), re.MULTILINE)
    assert families
    report("a family has a type that a header says", (f"{one}: {of}" for one, of in families if of not in types))
    untyped = (name(path) for path in KERNEL_FILES if "csrc/kernels/kernel.h" not in included_by(path))
    report("a kernel includes kernels/kernel.h, which declares it with its family's type", untyped)


def test_a_line_of_kernels_compiles_two_files() -> None:
    """The kernel's own file and the table: nothing else reads the lists of kernels."""
    rooms = {name(path) for path in (ROOT / "csrc/kernels").glob("*/*.def")}
    sources = [path for path in [*C_FILES, *(ROOT / "tests/c").rglob("*.c")] if path.suffix == ".c"]
    readers = [name(path) for path in sources if rooms & included_by(path)]
    assert readers == ["csrc/kernels/kernels.c"], "each file that includes a list of kernels is compiled for each line"
    assert rooms <= included_by(ROOT / "csrc/kernels/kernels.c"), "kernels.c reads the list of each room"


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
    """Return the functions that a C source declares without `static`, except in macros; other files define them."""
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


@pytest.mark.build
def test_isa_names_are_the_same_in_the_build_and_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.chdir(ROOT)
    flags = runpy.run_path(str(ROOT / "setup.py"))["ISA_FLAGS"]
    in_build = {isa for machine in flags.values() for isa in machine}
    at_run_time = set(
        re.findall(r'^    \{"(\w+)", (?:0|HC_ISA_\w+),', (ROOT / "csrc/base/cpu.c").read_text(), re.MULTILINE)
    )
    assert in_build == at_run_time - {"scalar"}, "ISA_FLAGS of setup.py and ISA_NAMES of base/cpu.c name the same ISAs"
