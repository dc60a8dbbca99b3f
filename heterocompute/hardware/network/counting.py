"""Parameters, operations, activations and bytes of a network, by layer and in total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.lazy import renamed
from ...base.notebooks.shown import Shown
from ...base.values import check_count
from ...report.page import rows_html
from ..chips.chip import dtype_bits
from .conventions import convention, counts_activations
from .graph import Flow
from .lookup import as_network
from .loops import loops_of, runs_of


@dataclass(frozen=True, repr=False)
class Counts(Shown):
    """The result of `count`.

    Attributes
    ----------
    network : str
    convention : str
        The tool or rule that the numbers follow.
    unit : {"MAC", "FLOP"}
        Unit of `total`. fvcore calls a multiply-add one FLOP.
    total : int
        The number that the tool prints.
    macs, flops : int
        The same as multiply-adds and as operations. If the tool's unit is a multiply-add, `flops` is twice `macs`.
        Exception: for fvcore, whose FLOP is a multiply-add, both are `total`. For ``"torch"`` and ``"flop"``, `macs` is
        half of `total`.
    params : int
        Number of parameters, including biases but not running statistics.
    activations : int
        Output elements of convolutions and matmuls, as fvcore counts them.
    bytes : int
        Bytes of the parameters.
    batch : int
    layers : list of dict
        For each node: ``name``, ``kind``, ``output`` (shape of a sample), ``params``, ``macs``, ``count`` (in the
        convention), ``activations``, ``bytes``, ``loops`` (None, or N, C, K, P, Q, R, S, stride, dilation and groups,
        as in `Network.problems`). Multiply-adds and counts are those of the whole batch.
    leaves_out : str
        What the convention does not count, and branches of an ONNX file that are not counted.
    """

    network: str
    convention: str
    unit: str
    total: int
    macs: int
    flops: int
    params: int
    activations: int
    bytes: int
    batch: int
    layers: list[dict[str, Any]] = field(compare=False)
    leaves_out: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("network", "convention", "unit", "total", "macs", "flops", "params", "activations", "bytes", "batch")
        return {**{key: getattr(self, key) for key in keys}, "leaves_out": self.leaves_out, "layers": self.layers}

    def _repr_html_(self) -> str:
        return rows_html(self.layers, repr(self).strip("<>"))

    def __repr__(self) -> str:
        return (
            f"<Counts of {self.network}, like {self.convention}: {self.total:,} {self.unit}, "
            f"{self.params:,} parameters, {self.activations:,} activations, {self.bytes:,} bytes, batch {self.batch}>"
        )


@renamed(model="network")
def count(
    network: object,
    input_shape: Sequence[int] | None = None,
    like: str = "mac",
    *,
    batch: int = 1,
    dtype: Any = "fp32",
    inputs: object = None,
    context: int | None = None,
) -> Counts:
    """Count parameters, operations, activations and bytes.

    Parameters
    ----------
    network : Network, str, path, torch.nn.Module or sequence of layers
        A network of `hw.networks` or its name, the path of an ``.onnx`` file, a module, or a sequence of layers. The
        forward pass of a module runs once, if possible without memory, and every operator call is counted. Of a
        conditional (`If`) of an ONNX file, the branch with more multiply-adds counts, unless shapes decide.
    input_shape : sequence of int, optional
        Shape of one sample, without a batch. Default: the network's own.
    like : str, optional
        The convention: ``mac``, ``flop``, ``thop``, ``fvcore``, ``ptflops``, ``ptflops-aten``, ``torchinfo``,
        ``torch``. Each omits different operations, see ``Counts.leaves_out``.
    batch : int, optional
    dtype : str, optional
        Type of the stored parameters, for `bytes`.
    inputs : tuple, list or dict, optional
        In place of `input_shape`, for a module with several inputs, such as CLIP, T5 or Whisper: arrays with a batch of
        one, or shapes without a batch, by position or by the names of keywords, as in
        ``inputs={"input_ids": (16,), "pixel_values": (3, 224, 224)}``.
    context : int, optional
        One generated token after so many others, of a transformer, as ``network.decoding(context)``.

    Returns
    -------
    Counts

    Raises
    ------
    ValueError
        The network, convention or type is unknown, or shapes do not match (the message names the layer).

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> c = hw.count("resnet50")
    >>> c.macs, c.flops, c.params
    (4089184256, 8178368512, 25557032)
    >>> hw.count("resnet50", like="thop").total
    4133742592
    """
    rule = convention(like)
    batch = check_count("count", "batch", batch)
    bits = dtype_bits(dtype)
    network = as_network(network, input_shape, inputs=inputs)
    if context is not None:
        network = network.decoding(context)
    rows = [_row(flow, rule.rule(flow, runs_of(flow, batch)), batch, bits) for flow in network]
    total = sum(row["count"] for row in rows)
    macs, flops = (total, total * rule.flops_per_count) if rule.unit == "MAC" else (total, total)
    if rule.name in ("torch", "flop"):
        macs = total // 2
    return Counts(
        network.name,
        rule.name,
        rule.unit,
        total,
        macs,
        flops,
        network.params,
        sum(row["activations"] for row in rows),
        sum(row["bytes"] for row in rows),
        batch,
        rows,
        "; ".join(filter(None, (rule.leaves_out, network.leaves_out))),
    )


def _row(flow: Flow, counted: int, batch: int, bits: int) -> dict[str, Any]:
    loops = loops_of(flow, batch)
    products = runs_of(flow, batch)
    return {
        "name": flow.name,
        "kind": type(flow.layer).__name__,
        "output": list(flow.output),
        "params": flow.layer.params,
        "macs": products * flow.macs,
        "count": counted,
        "activations": batch * flow.output_elements if counts_activations(flow) else 0,
        "bytes": -(-flow.layer.params * bits // 8),
        "loops": None if loops is None else loops.to_dict(),
    }
