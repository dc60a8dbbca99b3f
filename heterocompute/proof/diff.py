"""Differences of two checkpoints, or of two networks: `diff`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..base.errors import WrongType, shown
from ..base.float_env import counts_subnormals
from ..base.locations import exists
from ..base.progress import Progress, reported
from ..base.texts import file_name
from .checkpoints import diff_checkpoints
from .difference import Difference
from .functions import diff_functions
from .graphs import diff_graphs, outputs_of
from .language import diff_language
from .networks import diff_modules


@counts_subnormals
def diff(
    a: Any,
    b: Any,
    inputs: Any = None,
    inputs_b: Any = None,
    *,
    layout_a: str | None = None,
    layout_b: str | None = None,
    progress: Progress | bool | None = None,
) -> Difference:
    """Compare two checkpoints tensor by tensor, or find the first layer in which two networks part.

    Parameters
    ----------
    a, b : str, os.PathLike, torch.nn.Module, LanguageModel, onnx.ModelProto or callable
        Checkpoints of any kind that `open_checkpoint` reads, also in different layouts. Tensors of a language model in
        GGUF are compared under the names of Hugging Face. With `inputs`, two networks of one kind:

        - Modules of PyTorch, module by module under equal names.
        - Models of `heterocompute.zoo.open_llm`, layer by layer. `inputs` is a text or tokens.
        - ONNX files or models, node by node.
        - Functions, output by output. Also two networks of different kinds.
    inputs : tensor, array, text, tuple or mapping
        The arguments of both. A tuple has several, a mapping has their names.
    inputs_b : optional
        Other arguments for b.
    layout_a, layout_b : str, optional
        Layouts of other programs. Default: read from the files.
    progress : callable or bool, optional
        ``progress(done, all, name)``, before each tensor and at the end. True: a bar of tqdm. False: nothing. Default:
        a bar in notebooks.

    Returns
    -------
    Difference
        Of networks, `layer` is the first layer whose outputs, computed from the inputs in a, differ beyond the bound
        of float sums. `cause` is the first of these hypotheses that gives the outputs of a: nondeterminism, weights (or
        layout: transposed; position: the frequencies of RoPE), format, operation (options such as eps), accumulator,
        and differences inside (mask, position, cache, operation). If every layer agrees within its bound, the cause is
        input or order. `rows` has `residual` (in units of the bound) and `drift` (difference of both runs, relative).

        Of checkpoints, `rows` has one dict per tensor, the largest difference first:

        - `name`, `shape`; `a` and `b`: how it is stored.
        - `status`: ``"equal"``, ``"layout"`` (equal values, stored in another way), ``"differs"``, ``"shape"``,
          ``"only in a"``, ``"only in b"``.
        - `values`: share of values that differ. `index`: the first of them.
        - `ulp`: the largest distance in floats. `sqnr_db`: of a to the difference, None if exact or not finite.
        - `codes`, `steps`: of one format, the share of codes that differ, and the largest difference in steps.
        - `kl_bits`: KL divergence of the histograms of values, 256 bins.

    Raises
    ------
    ValueError
        A file is invalid. The message names the file. Or two networks have no common layers.
    OSError
        A file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> folder = tempfile.mkdtemp()
    >>> a, b = os.path.join(folder, "a.safetensors"), os.path.join(folder, "b.npz")
    >>> hc.save(a, {"w": np.float32([1, 2]), "v": np.float32([1, 2])})
    >>> np.savez(b, w=np.float32([1, 2]), v=np.nextafter(np.float32([1, 2]), np.float32(3)))
    >>> found = hc.diff(a, b)
    >>> found.equal, found.layer, found.cause
    (False, 'v', 'weights')
    >>> [(row["name"], row["status"], row["ulp"]) for row in found.rows]
    [('v', 'differs', 1), ('w', 'equal', None)]
    """
    if inputs is not None:
        return _networks(a, b, inputs, inputs_b)
    for name, one in (("a", a), ("b", b)):
        if not isinstance(one, (str, os.PathLike)):
            raise WrongType(
                f"diff: {name} is {shown(one)}, expected the path of a checkpoint, or two networks and inputs"
            )
        if not exists(file_name(one)):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(one))
    return diff_checkpoints(file_name(a), file_name(b), (layout_a, layout_b), reported(progress, "diff"))


def _networks(a: Any, b: Any, inputs: Any, inputs_b: Any) -> Difference:
    """Compare two networks by their layers, or by their outputs if they are of different kinds."""
    kinds = {_kind(a, "a"), _kind(b, "b")}
    if kinds == {"module"}:
        return diff_modules(a, b, inputs, inputs_b)
    if kinds == {"language"}:
        return diff_language(a, b, inputs, inputs_b)
    if kinds == {"graph"}:
        return diff_graphs(a, b, inputs, inputs_b)
    return diff_functions(_as_function(a), _as_function(b), inputs, inputs_b)


def _kind(net: Any, name: str) -> str:
    """Return the kind of a network.

    Raises
    ------
    TypeError
        It is none of the kinds that run.
    """
    if hasattr(net, "named_modules") and hasattr(net, "register_forward_hook"):
        return "module"
    if hasattr(net, "layer_roles") and hasattr(net, "tokenizer"):
        return "language"
    if isinstance(net, (str, os.PathLike, bytes)) or hasattr(net, "graph"):
        if isinstance(net, (str, os.PathLike)) and not os.fspath(net).endswith(".onnx"):
            raise WrongType(f"diff: {name} is {shown(net)}, expected a file that ends in .onnx, as inputs are given")
        return "graph"
    if callable(net):
        return "function"
    raise WrongType(
        f"diff: {name} is {shown(net)}, expected a module of PyTorch, a model of open_llm, an ONNX model or a function"
    )


def _as_function(net: Any) -> Any:
    kind = _kind(net, "a")
    if kind == "language":
        return net.logits
    if kind == "graph":
        return lambda *inputs, **named: outputs_of(net, inputs, named)
    if kind == "module":
        return lambda *inputs, **named: _called(net, inputs, named)
    return net


def _called(module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the output of a module, also of NumPy arrays."""
    import torch  # optional

    def tensor(one: Any) -> Any:
        return torch.as_tensor(one) if isinstance(one, np.ndarray) else one

    with torch.no_grad():
        return module(*map(tensor, inputs), **{name: tensor(one) for name, one in named.items()})
