"""Tables of papers for your own network: the formats, patterns or machines of a paper, measured or modelled.

Accuracy is measured, or the error of the weights for a file without examples. heterocompute.hardware models silicon,
machines and training memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import hardware as hw
from ..arrays.eie import encode_eie
from ..base.errors import WrongValue, printable, shown
from ..base.progress import Progress
from ..base.regular import open_regular
from ..base.texts import counted, near_words
from ..hardware.ledger.figure import STATUSES
from ..interop.onnx_run import OnnxNetwork
from ..pruning.prune import prune
from ..ptq.network import calibrate
from ..report.files import write_text
from ..report.numbers import four_digits
from ..report.published import published_page
from ..report.results.tabular import Tabular
from ..zoo import adder, digits
from .study import study

Array = np.ndarray[Any, Any]
NETWORKS = {"digits": digits, "adder": adder}
CALIBRATION = 128  # examples


@dataclass(frozen=True, repr=False)
class PaperTable(Tabular):
    """The result of `reproduce_paper`; `save` writes a file that `load` reads.

    Attributes
    ----------
    paper, model, title, summary : str
    columns : dict of str to str
        Titles of the columns by key.
    table : list of dict
    published : list of dict
        Records of `hw.published` that belong to the paper.
    """

    paper: str
    model: str
    title: str
    summary: str
    columns: Mapping[str, str]
    table: list[dict[str, Any]]
    published: list[dict[str, Any]] = field(default_factory=list)

    kind = "table of a paper"
    names = ("weights", "activations", "format", "method", "density", "name", "way", "vector", "scale_bits")
    no_sum = "each paper has a table of its own"

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        if not all(set(row) == set(fields["columns"]) for row in fields["table"]):
            raise WrongValue("table has other columns than columns")

    def __repr__(self) -> str:
        return f"<PaperTable {self.title}: {counted(len(self.table), 'row')}>"

    @property
    def texts(self) -> set[str]:
        """Keys of the columns with text."""
        return {key for key in self.columns if any(isinstance(row[key], str) for row in self.table)}

    def to_html(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write one self-contained page with the table, and the published figures of the paper.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page. Default: the title of the table.
        """
        rows = [[(cell(row[key]), "" if row[key] is None else row[key]) for key in self.columns] for row in self.table]
        paper = self.summary, list(self.columns.values()), rows
        write_text(path, published_page(title or self.title, self.published, STATUSES, paper, self._stored()))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        keys = ("paper", "model", "title", "summary", "table", "published")
        return {key: getattr(self, key) for key in keys}


def cell(value: Any) -> str:
    """Return a value of a table in a few characters."""
    return "-" if value is None else value if isinstance(value, str) else four_digits(value)


@dataclass(frozen=True)
class _Subject:
    """A network, its evaluation, and inputs for calibration."""

    name: str
    network: Any  # with weights and evaluate, or the path of a file
    axis: Any = None
    calibration: Callable[[Any], Any] | None = None
    keep: Any = None  # file of results

    @property
    def judged(self) -> bool:
        return not isinstance(self.network, str)


