"""Write docs/hardware-silicon.svg and the table of docs/hardware-silicon.md: python docs/figures/hardware_silicon.py

Accuracy of the shipped network, measured here and now, against energy and area of a multiply-add, modelled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import heterocompute as hc
from heterocompute import hardware as hw

FOLDER = Path(__file__).resolve().parents[1]
PAGE, PICTURE = FOLDER / "hardware-silicon.md", FOLDER / "hardware-silicon.svg"
BEGIN, END = "<!-- table begins -->", "<!-- table ends -->"
PAIRS = [
    ("int8", "int8"), ("int6", "int8"), ("int4", "int8"), ("int3", "int8"), ("int2", "int8"), ("int4", "int4"),
    ("int4-g16", "int8"),
    ("vsq4-g16-s4", "int8"), ("vsq3-g16-s4", "int8"), ("vsq2-g16-s4", "int8"), ("vsq4-g16-s4", "vsq4-g16-s4"),
    ("fp8_e4m3fn", "fp8_e4m3fn"), ("mxint8", "mxint8"), ("mxfp8_e4m3", "mxfp8_e4m3"), ("mxfp4", "mxfp8_e4m3"),
    ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"), ("cb4", "fp16"), ("cb3", "fp16"), ("nf4-g64", "fp16"),
    ("log8-8", "log8-8"), ("log5-2", "int8"), ("log4-1", "int8"),
]  # fmt: skip
COLORS = {
    "int": "#8b949e", "vsq": "#3b82f6", "fp": "#d9822b", "mxf": "#2a9d5c", "mxi": "#2a9d5c", "nvf": "#2a9d5c",
    "cb": "#b0368f", "nf": "#b0368f", "log": "#c9a20b",
}  # fmt: skip
WIDTH, HEIGHT, MARGIN = 860, 330, 60
FLOOR = 0.004  # the smallest share of errors that is drawn; the scale is that of errors, logarithmic
NAMED = {
    "fp32 x fp32",
    "int8 x int8",
    "int4 x int4",
    "vsq2-g16-s4 x int8",
    "int2 x int8",
    "int3 x int8",
    "int4-g16 x int8",
}


def measure() -> list[dict[str, Any]]:
    """Return a row a pair: accuracy on the held-out digits, pJ and um2."""
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
    return found


def table(rows: list[dict[str, Any]]) -> str:
    base = next(row["cost"] for row in rows if row["weights"] == row["activations"] == "int8")
    lines = [
        "| weights | activations | accuracy | pJ | um^2 | energy to int8 | area to int8 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cost = row["cost"]
        energy = 100 * (cost.energy_pj / base.energy_pj - 1)
        area = 100 * (cost.area_um2 / base.area_um2 - 1)
        lines.append(
            f"| {row['weights']} | {row['activations']} | {row['accuracy']:.4f} | {cost.energy_pj:.4f} "
            f"| {cost.area_um2:.0f} | {energy:+.0f} % | {area:+.0f} % |"
        )
    return "\n".join(lines)


def picture(rows: list[dict[str, Any]]) -> str:
    """Two panels, energy and area to the right on a logarithmic scale, accuracy upwards."""
    from math import log10

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12" fill="#7d8590">',
        "<title>Accuracy of a digits network against energy and area of its multiply-adds</title>",
    ]
    half = WIDTH / 2
    for panel, (key, label, low, high) in enumerate(
        [("energy_pj", "pJ a multiply-add, 45 nm", 0.05, 6.0), ("area_um2", "um2 a lane, 45 nm", 60, 15000)]
    ):
        left, right, top, bottom = panel * half + MARGIN, (panel + 1) * half - 24, 48, HEIGHT - 46

        def x(value: float, left: float = left, right: float = right, low: float = low, high: float = high) -> float:
            return round(left + (log10(value) - log10(low)) / (log10(high) - log10(low)) * (right - left), 1)

        def y(value: float, top: float = top, bottom: float = bottom) -> float:
            return round(top + (log10(max(1 - value, FLOOR)) - log10(FLOOR)) / -log10(FLOOR) * (bottom - top), 1)

        for percent in (99.5, 99, 95, 90, 50):
            lines.append(f'<line x1="{left}" y1="{y(percent / 100)}" x2="{right}" y2="{y(percent / 100)}" '
                         'stroke="#7d8590" stroke-opacity="0.25"/>')  # fmt: skip
            lines.append(f'<text x="{left - 8}" y="{y(percent / 100) + 4}" text-anchor="end">{percent:g} %</text>')
        decades = (0.1, 1.0) if key == "energy_pj" else (100, 1000, 10000)
        for value in decades:
            lines.append(f'<text x="{x(value)}" y="{bottom + 18}" text-anchor="middle">{value:g}</text>')
        lines.append(f'<text x="{right}" y="{HEIGHT - 10}" text-anchor="end">{label}</text>')
        for row in rows:
            family = "".join(c for c in row["weights"][:3] if c.isalpha())
            color = COLORS.get(family, "#7d8590")
            px, py = x(getattr(row["cost"], key)), y(row["accuracy"])
            name = f"{row['weights']} x {row['activations']}"
            lines.append(f'<circle cx="{px}" cy="{py}" r="4.5" fill="{color}"><title>{name}: '
                         f'{row["accuracy"]:.1%}, {getattr(row["cost"], key):.3g}</title></circle>')  # fmt: skip
            if name in NAMED:
                place = py + (17 if row["accuracy"] < 0.993 else -9)
                lines.append(f'<text x="{px}" y="{place:.1f}" text-anchor="middle" font-size="10">{name}</text>')
    words = "grey int, blue VS-Quant, orange float, green MX and NVFP4, purple tables, yellow log"
    lines.append(f'<text x="{MARGIN}" y="18" font-weight="600">Accuracy on held-out digits: {words}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Measure, draw, and put the table into the page."""
    rows = measure()
    PICTURE.write_text(picture(rows), encoding="utf-8")
    words = PAGE.read_text(encoding="utf-8")
    before, rest = words.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
