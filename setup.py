"""The build: one extension, each source compiled with the flags of its ISA suffix.

A file named *_avx2.c gets the flags of `avx2` below, a file without a suffix of the table gets none; so what
runs on every CPU is never compiled with AVX flags. A file named *_simd.c is compiled once for each SIMD set, with
-DHC_SIMD_<set>. The target platform decides, never the CPU that builds.

    CC, CFLAGS                   as ever
    HETEROCOMPUTE_WERROR=1       warnings are errors
    HETEROCOMPUTE_DEBUG=1        HC_ASSERT and HC_ASSUME check
    HETEROCOMPUTE_SANITIZE=address,undefined

The kernels of csrc/cuda/ are compiled by cuda/setup.py, for a distribution of their own.
"""

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from glob import glob
from pathlib import Path
from sysconfig import get_path, get_platform

import numpy
from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

# isort: split
from distutils.ccompiler import new_compiler  # of setuptools, which is imported before
from distutils.sysconfig import customize_compiler

_fatbins = runpy.run_path(str(Path(__file__).resolve().parent / "cuda/fatbins.py"))
digest, is_current = _fatbins["digest"], _fatbins["is_current"]

if os.environ.get("HETEROCOMPUTE_CUDA", "0") not in ("", "0"):
    raise SystemExit("heterocompute: HETEROCOMPUTE_CUDA is not supported: `pip install ./cuda` builds the CUDA kernels")

AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
AVXVNNI = [*AVX2, "-mavxvnni"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512cd"]
AVX512VNNI = [*AVX512, "-mavx512vnni"]

ISA_FLAGS = {
    "x86_64": {
        "avx2": AVX2,
        "avxvnni": AVXVNNI,
        "avx512": AVX512,
        "avx512vnni": AVX512VNNI,
        "avx512vbmi": [*AVX512, "-mavx512vbmi"],
        "avx512bf16": [*AVX512, "-mavx512bf16"],
        "amx": [*AVX512VNNI, "-mavxvnni", "-mamx-tile", "-mamx-int8", "-mamx-bf16"],
    },
    "aarch64": {"neon": [], "dotprod": ["-march=armv8.2-a+dotprod"], "i8mm": ["-march=armv8.2-a+dotprod+i8mm"]},
}
# What the kernels of formats are compiled for (csrc/formats/simd/simd.h).
SIMD_SETS = {"x86_64": ["avx2", "avx512"], "aarch64": ["neon"]}
# The header of an instruction set's functions takes a fifth of a second to read: it is read once for each set of flags.
INTRINSICS = {"x86_64": "immintrin.h"}
PRECOMPILED, ENOUGH = "prefix.h.gch", 4  # for fewer sources it takes longer than it saves
ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}

