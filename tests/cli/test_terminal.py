"""Names from untrusted files on the terminal: commands print no control sequences, and long names are cut."""

import json
import os

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.base.errors import printable
from heterocompute.base.texts import MAX_MESSAGE, one_line, quoted, read_small, shortened
from heterocompute.base.toml_text import read_toml
from heterocompute.cli import command as cli
from heterocompute.files.safetensors import save

HOSTILE = "a\x1b[31mb\x07\r\x9b2J\u202ec\x00\x7f\u2028"


def assert_harmless(capsys, *arguments, code=0, shows="a\\x1b[31mb\\x07\\r\\x9b2J\\u202ec\\x00\\x7f\\u2028"):
    """Run a command and assert that its output has the name, with printable characters only."""
    assert cli.main([str(argument) for argument in arguments]) == code
    found = capsys.readouterr()
    for text in (found.out, found.err):
        assert all(character.isprintable() for character in text.replace("\n", "")), ascii(text)
    assert shows in (found.out if code == 0 else found.err)
    if code == 0 and "--json" not in arguments:
        assert_harmless(capsys, *arguments, "--json", shows=json.dumps(HOSTILE)[1:-1])


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    w = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    save(path, {HOSTILE: w, f"{HOSTILE}.2": w[:2]})
    return path


def test_tensors(capsys, model, tmp_path):
    out = tmp_path / "out.safetensors"
    assert_harmless(capsys, "inspect", model)
    assert_harmless(capsys, "study", model, "--formats", "int8,int4")
    broken = tmp_path / "broken.safetensors"
    save(broken, {HOSTILE: np.full((2, 2), np.nan, np.float32)})
    assert_harmless(capsys, "quantize", broken, out, "--format", "int8", code=1)
    assert_harmless(capsys, "prune", broken, out, "--pattern", "2:4", code=1)
    assert_harmless(capsys, "study", broken, "--formats", "int8", code=1)
    save(broken, {HOSTILE: hc.quantize(np.ones((2, 2), np.float32), "int8")})
    assert_harmless(capsys, "inspect", broken)
    assert_harmless(capsys, "quantize", broken, out, "--format", "int8", code=1)


def test_files(capsys, model, tmp_path):
    name = HOSTILE.replace("\x00", "")
    shows = printable(name)
    given, out = tmp_path / f"{name}.safetensors", tmp_path / f"{name}2.safetensors"
    given.write_bytes(model.read_bytes())
    assert cli.main(["quantize", str(given), str(out), "--format", "int8"]) == 0
    found = capsys.readouterr()
    assert shows in found.out and "\x1b" not in found.out + found.err
    assert_harmless(capsys, "inspect", tmp_path / name, code=1, shows=shows)
    for arguments in (
        ["quantize", given, given, "--format", "int8"],
        ["study", given, "--html", given],
        ["study", given, "--retrain"],
    ):
        assert_harmless(capsys, *arguments, code=2, shows=shows)
    recipe = tmp_path / f"{name}.toml"
    for text, code in (("x", 1), ('[formats]\n"*" = "int17"\n', 2), ("[formats]\n'*' = 3\n", 1), ("[x]\n", 1)):
        recipe.write_text(text)
        assert_harmless(capsys, "quantize", given, out, "--recipe", recipe, "--overwrite", code=code, shows=shows)
    page = tmp_path / f"{name}.html"
    assert cli.main(["study", str(given), "--formats", "int8", "--html", str(page)]) == 0 and page.exists()


MACHINE = """
problem: {{dims: {{{0}: 4, P: 3}}, tensors: {{W: [{{{0}: 1}}], {1}: [{{{0}: 1}}, {{P: 1}}]}}, output: {1}}}
arch: {{levels: [{{name: DRAM}}, {{name: {2}, words: 64}}]}}
mapping: {{DRAM: {{temporal: [[{0}, 4]]}}, {2}: {{temporal: [[P, {3}]]}}}}
"""


