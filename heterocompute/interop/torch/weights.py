"""A packed weight as a module: its components are buffers, so that PyTorch moves, copies and saves them.

    fc.weight.codes   fc.weight.scales   ...   fc.weight.format    names in a state_dict; the last is text as bytes

The text states format, shape, reduction axes, source dtype and the format of activations. A layer that is tied to
another holds the same module.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from ...arrays.components import VALUES, component_layout
from ...arrays.quantized import QuantizedArray
from ...arrays.stored import check_source, wrong_part
from ...base.devices import KIND, has_device
from ...base.errors import WrongType, WrongValue, shown
from ...base.texts import sentence
from ...formats import Format, format as parse_format, has_pattern
from ...formats.defining import carried
from ...products.arguments import as_format
from .device import PANELS, decoded, prepacked
from .operators import array_of, described, is_plain, on_device, parts_of, sliced

MOST = 2  # times the memory of the weight, for panels that nobody asked for

# Errors of modules that compute with a weight and do not call its layer, as those of Mamba and DETR do.
NEEDED = "a weight is packed, expected a tensor: call dequantize() of it"
LEFT_OUT = "or exclude its layer from convert (exclude='*NAME')"


class PackedWeight(torch.nn.Module):
    """A weight in a number format that replaces a parameter.

    Parameters
    ----------
    q : QuantizedArray
        The buffers share its memory if the memory is writable.
    activations : Format or str, optional
        Format that the inputs of matmuls with this weight are rounded to.

    Attributes
    ----------
    text : str
        Format, shape, axes and source dtype, as passed to the operators of a graph.
    shape : torch.Size
    dtype : torch.dtype
        Dtype of the weight before packing, or of the last ``.to(dtype)`` of the model. Codes and scales keep theirs.
    device : torch.device
    activations : str or None

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> weight = PackedWeight(hc.quantize(np.eye(4, 32, dtype=np.float32), "int4-g32"))
    >>> weight, sorted(weight.state_dict())
    (PackedWeight(int4-g32, shape=(4, 32), 80 bytes), ['codes', 'format', 'scales'])
    """

    text: str
    activations: str | None
    dtype: torch.dtype
    shape: torch.Size
    _kept: tuple[list[int], list[torch.Tensor], QuantizedArray] | None
    _described: tuple[str, torch.Tensor] | None
    _panels_of: list[Any] | None = None  # components that the panels are made of, and their versions

    def __init__(self, q: QuantizedArray, activations: Format | str | None = None) -> None:
        super().__init__()
        if not isinstance(q, QuantizedArray):
            raise WrongType(f"PackedWeight: q is {shown(q)}, expected a QuantizedArray of hc.quantize")
        fmt = None if activations is None else carried(as_format(activations, "PackedWeight: activations"))
        self.activations = fmt
        self.dtype = getattr(torch, q.source_dtype)
        self._described = None
        self._become(q)

    def _become(self, q: QuantizedArray) -> None:
        self._buffers.clear()
        self._non_persistent_buffers_set.clear()
        with torch.inference_mode(False):  # tensors with versions, which say that they were written to
            parts = parts_of(q)
        for name, part in parts.items():
            self.register_buffer(name, part)
        self.text, self._kept = described(q), None
        self.shape = torch.Size(q.shape)

    def parts(self) -> list[torch.Tensor]:
        """Return the components in the order of the operators' arguments."""
        return [part for name, part in self._buffers.items() if name != PANELS]

    def operands(self) -> list[torch.Tensor]:
        """Return the components, and the panels if they are made of these components."""
        panels = self._buffers.get(PANELS)
        if panels is None or not (torch.compiler.is_compiling() or self._is_unchanged()):
            return self.parts()
        return [*self.parts(), panels]

    def _is_unchanged(self) -> bool:
        """Tell whether no component was replaced or written to since the panels were made."""
        if self._panels_of is None:
            return False
        for part, (then, version, address) in zip(self.parts(), self._panels_of, strict=True):
            if part is not then or part.data_ptr() != address or (version is not None and part._version != version):
                return False
        return True

    def _versions(self) -> list[Any]:
        return [(part, None if part.is_inference() else part._version, part.data_ptr()) for part in self.parts()]

    def prepack(self) -> int:
        """Convert the weight for integer matmuls on a device, once in place of at each call.

        The result is the buffer ``panels``, which a state_dict does not contain. `to`, `load_state_dict` and copies of
        the module remake it. Moving to a device calls this method if the weight has ``activations`` with one scale
        per row and the panels need at most twice the memory of the weight. Call it after writing to components of a
        compiled model.

        Returns
        -------
        int
            Bytes of the panels. 0 on the CPU, and for weights that matmuls read as they are stored.
        """
        return self._prepack(float("inf"))

    def _prepack(self, most: float) -> int:
        old, self._panels_of = self._buffers.pop(PANELS, None), None
        parts = self.parts()
        if len(self.shape) != 2 or self.device.type != KIND or not all(is_plain(part) for part in parts):
            return 0
        panels = prepacked(on_device(parts, self.text), most, old) if has_device() else None
        if panels is None:
            return 0
        self.register_buffer(PANELS, panels, persistent=False)
        self._panels_of = self._versions()
        return int(panels.nbytes)

    def _remake_panels(self, had_panels: bool) -> None:
        """Prepack, where there were panels, or where they speed up matmuls and are not too large."""
        fmt = None if self.activations is None else as_format(self.activations, "PackedWeight: activations")
        is_of_rows = fmt is not None and not has_pattern(fmt) and fmt.form.codes == "integer" and not fmt.group
        if not (had_panels or is_of_rows):
            return
        try:
            self._prepack(float("inf") if had_panels else MOST * self.nbytes)
        except torch.OutOfMemoryError:
            self._buffers.pop(PANELS, None)  # matmuls convert the weight at each call

    def array(self) -> QuantizedArray:
        """Return the weight as a QuantizedArray, which shares the memory of the buffers.

        Raises
        ------
        TypeError
            The buffers are not on the CPU.
        """
        kept = self._kept
        if kept is not None and kept[0] == [id(part) for part in self._buffers.values()]:
            return kept[2]
        parts = self.parts()
        found = array_of(parts, self.text)
        self.__dict__["_kept"] = [id(part) for part in parts], parts, found
        return found

    @property
    def format(self) -> Format:
        return parse_format(json.loads(self.text)["format"])

    @property
    def axis(self) -> tuple[int, ...]:
        return tuple(json.loads(self.text)["axis"])

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts())

    @property
    def device(self) -> torch.device:
        return self.parts()[0].device

    def dequantize(self) -> torch.Tensor:
        """Return the values as a float32 tensor of `shape`."""
        if self.device.type == KIND:
            return decoded(on_device(self.parts(), self.text))
        return torch.from_numpy(self.array().dequantize())

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __getitem__(self, index: Any) -> PackedPart:
        """Return one of stacked matrices, as modules of experts index it, or some rows of a matrix."""
        try:
            at = index if isinstance(index, slice) else int(index)
        except (TypeError, ValueError):
            raise WrongType(f"indexing: {NEEDED}, use a number or a slice, {LEFT_OUT}") from None
        parts = self.parts()
        if is_plain(parts[0]) and parts[0].is_cpu:
            return PackedPart(self.array()[at], self.activations)
        return PackedPart(sliced(parts, self.text, at), self.activations)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_") or not hasattr(torch.Tensor, name):
                raise
            raise AttributeError(f"{name}: {NEEDED}, {LEFT_OUT}") from None

    @classmethod
    def __torch_function__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> Any:
        return _called(func, args, kwargs or {})

    # Copies, moves and files.

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: part for name, part in self._buffers.items() if name != PANELS}
        had_panels: list[Any] | None = [] if PANELS in self._buffers else None
        state = {**self.__dict__, "_kept": None, "_described": None, "_panels_of": had_panels, "_buffers": kept}
        return {**state, "_non_persistent_buffers_set": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._remake_panels(self._panels_of is not None)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.dtype = fn(torch.empty(0, dtype=self.dtype)).dtype
        is_moved, had_panels = False, PANELS in self._buffers
        for name, part in self._buffers.items():
            if name == PANELS:
                continue
            moved = fn(part)
            # a model that becomes bfloat16 keeps its codes and scales
            self._buffers[name] = moved if moved.dtype == part.dtype else part.to(moved.device)
            is_moved = is_moved or self._buffers[name] is not part
        self._kept = None
        if is_moved:
            self._remake_panels(had_panels)
        return self

    def _description(self) -> torch.Tensor:
        """Return the text as bytes; tied layers share this tensor, like their components."""
        text = json.dumps({**json.loads(self.text), "activations": self.activations})
        known = self._described
        if known is None or known[0] != text:
            known = text, torch.from_numpy(np.frombuffer(bytearray(text.encode()), np.uint8))
            self.__dict__["_described"] = known
        return known[1]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}format"] = self._description()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local: Any, strict: bool, missing: Any, unexpected: object, errors: Any
    ) -> None:
        found = {key[len(prefix) :]: part for key, part in state_dict.items() if str(key).startswith(prefix)}
        if "format" not in found:
            missing.extend(f"{prefix}{name}" for name in (*self._buffers, "format"))
            return
        try:
            q, activations = restored(found, prefix[:-1])
            if tuple(q.shape) != tuple(self.shape):
                raise WrongValue(f"{prefix.rstrip('.')} has shape {q.shape}, expected {tuple(self.shape)}")
        except (TypeError, ValueError) as problem:
            errors.append(str(problem))
            return
        self.activations, assigns = activations, local.get("assign_to_params_buffers", False)
        if assigns or described(q) != self.text:
            device = found["codes" if "codes" in found else "values"].device if assigns else self.device
            self._become(q)
            self._apply(lambda part: part.to(device))
        else:
            with torch.no_grad():
                for part, new in zip(self.parts(), parts_of(q).values(), strict=True):
                    part.copy_(new)
            self._kept = None
            if PANELS in self._buffers:
                self._prepack(float("inf"))

    def extra_repr(self) -> str:
        more = f", activations={parse_format(self.activations)}" if self.activations else ""
        return f"{self.format}, shape={tuple(self.shape)}, {self.nbytes} bytes{more}"


