"""Check the docstrings of all public objects by numpydoc's rules: python docs/site/validate.py

A function needs a summary that begins with a verb and ends with a period, its parameters, its return value, and an
example. A class needs a summary. Fields of a class that only the package constructs are listed as attributes.
"""

from __future__ import annotations

import inspect
import sys

from numpydoc.validate import validate
from reference import public_objects

FUNCTION = {"GL08", "SS03", "SS05", "PR01", "PR02", "RT01", "EX01"}
CLASS = {"GL08", "SS03"}


def main() -> int:
    """Print the faults, and return their number."""
    found, objects = [], list(public_objects())
    for path, one in objects:
        rules = CLASS if inspect.isclass(one) else FUNCTION
        errors = validate(f"{one.__module__}.{one.__qualname__}")["errors"]
        found += [f"{path}: {code} {message}" for code, message in errors if code in rules]
    print("\n".join(found) or f"{len(objects)} public objects: no flaw")
    return len(found)


if __name__ == "__main__":
    sys.exit(min(main(), 100))
