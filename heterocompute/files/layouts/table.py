"""The layouts by name, and how that of a file is recognized: by its configuration, or names and dtypes of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...base.errors import WrongValue, shown
from ...base.tensors import Tensors
from ...base.texts import near_words
from .bitnet import BitNet
from .compressed.compressed_tensors import CompressedTensors
from .configuration import auto_round, config_in, is_auto_round, is_fp8_of_quark, method_of
from .eetq import EETQ
from .fp8 import FP8
from .gguf.layout import GGUF
from .gpt_oss import GptOss
from .gptq import AWQ, GPTQ, GPTQVersion1
from .hqq import HQQ
from .layout import Layout
from .mlx import MLX
from .modelopt import ModelOpt
from .nf4 import BitsAndBytes
from .onnx.matmul import OnnxMatMulNBits
from .onnx.model import ONNX
from .subclasses.quanto import Quanto
from .subclasses.torchao import TorchAO

# In the order of help texts. Of two whose `signs` fit a file, the first is its layout.
LAYOUTS: dict[str, Layout] = {
    one.name: one
    for one in (
        CompressedTensors(), GPTQ(), GPTQVersion1(), AWQ(), BitsAndBytes(), ModelOpt(), FP8(), GptOss(), MLX(),
        BitNet(), EETQ(), HQQ(), Quanto(), TorchAO(), ONNX(), OnnxMatMulNBits(), GGUF(),
    )
}  # fmt: skip
METHODS = {method: one.name for one in LAYOUTS.values() for method in one.methods}
PROGRAMS = {program: one.name for one in LAYOUTS.values() for program in one.programs}
WRITTEN = tuple(name for name, one in LAYOUTS.items() if one.is_written)
QUANTIZED_TO = tuple(name for name in WRITTEN if LAYOUTS[name].examples)
READ = tuple(name for name, one in LAYOUTS.items() if not one.is_file and name not in METHODS)


def check_layout(name: object) -> Layout:
    """Return the layout of a name that `save` got; ValueError for another name."""
    if name not in LAYOUTS:
        raise WrongValue(f"save: layout is {shown(name)}, expected {expected_of(name, WRITTEN)}")
    return LAYOUTS[name]


def read_layout(name: object, tensors: bool = False) -> Layout:
    """Return the layout of a name that a reader got, of `tensors` alone if it decodes them; ValueError for another."""
    known = [one.name for one in LAYOUTS.values() if not (tensors and one.is_file)]
    if name not in known:
        raise WrongValue(f"layout is {shown(name)}, expected {', '.join(known)}")
    return LAYOUTS[name]


def tensor_layout(name: str | None) -> Layout | None:
    """Return the layout of a name if it is one of safetensors, None for others."""
    found = LAYOUTS.get(name or "")
    return None if found is None or found.is_file else found


def expected_of(name: object, names: Iterable[str]) -> str:
    """Return the list of layouts for an error about another name, with the most similar name."""
    word = name.lower() if isinstance(name, str) else ""
    near = [PROGRAMS[word]] if word in PROGRAMS else near_words(word, names)
    return ", ".join(names) + "".join(f"; the nearest is {shown(word)}" for word in near)


def layout_named(config: Mapping[str, Any]) -> str | None:
    """Return the layout of a configuration's method; a method without one is returned unchanged.

    Parameters
    ----------
    config : mapping
        A quantization_config.

    Returns
    -------
    str or None
        None if the configuration names no method, or a packing of AutoRound that is not read.
    """
    method = method_of(config)
    if is_auto_round(method):
        return auto_round(config)[0]
    if method == "quark" and is_fp8_of_quark(config):
        return FP8.name
    return method if method is None else METHODS.get(method, method)


def layout_said(reader: Tensors) -> str | None:
    """Return the layout of a file's weights: what its configuration names, or without one what its tensors are called.

    Returns
    -------
    str or None
        Of `LAYOUTS`; None where there are no weights in one, or the configuration names another program.
    """
    return layout_in(reader, config_in(reader))


def layout_in(reader: Tensors, config: Mapping[str, Any]) -> str | None:
    """Return what `layout_said` does, of a file whose configuration is known."""
    method, names = layout_named(config), reader.names
    if method is not None or method_of(config) is not None:
        found = tensor_layout(method)
        return method if found is not None and any(one.endswith(found.marks) for one in names) else None
    for layout in LAYOUTS.values():
        for ends in layout.signs:
            prefix = next((one.removesuffix(ends[0]) for one in names if one.endswith(ends[0])), None)
            if prefix is not None and all(f"{prefix}{end}" in reader for end in ends):
                if layout.fits(reader, prefix, [reader.info(f"{prefix}{end}").dtype for end in ends]):
                    return layout.name
    return None
