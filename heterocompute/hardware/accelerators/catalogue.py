"""The machines by name; each is built once, so that its searched mappings are kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from ...base.errors import WrongValue, shown
from ...base.texts import near_words
from ...base.values import check_choice, check_count, check_flag
from ..silicon.gate_costs import PROCESSES
from .accelerator import Accelerator
from .design import DATAFLOWS
from .machines.machine import Machine

Builder = TypeVar("Builder", bound=Callable[..., Accelerator])


def cache(make: Builder) -> Builder:
    """Return the function with its results cached; arguments that cannot be keys are passed on and refused there."""
    cached = functools.cache(make)

    @functools.wraps(make)
    def build(*args: object, **options: object) -> Accelerator:
        try:
            hash((args, *options.values()))
        except TypeError:
            return make(*args, **options)
        return cached(*args, **options)

    return cast(Builder, build)


@cache
def _named(name: str, **sizes: Any) -> Accelerator:
    return Machine.named(name, **sizes).accelerator


def nvdla(winograd: bool = False, compressed: bool = False, **sizes: Any) -> Accelerator:
    """Return NVDLA nv_full: 64 channels x 32 filters per cycle in 8 bits, x 16 in 16 bits.

    Parameters
    ----------
    winograd : bool, optional
        Run 3 x 3 filters of stride 1 as F(2 x 2, 3 x 3) where that is faster: 2.25 times fewer multiplications, 16
        weights instead of nine.
    compressed : bool, optional
        Store weights without zeros in DRAM and in the buffer, with a mask of one bit per value.
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.nvdla().peak("int8")  # operations/s
    4096000000000.0
    """
    given = {"winograd": check_flag("nvdla", "winograd", winograd)}
    return _named("nvdla", **given, compressed=check_flag("nvdla", "compressed", compressed), **sizes)


def tpu_v1(**sizes: Any) -> Accelerator:
    """Return Google's first TPU: 256 x 256 cells, weights stationary, activations on chip.

    Parameters
    ----------
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.tpu_v1(rows=128).peak("int8")  # operations/s
    45875200000000.0
    """
    return _named("tpu_v1", **sizes)


def diannao(**sizes: Any) -> Accelerator:
    """Return DianNao: 16 x 16 multipliers, three buffers, nothing stationary in the cells.

    Parameters
    ----------
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.diannao().peak("int16")  # operations/s
    486080000000.0
    """
    return _named("diannao", **sizes)


def eyeriss(**sizes: Any) -> Accelerator:
    """Return the Eyeriss chip: row stationary, 168 PEs at 200 MHz.

    Parameters
    ----------
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.eyeriss().peak("int16")  # operations/s
    67200000000.0
    """
    return _named("eyeriss", **sizes)


def eie(depth: int = 8, **sizes: Any) -> Accelerator:
    """Return EIE: 64 PEs at 800 MHz for pruned fully connected layers with 4-bit codes.

    Parameters
    ----------
    depth : int, optional
        Capacity of a PE's queue in activations.
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.eie().peak("int16")  # operations/s
    102400000000.0
    """
    return _named("eie", depth=check_count("eie", "depth", depth), **sizes)


def scnn(**sizes: Any) -> Accelerator:
    """Return SCNN: 8 x 8 cells of 4 x 4 multipliers, products of all nonzero weights and activations of a channel.

    Parameters
    ----------
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.scnn().peak("int16")  # operations/s
    2048000000000.0
    """
    return _named("scnn", **sizes)


def simba(**sizes: Any) -> Accelerator:
    """Return Simba: 36 chiplets of 16 processing elements, each of 8 lanes of 8 products.

    Parameters
    ----------
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.simba().peak("int8")  # operations/s
    127770624000000.0
    """
    return _named("simba", **sizes)


def magnet(dataflow: str = "os-lws", process: str = "16nm", **sizes: Any) -> Accelerator:
    """Return MAGNet's accelerator: 16 processing elements of 16 lanes of 16 products.

    Parameters
    ----------
    dataflow : {"ws", "ws-los", "os-lws"}
    process : str, optional
        A process of `hw.mac`.
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.magnet("ws").peak("int8")  # operations/s
    8192000000000.0
    """
    check_choice("magnet", "dataflow", dataflow, DATAFLOWS)
    check_choice("magnet", "process", process, PROCESSES)
    return _named("magnet", dataflow=dataflow, process=process, **sizes)


def groq_lpu(chips: int = 1, **sizes: Any) -> Accelerator:
    """Return Groq's LPU: chips with 230 MB of SRAM and 4 x 320 x 320 multipliers each, joined by links.

    Parameters
    ----------
    chips : int, optional
        Number of chips, which together hold the weights. `report` tells how many are needed.
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.groq_lpu(2).peak("int8")  # operations/s
    1474560000000000.0
    """
    return _named("groq_lpu", chips=check_count("groq_lpu", "chips", chips), **sizes)


def tensor_core(generation: str = "volta", **sizes: Any) -> Accelerator:
    """Return the tensor cores of a generation, with the memories of its largest chip, of Turing's T4.

    Parameters
    ----------
    generation : {"volta", "turing", "ampere", "hopper"}
    **sizes
        Sizes of the machine's file, as of `hw.Machine.named`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.tensor_core("ampere").peak("fp16")  # operations/s
    311869440000000.0
    """
    check_choice("tensor_core", "generation", generation, GENERATIONS)
    return _named(f"tensor_core_{generation}", **sizes)


#: Generations of tensor cores, each with a file.
GENERATIONS = ("volta", "turing", "ampere", "hopper")

MACHINES: Mapping[str, Callable[[], Accelerator]] = {
    "nvdla": nvdla,
    "tpu_v1": tpu_v1,
    "diannao": diannao,
    "eyeriss": eyeriss,
    "eie": eie,
    "scnn": scnn,
    "simba": simba,
    "magnet": magnet,
    "groq_lpu": groq_lpu,
    "cim_sinangil": functools.partial(_named, "cim_sinangil"),
    **{f"tensor_core_{one}": functools.partial(tensor_core, one) for one in GENERATIONS},
}


def names() -> tuple[str, ...]:
    """Return the names that `accelerator` accepts.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.names()[:3]
    ('nvdla', 'tpu_v1', 'diannao')
    """
    return tuple(MACHINES)


def accelerator(name: str) -> Accelerator:
    """Return a published accelerator by its name.

    Parameters
    ----------
    name : str
        One of the names that `names` returns.

    Returns
    -------
    Accelerator

    Raises
    ------
    ValueError
        The name is unknown; the message has the nearest names.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.accelerator("nvdla").peak("int8")
    4096000000000.0
    """
    if not isinstance(name, str) or name not in MACHINES:
        near = near_words(str(name).lower().replace("-", "_"), MACHINES, 3)
        words = f"; the nearest are {', '.join(near)}" if near else f", which are {', '.join(MACHINES)}"
        raise WrongValue(f"accelerator: {shown(name)} is not a known accelerator{words}")
    return MACHINES[name]()
