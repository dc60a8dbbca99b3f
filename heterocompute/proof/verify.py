"""Check of the origin of a checkpoint: `verify` derives each tensor again from the base and compares the bytes."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from ..base.container import nbytes_of
from ..base.errors import WrongType, WrongValue, printable, shown
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..base.locations import exists
from ..base.progress import Progress, reported
from ..base.texts import file_name, quoted
from ..base.values import Rng, as_int, seed_from
from ..base.version import __version__
from ..base.workers import Workers, in_workers
from ..files.checkpoint import prune_checkpoint, quantize_checkpoint
from ..files.convert import convert_checkpoint
from ..files.layouts.table import LAYOUTS, layout_said
from ..files.opening import reader_of
from ..files.recipes import read_recipe
from ..files.shards import Shard
from ..files.work import part_of, planned_by
from ..formats import Format
from ..ptq.streaming import quantize_streamed
from .comparing import compare, compare_folder, tasks_of
from .guess import guessed
from .result import (
    DIFFERENT,
    EQUAL,
    SKIPPED,
    UNCHECKED,
    VERIFIED,
    FileCheck,
    TensorCheck,
    Verification,
)
from .sampling import chance_of_missing, chosen
from .statement import (
    Statement,
    base_files,
    begin_statement,
    digests_of,
    output_files,
    read_statement,
    statement_place,
    tensor_digests,
)
from .whole import compare_whole

Path = str | os.PathLike[str]
Recipe = Path | Format | Mapping[str, Any]


@renamed(calibration="inputs")
@counts_subnormals
def verify(
    file: Path,
    base: Path,
    recipe: Recipe | None = None,
    guess: bool = False,
    inputs: Any = None,
    sample: int | None = None,
    seed: int | None = None,
    *,
    statement: Path | None = None,
    layout: str | None = None,
    part: str | None = None,
    workers: Workers = None,
    digest: bool = True,
    progress: Progress | bool | None = None,
    rng: Rng = None,
) -> Verification:
    """Check that a checkpoint comes from a base by a recipe, and that nothing else was changed.

    Each tensor is derived again from the base and compared with the stored bytes. One tensor is in memory at a time.

    Parameters
    ----------
    file, base : str or os.PathLike
        The checkpoint, and the checkpoint that it was made from.
    recipe : str, path, Format or mapping of str to (Format or str), optional
        Instead of a statement: a format, a TOML recipe, or pattern -> format. A pattern such as ``"2:4"`` and a recipe
        of patterns prune.
    guess : bool
        Without a statement: try the formats and rules of scales that the layout of the file allows. Only tensors are
        compared.
    inputs : path, str or callable, optional
        Calibration inputs of ``ptq``, as the command received them.
    sample : int, optional
        Compare this many tensors only, drawn at random. Headers and other files are always compared.
    seed : int, optional
        Seed of the draw. Default: randomness of the system; the answer has it.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).
    statement : path, optional
        Default: the statement next to the file.
    layout : str, optional
        With a recipe: the layout of the file. Default: read from the file.
    part : str, optional
        ``"2/3"``: compare the second of three parts of the tensors.
    workers : int, str or callable, optional
        Who compares the files of a folder, as in `quantize_checkpoint`.
    digest : bool
        Whether to compare the digests of the statement with the files.
    progress : callable or bool, optional
        As in `quantize_checkpoint`; called for each tensor of the plan.

    Returns
    -------
    Verification
        Its `verdict` is ``"verified"``, ``"different: ..."`` or ``"not checked: ..."``. `tensors` has one row per
        tensor.

    Raises
    ------
    ValueError
        There is no statement and no recipe, or a file or the statement is invalid.
    OSError
        A file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> folder = tempfile.mkdtemp()
    >>> base, small = os.path.join(folder, "model.safetensors"), os.path.join(folder, "small.safetensors")
    >>> hc.save(base, {"fc.weight": np.arange(128, dtype=np.float32).reshape(2, 64)})
    >>> _ = hc.quantize_checkpoint(base, small, "int4-g32")
    >>> hc.verify(small, base, "int4-g32").verdict
    'verified'
    >>> found = hc.verify(small, base, "int4-g32-asym")
    >>> found.ok, found.tensors[0].status
    (False, 'missing')
    """
    place, source = file_name(file), file_name(base)
    for path in (place, source):
        if not exists(path):
            raise FileNotFoundError(2, "No such file or directory", path)
    sample = None if sample is None else as_int(sample, "verify: sample", 1)
    seed = seed_from("verify", seed, rng, None)
    seed = secrets.randbits(63) if seed is None and sample is not None else seed
    if seed is not None:
        seed = as_int(seed, "verify: seed", 0)
    asked = None if part is None else part_of(part, "verify")
    if guess:
        if recipe is not None or statement is not None:
            raise WrongValue("verify: guess and a recipe are given, expected one of them")
        return guessed(place, source, layout, sample, seed, asked)
    found = _statement(place, recipe, statement, layout)
    check = _Check(place, source, found, inputs, sample, seed, asked, workers, reported(progress, "verify"))
    stated = found.subject != {}
    digests = _Digests(place, source, found) if digest and stated else None
    if (reason := check.calibration_missing()) is not None:
        return Verification(False, f"{UNCHECKED}: {reason}", [], statement=found if stated else None)
    try:
        check.run()
    finally:
        wrong = [] if digests is None else digests.result()
    return _answer(check, found if stated else None, wrong, seed)


def _statement(place: str, recipe: Recipe | None, given: Path | None, layout: str | None) -> Statement:
    """Return the statement to check, made of the recipe if there is one."""
    if recipe is None:
        path = statement_place(place) if given is None else file_name(given)
        if not exists(path):
            raise WrongValue(
                f"{printable(place)}: there is no statement {quoted(os.path.basename(path))}: expected recipe= "
                "(--recipe R, such as int4-g32) or guess=True (--guess)"
            )
        return read_statement(path)
    if layout is None:
        with contextlib.suppress(WrongValue), reader_of(place) as reader:  # the header of a damaged file is compared
            layout = next((name for name, one in LAYOUTS.items() if one.has_blocks and one.recognizes(reader)), None)
            layout = layout or layout_said(reader)
    options: dict[str, Any] = {"layout": layout, "fallback": True, "shard_size": "5GB", "requantize": True}
    pairs: dict[str, Any] | None = None
    if isinstance(recipe, Mapping):
        pairs = dict(recipe)
    elif isinstance(recipe, Format):
        options["format"] = recipe
    elif isinstance(recipe, (str, os.PathLike)):
        if exists(file_name(recipe)) or os.fspath(recipe).endswith(".toml"):
            pairs = dict(read_recipe(recipe))
        else:
            options["format"] = os.fspath(recipe)
    else:
        raise WrongType(f"verify: recipe is {shown(recipe)}, expected a format, a path or a mapping")
    texts = [str(one) for one in (*(pairs or {}).values(), options.get("format")) if one is not None]
    if any(text.endswith("%") or (text.replace(":", "").isdigit() and ":" in text) for text in texts):
        options["pattern"] = options.get("format")
        return begin_statement({}, "prune", options, pairs)
    return begin_statement({}, "quantize", options, pairs)


class _Check:
    """Runs the command of a statement with a plan in place of a writer, and compares the planned files."""

    def __init__(
        self,
        place: str,
        source: str,
        statement: Statement,
        calibration: Any,
        sample: int | None,
        seed: int | None,
        part: tuple[int, int] | None,
        workers: Workers,
        progress: Progress | None,
    ) -> None:
        self.place, self.source, self.statement, self.calibration = place, source, statement, calibration
        self._sample, self._seed, self._part, self._workers, self._progress = sample, seed, part, workers, progress
        self.tensors: list[TensorCheck] = []
        self.files: list[FileCheck] = []
        self.is_planned = False

    def calibration_missing(self) -> str | None:
        """Return why calibrated rounding cannot be checked, None if it can."""
        stated = self.statement.calibration
        if stated is None:
            return None
        if self.calibration is None:
            return "calibration: the rounding depends on calibration inputs, which are not given"
        if isinstance(self.calibration, (str, os.PathLike)) and stated:
            if not exists(file_name(self.calibration)):
                return f"calibration: {quoted(os.fspath(self.calibration))} does not exist"
            found = tensor_digests(self.calibration)
            if found != stated:
                name = next(name for name in {**stated, **found} if stated.get(name) != found.get(name))
                return f"calibration: array {quoted(name)} has another digest than in the statement"
        return None

    def run(self) -> None:
        """Derive and compare."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, self._name())
            with planned_by(self._compare):
                self._command(out)
            if not self.is_planned:  # a layout of one file that is built as a whole
                self.tensors, self.files = compare_whole(out, self.place)

    def _name(self) -> str:
        """Return a name for an output of the same kind as the file; nothing is written there."""
        if os.path.isdir(self.place):
            return "out" + os.sep
        name = os.path.basename(self.place)
        layout = self.statement.options.get("layout")
        is_file = layout in LAYOUTS and LAYOUTS[layout].is_file  # such layouts have the names of their files
        suffix = f".{layout}" if is_file else ".safetensors"
        return name if name.endswith(suffix) else name + suffix

    def _command(self, out: str) -> None:
        statement = self.statement
        options = dict(statement.options)
        recipe = None if statement.recipe is None else dict(statement.recipe)
        progress = self._progress
        if statement.command == "quantize":
            quantize_checkpoint(self.source, out, recipe=recipe, check="none", progress=progress, **options)
        elif statement.command == "prune":
            prune_checkpoint(self.source, out, recipe=recipe, check="none", progress=progress, **options)
        elif statement.command == "convert":
            convert_checkpoint(self.source, out, check="none", progress=progress, **options)
        else:
            formats = {pattern: None if fmt == "skip" else fmt for pattern, fmt in statement.recipe or ()}
            known_as = self.calibration if isinstance(self.calibration, str) else ""
            quantize_streamed(
                self.source, out, formats, self.calibration, check="none", resume=False, progress=progress,
                known_as=known_as, **options,
            )  # fmt: skip

    def _compare(self, shards: list[Shard], companions: Mapping[str, str | bytes] | None) -> None:
        self.is_planned = True
        if os.path.isdir(self.place) != (companions is not None):
            kinds = ("one file", "a folder")
            there, planned = (kinds[one] for one in (os.path.isdir(self.place), companions is not None))
            self.files.append(
                FileCheck(os.path.basename(self.place), None, f"is {there}, the command writes {planned}")
            )
            return
        every = [name for shard in shards for name, _, _ in shard.tensors]
        names = chosen(every, self._sample, self._seed, self._part)
        tasks = tasks_of(shards, self.place, companions is not None, names)
        for _, (tensors, files) in sorted(
            in_workers(self._workers, compare, tasks, "verify"), key=lambda item: item[0]
        ):
            self.tensors += tensors
            self.files += files
        if companions is not None:
            size = sum(_bytes_of(shard) for shard in shards)
            self.files += compare_folder(self.place, shards, companions, size)


