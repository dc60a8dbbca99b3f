"""The float environment of the calling thread (flush bits, rounding direction) does not change results."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import FLOAT_MODES, FORMATS, HANG, bad_argument, float_mode, flushing, reals

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.base import float_env
from heterocompute.files.safetensors import save
from heterocompute.studies.density import _check_zeros
from heterocompute.training.retrain import mask_of

TINY = (reals((8, 32), 1) * 2.0**-140).astype(np.float32)  # subnormal, or zero
TINY64 = reals((8, 32), 2, np.float64) * 2.0**-1060
SMALL64 = reals((8, 32), 3, np.float64) * 2.0**-140  # subnormal in float32
ROOTS64 = reals((8, 32), 4, np.float64) * 2.0**-530  # their squares are subnormal
ONES64 = np.ones((3, 32))
ONES = ONES64.astype(np.float32)
IMAGE = TINY.reshape(1, 4, 8, 8)
BIAS64 = np.full(8, 2.0**-140)
BIAS = BIAS64.astype(np.float32)
WEIGHTS = TINY * np.float32(2.0**120)
Q = hc.quantize(TINY, "int8")
CODES = hc.quantize(TINY, "cb2-g16")
LINES = hc.quantize(TINY, "log4-1")
FEW = np.where(np.arange(32) % 5 == 0, TINY, np.float32(0))
FEW64 = FEW.astype(np.float64)
EIE = hc.encode_eie(FEW)
EIE_CODEBOOK64 = EIE.components["codebook"].astype(np.float64)
LARGE64 = TINY64.T * 2.0**1000
NET = hc.zoo.digits()
NET_X = NET.test_x[:3] * np.float32(2.0**-140)
ONES_33 = np.ones((8, 4, 3, 3), np.float32)
W64 = reals((8, 32), 5, np.float64)
W = W64.astype(np.float32)
W_SCALES = hc.quantize(W, "int4-g16").components["scales"]
NET_Q = hc.quantize(NET.weights["fc2.weight"], "int4-g32")
KEPT = TINY > 0
X_LIST = W64.tolist()


def hessian() -> Any:
    found = hc.ptq.Hessian(32)
    found.add(W64, W)
    return found


def dense(value: Any) -> Any:
    with hc.use(blas="own"):
        return hc.linear(value, WEIGHTS)


CALLS: dict[str, Callable[[], Any]] = {
    "quantize": lambda: [hc.quantize(x, "int4") for x in (TINY, TINY64, SMALL64)],
    "quantize with a pattern": lambda: [hc.quantize(x, "int4+2:4") for x in (TINY, TINY64, SMALL64)],
    "quantize by a learned codebook": lambda: hc.quantize(TINY, "cb3", importance=np.abs(TINY)),
    "quantize with clipping": lambda: [hc.quantize(TINY, "int4", clip=c) for c in (0.3, "octav", "percentile:80")],
    "fake_quantize": lambda: [hc.fake_quantize(x, "int4-g16") for x in (TINY, TINY64, SMALL64)],
    "dequantize": lambda: [Q.dequantize(), Q.dequantize(np.float64), np.asarray(Q, np.float64)],
    "error": lambda: [hc.error(TINY, Q), hc.error(ROOTS64, np.zeros_like(ROOTS64)), hc.error(TINY64, SMALL64)],
    "matmul": lambda: [hc.matmul(ONES, Q.T), hc.matmul(ONES, Q.T, activations="int8"), hc.matmul(Q, TINY.T)],
    "linear": lambda: [hc.linear(ONES, Q, bias) for bias in (BIAS, BIAS64)],
    "linear of floats": lambda: [hc.linear(ONES, w, b) for w in (TINY, Q) for b in (BIAS, None)],
    "linear of floats here": lambda: dense(TINY),
    "conv2d": lambda: hc.conv2d(IMAGE, np.ones((8, 4, 3, 3), np.float32), SMALL64[0, :8]),
    "conv2d_outer": lambda: hc.conv2d_outer(IMAGE, np.ones((8, 4, 3, 3), np.float32), bias=BIAS, counts=True),
    "encode_bitmap": lambda: [hc.encode_bitmap(TINY), np.asarray(hc.encode_bitmap(TINY), np.float64)],
    "prune": lambda: [hc.prune(x, p) for x in (TINY, SMALL64) for p in ("2:4", "50%", "global:30%", "block:2x2:50%")],
    "prune_mask": lambda: [hc.prune_mask(TINY, p, scores=-np.abs(SMALL64)) for p in ("1:4", "50%", "global:50%")],
    "from_mask": lambda: hc.SparseArray.from_mask(SMALL64, hc.prune_mask(TINY, "2:4"), "2:4"),
    "sparse arrays": lambda: [hc.prune(TINY, "2:4").mask, hc.prune(TINY, "2:4").to_dense(np.float64)],
    "permute_channels": lambda: [hc.permute_channels(x, "2:4") for x in (TINY, SMALL64)],
    "wanda": lambda: [hc.scores.wanda(TINY, ONES), hc.scores.wanda(ONES, TINY), hc.scores.wanda(SMALL64, ONES)],
    "sparsegpt": lambda: hc.scores.sparsegpt(TINY, np.eye(32) * 2),
    "codebook_gradient": lambda: [hc.codebook_gradient(x, CODES) for x in (TINY, ONES[:1].repeat(8, 0), SMALL64)],
    "codebook_step": lambda: hc.codebook_step(CODES, CODES.components["codebook"], 0.25),
    "code_storage": lambda: hc.code_storage(CODES),
    "encode_eie": lambda: [hc.encode_eie(x) for x in (FEW, FEW64, SMALL64)],
    "encode_eie with a codebook": lambda: hc.encode_eie(FEW, EIE_CODEBOOK64),
    "EIE arrays": lambda: [
        EIE.to_dense(np.float64),
        np.asarray(EIE, np.float64),
        EIE.mask,
        EIE.load_balance(SMALL64[0]),
    ],
    "EIE products": lambda: [hc.linear(x, EIE, BIAS) for x in (ONES, SMALL64, SMALL64.repeat(2, 0), LARGE64.T)],
    "emulate.matmul": lambda: [
        hc.emulate.matmul(hc.quantize(ONES, "int8"), Q.T),
        hc.emulate.matmul(hc.quantize(ONES, "log4-1"), LINES.T, accumulator="float64"),
        hc.emulate.matmul(ONES64, SMALL64.T, accumulator="fp32"),
        hc.emulate.matmul(hc.quantize(ONES, "vsq4-g16"), hc.quantize(TINY, "vsq4-g16-s4").T),
    ],
    "emulate.linear": lambda: hc.emulate.linear(ONES, Q, BIAS64, "int8"),
    "emulate.conv2d": lambda: hc.emulate.conv2d(IMAGE, np.ones((2, 4, 3, 3), np.float32), BIAS[:2], emulate="fp32"),
    "study": lambda: [
        {key: value for key, value in row.items() if key != "seconds"}
        for row in hc.study({"w": SMALL64, "v": TINY}, formats=["int4", "2:4"]).table
    ],
    "a network": lambda: NET.forward(NET.weights, NET_X),
    "evaluate": lambda: NET.evaluate({**NET.weights, "fc2.weight": NET_Q}),
    "scale search": lambda: [
        hc.quantize(x, fmt, clip="search") for x in (W, TINY64) for fmt in ("int4-g16", "vsq4-g16")
    ],
    "facts": lambda: [
        (q.bits_per_value, repr(q), q._repr_html_()) for q in (Q, CODES, LINES, EIE, hc.encode_bitmap(FEW))
    ],
    "parts": lambda: [(q.scales_expanded(), q.scales_expanded(np.float64), q.minima_expanded()) for q in (Q, LINES)],
    "code_storage of many codes": lambda: [hc.code_storage(hc.quantize(W, fmt)) for fmt in ("cb3", "int4", "nf4-g64")],
    "conv2d_outer counts": lambda: [
        (counts.utilization, counts.speedup) for counts in [hc.conv2d_outer(IMAGE, ONES_33, counts=True)[1]]
    ],
    "training.fake_quantize": lambda: [
        (y, back(W)) for y, back in [hc.training.fake_quantize(W, "int4-g16", clip=c) for c in (None, 0.7, "octav")]
    ],
    "training of scales": lambda: [
        (y, back(W)) for y, back in [hc.training.fake_quantize(W, "int4-g16", scale=W_SCALES)]
    ],
    "sr_ste": lambda: [hc.training.sr_ste(TINY, W, KEPT, 0.37), hc.training.sparsity_at(0.1, -0.3, 1.7, 0.77, 2.9)],
    "max_pool2d": lambda: [hc.layers.max_pool2d(IMAGE, 2), hc.layers.max_pool2d(-IMAGE, 2)],
    "lists": lambda: [hc.linear(X_LIST, Q), hc.error(X_LIST, np.float64(X_LIST)), hc.kl_divergence(W, TINY)],
    "ptq": lambda: [
        hc.ptq.gptq(W, hessian(), "int4-g16"),
        hc.ptq.error(W, hc.quantize(W, "int4"), hessian()),
        hc.ptq.rescale(W, hessian(), "int4"),
        hc.ptq.hadamard(W),
        hc.ptq.bound(W, "int4", hessian()),
        hessian().mean,
    ],
    "ptq.search": lambda: hc.ptq.search({"w": W, "v": W64}, ["int2", "int4", "int8"], {"bits": 6}).table,
    "ptq.quantize": lambda: hc.ptq.quantize({"w": W}, lambda weights: hc.linear(W64, weights["w"]), "int3").table,
    "a mask": lambda: mask_of(hc.quantize(TINY, "int8+2:4")),
    "systolic arrays": lambda: [hw.systolic.simulate(x, LARGE64, 4, 4) for x in (TINY64, TINY)],
}


def plain(value: Any) -> Any:
    """Convert a result to bytes, strings and containers of them, which compare bitwise."""
    if isinstance(value, (hc.QuantizedArray, hc.EIEArray, hc.BitmapArray)):
        return plain(dict(value.components))
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.shape, value.tobytes()
    if isinstance(value, float):
        return value.hex()
    if dataclasses.is_dataclass(value):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else repr(value)


@pytest.mark.parametrize("mode", FLOAT_MODES)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.sweep(every=12)
def test_answers_stay(name: str, mode: str) -> None:
    expected = plain(CALLS[name]())
    with float_mode(mode):
        found = CALLS[name]()
    assert plain(found) == expected


@pytest.mark.parametrize("mode", FLOAT_MODES)
@pytest.mark.sweep(every=4)
def test_random_calls(mode: str) -> None:
    """Draw random formats, patterns, dtypes and magnitudes, including those that are subnormal or overflow."""
    draw = np.random.default_rng(list(FLOAT_MODES).index(mode))
    for _ in range(40):
        fmt, clip = draw.choice(FORMATS), (None, 0.5, "octav", "percentile:90", "search")[draw.integers(5)]
        pattern = draw.choice(["2:4", "1:4", "50%", "global:30%", "block:2x2:50%"])
        dtype = draw.choice(["float16", "float32", "float64"])
        size = 2.0 ** draw.integers(-24 if dtype == "float16" else -145, 2)
        w = (draw.standard_normal((int(draw.integers(1, 9)), 64)) * size).astype(dtype)
        x = draw.standard_normal((3, 64)) * 2.0 ** draw.integers(-40, 20)

        def calls(w: Any = w, x: Any = x, fmt: str = fmt, clip: Any = clip, pattern: str = pattern) -> Any:
            found: list[Any] = []
            for call in (
                lambda: hc.quantize(w, fmt, clip=clip),
                lambda: hc.fake_quantize(w, fmt),
                lambda: hc.error(w, hc.quantize(w, fmt)),
                lambda: hc.linear(x, hc.quantize(w, fmt)),
                lambda: hc.linear(x, hc.quantize(w, fmt), activations="int8"),
                lambda: (hc.prune(w, pattern), hc.prune_mask(w, pattern)),
                lambda: hc.scores.wanda(w, x),
                lambda: hc.linear(x, hc.encode_eie(w)),
                lambda: hc.emulate.matmul(x, w.T, accumulator="fp32"),
            ):
                try:
                    found.append(call())
                except ValueError as error:
                    found.append(str(error))
            return found

        expected = plain(calls())
        with float_mode(mode):
            answers = calls()
        assert plain(answers) == expected, (fmt, clip, pattern, dtype, size)


@pytest.mark.parametrize("mode", FLOAT_MODES)
def test_functions_of_the_user_keep_the_users_setting(mode: str) -> None:
    def setting() -> tuple[float, ...]:
        one, third, tiny = np.float32([1]), np.float32([3]), np.float32([1e-40])
        return float((one / third)[0]), float((-one / third)[0]), float((tiny * third)[0])

    seen: list[tuple[float, ...]] = []

    def evaluate(weights: Any) -> float:
        seen.append(setting())
        hc.linear(W, weights["w"])
        seen.append(setting())
        return 0.5 + 0.001 * len(seen)

    def progress(*_: Any) -> None:
        seen.append(setting())

    def broken(weights: Any) -> float:
        seen.append(setting())
        raise ZeroDivisionError

    usual = setting()
    with float_mode(mode):
        expected = setting()
        hc.study({"w": W}, formats=["int4"], evaluate=evaluate, progress=progress)
        hc.study_density({"w": W}, ["50%"], evaluate=evaluate, progress=progress)
        hc.ptq.search({"w": W}, ["int4", "int8"], {"bits": 9}, evaluate=evaluate, progress=progress)
        hc.ptq.quantize({"w": W}, evaluate, "int4", progress=progress)
        with pytest.raises(ZeroDivisionError):
            hc.study({"w": W}, formats=["int4"], evaluate=broken)
        seen.append(setting())
    assert expected != usual and len(seen) > 20 and set(seen) == {expected}
    assert setting() == usual


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.sweep(every=3)
def test_every_format_counts_subnormals(fmt: str) -> None:
    expected = hc.quantize(TINY, fmt), hc.fake_quantize(TINY64, fmt), hc.quantize(TINY, fmt).dequantize(np.float64)
    with flushing():
        found = hc.quantize(TINY, fmt), hc.fake_quantize(TINY64, fmt), hc.quantize(TINY, fmt).dequantize(np.float64)
    assert plain(found) == plain(expected)


def test_files_are_read_alike(tmp_path: Path) -> None:
    from heterocompute.files.checkpoint import inspect

    path = tmp_path / "w.safetensors"
    save(path, {"tiny": TINY, "q": Q, "eie": EIE})
    expected = inspect(path), dict(hc.load(path))
    with flushing():
        found = inspect(path), dict(hc.load(path))
    assert plain(found) == plain(expected)
    q = hc.quantize(ONES, "int8")
    q.components["scales"][1, 0] = -1e-40
    save(path, q)
    with flushing(), bad_argument(ValueError, None, "file", "negative"):
        hc.load(path)


def test_a_value_that_pruning_left_out_is_seen() -> None:
    after, kept = np.float32([1, 1e-40]), np.array([True, False])
    with flushing(), bad_argument(ValueError, "retrain", "value"):
        _check_zeros({"w": after}, {"w": kept}, "50%")


def test_the_setting_of_the_thread_comes_back() -> None:
    with flushing():  # it checks the environment on entry and exit
        for wrong in (lambda: hc.prune(np.float32([np.nan]), "50%"), lambda: hc.scores.wanda(ONES, TINY[:, :3])):
            with pytest.raises(ValueError, match="prune: w has nan|wanda: w has 32 inputs"):
                wrong()
            assert not (TINY * np.float32(2)).any()
    assert (TINY * np.float32(2)).any()


def test_other_threads_keep_theirs() -> None:
    """The bits belong to a thread: one thread flushes, another one does not."""
    found: dict[str, Any] = {}
    barrier = threading.Barrier(2, timeout=HANG)

    def work(name: str) -> None:
        for _ in range(20):
            found[name] = plain([hc.prune(TINY, "50%"), hc.scores.wanda(TINY, ONES), hc.quantize(TINY, "int4")])
            barrier.wait()

    def flush() -> None:
        with flushing():
            work("flushing")

    with flushing():
        pass  # or skips here, where pytest sees it
    threads = [threading.Thread(target=flush), threading.Thread(target=work, args=("plain",))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (
        found["flushing"]
        == found["plain"]
        == plain([hc.prune(TINY, "50%"), hc.scores.wanda(TINY, ONES), hc.quantize(TINY, "int4")])
    )


def test_generators_are_refused() -> None:
    with pytest.raises(AssertionError):
        float_env.counts_subnormals(lambda: (yield))


def test_threads_of_the_blas_begin_without_it() -> None:
    """If the bits are set before the first matmul, the threads of OpenBLAS do not inherit them."""
    with flushing():
        pass
    tests = str(Path(__file__).parents[1])
    code = f"""
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from common import flushing
import heterocompute as hc
x = np.full((512, 512), 2.0**-140, np.float32)
with hc.use(threads=2, blas='auto'), flushing():
    y = hc.linear(x, np.ones((512, 512), np.float32))
assert (y == np.float32(2.0**-131)).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)
