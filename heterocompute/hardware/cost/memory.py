"""Memory of a network: for inference, for training, for keys and values, and in an allocator. Bytes.

Binary and decimal units are kept apart: everything here is plain bytes; `Memory` prints MiB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ...base.errors import WrongValue
from ...base.lazy import renamed
from ...base.notebooks.shown import Facts
from ...base.values import check_choice, check_count, is_several
from ..chips.chip import dtype_bits
from ..network.graph import Network
from ..network.layers import Context, Embedding, Scores
from ..network.liveness import peak_elements, saved_sizes
from ..network.lookup import as_network
from .recompute import cut
from .stored import stored, stored_cache, weight_matrix

__all__ = ["Memory", "allocated", "backward", "device_total", "forward", "infer", "kv_cache", "training"]


def __dir__() -> list[str]:
    return __all__


MIB = 1 << 20

# Bytes per parameter of the optimizer's state, in float32.
OPTIMIZERS = {"none": 0, "sgd": 0, "momentum": 4, "adagrad": 4, "rmsprop": 4, "adam": 8, "adamw": 8, "lion": 4}

# The caching allocator of PyTorch for devices of NVIDIA (its c10): kMinBlockSize, kSmallSize, kSmallBuffer,
# kMinLargeAlloc, kLargeBuffer, kRoundLarge.
BLOCK, SMALL, SMALL_BUFFER, LARGE, LARGE_BUFFER, ROUND = 512, 1 << 20, 2 << 20, 10 << 20, 20 << 20, 2 << 20


@dataclass(frozen=True)
class Memory(Facts):
    """Memory in bytes by use.

    Attributes
    ----------
    params, gradients, master, optimizer : int
        Weights; their gradients; a float32 copy of the weights; the optimizer's states.
    input, output : int
        Inputs and outputs of the whole batch.
    intermediates : int
        Stored outputs of inner layers.
    cache : int
        Keys and values.
    """

    params: int = 0
    gradients: int = 0
    master: int = 0
    optimizer: int = 0
    input: int = 0
    output: int = 0
    intermediates: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        """Return the sum of all parts."""
        return sum(self.to_dict().values())

    def to_dict(self) -> dict[str, int]:
        """Return the parts in bytes.

        Returns
        -------
        dict of str to int
        """
        names = ("params", "gradients", "master", "optimizer", "input", "output", "intermediates", "cache")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {size / MIB:.4g} MiB" for name, size in self.to_dict().items() if size)
        return f"<Memory: {self.total / MIB:.6g} MiB = {parts}>"


@renamed(model="network")
def infer(
    network: object,
    input_shape: Sequence[int] | None = None,
    *,
    batch: int = 1,
    dtype: str = "fp32",
    format: object = None,
    kv_cache: object = None,
) -> Memory:
    """Compute the memory of one inference: weights, input, output, and the largest set of live outputs.

    Parameters
    ----------
    network, input_shape
        As in `count`.
    batch : int, optional
    dtype : str, optional
        Type of weights and activations.
    format : Format or str, optional
        Format of the weights of matmuls and convolutions, as stored.
    kv_cache : Format or str, optional
        Format of cached keys and values. Default: `dtype`.

    Returns
    -------
    Memory
        `intermediates` is the largest live memory, without input and output of the network. `cache` is that of
        `Network.decoding`.

    Raises
    ------
    ValueError
        The network or type is unknown, or shapes do not match.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.memory.infer(hw.layers.Linear(1024, 1024), (1024,)).params
    4198400
    """
    network = as_network(network, input_shape)
    batch = check_count("memory.infer", "batch", batch)
    bits = dtype_bits(dtype)
    ends = _bytes(batch * (math.prod(network.input_shape) + math.prod(network.output_shape)), bits)
    peak = peak_bytes(network, batch, dtype)
    params = weight_bytes(network, dtype, format)
    return Memory(params, input=_bytes(batch * math.prod(network.input_shape), bits),
                  output=_bytes(batch * math.prod(network.output_shape), bits),
                  intermediates=max(0, peak - ends), cache=cache_bytes(network, batch, dtype, kv_cache))  # fmt: skip


@renamed(model="network")
def forward(
    network: object,
    input_shape: Sequence[int] | None = None,
    *,
    batch: int = 1,
    dtype: str = "fp32",
    outputs: int = 1,
) -> Memory:
    """Compute the memory of a forward pass that stores the values for a backward pass.

    For a torch.nn.Module these are the values that autograd saves in training mode, each memory once. For other models
    they are the outputs of every layer, except views.

    Parameters
    ----------
    network, input_shape
        As in `count`.
    batch : int, optional
    dtype : str, optional
    outputs : int, optional
        Number of stored results, if the pass runs several times.

    Returns
    -------
    Memory

    Raises
    ------
    ValueError
        The network or type is unknown, or shapes do not match.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> m = hw.memory.forward(hw.layers.Linear(1024, 1024), (1024,), batch=10240, outputs=100)
    >>> m.params / 2**20, m.input / 2**20, m.output / 2**20
    (4.00390625, 40.0, 4000.0)
    """
    batch = check_count("memory.forward", "batch", batch)
    network = as_network(network, input_shape, training=min(batch, 2))
    outputs = check_count("memory.forward", "outputs", outputs)
    bits = dtype_bits(dtype)
    inside = saved_sizes(network)
    elements, other = (batch * sum(one) for one in zip((0, 0), *inside, strict=True))
    elements, other = elements + network.prepared[0], other + network.prepared[1]
    return Memory(
        weight_bytes(network, dtype),
        input=_bytes(batch * math.prod(network.input_shape), bits),
        output=outputs * _bytes(batch * math.prod(network.output_shape), bits),
        intermediates=_bytes(elements, bits) + other,
    )


@renamed(model="network")
def backward(
    network: object,
    input_shape: Sequence[int] | None = None,
    *,
    batch: int = 1,
    dtype: str = "fp32",
) -> Memory:
    """Compute the memory of a forward and a backward pass: `forward`, and a gradient per trained parameter.

    Parameters
    ----------
    network, input_shape
        As in `count`.
    batch : int, optional
    dtype : str, optional

    Returns
    -------
    Memory

    Raises
    ------
    ValueError
        The network or type is unknown, or shapes do not match.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> m = hw.memory.backward(hw.layers.Linear(1024, 1024), (1024,), batch=10240)
    >>> (m.params + m.gradients) / 2**20, m.input / 2**20, m.output / 2**20
    (8.0078125, 40.0, 40.0)
    """
    batch = check_count("memory.backward", "batch", batch)
    network = as_network(network, input_shape, training=min(batch, 2))
    saved = forward(network, batch=batch, dtype=dtype)
    gradients = saved.params if not network.frozen else _bytes(network.params - network.frozen, dtype_bits(dtype))
    return Memory(saved.params, gradients, input=saved.input, output=saved.output, intermediates=saved.intermediates)


@renamed(model="network")
def training(
    network: object,
    input_shape: Sequence[int] | None = None,
    *,
    batch: int = 1,
    dtype: str = "fp32",
    optimizer: str = "adam",
    recompute: int = 0,
) -> Memory:
    """Compute the memory of training: `backward`, the optimizer's states, and with 16-bit types a float32 copy.

    Parameters of a module that do not require a gradient have no gradient, states or copy.

    Parameters
    ----------
    network, input_shape
        As in `count`.
    batch : int, optional
    dtype : str, optional
        Type of weights, gradients and activations. 16-bit types add a float32 copy of the weights.
    optimizer : str, optional
        none, sgd, momentum, adagrad, rmsprop, adam, adamw, lion: states in float32.
    recompute : int, optional
        Maximum number of segments of which only the inputs are stored; one at a time is recomputed. The cuts minimize
        the memory. 0: everything is stored.

    Returns
    -------
    Memory
        `intermediates` with recomputation: the values stored at the cuts, and the largest segment.

    Raises
    ------
    ValueError
        The network, type or optimizer is unknown, or shapes do not match.

    Notes
    -----
    16 bytes per parameter with Adam in mixed precision: Rajbhandari et al., "ZeRO", SC 2020. Recomputation of segments:
    Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> m = hw.memory.training("llama_7b", batch=1, dtype="bf16")
    >>> (m.params + m.gradients + m.master + m.optimizer) / hw.networks["llama_7b"].params
    16.0
    """
    check_choice("memory.training", "optimizer", optimizer, OPTIMIZERS)
    recompute = check_count("memory.training", "recompute", recompute, 0)
    batch = check_count("memory.training", "batch", batch)
    network = as_network(network, input_shape, training=min(batch, 2))
    saved = backward(network, batch=batch, dtype=dtype)
    bits = dtype_bits(dtype)
    intermediates = saved.intermediates
    if recompute:
        prepared = _bytes(network.prepared[0], bits) + network.prepared[1]
        intermediates = _bytes(batch * sum(cut(network, recompute, bits)), bits) + prepared
    trained = network.params - network.frozen
    return Memory(
        saved.params,
        saved.gradients,
        master=4 * trained if bits <= 16 else 0,
        optimizer=OPTIMIZERS[optimizer] * trained,
        input=saved.input,
        output=saved.output,
        intermediates=min(intermediates, saved.intermediates),
    )


@renamed(model="network", positions="context")
def kv_cache(
    network: object,
    context: int,
    *,
    batch: int = 1,
    dtype: str = "fp16",
    windows: int | Sequence[int | None] | None = None,
    latent: int | None = None,
    format: Any = None,
) -> int:
    """Compute the bytes of keys and values of a transformer.

    Parameters
    ----------
    network : Network, str or LanguageModel
        The sliding windows of a language model are used.
    context : int
        Tokens of each sequence.
    batch : int, optional
    dtype : str, optional
        Type of the values, without scales.
    windows : int, or sequence of int or None, optional
        Maximum number of tokens that layers see: one number for all, or one per layer, None if a layer sees all.
    latent : int, optional
        Values that a layer stores per token instead of keys and values: 576 in DeepSeek-V2's multi-head latent
        attention (arXiv 2405.04434, section 2.1: 512 compressed, 64 rotary).
    format : Format or str, optional
        Format of the values instead of `dtype`, with its scales: each head is packed along its width, as in
        `heterocompute.KVCache`.

    Returns
    -------
    int
        Sum over the layers of (width of the keys + width of the values, or `latent`) x positions that it sees x batch
        values. A latent that is both keys and values, as in DeepSeek's attention, counts once.

    Raises
    ------
    ValueError
        The network has no attention, a count is not positive, or the sequence of windows has another length.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.memory.kv_cache("llama_7b", 2048) == 2**30
    True
    >>> hw.memory.kv_cache("llama_7b", 2048, windows=[None, 512] * 16) / 2**30
    0.625
    >>> hw.memory.kv_cache("llama_7b", 2048, format="int8") / 2**30
    0.515625
    """
    batch = check_count("memory.kv_cache", "batch", batch)
    context = check_count("memory.kv_cache", "context", context)
    shape: Any = getattr(network, "shape", None)
    if hasattr(shape, "cached"):
        heads, width = shape.cached
        rows = [[(2 * heads, width)]] * shape.layers
        windows = shape.windows if windows is None else windows
    else:
        network, rows, held, windows_of = as_network(network), [], set(), []
        for flow in replace(network, nodes=network.decoder or network.nodes):
            if isinstance(flow.layer, Scores):
                rows.append([])
                windows_of.append(flow.layer.window)
            # keys and values by the node that computes them: a latent that is both is stored once
            if isinstance(flow.layer, (Scores, Context)) and flow.node.inputs[1] not in held:
                held.add(flow.node.inputs[1])
                heads = flow.layer.kv_heads or flow.layer.heads
                rows[-1].append((heads, flow.inputs[1][1] // heads))
        if not rows:
            raise WrongValue(f"memory.kv_cache: {network.name} has no attention")
        windows = windows_of if windows is None else windows
    if latent is not None:
        latent = check_count("memory.kv_cache", "latent", latent)
        rows = [[(1, latent)]] * len(rows)
    limits: list[Any] = list(cast(Any, windows)) if is_several(windows) else [windows] * len(rows)
    if len(limits) != len(rows):
        raise WrongValue(f"memory.kv_cache: windows has {len(limits)} entries, expected {len(rows)}, one per layer")
    limits = [None if limit is None else check_count("memory.kv_cache", "windows", limit) for limit in limits]
    seen = [context if limit is None else min(context, limit) for limit in limits]
    packed = stored_cache(format, dtype)
    parts = ((heads * n * batch, width) for parts, n in zip(rows, seen, strict=True) for heads, width in parts)
    return -(-sum(packed.bits(*part) for part in parts) // 8)


def allocated(size: int) -> tuple[int, int]:
    """Compute how PyTorch's caching allocator rounds the first request of a size.

    Parameters
    ----------
    size : int
        Bytes.

    Returns
    -------
    (int, int)
        Bytes of the block, in multiples of 512, and bytes reserved from the device: 2 MiB up to 1 MiB,
        20 MiB below 10 MiB, multiples of 2 MiB from there.

    Raises
    ------
    ValueError
        The size is negative.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.memory.allocated(4 * 2**20)[1] / 2**20
    20.0
    """
    size = check_count("memory.allocated", "size", size, 0)
    if size == 0:
        return 0, 0
    block = max(BLOCK, -(-size // BLOCK) * BLOCK)
    if block <= SMALL:
        return block, SMALL_BUFFER
    return block, LARGE_BUFFER if block < LARGE else -(-block // ROUND) * ROUND


def device_total(sizes: int | Sequence[int], context: int = 1053 * MIB) -> int:
    """Compute the memory that a device reports for a process that made each of these requests once.

    No request shares a block with another one.

    Parameters
    ----------
    sizes : sequence of int, or int
        Bytes of each request. A number is one request.
    context : int, optional
        Bytes of the driver's context. Default: 1053 MiB, as measured for a V100 with NVIDIA's release 10.1. It depends
        on both.

    Returns
    -------
    int

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.memory.device_total([4 * 2**20]) / 2**20
    1073.0
    """
    listed: Iterable[Any] = sizes if is_several(sizes) else [sizes]
    context = check_count("memory.device_total", "context", context, 0)
    return context + sum(allocated(size)[1] for size in listed)


def peak_bytes(network: Network, batch: int, dtype: str) -> int:
    """Return the bytes of activations at the worst moment of a batch, input and output included."""
    return _bytes(batch * peak_elements(network), dtype_bits(dtype))


def cache_bytes(network: Network, batch: int, dtype: str, format: Any = None) -> int:
    """Return the bytes of keys and values that a network of `Network.decoding` holds at its end; 0 for others."""
    cached = max((flow.layer.cached for flow in network if isinstance(flow.layer, Scores)), default=0)
    stored_cache(format, dtype)  # refuses a format also where nothing is cached
    return kv_cache(network, cached + 1, batch=batch, dtype=dtype, format=format) if cached else 0


def held_bytes(network: Network, batch: int, dtype: str, format: object = None, kv_cache: object = None) -> int:
    """Return the bytes of weights, of activations at the worst moment, and of cached keys and values."""
    activations = peak_bytes(network, batch, dtype) + cache_bytes(network, batch, dtype, kv_cache)
    return weight_bytes(network, dtype, format) + activations


def weight_bytes(network: Network, dtype: str, format: Any = None) -> int:
    """Return the bytes of all parameters; the matrices of products in a format, everything else as `dtype`.

    A table of embeddings that is also the matrix of the output is stored once, in the format.
    """
    if format is None:
        return _bytes(network.params, dtype_bits(dtype))
    weights, plain, packed = stored(format, dtype), 0, 0
    tied = {weight_matrix(flow) for flow in network if getattr(flow.layer, "shared", False)}
    for flow in network:
        layer, matrix = flow.layer, None
        if isinstance(layer, Embedding):
            matrix = (layer.rows, layer.width) if (layer.rows, layer.width) in tied else None
        elif layer.weight_params:
            matrix = weight_matrix(flow)
        if matrix is None:
            plain += flow.layer.params
        else:
            packed += weights.of(flow.name).bits(
                flow.layer.weight_params // matrix[1], matrix[1]
            )  # all experts, used or not
            plain += flow.layer.bias_params
    return _bytes(plain, dtype_bits(dtype)) + -(-packed // 8)


def _bytes(elements: int, bits: int) -> int:
    return -(-elements * bits // 8)
