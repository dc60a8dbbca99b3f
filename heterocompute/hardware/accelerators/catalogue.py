"""The machines by name; each is built once, so that its searched mappings are kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from ...base.errors import WrongValue, shown
from ...base.texts import near_words
from . import dense, gpu, row_stationary, sparse, streams, vectors
from .accelerator import Accelerator

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


nvdla = cache(dense.nvdla)
tpu_v1 = cache(dense.tpu_v1)
diannao = cache(dense.diannao)
eyeriss = cache(row_stationary.eyeriss)
eie = cache(sparse.eie)
scnn = cache(sparse.scnn)
simba = cache(vectors.simba)
magnet = cache(vectors.magnet)
groq_lpu = cache(streams.groq_lpu)
tensor_core = cache(gpu.tensor_core)

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
    **{f"tensor_core_{one}": functools.partial(tensor_core, one) for one in gpu.GENERATIONS},
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
