"""NF4 and learned codebooks: worked examples, the optimum by brute force, training, storage, difficult inputs."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute import reference
from heterocompute.arrays.codes import huffman_lengths
from heterocompute.reference import kmeans
from heterocompute.training import train_digits
from heterocompute.zoo.layers import DIGITS

LARGEST = np.finfo(np.float32).max
SMALLEST = np.float32(2.0**-149)
# Figure 3 of Deep Compression: weights, and their gradient.
W = np.float32([[2.09, -0.98, 1.48, 0.09], [0.05, -0.14, -1.08, 2.12], [-0.91, 1.92, 0, -1.03], [1.87, 0, 1.53, 1.49]])
GRADIENT = np.float32(
    [[-0.03, -0.01, 0.03, 0.02], [-0.01, 0.01, -0.02, 0.12], [-0.01, 0.02, 0.04, 0.01], [-0.07, -0.02, 0.01, -0.02]]
)
TEXTS = ("cb1", "cb3", "cb4-tensor", "cb2-g5", "cb3-g5-tensor", "cb4-d2", "cb2-g6-tensor-d2", "cb3-tensor-d4")


def squares(x: np.ndarray, q: hc.QuantizedArray) -> float:
    return float(((x.astype(np.float64) - q.dequantize()) ** 2).sum())


def same_parts(q: hc.QuantizedArray, wanted: dict[str, np.ndarray]) -> bool:
    return all(same_bits(part, np.ascontiguousarray(wanted[name])) for name, part in q.components.items())


def test_figure_3_of_deep_compression() -> None:
    q = hc.quantize(W, "cb2-tensor")
    assert np.allclose(q.components["codebook"], [-1, 0, 1.5, 2], rtol=0, atol=1e-6)
    codes = reference.codes(dict(q.components), q.format, q.shape, q.axis)[:, 0]
    assert codes.tolist() == [[3, 0, 2, 1], [1, 1, 0, 3], [0, 3, 1, 0], [3, 1, 2, 2]]
    assert round(squares(W, q), 4) == 0.0932
    gradient = hc.codebook_gradient(GRADIENT, q)
    assert np.round(gradient, 6).tolist() == np.float32([-0.03, 0.04, 0.02, 0.04]).tolist()
    moved = hc.codebook_step(q, gradient, lr=1)
    assert np.round(moved.components["codebook"], 6).tolist() == np.float32([-0.97, -0.04, 1.48, 1.96]).tolist()
    assert np.shares_memory(moved.components["codes"], q.components["codes"])
    assert moved.format == q.format and moved.shape == q.shape


def test_a_worked_example_in_one_dimension() -> None:
    x = np.float32([4.0, 4.1, 4.2, -50, 200.2, 200.4, 200.9, 80, 100, 102])
    q = hc.quantize(x, "cb2")
    assert q.components["codebook"].tolist() == [[-50.0, np.float32(4.1), 94.0, 200.5]]
    assert round(squares(x, q), 2) == 296.28


def brute_force(values: np.ndarray, weights: np.ndarray, k: int) -> Fraction:
    """Return the least weighted squared error over all partitions of the sorted values, in exact rationals."""
    order = np.argsort(values, kind="stable")
    v = [Fraction(float(values[i])) for i in order]
    w = [Fraction(float(weights[i])) for i in order]

    def cost(i: int, j: int) -> Fraction:
        total = sum(w[i:j], Fraction(0))
        if not total:
            return Fraction(0)
        mean = sum((a * b for a, b in zip(w[i:j], v[i:j], strict=True)), Fraction(0)) / total
        return sum((a * (b - mean) ** 2 for a, b in zip(w[i:j], v[i:j], strict=True)), Fraction(0))

    cuts = ([0, *inner, len(v)] for inner in combinations(range(1, len(v)), min(k, len(v)) - 1))
    return min(sum((cost(i, j) for i, j in zip(ends[:-1], ends[1:], strict=True)), Fraction(0)) for ends in cuts)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_cut_of_the_values_is_better(seed: int, bits: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    x = np.float32(rng.standard_normal(9) if seed % 2 else rng.integers(-4, 5, 9))
    w = rng.integers(0, 4, 9).astype(np.float64) if weighted else np.ones(9)
    q = hc.quantize(x, f"cb{bits}", importance=w if weighted else None)
    best = float(brute_force(x, w if w.any() else np.ones(9), 2**bits))
    error = float((w * (x.astype(np.float64) - q.dequantize(np.float64)) ** 2).sum())
    assert error <= best * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("n", [7, 8, 9, 17, 64, 700])
@pytest.mark.parametrize("isa", isas("learn_"))
def test_no_place_is_left_out_of_the_search(n: int, isa: str) -> None:
    """A search over all i for every j finds no better clusters, and every instruction set finds the same."""
    rng = np.random.default_rng(n)
    v = np.sort(np.concatenate([rng.standard_normal(n // 2), rng.laplace(5, 0.1, n - n // 2)]).astype(np.float32))
    with hc.use(isa=isa):
        found = hc.quantize(v, "cb3")
    assert same_parts(found, reference.quantize(v, hc.format("cb3")))
    y = v.astype(np.float64) - v.astype(np.float64).mean()
    moment, weight = np.concatenate([[0], np.cumsum(y)]), np.arange(n + 1.0)
    part = np.full((n + 1, n + 1), -np.inf)
    i, j = np.triu_indices(n + 1, 1)
    part[i, j] = (moment[j] - moment[i]) ** 2 / (weight[j] - weight[i])
    gain = part[0]
    for _ in range(min(8, n) - 1):
        gain = (gain[:, None] + part).max(axis=0)
    assert squares(v, found) <= max((y**2).sum() - gain[n], 0) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("isa", isas("learn_"))
def test_importance_that_is_lost_in_a_sum_has_the_clusters_of_the_definition(isa: str) -> None:
    """10^-10 next to 10^30 gives a weight of 0, and a gain of 0 / 0."""
    for n, first in ((200, 3), (17, 2), (40, 12)):
        x, importance = np.arange(n, dtype=np.float32), np.full(n, 1e-10, np.float32)
        importance[:first] = 10.0 ** (30 + np.arange(first) % 3)
        for order in (slice(None), slice(None, None, -1), np.random.default_rng(n).permutation(n)):
            for text in ("cb2", "cb4", "cb5-tensor"):
                with hc.use(isa=isa):
                    found = hc.quantize(x, text, importance=importance[order])
                assert same_parts(found, reference.quantize(x, hc.format(text), importance=importance[order]))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("weights", ["none", "ones", "random", "zeros", "one value"])
def test_importance_is_that_of_the_definition(text: str, weights: str) -> None:
    x = reals((5, 3, 23), 1)
    importance = {
        "none": None,
        "ones": np.ones(x.shape, np.float32),
        "random": reals(x.shape, 2, np.float64) ** 2,
        "zeros": np.zeros(x.shape, np.float16),
        "one value": (np.arange(x.size) == 17).astype(np.float32).reshape(x.shape),
    }[weights]
    for axis in (-1, 0, (0, 2)):
        q = hc.quantize(x, text, axis, importance=importance)
        assert same_parts(q, reference.quantize(x, hc.format(text), axis, importance=importance))
        if weights in ("none", "zeros") or (weights == "ones" and q.format.dim == 1):
            assert q == hc.quantize(x, text, axis)


def test_importance_lowers_the_weighted_error() -> None:
    x, w = reals((4, 500), 3), reals((4, 500), 4) ** 2

    def error(q: hc.QuantizedArray) -> float:
        return float((w * (x.astype(np.float64) - q.dequantize()) ** 2).sum())

    assert error(hc.quantize(x, "cb3", importance=w)) < 0.9 * error(hc.quantize(x, "cb3"))


@pytest.mark.parametrize("text", ["cb4-tensor", "cb2"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.sweep(every=4)
def test_more_values_than_the_exact_program_takes(text: str, weighted: bool) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(150_000, dtype=np.float32)
    importance = rng.random(x.shape, np.float32) if weighted else None
    q = hc.quantize(x, text, importance=importance)
    assert same_parts(q, reference.quantize(x, hc.format(text), importance=importance))
    if not weighted:
        v = np.sort(x.astype(np.float64))
        moment = np.concatenate([[0], np.cumsum(v - v.mean())])
        ends = kmeans.clusters(np.arange(v.size + 1.0), moment, 2**q.format.bits)
        exact = sum(float(((v[i:j] - v[i:j].mean()) ** 2).sum()) for i, j in zip(ends[:-1], ends[1:], strict=True))
        assert squares(x, q) <= exact * (1 + 1e-6)


def test_far_from_zero_nothing_cancels() -> None:
    x = np.float32(2.0**20) + np.float32(np.random.default_rng(6).integers(-400, 400, 3000) / 16)
    shifted = x - np.float32(2.0**20)  # exact
    assert squares(x, hc.quantize(x, "cb3")) <= squares(shifted, hc.quantize(shifted, "cb3")) * 1.001


def test_the_order_of_values_does_not_matter() -> None:
    x = reals((1, 300), 7)
    turned = hc.quantize(np.random.default_rng(8).permutation(x, axis=1), "cb4")
    assert same_bits(turned.components["codebook"], hc.quantize(x, "cb4").components["codebook"])


@pytest.mark.parametrize("text", ["cb1", "cb4", "cb8", "cb4-tensor", "cb4-g5", "cb3-d2"])
def test_hard_rows(text: str) -> None:
    with np.errstate(under="ignore"):
        rows = {
            "few different values": np.tile(np.float32([1, 2, 2, 7, 1, 0, -0.0]), 2),
            "constant": np.full(14, 0.1, np.float32),
            "zeros": np.zeros(14, np.float32),
            "minus zeros": np.full(14, -0.0, np.float32),
            "subnormals": np.arange(-7, 7).astype(np.float32) * SMALLEST,
            "largest": np.float32([LARGEST, -LARGEST, LARGEST / 2, 0, 1, -1, LARGEST] * 2),
        }
    for name, x in rows.items():
        q = hc.quantize(x[None], text)
        values = q.dequantize()
        assert same_parts(q, reference.quantize(x[None], hc.format(text))), name
        assert np.isfinite(values).all() and np.isfinite(q.components["codebook"]).all(), name
        assert not np.signbit(values[values == 0]).any(), name
        codes = reference.codes(dict(q.components), q.format, q.shape, q.axis)
        if q.format.dim == 1 and q.format.group is None and len(np.unique(x)) <= 2**q.format.bits:
            assert np.array_equal(values[0], x), name
            assert codes.max() < max(len(np.unique(x)), 1), name  # repetitions of the largest level are not used
            assert np.all(np.diff(q.components["codebook"].reshape(-1)) >= 0)


@pytest.mark.parametrize("text", ["cb3-d4", "cb3-tensor-d4", "cb4-g16-d8", "cb2-g6-tensor-d2"])
def test_runs_shorter_than_a_vector_are_filled_up(text: str) -> None:
    fmt = hc.format(text)
    for shape, axis in (((1, 4), (1, 0)), ((3, 1, 8), (2, 1)), ((2, 4, 2, 4), (1, 3, 2)), ((8, 8), (0, 1))):
        x = reals(shape, 3)
        q, components = hc.quantize(x, fmt, axis=axis), reference.quantize(x, fmt, axis)
        assert all(same_bits(q.components[name], part) for name, part in components.items())
        assert same_bits(q.dequantize(), np.ascontiguousarray(reference.dequantize(components, fmt, shape, axis)))


@pytest.mark.parametrize("text", ["cb1-g4", "cb1-g4-tensor", "cb1-g4-d2", "cb1-g4-tensor-d2"])
@pytest.mark.parametrize("weighted", [False, True])
def test_groups_of_zeros_draw_no_centroid(text: str, weighted: bool) -> None:
    x = np.zeros((4, 12), np.float32)
    x[0, :4] = x[2, 8:] = [3, 3, -3, -3]
    x[1, 4:8] = x[2, :4] = [-0.5, -0.5, 0.5, 0.5]
    importance = np.ones(x.shape) if weighted else None
    q = hc.quantize(x, text, importance=importance)
    assert np.array_equal(q.dequantize(), x)  # two centroids represent -1 and 1; zeros must not need one
    assert same_parts(q, reference.quantize(x, hc.format(text), importance=importance))


def test_a_column_without_values_and_rows_without_columns() -> None:
    for shape in ((0, 4), (3, 0)):
        for text in TEXTS:
            q = hc.quantize(np.zeros(shape, np.float32), text)
            assert q.dequantize().shape == shape and not q.components["codebook"].any()


@pytest.mark.parametrize("text", ["cb2-tensor", "nf4-g64-dq", "cb1"])
@pytest.mark.sweep(every=3)
def test_activations_in_blocks_are_those_of_the_whole(text: str) -> None:
    x, w = reals((2100, 4096), 9), hc.quantize(reals((3, 4096), 10), "int8-g64")
    assert same_bits(hc.linear(x, w, activations=text), hc.matmul(hc.quantize(x, text), w.T))


def test_a_codebook_of_the_array_fits_any_axis() -> None:
    x, w = reals((4, 40), 11), reals((6, 40), 12)
    q = hc.quantize(w, "cb4-tensor", axis=0)
    assert same_bits(hc.linear(x, q), hc.linear(x, hc.quantize(w, "cb4-tensor")))
    with bad_argument(ValueError, "w", "axis"):
        hc.linear(x, hc.quantize(w, "cb4", axis=0))


# NF4.


def test_every_level_of_nf4_comes_back() -> None:
    levels = reference._definition(hc.NF4()).LEVELS
    q = hc.quantize(levels * np.float32(3), "nf4-g16")
    assert reference.codes(dict(q.components), q.format, q.shape, q.axis).reshape(-1).tolist() == list(range(16))
    assert same_bits(q.dequantize(), (levels * np.float32(3)) + np.float32(0))
    between = (levels[1:].astype(np.float64) + levels[:-1]) / 2
    rows = np.stack([np.ones(15), between, np.nextafter(between, 2)], axis=1)
    codes = reference.codes(dict(hc.quantize(rows, "nf4-g3").components), hc.format("nf4-g3"), (15, 3), (1,))[:, 0]
    assert codes.tolist() == [[15, i, i + 1] for i in range(15)]


def test_double_quantization_keeps_zeros_and_little_is_lost() -> None:
    x = reals((40, 640), 13)
    x[3, 64:128] = 0
    x[5] *= 40
    q, plain = hc.quantize(x, "nf4-g64-dq"), hc.quantize(x, "nf4-g64")
    assert not q.dequantize()[3, 64:128].any()
    assert hc.error(x, q).sqnr_db > hc.error(x, plain).sqnr_db - 0.5
    assert q.components["scales"].dtype == np.int8 and q.components["coarse"].shape == (2,)
    same = q.components["codes"] != plain.components["codes"]
    assert np.flatnonzero(same.any(axis=1)).tolist() == [3]
    with bad_argument(ValueError, None, "value", r"dequantize\(\)"):
        q[:2]


# Training.


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("shape", "axis"), [((4, 23), -1), ((3, 7, 2, 2), (2, 3, 1)), ((9, 5), 0)])
def test_the_gradient_is_that_of_finite_differences(text: str, shape: tuple[int, ...], axis: object) -> None:
    rng = np.random.default_rng(14)
    x, target = reals(shape, 15), rng.standard_normal(shape)
    q = hc.quantize(x, text, axis)

    def loss(q: hc.QuantizedArray) -> float:
        return float(((q.dequantize(np.float64) - target) ** 2).sum() / 2)

    gradient = hc.codebook_gradient(q.dequantize(np.float64) - target, q)
    codebook = q.components["codebook"]
    assert gradient.shape == codebook.shape and gradient.dtype == np.float32
    for place in rng.choice(codebook.size, 5, replace=False):
        unit = np.zeros(codebook.size, np.float32)
        unit[place] = 2.0**-8
        up, down = (hc.codebook_step(q, unit.reshape(codebook.shape), lr) for lr in (-1, 1))
        step = float(up.components["codebook"].flat[place]) - float(down.components["codebook"].flat[place])
        assert (loss(up) - loss(down)) / step == pytest.approx(gradient.flat[place], rel=1e-3, abs=1e-5)


def test_training_a_codebook_lowers_the_loss_and_keeps_codes() -> None:
    net = hc.zoo.digits()
    x, labels = net.test_x[:96], net.test_y[:96]
    before = train_digits.quantized(net.weights, "cb1")
    after = train_digits.fine_tune(net.weights, "cb1", x, labels, epochs=2, seed=0)

    def loss(weights: dict[str, object]) -> float:
        return train_digits.gradients(DIGITS, {k: np.asarray(w) for k, w in weights.items()}, x, labels)[0]

    assert loss(after) < 0.9 * loss(before)
    for name, q in before.items():
        if q.ndim > 1:
            assert np.array_equal(q.components["codes"], after[name].components["codes"])


# Storage.


def test_huffman_lengths_are_those_of_an_optimal_code() -> None:
    assert huffman_lengths([]) == [] and huffman_lengths([0, 0]) == [0, 0] and huffman_lengths([0, 9]) == [0, 1]
    assert sorted(huffman_lengths([45, 13, 12, 16, 9, 5])) == [1, 3, 3, 3, 4, 4]
    counts = np.random.default_rng(16).integers(0, 1000, 256) ** 2
    lengths = huffman_lengths(counts.tolist())
    assert sum(Fraction(1, 2**length) for length in lengths if length) == 1
    p = counts[counts > 0] / counts.sum()
    mean = float((counts * lengths).sum() / counts.sum())
    assert -(p * np.log2(p)).sum() <= mean < -(p * np.log2(p)).sum() + 1


@pytest.mark.parametrize("text", [*TEXTS, "int4-g5", "nf4-g64-dq", "vsq4-g16-s4"])
def test_storage_counts_codes_without_padding(text: str) -> None:
    x = reals((7, 3, 23), 17)
    q = hc.quantize(x, text, (1, 2))
    found = hc.code_storage(q)
    dim = getattr(q.format, "dim", 1)
    assert found.codes == 7 * 3 * -(-23 // dim) and found.bits == q.format.bits and found.nbytes == q.nbytes
    assert 0 <= found.entropy <= found.huffman < found.entropy + 1
    others = sum(part.nbytes for name, part in q.components.items() if name != "codes")
    assert found.huffman_nbytes == others + 2**found.bits + -(-round(found.huffman * found.codes) // 8)
    assert found.ratio == 4 * q.size / q.nbytes


@pytest.mark.parametrize("text", ["int8", "int4-g16", "cb4", "cb3-g16-tensor", "cb4-d2", "nf4-g16", "log4-1-g16"])
@pytest.mark.parametrize(("axis", "runs"), [((2,), 1), ((1, 2), 6), ((2, 0), 37)])
def test_storage_of_a_sparse_array_is_that_of_the_kept_values(text: str, axis: tuple[int, ...], runs: int) -> None:
    x = reals((5, 6, 37), 19)
    found = hc.code_storage(hc.quantize(x, f"{text}+2:4", axis))
    kept = hc.prune(x, "2:4", axis).components["values"]
    wanted = hc.code_storage(hc.quantize(kept.reshape(len(kept), runs, -1), text, (1, 2)))
    assert (found.codes, found.entropy, found.huffman) == (wanted.codes, wanted.entropy, wanted.huffman)


def test_storage_of_one_value_again_and_again() -> None:
    found = hc.code_storage(hc.quantize(np.ones((2, 64), np.float32), "cb4"))
    assert (found.entropy, found.huffman) == (0, 1)
    assert hc.code_storage(hc.quantize(np.ones((0, 4), np.float32), "cb4")).codes == 0


# Errors.


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: hc.quantize(x, "int8", importance=x), ValueError, "learn"),
        (lambda x: hc.quantize(x, "cb2", importance=x[:, 1:]), ValueError, "shape"),
        (lambda x: hc.quantize(x, "cb2", importance=-np.abs(x) - 1), ValueError, r"-\d.*\(0, 0\)"),
        (
            lambda x: hc.quantize(x, "cb2", importance=np.where(np.arange(6) == 2, np.nan, x**2)),
            ValueError,
            r"\(0, 2\)",
        ),
        (lambda x: hc.quantize(x, "cb2", importance=np.full(x.shape, 1e300)), ValueError, "finite"),
        (lambda x: hc.quantize(x, "cb2", importance=np.ones(x.shape, int)), TypeError, "importance"),
        (lambda x: hc.quantize(x, "cb2", clip=0.5), ValueError, "clip"),
        (lambda x: hc.quantize(x, "cb9"), ValueError, "nearest"),
        (lambda x: hc.quantize(x, "cb4-g5-d2"), ValueError, "multiple"),
        (lambda x: hc.codebook_gradient(x, hc.quantize(x, "int8")), TypeError, "codebook"),
        (lambda x: hc.codebook_gradient(x, x), TypeError, "codebook"),
        (lambda x: hc.codebook_gradient(x[1:], hc.quantize(x, "cb2")), ValueError, "shape"),
        (lambda x: hc.codebook_step(hc.quantize(x, "cb2"), x, 1), ValueError, "shape"),
        (lambda x: hc.codebook_step(hc.quantize(x, "cb2"), np.ones((4, 4)), 10**400), ValueError, "finite"),
        (lambda x: hc.codebook_step(hc.quantize(x, "cb2"), np.ones((4, 4)), np.inf), ValueError, "finite"),
        (lambda x: hc.codebook_step(hc.quantize(x, "cb2"), np.ones((4, 4)), "1"), TypeError, "lr is '1' of type str"),
        (lambda x: hc.code_storage(x), TypeError, "QuantizedArray"),
        (lambda x: hc.code_storage(hc.quantize(x, "int24")), ValueError, "16"),
    ],
)
def test_bad_arguments_are_named(call, kind, words) -> None:
    with pytest.raises(kind, match=words):
        call(reals((4, 6), 18))


def test_a_study_takes_formats_whose_rows_do_not_stand_alone() -> None:
    found = hc.study(reals((8, 64), 19), formats=["nf4-g64-dq", "cb2", "cb8-d2"])
    assert [row["format"] for row in found.table] == ["fp32", "nf4-g64-dq", "cb2", "cb8-d2"]
    assert [row["bytes"] for row in found.table[1:]] == [8 * 32 + 8 + 4 + 4, 8 * 16 + 8 * 4 * 4, 8 * 32 + 8 * 256 * 8]
