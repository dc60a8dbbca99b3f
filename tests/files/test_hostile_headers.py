"""Files that are built to take much time or memory: each is read or refused at once, with a short message.

Most commands run in a process with a time limit. Without bounds, each of these files takes minutes or gigabytes.
"""

import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from common import HANG, assert_refused, read_raw, run, write_raw

import heterocompute as hc
from heterocompute.base.container import Reader
from heterocompute.base.json_text import MAX_MARKS, MAX_STRINGS, strict_json
from heterocompute.base.writer import Writer
from heterocompute.files import checkpoint, inspection
from heterocompute.files.safetensors import save
from heterocompute.hardware import as_network

EIE = {"format": "eie-p1", "shape": [1, 1], "axis": [1], "dtype": "float32"}
EMPTY = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "model.safetensors")


def command(*arguments):
    """Return (exit code, stdout, last line of stderr) of a command in a separate process."""
    process = subprocess.run(
        [sys.executable, "-m", "heterocompute", *map(str, arguments)], capture_output=True, text=True, timeout=HANG
    )
    lines = process.stderr.splitlines() or [""]
    assert "Traceback" not in process.stderr and max(map(len, lines)) < 1000
    return process.returncode, process.stdout, lines[-1]


def described(tensors, **more):
    text = json.dumps({"version": 1, "single": False, "tensors": tensors})
    return {"__metadata__": {"heterocompute": text}, **more}


# Time.


@pytest.mark.parametrize(
    "number, count, words",
    [(2**63 - 1, 400_000, "illegal shape"), (2, 1_200_000, "illegal shape"), (2**63 - 1, 64, "overflows")],
)
@pytest.mark.sweep(every=3)
def test_a_description_of_any_number_of_dimensions_is_refused_at_once(path, number, count, words):
    write_raw(path, described({"w": {**EIE, "format": "int8", "shape": [number] * count}}))
    code, stdout, line = command("inspect", path)
    assert code == 1 and not stdout and f"{path}: tensor 'w'" in line and words in line


def test_any_number_of_axes_is_refused_at_once(path):
    write_raw(path, described({"w": {**EIE, "shape": [1] * 400_000, "axis": list(range(400_000))}}))
    assert_refused(path, "'w'", "illegal shape")
    write_raw(path, described({"w": {**EIE, "axis": list(range(400_000))}}))
    assert_refused(path, "'w'", "illegal axis")


@pytest.mark.sweep(every=0)
def test_names_of_many_arrays_are_looked_up_not_searched(path):
    names = [f"e{i}" for i in range(60_000)]
    write_raw(path, described(dict.fromkeys(names, EIE), **{f"x{name}": EMPTY for name in names}))
    code, _, line = command("inspect", path)
    assert code == 1 and "'e0' lacks its component 'e0.codebook'" in line


@pytest.mark.parametrize("node", ["same", ""])
@pytest.mark.sweep(every=4)
def test_nodes_of_one_name_are_counted_at_once(tmp_path, node):
    onnx = pytest.importorskip("onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    values = [f"t{i}" for i in range(4001)]
    nodes = [helper.make_node("Relu", [a], [b], name=node) for a, b in zip(values[:-1], values[1:], strict=True)]
    ends = [[helper.make_tensor_value_info(name, float32, [1, 8])] for name in (values[0], values[-1])]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *ends)), str(path))
    code, _, line = command("count", path)
    assert code == 0, line
    network = as_network(str(path))
    assert len({node.name for node in network.nodes}) == len(network.nodes) == 4000


# Memory.


@pytest.mark.parametrize("mark, what", [(mark, what) for mark, (what, _) in MAX_MARKS.items()])
@pytest.mark.parametrize("inside", [False, True])
def test_more_values_than_tensors_can_need_are_refused_before_they_are_made(path, mark, what, inside):
    most = MAX_MARKS[mark][1]
    piece = {b"{": b"{},", b"[": b"[],", b",": b"7,"}[mark]
    text = b'{"a": [' + piece * (most + 1) + b"7]}"
    write_raw(path, {"__metadata__": {"heterocompute": text.decode()}} if inside else text)
    tracemalloc.start()
    assert_refused(path, "not JSON", f"more than {most} {what}", *(["'heterocompute'"] if inside else []))
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < 10 * len(text)  # copies of the text, but no values


