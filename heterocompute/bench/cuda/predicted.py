"""Times of the CUDA kernels on a device that is not present, predicted from their plans and counted instructions.

    time of a call = sum over its kernels of max(bytes / bandwidth, bytes of all blocks / rate of L2,
                                                 waves * operations / rate, waves * instructions / issue rate)

The bytes are those that a kernel must read and write once. The instructions are those of the compiled PTX, without
copies of registers. A lane issues one a cycle, the rate of float32 multiply-adds. Shared memory limits the rate of some
kernels (SHARED). On Hopper `mma.sync` has MMA_SHARE of the peak rate and `wgmma` has WGMMA_SHARE: Luo et al.,
"Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" (arXiv 2402.13499). Launches take no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ... import _heterocompute as _core
from ...arrays.components import component_layout, core_format
from ...arrays.device import c_strides
from ...formats import Format, format as parse_format
from ...hardware import Device, Utilization, device as device_of, utilization
from ..measure import Row, Table

__all__ = ["predicted"]

MMA_SHARE, WGMMA_SHARE = 0.629, 0.95
HOPPER = ("h100", "h200", "h800")  # compute capability 9.0; other plans use no architecture-specific kernels
# bytes for each lane and cycle of Hopper: 5.5e12 bytes/s of an H100 PCIe; the times of other devices lack this bound
L2 = 5.5e12 / (51.2e12 / 2)
REGISTERS = {
    "hc_gemm_few_s4_8": 118,
    "hc_gemm_few_s4_64": 112,
    "hc_gemm_few_s8_8": 102,
    "hc_gemm_few_s8_64": 107,
    "hc_gemm_s8_64": 76,
    "hc_gemm_s8_128": 128,
    "hc_gemm_nibbles_128": 128,
    "hc_gemm_24_64": 148,
    "hc_gemm_90a_nibbles_folded_256": 228,
    "hc_gemm_90a_nibbles_folded": 122,
    "hc_gemm_90a_nibbles_grouped": 216,
    "hc_gemm_90a_folded_256": 176,
    "hc_gemm_90a_folded": 102,
    "hc_gemm_90a_grouped": 169,
}
# KiB of shared memory that a block reads and writes for 128 bytes of k, over those that pass, 128 bytes a clock, while
# its matrix units multiply: operands of both warpgroups, and bytes that arrive
SHARED = {
    "hc_gemm_90a_folded_256": 128 / 128,
    "hc_gemm_90a_nibbles_folded_256": 128 / 128,
    "hc_gemm_90a": 80 / 64,
}
INSTRUCTIONS = {  # of a thread per value, weight (_PER_WEIGHT) or multiply-add: tests/cuda/ptx/executed.py
    "hc_encode_known_int8": 19,
    "hc_encode_known_int8, fake_quantize": 30,
    "hc_encode_known_int8, matmul": 19,
    "hc_decode_known_int8": 12,
    "hc_encode_known_vsq4_g16_s4": 21,
    "hc_encode_known_vsq4_g16_s4, fake_quantize": 33,
    "hc_encode_known_vsq4_g16_s4, matmul": 27,
    "hc_decode_known_vsq4_g16_s4": 13,
    "hc_encode_known_fp8_e4m3fn_row": 37,
    "hc_encode_known_fp8_e4m3fn_row, fake_quantize": 58,
    "hc_decode_known_fp8_e4m3fn_row": 21,
    "hc_encode_known_mxfp4": 23,
    "hc_encode_known_mxfp4, fake_quantize": 40,
    "hc_decode_known_mxfp4": 18,
    "hc_encode_known_nvfp4": 33,
    "hc_encode_known_nvfp4, fake_quantize": 50,
    "hc_maximum_nvfp4": 11,
    "hc_decode_known_nvfp4": 19,
    "hc_encode_nf4": 55,
    "hc_encode_nf4, fake_quantize": 71,
    "hc_decode_nf4": 30,
    "hc_gemv_vsq_b4_v1": 4.7,
    "hc_gemm_few_s4_8": 2.2,
    "hc_gemm_few_s4_64": 4.3,
    "hc_gemm_few_s8_8": 1.0,
    "hc_gemm_s8_128_folded": 0.033,
    "hc_gemm_90a_folded": 0.0135,
    "hc_gemm_90a_folded_256": 0.0098,
    "hc_gemm_90a_nibbles_folded": 0.027,
    "hc_gemm_90a_nibbles_folded_256": 0.022,
    "hc_gemm_24_64_folded": 0.031,
}
_PER_WEIGHT = ("hc_gemv", "hc_gemm_few")
CODECS = ("int8", "vsq4-g16-s4", "fp8_e4m3fn-row", "mxfp4", "nvfp4", "nf4-g64")
VALUES = (65536, 1024)
PREPACKED = 256  # a placeholder address: the plan reads prepacked panels
Step = tuple[str, tuple[int, int, int], int, int]


def predicted(name: str) -> Table:
    """Return the rows of `heterocompute bench cuda` as predicted for a device of `hw.device`, next to their goals."""
    chip = device_of(name)
    rows = [*_vectors(chip), *_products(chip), *_codecs(chip)]
    return {"title": f"PREDICTED, not measured: least times on {chip.name}", "threads": 1, "rows": rows}


def _vectors(chip: Device) -> list[Row]:
    """Return the rows of GEMV and small batches: 16384 x 16384 weights of 4.25 bits."""
    n, rows, one = 16384, list[Row](), dict[str | None, float]()
    for m, activations in ((1, None), (1, "int8"), (32, "int8")):
        seconds, bound, kernels = _matmul(chip, m, n, n, "vsq4-g16-s4", activations)
        one.setdefault(activations, seconds)
        read = _nbytes("vsq4-g16-s4", (n, n)) / chip.need("bandwidth")
        share = read / seconds
        goal = "share of the copy rate, >= 0.85" if m == 1 else "times of one row, <= 1.15"
        ratio = share if m == 1 else seconds / one[activations]
        text = f"{activations or 'float32'} x vsq4-g16-s4, {m} x {n} x {n}"
        rows.append(_row(text, seconds, bound, ratio, goal, kernels))
    return rows


def _products(chip: Device) -> list[Row]:
    m, n, k = 4096, 8192, 8192
    rows, operations, dense = list[Row](), 2.0 * m * n * k, dict[str, float]()
    for weights, activations in (("int8", "int8"), ("vsq4-g16-s4", "vsq4-g16-s4"), ("int8+2:4", "int8")):
        try:
            seconds, bound, kernels = _matmul(chip, m, n, k, weights, activations)
        except NotImplementedError:  # there is no kernel
            continue
        dense.setdefault("int8", seconds)
        text = f"{activations} x {weights}, {m} x {k} x {n}"
        ideal = operations / chip.peak("int8")
        if weights == "int8+2:4":
            rows.append(_row(text, seconds, bound, dense["int8"] / seconds, "speed of dense int8, >= 1.15", kernels))
            continue
        rows.append(
            _row(
                f"{text}, to int8",
                seconds,
                bound,
                ideal / seconds,
                f"speed of int8 at its peak, >= {0.7 if '90a' in kernels else 0.45}",
                kernels,
            )
        )
        ideal = operations / chip.peak("bf16")
        rows.append(
            _row(f"{text}, to bf16", seconds, bound, ideal / seconds, "speed of bf16 at its peak, >= 1.3", kernels)
        )
    return rows


def _codecs(chip: Device) -> list[Row]:
    """Return the rows of the codecs."""
    rows = []
    size, values = prod(VALUES), (0, "float32", VALUES, c_strides(VALUES, 4))
    for text in CODECS:
        fmt = parse_format(text)
        stored, q = _nbytes(text, VALUES), _packed(fmt, VALUES)
        calls: dict[str, tuple[tuple[Any, ...], int]] = {
            "quantize": ((0, 0, None, values, q), 4 * size + stored),
            "dequantize": ((0, 0, None, q, values), 4 * size + stored),
            "fake_quantize": ((0, 0, None, values, core_format(fmt), (1,), values), 8 * size),
        }
        for name, (arguments, moved) in calls.items():
            _, steps = _core.cuda_steps(name, arguments)
            parts = dict[str, float]()
            for step in steps:
                kernel = step[0]
                nbytes = {"hc_maximum": 4 * size, "hc_clear": 0}.get(_kind(kernel), moved)
                counted = f"{kernel}, {name}"  # where a call has a count of its own
                counted = counted if counted in INSTRUCTIONS else kernel
                memory, issued = nbytes / chip.need("bandwidth"), _issued(chip, counted, size) * _waves(chip, step)
                bound = "memory" if memory > issued else "instructions"
                parts[bound] = parts.get(bound, 0.0) + max(memory, issued)
            seconds, bound = sum(parts.values()), max(parts, key=lambda what: parts[what])
            ratio = moved / chip.need("bandwidth") / seconds
            kernels = ", ".join(step[0] for step in steps)
            rows.append(_row(f"{name} {text}", seconds, bound, ratio, "share of the copy rate, >= 0.8", kernels))
    return rows


def _matmul(chip: Device, m: int, n: int, k: int, weights: str, activations: str | None) -> tuple[float, str, str]:
    """Return the seconds of a matmul, the bound of its largest part, and its kernels."""
    fmt = None if activations is None else core_format(parse_format(activations))
    x, y = (0, "float32", (m, k), (4 * k, 4)), (0, "float32", (m, n), (4 * n, 4))
    q = (*_packed(parse_format(weights), (n, k)), PREPACKED)
    architecture = 90 if chip.name.startswith(HOPPER) else 80
    _, steps = _core.cuda_steps("matmul", (0, 0, None, x, False, fmt, q, 0, y, False), architecture)
    packed = _nbytes(weights, (n, k))
    read = n * k * 5 // 8 if weights.endswith("2:4") else n * k  # nonzeros and their positions
    seconds, parts = 0.0, dict[str, float]()
    for step in steps:
        kernel = step[0]
        moved = {
            "hc_maximum": 4.0 * m * k,
            "hc_encode": 5.0 * m * k,  # x becomes bytes; weights are prepacked
            "hc_decode": packed + 4.0 * n * k,
            "hc_gemv": packed + 4.0 * m * (k + n),
            "hc_sgemm": 4.0 * (m * k + n * k + m * n),
            "hc_gemm_few": m * k + packed + 4.0 * m * n,
            "hc_gemm": m * k + (packed if "nibbles" in kernel else read) + 4.0 * m * n,
        }.get(_kind(kernel), 0.0)
        counted = {"hc_maximum": m * k, "hc_encode": m * k, "hc_decode": n * k}.get(_kind(kernel))
        counted = counted or (n * k if kernel.startswith(_PER_WEIGHT) else m * n * k)
        of_call = f"{kernel}, matmul" if f"{kernel}, matmul" in INSTRUCTIONS else kernel
        rows, columns = step[1][:2]  # blocks of the matmul
        again = m * k * columns + 4.0 * m * n + rows * (packed if "nibbles" in kernel else read)
        if kernel.startswith("hc_gemm_few"):  # all rows in each block; up to 8 stay in the caches of multiprocessors
            again = packed + 4.0 * m * n + m * k * (min(rows, _held(chip, step).sms) if m <= 8 else rows)
        times = {
            "memory": moved / chip.need("bandwidth"),
            "L2": again / (L2 * _lanes(chip)) if kernel.startswith("hc_gemm") and chip.name.startswith(HOPPER) else 0.0,
            "arithmetic": _arithmetic(chip, step, 2.0 * m * n * k) * _waves(chip, step),
            "instructions": _issued(chip, of_call, counted) * _waves(chip, step),
        }
        bound = max(times, key=lambda what: times[what])
        parts[bound] = parts.get(bound, 0.0) + times[bound]
        seconds += times[bound]
    return seconds, max(parts, key=lambda what: parts[what]), ", ".join(step[0] for step in steps)


def _kind(kernel: str) -> str:
    kinds = (
        "hc_clear",
        "hc_maximum",
        "hc_encode",
        "hc_decode",
        "hc_gemv",
        "hc_sgemm",
        "hc_gemm_few",
        "hc_gemm",
    )
    return next((kind for kind in kinds if kernel.startswith(kind)), "")


def _arithmetic(chip: Device, step: Step, operations: float) -> float:
    """Return the seconds of a kernel's arithmetic, in whole waves; 0 for a codec."""
    kernel = step[0]
    if kernel.startswith("hc_gemm_90a"):
        shares = (share for name, share in SHARED.items() if kernel.startswith(name))
        rate = chip.peak("int8") * min(WGMMA_SHARE, 1 / next(shares))
    elif kernel.startswith("hc_gemm_"):
        rate = chip.peak("int8", sparse=kernel.startswith("hc_gemm_24")) * MMA_SHARE
    elif kernel.startswith(("hc_sgemm", "hc_gemv")):
        rate = chip.peak("fp32")
    else:
        return 0.0
    return operations / rate


