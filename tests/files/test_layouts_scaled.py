"""Weights of other programs in 8-bit codes and nested NF4 have the values that these programs compute."""

from __future__ import annotations

import itertools
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import dequantize_checkpoint, inspect as hc_inspect

W = np.random.default_rng(5).standard_normal((32, 128)).astype(np.float32)
STRATEGIES = {"tensor": (1,), "channel": (32, 1), "group": (32, 4), "block": (2, 2)}


def write(path, tensors, config):
    save_arrays(path, tensors, {}, metadata={"quantization_config": json.dumps(config)})
    return path


def plain_of(path, layout):
    out = path.parent / "plain.safetensors"
    dequantize_checkpoint(path, out, layout=layout)
    return hc.load(out)


def group_of(kind, strategy, symmetric=True, fmt=None, bits=8, **more) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": symmetric, **more}
    weights |= {"group_size": 32} if strategy == "group" and "group_size" not in more else {}
    weights |= {"block_structure": [16, 64]} if strategy == "block" else {}
    return {"targets": ["Linear"], "weights": weights, "format": fmt or f"{kind}-quantized"}


def config_of(*groups):
    named = {f"group_{i}": group for i, group in enumerate(groups)}
    fmt = groups[0]["format"] if len(groups) == 1 else "mixed-precision"
    return {"quant_method": "compressed-tensors", "format": fmt, "config_groups": named}


def weight_of(kind, strategy, scale, symmetric=True, lowest=False):
    rng = np.random.default_rng(7)
    shape = STRATEGIES[strategy]
    scales = rng.uniform(0.001, 0.1, shape).astype(scale)
    if kind == "int":
        codes = rng.integers(-127, 128, W.shape).astype(np.int8)
        codes[3, 4] = -128 if lowest else -127
    else:
        codes = rng.integers(0, 256, W.shape).astype(np.uint8)
        codes[codes & 127 == 127] = 0  # NaN
        codes = codes.view(ml_dtypes.float8_e4m3fn)
    tensors = {"fc.weight": codes, "fc.weight_scale": scales, "fc.bias": W[:, 0].copy()}
    if not symmetric:
        tensors["fc.weight_zero_point"] = rng.integers(-128, 128, shape).astype(np.int8)
    return tensors


