"""Whole checkpoints: selected tensors are quantized, others are copied, and one tensor is in memory at a time."""

import fnmatch
import json
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.base.container import Reader
from heterocompute.base.writer import Writer
from heterocompute.files.checkpoint import inspect, quantize_checkpoint
from heterocompute.files.recipes import parse_recipe, read_recipe
from heterocompute.files.safetensors import save
from heterocompute.files.selection import FirstMatch, axis_of, select


def tensors():
    random = np.random.default_rng(3)

    def normal(*shape):
        return random.standard_normal(shape).astype(np.float32)

    return {
        "embed.weight": normal(40, 24).astype(ml_dtypes.bfloat16),
        "conv.weight": normal(4, 20, 3, 3),
        "fc.weight": normal(10, 33).astype(np.float16),
        "fc.bias": normal(10),
        "head.weight": normal(3, 10).astype(np.float64),
        "ids": np.arange(12).reshape(3, 4),
        "mask": np.array([[True, False]]),
        "scale": np.float32(2),
    }


@pytest.fixture
def paths(tmp_path):
    before, after = str(tmp_path / "before.safetensors"), str(tmp_path / "after.safetensors")
    save(before, tensors())
    return before, after


def formats_of(path):
    return {row["name"]: row["format"] for row in inspect(path)}


# Selection of tensors and axes.


def test_float_matrices_are_quantized_and_the_rest_is_copied(paths):
    before, after = paths
    summary = quantize_checkpoint(before, after, "vsq4-g16-s4")
    original, found = tensors(), hc.load(after)
    assert list(found) == list(original)
    for name, array in original.items():
        if array.dtype.kind in "fV" and array.ndim >= 2:
            axis = (2, 3, 1) if array.ndim == 4 else -1
            assert found[name] == hc.quantize(array, "vsq4-g16-s4", axis=axis)
            assert found[name].source_dtype == array.dtype.name
        else:
            assert found[name].dtype == array.dtype and found[name].tobytes() == array.tobytes()
    assert summary["bytes_before"] == sum(array.nbytes for array in original.values())
    assert summary["bytes"] == sum(array.nbytes for array in found.values())
    assert [row["name"] for row in summary["tensors"]] == list(original)


def test_same_values_give_the_same_codes_from_any_float(tmp_path):
    values = np.random.default_rng(5).standard_normal((8, 48)).astype(ml_dtypes.bfloat16)
    names = {"b": values, "f": values.astype(np.float32), "d": values.astype(np.float64)}
    save(tmp_path / "in", names)
    quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int4-g16")
    found = hc.load(tmp_path / "out")
    for name in names:
        for key, part in found["f"].components.items():
            assert np.array_equal(found[name].components[key], part)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_float8_tensors_are_inputs(tmp_path, dtype):
    before, after = str(tmp_path / "before.safetensors"), str(tmp_path / "after.safetensors")
    w = np.random.default_rng(4).standard_normal((4, 32)).astype(dtype)
    save(before, {"w": w})
    quantize_checkpoint(before, after, "nf4-g16")
    assert hc.load(after)["w"] == hc.quantize(w.astype(np.float32), "nf4-g16")
    assert [row["format"] for row in hc.study(before, ["int4"]).table] == ["stored", "int4"]


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, ["embed.weight", "conv.weight", "fc.weight", "head.weight"]),
        ({"include": "fc.*"}, ["fc.weight"]),
        ({"include": ["fc.bias"]}, ["fc.bias"]),
        ({"include": ["*.weight", "fc.bias"], "exclude": ["[ceh]*"]}, ["fc.weight", "fc.bias"]),
        ({"exclude": "embed.weight"}, ["conv.weight", "fc.weight", "head.weight"]),
        ({"include": "fc.*", "exclude": "fc.weight", "format": "int8"}, None),
        ({"format": None, "recipe": {"fc.*": "int4", "head.weight": "skip", "*": "vsq3-g16"}}, None),
    ],
)
def test_patterns_choose(paths, options, wanted):
    before, after = paths
    if options.get("include") == "fc.*" and "exclude" in options:
        with bad_argument(ValueError, None, "file", "no float tensor"):
            quantize_checkpoint(before, after, **options)
        return
    quantize_checkpoint(before, after, **{"format": "int8", **options})
    found = formats_of(after)
    if wanted is None:
        assert found["fc.weight"] == "int4" and found["head.weight"] is None
        assert found["conv.weight"] == found["embed.weight"] == "vsq3-g16"
        assert found["fc.bias"] is None
    else:
        assert [name for name, text in found.items() if text] == wanted