def _waves(chip: Device, step: Step) -> float:
    """Return the time of a kernel's blocks over the time that they would take in whole waves."""
    held = _held(chip, step)
    return 100.0 / held.wave_efficiency if held.waves > 1 else max(1.0, held.sms / held.blocks)


def _held(chip: Device, step: Step) -> Utilization:
    kernel, grid, threads, shared = step
    registers = next((count for name, count in REGISTERS.items() if kernel.startswith(name)), 64)
    return utilization(prod(grid), chip, threads, registers=registers, shared=shared)


def _lanes(chip: Device) -> float:
    """Return the lanes times cycles of a second: a multiply-add each."""
    return chip.peak("fp32") / 2


def _issued(chip: Device, kernel: str, n: int) -> float:
    """Return the seconds in which the lanes issue the instructions for n values, weights or multiply-adds."""
    return INSTRUCTIONS.get(kernel, 0) * n / _lanes(chip)


def _packed(fmt: Format, shape: tuple[int, int]) -> tuple[Any, ...]:
    return core_format(fmt), shape, (1,), dict.fromkeys(_layout(fmt, shape), 0)


def _nbytes(text: str, shape: tuple[int, int]) -> int:
    layout = _layout(parse_format(text), shape)
    return sum(prod(size) * dtype.itemsize for dtype, size in layout.values())


def _layout(fmt: Format, shape: tuple[int, int]) -> Mapping[str, tuple[Any, tuple[int, ...]]]:
    return component_layout(fmt, shape, (1,), "float32")


def _row(name: str, seconds: float, bound: str, ratio: float, goal: str, kernels: str) -> Row:
    return {"name": name, "seconds": seconds, "bound": bound, "ratio": ratio, "goal": goal, "isa": kernels}
