"""The search for the best mix of formats: optimality, predictions and measurements."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, run

import heterocompute as hc
from heterocompute.files.recipes import read_recipe

FORMATS = ["vsq2-g16-s4", "vsq3-g16-s4", "vsq4-g16-s4", "vsq5-g16-s4", "vsq6-g16-s6", "int8"]


@pytest.fixture(scope="module")
def net() -> Any:
    return hc.zoo.digits()


def test_a_mix_of_four_bits_beats_more_uniform_ones(net: Any, tmp_path: Path) -> None:
    x = net.test_x
    exact = net.forward(net.weights, x)

    def judge(weights: Any) -> dict[str, float]:
        return {"kl": hc.kl_divergence(exact, net.forward(weights, x)), "images": float(len(x))}

    plan = hc.ptq.search(net.weights, FORMATS, {"bits": 4.0}, judge, "kl")
    assert plan.bits <= 4 and plan.gap == 0 and plan.bound == plan.predicted
    assert plan.measured is not None and len(set(plan.recipe.values())) > 1
    axes = {name: q.axis for name, q in plan.weights.items() if isinstance(q, hc.QuantizedArray)}
    uniform = {
        name: hc.quantize(w, "vsq4-g16-s4", axes[name], clip="search") if name in axes else w
        for name, w in net.weights.items()
    }
    more = sum(q.nbytes for name, q in uniform.items() if name in axes)
    assert plan.bytes < more and plan.measured < judge(uniform)["kl"]
    assert sum(plan.weights[name].nbytes for name in axes) == plan.bytes
    front = plan.pareto()
    assert all(a["bytes"] < b["bytes"] and a["predicted"] > b["predicted"] for a, b in itertools.pairwise(front))
    plan.save(tmp_path / "recipe.toml")
    assert read_recipe(tmp_path / "recipe.toml") == plan.recipe
    assert "a proven optimum" in str(plan)
    found = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert found["rows"] == plan.table and found["recipe"] == plan.recipe and found["spent"] == {"bits": plan.bits}
    assert [one["format"] for one in found["uniform"]] == FORMATS
    assert all(10 < -10 * np.log10(row["error_of_probe"]) < 24 for row in errors_of_probes(net, plan)[1:])
    plan.to_html(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "conv1.weight" in page and "a proven optimum" in page and "another mix" in page and "<svg" in page
    plan.plot(tmp_path / "p.svg")
    plan.to_csv(tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text().startswith("name,shape,format,method,bits,bytes,probe,error,alpha,loss\n")


def errors_of_probes(net: Any, plan: hc.ptq.Plan) -> list[dict[str, Any]]:
    found = []
    for row in plan.table:
        w = net.weights[row["name"]].astype(np.float64)
        lost = w - hc.quantize(w, row["probe"], (2, 3, 1) if w.ndim == 4 else -1, clip="search").dequantize(np.float64)
        found.append({**row, "error_of_probe": np.square(lost).sum() / np.square(w).sum()})
    return found


@pytest.mark.sweep(every=0)
def test_several_budgets_hold_at_once(net: Any) -> None:
    told: list[tuple[int, int, str]] = []
    budget = {"bits": 5.0, "seconds": 1.0, "device_us": 0.2, "device_uj": 14.0, "mac_pj": 9.0, "mac_um2": 5200.0}
    plan = hc.ptq.search(net.weights, FORMATS, budget, device="t4", progress=lambda *step: told.append(step))
    assert plan.gap == 0 and plan.measured is None and told[-1] == (5, 5, "done")
    assert set(plan.spent) == set(budget) and all(0 < plan.spent[kind] <= budget[kind] for kind in budget)
    assert plan.spent["bits"] == plan.bits and plan.spent["mac_um2"] > 4900
    r = hc.study(net.weights, [plan.recipe], device="t4")
    assert plan.spent["device_us"] == pytest.approx(r.table[1]["device_us"])
    r = hc.study(net.weights, [plan.recipe], device="mac")
    assert plan.spent["mac_um2"] == pytest.approx(r.table[1]["mac_um2"])
    wider = hc.ptq.search(net.weights, FORMATS, {"bits": 5.0})
    assert wider.predicted < plan.predicted  # so that another budget than the bits binds


@pytest.mark.sweep(every=0)
def test_the_prediction_ranks_mixes_as_the_network_does(net: Any) -> None:
    stats = pytest.importorskip("scipy.stats")
    x = net.test_x[:256]
    exact = net.forward(net.weights, x)

    def moved(weights: Any) -> float:
        return float(np.square(net.forward(weights, x).astype(np.float64) - exact).mean())

    plan = hc.ptq.search(net.weights, FORMATS, {"bits": 4.0}, moved)
    names = [row["name"] for row in plan.table]
    alpha = {row["name"]: row["alpha"] for row in plan.table}
    rounded, errors = {}, {}
    for name, row in zip(names, errors_of_probes(net, plan), strict=True):
        w = net.weights[name].astype(np.float64)
        for fmt in FORMATS:
            q = hc.quantize(net.weights[name], fmt, (2, 3, 1) if w.ndim == 4 else -1, clip="search")
            rounded[name, fmt] = q.dequantize()
            errors[name, fmt] = np.square(w - q.dequantize(np.float64)).sum() / np.square(w).sum()
        assert row["format"] == plan.recipe[name] and row["error"] == pytest.approx(errors[name, row["format"]])
    rng = np.random.default_rng(0)
    predicted, measured = [], []
    for _ in range(25):
        mix = dict(zip(names, rng.choice(FORMATS, len(names)), strict=True))
        predicted.append(sum(alpha[name] * errors[name, fmt] for name, fmt in mix.items()))
        measured.append(moved({**net.weights, **{name: rounded[name, fmt] for name, fmt in mix.items()}}))
    assert stats.spearmanr(predicted, measured).statistic > 0.98


@pytest.mark.sweep(every=0)
def test_the_command_writes_a_recipe_that_quantize_reads(
    net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    hc.save("m.safetensors", net.weights)
    (tmp_path / "search_network_of_a_test.py").write_text(
        "import heterocompute as hc\nnet = hc.zoo.digits()\nx = net.test_x[:64]\n"
        "def loss(weights):\n    exact = net.forward(net.weights, x)\n"
        "    return {'kl': hc.kl_divergence(exact, net.forward(weights, x))}\n"
    )
    command = ("search", "m.safetensors", "--budget", "bits=4.2,mac_um2=5500", "--evaluate")
    written = ("--save", "r.toml", "--csv", "t.csv", "--html", "p.html", "--plot", "p.svg")
    grouped = ("search_network_of_a_test:loss", "--group", "conv2*,conv3*")
    code, out, err = run(capsys, *command, *grouped, *written, "--json")
    assert code == 0, err
    found = json.loads(out)
    recipe = read_recipe("r.toml")
    assert (
        recipe == found["recipe"] and recipe["conv2.weight"] == recipe["conv3.weight"] and len(set(recipe.values())) > 1
    )
    assert all((tmp_path / name).stat().st_size > 100 for name in written[1::2])
    code, out, err = run(capsys, "quantize", "m.safetensors", "q.safetensors", "--recipe", "r.toml")
    assert code == 0, err
    packed = {name: q for name, q in hc.load("q.safetensors").items() if isinstance(q, hc.QuantizedArray)}
    assert {name: str(q.format) for name, q in packed.items()} == recipe
    assert sum(q.nbytes for q in packed.values()) == found["bytes"]
    code, out, err = run(capsys, "search", "--budget", "bits=4", "--include", "fc*.weight", "--formats", "int3,int8")
    assert code == 0 and "a proven optimum" in out and "gptq" in out, err
    for more, status, words in (
        (("--json",), 2, "--budget is needed"),
        (("--budget", "bits"), 2, "'bits', expected KIND=NUMBER"),
        (("--budget", "beats=4"), 2, "'beats', expected one of bits, bytes"),
        (("--budget", "bits=4", "--metric", "accuracy"), 1, "counts right answers"),
        (
            ("--budget", "bits=4", "--evaluate", "m.safetensors"),
            1,
            "--evaluate m.safetensors: expected module:function",
        ),
        (("--budget", "bits=0.1"), 1, "the cheapest choices take 2.372 bits per value, more than the budget of 0.1"),
        (("m.safetensors", "--budget", "bits=4", "--save", "m.safetensors"), 2, "--save and MODEL are the same file"),
    ):
        code, _, err = run(capsys, "search", *more)
        assert (code, words in err) == (status, True), err


def test_partners_share_a_format_and_hessians_choose_the_method(net: Any) -> None:
    hs = hc.ptq.calibrate(net.weights, lambda weights: net.forward(weights, net.train_x[:16]), "fc*")
    plan = hc.ptq.search(
        net.weights, ["int2-g16", "int8"], {"bytes": 9000}, hessians=hs, groups=[["fc*"]], include=["fc*.weight"]
    )
    assert len(set(plan.recipe.values())) == 1 and plan.measured is None
    name = "fc1.weight"
    assert plan.weights[name] == hc.ptq.gptq(net.weights[name], hs[name], plan.recipe[name])
    assert plan.table[0]["error"] == hc.ptq.error(net.weights[name], plan.weights[name], hs[name]).relative


def test_a_budget_that_no_choice_fits_is_refused_before_anything_is_measured(net: Any) -> None:
    def evaluate(weights: Any) -> float:
        raise AssertionError("evaluated")

    with pytest.raises(ValueError, match="the cheapest choices take .*, more than the budget of 10"):
        hc.ptq.search(net.weights, ["int3", "int8"], {"bytes": 10}, evaluate, progress=lambda *_: evaluate(0))


def test_what_is_refused(net: Any) -> None:
    for more, text in (
        ({"metric": "accuracy", "evaluate": lambda weights: 1.0}, "counts right answers"),
        ({"evaluate": lambda weights: 0.9}, "returned 0.9 for every rounding of a tensor"),
        ({"evaluate": lambda weights: {"a": 1.0, "b": 2.0}}, "choose one with metric="),
        ({"budget": {"bitz": 4}}, "expected some of bits, bytes, seconds"),
        ({"budget": {}}, "expected some of bits, bytes, seconds"),
        ({"budget": {"bytes": -1}}, "budget of bytes is -1, expected 0 or more"),
        ({"budget": {"device_us": 4}}, "device_us needs device="),
        ({"budget": {"bytes": 10}}, "the cheapest choices take 4552 bytes, more than the budget of 10"),
        ({"budget": {"bits": 4, "device_us": 1e-9}, "device": "t4"}, "cheapest choices take .* device_us, more than"),
        ({"groups": [["nothing*"]]}, "no tensor fits the group"),
        ({"groups": [["fc1*"], ["fc*"]]}, "'fc1.weight' is in two groups"),
        ({"formats": []}, "no formats to choose from"),
    ):
        arguments: dict[str, Any] = {
            "formats": ["int2", "int4"],
            "budget": {"bits": 4.0},
            "include": "fc*.weight",
            **more,
        }
        with pytest.raises(ValueError, match=text):
            hc.ptq.search(net.weights, **arguments)


def test_arguments_of_other_kinds_are_refused_and_any_name_is_written(tmp_path: Path) -> None:
    weights = {'a\n"\\\x7f': np.eye(4, 32, dtype=np.float32)}

    def refused(error: type[Exception], words: str, evaluate: Any = None, **more: Any) -> None:
        with pytest.raises(error, match=words):
            hc.ptq.search(weights, FORMATS, {"bits": 6}, evaluate, **more)

    refused(ValueError, "evaluate returned nan, expected a finite", lambda weights: np.nan)
    refused(ValueError, "evaluate returned inf, expected a finite", lambda weights: np.inf)
    refused(TypeError, r"a group is 'fc\*', expected sequences", groups=["fc*"])
    refused(TypeError, r"groups is 'fc\*', expected sequences", groups="fc*")
    refused(TypeError, "groups is 3, expected sequences", groups=3)
    refused(TypeError, r"a group is \[3\], expected globs", groups=[[3]])
    refused(ValueError, "there is no float tensor of two or more dimensions", exclude="*")
    for formats in ("int8", 3, None):
        with pytest.raises(TypeError, match=rf"formats is {formats!r}, expected a list of formats"):
            hc.ptq.search(weights, formats, {"bits": 6})  # type: ignore[arg-type]
    refused(TypeError, "hessians is 3, expected a mapping", hessians=3)
    refused(TypeError, "metric is 3, expected a name", lambda weights: {"loss": 1.0}, metric=3)
    with bad_argument(TypeError, "weights", "type"):
        hc.ptq.search([1], FORMATS, {"bits": 6})
    with bad_argument(TypeError, "held", "type"):
        hc.ptq.quantize(weights, lambda weights: None, held=3)
    with bad_argument(TypeError, "format", "type"):
        hc.ptq.quantize(weights, lambda weights: None, 3)
    plan = hc.ptq.search(weights, FORMATS, {"bits": 6})
    plan.save(tmp_path / "recipe.toml")
    assert read_recipe(str(tmp_path / "recipe.toml")) == plan.recipe
    assert pickle.loads(pickle.dumps(plan)).to_dict() == plan.to_dict()


def test_an_interrupted_search_continues(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    weights = {name: rng.standard_normal((16, 32), np.float32) for name in "abc"}
    inputs = rng.standard_normal((64, 32), np.float32)

    class Judge:
        def __init__(self, stop: int | None = None) -> None:
            self._calls, self._stop = 0, stop

        def evaluate(self, held: Any) -> float:
            self._calls += 1
            if self._calls == self._stop:
                raise KeyboardInterrupt
            return float(sum(np.square(hc.linear(inputs, held[name])).mean() for name in held))

    hessians = {"a": hc.ptq.Hessian(32)}
    hessians["a"].add(inputs)
    keep, formats, budget = tmp_path / "search.jsonl", ["int2-g16", "int4-g16", "int8"], {"bits": 6.0}
    whole = hc.ptq.search(weights, formats, budget, Judge().evaluate, hessians=hessians)
    with pytest.raises(KeyboardInterrupt):
        hc.ptq.search(weights, formats, budget, Judge(3).evaluate, hessians=hessians, keep=keep)
    judge = Judge()
    found = hc.ptq.search(weights, formats, budget, judge.evaluate, hessians=hessians, keep=keep)
    assert judge._calls == 5 - 2  # exact, three tensors, the mix
    assert found.to_dict() == whole.to_dict() and not found.notes
    assert all(np.array_equal(q.dequantize(), whole.weights[name].dequantize()) for name, q in found.weights.items())
    size = keep.stat().st_size
    judge = Judge()
    assert hc.ptq.search(weights, formats, budget, judge.evaluate, hessians=hessians, keep=keep).table == whole.table
    assert judge._calls == 0 and keep.stat().st_size == size
    other = {name: 2 * w for name, w in weights.items()}
    changed = hc.ptq.search(other, formats, budget, judge.evaluate, keep=keep)
    assert judge._calls == 5 and "none of these weights" in str(changed) and changed.to_dict()["notes"]
    with pytest.raises(ValueError, match="holds no results of study"):
        hc.study(weights, ["int4"], keep=keep)


def test_a_budget_below_the_cheapest_names_the_largest_tensor() -> None:
    weights = {"small": np.ones((4, 32), np.float32), "large": np.ones((64, 32), np.float32)}
    with pytest.raises(ValueError, match="the largest part is 'large' with 94%"):
        hc.ptq.search(weights, ["int4", "int8"], {"bits": 2})
