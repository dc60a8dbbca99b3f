"""Write docs/hardware-silicon.svg and the table of docs/hardware-silicon.md: python docs/figures/hardware_silicon.py

Measured accuracy of the built-in network against the modelled energy and area of a multiply-add.
"""

from __future__ import annotations

from math import log10
from typing import Any

from runner import DOCS, fill, table as markdown

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.report.chart import Chart, Dot, outline, picture as whole, text
from heterocompute.report.palette import FAMILIES, family
from heterocompute.report.scale import Scale, logarithmic

PAGE, PICTURE = DOCS / "hardware-silicon.md", DOCS / "hardware-silicon.svg"
PAIRS = [
    ("int8", "int8"), ("int6", "int8"), ("int4", "int8"), ("int3", "int8"), ("int2", "int8"), ("int4", "int4"),
    ("int4-g16", "int8"),
    ("vsq4-g16-s4", "int8"), ("vsq3-g16-s4", "int8"), ("vsq2-g16-s4", "int8"), ("vsq4-g16-s4", "vsq4-g16-s4"),
    ("fp8_e4m3fn", "fp8_e4m3fn"), ("mxint8", "mxint8"), ("mxfp8_e4m3", "mxfp8_e4m3"), ("mxfp4", "mxfp8_e4m3"),
    ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"), ("cb4", "fp16"), ("cb3", "fp16"), ("nf4-g64", "fp16"),
    ("log8-8", "log8-8"), ("log5-2", "int8"), ("log4-1", "int8"),
]  # fmt: skip
SHARED = 256  # products of two log numbers that share a conversion; such a pair has its own row
WIDTH, HEIGHT, TOP, SIZE = 860, 400, 62, 13
FLOOR = 0.004  # the smallest error rate that is drawn; the axis is logarithmic in the error rate
PERCENTS = (99.5, 99, 95, 90, 50)
# Points that get a name if there is room, in the order of priority.
NAMED = (
    "fp32 x fp32", "int8 x int8", "int4 x int4", "vsq2-g16-s4 x int8", "int2 x int8", "int3 x int8", "nvfp4 x nvfp4",
    "int4-g16 x int8", "cb3 x fp16", "log4-1 x int8", "nf4-g64 x fp16", "mxfp4 x mxfp4", "log8-8 x log8-8",
)  # fmt: skip


def measure() -> list[dict[str, Any]]:
    """Return one row per pair of formats: accuracy on the held-out digits, pJ and um2."""
    net = hc.zoo.digits()
    found = [{"weights": "fp32", "activations": "fp32", "accuracy": net.accuracy(net.weights),
              "cost": hw.mac("fp32", "fp32", 32)}]  # fmt: skip
    matrices = [name for name, w in net.weights.items() if w.ndim >= 2]
    for weights, activations in PAIRS:
        packed = dict(net.weights)
        for name in matrices:
            axis = (2, 3, 1) if packed[name].ndim == 4 else -1
            packed[name] = hc.quantize(net.weights[name], weights, axis=axis)
        accuracy = net.accuracy(packed, activations=activations)
        found.append({"weights": weights, "activations": activations, "accuracy": accuracy,
                      "cost": hw.mac(weights, activations)})  # fmt: skip
        if weights == activations == "log8-8":
            shared = hw.mac(weights, activations, log_sharing=SHARED)
            found.append({**found[-1], "cost": shared, "note": f", {SHARED} products a conversion"})
    return found


def table(rows: list[dict[str, Any]]) -> str:
    base = next(row["cost"] for row in rows if row["weights"] == row["activations"] == "int8")
    lines = []
    for row in rows:
        cost = row["cost"]
        pair = (row["weights"], row["activations"])
        energy, area = (
            f"{100 * (getattr(cost, key) / getattr(base, key) - 1):+.0f} %" if hw.ranked(*pair, by=by) else "not ranked"
            for by, key in (("energy", "energy_pj"), ("area", "area_um2"))
        )
        names = [row["weights"], f"{row['activations']}{row.get('note', '')}", f"{row['accuracy']:.4f}"]
        lines.append([*names, f"{cost.energy_pj:.4f}", f"{cost.area_um2:.0f}", energy, area])
    heads = ["weights", "activations", "accuracy", "pJ", "um^2", "energy to int8", "area to int8"]
    return markdown(heads, lines)


def errors() -> Scale:
    """Return the axis of accuracies: logarithmic in the error rate, with few errors at the top."""
    span = -log10(FLOOR)

    def position(accuracy: float) -> float:
        return 0.03 + 0.82 * -log10(max(1 - accuracy, FLOOR)) / span

    def accuracy(share: float) -> float:
        return 1 - float(10.0 ** (-(share - 0.03) / 0.82 * span))

    return Scale(position, accuracy, [(percent / 100, f"{percent:g} %") for percent in PERCENTS])


def picture(rows: list[dict[str, Any]]) -> str:
    """Return two panels: accuracy against energy and against area, on logarithmic scales."""
    height = HEIGHT + TOP
    lines = [
        text(4, 18, "Accuracy on held-out digits, by the format of the weights", weight=600),
    ]
    across = 12.0
    for mark in dict.fromkeys(FAMILIES[family(row["weights"])] for row in rows):
        lines.append(f'<path d="{outline(mark, across, 41, 5)}" fill="{mark.color}"/>')
        lines.append(text(across + 12, 46, mark.words))
        across += 44 + 8 * len(mark.words)
    for panel, (key, label) in enumerate(
        [("energy_pj", "pJ a multiply-add, 45 nm"), ("area_um2", "um2 a lane, 45 nm")]
    ):
        dots = []
        for row in rows:
            name, value = f"{row['weights']} x {row['activations']}", getattr(row["cost"], key)
            hint = f"{name}: {row['accuracy']:.1%}, {value:.3g}"
            dots.append(Dot(value, row["accuracy"], FAMILIES[family(row["weights"])], name, name, hint=hint))
        names = [dot.name for dot in dots]
        x = logarithmic([dot.x for dot in dots], pad=0.08)
        chart = Chart(x, errors(), WIDTH // 2, HEIGHT, label, "accuracy", size=SIZE, standalone=True)
        chart.dots, chart.named = dots, [names.index(name) for name in NAMED]
        parts = chart.inside()
        lines += [f'<g transform="translate({panel * WIDTH // 2} {TOP})">', *parts, "</g>"]
    return whole(
        WIDTH, height, "Accuracy of a digits network against energy and area of its multiply-adds", lines, SIZE
    )


def main() -> None:
    """Measure, draw, and put the table into the page."""
    rows = measure()
    PICTURE.write_text(picture(rows), encoding="utf-8")
    fill(PAGE, "table", table(rows), ("begins", "ends"))


if __name__ == "__main__":
    main()
