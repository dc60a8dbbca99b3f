"""Problems, machines and mappings in TOML, which needs no additional package."""

import json
import re
import subprocess
import sys

import pytest
from common import bad_argument

from heterocompute.base.toml_text import MAX_DEPTH, parse_toml, toml_text
from heterocompute.cli import command as cli
from heterocompute.hardware import mapper

NO_YAML = "import sys; sys.modules['yaml'] = None; from heterocompute.cli import main; sys.exit(main())"


@pytest.fixture
def no_yaml(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)


def test_the_example_of_the_command_needs_no_yaml(tmp_path):
    def run(*arguments):
        done = subprocess.run([sys.executable, "-c", NO_YAML, "map", *arguments], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), arguments
        return done.stdout

    (tmp_path / "conv.toml").write_text(run("--example"))
    written = tmp_path / "again.toml"
    found = json.loads(run(str(tmp_path / "conv.toml"), "--json", "--toml", str(written)))
    assert round(found["stats"]["energy_per_compute_pj"], 4) == 32.1305  # as in docs/mapping.md
    assert json.loads(run(str(written), "--json")) == found


def test_the_example_of_the_page_is_what_python_says(no_yaml, tmp_path, checkout):
    page = (checkout / "docs/mapping.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "page.toml").write_text(text)
    files = mapper.read_yaml(tmp_path / "page.toml")
    stats = mapper.evaluate(files.problem, files.arch, files.mapping)
    assert (stats["Memory", "I"].reads, stats["Buffer", "W"].fills, stats.cycles) == (18, 3, 48)
    assert round(stats.energy_per_compute, 7) == 7.5000805


def test_what_is_written_reads_back(no_yaml, tmp_path):
    path = tmp_path / "all.toml"
    problem = mapper.Problem(
        {"a b": 16, "R": 3}, {"W": [{"R": 1}], "I\u2028": [{"a b": 1, "R": 1}], "O": [{"a b": 1}]}, "O", {"W": 0.5}
    )
    levels = [mapper.Level('D"\\', read=2.5), mapper.Level("Buffer", words=64, keeps={"W", "O"}, compress={"W": 4})]
    arch = mapper.Arch(levels, mac=1.0)
    mapping = mapper.Mapping({'D"\\': [("R", 3)], "Buffer": [("a b", 4)]}, {"Buffer": [("a b", 4)]})
    mapper.write_yaml(path, problem, arch, mapping)
    found = mapper.read_yaml(path)
    assert (found.problem, found.arch, found.mapping) == (problem, arch, mapping)


def test_toml_is_known_by_what_it_holds(no_yaml, tmp_path):
    (tmp_path / "machine.txt").write_text('[arch]\nlevels = [{name = "DRAM"}]\n')
    assert mapper.read_yaml(tmp_path / "machine.txt").arch.names == ["DRAM"]


def test_what_is_no_toml_is_named(no_yaml, tmp_path, capsys):
    (tmp_path / "a.toml").write_text("arch: {levels: []}\n")
    with bad_argument(ValueError, None, "file", "TOML"):
        mapper.read_yaml(tmp_path / "a.toml")
    (tmp_path / "a.yaml").write_text("arch: {levels: []}\n")
    assert cli.main(["map", str(tmp_path / "a.yaml")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "YAML files need PyYAML: pip install 'heterocompute[yaml]'; TOML files need nothing" in line
    with pytest.raises(ImportError, match="YAML files need PyYAML"):
        mapper.write_yaml(tmp_path / "b.yaml", mapper.Problem.gemm(1, 2, 3))


def test_a_key_that_is_none_of_ours_is_named(tmp_path):
    (tmp_path / "a.toml").write_text("[arch]\nlevels = []\n[surprise]\nx = 1\n")
    with bad_argument(ValueError, None, "file", "'surprise'"):
        mapper.read_yaml(tmp_path / "a.toml")


DEEP = [".".join("a" * 100_000) + " = 1", "[" + " . ".join(['"a"'] * 50_000) + "]", "a" * 10**6]
DEEP += ["a = " + "[" * 30 + "]" * 30, "a = " + "{a = " * 30, "a = " + "{a = " * 5000, '"' * 10**6]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_depth_has_a_limit(text):
    """The limit is found in linear time; tomllib alone takes minutes for the first text."""
    with bad_argument(ValueError, None, "value", "TOML"):
        parse_toml(text)


def test_depth_up_to_the_limit_is_read():
    text = "a = " + "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    assert parse_toml(toml_text({"t": parse_toml(text)}))["t"] == parse_toml(text)
