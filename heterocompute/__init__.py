"""What happens to a network if its numbers change: number formats, packed arrays and their products, for NumPy.

>>> import numpy as np, heterocompute as hc
>>> w = np.random.default_rng(0).standard_normal((256, 512), dtype=np.float32)
>>> q = hc.quantize(w, "vsq4-g16-s4")
>>> y = hc.linear(w[:4], q, activations="int8")
>>> y.shape, round(hc.error(w, q).sqnr_db, 1) > 20
((4, 256), True)
"""

from . import interrupt as interrupt  # first: it sees Ctrl-C during all that follows

# isort: split
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("._heterocompute", __name__) is None:  # Python started in the folder of the sources finds these first
    raise ImportError(
        f"heterocompute: {__path__[0]} holds the sources, without the compiled core. "
        "Start Python in another folder, or install with: pip install -e ."
    )

from .arrays import QuantizedArray
from .convolution import conv2d
from .formats import MX, NF4, NVFP4, VSQ, Codebook, Float, Format, Int, Log, Sparse, format, formats
from .ops import Error, error, fake_quantize, linear, matmul, quantize
from .prepacked import Prepacked, prepack
from .prune import prune, prune_mask
from .runtime import get_num_threads, set_num_threads, show_config, use
from .sparse import SparseArray
from .study import study  # at once: a later import of its module would bind the module to this name

if TYPE_CHECKING:
    from . import emulate, scores, zoo
    from .bitmap import BitmapArray, encode_bitmap
    from .codebooks import CodeStorage, code_storage, codebook_gradient, codebook_step
    from .density import study_density
    from .density_result import DensityStudy
    from .eie import EIEArray, EIELoad, encode_csr
    from .explanation import Explanation, explain
    from .outer import OuterCounts, conv2d_outer
    from .permute import permute_channels, permute_linear
    from .safetensors_io import load
    from .study_result import Study

__version__ = "0.1.0"

__all__ = [
    "MX",
    "NF4",
    "NVFP4",
    "BitmapArray",
    "CodeStorage",
    "Codebook",
    "DensityStudy",
    "EIEArray",
    "EIELoad",
    "Error",
    "Explanation",
    "Float",
    "Format",
    "Int",
    "Log",
    "OuterCounts",
    "Prepacked",
    "QuantizedArray",
    "Sparse",
    "SparseArray",
    "Study",
    "VSQ",
    "code_storage",
    "codebook_gradient",
    "codebook_step",
    "conv2d",
    "conv2d_outer",
    "emulate",
    "encode_bitmap",
    "encode_csr",
    "error",
    "explain",
    "fake_quantize",
    "format",
    "formats",
    "get_num_threads",
    "linear",
    "load",
    "matmul",
    "permute_channels",
    "permute_linear",
    "prepack",
    "prune",
    "prune_mask",
    "quantize",
    "scores",
    "set_num_threads",
    "show_config",
    "study",
    "study_density",
    "use",
    "zoo",
]

# Rooms that are opened when someone first asks for them, so that importing stays fast.
_LAZY = {
    "BitmapArray": "bitmap",
    "CodeStorage": "codebooks",
    "DensityStudy": "density_result",
    "EIEArray": "eie",
    "EIELoad": "eie",
    "Explanation": "explanation",
    "OuterCounts": "outer",
    "Study": "study_result",
    "code_storage": "codebooks",
    "codebook_gradient": "codebooks",
    "codebook_step": "codebooks",
    "conv2d_outer": "outer",
    "emulate": "emulate",
    "encode_bitmap": "bitmap",
    "encode_csr": "eie",
    "explain": "explanation",
    "load": "safetensors_io",
    "permute_channels": "permute",
    "permute_linear": "permute",
    "scores": "scores",
    "study_density": "density",
    "zoo": "zoo",
}


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module = import_module(f".{_LAZY[name]}", __name__)
        value = module if name == _LAZY[name] else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
