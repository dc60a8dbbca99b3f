"""Number formats, packed arrays and their matmuls for NumPy: the effect of narrow numbers on a network.

>>> import numpy as np, heterocompute as hc
>>> w = np.random.default_rng(0).standard_normal((256, 512), dtype=np.float32)
>>> q = hc.quantize(w, "vsq4-g16-s4")
>>> y = hc.linear(w[:4], q, activations="int8")
>>> y.shape, round(hc.error(w, q).sqnr_db, 1) > 20
((4, 256), True)
"""

from .base import interrupt  # noqa: F401 (first: it sees Ctrl-C during all that follows)

# isort: split
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .base.version import __version__ as __version__

if TYPE_CHECKING:  # names that the table below imports at run time; tests/house/test_structure.py compares both
    from . import (
        emulate as emulate,
        hardware as hardware,
        layers as layers,
        ptq as ptq,
        scores as scores,
        training as training,
        zoo as zoo,
    )
    from .arrays.bitmap import *
    from .arrays.codes import *
    from .arrays.eie import *
    from .arrays.prepacked import *
    from .arrays.quantized import *
    from .arrays.rotated import *
    from .arrays.sparse import *
    from .base.errors import ArgumentError as ArgumentError
    from .base.runtime import *
    from .bench.calibration import *
    from .emulate.logs import *
    from .files.checkpoint import quantize_checkpoint as quantize_checkpoint
    from .files.convert import convert_checkpoint as convert_checkpoint
    from .files.finish import finish_checkpoint as finish_checkpoint
    from .files.layouts.gguf.saving import save_gguf as save_gguf
    from .files.opening import Checkpoint as Checkpoint, load as load, open_checkpoint as open_checkpoint
    from .files.safetensors import save as save
    from .formats import *
    from .interop.onnx_run import run_onnx as run_onnx
    from .interop.opening import open as open
    from .products.backward import *
    from .products.conv import *
    from .products.divergence import *
    from .products.error import *
    from .products.explain import *
    from .products.layers.attention import *
    from .products.matmul import *
    from .products.outer import *
    from .products.quantize import *
    from .products.tune import *
    from .proof.diff import diff as diff
    from .proof.difference import Difference as Difference
    from .proof.result import Verification as Verification
    from .proof.vectors import vectors as vectors
    from .proof.verify import verify as verify
    from .pruning.permute import *
    from .pruning.prune import *
    from .studies.density import *
    from .studies.density_result import *
    from .studies.result import *
    from .studies.study import *
    from .studies.training import *
    from .training.codebooks import *
else:  # hidden from type checkers, which would accept any name
    if find_spec("._heterocompute", __name__) is None:  # true if Python was started in the folder of the sources
        raise ImportError(
            f"heterocompute: {__path__[0]} holds the sources, without the compiled core. "
            "Start Python in another folder, or install with: pip install -e ."
        )

    from .base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(
        __name__,
        {
            "arrays.bitmap": "BitmapArray encode_bitmap",
            "arrays.codes": "CodeStorage code_storage",
            "arrays.eie": "EIEArray EIELoad encode_eie",
            "arrays.prepacked": "Prepacked PrepackedFilters prepack",
            "arrays.quantized": "QuantizedArray",
            "arrays.rotated": "RotatedArray",
            "arrays.sparse": "SparseArray",
            "base.errors": "ArgumentError",
            "base.runtime": "get_num_threads set_num_threads show_config use",
            "bench.calibration": "MeasuredCosts calibrate",
            "emulate": "",
            "emulate.logs": "log_add log_multiply",
            "files.checkpoint": "quantize_checkpoint",
            "files.convert": "convert_checkpoint",
            "files.layouts.gguf.saving": "save_gguf",
            "files.finish": "finish_checkpoint",
            "files.opening": "Checkpoint load open_checkpoint",
            "files.safetensors": "save",
            "formats": "GGML MX NF4 NVFP4 VSQ Affine Codebook Float Format Int Integer Levels Log Minifloat "
            "Rotated Sparse define format formats",
            "hardware": "",
            "layers": "",
            "interop.onnx_run": "run_onnx",
            "interop.opening": "open",
            "products.backward": "conv2d_backward_input conv2d_backward_weight",
            "products.conv": "conv2d",
            "products.divergence": "kl_divergence",
            "products.explain": "Explanation explain",
            "products.error": "ErrorReport error",
            "products.layers.attention": "KVCache attention",
            "products.matmul": "linear matmul",
            "products.quantize": "fake_quantize quantize",
            "products.tune": "tune",
            "products.outer": "OuterCounts conv2d_outer",
            "proof.diff": "diff",
            "proof.difference": "Difference",
            "proof.result": "Verification",
            "proof.vectors": "vectors",
            "proof.verify": "verify",
            "pruning.permute": "permute_channels permute_linear",
            "pruning.prune": "prune prune_mask",
            "ptq": "",
            "scores": "",
            "studies.density": "study_density",
            "studies.density_result": "DensityStudy",
            "studies.result": "Study",
            "studies.study": "study",
            "studies.training": "TrainingStudy study_training",
            "training": "",
            "training.codebooks": "codebook_gradient codebook_step",
            "zoo": "",
        },
        renamed={"encode_csr": "encode_eie", "Error": "ErrorReport"},
    )
    __getattr__("matmul")  # import everything that matmuls need now, so that the first matmul does not wait
