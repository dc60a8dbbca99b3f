"""`heterocompute study`: compares formats, or with --density fractions of nonzero weights."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.errors import printable, shown
from ..base.regular import open_regular
from ..base.version import __version__
from .hardware import chip_of
from .language import naming_text, network_and_text
from .options import Options, options_of
from .parts import (
    ProgressBar,
    UsageError,
    add_patterns,
    add_threads,
    format_list,
    interruptible,
    print_json,
    recipe_of,
    standard_output,
)
from .rewriting import add_workers
from .rounding.ptq import function_of, names_function

NETWORKS = ("digits", "adder")  # functions of heterocompute.zoo
NOT_WITH_DENSITY = ("workers", "formats", "activations", "recipe", "device", "device_file", "emulate", "seeds", "data",
                    "labels", "methods", "inputs", "evaluate", "machine")  # fmt: skip
NOT_WITH_TEXT = ("density", "retrain", "data", "labels", "inputs", "evaluate", "machine")
LISTS: dict[str, Any] = {"type": format_list, "action": "extend"}
CACHES: dict[str, Any] = {"type": format_list, "action": "extend"}
EXAMPLES = 256  # training examples of a built-in network that are used for calibration


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    study = command(
        "study",
        run,
        "Compare number formats on the tensors of a model: bits, error, time, and accuracy if it can be measured.",
        "study",
        "study model.safetensors --formats int8,int4-g32-f16,vsq4-g16-s4 --html report.html",
        "study --network adder --formats int4,int4-g32-f16,vsq4-g16-s4,int3",
        "study --formats int2,cb1,int8+1:4 --retrain",
        "study --formats int4,int3-g16,vsq4-g16-s4 --methods rtn,search,gptq",
        "study --density --html density.html",
        "study model.gguf --text corpus.txt --keep study.jsonl --save study.json",
        "study model.onnx --data x.npy --labels y.npy --formats int8,vsq4-g16-s4 --activations int8",
        "study model.safetensors --evaluate my_model:accuracy --formats int8,vsq4-g16-s4",
        "study model.gguf --text corpus.txt --formats q8_0,int4-g32,vsq4-g16-s4 --activations int8 --kv-cache int8-g32",
    )
    add = Options(study, "studies.study:study")
    add("model", "MODEL", "safetensors or ONNX file; with --text a GGUF file or Hugging Face folder; default: the "
        "shipped network", nargs="?")  # fmt: skip
    add(
        "--text",
        "FILE",
        "UTF-8 text for a language model (perplexity); for an encoder each line is one of the texts (cosine)",
    )
    add("--data", "NPY", "inputs of an ONNX MODEL, to measure its accuracy by format")
    add("--labels", "NPY", "class of each input of --data")
    add(
        "--network",
        None,
        "shipped network: digits (default), or adder, which loses accuracy at 4 bits",
        choices=NETWORKS,
    )
    add("--formats --format", "A,B", "formats to compare; fp32 is always added", **LISTS)
    add("--activations", "A,B", "formats of the activations; 'none' is always added", **LISTS)
    add(
        "--kv-cache",
        "A,B",
        "with --text: formats of keys and values; 'none' is always added",
        type=format_list,
        action="extend",
    )
    add("--methods", "A,B", "rounding methods: rtn (to nearest), search (of scales), gptq, qronos", type=_method_list)
    add("--inputs", "C", "inputs for gptq and qronos: x.npz or module:function, see the command ptq")
    add("--retrain", None, "also evaluate every format after a short training")
    add("--seeds", "N", "train N times and report mean, lowest and highest", type=_count, default=None)
    add("--density", None, "study pruning instead: accuracy against the density of the weights")
    add("--evaluate", "M:F", "module:function, called with the weights; returns one number or several")
    add_patterns(study)
    add_workers(add, "who measures the tensors (without times)")
    add_threads(study)
    add("--device", "D", "add modelled time and energy on this chip; 'mac': energy and area in silicon")
    add.common("--device-file")
    add("--machine", "M", "add modelled time and energy of an inference on a machine: a TOML file or a published one")
    add("--emulate", "A,B", "accumulators or instructions to emulate", parse=_emulation_list)
    add("--timing", None, "also measure times of fewer than 100,000 values", alone="timing", default=None,
        action="store_true")  # fmt: skip
    add("--no-timing", None, "measure no times", alone="timing", default=None)
    add("--keep", "PATH", "file of results: they are added to it, and those in it are not computed again, so an "
        "interrupted command continues")  # fmt: skip
    add("--save", "PATH", "also write the result as JSON, for hc.Study.load",
        parse="report.results.saved:saved_path")  # fmt: skip
    add.common("--csv")
    add("--html", "PATH", "also write one page with tables and plots, which hc.Study.load reads as well")
    add.common("--plot")


def run(arguments: argparse.Namespace) -> int:
    """Study, and show or write what was found.

    Returns
    -------
    int
        0.
    """
    model = arguments.model
    _check_usage(arguments)
    name = model or arguments.network or NETWORKS[0]
    with ProgressBar("study", name) as progress:
        work = _densities(arguments, progress) if arguments.density else _formats(arguments, progress)
        try:
            result = interruptible(work)
        except ValueError as error:
            about = [f"{printable(path)}: " for path in (model, arguments.text) if path]
            prefix = "" if str(error).startswith(tuple(about)) else "".join(about[:1])
            raise ValueError(f"{prefix}{error}") from None
    if arguments.save:
        result.save(arguments.save)
    if arguments.csv:
        result.to_csv(arguments.csv)
    if arguments.html:
        what = "Densities" if arguments.density else "Number formats"
        result.to_html(arguments.html, title=f"{what} of {printable(os.path.basename(name))}")
    if arguments.plot:
        result.plot(arguments.plot)
    if arguments.json:
        return print_json({**result.to_dict(), "run": _run_of(arguments)})
    with standard_output():
        places = {} if arguments.density else {"more_layers": ("--html", "--json")}  # a CSV file has only formats
        result.show(more=("--csv", "--json"), **places)
    return 0


def _run_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the data to reproduce a run: version, machine and given arguments."""
    from ..bench.machine import machine  # 8 ms

    given = {key: value for key, value in vars(arguments).items() if value not in (None, False, [])}
    plain = (bool, int, float, str, list)
    told = {key: _text(value) for key, value in given.items() if key != "json" and isinstance(value, plain)}
    return {"version": __version__, "machine": machine(), "arguments": told}


