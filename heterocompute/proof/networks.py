"""The first layer in which two modules of PyTorch part, and its cause by elimination.

Each module of b is computed from the inputs that the module of the same name has in a, in the order in which modules of
a finish. So an error does not reach later layers, and the first module beyond its bound is the innermost one with a
difference. The bound of a sum of k products is ``2 (k + 1) eps sum |x| |w|``.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import emulate
from ..base.errors import shown
from .difference import Difference
from .packed_layers import with_packed_values, with_weight

Array = np.ndarray[Any, Any]

ACCUMULATORS: tuple[dict[str, Any], ...] = (
    {"accumulator": "fp22", "rounding": "truncate"},
    {"accumulator": "fp22"},
    {"accumulator": "bf16"},
    {"accumulator": "fp16"},
    {"accumulator": "fp32", "rounding": "truncate"},
)
LARGEST_EMULATED = 1 << 30  # multiply-adds
# Parts of the names of arguments, and the cause that a difference in them has.
ARGUMENTS = {"mask": "mask", "position": "position", "rotary": "position", "past": "cache", "cache": "cache"}
COMPOSITE = 8.0  # sums of sums: the bound of a module with several layers, in those of its longest sum


@dataclass
class Call:
    """One call of a module: its inputs and outputs, and the calls of modules inside.

    Attributes
    ----------
    name : str
    number : int
        Calls of this module before.
    arguments : tuple and dict
        Copies from before the call.
    """

    name: str
    number: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    start: int
    output: Any = None
    children: list[Call] = field(default_factory=list)


def diff_modules(a: Any, b: Any, inputs: Any, inputs_b: Any = None) -> Difference:
    """Compare two modules; the arguments are those of `diff`."""
    import torch  # optional

    first, second = (_arguments(one) for one in (inputs, inputs if inputs_b is None else inputs_b))
    with torch.no_grad():
        calls = _recorded(a, *first)
        others = {(call.name, call.number): call for call in _recorded(b, *second)}
        modules = dict(a.named_modules()), dict(b.named_modules())
        rows: list[dict[str, Any]] = []
        for call in calls:
            owner, inside, _ = f"{call.name}.".partition(".parametrizations.")
            if inside and owner in modules[1] and call.name not in modules[1]:  # b has the weight that they compute
                continue
            row: dict[str, Any] = {"name": call.name or "(whole)", "status": "equal", "residual": 0.0}
            other = others.get((call.name, call.number))
            row["drift"] = None if other is None else _drift(call.output, other.output)
            rows.append(row)
            if call.name not in modules[1]:
                rows[-1] |= {"status": "differs", "residual": None}
                return Difference(False, call.name, "operation", None, [("operation", 0.0)], rows,
                                  [f"b has no module {shown(call.name)}"])  # fmt: skip
            pair = modules[0][call.name], modules[1][call.name]
            found = _again(pair[1], call)
            bound = _bound(pair[0], call)
            row["residual"] = _residual(call.output, found, bound)
            if row["residual"] > 1:
                row["status"] = "differs"
                cause, residual, tested, notes = _cause(pair, call, bound)
                return Difference(False, call.name or "(whole)", cause, residual, tested, rows, notes)
    index = _first_difference(first, second)
    if index is not None:
        return Difference(False, "(whole)", "input", 0.0, [("input", 0.0)], rows, [f"inputs differ at {index}"])
    drifted = [row for row in rows if row["drift"]]
    if not drifted:
        return Difference(True, None, None, 0.0, [], rows)
    notes = ["every layer agrees within the bound of its sums, so only their order differs"]
    return Difference(
        False, drifted[0]["name"], "order", max(row["residual"] for row in rows), [("order", 0.0)], rows, notes
    )


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch  # optional

    def tensor(value: Any) -> Any:
        return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value

    if isinstance(inputs, Mapping):
        return (), {key: tensor(value) for key, value in inputs.items()}
    values = inputs if isinstance(inputs, tuple) else (inputs,)
    return tuple(map(tensor, values)), {}


def _copied(value: Any) -> Any:
    """Return a copy of arguments; caches and other objects are copied deeply."""
    if hasattr(value, "detach"):
        return value.detach().clone()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_copied, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(one) for key, one in value.items()}
    try:
        return copy.deepcopy(value)
    except Exception:  # an object that cannot be copied is shared
        return value


def _recorded(net: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Call]:
    """Run a network, and return its calls in the order in which they end."""
    import torch  # optional

    open_calls: list[Call] = []
    done: list[Call] = []
    counts: dict[str, int] = {}
    handles = []

    def begin(name: str) -> Callable[..., None]:
        def hook(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            call = Call(name, counts.get(name, 0), _copied(given), _copied(named), len(done) + len(open_calls))
            counts[name] = call.number + 1
            if open_calls:
                open_calls[-1].children.append(call)
            open_calls.append(call)

        return hook

    def end(module: Any, given: Any, named: Any, output: Any) -> None:
        call = open_calls.pop()
        call.output = _copied(output)
        done.append(call)

    try:
        for name, module in net.named_modules():
            handles.append(module.register_forward_pre_hook(begin(name), with_kwargs=True))
            handles.append(module.register_forward_hook(end, with_kwargs=True))
        with torch.random.fork_rng(devices=[]), _buffers_kept(net):
            net(*_copied(args), **_copied(kwargs))
    finally:
        for handle in handles:
            handle.remove()
    return done


@contextmanager
def _buffers_kept(module: Any) -> Iterator[None]:
    """Restore the buffers after the ``with`` block: in training mode, norms of batches change their statistics."""
    kept = {name: one.clone() for name, one in module.named_buffers()}
    try:
        yield
    finally:
        for name, one in module.named_buffers():
            one.copy_(kept[name])


def _again(module: Any, call: Call) -> Any:
    import torch  # optional

    with torch.random.fork_rng(devices=[]), _buffers_kept(module):
        torch.manual_seed(torch.seed())
        return module(*_in_dtype(module, _copied(call.args)), **_in_dtype(module, _copied(call.kwargs)))


def _in_dtype(module: Any, value: Any) -> Any:
    """Return arguments in the dtype of the parameters of a module, if it has one float type."""
    kinds = {one.dtype for one in module.parameters(recurse=False) if one.dtype.is_floating_point}
    if len(kinds) != 1:
        return value
    (kind,) = kinds
    if hasattr(value, "dtype") and value.dtype.is_floating_point:
        return value.to(kind)
    if isinstance(value, tuple):
        return tuple(_in_dtype(module, one) for one in value)
    return {key: _in_dtype(module, one) for key, one in value.items()} if type(value) is dict else value


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "detach"):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)


def _bound(module: Any, call: Call) -> Any:
    """Return the largest difference of a float32 computation, for each output or for all.

    A linear layer and a convolution have the bound of their sums. Another layer has four times its own difference to
    float64. A module of several layers has `COMPOSITE` times the bound of its longest sum.
    """
    import torch  # optional

    outputs = [one for one in _tensors(call.output) if one.dtype.is_floating_point]
    eps = max((torch.finfo(one.dtype).eps for one in outputs), default=0.0)
    largest = max((float(one.abs().max()) for one in outputs if one.numel()), default=0.0)
    weight = getattr(module, "weight", None)
    kinds = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    base = next((kind for kind in kinds if isinstance(module, kind)), None)
    if base is not None and weight is not None and call.args:
        bias = None if module.bias is None else module.bias.double().abs()
        sums = with_weight(module, weight.double().abs(), bias)(call.args[0].double().abs())
        k = weight[0].numel()
        return 2 * (k + 1) * eps * sums
    if not list(module.children()):
        try:
            exact = copy.deepcopy(module).double()(*_double(call.args), **_double(call.kwargs))
            pairs = zip(_tensors(call.output), _tensors(exact), strict=True)
            own = max((float((x.double() - y.double()).abs().max()) for x, y in pairs if x.numel()), default=0.0)
        except Exception:  # a layer without float64
            own = largest * eps
        return 4 * own + 8 * eps * largest if outputs else 0.0
    lengths = [one[0].numel() for one in module.parameters() if one.ndim > 1]
    return COMPOSITE * 2 * (max(lengths, default=1) + 1) * eps * largest


def _double(value: Any) -> Any:
    if hasattr(value, "dtype"):
        return value.double() if value.dtype.is_floating_point else value
    if isinstance(value, tuple):
        return tuple(map(_double, value))
    return {key: _double(one) for key, one in value.items()} if type(value) is dict else value


def _residual(wanted: Any, found: Any, bound: Any) -> float:
    """Return the largest difference in units of the bound."""
    first, second = list(_tensors(wanted)), list(_tensors(found))
    if len(first) != len(second) or any(x.shape != y.shape for x, y in zip(first, second, strict=True)):
        return float("inf")
    worst = 0.0
    for x, y in zip(first, second, strict=True):
        far = (x.double() - y.double()).abs()
        far[(x == y) | ((x != x) & (y != y))] = 0  # also infinities of one sign
        if not x.numel():
            continue
        if not x.dtype.is_floating_point:
            worst = max(worst, float("inf") if bool(far.any()) else 0.0)
            continue
        limit = bound if not hasattr(bound, "shape") or bound.shape == far.shape else float(bound.max())
        ratio = far / limit if hasattr(limit, "shape") else far / limit if limit else far * float("inf")
        ratio[far == 0] = 0.0
        worst = max(worst, float(ratio.nan_to_num(nan=float("inf"), posinf=float("inf")).max()))
    return worst


def _drift(wanted: Any, found: Any) -> float | None:
    """Return the largest difference of two outputs, in units of the largest output."""
    first, second = list(_tensors(wanted)), list(_tensors(found))
    if len(first) != len(second) or any(x.shape != y.shape for x, y in zip(first, second, strict=True)):
        return None
    far = most = 0.0
    for x, y in zip(first, second, strict=True):
        if not x.numel():
            continue
        apart = (x.double() - y.double()).abs()
        apart[(x == y) | ((x != x) & (y != y))] = 0  # also infinities of one sign
        far = max(far, float(apart.nan_to_num(nan=float("inf")).max()))
        most = max(most, float(x.double().abs().nan_to_num(nan=0.0, posinf=0.0).max()))
    return far / most if most else far


def _first_difference(first: Any, second: Any) -> tuple[int, ...] | str | None:
    """Return the first index in which two inputs differ, None if they are equal."""
    a, b = list(_tensors(first)), list(_tensors(second))
    if len(a) != len(b):
        return "another number of tensors"
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape:
            return "another shape"
        wrong = (x != y) & ~((x != x) & (y != y))
        if bool(wrong.any()):
            return tuple(int(i) for i in wrong.nonzero()[0])
    return None


def _cause(pair: tuple[Any, Any], call: Call, bound: Any) -> tuple[str, float, list[tuple[str, float]], list[str]]:
    """Test the hypotheses in their order; return the cause, its residual, all that were tested, and notes."""
    tested: list[tuple[str, float]] = []
    for name, test in HYPOTHESES.items():
        found = test(pair, call, bound)
        if found is None:
            continue
        residual, cause, note = found
        tested.append((name, residual))
        if residual <= 1:
            return cause, residual, tested, [note] if note else []
    residual = _residual(call.output, _again(pair[1], call), bound)
    return "unexplained", residual, tested, []


Test = tuple[float, str, str] | None


def _nondeterminism(pair: tuple[Any, Any], call: Call, bound: Any) -> Test:
    for side, module in zip("ab", pair, strict=True):
        runs = [_again(module, call) for _ in range(2)]
        pairs = list(zip(*map(list, map(_tensors, runs)), strict=False))
        if any(not bool(((x == y) | ((x != x) & (y != y))).all()) for x, y in pairs):
            return 0.0, "nondeterminism", f"{side} has other outputs in a second run"
    return float("inf"), "nondeterminism", ""


def _states(pair: tuple[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    first, second = (dict(one.named_parameters()) | dict(one.named_buffers()) for one in pair)
    is_same = first.keys() == second.keys() and all(first[key].shape == second[key].shape for key in first)
    return (first, second) if is_same else None


def _with_state(module: Any, state: Mapping[str, Any]) -> Any:
    made = copy.deepcopy(module)
    for key, own in (dict(made.named_parameters()) | dict(made.named_buffers())).items():
        own.data.copy_(state[key])
    return made


def _weights(pair: tuple[Any, Any], call: Call, bound: Any) -> Test:
    states = _states(pair)
    if states is None:
        return None
    first, second = states
    other = [key for key in first if not bool((first[key].to(second[key].dtype) == second[key]).all())]
    if not other:
        return None
    found = _again(_with_state(pair[1], first), call)
    kind = "position" if any(word in key for key in other for word in ("inv_freq", "rotary")) else "weights"
    turned = [key for key in other if first[key].ndim == 2 and first[key].shape == second[key].T.shape
              and bool((first[key] == second[key].T).all())]  # fmt: skip
    note = f"{', '.join(other[:4])} of b {'are transposed' if turned == other else 'have other values'}"
    return _residual(call.output, found, bound), "layout" if turned == other else kind, note


def _format(pair: tuple[Any, Any], call: Call, bound: Any) -> Test:
    import torch  # optional

    if (packed := with_packed_values(*pair, call.args)) is not None:
        made, words = packed
        return _residual(made(*call.args, **call.kwargs), _again(pair[1], call), bound), "format", words
    kinds = [{one.dtype for one in module.parameters() if one.dtype.is_floating_point} for module in pair]
    if kinds[0] == kinds[1] or len(kinds[1]) != 1:
        return None
    (kind,) = kinds[1]
    found, wanted = _again(copy.deepcopy(pair[0]).to(kind), call), _again(pair[1], call)
    largest = max((float(one.double().abs().max()) for one in _tensors(wanted) if one.numel()), default=0.0)
    return _residual(found, wanted, 4 * torch.finfo(kind).eps * largest), "format", f"b has parameters of {kind}"


def _operation(pair: tuple[Any, Any], call: Call, bound: Any) -> Test:
    """Give b the plain attributes of a, such as eps; other classes and other code are another operation."""
    made = copy.deepcopy(pair[1])
    names = []
    for (name, left), (_, right) in zip(pair[0].named_modules(), made.named_modules(), strict=False):
        for key, value in vars(left).items():
            is_plain = (
                isinstance(value, (int, float, str, bool, tuple)) and not key.startswith("_") and key != "training"
            )
            if is_plain and key in vars(right) and vars(right)[key] != value:
                names.append(f"{name}.{key}".lstrip("."))
                setattr(right, key, value)
        if left.training != right.training:
            names.append(f"{name}.training".lstrip("."))
            right.training = left.training
    if names:
        residual = _residual(call.output, _again(made, call), bound)
        if residual <= 1:
            cause = "position" if any("rope" in name or "theta" in name for name in names) else "operation"
            return residual, cause, f"b has other values of {', '.join(names[:4])}"
    if type(pair[0]) is not type(pair[1]) and not list(pair[1].children()):
        return 0.0, "operation", f"b is a {type(pair[1]).__name__}, a is a {type(pair[0]).__name__}"
    return (float("inf"), "operation", "") if names else None


def _accumulator(pair: tuple[Any, Any], call: Call, bound: Any) -> Test:
    """Emulate the sums of a linear layer with narrow accumulators."""
    weight = getattr(pair[0], "weight", None)
    if weight is None or weight.ndim != 2 or list(pair[1].children()) or len(call.args) != 1:
        return None
    x = call.args[0].detach().float().cpu().numpy().reshape(-1, weight.shape[1])
    if x.shape[0] * weight.numel() > LARGEST_EMULATED:
        return None
    w = weight.detach().float().cpu().numpy()
    bias = getattr(pair[0], "bias", None)
    wanted = next(iter(_tensors(_again(pair[1], call)))).float().cpu()
    worst = float("inf")
    for options in ACCUMULATORS:
        sums = emulate.matmul(x, w.T, **options)
        found = wanted.new_tensor(sums) + (0 if bias is None else bias.detach().float().cpu())
        residual = _residual(wanted, found.reshape(wanted.shape), bound)
        worst = min(worst, residual)
        if residual <= 1:
            return residual, "accumulator", f"b sums like {' '.join(map(str, options.values()))}"
    return worst, "accumulator", ""


def _arguments_inside(pair: tuple[Any, Any], call: Call, bound: Any) -> Test:
    """Return mask, position or cache if such an argument is the first that differs among the inner calls."""
    found = _inside(pair, call)
    return found if found is not None and found[1] != "operation" else None


def _code_inside(pair: tuple[Any, Any], call: Call, bound: Any) -> Test:
    """Return the place of other code, between which inner calls."""
    return _inside(pair, call)


def _named(module: Any, call: Call) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    try:
        return dict(inspect.signature(module.forward).bind(*call.args, **call.kwargs).arguments)
    except (TypeError, ValueError):
        return {**{str(i): one for i, one in enumerate(call.args)}, **call.kwargs}


def _inside(pair: tuple[Any, Any], call: Call) -> Test:
    """Find the first inner call of b whose inputs differ from those of a: its argument names the cause."""
    if not call.children:
        return None
    calls = [one for one in _recorded(pair[1], call.args, call.kwargs) if one.name]
    prefix = f"{call.name}." if call.name else ""
    wanted = dict(_numbered(_below(call), prefix))
    for key_of_call, one in _numbered(calls):
        other = wanted.get(key_of_call)
        if other is None:
            continue
        module = pair[1].get_submodule(one.name)
        named = _named(module, other), _named(module, one)
        for key in {**named[0], **named[1]}:
            if _first_difference([named[0].get(key)], [named[1].get(key)]) is not None:
                cause = next((cause for part, cause in ARGUMENTS.items() if part in key), "operation")
                words = f"{one.name} has another {key}: the code before it differs"
                if cause == "operation" and _is_permuted(named[0].get(key), named[1].get(key)):
                    cause, words = "layout", f"{one.name} has the values of {key} in another order"
                return 0.0, cause, words
    return 0.0, "operation", "the code after its layers differs"


def _numbered(calls: Iterable[Call], prefix: str = "") -> Iterator[tuple[tuple[str, int], Call]]:
    """Yield calls in the order in which they begin, each with its name and the number of calls of this name before."""
    counts: Counter[str] = Counter()
    for one in sorted(calls, key=lambda one: one.start):
        name = one.name.removeprefix(prefix)
        yield (name, counts[name]), one
        counts[name] += 1


def _is_permuted(first: Any, second: Any) -> bool:
    """Tell whether two tensors have the same values in another order or shape."""
    if not all(hasattr(one, "detach") for one in (first, second)) or first.numel() != second.numel():
        return False
    a, b = (one.detach().flatten().sort().values for one in (first, second))
    return bool((a == b).all())


def _below(call: Call) -> Iterator[Call]:
    for one in call.children:
        yield one
        yield from _below(one)


# In the order in which they are tested.
HYPOTHESES: dict[str, Callable[[tuple[Any, Any], Call, Any], Test]] = {
    "nondeterminism": _nondeterminism,
    "weights": _weights,
    "format": _format,
    "accumulator": _accumulator,
    "arguments": _arguments_inside,
    "operation": _operation,
    "code": _code_inside,
}
