"""Print every format of the package's examples as the runner of this folder reads them."""

from __future__ import annotations

import heterocompute as hc

for family in hc.Format.families():
    for text in family.examples:
        fmt = hc.format(text)
        print(text, fmt.family, *fmt.core_params())