def values_of(tensors, strategy):
    """Return the values by definition: (code - zero point) scale in float32."""
    high, wide = {"tensor": (32, 128), "channel": (1, 128), "group": (1, 32), "block": (16, 64)}[strategy]

    def spread(part):
        return np.kron(part.astype(np.float32).reshape(32 // high, 128 // wide), np.ones((high, wide), np.float32))

    points = tensors.get("fc.weight_zero_point", np.zeros(STRATEGIES[strategy], np.int8))
    return (tensors["fc.weight"].astype(np.float32) - spread(points)) * spread(tensors["fc.weight_scale"])


CASES = [
    ("int", "tensor", True, "int8"), ("int", "channel", True, "int8"), ("int", "group", True, "int8-g32"),
    ("int", "channel", False, "int8-asym"), ("int", "tensor", False, "int8-asym"),
    ("int", "group", False, "int8-g32-asym"),
    ("int", "block", True, None), ("int", "block", False, None), ("float", "tensor", True, "fp8_e4m3fn-tensor"),
    ("float", "channel", True, "fp8_e4m3fn-row"), ("float", "group", True, "fp8_e4m3fn-g32"),
    ("float", "block", True, "fp8_e4m3fn-g64"),
]  # fmt: skip


@pytest.mark.parametrize("scale", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind, strategy, symmetric, fmt", CASES)
def test_codes_of_compressed_tensors_beside_their_scales(tmp_path, kind, strategy, symmetric, fmt, scale):
    tensors, group = weight_of(kind, strategy, scale, symmetric), group_of(kind, strategy, symmetric)
    path = write(tmp_path / "a", tensors, config_of(group))
    found = plain_of(path, None)  # the configuration names the layout
    assert same_bits(found["fc.weight"], values_of(tensors, strategy)) and same_bits(
        found["fc.bias"], tensors["fc.bias"]
    )
    assert found.keys() == {"fc.weight", "fc.bias"}
    if fmt is None:
        with bad_argument(ValueError, None, "file", r"fc\.weight"):
            hc.load(path, layout="compressed-tensors")
        assert hc_inspect(path, layout="compressed-tensors")[0]["dtype"] == "float32"
        return
    q = hc.load(path, layout="compressed-tensors")["fc.weight"]
    assert str(q.format) == fmt + ("-f16" if kind == "int" and scale == np.float16 else "")
    assert same_bits(q.dequantize(), values_of(tensors, strategy))
    if kind == "float":
        assert same_bits(q.components["codes"], tensors["fc.weight"].view(np.uint8))


@pytest.mark.parametrize("strategy", ["tensor", "channel", "group"])
def test_the_lowest_code_of_symmetric_int8_is_kept(tmp_path, strategy):
    tensors = weight_of("int", strategy, np.float32, lowest=True)
    path = write(tmp_path / "a", tensors, config_of(group_of("int", strategy)))
    q = hc.load(path, layout="compressed-tensors")["fc.weight"]
    assert not q.format.symmetric and same_bits(q.dequantize(), values_of(tensors, strategy))


def test_scales_of_other_shapes_are_the_same_or_refused(tmp_path):
    for strategy, shapes in (("tensor", [(), (1,), (1, 1)]), ("channel", [(32,), (32, 1)])):
        tensors = weight_of("float", strategy, np.float32)
        for shape in shapes:
            changed = tensors | {"fc.weight_scale": tensors["fc.weight_scale"].reshape(shape)}
            q = hc.load(
                write(tmp_path / "a", changed, config_of(group_of("float", strategy))), layout="compressed-tensors"
            )
            assert same_bits(q["fc.weight"].dequantize(), values_of(tensors, strategy))
    good = weight_of("int", "channel", np.float32)
    scale, codes = good["fc.weight_scale"], good["fc.weight"]
    bad = [
        ({"fc.weight_scale": scale[:31]}, {}), ({"fc.weight_scale": scale.reshape(1, 32)}, {}),
        ({"fc.weight_scale": scale.astype(np.float64)}, {}), ({"fc.weight_scale": -scale}, {}),
        ({"fc.weight": codes.astype(np.int16)}, {}), ({"fc.weight": codes[None]}, {}),
        ({"fc.weight": codes.astype(ml_dtypes.float8_e4m3fn)}, {}), ({"fc.weight": W}, {}),
        ({"fc.weight_zero_point": np.ones((32, 1), np.int8)}, {}), ({}, {"symmetric": False}),
        ({}, {"strategy": "group", "group_size": 24}), ({}, {"strategy": "token"}), ({}, {"num_bits": 16}),
        ({}, {"strategy": "block", "block_structure": [0, 4]}), ({}, {"strategy": "group", "group_size": -1}),
        ({}, {"strategy": "block", "block_structure": [2**62, 2**62]}), ({}, {"type": "float"}),
    ]  # fmt: skip
    for parts, declared in bad:
        group = group_of("int", "channel")
        group["weights"] |= declared
        path = write(tmp_path / "a", good | parts, config_of(group))
        with bad_argument(ValueError, None, "file", "a: .*fc") as caught:
            hc.load(path, layout="compressed-tensors")
        assert "\n" not in str(caught.value)
    del good["fc.weight"]
    with bad_argument(ValueError, None, "file", "a: "):
        hc.load(write(tmp_path / "a", good, config_of(group_of("int", "channel"))), layout="compressed-tensors")
    zero = good | {"fc.weight": codes, "fc.weight_zero_point": np.zeros((32, 1), np.int8)}
    path = write(tmp_path / "a", zero, config_of(group_of("int", "channel")))
    assert str(hc.load(path, layout="compressed-tensors")["fc.weight"].format) == "int8"


@pytest.mark.parametrize("kind, fmt", [("int", "int8-g32"), ("float", None)])
def test_groups_of_8_bits_in_another_order(tmp_path, kind, fmt):
    tensors, config = weight_of(kind, "group", np.float32), config_of(group_of(kind, "group"))
    order = np.random.default_rng(3).permutation(128)
    back, wanted = np.argsort(order), values_of(tensors, "group")
    index = (np.arange(128) // 32)[back].astype(np.int32)
    moved = tensors | {"fc.weight": np.ascontiguousarray(tensors["fc.weight"][:, back]), "fc.weight_g_idx": index}
    path = write(tmp_path / "a", moved, config)
    assert same_bits(plain_of(path, None)["fc.weight"], wanted[:, back])
    with bad_argument(ValueError, None, "file", "have no format here"):
        hc.load(path, layout="compressed-tensors")
    for same in (np.arange(128, dtype=np.int32) // 32, np.full(128, -1, np.int32)):
        path = write(tmp_path / "a", tensors | {"fc.weight_g_idx": same}, config)
        assert same_bits(plain_of(path, None)["fc.weight"], wanted)
        if fmt:
            assert str(hc.load(path, layout="compressed-tensors")["fc.weight"].format) == fmt
    path = write(tmp_path / "a", tensors | {"fc.weight_g_idx": np.zeros(128, np.int32)}, config)
    with bad_argument(ValueError, None, "file", "g_idx"):
        plain_of(path, None)


def mixed(tmp_path):
    """Return weights of four config_groups in one file, and their formats."""
    arrays = {
        "a.weight": hc.quantize(W, "int4-g32"),
        "b.weight": hc.quantize(W, "int8"),
        "c.weight": hc.quantize(W, "int4-g32-asym"),
        "d.weight": hc.quantize(W, "int4-g64-f16"),
        "e.weight": hc.quantize(W, "mxfp4"),
    }
    tensors: dict[str, Any] = {}
    for name, q in arrays.items():
        hc.save(tmp_path / "one", {name: q}, layout="compressed-tensors")
        tensors |= hc.load(tmp_path / "one")
    naive = weight_of("float", "channel", np.float32)
    tensors |= {name.replace("fc", "f"): part for name, part in naive.items()}
    groups = [
        group_of("int", "group", fmt="pack-quantized", bits=4, group_size=32),
        group_of("int", "channel", fmt="pack-quantized"),
        group_of("int", "group", False, fmt="pack-quantized", bits=4, group_size=32),
        group_of("int", "group", fmt="pack-quantized", bits=4, group_size=64),
        {"weights": {"num_bits": 4, "type": "float"}, "format": "mxfp4-pack-quantized"},
        group_of("float", "channel"),
        {"targets": ["Attention"], "weights": None},
    ]
    return arrays, tensors, groups, values_of(naive, "channel")


def test_several_groups_of_compressed_tensors(tmp_path):
    arrays, tensors, groups, last = mixed(tmp_path)
    for order in (groups, groups[::-1]):
        path = write(tmp_path / "a", tensors, config_of(*order))
        found = hc.load(path, layout="compressed-tensors")
        assert all(found[name] == q for name, q in arrays.items())
        assert same_bits(found["f.weight"].dequantize(), last)
        plain = plain_of(path, "compressed-tensors")
        assert all(same_bits(plain[name], q.dequantize()) for name, q in arrays.items())


def test_a_weight_of_no_group_or_of_two_is_refused(tmp_path):
    arrays, tensors, groups, _ = mixed(tmp_path)
    path = write(tmp_path / "a", tensors, config_of(*groups[:3], *groups[4:]))
    with bad_argument(ValueError, None, "file", "config_groups"):
        hc.load(path, layout="compressed-tensors")
    one = {name: part for name, part in tensors.items() if name.startswith("b.")}
    tie = group_of("int", "group", fmt="pack-quantized", group_size=128)
    path = write(tmp_path / "a", one, config_of(tie, groups[1]))
    with bad_argument(ValueError, None, "file", "a: b: its tensors fit .* alike"):
        hc.load(path, layout="compressed-tensors")
    for targets in (["b"], ["re:.*x$", "re:[a-c]$"]):
        tie["targets"] = targets
        path = write(tmp_path / "a", one, config_of(tie, groups[1]))
        assert str(hc.load(path, layout="compressed-tensors")["b.weight"].format) == "int8-g128"
    tie["targets"] = ["re:("]
    with bad_argument(ValueError, None, "file", "a: .* is not a regular expression"):
        hc.load(write(tmp_path / "a", one, config_of(tie, groups[1])), layout="compressed-tensors")
    for broken in ([], {}, {"a": ["Linear"], "b": 3}, {"a": None}):
        path = write(tmp_path / "a", one, config_of(tie) | {"config_groups": broken})
        with bad_argument(ValueError, None, "file", "a: "):
            hc.load(path, layout="compressed-tensors")


@pytest.mark.parametrize("scale", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind, strategy, symmetric", [case[:3] for case in CASES])
def test_compressed_tensors_has_the_same_values_of_8_bits(tmp_path, kind, strategy, symmetric, scale):
    """It computes in the dtype of the scales; our values are equal before that rounding."""
    pytest.importorskip("compressed_tensors")
    torch = pytest.importorskip("torch")
    from compressed_tensors.compressors import NaiveQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    group = group_of(kind, strategy, symmetric)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**group["weights"]))
    rng, shape = np.random.default_rng(2), STRATEGIES[strategy]
    given = {"weight": torch.from_numpy(W.copy()).to(getattr(torch, scale))}
    given["weight_scale"] = torch.from_numpy(rng.uniform(0.01, 0.1, shape).astype(np.float32)).to(getattr(torch, scale))
    if not symmetric:
        given["weight_zero_point"] = torch.from_numpy(rng.integers(-128, 128, shape).astype(np.int8))
    stored = NaiveQuantizationCompressor.compress(given, scheme)
    theirs = NaiveQuantizationCompressor.decompress(stored, scheme)["weight"]
    torch.save({f"fc.{name}": part for name, part in stored.items()}, tmp_path / "a.pt")
    write(tmp_path / "a", hc.load(tmp_path / "a.pt"), config_of(group))
    ours = plain_of(tmp_path / "a", "compressed-tensors")["fc.weight"]
    assert same_bits(torch.from_numpy(ours).to(theirs.dtype).float().numpy(), theirs.float().numpy())


def test_compressed_tensors_has_the_same_values_of_several_groups(tmp_path):
    pytest.importorskip("compressed_tensors")
    torch = pytest.importorskip("torch")
    from compressed_tensors.compressors import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    groups, tensors, theirs = [], {}, {}
    rng = np.random.default_rng(2)
    for bits, strategy, symmetric in itertools.product((4, 8), ("channel", "group"), (True, False)):
        group = group_of("int", strategy, symmetric, fmt="pack-quantized", bits=bits)
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**group["weights"]))
        shape, half = STRATEGIES[strategy], 1 << (bits - 1)
        given = {"weight": torch.from_numpy(W), "weight_scale": torch.from_numpy(rng.uniform(0.1, 1, shape)).float()}
        given["weight_zero_point"] = torch.from_numpy(rng.integers(-half, half, shape).astype(np.int8))
        stored = PackedQuantizationCompressor.compress(given, scheme)
        prefix = f"model.layers.{len(groups)}.fc"
        theirs[f"{prefix}.weight"] = PackedQuantizationCompressor.decompress(dict(stored), scheme)["weight"].numpy()
        tensors |= {f"{prefix}.{name}": part.numpy() for name, part in stored.items()}
        groups.append(group)
    ours = hc.load(write(tmp_path / "a", tensors, config_of(*groups)), layout="compressed-tensors")
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        assert same_bits(ours[name].dequantize(), values)


@pytest.mark.parametrize("bits, strategy", [(4, "group"), (4, "channel"), (8, "group")])
def test_zero_points_of_old_versions_are_not_packed(tmp_path, bits, strategy):
    """They are signed and not packed, one int8 each."""
    q = hc.quantize(W, f"int{bits}-g32-asym" if strategy == "group" else f"int{bits}-asym")
    hc.save(tmp_path / "new", {"fc.weight": q}, layout="compressed-tensors")
    tensors, group, half = hc.load(tmp_path / "new"), q.format.group or 128, 1 << (bits - 1)
    signed = (q.zero_points_expanded()[:, ::group].astype(np.int16) - half).astype(np.int8)
    config = config_of(group_of("int", strategy, False, fmt="pack-quantized", bits=bits))
    path = write(tmp_path / "old", tensors | {"fc.weight_zero_point": signed}, config)
    assert hc.load(path, layout="compressed-tensors")["fc.weight"] == q
    wrong = [signed[:-1], signed.astype(np.int16), tensors["fc.weight_zero_point"].astype(np.int64)]
    wrong += [signed + np.int8(half)] if bits < 8 else []
    for points in wrong:
        path = write(tmp_path / "old", tensors | {"fc.weight_zero_point": points}, config)
        with bad_argument(ValueError, None, "file", r"fc\.weight_zero_point"):
            hc.load(path, layout="compressed-tensors")


def llm_int8():
    rng = np.random.default_rng(3)
    codes = rng.integers(-127, 128, W.shape).astype(np.int8)
    maxima = rng.uniform(0.1, 2, 32).astype(np.float32)
    return {"fc.weight": codes, "fc.SCB": maxima, "fc.weight_format": np.zeros((), np.uint8), "fc.bias": W[:, 0].copy()}


INT8 = {"quant_method": "bitsandbytes", "load_in_8bit": True}


def test_int8_of_bitsandbytes_is_read_as_values(tmp_path):
    tensors = llm_int8()
    path = write(tmp_path / "a", tensors, INT8)
    inverse = np.float32(7.874015718698502e-3)
    wanted = tensors["fc.weight"].astype(np.float32) * tensors["fc.SCB"][:, None] * inverse
    found = plain_of(path, None)
    assert found.keys() == {"fc.weight", "fc.bias"} and same_bits(found["fc.weight"], wanted)
    with bad_argument(ValueError, None, "file", r"fc\.weight.*int8.*SCB.*127."):
        hc.load(path, layout="bitsandbytes")
    bad = [{"fc.weight_format": np.array(1, np.uint8)}, {"fc.SCB": tensors["fc.SCB"][:31]}, {"fc.weight": W},
           {"fc.SCB": tensors["fc.SCB"].astype(np.float16)}]  # fmt: skip
    for parts in bad:
        with bad_argument(ValueError, None, "file", r"fc\.weight"):
            plain_of(write(tmp_path / "a", tensors | parts, INT8), "bitsandbytes")


def test_bitsandbytes_has_the_same_values_of_int8(tmp_path):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("bitsandbytes.functional")
    codes, maxima, _ = functional.int8_vectorwise_quant(torch.from_numpy(W).half())
    theirs = functional.int8_vectorwise_dequant(codes, maxima)
    tensors = {"fc.weight": codes.numpy(), "fc.SCB": maxima.numpy()}
    ours = plain_of(write(tmp_path / "a", tensors, INT8), "bitsandbytes")["fc.weight"]
    assert same_bits(ours, theirs.numpy())


INT4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def nested(tmp_path, w, group=16, block=8, offset=0.75):
    """Return NF4 with quantized scales, and its values by definition."""
    rng = np.random.default_rng(4)
    q = hc.quantize(w, f"nf4-g{group}")
    hc.save(tmp_path / "plain", {"fc.weight": q}, layout="bitsandbytes")
    tensors = hc.load(tmp_path / "plain")
    count = w.size // group
    codes, levels = rng.integers(0, 256, count).astype(np.uint8), np.linspace(-1, 1, 256, dtype=np.float32)
    maxima = rng.uniform(0.1, 0.7, -(-count // block)).astype(np.float32)
    scales = levels[codes] * np.repeat(maxima, block)[:count] + np.float32(offset)
    name = "fc.weight.quant_state.bitsandbytes__nf4"
    state = json.loads(tensors[name].tobytes())
    state |= {"nested_blocksize": block, "nested_dtype": "float32", "nested_offset": offset}
    tensors |= {"fc.weight.absmax": codes, "fc.weight.nested_absmax": maxima, "fc.weight.nested_quant_map": levels}
    tensors[name] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    units = hc.quantize(w, f"nf4-g{group}").components
    ones = hc.QuantizedArray(dict(units) | {"scales": np.ones_like(units["scales"])}, q.format, q.shape, q.axis)
    return tensors, ones.dequantize() * np.repeat(scales.reshape(w.shape[0], -1), group, 1), scales


@pytest.mark.parametrize("count", [128, 112])
def test_nested_scales_of_nf4(tmp_path, count):
    tensors, values, scales = nested(tmp_path, np.ascontiguousarray(W[:, :count]))
    path = write(tmp_path / "a", tensors, INT4)
    q = hc.load(path, layout="bitsandbytes")["fc.weight"]
    assert str(q.format) == "nf4-g16" and same_bits(q.components["scales"].reshape(-1), scales)
    assert same_bits(q.dequantize(), values) and same_bits(plain_of(path, None)["fc.weight"], values)
    name = "fc.weight.quant_state.bitsandbytes__nf4"
    state = json.loads(tensors[name].tobytes())
    bad: list[dict[str, Any]] = [
        {"fc.weight.nested_absmax": tensors["fc.weight.nested_absmax"][:-1]},
        {"fc.weight.nested_quant_map": np.zeros(255, np.float32)},
        {"fc.weight.absmax": tensors["fc.weight.absmax"].astype(np.float32)},
        {"fc.weight.absmax": tensors["fc.weight.absmax"][:-1]},
    ]
    for declared in ({"nested_blocksize": 0}, {"nested_blocksize": 2**62}, {"nested_offset": "1"},
                     {"nested_offset": [1]}, {"nested_dtype": "float16"}, {"shape": [2**40, 2**40]},
                     {"blocksize": 0}):  # fmt: skip
        bad.append({name: np.frombuffer(json.dumps(state | declared).encode(), np.uint8)})
    for parts in bad:
        path = write(tmp_path / "b", tensors | parts, INT4)
        with bad_argument(ValueError, None, "file", r"fc\.weight"):
            hc.load(path, layout="bitsandbytes")
        with bad_argument(ValueError, None, "file", r"fc\.weight"):
            plain_of(path, "bitsandbytes")
    without = {key: part for key, part in tensors.items() if "nested" not in key}
    with bad_argument(ValueError, None, "file", "uint8"):
        hc.load(write(tmp_path / "b", without, INT4), layout="bitsandbytes")


def test_nf4_whose_scales_or_blocks_have_no_format_is_read_as_values(tmp_path):
    tensors, values, scales = nested(tmp_path, W, offset=0.0)
    assert (scales < 0).any()
    path = write(tmp_path / "a", tensors, INT4)
    with bad_argument(ValueError, None, "file", "scales below 0.* have no format here"):
        hc.load(path, layout="bitsandbytes")
    assert np.array_equal(plain_of(path, "bitsandbytes")["fc.weight"], values)
    q = hc.quantize(W.reshape(64, 64), "nf4-g64")  # rows of 32 in blocks of 64
    hc.save(tmp_path / "b", {"fc.weight": q}, layout="bitsandbytes")
    tensors, name = hc.load(tmp_path / "b"), "fc.weight.quant_state.bitsandbytes__nf4"
    state = json.loads(tensors[name].tobytes()) | {"shape": [128, 32]}
    path = write(tmp_path / "b", tensors | {name: np.frombuffer(json.dumps(state).encode(), np.uint8)}, INT4)
    with bad_argument(ValueError, None, "file", "blocks that cross rows.* have no format here"):
        hc.load(path, layout="bitsandbytes")
    assert same_bits(plain_of(path, "bitsandbytes")["fc.weight"], q.dequantize().reshape(128, 32))


@pytest.mark.parametrize("shape", [(256, 256), (64, 96), (96, 32), (3, 64)])
@pytest.mark.parametrize("statistics", [False, True])
def test_bitsandbytes_has_the_same_values_of_nested_nf4(tmp_path, shape, statistics):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("bitsandbytes.functional")
    w = np.random.default_rng(8).standard_normal(shape).astype(np.float32)
    codes, state = functional.quantize_4bit(
        torch.from_numpy(w), blocksize=64, quant_type="nf4", compress_statistics=statistics
    )
    tensors = {"fc.weight": codes.numpy()}
    tensors |= {f"fc.weight.{name}": part.numpy() for name, part in state.as_dict(packed=True).items()}
    path = write(tmp_path / "a", tensors, INT4)
    theirs = functional.dequantize_4bit(codes, state).float().numpy()
    assert same_bits(plain_of(path, "bitsandbytes")["fc.weight"], theirs)
    if shape[1] % 64 == 0:
        assert same_bits(hc.load(path, layout="bitsandbytes")["fc.weight"].dequantize(), theirs)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24-bitmask"),
        ({"transform_config": {"config_groups": {"u": {"type": "hadamard"}}}}, "rotated"),
    ],
)
def test_weights_that_are_changed_in_other_ways_are_refused(tmp_path, more, words):
    config = config_of(group_of("int", "channel"))
    tensors = {"fc.weight": np.zeros((4, 8), np.int8), "fc.weight_scale": np.ones((4, 1), np.float32)}
    path = write(tmp_path / "a.safetensors", tensors, config | more)
    with pytest.raises(ValueError, match=rf"a\.safetensors: .*{words}"):
        plain_of(path, "compressed-tensors")
    bits = {"fc.compressed": W[:, :64], "fc.bitmask": np.zeros((32, 16), np.uint8), "fc.shape": np.array([32, 128])}
    path = write(tmp_path / "b.safetensors", bits, config | more)
    for change in (plain_of, lambda *_: hc.quantize_checkpoint(path, tmp_path / "q.safetensors", "int4")):
        with pytest.raises(ValueError, match=rf"b\.safetensors: .*{words}"):
            change(path, None)
    same = {"sparsity_config": {"format": "dense"}, "transform_config": {}}
    assert plain_of(write(tmp_path / "c.safetensors", tensors, config | same), None).keys() == {"fc.weight"}


@pytest.mark.parametrize("method", ["compressed-tensors", "bitsandbytes", "other"])
def test_codes_without_scales_are_refused(tmp_path, method):
    """Without the refusal they would be copied like weights."""
    config = config_of(group_of("int", "channel")) | {"quant_method": method}
    tensors = {"fc.weight": np.ones((4, 8), np.int8), "norm.weight": np.ones(4, np.float32)}
    path = write(tmp_path / "a.safetensors", tensors, config)
    with bad_argument(ValueError, None, "file", r"a\.safetensors.*fc\.weight"):
        plain_of(path, None)


@pytest.mark.parametrize("strategy", ["block", "group", "channel", "tensor"])
def test_scales_that_are_not_finite_are_refused(tmp_path, strategy):
    tensors = {"fc.weight": np.ones((32, 128), np.int8), "fc.weight_scale": np.ones(STRATEGIES[strategy], np.float32)}
    tensors["fc.weight_scale"].flat[-1] = np.nan
    path = write(tmp_path / "a.safetensors", tensors, config_of(group_of("int", strategy)))
    with bad_argument(ValueError, None, "file", r"a\.safetensors"):
        plain_of(path, "compressed-tensors")
    scb = {"fc.weight": np.ones((4, 8), np.int8), "fc.SCB": np.float32([1, np.inf, 1, 1])}
    path = write(tmp_path / "b.safetensors", scb, {"quant_method": "bitsandbytes", "load_in_8bit": True})
    with bad_argument(ValueError, None, "file", r"b\.safetensors.*fc\.weight.*SCB"):
        plain_of(path, "bitsandbytes")
