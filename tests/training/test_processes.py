"""Rounding in other processes: workers of a data loader, forked or spawned, and two processes that train together."""

from __future__ import annotations

import multiprocessing
import socket

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc

W = reals((64, 256), 3)


def rounded(seed):
    """Round enough values for all threads: a child must not wait for the pool of its parent."""
    with hc.use(threads=2):
        y, back = hc.training.fake_quantize(W, "int4-g32", clip=0.5, rounding="stochastic", seed=seed)
        return y, back(W)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_round_as_their_parent_does(start):
    wanted = rounded(5)  # the parent has threads now
    with multiprocessing.get_context(start).Pool(1) as pool:
        found = pool.apply_async(rounded, (5,)).get(60)
    assert same_bits(found[0], wanted[0]) and same_bits(found[1], wanted[1])


class Rounded:
    """A data set whose items are rounded when they are read."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return hc.training.fake_quantize(W, "int4", rounding="stochastic", seed=i)[0]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader(start):
    torch = pytest.importorskip("torch")
    hc.fake_quantize(W, "int4")
    loader = torch.utils.data.DataLoader(Rounded(), batch_size=3, num_workers=2, multiprocessing_context=start)
    found = torch.cat(list(loader)).numpy()
    assert all(same_bits(found[i], Rounded()[i]) for i in range(6))


def trained(rank, port, found):
    import torch

    from heterocompute.interop import torch as ht

    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.manual_seed(0)
    layer = torch.nn.parallel.DistributedDataParallel(ht.QuantLinear(256, 8, "int4-g32", clip=0.9))
    step = torch.optim.SGD(layer.parameters(), 0.01)
    for _ in range(3):
        step.zero_grad()
        layer(torch.from_numpy(W[32 * rank : 32 * rank + 32])).square().mean().backward()
        step.step()
    found.put((rank, layer.module.weight.detach().numpy()))
    torch.distributed.destroy_process_group()


def test_two_processes_train_one_layer():
    torch = pytest.importorskip("torch")
    from heterocompute.interop import torch as ht

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    processes = [context.Process(target=trained, args=(rank, port, found)) for rank in range(2)]
    for process in processes:
        process.start()
    weights = dict(found.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0] and same_bits(weights[0], weights[1])
    torch.manual_seed(0)
    alone = ht.QuantLinear(256, 8, "int4-g32", clip=0.9)
    step = torch.optim.SGD(alone.parameters(), 0.01)
    for _ in range(3):
        step.zero_grad()
        alone(torch.from_numpy(W)).square().mean().backward()
        step.step()
    assert np.allclose(weights[0], alone.weight.detach().numpy(), rtol=1e-4, atol=1e-6)


X = reals((2, 3, 8, 64), 5)


def reduced(rank, port, found):
    import torch

    from heterocompute.interop import torch as ht

    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    for how in ("nearest", "stochastic"):
        recipe = hc.training.Recipe(weights="bf16", all_reduce="int4-g8", rounding={"all_reduce": how})
        torch.manual_seed(0)
        net = torch.nn.parallel.DistributedDataParallel(ht.train_in(torch.nn.Linear(64, 16), recipe))
        opt = ht.optimizer_in(torch.optim.SGD(net.parameters(), 0.01), recipe)
        ht.reduce_in(net, opt)
        for step in range(3):
            opt.zero_grad()
            net(torch.from_numpy(X[rank, step])).square().mean().backward()
            gradient = net.module.weight.grad.numpy().copy()
            opt.step()
            found.put((how, rank, step, gradient, net.module.weight.detach().numpy().copy()))
    torch.distributed.destroy_process_group()


def test_workers_round_their_parts_of_the_gradient():
    torch = pytest.importorskip("torch")
    from heterocompute.interop import torch as ht

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=reduced, args=(rank, port, queue)) for rank in range(2)]
    for process in processes:
        process.start()
    found = {tuple(one[:3]): one[3:] for one in (queue.get(timeout=300) for _ in range(12))}
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    for how in ("nearest", "stochastic"):
        for step in range(3):
            assert all(same_bits(a, b) for a, b in zip(found[how, 0, step], found[how, 1, step], strict=True))
    torch.manual_seed(0)
    net = ht.train_in(torch.nn.Linear(64, 16), hc.training.Recipe(weights="bf16"))
    parts = []
    for rank in range(2):
        net.zero_grad()
        net(torch.from_numpy(X[rank, 0])).square().mean().backward()
        parts.append(net.weight.grad.numpy().copy())
    rounded_parts = [hc.fake_quantize(g, "int4-g8") for g in parts]
    assert same_bits(found["nearest", 0, 0][0], (rounded_parts[0] + rounded_parts[1]) / np.float32(2))
    by_chance = found["stochastic", 0, 0][0]
    assert not same_bits(by_chance, found["nearest", 0, 0][0])
    assert np.abs(by_chance - (parts[0] + parts[1]) / 2).max() < max(np.abs(g).max() for g in parts) / 7
