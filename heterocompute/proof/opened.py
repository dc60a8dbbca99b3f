"""A checkpoint of any layout as names with weights as they are stored, under the names of Hugging Face if known."""

from __future__ import annotations

from ..base.errors import WrongValue
from ..base.tensors import Tensors
from ..files.foreign import weights_reader
from ..files.opening import reader_of


def opened(path: str, layout: str | None = None) -> Tensors:
    """Open a checkpoint; quantized weights of a known layout are read as `Weights`."""
    try:
        return weights_reader(path, layout, renames=True)
    except WrongValue:
        if layout is not None:
            raise
        return reader_of(path)
