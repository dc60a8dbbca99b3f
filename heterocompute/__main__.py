"""Runs the command ``heterocompute`` for ``python -m heterocompute``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
