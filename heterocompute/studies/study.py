"""The main job: many formats on the same weights, and what each costs and keeps. How it is done: run.py.

The package imports this file at once, for the function of its name, so it imports nothing that takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.float_env import counts_subnormals
from ..formats import Format
from .language import is_language_model, study_text
from .run import run

if TYPE_CHECKING:
    from .result import Study

__all__ = ["study"]


@counts_subnormals
def study(
    weights: Any,
    formats: str | Format | Mapping[str, Any] | Sequence[str | Format | Mapping[str, Any]] | None = None,
    evaluate: Callable[..., Any] | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    activations: str | Format | Sequence[str | Format | None] | None = None,
    axis: int | tuple[int, ...] | Mapping[str, int | tuple[int, ...]] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    device: Any = None,
    emulate: str | Sequence[str | None] | None = None,
    retrain: bool | Callable[..., Any] | None = None,
    seeds: int = 1,
    methods: str | Sequence[str] | None = None,
    hessians: Mapping[str, Any] | None = None,
    per_layer: bool = False,
    text: Any = None,
    kv_cache: str | Format | Sequence[str | Format | None] | None = None,
) -> Study:
    """Compare number formats on the weights of a model, or on any arrays.

    Parameters
    ----------
    weights : array, mapping of str to array, path, torch.nn.Module, or network
        One array (called ``array``), arrays by name, the path of a safetensors file (read one tensor at a time) or of
        an ONNX file, a module (the weights of its layers), or an object with the mapping ``weights`` and a method
        ``evaluate(weights, activations=None, emulate=None)``, perhaps also ``retrain(weights, changed)``.
    formats : sequence of str, Format or mapping, optional
        A mapping ``{name pattern: format}`` gives each tensor a format of its own; the first pattern that fits wins,
        and a tensor that none fits stays as it is. ``"fp32"`` is the baseline, the arrays as they came; it is always
        the first. Default: a list made for networks if there is something to evaluate, else a shorter one.
    evaluate : callable, optional
        ``evaluate(weights)`` gets the mapping with every selected tensor replaced by its `QuantizedArray`
        (``numpy.asarray`` gives floats) and returns a number (column ``metric``) or a mapping of str to numbers, for
        instance with what `heterocompute.kl_divergence` says. Of a module it is ``evaluate(module)``: it gets a copy
        with packed layers, made by `heterocompute.interop.torch.convert`, which shares all other parameters.
    include, exclude : str or iterable of str, optional
        Globs over the names. Without them: float tensors with two or more dimensions.
    activations : sequence of str, Format or None, optional
        Formats of the other operand; ``evaluate(weights, activations=format)`` is then called with each of them as
        well as with None. Default: ``["int8"]`` for a network with the default formats or with `emulate`, else none.
    axis : int, tuple of int or mapping of str to these, optional
        Reduction axes, for all tensors or by name pattern. Default: of an ONNX file those that its operators multiply
        along; (2, 3, 1) of a 4-D tensor, (2, 1) of filters of signals (K, C, S), else the last.
    progress : callable, optional
        Called as ``progress(done, total, text)`` before each step, and once at the end.
    device : str or Device, optional
        A chip of `heterocompute.hardware`, by name, or one's own: the table gets its modelled time and energy for one
        product of every studied tensor with one row. ``"mac"``: the energy and area of one multiply-add in silicon.
    emulate : str or sequence of str, optional
        How hardware accumulates, `heterocompute.emulate.parse`: ``evaluate(weights, emulate=text)`` is then called with
        each of them as well as with None. Rows whose formats `heterocompute.emulate.accepts` refuses for one of the
        tensors are left out.
    retrain : bool or callable, optional
        ``retrain(weights, changed)`` gets the mapping as it came and the one that `evaluate` gets, and returns the
        latter after training: the same names, formats and shapes. What it gets cannot be written to. Each format
        then has a second row, ``retrained``.
        True: the network's own method. Default: some of the default formats of a network that has one; False: none.
    seeds : int, optional
        Train so many times, ``retrain(weights, changed, seed=0)`` and on; the row then has the mean of each number,
        and its ``_lowest`` and ``_highest`` as further columns.
    methods : sequence of str, optional
        How tensors are rounded, each format by each of them: ``"rtn"``, the nearest codes; ``"search"``, under searched
        scales; ``"gptq"``, under what the layers are given, see `heterocompute.ptq.gptq`. Rows of formats that a method
        does not take are left out. Default: the nearest codes, and no column ``method``.
    hessians : mapping of str to Hessian, optional
        What `heterocompute.ptq.calibrate` gathered; ``"gptq"`` needs one of each tensor. The tables then have
        ``output_db``, the signal-to-noise ratio of layers' outputs on these inputs.
    per_layer : bool, optional
        Also evaluate with each tensor rounded alone, to each format: `Study.alone` says which one hurts.
    text : str or array_like of int, optional
        What judges a language model of `heterocompute.zoo.open_llm`. Rows then have ``perplexity``, ``kl`` and
        ``agreement`` (against the network as stored, which is the first row, ``stored``) and ``kv_bits``. Default of
        `include`: all matrices but the embedding and the output. ``"gptq"`` is given the beginning of this text.
    kv_cache : sequence of str, Format or None, optional
        Formats of a language model's keys and values, each with each of `activations`. Column ``kv_cache``.

    Returns
    -------
    Study

    Raises
    ------
    TypeError
        `evaluate` takes no keyword `activations` or `emulate` but some are asked for, or it returned no number;
        `retrain` is no function, or takes no keyword `seed` where there are several.
    ValueError
        An unknown format, pattern, tensor, device or emulation; an emulation or `per_layer` without `evaluate`; an
        emulation that no row can have; an emulation, axis or retraining of a module; an `evaluate` that changes the
        module's parameters; retraining without `evaluate`, or that returned something else; ``"gptq"`` without
        Hessians; nothing to study; NaN or infinity in a tensor.
    OSError
        A file that cannot be read.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    >>> r = hc.study(w, formats=["int4", "vsq4-g16-s4"])
    >>> [(row["format"], round(row["bits"], 2)) for row in r.table]
    [('fp32', 32.0), ('int4', 4.25), ('vsq4-g16-s4', 4.5)]
    """
    if is_language_model(weights):
        others = {"evaluate": evaluate, "axis": axis, "retrain": retrain, "hessians": hessians}
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"study: {name} does not apply to a language model, which text judges")
        return study_text(
            weights, formats, text, include, exclude, activations, kv_cache, progress, device, methods, emulate,
            per_layer,
        )  # fmt: skip
    if text is not None or kv_cache is not None:
        name = "kv_cache" if text is None else "text"
        raise ValueError(f"study: {name} is for a language model of heterocompute.zoo.open_llm")
    return run(
        weights, formats, evaluate, include, exclude, activations, axis, progress, device, emulate, retrain, seeds,
        methods, hessians, per_layer,
    )  # fmt: skip
