"""The C core as Python sees it (csrc/python/). Arguments are checked by ops and arrays before they come here."""

from collections.abc import Callable
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# (mask of instruction sets, threads, forced path, route that is asked for, one order of sums[, 1 + number of a device,
# stream, allocate, device order]); `allocate`: None for calls that wait, True, or bytes -> address
_Run: TypeAlias = tuple[Any, ...]
_Format: TypeAlias = tuple[Any, ...]  # (family, *core_params())
_Clip: TypeAlias = tuple[int, float]  # (kind, value) of hc_clip
# (format, shape, axes, components[, capsule of prepack]), or on a device (format, shape, axes, {component: address},
# address of panels or 0, number of the device)
_Packed: TypeAlias = tuple[Any, ...]
_Floats: TypeAlias = NDArray[Any]  # float16, float32, float64; uint16 stands for bfloat16
# (address, dtype, shape, strides in bytes, number of the device)
_OnDevice: TypeAlias = tuple[int, str, tuple[int, ...], tuple[int, ...], int]
_View: TypeAlias = _Floats | _OnDevice
_Row: TypeAlias = Any  # on a device the first row with a value that is refused, or -1
_Operand: TypeAlias = _View | _Packed

def cuda_addresses() -> dict[str, int]: ...  # of each planner, for tests
def formats() -> dict[str, str]: ...
def define(
    fields: tuple[int, ...], reals: tuple[float, float, float, float], levels: bytes, bounds: bytes, ranked: bytes, /
) -> int: ...
def check_format(params: _Format, /) -> None: ...
def stored_form(params: _Format, /) -> dict[str, Any]: ...  # the format as data: fields and their values
def layout(
    params: _Format, shape: tuple[int, ...], axes: tuple[int, ...], /
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], bool]]: ...
def quantize(run: _Run, x: _View, clip: _Clip | None, packed: _Packed, importance: _View | None = None, /) -> _Row: ...
def dequantize(run: _Run, packed: _Packed, out: _View, between: float = 0.0, /) -> _Row: ...

# inside: (low, high, bits, factor or None)
def fake_quantize(
    run: _Run,
    x: _View,
    params: _Format,
    axes: tuple[int, ...],
    clip: _Clip | None,
    out: _View,
    inside: tuple[Any, ...] | None = None,
    /,
) -> _Row: ...

# (rows, bytes)
def inside_shape(params: _Format, shape: tuple[int, ...], axes: tuple[int, ...], /) -> tuple[int, int]: ...

# on a device the note of fake_quantize in place of bits
def keep_inside(
    run: _Run, g: _View, params: _Format | None, axes: tuple[int, ...] | None, bits: Any, out: _View, /
) -> _Row: ...

# kind: hc_layer_kind
def layer(
    run: _Run,
    kind: int,
    rows: int,
    n: int,
    x: _View,
    weight: _View | None,
    bias: _View | None,
    out: _View,
    epsilon: float,
    half: int,
    repeat: int,
    turns: int,
    pairs: bool,
    /,
) -> _Row: ...

# k and v: arrays or (packed, steps, sizes)
def attention(
    run: _Run,
    q: _View,
    k: _View | tuple[_Packed, tuple[int, ...], tuple[int, ...]],
    v: _View | tuple[_Packed, tuple[int, ...], tuple[int, ...]],
    out: _View,
    kv_heads: int,
    causal: bool,
    window: int,
    scale: float,
    cap: float,
    sinks: NDArray[np.float32] | None,
    bias: NDArray[np.float32] | None,
    /,
) -> _Row: ...

# layers: [((heads, kv_heads, head_width, hidden, half, pairs, gate, centered, parallel, whole_heads, window, turned,
# both_sides), (epsilon, scale, cap, residual), norms, their biases, weights, their biases, sinks, experts, bias of
# keys, cosine, sine, q_factor, k, v, held)], where hc_llm_norm and hc_llm_weight name the tuples, and experts is None
# or ((experts, hidden, used, gate, interleaved, sums to one), (alpha, limit, factor), router, its bias, stacks, their
# biases); returns x and the number of layers that ran
def llm_layers(
    run: _Run,
    activations: _Format | None,
    x: NDArray[np.float32],
    layers: list[
        tuple[
            tuple[int, int, int, int, int, bool, int, bool, bool, int, int, int, bool],
            tuple[float, float, float, float],
            tuple[NDArray[np.float32] | None, ...],
            tuple[NDArray[np.float32] | None, ...],
            tuple[Any, ...],
            tuple[Any, ...],
            NDArray[np.float32] | None,
            tuple[Any, ...] | None,
            NDArray[np.float32] | None,
            NDArray[np.float32] | None,
            NDArray[np.float32] | None,
            NDArray[np.float32] | None,
            Any,
            Any,
            int,
        ]
    ],
    /,
) -> tuple[NDArray[np.float32], int]: ...

