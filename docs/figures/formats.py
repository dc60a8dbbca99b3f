"""Draw the picture of each family in docs/formats/ but `log`: python docs/figures/formats.py

SQNR of the built-in network's weights as bars, each with the stored bits per value.
"""

from __future__ import annotations

from runner import DOCS

import heterocompute as hc
from heterocompute.report.chart import picture
from heterocompute.report.palette import FAMILIES

PICTURES = {
    "int": [
        "int8", "int7", "int6", "int5", "int4", "int3", "int2", "int4-asym", "int4-g16", "int4-g16-f16", "int4-g32",
        "int4-g32-f16", "int4-g32-asym-f16", "int4-g128",
    ],
    "vsq": [
        "vsq4-g16", "vsq4-g16-s4", "vsq4-g16-s6", "vsq4-g16-s8", "vsq4-g16-s4-tensor", "vsq4-g16-s4-refit",
        "vsq4-g32-s4", "vsq4-g64-s8", "vsq3-g16-s4", "vsq2-g16-s4", "vsq6-g16-s6", "vsq8-g64-s8", "int4", "int4-g16",
    ],
    "codebook": [
        "cb1", "cb2", "cb3", "cb4", "cb5", "cb4-tensor", "cb3-tensor", "cb2-tensor", "cb4-g64", "cb4-g64-tensor",
        "int2", "int3", "int4", "vsq4-g16-s4",
    ],
    "nf4": ["nf4-g64", "nf4-g64-dq", "nf4-g32", "nf4-g16", "int4", "int4-g64", "cb4-g64", "vsq4-g16-s4", "mxfp4"],
    "float": [
        "tf32", "fp16", "bf16", "int8", "fp8_e4m3fn", "fp8_e4m3fn-row", "fp8_e5m2", "fp8_e5m2-row", "int6",
        "fp6_e2m3-row", "fp6_e3m2-row", "int4", "fp4_e2m1-row", "fp4_e2m1-tensor",
    ],
    "mx": [
        "mxint8", "mxfp8_e4m3", "mxfp8_e4m3-rceil", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxfp4-ceil",
        "mxfp4-rceil", "mxfp4-even",
    ],
    "nvfp4": ["nvfp4", "nvfp4-4over6", "mxfp4", "vsq4-g16-s4", "int4-g16", "int4-g32", "int4", "fp4_e2m1-row"],
}  # fmt: skip
WIDTH, LEFT, RIGHT, TOP, STEP = 760, 150, 130, 36, 24


def bars(texts: list[str]) -> str:
    """Return the picture of these formats, best first, in the colours of their families."""
    rows = [row for row in hc.study(hc.zoo.digits().weights, texts).table if row["format"] in texts]
    rows.sort(key=lambda row: -row["sqnr_db"])
    height, top_db = TOP + STEP * len(rows) + 8, max(row["sqnr_db"] for row in rows)
    lines = [
        '<text x="8" y="20" font-weight="600">SQNR of the digits network\'s weights, dB; bits per value</text>',
    ]
    for i, row in enumerate(rows):
        y, length = TOP + i * STEP, round(row["sqnr_db"] / top_db * (WIDTH - LEFT - RIGHT), 1)
        color = FAMILIES.get(hc.format(row["format"]).family, FAMILIES["other"]).color
        lines += [
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{row["format"]}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{length}" height="18" fill="{color}"/>',
            f'<text x="{LEFT + length + 8}" y="{y + 14}">{row["sqnr_db"]:.1f} dB, {row["bits"]:.2f}</text>',
        ]
    return picture(WIDTH, height, "SQNR of the digits network's weights by format", lines)


if __name__ == "__main__":
    for name, texts in PICTURES.items():
        (DOCS / "formats" / f"{name}.svg").write_text(bars(texts))
