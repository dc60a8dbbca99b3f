"""The installed package is complete and quick to import, and its sources build elsewhere."""

from __future__ import annotations

import ast
import email
import importlib.metadata
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import heterocompute as hc
from heterocompute import _heterocompute
from heterocompute.bench.drawn import DRAWS

PACKAGE = Path(hc.__file__).parent


def tracked(checkout: Path) -> list[str]:
    """Return the files of the checkout in git; for an unpacked sdist without git, all files except those of a build."""
    if (checkout / ".git").exists() and shutil.which("git"):
        git = ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split("\0")
        return [name for name in listed if name and (checkout / name).exists()]
    tops = (".ci", ".clang-format", ".github", ".gitignore", "csrc", "cuda", "docs", "heterocompute", "notebooks",
            "tests", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "README.md",
            "SECURITY.md", "noxfile.py", "pyproject.toml", "setup.py")  # fmt: skip
    files = (
        path
        for top in tops
        for path in ((checkout / top).rglob("*") if (checkout / top).is_dir() else [checkout / top])
    )
    names = [path.relative_to(checkout).as_posix() for path in files if path.is_file()]
    return [
        name for name in names if "__pycache__" not in name and not name.endswith((".so", ".o", ".fatbin", "/made_of"))
    ]


@pytest.fixture(scope="module")
def sources(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources, so that the checkout stays clean."""
    copy = tmp_path_factory.mktemp("sources")
    for name in tracked(checkout):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(checkout / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def archive(sources: Path) -> Path:
    """Return the sdist."""
    done = setup_py(sources, "sdist")
    assert done.returncode == 0, done.stderr
    (found,) = (sources / "dist").glob("*.tar.gz")
    return found


def setup_py(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_the_metadata_says_what_it_is() -> None:
    metadata = importlib.metadata.metadata("heterocompute")
    assert metadata["Version"] == hc.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="heterocompute")
    assert script.value == "heterocompute.cli:main"


@pytest.mark.parametrize("file", ["py.typed", "_heterocompute.pyi", "zoo/digits.safetensors", "zoo/adder.safetensors"])
def test_data_files_are_installed(file: str) -> None:
    assert (PACKAGE / file).exists()


def test_every_data_file_of_the_sources_is_in_a_wheel(sources: Path, checkout: Path, tmp_path: Path) -> None:
    done = setup_py(sources, "build_py", "--build-lib", str(tmp_path))  # without the core, which takes long
    assert done.returncode == 0, done.stderr
    wanted = {name for name in tracked(checkout) if name.startswith("heterocompute/")}
    assert wanted == {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}


def test_importing_opens_no_heavy_package() -> None:
    heavy = ["rich", "matplotlib", "pandas", "safetensors", "ml_dtypes", "scipy_openblas32", "sklearn", "torch"]
    code = f"import sys, heterocompute; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not shutil.which("nm") or sys.platform != "linux", reason="needs nm of binutils")
def test_the_extension_exports_its_init_alone() -> None:
    done = subprocess.run(["nm", "-D", "--defined-only", _heterocompute.__file__], capture_output=True, text=True)
    exported = {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()} - {"_init", "_fini"}
    assert exported == {"PyInit__heterocompute"}


def test_the_sdist_holds_the_repository(archive: Path, checkout: Path) -> None:
    with tarfile.open(archive) as tar:
        held = {member.name.partition("/")[2] for member in tar.getmembers() if member.isfile()}
    wanted = set(tracked(checkout))
    assert {"tests/common.py", "tests/conftest.py", "docs/study.md", ".ci/run"} <= wanted
    assert not wanted - held
    made = {name for name in held - wanted if "egg-info" not in name}
    assert made == {"PKG-INFO", "setup.cfg"}


def test_the_page_of_a_package_index_has_no_broken_links(archive: Path, checkout: Path) -> None:
    with tarfile.open(archive) as tar:
        member = tar.extractfile(f"{archive.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert member is not None
        metadata = email.message_from_bytes(member.read())
    assert metadata["Description-Content-Type"] == "text/markdown"
    page = metadata.get_payload()
    assert isinstance(page, str) and page.count("\n") > 100 and "<!-- formats begin -->" in page
    assert re.findall(r"\]\((?!https://)", page) == []
    assert "See docs/torch.md." in page  # the words of a link stay
    assert "](docs/" in (checkout / "README.md").read_text()


def test_a_release_is_described(checkout: Path) -> None:
    """The newest entry of the changelog and the citation name the version, with its date."""
    changes = (checkout / "CHANGELOG.md").read_text()
    version, date = re.findall(r"^## (\S+) \((\d{4}-\d\d-\d\d|unreleased)\)$", changes, re.MULTILINE)[0]
    assert version == hc.__version__
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert citation["version"] == version and citation["license"] == "Apache-2.0"
    assert str(citation.get("date-released", "unreleased")) == date
    recipe = yaml.safe_load((checkout / ".ci/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == version and recipe["about"]["license"] == "Apache-2.0"
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["cuda"] == [f"heterocompute-cuda=={version}"]
    scripts = [f"{name} = {function}" for name, function in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    needed, given = ({one.split()[0].partition(">")[0] for one in listed}
                     for listed in (project["dependencies"], recipe["requirements"]["run"]))  # fmt: skip
    assert given - {"python"} == needed - {"scipy-openblas32"}  # which conda-forge does not have


def test_benchmarks_of_commits_are_the_drawn_ones(checkout: Path) -> None:
    asv = json.loads((checkout / ".ci/asv/asv.conf.json").read_text())
    assert (checkout / ".ci/asv" / asv["repo"] / "pyproject.toml").exists()
    found = runpy.run_path(str(checkout / ".ci/asv/drawn.py"))
    (kinds, calls) = found["Drawn"].params
    assert len(kinds) >= 5 and set(kinds) <= set(DRAWS) and len(calls) == found["CALLS"]
    one = found["Drawn"]()
    one.setup("codecs", 0)
    one.time_call("codecs", 0)


def test_forms_and_workflows_parse(checkout: Path) -> None:
    forms = sorted((checkout / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    workflows = sorted((checkout / ".github/workflows").glob("*.yml"))
    assert len(forms) >= 3 and len(workflows) >= 2
    for path in workflows:
        told = yaml.safe_load(path.read_text())
        assert told["jobs"] and "permissions" in told, path.name
        runs = [step["run"] for job in told["jobs"].values() for step in job["steps"] if "run" in step]
        for script in runs:
            for file in re.findall(r"(?:^|\s)((?:\.ci|cuda|docs|heterocompute|tests)/\S+|CHANGELOG\.md)", script):
                assert (checkout / file).exists(), f"{path.name} names {file}"
    for path in forms:
        told = yaml.safe_load(path.read_text())
        assert path.name == "config.yml" or {"name", "description", "body"} <= set(told), path.name


@pytest.mark.sweep(every=0)  # ruff parses for the oldest of them, too
def test_python_versions_agree(checkout: Path) -> None:
    """The classifiers, requires-python and cibuildwheel have the same versions."""
    described = tomllib.loads((checkout / "pyproject.toml").read_text())
    project, wheels = described["project"], described["tool"]["cibuildwheel"]
    text = "Programming Language :: Python :: 3."
    minors = [int(one.removeprefix(text)) for one in project["classifiers"] if one.startswith(text)]
    assert minors == list(range(min(minors), max(minors) + 1))
    assert project["requires-python"] == f">=3.{min(minors)}"
    free = [f"cp3{minor}t-*" for minor in (max(minors), max(minors) + 1)]
    assert wheels["build"].split() == [*(f"cp3{minor}-*" for minor in minors), *free]
    assert runpy_of_setup(checkout)["IS_LIMITED"] == (not sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert set(wheels["test-extras"]) <= set(project["optional-dependencies"])
    assert "urls" not in project  # the project has no host yet
    for folder in ("heterocompute", "tests", "docs"):
        for path in (checkout / folder).rglob("*.py"):
            ast.parse(path.read_text(), feature_version=(3, min(minors)))


def runpy_of_setup(checkout: Path) -> dict[str, Any]:
    """Return what setup.py defines; a path that it added would stay for all later tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("setuptools.setup", lambda **_: None)
        patch.chdir(checkout)
        found = runpy.run_path("setup.py")
    assert not {"cuda", str(checkout / "cuda")} & set(sys.path)
    return found


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_second_install_compiles_nothing_even_editable(checkout: Path, tmp_path: Path) -> None:
    project, log, compiler = tmp_path / "project", tmp_path / "log", tmp_path / "cc"
    (project / "csrc").mkdir(parents=True)
    (project / "heterocompute").mkdir()
    (project / "heterocompute/__init__.py").touch()
    (project / "heterocompute/base").mkdir()
    (project / "cuda").mkdir()
    for name in (
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "cuda/fatbins.py",
        "heterocompute/base/version.py",
    ):
        shutil.copy(checkout / name, project / name)
    (project / "csrc/one.c").write_text("#include <Python.h>\n#include <numpy/arrayobject.h>\nint hc_one;\n")
    compiler.write_text(f'#!/bin/sh\necho "$@" >>{log}\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    numpy_copy = tmp_path / "build-environment/include"  # pip makes such a folder for each build, and removes it
    code = (
        "import os, numpy; from setuptools import build_meta\n"
        "numpy.get_include = lambda: os.environ['NUMPY_INCLUDE']\n"
        "build_meta.build_editable('.')"
    )
    shutil.copytree(np.get_include(), numpy_copy)
    for include in (numpy_copy, np.get_include()):
        environment = {**os.environ, "CC": str(compiler), "NUMPY_INCLUDE": str(include)}
        environment.pop("CFLAGS", None)
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=project, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        shutil.rmtree(numpy_copy, ignore_errors=True)
    compiled = [line.split() for line in log.read_text().splitlines() if "csrc/one.c" in line]
    assert len(compiled) == 1
    assert "-g0" in compiled[0]


def test_the_distribution_of_the_kernels_has_all_files(sources: Path, tmp_path: Path) -> None:
    """Build it with a compiler that writes its arguments."""
    nvcc = tmp_path / "bin/nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(
        """#!/bin/sh
        echo "$@, release 13.0, V"
        while [ "$1" ]; do
            case "$1" in -MF) echo "x:" >"$2" ;; -o) echo image >"$2" ;; esac
            shift
        done
        """
    )
    nvcc.chmod(0o755)
    path = f"{nvcc.parent}{os.pathsep}{os.environ['PATH']}"
    done = setup_py(sources / "cuda", "build_py", "--build-lib", str(tmp_path / "made"), PATH=path)
    assert done.returncode == 0, done.stderr
    made = {file.name for file in (tmp_path / "made/heterocompute_cuda").iterdir()}
    kernels = {f"{file.stem}.fatbin" for file in (sources / "csrc/cuda").rglob("*.cu")}
    assert made == kernels | {"__init__.py", "made_of", "LICENSE"}
    version, number = (tmp_path / "made/heterocompute_cuda/made_of").read_text().split()
    assert version == hc.__version__ and len(number) == 8
    told = setup_py(sources / "cuda", "--version", PATH=path)
    assert told.stdout.split()[-1] == hc.__version__


def test_the_variable_that_built_the_kernels_is_refused(sources: Path) -> None:
    done = setup_py(sources, "--version", HETEROCOMPUTE_CUDA="1")
    assert done.returncode != 0
    assert done.stderr == (
        "heterocompute: HETEROCOMPUTE_CUDA is not supported: `pip install ./cuda` builds the CUDA kernels\n"
    )
    assert setup_py(sources, "--version", HETEROCOMPUTE_CUDA="0").returncode == 0


def test_a_missing_compiler_gives_one_sentence(sources: Path) -> None:
    done = setup_py(sources, "build_ext", CC="no-such-compiler")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("heterocompute: no C compiler: 'no-such-compiler'")
    assert "Traceback" not in done.stderr


def test_a_missing_compiler_is_told_before_anything_is_copied(sources: Path) -> None:
    done = setup_py(sources, "build", "--build-base", "build-without", CC="no-such-compiler")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("heterocompute: no C compiler: 'no-such-compiler'")
    assert "copying" not in done.stdout and not list(sources.glob("build-without/**/*.py"))


def test_a_compiler_that_is_too_old_gives_one_sentence(sources: Path) -> None:
    done = setup_py(sources, "build_ext", CC="cc -no-such-flag")
    assert done.returncode != 0
    assert re.search(r"^heterocompute: 'cc' is no gcc >= \d+ or clang >= \d+: ", done.stderr.splitlines()[-1])


def test_files_for_every_machine_get_no_flags_of_a_cpu(checkout: Path) -> None:
    build = runpy_of_setup(checkout)
    assert not [flag for flag in build["FLAGS"] if flag.startswith("-m")]
    assert {"-ffp-contract=off", "-fno-lto"} <= set(build["FLAGS"])
    all_flags = {flag for isas in build["ISA_FLAGS"].values() for flags in isas.values() for flag in flags}
    assert not {"-ffast-math", "-Ofast", "-march=native"} & (all_flags | set(build["FLAGS"]))
    assert build["isa_suffix"]("csrc/kernels/gemm_s8_avx512vnni.c") == "avx512vnni"
    assert build["isa_suffix"]("csrc/kernels/gemm_s8_scalar.c") is None
    assert build["isa_suffix"]("csrc/ops/matmul.c") is None


def test_kernels_of_formats_are_compiled_for_every_simd_set(checkout: Path) -> None:
    build = runpy_of_setup(checkout)
    flags = build["flags_of"]("csrc/formats/int/int_simd.c", "x86_64")
    assert [each[-1] for each in flags] == ["-DHC_SIMD_avx2", "-DHC_SIMD_avx512"]
    assert [each[:-1] for each in flags] == [build["ISA_FLAGS"]["x86_64"][isa] for isa in ("avx2", "avx512")]
    assert build["flags_of"]("csrc/formats/int/int_simd.c", "aarch64") == [["-DHC_SIMD_neon"]]
    assert build["flags_of"]("csrc/kernels/gemm/gemm_f32_avx2.c", "aarch64") == []
    assert build["flags_of"]("csrc/formats/int/int.c", "aarch64") == [[]]


def test_python_started_in_the_sources_says_so(sources: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-S", "-c", "import heterocompute"]  # -S: without what is installed
    done = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: heterocompute: ")
    assert "holds the sources, without the compiled core" in done.stderr