def _refused(name: str) -> Any:
    """Return an operator that Python looks up in the class, and PyTorch does not see."""

    def operator(self: PackedWeight, *_: object) -> Any:
        raise WrongType(f"{name}: {NEEDED}, {LEFT_OUT}")

    return operator


for _name in ("add", "sub", "mul", "truediv", "matmul"):
    setattr(PackedWeight, f"__{_name}__", _refused(_name))
    setattr(PackedWeight, f"__r{_name}__", _refused(_name))


class PackedPart:
    """A part of a packed weight, for `torch.nn.functional.linear`; it shares the memory of the weight.

    Parameters
    ----------
    part : QuantizedArray or (list of torch.Tensor, str)
        On the CPU, or components on a device and their text.
    activations : str or None
    """

    def __init__(self, part: QuantizedArray | tuple[list[torch.Tensor], str], activations: str | None) -> None:
        self._part, self.activations = part, activations
        self.shape = torch.Size(json.loads(part[1])["shape"] if isinstance(part, tuple) else part.shape)

    def constant(self) -> tuple[list[torch.Tensor], str]:
        """Return the part as the argument of operators."""
        part = self._part
        return part if isinstance(part, tuple) else (list(parts_of(part).values()), described(part))

    def array(self) -> QuantizedArray:
        return array_of(*self._part) if isinstance(self._part, tuple) else self._part

    @classmethod
    def __torch_function__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> Any:
        return _called(func, args, kwargs or {})


