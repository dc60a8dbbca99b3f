"""`heterocompute verify`: whether a checkpoint comes from a base by a recipe."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ...base.errors import printable
from ...base.texts import counted, sentence
from ...base.workers import checked_workers
from ...report.table import Column
from ..options import Options
from ..parts import ProgressBar, UsageError, add_threads, interruptible, note, print_json, print_line, print_table
from ..rounding.ptq import function_of, names_function

SHOWN = 20
GIVEN = ("recipe", "guess", "inputs", "sample", "seed", "statement", "layout", "part", "workers", "digest")
COLUMNS = (
    Column("name", "tensor"),
    Column("status", "status", left=True),
    Column("index", "index", lambda index: "-" if index is None else str(index), left=True),
    Column("how", "how", lambda text: text or "-", left=True),
)


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "verify",
        run,
        "Check that a checkpoint comes from a base by a recipe, and that nothing else was changed. Each tensor is "
        "derived again and compared with the stored bytes. The recipe is that of the statement next to FILE, or of "
        "--recipe. Exit codes: 0 verified, 1 different, 2 not compared.",
        "verify small.safetensors --from model.safetensors",
        "verify small.safetensors --from model.safetensors --recipe int4-g32",
        "verify model-Q4_0.gguf --from model-folder --guess",
    )
    add = Options(added, "proof.verify:verify")
    add("file", "FILE", "the checkpoint to check")
    add("--from", "BASE", "the checkpoint that FILE was made from (required)", dest="base")
    add("--recipe", "R", "instead of a statement: a format, a pattern or a TOML recipe")
    add("--guess", None, "without a statement: find the recipe among those that the layout of FILE allows")
    add("--inputs", "C", "calibration inputs of ptq: x.npz or module:function")
    add("--statement", "S", "default: FILE.intoto.json, in a folder statement.intoto.json")
    add("--layout", "L", "with --recipe: layout of FILE; default: read from FILE")
    add(
        "--sample", "N", "compare N tensors, drawn at random; prints the seed and the chance to miss a change", type=int
    )
    add("--seed", "SEED", "seed of --sample", type=int)
    add("--part", "K/N", "compare part K of N of the tensors")
    add(
        "--workers",
        "W",
        "who compares the files of a folder: a number, dask:tcp://HOST:8786 or ray:ADDRESS; default: 1",
        parse=lambda text: checked_workers(text, "--workers"),
    )
    add("--no-digest", None, "do not compare the digests of the statement")
    add_threads(added)


def comparing(name: str, work: Callable[[], Any]) -> Any:
    """Return the answer of a comparison, None after a line on standard error if nothing could be compared."""
    try:
        return work()
    except OSError as error:
        prefix = f"{printable(str(error.filename))}: " if error.filename else ""
        note(f"heterocompute {name}: {prefix}{error.strerror or error}")
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        RuntimeError,
        NotImplementedError,
        ImportError,
        MemoryError,
    ) as error:
        note(f"heterocompute {name}: {sentence(error).removeprefix(f'{name}: ')}")
    return None


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if arguments.base is None:
        raise UsageError("--from is needed")
    given: dict[str, Any] = {key: getattr(arguments, key) for key in GIVEN}
    from ...proof.verify import verify  # 60 ms

    def work() -> Any:
        if given["inputs"] is not None and names_function(given["inputs"]):
            given["inputs"] = function_of(given["inputs"], "--inputs")
        with ProgressBar("verify", arguments.file) as progress:
            return interruptible(lambda: verify(arguments.file, arguments.base, progress=progress.update, **given))

    found = comparing("verify", work)
    if found is None:
        return 2
    if arguments.json:
        print_json(found.to_dict())
        return int(found.code)
    rows = [vars(one) for one in found.tensors if one.status not in ("equal", "unchecked")]
    if rows:
        print_table(COLUMNS, rows[:SHOWN])
        if len(rows) > SHOWN:
            print_line(f"and {counted(len(rows) - SHOWN, 'tensor')} more, which --json lists")
    for one in found.files:
        print_line(f"{one.name}: {one.how}")
    if found.nearest is not None:
        print_line(f"recipe: {found.nearest}")
    print_line(
        f"{printable(arguments.file)}: {found.verdict}" + ("" if found.seed is None else f" (seed {found.seed})")
    )
    return int(found.code)
