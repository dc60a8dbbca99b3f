"""Compare hc.emulate with the tensor cores of a Hopper GPU, bitwise. Needs nvcc 12.8 or newer, and an H100 or H200.

    cd docs/figures/tensor_cores
    nvcc -O1 -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler -fPIC -o tensor_cores.so tensor_cores.cu
    python tensor_cores.py [--keep kept.npz]

Random tiles of 64 x 8 sums, drawn from a seed with integer arithmetic, run through single instructions (with a random
C) and chains of 4 and 16. Tiles with C = 0 are compared with `hc.emulate.matmul`, the others with the same step in
float64 (`step`), which tests compare with the definition. `--keep` stores the rows of some tiles that distinguish most
models.
"""

from __future__ import annotations

import argparse
import ctypes
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import heterocompute as hc

Array = np.ndarray[Any, Any]

ROWS, COLUMNS = 64, 8
NO_END = -(2**14)
GROUPS = ("near", "wide", "all", "cancel", "small", "large", "probe", "mixed")
# Group, instructions per chain, share of the tiles, whether C is random.
RUNS = [(group, 1, 1.0, True) for group in GROUPS]
RUNS += [("near", 4, 1 / 3, False), ("wide", 4, 1 / 3, False), ("near", 16, 1 / 6, False), ("wide", 16, 1 / 6, True)]
RUNS += [(group, 4, 1 / 6, False) for group in ("cancel", "mixed", "small")]
KEPT, KEPT_ROWS = ("wide", "cancel"), 3  # chains of 4, besides single instructions