PRODUCTS: dict[Any, Any] = {}  # function of torch.nn.functional -> its replacement for a packed weight


def _called(func: object, args: Any, kwargs: Any) -> Any:
    """Compute a function of torch that was called with a packed weight."""
    found = PRODUCTS.get(func)
    if found is None:
        name = getattr(func, "__name__", shown(func))
        known = ", ".join(sorted(one.__name__ for one in PRODUCTS))
        raise WrongType(f"{name}: {NEEDED}, use {known}, {LEFT_OUT}")
    return found(*args, **kwargs)


def restored(parts: dict[str, torch.Tensor], name: str) -> tuple[QuantizedArray, str | None]:
    """Return the weight and the format of the activations of tensors in a state_dict.

    Parameters
    ----------
    parts : dict of str to torch.Tensor
        The components, and ``format``.
    name : str
        Of the weight, for errors.

    Raises
    ------
    ValueError
        Tensors that no packed weight has.
    """
    text = _bytes_of(parts["format"], f"{name}.format", np.dtype(np.uint8), None)
    try:
        about = json.loads(bytes(text).decode())
        fmt = parse_format(about["format"])
        shape, axis, dtype = tuple(about["shape"]), tuple(about["axis"]), about["dtype"]
        activations = about["activations"]
        if activations is not None:
            activations = carried(parse_format(activations))
        check_source(shape, axis, dtype)
        layout = component_layout(fmt, shape, axis, dtype if dtype in VALUES else "float32")
    except (AttributeError, KeyError, TypeError, UnicodeDecodeError, ValueError, RecursionError) as problem:
        raise WrongValue(f"{name}.format is not the text of a packed weight: {problem}") from None
    components = {}
    for key, (kind, size) in layout.items():
        if key not in parts:
            raise WrongValue(f"{name}.{key} is missing, expected {kind} {size}")
        components[key] = _bytes_of(parts[key], f"{name}.{key}", np.dtype(kind), tuple(size))
    extra = set(parts) - set(layout) - {"format"}
    if extra:
        raise WrongValue(f"{name}.{min(extra)} is not a component of {fmt}")
    wrong = wrong_part(components, fmt, shape, axis)
    if wrong is not None:
        raise WrongValue(f"{name}.{wrong[0]} {wrong[1]}")
    return QuantizedArray._trusted(components, fmt, shape, axis, dtype), activations


