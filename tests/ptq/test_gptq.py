"""Rounding for a layer's inputs: smaller errors, guarantees, and refused arguments."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import FORMATS, bad_argument, isas, reals

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.formats import Own
from heterocompute.products.columns import to_columns
from heterocompute.products.grid_of import grid_of
from heterocompute.ptq.gptq import damped_factor, improve, rounded_under
from heterocompute.ptq.levels import Part
from heterocompute.reference import ptq as definition

K, ROWS = 96, 24
TABLED = [
    text
    for text in FORMATS
    if not text.startswith(("fp32", "tf32", "bf16", "fp16")) and "-d" not in text.replace("-dq", "")
    if not isinstance(hc.format(text), hc.GGML) and not hc.format(text).form.minima
]


def inputs(seed: int = 0, tokens: int = 300) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((tokens, K)) @ (rng.standard_normal((K, K)) * np.exp(rng.standard_normal(K)))


@pytest.fixture(scope="module")
def h() -> hc.ptq.Hessian:
    found = hc.ptq.Hessian(K)
    found.add(inputs())
    return found


@pytest.fixture(scope="module")
def w() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((ROWS, K)).astype(np.float32)


@pytest.mark.parametrize("fmt", TABLED)
@pytest.mark.sweep(every=3)
def test_every_format_with_steps_or_levels_gains(fmt: str, w: Any, h: hc.ptq.Hessian) -> None:
    q = hc.ptq.gptq(w, h, fmt, sweeps=0)
    plain = hc.quantize(w, fmt)
    assert q.format == plain.format and q.axis == plain.axis and q.dtype == plain.dtype
    assert {name: part.shape for name, part in q.components.items()} == {
        name: part.shape for name, part in plain.components.items()
    }
    before, after = hc.ptq.error(w, plain, h), hc.ptq.error(w, q, h)
    gain = 0 if q.format.form.is_unsigned else 1.5
    # int2-g1 is exact; unsigned codes lose every negative weight in any case
    assert before.squared == after.squared == 0 or after.output_db > before.output_db + gain
    rebuilt = type(q)(q.components, q.format, q.shape, q.axis)  # checks the components
    assert rebuilt == q


def repeats_numbers(text: str) -> bool:
    """Tell whether an own format has several codes of a number, such as -0 and those that float32 makes 0."""
    fmt = hc.format(text)
    if not isinstance(fmt, Own):
        return False
    table = fmt.element.table()
    return len(np.unique(table.levels[table.ranked])) < len(table.ranked)


@pytest.mark.parametrize("fmt", TABLED)
@pytest.mark.sweep(every=3)
def test_independent_inputs_give_plain_rounding(fmt: str, w: Any) -> None:
    plain = hc.quantize(w, fmt)
    with np.errstate(all="raise"):
        q = hc.ptq.gptq(w, np.eye(K), fmt, scales="absmax", sweeps=0)
    if fmt.startswith("log"):  # it rounds the logarithm
        assert hc.error(w, q).mse <= hc.error(w, plain).mse
    elif fmt.endswith("-dq") or hc.format(fmt).form.scale == "integer" and "refit" not in fmt:
        # plain rounding computes codes with scales before these are rounded
        assert hc.error(w, q).mse <= hc.error(w, plain).mse
    elif fmt.startswith(("fp", "mxfp", "nvfp")) or repeats_numbers(fmt):  # they keep the sign of values rounded to 0
        assert (q.dequantize() == plain.dequantize()).all()
    else:
        assert q == plain


@pytest.mark.parametrize(
    "fmt", ["int4", "int3-g16", "vsq4-g16-s4", "nvfp4", "mxfp4", "cb3-g16", "cb2-tensor", "fp8_e4m3fn-tensor"]
)
def test_sweeps_and_refits_never_raise_the_error(fmt: str, w: Any, h: hc.ptq.Hessian) -> None:
    grid, columns, matrix = grid_of(hc.quantize(w, fmt)), to_columns(w, (1,)), h.matrix
    codes = grid.nearest(columns)
    last = hc.ptq.error(w, grid.quantized(codes, "float32"), h).squared
    for refit in (False, True, False, True, True):
        improve([Part(slice(0, ROWS), grid, columns, matrix, codes)], 1, refit)
        now = hc.ptq.error(w, grid.quantized(codes, "float32"), h).squared
        assert now <= last
        last = now
    assert improve([Part(slice(0, ROWS), grid, columns, matrix, codes)], 50, False)[-1] == 0  # it ends


def test_centres_move_with_the_inputs(w: Any, h: hc.ptq.Hessian) -> None:
    """Centroids are learned with weights and refitted under H; both help, and they stay in order."""
    for fmt in ("cb3", "cb2-g32", "cb3-tensor"):
        found = [hc.ptq.gptq(w, h, fmt, scales="absmax", refit=False), hc.ptq.gptq(w, h, fmt, refit=False)]
        found.append(hc.ptq.gptq(w, h, fmt))
        errors = [-hc.ptq.error(w, q, h).output_db for q in found]
        assert errors == sorted(errors, reverse=True)
        assert (np.diff(found[2].components["codebook"]) >= 0).all()


def test_without_clipping_rows_stay_below_the_bound(w: Any, h: hc.ptq.Hessian) -> None:
    """Babai: each row's error under the damped matrix is at most s^2 / 4 sum r_jj^2, on average a third of that."""
    matrix, share = h.matrix, 0.01
    damped = matrix + share * np.diagonal(matrix).mean() * np.eye(K)
    upper = np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1]
    grid = grid_of(hc.quantize(np.clip(np.tile(w, (40, 1)), -1.5, 1.5), "int8"))
    narrow = np.clip(np.random.default_rng(5).standard_normal((40 * ROWS, K)) / 4, -0.7, 0.7).astype(np.float32)
    columns = to_columns(narrow, (1,))
    grid.scale[:] = 0.1
    turn = np.arange(K, dtype=np.int32)
    factor, _, used = damped_factor(matrix, turn, share)
    codes = np.empty(columns.shape, np.int32)
    core.ptq_columns(runtime.run(), grid.core(), columns, factor, turn, None, codes)
    assert used == share and np.abs(codes).max() < 127
    lost = narrow - 0.1 * codes.T
    errors = np.einsum("ij,jk,ik->i", lost, damped, lost) / (0.1**2 / 4 * (np.diagonal(upper) ** 2).sum())
    assert errors.max() <= 1 and abs(errors.mean() - 1 / 3) < 0.02