class Type(NamedTuple):
    """Bits of a type; codes of `word`, which hold the value in their upper bits (tf32)."""

    exponent: int
    mantissa: int
    word: type
    unused: int = 0

    @property
    def bias(self) -> int:
        return int(2 ** (self.exponent - 1) - 1)

    @property
    def lowest(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias


TYPES = {
    "f16": Type(5, 10, np.uint16),
    "bf16": Type(8, 7, np.uint16),
    "tf32": Type(8, 10, np.uint32, 13),
    "e4m3": Type(4, 3, np.uint8),
    "e5m2": Type(5, 2, np.uint8),
    "f32": Type(8, 23, np.uint32),
}
# Bits of the significand, exponent of the smallest normal number.
SUMS = {"fp16": (11, -14), "fp22": (14, -126), "fp32": (24, -126)}


class Instruction(NamedTuple):
    """An instruction such as mma_e4m3_k32_f16: operand type, values along k, type of the sum, preset of hc.emulate."""

    name: str

    @property
    def parts(self) -> tuple[str, int, str]:
        words = [*self.name.split("_"), "f32"]
        return words[1], int(words[2][1:]), words[3]

    @property
    def converts(self) -> bool:
        """fp8 outside a warp group: the compiler converts to fp16 and multiplies that (see the SASS)."""
        return self.name.startswith("mma_e")

    @property
    def preset(self) -> tuple[str, str]:
        kind, _, total = self.parts
        text = "hmma-h100" if kind == "f16" or self.converts else f"hmma-h100-{kind}"
        wide = hc.emulate.INSTRUCTIONS[text].accumulators[0]
        return text, "fp16" if total == "f16" else wide


INSTRUCTIONS = [
    Instruction(name)
    for name in (
        "mma_f16_k16", "mma_f16_k8", "mma_f16_k16_f16", "mma_f16_k8_f16", "mma_bf16_k16", "mma_bf16_k8", "mma_tf32_k8",
        "mma_tf32_k4", "mma_e4m3_k32", "mma_e5m2_k32", "mma_e4m3_k32_f16", "mma_e5m2_k32_f16", "wgmma_f16_k16",
        "wgmma_f16_k16_f16", "wgmma_bf16_k16", "wgmma_tf32_k8", "wgmma_e4m3_k32", "wgmma_e5m2_k32",
        "wgmma_e4m3_k32_f16", "wgmma_e5m2_k32_f16",
    )
]  # fmt: skip


def codes(kind: str, sign: Array, exponent: Array, mantissa: Array) -> Array:
    """Assemble codes from a sign, a biased exponent and a mantissa; codes of infinity or NaN become large numbers."""
    e, m, word, unused = TYPES[kind]
    exponent = np.clip(exponent, 0, 2**e - (1 if kind == "e4m3" else 2))
    mantissa = np.where((kind == "e4m3") & (exponent == 15) & (mantissa == 7), 6, mantissa)
    return ((sign << (e + m) | exponent << m | mantissa) << unused).astype(word)


def values(kind: str, code: Array) -> Array:
    """Return the values of codes as float64."""
    e, m, _, unused = TYPES[kind]
    code = code.astype(np.int64) >> unused
    exponent, mantissa = code >> m & 2**e - 1, code & 2**m - 1
    magnitude = np.ldexp((np.where(exponent > 0, 2**m, 0) + mantissa).astype(float), np.maximum(exponent, 1) - m)
    return np.where(code >> (e + m) == 1, -1, 1) * np.ldexp(magnitude, -TYPES[kind].bias)


class Lots:
    """Random codes from the integers of one generator, which are the same on every machine."""

    def __init__(self, seed: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(seed.encode()))

    def below(self, high: int, shape: tuple[int, ...], low: int = 0) -> Array:
        return self.rng.integers(low, high, shape, np.int64)

    def some(self, one_in: int, shape: tuple[int, ...]) -> Array:
        return self.below(one_in, shape) == 0

    def draw(self, kind: str, shape: tuple[int, ...], low: int, high: int, zeros: int = 0, powers: int = 0) -> Array:
        """Draw biased exponents from low to high; of 16 values, given numbers are zeros and powers of two."""
        sign, exponent = self.below(2, shape), self.below(high + 1, shape, low)
        mantissa, lot = self.below(2 ** TYPES[kind].mantissa, shape), self.below(16, shape)
        mantissa = np.where((lot >= 16 - powers) | (lot < zeros), 0, mantissa)
        return codes(kind, sign, np.where(lot < zeros, 0, exponent), mantissa)


def tiles(instruction: Instruction, group: str, k: int, count: int) -> tuple[Array, Array, Array]:
    """Return codes of a (count, 64, k), b (count, 8, k) and c (count, 64, 8)."""
    kind, _, total = instruction.parts
    lots = Lots(f"{kind} {k} {total} {group}")  # instructions of one type get the same tiles
    shapes = (count, ROWS, k), (count, COLUMNS, k), (count, ROWS, COLUMNS)
    bias, top, c_bias = TYPES[kind].bias, 2 ** TYPES[kind].exponent - 1, TYPES[total].bias
    c_top, half, wide = 2 * c_bias, total == "f16", kind in ("bf16", "tf32")  # wide: as fp32, whose ends products pass

    def both(low: int, high: int, zeros: int = 0, powers: int = 0) -> tuple[Array, Array]:
        a = lots.draw(kind, shapes[0], low, high, zeros, powers)
        return a, lots.draw(kind, shapes[1], low, high, zeros if group != "floor" else 0, powers)

    def sums(low: int, high: int, zeros: int = 4, powers: int = 2, about: int = 0) -> Array:
        return lots.draw(total, shapes[2], low + about, high + about, zeros, powers)

    if group == "near":
        a, b = both(bias - 2, bias + 1)
        c = sums(-6, 6, about=c_bias)
    elif group == "wide":
        reach = min(bias - 1, 12)
        a, b = both(bias - reach, bias + reach // 2, 2, 2)
        c = sums(-14, 12, about=c_bias)
    elif group == "all":
        a, b = both(0, top, 1)
        c = sums(0, c_top, 2, 0)
    elif group == "cancel":  # pairs that cancel except for single bits; a C that cancels a product; some zeros
        a, b = both(bias - 3, bias + 2)
        c = sums(-24, 2, about=c_bias)
        order = lots.rng.permutation(k)
        for p, q in zip(order[0::2], order[1::2], strict=True):
            bit = lots.some(4, shapes[0][:2]).astype(a.dtype) << TYPES[kind].unused
            a[..., q] = a[..., p] ^ a.dtype.type(1 << (8 * a.itemsize - 1)) ^ bit
            b[..., q] = b[..., p]
        with_c = lots.below(16, c.shape) < 5
        product = values(kind, a[..., :1]) * values(kind, b[:, None, :, 0])
        c = np.where(with_c, (-product).astype(np.float16 if half else np.float32).view(c.dtype), c)
        a = np.where(lots.some(4, a.shape) & lots.some(4, a.shape), 0, a).astype(a.dtype)
    elif group == "small" and wide:
        a, b = both(bias - 79, bias - 59, 2, 2)
        c = sums(0, 20, 6)
    elif group == "small":
        a, b = both(0, 3, 2, 2)
        c = sums(0, 4) if half else sums(-12, 6, about=c_bias + 2 * (1 - bias))
        if not half:
            c = np.where(lots.some(8, c.shape), sums(0, 12, 0, 0), c)
    elif group == "large" and (wide or half):
        a, b = both(bias + 58, bias + 65, 4, 2) if wide else both(bias + 2, bias + 7, 4, 2)
        c = sums(c_top - (8 if wide else 6), c_top)
    elif group == "large":
        a, b = both(top - 4, top, 2, 2)
        c = sums(-12, 12, about=c_bias + 2 * (top - bias))
        c = np.where(lots.some(8, c.shape), sums(c_top - 8, c_top, 0, 0), c)
    elif group == "probe":  # few powers of two
        reach = min(bias - 1, 14)
        a = lots.draw(kind, shapes[0], bias - reach, bias, 9, 16)
        b = lots.draw(kind, shapes[1], bias - reach, bias, 1, 16)
        c = sums(-14, 0, 6, 14, about=c_bias)
    elif group == "mixed":  # each row and each column has its own exponents
        reach, mantissas = min(bias - 2, 8), 2 ** TYPES[kind].mantissa
        parts = []
        for shape in shapes[:2]:
            exponent, sign = bias + lots.below(reach // 2 + 1, (*shape[:2], 1), -reach), lots.below(2, shape)
            parts.append(codes(kind, sign, exponent + lots.below(1, shape, -2), lots.below(mantissas, shape)))
        a, b = parts
        c = sums(-20, 10, about=c_bias)
    elif group == "floor":  # products below 2^-133, whose sum is subnormal in fp32
        a = lots.draw(kind, shapes[0], bias - 76, bias - 67, 1, 1)
        b = lots.draw(kind, shapes[1], bias - 76, bias - 67, 0, 1)
        c = np.where(lots.some(8, shapes[2]), sums(0, 0, 0, 0), 0).astype(np.uint32)
    else:  # floor16: a product that is half of a step of subnormal fp16, and others far below it
        a, b = lots.draw(kind, shapes[0], 0, 0, 2), lots.draw(kind, shapes[1], 0, 0, 2)
        if kind == "f16":
            a, b = a & 0x801F, b & 0x803F
        at, odd = int(lots.rng.integers(0, k)), 2 * lots.below(8, shapes[0][:2]) + 1
        if kind == "f16":
            a[..., at] = (odd * 2.0**-13).astype(np.float16).view(np.uint16)
            b[..., at] = np.float16(2.0**-12).view(np.uint16)
        c = np.where(lots.some(3, shapes[2]), sums(0, 0, 0, 0), 0).astype(np.uint16)
    return np.ascontiguousarray(a), np.ascontiguousarray(b), np.ascontiguousarray(c)


def step(total: Array, a: Array, b: Array, kind: str, chunk: int, width: int, sums: str, lowest: int) -> Array:
    """Add one step's products, a (..., m, k) and b (..., n, k), to total (..., m, n): the definition, in float64."""

    def exponents(x: Array, smallest: int) -> Array:
        return np.where(x == 0, -(2**15), np.maximum(np.frexp(x)[1] - 1, smallest))

    products = a[..., :, None, :] * b[..., None, :, :]
    of = exponents(a, TYPES[kind].lowest)[..., :, None, :] + exponents(b, TYPES[kind].lowest)[..., None, :, :]
    precision, smallest = SUMS[sums]
    largest = np.maximum(of.max(axis=-1), exponents(total, smallest))
    unit = np.where(largest < -(2**14), 0, np.maximum(largest, lowest) - (width - 1))
    cut = np.trunc(np.ldexp(total, -unit)) + np.trunc(np.ldexp(products, -unit[..., None])).sum(axis=-1)
    value = np.ldexp(cut, unit)
    last = np.maximum(np.frexp(value)[1] - 1, smallest) - precision + 1
    rounded = np.ldexp((np.rint if sums == "fp16" else np.trunc)(np.ldexp(value, -last)), last)
    rounded = np.where(np.abs(rounded) >= 2.0 ** (2 - smallest), np.copysign(np.inf, value), rounded)
    return np.where(np.isfinite(total), rounded, total) + 0.0  # no minus zero


def chain(total: Array, a: Array, b: Array, kind: str, text: str, sums: str, **other: int) -> Array:
    """Add products step by step, like a preset of hc.emulate."""
    preset = hc.emulate.INSTRUCTIONS[text]
    chosen = {"chunk": preset.chunk, "width": preset.aligned_bits, "lowest": preset.lowest.get(sums, NO_END), **other}
    with np.errstate(all="ignore"):
        for first in range(0, a.shape[-1], chosen["chunk"]):
            part = slice(first, first + chosen["chunk"])
            total = step(total, a[..., part], b[..., part], kind, sums=sums, **chosen)
    return total


def expected(instruction: Instruction, a: Array, b: Array, c: Array, **other: int) -> Array:
    """Return the results of the emulation, float32."""
    kind, k, _ = instruction.parts
    text, sums = instruction.preset
    if instruction.converts:  # two products of fp16 from 0 on, of two values in four each, and then C
        dtype = np.float16 if sums == "fp16" else np.float32
        order = np.argsort(np.arange(k) % 4 // 2, kind="stable")
        for first in range(0, a.shape[-1], k):
            left, right = a[..., first + order], b[..., first + order]
            with np.errstate(all="ignore"):
                c = c.astype(dtype) + chain(np.zeros_like(c), left, right, "f16", text, sums).astype(dtype)
        return c.astype(np.float32)
    other = {"chunk": k, **other}
    if c.any() or other != {"chunk": hc.emulate.INSTRUCTIONS[text].chunk}:
        return chain(c, a, b, kind, text, sums, **other).astype(np.float32)
    return hc.emulate.matmul(a.astype(np.float32), b.swapaxes(-1, -2).astype(np.float32), sums, instruction=text)


def chip(library: Any, instruction: Instruction, a: Array, b: Array, c: Array) -> Array:
    """Return the codes that the GPU computes."""
    d = np.empty_like(c)
    pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, c, d)]
    said = library.run(instruction.name.encode(), len(a), a.shape[-1] * a.itemsize, *pointers)
    if said:
        raise RuntimeError(f"{instruction.name}: {said.decode()}")
    return d


def telling(instruction: Instruction, a: Array, b: Array, c: Array) -> tuple[int, Array]:
    """Find the tile and rows that distinguish most other models: a bit more or less, shorter steps, another range."""
    text, sums = instruction.preset
    preset = hc.emulate.INSTRUCTIONS[text]
    width, lowest, k = preset.aligned_bits or 0, preset.lowest.get(sums, NO_END), instruction.parts[1]
    others = [{"width": width - 1}, {"width": width + 1}, {"chunk": k // 2}]
    others += [{"lowest": other} for other in (NO_END, lowest - 1, lowest + 1)]
    right = expected(instruction, a, b, c)
    told = np.array([(right != expected(instruction, a, b, c, **other)).sum(axis=2) for other in others])
    counts = (told > 0).any(axis=2).sum(axis=0) + told.sum(axis=(0, 2)) / told.size
    tile = int(counts.argmax())
    rows: list[int] = []
    while len(rows) < KEPT_ROWS:  # the row that distinguishes the most further models
        with_it = [(told[:, tile, [*rows, row]] > 0).any(axis=1).sum() - (row in rows) for row in range(ROWS)]
        rows.append(int(np.argmax(with_it + told[:, tile].sum(axis=0) / told.size)))
    return tile, np.sort(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default=str(Path(__file__).with_name("tensor_cores.so")))
    parser.add_argument("--tiles", type=int, default=96, help="of a group")
    parser.add_argument("--keep", help="an .npz for tests/emulate/test_emulate_h100.py")
    options = parser.parse_args()
    library = ctypes.CDLL(options.library)
    library.run.restype = ctypes.c_char_p
    kept: dict[str, list[Array]] = {}
    all_equal = all_sums = 0
    for instruction in INSTRUCTIONS:
        kind, k, total = instruction.parts
        equal = sums = 0
        runs = list(RUNS)
        if total == "f16" or kind in ("bf16", "tf32"):
            runs += [("floor16" if total == "f16" else "floor", n, 8 / 3 / n**0.5, True) for n in (1, 4)]
        for group, length, share, with_c in runs:
            a, b, c = tiles(instruction, group, length * k, max(round(options.tiles * share), 1))
            c = c if with_c else np.zeros_like(c)
            d = chip(library, instruction, a, b, c)
            found = d.view(np.float16 if total == "f16" else np.float32).astype(np.float32)
            numbers = values(kind, a), values(kind, b), values(total, c)
            wanted = expected(instruction, *numbers)
            same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
            if not same.all():
                print(f"{instruction.name}, {group}, {length} x {k}: {same.size - same.sum()} of {same.size} differ")
            equal, sums = equal + int(same.sum()), sums + same.size
            if options.keep and instruction.name.startswith("wgmma") and (length == 1 or group in KEPT and not with_c):
                tile, rows = telling(instruction, *numbers)
                parts = {"a": a[tile, rows], "b": b[tile], "c": c[tile, rows], "d": d[tile, rows]}
                for letter, part in parts.items():
                    kept.setdefault(f"{instruction.name} {length * k} {letter}", []).append(part)
        print(f"{instruction.name:20} {equal} of {sums} equal", flush=True)
        all_equal, all_sums = all_equal + equal, all_sums + sums
    print(f"{'all':20} {all_equal} of {all_sums} equal")
    if options.keep:
        np.savez_compressed(options.keep, **{name: np.stack(parts) for name, parts in kept.items()})


if __name__ == "__main__":
    main()
