"""`heterocompute search`: assigns a format to each tensor within budgets."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ...base.errors import printable, shown
from ...report.numbers import quantity
from ...report.table import Column
from ..hardware import chip_of
from ..language import language_model, naming_text, text_of
from ..options import REPEATED, Options
from ..parts import (
    ProgressBar,
    UsageError,
    add_selection,
    add_threads,
    interruptible,
    one_format,
    print_json,
    print_table,
    print_words,
)
from ..study import LISTS, NETWORKS, calibrated, held_in
from .ptq import function_of

FORMATS = "vsq2-g16-s4 vsq3-g16-s4 vsq4-g16-s4 vsq5-g16-s4 vsq6-g16-s6 int8".split()
FIGURE = "{:.3g}".format
COLUMNS = (
    Column("name", "tensor"),
    Column("format", "format", left=True),
    Column("method", "method", leaves=3, left=True),
    Column("bits", "bits", "{:.2f}".format, leaves=2),
    Column("bytes", "size", partial(quantity, unit="B"), leaves=4),
    Column("error", "error", FIGURE, leaves=5),
    Column("alpha", "alpha", FIGURE, leaves=6),
    Column("loss", "loss", FIGURE),
)


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    search = command(
        "search",
        run,
        "Choose a format for every tensor. The choice has provably the least predicted loss within the budgets. The "
        "whole model is held in memory.",
        "search --budget bits=4 --html report.html",
        "search model.safetensors --budget bits=4 --evaluate my_model:loss --save recipe.toml",
        "search model.safetensors --budget bytes=9e6,device_us=120 --device t4 --group '*.query,*.key,*.value'",
        "search model.gguf --text corpus.txt --budget bytes=60MB --save recipe.toml",
    )
    add = Options(search, "ptq.search:search")
    add("model", "MODEL", "checkpoint: safetensors, .npz, ...; with --text a GGUF file or Hugging Face folder; "
        "default: the shipped network", nargs="?")  # fmt: skip
    add("--text", "FILE", "UTF-8 text on which a language model is evaluated; --metric is kl or perplexity")
    add("--network", None, "shipped network: digits (default) or adder", choices=NETWORKS)
    add("--budget", "K=N", "upper bound of bits (per value), bytes (also 60MB), seconds (measured here), device_us, "
        "device_uj, mac_pj or mac_um2; several separated by commas", type=_budgets, **REPEATED)  # fmt: skip
    add("--formats --format", "A,B", f"formats to choose from; default: {', '.join(FORMATS)}", **LISTS)
    add("--evaluate", "M:F", "module:function, called with the weights; returns a loss; default: errors of all tensors "
        "count equally")  # fmt: skip
    add("--metric", "NAME", "name of the loss, if --evaluate returns several numbers")
    add("--inputs", "C", "x.npz or module:function, see the command ptq: round with gptq; all Hessians are held "
        "in memory")  # fmt: skip
    add("--group", "A,B", "patterns of tensors that share a format; repeatable", **REPEATED)
    add("--probe", "F", "format that perturbs each tensor once; default: that with an error nearest to 15 dB",
        type=one_format)  # fmt: skip
    add("--device", "D", "chip of the budgets device_us and device_uj")
    add.common("--device-file")
    add("--activations", "F", "format of the activations, for the budgets on a device", type=one_format)
    add_selection(search)
    add_threads(search)
    add(
        "--save --out",
        "PATH",
        "write the recipe as TOML, for quantize and ptq --recipe; PATH.json: the whole plan, for hc.ptq.Plan.load",
        parse="report.results.saved:plan_path",
    )
    add("--keep", "PATH", "file of results: they are added to it, and those in it are not computed again, so an "
        "interrupted command continues")  # fmt: skip
    add.common("--csv")
    add("--html", "PATH", "also write one page with tables and plots")
    add.common("--plot")


def run(arguments: argparse.Namespace) -> int:
    """Search, and show or write what was found.

    Returns
    -------
    int
        0.
    """
    budget = {kind: amount for one in arguments.budget for kind, amount in one.items()}
    if not budget:
        raise UsageError("--budget is needed, such as bits=4")
    if arguments.network is not None and arguments.model is not None:
        raise UsageError("--network is a network shipped here, MODEL a file: give one of them")
    if arguments.device_file is not None and arguments.device is None:
        raise UsageError("--device-file needs --device, the name of one device in it")
    if arguments.text is not None and (arguments.model is None or arguments.evaluate or arguments.inputs):
        raise UsageError("--text needs MODEL, a GGUF file or the folder of a language model, and no other judge")
    name = arguments.model or arguments.network or NETWORKS[0]
    with ProgressBar("search", name) as progress:
        plan = interruptible(lambda: _search(arguments, budget, progress))
    if arguments.save:
        plan.save(arguments.save)
    if arguments.csv:
        plan.to_csv(arguments.csv)
    if arguments.html:
        plan.to_html(arguments.html, title=f"A format for each tensor of {printable(os.path.basename(name))}")
    if arguments.plot:
        plan.plot(arguments.plot)
    if arguments.json:
        return print_json(plan.to_dict())
    print_table(COLUMNS, plan.table, more=("--json", "--csv"))
    print_words(str(plan))
    return 0


def _search(arguments: argparse.Namespace, budget: dict[str, float], progress: ProgressBar) -> Any:
    from ... import zoo  # 16 ms
    from ...ptq.search import search  # 40 ms

    weights: Any
    metric, evaluate = arguments.metric, None
    if arguments.text is not None:
        net, text = language_model(arguments.model), text_of(arguments.text)
        with naming_text(arguments.text):
            weights, evaluate = net.search_inputs(text, bool(arguments.include))
        metric = metric or "kl"
    elif arguments.model is None:
        weights = getattr(zoo, arguments.network or NETWORKS[0])()
        metric = metric or (None if arguments.evaluate else "kl")
    else:
        weights = held_in(arguments.model)
        if not isinstance(weights, dict):
            raise ValueError(f"{printable(arguments.model)}: holds one array, expected a checkpoint")
    device = arguments.device
    if arguments.device_file is not None:
        device = chip_of(device, arguments.device_file, str)
    return search(
        weights,
        arguments.formats or FORMATS,
        budget,
        evaluate if arguments.evaluate is None else function_of(arguments.evaluate, "--evaluate"),
        metric,
        None if arguments.text is not None else calibrated(arguments, weights),
        [[part.strip() for part in text.split(",")] for text in arguments.group],
        arguments.probe,
        arguments.include or None,
        arguments.exclude or None,
        device,
        arguments.activations,
        progress.update,
        keep=arguments.keep,
    )


def _budgets(text: str) -> dict[str, float]:
    from ...files.work import size_of  # 18 ms
    from ...ptq.budgets import KINDS  # 18 ms

    found = {}
    for part in text.split(","):
        kind, _, amount = part.partition("=")
        try:
            is_size = kind.strip() == "bytes" and not amount.strip()[-1:].isdigit()
            found[kind.strip()] = float(size_of(amount) or 0) if is_size else float(amount)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{shown(part[:40])}, expected KIND=NUMBER such as bits=4") from None
        if kind.strip() not in KINDS:
            raise argparse.ArgumentTypeError(f"{shown(kind.strip()[:40])}, expected one of {', '.join(KINDS)}")
    return found
