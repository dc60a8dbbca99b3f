"""``python -m heterocompute`` is the command ``heterocompute``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
