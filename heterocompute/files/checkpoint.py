"""Whole checkpoints in, whole checkpoints out, one tensor in memory at a time: `quantize_checkpoint` and others."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ..arrays.layout import Entry
from ..base.errors import WrongValue
from ..base.float_env import call_back, counts_subnormals
from ..base.progress import Progress, reported
from ..base.tensors import Tensors
from ..base.texts import quoted
from ..base.workers import Workers
from ..formats import Format, has_pattern
from ..formats.base import or_words
from ..zoo.llm.experts import of_each_expert
from .changes import Change, cast, decoded, in_blocks, in_whole_blocks, packed, plain, rounded, turned
from .containers.container import Container
from .containers.folder import Located
from .foreign import foreign_reader
from .inspection import packed_row, plain_row
from .layouts.configuration import KEY as CONFIG_KEY
from .layouts.gguf.lattices import Lattice
from .layouts.gguf.searched import needs_search, parse_searched, quantize_searched
from .layouts.layout import Layout
from .layouts.refusals import refuse_layout, refuse_unread
from .layouts.table import LAYOUTS, check_layout, layout_said
from .opening import reader_of
from .plain import Plain, plain_dtype
from .recipes import Zeros, parse_pattern_text, parse_recipe, read_recipe
from .rewrite import check_paths, rewrite, rewrite_in
from .roles import is_turned, roles_of
from .safetensors import contents, entries
from .selection import Axis, FirstMatch, axes_of, counted_of, kept_plain, nothing_to_do, select
from .work import Work


@counts_subnormals
def quantize_checkpoint(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    format: str | Format | Mapping[str, str | Format | None] | None = None,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    recipe: str | os.PathLike[str] | Mapping[str, str | Format | None] | None = None,
    axis: Axis | Mapping[str, Axis] | None = None,
    progress: Progress | bool | None = None,
    fake: bool = False,
    workers: Workers = None,
    resume: bool = True,
    shard_size: int | str | None = "5GB",
    consume: bool = False,
    layout: str | None = None,
    needed: bool = False,
    part: str | None = None,
    requantize: bool = False,
    fallback: bool = True,
    importance: str | os.PathLike[str] | None = None,
    check: str = "sample",
) -> dict[str, Any]:
    """Quantize the tensors of a checkpoint, one file or a folder, and write a new checkpoint.

    Tensors that are pruned to N:M keep their pattern: ``"int8"`` becomes ``"int8+2:4"`` for a ``"2:4"`` tensor. Other
    pruned tensors keep their zeros in every format except learned codebooks.

    Peak memory per worker is the largest tensor, its components and less than 64 MiB. A file gets its final name only
    when it is complete. The output bytes do not depend on the number of workers or on interrupted and resumed runs.

    Parameters
    ----------
    in_path, out_path : str or os.PathLike
        Two different checkpoints, also URLs such as ``s3://bucket/model``. A name ending in ``.safetensors`` is one
        file; an existing file is replaced. Any other name becomes a new folder in these cases, otherwise one file:

        - it ends in a separator, or names an empty folder;
        - `in_path` is a folder (its other files, such as the tokenizer, are copied);
        - the data are larger than `shard_size`.
    format : Format, str or mapping, optional
        Format of every selected tensor that the recipe does not name. Required without a recipe. ``"f32"``, ``"f16"``
        and ``"bf16"`` are plain tensors, as in every layout. A mapping is a recipe.
    include, exclude : str or iterable of str, optional
        Globs that select among the float tensors with two or more dimensions, see `selection.select`.
    recipe : path, or mapping of str to (Format, str or None), optional
        Pattern -> format, ``"skip"`` or None; the first match applies. Tensors without a format from the recipe or
        `format`, and tensors without values, are copied.
    axis : int, tuple of int or mapping of str to these, optional
        The reduction axes. Default: the axes that Gemm and MatMul of an ONNX file sum over; otherwise (2, 3, 1) for 4-D
        tensors, (2, 1) for 1-D convolution filters (K, C, S) whose last axis is at most 31 long, and -1 for all
        remaining tensors.
    progress : callable or bool, optional
        ``progress(done_bytes, all_bytes, name)``, before each tensor and at the end. True: a bar of tqdm. False:
        nothing. Default: a bar in notebooks.
    fake : bool
        Write the rounded values as plain tensors of the original dtype (fp8: float32) instead of codes. Any framework
        loads them. 16-bit dtypes round them once more.
    workers : int, str or callable, optional
        Number of threads that write the files of a folder, ``"dask:tcp://host:8786"``, ``"ray:ADDRESS"``, or a function
        like `map`. Such a function gets a function and a list, both picklable, calls the function with each item and
        returns the results in any order. Examples: ``map`` of a concurrent.futures executor or a multiprocessing Pool.
        All workers must see the same paths.
    resume : bool
        Reuse the finished files of an earlier run with the same checkpoint and options. An incomplete folder is named
        ``out_path + ".partial"``.
    shard_size : int, str or None
        Largest data size of one file of a folder, in bytes or as ``"5GB"`` (10^9) or ``"4GiB"`` (2^30). A single larger
        tensor may exceed it. None: one file.
    consume : bool
        Delete each file of the folder `in_path` as soon as all its data are on the disk of `out_path`.
    layout : str, optional
        The layout of another program, such as ``"gptq"``, as in `save`. In a folder, ``config.json`` records it. ONNX
        and GGUF are one file, and the output is held in memory. Rows that are not whole blocks of GGUF get another
        type, as in `save_gguf`. The embedding, the output layer and the vision tower stay plain in layouts whose
        programs expect that, unless `include` matches them or the recipe has their names.
    needed : bool
        Raise ValueError and write nothing if no tensor is selected, as the command does. By default the copy is
        written, so that the same call serves every file of a checkpoint in parts.
    part : str, optional
        ``"2/3"``: write the files of the second of three parts into ``out_path + ".partial"``, on any machine, in any
        order. `finish_checkpoint` makes the output of them when all are there.
    requantize : bool
        Accept a GGUF file whose blocks are quantized already, and round their values a second time. With
        ``layout="gguf"`` all keys are kept, and so are the blocks of tensors without a format.
    fallback : bool
        Whether rows that are not whole blocks of GGUF get another type. False raises a ValueError that names the
        tensor.
    importance : str or os.PathLike, optional
        The importance matrix of `llama-imatrix`, with ``layout="gguf"``. The types ``"iq1_s"`` to ``"iq3_s"`` are
        searched with it, as in `save_gguf`, and most need it. Patterns also match names of llama.cpp then. The
        embedding and the output matrix become q5_k, unless `include` or the recipe matches them.
    check : {"sample", "all", "none"}
        What is read from `in_path` and changed a second time, and compared with the written files before they take
        their names: at least one tensor of each kind and a sixteenth of the bytes, everything, or nothing.

    Returns
    -------
    dict
        ``{"input", "output", "bytes_before", "bytes", "tensors": [{"name", "format", "shape", "dtype",
        "bytes_before", "bytes"}], "skipped"}``. `format` is None for copied tensors. Bytes count the data. `skipped`
        maps each unreadable entry of the input, which is left out, to a description. With a layout, `kept` maps tensors
        that stay plain because its programs expect that to the part of the model. With ``layout="gguf"`` there is
        also `instead`: name -> requested format, for tensors that got another type; `architecture`: that of llama.cpp,
        or None if the file holds tensors alone; and `notes`: what llama.cpp computes otherwise than transformers.

    Raises
    ------
    ValueError
        The file is invalid or already quantized, both paths are one file, a tensor holds NaN or infinity (the message
        has its name and the first index) or a value beyond the largest of a plain type, a name collides with a
        component's, or a pattern matches nothing. A written file has other values than it should have, and is deleted.
    OSError
        A file cannot be read or written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from heterocompute import load, save
    >>> folder = tempfile.mkdtemp()
    >>> before, after = os.path.join(folder, "model.safetensors"), os.path.join(folder, "int8.safetensors")
    >>> save(before, {"fc.weight": np.ones((2, 64), np.float32), "fc.bias": np.ones(2, np.float32)})
    >>> quantize_checkpoint(before, after, "int8")["bytes"]
    144
    >>> str(load(after)["fc.weight"].format)
    'int8'
    """
    if format is None and recipe is None:
        raise WrongValue("quantize_checkpoint: format or recipe must be given")
    check_paths(in_path, out_path, layout)
    pairs = dict(_texts(recipe))
    if isinstance(format, Mapping):
        pairs |= {pattern: fmt for pattern, fmt in format.items() if pattern not in pairs}
        format = None
    default = None if format is None else parse_searched(format)
    chosen = {name: fmt and parse_searched(fmt)
              for name, fmt in parse_recipe(pairs, parse_searched, (Plain, Lattice)).items()}  # fmt: skip
    if needs_search(layout, importance, (default, *chosen.values())):
        if fake or consume or part is not None or axis is not None:
            raise WrongValue("quantize_checkpoint: fake, consume, part or axis is given, which searched types of GGUF "
                             "do not have")  # fmt: skip
        return quantize_searched(
            in_path, out_path, default, chosen, include, exclude, importance, requantize, fallback, check
        )
    options = (default, chosen, include, exclude, axis, needed)
    target = None if layout is None else check_layout(layout)

    kept: dict[str, str] = {}

    def choose(reader: Tensors, held: Mapping[str, Entry | None]) -> dict[str, Change]:
        if not (requantize and any(reader.format_of(name) for name in held)):
            _refuse_packed(reader, held, patterns=True)
        change_of = packed if target is None or not target.has_blocks else in_blocks if fallback else in_whole_blocks
        return _chosen(reader, held, options, rounded if fake else change_of, layout=target, kept=kept)

    work = Work(workers, resume, shard_size, consume, part, check, progress=progress)
    if layout is not None and fake:
        raise WrongValue(f"quantize_checkpoint: fake writes plain tensors, {layout} has codes: expected one of them")
    summary = rewrite_in(layout, in_path, out_path, choose, work)
    return summary if layout is None else {**summary, "kept": kept}


@counts_subnormals
def prune_checkpoint(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    pattern: str | Format | Zeros | None = None,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    recipe: str | os.PathLike[str] | Mapping[str, str | Format | Zeros | None] | None = None,
    axis: Axis | Mapping[str, Axis] | None = None,
    progress: Progress | bool | None = None,
    needed: bool = False,
    workers: Workers = None,
    resume: bool = True,
    shard_size: int | str | None = "5GB",
    part: str | None = None,
    check: str = "sample",
) -> dict[str, Any]:
    """Prune the tensors of a safetensors file into another one.

    N:M is stored as `heterocompute.prune` returns it. After any other pattern a tensor has the dtype and shape that it
    had, pruned values as zeros, and every other byte as it was. Peak memory is a few times the largest tensor.

    Parameters
    ----------
    in_path, out_path : str or os.PathLike
        Two different files; an existing `out_path` is replaced when the new one is complete.
    pattern : str, optional
        ``"2:4"``, ``"50%"`` of each row, ``"global:50%"`` of each tensor, ``"block:16x1:50%"``. Needed where there is
        no recipe.
    include, exclude, axis, progress
        As in `quantize_checkpoint`.
    recipe : path, or mapping of str to str, optional
        Name pattern -> pattern, or a format with one such as ``"int8+2:4"``, or ``"skip"``.
    needed, workers, resume, shard_size, part, check
        As in `quantize_checkpoint`.

    Returns
    -------
    dict
        As of `quantize_checkpoint`, with the pattern as the `format`.

    Raises
    ------
    ValueError, OSError
        As `quantize_checkpoint`; infinity in a tensor counts as large.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from heterocompute import load, save
    >>> folder = tempfile.mkdtemp()
    >>> before, after = os.path.join(folder, "model.safetensors"), os.path.join(folder, "half.safetensors")
    >>> save(before, {"w": np.array([[1, -2, 3, 4], [0, 5, 1, 1]], np.float16)})
    >>> prune_checkpoint(before, after, "global:50%")["bytes"]
    16
    >>> load(after)["w"]
    array([[ 0., -2.,  3.,  4.],
           [ 0.,  5.,  0.,  0.]], dtype=float16)
    """
    if pattern is None and recipe is None:
        raise WrongValue("prune_checkpoint: pattern or recipe must be given")
    check_paths(in_path, out_path)
    default = parse_pattern_text(pattern) if isinstance(pattern, str) else pattern
    options = (default, parse_recipe(_texts(recipe), parse_pattern_text), include, exclude, axis, needed)

    def choose(reader: Tensors, held: Mapping[str, Entry | None]) -> dict[str, Change]:
        _refuse_packed(reader, held, patterns=False)
        return _chosen(reader, held, options, packed, "prune")

    work = Work(workers, resume, shard_size, part=part, check=check, caller="prune_checkpoint", progress=progress)
    return rewrite(in_path, out_path, choose, work)


@counts_subnormals
def dequantize_checkpoint(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    dtype: str | None = None,
    progress: Progress | bool | None = None,
    layout: str | None = None,
    needed: bool = False,
    workers: Workers = None,
    resume: bool = True,
    shard_size: int | str | None = "5GB",
    part: str | None = None,
    check: str = "sample",
) -> dict[str, Any]:
    """Write every packed array of a file as a plain tensor, which any framework loads.

    Parameters
    ----------
    in_path, out_path : str or os.PathLike
        Two different files; an existing `out_path` is replaced when the new one is complete.
    dtype : {"float32", "float16", "bfloat16", "float64"}, optional
        Of what was packed; ``"f32"``, ``"f16"``, ``"bf16"``, ``"f64"`` are the same. By default each has the dtype
        that it had before it was packed, where that is one of these, else float32. Values are rounded to float32
        once, then to this.
    progress : callable or bool, optional
        As in `quantize_checkpoint`.
    layout : str, optional
        The program that has packed what `in_path` holds, as of `load`; by default the one that its configuration
        names, if any. GPTQ's columns may lie in the order of their activations (``desc_act``) here, and what no format
        here holds is read too, such as FP8 with a scale for each block. Weights are decoded twice, first for their
        shapes. A ``config.json`` goes along without its ``quantization_config``.
    needed : bool
        Raise ValueError, and write nothing, where a safetensors file holds no packed array.
    workers, resume, shard_size, part, check
        As in `quantize_checkpoint`.

    Returns
    -------
    dict
        As of `quantize_checkpoint`; `format` is what a tensor was packed in.

    Raises
    ------
    ValueError, OSError
        As `quantize_checkpoint`; a dtype that is none of these; a value beyond the dtype's largest; a layout that is
        none of these, or not that of the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> folder = tempfile.mkdtemp()
    >>> before, after = os.path.join(folder, "int8.safetensors"), os.path.join(folder, "plain.safetensors")
    >>> hc.save(before, {"w": hc.quantize(np.float32([[1, -127, 3]]), "int8")})
    >>> dequantize_checkpoint(before, after, "bf16")["tensors"][0]["format"]
    'int8'
    >>> values = hc.load(after)["w"]
    >>> values.dtype.name, values.tolist()
    ('bfloat16', [[1.0, -127.0, 3.0]])
    """
    check_paths(in_path, out_path)
    wanted = None if dtype is None else plain_dtype(dtype)
    caller = "dequantize_checkpoint"
    work = Work(workers, resume, shard_size, part=part, check=check, caller=caller, progress=progress)

    def choose(reader: Tensors, held: Mapping[str, Entry | None]) -> dict[str, Change]:
        if layout is None:
            refuse_unread(reader)
        changes = {name: decoded(entry, wanted) for name, entry in held.items() if entry is not None}
        formats = {name: reader.format_of(name) for name in reader.names}
        changes |= {
            n: plain(declared, reader.info(n).shape, wanted) for n, declared in formats.items() if declared is not None
        }
        if needed and not changes and not (held and _is_converted(reader)):
            raise WrongValue(f"nothing to do: {counted_of(held, reader.skipped)}, none is packed")
        return changes

    if layout is None:
        with reader_of(in_path) as reader:
            layout = layout_said(reader)
    if layout is None:
        return rewrite(in_path, out_path, choose, work)
    source = partial(foreign_reader, layout=layout)
    return rewrite(in_path, out_path, choose, work, lambda *_: {CONFIG_KEY: None}, source=source)


def _is_converted(reader: Tensors) -> bool:
    """Tell whether a checkpoint is of another kind than safetensors, so that copying it changes it."""
    if isinstance(reader, Located):
        return not all(path.endswith(".safetensors") for path in reader.files.values())
    return isinstance(reader, Container)


def _texts(recipe: Any) -> Mapping[str, Any]:
    return recipe or {} if recipe is None or isinstance(recipe, Mapping) else read_recipe(recipe)


def _chosen(
    reader: Tensors,
    held: Mapping[str, Entry | None],
    options: tuple[Any, ...],
    change_of: Callable[[Any, tuple[int, ...], tuple[int, ...], str, Entry | None], Change],
    caller: str = "quantize",
    layout: Layout | None = None,
    kept: dict[str, str] | None = None,
) -> dict[str, Change]:
    """Return the changes of the tensors that patterns and recipe choose; `kept` gets those that `kept_plain` left."""
    default, recipe, include, exclude, axis, needed = options
    infos = {name: entry or reader.info(name) for name, entry in held.items()}
    recipe = of_each_expert(recipe, infos)
    shapes = {name: info.shape for name, info in infos.items()}
    roles = roles_of(reader, shapes)
    dtypes = {name: (info.dtype, info.shape) for name, info in infos.items()}
    names = select(dtypes, include, exclude, named=recipe, plain=roles.plain)
    if not names and (needed or (reader.skipped and not held)):
        raise WrongValue(nothing_to_do(infos, reader.skipped))
    first = FirstMatch(recipe)
    names = [name for name in names if first(name, default) is not None]
    if layout is not None and kept is not None:
        packs = [name for name in names if not isinstance(first(name, default), Plain)]
        kept |= kept_plain(layout.keeps, packs, include, recipe)
        names = [name for name in names if name not in kept]
    guessed = [name for name in names if held[name] is None or axis is not None]
    axes = axes_of(guessed, shapes, roles, axis, caller)
    _warn_of_conv1d(layout, [name for name in names if len(shapes[name]) == 2 and roles.axes.get(name) == (0,)])
    changes = {}
    for name in names:
        info, fmt, entry = infos[name], first(name, default), held[name]
        if 0 in info.shape and not isinstance(fmt, Zeros):
            continue  # scales of empty rows would be all that is stored
        along = axes[name] if entry is None or axis is not None else entry.axis
        try:
            if isinstance(fmt, Plain):
                changes[name] = cast(fmt, along, info.shape, info.dtype, entry)
            elif (
                layout is not None
                and layout.turns
                and is_turned(roles.axes.get(name), info.shape)
                and along == roles.axes[name]
            ):
                changes[name] = turned(change_of, fmt, info.shape, info.dtype, entry)
            else:
                changes[name] = change_of(fmt, along, info.shape, info.dtype, entry)
        except ValueError as error:
            raise WrongValue(f"tensor {quoted(name)}: {error}") from None
    return changes


def _warn_of_conv1d(layout: Layout | None, names: list[str]) -> None:
    """Warn if programs will not load quantized weights of `Conv1D`: few quantizers replace these layers."""
    if names and layout is not None and layout.has_tensors and not layout.reads_conv1d:
        others = or_words([one.name for one in LAYOUTS.values() if one.reads_conv1d])
        warnings.warn(
            f"quantize: {quoted(names[0])} is a weight of Conv1D, which programs do not load from {layout.name}: "
            f"expected {others}",
            stacklevel=4,
        )


def _refuse_packed(reader: Tensors, held: Mapping[str, Entry | None], patterns: bool) -> None:
    """Raise ValueError if there is a packed array; arrays of a pattern alone may be allowed."""
    refuse_layout(reader)
    for name, entry in held.items():
        if entry is not None:
            plain = has_pattern(entry.format) and entry.format.is_plain
            if not (plain and patterns):
                done = "pruned" if plain else "quantized"
                raise WrongValue(f"tensor {quoted(name)} is already {done} ({entry.format})")


@counts_subnormals
def inspect(
    path: str | os.PathLike[str], progress: Progress | bool | None = None, layout: str | None = None
) -> list[dict[str, Any]]:
    """Describe the tensors of a checkpoint, reading one at a time.

    Parameters
    ----------
    progress : callable or bool, optional
        As in `quantize_checkpoint`.
    layout : str, optional
        As in `dequantize_checkpoint`: weights as that program knows them, not the tensors that stand for them.

    Returns
    -------
    list of dict
        One a tensor, in the file's order: `name`; `dtype`, NumPy's name of it, of a quantized array the dtype
        that was quantized; `shape`; `format`, a text (blocks of a GGUF file have float32 and their type), or None
        for a plain tensor; of an own format also its `definition`; `bytes` stored; `min` and
        `max` of the values that are no NaN, None where there are none or they have no order; `nan`, how many.

    Raises
    ------
    ValueError
        If the file is illegal; one line that names the file and the tensor.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from heterocompute.files.safetensors import save
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(path, {"w": np.array([[1, -2, np.nan]], np.float16)})
    >>> inspect(path)
    [{'name': 'w', 'dtype': 'float16', 'shape': [1, 3], 'format': None, 'bytes': 6, 'min': -2.0, 'max': 1.0, 'nan': 1}]
    """
    progress = reported(progress, "inspect")
    with reader_of(path) if layout is None else foreign_reader(path, layout) as reader:
        found, _ = entries(reader)
        total = sum(reader.info(name).nbytes for name in reader.names)
        rows: list[dict[str, Any]] = []
        done = 0
        for name, entry in contents(reader, found):
            if progress:
                call_back(progress, done, total, name)
            rows.append(plain_row(reader, name) if entry is None else packed_row(reader, name, entry))
            done += reader.info(name).nbytes if entry is None else rows[-1]["bytes"]
        if progress:
            call_back(progress, total, total, "")
    return rows