def _bytes_of(shard: Shard) -> int:
    from_layout = shard.layout()[0]
    return sum(nbytes_of(dtype, shape) for dtype, shape in from_layout.values())


class _Digests:
    """Compares the digests of a statement with the files, on another thread."""

    def __init__(self, place: str, source: str, statement: Statement) -> None:
        self._found: list[FileCheck] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(place, source, statement), daemon=True)
        self._thread.start()

    def _run(self, place: str, source: str, statement: Statement) -> None:
        try:
            for key, files in (("subject", output_files(place)), ("base", base_files(source))):
                stated = statement.subject if key == "subject" else statement.base
                there = digests_of(files)
                if key == "subject" and len(stated) == len(there) == 1:  # a renamed file
                    there = dict(zip(stated, there.values(), strict=True))
                if key == "base":  # names of base files may change, their content not
                    there = _renamed(stated, there)
                for name in {**stated, **there}:
                    if stated.get(name) != there.get(name):
                        words = "the statement names another digest" if name in stated and name in there else (
                            "is missing" if name in stated else "is not in the statement")  # fmt: skip
                        self._found.append(FileCheck(name, None, f"{key}: {words}"))
            wrong = self._tensors(place, statement)
            self._found += wrong
        except BaseException as error:
            self._error = error

    def _tensors(self, place: str, statement: Statement) -> list[FileCheck]:
        try:
            found = tensor_digests(place)
        except ValueError:  # the comparison of the header reports it
            return []
        names = [name for name in {**statement.tensors, **found} if statement.tensors.get(name) != found.get(name)]
        return [FileCheck(name, None, "tensor: the statement names another digest") for name in names[:1]]

    def result(self) -> list[FileCheck]:
        """Wait, and return the differences."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found


def _renamed(stated: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Return digests under the names of a statement where the content is the same."""
    names = {digest: name for name, digest in stated.items()}
    return {names.get(digest, name): digest for name, digest in there.items()}