def test_more_texts_than_tensors_can_need_are_refused_before_they_are_made(path):
    text = b'{"a": [' + b'"",' * MAX_STRINGS + b'""]}'
    write_raw(path, text)
    assert_refused(path, "not JSON", f"more than {MAX_STRINGS} strings")


def test_marks_inside_texts_are_no_values(path):
    text = '{["\\",' * (MAX_MARKS[b"{"][1] + 1)
    write_raw(path, {"__metadata__": {"tokens": text}, "x": EMPTY})
    with Reader(path) as reader:
        assert reader.metadata == {"tokens": text} and reader.names == ["x"]


@pytest.mark.parametrize("depth", [*range(900, 1000, 7), 10_000, 1_000_000])
@pytest.mark.parametrize("field", ["version", "shape", "format", "dtype"])
def test_any_depth_is_refused_by_one_sentence(path, depth, field):
    nested = "[" * depth + "]" * depth
    text = json.dumps({"version": 1, "single": False, "tensors": {"w": {**EIE, field: "@"}}}).replace('"@"', nested)
    if field == "version":
        text = f'{{"version": {nested}, "single": false, "tensors": {{}}}}'
    write_raw(path, {"__metadata__": {"heterocompute": text}})
    assert_refused(path)
    write_raw(path, f'{{"w": {{"dtype": "F32", "shape": {nested}, "data_offsets": {nested}}}}}'.encode())
    assert_refused(path)


@pytest.mark.parametrize("text", ['{"a": "' + '\\"' * 999, '{"a": "' + '\\"' * 999 + "\\", "\\" * 999, '"' * 999])
def test_texts_that_do_not_end_are_no_json(text):
    with pytest.raises(ValueError):
        strict_json(text)


ROWS = 10**8


NUMBERS = ["1e999", "-1e999", "1E+400", "1e00400", "1" * 400, "1e308", "1e-999", "0e999", "-0", "1" * 309, "9e307"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:8] + str(len(text)))
def test_numbers_of_headers_are_those_of_the_library_of_safetensors(path, number):
    library = pytest.importorskip("safetensors")
    header = f'{{"a":{{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":{number}}}}}'.encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + b"\0\0\0\0")
    try:
        with library.safe_open(path, "np"):
            pass
    except Exception as error:
        assert "out of range" in str(error)
        with pytest.raises(ValueError, match="beyond float64"):
            hc.open_checkpoint(path)
    else:
        hc.open_checkpoint(path).close()


def write_bomb(path, rows=ROWS):
    """Write 500 bytes that decode to 10^8 zeros."""
    e = hc.encode_eie(np.zeros((1, 1), np.float32), elements=1)
    e.save(path)
    header, data = read_raw(path)
    header["__metadata__"]["heterocompute"] = header["__metadata__"]["heterocompute"].replace("[1, 1]", f"[{rows}, 1]")
    write_raw(path, header, data)


def test_a_small_file_of_a_huge_array_stays_small(path):
    write_bomb(path)
    tracemalloc.start()
    row = checkpoint.inspect(path)[0]
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < 1 << 20
    assert (row["shape"], row["min"], row["max"], row["nan"]) == ([ROWS, 1], 0.0, 0.0, 0)
    code, stdout, _ = command("inspect", path)
    assert code == 0 and "100000000 x 1" in stdout


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("elements", [1, 3])
@pytest.mark.parametrize("shape", [(40, 7), (0, 3), (3, 0), (1, 1)])
def test_the_range_of_an_eie_array_is_that_of_its_values(path, share, elements, shape):
    random = np.random.default_rng(5)
    w = np.where(random.random(shape) < share, random.standard_normal(shape) + 3, 0).astype(np.float32)
    e = hc.encode_eie(w, elements=elements)
    save(path, {"e": e, "turned": e.T})
    dense = np.asarray(e)
    wanted = (float(dense.min()), float(dense.max())) if dense.size else (None, None)
    for row in checkpoint.inspect(path):
        assert (row["min"], row["max"]) == wanted and row["nan"] == 0


