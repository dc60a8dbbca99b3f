"""Write docs/hardware-devices.md, every chip of the table: python docs/figures/hardware_devices.py"""

from __future__ import annotations

from runner import DOCS

from heterocompute import hardware as hw

PAGE = DOCS / "hardware-devices.md"
KINDS = {"gpu": "GPUs", "system": "Systems of chips", "tpu": "TPUs", "npu": "NPUs", "asic": "Other chips for networks",
         "phone": "Phones", "cpu": "CPUs", "fpga": "FPGAs"}  # fmt: skip


def rates(one: hw.Device) -> str:
    """Return dense rates, with the sparse rate after a slash, in 10^12 operations/s."""
    found = []
    for dtype in dict.fromkeys((*one.dense_rates, *one.sparse_rates)):
        dense, sparse = one.dense_rates.get(dtype), one.sparse_rates.get(dtype)
        text = "-" if dense is None else f"{dense / 1e12:.5g}"
        text += "?" if f"peak.{dtype}" in one.unverified else ""
        if sparse is not None:
            text += f"/{sparse / 1e12:.5g}" + ("?" if f"sparse.{dtype}" in one.unverified else "")
        found.append(f"{dtype} {text}")
    return ", ".join(found) or "-"


def figure(one: hw.Device, name: str, scale: float) -> str:
    value = getattr(one, name)
    return "-" if value is None else f"{value / scale:.5g}" + ("?" if name in one.unverified else "")


def sources(one: hw.Device) -> str:
    found = dict.fromkeys(source for name in one.figures() if (source := one.source_of(name)))
    return "; ".join(found) or one.source.get("*", "-")


def page() -> str:
    """Return the page."""
    lines = [
        "# The devices",
        "",
        "These tables list all chips that `hw.device` and `heterocompute roofline` know by name, with the sources of",
        "their numbers. To model a chip that is not listed, see [hardware](hardware.md#devices).",
        "",
        "- **Rates** are in 10^12 operations/s, dense/2:4-sparse. A multiply-add is two operations.",
        "- **`fp16`** accumulates in fp32 on matrix units, **`fp16-acc16`** in fp16. **`fp16-vector`** is the rate",
        "  without matrix units.",
        "- **Links** are in 10^9 B/s, both directions together.",
        "- **?** marks a number that no source confirms, **-** an unknown one.",
        "",
        "`python docs/figures/hardware_devices.py` generates this page from",
        "`heterocompute/hardware/chips/devices.toml`.",
    ]
    for kind, title in KINDS.items():
        lines += ["", f"## {title}", "",
                  "| device | year | process | rates | GB/s | memory GiB | on chip MiB | W | links | source |",
                  "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
        for one in hw.devices(kind).values():
            year = "-" if one.year is None else f"{one.year}" + ("?" if "year" in one.unverified else "")
            process = "-" if one.process is None else one.process + ("?" if "process" in one.unverified else "")
            links = ", ".join(
                f"{link} {rate / 1e9:.4g}" + ("?" if f"links.{link}" in one.unverified else "")
                for link, rate in one.links.items()
            )
            cells = [f"`{one.name}` {one.title}", year, process, rates(one), figure(one, "bandwidth", 1e9),
                     figure(one, "memory", 2**30), figure(one, "on_chip", 2**20), figure(one, "tdp", 1), links or "-",
                     sources(one) + (f" *{one.note}*" if one.note else "")]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
