"""Print every format of the package's examples as the runner of this folder reads them."""

from __future__ import annotations

import heterocompute as hc

for family in hc.Format.families():
    for text in family.examples:
        fmt = hc.format(text)
        pattern = (fmt.n, fmt.m) if isinstance(fmt, hc.Sparse) else (0, 0)
        base = fmt.base if isinstance(fmt, hc.Sparse) else fmt
        print(text, *pattern, base.family, *base.core_params())