def _text(value: object) -> Any:
    if isinstance(value, (list, tuple)):
        return [_text(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _check_usage(arguments: argparse.Namespace) -> None:
    if arguments.network is not None and arguments.model is not None:
        raise UsageError("--network is a network shipped here, MODEL a file: give one of them")
    judged = {"--density": arguments.density, "--retrain": arguments.retrain}
    for option, given in judged.items():
        if given and arguments.model is not None:
            raise UsageError(
                f"{option} needs something that judges the weights, which {printable(arguments.model)} has not: leave "
                "MODEL out for the network shipped here, or give evaluate in Python"
            )
    for option in NOT_WITH_DENSITY if arguments.density else ():
        if getattr(arguments, option) is not None:
            raise UsageError(f"--density and --{option.replace('_', '-')} do not go together")
    if arguments.kv_cache is not None and arguments.text is None:
        raise UsageError("--kv-cache needs --text, which evaluates a language model")
    if arguments.text is not None:
        if arguments.model is None:
            raise UsageError("--text needs MODEL, a GGUF file or the folder of a language model")
        for option in NOT_WITH_TEXT:
            if getattr(arguments, option):
                raise UsageError(f"--text and --{option} do not go together")
        return
    _check_weights_usage(arguments)


def _check_weights_usage(arguments: argparse.Namespace) -> None:
    """Check the options of a study of weights without a text."""
    if _needs_inputs(arguments) and arguments.inputs is None and arguments.model is not None:
        which = next(one for one in arguments.methods if one in ("gptq", "qronos"))
        raise UsageError(f"--methods {which} needs --inputs, the inputs of the layers: x.npz or module:function")
    if (arguments.data is None) != (arguments.labels is None):
        raise UsageError("--data and --labels go together: inputs, and the class of each")
    if arguments.evaluate is not None and arguments.data is not None:
        raise UsageError("--evaluate and --data do not go together: each evaluates the weights")
    if arguments.data is not None and not _is_onnx(arguments.model):
        raise UsageError("--data and --labels need an ONNX file as MODEL, whose outputs are compared with the labels")
    if arguments.seeds is not None and not arguments.retrain:
        raise UsageError("--seeds needs --retrain")
    if arguments.device_file is not None and arguments.device is None:
        raise UsageError("--device-file needs --device, the name of one device in it")


def _formats(arguments: argparse.Namespace, progress: ProgressBar) -> Callable[[], Any]:
    recipe = recipe_of(arguments.recipe)

    def work() -> Any:
        from ..studies.study import study  # 40 ms

        given = options_of(study, arguments)
        options = {name: value for name, value in given.items() if value not in (None, False, []) or name == "timing"}
        options.pop("network", None)  # the shipped network, not the layers for a machine
        options.pop("recipe", None)
        if recipe is not None:
            options["formats"] = [*(arguments.formats or []), recipe]
        if arguments.evaluate is not None:
            options["evaluate"] = function_of(arguments.evaluate, "--evaluate")
        if arguments.device_file is not None:
            options["device"] = chip_of(arguments.device, arguments.device_file, str)
        if arguments.text is not None:
            weights, options["text"] = network_and_text(arguments.model, arguments.text)
        elif arguments.data is not None:
            weights, options["axis"] = _onnx(arguments)
        else:
            weights = _weights(arguments)
        needs_inputs = _needs_inputs(arguments) and arguments.text is None
        if arguments.inputs is not None or needs_inputs:
            options["hessians"] = calibrated(arguments, weights, options.get("axis"))
        with contextlib.nullcontext() if arguments.text is None else naming_text(arguments.text):
            return study(weights, progress=progress.update, **options)

    return work


def calibrated(arguments: argparse.Namespace, weights: Any, axis: Any = None) -> Any:
    """Return what the layers are given by --inputs, or by examples that a network that ships was trained on.

    Parameters
    ----------
    weights : path, mapping or network
    axis : mapping of str to int or tuple, optional
        Along which some of them are summed.

    Returns
    -------
    Calibration or None
    """
    from ..files.roles import roles_from  # 18 ms
    from ..ptq.network import calibrate  # 18 ms

    patterns = {"include": arguments.include or None, "exclude": arguments.exclude or None}
    if arguments.inputs is not None:
        held = held_in(weights) if isinstance(weights, str) else getattr(weights, "weights", weights)
        if names_function(arguments.inputs):
            return calibrate(held, function_of(arguments.inputs, "--inputs"), **patterns)
        from ..ptq.streaming import Inputs  # 20 ms

        axes = {name: one if isinstance(one, tuple) else (one,) for name, one in (axis or {}).items()}
        return dict(Inputs(arguments.inputs, held, axes or roles_from(held).axes))
    if arguments.model is not None:
        return None
    examples = weights.train_x[:EXAMPLES]
    return calibrate(weights.weights, lambda held: weights.forward(held, examples), **patterns)


class Held(dict[str, Any]):
    """The arrays of a checkpoint, and their roles."""

    roles: Any


def held_in(path: str) -> Any:
    """Return all arrays of a checkpoint whose values are weights.

    Returns
    -------
    Held, or one array

    Raises
    ------
    ValueError, OSError
        As of `load`; another program has quantized it.
    """
    from ..files.layouts.refusals import refuse_layout  # 18 ms
    from ..files.opening import load, reader_of  # 18 ms
    from ..files.roles import roles_of  # 18 ms

    with reader_of(path) as reader:
        try:
            refuse_layout(reader)
        except ValueError as error:
            raise ValueError(f"{printable(path)}: {error}") from None
        roles = roles_of(reader)
    found = load(path)
    if isinstance(found, dict):
        found = Held(found)
        found.roles = roles
    return found


def _densities(arguments: argparse.Namespace, progress: ProgressBar) -> Callable[[], Any]:
    def work() -> Any:
        from ..studies.density import study_density  # 40 ms

        return study_density(
            _weights(arguments),
            include=arguments.include or None,
            exclude=arguments.exclude or None,
            progress=progress.update,
            keep=arguments.keep,
        )

    return work


def _weights(arguments: argparse.Namespace) -> Any:
    if arguments.model is not None:
        return arguments.model
    from .. import zoo  # 16 ms

    return getattr(zoo, arguments.network or NETWORKS[0])()


def _is_onnx(model: str | None) -> bool:
    return model is not None and model.lower().endswith(".onnx")


def _onnx(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Return the network of an ONNX file, evaluated on examples, and the reduction axes of its weights."""
    from ..interop.onnx_run import OnnxNetwork  # 20 ms

    network = OnnxNetwork(arguments.model, _array(arguments.data), _array(arguments.labels))
    return network, network.axis


def _array(path: str) -> Any:
    try:
        with open_regular(path) as file:
            found = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{printable(path)}: not a NumPy array (.npy): {error}") from None
    if not isinstance(found, np.ndarray):
        raise ValueError(f"{printable(path)}: a NumPy archive, expected one array (.npy)")
    return found


def _needs_inputs(arguments: argparse.Namespace) -> bool:
    from ..ptq.methods import CALIBRATED  # 18 ms

    return not CALIBRATED.keys().isdisjoint(arguments.methods or ())


def _method_list(text: str) -> list[str]:
    from ..ptq.methods import METHODS  # 18 ms

    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if part not in METHODS:
            raise argparse.ArgumentTypeError(f"{shown(part[:40])}, expected some of {','.join(METHODS)}")
    return parts


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= 10_000:
        raise argparse.ArgumentTypeError(f"{shown(text[:40])}, expected a number from 1 to 10000")
    return int(text)


def _emulation_list(text: str) -> list[str | None]:
    from ..emulate import parse  # 13 ms

    texts = [None if part.strip() == "none" else part.strip() for part in text.split(",")]
    for part in texts:
        if part is not None:
            parse(part)
    return texts
