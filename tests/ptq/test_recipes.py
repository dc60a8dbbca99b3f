"""Recipes select the same tensors after reading, for any names; unknown names are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals

import heterocompute as hc
from heterocompute.base.toml_text import parse_toml
from heterocompute.files.recipes import read_recipe
from heterocompute.files.selection import FirstMatch, escaped, literal
from heterocompute.formats import Own
from heterocompute.ptq.checkpoint import _key
from heterocompute.report.search import METRIC, page as search_page, rows_of

NAMES = [
    'a"b', "a\\b", "a.b.c", "x\ny", "ü.é", "w[0]", "w0", "w*", "wq", "w?", "[ab]", "a", "b", "[!a]", "'a'.'b'", "\r",
    ".".join("abcdefgh" * 4), '"."' * 30, "\x7f\x01\t", "", " ", "\u2028", "\U0001f600", "w[[]0]", "[[][[]", "#x", "=",
    "\u0085", "\ufeff", "skip", "*", "?", "[", "]", "[]", "[formats]", "*.weight", "x.weight", '"""', "'''", '"""\\"""',
]  # fmt: skip


@pytest.fixture(scope="module")
def plan() -> Any:
    # one of three is exact in 2 bits, so that names that are alike have several formats
    weights = {name: reals((4, 64), i) if i % 3 else np.ones((4, 64), np.float32) for i, name in enumerate(NAMES)}
    found = hc.ptq.search(weights, ["int2", "int3-g32", "int4-g32", "int8"], {"bits": 4.6})
    assert len({row["format"] for row in found.table}) > 1
    return found


def test_a_recipe_reads_back_to_the_same_assignment(plan: Any, tmp_path: Path) -> None:
    plan.save(tmp_path / "recipe.toml")
    wanted = {row["name"]: row["format"] for row in plan.table}
    for recipe in (read_recipe(tmp_path / "recipe.toml"), plan.recipe, dict(reversed(plan.recipe.items()))):
        match = FirstMatch(recipe)
        assert {name: match(name) for name in NAMES} == wanted
    hc.save(tmp_path / "in.safetensors", {name: array for name, array in weights_of(plan).items()})
    out = tmp_path / "out.safetensors"
    summary = hc.quantize_checkpoint(tmp_path / "in.safetensors", out, recipe=tmp_path / "recipe.toml")
    assert {row["name"]: row["format"] for row in summary["tensors"]} == wanted


def weights_of(plan: Any) -> dict[str, Any]:
    return {name: np.asarray(q) for name, q in plan.weights.items()}


def test_a_vector_that_a_recipe_names_is_chosen(tmp_path: Path) -> None:
    hc.save(tmp_path / "in.safetensors", {"b[0]": np.ones(64, np.float32), "b0": np.ones(64, np.float32)})
    recipe = {escaped("b[0]"): "int8"}
    summary = hc.quantize_checkpoint(tmp_path / "in.safetensors", tmp_path / "out.safetensors", recipe=recipe)
    assert {row["name"]: row["format"] for row in summary["tensors"]} == {"b[0]": "int8", "b0": None}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_escaped_means_itself(name: str) -> None:
    assert literal(escaped(name)) == name
    assert [other for other in NAMES if FirstMatch({escaped(name): True})(other)] == [name]


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    plan = hc.ptq.search({"\ud800": np.ones((4, 64), np.float32)}, ["int8"], {"bits": 9})
    with bad_argument(ValueError, None, "value", "save: the name .* is not a string"):
        plan.save(tmp_path / "recipe.toml")
    assert not list(tmp_path.iterdir())


def test_long_keys_are_refused_and_long_names_are_not() -> None:
    parts = ".".join("a" * 40)
    for text in (f"{parts} = 1", f"['x'.{parts}]", f'"""a""".{parts} = 1'):
        with bad_argument(ValueError, None, "value", "TOML"):
            parse_toml(text)
    for name in (parts, parts + "\\\\", f"'{parts}'"):
        assert parse_toml(f'"{name}" = "{parts}"  # {parts}\n') == {name.replace("\\\\", "\\"): parts}
    assert parse_toml(f"x = '''\n{parts}'''\ny = \"\"\"{parts}\"\"\"")["x"] == parts


def test_a_recipe_of_a_hundred_thousand_names(tmp_path: Path) -> None:
    text = "".join(
        f'"model.layers.{i}.mlp.experts.{j}.down_proj.weight" = "int8"\n' for i in range(40) for j in range(800)
    )
    (tmp_path / "recipe.toml").write_text("[formats]\n" + text)
    assert len(read_recipe(tmp_path / "recipe.toml")) == 32_000


def test_names_that_are_no_tensor_are_refused_with_those_that_are_near() -> None:
    net, h = hc.zoo.digits(), hc.ptq.Hessian(64)
    with bad_argument(ValueError, "hessians", "value"):
        hc.ptq.search(net.weights, ["int8"], {"bits": 9}, hessians={"fc1.wieght": h})
    with bad_argument(ValueError, "hessians", "value"):
        hc.ptq.search(net.weights, ["int8"], {"bits": 9}, hessians={"zzz": h})
    with bad_argument(TypeError, "hessians", "type"):
        hc.ptq.search(net.weights, ["int8"], {"bits": 9}, hessians={"fc1.weight": 3})  # type: ignore[dict-item]
    with bad_argument(ValueError, None, "value", "'fc1.wieght'.*'fc1.weight'"):
        hc.ptq.search(net.weights, ["int8"], {"bits": 9}, include="fc1.wieght")


@pytest.mark.parametrize("bits", [4.3, 4.6, 5.2, 6.1, 7.7])
def test_no_mix_lies_below_the_front_of_the_picture(bits: float) -> None:
    weights = {f"w{i}": reals((8, 64), i) * 4**i for i in range(5)}
    formats = ["int2", "int3-g32", "int4-g32", "int6", "int8"]
    rows, front = rows_of(hc.ptq.search(weights, formats, {"bits": bits}).to_dict())
    for one in rows:
        best = [rows[i] for i in front if rows[i]["bits"] <= one["bits"]][-1]
        assert best[METRIC] <= one[METRIC]
    losses = [rows[i][METRIC] for i in front]
    assert losses == sorted(set(losses), reverse=True)


def test_a_recipe_with_own_formats_is_read_by_a_process_that_never_defined_them(tmp_path: Path) -> None:
    named = hc.define("recipe-levels", hc.Levels([-1, -0.3, 0, 0.2, 1]), scale="f16", group=16)
    unnamed = hc.define(None, hc.Levels([-1, 0.25, 1], [-0.5, 0.5]), group=16)
    weights = {"a": reals((4, 64), 1), "b": reals((4, 64), 2)}
    hc.save(tmp_path / "in.safetensors", weights)
    for name, fmt in (("a", named), ("b", unnamed)):
        found = hc.ptq.search({name: weights[name]}, [fmt], {"bits": 8})
        assert found.recipe == {name: str(fmt)}
        found.save(tmp_path / f"{name}.toml")
    code = f"""