def test_loops_tensors_and_levels(capsys, tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "map.yaml"
    names = [json.dumps(f"{HOSTILE}{kind}") for kind in ("dim", "tensor", "level")]
    path.write_text(MACHINE.format(*names, 3))
    assert cli.main(["map", str(path)]) == 0
    out = capsys.readouterr().out
    for kind in ("dim4", "tensor", "level"):
        assert f"\\u2028{kind}" in out
    assert_harmless(capsys, "map", path)
    page, again = tmp_path / "page.html", tmp_path / "again.yaml"
    assert_harmless(capsys, "map", path, "--search", "--html", page, "--yaml", again)
    assert_harmless(capsys, "map", again)
    path.write_text(MACHINE.format(*names, 5))
    assert_harmless(capsys, "map", path, code=1, shows="bounds of P")
    path.write_text(MACHINE.format(*names, 3).replace("words", json.dumps(HOSTILE)))
    assert_harmless(capsys, "map", path, code=1)


def test_notes_of_a_machine(capsys, tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "map.yaml"
    text = (
        "architecture: {nodes: [!Component {name: NAME, class: DRAM, attributes: {width: 8, datawidth: 8}}, "
        "!Component {name: MAC, class: mac}]}\nproblem: {shape: {name: x, dimensions: [K], data_spaces: "
        "[{name: A, projection: [[[K]]]}, {name: Z, projection: [[[K]]], read_write: true}]}, instance: {K: 4}}"
    )
    path.write_text(text.replace("NAME", json.dumps(HOSTILE.replace("[", "("))))
    assert cli.main(["map", str(path)]) == 0
    found = capsys.readouterr()
    assert "no energies in an ERT" in found.err and "\x1b" not in found.out + found.err


def test_devices(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    block = f"[device.{json.dumps(HOSTILE)}]\npeak_tops = {{ int8 = 4, fp16 = 1 }}\nbandwidth_gb_s = 50\n"
    text = json.dumps(HOSTILE).replace("\\u007f", "\\u007F").replace("\x7f", "\\u007F")
    block = block.replace(json.dumps(HOSTILE), text)
    path.write_text(f"{block}title = {text}\nnote = {text}\nprocess = {text}\nsource = {text}\n")
    assert_harmless(capsys, "devices", "--device-file", path)
    assert_harmless(capsys, "devices", HOSTILE, "--device-file", path)
    assert_harmless(capsys, "roofline", "resnet18", HOSTILE, "--device-file", path, "--dtype", "int8")
    assert_harmless(capsys, "roofline", "resnet18", f"{HOSTILE}x", "--device-file", path, code=1)
    path.write_text(block.replace("peak_tops", text))
    assert_harmless(capsys, "devices", "--device-file", path, code=1)


def test_nodes_of_a_graph(capsys, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    path = tmp_path / "net.onnx"
    ends = [[helper.make_tensor_value_info(name, float32, [1, 8])] for name in "xy"]
    weights = helper.make_tensor("w", float32, [8, 8], [0.0] * 64)
    for op, arguments, code in (("MatMul", [], 0), ("Loop", [], 1)):
        node = helper.make_node(op, ["x", "w"], ["y"], name=HOSTILE)
        onnx.save(helper.make_model(helper.make_graph([node], "g", *ends, [weights])), str(path))
        assert_harmless(capsys, "count", path, *arguments, code=code)
        assert_harmless(capsys, "roofline", path, "t4", *arguments, code=code)


# The helper itself.


def test_short_texts_stay_as_they_are():
    assert shortened("a" * 200) == "a" * 200 and quoted("größe.重み") == "'größe.重み'"
    assert one_line(" one \n\n two\x1b ") == "one two\\x1b"


@pytest.mark.parametrize("limit", range(5, 30))
def test_long_texts_keep_both_ends(limit):
    text = "".join(map(str, range(100)))
    found = shortened(text, limit)
    assert len(found) == limit and "..." in found
    begin, end = found.split("...")
    assert text.startswith(begin) and text.endswith(end) and 0 <= len(begin) - len(end) <= 1


def test_messages_are_bounded():
    for message in ("x" * 10**7, "\n" * 10**7, "\x1b" * 10**7, "a\n" * 10**6):
        assert len(one_line(message)) <= MAX_MESSAGE and one_line(message).isprintable()


def test_small_files(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"12345")
    assert read_small(path, 5) == "12345"
    with bad_argument(ValueError, None, "file", "text: more than 4 bytes"):
        read_small(path, 4)
    path.write_bytes(b"\xff")
    with bad_argument(ValueError, None, "file", "UTF-8"):
        read_small(path, 5)
    with pytest.raises(ValueError, match=f"{tmp_path}: is a directory, expected a regular file"):
        read_small(tmp_path, 5)
    with pytest.raises(FileNotFoundError):
        read_small(tmp_path / "absent", 5)
    with bad_argument(ValueError, None, "file", "is not the name of a file"):
        read_small("a\0b", 5)
    (tmp_path / "link").symlink_to(path)
    path.write_bytes(b"12345")
    assert read_small(tmp_path / "link", 5) == "12345"
    if os.path.exists("/proc/version"):  # a regular file of 0 bytes, which has some
        with bad_argument(
            ValueError, None, "file", "/proc/version: has more than the 0 bytes that the file system reports"
        ):
            read_small("/proc/version", 5000)


@pytest.mark.parametrize("text", ["x", "a = " + "[" * 5000, "a = " + "9" * 5000, "a = 1\na = 2", "a = 0x", "\x00"])
def test_what_is_no_toml_is_named(tmp_path, text):
    path = tmp_path / "text.toml"
    path.write_text(text)
    with bad_argument(ValueError, None, "file", "TOML"):
        read_toml(path, 1 << 20)