def test_the_same_bits_everywhere(w: Any) -> None:
    found = []
    for isa in isas("gemm_f64", "axpy_f64"):
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                h = hc.ptq.Hessian(K)
                h.add(inputs())
                found.append((h.matrix.tobytes(), hc.ptq.gptq(w, h, "vsq4-g16-s4")))
    assert all(one == found[0] for one in found)


def test_inputs_add_up_to_the_bit(tmp_path: Path) -> None:
    x = inputs().astype(np.float32)
    whole, parts = hc.ptq.Hessian(K), hc.ptq.Hessian(K)
    whole.add(x)
    for first in range(0, len(x), 7):
        parts.add(x[first : first + 7].reshape(-1, 1, K))
    assert (whole.matrix == parts.matrix).all() and (whole.mean == parts.mean).all()
    assert whole.tokens == parts.tokens == len(x) and (whole.absmax == np.abs(x).max(axis=0)).all()
    left, right = hc.ptq.Hessian(K), hc.ptq.Hessian(K)
    left.add(x[:100], x[:100] * 2)
    right.add(x[100:], x[100:] * 2)
    both = left + right
    assert np.allclose(both.matrix, whole.matrix, rtol=1e-12) and np.allclose(both.cross, 2 * whole.matrix, rtol=1e-12)
    both.save(tmp_path / "h.safetensors")
    again = hc.ptq.Hessian.load(tmp_path / "h.safetensors")
    assert (again.matrix == both.matrix).all() and (again.cross == both.cross).all()
    assert again.tokens == both.tokens and (again.mean == both.mean).all() and (again.absmax == both.absmax).all()


