"""Print every format of the package's examples, some with patterns, in the form that the runner here reads.

Formats of sentences are left out: their records come from Python. The command `kernels` has a dozen of its own.
"""

from __future__ import annotations

import heterocompute as hc

PATTERNS = """1:2 2:4 1:4 3:4 2:8 4:8 1:8 3:8 1:16 5:7 16:32
int8+2:4 int8+1:2 int8+4:8 int8+1:4 int8+2:8 int16+2:4 int4+2:4 int4-g32+2:4 vsq8-g16+2:8 log8-8+2:4 nf4-g64+2:4
vsq4-g16-s4+2:4 vsq4-g32-s4+2:4 vsq4-g64-s8+4:8 vsq4-g16-s4+1:4 fp8_e4m3fn+2:4 mxfp4+2:4""".split()

for text in [*(text for family in hc.Format.families() for text in family.examples), *PATTERNS]:
    fmt = hc.format(text)
    pattern = (fmt.n, fmt.m) if isinstance(fmt, hc.Sparse) else (0, 0)
    base = fmt.base if isinstance(fmt, hc.Sparse) else fmt
    if base.core_family != "own":
        print(text, *pattern, base.family, *base.core_params())
