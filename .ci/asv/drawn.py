"""The calls of `heterocompute bench drawn` as benchmarks of asv: cd .ci/asv && asv run

One benchmark is one call that a seed draws from the layers of networks, of one kind, in one thread. Equal seeds give
equal calls, so that asv compares commits.
"""

from __future__ import annotations

from itertools import islice

from heterocompute.base.runtime import use
from heterocompute.bench.drawn import DRAWS, draws
from heterocompute.bench.measure import Options

CALLS = 8  # of each kind


class Drawn:
    """A drawn call, by kind and number."""

    param_names = ("kind", "call")
    params = (sorted({"conv", "matmul", "gradients", "layers", "codecs", "sparse"} & set(DRAWS)), list(range(CALLS)))
    timeout = 120

    def setup(self, kind: str, number: int) -> None:
        """Draw the call, check its result, and run it once."""
        options = Options(quick=False, threads=[1], kind=kind)
        _, self.call = next(islice(draws(kind, options, 1), number, None))
        with use(threads=1):
            self.call.check()

    def time_call(self, kind: str, number: int) -> None:
        """Run the call."""
        with use(threads=1):
            self.call.run()
