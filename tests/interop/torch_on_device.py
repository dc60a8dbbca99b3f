"""Tensors that stand in for those of a PyTorch with CUDA, in the memory of the fake driver's two devices.

A function of PyTorch's CPU that touched the memory of a stand-in would end the process. Its methods compute on copies.
Its memory comes from one block per device, as PyTorch's does inside of a capture.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "cuda"))
import driven

from heterocompute import _heterocompute as core
from heterocompute.interop.torch import operators

STREAM = 5


class Pool:
    """Memory of a device that tensors are cut from. `room`: what is left for a test of what happens without it."""

    def __init__(self, number: int, nbytes: int) -> None:
        self.number, self.nbytes, self.used, self.room = number, nbytes, 0, nbytes
        self.address = core.cuda_allocate(number, STREAM, nbytes)

    def take(self, nbytes: int) -> int:
        whole = -(-max(nbytes, 1) // 512) * 512
        if whole > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        at = self.address + self.used
        self.used, self.room = self.used + whole, self.room - whole
        assert self.used <= self.nbytes
        return at


pools: dict[int, Pool] = {}


def number_of(address: int) -> int:
    return next((one.number for one in pools.values() if 0 <= address - one.address < one.nbytes), 0)


class Tensor(torch.Tensor):
    """A tensor on a CUDA device."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: torch.device("cuda", number_of(self.data_ptr())))  # type: ignore[assignment]
    is_cuda, is_cpu = True, False

    def get_device(self) -> int:
        return int(self.device.index)

    def new_empty(self, *shape: Any, dtype: Any = None) -> Tensor:
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return made(tuple(sizes), dtype or self.dtype, self.device.index)

    def at_home(self) -> torch.Tensor:
        with torch.no_grad():
            plain = self.as_subclass(torch.Tensor)
            found = torch.empty(plain.untyped_storage().nbytes(), dtype=torch.uint8)
        core.cuda_copy(self.device.index, STREAM, plain.untyped_storage().data_ptr(), found.numpy(), False)
        return found.view(self.dtype).as_strided(self.shape, self.stride(), self.storage_offset())

    def moved(self, name: str, *arguments: Any) -> Tensor:
        given = [one.at_home() if isinstance(one, Tensor) else one for one in arguments]
        return there(getattr(self.at_home(), name)(*given), self.device.index)

    def cpu(self) -> torch.Tensor:
        return self.at_home().clone()

    def copy_(self, source: Any, *_: Any) -> Tensor:
        values = (source.at_home() if isinstance(source, Tensor) else source).to(self.dtype).contiguous()
        core.cuda_copy(self.device.index, STREAM, self.data_ptr(), values.reshape(-1).view(torch.uint8).numpy(), True)
        torch._C._increment_version((self,))
        return self

    def clone(self, *_: Any, **__: Any) -> Tensor:
        return there(self.at_home(), self.device.index)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.clone()

    def detach(self) -> Tensor:
        return super().detach().as_subclass(Tensor)

    def contiguous(self) -> Tensor:
        return self if self.is_contiguous() else there(self.at_home(), self.device.index)

    def reshape(self, *shape: Any) -> Tensor:
        return super().reshape(*shape).as_subclass(Tensor)

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        return f"a tensor of {self.dtype} {tuple(self.shape)} on {self.device}"

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(index).as_subclass(Tensor)

    def resolve_neg(self) -> Tensor:
        return self

    def to(self, *to: Any) -> Any:
        place = to[0]
        if isinstance(place, torch.dtype):
            return self if place == self.dtype else self.moved("to", place)
        place = torch.device(place)
        if place == self.device:
            return self
        return self.cpu() if place.type == "cpu" else there(self.at_home(), place.index or 0)


for name in ("matmul", "index_select", "__add__", "isnan", "any", "masked_fill"):
    setattr(Tensor, name, lambda self, *more, name=name: self.moved(name, *more))


def made(shape: tuple[int, ...], dtype: Any, number: int = 0) -> Tensor:
    count = int(np.prod(shape)) * dtype.itemsize
    memory = (ctypes.c_char * max(count, 1)).from_address(pools[number].take(count))
    flat = torch.frombuffer(memory, dtype=torch.uint8, count=count) if count else torch.empty(0, dtype=torch.uint8)
    return flat.view(dtype).reshape(shape).as_subclass(Tensor)


def there(t: Any, number: int = 0) -> Tensor:
    """Return a tensor with the values of one on the CPU."""
    values = t.detach().contiguous()
    answer = made(tuple(values.shape), values.dtype, number)
    if values.numel():
        core.cuda_copy(number, STREAM, answer.data_ptr(), values.reshape(-1).view(torch.uint8).numpy(), True)
    return answer


def move(module: Any, number: int | None = 0) -> Any:
    """Move a module to a device, as `to` does with a PyTorch that has CUDA, or to the CPU."""

    def moved(t: Any) -> Any:
        if isinstance(t, Tensor):
            return t.to("cpu" if number is None else f"cuda:{number}")
        if isinstance(t, torch.nn.Parameter) and number is not None:
            return there(t, number)
        return t if number is None else there(t, number) if t.numel() else t

    for part in module.modules():
        if hasattr(part, "operands"):
            part._apply(moved)
        else:
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    part._parameters[name] = moved(parameter)
    return module


def using(monkeypatch: pytest.MonkeyPatch) -> Iterator[driven.Driver]:
    """Use the fake driver, and a PyTorch that has its tensors."""
    driven.of_the_fake_driver("tensors that stand in for those of PyTorch")
    driver = driven.used(monkeypatch)
    monkeypatch.setattr(operators, "PLAIN", (*operators.PLAIN, Tensor))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: type("Stream", (), {"cuda_stream": STREAM}))
    plain = torch.Tensor.to

    def to(self: Any, *places: Any, **more: Any) -> Any:
        place = places[0] if places else None
        if isinstance(place, (str, torch.device)) and torch.device(place).type == "cuda":
            return there(self, torch.device(place).index or 0)
        return plain(self, *places, **more)

    monkeypatch.setattr(torch.Tensor, "to", to)
    pools.update({number: Pool(number, 1 << 22) for number in range(2)})
    yield driver
    for pool in pools.values():
        core.cuda_free(pool.number, STREAM, pool.address)
    pools.clear()
