"""Write docs/hardware-roofline.svg: networks under the roof of an H100. python docs/figures/hardware_rooflines.py"""

from __future__ import annotations

from math import log10
from pathlib import Path

from heterocompute import hardware as hw

PICTURE = Path(__file__).resolve().parents[1] / "hardware-roofline.svg"
DEVICE, DTYPE = "h100-sxm", "fp16"
# Label, network, tokens at hand, batch, format of the weights, place of the label beside its point.
POINTS = [
    ("resnet50, batch 1", "resnet50", None, 1, None, (10, 16)),
    ("resnet50, batch 256", "resnet50", None, 256, None, (10, 16)),
    ("bert_base, batch 1", "bert_base", None, 1, None, (-10, -2)),
    ("bert_base, batch 64", "bert_base", None, 64, None, (10, 14)),
    ("llama_7b, a token", "llama_7b", 1024, 1, None, (10, 14)),
    ("llama_7b, a token, int4-g128-f16", "llama_7b", 1024, 1, "int4-g128-f16", (10, 14)),
    ("llama_7b, 64 tokens at once", "llama_7b", 0, 64, None, (-10, -2)),
]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 360, 64, 24, 40, 52
X, Y = (0.5, 4000.0), (1.0, 2000.0)


def place(intensity: float, tera: float) -> tuple[float, float]:
    x = LEFT + (log10(intensity) - log10(X[0])) / (log10(X[1]) - log10(X[0])) * (WIDTH - LEFT - RIGHT)
    y = HEIGHT - BOTTOM - (log10(tera) - log10(Y[0])) / (log10(Y[1]) - log10(Y[0])) * (HEIGHT - TOP - BOTTOM)
    return round(x, 1), round(y, 1)


def picture() -> str:
    """Return the picture."""
    chip = hw.device(DEVICE)
    peak, bandwidth = chip.peak(DTYPE) / 1e12, chip.need("bandwidth") / 1e12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12" fill="#7d8590">',
        "<title>Networks under the roofline of an H100</title>",
        f'<text x="{LEFT}" y="20" font-weight="600">H100 SXM, fp16: 10^12 operations/s at most</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">operations a byte of DRAM traffic</text>',
    ]
    roof = [place(X[0], X[0] * bandwidth), place(peak / bandwidth, peak), place(X[1], peak)]
    points = " ".join(f"{x},{y}" for x, y in roof)
    lines.append(f'<polyline points="{points}" fill="none" stroke="#7d8590" stroke-width="2"/>')
    for value in (1, 10, 100, 1000):
        x, y = place(value, Y[0])
        lines.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{value}</text>')
        x, y = place(X[0], value)
        lines.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{value}</text>')
    for label, name, context, batch, fmt, (right, down) in POINTS:
        network = hw.networks[name] if context is None else hw.networks[name].decoding(context)
        found = hw.roofline(network, chip, DTYPE, fmt, batch)
        x, y = place(found.intensity, found.operations / found.seconds / 1e12)
        color = "#3b82f6" if found.bound == "memory" else "#d9822b"
        lines.append(f'<circle cx="{x}" cy="{y}" r="4.5" fill="{color}"/>')
        anchor = "start" if right > 0 else "end"
        lines.append(
            f'<text x="{x + right:.1f}" y="{y + down:.1f}" text-anchor="{anchor}" fill="{color}">{label}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
