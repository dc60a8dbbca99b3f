"""The matmuls of a model with the sums of a given tensor core: `as_device`, a context in which PyTorch runs.

Every matmul, convolution and attention product of PyTorch becomes one of a few operators, which are replaced here by
`heterocompute.emulate.matmul`. All other operators run in PyTorch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from ... import emulate
from ...base.errors import Unsupported, WrongValue, shown
from ...base.values import as_int
from ...emulate.floats import rounded_to

Array = np.ndarray[Any, Any]

KINDS = {"fp16": "", "bf16": "-bf16", "tf32": "-tf32", "fp8_e4m3fn": "-e4m3", "fp8_e5m2": "-e5m2"}
CHIPS = sorted({text.split("-")[1] for text in emulate.INSTRUCTIONS if text.startswith("hmma-")})
# Operators that multiply inside and are not replaced: a model with them is refused.
OPAQUE = ("rnn", "lstm", "gru_", "multi_head", "transformer_encoder", "scaled_dot_product", "_scaled_mm", "int_mm",
          "cdist", "_trilinear", "bilinear", "addmv", "addr", "addbmm", "_addmm_activation",
          "convolution_backward")  # fmt: skip
aten = torch.ops.aten


class as_device:
    """Compute the matmuls of a model with the sums of a tensor core, inside of a ``with`` block.

    Inputs are rounded to a type. Products and sums are those of an instruction of `heterocompute.emulate`. All other
    operators are computed by PyTorch in the dtype of the model, and listed in `rest`.

    Parameters
    ----------
    name : str
        A chip: ``"v100"``, ``"a100"``, ``"ada"``, ``"h100"``, ``"b200"``.
    inputs : {"fp16", "bf16", "tf32", "fp8_e4m3fn", "fp8_e5m2"}
        The type that is multiplied. Values are rounded to nearest, without scales.
    sums : {"fp32", "fp22", "fp16"}
        The accumulator. The chip must have it for these inputs.
    split : int
        Number of contiguous parts of k. The parts are added in float32 in ascending order.

    Attributes
    ----------
    emulated, rest : Counter of str
        How often each operator was emulated, and computed by PyTorch.

    Raises
    ------
    ValueError
        The chip does not have this instruction, or an operand is beyond the type that is multiplied.
    NotImplementedError
        The model calls an operator that multiplies inside, such as an LSTM.

    Notes
    -----
    The order of k is that of the operands, in a convolution c, r, s. No order of a library is claimed: libraries split
    long rows in ways of their own. A step of the instruction ends at the end of a part.

    Examples
    --------
    >>> import torch
    >>> from heterocompute.interop import torch as ht
    >>> model = torch.nn.Linear(64, 8)
    >>> with torch.no_grad(), ht.as_device("h100", inputs="bf16") as unit:
    ...     y = model(torch.ones(2, 64))
    >>> dict(unit.emulated)
    {'addmm': 1}
    """

    def __init__(self, name: str, inputs: str = "bf16", sums: str = "fp32", split: int = 1) -> None:
        if inputs not in KINDS:
            raise WrongValue(f"as_device: inputs is {shown(inputs)}, expected one of {', '.join(KINDS)}")
        if name not in CHIPS:
            raise WrongValue(f"as_device: name is {shown(name)}, expected one of {', '.join(CHIPS)}")
        self.instruction = f"hmma-{name}{KINDS[inputs]}"
        if self.instruction not in emulate.INSTRUCTIONS:
            raise WrongValue(f"as_device: inputs is {shown(inputs)}, which {name} does not multiply")
        possible = emulate.INSTRUCTIONS[self.instruction].accumulators
        if sums not in possible:
            raise WrongValue(
                f"as_device: sums is {shown(sums)}, but {self.instruction} adds to {' or '.join(possible)}"
            )
        self.inputs, self.sums, self.split = inputs, sums, as_int(split, "as_device: split", 1)
        self.emulated: Counter[str] = Counter()
        self.rest: Counter[str] = Counter()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # attention as two matmuls
        self._stack.enter_context(_Mode(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return ``a @ b`` of matrices, or of stacks of them, in float32."""
        x, w = (self._rounded(one) for one in (a, b))
        k = x.shape[-1]
        size = max(1, -(-k // self.split))
        y: Array | None = None
        for first in range(0, max(k, 1), size):
            part = slice(first, first + size)
            sums = emulate.matmul(x[..., part], w[..., part, :], self.sums, instruction=self.instruction)
            y = sums if y is None else y + sums
        return torch.from_numpy(np.asarray(y, np.float32))

    def _rounded(self, tensor: torch.Tensor) -> Array:
        values = tensor.detach().float().cpu().numpy()
        with np.errstate(over="ignore"):
            found = rounded_to(np.ascontiguousarray(values), self.inputs)
        wrong = ~np.isfinite(found)
        if wrong.any():
            index = tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
            raise WrongValue(
                f"as_device: an operand of {tuple(values.shape)} has {shown(float(values[index]))} at index {index}, "
                f"expected a finite value of {self.inputs}"
            )
        return found


class _Mode(TorchDispatchMode):
    """Replaces the operators to which PyTorch reduces matmuls."""

    def __init__(self, unit: as_device) -> None:
        super().__init__()
        self._unit = unit
        self._replaced: dict[Any, Callable[..., Any]] = {
            aten.mm: self._mm,
            aten.bmm: self._mm,
            aten.mv: self._mv,
            aten.dot: self._dot,
            aten.addmm: self._addmm,
            aten.baddbmm: self._addmm,
            aten.linear: self._linear,
            aten.convolution: self._convolution,
        }

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        replaced = self._replaced.get(func.overloadpacket)
        floats = [one for one in args if isinstance(one, torch.Tensor) and one.is_floating_point()]
        if replaced is not None and floats:
            self._unit.emulated[name] += 1
            return replaced(*args, **(kwargs or {})).to(floats[0].device, floats[0].dtype)
        if any(word in name for word in OPAQUE):
            raise Unsupported(f"as_device: the model calls {name}, which multiplies inside and is not emulated")
        self._unit.rest[name] += 1
        return func(*args, **(kwargs or {}))

    def _mm(self, a: Any, b: Any) -> Any:
        return self._unit.matmul(a, b)

    def _mv(self, a: Any, x: Any) -> Any:
        return self._unit.matmul(a, x[:, None])[:, 0]

    def _dot(self, x: Any, y: Any) -> Any:
        return self._unit.matmul(x[None], y[:, None])[0, 0]

    def _addmm(self, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        product = self._unit.matmul(a, b)
        return (product if alpha == 1 else alpha * product) + (c.float() if beta == 1 else beta * c.float())

    def _linear(self, x: Any, w: Any, bias: Any = None) -> Any:
        y = self._unit.matmul(x.reshape(-1, x.shape[-1]), w.T).reshape(*x.shape[:-1], len(w))
        return y if bias is None else y + bias.float()

    def _convolution(
        self, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, _: Any, groups: int
    ) -> Any:
        if transposed or w.ndim not in (3, 4):
            kind = "transposed" if transposed else f"{w.ndim - 2}-D"
            raise Unsupported(f"as_device: the model calls a {kind} convolution, which is not emulated")
        if w.ndim == 3:
            one = self._convolution(x[:, :, None], w[:, :, None], bias, (1, *stride), (0, *padding), (1, *dilation),
                                    False, _, groups)  # fmt: skip
            return one[:, :, 0]
        n, c, height, width = x.shape
        r, s = w.shape[2:]
        out = [(size + 2 * p - d * (f - 1) - 1) // q + 1 for size, p, d, f, q in
               zip((height, width), padding, dilation, (r, s), stride, strict=True)]  # fmt: skip
        columns = torch.nn.functional.unfold(x.float(), (r, s), tuple(dilation), tuple(padding), tuple(stride))
        rows = columns.transpose(1, 2).reshape(-1, groups, c // groups * r * s).transpose(0, 1)
        filters = w.reshape(groups, len(w) // groups, -1).transpose(1, 2)
        y = self._unit.matmul(rows, filters).transpose(0, 1).reshape(n, out[0] * out[1], len(w))
        y = y.transpose(1, 2).reshape(n, len(w), *out)
        return y if bias is None else y + bias.float()[:, None, None]
