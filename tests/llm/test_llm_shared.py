"""One network in several threads and processes, and a file that changes while its network is used."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest

import heterocompute as hc

IDS = list(range(2, 12))


def in_threads(call: Callable[[int], None]) -> list[BaseException]:
    """Call a function in four threads that switch often, and return their exceptions."""
    raised: list[BaseException] = []

    def work(i: int) -> None:
        try:
            call(i)
        except BaseException as error:
            raised.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return raised


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_threads_read_the_weights_of_the_file(kind: str, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", "q4_0") if kind == "gguf" else made.write_folder(tmp_path / "m")
    wanted = {name: np.asarray(w) for name, w in hc.zoo.open_llm(path).weights.items()}
    for _ in range(20):
        net = hc.zoo.open_llm(path)
        names = list(net.weights)

        def read(i: int, net: Any = net, names: list[str] = names) -> None:
            for j in np.random.default_rng(i).permutation(len(names)):
                net.weights[names[j]]

        assert in_threads(read) == []
        for name, w in wanted.items():
            assert np.array_equal(np.asarray(net.weights[name]), w), name


def test_threads_get_the_results_of_one(tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0")
    wanted = hc.zoo.open_llm(path).generate(IDS, 8, kv_cache="int8"), hc.zoo.open_llm(path).perplexity(IDS)
    net = hc.zoo.open_llm(path)

    def work(i: int) -> None:
        if i % 2:
            assert np.array_equal(net.generate(IDS, 8, kv_cache="int8"), wanted[0])
        else:
            assert net.perplexity(IDS) == wanted[1]

    assert in_threads(work) == []


def test_threads_make_one_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = made.write_gguf(tmp_path / "m.gguf")
    wanted = hc.zoo.open_llm(path).tokenizer.encode(made.TEXT)
    for _ in range(5):
        tokens = hc.zoo.open_llm(path).tokenizer  # the network itself is not needed

        def encode(i: int, tokens: Any = tokens) -> None:
            assert tokens.encode(made.TEXT) == wanted

        assert in_threads(encode) == []


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_process_reads_its_own_weights(tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", "q4_0")
    wanted = hc.zoo.open_llm(path).logits(IDS)
    net = hc.zoo.open_llm(path)  # parent and child share the open file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the warning about fork with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if np.array_equal(net.logits(IDS), wanted) else 2
        finally:
            os._exit(code)
    assert np.array_equal(net.logits(IDS), wanted)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_that_is_removed_stays_readable(tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf")
    wanted = hc.zoo.open_llm(path).logits(IDS)
    net = hc.zoo.open_llm(path)
    path.unlink()
    assert np.array_equal(net.logits(IDS), wanted)


def test_a_file_that_is_cut_meanwhile_is_refused(tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf")
    net = hc.zoo.open_llm(path)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ValueError, match="cut off in tensor"):
        net.logits(IDS)


def test_a_network_that_is_dropped_closes_its_file(tmp_path: Path) -> None:
    for path in (made.write_gguf(tmp_path / "m.gguf"), made.write_folder(tmp_path / "f")):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
            net = hc.zoo.open_llm(path)
            net.logits(IDS)
            del net
            if before:
                assert len(os.listdir("/proc/self/fd")) == before
