"""Which tensors of a model are quantized, and along which axis.

A model is seen here as names with a dtype and a shape, so that the same rules serve arrays in memory (study)
and files on disk (checkpoint). Default: float tensors with at least two dimensions; the reduction axes are
(2, 3, 1) of a convolution weight (K, C, R, S), (2, 1) of one of signals (K, C, S), and the last axis of any other.
Files that state the operators of their tensors override this. Patterns are fnmatch globs: ``*``, ``?``, ``[abc]``;
``[*]``, ``[?]`` and ``[[]`` are these characters themselves.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import translate
from typing import Generic, TypeVar

from ..base.errors import WrongType, WrongValue, shown
from ..base.texts import counted, near_words, quoted, shortened
from .roles import LONGEST_FILTER, Roles, is_bias, parts_of

FLOATS = ("float16", "bfloat16", "float32", "float64")
WILDCARDS = "*?["
MAX_NAMED, MAX_PATTERN = 5, 80  # patterns in a message, and their characters
_ESCAPED = re.compile(r"\[([*?[])\]")
SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")  # e8m0 is for scales alone

Axis = int | tuple[int, ...]
Value = TypeVar("Value")


def patterns(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return one pattern, several or none as a tuple."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    try:
        found = tuple(value)
    except (TypeError, ValueError, NotImplementedError):
        raise WrongType(f"name patterns are {shown(value)}, expected a str or several") from None
    for pattern in found:
        if not isinstance(pattern, str):
            raise WrongType(f"a name pattern must be a str, got {type(pattern).__name__}")
    return found


def literal(pattern: str) -> str | None:
    """Return the only name that a pattern matches, or None if it has wildcards and may match several.

    Examples
    --------
    >>> literal("fc.weight"), literal("w[[]0]"), literal("w[0]")
    ('fc.weight', 'w[0]', None)
    """
    if any(character in WILDCARDS for character in _ESCAPED.sub("", pattern)):
        return None
    return _ESCAPED.sub(r"\1", pattern)


def escaped(name: str) -> str:
    """Return the pattern that matches one name and no other.

    Examples
    --------
    >>> escaped("fc.weight"), escaped("w[0]")
    ('fc.weight', 'w[[]0]')
    """
    return re.sub(r"[*?[]", r"[\g<0>]", name)


def unknown(name: str, known: Iterable[str], what: str = "tensor") -> str:
    """Return the end of a sentence about a name that does not exist, with similar names.

    Examples
    --------
    >>> unknown("fc1.wieght", ["fc1.weight", "fc2.bias"])
    "'fc1.wieght', which is not a tensor; the nearest is 'fc1.weight'"
    """
    names = list(known)
    near, few = near_words(name, names, 3), names[:5]
    words = ", ".join(map(quoted, near or few)) + ("" if near or len(names) == len(few) else ", ...")
    found = (f"the nearest is {words}" if len(near) == 1 else f"near are {words}") if near else f"there are {words}"
    return f"{quoted(name)}, which is not a {what}" + (f"; {found}" if names else "")


class FirstMatch(Generic[Value]):
    """The value of the first pattern that fits a name; of many patterns the exact names are looked up, not tried.

    Parameters
    ----------
    table : mapping of str to value
        Patterns in their order.

    Examples
    --------
    >>> first = FirstMatch({"fc.bias": 1, "fc.*": 2})
    >>> first("fc.bias"), first("fc.weight"), first("conv.bias")
    (1, 2, None)
    """

    def __init__(self, table: Mapping[str, Value]) -> None:
        patterns(table)
        self._exact: dict[str, tuple[int, Value]] = {}
        self._globs = []
        for index, (pattern, value) in enumerate(table.items()):
            meant = literal(pattern)
            self._exact.setdefault(pattern if meant is None else meant, (index, value))
            if meant is None:
                self._globs.append((index, re.compile(translate(pattern)).match, value))

    def __call__(self, name: str, default: Value | None = None) -> Value | None:
        index, found = self._exact.get(name, (len(self._exact), default))
        return next((value for at, match, value in self._globs if at < index and match(name)), found)


def _meant(pattern: str) -> str:
    found = literal(pattern)
    return pattern if found is None else found


def check_patterns(names: Iterable[str], wanted: Iterable[str]) -> None:
    """Raise ValueError for a pattern without wildcards that names no tensor.

    A glob may match nothing: the same options then serve every file of a sharded checkpoint.
    """
    known = dict.fromkeys(names)
    for pattern in wanted:
        meant = literal(pattern)
        if meant is not None and meant not in known and pattern not in known:
            near = "".join(f"; the nearest is {quoted(word)}" for word in near_words(meant, known))
            raise WrongValue(f"unknown tensor {shown(meant)}{near}")


def select(
    tensors: Mapping[str, tuple[str, Sequence[int]]],
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    named: Iterable[str] = (),
    plain: Collection[str] = (),
) -> list[str]:
    """Choose the tensors to quantize, in the order of `tensors`: matrices, filters and tables, no biases.

    Parameters
    ----------
    tensors : mapping of str to (str, sequence of int)
        Name -> (NumPy name of the dtype, shape).
    include : str or iterable of str, optional
        Globs; only tensors that fit one of them stay. An exact name also chooses a float tensor with one dimension.
    exclude : str or iterable of str, optional
        Globs; tensors that fit one of them are left out, also against `include`.
    named : iterable of str, optional
        More patterns whose exact names choose like those of `include`, without leaving out anything else
        (the patterns of a recipe).
    plain : collection of str, optional
        Names of further tensors that are chosen by exact names alone, see `roles.Roles`.

    Raises
    ------
    ValueError
        An exact name is unknown or names a tensor that cannot be quantized, or `include` selects nothing.

    Examples
    --------
    >>> tensors = {"fc.weight": ("float32", (10, 64)), "fc.bias": ("float32", (10,)), "ids": ("int64", (1, 9))}
    >>> select(tensors)
    ['fc.weight']
    >>> select(tensors, include=["fc.*"], exclude="*.bias")
    ['fc.weight']
    >>> select(tensors, include="fc.bias")
    ['fc.bias']
    """
    wanted, unwanted, extra = patterns(include), patterns(exclude), patterns(named)
    check_patterns(tensors, (*wanted, *unwanted, *extra))
    requested, also = (set(map(_meant, some)) for some in (wanted, extra))
    included, excluded = (FirstMatch(dict.fromkeys(some, True)) for some in (wanted, unwanted))
    chosen = []
    for name, (dtype, shape) in tensors.items():
        if excluded(name):
            continue
        exact = name in requested or name in also
        if wanted and not exact and not included(name):
            continue
        is_matrix = exact or (len(shape) > 1 and name not in plain and not is_bias(name))
        if dtype in (*FLOATS, *SMALL_FLOATS) and len(shape) and is_matrix:
            chosen.append(name)
        elif name in requested:
            raise WrongValue(
                f"tensor {quoted(name)} is {dtype} {shown(tuple(shape))}; only float tensors with an axis are quantized"
            )
    if wanted and not chosen:
        some = ", ".join(shortened(one, MAX_PATTERN) for one in wanted[:MAX_NAMED]) + ", ..." * (
            len(wanted) > MAX_NAMED
        )
        raise WrongValue(f"no float tensor with two or more dimensions fits {some}")
    return chosen


def kept_plain(
    parts: Collection[str], names: Iterable[str], include: str | Iterable[str] | None, recipe: Mapping[str, object]
) -> dict[str, str]:
    """Return the selected tensors that belong to some parts of a model (`roles.PARTS`), and the name of the part.

    A tensor that a pattern of `include` fits, or whose name is in the recipe, is quantized as asked.
    """
    asked, named = FirstMatch(dict.fromkeys(patterns(include), True)), set(map(_meant, recipe))
    found = parts_of(names, parts)
    return {name: part for name, part in found.items() if not asked(name) and name not in named}


def axes_of(
    names: Iterable[str],
    shapes: Mapping[str, Sequence[int]],
    roles: Roles,
    axis: Axis | Mapping[str, Axis] | None = None,
    caller: str = "quantize",
) -> dict[str, tuple[int, ...]]:
    """Return the reduction axes of several tensors of a model: as asked for, by their roles, or the usual ones.

    Parameters
    ----------
    shapes : mapping of str to sequence of int
        Of all arrays of the model, with biases.
    axis : as of `axis_of`
    caller : str
        Name of the function for the warning.

    Warns
    -----
    UserWarning
        Nothing states an axis, and a shape looks as if the usual one were wrong.
    """
    names, axes_for = list(names), FirstMatch(axis) if isinstance(axis, Mapping) else lambda _: axis
    found = {name: axis_of(name, shapes[name], axis, roles.axes.get(name)) for name in names}
    if roles.is_told:
        return found
    guessed = [name for name in names if axes_for(name) is None and name not in roles.axes]
    strange = [(name, *reason) for name in guessed if (reason := _strange(name, shapes, found[name]))]
    if strange:
        name, why, along = strange[0]
        meant = along[0] if isinstance(along, tuple) and len(along) == 1 else along
        more = f", and {counted(len(strange) - 1, 'tensor')} more" if len(strange) > 1 else ""
        text = f"{caller}: tensor {quoted(name)} of shape {shown(tuple(shapes[name]))} is summed along axis "
        text += f"{shown(found[name])}, but {why}: axis={shown({name: meant})} sums along its inputs{more}"
        warnings.warn(text, stacklevel=3)
    return found


def _strange(name: str, shapes: Mapping[str, Sequence[int]], axes: tuple[int, ...]) -> tuple[str, Axis] | None:
    """Return why a shape looks as if its axes were others, and these axes; None if it does not."""
    shape, count = tuple(shapes[name]), len(shapes[name])
    own = re.sub(r"(weight|kernel)(:0)?$", "", name)
    bias = next((tuple(shapes[one]) for end in ("bias", "bias:0") if (one := f"{own}{end}") in shapes), None)
    is_own = own != name and bias is not None and len(bias) == 1 and count in (2, 3, 4)
    if is_own and bias is not None and bias[0] == shape[0]:
        return None  # the outputs are first
    if is_own and bias is not None and bias[0] == shape[-1]:
        return f"its bias has {counted(bias[0], 'value')}, one for each index of the last axis", tuple(range(count - 1))
    if is_own and bias is not None and count > 2 and bias[0] == shape[1]:
        return f"its bias has {counted(bias[0], 'value')}, one for each index of axis 1", (*range(2, count), 0)
    if count == 4 and axes == (2, 3, 1) and _is_channels_last(shape):
        return "looks like a filter (R, S, C, K) of Keras or Flax", (0, 1, 2)
    return None


def _is_channels_last(shape: tuple[int, ...]) -> bool:
    """Tell whether a shape is more likely (R, S, C, K) than (K, C, R, S)."""
    first, last = shape[:2], shape[2:]
    is_wide = max(first) <= LONGEST_FILTER < max(last)
    return is_wide or (1 < first[0] == first[1] <= 7 < max(last) and max(last) > 2 * first[0])


def nothing_to_do(tensors: Collection[str], skipped: Mapping[str, str]) -> str:
    """Return the message for a checkpoint of which no tensor is selected.

    Examples
    --------
    >>> nothing_to_do(["norm.bias", "step"], {})
    'nothing to do: there are 2 tensors, none is selected; float tensors with two or more dimensions are, and those \
that a pattern names'
    """
    return (
        f"nothing to do: {counted_of(tensors, skipped)}, none is selected; float tensors with two or more dimensions "
        "are, and those that a pattern names"
    )


def counted_of(tensors: Collection[str], skipped: Mapping[str, str]) -> str:
    """Return the number of tensors in a checkpoint, and of those that cannot be read, with the first of these."""
    unread = ""
    if skipped:
        name, what = next(iter(skipped.items()))
        unread = f" and {counted(len(skipped), 'tensor')} that cannot be read ({quoted(name)} is {what})"
    return f"there {'is' if len(tensors) == 1 else 'are'} {counted(len(tensors), 'tensor')}{unread}"


def axis_of(
    name: str,
    shape: Sequence[int],
    axis: Axis | Mapping[str, Axis] | None = None,
    usual: tuple[int, ...] | None = None,
) -> tuple[int, ...]:
    """Return the reduction axes of a tensor as non-negative ints.

    Parameters
    ----------
    name : str
        The tensor's name.
    shape : sequence of int
        Its shape. Three dimensions are the filters of a convolution of signals (K, C, S) if the last is at most 31 and
        the name has no "expert", else a stack of matrices.
    axis : int, tuple of int or mapping of str to these, optional
        One axis for every tensor, or pattern -> axis, where the first match wins and the default holds for the rest.
    usual : tuple of int, optional
        The default where the file says what multiplies by the tensor, see `base.tensors.Tensors.axes`.

    Raises
    ------
    TypeError
        If an axis is no int.
    ValueError
        An axis does not exist or appears twice.

    Examples
    --------
    >>> axis_of("conv.weight", (8, 4, 3, 3)), axis_of("fc.weight", (8, 4)), axis_of("fc.weight", (8, 4), {"fc.*": 0})
    ((2, 3, 1), (1,), (0,))
    >>> axis_of("conv1.weight", (128, 129, 3)), axis_of("experts.up", (8, 512, 64))
    ((2, 1), (2,))
    """
    ndim = len(shape)
    found = FirstMatch(axis)(name) if isinstance(axis, Mapping) else axis
    if found is None and usual is not None:
        return usual
    if found is None:
        of_signals = ndim == 3 and shape[2] <= LONGEST_FILTER and "expert" not in name.lower()
        return (2, 3, 1) if ndim == 4 else (2, 1) if of_signals else (ndim - 1,)
    axes = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    try:
        if any(isinstance(one, bool) for one in axes):
            raise TypeError
        numbers = tuple(operator.index(one) for one in axes)
    except TypeError:
        raise WrongType(f"tensor {quoted(name)}: axis is {shown(found)}, expected an int or a tuple of ints") from None
    for one in numbers:
        if not -ndim <= one < ndim:
            raise WrongValue(
                f"tensor {quoted(name)} has {counted(ndim, 'dimension')}, but axis {shown(one)} was asked for"
            )
    normal = tuple(one % ndim for one in numbers)
    if len(set(normal)) != len(normal) or not normal:
        raise WrongValue(f"tensor {quoted(name)}: axis must name one or more different axes, got {shown(found)}")
    return normal
