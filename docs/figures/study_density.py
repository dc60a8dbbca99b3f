"""Write docs/study-density.svg and print its table: python docs/figures/study_density.py (two minutes)

`python docs/figures/study_density.py --draw` measures nothing: it draws the table of study.md.

The digits network at decreasing densities, with convolutions and linear layers pruned separately: accuracy after
pruning, and after 20 epochs of training with a fixed mask.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

from runner import DOCS, table

import heterocompute as hc

PICTURE = DOCS / "study-density.svg"
EPOCHS, BASE = 20, 0.9950  # the accuracy of the unpruned network
KINDS = ("convolution", "linear")


def stored() -> hc.DensityStudy:
    """Return the study of the table in study.md."""
    base = {"layers": None, "structure": None, "pattern": None, "retrained": None, "density": 1.0, "accuracy": BASE}
    rows: list[dict[str, Any]] = [base]
    words = (DOCS / "study.md").read_text(encoding="utf-8")
    for line in re.findall(r"^\| ((?:\d+%|\d+:\d+) \| 0\.\d+ \| .*) \|$", words, re.MULTILINE):
        pattern, density, *cells = line.replace("*", "").split(" | ")
        keys = [(kind, after) for kind in KINDS for after in (None, True)]
        for (kind, after), cell in zip(keys, cells, strict=True):
            structure = "unstructured" if pattern.endswith("%") else "N:M"
            rows.append({"layers": kind, "structure": structure, "pattern": pattern, "retrained": after,
                         "density": float(density), "accuracy": float(cell)})  # fmt: skip
    return hc.DensityStudy(rows, ["accuracy"], 0.005)


def main() -> None:
    """Measure, draw, and print the table of the page."""
    if sys.argv[1:] == ["--draw"]:
        stored().to_svg(PICTURE)
        return
    net = hc.zoo.digits()
    r = hc.study_density(net, retrain=functools.partial(net.retrain, epochs=EPOCHS))
    r.to_svg(PICTURE)
    found = {(row["layers"], row["pattern"], row["retrained"]): row for row in r.table}
    marked = {(row["layers"], row["pattern"], row["retrained"]) for row in r.lowest}
    titles = [f"{kind}{after}" for kind in KINDS for after in ("", ", retrained")]
    lines = []
    for pattern in dict.fromkeys(row["pattern"] for row in r.table[1:]):
        cells = []
        for key in ((kind, pattern, after) for kind in KINDS for after in (None, True)):
            text = f"{found[key]['accuracy']:.4f}"
            cells.append(f"**{text}**" if key in marked else text)
        density = found[KINDS[1], pattern, None]["density"]
        lines.append([pattern, f"{density:.3f}", *cells])
    print(table(["pattern", "density", *titles], lines))
    print(r)


if __name__ == "__main__":
    main()
