"""Compare random cases with the oracle for some seconds; exit with 1 and a small reproducer at the first difference.

python tests/oracle/run.py --seconds 30             a new seed, which is printed
python tests/oracle/run.py --seed 7                 the same cases again, on a machine with the same instruction sets
python tests/oracle/run.py --seed 7 --case 123      that one alone
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

if __name__ == "__main__":  # the folder above, so that the files of this one are a package
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from oracle import arrays, convolve, multiply
from oracle.draw import isas

KINDS = [arrays, multiply, convolve]
SHARES = [0.5, 0.33, 0.17]


def difference(kind, case) -> str | None:
    """Return a description of the difference."""
    try:
        kind.check(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrink(kind, case):
    """Return a smaller case with any difference."""
    for candidate in kind.smaller(case):
        if difference(kind, candidate):
            return shrink(kind, candidate)
    return case


def describe(case) -> str:
    lines = []
    for name, value in case.items():
        if isinstance(value, np.ndarray):
            shown = value.tolist() if value.size <= 32 else f"{value.ravel()[:8].tolist()} ..."
            value = f"{value.dtype.name}{value.shape} {shown}"
        lines.append(f"  {name}: {value}")
    return "\n".join(lines)


def run_case(seed: int, number: int, masks: list[str]) -> tuple[str, str | None]:
    """Return the kind of a case, and None or the difference with the command that reproduces it."""
    rng = np.random.default_rng([seed, number])
    kind = KINDS[int(rng.choice(len(KINDS), p=SHARES))]
    name = kind.__name__.rpartition(".")[2]
    case = kind.draw(rng, masks)
    found = difference(kind, case)
    if found is None:
        return name, None
    small = shrink(kind, case)
    return name, (
        f"oracle: {name} differs, case {number} of seed {seed}\n  {found}\nmade smaller:\n  {difference(kind, small)}\n"
        f"{describe(small)}\nagain: python tests/oracle/run.py --seed {seed} --case {number}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cases", type=int, help="so many instead of seconds")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--all", action="store_true", help="go on after a difference")
    options = parser.parse_args(arguments)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    masks, count, failed = isas(), Counter(), 0
    print(f"oracle: seed {seed}, {' '.join(masks)}", flush=True)
    first = options.case or 0
    last = first + 1 if options.case is not None else options.cases
    end = time.monotonic() + options.seconds
    number = first
    while number < last if last is not None else time.monotonic() < end:
        name, report = run_case(seed, number, masks)
        count[name] += 1
        number += 1
        if report:
            failed += 1
            print(report, flush=True)
            if not options.all:
                return 1
    print("oracle: " + ", ".join(f"{n} of {name}" for name, n in count.items()) + (", the same" if not failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
