"""The sums of the matmuls of a step: float32, or those of a tensor core by the type of the operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import WrongValue, shown
from ...emulate import INSTRUCTIONS
from ...emulate.floats import multiply_floats
from ...emulate.model import parse_model
from ...formats import Format, is_function
from ...products.quantize import fake_quantize
from .layer import each_matrix
from .recipe import unscaled

if TYPE_CHECKING:
    from .layer import LayerState

# (bits of the significand with the leading 1, largest value) -> suffix of an instruction.
TYPES = {(11, 65504.0): "", (8, None): "-bf16", (11, None): "-tf32", (4, 448.0): "-e4m3", (3, 57344.0): "-e5m2"}


def instruction_of(sums: str, a: Format, b: Format) -> str:
    """Return the preset of `heterocompute.emulate` for the types of two operands.

    E4M3 with E5M2 has the sums of E5M2: both have the same accumulator.

    Raises
    ------
    ValueError
        The chip has no instruction for these types.

    Examples
    --------
    >>> import heterocompute as hc
    >>> instruction_of("h100", hc.format("bf16"), hc.format("bf16"))
    'hmma-h100-bf16'
    """
    kinds = {_kind(a), _kind(b)}
    if kinds == {"-e4m3", "-e5m2"}:
        kinds = {"-e5m2"}
    kind = kinds.pop() if len(kinds) == 1 else None
    name = f"hmma-{sums}{kind}"
    if kind is None or name not in INSTRUCTIONS:
        raise WrongValue(f"Recipe: sums is {shown(sums)}, which has no matmul of {a} by {b}")
    return name


def multiplied(state: LayerState, a: Any, b: Any, left: str, right: str) -> Any:
    """Return a @ b with the sums of the recipe; `left` and `right` name the formats of the operands.

    The tensor core multiplies values without their scales, which multiply its result.
    """
    sums = state.recipe.sums
    if sums is None:
        return state.arrays.product(a, b)
    instruction = instruction_of(sums, state.formats[left], state.formats[right])
    total, codes = np.float32(1), []
    for values, key in ((a, left), (b, right)):
        bare, scale = unscaled(state.formats[key]), state.scale_in_use(key)
        found = state.arrays.host(values)
        codes.append(found if bare is None else fake_quantize(found / scale, bare))
        total = total * (np.float32(1) if bare is None else scale)
    narrow = instruction.endswith(("-e4m3", "-e5m2")) and sums != "b200"
    model = parse_model("fp22" if narrow else "fp32", None, instruction, None, None)
    if not all(np.isfinite(one).all() for one in codes):
        return state.arrays.product(a, b)

    def product(one: Any, other: Any) -> Any:
        return multiply_floats(model, one, other, (len(one), other.shape[1]), is_checked=True)

    y = product(*codes) if codes[0].ndim == 2 else each_matrix(product, codes[0], codes[1])
    return state.arrays.back(y * total, a)


def _kind(fmt: Format) -> str | None:
    bare = unscaled(fmt) or fmt
    if is_function(bare) or bare.form.codes != "float" or bare.form.has_scales:
        return None
    form = bare.form
    for (precision, largest), kind in TYPES.items():
        if form.precision == precision and (form.maximum == largest or largest is None and form.maximum > 1e38):
            return kind
    return None
