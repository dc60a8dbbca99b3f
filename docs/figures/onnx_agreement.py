"""Compare int8 of `hc.run_onnx` with the quantizers of onnxruntime and aimet-onnx, by agreement with the float model.

    pip install onnxruntime aimet-onnx bokeh pillow matplotlib rapidocr-onnxruntime magika
    python docs/figures/onnx_agreement.py magika magika/models/standard_v3_3/model.onnx
    python docs/figures/onnx_agreement.py lines rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx
    python docs/figures/onnx_agreement.py phonemes g2p_en/checkpoint20.npz

Magika gets files of Python's standard library and of its packages. The recognition of PP-OCR gets rendered lines of
text. g2p-en has arrays of two GRUs and no graph: it is written as one for words of 8 letters, step by step. Every other
sample of the first bed calibrates; the rest, and a second bed of other files, another font or other words, judge.
"""

from __future__ import annotations

import os
import re
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from runner import options

import heterocompute as hc
from heterocompute.interop.onnx_run import OnnxNetwork

LETTERS, PHONEMES = 8, 12
Feeds = list[dict[str, Any]]


def files(suffixes: Sequence[str], folder: str, count: int) -> Feeds:
    """Return the first and last 1024 bytes of files, as Magika's configuration states."""
    found = []
    for path in sorted(one for one in Path(folder).rglob("*") if one.suffix in suffixes and one.is_file()):
        content = path.read_bytes()
        if len(content) > 64 and len(found) < count * 40:
            begin, end = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
            row = np.full(2048, 256, np.int32)
            row[: len(begin)] = list(begin)
            row[2048 - len(end) :] = list(end)
            found.append({"bytes": row[None]})
    step = max(len(found) // count, 1)
    return found[::step][:count]


def lines(texts: Sequence[str], font_name: str, count: int) -> Feeds:
    """Return rendered lines, 48 pixels high."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / font_name), 30)
    found = []
    for text in texts[:count]:
        image = Image.new("RGB", (int(font.getlength(text)) + 16, 48), "white")
        ImageDraw.Draw(image).text((8, 5), text, "black", font)
        pixels = np.asarray(image, np.float32)[:, :, ::-1] / 127.5 - 1
        found.append({"x": np.ascontiguousarray(pixels.transpose(2, 0, 1))[None]})
    return found


def words(text: str) -> list[str]:
    """Return lines of about 30 letters."""
    import textwrap

    return [one for one in textwrap.wrap(" ".join(text.split()), 30) if len(one) > 20]


def g2p(arrays: str, path: str) -> None:
    """Write the network of g2p-en as a graph: an encoder of LETTERS letters, and PHONEMES steps of its decoder."""
    from onnx import TensorProto as T, helper

    with np.load(arrays) as found:
        values = {name: found[name].T.copy() if "_w" in name else found[name] for name in found}
    values |= {"zeros": np.zeros((1, 256), np.float32), "one": np.ones(1, np.float32), "first": np.array([2], np.int64)}
    values |= {f"at{i}": np.array([i], np.int64) for i in range(LETTERS + 1)}
    nodes: list[Any] = []

    def add(kind: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        names = [f"n{len(nodes)}_{i}" for i in range(count)]
        nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if count == 1 else names

    def step(side: str, x: str, h: str) -> str:
        linear = (
            add("Add", add("MatMul", one, f"{side}_w_{kind}"), f"{side}_b_{kind}")
            for one, kind in ((x, "ih"), (h, "hh"))
        )
        (r_x, z_x, n_x), (r_h, z_h, n_h) = (add("Split", one, count=3, axis=1) for one in linear)
        r, z = (add("Sigmoid", add("Add", *pair)) for pair in ((r_x, r_h), (z_x, z_h)))
        n = add("Tanh", add("Add", n_x, add("Mul", r, n_h)))
        return str(add("Add", add("Mul", add("Sub", "one", z), n), add("Mul", z, h)))

    h, given = "zeros", "first"
    for i in range(LETTERS + 1):
        h = step("enc", add("Gather", "enc_emb", add("Gather", "letters", f"at{i}", axis=0)), h)
    outputs = []
    for _ in range(PHONEMES):
        h = step("dec", add("Gather", "dec_emb", given), h)
        outputs.append(add("Add", add("MatMul", h, "fc_w"), "fc_b"))
        given = add("ArgMax", outputs[-1], axis=1, keepdims=0)
    nodes.append(helper.make_node("Concat", outputs, ["phonemes"], axis=0))
    graph = helper.make_graph(
        nodes, "g2p", [helper.make_tensor_value_info("letters", T.INT64, (LETTERS + 1,))],
        [helper.make_tensor_value_info("phonemes", T.FLOAT, (PHONEMES, 74))],
        [onnx.numpy_helper.from_array(value, name) for name, value in values.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def spelled(text: str, count: int) -> Feeds:
    """Return words of LETTERS letters, as g2p-en numbers letters; 2 ends a word."""
    found = sorted({one for one in re.findall("[a-z]+", text.lower()) if len(one) == LETTERS})
    some = found[:: max(len(found) // count, 1)][:count]
    return [{"letters": np.array([*(ord(letter) - ord("a") + 3 for letter in one), 2])} for one in some]


def beds(kind: str, count: int) -> tuple[Feeds, Feeds]:
    """Return both beds."""
    if kind == "magika":
        paths = sysconfig.get_paths()
        ours = (".py", ".txt", ".c", ".h", ".so", ".exe", ".bat", ".xml", ".gz", ".json", ".md", ".html", ".css", ".js")
        return files(ours, paths["stdlib"], 2 * count), files(ours, str(Path(np.__file__).parents[1]), count)
    import pydoc_data.topics

    prose = "\n".join(pydoc_data.topics.topics.values())
    licence = Path(os.__file__).with_name("LICENSE.txt").read_text(encoding="utf-8")
    if kind == "phonemes":
        return spelled(prose, 2 * count), spelled(licence, count)
    return lines(words(prose), "DejaVuSans.ttf", 2 * count), lines(words(licence), "DejaVuSerif.ttf", count)


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Calibration samples for onnxruntime."""

    def __init__(self, feeds: Feeds) -> None:
        self.rest = iter(feeds)

    def get_next(self) -> Any:
        return next(self.rest, None)


def aimet(path: str, calibration: Feeds) -> Callable[[dict[str, Any]], Any]:
    """Return the model with int8 weights and activations by aimet-onnx, with its default settings."""
    from aimet_onnx import QuantizationSimModel

    sim = QuantizationSimModel(onnx.load(path), providers=["CPUExecutionProvider"])
    sim.compute_encodings(calibration)
    return lambda feed: sim.session.run(None, feed)[0]


def label(y: Any) -> str:
    """Return what the output says: the most probable class, phonemes, or letters without repetitions and blanks."""
    if y.shape == (PHONEMES, 74):
        return " ".join(map(str, takewhile(lambda one: one != 3, y.argmax(-1))))  # 3 ends a word
    best = y[0].argmax(-1)
    if best.ndim == 0:
        return str(best)
    return " ".join(str(one) for one, before in zip(best, [-1, *best[:-1]], strict=True) if one != before and one)


def main() -> None:
    """Measure."""
    parser = options(__doc__)
    parser.add_argument("kind", choices=("magika", "lines", "phonemes"))
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=60, help="samples of each bed that judge")
    arguments = parser.parse_args()
    first, second = beds(arguments.kind, arguments.count)
    calibration, judged = first[::2], {"first": first[1::2], "second": second}
    with tempfile.TemporaryDirectory() as folder:
        if arguments.kind == "phonemes":
            g2p(arguments.model, os.path.join(folder, "g2p.onnx"))
            arguments.model = os.path.join(folder, "g2p.onnx")
        compare(arguments.model, calibration, judged)