def _bytes_of(part: object, name: str, kind: np.dtype[Any], size: tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    """Return a tensor of a state_dict as an array; ValueError if it is no tensor of this dtype and shape."""
    wanted = f"a tensor of {kind}" if size is None else f"{kind} {size}"
    if not isinstance(part, torch.Tensor):
        raise WrongValue(f"{name} is {shown(part)}, expected {wanted}")
    if part.is_nested:
        raise WrongValue(f"{name} is nested, expected {wanted}")
    fits = part.dim() == 1 if size is None else tuple(part.shape) == size
    if str(part.dtype) != f"torch.{kind.name}" or not fits:
        raise WrongValue(f"{name} is {part.dtype} {tuple(part.shape)}, expected {wanted}")
    if part.is_meta or part.layout != torch.strided:
        place = "on meta, without values" if part.is_meta else f"of layout {part.layout}"
        raise WrongValue(f"{name} is {place}, expected a dense tensor with values")
    try:
        whole = part.detach().cpu().contiguous()
        return np.asarray((whole.view(torch.int16) if part.itemsize == 2 else whole).numpy()).view(kind)
    except (RuntimeError, TypeError, NotImplementedError) as problem:  # of a class of tensors
        raise WrongValue(f"{name} cannot be read ({sentence(problem)}), expected a torch.Tensor") from None
