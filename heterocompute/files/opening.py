"""Checkpoints of any kind, from any program, as a lazy mapping of names to arrays."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

from ..arrays.base import PackedArray
from ..arrays.layout import SINGLE, Entry, as_path
from ..base.container import Reader
from ..base.errors import WrongValue, printable
from ..base.float_env import counts_subnormals
from ..base.locations import absolute, is_folder
from ..base.magic import FIRST_BYTES, kind_of, names_index
from ..base.notebooks.shown import Shown, facts_html, told
from ..base.regular import open_regular
from ..base.tensors import Info, Tensors
from ..base.texts import counted, file_name, quoted
from .containers.folder import Folder, index_in
from .containers.gguf_files import Gguf
from .containers.gguf_parts import whole
from .containers.numpy_files import Npy, Npz
from .containers.onnx_files import Onnx
from .containers.torch_files import LegacyTorch, ZipTorch
from .layouts.reading import readers_in
from .layouts.refusals import refuse_codes, refuse_layout
from .roles import Roles, roles_of
from .safetensors import contents, entries, read_array


def reader_of(path: str | os.PathLike[str]) -> Tensors:
    """Open a file or folder of tensors by what it is, which its first bytes say, not its name.

    Raises
    ------
    ValueError
        It is of no kind that is read, or illegal.
    OSError
        It cannot be read.
    ImportError
        ONNX without onnx.
    """
    place = file_name(path)
    if "\0" not in place and is_folder(place):
        place = index_in(place)
    with open_regular(place) as file:
        kind = kind_of(file.read(FIRST_BYTES) or b"", place)
    return READERS.get("" if kind is None else kind.name, Reader)(place)  # Reader's error describes other files


def _open_part(path: str) -> Tensors:
    if names_index(path) or is_folder(path):
        raise WrongValue(f"{printable(path)}: an index inside an index")
    return reader_of(path)


# Kind of file in base/magic.py -> its reader.
READERS: Mapping[str, Callable[[str], Tensors]] = {
    "safetensors": Reader,
    "folder": partial(Folder, open_part=_open_part),
    "npz": Npz,
    "npy": Npy,
    "torch": ZipTorch,
    "legacy torch": LegacyTorch,
    "onnx": Onnx,
    "gguf": lambda place: whole(Gguf(place)),
}


class Place(NamedTuple):
    """The path of a checkpoint and its layout."""

    path: str
    layout: str | None

    def opened(self) -> Checkpoint:
        """Open the checkpoint."""
        return open_checkpoint(self.path, self.layout)


class Checkpoint(Shown, Mapping[str, Any]):
    """Map names to the arrays of a checkpoint, each read on access. Returned by `open_checkpoint`.

    Attributes
    ----------
    path : str
    metadata : dict of str to str
        Metadata of the file.
    skipped : dict of str to str
        Entries with an unknown dtype or without numbers, each with a description.
    axes : dict of str to tuple of int
        Reduction axes, if the file tells how a tensor is multiplied, as ONNX does, or the configuration of its model.
    roles : Roles
        These axes, and the names of the tensors that are no matrices.
    names_operands : bool
        Whether `axes` has all operands of matmuls, as that of ONNX.
    """

    def __init__(self, reader: Tensors, layout: str | None = None) -> None:
        self._reader, self._layout, self._closed = reader, layout, False
        self._held = dict(contents(reader, entries(reader)[0])) if layout is None else None
        self._reads = _readers_of(reader, self._held) if self._held is not None else readers_in(reader, str(layout))
        self.path, self.metadata, self.skipped = reader.path, dict(reader.metadata), dict(reader.skipped)
        self.names_operands = bool(reader.axes)

    @functools.cached_property
    def roles(self) -> Roles:
        """The use of the arrays, as far as the file or its configuration states it."""
        return roles_of(self._reader, self._shapes())

    @property
    def axes(self) -> dict[str, tuple[int, ...]]:
        """Reduction axes that the file or its configuration states."""
        return dict(self.roles.axes)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        if self._held is None:  # decoding all weights for their shapes would take minutes
            return {name: self._reader.info(name).shape for name in self._reader.names if name in self._reads}
        return {n: (self._reader.info(n) if entry is None else entry).shape for n, entry in self._held.items()}

    @counts_subnormals
    def __getitem__(self, name: str) -> Any:
        self._check_open()
        return self._reads[name]()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path. Unpickling opens the checkpoint again, if the path has the same files there."""
        self._check_open()
        return open_checkpoint, place_of(self)

    def _check_open(self) -> None:
        if self._closed:
            raise WrongValue(
                f"{printable(self.path)}: the checkpoint is closed: expected its arrays inside the with block, or "
                "before "
                "close"
            )

    def __contains__(self, name: object) -> bool:
        return name in self._reads

    def __iter__(self) -> Iterator[str]:
        return iter(self._reads)

    def __len__(self) -> int:
        return len(self._reads)

    def info(self, name: str) -> Info:
        """Return dtype and shape of one array, without reading it unless it is in the layout of another program.

        Parameters
        ----------
        name : str

        Returns
        -------
        Info
            `dtype`, `shape` and `nbytes`. For a packed array: the dtype before packing, and the stored bytes.

        Raises
        ------
        KeyError
            The array does not exist.
        """
        self._check_open()
        if self._held is None:
            array = self._reads[name]()
            return Info(str(array.dtype), array.shape, array.nbytes)
        entry = self._held[name]
        if entry is None:
            return self._reader.info(name)
        stored = sum(self._reader.info(f"{name}.{key}").nbytes for key in entry.components)
        return Info(entry.dtype, entry.shape, stored)

    def plain_infos(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return dtype and shape of the unpacked arrays, by name.

        Returns
        -------
        dict of str to (str, tuple of int)
        """
        self._check_open()
        if self._held is None:
            arrays = {name: read() for name, read in self._reads.items()}
            plain = {name: array for name, array in arrays.items() if not isinstance(array, PackedArray)}
            return {name: (str(array.dtype), array.shape) for name, array in plain.items()}
        infos = {name: self._reader.info(name) for name, entry in self._held.items() if entry is None}
        return {name: (info.dtype, tuple(info.shape)) for name, info in infos.items()}

    def check_weights(self) -> None:
        """Check that the arrays are plain weights, not packed by another program.

        Raises
        ------
        ValueError
            The weights are quantized by another program, and the file was opened without its layout.
        """
        self._check_open()
        if self._held is None:
            return
        try:
            refuse_layout(self._reader)
        except ValueError as error:
            raise WrongValue(f"{printable(self.path)}: {error}") from None

    def close(self) -> None:
        """Close the file. Reading an array afterwards raises ValueError."""
        self._closed = True
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r}, {counted(len(self), 'array')})"

    def _repr_html_(self) -> str:
        metadata = {name: told(value) for name, value in self.metadata.items()}
        return facts_html({"path": self.path, "arrays": told(list(self)), **metadata})


def place_of(checkpoint: Checkpoint) -> Place:
    """Return the path and the layout, from which any process with access to the path can open the checkpoint."""
    return Place(absolute(checkpoint.path), checkpoint._layout)


def check_weights(arrays: Mapping[str, Any], name: str) -> None:
    """Check that the arrays of a mapping are weights, not codes of another program next to their scales.

    Parameters
    ----------
    arrays : mapping of str to array
        In memory, or a `Checkpoint`.
    name : str
        What the caller is called, for the error.

    Raises
    ------
    ValueError
        They are not.
    """
    if isinstance(arrays, Checkpoint):
        arrays.check_weights()
        return
    found = {key: (getattr(value, "dtype", None), getattr(value, "shape", None)) for key, value in arrays.items()}
    plain = {key for key, value in arrays.items() if isinstance(key, str) and not isinstance(value, PackedArray)}
    infos = {
        key: (str(dtype).removeprefix("torch."), tuple(shape))
        for key, (dtype, shape) in found.items()
        if key in plain and dtype is not None and isinstance(shape, tuple)
    }
    try:
        refuse_codes(infos)
    except ValueError as error:
        raise WrongValue(f"{name}: the checkpoint {error}") from None


def _readers_of(reader: Tensors, held: Mapping[str, Entry | None]) -> dict[str, Callable[[], Any]]:
    return {
        name: partial(reader.tensor, name) if entry is None else partial(read_array, reader, name, entry)
        for name, entry in held.items()
    }


def open_checkpoint(path: str | os.PathLike[str], layout: str | None = None) -> Checkpoint:
    """Open a checkpoint of any kind as a mapping of names to arrays that are read on access.

    Parameters
    ----------
    path : str or os.PathLike
        A path, or a URL such as ``s3://bucket/model`` (needs ``heterocompute[remote]``) of any of these except ONNX:

        - safetensors, or a folder with an index (or the index).
        - .npz and .npy of NumPy.
        - .pt, .pth and .bin of torch.save, in either layout, without torch and without running a pickle.
        - ONNX (needs ``heterocompute[onnx]``).
        - GGUF (4-bit and similar blocks need ``heterocompute[gguf]`` and are decoded to float32).
    layout : str, optional
        Layout of another program, as in `load`: return its weights as packed arrays.

    Returns
    -------
    Checkpoint
        Packed arrays of this package, and all other tensors as ndarrays of the stored dtype.

    Raises
    ------
    TypeError
        path is not a path.
    ValueError
        The kind of file is not supported, or the file is truncated or inconsistent. The message names the file.
    OSError
        The file cannot be read.
    ImportError
        A required package is not installed.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> np.savez(path, w=np.eye(2), b=np.ones(2, np.float32))
    >>> with hc.open_checkpoint(path) as weights:
    ...     print(list(weights), weights.info("b").dtype, weights["w"].sum())
    ['w', 'b'] float32 2.0
    """
    reader = reader_of(as_path(path, "open_checkpoint"))
    try:
        return Checkpoint(reader, layout)
    except BaseException:
        reader.close()
        raise


@counts_subnormals
def load(path: str | os.PathLike[str], layout: str | None = None) -> Any:
    """Load all arrays of a checkpoint: a safetensors file, or any other kind that `open_checkpoint` supports.

    Parameters
    ----------
    path : str or os.PathLike
    layout : str, optional
        Layout of another program, such as ``"gptq"``; docs/files.md lists them, and an error about another name does.
        Load the packed weights of that program, or of `save` with this layout, as packed arrays. Settings are read from
        config.json or from the metadata. GGUF blocks without a format in this package, such as IQ2_S, are decoded to
        float32.

    Returns
    -------
    QuantizedArray, SparseArray, EIEArray, BitmapArray, or dict of str to these and ndarrays
        The array itself for .npy and for a file of one packed array from a method ``save``. Otherwise all arrays by
        name. bfloat16 and float8 have the dtypes of ml_dtypes. Tensors of torch.save that share a storage also share
        memory here.

    Warns
    -----
    UserWarning
        Some tensors cannot be read and are left out. `open_checkpoint` lists them in ``skipped``.

    Raises
    ------
    TypeError
        path is not a path.
    ValueError
        The kind of file is not supported, or the file is truncated, is inconsistent, or describes quantized arrays that
        no format matches. The message names the file and the tensor.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> hc.save(path, {"w": np.ones((2, 3), np.float32)})
    >>> sorted(hc.load(path))
    ['w']
    """
    with reader_of(as_path(path, "load")) as reader:
        arrays = None if layout is None else readers_in(reader, layout)
        if reader.skipped:
            name, what = next(iter(reader.skipped.items()))
            if not reader.names:
                raise WrongValue(f"{printable(reader.path)}: holds nothing that can be read: {quoted(name)} is {what}")
            more = f", and {counted(len(reader.skipped) - 1, 'tensor')} more" if len(reader.skipped) > 1 else ""
            warnings.warn(f"{printable(reader.path)}: {quoted(name)} is {what}: left out{more}", stacklevel=3)
        if arrays is not None:
            return {name: read() for name, read in arrays.items()}
        found, single = entries(reader)
        if single:
            return read_array(reader, SINGLE, found[SINGLE])
        if isinstance(reader, Npy) and reader.names:
            return reader.tensor(SINGLE)
        return {
            name: reader.shared(name) if entry is None else read_array(reader, name, entry)
            for name, entry in contents(reader, found)
        }
