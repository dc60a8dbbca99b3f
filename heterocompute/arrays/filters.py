"""Where filters and matrices of other libraries have their outputs."""

from __future__ import annotations

from ..base.errors import WrongValue, shown

LAYOUTS = ("OIHW", "HWIO")


def layout_axes(caller: str, layout: object, ndim: int) -> tuple[int, ...]:
    """Return the reduction axes of an array in a layout.

    Parameters
    ----------
    caller : str
        Name of the function, for errors.
    layout : {"OIHW", "HWIO"}
        Outputs first, as in PyTorch, or last, as in Keras and Flax; also of matrices and one-dimensional filters.
    ndim : int

    Examples
    --------
    >>> layout_axes("study", "HWIO", 4), layout_axes("study", "OIHW", 4), layout_axes("study", "HWIO", 2)
    ((0, 1, 2), (2, 3, 1), (0,))
    """
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise WrongValue(f"{caller}: layout is {shown(layout)}, expected 'OIHW' or 'HWIO'")
    if layout == "HWIO":
        return tuple(range(max(ndim - 1, 1)))
    return (*range(2, ndim), 1) if ndim > 1 else (0,)


def outputs_first(ndim: int) -> tuple[int, ...]:
    """Return the transposition of an array with its outputs last to one with its outputs first.

    Examples
    --------
    >>> outputs_first(4), outputs_first(2)
    ((3, 2, 0, 1), (1, 0))
    """
    return (ndim - 1, ndim - 2, *range(ndim - 2))
