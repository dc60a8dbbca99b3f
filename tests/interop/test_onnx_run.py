"""run_onnx: without formats the results of ONNX runtimes, with packed weights the results of this package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals, run, same_bits

import heterocompute as hc
from heterocompute.interop.onnx_run import OnnxNetwork

onnx = pytest.importorskip("onnx")
helper, numpy_helper, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator


def model_of(nodes: list[Any], held: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    values = [[helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in one.items()] for one in (inputs, outputs)]
    constants = [numpy_helper.from_array(value, name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "net", *values, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def network() -> tuple[Any, dict[str, Any]]:
    held = {
        "conv.w": reals((4, 2, 3, 3), 1),
        "conv.b": reals((4,), 2),
        "depthwise": reals((4, 1, 3, 3), 3),
        "fc.w": reals((5, 16), 4),
        "fc.b": reals((5,), 5),
        "last": reals((5, 3), 6),
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv.w", "conv.b"], ["a"], pads=[1, 0, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "depthwise"], ["c"], auto_pad="SAME_LOWER", group=4, strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "fc.w", "fc.b"], ["e"], transB=1, alpha=0.5, beta=2.0),
        helper.make_node("MatMul", ["e", "last"], ["y"]),
    ]
    return model_of(nodes, held, {"x": ["n", 2, 8, 8]}, {"y": ["n", 3]}), held


def by_hand(held: dict[str, Any], x: Any, activations: Any = None) -> Any:
    a = hc.conv2d(x, held["conv.w"], held["conv.b"], 2, ((1, 1), (0, 1)), activations=activations)
    c = hc.conv2d(np.maximum(a, 0), held["depthwise"], None, 2, ((1, 0), (1, 0)), groups=4, activations=activations)
    e = hc.linear(c.reshape(len(x), -1), held["fc.w"], activations=activations) * np.float32(0.5)
    e = e + held["fc.b"] * np.float32(2)
    return hc.linear(e, held["last"].T, activations=activations)


def test_it_gives_what_the_reference_of_onnx_gives() -> None:
    model, held = network()
    x = reals((3, 2, 8, 8), 7)
    found = hc.run_onnx(model, {"x": x})
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    assert list(found) == ["y"] and found["y"].dtype == np.float32
    # each layer stays within (terms + 1) eps of its magnitudes: those of the whole network, run on magnitudes
    sizes = by_hand({name: np.abs(value) for name, value in held.items()}, np.abs(x))
    assert (np.abs(found["y"] - expected) <= 2 * (18 + 9 + 16 + 5 + 8) * 2.0**-23 * sizes).all()
    dense = {name: value.copy() for name, value in held.items()}  # the caller's weights are multiplied by this package
    assert same_bits(OnnxNetwork(model).run({"x": x}, dense)["y"], by_hand(held, x))


@pytest.mark.parametrize("activations", [None, "int8"])
def test_weights_by_pattern_go_through_our_products(activations: str | None, tmp_path: Path) -> None:
    model, held = network()
    path, x = tmp_path / "net.onnx", reals((3, 2, 8, 8), 7)
    onnx.save(model, str(path))
    axes = {"conv.w": (2, 3, 1), "depthwise": (2, 3, 1), "fc.w": 1, "last": 0}
    packed = {**held, **{name: hc.quantize(held[name], "int8", axis=axis) for name, axis in axes.items()}}
    packed["fc.w"] = hc.quantize(held["fc.w"], "vsq4-g16-s4")
    for source in (path, str(path), path.read_bytes(), model):
        found = hc.run_onnx(source, x, {"fc.*": "vsq4-g16-s4", "*": "int8"}, activations)["y"]
        assert same_bits(found, by_hand(packed, x, activations))
    partly = hc.run_onnx(model, x, {"last": "int8"}, activations)["y"]
    assert same_bits(partly, by_hand({**held, "last": packed["last"]}, x, activations))


def test_other_ranks_and_constants_and_integers_work() -> None:
    w, k = reals((2, 1, 3), 1), reals((6, 2), 2)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),  # along one axis
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(k, "")),
        helper.make_node("MatMul", ["b", "k"], ["c"]),
        helper.make_node("Transpose", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "c"], ["y"]),  # of two values of the network
    ]
    model = model_of(nodes, {"w": w, "shape": np.int64([-1, 6])}, {"x": [2, 1, 5]}, {"y": [2, 2]})
    x = reals((2, 1, 5), 3)
    found = hc.run_onnx(model, x)["y"]
    np.testing.assert_allclose(found, ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-5)
    c = np.stack([np.convolve(x[i, 0], w[k, 0, ::-1], "valid") for i in (0, 1) for k in (0, 1)]).reshape(-1, 6)
    q = hc.matmul(c.astype(np.float32), hc.quantize(k, "int4", axis=0))
    np.testing.assert_allclose(hc.run_onnx(model, x, {"k": "int4"})["y"], q.T @ q, rtol=1e-5)
    v = hc.quantize(w, "int4", axis=(2, 1)).dequantize()
    c = np.stack([np.convolve(x[i, 0], v[k, 0, ::-1], "valid") for i in (0, 1) for k in (0, 1)]).reshape(-1, 6)
    q = hc.matmul(c.astype(np.float32), hc.quantize(k, "int4", axis=0))
    np.testing.assert_allclose(hc.run_onnx(model, x, "int4")["y"], q.T @ q, rtol=1e-5)


def test_wrong_arguments_are_sentences(tmp_path: Path) -> None:
    model, _ = network()
    x = reals((1, 2, 8, 8))
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07nonsense")
    for call, kind, words in [
        (lambda: hc.run_onnx(3, x), TypeError, "run_onnx: model is 3, expected a path, bytes or"),
        (lambda: hc.run_onnx(tmp_path / "bad.onnx", x), ValueError, "bad.onnx: not an ONNX model"),
        (lambda: hc.run_onnx(tmp_path / "none.onnx", x), OSError, "none.onnx"),
        (lambda: hc.run_onnx(model, {"z": x}), ValueError, r"inputs are \['z'\], expected \['x'\]"),
        (lambda: hc.run_onnx(model, x, {"fc.x": "int8"}), ValueError, "no weight .* fits 'fc.x'; did you mean fc.w"),
        (lambda: hc.run_onnx(model, x, "int99"), ValueError, "int99"),
    ]:
        with pytest.raises(kind, match=words):
            call()


def test_a_study_judges_an_onnx_model_by_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, held = network()
    path, data, labels = tmp_path / "net.onnx", tmp_path / "x.npy", tmp_path / "y.npy"
    onnx.save(model, str(path))
    x = reals((70, 2, 8, 8), 7)
    np.save(data, x)
    np.save(labels, by_hand(held, x).argmax(axis=1))
    code, out, _ = run(capsys, "study", path, "--data", data, "--labels", labels, "--formats", "int8,int2", "--json")
    rows = {row["format"]: row for row in json.loads(out)["rows"]}
    assert code == 0 and rows["fp32"]["accuracy"] == 1.0 >= rows["int8"]["accuracy"] > rows["int2"]["accuracy"]
    packed = {name: hc.quantize(held[name], "int2", axis=(2, 3, 1)) for name in ("conv.w", "depthwise")}
    packed |= {"fc.w": hc.quantize(held["fc.w"], "int2"), "last": hc.quantize(held["last"], "int2", axis=0)}
    right = (by_hand({**held, **packed}, x).argmax(axis=1) == np.load(labels)).mean()
    assert rows["int2"]["accuracy"] == right
    code, out, _ = run(capsys, "study", path, "--formats", "int8", "--json")  # without examples: bits and errors
    assert code == 0 and "accuracy" not in json.loads(out)["rows"][0]
    assert {layer["name"] for layer in json.loads(out)["layers"]} == {"conv.w", "depthwise", "fc.w", "last"}
    np.save(labels, np.zeros(3, np.int64))
    for arguments, status, words in [
        (["--data", data], 2, "--data and --labels go together"),
        (["--data", data, "--labels", labels], 1, "labels have shape (3,), x (70, 2, 8, 8)"),
        (["--data", path, "--labels", labels], 1, "net.onnx: not a NumPy array"),
    ]:
        code, _, error = run(capsys, "study", path, *arguments)
        assert code == status and words in error
    code, _, error = run(capsys, "study", "--data", data, "--labels", labels)
    assert code == 2 and "need an ONNX file" in error


def test_a_study_of_weights_evaluates_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    w, path = reals((64, 40), 3), str(tmp_path / "net.onnx")
    multiplied = [helper.make_node("MatMul", ["x", "w"], ["a"])]
    unknown = [*multiplied, helper.make_node("FastGelu", ["a"], ["y"], domain="com.microsoft")]
    for nodes, axis in [(unknown, 0), ([], -1)]:  # operators that onnx cannot evaluate; constants alone
        model = model_of(nodes, {"w": w}, {"x": [1, 64]} if nodes else {}, {"y": [1, 40]} if nodes else {})
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        onnx.save(model, path)
        code, out, error = run(capsys, "study", path, "--formats", "int4-g16", "--json")
        assert code == 0, error
        wanted = hc.study(w, "int4-g16", axis=axis).to_dict()["rows"][1]["sqnr_db"]
        with hc.open_checkpoint(path) as held:
            opened = hc.study(held, "int4-g16")
            plan = hc.ptq.search(held, ["int4-g16"], {"bits": 8})
        for rows in (json.loads(out)["rows"], hc.study(path, "int4-g16").to_dict()["rows"], opened.to_dict()["rows"]):
            assert {row["format"]: row["sqnr_db"] for row in rows}["int4-g16"] == wanted
        packed = hc.quantize(w, "int4-g16", axis)
        assert abs(plan.bits - 8 * packed.nbytes / w.size) < 1e-9


def test_a_weight_that_is_summed_along_two_axes_is_left_out(tmp_path: Path) -> None:
    names, path = ["both", "both", "both", "w"], str(tmp_path / "net.onnx")
    nodes = [
        helper.make_node("Gemm", [f"x{i or ''}", name], [f"x{i + 1}"], transB=i % 2) for i, name in enumerate(names)
    ]
    held = {"both": reals((32, 32), 1), "w": reals((8, 32), 2)}
    onnx.save(model_of(nodes, held, {"x": [1, 32]}, {"x4": [1, 8]}), path)
    with hc.open_checkpoint(path) as found:
        assert found.axes == {"w": (1,)}
    rows = hc.study(path, "int4").to_dict()["rows"]
    assert rows[1]["sqnr_db"] == hc.study(held["w"], "int4").to_dict()["rows"][1]["sqnr_db"]


def test_constants_that_nothing_multiplies_by_are_no_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held, path = {"table": reals((9, 64), 1), "w": reals((64, 32), 2)}, str(tmp_path / "net.onnx")
    nodes = [helper.make_node("Gather", ["table", "x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    onnx.save(model_of(nodes, held, {"x": ["n"]}, {"y": ["n", 32]}), path)
    seen = []
    rows = hc.study(path, "int4-g16", lambda weights: seen.append(list(weights)) or 0.0).to_dict()
    assert seen[0] == ["table", "w"] and {layer["name"] for layer in rows["layers"]} == {"w"}
    with hc.open_checkpoint(path) as opened:
        assert {layer["name"] for layer in hc.study(opened, "int4-g16").to_dict()["layers"]} == {"w"}
    code, out, error = run(capsys, "search", path, "--budget", "bits=20", "--formats", "int8", "--json")
    assert code == 0, error
    bits = {row["name"]: row["bits"] for row in json.loads(out)["rows"]}
    assert bits["w"] == 8 * hc.quantize(held["w"], "int8", axis=0).nbytes / held["w"].size


@pytest.mark.parametrize("layout", ["onnx", "onnx-matmulnbits"])
def test_a_model_that_is_quantized_already_has_no_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    path, x = str(tmp_path / "net.onnx"), tmp_path / "x.npy"
    np.save(x, np.zeros((2, 4)))
    np.save(tmp_path / "y.npy", np.zeros(2, np.int64))
    hc.save(path, {"fc.weight": hc.quantize(reals((8, 64), 1), "int4-g32"), "w": reals((8, 32), 2)}, layout=layout)
    said = run(capsys, "study", path, "--formats", "int4")[2]
    assert "is already quantized, by " in said
    asked = ("--formats", "int4", "--data", x, "--labels", tmp_path / "y.npy")
    assert run(capsys, "study", path, *asked)[::2] == (1, said)
    for model in (path, Path(path).read_bytes(), onnx.load(path)):
        with pytest.raises(ValueError, match="is already quantized, by .* of 'fc"):
            hc.run_onnx(model, {}, format="int4")
    if layout == "onnx":
        assert same_bits(hc.run_onnx(path, {})["fc.weight"], hc.quantize(reals((8, 64), 1), "int4-g32").dequantize())


def test_activations_are_rounded_in_a_vector_too_and_are_a_format() -> None:
    w, x = np.eye(2, dtype=np.float32), np.float32([1.003, 2])
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, {"x": [2]}, {"y": [2]})
    assert same_bits(hc.run_onnx(model, x, activations="int2")["y"], hc.linear(x, w, activations="int2"))
    with bad_argument(TypeError, "activations", "type"):
        hc.run_onnx(model, x, activations=3)


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (np.full((2, 2), np.nan), ValueError, "x has nan at index"),
        (np.full((2, 2), "a"), TypeError, "expected numbers"),
    ],
)
def test_examples_that_nothing_can_be_judged_by_are_refused(x: Any, error: type[Exception], words: str) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = model_of([node], {"w": np.eye(2, dtype=np.float32)}, {"x": ["n", 2]}, {"y": ["n", 2]})
    with pytest.raises(error, match=words):
        OnnxNetwork(model, x, np.zeros(2, np.int64))
