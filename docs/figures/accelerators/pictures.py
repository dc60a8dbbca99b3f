"""One picture per family: the energy of a multiply-add, by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heterocompute.hardware import accelerators as machines
from heterocompute.hardware.accelerators import AcceleratorReport
from heterocompute.hardware.accelerators.report import PARTS
from heterocompute.hardware.accelerators.row_stationary import DATAFLOWS
from heterocompute.hardware.ledger.models.eyeriss import conv_only, on_equal_area
from heterocompute.hardware.ledger.models.layers import report
from heterocompute.hardware.ledger.models.sparse import matrices, outer_products
from heterocompute.hardware.ledger.models.vectors import on_magnet as resnet
from heterocompute.report.chart import picture as whole, text
from heterocompute.report.numbers import quantity
from heterocompute.report.palette import FAMILIES

NAMES = {  # no published machine has the other parts
    "arithmetic": "vsq", "weights": "int", "activations": "codebook", "accumulators": "nf4", "collectors": "log",
    "movement": "float", "instructions": "mixed", "DRAM": "plain",
}  # fmt: skip
COLORS = {part: FAMILIES[name].color for part, name in NAMES.items()}
WIDTH, LEFT, RIGHT, ROW, TOP, SIZE = 860, 190, 90, 30, 76, 14

Bars = list[tuple[str, AcceleratorReport, bool]]


def families() -> Iterator[tuple[str, str, Bars]]:
    """Yield name, title, and the bars: label, report, whether DRAM is shown."""
    formats = [("nvdla", "int8"), ("nvdla", "int16"), ("nvdla", "fp16"), ("tpu_v1", "int8"), ("diannao", "int16")]
    yield "dense", "ResNet-50 on chip: dense layers", [_resnet(*one) for one in formats]
    bars: Bars = [(kind, conv_only(on_equal_area(kind)), True) for kind in DATAFLOWS]
    yield "dataflows", "AlexNet's convolutions, batch 16, with DRAM: six dataflows of equal area", bars
    bars = [(f"scnn, {name}", outer_products(name), False) for name in ("alexnet_original", "vgg16", "googlenet")]
    yield (
        "zeros",
        "On chip, a multiply-add of the dense layers: zeros skipped",
        [*bars, ("eie, fc6-8", matrices(), False)],
    )
    bars = [(f"magnet {dataflow}, int8", resnet(dataflow), False) for dataflow in ("ws", "ws-los", "os-lws")]
    bars += [_resnet("magnet", "int4"), _resnet("magnet", "vsq4-g16-s4")]
    yield "vectors", "ResNet-50 on chip: vector units", [_resnet("simba", "int8"), *bars]
    found = [(name, format) for name in machines.names() if name.startswith("tensor_core")
             for format in machines.accelerator(name).formats]  # fmt: skip
    bars = [_resnet(*one) for one in (*found, ("groq_lpu", "int8"), ("groq_lpu", "fp16"))]
    yield "cores", "ResNet-50 on chip: tensor cores, and the LPU", bars


def _resnet(name: str, format: str) -> tuple[str, AcceleratorReport, bool]:
    return f"{name.replace('tensor_core_', '')} {format}", report(name, "resnet50", format), False


def picture(title: str, bars: Bars) -> str:
    """Return bars of pJ per multiply-add, by part, as SVG."""
    rows = [(label, _parts(found, dram)) for label, found, dram in bars]
    used = [part for part in PARTS if any(parts[part] for _, parts in rows)]
    most = max(sum(parts.values()) for _, parts in rows)
    height = TOP + ROW * len(rows) + 8
    lines = [
        text(4, 20, f"{title}: energy of a multiply-add", weight=600),
    ]
    across = 4.0
    for part in used:
        lines.append(f'<rect x="{across:.0f}" y="38" width="12" height="12" fill="{COLORS[part]}"/>')
        lines.append(text(across + 18, 49, part))
        across += 34 + 8 * len(part)
    for i, (label, parts) in enumerate(rows):
        y, x = TOP + ROW * i, float(LEFT)
        lines.append(text(LEFT - 10, y + 16, label, "end"))
        for part in used:
            wide = (WIDTH - LEFT - RIGHT) * parts[part] / most
            if wide >= 0.05:
                lines.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="22" fill="{COLORS[part]}"/>')
            x += wide
        lines.append(text(x + 8, y + 16, quantity(sum(parts.values()) * 1e-12, "J")))
    return whole(WIDTH, height, title, lines, SIZE)


def _parts(found: AcceleratorReport, dram: bool) -> Mapping[str, float]:
    return {
        part: joules / found.macs * 1e12 if dram or part != "DRAM" else 0.0
        for part, joules in found.energy_parts.items()
    }


def pictures() -> dict[str, str]:
    """Return the pictures by file name."""
    return {f"accelerators-{name}.svg": picture(title, bars) for name, title, bars in families()}
