"""The opcodes of a pickle, interpreted without running anything: no import, and only calls from a table.

A pickle is a program of a stack machine, and Python's own machine calls whatever it names. Here a global is a name
until the table of the caller says what it stands for; any other is refused with a sentence, unless it is the class of a
tensor or one of its attributes, which are left out. Opcodes: CPython, Lib/pickletools.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ...base.errors import WrongValue
from ...base.texts import quoted, shortened

MAX_STEPS = 1 << 22  # a tensor takes about thirty
MAX_INTEGER = 64  # bytes
CONTAINER = 3  # more steps for a list, a dict or a set: one byte of the file takes a hundred of memory
MAX_PARTS, MAX_KEY = 16, 1024  # of a tuple that is a key, and characters of its parts
MARK: Any = object()


@dataclass(frozen=True)
class Global:
    """A name that a pickle imports, such as ``torch.FloatStorage``."""

    name: str


class Inert:
    """A value that is not a tensor; as a key of a dict it has a text that distinguishes it, or none."""

    __slots__ = ("text",)  # a pickle can create a million of them

    def __init__(self, text: str = "") -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text or "a value that is not a tensor"

    def build(self, state: object) -> None:
        """Take the state that is set on it."""


class Unknown(Inert):
    """An unknown global, or an object that it would have made: its name and the arguments."""

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.name, self.parts = name, list(parts)

    def build(self, state: object) -> None:
        """Take the state that is set on it."""
        self.parts.append(state)


class Attributes(dict[Any, Any]):
    """The attributes of an object that holds nothing else, such as argparse.Namespace."""


# The function of a name that is called with arguments, or None if the name is only a value.
Table = Mapping[str, Callable[..., Any] | None]


def unpickled(data: bytes, begin: int, table: Table, persistent: Callable[[Any], Any]) -> tuple[Any, int]:
    """Return the described object, and the position behind the pickle.

    Parameters
    ----------
    begin : int
        Where it begins.
    table : mapping of str to callable or None
        The globals that may stand there.
    persistent : callable
        Makes an object of a persistent id.

    Returns
    -------
    (object, int)

    Raises
    ------
    ValueError
        The pickle names another global, has an unknown opcode, or is cut off or too long.

    Examples
    --------
    >>> import pickle
    >>> unpickled(pickle.dumps({"a": [1, 2.5]}), 0, {}, None)[0]
    {'a': [1, 2.5]}
    >>> unpickled(pickle.dumps(print), 0, {}, None)
    Traceback (most recent call last):
    ...
    heterocompute.base.errors.WrongValue: a pickle that names builtins.print, which files of tensors do \
