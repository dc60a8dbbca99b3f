"""Draw docs/emulate.svg: python docs/figures/emulate.py

Layer fc1 of the built-in network on its held-out images: 599 rows of 256 activations after a ReLU, 64 filters. Left:
codes of 8 and 4 bits, against the bits of the accumulator. Right: VS-Quant, against the bits of the products of scales.
SQNR is that of the layer's output relative to float64, so that every curve ends at the error of its format.
"""

from __future__ import annotations

import numpy as np
from runner import DOCS, GRID, Axes

import heterocompute as hc
from heterocompute.report.chart import outline, picture
from heterocompute.report.palette import SERIES, Mark

WIDTH, HEIGHT, TOP_DB = 760, 340, 50.0
PANELS = [
    Axes(left, right, 82, HEIGHT - 52, x=bits, y=(0, TOP_DB))
    for left, right, bits in ((56, 386, (6, 20)), (460, 744, (2, 12)))
]
CODES = [
    ("int8", "int8", "sat", "8 bits, saturates"),
    ("int8", "int8", "wrap", "8 bits, wraps"),
    ("int4", "int4", "sat", "4 bits, saturates"),
]
SCALES = [
    ("vsq4u-g16-s6", "vsq4-g16-s6", "4-bit codes, 6-bit scales"),
    ("vsq4u-g16-s4", "vsq4-g16-s4", "4-bit codes, 4-bit scales"),
    ("vsq8u-g64-s8", "vsq8-g64-s8", "8-bit codes, 8-bit scales"),
]


def layer() -> tuple[np.ndarray, np.ndarray]:
    """Return the operands of fc1."""
    net = hc.zoo.digits()
    x = net.test_x
    for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 2)):
        x = np.maximum(hc.conv2d(x, net.weights[f"{name}.weight"], net.weights[f"{name}.bias"], stride, 1), 0)
    return x.reshape(len(x), -1), net.weights["fc1.weight"]


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{words}</text>'


def curve(axes: Axes, row: int, words: str, points: dict[int, float]) -> list[str]:
    """Return a curve, its marks and its entry in the legend."""
    mark: Mark = SERIES[row]
    places = [axes.place(bits, max(decibel, 0)) for bits, decibel in points.items()]
    path = " ".join(f"{x},{y}" for x, y in places)
    look = f'fill="none" stroke="{mark.color}" stroke-width="2"'
    x, y = axes.left, 32 + 15 * row
    key = [f'<path d="M{x} {y}h24" {look}/>', text(x + 32, y + 4, words)]
    found = [f'<path d="{outline(mark, x, y, 4)}" fill="{mark.color}"/>' for x, y in [*places, (x + 12.0, float(y))]]
    return [f'<polyline points="{path}" {look}/>', *key, *found]


def main() -> None:
    """Measure and draw."""
    x, w = layer()
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    lines = [
        text(12, 20, "SQNR of layer fc1, dB", 'font-weight="600"'),
    ]
    titles = ("bits of the accumulator", "bits of a product of scales")
    for axes, title in zip(PANELS, titles, strict=True):
        lines.append(text((axes.left + axes.right) / 2, HEIGHT - 10, title, 'text-anchor="middle"'))
        for decibel in range(0, int(TOP_DB) + 1, 10):
            _, y = axes.place(axes.x[0], decibel)
            lines.append(f'<line x1="{axes.left}" y1="{y}" x2="{axes.right}" y2="{y}" {GRID}/>')
            lines.append(text(axes.left - 8, y + 4, f"{decibel}", 'text-anchor="end"'))
        for bits in range(axes.x[0], axes.x[1] + 1, 2):
            at, y = axes.place(bits, 0)
            lines.append(text(at, y + 20, f"{bits}", 'text-anchor="middle"'))
    for row, (a, b, kind, words) in enumerate(CODES):
        left, right = hc.quantize(x, a), hc.quantize(w, b).T
        found = {n: hc.emulate.matmul(left, right, f"int{n}-{kind}") for n in range(6, 21)}
        points = {n: hc.error(exact, y).sqnr_db for n, y in found.items()}
        print(f"{a} {kind}", {n: round(decibel, 1) for n, decibel in points.items()})
        lines += curve(PANELS[0], row, words, points)
    for row, (a, b, words) in enumerate(SCALES):
        left, right = hc.quantize(x, a), hc.quantize(w, b).T
        found = {n: hc.emulate.matmul(left, right, "int40-sat", scale_product_bits=n) for n in range(2, 13)}
        points = {n: hc.error(exact, y).sqnr_db for n, y in found.items()}
        print(b, {n: round(decibel, 1) for n, decibel in points.items()}, hc.error(exact, left @ right).sqnr_db)
        lines += curve(PANELS[1], row, words, points)
    title = "SQNR of a layer against the width of its accumulator and of its products of scales"
    (DOCS / "emulate.svg").write_text(picture(WIDTH, HEIGHT, title, lines))


if __name__ == "__main__":
    main()
