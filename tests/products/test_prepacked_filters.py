"""Prepacked float filters: bitwise the results of the filters themselves, for every algorithm, ISA and group."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.products.conv import prepared

NAMES = ["auto", *(name for name, _, _ in core.conv_algorithms())]
# n, c, h, w, filters, size of the filters, groups
CASES = [
    (1, 5, 4, 4, 260, 3, 1),  # enough panels that each is multiplied by all tiles
    (2, 8, 12, 9, 34, 3, 2),
    (1, 3, 10, 20, 33, 5, 1),
    (1, 17, 6, 5, 40, 1, 1),
    (1, 6, 5, 7, 6, 3, 6),
]


@pytest.mark.parametrize("isa", isas("direct", "winograd"))
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sweep(every=2)
def test_prepacked_filters_have_the_bits_of_the_filters(case: Any, isa: str) -> None:
    n, c, h, w, k, size, groups = case
    x, filters, bias = reals((n, c, h, w), 1), reals((k, c // groups, size, size), 2), reals((k,), 3)
    ready = hc.prepack(filters)
    for algorithm in NAMES:
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                arguments: Any = {"padding": 1, "groups": groups, "algorithm": algorithm, "relu": True}
                try:
                    wanted = hc.conv2d(x, filters, bias, **arguments)
                except ValueError:
                    continue
                assert same_bits(hc.conv2d(x, ready, bias, **arguments), wanted), algorithm


def test_it_packs_once_for_each_kind_and_is_read_from_then_on() -> None:
    x, filters = reals((1, 16, 9, 9), 1), reals((40, 16, 3, 3), 2)
    ready = hc.prepack(filters)
    assert ready.nbytes == 0 and ready.isa == () and ready.version == hc.__version__
    sizes = []
    for algorithm in ("direct", "direct", "winograd4", "implicit"):
        hc.conv2d(x, ready, algorithm=algorithm)
        sizes.append(ready.nbytes)
    assert sizes[0] >= filters.nbytes and sizes == [sizes[0], sizes[0], 5 * sizes[0], 5 * sizes[0]]
    was_scalar = ready.isa == ("scalar",)
    with hc.use(isa="scalar"):
        hc.conv2d(x, ready, algorithm="direct")
        assert ready.isa == tuple(core.isa_names(runtime.run()[0]))
    assert ready.nbytes > sizes[-1] or was_scalar
    hc.conv2d(x[:0], hc.prepack(filters[:0]))


def test_panels_are_read_and_not_the_filters() -> None:
    """The panels do not follow later changes of the source, which shows that they are read."""
    x, filters = reals((1, 16, 9, 9), 1), reals((40, 16, 3, 3), 2)
    for algorithm in ("direct", "winograd2", "winograd4", "winograd6", "fft"):
        ready = hc.prepack(filters)
        wanted = hc.conv2d(x, ready, algorithm=algorithm)
        ready.source.flags.writeable = True
        ready.source[...] = 0
        assert same_bits(hc.conv2d(x, ready, algorithm=algorithm), wanted)


def test_it_is_an_array_to_everyone_else_and_travels() -> None:
    x, filters = reals((2, 16, 6, 6), 1), reals((5, 16, 3, 3), 2)
    given = filters.copy()
    ready = hc.prepack(given)
    given[...] = 0  # it is a copy
    assert same_bits(np.asarray(ready), filters) and not ready.source.flags.writeable
    assert (ready.shape, ready.ndim, ready.dtype) == (filters.shape, 4, np.float32) and "5, 16, 3, 3" in repr(ready)
    wanted = hc.conv2d(x, filters)
    for other in (pickle.loads(pickle.dumps(ready)), copy.deepcopy(ready), hc.prepack(ready)):
        assert other.nbytes == 0 and same_bits(hc.conv2d(x, other), wanted) and other.nbytes > 0
    assert same_bits(hc.conv2d(x, ready, activations="int8"), hc.conv2d(x, filters, activations="int8"))
    half = filters.astype(np.float16)
    assert same_bits(hc.conv2d(x, hc.prepack(half)), hc.conv2d(x, half))
    assert hc.explain(hc.conv2d, x, ready).chosen == hc.explain(hc.conv2d, x, filters).chosen
    dy = np.ones_like(wanted)
    assert same_bits(hc.conv2d_backward_input(dy, ready, (6, 6)), hc.conv2d_backward_input(dy, filters, (6, 6)))


def test_threads_may_pack_at_once() -> None:
    x, filters = reals((1, 16, 9, 9), 1), reals((64, 16, 3, 3), 2)
    ready, wanted, found = hc.prepack(filters), hc.conv2d(x, filters), []
    threads = [threading.Thread(target=lambda: found.append(hc.conv2d(x, ready))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(same_bits(y, wanted) for y in found)


def test_what_it_refuses() -> None:
    with bad_argument(ValueError, "w", "shape"):
        hc.prepack(np.ones((2, 3), np.float32))
    for wrong in (None, "int8", 3.0):
        with bad_argument(TypeError, "w", "type"):
            hc.prepack(wrong)  # type: ignore[call-overload]
    with bad_argument(ValueError, "winograd4", "value"):
        hc.conv2d(reals((1, 2, 9, 9)), hc.prepack(reals((3, 2, 5, 5))), algorithm="winograd4")
    with pytest.raises(TypeError, match="panels are not a dict"):
        core.conv2d(*prepared("conv2d", reals((1, 2, 9, 9)), reals((3, 2, 5, 5))).core, [])


def test_transforms_of_one_convolution_do_not_serve_another() -> None:
    """Tiles of the Fourier transform depend on the image, the stride and the dilation."""
    filters = reals((9, 4, 5, 5), 2)
    ready, sizes = hc.prepack(filters), set()
    for size, stride, dilation in ((9, 1, 1), (70, 1, 1), (70, 2, 1), (70, 1, 3), (9, 1, 1)):
        x = reals((1, 4, size, size + 1), 1)
        arguments: Any = {"stride": stride, "dilation": dilation, "padding": 4, "algorithm": "fft"}
        assert same_bits(hc.conv2d(x, ready, **arguments), hc.conv2d(x, filters, **arguments))
        sizes.add(ready.nbytes)
    assert len(sizes) > 2


@pytest.mark.parametrize("isa", isas("gemm_s8", "depthwise"))
@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_depthwise_reads_the_panels_of_products(isa: str, size: int) -> None:
    """Any step of the matmul's kernel: 64 values for AMX, 4 for the others."""
    x = reals((1, 70, 11, 10), 1)
    for text in ("int8", "vsq4-g16-s4"):
        q = hc.quantize(reals((70, 1, size, size), 2), text, axis=(2, 3, 1))
        arguments: Any = {"activations": "int8", "groups": 70, "padding": size // 2, "algorithm": "depthwise"}
        with hc.use(isa="scalar"):
            wanted = hc.conv2d(x, q, **arguments)
        with hc.use(isa=isa):
            assert same_bits(hc.conv2d(x, hc.prepack(q), **arguments), wanted)


@pytest.mark.parametrize("isa", isas("direct", "winograd", "gemm_s8"))
def test_integers_keep_their_transforms(isa: str) -> None:
    x = reals((1, 34, 9, 10), 1)
    for text, groups in (("int8", 1), ("vsq4-g16-s4", 2)):
        q = hc.quantize(reals((70, 34 // groups, 3, 3), 2), text, axis=(2, 3, 1))
        arguments: Any = {"activations": "int8", "groups": groups, "padding": 1}
        with hc.use(isa=isa):
            ready, sizes = hc.prepack(q), []
            for algorithm in ("direct", "winograd2", "winograd4", "winograd4", "auto"):
                wanted = hc.conv2d(x, q, **arguments, algorithm=algorithm)
                for threads in (1, 2):
                    with hc.use(threads=threads):
                        assert same_bits(hc.conv2d(x, ready, **arguments, algorithm=algorithm), wanted), algorithm
                sizes.append(ready.nbytes)
            assert sizes[0] < sizes[1] < sizes[2] == sizes[3]
            for component in ready.source.components.values():
                component.flags.writeable = True
                component[...] = 0
            assert same_bits(hc.conv2d(x, ready, **arguments, algorithm="winograd4"), wanted)
            assert pickle.loads(pickle.dumps(ready)).nbytes < ready.nbytes
