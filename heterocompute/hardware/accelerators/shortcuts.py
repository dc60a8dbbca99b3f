"""Fewer products than a dense layer has: N of every M weights, and Winograd's tiles.

N:M weights: a lane computes N of M products, and multiplexers choose their inputs. So the loop over channels shrinks by
N/M, a stored weight has the bits of its index as well, and M inputs are fetched for every N that are used.

Winograd's F(2 x 2, 3 x 3): 16 products give 4 outputs of a 3 x 3 filter, so four products per output instead of nine,
as for a 2 x 2 filter; 16 transformed weights replace nine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..network.loops import Loops
from ..silicon.gate_costs import int_add, scaled
from ..silicon.operands import operand
from .energies import operands, value_bits

#: Additions of F(2 x 2, 3 x 3) per tile: of an input, of an output (Lavin and Gray, CVPR 2016).
INPUT_ADDS, OUTPUT_ADDS = 32, 24


@dataclass(frozen=True)
class Shortcut:
    """The loops that run, and the values per word.

    Attributes
    ----------
    loops : Loops
    weight_bits, input_bits : int, float
        Of a word of weights and of inputs.
    stored : float
        Words of weights in DRAM for each word that the loops run over.
    additions : int
        Before and after the products.
    """

    loops: Loops
    weight_bits: int
    input_bits: float
    stored: float = 1.0
    additions: int = 0


def shortcut(loops: Loops, format: str, winograd: bool) -> Shortcut:
    """Return the loops that replace a layer.

    Parameters
    ----------
    format : str
        Of weights, or of weights and activations; N:M weights shrink the loop over channels.
    winograd : bool
        Whether the machine has transforms for 3 x 3 filters of stride 1.
    """
    weights, inputs, stored, additions = value_bits(format, "W"), float(value_bits(format, "I")), 1.0, 0
    pattern = operand(operands(format)[0]).pattern
    if pattern is not None:
        n, m = pattern
        channels = -(-loops.c // loops.groups * n // m)
        loops = replace(loops, c=channels * loops.groups)
        inputs *= m / n
    plain = (loops.r, loops.s, loops.stride, loops.dilation) == (3, 3, (1, 1), (1, 1))
    if winograd and plain and pattern is None and loops.groups == 1:
        tiles = loops.n * -(-loops.p // 2) * -(-loops.q // 2)
        additions = tiles * (INPUT_ADDS * loops.c + OUTPUT_ADDS * loops.k)
        loops = replace(loops, p=2 * -(-loops.p // 2), q=2 * -(-loops.q // 2), r=2, s=2)
        stored = 4.0  # 16 words instead of 2 x 2; the multipliers read each of them a quarter as often
    return Shortcut(loops, weights, inputs, stored, additions)


def additions_pj(found: Shortcut, bits: int, process: str) -> float:
    """Return pJ of the additions of the transforms, two bits wider than a value."""
    return found.additions * scaled(int_add(bits + 2), process).energy