# rotates the rows along the last axis, in place
def rotate_heads(run: _Run, x: NDArray[np.float32], /) -> None: ...

# picked: the experts of each token, shares: their factors; numbers: (experts, hidden, gate, interleaved);
# clamp: (alpha, limit), limit 0 without; stacks (experts, rows, columns) and their biases: gate, up, gate_up, down;
# returns None if an argument is not plain
def llm_experts(
    run: _Run,
    activations: _Format | None,
    x: NDArray[np.float32],
    picked: NDArray[np.int64],
    shares: NDArray[np.float32],
    numbers: tuple[int, int, int, bool],
    clamp: tuple[float, float],
    stacks: tuple[Any, ...],
    biases: tuple[Any, ...],
    /,
) -> NDArray[np.float32] | None: ...

# levels: (table or None, fraction, least, low, high)
def round_by_chance(
    run: _Run,
    x: _View,
    packed: _Packed,
    levels: tuple[NDArray[np.float64] | None, float, float, float, float],
    seed: int,
    out: _View,
    infinity: float = 0.0,
    clip: _Clip | None = None,
    note: tuple[Any, ...] | None = None,
    /,
) -> _Row: ...

# slopes: an address
def scaled_steps(
    run: _Run, x: _OnDevice, params: _Format, axes: tuple[int, ...], scales: _OnDevice, out: _OnDevice, slopes: int, /
) -> int: ...

# slopes and out: addresses
def slope_sums(run: _Run, g: _OnDevice, params: _Format, axes: tuple[int, ...], slopes: int, out: int, /) -> int: ...

# ((xx, ee, xy, yy, max_abs) of all values so far, state)
def compare(
    run: _Run, x: _Floats, y: _Floats, state: bytes, /
) -> tuple[tuple[float, float, float, float, float], bytes]: ...
def dequantize_slab(run: _Run, packed: _Packed, first: int, out: _Floats, /) -> None: ...  # of axis 0, as long as out
def slab_step(packed: _Packed, /) -> int: ...  # `first` of dequantize_slab is a multiple of it

# source and target: (array, bits, kind), kind 0 rows, 1 high half first, 2 columns of words, 3 turned, 4 turned in the
# order of AWQ
def move_codes(
    run: _Run,
    rows: int,
    columns: int,
    flip: int,
    source: tuple[NDArray[Any], int, int],
    target: tuple[NDArray[Any], int, int],
    /,
) -> None: ...

# unused and padding: -1 without; returns 0, 1 for the unused code, 2 for padding
def code_fault(
    run: _Run,
    codes: NDArray[Any],
    bits: int,
    runs: int,
    length: int,
    padded: int,
    unused: int,
    padding: int,
    zero_points: NDArray[Any] | None,
    groups: int,
    /,
) -> int: ...
def blocks(run: _Run, name: str, packed: _Packed, data: NDArray[Any], reads: bool, /) -> None: ...
def blocks_bytes(name: str, values: int, /) -> int: ...  # bytes of a row, 0 if there are no such blocks
def ptq_losses(run: _Run, columns: int, errors: _Doubles, h: _Doubles, sums: _Doubles, /) -> None: ...
def matmul(
    run: _Run,
    a: _Operand,
    b: _Operand,
    activations: _Format | None,
    bias: _View | None,
    out: _View,
    /,
) -> _Row: ...

