"""Convolutions one after the other with sums, limits and ReLU between them: one call of the core (hc_conv_chain).

    x -> Conv -> Clip -> Conv -> Add -> Relu -> y      one call, with codes between the convolutions
                  |               |
                  +---------------+

A run needs quantized weights and quantized activations. It has the bits of its nodes one after the other, which run
wherever the call does not apply: dense weights, other shapes, values that are not finite.
"""

from __future__ import annotations

from collections import ChainMap
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...arrays.components import core_format
from ...arrays.prepacked import Prepacked, prepack
from ...arrays.quantized import QuantizedArray
from ...base import runtime
from ...files.containers.onnx_graph import STANDARD, text_of
from .model import plain_opset
from .pointwise import CLIP, Refused, steps_of
from .segments import Live, Request, Segment, Values, connected

Array = np.ndarray[Any, Any]
LEAST = 3  # convolutions of a run: shorter ones are not faster than their nodes
KEPT = 8  # shapes of inputs whose programs are kept
NOT_FINITE = "not finite"  # in the core's message about one call


class Link:
    """A convolution of a run with what follows it."""

    def __init__(self, product: Any, source: str, bias: str | None) -> None:
        self.product, self.source, self.bias = product, source, bias
        given = product.attributes
        top, left, bottom, right = given.get("pads") or (0, 0, 0, 0)
        is_even = top == bottom and left == right
        self.padding = (top, left) if is_even else (0, 0)
        self.around = (0, 0, 0, 0) if is_even else (top, bottom, left, right)
        self.stride = tuple(given.get("strides") or (1, 1))
        self.dilation = tuple(given.get("dilations") or (1, 1))
        self.groups = given.get("group", 1)
        self.plus: str | None = None
        self.limits: tuple[float, float] | None = None


class Builder:
    """A run of nodes that follow each other in the graph."""

    def __init__(self, cut: Any, uses: dict[str, int]) -> None:
        self._cut, self._uses = cut, uses
        self.live: list[Live] = []
        self.links: list[Link] = []
        self.of: dict[str, int] = {}  # the link whose result a value is
        self.inner: set[str] = set()  # all values of the run

    def add(self, one: Live) -> bool:
        """Take a node if the run can compute it."""
        kind, node = one.node.op_type, one.node
        if node.domain not in STANDARD or len(node.output) != 1:
            return False
        if kind == "Conv":
            taken = self._convolution(one)
        elif kind == "Add" and len(one.names) == 2:
            taken = self._sum(one)
        elif kind in ("Clip", "Relu"):
            taken = self._clamp(one)
        else:
            taken = False
        if taken:
            self.live.append(one)
            self.inner.update(one.outputs)
        return taken

    def _convolution(self, one: Live) -> bool:
        product = getattr(one.step, "product", None)
        if product is None or product.place != 1 or product.weight.order != (0, 1, 2, 3):
            return False
        given, source = product.attributes, product.inputs[0]
        bias = product.inputs[2] if len(product.inputs) > 2 and product.inputs[2] else None
        if given.get("auto_pad", b"NOTSET") not in (b"", b"NOTSET") or len(given.get("pads") or (0,) * 4) != 4:
            return False
        steps = [given.get(key) or (1, 1) for key in ("strides", "dilations")]
        if any(len(pair) != 2 or min(pair) < 1 for pair in steps):
            return False
        if min(given.get("pads") or (0,)) < 0 or (bias is not None and self._cut.fixed.get(bias) is None):
            return False
        if source in self.inner and source not in self.of:
            return False
        link = Link(product, source, bias)
        if any(link.around) and source not in self.of:
            return False
        self.of[one.outputs[0]] = len(self.links)
        self.links.append(link)
        return True

    def _last(self, name: str) -> Link | None:
        """Return the link that a value is the result of, if nothing else reads the value."""
        at = self.of.get(name)
        return None if at is None or self._uses[name] != 1 or self.links[at].limits else self.links[at]

    def _sum(self, one: Live) -> bool:
        first, other = one.names
        if any(self._cut.fixed.get(name) is not None for name in one.names):
            return False
        if self.of.get(other, -1) > self.of.get(first, -1):
            first, other = other, first
        link = self._last(first)
        if link is None or link.plus is not None or (other in self.inner and other not in self.of):
            return False
        if self.of.get(other, -1) >= self.of[first]:
            return False
        link.plus = other
        self.of[one.outputs[0]] = self.of.pop(first)
        return True

    def _clamp(self, one: Live) -> bool:
        link = self._last(one.names[0])
        constants = {name: self._cut.fixed.get(name) for name in one.names[1:]}
        if link is None or None in constants.values():
            return False
        constants = {name: self._cut.value(name, {}) for name in constants}
        if any(type(value) is not np.ndarray or value.dtype != np.float32 for value in constants.values()):
            return False
        try:
            (step,) = steps_of([one.node], constants, plain_opset(self._cut.network.model))
        except Refused:
            return False
        if step.operation != CLIP or step.a != one.names[0]:
            return False
        link.limits = step.numbers[0], step.numbers[1]
        self.of[one.outputs[0]] = self.of.pop(one.names[0])
        return True


