"""The arguments of `matmul` that choose an accumulator or an instruction, checked, as one value."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays.dense import as_any, as_array, check_dimensions
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.values import check_choice

NAME = "emulate.matmul"
NO_END = -(2**20)  # below every exponent
# Bits of the significand, exponent of the smallest normal number.
FLOATS = {"fp16": (11, -14), "bf16": (8, -126), "fp22": (14, -126), "fp32": (24, -126)}


@dataclass(frozen=True)
class Instruction:
    """Describe an instruction: the operands, the accumulator, and the number of products per step."""

    accumulators: tuple[str, ...]
    chunk: int | None
    aligned_bits: int | None = None  # of the addends, counted from the largest exponent; None: a step is exact
    inputs: str = "fp16"  # the type that it multiplies, if it multiplies floats
    adjustable: bool = False  # whether chunk, extra_bits and rounding may be given
    lowest: dict[str, int] = field(default_factory=dict)  # by accumulator: lower limit of the exponents of addends

    def rounding(self, accumulator: str) -> str:
        """Return the rounding of sums: aligned values and sums are truncated, but fp16 sums round to nearest."""
        return "rne" if self.aligned_bits is None or accumulator == "fp16" else "truncate"


# Exponent of the smallest normal number of the types that an instruction multiplies.
INPUTS = {"fp16": -14, "bf16": -126, "tf32": -126, "fp8_e4m3fn": -6, "fp8_e5m2": -14}

EITHER = ("fp32", "fp16")
FP8 = ("fp22", "fp16")
# H100 as measured (docs/emulate.md): 7 below the smallest normal number. B200 as in the authors' model.
HOPPER, BLACKWELL = {"fp32": -133, "fp16": -21}, {"fp32": -133, "fp16": -15}

INSTRUCTIONS = {
    "hfma": Instruction(("fp16",), 1),
    "hdp4a": Instruction(("fp16", "fp32"), 4),
    "dp4a": Instruction(("int32",), 4),
    "imma": Instruction(("int32",), None),
    "hmma": Instruction(EITHER, 4, 24, adjustable=True),
    # Measured: Fasi et al., PeerJ CS 7:e330, 2021; Khattak and Mikaitis, arXiv 2512.07004, 2025.
    "hmma-v100": Instruction(EITHER, 4, 24),
    "hmma-a100": Instruction(EITHER, 8, 25),
    # The same authors' model of an RTX 1000 Ada: models/AdaTC.m of north-numerical-computing/MATLAB-tensor-core.
    "hmma-ada": Instruction(EITHER, 8, 25),
    # A measured H100 gives identical bits: tests/emulate/test_emulate_h100.py.
    "hmma-h100": Instruction(EITHER, 16, 26, lowest=HOPPER),
    # models/A100TC.m, AdaTC.m, H100TC.m and B200TC.m there: bf16 like fp16, half as many tf32, twice as many fp8.
    "hmma-b200": Instruction(EITHER, 16, 26, lowest=BLACKWELL),
    "hmma-a100-bf16": Instruction(("fp32",), 8, 25, "bf16"),
    "hmma-ada-bf16": Instruction(("fp32",), 8, 25, "bf16"),
    "hmma-h100-bf16": Instruction(("fp32",), 16, 26, "bf16", lowest=HOPPER),
    "hmma-b200-bf16": Instruction(("fp32",), 16, 26, "bf16", lowest=BLACKWELL),
    "hmma-a100-tf32": Instruction(("fp32",), 4, 25, "tf32"),
    "hmma-ada-tf32": Instruction(("fp32",), 4, 25, "tf32"),
    "hmma-h100-tf32": Instruction(("fp32",), 8, 26, "tf32", lowest=HOPPER),
    "hmma-b200-tf32": Instruction(("fp32",), 8, 26, "tf32", lowest=BLACKWELL),
    # Products keep 14 bits, and so do sums in fp32: the same models.
    "hmma-ada-e4m3": Instruction(FP8, 16, 14, "fp8_e4m3fn"),
    "hmma-ada-e5m2": Instruction(FP8, 16, 14, "fp8_e5m2"),
    "hmma-h100-e4m3": Instruction(FP8, 32, 14, "fp8_e4m3fn"),
    "hmma-h100-e5m2": Instruction(FP8, 32, 14, "fp8_e5m2"),
    "hmma-b200-e4m3": Instruction(("fp32",), 32, 26, "fp8_e4m3fn"),
    "hmma-b200-e5m2": Instruction(("fp32",), 32, 26, "fp8_e5m2"),
}


@dataclass(frozen=True)
class Model:
    text: str
    kind: str  # integers, float64, floats
    bits: int
    saturates: bool
    chunk: int | None
    width: int | None  # bits of aligned addends
    cuts: bool  # addends are truncated instead of rounded to nearest
    truncates: bool  # sums
    instruction: str | None
    lowest: int = NO_END  # lower limit of the exponents of addends

    @property
    def inputs(self) -> str | None:
        """Return the type of floats that an instruction multiplies; None for any float32."""
        if self.instruction is None or self.kind != "floats":
            return None
        return INSTRUCTIONS[self.instruction].inputs


def parse_model(accumulator: Any, chunk: object, instruction: Any, extra_bits: object, rounding: Any) -> Model:
    for name, value in (("accumulator", accumulator), ("instruction", instruction), ("rounding", rounding)):
        if not isinstance(value, str) and (value is not None or name == "accumulator"):
            such = {"accumulator": " such as 'int16-sat' or 'fp16'", "rounding": " such as 'truncate'"}.get(name, "")
            raise WrongType(f"{NAME}: {name} is {shown(value)} of type {type(value).__name__}, expected a str{such}")
    chunk = as_integer(chunk, "chunk", range(1, 2**31))
    extra_bits = as_integer(extra_bits, "extra_bits", range(9))
    if rounding not in (None, "rne", "truncate"):
        raise WrongValue(f"{NAME}: rounding is {shown(rounding)}, expected 'rne' or 'truncate'")
    if instruction is not None:
        check_choice(NAME, "instruction", instruction, INSTRUCTIONS)
        preset = INSTRUCTIONS[instruction]
        if accumulator == "int32":  # the default
            accumulator = preset.accumulators[0]
        reason = f"{instruction} adds to {' or '.join(preset.accumulators)}"
        refuse(accumulator not in preset.accumulators, "accumulator", accumulator, reason)
        for name, value in (("chunk", chunk), ("extra_bits", extra_bits), ("rounding", rounding)):
            refuse(
                value is not None and not preset.adjustable, name, value, f"instruction {shown(instruction)} sets it"
            )
        chunk = chunk or preset.chunk
        width = preset.aligned_bits if extra_bits is None else 24 + extra_bits
        cut, rounding = rounding or preset.rounding("fp32"), rounding or preset.rounding(accumulator)
    elif accumulator in FLOATS:
        width = None if extra_bits is None else FLOATS[accumulator][0] + extra_bits
        cut = rounding
    if accumulator in FLOATS:
        if width is not None:
            refuse((chunk or 1) > 2**18, "chunk", chunk, "a step of aligned products has at most 2^18")
        truncates = cut == "truncate", rounding == "truncate"
        lowest = INSTRUCTIONS[instruction].lowest.get(accumulator, NO_END) if instruction is not None else NO_END
        return Model(accumulator, "floats", 0, False, chunk, width, *truncates, instruction, lowest)
    if accumulator == "float64":
        refuse(chunk is not None, "chunk", chunk, "accumulator 'float64' adds one product after the other")
        return Model(accumulator, "float64", 0, False, None, None, False, False, instruction)
    match = re.fullmatch(r"int([0-9]{1,3})-(sat|wrap)", accumulator)
    bits = 32 if accumulator == "int32" else int(match[1]) if match else 0
    if not 2 <= bits <= 63:
        raise WrongValue(
            f"{NAME}: accumulator is {shown(accumulator)}, expected 'int32', 'intN-sat' or 'intN-wrap' with N "
            "from 2 to 63, "
            "'float64', 'fp16', 'bf16', 'fp22' or 'fp32'"
        )
    saturates = match is not None and match[2] == "sat"
    return Model(accumulator, "integers", bits, saturates, chunk, None, False, False, instruction)


def refuse(wrong: bool, argument: str, value: object, reason: str) -> None:
    if wrong:
        raise WrongValue(f"{NAME}: {argument} is {shown(value)}, but {reason}")


def as_integer(value: Any, name: str, wanted: range) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise WrongType(
            f"{NAME}: {name} is {shown(value)} of type {type(value).__name__}, expected an integer"
        ) from None
    if number not in wanted:
        raise WrongValue(f"{NAME}: {name} is {shown(number)}, expected {wanted[0]} to {wanted[-1]}")
    return number


def as_operand(value: object, name: str) -> Any:
    if isinstance(value, QuantizedArray):
        return value
    array = as_any(value, f"{NAME}: {name}")
    if array.dtype.kind in "iu":
        check_dimensions(array, f"{NAME}: {name}")
        return array
    return as_array(array, f"{NAME}: {name}")


def is_integers(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"
