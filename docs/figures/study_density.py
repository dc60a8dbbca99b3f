"""Write docs/study-density.svg and print its table: python docs/figures/study_density.py (two minutes)

The digits network, pruned ever further, its convolutions and its linear layers apart: accuracy as it is then, and after
20 epochs of training with the mask fixed.
"""

from __future__ import annotations

import functools
from pathlib import Path

import heterocompute as hc

PICTURE = Path(__file__).resolve().parents[1] / "study-density.svg"
EPOCHS = 20


def main() -> None:
    """Measure, draw, and print the table of the page."""
    net = hc.zoo.digits()
    r = hc.study_density(net, retrain=functools.partial(net.retrain, epochs=EPOCHS))
    r.to_svg(PICTURE)
    found = {(row["layers"], row["pattern"], row["retrained"]): row for row in r.table}
    marked = {(row["layers"], row["pattern"], row["retrained"]) for row in r.lowest}
    kinds = ("convolution", "linear")
    titles = [f"{kind}{after}" for kind in kinds for after in ("", ", retrained")]
    print("| pattern | density | " + " | ".join(titles) + " |")
    print("|---|---|---|---|---|---|")
    for pattern in dict.fromkeys(row["pattern"] for row in r.table[1:]):
        cells = []
        for key in ((kind, pattern, after) for kind in kinds for after in (None, True)):
            text = f"{found[key]['accuracy']:.4f}"
            cells.append(f"**{text}**" if key in marked else text)
        density = found[kinds[1], pattern, None]["density"]
        print(f"| {pattern} | {density:.3f} | " + " | ".join(cells) + " |")
    print(r)


if __name__ == "__main__":
    main()
