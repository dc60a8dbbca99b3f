"""Counts: exact parameters and operations of every built-in network, in every tool's convention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

from heterocompute import hardware as hw
from heterocompute.hardware.network.builtin import published

# Parameters, multiply-adds of matmuls and convolutions (batch 1, the network's own input).
EXACT = {
    "alexnet": (61_100_840, 714_188_480),
    "alexnet_original": (60_965_224, 724_406_816),
    "vgg16": (138_357_544, 15_470_264_320),
    "googlenet": (6_624_904, 1_498_376_192),
    "resnet18": (11_689_512, 1_814_073_344),
    "resnet34": (21_797_672, 3_663_761_408),
    "resnet50": (25_557_032, 4_089_184_256),
    "resnet101": (44_549_160, 7_801_405_440),
    "mobilenet_v1": (4_231_976, 568_740_352),
    "mobilenet_v2": (3_504_872, 300_774_272),
    "efficientnet_b0": (5_288_548, 385_814_752),
    "bert_base": (109_482_240, 11_174_215_680),
    "bert_large": (335_141_888, 39_461_060_608),
    "gpt2": (124_439_808, 145_824_153_600),
    "gpt3_175b": (174_604_259_328, 367_402_130_866_176),
    "llama_7b": (6_738_415_616, 14_630_806_093_824),
    "llama2_70b": (68_976_648_192, 303_439_439_462_400),
    "digits": (72_842, 477_824),
}
CONVOLUTIONS = {"alexnet": 655_566_528, "alexnet_original": 665_784_864, "vgg16": 15_346_630_656}

# Output of the tools for torchvision's and transformers' networks (see conventions.py for versions).
TOOLS: dict[str, dict[str, int]] = {
    "alexnet": {"thop": 714206912, "fvcore": 714197696, "ptflops": 716441128, "ptflops-aten": 714682664,
                "torchinfo": 714682664, "torch": 1428376960, "activations": 494184},
    "vgg16": {"thop": 15470314496, "fvcore": 15470289408, "ptflops": 15523225576, "ptflops-aten": 15483821032,
              "torchinfo": 15483821032, "torch": 30940528640, "activations": 13556712},
    "googlenet": {"thop": 1511332032, "fvcore": 1504878688, "ptflops": 1513907448, "ptflops-aten": 1498377192,
                  "torchinfo": 1498391752, "torch": 2996752384, "activations": 3227160},
    "resnet18": {"thop": 1824033792, "fvcore": 1819065856, "ptflops": 1825313768, "ptflops-aten": 1814074344,
                 "torchinfo": 1814083944, "torch": 3628146688, "activations": 2484712},
    "resnet34": {"thop": 3678739456, "fvcore": 3671262720, "ptflops": 3680019432, "ptflops-aten": 3663762408,
                 "torchinfo": 3663779432, "torch": 7327522816, "activations": 3739112},
    "resnet50": {"thop": 4133742592, "fvcore": 4111512576, "ptflops": 4132436968, "ptflops-aten": 4089185256,
                 "torchinfo": 4089238376, "torch": 8178368512, "activations": 11114984},
    "resnet101": {"thop": 7866435584, "fvcore": 7833969664, "ptflops": 7865129960, "ptflops-aten": 7801406440,
                  "torchinfo": 7801511784, "torch": 15602810880, "activations": 16232936},
    "mobilenet_v2": {"thop": 327486720, "fvcore": 314193216, "ptflops": 320300008, "ptflops-aten": 300775272,
                     "torchinfo": 300809384, "torch": 601548544, "activations": 6679112},
    "efficientnet_b0": {"thop": 415145024, "fvcore": 401659392, "ptflops": 410196896, "ptflops-aten": 385825092,
                        "torchinfo": 385867108, "torch": 771629504, "activations": 6748036},
    "bert_base": {"thop": 10882056192, "fvcore": 11186503680, "ptflops": 11189650176, "ptflops-aten": 11184833280,
                  "torchinfo": 109482240, "torch": 22348431360, "activations": 14156544},
    "bert_base 384": {"thop": 32644988928, "fvcore": 35370270720, "ptflops": 35393864448,
                      "ptflops-aten": 35365257984, "torchinfo": 109482240, "torch": 70666813440,
                      "activations": 56623872},
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_parameters_and_multiply_adds_to_the_last_unit(name: str) -> None:
    c = hw.count(hw.networks[name])
    assert (c.params, c.macs, c.flops) == (*EXACT[name], 2 * EXACT[name][1])
    assert sum(row["params"] for row in c.layers) == c.params and sum(row["macs"] for row in c.layers) == c.macs
    assert c.bytes == 4 * c.params and c.unit == "MAC" and c.total == c.macs


def test_every_network_is_counted_here() -> None:
    assert set(hw.networks) == {*EXACT, "doc_cnn", *ENCODERS, *published()}


ENCODERS = {"vit_b_16": 86567656, "vit_l_16": 304326632, "whisper_tiny_encoder": 8208384,
            "whisper_small_encoder": 88154112, "whisper_large_v3_encoder": 636968960}  # fmt: skip


@pytest.mark.parametrize("name", [*ENCODERS, *published()])
def test_parameters_of_models_are_those_that_were_published(name: str) -> None:
    wanted = ENCODERS.get(name) or published()[name].get("params")
    params = hw.networks[name].params
    if wanted is not None:
        assert params == wanted
    else:  # of a model card that counts other parts, too
        size = float(name.rpartition("_")[2].removesuffix("b")) if name != "deepseek_v3" else 671
        assert params / 1e9 == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_alone(name: str) -> None:
    rows = hw.count(name).layers
    assert sum(row["macs"] for row in rows if row["kind"] == "Conv2d") == CONVOLUTIONS[name]


@pytest.mark.parametrize("case", TOOLS)
def test_conventions_equal_what_the_tools_print(case: str) -> None:
    name, _, positions = case.partition(" ")
    shape = (int(positions),) if positions else None
    for like, printed in TOOLS[case].items():
        if like == "activations":
            assert hw.count(name, shape).activations == printed
        else:
            assert hw.count(name, shape, like=like).total == printed, like


@pytest.mark.parametrize("positions, macs", [(128, 11174215680), (384, 35333406720), (512, 48318971904)])
def test_bert_grows_with_its_sequence(positions: int, macs: int) -> None:
    assert hw.count("bert_base", (positions,)).macs == macs


def test_published_roundings() -> None:
    assert round(hw.count("resnet50").macs / 1e9, 3) == 4.089  # torchvision's _ops
    assert round(hw.count("resnet50", like="torchinfo", batch=2).total / 1e9, 2) == 8.18
    assert round(hw.count("bert_base", like="torchinfo", batch=2).total / 1e6, 2) == 218.57
    assert round(hw.count("resnet18", like="thop").total / 1e9, 2) == 1.82
    assert round(hw.count("vgg16").params / 1e6, 2) == 138.36
    assert round(hw.count("resnet50", like="ptflops").total / 1e9, 2) == 4.13
    assert round(4 * CONVOLUTIONS["alexnet_original"] / 1e9, 2) == 2.66  # Eyeriss, four frames
    assert round(CONVOLUTIONS["vgg16"] / CONVOLUTIONS["alexnet_original"], 2) == 23.05


@pytest.mark.parametrize("name, elements", [("resnet18", 2483712), ("resnet50", 11113984), ("mobilenet_v2", 6678112)])
def test_elements_of_normalization(name: str, elements: int) -> None:
    rows = hw.count(name).layers
    assert sum(row["output"][0] * row["output"][1] * row["output"][2] for row in rows
               if row["kind"] == "BatchNorm2d") == elements  # fmt: skip


def test_examples_of_fvcore() -> None:
    convolutions = [
        hw.layers.Conv2d(1, 6, 3),
        hw.layers.MaxPool2d(2, 2),
        hw.layers.Conv2d(6, 16, 3),
        hw.layers.MaxPool2d(2, 2),
    ]
    linear = [hw.layers.Flatten(), hw.layers.Linear(576, 120), hw.layers.Linear(120, 84), hw.layers.Linear(84, 10)]
    c = hw.count(convolutions + linear, (1, 32, 32), like="fvcore")
    assert c.total == 274_656 and c.unit == "FLOP"
    assert sum(row["count"] for row in c.layers if row["kind"] == "Conv2d") == 194_616
    assert sum(row["count"] for row in c.layers if row["kind"] == "Linear") == 80_040
    other = hw.count([hw.layers.Conv2d(3, 10, 1)], (3, 10, 10), like="fvcore").total
    assert other + hw.count(hw.layers.Linear(1000, 10), (1000,), like="fvcore").total == 13_000


def test_formulas_of_single_layers() -> None:
    conv = hw.layers.Conv2d(64, 96, (3, 5), stride=(2, 1), padding=(1, 2), dilation=1, groups=4)
    c = hw.count(conv, (64, 20, 30))
    assert c.layers[0]["output"] == [96, 10, 30]
    assert c.params == 96 * 16 * 15 + 96 and c.macs == 10 * 30 * 96 * 16 * 15
    assert hw.count(hw.layers.Conv2d(3, 8, 3, dilation=2), (3, 9, 9)).layers[0]["output"] == [8, 5, 5]
    assert hw.count(hw.layers.Linear(1000, 1000, bias=False), (1000,)).bytes == 4_000_000
    assert hw.count([hw.layers.MaxPool2d(2, 2)], (3, 8, 8)).params == 0
    attention = hw.count(hw.layers.Attention(64, 4), (10, 64))
    assert attention.params == 4 * (64 * 64 + 64) and attention.macs == 4 * 10 * 64 * 64 + 2 * 10 * 10 * 64
    shared = hw.count(hw.layers.Attention(64, 4, kv_heads=2, bias=False), (10, 64))
    assert shared.params == 64 * 64 * 3 and shared.macs == 3 * 10 * 64 * 64 + 2 * 10 * 10 * 64


def test_batch_and_type() -> None:
    one, four = hw.count("resnet18"), hw.count("resnet18", batch=4, dtype="int4")
    assert four.macs == 4 * one.macs and four.activations == 4 * one.activations and four.params == one.params
    assert 4 * one.params / 8 <= four.bytes <= 4 * one.params / 8 + len(four.layers)


def test_a_token_with_keys_at_hand_costs_two_operations_a_parameter() -> None:
    network = hw.networks["llama_7b"].decoding(0)
    matrices = sum(flow.layer.weight_params for flow in network if flow.macs)
    assert hw.count(network).macs == matrices + 2 * 32 * 4096
    longer = hw.networks["llama_7b"].decoding(1023)
    assert hw.count(longer).macs == matrices + 2 * 32 * 4096 * 1024
    with bad_argument(ValueError, None, "value", "only a network of tokens"):
        hw.networks["resnet18"].decoding(3)


def test_the_mismatch_of_the_textbook_network_is_reported() -> None:
    with bad_argument(ValueError, None, "value", r"'fc1'.*Linear.*\(1600,\).*16384"):
        hw.count("doc_cnn")
    fits = []
    for size in range(60, 90):
        try:
            fits.append((size, hw.count("doc_cnn", (1, size, size)).params))
        except ValueError:
            pass
    assert fits == [(size, 2117386) for size in (70, 71, 72, 73)]
    assert hw.networks["doc_cnn"].params == 2117386


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hw.count("resnet51"), "'resnet51' is not a built-in network; the nearest are resnet50"),
        (lambda: hw.count("resnet50", like="top"), "like is 'top', expected one of mac, flop, thop"),
        (lambda: hw.count("resnet50", (1, 3, 224, 224)), r"layer 'stem.conv': .*without a batch"),
        (lambda: hw.count("resnet50", (3, 0, 224)), r"axis 1 is 0, expected a positive integer"),
        (lambda: hw.count("resnet50", batch=0), "batch is 0"),
        (lambda: hw.count("resnet50", dtype="int9"), "dtype is 'int9', expected one of fp64"),
        (lambda: hw.count([hw.layers.Linear(3, 4)]), "input_shape is missing"),
        (lambda: hw.count([hw.layers.Linear(3, 4)], (5,)), "expected 3 as its last axis"),
        (lambda: hw.layers.Conv2d(3, 0, 3), "out_channels is 0, expected a positive integer"),
        (lambda: hw.layers.Conv2d(3, 4, -1), "kernel_size is -1"),
        (lambda: hw.layers.Conv2d(3, 4, 3, groups=2), "in_channels is 3, not a multiple of groups 2"),
        (lambda: hw.count(hw.layers.Conv2d(3, 4, 5), (3, 4, 4)), r"a window of 5 does not fit on 4 \+ 2 x 0"),
        (lambda: hw.layers.Attention(10, 3), "width is 10, expected a positive multiple of heads 3"),
        (lambda: hw.count("gpt2", (2000,)), "2000 positions, but the table has 1024 rows"),
    ],
)
def test_bad_input_is_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_what_is_no_model_is_a_type_error() -> None:
    for model in (3, {"a": 1}, [1]):
        with pytest.raises(TypeError, match="expected a (network|layer)"):
            hw.count(model, (3,))


# ONNX


def export(network: hw.Network, path: Path) -> None:
    """Write a network as an ONNX graph without values."""
    onnx = pytest.importorskip("onnx")
    helper, proto = onnx.helper, onnx.TensorProto
    nodes, held, names = [], [], {"input": "input"}

    def tensor(name: str, *dims: int) -> str:
        held.append(proto(name=name, data_type=proto.FLOAT, dims=dims))
        return name

    def pair(value: Any) -> list[int]:
        return list(value) if isinstance(value, tuple) else [value, value]

    for flow in network:
        layer, name, options = flow.layer, flow.name, {}
        inputs, kind = [names[one] for one in flow.node.inputs], type(layer).__name__
        if isinstance(layer, hw.layers.Conv2d):
            kind = "Conv"
            k, c = layer.out_channels, layer.in_channels // layer.groups
            inputs.append(tensor(f"{name}.w", k, c, *pair(layer.kernel_size)))
            inputs += [tensor(f"{name}.b", k)] if layer.bias else []
            options = {"strides": pair(layer.stride), "pads": pair(layer.padding) * 2, "group": layer.groups,
                       "dilations": pair(layer.dilation)}  # fmt: skip
        elif isinstance(layer, hw.layers.Linear):
            kind, options = "Gemm", {"transB": 1}
            inputs += [
                tensor(f"{name}.w", layer.out_features, layer.in_features),
                tensor(f"{name}.b", layer.out_features),
            ]
        elif isinstance(layer, hw.layers.BatchNorm2d):
            kind = "BatchNormalization"
            inputs += [tensor(f"{name}.{part}", layer.channels) for part in ("scale", "bias", "mean", "var")]
        elif isinstance(layer, hw.layers.MaxPool2d):
            kind = "MaxPool"
            options = {"kernel_shape": pair(layer.kernel_size), "strides": pair(layer.stride),
                       "pads": pair(layer.padding) * 2, "ceil_mode": int(layer.ceil_mode)}  # fmt: skip
        elif isinstance(layer, hw.layers.AdaptiveAvgPool2d):
            kind = "GlobalAveragePool" if layer.size == 1 else "Identity"
        elif isinstance(layer, hw.layers.Activation):
            kind = {"relu": "Relu", "sigmoid": "Sigmoid", "relu6": "Clip"}[layer.kind]
        elif isinstance(layer, hw.layers.Concat):
            options = {"axis": 1}
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **options))
        names[flow.name] = name
    last = network.flows[-1]
    graph = helper.make_graph(
        nodes,
        network.name,
        [helper.make_tensor_value_info("input", proto.FLOAT, ["batch", *network.input_shape])],
        [helper.make_tensor_value_info(last.name, proto.FLOAT, ["batch", *last.output])],
        held,
    )
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "resnet50", "googlenet", "mobilenet_v2", "digits"])
def test_onnx_files_count_as_the_networks_they_came_from(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    export(hw.networks[name], path)
    read, own = hw.count(str(path)), hw.count(name)
    assert (read.params, read.macs, read.activations) == (own.params, own.macs, own.activations)
    assert hw.count(path, like="torchinfo").total == hw.count(name, like="torchinfo").total


def test_files_that_are_no_onnx_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"not a graph at all")
    with bad_argument(ValueError, None, "file", "bad.onnx: (not an ONNX file|the graph has the inputs none)"):
        hw.count(path)
    with pytest.raises(FileNotFoundError):
        hw.count(tmp_path / "missing.onnx")


@pytest.mark.parametrize(
    ("op", "attributes", "sentence"),
    [
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [2]}, "has the strides [2], expected two numbers"),
        ("AveragePool", {"kernel_shape": [2.5, 2.5]}, "has the kernel_shape [2.5, 2.5], expected two numbers"),
        ("Conv", {"dilations": [1, 1, 1]}, "has the dilations [1, 1, 1], expected two numbers"),
        ("Conv", {"group": "many"}, "has the group b'many', expected a number"),
        ("MatMul", {}, "is a MatMul of a kind that is not read"),
        ("Add", {"dims": [1] * 65}, "has the illegal shape"),
        ("Add", {"dims": [-4]}, "has the illegal shape [-4]"),
        ("Add", {"dims": [2**62, 2]}, "has the illegal shape"),
    ],
)
def test_nodes_of_odd_attributes_have_a_sentence(op: str, attributes: Any, sentence: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, proto = onnx.helper, onnx.TensorProto
    weights = helper.make_tensor("w", proto.FLOAT, [4, 3, 3, 3], [0.0] * 108)
    weights.dims[:] = attributes.pop("dims", weights.dims)
    inputs = ["x", "w"] if op in ("Conv", "Add") else ["x"]
    node = helper.make_node(op, inputs, ["y"], name="node", **attributes)
    ends = [[helper.make_tensor_value_info(name, proto.FLOAT, [1, 3, 8, 8])] for name in "xy"]
    path = tmp_path / "odd.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "g", *ends, [weights])), str(path))
    with pytest.raises(ValueError) as caught:
        hw.count(path)
    assert sentence in str(caught.value) and str(caught.value).startswith(f"{path}: ")


def test_without_onnx_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    (tmp_path / "network.onnx").write_bytes(b"")
    with pytest.raises(ImportError, match=r"network.onnx: .*pip install 'heterocompute\[onnx\]'"):
        hw.count(str(tmp_path / "network.onnx"))


@pytest.mark.parametrize("path", ["absent.onnx", "absent.pt", "./absent", "folder/absent"])
def test_a_missing_file_is_called_missing_with_or_without_onnx(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(FileNotFoundError, match=f"No such file or directory: '{path}'"):
        hw.count(path)


def test_far_names_get_the_list_and_no_suggestion() -> None:
    with bad_argument(ValueError, None, "value", "'zzzz'"):
        hw.count("zzzz")
    with bad_argument(ValueError, None, "value", "'qqqq'.*'heterocompute devices'"):
        hw.device("qqqq")


@pytest.mark.parametrize("batch", [1, 2, "batch"])
def test_onnx_graphs_that_move_the_batch_are_counted(batch: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, proto = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Transpose", ["x"], ["moved"], perm=[1, 0, 2]),
        helper.make_node("Identity", ["w"], ["same"]),
        helper.make_node("MatMul", ["moved", "same"], ["y"]),
    ]
    held = [proto(name="w", data_type=proto.FLOAT, dims=(8, 6))]
    graph = helper.make_graph(nodes, "moved", [helper.make_tensor_value_info("x", proto.FLOAT, [batch, 10, 8])],
                              [helper.make_tensor_value_info("y", proto.FLOAT, [10, batch, 6])], held)  # fmt: skip
    path = tmp_path / "moved.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    assert (hw.count(path).macs, hw.count(path).params) == (10 * 8 * 6, 48)


@pytest.mark.parametrize(
    "kind, domain, options, message",
    [
        ("MatMulInteger", "", {}, r"MatMulInteger multiplies \(1, 3, 8, 8\) and .*, which do not fit"),
        ("FusedMatMul", "com.microsoft", {}, "a com.microsoft.FusedMatMul, which is not read"),
        ("Loop", "", {}, "a Loop, which is not read"),
        ("Conv", "", {"strides": [0, 0]}, "stride is .0, 0., expected one or two positive integers"),
    ],
)
def test_onnx_products_of_other_kinds_are_refused_not_left_out(
    kind: str, domain: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    helper, proto = onnx.helper, onnx.TensorProto
    node = helper.make_node(kind, ["x", "w"], ["y"], domain=domain, **options)
    held = [proto(name="w", data_type=proto.FLOAT, dims=(4, 3, 3, 3))]
    graph = helper.make_graph([node], "other", [helper.make_tensor_value_info("x", proto.FLOAT, [1, 3, 8, 8])],
                              [helper.make_tensor_value_info("y", proto.FLOAT, [1, 4, 6, 6])], held)  # fmt: skip
    path = tmp_path / "other.onnx"
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=domains).SerializeToString())
    with pytest.raises(ValueError, match=f"other.onnx: .*{message}"):
        hw.count(path)


def test_gpt2_without_its_output_layer_counts_as_torch_says() -> None:
    rows = hw.count("gpt2", (128,), like="torch").layers
    assert sum(row["count"] for row in rows if row["name"] != "output") == 22_347_251_712


def test_the_networks_are_a_mapping() -> None:
    assert "resnet51" not in hw.networks and hw.networks.get("resnet51") is None
    with pytest.raises(KeyError, match="the nearest are resnet50"):
        hw.networks["resnet51"]


def test_counts_may_be_integers_of_numpy() -> None:
    assert hw.count("resnet50", batch=np.int64(4)).macs == hw.count("resnet50", batch=4).macs


def test_latents_become_keys_and_values_of_a_prompt_only() -> None:
    """DeepSeek-V3: 128 heads of 128 + 64 and 128, latents of 512, 61 layers."""
    model = hw.networks["deepseek_v3"]
    prompt, token = model.with_input((100,)), model.decoding(99)

    def of_attention(network: hw.Network) -> int:
        parts = "scores", "scores_rotary", "context"
        return sum(flow.macs for flow in network if flow.name.rpartition(".")[2] in parts)

    assert of_attention(prompt) == 61 * 128 * 100 * 100 * (128 + 64 + 128)
    assert of_attention(token) == 61 * 128 * 100 * (512 + 64 + 512)
    assert prompt.params == token.params == model.params
    maps = [flow.macs for flow in prompt if flow.name.endswith(("key_up", "value_up"))]
    assert maps == [100 * 512 * 128 * 128] * 2 * 61
    assert hw.memory.kv_cache(prompt, 100) == hw.memory.kv_cache(token, 100) == 2 * 100 * 61 * 576


def test_one_token_after_others_is_counted_by_context_as_in_rooflines() -> None:
    found = hw.count("llama_7b", context=1024)
    assert found.macs == hw.count(hw.networks["llama_7b"].decoding(1024)).macs < hw.count("llama_7b").macs / 100
    with pytest.raises(ValueError, match="context"):
        hw.count("llama_7b", context=-1)
