"""`heterocompute.study` of an encoder on texts: formats of weights and of activations, by cosines of embeddings."""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import WrongValue
from .request import Request

FORMATS = "int8 int4-g32 int4-g32-f16 vsq4-g16-s4 mxfp4 nvfp4 vsq3-g16-s4".split()


def is_encoder(weights: object) -> bool:
    """Tell whether a value is an encoder: it has `weights`, `embed`, and evaluates formats on texts."""
    return all(hasattr(weights, name) for name in ("weights", "embed", "search_inputs"))


def encoder_request(request: Request) -> Request:
    """Return the request for an encoder as one for the matrices of its layers, with a function that judges them.

    Raises
    ------
    ValueError
        An argument does not apply to an encoder, or there are no texts.
    """
    for name in ("evaluate", "axis", "retrain", "kv_cache", "layout"):
        if getattr(request, name) is not None:
            raise WrongValue(f"study: {name} does not apply to an encoder, which text judges")
    if request.text is None:
        raise WrongValue("study: text is None, expected the texts whose embeddings judge the encoder")
    has_patterns = request.include is not None or request.exclude is not None
    weights, evaluate = request.weights.search_inputs(request.text, has_patterns)
    formats = FORMATS if request.formats is None else request.formats
    return replace(request, weights=weights, evaluate=evaluate, formats=formats, text=None)
