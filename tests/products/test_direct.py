"""Matmuls of plain arguments use the direct path, with the bits, errors and reference counts of the general path."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.products import matmul as module


def reals(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each matmul used the direct path."""
    taken: list[bool] = []
    at_once = module._direct

    def noted(*arguments: Any) -> Any:
        answer = at_once(*arguments)
        taken.append(answer is not None)
        return answer

    monkeypatch.setattr(module, "_direct", noted)
    hc.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))  # looks for a BLAS
    taken.clear()
    return taken


def long_way(monkeypatch: pytest.MonkeyPatch, call: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_direct", lambda *arguments: None)
        return call()


W, X = reals((24, 32), 1), reals((9, 32), 2)
Q = {name: hc.quantize(W, name) for name in ("int8", "vsq4-g16-s4", "nf4-g64", "fp8_e4m3fn", "int8-g16-asym")}
Q |= {"prepacked": hc.prepack(Q["vsq4-g16-s4"]), "2:4": hc.prune(W, "2:4"), "int8+2:4": hc.quantize(W, "int8+2:4")}


@pytest.mark.parametrize("name", Q)
@pytest.mark.parametrize("activations", [None, "int8", hc.format("vsq4-g16-s4")])
@pytest.mark.parametrize("rows", [(), (1,), (9,), (2, 3), (2, 1)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.sweep(every=5)
def test_packed_weights_have_the_bits_of_the_long_way(name, activations, rows, dtype, short, monkeypatch) -> None:
    q, bias = Q[name], reals((24,), 3)
    x = np.resize(X, (*rows, 32)).astype(dtype)
    calls = [
        lambda: hc.linear(x, q, activations=activations),
        lambda: hc.linear(x, q, bias, activations),
        lambda: hc.linear(x, q, bias, activations, out=np.full((*rows, 24), np.nan, np.float32)),
        lambda: hc.matmul(x, q.T, activations),
    ]
    if name == "2:4" and activations is not None:  # no integers
        calls = calls[:1]
    for call in calls:
        call()
        short.clear()
        found = call()
        assert short == [True]
        assert same_bits(found, long_way(monkeypatch, call))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 3), (3, 4)), ((7, 5, 3), (3, 4)), ((7, 5, 3), (7, 3, 4)),
        ((1, 5, 3), (7, 3, 4)), ((2, 1, 5, 3), (7, 3, 4)), ((3,), (7, 3, 4)), ((7, 5, 3), (3,)), ((6, 1, 3), (3, 4)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("blas", ["openblas", "own"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_products_broadcast_as_the_long_way(a, b, blas, dtype, short, monkeypatch) -> None:
    # Small integers: exact in any order.
    x, w = (np.random.default_rng(4).integers(-9, 9, shape).astype(dtype) for shape in (a, b))
    turned = [(x, w), (np.asfortranarray(x), np.asfortranarray(w)), (x[..., ::-1], w), (x, w[..., ::-1])]
    if blas == "openblas" and hc.show_config(mode="dicts")["blas"] == "none, own kernels":  # type: ignore[index]
        pytest.skip("no BLAS here")
    with hc.use(blas=blas):
        for left, right in turned:
            found = hc.matmul(left, right)
            assert same_bits(found, np.asarray(np.matmul(left, right), np.float32))
            assert same_bits(found, long_way(monkeypatch, lambda left=left, right=right: hc.matmul(left, right)))
        assert short[0]


def test_integers_on_both_sides(short, monkeypatch) -> None:
    x = hc.quantize(X, "int8")
    for q in (Q["int8"], Q["prepacked"]):
        assert same_bits(hc.linear(x, q), long_way(monkeypatch, lambda q=q: hc.linear(x, q)))
    assert short == [True, True]


def test_settings_reach_the_short_way(short) -> None:
    with hc.use(path="gemm"), bad_argument(ValueError, None, "unsupported", "'gemm'"):
        hc.linear(X[:1], Q["int8"])
    with hc.use(isa="scalar", threads=1):
        one = hc.linear(X, Q["vsq4-g16-s4"], activations="int8")
    assert same_bits(one, hc.linear(X, Q["vsq4-g16-s4"], activations="int8"))


class Derived(hc.QuantizedArray):
    pass


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hc.linear(X, Q["int8"].T), ValueError, "x has 32 features but w has 24 columns"),
        (lambda: hc.linear(X, W, bias=np.ones(3, np.float32)), ValueError, r"bias has shape \(3,\), expected \(24,\)"),
        (lambda: hc.linear(X, W, bias=np.ones(24, np.int8)), TypeError, "bias has dtype int8"),
        (lambda: hc.matmul(X, W), ValueError, "matmul: b has 24 rows but a has 32 columns"),
        (lambda: hc.matmul(X, W.T, activations="int8"), ValueError, "neither operand is quantized"),
        (lambda: hc.matmul(X, Q["int8"].T, activations=["int8"]), TypeError, "expected a format or its text"),
        (lambda: hc.matmul(X, Q["int8"].T, activations="int99"), ValueError, "int99"),
        (lambda: hc.linear(X.astype(np.int32), W), TypeError, "linear: x has dtype int32"),
        (lambda: hc.linear(X, W.astype(np.uint16)), TypeError, "linear: w has dtype uint16"),
        (lambda: hc.linear(X, W, out=np.empty((9, 24))), TypeError, "out is float64"),
        (lambda: hc.linear(X, W, out=np.empty((9, 23), np.float32)), ValueError, "out has shape"),
        (lambda: hc.linear(X, W, out=[[1.0]]), TypeError, "out is list"),
        (lambda: hc.linear(np.float32(1), W), ValueError, "x has no dimensions"),
        (lambda: hc.linear(X * np.nan, Q["int8"], activations="int8"), ValueError, r"x has nan at index \(0, 0\)"),
        (lambda: hc.linear(X, None), TypeError, "linear: w is None, expected an array of floats"),
        (lambda: hc.linear(X, W, w=W), TypeError, "multiple values for argument 'w'"),
        (lambda: hc.linear(X, W, weights=W), TypeError, "unexpected keyword argument 'weights'"),
    ],
)  # fmt: skip
def test_errors_are_those_of_the_long_way(call, error, words, monkeypatch) -> None:
    hc.matmul(W, W.T)
    with pytest.raises(error, match=words) as found:
        call()
    with pytest.raises(error) as wanted:
        long_way(monkeypatch, call)
    assert str(found.value) == str(wanted.value)


def test_an_out_that_shares_memory_is_refused() -> None:
    memory = np.zeros((40, 32), np.float32)
    memory[:] = 1
    x, w = memory[:9], memory[9:33]
    with bad_argument(ValueError, "out", "memory"):
        hc.linear(x, w, out=memory[30:39, :24])
    with bad_argument(ValueError, "out", "memory"):
        hc.linear(x, w, out=memory.reshape(-1)[8 * 32 : 8 * 32 + 9 * 24].reshape(9, 24))
    out = memory[33:].reshape(-1)[: 9 * 24].reshape(9, 24)  # next to the input, without overlap
    assert (hc.linear(x, w, out=out) == 32).all() and (x == 1).all() and (w == 1).all()
    buffer = np.zeros(9 * 24, np.float32)
    codes = buffer.view(np.uint8)[: 24 * 32].reshape(24, 32)
    q = hc.QuantizedArray({**Q["int8"].components, "codes": codes}, Q["int8"].format, (24, 32), (1,))
    for out in (buffer, buffer[::-1]):
        with bad_argument(ValueError, "out", "memory"):
            hc.linear(X, q, out=out.reshape(9, 24))
    read_only = np.zeros((9, 24), np.float32)
    read_only.flags.writeable = False
    with bad_argument(ValueError, "out", "memory"):
        hc.linear(X, W, out=read_only)


def test_subclasses_go_the_long_way(short) -> None:
    q = Q["int8"]
    derived = Derived(q.components, q.format, q.shape, q.axis)
    expected = hc.linear(X, q)
    assert same_bits(hc.linear(X, derived), expected)
    assert same_bits(hc.linear(X.view(np.matrix), q), expected)
    assert same_bits(hc.linear(np.ma.masked_array(X), q), expected)
    assert short == [True, False, False, False]


def test_what_was_seen_is_looked_at_again() -> None:
    """The owner of components may change their values, memory and shape."""
    q = hc.quantize(W, "int8")
    before = hc.linear(X, q)
    codes = q.components["codes"]
    codes[:] = -codes.view(np.int8).view(np.uint8) & 0xFF
    assert same_bits(hc.linear(X, q), -before)
    rows, columns = codes.shape
    codes.resize((rows, columns * 4096), refcheck=False)  # moves
    with pytest.raises(ValueError, match="codes has the wrong shape"):
        hc.linear(X, q)
    codes.resize((rows, columns), refcheck=False)
    codes[:] = 0
    assert (hc.linear(X, q) == 0).all()
    pruned = hc.prune(W, "2:4")
    before = hc.linear(X, pruned)
    values = pruned.components["values"]
    values *= 2
    assert same_bits(hc.linear(X, pruned), before * 2)
    values.resize((values.shape[0] * 4096, values.shape[1]), refcheck=False)
    with pytest.raises(ValueError, match="wrong shape"):
        hc.linear(X, pruned)


@pytest.mark.parametrize("name", ["int8", "prepacked", "2:4"])
def test_copies_and_pickles_see_their_own_memory(name) -> None:
    q = Q[name]
    expected = hc.linear(X, q), hc.linear(X, q, activations="int8") if name != "2:4" else None
    for made in (copy.copy(q), copy.deepcopy(q), pickle.loads(pickle.dumps(q)), q.T.T, q[:]):
        assert same_bits(hc.linear(X, made), expected[0])
    alone = copy.deepcopy(q)
    hc.linear(X, alone)
    next(part for key, part in alone.components.items() if key in ("codes", "values"))[:] = 0
    assert not same_bits(hc.linear(X, alone), expected[0]) and same_bits(hc.linear(X, q), expected[0])
    assert same_bits(hc.linear(X, q.T.T), X @ q.T) and q.T is q.T


def test_memory_of_weights_ends_with_them() -> None:
    part = np.array(Q["int8"].components["codes"])
    before = sys.getrefcount(part)
    for _ in range(3):
        q = hc.QuantizedArray({**Q["int8"].components, "codes": part}, Q["int8"].format, (24, 32), (1,))
        hc.linear(X, q)
        X @ q.T
        X @ hc.prepack(q).T
    del q
    gc.collect()
    assert sys.getrefcount(part) == before


def test_a_missing_slot_is_a_plain_error() -> None:
    q = hc.quantize(W, "int8")
    hc.linear(X, q)
    expected = hc.linear(X, q)
    del q._seen
    assert same_bits(hc.linear(X, q), expected)
    q._seen = "nothing"
    assert same_bits(hc.linear(X, q), expected)
    del q._seen, q._components
    with pytest.raises(AttributeError):
        hc.linear(X, q)


def test_threads_may_see_new_weights_at_once() -> None:
    expected, wrong = hc.linear(X, Q["int8"], activations="int8"), []
    start = threading.Barrier(4)

    def work() -> None:
        for _ in range(50):
            start.wait()
            if not same_bits(hc.linear(X, weights[0], activations="int8"), expected):
                wrong.append(1)
            if start.wait() == 0:
                weights[0] = copy.copy(Q["int8"])

    weights = [copy.copy(Q["int8"])]
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("more", [(99,), (-1,), (0, 9), (0, -1), (0, 2**70), (0, "own")])
def test_settings_that_mean_nothing_are_left_to_the_long_way(more) -> None:
    q = Q["int8"]
    hc.linear(X, q)
    run = (0, 1, *more)
    assert core.direct(run, True, X, q, None, None, None) is None
    assert core.direct(run, True, X, hc.quantize(X, "int8"), None, None, None) is None
