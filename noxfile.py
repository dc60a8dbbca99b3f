#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""Tasks by name: `nox -s tests`, `nox -s lint`. `nox --list` shows all. `.ci/run` runs all that a change must pass."""

from __future__ import annotations

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests: `nox -s tests -- tests/products`."""
    session.install("-e", ".[test]")
    session.run("pytest", *(session.posargs or ["-n", "auto"]))


@nox.session
def lint(session: nox.Session) -> None:
    """Run formatters, linters and the type checker."""
    session.install("-e", ".[dev,test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site in build/site."""
    session.install("-e", ".[docs]")
    session.run("sphinx-build", "-n", "-W", "-q", "-c", "docs/site", ".", "build/site")


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build the sdist and the wheel in dist."""
    session.install("build")
    session.run("python", "-m", "build")


if __name__ == "__main__":
    nox.main()
