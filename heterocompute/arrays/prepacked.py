"""Weights prepared for many matmuls: `prepack`, and the arrays that it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.texts import counted
from ..base.version import __version__
from .array_like import ArrayLike
from .base import PackedArray
from .dense import as_array
from .foreign import refuse_elsewhere
from .quantized import QuantizedArray
from .rotated import RotatedArray

__all__ = ["Prepacked", "PrepackedFilters", "prepack"]

Array = np.ndarray[Any, Any]
# Panels of filters, by key: their capsule, its bytes, and the instruction sets that they were packed for.
Panels = dict[bytes, tuple[Any, int, int]]


def _bytes(panels: Panels) -> int:
    return sum(size for _, size, _ in list(panels.values()))


class Prepacked(QuantizedArray):
    """A quantized array that also stores the panels of its integer matmuls. Returned by `prepack`.

    It is accepted wherever its source is, with bitwise identical results. Under a narrower ``hc.use(isa=...)`` the
    components are used. It is copied, sliced and saved like its source. Panels are specific to one kernel and version.
    A pickle therefore holds the source only, which is packed again on loading, for the instruction sets and version
    there. The first convolution with "winograd2" or "winograd4" also stores the transformed filters.

    On a device, matmuls with activations that have several scales per row read the components. So do all other
    functions.

    Attributes
    ----------
    source : QuantizedArray
    nbytes : int
        Bytes of the panels and of filters that convolutions transformed. The panels are 0 bytes for rows of more than
        8192 values and for formats without integers to prepare. On a device they are 0 bytes if the kernels read the
        components as they are stored.
    isa : tuple of str
        Instruction sets that it was packed for; empty on a device.
    version : str
        Version of heterocompute that packed it.
    """

    __slots__ = ("_filters", "_mask", "_panels", "_source")

    _filters: Panels
    _mask: int
    _panels: tuple[Any, int] | None
    _source: QuantizedArray

    def __init__(self, source: QuantizedArray, panels: tuple[Any, int] | None, mask: int = 0) -> None:
        self._components, self._format, self._source_dtype = source._components, source._format, source._source_dtype
        self._shape, self._axis = source._shape, source._axis
        self._source = source
        self._filters = {}
        self._panels = panels
        self._mask = mask

    @property
    def source(self) -> QuantizedArray:
        return self._source

    @property
    def nbytes(self) -> int:
        return (self._panels[1] if self._panels else 0) + _bytes(self._filters)

    @property
    def isa(self) -> tuple[str, ...]:
        return () if self._is_far else tuple(_core.isa_names(self._mask))

    @property
    def version(self) -> str:
        return __version__

    @property
    @counts_subnormals
    def bits_per_value(self) -> float:
        return self.source.bits_per_value

    def _transposed(self) -> Prepacked:
        return Prepacked(self.source.T, self._panels, self._mask)

    def _remade(self, components: Mapping[str, Any], shape: Sequence[int], axis: Sequence[int]) -> Any:
        """Return the result of the source, without panels: panels of other rows would have to be packed again."""
        return self.source._remade(components, shape, axis)

    def to(self, device: object) -> Any:
        """Copy the components to a device, and prepack them there.

        Parameters
        ----------
        device : str
            As of `QuantizedArray.to`.

        Returns
        -------
        Prepacked
            The array itself if it is there already.
        """
        moved = self.source.to(device)
        return self if moved is self.source else prepack(moved)

    def _packed(self) -> tuple[Any, ...]:
        if self._is_far:
            return self._device_packed(self._panels[0].address if self._panels else 0)
        packed = super()._packed()
        return (*packed, self._panels[0]) if self._panels else packed

    def __reduce__(self) -> tuple[Any, ...]:
        self._refuse_far("pickle")
        return prepack, (self.source,)

    def __repr__(self) -> str:
        return f"Prepacked({self.source!r}, {counted(self.nbytes, 'byte')} of panels)"


class PrepackedFilters:
    """Float filters that also store the panels of their convolutions. Returned by `prepack`.

    `conv2d` accepts it in place of its source, with bitwise identical results. The first convolution of each kind packs
    the panels, and later ones read them. A kind is an algorithm, a number of groups and the instruction sets of the
    context. All other functions see an array. A pickle holds the source only, which is packed again on loading.

    Attributes
    ----------
    source : ndarray, shape (K, C / groups, R, S)
        Read-only, because the panels would not follow a change.
    shape : tuple of int
    ndim : int
    dtype : dtype
    device : str
        Of the source.
    nbytes : int
        Bytes of the panels so far. "direct" needs the bytes of the source in float32, with K rounded up to 32 in each
        group. "winograd2", "winograd4" and "winograd6" need 1.8, 4 and 7.1 times that, and up to 4 times as many with
        stride 2. "fft" needs one and a half times the number of values of its tiles.
    isa : tuple of str
        Instruction sets of the last panels; empty before the first convolution.
    version : str
        Version of heterocompute that packs it.
    """

    __slots__ = ("_filters", "source")

    source: Array
    _filters: Panels

    def __init__(self, source: Array) -> None:
        self.source = source
        self._filters = {}

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.source.shape
        return shape

    @property
    def ndim(self) -> int:
        return self.source.ndim

    @property
    def dtype(self) -> Any:
        return self.source.dtype

    @property
    def device(self) -> str:
        return self.source.device

    @property
    def nbytes(self) -> int:
        return _bytes(self._filters)

    @property
    def isa(self) -> tuple[str, ...]:
        masks = [mask for _, _, mask in list(self._filters.values())]
        names: tuple[str, ...] = tuple(_core.isa_names(masks[-1])) if masks else ()
        return names

    @property
    def version(self) -> str:
        return __version__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.source, dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        return prepack, (self.source,)

    def __repr__(self) -> str:
        return f"PrepackedFilters({self.dtype} filters {self.shape}, {counted(self.nbytes, 'byte')} of panels)"


@overload
def prepack(w: QuantizedArray) -> Prepacked: ...
@overload
def prepack(w: RotatedArray) -> RotatedArray: ...
@overload
def prepack(w: ArrayLike | PrepackedFilters) -> PrepackedFilters: ...
@counts_subnormals
def prepack(w: ArrayLike) -> Any:
    """Pack quantized weights or float filters once for many matmuls or convolutions.

    A large-batch matmul with quantized activations unpacks quantized weights at each call. Prepacking does this once,
    for the instruction sets of this context. Matmuls with up to 8 vectors, and matmuls without `activations`, still
    read the components. A convolution packs float filters at each call, or transforms them for Winograd. Prepacked
    filters are packed by the first call only.

    An array on a device is packed there, for activations with one scale per row. Its 4-bit integers stay packed if
    they have no minima and rows of a multiple of 64 values: matmuls read the components, and at most the scales are
    stored again. Filters and stacks of matrices have no panels there.

    Parameters
    ----------
    w : QuantizedArray, RotatedArray, or array_like of floats with shape (K, C / groups, R, S)
        The components of a QuantizedArray become read-only, because the packed panels would not follow a change.
        ``copy.deepcopy(w)`` can be changed and prepacked. Float filters are copied.

    Returns
    -------
    Prepacked or PrepackedFilters
        Accepted in place of w by `matmul`, `linear` and `conv2d`, with bitwise identical results. For a RotatedArray,
        one whose `source` is prepacked. Memory: about one byte per value in addition to w; for filters see
        `PrepackedFilters`.

    Raises
    ------
    TypeError
        w is neither a QuantizedArray nor a float array.
    ValueError
        The array does not have four dimensions.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.eye(32, 64, dtype=np.float32), "vsq4-g16-s4")
    >>> x = np.ones((9, 64), np.float32)
    >>> y = hc.linear(x, hc.prepack(q), activations="int8")
    >>> bool((y == hc.linear(x, q, activations="int8")).all())
    True
    """
    if isinstance(w, RotatedArray):
        return RotatedArray(prepack(w.source), w.format)
    if not isinstance(w, QuantizedArray):
        return _filters(w)
    source = w.source if isinstance(w, Prepacked) else w
    if source._is_far:
        return Prepacked(source, _device_panels(source))
    run = runtime.run()
    panels = _core.prepack(run, source._packed())
    if panels:
        for component in source.components.values():
            component.flags.writeable = False
    return Prepacked(source, panels, run[0])


def _device_panels(w: QuantizedArray) -> tuple[Any, int] | None:
    """Return the panels of weights on a device, without waiting for it; None if matmuls read the weights as stored."""
    memory, made = w._memory, list[Any]()

    def allocate(nbytes: int) -> int:
        made.append(memory.empty((nbytes,), np.uint8))
        return memory.address(made[0])

    if w.ndim == 2:  # no kernel reads panels of filters or of stacks
        _core.prepack(runtime.run_on(memory.number or 0, memory.stream, allocate), w._packed())
    return (made[0], made[0].nbytes) if made else None


def _filters(w: object) -> PrepackedFilters:
    refuse_elsewhere(w, "prepack: w")
    if w is None or isinstance(w, (PackedArray, str, bytes)) or np.isscalar(w):
        raise WrongType(f"prepack: w is {shown(w)}, expected a QuantizedArray, or filters of floats")
    array = as_array(w.source if isinstance(w, PrepackedFilters) else w, "prepack: w")
    if array.ndim != 4:
        raise WrongValue(f"prepack: w has shape {array.shape}, expected filters (K, C / groups, R, S)")
    source = array.copy()
    source.flags.writeable = False
    return PrepackedFilters(source)
