"""One static page whose sliders change the tiles; all counts follow by the rules of `evaluate`.

The page holds the problem and the machine as data; page.js is the third implementation of the rules, after `accesses`
and csrc/model/cost.c, and is compared with the first in a browser.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from ...base.errors import WrongValue
from ...base.values import check_text
from ...report.page import page
from .accesses import zero_shares
from .arch import Arch
from .dataflow import order_classes
from .mapping import Mapping, check_kinds
from .nest import Nest, nest
from .problem import Problem


def mapping_page(
    problem: Problem, arch: Arch, mapping: Mapping | None = None, title: str = "A mapping, by hand"
) -> str:
    """Return an HTML page that shows a mapping and lets the user change it.

    Parameters
    ----------
    problem : Problem
    arch : Arch
    mapping : Mapping, optional
        Initial position of the sliders, with one loop per dimension and level. Default: all loops run at the outermost
        level.
    title : str, optional

    Returns
    -------
    str
        HTML that loads no other files and needs no server.

    Raises
    ------
    ValueError
        The mapping does not fit, or splits a dimension twice at one level.

    Examples
    --------
    >>> from heterocompute.hardware.mapper import Level
    >>> page = mapping_page(Problem.gemm(4, 4, 4), Arch([Level("DRAM"), Level("Buffer", words=16)]))
    >>> page.startswith("<!doctype html>")
    True
    """
    check_text("mapping_page", "title", title)
    check_kinds("mapping_page", problem=problem, arch=arch)
    if mapping is None:
        mapping = Mapping({arch.names[0]: list(problem.dims.items())})
    check_kinds("mapping_page", mapping=mapping)
    laid = nest(problem, arch, mapping)
    body, script, style = (
        files(__package__).joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "js", "css")
    )
    return page(title, body, _data(laid), script, style)


def _data(laid: Nest) -> dict[str, Any]:
    problem, arch = laid.problem, laid.arch
    left = zero_shares(laid)
    levels = []
    for place, level in enumerate(arch.levels):
        shared = None if isinstance(level.words, dict) else level.words
        shares = {t: left.accesses[place, t] for t in problem.tensors if (place, t) in left.accesses}
        levels.append(
            {
                "name": level.name,
                "words": shared,
                "own_words": level.words if isinstance(level.words, dict) else {},
                "keeps": [tensor for tensor in problem.tensors if tensor in laid.keeps[place]],
                "read": level.read,
                "write": level.write,
                "update": level.update,
                "leak": level.leak,
                "block": level.block,
                "instances": level.instances,
                "cluster": level.cluster,
                "fanout": arch.fanout(place),
                "bandwidth": [level.read_bandwidth, level.write_bandwidth, level.bandwidth],
                "compress": sorted(set(level.compress) & set(problem.tensors)),
                "shares": shares,
            }
        )
    density = {t: [problem.density(t), d.kind == "uniform"] for t, d in problem.densities.items()}
    return {
        "dims": problem.dims,
        "tensors": problem.tensors,
        "output": problem.output,
        "density": density,
        "levels": levels,
        "mac": arch.mac,
        "macs": arch.macs,
        "computes": problem.computes,
        "actual_computes": left.computes,
        "cycle_share": left.cycles,
        "orders": [list(order) for order in order_classes(problem)],
        "start": _start(laid),
    }


def _start(laid: Nest) -> dict[str, Any]:
    """Return the factors of each level in time and space, and the order of the loops in time."""
    found: dict[str, Any] = {"temporal": [], "spatial": [], "order": []}
    for key, nests in (("temporal", laid.temporal), ("spatial", laid.spatial)):
        for name, loops in zip(laid.arch.names, nests, strict=True):
            factors = dict.fromkeys(laid.problem.dims, 1)
            for dim, bound in loops:
                if bound > 1 and factors[dim] > 1:
                    raise WrongValue(f"mapping_page: {name} has two loops over {dim}, expected one")
                factors[dim] *= bound
            found[key].append(factors)
            if key == "temporal":
                placed = [dim for dim, bound in loops if bound > 1]
                found["order"].append([*(dim for dim in factors if dim not in placed), *placed])
    return found
