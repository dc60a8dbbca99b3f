"""Products of two tensors by their labels, in the notation of einsum."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...base.errors import WrongValue, shown


def labels(equation: str) -> tuple[str, str, str]:
    """Return the labels of two operands and of the output.

    Parameters
    ----------
    equation : str
        As ``"bik,bkj->bij"``; without an output those that stand once, in the order of the alphabet.

    Returns
    -------
    (str, str, str)

    Raises
    ------
    ValueError
        The text is not an equation of two operands, or has an ellipsis or a repeated label, which are not supported.

    Examples
    --------
    >>> labels("b i k, b k j")
    ('bik', 'bkj', 'ij')
    """
    text = "".join(equation.split())
    if "." in text:
        raise WrongValue(f"the equation {shown(equation)} has an ellipsis, which is not read")
    left, arrow, output = text.partition("->")
    operands = left.split(",")
    if len(operands) != 2:
        raise WrongValue(f"the equation {shown(equation)} has {len(operands)} operands, two are read")
    if not arrow:
        output = "".join(sorted(one for one in set(left) - {","} if left.count(one) == 1))
    for part in (*operands, output):
        if not (part.isascii() and part.isalpha() or not part):
            raise WrongValue(f"the equation {shown(equation)} has {shown(part)}, expected letters of the alphabet")
        if len(set(part)) < len(part):
            raise WrongValue(f"the equation {shown(equation)} repeats a label in {shown(part)}, which is not read")
    if not set(output) <= set(left):
        raise WrongValue(f"the equation {shown(equation)} has an output of labels that no operand has")
    return operands[0], operands[1], output


def products(first: str, second: str, output: str, sizes: Mapping[str, int]) -> tuple[int, int, int, int]:
    """Return (count, m, n, k): labels of all three, of first and output, of second and output, of both inputs only.

    A label of one operand alone is summed before the products, without multiplications.

    Parameters
    ----------
    first, second, output : str
        Labels of each.

    Returns
    -------
    (int, int, int, int)

    Examples
    --------
    >>> products("bik", "bkj", "bij", {"b": 2, "i": 3, "j": 5, "k": 7})
    (2, 3, 5, 7)
    """
    a, b, kept = set(first), set(second), set(output)
    count, m, n, k = (math.prod(sizes[one] for one in part) for part in (a & b & kept, a & kept - b, b & kept - a,
                                                                         a & b - kept))  # fmt: skip
    return count, m, n, k
