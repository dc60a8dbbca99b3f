"""Formats of one's own: `define` makes them, and `definition_of` and `from_definition` write and read them as JSON."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..base.errors import WrongType, WrongValue, shown
from .base import Format, parse_family
from .elements import Element, Levels
from .elements.text import element as element_of
from .functions import Function
from .own import NAMES, Own
from .rotated import Rotated, is_rotated, parse_rotation
from .sparse import Sparse, has_pattern, parse_pattern

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
FIELDS = ("element", "scale", "group", "block_rows", "per", "second", "rule", "target", "saturate", "name")
WORDS = {"none", "skip", "f16", "f32", "f64"}
MOST_LEVEL = 2.0**1023  # of a level in a definition; integers beyond it have no float64
MOST = 1 << 16  # characters of a definition: 256 levels and thresholds take a fifth
_lock = threading.Lock()


def define(
    name: str | None,
    element: Element | str | None = None,
    *,
    scale: str | None = None,
    group: int | None = None,
    block: tuple[int, int] | None = None,
    per: str = "row",
    second: str | None = None,
    rule: str | None = None,
    target: float | None = None,
    saturate: bool = True,
    rounding: str = "even",
    round: Callable[[Any], Any] | None = None,
    bits: float | None = None,
) -> Format:
    """Define a number format by its element, its scale and what shares the scale, or by a function of values.

    Parameters
    ----------
    name : str or None
        The format string of the format in this process: lower-case letters, digits, ``_``, ``.`` and ``-``. None: the
        format string is its sentence, such as ``"e3m4fnuz-g32-e8m0"``.
    element : Minifloat, Integer, Levels or str
        The numbers that the codes stand for, or their text.
    scale : str, optional
        Type of the stored scales: ``"f32"``, ``"f16"``, ``"bf16"``, ``"e8m0"``, a float of at most 8 bits such as
        ``"e4m3fn"`` or ``"ue5m3"``, or ``"s<bits>"``, integers of 2 to 10 bits. Default: ``"f32"``; floats and posits
        have no scale unless one of the arguments below asks for it.
    group : int, optional
        Values along the quantized axis that share a scale.
    block : (int, int), optional
        Rows and columns that share a scale.
    per : {"row", "tensor"}
        What shares a scale without a group and a block.
    second : {None, "row", "tensor"}
        What shares the second level, a float32 that the scales are relative to.
    rule : {None, "absmax", "absmean", "floor", "ceil", "rceil", "even"}
        How a scale follows from the values. None: "absmax"; with ``scale="e8m0"`` "floor". The last four are those of
        `MX`.
    target : float, optional
        The number of the element that the largest magnitude (or mean) becomes. Default: the largest; 4 of posits, 1
        of takums.
    saturate : bool
        Values beyond the largest number become it. False: infinity or NaN, the first that the element has.
    rounding : {"even"}
        Nearest; ties go to the even code, of levels to the lower level.
    round : callable, optional
        In place of all of the above but `name` and `group`: a function from a float32 array (rows, groups, group) to
        its rounded values, an array of finite floats of the same shape. The last group of a row is padded with zeros.
        `fake_quantize`, `study`, training, KV caches and `ptq.search` take such a format, and mark it as a function
        in their tables. It has no codes: `quantize`, matmuls and files refuse it.
    bits : float, optional
        With `round`: stored bits per value with all scales, for tables and budgets.

    Returns
    -------
    Format
        A format as any other, for every function that takes one.

    Raises
    ------
    ValueError
        The parts do not go together (the message says why), or the name is taken.
    TypeError
        An argument has the wrong type.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> fmt = hc.define("my-e3m4", hc.Minifloat(3, 4, specials="fnuz"), scale="e8m0", group=32)
    >>> hc.format("my-e3m4") == fmt, fmt.sentence
    (True, 'e3m4fnuz-g32-e8m0')
    >>> str(hc.define(None, "ternary", group=128, rule="absmean"))
    'ternary-g128-absmean'
    >>> halves = hc.define("my-halves", round=lambda x: np.rint(x * 2) / 2, bits=5)
    >>> hc.fake_quantize(np.float32([0.3, -1.2]), halves)
    array([ 0.5, -1. ], dtype=float32)
    """
    if round is not None or bits is not None:
        parts = (element, scale, block, second, rule, target)
        if any(part is not None for part in parts) or (per, saturate, rounding) != ("row", True, "even"):
            raise WrongValue("define: round is given with parts of a sentence, expected name, round, bits and group")
        if round is None or bits is None:
            raise WrongValue(
                f"define: {'round' if round is None else 'bits'} is None, expected round= and bits= together"
            )
        return _registered(Function(_checked_name(name), round, bits, group))
    if element is None:
        raise WrongType(
            "define: element is None, expected an element or its text, or round= and bits=; a sentence of them, such "
            "as 'e3m4-g32-e8m0', is a format without a definition"
        )
    if rounding != "even":
        raise WrongValue(f"define: rounding is {shown(rounding)}, expected 'even'")
    if isinstance(element, str):
        element, target = _read(element, target)
    if block is not None and group is not None:
        raise WrongValue("define: group and block are given, expected one of both")
    rows: int | None = None
    if block is not None:
        try:
            rows, group = block
        except (TypeError, ValueError):
            raise WrongType(f"define: block is {shown(block)}, expected (rows, columns)") from None
        if rows is None or group is None:
            raise WrongType(f"define: block is {shown(block)}, expected (rows, columns)")
    if name is None:
        return Own(element, scale, group, rows, per, second, rule, target, saturate)
    return _registered(Own(element, scale, group, rows, per, second, rule, target, saturate, _checked_name(name)))


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise WrongType(f"define: name is {shown(name)} of type {type(name).__name__}, expected a str or None")
    if not NAME.fullmatch(name):
        raise WrongValue(
            f"define: name is {shown(name[:80])}, expected a lower-case letter, then at most 63 of letters, digits, "
            "'_', '.' and '-'"
        )
    return name


def _registered(made: Own | Function) -> Own | Function:
    """Return a format whose name is its format string from now on; the same again is the same."""
    name = str(made)
    with _lock:
        taken = NAMES.get(name)
        if taken == made:
            return made
        if isinstance(taken, Function) and isinstance(made, Function) and taken.does_as(made):
            return taken
        if taken is not None:
            raise _taken(name, "define", shown(taken))
        _check_free(name, "define")
        NAMES[name] = made
    return made


def _check_free(name: str, caller: str) -> None:
    """Refuse a name that a family reads, or that recipes and lists of formats read as another word."""
    if name in WORDS:
        raise WrongValue(f"{caller}: name is {shown(name)}, which recipes and formats= read as a word; choose another")
    try:
        found = parse_family(name)
    except ValueError:
        raise _taken(name, caller, "a family of formats") from None
    if found is not None:
        raise _taken(name, caller, shown(found))


def _taken(name: str, caller: str, owner: str) -> WrongValue:
    return WrongValue(f"{caller}: name is {shown(name)}, which is the format string of {owner}; choose another")


def _read(text: str, target: float | None) -> tuple[Element, float | None]:
    """Return the element of a text, and the target after an @."""
    text, at, number = text.partition("@")
    if not at:
        return element_of(text), target
    if target is not None:
        raise WrongValue("define: element has a target after the @, and target is given, expected one of both")
    try:
        return element_of(text), float(number)
    except ValueError:
        raise WrongValue(f"define: element is {shown(f'{text}@{number}')}, expected a number after the @") from None


def definition_of(fmt: Format) -> dict[str, Any] | None:
    """Return what defines a format that no other process may know, as JSON; None for those of the package.

    Parameters
    ----------
    fmt : Format
        With a pattern or a rotation, or without.

    Returns
    -------
    dict or None
        Defaults are left out.

    Examples
    --------
    >>> import heterocompute as hc
    >>> from heterocompute.formats.defining import definition_of
    >>> definition_of(hc.format("ternary-g128-absmean+2:4"))
    {'element': 'ternary', 'scale': 'f32', 'group': 128, 'rule': 'absmean'}
    """
    own = fmt.base if has_pattern(fmt) or is_rotated(fmt) else fmt
    if not isinstance(own, Own):
        return None
    element = own.element
    found: dict[str, Any] = {"element": str(element)}
    if isinstance(element, Levels) and element.text is None:
        found["element"] = {"levels": list(element.values)}
        if element.thresholds is not None:
            found["element"]["thresholds"] = list(element.thresholds)
    for field in ("scale", "group", "block_rows", "per", "second", "rule", "target", "saturate", "name"):
        value = getattr(own, field)
        if value != {"per": "row", "saturate": True}.get(field):
            found[field] = value
    return found


def from_definition(definition: Any, text: str) -> Format:
    """Return the format of a definition, which may come from anywhere.

    Parameters
    ----------
    definition : object
        What `definition_of` returned, read from JSON.
    text : str
        The format string beside it, which may have a pattern or a rotation.

    Raises
    ------
    ValueError
        The definition is no definition, or the text is not its text.

    Examples
    --------
    >>> from heterocompute.formats.defining import from_definition
    >>> str(from_definition({"element": "e3m4", "scale": "e8m0", "group": 32}, "e3m4-g32-e8m0+2:4"))
    'e3m4-g32-e8m0+2:4'
    """
    if not isinstance(definition, Mapping) or not definition.keys() <= set(FIELDS) or "element" not in definition:
        raise WrongValue(
            f"definition: {shown(definition)} is not a definition, expected 'element' and any of "
            f"{', '.join(map(repr, FIELDS[1:]))}"
        )
    try:
        base = _own_from(definition)
    except TypeError as problem:
        raise WrongValue(str(problem)) from None
    if text == str(base):
        return base
    plain, plus, pattern = text.rpartition("+")
    if plus and plain == str(base):
        if (kept := parse_pattern(pattern)) is not None:
            return Sparse(base, *kept)
        if (turns := parse_rotation(pattern)) is not None:
            return Rotated(base, *turns)
    raise WrongValue(f"definition: its format is {shown(str(base))}, but the text beside it is {shown(text[:80])}")


def carried(fmt: Format) -> str:
    """Return a format as a text that any process reads by `heterocompute.format`.

    Returns
    -------
    str
        The format string. If only this process knows it, because `define` named the format or its levels have no
        name: JSON of the definition and the format string.

    Examples
    --------
    >>> import heterocompute as hc
    >>> from heterocompute.formats.defining import carried
    >>> carried(hc.format("int4-g32")), carried(hc.define("my-int12", "int12"))
    ('int4-g32', '{"format": "my-int12", "definition": {"element": "int12", "scale": "f32", "name": "my-int12"}}')
    """
    definition = definition_of(fmt)
    if definition is None or not ("name" in definition or isinstance(definition["element"], dict)):
        return str(fmt)
    return json.dumps({"format": str(fmt), "definition": definition})


def readable(fmt: Format) -> str:
    """Return a format as a text that this process reads by `heterocompute.format`.

    Returns
    -------
    str
        The format string. If `define` of this process did not give it, because the format came with its definition:
        the text of `carried`.

    Examples
    --------
    >>> import heterocompute as hc
    >>> from heterocompute.formats.defining import readable
    >>> text = '{"format": "theirs", "definition": {"element": "int12", "name": "theirs"}}'
    >>> readable(hc.format("int4-g32")), hc.format(readable(hc.format(text))) == hc.format(text)
    ('int4-g32', True)
    """
    own = fmt.base if has_pattern(fmt) or is_rotated(fmt) else fmt
    is_known = not isinstance(own, Own) or own.name is None or NAMES.get(own.name) == own
    return str(fmt) if is_known else carried(fmt)


def from_carried(text: str) -> Format:
    """Return the format of JSON that `carried` made, which may come from anywhere.

    Raises
    ------
    ValueError
        The text is no definition.

    Examples
    --------
    >>> from heterocompute.formats.defining import from_carried
    >>> from_carried('{"format": "e3m4", "definition": {"element": "e3m4"}}')
    Own('e3m4')
    """
    try:
        found = json.loads(text) if len(text) <= MOST else None
    except (ValueError, RecursionError):
        found = None
    wanted = {"format", "definition"}
    if not isinstance(found, dict) or found.keys() != wanted or not isinstance(found["format"], str):
        raise WrongValue(
            f"format: {shown(text[:64])} is not a definition, expected JSON such as "
            '{"format": "mine", "definition": {"element": "e3m4", "name": "mine"}}'
        )
    return from_definition(found["definition"], found["format"])


def _own_from(definition: Mapping[str, Any]) -> Own:
    given = dict(definition)
    element, name = given.pop("element"), given.get("name")
    if isinstance(element, Mapping):
        if not element.keys() <= {"levels", "thresholds"} or not isinstance(element.get("levels"), list):
            raise WrongValue(f"definition: element is {shown(element)}, expected levels")
        values, thresholds = element["levels"], element.get("thresholds")
        if thresholds is not None and not isinstance(thresholds, list):
            raise WrongValue(f"definition: thresholds is {shown(thresholds)}, expected a list of numbers")
        if not all(type(one) in (int, float) and abs(one) <= MOST_LEVEL for one in [*values, *(thresholds or [])]):
            raise WrongValue("definition: levels or thresholds are not finite numbers, expected finite numbers alone")
        made: Element = Levels(tuple(values), None if thresholds is None else tuple(thresholds))
    elif isinstance(element, str):
        made = element_of(element)
    else:
        raise WrongValue(f"definition: element is {shown(element)}, expected a text or levels")
    if name is not None and (not isinstance(name, str) or not NAME.fullmatch(name)):
        raise WrongValue(f"definition: name is {shown(name)}, which no format has")
    if name is not None and name not in NAMES:
        _check_free(name, "definition")
    return Own(made, **given)