def test_recipe_wins_over_the_format_for_all(paths):
    before, after = paths
    quantize_checkpoint(before, after, "int8", recipe={"embed.*": None, "fc.bias": "int4", "conv.*": hc.Int(3)})
    assert formats_of(after) == {
        "embed.weight": None,
        "conv.weight": "int3",
        "fc.weight": "int8",
        "fc.bias": "int4",
        "head.weight": "int8",
        "ids": None,
        "mask": None,
        "scale": None,
    }


def test_axis_can_be_given_by_pattern(paths):
    before, after = paths
    quantize_checkpoint(before, after, "int8", axis={"fc.*": 0, "conv.weight": (1, 2, 3)})
    found = hc.load(after)
    assert found["fc.weight"].axis == (0,)
    assert found["conv.weight"].axis == (1, 2, 3)
    assert found["head.weight"].axis == (1,)


def test_axis_that_does_not_fit_names_the_tensor():
    with bad_argument(ValueError, None, "shape", "'w' has 2 dimensions, but axis 2"):
        axis_of("w", (4, 4), 2)
    for wrong in ((), (0, 0), (1, -1)):
        with bad_argument(ValueError, None, "value", "'w': axis"):
            axis_of("w", (4, 4), wrong)
    assert axis_of("w", (8, 4, 64)) == (2,) and axis_of("w", (8, 4, 3, 3)) == (2, 3, 1)
    assert axis_of("w", (8, 4, 3)) == (2, 1) and axis_of("w", (8, 4, 3), (0, -1)) == (0, 2)
    assert axis_of("layers.0.Experts.up", (8, 4, 16)) == (2,)


def test_selection_refuses_what_it_cannot_mean():
    infos = {"w": ("float32", (2, 2)), "i": ("int32", (2, 2)), "scalar": ("float32", ())}
    for include, words in ({"absent": "unknown tensor 'absent'", "i": "'i' is int32", "scalar": "'scalar'"}).items():
        with pytest.raises(ValueError, match=words):
            select(infos, include)
    with bad_argument(ValueError, None, "value", "'absent'"):
        select(infos, exclude="absent")
    with bad_argument(ValueError, None, "shape", "no float tensor"):
        select(infos, "nothing*")
    with bad_argument(TypeError, None, "type", "int"):
        select(infos, [3])
    assert select(infos, exclude="nothing*") == ["w"]
    assert select({"a[0].w": ("float32", (2, 2))}, "a[0].w") == ["a[0].w"]


def test_the_first_pattern_that_fits_wins_as_fnmatch_says():
    random = np.random.default_rng(4)
    letters = ["a", "b", "*", "?", "[ab]", "[", "]", "!", ".", "[!a]"]
    for _ in range(300):
        table = {"".join(random.choice(letters, random.integers(1, 4))): i for i in range(random.integers(1, 8))}
        first = FirstMatch(table)
        for _ in range(20):
            name = "".join(random.choice(["a", "b", ".", "[", "*", "[ab]"], random.integers(0, 4)))
            fitting = (i for pattern, i in table.items() if name == pattern or fnmatch.fnmatchcase(name, pattern))
            assert first(name, -1) == next(fitting, -1)


def test_a_recipe_may_name_every_tensor_of_many():
    names = [f"model.layers.{i}.weight" for i in range(50_000)]  # every pattern per name would take minutes
    recipe = {**dict.fromkeys(names, "skip"), "*": "int8"}
    first = FirstMatch(parse_recipe(recipe))
    assert first(names[-1]) is None and str(first("other")) == "int8"
    assert [name for name in names if first(name, "int8")] == []
    assert len(select(dict.fromkeys(names, ("float32", (2, 2))), named=recipe)) == len(names)