def _answer(check: _Check, statement: Statement | None, digests: list[FileCheck], seed: int | None) -> Verification:
    tensors, files = check.tensors, [*check.files, *digests]
    wrong = [one for one in tensors if one.status not in (EQUAL, SKIPPED)]
    compared = sum(one.status == EQUAL for one in tensors)
    skipped = sum(one.status == SKIPPED for one in tensors)
    is_known = statement is None or statement.calibration is None or statement.calibration != {}
    if wrong or files:
        first = wrong[0] if wrong else None
        what = f"{first.name} {first.status}" if first else f"{files[0].name} {files[0].how}"
        if wrong and not is_known and not check.files:
            verdict = f"{UNCHECKED}: calibration: {what}, and the statement has no digest of the calibration"
            return Verification(False, verdict, tensors, files, statement, seed=seed)
        older = (
            "" if statement is None or statement.version == __version__ else f" (stated by version {statement.version})"
        )
        return Verification(False, f"{DIFFERENT}: {what}{older}", tensors, files, statement, seed=seed)
    verdict = VERIFIED
    if skipped:
        missed = chance_of_missing(compared + skipped, compared)
        verdict += (
            f": {compared} of {compared + skipped} tensors; one changed tensor is missed with probability {missed:.3g}"
        )
    return Verification(True, verdict, tensors, files, statement, seed=seed)
