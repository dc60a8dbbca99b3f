"""The scripts of a contribution: steps of `.ci/run` by name, commit messages, and the hooks of pre-commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import heterocompute as hc

ROOT = Path(__file__).resolve().parents[2]
LONG = "docs: " + "a" * 67
needs_bash = pytest.mark.skipif(not shutil.which("bash") or not (ROOT / ".ci/run").exists(), reason="no checkout")


@needs_bash
def test_steps_are_listed_and_an_unknown_one_is_refused() -> None:
    listed = subprocess.run([ROOT / ".ci/run", "--list"], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in listed.splitlines()]
    script = (ROOT / ".ci/run").read_text()
    called = re.findall(r"^(?:step|named) ([a-z0-9-]+) ", script, re.MULTILINE)
    assert names == [name for name in called if name not in ("checkout", "compilers")] and len(names) > 12
    done = subprocess.run([ROOT / ".ci/run", "lnt"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith(".ci/run: step is lnt, expected one of: install ")


@needs_bash
@pytest.mark.parametrize(
    "message, fault",
    [
        ("files: read FP8 stacks\n\nOther programs write them.\n# a comment\n", ""),
        ("Merge branch 'a'\n", ""),
        ("Read FP8 stacks\n\nwhy\n", "subject is 'Read FP8 stacks', expected 'room: verb ...'"),
        ("files: Read\n\nwhy\n", "subject is 'files: Read'"),
        (f"{LONG}\n\nwhy\n", "subject has 73 characters, expected at most 72"),
        (f"{LONG[:-1]}\n\nwhy\n", ""),
        ("files: read\nwhy\n", "line 2 is not blank"),
        ("files: read\n\n# a comment\n", "there is no body"),
    ],
)
def test_a_commit_message_has_a_room_and_a_reason(message: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "message").write_text(message)
    done = subprocess.run([ROOT / ".ci/commit-message", tmp_path / "message"], capture_output=True, text=True)
    assert (done.returncode != 0) == bool(fault) and fault in done.stderr, done.stderr


def test_hooks_have_the_versions_and_files_of_the_checkout() -> None:
    yaml = pytest.importorskip("yaml")
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = repos[0]["hooks"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    revisions = {repo["repo"].rpartition("/")[2]: repo["rev"] for repo in repos[1:]}
    assert f"ruff=={revisions['ruff-pre-commit'].removeprefix('v')}" in extras["dev"]
    for hook in hooks:
        for wanted in hook.get("additional_dependencies", ()):
            if "==" in wanted:
                assert wanted in extras["dev"], hook["id"]
        for word in hook["entry"].split():
            if "/" in word:
                assert (ROOT / word).exists(), word


def test_actions_are_named_by_hash_with_their_versions() -> None:
    """A tag of an action can move; Dependabot reads the version from the comment."""
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for line in path.read_text().splitlines():
            if "uses:" in line:
                assert re.search(r"uses: [\w./-]+@[0-9a-f]{40}  # v[0-9.]+\b", line), f"{path.name}: {line}"


@needs_bash
@pytest.mark.parametrize(("tag", "passes"), [("v{}", True), ("v{}.1", False), ("{}", True), ("v9.9.9", False)])
def test_a_release_checks_that_the_tag_names_the_version(tag: str, passes: bool) -> None:
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["version"]["steps"]
    (script,) = (step["run"] for step in steps if "run" in step)
    name = tag.format(hc.__version__)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": name}
    )
    assert (done.returncode == 0) == passes
