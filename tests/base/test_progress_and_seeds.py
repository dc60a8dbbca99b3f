"""`progress=` and `rng=` beside `seed=`: every public function that has them is listed here and called."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import hardware as hw

RNG = np.random.default_rng(5)
WEIGHTS = {name: RNG.standard_normal((16, 32), np.float32) for name in "ab"}
INPUTS = RNG.standard_normal((8, 32), np.float32)


def run(held: Any) -> Any:
    return hc.linear(INPUTS, held["a"]), hc.linear(INPUTS, held["b"])


def loss(held: Any) -> float:
    return float(sum(abs(np.asarray(run(held))).sum((0, 1, 2)) for _ in range(1)))


def public() -> Iterator[tuple[str, Any]]:
    """Yield (name, function) of the public functions and methods, in the package and in its modules for frameworks."""
    seen: set[int] = set()

    def walk(room: ModuleType, name: str) -> Iterator[tuple[str, Any]]:
        for attribute in sorted(getattr(room, "__all__", ())):
            found = getattr(room, attribute)
            if id(found) in seen:
                continue
            seen.add(id(found))
            own = f"{name}.{attribute}" if name else attribute
            if inspect.ismodule(found):
                if found.__name__.startswith("heterocompute"):
                    yield from walk(found, own)
            elif inspect.isclass(found):
                for method, value in vars(found).items():
                    function = getattr(value, "__func__", value)
                    if not method.startswith("_") and inspect.isfunction(function):
                        yield f"{own}.{method}", function
            elif callable(found):
                yield own, found

    yield from walk(hc, "")
    for name, needs in (("interop.torch", "torch"), ("interop.jax", "jax"), ("interop.transformers", "transformers")):
        if importlib.util.find_spec(needs) is not None:
            yield from walk(importlib.import_module(f"heterocompute.{name}"), name)
    model = importlib.import_module("heterocompute.zoo.llm.network").LanguageModel
    yield from ((f"LanguageModel.{key}", value) for key, value in inspect.getmembers(model, inspect.isfunction))


def with_argument(argument: str) -> dict[str, Any]:
    return {name: one for name, one in public() if argument in inspect.signature(one).parameters}


def small(tmp: Path) -> tuple[Path, Path]:
    before, after = tmp / "a.safetensors", tmp / f"b{len(list(tmp.iterdir()))}.safetensors"
    hc.save(before, WEIGHTS)
    return before, after


def packed(tmp: Path) -> tuple[Path, Path]:
    before, after = tmp / "in.safetensors", tmp / f"out{len(list(tmp.iterdir()))}"
    hc.save(before, {"fc.weight": hc.quantize(np.ones((16, 128), np.float32), "int4-g128-f16")}, layout="gptq")
    return before, after


def module() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))


def converted(tmp: Path, **more: Any) -> Any:
    torch = pytest.importorskip("torch")
    from heterocompute.interop import torch as ht

    batches = [torch.randn(8, 32, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    return ht.convert(module(), "int3-g8", method="learned", steps=2, inputs=batches, **more)


def llm(tmp: Path) -> Any:
    made = importlib.import_module("made")
    return hc.zoo.open_llm(made.write_gguf(tmp / "m.gguf"))


def perplexity(tmp: Path, **more: Any) -> Any:
    return llm(tmp).perplexity(list(range(3, 40)), window=8, **more)


def drawn_text(tmp: Path, **more: Any) -> Any:
    return llm(tmp).generate([3, 4, 5], 8, 1.0, **more)


def jax_call(name: str, **more: Any) -> Any:
    pytest.importorskip("jax")
    from heterocompute.interop import jax as hj

    x = INPUTS[:4, :16]
    if name == "fake_quantize":
        return hj.fake_quantize(x, "int4", rounding="stochastic", **more)
    if name == "linear_in":
        return hj.linear_in(x, WEIGHTS["a"][:, :16], "sr-bf16", **more)
    return hj.attention_in(x, x, x, "sr-bf16", **more)


def torch_rounded(**more: Any) -> Any:
    torch = pytest.importorskip("torch")
    from heterocompute.interop import torch as ht

    return ht.fake_quantize(torch.from_numpy(INPUTS), "int4", rounding="stochastic", **more)


def steps(name: str, **more: Any) -> Any:
    x = INPUTS[:4, :16]
    if name == "linear":
        return hc.training.linear_step(x, WEIGHTS["a"][:, :16], x, "nvfp4", **more)
    return hc.training.attention_step(x, x, x, x, "nvfp4", **more)


def searched(**more: Any) -> Any:
    machine = hw.mapper.Arch([hw.mapper.Level("DRAM", read=640.0), hw.mapper.Level("B", words=64, read=5.0)], mac=1.0)
    return hw.mapper.search(hw.mapper.Problem.gemm(64, 96, 64), machine, budget=200, threads=1, **more)


PROGRESS: dict[str, Callable[..., Any]] = {
    "calibrate": lambda tmp, **more: hc.calibrate(0.0, **more),
    "convert_checkpoint": lambda tmp, **more: hc.convert_checkpoint(*packed(tmp), "awq", **more),
    "diff": lambda tmp, **more: hc.diff(small(tmp)[0], small(tmp)[0], **more),
    "hardware.explore": lambda tmp, **more: hw.explore({"lanes": [8, 16]}, "digits", **more),
    "hardware.mapper.search": lambda tmp, **more: searched(**more),
    "hardware.results.PublishedFigures.reproduce": lambda tmp, **more: hw.published("tpu_v1").reproduce(**more),
    "hardware.results.Reproduction.of": lambda tmp, **more: hw.results.Reproduction.of(hw.published("tpu_v1"), **more),
    "hardware.search": lambda tmp, **more: hw.search("digits", "tpu_v1", budget=60, **more),
    "ptq.accept": lambda tmp, **more: hc.ptq.accept(WEIGHTS, ["int4", "int8"], lambda w: 1.0, 0.5, **more),
    "ptq.calibrate": lambda tmp, **more: calibrated(**more),
    "ptq.quantize": lambda tmp, **more: hc.ptq.quantize(WEIGHTS, run, "int4-g8", **more),
    "ptq.quantize_checkpoint": lambda tmp, **more: hc.ptq.quantize_checkpoint(
        *small(tmp), dict(hc.ptq.calibrate(WEIGHTS, run)), "int4-g8", **more
    ),
    "ptq.search": lambda tmp, **more: hc.ptq.search(WEIGHTS, ["int4", "int8"], {"bits": 8.0}, **more),
    "quantize_checkpoint": lambda tmp, **more: hc.quantize_checkpoint(*small(tmp), "int8", **more),
    "study": lambda tmp, **more: hc.study(WEIGHTS, ["int8"], timing=False, **more),
    "study_density": lambda tmp, **more: hc.study_density(WEIGHTS, ["50%"], loss, **more),
    "study_training": lambda tmp, **more: hc.study_training(
        hc.zoo.digits(), ["fp8-current"], steps=1, seeds=1, batch=8, **more
    ),
    "tune": lambda tmp, **more: hc.tune(hc.linear, INPUTS, hc.quantize(WEIGHTS["a"], "int8"), seconds=0.0, **more),
    "verify": lambda tmp, **more: verified(tmp, **more),
    "interop.torch.convert": converted,
    "LanguageModel.perplexity": perplexity,
    "LanguageModel.quantized": lambda tmp, **more: llm(tmp).quantized("int4", **more),
}
SEEDS: dict[str, Callable[..., Any]] = {
    "hardware.explore": PROGRESS["hardware.explore"],
    "hardware.mapper.search": PROGRESS["hardware.mapper.search"],
    "hardware.search": PROGRESS["hardware.search"],
    "hardware.systems.check_host": lambda tmp, **more: hw.systems.check_host(1, 16, 16, seconds=0.0, **more),
    "ptq.hadamard": lambda tmp, **more: hc.ptq.hadamard(INPUTS, **more),
    "ptq.rotate": lambda tmp, **more: rotated(tmp, **more),
    "training.attention_step": lambda tmp, **more: steps("attention", **more),
    "training.fake_quantize": lambda tmp, **more: hc.training.fake_quantize(
        INPUTS, "int4", rounding="stochastic", **more
    )[0],
    "training.linear_step": lambda tmp, **more: steps("linear", **more),
    "vectors": lambda tmp, **more: hc.vectors("int4", tmp / f"v{len(list(tmp.iterdir()))}", **more),
    "verify": lambda tmp, **more: verified(tmp, sample=1, **more),
    "zoo.Network.retrain": lambda tmp, **more: retrained(**more),
    "interop.jax.attention_in": lambda tmp, **more: jax_call("attention_in", **more),
    "interop.jax.fake_quantize": lambda tmp, **more: jax_call("fake_quantize", **more),
    "interop.jax.linear_in": lambda tmp, **more: jax_call("linear_in", **more),
    "interop.torch.convert": converted,
    "interop.torch.fake_quantize": lambda tmp, **more: torch_rounded(**more),
    "LanguageModel.generate": drawn_text,
}


def calibrated(**more: Any) -> Any:
    """Calibrate a network of functions, with rounded weights too, and a module where PyTorch is installed."""
    hc.ptq.calibrate(WEIGHTS, run, **more)
    if importlib.util.find_spec("torch") is not None:
        hc.ptq.calibrate(module(), [INPUTS, INPUTS], **more)
    return hc.ptq.calibrate(WEIGHTS, run, rounded={"a": hc.quantize(WEIGHTS["a"], "int4")}, **more)


def rotated(tmp: Path, **more: Any) -> Any:
    return hc.ptq.rotate(llm(tmp), **more)


def retrained(**more: Any) -> Any:
    net = hc.zoo.digits()
    name = next(iter(net.weights))
    return net.retrain(net.weights, {**net.weights, name: hc.quantize(net.weights[name], "cb4")}, epochs=1, **more)


def verified(tmp: Path, **more: Any) -> Any:
    before, after = small(tmp)
    hc.quantize_checkpoint(before, after, "int8")
    return hc.verify(after, before, "int8", **more)


@pytest.fixture(autouse=True)
def made_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "llm"))


def test_every_function_with_progress_or_a_seed_is_listed() -> None:
    progress, seeds = with_argument("progress"), with_argument("seed")
    assert progress.keys() <= PROGRESS.keys()
    assert seeds.keys() <= SEEDS.keys()
    for name in seeds:
        assert "rng" in inspect.signature(seeds[name]).parameters, name
    for name, function in progress.items():
        assert inspect.signature(function).parameters["progress"].default is None, name
        assert "bool" in str(inspect.signature(function).parameters["progress"].annotation), name


@pytest.mark.parametrize("name", PROGRESS)
def test_progress_is_a_function_true_or_false(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HETEROCOMPUTE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    told: list[tuple[int, int, str]] = []
    call = PROGRESS[name]
    call(tmp_path / "files", progress=lambda done, total, text: told.append((done, total, text)))
    assert told and told[-1][0] == told[-1][1] and all(isinstance(text, str) for _, _, text in told)
    with pytest.raises(TypeError, match=r"^\w+: progress is 3, expected a function, True, False or None$"):
        call(tmp_path / "files", progress=3)
    capsys.readouterr()
    call(tmp_path / "files", progress=False)
    assert not capsys.readouterr().err
    if importlib.util.find_spec("tqdm") is not None and name != "hardware.mapper.search":
        call(tmp_path / "files", progress=True)
        assert "%|" in capsys.readouterr().err


def test_calibration_tells_each_batch_and_each_run() -> None:
    def told(*given: Any, **more: Any) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        hc.ptq.calibrate(*given, progress=lambda *step: found.append(step), **more)
        return found

    assert told(WEIGHTS, run) == [(0, 1, "a run of the network"), (1, 1, "done")]
    assert [step[:2] for step in told(WEIGHTS, run, rounded={"a": hc.quantize(WEIGHTS["a"], "int4")})] == [
        (0, 2), (1, 2), (2, 2),
    ]  # fmt: skip
    net, batches = module(), [INPUTS] * 5
    every = [*((i, 5, f"batch {i + 1}") for i in range(5)), (5, 5, "done")]
    assert told(net, batches) == every
    assert told(net, batches, rounded={"0.weight": hc.quantize(net[0].weight.detach(), "int4")}) == every
    held = [(0, 3, "batch 1"), (1, 3, "batch 2"), (2, 3, "batch 1"), (3, 3, "done")]
    assert told(net, batches[:2], held=INPUTS) == held
    assert told(net, lambda: iter(batches[:2])) == [(0, 1, "batch 1"), (1, 2, "batch 2"), (2, 2, "done")]


def test_an_interrupt_in_progress_ends_a_call(tmp_path: Path) -> None:
    def stop(done: int, total: int, text: str) -> None:
        raise KeyboardInterrupt

    for name in ("calibrate", "tune", "hardware.search", "hardware.explore", "LanguageModel.perplexity"):
        with pytest.raises(KeyboardInterrupt):
            PROGRESS[name](tmp_path, progress=stop)


@pytest.mark.parametrize("name", SEEDS)
def test_rng_is_the_seed_or_draws_it(name: str, tmp_path: Path) -> None:
    seed = int(RNG.integers(1, 1000))
    call = SEEDS[name]
    for wrong in (-1, 1.5, "x"):
        with pytest.raises((TypeError, ValueError), match=r"^[\w ]+: rng is [^\n]*expected[^\n]*$"):
            call(tmp_path, rng=wrong)
    with pytest.raises(ValueError, match=rf"^[\w ]+: rng is given with seed {seed}, expected one of them$"):
        call(tmp_path, seed=seed, rng=3)
    if name in ("hardware.systems.check_host", "vectors", "ptq.rotate"):
        return
    first, second = call(tmp_path, seed=seed), call(tmp_path, rng=seed)
    drawn = [call(tmp_path, rng=np.random.default_rng(seed)) for _ in range(2)]
    for a, b in ((first, second), drawn):
        assert same(a, b), name


def same(a: Any, b: Any) -> bool:
    if hasattr(a, "state_dict"):
        x = INPUTS
        torch = importlib.import_module("torch")
        return bool(torch.equal(a(torch.from_numpy(x)), b(torch.from_numpy(x))))
    if hasattr(a, "table"):
        return bool(a.table == b.table)
    if isinstance(a, dict):
        return all(np.array_equal(np.asarray(a[key]), np.asarray(b[key])) for key in a)
    for part in ("y", "dq", "dx", "seed", "energy", "stats"):
        if hasattr(a, part):
            return bool(np.array_equal(np.asarray(getattr(a, part)), np.asarray(getattr(b, part))))
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))