# Same bits on every compiler: no contraction into fma, nothing of -ffast-math, no LTO across ISAs.
# math-errno is off so that sqrt and rint become instructions; values stay the same.
FLAGS = ["-std=c11", "-D_DEFAULT_SOURCE", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-lto"]
THREADS = [] if sys.platform == "win32" else ["-pthread"]
FLAGS += ["-fvisibility=hidden", *THREADS, "-Wall", "-Wextra"]
LINK_FLAGS = [*THREADS, "-fno-lto"]

if os.environ.get("HETEROCOMPUTE_WERROR") == "1":
    FLAGS += ["-Werror"]
SANITIZE = os.environ.get("HETEROCOMPUTE_SANITIZE")
if os.environ.get("HETEROCOMPUTE_WERROR") == "1" and not SANITIZE:
    FLAGS += ["-Wframe-larger-than=24576"]  # a thread may have 64 KiB of stack, and calls are four deep or so
if SANITIZE:
    FLAGS += ["-Og", f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1"]
    FLAGS += ["-fno-wrapv"]  # Python's own flags say -fwrapv, with which no sum overflows
    LINK_FLAGS += [f"-fsanitize={SANITIZE}"]
if SANITIZE or os.environ.get("HETEROCOMPUTE_DEBUG") == "1":
    FLAGS += ["-UNDEBUG", "-DHC_DEBUG"]
elif "-g" not in os.environ.get("CFLAGS", "").split():
    FLAGS += ["-g0"]  # Python's own flags say -g: three quarters of the extension's bytes


def target_machine() -> str:
    """Name the machine that we build for, as ISA_FLAGS does."""
    machine = get_platform().split("-")[-1].lower()
    if machine.startswith("universal"):  # a macOS Python for two machines: one is built, ARCHFLAGS says which
        os.environ.setdefault("ARCHFLAGS", f"-arch {platform.machine()}")
    if sys.platform == "darwin" and os.environ.get("ARCHFLAGS"):
        machine = os.environ["ARCHFLAGS"].split()[-1].lower()
    return ALIASES.get(machine, machine)


def isa_suffix(source: str) -> str | None:
    """Return the ISA suffix of a file name, if it has one of any machine's."""
    suffix = Path(source).stem.rpartition("_")[2]
    return suffix if any(suffix in flags for flags in ISA_FLAGS.values()) else None


def flags_of(source: str, machine: str) -> list[list[str]]:
    """Return the flags of each compilation of a file: of one, of none for this machine, or of one for each SIMD set."""
    isa_flags = ISA_FLAGS.get(machine, {})
    if Path(source).stem.endswith("_simd"):
        return [[*isa_flags[name], f"-DHC_SIMD_{name}"] for name in SIMD_SETS.get(machine, [])]
    suffix = isa_suffix(source)
    return [isa_flags.get(suffix or "", [])] if suffix in {None, *isa_flags} else []


class Build(build):
    """Check the compiler first: a build without one ends before anything is copied."""

    def run(self) -> None:
        self.get_finalized_command("build_ext").check_first()
        super().run()


class BuildExt(build_ext):
    """Compile each source with its own flags, two at a time, and only what changed."""

    def finalize_options(self) -> None:
        if sys.platform == "win32":  # clang: neither MSVC nor gcc keeps the alignment of AVX registers on the stack
            self.compiler = self.compiler or "mingw32"
            os.environ.setdefault("CC", "clang")
        super().finalize_options()

    def get_libraries(self, ext: Extension) -> list[str]:
        if sys.platform == "win32" and ext.py_limited_api:  # setuptools gives mingw compilers that of this version
            return ["python3"]
        return super().get_libraries(ext)

    def build_extension(self, ext: Extension) -> None:
        machine = target_machine()
        self.check_compiler([flag for flags in ISA_FLAGS.get(machine, {}).values() for flag in flags])
        jobs = [(source, [*FLAGS, *flags]) for source in ext.sources for flags in flags_of(source, machine)]
        known = [f"-DHC_CUDA_SOURCES=0x{digest():08x}"]  # by which the core recognizes the kernels that fit it
        jobs = [(source, [*flags, *(known if source == "csrc/python/cuda/memory.c" else [])]) for source, flags in jobs]
        stale = Counter(tuple(flags) for source, flags in jobs if not is_current(self.target_of(ext, source, flags)))
        with ThreadPoolExecutor(self.parallel or os.cpu_count() or 1) as pool:
            header = INTRINSICS.get(machine)
            several = [flags for flags, count in stale.items() if count >= ENOUGH and len(flags) > len(FLAGS)]
            if header is None or is_ccache(self.compiler.compiler_so[0]):  # which would compile such files each time
                several = []
            read = pool.map(lambda flags: self.precompile(ext, [*flags], header or ""), several)
            self.read_once = dict(zip(several, read, strict=True))
            objects = list(pool.map(lambda job: self.compile(ext, *job), jobs))
        for folder in map(self.folder_of, [ext] * len(several), several):
            Path(folder, PRECOMPILED).unlink(missing_ok=True)  # 24 MB each
        link = copy(ext)
        link.sources, link.extra_objects = [], objects
        if sys.platform == "linux" and not (SANITIZE or self.inplace or self.editable_mode):
            link.extra_link_args = [*ext.extra_link_args, "-Wl,--strip-all"]  # a wheel needs no names of kernels
        # Always link: an extension of other flags may lie there, newer than these objects.
        self.force = self.compiler.force = True
        super().build_extension(link)
        if ext.py_limited_api:  # an extension for this version alone, which Python would import instead, is older
            suffix = sysconfig.get_config_var("EXT_SUFFIX")
            for folder in (".", self.build_lib):
                Path(folder, *ext.name.split(".")).with_suffix(suffix).unlink(missing_ok=True)

    def lasting_folder(self) -> str:
        """Return where objects are kept: setuptools gives editable installs a temporary folder."""
        lasting = f"build/temp.{get_platform()}-{sys.implementation.cache_tag}"
        return lasting if self.editable_mode else self.build_temp

    def compile(self, ext: Extension, source: str, flags: list[str]) -> str:
        """Compile one source unless its object is newer than all that it was made of."""
        target = self.target_of(ext, source, flags)
        if not is_current(target):
            self.compiler.compile(
                [source],
                output_dir=self.folder_of(ext, flags),
                macros=ext.define_macros,
                include_dirs=ext.include_dirs,
                # NumPy's headers lie in a folder that pip makes anew for each build: -MMD leaves them out of the list.
                extra_postargs=[*flags, *self.read_once.get(tuple(flags), []), "-MMD", "-isystem", numpy.get_include()],
            )
        return target

    def target_of(self, ext: Extension, source: str, flags: list[str]) -> str:
        """Return the object of a source."""
        (target,) = self.compiler.object_filenames([source], output_dir=self.folder_of(ext, flags))
        return target

    def folder_of(self, ext: Extension, flags: Sequence[str]) -> str:
        """Return the folder of what is compiled with these flags."""
        command = repr((self.compiler.compiler_so, [*flags], ext.define_macros, numpy.__version__))
        return os.path.join(self.lasting_folder(), f"{zlib.crc32(command.encode()):08x}")

    def precompile(self, ext: Extension, flags: list[str], header: str) -> list[str]:
        """Read a system header once for these flags; return the flags by which a source takes it, none if that fails.

        An object is the same with and without: the sources include the header themselves.
        """
        folder = Path(self.folder_of(ext, flags))
        folder.mkdir(parents=True, exist_ok=True)
        prefix = folder / "prefix.h"
        if not prefix.exists():
            prefix.write_text(f"#include <{header}>\n")
        # gcc and clang look for it beside the header. It has its name when it is whole: two builds may run at once.
        with tempfile.TemporaryDirectory(dir=folder) as own:
            made = Path(own, PRECOMPILED)
            command = [*self.compiler.compiler_so, *flags, "-x", "c-header", str(prefix), "-o", str(made)]
            if subprocess.run(command, capture_output=True).returncode:
                return []
            made.replace(folder / PRECOMPILED)
        return ["-include", str(prefix)]

    def check_first(self) -> None:
        """Check the compiler that a build will use, before it runs."""
        named, self.compiler = self.compiler, new_compiler(compiler=self.compiler)
        try:
            customize_compiler(self.compiler)
            self.check_compiler([flag for flags in ISA_FLAGS.get(target_machine(), {}).values() for flag in flags])
        finally:
            self.compiler = named

    def check_compiler(self, flags: list[str]) -> None:
        """End with one sentence where the compiler is missing, too old or without Python's headers."""
        if self.compiler.compiler_type not in ("unix", "mingw32"):
            raise SystemExit("heterocompute: the build needs gcc or clang, and this Python uses neither.")
        compiler = self.compiler.compiler_so
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "empty.c")
            source.write_text("int hc_empty;\n")
            command = [*compiler, *flags, "-c", str(source), "-o", str(source.with_suffix(".o"))]
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError:
                raise SystemExit(
                    f"heterocompute: no C compiler: '{compiler[0]}' cannot be run; install gcc or clang "
                    "(Debian, Ubuntu: apt install gcc), or set CC to yours."
                ) from None
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it says nothing"])[0]
            raise SystemExit(f"heterocompute: '{compiler[0]}' is no gcc >= 11 or clang >= 12: {reason}")
        if not Path(get_path("include"), "Python.h").exists():
            raise SystemExit("heterocompute: Python.h is missing: install Python's headers (apt install python3-dev)")


def is_ccache(command: str) -> bool:
    """Whether a compiler is ccache, by its name or behind a link."""
    place = shutil.which(command)
    return "ccache" in Path(command).name or (place is not None and "ccache" in Path(place).resolve().name)


class SDist(sdist):
    """Everything that the repository holds, tests and pages too: what is unpacked can be tested as a clone can."""

    def make_distribution(self) -> None:
        for path in (".ci", ".github", "csrc", "cuda", "docs", "heterocompute", "notebooks", "tests"):
            self.filelist.graft(path)
        for path in (".clang-format", ".gitignore", ".pre-commit-config.yaml", "*.md", "CITATION.cff", "noxfile.py"):
            self.filelist.include(path)
        for made in ("*.py[cod]", "*.so", "*.o", "*.fatbin", "made_of"):
            self.filelist.global_exclude(made)
        for made in ("cuda/build", "cuda/dist"):
            self.filelist.prune(made)
        super().make_distribution()


def long_description() -> str:
    """Return README.md for a package index, where relative links lead nowhere: their words stay, pictures go."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^]]*\]\((?!https://)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^]]*)\]\((?!https://)[^)]*\)", r"\1", text)


# One extension serves Python 3.11 and later (csrc/python/limited.h). A Python without a GIL has one of its own.
IS_LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")
LIMITED_API = [("Py_LIMITED_API", "0x030b0000")] if IS_LIMITED else []

setup(
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_LIMITED else {},
    cmdclass={"build": Build, "build_ext": BuildExt, "sdist": SDist},
    long_description=long_description(),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            # Not `_core`: tools that match libraries by prefix would mistake it for another.
            "heterocompute._heterocompute",
            sources=sorted(glob("csrc/**/*.c", recursive=True)),
            depends=[
                *sorted(glob("csrc/**/*.h", recursive=True) + glob("csrc/**/*.def", recursive=True)),
            ],
            include_dirs=["csrc"],
            define_macros=[
                ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
                ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
                *LIMITED_API,
            ],
            py_limited_api=IS_LIMITED,
            extra_link_args=LINK_FLAGS,
        )
    ],
)