# None: matmul must be called
def direct(
    run: _Run,
    is_linear: bool,
    a: object,
    b: object,
    bias: object,
    activations: _Format | None,
    out: object,
    /,
) -> NDArray[np.float32] | None: ...
def direct_conv2d(  # None: conv2d must be called
    run: _Run,
    x: object,
    w: object,
    bias: object,
    stride: object,
    padding: object,
    dilation: object,
    groups: object,
    activations: _Format | None,
    algorithm: object,
    layout: object,
    out: object,
    relu: object,
    accuracy: object,
    /,
) -> NDArray[np.float32] | None: ...
def direct_types(*types: type) -> None: ...  # types of packed arrays that `direct` accepts
def matmul_shape(name: str, a: tuple[int, ...], b: tuple[int, ...], /) -> tuple[int, ...]: ...

# (number of a route or -1, [(route, what, reason, seconds)], (number of a path or -1, [(path, what, reason, seconds,
# id, work)], kernels of a device))
def explain(
    run: _Run, a: _Operand, b: _Operand, activations: _Format | None, out: _View, /
) -> tuple[
    int,
    list[tuple[str, str, str | None, float]],
    tuple[int, list[tuple[str, str, str | None, float, str, tuple[float, ...]]], list[str] | None],
]: ...
def routes() -> list[str]: ...  # names by number
def paths() -> tuple[list[str], list[str]]: ...  # names of the paths of the CPU, and of devices
def conv2d(
    run: _Run,
    x: _View,
    w: _Operand,
    bias: _View | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    activations: _Format | None,
    out: _View,
    algorithm: str | None = None,
    strict: bool = False,
    relu: bool = False,
    panels: dict[bytes, tuple[Any, int, int]] | None = None,
    /,
) -> _Row: ...

# (chosen, [(name, what, reason, seconds, work, bytes, admitted, id)], kernels); on a device the three of explain
def conv_chain(
    run: _Run, inputs: tuple[Any, ...], steps: tuple[tuple[object, ...], ...], /
) -> tuple[tuple[bool, Any], ...]: ...  # for each step its guess, and filters that it packed or None
def explain_conv2d(
    run: _Run,
    x: _View,
    w: _Operand,
    bias: _View | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    activations: _Format | None,
    out: _View,
    algorithm: str | None = None,
    strict: bool = False,
    relu: bool = False,
    panels: dict[bytes, tuple[Any, int, int]] | None = None,
    /,
) -> tuple[int, list[Any], list[str] | None]: ...
def conv_algorithms() -> list[tuple[str, str, float]]: ...  # [(name, what, error)]
def limit(run: _Run, what: str, amount: int | NDArray[Any], /) -> tuple[float, int, str]: ...  # (work, sum, isa)
def prepack(run: _Run, packed: _Packed, /) -> Any: ...  # (capsule, bytes), or None without integers

# number of exchanges
def permute(run: _Run, scores: NDArray[np.int16], rows: int, n: int, m: int, order: NDArray[np.int32], /) -> int: ...
def prune(
    run: _Run,
    x: _View,
    scores: _View | None,
    n: int,
    m: int,
    axes: tuple[int, ...],
    values: _View | int,
    metadata: NDArray[np.uint8] | int,
    /,
) -> _Row: ...

# Compressed weights: (columns, starts int64, indices int32, values float32), and
# (rows, columns, codebook, pointers, entries).
_Csr: TypeAlias = tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]
_Eie: TypeAlias = tuple[Any, ...]

def csr_transpose(csr: _Csr, /) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...  # (starts, indices, values)
def csr_matmul(run: _Run, x: _Operand, csr: _Csr, out: _Floats, /) -> bool: ...  # whether columns ascend
def csr_linear(run: _Run, x: NDArray[Any], w: Any, out: Any, /) -> _Floats | None: ...  # None: not plain
def eie_codebook(values: NDArray[Any], codebook: NDArray[Any], /) -> None: ...
def eie_count(run: _Run, w: NDArray[Any], pointers: NDArray[Any], /) -> int: ...  # number of entries
def eie_encode(run: _Run, w: NDArray[Any], eie: _Eie, /) -> None: ...
def eie_check(eie: _Eie, /) -> None: ...
def eie_decode(run: _Run, eie: _Eie, out: NDArray[Any], /) -> None: ...

# (starts, indices, values)
def eie_expand(run: _Run, eie: _Eie, /) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
def eie_multiply(run: _Run, eie: _Eie, rows: tuple[Any, ...], x: NDArray[Any], out: NDArray[Any], /) -> None: ...