def test_recipe_file_is_read_in_order(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[formats]\n"a.*" = "int4-g32"\n"b" = "skip"\n"*" = "int8"\n')
    found = parse_recipe(read_recipe(path))
    assert list(found.items()) == [("a.*", hc.Int(4, 32)), ("b", None), ("*", hc.Int(8))]


MANY = "[formats]\n" + "".join(f'"{i}*" = "int8"\n' for i in range(10_001))
DEEP = "[formats]\na = " + "[" * 5000


@pytest.mark.parametrize(
    "text", ["[formats", "", "[other]\n", "[formats]\na = 3\n", "a = 1\n[formats]\n", "\xff", MANY, DEEP]
)
def test_wrong_recipe_names_its_file(tmp_path, text):
    path = tmp_path / "recipe.toml"
    path.write_bytes(text.encode("latin-1"))
    with bad_argument(ValueError, None, "file", r"\S.*recipe\.toml"):
        read_recipe(path)


# Refused arguments.


@pytest.mark.parametrize("value, word", [(np.nan, "nan"), (-np.inf, "inf")])
def test_nan_names_file_tensor_and_index(paths, value, word):
    before, after = paths
    arrays = tensors()
    arrays["conv.weight"][2, 5, 1, 0] = value
    save(before, arrays)
    with pytest.raises(ValueError) as caught:
        quantize_checkpoint(before, after, "int4")
    message = str(caught.value)
    assert message.startswith(f"{before}: tensor 'conv.weight': ") and "(2, 5, 1, 0)" in message
    assert word in message.lower()
    assert os.listdir(os.path.dirname(before)) == ["before.safetensors"]


def test_quantized_input_is_refused(paths):
    before, after = paths
    quantize_checkpoint(before, after, "int8")
    with bad_argument(ValueError, None, "file", r"'embed.weight'.*\(int8\)"):
        quantize_checkpoint(after, before, "int4")


@pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")
def test_a_name_says_what_is_written(paths, tmp_path):
    for name, layout in (("a.gguf", None), ("a.ONNX", "gptq"), ("a.pt", None)):
        with bad_argument(
            ValueError, None, "file", r"what is written is a safetensors file, expected a name without \.\w+"
        ):
            quantize_checkpoint(paths[0], tmp_path / name, "int4-g32", layout=layout)
    assert sorted(os.listdir(tmp_path)) == ["before.safetensors"]


def test_input_is_never_the_output(paths, tmp_path):
    before, _ = paths
    os.symlink(before, tmp_path / "link")
    os.link(before, tmp_path / "hard")
    for other in (before, tmp_path / "link", tmp_path / "hard"):
        with bad_argument(ValueError, None, "file", "is the input itself"):
            quantize_checkpoint(before, other, "int8")
    assert list(hc.load(before)) == list(tensors())


def test_name_of_a_component_must_be_free(tmp_path):
    save(tmp_path / "in", {"w": np.ones((2, 4)), "w.scales": np.ones(3, np.float32)})
    with bad_argument(ValueError, None, "file", "'w.scales'"):
        quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int8")
    assert os.listdir(tmp_path) == ["in"]


def test_a_recipe_of_no_formats_names_the_pattern(paths):
    with bad_argument(TypeError, None, "type", r"'fc\.\*'.*3.*'skip'"):
        quantize_checkpoint(*paths, recipe={"fc.*": 3, "*": "int8"})


def test_a_format_or_a_recipe_is_needed(paths):
    with bad_argument(ValueError, None, "value", "format or recipe"):
        quantize_checkpoint(*paths)


def test_metadata_stays(paths, tmp_path):
    with Writer(tmp_path / "in", {"w": ("float32", (2, 4))}, {"format": "pt", "über": "ß"}) as writer:
        writer.write("w", np.ones((2, 4), np.float32))
    quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int8")
    with Reader(tmp_path / "out") as reader:
        assert reader.metadata["format"] == "pt" and reader.metadata["über"] == "ß"
        assert set(json.loads(reader.metadata["heterocompute"])["tensors"]) == {"w"}


def test_progress_ends_at_all_bytes(paths):
    calls = []
    quantize_checkpoint(*paths, "int8", progress=lambda *call: calls.append(call))
    total = sum(array.nbytes for array in tensors().values())
    assert [name for _, _, name in calls] == [*tensors(), ""]
    assert [done for done, _, _ in calls] == sorted(done for done, _, _ in calls)
    assert calls[0][0] == 0 and calls[-1][:2] == (total, total)


def test_sub_byte_tensors_are_copied(tmp_path):
    header = {"f4": {"dtype": "F4", "shape": [2, 4], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    (tmp_path / "in").write_bytes(len(text).to_bytes(8, "little") + text + b"\x12\x34\x56\x78")
    quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int8")
    assert (tmp_path / "out").read_bytes().endswith(b"\x12\x34\x56\x78")
    assert inspect(tmp_path / "out")[0]["dtype"] == "float4_e2m1fn"


# Inspect.


def test_inspect_describes_every_tensor(tmp_path):
    quantized = hc.quantize(np.array([[-2, 0, 4, 1]], np.float16), "int8")
    arrays = {
        "q": quantized,
        "nan": np.array([np.nan, 3, -5]).astype(ml_dtypes.bfloat16),
        "inf": np.array([-np.inf, 1], np.float32),
        "only": np.array([np.nan]),
        "int": np.array([2**63 - 1, -(2**63)]),
        "bool": np.array([True, True]),
        "fp8": np.array([-448, 2]).astype(ml_dtypes.float8_e4m3fn),
        "complex": np.array([1j, np.nan], np.complex64),
        "empty": np.zeros((0, 3)),
    }
    save(tmp_path / "in", arrays)
    rows = {row.pop("name"): row for row in inspect(tmp_path / "in")}
    values = quantized.dequantize()
    expected = {
        "q": ("float16", [1, 4], "int8", 8, float(values.min()), float(values.max()), 0),
        "nan": ("bfloat16", [3], None, 6, -5.0, 3.0, 1),
        "inf": ("float32", [2], None, 8, -np.inf, 1.0, 0),
        "only": ("float64", [1], None, 8, None, None, 1),
        "int": ("int64", [2], None, 16, -(2**63), 2**63 - 1, 0),
        "bool": ("bool", [2], None, 2, 1, 1, 0),
        "fp8": ("float8_e4m3fn", [2], None, 2, -448.0, 2.0, 0),
        "complex": ("complex64", [2], None, 16, None, None, 1),
        "empty": ("float64", [0, 3], None, 0, None, None, 0),
    }
    assert list(rows) == list(expected)
    for name, (dtype, shape, text, n_bytes, low, high, n_nan) in expected.items():
        assert rows[name] == {
            "dtype": dtype,
            "shape": shape,
            "format": text,
            "bytes": n_bytes,
            "min": low,
            "max": high,
            "nan": n_nan,
        }


def test_range_is_found_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("heterocompute.files.inspection.BLOCK", 3)
    save(tmp_path / "in", {"w": np.array([[0, 1, 2, np.nan], [9, 3, np.nan, -7]], np.float16)})
    row = inspect(tmp_path / "in")[0]
    assert (row["min"], row["max"], row["nan"]) == (-7, 9, 2)


# Memory: the largest tensor, its components and 64 MiB.

PEAK = """
import sys
import numpy as np
import heterocompute as hc
from heterocompute.files.checkpoint import inspect, quantize_checkpoint

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

hc.quantize(np.ones((64, 64), np.float32), "int4-g16")  # threads and code are not what is measured
before = peak()
if sys.argv[1] == "two workers":
    quantize_checkpoint(*sys.argv[2:], workers=2, shard_size=8 << 20)
else:
    getattr(sys.modules["heterocompute.files.checkpoint"], sys.argv[1])(*sys.argv[2:])
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's peak of resident memory")
@pytest.mark.parametrize("what", ["quantize_checkpoint", "inspect", "two workers"])
@pytest.mark.sweep(every=4)
def test_memory_is_one_tensor(tmp_path, what):
    shape, count = (4096, 2048), 6  # 32 MiB each, 192 MiB in all
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    layout = {f"layer.{i}.weight": ("float32", shape) for i in range(count)}
    tile = np.random.default_rng(0).standard_normal((64, 2048)).astype(np.float32)
    array = np.tile(tile, (64, 1))
    with Writer(before, layout) as writer:
        for name in layout:
            writer.write(name, array)
    arguments = [before, after, "vsq4-g16-s4"] if what != "inspect" else [before]
    run = subprocess.run(
        [sys.executable, "-c", PEAK, what, *arguments], capture_output=True, text=True, check=True, timeout=300
    )
    one = array.nbytes + hc.quantize(array, "vsq4-g16-s4").nbytes
    assert int(run.stdout) < (2 * one if what == "two workers" else one) + 64 * 2**20
