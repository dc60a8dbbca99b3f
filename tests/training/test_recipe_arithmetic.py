"""Recipes against independent statements in NumPy: casts of ml_dtypes, axes, delayed scales, seeds, Hadamard, sums."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.training.step.layer import NUMPY, LayerState, hadamard, seed_of
from heterocompute.training.step.network import NetworkTrainer
from heterocompute.training.step.products import backward, forward, patches, unpatched

Array = np.ndarray[Any, Any]
Cast = Callable[[Array, int], Array]
Recipe, Delayed, Current = hc.training.Recipe, hc.training.Delayed, hc.training.Current
F32 = np.float32


def operands(seed: int, rows: int = 64, inputs: int = 256, outputs: int = 128) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, inputs), dtype=F32) * np.exp(random.standard_normal((rows, 1))).astype(F32)
    w = random.standard_normal((outputs, inputs), dtype=F32) * F32(0.1)
    g = random.standard_normal((rows, outputs), dtype=F32) * F32(1e-3)
    return x, w, g


def typed(kind: Any) -> Cast:
    return lambda x, axis: x.astype(kind).astype(F32)


def tf32(x: Array, axis: int) -> Array:
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).astype(np.uint32).view(F32)


def per_tensor(kind: Any, largest: float) -> Cast:
    def cast(x: Array, axis: int) -> Array:
        scale = np.abs(x).max() / F32(largest)
        return (x / scale).astype(kind).astype(F32) * scale

    return cast


def grouped(x: Array, axis: int, size: int, one: Callable[[Array], Array]) -> Array:
    rows = x if axis == 1 else x.T
    found = np.empty_like(rows)
    for r in range(len(rows)):
        for first in range(0, rows.shape[1], size):
            found[r, first : first + size] = one(rows[r, first : first + size])
    return found if axis == 1 else found.T


def nearest_e4m3(values: Array, scale: Any) -> Array:
    codes = values.astype(np.float64) / np.float64(scale)
    return codes.astype(ml_dtypes.float8_e4m3fn).astype(F32) * F32(scale)


def tiles(x: Array, axis: int) -> Array:
    return grouped(x, axis, 128, lambda part: nearest_e4m3(part, np.abs(part).max() / F32(448)))


def blocks(x: Array, axis: int) -> Array:
    found = np.empty_like(x)
    for r in range(0, len(x), 128):
        for c in range(0, x.shape[1], 128):
            part = x[r : r + 128, c : c + 128]
            found[r : r + 128, c : c + 128] = nearest_e4m3(part, np.abs(part).max() / F32(448))
    return found


def microscaled(x: Array, axis: int) -> Array:
    return grouped(x, axis, 32, lambda part: nearest_e4m3(part, 2.0 ** np.ceil(np.log2(np.abs(part).max() / 448.0))))


def integers(values: Array) -> Array:
    scale = np.abs(values).max() / F32(127)
    return np.rint(values.astype(np.float64) / np.float64(scale)).astype(F32) * scale


def int_rows(x: Array, axis: int) -> Array:
    return grouped(x, axis, x.shape[axis], integers)


E4M3, E5M2 = per_tensor(ml_dtypes.float8_e4m3fn, 448), per_tensor(ml_dtypes.float8_e5m2, 57344)
BF16, FP16 = typed(ml_dtypes.bfloat16), typed(np.float16)
# weights, activations, gradients; activations and gradients of dw; dw
STATEMENTS: dict[str, tuple[Cast, Cast, Cast, Cast, Cast, Cast | None]] = {
    "bf16": (BF16, BF16, BF16, BF16, BF16, BF16),
    "fp16-loss-scale": (FP16, FP16, FP16, FP16, FP16, FP16),
    "tf32": (tf32, tf32, tf32, tf32, tf32, None),
    "fp8-current": (E4M3, E4M3, E5M2, E4M3, E5M2, None),
    "deepseek-fp8": (blocks, tiles, tiles, lambda x, axis: tiles(tiles(x, 1), axis), tiles, None),
    "mxfp8": (microscaled, microscaled, microscaled, microscaled, microscaled, None),
    "int8-switchback": (lambda x, axis: integers(x), int_rows, int_rows, BF16, BF16, None),
    "sr-bf16": (BF16, BF16, BF16, BF16, BF16, BF16),
}


@pytest.mark.parametrize("name", list(STATEMENTS))
def test_the_three_matmuls_are_those_of_the_statement(name: str) -> None:
    x, w, g = operands(1, rows=128)
    weights, activations, gradients, last_x, last_g, result = STATEMENTS[name]
    found = hc.training.linear_step(x, w, g, name)
    expected = [
        hc.matmul(activations(x, 1), np.ascontiguousarray(weights(w, 1).T)),
        hc.matmul(gradients(g, 1), weights(w, 0)),
        hc.matmul(np.ascontiguousarray(last_g(g, 0).T), np.ascontiguousarray(last_x(x, 0))),
    ]
    if result is not None:
        expected[2] = result(expected[2], 1)
    for mine, wanted in zip(found, expected, strict=True):
        assert mine.tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_groups_follow_the_axis_of_each_matmul() -> None:
    x, w, g = operands(2)
    recipe = Recipe(weights="int4-g32", activations="int4-g32", gradients="int4-g32")
    found = hc.training.linear_step(x, w, g, recipe)

    def rounded(values: Array, axis: int) -> Array:
        return np.ascontiguousarray(hc.fake_quantize(values, "int4-g32", axis=axis))

    assert np.array_equal(found.y, hc.matmul(rounded(x, 1), np.ascontiguousarray(rounded(w, 1).T)))
    assert np.array_equal(found.dx, hc.matmul(rounded(g, 1), rounded(w, 0)))
    assert np.array_equal(found.dw, hc.matmul(np.ascontiguousarray(rounded(g, 0).T), rounded(x, 0)))


@pytest.mark.parametrize("rule", ["max", "most_recent"])
@pytest.mark.parametrize("margin", [0, 1])
def test_delayed_scales_come_from_earlier_steps(rule: str, margin: int) -> None:
    recipe = dataclasses.replace(
        hc.training.recipe("fp8-delayed"), scaling=Delayed(history=2, amax=rule, margin=margin)
    )
    state = LayerState(recipe, "fc", 0)
    kinds = {
        "x": (ml_dtypes.float8_e4m3fn, 448),
        "w": (ml_dtypes.float8_e4m3fn, 448),
        "g": (ml_dtypes.float8_e5m2, 57344),
    }
    seen: dict[str, list[float]] = {"x": [], "w": [], "g": []}
    for step in range(5):
        given = dict(zip("xwg", operands(step), strict=True))
        rounded = {}
        for key, values in given.items():
            kind, largest = kinds[key]
            past = seen[key][-2:] if rule == "max" else seen[key][-1:]
            scale = F32(max(past)) / F32(largest) * F32(2**margin) if past else F32(1)
            small = np.clip(values / scale, -largest, largest)
            rounded[key] = small.astype(kind).astype(F32) * scale
            seen[key].append(float(np.abs(values).max()))
        state.begin()
        y, kept = forward(state, given["x"], given["w"])
        dx, dw = backward(state, given["g"], kept)
        assert np.array_equal(y, hc.matmul(rounded["x"], np.ascontiguousarray(rounded["w"].T)))
        assert np.array_equal(dx, hc.matmul(rounded["g"], rounded["w"]))
        assert np.array_equal(dw, hc.matmul(np.ascontiguousarray(rounded["g"].T), rounded["x"]))


@pytest.mark.parametrize("other", ["bf16", "int8"])
def test_operands_of_the_weight_gradient_may_have_the_only_delayed_scales(other: str) -> None:
    recipe = Recipe(other, other, other, weight_matmul="fp8_e5m2-tensor", scaling=Delayed(history=2))
    state, seen = LayerState(recipe, "fc", 0), []
    for step in range(4):
        x, w, g = operands(step)
        state.begin()
        _, kept = forward(state, x, w)
        dw = backward(state, g, kept)[1]
        past = np.max(seen[-2:], axis=0) / F32(57344) if seen else np.ones(2, F32)
        last_x, last_g = (hc.fake_quantize(one / scale, "fp8_e5m2") * scale
                          for one, scale in zip((x, g), past, strict=True))  # fmt: skip
        assert np.array_equal(dw, hc.matmul(np.ascontiguousarray(last_g.T), last_x))
        seen.append([np.abs(x).max(), np.abs(g).max()])


def test_scales_may_be_powers_of_two() -> None:
    x, w, g = operands(4)
    recipe = dataclasses.replace(hc.training.recipe("fp8-current"), scaling=Current(power_of_two=True))
    scale = 2.0 ** np.ceil(np.log2(np.abs(x).max() / 448.0))
    rounded = (x / F32(scale)).astype(ml_dtypes.float8_e4m3fn).astype(F32) * F32(scale)
    state = LayerState(recipe, "fc", 0)
    assert np.array_equal(state.rounded(x, "activations", 1, 0), rounded)


def test_the_hadamard_matrix_changes_no_exact_product() -> None:
    x, w, g = (np.rint(values * scale).astype(F32) for values, scale in zip(operands(5), (1, 10, 1000), strict=True))
    plain = hc.training.linear_step(x, w, g, Recipe())
    turned = hc.training.linear_step(x, w, g, Recipe(hadamard=16))
    np.testing.assert_allclose(turned.dw, plain.dw, rtol=0, atol=1e-5 * float(np.abs(plain.dw).max()))
    matrix = hadamard(16, 3)
    assert np.array_equal(matrix @ matrix.T, np.eye(16, dtype=F32))
    assert not np.array_equal(matrix, hadamard(16, 4))


def test_stochastic_gradients_are_right_in_the_mean() -> None:
    x, w, g = operands(6, rows=32, inputs=32, outputs=32)
    exact = hc.training.linear_step(x, w, g, "fp32").dw
    recipe = Recipe(gradients="nvfp4", rounding={"gradients": "stochastic"})
    found = [hc.training.linear_step(x, w, g, recipe, seed=seed).dw for seed in range(64)]
    nearest = hc.training.linear_step(x, w, g, Recipe(gradients="nvfp4")).dw
    assert not np.array_equal(found[0], found[1])
    error = np.abs(np.mean(found, axis=0) - exact).mean()
    assert error < 0.3 * np.abs(found[0] - exact).mean()
    assert error < 0.5 * np.abs(nearest - exact).mean()


def test_seeds_are_the_mix_of_splitmix64() -> None:
    def mixed(h: int) -> int:
        h &= 2**64 - 1
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        h = (h ^ (h >> 27)) * 0x94D049BB133111EB & (2**64 - 1)
        return h ^ (h >> 31)

    golden = 0x9E3779B97F4A7C15
    assert seed_of(5, 7, 9) == mixed(mixed(5 + 8 * golden) + 10 * golden)


@pytest.mark.parametrize("name", ["bf16", "fp16-loss-scale", "tf32"])
def test_sums_are_those_of_the_tensor_core(name: str) -> None:
    x, w, g = operands(7, rows=8, inputs=64, outputs=16)
    recipe = dataclasses.replace(hc.training.recipe(name), sums="h100", weight_gradients="fp32")
    found = hc.training.linear_step(x, w, g, recipe)
    cast = STATEMENTS[name][0]
    instruction = {"bf16": "hmma-h100-bf16", "fp16-loss-scale": "hmma-h100", "tf32": "hmma-h100-tf32"}[name]
    a, b = np.ascontiguousarray(cast(x, 1)), np.ascontiguousarray(cast(w, 1).T)
    assert np.array_equal(found.y, hc.emulate.matmul(a, b, instruction=instruction, accumulator="fp32"))


def test_sums_of_fp8_leave_out_the_scales() -> None:
    x, w, g = operands(8, rows=8, inputs=64, outputs=32)
    recipe = dataclasses.replace(hc.training.recipe("fp8-current"), sums="h100")
    found = hc.training.linear_step(x, w, g, recipe)
    scales = [np.abs(one).max() / F32(448) for one in (x, w)]
    a, b = (
        (one / scale).astype(ml_dtypes.float8_e4m3fn).astype(F32) for one, scale in zip((x, w), scales, strict=True)
    )
    sums = hc.emulate.matmul(a, np.ascontiguousarray(b.T), instruction="hmma-h100-e4m3", accumulator="fp22")
    assert np.array_equal(found.y, sums * (scales[0] * scales[1]))
    assert 20 < hc.error(g @ w, found.dx).sqnr_db < 40
    with pytest.raises(ValueError, match="sums is 'h100', which has no matmul of int8 by int8"):
        hc.training.linear_step(x, w, g, Recipe(weights="int8", activations="int8", sums="h100"))


def test_a_nan_or_infinity_spoils_what_shares_its_scale() -> None:
    x, w, g = operands(9, rows=8, inputs=32, outputs=32)
    g[0, 0] = np.inf
    found = hc.training.linear_step(x, w, g, "fp8-current")
    assert np.isfinite(found.y).all()
    assert np.isnan(found.dw).all()


@pytest.mark.parametrize("fmt", ["bf16", "fp8_e4m3fn", "e5m2-tensor", "int8-tensor"])
def test_rows_of_formats_without_groups_may_have_any_length(fmt: str) -> None:
    for seed, shape in enumerate(((64, 32, 8, 8), (7,), (1000, 1), (0, 4), (4, 0, 3), (2, 3, 40, 5))):
        x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
        for chance in (None, 3):
            wanted = NUMPY._rounded(x, hc.format(fmt), -1, chance)
            assert NUMPY.rounded(x, hc.format(fmt), -1, chance).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("stride", [1, 2])
def test_patches_and_their_transpose(stride: int) -> None:
    random = np.random.default_rng(0)
    x, w = random.standard_normal((2, 3, 8, 6), dtype=F32), random.standard_normal((4, 3, 3, 3), dtype=F32)
    rows = patches(x, 3, stride)
    y = (rows.reshape(-1, 27) @ w.reshape(4, 27).T).reshape(*rows.shape[:3], 4).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(y, hc.conv2d(x, w, stride=stride, padding=1), rtol=1e-4, atol=1e-4)
    other = random.standard_normal(rows.shape, dtype=F32)
    back = unpatched(other, x.shape, 3, stride)
    assert abs(float((back * x).sum()) - float((other * rows).sum())) < 1e-2


def test_float32_training_is_that_of_the_gradients_without_recipe() -> None:
    from heterocompute.training.gradients import gradients

    net = hc.zoo.digits()
    trainer = NetworkTrainer(net, hc.training.recipe("fp32"), 0)
    before = {name: w.copy() for name, w in trainer.weights.items()}
    loss = trainer.step(net.train_x[:16], net.train_y[:16])
    wanted, found = gradients(net.layers, before, net.train_x[:16], net.train_y[:16])
    assert abs(loss - wanted) < 1e-5
    for name, w in trainer.weights.items():
        moved = before[name] - w
        agree = np.sign(moved) == np.sign(found[name])
        assert agree[np.abs(found[name]) > 1e-5].mean() > 0.999


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"weights": "nonsense"}, "'nonsense' is not a format"),
        ({"weights": "int8+2:4"}, "expected a format without a pattern"),
        ({"weights": 3}, "Recipe: weights is 3, expected a format"),
        ({"gradients": "uint8-g32"}, "no negative values, expected a signed format"),
        ({"scaling": Delayed()}, "scaling is Delayed, but weights, activations and gradients are fp32"),
        ({"scaling": "delayed"}, "expected Current, Delayed or None"),
        ({"rounding": {"weights": "up"}}, r"rounding\['weights'\] is 'up'"),
        ({"rounding": {"master": "stochastic"}, "master": "cb4"}, "has no levels of cb4"),
        ({"optimizer": {"mean": "int8"}}, "optimizer is 'mean'"),
        ({"loss_scale": 0.0}, "loss_scale is 0.0, expected a finite number above 0"),
        ({"loss_scale": "static"}, "loss_scale is 'static'"),
        ({"hadamard": 12}, "hadamard is 12, expected a power of two"),
        ({"requantize": ("gradients",)}, "requantize is 'gradients'"),
        ({"sums": "t4"}, "sums is 't4'"),
        ({"keep": ["head"]}, "keep is .* expected a mapping"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_recipes_are_one_sentence(fields: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        Recipe(**fields)
    assert "\n" not in str(caught.value)


def test_delayed_scaling_needs_a_history() -> None:
    with pytest.raises(ValueError, match="Delayed: history is 0"):
        Delayed(history=0)


@pytest.mark.parametrize("name", list(hc.training.recipes()))
def test_recipes_are_values(name: str) -> None:
    found = hc.training.recipe(name)
    assert pickle.loads(pickle.dumps(found)) == found == hc.training.recipe(name)
    assert (found.name, found.source) == (name, hc.training.recipes()[name])
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.seed = 3  # type: ignore[misc]


def test_states_of_small_parameters_stay_float32() -> None:
    found = hc.training.recipe("adam8bit")
    assert found.state_format("exp_avg", 4095) is None
    assert found.state_format("exp_avg", 4096) == found.optimizer["exp_avg"]


def test_dynamic_loss_scales_follow_overflows() -> None:
    net = hc.zoo.digits()
    scale = hc.training.DynamicScale(initial=2.0**40, interval=2)
    trainer = NetworkTrainer(net, dataclasses.replace(hc.training.recipe("fp16-loss-scale"), loss_scale=scale), 0)
    before = {name: w.copy() for name, w in trainer.weights.items()}
    trainer.step(net.train_x[:8], net.train_y[:8])
    assert (trainer.skipped, trainer.loss_scale) == (1, 2.0**39)
    assert all(np.array_equal(w, before[name]) for name, w in trainer.weights.items())
    while trainer.loss_scale > 2.0**10 and trainer.skipped < 40:
        skipped = trainer.skipped
        trainer.step(net.train_x[:8], net.train_y[:8])
        if trainer.skipped == skipped:
            break
    last = trainer.loss_scale
    trainer.step(net.train_x[:8], net.train_y[:8])
    assert trainer.loss_scale in (2 * last, last / 2)


def test_watch_counts_saturated_values() -> None:
    state = LayerState(Recipe(activations="fp8_e4m3fn"), "fc", 0)
    report = hc.training.Watch([state])
    state.begin()
    state.rounded(np.float32([[1000.0, 1.0, -500.0, 448.0]]), "activations", 1, 0)
    row = report.rows[0]
    assert (row["saturation"], row["underflow"]) == (0.5, 0.0)
    assert report.exponents("fc", "activations") == {0: 1, 8: 2, 9: 1}
    with pytest.raises(ValueError, match="watched already"):
        hc.training.Watch([state])
    assert "<svg" in report._repr_html_()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True])
def test_a_wrong_seed_of_a_step_is_named(seed: Any) -> None:
    x, w, dy = (np.ones(shape, np.float32) for shape in ((4, 32), (32, 32), (4, 32)))
    with pytest.raises((ValueError, TypeError), match="linear_step: seed is"):
        hc.training.linear_step(x, w, dy, "mxfp8", seed=seed)