@pytest.mark.parametrize("text", ["int2", "vsq4-g16-s4", "cb4", "nf4-g64-dq", "mxfp4", "int8+2:4", "2:4"])
@pytest.mark.parametrize("axis", [-1, 0])
def test_the_range_in_blocks_is_the_range_at_once(path, text, axis, monkeypatch):
    w = np.random.default_rng(6).standard_normal((50, 130)).astype(np.float32)
    q = hc.quantize(w, text, axis=axis) if text != "2:4" else hc.prune(w, text, axis=axis)
    save(path, {"q": q, "w": w})
    monkeypatch.setattr(inspection, "BLOCK", 1000)
    rows = checkpoint.inspect(path)
    for row, values in zip(rows, (np.asarray(q), w), strict=True):
        assert (row["min"], row["max"]) == (float(values.min()), float(values.max()))


def test_a_packed_array_is_decoded_some_rows_at_a_time(path):
    w = np.zeros((8192, 4096), np.float32)
    hc.quantize(w, "int2").save(path)
    del w
    tracemalloc.start()
    checkpoint.inspect(path)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < 64 << 20  # 128 MiB when it is decoded


# Tensors without values, with any number of rows.

HOLLOW = [(2**40, 0), (0, 2**40), (2**20, 2**20, 0), (2**20, 0, 2**10, 2**10), (2**57, 0)]


@pytest.mark.parametrize("shape", HOLLOW, ids=str)
@pytest.mark.sweep(every=3)
def test_a_tensor_without_values_is_no_work(path, tmp_path, shape, capsys):
    write_raw(path, {"x": {"dtype": "F32", "shape": list(shape), "data_offsets": [0, 0]}})
    assert run(capsys, "inspect", path)[0] == 0
    code, stdout, line = run(capsys, "study", path, "--formats", "int8,vsq4-g16-s4,2:4", "--json")
    if shape == (2**57, 0):
        assert code == 1 and f"{path}: tensor 'x': " in line and "overflow" in line
    else:
        assert code == 0 and json.loads(stdout)["layers"][1]["seconds"] is None
    out = str(tmp_path / "out.safetensors")
    for verb in (["quantize", "--format", "int8"], ["quantize", "--format", "vsq4-g16"], ["prune", "--pattern", "2:4"]):
        code, stdout, _ = run(capsys, verb[0], path, out, "--overwrite", *verb[1:])
        assert code == 0 and "1 copied" in stdout
        assert hc.load(out)["x"].shape == shape


def test_the_bytes_of_a_tensor_without_values_are_those_of_its_scales():
    w = np.zeros((5, 0), np.float32)
    result = hc.study(w, ["int8", "int4-g16", "nf4-g64-dq", "cb4"])
    for row in result.layers[1:]:
        assert row["bytes"] == hc.quantize(w, row["format"]).nbytes


# Names and messages.


@pytest.mark.parametrize("name", ["n" * 10_000_000, "\x1b[31m" * 2_000_000, "\u202e" * 1_000_000])
@pytest.mark.parametrize("entry", [{**EMPTY, "dtype": "F33"}, {**EMPTY, "shape": [1]}, 7])
@pytest.mark.sweep(every=4)
def test_a_long_name_makes_no_long_message(path, name, entry):
    write_raw(path, {name: entry})
    with pytest.raises(ValueError) as caught:
        hc.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: tensor ") and len(message) < 3000 and message.isprintable()


@pytest.mark.sweep(every=0)
def test_a_long_name_of_an_array_makes_no_long_message(path, tmp_path):
    name = "long" * 100_000
    with Writer(path, {name: ("float32", (2, 4))}) as writer:
        writer.write(name, np.full((2, 4), np.nan, np.float32))
    for arguments in (
        ["quantize", path, tmp_path / "out", "--format", "int8"],
        ["study", path, "--formats", "int8"],
        ["quantize", path, tmp_path / "out", "--format", "int8", "--include", "absent" * 1000],
    ):
        code, stdout, _ = command(*arguments)
        assert code == 1 and not stdout
    code, stdout, _ = command("inspect", path)
    assert code == 0 and len(stdout) < 20_000 and "longlong" in stdout
    save(path, {name: hc.quantize(np.ones((2, 4), np.float32), "int8")})
    code, _, line = command("prune", path, tmp_path / "out", "--pattern", "2:4")
    assert code == 1 and "already quantized (int8)" in line