import heterocompute as hc
from heterocompute.cli import main
from heterocompute.files.recipes import read_recipe
for name in "ab":
    source, out, recipe = (r"{tmp_path}/" + one for one in ("in.safetensors", name + ".safetensors", name + ".toml"))
    assert main(["quantize", source, out, "--recipe", recipe, "--include", name]) == 0
    print(hc.load(out)[name].format)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert str(named) in made.stdout and str(unnamed) in made.stdout
    for name, fmt in (("a", named), ("b", unnamed)):
        assert hc.load(tmp_path / f"{name}.safetensors")[name] == hc.quantize(weights[name], fmt)
    halves = hc.define("recipe-halves", round=lambda x: np.rint(x * 2) / 2, bits=5)
    found = hc.ptq.search(weights, [halves], {"bits": 8})
    with pytest.raises(ValueError, match="save: 'a' has the format recipe-halves, a function of values"):
        found.save(tmp_path / "c.toml")
    assert not (tmp_path / "c.toml").exists()


def test_a_search_of_a_definition_from_elsewhere_saves_it(tmp_path: Path) -> None:
    """The name is unknown here, or that of another format."""
    hc.define("recipe-taken", hc.Levels([-1, 0, 1]), group=16)
    weights = {"a": reals((4, 64), 1)}
    for name in ("recipe-theirs", "recipe-taken"):
        theirs = hc.format(f'{{"format": "{name}", "definition": {{"element": "e2m2b5", "name": "{name}"}}}}')
        found = hc.ptq.search(weights, [theirs], {"bits": 8})
        assert hc.format(found.recipe["a"]) == theirs and found.table[0]["format"] == name
        assert f"1 x {name}" in search_page("", found.to_dict(), "")
        found.save(tmp_path / "recipe.toml")
        assert hc.format(read_recipe(tmp_path / "recipe.toml")["a"]) == theirs


def test_results_of_another_definition_are_not_reused() -> None:
    """The name of a format is of a process, so a later run may have another format of this name."""
    one, other = (Own(hc.Levels(levels), scale="f32", name="same-name") for levels in ([-1, 0, 1], [-1, 0.5, 1]))
    w, h = reals((4, 8), 1), hc.ptq.Hessian(8)
    h.add(reals((9, 8), 2))
    assert str(one) == str(other) and one != other
    assert _key("w", w, h, one, (1,), {}) != _key("w", w, h, other, (1,), {})
