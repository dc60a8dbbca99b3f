"""`heterocompute train`: a small network trained in several recipes of number formats."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from ...base.errors import shown
from ...report.table import Column
from ..options import Options
from ..parts import ProgressBar, UsageError, add_threads, interruptible, print_json, print_table, texts_of

NETWORKS = ("digits", "adder", "text")
RECIPES = ("fp16-loss-scale", "fp8-delayed", "mxfp8", "nvfp4", "int8-switchback")


def _four(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


COLUMNS = (
    Column("recipe", "recipe", left=True),
    Column("accuracy", "accuracy", _four),
    Column("spread", "+-", _four, leaves=3),
    Column("loss", "loss", _four),
    Column("skipped", "skipped steps", leaves=4),
    Column("departs", "leaves bf16 at", lambda step: "" if step is None else str(step), leaves=1),
    Column("layer", "layer", lambda name: name or "", left=True, leaves=2),
    Column("tensor", "tensor", lambda name: name or "", left=True, leaves=2),
    Column("underflow", "underflow", lambda share: "" if share is None else f"{share:.1%}", leaves=2),
)


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "train",
        run,
        "Train a small network from the start in several recipes of number formats, and show where each leaves bf16. "
        "digits and adder are shipped networks. text is a language model of characters with 2 layers, which needs "
        "torch. A default run takes less than three minutes.",
        "train",
        "train text --recipes fp8-delayed,mxfp8 --steps 100 --seeds 1 --html training.html",
    )
    add = Options(added, "studies.training:study_training")
    add("model", "NETWORK", "digits (default), adder or text", nargs="?", choices=NETWORKS, default=NETWORKS[0])
    add("--recipes", "A,B", f"recipes; bf16 is added. all: every published one; default: {', '.join(RECIPES)}",
        type=texts_of, default=list(RECIPES))  # fmt: skip
    add("--steps", "N", "steps of each training")
    add("--seeds", "N", "trainings per recipe, with other first weights and batches")
    add("--batch", "N", "batch size", type=int)
    add_threads(added)
    add("--keep", "PATH", "file of results: each training is added to it, and those in it are not repeated, so an "
        "interrupted command continues")  # fmt: skip
    add("--save", "PATH", "also write the result as JSON, for hc.TrainingStudy.load",
        parse="report.results.saved:saved_path")  # fmt: skip
    add.common("--csv")
    add("--html", "PATH", "also write a page with the curves, which hc.TrainingStudy.load reads as well")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if arguments.model == "text" and find_spec("torch") is None:
        raise UsageError("text needs torch: pip install torch")
    from ...studies.training import study_training  # 40 ms
    from ...training.step.named import recipes  # 40 ms

    names = list(recipes()) if arguments.recipes == ["all"] else arguments.recipes
    unknown = [name for name in names if name not in recipes()]
    if unknown:
        raise UsageError(f"--recipes has {shown(unknown[0])}, expected {', '.join(recipes())} or all")
    model, data = _network(arguments.model)
    with ProgressBar("train", arguments.model) as progress:
        found = interruptible(
            lambda: study_training(
                model, names, data, arguments.steps, arguments.seeds, arguments.batch,
                progress=progress.update, keep=arguments.keep,
            )
        )  # fmt: skip
    if arguments.save:
        found.save(arguments.save)
    if arguments.csv:
        found.to_csv(arguments.csv)
    if arguments.html:
        found.to_html(arguments.html, title=f"Training of {arguments.model} in number formats")
    if arguments.json:
        return print_json(found.to_dict())
    print_table(COLUMNS, found.table, more=("--json", "--csv"))
    return 0


def _network(name: str) -> tuple[Any, Any]:
    if name != "text":
        from ... import zoo  # 16 ms

        return (zoo.digits() if name == "digits" else zoo.adder()), None
    import torch  # 1 s

    from ...interop.torch.recipes.language import CharacterModel  # torch
    from ...training.step.text import characters  # 16 ms

    torch.set_num_threads(1)  # small matrices: a second pool of threads would only wait
    data, alphabet = characters()
    return (lambda seed: CharacterModel(alphabet, seed=seed)), data