def test_a_dead_input_keeps_its_rounded_weight(w: Any) -> None:
    x = inputs()
    x[:, [3, 50]] = 0
    h = hc.ptq.Hessian(K)
    h.add(x)
    for sweeps in (0, 2):
        found = rounded_under(w, h, "int4", scales="absmax", sweeps=sweeps, refit=False)
        assert found.dead == 2
        assert (found.q.dequantize()[:, [3, 50]] == hc.quantize(w, "int4").dequantize()[:, [3, 50]]).all()


def test_a_group_that_is_dead_has_its_scale_searched_too(w: Any) -> None:
    x = inputs()
    x[:, :16] = 0
    h = hc.ptq.Hessian(K)
    h.add(x)
    dead = hc.ptq.gptq(w, h, "vsq4-g16").dequantize()[:, :16]
    assert hc.error(w[:, :16], dead).sqnr_db > hc.error(w, hc.quantize(w, "vsq4-g16")).sqnr_db


def test_a_matrix_that_does_not_factor_is_damped_further_and_says_so(w: Any) -> None:
    x = np.outer(np.arange(1, 9), np.ones(K))  # rank 1
    h = hc.ptq.Hessian(K)
    h.add(x)
    with pytest.warns(UserWarning, match=r"does not factor with damping 0, so 1e-0\d was used"):
        hc.ptq.gptq(w, h, "int4", damping=0)
    assert rounded_under(w, h, "int4", damping=0).damping > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hc.ptq.gptq(w, h, "int4")


def test_convolutions_and_transposed_weights_have_their_axes(h: hc.ptq.Hessian, w: Any) -> None:
    images = reals((ROWS, 8, 3, 4), 3)  # K = 96 patches in the order (r, s, c)
    q = hc.ptq.gptq(images, h, "int4-g5")
    assert q.axis == (2, 3, 1) and q.shape == images.shape
    rows = images.transpose(0, 2, 3, 1).reshape(ROWS, K)

    def error(w: Any, q: Any) -> float:
        return hc.ptq.error(w, q, h).output_db

    assert error(images, q) > error(images, hc.quantize(images, "int4-g5", (2, 3, 1))) + 2
    flat = hc.ptq.gptq(rows, h, "int8")
    assert (
        hc.ptq.gptq(images, h, "int8").dequantize().transpose(0, 2, 3, 1).reshape(ROWS, K) == flat.dequantize()
    ).all()
    turned = hc.ptq.gptq(np.asfortranarray(w.T), h, "int4-g32", axis=0)
    assert turned.axis == (0,) and (turned.dequantize().T == hc.ptq.gptq(w, h, "int4-g32").dequantize()).all()


@pytest.mark.parametrize("shape", [(0, K), (3, 1)])
def test_empty_and_tiny_weights(shape: tuple[int, int]) -> None:
    h = np.eye(shape[1]) * 2
    assert hc.ptq.gptq(np.ones(shape, np.float32), h, "int4").shape == shape
    assert hc.ptq.gptq(np.zeros(shape, np.float32), h, "vsq4-g16-s4").dequantize().any() == False  # noqa: E712
    assert hc.ptq.gptq(np.ones(shape, np.float32), h, "int8-b16x16-bf16").shape == shape


@pytest.mark.parametrize("fmt", ["int4-g32", "int8+2:4"])
def test_arguments_stay_as_they_are(fmt: str, w: Any) -> None:
    """A float64 w in the layout of the core is not copied."""
    turned, x = np.ascontiguousarray(w.T, np.float64), inputs()
    h = hc.ptq.Hessian(K)
    h.add(x, x * 1.01)
    begun, matrix = turned.copy(), h.matrix
    first = hc.ptq.gptq(turned, h, fmt, axis=0)
    assert (turned == begun).all() and (h.matrix == matrix).all()
    assert first == hc.ptq.gptq(turned, h, fmt, axis=0)


