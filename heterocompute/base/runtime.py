"""Settings of a call: instruction sets, threads, a BLAS. They are context-local; nothing here computes.

Without a setting, every instruction set of the machine and every processor of the process is used, and dense float32
products use our own kernels. ``HETEROCOMPUTE_ISA``, ``HETEROCOMPUTE_THREADS``,
``HETEROCOMPUTE_BLAS`` and ``HETEROCOMPUTE_ORDER`` set the same from outside; they are read at the first call, so
importing never fails.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from .cache_files import costs_file, measured_costs, use_costs
from .cached import cached
from .devices import KIND, check_device, driver_text
from .errors import WrongType, WrongValue, printable, shown
from .float_env import counts_subnormals
from .texts import one_line, shortened
from .values import check_choice

__all__ = ["get_num_threads", "set_num_threads", "show_config", "use"]

MAX_THREADS = 256  # of the pool in csrc/base/threads.h
ALL_ISA = 0xFFFF_FFFF
BLAS_FUNCTIONS = (
    "cblas_sgemm",
    "cblas_sgemv",
    "openblas_set_num_threads",
    "openblas_get_num_threads",
    "openblas_get_config",
    "openblas_get_corename",
)
CHOICES = ("auto", "openblas", "own")
BACKENDS = ("cpu", KIND)
ORDERS = ("fast", "one", "device")
OWN, OPENBLAS = (1 + number for number in range(2))  # numbers of the routes of csrc/ops/route/routes.def, plus 1
NONE, EQUAL, SLOWER = range(3)  # hc_blas_speed of csrc/hc.h


Run = tuple[int, int, int, int, bool]


@dataclass(frozen=True)
class _Settings:
    isa: int | None = None
    threads: int | None = None
    blas: str | None = None
    path: int = 0  # 1 + the path's number, those of the CPU before those of a device; 0: the plan chooses
    tuned: bool | None = None
    order: str | None = None
    device: int | None = None  # number of the device to which arrays of the CPU are copied

    @cached
    def mask(self) -> int:
        """Instruction sets; those of the environment if none are given."""
        outside = _environment()  # first: an invalid variable is an error for every value of `use`
        isa = outside.isa if self.isa is None else self.isa
        return _core.cpu_isa() if isa is None else isa

    @cached
    def one_order(self) -> bool:
        """Return True if sums have one order for every number of rows."""
        return (self.order or _environment().order) == "one"

    @cached
    def device_order(self) -> bool:
        """Return True if a device may add floats in the order of its matrix units."""
        return (self.order or _environment().order) == "device"

    @cached
    def far(self) -> Run:
        """The value of `run` for a call on a device, where threads and routes of the CPU do not matter."""
        return self.mask, 1, self.path, 0, self.one_order

    @cached
    def route(self) -> int:
        """The route of dense float32 products: 1 + the number of a route; 0: the fastest."""
        if self.one_order:
            return OWN
        choice = self.blas or _environment().blas or ("openblas" if named_blas() else "own")
        return OWN if choice == "own" or self.path else OPENBLAS if choice == "openblas" else 0


_DEFAULT = _Settings()
_settings: ContextVar[_Settings] = ContextVar("heterocompute_settings", default=_DEFAULT)
_process_threads: int | None = None


def _isa_mask(name: object, source: str) -> int:
    if not isinstance(name, str):
        raise WrongType(f"{source}: expected the name of an instruction set, got {shown(name)}")
    try:
        mask = _core.isa_mask(name)
    except ValueError:
        known = ", ".join(_core.isa_names(ALL_ISA))
        raise WrongValue(f"{source}: there is no instruction set {shown(name)}, expected one of {known}") from None
    missing = mask & ~_core.cpu_isa()
    if missing:
        lacking = ", ".join(_core.isa_names(missing)[1:])
        raise RuntimeError(f"{source}: this machine lacks {lacking}")
    return mask


def _thread_count(value: object, source: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise WrongType(f"{source}: expected a number of threads, got {shown(value)}") from None
    if not 1 <= count <= MAX_THREADS:
        raise WrongValue(f"{source}: {shown(count)} threads, expected 1 to {MAX_THREADS}")
    return count


@cache
def _environment() -> _Settings:
    """Read the environment variables, once."""
    settings = _Settings()
    if isa := os.environ.get("HETEROCOMPUTE_ISA"):
        settings = replace(settings, isa=_isa_mask(isa, "HETEROCOMPUTE_ISA"))
    if (choice := os.environ.get("HETEROCOMPUTE_BLAS")) in CHOICES:
        settings = replace(settings, blas=choice)
    if order := os.environ.get("HETEROCOMPUTE_ORDER"):
        if order not in ORDERS:
            raise WrongValue(f"HETEROCOMPUTE_ORDER: expected 'fast', 'one' or 'device', got {shown(order)}")
        settings = replace(settings, order=order)
    if threads := os.environ.get("HETEROCOMPUTE_THREADS"):
        if not threads.isdecimal() or len(threads) > 9:
            raise WrongValue(f"HETEROCOMPUTE_THREADS: expected a number of threads, got {shown(threads)}")
        settings = replace(settings, threads=_thread_count(int(threads), "HETEROCOMPUTE_THREADS"))
    if tuned := os.environ.get("HETEROCOMPUTE_TUNED"):
        if tuned not in ("0", "1"):
            raise WrongValue(f"HETEROCOMPUTE_TUNED: expected 0 or 1, got {shown(tuned)}")
        settings = replace(settings, tuned=tuned == "1")
    return settings


def set_num_threads(n: int) -> None:
    """Set the number of threads for calls of this process, unless `use` overrides it.

    Parameters
    ----------
    n : int
        1 to 256.

    Examples
    --------
    >>> import heterocompute as hc
    >>> before = hc.get_num_threads()
    >>> hc.set_num_threads(1)
    >>> hc.get_num_threads()
    1
    >>> hc.set_num_threads(before)
    """
    global _process_threads
    _process_threads = _thread_count(n, "set_num_threads")


def get_num_threads() -> int:
    """Return the number of threads that a call in this context uses.

    Returns
    -------
    int

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.get_num_threads() >= 1
    True
    """
    return _settings.get().threads or _process_threads or _environment().threads or _core.processors()


def use(
    *,
    isa: str | None = None,
    threads: int | None = None,
    blas: str | None = None,
    path: str | None = None,
    tuned: bool | None = None,
    backend: str | None = None,
    order: str | None = None,
) -> AbstractContextManager[None]:
    """Set instruction sets, threads, BLAS, paths or orders of sums inside a ``with`` block, in this context only.

    Parameters
    ----------
    isa : str, optional
        The highest instruction set to use: ``"scalar"``, ``"avx2"``, ``"avx512"``, ``"avx512vnni"`` ... Each name
        includes the sets that it builds on.
    threads : int, optional
        1 to 256.
    blas : {"auto", "openblas", "own"}, optional
        Library for dense float32 matmuls. ``"own"``, the default, uses the kernels of this package, with bitwise
        identical results on every machine and thread count. ``"openblas"`` uses OpenBLAS, and ``"auto"`` the faster of
        the two, by shape and by the processor that OpenBLAS has kernels for.
    path : str, optional
        Path that every matmul in this package's own kernels must use, by its name in `explain`. On a device it also
        holds for convolutions. ``"auto"`` is the default: the fastest path by estimate. For experiments; results are
        bitwise identical. A call that the path does not apply to raises ValueError with the reason.
    tuned : bool, optional
        Use the paths that `tune` found fastest on this machine, where measured. Results are bitwise identical, except
        for dense matmuls and for a convolution whose fastest algorithm sums in another order.
    backend : str, optional
        ``"cpu"``, or the kind of the devices that `show_config` lists. The latter copies CPU arrays to the first device
        in `quantize`, `fake_quantize`, `matmul` and `linear`, and copies the results back. An operation without a
        kernel for the device raises NotImplementedError. Arrays on a device are always computed there, with or without
        this setting.
    order : {"fast", "one", "device"}, optional
        Order of the sums of matmuls, convolutions and attention. ``"one"`` uses one order for every number of rows and
        images: a row of a batch then has the bits that it has alone. ``"fast"`` is the default: the order that is
        fastest for the shapes. ``"device"`` is ``"fast"``, except for matmuls of more than 8 rows of floats and packed
        weights on a device. The matrix units of the device compute these in their own order, from two bfloat16 for
        each value. With k columns the error is at most ``(3 * 2^-16 + (3 k + 2) * 2^-22) * (sum |x| |w| + |bias|)``.

    Returns
    -------
    context manager
        For ``with``, or as a decorator of a function. Without either the call only checks its arguments.

    Raises
    ------
    RuntimeError
        The machine does not support the instruction set.
    NotImplementedError
        A backend without kernels, driver or device.
    ValueError
        A name is unknown.

    Notes
    -----
    The settings belong to the context (`contextvars`) of the block. A thread that the block starts, and a thread of a
    pool, has the settings of the process: open the block in the function that runs there.

    Examples
    --------
    >>> import heterocompute as hc
    >>> with hc.use(isa="scalar", threads=1):
    ...     hc.get_num_threads()
    1
    """
    given = isa, threads, blas, path, tuned, backend, order
    _changed(*given)  # what is wrong is said here, not at the block
    return _used(given)


@contextmanager
def _used(given: tuple[Any, ...]) -> Iterator[None]:
    token = _settings.set(_changed(*given))
    try:
        yield
    finally:
        _settings.reset(token)


def _changed(
    isa: str | None, threads: int | None, blas: str | None, path: str | None, tuned: bool | None, backend: str | None,
    order: str | None,
) -> _Settings:  # fmt: skip
    """Return the settings of this context with those that are given to `use`."""
    settings = _settings.get()
    if isa is not None:
        settings = replace(settings, isa=_isa_mask(isa, "use: isa"))
    if threads is not None:
        settings = replace(settings, threads=_thread_count(threads, "use: threads"))
    if blas is not None:
        check_choice("use", "blas", blas, CHOICES)
        if blas == "openblas" and open_blas() is None:
            raise RuntimeError("use: no BLAS was found; install scipy-openblas32 or set HETEROCOMPUTE_BLAS")
        settings = replace(settings, blas=blas)
    if path is not None:
        of_cpu, of_device = _core.paths()
        names = ["auto", *of_cpu, *of_device]
        if path not in names:
            usual = ", ".join(names[: 1 + len(of_cpu)])
            raise WrongValue(
                f"use: there is no path {shown(path)}, expected one of {usual}, or of a device, which hc.explain lists"
            )
        settings = replace(settings, path=names.index(path))
    if tuned is not None:
        if not isinstance(tuned, (bool, np.bool_)):
            raise WrongType(f"use: tuned is {shown(tuned)}, expected a bool")
        settings = replace(settings, tuned=bool(tuned))
    if backend is not None:
        check_choice("use", "backend", backend, BACKENDS)
        settings = replace(settings, device=check_device(0, "use: backend") if backend == KIND else None)
    if order is not None:
        check_choice("use", "order", order, ORDERS)
        settings = replace(settings, order=order)
    if settings.blas == "openblas" and settings.one_order:
        raise WrongValue("use: blas is 'openblas', expected 'auto' or 'own' with order='one'")
    return settings


def run() -> Run:
    """Return (mask of instruction sets, threads, forced path, route, one order) of this context for the C core.

    0 threads means one for each processor; the core counts them when it wants to use more than one.
    """
    settings = _settings.get()
    threads = settings.threads or _process_threads or _environment().threads or 0
    return settings.mask, threads, settings.path, settings.route, settings.one_order


# what `plain_run` returned, and what it follows from: settings, those of the environment, threads of the process
_plain: tuple[_Settings | None, _Settings | None, int | None, Run | None] = None, None, None, None


def plain_run() -> Run | None:
    """Return `run` if calls stay on the CPU and use no tuned paths, otherwise None."""
    global _plain
    settings, outside = _settings.get(), _environment()
    of, outer, threads, kept = _plain  # one look: another thread may replace it
    if of is not settings or outer is not outside or threads is not _process_threads:
        threads = _process_threads
        kept = None if tuned() or settings.device is not None else run()
        _plain = settings, outside, threads, kept
    return kept


def run_on(number: int, stream: int, allocate: object = None) -> tuple[Any, ...]:
    """Return the settings of a call on a device for the C core.

    Parameters
    ----------
    allocate : True or callable, optional
        None: a call that makes packed arrays waits for invalid values. True: it does not wait. A function of a number
        of bytes returns the address of memory that the call may use, for calls that do not wait.
    """
    settings = _settings.get()
    return *settings.far, 1 + number, stream, allocate, settings.device_order


def backend_device() -> int | None:
    """Return the number of the device that `use` names; None: arrays on the CPU stay there."""
    return _settings.get().device


def one_order() -> bool:
    """Return whether `use` asks for one order of sums for every number of rows."""
    return _settings.get().one_order


def device_order() -> bool:
    """Return whether `use` lets a device add floats in the order of its matrix units."""
    return _settings.get().device_order


def tuned() -> bool:
    """Return whether calls made here use the paths that `tune` kept, unless a path is forced."""
    settings = _settings.get()
    if settings.path:
        return False
    return bool(_environment().tuned if settings.tuned is None else settings.tuned)


@dataclass(frozen=True)
class _Blas:
    text: str
    core: str  # the processor of its kernels; "" if unknown


def named_blas() -> str | None:
    """Return the value of HETEROCOMPUTE_BLAS: a path, or one of the choices."""
    value = os.environ.get("HETEROCOMPUTE_BLAS")
    return value if value and value not in CHOICES else None


@cache
@counts_subnormals  # its threads start here and inherit the mode
def open_blas() -> _Blas | None:
    """Open the BLAS for dense products, or return None if there is none."""
    path = named_blas()
    if path:
        try:
            config, core = _core.blas_open(path, *BLAS_FUNCTIONS)
        except (OSError, ValueError) as problem:  # ValueError: a null character
            raise OSError(f"HETEROCOMPUTE_BLAS: {one_line(str(problem).removeprefix('blas: '))}") from None
        return _Blas(f"{config or 'cblas_sgemm'} ({printable(shortened(path))})".strip(), core)
    try:
        import scipy_openblas32  # 30 ms
    except ImportError:
        _core.blas_open(None)
        return None
    library = os.path.join(scipy_openblas32.get_lib_dir(), scipy_openblas32.get_library(fullname=True))
    config, core = _core.blas_open(library, *(f"scipy_{name}" for name in BLAS_FUNCTIONS))
    return _Blas(config.strip(), core)


def forced_route() -> int:
    """Return the route that `use` or the environment sets for dense products; 0: the fastest."""
    return _settings.get().route


def _dense() -> str:
    """Return the path of dense float32 matmuls, and the reason."""
    settings, blas = _settings.get(), open_blas()
    if settings.route == OWN or blas is None:
        asked = settings.blas or _environment().blas
        reasons = {
            asked == "auto": "there is no BLAS",
            settings.one_order: "one order of sums",
            bool(settings.path): "a path is forced",
            asked == "own": "as asked for",
        }
        return f"own kernels ({reasons.get(True, 'the default')})"
    if settings.route == OPENBLAS:
        return "OpenBLAS (as asked for)"
    slower = _core.blas_speed(settings.mask) == SLOWER
    own = slower or "avx512" in _core.isa_names(settings.mask)
    usual = "own kernels, OpenBLAS for one or two rows" if own else "OpenBLAS, own kernels for 2 to 95 rows"
    return f"{usual} (its core is {blas.core or 'not told'})"


def _costs() -> str:
    """Return which costs choose among paths, as a text."""
    stamp = measured_costs()
    return "of this build" if stamp is None else f"of this machine, measured {stamp}: {costs_file()}"


def config() -> dict[str, Any]:
    """Return the content of `show_config`: instruction sets, threads, BLAS, costs, compiler."""
    used, blas = run()[0], open_blas()
    return {
        "isa_found": _core.isa_names(_core.cpu_isa()),
        "isa_used": _core.isa_names(used),
        "threads": get_num_threads(),
        "blas": blas.text if blas else "none, own kernels",
        "dense": _dense(),
        KIND: driver_text(),
        "costs": _costs(),
        "compiler": _core.compiler(),
        "kernels": [f"{family}_{isa}" for family, isa, needs in _core.kernels() if needs & ~used == 0],
        "formats": sorted(_core.formats()),
    }


def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Show the instruction sets found and used, threads, BLAS, costs, compiler and kernels.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        Print, the kernels as their number, or return a dict.

    Returns
    -------
    dict or None
        The dict for ``"dicts"``, otherwise None.

    Examples
    --------
    >>> import heterocompute as hc
    >>> "scalar" in hc.show_config(mode="dicts")["isa_found"]
    True
    """
    check_choice("show_config", "mode", mode, ("stdout", "dicts"))
    found = config()
    if mode == "dicts":
        return found
    found["kernels"] = f"{len(found['kernels'])}, which show_config('dicts') lists"
    for name, value in found.items():
        print(f"{name:10s} {' '.join(value) if isinstance(value, list) else value}")
    return None


def _register_threadpoolctl() -> None:
    """Make our thread pool known to threadpoolctl, if that is installed, so that it can list and limit it."""
    if find_spec("threadpoolctl") is None:
        return
    import threadpoolctl  # optional

    class Controller(threadpoolctl.LibController):  # type: ignore[misc]
        user_api = "heterocompute"
        internal_api = "heterocompute"
        filename_prefixes = ("_heterocompute",)

        def get_num_threads(self) -> int:
            return get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            set_num_threads(max(1, num_threads))

        def get_version(self) -> None:
            return None

        def set_additional_attributes(self) -> None:
            pass

    threadpoolctl.register(Controller)


_register_threadpoolctl()
use_costs()