# (cycles, broadcasts, stalls, padding)
def eie_load(eie: _Eie, x: NDArray[Any] | None, depth: int, busy: NDArray[Any], /) -> tuple[int, int, int, int]: ...
def conv2d_gradient(
    run: _Run,
    dy: _Floats,
    x: _Floats,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    dw: NDArray[np.float32],
    /,
) -> None: ...
def conv2d_gradient_planes(
    run: _Run,
    dy: NDArray[np.float32],
    w: NDArray[np.float32],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    dx: NDArray[np.float32],
    /,
) -> None: ...
def pointwise(
    run: _Run,
    rows: int,
    columns: int,
    inputs: tuple[tuple[Any, int, int, int], ...],
    steps: tuple[tuple[object, ...], ...],
    outs: tuple[Any, ...],
    /,
) -> None: ...
def pool2d(
    run: _Run,
    x: NDArray[np.float32],
    means: bool,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    out: NDArray[np.float32],
    /,
) -> None: ...
def conv2d_outer(
    run: _Run,
    x: _Floats,
    w: _Floats,
    stride: tuple[int, int],
    padding: tuple[int, ...],
    out: NDArray[np.float32],
    /,
) -> None: ...
def count_outer(
    run: _Run,
    x: _Floats,
    w: _Floats,
    stride: tuple[int, int],
    padding: tuple[int, ...],
    out_size: tuple[int, ...],
    cells: tuple[int, int],
    multipliers: tuple[int, int],
    banks: int,
    accumulators: int,
    /,
) -> tuple[int, int, int, int, int]: ...

# what: mark (0), keep (1), place (2); returns the number of nonzeros
def bitmap(run: _Run, items: NDArray[Any], bitmap: NDArray[np.uint8], values: NDArray[Any], what: int, /) -> int: ...
def kernels() -> list[tuple[str, str, int]]: ...  # [(family, isa, needs)]
def processors() -> int: ...  # number of processors on which this thread may run
def cpu_isa() -> int: ...
def cpu_processor() -> str: ...  # such as amd-26
def isa_mask(name: str, /) -> int: ...
def isa_names(mask: int, /) -> list[str]: ...
def compiler() -> str: ...

# of any device: (owner, type of device, its number, address, code, bits, shape, strides in items)
def read_dlpack(capsule: object, /) -> tuple[object, int, int, int, int, int, tuple[int, ...], tuple[int, ...]]: ...

# strides in items
def write_dlpack(
    owner: object,
    device: int,
    address: int,
    code: int,
    bits: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    /,
) -> object: ...

# (version of the driver, [(name, major, minor, bytes)], whether the kernels are of this build)
def cuda_open(library: str | bytes | PathLike[str], /) -> tuple[int, list[tuple[str, int, int, int]], bool]: ...
def cuda_sources() -> int: ...  # of the kernels that fit
def cuda_give(name: bytes, image: bytes, /) -> None: ...
def cuda_allocate(device: int, stream: int, nbytes: int, /) -> int: ...
def cuda_hold(device: int, stream: int, nbytes: int, /) -> tuple[object, int]: ...  # (owner, address)
def cuda_free(device: int, stream: int, address: int, /) -> None: ...
def cuda_copy(device: int, stream: int, address: int, buffer: NDArray[Any], uploads: bool, /) -> None: ...  # waits

# a copy on the device, which does not wait
def cuda_move(device: int, stream: int, to: int, source: int, nbytes: int, /) -> None: ...
def cuda_wait(device: int, stream: int, /) -> None: ...
def cuda_place(address: int, /) -> int: ...  # number of the device, -1 if there is none

# words and answers: addresses
def cuda_check(device: int, words: int, answers: int, of_warpgroups: bool, /) -> None: ...

# names: gemm, gemv, set_threads, get_threads, config, core; returns the text of config and the name of the core;
# blas_open(None): there is no BLAS
def blas_open(path: str | bytes | PathLike[str] | None, *names: str) -> tuple[str, str]: ...
def blas_speed(isa: int, /) -> int: ...  # an hc_blas_speed

