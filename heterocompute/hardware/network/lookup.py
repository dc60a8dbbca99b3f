"""A network from a caller's argument: a name, layers, a file or folder with a model, a torch.nn.Module."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...base.errors import WrongType, WrongValue
from ...base.lazy import renamed
from ...base.modules import is_module
from ...base.texts import file_name
from ...base.values import as_int, is_several
from .builtin import name_of, networks
from .graph import Attention, Builder, Network, check_shape
from .language_files import read_language_model
from .layers import Layer
from .modules import read_module
from .onnx import read_onnx

__all__ = ["as_network"]

LANGUAGE_MODELS = (".gguf", ".safetensors", ".safetensors.index.json", "config.json")  # ends of files' names


@renamed(model="network")
def as_network(
    network: Any, input_shape: Sequence[int] | None = None, *, training: int = 0, inputs: object = None
) -> Network:
    """Convert a name, a list of layers, a model file or folder, or a torch.nn.Module to a network.

    Parameters
    ----------
    network : Network, str, path, LanguageModel, torch.nn.Module, or sequence of layers
        A name of `hw.networks`, also written as ``"Llama-3.1-8B"``; the path of an ``.onnx`` file, of a GGUF file, of a
        Hugging Face folder of a language model, or of safetensors with ``config.json`` next to it; a language model of
        `heterocompute.zoo.open_llm`, whose file is read; a module; or a sequence of layers, where a layer may be a pair
        (name, layer).
    input_shape : sequence of int, optional
        Shape of one sample, without a batch. Required for a list of layers and for a module.
    training : int, optional
        Samples, 1 or 2, to run a module with in training mode, to find what a backward pass needs. 0: run it in
        evaluation mode.
    inputs : tuple, list or dict, optional
        In place of `input_shape`, for a module with several inputs, such as CLIP, T5 or Whisper: arrays with a batch of
        one, or shapes without a batch, by position or by the names of keywords.

    Returns
    -------
    Network

    Raises
    ------
    OSError
        A str with a dot or a slash is a path, and the file cannot be read.
    ValueError
        The name is unknown, shapes do not match, or there is no input shape.
    TypeError
        network has another type.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.as_network([hw.layers.Linear(8, 4)], (8,)).output_shape
    (4,)
    """
    if inputs is not None and not is_module(network):
        raise WrongValue(f"inputs is for a torch.nn.Module, not for {type(network).__name__}: expected input_shape")
    if isinstance(network, Network):
        return network if input_shape is None else network.with_input(input_shape)
    if hasattr(network, "judged") and isinstance(getattr(network, "path", None), str):  # of zoo.open_llm
        network = network.path
    if isinstance(network, str) and network not in networks and not os.path.exists(network):
        network = name_of(network)
    if (
        isinstance(network, str)
        and not re.search(r"[./\\]", network)
        and (network in networks or not os.path.isdir(network))
    ):
        try:
            network = networks[network]
        except KeyError as error:
            raise WrongValue(error.args[0]) from None
        return as_network(network, input_shape)
    if isinstance(network, str) or hasattr(network, "__fspath__"):
        place = file_name(network)
        if os.path.isdir(place) or place.endswith(LANGUAGE_MODELS):
            return as_network(read_language_model(place), input_shape)
        return as_network(read_onnx(network, input_shape), input_shape)
    if is_module(network):
        return read_module(network, input_shape, as_int(training, "as_network: training", 0, 2), inputs)
    if isinstance(network, (Layer, Attention)):
        network = [network]
    if isinstance(network, Mapping) or not is_several(network):
        raise WrongType(
            f"network is of type {type(network).__name__}, expected a network, its name, layers, a file or folder "
            "with a model, or a torch.nn.Module"
        )
    if input_shape is None:
        raise WrongValue("input_shape is missing: a list of layers needs the shape of one sample, without a batch")
    return _of_layers(network, input_shape)


def _of_layers(layers: Iterable[Any], input_shape: Sequence[int]) -> Network:
    builder = Builder("layers", check_shape(input_shape))
    for i, item in enumerate(layers):
        name, layer = item if isinstance(item, tuple) and len(item) == 2 else (f"{i}", item)
        if isinstance(layer, Attention):
            layer.add_to(builder, name, builder.last)
        elif isinstance(layer, Layer):
            builder.add(name if name != f"{i}" else f"{i}.{type(layer).__name__.lower()}", layer)
        else:
            raise WrongType(
                f"layer {i} is of type {type(layer).__name__}, expected a layer such as hw.layers.Linear(...)"
            )
    return builder.build()
