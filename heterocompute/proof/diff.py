"""Where two checkpoints differ, and by how much: `diff`."""

from __future__ import annotations

import os

from ..base.errors import WrongType, shown
from ..base.float_env import counts_subnormals
from ..base.locations import exists
from ..base.progress import Progress
from ..base.texts import file_name
from .checkpoints import diff_checkpoints
from .difference import Difference


@counts_subnormals
def diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    layout_a: str | None = None,
    layout_b: str | None = None,
    progress: Progress | None = None,
) -> Difference:
    """Compare two checkpoints tensor by tensor, also in different layouts.

    Parameters
    ----------
    a, b : str or os.PathLike
        Checkpoints of any kind that `open_checkpoint` reads. Tensors of a language model in GGUF are compared under the
        names of Hugging Face.
    layout_a, layout_b : str, optional
        Layouts of other programs. Default: read from the files.
    progress : callable, optional
        ``progress(done, all, name)``, before each tensor and at the end.

    Returns
    -------
    Difference
        `rows` has one dict per tensor, the largest difference first:

        - `name`, `shape`; `a` and `b`: how it is stored.
        - `status`: ``"equal"``, ``"layout"`` (equal values, stored in another way), ``"differs"``, ``"shape"``,
          ``"only in a"``, ``"only in b"``.
        - `values`: share of values that differ. `index`: the first of them.
        - `ulp`: the largest distance in floats. `sqnr_db`: of a to the difference, None if exact or not finite.
        - `codes`, `steps`: of one format, the share of codes that differ, and the largest difference in steps.
        - `kl_bits`: KL divergence of the histograms of values, 256 bins.

    Raises
    ------
    ValueError
        A file is invalid. The message names the file.
    OSError
        A file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> folder = tempfile.mkdtemp()
    >>> a, b = os.path.join(folder, "a.safetensors"), os.path.join(folder, "b.npz")
    >>> hc.save(a, {"w": np.float32([1, 2]), "v": np.float32([1, 2])})
    >>> np.savez(b, w=np.float32([1, 2]), v=np.nextafter(np.float32([1, 2]), np.float32(3)))
    >>> found = hc.diff(a, b)
    >>> found.equal, found.layer, found.cause
    (False, 'v', 'weights')
    >>> [(row["name"], row["status"], row["ulp"]) for row in found.rows]
    [('v', 'differs', 1), ('w', 'equal', None)]
    """
    for name, one in (("a", a), ("b", b)):
        if not isinstance(one, (str, os.PathLike)):
            raise WrongType(f"diff: {name} is {shown(one)}, expected the path of a checkpoint")
        if not exists(file_name(one)):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(one))
    return diff_checkpoints(file_name(a), file_name(b), (layout_a, layout_b), progress)
