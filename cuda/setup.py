"""The build of heterocompute-cuda, which needs the repository around it: the sdist of heterocompute has all of it."""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fatbins


class BuildPy(build_py):
    """Compile the kernels into the package; an editable one has them in the checkout."""

    def run(self) -> None:
        super().run()
        folder = Path("." if self.editable_mode else self.build_lib, "heterocompute_cuda")
        fatbins.build(folder.resolve())
        if not self.editable_mode:
            shutil.copyfile(fatbins.ROOT / "LICENSE", folder / "LICENSE")


setup(
    version=fatbins.version(),
    cmdclass={"build_py": BuildPy},
    install_requires=[f"heterocompute=={fatbins.version()}"],
    setup_requires=[] if fatbins.find_nvcc() else fatbins.PACKAGES,
)
