"""The configuration of a weight determines how it is read, and must agree with the shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.base.container import numpy_dtype
from heterocompute.files.checkpoint import dequantize_checkpoint, inspect as hc_inspect
from heterocompute.files.layouts.expressions import _compiled, matches
from heterocompute.files.layouts.linear import to_words

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


def write(path: Path, tensors: dict[str, Any], **config: Any) -> Path:
    save_arrays(path, tensors, {}, metadata={"quantization_config": json.dumps(config)})
    return path


def plain(path: Path, layout: str, name: str = "fc.weight") -> Array:
    out = path.parent / "plain.safetensors"
    dequantize_checkpoint(path, out, layout=layout)
    return hc.load(out)[name]  # type: ignore[no-any-return]


def gptq(
    bits: int, count: int, group: int, rows: int = 32, stored: int | Array | None = None, name: str = "fc"
) -> tuple[dict[str, Any], Array, Array]:
    """Return tensors of GPTQ without g_idx, the codes (in, out), and the scales of each (in, out)."""
    groups = -(-count // group)
    codes = RNG.integers(0, 1 << bits, (count, rows)).astype(np.uint8)
    scales = RNG.uniform(0.01, 0.1, (groups, rows)).astype(np.float16)
    points = np.broadcast_to(np.asarray((1 << (bits - 1)) - 1 if stored is None else stored), (groups, rows))
    tensors = {
        f"{name}.qweight": np.ascontiguousarray(to_words(codes.T, bits).T),
        f"{name}.qzeros": to_words(points.astype(np.uint8), bits),
        f"{name}.scales": scales,
    }
    return tensors, codes, scales.astype(np.float32)[np.arange(count) // group]


def configured(bits: Any, group: Any, **more: Any) -> dict[str, Any]:
    declared = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True, "desc_act": False}
    return declared | {"checkpoint_format": "gptq"} | more


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("count, group", [(192, 128), (160, 64), (96, 128), (128, 32), (352, 128)])
def test_the_last_group_of_gptq_may_be_short(tmp_path: Path, bits: int, count: int, group: int) -> None:
    tensors, codes, scales = gptq(bits, count, group)
    wanted = ((codes.astype(np.float32) - (1 << (bits - 1))) * scales).T
    index = (np.arange(count) // group).astype(np.int32)
    for more in ({}, {"fc.g_idx": index}):
        path = write(tmp_path / "a", tensors | more, **configured(bits, group))
        found = hc.load(path, layout="gptq")["fc.weight"]
        assert same_bits(found.dequantize(), wanted) and found.format.group == min(group, count)
        assert same_bits(plain(path, "gptq"), wanted)
    order = RNG.permutation(count)  # columns of a group are not adjacent
    back = np.argsort(order)
    moved = tensors | {
        "fc.qweight": np.ascontiguousarray(to_words(codes[back].T, bits).T),
        "fc.g_idx": np.ascontiguousarray(index[back]),
    }
    path = write(tmp_path / "b", moved, **configured(bits, group, desc_act=True))
    assert same_bits(plain(path, "gptq"), np.ascontiguousarray(wanted[:, back]))
    del moved["fc.g_idx"]
    path = write(tmp_path / "c", moved, **configured(bits, group, desc_act=True))
    if count > group:
        with bad_argument(ValueError, None, "file", r"fc\.g_idx.*desc_act"):
            hc.load(path, layout="gptq")


def test_symmetric_gptq_needs_no_zero_points(tmp_path: Path) -> None:
    for bits in (2, 3, 4, 8):
        tensors, codes, scales = gptq(bits, 128, 64)
        del tensors["fc.qzeros"]
        found = hc.load(write(tmp_path / "a", tensors, **configured(bits, 64)), layout="gptq")["fc.weight"]
        assert same_bits(found.dequantize(), ((codes.astype(np.float32) - (1 << (bits - 1))) * scales).T)
    for part, declared in (("qzeros", False), ("scales", True)):
        tensors, _, _ = gptq(4, 128, 64)
        del tensors[f"fc.{part}"]
        path = write(tmp_path / "b", tensors, **configured(4, 64, sym=declared))
        with pytest.raises(ValueError, match=rf"b: is not a gptq file, or not all of one: 'fc\.{part}' is missing"):
            hc.load(path, layout="gptq")


@pytest.mark.parametrize("dtype, size", [("bfloat16", 1e-7), ("float32", 1.0), ("bfloat16", 1e6)])
def test_scales_of_gptq_keep_their_values(tmp_path: Path, dtype: str, size: float) -> None:
    tensors, codes, scales = gptq(4, 128, 64)
    other = (tensors["fc.scales"].astype(np.float32) * np.float32(size) * np.float32(1.0001)).astype(numpy_dtype(dtype))
    tensors["fc.scales"] = other  # not representable in float16
    found = hc.load(write(tmp_path / "a", tensors, **configured(4, 64)), layout="gptq")["fc.weight"]
    wanted = (codes.astype(np.float32) - 8) * other.astype(np.float32)[np.arange(128) // 64]
    assert same_bits(found.dequantize(), wanted.T) and str(found.format) == "int4-g64-asym"


def test_groups_that_contradict_the_scales_are_named(tmp_path: Path) -> None:
    tensors, _, _ = gptq(4, 128, 32)
    for group in (64, 128, -1, 24):
        path = write(tmp_path / "a", tensors, **configured(4, group))
        for call in (hc.load, hc_inspect):
            with pytest.raises(
                ValueError, match=rf"a: fc\.scales has 4 groups of 128 inputs, but group_size .*{group}"
            ):
                call(path, layout="gptq")
    for wrong in (0, -2, "32", 32.0, True):
        path = write(tmp_path / "a", tensors, **configured(4, wrong))
        with bad_argument(ValueError, None, "file", "group_size.*-1"):
            hc.load(path, layout="gptq")
    unsaid = {key: value for key, value in configured(4, 32).items() if key != "group_size"}
    assert hc.load(write(tmp_path / "a", tensors, **unsaid), layout="gptq")["fc.weight"].format.group == 32
    short, _, _ = gptq(4, 192, 128)
    write(tmp_path / "a", short | {"fc.scales": np.ones((5, 32), np.float16)}, **unsaid)
    with bad_argument(ValueError, None, "file", r"fc\.scales.*5.*192"):
        hc.load(tmp_path / "a", layout="gptq")


@pytest.mark.parametrize("stated, bits, rows", [(4, 8, 32), (4, 8, 16), (8, 4, 32), (2, 4, 32), (4, 2, 32), (3, 4, 32)])
def test_bits_that_contradict_the_words_are_refused(tmp_path: Path, stated: int, bits: int, rows: int) -> None:
    tensors, _, _ = gptq(bits, 128, 128, rows)
    path = write(tmp_path / "a", tensors, **configured(stated, -1))
    with pytest.raises(ValueError, match=rf"a: fc\.qzeros is .* of the {stated} bits that the configuration says"):
        hc.load(path, layout="gptq")
    for wrong in (5, 16, "4", True):
        with bad_argument(ValueError, None, "file", "fc: bits is .*, expected 2, 3, 4 or 8"):
            hc.load(write(tmp_path / "a", tensors, **configured(wrong, -1)), layout="gptq")


@pytest.mark.parametrize("dynamic, bits, group", [
    ({"+:.*down.*": {"bits": 8}}, 8, 64), ({".*down": {"bits": 8, "group_size": 32}}, 8, 32),
    ({r"+:^layers\.[0-3]\.(?:up|down)$": {"bits": 2}}, 2, 64), ({"+:.*up": {"bits": 8}}, 4, 64),
    ({"+:down": {"bits": 8}}, 4, 64), ({"+:.*down": {"group_size": -1}}, 4, 128),
    ({"+:.*1.*": {"bits": 8}, ".*": {"bits": 2}}, 8, 64), ({"-:.*head.*": {}, "+:.*": {"bits": 3}}, 3, 64), ({}, 4, 64),
])  # fmt: skip
def test_bits_and_groups_of_one_module(tmp_path: Path, dynamic: dict[str, Any], bits: int, group: int) -> None:
    """GPTQModel: regular expressions that match from the start of the name; the first match counts."""
    tensors, codes, scales = gptq(bits, 128, group, name="layers.1.down")
    tensors["lm_head.weight"] = np.ones((4, 8), np.float32)
    path = write(tmp_path / "a", tensors, **configured(4, 64, dynamic=dynamic))
    wanted = ((codes.astype(np.float32) - (1 << (bits - 1))) * scales).T
    found = hc.load(path, layout="gptq")
    assert same_bits(found["layers.1.down.weight"].dequantize(), wanted)
    assert same_bits(found["lm_head.weight"], np.ones((4, 8), np.float32))
    assert same_bits(plain(path, "gptq", "layers.1.down.weight"), wanted)


def test_a_module_that_dynamic_leaves_out_is_not_packed(tmp_path: Path) -> None:
    tensors, _, _ = gptq(4, 128, 64)
    path = write(tmp_path / "a", tensors, **configured(4, 64, dynamic={"-:.*fc.*": {}}))
    with bad_argument(ValueError, None, "file", r"fc\.qweight.*'-:\.\*fc\.\*'"):
        hc.load(path, layout="gptq")
    for wrong, words in (("(", "not a regular"), (r"(f)\1", "not read here"), ("x" * 2000, "2000 characters")):
        path = write(tmp_path / "a", tensors, **configured(4, 64, dynamic={wrong: {}}))
        with pytest.raises(ValueError, match=f"a: fc: dynamic of the configuration: .*{words}"):
            hc.load(path, layout="gptq")
    for wrong in ([1], {"+:.*": [8]}, {"+:.*": 8}):  # type: ignore[assignment]
        with bad_argument(ValueError, None, "file", "a: fc: dynamic"):
            hc.load(write(tmp_path / "a", tensors, **configured(4, 64, dynamic=wrong)), layout="gptq")


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2", None])
@pytest.mark.parametrize("sym", [True, None])
def test_the_middle_of_symmetric_files(tmp_path: Path, bits: int, version: str | None, sym: bool | None) -> None:
    """Version 1 stores the middle minus 1, version 2 unchanged; published files may be either, whatever they state."""
    middle = 1 << (bits - 1)
    declared = {key: value for key, value in configured(bits, 64, sym=sym).items() if value is not None}
    for stored in (middle - 1, middle):
        tensors, codes, scales = gptq(bits, 128, 64, stored=stored)
        path = write(tmp_path / "a", tensors, **declared | {"checkpoint_format": version})
        assert same_bits(plain(path, "gptq"), ((codes.astype(np.float32) - middle) * scales).T)


def test_zero_points_of_asymmetric_files_are_those_of_their_version(tmp_path: Path) -> None:
    stored = RNG.integers(0, 15, (2, 32))
    tensors, codes, scales = gptq(4, 128, 64, stored=stored)
    for version, more in (("gptq", 1), ("gptq_v2", 0)):
        declared = configured(4, 64, sym=False, checkpoint_format=version)
        points = (stored + more)[np.arange(128) // 64]
        wanted = ((codes.astype(np.float32) - points) * scales).T.astype(np.float32)
        assert same_bits(plain(write(tmp_path / "a", tensors, **declared), "gptq"), wanted)
    for wrong in (stored, 3):
        tensors, _, _ = gptq(4, 128, 64, stored=wrong)
        with bad_argument(ValueError, None, "file", r"fc\.qzeros.*8.*7"):
            hc.load(write(tmp_path / "a", tensors, **configured(4, 64)), layout="gptq")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
def test_words_of_other_widths(tmp_path: Path, dtype: str) -> None:
    """GPTQModel has pack_dtype: the same bytes along the input axis, in words of another width."""
    tensors, codes, scales = gptq(4, 128, 64)
    wide = tensors | {
        "fc.qweight": np.ascontiguousarray(np.ascontiguousarray(tensors["fc.qweight"].T).view(dtype).T),
        "fc.qzeros": tensors["fc.qzeros"].view(dtype),
    }
    wanted = ((codes.astype(np.float32) - 8) * scales).T
    assert same_bits(plain(write(tmp_path / "a", wide, **configured(4, 64)), "gptq"), wanted)
    wide["fc.qweight"] = np.zeros((16, 32), np.float32)
    with bad_argument(ValueError, None, "file", r"fc\.qweight.*float32.*\(16, 32\).*int32"):
        hc.load(write(tmp_path / "a", wide, **configured(4, 64)), layout="gptq")


def test_awq_without_zero_points(tmp_path: Path) -> None:
    q = hc.quantize(RNG.standard_normal((32, 128)).astype(np.float32), "int4-g32-f16")
    hc.save(tmp_path / "in", {"fc.weight": q, "lm_head.weight": np.ones((8, 8), np.float32)}, layout="awq")
    tensors = hc.load(tmp_path / "in")
    del tensors["fc.qzeros"]
    declared = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 32,
        "version": "gemm",
        "modules_to_not_convert": ["lm_head"],
    }
    path = write(tmp_path / "a", tensors, **declared, zero_point=False)
    found = hc.load(path, layout="awq")
    assert same_bits(found["fc.weight"].dequantize(), q.dequantize())
    assert same_bits(found["lm_head.weight"], np.ones((8, 8), np.float32))
    for point in (True, None):
        with bad_argument(ValueError, None, "file", r"fc\.qzeros.*zero_point"):
            hc.load(write(tmp_path / "a", tensors, **declared, zero_point=point), layout="awq")


def test_groups_of_awq_that_contradict_the_scales_are_named(tmp_path: Path) -> None:
    q = hc.quantize(RNG.standard_normal((32, 128)).astype(np.float32), "int4-g32-asym-f16")
    hc.save(tmp_path / "in", {"fc.weight": q}, layout="awq")
    tensors = hc.load(tmp_path / "in")
    for key in ("group_size", "q_group_size"):
        declared = {"quant_method": "awq", "w_bit": 4, "zero_point": True, key: 32}
        assert hc.load(write(tmp_path / "a", tensors, **declared), layout="awq")["fc.weight"] == q
        with pytest.raises(
            ValueError, match=rf"fc\.scales has 4 groups of 128 inputs, but {key} .* is 64, which makes 2"
        ):
            hc.load(write(tmp_path / "a", tensors, **declared | {key: 64}), layout="awq")
    with bad_argument(ValueError, None, "file", r"fc\.qzeros.*\(3, 4\).*\(4, 4\)"):
        hc.load(write(tmp_path / "a", tensors | {"fc.qzeros": np.zeros((3, 4), np.int32)}, **declared), layout="awq")


@pytest.mark.parametrize("fmt", ["int4-g32", "int8", "int4-g32-asym", "int3-g64-f16", "mxfp4"])
def test_stacks_of_experts_of_compressed_tensors(tmp_path: Path, fmt: str) -> None:
    w = RNG.standard_normal((3, 32, 128)).astype(np.float32)
    each = []
    for expert in w:
        hc.save(tmp_path / "one", {"experts.weight": hc.quantize(expert, fmt)}, layout="compressed-tensors")
        each.append(hc.load(tmp_path / "one"))
    with hc.open_checkpoint(tmp_path / "one") as opened:
        config = json.loads(opened.metadata["quantization_config"])
    tensors = {name: np.stack([one[name] for one in each]) for name in each[0]}
    wanted = hc.quantize(w, fmt, axis=2)
    shapes = [None] if fmt == "mxfp4" else [[3, 32, 128], [32, 128], [[32, 128]] * 3]
    for shape in shapes:
        if shape is not None:
            tensors["experts.weight_shape"] = np.array(shape, np.int64)
        path = write(tmp_path / "a", tensors, **config)
        assert hc.load(path, layout="compressed-tensors")["experts.weight"] == wanted
        assert same_bits(plain(path, "compressed-tensors", "experts.weight"), wanted.dequantize())
    for name in tensors:
        wrong = tensors | {name: tensors[name][:2]}
        with bad_argument(ValueError, None, "file", r"experts\.weight"):
            hc.load(write(tmp_path / "a", wrong, **config), layout="compressed-tensors")
    wrong = {name: values[None] for name, values in tensors.items()}
    with bad_argument(ValueError, None, "file", r"experts\.weight_packed.*\(out, in\).*\(experts, out, in\)"):
        hc.load(write(tmp_path / "a", wrong, **config), layout="compressed-tensors")


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("groups", [1, 4])
def test_stacks_of_experts_with_codes_of_8_bits(tmp_path: Path, kind: str, groups: int) -> None:
    codes = RNG.integers(-9, 10, (3, 16, 64)).astype(np.int8)
    stored = (
        codes if kind == "int8" else codes.astype(hc.quantize(np.ones((1, 1)), "fp8_e4m3fn").view_ml_dtypes().dtype)
    )
    scales = RNG.uniform(0.01, 0.1, (3, 16, groups)).astype(np.float32)
    weights = {"num_bits": 8, "type": "int" if kind == "int8" else "float", "symmetric": True}
    weights |= {"strategy": "channel"} if groups == 1 else {"strategy": "group", "group_size": 16}
    config = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized" if kind == "int8" else "float-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    path = write(tmp_path / "a", {"e.weight": stored, "e.weight_scale": scales}, **config)
    wanted = codes.astype(np.float32) * np.repeat(scales, 64 // groups, 2)
    assert same_bits(plain(path, "compressed-tensors", "e.weight"), wanted)
    if kind == "int8" or groups == 1:
        assert same_bits(hc.load(path, layout="compressed-tensors")["e.weight"].dequantize(), wanted)
    config["config_groups"] = {"group_0": {"targets": ["Linear"], "weights": weights | {"strategy": "tensor"}}}
    path = write(tmp_path / "a", {"e.weight": stored, "e.weight_scale": scales[:, :1, 0]}, **config)
    with bad_argument(ValueError, None, "file", r"e\.weight_scale.*float32.*\(3, 1\)"):
        hc.load(path, layout="compressed-tensors")


def test_what_compressed_tensors_says_is_blamed_by_name(tmp_path: Path) -> None:
    q = hc.quantize(RNG.standard_normal((32, 128)).astype(np.float32), "int4-g32")
    hc.save(tmp_path / "a", {"e.weight": q}, layout="compressed-tensors")
    with hc.open_checkpoint(tmp_path / "a") as found:
        tensors, config = dict(found.items()), json.loads(found.metadata["quantization_config"])
    weights = config["config_groups"]["group_0"]["weights"]

    def changed(parts: dict[str, Any], **declared: Any) -> Path:
        group = config["config_groups"]["group_0"] | {"weights": weights | declared}
        return write(tmp_path / "b", tensors | parts, **config | {"config_groups": {"group_0": group}})

    for declared in ({"strategy": None}, {"num_bits": "4"}):  # the size of the group implies the strategy
        assert hc.load(changed({}, **declared), layout="compressed-tensors")["e.weight"] == q
    for parts, declared, words in (
        ({}, {"num_bits": None}, r"e: num_bits is None, expected an integer"),
        ({}, {"group_size": None, "strategy": "group"}, r"e: group_size is None, expected an integer"),
        ({}, {"group_size": 64}, r"e\.weight_scale is \(32, 4\), expected \(32, 2\) of group_size 64 in the config"),
        (
            {"e.weight_shape": np.int64([2, 16, 128])},
            {},
            r"e\.weight_shape is \[2, 16, 128\], but e\.weight_packed",
        ),
        ({"e.weight_packed": np.zeros((32, 16), np.int64)}, {}, r"e\.weight_packed is int64 .* expected int32"),
    ):
        with pytest.raises(ValueError, match=f"b: {words}"):
            hc.load(changed(parts, **declared), layout="compressed-tensors")


def test_bitsandbytes_has_stacks_of_matrices(tmp_path: Path) -> None:
    q = hc.quantize(RNG.standard_normal((32, 128)).astype(np.float32), "nf4-g64")
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="bitsandbytes")
    tensors, name = hc.load(tmp_path / "a"), "fc.weight.quant_state.bitsandbytes__nf4"
    state = json.loads(tensors[name].tobytes())
    half = tensors["fc.weight.absmax"].astype(numpy_dtype("bfloat16"))
    q = hc.QuantizedArray(
        q.components | {"scales": half.astype(np.float32).reshape(32, 2)}, q.format, (32, 128), (1,)
    )  # scales of bfloat16 are read, too
    for shape in ((32, 128), (4, 8, 128)):
        declared = np.frombuffer(json.dumps(state | {"shape": shape}).encode(), np.uint8)
        path = write(tmp_path / "b", tensors | {name: declared, "fc.weight.absmax": half}, quant_method="bitsandbytes")
        found = hc.load(path, layout="bitsandbytes")["fc.weight"]
        assert found.shape == shape and same_bits(found.dequantize(), q.dequantize().reshape(shape))
        assert same_bits(plain(path, "bitsandbytes"), q.dequantize().reshape(shape))
    declared = np.frombuffer(json.dumps(state | {"shape": [4096]}).encode(), np.uint8)
    path = write(tmp_path / "b", tensors | {name: declared}, quant_method="bitsandbytes")
    with bad_argument(ValueError, None, "file", r"fc\.weight.*\(4096,\).*\(out, in\)"):
        hc.load(path, layout="bitsandbytes")


@pytest.mark.parametrize("shape, group", [((32, 128), 64), ((3, 50), 64), ((2, 4, 50), 64)])
def test_fp4_of_bitsandbytes(tmp_path: Path, shape: tuple[int, ...], group: int) -> None:
    size = int(np.prod(shape))
    levels = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3, -0.0, -0.0625, -8, -12, -4, -6, -2, -3], np.float32) / np.float32(
        12
    )
    codes = RNG.integers(0, 16, size).astype(np.uint8)
    absmax = RNG.uniform(0.1, 1, -(-size // group)).astype(np.float32)
    state = {"quant_type": "fp4", "blocksize": group, "dtype": "float16", "shape": shape}
    tensors = {
        "fc.weight": (codes[::2] << np.uint8(4) | codes[1::2]).reshape(-1, 1),
        "fc.weight.absmax": absmax,
        "fc.weight.quant_map": levels,
        "fc.weight.quant_state.bitsandbytes__fp4": np.frombuffer(json.dumps(state).encode(), np.uint8),
    }
    path = write(tmp_path / "a", tensors, quant_method="bitsandbytes", load_in_4bit=True)
    wanted = (levels[codes] * absmax[np.arange(size) // group]).reshape(shape)
    assert np.array_equal(plain(path, "bitsandbytes"), wanted)
    with bad_argument(ValueError, None, "file", r"fc\.weight.*fp4"):
        hc.load(path, layout="bitsandbytes")
    tensors["fc.weight.quant_map"] = levels[::-1].copy()
    path = write(tmp_path / "a", tensors, quant_method="bitsandbytes", load_in_4bit=True)
    with bad_argument(ValueError, None, "file", "quant_map.*16.*fp4"):
        hc.load(path, layout="bitsandbytes")


def test_expressions_fit_as_those_of_python_do() -> None:
    import re

    patterns = [
        ".*down.*", r"^model\.layers\.(?:0|1)\..*", "a{2,3}b?", r"[^.]+\.x\d+", r".*\.(?:[1-9]|1[0-5])\..*", "a|b|",
        "(?!.*attn).*w", r"\bab\b", "x*?y", "a{,2}c", "[]a]b", "a{2}", "(a|b)*c", "$", "", "a.c$", "(?=ab)a", "a{",
        "a{x}", r"[a\]]+\.", "(?:a?){3}b", "((a|b)+.)*", r"\w+\W", r"\.",
    ]  # fmt: skip
    rng = np.random.default_rng(7)
    words = ["".join(rng.choice(list("abcx.y1w\n{]"), rng.integers(0, 8))) for _ in range(400)]
    words += ["model.layers.0.mlp.down_proj", "layers.12.self_attn.q", "layers.3.w"]
    for pattern in patterns:
        wanted, slow = [bool(re.match(pattern, word)) for word in words], _compiled(pattern)[0]
        assert [matches(pattern, word) for word in words] == wanted, pattern
        assert [bool(slow(word, frozenset([0]))) for word in words] == wanted, pattern
    for hostile in ("(a+)+$", "((((a*)*)*)*)*$", "(a|a)*$", "a*" * 200 + "b", "(((a?){64}){64}){64}b"):
        assert not matches(hostile, "a" * 300 + "c")
