"""`study`: compares many formats on the same weights, by size, error, accuracy and time. run.py does the work.

``import heterocompute`` imports this file for its function, so it imports nothing that takes time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.float_env import counts_subnormals
from ..base.values import as_list
from ..base.workers import Workers
from ..files.recipes import with_recipe
from ..formats import Format
from .encoders import encoder_request, is_encoder
from .language import is_language_model, study_text
from .request import Request
from .run import run

if TYPE_CHECKING:
    from .result import Study

__all__ = ["study"]


@counts_subnormals
def study(
    weights: object,
    formats: str | Format | Mapping[str, Any] | Sequence[str | Format | Mapping[str, Any]] | None = None,
    evaluate: Callable[..., Any] | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    activations: str | Format | Sequence[str | Format | None] | None = None,
    axis: int | tuple[int, ...] | Mapping[str, int | tuple[int, ...]] | None = None,
    progress: Callable[[int, int, str], None] | bool | None = None,
    device: object = None,
    emulate: str | Sequence[str | None] | None = None,
    retrain: bool | Callable[..., Any] | None = None,
    seeds: int = 1,
    methods: str | Sequence[str] | None = None,
    hessians: Mapping[str, Any] | None = None,
    per_layer: bool = False,
    text: object = None,
    kv_cache: str | Format | Sequence[str | Format | None] | None = None,
    workers: Workers = None,
    keep: str | os.PathLike[str] | None = None,
    timing: bool | None = None,
    machine: object = None,
    network: object = None,
    recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    layout: str | None = None,
) -> Study:
    """Compare number formats on the weights of a model, or on any arrays.

    Parameters
    ----------
    weights : array, mapping of str to array, path, torch.nn.Module, or network
        - One array (called ``array``), or arrays by name.
        - The path of a safetensors file (read one tensor at a time) or of an ONNX file.
        - A module: the weights of its layers.
        - An object with the mapping ``weights``, a method ``evaluate(weights, activations=None, emulate=None)`` and
          optionally ``retrain(weights, changed)``.
    formats : sequence of str, Format or mapping, optional
        A mapping ``{name pattern: format}`` gives each tensor its own format. The first matching pattern applies. A
        tensor without a match is not quantized. ``"fp32"`` is the baseline, the unchanged arrays; it is always the
        first row. Default: a list for networks if there is something to evaluate, otherwise a shorter list.
    evaluate : callable, optional
        ``evaluate(weights)`` gets the mapping with every selected tensor replaced by its `QuantizedArray`
        (``numpy.asarray`` decodes it). It returns a mapping of str to numbers, for instance with the result of
        `heterocompute.kl_divergence`, or a number. The column of one number has the name of the function, or of the
        class of an object, and ``evaluate`` for a lambda. For a module it is ``evaluate(module)``, called with a copy
        with packed layers from `heterocompute.interop.torch.convert`. The copy shares all other parameters.
    include, exclude : str or iterable of str, optional
        Globs over the names. Default: float tensors with two or more dimensions.
    activations : sequence of str, Format or None, optional
        Formats of the other operand. ``evaluate(weights, activations=format)`` is called with each of them and with
        None. Default: ``["int8"]`` for a network with the default formats or with `emulate`, otherwise none.
    axis : int, tuple of int or mapping of str to these, optional
        Reduction axes, for all tensors or by name pattern. Default: the axes that the operators of an ONNX file reduce;
        (2, 3, 1) for a 4-D tensor; (2, 1) for 1-D convolution filters (K, C, S); otherwise the last axis.
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` before each step, and once at the end. True: a bar of tqdm. False:
        nothing. Default: a bar in notebooks.
    device : str or Device, optional
        A chip of `heterocompute.hardware` by name, or a Device. The table then has the modelled time and energy of one
        batch-1 matmul with every studied tensor. ``"mac"``: the energy and area of one multiply-add in silicon.
    emulate : str or sequence of str, optional
        Accumulation in hardware, as parsed by `heterocompute.emulate.parse`. ``evaluate(weights, emulate=text)`` is
        called with each of them and with None. Rows with a format that `heterocompute.emulate.accepts` rejects for one
        of the tensors are left out.
    retrain : bool or callable, optional
        ``retrain(weights, changed)`` gets the original mapping and the one that `evaluate` gets, both read-only. It
        returns the latter after training, with the same names, formats and shapes. Each format then has a second row,
        ``retrained``. True: the network's own method. Default: some of the default formats if the network has the
        method. False: no retraining.
    seeds : int, optional
        Number of trainings, ``retrain(weights, changed, seed=0)`` and on. The row then has the mean of each number, and
        its ``_lowest`` and ``_highest`` as further columns.
    methods : sequence of str, optional
        Rounding methods, each applied to each format: ``"rtn"`` (round to nearest), ``"search"`` (searched scales), or
        ``"gptq"`` and ``"qronos"`` (calibration inputs, see `heterocompute.ptq.gptq` and `qronos`). Formats that a
        method does not support are left out. Default: round to nearest, and no column ``method``.
    hessians : mapping of str to Hessian, optional
        Result of `heterocompute.ptq.calibrate`. ``"gptq"`` and ``"qronos"`` need one Hessian per tensor. The tables
        then have ``output_db``, the signal-to-noise ratio of layers' outputs on these inputs.
    per_layer : bool, optional
        Also evaluate with each tensor alone rounded to each format. `Study.alone` shows the most sensitive tensors.
    text : str or array_like of int, optional
        Text for evaluating a language model of `heterocompute.zoo.open_llm`. Rows then have ``perplexity``, ``kl`` and
        ``agreement`` (against the network as stored, the first row, ``stored``) and ``kv_bits``. Default of `include`:
        all matrices except the embedding and the output. ``"gptq"`` and ``"qronos"`` are calibrated with the beginning
        of this text: at most 2048 tokens, and at most half of it. The rest is evaluated. For an encoder of
        `heterocompute.zoo.open_encoder` it is a list of texts. Rows then have ``cosine``, the mean between embeddings
        with these formats and as stored, ``worst_cosine`` and ``rank_correlation``.
    kv_cache : sequence of str, Format or None, optional
        Formats of a language model's keys and values, each combined with each of `activations`. Column ``kv_cache``.
    workers : int, str or callable, optional
        Who rounds the tensors and measures their errors, one tensor at a time, as in `quantize_checkpoint`. The numbers
        do not depend on it, but there are no ``seconds`` unless this thread works alone. `evaluate` and `retrain`
        run in this thread.
    keep : path, optional
        File of results, such as ``"study.jsonl"``. Each measurement and each answer of `evaluate` is appended as soon
        as it is known, and results in the file are not computed again, so an interrupted study continues. Results
        belong to the weights, the formats, and the code and data of the functions; one file may hold several studies.
    timing : bool, optional
        Whether to measure ``seconds``. Default: for 100,000 values or more, because fewer do not tell formats apart.
    machine : Machine, str or path, optional
        A machine of `heterocompute.hardware.Machine`, its TOML file, or the name of a published one. The table then
        has the modelled time and energy of one inference of the whole network, with multipliers and memories of the
        row's formats of weights and activations (float32 where a row has none).
    network : Network, str, path, module or sequence of layers, optional
        The layers for `machine`, as of `heterocompute.hardware.as_network`. Default: those of the weights, if they are
        a network of `heterocompute.zoo` or an ONNX file.
    recipe : path, or mapping of str to (Format, str or None), optional
        One more mapping of `formats`, also as a TOML file of `heterocompute.quantize_checkpoint`.
    layout : {"OIHW", "HWIO"}, optional
        Where the default of `axis` expects the outputs of matrices and filters. ``"HWIO"``: on the last axis, as in
        Keras and Flax. Default: on the first axis, unless the file states another layout.

    Returns
    -------
    Study

    Raises
    ------
    TypeError
        - `evaluate` has no keyword `activations` or `emulate` but some are given, or it does not return a number.
        - `retrain` is not a function, or has no keyword `seed` although `seeds` is above 1.
    ValueError
        - A format, pattern, tensor, device, machine or emulation is unknown, or the layers for a machine are.
        - An emulation or `per_layer` is given without `evaluate`, or an emulation applies to no row.
        - An emulation, axis or retraining is given for a module, or `evaluate` changes the module's parameters.
        - Retraining is requested without `evaluate`, or returns something else.
        - ``"gptq"`` or ``"qronos"`` is given without Hessians.
        - There is nothing to study, or a tensor holds NaN or infinity.
    OSError
        A file cannot be read, or the file of `keep` cannot be written.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    >>> r = hc.study(w, formats=["int4", "vsq4-g16-s4"])
    >>> [(row["format"], round(row["bits"], 2)) for row in r.table]
    [('fp32', 32.0), ('int4', 4.25), ('vsq4-g16-s4', 4.5)]
    """
    if recipe is not None:
        own = isinstance(formats, (str, Format, Mapping))
        wanted = [formats] if own else as_list(() if formats is None else formats, "study: formats", "formats")
        formats = [*wanted, with_recipe(None, recipe)]
    request = Request(
        weights, formats, evaluate, include, exclude, activations, axis, progress, device, emulate, retrain, seeds,
        methods, hessians, per_layer, text, kv_cache, workers, keep, timing, machine, network, layout,
    )  # fmt: skip
    if is_encoder(weights) and not is_language_model(weights):
        request = encoder_request(request)
    return study_text(request) if is_language_model(weights) else run(request)