def chained(cut: Any, live: list[Live]) -> list[Live]:
    """Return the nodes of a graph with each run of convolutions as one."""
    uses: dict[str, int] = {}
    for name in [name for one in live for name in _occurrences(one)] + cut.outputs:
        uses[name] = uses.get(name, 0) + 1
    found: list[Live] = []
    run = Builder(cut, uses)
    for one in live:
        if run.live and run.add(one):
            continue
        found += _closed(cut, run)
        run = Builder(cut, uses)
        if one.node.op_type != "Conv" or not run.add(one):
            found.append(one)
    return found + _closed(cut, run)


def _occurrences(one: Live) -> list[str]:
    """Return the values that a node reads, each as often as it reads it."""
    plain = [text_of(name) for name in one.node.input if name]
    return plain + [name for name in one.names if name not in plain]  # of subgraphs


def _closed(cut: Any, run: Builder) -> list[Live]:
    if len(run.links) < LEAST:
        return run.live
    step = Chain(cut, run)
    return [Live(None, step, step.inputs, sorted(step.produced))]


class Program:
    """Arguments of the calls with inputs of some shapes.

    Parameters
    ----------
    arguments : list of tuple
        Of the core, of each convolution.
    sizes : list of tuple
        Shapes of their results.
    """

    def __init__(self, arguments: list[Any], sizes: list[Any]) -> None:
        self.arguments, self.sizes = arguments, sizes
        self.guesses = [True] * len(arguments)
        self.filters: list[Any] = [None] * len(arguments)