def reproduce_paper(
    paper: str,
    model: str | os.PathLike[str] = "digits",
    data: str | None = None,
    labels: str | None = None,
    *,
    progress: Progress | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> PaperTable:
    """Run the table of a paper on a network.

    Parameters
    ----------
    paper : str
        ``vs-quant``, ``mx``, ``gptq``, ``nm-sparsity``, ``deep-compression``; of the model side ``eyeriss``,
        ``tpu-v1``, ``mixed-precision-memory``.
    model : str or os.PathLike, optional
        A network of `heterocompute.zoo`, ``digits`` or ``adder``, or a file: ONNX, safetensors. For the model side a
        network as for `hw.count`.
    data, labels : str, optional
        Paths of ``.npy`` files: inputs of an ONNX model and the class of each. Without them tables have the error of
        the weights in place of the accuracy.
    progress : callable, optional
        Called as ``progress(done, total, text)``.
    keep : path, optional
        File of results of `heterocompute.study`, which computes the rows: an interrupted table continues.

    Raises
    ------
    ValueError
        No such paper or network; a paper whose table needs examples without them.
    """
    if not isinstance(paper, str) or paper not in PAPERS:
        near = near_words(str(paper), PAPERS, 3) or list(PAPERS)
        raise WrongValue(f"reproduce: paper is {shown(paper)}, expected one of {', '.join(near)}")
    tell = progress or (lambda done, total, text: None)
    topic, make = PAPERS[paper]
    model = os.fspath(model)
    subject = replace(_subject(model, data, labels), keep=keep) if make in MEASURED else model
    title, summary, columns, rows = make(subject, tell)
    records = [one.to_dict() for one in hw.published(topic)] if topic else []
    kept = {key: text for key, text in columns.items() if any(row.get(key) is not None for row in rows)}
    table = [{key: row.get(key) for key in kept} for row in rows]
    return PaperTable(paper, model, f"{title}: {printable(os.path.basename(model))}", summary, kept, table, records)


def _subject(model: str, data: str | None, labels: str | None) -> _Subject:
    if model in NETWORKS:
        network = NETWORKS[model]()
        examples = network.train_x[:CALIBRATION]
        return _Subject(model, network, None, lambda held: network.forward(held, examples))
    if (data is None) != (labels is None):
        raise WrongValue("reproduce: data and labels go together: inputs, and the class of each")
    if data is None or labels is None:
        return _Subject(model, model)
    x, classes = _array(data), _array(labels)
    found = OnnxNetwork(model, x, classes)
    return _Subject(model, found, found.axis, lambda held: found.run(x[:CALIBRATION], held))


def _array(path: str) -> Array:
    try:
        with open_regular(path) as file:
            found = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise WrongValue(f"reproduce: {printable(path)} is not a NumPy array (.npy): {error}") from None
    if not isinstance(found, np.ndarray):
        raise WrongValue(f"reproduce: {printable(path)} is an archive of NumPy, expected one array (.npy)")
    return found


def _studied(subject: _Subject, formats: Sequence[str], activations: Sequence[str] | None, **options: Any) -> Any:
    if not subject.judged:
        activations = None
    options |= {"axis": subject.axis, "activations": activations, "keep": subject.keep}
    return study(subject.network, list(formats), **options).table


def _metric(row: Mapping[str, Any]) -> float | None:
    found: float | None = row.get("accuracy", row.get("evaluate"))
    return found


def _vs_quant(subject: _Subject, tell: Progress) -> Any:
    bits, vectors, scales = (3, 4, 6, 8), (16, 32, 64), (4, 6)
    base = hw.mac("int8", "int8")
    rows, done, total = [], 0, len(vectors) * len(scales) + 1

    def add(w: str, a: str, row: Mapping[str, Any], vector: object, scale: object) -> None:
        cost = hw.mac(w, a) if a else None
        rows.append({
            "weights": w, "activations": a or "-", "vector": vector, "scale_bits": scale, "bits": row["bits"],
            "accuracy": _metric(row), "sqnr_db": row["sqnr_db"],
            "energy": cost and cost.energy_pj / base.energy_pj, "area": cost and cost.area_um2 / base.area_um2,
        })  # fmt: skip

    def pairs(names: Sequence[str], inputs: Sequence[str], vector: object, scale: object) -> None:
        for row in _studied(subject, names, inputs):
            if row["format"] == "fp32" or (subject.judged and row["activations"] is None):
                continue
            add(row["format"], row["activations"] or ("" if subject.judged else row["format"]), row, vector, scale)

    tell(done, total, "one scale a row")
    pairs([f"int{b}" for b in bits], ["int4", "int8"], "row", "float")
    for vector in vectors:
        for scale in scales:
            done += 1
            tell(done, total, f"vectors of {vector}, scales of {scale} bits")
            tail = f"-g{vector}-s{scale}"
            pairs([f"vsq{b}{tail}" for b in bits], [f"vsq4{tail}", f"vsq8{tail}"], vector, scale)
    columns = {
        "weights": "weights", "activations": "activations", "vector": "V", "scale_bits": "M", "bits": "bits per value",
        "accuracy": "accuracy", "sqnr_db": "dB of weights", "energy": "energy to int8", "area": "area to int8",
    }  # fmt: skip
    summary = (
        "W x A x V x M of VS-Quant (Dai et al., MLSys 2021): bits of weights and activations, values that share a "
        "scale, bits of the scale. Energy and area are those of a multiply-add (hw.mac) over one of int8"
    )
    return "VS-Quant", summary, columns, rows


def _formats_table(subject: _Subject, formats: Sequence[str], tell: Progress) -> list[dict[str, Any]]:
    """Return one row per format that weights and activations share, next to fp32."""
    base, rows = hw.mac("int8", "int8"), []
    for i, text in enumerate(("fp32", *formats)):
        tell(i, len(formats) + 1, text)
        found = _studied(subject, [text], None if text == "fp32" else [text])
        row = found[0] if text == "fp32" else found[-1]
        cost = hw.mac(text, text)
        rows.append({
            "format": text, "bits": row["bits"], "accuracy": _metric(row), "sqnr_db": row["sqnr_db"],
            "energy": cost.energy_pj / base.energy_pj, "area": cost.area_um2 / base.area_um2,
        })  # fmt: skip
    return rows


def _mx(subject: _Subject, tell: Progress) -> Any:
    names = ("mxint8", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "nvfp4")
    columns = {"format": "format", "bits": "bits per value", "accuracy": "accuracy", "sqnr_db": "dB of weights",
               "energy": "energy to int8", "area": "area to int8"}  # fmt: skip
    summary = (
        "Direct cast of weights and activations (Rouhani et al., Microscaling data formats, arXiv 2310.10537). Energy "
        "and area are those of a multiply-add (hw.mac) over one of int8"
    )
    return "Microscaling formats", summary, columns, _formats_table(subject, names, tell)


def _gptq(subject: _Subject, tell: Progress) -> Any:
    if subject.calibration is None:
        raise WrongValue("reproduce: gptq needs examples to calibrate by: give data and labels of an ONNX model")
    formats = ("int4", "int3", "int2", "int4-g128-f16", "int3-g128-f16", "int2-g128-f16")
    tell(0, 2, "calibration")
    hessians = calibrate(subject.network.weights, subject.calibration)
    tell(1, 2, "rounding")
    found = _studied(subject, formats, None, methods=["rtn", "gptq"], hessians=hessians)
    rows = [
        {"format": row["format"], "method": row["method"] or "-", "bits": row["bits"], "accuracy": _metric(row),
         "output_db": row.get("output_db")}
        for row in found
    ]  # fmt: skip
    columns = {"format": "format", "method": "rounding", "bits": "bits per value", "accuracy": "accuracy",
               "output_db": "dB of outputs"}  # fmt: skip
    summary = (
        "Nearest codes (rtn) and GPTQ (Frantar et al., ICLR 2023), weights alone. Outputs are those of the layers, on "
        f"the {CALIBRATION} examples that calibrated"
    )
    return "GPTQ", summary, columns, rows


def _nm_sparsity(subject: _Subject, tell: Progress) -> Any:
    patterns = ("fp32", "4:8", "2:4", "2:8", "1:4", "1:8", "int8", "int8+2:4", "int8+1:4", "int4+2:4")
    rows = []
    dense = hw.mac("int8", "int8").energy_pj
    for i, text in enumerate(patterns):
        tell(i, len(patterns), text)
        row = _studied(subject, [text], None)[-1]
        share = 1.0
        if ":" in text:
            n, m = map(int, text.rpartition("+")[2].split(":"))
            share = n / m
        unit = hw.mac(text if text.startswith("int") else "int8" + (f"+{text}" if ":" in text else ""), "int8")
        rows.append({
            "format": text, "bits": row["bits"], "accuracy": _metric(row), "sqnr_db": row["sqnr_db"],
            "times_fewer": 1 / share, "bytes": row["bits"] / 32, "energy": unit.energy_pj / dense,
        })  # fmt: skip
    columns = {"format": "weights", "bits": "bits per value", "accuracy": "accuracy", "sqnr_db": "dB of weights",
               "times_fewer": "fewer multiply-adds", "bytes": "bytes to fp32", "energy": "energy to int8"}  # fmt: skip
    summary = (
        "N of every M weights, the largest, without retraining (Mishra et al., arXiv 2104.08378, who retrain). Energy "
        "is that of a multiply-add of the dense layer with int8 activations, selection included"
    )
    return "N:M sparsity", summary, columns, rows


def _deep_compression(subject: _Subject, tell: Progress) -> Any:
    if not subject.judged:
        raise WrongValue("reproduce: deep-compression needs a network of hc.zoo, or data and labels of an ONNX model")
    network, densities = subject.network, (0.5, 0.3, 0.2, 0.1)
    weights = dict(network.weights)
    axes = subject.axis or {}
    matrices = [name for name, w in weights.items() if w.ndim >= 2]
    plain = sum(weights[name].nbytes for name in matrices)
    rows = [{"density": 1.0, "pruned": _metric(network.evaluate(weights)), "pruning": 1.0}]
    for i, density in enumerate(densities):
        tell(i, len(densities), f"{density:.0%} of the weights")
        pruned, shared, stored, coded = dict(weights), dict(weights), 0.0, 0.0
        for name in matrices:
            w = weights[name]
            pruned[name] = prune(w, f"{100 - 100 * density:g}%", axis=axes.get(name, (2, 3, 1) if w.ndim == 4 else -1))
            csr = encode_eie(np.asarray(pruned[name]).reshape(len(w), -1).astype(np.float32), elements=1)
            shared[name] = csr.to_dense().reshape(w.shape)
            stored += csr.nbytes
            coded += sum(_entropy(values) * values.size / 8 for values in (csr.values(), csr.runs()))
        rows.append({
            "density": density, "pruned": _metric(network.evaluate(pruned)), "pruning": 1 / density,
            "shared": _metric(network.evaluate(shared)), "stored": plain / stored, "coded": plain / coded,
        })  # fmt: skip
    columns = {"density": "weights kept", "pruned": "accuracy, pruned", "pruning": "fewer weights",
               "shared": "accuracy, shared", "stored": "smaller, 4 + 4 bits", "coded": "smaller, Huffman"}  # fmt: skip
    summary = (
        "Pruning, 16 shared values, runs of 4 bits and the entropy of both as the bound of a Huffman code (Han et al., "
        "Deep compression, ICLR 2016, who retrain after each step and give convolutions 256 values)"
    )
    return "Deep compression", summary, columns, rows


def _entropy(values: Array) -> float:
    """Return the entropy in bits per value."""
    _, counts = np.unique(values, return_counts=True)
    shares = counts / max(values.size, 1)
    return float(-(shares * np.log2(shares)).sum()) if values.size else 0.0


def _machine(name: str, batch: int) -> Callable[[str, Progress], Any]:
    def make(model: str, tell: Progress) -> Any:
        tell(0, 1, name)
        found = hw.accelerators.accelerator(name).report(model, batch=batch)
        rows = [
            {"name": row["name"], "macs": row["macs"] / 1e6, "us": 1e6 * row["seconds"], "share": row["utilisation"],
             "dram": row["dram_bytes"] / 1e3, "uj": 1e6 * row["energy"]}
            for row in found.to_dict()["layers"]
        ]  # fmt: skip
        columns = {"name": "layer", "macs": "10^6 macs", "us": "us", "share": "of the peak", "dram": "DRAM kB",
                   "uj": "uJ"}  # fmt: skip
        return f"{name}, batch {batch}", found.summary(), columns, rows

    return make


def _mixed_precision(model: str, tell: Progress) -> Any:
    rows = []
    ways = (("fp32", "adam", 0), ("fp16", "adam", 0), ("bf16", "adam", 0), ("fp16", "sgd", 0), ("fp16", "adam", 8))
    network = hw.as_network(model, None)
    for i, (dtype, optimizer, segments) in enumerate(ways):
        tell(i, len(ways), dtype)
        parts = hw.memory.training(network, dtype=dtype, optimizer=optimizer, recompute=segments).to_dict()
        state = sum(parts[key] for key in ("params", "gradients", "master", "optimizer") if key in parts)
        outputs = parts["intermediates"]
        rows.append({
            "way": f"{dtype}, {optimizer}{f', {segments} segments again' if segments else ''}",
            "a_parameter": state / network.params, "state": state / 1e6, "outputs": outputs / 1e6,
            "total": (state + outputs) / 1e6,
        })  # fmt: skip
    columns = {"way": "training", "a_parameter": "bytes a parameter", "state": "weights to states, MB",
               "outputs": "outputs of one sample, MB", "total": "together, MB"}  # fmt: skip
    summary = (
        "Weights, gradients, the float32 copy and states of the optimizer, and outputs kept for the backward pass of "
        "one sample (Micikevicius et al., Mixed precision training, ICLR 2018; Rajbhandari et al., ZeRO, SC 2020)"
    )
    return "Memory of mixed precision", summary, columns, rows


MEASURED = (_vs_quant, _mx, _gptq, _nm_sparsity, _deep_compression)
#: Topic of the published results, and the function that computes the table.
PAPERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "vs-quant": ("vs-quant", _vs_quant),
    "mx": ("formats", _mx),
    "gptq": ("", _gptq),
    "nm-sparsity": ("sparsity", _nm_sparsity),
    "deep-compression": ("deep-compression", _deep_compression),
    "eyeriss": ("eyeriss", _machine("eyeriss", 1)),
    "tpu-v1": ("tpu_v1", _machine("tpu_v1", 1)),
    "mixed-precision-memory": ("memory", _mixed_precision),
}