def compare(model: str, calibration: Feeds, judged: dict[str, Feeds]) -> None:
    """Print the agreement of all quantizers with a model."""
    network = OnnxNetwork(model)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4

    def session(path: str) -> Callable[[dict[str, Any]], Any]:
        made = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        return lambda feed: made.run(None, feed)[0]

    exact = session(model)
    wanted = {name: [exact(feed) for feed in some] for name, some in judged.items()}
    print({name: f"{len(some)} samples, {len({*map(label, some)})} answers" for name, some in wanted.items()})

    def show(name: str, run: Callable[[dict[str, Any]], Any]) -> None:
        cells = []
        for bed, some in judged.items():
            found = [run(feed) for feed in some]
            pairs = list(zip(wanted[bed], found, strict=True))
            agreed = np.mean([label(y) == label(z) for y, z in pairs])
            signal, noise = (sum(float(np.square(part).sum()) for part in parts)
                             for parts in ([y for y, _ in pairs], [y - z for y, z in pairs]))  # fmt: skip
            cells.append(f"{agreed:.3f}, {10 * np.log10(signal / noise):.1f} dB" if noise else "equal")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    def ours(weights: Any, activations: str | None) -> Callable[[dict[str, Any]], Any]:
        return lambda feed: next(iter(network.run(feed, weights, activations).values()))

    def run(weights: Any) -> None:
        for feed in calibration:
            network.run(feed, weights)

    with tempfile.TemporaryDirectory() as folder:
        ready, dynamic, static = (os.path.join(folder, f"{one}.onnx") for one in ("ready", "dynamic", "static"))
        newer = os.path.join(folder, "newer.onnx")  # scales per channel need opset 13
        onnx.save(onnx.version_converter.convert_version(onnx.load(model), 17), newer)
        quant_pre_process(newer, ready, skip_symbolic_shape=True)
        show("onnxruntime, float, as prepared", session(ready))
        quantize_dynamic(ready, dynamic)
        show("onnxruntime, dynamic", session(dynamic))
        quantize_dynamic(ready, dynamic, per_channel=True)
        show("onnxruntime, dynamic, per channel", session(dynamic))

        def written(**more: Any) -> Callable[[dict[str, Any]], Any]:
            quantize_static(ready, static, Reader(calibration), **more)
            return session(static)

        trials: dict[str, Callable[[], Any]] = {
            "onnxruntime, static": written,
            "onnxruntime, static, per channel": lambda: written(per_channel=True),
            "onnxruntime, static, products alone": lambda: written(op_types_to_quantize=["Conv", "Gemm", "MatMul"]),
            "aimet-onnx": lambda: aimet(model, calibration),
        }
        for name, trial in trials.items():
            try:
                show(name, trial())
            except Exception as problem:  # of the quantizer, or of the model that it wrote
                print(f"| {name} | {type(problem).__name__}: {str(problem)[:80]} | |", flush=True)
    show("`int8`, activations `int8`", ours(network.quantized("int8"), "int8"))
    for fmt in ("int8", "int4-g32"):
        found = hc.ptq.quantize(network.weights, run, fmt)
        show(f"`{fmt}` by `gptq`, activations `int8`", ours(found.weights, "int8"))


if __name__ == "__main__":
    main()
