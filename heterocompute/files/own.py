"""The layout of this package: safetensors with the components of packed arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..arrays.layout import Entry
from ..base.errors import WrongValue
from ..base.tensors import Tensors
from .layouts import scaled
from .layouts.layout import Layout, Target
from .layouts.weight import Weight, of_packed
from .roles import is_turned, roles_of
from .safetensors import contents, entries, read_array


class Own(Layout):
    name = "heterocompute"
    is_own = True
    has_several = True
    keeps = ()

    def recognizes(self, reader: Tensors) -> bool:
        return bool(entries(reader)[0])

    def weights(self, reader: Tensors) -> tuple[list[str], dict[str, Callable[[], Weight]]]:
        held = dict(contents(reader, entries(reader)[0]))
        axes = roles_of(reader, {name: (entry or reader.info(name)).shape for name, entry in held.items()}).axes
        return list(held), {
            name: partial(_weight, reader, name, entry, is_turned(axes.get(name), entry.shape))
            for name, entry in held.items()
            if entry is not None
        }

    def check(self, name: str, shape: tuple[int, ...], target: Target) -> None:
        if isinstance(target, scaled.Blocks):
            raise WrongValue(f"no format here has the scales of {target}")


def _weight(reader: Tensors, name: str, entry: Entry, turned: bool) -> Weight:
    return of_packed(read_array(reader, name, entry), turned, str(entry.format))


OURS = Own()