# function(*args, **kwargs), in the environment of base/float_env.h
def in_float_env(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any: ...

# the same in the environment outside of in_float_env
def in_callers_float_env(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any: ...

# (array, whether its items are bfloat16); the array keeps the owner of its memory
def from_dlpack(capsule: object, /) -> tuple[NDArray[Any], int]: ...

# The model side. A cost is (energy in pJ, cycles, objective, tie-break), a choice the factors of the slots and orders.
_Cost: TypeAlias = tuple[float, float, float, float]
_Ints: TypeAlias = NDArray[np.int64]
_Reals: TypeAlias = NDArray[np.float64]

def map_cost(ints: _Ints, reals: _Reals, choice: _Ints, /) -> _Cost | None: ...

# (evaluated, cost, choice)
def map_enumerate(
    ints: _Ints, reals: _Reals, tables: tuple[_Ints, ...], start: int, stop: int, /
) -> tuple[int, _Cost | None, list[int] | None]: ...
def map_walk(ints: _Ints, reals: _Reals, choice: _Ints, seed: int, budget: int, /) -> Any: ...  # a capsule
def map_walk_on(walk: Any, steps: int, /) -> tuple[int, int, _Cost, list[int]]: ...  # (taken, valid, cost, choice)

# (cycles, folds, left, top, writes)
def systolic(
    a: _Reals, b: _Reals, rows: int, cols: int, dataflow: int, out: _Reals, /
) -> tuple[int, int, int, int, int]: ...

# Products as hardware accumulates them.
_CodeRows: TypeAlias = tuple[NDArray[np.int32], int, NDArray[Any] | None]

# (integers, groups, integer_scales)
def terms(
    run: _Run, packed: _Packed, codes: NDArray[Any], scales: NDArray[Any], row_scale: NDArray[Any], /
) -> tuple[bool, bool, bool]: ...
def emulate_codes(
    run: _Run,
    a: _CodeRows,
    b: _CodeRows,
    bits: int,
    saturates: bool,
    chunk: int,
    mitchell: bool,
    shift: int,
    limit: int,
    powers: NDArray[Any] | None,
    unit: float,
    out: NDArray[Any],
    /,
) -> None: ...
def emulate_floats(
    run: _Run,
    a: NDArray[Any],
    b: NDArray[Any],
    precision: int,
    smallest: int,
    chunk: int,
    aligned_bits: int,
    cuts: bool,
    truncates: bool,
    smallest_input: int,
    lowest: int,
    out: NDArray[Any],
    /,
) -> None: ...

_Doubles: TypeAlias = NDArray[np.float64]
# (rows, groups, group of each column, scales, zero points, low, high, levels, thresholds)
_Grid: TypeAlias = tuple[Any, ...]

def ptq_gram(run: _Run, tokens: int, columns: int, left: _Doubles, right: _Doubles, sum: _Doubles, /) -> None: ...
def ptq_factor(run: _Run, matrix: _Doubles, diagonal: _Doubles, /) -> int: ...  # failed column or -1
def ptq_largest(run: _Run, columns: int, matrix: _Doubles, steps: int, /) -> float: ...
def ptq_score(run: _Run, grid: _Grid, w: _Doubles, weight: _Doubles, sums: _Doubles, /) -> None: ...
def ptq_columns(
    run: _Run,
    grid: _Grid,
    w: _Doubles,
    factor: _Doubles | None,
    order: NDArray[np.int32],
    choice: tuple[int, NDArray[np.int32], _Doubles] | None,
    codes: NDArray[np.int32],
    first: _Doubles | None = None,
    budget: tuple[Any, ...] | None = None,
    /,
) -> None: ...
def ptq_levels(
    run: _Run,
    grid: _Grid,
    w: _Doubles,
    h: _Doubles,
    codes: NDArray[np.int32],
    first: int,
    count: int,
    curvature: _Doubles,
    slope: _Doubles,
    /,
) -> None: ...
def ptq_descend(
    run: _Run,
    grid: _Grid,
    w: _Doubles,
    h: _Doubles,
    scales: tuple[int, _Doubles | None, _Doubles | None] | None,
    refits: int,
    codes: NDArray[np.int32],
    changed: NDArray[np.int64],
    budget: tuple[Any, ...] | None = None,
    /,
) -> None: ...

# (name, (ns of a call, ns of each count ...)) of each path of matmuls or algorithm of convolutions
def costs(conv: bool, isa: int, /) -> list[tuple[str, tuple[float, ...]]]: ...
def keep_costs(conv: bool, isa: int, costs: NDArray[Any], /) -> None: ...
