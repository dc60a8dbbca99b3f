"""The compiled CUDA kernels, files of the distribution heterocompute-cuda, which is found when CUDA is first used."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ... import _heterocompute as _core
from ..errors import Unsupported
from ..version import __version__

PACKAGE = "heterocompute_cuda"


def _files() -> list[Path]:
    """Return the files of the kernels; Unsupported without them, and where they do not fit this core."""
    found = find_spec(PACKAGE)
    wanted = f"{PACKAGE.replace('_', '-')}=={__version__}"
    try:
        places = found.submodule_search_locations if found else None
        folder = Path([*(places or ())][0])
        version, sources = (folder / "made_of").read_text().split()
    except (OSError, ValueError, IndexError):  # of a checkout whose kernels are not built, too
        raise Unsupported(
            f"cuda: the kernels are missing: pip install {wanted}, or pip install ./cuda in the sources"
        ) from None
    if version != __version__:
        raise Unsupported(f"cuda: the kernels are those of version {version}: pip install {wanted}")
    if int(sources, 16) != _core.cuda_sources():
        raise Unsupported(f"cuda: the kernels in {folder} are of other sources than heterocompute: install both again")
    return sorted(folder.glob("*.fatbin"))


def read() -> dict[str, bytes]:
    """Return the fatbins by the names of their modules."""
    return {path.stem: path.read_bytes() for path in _files()}


def described() -> str:
    """Return the begin of a line: the kernels that fit this core, or nothing."""
    try:
        files = _files()
    except Unsupported:
        return ""
    size = sum(path.stat().st_size for path in files) / 1e6
    return f"kernels for sm_80 to sm_120 ({len(files)} modules, {size:.1f} MB); "
