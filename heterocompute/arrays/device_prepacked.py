"""DevicePrepacked: weights on a CUDA device, with the panels that integer matmuls read instead of the components."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _heterocompute as _core
from ..base.texts import counted
from ..base.version import __version__
from .device import DeviceArray
from .device_quantized import DeviceQuantizedArray

__all__ = ["DevicePrepacked", "prepack_on_device"]


class DevicePrepacked(DeviceQuantizedArray):
    """A DeviceQuantizedArray that also stores the panels of its integer matmuls. Returned by `prepack`.

    It is accepted wherever its source is, with bitwise identical results. Matmuls with activations that have several
    scales per row read the components. So do all other functions.

    Attributes
    ----------
    source : DeviceQuantizedArray
    nbytes : int
        Bytes of the panels, in the memory of the device. 0 if the kernels read the components as they are stored.
    version : str
        Version of heterocompute that packed it.
    """

    __slots__ = ("_panels", "_prepack", "_source")

    _panels: DeviceArray | None
    _source: DeviceQuantizedArray

    def __init__(self, source: DeviceQuantizedArray, panels: DeviceArray | None, prepack: Callable[[Any], Any]) -> None:
        super().__init__(
            source._components, source.format, source.shape, source.axis, source.source_dtype, source._host
        )
        self._source, self._panels, self._prepack = source, panels, prepack

    @property
    def source(self) -> DeviceQuantizedArray:
        return self._source

    @property
    def nbytes(self) -> int:
        return self._panels.nbytes if self._panels else 0

    @property
    def version(self) -> str:
        return __version__

    @property
    def bits_per_value(self) -> float:
        return self.source.bits_per_value

    def _transposed(self) -> DevicePrepacked:
        return DevicePrepacked(self.source.T, self._panels, self._prepack)

    def _remade(self, components: Mapping[str, Any], shape: Sequence[int], axis: Sequence[int]) -> Any:
        """Return the result of the source, without panels: these belong to all rows."""
        return self.source._remade(components, shape, axis)

    def to(self, device: Any) -> Any:
        """Copy the components to another device, and prepack them there.

        Parameters
        ----------
        device : str
            ``"cpu"``, ``"cuda"`` or ``"cuda:<number>"``.

        Returns
        -------
        Prepacked or DevicePrepacked
            The array itself if it is there already.
        """
        moved = self.source.to(device)
        return self if moved is self.source else self._prepack(moved)

    def _packed(self) -> tuple[Any, ...]:
        packed = self.source._packed()
        return (*packed, self._panels.address) if self._panels else packed

    def __repr__(self) -> str:
        return f"DevicePrepacked({self.source!r}, {counted(self.nbytes, 'byte')} of panels)"


def prepack_on_device(w: DeviceQuantizedArray, prepack: Callable[[Any], Any]) -> DevicePrepacked:
    """Prepack weights on a device, without waiting for the device; `prepack` calls this after moving the weights."""
    source = w.source if isinstance(w, DevicePrepacked) else w
    made: list[DeviceArray] = []

    def allocate(nbytes: int) -> int:
        made.append(DeviceArray.empty((nbytes,), "uint8", source.number, source.stream))
        return made[0].address

    if source.ndim == 2:  # no kernel reads panels of filters or of stacks
        _core.cuda_prepack(source.number, source.stream, allocate, source._packed())
    return DevicePrepacked(source, made[0] if made else None, prepack)
