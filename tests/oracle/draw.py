"""Random formats, shapes, axes, values, memory layouts and machines, all from one generator."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np

import heterocompute as hc

from .exact import F32_MAX, SMALL, root_of_half
from .tables import NF4_LEVELS

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
GROUPS = [1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 100, 128]
SIZES = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 130]
PATTERNS = ["2:4", "1:2", "1:4", "4:8", "2:8", "3:5", "1:1", "7:16", "16:32", "1:32", "5:5"]
ISAS = ["scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512vbmi", "avx512bf16", "amx"]
ISAS += ["neon", "dotprod", "i8mm"]


def choose(rng, options):
    return options[int(rng.integers(len(options)))]


def chance(rng, p: float) -> bool:
    return bool(rng.random() < p)


def isas() -> list[str]:
    """Return the instruction sets of this machine."""
    found = []
    for name in ISAS:
        try:
            with hc.use(isa=name):
                found.append(name)
        except RuntimeError:
            pass
    return found


def machine(rng, masks: list[str]) -> dict[str, object]:
    return {"isa": choose(rng, masks), "threads": int(rng.integers(1, 5))}


def integer_format(rng) -> str:
    group = f"-g{choose(rng, GROUPS)}"
    kind = int(rng.integers(6))
    if kind == 0:
        return choose(rng, ["int8", "int16", "int24"])
    if kind <= 2:
        text = f"int{rng.integers(2, 9)}" + (group if chance(rng, 0.6) else "")
        return text + choose(rng, ["", "", "-asym"]) + choose(rng, ["", "", "-f16"])
    text = f"vsq{rng.integers(2, 9)}" + choose(rng, ["", "", "u"]) + group
    if chance(rng, 0.3):
        return text
    return text + f"-s{rng.integers(2, 11)}" + choose(rng, ["", "-tensor"]) + choose(rng, ["", "", "-refit"])


FLOATS = ["fp8_e4m3fn", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1", "bf16", "fp16", "tf32", "fp32"]
ELEMENTS = ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8"]


def other_format(rng) -> str:
    group = f"-g{choose(rng, GROUPS)}"
    kind = choose(rng, ["float", "float", "mx", "mx", "nvfp4", "nf4", "log", "cb"])
    if kind == "float":
        return choose(rng, FLOATS) + choose(rng, ["", "", "-nosat"]) + choose(rng, ["", "-row", "-tensor"])
    if kind == "mx":
        return choose(rng, ELEMENTS) + choose(rng, ["", "-rceil", "-ceil", "-even"])
    if kind == "nvfp4":
        return choose(rng, ["nvfp4", "nvfp4-4over6"])
    if kind == "nf4":
        return "nf4" + group + choose(rng, ["", "-dq"])
    if kind == "log":
        return f"log{rng.integers(2, 9)}-{choose(rng, [1, 2, 4, 8, 16, 32])}" + choose(rng, ["", group])
    return f"cb{rng.integers(1, 6)}" + choose(rng, ["", group]) + choose(rng, ["", "-tensor"])


def draw_format(rng, integers: float = 0.5, sparse: float = 0.15) -> hc.Format:
    """Return a valid format; combinations that constructors refuse are drawn again."""
    while True:
        text = integer_format(rng) if chance(rng, integers) else other_format(rng)
        if chance(rng, sparse):
            text = f"{text}+{choose(rng, PATTERNS)}".removeprefix("fp32+")
        try:
            return hc.format(text)
        except ValueError:
            continue


def draw_shape(rng, most: int = 3000) -> tuple[int, ...]:
    if chance(rng, 0.03):  # empty
        return tuple(int(n) for n in rng.permutation([0, *rng.integers(0, 4, int(rng.integers(0, 3)))]))
    while True:
        shape = tuple(choose(rng, SIZES) for _ in range(int(rng.integers(1, 5))))
        if prod(shape) <= most:
            return shape


def draw_axis(rng, ndim: int) -> tuple[int, ...]:
    """Return one axis, or several in any order, some counted from the end."""
    count = 1 if ndim == 1 or chance(rng, 0.7) else int(rng.integers(1, ndim + 1))
    axes = rng.permutation(ndim)[:count]
    return tuple(int(a) - ndim * chance(rng, 0.5) for a in axes)


def between_codes(fmt) -> tuple[np.ndarray, float]:
    """Return quotients halfway between two codes, and the quotient of the largest magnitude."""
    base = fmt.base if isinstance(fmt, hc.Sparse) else fmt
    if isinstance(base, hc.NF4):
        return np.abs(NF4_LEVELS[1:] + NF4_LEVELS[:-1]) / 2, 1.0
    if isinstance(base, hc.Log):
        last = 2 ** (base.bits - 1) - 2
        halves = [root_of_half(2 * e + 1, 2 * base.gamma) for e in range(last)]
        return np.array([*halves, root_of_half(last, base.gamma) / 2]), 1.0
    name = getattr(base, "name", None) or getattr(base, "element", None)
    if isinstance(base, hc.NVFP4) or (name and name != "int8"):
        kind = SMALL[{"fp8_e4m3": "fp8_e4m3fn", "fp4": "fp4_e2m1", None: "fp4_e2m1"}.get(name, name)]
        steps = int(kind.code(kind.largest)) >> kind.shift
        codes = np.unique(np.linspace(0, steps - 1, 200).astype(np.int64))
        return (kind.value(codes << kind.shift) + kind.value(codes + 1 << kind.shift)) / 2, kind.largest
    is_signed = getattr(base, "symmetric", True) and not getattr(base, "unsigned", False)
    top = 2 ** (getattr(base, "bits", 8) - is_signed) - 1
    return np.arange(max(min(top, 500), 1)) + 0.5, float(top)


def magnitudes(rng, shape, fmt):
    """Return float64 values of one kind: typical for kernels, or difficult to round."""
    kind = choose(
        rng, "gauss gauss wide codes codes ties near range tiny huge constant few zero sparse integers".split()
    )
    x = rng.standard_normal(shape)
    if kind == "codes":
        points, full = between_codes(fmt)
        unit = float(np.float32(rng.uniform(0.5, 2))) if chance(rng, 0.5) else 2.0 ** int(rng.integers(-9, 9))
        if not getattr(getattr(fmt, "base", fmt), "symmetric", True):  # full range, the zero point halfway too
            x = unit * (rng.choice([0, full, *points + 0.5], shape) - int(rng.integers(full)) - 0.5)
            return kind, x
        x = rng.choice([-1.0, 1.0], shape) * unit * np.where(rng.random(shape) < 0.2, full, rng.choice(points, shape))
    if kind == "wide":
        x = np.sign(x) * 2.0 ** rng.uniform(-40, 40, shape)
    elif kind in ("ties", "near"):
        s = float(np.float32(rng.uniform(0.5, 2))) * 2.0 ** int(rng.integers(-60, 60))
        x = s * (rng.integers(-254, 255, shape) / 2)
        if kind == "near":
            x = np.nextafter(x, np.where(rng.random(shape) < 0.5, np.inf, -np.inf))
    elif kind == "range":
        x = np.sign(x) * 2.0 ** rng.uniform(-149, 127, shape)
    elif kind == "tiny":
        x = rng.integers(-300, 300, shape) * 2.0 ** int(rng.integers(-152, -120))
    elif kind == "huge":
        x = np.sign(x) * rng.uniform(0.9, 1, shape) * F32_MAX
    elif kind == "constant":
        x = np.full(shape, float(np.float32(x.flat[0])) if x.size else 0.0)
    elif kind == "few":
        x = rng.choice(rng.standard_normal(3), shape)
    elif kind == "zero":
        x = np.where(rng.random(shape) < 0.5, 0.0, -0.0)
    elif kind == "sparse":
        x = np.where(rng.random(shape) < 0.8, 0.0, x)
    elif kind == "integers":
        x = rng.integers(-127, 128, shape).astype(np.float64)
    if chance(rng, 0.15) and x.ndim:
        x = np.where(rng.random(x.shape[:-1] + (1,)) < 0.5, 0.0, x)  # whole groups and rows of zero
    if chance(rng, 0.1):
        x = np.abs(x)
    return kind, x


def cast(x, dtype):
    """Return values of a type; values beyond its largest become the largest."""
    if dtype == np.float64:
        return x
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(x, -float(ml_dtypes.finfo(dtype).max), float(ml_dtypes.finfo(dtype).max)).astype(dtype)


def draw_operand(rng, shape, fmt):
    """Return an operand of a matmul in a dtype that the format accepts; sums of products stay in float32."""
    kind = choose(rng, ["gauss", "gauss", "wide", "integers", "sparse", "zero rows"])
    x = rng.standard_normal(shape)
    if kind == "wide":
        x = x * 2.0 ** rng.uniform(-12, 12, shape)
    elif kind == "integers":
        x = rng.integers(-9, 10, shape).astype(np.float64)
    elif kind == "sparse":
        x = np.where(rng.random(shape) < 0.7, 0.0, x)
    elif kind == "zero rows":
        x = x * (rng.random((*shape[:-1], 1)) < 0.7)
    return cast(x, choose(rng, DTYPES))


def poison(rng, x):
    """Insert some NaN, infinities, or float64 values beyond float32."""
    x = x.copy()
    special = choose(rng, [np.nan, np.inf, -np.inf] + ([1e39, -1e300, 2.0**128] if x.dtype == np.float64 else []))
    for _ in range(int(rng.integers(1, 4))):
        x.flat[int(rng.integers(x.size))] = special
    return x


def lay_out(rng, x):
    """Return the same array in another memory layout: order, steps, negative steps, odd address, broadcast."""
    kind = choose(rng, ["C", "C", "F", "steps", "back", "moved", "odd"])
    if kind == "F":
        return kind, np.asfortranarray(x)
    if kind == "steps":
        wide = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
        view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
        view[...] = x
        return kind, view
    if kind == "back":
        return kind, np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    if kind == "moved" and x.ndim > 1:
        return kind, np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0)
    if kind == "odd":
        raw = np.zeros(x.nbytes + 1, np.uint8)
        view = raw[1:].view(x.dtype).reshape(x.shape)
        view[...] = x
        return kind, view
    return "C", np.ascontiguousarray(x)


def draw_clip(rng):
    if chance(rng, 0.6):
        return None
    p = round(float(rng.uniform(0, 100)), 2)
    return choose(rng, [0.5, 0.9, 1.0, float(rng.uniform(0.01, 1)), "octav", "octav", f"percentile:{p}"])