MEMORY = """
import sys
import numpy as np, heterocompute as hc

def held(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) * 1024

rng = np.random.default_rng(0)
for k, rows, fmt in ((2048, 32, "int4"), (384, 20000, "2:4")):
    x, w = rng.standard_normal((100, k), dtype=np.float32), rng.standard_normal((rows, k), dtype=np.float32)
    hc.ptq.gptq(w[:4, :32], np.eye(32), fmt)
    h = hc.ptq.Hessian(k)
    h.add(x)
    h.full()
    open("/proc/self/clear_refs", "w").write("5")
    before = held("VmRSS")
    hc.ptq.gptq(w, h, fmt, sweeps=0)
    print((held("VmHWM") - before) / (8 * k * k + 16 * k * rows + (64 << 20)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.sweep(every=0)
def test_memory_is_a_matrix_two_weights_and_64_mib() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert all(0.3 < float(share) <= 1 for share in done.stdout.split()), done.stdout


def test_what_is_refused(w: Any, h: hc.ptq.Hessian, tmp_path: Path) -> None:
    def raises(kind: type[Exception], text: str, *args: Any, **more: Any) -> None:
        with pytest.raises(kind, match=text):
            hc.ptq.gptq(*args, **more)

    raises(ValueError, "gptq: w has nan at index", np.where(w == w[1, 2], np.nan, w), h, "int4")
    raises(ValueError, "gptq: fp16 has no steps and no table of levels", w, h, "fp16")
    raises(ValueError, "w has 95 inputs", w[:, 1:], h, "int4")
    raises(ValueError, "h is not symmetric", w, np.triu(np.ones((K, K))), "int4")
    raises(ValueError, "order is 'up', expected 'activation' or 'natural'", w, h, "int4", order="up")
    raises(ValueError, "damping is -1", w, h, "int4", damping=-1)
    raises(TypeError, "expected float16", w.astype(int), h, "int4")
    with bad_argument(ValueError, "x", "value", r"at index \(1, 0\)"):
        hc.ptq.Hessian(2).add(np.float32([[1, 2], [np.nan, 3]]))
    with bad_argument(ValueError, "x_float", "value"):
        h.add(inputs(), inputs())
    hc.save(tmp_path / "x.safetensors", {"a": w})
    with bad_argument(ValueError, None, "file", "Hessian"):
        hc.ptq.Hessian.load(tmp_path / "x.safetensors")


# Plain rounding is among the candidates.


def problem(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    k, rows = int(rng.integers(2, 64)), int(rng.integers(1, 12))
    x = rng.standard_normal((rng.integers(1, 60), k)) * np.exp(rng.standard_normal(k) * rng.choice([0, 1, 2]))
    w = rng.standard_normal((rows, k)) * np.exp(rng.standard_normal((rows, 1)) * rng.choice([0, 1, 3]))
    h = hc.ptq.Hessian(k)
    h.add(x)
    return w.astype(np.float32), h


@pytest.mark.parametrize(
    ("seed", "fmt"),
    [
        (30, "nf4-g5-dq"), (65, "nf4-g5-dq"), (123, "nf4-g16-dq"), (127, "int4-g16"), (297, "nf4-g16-dq"),
        (114, "cb2+2:4"),
    ],
)  # fmt: skip
def test_it_is_no_worse_than_plain_rounding(seed: int, fmt: str) -> None:
    """Without the comparison their error would be 1.01 to 1.17 times as large."""
    w, h = problem(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = hc.ptq.gptq(w, h, fmt)
    plain = hc.quantize(w, fmt)
    exact, matrix = w.astype(np.float64), h.matrix

    def lost(one: Any) -> Any:
        error = exact - one.dequantize()
        return np.einsum("ij,jk,ik->i", error, matrix, error)

    if fmt == "int4-g16":  # rows are by themselves
        assert (lost(q) <= lost(plain) * (1 + 1e-9)).all()
    assert lost(q).sum() <= lost(plain).sum() * (1 + 1e-9)


@pytest.mark.parametrize("fmt", ["int4-g16", "cb3", "cb2-g16", "vsq4-g16-s4", "2:4"])
def test_the_magnitude_of_inputs_does_not_change_the_codes(fmt: str) -> None:
    w, h = problem(3)
    expected = hc.ptq.gptq(w, h.matrix, fmt)
    for exponent in (-900, -200, 200, 900):
        assert hc.ptq.gptq(w, np.ldexp(h.matrix, exponent), fmt) == expected


@pytest.mark.parametrize(("seed", "fmt"), [(29, "vsq4-g16-s4-refit"), (113, "nf4-g16-dq"), (164, "vsq4-g16-s4")])
def test_searched_scales_are_no_worse_than_plain_rounding(seed: int, fmt: str) -> None:
    """Scales in two levels are searched as floats first, and then rounded."""
    w, _ = problem(seed)
    searched, plain = (
        ((w - hc.quantize(w, fmt, clip=clip).dequantize(np.float64)) ** 2).sum() for clip in ("search", None)
    )
    assert searched <= plain


def test_losses_are_sums_in_order() -> None:
    rng = np.random.default_rng(0)
    for k, rows in ((1, 1), (5, 3), (100, 70), (97, 130)):
        e, half = rng.integers(-9, 9, (k, rows)).astype(np.float64), rng.integers(-9, 9, (k, k))
        h = np.ascontiguousarray(half + half.T, np.float64)
        found = np.full(rows, np.nan)
        core.ptq_losses(runtime.run(), k, e, h, found)
        assert np.array_equal(found, np.einsum("ir,ij,jr->r", e, h, e))  # of integers, exact in any order
        e = rng.standard_normal((k, rows))
        each = [definition.losses(e, h).tobytes()]
        for isa, threads in (("scalar", 1), ("scalar", 2), (None, 1), (None, 2)):
            with hc.use(isa=isa, threads=threads) if isa else hc.use(threads=threads):
                core.ptq_losses(runtime.run(), k, e, h, found)
            each.append(found.tobytes())
        assert len(set(each)) == 1
    with pytest.raises(ValueError, match="expected 4 contiguous items"):
        core.ptq_losses(runtime.run(), 2, np.ones((2, 2)), np.ones((3, 3)), np.ones(2))


def test_descent_lowers_the_error_without_damping_and_may_raise_the_damped_one() -> None:
    rng, rises = np.random.default_rng(0), 0
    for _ in range(5):
        x = rng.standard_normal((12, 24)) @ rng.standard_normal((24, 24))
        h, w = x.T @ x, rng.standard_normal((8, 24)).astype(np.float32)
        damped = h + np.mean(np.diag(h)) * np.eye(24)
        for fmt in ("int3", "int4-g8", "vsq4-g8-s4"):
            found = [hc.ptq.gptq(w, h, fmt, damping=1.0, sweeps=0, refit=False), hc.ptq.gptq(w, h, fmt, damping=1.0)]
            left = [(w - q.dequantize()).astype(np.float64) for q in found]
            plain, other = ([((e @ m) * e).sum(axis=1) for e in left] for m in (h, damped))
            assert (plain[1] <= plain[0] * (1 + 1e-5) + 1e-9).all()
            rises += int((other[1] > other[0] * (1 + 1e-6)).sum())
    assert rises > 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_errors_of_weights_that_are_not_finite(value: float) -> None:
    w = np.float32([[1, 2]])
    with bad_argument(ValueError, "q", "value", r"at index \(0, 0\)"):
        hc.ptq.error(w, np.float32([[value, 2]]), np.eye(2))
    q = hc.quantize(np.float32([[1e5, 2]]), "fp8_e4m3fn-nosat")  # 1e5 becomes NaN
    assert hc.ptq.error(w, q, np.eye(2)).output_db == -np.inf
