"""The table of chips: every number has a source, peaks are units x clock, and missing features are named in errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

from heterocompute import hardware as hw
from heterocompute.hardware.chips import host as machine

ALL = hw.devices()

# The names in the manual, and one for each row of the timeline, the accelerators and the tables.
NAMED = """k20x k80 m40 m40-24gb p4 p40 p100-sxm2 v100-sxm2 v100-pcie v100s-pcie quadro-rtx8000 t4 a100-sxm-40gb
a100-sxm-80gb a100-pcie-80gb a800-sxm-80gb a10 a30 a40 rtx-a6000 rtx3090 l4 l40 rtx4090 rtx5090 h200-sxm mi300x
jetson-agx-orin-64gb h100-sxm h100-pcie h100-nvl h800-sxm tpu-v1 tpu-v2 tpu-v2-8
tpu-v3 tpu-v4 tpu-v5e ascend-310 ascend-910 ascend-910b groq-tsp diannao nvdla-full eyeriss eie scnn simba
simba-chiplet kirin-970 xeon-platinum-8256 xeon-max-9462 alveo-u250 dgx-1-p100""".split()

# Operations per byte as published; tpu-v1 counts a multiply-add as two, the paper's 1350 as one.
RIDGES = [
    ("k20x", "fp32", 15.8), ("p100-sxm2", "fp16", 29.0), ("v100-sxm2", "fp16", 138.9),
    ("v100-sxm2", "fp16-vector", 34.9),
    ("t4", "fp16", 203.1), ("a100-sxm-40gb", "fp16", 200.6), ("a100-sxm-80gb", "fp16", 153.0),
    ("h100-sxm", "fp16", 295.3), ("h100-sxm", "fp8", 590.7),
    ("rtx4090", "fp16-acc16", 327.7), ("tpu-v1", "int8", 2705.9),
]  # fmt: skip

# Published peaks that differ from units x clock, and by how much: quoted, rounded, or with a nominal clock.
LOOSE = {("t4", "fp32"): 0.006, ("ascend-910", "fp16"): 0.025, ("diannao", "int16"): 0.08}


@pytest.mark.parametrize("name", NAMED)
def test_named_devices_have_a_block(name: str) -> None:
    assert hw.device(name).name == name


@pytest.mark.parametrize(
    "text, name, dtype, dense, gb_s",  # as their sheets print them, halved where they print the sparse rate
    [
        ("h200", "h200-sxm", "fp8", 3958 / 2, 4800),
        ("l40s", "l40s", "fp8", 1466 / 2, 864),
        ("4080", "rtx4080", "fp8", 390 / 2, 716.8),
        ("gaudi3", "gaudi-3", "bf16", 1835, 3670),
        ("trn2", "trainium2", "fp8", 1299, 2900),
        ("m4", "apple-m4", "fp32", 3.76, 120),
        ("l4", "l4", "int8", 485 / 2, 300),
        ("rtx3090", "rtx3090", "int8", 284, 936),
        ("rtx4090", "rtx4090", "fp16", 330.3 / 2, 1008),
        ("rtx5090", "rtx5090", "fp4", 3352 / 2, 1792),
        ("a6000", "rtx-a6000", "fp16", 309.7 / 2, 768),
        ("mi300x", "mi300x", "fp16", 1307.4, 5300),
        ("orin", "jetson-agx-orin-64gb", "int8", 170 / 2, 204.8),
    ],
)
def test_names_that_people_look_for_have_dense_rates(
    text: str, name: str, dtype: str, dense: float, gb_s: float
) -> None:
    one = hw.device(text)
    assert one.name == name
    assert one.peak(dtype) == pytest.approx(dense * 1e12, rel=0.001)
    assert one.bandwidth == gb_s * 1e9
    for kind, rate in one.sparse_rates.items():
        assert rate == pytest.approx(2 * one.peak(kind), rel=0.002)


@pytest.mark.parametrize("name", ALL)
def test_every_figure_has_a_source(name: str) -> None:
    one = ALL[name]
    for figure in one.figures():
        source = one.source_of(figure)
        assert source and len(source) > 8, f"{name}: {figure} has no source"
    assert set(one.unverified) <= {*one.figures(), "year", "process"}


@pytest.mark.parametrize("name", [name for name, one in ALL.items() if one.clock])
def test_peaks_are_units_times_clock(name: str) -> None:
    for dtype, (units, per_clock, hertz) in ALL[name].clock.items():
        assert units * per_clock * hertz == pytest.approx(ALL[name].peak(dtype), rel=LOOSE.get((name, dtype), 0.003))


@pytest.mark.parametrize("name, dtype, printed", RIDGES)
def test_ridge_points(name: str, dtype: str, printed: float) -> None:
    assert round(hw.device(name).ridge(dtype), 1) == printed


def test_sparse_rates_are_twice_the_dense_ones_and_kept_apart() -> None:
    a100 = hw.device("a100-sxm-80gb")
    assert (a100.peak("int8"), a100.peak("int8", sparse=True)) == (624e12, 1248e12)
    for one in ALL.values():
        for dtype in set(one.sparse_rates) & set(one.dense_rates):
            assert one.peak(dtype, sparse=True) == pytest.approx(2 * one.peak(dtype), rel=0.007), (one.name, dtype)


@pytest.mark.parametrize(
    "name, dtype",
    [("v100-sxm2", "bf16"), ("t4", "bf16"), ("p100-sxm2", "bf16"), ("a100-sxm-40gb", "fp8"), ("v100-sxm2", "int8")],
)
def test_a_type_that_a_chip_lacks_names_those_it_has(name: str, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: no rate for '{dtype}'; it has .*fp32.*fp16"):
        hw.device(name).peak(dtype)


def test_unknown_devices_and_kinds_name_the_nearest() -> None:
    with bad_argument(ValueError, None, "value", "'h10'.*h100-sxm"):
        hw.device("h10")
    with bad_argument(ValueError, None, "value", "rtx4090"):
        hw.device("rtx-4090")
    with bad_argument(ValueError, "kind", "value"):
        hw.devices(kind="gpus")
    with bad_argument(TypeError, None, "type", "Device"):
        hw.device(3)  # type: ignore[arg-type]


def test_a_figure_that_is_not_known_is_absent_and_says_so() -> None:
    diannao = hw.device("diannao")
    assert diannao.bandwidth is None
    with bad_argument(ValueError, None, "value", "diannao: its bandwidth is not known"):
        diannao.ridge("int16")
    with bad_argument(ValueError, None, "value", "gtx1080ti.*'fp16'"):
        hw.device("gtx1080ti").peak("fp16")


def test_errors_of_old_tables_are_not_repeated() -> None:
    assert hw.device("a100-sxm-40gb").links["nvlink3"] == 600e9
    assert hw.device("p100-sxm2").memory == 16 * 2**30 and "nvlink1" in hw.device("p100-sxm2").links
    assert hw.device("p4").memory == 8 * 2**30 and hw.device("t4").memory == 16 * 2**30
    assert hw.device("v100s-pcie").peak("fp16") == 130e12
    assert hw.device("h100-sxm").peak("fp32") == 66.9e12 and hw.device("h100-pcie").peak("fp32") == 51.2e12
    assert hw.device("rtx4090").peak("fp16") < hw.device("rtx4090").peak("fp16-acc16")


def test_bandwidth_is_stacks_times_width_times_rate() -> None:
    assert hw.device("a100-sxm-40gb").bandwidth == pytest.approx(5 * 1024 * 2.43e9 / 8, rel=1e-3)
    ratio = hw.device("p100-sxm2").need("bandwidth") / hw.device("k20x").need("bandwidth")
    assert round(ratio, 2) == 2.93


def test_systems_are_sums_of_their_chips() -> None:
    systems = (("dgx-1-p100", "p100-sxm2", 8), ("hgx-a100-8", "a100-sxm-40gb", 8), ("tpu-v3-8", "tpu-v3", 4))
    for name, part, n in systems:
        whole, one = hw.device(name), hw.device(part)
        for dtype in whole.dtypes:
            assert whole.peak(dtype) == pytest.approx(n * one.peak(dtype), rel=1e-12)
        assert whole.need("bandwidth") == pytest.approx(n * one.need("bandwidth"))
        assert whole.need("memory") == n * one.need("memory")


def test_selection_by_kind_and_year() -> None:
    assert set(hw.devices(kind="tpu")) == {"tpu-v1", "tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e"}
    assert all(one.year == 2020 and one.kind == "gpu" for one in hw.devices("gpu", 2020).values())
    for kind in ("cpu", "fpga", "phone"):
        assert hw.devices(kind)
    assert hw.device("A100") is hw.device("a100-sxm-40gb")
    with bad_argument(ValueError, "year", "value"):
        hw.devices(year="2020")  # type: ignore[arg-type]


def test_a_device_of_ones_own_is_taken_wherever_a_name_is() -> None:
    mine = hw.Device("mine", peak={"int8": 4e12, "float16": 2e12}, bandwidth=5e10, memory=1e9, tdp=10)
    assert hw.device(mine) is mine and mine.ridge("int8") == 80 and mine.peak("half") == 2e12
    figures: dict[str, Any] = {"peak": {"int8": np.float32(4e12)}, "bandwidth": np.int64(10**9)}
    assert hw.Device("mine", **figures).ridge("int8") == pytest.approx(4000)
    with bad_argument(TypeError, None, "type", "peak is 5, expected a mapping"):
        hw.Device("mine", peak=5)  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(hw.device("t4")))
    assert again.figures() == hw.device("t4").figures()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"peak": {"int8": -1}}, r"peak\['int8'\] is -1, expected a positive number"),
        ({"peak": {"int9": 1}}, "names the type 'int9', expected fp64"),
        ({"bandwidth": float("nan")}, "bandwidth is nan, expected a positive number"),
        ({"kind": "chip"}, "kind is 'chip', expected one of gpu"),
        ({"tdp": True}, "tdp is True"),
        ({"year": "2020"}, "year is '2020', expected an integer"),
        ({"peak": {"fp16": 1.0, "half": 2.0}}, "names fp16 twice, once as 'half'"),
    ],
)
def test_wrong_figures_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hw.Device("mine", **options)  # type: ignore[arg-type]


def test_devices_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[sources]\nsheet = "the sheet"\n[device.one]\npeak_tops = { int8 = 4.1 }\nbandwidth_gb_s = 50\n'
        'memory_gb = 2\nsource = { "*" = "sheet", peak = "measured" }\nunverified = ["bandwidth"]\n'
    )
    one = hw.load_devices(path)["one"]
    assert one.peak("int8") == 4.1e12 and one.memory == 2e9 and one.unverified == ("bandwidth",)
    assert one.source_of("peak.int8") == "measured" and one.source_of("bandwidth") == "the sheet"


@pytest.mark.parametrize(
    "text, message",
    [
        ("x", "not TOML"),
        ("[device.a]\npeak_tflops = { fp16 = 1 }", "unknown key 'peak_tflops', the nearest is 'peak_tops'"),
        ("[device.a]\nbandwidth_gb_s = -3", "bandwidth_gb_s is -3, expected a positive number"),
        ("[device.a]\nbandwidth_gb_s = nan", "bandwidth_gb_s is NaN"),
        ("[device.a]\nyear = " + "9" * 5000, "not TOML: Exceeds the limit"),
        ("[device.a]\nbandwidth_gb_s = inf", "bandwidth_gb_s is Infinity"),
        ("[device.a]\nbandwidth_gb_s = 1e99999999999999999999", "bandwidth_gb_s is Infinity"),
        ("[device.a]\nbandwidth_gb_s = -1e99999999999999999999", "bandwidth_gb_s is -?Infinity"),
        ("[device.a]\nbandwidth_gb_s = 1e-99999999999999999999", "bandwidth_gb_s is"),
        ("[device.a]\nbandwidth_gb_s = 1e-999", "bandwidth_gb_s is 1E-999, expected a positive number"),
        ("[device.a]\nyear = 1e99999999999999999999", "year is Infinity"),
        ("[device.a]\nbandwidth_gb_s = 0x" + "f" * 5000, "bandwidth_gb_s is an int of 20000 bits"),
        ("[device.a]\n" + "x" * 5000 + " = 1", "unknown key 'xxx"),
        ("[device.a]\nnote = " + "[" * 5000, "not TOML"),
        ('[device.a]\nbandwidth_gb_s = "3"', "bandwidth_gb_s is 3, expected a positive number"),
        ("[device.a]\nmemory_gb = 1\nmemory_gib = 1", "another unit"),
        ("[device.a]\npeak_tops = { int9 = 1 }", "names the type 'int9'"),
        ('[device.a]\nunverified = ["tdp"]', "unverified names 'tdp', which the block does not have"),
        ('[device.a]\naliases = ["b"]\n[device.b]', "the name 'b' is taken by 'a'"),
        ('[device.a]\nkind = "x"', "kind is 'x'"),
        ("[a]\n", "unknown table 'a'"),
        ("[device.a]\nclock = { int8 = 3 }", "clock.int8 is 3, expected"),
        ("[device.a]\nyear = 2.5", "year is 2.5"),
    ],
)
def test_files_that_are_no_tables_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        hw.load_devices(path)
    assert "mine.toml" in str(caught.value)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    path.write_bytes(b"#" * (5 << 20))
    with bad_argument(ValueError, None, "file", "4194304"):
        hw.load_devices(path)


def test_the_host_is_measured_once_and_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETEROCOMPUTE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "STEPS", 64)
    monkeypatch.setattr(machine, "MAX_READ_BYTES", 1 << 20)
    first = hw.host(threads=1)
    assert first.kind == "host" and set(first.dtypes) == {"fp32", "int8"}
    assert first.need("bandwidth") > 0 and first.ridge("fp32") > 0
    assert [path.name for path in (tmp_path / "heterocompute").iterdir()] == ["host.json"]
    assert hw.host(threads=1).figures() == first.figures()  # read, not measured
    monkeypatch.setattr(machine, "_measure", lambda threads: {**first_figures(first), "fp32": 1e9})
    assert hw.host(threads=1).figures() == first.figures()
    assert hw.host(refresh=True, threads=1).peak("fp32") == 1e9
    kept = machine.cache_file().read_text()
    for text in (  # a changed file is measured again
        '{"figures": {"fp32": "NaN"}}',
        "[" * 100_000,
        kept.replace("1000000000.0", "1" + "0" * 400),
        " " * (1 << 20),
    ):
        machine.cache_file().write_text(text)
        assert text != kept and hw.device("host").peak("fp32") == 1e9
    with bad_argument(ValueError, "threads", "value"):
        hw.host(threads=0)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    figures = {"fp32": 1e9, "int8": 2e9, "bandwidth": 1e9, "memory": None, "on_chip": None}
    monkeypatch.setattr(machine, "_measure", lambda threads: figures)
    assert hw.host().peak("int8") == 2e9


def first_figures(one: hw.Device) -> dict[str, float | None]:
    return {**{t: one.peak(t) for t in one.dtypes}, "bandwidth": one.bandwidth, "memory": None, "on_chip": None}


def test_figures_that_were_wrong_or_missing() -> None:
    assert hw.device("k40").tdp == hw.device("k40m").tdp == 235  # board specification
    assert hw.device("gtx1080ti").memory == 11 * 2**30
    gen4 = {one.links["pcie4"] for one in hw.devices().values() if "pcie4" in one.links}
    assert gen4 == {63e9} and hw.device("a40").links["pcie4"] == 63e9
    nvl = hw.device("h100-nvl")
    for dtype in ("tf32", "fp16", "bf16", "int8", "fp8"):
        assert nvl.peak(dtype) == nvl.peak(dtype, sparse=True) / 2
    assert "half" in (nvl.source_of("peak.fp16") or "")


def test_memory_is_what_programs_see() -> None:
    """The 141 GB and 180 GB of data sheets are binary units, minus the driver's share, in MiB as in nvidia-smi."""
    assert hw.device("h200").memory == pytest.approx(143771 * 2**20, rel=0.001)
    assert hw.device("b200").memory == pytest.approx(183359 * 2**20, rel=0.001)


def test_a_file_has_the_keys_of_python_and_is_a_device_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "[device.mine]\npeak = { int8 = 4e12 }\nbandwidth = 50e9\nmemory = 16\ntdp = 3\nlinks = { a = 5 }\n"
    )
    found = hw.device(str(path))
    assert found.peak("int8") == 4e12 and (found.bandwidth, found.memory, found.tdp) == (5e10, 16, 3)
    assert dict(found.links) == {"a": 5} and hw.roofline("resnet18", str(path), "int8").device == "mine"
    path.write_text("[device.a]\npeak = { int8 = 1 }\n[device.b]\npeak = { int8 = 1 }\n")
    with pytest.raises(ValueError, match=r"device: '.*mine\.toml' has a, b, expected one device"):
        hw.device(str(path))
    path.write_text("[device.a]\npeak = { int8 = 1 }\npeak_tops = { int8 = 1 }\n")
    with pytest.raises(ValueError, match="peak and another unit of it"):
        hw.device(str(path))