not need: nothing of it was run; torch.save(model.state_dict(), path) writes only the tensors of a model
    """
    machine = _Machine(data, begin, table, persistent)
    try:
        return machine.run(), machine.at
    except _Refused as error:
        raise WrongValue(str(error)) from None
    except (LookupError, TypeError, AttributeError, struct.error, ValueError, OverflowError) as error:
        raise WrongValue(f"a pickle that is cut off or broken ({shortened(str(error), 80)})") from None


class _Refused(ValueError):
    """An error with a message of this package."""


class _Machine:
    def __init__(self, data: bytes, begin: int, table: Table, persistent: Callable[[Any], Any]) -> None:
        self.data, self.at, self.table, self.persistent = data, begin, table, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.unknown: dict[int, Unknown] = {}
        self.steps = 0

    def run(self) -> Any:
        while True:
            self.spend(1)
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                (value,) = self.stack
                for unknown in self.unknown.values():
                    self.refuse(unknown)
                return value
            step = STEPS.get(code)
            if step is None:
                raise _Refused(f"a pickle with the opcode {code:#04x}, which no file of tensors needs")
            step(self)

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise _Refused(f"a pickle of more than {MAX_STEPS} steps")

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        if len(found) != count:
            raise _Refused("a pickle that is cut off")
        self.at += count
        return found

    def number(self, form: str) -> int:
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(found)

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 4096)
        if end < 0:
            raise _Refused("a pickle that is cut off")
        return self.take(end + 1 - self.at)[:-1].decode("utf-8")

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is MARK:
            raise _Refused("a pickle that takes a mark for a value")
        return value

    def since_mark(self) -> list[Any]:
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise _Refused("a pickle without a mark")

    def name(self, module: object, attribute: object) -> None:
        if not isinstance(module, str) or not isinstance(attribute, str):
            raise _Refused("a pickle that names a global by a value that is not a string")
        name = f"{module}.{attribute}"
        self.push(Global(name) if name in self.table else self.made_unknown(name))

    def refuse(self, unknown: Unknown) -> NoReturn:
        raise _Refused(
            f"a pickle that names {quoted(unknown.name)[1:-1]}, which files of tensors do not need: nothing of it was "
            "run; torch.save(model.state_dict(), path) writes only the tensors of a model"
        )

    def made_unknown(self, name: str, *parts: object) -> Unknown:
        found = Unknown(name, parts)
        self.unknown[id(found)] = found
        return found

    def leave_out(self, value: object) -> None:
        """Accept a state that is not in the table: none of it is used."""
        values, seen = [value], set()
        while values:
            self.spend(1)
            one = values.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, Unknown):
                self.unknown.pop(id(one), None)
                values += one.parts
            elif isinstance(one, dict):
                values += [*one.keys(), *one.values()]
            elif isinstance(one, (list, tuple)):
                values += one

    def call(self) -> None:
        arguments, function = self.pop(), self.pop()
        if isinstance(function, Unknown):
            self.push(self.made_unknown(function.name, function, arguments))
            return
        known = self.table.get(function.name) if isinstance(function, Global) else None
        if known is None or not isinstance(arguments, tuple):
            raise _Refused("a pickle that calls something other than a function of tensors")
        if function.name in PAIRS:
            pairs = []
            for pair in arguments[0] if arguments else ():
                self.spend(1)
                key, value = pair
                pairs.append((self.key(key), value))
            arguments = (pairs,)
        for place in LEFT_OUT.get(function.name, ()):
            self.leave_out(arguments[place : place + 1])
        made = known(*arguments)
        self.spend(CONTAINER if isinstance(made, (dict, list)) else 0)
        self.push(made)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise _Refused("a pickle that sets items of a value that is not a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[self.key(key)] = value

    def key(self, key: Any) -> Any:
        """Return a substitute for a key: hashing nested tuples would recurse, and numbers can be made to collide."""
        if isinstance(key, (str, bytes, type(None))) or (isinstance(key, int) and abs(key) < 2**60):
            return key
        if isinstance(key, (int, float, complex)):
            return self.named(str(key))
        if isinstance(key, Inert):
            return key
        flat = isinstance(key, tuple) and len(key) <= MAX_PARTS
        if flat and all(isinstance(part, (str, bytes, int, float, type(None))) for part in key):
            if sum(len(part) for part in key if isinstance(part, (str, bytes))) <= MAX_KEY:
                return self.named(str(key))
        return Inert()

    def named(self, text: str) -> Inert:
        """Return a value with a text. Its cost counts each time: a key written once may be used a million times."""
        self.spend(1 + len(text) // 8)
        return Inert(text)

    def container(self, made: object) -> None:
        self.spend(CONTAINER)
        self.push(made)

    def new_dict(self) -> None:
        items = self.since_mark()
        self.container({})
        self.set_items(items)

    def two(self) -> list[Any]:
        second = self.pop()
        return [self.pop(), second]

    def append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise _Refused("a pickle that appends to a value that is not a list")
        self.stack[-1].extend(items)

    def build(self) -> None:
        state, target = self.pop(), self.stack[-1]
        if isinstance(target, Inert):
            target.build(state)
        elif isinstance(target, Attributes):
            if isinstance(state, dict):
                self.spend(len(state))
                target.update(state)
        elif type(target) is not dict:  # attributes of a dict, such as the versions of a state_dict, are not tensors
            raise _Refused("a pickle that sets attributes of a value that is not a dict")

    def integer(self, count: int) -> None:
        if count > MAX_INTEGER:
            raise _Refused(f"a pickle with an integer of {count} bytes")
        self.push(int.from_bytes(self.take(count), "little", signed=True))

    def decimal(self, text: str) -> None:
        if len(text) > 3 * MAX_INTEGER:
            raise _Refused(f"a pickle with an integer of {len(text)} digits")
        self.push({"00": False, "01": True}.get(text) if text in ("00", "01") else int(text.removesuffix("L")))

    def tuple(self, count: int) -> None:
        items = tuple(self.pop() for _ in range(count))
        self.push(items[::-1])

    def text(self, form: str) -> None:
        self.push(self.take(self.number(form)).decode("utf-8", "surrogatepass"))

    def latin(self, form: str) -> None:
        self.push(self.take(self.number(form)).decode("latin-1"))

    def bytes(self, form: str) -> None:
        self.push(self.take(self.number(form)))


PAIRS = {"collections.OrderedDict"}  # its argument is searched for tensors
# Arguments that may be anything: the class of a tensor, its dtype, its constructor, its attributes.
LEFT_OUT = {
    "torch._utils._rebuild_tensor_v3": (6,),
    "torch.tensor._rebuild_from_type": (0, 1, 2, 3),
    "torch._tensor._rebuild_from_type": (0, 1, 2, 3),
    "torch._tensor._rebuild_from_type_v2": (0, 1, 2, 3),
    "torch._utils._rebuild_wrapper_subclass": (0,),
    "torch._utils._rebuild_parameter_with_state": (3,),
}

Step = Callable[[_Machine], Any]
STEPS: dict[int, Step] = {
    ord(code): step
    for code, step in {
        "\x80": lambda m: m.take(1),  # protocol
        "\x95": lambda m: m.take(8),  # frame
        "(": lambda m: m.push(MARK),
        "0": lambda m: m.stack.pop(),
        "1": lambda m: m.since_mark(),
        "2": lambda m: m.push(m.stack[-1]),
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "I": lambda m: m.decimal(m.line()),
        "L": lambda m: m.decimal(m.line()),
        "J": lambda m: m.push(m.number("<i")),
        "K": lambda m: m.push(m.number("<B")),
        "M": lambda m: m.push(m.number("<H")),
        "\x8a": lambda m: m.integer(m.number("<B")),
        "\x8b": lambda m: m.integer(m.number("<I")),
        "G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
        "F": lambda m: m.push(float(m.line())),
        "V": lambda m: m.push(m.line()),
        "X": lambda m: m.text("<I"),
        "\x8c": lambda m: m.text("<B"),
        "\x8d": lambda m: m.text("<Q"),
        "T": lambda m: m.latin("<I"),  # texts of Python 2
        "U": lambda m: m.latin("<B"),
        "B": lambda m: m.bytes("<I"),
        "C": lambda m: m.bytes("<B"),
        "\x8e": lambda m: m.bytes("<Q"),
        "\x96": lambda m: m.bytes("<Q"),  # a bytearray
        "]": lambda m: m.container([]),
        "\x8f": lambda m: m.container([]),  # a set
        "\x90": lambda m: m.append(m.since_mark()),
        "\x91": lambda m: m.container(m.since_mark()),  # a frozenset
        "l": lambda m: m.container(m.since_mark()),
        "a": lambda m: m.append([m.pop()]),
        "e": lambda m: m.append(m.since_mark()),
        ")": lambda m: m.push(()),
        "t": lambda m: m.push(tuple(m.since_mark())),
        "\x85": lambda m: m.tuple(1),
        "\x86": lambda m: m.tuple(2),
        "\x87": lambda m: m.tuple(3),
        "}": lambda m: m.container({}),
        "d": lambda m: m.new_dict(),
        "s": lambda m: m.set_items(m.two()),
        "u": lambda m: m.set_items(m.since_mark()),
        "c": lambda m: m.name(m.line(), m.line()),
        "\x93": lambda m: m.name(*m.two()),
        "R": lambda m: m.call(),
        "\x81": lambda m: m.call(),  # an object of a class
        "b": lambda m: m.build(),
        "p": lambda m: m.memo.__setitem__(int(m.line()[:20]), m.stack[-1]),
        "q": lambda m: m.memo.__setitem__(m.number("<B"), m.stack[-1]),
        "r": lambda m: m.memo.__setitem__(m.number("<I"), m.stack[-1]),
        "\x94": lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),
        "g": lambda m: m.push(m.memo[int(m.line()[:20])]),
        "h": lambda m: m.push(m.memo[m.number("<B")]),
        "j": lambda m: m.push(m.memo[m.number("<I")]),
        "Q": lambda m: m.push(m.persistent(m.pop())),
    }.items()
}