class Chain(Segment):
    """A run of convolutions, one call of the core if it applies."""

    multiplies = True

    def __init__(self, cut: Any, run: Builder) -> None:
        super().__init__(cut, [one.node for one in run.live])
        self._links, self._of, self._live = run.links, run.of, run.live
        sources = [name for link in run.links for name in (link.source, link.plus) if name and name not in run.of]
        self._sources = [name for name in dict.fromkeys(sources) if name in self.inputs]
        self._results: dict[str, int] = {}
        self._steps: list[Any] | None = None
        self._dead: list[list[str]] = []
        self._held: tuple[Any, dict[Any, Program | None]] = (None, {})

    def run(self, values: Values, request: Request) -> None:
        """Compute the outputs by one call, or by the nodes one after the other."""
        if not self.outputs:
            return
        if self._by_one_call(values, request):
            return
        if self._steps is None:
            steps = self._cut.steps_of(self._live)
            self._dead, self._steps = connected(steps, set(self.outputs)), steps
        own: Values = ChainMap({}, values)
        for step, dead in zip(self._steps, self._dead, strict=True):
            step.run(own, request)
            for name in dead:
                own.pop(name, None)
        values.update({name: own[name] for name in self.outputs})

    def _by_one_call(self, values: Values, request: Request) -> bool:
        if request.activations is None or runtime.tuned() or runtime.backend_device() is not None:
            return False
        if any(name not in self._of for name in self.outputs):
            return False
        inputs = tuple([values[name] for name in self._sources])
        if any(type(one) is not np.ndarray or one.dtype != np.float32 or one.ndim != 4 for one in inputs):
            return False
        stored = [request.weights.get(link.product.weight.name) for link in self._links]
        programs = self._programs(stored, request.activations)
        key = (runtime.run()[0], *[one.shape for one in inputs])
        if key not in programs:
            while len(programs) >= KEPT:  # another thread may do the same
                programs.pop(next(iter([*programs]), None), None)
            programs[key] = self._made(stored, request.activations, [one.shape for one in inputs])
        program = programs.get(key)
        if program is None:
            return False
        try:
            self._call(program, tuple([np.ascontiguousarray(one) for one in inputs]), values)
        except ValueError as error:  # the nodes name the layer
            if NOT_FINITE not in str(error) and all(np.isfinite(one).all() for one in inputs):
                programs[key] = None
            return False
        return True

    def _programs(self, stored: list[Any], activations: Any) -> dict[Any, Program | None]:
        """Return the programs of some weights; those of other weights are dropped."""
        held = self._held  # one look: another thread may replace it
        now = [*stored, activations]
        if held[0] is None or any(a is not b for a, b in zip(held[0], now, strict=True)):
            held = self._held = now, {}
        return held[1]

    def _made(self, stored: list[Any], activations: Any, shapes: list[Any]) -> Program | None:
        """Return the program for inputs of some shapes, or None."""
        known = dict(zip(self._sources, shapes, strict=True))
        number = {name: i for i, name in enumerate(self._sources)}
        number |= {name: len(number) + at for name, at in self._of.items()}
        arguments, sizes = [], []
        final = {at: name for name, at in self._of.items()}
        for at, (link, w) in enumerate(zip(self._links, stored, strict=True)):
            if not isinstance(w, QuantizedArray) or w._is_far or w.ndim != 4 or link.source not in known:
                return None
            x, k = known[link.source], w.shape
            rows, columns = (
                (x[2 + i] + link.around[2 * i] + link.around[2 * i + 1] + 2 * link.padding[i]
                 - link.dilation[i] * (k[2 + i] - 1) - 1) // link.stride[i] + 1 for i in range(2)
            )  # fmt: skip
            size = (x[0], k[0], rows, columns)
            if len(x) != 4 or x[1] != k[1] * link.groups or min(size) < 1:
                return None
            if link.plus is not None and known.get(link.plus) != size:
                return None
            bias = None if link.bias is None else np.ascontiguousarray(self._cut.plain(self._cut.value(link.bias, {})))
            if bias is not None and (bias.dtype != np.float32 or bias.shape != k[:1]):
                return None
            known[final[at]] = size
            sizes.append(size)
            arguments.append((
                number[link.source], -1 if link.plus is None else number[link.plus], _frozen(w, link.groups), bias,
                core_format(activations), link.stride, link.padding, link.dilation, link.groups, link.around,
                link.limits is not None, link.limits or (0.0, 0.0), (0, 0),
            ))  # fmt: skip
        return Program(arguments, sizes)

    def _call(self, program: Program, inputs: tuple[Array, ...], values: Values) -> None:
        outs = {self._of[name]: np.empty(program.sizes[self._of[name]], np.float32) for name in self.outputs}
        state = zip(program.arguments, program.guesses, program.filters, strict=True)
        steps = tuple([(*fixed, guess, filters, outs.get(i)) for i, (fixed, guess, filters) in enumerate(state)])
        kept = _core.conv_chain(runtime.run(), inputs, steps)
        for i, (guess, filters) in enumerate(kept):
            program.guesses[i] = guess
            if filters is not None:
                program.filters[i] = filters
        values.update({name: outs[self._of[name]] for name in self.outputs})


def _frozen(w: QuantizedArray, groups: int) -> QuantizedArray:
    """Return a weight whose components are read-only, because the packed filters would not follow a change."""
    source = w.source if isinstance(w, Prepacked) else w
    for component in source.components.values():
        component.flags.writeable = False
    return prepack(w) if groups == 1 else w
